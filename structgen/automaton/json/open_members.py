"""Which members may come next in an open object without leading into a dead end.

Where members are counted or there is a rule, every way on is checked for a way to close the object
(`closing`). Most are told by a completion that is known already: what it writes may begin with any
of its members. Of many alternatives the few are tried that speak of the key. What one more member
makes of an open object, `MemberWays` says. Knows no leaves and no frames.
"""

from __future__ import annotations

from structgen.automaton.bits import bits
from structgen.automaton.schema.member_ways import MemberWays, State
from structgen.automaton.schema.members import MemberTable
from structgen.automaton.schema.rules import Rule
from structgen.automaton.work import WORK

from .closing import Closing, Members
from .language import Language

_MANY_ALTERNATIVES = 8
"""Alternatives from which on one that allows a key is looked for before all are considered."""

_FEW_TRIED = 3
"""So many of them are."""


class OpenMembers(Closing):
    """The members that objects of one member table may go on with, as these can be closed."""

    def __init__(self, language: Language, table: MemberTable, ways: MemberWays) -> None:
        super().__init__(language, table, ways)
        self._n_names = len(table.names)
        self._in_order = ways.in_order
        self._owed: dict[State, Members | None] = {}
        self._closable: dict[State, bool] = {}
        self._open: dict[tuple[State, int], bool] = {}
        # Bit masks of names: in a known completion of the object, and with which one may begin.
        self._completing: dict[State, int] = {}
        self._first_names: dict[State, int] = {}
        # From which label on no key may come, for what would stay absent before it.
        self._barred_from: dict[State, int] = {}
        # By choice, for each fact the places of the first few alternatives that speak of it.
        self._speaking: dict[Rule, dict[int, list[int]]] = {}
        # The choice with the most alternatives in a rule, if these are many.
        self._widest: dict[Rule, Rule | None] = {}
        # A rule with one part of its widest disjunction instead of that.
        self._alone: dict[tuple[Rule, Rule], Rule] = {}

    def open_ways(self, state: State, label: int, name: str | None) -> list[tuple[int, State]]:
        """The ways for such a member that do not lead into a dead end, where some may."""
        return [
            (conjunction, after)
            for conjunction, after in self._ways.steps(state, label, name)
            if self.may_close(after) and self._language.values.is_possible(conjunction)
        ]

    def may_write(self, state: State, label: int) -> bool:
        """Whether a member with key ``label`` may come next."""
        key = (state, label)
        found = self._open.get(key)
        if found is None:
            found = label < self._barred_from.get(state, label + 1) and (
                # A completion that is known has such a member, and may be written in another
                # order: a chain of what needs one another is then followed once.
                (label < self._n_names and self._first_names.get(state, 0) >> label & 1 != 0)
                or self._may_write_surely(state, label)
                or self._leads_on(state, label)
            )
            if not self._language.values.is_solving:
                self._open[key] = found
        return found

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
        if self._in_order and self._ways.rule_before(state, label) is self._language.book.no:
            # What has to come before stays absent before all later keys too.
            self._barred_from[state] = min(label, self._barred_from.get(state, label))
            return False
        name = self._example(state, label) if label >= self._n_names else None
        for conjunction, after in self._ways.steps(state, label, name):
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
        after = [state for _, state in self._ways.steps(state, label, None)]
        tells_apart = self._ways.tells_keys_apart
        if not any(tells_apart(count, rule, ("",)) for _, count, rule, _ in after):
            return None
        return self.spare.one(state[3], label)

    def may_close(self, state: State) -> bool:
        """Whether there are members that complete the object after ``state``."""
        found = self._closable.get(state)
        if found is None:
            owed = self._owed.get(state, False)
            if owed is False:
                owed = self.some_members(state)
            found = owed is not None
            if not self._language.values.is_solving:
                self._closable[state] = found
                if isinstance(owed, tuple) and owed:
                    names = 0
                    for label, *_ in owed:
                        names |= 1 << label
                    names &= (1 << self._n_names) - 1
                    self._completing[state] = names
                    self._note_completion(state, names)
        return found

    def owed(self, state: State) -> Members | None:
        """The cheapest members that are still owed after ``state``, or None if that is hopeless."""
        found = self._owed.get(state, False)
        if found is False:
            found = self.members(state)
            if not self._language.values.is_solving:
                self._owed[state] = found
        return found  # type: ignore[return-value]

    def _note_completion(self, state: State, names: int) -> None:
        """Note that members with ``names`` (bit mask), and perhaps unnamed ones, complete an object
        after ``state``."""
        if self._language.values.is_solving:
            return
        first = names & self._table.ordered if self._in_order else 0
        first = first & -first if first else names
        self._first_names[state] = self._first_names.get(state, 0) | first
