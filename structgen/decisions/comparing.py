"""Compare: from a state and questions to distributions, by an embedder's vectors.

Makes sentences about a label, compares their vectors with a state's, and turns cosines into
probabilities with a sharpness. It has the interface of `asking.Asker`, and knows no examples:
`calibration` learns from them.

A label's vector is the mean of the vectors of three sentences about it. The sentences were chosen,
and the sharpness was fitted, on tests/data/decisions_by_kind.jsonl (docs/decision-quality.md).
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from typing import final

import numpy as np

from structgen.errors import ModelError, OptionError, PromptError
from structgen.models.base import Passes, most_characters
from structgen.models.embedding import Embedder, prompt_name_for
from structgen.sampling import TokenIds
from structgen.storage import KeptByBytes, fork_safe
from structgen.workers import owner

from .asking import KEPT_BYTES, Found, Settings, Usage
from .distributions import Distribution, Floats, softmax
from .questions import Label, Question

_SENTENCES = ("This is {}.", "The text is {}.", "The text is about {}.")
"""The sentences about a label, for its vector."""

_SHARPNESS = 20.0
"""The factor that cosines are multiplied by."""


@final
class Comparer:
    """Compares states with labels. Immutable and safe to share by threads."""

    def __init__(self, embedder: Embedder, settings: Settings) -> None:
        """Start without vectors.

        Raises:
            ModelError: the embedder makes no vectors.
            OptionError: a setting is only for text models.
        """
        if embedder.is_cross_encoder:
            raise ModelError(
                f"{embedder.name} is a cross-encoder, which cannot compute vectors to compare."
            )
        for name in Settings.__slots__:
            if getattr(settings, name) != getattr(Settings(), name):
                raise OptionError(
                    f"{name}= is for text models, but {embedder.name} is an embedder.", option=name
                )
        self.embedder = embedder
        self._most = most_characters(embedder.max_length)
        self._kept: KeptByBytes[Floats] = KeptByBytes(KEPT_BYTES, lambda one: one.nbytes + 1024)
        self._lock = fork_safe(threading.Lock())

    def ask(
        self, state: str, questions: Mapping[str, Question], *, is_bound: bool = False
    ) -> Passes[Found]:
        """Compare a state with the labels of some questions, like `asking.Asker.ask`.

        Labels without an explanation are equally likely. It yields before each text or label.

        Raises:
            PromptError: the state is too long for the embedder.
        """
        yield
        vector, usage = self.vector(state)
        found: dict[str, Distribution] = {}
        trace: dict[str, tuple[str, ...]] = {}
        for name, question in questions.items():
            trace[name] = (state,)
            cosines = np.zeros(len(question.labels))
            if is_explained(question):
                trace[name] += tuple(one for sentences in _sentences(question) for one in sentences)
                cosines = (yield from self._labels(question)) @ vector
            values = softmax(_SHARPNESS * cosines)
            found[name] = Distribution(values, values, values, 1.0)
        bound = {name: self.fingerprint(one) for name, one in questions.items() if is_bound}
        return Found(found, {}, usage, trace, bound, vector)

    def fingerprint(self, question: Question) -> str:
        """Return a digest of all that changes a question's distribution, except the state."""
        labels = [(label.text, label.description) for label in question.labels]
        given = [
            *(self.embedder.name, self.embedder.dimensions, _SHARPNESS, _SENTENCES),
            *(question.kind, question.instructions, labels),
        ]
        return hashlib.sha256(json.dumps(given).encode()).hexdigest()

    def prompt_ids(self, state: str, question: Question) -> TokenIds:
        """Return the tokens of a state, int32 ``[n]``, whatever the question."""
        return np.array(self.embedder.tokenize([state])[0], np.int32)

    def vector(self, state: str) -> tuple[Floats, Usage]:
        """Return the vector of a state and its usage. It runs alone, because a batch changes
        rounding.

        Raises:
            PromptError: it is too long for the embedder.
        """
        if len(state) > self._most:
            length = self.embedder.max_length
            takes = f"{self._most:,} characters" if length is None else f"{length:,} tokens"
            raise PromptError(
                f"The state has {len(state):,} characters, but the limit of {self.embedder.name} "
                f"is {takes}. Shorten it."
            )
        result = self.embedder.result(
            state,
            prompt_name=prompt_name_for("query", self.embedder.prompts),
            on_truncation="ignore",
        )
        n_tokens = 0 if result.n_tokens is None else int(result.n_tokens[0])
        if result.n_cut is not None and result.n_cut[0]:
            raise PromptError(
                f"The state has {n_tokens + int(result.n_cut[0]):,} tokens, but the limit of "
                f"{self.embedder.name} is {self.embedder.max_length:,}. Shorten it."
            )
        return result.vectors[0].astype(np.float64), Usage(n_tokens, n_tokens, passes=1)

    def _labels(self, question: Question) -> Passes[Floats]:
        """Return the vectors of a question's labels, float64 ``[n, dimensions]``."""
        rows = []
        for texts in _sentences(question):
            key = owner(), texts  # otherwise the time would reveal another owner's questions
            with self._lock:
                row: Floats | None = self._kept.get(key)
            if row is None:
                made = self.embedder.embed(
                    [text[: self._most] for text in texts],
                    prompt_name=prompt_name_for("document", self.embedder.prompts),
                    on_truncation="ignore",
                )
                row = made.astype(np.float64).mean(axis=0)
                row /= np.linalg.norm(row) or 1.0
                with self._lock:
                    self._kept.add(key, row)
                yield
            rows.append(row)
        return np.array(rows)


def is_explained(question: Question) -> bool:
    """Return whether a question explains its labels; plain yes and no explain nothing."""
    return question.kind != "predicate" or all(label.description for label in question.labels)


def _sentences(question: Question) -> list[tuple[str, ...]]:
    """Return the sentences about each label."""

    def described(label: Label) -> str:
        if not label.description:
            return label.text
        return label.description if is_bare else f"{label.text}: {label.description}"

    is_bare = question.kind == "predicate"
    return [
        tuple(sentence.format(described(label)) for sentence in _SENTENCES)
        for label in question.labels
    ]
