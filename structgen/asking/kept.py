"""The few generators that a model keeps for its short forms, so that a type is compiled once.

Owns which are kept: those asked for last; and which options are theirs. Knows nothing of prompts or
outputs.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from structgen.decoding import TypeOptions
from structgen.decoding import options as search_options
from structgen.errors import OptionError
from structgen.storage import fork_safe
from structgen.types import cache_key

MAX_KEPT = 8
"""Most generators that a model keeps for its short forms: a compiled type may take 64 MB."""


class KeptGenerators:
    """The generators of the output types that a model was asked for last. Thread-safe."""

    def __init__(self) -> None:
        self._lock = fork_safe(threading.Lock())
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()

    def get(self, make: Callable[..., Any], output_type: Any, options: Mapping[str, Any]) -> Any:
        """The generator of ``output_type``, compiled now unless it was among the last.

        Args:
            make: makes one, of an output type and options.
            output_type: as for `Generator`.
            options: as for `Generator`.
        """
        type_key = cache_key(output_type)
        try:
            # By their types, too: what is no option, such as draft=1, may equal one that is.
            given = [(name, type(options[name]), options[name]) for name in sorted(options)]
            key = None if type_key is None else (type_key, *given)
            hash(key)
        except TypeError:  # such options say what documents hold
            key = None
        if key is None:
            return make(output_type, **options)
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found
        made = make(output_type, **options)
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return made


def divided(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of a generator, and those of its call.

    Raises:
        OptionError: one of them is neither.
    """
    call = {name: value for name, value in options.items() if name in search_options.NAMES}
    compiled = {name: value for name, value in options.items() if name not in call}
    for name in compiled:
        if name not in TypeOptions.__optional_keys__:
            raise OptionError(search_options.unknown(name))
    return compiled, call
