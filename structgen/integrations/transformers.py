"""Transformers: a logits processor for ``generate``, and the vocabulary of a tokenizer.

    from structgen.integrations.transformers import StructgenLogitsProcessor, vocabulary

    words = vocabulary(tokenizer, model)
    processor = StructgenLogitsProcessor(structgen.compile(Landmark, words), max_tokens=100)
    model.generate(**inputs, logits_processor=[processor], max_new_tokens=100)

Applies masks to torch tensors. `numpy.Sequences` assigns token ids to outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from structgen.constraint import Constraint
from structgen.errors import ModelError, requires
from structgen.vocabulary import Vocabulary

from .numpy import Sequences, bounds

with requires(
    ModelError,
    "structgen.integrations.transformers needs the packages torch and transformers. Install them",
    "transformers",
):
    import torch


def vocabulary(tokenizer: Any, model: Any = None, size: int | None = None) -> Vocabulary:
    """Return the vocabulary of a tokenizer of Transformers, as wide as a model's logits.

    Args:
        tokenizer: a fast one, as from `AutoTokenizer`, with a ``tokenizer.json``.
        model: the model, whose ``generation_config`` has the ids that end outputs. None: as in
            `Vocabulary.from_tokenizer`.
        size: number of logits; None: from the model's configuration.

    Raises:
        VocabularyError: the tokenizer is of another kind, or no id is known to end a sequence.
    """
    ends = None
    if model is not None:
        if size is None:
            size = model.config.get_text_config().vocab_size
        ends = model.generation_config.eos_token_id
        if isinstance(ends, int):
            ends = [ends]
    return Vocabulary.from_tokenizer(tokenizer, ends or None, size)


class StructgenLogitsProcessor:
    """Rules out every token that a constraint does not allow. Not shared between threads.

    It must be the last of a list. Prompts may be padded on the left; they are not read. It can be
    used for several calls of ``generate``; ids that repeat an earlier prompt and the beginning of
    its output continue that output.

    Args:
        constraint: one for all sequences, or a list with one per prompt.
        max_tokens: token budget of each output, at most ``max_new_tokens``; outputs are then always
            complete. None: ``max_new_tokens`` may cut outputs off.
        in_place: write into the scores that ``generate`` passes, which is faster for large batches
            on the CPU. The result of ``output_logits=True`` is then masked, too.

    Raises:
        OptionError, VocabularyError, BudgetTooSmall: the arguments do not fit; as `Sequences`.
    """

    def __init__(
        self,
        constraint: Constraint[Any] | Sequence[Constraint[Any]],
        *,
        max_tokens: int | None = None,
        in_place: bool = False,
    ) -> None:
        self.sequences = Sequences(constraint, max_tokens)
        self._in_place = in_place

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Return the scores, minus infinity where a token is not allowed.

        Raises:
            OptionError, TokenNotAllowed, VocabularyError, BatchError: as `Sequences.masks`.
        """
        masks = self.sequences.masks(input_ids.detach().cpu().numpy(), scores.shape[-1])
        if not self._in_place:
            return masked(scores, masks)
        mask_rows(scores, range(len(masks)), masks)
        return scores


def masked(scores: Any, words: Any) -> Any:
    """Return a copy of scores ``[rows, width]``, minus infinity where masks do not allow the token.

    Args:
        scores: a tensor of any floating type, on any device. Scores beyond the masks' vocabulary
            are not allowed.
        words: int32 ``[rows, words]``, a NumPy array.

    Cost: on the CPU 45 µs per row of 128,000, 100 µs in batches larger than its caches.
    """
    if scores.device.type == "cpu":
        out = torch.empty_like(scores)
        _mask_here(scores, out, range(len(words)), words)
        return out
    return unpacked_there(scores, words)


def mask_rows(scores: Any, rows: Sequence[int], words: Any) -> None:
    """Mask some rows of scores in place.

    Args:
        scores: ``[n, width]``; as `masked`.
        rows: the indices of the rows.
        words: int32 ``[rows, words]``, a mask for each.

    Cost: on the CPU 40 µs per row of 128,000, 60 µs in batches larger than its caches.
    """
    if scores.device.type == "cpu":
        _mask_here(scores, scores, rows, words)
        return
    index = slice(None) if list(rows) == list(range(len(scores))) else list(rows)
    scores[index] = unpacked_there(scores[index], words)


def _mask_here(scores: Any, out: Any, rows: Sequence[int], words: Any) -> None:
    """Write masked rows of scores that are on the CPU; ``out`` may be the scores."""
    for row, most in zip(rows, bounds(words, scores.shape[-1]), strict=True):
        limit = torch.from_numpy(most).to(scores.dtype)
        torch.minimum(scores[row], limit, out=out[row])


def unpacked_there(scores: Any, words: Any) -> Any:
    """`masked` for scores on another device: masks are sent packed and unpacked there."""
    packed = torch.from_numpy(words).to(scores.device)
    barred = ((packed.unsqueeze(-1) >> torch.arange(32, device=scores.device)) & 1) == 0
    barred = barred.flatten(1)[:, : scores.shape[-1]]
    known = barred.shape[1]
    out = scores.clone()
    out[:, :known].masked_fill_(barred, -torch.inf)
    out[:, known:] = -torch.inf
    return out
