"""The requirements on the members of an object: on named ones, and on classes of unnamed ones.

A `MemberTable` merges the object assertions of several schema nodes. It numbers the keys by
*label*: one for each name, and one for each set of patterns that unnamed keys can match. It knows
the conjunction for each label's value, and the few cases in which a member of a label advances the
rule about all members. Knows neither punctuation nor the text so far; see `objects`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import accumulate
from operator import or_

from structgen.automaton.bits import bits
from structgen.automaton.work import WORK
from structgen.grammar import ir
from structgen.grammar.json_schema import FALSE, TRUE, Keys, bounds

from . import evaluate
from .language import Schema
from .rules import Rule, RuleBook

_FEW_LABELS = 8
"""Up to this many names are looked up one by one."""

_MOST_SUMMED = 4_000
"""The most names for which the facts about all earlier names are stored."""


class MemberTable:
    """The members of an object to which several nodes apply.

    Attributes:
        names: the named keys; their labels are their indexes.
        index: the label of each name.
        ordered: bit mask of the labels that the schema lists as properties or requires. Others are
            only mentioned, for example in a negation.
        required: bit mask of the labels that must be present.
        least, most: bounds on the number of members; ``most`` may be None.
        rule: further conditions on the members.
        counts: whether the number of members matters.
        speaks_of_unnamed: whether unnamed members can settle any fact.
        bits: every pattern that distinguishes unnamed keys, with its bit.
        must_match: expressions that every unnamed key has to match.
        matched: for each label, the patterns that its unnamed keys match (a bit mask).
    """

    # Rare parts.
    least = 0
    most: int | None = None
    rule = RuleBook.yes
    counts = speaks_of_unnamed = False
    must_match: Sequence[ir.Regex] = ()
    _every: Sequence[tuple[Keys, int]] = ()  # requirements on members beside those of the nodes
    _facts: Sequence[Rule] = ()
    _broad: Sequence[Rule] = ()  # facts about more than one key
    _possible: int | None = None
    _summed_facts = -1  # the number of facts in `_facts_before`
    _facts_before: Sequence[int] = ()  # for each name, the facts about earlier names

    def __init__(self, language: Schema, nodes: tuple[int, ...]) -> None:
        self._language = language
        self._nodes = [language.nodes[n] for n in nodes]
        self._classes: dict[int, int] = {}
        self.required = 0
        self._touching: dict[int, int] = {}
        self._labels: dict[int, int] = {}
        self._absent: dict[tuple[Rule, int], Rule] = {}
        names: dict[str, None] = {}
        required: dict[str, None] = {}
        rules: list[Rule] = []
        for node in self._nodes:
            names.update(dict.fromkeys(node.properties))
            required.update(dict.fromkeys(node.required))
            rules += node.rules
        self._n_asked = sum([1 + len(node.pattern_properties) for node in self._nodes])
        self.least, most = bounds(self._nodes, "properties")
        limits = [] if most is None else [most]
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
        # The conjunctions for the values of all names.
        plain = None if len(self._nodes) != 1 or self._every or self._facts else self._nodes[0]
        if plain and not plain.pattern_properties and plain.property_names == TRUE:
            owed = [plain.properties.get(name, plain.additional) for name in self.names]
        else:
            owed = [self._named(name) for name in self.names]
        self.conjunctions = owed
        self.matched = [0] * len(self.names)
        self.counts = self.most is not None or self.least > 0
        if rules:
            self.counts |= bool(self.rule.support & self._book.counting)
        self.speaks_of_unnamed = self.counts or bool(self._broad)

    @cached_property
    def _book(self) -> RuleBook:
        return self._language.book

    def _read_rules(
        self,
        rules: list[Rule],
        names: dict[str, None],
        required: dict[str, None],
        limits: list[int],
    ) -> list[Keys]:
        """Move requirements on single members, or on their number, out of ``rules``.

        Adds to ``names``, ``required`` and ``limits``. Returns the keys that the rules mention.
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
                keys, requirement = part.detail
                every.append((keys, requirement ^ 1))
            elif part.kind == "some" and part.detail[0].name is not None:
                keys, requirement = part.detail
                required[keys.name] = names[keys.name] = None
                if requirement != TRUE:
                    every.append((keys, requirement))
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
        """The object's place in the schema, for messages."""
        return self._nodes[0].path if self._nodes else "$"

    # -- labels and what their values owe ---------------------------------------------------

    def _named(self, name: str) -> int:
        """Return the conjunction for the value of ``name``."""
        WORK.spend(1 + (len(self._nodes) >> 4))
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
        owed += self._every_by_name.get(name, ())
        owed += [ob for keys, ob in self._every_unnamed if evaluate.includes(keys, name)]
        if self._facts:  # these use the first of several equivalent requirements
            owed = [self._language.first_alike(ob) for ob in owed]
        return self._language.conjunctions.of(owed)

    @cached_property
    def _every_by_name(self) -> dict[str, list[int]]:
        """The requirements of the rule on named members."""
        found: dict[str, list[int]] = {}
        for keys, requirement in self._every:
            if keys.name is not None:
                found.setdefault(keys.name, []).append(requirement)
        return found

    @cached_property
    def _every_unnamed(self) -> list[tuple[Keys, int]]:
        """The requirements of the rule on members that it does not name."""
        return [(keys, ob) for keys, ob in self._every if keys.name is None]

    def label_of(self, matched: int) -> int:
        """Return the label of unnamed keys that match exactly these patterns (a bit mask)."""
        found = self._classes.get(matched)
        if found is None:
            owed: list[int] = []
            WORK.spend(self._n_asked >> 4)
            for node in self._nodes:
                children = [
                    child for regex, child in node.pattern_properties if matched & self.bits[regex]
                ]
                owed += children or [node.additional]
            owed += [ob for keys, ob in self._every_unnamed if self._includes(keys, matched)]
            if self._facts:
                owed = [self._language.first_alike(ob) for ob in owed]
            conjunction = self._language.conjunctions.of(owed)
            found = self._classes[matched] = len(self.conjunctions)
            self.conjunctions.append(conjunction)
            self.matched.append(matched)
        return found

    @property
    def is_involved(self) -> bool:
        """Whether an object's states differ in more than the names still allowed."""
        return self.counts or bool(self.rule.support)

    @property
    def takes_any_key(self) -> bool:
        """Whether no expression restricts unnamed keys, so that there are always more of them."""
        return not self.bits and not self.must_match

    def _includes(self, keys: Keys, matched: int) -> bool:
        """Return whether ``keys`` contain the unnamed keys that match exactly ``matched``."""
        if keys.name is not None:
            return False
        if keys.pattern is not None:
            return bool(matched & self.bits[keys.pattern])
        return not any(matched & self.bits[pattern] for pattern in keys.but_patterns)

    def possible_names(self) -> int:
        """Bit mask of the names whose value can be written."""
        if self._possible is None:
            owed, language = self.conjunctions[: len(self.names)], self._language
            typed = language.values.typed
            never: list[int] = []
            for conjunction in dict.fromkeys(owed):
                if conjunction not in typed and not language.values.is_possible(conjunction):
                    never.append(conjunction)
            mask = (1 << len(owed)) - 1
            if never:
                for label, conjunction in enumerate(owed):
                    mask ^= (conjunction in never) << label
            if language.values.is_solving:
                return mask
            self._possible = mask
        return self._possible

    # -- the rule ---------------------------------------------------------------------------

    @property
    def count_to(self) -> int:
        """The number of members from which on more make no difference."""
        highest: list[int] = [fact.detail for fact in self._facts if fact.kind == "least"]
        return max(self.least, self.most or 0, *highest, 0)

    @cached_property
    def settled_by_value(self) -> int:
        """Bit mask of the facts that unnamed members can settle."""
        mask = self._book.counting
        for fact in self._broad:
            mask |= fact.support
        return mask

    @cached_property
    def _labels_by_fact(self) -> dict[int, int]:
        """For each fact about unnamed keys, by support, the names among these keys."""
        found: dict[int, int] = {}
        everything = (1 << len(self.names)) - 1
        for fact in self._broad:
            keys = fact.detail[0]
            if keys.pattern is None:
                mask = everything
                for name in keys.but_names:
                    label = self.index.get(name)
                    if label is not None:
                        mask &= ~(1 << label)
                if keys.but_patterns:
                    mask = self._those_included(keys, mask)
            else:
                mask = self._those_included(keys, everything)
            found[fact.support] = mask
        return found

    def _those_included(self, keys: Keys, labels: int) -> int:
        """Return the names in ``labels`` (bit mask) that are among ``keys``."""
        return sum(1 << at for at in bits(labels) if evaluate.includes(keys, self.names[at]))

    @cached_property
    def _touching_names(self) -> list[int]:
        """For each name, bit mask of the facts about unnamed keys that such a member settles."""
        common = 0
        odd: dict[int, int] = {}  # by label, the facts in which it differs from most
        everything = (1 << len(self.names)) - 1
        for support, labels in self._labels_by_fact.items():
            if 2 * labels.bit_count() > len(self.names):
                common |= support
                labels ^= everything
            for label in bits(labels):
                odd[label] = odd.get(label, 0) | support
        return [common ^ odd.get(label, 0) for label in range(len(self.names))]

    def touching(self, label: int) -> int:
        """Bit mask of the facts that a member with this label can settle."""
        if label < len(self.names):
            found = self._touching_names[label] if self._broad else 0
            return found | self._book.by_name.get(self.names[label], 0)
        known = self._touching.get(label)
        if known is None:
            known = 0
            for fact in self._broad:
                if self._includes(fact.detail[0], self.matched[label]):
                    known |= fact.support
            self._touching[label] = known
        return known

    def asks_of_values(self, label: int) -> bool:
        """Return whether a value with this label can settle more than its key does."""
        settled_by_keys = self._book.counting | self._book.presence
        return self.touching(label) & self.rule.support & ~settled_by_keys != 0

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
                        found |= self._labels_by_fact[fact.support]
            self._labels[rule.support] = found
        return found

    def without(self, rule: Rule, labels: int) -> Rule:
        """Return the rest of ``rule`` if the names in ``labels`` (a bit mask) stay absent."""
        if not rule.support or not labels:
            return rule
        key = (rule, labels)
        found = self._absent.get(key)
        if found is None:
            false = self._facts_about(labels)
            found = self._absent[key] = self._book.settle(rule, 0, false)
        return found

    def _facts_about(self, labels: int) -> int:
        """Return the bit mask of facts that are only about names in ``labels`` (bit mask)."""
        by_name, names = self._book.by_name, self.names
        found, at = 0, 0
        if labels.bit_count() <= _FEW_LABELS or len(names) > _MOST_SUMMED:
            for label in bits(labels):
                found |= by_name.get(names[label], 0)
            return found
        if self._summed_facts != len(self._book.facts):
            self._summed_facts = len(self._book.facts)
            self._facts_before = [*accumulate([by_name.get(n, 0) for n in names], or_, initial=0)]
        before = self._facts_before
        while labels >> at:
            # Names are skipped, and stay absent, in runs: all before a written key.
            rest = labels >> at
            at += (rest & -rest).bit_length() - 1
            rest = ~(labels >> at)
            end = at + (rest & -rest).bit_length() - 1
            found |= before[end] ^ before[at]
            at = end
        return found

    def counted(self, rule: Rule, count: int) -> Rule:
        """Return the rest of ``rule`` if there are already ``count`` members."""
        counting = rule.support & self._book.counting
        if not counting:
            return rule
        true = 0
        for fact in self._facts:
            if fact.support & counting and fact.detail <= count:
                true |= fact.support
        return self._book.settle(rule, true, 0)

    def spread(self, spread: Callable[[Rule], Rule]) -> None:
        """Rewrite the rule in the form that is cheapest to follow."""
        self.rule = spread(self.rule)
        self._facts = self._book.facts_of(self.rule)
        self.counts = self.most is not None or self.least > 0
        self.counts |= bool(self.rule.support & self._book.counting)
        self.speaks_of_unnamed = self.counts or bool(self._broad)

    def required_members(self) -> list[tuple[str, int]]:
        """Return the required names and their values' requirements; "" first if impossible."""
        nothing = [("", self._language.conjunctions.of([FALSE]))]
        return (nothing if self.rule is self._book.no else []) + [
            (name, self.conjunctions[i])
            for i, name in enumerate(self.names)
            if self.required >> i & 1
        ]

    def is_name_allowed(self, name: str) -> bool:
        """Return whether ``propertyNames`` allows ``name``."""
        return all(
            evaluate.holds(self._language.nodes, node.property_names, name)
            for node in self._nodes
            if node.property_names != TRUE
        )
