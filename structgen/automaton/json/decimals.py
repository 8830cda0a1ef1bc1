"""Exact arithmetic on decimal digits: what `numbers` needs to see ahead.

Three things: `Mark`, a magnitude that numbers are compared with digit by digit; `Step`, a positive
decimal that a number must, or must not, be a multiple of; and `Window`, the digits that may follow
a prefix, as the integers of an interval without holes and congruences. Knows no automata.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal
from typing import NamedTuple

from structgen.automaton.work import WORK

LESS, EQUAL, GREATER = -1, 0, 1
LOWER, UPPER, UNEQUAL = range(3)


class Mark:
    """A magnitude that numbers are compared with: its digits, plain and normalised.

    Attributes:
        whole, fraction: the digits before and after its point.
        significant: its digits from the first to the last that is not 0.
        exponent: the power of ten of the first of them; meaningless for zero.
        role: `LOWER`, `UPPER` or `UNEQUAL`.
        inclusive: whether a bound allows its own value.
    """

    __slots__ = ("exponent", "fraction", "inclusive", "role", "significant", "whole")

    def __init__(self, value: Decimal, role: int, inclusive: bool) -> None:
        _, digits, power = value.as_tuple()
        assert isinstance(power, int)
        text = "".join(map(str, digits))
        if power >= 0:
            whole, fraction = text + "0" * power, ""
        else:
            text = text.rjust(-power + 1, "0")
            whole, fraction = text[:power], text[power:]
        self.whole = whole.lstrip("0") or "0"
        self.fraction = fraction.rstrip("0")
        self.significant = (self.whole + self.fraction).strip("0")
        if self.whole != "0":
            self.exponent = len(self.whole) - 1
        else:
            self.exponent = -1 - (len(self.fraction) - len(self.fraction.lstrip("0")))
        self.role = role
        self.inclusive = inclusive

    def holds(self, compared: int) -> bool:
        """Whether a number that compares so with this magnitude is all right."""
        if compared == EQUAL:
            return self.inclusive
        return self.role == UNEQUAL or (compared == GREATER) == (self.role == LOWER)


def compare(so_far: int, digit: int, text: str, index: int) -> int:
    """Compare one more digit with that of ``text``, where everything before was ``so_far``."""
    if so_far != EQUAL:
        return so_far
    other = int(text[index]) if index < len(text) else 0
    return LESS if digit < other else GREATER if digit > other else EQUAL


class Step(NamedTuple):
    """The decimal ``modulus / 10 ** places``, with as few places as will do."""

    modulus: int
    places: int

    @classmethod
    def of(cls, value: Decimal) -> Step:
        """The step of a positive decimal."""
        _, digits, power = value.as_tuple()
        assert isinstance(power, int)
        modulus = int("".join(map(str, digits))) * 10 ** max(power, 0)
        return cls._reduced(modulus, max(-power, 0))

    @classmethod
    def _reduced(cls, modulus: int, places: int) -> Step:
        while places and modulus % 10 == 0:
            modulus, places = modulus // 10, places - 1
        return cls(modulus, places)

    def scaled(self, places: int) -> int:
        """The step times ``10 ** places``, for as many places as it has, or more."""
        return self.modulus * int(10 ** (places - self.places))

    def divides(self, other: Step) -> bool:
        """Whether ``other`` is a multiple of this step."""
        places = max(self.places, other.places)
        return other.scaled(places) % self.scaled(places) == 0

    def power(self, remainder: int) -> int | None:
        """The least k for which ``remainder * 10 ** k`` is a multiple of ``modulus``, or None."""
        for k in range(self.modulus.bit_length() + 1):
            if remainder == 0:
                return k
            remainder = remainder * 10 % self.modulus
        return None


def common_step(steps: Iterable[Step]) -> Step | None:
    """The least step that all ``steps`` divide, or None when there are none."""
    all_steps = list(steps)
    if not all_steps:
        return None
    places = max(step.places for step in all_steps)
    return Step._reduced(math.lcm(*(step.scaled(places) for step in all_steps)), places)


class Window:
    """The integers ``x`` below ``10 ** n`` that may stand for ``n`` more digits."""

    __slots__ = ("avoid", "high", "holes", "low", "must", "n")

    def __init__(self, n: int) -> None:
        WORK.spend(10 + (n >> 5))
        self.n = n
        self.low = 0
        self.high = 10**n - 1
        self.holes: set[int] = set()
        self.must = (0, 1)
        self.avoid: list[tuple[int, int]] = []

    def bar(self) -> None:
        """Leave nothing."""
        self.high = -1

    def bound(self, mark: Mark, compared: int, rest: str) -> None:
        """Keep what is right by ``mark``, whose digits go on with ``rest``, where everything
        before compared so with it."""
        if compared != EQUAL:
            if not mark.holds(compared):
                self.bar()
            return
        value = int(rest[: self.n].ljust(self.n, "0") or "0")
        longer = bool(rest[self.n :].strip("0"))  # the mark lies above ``value``
        if mark.role == UNEQUAL:
            if not longer:
                self.holes.add(value)
        elif mark.role == UPPER:
            self.high = min(self.high, value if longer or mark.inclusive else value - 1)
        else:
            self.low = max(self.low, value if mark.inclusive and not longer else value + 1)

    def first(self) -> int | None:
        """The least of them: ``must[0] + x`` is a multiple of ``must[1]``, and so for no pair in
        ``avoid``. Cost: a few steps for each pair and hole."""
        offset, modulus = self.must
        x = self.low + -(offset + self.low) % modulus
        if x > self.high:
            return None
        avoid = []
        for base, step in self.avoid:
            if modulus % step:
                avoid.append((base, step))
            elif (base + x) % step == 0:
                return None  # every candidate is a multiple
        while x <= self.high:
            WORK.spend(1)
            if x not in self.holes and all((base + x) % step for base, step in avoid):
                return x
            x += modulus
        return None
