"""What one more member makes of an open object.

`ObjectSteps` tells, for a key, what the member's value owes and the `State` after it: which names
are then left, how many members count, what is left of the rule. Whether the object can be closed
from there is not known here.
"""

from __future__ import annotations

from .closing import State
from .language import Language
from .member_ways import MemberWays
from .members import MemberTable
from .rules import Rule


class ObjectSteps:
    """The steps of objects of one member table.

    Args:
        values: what their members' values may be.
        is_involved: whether more than the names still allowed tells one state from another.
    """

    def __init__(
        self, language: Language, table: MemberTable, values: MemberWays, is_involved: bool
    ) -> None:
        self._table = table
        self._no = language.book.no
        self._n_names = len(table.names)
        self._is_involved = is_involved
        self._in_order = language.options.property_order == "schema"
        self._values = values

    def after(self, state: State, label: int, rule: Rule, name: str | None) -> State:
        """The state once the member with key ``label``, which leaves ``rule``, is complete."""
        before, count, _, keys = state
        table = self._table
        left = self.left_after(before, label)
        if label < self._n_names:
            before &= ~(1 << label)
        elif name is not None:
            keys = tuple(sorted({*keys, name}))
        rule = table.without(rule, before & ~left)
        if self._table.counts:
            count = min(count + 1, table.count_to)
            rule = table.counted(rule, count)
        return left, count, rule, keys if self.tells_keys_apart(count, rule, keys) else ()

    def left_after(self, left: int, label: int) -> int:
        """The names still allowed after a member with key ``label``.

        In order, whatever the schema lists before this key stays absent.
        """
        if label < self._n_names:
            left &= ~(1 << label)
        return left & ~(self._table.ordered & ((1 << label) - 1)) if self._in_order else left

    def ways(self, state: State, label: int, name: str | None) -> list[tuple[int, State]]:
        """For a member with key ``label``: the conjunction its value owes, and the state after."""
        if not self._is_involved:
            left, _, rule, _ = state
            return [(self._table.conjunctions[label], (self.left_after(left, label), 0, rule, ()))]
        rule = self.rule_before(state, label)
        if rule is self._no:
            return []
        return [
            (conjunction, self.after(state, label, rule, name))
            for conjunction, rule in self._values.ways(rule, label)
        ]

    def rule_before(self, state: State, label: int) -> Rule:
        """What is left of the rule when what has to come before a key with ``label`` is absent."""
        left = state[0]
        if label < self._n_names:
            left &= ~(1 << label)
        return self._table.without(state[2], left & ~self.left_after(left, label))

    def tells_keys_apart(self, count: int, rule: Rule, keys: tuple[str, ...]) -> bool:
        """Whether unnamed keys must be distinct: a repeated one would count, or settle, nothing.

        Unnamed ``keys`` that may have settled the rule must not be written again either: of two
        members with one key, readers keep the last.
        """
        told = self._table.told_by_any
        if keys and self._table.rule.support & told:
            return True
        return count < self._table.least or bool(rule.support & told)
