"""From the bytes of a request to the Runner's request, strictly and within limits.

The JSON must be UTF-8, one value, without duplicate names in an object, without numbers that JSON
does not have, without lone surrogates, and within the limits of `structgen.runner.check_json`,
which apply before anything is parsed. A large body is parsed in a thread, so that it does not block
the event loop.

Also here: the fields that HTTP adds to the Runner's (``stream``), those that clients of vLLM send
(``structured_outputs``, ``guided_json``), ``store`` (without effect), the limits of one request,
and forms with files. The Runner checks all other fields. Errors use the client's names of fields.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from structgen.errors import RequestError
from structgen.runner import (
    NOT_ASKED,
    Aside,
    ChatRequest,
    CompletionRequest,
    check_json,
    grammar_type_of,
    request_error,
    unknown_field,
)
from structgen.storage.user_folder import n_values, unique

from .errors import ApiError, api_error
from .settings import Settings
from .shapes import TEXT_FIELDS, VLLM

RequestT = TypeVar("RequestT", ChatRequest, CompletionRequest)

BodyT = TypeVar("BodyT", bound=BaseModel)

_OLD = {f"guided_{name}": name for name in VLLM}
"""The names of these fields in vLLM before 0.12."""

PYTHON_ONLY = ("output_type", *NOT_ASKED)
"""Fields of the Runner's requests that only Python programs may set: JSON cannot express them, they
concern functions that run here, or conversations that all clients would share."""


@dataclass(slots=True)
class Asked(Generic[RequestT]):
    """A client's request.

    Attributes:
        request: the request for the Runner.
        streams: whether the answer is a stream.
        rename: the client's names of the Runner's fields.
    """

    request: RequestT
    streams: bool
    rename: Callable[[str], str]

    def to_error(self, error: BaseException) -> ApiError:
        """Return the answer to an error, with the client's names of fields."""
        return renamed(error, self.rename)


def renamed(error: BaseException, rename: Callable[[str], str]) -> ApiError:
    """Return the answer to an error, with other names of fields."""
    api = api_error(error)
    if api.param is not None:
        theirs = rename(api.param)
        whole = rf"(?<![\w.]){re.escape(api.param)}(?!\w)"
        api.message = re.sub(whole, lambda _: theirs, api.message)
        api.param = theirs
    return api


def named(path: str, names: Mapping[str, str]) -> str:
    """Return a path with the client's name of a field in place of ours."""
    for ours, theirs in names.items():
        if path == ours or path.startswith((f"{ours}.", f"{ours}[")):
            return theirs + path[len(ours) :]
    return path


def asked(
    kind: type[RequestT],
    body: Mapping[str, Any],
    settings: Settings,
    rename: Callable[[str], str] = str,
) -> Asked[RequestT]:
    """Return the request in a body.

    Raises:
        ApiError: a field is unknown, unsupported or wrong, or exceeds a limit of the server.
    """
    fields = dict(body)
    # Errors of a prompt name messages.
    names = {} if kind is ChatRequest else {"messages": "prompt"}

    def in_words(param: str) -> str:
        return named(rename(param), names)

    try:
        streams = _flag("stream", fields.pop("stream", None))
        _flag("store", fields.pop("store", None))  # it has no effect on answers
        fields.pop("prompt_cache_retention", None)
        for name in PYTHON_ONLY:
            if name in fields:
                raise refused(f"{name} is not supported over HTTP, only in Python.", name)
        ours: type[BaseModel] = kind
        check_names(fields, {*ours.model_fields, *TEXT_FIELDS} - {*PYTHON_ONLY})
        if not streams and fields.get("stream_options") is not None:
            raise refused("stream_options requires stream=true.", "stream_options")
        _grammar(fields, names)
        _template(fields, names)
        for name in ("messages", "tools", "logit_bias", "abstain_below"):
            check_many(fields.get(name), name, settings.max_inputs)
        messages = fields.get("messages")
        check_many(_within(messages, "tool_calls"), "messages", settings.max_inputs, " calls")
        pictures = [
            part
            for part in _within(messages, "content")
            if isinstance(part, Mapping) and part.get("type") == "image_url"
        ]
        check_many(pictures, "messages", settings.max_pictures, " pictures", "max_pictures")
        check_sizes(fields, settings)
        request = kind.of(fields, {})
        _bound(request, settings)
        return Asked(request, streams, in_words)
    except RequestError as error:
        raise renamed(error, in_words) from error
    except ApiError as error:
        raise renamed(error, rename) from None


