"""JSON numbers as a leaf automaton: bounds, multiples and integrality by decimal digits.

Numbers are plain decimals (RFC 8259) with at most ``max_digits`` digits before and after the point,
or such a mantissa with an exponent. `NumberLeaf` reads digits, the most significant first. After
``k`` digits it knows ``k``, and whether they are less than, equal to or greater than the first
``k`` digits of each bound (`Mark`). Multiples (`Step`) keep a remainder. The exponents that a
mantissa allows are an interval, settled when the ``e`` is read.

By default (``canonical``) an exponent is written as in Python and JavaScript: after one digit other
than 0 and at most 16 decimals, as in ``6.022e23`` or ``1e-07``. In addition, a plain number must be
able to begin with that mantissa. Otherwise a model that must write a number up to 1, and wants 85,
would have to continue with ``8e-1``. Any mantissa is allowed only if all numbers are so large or so
small that Python writes them with an exponent.

Arithmetic on the integers that further digits can form (`Window`) decides whether a prefix can
become a valid number, and how soon, without a search. `scalars` maps schema keywords to numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from structgen.automaton.core.leaf import Leaf
from structgen.automaton.texts import Text
from structgen.automaton.work import WORK
from structgen.errors import check_limit
from structgen.storage import cached_method

LESS, EQUAL, GREATER = -1, 0, 1
LOWER, UPPER, UNEQUAL = range(3)


class Mark:
    """A magnitude that numbers are compared with: its digits, plain and normalised.

    Attributes:
        whole, fraction: the digits before and after its point.
        significant: its digits from the first to the last that is not 0.
        exponent: the power of ten of the first significant digit; meaningless for zero.
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
        """Return whether a number that compares like this with the magnitude is allowed."""
        if compared == EQUAL:
            return self.inclusive
        return self.role == UNEQUAL or (compared == GREATER) == (self.role == LOWER)


def compare(so_far: int, digit: int, text: str, index: int) -> int:
    """Compare one more digit with that of ``text``, after the comparison ``so_far``."""
    if so_far != EQUAL:
        return so_far
    other = int(text[index]) if index < len(text) else 0
    return LESS if digit < other else GREATER if digit > other else EQUAL


Compared: TypeAlias = tuple[tuple[Mark, int], ...]
"""Marks, each with the comparison of the digits so far."""


def still_open(pairs: Iterable[tuple[Mark, int]]) -> Compared:
    """Return the pairs that more digits may change: excluded numbers that are equal so far."""
    return tuple([pair for pair in pairs if pair[1] == EQUAL or pair[0].role != UNEQUAL])


def _any_equal(compared: Compared) -> bool:
    return any(c == EQUAL for _, c in compared)


class Step(NamedTuple):
    """The decimal ``modulus / 10 ** places``, with as few places as possible."""

    modulus: int
    places: int

    @classmethod
    def of(cls, value: Decimal) -> Step:
        """Return the step of a positive decimal."""
        _, digits, power = value.as_tuple()
        assert isinstance(power, int)
        modulus = int("".join(map(str, digits))) * 10 ** max(power, 0)
        return cls.reduced(modulus, max(-power, 0))

    @classmethod
    def reduced(cls, modulus: int, places: int) -> Step:
        """Return the step ``modulus / 10 ** places``."""
        while places and modulus % 10 == 0:
            modulus, places = modulus // 10, places - 1
        return cls(modulus, places)

    def scaled(self, places: int) -> int:
        """Return the step times ``10 ** places``, for at least as many places as it has."""
        return self.modulus * int(10 ** (places - self.places))

    def divides(self, other: Step) -> bool:
        """Return whether ``other`` is a multiple of this step."""
        places = max(self.places, other.places)
        return other.scaled(places) % self.scaled(places) == 0

    def power(self, remainder: int) -> int | None:
        """Return the least k such that ``modulus`` divides ``remainder * 10 ** k``, or None."""
        for k in range(self.modulus.bit_length() + 1):
            if remainder == 0:
                return k
            remainder = remainder * 10 % self.modulus
        return None


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
        """Make the window empty."""
        self.high = -1

    def bound(self, mark: Mark, compared: int, rest: str) -> None:
        """Keep the digits that satisfy ``mark``, whose digits continue with ``rest``, given the
        comparison of all digits before."""
        if compared != EQUAL:
            if not mark.holds(compared):
                self.bar()
            return
        value = int(rest[: self.n].ljust(self.n, "0") or "0")
        longer = bool(rest[self.n :].strip("0"))  # the mark is above ``value``
        if mark.role == UNEQUAL:
            if not longer:
                self.holes.add(value)
        elif mark.role == UPPER:
            self.high = min(self.high, value if longer or mark.inclusive else value - 1)
        else:
            self.low = max(self.low, value if mark.inclusive and not longer else value + 1)

    def first(self) -> int | None:
        """Return the least x such that ``must[0] + x`` is a multiple of ``must[1]``, and the same
        for no pair in ``avoid``. Cost: a few steps for each pair and hole."""
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


