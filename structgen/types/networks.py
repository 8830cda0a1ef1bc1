"""Languages of network types: URLs, e-mail addresses, IP addresses and networks, Base64.

Each is a JSON Schema of a string. Pydantic accepts every text that it allows. Pydantic itself
accepts and corrects more; the docstrings list what is excluded here. Imports no Pydantic and knows
no grammar.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from structgen.grammar.formats import ATEXT, HEX, IPV4, OCTET, PERCENT, UNRESERVED, ascii_label
from structgen.grammar.regex import algebra as regex_algebra

Schema = dict[str, Any]

_GROUP = f"{HEX}{{1,4}}"


def text(pattern: str, **limits: int) -> Schema:
    """Return the strings that ``pattern`` matches from end to end."""
    return {"type": "string", "pattern": f"^(?:{pattern})$", **limits}


def expression(part: list[Any], **limits: int) -> Schema:
    """Return the strings of an expression of `grammar.regex.algebra`."""
    return {"type": "string", regex_algebra.KEYWORD: part, **limits}


# -- addresses --------------------------------------------------------------------------------


@cache
def _ipv6() -> str:
    """Return a pattern of ``IPv6address`` of RFC 3986: without a zone."""
    end = f"(?:{_GROUP}:{_GROUP}|{IPV4})"
    forms = [f"(?:{_GROUP}:){{6}}{end}", f"::(?:{_GROUP}:){{5}}{end}"]
    for before in range(1, 6):
        head = f"(?:(?:{_GROUP}:){{0,{before - 1}}}{_GROUP})?"
        forms.append(f"{head}::" + (f"(?:{_GROUP}:){{{5 - before}}}{end}"))
    forms.append(f"(?:(?:{_GROUP}:){{0,5}}{_GROUP})?::{_GROUP}")
    forms.append(f"(?:(?:{_GROUP}:){{0,6}}{_GROUP})?::")
    return f"(?:{'|'.join(forms)})"


def address(version: int | None) -> Schema:
    """Return the schema of IP addresses: version 4, 6 or (None) either; version 6 without zone."""
    return text(_either(version, IPV4, _ipv6()))


def interface(version: int | None) -> Schema:
    """Return the schema of addresses with or without the length of their network's prefix."""
    four = f"{IPV4}(?:/(?:3[0-2]|[12]?[0-9]))?"
    six = f"{_ipv6()}(?:/(?:12[0-8]|1[01][0-9]|[1-9]?[0-9]))?"
    return text(_either(version, four, six))


def network(version: int | None) -> Schema:
    """Return the schema of networks: an address with host bits 0 and the prefix's length, or an
    address alone.

    Excluded: lengths as masks, and version 6 with a host part other than ``::``.
    """
    return text(_either(version, _ipv4_networks(), _ipv6_networks()))


def _either(version: int | None, four: str, six: str) -> str:
    return f"{four}|{six}" if version is None else four if version == 4 else six


@cache
def _ipv4_networks() -> str:
    forms = [IPV4]
    for length in range(33):
        whole, bits = divmod(length, 8)
        octets = [OCTET] * whole
        if bits:
            octets.append(f"(?:{'|'.join(map(str, range(0, 256, 1 << (8 - bits))))})")
        octets += ["0"] * (4 - len(octets))
        forms.append(rf"{'[.]'.join(octets)}/{length}")
    return f"(?:{'|'.join(forms)})"


@cache
def _ipv6_networks() -> str:
    forms = [f"{_ipv6()}(?:/128)?"]
    for written in range(8):
        lengths = "|".join(map(str, range(16 * written, 128)))
        head = f"{_GROUP}(?::{_GROUP}){{{written - 1}}}" if written else ""
        forms.append(f"{head}::/(?:{lengths})")
    for whole in range(8):  # groups before the one in which the prefix ends
        rest = "::" if whole < 7 else ""
        for bits in range(1, 16):
            zeros, cut = divmod(16 - bits, 4)
            digits = "".join(f"{digit:x}" for digit in range(0, 16, 1 << cut))
            last = f"{HEX}{{0,{3 - zeros}}}[{digits}{digits[10:].upper()}]0{{{zeros}}}"
            forms.append(f"(?:{_GROUP}:){{{whole}}}{last}{rest}/{16 * whole + bits}")
    return f"(?:{'|'.join(forms)})"


# -- URLs -------------------------------------------------------------------------------------

_SPECIAL = ("http", "https", "ws", "wss", "ftp")
"""Schemes of the WHATWG's standard whose URLs have a host; ``file`` may have an empty one.
"""

_USER = rf"(?:[{UNRESERVED}!$&()*+]|{PERCENT})"
_CHARACTER = rf"(?:[{UNRESERVED}!$&'()*+,;=:@]|{PERCENT})"
_PATH = f"(?:/(?:{_CHARACTER}|/)*)?"
_PORT = (
    "(?::(?:6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}"
    "|[1-9][0-9]{0,3}|0))?"
)
_QUERY = rf"(?:\?(?:[{UNRESERVED}!$&()*+,;=:@/?]|{PERCENT})*)?"
_ENDING = rf"{_QUERY}(?:#(?:{_CHARACTER}|[/?])*)?"


