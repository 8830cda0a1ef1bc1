"""The tree both regex parsers build, and the constructors that keep the IR small.

A tree is made of `ir` leaves (`ir.CharSet`, `ir.StartAnchor`, `ir.EndAnchor`) and of `Seq`, `Alt`,
`Rep` and `Look` (a lookaround); `lower` turns it into IR. This module knows no source syntax.

The constructors `concat`, `alternate`, `repeat`, `intersect` and `complement` return the language
one expects and simplify what costs nothing: they flatten, merge single characters into one
`ir.CharSet`, drop parts that match nothing, and never expand a counted repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from structgen.errors import CompileLimitExceeded
from structgen.grammar import ir

MAX_DEPTH = 200
"""Most levels of sequence, alternation, quantifier and lookaround inside each other."""


@dataclass(frozen=True, slots=True)
class Seq:
    """The parts one after the other."""

    parts: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Alt:
    """Any one of the parts."""

    parts: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Rep:
    """``body`` from ``min`` to ``max`` times (None: unbounded)."""

    body: Tree
    min: int
    max: int | None


@dataclass(frozen=True, slots=True)
class LazyRep(Rep):
    """A `Rep` that prefers fewer times; the same language, another choice of match."""


@dataclass(frozen=True, slots=True)
class Look:
    """The empty string where the text around has a property.

    Attributes:
        body: what must (or must not) match from here on, or up to here.
        behind: False: some text from here on matches; True: some text that ends here does.
        negate: whether it must not match.
        position: offset in the pattern, for errors.
    """

    body: Tree
    behind: bool
    negate: bool
    position: int | None = None


Tree: TypeAlias = "ir.CharSet | ir.StartAnchor | ir.EndAnchor | Seq | Alt | Rep | Look"

EMPTY = Seq(())
_NEWLINE = ir.char_set([(10, 10)])
# Python's ^ and $ under MULTILINE, and its $ without.
LINE_START = Look(Alt((ir.StartAnchor(), _NEWLINE)), True, False)
LINE_END = Look(Alt((ir.EndAnchor(), _NEWLINE)), False, False)
TEXT_END_OR_NEWLINE = Look(Seq((Rep(_NEWLINE, 0, 1), ir.EndAnchor())), False, False)


def has_look(tree: Tree) -> bool:
    """Whether a `Look` is anywhere in ``tree``."""
    if isinstance(tree, (Seq, Alt)):
        return any(type(part) is not ir.CharSet and has_look(part) for part in tree.parts)
    return isinstance(tree, Look) or (isinstance(tree, Rep) and has_look(tree.body))


def too_deep(pattern: str, depth: int = 0) -> CompileLimitExceeded:
    """What to raise where brackets are inside each other more deeply than can be read."""
    return CompileLimitExceeded(
        f"Regular expression nested too deeply, in {pattern[:60]!r}...; flatten its groups",
        limit=MAX_DEPTH,
        actual=max(depth, pattern.count("("), MAX_DEPTH + 1),
    )


def may_be_empty(tree: Tree) -> bool:
    """Whether the empty text may match; of assertions only those that never hold are known."""
    if isinstance(tree, Look):
        return not (tree.negate and _always_matches(tree.body))
    return _is_empty(tree, may_be_empty) or isinstance(tree, ir.StartAnchor | ir.EndAnchor)


def _always_matches(tree: Tree) -> bool:
    """Whether the empty text matches wherever it stands, as far as it is easily told."""
    return _is_empty(tree, _always_matches)


def _is_empty(tree: Tree, of_part: Callable[[Tree], bool]) -> bool:
    if isinstance(tree, Seq):
        return all(map(of_part, tree.parts))
    if isinstance(tree, Alt):
        return any(map(of_part, tree.parts))
    return isinstance(tree, Rep) and (tree.min == 0 or of_part(tree.body))


def word_boundary(word: ir.CharSet, negate: bool, position: int | None) -> Tree:
    r"""``\b`` (or ``\B``) for the given word characters."""
    behind, not_behind = (Look(word, True, n, position) for n in (False, True))
    ahead, not_ahead = (Look(word, False, n, position) for n in (False, True))
    if negate:
        return Alt((Seq((behind, ahead)), Seq((not_behind, not_ahead))))
    return Alt((Seq((behind, not_ahead)), Seq((not_behind, ahead))))


def lower(tree: Tree) -> ir.Regex:
    """The IR of a tree, every `Look` as a node of its own."""
    if isinstance(tree, ir.CharSet):
        return tree if tree.ranges else ir.NOTHING
    if isinstance(tree, Seq):
        return concat(map(lower, tree.parts))
    if isinstance(tree, Alt):
        return alternate(map(lower, tree.parts))
    if isinstance(tree, Rep):
        return repeat(lower(tree.body), tree.min, tree.max)
    if isinstance(tree, Look):
        body = lower(tree.body)
        return (ir.Lookbehind if tree.behind else ir.Lookahead)(body, tree.negate)
    return concat((tree,))


def at_edges(tree: Tree, search: bool) -> Tree:
    """``tree`` as the whole pattern: anchors at its edges dropped, any text around if ``search``.

    Exact for every tree; what it does not simplify keeps its anchors, which the automaton reads.
    """
    return _edges(tree, True, True, search)


def _edges(tree: Tree, left: bool, right: bool, search: bool) -> Tree:
    if not (left or right):
        return tree
    if isinstance(tree, Alt):
        # Branches without anchors stay together: any text around all of them, once.
        plain = tuple(part for part in tree.parts if search and not has_anchor(part))
        others = (part for part in tree.parts if part not in plain)
        branches = tuple(_edges(part, left, right, search) for part in others)
        if plain:
            branches = (_surround(Alt(plain), left, right), *branches)
        return Alt(branches)
    if isinstance(tree, Seq) and tree.parts:
        if len(tree.parts) == 1:
            return _edges(tree.parts[0], left, right, search)
        first, *middle, last = tree.parts
        return Seq(
            (_edges(first, left, False, search), *middle, _edges(last, False, right, search))
        )
    start = isinstance(tree, ir.StartAnchor) or (not search and tree == LINE_START)
    end = isinstance(tree, ir.EndAnchor) or (not search and tree in (LINE_END, TEXT_END_OR_NEWLINE))
    inner = EMPTY if (start and left) or (end and right) else tree
    return _surround(inner, left and search and not start, right and search and not end)


def _surround(tree: Tree, left: bool, right: bool) -> Tree:
    return Seq((*[ANY_TEXT_TREE] * left, tree, *[ANY_TEXT_TREE] * right))


def has_anchor(tree: Tree) -> bool:
    """Whether the start or end of the text is asked for in ``tree``, outside lookarounds."""
    if isinstance(tree, (Seq, Alt)):
        return any(map(has_anchor, tree.parts))
    if isinstance(tree, Rep):
        return has_anchor(tree.body)
    return isinstance(tree, (ir.StartAnchor, ir.EndAnchor))


ANY_TEXT_TREE = Rep(ir.ANY_CHAR, 0, None)


def concat(parts: Iterable[ir.Regex]) -> ir.Regex:
    """The parts one after the other, flattened."""
    out: list[ir.Regex] = []
    for part in parts:
        for item in part.parts if isinstance(part, ir.Concat) else (part,):
            if isinstance(item, ir.CharSet):
                if not item.ranges:
                    return ir.NOTHING
                out.append(item)
                continue
            if isinstance(item, ir.Alternate) and not item.parts:
                return ir.NOTHING
            # Any text swallows what may be empty beside it.
            if out and _is_any_text(out[-1]) and is_nullable(item):
                continue
            if _is_any_text(item):
                while out and is_nullable(out[-1]):
                    out.pop()
            out.append(item)
    return out[0] if len(out) == 1 else ir.Concat(tuple(out))


def _is_any_text(regex: ir.Regex) -> bool:
    return isinstance(regex, ir.Repeat) and regex.max is None and regex == ir.ANY_TEXT


def is_nullable(regex: ir.Regex) -> bool:
    """Whether ``regex`` matches the empty string at every place (False where anchors decide)."""
    if isinstance(regex, ir.Repeat):
        return regex.min == 0 or is_nullable(regex.body)
    if isinstance(regex, (ir.Concat, ir.Intersect)):
        return all(map(is_nullable, regex.parts))
    return isinstance(regex, ir.Alternate) and any(map(is_nullable, regex.parts))


def alternate(parts: Iterable[ir.Regex]) -> ir.Regex:
    """Any one of the parts: flattened, without duplicates, single characters in one set."""
    out: dict[ir.Regex, None] = {}
    ranges: list[tuple[int, int]] = []
    optional = False
    for part in parts:
        for item in part.parts if isinstance(part, ir.Alternate) else (part,):
            if isinstance(item, ir.Repeat) and item.min == 0 and item.max == 1:
                optional = True
                item = item.body
                for inner in item.parts if isinstance(item, ir.Alternate) else (item,):
                    _add(inner, out, ranges)
            elif isinstance(item, ir.Concat) and not item.parts:
                optional = True
            else:
                _add(item, out, ranges)
    items = list(out)
    if ranges:
        # A single character is cheapest to test first; order means nothing to the language.
        items.insert(0, ir.char_set(ranges))
    union = items[0] if len(items) == 1 else ir.Alternate(tuple(items))
    return repeat(union, 0, 1) if optional else union


def _add(item: ir.Regex, out: dict[ir.Regex, None], ranges: list[tuple[int, int]]) -> None:
    if isinstance(item, ir.CharSet):
        ranges.extend(item.ranges)
    else:
        out[item] = None


def repeat(body: ir.Regex, low: int, high: int | None) -> ir.Regex:
    """``body`` from ``low`` to ``high`` times, counts kept as counts."""
    if isinstance(body, ir.CharSet):
        is_nothing, is_empty = not body.ranges, False
    else:
        is_nothing, is_empty = body == ir.NOTHING, body == ir.EPSILON
    if high == 0 or is_empty:
        return ir.EPSILON
    if is_nothing:
        return ir.EPSILON if low == 0 else ir.NOTHING
    if low == 1 and high == 1:
        return body
    if isinstance(body, ir.Repeat):
        if body.min <= 1 and body.max is None:
            # (x*){m,n} = x*, (x+){m,n} = x{m,} (x* when m is 0).
            return ir.Repeat(body.body, low * body.min, None)
        if body.min == 0 and body.max == 1:
            return ir.Repeat(body.body, 0, high)
    return ir.Repeat(body, low, high)


def intersect(parts: Iterable[ir.Regex]) -> ir.Regex:
    """Texts that every part matches."""
    out: dict[ir.Regex, None] = {}
    for part in parts:
        for item in part.parts if isinstance(part, ir.Intersect) else (part,):
            if item == ir.NOTHING:
                return ir.NOTHING
            if item != ir.ANY_TEXT:
                out[item] = None
    if not out:
        return ir.ANY_TEXT
    items = tuple(out)
    return items[0] if len(items) == 1 else ir.Intersect(items)


def looks_around(regex: ir.Regex) -> bool:
    """Whether what ``regex`` matches may depend on what is around: an anchor or a lookaround."""
    if isinstance(regex, (ir.Concat, ir.Alternate)):
        return any(map(looks_around, regex.parts))
    if isinstance(regex, ir.Repeat):
        return looks_around(regex.body)
    return not isinstance(regex, (ir.CharSet, ir.Intersect, ir.Complement, ir.Checksum))


def complement(body: ir.Regex) -> ir.Regex:
    """Texts that ``body`` does not match."""
    if body == ir.NOTHING:
        return ir.ANY_TEXT
    if body == ir.ANY_TEXT:
        return ir.NOTHING
    return body.body if isinstance(body, ir.Complement) else ir.Complement(body)
