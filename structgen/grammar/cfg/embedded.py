"""Pieces of a grammar that do not belong to its notation: ``%json {…}`` and ``<token>``.

The reader of GBNF and EBNF calls `json_schema` and `special_token`. For Lark's own loader, `lift`
replaces each such piece by the name of a terminal and declares it. A `Lifted` text knows the
original position of each character, so that errors point into the user's text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from structgen.errors import GrammarError
from structgen.grammar import ir, reading

_PIECES = re.compile(
    r"""//[^\n]*|\#[^\n]*                          # comments
    |"(?:\\.|[^"\\\n])*(?:"i?)?                    # literals, and what is left of the line of one
    |/(?!/)(?:\\[/\\]|[^/\\]|\\(?![/\\]))*(?:/[imslux]*)?  # patterns; one may never end
    |(?P<token><[^\s<>]+>)|(?P<json>%json\b)|(?P<other>%(?:regex|lark)\b)
    |(?P<name>^[ \t]*[?!]*_*[A-Z][_A-Z0-9]*(?=[.:\s]))
    """,
    re.VERBOSE | re.MULTILINE,
)
Given: TypeAlias = "str | ir.Embedded | ir.SpecialToken"
"""A terminal that is given from outside; a string is a pattern."""

TOKEN = re.compile(r"<[^\s<>]+>")
"""The form of a special token's name in a grammar."""

_IDS = re.compile(r"<\[(?:\*|\^?\d{1,9}(?:-\d{1,9})?(?:,\d{1,9}(?:-\d{1,9})?)*)\]>")
_SPACE = re.compile(r"[ \t\r\n]*")
_RULE = re.compile(
    r"^[ \t]*[?!]*_*[a-z][_a-z0-9]*(?:\{[^}\n]*\})?(?:\.-?\d+)?[ \t]*:", re.MULTILINE
)
_SHOWN = 40


@dataclass(frozen=True)
class Lifted:
    """A grammar without its embedded pieces.

    Attributes:
        original: the user's text.
        text: the text for Lark.
        embedded: the terminals that replace the pieces, by their names in ``text``.
    """

    original: str
    text: str
    embedded: dict[str, Given]
    pieces: tuple[tuple[int, int], ...]
    """The positions of parts of ``text``, each with its position in the original, ascending."""

    def position(self, at: int) -> int:
        """Return the original position of a character of ``text``."""
        start, stood = max(piece for piece in self.pieces if piece[0] <= at)
        end = min((s for t, s in self.pieces if t > start), default=len(self.original))
        return min(stood + at - start, end)

    def error(self, message: str, at: int | None = None) -> GrammarError:
        """Return an error about the character ``at`` of ``text``, placed in the original."""
        for name, terminal in self.embedded.items():
            if isinstance(terminal, str) or name in self.original:
                continue
            shown = terminal.name.replace("\\", r"\\")
            message = re.sub(rf"'{name}'|\b{name}\b", shown, message)
        return placed(message, self.original, None if at is None else self.position(at))

    def offset(self, line: int, column: int) -> int:
        """Return the offset in ``text`` of a line and column."""
        before = self.text.split("\n")[: line - 1]
        return min(sum(len(part) + 1 for part in before) + column - 1, len(self.text))


def plain(text: str) -> Lifted:
    """Return a text without embedded pieces."""
    return Lifted(text, text, {}, ((0, 0),))


def placed(message: str, text: str, at: int | None) -> GrammarError:
    """Return an error at a character of a text."""
    if at is None:
        return GrammarError(message)
    line, column = place(text, at)
    return GrammarError(message, text=text, line=line, column=column)


def place(text: str, at: int) -> tuple[int, int]:
    """Return the line and column of a character, from 1."""
    before = text[:at]
    return before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1


def lift(text: str, given: Mapping[str, Given]) -> Lifted:
    """Replace embedded pieces by terminals, and declare these and the terminals ``given``.

    Raises:
        GrammarError: a schema is not JSON, or is in a terminal; or a given terminal is defined.
    """
    for name in given:
        _check_given(name, text)
    embedded: dict[str, Given] = dict(given)
    names: dict[ir.SpecialToken, str] = {}
    out: list[str] = []
    pieces = [(0, 0)]
    done = length = 0
    at = 0
    while (found := _PIECES.search(text, at)) is not None:
        at = found.end()
        if found["other"]:
            message = f"{found['other']} is llguidance syntax: pass dialect='llguidance'."
            raise placed(message, text, found.start())
        if not found["json"] and not found["token"]:
            continue
        reading.spend(1 + (len(text) >> 7), "the grammar has too much embedded in it; write less")
        if _is_in_terminal(text, found.start()):
            message = f"{found[0]} cannot be part of a terminal. Put it into a rule (lower case)."
            raise placed(message, text, found.start())
        name = _fresh(f"EMBEDDED_{len(embedded) + 1}", text)
        if found["token"]:
            token = special_token(found[0], text, found.start())
            name = names.setdefault(token, name)
            embedded[name] = token
        else:
            embedded[name], at = json_schema(text, found.start())
        before = text[done : found.start()]
        out += [before, f" {name} "]
        length += len(before) + len(name) + 2
        # The name maps to the start of the piece that it replaces.
        pieces += [(length - len(name) - 2, found.start()), (length, at)]
        done = at
    out.append(text[done:])
    declared = {
        name for line in re.findall(r"^[ \t]*%declare(.*)", text, re.M) for name in line.split()
    }
    out += [f"\n%declare {name}" for name in embedded if name not in declared]
    return Lifted(text, "".join(out), embedded, tuple(pieces))


def _check_given(name: str, text: str) -> None:
    if not re.fullmatch(r"_?[A-Z][_A-Z0-9]*", name):
        raise GrammarError(f"{name!r} cannot be a terminal: Lark terminals are IN_CAPITALS.")
    defined = re.search(rf"^[ \t]*[?!]*{name}(?:[ \t]*\.-?\d+)?[ \t]*:", text, re.MULTILINE)
    if defined:
        raise placed(
            f"Terminal {name} is both in terminals= and defined here. Remove one of them.",
            text,
            defined.start(),
        )


def special_token(name: str, text: str, at: int) -> ir.SpecialToken:
    """Return the terminal of the name of one or several special tokens at ``at``.

    Raises:
        GrammarError: it is neither a token's text nor ids.
    """
    ends = [(low, high or low) for low, high in re.findall(r"(\d+)(?:-(\d+))?", name)]
    is_listed = _IDS.fullmatch(name) and all(int(low) <= int(high) for low, high in ends)
    if name.startswith(("<!", "<[")) and not is_listed:
        raise placed(
            "Write a token by its text, as in <|tool_call|>, or by its id, <[128010]>; several by "
            "their ids, <[12,20-30]>, all but some, <[^12,20-30]>, all <[*]>.",
            text,
            at,
        )
    line, column = place(text, at)
    return ir.SpecialToken(name, f"at line {line}, column {column}")


def json_schema(text: str, at: int) -> tuple[ir.Embedded, int]:
    """Return the terminal of a ``%json`` and its schema at ``at``, and their end.

    Raises:
        GrammarError: no JSON Schema follows.
    """
    schema, end = json_after("%json", text, at)
    line, column = place(text, at)
    return ir.Embedded(f"%json at line {line}, column {column}", ir.Json(schema)), end


def json_after(command: str, text: str, at: int) -> tuple[Any, int]:
    """Return the JSON value after the command at ``at``, and its end.

    Raises:
        GrammarError: it is not JSON, or not an object; after ``%json`` it may be a boolean.
    """
    space = _SPACE.match(text, at + len(command))
    assert space is not None
    begin, is_schema = space.end(), command == "%json"
    try:
        value, end = json.JSONDecoder().raw_decode(text, begin)
    except json.JSONDecodeError as error:
        what = "a JSON Schema" if is_schema else "an object"
        raise placed(
            f"{command} must be followed by {what} as JSON: {error.msg}.", text, error.pos
        ) from None
    except RecursionError:
        raise placed(
            "The JSON Schema after %json is nested too deeply. Move parts of it into $defs.",
            text,
            begin,
        ) from None
    if not isinstance(value, (dict, bool) if is_schema else dict):
        what = "A JSON Schema is an object or a boolean" if is_schema else "This must be an object"
        raise placed(f"{what}, got {json.dumps(value)[:_SHOWN]}.", text, begin)
    return value, end


def _is_in_terminal(text: str, at: int) -> bool:
    """Return whether ``at`` is in the definition of a terminal."""
    terminal = rule = -1
    for found in _PIECES.finditer(text, 0, at):
        if found["name"]:
            terminal = found.start()
    for found in _RULE.finditer(text, 0, at):
        rule = found.start()
    return terminal > rule


def _fresh(name: str, text: str) -> str:
    while name in text:
        name += "_"
    return name
