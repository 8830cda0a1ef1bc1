"""A trace: what happened at each step of one output, and why.

The run reports each token; the trace asks the output type's automaton later. Knows no models.

`TraceStep` is one step: the token, its place in the output, and the number of allowed tokens.
`why_barred` says why a token was not allowed: which byte was refused, where, and what could follow.
The page is one HTML document that loads nothing.
"""

from __future__ import annotations

import ast
import codecs
import copy
import html
import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, overload

from structgen.automaton.cfg import MARK
from structgen.automaton.core import DEAD
from structgen.automaton.texts import head
from structgen.constraint import Constraint, Cursor
from structgen.errors import OptionError, TokenNotAllowed
from structgen.grammar import ir
from structgen.sampling import Logits, Scorer, TokenLogprob, TopToken
from structgen.vocabulary import Vocabulary

from .alternatives import is_json
from .json_places import ByteReader, JsonReader


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One token of an output.

    Attributes:
        index: the number of the step, from 0.
        start: offset of its first byte in the output.
        path: JSON path of the value that it begins in; ``$``: the whole output, or no JSON. Between
            values and in keys, the path of the object or array. A long path is cut and ends in
            ``…``.
        is_end: whether it is the end of the sequence, which is not part of the output.
        n_allowed: number of tokens that the mask allowed; for free text all, for a forced token 1.
        logprob: the token's log probabilities, and the likeliest tokens.
    """

    index: int
    start: int
    path: str
    is_end: bool
    n_allowed: int
    logprob: TokenLogprob

    @property
    def token_id(self) -> int:
        """The token's id."""
        return self.logprob.token_id

    @property
    def token(self) -> bytes:
        """The token's bytes."""
        return self.logprob.token

    @property
    def is_forced(self) -> bool:
        """Whether it was the only possible token, so that the model did not choose it."""
        return self.logprob.is_forced

    @property
    def removed(self) -> float | None:
        """The probability of all tokens that were not allowed; None: the model did not run."""
        return self.logprob.removed

    @property
    def masked_favourite(self) -> TopToken | None:
        """The model's preferred token, if the mask did not allow it."""
        favourite = self.logprob.unmasked_top[:1]
        return favourite[0] if favourite and not favourite[0].is_allowed else None


_SLICE = 1 << 10
"""Number of bytes that are read at once: their events, each with its path, are in memory."""

_CONTEXT = 24
"""Number of bytes before a place that are shown."""

_LONGEST_PATH = 500
"""Most characters of a step's path: there may be thousands of steps, and names may be long."""

_SHOWN = 10_000
"""Number of bytes of the missing end that are shown."""


def shown(data: bytes) -> str:
    """Return bytes as readable text: as characters, or escapes for bytes that are not text."""
    try:
        return repr(data.decode())
    except UnicodeDecodeError:
        return repr(data)[1:]


