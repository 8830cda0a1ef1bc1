"""The text of a thought: any text that has its closing tag at the end alone, or not at all.

Owns this one language. It may end anywhere, so that a budget can end it anywhere: who lets a model
think closes the thought then.
"""

from __future__ import annotations

from collections.abc import Collection

from structgen.grammar import ir
from structgen.grammar.regex import tree

from .tag_grammar import Terminals, without
from .tags import mark_of
from .user import OutputType, SpecialToken


def thought_type(end: str) -> OutputType:
    """Text in which ``end`` is the end; a control token where the vocabulary has it as one."""
    after = tree.concat((ir.ANY_TEXT, ir.literal(end), tree.repeat(ir.ANY_CHAR, 1, None)))
    anywhere = ir.Pattern(tree.complement(after), source=f"text up to {end!r}")

    def fitted(tokens: Collection[str]) -> OutputType:
        mark = mark_of(end, tokens)
        if not any(isinstance(piece, SpecialToken) for piece in mark):
            return OutputType(anywhere, str, "thought", fitted=fitted)
        made = Terminals()
        some = tree.intersect((tree.repeat(ir.ANY_CHAR, 1, None), without([end])))
        free = made.number(ir.Embedded("text", ir.Pattern(some, source="text")))
        closing = tuple(map(made.text, mark))
        rules = (
            (0, ()),
            (0, (free,)),
            (0, closing),
            (0, (free, *closing)),
        )
        return OutputType(
            ir.ContextFree(tuple(made.all), ("thought",), rules, 0), str, "thought", fitted=fitted
        )

    return fitted(())


FREE_TEXT = OutputType(ir.Pattern(ir.ANY_TEXT, source="any text"), str, "draft")
"""Any text: of characters, not of control tokens."""
