"""How sure a model is of a value that was a choice among few.

Computes the probabilities of the values that `structgen.insight.alternatives` finds. Knows no
schemas, prompts or step loop.

What is computed. Let a value have the alternatives a₁ … aₙ, and let b be the last token boundary at
which all of them were still possible. The mass of aᵢ is the probability that the model, with no
mask, no temperature and no other processor, continues from b with aᵢ: the sum, over *all* token
sequences that spell it, of the product of their tokens' probabilities. Its last token may reach
beyond the value where the output type allows that (``"}``). If aᵢ is the beginning of another
alternative (1 of 12), the token that then ends it counts too. The probability of aᵢ is its mass
divided by the sum of all masses: the model's own distribution, given that one of them is written.
The masked loop samples from another distribution: it normalises token by token and so prefers
alternatives whose first token leads to few others (Park et al., *Grammar-aligned decoding*, 2024).

How far the sum goes. `TokenTree` holds the token sequences; a place in it is worth at most the
probability of the tokens that lead there. Places are expanded in the order of that bound, each by
one pass of the model over what differs from the place before, until all that is left could not move
any probability by more than the tolerance. So the error is proven, not estimated.

`BestValues` finds the likeliest alternative while an output is written. When such a value closes,
it weighs the alternatives as above, and names the tokens of the one to write instead.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeAlias, final

import numpy as np

from structgen import notebook
from structgen.constraint import Constraint
from structgen.errors import ModelError, OptionError, PromptError
from structgen.grammar.json_schema import json_key
from structgen.models.base import ON_CPU, Passes, TokenSequence, is_due, passes, run_passes

from .alternatives import (
    Site,
    WrittenTexts,
    boundary,
    is_json,
    longest,
    names_of,
    read_to,
    site_of,
    sites,
    texts_at,
    whole_texts,
)
from .json_places import ByteReader, Closed, JsonReader, scalars

_MOST_ASKED = 200_000
"""Most alternatives of all values in one call: sending a million takes 4 s."""

_MAX_PASSES = 2000
"""Most passes of the model for one tree. A few labels take 5 to 50."""


OpenPasses: TypeAlias = Callable[[Sequence[int], int], Passes[tuple[TokenSequence, int]]]
"""Begins a sequence, pass by pass: the prompt, the given tokens after it, and room for a number of
further tokens, or fewer if the context ends. That number is also returned."""


class TokenTree:
    """The token sequences that spell some texts, extended where the model finds them likely.

    Attributes:
        masses: float64 ``[n_texts]``, the part of each text's probability found so far.
        cut: the most probability that may lie beyond the end of the context.
        passes: number of passes whose scores were read.
        run_tokens: tokens that the model read for them.
        room: the most tokens that fit after the preceding text; None: no limit.
        paths: for each text the likeliest token sequence found for it, with the token that ends it
            if that reaches beyond the text or tells it from longer ones.
    """

    def __init__(
        self,
        constraint: Constraint,
        texts: WrittenTexts,
        before: Sequence[int],
        sequence: TokenSequence,
        room: int | None = None,
    ) -> None:
        """Begin with an empty tree.

        Args:
            constraint: decides which tokens may follow.
            texts: the texts to weigh.
            before: the output's tokens before the texts.
            sequence: the prompt and ``before``; it stays open and is changed.
            room: the most tokens that fit after them; None: no limit.
        """
        self._vocabulary = constraint.vocabulary
        self._tokens = constraint.named.tokens
        self._texts = texts
        self._sequence = sequence
        self._root = sequence.length
        self._last = int(sequence.token_ids[0, -1])
        # Without a budget: all that could have been written counts, not only what still fitted.
        self._cursor = constraint.start()
        for token_id in before:
            self._cursor.accept(token_id)
        self._at: tuple[int, ...] = ()
        self.room = room
        self.masses = np.zeros(texts.count)
        self.paths: list[tuple[int, ...]] = [()] * texts.count
        self._best_ways = np.zeros(texts.count)
        self.cut = 0.0
        self.passes = self.run_tokens = 0

    def growing(
        self,
        tolerance: float,
        groups: Sequence[int] | None = None,
        is_enough: Callable[[float], bool] | None = None,
    ) -> Passes[float]:
        """Find masses, pass by pass, until no probability can be off by more than ``tolerance``.

        Args:
            tolerance: the largest error of a probability.
            groups: for each text the first with the same meaning. With groups it also ends when the
                likeliest group is known.
            is_enough: called with the error when it is within ``tolerance``; returns whether it is
                small enough.
        """
        paths: list[tuple[int, ...]] = []  # at most 2,000 tokens each
        open_places = [(-1.0, -1, -1)]  # minus the bound, the place before, and the token after it
        left_out = 0.0
        while open_places:
            left = left_out - sum(place[0] for place in open_places)
            error = self._error(left)
            if self.passes == _MAX_PASSES:
                return error
            if error <= tolerance and (is_enough is None or is_enough(error)):
                return error
            if groups is not None:
                masses = np.sort(np.bincount(groups, self.masses))
                if masses[-1] - masses[-2] > left + self.cut:  # no other can be likelier
                    return error
            mass, before, token_id = heapq.heappop(open_places)
            path = (*paths[before], token_id) if paths else ()
            if self.room is not None and len(path) > self.room:
                self.cut -= mass
                continue
            paths.append(path)
            text = b"".join(self._tokens[token_id] for token_id in path)
            for token_id, probability in (yield from self._ways_on(path)):
                more = text + self._tokens[token_id]
                worth = -mass * probability
                if self._texts.is_open(more) and token_id not in self._vocabulary.eos_token_ids:
                    heapq.heappush(open_places, (-worth, len(paths) - 1, token_id))
                else:
                    ended = self._texts.ended(more)
                    if ended is not None:
                        self.masses[ended] += worth
                        if worth > self._best_ways[ended]:
                            self._best_ways[ended] = worth
                            self.paths[ended] = (*path, token_id)
            if len(open_places) > 2 * _MAX_PASSES:  # no passes are left for more
                open_places.sort()
                left_out -= sum(place[0] for place in open_places[_MAX_PASSES:])
                del open_places[_MAX_PASSES:]
        return self._error(left_out)

    def likeliest(self, groups: Sequence[int]) -> int | None:
        """Return the text of the likeliest group with the likeliest spelling.

        None if nothing was found. Among equal groups the first.
        """
        masses = np.bincount(groups, self.masses)
        best = int(masses.argmax())
        if not masses[best]:
            return None
        members = [i for i, group in enumerate(groups) if group == best]
        return max(members, key=lambda i: float(self._best_ways[i]))

    def _error(self, left: float) -> float:
        """Return the largest error of a probability, given the mass that was left out."""
        left += self.cut
        total = left + float(self.masses.sum())
        return left / total if total else 1.0

    def _ways_on(self, path: tuple[int, ...]) -> Passes[list[tuple[int, float]]]:
        """Return the allowed tokens after ``path`` and the model's probability of each."""
        kept = 0
        while kept < min(len(path), len(self._at)) and path[kept] == self._at[kept]:
            kept += 1
        self._cursor.rollback(len(self._at) - kept)
        for token_id in path[kept:]:
            if is_due():
                yield
            self._cursor.accept(token_id)
        if path:
            # At least two tokens: a pass over one rounds differently, and scores would depend on
            # the order in which places are visited.
            spelt = (self._last, *path)
            first = min(kept + 1, len(spelt) - 2)
            self._sequence.rewind(self._root - 1 + first)
            for piece in passes(np.array(spelt[first:], np.int32), ON_CPU.longest_pass):
                yield
                self._sequence.append(piece)
            self.run_tokens += len(spelt) - first
        self._at = path
        self.passes += 1
        scores = self._sequence.logits()[0].astype(np.float64)
        with np.errstate(invalid="ignore"):
            weights = np.exp(scores - scores.max())
        if np.isnan(total := weights.sum()):
            raise ModelError(
                "The model's scores are NaN or infinite. It is damaged, or its weights have too "
                "few bits for this text."
            )
        words = np.zeros((self._vocabulary.size + 31) // 32, np.uint32)
        self._cursor.fill_mask(words)
        allowed = np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))
        return list(zip(allowed.tolist(), (weights[allowed] / total).tolist(), strict=True))


