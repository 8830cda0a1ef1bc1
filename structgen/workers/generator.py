"""WorkerGenerator: the `AsyncTypedGenerator` of a model in another process.

The parent compiles the output type, so that its errors are raised at once, checks options, and
parses texts with the user's own classes. The worker receives the grammar (once), prompts and search
options. Objects that cannot be sent raise an error that names them.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, final

from structgen.constraint import Constraint
from structgen.decoding import (
    AsyncStream,
    AsyncTypedGenerator,
    AsyncValueStream,
    Chunk,
    Draft,
    GenerationResult,
    Prompt,
    Several,
    Take,
    Think,
    TokenPrompt,
    chat,
    checks_for,
    checks_of_constraint,
    written_in,
)
from structgen.decoding import options as search_options
from structgen.errors import OptionError, OutputTypeError, StructgenError
from structgen.generator import compiled, hinted
from structgen.grammar import ir
from structgen.insight import ValueConfidence
from structgen.models.base import KnownModel
from structgen.options import OPTIONS, CallOptions
from structgen.types import DocumentMissing, T_co, ToolSyntax
from structgen.values import Checks

from .process import NUMBERS, Host, RunningCall, owner, raised
from .protocol import Call, Ended, LoweredType, form_weight

if TYPE_CHECKING:
    from typing_extensions import Never, Unpack


_AT_A_TIME = 32  # outputs of a batch that are begun, or parsed, before yielding to the event loop


@final
class WorkerGenerator(AsyncTypedGenerator[T_co]):
    """Produces outputs of one type from prompts, in the process of its model. Immutable.

    Times of a result count from when its call reached the process, including waiting for others.
    Its ``confidence`` only has the values that ``abstain_below`` needed: other values would run the
    model.

    Attributes:
        model: the model. Its process ends when nothing refers to the model any more.
        constraint: the compiled output type, or None.
    """

    def __init__(
        self,
        model: KnownModel,
        host: Host,
        syntax: ToolSyntax,
        output_type: Any,
        options: Mapping[str, Any],
        quote_from: Mapping[str, str] | None = None,
    ) -> None:
        """Compile an output type here, and prepare it for the process.

        ``quote_from`` are the documents that a call passes for it.

        Raises:
            As `structgen.Generator`.
        """
        given = dict(options)
        if given.pop("processor", None) is not None:
            raise OptionError(_elsewhere("processor"), option="processor")
        think, draft = given.pop("think", None), given.pop("draft", None)
        with_schema_hint = given.pop("with_schema_hint", None)
        if think is not None and not (type(think) is int and think == 0):
            think = think if isinstance(think, Think) else Think(think)
        if draft is not None and not isinstance(draft, (bool, Draft)):
            raise OptionError(f"draft={draft!r} must be a bool or a Draft.", option="draft")
        self.model = model
        self.constraint: Constraint[T_co] | None = None
        self._made_of = host, syntax, output_type, options
        self._missing: str | None = None
        try:
            self.constraint = compiled(
                model.vocabulary,
                output_type,
                given,
                lambda written: written_in(lambda: syntax, written),
                quote_from,
            )
        except DocumentMissing as error:
            self._missing = str(error)
        if self.constraint is not None and self.constraint is not output_type:
            self.constraint.forget()  # the worker has its own
        self._host = host
        self._output = None if self.constraint is None else self.constraint.output
        self._lowered = _lowered(
            self.constraint,
            think,
            draft,
            "" if self._missing else hinted(with_schema_hint, output_type, self.constraint),
        )
        self._type_key = hashlib.sha256(self._lowered).digest()

    def __repr__(self) -> str:
        what = "free text" if self._output is None else self._output.name
        return f"Generator({self.model.name!r}, {what})"

    @property
    def weight(self) -> int:
        """The rough size of its output type here, in bytes."""
        return form_weight(self.constraint, len(self._lowered))

    def stream(
        self, prompt: Prompt, *more: Never, **options: Unpack[CallOptions]
    ) -> AsyncStream[T_co]:
        """Stream the output for ``prompt`` piece by piece, as it is generated.

        Options are checked before this returns. The model runs after the first piece is requested,
        and does not wait for its reader. Args and raises as for calling it.
        """
        search_options.check_by_name(more)
        if options.get("quote_from") is not None:
            return self._filled(options).stream(prompt, **_without_documents(options))
        search = self._search(options)
        if Several.are_asked(prompt, search):
            raise OptionError("stream returns one output: pass one prompt and no n=.")
        return WorkerStream(self, self._call(_Sent(prompt), search, wants_chunks=True))

    def streams(
        self, prompt: Prompt, n: int, **options: Unpack[CallOptions]
    ) -> list[AsyncStream[T_co]]:
        """Return a stream for each of ``n`` outputs of one prompt, to be read concurrently.

        They are the same outputs as with ``n=``. Args and raises as for `stream`.
        """
        search = self._search(options)
        caller, sent = next(NUMBERS), _Sent(prompt)
        return [
            WorkerStream(
                self, self._call(sent, search, wants_chunks=True, caller=caller, index=index)
            )
            for index in range(n)
        ]

    def stream_values(
        self, prompt: Prompt, *more: Never, **options: Unpack[CallOptions]
    ) -> AsyncValueStream[T_co]:
        """Yield the growing value for ``prompt`` while the model writes it.

        Like `Generator.stream_values`. Args and raises as for `stream`.
        """
        if options.get("quote_from") is not None:
            search_options.check_by_name(more)
            return self._filled(options).stream_values(prompt, **_without_documents(options))
        return AsyncValueStream(self.stream(prompt, *more, **options), self._output)

    # -- inside -----------------------------------------------------------------------------

    def _filled(self, options: Mapping[str, Any]) -> WorkerGenerator[T_co]:
        """Return a generator for one call that passes documents."""
        given = OPTIONS["quote_from"].read("quote_from", options["quote_from"])
        return WorkerGenerator(self.model, *self._made_of, given)

    async def _outputs(
        self, prompt: Any, options: Mapping[str, Any], take: Take, *, is_sure: bool
    ) -> Any:
        if options.get("quote_from") is not None:
            made, rest = self._filled(options), _without_documents(options)
            return await made._outputs(prompt, rest, take, is_sure=is_sure)
        search = self._search(options)
        if not Several.are_asked(prompt, search):
            call = self._call(_Sent(prompt), search, checks_sure=is_sure)
            try:
                await call.begin(self._host)
                return self._taken(take, await call.end(), call)
            finally:
                call.drop()
        several = Several(prompt, search)
        settings = search_options.resolve(search, self.model.search_defaults)
        sampled = self._output is not None and ir.has_temperatures(self._output.grammar)
        search_options.check_samples(search, settings, has_temperatures=sampled)
        caller = next(NUMBERS)
        calls: dict[int, RunningCall] = {}
        sent: _Sent | None = None
        try:
            for place, (one, index) in enumerate(several.asks):
                sent = sent if index else None
                try:
                    sent = sent or _Sent(one)
                    calls[place] = self._call(
                        sent, search, checks_sure=is_sure, caller=caller, index=index
                    )
                    await calls[place].begin(self._host)
                except StructgenError as error:
                    several.fail(place, error)
                if place % _AT_A_TIME == 0:
                    await asyncio.sleep(0)
            for place, call in calls.items():
                if place in several.errors:
                    continue
                ended = await call.end()
                if place % _AT_A_TIME == 0:
                    await asyncio.sleep(0)
                several.put(place, functools.partial(self._taken, take, ended, call))
        finally:
            for call in calls.values():
                call.drop()
        return several.result()

    def _taken(self, take: Take, ended: Ended, call: RunningCall) -> Any:
        """Return the value of a finished call; raise its error."""
        return take(self._here(raised(ended), call))

    def _here(self, result: GenerationResult[Any], call: RunningCall) -> GenerationResult[T_co]:
        """Return a result of the process with this generator's parser."""
        parse: Callable[[str], Any] = str if self._output is None else self._output.parse
        if call.values:
            (value,) = call.values
            parse = functools.partial(_same, value)
        known = replace(result, confidence=KnownConfidence(result.confidence))
        return known.parsed_by(parse).completed(call.logprobs, call.steps, self.constraint)

    def _search(self, options: Mapping[str, Any]) -> search_options.SearchOptions:
        search = search_options.parse(options)
        if self._missing is not None:
            raise DocumentMissing(self._missing)
        if search.processor is not None:
            raise OptionError(_elsewhere("processor"), option="processor")
        checks_for(self._checks, search, self.constraint)
        return search

    @functools.cached_property
    def _checks(self) -> Checks | None:
        return None if self.constraint is None else checks_of_constraint(self.constraint)

    def _call(
        self,
        sent: _Sent,
        search: search_options.SearchOptions,
        *,
        wants_chunks: bool = False,
        checks_sure: bool = False,
        caller: int | None = None,
        index: int = 0,
    ) -> RunningCall:
        call = Call(
            id=0,
            caller=next(NUMBERS) if caller is None else caller,
            prompt_id=sent.id,
            type_key=self._type_key,
            lowered=self._lowered,
            prompt=sent.prompt,
            search=search.but(cancel=None, n=None, return_errors=False),
            index=index,
            wants_chunks=wants_chunks,
            checks_sure=checks_sure,
            owner=owner(),
        )
        checks = self._checks if search.retries else None
        if checks is not None:
            call.checks = "whole" if checks.shapes is None else "json"
        return RunningCall(call, search.cancel, checks)


