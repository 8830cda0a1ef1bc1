"""The interface of a text model: protocols, and how tokens are run through one.

`structgen.models.genai` implements the protocols with ONNX Runtime GenAI; the fake model of the
tests implements them with a table. Generators use only this interface. Knows no runtime.
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
"""The owner whose cached prompts a new sequence may continue from; see `sharing`."""


@contextmanager
def sharing(owner: Hashable) -> Iterator[None]:
    """Let sequences that begin in the block reuse only prefixes that were read for ``owner``.

    Otherwise the time of a prompt would reveal another owner's prompts.
    """
    token = PREFIXES_OF.set(owner)
    try:
        yield
    finally:
        PREFIXES_OF.reset(token)


MASK_INPUT = "structgen.allowed_tokens.one_bit_each"
"""The name of a graph's mask input: uint8 ``[rows, 1, bytes]``, one bit per token, in whole 32-bit
words, the first token in the lowest bit. A short name would be lost, because the runtime keeps no
copy of it."""


Allowed: TypeAlias = npt.NDArray[np.uint32]
"""A mask as written by `structgen.Cursor.fill_mask`: uint32 ``[ceil(vocabulary.size / 32)]``."""


class TokenSequence(Protocol):
    """A sequence of tokens that a model extends. Not thread-safe; close it after use."""

    @property
    def length(self) -> int:
        """The number of tokens so far."""

    @property
    def token_ids(self) -> TokenIds:
        """All tokens so far, int32 ``[1, length]``, read-only."""

    def append(self, token_ids: Sequence[int] | TokenIds) -> None:
        """Append tokens and run the model over them, in one pass."""

    def logits(self) -> Logits:
        """Scores of the next token, float32 ``[1, vocabulary.size]``: a copy, free to change."""

    def recent_logits(self, n: int) -> Logits:
        """Scores after each of the last ``n`` tokens, float32 ``[n, vocabulary.size]``: a copy.

        Tokens that were not part of the last `append` are run again.
        """

    def likeliest(self, token_ids: Sequence[int] | TokenIds, allowed: Allowed) -> int | None:
        """Append tokens, run the model, and let it choose the likeliest allowed token.

        No scores are copied. The chosen token is not appended.

        Returns:
            None where the model cannot: then nothing was done.
        """

    def rewind(self, length: int) -> None:
        """Drop all tokens after the first ``length``."""

    def make_room(self, length: int) -> int:
        """Make room for a number of tokens, up to the allowed length; return `length`.

        It is 0 if there was too little room: then all tokens must be appended again, in passes
        between which others can run. `append` makes room, too, but in one pass.
        """

    def close(self) -> None:
        """Free the sequence's memory. Calling it again does nothing."""


class TokenBatch(Protocol):
    """Several sequences that a model extends together. Not thread-safe; close it after use."""

    @property
    def is_full(self) -> bool:
        """Whether it has no room for another step."""

    def logits(self) -> Logits:
        """Scores of each row's next token, float32 ``[rows, vocabulary.size]``: a copy."""

    def extend(self, token_ids: Sequence[int | None]) -> None:
        """Add a token to each row, except end-of-sequence tokens, and run the model; None: the row
        is done."""

    def likeliest(self, allowed: Sequence[Allowed | int | None]) -> Sequence[int] | None:
        """Add the likeliest allowed token, chosen by the model, to each row.

        No scores are copied.

        Args:
            allowed: for each row a mask, or the only allowed token; None: the row is done.

        Returns:
            The tokens; None where the model cannot: then nothing was done.
        """

    def close(self) -> None:
        """Free the batch's memory. Calling it again does nothing."""


class KnownModel(Protocol):
    """The facts about a text model, wherever it runs."""

    @property
    def name(self) -> str:
        """The name in messages."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The model's vocabulary."""

    @property
    def search_defaults(self) -> Mapping[str, Any]:
        """The model's own search settings, under the runtime's names."""


