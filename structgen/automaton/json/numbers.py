"""JSON numbers as a leaf automaton: bounds, multiples and integrality on the decimal spelling.

`number_reader` reads a number digit by digit; this module adds what is to come: whether a prefix
can still become a number that satisfies the spec, and how soonest. Both are arithmetic
(`decimals.Window`), never a search, so that fine multiples under tight bounds cost no more than
others.

Spellings: plain decimal notation (RFC 8259) with at most ``max_digits`` digits before and after the
point, and scientific notation with any such mantissa. Whole numbers may be written ``1.0`` and
``1e2``.

This module knows numbers only; `values` decides which schema keywords lead here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from structgen.automaton.core.leaf import Leaf
from structgen.automaton.texts import Text

from .decimals import GREATER, LESS, LOWER, UPPER, Window
from .number_reader import (
    BEGIN,
    DOT,
    EXPONENT,
    FRACTION,
    LONE_ZERO,
    SIGN,
    WHOLE,
    E,
    NumberReader,
    NumberSpec,
    State,
)

__all__ = ["NumberLeaf", "NumberSpec"]


class NumberLeaf(Leaf):
    """Numbers that satisfy a `NumberSpec`.

    Raises:
        CompileLimitExceeded: the spec has too many ``non_multiples``; see `NumberReader`.
    """

    def __init__(self, spec: NumberSpec) -> None:
        super().__init__()
        self.spec = spec
        self._reader = NumberReader(spec)
        self._completions: dict[State, bytes | None] = {}
        self._alive: dict[State, bool] = {}
        self._ending: dict[State, bool] = {}
        self._has_upper = [any(m.role == UPPER for m in side.marks) for side in self._reader.sides]
        self.start = self.state(State(BEGIN))

    def is_empty(self) -> bool:
        """Whether no number satisfies the spec."""
        return not self._holds_a_whole() and self._completion(State(BEGIN)) is None

    def _holds_a_whole(self) -> bool:
        """Whether bounds are all that is asked of whole numbers, and one is plain to see."""
        spec, reader = self.spec, self._reader
        if not reader.is_plain or spec.excluded or len(reader.steps) > (reader.must is not None):
            return False
        lower, upper = spec.lower, spec.upper
        if lower is None or upper is None:
            return True  # there is room for a digit more than a bound has
        least = math.floor(lower) + 1 if spec.exclusive_lower else math.ceil(lower)
        return least < upper or (least == upper and not spec.exclusive_upper)

    # -- Leaf -------------------------------------------------------------------------------

    def _edges(self, key: Any) -> Mapping[int, Any]:
        assert isinstance(key, State)
        edges: dict[int, State] = {}
        last, is_alive = None, False
        for byte, to in self._reader.following(key):
            if to is not last:
                last, is_alive = to, self._is_alive(to)
            if is_alive:
                edges[byte] = to
        return edges

    def _label(self, key: Any) -> int:
        assert isinstance(key, State)
        return 0 if self._complete(key) else -1

    def alike(self, q: int, most_digits: int) -> int:
        """See `Leaf.alike`."""
        s = self._keys[q]
        to = self._reader.far(s, most_digits)
        return q if to is s else self.state(to)

    def _search(self, q: int, wanted: int | None) -> tuple[Text, int] | None:
        text = self._completion(self._keys[q])
        return None if text is None or wanted not in (None, 0) else (text, 0)

    # -- what is to come --------------------------------------------------------------------

    def _is_alive(self, s: State) -> bool:
        """Whether ``s`` can go on to a number that satisfies the spec."""
        found = self._alive.get(s)
        if found is None:
            found = self._alive[s] = self._can_end(s)
        return found

    def _complete(self, s: State) -> bool:
        """Whether the number may end here."""
        found = self._ending.get(s)
        if found is None:
            found = self._ending[s] = self._reader.complete(s)
        return found

    def _can_end(self, s: State) -> bool:
        reader = self._reader
        if s.phase in (BEGIN, SIGN):
            return any(self._is_alive(to) for _, to in reader.following(s))
        if s.phase in (LONE_ZERO, WHOLE, DOT, FRACTION):
            if self._complete(s):
                return True
            if reader.has_exponents and s.phase != DOT and not reader.allowed(s).is_empty:
                return True
            if s.phase == WHOLE and not self._has_upper[s.negative]:
                # With all the digits there may be, most is possible.
                room = reader.most_digits - s.digits
                if self._plain_digits(s, room, reader.most_fraction) is not None:
                    return True
            if not reader.is_contradictory and self._has_plain(s):
                return True
            if not reader.has_exponents:
                return False
        return self._completion(s) is not None

    # -- completion -------------------------------------------------------------------------

    def _completion(self, s: State) -> bytes | None:
        """A shortest way to go on to a number that satisfies the spec; None if there is none."""
        if s in self._completions:
            return self._completions[s]
        if self._reader.is_contradictory:
            return None
        if s.phase in (BEGIN, SIGN):
            ways = [
                bytes([byte]) + rest
                for byte, to in self._reader.following(s)
                if (rest := self._completion(to)) is not None
            ]
            found = min(ways, key=lambda b: (len(b), b), default=None)
        elif self._reader.complete(s):
            found = b""
        elif s.phase >= E:
            found = self._exponent(s)
        else:
            found = self._plain(s)
            if self._reader.has_exponents and s.phase != DOT:
                rest = self._exponent(State(E, exponents=self._reader.allowed(s)))
                if rest is not None and (found is None or len(rest) + 1 < len(found)):
                    found = b"e" + rest
            if self._reader.has_exponents and found is None:
                found = self._digits_and_exponent(s)
        self._completions[s] = found
        return found

    def _exponent(self, s: State) -> bytes | None:
        """The digits, or sign and digits, that make an exponent."""
        assert s.exponents is not None
        if s.exponents.is_empty:
            return None
        signs = [s.exponent_negative] if s.phase != E else [False, True]
        most = max(abs(s.exponents.least), abs(s.exponents.most))
        for n in range(0 if s.phase == EXPONENT else 1, self._reader.most_exponent - s.digits + 1):
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
        """The digits, perhaps with a point, that make a number in plain notation."""
        best: bytes | None = None
        room = self._reader.most_digits - s.digits if s.phase == WHOLE else 0
        before_point = s.phase in (LONE_ZERO, WHOLE)
        fraction = self._reader.most_fraction - self._reader.places(s)
        for whole in range(room + 1):
            if best is not None and whole >= len(best):
                break
            # The finest fraction tells whether any will do.
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
        """Whether there are such digits: the finest fraction tells."""
        fraction = self._reader.most_fraction - self._reader.places(s)
        before_point = s.phase in (LONE_ZERO, WHOLE)
        if not fraction and before_point and self.spec.form == "pointed":
            return False
        least = 0 if fraction else 1
        most = self._reader.most_digits - s.digits if s.phase == WHOLE else 0
        if before_point:
            for mark in self._reader.sides[s.negative].marks:
                if mark.role == UPPER:  # with more digits before the point it is greater,
                    most = min(most, max(0, len(mark.whole) - s.digits))
                elif mark.role == LOWER:  # with fewer less
                    least = max(least, len(mark.whole) - s.digits)
        return any(
            self._plain_digits(s, whole, fraction) is not None for whole in range(least, most + 1)
        )

    def _plain_digits(self, s: State, whole: int, fraction: int) -> str | None:
        """So many more digits before and after the point that satisfy the spec, or None."""
        n = whole + fraction
        window = Window(n)
        before_point = s.phase in (LONE_ZERO, WHOLE)
        length = s.digits + whole
        for mark, c in zip(self._reader.sides[s.negative].marks, s.compared, strict=True):
            if not before_point:
                window.bound(mark, c, mark.fraction[s.digits :])
            elif length != len(mark.whole):
                window.bound(mark, LESS if length < len(mark.whole) else GREATER, "")
            else:
                window.bound(mark, c, mark.whole[s.digits :] + mark.fraction)
        self._congruences(window, s, self._reader.places(s) + fraction)
        found = window.first()
        return None if found is None else str(found).rjust(n, "0") if n else ""

    def _congruences(self, window: Window, s: State, places: int) -> None:
        """Add what the steps ask of the digits in ``window``, the last of them at 10**-places."""
        for i, (r, step) in enumerate(zip(s.remainders, self._reader.steps, strict=True)):
            missing = places - step.places
            shift = s.zeros + window.n
            pair: tuple[int, int] | None
            if missing <= 0:
                modulus = step.modulus // math.gcd(step.modulus, 10**-missing)
                pair = r * pow(10, shift, modulus) % modulus, modulus
            elif self._reader.is_zero(s):
                pair = 0, 10**missing * step.modulus
            elif shift >= missing:
                offset = r * pow(10, shift - missing, step.modulus) % step.modulus
                pair = 10**missing * offset, 10**missing * step.modulus
            else:
                pair = None  # a digit that is not 0 stands below the step's last place
            if i or self._reader.must is None:
                window.avoid += [pair] if pair is not None else []
            elif pair is None:
                window.bar()
            else:
                window.must = pair

    def _digits_and_exponent(self, s: State) -> bytes | None:
        """More digits and an exponent, where neither alone will do."""
        whole = self._reader.most_digits - s.digits if s.phase == WHOLE else 0
        fraction = self._reader.most_fraction - self._reader.places(s)
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
                    lead = -1 - self._reader.places(s) if s.lead is None else s.lead
                if whole < n and s.phase in (LONE_ZERO, WHOLE):
                    digits = digits[:whole] + "." + digits[whole:]
                return f"{digits}e{power - lead}".encode()
        return None

    def _powers(self, s: State) -> Iterator[int]:
        """Powers of ten of the first digit at which a number from here may be found."""
        marks = self._reader.sides[s.negative].scientific
        least = max(m.exponent for m in marks if m.role == LOWER and m.significant)
        most = min(m.exponent if m.significant else least - 1 for m in marks if m.role == UPPER)
        if self._reader.must is not None:
            least = max(least, len(str(self._reader.must.modulus)) - 1 - self._reader.must.places)
        if len(self._reader.steps) > (self._reader.must is not None):
            yield from range(least, most + 1)
            return
        # Between marks only multiples count, and the largest powers have most of them.
        special = {m.exponent for m in marks if m.significant}
        free = next((p for p in range(most, least - 1, -1) if p not in special), None)
        if free is not None:
            yield free
        yield from (p for p in sorted(special) if least <= p <= most)

    def _significant_digits(self, s: State, n: int, power: int) -> str | None:
        """``n`` more digits, the number's first one at 10**power."""
        window = Window(n)
        known = 0
        if self._reader.is_zero(s):
            window.low = 10 ** (n - 1)
        else:
            lead = s.digits - 1 if s.phase == WHOLE else s.lead or 0
            known = lead + 1 + self._reader.places(s)
        for mark, c in zip(self._reader.sides[s.negative].scientific, s.scientific, strict=True):
            if not mark.significant:
                c = GREATER
            elif power != mark.exponent:
                c = LESS if power < mark.exponent else GREATER
            window.bound(mark, c, mark.significant[known:])
        self._congruences(window, s, known + n - 1 - power)
        found = window.first()
        return None if found is None else str(found).rjust(n, "0")