def read(kind: type[BodyT], body: Mapping[str, Any]) -> BodyT:
    """Return a body of one of the server's own endpoints.

    Raises:
        ApiError: a field is unknown or wrong.
    """
    try:
        return kind.model_validate(dict(body))
    except ValidationError as error:
        raise api_error(request_error(kind, error)) from None


def refused(message: str, param: str, code: str = "unsupported_field") -> ApiError:
    """Return an error with status 400 for a field."""
    return ApiError(400, message, param=param, code=code)


def _flag(path: str, value: Any) -> bool:
    """Read a field that is true, false or null."""
    if value is not None and not isinstance(value, bool):
        raise refused(f"{path} must be true or false.", path, "invalid_value")
    return bool(value)


def check_names(fields: Iterable[str], known: Collection[str]) -> None:
    """Refuse an unknown field of an endpoint, and suggest the one that was probably meant."""
    for name in fields:
        if name not in known:
            raise refused(unknown_field(name, known), name[:100])


def _grammar(fields: dict[str, Any], names: dict[str, str]) -> None:
    """Turn vLLM's fields for a form into ``grammar`` and ``grammar_type``."""
    given: list[tuple[str, str, Any]] = []
    extra = fields.pop("structured_outputs", None)
    if extra is not None:
        if not isinstance(extra, Mapping):
            raise refused(
                "structured_outputs must be an object.", "structured_outputs", "invalid_value"
            )
        for name, value in extra.items():
            if value is None:
                continue
            if name not in VLLM:
                raise refused(
                    f"structured_outputs.{name} is not supported. Known fields: {', '.join(VLLM)}.",
                    f"structured_outputs.{name}",
                )
            given.append((name, f"structured_outputs.{name}", value))
    for old, name in _OLD.items():
        value = fields.pop(old, None)
        if value is not None:
            given.append((name, old, value))
    given = [one for one in given if one[0] != "json_object" or _flag(*one[1:])]
    if not given:
        return
    others = [name for name in ("grammar", "grammar_type") if fields.get(name) is not None]
    if len(given) > 1 or others:
        paths = [path for _, path, _ in given] + others
        raise refused(
            f"{' and '.join(paths)} both set the form of the output. Remove one of them.",
            paths[1],
            "invalid_value",
        )
    ((kind, path, value),) = given
    if kind == "json_object":
        kind, value = "json", {"type": "object"}
    if kind == "json":
        kind = "json_schema"
    elif kind == "grammar":
        kind = grammar_type_of(value)
    fields |= {"grammar": value, "grammar_type": kind}
    names["grammar"] = path


def _template(fields: dict[str, Any], names: dict[str, str]) -> None:
    """Read ``chat_template_kwargs``, of which only ``enable_thinking`` is supported."""
    extra = fields.pop("chat_template_kwargs", None)
    if extra is None:
        return
    if not isinstance(extra, Mapping):
        raise refused(
            "chat_template_kwargs must be an object.", "chat_template_kwargs", "invalid_value"
        )
    for name, value in extra.items():
        path = f"chat_template_kwargs.{name}"
        if name != "enable_thinking" or "enable_thinking" in fields:
            raise refused(f"{path} is not supported.", path)
        fields["enable_thinking"] = value
        names["enable_thinking"] = path


def check_sizes(fields: Mapping[str, Any], settings: Settings) -> None:
    """Refuse schemas that are too large, and tools that are not tools."""
    tools = fields.get("tools")
    for index, tool in enumerate(tools if isinstance(tools, list) else ()):
        if not isinstance(tool, Mapping):
            raise refused(f"tools[{index}] is not an object.", f"tools[{index}]", "invalid_value")
    for name in ("response_format", "grammar", "tools", "tool_choice"):
        value = fields.get(name)
        if value is None:
            continue
        size = len(json.dumps(value, ensure_ascii=False).encode())
        if size > settings.max_schema_bytes:
            raise ApiError(
                413,
                f"{name} has {size:,} bytes of JSON; the limit is {settings.max_schema_bytes:,} "
                "(max_schema_bytes). Send a smaller one.",
                param=name,
                code="schema_too_large",
            )


