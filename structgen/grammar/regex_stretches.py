"""Stretches: which part of a line each lookaround is put on, and the regex that comes out.

A check that sees no further than ``reach`` characters is put on the shortest stretch of segments
that is sure to be that long, any other on all the text to its side. `crossing` says where stretches
overlap without one holding the other and have to be told apart; `assemble` turns a line whose
stretches nest into one regex. Knows nothing of trees or source syntax.
"""

from __future__ import annotations

from typing import TypeAlias

from . import ir
from .regex_lines import Check, Item, Line, width
from .regex_tree import concat, intersect

Span: TypeAlias = "tuple[int, int, Check]"
"""First and last item boundary, and the check."""


def reach(line: Line, behind: bool) -> int | None:
    """How far a lookaround with this body sees."""
    total = 0
    furthest = 0
    for item in reversed(line) if behind else line:
        seen = item.reach if isinstance(item, Check) else 0
        if isinstance(item, Check) and item.behind != behind:
            seen = 0
        high = width(item)[1]
        if seen is None or high is None:
            return None
        furthest = max(furthest, total + seen)
        total += high
    return max(furthest, total)


def _stretch(line: Line, at: int, check: Check) -> tuple[int, int, bool]:
    """The shortest stretch of items that ``check`` at ``at`` is sure not to see beyond.

    Returns:
        First and last item boundary, and whether it is known to be long enough.
    """
    seen = 0
    edge = at
    step = -1 if check.behind else 1
    stop = 0 if check.behind else len(line)
    while check.reach is None or seen < check.reach:
        if edge == stop:
            return (edge, at, False) if check.behind else (at, edge, False)
        seen += width(line[edge - 1 if check.behind else edge])[0]
        edge += step
    return (edge, at, True) if check.behind else (at, edge, True)


def _spans(line: Line) -> list[Span]:
    return [
        (*_stretch(line, i, item)[:2], item)
        for i, item in enumerate(line)
        if isinstance(item, Check)
    ]


def crossing(line: Line, open_left: bool, open_right: bool) -> Span | None:
    """A stretch of items that must be longer for the checks' stretches to nest, and a check."""
    for i, item in enumerate(line):
        if isinstance(item, Check) and (open_left if item.behind else open_right):
            start, stop, enough = _stretch(line, i, item)
            if not enough and any(not isinstance(x, Check) for x in line[start:stop]):
                return start, stop, item
    nested = _nested(_spans(line))
    return nested if isinstance(nested, tuple) else None


def can_settle(line: Line, stretch: Span) -> bool:
    """Whether a longer ``stretch`` would bring a check's sight to an end within it."""
    start, stop, check = stretch
    sure = sum(width(item)[0] for item in line[start:stop])
    opposite = (line[stop],) if not check.behind and stop < len(line) else ()
    reaches = [item.reach for item in (check, *opposite) if isinstance(item, Check)]
    return any(reach is not None and sure < reach for reach in reaches)


def _nested(spans: list[Span]) -> list[Span] | Span:
    """Widen ``spans`` until any two nest or are apart, or say between which places that fails.

    The left end of a lookahead's stretch and the right end of a lookbehind's are fixed.
    """
    spans = list(spans)
    changed = True
    while changed:
        changed = False
        for i, (a, b, left) in enumerate(spans):
            for j, (c, d, right) in enumerate(spans):
                if not a < c < b < d:
                    continue
                if not left.behind:
                    spans[i] = (a, d, left)
                elif right.behind:
                    spans[j] = (a, d, right)
                else:
                    return (c, b, right)
                changed = True
                break
            if changed:
                break
    return spans


def outward(line: Line, behind: bool) -> tuple[Line, Line]:
    """Checks of a body's line that look out of it at its near edge, and the rest of the line."""
    items = list(reversed(line)) if behind else list(line)
    outside: list[Item] = []
    inside: list[Item] = []
    at_edge = True
    for item in items:
        at_edge = at_edge and isinstance(item, Check)
        if at_edge and isinstance(item, Check) and item.behind != behind:
            outside.append(item)
        else:
            inside.append(item)
    return tuple(outside), tuple(reversed(inside) if behind else inside)


def assemble(line: Line) -> ir.Regex:
    """The regex of a line whose stretches nest: `ir.Intersect` of segments and checks."""
    spans = _nested(_spans(line))
    assert isinstance(spans, list)
    return _build(line, 0, len(line), spans)


def _build(line: Line, start: int, stop: int, spans: list[Span]) -> ir.Regex:
    """The regex of items ``start`` to ``stop`` under ``spans``, all of them within."""
    here = [check.constraint for a, b, check in spans if (a, b) == (start, stop)]
    inner = [span for span in spans if span[:2] != (start, stop)]
    parts: list[ir.Regex] = []
    at = start
    # Outermost first; what lies within another is left to the recursion.
    taken: tuple[int, int] | None = None
    for a, b in sorted({span[:2] for span in inner}, key=lambda span: (span[0], -span[1])):
        if taken is not None and taken[0] <= a and b <= taken[1]:
            continue
        taken = (a, b)
        parts.extend(_segments(line[at:a]))
        parts.append(_build(line, a, b, [s for s in inner if a <= s[0] and s[1] <= b]))
        at = b
    parts.extend(_segments(line[at:stop]))
    return intersect([concat(parts), *here])


def _segments(items: Line) -> list[ir.Regex]:
    return [item for item in items if not isinstance(item, Check)]