class Model(KnownModel, Protocol):
    """A loaded text model. Safe to share by threads."""

    @property
    def context_length(self) -> int:
        """The most tokens of a sequence, prompt and output together."""

    @property
    def start_ids(self) -> Sequence[int]:
        """The tokens that start a text prompt; chat templates write their own."""

    @property
    def adapters(self) -> Collection[str]:
        """Names of the loaded adapters."""

    @property
    def adapter_loads(self) -> int:
        """The number of loads so far, because a name may have been another adapter's before."""

    def encode(self, text: str) -> TokenIds:
        """Return the token ids of ``text``, int32 ``[n]``; names of special tokens in it are
        recognised."""

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
            PromptError: the model does not read this kind, or cannot read one of them.
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
            max_length: most tokens that it will have.
            prefix: int32 ``[n]``, tokens that will be appended first. The sequence may have some of
                them already, from an earlier call: ``length`` says how many. None: it is empty.
            adapter: name of the adapter to run with; None: the model as it is.
            media: the pictures and sounds of its prompt. Such a sequence has nothing of an earlier
                call.
        """

    @property
    def pace(self) -> Pace:
        """The cost of passes on its device."""

    @property
    def draft(self) -> DraftModel | None:
        """The draft model, if there is one."""

    @property
    def most_rows(self) -> int:
        """Most rows of a batch; 1 for models that read pictures or sounds."""

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
            The batch; None: these rows cannot run together.
        """


@dataclass(frozen=True, slots=True, eq=False)
class Perceived:
    """Pictures and sounds in the model's form, before they are part of a prompt.

    Attributes:
        token_ids: the tokens of each, int32 ``[n]``, as the runtime needs them; negative ids are
            not in the vocabulary.
        around: the texts before and after each.
        inputs: makes the runtime's tensors for all, which the runtime consumes.
        stand_in: the token that replaces negative ids.
    """

    token_ids: Sequence[TokenIds]
    around: Sequence[tuple[str, str]]
    inputs: Callable[[], Any]
    stand_in: int = 0

    def more(self, token_ids: TokenIds) -> int:
        """Return how many tokens longer a prompt gets by inserting them."""
        return sum(len(self.token_ids[-1 - i]) - 1 for i in token_ids.tolist() if i < 0)

    def in_prompt(self, token_ids: TokenIds) -> tuple[TokenIds, MediaPrompt]:
        """Insert them into a prompt.

        Args:
            token_ids: the tokens of the prompt's text, int32 ``[n]``, with a negative number at
                each place.

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
    """The pictures and sounds of a prompt, which the model runs in its first pass.

    Attributes:
        token_ids: int32 ``[n]``, the tokens up to the last of them, as the runtime needs them.
        inputs: of `Perceived`.
    """

    token_ids: TokenIds
    inputs: Callable[[], Any]


Passes: TypeAlias = Generator[None, None, T]
"""Work that yields before each pass of the model, so that its caller can stop it or let others run;
it returns its result."""


AT_ONCE = 0.02
"""Seconds of work after which others may run: thousands of tokens may be forced at once, and a mask
may take a second."""


_SLICE = threading.local()


def begin_slice() -> None:
    """Restart the clock of this thread's work: its turn begins, or a pass has ended."""
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
    """Run all passes of work and return its result.

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
    """Return ``make`` with a cache: it is called once per model."""
    known: weakref.WeakKeyDictionary[Model, T] = weakref.WeakKeyDictionary()

    @functools.wraps(make)
    def found(model: Model) -> T:
        if model not in known:
            known[model] = make(model)
        return known[model]

    return found


@dataclass(frozen=True, slots=True)
class Pace:
    """The cost of a model's passes on its device, relative to a pass over one token.

    Attributes:
        longest_pass: most tokens in one pass over a prompt; a call cannot be ended within a pass.
        token: the cost of a further token in a pass; it limits the length of guesses.
        row: the cost of a further row in a step.
        rows: most rows run together by default.
        again: most tokens of a batch that are run again in one pass, within which a call cannot be
            ended.
        scores: the cost of copying the scores after a token from the device.
        gather: number of passes that requests wait, while others run, to begin together as a batch.
    """

    longest_pass: int
    token: float
    row: float
    rows: int
    again: int
    scores: float = 0.0
    gather: int = 0

    def of_guess(self, n_tokens: int) -> float:
        """Return the extra cost of a pass that verifies guessed tokens, with the scores before and
        after each."""
        return self.token * n_tokens + self.scores * (n_tokens + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """The options for loading a text model: the keywords of `structgen.load`, described there."""

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
        """Return the options among the arguments of a function."""
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
    """A small model that guesses the tokens of a large one.

    Attributes:
        model: the small model, with the vocabulary of the large one, except for padding.
        cost: the cost of a pass, relative to one of the large model over as many tokens.
        most: most tokens of one guess; None: as many as save time.
        close: frees its sequences if the large model owns it.
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
"""Processors with VNNI: passes over 2, 4 and 8 tokens cost 1.14, 1.52 and 2.31 times one over one;
with Qwen2.5-Coder-0.5B 1.05, 1.44 and 2.19."""

