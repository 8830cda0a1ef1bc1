"""JSON numbers as a leaf automaton: bounds, multiples and integrality on the decimal spelling.

A number is read digit by digit, most significant first, and compared with each bound as it goes:
after ``k`` digits it is enough to know ``k`` and whether the digits so far are less than, equal to
or greater than the bound's first ``k`` digits. Multiples keep a remainder. States are therefore
few whatever the size of the bounds.

Spellings: plain decimal notation (RFC 8259) with at most ``max_digits`` digits before and after the
point, and scientific notation. Where a number is bounded or must be a multiple, scientific notation
needs a normalised mantissa (one digit before the point, not 0), which is what every serialiser
writes; so the exponent alone gives the order of magnitude. ``1.0`` and ``1e2`` are integers.

This module knows numbers only; `values` decides which schema keywords lead here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from . import liveness
from .leaf import Leaf

MAX_EXPONENT = 307
"""Largest exponent either way of a normalised number: a float holds it, and not as 0 or inf."""

MAX_STATES = 50_000
"""Most states that are looked at to tell whether a prefix can still become such a number."""

_LESS, _EQUAL, _GREATER = -1, 0, 1
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
        max_digits: most digits before, and after, the decimal point (more where a bound has more).
        canonical: one spelling for each number: no exponent, no zeros at the end of a fraction
            (but ``.0``), and no fraction at all where only integers will do.
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

    @property
    def plain(self) -> bool:
        """Nothing is asked but that it be a number."""
        return (
            self.lower is None
            and self.upper is None
            and not self.multiples
            and not self.non_multiples
            and not self.excluded
        )


_LOWER, _UPPER, _UNEQUAL = range(3)


class _Mark:
    """A magnitude that numbers are compared with: its digits, plain and normalised."""

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
        significant = (self.whole + self.fraction).lstrip("0")
        self.significant = significant.rstrip("0")
        # exponent of the normalised form; meaningless for zero
        if self.whole != "0":
            self.exponent = len(self.whole) - 1
        else:
            self.exponent = -1 - (len(self.fraction) - len(self.fraction.lstrip("0")))
        self.role = role
        self.inclusive = inclusive

    def holds(self, compared: int) -> bool:
        """Whether a number that compares so with this magnitude is all right."""
        if compared == _EQUAL:
            return self.inclusive
        return self.role == _UNEQUAL or (compared == _GREATER) == (self.role == _LOWER)


class _Side(NamedTuple):
    """What holds for one sign: whether it occurs at all, the marks, the range of exponents."""

    allowed: bool
    marks: tuple[_Mark, ...]
    least_exponent: int
    most_exponent: int


class _State(NamedTuple):
    """A point inside a number. Fields that the phase does not use stay empty: states merge."""

    phase: int
    negative: bool = False
    digits: int = 0  # of the part being written
    compared: tuple[int, ...] = ()  # with each mark, as plain notation
    scientific: tuple[int, ...] = ()  # … with mantissas aligned
    remainders: tuple[int, ...] = ()
    off_grid: tuple[bool, ...] = ()  # a digit that is not 0 below a step's own last digit
    normal: bool = False  # one digit before the point, not 0: scientific notation may follow
    tail: int = 0  # digits of the mantissa's fraction up to the last that is not 0
    exponent: int = 0
    exponent_negative: bool = False
    zero_last: bool = False  # a fraction that ends in 0: not the end of a canonical number


_BEGIN, _SIGN, _LONE_ZERO, _WHOLE, _DOT, _FRACTION, _E, _E_SIGN, _EXPONENT = range(9)


class NumberLeaf(Leaf):
    """Numbers that satisfy a `NumberSpec`."""

    def __init__(self, spec: NumberSpec) -> None:
        super().__init__()
        self.spec = spec
        self._plain = spec.plain
        self._steps = spec.multiples + spec.non_multiples
        self._modulus: list[int] = []
        self._places: list[int] = []
        for step in self._steps:
            _, digits, power = step.as_tuple()
            assert isinstance(power, int)
            value = int("".join(map(str, digits)))
            self._modulus.append(value * 10 ** max(power, 0))
            self._places.append(max(-power, 0))
        # Scientific notation is judged by exponent and mantissa; of steps, only 1 can be.
        self._scientific = not spec.canonical and all(
            m == 1 and not p for m, p in zip(self._modulus, self._places, strict=True)
        )
        # the one step that an integer may miss, and what it comes to among integers
        steps = [
            (i, self._modulus[i] // math.gcd(self._modulus[i], 10 ** self._places[i]))
            for i in range(len(spec.multiples))
        ]
        steps = [(i, modulus) for i, modulus in steps if modulus > 1]
        self._only_step = steps[0] if len(steps) == 1 else None
        self._no_fraction = spec.canonical and any(
            not p for p in self._places[: len(spec.multiples)]
        )
        self._whole_only = self._scientific and bool(spec.multiples)
        self._sides = (self._side(False), self._side(True))
        marks = [m for side in self._sides for m in side.marks]
        self._most_digits = max(
            [spec.max_digits, *(len(m.whole) + 1 for m in marks)]
            + [len(m.fraction) + 1 for m in marks]
            + [max(self._places, default=0)]
        )
        self._alive: dict[_State, bool] = {}
        self._raw: dict[_State, dict[int, _State]] = {}
        self.start = self.state(_State(_BEGIN))

    def _side(self, negative: bool) -> _Side:
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
        least, most = -MAX_EXPONENT, MAX_EXPONENT
        marks: list[_Mark] = []
        if upper is not None:
            if upper < 0 or (upper == 0 and not upper_inclusive):
                return _Side(False, (), 0, 0)
            marks.append(_Mark(upper, _UPPER, upper_inclusive))
            most = min(most, marks[-1].exponent) if upper else least - 1
        if lower is not None and (lower > 0 or (lower == 0 and not lower_inclusive)):
            marks.append(_Mark(lower, _LOWER, lower_inclusive))
            if lower:
                least = max(least, marks[-1].exponent)
        marks += [_Mark(abs(v), _UNEQUAL, False) for v in excluded]
        return _Side(True, tuple(marks), least, most)

    def is_empty(self) -> bool:
        """Whether no number satisfies the spec."""
        return not self.row(self.start)

    # -- Leaf -------------------------------------------------------------------------------

    def _edges(self, key: Any) -> Mapping[int, Any]:
        assert isinstance(key, _State)
        return {b: to for b, to in self._raw_edges(key).items() if self._is_alive(to)}

    def _label(self, key: Any) -> int:
        assert isinstance(key, _State)
        return 0 if self._complete(key) else -1

    def _search(self, q: int, wanted: int | None) -> tuple[bytes, int] | None:
        # The next multiple is arithmetic; searching for it would visit every remainder.
        for text in self._next_multiples(self._keys[q]):
            to: int | None = q
            for byte in text:
                to = self.row(to).get(byte) if to is not None else None
            if to is not None and self.label(to) >= 0:
                return text, 0
        return super()._search(q, wanted)

    def _next_multiples(self, state: _State) -> Iterator[bytes]:
        """Digits that make ``state`` a multiple of the only step there is besides 1."""
        if state.phase != _WHOLE or self._only_step is None:
            return
        index, modulus = self._only_step
        for n in range(1, self._most_digits - state.digits + 1):
            rest = -state.remainders[index] * 10**n % modulus
            if rest < 10**n:
                yield str(rest).rjust(n, "0").encode()

    def _is_alive(self, state: _State) -> bool:
        return liveness.is_alive(
            state,
            self._alive,
            self._obviously_alive,
            self._successors,
            MAX_STATES,
            "the bounds and multiples of a number are too fine to tell which digits fit",
        )

    def _successors(self, state: _State) -> Iterable[_State]:
        return () if self._hopeless(state) else self._raw_edges(state).values()

    def _obviously_alive(self, s: _State) -> bool:
        if self._complete(s):
            return True
        if s.phase != _WHOLE or self.spec.non_multiples or self.spec.excluded:
            return False
        # With as many free digits as the steps have, some continuation is a multiple of all.
        room = self._most_digits
        for mark in self._sides[s.negative].marks:
            if mark.role != _UPPER:
                return False
            room = min(room, len(mark.whole) - 1)
        if any(s.digits + len(text) <= room for text in self._next_multiples(s)):
            return True
        product = 1
        for modulus in self._modulus:
            product *= modulus
        return room - s.digits >= len(str(product))

    def _hopeless(self, s: _State) -> bool:
        """Whether no more digits can help, told by arithmetic."""
        return (
            s.phase == _WHOLE
            and self._no_fraction
            and self._only_step is not None
            and not self._complete(s)
            and not any(True for _ in self._next_multiples(s))
        )

    # -- transitions ------------------------------------------------------------------------

    def _raw_edges(self, s: _State) -> dict[int, _State]:
        edges = self._raw.get(s)
        if edges is None:
            edges = self._raw[s] = self._make_edges(s)
        return edges

    def _make_edges(self, s: _State) -> dict[int, _State]:
        phase = s.phase
        edges: dict[int, _State] = {}
        most = self._most_digits
        if phase in (_BEGIN, _SIGN):
            if phase == _BEGIN and self._sides[1].allowed:
                edges[_MINUS] = _State(_SIGN, True)
            if self._sides[s.negative].allowed:
                for digit in _DIGITS:
                    edges[_ZERO + digit] = self._first(s.negative, digit)
            return edges
        if phase == _WHOLE and s.digits < most and self._may_grow(s):
            for digit in _DIGITS:
                edges[_ZERO + digit] = self._whole_digit(s, digit)
        if phase in (_LONE_ZERO, _WHOLE) and not self._no_fraction:
            edges[_POINT] = self._at_point(s)
        if phase in (_DOT, _FRACTION) and s.digits < most:
            for digit in _DIGITS:
                to = self._fraction_digit(s, digit)
                if to is not None:
                    edges[_ZERO + digit] = to
        if phase in (_LONE_ZERO, _WHOLE, _FRACTION) and (
            (self._plain and not self.spec.canonical) or (s.normal and self._scientific)
        ):
            after = self._at_exponent(s)
            if after is not None:
                edges[0x65] = edges[0x45] = after
        if phase == _E:
            edges[_PLUS] = s._replace(phase=_E_SIGN)
            edges[_MINUS] = s._replace(phase=_E_SIGN, exponent_negative=True)
        if phase in (_E, _E_SIGN, _EXPONENT) and s.digits < 3:
            for digit in _DIGITS:
                to = self._exponent_digit(s, digit)
                if to is not None:
                    edges[_ZERO + digit] = to
        return edges

    def _may_grow(self, s: _State) -> bool:
        """Whether one more digit before the point can still be within the upper bound."""
        return all(
            m.role != _UPPER
            or s.digits + 1 < len(m.whole)
            or (s.digits + 1 == len(m.whole) and c != _GREATER)
            for m, c in zip(self._sides[s.negative].marks, s.compared, strict=True)
        )

    def _first(self, negative: bool, digit: int) -> _State:
        marks = self._sides[negative].marks
        return _State(
            _WHOLE if digit else _LONE_ZERO,
            negative,
            1,
            tuple(_compare(_EQUAL, digit, m.whole, 0) for m in marks),
            tuple(_compare(_EQUAL, digit, m.significant, 0) for m in marks) if digit else (),
            tuple(digit % m for m in self._modulus),
            (False,) * len(self._modulus),
            digit > 0,
        )

    def _whole_digit(self, s: _State, digit: int) -> _State:
        marks = self._sides[s.negative].marks
        index = s.digits
        return s._replace(
            digits=index + 1,
            compared=tuple(
                _compare(c, digit, m.whole, index) if index < len(m.whole) else _GREATER
                for m, c in zip(marks, s.compared, strict=True)
            ),
            scientific=(),
            normal=False,
            remainders=tuple(
                (r * 10 + digit) % m for r, m in zip(s.remainders, self._modulus, strict=True)
            ),
        )

    def _at_point(self, s: _State) -> _State:
        marks = self._sides[s.negative].marks
        compared = []
        for mark, c in zip(marks, s.compared, strict=True):
            if s.digits != len(mark.whole):
                c = _LESS if s.digits < len(mark.whole) else _GREATER
            compared.append(c)
        return s._replace(phase=_DOT, digits=0, compared=tuple(compared))

    def _fraction_digit(self, s: _State, digit: int) -> _State | None:
        marks = self._sides[s.negative].marks
        index = s.digits
        remainders, off_grid = [], []
        for i, (r, off) in enumerate(zip(s.remainders, s.off_grid, strict=True)):
            inside = index < self._places[i]
            remainders.append((r * 10 + digit) % self._modulus[i] if inside else r)
            off = off or (not inside and digit > 0)
            off_grid.append(off)
            if off and i < len(self.spec.multiples) and not (s.normal and self._scientific):
                return None
        tail = index + 1 if digit and self._steps and s.normal else s.tail
        if self._whole_only and s.normal and tail > self._sides[s.negative].most_exponent:
            return None
        return s._replace(
            phase=_FRACTION,
            digits=index + 1,
            compared=tuple(
                _compare(c, digit, m.fraction, index)
                for m, c in zip(marks, s.compared, strict=True)
            ),
            scientific=tuple(
                _compare(c, digit, m.significant, index + 1)
                for m, c in zip(marks, s.scientific, strict=True)
            )
            if s.normal
            else (),
            remainders=tuple(remainders),
            off_grid=tuple(off_grid),
            tail=tail,
            zero_last=self.spec.canonical and digit == 0 and index > 0,
        )

    def _at_exponent(self, s: _State) -> _State | None:
        if self._plain:
            return _State(_E, normal=s.normal)
        side = self._sides[s.negative]
        if self._whole_only and s.tail > side.most_exponent:
            return None
        digits_read = 1 + (s.digits if s.phase == _FRACTION else 0)
        return _State(
            _E,
            s.negative,
            scientific=tuple(
                _LESS if c == _EQUAL and digits_read < len(m.significant) else c
                for m, c in zip(side.marks, s.scientific, strict=True)
            ),
            tail=s.tail,
        )

    def _exponent_digit(self, s: _State, digit: int) -> _State | None:
        value = s.exponent * 10 + digit
        if self._plain:
            # Digits before the point add to the exponent.
            most = MAX_EXPONENT if s.normal else MAX_EXPONENT - self._most_digits
            if value > most:
                return None
            return s._replace(phase=_EXPONENT, exponent=value, digits=s.digits + 1)
        side = self._sides[s.negative]
        if s.exponent_negative:
            if -value < side.least_exponent or (self._whole_only and value > 0):
                return None
        elif value > side.most_exponent:
            return None
        return s._replace(phase=_EXPONENT, exponent=value, digits=s.digits + 1)

    # -- acceptance -------------------------------------------------------------------------

    def _complete(self, s: _State) -> bool:
        if s.phase == _EXPONENT:
            return self._plain or self._exponent_complete(s)
        if s.phase in (_LONE_ZERO, _WHOLE):
            s = self._at_point(s)
        elif s.phase != _FRACTION or s.zero_last:
            return False
        for mark, c in zip(self._sides[s.negative].marks, s.compared, strict=True):
            if c == _EQUAL and len(mark.fraction) > s.digits:
                c = _LESS
            if not mark.holds(c):
                return False
        for i, (r, off) in enumerate(zip(s.remainders, s.off_grid, strict=True)):
            missing = max(self._places[i] - s.digits, 0)
            is_multiple = not off and (r * 10**missing) % self._modulus[i] == 0
            if is_multiple != (i < len(self.spec.multiples)):
                return False
        return True

    def _exponent_complete(self, s: _State) -> bool:
        exponent = -s.exponent if s.exponent_negative else s.exponent
        for mark, c in zip(self._sides[s.negative].marks, s.scientific, strict=True):
            if not mark.significant:  # the mark is zero, the value is not
                c = _GREATER
            elif exponent != mark.exponent:
                c = _LESS if exponent < mark.exponent else _GREATER
            if not mark.holds(c):
                return False
        whole = exponent >= s.tail
        return all(whole == (i < len(self.spec.multiples)) for i in range(len(self._steps)))


def _compare(so_far: int, digit: int, text: str, index: int) -> int:
    """Compare one more digit with that of ``text``, where everything before was ``so_far``."""
    if so_far != _EQUAL:
        return so_far
    other = int(text[index]) if index < len(text) else 0
    return _LESS if digit < other else _GREATER if digit > other else _EQUAL
