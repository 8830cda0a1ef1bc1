"""What a member's value may be, and what is left of the rule then.

`MemberWays` takes the rule about an object's members further by one member: the value is told apart
into the few cases that make a difference, each with what it owes and the rule after it. Where the
cases are many, another member that tells alternatives apart is decided first (a tag), or the parts
of a disjunction are followed side by side. Which keys there are is `members`' business, what has
been written that of `objects`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from structgen.automaton.bits import bits
from structgen.errors import CompileLimitExceeded

from .cases import told_apart
from .language import Language
from .members import MemberTable
from .requirements import Requirements
from .rules import Rule

MAX_CASES = 2
"""Most cases for each fact that the value of one member is told apart into, if there is another
way."""

MAX_TOLD_APART = 100
"""Most cases that the value of one member is told apart into where there is no other way: what
each of them owes is a long conjunction."""

MAX_WAYS = 1000
"""Most ways of one member in all."""

MAX_SPREAD = 32
"""Most parts of an "exactly one" of which it is tried whether they exclude each other."""

MOST_FEW = 5
"""Questions about a value that leave few cases, whatever they are."""

MAX_UNLISTED = 8
"""Most questions about a value, of those that list no values, before other members are decided."""

MIN_DISCRIMINATED = 3
"""Fewest questions about a member that is decided before others."""

MAX_DEEP = 8
"""Most objects and arrays that are told apart from each other, where alternatives can be followed
side by side instead: what an object is not makes long conjunctions."""


class MemberWays:
    """The ways of one table's members.

    Args:
        language: of which the object is part.
        table: its members.
    """

    def __init__(self, language: Language, table: MemberTable) -> None:
        self._language = language
        self._book = language.book
        self._table = table
        self._flat: dict[int, bool] = {}
        self._refined: dict[Rule, Rule] = {}
        self._ways: dict[tuple[Rule, int, int], list[tuple[int, Rule]]] = {}
        # By conjunction, what the values that owe it anyway may be.
        self._starts: dict[int, Requirements] = {}
        # What `_told_apart` has found, or that it is more than so many.
        self._cases_told: dict[tuple[Rule, int, int], list[tuple[Requirements, Rule]] | int] = {}

    def ways(self, rule: Rule, label: int) -> list[tuple[int, Rule]]:
        """The cases of a member with this label: ``(conjunction its value owes, rule after)``.

        Every value that may do falls into a case, perhaps into several. Cases after which nothing
        can hold are left out.

        Raises:
            CompileLimitExceeded: there are too many cases.
        """
        if not rule.support & self._table.touching(label):
            return [(self._table.conjunctions[label], rule)]
        return self._ways_owing(rule, label, self._table.conjunctions[label])

    def are_few(self, rule: Rule, label: int) -> bool:
        """Whether the ways of a member with this label are plainly few, and what they owe plain.

        A sufficient test that builds nothing.
        """
        book = self._book
        touched = rule.support & self._table.touching(label) & ~book.presence
        asked = {fact.detail[1] >> 1 for fact in book.facts_in(touched)}
        return len(asked) <= MOST_FEW and all(map(self._is_flat, asked))

    def _is_flat(self, number: int) -> bool:
        """Whether a node says nothing of what is inside a value, and by itself."""
        found = self._flat.get(number)
        if found is None:
            node = self._language.nodes[number]
            found = not (
                node.applies_in_place or node.speaks_of_objects or node.speaks_of_arrays
            ) and (node.enum is None or node.is_list)
            self._flat[number] = found
        return found

    def _ways_owing(self, rule: Rule, label: int, owed: int) -> list[tuple[int, Rule]]:
        """As `ways`, of a value that has to satisfy the conjunction ``owed`` anyway."""
        key = (rule, label, owed)
        found = self._ways.get(key)
        if found is None:
            found = self._ways[key] = self._find_ways(rule, label, owed)
        return found

    def _find_ways(self, rule: Rule, label: int, base: int) -> list[tuple[int, Rule]]:
        book = self._book
        owed, rule = self._begun(rule, label, base)
        touched = self._touched(rule, label)
        if not touched:
            return [(owed.conjunction, rule)] if rule is not book.no else []
        asked = {fact.detail[1] >> 1 for fact in book.facts_in(touched)}
        tries: list[Callable[[], list[tuple[int, Rule]] | None]] = [
            lambda: self._cases(rule, label, owed, 8 + MAX_CASES * len(asked)),
            # The facts are too many to tell apart. Follow alternatives side by side instead.
            lambda: self._ways_of_parts(self._by_discriminator(rule, label), label, owed.base),
            lambda: self._ways_of_parts(self._alternatives(rule, touched), label, owed.base),
        ]
        if owed.are_deep(asked, MAX_DEEP):
            tries = tries[::-1] if rule.kind == "any" else [tries[1], tries[0], tries[2]]
        elif len(asked) > MAX_UNLISTED and self._are_unlisted(owed, asked):
            tries = [tries[1], tries[0], tries[2]]
        for attempt in tries:
            found = attempt()
            if found is not None:
                return found
        found = self._cases(rule, label, owed, MAX_TOLD_APART)
        if found is None:
            raise CompileLimitExceeded(
                f"too many alternatives overlap in one member of the object at {self._table.path}; "
                "make them easier to tell apart (a const in a shared required property), or use "
                "anyOf instead of oneOf",
                limit=MAX_TOLD_APART,
                actual=MAX_TOLD_APART + 1,
            )
        return found

    def _are_unlisted(self, owed: Requirements, asked: Iterable[int]) -> bool:
        """Whether more than `MAX_UNLISTED` nodes say more of a value than which ones they list."""
        return sum(owed.listed_by(number) is None for number in asked) > MAX_UNLISTED

    def _touched(self, rule: Rule, label: int) -> int:
        """Bit mask of the facts that are open once a value owes what `_begun` says."""
        return rule.support & self._table.touching(label) & ~rule.single[1]

    def _begun(self, rule: Rule, label: int, base: int) -> tuple[Requirements, Rule]:
        """What a member's value owes in any case, and the rule once its key is there."""
        book, table, language = self._book, self._table, self._language
        touching = table.touching(label)
        named = book.by_name.get(table.names[label], 0) if label < len(table.names) else 0
        rule = book.settle(rule, rule.support & touching & book.presence, 0)
        more: list[int] = []
        known = 0
        while True:
            holding, failing = rule.single
            # What one of several members has to meet, another one may; what none may, all must not.
            holding &= named
            failing &= touching & ~known
            if not holding | failing:
                break
            known |= failing
            more += [fact.detail[1] for fact in book.facts_in(holding)]
            more += [fact.detail[1] ^ 1 for fact in book.facts_in(failing)]
            rule = book.settle(rule, holding, failing & named)
        conjunction = language.conjunctions.extended(base, more) if more else base
        start = self._starts.get(conjunction)
        if start is None:
            start = self._starts[conjunction] = Requirements(language, conjunction)
        if more and rule is not book.no and language.values.clearly_empty(conjunction):
            rule = book.no
        return start, rule

    def _ways_of_parts(
        self, parts: list[Rule], label: int, owed: int
    ) -> list[tuple[int, Rule]] | None:
        """The ways of several rules together, of a value that has to satisfy the
        conjunction ``owed``.

        None when there are too many, or no rules.
        """
        out: dict[tuple[int, Rule], None] = {}
        for part in parts:
            try:
                out.update(dict.fromkeys(self._ways_owing(part, label, owed)))
            except CompileLimitExceeded:
                return None
            if len(out) > MAX_WAYS:
                return None
        return list(out) if out else None

    def _alternatives(self, rule: Rule, touched: int) -> list[Rule]:
        """Smaller rules of which one holds exactly if ``rule`` does; none if it has no parts."""
        parts = rule.parts if rule.kind == "all" else (rule,)
        wide = [p for p in parts if p.kind in ("any", "count") and p.support & touched]
        wide = [p for p in wide if p.kind == "any" or p.detail == 2]
        if not wide:
            return []
        chosen = max(wide, key=lambda part: (part.support & touched).bit_count())
        others = tuple(part for part in parts if part is not chosen)
        if chosen.kind == "count":
            ways = self._each_alone(chosen)
        else:
            away = [part for part in chosen.parts if not part.support & touched]
            ways = [part for part in chosen.parts if part.support & touched]
            ways += [self._book.any(away)] if away else []
        refined = (self._refine(self._book.all((way, *others))) for way in ways)
        return [rule for rule in refined if rule is not self._book.no]

    def _by_discriminator(self, rule: Rule, label: int) -> list[Rule]:
        """``rule`` for each value that matters of another member, one that tells much apart."""
        book = self._book
        table, language = self._table, self._language
        asked: dict[str, set[int]] = {}
        for fact in book.facts_in(rule.support & ~book.presence & ~book.counting):
            keys, requirement = fact.detail
            if keys.name is not None:
                asked.setdefault(keys.name, set()).add(requirement >> 1)
        for name in sorted(asked, key=lambda name: -len(asked[name])):
            at = table.index[name]
            if at == label or len(asked[name]) < MIN_DISCRIMINATED:
                continue
            base = table.conjunctions[at]
            owed, there = self._begun(rule, at, base)
            if owed.are_deep(asked[name], MAX_DEEP):
                continue  # it has to be told apart itself
            cases = self._told_apart(there, at, owed, len(asked[name]) + 1)
            if cases is None or len(cases) < 2:
                continue  # it tells nothing apart, or has been decided
            has = book.has(name)
            away = book.all((table.without(rule, 1 << at), has.negated))
            found = [away] if not table.required >> at & 1 else []
            known = set(language.conjunctions.requirements(base))
            for case, left in cases:
                owing = language.conjunctions.requirements(case.conjunction)
                facts = [book.some(has.detail[0], ob) for ob in owing if ob not in known]
                found.append(book.all((has, *facts, left)))
            return [way for way in found if way is not book.no]
        return []

    def _each_alone(self, count: Rule) -> list[Rule]:
        """Each part of an "exactly one" with the others excluded."""
        parts = count.parts
        return [
            self._refine(self._book.all([p, *(q.negated for j, q in enumerate(parts) if j != i)]))
            for i, p in enumerate(parts)
        ]

    def spread(self, rule: Rule) -> Rule:
        """``rule`` with every "exactly one" whose parts exclude each other as a mere "some"."""
        out: list[Rule] = []
        for part in rule.parts if rule.kind == "all" else (rule,):
            if part.kind == "count" and part.detail == 2 and part.size <= MAX_SPREAD:
                alone = self._each_alone(part)
                if all(not a.support & ~p.support for a, p in zip(alone, part.parts, strict=True)):
                    part = self._book.any(alone)
            out.append(part)
        return self._refine(self._book.all(out))

    def _refine(self, rule: Rule) -> Rule:
        """``rule`` with facts settled that what has to hold of the same member decides."""
        found = self._refined.get(rule)
        if found is None:
            found = rule
            while True:
                true, false = self._implied(found)
                if not true | false:
                    break
                found = self._book.settle(found, true, false)
            self._refined[rule] = found
        return found

    def _implied(self, rule: Rule) -> tuple[int, int]:
        """Bit masks of the facts that the single facts in ``rule`` bring about and rule out."""
        table = self._table
        # What has to be there owes what it owes: a tag tells other alternatives' tags at once.
        owed: dict[str, list[int]] = {table.names[at]: [] for at in bits(table.required)}
        single = 0
        for part in rule.parts if rule.kind == "all" else ():
            if part.kind == "some" and part.detail[0].name is not None:
                single |= part.support
                owed.setdefault(part.detail[0].name, []).append(part.detail[1])
        asked: dict[str, list[Rule]] = {}
        for fact in self._book.facts_of(rule):
            if fact.kind == "some" and not fact.support & single:
                name = fact.detail[0].name
                if name in owed:
                    asked.setdefault(name, []).append(fact)
        true = false = 0
        for name, facts in asked.items():
            known: Requirements | None = Requirements(
                self._language, table.conjunctions[table.index[name]]
            )
            for requirement in owed[name]:
                known = known and known.adding(requirement)
            for fact in facts:
                requirement = fact.detail[1]
                if known is None or known.adding(requirement) is None:
                    false |= fact.support
                elif known.adding(requirement ^ 1) is None:
                    true |= fact.support
        return true, false

    def _cases(
        self, rule: Rule, label: int, owed: Requirements, limit: int
    ) -> list[tuple[int, Rule]] | None:
        """The cases told apart by every fact that matters; None when there are more than
        ``limit``."""
        found = self._told_apart(rule, label, owed, limit)
        if found is None:
            return None
        return list(dict.fromkeys((case.conjunction, left) for case, left in found))

    def _told_apart(
        self, rule: Rule, label: int, owed: Requirements, limit: int
    ) -> list[tuple[Requirements, Rule]] | None:
        """As `_cases`, with what the value owes in parts."""
        key = (rule, label, owed.base)
        found = self._cases_told.get(key)
        if found is None or (isinstance(found, int) and found < limit):
            touched = self._touched(rule, label)
            cases = told_apart(self._language, rule, touched, owed, limit)
            found = self._cases_told[key] = limit if cases is None else cases
        return None if isinstance(found, int) or len(found) > limit else found
