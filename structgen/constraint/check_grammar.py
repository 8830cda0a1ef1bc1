"""What is wrong with a grammar, all at once: `problems`. Of a Lark text the first mistake only.

Beyond what stops a grammar from compiling it finds what only makes it less than it seems: rules and
terminals that nothing uses, rules that can never be finished, terminals that match no text.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable
from dataclasses import dataclass

from structgen.automaton import build
from structgen.automaton.cfg import NonterminalAutomata, Terminals
from structgen.errors import GrammarError, OutputTypeError
from structgen.grammar import cfg, ir
from structgen.grammar.cfg import embedded

from .explain import explain

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

    Cost: that of compiling it, and each rule that nothing uses as if it were a grammar.
    """
    text = text.removeprefix(cfg.BYTE_ORDER_MARK)
    dialect = dialect or cfg.dialect_of(text, path)
    found = _problems(text, start, dialect, path)
    if any(problem.is_error for problem in found):
        return found
    # What nothing uses is no error, so that what is wrong in it is none either.
    told = {(str(problem), problem.line) for problem in found}
    uses = _uses_in_lark(text) if dialect == "lark" else _uses(text, _defined(text))
    unused = {problem.message for problem in found}
    names = [name for name in _defined(text) if any(m.startswith(_never(name)) for m in unused)]
    looked: set[str] = set()
    for name in sorted(names, key=lambda name: any(name in uses.get(n, ()) for n in names)):
        if name in looked or (dialect == "lark" and not _is_plain_rule(text, name)):
            continue
        looked |= _reached({name}, uses)
        for problem in _problems(text, name, dialect, path):
            other = dataclasses.replace(problem, is_error=False)
            is_use = any(problem.message.startswith(_never(n)) for n in _defined(text))
            if problem.line is not None and not is_use and (str(other), other.line) not in told:
                told.add((str(other), other.line))
                found.append(other)
    return _sorted(found)


def _never(name: str) -> str:
    return f"{name!r} is defined and never used."


def _is_plain_rule(text: str, name: str) -> bool:
    """Whether a Lark text can begin with this: no terminal, and no template."""
    line = text.split("\n")[_defined(text)[name] - 1]
    return name.islower() and not line.partition(":")[0].rstrip().endswith("}")


def _problems(text: str, start: str | None, dialect: str, path: str | None) -> list[Problem]:
    """Those of what the start leads to, and what it does not lead to."""
    declared = _declared(text)
    given: dict[str, embedded.Given] = {name: ir.SpecialToken(name) for name in declared}
    errors: list[GrammarError] = []
    grammar = _read(text, start, dialect, path, given, errors)
    others = [name for name in _defined(text) if name != start]
    if grammar is None and others and any(_NONE.match(str(error)) for error in errors):
        # There is no rule to start with: what else is wrong is told as if another one were it.
        grammar = _read(text, others[0], dialect, path, given, errors)
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
    if grammar is None:
        return _sorted([*found, *_unused(text, start, dialect, set())])
    # What could not be read may be anything: of that no more is said.
    open_ = {t for t, terminal in enumerate(grammar.terminals) if _is_made_up(terminal)}
    is_whole = not errors
    locate = functools.partial(cfg.locate, text, dialect, path)
    refused, dead = _terminals(grammar, open_, locate, found)
    refused |= _refused(grammar, open_, text, found)
    for t in dead:
        warning = GrammarError(f"terminal {grammar.terminals[t].name} matches no text at all.")
        warning.terminal = grammar.terminals[t].name
        line = locate(warning)
        found.append(Problem(str(warning), line, False))
    endless = _endless(grammar, dead, text)
    found += endless
    used = {*grammar.nonterminals, *(t.name for t in grammar.terminals)} if is_whole else set()
    unused = _unused(text, start, dialect, used)
    found += unused
    if is_whole and not refused and not any(problem.is_error for problem in endless):
        found += _unmatched(grammar, text)
    return _sorted(found)


