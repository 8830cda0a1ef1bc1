"""The result of both regex parsers, and constructors that keep the IR small.

A parser builds nodes of the IR in the pattern's structure. Unlike a language, a *parsed* pattern
keeps the order of its alternatives, and distinguishes `LazyRepeat` from other repeats, for readers
that need to know which match is preferred. `simplified` makes its language. Knows no source syntax.

The constructors `concat`, `alternate`, `repeat`, `intersect` and `complement` return the expected
language, cheaply simplified: they flatten, merge single characters into one `ir.CharSet`, drop
parts that match nothing, and never expand a counted repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from structgen.errors import CompileLimitExceeded
from structgen.grammar import ir

MAX_DEPTH = 200
"""The most nested levels of sequence, alternation, quantifier and lookaround."""


@dataclass(frozen=True, slots=True)
class LazyRepeat(ir.Repeat):
    """A repeat that prefers fewer times: the same language, but another preferred match."""

    __hash__ = ir.Repeat.__hash__


_NEWLINE = ir.char_set([(10, 10)])
# Python's ^ and $ under MULTILINE, and its $ without.
LINE_START = ir.Lookbehind(ir.Alternate((ir.StartAnchor(), _NEWLINE)), False)
LINE_END = ir.Lookahead(ir.Alternate((ir.EndAnchor(), _NEWLINE)), False)
TEXT_END_OR_NEWLINE = ir.Lookahead(ir.Concat((ir.Repeat(_NEWLINE, 0, 1), ir.EndAnchor())), False)


def has_look(regex: ir.Regex) -> bool:
    """Return whether a lookaround is anywhere in ``regex``."""
    return any(isinstance(node, (ir.Lookahead, ir.Lookbehind)) for node in ir.nodes(regex))


def lacks(regex: ir.Regex, char: str) -> bool:
    """Return whether no text of ``regex`` contains ``char``; False if its sets do not show it."""
    if isinstance(regex, ir.CharSet):
        return not any(low <= ord(char) <= high for low, high in regex.ranges)
    if isinstance(regex, (ir.Concat, ir.Alternate, ir.Repeat)):
        return all(lacks(part, char) for part in ir.parts_of(regex))
    return isinstance(regex, ir.Intersect) and any(lacks(part, char) for part in regex.parts)


def too_deep(pattern: str, depth: int = 0) -> CompileLimitExceeded:
    """Return the error for brackets that are nested too deeply."""
    return CompileLimitExceeded(
        f"Regular expression nested too deeply, in {pattern[:60]!r}...; flatten its groups",
        limit=MAX_DEPTH,
        actual=max(depth, pattern.count("("), MAX_DEPTH + 1),
    )


def may_be_empty(parsed: ir.Regex) -> bool:
    """Return whether the empty text may match; only assertions that never hold are known."""
    if isinstance(parsed, (ir.Lookahead, ir.Lookbehind)):
        return not (parsed.negate and is_nullable(parsed.body))
    return is_empty(parsed, may_be_empty) or isinstance(parsed, ir.StartAnchor | ir.EndAnchor)


def is_nullable(regex: ir.Regex) -> bool:
    """Return whether ``regex`` matches "" at every place; False if anchors decide."""
    return is_empty(regex, is_nullable)


def is_empty(regex: ir.Regex, of_part: Callable[[ir.Regex], bool]) -> bool:
    """Return whether ``regex`` matches the empty string, given ``of_part`` for its parts."""
    if isinstance(regex, (ir.Concat, ir.Intersect)):
        return all(map(of_part, regex.parts))
    if isinstance(regex, ir.Alternate):
        return any(map(of_part, regex.parts))
    return isinstance(regex, ir.Repeat) and (regex.min == 0 or of_part(regex.body))


def word_boundary(word: ir.CharSet, negate: bool) -> ir.Regex:
    r"""Return ``\b`` (or ``\B``) for the given word characters."""
    behind, not_behind = ir.Lookbehind(word, False), ir.Lookbehind(word, True)
    ahead, not_ahead = ir.Lookahead(word, False), ir.Lookahead(word, True)
    if negate:
        ahead, not_ahead = not_ahead, ahead
    return ir.Alternate((ir.Concat((behind, not_ahead)), ir.Concat((not_behind, ahead))))


def simplified(parsed: ir.Regex) -> ir.Regex:
    """Return the language of a parser's result."""
    if isinstance(parsed, ir.CharSet):
        return parsed if parsed.ranges else ir.NOTHING
    if isinstance(parsed, ir.Concat):
        return concat(map(simplified, parsed.parts))
    if isinstance(parsed, ir.Alternate):
        return alternate(map(simplified, parsed.parts))
    if isinstance(parsed, ir.Repeat):
        return repeat(simplified(parsed.body), parsed.min, parsed.max)
    if isinstance(parsed, (ir.Lookahead, ir.Lookbehind)):
        return type(parsed)(simplified(parsed.body), parsed.negate)
    return parsed


