"""Asked: a model that is asked directly, ``model(prompt, output_type)``, without a Generator.

Owns these short forms: how the options of a type and of a call are told apart, and their static
types. Which generators are kept is `kept`'s business, how they are made the model's.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, overload

from structgen.decoding import AskOptions, Prompt, Stream, ValueStream, check_by_name
from structgen.types import AnyT, Call, Choices, Functions, ItemT, Others, Own, T, TextT

from .kept import KeptGenerators, divided

if TYPE_CHECKING:
    from typing_extensions import TypeForm, Unpack


class Asked(ABC):
    """What `structgen.TextModel` and `structgen.RemoteModel` have beside all else."""

    @functools.cached_property
    def _generators(self) -> KeptGenerators:
        return KeptGenerators()

    @abstractmethod
    def _make(self, output_type: Any, **options: Any) -> Any:
        """A `structgen.Generator` of this model."""

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

        Raises:
            As `Generator` and its calls.
        """
        check_by_name(more)
        generator, call = self._generator(output_type, options)
        return generator.parse(prompt, **call)

    @overload
    def stream(
        self, prompt: Prompt, output_type: TypeForm[T], **options: Unpack[AskOptions]
    ) -> Stream[T]: ...

    @overload
    def stream(
        self, prompt: Prompt, output_type: Others[AnyT] = None, **options: Unpack[AskOptions]
    ) -> Stream[AnyT]: ...

    def stream(self, prompt: Any, output_type: Any = None, *more: Any, **options: Any) -> Any:
        """Return the output for ``prompt`` piece by piece, as text, while it is generated.

        The same as ``Generator(model, output_type).stream(prompt)``; ``stream.result.value`` is
        the value once it has been read. Args and raises as for calling the model.
        """
        check_by_name(more)
        generator, call = self._generator(output_type, options)
        return generator.stream(prompt, **call)

    @overload
    def stream_values(
        self, prompt: Prompt, output_type: TypeForm[T], **options: Unpack[AskOptions]
    ) -> ValueStream[T]: ...

    @overload
    def stream_values(
        self, prompt: Prompt, output_type: Others[AnyT] = None, **options: Unpack[AskOptions]
    ) -> ValueStream[AnyT]: ...

    def stream_values(
        self, prompt: Any, output_type: Any = None, *more: Any, **options: Any
    ) -> Any:
        """Return the value for ``prompt`` again and again while it is written, as far as it is.

        The same as ``Generator(model, output_type).stream_values(prompt)``: each is a
        `structgen.Partial`, the last one has the whole value. Args and raises as for calling the
        model.
        """
        check_by_name(more)
        generator, call = self._generator(output_type, options)
        return generator.stream_values(prompt, **call)

    def _generator(
        self, output_type: Any, options: Mapping[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """The generator for ``output_type``, and the options of its call."""
        compiled, call = divided(options)
        return self._generators.get(self._make, output_type, compiled), call
