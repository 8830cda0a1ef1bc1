"""How sure a model is of a value that was a choice among few.

It owns the probabilities: what is summed, how far, and what is left out. It knows nothing of
schemas, prompts and the step loop; `structgen.insight.alternatives` finds the values.

What is computed. Let a value have the alternatives a₁ … aₙ, and let b be the last token boundary at
which all of them were still possible. The mass of aᵢ is the probability that the model, with no
mask, no temperature and no other processor, goes on from b with aᵢ: the sum, over *all* token
sequences that spell it, of the product of their tokens' probabilities. Its last token may reach
beyond the value where the output type allows that (``"}``). Where aᵢ is the beginning of another
alternative (1 of 12), the token that then ends it counts too. The probability of aᵢ is its mass
divided by the sum of all masses: the model's own distribution, given that one of them is written.
That is not what the masked loop samples from, which normalises token by token and so prefers
alternatives whose first token leads to few others (Park et al., *Grammar-aligned decoding*, 2024).

How far the sum goes, and what it costs: `structgen.insight.token_tree`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from structgen.constraint import Constraint
from structgen.errors import OptionError, PromptError
from structgen.grammar.json_schema import json_key

from .alternatives import Site, boundary, is_json, sites
from .token_tree import GivenUp, OpenSequence, Passes, Scores, TokenTree, run_passes
from .written_values import WrittenTexts, longest

TOLERANCE = 0.001
"""How far off a probability may be, unless asked otherwise."""


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

    def reaches(self, threshold: float) -> bool:
        """Whether the probability is ``threshold`` or more, also if off by a great ``error``."""
        allowance = self.error if self.error > TOLERANCE else 0.0
        return self.probability - allowance >= threshold

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
        self._too_long: list[str] = []
        self._known: dict[str, ValueConfidence] = {}

    def __getitem__(self, path: str) -> ValueConfidence:
        """Return the confidence in the value at ``path``.

        Raises:
            KeyError: no such value was a choice among few; the error lists those that were.
        """
        return self.find(path)

    def find(self, path: str, give_up: Callable[[], bool] | None = None) -> ValueConfidence:
        """As ``[path]``, unless ``give_up``, asked before each pass of the model, says otherwise.

        Raises:
            KeyError: as above.
            GivenUp: so it said.
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
                known = self._known[path] = self._measure(found[path], give_up)
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

    @property
    def too_long(self) -> tuple[str, ...]:
        """Paths of values whose alternatives, if they are few, are too long to list them."""
        self._all_sites()
        return tuple(self._too_long)

    def _all_sites(self) -> dict[str, Site]:
        with self._lock:
            if self._sites is None:
                self._sites = {}
                if self._constraint is not None:
                    tokens = self._constraint.named.tokens
                    output = b"".join(tokens[token_id] for token_id in self._token_ids)
                    found = sites(
                        self._constraint,
                        output,
                        is_whole=self._is_whole,
                        too_long=self._too_long,
                    )
                    self._sites = {site.path: site for site in found}
            return self._sites

    def _measure(self, site: Site, give_up: Callable[[], bool] | None) -> ValueConfidence:
        assert self._constraint is not None
        return measure(
            self._constraint,
            site,
            self._token_ids,
            self._open_sequence,
            tolerance=self._tolerance,
            give_up=give_up,
        )


def below(
    confidence: Mapping[str, ValueConfidence],
    threshold: float | Mapping[str, float],
    give_up: Callable[[], bool] | None = None,
) -> tuple[ValueConfidence, ...]:
    """Return the values the model is not sure enough of, in the order of the output.

    A value of which too little was found, within the passes there are, counts as unsure.

    Args:
        confidence: of an output.
        threshold: what every probability has to reach; or such a number for each of some paths.
        give_up: asked before each pass of the model.

    Raises:
        OptionError: a path at which no value was a choice among few; with one number for all,
            values of which that cannot be told.
        GivenUp: ``give_up`` said so.
    """

    def value(path: str) -> ValueConfidence:
        if isinstance(confidence, Confidence):
            return confidence.find(path, give_up)
        return confidence[path]  # of a result that was pickled

    if not isinstance(threshold, Mapping):
        if isinstance(confidence, Confidence) and confidence.too_long:
            raise OptionError(
                f"abstain_below asks for every choice, but the texts that could stand at "
                f"{', '.join(confidence.too_long)} are too long to list them. Name the values to "
                "check: abstain_below={'$.label': 0.8}."
            )
        found = [value(path) for path in confidence]
        return tuple(value for value in found if not value.reaches(threshold))
    for path in threshold:
        if path not in confidence:
            listed = ", ".join(confidence) or "none"
            raise OptionError(
                f"abstain_below has {path!r}, where this output has no value with few "
                f"alternatives. Such values: {listed}. One number stands for all of them."
            )
    found = [value(path) for path in confidence if path in threshold]
    return tuple(value for value in found if not value.reaches(threshold[value.path]))


