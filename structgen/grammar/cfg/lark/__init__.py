"""Lark's notation: read with the ``lark`` package, and every mistake told at its place.

`loader` is the entry; `statements`, `literals`, `imports`, `mistakes` and `repair` say what is
wrong with a text; `syntax` and `rules` read texts without mistakes.
"""

from __future__ import annotations

from . import literals, statements

__all__ = ["literals", "statements"]
