"""Models behind servers with OpenAI's API, and their generators.

A remote model is a client, a name and a dialect; `from_openai` makes one. Calls send the requests
of an `Exchange` with a sync or async ``openai`` client, several outputs at once. How much of an
answer is read is limited, and the client's errors are converted. `Task` decides what is asked, the
exchange everything else about an output.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import re
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from collections.abc import Generator as Pieces
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor, wait
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, cast, final, overload

from structgen.asking import Asked, AskedAsync
from structgen.decoding import (
    AsyncStream,
    AsyncTypedGenerator,
    AsyncValueStream,
    Chunk,
    GenerationResult,
    Output,
    Prompt,
    Several,
    Stream,
    Take,
    ValueStream,
    check_by_name,
)
from structgen.errors import (
    ModelError,
    OptionError,
    RemoteError,
    StructgenError,
    printable,
    requires,
)
from structgen.generator import Generator
from structgen.insight import check_values
from structgen.options import CallOptions
from structgen.types import T_co

from .dialects import DialectName, dialect_of
from .exchange import CODINGS, Exchange
from .task import Served, Task

if TYPE_CHECKING:
    import openai
    from typing_extensions import Never, Unpack

_SHOWN = 300
_LONGEST_SHOWN = 2_000  # characters of a server's error message
_POLL_SECONDS = 0.05
"""Seconds between checks for cancellation while nothing arrives."""

_MOST_BYTES = 16 << 20  # bytes of a body, or of an event of a stream
_MOST_IN_ALL = 1 << 30  # bytes of a stream: comments may never end
_SLICE = re.compile(rb"(?:[^\r\n]{,200}[\r\n]){1,20}|[^\r\n]{1,4096}[\r\n]{,2}")
"""What the client gets at once of a stream: each line takes it up to 20 us, and may be empty."""

_MOST_VALUES = 30_000  # values in it: in an event each takes the client up to 40 us
_MOST_SCORED = 1_000_000  # values in a whole answer with logprobs
_MOST_COOKIES = 50  # cookies, or all are dropped: each adds 10 us to every request

_OURS = frozenset(
    (
        *("model", "messages", "stream", "stream_options", "response_format", "tools"),
        *("tool_choice", "n", "timeout"),
    )
)
"""Arguments of a request that structgen sets itself."""


def make(client: openai.OpenAI, exchange: Exchange) -> None:
    """Make one output.

    Raises:
        StructgenError: as `Exchange` says, and `RemoteError`.
    """
    while True:
        if exchange.is_timed:
            for _ in _reply(client, exchange):
                pass
        else:
            arguments = exchange.request(in_pieces=False)
            with _translated(client, exchange), _bounded(client, exchange):
                exchange.take(_value(client.chat.completions.with_raw_response.create(**arguments)))
        if exchange.conclude() is not None:
            return


def _value(raw: Any) -> Any:
    """Return an answer as JSON or other text, because the client's own objects take 40 us each."""
    try:
        return raw.http_response.json()
    except ValueError:
        return raw.http_response.text


def chunks(client: openai.OpenAI, exchange: Exchange) -> Pieces[Chunk, None, None]:
    """Make one output piece by piece; it is asked for once.

    Raises:
        StructgenError: as `Exchange` says, and `RemoteError`.
    """
    try:
        yield from _reply(client, exchange)
        yield from exchange.conclude() or ()
    finally:
        exchange.stop()


def _reply(client: openai.OpenAI, exchange: Exchange) -> Pieces[Chunk, None, None]:
    """Yield one reply in pieces, until it ends or is interrupted."""
    arguments = exchange.request(in_pieces=True)
    if exchange.is_interrupted:
        return
    with _translated(client, exchange):
        with _bounded(client, exchange):
            ask = partial(_once(client, exchange).chat.completions.create, **arguments)
            asked = _begun(ask, exchange) if exchange.is_timed else ask()
        with asked as stream:
            for piece in stream:
                yield from filter(None, exchange.take_piece(piece))
                if exchange.is_interrupted:
                    return


