"""JSON texts as trees that keep what validators forget: spellings, order, duplicate members.

`read` parses strictly (RFC 8259, UTF-8); `plain` gives the Python value a validator
sees; `spelled` writes a tree in one normal spelling. Knows no schemas.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any


class NotJson(ValueError):
    """The text is not JSON, or not text."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it is written."""

    text: str

    @property
    def value(self) -> Decimal:
        return Decimal(self.text)

    @property
    def is_float(self) -> bool:
        """Whether parsers read it as a double (others as an integer of any size)."""
        return not self.text.lstrip("-").isdigit()

    @property
    def is_out_of_range(self) -> bool:
        """Whether the nearest double is infinite, or 0 though the number is not."""
        if not self.is_float:
            return False
        double = float(self.text)
        is_zero = not any(digit in "123456789" for digit in self.text.lower().partition("e")[0])
        return math.isinf(double) or (double == 0 and not is_zero)

    @property
    def digits(self) -> int:
        """Most digits before or after the point, without an exponent."""
        whole, _, fraction = decimal_text(abs(self.value)).partition(".")
        return max(len(whole), len(fraction))

    @property
    def as_double(self) -> Number:
        """The number that parsers make of it: the double's shortest spelling.

        Another number only where it has more than 15 significant digits. Not for numbers that are
        out of range.
        """
        if not self.is_float:
            return self
        return Number(decimal_text(Decimal(repr(float(self.text)))))

    @property
    def is_double(self) -> bool:
        """Whether parsers read this very number."""
        return self.as_double.value == self.value


class Members(list[tuple[str, Any]]):
    """The members of an object as they are written, duplicates and all."""


def read(data: bytes | str) -> Any:
    """The tree of a JSON text.

    Raises:
        NotJson: it is not UTF-8, not JSON, or holds half a surrogate pair, which no text can.
    """

    def refuse(name: str) -> Any:
        raise NotJson(name)

    try:
        text = data.decode() if isinstance(data, bytes) else data
        tree = json.loads(
            text,
            parse_int=Number,
            parse_float=Number,
            parse_constant=refuse,
            object_pairs_hook=Members,
        )
        if "\\u" in text:
            for string in strings(tree):
                string.encode()
    except ValueError as error:  # of which UnicodeError and JSONDecodeError are kinds
        raise NotJson(str(error)) from error
    return tree


def nodes(tree: Any) -> Iterator[Any]:
    """Every value in the tree, the tree itself first."""
    yield tree
    if isinstance(tree, Members):
        for _, value in tree:
            yield from nodes(value)
    elif isinstance(tree, list):
        for item in tree:
            yield from nodes(item)


def strings(tree: Any) -> Iterator[str]:
    """Every string and name in the tree."""
    for node in nodes(tree):
        if isinstance(node, str):
            yield node
        elif isinstance(node, Members):
            yield from (name for name, _ in node)


def numbers(tree: Any) -> Iterator[Number]:
    """Every number in the tree."""
    return (node for node in nodes(tree) if isinstance(node, Number))


def has_duplicates(tree: Any) -> bool:
    """Whether some object has two members of one name."""
    return any(
        isinstance(node, Members) and len({name for name, _ in node}) < len(node)
        for node in nodes(tree)
    )


def plain(tree: Any) -> Any:
    """What ``json.loads`` gives: doubles, and of members with one name the last."""
    if isinstance(tree, Number):
        return float(tree.text) if tree.is_float else int(tree.text)
    if isinstance(tree, Members):
        return {name: plain(value) for name, value in tree}
    return [plain(item) for item in tree] if isinstance(tree, list) else tree


def mapped(tree: Any, change: Callable[[Number], Number]) -> Any:
    """The tree with every number changed."""
    if isinstance(tree, Number):
        return change(tree)
    if isinstance(tree, Members):
        return Members((name, mapped(value, change)) for name, value in tree)
    return [mapped(item, change) for item in tree] if isinstance(tree, list) else tree


def as_doubles(tree: Any) -> Any:
    """The tree as a parser sees it: numbers that are no doubles replaced by what they become."""
    return mapped(tree, lambda n: n if n.is_double else n.as_double)


def decimal_text(value: Decimal) -> str:
    """Plain notation: no exponent, no needless zeros, ``-0`` as ``0``."""
    text = format(value, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return text if text not in ("-0", "") else "0"


def spellings(number: Number) -> list[str]:
    """How serialisers may write a number: as it is, plainly, with a fraction, with an exponent."""
    text = decimal_text(number.value)
    exact = format(number.value.normalize(), "e").replace("e+", "e")
    return list(dict.fromkeys((number.text, text, text if "." in text else f"{text}.0", exact)))


def spelled(tree: Any, number: Callable[[Number], str] | None = None) -> str:
    """The tree, compact and without needless escapes; numbers plain unless ``number`` says how."""
    if isinstance(tree, Number):
        return number(tree) if number else decimal_text(tree.value)
    if isinstance(tree, Members):
        pairs = (f"{spelled(name)}:{spelled(value, number)}" for name, value in tree)
        return "{" + ",".join(pairs) + "}"
    if isinstance(tree, list):
        return "[" + ",".join(spelled(item, number) for item in tree) + "]"
    return json.dumps(tree, ensure_ascii=False)
