"""The base of all requests, and errors that name the field they are about.

Errors carry the path of the field, whether Pydantic, our own checks, or a schema or grammar raise
them. Knows no particular request.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    StrictStr,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from structgen.errors import OutputTypeError, RequestError
from structgen.insight import check_values
from structgen.storage.user_folder import n_values

MAX_DEPTH = 200
"""Deepest nesting of foreign JSON."""

MAX_VALUES = 100_000
"""Most values of foreign JSON, by default."""

_LONGEST_NAME = 100
_MAX_ERRORS = 100
"""About how many errors Pydantic may collect in one object: each takes about 8 us."""

Number = Annotated[float, Strict()]

ValueT = TypeVar("ValueT")

Many = Annotated[list[ValueT], Field(fail_fast=True)]
"""A list that is validated up to its first wrong element."""

RequestT = TypeVar("RequestT", bound="Request")

NOT_HERE = {
    "functions": "It is the old name of tools=.",
    "function_call": "It is the old name of tool_choice=.",
    "audio": "Answers are text only.",
    "prediction": "structgen already appends text that has no alternative in a single pass.",
    "moderation": "structgen does not moderate text.",
    "best_of": "Pass n= and choose among the outputs.",
    "suffix": (
        "Filling in text between a prefix and a suffix is not supported. Put the suffix into the "
        "prompt."
    ),
    "use_beam_search": "Beam search is not supported.",
    "stream": "Call stream_chat or stream_complete.",
    "random_seed": "Use seed.",
    "do_sample": "Pass temperature=0 for the most likely token, or a temperature above 0.",
    "guided_json": "Pass response_format=, or grammar= with grammar_type='json_schema'.",
    "guided_regex": "Pass grammar= with grammar_type='regex'.",
    "guided_choice": "Pass grammar= with grammar_type='choice'.",
}
"""Fields of other programs' APIs, and what to use instead."""


_HALF = re.compile(
    r"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|[c-fC-F](?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD].))"
)
_NOT_A_BRACKET = re.compile(r"[^][{}]+")


def check_json(text: str, most: int = MAX_VALUES) -> int:
    """Refuse JSON text that would take long to parse or handle, before anything is parsed.

    Args:
        text: the text; it may not be JSON at all.
        most: the most values it may have.

    Returns:
        About how many values it has.

    Raises:
        ValueError: it has more values, is nested more than `MAX_DEPTH` deep, or contains a lone
            surrogate (half of a character).
    """
    outside, bare = check_values(text, most)
    depth = 0
    for bracket in _NOT_A_BRACKET.sub("", outside):
        depth += 1 if bracket in "[{" else -1
        if depth > MAX_DEPTH:
            raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
    if _HALF.search(bare):
        raise ValueError("it contains a lone surrogate (\\ud800 to \\udfff)")
    return n_values(outside)


def has_more(value: object, most: int) -> bool:
    """Return whether a parsed value consists of more than ``most`` values."""
    ahead = [value]
    while ahead:
        one = ahead.pop()
        if isinstance(one, (dict, list)):
            most -= len(one)
            if most < 0:
                return True
            ahead.extend(one.values() if isinstance(one, dict) else one)
    return False


def in_slices(given: Any, read: ValidatorFunctionWrapHandler) -> Any:
    """Validate an object up to about its first wrong value: Pydantic's `FailFast` is for lists
    only."""
    if not isinstance(given, Mapping) or len(given) <= _MAX_ERRORS:
        return read(given)
    left, found = iter(given.items()), {}
    while part := dict(islice(left, _MAX_ERRORS)):
        found.update(read(part))
    return found


ByName = Annotated[dict[str, ValueT], WrapValidator(in_slices)]
"""An object with any names that is validated up to about its first wrong value."""


def place(steps: Sequence[str | int]) -> str:
    """Return the path of something in a request: ``messages[0].content``."""
    path = ""
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        else:
            path += f".{step}" if path else step
    return path


class Wrong(ValueError):
    """An error below the part that Pydantic checks; ``steps`` lead to it.

    ``names_field``: the message already names the field.
    """

    def __init__(
        self, message: str, *steps: str | int, is_supported: bool = True, names_field: bool = False
    ) -> None:
        super().__init__(message)
        self.steps = steps
        self.names_field = names_field
        self.is_supported = is_supported