LARGEST, SMALLEST = Decimal("1.7976931348623157e308"), Decimal("5e-324")
"""The range of 64-bit floats: numbers outside have no exponents here."""

MAX_NON_MULTIPLES = 16
"""The most unrelated numbers that a number must not be a multiple of."""

MAX_MULTIPLE_BITS = 14_284
"""The most bits of a required divisor: 4,300 digits, Python's limit for converting an int to text.
"""

MOST_DECIMALS = 16
"""The most decimals before a ``canonical`` exponent: no float is written with more."""

_ANY_EXPONENT = 999  # of zero

_POINT, _MINUS, _PLUS, _ZERO = 0x2E, 0x2D, 0x2B, 0x30
_DIGITS = range(10)


@dataclass(frozen=True, slots=True)
class NumberSpec:
    """The conditions on a number.

    Attributes:
        lower, upper: bounds, None for none; ``exclusive_*``: whether the bound itself is barred.
        multiples: the value must be a multiple of each.
        non_multiples: the value must not be a multiple of any (1 here means: not an integer).
        excluded: forbidden values.
        max_digits: the most digits before the decimal point, after it, and of an exponent (more if
            a bound has more).
        canonical: exponents as Python writes them (see above), no more decimal places than a
            multiple has, and neither fraction nor exponent if only integers are valid. A fraction
            may end with zeros: a model that writes ``2.50`` wants to end there, and would otherwise
            have to write another digit.
        form: ``"digits"``: an integer, without point and exponent; ``"pointed"``: with either of
            them; ``"any"``.
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


def holds_a_whole(spec: NumberSpec) -> bool:
    """Return whether whole numbers only have bounds, and obviously one exists."""
    if spec.excluded or spec.non_multiples or any(Step.of(m).modulus > 1 for m in spec.multiples):
        return False
    lower, upper = spec.lower, spec.upper
    if lower is None or upper is None:
        return True  # room for one digit more than a bound has
    least = math.floor(lower) + 1 if spec.exclusive_lower else math.ceil(lower)
    return least < upper or (least == upper and not spec.exclusive_upper)


class Side(NamedTuple):
    """The conditions for one sign: whether it occurs at all, and the marks."""

    allowed: bool
    marks: tuple[Mark, ...]
    scientific: tuple[Mark, ...]  # the bounds and the range of floats


class Exponents(NamedTuple):
    """The exponents that a mantissa may have: an interval except some points."""

    least: int
    most: int
    holes: frozenset[int]

    @property
    def is_empty(self) -> bool:
        """Whether there are none."""
        return self.most - self.least < len(self.holes)

    def among(self, least: int, most: int) -> int | None:
        """Return the exponent nearest to zero from ``least`` to ``most``, which have the same
        sign."""
        low, high = max(least, self.least), min(most, self.most)
        order = range(low, high + 1) if low >= 0 else range(high, low - 1, -1)
        return next((e for e in order if e not in self.holes), None)


class State(NamedTuple):
    """A point inside a number. Fields that the phase does not use stay empty, so that states
    merge."""

    phase: int
    negative: bool = False
    digits: int = 0  # of the part being written
    compared: Compared = ()  # as plain notation
    scientific: Compared = ()  # … with the first nonzero digits aligned
    lead: int | None = None  # power of ten of the first nonzero digit, known after the point
    # by step, up to the last nonzero digit
    remainders: tuple[int, ...] = ()
    zeros: int = 0  # number of zeros after that
    exponents: Exponents | None = None  # the possible exponents
    exponent: int = 0
    exponent_negative: bool = False


def _need_exponents(marks: Iterable[Mark]) -> bool:
    """Return whether Python writes all numbers within these bounds with an exponent."""
    return any(
        (m.role == LOWER and m.exponent >= 16)
        or (m.role == UPPER and m.significant != "" and m.exponent < -4)
        for m in marks
    )


BEGIN, SIGN, LONE_ZERO, WHOLE, DOT, FRACTION, E, E_SIGN, EXPONENT = range(9)


class NumberLeaf(Leaf):
    """Numbers that satisfy a `NumberSpec`.

    Attributes:
        must: the step that the number must be a multiple of, or None.
        steps: that step, and those that the number must not be a multiple of.
        is_contradictory: whether every multiple of ``must`` is forbidden.
        has_exponents: whether scientific notation is allowed, in all its forms.
        is_short: whether it is allowed only in its ``canonical`` form.
        most_digits, most_fraction, most_exponent: the most digits before and after the point, and
            of an exponent.
        sides: the conditions for positive and for negative numbers.
        is_plain: whether numbers only have bounds and a maximum number of digits.

    Args:
        spec: the conditions on the numbers.
        free: every mantissa may have an exponent.

    Raises:
        CompileLimitExceeded: more than `MAX_NON_MULTIPLES` unrelated ``non_multiples``, or the
            least common multiple of ``multiples`` has more than `MAX_MULTIPLE_BITS`.
    """

    def __init__(self, spec: NumberSpec, free: bool = False) -> None:
        super().__init__()
        self.spec = spec
        multiples = [Step.of(m) for m in spec.multiples]
        if spec.form == "digits":
            multiples.append(Step(1, 0))
        must = None
        if multiples:  # the least step that all of them divide
            places = max(step.places for step in multiples)
            common = 1
            for step in multiples:
                common = math.lcm(common, step.scaled(places))
                WORK.spend(common.bit_length() >> 8)
                check_limit(
                    common.bit_length(),
                    MAX_MULTIPLE_BITS,
                    "the least common multiple of 'multipleOf' values is too large",
                )
            must = Step.reduced(common, places)
        barred = {Step.of(m) for m in spec.non_multiples}
        WORK.spend(len(barred) ** 2 >> 2)  # each pair is compared
        avoid = [s for s in sorted(barred) if not any(o != s and o.divides(s) for o in barred)]
        check_limit(
            len(avoid), MAX_NON_MULTIPLES, "'not' excludes the multiples of too many numbers"
        )
        self.must = must
        self.steps = ([must] if must else []) + avoid
        self.is_contradictory = must is not None and any(step.divides(must) for step in avoid)
        self.has_exponents = not spec.canonical and spec.form != "digits"
        is_whole = must is not None and must.places == 0
        self.is_short = spec.canonical and spec.form != "digits" and not is_whole
        self.sides = (self._side(False), self._side(True))
        marks = [m for side in self.sides for m in side.marks]
        self.most_digits = max(
            [spec.max_digits, *(len(m.whole) + 1 for m in marks)]
            + [len(m.fraction) + 1 for m in marks]
            + [max(s.places, len(str(s.modulus)) - s.places + 1) for s in self.steps]
        )
        self.most_fraction = self.most_digits
        # The remainder of all digits is enough if no digit may follow a step's last place.
        self._counts_zeros = bool(self.steps)
        if spec.form == "digits":
            self.most_fraction = 0
        elif spec.canonical and must is not None:
            self.most_fraction = max(must.places, spec.form == "pointed")
        if spec.canonical and must is not None and len(self.steps) == 1:
            self._counts_zeros = self.most_fraction > must.places
        self.most_exponent = 3 if spec.canonical else max(spec.max_digits, 3)
        # Digits are only compared with bounds and counted.
        self.is_plain = not self.has_exponents and all(s.modulus == 1 for s in self.steps)
        self._completions: dict[State, bytes | None] = {}
        # For positive and negative numbers: whether a mantissa need not begin a plain number.
        self._is_free = [free or (not self.steps and _need_exponents(s.marks)) for s in self.sides]
        self.start = self.state(State(BEGIN))

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
        if not self.has_exponents and not self.is_short:
            return Side(True, tuple(marks), ())
        floats = []
        if upper is None or upper > LARGEST:
            floats.append(Mark(LARGEST, UPPER, True))
        if lower is None or lower < SMALLEST:
            floats.append(Mark(SMALLEST, LOWER, True))
        return Side(True, tuple(marks), tuple(marks + floats))

    # -- transitions ------------------------------------------------------------------------

    def following(self, s: State) -> Iterator[tuple[int, State]]:
        """Yield the bytes with which a number may continue by JSON's grammar alone."""
        phase = s.phase
        if phase == BEGIN and self.sides[True].allowed:
            yield _MINUS, State(SIGN, True)
        if phase in (BEGIN, SIGN) and self.sides[s.negative].allowed:
            yield from self._by_digit(s, 0, self._first)
        elif phase == WHOLE and s.digits < self.most_digits:
            yield from self._by_digit(s, s.digits, self._whole_digit)
        if phase in (LONE_ZERO, WHOLE) and self.most_fraction:
            lead = None
            if phase == WHOLE:
                lead = s.digits - 1 if self.has_exponents else 0
            compared = self._compared_at_point(s)
            yield _POINT, s._replace(phase=DOT, digits=0, compared=compared, lead=lead)
        elif phase in (DOT, FRACTION) and s.digits < self.most_fraction:
            yield from self._by_digit(s, s.digits, self._fraction_digit)
        if phase in (LONE_ZERO, WHOLE, FRACTION) and s.scientific:
            after = State(E, exponents=self.allowed(s))
            yield 0x65, after
            if self.has_exponents:
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
        """Yield the state after each digit. Usually a few digits stand for all: besides zero, only
        those matter that a mark has at this place."""
        if self.is_plain:
            side = self.sides[s.negative]
            # Before the point, zeros count like other digits.
            pivots = set() if s.phase == WHOLE and not self._counts_zeros else {0}
            compared, so_far, at = s.compared, s.scientific, index + 1
            if s.phase in (BEGIN, SIGN):
                compared = tuple([(mark, EQUAL) for mark in side.marks])
                so_far, at = tuple([(mark, EQUAL) for mark in side.scientific]), 0
            is_fraction = s.phase in (DOT, FRACTION)
            looked_at = [(m.fraction if is_fraction else m.whole, c, index) for m, c in compared]
            if s.phase != WHOLE:  # the first digit is before the point
                looked_at += [(mark.significant, c, at) for mark, c in so_far]
            for text, c, at in looked_at:
                if c == EQUAL and at < len(text):
                    pivots.add(int(text[at]))
            last = to = None
            for digit in _DIGITS:
                if to is None or digit in pivots or last in pivots:
                    to = read(s, digit)
                last = digit
                yield _ZERO + digit, to
            return
        for digit in _DIGITS:
            yield _ZERO + digit, read(s, digit)

    def _first(self, s: State, digit: int) -> State:
        side = self.sides[s.negative]
        compared = still_open((m, compare(EQUAL, digit, m.whole, 0)) for m in side.marks)
        if digit:
            scientific = still_open(
                (m, compare(EQUAL, digit, m.significant, 0)) for m in side.scientific
            )
        else:
            scientific = tuple([(m, EQUAL) for m in side.scientific if self.has_exponents])
        return State(
            WHOLE if digit else LONE_ZERO,
            s.negative,
            1,
            compared,
            scientific,
            remainders=tuple(digit % step.modulus for step in self.steps),
        )

    def _whole_digit(self, s: State, digit: int) -> State:
        index = s.digits
        compared = still_open(
            (m, compare(c, digit, m.whole, index) if index < len(m.whole) else GREATER)
            for m, c in s.compared
        )
        if self.is_plain and not self._counts_zeros:
            return State(WHOLE, s.negative, index + 1, compared, remainders=s.remainders)
        return s._replace(
            digits=index + 1,
            compared=compared,
            scientific=self._significant(s, digit, index) if self.has_exponents else (),
            **self._with_digit(s, digit),
        )

    @staticmethod
    def _compared_at_point(s: State) -> Compared:
        """Return the comparisons after the end of the digits before the point."""
        return still_open(
            (m, c if s.digits == len(m.whole) else LESS if s.digits < len(m.whole) else GREATER)
            for m, c in s.compared
        )

    def _fraction_digit(self, s: State, digit: int) -> State:
        index = s.digits
        lead = s.lead
        if lead is None and digit:
            lead = -1 - index if self.has_exponents else 0
        scientific = s.scientific
        if lead is not None:
            scientific = self._significant(s, digit, index + lead + 1)
        if self.is_short and index >= MOST_DECIMALS:
            scientific = ()
        return s._replace(
            phase=FRACTION,
            digits=index + 1,
            compared=still_open((m, compare(c, digit, m.fraction, index)) for m, c in s.compared),
            scientific=scientific,
            lead=lead,
            **self._with_digit(s, digit),
        )

    @staticmethod
    def _significant(s: State, digit: int, index: int) -> Compared:
        return still_open((m, compare(c, digit, m.significant, index)) for m, c in s.scientific)

    def _with_digit(self, s: State, digit: int) -> dict[str, Any]:
        """Return the remainders and zeros after one more digit."""
        counts_zeros = self._counts_zeros or (
            self.is_short and bool(self.steps and s.scientific) and s.phase != WHOLE
        )
        if self.is_plain and not counts_zeros:
            return {"zeros": 0}
        if digit == 0 and counts_zeros:
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
        """Return whether all digits so far are zeros."""
        return s.lead is None and s.phase != WHOLE

    @staticmethod
    def places(s: State) -> int:
        """Return the number of digits after the point."""
        return s.digits if s.phase in (DOT, FRACTION) else 0

    def complete(self, s: State) -> bool:
        """Return whether the number may end here."""
        if s.phase == EXPONENT:
            assert s.exponents is not None
            exponent = -s.exponent if s.exponent_negative else s.exponent
            return s.exponents.among(exponent, exponent) is not None
        if s.phase in (LONE_ZERO, WHOLE):
            return self.spec.form != "pointed" and self._is_right(s)
        return s.phase == FRACTION and self._is_right(s)

    def _is_right(self, s: State) -> bool:
        """Return whether the digits so far, in plain notation, satisfy the spec."""
        places = self.places(s)
        compared = s.compared
        if s.phase in (LONE_ZERO, WHOLE):
            compared = self._compared_at_point(s)
        for mark, c in compared:
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
        """Return the exponents that the mantissa ``s`` may have."""
        if self.is_zero(s):
            most = _ANY_EXPONENT if self._is_right(s) else -_ANY_EXPONENT - 1
            return Exponents(-_ANY_EXPONENT, most, frozenset())
        places = self.places(s)
        lead = s.digits - 1 if s.phase == WHOLE else s.lead
        assert lead is not None
        least, most = -(10**9), 10**9
        holes: set[int] = set()
        for mark, c in s.scientific:
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

    # -- Leaf -------------------------------------------------------------------------------

    def is_empty(self) -> bool:
        """Return whether no number satisfies the spec."""
        return not holds_a_whole(self.spec) and not self._is_alive(State(BEGIN))

    def _edges(self, key: Any) -> Mapping[int, Any]:
        assert isinstance(key, State)
        edges: dict[int, State] = {}
        last, is_alive = None, False
        for byte, to in self.following(key):
            if to is not last:
                last, is_alive = to, self._is_alive(to)
            if is_alive:
                edges[byte] = to
        return edges

    def _label(self, key: Any) -> int:
        assert isinstance(key, State)
        return 0 if self.complete(key) else -1

    def alike(self, q: int, most_digits: int) -> int:
        """See `Leaf.alike`: once no bound matters, states differ only in the room for digits."""
        s: State = self._keys[q]
        if not self.is_plain or self._counts_zeros:
            return q
        if s.phase == WHOLE:
            digits = 1 + max([len(m.whole) for m in self.sides[s.negative].marks], default=0)
            room = self.most_digits
        elif s.phase == FRACTION and not self.steps and not _any_equal(s.compared + s.scientific):
            digits, room = 1, self.most_fraction
            if s.scientific:
                room = min(room, MOST_DECIMALS)
        else:
            return q
        if digits < s.digits <= room - most_digits:
            return self.state(s._replace(digits=digits))
        return q

    def _search(self, q: int, wanted: int | None) -> tuple[Text, int] | None:
        text = self._completion(self._keys[q])
        return None if text is None or wanted not in (None, 0) else (text, 0)

    # -- what is to come --------------------------------------------------------------------

    @cached_method
    def _is_alive(self, s: State) -> bool:
        """Return whether ``s`` can continue to a number that satisfies the spec."""
        if s.phase in (BEGIN, SIGN):
            return any(self._is_alive(to) for _, to in self.following(s))
        if s.phase in (LONE_ZERO, WHOLE, DOT, FRACTION):
            if self.complete(s):
                return True
            if self.has_exponents and s.phase != DOT and not self.allowed(s).is_empty:
                return True
            if not self.is_contradictory and self._has_plain(s):
                return True
            if not self.has_exponents and not (s.scientific and self._is_free[s.negative]):
                return False
        return self._completion(s) is not None

    # -- completion -------------------------------------------------------------------------

    def _completion(self, s: State) -> bytes | None:
        """Return a shortest continuation to a number that satisfies the spec, or None."""
        if s in self._completions:
            return self._completions[s]
        if self.is_contradictory:
            return None
        if s.phase in (BEGIN, SIGN):
            ways = [
                bytes([byte]) + rest
                for byte, to in self.following(s)
                if self._is_alive(to) and (rest := self._completion(to)) is not None
            ]
            found = min(ways, key=lambda b: (len(b), b), default=None)
        elif self.complete(s):
            found = b""
        elif s.phase >= E:
            found = self._exponent(s)
        else:
            found = self._plain(s)
            if self.has_exponents and s.phase != DOT:
                rest = self._exponent(State(E, exponents=self.allowed(s)))
                if rest is not None and (found is None or len(rest) + 1 < len(found)):
                    found = b"e" + rest
            if self.has_exponents and found is None:
                found = self._digits_and_exponent(s)
            elif self.is_short and s.scientific:
                found = self._shorter(s, found)
        self._completions[s] = found
        return found

    def _shorter(self, s: State, found: bytes | None) -> bytes | None:
        """Return a shorter completion with an exponent, or ``found`` if there is none."""
        is_free = self._is_free[s.negative]
        level = {s: b""}
        for n in range(self.most_fraction + 2):
            if not level or (found is not None and n + 2 >= len(found)):
                break
            following: dict[State, bytes] = {}
            for at, text in level.items():
                WORK.spend(1)
                if at.phase != DOT:
                    rest = self._exponent(State(E, exponents=self.allowed(at)))
                    if rest is not None and (found is None or n + 1 + len(rest) < len(found)):
                        found = text + b"e" + rest
                if at.phase != DOT and not self.steps and not _any_equal(at.scientific):
                    continue  # more digits allow no other exponent
                for byte, to in self.following(at):
                    if to.scientific and (is_free or self._is_alive(to)):
                        following.setdefault(to, text + bytes([byte]))
            level = following
        return found

    def _exponent(self, s: State) -> bytes | None:
        """Return the digits, or sign and digits, of an exponent."""
        assert s.exponents is not None
        if s.exponents.is_empty:
            return None
        signs = [s.exponent_negative] if s.phase != E else [False, True]
        most = max(abs(s.exponents.least), abs(s.exponents.most))
        for n in range(0 if s.phase == EXPONENT else 1, self.most_exponent - s.digits + 1):
            low = s.exponent * 10**n
            if low > most:
                break
            for negative in signs:
                ends = (low, low + 10**n - 1)
                found = s.exponents.among(*((-ends[1], -ends[0]) if negative else ends))
                if found is not None:
                    sign = b"-" if negative and s.phase == E else b""
                    digits = str(abs(found) - low).rjust(n, "0") if n else ""
                    return sign + digits.encode()
        return None

    def _plain(self, s: State) -> bytes | None:
        """Return the digits, perhaps with a point, that complete a number in plain notation."""
        best: bytes | None = None
        room = self.most_digits - s.digits if s.phase == WHOLE else 0
        before_point = s.phase in (LONE_ZERO, WHOLE)
        fraction = self.most_fraction - self.places(s)
        for whole in range(room + 1):
            if best is not None and whole >= len(best):
                break
            # If any fraction is valid, one of the longest is.
            if self._plain_digits(s, whole, fraction) is None:
                continue
            for n in range(fraction + 1):
                digits = self._plain_digits(s, whole, n)
                if digits is None or (n == 0 and before_point and self.spec.form == "pointed"):
                    continue
                if n == 0 and (s.phase == DOT or whole == 0):
                    continue
                text = digits[:whole] + ("." if n and before_point else "") + digits[whole:]
                if best is None or len(text) < len(best):
                    best = text.encode()
                break
        return best

    def _has_plain(self, s: State) -> bool:
        """Return whether such digits exist: it is enough to check the longest fraction."""
        fraction = self.most_fraction - self.places(s)
        before_point = s.phase in (LONE_ZERO, WHOLE)
        if not fraction and before_point and self.spec.form == "pointed":
            return False
        least = 0 if fraction else 1
        most = self.most_digits - s.digits if s.phase == WHOLE else 0
        if before_point:
            for mark in self.sides[s.negative].marks:
                if mark.role == UPPER:  # more digits before the point: greater,
                    most = min(most, max(0, len(mark.whole) - s.digits))
                elif mark.role == LOWER:  # fewer: less
                    least = max(least, len(mark.whole) - s.digits)
        # The most digits allow the most numbers.
        return any(
            self._plain_digits(s, whole, fraction) is not None
            for whole in range(most, least - 1, -1)
        )

    def _plain_digits(self, s: State, whole: int, fraction: int) -> str | None:
        """Return the fewest further digits before and after the point that are valid, or None."""
        n = whole + fraction
        window = Window(n)
        before_point = s.phase in (LONE_ZERO, WHOLE)
        length = s.digits + whole
        for mark, c in s.compared:
            if not before_point:
                window.bound(mark, c, mark.fraction[s.digits :])
            elif length != len(mark.whole):
                window.bound(mark, LESS if length < len(mark.whole) else GREATER, "")
            else:
                window.bound(mark, c, mark.whole[s.digits :] + mark.fraction)
        self._congruences(window, s, self.places(s) + fraction)
        found = window.first()
        return None if found is None else str(found).rjust(n, "0") if n else ""

    def _congruences(self, window: Window, s: State, places: int) -> None:
        """Add the conditions of the steps on the digits in ``window``, the last of them at
        10**-places."""
        for i, (r, step) in enumerate(zip(s.remainders, self.steps, strict=True)):
            missing = places - step.places
            shift = s.zeros + window.n
            pair: tuple[int, int] | None
            if missing <= 0:
                modulus = step.modulus // math.gcd(step.modulus, 10**-missing)
                pair = r * pow(10, shift, modulus) % modulus, modulus
            elif self.is_zero(s):
                pair = 0, 10**missing * step.modulus
            elif shift >= missing:
                offset = r * pow(10, shift - missing, step.modulus) % step.modulus
                pair = 10**missing * offset, 10**missing * step.modulus
            else:
                pair = None  # a nonzero digit is below the step's last place
            if i or self.must is None:
                window.avoid += [pair] if pair is not None else []
            elif pair is None:
                window.bar()
            else:
                window.must = pair

    def _digits_and_exponent(self, s: State) -> bytes | None:
        """Return more digits and an exponent, if neither alone is enough."""
        whole = self.most_digits - s.digits if s.phase == WHOLE else 0
        fraction = self.most_fraction - self.places(s)
        powers = list(self._powers(s))
        most = whole + fraction
        for power in powers:
            if most and self._significant_digits(s, most, power) is not None:
                break
        else:
            return None
        for n in range(1, most + 1):
            for power in powers:
                digits = self._significant_digits(s, n, power)
                if digits is None:
                    continue
                if s.phase == WHOLE:
                    lead = s.digits + min(n, whole) - 1
                else:
                    lead = -1 - self.places(s) if s.lead is None else s.lead
                if whole < n and s.phase in (LONE_ZERO, WHOLE):
                    digits = digits[:whole] + "." + digits[whole:]
                return f"{digits}e{power - lead}".encode()
        return None

    def _powers(self, s: State) -> Iterator[int]:
        """Yield powers of ten of the first digit that may give a number from here."""
        marks = self.sides[s.negative].scientific
        least = max(m.exponent for m in marks if m.role == LOWER and m.significant)
        most = min(m.exponent if m.significant else least - 1 for m in marks if m.role == UPPER)
        if self.must is not None:
            least = max(least, len(str(self.must.modulus)) - 1 - self.must.places)
        if len(self.steps) > (self.must is not None):
            yield from range(least, most + 1)
            return
        # Between marks only multiples matter, and the largest powers have most of them.
        special = {m.exponent for m in marks if m.significant}
        free = next((p for p in range(most, least - 1, -1) if p not in special), None)
        if free is not None:
            yield free
        yield from (p for p in sorted(special) if least <= p <= most)

    def _significant_digits(self, s: State, n: int, power: int) -> str | None:
        """Return ``n`` more digits, the number's first one at 10**power."""
        window = Window(n)
        known = 0
        if self.is_zero(s):
            window.low = 10 ** (n - 1)
        else:
            lead = s.digits - 1 if s.phase == WHOLE else s.lead or 0
            known = lead + 1 + self.places(s)
        for mark, c in s.scientific:
            if not mark.significant:
                c = GREATER
            elif power != mark.exponent:
                c = LESS if power < mark.exponent else GREATER
            window.bound(mark, c, mark.significant[known:])
        self._congruences(window, s, known + n - 1 - power)
        found = window.first()
        return None if found is None else str(found).rjust(n, "0")
