"""What can be read off an IR regex without running it: widths, first characters, finite texts.

Pure functions over `ir` nodes, all conservative in a stated direction. They know no source syntax.
"""

from __future__ import annotations

from bisect import bisect_right

from . import ir
from .regex_tree import concat, intersect, is_nullable, repeat


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
    return (0, None) if isinstance(regex, ir.Complement) else (0, 0)


def edge_chars(regex: ir.Regex, last: bool) -> tuple[ir.CharSet, bool]:
    """A superset of the first (or last) characters, and whether the empty string may match."""
    if isinstance(regex, ir.CharSet):
        return regex, False
    if isinstance(regex, ir.Repeat):
        chars, empty = edge_chars(regex.body, last)
        return chars, empty or regex.min == 0
    if isinstance(regex, ir.Concat):
        return edge_of_sequence(regex.parts, last)
    if isinstance(regex, ir.Alternate):
        edges = [edge_chars(part, last) for part in regex.parts]
        ranges = [r for chars, _ in edges for r in chars.ranges]
        return ir.char_set(ranges), any(empty for _, empty in edges)
    if isinstance(regex, ir.Intersect):
        # Any one part's edge is a superset; the narrowest says most.
        edges = [edge_chars(part, last) for part in regex.parts]
        chars = min((chars for chars, _ in edges), key=_count)
        return chars, all(empty for _, empty in edges)
    if isinstance(regex, ir.Complement):
        return ir.ANY_CHAR, True
    return ir.char_set([]), True


def edge_of_sequence(parts: tuple[ir.Regex, ...], last: bool) -> tuple[ir.CharSet, bool]:
    """`edge_chars` of the parts one after the other."""
    ranges: list[tuple[int, int]] = []
    for part in reversed(parts) if last else parts:
        chars, empty = edge_chars(part, last)
        ranges.extend(chars.ranges)
        if not empty:
            return ir.char_set(ranges), False
    return ir.char_set(ranges), True


def _count(chars: ir.CharSet) -> int:
    return sum(high - low + 1 for low, high in chars.ranges)


def is_subset(inner: ir.CharSet, outer: ir.CharSet) -> bool:
    """Whether every code point of ``inner`` is in ``outer``."""
    if inner is outer:
        return True
    starts = [low for low, _ in outer.ranges]
    for low, high in inner.ranges:
        # Ranges are merged, so one range of the outer set has to hold all of this one.
        i = bisect_right(starts, low) - 1
        if i < 0 or outer.ranges[i][1] < high:
            return False
    return True


def is_disjoint(left: ir.CharSet, right: ir.CharSet) -> bool:
    """Whether no code point is in both."""
    return not common(left, right, first_only=True).ranges


def common(left: ir.CharSet, right: ir.CharSet, first_only: bool = False) -> ir.CharSet:
    """The code points in both; with ``first_only`` just one stretch of them, if any."""
    out: list[tuple[int, int]] = []
    i = j = 0
    while i < len(left.ranges) and j < len(right.ranges) and not (out and first_only):
        low = max(left.ranges[i][0], right.ranges[j][0])
        high = min(left.ranges[i][1], right.ranges[j][1])
        if low <= high:
            out.append((low, high))
        if left.ranges[i][1] < right.ranges[j][1]:
            i += 1
        else:
            j += 1
    return ir.CharSet(tuple(out))


def with_width(regex: ir.Regex, low: int, high: int | None) -> ir.Regex:
    """The part of ``regex`` whose length is at least ``low`` and at most ``high``."""
    if high == 0 and is_nullable(regex):
        return ir.EPSILON
    if isinstance(regex, ir.Repeat) and isinstance(regex.body, ir.CharSet):
        least = max(low, regex.min)
        bounds = [bound for bound in (high, regex.max) if bound is not None]
        most = min(bounds, default=None)
        if most is not None and most < least:
            return ir.NOTHING
        return repeat(regex.body, least, most)
    return intersect([regex, ir.Repeat(ir.ANY_CHAR, low, high)])


def finite_texts(regex: ir.Regex, limit: int) -> list[tuple[ir.CharSet, ...]] | None:
    """``regex`` as at most ``limit`` sequences of character sets, or None when it is not that."""
    if isinstance(regex, ir.CharSet):
        return [(regex,)]
    if isinstance(regex, ir.Alternate):
        found: list[tuple[ir.CharSet, ...]] = []
        for part in regex.parts:
            texts = finite_texts(part, limit)
            if texts is None:
                return None
            found += texts
        return found if len(found) <= limit else None
    if isinstance(regex, ir.Concat):
        found = [()]
        for part in regex.parts:
            texts = finite_texts(part, limit)
            if texts is None or len(found) * len(texts) > limit:
                return None
            found = [head + tail for head in found for tail in texts]
        return found
    if isinstance(regex, ir.Repeat) and regex.max is not None and regex.max <= limit:
        found = []
        for count in range(regex.min, regex.max + 1):
            texts = finite_texts(concat([regex.body] * count), limit)
            if texts is None or len(found) + len(texts) > limit:
                return None
            found += texts
        return found
    return None
