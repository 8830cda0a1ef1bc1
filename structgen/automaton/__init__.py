"""Build byte recognisers lazily from the grammar IR.

Start with `dispatch`: its `build` turns a grammar of any kind into a machine. `core` has what all
machines consist of (leaves, frames, stacks, states), `regex` regular expressions as automata over
characters, `schema` the logic of JSON Schema, `json` the values of schemas, `cfg` context-free
grammars. `bits`, `liveness`, `texts` and `work` serve all of them. A state is an integer, and
``step`` reads one byte. Knows no token, no vocabulary and no file.
"""

from __future__ import annotations

from .dispatch import Built, build

__all__ = ["Built", "build"]