TOLERANCE = 0.001
"""The default of the largest error of a probability."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """One alternative of a value.

    Attributes:
        value: the JSON value, or the text if it is not JSON.
        text: its text; the shortest if there are several (``-0`` is 0).
        probability: that of all its texts together, relative to all alternatives.
    """

    value: Any
    text: str
    probability: float


@dataclass(frozen=True, slots=True)
class ValueConfidence:
    """How sure the model is of one value.

    Attributes:
        path: JSON path of the value, ``$`` for the whole output.
        chosen: the value in the output.
        alternatives: all alternatives with ``chosen``, the likeliest first.
        mass: the probability that the model, unconstrained, would have written any of them here.
        error: the largest possible error of a probability, from parts of the sum that were left
            out.
        passes: number of passes of the model.
    """

    path: str
    chosen: Alternative
    alternatives: tuple[Alternative, ...]
    mass: float
    error: float
    passes: int

    def __str__(self) -> str:
        others = f"{self.runner_up.text} {self.runner_up.probability:.3f}"
        word = "runner-up" if self.margin >= 0 else "likelier"
        return f"{self.path}: {self.chosen.text} {self.probability:.3f}, {word} {others}"

    def _repr_html_(self) -> str:
        """Return the alternatives as HTML, for notebooks."""
        rows = [(one.text, f"{one.probability:.3f}") for one in self.alternatives]
        return notebook.table(rows, (self.path, "probability"))

    @property
    def probability(self) -> float:
        """The probability of the chosen value."""
        return self.chosen.probability

    def reaches(self, threshold: float) -> bool:
        """Return whether the probability is at least ``threshold``.

        An ``error`` above the default tolerance is subtracted first.
        """
        allowance = self.error if self.error > TOLERANCE else 0.0
        return self.probability - allowance >= threshold

    @property
    def runner_up(self) -> Alternative:
        """The likeliest other value."""
        return next(other for other in self.alternatives if other is not self.chosen)

    @property
    def margin(self) -> float:
        """The probability of the chosen value minus that of the runner-up.

        Negative if it is not the likeliest, because it was sampled or chosen token by token.
        """
        return self.probability - self.runner_up.probability

    @property
    def probabilities(self) -> dict[Any, float]:
        """The probability of each value, the likeliest first.

        If two values are equal in Python, as 1 and True are, the keys are their texts.
        """
        by_value = {a.value: a.probability for a in self.alternatives}
        if len(by_value) == len(self.alternatives):
            return by_value
        return {a.text: a.probability for a in self.alternatives}


class Confidence(Mapping[str, ValueConfidence]):
    """The probability of each value of an output that was a choice among few.

    A mapping from JSON path (``$`` for the whole output) to `ValueConfidence`: booleans, enums,
    literals, small ranges of integers, and unions of these. Paths come from the output type and
    cost nothing; a value is computed when it is first read, and then kept. This runs the model on
    the prompt and the output up to the value, in any thread.
    """

    def __init__(
        self,
        constraint: Constraint | None,
        token_ids: Sequence[int],
        open_sequence: OpenPasses,
        *,
        is_whole: bool,
        tolerance: float = TOLERANCE,
    ) -> None:
        """Take an output; nothing runs yet.

        Args:
            constraint: the constraint that made it; None: free text, which has no such values.
            token_ids: the output's tokens.
            open_sequence: begins a sequence on its prompt.
            is_whole: whether it ended by itself.
            tolerance: the largest error of a probability.
        """
        self._constraint = constraint
        self._token_ids = tuple(token_ids)
        self._open_sequence = open_sequence
        self._is_whole = is_whole
        self._tolerance = tolerance
        self._lock = threading.RLock()
        self._sites: dict[str, Site] | None = None
        self.too_long: list[str] = []
        self._known: dict[str, ValueConfidence] = {}

    def __getitem__(self, path: str) -> ValueConfidence:
        """Return the confidence in the value at ``path``.

        Raises:
            KeyError: no such value was a choice among few; the error lists those that were.
        """
        with self._lock:
            return run_passes(self.finding(path))

    def finding(self, path: str) -> Passes[ValueConfidence]:
        """Like ``[path]``, pass by pass."""
        known = self._known.get(path)
        if known is None:
            found = yield from self.listing()
            if path not in found:
                listed = ", ".join(found) or "none"
                raise KeyError(
                    f"{path}: there is no value with few alternatives. Such values: {listed}"
                )
            assert self._constraint is not None
            known = self._known[path] = yield from measuring(
                self._constraint, found[path], self._token_ids, self._open_sequence, self._tolerance
            )
        return known

    def __contains__(self, path: object) -> bool:
        return path in self._all_sites()

    def __iter__(self) -> Iterator[str]:
        return iter(self._all_sites())

    def __len__(self) -> int:
        return len(self._all_sites())

    def __repr__(self) -> str:
        known = dict(self._known)
        found = (f"{at}: {known[at].probability:.3f}" if at in known else at for at in self)
        return f"Confidence({', '.join(found)})"

    def _repr_html_(self) -> str:
        """Return each value and its probability as HTML, for notebooks. Runs the model if
        necessary."""
        rows = [
            (path, one.chosen.text, f"{one.probability:.3f}", one.runner_up.text)
            for path, one in self.items()
        ]
        return notebook.table(rows, ("path", "value", "probability", "runner-up"))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a dict of the values computed so far, because models cannot be pickled."""
        return dict, (dict(self._known),)

    def listing(self) -> Passes[dict[str, Site]]:
        """Return the values by path; yield before each pass."""
        if self._sites is None:
            made: Sequence[Site] = ()
            if self._constraint is not None:
                tokens = self._constraint.named.tokens
                output = b"".join(tokens[token_id] for token_id in self._token_ids)
                too_long: list[str] = []
                made = yield from sites(
                    self._constraint, output, is_whole=self._is_whole, too_long=too_long
                )
                self.too_long = too_long
            self._sites = {site.path: site for site in made}
        return self._sites

    def _all_sites(self) -> dict[str, Site]:
        with self._lock:
            return run_passes(self.listing())


