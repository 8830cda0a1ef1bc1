"""Every type that Pydantic exports: enforced, so that what masks allow validates, or refused."""

from __future__ import annotations

import collections
import datetime as dt
import fractions
import importlib.util
import ipaddress
import json
import pathlib
import re
import zoneinfo
from collections.abc import Hashable, Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any

import pydantic
import pydantic.color
import pytest
from byte_walks import BYTES, walk
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, TypeAdapter, WrapValidator
from pydantic import networks as pydantic_networks
from pydantic import types as pydantic_types
from pydantic_core import core_schema

import structgen
from structgen.errors import OutputTypeError, ParseError, UnsupportedFeature
from structgen.types import lower

HAS_EMAIL = importlib.util.find_spec("email_validator") is not None


def _names(text: str) -> set[str]:
    return set(text.split())


ENFORCED = _names(
    """
    AnyUrl AnyHttpUrl FileUrl FtpUrl HttpUrl WebsocketUrl AnyWebsocketUrl EmailStr NameEmail
    IPvAnyAddress IPvAnyInterface IPvAnyNetwork PostgresDsn CockroachDsn AmqpDsn RedisDsn MongoDsn
    KafkaDsn NatsDsn MySQLDsn MariaDBDsn ClickHouseDsn SnowflakeDsn StrictStr PositiveInt
    NegativeInt NonNegativeInt NonPositiveInt PositiveFloat NegativeFloat NonNegativeFloat
    NonPositiveFloat FiniteFloat UUID1 UUID3 UUID4 UUID5 UUID6 UUID7 UUID8 SecretStr SecretBytes
    StrictBool StrictBytes StrictInt StrictFloat ByteSize AwareDatetime NaiveDatetime Base64Bytes
    Base64Str Base64UrlBytes Base64UrlStr JsonValue OnErrorOmit PaymentCardNumber
    """
)
REFUSED = _names(
    """
    SocketPath ImportString FilePath DirectoryPath NewPath Json
    """
)
CHECKED = _names("PastDate FutureDate PastDatetime FutureDatetime")
"""What depends on the clock: the mask has the dates, and parsing checks the rest."""

NO_TYPES = _names(
    """
    UrlConstraints validate_email Strict conbytes conlist conset confrozenset constr conint
    confloat condecimal condate Secret AllowInfNan EncoderProtocol EncodedBytes EncodedStr
    Base64Encoder GetPydanticSchema StringConstraints Tag Discriminator FailFast
    """
)
"""What marks, makes or holds types, and is none that a value has."""


def exported(name: str) -> Any:
    home = pydantic_networks if name in pydantic_networks.__all__ else pydantic_types
    return getattr(home, name)


def test_every_exported_type_has_its_place() -> None:
    """A type that a new Pydantic brings has to be put somewhere, or it fails here."""
    names = {*pydantic_networks.__all__, *pydantic_types.__all__}
    places = (ENFORCED, CHECKED, REFUSED, NO_TYPES)
    assert names <= set().union(*places)
    assert sum(map(len, places)) == len(set().union(*places))


class Loose(BaseModel):
    x: int


OTHERS: list[Any] = [
    ipaddress.IPv4Address,
    ipaddress.IPv6Address,
    ipaddress.IPv4Network,
    ipaddress.IPv6Network,
    ipaddress.IPv4Interface,
    ipaddress.IPv6Interface,
    pathlib.Path,
    pathlib.PurePosixPath,
    fractions.Fraction,
    bytes,
    complex,
    pydantic.Secret[int],
    collections.deque[int],
    collections.OrderedDict[str, int],
    collections.defaultdict[str, int],
    collections.Counter[str],
    Sequence[int],
    Mapping[str, int],
    Annotated[pydantic.SecretStr, Field(min_length=2, max_length=3)],
    Annotated[pydantic.SecretBytes, Field(min_length=2, max_length=3)],
    Annotated[Sequence[int], Field(max_length=2)],
    Annotated[collections.deque[int], Field(min_length=1, max_length=2)],
    Annotated[pydantic.AnyUrl, pydantic.UrlConstraints(max_length=20)],
    Annotated[pydantic.AnyUrl, pydantic.UrlConstraints(allowed_schemes=["a+b", "file"])],
    Annotated[pydantic.AnyUrl, pydantic.UrlConstraints(default_host="h", max_length=25)],
    Annotated[pydantic.AnyUrl, pydantic.UrlConstraints(host_required=True)],
    dict[pydantic.HttpUrl, pydantic.IPvAnyAddress],
    Hashable,
    Annotated[set[Any], Field(min_length=1)],
]


