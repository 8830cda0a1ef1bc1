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

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from .leaf import Leaf

MAX_EXPONENT = 400
"""Largest exponent either way; beyond it no float exists."""

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
        max_digits: most digits before, and after, the decimal point.
    """

    lower: Decimal | None = None
    upper: Decimal | None = None
    exclusive_lower: bool = False
    exclusive_upper: bool = False
    multiples: tuple[Decimal, ...] = ()
    non_multiples: tuple[Decimal, ...] = ()
    max_digits: int = 24

    @property
    def plain(self) -> bool:
        """Nothing is asked but that it be a number."""
        return (
            self.lower is None
            and self.upper is None
            and not self.multiples
            and not self.non_multiples
        )


class _Bound:
    """One magnitude to compare with: its digits before and after the point, and normalised."""

    __slots__ = ("exponent", "fraction", "inclusive", "significant", "whole")

    def __init__(self, value: Decimal, inclusive: bool) -> None:
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
        self.inclusive = inclusive

    def digit(self, text: str, index: int) -> int:
        return int(text[index]) if index < len(text) else 0


class _State(NamedTuple):
    """A point inside a number. Fields that the phase does not use stay 0, so that states merge."""

    phase: str  # "start", "sign", "zero", "whole", "point", "fraction", "e", "esign", "exponent"
    negative: bool = False
    count: int = 0  # digits before the point ("whole"), or after it ("point", "fraction")
    low: int = 0  # comparison with the magnitude's lower bound so far
    high: int = 0  # … and with its upper bound
    low_scientific: int = 0  # the same with mantissas aligned, for scientific notation
    high_scientific: int = 0
    remainders: tuple[int, ...] = ()
    off_grid: tuple[bool, ...] = ()  # digits below a multiple's own last digit that are not 0
    nonzero: bool = False
    normal: bool = False  # one nonzero digit before the point: scientific notation may follow
    exponent: int = 0
    exponent_negative: bool = False
    tail: int = 0  # digits of the mantissa's fraction up to the last that is not 0


class NumberLeaf(Leaf):
    """Numbers that satisfy a `NumberSpec`."""

    def __init__(self, spec: NumberSpec) -> None:
        super().__init__()
        self.spec = spec
        self._steps = spec.multiples + spec.non_multiples
        self._modulus: list[int] = []
        self._places: list[int] = []
        for step in self._steps:
            _, digits, power = step.as_tuple()
            assert isinstance(power, int)
            value = int("".join(map(str, digits)))
            self._modulus.append(value * 10 ** max(power, 0))
            self._places.append(max(-power, 0))
        self._sides = {False: self._magnitudes(False), True: self._magnitudes(True)}
        self._alive: dict[Hashable, bool] = {}
        self.start = self.state(_State("start"))

    def _magnitudes(self, negative: bool) -> tuple[_Bound | None, _Bound | None, bool]:
        """Bounds on the magnitude for one sign, and whether that sign occurs beyond zero."""
        spec = self.spec
        lower, upper = spec.lower, spec.upper
        lower_inclusive, upper_inclusive = not spec.exclusive_lower, not spec.exclusive_upper
        if negative:
            lower, upper = (
                -upper if upper is not None else None,
                -lower if lower is not None else None,
            )
            lower_inclusive, upper_inclusive = upper_inclusive, lower_inclusive
        if upper is not None and (upper < 0 or (upper == 0 and not upper_inclusive)):
            return None, None, False
        low = high = None
        if lower is not None and (lower > 0 or (lower == 0 and not lower_inclusive)):
            low = _Bound(lower, lower_inclusive)
        if upper is not None:
            high = _Bound(upper, upper_inclusive)
        return low, high, True

    def is_empty(self) -> bool:
        """Whether no number satisfies the spec."""
        return not self.row(self.start)

    # -- Leaf -------------------------------------------------------------------------------

    def _edges(self, key: Hashable) -> Mapping[int, Hashable]:
        assert isinstance(key, _State)
        return {b: to for b, to in self._raw_edges(key).items() if self._is_alive(to)}

    def _label(self, key: Hashable) -> int:
        assert isinstance(key, _State)
        return 0 if self._complete(key) else -1

    def _is_alive(self, state: _State) -> bool:
        known = self._alive.get(state)
        if known is not None:
            return known
        parents: dict[_State, _State | None] = {state: None}
        stack = [state]
        while stack:
            current = stack.pop()
            if self._alive.get(current) or self._complete(current):
                trail: _State | None = current
                while trail is not None:
                    self._alive[trail] = True
                    trail = parents[trail]
                return True
            for to in self._raw_edges(current).values():
                if to not in parents and self._alive.get(to) is not False:
                    parents[to] = current
                    stack.append(to)
        for seen in parents:
            self._alive[seen] = False
        return False

    # -- transitions ------------------------------------------------------------------------

    def _raw_edges(self, s: _State) -> dict[int, _State]:
        phase = s.phase
        edges: dict[int, _State] = {}
        if phase in ("start", "sign"):
            negative = phase == "sign"
            if phase == "start" and self._sides[True][2]:
                edges[_MINUS] = _State("sign")
            if self._sides[negative][2]:
                for digit in _DIGITS:
                    edges[_ZERO + digit] = self._first(negative, digit)
            return edges
        if phase == "whole" and s.count < self.spec.max_digits:
            for digit in _DIGITS:
                edges[_ZERO + digit] = self._whole_digit(s, digit)
        if phase in ("zero", "whole"):
            edges[_POINT] = self._at_point(s)
        if phase in ("point", "fraction") and s.count < self.spec.max_digits:
            for digit in _DIGITS:
                edges[_ZERO + digit] = self._fraction_digit(s, digit)
        if phase in ("zero", "whole", "fraction") and (s.normal or self.spec.plain):
            after_e = self._at_exponent(s)
            edges[0x65] = edges[0x45] = after_e
        if phase == "e":
            edges[_PLUS] = s._replace(phase="esign")
            edges[_MINUS] = s._replace(phase="esign", exponent_negative=True)
        if phase in ("e", "esign", "exponent"):
            for digit in _DIGITS:
                value = s.exponent * 10 + digit
                count = s.count + 1
                if count <= 3 and value <= MAX_EXPONENT:
                    if self.spec.plain:
                        value = 0
                    edges[_ZERO + digit] = s._replace(
                        phase="exponent", exponent=value, count=count
                    )
        return edges

    def _compare(self, so_far: int, digit: int, bound: _Bound, text: str, index: int) -> int:
        if so_far != _EQUAL:
            return so_far
        other = bound.digit(text, index)
        return _LESS if digit < other else _GREATER if digit > other else _EQUAL

    def _first(self, negative: bool, digit: int) -> _State:
        low, high, _ = self._sides[negative]
        compared = [
            self._compare(_EQUAL, digit, b, b.whole, 0) if b else _EQUAL for b in (low, high)
        ]
        scientific = [
            self._compare(_EQUAL, digit, b, b.significant, 0) if b and digit else _EQUAL
            for b in (low, high)
        ]
        return _State(
            "whole" if digit else "zero",
            negative,
            count=1,
            low=compared[0],
            high=compared[1],
            low_scientific=scientific[0],
            high_scientific=scientific[1],
            remainders=tuple(digit % m for m in self._modulus),
            off_grid=(False,) * len(self._modulus),
            nonzero=digit > 0,
            normal=digit > 0,
        )

    def _whole_digit(self, s: _State, digit: int) -> _State:
        low, high, _ = self._sides[s.negative]
        index = s.count
        return s._replace(
            count=index + 1,
            low=self._compare(s.low, digit, low, low.whole, index)
            if low and index < len(low.whole)
            else s.low,
            high=self._compare(s.high, digit, high, high.whole, index)
            if high and index < len(high.whole)
            else s.high,
            low_scientific=0,
            high_scientific=0,
            normal=False,
            remainders=tuple(
                (r * 10 + digit) % m for r, m in zip(s.remainders, self._modulus, strict=True)
            ),
        )

    def _whole_against(self, compared: int, count: int, bound: _Bound | None) -> int:
        """The whole part, finished with ``count`` digits, against the bound's whole part."""
        if bound is None:
            return _EQUAL
        if count != len(bound.whole):
            return _LESS if count < len(bound.whole) else _GREATER
        return compared

    def _at_point(self, s: _State) -> _State:
        low, high, _ = self._sides[s.negative]
        return s._replace(
            phase="point",
            count=0,
            low=self._whole_against(s.low, s.count, low),
            high=self._whole_against(s.high, s.count, high),
            remainders=s.remainders,
        )

    def _fraction_digit(self, s: _State, digit: int) -> _State:
        low, high, _ = self._sides[s.negative]
        index = s.count
        remainders, off_grid = [], []
        for r, off, m, places in zip(
            s.remainders, s.off_grid, self._modulus, self._places, strict=True
        ):
            inside = index < places
            remainders.append((r * 10 + digit) % m if inside else r)
            off_grid.append(off or (not inside and digit > 0))
        normal = s.normal
        return s._replace(
            phase="fraction",
            count=index + 1,
            low=self._compare(s.low, digit, low, low.fraction, index) if low else 0,
            high=self._compare(s.high, digit, high, high.fraction, index) if high else 0,
            low_scientific=self._compare(s.low_scientific, digit, low, low.significant, index + 1)
            if low and normal
            else 0,
            high_scientific=self._compare(
                s.high_scientific, digit, high, high.significant, index + 1
            )
            if high and normal
            else 0,
            remainders=tuple(remainders),
            off_grid=tuple(off_grid),
            nonzero=s.nonzero or digit > 0,
            tail=index + 1 if digit and self._steps and normal else s.tail,
        )

    def _at_exponent(self, s: _State) -> _State:
        if self.spec.plain:
            return _State("e", s.negative)
        low, high, _ = self._sides[s.negative]
        # Remainders are of the mantissa's digits up to each step's last place; with the digits
        # beyond them they would be needed in full, so only whole steps survive an exponent.
        return _State(
            "e",
            s.negative,
            low_scientific=self._mantissa_against(s.low_scientific, s, low),
            high_scientific=self._mantissa_against(s.high_scientific, s, high),
            nonzero=True,
            normal=True,
            tail=s.tail,
        )

    def _mantissa_against(self, compared: int, s: _State, bound: _Bound | None) -> int:
        """The mantissa, finished, against the bound's significant digits."""
        if bound is None or compared != _EQUAL:
            return compared
        digits_read = 1 + (s.count if s.phase == "fraction" else 0)
        return _LESS if digits_read < len(bound.significant) else _EQUAL

    # -- acceptance -------------------------------------------------------------------------

    def _complete(self, s: _State) -> bool:
        if s.phase in ("zero", "whole"):
            s = self._at_point(s)
        elif s.phase == "exponent":
            return self.spec.plain or self._exponent_complete(s)
        elif s.phase != "fraction":
            return False
        low, high, allowed = self._sides[s.negative]
        if not allowed:
            return False
        if low and not self._holds(self._finish(s.low, s.count, low), low, _GREATER):
            return False
        if high and not self._holds(self._finish(s.high, s.count, high), high, _LESS):
            return False
        for i, (r, off) in enumerate(zip(s.remainders, s.off_grid, strict=True)):
            missing = max(self._places[i] - s.count, 0)
            is_multiple = not off and (r * 10**missing) % self._modulus[i] == 0
            if is_multiple != (i < len(self.spec.multiples)):
                return False
        return True

    def _finish(self, compared: int, count: int, bound: _Bound) -> int:
        """A number that ends after ``count`` fraction digits, equal so far, against the bound."""
        if compared == _EQUAL and len(bound.fraction) > count:
            return _LESS
        return compared

    def _holds(self, compared: int, bound: _Bound, wanted: int) -> bool:
        return compared == wanted or (compared == _EQUAL and bound.inclusive)

    def _exponent_complete(self, s: _State) -> bool:
        low, high, _ = self._sides[s.negative]
        exponent = -s.exponent if s.exponent_negative else s.exponent
        for bound, compared, wanted in (
            (low, s.low_scientific, _GREATER),
            (high, s.high_scientific, _LESS),
        ):
            if bound is None:
                continue
            if not bound.significant:  # the bound is zero, the value is not
                if wanted == _LESS:
                    return False
                continue
            if exponent != bound.exponent:
                compared = _LESS if exponent < bound.exponent else _GREATER
            if not self._holds(compared, bound, wanted):
                return False
        whole = exponent >= s.tail
        for i in range(len(self._steps)):
            if self._modulus[i] != 1 or self._places[i]:
                return False
            if whole != (i < len(self.spec.multiples)):
                return False
        return True
