"""What an open object has to see to first, of what is left of its rule.

`RuleNeeds` drops the parts of a rule that hold as they are and have nothing to do with the others,
and finds its `FirstStep`: a member that has to be there, or a disjunction of which some part has to
hold. Knows no values and no search.
"""

from __future__ import annotations

from collections.abc import Iterator

from .members import MemberTable
from .rules import Rule, RuleBook

_MANY_PARTS = 8
"""Parts of a rule from which on those that matter are looked for."""


class FirstStep:
    """What to go for where a rule has to be made to hold: a fact about a name, or else some part of
    a disjunction.

    Attributes:
        wanted: that fact, or None.
        clause: that disjunction, or None.
    """

    __slots__ = ("_names", "_others", "_rule", "_ways", "clause", "wanted")

    def __init__(self, rule: Rule) -> None:
        self.wanted: Rule | None = None
        self.clause: Rule | None = None
        self._rule = rule
        self._names: list[str] | None = None
        self._ways: list[Rule] = []
        parts = rule.parts if rule.kind == "all" else (rule,)
        for part in parts:
            if part.kind == "some" and part.detail[0].name is not None:
                self.wanted = part
                return
        clauses = [part for part in parts if part.is_choice]
        if clauses:
            self.clause = min(clauses, key=lambda part: part.size)
            self._others = tuple(part for part in parts if part is not self.clause)

    def names(self, book: RuleBook) -> list[str]:
        """The names that the rule speaks of, in its order."""
        if self._names is None:
            facts = [fact for fact in book.facts_of(self._rule) if fact.kind == "some"]
            names = [fact.detail[0].name for fact in facts]
            self._names = [name for name in names if name is not None]
        return self._names

    def ways(self, book: RuleBook) -> Iterator[Rule]:
        """The rule, once for each part of the clause: with that part instead of the clause."""
        assert self.clause is not None
        for i, part in enumerate(self.clause.parts):
            if i == len(self._ways):
                self._ways.append(book.chosen(self.clause, part, self._others))
            yield self._ways[i]


class RuleNeeds:
    """What the rules of one member table need."""

    def __init__(self, book: RuleBook, table: MemberTable) -> None:
        self._book = book
        self._table = table
        self._first_steps: dict[Rule, FirstStep] = {}
        self._part_names: dict[Rule, int] = {}
        self._needed: dict[Rule, Rule] = {}

    def needed(self, rule: Rule) -> Rule:
        """``rule`` without what holds as it is and shares no names, even by others, with the rest.

        No member is looked for on its account, and none that is will break it.
        """
        table = self._table
        if rule.kind != "all" or rule.size < _MANY_PARTS or table.counts or table.speaks_of_unnamed:
            return rule
        found = self._needed.get(rule)
        if found is None:
            names = self._part_names
            mask = 0
            rest: list[tuple[int, Rule]] = []
            for part in rule.parts:
                labels = names.get(part)
                if labels is None:
                    labels = names[part] = table.labels_of(part)
                if table.holds_now(part):
                    rest.append((labels, part))
                else:
                    mask |= labels
            while True:
                spare: list[tuple[int, Rule]] = []
                for labels, part in rest:
                    if labels & mask:
                        mask |= labels
                    else:
                        spare.append((labels, part))
                if len(spare) == len(rest):
                    break
                rest = spare[::-1]  # there and back again: chains are mostly in order
            kept = set(rule.parts).difference([part for _, part in spare])
            found = self._needed[rule] = self._book.part_of(rule, kept)
        return found

    def first_step(self, rule: Rule) -> FirstStep:
        """Where to begin with ``rule``."""
        step = self._first_steps.get(rule)
        if step is None:
            step = self._first_steps[rule] = FirstStep(rule)
        return step
