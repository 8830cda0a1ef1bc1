r"""The ``format`` keyword: which formats assert something, and the regular language of each.

Owns the table of names. The languages are `formats_time` (dates), `formats_web` (names, addresses,
URIs, pointers), `formats_idn` (international names) and `formats_regex` (regular expressions), each
built on first use. Knows no schema, no automaton, and not whether formats are asserted at all.

Every format is its standard's language, but for what is left out here. Nothing is accepted that a
standard refuses, with one exception: ``idn-email`` counts characters before the ``@``, not octets.

* ``hostname`` (drafts 7 and later), ``idn-hostname`` and host names in e-mail addresses have no
  A-labels (``xn--...``): Punycode is not regular. In ``idn-hostname``, labels and names with
  non-ASCII characters are shorter than allowed, among others: see `formats_idn`.
* ``email`` has no ``\ `` (backslash and space), and no address literals but of IPv4 and IPv6.
* ``relative-json-pointer`` has no index manipulation (``0+1``), which later drafts of it added.
* ``regex`` nests at most `formats_regex.MAX_NESTING` groups, among others: see there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from . import formats_idn, formats_regex, formats_time, formats_web, ir

FORMATS: Mapping[str, Callable[[], ir.Regex]] = MappingProxyType(
    {
        "date": formats_time.date,
        "date-time": formats_time.date_time,
        "duration": formats_time.duration,
        "email": formats_web.email,
        "hostname": formats_web.hostname,
        "idn-email": formats_idn.idn_email,
        "idn-hostname": formats_idn.idn_hostname,
        "ipv4": formats_web.ipv4,
        "ipv6": formats_web.ipv6,
        "iri": formats_web.iri,
        "iri-reference": formats_web.iri_reference,
        "json-pointer": formats_web.json_pointer,
        "regex": formats_regex.regex,
        "relative-json-pointer": formats_web.relative_json_pointer,
        "time": formats_time.time,
        "uri": formats_web.uri,
        "uri-reference": formats_web.uri_reference,
        "uri-template": formats_web.uri_template,
        "uuid": formats_web.uuid,
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
        return formats_web.hostname_rfc1034()
    build = FORMATS.get(name)
    if build is None:
        return None
    regex = build()
    _BUILT[id(regex)] = name
    return regex


_BUILT: dict[int, str] = {}


def format_of(regex: ir.Regex) -> str | None:
    """The format whose language `format_regex` has given as this very object, if one has."""
    return _BUILT.get(id(regex))
