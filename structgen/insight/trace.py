"""A trace: what happened at each step of one output, and why.

It owns recording and the data. It knows nothing of models; it is told of each token by the run, and
asks the output type's automaton afterwards what it was asked about. The page is
`trace_page`'s business, reasons are `rejections`'s.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

from structgen.constraint import Constraint
from structgen.errors import OptionError
from structgen.sampling import Logits, Scorer, TokenLogprob
from structgen.vocabulary import Vocabulary

from .alternatives import is_json
from .json_places import JsonPlaces
from .recording import Step
from .rejections import shown, why_barred
from .trace_page import page
from .trace_step import TraceStep

_OPENED = re.compile(r"(Choice|Literal|Regex|JsonSchema|Cfg)[(\[](.*?)[)\]]?", re.DOTALL)
_KINDS = {
    "Choice": "One of several texts",
    "Literal": "One of several values",
    "Regex": "A match of a regular expression",
    "JsonSchema": "JSON of a schema",
    "Cfg": "A text of a grammar",
}
_LONGEST = 80

TOP = 5
"""How many of the likeliest tokens each step of a trace keeps, of either distribution."""


class Trace(Sequence[TraceStep]):
    """The steps of one output, in order. Print it for a table; `to_html` shows it as a page."""

    def __init__(
        self,
        steps: Sequence[TraceStep],
        constraint: Constraint | None,
        *,
        title: str,
        prompt: str = "",
        n_tokens: int,
        max_tokens: int,
    ) -> None:
        """Put a trace together.

        Args:
            steps: the steps.
            constraint: what the output was made by; None: free text.
            title: what a page is headed with.
            prompt: what the model was given, as `readable_prompt` writes it.
            n_tokens: size of the vocabulary.
            max_tokens: the budget of the call.
        """
        self.steps = tuple(steps)
        self.title = title
        self.prompt = prompt
        self.n_tokens = n_tokens
        self._constraint = constraint
        self._max_tokens = max_tokens

    @overload
    def __getitem__(self, index: int) -> TraceStep: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[TraceStep]: ...

    def __getitem__(self, index: int | slice) -> TraceStep | Sequence[TraceStep]:
        return self.steps[index]

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[TraceStep]:
        return iter(self.steps)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the automaton: the copy cannot `explain`."""
        return _unpickled, (
            self.steps,
            self.title,
            self.prompt,
            self.n_tokens,
            self._max_tokens,
        )

    def completed(self, steps: Sequence[TraceStep], constraint: Constraint | None) -> Trace:
        """The same with other steps, and what explains them: of a trace from another process."""
        return Trace(
            steps,
            constraint,
            title=self.title,
            prompt=self.prompt,
            n_tokens=self.n_tokens,
            max_tokens=self._max_tokens,
        )

    def __repr__(self) -> str:
        forced = sum(step.is_forced for step in self.steps)
        return f"Trace({len(self.steps)} steps, {forced} forced)"

    def __str__(self) -> str:
        rows = [("step", "token", "allowed", "removed", "instead of", "path")]
        for step in self.steps:
            favourite = step.masked_favourite
            rows.append(
                (
                    str(step.index),
                    "end" if step.is_end else shown(step.token),
                    "forced" if step.is_forced else f"{step.n_allowed:,}",
                    "" if step.removed is None else f"{step.removed:.3f}",
                    "" if favourite is None else shown(favourite.token) or "end",
                    step.path,
                )
            )
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = (
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            for row in rows
        )
        return "\n".join(line.rstrip() for line in lines)

    def explain(self, token: int | str | bytes, step: int | None = None) -> str:
        """Say why a token was barred, or that it was not.

        Args:
            token: a token id, the name of a special token, or text, which need not be one token.
            step: at which step; negative numbers count from the end. None: the first step at which
                the model wanted this very token most and did not get it; else the first at which
                it was among those it liked; else the last.

        Raises:
            OptionError: the trace is of free text, or has been pickled; the token is none; there
                is no such step.
        """
        if self._constraint is None:
            raise OptionError(
                "Only the trace of an output type can explain: in free text nothing is barred, and "
                "a pickled trace has left its output type behind."
            )
        if not isinstance(token, (str, bytes)):
            token = _index("token", token, "Pass a token id, or text as str or bytes.")
        n = len(self.steps)
        if not n:
            raise OptionError("The trace has no steps to explain: its output was cut before any.")
        if step is not None:
            step = _index("step", step, "Pass a step's number, or leave it out.")
            if not -n <= step < n:
                raise OptionError(
                    f"step={step} is out of range: the trace has {n:,} steps, 0 to {n - 1:,}."
                )
        at = self.steps[self._wanted(token) if step is None else step]
        return why_barred(
            self._constraint,
            [earlier.token_id for earlier in self.steps[: at.index]],
            token,
            chosen=at.token_id,
            max_tokens=self._max_tokens,
        )

    def _wanted(self, token: int | str | bytes) -> int:
        """The step at which the model wanted a token that was barred."""
        data: int | bytes
        if isinstance(token, str):
            assert self._constraint is not None
            data = self._constraint.vocabulary.named_tokens.get(token, token.encode())
        else:
            data = token
        for depth in (1, None):  # as its favourite, or at all
            for step in self.steps:
                for top in step.logprob.unmasked_top[:depth]:
                    if not top.is_allowed and data in (top.token_id, top.token):
                        return step.index
        return -1

    def to_html(self) -> str:
        """Return the trace as a page that stands by itself.

        The text, each token coloured by how many were allowed in its place; the details of a token
        under the pointer, or step by step with the arrow keys.
        """
        return page(self)

    def save(self, path: str | Path) -> None:
        """Write the page to a file.

        Raises:
            OptionError: there is no such folder.
        """
        folder = Path(path).parent
        if not folder.is_dir():
            raise OptionError(f"{path} cannot be written: there is no folder {folder}.")
        Path(path).write_text(self.to_html(), encoding="utf-8", errors="backslashreplace")


