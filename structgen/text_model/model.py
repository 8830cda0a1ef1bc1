"""TextModel: a model that is asked directly, ``model(prompt, output_type)``, without a Generator.

It owns these short forms. All else is `structgen.generator`'s and `structgen.models`'.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, final, overload

from structgen.decoding import AskOptions, Prompt, Stream, TypeOptions, ValueStream
from structgen.decoding import options as search_options
from structgen.errors import OptionError
from structgen.generator import Generator
from structgen.models import genai
from structgen.types import Call, Choices, Functions, ItemT, Own, PlainText, Schemas, T
from structgen.workers import AsyncModel

from .kept import KeptGenerators

if TYPE_CHECKING:
    from typing_extensions import TypeForm, Unpack


@final
class TextModel(genai.TextModel):
    """A text model, its tokenizer and its vocabulary. Safe to share by threads.

    Make one with `structgen.load` or `structgen.from_onnx_genai`. Ask it for values directly, or
    make a `structgen.Generator` of it and an output type.
    """

    @functools.cached_property
    def _generators(self) -> KeptGenerators:
        return KeptGenerators()

    @overload
    def __call__(
        self, prompt: Prompt, output_type: PlainText = None, **options: Unpack[AskOptions]
    ) -> str: ...

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, prompt: Prompt, output_type: TypeForm[T], **options: Unpack[AskOptions]
    ) -> T: ...

    @overload
    def __call__(self, prompt: Prompt, output_type: Own[T], **options: Unpack[AskOptions]) -> T: ...

    @overload
    def __call__(
        self, prompt: Prompt, output_type: Choices[ItemT], **options: Unpack[AskOptions]
    ) -> ItemT: ...

    @overload
    def __call__(
        self, prompt: Prompt, output_type: Functions, **options: Unpack[AskOptions]
    ) -> Call: ...

    @overload
    def __call__(
        self, prompt: Prompt, output_type: Schemas, **options: Unpack[AskOptions]
    ) -> Any: ...

    def __call__(self, prompt: Any, output_type: Any = None, **options: Any) -> Any:
        """Return the output for ``prompt`` as a value of ``output_type``; a str without one.

        The same as ``Generator(model, output_type).parse(prompt)``. The last 8 output types stay
        compiled, so that asking again costs no compiling.

        Args:
            prompt: text, given to the model as it is; or a list of chat messages. For several
                prompts make a `Generator`.
            output_type: what the output will be, as for `Generator`.
            options: those of `structgen.compile`, and those of a generator's calls.

        Raises:
            As `Generator` and its calls.
        """
        generator, call = self._generator(output_type, options)
        return generator.parse(prompt, **call)

    def to_async(self, *, batch_size: int | None = None) -> AsyncModel:
        """The same model for asynchronous code, which runs in a process of its own.

        The process is started by the first call, and loads the model once more: this one is free to
        be used or dropped. See `structgen.load_async`.

        Args:
            batch_size: as for `structgen.load_async`.

        Raises:
            ModelError: the model was handed in as objects, which do not travel.
        """
        return AsyncModel.like(self, batch_size)

    @overload
    def stream(
        self, prompt: Prompt, output_type: PlainText = None, **options: Unpack[AskOptions]
    ) -> Stream[str]: ...

    @overload
    def stream(  # type: ignore[overload-overlap]
        self, prompt: Prompt, output_type: TypeForm[T], **options: Unpack[AskOptions]
    ) -> Stream[T]: ...

    @overload
    def stream(
        self, prompt: Prompt, output_type: Own[T], **options: Unpack[AskOptions]
    ) -> Stream[T]: ...

    @overload
    def stream(
        self, prompt: Prompt, output_type: Choices[ItemT], **options: Unpack[AskOptions]
    ) -> Stream[ItemT]: ...

    @overload
    def stream(
        self, prompt: Prompt, output_type: Functions, **options: Unpack[AskOptions]
    ) -> Stream[Call]: ...

    @overload
    def stream(
        self, prompt: Prompt, output_type: Schemas, **options: Unpack[AskOptions]
    ) -> Stream[Any]: ...

    def stream(self, prompt: Any, output_type: Any = None, **options: Any) -> Any:
        """Return the output for ``prompt`` piece by piece, as text, while it is generated.

        The same as ``Generator(model, output_type).stream(prompt)``; ``stream.result.value`` is
        the value once it has been read. Args and raises as for calling the model.
        """
        generator, call = self._generator(output_type, options)
        return generator.stream(prompt, **call)

    @overload
    def stream_values(
        self, prompt: Prompt, output_type: PlainText = None, **options: Unpack[AskOptions]
    ) -> ValueStream[str]: ...

    @overload
    def stream_values(  # type: ignore[overload-overlap]
        self, prompt: Prompt, output_type: TypeForm[T], **options: Unpack[AskOptions]
    ) -> ValueStream[T]: ...

    @overload
    def stream_values(
        self, prompt: Prompt, output_type: Own[T], **options: Unpack[AskOptions]
    ) -> ValueStream[T]: ...

    @overload
    def stream_values(
        self, prompt: Prompt, output_type: Choices[ItemT], **options: Unpack[AskOptions]
    ) -> ValueStream[ItemT]: ...

    @overload
    def stream_values(
        self, prompt: Prompt, output_type: Functions, **options: Unpack[AskOptions]
    ) -> ValueStream[Call]: ...

    @overload
    def stream_values(
        self, prompt: Prompt, output_type: Schemas, **options: Unpack[AskOptions]
    ) -> ValueStream[Any]: ...

    def stream_values(self, prompt: Any, output_type: Any = None, **options: Any) -> Any:
        """Return the value for ``prompt`` again and again while it is written, as far as it is.

        The same as ``Generator(model, output_type).stream_values(prompt)``: each is a
        `structgen.Partial`, the last one has the whole value. Args and raises as for calling the
        model.
        """
        generator, call = self._generator(output_type, options)
        return generator.stream_values(prompt, **call)

    def _generator(
        self, output_type: Any, options: Mapping[str, Any]
    ) -> tuple[Generator[Any], dict[str, Any]]:
        """The generator for ``output_type``, and the options of its call."""
        call = {name: value for name, value in options.items() if name in search_options.NAMES}
        compiled = {name: value for name, value in options.items() if name not in call}
        for name in compiled:
            if name not in TypeOptions.__optional_keys__:
                raise OptionError(search_options.unknown(name))
        return self._generators.get(self, output_type, compiled), call