def _begun(ask: Callable[[], Any], exchange: Exchange) -> Any:
    """Return the beginning of an answer, unless the call ends first.

    Runs in a thread: while a server sends the headers of an answer, the client checks no time
    limit.

    Raises:
        TimeoutError: so it does.
    """
    answered: Future[Any] = Future()

    def run() -> None:
        try:
            asked = ask()
        except BaseException as error:
            with contextlib.suppress(InvalidStateError):
                answered.set_exception(error)
            return
        try:
            answered.set_result(asked)
        except InvalidStateError:
            asked.close()

    here = contextvars.copy_context()
    thread = threading.Thread(target=here.run, args=(run,), name="structgen ask", daemon=True)
    thread.start()
    while not wait([answered], _POLL_SECONDS).done:
        if exchange.is_interrupted and answered.cancel():
            # As soon as something comes, because it may never end, and the client closes the
            # connection.
            ident, ends = ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ends)
            raise TimeoutError
    return answered.result()


async def make_async(client: openai.AsyncOpenAI, exchange: Exchange) -> None:
    """Make one output. Cancelling the task closes the connection.

    Raises:
        StructgenError: as `Exchange` says, and `RemoteError`.
    """
    while True:
        if exchange.is_timed:
            async for _ in _reply_async(client, exchange):
                pass
        else:
            arguments = exchange.request(in_pieces=False)
            with _translated(client, exchange), _bounded(client, exchange):
                reply = await client.chat.completions.with_raw_response.create(**arguments)
                if exchange.has_scores:  # 300,000 of them take seconds
                    await asyncio.to_thread(exchange.take, await asyncio.to_thread(_value, reply))
                else:
                    exchange.take(_value(reply))
        for _ in exchange.check():
            await asyncio.sleep(0)
        if exchange.conclude() is not None:
            return


async def chunks_async(
    client: openai.AsyncOpenAI, exchange: Exchange
) -> AsyncGenerator[Chunk, None]:
    """Make one output piece by piece; it is asked for once.

    Raises:
        StructgenError: as `Exchange` says, and `RemoteError`.
    """
    try:
        async with contextlib.aclosing(_reply_async(client, exchange)) as reply:
            async for chunk in reply:
                yield chunk
        for _ in exchange.check():
            await asyncio.sleep(0)
        for chunk in exchange.conclude() or ():
            yield chunk
    finally:
        exchange.stop()


async def _reply_async(
    client: openai.AsyncOpenAI, exchange: Exchange
) -> AsyncGenerator[Chunk, None]:
    arguments = exchange.request(in_pieces=True)
    if exchange.is_interrupted:
        return
    with _translated(client, exchange):
        with _bounded(client, exchange):
            waiting = _once(client, exchange).chat.completions.create(**arguments)
            asked = await _within(waiting, exchange)
        async with asked as stream:
            pieces = stream.__aiter__()
            while True:
                try:
                    piece = await _within(pieces.__anext__(), exchange)
                except StopAsyncIteration:
                    return
                for chunk in exchange.take_piece(piece):
                    if chunk:
                        yield chunk
                    await asyncio.sleep(0)
                if exchange.is_interrupted:
                    return


async def _within(waiting: Any, exchange: Exchange) -> Any:
    """Await something, unless the call ends first.

    Raises:
        TimeoutError: so it does.
    """
    if not exchange.is_timed:
        return await waiting
    step = asyncio.ensure_future(waiting)
    try:
        while not step.done():
            if exchange.is_interrupted:
                raise TimeoutError
            left = exchange.seconds_left
            seconds = _POLL_SECONDS if left is None else min(left, _POLL_SECONDS)
            await asyncio.wait([step], timeout=max(seconds, 0.001))
        return step.result()
    finally:
        if not step.done():
            step.cancel()
            await asyncio.wait([step])
        del step  # its error refers to this frame


def _once(client: Any, exchange: Exchange) -> Any:
    """Return the client, without its own retries if there is a time limit: each would use it up."""
    return client if exchange.seconds_left is None else client.with_options(max_retries=0)


_ASKS: ContextVar[tuple[Exchange, Any] | None] = ContextVar("structgen_asks", default=None)
"""The exchange that a request belongs to, and the client that sends it."""


