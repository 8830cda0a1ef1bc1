"""The few generators that a model keeps for its short forms, so that a type is compiled once.

Owns which are kept: those asked for last. Knows nothing of prompts or outputs.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Any

from structgen.generator import Generator
from structgen.models.base import Model
from structgen.types import cache_key

MAX_KEPT = 8
"""Most generators that a model keeps for its short forms: a compiled type may take 64 MB."""


class KeptGenerators:
    """The generators of the output types that a model was asked for last. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, Generator[Any]] = OrderedDict()

    def get(self, model: Model, output_type: Any, options: Mapping[str, Any]) -> Generator[Any]:
        """The generator of ``output_type``, compiled now unless it was among the last.

        Args:
            model: the model they belong to.
            output_type: as for `Generator`.
            options: as for `Generator`.
        """
        type_key = cache_key(output_type)
        try:
            key = None if type_key is None else (type_key, tuple(sorted(options.items())))
            hash(key)
        except TypeError:  # such options say what documents hold
            key = None
        if key is None:
            return Generator(model, output_type, **options)
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found
        made: Generator[Any] = Generator(model, output_type, **options)
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return made
