"""Call a model without a `structgen.Generator`: ``model(prompt, output_type)``.

`Asked` is for sync models, `AskedAsync` for async ones. Options of a type are separated from those
of a call, and a model's generators are cached, so that a type is compiled once. The static types of
these calls are here, too. The model makes the generators.
"""

from __future__ import annotations

import functools
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, overload

from structgen.decoding import (
    AskOptions,
    AsyncStream,
    AsyncValueStream,
    Prompt,
    Stream,
    TypeOptions,
    ValueStream,
    check_by_name,
)
from structgen.decoding import options as search_options
from structgen.errors import OptionError
from structgen.options import OPTIONS
from structgen.storage import fork_safe
from structgen.types import AnyT, Call, Choices, Functions, ItemT, Others, Own, T, TextT, cache_key

if TYPE_CHECKING:
    from typing_extensions import TypeForm, Unpack

MAX_KEPT = 8
"""Most generators that a model keeps for these calls: a compiled type may take 64 MB."""


class KeptGenerators:
    """The generators of the last output types that a model was asked for. Thread-safe."""

    def __init__(self) -> None:
        self._lock = fork_safe(threading.Lock())
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()

    def get(self, make: Callable[..., Any], output_type: Any, options: Mapping[str, Any]) -> Any:
        """Return the generator of ``output_type``; compile it if it is not one of the last."""
        type_key = cache_key(output_type)
        try:
            # By their types, too: an invalid option, such as draft=1, may equal a valid one.
            given = [(name, type(options[name]), options[name]) for name in sorted(options)]
            key = None if type_key is None else (type_key, *given)
            hash(key)
        except TypeError:  # such options have the contents of documents
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


class _Asks(ABC):
    """The base of both kinds of model: the generators of the output types they were asked for."""

    @functools.cached_property
    def _generators(self) -> KeptGenerators:
        return KeptGenerators()

    @abstractmethod
    def _make(self, output_type: Any, **options: Any) -> Any:
        """Make a generator to keep; one of an async model must not refer to the model."""

    def _mine(self, generator: Any) -> Any:
        """Return a kept generator as one that refers to the model."""
        return generator

    def _asked(
        self,
        way: str,
        prompt: Any,
        output_type: Any,
        more: tuple[Any, ...],
        options: dict[str, Any],
    ) -> Any:
        """Return the result of a method of the generator for ``output_type``."""
        check_by_name(more)
        call = {name: value for name, value in options.items() if name in OPTIONS}
        compiled = {name: value for name, value in options.items() if name not in call}
        for name in compiled:
            if name not in TypeOptions.__optional_keys__:
                raise OptionError(search_options.unknown(name))
        generator = self._mine(self._generators.get(self._make, output_type, compiled))
        return getattr(generator, way)(prompt, **call)


class Asked(_Asks):
    """The calls of `structgen.TextModel` and `structgen.RemoteModel`."""

    @overload
    def __call__(
        self, prompt: Prompt, output_type: Own[TextT] | None = None, **options: Unpack[AskOptions]
    ) -> TextT: ...

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, prompt: Prompt, output_type: TypeForm[T], **options: Unpack[AskOptions]
    ) -> T: ...

    @overload
    def __call__(
        self, prompt: Prompt, output_type: Choices[ItemT], **options: Unpack[AskOptions]
    ) -> ItemT: ...

    @overload
    def __call__(
        self, prompt: Prompt, output_type: Functions, **options: Unpack[AskOptions]
    ) -> Call: ...

    def __call__(self, prompt: Any, output_type: Any = None, *more: Any, **options: Any) -> Any:
        """Return the output for ``prompt`` as a value of ``output_type``; a str without one.

        The same as ``Generator(model, output_type).parse(prompt)``. The last 8 output types stay
        compiled, so that asking again costs no compiling.

        Args:
            prompt: text, given to the model as it is; or a list of chat messages. For several
                prompts make a `Generator`.
            output_type: what the output will be, as for `Generator`.
            options: those of `structgen.compile`, and those of a generator's calls.

        Raises the same errors as `Generator` and its calls.
        """
        return self._asked("parse", prompt, output_type, more, options)

    @overload
    def stream(
        self, prompt: Prompt, output_type: Others[AnyT] = None, **options: Unpack[AskOptions]
    ) -> Stream[AnyT]: ...

    @overload
    def stream(
        self, prompt: Prompt, output_type: TypeForm[T], **options: Unpack[AskOptions]
    ) -> Stream[T]: ...

    def stream(self, prompt: Any, output_type: Any = None, *more: Any, **options: Any) -> Any:
        """Return the output for ``prompt`` piece by piece, as text, while it is generated.

        The same as ``Generator(model, output_type).stream(prompt)``; ``stream.result.value`` is
        the value once it has been read. Args and raises as for calling the model.
        """
        return self._asked("stream", prompt, output_type, more, options)

    @overload
    def stream_values(
        self, prompt: Prompt, output_type: Others[AnyT] = None, **options: Unpack[AskOptions]
    ) -> ValueStream[AnyT]: ...

    @overload
    def stream_values(
        self, prompt: Prompt, output_type: TypeForm[T], **options: Unpack[AskOptions]
    ) -> ValueStream[T]: ...

    def stream_values(
        self, prompt: Any, output_type: Any = None, *more: Any, **options: Any
    ) -> Any:
        """Yield the value for ``prompt`` while the model writes it, as far as it is complete.

        The same as ``Generator(model, output_type).stream_values(prompt)``: each is a
        `structgen.Partial`, the last one has the whole value. Args and raises as for calling the
        model.
        """
        return self._asked("stream_values", prompt, output_type, more, options)


