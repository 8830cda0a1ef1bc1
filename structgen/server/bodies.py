"""The body of a request, from bytes to a JSON object: strictly, and in bounds.

Owns what JSON is accepted: UTF-8, one value, no name twice in an object, no numbers that JSON does
not have, no half characters, no deeper than `MAX_DEPTH`. Everything else is told as a 400.
"""

from __future__ import annotations

import json
import re
from typing import Any

from fastapi import Request

from .errors import ApiError

MAX_DEPTH = 200
"""Deepest nesting of a body."""

_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
"""How a half of a character is written, and those that have two halves."""


async def json_object(request: Request) -> dict[str, Any]:
    """The body, which has to be a JSON object.

    Raises:
        ApiError: it is not.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise ApiError(
            400,
            f"The Content-Type is {kind or 'missing'}. Send JSON, with the header "
            "Content-Type: application/json.",
            code="invalid_content_type",
        )
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError(
            400, "Compressed bodies are not read. Send it as it is.", code="invalid_content_type"
        )
    found = parsed(await request.body())
    if request.app.state.settings.log_prompts:
        request.state.log["body"] = found
    return found


def parsed(body: bytes) -> dict[str, Any]:
    """A JSON object of its text.

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
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise ApiError(400, f"The body is not JSON: {error}.", code="invalid_json") from None
    if not isinstance(value, dict):
        raise ApiError(400, "The body is JSON, but no object.", code="invalid_json")
    _check(value, halves=_HALF.search(body) is not None)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice!r} is twice in one object")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _too_deep() -> ApiError:
    return ApiError(400, f"The body is nested more than {MAX_DEPTH} deep.", code="invalid_json")


def _check(value: Any, halves: bool) -> None:
    """Refuse what is too deep, and texts that are not Unicode."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for one in level:
            if isinstance(one, dict):
                if halves:
                    below += one
                below += one.values()
            elif isinstance(one, list):
                below += one
            elif halves and isinstance(one, str):
                try:
                    one.encode()
                except UnicodeEncodeError:
                    raise ApiError(
                        400,
                        "The body has half of a character (a lone surrogate, \\ud800 to \\udfff).",
                        code="invalid_json",
                    ) from None
        level = [one for one in below if halves or isinstance(one, (dict, list))]
        if not level:
            return
    raise _too_deep()
