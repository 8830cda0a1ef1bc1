"""What can be read off an IR regex without running it: widths.

Pure functions over `ir` nodes, all conservative in a stated direction. They know no source syntax.
"""

from __future__ import annotations

from structgen.grammar import ir


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
