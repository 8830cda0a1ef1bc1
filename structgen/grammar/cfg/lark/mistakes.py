"""Mistakes in a Lark text that is well-formed: all of them, each at its place, with what mends it.

Lark ends at its first mistake and seldom says where that is. `mistakes` is asked about texts that
it refuses, and need not know everything: Lark tells what it misses. A few things that it finds Lark
lets pass (`Mistake.passes`): names that a grammar does not have, templates without arguments.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace

from structgen.errors import GrammarError
from structgen.grammar.cfg import foreign
from structgen.grammar.cfg.embedded import Lifted, plain

from . import imports as imported
from . import literals
from .statements import Mistake, Statement, arguments, imports, malformed, near, statements
from .syntax import NAMES, Token

COMMON = (
    "DIGIT HEXDIGIT INT SIGNED_INT DECIMAL FLOAT SIGNED_FLOAT NUMBER SIGNED_NUMBER ESCAPED_STRING "
    "LCASE_LETTER UCASE_LETTER LETTER WORD CNAME WS WS_INLINE CR LF NEWLINE SH_COMMENT "
    "CPP_COMMENT C_COMMENT SQL_COMMENT"
)
"""What ``%import common.NAME`` finds, for hints."""


def mistakes(
    source: Lifted,
    path: str | None = None,
    start: str | None = None,
    importing: tuple[str, ...] = (),
    everything: bool = False,
) -> list[Mistake]:
    """Every mistake that can be told without Lark, in order.

    Args:
        source: the text.
        path: the file it came from, for relative imports.
        start: the rule to begin with.
        importing: the files whose imports led here.
        everything: whether to read the patterns, too.
    """
    found = [s for s in statements(source.text) if s.kind]
    out = list(_Look(source, found, path, importing).mistakes(start))
    if everything:
        for statement in found:
            out += literals.malformed_patterns(statement, source)
    return sorted(out, key=lambda m: (m.error.line or 0, m.error.column or 0))


class _Look:
    """One look through the statements of a text."""

    def __init__(
        self, source: Lifted, found: list[Statement], path: str | None, importing: tuple[str, ...]
    ) -> None:
        self._source = source
        self._statements = found
        self._path = path
        self._importing = importing
        self._missing: set[str] = set()
        self._defined: dict[str, Statement] = {}
        self._declared: dict[str, Token] = {}
        for statement in found:
            if statement.kind in ("rule", "terminal") and not statement.by:
                self._defined.setdefault(statement.name, statement)
            elif statement.kind == "declare":
                for token in statement.body:
                    self._declared.setdefault(token.text, token)
        self._imported = {
            (alias or name).text: statement
            for statement in found
            if statement.kind == "import"
            for name, alias in imports(statement)[1]
        }

    def mistakes(self, start: str | None) -> Iterator[Mistake]:
        for statement in self._statements:
            if statement.kind == "rule":
                yield from self._in_rule(statement)
            if statement.kind == "terminal":
                yield from self._in_terminal(statement)
            if statement.kind in ("rule", "terminal"):
                yield from self._of_definition(statement)
            if statement.kind in ("rule", "terminal", "ignore"):
                yield from self._in_body(statement)
            if statement.kind == "ignore":
                yield from self._in_ignore(statement)
            if statement.kind == "import":
                yield from imported.mistakes_in(statement, self._source, self._path)
                yield from self._in_file(statement)
            if statement.kind == "declare":
                yield from self._in_declaration(statement)
        yield from imported.mistakes_between(self._statements, self._source)
        yield from self._recursion()
        begin = self._defined.get(start or "")
        if begin is not None and begin.parameters:
            message = (
                f"{start!r} is a template, and a grammar starts with a rule. Take the parameters "
                "away, or write a rule that uses it with arguments."
            )
            mistake = self._mistake(message, begin.at, begin, passes=True)
            yield replace(mistake, defines=((begin.name, 0),))

    def _mistake(
        self, message: str, at: int | Token, statement: Statement, passes: bool = False
    ) -> Mistake:
        return Mistake.at(at, message, self._source, statement, passes)

    def _is_known(self, name: str) -> bool:
        return name in self._defined or name in self._declared or name in self._imported

    # -- definitions ------------------------------------------------------------------------------

    def _of_definition(self, statement: Statement) -> Iterator[Mistake]:
        name, kind = statement.name, "rule" if statement.kind == "rule" else "terminal"
        known = self._defined.get(name)
        if statement.by:
            if known is None and not self._is_known(name):
                others = [n for n, s in self._defined.items() if s.kind == statement.kind]
                fix = near(name, others) or f" Write it without {statement.by}, or import it."
                message = (
                    f"{statement.by} of {kind} {name!r}, which is neither defined nor imported."
                    f"{fix}"
                )
                yield self._mistake(message, statement.at, statement)
            elif known is not None and known.span > statement.span:
                message = (
                    f"{statement.by} of {kind} {name!r} before it is defined. Define it above, or "
                    "put all into one definition."
                )
                yield self._mistake(message, statement.at, statement)
            elif known and statement.by == "%extend" and known.parameters != statement.parameters:
                message = (
                    f"%extend of {kind} {name!r} with other parameters than it is defined with. "
                    "Name the same parameters in the same order."
                )
                yield self._mistake(message, statement.at, statement)
        elif known is not statement or name in self._declared or name in self._imported:
            where = "defined more than once"
            if known is statement:
                where = "defined, and declared (%declare), too"
                if name in self._imported:
                    where = "defined, and imported (%import), too"
            message = (
                f"{kind.title()} {name!r} is {where}. Give one of them another name, write both as "
                "alternatives of one definition, or say %override or %extend."
            )
            yield self._mistake(message, statement.at, statement)

    def _in_rule(self, statement: Statement) -> Iterator[Mistake]:
        name = statement.name
        modifiers = next((t for t in statement.tokens[:2] if t.kind == "modifiers"), None)
        if modifiers and "?" in modifiers.text and name.startswith("_"):
            message = (
                f"Rule {name!r} has no node of its own, as it begins with an underscore, so it "
                "cannot be inlined with ?, too. Leave one of the two out."
            )
            yield self._mistake(message, modifiers, statement)
        heads = statement.tokens[: len(statement.tokens) - len(statement.body)]
        for number, parameter in enumerate(statement.parameters):
            place = [token for token in heads if token.text == parameter][-1]
            if parameter in statement.parameters[:number]:
                message = f"Template {name!r} has two parameters {parameter!r}. Rename one of them."
                yield self._mistake(message, place, statement)
            elif self._is_known(parameter):
                message = (
                    f"Parameter {parameter!r} of template {name!r} is a rule, too. Give the "
                    "parameter another name."
                )
                yield self._mistake(message, place, statement)
        if name.startswith("_"):
            for arrow in statement.body:
                if arrow.kind == "->":
                    message = (
                        f"Rule {name!r} begins with an underscore, so it has no node that an alias "
                        "(->) could name. Leave the underscore or the alias out."
                    )
                    yield self._mistake(message, arrow, statement)

    def _in_terminal(self, statement: Statement) -> Iterator[Mistake]:
        name, body = statement.name, statement.body
        if not body:
            message = (
                f"Terminal {name!r} is empty. Give it a literal or a pattern, and make it optional "
                "where rules use it."
            )
            yield self._mistake(message, statement.at, statement)
        for number, token in enumerate(body):
            is_alias = number and body[number - 1].kind == "->"
            after = body[number + 1].kind if number + 1 < len(body) else ""
            if token.kind == "rule" and not is_alias:
                what = "Templates" if after == "{" else "Rules"
                message = (
                    f"{what} aren't allowed inside terminals: {name!r} has {token.text!r} in it. "
                    f"Make {name!r} a rule (in lower case), or {token.text!r} a terminal (in upper "
                    "case)."
                )
                yield self._mistake(message, token, statement)
                return
            if token.kind == "->":
                message = (
                    f"Aliases aren't allowed inside terminals ({name!r}): -> names alternatives of "
                    "rules. Leave it out."
                )
                yield self._mistake(message, token, statement)
            if token.kind == "terminal" and self._is_open(token.text):
                message = (
                    f"Terminal {token.text!r} is declared or given, not defined, so it cannot be "
                    f"part of another terminal, {name!r}. Make {name!r} a rule (in lower case)."
                )
                yield self._mistake(message, token, statement)

    def _is_open(self, name: str) -> bool:
        """Whether a terminal is only declared, which terminals given from outside are, too."""
        return name in self._declared and name not in self._defined and name not in self._imported

    # -- what definitions consist of --------------------------------------------------------------

    def _in_body(self, statement: Statement) -> Iterator[Mistake]:
        body = statement.body
        where = f" (in rule {statement.name})" if statement.kind == "rule" else ""
        depth = 0
        for number, token in enumerate(body):
            before = body[number - 1].kind if number else ""
            after = body[number + 1].kind if number + 1 < len(body) else ""
            depth += (token.kind in ("(", "[")) - (token.kind in (")", "]"))
            if token.kind == "->" and depth and statement.kind == "rule":
                message = (
                    "An alias (->) names an alternative of the whole rule, not of what stands in "
                    "brackets. Leave it out, or make a rule of what is in the brackets."
                )
                yield self._mistake(message, token, statement)
            if token.kind in NAMES and before != "->" and token.text not in statement.parameters:
                if (
                    token.kind == "rule" and statement.kind != "rule"
                ) or token.text in self._missing:
                    continue
                if not self._is_known(token.text):
                    self._missing.add(token.text)
                    mixed = foreign.mixed_case(self._source.text, token.at)
                    if mixed is None:
                        error = undefined(token.text, where, self._source, token.at, self._defined)
                    else:
                        error = self._source.error(foreign.of_mixed_case(mixed[0]), mixed[1])
                    yield Mistake(error, None, ((token.text, 0),))
                elif token.kind == "rule":
                    yield from self._of_use(token, body[number + 1 :], statement)
            elif token.kind == "~":
                yield from self._of_count(body[number + 1 : number + 4], statement)
            elif token.kind == "literal" and ".." in (before, after):
                end = body[number + 2] if after == ".." and len(body) > number + 2 else None
                yield from literals.mistakes_in_range(token, end, statement, self._source)
            elif token.kind in ("literal", "pattern"):
                yield from literals.mistakes_in(token, statement, self._source)

    def _of_use(self, token: Token, rest: list[Token], statement: Statement) -> Iterator[Mistake]:
        """How a rule or template is used."""
        definition = self._defined.get(token.text)
        if definition is None or definition.kind != "rule":
            return
        expected = len(definition.parameters)
        if not rest or rest[0].kind != "{":
            if expected:
                given = ", ".join(definition.parameters)
                message = (
                    f"Template {token.text!r} is used without arguments. Write "
                    f"{token.text}{{{given}}} with what should stand for {given}."
                )
                mistake = self._mistake(message, token, statement, passes=True)
                yield replace(mistake, open_name=token.text)
            return
        actual = arguments(rest)
        if actual == expected:
            return
        if not expected:
            message = f"Rule {token.text!r} is no template. Leave {{…}} out."
        else:
            message = (
                f"Wrong number of template arguments used for {token.text}: expected {expected} "
                f"({', '.join(definition.parameters)}), got {actual}."
            )
        yield self._mistake(message, token, statement)

    def _of_count(self, rest: list[Token], statement: Statement) -> Iterator[Mistake]:
        """``~ 3..2``."""
        try:
            counts = [int(token.text) for token in rest if token.kind == "number"]
        except ValueError:
            message = "This has more digits than a number of Python's may have. Repeat less often."
            yield self._mistake(message, rest[0], statement)
            return
        if [t.kind for t in rest] != ["number", "..", "number"]:
            return
        least, most = counts
        if not 0 <= least <= most:
            message = (
                f"Bad Range ~ {least}..{most}: the first number is the least, the second the most."
            )
            if 0 <= most < least:
                message += f" Write ~ {most}..{least}."
            yield self._mistake(message, rest[0], statement)

    def _in_ignore(self, statement: Statement) -> Iterator[Mistake]:
        for number, token in enumerate(statement.body):
            if token.kind == "terminal" and len(statement.body) > 1 and self._is_open(token.text):
                message = (
                    f"Only patterns can be ignored, and {token.text} is declared or given, not "
                    "defined. Put it into the rules."
                )
                yield self._mistake(message, token, statement)
            if token.kind == "->":
                message = "Aliases aren't allowed in %ignore. Leave -> and the name out."
                yield self._mistake(message, token, statement)
            if token.kind == "rule" and statement.body[number - 1].kind != "->":
                message = (
                    f"Only terminals can be ignored, and {token.text!r} is a rule. Make it a "
                    "terminal (in upper case), or put it into the rules where it may stand."
                )
                yield self._mistake(message, token, statement)

    def _in_declaration(self, statement: Statement) -> Iterator[Mistake]:
        for token in statement.body:
            if token.at != self._declared.get(token.text, token).at:
                message = f"{token.text!r} is declared more than once. Leave one of them out."
                yield self._mistake(message, token, statement)
            elif token.kind == "rule":
                message = (
                    f"Only terminals can be declared, and {token.text!r} is the name of a rule. "
                    "Write it in upper case, or define the rule."
                )
                yield self._mistake(message, token, statement)

    def _recursion(self) -> Iterator[Mistake]:
        """Terminals that contain themselves: each circle once, where it is met first."""
        uses = {
            name: [t for t in s.body if t.kind == "terminal" and t.text in self._defined]
            for name, s in self._defined.items()
            if s.kind == "terminal"
        }
        reached: dict[str, set[str]] = {}
        for name in uses:
            todo, reached[name] = [name], set()
            while todo:
                new = {token.text for token in uses[todo.pop()]} - reached[name]
                reached[name] |= new
                todo += new
        told: set[str] = set()
        for name, names in reached.items():
            if name in names and not any(name in reached[other] for other in told & names):
                told.add(name)
                at = next(t for t in uses[name] if t.text == name or name in reached[t.text])
                message = (
                    f"Recursion in terminal {name!r}: only rules may contain themselves. Write a "
                    "rule (in lower case), or repeat with * and +."
                )
                yield self._mistake(message, at, self._defined[name])

    def _in_file(self, statement: Statement) -> Iterator[Mistake]:
        """The first mistake in a file that is imported."""
        file = imported.file_of(statement, self._path)
        if file is None:
            return
        name = imports(statement)[0][0]
        chain = (*self._importing, os.path.abspath(self._path or ""))
        if os.path.abspath(file) in chain:
            message = f"{file} is imported in a circle. Put what both need into a third file."
            yield self._mistake(message, name, statement)
            return
        try:
            inner = plain(imported.file_text(file))
        except (OSError, ValueError) as error:
            yield self._mistake(f"{file} cannot be read: {error}.", name, statement)
            return
        found = malformed(inner) or mistakes(inner, file, None, chain)
        if found:
            told = str(found[0].error).replace("\n", "\n  ")
            yield self._mistake(f"In {file}, imported here: {told}", name, statement)


def undefined(
    name: str, where: str, source: Lifted, at: int | None, defined: Iterable[str]
) -> GrammarError:
    """An error about a name that nothing defines, with what was probably meant."""
    if not name.lstrip("_")[:1].isupper():
        fix = near(name, defined) or f" Define it: {name}: ..."
        return source.error(f"Rule {name!r} used but not defined{where}.{fix}", at)
    close = difflib.get_close_matches(name, list(defined), 2)
    close += [
        f"%import common.{other}" for other in difflib.get_close_matches(name, COMMON.split(), 2)
    ]
    message = f"Terminal {name!r} used but not defined{where}. "
    message += f"Did you mean {' or '.join(close)}? Else define it, " if close else "Define it, "
    message += f"{name}: /pattern/, or give it: Cfg(..., terminals={{{name!r}: ...}})."
    return source.error(message, at)
