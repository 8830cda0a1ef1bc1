"""Ready-made types that a pattern describes: characters, addresses, versions, sentences, dates.

Owns the patterns. Those that other parts of structgen know already (IP addresses, e-mail) are
theirs. Knows no lists of words and no check digits.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from structgen.errors import OptionError
from structgen.grammar.regex import algebra as regex_algebra

from .. import networks
from .ready_type import Ready

if TYPE_CHECKING:
    from pydantic_core import CoreSchema

_HEX = "[0-9A-Fa-f]"
_NUMBER = "(?:0|[1-9][0-9]*)"
# An identifier of a pre-release: a number without leading zeros, or not only of digits.
_BEFORE = f"(?:{_NUMBER}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_SEMVER = (
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-{_BEFORE}(?:\.{_BEFORE})*)?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)

# A letter that is no lower-case Latin one; a mark ends a sentence unless text follows it at once.
_SENTENCE = r"[^\W\d_a-zß-öø-ÿ](?:[^.!?\n\r]|[.!?]+[^.!?\s])*[.!?]+"

_MEDIA = "application audio example font haptics image message model multipart text video"
_RESTRICTED = r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+\-]{0,126}"


def _pattern(source: str, flags: int = 0) -> Callable[[], list[Any]]:
    return lambda: ["regex", source, flags]


def _network(make: Callable[[], networks.Schema]) -> Callable[[], list[Any]]:
    """The expression of a schema of `networks`: its own, or its pattern's."""

    def expression() -> list[Any]:
        schema = make()
        known: list[Any] | None = schema.get(regex_algebra.KEYWORD)
        return known or ["regex", schema["pattern"].removeprefix("^").removesuffix("$"), re.ASCII]

    return expression


PATTERNS = (
    Ready("digit", "A digit, 0 to 9.", _pattern("[0-9]")),
    Ready("char", "A letter or digit of any script, or an underscore.", _pattern(r"\w")),
    Ready("newline", "The end of a line, on any system.", _pattern(r"\r\n|\r|\n")),
    Ready("whitespace", "A character of whitespace.", _pattern(r"\s")),
    Ready("hex_str", "Hexadecimal digits, perhaps after 0x.", _pattern(f"(?:0x)?{_HEX}+")),
    Ready(
        "uuid4",
        "A random UUID (version 4, RFC 9562).",
        _pattern(f"{_HEX}{{8}}-{_HEX}{{4}}-4{_HEX}{{3}}-[89abAB]{_HEX}{{3}}-{_HEX}{{12}}"),
    ),
    Ready("ipv4", "An IPv4 address.", _network(lambda: networks.address(4))),
    Ready("ipv6", "An IPv6 address (RFC 3986), no zone.", _network(lambda: networks.address(6))),
    Ready("semver", "A version as Semantic Versioning 2.0.0 has it.", _pattern(_SEMVER)),
    Ready(
        "mac_address",
        "A MAC address of six octets, with colons or with hyphens.",
        _pattern(f"{_HEX}{{2}}(?::{_HEX}{{2}}){{5}}|{_HEX}{{2}}(?:-{_HEX}{{2}}){{5}}"),
    ),
    Ready("hex_color", "A colour: #rgb or #rrggbb.", _pattern(f"#{_HEX}{{3}}(?:{_HEX}{{3}})?")),
    Ready(
        "slug",
        "Words of lower-case ASCII letters and digits, with a hyphen between two.",
        _pattern("[a-z0-9]+(?:-[a-z0-9]+)*"),
    ),
    Ready(
        "sentence",
        "One line from a capital letter to the first mark (. ! ?) that a blank or the end follows.",
        _pattern(_SENTENCE),
    ),
    Ready(
        "paragraph",
        "One or more sentences on a line, with a blank between two.",
        _pattern(f"{_SENTENCE}(?: {_SENTENCE})*"),
    ),
    Ready("email", "An e-mail address, as for pydantic.EmailStr.", _network(networks.email)),
    Ready(
        "media_type",
        "A media type by its form (RFC 6838): a registered top-level type and any subtype.",
        _pattern(f"(?:{'|'.join(_MEDIA.split())})/{_RESTRICTED}"),
    ),
)


@dataclass(frozen=True, slots=True)
class DateRange:
    """The dates from ``first`` to ``last``: a type by itself, and in ``Annotated[date, …]``."""

    first: dt.date
    last: dt.date

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.date_schema(ge=self.first, le=self.last)


def recent_date(years: int = 10, *, until: dt.date | None = None) -> DateRange:
    """Return the type of dates up to ``until``, from 1 January of ``years`` years before its year.

    The bounds are fixed by this call: the type and its mask do not change with the clock later.

    Args:
        years: how many years before that of ``until`` are allowed, too.
        until: the last date. None: 31 December of the current year, so that the same code gives
            the same type all year long. Pass a date where next year must not change it either.

    Raises:
        OptionError: ``years`` is negative or no int, or ``until`` is no date.
    """
    last = dt.date(dt.date.today().year, 12, 31) if until is None else until
    if type(last) is not dt.date:
        raise OptionError(f"until={until!r}. Pass a datetime.date, such as date(2026, 12, 31).")
    if type(years) is not int or not 0 <= years < last.year:
        raise OptionError(f"years={years!r}. Pass an int from 0 to {last.year - 1}.")
    return DateRange(dt.date(last.year - years, 1, 1), last)