def _within(messages: Any, name: str) -> list[Any]:
    """Return the items that a field of all messages lists; they are unchecked."""
    messages = messages if isinstance(messages, list) else []
    found = [one.get(name) for one in messages if isinstance(one, Mapping)]
    return [part for parts in found if isinstance(parts, list) for part in parts]


def check_many(
    given: Any, name: str, most: int, what: str = " entries", setting: str = "max_inputs"
) -> None:
    """Refuse a request with too many texts, messages, calls or questions."""
    if isinstance(given, (list, dict)) and len(given) > most:
        raise refused(
            f"{name} has {len(given):,}{what}; the limit is {most:,} ({setting}). Send "
            "fewer, or send several requests.",
            name,
            "invalid_value",
        )


def _bound(request: ChatRequest | CompletionRequest, settings: Settings) -> None:
    """Check a request against the server's limits.

    Raises:
        ApiError: it exceeds a limit.
    """
    most = settings.max_tokens
    if most is not None:
        name = "max_tokens"
        if isinstance(request, ChatRequest) and request.max_completion_tokens is not None:
            name = "max_completion_tokens"
        value = getattr(request, name)
        if value is None:
            request.max_tokens = most
        elif value > most:
            raise refused(
                f"{name}={value:,} exceeds this server's limit of {most:,} (max_tokens).",
                name,
                "invalid_value",
            )
    prompts = 1
    if isinstance(request, CompletionRequest):
        prompts = len(request.prompts)
    outputs = prompts * (request.n or 1)
    if outputs > settings.max_outputs:
        name = "n" if prompts <= settings.max_outputs else "prompt"
        raise refused(
            f"{name}: {outputs:,} outputs exceed this server's limit of {settings.max_outputs:,} "
            "for one request (max_outputs).",
            name,
            "invalid_value",
        )


SMALL = 16 << 10
"""Bytes up to which the event loop parses a body itself, because a thread would take longer."""

_MAX_DIGITS = 1_000
"""Most characters of a number."""

_MOST_WAITING = 64
"""Most large bodies that wait to be parsed, of megabytes each."""

T = TypeVar("T")


def reader() -> Aside:
    """Return the thread that parses large bodies; owners take turns.

    The event loop waits for the interpreter lock behind each working thread. So there is only one
    thread for all large bodies, and the loop runs between its slices.
    """
    return Aside(1, _MOST_WAITING, "structgen-bodies")


async def aside(request: Request, work: Callable[[], T], *, is_large: bool = False) -> T:
    """Run work on a request: in the thread for large bodies, or at once.

    Args:
        request: the request.
        work: the function to run.
        is_large: whether the work is large although the body is small.
    """
    if not is_large and len(await request.body()) <= SMALL:
        return work()
    aside: Aside = request.app.state.bodies
    return await aside.do(getattr(request.state, "owner", None), work)


async def json_object(request: Request) -> dict[str, Any]:
    """Return the body, which must be a JSON object.

    Raises:
        ApiError: it is something else.
    """
    check_type(request.headers.get("content-type", ""), is_needed=True)
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError(
            400,
            "Compressed bodies are not supported. Send the body uncompressed.",
            code="invalid_content_type",
        )
    body, settings = await request.body(), request.app.state.settings

    def more(values: int) -> int:
        """Return the extra bytes that values count as, because they take far more memory than their
        text."""
        share = min(values / settings.max_body_values, 1)
        return max(int(share * settings.max_body_bytes) - len(body), 0)

    most = more(n_values(body))  # counts commas in texts, too; a later count does not
    request.state.taken(most)
    found, values = await aside(request, lambda: parsed(body, settings.max_body_values))
    request.state.taken(more(values) - most)
    if settings.log_prompts:
        request.state.log["body"] = found
    return found


def check_type(given: str, *, is_needed: bool = False) -> None:
    """Check that a ``Content-Type`` is JSON's.

    Raises:
        ApiError: it is not.
    """
    kind = given.partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json") or not (given or is_needed):
        return
    why = " (the default of curl -d)" if kind == "application/x-www-form-urlencoded" else ""
    raise ApiError(
        400,
        f"The Content-Type is {kind or 'missing'}{why}, but this server reads JSON. Send the "
        "header Content-Type: application/json. With curl: -H 'Content-Type: application/json'.",
        code="invalid_content_type",
    )


