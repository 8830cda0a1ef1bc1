"""What else is wrong with a Lark text: mistakes taken out of it, one by one.

Lark's loader ends at the first mistake. `without` takes the statement with that mistake out of the
text, and `taken_out` several, so that the loader can be asked again; that is for telling what is
wrong, not for use.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from structgen.errors import GrammarError
from structgen.grammar.cfg import embedded
from structgen.grammar.cfg.embedded import Lifted

from . import statements
from .statements import Statement


def without(source: Lifted, error: GrammarError) -> Lifted | None:
    """The text without the statement in which the error is; None where that cannot be told."""
    if error.line is None:
        return None
    before: Statement | None = None
    for statement in statements.statements(source.text):
        line, column = embedded.place(source.original, source.position(statement.span[0]))
        if (line, column) > (error.line, error.column or 0):
            break
        before = statement
    if before is None:
        return None
    start, end = before.span
    line, _ = embedded.place(source.original, source.position(end))
    # What is no token at the end is no part of it.
    if line <= error.line:
        rest = source.text.find("\n", end)
        end = len(source.text) if rest < 0 else rest
    return taken_out(source, [(start, end)], before.defines)


def taken_out(
    source: Lifted, spans: Iterable[tuple[int, int]], names: Iterable[tuple[str, int]]
) -> Lifted:
    """The text without the statements that stand in some places.

    What they defined is made up, unless it is defined elsewhere, too. Everything else stays where
    it was.

    Args:
        source: the text.
        spans: where the statements begin and end.
        names: what they define, and how many parameters it has.
    """
    text = source.text
    for start, end in spans:
        text = text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]
    known = {name for s in statements.statements(text) for name, _ in s.defines}
    for name, count in names:
        if name not in known:
            parameters = ", ".join(f"parameter_{number}" for number in range(count))
            text += f'\n{name}{f"{{{parameters}}}" if count else ""}: "{embedded.MADE_UP}"\n'
            known.add(name)
    return replace(source, text=text)
