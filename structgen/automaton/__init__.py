"""Byte recognisers built lazily from the grammar IR.

`dispatch.build` is the way in: a grammar in, a machine out, whatever the kind of grammar. `core`
holds what all machines are made of (leaves, frames, stacks, states), `regex` regular expressions as
automata over characters, `schema` the logic of JSON Schemas, `json` their values, `cfg`
context-free grammars; `bits`, `liveness`, `texts` and
`work` serve all of them. A state is an integer; ``step`` leads from it by one byte. Knows no token,
no vocabulary and no file.
"""

from __future__ import annotations

from .dispatch import Built, build

__all__ = ["Built", "build"]
