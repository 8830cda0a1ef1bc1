"""Speculation: tokens that probably come next, run in one pass with those that have to be.

A pass over four tokens costs less than four over one, and what a model extracts from a text it
mostly copies. So where the end of what is written stood in the prompt or the output before, what
followed it there is guessed to follow again, cut where it leaves the output type, and continued by
what the type forces. The model scores all of it at once; then the tokens are chosen one by one from
these scores, by the mask, the options and the random numbers that each place has anyway, for as
long as they are the guessed ones. So a guess changes no choice but by the rounding of longer
passes, and sampling keeps its distribution.

`Speculation` owns the guess and how long it is: by what passes cost on this machine, and by what
guesses of this output have been worth so far. `loop` has the tokens chosen along one. Knows no
model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import final

import numpy as np

from structgen.constraint import Cursor
from structgen.errors import StructgenError
from structgen.models.base import ON_CPU
from structgen.sampling import TokenIds

MOST_AHEAD = 15
"""Most tokens that are guessed at once, what is forced after them included."""

_LENGTHS = (32, 16, 8, 5, 4, 3, 2)
"""Bytes of the end that is looked for: the more of them stood together, the surer what follows."""

_FIRST_RATES = (0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.35)
_WEIGHT = 4.0
"""What shares of guessed tokens are taken to be right before any was tried, and how many tries that
counts for."""

_GRANT, _SHARE = 1.5, 0.04
"""Most passes over one token that guesses of an output may lose in all, however wrong they are; and
so many more for each of its tokens."""

_AHEAD_BYTES = 96
_BEFORE = 16  # tokens that forced text is spelt after

_FOLDED = bytes.maketrans(b'"\n\r\t' + bytes(range(65, 91)), b"    " + bytes(range(97, 123)))
"""A text and a JSON string have words alike but for what stands before them, and capitals."""

_BREAKS = re.compile(rb"[.,;:!?)]?[\s]*[\n(\[{\"]|[.,;:!?)\]}](?:\s|$)")
"""Where what is copied as a value often ends."""


@final
class Speculation:
    """The guesses of one output. Used by one thread.

    Attributes:
        tried: how many tokens were guessed so far.
        right: how many of these came.
    """

    def __init__(
        self,
        texts: Sequence[bytes],
        cursor: Cursor | None,
        spell: Callable[[TokenIds, bytes], list[int]],
        costs: Callable[[], Sequence[float]],
    ) -> None:
        """Begin with none.

        Args:
            texts: the bytes of each token.
            cursor: the output's place in its type; None: free text.
            spell: writes bytes in tokens, after the tokens that stand before them.
            costs: of `structgen.models.base.Model.pass_costs`; asked for at the first guess.
        """
        self.tried = self.right = 0
        self._texts = texts
        self._cursor = cursor
        self._spell = spell
        self._history = bytearray()
        self._folded = bytearray()
        self._n_read = 0
        self._scores = [[_WEIGHT * rate, _WEIGHT] for rate in _FIRST_RATES]
        self._kind = 0
        self._costs = costs
        self._saved = _GRANT
        self._n_first = 0  # tokens that there were at the first call
        self._latest = (0, 0)  # pending tokens and guessed ones, without what is forced after them

    def guess(self, token_ids: TokenIds, n_pending: int, room: int) -> list[int]:
        """Tokens that probably come after all that there are; none where trying does not pay.

        Args:
            token_ids: int32 ``[n]``, prompt and output so far.
            n_pending: how many at their end the model has to see in any case.
            room: most tokens to guess.
        """
        new = b"".join([self._texts[token] for token in token_ids[self._n_read :].tolist()])
        self._n_read = len(token_ids)
        self._n_first = self._n_first or self._n_read
        self._history += new
        self._folded += new.translate(_FOLDED)
        room = min(room, MOST_AHEAD, ON_CPU.longest_pass - n_pending)
        following = self._following()
        most = self._worth(n_pending, room) if following and room > 0 else 0
        if most <= 0:
            return []
        found = self._spell(token_ids, following)
        if len(following) == _AHEAD_BYTES:
            found = found[:-1]  # may be cut within a word
        return self._continued(token_ids, found[:most], n_pending, room)

    def note(self, n_guessed: int, n_right: int) -> None:
        """Take down what a guess was worth."""
        n_pending, n_tried = self._latest
        alone = self._cost(n_pending) + min(n_right, n_tried)
        if n_right > n_tried:  # what is forced would have been run with the token before it
            alone += self._cost(1 + n_right - n_tried) - 1
        self._saved += alone - self._cost(n_pending + n_guessed)
        if n_right < n_guessed:
            self._saved -= self._cost(2) - 1
        self.tried += n_guessed
        self.right += n_right
        score = self._scores[self._kind]
        score[0] += n_right
        score[1] += min(n_right + 1, n_guessed)

    def _following(self) -> bytes:
        """What followed the last time that the latest bytes stood somewhere."""
        folded = self._folded
        if not folded[-2:].strip().isalnum():
            return b""  # between values: what comes next is no copy of what came before
        for kind, length in enumerate(_LENGTHS):
            at = folded.rfind(folded[-length:], 0, len(folded) - 1) + length
            if at >= length:
                self._kind = kind
                following = bytes(self._history[at : at + _AHEAD_BYTES])
                if at + len(following) == len(folded):  # it repeats itself
                    following = (following * _AHEAD_BYTES)[:_AHEAD_BYTES]
                if self._cursor is not None:
                    end = _BREAKS.search(following)
                    following = following if end is None else following[: end.start()]
                return following
        return b""

    def _cost(self, n: int) -> float:
        """What a pass over so many tokens costs."""
        costs = self._costs()
        beyond = n - len(costs)
        if beyond <= 0:
            return costs[n - 1]
        half = (len(costs) - 1) // 2
        return costs[-1] + beyond * (costs[-1] - costs[half]) / (len(costs) - 1 - half)

    def _affords(self, n_pending: int, n: int) -> bool:
        """Whether a guess of so many tokens may be wrong altogether."""
        loss = self._cost(n_pending + n) - self._cost(n_pending) + self._cost(2) - 1
        return loss <= self._saved + _SHARE * (self._n_read - self._n_first)

    def _worth(self, n_pending: int, room: int) -> int:
        """How many guessed tokens make the most of a pass."""
        rate = self._scores[self._kind][0] / self._scores[self._kind][1]
        # A pass that there is in any case yields a token; a guess has to do better than the next.
        cost = self._cost(n_pending)
        best, most, gained, likely = 0, 0.0, 0.0, 1.0
        again = self._cost(2) - 1  # after a wrong guess the next pass runs one token again
        for n in range(1, room + 1):
            if not self._affords(n_pending, n):
                break
            likely *= rate
            gained += likely
            value = gained - (self._cost(n_pending + n) - cost) - again * (1 - likely)
            if value > most:
                best, most = n, value
        return best

    def _continued(
        self, token_ids: TokenIds, found: list[int], n_pending: int, room: int
    ) -> list[int]:
        """The first of the tokens that the type allows, and what it forces after them."""
        cursor, taken = self._cursor, 0
        self._latest = (n_pending, len(found))
        if cursor is None:
            return found
        try:
            for token in found:
                cursor.accept(token)
                taken += 1
        except StructgenError:
            found = found[:taken]
        self._latest = (n_pending, len(found))
        try:
            if found:
                before = np.array([*token_ids[-_BEFORE:], *found], np.int32)
                forced = cursor.forced(lambda data: self._spell(before, data))[0]
                forced = forced[: room - taken]
                if self._affords(n_pending, len(found) + len(forced)):
                    found += forced
        except StructgenError:
            pass
        finally:
            cursor.rollback(taken)
        return found
