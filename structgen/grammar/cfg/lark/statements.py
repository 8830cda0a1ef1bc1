"""The statements of a Lark text that may have mistakes in it, with places.

`statements` sorts the tokens of Lark's own lexer into statements, and `syntax_error` says where a
text does not parse; what is a mistake in statements that do is for `cfg_lark_mistakes` to say.
Texts without mistakes are read by `cfg_lark_syntax`, which keeps no places.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from structgen.errors import GrammarError
from structgen.grammar.cfg import foreign
from structgen.grammar.cfg.embedded import Lifted

from .syntax import Token, tokens

NAMES = ("RULE", "TERMINAL")
"""Kinds of tokens that are names."""

_SIGNS = {
    "_NL": "the end of the line",
    "_NL_OR": "| on the next line",
    "_OR": "|",
    "_COLON": ":",
    "_COMMA": ",",
    "_LPAR": "(",
    "_RPAR": ")",
    "_RBRA": "]",
    "_LBRA": "[",
    "_LBRACE": "{",
    "_RBRACE": "}",
    "_DOTDOT": "..",
    "_DOT": ".",
    "_TO": "->",
    "RULE": "the name of a rule",
    "TERMINAL": "the name of a terminal",
    "NUMBER": "a number",
}
"""What kinds of tokens are called in messages."""

_MOST_EXPECTED = 5
_COMMANDS = {"_IMPORT": "import", "_IGNORE": "ignore", "_DECLARE": "declare"}


@dataclass
class Statement:
    """One statement: ``kind`` is rule, term, import, ignore or declare."""

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
        last = self.tokens[-1]
        return self.tokens[0].at, last.at + len(last.text)

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
        passes: whether Lark's loader lets it pass.
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
    """The statements of a text; what is not like one has no kind."""
    out: list[Statement] = []
    line: list[Token] = []
    for token in tokens(text):
        if token.kind != "_NL":
            line.append(token)
        elif line:
            out.append(_statement(line))
            line = []
    return out


def _statement(line: list[Token]) -> Statement:
    kinds = [token.kind for token in line]
    if kinds[0] in _COMMANDS:
        return Statement(_COMMANDS[kinds[0]], line, body=line[1:])
    first = int(kinds[0] in ("_OVERRIDE", "_EXTEND"))
    named = first + (kinds[first : first + 1] == ["RULE_MODIFIERS"])
    if "_COLON" not in kinds or kinds[named] not in NAMES:
        return Statement("", line)
    colon = kinds.index("_COLON")
    head = line[named + 1 : colon] if "_LBRACE" in kinds[named : named + 2] else []
    return Statement(
        "rule" if kinds[named] == "RULE" else "term",
        line,
        line[named].text,
        [token.text for token in head if token.kind == "RULE"],
        line[colon + 1 :],
        line[0].text if first else "",
    )


def imports(statement: Statement) -> tuple[list[Token], list[tuple[Token, Token | None]]]:
    """The path of an import, and what is wanted with the names that it is to have here."""
    kinds = [token.kind for token in statement.body]
    end = next((n for n, kind in enumerate(kinds) if kind in ("_LPAR", "_TO")), len(kinds))
    path = [token for token in statement.body[:end] if token.kind in NAMES]
    rest = [token for token in statement.body[end:] if token.kind in NAMES]
    if "_LPAR" in kinds:
        return path, [(name, None) for name in rest]
    return path[:-1], [(path[-1], rest[0] if rest else None)] if path[1:] else []


def literal(text: str, raw: str) -> int:
    """Where a literal or pattern that is written so stands first."""
    return next((token.at for token in tokens(text) if token.text == raw), text.index(raw))


def ignored(text: str, number: int) -> int:
    """Where the statement stands that ignores the ``number``-th terminal; -1 if nothing does."""
    found = [s for s in statements(text) if s.kind == "ignore"]
    return found[number].span[0] if number < len(found) else -1


def arguments(rest: list[Token]) -> int:
    """How many arguments stand in braces at the beginning."""
    depth = commas = 0
    for token in rest:
        depth += (token.kind == "_LBRACE") - (token.kind == "_RBRACE")
        commas += token.kind == "_COMMA" and depth == 1
        if not depth:
            break
    return commas + 1


def syntax_error(source: Lifted) -> GrammarError | None:
    """The first mistake of a text that does not parse; None if it does."""
    from lark.exceptions import LarkError, UnexpectedInput
    from lark.load_grammar import _parse_grammar

    try:
        _parse_grammar(source.text, "<grammar>")  # type: ignore[no-untyped-call]
    except UnexpectedInput as error:
        at = source.offset(error.line, error.column) if error.line > 0 else len(source.text)
        mixed = foreign.mixed_case(source.text, at)
        if mixed is not None:
            return source.error(foreign.of_mixed_case(mixed[0]), mixed[1])
        here = str(getattr(error, "token", "")).strip()
        message = f"Unexpected {here!r}." if here else "It ends too early here."
        expected = [_SIGNS.get(kind, kind) for kind in sorted(getattr(error, "expected", ()))]
        if expected and len(expected) <= _MOST_EXPECTED:
            message += f" Expected: {' or '.join(expected)}".rstrip(".") + "."
        return source.error(
            f"The grammar is malformed: {message}{_advice(source, at, message)}", at
        )
    except LarkError as error:
        message, _, where = str(error).partition("at line ")
        place = re.match(r"(\d+) column (\d+)", where)
        if place is not None:  # else it is a mistake in what parses
            at = source.offset(int(place[1]), int(place[2]))
            mixed = foreign.mixed_case(source.text, at)
            if mixed is not None:
                return source.error(foreign.of_mixed_case(mixed[0]), mixed[1])
            message = message.rstrip(" ,")
            return source.error(
                f"The grammar is malformed: {message}.{_advice(source, at, message)}", at
            )
    return None


def _advice(source: Lifted, at: int, message: str) -> str:
    """What would mend what does not parse, as a sentence, for what people write most."""
    text = source.text
    for found in re.finditer(r"\{(\d*)(,?)(\d*)\}", text):
        if found.start() <= at <= found.end() and (found[1] or found[3]):
            least, most = found[1] or "0", found[3] if found[2] else found[1]
            if not most:
                return f" Lark writes {found[0]} as ~ {least}, and once more with *."
            count = least if least == most else f"{least}..{most}"
            return f" Lark writes {found[0]} as ~ {count}."
    here = text[at : at + 1] if message == "Unexpected input" else ""
    if here == "'":
        return ' Lark writes literals in double quotes: "text".'
    if here == '"':
        return ' The literal has to end on its line: "text". A quote inside it is written \\".'
    if here == "/":
        return " The pattern has to end with a slash: /pattern/. A slash inside it is written \\/."
    advice = foreign.in_lark(source.original, source.position(at))
    return f" {advice}" if advice else ""


def near(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """What was probably meant, as a sentence; or nothing."""
    near = difflib.get_close_matches(name, list(known), 3, cutoff)
    return f" Did you mean {' or '.join(near)}?" if near else ""
