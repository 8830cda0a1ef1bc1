"""What a user writes for free text with typed values in it: `Tagged`, `TaggedText`.

Owns these values and what is wrong with them before any type is looked at. Knows no grammar: see
`tag_grammar` (the texts) and `tag_reader` (the values of one).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from structgen.errors import OutputTypeError

from .sums import Combining
from .typed import Typed
from .user import SpecialToken


@dataclass(frozen=True, slots=True)
class Tagged(Combining, Typed["list[str | TaggedValue]"]):
    """Free text in which each ``begin`` opens a text of ``type``, which ``end`` closes.

    An output type by itself, and a part of `TaggedText`. From the moment ``begin`` is there the
    mask allows the type alone; until then everything but special tokens and a ``begin`` that opens
    nothing. Parses to a list: a str for each piece of text that is not empty, a `TaggedValue` for
    each tag.

    Attributes:
        begin: text, or a `SpecialToken`. Text that begins with the name of a token which the
            vocabulary has as a control token, and not as text, means that token.
        type: any output type but a grammar, or another of these.
        end: the same as ``begin``, but where it stands, tokens may be named anywhere in it. The
            first one that comes where ``type`` is whole.
        at_least: fewest of them.
        at_most: most of them; None: any number.
    """

    begin: str | SpecialToken
    type: Any
    end: str | SpecialToken
    at_least: int = field(default=0, kw_only=True)
    at_most: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("begin", "end"):
            mark = getattr(self, name)
            if not isinstance(mark, (str, SpecialToken)) or mark == "":
                raise OutputTypeError(
                    f"Tagged: {name}={mark!r} is neither text nor a SpecialToken. Write what the "
                    f"model is to write there, such as {'<sum>' if name == 'begin' else '</sum>'}."
                )
        _check_counts("Tagged", self.at_least, self.at_most)

    def __repr__(self) -> str:
        shown = getattr(self.type, "__name__", None) or repr(self.type)
        return f"Tagged({self.begin!r}, {shown}, {self.end!r}{_counts(self)})"

    def __get_pydantic_core_schema__(self, source: Any, handler: Any = None) -> Any:
        raise _no_json(self if handler is not None else Tagged)


@dataclass(frozen=True, slots=True, init=False)
class TaggedText(Combining, Typed["list[str | TaggedValue]"]):
    """Free text with several kinds of tags, each with a type of its own.

    Args:
        tags: the kinds, whose ``begin`` differ.
        at_least: fewest tags of all kinds together.
        at_most: most of them; None: any number.
    """

    tags: tuple[Tagged, ...]
    at_least: int
    at_most: int | None

    def __init__(self, *tags: Tagged, at_least: int = 0, at_most: int | None = None) -> None:
        for tag in tags:
            if not isinstance(tag, Tagged):
                raise OutputTypeError(
                    f"TaggedText takes Tagged(begin, type, end), got {tag!r}. Several of them are "
                    "arguments of their own: TaggedText(first, second)."
                )
        if not tags:
            raise OutputTypeError("TaggedText needs at least one Tagged(begin, type, end).")
        _check_counts("TaggedText", at_least, at_most)
        object.__setattr__(self, "tags", tags)
        object.__setattr__(self, "at_least", at_least)
        object.__setattr__(self, "at_most", at_most)

    def __repr__(self) -> str:
        return f"TaggedText({', '.join(map(repr, self.tags))}{_counts(self)})"

    def __get_pydantic_core_schema__(self, source: Any, handler: Any = None) -> Any:
        raise _no_json(self if handler is not None else TaggedText)


@dataclass(frozen=True, slots=True)
class TaggedValue:
    """One tag of a text.

    Attributes:
        tag: which kind.
        value: what stands in it.
    """

    tag: Tagged
    value: Any


Mark = tuple["str | SpecialToken", ...]
"""A begin or an end, in pieces of text and tokens."""


def mark_of(written: str | SpecialToken, tokens: Collection[str]) -> Mark:
    """A begin or an end in pieces.

    Args:
        written: what the user wrote.
        tokens: names of the tokens that are no text.
    """
    if isinstance(written, SpecialToken):
        return (written,)
    parts: list[str | SpecialToken] = []
    rest = written
    while rest:
        found = [(at, -len(name), name) for name in tokens if name and (at := rest.find(name)) >= 0]
        if not found:
            return (*parts, rest)
        at, _, name = min(found)
        parts += [rest[:at]] * bool(at) + [SpecialToken(name)]
        rest = rest[at + len(name) :]
    return tuple(parts)


def text_of(mark: Mark) -> str:
    """How a begin or an end stands in the output's text."""
    return "".join(part if isinstance(part, str) else part.text for part in mark)


def _no_json(what: Any) -> OutputTypeError:
    name = what.__name__ if isinstance(what, type) else repr(what)
    return OutputTypeError(
        f"{name} cannot be a part of JSON: it is an output type of its own. Inside a string of "
        "JSON, write Regex."
    )


def _check_counts(name: str, least: Any, most: Any) -> None:
    for value in [least] if most is None else [least, most]:
        if type(value) is not int or value < 0:
            raise OutputTypeError(f"{name}: a count is a whole number from 0, got {value!r}.")
    if most is not None and most < least:
        raise OutputTypeError(f"{name}: at_least={least} is more than at_most={most}.")


def _counts(value: Tagged | TaggedText) -> str:
    shown = f", at_least={value.at_least}" if value.at_least else ""
    return shown if value.at_most is None else f"{shown}, at_most={value.at_most}"
