"""Models that are asked without a `structgen.Generator`: ``model(prompt, output_type)``.

In reading order: `kept` (the generators that a model keeps for it), `asked` (what synchronous
models inherit) and `asked_async` (what asynchronous ones do). It knows how types and options are
told apart; making outputs is the generators'.
"""

from __future__ import annotations

from .asked import Asked
from .asked_async import AskedAsync
from .kept import MAX_KEPT, KeptGenerators

__all__ = ["MAX_KEPT", "Asked", "AskedAsync", "KeptGenerators"]
