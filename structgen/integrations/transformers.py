"""Transformers: a logits processor for ``generate``, and the vocabulary of a tokenizer.

    from structgen.integrations.transformers import StructgenLogitsProcessor, vocabulary

    words = vocabulary(tokenizer, model)
    processor = StructgenLogitsProcessor(structgen.compile(Landmark, words), max_tokens=100)
    model.generate(**inputs, logits_processor=[processor], max_new_tokens=100)

Owns what masks are to torch. Which token ids belong to which output is `sequences`' business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from structgen.constraint import Constraint
from structgen.errors import ModelError
from structgen.vocabulary import Vocabulary

from .numpy import bounds
from .sequences import Sequences

try:
    import torch
except ImportError as error:
    raise ModelError(
        "structgen.integrations.transformers needs the packages torch and transformers. "
        "Install them: pip install 'structgen[transformers]'."
    ) from error


def vocabulary(tokenizer: Any, model: Any = None, size: int | None = None) -> Vocabulary:
    """The vocabulary of a tokenizer of Transformers, as wide as a model's logits.

    Args:
        tokenizer: a fast one, such as `AutoTokenizer` gives: with a ``tokenizer.json`` behind it.
        model: the model; its ``generation_config`` says which ids end its outputs. None: as
            `Vocabulary.from_tokenizer`.
        size: how many logits there are; None: as the model's configuration says.

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

    It has to be the last of a list. Prompts may be padded on the left; they are not read. It may be
    used for one call of ``generate`` after the other; ids that repeat an earlier prompt and the
    beginning of its output go on with that output.

    Args:
        constraint: one for all sequences, or a list with one for each prompt.
        max_tokens: token budget of each output, at most ``max_new_tokens``: outputs then are always
            whole. None: an output that ``max_new_tokens`` cuts is not.

    Raises:
        OptionError, VocabularyError, BudgetTooSmall: the arguments do not fit; as `Sequences`.
    """

    def __init__(
        self,
        constraint: Constraint[Any] | Sequence[Constraint[Any]],
        *,
        max_tokens: int | None = None,
    ) -> None:
        self.sequences = Sequences(constraint, max_tokens)

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """The scores, minus infinity where a token is not allowed.

        Raises:
            OptionError, TokenNotAllowed, VocabularyError, BatchError: as `Sequences.masks`.
        """
        ids = input_ids.detach().cpu().numpy()
        return masked(scores, self.sequences.masks(ids, scores.shape[-1]))


def masked(scores: Any, words: Any) -> Any:
    """A copy of scores ``[rows, width]``, minus infinity where masks do not allow the token.

    Args:
        scores: a tensor of any floating type, on any device. Those beyond the masks' vocabulary
            are not allowed.
        words: int32 ``[rows, words]``, a NumPy array.

    Cost: 40 µs a row of 128,000 on the CPU.
    """
    width = scores.shape[-1]
    if scores.device.type == "cpu":
        out = torch.empty_like(scores)
        for row, most in enumerate(bounds(words, width)):
            limit = torch.from_numpy(most).to(scores.dtype)
            torch.minimum(scores[row], limit, out=out[row])
        return out
    return unpacked_there(scores, words)


def unpacked_there(scores: Any, words: Any) -> Any:
    """`masked` for scores on another device: the masks go over packed, and are unpacked there."""
    packed = torch.from_numpy(words).to(scores.device)
    barred = ((packed.unsqueeze(-1) >> torch.arange(32, device=scores.device)) & 1) == 0
    barred = barred.flatten(1)[:, : scores.shape[-1]]
    known = barred.shape[1]
    out = scores.clone()
    out[:, :known].masked_fill_(barred, -torch.inf)
    out[:, known:] = -torch.inf
    return out
