"""Types whose JSON is a string, as the whole output: bare text, without quotes."""

from __future__ import annotations

import ipaddress
import pathlib
from typing import Annotated, Any

import pydantic
import pytest
from byte_walks import BYTES, allowed, walk
from pydantic import Field, TypeAdapter

import structgen
from structgen.types import lower

FREE: list[tuple[Any, str, Any]] = [
    (str, "a\nb", "a\nb"),
    (str, "", ""),
    (pydantic.StrictStr, "12", "12"),
    (Annotated[str, Field(description="x")], '"quoted"', '"quoted"'),
    (bytes, "ä\x00", "ä\x00".encode()),
    (pathlib.Path, "a/b", pathlib.Path("a/b")),
    (pathlib.PurePath, "a/b", pathlib.PurePath("a/b")),
    (pathlib.PurePosixPath, "a/b", pathlib.PurePosixPath("a/b")),
    (pathlib.PureWindowsPath, "a\\b", pathlib.PureWindowsPath("a\\b")),
    (pydantic.SecretStr, "x y", pydantic.SecretStr("x y")),
    (pydantic.SecretBytes, "x y", pydantic.SecretBytes(b"x y")),
]


@pytest.mark.parametrize(("output_type", "text", "value"), FREE)
def test_free_text_is_any_text(output_type: Any, text: str, value: Any) -> None:
    constraint = structgen.compile(output_type, BYTES)
    assert constraint.allows(text)
    assert constraint.allows("any text at all: 1, {}, ü\t")
    assert len(allowed(constraint.start())) == 256 - 13 - 64 + 1, "what begins UTF-8, or the end"
    parsed = lower(output_type).parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


def test_free_text_in_a_union_is_what_nothing_else_is() -> None:
    assert lower(str | int).parse("5") == 5
    assert lower(str | None).parse("null") is None
    assert lower(pathlib.Path | int | None).parse("x") == pathlib.Path("x")
    assert structgen.compile(str | None, BYTES).allows("nul")


@pytest.mark.parametrize(
    "output_type",
    [
        pydantic.EmailStr,
        pydantic.AnyUrl,
        pydantic.HttpUrl,
        pydantic.FileUrl,
        pydantic.WebsocketUrl,
        pydantic.PostgresDsn,
        ipaddress.IPv4Address,
        ipaddress.IPv6Address,
        ipaddress.IPv4Network,
        ipaddress.IPv6Network,
        ipaddress.IPv4Interface,
        ipaddress.IPv6Interface,
        pydantic.IPvAnyAddress,
        pydantic.IPvAnyNetwork,
        pydantic.Base64Bytes,
        pydantic.Base64Str,
        pydantic.Base64UrlBytes,
        pydantic.Base64UrlStr,
        Annotated[pydantic.SecretStr, Field(min_length=2, max_length=5)],
        Annotated[bytes, Field(max_length=5)],
    ],
    ids=str,
)
def test_what_masks_allow_validates(output_type: Any) -> None:
    adapter, lowered = TypeAdapter(output_type), lower(output_type)
    constraint = structgen.compile(output_type, BYTES)
    for seed in range(8):
        text = walk(constraint, seed, (10, 30, 60, 150)[seed % 4])
        expected = adapter.validate_python(text)
        assert lowered.parse(text) == expected


def test_an_alias_that_names_itself_in_quotes() -> None:
    constraint = structgen.compile(pydantic.JsonValue, BYTES)
    assert constraint.allows('{"a":[1,null]}')
    assert lower(pydantic.JsonValue).parse('{"a":[1,null]}') == {"a": [1, None]}


def test_a_network_of_one_address_as_python_writes_it() -> None:
    constraint = structgen.compile(ipaddress.IPv6Network, BYTES)
    for text in ("8f43::ade8:cd/128", "::/0", "::/128", "1:2:3:4:5:6:7:8/128", "1::/16"):
        assert constraint.allows(text)
        assert str(lower(ipaddress.IPv6Network).parse(text)) == text
    assert not constraint.allows("8f43::ade8:cd/127")
