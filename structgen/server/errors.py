"""Errors in the shape that OpenAI's clients read: status, type, param, code and message.

Maps structgen's errors to HTTP statuses. The messages of these errors are sent to the client. Of
any other error the client learns only that it happened; it is logged.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from fastapi.responses import JSONResponse

from structgen import errors as known

TYPES = {
    401: "authentication_error",
    403: "permission_error",
    408: "timeout_error",
    429: "rate_limit_error",
}
"""The type of errors by status, if it is not the usual one below or from 500."""


_LONGEST = 4_000
"""Most characters of a message, which may quote what the client sent."""

_PROMPTS = {False: "invalid_prompt", True: "context_length_exceeded"}


class ApiError(Exception):
    """An error as an HTTP answer.

    Attributes:
        status: the HTTP status.
        message: what is wrong and what to do.
        param: the field that is wrong.
        code: a word for programs.
        headers: headers of the answer.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = _short(message)
        self.param = None if param is None else _short(param)
        self.code = code
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        """As JSON."""
        usual = "server_error" if self.status >= 500 else "invalid_request_error"
        return {
            "error": {
                "message": self.message,
                "type": TYPES.get(self.status, usual),
                "param": self.param,
                "code": self.code,
            }
        }

    @property
    def response(self) -> JSONResponse:
        """As an answer."""
        return JSONResponse(self.body, self.status, self.headers)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


_FOLDERS = re.compile(r"(?<![\w.:/\\])(?:[A-Za-z]:)?(?:[/\\][^/\\\s:'\"]+)+[/\\](?=[^\s'\"])")


def public(message: str) -> str:
    """Return a model's error as clients may see it: without the output of its process, which
    follows the first line, and without paths of this machine. The log has both."""
    return _FOLDERS.sub("", message.partition("\n")[0][: 2 * _LONGEST])


def api_error(error: BaseException) -> ApiError:
    """Return the HTTP answer for an error."""
    if isinstance(error, ApiError):
        return error
    message = str(error)
    if isinstance(error, known.ModelError):
        message = public(message)
    if isinstance(error, known.Overloaded):
        return ApiError(
            429, message, code="overloaded", headers={"Retry-After": seconds(error.retry_after)}
        )
    if isinstance(error, known.RequestError):
        return ApiError(400, message, param=error.param, code=_code(error))
    if isinstance(error, known.BudgetTooSmall):
        # Not its message, which quotes the form as Python writes it, cut off.
        left = known.counted(error.budget, "token")
        need = f"about {error.minimum:,}" if error.minimum < 10**9 else "more than a billion"
        message = (
            f"max_tokens leaves {left} for the answer, but the requested form needs {need}, "
            "including the end-of-sequence token. Raise max_tokens."
        )
        return ApiError(400, message, param="max_tokens", code="budget_too_small")
    if isinstance(error, known.PromptError):
        return ApiError(400, message, param="messages", code=_PROMPTS[error.is_too_long])
    if isinstance(error, known.Abstained):
        return ApiError(422, message, param="abstain_below", code="abstained")
    if isinstance(error, (known.ParseError, known.IncompleteOutput)):
        return ApiError(422, message, code="no_valid_output")
    if isinstance(error, known.SessionError):
        return ApiError(400, message, param="session_id", code="session")
    if isinstance(error, (known.OptionError, known.OutputTypeError)):
        return ApiError(400, message)
    if isinstance(error, known.WorkerDied):
        return ApiError(503, message, code="worker_died", headers={"Retry-After": "1"})
    if isinstance(error, known.ModelNotFound) and error.is_of_runner:
        return ApiError(404, message, param="model", code="model_not_found")
    if isinstance(error, known.ModelError):
        return ApiError(503, message, code="model_unavailable", headers={"Retry-After": "5"})
    if isinstance(error, known.StructgenError):
        return ApiError(422, message)
    return ApiError(
        500,
        "An internal error occurred; the request is not at fault. The server's log has the "
        "details under the id in the x-request-id header.",
        code="internal_error",
    )


def _code(error: known.RequestError) -> str | None:
    if isinstance(error.__cause__, known.OutputTypeError):
        return "invalid_schema"
    return "invalid_value" if error.kind == "invalid" else f"{error.kind}_field"


def seconds(given: float) -> str:
    """Return seconds for ``Retry-After``: a whole number, at least 1."""
    return str(max(1, math.ceil(given)))
