"""Values while they are written: what of a growing output is settled, and what it is.

In reading order: `reader` (JSON byte by byte: what has opened, grown, closed), `shapes` (what a
type says of each part), `document` (the tree that grows), `parts` (text in parts), `partial`
(what users see of it) and `growing` (text in, partial values out). Knows no models, tokens or
masks: text that a mask let through comes in, and nothing of it is repaired or guessed.
"""

from __future__ import annotations

from .growing import GrowingValue, shapes_of
from .partial import Partial
from .reader import Closed, Event, Grown, JsonReader, Opened, Path, Unescaper
from .shapes import Shapes

__all__ = [
    "Closed",
    "Event",
    "GrowingValue",
    "Grown",
    "JsonReader",
    "Opened",
    "Partial",
    "Path",
    "Shapes",
    "Unescaper",
    "shapes_of",
]
