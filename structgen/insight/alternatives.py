r"""Find the values of an output that were a choice among few, and their alternatives.

For each scalar of a finished JSON document, and for a text as a whole, it lists the texts that the
automaton allows in its place, if they are few. It makes no difference whether the type is a
boolean, an enum, a small range of integers or ``Literal[...] | None``. Knows no models,
probabilities or schemas.

One string has many spellings: ``"ö"``, ``"\u00f6"`` and ``"\u00F6"``. `WrittenTexts` tells whether
two texts, or their beginnings, spell one value.
"""

from __future__ import annotations

import functools
import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

from structgen.automaton.core import DEAD
from structgen.constraint import Constraint
from structgen.errors import ParseError
from structgen.grammar import ir
from structgen.grammar.json_schema import child_path, json_key
from structgen.models.base import Passes, is_due, run_passes

from .json_places import ESCAPE, ByteReader, Closed, JsonReader, scalars

_QUOTE_MARK = b'"'

_PIECE = re.compile(rb"[^\\]+|" + ESCAPE.pattern, re.DOTALL)
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


def canonical(text: bytes) -> tuple[bytes, bytes]:
    """Write part of a JSON string in its canonical spelling.

    Args:
        text: a part that begins with a whole character; it may contain quotes.

    Returns:
        The whole characters, each unescaped where JSON allows that, otherwise as its shortest
        escape; and the beginning of an unfinished escape, in lower case.
    """
    if b"\\" not in text:
        return text, b""
    whole = bytearray()
    at = 0
    while (piece := _PIECE.match(text, at)) is not None:
        whole += _unescaped(piece[0]) if piece[0].startswith(b"\\") else piece[0]
        at = piece.end()
    return bytes(whole), text[at:].lower()


def may_become(whole: bytes, begun: bytes, text: bytes) -> bool:
    """Return whether a beginning can continue to ``text``, both as `canonical` returns them."""
    if not text.startswith(whole):
        return False
    if not begun:
        return True
    rest = text[len(whole) :]
    if not rest or rest.startswith(_QUOTE_MARK):
        return False
    return rest.startswith(begun) or _escaped(rest).startswith(begun)


def is_closed(text: bytes) -> bool:
    """Return whether a JSON string has its closing quote at its end."""
    if len(text) < 2 or text[-1:] != _QUOTE_MARK:
        return False
    escapes = len(text) - 1 - len(text[:-1].rstrip(b"\\"))
    return escapes % 2 == 0


