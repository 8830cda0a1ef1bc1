"""Bodies that are forms: how clients send files.

Parses ``multipart/form-data`` into parts by name, within limits.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from .errors import ApiError
from .wire import check_names, refused

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
