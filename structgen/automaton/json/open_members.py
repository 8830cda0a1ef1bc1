"""Which members may come next in an open object without leading into a dead end.

Where members are counted or there is a rule, every way on is checked for a way to close the object
(`closing`). Most are told by a completion that is known already: what it writes may begin with any
of its members. Of many alternatives the few are tried that speak of the key. Knows no leaves and no
frames.

What one more member makes of an open object. `ObjectSteps` tells, for a key, what the member's
value owes and the `State` after it: which names are then left, how many members count, what is left
of the rule. Whether the object can be closed from there is not known here.
"""

from __future__ import annotations

from functools import cached_property

from structgen.automaton.bits import bits
from structgen.automaton.schema.member_ways import MemberWays
from structgen.automaton.schema.members import MemberTable
from structgen.automaton.schema.rules import Rule
from structgen.automaton.work import WORK

from .closing import Closing, Members, State
from .language import Language


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


_MANY_ALTERNATIVES = 8
"""Alternatives from which on one that allows a key is looked for before all are considered."""

_FEW_TRIED = 3
"""So many of them are."""


class OpenMembers:
    """The members that objects of one member table may go on with.

    Attributes:
        closing: completes such objects.
    """

    def __init__(
        self, language: Language, table: MemberTable, steps: ObjectSteps, values: MemberWays
    ) -> None:
        self._language = language
        self._table = table
        self._steps = steps
        self._n_names = len(table.names)
        self._in_order = language.options.property_order == "schema"
        self.closing = Closing(language, table, values)
        self._known: dict[State, Members | None] = {}
        self._closable: dict[State, bool] = {}
        self._open: dict[tuple[State, int], bool] = {}
        # Bit masks of names: in a known completion of the object, and with which one may begin.
        self._completing: dict[State, int] = {}
        self._first_names: dict[State, int] = {}
        # From which label on no key may come, for what would stay absent before it.
        self._barred_from: dict[State, int] = {}

    # What only rules with many alternatives need.

    @cached_property
    def _speaking(self) -> dict[Rule, dict[int, list[int]]]:
        """By choice, for each fact the places of the first few alternatives that speak of it."""
        return {}

    @cached_property
    def _widest(self) -> dict[Rule, Rule | None]:
        """The choice with the most alternatives in a rule, if these are many."""
        return {}

    @cached_property
    def _alone(self) -> dict[tuple[Rule, Rule], Rule]:
        """A rule with one part of its widest disjunction instead of that."""
        return {}

    def open_ways(self, state: State, label: int, name: str | None) -> list[tuple[int, State]]:
        """The ways for such a member that do not lead into a dead end, where some may."""
        ways = self._steps.ways(state, label, name)
        if len(ways) == 1 and label < self._n_names and not self._language.values.is_solving:
            ((_, after),) = ways
            rest = self._completing.get(state, 0) & ~(1 << label)
            if after not in self._closable and self._begins(state, label):
                # What completes the object with this member does so after it.
                self._closable[after] = True
                self._completing[after] = rest
                self._note_completion(after, rest)
                return ways
        return [
            (conjunction, after)
            for conjunction, after in ways
            if self.may_close(after) and self._language.values.is_possible(conjunction)
        ]

    def may_write(self, state: State, label: int) -> bool:
        """Whether a member with key ``label`` may come next."""
        key = (state, label)
        found = self._open.get(key)
        if found is None:
            found = label < self._barred_from.get(state, label + 1) and (
                self._begins_a_completion(state, label)
                or self._may_write_surely(state, label)
                or self._leads_on(state, label)
            )
            if not self._language.values.is_solving:
                self._open[key] = found
        return found

    def _begins(self, state: State, label: int) -> bool:
        """Whether the completion that is known of ``state`` may begin with this name."""
        names = self._completing.get(state, 0)
        if not names >> label & 1:
            return False
        return not (self._in_order and names & self._table.ordered & ((1 << label) - 1))

    def _begins_a_completion(self, state: State, label: int) -> bool:
        """A sufficient test of `_may_write`: a completion that is known has such a member, and may
        be written in another order. A chain of what needs one another is then followed once."""
        return label < self._n_names and bool(self._first_names.get(state, 0) >> label & 1)

    def _may_write_surely(self, state: State, label: int) -> bool:
        """A sufficient test of `_may_write` where many alternatives are open: one of them will do.

        Those that speak of the key are looked at first. To tell apart what its value means to all
        of them is left to when it is written; so is what is left of them all when the names before
        the key stay absent.
        """
        left, count, rule, keys = state
        if label >= self._n_names or rule.is_fact:
            return False
        book = self._language.book
        if rule in self._widest:
            clause = self._widest[rule]
        else:
            parts = rule.parts if rule.kind == "all" else (rule,)
            clauses = [p for p in parts if p.is_choice and p.size >= _MANY_ALTERNATIVES]
            clause = max(clauses, key=lambda part: part.size, default=None)
            self._widest[rule] = clause
        if clause is None:
            return False
        others = [part for part in rule.parts if part is not clause] if rule.kind == "all" else []
        named = book.by_name.get(self._table.names[label], 0)
        speaking = self._speaking_of(clause, named & clause.support)
        for part in dict.fromkeys((*speaking, *clause.parts[:_FEW_TRIED])):
            alone = self._alone.get((part, rule))
            if alone is None:
                alone = self._alone[part, rule] = book.chosen(clause, part, others)
            if alone is not book.no and self.may_write((left, count, alone, keys), label):
                return True
        return False

    def _speaking_of(self, clause: Rule, facts: int) -> list[Rule]:
        """The first few alternatives of ``clause`` that speak of any of ``facts``, a bit mask."""
        places = self._speaking.get(clause)
        if places is None:
            places = self._speaking[clause] = {}
            for place, part in enumerate(clause.parts):
                WORK.spend(1 + (part.support.bit_count() >> 2))
                for fact in bits(part.support):
                    first = places.setdefault(fact, [])
                    if len(first) < _FEW_TRIED:
                        first.append(place)
        found = {place for fact in bits(facts) for place in places.get(fact, ())}
        return [clause.parts[place] for place in sorted(found)[:_FEW_TRIED]]

    def _leads_on(self, state: State, label: int) -> bool:
        """Whether a member with key ``label`` may come next, by what may follow it."""
        if self._in_order and self._steps.rule_before(state, label) is self._language.book.no:
            # What has to come before stays absent before all later keys too.
            self._barred_from[state] = min(label, self._barred_from.get(state, label))
            return False
        name = self._example(state, label) if label >= self._n_names else None
        for conjunction, after in self._steps.ways(state, label, name):
            if self.may_close(after) and self._language.values.is_possible(conjunction):
                if name is None and label < self._n_names:
                    self._note_completion(state, self._completing.get(after, 0) | 1 << label)
                return True
        return False

    def _example(self, state: State, label: int) -> str | None:
        """Some unnamed key that a member with this label may have, where it matters that such a
        key has been used: those that are left may be too few.

        Any of its class will do: whichever is used, as many of each class are left.
        """
        table = self._table
        if table.takes_any_key:
            return None
        steps = self._steps
        after = [state for _, state in steps.ways(state, label, None)]
        if not any(steps.tells_keys_apart(count, rule, ("",)) for _, count, rule, _ in after):
            return None
        return self.closing.spare.one(state[3], label)

    def may_close(self, state: State) -> bool:
        """Whether there are members that complete the object after ``state``."""
        found = self._closable.get(state)
        if found is None:
            owed = self._known.get(state, False)
            if owed is False:
                owed = self.closing.some_members(state)
            found = owed is not None
            if not self._language.values.is_solving:
                self._closable[state] = found
                if isinstance(owed, tuple) and owed:
                    names = 0
                    for label, _ in owed:
                        names |= 1 << label
                    names &= (1 << self._n_names) - 1
                    self._completing[state] = names
                    self._note_completion(state, names)
        return found

    def owed(self, state: State) -> Members | None:
        """The cheapest members that are still owed after ``state``, or None if that is hopeless."""
        found = self._known.get(state, False)
        if found is False:
            found = self.closing.members(state)
            if not self._language.values.is_solving:
                self._known[state] = found
        return found  # type: ignore[return-value]

    def _note_completion(self, state: State, names: int) -> None:
        """Note that members with ``names`` (bit mask), and perhaps unnamed ones, complete an object
        after ``state``."""
        if self._language.values.is_solving:
            return
        first = names & self._table.ordered if self._in_order else 0
        first = first & -first if first else names
        self._first_names[state] = self._first_names.get(state, 0) | first
