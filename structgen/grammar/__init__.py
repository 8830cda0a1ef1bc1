"""Lower source languages to one grammar IR.

All later stages read `ir`; `reading` limits the work of reading. Each source language has a folder
or module: `regex` (Python's and ECMA-262's regular expressions), `formats` (JSON Schema's
``format``), `json_schema` (a graph of checked nodes), `cfg` (Lark, GBNF, EBNF and others) and
`quotes` (documents that outputs may quote). Knows no automaton, no vocabulary and no Python types.
"""

from __future__ import annotations

from . import ir, reading

__all__ = ["ir", "reading"]
