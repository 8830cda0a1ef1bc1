"""Values while they are written: what of a growing output is settled, and what it is.

In reading order: `reader` (JSON byte by byte: what has opened, grown, closed), `shapes` (what a
type says of each part), `document` (the tree that grows), `parts` (text in parts), `partial` (what
users see of it), `growing` (text in, partial values out) `judgeable` (which values can be judged
alone) and `checks` (what code says of values as they close). Knows no models, tokens or masks: text
that a mask let through comes in, and nothing of it is repaired or guessed.
"""

from __future__ import annotations

from .checks import WAITING, Checks, Judging, Key, Reading, Refusal, Waiting, checks_of
from .growing import GrowingValue, shapes_of
from .partial import Partial
from .reader import Closed, Event, Grown, JsonReader, Opened, Path, Unescaper
from .shapes import Shapes

__all__ = [
    "WAITING",
    "Checks",
    "Closed",
    "Event",
    "GrowingValue",
    "Grown",
    "JsonReader",
    "Judging",
    "Key",
    "Opened",
    "Partial",
    "Path",
    "Reading",
    "Refusal",
    "Shapes",
    "Unescaper",
    "Waiting",
    "checks_of",
    "shapes_of",
]
