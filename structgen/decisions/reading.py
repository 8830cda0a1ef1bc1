"""Reading: what a model gives each label after a prompt, with what prompts share run once.

It owns one sequence of the model for many prompts, the order in which they are run, and the count
of what that cost. It knows tokens and labels' texts, and nothing of questions, bias or calibration.
How much a label gets, and how exactly: `structgen.insight.confidence`.

Prompts are run in the order of their tokens, so that neighbours share the most (those whose
distributions others need come first): the sequence is rewound to what the next one has in common
with the last. No pass is over one token, which would round differently; passes over more agree to
the bit however tokens are cut into them (`structgen.models.genai.sequences`), so what a prompt gets
does not depend on its neighbours.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from structgen.constraint import Constraint
from structgen.constraint import compile as compile_constraint
from structgen.decoding import check_fits
from structgen.errors import PromptError
from structgen.grammar import ir
from structgen.insight import Passes, TokenTree, WrittenTexts
from structgen.models.base import Model, TokenSequence
from structgen.models.passes import LONGEST_PASS, n_shared
from structgen.sampling import Logits, TokenIds
from structgen.types import OutputType
from structgen.vocabulary import Vocabulary

from .distributions import Distribution, found

_MOST_PASSES = 64
"""Most passes for one prompt's labels that are made to be exact enough for what is made of them:
hundreds of rare labels would take one each."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What answers took.

    Attributes:
        prompt_tokens: tokens of the prompts, what they share counted once.
        cached_tokens: how many of these the model had read before.
        run_tokens: tokens that the model was run over: fewer where it had read some before, more
            by those of labels, and by those run again after a rewind.
        passes: passes of the model; a prompt of many tokens is one.
        label_passes: how many of these were for labels, past a prompt's end.
    """

    prompt_tokens: int = 0
    run_tokens: int = 0
    passes: int = 0
    label_passes: int = 0
    cached_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.run_tokens + other.run_tokens,
            self.passes + other.passes,
            self.label_passes + other.label_passes,
            self.cached_tokens + other.cached_tokens,
        )


@final
class Texts:
    """The texts of a question's labels, compiled for a vocabulary. Immutable."""

    def __init__(self, texts: Sequence[str], ends: Sequence[str], vocabulary: Vocabulary) -> None:
        """Compile.

        Args:
            texts: all different.
            ends: what may end one that is the beginning of another, beside the end of the output.
            vocabulary: the model's.
        """
        in_order = sorted(texts)
        # Those that begin alike are neighbours.
        begun = [a for a, b in itertools.pairwise(in_order) if b.startswith(a)]
        written = dict.fromkeys((*texts, *(text + end for text in begun for end in ends)))
        grammar = ir.Choice(tuple(written))
        self.constraint: Constraint[str] = compile_constraint(
            OutputType(grammar, str, "the labels"), vocabulary
        )
        self._bytes = [text.encode() for text in texts]
        self.longest = max(map(len, self._bytes)) + 1

    def written(self) -> WrittenTexts:
        """What `TokenTree` looks for."""
        return WrittenTexts(self._bytes, is_json=False)


@dataclass(frozen=True, slots=True)
class Reading:
    """One prompt, and the labels to be weighed after it.

    Attributes:
        token_ids: int32 ``[n]``.
        texts: the labels.
        is_enough: asked of a distribution that is within the tolerance: whether it is exact enough
            for what is made of it, too. None: it is.
        keep: what the distribution is given to, before readings that keep nothing are begun.
    """

    token_ids: TokenIds
    texts: Texts
    is_enough: Callable[[Distribution], bool] | None = None
    keep: Callable[[Distribution], None] | None = None


def read(
    model: Model, readings: Sequence[Reading], tolerance: float, *, adapter: str | None
) -> Passes[tuple[list[Distribution], Usage]]:
    """Weigh the labels of each prompt, pass by pass.

    Args:
        model: the model.
        readings: what to read.
        tolerance: how far off a probability may be.
        adapter: to run with, or None.

    Raises:
        PromptError: a prompt does not fit the context, or the likely labels do not fit behind it.
    """
    if not readings:
        return [], Usage()
    for reading in readings:
        check_fits(model, len(reading.token_ids))

    def place(i: int) -> tuple[bool, list[int]]:
        return readings[i].keep is None, readings[i].token_ids.tolist()

    order = sorted(range(len(readings)), key=place)
    longest = max(len(one.token_ids) + one.texts.longest for one in readings)
    first = readings[order[0]].token_ids
    sequence = _Counted(
        model.start(min(longest, model.context_length), prefix=first, adapter=adapter)
    )
    results: dict[int, Distribution] = {}
    prompt_tokens = 0
    before: TokenIds = np.empty(0, np.int32)
    try:
        for i in order:
            reading = readings[i]
            token_ids, texts = reading.token_ids, reading.texts
            prompt_tokens += len(token_ids) - n_shared(before, token_ids)
            before = token_ids
            yield from sequence.go_to(token_ids)
            room = model.context_length - len(token_ids)
            tree = TokenTree(texts.constraint, texts.written(), (), sequence, room)
            of_prompt = sequence.passes
            error = yield from tree.growing(tolerance, is_enough=_asked_of(reading, tree))
            sequence.label_passes += sequence.passes - of_prompt
            if tree.cut and error > tolerance:
                raise PromptError(
                    f"The context has room for {room} tokens after a question, too few for the "
                    "likely labels. Shorten the state."
                )
            results[i] = found(tree.masses, error)
            if reading.keep is not None:
                reading.keep(results[i])
    finally:
        sequence.close()
    usage = Usage(
        prompt_tokens,
        sequence.run_tokens,
        sequence.passes,
        sequence.label_passes,
        sequence.cached_tokens,
    )
    return [results[i] for i in range(len(readings))], usage


def _asked_of(reading: Reading, tree: TokenTree) -> Callable[[float], bool] | None:
    """Asks a reading of what a tree has found so far."""
    is_enough = reading.is_enough
    if is_enough is None:
        return None
    return lambda error: tree.passes >= _MOST_PASSES or is_enough(found(tree.masses, error))


@final
class _Counted:
    """A sequence, and what it was made to do."""

    def __init__(self, sequence: TokenSequence) -> None:
        self._sequence = sequence
        self.run_tokens = 0
        self.passes = 0
        self.label_passes = 0
        self.cached_tokens = 0

    @property
    def length(self) -> int:
        return self._sequence.length

    @property
    def token_ids(self) -> TokenIds:
        return self._sequence.token_ids

    def go_to(self, token_ids: TokenIds) -> Passes[None]:
        """Hold exactly these tokens; at least the last two are run."""
        shared = n_shared(self._sequence.token_ids[0], token_ids)
        first = max(min(shared, len(token_ids) - 2), 0)
        self._sequence.rewind(first)
        if not self.passes:  # what prompts share among each other is no cache: counted once
            self.cached_tokens = first
        self.passes += 1
        self.run_tokens += len(token_ids) - first
        while len(token_ids) - first > LONGEST_PASS + 1:  # nothing can end a call within a pass
            yield
            self._sequence.append(token_ids[first : first + LONGEST_PASS])
            first += LONGEST_PASS
        yield
        self._sequence.append(token_ids[first:])

    def append(self, token_ids: Sequence[int]) -> None:
        self.passes += 1
        self.run_tokens += len(token_ids)
        self._sequence.append(token_ids)

    def logits(self) -> Logits:
        return self._sequence.logits()

    def rewind(self, length: int) -> None:
        self._sequence.rewind(length)

    def close(self) -> None:
        self._sequence.close()