def below(
    confidence: Mapping[str, ValueConfidence], threshold: float | Mapping[str, float]
) -> Passes[tuple[ValueConfidence, ...]]:
    """Find the values below a probability, in the order of the output, pass by pass.

    A value also counts if the passes do not find enough of its probability.

    Raises:
        OptionError: no value at a path was a choice among few; or, with one number for all values,
            this is not known for some; or there are too many alternatives in total.
    """
    places = (yield from confidence.listing()) if isinstance(confidence, Confidence) else {}
    paths: Sequence[str] = list(confidence)
    if not isinstance(threshold, Mapping):
        if isinstance(confidence, Confidence) and confidence.too_long:
            paths_, more = confidence.too_long[:8], len(confidence.too_long) - 8
            named = ", ".join(paths_) + (f" and {more:,} more" if more > 0 else "")
            raise OptionError(
                f"abstain_below checks every value with few alternatives, but {named} may have "
                "too many texts, or too long ones. In JSON, name the values to check: "
                "abstain_below={'$.label': 0.8}.",
                option="abstain_below",
            )
        least = dict.fromkeys(paths, threshold)
    else:
        least = dict(threshold)
    for path in least:
        if path not in paths:
            listed = ", ".join(paths) or "none"
            raise OptionError(
                f"abstain_below has {path!r}, but this output has no value with few alternatives "
                f"there. Such values: {listed}. A single number is for all of them.",
                option="abstain_below",
            )
    n_texts = sum(len(places[path].texts) for path in least if path in places)
    if n_texts > _MOST_ASKED:
        raise OptionError(
            f"abstain_below checks values with {n_texts:,} alternatives in total; the limit is "
            f"{_MOST_ASKED:,}. Name fewer values: abstain_below={{'$.label': 0.8}}.",
            option="abstain_below",
        )
    found = []
    for path in filter(least.__contains__, paths):
        if isinstance(confidence, Confidence):
            value = yield from confidence.finding(path)
        else:
            value = confidence[path]  # for a pickled result
        if not value.reaches(least[path]):
            found.append(value)
    return tuple(found)


