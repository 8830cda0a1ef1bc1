"""Bytes into tokens as the model's own tokenizer would write them, after tokens that stand.

It owns the question of what comes after given tokens; the tokenizer itself belongs to the model.

A model has only seen text as its tokenizer writes it, and that depends on what stands before:
``1`` may join the digits before it, a space the word after it. So the tokenizer is given the last
few tokens' text together with the new bytes, and what it answers counts where it begins with
exactly those tokens. Where it does not, because a token that the model chose could have been
longer or the first of them begins inside a word, less of the text before is given, in the end none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from structgen.sampling import TokenIds
from structgen.vocabulary import Vocabulary, unfinished

# Tokens of context: tokenizers cut text into words before anything else, and a word that is still
# going on after so many tokens is no word of any language.
_CONTEXT = 8


@final
class Speller:
    """Spells bytes in tokens. Keeps no state; safe to share."""

    def __init__(self, vocabulary: Vocabulary, encode: Callable[[str], Any]) -> None:
        """Spell in ``vocabulary``, as ``encode`` does: text to token ids, special ones
        included.
        """
        self._vocabulary = vocabulary
        self._encode = encode

    def __call__(self, before: TokenIds, data: bytes) -> list[int]:
        """Return token ids whose bytes concatenate to exactly ``data``.

        Args:
            before: int32 ``[n]``, the tokens that stand before it.
            data: UTF-8, perhaps cut inside its first or last character.

        Cost: some 5 µs for a name and its punctuation.
        """
        cut = unfinished(data)
        if cut:
            end = len(data) - cut
            return [*self(before, data[:end]), *self._vocabulary.encode_bytes(data[end:])]
        tokens = self._vocabulary.tokens
        context = [int(token) for token in before[-_CONTEXT:]]
        for start in range(len(context) + 1):
            kept = context[start:]
            if not all(tokens[token] for token in kept):
                continue  # text on either side of a special token is encoded apart
            try:
                text = (b"".join(tokens[token] for token in kept) + data).decode()
            except UnicodeDecodeError:
                continue
            found = [int(token) for token in self._encode(text)]
            rest = found[len(kept) :]
            if found[: len(kept)] == kept and b"".join(tokens[t] for t in rest) == data:
                return rest
        return self._vocabulary.encode_bytes(data)
