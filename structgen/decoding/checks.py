"""One output under the checks that only code can make: what was refused, and where to go back to.

Owns the bookkeeping of ``retries=``: it is told of each token, has what closes judged
(`structgen.values.Checks`), bars what is refused and says to how many tokens the output goes back;
and it says which tokens stand for good, so that their text can be handed out. Knows no model, mask
or cursor: `generation` does what it says.

How far back. A refusal takes the output back to the token in which the refused value began. Where
nothing is left after that, because all that the mask allows is barred, it goes back token by token,
but never to before the first value that may still be refused: what stands before is settled, and
has perhaps been read. If nothing is left there either, that is an error.

Costs. Every refusal counts against ``retries``. Going back further is bounded by that, too: a place
is left only when each way on from it was barred by a refusal.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Literal, NoReturn, final

from structgen.constraint import Constraint
from structgen.errors import Attempt, ParseError, ValidationFailed
from structgen.grammar import ir
from structgen.values import Judging, Key, Reading, Refusal, Waiting

from .barred import Barred

_MOST_DEAD = 256
"""Most places, for each refusal, at which nothing is left, before it is given up: close to the end
of a budget, and with whitespace of any length, there may be many ways to write the same."""


@final
class Trial:
    """The checks of one output while it is written.

    Attributes:
        attempts: what was refused so far.
        n_retried: tokens that were taken back.
        barred: what the output may not be.
    """

    def __init__(self, checks: Judging, barred: Barred, retries: int) -> None:
        """Begin an output.

        Args:
            checks: of its type.
            barred: nothing yet.
            retries: most refusals after which it goes on.
        """
        self._checks = checks
        self._retries = retries
        self._reading: Reading = checks.reading()
        self._data = bytearray()
        self._ends: list[int] = []  # offset behind each token
        self._n_settled = 0
        self._n_dead = 0
        self._waits_for: Literal["read", "end"] | None = None
        self._is_spent = False  # whether some of what was excluded last is so by the budget
        self._error: ParseError | None = None  # the latest refusal
        self._refused: dict[Key, list[tuple[bytes, bytes | None]]] = {}
        self.barred = barred
        self.attempts: tuple[Attempt, ...] = ()
        self.n_retried = 0

    @classmethod
    def of(
        cls, checks: Judging, constraint: Constraint, settings: Mapping[str, Any], retries: int
    ) -> Trial:
        """The trial of an output of a type, whose tokens are chosen by some settings."""
        texts, samples = constraint.named.texts, settings.get("do_sample")
        temperature = float(settings.get("temperature", 1.0)) if samples else 1.0
        is_json = isinstance(constraint.output.grammar, ir.Json)
        barred = Barred(constraint.vocabulary, texts, temperature, is_json=is_json)
        return cls(checks, barred, retries)

    @property
    def values(self) -> tuple[object, ...]:
        """The value of the whole, once it has been accepted."""
        return self._reading.values

    @property
    def n_settled(self) -> int:
        """How many of the first tokens stand for good."""
        return self._n_before(self._reading.settled)

    def _n_before(self, settled: int) -> int:
        ends = self._ends
        while self._n_settled < len(ends) and ends[self._n_settled] <= settled:
            self._n_settled += 1
        return self._n_settled

    def excluded(
        self, left: int = 0, place_after: Callable[[int], Hashable | None] | None = None
    ) -> set[int]:
        """The tokens that may not come next.

        Args:
            left: how many tokens are left of the budget.
            place_after: as for `Barred.spent`; None: whatever the budget is.
        """
        self._is_spent = False
        if not self.attempts:
            return set()
        text = bytes(self._data)
        found = self.barred.excluded(text)
        if place_after is not None:
            spent = self.barred.spent(text, left, place_after) - found
            self._is_spent = bool(spent)
            found |= spent
        return found

    def read(self, data: bytes) -> int | None:
        """A token has been written.

        Args:
            data: its bytes.

        Returns:
            To how many tokens the output goes back, None if it goes on, or `is_waiting`.

        Raises:
            ValidationFailed: what closes is refused, once too often.
        """
        floor = self.n_settled
        self._data += data
        self._ends.append(len(self._data))
        refusal = self._reading.read(data)
        if isinstance(refusal, Waiting):
            self._waits_for = "read"
            return None
        return self._go_on(refusal, floor)

    def _go_on(self, refusal: Refusal | None, floor: int) -> int | None:
        back = self._judge(refusal, floor)
        if back is None and self._refused:
            # What was refused there is refused whatever stands before.
            for key, start in self._reading.open_values:
                for text, ended_by in self._refused.get(key, ()):
                    self._bar(start, text, ended_by)
        return back

    def end(self) -> int | None:
        """The output has ended. Returns and raises what `read` does."""
        floor = self.n_settled
        refusal = self._reading.end()
        if isinstance(refusal, Waiting):
            self._waits_for = "end"
            return None
        return self._judge(refusal, floor)

    @property
    def is_waiting(self) -> bool:
        """Whether it is not known yet what the checks say: `resume` comes next."""
        return self._waits_for is not None

    @property
    def may_resume(self) -> bool:
        """Whether it waits, and no longer has to."""
        return self.is_waiting and not isinstance(self._reading.verdict(), Waiting)

    def resume(self) -> tuple[bool, int | None]:
        """Go on after `may_resume`.

        Returns:
            Whether it was the end that was waited for; and what that or `read` would have returned.

        Raises:
            ValidationFailed: as `read`.
        """
        refusal, is_end = self._reading.verdict(), self._waits_for == "end"
        assert not isinstance(refusal, Waiting)
        self._waits_for = None
        floor = self._n_before(self._reading.settled_before)
        return is_end, self._judge(refusal, floor) if is_end else self._go_on(refusal, floor)

    def _judge(self, refusal: Refusal | None, floor: int) -> int | None:
        if refusal is None:
            return None
        self.attempts += (Attempt(refusal.path, refusal.text, refusal.message),)
        self._error = refusal.error
        n_retries = len(self.attempts) - 1
        if n_retries >= self._retries:
            said = "1 retry" if n_retries == 1 else f"{n_retries:,} retries"
            self._fail(f"after {said}, the most that retries= allows")
        first = self._token_at(refusal.start)
        if first < floor:
            self._fail(
                "in a part of it that they have taken before: one of them says something else of "
                "the same text now"
            )
        is_seen = refusal.ended_by is None  # by its last byte, otherwise by the one after
        last = self._token_at(refusal.end - is_seen)
        barred = bytes(self._data[refusal.judged : refusal.end]), refusal.ended_by
        self._refused.setdefault(refusal.judged_key, []).append(barred)
        self._bar(refusal.judged, *barred)
        self.barred.lower(first, last + 1)
        return self._back(first)

    def _bar(self, start: int, text: bytes, ended_by: bytes | None) -> None:
        """Bar a text that begins at an offset."""
        whole = bytes(self._data[:start]) + text
        if ended_by is not None:
            self.barred.bar_whole(whole)
        if ended_by != b"":
            self.barred.bar_beginning(whole, ended_by)

    def _token_at(self, offset: int) -> int:
        """The token that has the byte at an offset."""
        return bisect_right(self._ends, offset)

    def idle(self) -> frozenset[int]:
        """The tokens that would say nothing, if any are barred here."""
        return self.barred.idle(bytes(self._data))

    def dead_end(self, *, by_text: bool, left: int = 0, place: Hashable = None) -> int:
        """All that the mask allows here is barred.

        Args:
            by_text: as for `Barred.bar_here`; False: it is for this budget only.
            left: how many tokens are left of the budget.
            place: of the cursor; None where that says too little.

        Returns:
            To how many tokens the output goes back.

        Raises:
            ValidationFailed: it cannot.
        """
        if len(self._ends) <= self.n_settled:
            self._fail("and no other text is left there")
        self._n_dead += 1
        if self._n_dead > _MOST_DEAD * len(self.attempts):
            self._fail(f"and after {self._n_dead:,} other ways none is found that is left")
        text = bytes(self._data)
        by_text = by_text and not self._is_spent
        if not by_text and place is not None:
            self.barred.bar_spent(text, place, left)
        self.barred.bar_here(text, by_text=by_text)
        self.barred.lower(self.n_settled, len(self._ends))
        return self._back(len(self._ends) - 1)

    def _back(self, n_tokens: int) -> int:
        self.n_retried += len(self._ends) - n_tokens
        del self._ends[n_tokens:]
        del self._data[self._ends[-1] if self._ends else 0 :]
        self._reading = self._checks.reading(bytes(self._data))
        self.barred.go_back(n_tokens)
        return n_tokens

    def _fail(self, when: str) -> NoReturn:
        told = "\n".join(f"  {one}" for one in self.attempts)
        raise ValidationFailed(
            f"Checks of {self._checks.name} refuse the output, {when}:\n{told}",
            text=self._data.decode("utf-8", "replace"),
            attempts=self.attempts,
        ) from self._error
