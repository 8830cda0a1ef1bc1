"""Multiply in-place applicators out: conjunctions of requirements → branches.

A conjunction is a set of requirements on one value. Its applicators (``$ref``, ``allOf``,
``anyOf``, ``oneOf``, ``if``, ``not``, dependencies) add requirements on the same value, or leave a
choice. `Brancher.expand` turns them into branches: a disjunction of branches, each a conjunction of
plain assertions. If there would be too many, the conditions on objects become one rule and those on
strings one expression, in one branch each. Choices that types already decide are never multiplied
out, and a ``oneOf`` branch excludes only siblings that can overlap with it.

`negate` inverts a node once: a node fails if any of its assertions fails, so its negation is a
choice of small nodes with one failure each. ``unevaluatedProperties`` and ``unevaluatedItems``
depend on which subschemas hold. Inside a branch this is known, so they become an ordinary node that
lists what the other nodes leave unevaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from structgen.automaton.work import WORK
from structgen.errors import CompileLimitExceeded, check_limit
from structgen.grammar import ir
from structgen.grammar.json_schema import (
    ALL_TYPES,
    ARRAY,
    FALSE,
    NUMBER,
    OBJECT,
    STRING,
    TRUE,
    Contains,
    Node,
)

from .outlines import Outlines
from .rule_reader import RuleReader, content
from .rules import Rule
from .strings import StringReader, counts_only

MAX_SUBSETS = 6
"""Most ``anyOf`` branches beside an ``unevaluated…`` keyword, because all their subsets are tried.
"""


Owned: TypeAlias = "tuple[int, frozenset[int]]"
"""A requirement, with the nodes whose ``unevaluated…`` counts what it evaluates."""


@dataclass(slots=True, frozen=True)
class Branch:
    """One way to satisfy a conjunction: the assertions of all ``nodes``."""

    types: int
    nodes: tuple[int, ...]


class Partial:
    """A branch under construction."""

    __slots__ = ("choices", "contributors", "kept", "negated", "rules", "seen", "todo", "types")

    def __init__(self) -> None:
        self.todo: list[Owned] = []
        self.seen: set[Owned] = set()
        self.kept: set[int] = set()
        self.types = ALL_TYPES
        self.choices: list[list[tuple[Owned, ...]]] = []
        self.contributors: dict[int, set[int]] = {}
        self.rules: list[Rule] = []
        self.negated: list[int] = []

    def copy(self) -> Partial:
        """Return a copy with an empty ``todo``."""
        other = Partial()
        other.seen = set(self.seen)
        other.kept = set(self.kept)
        other.types = self.types
        other.rules = list(self.rules)
        other.negated = list(self.negated)
        other.choices = list(self.choices)
        other.contributors = {k: set(v) for k, v in self.contributors.items()}
        return other


def subsets(ways: list[Owned]) -> list[tuple[Owned, ...]]:
    """Return all non-empty subsets, because every branch that holds may evaluate something."""
    check_limit(
        len(ways),
        MAX_SUBSETS,
        "an anyOf with unevaluatedProperties or unevaluatedItems has too many branches; use oneOf "
        "if only one of them can hold, or write additionalProperties: false (items: false) in "
        "each branch instead",
    )
    return [
        tuple(way for i, way in enumerate(ways) if bits >> i & 1)
        for bits in range(1, 1 << len(ways))
    ]


def without_redundant(branches: list[Branch]) -> list[Branch]:
    """Drop branches that assert more than another one and so add nothing."""
    if len(branches) > 64:
        return branches
    sets = [set(b.nodes) for b in branches]
    return [
        b
        for i, b in enumerate(branches)
        if not any(
            j != i and s < sets[i] and not b.types & ~branches[j].types for j, s in enumerate(sets)
        )
    ]


def properties_left(owner: Node, parts: list[Node]) -> Node | None:
    """Return the effect of ``owner``'s ``unevaluatedProperties`` beside ``parts``, the nodes that
    hold; None if it has none."""
    if owner.unevaluated_properties == TRUE:
        return None
    if any(
        p.evaluates_all_properties or (p is not owner and p.unevaluated_properties != TRUE)
        for p in parts
    ):
        return None
    # A nested unevaluatedProperties: true evaluates everything, too, but is not stored as such.
    names: dict[str, int] = {}
    patterns: dict[ir.Regex, int] = {}
    for part in parts:
        if not part.not_evaluating:
            names.update(dict.fromkeys(part.properties, TRUE))
            patterns.update({regex: TRUE for regex, _ in part.pattern_properties})
    return Node(
        owner.path,
        properties=names,
        pattern_properties=tuple(patterns.items()),
        additional=owner.unevaluated_properties,
    )


def items_left(owner: Node, parts: list[Node], add: Callable[[Node], int]) -> Node | None:
    """Like `properties_left`, for ``unevaluatedItems``; ``add`` returns the requirement of a new
    node."""
    some = owner.some_unevaluated_item
    if owner.unevaluated_items == TRUE and some == FALSE:
        return None
    if any(
        p.evaluates_all_items or (p is not owner and p.unevaluated_items != TRUE) for p in parts
    ):
        return None if some == FALSE else Node(owner.path, types=ALL_TYPES & ~ARRAY)
    prefix = max(len(p.prefix) for p in parts)
    found = [
        c.requirement for p in parts if p.contains_evaluates for c in p.contains if not c.start
    ]
    if some != FALSE:
        if found:
            some = add(Node(owner.path, all_of=(some, *(ob ^ 1 for ob in found))))
        return Node(owner.path, types=ARRAY, contains=(Contains(some, start=prefix),))
    ways = [owner.unevaluated_items, *found]
    rest = ways[0] if len(ways) == 1 else add(Node(owner.path, any_of=tuple(ways)))
    return Node(owner.path, prefix=(TRUE,) * prefix, items=rest)


Choice: TypeAlias = "list[tuple[int, ...]]"
"""Alternatives, each a set of requirements that apply together."""

Add: TypeAlias = Callable[[Node], int]
"""Adds a node to the graph and returns the requirement that it holds."""


def negate(node: Node, add: Add, constant: Callable[[Any], int], members: Rule) -> Choice:
    """Return the ways in which a value can fail ``node``.

    Args:
        node: the node that must not hold.
        add: adds a synthetic node.
        constant: returns the requirement to equal an object or array.
        members: the node's own rule about an object's members.
    """
    path = node.path
    out: Choice = [(child ^ 1,) for child in (*node.refs, *node.all_of)]
    if node.any_of is not None:
        out.append(tuple(child ^ 1 for child in node.any_of))
    if node.one_of is not None:
        out.append(tuple(child ^ 1 for child in node.one_of))
        n_pairs = len(node.one_of) ** 2 >> 1
        WORK.spend(n_pairs >> 4)
        WORK.hold(80 * n_pairs)
        out += [(a, b) for i, a in enumerate(node.one_of) for b in node.one_of[i + 1 :]]
    if node.condition is not None:
        test, then, otherwise = node.condition
        out += [(test, then ^ 1), (test ^ 1, otherwise ^ 1)]
    for name, names in node.dependent_required.items():
        out += [
            (add(Node(path, types=OBJECT, required=(name,), properties={other: FALSE})),)
            for other in names
            if other != name
        ]
    for name, child in node.dependent_schemas.items():
        out.append((add(Node(path, types=OBJECT, required=(name,))), child ^ 1))
    if node.types != ALL_TYPES and ALL_TYPES & ~node.types:
        out.append((add(Node(path, types=ALL_TYPES & ~node.types)),))
    out += _values(node, add, constant)
    out += [(add(failure),) for failure in _numbers(node) + _strings(node)]
    out += [(add(failure),) for failure in _arrays(node)]
    if node.types & OBJECT and node.speaks_of_objects:
        out.append((add(Node(path, types=OBJECT, rules=(members.negated,))),))
    return [way for way in out if FALSE not in way]


def _values(node: Node, add: Add, constant: Callable[[Any], int]) -> Choice:
    out: Choice = []
    if node.enum is not None:
        scalars = tuple(v for v in node.enum if not isinstance(v, (dict, list, tuple)))
        others = [v for v in node.enum if isinstance(v, (dict, list, tuple))]
        unequal = add(Node(node.path, excluded=scalars)) if scalars else TRUE
        out.append((unequal, *(constant(v) ^ 1 for v in others)))
    if node.excluded:
        out.append((add(Node(node.path, enum=tuple(node.excluded))),))
    return out


_CONTRARY = (
    ("minimum", "exclusive_maximum"),
    ("maximum", "exclusive_minimum"),
    ("exclusive_minimum", "maximum"),
    ("exclusive_maximum", "minimum"),
    ("multiple_of", "not_multiple_of"),
    ("not_multiple_of", "multiple_of"),
)
"""By assertion, the one that a failing number meets."""


def _numbers(node: Node) -> list[Node]:
    negated: list[tuple[str, Any]] = [(other, getattr(node, name)) for name, other in _CONTRARY]
    return [
        Node(node.path, types=NUMBER, **{name: value})
        for name, value in negated
        if value is not None
    ]


def _strings(node: Node) -> list[Node]:
    out: list[Node] = []
    if node.min_length:
        out.append(Node(node.path, types=STRING, max_length=node.min_length - 1))
    if node.max_length is not None:
        out.append(Node(node.path, types=STRING, min_length=node.max_length + 1))
    out += [
        Node(node.path, types=STRING, patterns=(ir.Complement(pattern),))
        for pattern in node.patterns
    ]
    return out


def _arrays(node: Node) -> list[Node]:
    path = node.path
    out: list[Node] = []
    if node.min_items:
        out.append(Node(path, types=ARRAY, max_items=node.min_items - 1))
    if node.max_items is not None:
        out.append(Node(path, types=ARRAY, min_items=node.max_items + 1))
    if node.unevaluated_items != TRUE:
        # Everything else holds, but an item that nothing evaluates fails.
        fields = node.fields()
        fields.update(
            types=node.types & ARRAY,
            unevaluated_properties=TRUE,
            unevaluated_items=TRUE,
            some_unevaluated_item=node.unevaluated_items ^ 1,
        )
        out.append(Node(path, **fields))
    if node.unique:
        out.append(Node(path, types=ARRAY, repeats=True))
    if node.repeats:
        out.append(Node(path, types=ARRAY, unique=True))
    for index, child in enumerate(node.prefix):
        if child != TRUE:
            prefix = (*[TRUE] * index, child ^ 1)
            out.append(Node(path, types=ARRAY, prefix=prefix, min_items=index + 1))
    if node.items != TRUE:
        some = Contains(node.items ^ 1, start=len(node.prefix))
        out.append(Node(path, types=ARRAY, contains=(some,)))
    for some in node.contains:
        if some.least:
            fewer = Contains(some.requirement, 0, some.least - 1, some.start)
            out.append(Node(path, types=ARRAY, contains=(fewer,)))
        if some.most is not None:
            more = Contains(some.requirement, some.most + 1, None, some.start)
            out.append(Node(path, types=ARRAY, contains=(more,)))
    return out


MAX_MULTIPLIED = 64
"""The most partial branches before the conditions on objects become a rule."""

MAX_STRINGS = 16
"""The most branches of strings before the conditions on strings become one expression."""

_LOOK_AHEAD = 16
"""After this many partial branches, estimate how many more there will be."""

MAX_BRANCHES = 4096
"""The most branches of one value."""


_NOBODY: frozenset[int] = frozenset()


class Brancher:
    """Expands conjunctions over one growing list of nodes.

    Args:
        nodes: the schema's nodes; synthetic ones are appended.
        outlines: which of several requirements certainly exclude each other.
        constant: the requirement to equal a given object or array.
        reader: reads requirements as rules about an object's members.
        strings: reads requirements as expressions over strings.
    """

    def __init__(
        self,
        nodes: list[Node],
        outlines: Outlines,
        constant: Callable[[Any], int],
        reader: RuleReader,
        strings: StringReader,
    ) -> None:
        self._nodes = nodes
        self._outlines = outlines
        self._constant = constant
        self._negations: dict[int, Choice] = {}
        self._synthetic: dict[Any, int] = {}
        self._reader = reader
        self._strings = strings
        self._compact = False

    def expand(self, requirements: Iterable[int]) -> list[Branch]:
        """Return the branches of a conjunction, without those that types rule out.

        Conditions on objects are multiplied out if that gives few branches, because a plan for one
        branch is smaller than one with a rule. Otherwise they become one rule. Likewise, conditions
        on strings are multiplied out or become one expression.

        Raises:
            CompileLimitExceeded: there were more than `MAX_BRANCHES` partial branches.
        """
        requirements = tuple(requirements)
        compact = 0
        found = self._expand(requirements, compact)
        if found is None:
            compact = OBJECT
            found = self._expand(requirements, compact)
        if found is None or self._texts(found) > MAX_STRINGS:
            found = self._expand(requirements, compact | STRING)
        assert found is not None
        return without_redundant(found)

    def _texts(self, branches: list[Branch]) -> int:
        """Return the number of branches with their own automaton for strings; lists share one."""
        texts = (b.nodes for b in branches if b.types & STRING)
        return sum(all(self._nodes[n].enum is None for n in nodes) for nodes in texts)

    def _expand(self, requirements: tuple[int, ...], compact: int) -> list[Branch] | None:
        """Return the branches, with those of the types in ``compact`` merged where possible; None
        if there are too many and other types can still be merged."""
        stack: list[Partial] = []
        for types in (ALL_TYPES & ~compact, compact & STRING, compact & OBJECT):
            if not types:
                continue
            first = Partial()
            first.todo = [(ob, _NOBODY) for ob in requirements]
            first.types = types
            stack.append(first)
        out: dict[tuple[int, ...], Branch] = {}
        count = 0
        left: list[int] = []
        while stack:
            count += 1
            n_ways = sum([len(choice) for choice in stack[-1].choices])
            WORK.spend(16 + n_ways)
            if count in (_LOOK_AHEAD, 2 * _LOOK_AHEAD):
                left.append(len(stack[-1].choices))
                if len(left) == 2 and 0 <= left[0] - left[1] <= _LOOK_AHEAD:
                    self._check_ahead(requirements, left[1], n_ways)
            if count > MAX_MULTIPLIED and not compact:
                return None
            if count > MAX_BRANCHES:
                if not compact & STRING:
                    return None
                raise CompileLimitExceeded(
                    self._too_many(requirements), limit=MAX_BRANCHES, actual=count
                )
            partial = stack.pop()
            self._compact = bool(compact & OBJECT) and partial.types == OBJECT
            if not self._absorb(partial):
                continue
            has_others = partial.types & OBJECT and partial.types != OBJECT
            if has_others and (
                partial.negated or any(self._rule(choice) is not None for choice in partial.choices)
            ):
                # If something is a rule about an object's members, continue with objects only.
                others = partial.copy()
                others.types &= ~OBJECT
                partial.types = OBJECT
                stack.append(others)
            if compact & STRING and partial.types == STRING and not self._absorb_texts(partial):
                continue
            if not self._absorb_negated(partial):
                continue
            if partial.types == OBJECT and not self._absorb_rules(partial):
                continue
            if partial.todo:
                stack.append(partial)
                continue
            choice = self._next_choice(partial)
            if choice is None:
                continue
            if choice:
                WORK.spend(4 * len(choice))
                WORK.hold(1_000 * len(choice))
                for way in reversed(choice):
                    branch = partial.copy()
                    branch.todo = list(way)
                    stack.append(branch)
                continue
            kept = self._with_unevaluated(partial)
            if partial.todo:  # also process what unevaluated… adds
                stack.append(partial)
                continue
            known = out.get(kept)
            out[kept] = Branch(partial.types | (known.types if known else 0), kept)
        return list(out.values())

    def add(self, node: Node) -> int:
        """Return the requirement that a synthetic node holds; equal nodes are shared."""
        key = content(node)
        found = self._synthetic.get(key)
        if found is None:
            found = self._synthetic[key] = 2 * len(self._nodes)
            self._nodes.append(node)
        return found

    # -- one partial branch -----------------------------------------------------------------

    def _absorb(self, partial: Partial) -> bool:
        """Process ``partial.todo``; return False if the branch contradicts itself."""
        while partial.todo:
            owned = partial.todo.pop()
            requirement, owners = owned
            WORK.left -= 1 + (len(owners) >> 1)
            if WORK.left < 0:
                raise WORK.too_much()
            if requirement == TRUE or owned in partial.seen:
                continue
            if requirement == FALSE or (requirement ^ 1, owners) in partial.seen:
                return False
            partial.seen.add(owned)
            if requirement & 1:
                partial.negated.append(requirement >> 1)
                continue
            number = requirement >> 1
            node = self._nodes[number]
            partial.types &= node.types
            if not partial.types:
                return False
            if node.asserts:
                partial.kept.add(number)
            if node.some_unevaluated_item != FALSE:
                owners = owners | {number}
            if node.unevaluated_properties != TRUE or node.unevaluated_items != TRUE:
                rule = self._reader.read(2 * number) if self._compact else None
                if rule is None:
                    owners = owners | {number}
                else:
                    partial.rules.append(rule)
            for owner in owners:
                partial.contributors.setdefault(owner, set()).add(number)
            if node.applies_in_place:
                self._apply(node, owners, partial)
        return True

    def _apply(self, node: Node, owners: frozenset[int], partial: Partial) -> None:
        partial.todo.extend((child, owners) for child in (*node.refs, *node.all_of))
        choices = partial.choices
        if node.any_of is not None:
            ways: list[tuple[Owned, ...]] = [((child, owners),) for child in node.any_of]
            if owners and len(ways) > 1:
                ways = subsets([w[0] for w in ways])
                if any(self._nodes[owner].some_unevaluated_item != FALSE for owner in owners):
                    # A subschema that does not hold evaluates nothing; here, that must be certain.
                    children = node.any_of
                    ways = [
                        (*way, *((c ^ 1, _NOBODY) for c in children if (c, owners) not in way))
                        for way in ways
                    ]
            choices.append(ways)
        if node.one_of is not None:
            options = node.one_of
            rule = None
            if self._compact and partial.types == OBJECT and not owners:
                rule = self._reader.one_of(options)
            if rule is not None:  # instead of multiplying out, each with its negated siblings
                partial.rules.append(rule)
                self._list_names(options, partial)
            else:
                overlapping = self._outlines.overlapping(options, partial.types)
                n_others = sum(map(len, overlapping))
                WORK.spend(n_others >> 4)
                WORK.hold(80 * n_others)
                choices.append(
                    [
                        ((child, owners), *((options[other] ^ 1, _NOBODY) for other in others))
                        for child, others in zip(options, overlapping, strict=True)
                    ]
                )
        if node.condition is not None:
            test, then, otherwise = node.condition
            if owners or (then, otherwise) != (TRUE, TRUE):
                choices.append(
                    [((test, owners), (then, owners)), ((test ^ 1, _NOBODY), (otherwise, owners))]
                )
        for name, names in node.dependent_required.items():
            present = self.add(Node(node.path, types=OBJECT, required=(name, *names)))
            choices.append([((self._without(node, name), _NOBODY),), ((present, _NOBODY),)])
        for name, child in node.dependent_schemas.items():
            present = self.add(Node(node.path, types=OBJECT, required=(name,)))
            choices.append(
                [((self._without(node, name), _NOBODY),), ((present, _NOBODY), (child, owners))]
            )

    def _without(self, node: Node, name: str) -> int:
        return self.add(Node(node.path, properties={name: FALSE}, not_evaluating=True))

    def _absorb_negated(self, partial: Partial) -> bool:
        """Turn negated requirements into rules or choices; return False if one cannot hold."""
        negated, partial.negated = partial.negated, []
        for number in negated:
            node = self._nodes[number]
            if not node.types & partial.types:
                continue  # it fails because of its type
            if partial.types == OBJECT:
                rule = self._reader.read(2 * number + 1)
                if rule is not None:
                    if rule.is_never:
                        return False
                    partial.rules.append(rule)
                    continue
            ways = self._negations.get(number)
            if ways is None:
                members = self._reader.own(number)
                ways = negate(self._nodes[number], self.add, self._constant, members)
                self._negations[number] = ways
            partial.choices.append([tuple((ob, _NOBODY) for ob in way) for way in ways])
        return True

    def _absorb_rules(self, partial: Partial) -> bool:
        """Turn choices about members into rules; return False if one cannot hold."""
        remaining: list[list[tuple[Owned, ...]]] = []
        for choice in partial.choices:
            rule = self._rule(choice)
            if rule is None:
                remaining.append(choice)
                continue
            if rule.is_never:
                return False
            partial.rules.append(rule)
            if self._compact:
                self._list_names([ob for way in choice for ob, _ in way if not ob & 1], partial)
        partial.choices = remaining
        return True

    def _list_names(self, requirements: Iterable[int], partial: Partial) -> None:
        """Add the properties of requirements that became a rule to the branch, in their order."""
        names: dict[str, None] = {}
        for requirement in requirements:
            names.update(self._reader.names(requirement))
        listed = Node("$", properties=dict.fromkeys(names, TRUE), not_evaluating=True)
        partial.todo.append((self.add(listed), _NOBODY))

    def _absorb_texts(self, partial: Partial) -> bool:
        """Turn choices and negated requirements into expressions over strings; return False if one
        matches nothing. Requirements that only count characters stay, so that strings may be
        written freely."""
        negated, partial.negated = partial.negated, []
        choices, partial.choices = partial.choices, []
        found: list[ir.Regex] = []
        for number in negated:
            regex = self._strings.read(2 * number + 1)
            if regex is None or counts_only(regex):
                partial.negated.append(number)
            else:
                found.append(regex)
        for choice in choices:
            regex = self._strings.read_choice([ob for ob, _ in way] for way in choice)
            if regex is None or counts_only(regex):
                partial.choices.append(choice)
            else:
                found.append(regex)
        if found:
            node = Node("$", types=STRING, patterns=tuple(dict.fromkeys(found)))
            partial.todo.append((self.add(node), _NOBODY))
        return ir.NOTHING not in found

    def _rule(self, choice: list[tuple[Owned, ...]]) -> Rule | None:
        """Return the rule of ``choice`` for an object, if it should become one: if it is only about
        names, or if everything that can be a rule becomes one."""
        ways: list[Rule] = []
        for way in choice:
            WORK.spend(len(way) >> 3)
            parts: list[Rule] = []
            for requirement, owners in way:
                # A way that evaluates members for an unevaluated… keyword means more than this.
                rule = None if owners else self._reader.read(requirement)
                if rule is None:
                    return None
                parts.append(rule)
            ways.append(self._reader.book.all(parts))
        rule = self._reader.book.any(ways)
        is_about_names = all(
            fact.kind == "some" and fact.detail[0].name is not None and fact.detail[1] == TRUE
            for fact in self._reader.book.facts_of(rule)
        )
        return rule if self._compact or is_about_names else None

    def _check_ahead(self, requirements: tuple[int, ...], n_choices: int, n_ways: int) -> None:
        """Check that the limits of the call allow that many choices one by one."""
        steps = n_choices * n_ways // 2
        if steps > WORK.left:
            raise CompileLimitExceeded(
                f"{n_choices:,} lists, objects or alternatives are excluded or combined at once; "
                "use fewer, or raise max_work",
                limit=WORK.limits.work,
                actual=WORK.limits.work - WORK.left + steps,
                path=self._nodes[requirements[0] >> 1].path,
            )

    def _next_choice(self, partial: Partial) -> list[tuple[Owned, ...]] | None:
        """Remove one open choice from ``partial``, the one with the fewest ways; return it, empty
        if none is left, None if a choice has no possible way."""
        best: tuple[int, list[tuple[Owned, ...]]] | None = None
        remaining: list[list[tuple[Owned, ...]]] = []
        for choice in partial.choices:
            ways = [way for way in choice if self._viable(way, partial)]
            if not ways:
                return None
            already = any(all(o in partial.seen or o[0] == TRUE for o in way) for way in ways)
            if already and not any(owners for way in ways for _, owners in way):
                continue
            remaining.append(ways)
            if best is None or len(ways) < best[0]:
                best = (len(ways), ways)
        partial.choices = remaining
        if best is None:
            return []
        remaining.remove(best[1])
        return best[1]

    def _viable(self, way: tuple[Owned, ...], partial: Partial) -> bool:
        types = partial.types
        for requirement, owners in way:
            if requirement == FALSE or (requirement ^ 1, owners) in partial.seen:
                return False
            if not requirement & 1:
                types &= self._nodes[requirement >> 1].types
        return bool(types)

    # -- unevaluated… -----------------------------------------------------------------------

    def _with_unevaluated(self, partial: Partial) -> tuple[int, ...]:
        if partial.rules:
            rule = self._reader.book.all(partial.rules)
            partial.rules = []
            node = Node("$", types=OBJECT, rules=(rule,), not_evaluating=True)
            partial.todo.append((self.add(node), _NOBODY))
            return ()
        for owner in sorted(partial.contributors):
            node = self._nodes[owner]
            parts = [self._nodes[n] for n in partial.contributors[owner] if n != owner] + [node]
            for synthetic in (properties_left(node, parts), items_left(node, parts, self.add)):
                if synthetic is not None:
                    requirement = self.add(synthetic)
                    if (requirement, _NOBODY) not in partial.seen:
                        partial.todo.append((requirement, _NOBODY))
        return tuple(sorted(partial.kept))

    def _too_many(self, requirements: Iterable[int]) -> str:
        """Return a message that says what has too many branches, and how to fix it."""
        # Barred values of items have no place in the schema.
        others = sum(ob & 1 and self._nodes[ob >> 1].path == "$" for ob in requirements)
        paths = [self._nodes[ob >> 1].path for ob in requirements]
        where = next((path for path in paths if path != "$"), "$")
        if others > 1:
            return (
                f"uniqueItems requires an item at {where} that differs from {others} other arrays "
                "or objects, which gives too many branches; remove uniqueItems from that array, "
                "or allow fewer items (minItems, maxItems)"
            )
        return (
            f"the combinations of the alternatives at {where} give too many branches; make them "
            "easier to distinguish (for example, with a const in a shared required property), or "
            "use anyOf instead of oneOf"
        )
