"""What may fail only once something is built: found before the first text.

Owns `check`, which builds what a schema's values may be as far as `quick_checks` cannot tell, looks
for a string of each pattern, and sees that unique items can be told apart. Knows the language from
outside; nothing depends on what is built here, but it is kept.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from structgen.automaton.core.leaf import Leaf
from structgen.automaton.core.text_leaf import StringLeaf
from structgen.automaton.regex.quick_checks import has_string
from structgen.automaton.regex.symbols import probe
from structgen.errors import CompileLimitExceeded
from structgen.grammar.formats import FORMATS, format_of
from structgen.grammar.json_schema import OBJECT, Node, child_path

from .arrays import ArrayPlan
from .closing import check_owed
from .quick_checks import IN_PLACE, PlainNodes, worth_a_look

if TYPE_CHECKING:
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
    if language.said.isdisjoint(IN_PLACE):
        return
    nodes = language.nodes
    candidates = worth_a_look(nodes)
    apply = any(
        n.applies_in_place or n.contains or n.rules or n.repeats
        for n in map(nodes.__getitem__, candidates)
    )
    if apply:
        _check_plans(language, candidates)


def _check_plans(language: JsonLanguage, candidates: list[int]) -> None:
    """Build what may not be plain: the nodes with the numbers ``candidates`` are looked at."""
    plain = PlainNodes(language.nodes)
    if all(plain.is_plain(2 * number) for number in candidates):
        return
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
                _find_strings(leaves)
                for plan in plans:
                    if isinstance(plan, ArrayPlan) and plan.is_searched:
                        plan.is_possible()
                    children += plan.children()
        for child in children:
            if child not in seen:
                seen.add(child)
                todo.append(child)
    if any(node.repeats for node in language.nodes):
        _check_unique(language, below)


def _find_strings(leaves: tuple[tuple[Leaf, int], ...]) -> None:
    """Look for the strings that budgets will count on: when they ask it would be too late."""
    best: int | None = None
    for leaf, start in leaves:
        if not isinstance(leaf, StringLeaf) or (best is not None and leaf.at_least(start) >= best):
            continue
        found = leaf.shortest(start)
        if found is not None and (best is None or len(found[0]) < best):
            best = len(found[0])


def _check_unique(language: JsonLanguage, below: dict[int, list[int]]) -> None:
    """See that unique items can be told apart: each must not be what another one is.

    Args:
        below: for each conjunction those of its members and items.
    """
    arrays = {
        conjunction: [p for p in language.shapes(conjunction)[1] if isinstance(p, ArrayPlan)]
        for conjunction in below
    }
    repeating = {c for c, plans in arrays.items() if any(p.repeats for p in plans)}
    if not repeating:
        return
    todo = [c for at, plans in arrays.items() if any(p.is_unique for p in plans) for c in below[at]]
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
        if len(own) == len(formats) == 1 and has_string(own[0], node.min_length, node.max_length):
            continue
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
