"""The calls that make outputs: their signatures, for one prompt and for several.

This module declares, for type checkers, what `structgen.Generator` and `AsyncTypedGenerator`
return. The latter is what ``Generator(model, output_type)`` is for an asynchronous model;
`AsyncMaker` is what asynchronous models are. It also converts outputs to return values. Subclasses
decide how and where outputs are made.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, overload

from structgen.options import CallOptions, ManyOptions
from structgen.types import T_co

from .chat import Prompt, Prompts, check_several
from .options import check_by_name
from .results import GenerationResult, Output
from .stream import AsyncStream, AsyncValueStream

if TYPE_CHECKING:
    from typing_extensions import Unpack

Take: TypeAlias = Callable[[GenerationResult[Any]], Any]
"""What a call returns of a result."""


class Calls(ABC, Generic[T_co]):
    """What makes outputs whose values are of type ``T_co``.

    Every call takes one prompt, and gives one output; or a list of prompts, and gives a list; with
    ``n=`` each gets a list of that many instead. With ``return_errors=True`` errors may
    be among them. With either of these a type checker knows no more than ``list[Any]``.
    """

    __slots__ = ()

    @abstractmethod
    def _outputs(
        self, prompt: Any, options: Mapping[str, Any], convert: Callable[[Output], Any]
    ) -> Any:
        """Make one output or several, and return what ``convert`` makes of each."""

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, prompt: Prompts, **options: Unpack[CallOptions]
    ) -> list[str]: ...

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, prompt: Prompt, **options: Unpack[CallOptions]
    ) -> str: ...

    @overload
    def __call__(self, prompt: Prompt | Prompts, **options: Unpack[ManyOptions]) -> list[Any]: ...

    def __call__(self, prompt: Any, *more: Any, **options: Any) -> Any:
        """Return the output for ``prompt``, a str; for several prompts a list of them.

        Args:
            prompt: text, given to the model as it is; or a list of chat messages with ``role`` and
                ``content``, which go through the model's chat template. Or a list of such prompts:
                of strings, or of lists of messages; an empty list has no prompts, and gives
                ``[]``.
            options: search options, see `structgen.decoding.options.SearchOptions`. With an output
                type the output completes within ``max_new_tokens``. Without it, the context is the
                only limit: small models often do not stop by themselves, and 8,000 tokens take
                minutes, so pass it, or bound lists and strings in the type. With ``n=`` a list of
                that many outputs takes the place of each.

        Raises:
            PromptError: empty, malformed, or longer than the context.
            OptionError: an unknown option or a bad value.
            BudgetTooSmall: fewer tokens left than any output of this type needs.
            IncompleteOutput: a stop string, ``timeout`` or ``cancel`` cut the output before it
                was whole; it carries the text.
            Abstained: the model is too unsure of a value for ``abstain_below``, or the call
                was over before that was known.
            ValidationFailed: with ``retries``: checks that only code can make refused a value
                after so many, too.
            BatchError: of several outputs, some failed; it has the others. An `OptionError` or
                `BudgetTooSmall` that is the same for all of them is raised as itself.
        """
        check_by_name(more)
        return self._outputs(prompt, options, lambda run: _sure(run).text)

    @overload
    def parse(self, prompt: Prompts, **options: Unpack[CallOptions]) -> list[T_co]: ...

    @overload
    def parse(  # type: ignore[overload-overlap]
        self, prompt: Prompt, **options: Unpack[CallOptions]
    ) -> T_co: ...

    @overload
    def parse(self, prompt: Prompt | Prompts, **options: Unpack[ManyOptions]) -> list[Any]: ...

    def parse(self, prompt: Any, *more: Any, **options: Any) -> Any:
        """Return the output for ``prompt`` as a value of the output type; or a list, as above.

        Without an output type it is the text itself.

        Args and raises as for calling the generator, and also:
            ParseError: the text fits the type's grammar, but not a check that only its class can
                make (a Pydantic validator, say).
        """
        check_by_name(more)
        return self._outputs(prompt, options, _value_of)

    @overload
    def result(  # type: ignore[overload-overlap]
        self, prompt: Prompts, **options: Unpack[CallOptions]
    ) -> list[GenerationResult[T_co]]: ...

    @overload
    def result(  # type: ignore[overload-overlap]
        self, prompt: Prompt, **options: Unpack[CallOptions]
    ) -> GenerationResult[T_co]: ...

    @overload
    def result(self, prompt: Prompt | Prompts, **options: Unpack[ManyOptions]) -> list[Any]: ...

    def result(self, prompt: Any, *more: Any, **options: Any) -> Any:
        """Return the `GenerationResult` for ``prompt``: tokens, counts, times; or a list, as above.

        Args and raises as for calling the generator, but never `Abstained`: `result.abstained`
        says it.
        """
        check_by_name(more)
        return self._outputs(prompt, options, lambda run: run.result)

    @overload
    def batch(self, prompts: Prompts, **options: Unpack[CallOptions]) -> list[T_co]: ...

    @overload
    def batch(self, prompts: Prompts, **options: Unpack[ManyOptions]) -> list[Any]: ...

    def batch(self, prompts: Any, *more: Any, **options: Any) -> Any:
        """Return the outputs for several prompts as values of the output type, in their order.

        What `parse` gives for a list; but one prompt is refused, however it is written.

        Args:
            prompts: a list of prompts, of any length: strings, or lists of chat messages.
            options: as for calling the generator.

        Raises:
            PromptError: ``prompts`` is one prompt.

        Also raises what calling the generator raises.

        Cost: several outputs share the passes of the model where that is faster.
        """
        check_by_name(more)
        check_several(prompts)
        return self._outputs(prompts, options, _value_of)


class AsyncTypedGenerator(ABC, Generic[T_co]):
    """Produces outputs of one type from prompts, without blocking the event loop.

    What ``Generator(model, output_type)`` is for an asynchronous model. Every call takes one
    prompt, and gives one output; or a list of prompts, and gives a list; with ``n=`` a list of that
    many takes the place of each. With ``return_errors=True`` errors may be among them. With
    either of these, type checkers see ``list[Any]``.
    """

    @abstractmethod
    async def _outputs(
        self, prompt: Any, options: Mapping[str, Any], take: Take, *, is_sure: bool
    ) -> Any:
        """Make one output or several, and return what ``take`` makes of each result.

        Args:
            prompt: one, or several.
            options: of the call.
            take: what becomes of a result; what fails there fails with its output.
            is_sure: whether a value less sure than ``abstain_below`` is an error.
        """

    @abstractmethod
    def stream(self, prompt: Prompt, **options: Unpack[CallOptions]) -> AsyncStream[T_co]:
        """Stream the output for ``prompt``, piece by piece."""

    @abstractmethod
    def stream_values(
        self, prompt: Prompt, **options: Unpack[CallOptions]
    ) -> AsyncValueStream[T_co]:
        """Yield the value for ``prompt`` while the model writes it, as far as it is complete."""

    @overload
    async def __call__(  # type: ignore[overload-overlap]
        self, prompt: Prompts, **options: Unpack[CallOptions]
    ) -> list[str]: ...

    @overload
    async def __call__(  # type: ignore[overload-overlap]
        self, prompt: Prompt, **options: Unpack[CallOptions]
    ) -> str: ...

    @overload
    async def __call__(
        self, prompt: Prompt | Prompts, **options: Unpack[ManyOptions]
    ) -> list[Any]: ...

    async def __call__(self, prompt: Any, *more: Any, **options: Any) -> Any:
        """Return the output for ``prompt``, a str; for several prompts a list of them.

        Args:
            prompt: one, or a list of them, as for a `Generator`.
            options: as for a `Generator`. ``cancel`` may be an `asyncio.Event`, too. With ``n=`` a
                list of that many outputs takes the place of each. Options that a
                remote model cannot honour raise an error.

        Raises:
            As for a `Generator`; and WorkerDied, RemoteError: what runs the model has failed.

        Cancelling the task that waits ends the outputs.
        """
        check_by_name(more)
        return await self._outputs(prompt, options, lambda result: result.text, is_sure=True)

    @overload
    async def parse(self, prompt: Prompts, **options: Unpack[CallOptions]) -> list[T_co]: ...

    @overload
    async def parse(  # type: ignore[overload-overlap]
        self, prompt: Prompt, **options: Unpack[CallOptions]
    ) -> T_co: ...

    @overload
    async def parse(
        self, prompt: Prompt | Prompts, **options: Unpack[ManyOptions]
    ) -> list[Any]: ...

    async def parse(self, prompt: Any, *more: Any, **options: Any) -> Any:
        """Return the output for ``prompt`` as a value of the output type; or a list, as above.

        Args and raises as for calling the generator, and also:
            ParseError: as for a `Generator`.
        """
        check_by_name(more)
        return await self._outputs(prompt, options, _value, is_sure=True)

    @overload
    async def result(  # type: ignore[overload-overlap]
        self, prompt: Prompts, **options: Unpack[CallOptions]
    ) -> list[GenerationResult[T_co]]: ...

    @overload
    async def result(  # type: ignore[overload-overlap]
        self, prompt: Prompt, **options: Unpack[CallOptions]
    ) -> GenerationResult[T_co]: ...

    @overload
    async def result(
        self, prompt: Prompt | Prompts, **options: Unpack[ManyOptions]
    ) -> list[Any]: ...

    async def result(self, prompt: Any, *more: Any, **options: Any) -> Any:
        """Return the `GenerationResult` for ``prompt``; or a list, as above.

        Args and raises as for calling the generator, but never `Abstained`: `result.abstained`
        says it.
        """
        check_by_name(more)
        return await self._outputs(prompt, options, lambda result: result, is_sure=False)

    @overload
    async def batch(self, prompts: Prompts, **options: Unpack[CallOptions]) -> list[T_co]: ...

    @overload
    async def batch(self, prompts: Prompts, **options: Unpack[ManyOptions]) -> list[Any]: ...

    async def batch(self, prompts: Any, *more: Any, **options: Any) -> Any:
        """Return the outputs for several prompts as values of the output type, in their order.

        What `parse` gives for a list; but one prompt is refused, however it is written. Args and
        raises as for calling the generator.
        """
        check_by_name(more)
        check_several(prompts)
        return await self._outputs(prompts, options, _value, is_sure=True)


def _sure(run: Output) -> GenerationResult[Any]:
    """Return the result. Raises Abstained: the model is not sure enough of it."""
    result = run.result
    result.check_sure(lambda: run.is_interrupted)
    return result


def _value_of(run: Output) -> Any:
    return _sure(run).value


def _value(result: GenerationResult[Any]) -> Any:
    return result.value


class AsyncMaker(Protocol):
    """An asynchronous model: it makes an `AsyncTypedGenerator`."""

    @property
    def make_generator(self) -> Callable[..., AsyncTypedGenerator[Any]]:
        """Called with an output type and the options of `structgen.Generator`."""