def longest(text: bytes) -> int:
    """Return the number of bytes of the longest spelling of a JSON scalar."""
    if not text.startswith(_QUOTE_MARK):
        return len(text)
    # Six for each UTF-16 unit; there are at most as many units as bytes.
    return max(6 * len(json.loads(text).encode("utf-16-le", "surrogatepass")) // 2 + 2, len(text))


@functools.lru_cache(4096)
def _unescaped(piece: bytes) -> bytes:
    char = json.loads(_QUOTE_MARK + piece + _QUOTE_MARK)
    try:
        return json.dumps(char, ensure_ascii=False)[1:-1].encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return piece.lower()


def _escaped(text: bytes) -> bytes:
    """Return the first character of ``text``, which `canonical` made, by its ``\\u`` escape."""
    if text.startswith(b"\\"):
        piece = _PIECE.match(text)
        char = json.loads(_QUOTE_MARK + (text if piece is None else piece[0]) + _QUOTE_MARK)
    else:
        char = text[:4].decode(errors="ignore")[:1]
    units = char.encode("utf-16-be", "surrogatepass")
    return b"".join(b"\\u%02x%02x" % (units[i], units[i + 1]) for i in range(0, len(units), 2))


@final
class WrittenTexts:
    """Texts that may be written from a place on, which lies before or inside them."""

    def __init__(
        self, texts: Sequence[bytes], *, is_json: bool, lead: bytes = b"", head: bytes = b""
    ) -> None:
        """Take the texts.

        Args:
            texts: different texts; scalars if ``is_json``, otherwise any.
            is_json: whether strings among them may have other spellings.
            lead: the text between the place and them.
            head: the part of them before the place.
        """
        self.count = len(texts)
        self._is_json = is_json
        self._lead = lead
        self._head = head
        written = [canonical(text)[0] if self._is_spelt(text) else text for text in texts]
        self._index = {text: i for i, text in enumerate(written)}
        self._sorted = sorted(written)  # texts with the same beginning are neighbours

    def is_open(self, text: bytes) -> bool:
        """Return whether one of the texts continues after ``text``, which begins at the place."""
        if len(text) < len(self._lead):
            return self._lead.startswith(text)
        if not text.startswith(self._lead):
            return False
        value = self._head + text[len(self._lead) :]
        if self._is_spelt(value):
            return _STRING.match(value) is None  # inside only these are allowed
        at = bisect_right(self._sorted, value)
        return at < len(self._sorted) and self._sorted[at].startswith(value)

    def ended(self, text: bytes) -> int | None:
        """Return the index of the text that is complete in ``text`` when none can continue: the
        longest that it begins with; None: it begins with none of them."""
        if not text.startswith(self._lead):
            return None
        value = self._head + text[len(self._lead) :]
        if self._is_spelt(value):
            string = _STRING.match(value)
            return None if string is None else self._index.get(canonical(string[0])[0])
        # Most often it is the first one checked.
        for at in range(bisect_right(self._sorted, value) - 1, -1, -1):
            if value.startswith(self._sorted[at]):
                return self._index[self._sorted[at]]
        return None

    def _is_spelt(self, value: bytes) -> bool:
        return self._is_json and value.startswith(_QUOTE_MARK) and b"\\" in value


MAX_ALTERNATIVES = 1000
"""Most texts that count as few."""

_MAX_STEPS = 500_000
"""Most bytes tried to find the texts of one place."""

_QUICK_STEPS = 10_000
"""The same for finding out, before a call, that there is none."""

_MOST_BYTES, _MOST_BYTES_OF_ALL, _MOST_HELD = 200_000, 8 << 20, 64 << 20
"""Most bytes of all texts of one place; of all places of an output, plus 100 per text; and of the
texts begun and found before it is known whether there are few."""

_NARROWING: tuple[frozenset[str], ...] = tuple(
    frozenset(words.split())
    for words in (
        *("boolean", "enum", "const", "pattern", "$structgen-regex", "not", "elsewhere", "empty"),
        *("format maxLength", "minimum maximum integer", "minimum maximum multipleOf"),
    )
)
"""The sets of `_words` in a schema that can leave a scalar few texts, together or spread over it. A
length alone cannot: there are a million characters."""

_QUOTE, _BACKSLASH = 0x22, 0x5C
_AFTER_SCALAR = frozenset(b" \t\n\r,]}")
_OPEN = frozenset(b"{[")


@dataclass(frozen=True, slots=True)
class Site:
    """A place in an output that has few possible texts.

    Attributes:
        path: JSON path of the value; ``$`` for the whole output.
        start: offset of the value's first byte in the output.
        chosen: index of the text that the output has.
        texts: all texts that are possible there after the preceding text, at least two; strings in
            their shortest spelling. The end of an array does not count.
        values: the values of the texts: JSON values, or the text itself if it is not JSON (see
            `names_of`).
    """

    path: str
    start: int
    chosen: int
    texts: tuple[bytes, ...]
    values: tuple[Any, ...]


def sites(
    constraint: Constraint,
    output: bytes,
    *,
    is_whole: bool = True,
    too_long: list[str] | None = None,
) -> Passes[list[Site]]:
    """Find the sites of an output, in its order; yield now and then.

    Args:
        constraint: the constraint that made the output.
        output: the bytes of the output.
        is_whole: whether it ended by itself. Otherwise a number or word at its end is left out,
            because it might have continued.
        too_long: collects the paths at which the alternatives are not known, because their texts
            are too long, alone or with earlier ones; ``$`` for a text that is not JSON and may have
            too many.

    Cost: a step of the automaton for each byte of the output and of each alternative.
    """
    found: list[Site] = []
    too_long = [] if too_long is None else too_long
    if not is_json(constraint):
        texts = (yield from whole_texts(constraint)) if is_whole else ()
        if texts is None:
            too_long.append("$")
        elif len(set(names := names_of(constraint, texts))) > 1:
            found.append(Site("$", 0, texts.index(output), texts, names))
        return found
    reader = JsonReader()
    events = reader.feed(output)
    if is_whole:
        events += reader.finish()
    walk = ByteReader(constraint)
    same: dict[tuple[bytes, ...], Site] = {}  # texts that places share are kept once
    left = _MOST_BYTES_OF_ALL
    for scalar in scalars(events):
        yield
        yield from read_to(walk, output, scalar.start)
        try:
            texts = yield from _texts(walk, is_json=True)
        except _TooLong:
            too_long.append(child_path("$", *scalar.path))
            continue
        if texts is not None and (texts in same or _are_several(texts)):
            if texts not in same:
                size = sum(map(len, texts)) + 100 * len(texts)
                if size > left:
                    too_long.append(child_path("$", *scalar.path))
                    continue
                left -= size
            made = site_of(texts, scalar, output)
            first = same.setdefault(texts, made)
            found.append(replace(made, texts=first.texts, values=first.values))
    return found


def read_to(walk: ByteReader, output: bytes | bytearray, end: int) -> Passes[None]:
    """Read an output up to an offset, and yield now and then."""
    while walk.length < end:
        if is_due():
            yield
        walk.read(bytes(output[walk.length : min(walk.length + 64, end)]))


def is_json(constraint: Constraint) -> bool:
    """Return whether every output is one JSON document."""
    return isinstance(constraint.output.grammar, ir.Json)


def whole_texts(constraint: Constraint) -> Passes[tuple[bytes, ...] | None]:
    """Return all possible outputs, sorted; None if they are not few. Yield now and then."""
    try:
        return (yield from _texts(ByteReader(constraint), is_json=is_json(constraint)))
    except _TooLong:
        return None


def names_of(constraint: Constraint, texts: Sequence[bytes]) -> tuple[str, ...]:
    """Return a name for each whole output: its text, or the shortest of those for the same value.

    Several spellings of one JSON value (``-0`` is 0) are one alternative; so are those of a number
    in a union of other texts.
    """
    names = [constraint.named.shown(text).decode() for text in texts]
    keys = [_value_key(constraint, name) for name in names]
    shortest: dict[Any, str] = {}
    for i in sorted(range(len(names)), key=lambda i: (len(names[i]), names[i])):
        shortest.setdefault(keys[i], names[i])
    return tuple(shortest[key] for key in keys)


def _value_key(constraint: Constraint, text: str) -> Any:
    """Return a key for an output: its JSON value, or its number or text."""
    if is_json(constraint):
        return json_key(json.loads(text))
    try:
        written, value = json.loads(text), constraint.output.parse(text)
    except (ParseError, ValueError, RecursionError):
        return text
    # A validator may turn any text into a number: "yes" and "you" stay two alternatives.
    is_number = {type(value), type(written)} <= {int, float} and value == written
    return (type(value), value) if is_number else text


def may_have_sites(constraint: Constraint) -> bool:
    """Return whether some output could have a site; False is certain."""
    grammar = constraint.output.grammar
    if isinstance(grammar, ir.Json):
        words = {*_words(grammar.schema)}
        return any(words >= some for some in _NARROWING)
    try:
        texts = run_passes(_texts(ByteReader(constraint), is_json=False, most=_QUICK_STEPS))
    except _TooLong:
        return True
    return texts is not None and len(texts) > 1


def _words(schema: Any) -> Iterator[str]:
    """Yield the keywords and types in a schema; ``elsewhere``: it refers to other documents."""
    if isinstance(schema, Mapping):
        for key, value in schema.items():
            yield key.replace("exclusiveM", "m")
            if key == "$ref" and not str(value).startswith("#"):
                yield "elsewhere"
            if key == "maxLength" and value == 0:
                yield "empty"
            yield from _words(value)
    elif isinstance(schema, str):
        yield schema
    elif isinstance(schema, Sequence):
        for one in schema:
            yield from _words(one)


def _are_several(texts: Sequence[bytes]) -> bool:
    """Return whether texts have more than one value; 0 and -0 are the same."""
    return len(texts) > 1 and len({json_key(json.loads(text)) for text in texts}) > 1


def site_of(texts: tuple[bytes, ...], scalar: Closed, output: bytes) -> Site:
    """Return the site of a closed value, with all its possible texts."""
    chosen = [key_of(text) for text in texts].index(key_of(output[scalar.start : scalar.end]))
    values = tuple(json.loads(text) for text in texts)
    return Site(child_path("$", *scalar.path), scalar.start, chosen, texts, values)


def texts_at(walk: ByteReader) -> Passes[tuple[bytes, ...] | None]:
    """Return the possible texts where a JSON value begins; None unless they are few and have at
    least two values. Yield now and then."""
    try:
        texts = yield from _texts(walk, is_json=True)
    except _TooLong:
        return None
    return texts if texts is not None and _are_several(texts) else None


def _texts(
    walk: ByteReader, *, is_json: bool, most: int | None = None
) -> Passes[tuple[bytes, ...] | None]:
    """Return the possible texts at ``walk``, sorted; None if they are not few.

    All JSON spellings of a string are one text, the shortest: the search follows characters, and
    different spellings of a character meet again after it. Every state can reach an end, so each
    begun text counts as at least one: the search stops as soon as there are too many.

    Yields now and then.

    Raises:
        _TooLong: finding out would take more than ``most`` bytes, or the texts have more than
            `_MOST_BYTES`.
    """
    machine = walk.machine
    found: list[bytes] = []
    begun = [_Begun(b"", walk.state, 0, b"")]
    nodes = _Nodes()
    n_bytes = 0  # bytes of the texts found
    steps, most = 0, most or _MAX_STEPS
    while begun:
        longer: list[_Begun] = []
        n_open = 0
        for text, state, node, escape in begun:
            following = walk.next_bytes(state)
            if is_json:
                if text and _may_end(text, following, machine.is_accepting(state)):
                    found.append(text)
                    n_bytes += len(text)
                following = _inside(text, following)
            elif machine.is_accepting(state):
                found.append(text)
                n_bytes += len(text)
            steps += len(following)
            if len(found) + n_open > MAX_ALTERNATIVES:
                return None
            if steps > most or n_bytes + n_open * len(text) > _MOST_HELD:
                raise _TooLong
            if is_due():
                yield
            if is_json and not text and not following.isdisjoint(_OPEN):
                return None
            is_string = is_json and text[:1] == b'"'
            for byte in sorted(following, reverse=True):
                more = text + bytes([byte])
                to = walk.step(state, byte, more)
                if to == DEAD:
                    continue
                if is_string and (escape or byte == _BACKSLASH):
                    there = nodes.spelt(node, escape + bytes([byte]))
                    if there is None:
                        continue
                    longer.append(_Begun(more, to, *there))
                    n_open += not there[1]
                else:
                    after = nodes.go(node, bytes([byte]))
                    if after is None:
                        continue
                    longer.append(_Begun(more, to, after, b""))
                    n_open += 1
        if len(found) + n_open > MAX_ALTERNATIVES:
            return None
        begun = longer
    if n_bytes > _MOST_BYTES:
        raise _TooLong
    return tuple(sorted(found))


class _TooLong(Exception):
    """The texts of a place are too long to be listed."""


class _Begun(NamedTuple):
    """A begun text: the bytes read, the state after them, and the value so far as a node of
    `_Nodes` and the beginning of an escape."""

    text: bytes
    state: int
    node: int
    escape: bytes


class _Nodes:
    """The beginnings of values, numbered in the order in which they are reached. Each is continued
    only once."""

    def __init__(self) -> None:
        self._to: dict[tuple[int, int], int] = {}
        self._escapes: set[tuple[int, bytes]] = set()

    def spelt(self, node: int, escape: bytes) -> tuple[int, bytes] | None:
        """Return the node after an escape and its unfinished part; None: as for `go`."""
        whole, rest = canonical(escape)
        if not whole:
            if (node, rest) in self._escapes:
                return None
            self._escapes.add((node, rest))
            return node, rest
        there = self.go(node, whole)
        return None if there is None else (there, rest)

    def go(self, node: int, data: bytes) -> int | None:
        """Return the node after some bytes; None: it was reached before."""
        is_new = False
        for byte in data:
            is_new = (node, byte) not in self._to
            node = self._to.setdefault((node, byte), len(self._to) + 1)
        return node if is_new else None


def _may_end(text: bytes, following: set[int], is_accepting: bool) -> bool:
    """Return whether the scalar read so far may be complete."""
    if text[0] == _QUOTE:
        return is_closed(text)
    return is_accepting or not following.isdisjoint(_AFTER_SCALAR)


def _inside(text: bytes, following: set[int]) -> set[int]:
    """Return the bytes that may follow and belong to the scalar."""
    if text[:1] == b'"':
        return set() if is_closed(text) else following
    return following - _AFTER_SCALAR


def boundary(ends: Sequence[int], site: Site, output: bytes) -> int:
    """Return the number of tokens of an output before a site was decided: the last token boundary
    at which every alternative was still possible. ``ends``: the offsets at which tokens end."""
    texts = [key_of(text) for text in site.texts]

    def is_behind(end: int) -> bool:
        read = output[site.start : end]
        whole, begun = canonical(read) if read[:1] == b'"' else (read, b"")
        return not all(may_become(whole, begun, text) for text in texts)

    return bisect_left(ends, True, key=is_behind)


def key_of(text: bytes) -> bytes:
    """Return a key that all spellings of a JSON string share; any other text unchanged."""
    return canonical(text)[0] if text[:1] == b'"' else text
