"""Compute token masks: an automaton's state × a vocabulary's trie → packed bits.

In reading order: `token_masks` (`Mask`, `MaskEngine`), `frame_walks` (frames through the trie),
`leaf_walks` (leaves through the trie), `walk_store` (the caches of walks), `node_sets` (one or many
nodes of the trie), `reach` (tokens that a token budget rules out), `named_tokens` (special tokens
in grammars), `grouping` (NumPy helpers); `text` walks strings by whole characters, `cfg` walks
grammars. Knows no model and no sequence.
"""

from __future__ import annotations

from .leaf_walks import cache_info
from .named_tokens import NamedTokens
from .reach import FAR, Reach
from .token_masks import Mask, MaskEngine

__all__ = ["FAR", "Mask", "MaskEngine", "NamedTokens", "Reach", "cache_info"]
