"""Models that make generators of their own kind: what `structgen.Generator` knows of them.

A model that does not run here, or not in this thread, has a method ``make_generator(output_type,
**options)``; ``Generator(model, output_type)`` returns what that returns. Owns the faces by which
type checkers tell such models apart. Knows none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from .async_calls import AsyncTypedGenerator


class AsyncMaker(Protocol):
    """An asynchronous model: it makes an `AsyncTypedGenerator`."""

    @property
    def make_generator(self) -> Callable[..., AsyncTypedGenerator[Any]]:
        """Called with an output type and the options of `structgen.Generator`."""
