"""The calls that make outputs: their signatures, for one prompt and for several.

This module declares, for type checkers, the return types of `structgen.Generator` and
`AsyncTypedGenerator`. ``Generator(model, output_type)`` makes the latter for an asynchronous model,
which is an `AsyncMaker`. It also converts outputs to return values. Subclasses decide how and where
outputs are made.
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
"""Converts a result to the return value of a call."""


class Calls(ABC, Generic[T_co]):
    """Makes outputs whose values have type ``T_co``.

    A call with one prompt returns one output; a call with a list of prompts returns a list. With
    ``n=``, each output is replaced by a list of that many. With ``return_errors=True``, the list
    may contain errors. With either of these, a type checker sees ``list[Any]``.
    """

    __slots__ = ()

    @abstractmethod
    def _outputs(
        self, prompt: Any, options: Mapping[str, Any], convert: Callable[[Output], Any]
    ) -> Any:
        """Make one output or several, and return each after ``convert``."""

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
            prompt: text, passed to the model unchanged; or a list of chat messages with ``role``
                and ``content``, which go through the model's chat template. Or a list of such
                prompts: strings, or lists of messages. An empty list returns ``[]``.
            options: search options, see `structgen.decoding.options.SearchOptions`. With an output
                type, the output completes within ``max_new_tokens``. Without ``max_new_tokens``,
                the context is the only limit: small models often do not stop by themselves, and
                8,000 tokens take minutes, so pass it, or bound lists and strings in the type. With
                ``n=``, each output is replaced by a list of that many.

        Raises:
            PromptError: empty, malformed, or longer than the context.
            OptionError: an unknown option or a bad value.
            BudgetTooSmall: fewer tokens left than any output of this type needs.
            IncompleteOutput: a stop string, ``timeout`` or ``cancel`` cut the output before it was
                complete; the error has the text.
            Abstained: the model is too unsure of a value for ``abstain_below``, or the call ended
                before that was known.
            ValidationFailed: with ``retries``: validators still refused a value after that many
                retries.
            BatchError: some of several outputs failed; the error has the others. An `OptionError`
                or `BudgetTooSmall` that is the same for all of them is raised directly.
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

        Without an output type, this is the text.

        Args and raises as for calling the generator, and also:
            ParseError: the text fits the type's grammar, but code of the type (such as a Pydantic
                validator) rejects it.
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
        """Return the outputs for several prompts as values of the output type, in order.

        Like `parse` for a list, but raises for a single prompt of any form.

        Args:
            prompts: a list of prompts, of any length: strings, or lists of chat messages.
            options: as for calling the generator.

        Raises:
            PromptError: ``prompts`` is one prompt.

        Also raises what calling the generator raises.

        Cost: several outputs share passes of the model if that is faster.
        """
        check_by_name(more)
        check_several(prompts)
        return self._outputs(prompts, options, _value_of)


class AsyncTypedGenerator(ABC, Generic[T_co]):
    """Produces outputs of one type from prompts, without blocking the event loop.

    ``Generator(model, output_type)`` returns this for an asynchronous model. A call with one prompt
    returns one output; a call with a list of prompts returns a list. With ``n=``, each output is
    replaced by a list of that many. With ``return_errors=True``, the list may contain errors. With
    either of these, type checkers see ``list[Any]``.
    """

    @abstractmethod
    async def _outputs(
        self, prompt: Any, options: Mapping[str, Any], take: Take, *, is_sure: bool
    ) -> Any:
        """Make one output or several, and return each result after ``take``.

        Args:
            prompt: one prompt, or several.
            options: the options of the call.
            take: converts a result; its errors are errors of that output.
            is_sure: whether a value below ``abstain_below`` is an error.
        """

    @abstractmethod
    def stream(self, prompt: Prompt, **options: Unpack[CallOptions]) -> AsyncStream[T_co]:
        """Stream the output for ``prompt``, piece by piece."""

    @abstractmethod
    def stream_values(
        self, prompt: Prompt, **options: Unpack[CallOptions]
    ) -> AsyncValueStream[T_co]:
        """Yield the growing value for ``prompt`` while the model writes it."""

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
            prompt: one prompt, or a list of them, as for a `Generator`.
            options: as for a `Generator`. ``cancel`` may also be an `asyncio.Event`. With ``n=``,
                each output is replaced by a list of that many. Options that a remote model does not
                support raise an error.

        Raises:
            As for a `Generator`; and WorkerDied, RemoteError: the process or server of the model
        failed.

        Cancelling the waiting task stops the outputs.
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
        """Return the outputs for several prompts as values of the output type, in order.

        Like `parse` for a list, but raises for a single prompt of any form. Args and raises as for
        calling the generator.
        """
        check_by_name(more)
        check_several(prompts)
        return await self._outputs(prompts, options, _value, is_sure=True)


def _sure(run: Output) -> GenerationResult[Any]:
    """Return the result. Raises `Abstained` if the model is not sure enough of it."""
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
