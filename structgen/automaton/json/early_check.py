"""What may fail later, found before the first text; and why nothing satisfies a schema.

`check` builds what values may be as far as `quick_checks` cannot tell, looks for a string of each
pattern, and sees that unique items can be told apart. `contradiction` says why a root is empty: it
follows required members and items down to the place that has no value, and tells which assertions
exclude each other there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from structgen.automaton.core.text_leaf import StringLeaf
from structgen.automaton.regex.symbols import probe
from structgen.automaton.schema.quick_checks import INVOLVED, PlainNodes
from structgen.errors import CompileLimitExceeded, Unsatisfiable
from structgen.grammar.formats import FORMATS, format_of
from structgen.grammar.json_schema import (
    ALL_TYPES,
    ARRAY,
    BOOLEAN,
    FALSE,
    FRACTION,
    NULL,
    NUMBER,
    OBJECT,
    STRING,
    TYPE_BITS,
    Node,
    bounds,
    child_path,
    json_key,
)

from .arrays import ArrayPlan
from .closing import check_owed

if TYPE_CHECKING:
    from structgen.automaton.schema.branches import Branch

    from .values import JsonLanguage

MAX_CHECKED = 2_000
"""Most combinations of subschemas that are built before the first text."""


def check(language: JsonLanguage) -> None:
    """Build the plans that come first, so that what can still fail fails now.

    Breadth first, as far as `MAX_CHECKED` conjunctions: the parts that a schema is made of are
    met early, what comes later combines them in other ways. Costs little for schemas that are
    plain (see `quick_checks`), as most are.
    """
    if "patterns" in language.said:
        _check_patterns(language)
    if "min_properties" in language.said:
        for node in language.nodes:
            if node.types & OBJECT:
                check_owed(node.min_properties - len(node.required), node.path)
    if language.said.isdisjoint(INVOLVED):
        return
    plain = PlainNodes(language.nodes)
    candidates = plain.worth_a_look
    if any(
        n.applies_in_place or n.contains or n.rules or n.repeats
        for n in map(language.nodes.__getitem__, candidates)
    ) and not all(plain.is_plain(2 * number) for number in candidates):
        _check_plans(language, plain)


def _check_plans(language: JsonLanguage, plain: PlainNodes) -> None:
    """Build what may not be plain."""
    seen: set[int] = {language.unbounded_root}
    todo = deque(seen)
    below: dict[int, list[int]] = {}
    while todo and len(seen) <= MAX_CHECKED:
        conjunction = todo.popleft()
        children = below[conjunction] = []
        key = language.conjunctions.requirements(conjunction)
        if not key:
            continue
        if len(key) == 1 and plain.is_plain(key[0]):
            children += plain.children(key[0])
        else:
            with language.conjunctions.placed(conjunction):
                leaves, plans = language.shapes(conjunction)
                # Budgets will count on these: when they ask it would be too late.
                best: int | None = None
                for leaf, start in leaves:
                    if isinstance(leaf, StringLeaf) and (
                        best is None or leaf.at_least(start) < best
                    ):
                        found = leaf.shortest(start)
                        if found is not None and (best is None or len(found[0]) < best):
                            best = len(found[0])
                for plan in plans:
                    if isinstance(plan, ArrayPlan) and (plan.spec.contains or plan.spec.repeats):
                        plan.is_possible()
                    children += plan.children()
        for child in children:
            if child not in seen:
                seen.add(child)
                todo.append(child)
    if any(node.repeats for node in language.nodes):
        _check_unique(language, below)


def _check_unique(language: JsonLanguage, below: dict[int, list[int]]) -> None:
    """See that unique items can be told apart: each must not be what another one is.

    Args:
        below: for each conjunction those of its members and items.
    """
    arrays = {
        conjunction: [p for p in language.shapes(conjunction)[1] if isinstance(p, ArrayPlan)]
        for conjunction in below
    }
    repeating = {c for c, plans in arrays.items() if any(p.spec.repeats for p in plans)}
    if not repeating:
        return
    todo = [
        c for at, plans in arrays.items() if any(p.spec.unique for p in plans) for c in below[at]
    ]
    seen: set[int] = set()
    while todo:
        conjunction = todo.pop()
        if conjunction in seen:
            continue
        seen.add(conjunction)
        todo += below.get(conjunction, ())
        if conjunction in repeating:
            others = [language.constant(value) ^ 1 for value in ([1, 1], [2, 2, 2])]
            with language.conjunctions.placed(conjunction):
                language.shapes(language.conjunctions.extended(conjunction, others))


def _check_patterns(language: JsonLanguage) -> None:
    """Look for a string of each pattern: what needs too many states is told here.

    Formats by themselves are known to need few.
    """
    for number, node in enumerate(language.nodes):
        if not node.patterns:
            continue
        formats = [format_of(pattern) for pattern in node.patterns]
        own = tuple(p for p, name in zip(node.patterns, formats, strict=True) if name is None)
        if not own and node.min_length <= min(FORMATS[name].fewest for name in formats if name):
            continue  # it says nothing beside the format
        with language.conjunctions.placed(language.conjunctions.of([2 * number])):
            if own:
                alone = Node(
                    node.path,
                    patterns=own,
                    min_length=node.min_length,
                    max_length=node.max_length,
                )
                try:
                    leaf = language.scalars.free_leaf(alone)
                    if leaf is not None:
                        probe(leaf.symbols, leaf.encoding)
                except CompileLimitExceeded as error:
                    raise error.at(child_path(node.path, "pattern")) from error
            for name in filter(None, formats):
                most = FORMATS[name].most_least
                if most is not None and node.min_length > most:
                    raise CompileLimitExceeded(
                        f"minLength beside the format {name} needs too many automaton states",
                        limit=most,
                        actual=node.min_length,
                    )
            if len(own) < len(formats) and (own or node.min_length):
                leaf = language.scalars.free_leaf(node)
                if leaf is not None:
                    leaf.shortest(leaf.start)


_MOST_SHOWN = 3
"""Alternatives whose reasons are given one by one."""

_MOST_LEVELS = 50
"""How far down a contradiction is followed."""


def contradiction(language: JsonLanguage) -> Unsatisfiable:
    """The error that says why the language's root is empty."""
    most = language.max_depth
    if language.root != language.unbounded_root and language.values.is_possible(
        language.unbounded_root
    ):
        return Unsatisfiable(
            f"every value of the schema nests deeper than max_depth={most} objects and arrays, "
            "at $. Pass a larger max_depth, or None for no bound."
        )
    path, reason = _Search(language).why(language.unbounded_root, "$")
    return Unsatisfiable(
        f"no JSON value satisfies the schema. It contradicts itself at {path}: {reason}.", path=path
    )