def why_barred(
    constraint: Constraint,
    before: Sequence[int],
    token: int | str | bytes,
    *,
    chosen: int,
    max_tokens: int | None = None,
    cursor: Cursor | None = None,
    around: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> str:
    """Say why a token was not allowed at a place, or that it was allowed.

    Args:
        constraint: the output type.
        before: the tokens of the output before the place.
        token: a token id, the name of a special token, or text, which need not be one token.
        chosen: the token that was chosen there.
        max_tokens: the limit on the output's tokens.
        cursor: a cursor at the place, so that the output is not read again.
        around: a context manager in which each token is read.

    Raises:
        OptionError: there is no such token.

    Cost: that of reading the output up to the place, at least its JSON.
    """
    vocabulary = constraint.vocabulary
    tokens = constraint.named.tokens
    output = b"".join(tokens[token_id] for token_id in before)
    where = _where(constraint, output)
    named = token if isinstance(token, str) else None
    if named is not None:
        # The name of a special token means this token, even if its text has other tokens.
        token = vocabulary.named_tokens.get(named, named)
    if isinstance(token, int):
        if not 0 <= token < vocabulary.size:
            raise OptionError(f"token {token} does not exist; there are {vocabulary.size:,} ids.")
        if token in vocabulary.eos_token_ids:
            return _why_no_end(constraint, output, where, cursor)
        data = tokens[token]
        if not data:
            what = f"Token {token}" if named is None else f"The special token {named}"
            return f"{what} has no text, so it is never in an output."
    else:
        data = token.encode() if isinstance(token, str) else token
        if not data:
            raise OptionError("the token is empty. Pass its text or its id.")
    is_text = not constraint.named.several  # otherwise the bytes do not tell the place
    refusal = _refusal(constraint, output, data, where, cursor) if is_text else None
    if refusal is not None:
        return refusal
    name = shown(constraint.named.shown(data))
    token_id = token if isinstance(token, int) else _token_of(constraint, data)
    if token_id == chosen:
        return f"{name} was chosen {where}."
    if token_id is None:
        fits = f"is allowed {where}, but " if is_text else ""
        return f"{name} {fits}is not a single token."
    with around():
        cursor = constraint.start(max_tokens)
    for accepted in before:
        with around():
            cursor.accept(accepted)
    try:
        with around():
            cursor.accept(token_id)
    except TokenNotAllowed as error:
        if not is_text:
            return f"Not {where}: {error}"
        assert max_tokens is not None
        left = max_tokens - len(before)
        return (
            f"{name} is allowed {where}, but with {left:,} of {max_tokens:,} tokens left, the "
            "output could not have been completed after it."
        )
    forced = _forced(constraint, output)
    if len(forced) > len(data):
        return (
            f"{name} is allowed {where}, but it is only part of the forced text, {shown(forced)}. "
            "Forced text is written with the tokens that the tokenizer itself would use, and not "
            "in other ways."
        )
    return f"{name} was allowed {where}, but {shown(constraint.named.texts[chosen])} was chosen."


def _where(constraint: Constraint, output: bytes) -> str:
    """Return the place after ``output``, in words."""
    if not is_json(constraint):
        return f"after {_tail(constraint, output)}" if output else "at the start"
    reader = JsonReader()
    for begin in range(0, len(output), _SLICE):
        reader.feed(output[begin : begin + _SLICE])
    return f"at {reader.path}"


def _tail(constraint: Constraint, output: bytes) -> str:
    """Return the last few characters of a text."""
    return repr(constraint.named.shown(output)[-_CONTEXT:].decode(errors="ignore"))


def _why_no_end(constraint: Constraint, output: bytes, where: str, cursor: Cursor | None) -> str:
    walk = ByteReader(constraint, output, cursor)
    if walk.machine.is_accepting(walk.state):
        return f"The end was allowed {where}."
    shortest = walk.shortest_completion()
    rest = head(shortest, _SHOWN)
    more = "" if len(rest) == len(shortest) else f"…, {len(shortest):,} bytes in total"
    return (
        f"The end was not allowed {where}: the output was not complete. The least that was "
        f"missing is {shown(constraint.named.shown(rest))}{more}."
    )


def _refusal(
    constraint: Constraint, output: bytes, data: bytes, where: str, cursor: Cursor | None
) -> str | None:
    """Describe which byte of ``data`` the automaton refuses after ``output``; None: none."""
    walk = ByteReader(constraint, output, cursor)
    for i, byte in enumerate(data):
        if walk.step(walk.state, byte, bytes([byte])) != DEAD:
            walk.read(bytes([byte]))
            continue
        before = output + data[:i]
        after = f" after {_tail(constraint, before)}" if before else " at the start"
        place = where if i == 0 else _where(constraint, before)
        at = f" {place}" if is_json(constraint) else ""
        named = data[:1] == bytes([MARK])
        which = (
            "" if len(data) == 1 or named else f": {_character(byte)}, its byte {i + 1}, is invalid"
        )
        # A value that must not be repeated is refused at the byte that ends it.
        following = walk.next_bytes(walk.state) - {byte}
        ends = walk.machine.is_accepting(walk.state)
        listed = [_listed(following - {MARK})] if following - {MARK} else []
        listed += ["a special token"] if MARK in following else []
        could = f"expected {' or '.join(listed)}" if listed else ""
        could += (", or the output may end" if could else "the output has to end") if ends else ""
        name = shown(constraint.named.shown(data))
        return f"{name} was not allowed{which}{at}{after}; {could}."
    return None


def _forced(constraint: Constraint, output: bytes) -> bytes:
    """Return the text that must follow ``output``, as far as only one continuation is possible."""
    walk = ByteReader(constraint, output)
    forced = bytearray()
    while (byte := walk.forced_byte()) >= 0 and len(forced) < 200:
        forced.append(byte)
        walk.read(bytes([byte]))
    return bytes(forced)


def _token_of(constraint: Constraint, data: bytes) -> int | None:
    """Return the token with exactly these bytes."""
    trie = constraint.vocabulary.trie
    node = trie.node_of(data)
    return None if node is None else next(iter(trie.ids_at(node)), None)


def _listed(values: Iterable[int]) -> str:
    """Describe a set of bytes: runs of ASCII characters, and all other bytes together."""
    words = []
    for first, last in ir.char_set([(one, one) for one in values if one < 0x80]).ranges:
        if last - first < 2:
            words += [_character(value) for value in range(first, last + 1)]
        else:
            words.append(f"{_character(first)} to {_character(last)}")
    if any(value >= 0x80 for value in values):
        words.append("characters beyond ASCII")
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _character(byte: int) -> str:
    return repr(chr(byte)) if byte < 0x80 else f"0x{byte:02X}"


def _page(trace: Trace) -> str:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    spans = []
    details = []
    for step in trace:
        text = "" if step.is_end else decoder.decode(step.token)
        spans.append(_span(step, text, trace.n_tokens))
        details.append(_details(step))
    n_forced = sum(step.is_forced for step in trace)
    removed = [step.removed for step in trace if step.removed is not None and not step.is_forced]
    overruled = sum(step.masked_favourite is not None for step in trace if not step.is_forced)
    chosen = len(trace) - n_forced
    mean = sum(removed) / max(len(removed), 1)
    facts = [
        (f"{len(trace):,}", "tokens"),
        (f"{n_forced:,}", "forced"),
        (f"{overruled:,} of {chosen:,}", "most likely tokens masked"),
        (f"{mean:.1%}", "of the probability removed, on average"),
    ]
    fields = {
        "TITLE": html.escape(trace.title),
        "PROMPT": html.escape(trace.prompt),
        "FACTS": "".join(f"<div><b>{value}</b><span>{name}</span></div>" for value, name in facts),
        "SPANS": "".join(spans),
        "BARS": "".join(_bar(step) for step in trace),
        "SIZE": f"{trace.n_tokens:,}",
        "DATA": json.dumps({"size": trace.n_tokens, "steps": details}).replace("<", "\\u003c"),
    }
    document = Path(__file__).with_name("trace.html").read_text(encoding="utf-8")
    for name, value in fields.items():
        document = document.replace(f"<!--{name}-->", value)
    return document


def _span(step: TraceStep, text: str, size: int) -> str:
    kind = " f" if step.is_forced else ""
    if step.is_end:
        text, kind = "end", kind + " x"
    elif not text:
        text, kind = "·", kind + " x"  # a character that the next token completes
    # 0 if anything is allowed, 1 if one token is left: a log scale, because numbers differ by a
    # factor of 10,000.
    narrow = 1 - math.log(max(step.n_allowed, 1)) / math.log(max(size, 2))
    shade = f"{max(narrow, 0):.2f}"
    escaped = html.escape(text).replace("\n", '<i class="nl">↵</i>\n')
    return f'<span class="t{kind}" style="--n:{shade}" data-i="{step.index}">{escaped}</span>'


def _bar(step: TraceStep) -> str:
    height = 100 * (step.removed or 0)
    kind = "f" if step.is_forced else ""
    return f'<i class="{kind}" data-i="{step.index}" style="--h:{height:.1f}%"></i>'


def _details(step: TraceStep) -> dict[str, Any]:
    scores = step.logprob
    unmasked = scores.unmasked_logprob
    favourite = step.masked_favourite
    return {
        "token": "end of sequence" if step.is_end else shown(step.token),
        "id": step.token_id,
        "forced": step.is_forced,
        "allowed": step.n_allowed,
        "path": step.path,
        "p": math.exp(scores.logprob),
        "own": None if unmasked is None else math.exp(unmasked),
        "removed": step.removed,
        "favourite": None if favourite is None else _row(favourite),
        "top": [] if step.is_forced else [_row(token) for token in scores.top],
        "ownTop": [_row(token) for token in scores.unmasked_top],
    }


def _row(token: TopToken) -> list[Any]:
    name = shown(token.token) if token.token else f"end or special ({token.token_id})"
    return [name, math.exp(token.logprob), token.is_allowed, token.token_id]


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
"""How many of the likeliest tokens each step of a trace keeps, for both distributions."""


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
        """Make a trace.

        Args:
            steps: the steps.
            constraint: what the output was made by; None: free text.
            title: the heading of the page.
            prompt: the prompt, as written by `readable_prompt`.
            n_tokens: size of the vocabulary.
            max_tokens: the limit on tokens of the call.
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

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the automaton, so the copy cannot `explain`."""
        return {**vars(self), "_constraint": None}

    def completed(self, steps: Sequence[TraceStep], constraint: Constraint | None) -> Trace:
        """Return a trace from another process, with the given steps and the constraint that
        explains them."""
        made = copy.copy(self)
        made.steps, made._constraint = tuple(steps), constraint
        return made

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
        """Explain why the mask did not allow a token, or say that it did.

        Args:
            token: a token id, the name of a special token, or text, which need not be one token.
            step: the number of the step; negative numbers count from the end. None: the first step
                at which the model preferred this token and the mask did not allow it; otherwise the
                first at which it was among the likeliest; otherwise the last.

        Raises:
            OptionError: the trace is of free text, or was pickled; or there is no such token or
                step.
        """
        if self._constraint is None:
            raise OptionError(
                "Only the trace of an output type has explanations: free text has no masks, and a "
                "pickled trace does not contain its output type."
            )
        if not isinstance(token, (str, bytes)):
            token = _index("token", token, "Pass a token id, or text as str or bytes.")
        n = len(self.steps)
        if not n:
            raise OptionError("The trace has no steps to explain: its output has no tokens.")
        if step is not None:
            step = _index("step", step, "Pass the number of a step, or omit it.")
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
        """Return the step at which the model preferred a token that was not allowed."""
        data: int | bytes
        if isinstance(token, str):
            assert self._constraint is not None
            data = self._constraint.vocabulary.named_tokens.get(token, token.encode())
        else:
            data = token
        for depth in (1, None):  # as the most likely, or at all
            for step in self.steps:
                for top in step.logprob.unmasked_top[:depth]:
                    if not top.is_allowed and data in (top.token_id, top.token):
                        return step.index
        return -1

    def to_html(self) -> str:
        """Return the trace as a self-contained page.

        It shows the text with each token coloured by the number of tokens allowed there. Point at a
        token for its details, or use the arrow keys to go step by step.
        """
        return _page(self)

    def _repr_html_(self) -> str:
        """Return the page in a frame, for notebooks."""
        style = "width:100%;height:28em;border:0"
        return f'<iframe style="{style}" srcdoc="{html.escape(self.to_html())}"></iframe>'

    def save(self, path: str | Path) -> None:
        """Write the page to a file.

        Raises:
            OptionError: there is no such folder.
        """
        folder = Path(path).parent
        if not folder.is_dir():
            raise OptionError(f"{path} cannot be written: the folder {folder} does not exist.")
        Path(path).write_text(self.to_html(), encoding="utf-8", errors="backslashreplace")


def _index(name: str, value: Any, fix: str) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)  # NumPy integers too
    except TypeError:
        raise OptionError(f"{name}={value!r} is not a whole number. {fix}") from None


