"""Regular expressions of the grammar IR as JSON data, and read again, checked.

Sets of characters stand once in a table and are named by their index; characters one after the
other are a string. What is read is made by the constructors that read patterns too, so that it is
no larger and no stranger than what a pattern as long as the data could say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from structgen.errors import OutputTypeError
from structgen.grammar import ir
from structgen.grammar.regex import tree


class Sets:
    """The table of character sets, while it is written."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []
        self._numbers: dict[ir.Ranges, int] = {}

    def number(self, chars: ir.CharSet) -> int:
        """The index of a set."""
        number = self._numbers.get(chars.ranges)
        if number is None:
            number = self._numbers[chars.ranges] = len(self.rows)
            self.rows.append([end for one in chars.ranges for end in one])
        return number


def write(regex: ir.Regex, sets: Sets) -> Any:
    """A regular expression as lists, strings and numbers."""
    match regex:
        case ir.CharSet():
            return sets.number(regex)
        case ir.Concat(parts):
            return ["then", *_parts(parts, sets)]
        case ir.Alternate(parts):
            return ["or", *(write(part, sets) for part in parts)]
        case ir.Repeat(body, least, most):
            return ["times", write(body, sets), least, most]
        case ir.Intersect(parts):
            return ["and", *(write(part, sets) for part in parts)]
        case ir.Complement(body):
            return ["not", write(body, sets)]
        case ir.Lookahead(body, negate):
            return ["ahead", write(body, sets), negate]
        case ir.Lookbehind(body, negate):
            return ["behind", write(body, sets), negate]
        case ir.Checksum(modulus, steps, between, gaps, count):
            places = [[[number, sets.number(chars)] for number, chars in step] for step in steps]
            return ["checksum", modulus, places, sets.number(between), list(gaps), count]
        case ir.StartAnchor():
            return ["start"]
        case ir.EndAnchor():
            return ["end"]


def _parts(parts: tuple[ir.Regex, ...], sets: Sets) -> list[Any]:
    out: list[Any] = []
    text = ""
    for part in parts:
        if isinstance(part, ir.CharSet) and len(part.ranges) == 1:
            low, high = part.ranges[0]
            if low == high:
                text += chr(low)
                continue
        if text:
            out.append(text)
            text = ""
        out.append(write(part, sets))
    return [*out, text] if text else out


def read_sets(rows: Any) -> list[ir.CharSet]:
    """The table of character sets.

    Raises:
        OutputTypeError: it is none.
    """
    return [_set(row) for row in _list(rows)]


def _set(row: Any) -> ir.CharSet:
    ends = [_whole(end, ir.MAX_CODE_POINT) for end in _list(row)]
    if len(ends) % 2:
        raise malformed("a set of characters")
    return ir.char_set(list(zip(ends[::2], ends[1::2], strict=True)))


def read(data: Any, sets: list[ir.CharSet]) -> ir.Regex:
    """The regular expression that `write` wrote.

    Raises:
        OutputTypeError: it is none.
    """

    def again(part: Any) -> ir.Regex:
        return read(part, sets)

    match data:
        case bool():
            pass
        case int():
            return _of_table(data, sets)
        case ["then", *parts]:
            return tree.concat(item for part in parts for item in _items(part, again))
        case ["or", *parts]:
            return tree.alternate(map(again, parts))
        case ["times", body, least, most] if most is None or _whole(least) <= _whole(most):
            return tree.repeat(again(body), _whole(least), most)
        case ["and", _, *_]:
            return ir.Intersect(tuple(map(again, data[1:])))
        case ["not", body]:
            return tree.complement(again(body))
        case ["ahead", body, bool(negate)]:
            return ir.Lookahead(again(body), negate)
        case ["behind", body, bool(negate)]:
            return ir.Lookbehind(again(body), negate)
        case ["checksum", modulus, list(places), between, list(gaps), count]:
            return _checksum(modulus, places, _of_table(between, sets), gaps, count, sets)
        case ["start"]:
            return ir.StartAnchor()
        case ["end"]:
            return ir.EndAnchor()
    raise malformed("a regular expression")


def _items(part: Any, again: Callable[[Any], ir.Regex]) -> tuple[ir.Regex, ...]:
    if not isinstance(part, str):
        return (again(part),)
    if any(0xD800 <= ord(character) < 0xE000 for character in part):
        raise malformed("a text")
    return tuple([ir.character(ord(character)) for character in part])


def _checksum(
    modulus: Any,
    places: list[Any],
    between: ir.CharSet,
    gaps: list[Any],
    count: Any,
    sets: list[ir.CharSet],
) -> ir.Checksum:
    steps = []
    for place in places:
        step = []
        for pair in _list(place):
            match pair:
                case [number, chars]:
                    step.append((_whole(number), _of_table(chars, sets)))
                case _:
                    raise malformed("a checksum")
        steps.append(tuple(step))
    before = tuple([_whole(gap, max(len(steps) - 1, 0)) for gap in gaps])
    if _whole(modulus) < 2 or sorted(set(before)) != list(before):
        raise malformed("a checksum")
    return ir.Checksum(modulus, tuple(steps), between, before, _whole(count, len(before)))


def _of_table(index: Any, sets: list[ir.CharSet]) -> ir.CharSet:
    number = _whole(index)
    if number >= len(sets):
        raise malformed("a set of characters")
    return sets[number]


def _whole(value: Any, most: int | None = None) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise malformed("a whole number")
    if most is not None and value > most:
        raise malformed("a number in its bounds")
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise malformed("a list")
    return value


def malformed(what: str) -> OutputTypeError:
    """What to raise where something else stands than ``what``."""
    return OutputTypeError(
        f"the bytes of the constraint are malformed: something else stands where {what} was "
        "expected. They were not written by Constraint.to_bytes()."
    )
