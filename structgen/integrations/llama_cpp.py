"""llama-cpp-python: a logits processor for ``Llama``, and the vocabulary of its model.

    from structgen.integrations.llama_cpp import StructgenLogitsProcessor, vocabulary

    processor = StructgenLogitsProcessor(structgen.compile(Landmark, vocabulary(llama)))
    llama(prompt, logits_processor=LogitsProcessorList([processor]),
          stopping_criteria=StoppingCriteriaList([processor.stop]))

Reads llama.cpp's tokens, and handles errors in its callbacks. `numpy.Sequences` assigns token ids
to outputs.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from structgen.constraint import Constraint
from structgen.errors import ModelError, requires
from structgen.vocabulary import Vocabulary

from .numpy import Sequences, apply_mask

_CONTROL, _USER_DEFINED = 1 << 3, 1 << 4
"""Flags of ``llama_token_attr``."""


def vocabulary(llama: Any) -> Vocabulary:
    """Return the vocabulary of a ``llama_cpp.Llama``.

    Args:
        llama: the loaded model. All ids at which llama.cpp ends a generation are ends of sequence.

    Raises:
        ModelError: llama-cpp-python is not installed.
        VocabularyError: no id ends a sequence.

    Cost: 2 µs a token.
    """
    with requires(
        ModelError,
        "structgen.integrations.llama_cpp needs the package llama-cpp-python. Install it",
        "llama-cpp",
    ):
        import llama_cpp
    words = llama_cpp.llama_model_get_vocab(llama.model)
    size = llama_cpp.llama_vocab_n_tokens(words)
    tokens, ends, special, named = [], [], [], {}
    for token in range(size):
        tokens.append(_piece(llama_cpp, words, token))
        kind = llama_cpp.llama_vocab_get_attr(words, token)
        if llama_cpp.llama_vocab_is_eog(words, token):
            ends.append(token)
        if llama_cpp.llama_vocab_is_control(words, token):
            special.append(token)
        if kind & (_CONTROL | _USER_DEFINED):
            name = llama_cpp.llama_vocab_get_text(words, token)
            named[name.decode("utf-8", "replace")] = token
    return Vocabulary.from_tokens(tokens, ends, size, special, named)


def _piece(llama_cpp: Any, words: Any, token: int) -> bytes:
    """Return the bytes of a token; nothing if it is special."""
    room = 64
    while True:
        buffer = ctypes.create_string_buffer(room)
        n = llama_cpp.llama_token_to_piece(words, token, buffer, room, 0, False)
        if n >= 0:
            return buffer.raw[:n]
        room = -n


class StructgenLogitsProcessor:
    """Rules out every token that a constraint does not allow. For one ``Llama`` at a time.

    It must be the last of a list. llama.cpp ignores exceptions of its callbacks, so also pass
    `stop` as a stopping criterion: it raises them, and ends the call with the output. Without it, a
    failed call just ends early.

    Args:
        constraint: the constraint.
        max_tokens: token budget, at most ``max_tokens`` of the call; the output is then always
            complete.

    Raises:
        OptionError, BudgetTooSmall: the arguments do not fit.
    """

    def __init__(self, constraint: Constraint[Any], *, max_tokens: int | None = None) -> None:
        self.sequences = Sequences(constraint, max_tokens)
        self.error: Exception | None = None

    def __call__(
        self, input_ids: npt.NDArray[np.intc], scores: npt.NDArray[np.single]
    ) -> npt.NDArray[np.single]:
        """Return the scores, minus infinity where a token is not allowed. An exception is kept in
        ``error``, and then only the end is allowed."""
        self.error = None
        out = np.array(scores, np.single)
        try:
            masks = self.sequences.masks(np.asarray(input_ids)[None], len(out))
        except Exception as error:  # nobody would see it: see `stop`
            self.error = error
            out[:] = -np.inf
            out[list(self.sequences.vocabulary.eos_token_ids)] = 0.0
            return out
        return apply_mask(out, masks[0])

    def stop(self, input_ids: npt.NDArray[np.intc], scores: npt.NDArray[np.single]) -> bool:
        """Serve as ``stopping_criteria``: never stop, but raise the exception of the processor."""
        if self.error is not None:
            raise self.error
        return False