def check_walks(output_type: Any, count: int = 25) -> None:
    adapter = TypeAdapter(list[output_type])
    constraint = structgen.compile(Annotated[list[output_type], Field(min_length=1)], BYTES)
    for seed in range(count):
        text = walk(constraint, seed, (10, 30, 60, 150)[seed % 4])
        try:
            adapter.validate_json(text)
        except pydantic.ValidationError as error:
            pytest.fail(f"seed {seed}: {text}: {error}")
        # What Pydantic refuses, parsing does.
        assert isinstance(lower(list[output_type]).parse(text), list)


@pytest.mark.parametrize("name", sorted(ENFORCED))
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_masks_of_exported_types_allow_validates(name: str) -> None:
    if name in ("EmailStr", "NameEmail") and not HAS_EMAIL:
        pytest.skip("needs email-validator")
    if name in (*pydantic_networks.__all__, *pydantic_types.__all__):
        check_walks(exported(name))


@pytest.mark.parametrize("output_type", OTHERS, ids=str)
def test_what_masks_of_other_types_allow_validates(output_type: Any) -> None:
    check_walks(output_type)


@pytest.mark.parametrize("name", sorted(REFUSED))
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_is_refused_says_where_and_what_instead(name: str) -> None:
    output_type = pydantic.Json[int] if name == "Json" else exported(name)
    for shape, path in ((output_type, "$"), (list[output_type], "$.items")):
        with pytest.raises(UnsupportedFeature) as caught:
            lower(shape)
        assert caught.value.path == path
        assert caught.value.fix


