"""Ready-made types with a check digit: the digits that may come last follow from those before.

Owns the numbers' forms and their sums. That a sum comes out is a regular language (`ir.Checksum`),
so the mask has the check digit, wherever it stands. Knows no lists of numbers given out.
"""

from __future__ import annotations

from typing import Any

from .ready_type import Ready

_DIGITS = "0123456789"
Step = dict[str, int]


def _weighted(weight: int, digits: str = _DIGITS) -> Step:
    return {digit: weight * int(digit) for digit in digits}


def _in_groups(steps: list[Step], sizes: tuple[int, ...], sign: str) -> list[Step]:
    """``steps`` with ``sign`` between groups of these sizes."""
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
    (("5", "12345"), 16),  # Mastercard
    (("2", "2", "2", "123456789"), 16),
    (("2", "2", "3456789"), 16),
    (("2", "3456"), 16),
    (("2", "7", "01"), 16),
    (("2", "7", "2", "0"), 16),
    (("3", "47"), 15),  # American Express
    (("3", "0", "012345"), 14),  # Diners Club
    (("3", "689"), 14),
    (("6", "0", "1", "1"), 16),  # Discover
    (("6", "4", "456789"), 16),
    (("6", "5"), 16),
    (("3", "5", "2", "89"), 16),  # JCB
    (("3", "5", "345678"), 16),
    (("6", "2"), 16),  # UnionPay
)
"""The digits that the numbers of an issuer begin with, and how many digits they usually have."""

_GROUPS = {14: (4, 6, 4), 15: (4, 6, 5), 16: (4, 4, 4, 4)}


def _luhn(begins: tuple[str, ...], size: int) -> list[Step]:
    """The steps of ISO/IEC 7812: every other digit counts twice, of which the digits are added."""
    steps: list[Step] = []
    for place in range(size):
        digits = begins[place] if place < len(begins) else _ANY
        times = 1 if (size - place) % 2 else 2
        steps.append({digit: sum(divmod(times * int(digit), 10)) for digit in digits})
    return steps


def payment_card(signs: str = "") -> list[Any]:
    """The expression of payment cards' numbers: plain, or in groups with one of ``signs``."""
    ways: list[Any] = []
    for begins, size in _CARDS:
        steps = _luhn(begins, size)
        ways.append(["checksum", 10, steps, "", [], 0])
        for sign in signs:
            ways.append(["checksum", 10, _in_groups(steps, _GROUPS[size], sign), "", [], 0])
    return ["or", *ways]


# -- books ------------------------------------------------------------------------------------


def _isbn(modulus: int, steps: list[Step], n_before: int) -> list[Any]:
    """ISBNs of which ``n_before`` digits come before group, publisher and title: nine together,
    each of one digit or more."""
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
    # A text that could become either would have two sums, and ten times the states.
    others = (("012345678",), ("9", "012345689"), ("9", "7", "01234567"))
    return ["or", _isbn13(), *map(_isbn10, others)]


NUMBERS = (
    Ready(
        "credit_card",
        "A payment card's number by issuer and length, with its check digit (Luhn); plain, or in "
        "groups with blanks or hyphens.",
        lambda: payment_card(" -"),
    ),
    Ready(
        "isbn13",
        "A 13-digit ISBN with its check digit; plain, or in five parts with hyphens or blanks.",
        _isbn13,
    ),
    Ready(
        "isbn10",
        "A 10-digit ISBN with its check digit; plain, or in four parts with hyphens or blanks.",
        _isbn10,
    ),
    Ready(
        "isbn",
        "An ISBN of 13 or 10 digits with its check digit; those of 10 that begin with 978 or 979 "
        "are isbn10's alone.",
        _either_isbn,
    ),
)
