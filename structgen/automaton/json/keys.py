"""Leaves that write names: strings out of a finite set, and the keys of a JSON object.

`NameLeaf` makes JSON strings out of names alone. `KeyLeaf` puts the punctuation of an object around
its keys, from ``{`` or the end of a member's value up to the next value or ``}``, and ends with an
outcome that says which key was written. Which keys there may be is what `key_symbols` says; what a
value must look like is the business of `objects`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from structgen.automaton.core.leaf import ENDED, Leaf
from structgen.automaton.core.text_leaf import StringLeaf, read_text
from structgen.automaton.regex.encoding import GROUND, Escapes, json_string
from structgen.automaton.regex.symbols import NO_STATE, shortest_path, spell_edge, spell_edges
from structgen.automaton.texts import Text, joined, put

from .key_symbols import KeySymbols
from .whitespace import Whitespace

CLOSE = 0
"""Outcome of a `KeyLeaf` that wrote ``}``; outcome ``1 + i`` is the i-th key class."""

_KEY_BEGINS = ENDED - 1
"""What `BeforeKey` reads up to where a key begins."""

_QUOTE = 0x22


class NameLeaf(StringLeaf):
    """JSON strings out of a finite set of which some may be barred.

    Args:
        names: the strings.
        escapes: how they may be spelt.
        missing: bytes that cannot be written.
    """

    def __init__(
        self, names: Sequence[str], escapes: Escapes, missing: frozenset[int] = frozenset()
    ) -> None:
        symbols = KeySymbols(names, (), (), lambda _: -1, len(names))
        self._names = symbols
        super().__init__(symbols, json_string(symbols.alphabet, escapes, missing))

    def open(self, allowed: int) -> int | None:
        """State before the opening quote of one of the strings in ``allowed``; None for none."""
        menu = self._names.menu(allowed, False)
        return None if menu is None else self.state((self._OPEN, menu))

    def _edges(self, key: Any) -> dict[int, Any]:
        if isinstance(key, tuple) and key[0] == self._OPEN:
            return {0x22: (key[1], GROUND)}
        return super()._edges(key)

    def text_state(self, q: int) -> int | None:
        """See `Leaf.text_state`."""
        return None if self._keys[q][0] == self._OPEN else super().text_state(q)

    def _label(self, key: Any) -> int:
        return 0 if key == self._CLOSED else -1

    def _search(self, q: int, wanted: int | None) -> tuple[Text, int] | None:
        key = self._keys[q]
        if isinstance(key, tuple) and key[0] == self._OPEN:
            text = self._names.shortest_name(key[1], self.encoding)
            return None if text is None else (b'"' + text + b'"', 0)
        return super()._search(q, wanted)


class AfterKey(Leaf):
    """From the closing quote of a key to the place of its value, whatever key it is.

    What `KeyLeaf` does there; walks of this leaf serve all keys of all objects.
    """

    def __init__(self, space: Whitespace) -> None:
        super().__init__()
        self._space = space
        self.start = self.state(("colon", 0))

    def key(self, q: int) -> tuple[str, int]:
        """The phase and the state of whitespace at ``q``."""
        phase, space = self._keys[q]
        return phase, space

    def _edges(self, key: Any) -> Mapping[int, Any]:
        phase, at = key
        space = self._space
        edges = {byte: (phase, to) for byte, to in space.edges[at].items()}
        if phase == "colon" and space.may_end[at]:
            edges[0x3A] = ("value", space.after_mark)
        return edges

    def _label(self, key: Any) -> int:
        return 0 if key[0] == "value" and self._space.may_end[key[1]] else -1


@lru_cache(maxsize=16)
def after_key(space: Whitespace) -> AfterKey:
    """The one `AfterKey` for ``space``."""
    return AfterKey(space)


class BeforeKey(Leaf):
    """From ``{`` or the end of a member's value up to a key's first character, or to ``}``.

    What `KeyLeaf` does there; walks of this leaf serve all objects. Ends with outcome `CLOSE`, or 1
    where a key begins. States say whether there may be a key, and whether ``}`` may come.
    """

    def __init__(self, space: Whitespace) -> None:
        super().__init__()
        self._space = space

    def key(self, q: int) -> tuple[Any, ...]:
        """What describes the state."""
        key: tuple[Any, ...] = self._keys[q]
        return key

    def _edges(self, key: Any) -> Mapping[int, Any]:
        phase, *rest = key
        if phase == "open":
            return {0x7B: ("first", 0, *rest)}
        if phase in ("closed", "key"):
            return {}
        at, *rest = rest
        space = self._space
        edges = {byte: (phase, to, *rest) for byte, to in space.edges[at].items()}
        if not space.may_end[at]:
            return edges
        if phase == "comma":
            edges[0x22] = ("key",)
            return edges
        has_key, may_close = rest
        if has_key and phase == "first":
            edges[0x22] = ("key",)
        elif has_key:
            edges[0x2C] = ("comma", space.after_mark)
        if may_close:
            edges[0x7D] = ("closed",)
        return edges

    def _label(self, key: Any) -> int:
        return {"closed": CLOSE, "key": 1}.get(key[0], -1)


@lru_cache(maxsize=16)
def before_key(space: Whitespace) -> BeforeKey:
    """The one `BeforeKey` for ``space``."""
    return BeforeKey(space)


class KeyLeaf(Leaf):
    """Object punctuation and keys: from ``{`` or the end of a value to the next value or ``}``.

    Ends with outcome `CLOSE`, or ``1 + label`` of the key that was written.

    A state is ``("before", q, menu)``, q being one of `BeforeKey`, ``("key", symbol state, encoding
    node)``, or ``("after", q, label)``, q being one of `AfterKey`.

    Args:
        symbols: the keys.
        space: whitespace allowed around punctuation.
        escapes: how keys may be spelt.
        missing: bytes that cannot be written.
        is_shared: whether several schemas use this instance.
    """

    holds_text = True

    def __init__(
        self,
        symbols: KeySymbols,
        space: Whitespace,
        escapes: Escapes,
        missing: frozenset[int] = frozenset(),
        is_shared: bool = False,
    ) -> None:
        super().__init__()
        self.is_shared = is_shared
        self.symbols: KeySymbols = symbols
        self.encoding = json_string(symbols.alphabet, escapes, missing)
        self._steps: dict[int, int] = {}
        self._before_key, self._after_key = before_key(space), after_key(space)

    @property
    def weight(self) -> int:
        """See `Leaf.weight`."""
        own = 2000 + self._state_bytes * len(self._keys) + 40 * self._n_edges
        return own + self.symbols.weight + 100 * len(self._steps)

    def open(self, menu: int | None, may_close: bool) -> int:
        """State before ``{``; ``menu`` is a start state of the key symbols."""
        return self._before("open", menu, may_close)

    def after_value(self, menu: int | None, may_close: bool) -> int:
        """State after a member's value."""
        return self._before("next", 0, menu, may_close)

    def _before(self, *key: Any) -> int:
        *at, menu, may_close = key
        q = self._before_key.state((*at, menu is not None, may_close))
        return self.state(("before", q, menu))

    def text_state(self, q: int) -> int | None:
        """See `Leaf.text_state`."""
        key = self._keys[q]
        return key[1] if key[0] == "key" and key[2] == GROUND else None

    def step(self, q: int, byte: int) -> int:
        """See `Leaf.step`: inside a key, one byte is followed without the others."""
        row = self._rows[q]
        if row is not None:
            return row.get(byte, -1)
        to = self._steps.get(q << 8 | byte)
        if to is None:
            kind, at, more = self._keys[q]
            if kind != "key":
                after = self._punctuation(kind, at, more, byte)
                to = -1 if after is None else self.state(after)
            elif byte == _QUOTE and more == GROUND:
                label = self.symbols.label(at)
                to = self.after_quote(label) if label >= 0 else -1
            else:
                spelt = spell_edge(self.symbols, self.encoding, (at, more), byte)
                to = -1 if spelt is None else self.in_text(*spelt)
            self._steps[q << 8 | byte] = to
        return to

    def read(self, q: int, data: bytes, start: int) -> tuple[int, int]:
        """See `Leaf.read`. Of what is read only the last state is made."""
        kind, at, more = key = self._keys[q]
        if kind == "before":
            at, start = self._before_key.read(at, data, start)
            if at >= 0:
                return self.state((kind, at, more)), start
            if at != _KEY_BEGINS:
                return at, start
            kind, at, more = key = "key", more, GROUND
        if kind == "key":
            if start < len(data) and (more != GROUND or data[start] != _QUOTE):
                at, more, start = read_text(self, at, more, data, start)
                if at == NO_STATE:
                    return -1, start
                key = kind, at, more
            if start == len(data):
                q = self._ids.get(key, -1)
                return (self._add(key, -1) if q < 0 else q), start
            start += 1
            more = self.symbols.label(at)
            if more < 0:
                return -1, start
            kind, at = "after", self._after_key.start
            if start == len(data):
                return self.state((kind, at, more)), start
        at, start = self._after_key.read(at, data, start)
        if at < 0:
            return (-1 if at > ENDED else at - 1 - more), start
        return self.state((kind, at, more)), start

    def takes(self, q: int, byte: int) -> bool:
        """See `Leaf.takes`."""
        kind, at, _ = self._keys[q]
        if kind == "key":
            return self.step(q, byte) >= 0
        return (self._before_key if kind == "before" else self._after_key).takes(at, byte)

    def goes_on(self, q: int) -> bool:
        """See `Leaf.goes_on`."""
        kind, at, _ = self._keys[q]
        if kind == "key":
            return True
        return (self._before_key if kind == "before" else self._after_key).goes_on(at)

    def in_text(self, symbol_state: int, node: int = GROUND) -> int:
        """See `Leaf.in_text`."""
        return self.state(("key", symbol_state, node))

    def after_quote(self, label: int) -> int:
        """See `Leaf.after_quote`."""
        return self.state(("after", self._after_key.start, label))

    def before_text(self, q: int) -> tuple[Leaf, int, int | None] | None:
        """See `Leaf.before_text`."""
        kind, at, menu = self._keys[q]
        return (self._before_key, at, menu) if kind == "before" else None

    def own_before(self, q: int, symbol_state: int | None) -> int:
        """See `Leaf.own_before`."""
        return self.state(self._behind(q, symbol_state))

    def _behind(self, q: int, menu: int | None) -> tuple[str, int | None, int | None]:
        """What describes the state that ``q`` of `BeforeKey` stands for."""
        label = self._before_key.labels[q]
        if label > CLOSE:
            return "key", menu, GROUND
        return "before", q, None if label == CLOSE else menu

    def after_text(self, label: int) -> tuple[Leaf, int]:
        """See `Leaf.after_text`."""
        return self._after_key, 1 + label

    def behind_text(self, q: int) -> tuple[Leaf, int, int] | None:
        """See `Leaf.behind_text`."""
        kind, at, label = self._keys[q]
        return (self._after_key, at, label) if kind == "after" else None

    def own(self, q: int, label: int) -> int:
        """See `Leaf.own`."""
        return self.state(("after", q, label))

    def _edges(self, key: Any) -> Mapping[int, Any]:
        kind, at, more = key
        if kind == "before":
            return {byte: self._behind(to, more) for byte, to in self._before_key.row(at).items()}
        if kind == "after":
            return {byte: (kind, to, more) for byte, to in self._after_key.row(at).items()}
        edges: dict[int, Any] = {
            byte: (kind, *to)
            for byte, to in spell_edges(self.symbols, self.encoding, (at, more)).items()
        }
        if more == GROUND:
            label = self.symbols.label(at)
            if label >= 0:
                edges[_QUOTE] = ("after", self._after_key.start, label)
        return edges

    def _punctuation(self, kind: str, at: int, more: Any, byte: int) -> Any:
        """What describes the state after ``byte``, outside the text of a key; None for none."""
        if kind == "after":
            to = self._after_key.step(at, byte)
            return None if to < 0 else (kind, to, more)
        to = self._before_key.step(at, byte)
        return None if to < 0 else self._behind(to, more)

    def _label(self, key: Any) -> int:
        kind, at, more = key
        if kind == "before":
            return CLOSE if self._before_key.labels[at] == CLOSE else -1
        if kind == "after" and self._after_key.labels[at] >= 0:
            return int(1 + more)
        return -1

    def _search(self, q: int, wanted: int | None) -> tuple[Text, int] | None:
        # Punctuation byte by byte, keys symbol by symbol: a key of a large object has a state for
        # each beginning of each name, and each of those a state for each half-spelt character.
        best: tuple[Text, int] | None = None
        seen = {q}
        level = [(q, b"")]
        while level and (best is None or len(level[0][1]) < len(best[0])):
            deeper: list[tuple[int, bytes]] = []
            for at, text in level:
                found: tuple[Text, int] | None = None
                if self._keys[at][0] == "key":
                    found = self._rest_of_key(at, wanted)
                elif self.label(at) >= 0 and wanted in (None, self.label(at)):
                    found = b"", self.label(at)
                else:
                    for byte, to in sorted(self.row(at).items()):
                        if to not in seen:
                            seen.add(to)
                            deeper.append((to, text + bytes([byte])))
                if found is not None and (best is None or len(text) + len(found[0]) < len(best[0])):
                    best = put(text, found[0]), found[1]
            level = deeper
        return best

    def _rest_of_key(self, q: int, wanted: int | None) -> tuple[Text, int] | None:
        """The fewest bytes from inside a key to the place of its value."""
        if wanted == CLOSE:
            return None
        _, symbol_state, node = self._keys[q]
        symbols = self.symbols
        text: Text | None
        if wanted is not None and wanted <= symbols.n_names:
            label = wanted - 1
            text = symbols.rest_of_name(symbol_state, label, node, self.encoding)
        else:
            path = shortest_path(
                symbols,
                self.encoding,
                symbol_state,
                node,
                lambda at: symbols.label(at) >= 0 and wanted in (None, 1 + symbols.label(at)),
            )
            text = None if path is None else joined(b"", [spelt for _, spelt in path])
            label = symbols.label(path[-1][0] if path else symbol_state)
        if text is None:
            return None
        colon = self._after_key.shortest(self._after_key.start)
        assert colon is not None, "whitespace always ends"
        return put(text, put(b'"', colon[0])), 1 + label
