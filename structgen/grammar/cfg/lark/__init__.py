"""Lark's notation: read with the ``lark`` package, and every mistake told at its place.

`loader` is the entry, and reads texts, within the bounds of `sizes`; the others say what is wrong
with one that Lark refuses:
`syntax` and `statements` where it is not well-formed, `mistakes` with `imports`, `literals` and
`alternatives` what is wrong with statements that are, `repair` what else is.
"""

from __future__ import annotations

from . import literals, statements

__all__ = ["literals", "statements"]
