r"""The ``format`` keyword: which formats assert something, and the regular language of each.

Owns the table of names. The languages are `times` (dates), `web` (names, addresses,
URIs, pointers), `idn` (international names) and `patterns` (regular expressions), each
built on first use. Knows no schema, no automaton, and not whether formats are asserted at all.

Every format is its standard's language, but for what is left out here. Nothing is accepted that a
standard refuses, with one exception: ``idn-email`` counts characters before the ``@``, not octets.

* ``hostname`` (drafts 7 and later), ``idn-hostname`` and host names in e-mail addresses have no
  A-labels (``xn--...``): Punycode is not regular. In ``idn-hostname``, labels and names with
  non-ASCII characters are shorter than allowed, among others: see `idn`.
* ``email`` has no ``\ `` (backslash and space), and no address literals but of IPv4 and IPv6.
* ``relative-json-pointer`` has no index manipulation (``0+1``), which later drafts of it added.
* ``regex`` nests at most `patterns.MAX_NESTING` groups, among others: see there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from structgen.grammar import ir

from . import idn, patterns, times, web

FORMATS: Mapping[str, Callable[[], ir.Regex]] = MappingProxyType(
    {
        "date": times.date,
        "date-time": times.date_time,
        "duration": times.duration,
        "email": web.email,
        "hostname": web.hostname,
        "idn-email": idn.idn_email,
        "idn-hostname": idn.idn_hostname,
        "ipv4": web.ipv4,
        "ipv6": web.ipv6,
        "iri": web.iri,
        "iri-reference": web.iri_reference,
        "json-pointer": web.json_pointer,
        "regex": patterns.regex,
        "relative-json-pointer": web.relative_json_pointer,
        "time": times.time,
        "uri": web.uri,
        "uri-reference": web.uri_reference,
        "uri-template": web.uri_template,
        "uuid": web.uuid,
    }
)
"""Formats that assert something, in every draft, and the function that builds their language."""

_PYDANTIC = (
    "base64url binary color directory-path file-path fraction ipv4interface ipv4network "
    "ipv6interface ipv6network ipvanyaddress ipvanyinterface ipvanynetwork json-string "
    "multi-host-uri name-email password path time-delta zoneinfo"
)
_OPENAPI = (
    "base64url binary byte char commonmark date-time-local decimal decimal128 double double-int "
    "float html http-date int16 int32 int64 int8 media-range password sf-binary sf-boolean "
    "sf-decimal sf-integer sf-string sf-token time-local uint16 uint32 uint64 uint8 unixtime"
)
ANNOTATION_FORMATS = frozenset(f"{_PYDANTIC} {_OPENAPI}".split())
"""Formats that Pydantic writes or OpenAPI registers, and that assert nothing here. Nor do formats
of unknown name."""


MOST_LEAST: Mapping[str, int] = MappingProxyType({"idn-email": 32, "idn-hostname": 20})
"""Largest ``minLength`` beside formats that need many states by themselves: more is too many."""

FEWEST: Mapping[str, int] = MappingProxyType(
    {
        "date": 10,
        "date-time": 20,
        "duration": 3,
        "email": 3,
        "hostname": 1,
        "idn-email": 3,
        "idn-hostname": 1,
        "ipv4": 7,
        "ipv6": 2,
        "iri": 2,
        "iri-reference": 0,
        "json-pointer": 0,
        "regex": 0,
        "relative-json-pointer": 1,
        "time": 9,
        "uri": 2,
        "uri-reference": 0,
        "uri-template": 0,
        "uuid": 36,
    }
)
"""Characters of a shortest string of each format: there is one of printable ASCII."""


def format_regex(name: str, dialect: str | None = None) -> ir.Regex | None:
    """The language of strings that ``format: name`` allows.

    Args:
        name: the keyword's value. Names are case-sensitive.
        dialect: ``draft4``, ``draft6``, ``draft7``, ``draft2019-09`` or ``draft2020-12``, the
            default. Only ``hostname`` depends on it: before draft 7 it knows no A-labels, and
            ``xn--...`` is a label like any other. A format that a draft does not define yet, such
            as ``uuid`` in draft 7, is asserted all the same.

    Returns:
        The language, the same object each time; None for an annotation: a format in
        `ANNOTATION_FORMATS` or an unknown one. The first call for a name costs about 2 ms; 0.5 s
        for ``idn-hostname`` and ``idn-email``, which read the Unicode database.
    """
    if name == "hostname" and dialect in ("draft4", "draft6"):
        return web.hostname_rfc1034()
    build = FORMATS.get(name)
    if build is None:
        return None
    regex = build()
    _BUILT[regex] = name
    return regex


_BUILT: dict[ir.Regex, str] = {}


def format_of(regex: ir.Regex) -> str | None:
    """The format whose expression `format_regex` has given, if one has."""
    return _BUILT.get(regex)
