"""`parse`: choose the notation of a context-free grammar, and the module that reads it.

`lark` reads Lark's, `llguidance` its Lark, `xgrammar` its EBNF, `notation` GBNF and EBNF.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from structgen.errors import GrammarError, OutputTypeError, did_you_mean
from structgen.grammar import ir, reading

from . import embedded, foreign, notation
from .embedded import Given

DIALECTS = {
    "lark": "Lark",
    "llguidance": "llguidance's Lark",
    "gbnf": "GBNF",
    "xgrammar": "XGrammar's EBNF",
    "ebnf": "EBNF",
}
"""The dialects of grammars, with their names in messages. GBNF is llama.cpp's, EBNF the W3C's."""

BYTE_ORDER_MARK = "\ufeff"
"""Some editors put this before a UTF-8 text; it is not part of it."""

EXTENSIONS = {".lark": "lark", ".gbnf": "gbnf", ".ebnf": "ebnf"}
"""The extensions of grammar files, and their dialects."""


def parse(
    text: str,
    start: str | None = None,
    dialect: str | None = None,
    path: str | None = None,
    terminals: Mapping[str, Given] | None = None,
) -> ir.ContextFree:
    """Return the grammar that ``text`` describes.

    Args:
        text: the grammar.
        start: the start rule; None for the dialect's own.
        dialect: one of `DIALECTS`; None to detect it.
        path: the file of the text, for the dialect and for relative imports.
        terminals: terminals that the text declares without a definition; strings are patterns.

    Raises:
        GrammarError: the grammar is malformed.
        CompileLimitExceeded: it is too long, before or after expansion.
    """
    given = terminals or {}
    text = text.removeprefix(BYTE_ORDER_MARK)
    for name in given:
        if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text):
            hint = did_you_mean(name, set(re.findall(r"[A-Za-z_][\w-]*", text)), 3)
            raise GrammarError(f"terminals= has {name!r}, but the grammar does not use it.{hint}")
    chosen = dialect or dialect_of(text, path)
    try:
        with reading.reading():
            return _parse(text, start, chosen, path, given)
    except GrammarError as error:
        if is_decided(dialect, path):
            raise
        raise error.noted(
            f"(Read as {DIALECTS[chosen]}. Pass dialect= for another notation.)"
        ) from None


def is_decided(dialect: str | None, path: str | None) -> bool:
    """Return whether the option or the file's name determines the dialect."""
    return dialect is not None or str(path).endswith(tuple(EXTENSIONS))


def _parse(
    text: str, start: str | None, chosen: str, path: str | None, given: Mapping[str, Given]
) -> ir.ContextFree:
    check_dialect(chosen)
    if chosen == "lark":
        from . import lark

        return lark.parse(text, start or "start", path, given)
    reading.spend_text(text, 1)
    if chosen == "llguidance":
        from . import llguidance

        return llguidance.parse(text, start or "start", given)
    return notation.parse(_reader(text, chosen), start, given)


def definitions(text: str, dialect: str) -> dict[str, tuple[int, set[str]]]:
    """Map each definition of a valid text to its position, and the names in it; "" to the names
    elsewhere."""
    if dialect == "lark":
        from . import lark

        return lark.definitions(text)
    if dialect == "llguidance":
        from . import llguidance

        return llguidance.definitions(text)
    return notation.definitions(_reader(text, dialect))


def _reader(text: str, dialect: str) -> notation.Reader:
    """Return the reader of a dialect other than Lark."""
    if dialect != "xgrammar":
        return notation.Reader(text, dialect)
    from . import xgrammar

    return xgrammar.Reader(text, dialect)


def locate(text: str, dialect: str | None, path: str | None, error: OutputTypeError) -> int | None:
    """Add the place in the grammar to an error about a terminal; return the line, or None."""
    if error.terminal is None or (dialect or dialect_of(text, path)) != "lark":
        return None
    from . import lark

    at = lark.place_of(error.terminal, text)
    if at is None:
        return None
    line, column = embedded.place(text, at)
    error.put(text, line, column)
    return line


def check_dialect(name: str) -> None:
    """Raise GrammarError for an unknown dialect."""
    *others, last = DIALECTS
    if name not in (*others, last):
        raise GrammarError(
            f"There is no grammar dialect {name!r}. Choose {', '.join(map(repr, others))} or "
            f"{last!r}. {foreign.NO_ISO}"
        )


def dialect_of(text: str, path: str | None = None) -> str:
    """Return the dialect of a grammar: by the file's name, else by the form of its rules."""
    text = text.removeprefix(BYTE_ORDER_MARK)
    lark = "llguidance" if re.search(r"^[^\S\n]*%llguidance\b", text, re.MULTILINE) else "lark"
    for extension, dialect in EXTENSIONS.items():
        if path is not None and path.endswith(extension):
            return lark if dialect == "lark" else dialect
    if not re.search(r"^[^\S\n]*(?:[\w-]+(?:\[[^\]\n]*\])?|<[^<>\n]+>)\s*::=", text, re.MULTILINE):
        return lark
    return "gbnf" if re.search(r"^[^\S\n]*root\s*::=", text, re.MULTILINE) else "ebnf"
