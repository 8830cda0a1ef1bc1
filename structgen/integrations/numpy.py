"""Masks over logits in NumPy for other decoding loops, and the cursors of their batches.

Applies a mask to scores outside of structgen's own loop. Knows no runtime.

Before each token, logits processors of other engines get all token ids so far, prompt and output,
but not when a call begins or ends, or what its prompt was. `Sequences` infers this from the ids.
The first ids are a prompt, padded or not, and are not read. If each row of ids is the last one with
one more token, the outputs continue. If ids begin with the same prompt but are not longer, the
output went back, as a single sequence does when its draft is refused; in a batch that happens only
when beams change places. All other ids are a new prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from structgen.constraint import Constraint, Cursor, fill_masks
from structgen.errors import OptionError, TokenNotAllowed, UnsupportedFeature, VocabularyError
from structgen.grammar import ir
from structgen.vocabulary import Vocabulary

Scores: TypeAlias = "npt.NDArray[np.floating[Any]]"
"""Logits, of any floating type."""

# Row b: the bounds of eight neighbouring tokens whose mask bits are the byte b.
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_BOUNDS = np.where(_BITS == 1, np.float32(np.inf), np.float32(-np.inf))


def apply_mask(logits: Scores, mask: npt.NDArray[Any]) -> Scores:
    """Set the logits of all tokens that a mask does not allow to minus infinity, in place.

    Args:
        logits: ``[V]`` or ``[batch, V]``, of any floating type. Logits beyond the mask's
            vocabulary, as in models wider than their tokenizer, are not allowed.
        mask: int32 or uint32 ``[words]`` or ``[batch, words]``, from `Cursor.fill_mask` or
            `structgen.fill_masks`.

    Returns:
        ``logits``.

    Raises:
        ValueError: shapes or types do not fit.

    Cost: 40 µs a row of 128,000 tokens.
    """
    if mask.dtype not in (np.int32, np.uint32):
        raise ValueError(f"a mask must be int32 or uint32, got {mask.dtype}.")
    if not np.issubdtype(logits.dtype, np.floating):
        raise ValueError(f"logits must be floating-point numbers, got {logits.dtype}.")
    width, n_bits = logits.shape[-1], 32 * mask.shape[-1]
    if logits.ndim not in (1, 2) or logits.shape[:-1] != mask.shape[:-1] or width <= n_bits - 32:
        raise ValueError(
            f"logits {list(logits.shape)} and a mask {list(mask.shape)} do not match: a mask must "
            "have as many rows as the logits, and no more bits than each row has logits."
        )
    rows = logits.reshape(-1, width) if logits.ndim == 1 else logits
    for row, most in zip(rows, bounds(mask.reshape(len(rows), -1), width), strict=True):
        np.minimum(row, most, out=row)
    return logits


def bounds(mask: npt.NDArray[Any], width: int) -> Iterator[npt.NDArray[np.float32]]:
    """Yield each logit's upper bound: infinity if a mask allows it, otherwise minus infinity.

    The minima of logits and bounds are the masked logits. Eight bounds are looked up at a time,
    which takes the same time for all masks; unpacking bits and selecting takes 5 to 10 times as
    long.

    Args:
        mask: int32 or uint32 ``[batch, words]``.
        width: number of logits; those beyond the mask are not allowed.

    Yields:
        float32 ``[width]`` for each row, always in the same array, which stays in the processor's
        caches.
    """
    rows = np.ascontiguousarray(mask).view(np.uint8)
    n_bytes = rows.shape[1]
    room = np.empty((max(n_bytes, (width + 7) // 8), 8), np.float32)
    room[n_bytes:] = -np.inf
    found, known = room.reshape(-1)[:width], room[:n_bytes]
    before = None
    for row in rows:
        # Sequences of a batch are often at the same place in the same type.
        if before is None or not np.array_equal(row, before):
            np.take(_BOUNDS, row, axis=0, out=known, mode="clip")
        before = row
        yield found


def masked(logits: Scores, cursor: Cursor) -> Scores:
    """Copy ``logits``, ``[V]``, with minus infinity for all that the cursor forbids.

    Raises:
        ValueError: there are fewer logits than the vocabulary has tokens.
    """
    mask = np.empty((cursor.vocabulary.size + 31) // 32, np.uint32)
    cursor.fill_mask(mask)
    if logits.shape[-1] < cursor.vocabulary.size:
        raise ValueError(
            f"{logits.shape[-1]:,} logits are fewer than the vocabulary's "
            f"{cursor.vocabulary.size:,} tokens. Create the vocabulary with their width: "
            "Vocabulary.from_tokenizer_json(path, size=...)."
        )
    out: Scores = np.array(logits)
    apply_mask(out, mask)
    return out


Ids = npt.NDArray[np.integer[Any]]


def check_temperatures(grammar: ir.Grammar) -> None:
    """Raise for a grammar whose rules have a ``temperature=``: other engines would ignore it.

    Raises:
        UnsupportedFeature: it has such rules.
    """
    if ir.has_temperatures(grammar):
        raise UnsupportedFeature(
            "temperature= of a rule is not supported when another engine samples.",
            fix="Remove it from the grammar and set the engine's temperature, or use Generator.",
        )


def end_mask(vocabulary: Vocabulary) -> npt.NDArray[np.int32]:
    """Return the mask that allows only ends of sequence."""
    ids = np.arange((vocabulary.size + 31) // 32 * 32)
    return np.packbits(np.isin(ids, vocabulary.eos_token_ids), bitorder="little").view(np.int32)


class Sequences:
    """The sequences of calls, one call after the other. Not shared between threads.

    Args:
        constraints: one for all rows, or one per prompt, each for the consecutive rows of its
            prompt.
        max_tokens: as in `Constraint.start`.

    Raises:
        OptionError: there are no constraints, or an item is something else.
        VocabularyError: they have different vocabularies.
        BudgetTooSmall: ``max_tokens`` is too small.
        UnsupportedFeature: rules of a grammar have a temperature.
    """

    def __init__(
        self, constraints: Constraint[Any] | Sequence[Constraint[Any]], max_tokens: int | None
    ) -> None:
        given = [constraints] if isinstance(constraints, Constraint) else list(constraints)
        for constraint in given:
            if not isinstance(constraint, Constraint):
                raise OptionError(
                    f"a logits processor takes a constraint, from structgen.compile(output_type, "
                    f"vocabulary), or a list of them; got {type(constraint).__name__}."
                )
            if constraint.vocabulary != given[0].vocabulary:
                raise VocabularyError(
                    "all constraints of a batch must have the same vocabulary: the first has "
                    f"{given[0].vocabulary!r}, another has {constraint.vocabulary!r}."
                )
            check_temperatures(constraint.output.grammar)
            constraint.start(max_tokens)  # raises now what would fail later
        if not given:
            raise OptionError("a logits processor needs at least one constraint; got none.")
        self._constraints = given
        self._max_tokens = max_tokens
        self.vocabulary: Vocabulary = given[0].vocabulary
        self._end = end_mask(self.vocabulary)
        self._cursors: list[Cursor] = []
        self._taken: list[int] = []  # by row: number of output tokens that its cursor has accepted
        self._ids: Ids | None = None
        self._n_prompt = 0

    @property
    def cursors(self) -> tuple[Cursor, ...]:
        """The cursor of each row, after the last ids."""
        return tuple(self._cursors)

    def masks(self, ids: Ids, width: int) -> npt.NDArray[np.int32]:
        """Return the masks of the next tokens.

        A row whose output has ended allows only ends of sequence: an engine that continues other
        rows writes padding there anyway.

        Args:
            ids: ``[rows, length]``, the prompt and the output so far.
            width: number of logits.

        Returns:
            int32 ``[rows, ceil(vocabulary.size / 32)]``.

        Raises:
            VocabularyError: there are fewer logits than the vocabulary has tokens.
            OptionError: the rows do not match the constraints, or have changed places.
            TokenNotAllowed: a token was chosen that the mask did not allow.
            BatchError: a mask could not be made within the limits.
        """
        if width < self.vocabulary.size:
            raise VocabularyError(
                f"the model has {width:,} logits, but the vocabulary has {self.vocabulary.size:,} "
                "tokens. Create the vocabulary with the width of the logits: size=..."
            )
        if self._continues(ids):
            self._follow(ids)
        else:
            self._begin(ids)
        self._ids = ids.copy()
        out = np.empty((len(ids), len(self._end)), np.int32)
        fill_masks([None if one.is_finished else one for one in self._cursors], out)
        for row, cursor in enumerate(self._cursors):
            if cursor.is_finished:
                out[row] = self._end
        return out

    def _continues(self, ids: Ids) -> bool:
        """Return whether these are the sequences of the last call."""
        last, n = self._ids, self._n_prompt
        return (
            last is not None
            and len(ids) == len(last)
            and n < ids.shape[1] <= last.shape[1] + 1
            and np.array_equal(ids[:, :n], last[:, :n])
        )

    def _begin(self, ids: Ids) -> None:
        each, rest = divmod(len(ids), len(self._constraints))
        if rest or not each:
            raise OptionError(
                f"{len(self._constraints)} constraints for a batch of {len(ids)} sequences: pass "
                "one for all, or one for each prompt."
            )
        self._n_prompt = ids.shape[1]
        repeated = [one for one in self._constraints for _ in range(each)]
        self._cursors = [one.start(self._max_tokens) for one in repeated]
        self._taken = [0] * len(ids)

    def _follow(self, ids: Ids) -> None:
        last, n = self._ids, self._n_prompt
        assert last is not None
        common = min(ids.shape[1], last.shape[1])
        if ids.shape[1] < last.shape[1] + 1 or not np.array_equal(ids[:, n:common], last[:, n:]):
            if len(ids) > 1:
                raise OptionError(
                    "the sequences of the batch changed places, as in a beam search, which is not "
                    "supported. Call generate with num_beams=1; do_sample=True and "
                    "num_return_sequences=n give several outputs."
                )
            differ = np.flatnonzero(ids[0, n:common] != last[0, n:common])
            kept = int(differ[0]) if len(differ) else common - n
            if kept < self._taken[0]:
                self._cursors[0].rollback(self._taken[0] - kept)
                self._taken[0] = kept
        for row, cursor in enumerate(self._cursors):
            for token in ids[row, n + self._taken[row] :].tolist():
                if cursor.is_finished:
                    break  # the rest is padding
                try:
                    cursor.accept(token)
                except TokenNotAllowed as error:
                    raise TokenNotAllowed(
                        f"sequence {row}: {error} The token was chosen without the mask: by a "
                        "beam search (pass num_beams=1), by prompt lookup, or by a logits "
                        "processor after this one, which must be the last.",
                        token_id=token,
                    ) from error
                self._taken[row] += 1
