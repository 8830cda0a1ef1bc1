"""Read schema nodes as rules about an object's members.

`RuleReader.read` turns any requirement on an object into one `Rule`, with all its applicators and
negations. Only requirements that apply themselves in place, endlessly, have none. Keywords about
other types do not matter. ``unevaluatedProperties`` is a rule, too: a member that does not meet it
is allowed only if some subschema that holds has evaluated it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from structgen.automaton.work import WORK
from structgen.errors import check_limit
from structgen.grammar import ir
from structgen.grammar.json_schema import FALSE, HOLDING, OBJECT, TRUE, Keys, Node, json_key, mapped
from structgen.storage import cached_method

from . import evaluate
from .conjunctions import Barred
from .outlines import Outlines
from .rules import Rule, RuleBook

MAX_CONDITIONAL_PATTERNS = 8
"""The most patterns beside ``unevaluatedProperties`` that evaluate members only if a branch holds.
"""


class RuleReader:
    """Reads requirements over one growing list of nodes.

    Args:
        nodes: the schema's nodes.
        book: where rules are interned.
        constant: the requirement to equal a given object.
        string_language: returns the strings that meet a requirement.
        outlines: knows which requirements certainly exclude each other.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        book: RuleBook,
        constant: Callable[[Any], int],
        string_language: Callable[[int], ir.Regex],
        outlines: Outlines,
    ) -> None:
        self._nodes = nodes
        self.book = book
        self._constant = constant
        self._string_language = string_language
        self._outlines = outlines
        self._known: dict[int, Rule | None] = {}
        self._alike: dict[int, int] = {}
        self._contents: dict[tuple[Any, ...], int] = {}

    def read(self, requirement: int) -> Rule | None:
        """Return the rule of ``requirement`` for an object; None if it applies itself in place."""
        if requirement <= FALSE:
            return self.book.yes if requirement == TRUE else self.book.no
        number = self.first_alike(requirement) >> 1
        if number not in self._known:
            self._known[number] = None
            self._known[number] = self._node(number)
        rule = self._known[number]
        return rule.negated if rule is not None and requirement & 1 else rule

    def one_of(self, options: tuple[int, ...]) -> Rule | None:
        """Return the rule that exactly one of ``options`` holds. If few overlap: one holds, and
        those that overlap with it do not."""
        book = self.book
        times = Counter(map(self.first_alike, options))
        if len(times) < len(options):  # a repeated option cannot hold exactly once
            alone = self.one_of(tuple([option for option in times if times[option] == 1]))
            repeated = [self.read(option) for option in times if times[option] > 1]
            return _all_known(
                [alone, *repeated],
                lambda known: book.all([known[0], *(rule.negated for rule in known[1:])]),
            )
        rules = [self.read(option) for option in options]
        overlapping = self._outlines.overlapping(options, OBJECT)
        if sum(map(len, overlapping)) > len(options):
            return _all_known(rules, book.one)
        ways: list[Rule] = []
        for rule, others in zip(rules, overlapping, strict=True):
            beside = [rules[other] for other in others]
            if rule is None or None in beside:
                return None
            ways.append(book.all([rule, *(other.negated for other in beside if other is not None)]))
        return book.any(ways)

    @cached_method
    def own(self, number: int) -> Rule:
        """Return the rule of the assertions of node ``number``, without its applicators."""
        return self.book.all(self._assertions(self._nodes[number]))

    def names(self, requirement: int) -> dict[str, None]:
        """Return the properties that ``requirement`` lists, in order, through its applicators."""
        out: dict[str, None] = {}
        seen: set[int] = set()
        todo = [requirement]
        while todo:
            number = todo.pop() >> 1
            if number in seen:
                continue
            seen.add(number)
            node = self._nodes[number]
            out.update(dict.fromkeys(node.properties))
            todo += [child for child in reversed(node.parts_in_place()) if not child & 1]
        return out

    # -- one node ---------------------------------------------------------------------------

    def _assertions(self, node: Node) -> Iterator[Rule]:
        book = self.book
        if not node.types & OBJECT:
            yield book.no
            return
        if node.enum is not None:
            values = [self._constant(v) for v in node.enum if isinstance(v, dict)]
            yield book.any(self.own(value >> 1) for value in values)
        for name in node.required:
            yield book.has(name)
        for name, child in node.properties.items():
            yield self._every(Keys(name=name), child)
        for regex, child in node.pattern_properties:
            yield self._every(Keys(pattern=regex), child)
        if node.additional != TRUE:
            patterns = tuple(dict.fromkeys(regex for regex, _ in node.pattern_properties))
            others = Keys(but_names=tuple(node.properties), but_patterns=patterns)
            yield self._every(others, node.additional)
        if node.property_names != TRUE:
            wrong = ir.Complement(self._string_language(node.property_names))
            yield self._every(Keys(pattern=wrong), FALSE)
        yield book.least(node.min_properties)
        if node.max_properties is not None:
            yield book.least(node.max_properties + 1).negated
        yield from node.rules

    def _every(self, keys: Keys, requirement: int) -> Rule:
        return self.book.some(keys, self.first_alike(requirement) ^ 1).negated

    def first_alike(self, requirement: int) -> int:
        """Return the first requirement that is equivalent to ``requirement``, at any place.

        Alternatives often repeat shared parts. As different facts, equal parts would be decided
        twice, with cases in which one holds and the other does not.
        """
        if requirement <= FALSE:
            return requirement
        number = requirement >> 1
        found = self._alike.get(number)
        if found is None:
            WORK.spend(2)
            self._alike[number] = number  # to itself, if references form a cycle
            key = content(self._nodes[number], self.first_alike)
            found = self._alike[number] = self._contents.setdefault(key, number)
        return 2 * found | requirement & 1

    def _node(self, number: int) -> Rule | None:
        node, book = self._nodes[number], self.book
        parts: list[Rule | None] = [self.own(number)]
        parts += [self.read(child) for child in (*node.refs, *node.all_of)]
        if node.any_of is not None:
            parts.append(_all_known([self.read(c) for c in node.any_of], book.any))
        if node.one_of is not None:
            parts.append(self.one_of(node.one_of))
        if node.condition is not None:
            parts.append(_all_known([self.read(c) for c in node.condition], self._conditional))
        for name, names in node.dependent_required.items():
            present = book.all(book.has(other) for other in names)
            parts.append(book.any([book.has(name).negated, present]))
        for name, child in node.dependent_schemas.items():
            inner = self.read(child)
            parts.append(None if inner is None else book.any([book.has(name).negated, inner]))
        rule = _all_known(parts, book.all)
        if rule is not None and node.unevaluated_properties != TRUE:
            rule = book.all([rule, *self._unevaluated(number)])
        return rule

    def _conditional(self, parts: list[Rule]) -> Rule:
        test, then, otherwise = parts
        book = self.book
        return book.all([book.any([test.negated, then]), book.any([test, otherwise])])

    # -- unevaluatedProperties --------------------------------------------------------------

    def _evaluating(self, number: int) -> list[tuple[Node, Rule]]:
        """Return the nodes that evaluate members for node ``number``, each with its condition."""
        book = self.book
        out: dict[tuple[int, Rule], None] = {}
        todo = [(number, book.yes)]
        while todo:
            at, holds = todo.pop()
            if (at, holds) in out:
                continue
            out[at, holds] = None
            node = self._nodes[at]
            ways: list[tuple[int, list[Rule | None]]] = []
            ways += [(child, []) for child in (*node.refs, *node.all_of)]
            ways += [(c, [self.read(c)]) for c in (*(node.any_of or ()), *(node.one_of or ()))]
            if node.condition is not None:
                test, then, otherwise = node.condition
                ways.append((test, [self.read(test)]))
                ways.append((then, [self.read(test)]))
                ways.append((otherwise, [self.read(test ^ 1)]))
            ways += [(c, [book.has(name)]) for name, c in node.dependent_schemas.items()]
            for child, conditions in ways:
                when = _all_known([holds, *conditions], book.all)
                if not child & 1 and when is not None and when is not book.no:
                    todo.append((child >> 1, when))
        return [(self._nodes[at], holds) for at, holds in out]

    def _unevaluated(self, number: int) -> Iterator[Rule]:
        """Yield the rules that members which nothing evaluates meet ``unevaluatedProperties``."""
        book = self.book
        owner = self._nodes[number]
        wrong = owner.unevaluated_properties ^ 1
        always: list[Rule] = []
        names: dict[str, list[Rule]] = {}
        patterns: dict[ir.Regex, list[Rule]] = {}
        for node, holds in self._evaluating(number):
            if node.not_evaluating:
                continue
            inner = node is not owner and node.unevaluated_properties != TRUE
            if node.evaluates_all_properties or inner:
                always.append(holds)
            for name in node.properties:
                names.setdefault(name, []).append(holds)
            for regex, _ in node.pattern_properties:
                patterns.setdefault(regex, []).append(holds)
        for name in names:
            matched = [
                r for p, rules in patterns.items() if evaluate.matches(p, name) for r in rules
            ]
            none = book.some(Keys(name=name), wrong).negated
            yield book.any([none, *always, *names[name], *matched])
        rest = Keys(but_names=tuple(names), but_patterns=tuple(patterns))
        yield book.any([book.some(rest, wrong).negated, *always])
        conditional = [p for p, rules in patterns.items() if book.yes not in rules]
        check_limit(
            len(conditional),
            MAX_CONDITIONAL_PATTERNS,
            f"too many patterns with 'unevaluatedProperties', at {owner.path}",
        )
        barred = [p for p in patterns if p not in conditional]
        barred += [ir.literal(name) for name in names]
        for size in range(1, len(conditional) + 1):
            for chosen in itertools.combinations(conditional, size):
                others = [p for p in conditional if p not in chosen]
                outside = (
                    [ir.Complement(ir.Alternate((*barred, *others)))] if barred + others else []
                )
                only = (*chosen, *outside)
                keys = Keys(pattern=only[0] if len(only) == 1 else ir.Intersect(only))
                rules = [rule for p in chosen for rule in patterns[p]]
                yield book.any([book.some(keys, wrong).negated, *always, *rules])


def content(node: Node, alike: Callable[[int], int] = int) -> tuple[Any, ...]:
    """Return the content of a node without its path, hashable.

    Args:
        node: the node.
        alike: returns the replacement of each requirement.
    """
    out: list[Any] = []
    for name, value in sorted(node.fields().items()):
        if name in HOLDING:
            value = mapped(name, value, alike)
        if isinstance(value, dict):
            value = tuple(value.items())
        elif name == "enum" or (name == "excluded" and not isinstance(value, Barred)):
            value = value and tuple((json_key(v), repr(v)) for v in value)  # 1 and 1.0 differ
        out.append((name, value))
    return tuple(out)


def _all_known(parts: Sequence[Rule | None], build: Callable[[list[Rule]], Rule]) -> Rule | None:
    known = [part for part in parts if part is not None]
    return build(known) if len(known) == len(parts) else None
