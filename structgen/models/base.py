"""The interface of a text model: protocols, and how tokens are run through one.

`structgen.models.genai` implements the protocols on ONNX Runtime GenAI; the fake model of the tests
implements them on a table. Generators use only this: how a model is loaded, what a pass may hold,
and what prompts begin with and share. Knows no runtime.
"""

from __future__ import annotations

import functools
import itertools
import os
import threading
import time
import weakref
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from structgen.errors import OptionError
from structgen.media import Media
from structgen.models.loading import read_options
from structgen.options import Flag
from structgen.sampling import Logits, TokenIds
from structgen.vocabulary import Vocabulary

T = TypeVar("T")

PREFIXES_OF: ContextVar[Hashable] = ContextVar("prefixes_of", default=None)
"""Whose prompts a sequence that begins now may continue from; see `sharing`."""


@contextmanager
def sharing(owner: Hashable) -> Iterator[None]:
    """Let sequences that begin inside reuse only prefixes that were read for ``owner``.

    Otherwise the time that a prompt takes would reveal to one owner what another has asked.
    """
    token = PREFIXES_OF.set(owner)
    try:
        yield
    finally:
        PREFIXES_OF.reset(token)


MASK_INPUT = "structgen.allowed_tokens.one_bit_each"
"""What a graph calls the mask that it adds to its scores: uint8 ``[rows, 1, bytes]``, of each token
one bit, in whole words of 32, the first in the lowest bit. A short name would be lost: the runtime
keeps no copy of it."""


Allowed: TypeAlias = npt.NDArray[np.uint32]
"""A mask as `structgen.Cursor.fill_mask` writes it: uint32 ``[ceil(vocabulary.size / 32)]``."""


class TokenSequence(Protocol):
    """One sequence of tokens being extended by a model. Not thread-safe; close it after use."""

    @property
    def length(self) -> int:
        """Tokens so far."""

    @property
    def token_ids(self) -> TokenIds:
        """int32 ``[1, length]``, read-only: all tokens so far."""

    def append(self, token_ids: Sequence[int] | TokenIds) -> None:
        """Append tokens and run the model over them, in one pass."""

    def logits(self) -> Logits:
        """Scores of the next token, float32 ``[1, vocabulary.size]``: a copy, free to change."""

    def recent_logits(self, n: int) -> Logits:
        """Scores after each of the last ``n`` tokens, float32 ``[n, vocabulary.size]``: a copy.

        They were part of the latest `append`, or are run again.
        """

    def likeliest(self, token_ids: Sequence[int] | TokenIds, allowed: Allowed) -> int | None:
        """Append tokens, run the model, and have it choose the likeliest token that may follow.

        No scores are copied. The chosen token is not appended.

        Returns:
            None where the model cannot: then nothing was done.
        """

    def rewind(self, length: int) -> None:
        """Forget all tokens after the first ``length``."""

    def make_room(self, length: int) -> int:
        """Have room for that many tokens, as far as it may have that many; return its `length`.

        That is 0 where there was too little room: then all is to be appended again, in passes that
        others may have theirs between. `append` makes room, too, in one pass.
        """

    def close(self) -> None:
        """Free the sequence's memory. A second call does nothing."""


class TokenBatch(Protocol):
    """Several sequences being extended together. Not thread-safe; close it after use."""

    @property
    def is_full(self) -> bool:
        """Whether it has no room for another step."""

    def logits(self) -> Logits:
        """Scores of each row's next token, float32 ``[rows, vocabulary.size]``: a copy."""

    def extend(self, token_ids: Sequence[int | None]) -> None:
        """Add a token to each row, none that ends outputs, and run the model; None for rows that
        are done."""

    def likeliest(self, allowed: Sequence[Allowed | int | None]) -> Sequence[int] | None:
        """Add to each row the likeliest token that may follow, chosen by the model.

        No scores are copied.

        Args:
            allowed: for each row a mask, or the one token that may follow; None: it is done.

        Returns:
            The tokens; None where the model cannot: then nothing was done.
        """

    def close(self) -> None:
        """Free its memory. A second call does nothing."""


class KnownModel(Protocol):
    """The facts about a text model, wherever it runs."""

    @property
    def name(self) -> str:
        """What to call it in messages."""

    @property
    def vocabulary(self) -> Vocabulary:
        """Its tokens."""

    @property
    def search_defaults(self) -> Mapping[str, Any]:
        """The model's own search settings, under the runtime's names."""


