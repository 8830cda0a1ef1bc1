"""A model that can be asked without a `structgen.Generator`: what `structgen.load` returns.

In reading order: `kept` (the generators that a model keeps for it), `model` (`TextModel`) and
`one_call` (`generate`, the same with the default model). It knows how types and options are told
apart; making outputs is `structgen.generator`'s.
"""

from __future__ import annotations

from .kept import MAX_KEPT, KeptGenerators
from .model import TextModel
from .one_call import generate

__all__ = ["MAX_KEPT", "KeptGenerators", "TextModel", "generate"]
