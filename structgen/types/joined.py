"""One grammar of several parts, and a finished text of it divided into its parts again.

Owns `joined_type` and `template_type`. Where the parts of a text end is `divided`'s to find. Knows
no masks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from structgen.errors import OutputTypeError, ParseError
from structgen.grammar import ir

from .divided import Divider, Division
from .schemas import shown
from .sums import Joined
from .templates import Template
from .user import OutputType, Part, PartReader

Lower = Callable[[Any], OutputType]


def joined_type(value: Joined, name: str, lower: Lower) -> OutputType:
    """The output type of a sum. Parses to the text."""
    parts = [_part(part, f"part {n} of {name}", lower) for n, part in enumerate(value.parts, 1)]
    checked = dict.fromkeys(found for part in parts for found in part.checked)
    return _sequence(parts, str, name, tuple(checked))


def template_type(value: Template, name: str, lower: Lower) -> OutputType:
    """The output type of a template. Parses to its holes' values by name."""
    holes: list[str | None] = []
    outputs: list[OutputType] = []
    for text, hole in value.parts:
        if text:
            holes.append(None)
            outputs.append(_literal(text))
        if hole is not None:
            where = f"hole {hole!r} of {name}"
            holes.append(hole)
            outputs.append(_part(value.holes[hole], where, lower))
            _check_is_text(outputs[-1].grammar, where)
    divide = Divider([output.grammar for output in outputs], name)

    def parse(text: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for hole, output, piece in zip(holes, outputs, divide(text), strict=True):
            if hole is None:
                continue
            try:
                found[hole] = output.parse(piece)
            except ParseError as error:
                raise ParseError(f"In the hole {hole!r}: {error}", text=text) from error
        return found

    checked = [
        (f"$.{hole}{path.removeprefix('$')}", named)
        for hole, output in zip(holes, outputs, strict=True)
        for path, named in output.checked
    ]
    parts = [
        None if hole is None else Part(hole, output)
        for hole, output in zip(holes, outputs, strict=True)
    ]

    def growing() -> PartReader:
        return _HoleReader(parts, divide.growing())

    return _sequence(outputs, parse, name, tuple(checked), growing)


class _HoleReader:
    """See `user.PartReader`.

    Args:
        parts: what the text consists of, None for the template's own.
        division: how it is divided.
    """

    def __init__(self, parts: Sequence[Part | None], division: Division) -> None:
        self._parts = parts
        self._division = division
        self._data = bytearray()
        self._n_closed = 0
        self._at = 0

    def feed(self, text: str) -> list[tuple[Part, str, bool]]:
        """See `user.PartReader`."""
        data = text.encode("utf-8", "surrogatepass")
        self._data += data
        self._division.feed(data)
        found: list[tuple[Part, str, bool]] = []
        *ends, reached = self._division.settled() or [0]
        for n in range(self._n_closed, min(len(ends) + 1, len(self._parts))):
            is_closed = n < len(ends)
            to = ends[n] if is_closed else reached
            more = self._data[self._at : to].decode("utf-8", "surrogatepass")
            self._at = max(self._at, to)
            part = self._parts[n]
            if part is not None and (more or is_closed):
                found.append((part, more, is_closed))
        self._n_closed = max(self._n_closed, len(ends))
        return found


def _sequence(
    parts: Sequence[OutputType],
    parse: Callable[[str], Any],
    name: str,
    checked: tuple[tuple[str, str], ...],
    growing: Callable[[], PartReader] | None = None,
) -> OutputType:
    """One output type after the other."""

    def fitted(tokens: Collection[str]) -> OutputType:
        fit = [part.fitted(tokens) if part.fitted is not None else part for part in parts]
        return _sequence(fit, parse, name, checked, growing)

    located = [part.locate for part in parts if part.locate is not None]
    return OutputType(
        ir.Sequence(tuple(part.grammar for part in parts)),
        parse,
        name,
        checked,
        locate=located[0] if len(located) == 1 else None,
        fitted=fitted if any(part.fitted is not None for part in parts) else None,
        growing=growing,
    )


def _literal(text: str) -> OutputType:
    return OutputType(ir.Choice((text,)), str, shown(text))


def _part(value: Any, where: str, lower: Lower) -> OutputType:
    if isinstance(value, str):
        return _literal(value)
    try:
        output = lower(value)
    except OutputTypeError as error:
        raise error.inside(f"In {where}") from error
    if output.offered is not None:
        raise OutputTypeError(
            f"In {where}: tool calls are a whole answer in the model's own syntax, and no part of "
            "another text. Pass ToolCalls(...) by itself."
        )
    return output


def _check_is_text(grammar: ir.Grammar, where: str) -> None:
    """Refuse what is written with tokens that have no text, by which it could be read again."""
    if isinstance(grammar, (ir.Either, ir.Sequence)):
        for part in grammar.parts:
            _check_is_text(part, where)
    elif isinstance(grammar, ir.ContextFree):
        for terminal in grammar.terminals:
            if isinstance(terminal, ir.SpecialToken):
                raise OutputTypeError(
                    f"In {where}: its grammar names the special token {terminal.text!r}, which is "
                    "no text by which a template could be divided. Join the parts with + instead."
                )
