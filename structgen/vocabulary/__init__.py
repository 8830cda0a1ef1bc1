"""What each token id stands for: bytes of text, the end of the sequence, or nothing.

`tokens` (`Vocabulary`), `tokenizer_bytes` (``tokenizer.json`` → bytes), `trie` (all tokens as one
tree in flat arrays), `fewest_tokens` and `rope_tokens` (texts in the fewest tokens), `plans` (the
tokens that finish an output). Knows no grammar.
"""

from __future__ import annotations

from .plans import Plan
from .tokens import Vocabulary, unfinished
from .trie import Trie, view

__all__ = ["Plan", "Trie", "Vocabulary", "unfinished", "view"]
