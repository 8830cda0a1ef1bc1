"""Ready-made types whose texts are listed: countries, currencies, languages, time zones, airports.

Owns which package each list comes from and which of its fields. The packages are those of the extra
``types``, imported when a list is first used, so the texts are those of the version installed. They
are sorted, for outputs under a seed must not depend on an order. Knows no patterns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .ready_type import Ready, package


def _listed(name: str, about: str, texts: Callable[[str], Iterable[Any]]) -> Ready:
    def read() -> Sequence[str]:
        return sorted({str(text) for text in texts(name) if text})

    return Ready(name, about, texts=read)


def _countries(field: str) -> Callable[[str], Iterable[Any]]:
    return lambda name: (getattr(one, field, None) for one in package("pycountry", name).countries)


def _currencies(field: str) -> Callable[[str], Iterable[Any]]:
    return lambda name: (getattr(one, field, None) for one in package("pycountry", name).currencies)


def _languages(field: str, *, of_two_letters: bool = False) -> Callable[[str], Iterable[Any]]:
    return lambda name: (
        getattr(one, field, None)
        for one in package("pycountry", name).languages
        if not of_two_letters or hasattr(one, "alpha_2")
    )


def _subdivisions(name: str) -> Iterable[Any]:
    return (one.code for one in package("pycountry", name).subdivisions)


def _time_zones(name: str) -> Iterable[Any]:
    from importlib.resources import files

    package("tzdata", name)  # not those of the machine, which differ from one to the next
    return files("tzdata").joinpath("zones").read_text(encoding="utf-8").split()


def _mime_types(name: str) -> Iterable[Any]:
    import mimetypes

    known = mimetypes.MimeTypes()  # what Python knows, without the files of the machine
    return (kind for by_ending in known.types_map_inv for kind in by_ending)


def _airports(field: str) -> Callable[[str], Iterable[Any]]:
    return lambda name: (one[field] for one in package("airportsdata", name).load().values())


LISTS = (
    _listed("country_code", "A country's code of two letters (ISO 3166-1).", _countries("alpha_2")),
    _listed("country_code3", "A country's code of three letters.", _countries("alpha_3")),
    _listed("country_number", "A country's code of three digits.", _countries("numeric")),
    _listed("country_name", "A country's name in English, as in ISO 3166-1.", _countries("name")),
    _listed("country_flag", "A country's flag, as an emoji.", _countries("flag")),
    _listed(
        "subdivision_code", "The code of a state or province (ISO 3166-2): CA-ON.", _subdivisions
    ),
    _listed("currency_code", "A currency's code (ISO 4217): EUR.", _currencies("alpha_3")),
    _listed("currency_number", "A currency's code of three digits.", _currencies("numeric")),
    _listed("currency_name", "A currency's name in English.", _currencies("name")),
    _listed("language_code", "A language's two letters (ISO 639-1).", _languages("alpha_2")),
    _listed("language_code3", "A language's three letters (ISO 639-3).", _languages("alpha_3")),
    _listed(
        "language_name",
        "The English name of a language that has a code of two letters.",
        _languages("name", of_two_letters=True),
    ),
    _listed("time_zone", "A time zone of the IANA's: Europe/Berlin.", _time_zones),
    _listed("mime_type", "A media type that Python knows a file ending for.", _mime_types),
    _listed("airport_iata", "An airport's code of three letters (IATA).", _airports("iata")),
    _listed("airport_icao", "An airport's code of four characters (ICAO).", _airports("icao")),
)
