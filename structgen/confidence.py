"""How sure a model is of a value that was a choice among few.

It owns the probabilities: what is summed, how far, and what is left out. It knows nothing of
schemas, prompts and the step loop; `structgen.alternatives` finds the values.

What is computed. Let a value have the alternatives a₁ … aₙ, and let b be the last token boundary at
which all of them were still possible. The mass of aᵢ is the probability that the model, with no
mask, no temperature and no other processor, goes on from b with aᵢ: the sum, over *all* token
sequences that spell it, of the product of their tokens' probabilities. Its last token may reach
beyond the value where the output type allows that (``"}``). Where aᵢ is the beginning of another
alternative (1 of 12), the token that then ends it counts too. The probability of aᵢ is its mass
divided by the sum of all masses: the model's own distribution, given that one of them is written.
That is not what the masked loop samples from, which normalises token by token and so prefers
alternatives whose first token leads to few others (Park et al., *Grammar-aligned decoding*, 2024).

How far. The token sequences form a tree; a place in it is worth at most the probability of the
tokens that lead there. The places are expanded in the order of that bound, each by one pass of the
model over what differs from the place before, until all that is left could not move any probability
by more than the tolerance. So the error is proven, not estimated.
"""

from __future__ import annotations

import heapq
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol, TypeAlias

import numpy as np

from structgen.alternatives import Site, boundary, sites
from structgen.constraint import Constraint
from structgen.errors import OptionError
from structgen.grammar.schema_graph import json_key
from structgen.processors import Logits, TokenIds

TOLERANCE = 0.001
"""How far off a probability may be, unless asked otherwise."""