def at_edges(tree: ir.Regex, search: bool, left: bool = True, right: bool = True) -> ir.Regex:
    """Return ``tree`` as a whole pattern: without anchors at its edges, with any text around if
    ``search``.

    Exact for every tree; parts that it does not simplify keep their anchors, which the automaton
    handles. ``left`` and ``right``: whether the tree is at these edges of the whole pattern.
    """
    if not (left or right):
        return tree
    if isinstance(tree, ir.Alternate):
        # Branches without anchors stay together, with any text around all of them once.
        plain: list[ir.Regex] = []
        others: list[ir.Regex] = []
        for part in tree.parts:
            (plain if search and not has_anchor(part) else others).append(part)
        branches = [at_edges(part, search, left, right) for part in others]
        if plain:
            branches.insert(0, _surround(ir.Alternate(tuple(plain)), left, right))
        return ir.Alternate(tuple(branches))
    if isinstance(tree, ir.Concat) and tree.parts:
        if len(tree.parts) == 1:
            return at_edges(tree.parts[0], search, left, right)
        first, *middle, last = tree.parts
        return ir.Concat(
            (at_edges(first, search, left, False), *middle, at_edges(last, search, False, right))
        )
    start = isinstance(tree, ir.StartAnchor) or (not search and tree == LINE_START)
    end = isinstance(tree, ir.EndAnchor) or (not search and tree in (LINE_END, TEXT_END_OR_NEWLINE))
    inner = ir.EPSILON if (start and left) or (end and right) else tree
    return _surround(inner, left and search and not start, right and search and not end)


def _surround(tree: ir.Regex, left: bool, right: bool) -> ir.Regex:
    return ir.Concat((*[ir.ANY_TEXT] * left, tree, *[ir.ANY_TEXT] * right))


def has_anchor(tree: ir.Regex) -> bool:
    """Return whether ``tree`` has an anchor outside lookarounds."""
    if isinstance(tree, (ir.Concat, ir.Alternate)):
        return any(map(has_anchor, tree.parts))
    if isinstance(tree, ir.Repeat):
        return has_anchor(tree.body)
    return isinstance(tree, (ir.StartAnchor, ir.EndAnchor))


def settled(parsed: ir.Regex) -> ir.Regex:
    r"""Return ``parsed`` without the lookbehinds that the pattern itself decides (most ``\b``)."""
    return _settle(parsed, None)[0] if has_look(parsed) else parsed


