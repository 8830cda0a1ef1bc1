"""Sequences of a text model on ONNX Runtime GenAI: reused by later calls, or run side by side.

Here is what the runtime keeps of a sequence, how it is rewound and grown, which sequence a new
prompt may continue, and how rows of different lengths share a batch. Knows no output types,
sampling or loading. The caller passes functions that make the runtime's objects, so the runtime is
not imported here.

A `LiveSequence` is a sequence of the runtime with its key-value cache. A `TextSequence` is one
call's use of it. After the call the live sequence goes back to its `SequencePool`. The next call
whose prompt has the same beginning rewinds it and runs only the rest.

What may be reused. A pass over one token rounds differently from passes over more, which agree to
the bit however the tokens are divided (`docs/engine.md`). So a sequence is reused only up to its
first token that was run by itself: usually the prompt and the text forced right after it. The
scores are then exactly those of a call that starts without a cache, and an output does not depend
on earlier calls.

If the graph has a mask (`structgen.models.base.MASK_INPUT`), the runtime chooses the likeliest
token itself and no scores are copied. It writes that token at the end of its sequence and runs it
with the next choice. If another token must follow, the written one is removed first, which costs
nothing.

A `TextBatch` runs several at once. What the runtime does, measured with 0.18 and relied on here:

* Tokens can be appended to a batch once; after that each step adds one token to every row. The
  token is the likeliest of what ``set_logits`` left, so scores of one finite entry write any token.
* Rows are padded *on the right* with the padding token, which is then neither attended to nor kept:
  the scores of a shorter row are those of the row alone, except for rounding. `pads_exactly` tests
  it.
* A row whose end-of-sequence token was written continues with padding. So rows get one only when
  they are done, and cost a step as long as the batch has them.
* A batch can only be rewound to its beginning: to grow, all of it is run again. So rows can neither
  get forced text in one pass nor share a prefix.
* Its ``Engine`` runs requests of any lengths side by side, but shows no scores and takes no mask.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from structgen.errors import ModelError, OptionError
from structgen.models.base import ON_CPU, Allowed, MediaPrompt, n_shared
from structgen.sampling import Logits, TokenIds

# Room for new tokens that a sequence starts with; past it everything is run once more. Long enough
# that few outputs get there, and 0.1 s to set up with SmolLM2 where its whole context takes 0.77.
_SPARE_TOKENS = 1024

# Capacities are multiples of this, so that a sequence kept from a short call serves a longer one.
_CAPACITY_STEP = 256

# A sequence that grows turn by turn, as a chat does, outgrows each sequence that has just room
# enough, and is then run from its first token. So the next one has this many times the room.
_GROWTH = 2


MaskBytes = npt.NDArray[np.uint8]


def all_allowed(width: int, rows: int = 1) -> MaskBytes:
    """Return a mask that allows everything, uint8 ``[rows, 1, bytes]``."""
    return np.full((rows, 1, 4 * -(-width // 32)), 0xFF, np.uint8)


@final
class LiveSequence:
    """A sequence of the runtime. Used by one `TextSequence` at a time.

    Attributes:
        key: the adapter; another call can use the sequence only with the same key.
        owner: the owner of its prompts: only this owner's calls may continue them.
        least: the fewest tokens to make room for.
        new: makes a sequence of the runtime with room for a number of tokens, which reads its mask
            from an array in each pass.
        context_length: the most tokens it can have.
        longest_pass: most tokens in one pass.
        deterministic: whether no pass runs over one token; the token before is then run again.
        width: number of scores per token.
        length: number of tokens so far.
        capacity: number of tokens that its key-value cache has room for.
        ids: the tokens, int32 ``[1, capacity]``.
        held: number of tokens in the runtime's sequence, which is rewound when it next runs.
        valid: how many of these, from the first, still belong to the sequence.
        exact: how many of these, from the first, were run together with others.
        last_pass: number of tokens of the runtime's last pass, whose scores it has.
        chosen: the token that the runtime has written after them.
        mask: the mask, if the graph has one.
        is_running: whether a pass has begun and not ended properly.
        rewinds: whether the runtime can rewind; otherwise it starts again.
        media: the pictures and sounds of its first tokens, which run in one pass.
    """

    def __init__(
        self,
        new: Callable[[int, MaskBytes | None], Any],
        *,
        context_length: int,
        width: int,
        longest_pass: int = ON_CPU.longest_pass,
        deterministic: bool = False,
        has_mask: bool = False,
        key: Hashable = None,
        least: int = 0,
        owner: Hashable = None,
        rewinds: bool = True,
        media: MediaPrompt | None = None,
    ) -> None:
        """Start empty. See above; ``has_mask``: whether the graph has a mask input."""
        self.key = key
        self.owner = owner
        self.rewinds = rewinds
        self.media = media
        self.least = least
        self.new = new
        self.context_length = context_length
        self.longest_pass = longest_pass
        self.deterministic = deterministic
        self.width = width
        self.length = self.capacity = 0
        self.ids: TokenIds = np.empty((1, 0), np.int32)
        self.held = self.valid = self.exact = self.last_pass = 0
        self.chosen: int | None = None
        self.mask = all_allowed(width) if has_mask else None
        self.generator: Any = None
        self.is_running = False

    @property
    def reusable_ids(self) -> TokenIds:
        """The tokens that another call may continue, int32 ``[n]``."""
        return self.ids[0, : min(self.exact, self.valid)]

    @property
    def is_sound(self) -> bool:
        """Whether another call can use it: no pass failed, and it can be rewound."""
        return self.generator is not None and not self.is_running and self.rewinds

    def free(self) -> None:
        """Free the key-value cache."""
        self.generator = None

    def run(self, n_scored: int, allowed: Allowed | None = None) -> None:
        """Make sure that the runtime has all tokens, and the scores after the last ``n_scored``.

        Args:
            n_scored: at least 1.
            allowed: the mask, if the graph has one; None: everything is allowed.
        """
        if not self.length:
            raise ValueError("the sequence is empty: append the prompt first")
        first = min(self.valid, self.length)
        n_new = self.length - first
        rewinds = self.held > first or n_scored > (n_new or self.last_pass)
        if not rewinds and not n_new:
            return
        rewinds = rewinds or (self.deterministic and n_new == 1)
        self.is_running = True
        if self.mask is not None:
            self.mask[0, 0] = 0xFF if allowed is None else allowed.view(np.uint8)
        if self.chosen is not None:
            self.generator.rewind_to(self.held)
            self.chosen = None
        if rewinds:
            # Scores do not outlive a rewind: the wanted ones are run again, at least two tokens.
            first = max(min(first, self.length - max(n_scored, 2)), 0) if self.rewinds else 0
            if self.rewinds:
                self.generator.rewind_to(first)
            elif self.held:
                self.generator = None  # frees its memory first, or both exist
                self.generator = self.new(self.capacity, self.mask)
        self.exact = min(self.exact, first)
        if self.exact == first and (self.length > first + 1 or not first):
            self.exact = self.length
        if self.media is not None and not first:
            first = self._run_media(n_scored)
        # All scores of a pass are in memory together: many only on request.
        while self.length - first > self.longest_pass + max(n_scored, 2):
            self.generator.append_tokens(self.ids[0, first : first + self.longest_pass])
            first += self.longest_pass
        if first < self.length:
            self.generator.append_tokens(self.ids[0, first : self.length])
            self.last_pass = self.length - first
        self.held = self.valid = self.length
        self.is_running = False

    def _run_media(self, n_scored: int) -> int:
        """Run the first tokens with their pictures and sounds; return their number."""
        assert self.media is not None
        token_ids = self.media.token_ids
        self.generator.set_inputs(self.media.inputs())
        if self.length - len(token_ids) < max(n_scored, 2):  # then there is one pass
            rest = self.ids[0, len(token_ids) : self.length]
            token_ids = np.concatenate([token_ids, rest])
        self.generator.append_tokens(token_ids)
        self.last_pass = len(token_ids)
        return len(token_ids)

    def grow(self, needed: int, room: int) -> None:
        """Replace the runtime's sequence by an empty one with room for more."""
        capacity = min(max(room, needed), max(needed + _SPARE_TOKENS, _GROWTH * self.capacity))
        capacity = max(capacity, self.least)
        capacity = -(-capacity // _CAPACITY_STEP) * _CAPACITY_STEP
        capacity = min(capacity, self.context_length)
        ids = np.empty((1, capacity), np.int32)
        ids[:, : self.length] = self.ids[:, : self.length]
        self.generator = None  # frees its memory first, or both exist
        self.held = self.valid = self.exact = self.last_pass = 0
        self.chosen = None
        self.generator = self.new(capacity, self.mask)
        self.ids, self.capacity = ids, capacity


@final
class TextSequence:
    """A sequence of a `TextModel`, in use by one call. Not thread-safe; close it after use."""

    def __init__(
        self,
        live: LiveSequence,
        max_length: int,
        close: Callable[[LiveSequence], None],
        expected: int = 0,
    ) -> None:
        """Use ``live`` for at most ``max_length`` tokens; ``close`` gets it at the end.

        ``expected``: tokens that are known to come; there is room for them from the first pass.
        """
        self._live: LiveSequence | None = live
        self._max_length = max_length
        self._close = close
        self._expected = expected

    @property
    def length(self) -> int:
        """The number of tokens so far."""
        return self._open.length

    @property
    def token_ids(self) -> TokenIds:
        """All tokens so far, int32 ``[1, length]``, read-only."""
        live = self._open
        view = live.ids[:, : live.length]
        view.flags.writeable = False
        return view

    def append(self, token_ids: Sequence[int] | TokenIds) -> None:
        """Append tokens and run the model over them in one pass.

        Raises:
            ModelError: they do not fit, or the runtime cannot run them.
            ValueError: the sequence is closed.

        Cost: 9 ms for one token, about 2.5 ms for each further one (SmolLM2-135M, 2 cores).
        """
        self._append(token_ids)

    def logits(self) -> Logits:
        """Return the scores of the next token, float32 ``[1, vocabulary.size]``: a copy.

        Raises:
            ModelError: the scores are not as wide as the vocabulary.
            ValueError: the sequence is empty or closed.
        """
        live = self._open
        live.run(1)
        return last_logits(live.generator, live.width)

    def recent_logits(self, n: int) -> Logits:
        """Return the scores after each of the last ``n`` tokens, float32 ``[n, vocabulary.size]``.

        Raises:
            ModelError: the model keeps only the last token's scores.
            ValueError: there are fewer than ``n`` tokens, or the sequence is closed.

        Cost: a copy of the scores of the latest pass; tokens before it are run again.
        """
        live = self._open
        if not 1 <= n <= live.length:
            raise ValueError(f"{n} scores of a sequence of {live.length} tokens")
        live.run(n)
        logits = live.generator.get_output("logits")[0]
        if len(logits) < n:
            raise ModelError(
                "This model keeps scores only for its last token, so forced tokens cannot be "
                "scored. Pass forced=False."
            )
        return np.array(logits[-n:], np.float32)

    def likeliest(self, token_ids: Sequence[int] | TokenIds, allowed: Allowed) -> int | None:
        """Append tokens, run the model, and return the likeliest token of ``allowed``.

        Returns:
            The token; None: the graph has no mask, or there is no room for the token, and nothing
            was done.

        Raises:
            ModelError, ValueError: as `append`.
        """
        live = self._open
        end = live.length + len(token_ids)
        # The runtime writes the chosen token, so it needs room for it.
        if live.mask is None or end >= min(self._max_length, live.context_length):
            return None
        if end >= live.capacity:
            live.grow(max(end + 1, self._expected), self._max_length)
        is_chosen = len(token_ids) == 1 and token_ids[0] == live.chosen and not live.deterministic
        if is_chosen and live.held == live.valid == live.length:
            live.ids[0, live.length] = token_ids[0]  # the runtime has written it already
            live.length = end
            live.mask[0, 0] = allowed.view(np.uint8)
        else:
            self._append(token_ids, allowed)
        live.is_running = True
        live.generator.generate_next_token()
        chosen = live.chosen = int(live.generator.get_next_tokens()[0])
        live.held = live.valid = end
        live.last_pass = 0  # its scores are masked
        live.is_running = False
        return chosen

    def rewind(self, length: int) -> None:
        """Drop all tokens after the first ``length``; costs nothing by itself.

        The next `logits` runs the last two kept tokens again (1.2 steps).

        Raises:
            ValueError: there are fewer than ``length`` tokens, or the sequence is closed.
        """
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot rewind {self.length} tokens to {length}")
        self._open.length = length

    def make_room(self, length: int) -> int:
        """Make room for a number of tokens; see `TokenSequence`."""
        live = self._open
        length = min(length, self._max_length, live.context_length)
        if length > live.capacity:
            self._expected = max(length, self._expected)
            if live.length:
                live.grow(length, self._max_length)
                live.length = 0
        return live.length

    def close(self) -> None:
        """Give the sequence back, to be kept or freed. Calling it again does nothing."""
        live, self._live = self._live, None
        if live is not None:
            self._close(live)

    def _append(self, token_ids: Sequence[int] | TokenIds, allowed: Allowed | None = None) -> None:
        live = self._open
        end = live.length + len(token_ids)
        if end > self._max_length:
            raise ModelError(
                f"{len(token_ids):,} more tokens do not fit: the sequence has {live.length:,} of "
                f"at most {self._max_length:,} tokens."
            )
        if not len(token_ids):
            return
        # Not earlier: a call that is cancelled before it runs costs the next one nothing.
        live.valid = min(live.valid, live.length)
        if end > live.capacity:
            live.grow(max(end, self._expected), self._max_length)
        live.ids[0, live.length : end] = token_ids
        live.length = end
        if live.media is None or end >= len(live.media.token_ids):
            live.run(1, allowed)

    @property
    def _open(self) -> LiveSequence:
        if self._live is None:
            raise ValueError("the sequence is closed")
        return self._live


@dataclass(frozen=True, slots=True)
class PoolInfo:
    """The statistics of a `SequencePool`.

    Attributes:
        sequences: number of sequences that are kept and not in use.
        bytes: bytes of their key-value caches, estimated for float32.
        calls: number of sequences requested with a prompt.
        hits: how many of these continued a kept one.
        reused_tokens: number of prompt tokens that were not run again.
    """

    sequences: int
    bytes: int
    calls: int
    hits: int
    reused_tokens: int


@final
class SequencePool:
    """Live sequences kept for later calls. Thread-safe: each is used by one call or none.

    The least recently used ones are freed if all caches take more than `max_bytes`, or if there are
    too many.
    """

    def __init__(self, bytes_per_token: int, max_bytes: int, most: int | None = None) -> None:
        """Start empty.

        Args:
            bytes_per_token: bytes per token of capacity in a key-value cache.
            max_bytes: see `max_bytes`.
            most: most sequences that are kept; None: as many as fit.

        Raises:
            OptionError: a limit is not a whole number from 0.
        """
        if most is not None and (type(most) is not int or most < 0):
            raise OptionError(
                f"prefix_cache_n={most!r} must be an int of at least 0.", option="prefix_cache_n"
            )
        self.max_bytes = max_bytes
        self._most = most
        self._bytes_per_token = bytes_per_token
        self._kept: list[LiveSequence] = []  # the most recently used last
        self._lock = threading.Lock()
        self._calls = self._hits = self._reused = 0

    @property
    def max_bytes(self) -> int:
        """Most bytes of the caches of all kept sequences; 0: none is kept.

        Raises:
            OptionError: it is not set to a whole number from 0.
        """
        return self._max_bytes

    @max_bytes.setter
    def max_bytes(self, value: int) -> None:
        if type(value) is not int or value < 0:
            raise OptionError(
                f"prefix_cache={value!r} must be an int of at least 0 (bytes).",
                option="prefix_cache",
            )
        self._max_bytes = value

    def take(
        self, prefix: TokenIds, key: Hashable = None, room: int = 0, owner: Hashable = None
    ) -> tuple[LiveSequence | None, int]:
        """Return a pooled sequence, rewound to the part that it shares with ``prefix``.

        Args:
            prefix: int32 ``[n]``, the prompt.
            key: see `LiveSequence`.
            room: most tokens of the call. The sequence has as much room as a new one, because
                growing would run its tokens again, which rounds differently.
            owner: see `LiveSequence`.

        Returns:
            A sequence that shares half of its tokens or half of the prompt; with less in common, it
            is more useful for the calls that it came from. Otherwise, if the pool is full, the
            least recently used one that is large enough, emptied, because its cache can be reused.
            Otherwise None. Also the least room for a new sequence: more than the call needs, if a
            pooled one has the prefix but not the room, because the call is likely to continue
            again.
        """
        needed = max(len(prefix), min(room, len(prefix) + _SPARE_TOKENS))
        with self._lock:
            self._calls += 1
            best, shared, least = None, 0, 0
            for live in self._kept:
                if live.key != key or live.owner != owner:
                    continue
                held = live.reusable_ids
                n = n_shared(held, prefix)
                if live.capacity < needed:
                    if 2 * n >= len(held):
                        least = max(least, _GROWTH * live.capacity)
                elif n > shared and 2 * n >= min(len(held), len(prefix)):
                    best, shared = live, n
            if best is None:
                return self._recycled(max(needed, least), key, owner), least
            self._kept.remove(best)
            # At least two tokens are run: see the module's docstring.
            shared = max(min(shared, len(prefix) - 2), 0)
            self._hits += 1
            self._reused += shared
        best.length = shared
        return best, 0

    def give(self, live: LiveSequence) -> None:
        """Keep or free a sequence that is no longer in use."""
        if not live.is_sound or not len(live.reusable_ids):
            live.free()
            return
        with self._lock:
            self._kept.append(live)
        self.shrink()

    def shrink(self) -> None:
        """Free the least recently used sequences until the limits hold."""
        with self._lock:
            while self._kept and not self._has_room(0, 0):
                self._kept.pop(0).free()

    def clear(self, key: Hashable = None) -> None:
        """Free the pooled sequences. Sequences in use return to the pool later.

        Args:
            key: free only those with this key; None: all.
        """
        with self._lock:
            gone = [live for live in self._kept if key is None or live.key == key]
            self._kept = [live for live in self._kept if key is not None and live.key != key]
        for live in gone:
            live.free()

    @property
    def info(self) -> PoolInfo:
        """The statistics of the pool."""
        with self._lock:
            return PoolInfo(len(self._kept), self._n_bytes(), self._calls, self._hits, self._reused)

    def _recycled(self, n_tokens: int, key: Hashable, owner: Hashable) -> LiveSequence | None:
        """Empty the least recently used sequence for reuse, if the next returned one would evict
        it."""
        for live in self._kept:
            n_tokens = min(n_tokens, live.context_length)
            if self._has_room(1, n_tokens):
                return None
            if live.key == key and live.capacity >= n_tokens:
                self._kept.remove(live)
                live.length = 0
                live.owner = owner
                return live
        return None

    def _has_room(self, sequences: int, n_tokens: int) -> bool:
        """Return whether further sequences, with ``n_tokens`` in total, fit the limits."""
        if self._most is not None and len(self._kept) + sequences > self._most:
            return False
        return self._n_bytes() + self._bytes_per_token * n_tokens <= self.max_bytes

    def _n_bytes(self) -> int:
        return self._bytes_per_token * sum(live.capacity for live in self._kept)


MOST_ROWS = 32
"""Most rows of the runtime, which refuses more."""


@final
class TextBatch:
    """Rows of tokens that are extended together. Used by one thread; close it after use."""

    def __init__(
        self,
        new: Callable[[int, MaskBytes | None, int], Any],
        rows: Sequence[TokenIds],
        *,
        room: int,
        context_length: int,
        width: int,
        pad_token_id: int,
        has_mask: bool = False,
        allowed: Sequence[Allowed | int | None] | None = None,
    ) -> None:
        """Run the model over ``rows``.

        Args:
            new: makes a batch of the runtime with room for that many tokens in that many rows,
                which reads its masks from an array in each pass.
            rows: int32 ``[n]`` each, at least two.
            room: most tokens that any row will have.
            context_length: most tokens of a sequence.
            width: number of scores per token.
            pad_token_id: what rows are padded with: no token, which `load` sets in the runtime.
            has_mask: whether the graph has a mask.
            allowed: see `structgen.models.base.Model.start_batch`.
        """
        longest = max(map(len, rows))
        padded = np.full((len(rows), longest), pad_token_id, np.int32)
        for into, row in zip(padded, rows, strict=True):
            into[: len(row)] = row
        self._width = width
        self._masks = all_allowed(width, len(rows)) if has_mask else None
        if allowed is not None and self._masks is not None:
            self._allow(allowed, self._masks)
        most = max(min(longest + _SPARE_TOKENS, room, context_length), longest)
        self._left = most - longest
        self._generator: Any = new(most, self._masks, len(rows))
        self._generator.append_tokens(padded)
        self._only = np.full((len(rows), width), -np.inf, np.float32)

    @property
    def is_full(self) -> bool:
        """Whether it has no room for another step."""
        return not self._left

    def logits(self) -> Logits:
        """Return the scores of each row's next token, float32 ``[rows, width]``: a copy."""
        return last_logits(self._generator, self._width)

    def extend(self, token_ids: Sequence[int | None]) -> None:
        """Add a token to each row, after its scores were read, and run the model.

        Args:
            token_ids: a token for each row; None: the row is done, and gets any token.
        """
        wanted = [token or 0 for token in token_ids]
        at = np.arange(len(wanted)), wanted
        self._only[at] = 0
        self._generator.set_logits(self._only)
        self._generator.generate_next_token()
        self._only[at] = -np.inf
        self._left -= 1

    def likeliest(self, allowed: Sequence[Allowed | int | None]) -> list[int] | None:
        """Add the likeliest allowed token to each row; see `TokenBatch`."""
        if self._masks is None or self.is_full:
            return None
        self._allow(allowed, self._masks)
        self._generator.generate_next_token()
        tokens: list[int] = self._generator.get_next_tokens().tolist()
        self._left -= 1
        self._masks[:] = 0xFF
        return tokens

    def _allow(self, allowed: Sequence[Allowed | int | None], masks: MaskBytes) -> None:
        """Write the masks of a pass."""
        for mask, one in zip(masks[:, 0], allowed, strict=True):
            if isinstance(one, np.ndarray):
                mask[:] = one.view(np.uint8)
                continue
            token = one or 0
            mask[:] = 0
            mask[token >> 3] = 1 << (token & 7)

    def close(self) -> None:
        """Free the batch's memory. Calling it again does nothing."""
        self._generator = None


def last_logits(generator: Any, width: int) -> Logits:
    """Return the scores of the next token of each row, float32 ``[rows, width]``: a copy.

    Raises:
        ModelError: the scores have another width.
    """
    logits: Logits = generator.get_logits()[:, -1, :]
    if logits.shape[1] != width:
        raise ModelError(
            f"The model's logits have a width of {logits.shape[1]:,}, but its vocabulary has "
            f"{width:,} ids. Correct vocab_size in genai_config.json, or pass a vocabulary "
            f"made with size={logits.shape[1]}."
        )
    return logits


def pads_exactly(
    start: Callable[[Sequence[TokenIds]], TextBatch], alone: Callable[[TokenIds], Logits]
) -> bool:
    """Return whether rows of different lengths have the same scores as alone, tested with two short
    ones.

    Args:
        start: begins a batch.
        alone: returns the scores after one row by itself, float32 ``[1, width]``.
    """
    long, short = np.array([5, 6, 7, 8, 9], np.int32), np.array([9, 8, 7], np.int32)
    six = np.array([6], np.int32)
    rows = [long, short, np.concatenate([long, six]), np.concatenate([short, six])]
    try:
        batch = start([long, short])
        first = batch.logits()
        batch.extend([6, 6])
        scores = np.concatenate([first, batch.logits()])
        batch.close()
        expected = np.concatenate([alone(row) for row in rows])
    except Exception:
        return False
    # A pass over one token rounds differently from one over more; a wrong one is off by far more.
    close = np.abs(scores - expected).mean(axis=1) < 0.05 * np.abs(expected).mean()
    return bool(close.all())
