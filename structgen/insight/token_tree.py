"""Probabilities of texts, summed over all the ways to spell them in tokens.

It owns the tree of token sequences and the order in which it is grown. It knows nothing of JSON,
schemas or results; what texts they are it is told.

The token sequences form a tree; a place in it is worth at most the probability of the tokens that
lead there. Places are expanded in the order of that bound, each by one pass of the model over what
differs from the place before, until all that is left could not move any probability by more than
the tolerance. So the error is proven, not estimated.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Sequence
from typing import Protocol, TypeAlias, TypeVar

import numpy as np

from structgen.constraint import Constraint
from structgen.sampling import Logits, TokenIds

from .written_values import WrittenTexts

_MAX_PASSES = 2000
"""Most passes of the model for one tree. Some labels take 5 to 50."""


class Scores(Protocol):
    """The part of `structgen.models.base.TokenSequence` that is needed here."""

    @property
    def length(self) -> int:
        """Tokens so far."""

    @property
    def token_ids(self) -> TokenIds:
        """int32 ``[1, length]``: all tokens so far."""

    def append(self, token_ids: Sequence[int]) -> None:
        """Append tokens and run the model over them, in one pass."""

    def logits(self) -> Logits:
        """Scores of the next token, float32 ``[1, vocabulary.size]``."""

    def rewind(self, length: int) -> None:
        """Forget all tokens after the first ``length``."""

    def close(self) -> None:
        """Free the sequence."""


_R = TypeVar("_R")

Passes: TypeAlias = Generator[None, None, _R]
"""Work that yields before each pass of the model, so that whoever runs it may stop or let others
have a pass; what it returns is its result."""

OpenSequence: TypeAlias = Callable[[Sequence[int], int], tuple[Scores, int]]
"""Begins a sequence: of the prompt, the given tokens after it, and room for so many more, or fewer
where the context ends. How many is returned as well."""


class GivenUp(Exception):
    """Whoever asked wants no answer any more."""


def run_passes(work: Passes[_R], give_up: Callable[[], bool] | None = None) -> _R:
    """Run all passes of some work; what it returns.

    Args:
        work: what to run.
        give_up: asked before each pass.

    Raises:
        GivenUp: ``give_up`` said so.
    """
    try:
        while True:
            try:
                next(work)
            except StopIteration as end:
                found: _R = end.value
                return found
            if give_up is not None and give_up():
                raise GivenUp
    finally:
        work.close()


class TokenTree:
    """The token sequences that spell some texts, grown where the model makes them likely.

    Attributes:
        masses: float64 ``[n_texts]``, what has been found of each text's probability.
        cut: the greatest that could have been found where the context ends.
        passes: how often the model was run.
        room: most tokens that fit behind what comes before; None: all there are.
        paths: for each text the likeliest token sequence that was found to spell it, with the token
            that ends it where that reaches beyond it or is wanted to tell it from longer ones.
    """

    def __init__(
        self,
        constraint: Constraint,
        texts: WrittenTexts,
        before: Sequence[int],
        sequence: Scores,
        room: int | None = None,
    ) -> None:
        """Begin with nothing.

        Args:
            constraint: what decides which tokens may follow.
            texts: what is looked for.
            before: the output's tokens before them.
            sequence: prompt and ``before``; left changed and open.
            room: most tokens that fit behind them; None: there is room for all.
        """
        self._vocabulary = constraint.vocabulary
        self._tokens = constraint.named.tokens
        self._texts = texts
        self._sequence = sequence
        self._root = sequence.length
        self._last = int(sequence.token_ids[0, -1])
        # Without a budget: what could have been written counts, not what was still affordable.
        self._cursor = constraint.start()
        for token_id in before:
            self._cursor.accept(token_id)
        self._at: tuple[int, ...] = ()
        self.room = room
        self.masses = np.zeros(texts.count)
        self.paths: list[tuple[int, ...]] = [()] * texts.count
        self._best_ways = np.zeros(texts.count)
        self.cut = 0.0
        self.passes = 0

    def grow(self, tolerance: float, give_up: Callable[[], bool] | None = None) -> float:
        """Find masses until no probability can be off by more than ``tolerance``.

        Args:
            tolerance: as above.
            give_up: asked before each pass.

        Returns:
            The bound on the error that was reached; 1 when nothing at all is known.

        Raises:
            GivenUp: ``give_up`` said so.
        """
        return run_passes(self.growing(tolerance), give_up)

    def growing(
        self,
        tolerance: float,
        groups: Sequence[int] | None = None,
        is_enough: Callable[[float], bool] | None = None,
    ) -> Passes[float]:
        """The same, pass by pass.

        Args:
            tolerance: as above.
            groups: for each text the first that means the same: then it also ends once it is known
                which group is the likeliest.
            is_enough: asked once the error is within ``tolerance``, with the error: whether that is
                small enough, too.
        """
        open_places: list[tuple[float, tuple[int, ...], bytes]] = [(-1.0, (), b"")]
        while open_places:
            left = -sum(place[0] for place in open_places)
            error = self._error(left)
            if self.passes == _MAX_PASSES:
                return error
            if error <= tolerance and (is_enough is None or is_enough(error)):
                return error
            if groups is not None and self._lead(groups) > left + self.cut:
                return error
            mass, path, text = heapq.heappop(open_places)
            if self.room is not None and len(path) > self.room:
                self.cut -= mass
                continue
            yield
            for token_id, probability in self._ways_on(path):
                more = text + self._tokens[token_id]
                worth = -mass * probability
                if self._texts.is_open(more) and token_id not in self._vocabulary.eos_token_ids:
                    heapq.heappush(open_places, (-worth, (*path, token_id), more))
                else:
                    ended = self._texts.ended(text, more)
                    if ended is not None:
                        self.masses[ended] += worth
                        if worth > self._best_ways[ended]:
                            self._best_ways[ended] = worth
                            self.paths[ended] = (*path, token_id)
        return self._error(0.0)

    def likeliest(self, groups: Sequence[int]) -> int | None:
        """The text of the likeliest group that has the likeliest way to write it.

        None where nothing was found. Of groups alike the first.
        """
        masses = np.bincount(groups, self.masses)
        best = int(masses.argmax())
        if not masses[best]:
            return None
        members = [i for i, group in enumerate(groups) if group == best]
        return max(members, key=lambda i: float(self._best_ways[i]))

    def _lead(self, groups: Sequence[int]) -> float:
        """By how much the mass of the likeliest group is more than the next one's."""
        masses = np.sort(np.bincount(groups, self.masses))
        return float(masses[-1] - masses[-2])

    def _error(self, left: float) -> float:
        """How far off a probability can be when so much has not been looked at."""
        left += self.cut
        total = left + float(self.masses.sum())
        return left / total if total else 1.0

    def _ways_on(self, path: tuple[int, ...]) -> list[tuple[int, float]]:
        """The tokens the output type allows after ``path``, and the model's probability of each."""
        kept = 0
        while kept < min(len(path), len(self._at)) and path[kept] == self._at[kept]:
            kept += 1
        self._cursor.rollback(len(self._at) - kept)
        for token_id in path[kept:]:
            self._cursor.accept(token_id)
        if path:
            # Two tokens at least: a pass over one rounds differently, and scores would depend on
            # the order in which places are visited.
            spelt = (self._last, *path)
            first = min(kept + 1, len(spelt) - 2)
            self._sequence.rewind(self._root - 1 + first)
            self._sequence.append(spelt[first:])
        self._at = path
        self.passes += 1
        scores = self._sequence.logits()[0].astype(np.float64)
        weights = np.exp(scores - scores.max())
        words = np.zeros((self._vocabulary.size + 31) // 32, np.uint32)
        self._cursor.fill_mask(words)
        allowed = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))
        return list(zip(allowed.tolist(), (weights[allowed] / weights.sum()).tolist(), strict=True))
