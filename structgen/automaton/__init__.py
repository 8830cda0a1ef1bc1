"""Build byte recognisers lazily from the grammar IR.

Start with `dispatch`: its `build` turns a grammar of any kind into a machine. `core` has the parts
of every machine (leaves, frames, stacks, states), `regex` has regular expressions as automata over
characters, `schema` the logic of JSON Schema, `json` the values of schemas, and `cfg` context-free
grammars. All of them use `bits`, `liveness`, `texts` and `work`. A state is an integer, and
``step`` reads one byte. Knows no token, no vocabulary and no file.
"""

from __future__ import annotations

from .dispatch import Built, build

__all__ = ["Built", "build"]
