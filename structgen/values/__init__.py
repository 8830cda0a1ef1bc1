"""Values while they are written: what of a growing output is settled, and what it is.

In reading order: `shapes` (what a type says of each part), `document` (the tree that grows),
`partial` (what users see of it, and of other texts), `checks` (which values can be judged as they
close, and what code says of them). Knows no models, tokens or masks: text that a mask let through
comes in (`structgen.insight.JsonReader` reads it), and nothing of it is repaired or guessed.
"""

from __future__ import annotations

from .checks import WAITING, Checks, Judging, Key, Reading, Refusal, Waiting, checks_of
from .partial import GrowingValue, Partial, shapes_of
from .shapes import Shapes

__all__ = [
    "WAITING",
    "Checks",
    "GrowingValue",
    "Judging",
    "Key",
    "Partial",
    "Reading",
    "Refusal",
    "Shapes",
    "Waiting",
    "checks_of",
    "shapes_of",
]