def parsed(body: bytes, most: int) -> tuple[dict[str, Any], int]:
    """Return the JSON object of a body, and its approximate number of values.

    Raises:
        ApiError: it is not a JSON object, or exceeds a limit.
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
        values = check_json(text, most)
        value = json.loads(
            text,
            object_pairs_hook=unique,
            parse_int=lambda text: int(_short(text)),
            parse_float=_finite,
            parse_constant=_no_constant,
        )
    except ValueError as error:
        raise ApiError(400, f"The body is not valid JSON: {error}.", code="invalid_json") from None
    if not isinstance(value, dict):
        raise ApiError(400, "The body must be a JSON object.", code="invalid_json")
    return value, values


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not valid JSON")


def _short(text: str) -> str:
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"a number has {len(text):,} digits; the limit is {_MAX_DIGITS:,}")
    return text


def _finite(text: str) -> float:
    value = float(_short(text))
    if math.isinf(value):
        raise ValueError(f"the number {text} is too large")
    return value


# -- forms -------------------------------------------------------------------------------------

FORM = "multipart/form-data"
_MOST_PARTS = 16
_LONGEST_HEAD = 2_000
_PARAMETER = re.compile(r';[ \t]*([\w-]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*))')


class Field(NamedTuple):
    """A part of a form: its content, and its file name if it is a file."""

    content: bytes
    filename: str | None


def check_form(kind: str) -> None:
    """Check that a ``Content-Type`` is a form's.

    Raises:
        ApiError: it is not one.
    """
    if kind and kind.partition(";")[0].strip().lower() != FORM:
        raise _no_form(f"its Content-Type is {kind[:100]} instead of {FORM}")


def form_schema(required: list[str], properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of an endpoint's form, for ``openapi_extra=``."""
    schema = {"type": "object", "properties": dict(properties), "required": required}
    return {"requestBody": {"required": True, "content": {FORM: {"schema": schema}}}}


def fields_of(kind: str, data: bytes, known: Collection[str]) -> list[tuple[str, Field]]:
    """Return the names and parts of a form, in order.

    Args:
        kind: the ``Content-Type``.
        data: the body.
        known: allowed names; those that end with ``[]`` may be repeated.

    Raises:
        ApiError: the body is not a form, or a field is unknown or repeated.
    """
    boundary = _parameters(kind).get("boundary", "")
    if not 1 <= len(boundary) <= 70:
        raise _no_form("its Content-Type has no boundary of 1 to 70 characters")
    _, *parts = (b"\r\n" + data).split(b"\r\n--" + boundary.encode("latin-1"), _MOST_PARTS + 1)
    if not parts or not parts.pop().startswith(b"--"):
        raise _no_form(f"it is incomplete or has more than {_MOST_PARTS} parts")
    found: list[tuple[str, Field]] = []
    for part in parts:
        head, _, rest = part.partition(b"\r\n\r\n")
        headers: dict[str, str] = {}
        for line in head[:_LONGEST_HEAD].decode(errors="replace").split("\r\n"):
            header, _, value = line.partition(":")
            headers[header.strip().lower()] = value.strip()
        encoding = headers.get("content-transfer-encoding", "binary").lower()
        if encoding not in ("7bit", "8bit", "binary"):
            raise _no_form(f"a part has the unsupported Content-Transfer-Encoding {encoding!r}")
        about = _parameters(headers.get("content-disposition", ""))
        name, filename = about.get("name", ""), about.get("filename")
        check_names([name], known)
        if not name.endswith("[]") and name in dict(found):
            raise refused(f"{name} is given twice.", name, "invalid_value")
        found.append((name, Field(rest, None if filename is None else filename[:200])))
    return found


def _parameters(header: str) -> dict[str, str]:
    """Return the parameters after the value of a header, by name."""
    found = _PARAMETER.findall(header[:_LONGEST_HEAD])
    return {name.lower(): quoted or bare for name, quoted, bare in found}


def _no_form(why: str) -> ApiError:
    return ApiError(400, f"The body is not a form with a file: {why}.", code="invalid_form")