ON_GPU = Pace(longest_pass=1024, token=0.01, row=0.02, rows=32, again=1 << 17, gather=64)
"""H200, such a model in 16 bits: steps of 2.3, 3.0 and 3.6 ms for 1, 8 and 32 rows; a pass over 8
tokens takes 1.07 times as long as one over 1."""

SCORES_ON_GPU = 6e-7
"""`Pace.scores` there, per token of the vocabulary: copying the scores of 151,936 took 0.19 ms of
2.04, and of 128,256 0.14 of 1.24, and again for each place of a guess. Without this, free text of
Qwen2.5-Coder-0.5B took 2.2 times as long with guesses as without."""

ON_MEDIA = Pace(longest_pass=64, token=1.0, row=1.0, rows=1, again=0)
"""Models that read pictures or sounds: the runtime cannot rewind them, so nothing is guessed."""

ON_CUDA_GRAPH = Pace(longest_pass=1024, token=1.0, row=1.0, rows=1, again=0)
"""The same with a CUDA graph, which only passes over one token use: 1.0 ms, and 2.3 for two tokens.
So nothing is guessed, which took 1.07 times as long."""


def passes(token_ids: TokenIds, longest: int) -> Sequence[TokenIds]:
    """Cut tokens into passes of the model, none of them over one token, which would round
    differently.

    A long prompt can be cancelled between them (0.2 s with SmolLM2).

    Args:
        token_ids: int32 ``[n]``.
        longest: `Pace.longest_pass`; the last pass may have one more token.
    """
    n_tokens = len(token_ids)
    if n_tokens < longest + 2:
        return (token_ids,) if n_tokens else ()
    ends = [*range(longest, n_tokens - 1, longest), n_tokens]
    return [token_ids[start:end] for start, end in itertools.pairwise([0, *ends])]


_LONGEST_TOKEN = 100
"""The longest token of a vocabulary counts as at least this many characters."""

_LONGEST_TEXT = 32_768


def most_characters(n_tokens: int | None, longest: int = 0) -> int:
    """Return the most characters of a number of tokens. A longer text need not be encoded, which
    takes a quarter of a second per megabyte of English and three seconds for other languages.

    Args:
        n_tokens: the number of tokens; None: the graph reads text itself, and may cut it.
        longest: characters of the longest token, if known.
    """
    return _LONGEST_TEXT if n_tokens is None else n_tokens * max(longest, _LONGEST_TOKEN)


_MOST_WRITTEN = 16 << 20
"""Most bytes of the text of given tokens; a million tokens of published models have about 5 MB."""


def check_written(sizes: Iterable[int]) -> None:
    """Check that tokens of these sizes are not too long a text: one may have 60,000 bytes.

    Raises:
        OptionError: they are.
    """
    if (size := sum(sizes)) > _MOST_WRITTEN:
        raise OptionError(f"The tokens decode to {size:,} bytes; the limit is {_MOST_WRITTEN:,}.")


def after_start(start_ids: Sequence[int], token_ids: TokenIds) -> TokenIds:
    """Return the tokens of a text, int32 ``[n]``, with `Model.start_ids` once at the beginning."""
    start = list(start_ids)
    if not start or token_ids[: len(start)].tolist() == start:
        return token_ids
    return joined(np.array(start, np.int32), token_ids)


def joined(token_ids: TokenIds, more: Sequence[int] | TokenIds) -> TokenIds:
    """Return two lists of tokens joined, int32 ``[n]``."""
    return np.concatenate([token_ids, np.array(more, np.int32)])


def n_shared(a: TokenIds, b: TokenIds) -> int:
    """Return the length of the common prefix of two sequences of token ids, int32 ``[n]``."""
    n = min(len(a), len(b))
    different = np.flatnonzero(a[:n] != b[:n])
    return int(different[0]) if len(different) else n