@contextlib.contextmanager
def _bounded(client: Any, exchange: Exchange) -> Iterator[None]:
    """Limit the answer to a request that is sent inside the block, because a server may never end
    it.

    The client keeps the received part of a body or line of a stream in memory, and checks no time
    limit while something arrives.

    Args:
        client: a client of ``openai``; its other requests do not change.
        exchange: the exchange of the request.
    """
    http: Any = getattr(client, "_client", None)
    if http is not None:
        hook = _watch_async if hasattr(http, "aclose") else _watch
        hooks = http.event_hooks["response"]
        if hook not in hooks:
            http.event_hooks = {**http.event_hooks, "response": [*hooks, hook]}
    token = _ASKS.set((exchange, http))
    try:
        yield
    finally:
        _ASKS.reset(token)


def bound_cookies(cookies: Any) -> None:
    """Make an HTTP client drop its cookies if there are many, or if one is not ASCII, which it
    cannot send.

    Each answer may set thousands, which all later requests would carry.
    """
    jar = cookies.jar
    if len(jar) > _MOST_COOKIES or not all(f"{one.name}{one.value}".isascii() for one in jar):
        cookies.clear()


class _Bound:
    """Holds bodies, and events of a stream, until they are known to be within the limits."""

    def __init__(self, exchange: Exchange, response: Any) -> None:
        self._exchange = exchange
        coding = response.headers.get("content-encoding", "").lower() or "identity"
        if coding not in CODINGS:  # several in a row turn kilobytes into gigabytes, in one piece
            raise RemoteError(f"The server sent an answer in the encoding {coding[:_SHOWN]!r}.")
        kind = response.headers.get("content-type", "")
        # The client keeps any other answer whole, including errors and redirects.
        self._is_stream = (
            exchange.is_in_pieces and response.is_success and kind.startswith("text/event-stream")
        )
        self._what = "an event of a stream" if self._is_stream else "an answer"
        self._held = bytearray()
        self._left = _MOST_IN_ALL

    def take(self, piece: bytes) -> bytes:
        """Add a piece; return what is complete.

        Raises:
            RemoteError: it exceeds a limit.
            TimeoutError: the call has no time left.
        """
        begin = max(len(self._held) - 3, 0)
        self._held += piece
        self._left -= len(piece)
        if self._left < 0:
            raise RemoteError(f"The server sent a stream of more than {_MOST_IN_ALL:,} bytes.")
        if len(self._held) > _MOST_BYTES:
            raise RemoteError(f"The server sent {self._what} of more than {_MOST_BYTES:,} bytes.")
        if self._exchange.is_interrupted:
            raise TimeoutError
        blank = max(self._held.rfind(one, begin) for one in (b"\n\n", b"\n\r\n", b"\r\r"))
        if not self._is_stream or blank < 0:
            return b""
        return self.rest(blank + 3)

    def rest(self, end: int | None = None) -> bytes:
        """Return the held bytes, or the beginning of them.

        Raises:
            RemoteError: it has too many values, or is not UTF-8.
        """
        data = bytes(self._held[:end])
        del self._held[:end]
        is_scored = self._exchange.has_scores and not self._exchange.is_in_pieces
        most = _MOST_SCORED if is_scored else _MOST_VALUES
        parts = [data]
        if self._is_stream:
            # Old clients do not know this end of an event, and copy all they hold for each line.
            data = data.replace(b"\n\r\n", b"\n\n")
            parts = data.split(b"\n\n")  # a compressed piece may have thousands of events
        for one in parts:
            if len(one) <= most:
                continue
            try:
                check_values(one.decode(errors="replace"), most)
            except ValueError as error:
                raise RemoteError(f"The server sent {self._what}, and {error}.") from None
        return data


def _watch(response: Any) -> None:
    asks = _ASKS.get()
    if asks is None:
        return
    exchange, http = asks
    bound_cookies(http.cookies)
    bound = _Bound(exchange, response)
    # An answer that referred to itself would stay until a full garbage collection.
    whole = weakref.WeakMethod(response.iter_bytes)
    whole_async = weakref.WeakMethod(response.aiter_bytes)

    def iter_bytes(chunk_size: int | None = None) -> Iterator[bytes]:
        yield from map(bound.take, cast("Any", whole())(chunk_size))
        yield bound.rest()

    async def aiter_bytes(chunk_size: int | None = None) -> AsyncIterator[bytes]:
        async for piece in cast("Any", whole_async())(chunk_size):
            for found in _SLICE.finditer(bound.take(piece)):
                yield found[0]
                await asyncio.sleep(0)  # the client does not, however many events there are
            await asyncio.sleep(0)  # nor where one read has thousands of pieces
        yield bound.rest()

    response.iter_bytes, response.aiter_bytes = iter_bytes, aiter_bytes
    response.encoding = "utf-8"  # some of Python's encodings take hours or do not make text


