"""Models that make generators of their own kind: what `structgen.Generator` knows of them.

A model that does not run here, or not in this thread, has a method ``make_generator(output_type,
**options)``; ``Generator(model, output_type)`` returns what that returns. Owns the faces by which
type checkers tell such models apart, and `AsyncGenerator`, what the asynchronous ones make. Knows
none of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol

from structgen.types import T_co

from .async_streams import AsyncStream, AsyncValueStream
from .chat import Prompt, Prompts
from .options import CallOptions
from .results import GenerationResult

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AsyncGenerator(ABC, Generic[T_co]):
    """Produces outputs of one type from prompts, without blocking the event loop.

    What ``Generator(model, output_type)`` is for an asynchronous model.
    """

    @abstractmethod
    async def __call__(self, prompt: Prompt, **options: Unpack[CallOptions]) -> str:
        """The output for ``prompt``, as text."""

    @abstractmethod
    async def parse(self, prompt: Prompt, **options: Unpack[CallOptions]) -> T_co:
        """The output for ``prompt``, as a value of the output type."""

    @abstractmethod
    async def result(
        self, prompt: Prompt, **options: Unpack[CallOptions]
    ) -> GenerationResult[T_co]:
        """The output for ``prompt`` and all there is to say of it."""

    @abstractmethod
    async def batch(self, prompts: Prompts, **options: Unpack[CallOptions]) -> list[T_co]:
        """The outputs for several prompts, as values of the output type, in their order."""

    @abstractmethod
    def stream(self, prompt: Prompt, **options: Unpack[CallOptions]) -> AsyncStream[T_co]:
        """The output for ``prompt``, piece by piece."""

    @abstractmethod
    def stream_values(
        self, prompt: Prompt, **options: Unpack[CallOptions]
    ) -> AsyncValueStream[T_co]:
        """The value for ``prompt`` again and again while it is written, as far as it is."""


class AsyncMaker(Protocol):
    """An asynchronous model: it makes an `AsyncGenerator`."""

    @property
    def make_generator(self) -> Callable[..., AsyncGenerator[Any]]:
        """Called with an output type and the options of `structgen.Generator`."""
