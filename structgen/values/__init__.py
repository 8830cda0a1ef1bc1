"""Values while they are written: which part of a growing output is settled.

In reading order: `shapes` (what a type says about each part), `document` (the growing tree),
`partial` (what users see of it, and of other texts) and `checks` (which values can be checked as
they close). Knows no models, tokens or masks. `structgen.insight.JsonReader` reads text that a mask
has let through; nothing is repaired or guessed.
"""

from __future__ import annotations

from .checks import WAITING, Checks, Judging, Key, Reading, Refusal, Waiting, checks_of
from .partial import GrowingValue, Partial

__all__ = [
    "WAITING",
    "Checks",
    "GrowingValue",
    "Judging",
    "Key",
    "Partial",
    "Reading",
    "Refusal",
    "Waiting",
    "checks_of",
]
