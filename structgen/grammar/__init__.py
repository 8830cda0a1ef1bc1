"""Source languages lowered to one grammar IR.

`ir` is what every later stage reads; `reading` counts what reading may cost. For each source
language there is a folder or a module: `regex` (Python's and ECMA-262's regular expressions),
`formats` (the names of JSON Schema's ``format``), `json_schema` (a graph of checked nodes) and
`cfg` (Lark, GBNF, EBNF). Knows no automaton, no vocabulary and no Python types.
"""

from __future__ import annotations

from . import ir, reading

__all__ = ["ir", "reading"]