@cache
def _host() -> str:
    # A name whose last label begins with a digit could be an IPv4 address.
    names = rf"(?:{ascii_label()}\.)*{ascii_label('[A-Za-z]')}"
    return rf"(?:{names}|{IPV4}|\[{_ipv6()}\])"


def url(
    schemes: Sequence[str] | None = None,
    *,
    max_length: int | None = None,
    needs_host: bool = False,
    is_hierarchical: bool = False,
    many_hosts: bool = False,
) -> Schema:
    """Return the schema of URLs by RFC 3986, with a lower-case scheme and an ASCII host.

    Excluded: texts that Pydantic would change, such as characters that it escapes with %; host
    names with A-labels (``xn--…``); and URLs whose missing host has a default.

    Args:
        schemes: the allowed schemes; None for all.
        max_length: the most characters.
        needs_host: whether a host is required.
        is_hierarchical: whether ``//`` always follows the scheme.
        many_hosts: whether several hosts are allowed, separated by commas.
    """
    limits = {} if max_length is None else {"maxLength": max_length}
    known = schemes and [s for s in schemes if re.fullmatch(r"[a-z][a-z0-9+.\-]*", s)]
    if known is not None and not known:
        return {"not": {}}
    named = [s for s in known or () if s != "file"]
    one = f"{_host()}{_PORT}"
    hosts = f"{one}(?:,{one})*" if many_hosts else one
    place = f"//(?:(?:{_USER}+(?::{_USER}*)?|:{_USER}+)@)?{hosts}"
    forms: list[str] = []
    if known is None:
        forms.append(rf"[a-z][a-z0-9+.\-]*:{place}{_PATH}{_ENDING}")
    elif named:
        forms.append(rf"(?:{'|'.join(map(re.escape, named))}):{place}{_PATH}{_ENDING}")
    if (known is None or "file" in known) and not needs_host:
        forms.append(rf"file:///(?:{_CHARACTER}|/)*{_ENDING}")
    if known is not None or needs_host or is_hierarchical or many_hosts:
        return text("|".join(forms), **limits) if forms else {"not": {}}
    # Schemes that are not special need no // (mailto:a@b.c, urn:isbn:1).
    special = ["regex", rf"(?:{'|'.join((*_SPECIAL, 'file'))}):[\s\S]*", 0]
    opaque = ["regex", rf"[a-z][a-z0-9+.\-]*:{_CHARACTER}(?:{_CHARACTER}|/)*{_ENDING}", 0]
    whole = ["or", ["regex", "|".join(forms), 0], ["and", opaque, ["not", special]]]
    return expression(whole, **limits)


# -- e-mail -----------------------------------------------------------------------------------

_RESERVED = ("arpa", "invalid", "local", "localhost", "onion", "test")


@cache
def _email() -> list[Any]:
    label = ascii_label()
    top = ascii_label("[A-Za-z]")
    local = ["and", ["regex", rf"[{ATEXT}]+(?:\.[{ATEXT}]+)*", 0], ["regex", r"[\s\S]{1,64}", 0]]
    domain = [
        "and",
        ["regex", rf"(?:{label}\.)+{top}", 0],
        ["regex", r"[\s\S]{1,188}[A-Za-z]", 0],  # 254 with the rest
        ["not", ["regex", rf"[\s\S]*\.(?:{'|'.join(_RESERVED)})", re.IGNORECASE]],
    ]
    return ["then", local, ["regex", "@", 0], domain]


def email() -> Schema:
    """Return the schema of e-mail addresses by email-validator, in ASCII, with at most 254
    characters.

    Excluded: quoted and international ones, local parts of more than 64 characters, domains with
    A-labels, and anything except a bare address.
    """
    return expression(_email())


def name_email() -> Schema:
    """Return the schema of an e-mail address, or a name and an address: ``Ada King
    <ada@math.org>``.

    Excluded: quoted names, and names with characters other than Latin letters, digits or those of
    an unquoted local part.
    """
    word = rf"[{ATEXT}.À-ÖØ-öø-ɏ]{{1,60}}"
    name = ["regex", f"(?:{word}(?: {word}){{0,9}} )?<", 0]
    return expression(["or", _email(), ["then", name, _email(), ["regex", ">", 0]]])


# -- Base64 -----------------------------------------------------------------------------------


def base64(*, is_url: bool = False, is_text: bool = False) -> Schema:
    """Return the schema of Base64 with padding, without line breaks, unused bits 0.

    Args:
        is_url: with ``-`` and ``_`` instead of ``+`` and ``/``.
        is_text: only Base64 of ASCII text. Pydantic accepts all of UTF-8.
    """
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
    alphabet += "-_" if is_url else "+/"

    def sextets(zeros: int) -> str:
        """Return a pattern for a character of six bits, where the bits ``zeros`` are 0."""
        return f"[{re.escape(''.join(c for i, c in enumerate(alphabet) if not i & zeros))}]"

    # The first bit of each of three bytes.
    first, second, third = (0b100000, 0b001000, 0b000010) if is_text else (0, 0, 0)
    a, b, c, d = sextets(first), sextets(second), sextets(third), sextets(0)
    one = f"{a}{sextets(second | 0b001111)}=="
    two = f"{a}{b}{sextets(third | 0b000011)}="
    return text(f"(?:{a}{b}{c}{d})*(?:{one}|{two})?")