_MAX_PASSES = 2000
"""Most passes of the model for one value. Some labels take 5 to 50."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """One of the things that a value could have been.

    Attributes:
        value: of JSON the value, else the text.
        text: how it is written; the shortest way where there are several (``-0`` is 0).
        probability: the model's, among the alternatives; of all ways together.
    """

    value: Any
    text: str
    probability: float


@dataclass(frozen=True, slots=True)
class ValueConfidence:
    """How sure the model is of one value.

    Attributes:
        path: JSON path of the value, ``$`` for the whole output.
        chosen: what stands in the output.
        alternatives: all there are, ``chosen`` too, the likeliest first.
        mass: the probability that the model, unconstrained, would have written any of them here.
        error: no probability is further off than this, by what was left out of the sum.
        passes: how often the model was run.
    """

    path: str
    chosen: Alternative
    alternatives: tuple[Alternative, ...]
    mass: float
    error: float
    passes: int

    def __str__(self) -> str:
        others = f"{self.runner_up.text} {self.runner_up.probability:.3f}"
        return f"{self.path}: {self.chosen.text} {self.probability:.3f}, runner-up {others}"

    @property
    def probability(self) -> float:
        """The probability of what was chosen."""
        return self.chosen.probability

    @property
    def runner_up(self) -> Alternative:
        """The likeliest of the others."""
        return next(other for other in self.alternatives if other is not self.chosen)

    @property
    def margin(self) -> float:
        """By how much what was chosen is likelier than the runner-up.

        Negative when it is not the likeliest: it was sampled, or chosen token by token.
        """
        return self.probability - self.runner_up.probability

    @property
    def probabilities(self) -> dict[Any, float]:
        """Value to probability, the likeliest first.

        By text instead where two values are equal in Python, as 1 and True are.
        """
        by_value = {a.value: a.probability for a in self.alternatives}
        if len(by_value) == len(self.alternatives):
            return by_value
        return {a.text: a.probability for a in self.alternatives}


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


OpenSequence: TypeAlias = Callable[[Sequence[int], int], Scores]
"""Begins a sequence: of the prompt, the given tokens after it, and room for so many more."""


class Confidence(Mapping[str, ValueConfidence]):
    """How sure the model is of each value of an output that was a choice among few.

    A mapping from JSON path (``$`` for the whole output) to `ValueConfidence`: booleans, enums,
    literals, small ranges of integers, and unions of these. Paths come from the output type and
    cost nothing; a value is computed when it is first asked for, and then kept. That runs the
    model, on the prompt and the output up to the value; from any thread.
    """

    def __init__(
        self,
        constraint: Constraint | None,
        token_ids: Sequence[int],
        open_sequence: OpenSequence,
        *,
        is_whole: bool,
        tolerance: float = TOLERANCE,
    ) -> None:
        """Take over an output; nothing runs yet.

        Args:
            constraint: what it was made by; None: free text, which has no such values.
            token_ids: its tokens.
            open_sequence: begins a sequence on its prompt.
            is_whole: whether it ended by itself.
            tolerance: how far off a probability may be.
        """
        self._constraint = constraint
        self._token_ids = tuple(token_ids)
        self._open_sequence = open_sequence
        self._is_whole = is_whole
        self._tolerance = tolerance
        self._lock = threading.RLock()
        self._sites: dict[str, Site] | None = None
        self._known: dict[str, ValueConfidence] = {}

    def __getitem__(self, path: str) -> ValueConfidence:
        """Return the confidence in the value at ``path``.

        Raises:
            KeyError: no such value was a choice among few; the error lists those that were.
        """
        with self._lock:
            known = self._known.get(path)
            if known is None:
                found = self._all_sites()
                if path not in found:
                    listed = ", ".join(found) or "none"
                    raise KeyError(
                        f"{path}: no value with few alternatives there. Such values: {listed}"
                    )
                known = self._known[path] = self._measure(found[path])
            return known

    def __contains__(self, path: object) -> bool:
        return path in self._all_sites()

    def __iter__(self) -> Iterator[str]:
        return iter(self._all_sites())

    def __len__(self) -> int:
        return len(self._all_sites())

    def __repr__(self) -> str:
        return f"Confidence({', '.join(self)})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a plain dict of what has been computed so far: models do not travel."""
        return dict, (dict(self._known),)

    def _all_sites(self) -> dict[str, Site]:
        with self._lock:
            if self._sites is None:
                self._sites = {}
                if self._constraint is not None:
                    tokens = self._constraint.vocabulary.tokens
                    output = b"".join(tokens[token_id] for token_id in self._token_ids)
                    found = sites(self._constraint, output, is_whole=self._is_whole)
                    self._sites = {site.path: site for site in found}
            return self._sites

    def _measure(self, site: Site) -> ValueConfidence:
        assert self._constraint is not None
        return measure(
            self._constraint,
            site,
            self._token_ids,
            self._open_sequence,
            tolerance=self._tolerance,
        )


def below(
    confidence: Mapping[str, ValueConfidence], threshold: float | Mapping[str, float]
) -> tuple[ValueConfidence, ...]:
    """Return the values the model is not sure enough of, in the order of the output.

    Args:
        confidence: of an output.
        threshold: what every probability has to reach; or such a number for each of some paths.

    Raises:
        OptionError: a path at which no value was a choice among few.
    """
    if not isinstance(threshold, Mapping):
        return tuple(value for value in confidence.values() if value.probability < threshold)
    for path in threshold:
        if path not in confidence:
            listed = ", ".join(confidence) or "none"
            raise OptionError(
                f"abstain_below has {path!r}, where this output has no value with few "
                f"alternatives. Such values: {listed}. One number stands for all of them."
            )
    return tuple(
        confidence[path]
        for path in confidence
        if path in threshold and confidence[path].probability < threshold[path]
    )


