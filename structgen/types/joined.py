"""One grammar of several parts, and a finished text of it divided into its parts again.

Owns `joined_type` and `template_type`. To divide a text, each part's automaton reads it once, from
all places at once where the part may begin. Knows no masks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from structgen.errors import OutputTypeError, ParseError
from structgen.grammar import ir

from .schemas import shown
from .sums import Joined
from .templates import Template
from .user import OutputType

Lower = Callable[[Any], OutputType]

_LOOSE: Mapping[str, Any] = {
    "whitespace": "flexible",
    "property_order": "any",
    "spelling": "any",
    "max_depth": None,
    "max_digits": 1000,
    "format_assertion": False,
    "on_unsupported": "warn",
}
"""Options under which JSON is written in any way; a text may have been made under others than the
default ones."""


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
    divide = _Divider([output.grammar for output in outputs], name)

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
    return _sequence(outputs, parse, name, tuple(checked))


def _sequence(
    parts: Sequence[OutputType],
    parse: Callable[[str], Any],
    name: str,
    checked: tuple[tuple[str, str], ...],
) -> OutputType:
    """One output type after the other."""

    def fitted(tokens: Collection[str]) -> OutputType:
        fit = [part.fitted(tokens) if part.fitted is not None else part for part in parts]
        return _sequence(fit, parse, name, checked)

    located = [part.locate for part in parts if part.locate is not None]
    return OutputType(
        ir.Sequence(tuple(part.grammar for part in parts)),
        parse,
        name,
        checked,
        locate=located[0] if len(located) == 1 else None,
        fitted=fitted if any(part.fitted is not None for part in parts) else None,
    )


def _literal(text: str) -> OutputType:
    return OutputType(ir.Choice((text,)), str, shown(text))


def _part(value: Any, where: str, lower: Lower) -> OutputType:
    if isinstance(value, str):
        return _literal(value)
    try:
        output = lower(value)
    except OutputTypeError as error:
        raise type(error)(f"In {where}: {error}") from error
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


class _Divider:
    """Divides texts into texts of parts.

    Args:
        parts: their grammars.
        name: what the whole is called.
    """

    def __init__(self, parts: Sequence[ir.Grammar], name: str) -> None:
        self._parts = parts
        self._name = name
        self._machines: dict[bool, list[Any]] = {}

    def __call__(self, text: str) -> list[str]:
        """The pieces of ``text``.

        Raises:
            ParseError: it has none.
        """
        data = text.encode("utf-8", "surrogatepass")
        for is_loose in (False, True):
            ends = _divided(self._machines_of(is_loose), data)
            if ends is not None:
                starts = (0, *ends)
                return [data[a:b].decode() for a, b in zip(starts, ends, strict=False)]
        raise ParseError(
            f"The text is no {self._name}: {shown(text)}.",
            text=text,
        )

    def _machines_of(self, is_loose: bool) -> list[Any]:
        """An automaton of each part; of a literal its bytes."""
        # Only when there is a text: automata are a lot of code to those who have types only.
        from structgen.automaton import build

        if is_loose not in self._machines:
            made: list[Any] = []
            for part in self._parts:
                if isinstance(part, ir.Choice) and len(part.texts) == 1:
                    made.append(part.texts[0].encode())
                else:
                    made.append(build(part, _LOOSE if is_loose else {}).machine)
            self._machines[is_loose] = made
        return self._machines[is_loose]


def _divided(machines: Sequence[Any], data: bytes) -> list[int] | None:
    """Where each part ends, or None: the last part as short as can be, then the one before."""
    begins: Collection[int] = (0,)
    # For each part, where it may end, the last place where it may begin then.
    chosen: list[Mapping[int, int]] = []
    for machine in machines:
        ends: Mapping[int, int] = (
            {at + len(machine): at for at in begins if data.startswith(machine, at)}
            if isinstance(machine, bytes)
            else _ends(machine, data, begins)
        )
        if not ends:
            return None
        chosen.append(ends)
        begins = ends.keys()
    end = len(data)
    if end not in begins:
        return None
    out: list[int] = []
    for begun in reversed(chosen):
        out.append(end)
        end = begun[end]
    return out[::-1]


def _ends(machine: Any, data: bytes, begins: Collection[int]) -> dict[int, int]:
    """Where a part may end, with the last place where it may begin then.

    Two texts that have led to one state go on alike, so that of these only one is followed.
    """
    from structgen.automaton.core import TextHistory

    waiting = sorted(begins, reverse=True)
    ends: dict[int, int] = {}
    alive: dict[int, int] = {}
    at = waiting[-1]
    while alive or waiting:
        if not alive:
            at = max(at, waiting[-1])
        if waiting and waiting[-1] == at:
            alive[machine.start] = waiting.pop()
        for state, start in alive.items():
            if machine.is_accepting(state) and ends.get(at, -1) < start:
                ends[at] = start
        if at == len(data):
            break
        after: dict[int, int] = {}
        for state, start in alive.items():
            to = machine.step(state, data[at])
            if to and machine.is_pending(to):
                to = machine.resolve(to, TextHistory().after(data[start : at + 1]))
            if to and after.get(to, -1) < start:
                after[to] = start
        alive = after
        at += 1
    return ends
