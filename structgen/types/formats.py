"""Patterns of scalars that have a fixed spelling: dates, times, durations, UUIDs, decimals.

Owns the spelling of each such type, as an ECMA-262 pattern anchored at both ends, so that one
source serves a JSON string (`pattern`) and bare text alike. Every text a pattern matches is one
that Pydantic parses into that type. Calendars are real: days per month, leap years, no year 0.
Knows no Pydantic, no schema and no grammar.

Dates with bounds stay regular: the pattern is built from the set of allowed years and, for each,
the set of allowed ``MM-DD``, both folded into nested character classes. Building one costs about
10 ms.
"""

from __future__ import annotations

import calendar
import datetime as dt
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

_HOUR = "(?:[01][0-9]|2[0-3])"
_CLOCK = f"{_HOUR}:[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{{1,6}})?"
_OFFSET = f"(?:Z|[+-]{_HOUR}:[0-5][0-9])"
_HEX = "[0-9a-f]"

Zone = Literal["optional", "required", "forbidden"]
"""Whether a time of day carries a UTC offset."""


@lru_cache(maxsize=64)
def date_pattern(first: dt.date = dt.date.min, last: dt.date = dt.date.max) -> str:
    """Pattern of the ISO dates (``2024-02-29``) from ``first`` to ``last``, both included.

    An empty range gives a pattern that matches nothing.
    """
    return f"^{_date(first, last)}$"


def time_pattern(zone: Zone = "optional") -> str:
    """Pattern of ISO times of day, ``HH:MM:SS`` with up to six decimals and perhaps an offset."""
    return f"^{_CLOCK}{_zone(zone)}$"


def datetime_pattern(
    zone: Zone = "optional", first: dt.date = dt.date.min, last: dt.date = dt.date.max
) -> str:
    """Pattern of ISO date-times, ``2024-02-29T23:59:59``, perhaps with decimals and an offset.

    The days are those from ``first`` to ``last``, as `date_pattern` has them.
    """
    return f"^{_date(first, last)}T{_CLOCK}{_zone(zone)}$"


def duration_pattern() -> str:
    """Pattern of ISO 8601 durations in weeks, or in years, days, hours, minutes and seconds.

    A year is 365 days, as Pydantic writes and reads it; months are left out. Amounts have six
    digits at most, since Pydantic counts the hours, minutes and seconds in 32 bits; years go up to
    what a timedelta holds, as long as nothing beside them can take it beyond.
    """
    amount = "(?:0|[1-9][0-9]{0,5})"
    seconds = f"{amount}(?:\\.[0-9]{{1,6}})?S"
    minutes = f"(?:{amount}M(?:{seconds})?|{seconds})"
    clock = f"T(?:{amount}H(?:{minutes})?|{minutes})"
    some_years, all_years = _up_to(2_736_800), _up_to(2_739_725)
    second = "[1-5]?[0-9](?:\\.[0-9]{1,6})?S"
    minute = f"(?:[1-5]?[0-9]M(?:{second})?|{second})"
    of_a_day = f"T(?:(?:1?[0-9]|2[0-3])H(?:{minute})?|{minute})"
    forms = (
        f"{amount}W",
        f"(?:{some_years}Y)?{amount}D(?:{clock})?",
        f"{some_years}Y(?:{clock})?",
        clock,
        f"{all_years}Y(?:{_up_to(364)}D)?(?:{of_a_day})?",
        f"2739726Y(?:[0-8]D)?(?:{of_a_day})?",
        "2739726Y9D",
    )
    # The longest reaches a day, less a microsecond, further ahead than back.
    return f"^(?:-?P(?:{'|'.join(forms)})|P2739726Y9D{of_a_day})$"


def _up_to(most: int) -> str:
    """Pattern of the integers from 0 to ``most``, which has two digits at least."""
    digits = str(most)
    forms = ["0", rf"[1-9][0-9]{{0,{len(digits) - 2}}}", digits]
    for i, digit in enumerate(digits):
        least = 0 if i else 1
        if int(digit) > least:
            rest = len(digits) - i - 1
            forms.append(f"{digits[:i]}[{least}-{int(digit) - 1}][0-9]{{{rest}}}")
    return f"(?:{'|'.join(forms)})"


def uuid_pattern(version: int | None = None) -> str:
    """Pattern of lower-case UUIDs; with ``version``, only RFC 9562 UUIDs of that version."""
    if version is None:
        third, fourth = f"{_HEX}{{4}}", f"{_HEX}{{4}}"
    else:
        third, fourth = f"{version:x}{_HEX}{{3}}", f"[89ab]{_HEX}{{3}}"
    return f"^{_HEX}{{8}}-{_HEX}{{4}}-{third}-{fourth}-{_HEX}{{12}}$"


def complex_pattern() -> str:
    """Pattern of complex numbers as Python writes them without brackets: ``1.5+2j``."""
    number = "(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?"
    return f"^-?(?:{number}[+-])?{number}j$"


def integer_pattern() -> str:
    """Pattern of integers as JSON spells them."""
    return "^(?:0|-?[1-9][0-9]*)$"


def _zone(zone: Zone) -> str:
    return {"optional": f"{_OFFSET}?", "required": _OFFSET, "forbidden": ""}[zone]


@lru_cache(maxsize=64)
def _date(first: dt.date, last: dt.date) -> str:
    """``first``–``last`` as an unanchored group."""
    years: dict[frozenset[str], list[str]] = defaultdict(list)
    for year in range(first.year, last.year + 1):
        low = f"{first:%m-%d}" if year == first.year else "01-01"
        high = f"{last:%m-%d}" if year == last.year else "12-31"
        days = _year_days(calendar.isleap(year))
        if low > "01-01" or high < "12-31":
            days = frozenset(day for day in days if low <= day <= high)
        if days:
            years[days].append(f"{year:04d}")
    if not years:
        return "[^\\s\\S]"
    # Bringing common and leap years' shared days together would only make the pattern longer:
    # the automaton merges them anyway.
    return f"(?:{'|'.join(f'{_fold(group)}-{_fold(days)}' for days, group in years.items())})"


@lru_cache(maxsize=2)
def _year_days(leap: bool) -> frozenset[str]:
    start = dt.date(2024 if leap else 2023, 1, 1)
    return frozenset(
        f"{start + dt.timedelta(days=day):%m-%d}" for day in range(366 if leap else 365)
    )


def _fold(texts: Iterable[str]) -> str:
    """A pattern for exactly ``texts`` (ASCII, of one length), sharing equal tails."""
    memo: dict[frozenset[str], str] = {}

    def fold(tails: frozenset[str]) -> str:
        known = memo.get(tails)
        if known is not None:
            return known
        if tails == {""}:
            return ""
        by_first: dict[str, set[str]] = defaultdict(set)
        for tail in tails:
            by_first[tail[0]].add(tail[1:])
        by_rest: dict[frozenset[str], list[str]] = defaultdict(list)
        for first, rest in sorted(by_first.items()):
            by_rest[frozenset(rest)].append(first)
        parts = [_one_of(firsts) + fold(rest) for rest, firsts in by_rest.items()]
        memo[tails] = parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"
        return memo[tails]

    return fold(frozenset(texts))


def _one_of(characters: list[str]) -> str:
    if len(characters) == 1:
        return characters[0]
    low, high = characters[0], characters[-1]
    if len(characters) > 2 and ord(high) - ord(low) + 1 == len(characters):
        return f"[{low}-{high}]"
    return f"[{''.join(characters)}]"
