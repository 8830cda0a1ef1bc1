"""What the members of an object owe: named ones, and classes of unnamed ones.

A `MemberTable` merges the object assertions of several schema nodes. It numbers the keys by *label*
(one for each name, further ones for the sets of patterns that unnamed keys can match), gives the
conjunction that each label's value owes, and tells how a member of some label takes the rule about
all members further: which facts its value settles, as a decision among few cases. It knows nothing
of punctuation or of what has been written; that is the business of `objects`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from structgen.errors import CompileLimitExceeded
from structgen.grammar import ir
from structgen.grammar.json_schema import ARRAY, FALSE, OBJECT, TRUE, Keys

from . import evaluate
from .owed import Owed
from .rules import Rule, RuleBook

if TYPE_CHECKING:
    from .values import JsonLanguage

MAX_CASES = 2
"""Most cases for each fact that the value of one member is told apart into, if there is another
way."""

MAX_TOLD_APART = 100
"""Most cases that the value of one member is told apart into where there is no other way: what
each of them owes is a long conjunction."""

MAX_WAYS = 1000
"""Most ways of one member in all."""

MAX_DEEP = 8
"""Most objects and arrays that are told apart from each other, where alternatives can be followed
side by side instead: what an object is not makes long conjunctions."""

_INVOLVED = frozenset(
    ["rules", "min_properties", "max_properties", "pattern_properties", "property_names"]
)
"""What a node may say of members beside the schemas of names and which of these are required."""


class MemberTable:
    """The members of an object owed to several nodes at once.

    Attributes:
        names: the named keys; their labels are their indexes.
        index: the label of each name.
        ordered: bit mask of the labels that the schema lists as properties or requires; the
            others are only spoken of, by a negation say.
        required: bit mask of the labels that must be there.
        least, most: bounds on the number of members; ``most`` may be None.
        rule: what further has to hold of the members.
        counts: whether the number of members matters.
        speaks_of_unnamed: whether unnamed members can settle anything.
        bits: every pattern that tells unnamed keys apart, with its bit.
        must_match: expressions that every unnamed key has to match.
    """

    # What most tables have nothing of.
    least = 0
    most: int | None = None
    rule = RuleBook.yes
    counts = speaks_of_unnamed = False
    must_match: Sequence[ir.Regex] = ()
    _every: Sequence[tuple[Keys, int]] = ()  # what holds of members, beside what the nodes say
    _facts: Sequence[Rule] = ()
    _broad: Sequence[Rule] = ()  # the facts that are about more than one key
    _possible: int | None = None

    def __init__(self, language: JsonLanguage, nodes: tuple[int, ...]) -> None:
        self._language = language
        all_nodes = language.nodes
        if len(nodes) == 1:
            self._nodes = own = [all_nodes[nodes[0]]]
        else:
            self._nodes = own = [all_nodes[n] for n in nodes]
        self._classes: dict[int, int] = {}
        self.required = 0
        if len(own) == 1 and _INVOLVED.isdisjoint(vars(own[0])):  # as nearly always
            (node,) = own
            self.names = names = list(node.properties)
            self.index = index = dict(zip(names, range(len(names)), strict=True))
            for name in node.required:
                label = index.get(name)
                if label is None:
                    label = index[name] = len(names)
                    names.append(name)
                self.required |= 1 << label
            count = len(names)
            self.ordered = (1 << count) - 1
            self.bits: dict[ir.Regex, int] = {}
            # With those of names that are only required, and of all unnamed keys.
            self.conjunctions = owed = list(node.properties.values())
            owed += [node.additional] * (1 + count - len(owed))
            self._classes[0] = count
            self._matched = [0] * (1 + count)
        else:
            self._read_nodes()

    def _read_nodes(self) -> None:
        """What `__init__` does, for any nodes."""
        names: dict[str, None] = {}
        required: dict[str, None] = {}
        limits: list[int] = []
        rules: list[Rule] = []
        for node in self._nodes:
            names.update(dict.fromkeys(node.properties))
            required.update(dict.fromkeys(node.required))
            rules += node.rules
            if node.min_properties > self.least:
                self.least = node.min_properties
            if node.max_properties is not None:
                limits.append(node.max_properties)
        names.update(required)
        self.ordered = (1 << len(names)) - 1
        spoken_of = self._read_rules(rules, names, required, limits) if rules else []
        if limits:
            self.most = min(limits)
        self.names = list(names)
        self.index = dict(zip(self.names, range(len(self.names)), strict=True))
        for name in required:
            self.required |= 1 << self.index[name]
        if self.least <= len(required):
            self.least = 0  # the required names are enough
        regexes: dict[ir.Regex, None] = {}
        must_match: list[ir.Regex] = []
        for node in self._nodes:
            for regex, _ in node.pattern_properties:
                regexes[regex] = None
            if node.property_names != TRUE:
                must_match.append(self._language.string_language(node.property_names))
        self.must_match = must_match
        for keys in spoken_of:
            regexes.update(
                dict.fromkeys(keys.but_patterns if keys.pattern is None else [keys.pattern])
            )
        self.bits = dict(zip(regexes, [1 << i for i in range(len(regexes))], strict=True))
        self.conjunctions = self._owed_by_names()
        self._matched = [0] * len(self.names)
        self.counts = self.most is not None or self.least > 0
        if rules:
            self.rule = self._spread(self.rule)
            self._facts = self._book.facts_of(self.rule)
            self.counts |= bool(self.rule.support & self._book.counting)
        self.speaks_of_unnamed = self.counts or bool(self._broad)

    @cached_property
    def _book(self) -> RuleBook:
        return self._language.book

    @cached_property
    def _touching(self) -> dict[int, int]:
        return {}

    @cached_property
    def _labels(self) -> dict[int, int]:
        return {}

    @cached_property
    def _refined(self) -> dict[Rule, Rule]:
        return {}

    @cached_property
    def _ways(self) -> dict[tuple[Rule, int], list[tuple[int, Rule]]]:
        return {}

    @cached_property
    def _absent(self) -> dict[tuple[Rule, int], Rule]:
        return {}

    def _read_rules(
        self,
        rules: list[Rule],
        names: dict[str, None],
        required: dict[str, None],
        limits: list[int],
    ) -> list[Keys]:
        """Take from ``rules`` what is no rule but holds of single members, or of their number.

        Adds to ``names``, ``required`` and ``limits``; gives the keys that are spoken of.
        """
        rest: list[Rule] = []
        every: list[tuple[Keys, int]] = []
        rule = self._book.all(rules)
        for part in rule.parts if rule.kind == "all" else (rule,):
            if part.kind == "least":
                self.least = max(self.least, part.detail)
            elif part.kind == "fewer":
                limits.append(part.detail - 1)
            elif part.kind == "none":
                keys, obligation = part.detail
                every.append((keys, obligation ^ 1))
            elif part.kind == "some" and part.detail[0].name is not None:
                keys, obligation = part.detail
                required[keys.name] = names[keys.name] = None
                if obligation != TRUE:
                    every.append((keys, obligation))
            else:
                rest.append(part)
        self._every = every
        self.rule = self._book.all(rest) if rule is not self._book.no else rule
        self._facts = self._book.facts_of(self.rule)
        self._broad = [f for f in self._facts if f.kind == "some" and f.detail[0].name is None]
        spoken_of = [keys for keys, _ in self._every]
        spoken_of += [fact.detail[0] for fact in self._facts if fact.kind == "some"]
        for keys in spoken_of:
            names.update(dict.fromkeys(keys.but_names if keys.name is None else [keys.name]))
        return spoken_of

    @property
    def path(self) -> str:
        """Where in the schema the object is, for messages."""
        return self._nodes[0].path if self._nodes else "$"

    # -- labels and what their values owe ---------------------------------------------------

    def _owed_by_names(self) -> list[int]:
        """The conjunctions that the values of all names are owed to."""
        if len(self._nodes) == 1 and not self._every:
            (node,) = self._nodes
            if not node.pattern_properties and node.property_names == TRUE:
                return [node.properties.get(name, node.additional) for name in self.names]
        return [self._named(name) for name in self.names]

    def _named(self, name: str) -> int:
        """The conjunction that the value of ``name`` is owed to."""
        owed: list[int] = []
        for node in self._nodes:
            found = False
            if name in node.properties:
                owed.append(node.properties[name])
                found = True
            for regex, child in node.pattern_properties:
                if evaluate.matches(regex, name):
                    owed.append(child)
                    found = True
            if not found:
                owed.append(node.additional)
            if node.property_names != TRUE and not evaluate.holds(
                self._language.nodes, node.property_names, name
            ):
                owed.append(FALSE)
        owed += [ob for keys, ob in self._every if evaluate.includes(keys, name)]
        return self._language.conjunction(owed)

    def label_of(self, matched: int) -> int:
        """The label of the unnamed keys that match just these patterns (a bit mask)."""
        found = self._classes.get(matched)
        if found is None:
            owed: list[int] = []
            for node in self._nodes:
                children = [
                    child for regex, child in node.pattern_properties if matched & self.bits[regex]
                ]
                owed += children or [node.additional]
            owed += [ob for keys, ob in self._every if self._includes(keys, matched)]
            conjunction = self._language.conjunction(owed)
            found = self._classes[matched] = len(self.conjunctions)
            self.conjunctions.append(conjunction)
            self._matched.append(matched)
        return found

    def matched_by(self, label: int) -> int:
        """The patterns that unnamed keys with this label match (a bit mask)."""
        return self._matched[label]

    @property
    def takes_any_key(self) -> bool:
        """Whether no expression tells unnamed keys apart: there are always more of them."""
        return not self.bits and not self.must_match

    def _includes(self, keys: Keys, matched: int) -> bool:
        """Whether the unnamed keys that match just ``matched`` are among ``keys``."""
        if keys.name is not None:
            return False
        if keys.pattern is not None:
            return bool(matched & self.bits[keys.pattern])
        return not any(matched & self.bits[pattern] for pattern in keys.but_patterns)

    def possible_names(self) -> int:
        """Bit mask of the names whose value can be written."""
        if self._possible is None:
            owed, language = self.conjunctions[: len(self.names)], self._language
            typed = language.typed
            never: list[int] = []
            for conjunction in dict.fromkeys(owed):
                if conjunction not in typed and not language.is_possible(conjunction):
                    never.append(conjunction)
            mask = (1 << len(owed)) - 1
            if never:
                for label, conjunction in enumerate(owed):
                    mask ^= (conjunction in never) << label
            self._possible = mask
        return self._possible

    # -- the rule ---------------------------------------------------------------------------

    @property
    def count_to(self) -> int:
        """From how many members on more make no difference."""
        highest: list[int] = [fact.detail for fact in self._facts if fact.kind == "least"]
        return max(self.least, self.most or 0, *highest, 0)

    @property
    def told_by_any(self) -> int:
        """Bit mask of the facts that unnamed members can settle."""
        mask = self._book.counting
        for fact in self._broad:
            mask |= fact.support
        return mask

    def touching(self, label: int) -> int:
        """Bit mask of the facts that a member with this label can settle."""
        found = self._touching.get(label)
        if found is None:
            found = 0
            for fact in self._broad:
                if self._has(fact.detail[0], label):
                    found |= fact.support
            self._touching[label] = found
        if label < len(self.names):
            found |= self._book.by_name.get(self.names[label], 0)
        return found

    def asks_of_values(self, label: int) -> bool:
        """Whether the value of a member with this label can settle anything, beside its key."""
        touched = self.touching(label)
        return any(f.support & touched and f.detail[1] != TRUE for f in self._facts)

    def labels_of(self, rule: Rule) -> int:
        """Bit mask of the names that can settle something in ``rule``."""
        found = self._labels.get(rule.support)
        if found is None:
            found = 0
            for fact in self._book.facts_of(rule):
                if fact.kind == "some":
                    name = fact.detail[0].name
                    if name is not None:
                        found |= 1 << self.index[name]
                    else:
                        for label in range(len(self.names)):
                            found |= (self.touching(label) & fact.support != 0) << label
            self._labels[rule.support] = found
        return found

    def _has(self, keys: Keys, label: int) -> bool:
        if label < len(self.names):
            return evaluate.includes(keys, self.names[label])
        return self._includes(keys, self._matched[label])

    def without(self, rule: Rule, labels: int) -> Rule:
        """What is left of ``rule`` when the names in ``labels`` (bit mask) stay absent."""
        if not rule.support or not labels:
            return rule
        key = (rule, labels)
        found = self._absent.get(key)
        if found is None:
            false = 0
            while labels:
                bit = labels & -labels
                labels ^= bit
                false |= self._book.by_name.get(self.names[bit.bit_length() - 1], 0)
            found = self._absent[key] = self._book.settle(rule, 0, false)
        return found

    def counted(self, rule: Rule, count: int) -> Rule:
        """What is left of ``rule`` when there are already ``count`` members."""
        counting = rule.support & self._book.counting
        if not counting:
            return rule
        true = 0
        for fact in self._facts:
            if fact.support & counting and fact.detail <= count:
                true |= fact.support
        return self._book.settle(rule, true, 0)

    def holds_now(self, rule: Rule) -> bool:
        """Whether ``rule`` holds if no further member comes."""
        return rule.holds_without_facts

    def ways(self, rule: Rule, label: int) -> list[tuple[int, Rule]]:
        """The cases of a member with this label: ``(conjunction its value owes, rule after)``.

        Every value that may do falls into a case, perhaps into several. Cases after which nothing
        can hold are left out.

        Raises:
            CompileLimitExceeded: there are too many cases.
        """
        touched = rule.support & self.touching(label)
        if not touched:
            return [(self.conjunctions[label], rule)]
        key = (rule, label)
        found = self._ways.get(key)
        if found is None:
            found = self._ways[key] = self._find_ways(rule, label, touched)
        return found

    def _find_ways(self, rule: Rule, label: int, touched: int) -> list[tuple[int, Rule]]:
        asked = [f.detail[1] for f in self._facts_in(rule) if f.support & touched]
        asked = [obligation for obligation in asked if obligation != TRUE]
        tries: list[Callable[[], list[tuple[int, Rule]] | None]] = [
            lambda: self._cases(rule, label, 8 + MAX_CASES * len(asked)),
            # The facts are too many to tell apart. Follow alternatives side by side instead.
            lambda: self._ways_of_parts(self._by_discriminator(rule, label), label),
            lambda: self._ways_of_parts(self._alternatives(rule, touched), label),
        ]
        if self._are_deep(asked):
            tries = tries[::-1] if rule.kind == "any" else [tries[1], tries[0], tries[2]]
        for attempt in tries:
            found = attempt()
            if found is not None:
                return found
        found = self._cases(rule, label, MAX_TOLD_APART)
        if found is None:
            raise CompileLimitExceeded(
                f"too many alternatives overlap in one member of the object at {self.path}; make "
                "them easier to tell apart (a const in a shared required property), or use anyOf "
                "instead of oneOf",
                limit=MAX_TOLD_APART,
                actual=MAX_TOLD_APART + 1,
            )
        return found

    def _are_deep(self, obligations: list[int]) -> bool:
        """Whether more than `MAX_DEEP` of these may be about objects and arrays."""
        nodes = (self._language.nodes[ob >> 1] for ob in dict.fromkeys(obligations))
        return sum(n.enum is None and n.types & (OBJECT | ARRAY) != 0 for n in nodes) > MAX_DEEP

    def _ways_of_parts(self, parts: list[Rule], label: int) -> list[tuple[int, Rule]] | None:
        """The ways of several rules together; None when there are too many, or no rules."""
        out: dict[tuple[int, Rule], None] = {}
        for part in parts:
            try:
                out.update(dict.fromkeys(self.ways(part, label)))
            except CompileLimitExceeded:
                return None
            if len(out) > MAX_WAYS:
                return None
        return list(out) if out else None

    def _facts_in(self, rule: Rule) -> list[Rule]:
        """The facts about members, not their number, that ``rule`` depends on."""
        return [fact for fact in self._book.facts_of(rule) if fact.kind == "some"]

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
        asked: dict[str, int] = {}
        for fact in book.facts_of(rule):
            if fact.kind == "some" and fact.detail[0].name is not None and fact.detail[1] != TRUE:
                asked[fact.detail[0].name] = asked.get(fact.detail[0].name, 0) + 1
        for name in sorted(asked, key=lambda name: -asked[name]):
            at = self.index[name]
            if at == label or asked[name] < 3:
                continue
            cases = self._told_apart(rule, at, asked[name] + 1)
            if cases is None or len(cases) < 2:
                continue  # it tells nothing apart, or has been decided
            has = book.has(name)
            away = book.all((self.without(rule, 1 << at), has.negated))
            found = [away] if not self.required >> at & 1 else []
            for owed, _ in cases:
                facts = [book.some(Keys(name=name), obligation) for obligation in owed.obligations]
                found.append(self._refine(book.all((has, *facts, rule))))
            return [way for way in found if way is not book.no]
        return []

    def _each_alone(self, count: Rule) -> list[Rule]:
        """Each part of an "exactly one" with the others excluded."""
        parts = count.parts
        return [
            self._refine(self._book.all([p, *(q.negated for j, q in enumerate(parts) if j != i)]))
            for i, p in enumerate(parts)
        ]

    def _spread(self, rule: Rule) -> Rule:
        """``rule`` with every "exactly one" whose parts exclude each other as a mere "some"."""
        out: list[Rule] = []
        for part in rule.parts if rule.kind == "all" else (rule,):
            if part.kind == "count" and part.detail == 2:
                alone = self._each_alone(part)
                if all(not a.support & ~p.support for a, p in zip(alone, part.parts, strict=True)):
                    part = self._book.any(alone)
            out.append(part)
        return self._refine(self._book.all(out))

    def _refine(self, rule: Rule) -> Rule:
        """``rule`` with facts settled that what has to hold of the same member decides."""
        if rule.kind != "all":
            return rule
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
        owed: dict[str, list[int]] = {}
        single = 0
        for part in rule.parts if rule.kind == "all" else ():
            if part.kind == "some" and part.detail[0].name is not None:
                single |= part.support
                owed.setdefault(part.detail[0].name, []).append(part.detail[1])
        true = false = 0
        language = self._language
        for name, obligations in owed.items():
            known: Owed | None = Owed(language, self.conjunctions[self.index[name]])
            for obligation in obligations:
                known = known and known.adding(obligation)
            for fact in self._book.facts_of(rule):
                if fact.support & single or fact.kind != "some" or fact.detail[0].name != name:
                    continue
                obligation = fact.detail[1]
                if known is None or known.adding(obligation) is None:
                    false |= fact.support
                elif known.adding(obligation ^ 1) is None:
                    true |= fact.support
        return true, false

    def _cases(self, rule: Rule, label: int, limit: int) -> list[tuple[int, Rule]] | None:
        """The cases told apart by every fact that matters; None when there are more than
        ``limit``."""
        found = self._told_apart(rule, label, limit)
        if found is None:
            return None
        return list(dict.fromkeys((owed.conjunction, left) for owed, left in found))

    def _told_apart(self, rule: Rule, label: int, limit: int) -> list[tuple[Owed, Rule]] | None:
        """As `_cases`, with what the value owes in parts."""
        touched = rule.support & self.touching(label)
        book = self._book
        # node → bit masks of the facts that hold if it does, and if it does not
        decided: dict[int, list[int]] = {}
        here = true = 0
        for fact in book.facts_of(rule):
            if not fact.support & touched:
                continue
            keys, obligation = fact.detail
            if obligation == TRUE:
                true |= fact.support
                continue
            sides = decided.setdefault(obligation >> 1, [0, 0])
            sides[obligation & 1] |= fact.support
            if keys.name is not None:
                here |= fact.support  # no other member can settle it
        out: list[tuple[Owed, Rule]] = []
        nodes = list(decided)
        start = Owed(self._language, self.conjunctions[label])
        todo = [(start, book.settle(rule, true, 0), 0)]
        while todo:
            owed, left, at = todo.pop()
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
            met = book.settle(left, positive, negative & here)
            unmet = book.settle(left, negative, positive & here)
            if met is unmet:
                todo.append((owed, met, at + 1))
                continue
            holds = owed.adding(2 * nodes[at])
            fails = owed if holds is None else owed.adding(2 * nodes[at] + 1)
            if fails is not None:
                todo.append((fails, unmet, at + 1))
            if holds is not None:
                todo.append((owed if fails is None else holds, met, at + 1))
        return out

    def required_members(self) -> list[tuple[str, int]]:
        """The required names, and what their values owe; "" must not be, where nothing can be."""
        if self.rule is self._book.no:
            return [("", self._language.conjunction([FALSE]))]
        return [
            (name, self.conjunctions[i])
            for i, name in enumerate(self.names)
            if self.required >> i & 1
        ]

    def spare_parts(self, taken: list[str]) -> list[ir.Regex]:
        """Expressions that together match the keys outside ``taken`` that names may be."""
        barred = ir.Complement(ir.Alternate(tuple(map(ir.literal, sorted(taken)))))
        return [barred, *self.must_match]

    def is_name_allowed(self, name: str) -> bool:
        """Whether ``propertyNames`` allows ``name``."""
        return all(
            evaluate.holds(self._language.nodes, node.property_names, name)
            for node in self._nodes
            if node.property_names != TRUE
        )
