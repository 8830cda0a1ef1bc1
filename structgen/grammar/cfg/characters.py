r"""Characters of GBNF and EBNF: space and comments, literals, classes and escapes.

Owns the place in a text at which `notation` reads, and how a mistake is told there. Knows no
rules.
"""

from __future__ import annotations

import re

from structgen.errors import GrammarError
from structgen.grammar import ir

from . import embedded
from .builder import Chars, Expression, Literal
from .embedded import Errors

_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_MORE_ESCAPES = {"a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v", "0": "\0"}
_CONSTRAINT = re.compile(r"\[\s*(?:wfc|vc|WFC|VC|ws)\s*:")
_CLASSES = {"d": "[0-9]", "w": "[A-Za-z0-9_]", "s": r"[ \t\r\n]"}
SPACE = {
    "gbnf": re.compile(r"(?:[ \t\r\n]|#[^\n]*)*"),
    "ebnf": re.compile(r"(?:[ \t\r\n]|#(?!x)[^\n]*|/\*(?:(?!\*/).)*\*/)*", re.DOTALL),
}
"""What may stand between two things."""

NO_CODE = (
    "After #x must come the code of a character in hexadecimal digits, as in #x20. If this is a "
    "comment, put a space after the #."
)


class Scanner:
    """A place in a text.

    Args:
        text: the text.
        dialect: ``"gbnf"`` or ``"ebnf"``.
        errors: see `read.parse`.
    """

    def __init__(self, text: str, dialect: str, errors: Errors) -> None:
        self.text = text
        self.dialect = dialect
        self.errors = errors
        self.at = 0

    def error(self, message: str, position: int | None = None) -> GrammarError:
        """An error at a position, the current one by default."""
        at = self.at if position is None else position
        before = self.text[:at]
        line = before.count("\n") + 1
        return GrammarError(
            message, text=self.text, line=line, column=at - (before.rfind("\n") + 1) + 1
        )

    def wrong(self, message: str, position: int | None = None) -> None:
        """Tell an error: collect it, and then what follows is read as well as can be; or raise."""
        embedded.report(self.errors, self.error(message, position))

    def skip(self) -> None:
        """Go past space and comments."""
        match = SPACE[self.dialect].match(self.text, self.at)
        assert match is not None
        self.at = match.end()

    def peek(self, token: str) -> bool:
        """Whether ``token`` stands here."""
        return self.text.startswith(token, self.at)

    def literal(self, quote: str) -> Expression:
        """A text in quotes."""
        opening = self.at
        self.at += 1
        out: list[str] = []
        while not self.peek(quote):
            if self.at >= len(self.text) or self.peek("\n"):
                self.wrong(f"This literal is never closed. Add {quote}.", opening)
                return Literal(embedded.MADE_UP)
            out.append(self.character())
        self.at += 1
        return Literal("".join(out))

    def char_class(self) -> Expression:
        """A class, ``[a-z]`` or ``[^a-z]``."""
        opening = self.at
        if self.dialect == "ebnf" and _CONSTRAINT.match(self.text, self.at):
            self.wrong(
                "A constraint of the W3C's is not supported. Write it as a comment, /* … */."
            )
        self.at += 1
        negate = self.peek("^")
        self.at += negate
        ranges: list[tuple[int, int]] = []
        while not self.peek("]"):
            if self.at >= len(self.text) or self.peek("\n"):
                self.wrong("This class is never closed. Add ].", opening)
                return Chars(ir.ANY_CHAR)
            low = ord(self.character())
            high = low
            is_range = self.peek("-") and not self.peek("-]") and self.at + 1 < len(self.text)
            if is_range:
                self.at += 1
                high = ord(self.character())
                if high < low:
                    self.wrong(
                        f"The range {chr(low)}-{chr(high)} is the wrong way round. Swap them.",
                        opening,
                    )
                    low, high = high, low
            ranges.append((low, high))
        self.at += 1
        chars = ir.char_set(ranges)
        return Chars(ir.negate(chars) if negate else chars)

    def character(self) -> str:
        """One character of a literal or class, escapes resolved."""
        char = self.text[self.at]
        if self.dialect == "ebnf" and re.match(r"#x[0-9A-Fa-f]", self.text[self.at : self.at + 3]):
            return chr(self.hexadecimal(self.at + 2, None))
        if char != "\\":
            self.at += 1
            return char
        kind = self.text[self.at + 1 : self.at + 2]
        if kind in ("x", "u", "U") and kind:
            begin, digits = self.at, {"x": 2, "u": 4, "U": 8}[kind]
            char = chr(self.hexadecimal(self.at + 2, digits))
            if (
                kind == "x"
                and self.dialect == "ebnf"
                and re.match("[0-9A-Fa-f]", self.text[self.at])
            ):
                self.wrong(
                    "XGrammar reads all the digits after \\x, llama.cpp two, so it is not plain "
                    "what is meant. Write \\uHHHH.",
                    begin,
                )
            return char
        if not kind or kind == "\n":
            self.wrong("A backslash at the end of a line. Write \\\\ for a backslash.")
            self.at += 1
            return char
        escapes = _ESCAPES if self.dialect == "gbnf" else _ESCAPES | _MORE_ESCAPES
        if kind not in escapes and kind.isalnum():
            meant = f"{_CLASSES[kind]} for the class" if kind in _CLASSES else f"{kind} for itself"
            if kind in _MORE_ESCAPES:
                meant = f"\\x{ord(_MORE_ESCAPES[kind]):02x} for the character"
            self.wrong(f"There is no escape \\{kind} here. Write {meant}, or \\\\ for a backslash.")
        self.at += 2
        return escapes.get(kind, kind)

    def code(self) -> Expression:
        """A character by its code, ``#x20``."""
        if not re.match("#x[0-9A-Fa-f]", self.text[self.at : self.at + 3]):
            self.wrong(NO_CODE)
            self.at += len("#x")
            while self.at < len(self.text) and self.text[self.at].isalnum():
                self.at += 1
            return Literal(embedded.MADE_UP)
        code = self.hexadecimal(self.at + 2, None)
        return Chars(ir.char_set([(code, code)]))

    def hexadecimal(self, at: int, digits: int | None) -> int:
        """The code point in so many digits (None: all that there are) at ``at``."""
        match = re.compile(r"[0-9A-Fa-f]+").match(self.text, at)
        found = "" if match is None else match[0][:digits]
        code = int(found or "0", 16)
        if not found or (digits is not None and len(found) < digits):
            self.wrong(f"Expected {digits or 'some'} hexadecimal digits.")
        elif code > ir.MAX_CODE_POINT:
            self.wrong(f"There is no character {found}: the last is 10FFFF.")
            code = 0
        self.at = at + len(found)
        return code
