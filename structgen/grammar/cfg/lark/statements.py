"""The statements of a Lark text that may have mistakes in it, with places.

`statements` sorts lines of tokens into statements, and `malformed` says which lines are none; what
is a mistake in statements that are well-formed is for `mistakes` to say.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from structgen.errors import GrammarError
from structgen.grammar.cfg import foreign
from structgen.grammar.cfg.embedded import Lifted

from . import syntax
from .syntax import NAMES, Token

_COMMANDS = ("%import", "%ignore", "%declare")


@dataclass
class Statement:
    """One statement: ``kind`` is rule, terminal, import, ignore or declare."""

    kind: str
    tokens: list[Token]
    name: str = ""
    parameters: list[str] = field(default_factory=list)
    body: list[Token] = field(default_factory=list)
    by: str = ""
    """%override or %extend."""

    @property
    def span(self) -> tuple[int, int]:
        """Where it begins and ends."""
        return self.tokens[0].at, self.tokens[-1].end

    @property
    def defines(self) -> tuple[tuple[str, int], ...]:
        """The names that it defines, and how many parameters they have."""
        if self.kind == "import":
            return tuple([((alias or name).text, 0) for name, alias in imports(self)[1]])
        if self.kind == "declare":
            return tuple([(token.text, 0) for token in self.body if token.kind in NAMES])
        return ((self.name, len(self.parameters)),) if self.name else ()

    @property
    def at(self) -> int:
        """Where the name that it defines stands."""
        return next((t.at for t in self.tokens if t.text == self.name), self.tokens[0].at)


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake.

    Attributes:
        error: what is told of it.
        span: where the statement to take out begins and ends in the text that Lark reads; None
            where the rest is right once what is missing is made up.
        defines: the names to make up, and how many parameters they have.
        passes: whether Lark lets it pass.
        open_name: the name that is then left open; it matters only where rules in use have it.
    """

    error: GrammarError
    span: tuple[int, int] | None
    defines: tuple[tuple[str, int], ...]
    passes: bool = False
    open_name: str = ""

    @classmethod
    def at(
        cls,
        place: int | Token,
        message: str,
        source: Lifted,
        statement: Statement,
        passes: bool = False,
    ) -> Mistake:
        """A mistake in a statement, told at a place, for which the statement is taken out."""
        error = source.error(message, place.at if isinstance(place, Token) else place)
        return cls(error, statement.span, statement.defines, passes)


def statements(text: str) -> list[Statement]:
    """The statements of a text; what is not like one has no kind.

    What is no token between them is passed over.
    """
    found = [[t for t in line if t.kind != "other"] for line in syntax.lines(text)]
    return [_statement(line) for line in found if line]


def _statement(line: list[Token]) -> Statement:
    kinds = [token.kind for token in line]
    if kinds[0] in _COMMANDS:
        return Statement(kinds[0][1:], line, body=line[1:])
    first = int(kinds[0] in ("%override", "%extend"))
    named = first + (kinds[first : first + 1] == ["modifiers"])
    if ":" not in kinds or kinds[named] not in NAMES:
        return Statement("", line)
    colon = kinds.index(":")
    head = line[named + 1 : colon] if "{" in kinds[named : named + 2] else []
    return Statement(
        kinds[named],
        line,
        line[named].text,
        [token.text for token in head if token.kind == "rule"],
        line[colon + 1 :],
        line[0].text if first else "",
    )


def malformed(source: Lifted) -> list[Mistake]:
    """The lines of a text that are no statements, each with what does not belong there."""
    out: list[Mistake] = []
    is_open = False
    for line in syntax.lines(source.text):
        tokens = [token for token in line if token.kind != "other"]
        statement = _statement(tokens) if tokens else Statement("", line)
        if is_open and not statement.kind:
            # A bracket in the line before was to go on here.
            begin = out[-1].span[0] if out[-1].span else 0
            out[-1] = replace(out[-1], span=(begin, line[-1].end))
            continue
        is_open = False
        try:
            syntax.check(line)
        except syntax.UnexpectedToken as error:
            mixed = foreign.mixed_case(source.text, error.at)
            if mixed is None:
                advice = _advice(source, error) or error.hint
                message = f"The grammar is malformed: {error} {advice}".rstrip()
                told = source.error(message, error.at)
            else:
                told = source.error(foreign.of_mixed_case(mixed[0]), mixed[1])
            out.append(Mistake(told, (line[0].at, line[-1].end), statement.defines))
            is_open = error.is_open
        except RecursionError:
            pass  # which Lark tells, too
    return out


def imports(statement: Statement) -> tuple[list[Token], list[tuple[Token, Token | None]]]:
    """The path of an import, and what is wanted with the names that it is to have here."""
    kinds = [token.kind for token in statement.body]
    end = next((n for n, kind in enumerate(kinds) if kind in ("(", "->")), len(kinds))
    path = [token for token in statement.body[:end] if token.kind in NAMES]
    rest = [token for token in statement.body[end:] if token.kind in NAMES]
    if "(" in kinds:
        return path, [(name, None) for name in rest]
    return path[:-1], [(path[-1], rest[0] if rest else None)] if path[1:] else []


def rules(text: str) -> list[str]:
    """The names of the rules that a text defines or imports."""
    out: list[str] = []
    for statement in statements(text):
        if statement.kind == "rule" and not statement.parameters:
            out.append(statement.name)
        elif statement.kind == "import":
            names = [alias or name for name, alias in imports(statement)[1]]
            out += [name.text for name in names if name.kind == "rule"]
    return list(dict.fromkeys(out))


def literal(text: str, raw: str) -> int:
    """Where a literal or pattern that is written so stands first."""
    tokens = (token for line in syntax.lines(text) for token in line)
    return next((token.at for token in tokens if token.text == raw), text.index(raw))


def ignored(text: str, number: int) -> int:
    """Where the statement stands that ignores the ``number``-th terminal; -1 if nothing does."""
    found = [s for s in statements(text) if s.kind == "ignore"]
    return found[number].span[0] if number < len(found) else -1


def arguments(rest: list[Token]) -> int:
    """How many arguments stand in braces at the beginning."""
    depth = commas = 0
    for token in rest:
        depth += (token.kind == "{") - (token.kind == "}")
        commas += token.kind == "," and depth == 1
        if not depth:
            break
    return commas + 1


def _advice(source: Lifted, error: syntax.UnexpectedToken) -> str:
    """What would mend a line that is no statement, for what people write most, as a sentence."""
    text, at = source.text, error.at
    for found in re.finditer(r"\{(\d*)(?:(,)(\d*))?\}", text):
        if found.start() <= at <= found.end() and (found[1] or found[3]):
            least, most = found[1] or "0", found[3] if found[2] else found[1]
            if not most:
                return f"Lark writes {found[0]} as ~ {least}, and once more with *."
            count = least if least == most else f"{least}..{most}"
            return f"Lark writes {found[0]} as ~ {count}."
    if error.token is not None and error.token.kind == "other":
        if error.token.text == "'":
            return 'Lark writes literals in double quotes: "text".'
        if error.token.text[0] == '"':
            return 'The literal has to end on its line: "text". A quote inside it is written \\".'
        if error.token.text == "/":
            return (
                "The pattern has to end with a slash: /pattern/. A slash inside it is written \\/."
            )
    return foreign.in_lark(source.original, source.position(at))


def near(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """What was probably meant, as a sentence; or nothing."""
    near = difflib.get_close_matches(name, list(known), 3, cutoff)
    return f" Did you mean {' or '.join(near)}?" if near else ""
