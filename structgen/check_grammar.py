"""What is wrong with a grammar, all at once: `problems`.

Beyond what stops a grammar from compiling it finds what only makes it less than it seems: rules and
terminals that nothing uses, rules that can never be finished, terminals that match no text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .automaton.build import build
from .automaton.cfg_goals import Goals
from .automaton.cfg_terminals import Terminals
from .errors import GrammarError, OutputTypeError
from .grammar import cfg, ir


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        message: what, and what would fix it.
        line: 1-based line in the grammar, or None.
        is_error: whether the grammar cannot be used, or some of it only means nothing.
    """

    message: str
    line: int | None
    is_error: bool

    def __str__(self) -> str:
        place = "" if self.line is None else f"line {self.line}: "
        return f"{'error' if self.is_error else 'warning'}: {place}{self.message}"


def problems(
    text: str, start: str | None = None, dialect: str | None = None, path: str | None = None
) -> list[Problem]:
    """Everything that is wrong with a grammar; none means that it compiles and all of it is used.

    Args:
        text: the grammar.
        start: the rule to begin with; None for the dialect's own.
        dialect: ``"lark"``, ``"gbnf"`` or ``"ebnf"``; None to find out.
        path: the file it came from.

    Cost: that of compiling it.
    """
    try:
        grammar = cfg.parse(text, start, dialect, path)
    except GrammarError as error:
        return [Problem(str(error), error.line, True)]
    except OutputTypeError as error:
        return [Problem(str(error), None, True)]
    try:
        terminals = Terminals(grammar.terminals, ir.ANY_CHAR)
    except OutputTypeError as error:
        return [Problem(str(error), None, True)]
    found: list[Problem] = []
    dead = [
        t
        for t, first in enumerate(terminals.starts)
        if first < 0 and isinstance(grammar.terminals[t], ir.Terminal)
    ]
    for t in dead:
        name = grammar.terminals[t].name
        found.append(
            Problem(f"terminal {name} matches no text at all.", _line_of(text, name), False)
        )
    goals = Goals(grammar, dead)
    for number, name in enumerate(grammar.nonterminals):
        if not goals.productive[number] and not name.startswith("__") and ":" not in name:
            message = (
                f"rule {name!r} can never be finished: each of its alternatives needs a rule or "
                "terminal that cannot be either. Give it an alternative that ends."
            )
            found.append(Problem(message, _line_of(text, name), number == grammar.start))
    used = {*grammar.nonterminals, *(t.name for t in grammar.terminals)}
    for name, line in _defined(text).items():
        if name not in used and not _is_mentioned(text, name):
            message = f"{name!r} is defined and never used. Remove it, or use it in a rule."
            found.append(Problem(message, line, False))
    if not any(problem.is_error for problem in found):
        try:
            build(grammar, {})
        except OutputTypeError as error:
            found.append(Problem(str(error), None, True))
    return sorted(found, key=lambda problem: (not problem.is_error, problem.line or 0))


def _defined(text: str) -> dict[str, int]:
    """Names that the text defines, with their lines."""
    out: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(
            r"\s*[?!]?([A-Za-z_][\w-]*(?: +\w+)*)(?:\{[\w\s,]*\})?(?:\.-?\d+)?\s*(?:::=|:|=(?!=))",
            line,
        )
        if match:
            out.setdefault(" ".join(match[1].split()), number)
    return out


def _is_mentioned(text: str, name: str) -> bool:
    """Whether a name occurs anywhere but where it is defined (terminals build on each other)."""
    return len(re.findall(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)) > 1


def _line_of(text: str, name: str) -> int | None:
    return _defined(text).get(name)
