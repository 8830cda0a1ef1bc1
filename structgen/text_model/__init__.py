"""A model that runs here and can be asked without a `structgen.Generator`.

In reading order: `model` (`TextModel`, what `structgen.load` returns) and `one_call` (`generate`,
the same with the default model). How it is asked is `structgen.asking`'s.
"""

from __future__ import annotations

from .model import TextModel
from .one_call import generate

__all__ = ["TextModel", "generate"]
