"""What is wrong with a grammar: `problems`. The first mistake only, and if there is none, all that
makes the grammar less than it seems: rules and terminals that nothing uses, rules that can never be
finished, terminals that match no text, unknown keywords of embedded schemas.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from structgen.automaton import build
from structgen.automaton.cfg import NonterminalAutomata, Terminals
from structgen.errors import GrammarError, OutputTypeError
from structgen.grammar import cfg, ir
from structgen.grammar.cfg import embedded

from .explain import explain


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
    """What is wrong with a grammar: its first mistake, or else what in it means nothing.

    Messages do not say how the text was read: that is `cfg.dialect_of`, or ``dialect``.

    Args:
        text: the grammar.
        start: the rule to begin with; None for the dialect's own.
        dialect: one of `cfg.DIALECTS`; None to find out.
        path: the file it came from.

    Cost: that of compiling it.
    """
    text = text.removeprefix(cfg.BYTE_ORDER_MARK)
    dialect = dialect or cfg.dialect_of(text, path)
    declared = _declared(text)
    given: dict[str, embedded.Given] = {name: ir.SpecialToken(name) for name in declared}
    try:
        grammar = cfg.parse(text, start, dialect, path, given)
    except OutputTypeError as error:
        return [Problem(str(error), getattr(error, "line", None), True)]
    try:
        build(grammar, {})
    except OutputTypeError as error:
        line = cfg.locate(text, dialect, path, error)
        if line is not None:
            return [Problem(str(error), line, True)]
        place = _place_in(error.terminal) or _place_of(text, grammar.nonterminals[grammar.start])
        return [_placed(str(error), text, place, True)]
    found = [
        Problem(
            f"terminal {name} is declared and not defined: it has to be given, "
            f"Cfg(..., terminals={{{name!r}: ...}}).",
            line,
            False,
        )
        for name, line in declared.items()
    ]
    starts = Terminals(grammar.terminals, ir.ANY_CHAR).starts
    dead = [
        t
        for t, terminal in enumerate(grammar.terminals)
        if starts[t] < 0 and isinstance(terminal, ir.Terminal)
    ]
    for t in dead:
        warning = GrammarError(f"terminal {grammar.terminals[t].name} matches no text at all.")
        warning.terminal = grammar.terminals[t].name
        line = cfg.locate(text, dialect, path, warning)
        found.append(Problem(str(warning), line, False))
    found += _endless(grammar, dead, text)
    found += _unused(
        text, start, dialect, {*grammar.nonterminals, *(t.name for t in grammar.terminals)}
    )
    for terminal in grammar.terminals:
        if isinstance(terminal, ir.Embedded):
            found += _unknown_keywords(terminal, text)
    return sorted(found, key=lambda problem: problem.line or 0)


def _placed(message: str, text: str, place: tuple[int, int] | None, is_error: bool) -> Problem:
    """A problem at a line and column of the text, if it has one."""
    line, column = place or (None, None)
    return Problem(str(GrammarError(message, text=text, line=line, column=column)), line, is_error)


def _place_in(name: str | None) -> tuple[int, int] | None:
    """The line and column that the name of an embedded terminal says."""
    at = re.search(r"at line (\d+), column (\d+)", name or "")
    return (int(at[1]), int(at[2])) if at else None


def _unknown_keywords(terminal: ir.Embedded, text: str) -> list[Problem]:
    return [
        _placed(
            f"{terminal.name}: {row.keyword!r} at {row.path}: {row.note}",
            text,
            _place_in(terminal.name),
            False,
        )
        for row in explain(terminal.grammar, {}).rows
        if row.note.startswith("unknown")
    ]


def _declared(text: str) -> dict[str, int]:
    """Terminals that a Lark text declares and does not define, with their lines."""
    defined = _defined(text)
    return {
        name: number
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip().startswith("%declare")
        for name in line.partition("//")[0].split()[1:]
        if name not in defined and name.isupper()
    }


def _defined(text: str) -> dict[str, int]:
    """Names that the text defines, with their lines."""
    out: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(
            r"\s*[?!]?([A-Za-z_][\w-]*(?: +\w+)*)(?:\{[\w\s,]*\})?(?:\.-?\d+)?\s*(?:::=|:|=(?!=))",
            line,
        )
        if match:
            out.setdefault(" ".join(match[1].split()), number)
    return out


def _endless(grammar: ir.ContextFree, dead: list[int], text: str) -> list[Problem]:
    """Rules that can never be finished."""
    message = (
        "rule {!r} can never be finished: each of its alternatives needs a rule or terminal that "
        "cannot be either. Give it an alternative that ends."
    )
    productive = NonterminalAutomata(grammar, dead).productive
    return [
        _placed(message.format(name), text, _place_of(text, name), False)
        for number, name in enumerate(grammar.nonterminals)
        if not productive[number] and not name.startswith("__") and ":" not in name
    ]


def _unused(text: str, start: str | None, dialect: str, used: set[str]) -> list[Problem]:
    """Rules and terminals that nothing leads to from the start.

    Args:
        text: the grammar.
        start: as for `problems`.
        dialect: as for `problems`.
        used: names that are known to be used.
    """
    defined = _defined(text)
    is_lark = dialect == "lark"
    uses = _uses_in_lark(text) if is_lark else _uses(text, defined)
    begin = start or (
        "start" if is_lark else "root" if "root" in defined else next(iter(defined), "")
    )
    todo = [" ".join(begin.split()), "", *used]
    reached = set(todo)
    while todo:
        new = uses.get(todo.pop(), set()) - reached
        reached |= new
        todo += new
    return [
        _placed(
            f"{name!r} is defined and never used. Remove it, or use it in a rule.",
            text,
            _place_of(text, name),
            False,
        )
        for name in defined
        if name not in reached
    ]


def _uses_in_lark(text: str) -> dict[str, set[str]]:
    """The names that each definition of a Lark text mentions; of what is none, under ``""``."""
    out: dict[str, set[str]] = {}
    for statement in cfg.lark.statements(text):
        names = statement.body if statement.kind else statement.tokens
        key = statement.name if statement.kind in ("rule", "terminal") else ""
        out.setdefault(key, set()).update(t.text for t in names)
    return out


def _uses(text: str, defined: dict[str, int]) -> dict[str, set[str]]:
    """The names that stand from each definition to the next."""
    lines = text.split("\n")
    starts = sorted((line, name) for name, line in defined.items())
    ends = [*(line for line, _ in starts), len(lines) + 1][1:]
    out: dict[str, set[str]] = {}
    for (line, name), end in zip(starts, ends, strict=True):
        here = "\n".join(lines[line - 1 : end - 1]).replace(name, "", 1)
        out[name] = {
            other for other in defined if re.search(rf"(?<![\w-]){re.escape(other)}(?![\w-])", here)
        }
    return out


def _place_of(text: str, name: str) -> tuple[int, int] | None:
    """Line and column at which a name is defined."""
    line = _defined(text).get(name)
    if line is None:
        return None
    return line, text.split("\n")[line - 1].index(name.partition(" ")[0]) + 1
