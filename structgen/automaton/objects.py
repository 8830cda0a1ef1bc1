"""JSON objects: the frame of one open object.

An `ObjectPlan` merges the object assertions of several schema nodes: which names exist, which
conjunction each member's value is owed to, what is required, how many members there may be. Its
state says which members have been written as far as that matters; from it follow the keys that may
come next (a `KeyLeaf` menu) and whether ``}`` may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import UnsupportedFeature
from ..grammar.schema_graph import FALSE, TRUE
from . import evaluate
from .keys import CLOSE, KeyLeaf, KeySymbols
from .machine import POP, Alternative

if TYPE_CHECKING:
    from .values import JsonLanguage

State = tuple[int, int]
"""(bit mask of the names still allowed, members counted as far as that matters)."""


class ObjectPlan:
    """The frame of an object owed to the object assertions of several nodes at once.

    Machine states are ``2 * i`` while punctuation and a key are written, ``2 * i + 1`` during the
    member's value, for the i-th interned `State`.
    """

    def __init__(self, language: JsonLanguage, nodes: tuple[int, ...]) -> None:
        self._language = language
        self._nodes = [language.nodes[n] for n in nodes]
        names: dict[str, None] = {}
        required: dict[str, None] = {}
        for node in self._nodes:
            names.update(dict.fromkeys(node.properties))
            required.update(dict.fromkeys(node.required))
        names.update(required)
        self.names = list(names)
        self._index = {name: i for i, name in enumerate(self.names)}
        self._required = 0
        for name in required:
            self._required |= 1 << self._index[name]
        self._min = max((n.min_properties for n in self._nodes), default=0)
        limits = [n.max_properties for n in self._nodes if n.max_properties is not None]
        self._max: int | None = min(limits) if limits else None
        self._counts = self._max is not None or self._min > len(required)
        self._patterns = [p for n in self._nodes for p in n.pattern_properties]
        self._in_order = language.options.property_order == "schema"
        self._conjunctions: list[int] = [self._named(name) for name in self.names]
        self._classes: dict[int, int] = {}
        self._possible: int | None = None
        self._states: list[State] = []
        self._state_ids: dict[State, int] = {}
        self._leaf: KeyLeaf | None = None
        self._symbols: KeySymbols | None = None
        self._finish: dict[int, bytes | None] = {}
        if self._min > len(required) and self._has_others():
            # Two members of one name count as one; telling unnamed keys apart needs their names.
            path = next(n.path for n in self._nodes if n.min_properties == self._min)
            raise UnsupportedFeature(
                f"'minProperties' together with unnamed properties is not supported, at {path}.",
                path=path,
                keyword="minProperties",
                fix="List the properties and set additionalProperties to false.",
            )

    # -- names and their values -------------------------------------------------------------

    def _named(self, name: str) -> int:
        """The conjunction that the value of ``name`` is owed to."""
        owed: list[int] = []
        for node in self._nodes:
            found = False
            if name in node.properties:
                owed.append(node.properties[name])
                found = True
            for regex, child in node.pattern_properties:
                if evaluate.matches(regex, name):
                    owed.append(child)
                    found = True
            if not found:
                owed.append(node.additional)
            if node.property_names != TRUE and not evaluate.holds(
                self._language.nodes, node.property_names, name
            ):
                return self._language.conjunction([FALSE])
        return self._language.conjunction(owed)

    def _has_others(self) -> bool:
        """Whether unnamed keys may occur at all."""
        return bool(self._patterns) or self._class_conjunction(0) is not None

    def _class_conjunction(self, matched: int) -> int | None:
        """What an unnamed key that matches the patterns in ``matched`` owes its value to."""
        owed: list[int] = []
        bit = 0
        for node in self._nodes:
            found = False
            for _, child in node.pattern_properties:
                if matched >> bit & 1:
                    owed.append(child)
                    found = True
                bit += 1
            if not found:
                owed.append(node.additional)
        conjunction = self._language.conjunction(owed)
        return conjunction if self._language.is_possible(conjunction) else None

    def _classify(self, matched: int) -> int:
        """The class of an unnamed key, or -1 when no value would do."""
        found = self._classes.get(matched)
        if found is None:
            conjunction = self._class_conjunction(matched)
            if conjunction is None:
                found = -1
            else:
                found = len(self._conjunctions) - len(self.names)
                self._conjunctions.append(conjunction)
            self._classes[matched] = found
        return found

    def _keys(self) -> tuple[KeyLeaf, KeySymbols]:
        if self._leaf is None or self._symbols is None:
            language = self._language
            must_match = [
                language.string_language(node.property_names)
                for node in self._nodes
                if node.property_names != TRUE
            ]
            self._symbols = KeySymbols(
                self.names, [regex for regex, _ in self._patterns], must_match, self._classify
            )
            self._leaf = KeyLeaf(self._symbols, language.space, language.options.named)
        return self._leaf, self._symbols

    def _possible_names(self) -> int:
        """Mask of the names whose value can be written."""
        if self._possible is None:
            mask = 0
            for i in range(len(self.names)):
                if self._language.is_possible(self._conjunctions[i]):
                    mask |= 1 << i
            self._possible = mask
        return self._possible

    # -- states -----------------------------------------------------------------------------

    def _state(self, state: State) -> int:
        found = self._state_ids.get(state)
        if found is None:
            found = self._state_ids[state] = len(self._states)
            self._states.append(state)
        return found

    def _initial(self) -> State:
        return (self._possible_names(), 0)

    def _menu(self, state: State) -> tuple[int | None, bool]:
        """The keys that may come next, as a menu of the key symbols, and whether ``}`` may."""
        left, count = state
        missing = left & self._required
        may_close = not missing and count >= self._min
        if self._max is not None and count + missing.bit_count() >= self._max:
            left = missing
        allowed = left
        if self._in_order and missing:
            # Nothing beyond the first required name may come before it.
            first = missing & -missing
            allowed = left & ((first << 1) - 1)
        if self._in_order and self._counts:
            # A member may be passed over only while enough are left to reach minProperties.
            while allowed:
                last = 1 << (allowed.bit_length() - 1)
                if count + 1 + (left & ~((last << 1) - 1)).bit_count() >= self._min:
                    break
                allowed ^= last
        others = not missing or not self._in_order
        if self._max is not None and count + missing.bit_count() >= self._max:
            others = False
        if not self._may_have_others():
            others = False
        if not allowed and not others:
            return None, may_close
        return self._keys()[1].menu(allowed, others), may_close

    def _may_have_others(self) -> bool:
        return bool(self._patterns) or self._classify(0) >= 0

    def _after(self, state: State, label: int) -> State:
        """The state once the member with key ``label`` is complete."""
        left, count = state
        if label < len(self.names):
            bit = 1 << label
            left &= ~((bit << 1) - 1) if self._in_order else ~bit
        elif self._in_order:
            left = 0
        if self._counts:
            count += 1
        return left, count

    def children(self) -> list[int]:
        """The conjunctions that named members, and members no pattern matches, are owed to."""
        self._classify(0)
        return list(self._conjunctions)

    # -- the frame --------------------------------------------------------------------------

    def is_possible(self) -> bool:
        """Whether any object satisfies the nodes."""
        if not self._required and not self._min:
            return True
        return self.shortest_text() is not None

    def open(self) -> Alternative:
        """How such an object starts."""
        state = self._initial()
        leaf = self._keys()[0]
        return Alternative(leaf, leaf.open(*self._menu(state)), ((self, 2 * self._state(state)),))

    def resume(self, at: int, outcome: int) -> tuple[Alternative, ...]:
        """What may follow; see `machine.Frame`."""
        state = self._states[at >> 1]
        if at & 1:
            leaf = self._keys()[0]
            return (Alternative(leaf, leaf.after_value(*self._menu(state)), ((self, at - 1),)),)
        if outcome == CLOSE:
            return POP
        label = outcome - 1
        frame = ((self, 2 * self._state(self._after(state, label)) + 1),)
        return tuple(
            Alternative(way.leaf, way.q, way.frames + frame)
            for way in self._language.alternatives(self._conjunctions[label])
        )

    def finish(self, at: int, outcome: int) -> bytes | None:
        """The fewest bytes that close the object; see `machine.Frame`."""
        state = self._states[at >> 1]
        if at & 1:
            return self._close(state, False)
        if outcome == CLOSE:
            return b""
        label = outcome - 1
        text = self._language.shortest(self._conjunctions[label])
        rest = self._close(self._after(state, label), False)
        return None if text is None or rest is None else text + rest

    def shortest_text(self) -> bytes | None:
        """The shortest whole object, or None when there is none (or none known yet)."""
        everything = (1 << len(self.names)) - 1
        rest = self._close((everything, 0), True)
        return None if rest is None else b"{" + self._language.least_space + rest

    def _close(self, state: State, first: bool) -> bytes | None:
        """Required members still missing, as many others as are owed, and ``}``."""
        left, count = state
        missing = left & self._required
        chosen: list[tuple[int, bytes]] = []
        rest = missing
        while rest:
            index = (rest & -rest).bit_length() - 1
            rest &= rest - 1
            text = self._language.shortest(self._conjunctions[index])
            if text is None:
                return None
            chosen.append((index, text))
        owed = self._min - count - len(chosen)
        if self._max is not None and count + len(chosen) + max(owed, 0) > self._max:
            return None
        if self._counts and owed > 0:
            optional: list[tuple[int, int, bytes]] = []
            rest = left & ~self._required
            while rest:
                index = (rest & -rest).bit_length() - 1
                rest &= rest - 1
                text = self._language.shortest(self._conjunctions[index])
                if text is not None:
                    optional.append((len(text) + len(self.names[index]), index, text))
            if len(optional) < owed:
                return None
            chosen += [(index, text) for _, index, text in sorted(optional)[:owed]]
            chosen.sort()
        space = self._language.least_space
        parts: list[bytes] = []
        for index, text in chosen:
            if not first or parts:
                parts.append(space + b"," + space)
            key = self._language.spell(self.names[index])
            parts.append(key + space + b":" + space + text)
        if chosen or not first:
            parts.append(space)
        return b"".join(parts) + b"}"