class Model(KnownModel, Protocol):
    """A loaded text model. Safe to share by threads."""

    @property
    def context_length(self) -> int:
        """Most tokens a sequence can have, prompt and output together."""

    @property
    def start_ids(self) -> Sequence[int]:
        """The tokens that a prompt begins with which is a text; chat templates write their own."""

    @property
    def adapters(self) -> Collection[str]:
        """Names of the adapters that are loaded."""

    @property
    def adapter_loads(self) -> int:
        """How many have been loaded so far: a name may have been another's before."""

    def encode(self, text: str) -> TokenIds:
        """Token ids of ``text``, int32 ``[n]``; special tokens spelt out in it are recognised."""

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        """Return the text of a chat, up to the beginning of the assistant's answer.

        Args:
            messages: the chat.
            tools: tools for the template, each as in OpenAI's API.
        """

    def perceive(self, media: Sequence[Media]) -> Perceived:
        """Read pictures and sounds.

        Raises:
            PromptError: the model takes none of this kind, or cannot read one of them.
        """

    def start(
        self,
        max_length: int,
        *,
        prefix: TokenIds | None = None,
        adapter: str | None = None,
        media: MediaPrompt | None = None,
    ) -> TokenSequence:
        """Begin a sequence.

        Args:
            max_length: most tokens it will hold.
            prefix: int32 ``[n]``, tokens that will be appended first. The sequence may hold some
                of them already, from a call before: its ``length`` says how many. None: it is
                empty.
            adapter: name of the adapter to run with; None: the model as it is.
            media: the pictures and sounds of its prompt. Such a sequence holds nothing of a call
                before.
        """

    @property
    def pace(self) -> Pace:
        """What passes cost on its device."""

    @property
    def draft(self) -> DraftModel | None:
        """The draft model, if it was loaded with one."""

    @property
    def most_rows(self) -> int:
        """Most rows of a batch; 1 where it takes pictures or sounds."""

    def start_batch(
        self,
        rows: Sequence[TokenIds],
        room: int,
        *,
        adapter: str | None = None,
        allowed: Sequence[Allowed | int | None] | None = None,
    ) -> TokenBatch | None:
        """Begin a batch and run the model over its first tokens.

        Args:
            rows: int32 ``[n]`` each, of any lengths; at most `most_rows`.
            room: most tokens that any row will have.
            adapter: name of the adapter to run with; None: the model as it is.
            allowed: the argument of the first `TokenBatch.likeliest`, if that comes next.

        Returns:
            None where these rows cannot be run together.
        """


@dataclass(frozen=True, slots=True, eq=False)
class Perceived:
    """Pictures and sounds as a model reads them, before they are part of a prompt.

    Attributes:
        token_ids: the tokens of each, int32 ``[n]``, as the runtime needs them; negative ones are
            not in the vocabulary.
        around: the text that comes before each, and after it.
        inputs: makes the runtime's tensors for all of them; the runtime consumes these.
        stand_in: the token that replaces negative ones.
    """

    token_ids: Sequence[TokenIds]
    around: Sequence[tuple[str, str]]
    inputs: Callable[[], Any]
    stand_in: int = 0

    def more(self, token_ids: TokenIds) -> int:
        """Return how many tokens a prompt gets more with those that its text, as below, has."""
        return sum(len(self.token_ids[-1 - i]) - 1 for i in token_ids.tolist() if i < 0)

    def in_prompt(self, token_ids: TokenIds) -> tuple[TokenIds, MediaPrompt]:
        """Insert them into a prompt.

        Args:
            token_ids: the tokens of its text, int32 ``[n]``, with a negative number at each place.

        Returns:
            The tokens, int32 ``[n]``, all in the vocabulary; and the media that the model runs.
        """
        places = np.flatnonzero(token_ids < 0)
        pieces = []
        start = 0
        for place, own in zip(places, self.token_ids, strict=True):
            pieces += [token_ids[start:place], own]
            start = place + 1
        first = np.concatenate(pieces).astype(np.int32)
        shown = np.where(first < 0, np.int32(self.stand_in), first)
        return np.concatenate([shown, token_ids[start:]]), MediaPrompt(first, self.inputs)


