r"""What surrounds an assertion in a pattern: lookbehinds decided, lookaheads as languages; widths.

Owns `settled`, which decides most ``\b`` by the characters that stand before them, and `ahead`,
the language of the rest of the text that a lookahead stands for. Pure functions over regex trees.
"""

from __future__ import annotations

from structgen.grammar import ir

from . import tree


def ahead(look: tree.Look) -> ir.Regex:
    """The texts that may follow where ``look``, a lookahead, stands."""
    regex = tree.lower(tree.Seq((look.body, tree.ANY_TEXT_TREE)))
    return tree.complement(regex) if look.negate else regex


def settled(parsed: tree.Tree) -> tree.Tree:
    r"""``parsed`` with the lookbehinds gone that the pattern itself decides (most ``\b``)."""
    return _settle(parsed, None)[0] if tree.has_look(parsed) else parsed


def _settle(parsed: tree.Tree, before: ir.CharSet | None) -> tuple[tree.Tree, ir.CharSet | None]:
    r"""Decide lookbehinds of one character that what stands before them decides (most ``\b``).

    Args:
        parsed: the tree.
        before: the characters that can stand right before it, None when any can.

    Returns:
        An equivalent tree, and the characters that can stand right after it.
    """
    if isinstance(parsed, ir.CharSet):
        return parsed, parsed
    if isinstance(parsed, tree.Seq):
        parts = []
        for part in parsed.parts:
            part, before = _settle(part, before)
            parts.append(part)
        return tree.Seq(tuple(parts)), before
    if isinstance(parsed, tree.Alt):
        branches = [_settle(part, before) for part in parsed.parts]
        branches = [pair for pair in branches if pair[0] != _NEVER]
        return tree.Alt(tuple(part for part, _ in branches)), _union([c for _, c in branches])
    if isinstance(parsed, tree.Rep):
        if parsed.max == 0:
            return tree.EMPTY, before
        # What stands before a later round: what can stand at the end of any round.
        _, last = _settle(parsed.body, None)
        inner = _union([before, last]) if parsed.max != 1 else before
        body, last = _settle(parsed.body, inner)
        after = _union([before, last]) if parsed.min == 0 else last
        return type(parsed)(body, parsed.min, parsed.max), after
    if isinstance(parsed, tree.Look) and not parsed.behind:
        body, _ = _settle(parsed.body, before)
        return tree.Look(body, False, parsed.negate, parsed.position), before
    if not isinstance(parsed, tree.Look) or before is None or not before.ranges:
        return parsed, before
    if isinstance(parsed.body, ir.CharSet):
        outside = ir.negate(parsed.body).ranges
        if not _common(before.ranges, outside):
            return (_NEVER if parsed.negate else tree.EMPTY), before
        if not _common(before.ranges, parsed.body.ranges):
            return (tree.EMPTY if parsed.negate else _NEVER), before
    return parsed, before


_NEVER = tree.Alt(())


def _union(sets: list[ir.CharSet | None]) -> ir.CharSet | None:
    known = [chars.ranges for chars in sets if chars is not None]
    if len(known) < len(sets):
        return None
    return ir.char_set([pair for ranges in known for pair in ranges])


def _common(a: ir.Ranges, b: ir.Ranges) -> bool:
    return any(low <= high2 and low2 <= high for low, high in a for low2, high2 in b)


def has_behind(parsed: tree.Tree) -> bool:
    """Whether a lookbehind or the start of the text is asked for anywhere in ``parsed``."""
    if isinstance(parsed, tree.Seq | tree.Alt):
        return any(map(has_behind, parsed.parts))
    if isinstance(parsed, tree.Rep):
        return has_behind(parsed.body)
    if isinstance(parsed, tree.Look):
        return parsed.behind or has_behind(parsed.body)
    return isinstance(parsed, ir.StartAnchor)


def width(regex: ir.Regex) -> tuple[int, int | None]:
    """Bounds on the length of what ``regex`` matches, in code points (None: no upper bound)."""
    if isinstance(regex, ir.CharSet):
        return 1, 1
    if isinstance(regex, ir.Repeat):
        low, high = width(regex.body)
        if regex.max is None:
            return low * regex.min, 0 if high == 0 else None
        return low * regex.min, None if high is None else high * regex.max
    if isinstance(regex, ir.Concat | ir.Alternate | ir.Intersect):
        bounds = [width(part) for part in regex.parts]
        lows = [low for low, _ in bounds]
        highs = [high for _, high in bounds if high is not None]
        bounded = len(highs) == len(bounds)
        if isinstance(regex, ir.Concat):
            return sum(lows), sum(highs) if bounded else None
        if isinstance(regex, ir.Alternate):
            return min(lows, default=0), max(highs, default=0) if bounded else None
        return max(lows, default=0), min(highs, default=None)
    if isinstance(regex, ir.Checksum):
        return len(regex.steps) + regex.count, len(regex.steps) + regex.count
    return (0, None) if isinstance(regex, ir.Complement) else (0, 0)