def measure(
    constraint: Constraint,
    site: Site,
    token_ids: Sequence[int],
    open_sequence: OpenSequence,
    *,
    tolerance: float = TOLERANCE,
    give_up: Callable[[], bool] | None = None,
) -> ValueConfidence:
    """Compute how sure a model is of one value.

    Args:
        constraint: what the output was made by.
        site: the value and its alternatives.
        token_ids: the output's tokens, at least those up to the value.
        open_sequence: begins a sequence on the output's prompt.
        tolerance: how far off a probability may be; 0: sum over every token sequence.
        give_up: asked before each pass of the model.

    Raises:
        PromptError: the context ends before the likely alternatives do.
        GivenUp: ``give_up`` said so.

    Cost: a pass of the model for each place of the token tree that matters: for labels of two or
    three tokens some 5 to 50. Past 2,000 passes it stops, and ``error`` says what that means: with
    an ``error`` of 1 nothing was found, and every alternative gets the same probability.
    """
    if give_up is not None and give_up():
        raise GivenUp

    def opened(before: Sequence[int], wanted: int) -> Passes[tuple[Scores, int]]:
        yield from ()
        return open_sequence(before, wanted)

    work = grown(constraint, site, token_ids, opened, tolerance)
    tree, _, error = run_passes(work, give_up)
    if tree.cut and error > tolerance:
        raise PromptError(
            f"How sure the model is of {site.path} cannot be told: its context has room for "
            f"{tree.room} more tokens there, too few for the likely alternatives. Shorten the "
            "prompt."
        )
    mass = float(tree.masses.sum())
    # JSON may spell one value in several ways: -0 is 0.
    spellings: dict[Any, list[int]] = {}
    for i in sorted(range(len(site.texts)), key=lambda i: (len(site.texts[i]), site.texts[i])):
        spellings.setdefault(json_key(site.values[i]), []).append(i)
    alternatives = {
        key: Alternative(
            site.values[found[0]],
            constraint.named.shown(site.texts[found[0]]).decode(),
            # Nothing found says nothing about any of them.
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
    open_sequence: Callable[[Sequence[int], int], Passes[tuple[Scores, int]]],
    tolerance: float,
    groups: Sequence[int] | None = None,
) -> Passes[tuple[TokenTree, int, float]]:
    """Grow the tree of a value's alternatives, pass by pass.

    Args:
        constraint: as for `measure`, and so on.
        site: see there.
        token_ids: see there.
        open_sequence: see there; pass by pass.
        tolerance: see there.
        groups: as for `TokenTree.growing`.

    Returns:
        The tree, how many of the output's tokens come before it, and the bound on the error.
    """
    tokens = constraint.named.tokens
    ends = list(accumulate(len(tokens[token_id]) for token_id in token_ids))
    output = b"".join(tokens[token_id] for token_id in token_ids)
    before = token_ids[: boundary(ends, site, output)]
    start = ends[len(before) - 1] if before else 0
    # The boundary may lie before the value, or inside what all its alternatives begin with.
    texts = WrittenTexts(
        site.texts,
        is_json=is_json(constraint),
        lead=output[start : site.start],
        head=output[site.start : start],
    )
    wanted = max(map(longest, site.texts)) + max(site.start - start, 0) + 1
    sequence, room = yield from open_sequence(before, wanted)
    try:
        tree = TokenTree(constraint, texts, before, sequence, room)
        error = yield from tree.growing(tolerance, groups)
    finally:
        sequence.close()
    return tree, len(before), error