class _Search:
    def __init__(self, language: JsonLanguage) -> None:
        self._language = language
        self._seen: set[int] = set()

    def why(self, conjunction: int, path: str) -> tuple[str, str]:
        """The place, at ``path`` or below, that leaves nothing, and how."""
        language = self._language
        requirements = language.conjunctions.requirements(conjunction)
        if len(self._seen) > _MOST_LEVELS:
            return path, "what is required there contradicts itself, further down or in a circle"
        if requirements == (FALSE,):
            return path, "the schema there is false, so that no value is allowed"
        places = [language.nodes[ob >> 1].path for ob in requirements if not ob & 1]
        path = next((p for p in places if p != "$"), path)
        if conjunction in self._seen:
            return path, "each value would have to hold another of its kind, without end"
        self._seen.add(conjunction)
        branches = language.branches(conjunction)
        if not branches:
            return (
                path,
                "its types, or the alternatives of anyOf, oneOf and not, exclude each other",
            )
        found = [self._why_branch(branch, path) for branch in branches[: _MOST_SHOWN + 1]]
        if len({place for place, _ in found}) == 1 and len({why for _, why in found}) == 1:
            return found[0]
        shown = [why if p == path else f"{why} (at {p})" for p, why in found[:_MOST_SHOWN]]
        more = ", …" if len(found) > _MOST_SHOWN else ""
        return path, "none of its alternatives can be met: " + "; ".join(
            dict.fromkeys(shown)
        ) + more

    def _why_branch(self, branch: Branch, path: str) -> tuple[str, str]:
        nodes = [self._language.nodes[n] for n in branch.nodes]
        path = next((n.path for n in reversed(nodes) if n.path != "$"), path)
        if any(n.enum is not None for n in nodes):
            return path, _why_enum(branch.types, nodes)
        reasons: list[str] = []
        if branch.types & OBJECT:
            place, reason = self._why_object(branch, nodes, path)
            if branch.types == OBJECT:
                return place, reason
            reasons.append(reason)
        if branch.types & ARRAY:
            place, reason = self._why_array(branch, nodes, path)
            if branch.types == ARRAY:
                return place, reason
            reasons.append(reason)
        if branch.types & STRING:
            least, most = bounds(nodes, "length")
            if most is not None and most < least:
                reasons.append(f"minLength {least} is above maxLength {most}")
            else:
                reasons.append("no string has the length, patterns and format that are asked for")
        if branch.types & NUMBER:
            kind = "number" if branch.types & FRACTION else "integer"
            asked = " and ".join(dict.fromkeys(_bounds(nodes)))
            reasons.append(f"no {kind} has {asked}" if asked else f"no {kind} is left")
        if branch.types & (NULL | BOOLEAN):
            reasons.append("null, true and false are excluded")
        return path, "; ".join(reasons)

    def _why_object(self, branch: Branch, nodes: list[Node], path: str) -> tuple[str, str]:
        language = self._language
        required = dict.fromkeys(name for n in nodes for name in n.required)
        for name, conjunction in language.required_members(branch.nodes):
            if name in required and not language.values.is_possible(conjunction):
                return self._why_member(name, conjunction, path, f"{name!r} is required")
        for name, other in _dependent(nodes, required):
            asked = language.add(Node(path, required=(other,))) >> 1
            owed = dict(language.required_members((*branch.nodes, asked)))
            if other in owed and not language.values.is_possible(owed[other]):
                by = f"{other!r} is required by dependentRequired, as {name!r} is there"
                return self._why_member(other, owed[other], path, by)
        least, most = bounds(nodes, "properties")
        if most is not None and most < len(required):
            return path, f"maxProperties is {most}, but {len(required)} properties are required"
        if most is not None and most < least:
            return path, f"minProperties {least} is above maxProperties {most}"
        return path, "no object has the members that are asked for, in number, names and values"

    def _why_member(self, name: str, conjunction: int, path: str, asked: str) -> tuple[str, str]:
        if self._language.conjunctions.requirements(conjunction) == (FALSE,):
            return path, f"{asked}, but not allowed"
        return self.why(conjunction, child_path(path, "properties", name))

    def _why_array(self, branch: Branch, nodes: list[Node], path: str) -> tuple[str, str]:
        language = self._language
        least, most = bounds(nodes, "items")
        if most is not None and most < least:
            return path, f"minItems {least} is above maxItems {most}"
        for index, conjunction in enumerate(language.required_items(branch.nodes)):
            if language.values.is_possible(conjunction):
                continue
            if language.conjunctions.requirements(conjunction) == (FALSE,):
                return path, f"minItems asks for an item that is not allowed, number {index + 1}"
            return self.why(conjunction, child_path(path, "items"))
        return path, "no array has the items that are asked for, in number and values"