async def _watch_async(response: Any) -> None:
    _watch(response)


@contextlib.contextmanager
def _translated(client: Any, exchange: Exchange) -> Iterator[None]:
    """Convert errors of the client into ours, except that the call's time is up, which is not an
    error."""
    import openai

    where = f"The server at {client.base_url.copy_with(userinfo=b'')}"
    try:
        yield
    except StructgenError:
        raise
    except openai.APIStatusError as error:
        raise RemoteError(
            f"{where} refused the request (status {error.status_code}): {_message_of(error)}",
            status=error.status_code,
        ) from error
    except Exception as error:
        if isinstance(error.__cause__, RemoteError):
            raise error.__cause__ from None
        is_timeout = isinstance(
            error.__cause__ or error, (TimeoutError, asyncio.TimeoutError)
        ) or any("Timeout" in kind.__name__ for kind in type(error).__mro__)
        if is_timeout and exchange.is_interrupted:
            return
        if is_timeout:
            raise RemoteError(
                f"{where} did not answer in time. The timeout= of its client sets the limit."
            ) from error
        transports = ("httpx", "httpx2", "httpcore", "httpcore2")  # not wrapped in a stream
        is_of_transport = type(error).__module__.partition(".")[0] in transports
        if isinstance(error, openai.APIConnectionError) or is_of_transport:
            cause = error.__cause__ or error
            why = _shown(cause) or type(cause).__name__
            if why.startswith("Illegal header value"):  # it repeats the key
                why = "a header, such as that of its API key, has a character that HTTP forbids"
                raise RemoteError(f"{where} cannot be reached: {why}.") from None
            raise RemoteError(f"{where} cannot be reached, or disconnected: {why}.") from error
        # The client raises what reading an answer raises: invalid JSON or UTF-8, too deep.
        if isinstance(error, (openai.OpenAIError, ValueError, RecursionError)):
            why = _shown(error)
            raise RemoteError(f"{where} gave an answer that cannot be read: {why}") from error
        raise


def _message_of(error: openai.APIStatusError) -> str:
    """Return the server's error message; the client only reads OpenAI's form."""
    message = error.message
    if not (isinstance(error.body, dict) and error.body.get("message")):
        with contextlib.suppress(Exception):  # it has not been read
            written = error.response.text[:_SHOWN].strip()
            message = written if written and written not in message else message
    return _shown(message)


def _shown(message: object) -> str:
    """Return text that may be the server's, cut to a length."""
    return printable(str(message)[:_LONGEST_SHOWN])


SIDE_BY_SIDE = 8
"""Most requests at once in a call for several outputs without ``batch_size``."""


@final
class RemoteGenerator(Generator[T_co]):
    """The generator for a model with a sync client, as made by ``Generator(model, output_type)``.

    Attributes:
        model: the model.
        constraint: the output type, compiled to validate answers; None: free text.
    """

    model: RemoteModel
    _asks: Task

    def __new__(
        cls, model: RemoteModel, output_type: Any = None, **options: Any
    ) -> RemoteGenerator[Any]:
        """See `structgen.Generator`; of its options those are possible that say what a type is."""
        self: RemoteGenerator[Any] = object.__new__(cls)
        self._asks = Task(model, output_type, options)
        self.model, self.constraint = model, self._asks.constraint
        return self

    def __repr__(self) -> str:
        return repr(self._asks)

    def probabilities(self, prompt: Prompt, **options: Any) -> NoReturn:
        """Not possible: it needs the model's scores of whole texts, which servers do not return.

        Raises:
            OptionError: always.
        """
        raise OptionError(
            "probabilities is not supported for a remote model: it uses the scores of every "
            "token, which servers do not return. Pass logprobs=True, and use result.logprobs."
        )

    def stream(self, prompt: Prompt, *more: Never, **options: Unpack[CallOptions]) -> Stream[T_co]:
        """Return the answer to ``prompt`` piece by piece, as it comes, each piece validated.

        Args and raises as for calling the generator. Reading raises `ParseError` at the first byte
        that no text of the type has there.
        """
        check_by_name(more)
        exchange = self._asks.one(prompt, options, is_stream=True)
        return Stream(exchange, chunks(self.model.client, exchange))

    def stream_values(
        self, prompt: Prompt, *more: Never, **options: Unpack[CallOptions]
    ) -> ValueStream[T_co]:
        """Yield the value for ``prompt`` while it arrives, as far as it is complete."""
        return ValueStream(self.stream(prompt, *more, **options), self._asks.output)

    def _outputs(
        self, prompt: Any, options: Mapping[str, Any], convert: Callable[[Output], Any]
    ) -> Any:
        search = self._asks.search(options)
        client = self.model.client

        def made(exchange: Exchange) -> Any:
            make(client, exchange)
            return convert(exchange)

        if not Several.are_asked(prompt, search):
            return made(self._asks.one(prompt, options))
        several = Several(prompt, search)
        exchanges = self._asks.many(several, search, options)

        def work(place: int) -> None:
            several.put(place, partial(made, exchanges[place]))

        if exchanges:
            most = min(search.batch_size or SIDE_BY_SIDE, len(exchanges))
            with ThreadPoolExecutor(most, "structgen-remote") as pool:
                try:
                    list(pool.map(work, exchanges))
                except BaseException:
                    for exchange in exchanges.values():
                        exchange.cancel()
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise
        return several.result()


