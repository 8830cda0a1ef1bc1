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

from .encoding import GROUND, Escapes, json_string
from .key_symbols import KeySymbols
from .leaf import Leaf, StringLeaf, read_text
from .symbols import shortest_path, spell_edge, spell_edges
from .whitespace import Whitespace

CLOSE = 0
"""Outcome of a `KeyLeaf` that wrote ``}``; outcome ``1 + i`` is the i-th key class."""


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

    def _search(self, q: int, wanted: int | None) -> tuple[bytes, int] | None:
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


_PUNCTUATION = {
    "first": (0x22, 0x7D),
    "comma": (0x22,),
    "colon": (0x3A,),
    "value": (),
    "next": (0x2C, 0x7D),
}
"""The bytes other than whitespace that may follow in each phase of a `KeyLeaf`."""


class KeyLeaf(Leaf):
    """Object punctuation and keys: from ``{`` or the end of a value to the next value or ``}``.

    Ends with outcome `CLOSE`, or ``1 + label`` of the key that was written.

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
        self._space = space
        self._steps: dict[int, int] = {}
        self._before_key, self._after_key = before_key(space), after_key(space)

    @property
    def weight(self) -> int:
        """See `Leaf.weight`."""
        own = 2000 + self._state_bytes * len(self._keys) + 40 * self._n_edges
        return own + self.symbols.weight + 100 * len(self._steps)

    def open(self, menu: int | None, may_close: bool) -> int:
        """State before ``{``; ``menu`` is a start state of the key symbols."""
        return self.state(("open", menu, may_close))

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
            key = self._keys[q]
            if key[0] != "key":
                after = self._punctuation(key, byte)
                to = -1 if after is None else self.state(after)
            elif byte == 0x22 and key[2] == GROUND:
                label = self.symbols.label(key[1])
                to = self.after_quote(label) if label >= 0 else -1
            else:
                spelt = spell_edge(self.symbols, self.encoding, key[1:], byte)
                to = -1 if spelt is None else self.in_text(*spelt)
            self._steps[q << 8 | byte] = to
        return to

    read = read_text

    def goes_on(self, q: int) -> bool:
        """See `Leaf.goes_on`."""
        phase, *rest = self._keys[q]
        if phase == "closed":
            return False
        if phase in ("key", "colon", "comma", "open"):
            return True
        at, *rest = rest
        if self._space.edges[at]:
            return True
        return phase != "value" and (rest[0] is not None or bool(rest[1]))

    def in_text(self, symbol_state: int, node: int = GROUND) -> int:
        """See `Leaf.in_text`."""
        return self.state(("key", symbol_state, node))

    def after_quote(self, label: int) -> int:
        """See `Leaf.after_quote`."""
        return self.state(("colon", 0, label))

    def before_text(self, q: int) -> tuple[Leaf, int, int | None] | None:
        """See `Leaf.before_text`."""
        phase, *rest = self._keys[q]
        if phase in ("open", "first", "next"):
            *spaces, menu, may_close = rest
            key = phase, *spaces, menu is not None, may_close
        elif phase == "comma":
            space, menu = rest
            key = phase, space
        else:
            return None
        return self._before_key, self._before_key.state(key), menu

    def own_before(self, q: int, symbol_state: int | None) -> int:
        """See `Leaf.own_before`."""
        phase, *rest = self._before_key.key(q)
        if phase == "key":
            assert symbol_state is not None
            return self.in_text(symbol_state)
        if phase == "comma":
            return self.state((phase, *rest, symbol_state))
        if phase == "closed":
            return self.state((phase,))
        *spaces, _, may_close = rest
        return self.state((phase, *spaces, symbol_state, may_close))

    def after_text(self, label: int) -> tuple[Leaf, int]:
        """See `Leaf.after_text`."""
        return self._after_key, 1 + label

    def own(self, q: int, label: int) -> int:
        """See `Leaf.own`."""
        return self.state((*self._after_key.key(q), label))

    def after_value(self, menu: int | None, may_close: bool) -> int:
        """State after a member's value."""
        return self.state(("next", 0, menu, may_close))

    def _edges(self, key: Any) -> Mapping[int, Any]:
        phase, *rest = key
        if phase == "open":
            return {0x7B: ("first", 0, *rest)}
        if phase == "key":
            symbol_state, node = rest
            edges: dict[int, Any] = {
                byte: ("key", *to)
                for byte, to in spell_edges(
                    self.symbols, self.encoding, (symbol_state, node)
                ).items()
            }
            if node == GROUND:
                label = self.symbols.label(symbol_state)
                if label >= 0:
                    edges[0x22] = ("colon", 0, label)
            return edges
        if phase == "closed":
            return {}
        following = (*self._space.edges[rest[0]], *_PUNCTUATION[phase])
        edges = {byte: self._punctuation(key, byte) for byte in following}
        return {byte: to for byte, to in edges.items() if to is not None}

    def _punctuation(self, key: Any, byte: int) -> Any:
        """What describes the state after ``byte``, outside the text of a key; None for none."""
        phase, *rest = key
        if phase == "open":
            return ("first", 0, *rest) if byte == 0x7B else None
        if phase == "closed":
            return None
        at, *rest = rest
        space = self._space
        to = space.edges[at].get(byte)
        if to is not None:
            return (phase, to, *rest)
        if byte not in _PUNCTUATION[phase] or not space.may_end[at]:
            return None
        if phase == "colon":
            return ("value", space.after_mark, *rest)
        if phase == "comma":
            return ("key", *rest, GROUND)
        menu, may_close = rest
        if byte == 0x7D:
            return ("closed",) if may_close else None
        if menu is None:
            return None
        return ("key", menu, GROUND) if phase == "first" else ("comma", space.after_mark, menu)

    def _label(self, key: Any) -> int:
        phase, *rest = key
        if phase == "closed":
            return CLOSE
        if phase == "value" and self._space.may_end[rest[0]]:
            return int(1 + rest[1])
        return -1

    def _search(self, q: int, wanted: int | None) -> tuple[bytes, int] | None:
        # Punctuation byte by byte, keys symbol by symbol: a key of a large object has a state for
        # each beginning of each name, and each of those a state for each half-spelt character.
        best: tuple[bytes, int] | None = None
        seen = {q}
        level = [(q, b"")]
        while level and (best is None or len(level[0][1]) < len(best[0])):
            deeper: list[tuple[int, bytes]] = []
            for at, text in level:
                found: tuple[bytes, int] | None = None
                if self._keys[at][0] == "key":
                    found = self._rest_of_key(at, wanted)
                elif self.label(at) >= 0 and wanted in (None, self.label(at)):
                    found = b"", self.label(at)
                else:
                    for byte, to in sorted(self.row(at).items()):
                        if to not in seen:
                            seen.add(to)
                            deeper.append((to, text + bytes([byte])))
                if found is not None and (best is None or len(text + found[0]) < len(best[0])):
                    best = text + found[0], found[1]
            level = deeper
        return best

    def _rest_of_key(self, q: int, wanted: int | None) -> tuple[bytes, int] | None:
        """The fewest bytes from inside a key to the place of its value."""
        if wanted == CLOSE:
            return None
        _, symbol_state, node = self._keys[q]
        symbols = self.symbols
        text: bytes | None
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
            text = None if path is None else b"".join(spelt for _, spelt in path)
            label = symbols.label(path[-1][0] if path else symbol_state)
        if text is None:
            return None
        colon = self.shortest(self.state(("colon", 0, label)))
        assert colon is not None, "whitespace always ends"
        return text + b'"' + colon[0], colon[1]
