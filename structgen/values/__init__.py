"""Values while they are written: the settled parts of a growing output.

In reading order: `shapes` (the type of each part), `document` (the growing tree), `partial` (the
user's view of it, and of other texts) and `checks` (checks of values when they close). Knows no
models, tokens or masks. `structgen.insight.JsonReader` reads text that a mask has allowed; nothing
is repaired or guessed.
"""

from __future__ import annotations

from .checks import WAITING, Checks, Judging, Key, Reading, Refusal, Waiting, checks_of
from .partial import GrowingValue, Partial