@final
class WorkerStream(AsyncStream[T_co]):
    """An output of a `WorkerGenerator`, piece by piece."""

    def __init__(self, generator: WorkerGenerator[T_co], call: RunningCall) -> None:
        self._generator = generator
        self._call = call
        self._has_begun = False
        self._is_over = False
        self._pieces: Iterator[Chunk] = iter(())

    async def _next(self) -> Chunk:
        try:
            return await self._read()
        except BaseException:
            self._is_over = True
            self._call.drop()
            raise

    async def _read(self) -> Chunk:
        while True:
            chunk = next(self._pieces, None)
            if chunk is not None:
                return chunk
            if self._is_over:
                raise StopAsyncIteration
            if not self._has_begun:
                self._has_begun = True
                await self._call.begin(self._generator._host)
            message = await self._call.answer()
            if isinstance(message, Ended):
                self._is_over = True
                if message.result is not None:
                    self._result = self._generator._here(message.result, self._call)
                raised(message)
            else:
                self._pieces = iter([Chunk(*piece) for piece in message.pieces])

    async def aclose(self) -> None:
        """Stop generating; readers reach the end. A second call does nothing."""
        self._is_over = True
        self._pieces = iter(())
        self._call.drop()
        self._call.wake()

    def __del__(self) -> None:
        if hasattr(self, "_call"):
            self._call.drop()