def headline(type_name: str | None, model_name: str) -> str:
    """Return the heading of a page: the requested type, and the model.

    Args:
        type_name: `OutputType.name`; None: free text.
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
    """Return the values between brackets, if they are literals."""
    try:
        found = ast.literal_eval(f"[{text}]")
    except (SyntaxError, ValueError):
        return []
    inner = found[0] if len(found) == 1 and isinstance(found[0], list) else found
    return [str(value) for value in inner]


def readable_prompt(token_ids: Sequence[int], vocabulary: Vocabulary) -> str:
    """Return the text of a prompt's tokens, special ones by their names."""
    names = {token_id: name for name, token_id in vocabulary.named_tokens.items()}
    tokens = vocabulary.tokens
    return b"".join(
        tokens[token_id] or names.get(token_id, "").encode() for token_id in token_ids
    ).decode(errors="replace")


class StepRecorder:
    """Records the tokens of one output, for its log probabilities and its trace."""

    def __init__(self, constraint: Constraint | None, vocabulary: Vocabulary, n_top: int) -> None:
        """Begin a record.

        Args:
            constraint: the output type; None: free text.
            vocabulary: the model's.
            n_top: number of likeliest tokens to keep per step.
        """
        self._vocabulary = vocabulary
        texts = vocabulary.tokens if constraint is None else constraint.named.texts
        self._scorer = Scorer(texts, n_top)
        self._places = JsonReader() if constraint is not None and is_json(constraint) else None
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
        """The log probabilities of the output's tokens so far."""
        return tuple(step.logprob for step in self._steps if not step.is_end)

    def logprobs_of(self, first: int, end: int) -> tuple[TokenLogprob, ...]:
        """Return the log probabilities of some tokens of the output, by their places in it."""
        return tuple(step.logprob for step in self._steps[first:end])

    def take_news(self) -> tuple[TraceStep, ...]:
        """Return the steps that are new or changed since the last call, by index."""
        found = tuple(self._steps[index] for index in sorted(self._news))
        self._news.clear()
        return found

    def record(
        self,
        token_id: int,
        own: Logits | None = None,
        scores: Logits | None = None,
        n_allowed: int | None = None,
    ) -> None:
        """Record a token.

        Args:
            token_id: the token; an end-of-sequence id ends the output and is not a part of it.
            own: float32 ``[vocab]``, the model's own scores, before any processor; None: the token
                was forced, so the model did not run (see `forced_logits`).
            scores: float32 ``[vocab]``, the scores that the token was chosen by, minus infinity
                where masked; None: the token was forced.
            n_allowed: tokens the mask allowed, end-of-sequence ids included; None without a mask.
        """
        if own is None or scores is None:
            self._unscored.append(len(self._steps))
            logprob, n_allowed = self._scorer.forced(token_id, None), 1
        else:
            logprob = self._scorer.chosen(token_id, own, scores)
            n_allowed = self._vocabulary.size if n_allowed is None else n_allowed
        path = "$"
        if self._places is not None:
            first = logprob.token[:1]
            path = self._places.path_of(first[0]) if first else self._places.path
        if len(path) > _LONGEST_PATH:
            path = f"{path[:_LONGEST_PATH]}…"
        is_end = token_id in self._vocabulary.eos_token_ids
        index = len(self._steps)
        self._news.add(index)
        self._steps.append(TraceStep(index, self._start, path, is_end, n_allowed, logprob))
        if not is_end:
            self._start += len(logprob.token)
            if self._places is not None:
                self._places.feed(logprob.token)

    def forced_logits(self, logits: Logits) -> None:
        """Record the model's own scores of ``n`` forced tokens, float32 ``[n, vocab]``.

        The scores are for recorded tokens without scores, in their order: for a run of forced
        tokens all at once, or in a batch one after the other. Forced tokens at the beginning are
        scored by the prompt.
        """
        scored, self._unscored = self._unscored[: len(logits)], self._unscored[len(logits) :]
        for index, scores in zip(scored, logits, strict=True):
            step = self._steps[index]
            self._news.add(index)
            self._steps[index] = replace(step, logprob=self._scorer.forced(step.token_id, scores))

    def keep(self, n_steps: int) -> None:
        """Drop all but the first ``n_steps``; the output continues from there."""
        del self._steps[n_steps:]
        self._unscored = [index for index in self._unscored if index < n_steps]
        self._news = {index for index in self._news if index < n_steps}
        self._start = sum(len(step.token) for step in self._steps)
        if self._places is not None:
            self._places = JsonReader()
            self._places.feed(b"".join(step.token for step in self._steps))
