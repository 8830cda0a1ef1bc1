"""`problems`: find problems in a grammar.

It returns the first error or, if there is none, warnings: rules and terminals that nothing uses,
rules that can never be finished, terminals that match no text, unknown keywords of embedded
schemas.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from structgen.automaton import build
from structgen.automaton.cfg import NonterminalAutomata, Terminals
from structgen.errors import GrammarError, OutputTypeError, Unsatisfiable
from structgen.grammar import cfg, ir, reading
from structgen.grammar.cfg import embedded

from .explain import explain


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of a grammar.

    Attributes:
        message: the problem and its fix.
        line: 1-based line in the grammar, or None.
        is_error: True if the grammar cannot be used; False if a part of it has no effect.
    """

    message: str
    line: int | None
    is_error: bool

    def __str__(self) -> str:
        place = "" if self.line is None else f"line {self.line}: "
        return f"{'error' if self.is_error else 'warning'}: {place}{self.message}"


def problems(
    text: str,
    start: str | None = None,
    dialect: str | None = None,
    path: str | None = None,
    max_work: int = reading.MAX_WORK,
) -> list[Problem]:
    """List the problems of a grammar: its first error, or else its parts without effect.

    Messages do not name the dialect that was read: see `cfg.dialect_of`, or ``dialect``.

    Args:
        text: the grammar.
        start: the start rule; None for the dialect's own.
        dialect: one of `cfg.DIALECTS`; None to detect it.
        path: the file it came from.
        max_work: as for `compile`; exceeding it is an error of the grammar.

    Cost: that of compiling the grammar.
    """
    text = text.removeprefix(cfg.BYTE_ORDER_MARK)
    dialect = dialect or cfg.dialect_of(text, path)
    try:
        with reading.reading(max_work):
            declared = cfg.lark.declared(text) if dialect == "lark" else {}
            given: dict[str, embedded.Given] = {name: ir.SpecialToken(name) for name in declared}
            grammar = cfg.parse(text, start, dialect, path, given)
    except OutputTypeError as error:
        return [Problem(str(error), getattr(error, "line", None), True)]
    defined = cfg.definitions(text, dialect)

    def of(name: str, message: str, is_error: bool = False) -> Problem:
        place = embedded.place(text, defined[name][0]) if name in defined else None
        return _placed(message, text, place, is_error)

    try:
        build(grammar, {"max_work": max_work})
    except OutputTypeError as error:
        line = cfg.locate(text, dialect, path, error)
        if line is not None:
            return [Problem(str(error), line, True)]
        place = _place_in(error.terminal)
        if place is not None:
            return [_placed(str(error), text, place, True)]
        return [of(grammar.nonterminals[grammar.start], str(error), True)]
    found = [
        Problem(
            f"terminal {name} is declared but not defined. Define it, or pass it: Cfg(..., "
            f"terminals={{{name!r}: ...}}).",
            embedded.place(text, at)[0],
            False,
        )
        for name, at in declared.items()
    ]
    starts = Terminals(grammar.terminals, ir.ANY_CHAR).starts
    dead = [
        t
        for t, terminal in enumerate(grammar.terminals)
        if (starts[t] < 0 if isinstance(terminal, ir.Terminal) else _is_impossible(terminal))
    ]
    for t in dead:
        name = grammar.terminals[t].name
        warning = GrammarError(f"terminal {name} matches no text.")
        warning.terminal = name
        line = cfg.locate(text, dialect, path, warning)
        if (place := _place_in(name)) is not None:
            found.append(_placed(f"{name} matches no text.", text, place, False))
        else:
            found.append(Problem(str(warning), line, False))
    found += [
        of(
            name,
            f"rule {name!r} can never be completed: each alternative needs a rule or terminal "
            "that can never be completed. Add an alternative that ends.",
        )
        for name in _endless(grammar, dead)
    ]
    begin = start or ("start" if dialect == "lark" else "root" if "root" in defined else "")
    reached = _reached(begin or next(iter(defined)), defined)
    found += [
        of(name, f"{name!r} is defined but never used. Remove it, or use it in a rule.")
        for name in defined.keys() - reached
    ]
    for terminal in grammar.terminals:
        if isinstance(terminal, ir.Embedded):
            found += _unknown_keywords(terminal, text)
    return sorted(found, key=lambda problem: problem.line or 0)


def _placed(message: str, text: str, place: tuple[int, int] | None, is_error: bool) -> Problem:
    """Return a problem at a line and column of the text, if it has one."""
    line, column = place or (None, None)
    return Problem(str(GrammarError(message, text=text, line=line, column=column)), line, is_error)


def _is_impossible(terminal: ir.AnyTerminal) -> bool:
    """Return whether a terminal is a pattern of its own that no text matches."""
    if not isinstance(terminal, ir.Embedded) or not isinstance(terminal.grammar, ir.Pattern):
        return False
    try:
        build(terminal.grammar, {})
    except Unsatisfiable:
        return True
    return False


def _place_in(name: str | None) -> tuple[int, int] | None:
    """Return the line and column in the name of an embedded terminal."""
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


def _endless(grammar: ir.ContextFree, dead: list[int]) -> list[str]:
    """Return the rules that can never be finished."""
    productive = NonterminalAutomata(grammar, dead).productive
    return [
        name
        for number, name in enumerate(grammar.nonterminals)
        if not productive[number] and not name.startswith("__") and ":" not in name
    ]


def _reached(begin: str, defined: Mapping[str, tuple[int, set[str]]]) -> set[str]:
    """Return the names that can be reached from the start, and those without a definition."""
    todo = ["", begin]
    reached = set(todo)
    while todo:
        new = defined.get(todo.pop(), (0, set()))[1] - reached
        reached |= new
        todo += new
    return reached
