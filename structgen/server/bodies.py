"""The body of a request, from bytes to what an endpoint asks the Runner for: strictly, in bounds.

Owns what JSON is accepted: UTF-8, one value, no name twice in an object, no numbers that JSON does
not have, no half characters, and the bounds of `structgen.runner.check_json`, which are held before
anything is parsed. Everything else is a 400. Owns, too, that no large body holds up the event loop:
it is parsed, and made a request of, in a thread.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, final

from fastapi import Request

from structgen.runner import Places, check_json

from .errors import ApiError

SMALL = 16 << 10
"""Bytes that the event loop reads by itself: a thread would take longer."""

_MAX_DIGITS = 1_000
"""Most characters of a number."""

_MOST_WAITING = 64
"""Most pieces of work that wait to be done aside, a body of megabytes each."""

T = TypeVar("T")


@final
class Aside:
    """What large bodies are read by: one thread, in which owners take turns.

    The event loop waits for the interpreter lock behind each thread that works. So all large bodies
    have one thread, and others' work goes on between its slices.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="structgen-bodies")
        self._places = Places(1, _MOST_WAITING)

    async def do(self, owner: str | None, work: Callable[[], T]) -> T:
        """Do some work there.

        Raises:
            Overloaded: too much waits for it.
        """
        async with self._places.of(owner):
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """End the thread, once it has done what it does."""
        self._thread.shutdown(wait=False)


async def aside(request: Request, work: Callable[[], T], *, is_large: bool = False) -> T:
    """Do work on a request: in the thread for large ones, or at once.

    Args:
        request: the request.
        work: what to do.
        is_large: whether there is much to do although the body is small.
    """
    if not is_large and len(await request.body()) <= SMALL:
        return work()
    aside: Aside = request.app.state.bodies
    return await aside.do(getattr(request.state, "owner", None), work)


async def json_object(request: Request) -> dict[str, Any]:
    """Read the body, which has to be a JSON object.

    Raises:
        ApiError: it is not.
    """
    check_type(request.headers.get("content-type", ""), is_needed=True)
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError(
            400, "Compressed bodies are not read. Send it as it is.", code="invalid_content_type"
        )
    body, settings = await request.body(), request.app.state.settings
    found = await aside(request, lambda: parsed(body, settings.max_body_values))
    if settings.log_prompts:
        request.state.log["body"] = found
    return found


def check_type(given: str, *, is_needed: bool = False) -> None:
    """Refuse a ``Content-Type`` that is not JSON's.

    Raises:
        ApiError: so it is.
    """
    kind = given.partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json") or not (given or is_needed):
        return
    why = " (curl -d sends that)" if kind == "application/x-www-form-urlencoded" else ""
    raise ApiError(
        400,
        f"The Content-Type is {kind or 'missing'}{why}, and this server reads JSON. Send the "
        "header Content-Type: application/json. With curl: -H 'Content-Type: application/json'.",
        code="invalid_content_type",
    )


def parsed(body: bytes, most: int) -> dict[str, Any]:
    """Return the JSON object of a body.

    Args:
        body: its text.
        most: how many values it may have.

    Raises:
        ApiError: it is none, or out of bounds.
    """
    if not body:
        raise ApiError(400, "The body is empty. Send a JSON object.", code="invalid_json")
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ApiError(
            400, f"The body is not UTF-8, at byte {error.start:,}.", code="invalid_json"
        ) from None
    try:
        check_json(text, most)
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=_whole,
            parse_float=_finite,
            parse_constant=_no_constant,
        )
    except ValueError as error:
        raise ApiError(
            400, f"The body cannot be read as JSON: {error}.", code="invalid_json"
        ) from None
    if not isinstance(value, dict):
        raise ApiError(400, "The body is JSON, but no object.", code="invalid_json")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"the name {name!r} is twice in one object")
            seen.add(name)
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _short(text: str) -> str:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"a number has {len(text):,} digits, and {_MAX_DIGITS:,} is the most here")
    return text


def _whole(text: str) -> int:
    return int(_short(text))


def _finite(text: str) -> float:
    value = float(_short(text))
    if math.isinf(value):
        raise ValueError(f"the number {text} is too large")
    return value
