"""What is wrong with a grammar, all at once: `problems`.

Beyond what stops a grammar from compiling it finds what only makes it less than it seems: rules and
terminals that nothing uses, rules that can never be finished, terminals that match no text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass

from .automaton.build import build
from .automaton.cfg_goals import Goals
from .automaton.cfg_terminals import Terminals
from .errors import GrammarError, OutputTypeError
from .explain import explain
from .grammar import cfg, cfg_embedded, cfg_lark_literals, cfg_lark_statements, ir

_NO_RULES = re.compile("The grammar has no rules")
_NONE = re.compile("The grammar has no rule")


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

    Messages do not say how the text was read: that is `cfg.dialect_of`, or ``dialect``.

    Args:
        text: the grammar.
        start: the rule to begin with; None for the dialect's own.
        dialect: one of `cfg.DIALECTS`; None to find out.
        path: the file it came from.

    Cost: that of compiling it.
    """
    errors: list[GrammarError] = []
    text = text.removeprefix(cfg.BYTE_ORDER_MARK)
    dialect = dialect or cfg.dialect_of(text, path)
    declared = _declared(text)
    given = {name: ir.SpecialToken(name) for name in declared}
    grammar: ir.ContextFree | None = None
    try:
        grammar = cfg.parse(text, start, dialect, path, given, errors)
    except GrammarError as error:
        errors.append(error)
    except OutputTypeError as error:
        return [Problem(str(error), None, True)]
    found = [
        Problem(
            f"terminal {name} is declared and not defined: it has to be given, "
            f"Cfg(..., terminals={{{name!r}: ...}}).",
            line,
            False,
        )
        for name, line in declared.items()
    ]
    if errors:
        if any(error.line is not None for error in errors):
            # What could not be read has no rules, and is what is to be told.
            begin = re.escape(start or "start")
            is_there = re.search(rf"^[ \t]*[?!]?{begin}\b", text, re.MULTILINE)
            errors = [e for e in errors if not (_NONE if is_there else _NO_RULES).match(str(e))]
        in_order = sorted(errors, key=lambda error: (error.line or 0, error.column or 0))
        found += [Problem(str(error), error.line, True) for error in _distinct(in_order)]
        if grammar is not None:
            # What has mistakes is left out of it, or made up.
            found += _endless(grammar, [], text)
    if errors or grammar is None:
        return _sorted([*found, *_unused(text, start, dialect, set())])
    terminals = _terminals(grammar, functools.partial(cfg.locate, text, dialect, path), found)
    if terminals is None:
        return _sorted([*found, *_unused(text, start, dialect, set())])
    found += _refused(grammar)
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
    found += _endless(grammar, dead, text)
    used = {*grammar.nonterminals, *(t.name for t in grammar.terminals)}
    unused = _unused(text, start, dialect, used)
    found += [*unused, *_malformed(text, unused)]
    if not any(problem.is_error for problem in found):
        try:
            build(grammar, {})
        except OutputTypeError as error:
            found.append(Problem(str(error), None, True))
    return _sorted(found)


def _terminals(
    grammar: ir.ContextFree, locate: Callable[[OutputTypeError], int | None], found: list[Problem]
) -> Terminals | None:
    """The terminals; None, and a problem for each of them that is refused, if any is.

    Args:
        grammar: the grammar.
        locate: see `cfg.locate`.
        found: where problems go.
    """
    symbols = list(grammar.terminals)
    while True:
        try:
            terminals = Terminals(symbols, ir.ANY_CHAR)
        except OutputTypeError as error:
            line = locate(error)
            found.append(Problem(str(error), line, True))
            left = [symbol for symbol in symbols if symbol.name != error.terminal]
            if len(left) == len(symbols):
                return None
            symbols = left
        else:
            return terminals if len(symbols) == len(grammar.terminals) else None


def _distinct(errors: list[GrammarError]) -> list[GrammarError]:
    """``errors`` without those that say the same of the same place, or of none."""
    out: list[GrammarError] = []
    seen: set[tuple[str, int | None, int | None]] = set()
    for error in errors:
        gist = str(error).splitlines()[0].rstrip(".")
        key = gist, error.line, error.column
        if key in seen or (error.line is None and any(g == gist for g, _, _ in seen)):
            continue
        seen.add(key)
        out.append(error)
    return out


def _sorted(found: list[Problem]) -> list[Problem]:
    return sorted(found, key=lambda problem: (not problem.is_error, problem.line or 0))


def _refused(grammar: ir.ContextFree) -> list[Problem]:
    """What is wrong with each embedded terminal."""
    found: list[Problem] = []
    for terminal in grammar.terminals:
        if isinstance(terminal, ir.Embedded):
            line = re.search(r"at line (\d+)", terminal.name)
            number = int(line[1]) if line else None
            try:
                build(terminal.grammar, {})
            except OutputTypeError as error:
                message = f"{terminal.name} is refused: {error}"
                found.append(Problem(message, number, True))
                continue
            for row in explain(terminal.grammar, {}).rows:
                if row.note.startswith("unknown"):
                    message = f"{terminal.name}: {row.keyword!r} at {row.path}: {row.note}"
                    found.append(Problem(message, number, False))
    return found


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
    found: list[Problem] = []
    productive = Goals(grammar, dead).productive
    for number, name in enumerate(grammar.nonterminals):
        if not productive[number] and not name.startswith("__") and ":" not in name:
            message = (
                f"rule {name!r} can never be finished: each of its alternatives needs a rule or "
                "terminal that cannot be either. Give it an alternative that ends."
            )
            found.append(Problem(message, _line_of(text, name), number == grammar.start))
    return found


def _unused(text: str, start: str | None, dialect: str, used: set[str]) -> list[Problem]:
    """Rules and terminals that nothing leads to from the start; none where there is no start.

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
    begin = " ".join(begin.split())
    if begin not in defined and begin not in used:
        return []  # which is an error, and says nothing of the rules that there are
    reached = {begin, ""} | used
    todo = list(reached)
    while todo:
        new = uses.get(todo.pop(), set()) - reached
        reached |= new
        todo += new
    return [
        Problem(f"{name!r} is defined and never used. Remove it, or use it in a rule.", line, False)
        for name, line in defined.items()
        if name not in reached
    ]


def _malformed(text: str, unused: list[Problem]) -> list[Problem]:
    """Patterns that nobody has read, as nothing uses them."""
    lines = {problem.line for problem in unused}
    source = cfg_embedded.plain(text)
    return [
        Problem(str(mistake.error), mistake.error.line, False)
        for statement in cfg_lark_statements.statements(text)
        if cfg_embedded.place(text, statement.at)[0] in lines
        for mistake in cfg_lark_literals.malformed_patterns(statement, source)
    ]


def _uses_in_lark(text: str) -> dict[str, set[str]]:
    """The names that each definition of a Lark text mentions; of what is none, under ``""``."""
    out: dict[str, set[str]] = {}
    for statement in cfg_lark_statements.statements(text):
        names = statement.body if statement.kind else statement.tokens
        key = statement.name if statement.kind in ("rule", "term") else ""
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


def _line_of(text: str, name: str) -> int | None:
    return _defined(text).get(name)
