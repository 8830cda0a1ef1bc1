"""Join several parts into one grammar, and divide its texts into parts, finished or growing.

`joined_type`, `repeated_type` and `template_type` make the types; `Divider` finds where each part
ends. If there are several ways, the last part is as short as possible, then the one before it. The
parts' automata read the text once, in parallel from all places where a part may begin. If two reach
the same state, only the one that began later continues. Knows no masks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from structgen.errors import OutputTypeError, ParseError
from structgen.grammar import ir
from structgen.storage import cached_method

from .schemas import shown
from .sums import Joined, Repeated
from .tags import regular
from .templates import Template
from .user import OutputType, Part, PartReader, all_checked, fitted_parts

LOOSE: Mapping[str, Any] = {
    "whitespace": "flexible",
    "max_whitespace": 2_000,
    "property_order": "any",
    "spelling": "any",
    "max_depth": None,
    "max_digits": 1000,
    "format_assertion": False,
    "on_unsupported": "warn",
}
"""Options that allow JSON in any form, because a text may have been made under other than the
default options."""

Ends: TypeAlias = "tuple[int, Ends] | tuple[()]"
"""The ends of parts, the last one first."""


class Division:
    """A growing text, and the ways to divide it."""

    def __init__(self, machines: Sequence[Any]) -> None:
        self._machines = machines
        self._data = bytearray()
        # For each part, by its automaton's state: the start of the part, and the ends of earlier
        # parts.
        self._alive: list[dict[int, tuple[int, Ends]]] = [{} for _ in machines]
        self._whole: Ends | None = None
        self._enter(0, 0, ())

    def feed(self, data: bytes) -> None:
        """Read more text."""
        from structgen.automaton.core import TextHistory

        for byte in data:
            self._data.append(byte)
            at = len(self._data)
            before, self._alive = self._alive, [{} for _ in self._machines]
            self._whole = None
            for part, states in enumerate(before):
                machine = self._machines[part]
                after = self._alive[part]
                for state, (begun, ends) in states.items():
                    to = machine.step(state, byte)
                    if to and machine.is_pending(to):
                        text = bytes(self._data[begun:at])
                        to = machine.resolve(to, TextHistory().after(text))
                    if to and (to not in after or after[to][0] < begun):
                        after[to] = begun, ends
                self._leave(part, at)

    def _enter(self, part: int, at: int, ends: Ends) -> None:
        """Begin a part at a place; after the last part, the text may end."""
        if part == len(self._machines):
            self._whole = ends
            return
        machine = self._machines[part]
        self._alive[part][machine.start] = at, ends
        if not at:  # later, all parts end in turn
            self._leave(part, at)

    def _leave(self, part: int, at: int) -> None:
        """Let the next part begin, if a part may end there."""
        machine = self._machines[part]
        ways = [way for state, way in self._alive[part].items() if machine.is_accepting(state)]
        if ways:
            _, ends = max(ways, key=lambda way: way[0])
            self._enter(part + 1, at, (at, ends))

    def ends(self) -> list[int] | None:
        """Return the end of each part if the text ends here; None if it must not."""
        return None if self._whole is None else _in_order(self._whole)

    def settled(self) -> list[int]:
        """Return the ends of the first parts, as far as they are certain, and a lower bound on the
        end of the next one: true for every continuation that ends."""
        # A part that has just begun is empty, so it adds no other end.
        found = [_in_order(ends) for ends in self._ways()]
        if not found:
            return []
        n = 0
        while all(len(one) > n for one in found) and len({one[n] for one in found}) == 1:
            n += 1
        now = len(self._data)
        return [*found[0][:n], min(one[n] if len(one) > n else now for one in found)]

    def _ways(self) -> Iterator[Ends]:
        for states in self._alive:
            for _, ends in states.values():
                yield ends
        if self._whole is not None:
            yield self._whole


def _in_order(ends: Ends) -> list[int]:
    found: list[int] = []
    while ends:
        at, ends = ends
        found.append(at)
    return found[::-1]


class Divider:
    """Divides texts into texts of parts."""

    def __init__(self, parts: Sequence[ir.Grammar], name: str) -> None:
        self._parts = parts
        self._name = name

    def __call__(self, text: str) -> list[str]:
        """Return the pieces of ``text``.

        Raises:
            ParseError: the text cannot be divided.
        """
        data = text.encode("utf-8", "surrogatepass")
        for is_loose in (False, True):
            division = Division(self._machines_of(is_loose))
            division.feed(data)
            ends = division.ends()
            if ends is not None:
                starts = (0, *ends)
                return [data[a:b].decode() for a, b in zip(starts, ends, strict=False)]
        raise ParseError(f"The text does not match {self._name}: {shown(text)}.", text=text)

    def growing(self) -> Division:
        """Return a `Division` for a growing text, written under any options."""
        return Division(self._machines_of(True))

    @cached_method
    def _machines_of(self, is_loose: bool) -> list[Any]:
        """Return the automata of the parts."""
        # Imported here, because automata are a lot of code for users who only make types.
        from structgen.automaton import build

        return [build(part, LOOSE if is_loose else {}).machine for part in self._parts]


def is_text_of(divider: Divider, text: str) -> bool:
    """Return whether ``text`` can be divided."""
    try:
        divider(text)
    except ParseError:
        return False
    return True


Lower = Callable[[Any], OutputType]


def joined_type(value: Joined, name: str, lower: Lower) -> OutputType:
    """Return the output type of a sum. Parses to the text."""
    parts = [_part(part, f"part {n} of {name}", lower) for n, part in enumerate(value.parts, 1)]
    return _sequence(parts, str, name, all_checked(parts))


def repeated_type(value: Repeated, name: str, lower: Lower) -> OutputType:
    """Return the output type of several texts in a row. Parses to the text."""
    return _repeated(_part(value.part, f"the part of {name}", lower), value, name)


def _repeated(part: OutputType, value: Repeated, name: str) -> OutputType:
    regex = regular(part.grammar)
    grammar: ir.Grammar = ir.Times(part.grammar, value.least, value.most)
    if regex is not None:
        grammar = ir.Pattern(ir.Repeat(regex, value.least, value.most), source=name)
    return OutputType(
        grammar,
        str,
        name,
        part.checked,
        locate=part.locate,
        fitted=fitted_parts([part], lambda fit: _repeated(fit[0], value, name)),
    )


def template_type(value: Template, name: str, lower: Lower) -> OutputType:
    """Return the output type of a template. Parses to its holes' values by name."""
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
                raise ParseError(f"In hole {hole!r}: {error}", text=text) from error
        return found

    paired = list(zip(holes, outputs, strict=True))
    checked = [
        (f"$.{hole}{path.removeprefix('$')}", named)
        for hole, output in paired
        for path, named in output.checked
    ]
    parts = [None if hole is None else Part(hole, output) for hole, output in paired]
    return _sequence(
        outputs, parse, name, tuple(checked), lambda: _HoleReader(parts, divide.growing())
    )


class _HoleReader:
    """See `user.PartReader`.

    Args:
        parts: the parts of the text, None for the template's own.
        division: the division of the text.
    """

    def __init__(self, parts: Sequence[Part | None], division: Division) -> None:
        self._parts = parts
        self.names: frozenset[str | int] | None = frozenset(one.step for one in parts if one)
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
    """Return the output type of a sequence of output types."""
    located = [part.locate for part in parts if part.locate is not None]
    return OutputType(
        ir.Sequence(tuple(part.grammar for part in parts)),
        parse,
        name,
        checked,
        locate=located[0] if len(located) == 1 else None,
        fitted=fitted_parts(parts, lambda fit: _sequence(fit, parse, name, checked, growing)),
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
            f"In {where}: ToolCalls describes a complete answer in the model's own syntax and "
            "cannot be part of another text. Use ToolCalls(...) on its own."
        )
    return output


def _check_is_text(grammar: ir.Grammar, where: str) -> None:
    """Refuse parts that are written with tokens without text, which could not be parsed."""
    for terminal in ir.special_tokens(grammar):
        raise OutputTypeError(
            f"In {where}: the grammar contains the special token {terminal.text!r}, which is not "
            "text, so it cannot fill a hole of a template. Join the parts with + instead."
        )