@final
class AsyncRemoteGenerator(AsyncTypedGenerator[T_co]):
    """The generator for a model with an async client, as made by ``Generator(model, output_type)``.

    Attributes:
        model: the model.
        constraint: the output type, compiled to validate answers; None: free text.
    """

    def __init__(self, model: AsyncRemoteModel, output_type: Any = None, **options: Any) -> None:
        """See `structgen.Generator`; of its options those are possible that say what a type is."""
        self._asks = Task(model, output_type, options)
        self.model, self.constraint = model, self._asks.constraint

    def __repr__(self) -> str:
        return repr(self._asks)

    async def _outputs(
        self, prompt: Any, options: Mapping[str, Any], take: Take, *, is_sure: bool
    ) -> Any:
        search = self._asks.search(options)
        if not Several.are_asked(prompt, search):
            exchange = self._asks.one(prompt, options)
            await make_async(self.model.client, exchange)
            return take(exchange.result)
        several = Several(prompt, search)
        exchanges = self._asks.many(several, search, options)
        room = asyncio.Semaphore(search.batch_size or SIDE_BY_SIDE)

        async def work(place: int) -> None:
            async with room:
                try:
                    await make_async(self.model.client, exchanges[place])
                except StructgenError as error:
                    several.fail(place, error)
                else:
                    several.put(place, lambda: take(exchanges[place].result))

        tasks = [asyncio.ensure_future(work(place)) for place in exchanges]
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        return several.result()

    def stream(
        self, prompt: Prompt, *more: Never, **options: Unpack[CallOptions]
    ) -> AsyncStream[T_co]:
        """Return the answer to ``prompt`` piece by piece, as it comes, each piece validated."""
        check_by_name(more)
        exchange = self._asks.one(prompt, options, is_stream=True)
        return RemoteStream(exchange, chunks_async(self.model.client, exchange))

    def stream_values(
        self, prompt: Prompt, *more: Never, **options: Unpack[CallOptions]
    ) -> AsyncValueStream[T_co]:
        """Yield the value for ``prompt`` while it arrives, as far as it is complete."""
        return AsyncValueStream(self.stream(prompt, *more, **options), self._asks.output)


@final
class RemoteStream(AsyncStream[T_co]):
    """The answer of a remote model, piece by piece."""

    def __init__(self, exchange: Exchange, pieces: AsyncGenerator[Chunk, None]) -> None:
        """Read ``pieces``, from which the exchange makes its output."""
        self._exchange = exchange
        self._pieces = pieces
        self._is_over = False
        self._step: asyncio.Task[Chunk] | None = None

    async def _next(self) -> Chunk:
        if self._is_over:
            raise StopAsyncIteration
        # In a task of its own, so that `aclose` can cancel it without the task that reads.
        self._step = step = asyncio.ensure_future(anext(self._pieces))
        try:
            await asyncio.wait([step])
        except BaseException:
            self._is_over = True
            step.cancel()
            await asyncio.wait([step])
            raise
        finally:
            self._step = None
        if step.cancelled():
            raise StopAsyncIteration
        try:
            return step.result()
        except BaseException:
            self._is_over = True
            raise
        finally:
            del step  # its error refers to this frame

    async def aclose(self) -> None:
        """Stop, and close the connection. Calling it again does nothing."""
        self._is_over = True
        if self._step is not None:
            self._step.cancel()
            await asyncio.wait([self._step])
        await self._pieces.aclose()
        self._exchange.stop()

    @property
    def result(self) -> GenerationResult[T_co]:
        """The result; see `AsyncStream`."""
        return self._exchange.result if self._is_over else super().result


