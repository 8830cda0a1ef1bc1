"""What may fail later, found before the first text; and why nothing satisfies a schema.

`check` builds what values may be as far as `quick_checks` cannot tell, looks for a string of each
pattern, and sees that unique items can be told apart. `contradiction` says why a root is empty: it
follows required members and items down to the place that has no value, and tells which assertions
exclude each other there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING

from structgen.automaton.core.text_leaf import StringLeaf
from structgen.automaton.regex.symbols import probe
from structgen.automaton.schema.quick_checks import INVOLVED, PlainNodes
from structgen.automaton.schema.strings import has_plain_string
from structgen.errors import CompileLimitExceeded, Unsatisfiable
from structgen.grammar.formats import FORMATS, format_of
from structgen.grammar.json_schema import (
    ALL_TYPES,
    ARRAY,
    FALSE,
    OBJECT,
    OF_VALUES,
    TYPE_BITS,
    Node,
    child_path,
    show,
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
        if not node.patterns or has_plain_string(node):
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
    path, reason = _why(language)
    return Unsatisfiable(
        f"no JSON value satisfies the schema. It contradicts itself at {path}: {reason}.", path=path
    )


def _why(language: JsonLanguage) -> tuple[str, str]:
    """The place that leaves nothing, as far down as one leads to it, and what is asserted there.

    Of several alternatives the first is followed.
    """
    conjunction, path = language.unbounded_root, "$"
    asked = "the schema there is false, so that no value is allowed"
    seen: set[int] = set()
    while True:
        requirements = language.conjunctions.requirements(conjunction)
        if requirements == (FALSE,):
            return path, asked
        places = [language.nodes[ob >> 1].path for ob in requirements if not ob & 1]
        path = next((p for p in places if p != "$"), path)
        if conjunction in seen:
            return path, "each value would have to hold another of its kind, without end"
        branches = language.branches(conjunction)
        if not branches or len(seen) > _MOST_LEVELS:
            return (
                path,
                "its types, or the alternatives of anyOf, oneOf and not, exclude each other",
            )
        seen.add(conjunction)
        branch = branches[0]
        nodes = [language.nodes[n] for n in branch.nodes]
        path = next((n.path for n in reversed(nodes) if n.path != "$"), path)
        within = next(_impossible_within(language, branch, nodes), None)
        if within is None:
            others = "" if len(branches) == 1 else ", nor does one meet any other alternative"
            return path, f"no value meets all of {_asserted(branch.types, nodes)}{others}"
        step, asked, conjunction = within
        if language.conjunctions.requirements(conjunction) != (FALSE,):
            path = child_path(path, *step)


def _impossible_within(
    language: JsonLanguage, branch: Branch, nodes: list[Node]
) -> Iterator[tuple[tuple[str, ...], str, int]]:
    """The members and items that must be there and cannot: the steps to each, what is wrong where
    none is allowed, and its conjunction."""
    nothing = language.conjunctions.of([FALSE])
    if any(node.enum is not None for node in nodes):
        return
    if branch.types == OBJECT:
        required = {name for node in nodes for name in node.required}
        for name, owed in language.required_members(branch.nodes):
            if name in required and not language.values.is_possible(owed):
                yield ("properties", name), f"{name!r} is required, but not allowed", owed
    if branch.types == ARRAY:
        for owed in language.required_items(branch.nodes):
            if owed != nothing and not language.values.is_possible(owed):
                yield ("items",), "", owed


_TOLD = OF_VALUES | {"enum", "excluded", "dependent_required"}
_TOLD -= {"not_multiple_of", "rules", "repeats"}
_CALLED = {
    "enum": "enum or const",
    "excluded": "not",
    "patterns": "pattern or format",
    "additional": "additionalProperties",
    "prefix": "prefixItems",
    "unique": "uniqueItems",
}
"""Which fields of nodes messages tell, and what they call those that no keyword is called like."""

_OF_REQUIREMENTS = ("additional", "items", "property_names")
"""Those whose numbers name other nodes."""


def _asserted(types: int, nodes: list[Node]) -> str:
    """What is asserted of a value of ``types``, in the words of the schema."""
    names = [name for name, bits in TYPE_BITS.items() if types & bits == bits]
    told = [] if types == ALL_TYPES else [f"type {' or '.join(names)}"]
    for node in nodes:
        for field, value in node.fields().items():
            first, *more = field.split("_")
            name = _CALLED.get(field, "".join((first, *map(str.capitalize, more))))
            if field in ("enum", "required"):
                told.append(f"{name} {show(list(value))}")
            elif field in _TOLD:
                is_number = type(value) in (int, Decimal) and field not in _OF_REQUIREMENTS
                told.append(f"{name} {value}" if is_number else name)
    return ", ".join(dict.fromkeys(told))
