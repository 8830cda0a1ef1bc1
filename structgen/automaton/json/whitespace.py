"""Whitespace between JSON tokens, as a tiny automaton that structural leaves embed.

States are integers: 0 before anything is read, `Whitespace.after_mark` directly after a comma or
colon. `Whitespace.edges` has the whitespace bytes that may follow, `Whitespace.may_end` whether the
next JSON token may start.

`Punctuation` is the leaf that all arrays share, and all objects: brackets and commas with the
whitespace around them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, wraps
from typing import Any, TypeVar

from structgen.automaton.core.leaf import Leaf
from structgen.automaton.core.shared import AUTOMATA
from structgen.automaton.regex.automaton import RegexAutomaton
from structgen.errors import CompileLimitExceeded, OptionError, OutputTypeError, did_you_mean
from structgen.grammar import ir
from structgen.grammar.regex import parse_python
from structgen.storage import Numbers

STYLES = ("natural", "compact", "spaced")
"""The styles with whitespace only after commas and colons."""

JSON_WHITESPACE = ir.char_set([(0x20, 0x20), (0x09, 0x0A), (0x0D, 0x0D)])


class Whitespace:
    """The whitespace of a JSON text at each place where RFC 8259 allows some.

    Args:
        style: ``"natural"`` for at most one space after each comma and colon and none elsewhere,
            ``"compact"`` for none, ``"spaced"`` for exactly one there, ``"flexible"`` for any run
            of space, tab, line feed and carriage return, or a regular expression (Python syntax)
            for the whitespace of each place.
        max_run: the longest run under ``"flexible"``, in characters.

    Attributes:
        edges: for each state, the whitespace bytes that may follow, with the states after them.
        may_end: for each state, whether the next JSON token may start.
        after_mark: the state after a comma or colon.
        comma, colon: each with the shortest whitespace around it.
        first, last, empty: the shortest whitespace after an opening bracket, before a closing one,
            and between the brackets of an empty value.

    Raises:
        OptionError: not a regular expression, or one that matches text that is not JSON whitespace,
            or matches nothing, or needs too many states.
    """

    def __init__(self, style: str = "natural", max_run: int = 20) -> None:
        self.edges: list[dict[int, int]] = []
        self.may_end: list[bool] = []
        self.made: dict[Callable[..., Any], Any] = {}  # objects stored with it; see `kept`
        try:
            self._explore(_automaton(style, max_run))
        except CompileLimitExceeded as error:
            option = f"max_whitespace={max_run}" if style == "flexible" else f"whitespace={style!r}"
            raise OptionError(f"{option} repeats too often: {error}.") from error
        self.after_mark = 0
        if style in ("natural", "spaced"):
            self.after_mark = len(self.edges)
            self.edges.append({0x20: 0})
            self.may_end.append(style == "natural")
        least, after = self._shortest(0), self._shortest(self.after_mark)
        self.first = self.last = self.empty = least
        self.comma, self.colon = least + b"," + after, least + b":" + after

    @property
    def weight(self) -> int:
        """Its size in bytes, roughly, with the leaves stored with it."""
        leaves = [one for one in self.made.values() if isinstance(one, Leaf)]
        return 1000 + 500 * len(self.edges) + sum([leaf.weight for leaf in leaves])

    def _explore(self, automaton: RegexAutomaton) -> None:
        """Number the states and copy their edges."""
        numbers = Numbers([automaton.start])
        for state in numbers.listed:
            self.may_end.append(automaton.label(state) >= 0)
            row: dict[int, int] = {}
            for mask, to in automaton.moves(state):
                for byte in (0x20, 0x09, 0x0A, 0x0D):
                    minterm = automaton.alphabet.minterm(byte)
                    if mask >> minterm & 1:
                        row[byte] = numbers[to]
            self.edges.append(row)

    def _shortest(self, start: int) -> bytes:
        """Return the shortest whitespace from state ``start`` to the next JSON token."""
        found = {start: b""}
        order = [start]
        for state in order:
            if self.may_end[state]:
                return found[state]
            for byte, to in self.edges[state].items():
                if to not in found:
                    found[to] = found[state] + bytes([byte])
                    order.append(to)
        raise AssertionError("an automaton without dead states has an end")


def _near(style: str) -> str:
    """Return a question that suggests the style that was meant, if one is near."""
    names = (*STYLES, "flexible")
    asked = style.strip().lower()
    near = [name for name in names if len(asked) > 2 and name.startswith(asked)]
    return f" Did you mean {near[0]!r}?" if near else did_you_mean(asked, names)


def _automaton(style: str, max_run: int) -> RegexAutomaton:
    if style in STYLES:
        return RegexAutomaton(ir.EPSILON)
    if style == "flexible":
        return RegexAutomaton(ir.Repeat(JSON_WHITESPACE, 0, max_run))
    try:
        regex = parse_python(style)
    except CompileLimitExceeded:
        raise
    except OutputTypeError as error:
        raise OptionError(
            f"whitespace={style!r} is not 'natural', 'compact', 'spaced' or 'flexible', and not a "
            f"valid regular expression: {error}{_near(style)}"
        ) from error
    outside = ir.Intersect((regex, ir.Complement(ir.Repeat(JSON_WHITESPACE, 0, None))))
    if not RegexAutomaton(outside).is_empty():
        raise OptionError(
            f"whitespace={style!r} matches text that is not JSON whitespace.{_near(style)} Use "
            "'natural', 'compact', 'spaced', 'flexible', or a regular expression for space, tab, "
            "line feed and carriage return: [ \\t\\n\\r], because \\s matches more characters."
        )
    automaton = RegexAutomaton(regex)
    if automaton.is_empty():
        raise OptionError(f"whitespace={style!r} matches nothing, not even the empty string.")
    return automaton


_styled = lru_cache(maxsize=len(STYLES))(Whitespace)


def whitespace(style: str, max_run: int = 20) -> Whitespace:
    """Return shared whitespace; arguments as for `Whitespace`. A pattern may need megabytes."""
    return _styled(style) if style in STYLES else AUTOMATA.get(Whitespace, style, max_run)


_T = TypeVar("_T")


def kept(make: Callable[[Whitespace], _T]) -> Callable[[Whitespace], _T]:
    """Store an object made of some whitespace as long as that whitespace lives."""

    @wraps(make, updated=())
    def made(space: Whitespace) -> _T:
        found: _T | None = space.made.get(make)
        return space.made.setdefault(make, make(space)) if found is None else found

    return made


class Indentation(Whitespace):
    """The whitespace of ``json.dumps(value, indent=indent)`` in an object or array.

    Args:
        indent: spaces for each level.
        depth: the number of open objects and arrays inside it, itself included.
    """

    def __init__(self, indent: int, depth: int) -> None:
        super().__init__("spaced")
        self.first = b"\n" + b" " * (indent * depth)
        self.last = b"\n" + b" " * (indent * (depth - 1))
        self.comma = b"," + self.first


indentation = lru_cache(maxsize=256)(Indentation)


CLOSE, ITEM = 0, 1


class Punctuation(Leaf):
    """The punctuation around items, or around members up to a key's first character.

    Ends with `CLOSE` after the closing bracket; with `ITEM` where an item starts, or after the
    opening quote of a key.

    Args:
        space: whitespace allowed around it.
        brackets: the opening and the closing bracket.
        is_quoted: whether a quote follows the opening bracket or comma.
    """

    def __init__(self, space: Whitespace, brackets: bytes, is_quoted: bool) -> None:
        super().__init__()
        self._space = space
        self._brackets = brackets
        self._opening, self._closing = brackets
        self._is_quoted = is_quoted

    def open(self, item: bool, close: bool) -> int:
        """Return the state before the opening bracket, after which an item may come, or the closing
        bracket."""
        return self.state(("open", item, close))

    def after_item(self, item: bool, close: bool) -> int:
        """Return the state after an item, after which ``,`` and another item may come, or the
        closing bracket."""
        return self.state(("next", 0, item, close))

    def _edges(self, key: Any) -> Mapping[int, Any]:
        phase, *rest = key
        if phase == "open":
            return {self._opening: ("first", 0, *rest)}
        if phase in ("closed", "quoted"):
            return {}
        at, item, close = rest
        edges: dict[int, Any] = {
            byte: (phase, to, item, close) for byte, to in self._space.edges[at].items()
        }
        if self._space.may_end[at]:
            if item and phase == "next":
                edges[0x2C] = ("comma", self._space.after_mark, True, False)
            elif item and self._is_quoted:
                edges[0x22] = ("quoted",)
            if close:
                edges[self._closing] = ("closed",)
        return edges

    def _label(self, key: Any) -> int:
        phase, *rest = key
        if phase in ("closed", "quoted"):
            return CLOSE if phase == "closed" else ITEM
        is_before = phase in ("first", "comma") and rest[1] and not self._is_quoted
        return ITEM if is_before and self._space.may_end[rest[0]] else -1


class IndentedPunctuation(Punctuation):
    """`Punctuation` with different whitespace at each place; see `Indentation`.

    After the first byte, a state is the rests of the possible texts, each with its outcome.
    """

    def _edges(self, key: Any) -> Mapping[int, Any]:
        phase, *ways = key
        if phase != "rest":
            item, close = ways[-2:]
            space, quote = self._space, b'"' if self._is_quoted else b""
            if phase == "open":
                texts = self._brackets[:1] + space.first + quote, self._brackets
            else:
                texts = space.comma + quote, space.last + self._brackets[1:]
            ways = [(texts[0], ITEM)] * item + [(texts[1], CLOSE)] * close
        edges: dict[int, Any] = {}
        for text, outcome in ways:
            if text:
                edges[text[0]] = *edges.get(text[0], ("rest",)), (text[1:], outcome)
        return edges

    def _label(self, key: Any) -> int:
        phase, *ways = key
        return next((end for text, end in ways if not text), -1) if phase == "rest" else -1


def _punctuation(space: Whitespace, brackets: bytes, is_quoted: bool) -> Punctuation:
    kind = IndentedPunctuation if isinstance(space, Indentation) else Punctuation
    return kind(space, brackets, is_quoted)


@kept
def array_leaf(space: Whitespace) -> Punctuation:
    """Return the leaf of arrays with such whitespace."""
    return _punctuation(space, b"[]", False)


@kept
def before_key(space: Whitespace) -> Punctuation:
    """Return the leaf of objects up to where a key begins, with such whitespace."""
    return _punctuation(space, b"{}", True)