@pytest.mark.parametrize(
    "output_type",
    [
        zoneinfo.ZoneInfo,
        re.Pattern[str],
        Annotated[pydantic.HttpUrl, Field(max_length=20)],
        Annotated[fractions.Fraction, Field(ge=1)],
        Annotated[pydantic.ByteSize, Field(ge=1)],
        Annotated[pathlib.Path, Field(max_length=20)],
        Annotated[bytes, pydantic.EncodedBytes(type("Mine", (), {}))],
        Annotated[pydantic.IPvAnyAddress, pydantic.StringConstraints(pattern="^1")],
        set[list[int]],
        frozenset[dict[str, int]],
        set[Loose],
    ],
    ids=str,
)
def test_constraints_and_types_that_are_not_masked_are_refused(output_type: Any) -> None:
    with pytest.raises(OutputTypeError) as caught:
        lower(list[output_type])
    assert any(word in str(caught.value) for word in ("supported", "depend", "import"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_deprecated_colors_are_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="Color"):
        lower(list[pydantic.color.Color])


@pytest.mark.parametrize(
    ("output_type", "good", "bad"),
    [
        (pydantic.HttpUrl,
         ["http://a.de", "https://u:p@x.example.org:8080/a/b?q=1&r=%20#top", "http://[::1]/",
          "http://1.2.3.4/"],
         ["ftp://a.de", "http://", "a.de", "http://a.de:70000", "http://1.2.3.999",
          "http://xn--a.de"]),
        (pydantic.AnyUrl, ["foo://h", "mailto:a@b.c", "urn:isbn:1", "file:///x"],
         ["http:x", "https:", "//a"]),
        (pydantic.PostgresDsn, ["postgres://u:p@a.b:1,c:2/db"], ["postgres://", "mysql://a/b"]),
        (pydantic.IPvAnyAddress,
         ["1.2.3.4", "::1", "2001:db8::8a2e:370:7334", "::ffff:1.2.3.4"],
         ["hello", "1.2.3", "1.2.3.04", "1:2:3", "::1%eth0"]),
        (ipaddress.IPv4Network, ["10.0.0.0/8", "192.168.4.0/22", "1.2.3.4"],
         ["10.0.0.1/8", "1.2.3.4/33", "hello"]),
        (ipaddress.IPv6Network,
         ["2001:db8::/32", "::/0", "1:2:3:4:5:6:7:8/128", "fe80::/10", "1:8000::/17"],
         ["2001:db8::1/32", "fea0::/10", "::/129"]),
        (ipaddress.IPv4Interface, ["1.2.3.4/24", "1.2.3.4"], ["1.2.3.4/33"]),
        (ipaddress.IPv6Address, ["::", "1::2:3:4:5:6:7"], ["1.2.3.4", "1:2:3:4:5:6:7:8:9"]),
        (pydantic.Base64Bytes, ["", "aGk=", "aGkh", "/+8="], ["a", "aGl=", "aGk", "hello!"]),
        (pydantic.Base64UrlBytes, ["_-8="], ["/+8="]),
        (pydantic.Base64Str, ["aGk="], ["/+8="]),
        (pydantic.ByteSize, ["1.5 GiB", "10KB", "3B"], ["x", "1 XB"]),
        (fractions.Fraction, ["1/3", "-7"], ["1/0", "x"]),
        (Annotated[Decimal, Field(multiple_of=Decimal("0.05"))], ["1" * 26 + ".05"],
         ["1" * 27, "1" * 40 + ".05"]),
        (Annotated[Decimal, Field(multiple_of=1)], ["9" * 28 + ".00"], ["1" + "0" * 28]),
    ],
    ids=str,
)  # fmt: skip
def test_texts_of_types(output_type: Any, good: list[str], bad: list[str]) -> None:
    constraint = structgen.compile(list[output_type], BYTES)
    adapter = TypeAdapter(output_type)
    for text in good:
        assert constraint.allows(json.dumps([text], separators=(",", ":"))), text
        adapter.validate_json(json.dumps(text))
    for text in bad:
        assert not constraint.allows(json.dumps([text], separators=(",", ":"))), text


@pytest.mark.parametrize(
    "value",
    [
        ipaddress.ip_network("10.128.0.0/9"),
        ipaddress.ip_network("2001:db8:0:1::/64"),
        ipaddress.ip_interface("1.2.3.4/24"),
        ipaddress.ip_interface("fe80::1/64"),
        ipaddress.ip_address("::ffff:1.2.3.4"),
        pydantic.HttpUrl("https://Example.com/a b?c=d"),
        pydantic.PostgresDsn("postgres://u@a,b:1/x"),
        pathlib.Path("a/b c"),
    ],
    ids=str,
)
def test_what_pydantic_dumps_is_allowed(value: Any) -> None:
    text = TypeAdapter(list[type(value)]).dump_json([value]).decode()  # type: ignore[misc]
    assert structgen.compile(list[type(value)], BYTES).allows(text)


# E-mail addresses: the language is ours, and held against email-validator where it is installed.

GOOD_EMAIL = ["ada@math.org", "a.b+c@x-y.co.uk", "A_1@b.C", "a@b.de"]
BAD_EMAIL = ["a@b", "a@b.local", "a@b.Test", "a@b.c1", "a..b@c.de", "@c.de", "a@-b.de",
             "a@xn--b.de", f"a@{64 * 'b'}.de", "a b@c.de", "Ada <a@b.de>", "a@b.de."]  # fmt: skip


@pytest.mark.skipif(not HAS_EMAIL, reason="needs email-validator")
def test_email_addresses() -> None:
    constraint = structgen.compile(list[pydantic.EmailStr], BYTES)
    named = structgen.compile(list[pydantic.NameEmail], BYTES)
    for text in GOOD_EMAIL:
        assert constraint.allows(f'["{text}"]')
        assert named.allows(f'["Ada Łovelace Jr. <{text}>"]')
    for text in BAD_EMAIL:
        assert not constraint.allows(f'["{text}"]'), text
    dumped = TypeAdapter(pydantic.NameEmail).dump_json(pydantic.NameEmail("ada", "ada@math.org"))
    assert named.allows(f"[{dumped.decode()}]")


@pytest.mark.skipif(HAS_EMAIL, reason="email-validator is installed")
def test_email_addresses_need_their_package() -> None:
    with pytest.raises(OutputTypeError, match=r"pip install 'pydantic\[email\]'"):
        lower(pydantic.EmailStr)


# Code, the clock, and bounds on what has many spellings


LOOKED_AT: list[Any] = [
    *map(exported, sorted(CHECKED)),
    Annotated[dt.time, Field(ge=dt.time(5))],
    Annotated[dt.datetime, Field(ge=dt.datetime(2024, 1, 1), lt=dt.datetime(2024, 1, 2))],
    Annotated[dt.timedelta, Field(ge=dt.timedelta(1), lt=dt.timedelta(2))],
    Annotated[dt.date, Field(ge=dt.date(2000, 1, 1)), Field(lt=dt.date(2010, 1, 1))],
]


@pytest.mark.parametrize("output_type", LOOKED_AT, ids=str)
def test_what_masks_leave_to_parsing_is_told(output_type: Any) -> None:
    """The rest is masked: what Pydantic refuses is refused for that reason alone."""
    told = {note for _, note in rows(list[output_type])}
    constraint = structgen.compile(Annotated[list[output_type], Field(min_length=1)], BYTES)
    n_refused = 0
    for seed in range(25):
        text = walk(constraint, seed, 60)
        try:
            TypeAdapter(list[output_type]).validate_json(text)
        except pydantic.ValidationError as error:
            n_refused += 1
            kinds = {problem["type"] for problem in error.errors()}
            assert kinds <= {
                *("date_past", "date_future", "datetime_past", "datetime_future"),
                *("greater_than_equal", "less_than"),
            }
            with pytest.raises(ParseError):
                lower(list[output_type]).parse(text)
    assert bool(told) == bool(n_refused)
    assert rows(output_type) if told else not rows(output_type)


def even(value: int) -> int:
    if value % 2:
        raise ValueError("odd")
    return value


class Sized(BaseModel):
    size: Annotated[int, AfterValidator(even)]
    name: Annotated[str, BeforeValidator(str.strip)] = ""

    @pydantic.field_validator("name")
    @classmethod
    def no_dots(cls, value: str) -> str:
        return value

    @pydantic.model_validator(mode="after")
    def agree(self) -> Sized:
        return self


def rows(output_type: Any) -> set[tuple[str, str]]:
    explanation = structgen.compile(output_type, BYTES).explain()
    return {(row.path, row.note) for row in explanation.rows if row.how == "checked by parse"}


def test_code_is_left_to_parsing_and_told() -> None:
    assert rows(Sized) == {
        ("$", "agree"),
        ("$.properties.size", "even"),
        ("$.properties.name", "strip"),
        ("$.properties.name", "no_dots"),
    }
    assert rows(list[Sized]) == {
        ("$.$defs.Sized", "agree"),
        ("$.$defs.Sized.properties.size", "even"),
        ("$.$defs.Sized.properties.name", "strip"),
        ("$.$defs.Sized.properties.name", "no_dots"),
    }
    assert rows(Annotated[int | None, AfterValidator(even)]) == {("$", "even")}
    assert rows(Annotated[pydantic.HttpUrl, WrapValidator(lambda value, handler: handler(value))])
    assert rows(list[Annotated[str, AfterValidator(str.upper), Field(pattern="A")]])
    assert not rows(pydantic.HttpUrl)
    assert not rows(list[Annotated[str, structgen.Regex("a+")]])
    constraint = structgen.compile(Sized, BYTES)
    assert constraint.allows('{"size":3}')
    with pytest.raises(ParseError, match="odd"):
        lower(Sized).parse('{"size":3}')
    assert "checked by parse" in str(constraint.explain())


def test_functions_of_pydantic_that_are_unknown_are_refused() -> None:
    def check(value: Any) -> Any:
        return value

    check.__module__, check.__qualname__ = "pydantic.networks", "Planet._validate"

    class Planet:
        @classmethod
        def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
            return core_schema.no_info_after_validator_function(check, core_schema.str_schema())

    with pytest.raises(
        UnsupportedFeature, match=r"pydantic\.networks\.Planet\._validate"
    ) as caught:
        lower(list[Planet])
    assert caught.value.path == "$.items"


def _never(value: int) -> int:
    raise ValueError("never")


def test_what_is_wrong_in_many_places_is_told_once() -> None:
    lowered = lower(list[Annotated[int, AfterValidator(_never)]])
    with pytest.raises(ParseError, match=r"Value error, never at \$\[0\], \$\[1\], \$\[2\]\. Text"):
        lowered.parse("[1, 2, 3]")
    with pytest.raises(ParseError, match=r"at \$\[0\], \$\[1\], \$\[2\], \$\[3\], \$\[4\]\. Text"):
        lowered.parse("[1, 2, 3, 4, 5, 6]")


def test_a_constraint_that_pydantic_cannot_apply_to_a_member_is_an_error_of_ours() -> None:
    # Pydantic raises a plain RuntimeError.
    kind = Annotated[int | str, Field(union_mode="left_to_right")]
    with pytest.raises(OutputTypeError, match="Unable to apply constraint 'union_mode'"):
        lower(kind)