def _dependent(nodes: list[Node], required: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Names that are required because another one is: each after that one."""
    known = dict.fromkeys(required)
    todo = list(known)
    for name in todo:
        for node in nodes:
            for other in node.dependent_required.get(name, ()):
                if other not in known:
                    known[other] = None
                    todo.append(other)
                    yield name, other


def _why_enum(types: int, nodes: list[Node]) -> str:
    enums = [n.enum for n in nodes if n.enum is not None]
    if () in enums:
        return "its enum is empty, or does not hold the const beside it"
    if not set.intersection(*({json_key(v) for v in enum} for enum in enums)):
        return "the enums and consts there have no value in common"
    beside = [f"type {name}" for name in _type_names(nodes)] + _bounds(nodes)
    for node in nodes:
        beside += [f"minLength {node.min_length}"] if node.min_length else []
        beside += [f"maxLength {node.max_length}"] if node.max_length is not None else []
        beside += ["pattern or format"] if node.patterns else []
    named = f" ({', '.join(dict.fromkeys(beside))})" if beside else ""
    return f"no value of its enum or const meets the other assertions{named}"


def _type_names(nodes: list[Node]) -> list[str]:
    """The types that are left where some are excluded."""
    types = ALL_TYPES
    for node in nodes:
        types &= node.types
    if types == ALL_TYPES:
        return []
    names = [name for name, bits in TYPE_BITS.items() if types & bits == bits]
    return [name for name in names if name != "integer" or "number" not in names]


def _bounds(nodes: list[Node]) -> list[str]:
    """The assertions about numbers."""
    return [
        f"{keyword} {value}"
        for node in nodes
        for keyword, value in (
            ("minimum", node.minimum),
            ("exclusiveMinimum", node.exclusive_minimum),
            ("maximum", node.maximum),
            ("exclusiveMaximum", node.exclusive_maximum),
            ("multipleOf", node.multiple_of),
        )
        if value is not None
    ]