def _index(name: str, value: Any, fix: str) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)  # NumPy integers too
    except TypeError:
        raise OptionError(f"{name}={value!r} is not a whole number. {fix}") from None


def _unpickled(
    steps: tuple[TraceStep, ...], title: str, prompt: str, n_tokens: int, max_tokens: int
) -> Trace:
    return Trace(steps, None, title=title, prompt=prompt, n_tokens=n_tokens, max_tokens=max_tokens)


def headline(type_name: str | None, model_name: str) -> str:
    """What a page is headed with: what was asked for, in words, and of which model.

    Args:
        type_name: of `OutputType.name`; None: free text.
        model_name: the model's name.
    """
    what = "Free text" if type_name is None else type_name
    opened = _OPENED.fullmatch(what)
    if opened is not None:
        what = _KINDS[opened[1]]
        inside = _literals(opened[2])
        if opened[1] in ("Choice", "Literal") and inside:
            what = f"One of {', '.join(inside)}"
        elif opened[1] == "Regex" and inside:
            what = f"A match of {inside[0]}"
    what = " ".join(what.split())
    return f"{what if len(what) <= _LONGEST else what[: _LONGEST - 1] + '…'}, from {model_name}"


def _literals(text: str) -> list[str]:
    """The values between brackets, if they are literals."""
    try:
        found = ast.literal_eval(f"[{text}]")
    except (SyntaxError, ValueError):
        return []
    inner = found[0] if len(found) == 1 and isinstance(found[0], list) else found
    return [str(value) for value in inner]


def readable_prompt(token_ids: Sequence[int], vocabulary: Vocabulary) -> str:
    """The text of a prompt's tokens, special ones by their names."""
    names = {token_id: name for name, token_id in vocabulary.named_tokens.items()}
    tokens = vocabulary.tokens
    return b"".join(
        tokens[token_id] or names.get(token_id, "").encode() for token_id in token_ids
    ).decode(errors="replace")


class StepRecorder:
    """Records the tokens of one output, for its log probabilities and its trace."""

    wants_forced_logits = True

    def __init__(self, constraint: Constraint | None, vocabulary: Vocabulary, n_top: int) -> None:
        """Begin a record.

        Args:
            constraint: the output type, None for free text.
            vocabulary: the model's.
            n_top: how many of the likeliest tokens to keep for each step.
        """
        self._vocabulary = vocabulary
        texts = vocabulary.tokens if constraint is None else constraint.named.texts
        self._scorer = Scorer(texts, n_top)
        self._places = JsonPlaces() if constraint is not None and is_json(constraint) else None
        self._start = 0
        self._steps: list[TraceStep] = []
        self._unscored: list[int] = []
        self._news: set[int] = set()

    @property
    def steps(self) -> tuple[TraceStep, ...]:
        """The steps so far, the end of the sequence included."""
        return tuple(self._steps)

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...]:
        """Those of the output's tokens so far."""
        return tuple(step.logprob for step in self._steps if not step.is_end)

    def logprobs_of(self, first: int, end: int) -> tuple[TokenLogprob, ...]:
        """Those of some of the output's tokens, by their places in it."""
        return tuple(step.logprob for step in self._steps[first:end])

    def take_news(self) -> tuple[TraceStep, ...]:
        """The steps that are new or have changed since this was last called, by their indices."""
        found = tuple(self._steps[index] for index in sorted(self._news))
        self._news.clear()
        return found

    def record(self, step: Step) -> None:
        """Note a token."""
        token_id = step.token_id
        if step.model_logits is None or step.logits is None:
            self._unscored.append(len(self._steps))
            logprob, n_allowed = self._scorer.forced(token_id, None), 1
        else:
            logprob = self._scorer.chosen(token_id, step.model_logits, step.logits)
            n_allowed = self._vocabulary.size if step.n_allowed is None else step.n_allowed
        path = "$"
        if self._places is not None:
            first = logprob.token[:1]
            path = self._places.path_of(first[0]) if first else self._places.path
        is_end = token_id in self._vocabulary.eos_token_ids
        index = len(self._steps)
        self._news.add(index)
        self._steps.append(TraceStep(index, self._start, path, is_end, n_allowed, logprob))
        if not is_end:
            self._start += len(logprob.token)
            if self._places is not None:
                self._places.feed(logprob.token)

    def forced_logits(self, logits: Logits) -> None:
        """Note the model's own scores of forced tokens, float32 ``[n, vocab]``."""
        scored, self._unscored = self._unscored[: len(logits)], self._unscored[len(logits) :]
        for index, scores in zip(scored, logits, strict=True):
            step = self._steps[index]
            self._news.add(index)
            self._steps[index] = replace(step, logprob=self._scorer.forced(step.token_id, scores))

    def keep(self, n_steps: int) -> None:
        """Forget all but the first ``n_steps``: the output goes on from there."""
        del self._steps[n_steps:]
        self._unscored = [index for index in self._unscored if index < n_steps]
        self._news = {index for index in self._news if index < n_steps}
        self._start = sum(len(step.token) for step in self._steps)
        if self._places is not None:
            self._places = JsonPlaces()
            self._places.feed(b"".join(step.token for step in self._steps))
