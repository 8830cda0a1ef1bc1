"""The possible values of a member, and the rule about all members after each.

`MemberWays` advances the rule by one member. It divides the member's values into the few cases that
make a difference (`split_cases`), each with the requirements on the value and the rule after it.
Facts that list values are decided together, by value: a tag has as many cases as values, not one
for each pair of lists. `Requirements` compare such lists without using the language. Other facts
are decided one by one. If there are many cases, another member that discriminates alternatives is
decided first, or the parts of a disjunction are followed in parallel. `members` knows the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from structgen.automaton.bits import bits
from structgen.automaton.work import WORK
from structgen.errors import CompileLimitExceeded
from structgen.grammar.json_schema import ALL_TYPES, ARRAY, OBJECT, STRING, Node
from structgen.storage import cached_method

from .conjunctions import types_of
from .language import Schema
from .members import MemberTable
from .rules import Rule


class Requirements:
    """Requirements on one value. Immutable.

    Args:
        language: the language of the value.
        base: the conjunction that applies in any case.

    Attributes:
        among: all possible values by `json_key`, if they are listed; else None.
        requirements: the added requirements.
    """

    __slots__ = (
        "_barred",
        "_is_exact",
        "_is_guess",
        "_language",
        "_types",
        "among",
        "base",
        "requirements",
    )

    def __init__(self, language: Schema, base: int) -> None:
        self._language = language
        self.base = base
        self.among: frozenset[Any] | None = None
        self._barred: frozenset[Any] = frozenset()
        self._is_guess = False
        # Whether all of them are possible, and they are strings.
        self._is_exact = True
        self._types: int | None = None
        self.requirements: tuple[int, ...] = ()
        for requirement in language.conjunctions.requirements(base):
            listing = language.listings.of(requirement)
            if listing is None:
                self._is_exact &= language.listings.is_silent(requirement)
                continue
            self._is_exact &= listing.is_exact
            self.among = listing.keys if self.among is None else self.among & listing.keys
        self._is_exact &= self.among is not None

    def listed_by(self, number: int) -> frozenset[Any] | None:
        """Return all values, by `json_key`, that meet node ``number``; None if they are not a plain
        list.
        """
        node = self._language.nodes[number]
        if node.is_list:
            return node.listed
        return self._language.listings.words(number) if not self.types & ~STRING else None

    def are_deep(self, numbers: Iterable[int]) -> bool:
        """Return whether more than `MAX_DEEP` of these nodes may have requirements inside the
        value."""
        inside = self.types & (OBJECT | ARRAY)
        if not inside:
            return False
        nodes = [self._language.nodes[number] for number in numbers]
        return sum(n.enum is None and n.types & inside != 0 for n in nodes) > MAX_DEEP

    @property
    def types(self) -> int:
        """The type bits that the value can have."""
        if self._types is None:
            self._types = ALL_TYPES
            for requirement in self._language.conjunctions.requirements(self.base):
                self._types &= types_of(self._language.nodes, requirement)
            if self.among is not None and all(isinstance(key, str) for key in self.among):
                self._types &= STRING
        return self._types

    def with_values(self, keys: frozenset[Any], requirements: Iterable[int]) -> Requirements:
        """Return the case that the value is in ``keys``, with further ``requirements``."""
        other = self._copy()
        other._is_guess = True
        other.among = keys if self.among is None else keys & self.among
        if self._is_exact and not self.requirements:
            # The list is complete: whoever builds it need not multiply out its sources.
            values = tuple(sorted(other.among))
            alone = self._language.add(Node(self._path, types=STRING, enum=values))
            other.base, other._is_guess = alone, False
        else:
            other.requirements = (*self.requirements, *requirements)
        return other

    def without_values(self, keys: frozenset[Any], requirements: Iterable[int]) -> Requirements:
        """Return the case that the value is not in ``keys``, with further ``requirements``."""
        other = self._copy()
        other._is_guess = True
        other._barred = self._barred | keys
        if self.among is not None:
            other.among = self.among - keys
        other.requirements = (*self.requirements, *requirements)
        return other

    def _copy(self) -> Requirements:
        other = Requirements.__new__(Requirements)
        for name in Requirements.__slots__:
            setattr(other, name, getattr(self, name))
        return other

    @property
    def _path(self) -> str:
        requirements = self._language.conjunctions.requirements(self.base)
        return next((self._language.nodes[ob >> 1].path for ob in requirements), "$")

    @property
    def conjunction(self) -> int:
        """The conjunction of the value."""
        return self._language.conjunctions.extended(self.base, self.requirements)

    @property
    def is_empty(self) -> bool:
        """Whether no value meets the requirements, although `adding` considered them possible by
        their lists."""
        return self._is_guess and self._language.values.clearly_empty(self.conjunction)

    def adding(self, requirement: int) -> Requirements | None:
        """Return these with another requirement; None if clearly no value meets all of them."""
        other = self._copy()
        node = self._language.nodes[requirement >> 1]
        if not node.is_list:
            other.requirements = (*self.requirements, requirement)
            return None if self._language.values.clearly_empty(other.conjunction) else other
        # Other keywords may still exclude values of the lists; this is checked once, at the end.
        other._is_guess = True
        kept, keys = self.requirements, node.listed
        if requirement & 1:
            other._barred = self._barred | keys
            if self.among is not None:
                other.among = self.among - keys
        else:
            other.among = (keys if self.among is None else self.among & keys) - self._barred
            # The value itself excludes those of other lists.
            kept = tuple(
                ob
                for ob in kept
                if not (ob & 1 and (other_list := self._language.nodes[ob >> 1]).is_list)
                or not other_list.listed.isdisjoint(keys)
            )
        if other.among is not None and not other.among:
            return None
        other.requirements = (*kept, requirement)
        return other


Sides: TypeAlias = tuple[int, int]
"""Bit masks of the facts that hold if a node holds, and if it does not."""


def split_cases(
    language: Schema, rule: Rule, touched: int, start: Requirements, limit: int
) -> list[tuple[Requirements, Rule]] | None:
    """Return the cases of a value, each with its requirements and the rest of ``rule``.

    Every value belongs to at least one case. Cases that are obviously impossible or have no value
    are left out.

    Args:
        language: the language of the value.
        rule: the rule about all members.
        touched: bit mask of its facts that a member with this key can settle.
        start: the requirements on the value in any case.
        limit: the most cases.

    Returns:
        The cases, or None if there are more than ``limit``.

    Cost: for facts that list values, one pass over the rule for each set of lists that share a
    value. Each other fact at most doubles the number of cases.
    """
    book = language.book
    decided: dict[int, Sides] = {}
    here = 0
    for fact in book.facts_in(touched & ~book.presence):
        keys, requirement = fact.detail
        met, unmet = decided.get(requirement >> 1, (0, 0))
        if requirement & 1:
            unmet |= fact.support
        else:
            met |= fact.support
        decided[requirement >> 1] = met, unmet
        if keys.name is not None:
            here |= fact.support  # no other member can settle it
    begun = [(start, book.settle(rule, touched & book.presence, 0))]
    lists = {n: keys for n in decided if (keys := start.listed_by(n)) is not None}
    if len(lists) > 1:
        begun = _by_value(language, *begun[0], decided, lists, here)
        if len(begun) > limit:
            return None
    else:
        lists = {}
    nodes = [n for n in decided if n not in lists]
    out: list[tuple[Requirements, Rule]] = []
    todo = [(owed, left, 0) for owed, left in reversed(begun)]
    while todo:
        owed, left, at = todo.pop()
        WORK.spend(5)
        while at < len(nodes) and not left.support & (
            decided[nodes[at]][0] | decided[nodes[at]][1]
        ):
            at += 1
        if left is book.no:
            continue
        if at == len(nodes):
            if owed.is_empty:
                continue
            out.append((owed, left))
            if len(out) > limit:
                return None
            continue
        positive, negative = decided[nodes[at]]
        met_left = book.settle(left, positive, negative & here)
        unmet_left = book.settle(left, negative, positive & here)
        if met_left is unmet_left:
            todo.append((owed, met_left, at + 1))
            continue
        holds = owed.adding(2 * nodes[at])
        fails = owed if holds is None else owed.adding(2 * nodes[at] + 1)
        if fails is not None:
            todo.append((fails, unmet_left, at + 1))
        if holds is not None:
            todo.append((owed if fails is None else holds, met_left, at + 1))
    return out


def _by_value(
    language: Schema,
    start: Requirements,
    rule: Rule,
    decided: Mapping[int, Sides],
    lists: Mapping[int, frozenset[Any]],
    here: int,
) -> list[tuple[Requirements, Rule]]:
    """Return the cases of a value that the nodes in ``lists`` distinguish, all at once.

    Args:
        language: the language of the value.
        start: the requirements on it in any case.
        rule: the rule about all members.
        decided: for each node, the facts that it decides.
        lists: for each node, the values that meet it.
        here: bit mask of the facts that no other member can settle.
    """
    book = language.book
    nodes = list(lists)
    # value → bit mask of the indexes in `nodes` that it meets
    met_by: dict[Any, int] = {}
    for place, keys in enumerate(lists.values()):
        for key in keys:
            met_by[key] = met_by.get(key, 0) | 1 << place
    among = start.among
    if among is not None:
        met_by = {key: met_by.get(key, 0) for key in among}
    values: dict[int, list[Any]] = {} if among is not None else {0: []}
    for key, mask in met_by.items():
        values.setdefault(mask, []).append(key)
    none_true = none_false = 0
    for node in nodes:
        none_true |= decided[node][1]
        none_false |= decided[node][0] & here
    settings: list[tuple[int, int]] = []
    for mask in values:
        true, false = none_true, none_false
        for place in bits(mask):
            met, unmet = decided[nodes[place]]
            true = true & ~unmet | met
            false = false & ~met | unmet & here
        settings.append((true, false))
    found = book.settle_each(rule, (none_true, none_false), settings)
    left = dict(zip(values, found, strict=True))
    out: list[tuple[Requirements, Rule]] = []
    listed = 0  # the nodes that a value in no list must not meet
    if 0 in values:
        for mask in values:
            if left[mask] is not left[0]:
                listed |= mask
        if left[0] is not book.no:
            barred = [nodes[place] for place in bits(listed)]
            keys = frozenset[Any]().union(*(lists[node] for node in barred))
            out.append((start.without_values(keys, [2 * n + 1 for n in barred]), left[0]))
    for mask, keys_of in values.items():
        if not mask or left[mask] is book.no or (0 in values and not mask & listed):
            continue
        # The shortest list with these values, and what else separates them from its other values.
        first = min(bits(mask), key=lambda place: len(lists[nodes[place]]))
        others = [m for key in lists[nodes[first]] if (m := met_by.get(key, mask)) != mask]
        owed = [2 * nodes[first]]
        if others:
            owed = [2 * nodes[place] for place in bits(mask)]
            beyond = 0
            for other in others:
                if other & mask == mask:
                    beyond |= other & ~mask
            owed += [2 * nodes[place] + 1 for place in bits(beyond)]
        out.append((start.with_values(frozenset(keys_of), owed), left[mask]))
    return out


MAX_CASES = 2
"""The most cases per fact for the value of one member, if there is an alternative to splitting."""

MAX_TOLD_APART = 100
"""The most cases for the value of one member if there is no alternative: each case is a long
conjunction."""

MAX_WAYS = 1000
"""The most ways of one member."""

MAX_SPREAD = 32
"""The most parts of an "exactly one" that are compared to see whether they exclude each other."""

MOST_FEW = 5
"""This many questions about a value always leave few cases."""

MAX_UNLISTED = 8
"""The most questions about a value that list no values, before other members are decided first."""

MIN_DISCRIMINATED = 3
"""The fewest questions about a member that is decided before others."""

MAX_DEEP = 8
"""The most objects and arrays that are distinguished from each other, if alternatives can be
followed in parallel instead. Negated objects make long conjunctions."""

State: TypeAlias = "tuple[int, int, Rule, tuple[str, ...]]"
"""The state of an open object, as far as it matters: bit mask of the names that may still be
written; the number of members, if it counts; the rest of the rule about all members; and the
unnamed keys written, if they must be distinct."""


class MemberWays:
    """The ways of the members of one table.

    Args:
        language: the language of the object.
        table: its members.
        in_order: whether they are written in the schema's order.
    """

    def __init__(self, language: Schema, table: MemberTable, in_order: bool) -> None:
        self._language = language
        self.in_order = in_order
        self._book = language.book
        self._table = table
        self._n_names = len(table.names)
        self._ways: dict[tuple[Rule, int, int], list[tuple[int, Rule]]] = {}
        # By conjunction, the requirements on values to which it applies.
        self._starts: dict[int, Requirements] = {}
        # Results of `_cases`, or the limit that they exceeded.
        self._cases_apart: dict[tuple[Rule, int, int], list[tuple[Requirements, Rule]] | int] = {}

    def ways(self, rule: Rule, label: int) -> list[tuple[int, Rule]]:
        """Return a member's cases by label: ``(conjunction of its value, rule after)``.

        Every allowed value belongs to at least one case. Cases after which the rule cannot hold are
        left out.

        Raises:
            CompileLimitExceeded: there are too many cases.
        """
        if not rule.support & self._table.touching(label):
            return [(self._table.conjunctions[label], rule)]
        return self._ways_owing(rule, label, self._table.conjunctions[label])

    def after(self, state: State, label: int, rule: Rule, name: str | None) -> State:
        """Return the state after a member with key ``label``, after which ``rule`` remains."""
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
        return left, count, rule, keys if self.must_be_distinct(count, rule, keys) else ()

    def left_after(self, left: int, label: int) -> int:
        """Return the names still allowed after a member with key ``label``.

        If members are in order, names that the schema lists before this key stay absent.
        """
        if label < self._n_names:
            left &= ~(1 << label)
        return left & ~(self._table.ordered & ((1 << label) - 1)) if self.in_order else left

    def steps(self, state: State, label: int, name: str | None) -> list[tuple[int, State]]:
        """Return the possible conjunctions of a value under ``label``, each with the state after
        it."""
        if not self._table.is_involved:
            left, _, rule, _ = state
            return [(self._table.conjunctions[label], (self.left_after(left, label), 0, rule, ()))]
        rule = self.rule_before(state, label)
        if rule is self._book.no:
            return []
        return [
            (conjunction, self.after(state, label, rule, name))
            for conjunction, rule in self.ways(rule, label)
        ]

    def rule_before(self, state: State, label: int) -> Rule:
        """Return the rest of the rule if all members that must come before ``label`` are absent."""
        left = state[0]
        if label < self._n_names:
            left &= ~(1 << label)
        return self._table.without(state[2], left & ~self.left_after(left, label))

    def must_be_distinct(self, count: int, rule: Rule, keys: tuple[str, ...]) -> bool:
        """Return whether unnamed keys must be distinct, because a repeated one would not count.

        Unnamed ``keys`` that may have settled the rule must not be written again, either: if two
        members have the same key, readers keep the last.
        """
        settled = self._table.settled_by_value
        if keys and self._table.rule.support & settled:
            return True
        return count < self._table.least or bool(rule.support & settled)

    def are_few(self, rule: Rule, label: int) -> bool:
        """Return True if a label's members clearly have few ways with plain requirements.

        A sufficient test that builds nothing.
        """
        book = self._book
        touched = rule.support & self._table.touching(label) & ~book.presence
        asked = {fact.detail[1] >> 1 for fact in book.facts_in(touched)}
        return len(asked) <= MOST_FEW and all(map(self._is_flat, asked))

    @cached_method
    def _is_flat(self, number: int) -> bool:
        """Return whether a node has no requirements inside a value, and no applicators."""
        node = self._language.nodes[number]
        if node.applies_in_place or node.speaks_of_objects or node.speaks_of_arrays:
            return False
        return node.enum is None or node.is_list

    def _ways_owing(self, rule: Rule, label: int, owed: int) -> list[tuple[int, Rule]]:
        """Like `ways`, for a value that must satisfy the conjunction ``owed`` in any case."""
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
            # Too many facts to split by. Follow alternatives in parallel instead.
            lambda: self._ways_of_parts(self._by_discriminator(rule, label), label, owed.base),
            lambda: self._ways_of_parts(self._alternatives(rule, touched), label, owed.base),
        ]
        if owed.are_deep(asked):
            tries = tries[::-1] if rule.kind == "any" else [tries[1], tries[0], tries[2]]
        elif sum(owed.listed_by(number) is None for number in asked) > MAX_UNLISTED:
            tries = [tries[1], tries[0], tries[2]]
        for attempt in tries:
            found = attempt()
            if found is not None:
                return found
        found = self._cases(rule, label, owed, MAX_TOLD_APART)
        if found is None:
            raise CompileLimitExceeded(
                "too many alternatives overlap in one member of the object at "
                f"{self._table.path}; make them easier to distinguish (for example, with a const "
                "in a shared required property), or use anyOf instead of oneOf",
                limit=MAX_TOLD_APART,
                actual=MAX_TOLD_APART + 1,
            )
        return found

    def _touched(self, rule: Rule, label: int) -> int:
        """Return the bit mask of facts that are still open after `_begun`."""
        return rule.support & self._table.touching(label) & ~rule.single[1]

    def _begun(self, rule: Rule, label: int, base: int) -> tuple[Requirements, Rule]:
        """Return the requirements on a member's value in any case, and the rule once its key is
        present."""
        book, table, language = self._book, self._table, self._language
        touching = table.touching(label)
        named = book.by_name.get(table.names[label], 0) if label < len(table.names) else 0
        rule = book.settle(rule, rule.support & touching & book.presence, 0)
        more: list[int] = []
        known = 0
        while True:
            holding, failing = rule.single
            # If one of several members has to meet a requirement, another one may. If none may, all
            # must not.
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
        """Return the ways of several rules together, for a value that must satisfy ``owed``.

        None if there are too many, or no rules.
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
        """Return smaller rules of which one holds exactly if ``rule`` does; none if it has no
        parts."""
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
        """Return ``rule`` for each relevant value of another member that discriminates well."""
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
            if owed.are_deep(asked[name]):
                continue  # it has to be split itself
            cases = self._split_cases(there, at, owed, len(asked[name]) + 1)
            if cases is None or len(cases) < 2:
                continue  # it does not discriminate, or is decided
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
        """Return each part of an "exactly one" with the others excluded."""
        parts = count.parts
        return [
            self._refine(self._book.all([p, *(q.negated for j, q in enumerate(parts) if j != i)]))
            for i, p in enumerate(parts)
        ]

    def spread(self, rule: Rule) -> Rule:
        """Return ``rule`` with every "exactly one" whose parts exclude each other replaced by
        "some"."""
        out: list[Rule] = []
        for part in rule.parts if rule.kind == "all" else (rule,):
            if part.kind == "count" and part.detail == 2 and part.size <= MAX_SPREAD:
                alone = self._each_alone(part)
                if all(not a.support & ~p.support for a, p in zip(alone, part.parts, strict=True)):
                    part = self._book.any(alone)
            out.append(part)
        return self._refine(self._book.all(out))

    def _refine(self, rule: Rule) -> Rule:
        """Return ``rule`` with facts settled that follow from facts about the same member."""
        while True:
            true, false = self._implied(rule)
            if not true | false:
                return rule
            rule = self._book.settle(rule, true, false)

    def _implied(self, rule: Rule) -> tuple[int, int]:
        """Return bit masks of the facts that the single facts in ``rule`` imply and rule out."""
        table = self._table
        # A required member settles facts about its value: a tag rules out other alternatives' tags.
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
        """Return the cases split by every relevant fact; None if there are more than ``limit``."""
        found = self._split_cases(rule, label, owed, limit)
        if found is None:
            return None
        return list(dict.fromkeys((case.conjunction, left) for case, left in found))

    def _split_cases(
        self, rule: Rule, label: int, owed: Requirements, limit: int
    ) -> list[tuple[Requirements, Rule]] | None:
        """Like `_cases`, with the requirements as `Requirements`."""
        key = (rule, label, owed.base)
        found = self._cases_apart.get(key)
        if found is None or (isinstance(found, int) and found < limit):
            touched = self._touched(rule, label)
            cases = split_cases(self._language, rule, touched, owed, limit)
            found = self._cases_apart[key] = limit if cases is None else cases
        return None if isinstance(found, int) or len(found) > limit else found