@dataclass(frozen=True, slots=True, eq=False)
class MediaPrompt:
    """A prompt's pictures and sounds, as the model runs them: in one pass, which begins it.

    Attributes:
        token_ids: int32 ``[n]``, the tokens up to the last of them, as the runtime wants them.
        inputs: of `Perceived`.
    """

    token_ids: TokenIds
    inputs: Callable[[], Any]


Passes: TypeAlias = Generator[None, None, T]
"""Work that yields before each pass of the model, so that its caller may stop or let others
have a pass; what it returns is its result."""


AT_ONCE = 0.02
"""Seconds of work after which others may have a pass: thousands of tokens may be forced at once,
and a mask may take a second."""


_SLICE = threading.local()


def begin_slice() -> None:
    """This thread's work counts from now: it has its turn, or a pass of the model has ended."""
    _SLICE.end = time.perf_counter() + AT_ONCE


def is_due() -> bool:
    """Return whether this thread has worked long enough to yield; if so, restart the clock."""
    if time.perf_counter() <= getattr(_SLICE, "end", 0.0):
        return False
    begin_slice()
    return True


class GivenUp(Exception):
    """The caller has given up."""


def run_passes(work: Passes[T], give_up: Callable[[], bool] | None = None) -> T:
    """Run all passes of some work, and return its result.

    Args:
        work: what to run.
        give_up: called before each pass.

    Raises:
        GivenUp: ``give_up`` returned true.
    """
    try:
        while True:
            try:
                next(work)
            except StopIteration as end:
                found: T = end.value
                return found
            if give_up is not None and give_up():
                raise GivenUp
    finally:
        work.close()


def per_model(make: Callable[[Model], T]) -> Callable[[Model], T]:
    """``make``, which is asked once for each model."""
    known: weakref.WeakKeyDictionary[Model, T] = weakref.WeakKeyDictionary()

    @functools.wraps(make)
    def found(model: Model) -> T:
        if model not in known:
            known[model] = make(model)
        return known[model]

    return found