class AskedAsync(_Asks):
    """The calls of `structgen.AsyncModel` and `structgen.AsyncRemoteModel`."""

    @overload
    async def __call__(
        self, prompt: Prompt, output_type: Own[TextT] | None = None, **options: Unpack[AskOptions]
    ) -> TextT: ...

    @overload
    async def __call__(  # type: ignore[overload-overlap]
        self, prompt: Prompt, output_type: TypeForm[T], **options: Unpack[AskOptions]
    ) -> T: ...

    @overload
    async def __call__(
        self, prompt: Prompt, output_type: Choices[ItemT], **options: Unpack[AskOptions]
    ) -> ItemT: ...

    @overload
    async def __call__(
        self, prompt: Prompt, output_type: Functions, **options: Unpack[AskOptions]
    ) -> Call: ...

    async def __call__(
        self, prompt: Any, output_type: Any = None, *more: Any, **options: Any
    ) -> Any:
        """Return the output for ``prompt`` as a value of ``output_type``; a str without one.

        The same as ``await Generator(model, output_type).parse(prompt)``. The last 8 output types
        stay compiled; the first call compiles one in the loop, so make a `Generator` of a large
        one.

        Args:
            prompt: text, given to the model as it is; or a list of chat messages. For several
                prompts make a `Generator`.
            output_type: what the output will be, as for `Generator`.
            options: those of `structgen.compile`, and those of a generator's calls.

        Raises the same errors as `Generator` and its calls.
        """
        return await self._asked("parse", prompt, output_type, more, options)

    @overload
    def stream(
        self, prompt: Prompt, output_type: Others[AnyT] = None, **options: Unpack[AskOptions]
    ) -> AsyncStream[AnyT]: ...

    @overload
    def stream(
        self, prompt: Prompt, output_type: TypeForm[T], **options: Unpack[AskOptions]
    ) -> AsyncStream[T]: ...

    def stream(self, prompt: Any, output_type: Any = None, *more: Any, **options: Any) -> Any:
        """Return the output for ``prompt`` piece by piece, as text, while it is generated.

        The same as ``Generator(model, output_type).stream(prompt)``. Args and raises as for calling
        the model.
        """
        return self._asked("stream", prompt, output_type, more, options)

    @overload
    def stream_values(
        self, prompt: Prompt, output_type: Others[AnyT] = None, **options: Unpack[AskOptions]
    ) -> AsyncValueStream[AnyT]: ...

    @overload
    def stream_values(
        self, prompt: Prompt, output_type: TypeForm[T], **options: Unpack[AskOptions]
    ) -> AsyncValueStream[T]: ...

    def stream_values(
        self, prompt: Any, output_type: Any = None, *more: Any, **options: Any
    ) -> Any:
        """Yield the value for ``prompt`` while the model writes it, as far as it is complete.

        The same as ``Generator(model, output_type).stream_values(prompt)``. Args and raises as for
        calling the model.
        """
        return self._asked("stream_values", prompt, output_type, more, options)
