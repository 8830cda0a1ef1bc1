"""What sends requests: with a synchronous client of ``openai``, and with an asynchronous one.

Owns the two loops around an `Exchange`, and what errors of the client become. All else of an
output is the exchange's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Generator, Iterator
from typing import TYPE_CHECKING, Any

from structgen.decoding import Chunk
from structgen.errors import RemoteError, StructgenError

from .exchange import Exchange

if TYPE_CHECKING:
    import openai

_SHOWN = 300
_POLL_SECONDS = 0.05
"""How often it is looked whether a call is cancelled, while nothing comes."""


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
            with _translated(client, exchange):
                exchange.take(client.chat.completions.create(**exchange.request(in_pieces=False)))
        if exchange.conclude() is not None:
            return


def chunks(client: openai.OpenAI, exchange: Exchange) -> Generator[Chunk, None, None]:
    """Make one output piece by piece; it is asked for once.

    Raises:
        StructgenError: as `Exchange` says, and `RemoteError`.
    """
    try:
        yield from _reply(client, exchange)
        yield from exchange.conclude() or ()
    finally:
        exchange.stop()


def _reply(client: openai.OpenAI, exchange: Exchange) -> Generator[Chunk, None, None]:
    """One reply in pieces, up to its end or to where it is interrupted."""
    arguments = exchange.request(in_pieces=True)
    if exchange.is_interrupted:
        return
    with (
        _translated(client, exchange),
        _once(client, exchange).chat.completions.create(**arguments) as stream,
    ):
        for piece in stream:
            yield from exchange.take_piece(piece)
            if exchange.is_interrupted:
                return


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
            with _translated(client, exchange):
                exchange.take(await client.chat.completions.create(**arguments))
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
        asked = _once(client, exchange).chat.completions.create(**arguments)
        async with await _within(asked, exchange) as stream:
            pieces = stream.__aiter__()
            while True:
                try:
                    piece = await _within(pieces.__anext__(), exchange)
                except StopAsyncIteration:
                    return
                for chunk in exchange.take_piece(piece):
                    yield chunk
                if exchange.is_interrupted:
                    return


async def _within(waiting: Any, exchange: Exchange) -> Any:
    """What is awaited, unless the call ends before.

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


def _once(client: Any, exchange: Exchange) -> Any:
    """The client, without attempts of its own where time is short: each would take all of it."""
    return client if exchange.seconds_left is None else client.with_options(max_retries=0)


@contextlib.contextmanager
def _translated(client: Any, exchange: Exchange) -> Iterator[None]:
    """Errors of the client become ours. That the time of the call is up is none."""
    import openai

    where = f"The server at {client.base_url}"
    try:
        yield
    except StructgenError:
        raise
    except openai.APIStatusError as error:
        raise RemoteError(
            f"{where} refused the request (status {error.status_code}): {_said(error)}",
            status=error.status_code,
        ) from error
    except Exception as error:
        is_timeout = isinstance(error, (TimeoutError, asyncio.TimeoutError)) or any(
            "Timeout" in kind.__name__ for kind in type(error).__mro__
        )
        if is_timeout and exchange.is_interrupted:
            return
        if is_timeout:
            raise RemoteError(
                f"{where} did not answer in time. timeout= of its client says how long that is."
            ) from error
        if isinstance(error, openai.APIConnectionError) or _is_of_transport(error):
            cause = error.__cause__ or error
            why = str(cause) or type(cause).__name__
            raise RemoteError(f"{where} cannot be reached, or broke off: {why}.") from error
        # The client lets through what reading an answer raises: no JSON, no UTF-8.
        if isinstance(error, (openai.OpenAIError, ValueError)):
            raise RemoteError(f"{where} gave an answer that is not understood: {error}") from error
        raise


def _said(error: openai.APIStatusError) -> str:
    """What the server says of an error, which the client knows of errors in OpenAI's form only."""
    if isinstance(error.body, dict) and error.body.get("message"):
        return error.message
    try:
        written = error.response.text[:_SHOWN].strip()
    except Exception:  # it was not read
        written = ""
    return written if written and written not in error.message else error.message


def _is_of_transport(error: Exception) -> bool:
    """Whether it comes from what the client is built on, which it does not wrap in streams."""
    return type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore", "httpcore2")