@dataclass(frozen=True, slots=True)
class Pace:
    """The cost of a model's passes on its device, in passes over one token.

    Attributes:
        longest_pass: most tokens in one pass over a prompt: nothing can end a call within one.
        token: the cost of a further token in a pass; it limits the length of guesses.
        row: the cost of a further row in a step.
        rows: most rows run together unless asked otherwise.
        again: most tokens of a batch that are run again in one pass, which nothing can end.
        scores: the cost of copying the scores after a token from the device.
        gather: passes for which requests wait, while others run, to begin as one batch.
    """

    longest_pass: int
    token: float
    row: float
    rows: int
    again: int
    scores: float = 0.0
    gather: int = 0

    def of_guess(self, n_tokens: int) -> float:
        """Return the extra cost of a pass that verifies that many guessed tokens, by the scores
        before and after each."""
        return self.token * n_tokens + self.scores * (n_tokens + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """How a text model is loaded: the keywords of `structgen.load`, where they are explained."""

    providers: Sequence[str] | None = None
    session_options: Mapping[str, Any] | None = None
    threads: int | None = None
    prefix_cache: int | None = None
    prefix_cache_n: int | None = None
    deterministic: bool = False
    chat_template: str | os.PathLike[str] | None = None
    draft_model: Any = None
    draft_tokens: int | None = None

    def __post_init__(self) -> None:
        Flag()("deterministic", self.deterministic)

    @classmethod
    def among(cls, given: Mapping[str, Any]) -> LoadOptions:
        """Return those among the arguments of a function."""
        return cls(**{one.name: given[one.name] for one in fields(cls)})

    @property
    def target(self) -> str:
        """The device to convert weights for: see `structgen.models.convert`.

        Raises:
            OptionError, ModelError: the device or an option does not exist. Read it before a
                download, so that the error comes at once.
        """
        names, _, _ = read_options(self.providers, self.session_options, self.threads)
        return "cuda" if names and names[0] == "cuda" else "cpu"


@dataclass(frozen=True, slots=True)
class DraftModel:
    """A small model that guesses what a large one writes.

    Attributes:
        model: the small model. Except for padding, its vocabulary is that of the large one.
        cost: the cost of a pass, in passes of the large one over as many tokens.
        most: most tokens of one guess; None: as many as are worth it.
        close: frees its sequences, if the large model owns it.
    """

    model: Model
    cost: float
    most: int | None = None
    close: Callable[[], object] | None = None


ON_CPU = Pace(longest_pass=64, token=0.3, row=0.33, rows=8, again=256)
"""SmolLM2-135M in 4 bits on 2 cores: steps of 8.5, 10.7, 16.6 and 27.9 ms for 1, 2, 4 and 8 rows;
2.6 ms a token in longer passes (with AVX2 alone 0.4 to 0.5 of a pass over one). Passes over more
than 64 tokens are no faster, and give the same scores to the bit."""

ON_INT8_CPU = replace(ON_CPU, token=0.2)
"""Processors with VNNI: passes over 2, 4 and 8 tokens cost 1.14, 1.52 and 2.31 of one over one; of
Qwen2.5-Coder-0.5B 1.05, 1.44 and 2.19."""

ON_GPU = Pace(longest_pass=1024, token=0.01, row=0.02, rows=32, again=1 << 17, gather=64)
"""H200, such a model in 16 bits: steps of 2.3, 3.0 and 3.6 ms for 1, 8 and 32 rows; a pass over 8
tokens takes 1.07 times as long as one over 1."""

SCORES_ON_GPU = 6e-7
"""`Pace.scores` there, for each token of the vocabulary: copying the scores of 151,936 took 0.19 ms
of 2.04, and of 128,256 0.14 of 1.24, once and again for each place of a guess. Without this, free
text of Qwen2.5-Coder-0.5B took 2.2 times as long with guesses as without."""

ON_MEDIA = Pace(longest_pass=64, token=1.0, row=1.0, rows=1, again=0)
"""Models that read pictures or sounds: the runtime cannot rewind them, so nothing is guessed."""

ON_CUDA_GRAPH = Pace(longest_pass=1024, token=1.0, row=1.0, rows=1, again=0)
"""The same as a CUDA graph, which only passes over one token are: 1.0 ms, and 2.3 for one over two.
So nothing is guessed, which took 1.07 times as long."""


def passes(token_ids: TokenIds, longest: int) -> Sequence[TokenIds]:
    """Cut tokens into passes of the model, none over one token: that would round differently.

    A long prompt can be given up between them (0.2 s with SmolLM2).

    Args:
        token_ids: int32 ``[n]``.
        longest: of `Pace.longest_pass`; the last pass may have one more.
    """
    n_tokens = len(token_ids)
    if n_tokens < longest + 2:
        return (token_ids,) if n_tokens else ()
    ends = [*range(longest, n_tokens - 1, longest), n_tokens]
    return [token_ids[start:end] for start, end in itertools.pairwise([0, *ends])]


_LONGEST_TOKEN = 100
"""Most characters of a token, where its vocabulary has none that is longer."""

_LONGEST_TEXT = 32_768


def most_characters(n_tokens: int | None, longest: int = 0) -> int:
    """Most characters that that many tokens can hold. A longer text need not be encoded, which
    takes a quarter of a second for each megabyte of English, and three seconds for others.

    Args:
        n_tokens: how many; None: the graph reads text itself, and may cut it or not.
        longest: characters of the longest token, if known.
    """
    return _LONGEST_TEXT if n_tokens is None else n_tokens * max(longest, _LONGEST_TOKEN)


_MOST_WRITTEN = 16 << 20
"""Most bytes of the text of tokens that somebody gives; a million of a published model's have 5."""


def check_written(sizes: Iterable[int]) -> None:
    """Check that tokens of such sizes are a text that may be written: one may have 60,000 bytes.

    Raises:
        OptionError: they are too long a text.
    """
    if (size := sum(sizes)) > _MOST_WRITTEN:
        raise OptionError(f"The tokens decode to {size:,} bytes; the limit is {_MOST_WRITTEN:,}.")


def after_start(start_ids: Sequence[int], token_ids: TokenIds) -> TokenIds:
    """Return the tokens of a text, int32 ``[n]``, after a model's `Model.start_ids`, put once."""
    start = list(start_ids)
    if not start or token_ids[: len(start)].tolist() == start:
        return token_ids
    return joined(np.array(start, np.int32), token_ids)


def joined(token_ids: TokenIds, more: Sequence[int] | TokenIds) -> TokenIds:
    """Return some tokens and more after them, int32 ``[n]``."""
    return np.concatenate([token_ids, np.array(more, np.int32)])


def n_shared(a: TokenIds, b: TokenIds) -> int:
    """Length of the longest common beginning of two sequences of token ids, int32 ``[n]``."""
    n = min(len(a), len(b))
    different = np.flatnonzero(a[:n] != b[:n])
    return int(different[0]) if len(different) else n
