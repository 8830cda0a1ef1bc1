"""What else is wrong with a Lark text: statements with mistakes taken out of it.

Lark ends at the first mistake. `taken_out` takes statements out of a text, so that Lark can be
asked again, and `culprit` finds the one that Lark refuses, by asking. That is for telling what is
wrong, not for use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from structgen.grammar.cfg import embedded
from structgen.grammar.cfg.embedded import Lifted

from . import statements
from .statements import Statement


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


def culprit(source: Lifted, is_refused: Callable[[Lifted], bool]) -> Statement | None:
    """The first statement that makes a text refused; None where no single one does.

    Args:
        source: the text.
        is_refused: asks Lark.

    Cost: Lark is asked as often as the number of statements can be halved.
    """
    found = statements.statements(source.text)

    def first(count: int) -> Lifted:
        rest = found[count:]
        return taken_out(source, [s.span for s in rest], [d for s in rest for d in s.defines])

    low, high = 0, len(found)  # the first ``low`` are taken, the first ``high`` refused
    if not found or is_refused(first(0)):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if is_refused(first(middle)):
            high = middle
        else:
            low = middle
    return found[low]