class Strictly(BaseModel):
    """A request or a part of it, in which unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    @model_validator(mode="before")
    @classmethod
    def _few_fields(cls, given: Any) -> Any:
        """Refuse far more fields than exist, because each would be an error."""
        known = len(cls.model_fields)
        if isinstance(given, Mapping) and len(given) > known + _MAX_ERRORS:
            raise Wrong(
                f"The request has {len(given):,} fields, but only {known} fields are known."
            )
        return given


class Request(Strictly):
    """The base of all requests.

    Attributes:
        model: id or alias of the model; None: the runner's default.
    """

    _MAIN: ClassVar[str | None] = None
    """The field that is set if a text or list is passed instead of a request."""

    _MAIN_KINDS: ClassVar[tuple[type, ...]] = (str, list, tuple)
    """The types that may be passed instead of a request."""

    model: StrictStr | None = None

    def __init__(self, **fields: Any) -> None:
        """Check the fields.

        Raises:
            RequestError: a field is unknown, unsupported or wrong; ``param`` names it.
        """
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise refused(type(self), error) from None

    @classmethod
    def of(
        cls: type[RequestT], given: Any, fields: Mapping[str, Any], model: str | None = None
    ) -> RequestT:
        """Return the request that a caller means.

        Args:
            given: a request, a dict or None; for most requests also a value of the main field.
            fields: fields passed by name; they replace those of ``given``.
            model: replaces the model of ``given``, unless None.

        Raises:
            RequestError: ``given`` is something else, or a field is wrong.
        """
        if model is not None:
            fields = {**fields, "model": model}
        if isinstance(given, cls):
            if not fields:
                return given
            given = {name: getattr(given, name) for name in given.model_fields_set}
        elif given is None:
            given = {}
        elif cls._MAIN is not None and isinstance(given, cls._MAIN_KINDS):
            if cls._MAIN in fields:
                raise RequestError(
                    f"{cls._MAIN} is given twice: by position and by name. Remove one of them.",
                    param=cls._MAIN,
                )
            given = {cls._MAIN: given}
        elif not isinstance(given, Mapping):
            raise RequestError(
                f"The request is a {type(given).__name__}. Pass a {cls.__name__}, a dict, or its "
                "fields as keyword arguments."
            )
        return cls(**{**given, **fields})


def unknown(name: str, known: Iterable[str]) -> str:
    """Return the message that a request has no such field, with the one of ``known`` that was
    probably meant."""
    name = name[:_LONGEST_NAME]
    message = f"{name} is not supported."
    if name in NOT_HERE:
        return f"{message} {NOT_HERE[name]}"
    close = difflib.get_close_matches(name, known, n=1)
    return f"{message} Did you mean {close[0]}?" if close else message


def refused(kind: type[BaseModel], error: ValidationError) -> RequestError:
    """Return Pydantic's error for the first wrong field as a RequestError that names its path."""
    found = error.errors(include_url=False)
    paths = [steps_of(one["loc"], is_name=one["type"] in _UNKNOWN) for one in found]
    # Each member of a union reports an error: the one that got furthest was meant.
    alike = [i for i, path in enumerate(paths) if path[: len(paths[0])] == paths[0]]
    chosen = max(alike, key=lambda i: len(paths[i]))
    first, steps = found[chosen], paths[chosen]
    param = place(steps)
    if first["type"] in _UNKNOWN:
        name = str(steps[-1])
        message = f"{param} is not a supported field."
        if len(steps) == 1:
            message = unknown(name, kind.model_fields)
        return RequestError(message, param=param, kind="unsupported")
    context = first.get("ctx", {})
    if "at" in context:
        param = place([*steps, context["at"]])
    cause = context.get("error")
    if isinstance(cause, Wrong):
        steps += cause.steps
        param = place(steps)
        is_placed = not steps or (cause.names_field and len(steps) == 1)
        return RequestError(
            str(cause) if is_placed else f"{param}: {cause}",
            param=param or None,
            kind="invalid" if cause.is_supported else "unsupported",
        )
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "union_tag_invalid":
        message = "{discriminator} is {tag!r}, which is not one of {expected_tags}".format(
            **context
        )
    if not steps:
        return RequestError(f"{message[:1].upper()}{message[1:]}.", param=None)
    if first["type"] == "missing":
        instead = next(
            (
                f" {place(path)} is not supported. Did you mean {param}?"
                for one, path in zip(found, paths, strict=True)
                if one["type"] in _UNKNOWN and path[:-1] == steps[:-1]
            ),
            "",
        )
        return RequestError(f"{param} is missing.{instead}", param=param, kind="missing")
    return RequestError(f"{param}: {message} (got {shown(first['input'])})", param=param)


_UNKNOWN = ("extra_forbidden", "none_required")
"""Pydantic's error types for a field that does not exist, and one that may only be null."""


def steps_of(loc: Sequence[str | int], *, is_name: bool) -> list[str | int]:
    """Return a place in a request as steps; ``is_name``: the last step is a name."""
    head, last = (loc[:-1], loc[-1:]) if is_name else (loc, ())
    # Steps that are not names of fields are Pydantic's names for members of a union.
    members = ("str", "list", "dict", "bool", "int", "float", "TextPart")
    named = (one for one in head if one not in members)
    return [*(one for one in named if isinstance(one, int) or one.isidentifier()), *last]


def shown(value: Any) -> str:
    """Return a value as text, or its beginning."""
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"


def only(given: Mapping[str, Any], known: set[str], param: str) -> None:
    """Refuse an object with an unknown key.

    Raises:
        RequestError: a key is unknown; the error names its path.
    """
    for name in given:
        if name not in known:
            raise RequestError(
                f"{param}.{name} is not supported. Known fields: {', '.join(sorted(known))}.",
                param=f"{param}.{name}",
                kind="unsupported",
            )


def placed(error: OutputTypeError, param: str) -> RequestError:
    """Return an error of a schema or grammar with its place in the request."""
    path = str(getattr(error, "path", ""))
    if path.startswith("$"):  # in a grammar the place is the name of a rule, which the message has
        param += path.removeprefix("$")
    return RequestError(f"{param}: {error}", param=param)