def measure(
    constraint: Constraint,
    site: Site,
    token_ids: Sequence[int],
    open_sequence: OpenSequence,
    *,
    tolerance: float = TOLERANCE,
) -> ValueConfidence:
    """Compute how sure a model is of one value.

    Args:
        constraint: what the output was made by.
        site: the value and its alternatives.
        token_ids: the output's tokens, at least those up to the value.
        open_sequence: begins a sequence on the output's prompt.
        tolerance: how far off a probability may be; 0: sum over every token sequence.

    Cost: a pass of the model for each place of the token tree that matters: for labels of two or
    three tokens some 5 to 50. Past 2,000 passes it stops, and ``error`` says what that means.
    """
    tokens = constraint.vocabulary.tokens
    ends = list(accumulate(len(tokens[token_id]) for token_id in token_ids))
    before = token_ids[: boundary(ends, site)]
    start = ends[len(before) - 1] if before else 0
    # The boundary may lie before the value, or inside what all its alternatives begin with.
    output = b"".join(tokens[token_id] for token_id in token_ids)
    texts = [output[start : site.start] + text[max(start - site.start, 0) :] for text in site.texts]
    sequence = open_sequence(before, max(map(len, texts)) + 1)
    try:
        tree = _Tree(constraint, texts, before, sequence)
        error = tree.grow(tolerance)
    finally:
        sequence.close()
    mass = float(tree.masses.sum())
    # JSON may spell one value in several ways: -0 is 0.
    spellings: dict[Any, list[int]] = {}
    for i in sorted(range(len(texts)), key=lambda i: (len(texts[i]), texts[i])):
        spellings.setdefault(json_key(site.values[i]), []).append(i)
    alternatives = {
        key: Alternative(
            site.values[found[0]],
            site.texts[found[0]].decode(),
            float(tree.masses[found].sum()) / mass,
        )
        for key, found in spellings.items()
    }
    return ValueConfidence(
        path=site.path,
        chosen=alternatives[json_key(site.values[site.chosen])],
        alternatives=tuple(sorted(alternatives.values(), key=lambda a: -a.probability)),
        mass=mass,
        error=error,
        passes=tree.passes,
    )


class _Tree:
    """The token sequences that spell some texts, grown where the model makes them likely.

    Attributes:
        masses: float64 ``[n_texts]``, what has been found of each text's probability.
        passes: how often the model was run.
    """

    def __init__(
        self,
        constraint: Constraint,
        texts: Sequence[bytes],
        before: Sequence[int],
        sequence: Scores,
    ) -> None:
        self._vocabulary = constraint.vocabulary
        self._texts = texts  # sorted: those that begin alike are neighbours
        self._index = {text: i for i, text in enumerate(texts)}
        self._sequence = sequence
        self._root = sequence.length
        self._last = int(sequence.token_ids[0, -1])
        # Without a budget: what could have been written counts, not what was still affordable.
        self._cursor = constraint.start()
        for token_id in before:
            self._cursor.accept(token_id)
        self._at: tuple[int, ...] = ()
        self.masses = np.zeros(len(texts))
        self.passes = 0

    def grow(self, tolerance: float) -> float:
        """Find masses until no probability can be off by more than ``tolerance``.

        Returns:
            The bound on the error that was reached.
        """
        open_places: list[tuple[float, tuple[int, ...], bytes]] = [(-1.0, (), b"")]
        while open_places:
            left = -sum(place[0] for place in open_places)
            error = left / (left + float(self.masses.sum()))
            if error <= tolerance or self.passes == _MAX_PASSES:
                return error
            mass, path, text = heapq.heappop(open_places)
            for token_id, probability in self._ways_on(path):
                more = text + self._vocabulary.tokens[token_id]
                worth = -mass * probability
                if self._is_open(more) and token_id not in self._vocabulary.eos_token_ids:
                    heapq.heappush(open_places, (-worth, (*path, token_id), more))
                else:
                    ended = self._ended(text, more)
                    if ended is not None:
                        self.masses[ended] += worth
        return 0.0

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

    def _is_open(self, text: bytes) -> bool:
        """Whether some alternative goes on after ``text``."""
        at = bisect_right(self._texts, text)
        return at < len(self._texts) and self._texts[at].startswith(text)

    def _ended(self, before: bytes, text: bytes) -> int | None:
        """Which alternative a token ended that led from ``before`` to ``text``; None: it led away
        from all of them."""
        for end in range(len(text), len(before) - 1, -1):
            found = self._index.get(text[:end])
            if found is not None:
                return found
        return None