def measuring(
    constraint: Constraint,
    site: Site,
    token_ids: Sequence[int],
    open_sequence: OpenPasses,
    tolerance: float,
) -> Passes[ValueConfidence]:
    """Compute how sure a model is of one value, pass by pass.

    Args:
        constraint: what the output was made by.
        site: the value and its alternatives.
        token_ids: the output's tokens, at least those up to the value.
        open_sequence: begins a sequence on the output's prompt.
        tolerance: the largest error of a probability; 0: sum over all token sequences.

    Raises:
        PromptError: the context ends before the likely alternatives do.

    Cost: a pass of the model for each place of the token tree that matters: for labels of two or
    three tokens some 5 to 50. It stops after 2,000 passes, and ``error`` has the consequence: with
    an ``error`` of 1 nothing was found, and all alternatives get the same probability.
    """

    yield  # no sequence is begun after the call has ended
    tree, _, error = yield from grown(constraint, site, token_ids, open_sequence, tolerance)
    if tree.cut and error > tolerance:
        raise PromptError(
            f"The confidence at {site.path} cannot be computed: the context has room for only "
            f"{tree.room} more tokens, too few for the likely alternatives. Shorten the prompt."
        )
    mass = float(tree.masses.sum())
    # JSON has several spellings of one value: -0 is 0.
    spellings: dict[Any, list[int]] = {}
    for i in sorted(range(len(site.texts)), key=lambda i: (len(site.texts[i]), site.texts[i])):
        spellings.setdefault(json_key(site.values[i]), []).append(i)
    alternatives = {
        key: Alternative(
            site.values[found[0]],
            constraint.named.shown(site.texts[found[0]]).decode(),
            # If nothing was found, nothing is known about any of them.
            float(tree.masses[found].sum()) / mass if mass else 1 / len(spellings),
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


def grown(
    constraint: Constraint,
    site: Site,
    token_ids: Sequence[int],
    open_sequence: OpenPasses,
    tolerance: float,
    groups: Sequence[int] | None = None,
) -> Passes[tuple[TokenTree, int, float]]:
    """Grow the tree of a value's alternatives, pass by pass: as `measuring`, and
    `TokenTree.growing` for ``groups``.

    Returns:
        The tree, the number of the output's tokens before it, and the bound on the error.
    """
    tokens = constraint.named.tokens
    ends = list(accumulate(len(tokens[token_id]) for token_id in token_ids))
    output = b"".join(tokens[token_id] for token_id in token_ids)
    before = token_ids[: boundary(ends, site, output)]
    start = ends[len(before) - 1] if before else 0
    # The boundary may lie before the value, or within the common beginning of its alternatives.
    spelt = is_json(constraint)
    texts = WrittenTexts(
        site.texts, is_json=spelt, lead=output[start : site.start], head=output[site.start : start]
    )
    wanted = max(map(longest if spelt else len, site.texts)) + max(site.start - start, 0) + 1
    sequence, room = yield from open_sequence(before, wanted)
    try:
        tree = TokenTree(constraint, texts, before, sequence, room)
        error = yield from tree.growing(tolerance, groups)
    finally:
        sequence.close()
    return tree, len(before), error


@final
class BestValues:
    """Watches one output while it is written, and replaces values by likelier ones. Used by one
    thread.

    Attributes:
        path: JSON path of the value that was replaced last.
    """

    def __init__(self, constraint: Constraint) -> None:
        """Start without tokens."""
        self._constraint = constraint
        self._is_json = is_json(constraint)
        self._whole: tuple[bytes, ...] | None = None  # for JSON, or before they are listed
        self._walk = ByteReader(constraint)
        self._places = JsonReader()
        self._closed: list[Closed] = []  # values that have not been checked
        self._data = bytearray()
        self._ends: list[int] = []  # offset after each token
        self._n_settled = 0
        self._judged = -1  # where the last weighed value began
        self._looked = -1  # where the last checked value began, and its texts
        self._texts: tuple[bytes, ...] | None = None
        self._site: Site | None = None
        self.path = ""
        self._is_to_look = not self._is_json

    @property
    def is_waiting(self) -> bool:
        """Whether a value must be checked or weighed before the output continues."""
        return self._is_to_look or self._site is not None

    @property
    def n_settled(self) -> int:
        """The number of first tokens that are final."""
        settled, ends = 0 if self._is_to_look else self._settled_bytes(), self._ends
        while self._n_settled < len(ends) and ends[self._n_settled] <= settled:
            self._n_settled += 1
        return self._n_settled

    def _settled_bytes(self) -> int:
        if not self._is_json:
            return len(self._data) if self._judged >= 0 else 0
        if self._site is not None:
            return self._site.start
        start = self._places.open_start
        if start > self._judged and self._texts is not None and start == self._looked:
            return start
        return len(self._data)

    def read(self, data: bytes) -> None:
        """Add a token that was written."""
        self._data += data
        self._ends.append(len(self._data))
        if self._is_json:
            self._note_closed(self._places.feed(data))

    def end(self) -> None:
        """End the output."""
        if self._is_json:
            self._note_closed(self._places.finish())
        elif self._judged < 0 and self._whole is not None:
            texts, names = self._whole, names_of(self._constraint, self._whole)
            if len(set(names)) > 1:
                self._site = Site("$", 0, texts.index(bytes(self._data)), texts, names)

    def _note_closed(self, events: Sequence[Any]) -> None:
        self._closed += [one for one in scalars(events) if one.start > self._judged]
        opened = self._places.open_start > max(self._judged, self._looked)
        self._is_to_look = bool(self._closed) or opened

    def _look(self) -> Passes[None]:
        """Check the values that have opened or closed, in order, up to the first one to be weighed;
        if it is not JSON, check the whole output."""
        if not self._is_json and self._whole is None:
            self._whole = yield from whole_texts(self._constraint)
            if self._whole is None:
                raise OptionError(
                    "best= requires a value with few alternatives, but "
                    f"{self._constraint.output.name} has too many texts or too long ones.",
                    option="best",
                )
        for scalar in self._closed:
            if scalar.start > self._judged:
                yield from self._look_at(scalar.start)
                if self._texts is not None:
                    self._site = site_of(self._texts, scalar, bytes(self._data))
                    break
                self._judged = scalar.start
        else:
            self._closed.clear()
            if self._places.open_start > self._judged:
                yield from self._look_at(self._places.open_start)
        self._is_to_look = False

    def _look_at(self, start: int) -> Passes[None]:
        if start <= self._looked:
            return
        yield from read_to(self._walk, self._data, start)
        self._looked = start
        self._texts = yield from texts_at(self._walk)

    def weigh(
        self, token_ids: Sequence[int], open_sequence: OpenPasses
    ) -> Passes[tuple[int, tuple[int, ...]] | None]:
        """Check the waiting values, and weigh the alternatives of the first.

        Args:
            token_ids: the output's tokens so far.
            open_sequence: begins a sequence on its prompt.

        Returns:
            None to keep the value. Otherwise the number of tokens to keep, and the tokens to write
            after them: the likeliest spelling of the likeliest alternative, to its end.

        Cost: that of `measuring` or less, because it stops when nothing left could be likelier.
        """
        if self._is_to_look:
            yield from self._look()
        site = self._site
        if site is None:
            return None
        first: dict[Any, int] = {}
        groups = [first.setdefault(json_key(one), i) for i, one in enumerate(site.values)]
        tree, n_before, _ = yield from grown(
            self._constraint, site, token_ids, open_sequence, TOLERANCE, groups
        )
        self._judged, self._site = site.start, None
        best = tree.likeliest(groups)
        if best is None or groups[best] == groups[site.chosen]:
            yield from self._look()
            return None
        self.path = site.path
        return n_before, tree.paths[best]

    def go_back(self, n_tokens: int) -> None:
        """Return to the output's first tokens."""
        del self._ends[n_tokens:]
        del self._data[self._ends[-1] if self._ends else 0 :]
        self._places, self._closed = JsonReader(), []
        if self._is_json:
            self._places.feed(bytes(self._data))
