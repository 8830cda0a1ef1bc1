"""The meaning of each token id: bytes of text, the end of the sequence, or nothing.

`tokens` (`Vocabulary`, texts in the fewest tokens, plans to finish an output), `tokenizer_bytes`
(``tokenizer.json`` → bytes), `trie` (all tokens as one tree in flat arrays). Knows no grammar.
"""

from __future__ import annotations

from .tokenizer_bytes import byte_alphabet
from .tokens import Plan, Vocabulary
from .trie import Trie, view

__all__ = ["Plan", "Trie", "Vocabulary", "byte_alphabet", "view"]
