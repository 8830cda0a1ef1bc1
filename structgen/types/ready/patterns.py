"""Ready-made types that a pattern describes: characters, addresses, versions, sentences.

Owns the patterns. Those that other parts of structgen know already (IP addresses, e-mail) are
theirs. Knows no lists of words and no check digits.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from structgen.grammar.regex import algebra as regex_algebra

from .. import networks
from .ready_type import Ready

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
