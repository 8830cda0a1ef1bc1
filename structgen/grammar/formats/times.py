"""The formats of RFC 3339 as regular languages: ``date``, ``time``, ``date-time``, ``duration``.

Calendars are real: days per month, leap years by the Gregorian rule (year 0000 is one, as RFC 3339
has it). A leap second is 23:59:60 in UTC, at whatever offset that is spelt, on any day: which days
have one cannot be known beforehand. Knows no schema and no automaton.
"""

from __future__ import annotations

from functools import cache

from structgen.grammar import ir
from structgen.grammar.regex.read import parse_python

_HOUR = "(?:[01][0-9]|2[0-3])"
_OFFSET = f"[+-]{_HOUR}:[0-5][0-9]"
_FRACTION = r"(?:\.[0-9]+)?"


@cache
def date() -> ir.Regex:
    """``full-date``: 2024-02-29."""
    days_31 = "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    days_30 = "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    days_28 = "02-(?:0[1-9]|1[0-9]|2[0-8])"
    four = "(?:[02468][048]|[13579][26])"
    four_but_00 = "(?:0[48]|[2468][048]|[13579][26])"
    leap_year = f"(?:[0-9]{{2}}{four_but_00}|{four}00)"
    return parse_python(
        f"[0-9]{{4}}-(?:{days_31}|{days_30}|{days_28})|{leap_year}-02-29",
    )


@cache
def time() -> ir.Regex:
    """``full-time``: 08:30:06.283Z, 15:59:60-08:00."""
    usual = parse_python(f"{_HOUR}:[0-5][0-9]:[0-5][0-9]{_FRACTION}(?:[Zz]|{_OFFSET})")
    return ir.Alternate((usual, *_leap_seconds()))


@cache
def date_time() -> ir.Regex:
    """``date-time``: 2024-02-29T08:30:06Z."""
    return ir.Concat((date(), parse_python("[Tt]"), time()))


@cache
def duration() -> ir.Regex:
    """``duration`` of RFC 3339, appendix A: units in order, none left out in between."""
    second = "[0-9]+S"
    minute = f"[0-9]+M(?:{second})?"
    hour = f"[0-9]+H(?:{minute})?"
    clock = f"T(?:{hour}|{minute}|{second})"
    day = "[0-9]+D"
    month = f"[0-9]+M(?:{day})?"
    year = f"[0-9]+Y(?:{month})?"
    return parse_python(f"P(?:(?:{year}|{month}|{day})(?:{clock})?|{clock}|[0-9]+W)")


def _leap_seconds() -> list[ir.Regex]:
    """23:59:60 UTC in local time, for every offset.

    ``HH:MM:60-oh:om`` is one when oh:om = 23:59 - HH:MM; ``HH:MM:60+oh:om`` when oh:om is one
    minute past HH:MM. Spelling out the 2,880 pairs would be slow: each of the four digits of the
    offset depends on few others, so there is a small relation per digit, and they are intersected.
    """
    clock = f"{_HOUR}:[0-5][0-9]:60{_FRACTION}"
    zulu = parse_python(f"23:59:60{_FRACTION}[Zz]")
    # Pairs of local time and one digit of the offset. Characters of the local time are separated
    # by spaces; two are the ends of a range.
    ten, six = range(10), range(6)
    west = [
        parse_python(f"{clock}-{_HOUR}:[0-5][0-9]"),
        _relation(0, 4, [(f"{t} 03", 2 - t) for t in range(3)]
                  + [(f"{t} 49", 1 - t) for t in range(2)]),
        _relation(1, 3, [(f"{u}", (3 - u) % 10) for u in ten]),
        _relation(3, 1, [(f"{t}", 5 - t) for t in six]),
        _relation(4, 0, [(f"{u}", 9 - u) for u in ten]),
    ]  # fmt: skip
    tens = [(f"{t} 09 : {minute}", t) for t in range(3) for minute in ("04 09", "5 08")]
    tens += [("0 08 : 5 9", 0), ("0 9 : 5 9", 1), ("1 08 : 5 9", 1), ("1 9 : 5 9", 2)]
    tens += [("2 02 : 5 9", 2), ("2 3 : 5 9", 0)]
    units = [(f"02 {u} : {minute}", u) for u in ten for minute in ("04 09", "5 08")]
    units += [(f"{'01' if u == 3 else '02'} {u} : 5 9", (u + 1) % 10) for u in ten]
    units += [("2 3 : 5 9", 0)]
    east = [
        parse_python(f"{clock}[+]{_HOUR}:[0-5][0-9]"),
        _relation(0, 4, tens),
        _relation(0, 3, units),
        _relation(3, 1, [(f"{t} 08", t) for t in six] + [(f"{t} 9", (t + 1) % 6) for t in six]),
        _relation(4, 0, [(f"{u}", (u + 1) % 10) for u in ten]),
    ]  # fmt: skip
    return [zulu, ir.Intersect(tuple(west)), ir.Intersect(tuple(east))]


def _relation(before: int, after: int, pairs: list[tuple[str, int]]) -> ir.Regex:
    """Texts that match one pair: the left side comes after ``before`` characters, and the right
    side is the digit of the offset that has ``after`` characters behind it."""
    to_digit = parse_python("[^+-]*[+-]" + "." * (4 - after))
    digits = [ir.literal(str(digit)) for digit in range(10)]
    lines = []
    for left, digit in pairs:
        chars = (ir.char_set([(ord(ends[0]), ord(ends[-1]))]) for ends in left.split())
        lines.append(ir.Concat((*chars, to_digit, digits[digit])))
    return ir.Concat(
        (
            ir.Repeat(ir.ANY_CHAR, before, before),
            ir.Alternate(tuple(lines)),
            ir.Repeat(ir.ANY_CHAR, after, after),
        )
    )
