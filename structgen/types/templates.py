"""Text with holes: `Template`, which parses to its holes by name; and `Text`, to begin sums with.

Has the user's classes, and parses the template string. `joined` combines the parts into one
grammar, and divides a finished text.
"""

from __future__ import annotations

import functools
import re
import string
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from structgen.errors import OutputTypeError

from .regexes import TextPattern
from .schemas import shown
from .sums import Combining, Typed


@dataclass(frozen=True, slots=True)
class Text(TextPattern[str]):
    r"""Exactly this text. Use it to begin a sum of texts and types.

    ``Text("Name: ") + Regex("[A-Z][a-z]+") + "\nAge: " + int`` is an output type: its parts
    one after the other. It parses to the whole text; for the values by name see `Template`.

    Attributes:
        text: the text.
    """

    text: str

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise OutputTypeError(f"Text takes a str, got {type(self.text).__name__}.")

    @property
    def texts(self) -> tuple[str, ...]:
        """The only text."""
        return (self.text,)

    def expression(self) -> list[Any]:
        """Return an expression of `grammar.regex.algebra`."""
        return ["regex", re.escape(self.text), 0]

    def __repr__(self) -> str:
        return f"Text({self.text!r})"


class Template(Combining, Typed[dict[str, Any]]):
    """Text with holes, each of an output type: ``Template("Name: {name}", name=Regex("[A-Z]+"))``.

    Parses to a dict of the holes' values, by name. ``{{`` and ``}}`` are braces. A hole is written
    as its type would be alone: ``int`` as bare digits, a class as JSON.

    If a text can be divided in several ways, the last hole is as short as possible, then the one
    before it, and so on.

    Args:
        text: the text, with each hole once.
        holes: the output types by name.

    Raises:
        OutputTypeError: a hole without a type, a type without a hole, a name twice, or braces that
            belong to no hole.
    """

    __slots__ = ("holes", "parts", "text")

    text: str
    """The text as it was passed."""
    parts: tuple[tuple[str, str | None], ...]
    """Texts, each with the name of the hole after it; None after the last text."""
    holes: Any
    """The output types by name."""

    def __init__(self, text: str, /, **holes: Any) -> None:
        if not isinstance(text, str):
            raise OutputTypeError(f"Template takes its text as a str, got {type(text).__name__}.")
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "parts", _parts(text, holes))
        object.__setattr__(self, "holes", MappingProxyType(dict(holes)))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a Template cannot be changed: {name}")

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(Template, self.text, **self.holes), ()

    def __repr__(self) -> str:
        return f"Template({shown(self.text)})"


def _parts(text: str, holes: dict[str, Any]) -> tuple[tuple[str, str | None], ...]:
    """Return the texts between holes, each with the hole after it."""
    whole = f"Template({shown(text)})"
    parts: list[tuple[str, str | None]] = []
    before = ""
    try:
        fields = list(string.Formatter().parse(text))
    except ValueError as error:
        raise OutputTypeError(
            f"{whole}: {error}. Write {{{{ and }}}} for literal braces."
        ) from error
    seen: set[str] = set()
    for literal, name, spec, conversion in fields:
        before += literal
        if name is None:
            continue
        if spec or conversion:
            raise OutputTypeError(
                f"{whole}: the hole {name!r} has a format, which is not supported. The output "
                "type determines how the value is written."
            )
        if name not in holes:
            what = f"the hole {name!r} has no output type" if name else "a hole has no name"
            fix = f"Pass {name}=..." if name.isidentifier() else "Name it: {answer}, answer=..."
            raise OutputTypeError(
                f"{whole}: {what}. {fix}, or write {{{{ and }}}} for literal braces."
            )
        if name in seen:
            raise OutputTypeError(
                f"{whole}: the hole {name!r} appears twice and would have two values. Rename one "
                "of them."
            )
        seen.add(name)
        parts.append((before, name))
        before = ""
    unused = [name for name in holes if name not in seen]
    if unused:
        raise OutputTypeError(
            f"{whole} has no hole {unused[0]!r}. Write {{{unused[0]}}} where its value belongs."
        )
    return (*parts, (before, None))