def _settle(parsed: ir.Regex, before: ir.CharSet | None) -> tuple[ir.Regex, ir.CharSet | None]:
    r"""Decide lookbehinds of one character by the part before them (most ``\b``).

    Args:
        parsed: the tree.
        before: the possible characters directly before it, None for any.

    Returns:
        An equivalent tree, and the possible characters at its end.
    """
    if isinstance(parsed, ir.CharSet):
        return parsed, parsed
    if isinstance(parsed, ir.Concat):
        parts = []
        for part in parsed.parts:
            part, before = _settle(part, before)
            parts.append(part)
        return ir.Concat(tuple(parts)), before
    if isinstance(parsed, ir.Alternate):
        branches = [_settle(part, before) for part in parsed.parts]
        branches = [pair for pair in branches if pair[0] != ir.NOTHING]
        return ir.Alternate(tuple(part for part, _ in branches)), _union([c for _, c in branches])
    if isinstance(parsed, ir.Repeat):
        if parsed.max == 0:
            return ir.EPSILON, before
        # A later round comes after any possible end of a round.
        _, last = _settle(parsed.body, None)
        inner = _union([before, last]) if parsed.max != 1 else before
        body, last = _settle(parsed.body, inner)
        after = _union([before, last]) if parsed.min == 0 else last
        return type(parsed)(body, parsed.min, parsed.max), after
    if isinstance(parsed, ir.Lookahead):
        body, _ = _settle(parsed.body, before)
        return ir.Lookahead(body, parsed.negate), before
    if not isinstance(parsed, ir.Lookbehind) or before is None or not before.ranges:
        return parsed, before
    if isinstance(parsed.body, ir.CharSet):
        outside = ir.negate(parsed.body).ranges
        if not _common(before.ranges, outside):
            return (ir.NOTHING if parsed.negate else ir.EPSILON), before
        if not _common(before.ranges, parsed.body.ranges):
            return (ir.EPSILON if parsed.negate else ir.NOTHING), before
    return parsed, before


def _union(sets: list[ir.CharSet | None]) -> ir.CharSet | None:
    known = [chars.ranges for chars in sets if chars is not None]
    if len(known) < len(sets):
        return None
    return ir.char_set([pair for ranges in known for pair in ranges])


def _common(a: ir.Ranges, b: ir.Ranges) -> bool:
    return any(low <= high2 and low2 <= high for low, high in a for low2, high2 in b)


def concat(parts: Iterable[ir.Regex]) -> ir.Regex:
    """Return the parts one after the other, flattened."""
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
            # Any text absorbs adjacent parts that may be empty.
            if out and _is_any_text(out[-1]) and is_nullable(item):
                continue
            if _is_any_text(item):
                while out and is_nullable(out[-1]):
                    out.pop()
            out.append(item)
    return out[0] if len(out) == 1 else ir.Concat(tuple(out))


def _is_any_text(regex: ir.Regex) -> bool:
    return isinstance(regex, ir.Repeat) and regex.max is None and regex == ir.ANY_TEXT


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
        # Testing a single character first is cheapest, and order does not matter for the language.
        items.insert(0, ir.char_set(ranges))
    union = items[0] if len(items) == 1 else ir.Alternate(tuple(items))
    return repeat(union, 0, 1) if optional else union


def _add(item: ir.Regex, out: dict[ir.Regex, None], ranges: list[tuple[int, int]]) -> None:
    if isinstance(item, ir.CharSet):
        ranges.extend(item.ranges)
    else:
        out[item] = None


def repeat(body: ir.Regex, low: int, high: int | None) -> ir.Regex:
    """Return ``body`` repeated ``low`` to ``high`` times, as a counted repeat."""
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
    """Return texts that every part matches."""
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
    """Return whether an anchor or lookaround may make matches depend on the context."""
    if isinstance(regex, (ir.Concat, ir.Alternate)):
        return any(map(looks_around, regex.parts))
    if isinstance(regex, ir.Repeat):
        return looks_around(regex.body)
    return not isinstance(regex, (ir.CharSet, ir.Intersect, ir.Complement, ir.Checksum, ir.Quote))


def complement(body: ir.Regex) -> ir.Regex:
    """Return texts that ``body`` does not match."""
    if body == ir.NOTHING:
        return ir.ANY_TEXT
    if body == ir.ANY_TEXT:
        return ir.NOTHING
    return body.body if isinstance(body, ir.Complement) else ir.Complement(body)