class KnownConfidence(dict[str, ValueConfidence]):
    """The confidence in the values for which the model's process computed it."""

    def __missing__(self, path: str) -> ValueConfidence:
        raise OptionError(
            f"The confidence of {path} was not computed, and the model is in another process. "
            "Pass abstain_below={path: probability} to the call; result.abstained then lists the "
            "values below it."
        )


def _without_documents(options: Mapping[str, Any]) -> Any:
    return {name: value for name, value in options.items() if name != "quote_from"}


def _same(value: Any, text: str) -> Any:
    return value


def _elsewhere(name: str) -> str:
    return (
        f"{name}= cannot be sent to the process that runs the model. Use a model of this process, "
        "from structgen.load, in a thread: await asyncio.to_thread(generator, prompt)."
    )


class _Sent:
    """A prompt in the form for sending, with its number. Raises the errors of `chat.parse`."""

    def __init__(self, prompt: Any) -> None:
        self.prompt = prompt if isinstance(prompt, TokenPrompt) else chat.parse(prompt)
        self.id = next(NUMBERS)


def _lowered(constraint: Constraint[Any] | None, think: Any, draft: Any, schema_hint: str) -> bytes:
    """Return the part of an output type that is sent to the process.

    Raises:
        OutputTypeError: it is nested too deeply.
    """
    output = None if constraint is None else constraint.output
    offered = None if output is None or output.offered is None else output.offered
    if offered is not None:
        offered = replace(offered, rewritten=None)
    lowered = LoweredType(
        grammar=None if output is None else output.grammar,
        name="free text" if output is None else output.name,
        offered=offered,
        options={} if constraint is None else dict(constraint.options),
        think=think,
        draft=draft,
        schema_hint=schema_hint,
    )
    try:
        return pickle.dumps(lowered, pickle.HIGHEST_PROTOCOL)
    except RecursionError:
        raise OutputTypeError(
            f"{lowered.name} is nested too deeply to be sent to the process that runs the model. "
            "Use a model of this process, from structgen.load."
        ) from None