@final
class RemoteModel(Served, Asked):
    """A model on a server, with a sync client. Safe to share by threads.

    Make one with `structgen.from_openai`. Ask it for values directly, ``model(prompt, T)``, or make
    a `structgen.Generator` of it and an output type.

    Attributes:
        client: the client.
        name: the name of the model on the server.
        dialect: how types and options are written for the server.
        request: further arguments of each request.
    """

    client: openai.OpenAI

    def make_generator(self, output_type: Any = None, **options: Any) -> Generator[Any]:
        """Return a generator, as ``Generator(model, output_type)`` does."""
        return RemoteGenerator(self, output_type, **options)

    _make = make_generator


@final
class AsyncRemoteModel(Served, AskedAsync):
    """A model on a server, with an async client; see `RemoteModel`."""

    client: openai.AsyncOpenAI

    def make_generator(self, output_type: Any = None, **options: Any) -> AsyncTypedGenerator[Any]:
        """Return a generator, as ``Generator(model, output_type)`` does."""
        return AsyncRemoteGenerator(self, output_type, **options)

    _make = make_generator  # the model may have open sockets


@overload
def from_openai(
    client: openai.OpenAI,
    model: str,
    *,
    dialect: DialectName = "openai",
    request: Mapping[str, Any] | None = None,
) -> RemoteModel: ...


@overload
def from_openai(
    client: openai.AsyncOpenAI,
    model: str,
    *,
    dialect: DialectName = "openai",
    request: Mapping[str, Any] | None = None,
) -> AsyncRemoteModel: ...


def from_openai(
    client: Any,
    model: str,
    *,
    dialect: DialectName = "openai",
    request: Mapping[str, Any] | None = None,
) -> RemoteModel | AsyncRemoteModel:
    """Return a model behind a server with OpenAI's API, for `structgen.Generator`.

    Args:
        client: an ``openai.OpenAI`` or ``openai.AsyncOpenAI``, with the server's ``base_url`` and
            key; with an async client, generators are `structgen.AsyncTypedGenerator`.
        model: the name of the model on the server.
        dialect: the kind of server: how to send it output types, and what it enforces:
            ``"openai"``, ``"openai-non-strict"``, ``"json-schema"`` (any other that takes JSON
            Schema as ``response_format``), ``"vllm"``, ``"vllm-guided"`` (before 0.12),
            ``"sglang"``, ``"llama.cpp"``, ``"ollama"`` or ``"none"`` (it gets no type).
        request: further arguments of each request, such as ``{"reasoning_effort": "low"}``;
            ``extra_body`` and ``extra_headers`` among them.

    Raises:
        ModelError: ``openai`` is not installed, or ``client`` is not one of its clients.
        OptionError: there is no such dialect, or ``request`` has an argument that structgen sets.

    Nothing is sent.
    """
    with requires(ModelError, "from_openai requires the package openai. Install it", "openai"):
        import openai
    found = dialect_of(dialect)
    if not isinstance(model, str) or not model:
        raise OptionError(f"model={model!r} is not a name. Pass the server's name of the model.")
    others = dict(request or {})
    ours = _OURS | {path[0] for path in found.body.values()}
    for name in (*others, *(others.get("extra_body") or ())):
        if name in ours:
            raise OptionError(
                f"request has {name!r}, which structgen sets itself from the output type, the "
                "prompt and the options of a call."
            )
    if isinstance(client, openai.OpenAI):
        return RemoteModel(client, model, found, others)
    if isinstance(client, openai.AsyncOpenAI):
        return AsyncRemoteModel(client, model, found, others)
    raise ModelError(
        f"The client is a {type(client).__name__}, not a client of the package openai. Pass "
        "openai.OpenAI(base_url=..., api_key=...) or openai.AsyncOpenAI(...)."
    )