def _read(
    text: str,
    start: str | None,
    dialect: str,
    path: str | None,
    given: dict[str, embedded.Given],
    errors: list[GrammarError],
) -> ir.ContextFree | None:
    """The grammar as far as it can be read, and ``errors`` added to."""
    try:
        return cfg.parse(text, start, dialect, path, given, errors)
    except GrammarError as error:
        errors.append(error)
    except OutputTypeError as error:
        errors.append(GrammarError(str(error)))
    return None


def _is_made_up(terminal: ir.AnyTerminal) -> bool:
    """Whether something stands in a terminal for what could not be read."""
    code = ord(embedded.MADE_UP)
    return f"({code}, {code})" in repr(terminal)


def _unmatched(grammar: ir.ContextFree, text: str) -> list[Problem]:
    """What is wrong with all of the grammar together."""
    try:
        build(grammar, {})
    except OutputTypeError as error:
        place = _place_of(text, grammar.nonterminals[grammar.start])
        return [_placed(str(error), text, place, True)]
    return []


def _terminals(
    grammar: ir.ContextFree,
    left_out: set[int],
    locate: Callable[[OutputTypeError], int | None],
    found: list[Problem],
) -> tuple[set[int], list[int]]:
    """The terminals that are refused, and those that match nothing.

    Args:
        grammar: the grammar.
        left_out: terminals that are not to be looked at.
        locate: see `cfg.locate`.
        found: where the problems of the refused go.
    """
    refused: set[int] = set()
    dead: list[int] = []
    for t, terminal in enumerate(grammar.terminals):
        if t in left_out or not isinstance(terminal, ir.Terminal):
            continue
        try:
            if Terminals([terminal], ir.ANY_CHAR).starts[0] < 0:
                dead.append(t)
        except OutputTypeError as error:
            error.terminal = terminal.name
            line = locate(error)
            found.append(Problem(str(error), line, True))
            refused.add(t)
    return refused, dead


def _placed(message: str, text: str, place: tuple[int, int] | None, is_error: bool) -> Problem:
    """A problem at a line and column of the text, if it has one."""
    line, column = place or (None, None)
    return Problem(str(GrammarError(message, text=text, line=line, column=column)), line, is_error)


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


def _refused(
    grammar: ir.ContextFree, left_out: set[int], text: str, found: list[Problem]
) -> set[int]:
    """The embedded terminals that are refused; ``found`` is told what is wrong with each."""
    refused: set[int] = set()
    for t, terminal in enumerate(grammar.terminals):
        if t in left_out or not isinstance(terminal, ir.Embedded):
            continue
        at = re.search(r"at line (\d+), column (\d+)", terminal.name)
        place = (int(at[1]), int(at[2])) if at else None
        try:
            build(terminal.grammar, {})
        except OutputTypeError as error:
            found.append(_placed(f"{terminal.name} is refused: {error}", text, place, True))
            refused.add(t)
            continue
        for row in explain(terminal.grammar, {}).rows:
            if row.note.startswith("unknown"):
                message = f"{terminal.name}: {row.keyword!r} at {row.path}: {row.note}"
                found.append(_placed(message, text, place, False))
    return refused


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
    productive = NonterminalAutomata(grammar, dead).productive
    for number, name in enumerate(grammar.nonterminals):
        if not productive[number] and not name.startswith("__") and ":" not in name:
            message = (
                f"rule {name!r} can never be finished: each of its alternatives needs a rule or "
                "terminal that cannot be either. Give it an alternative that ends."
            )
            is_error = number == grammar.start
            found.append(_placed(message, text, _place_of(text, name), is_error))
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
    reached = _reached({begin, ""} | used, uses)
    return [
        _placed(
            f"{_never(name)} Remove it, or use it in a rule.",
            text,
            _place_of(text, name),
            False,
        )
        for name in defined
        if name not in reached
    ]


def _reached(names: set[str], uses: dict[str, set[str]]) -> set[str]:
    """``names`` and all that they lead to."""
    reached, todo = set(names), list(names)
    while todo:
        new = uses.get(todo.pop(), set()) - reached
        reached |= new
        todo += new
    return reached


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
