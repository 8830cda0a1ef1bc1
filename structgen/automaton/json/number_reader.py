"""Reading a JSON number digit by digit: what is remembered of it, and whether it is right.

Most significant digit first, the number is compared with each bound as it goes: after ``k`` digits
it is enough to know ``k`` and whether the digits so far are less than, equal to or greater than the
bound's first ``k`` digits. Multiples keep a remainder. What a mantissa lets its exponent be is an
interval, settled when the ``e`` is read.

Follows the grammar of RFC 8259, section 6. Whether a prefix can still become a number that
satisfies the spec is not asked here: see `numbers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from structgen.errors import CompileLimitExceeded

from .decimals import EQUAL, GREATER, LESS, LOWER, UNEQUAL, UPPER, Mark, Step, common_step, compare

LARGEST, SMALLEST = Decimal("1.7976931348623157e308"), Decimal("5e-324")
"""The range of 64-bit floats: what lies outside has no scientific notation here."""

MAX_NON_MULTIPLES = 16
"""Most unrelated numbers that a number must not be a multiple of."""

_ANY_EXPONENT = 999  # of zero

_POINT, _MINUS, _PLUS, _ZERO = 0x2E, 0x2D, 0x2B, 0x30
_DIGITS = range(10)


@dataclass(frozen=True, slots=True)
class NumberSpec:
    """What a number must satisfy.

    Attributes:
        lower, upper: bounds, None for none; ``exclusive_*``: whether the bound itself is barred.
        multiples: the value must be a multiple of each.
        non_multiples: the value must not be a multiple of any (1 here means: not an integer).
        excluded: values that it must not equal.
        max_digits: most digits before, and after, the decimal point, and of an exponent (more
            where a bound has more).
        canonical: no exponent, no more decimal places than a multiple has, and no fraction at all
            where only integers will do. Zeros at the end of a fraction may stand: a model that has
            written ``2.50`` means to end there, and could go on with another digit only.
        form: ``"digits"``: an integer, written without point and exponent; ``"pointed"``: written
            with one or the other; ``"any"``.
    """

    lower: Decimal | None = None
    upper: Decimal | None = None
    exclusive_lower: bool = False
    exclusive_upper: bool = False
    multiples: tuple[Decimal, ...] = ()
    non_multiples: tuple[Decimal, ...] = ()
    excluded: tuple[Decimal, ...] = ()
    max_digits: int = 20
    canonical: bool = False
    form: str = "any"


class Side(NamedTuple):
    """What holds for one sign: whether it occurs at all, and the marks."""

    allowed: bool
    marks: tuple[Mark, ...]
    scientific: tuple[Mark, ...]  # those and the range of floats


class Exponents(NamedTuple):
    """The exponents that a mantissa may have: an interval without some points."""

    least: int
    most: int
    holes: frozenset[int]

    @property
    def is_empty(self) -> bool:
        """Whether there is none."""
        return self.most - self.least < len(self.holes)

    def among(self, least: int, most: int) -> int | None:
        """The one nearest to zero from ``least`` to ``most``, which have the same sign."""
        low, high = max(least, self.least), min(most, self.most)
        order = range(low, high + 1) if low >= 0 else range(high, low - 1, -1)
        return next((e for e in order if e not in self.holes), None)


class State(NamedTuple):
    """A point inside a number. Fields that the phase does not use stay empty: states merge."""

    phase: int
    negative: bool = False
    digits: int = 0  # of the part being written
    compared: tuple[int, ...] = ()  # with each mark, as plain notation
    scientific: tuple[int, ...] = ()  # … with the first digits that are not 0 aligned
    lead: int | None = None  # power of ten of the first such digit, known from the point on
    remainders: tuple[int, ...] = ()  # of the digits, up to the last that is not 0, by each step
    zeros: int = 0  # how many have come after that
    exponents: Exponents | None = None  # what the exponent may be
    exponent: int = 0
    exponent_negative: bool = False


BEGIN, SIGN, LONE_ZERO, WHOLE, DOT, FRACTION, E, E_SIGN, EXPONENT = range(9)


class NumberReader:
    """Transitions and acceptance of the numbers of a `NumberSpec`.

    Attributes:
        must: the step that the number must be a multiple of, or None.
        steps: that one, and those that it must not be a multiple of.
        is_contradictory: whether every multiple is one that it must not be.
        has_exponents: whether scientific notation is allowed.
        most_digits, most_fraction, most_exponent: most digits before and after the point, and of
            an exponent.
        sides: what holds for positive and for negative numbers.
        is_plain: whether numbers have bounds and a number of digits only.

    Raises:
        CompileLimitExceeded: more than `MAX_NON_MULTIPLES` unrelated ``non_multiples``.
    """

    def __init__(self, spec: NumberSpec) -> None:
        self.spec = spec
        multiples = [Step.of(m) for m in spec.multiples]
        if spec.form == "digits":
            multiples.append(Step(1, 0))
        must = common_step(multiples)
        barred = {Step.of(m) for m in spec.non_multiples}
        avoid = [s for s in sorted(barred) if not any(o != s and o.divides(s) for o in barred)]
        if len(avoid) > MAX_NON_MULTIPLES:
            raise CompileLimitExceeded(
                "a number must not be a multiple of too many numbers",
                limit=MAX_NON_MULTIPLES,
                actual=len(avoid),
            )
        self.must = must
        self.steps = ([must] if must else []) + avoid
        self.is_contradictory = must is not None and any(step.divides(must) for step in avoid)
        self.has_exponents = not spec.canonical and spec.form != "digits"
        self.sides = (self._side(False), self._side(True))
        marks = [m for side in self.sides for m in side.marks]
        self.most_digits = max(
            [spec.max_digits, *(len(m.whole) + 1 for m in marks)]
            + [len(m.fraction) + 1 for m in marks]
            + [max(s.places, len(str(s.modulus)) - s.places + 1) for s in self.steps]
        )
        self.most_fraction = self.most_digits
        # The remainder of all digits will do where none may follow a step's own last place.
        self._counts_zeros = bool(self.steps)
        if spec.form == "digits":
            self.most_fraction = 0
        elif spec.canonical and must is not None:
            self.most_fraction = max(must.places, spec.form == "pointed")
        if spec.canonical and must is not None and len(self.steps) == 1:
            self._counts_zeros = self.most_fraction > must.places
        self.most_exponent = max(spec.max_digits, 3)
        # Digits are compared with bounds, and counted, and that is all.
        self.is_plain = not self.has_exponents and all(s.modulus == 1 for s in self.steps)

    def _side(self, negative: bool) -> Side:
        spec = self.spec
        lower, upper = spec.lower, spec.upper
        lower_inclusive, upper_inclusive = not spec.exclusive_lower, not spec.exclusive_upper
        excluded = [v for v in spec.excluded if v == 0 or (v < 0) == negative]
        if negative:
            lower, upper = (
                -upper if upper is not None else None,
                -lower if lower is not None else None,
            )
            lower_inclusive, upper_inclusive = upper_inclusive, lower_inclusive
        marks: list[Mark] = []
        if upper is not None:
            if upper < 0 or (upper == 0 and not upper_inclusive):
                return Side(False, (), ())
            marks.append(Mark(upper, UPPER, upper_inclusive))
        if lower is not None and (lower > 0 or (lower == 0 and not lower_inclusive)):
            marks.append(Mark(lower, LOWER, lower_inclusive))
        marks += [Mark(abs(v), UNEQUAL, False) for v in excluded]
        if not self.has_exponents:
            return Side(True, tuple(marks), ())
        floats = [Mark(LARGEST, UPPER, True), Mark(SMALLEST, LOWER, True)]
        return Side(True, tuple(marks), tuple(marks + floats))

    # -- transitions ------------------------------------------------------------------------

    def following(self, s: State) -> Iterator[tuple[int, State]]:
        """The bytes that a number may go on with, as far as its grammar is concerned."""
        phase = s.phase
        if phase == BEGIN and self.sides[True].allowed:
            yield _MINUS, State(SIGN, True)
        if phase in (BEGIN, SIGN) and self.sides[s.negative].allowed:
            yield from self._by_digit(s, 0, self._first)
        elif phase == WHOLE and s.digits < self.most_digits:
            yield from self._by_digit(s, s.digits, self._whole_digit)
        if phase in (LONE_ZERO, WHOLE) and self.most_fraction:
            yield _POINT, self._at_point(s)
        elif phase in (DOT, FRACTION) and s.digits < self.most_fraction:
            yield from self._by_digit(s, s.digits, self._fraction_digit)
        if phase in (LONE_ZERO, WHOLE, FRACTION) and self.has_exponents:
            after = State(E, exponents=self.allowed(s))
            yield 0x65, after
            yield 0x45, after
        if phase == E:
            yield _PLUS, s._replace(phase=E_SIGN)
            yield _MINUS, s._replace(phase=E_SIGN, exponent_negative=True)
        if phase in (E, E_SIGN, EXPONENT) and s.digits < self.most_exponent:
            for digit in _DIGITS:
                value = s.exponent * 10 + digit
                yield (
                    _ZERO + digit,
                    s._replace(phase=EXPONENT, exponent=value, digits=s.digits + 1),
                )

    def _by_digit(
        self, s: State, index: int, read: Callable[[State, int], State]
    ) -> Iterator[tuple[int, State]]:
        """Where each digit leads. Most often a few of them stand for all: beside zero only those
        matter that a mark has in this place."""
        if self.is_plain:
            side = self.sides[s.negative]
            # A zero among digits before the point is one like the others.
            pivots = set() if s.phase == WHOLE and not self._counts_zeros else {0}
            if s.phase == FRACTION or s.phase == DOT:
                texts = [m.fraction for m in side.marks]
            else:
                texts = [m.whole for m in side.marks]
            if s.phase in (BEGIN, SIGN):
                compared: tuple[int, ...] = (EQUAL,) * len(texts)
            else:
                compared = s.compared
            for text, c in zip(texts, compared, strict=True):
                if c == EQUAL and index < len(text):
                    pivots.add(int(text[index]))
            last = to = None
            for digit in _DIGITS:
                if to is None or digit in pivots or last in pivots:
                    to = read(s, digit)
                last = digit
                yield _ZERO + digit, to
            return
        for digit in _DIGITS:
            yield _ZERO + digit, read(s, digit)

    def far(self, s: State, most: int) -> State:
        """A state like ``s`` for texts that go on with at most so many digits: where no bound is
        left to compare with, only the room for digits tells states apart."""
        if not self.is_plain or self._counts_zeros:
            return s
        marks = self.sides[s.negative].marks
        if s.phase == WHOLE:
            digits = 1 + max([len(m.whole) for m in marks], default=0)
            if digits < s.digits <= self.most_digits - most:
                return s._replace(digits=digits)
        elif s.phase == FRACTION and EQUAL not in s.compared and not self.steps:
            digits = 1
            if digits < s.digits <= self.most_fraction - most:
                return s._replace(digits=digits)
        return s

    def _first(self, s: State, digit: int) -> State:
        negative = s.negative
        side = self.sides[negative]
        return State(
            WHOLE if digit else LONE_ZERO,
            negative,
            1,
            tuple(compare(EQUAL, digit, m.whole, 0) for m in side.marks),
            tuple(compare(EQUAL, digit, m.significant, 0) if digit else EQUAL
                  for m in side.scientific),
            remainders=tuple(digit % step.modulus for step in self.steps),
        )  # fmt: skip

    def _whole_digit(self, s: State, digit: int) -> State:
        side = self.sides[s.negative]
        index = s.digits
        compared = tuple(
            [
                compare(c, digit, m.whole, index) if index < len(m.whole) else GREATER
                for m, c in zip(side.marks, s.compared, strict=True)
            ]
        )
        if self.is_plain and not self._counts_zeros:
            return State(WHOLE, s.negative, index + 1, compared, remainders=s.remainders)
        return s._replace(
            digits=index + 1,
            compared=compared,
            scientific=self._significant(s, digit, index),
            **self._with_digit(s, digit),
        )

    def _compared_at_point(self, s: State) -> tuple[int, ...]:
        """What is known of the comparisons once there are no more digits before the point."""
        return tuple(
            [
                c if s.digits == len(m.whole) else LESS if s.digits < len(m.whole) else GREATER
                for m, c in zip(self.sides[s.negative].marks, s.compared, strict=True)
            ]
        )

    def _at_point(self, s: State) -> State:
        compared = self._compared_at_point(s)
        lead = None
        if s.phase == WHOLE:
            lead = s.digits - 1 if self.has_exponents else 0
        return s._replace(phase=DOT, digits=0, compared=compared, lead=lead)

    def _fraction_digit(self, s: State, digit: int) -> State:
        marks = self.sides[s.negative].marks
        index = s.digits
        lead = s.lead
        if lead is None and digit:
            lead = -1 - index if self.has_exponents else 0
        return s._replace(
            phase=FRACTION,
            digits=index + 1,
            compared=tuple(
                compare(c, digit, m.fraction, index)
                for m, c in zip(marks, s.compared, strict=True)
            ),
            scientific=self._significant(s, digit, index + (lead or 0) + 1)
            if lead is not None
            else s.scientific,
            lead=lead,
            **self._with_digit(s, digit),
        )  # fmt: skip

    def _significant(self, s: State, digit: int, index: int) -> tuple[int, ...]:
        marks = self.sides[s.negative].scientific
        if not marks:
            return ()
        return tuple(
            compare(c, digit, m.significant, index)
            for m, c in zip(marks, s.scientific, strict=True)
        )  # fmt: skip

    def _with_digit(self, s: State, digit: int) -> dict[str, Any]:
        """What one more digit makes of remainders and zeros."""
        if self.is_plain and not self._counts_zeros:
            return {}
        if digit == 0 and self._counts_zeros:
            return {"zeros": 0 if self.is_zero(s) else s.zeros + 1}
        shift = 10 ** (s.zeros + 1)
        remainders = tuple(
            (r * shift + digit) % step.modulus
            for r, step in zip(s.remainders, self.steps, strict=True)
        )
        return {"remainders": remainders, "zeros": 0}

    # -- acceptance -------------------------------------------------------------------------

    @staticmethod
    def is_zero(s: State) -> bool:
        """Whether all digits so far are zeros."""
        return s.lead is None and s.phase != WHOLE

    @staticmethod
    def places(s: State) -> int:
        """Digits after the point."""
        return s.digits if s.phase in (DOT, FRACTION) else 0

    def complete(self, s: State) -> bool:
        """Whether the number may end here."""
        if s.phase == EXPONENT:
            assert s.exponents is not None
            exponent = -s.exponent if s.exponent_negative else s.exponent
            return s.exponents.among(exponent, exponent) is not None
        if s.phase in (LONE_ZERO, WHOLE):
            return self.spec.form != "pointed" and self._is_right(s)
        return s.phase == FRACTION and self._is_right(s)

    def _is_right(self, s: State) -> bool:
        """Whether the digits so far, in plain notation, are a number that satisfies the spec."""
        places = self.places(s)
        compared = s.compared
        if s.phase in (LONE_ZERO, WHOLE):
            compared = self._compared_at_point(s)
        for mark, c in zip(self.sides[s.negative].marks, compared, strict=True):
            if not mark.holds(LESS if c == EQUAL and len(mark.fraction) > places else c):
                return False
        for i, (r, step) in enumerate(zip(s.remainders, self.steps, strict=True)):
            power = s.zeros - places + step.places
            is_multiple = self.is_zero(s) or (
                power >= 0 and r * 10**power % step.modulus == 0
            )  # fmt: skip
            if is_multiple != (i == 0 and self.must is not None):
                return False
        return True

    def allowed(self, s: State) -> Exponents:
        """The exponents that the mantissa ``s`` may have."""
        if self.is_zero(s):
            most = _ANY_EXPONENT if self._is_right(s) else -_ANY_EXPONENT - 1
            return Exponents(-_ANY_EXPONENT, most, frozenset())
        places = self.places(s)
        lead = s.digits - 1 if s.phase == WHOLE else s.lead
        assert lead is not None
        least, most = -(10**9), 10**9
        holes: set[int] = set()
        for mark, c in zip(self.sides[s.negative].scientific, s.scientific, strict=True):
            if not mark.significant:  # zero: the number is greater
                if not mark.holds(GREATER):
                    most = least - 1
                continue
            if c == EQUAL and lead + 1 + places < len(mark.significant):
                c = LESS
            same = mark.exponent - lead
            if mark.role == UPPER:
                most = min(most, same if mark.holds(c) else same - 1)
            elif mark.role == LOWER:
                least = max(least, same if mark.holds(c) else same + 1)
            elif not mark.holds(c):
                holes.add(same)
        for i, (r, step) in enumerate(zip(s.remainders, self.steps, strict=True)):
            power = step.power(r)
            is_must = i == 0 and self.must is not None
            if power is not None:
                first = power - s.zeros + places - step.places
                least, most = (
                    (max(least, first), most) if is_must else (least, min(most, first - 1))
                )
            elif is_must:
                most = least - 1
        return Exponents(least, most, frozenset(h for h in holes if least <= h <= most))
