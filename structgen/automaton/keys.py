"""Names as automata: finite sets of strings, and the keys of a JSON object.

`KeySymbols` accepts an object's possible keys: named ones (a trie, restricted to those allowed
now) and, where other keys may occur, everything else, told apart by which patterns match.
`NameLeaf` makes JSON strings out of names alone. `KeyLeaf` puts the punctuation of an object around
them, from ``{`` or the end of a member's value up to the next value or ``}``, and ends with an
outcome that says which key was written. What a value must look like is the business of `objects`.
"""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

from ..grammar import ir
from . import liveness
from .alphabet import Alphabet
from .derivatives import RegexAutomaton, char_sets
from .encoding import GROUND, Escapes, Utf8, json_string
from .leaf import (
    Leaf,
    Names,
    StringLeaf,
    read_text,
    shortest_path,
    spell_edge,
    spell_edges,
)
from .whitespace import Whitespace

CLOSE = 0
"""Outcome of a `KeyLeaf` that wrote ``}``; outcome ``1 + i`` is the i-th key class."""


_FEW_NAMES = 1_000
"""Names that are put into a mask one by one."""

_FEW_PATTERNS = 6


def name_sets(names: Sequence[str]) -> set[ir.Ranges]:
    """One character set for each character that occurs in ``names``."""
    return {((ord(c), ord(c)),) for c in set().union(*names)}


def _alphabet(names: Sequence[str], regexes: Sequence[ir.Regex]) -> Alphabet:
    """An alphabet that tells apart what ``names`` and ``regexes`` do; one for all ASCII names."""
    if not regexes and "".join(names).isascii():
        return _ascii_alphabet()
    sets = name_sets(names)
    for regex in regexes:
        sets |= char_sets(regex)
    return Alphabet(sets)


@lru_cache(maxsize=1)
def _ascii_alphabet() -> Alphabet:
    return Alphabet({((code, code),) for code in range(0x80)})


class _Edges(dict[int, tuple[tuple[int, int], ...]]):
    """The ``(byte, child)`` pairs of the nodes of a trie of ASCII names, made when asked for."""

    def __init__(self, trie: _Trie) -> None:
        self._trie = trie

    def __missing__(self, node: int) -> tuple[tuple[int, int], ...]:
        made = tuple([(ord(char), child) for char, child in self._trie.by_character(node)])
        self[node] = made
        return made


class _Trie:
    """A finite set of strings over an alphabet, whose nodes are made when they are reached.

    A node is a range of the sorted strings: those that begin alike. ``ends[node]`` is the index of
    the string that ends there, or -1.
    """

    def __init__(self, names: Sequence[str], alphabet: Alphabet) -> None:
        self.texts = names
        self._alphabet = alphabet
        self._order = sorted(range(len(names)), key=names.__getitem__)
        self._sorted = [names[index] for index in self._order]
        # Numbers, and no tuples of them: there are as many nodes as masks inside of keys.
        self._first: list[int] = []
        self._beyond: list[int] = []
        self._ids: dict[int, int] = {}  # by depth and the first string
        self._children: list[dict[int, int] | None] = []
        self.ends: list[int] = []
        self.depth: list[int] = []
        self._node(0, len(names), 0)
        # Whether every character is one that has a single spelling in JSON.
        text = "".join(names)
        self.is_plain = (
            text.isascii() and text.isprintable() and '"' not in text and "\\" not in text
        )
        self._rests: dict[int, dict[str, int]] = {}

    def _node(self, first: int, beyond: int, depth: int) -> int:
        """The node of the sorted strings ``first`` to ``beyond``, which begin alike."""
        key = depth * (len(self._order) + 1) + first
        node = self._ids.get(key)
        if node is not None:
            return node
        node = self._ids[key] = len(self.ends)
        self._first.append(first)
        self._beyond.append(beyond)
        self._children.append(None)
        # The shortest of those that begin alike comes first.
        ends_here = first < beyond and len(self._sorted[first]) == depth
        self.ends.append(self._order[first] if ends_here else -1)
        self.depth.append(depth)
        return node

    @property
    def weight(self) -> int:
        """About how many bytes it takes by now."""
        return 500 * len(self.ends) + 100 * len(self.texts)

    def children(self, node: int) -> dict[int, int]:
        """The children of ``node`` by atom."""
        found = self._children[node]
        if found is None:
            atom = self._alphabet.atom
            found = {atom(ord(char)): child for char, child in self.by_character(node)}
            self._children[node] = found
        return found

    def by_character(self, node: int) -> Iterator[tuple[str, int]]:
        """The children of ``node``, each with its character."""
        depth = self.depth[node]
        first, beyond = self._first[node], self._beyond[node]
        first += self.ends[node] >= 0
        while first < beyond:
            char = self._sorted[first][depth]
            end = first + 1
            if end < beyond and self._sorted[end][depth] == char:
                end = bisect_right(self._sorted, char, end, beyond, key=itemgetter(depth))
            yield char, self._node(first, end, depth + 1)
            first = end

    def after(self, node: int, text: str) -> int:
        """The node that ``text`` leads to from ``node``, or -1; those on the way are not made."""
        first, beyond = self._first[node], self._beyond[node]
        depth = self.depth[node]
        deeper = depth + len(text)
        strings = self._sorted

        def part(string: str) -> str:
            return string[depth:deeper]

        if beyond - first > 1:
            first = bisect_left(strings, text, first, beyond, key=part)
        if first == beyond or part(strings[first]) != text:
            return -1
        if part(strings[beyond - 1]) != text:
            beyond = bisect_right(strings, text, first, beyond, key=part)
        return self._node(first, beyond, deeper)

    def below(self, node: int) -> list[int]:
        """The indexes of the strings that go through ``node``."""
        first, beyond = self._first[node], self._beyond[node]
        return self._order[first:beyond]

    def rests(self, node: int) -> dict[str, int]:
        """What is left of each string that goes through ``node``, and its index."""
        found = self._rests.get(node)
        if found is None:
            depth = self.depth[node]
            found = {self.texts[index][depth:]: index for index in self.below(node)}
            self._rests[node] = found
        return found

    def path(self, node: int, index: int) -> list[int]:
        """The atoms from ``node``, on the way to the ``index``-th name, to that name's end."""
        atom = self._alphabet.atom
        return [atom(ord(char)) for char in self.texts[index][self.depth[node] :]]


class _Below(dict[int, int]):
    """The names that end at a node of a trie or below, as a mask: made when first asked for, since
    those of all nodes take the square of the number of names."""

    def __init__(self, trie: _Trie) -> None:
        self._trie = trie
        self[0] = (1 << len(trie.texts)) - 1

    def __missing__(self, node: int) -> int:
        found = self._trie.below(node)
        mask = 0
        if len(found) <= _FEW_NAMES:
            for index in found:
                mask |= 1 << index
        else:
            held = bytearray((max(found) >> 3) + 1)
            for index in found:
                held[index >> 3] |= 1 << (index & 7)
            mask = int.from_bytes(held, "little")
        self[node] = mask
        return mask


class KeySymbols:
    """The symbol automaton of an object's keys.

    A state is ``(trie node or -1, named keys still possible, may it be an unnamed key, pattern
    states)``. Its label is ``i`` for the i-th name, or ``n_names + j`` for an unnamed key of class
    j, where ``classify(matched patterns)`` gives j, or -1 to bar such keys.

    Args:
        names: the named keys.
        patterns: expressions that unnamed keys are tried against, by search semantics already
            applied; the matched ones are a bit mask.
        must_match: expressions that every unnamed key has to match as well.
        classify: class of an unnamed key from its mask of matched patterns, or -1.
        n_names: how many of ``names`` can be written at all; the others are barred. Classes of
            unnamed keys are labelled from here on.
    """

    def __init__(
        self,
        names: Sequence[str],
        patterns: Sequence[ir.Regex],
        must_match: Sequence[ir.Regex],
        classify: Callable[[int], int],
        n_names: int,
    ) -> None:
        self.alphabet = _alphabet(names, (*patterns, *must_match))
        self.n_names = n_names
        self._trie = _Trie(names, self.alphabet)
        self._below = _Below(self._trie)
        self._edges = _Edges(self._trie) if self._trie.is_plain else None
        self._n_patterns = len(patterns)
        self._automata = [RegexAutomaton(r, self.alphabet) for r in (*patterns, *must_match)]
        self.has_expressions = bool(self._automata)
        self._classify = classify
        self._keys: list[tuple[int, int, bool, tuple[int, ...]]] = []
        self._ids: dict[tuple[int, int, bool, tuple[int, ...]], int] = {}
        self._moves: dict[int, tuple[tuple[int, int], ...]] = {}
        self._alive: dict[int, bool] = {}
        self.start = self._state(0, 0, False, ())

    @property
    def weight(self) -> int:
        """See `leaf.SymbolAutomaton`."""
        weight = 2000 + 550 * len(self._keys) + self._trie.weight
        for automaton in self._automata:
            weight += automaton.weight
        return weight

    def menu(self, allowed: int, others: bool) -> int | None:
        """The start state when the names in ``allowed`` and perhaps unnamed keys may be written.

        Returns:
            The state, or None when no key at all can be written from it.
        """
        state = self._state(0, allowed, others, tuple(a.start for a in self._automata))
        return state if self._is_alive(state) else None

    def label(self, state: int) -> int:
        """Index of the name, or of the class of unnamed key, that may end here; else -1."""
        node, allowed, others, patterns = self._keys[state]
        if node >= 0 and self._trie.ends[node] >= 0:
            index = self._trie.ends[node]
            return index if allowed >> index & 1 else -1
        if not others:
            return -1
        matched = 0
        for i, (automaton, at) in enumerate(zip(self._automata, patterns, strict=True)):
            hit = at != _LOST and automaton.label(at) >= 0
            if i < self._n_patterns:
                matched |= hit << i
            elif not hit:
                return -1
        found = self._classify(matched)
        return self.n_names + found if found >= 0 else -1

    def shortest_name(self, state: int, encoding: Utf8) -> bytes | None:
        """The fewest bytes that spell a name that is still possible at a start state."""
        _, allowed, _, _ = self._keys[state]
        best: bytes | None = None
        for index in range(self.n_names):
            if allowed >> index & 1:
                text = self.rest_of_name(state, index, GROUND, encoding)
                if text is not None and (best is None or len(text) < len(best)):
                    best = text
        return best

    def rest_of_name(self, state: int, label: int, node: int, encoding: Utf8) -> bytes | None:
        """The fewest bytes from ``(state, encoding node)`` to the end of the ``label``-th name."""
        at, allowed, _, _ = self._keys[state]
        if not allowed >> label & 1:
            return None
        atoms = self._trie.path(at, label)
        if node == GROUND:
            return b"".join(encoding.shortest(GROUND)[atom] for atom in atoms)
        begun = encoding.shortest(node).get(atoms[0]) if atoms else None
        if begun is None:
            return None
        return begun + b"".join(encoding.shortest(GROUND)[atom] for atom in atoms[1:])

    def moves(self, state: int) -> tuple[tuple[int, int], ...]:
        """Disjoint ``(atom mask, next state)`` pairs, none of which leads nowhere."""
        found = self._moves.get(state)
        if found is None:
            found = tuple([move for move in self._raw(state) if self._is_alive(move[1])])
            self._moves[state] = found
        return found

    def follow(self, state: int, atom: int) -> int | None:
        """See `leaf.SymbolAutomaton`."""
        node, allowed, others, _ = self._keys[state]
        if others and self._automata:
            return next((to for mask, to in self.moves(state) if mask >> atom & 1), None)
        child = self._trie.children(node).get(atom, -1) if node >= 0 else -1
        if child < 0 and not others:
            return None
        to = self._state(child, allowed, others, ())
        return to if self._is_alive(to) else None

    def read(self, state: int, text: bytes) -> int | None:
        """See `leaf.SymbolAutomaton`."""
        node, allowed, others, _ = self._keys[state]
        if others and self._automata:
            atoms = self.alphabet.ascii_atoms()
            for byte in text:
                to = self.follow(state, atoms[byte])
                if to is None:
                    return None
                state = to
            return state
        if node >= 0:
            node = self._trie.after(node, text.decode("ascii"))
        if node < 0 and not others:
            return None
        to = self._state(node, allowed, others, ())
        return to if self._is_alive(to) else None

    def run(self, state: int) -> tuple[int, int]:
        """See `leaf.SymbolAutomaton`."""
        node, _, others, patterns = self._keys[state]
        if node >= 0 or not others:
            return 0, 0
        chars, length, settled = self.alphabet.everything, -1, 0
        for automaton, at in zip(self._automata, patterns, strict=True):
            if at != _LOST:
                more, most = automaton.run(at)
                chars &= more
                if most < 0:
                    settled = max(settled, automaton.settled(at))
                else:
                    length = most if length < 0 else min(most, length)
        if (length >= 0 or settled) and self._decides == "all":
            return 0, 0  # whether all states on the way can be gone on from is not known
        return (chars, length) if chars else (0, 0)

    def after_run(self, state: int, count: int) -> int:
        """See `leaf.SymbolAutomaton`."""
        if not count:
            return state
        _, _, others, patterns = self._keys[state]
        after = [
            at if at == _LOST else automaton.after_run(at, count)
            for automaton, at in zip(self._automata, patterns, strict=True)
        ]
        return self._state(-1, 0, others, tuple(after))

    def settled(self, state: int) -> int:
        """See `leaf.SymbolAutomaton`."""
        patterns = zip(self._automata, self._keys[state][3], strict=True)
        return max((a.settled(at) for a, at in patterns if at != _LOST), default=0)

    def phases(self, state: int) -> None:
        """See `leaf.SymbolAutomaton`."""

    @functools.cached_property
    def _decides(self) -> str:
        """What decides whether a text can become an unnamed key: ``"none"`` of the expressions,
        ``"one"``, there being one only, or ``"all"``."""
        n = self._n_patterns
        if n == len(self._automata) <= _FEW_PATTERNS:
            if all(self._classify(matched) >= 0 for matched in range(1 << n)):
                return "none"
            if n == 1 and self._classify(1) >= 0:
                return "one"
        if not n and len(self._automata) == 1 and self._classify(0) >= 0:
            return "one"
        return "all"

    def expression(self, state: int) -> tuple[RegexAutomaton, int] | None:
        """See `leaf.SymbolAutomaton`."""
        node, _, others, patterns = self._keys[state]
        if node >= 0 or not others or self._decides != "one":
            return None
        return self._automata[0], patterns[0]

    def in_expression(self, state: int) -> int:
        """See `leaf.SymbolAutomaton`."""
        return self._state(-1, 0, True, (state,))

    def free(self, state: int) -> int | None:
        """See `leaf.SymbolAutomaton`."""
        _, _, others, patterns = self._keys[state]
        if not others or any(at != _LOST for at in patterns):
            return None
        free = self._state(-1, 0, True, patterns)
        return free if self._is_alive(free) else None

    def unnamed(self, state: int) -> int | None:
        """See `leaf.SymbolAutomaton`: so it is where no expression bars a key."""
        _, _, others, patterns = self._keys[state]
        if not others or not self._automata or self._decides != "none":
            return None
        return self._state(-1, 0, True, patterns)

    def at_least(self, state: int) -> int:
        """See `leaf.SymbolAutomaton`."""
        return 0

    def is_open(self, state: int) -> bool:
        """See `leaf.SymbolAutomaton`; `free` says it better."""
        return False

    def open_part(self, state: int) -> int | None:
        """See `leaf.SymbolAutomaton`."""
        return None

    def special(self, state: int) -> list[tuple[int, int]]:
        """See `leaf.SymbolAutomaton`."""
        node, allowed, others, patterns = self._keys[state]
        if node < 0:
            return []
        point = self.alphabet.representatives
        return [
            (point[atom], self._state(child, allowed, others, patterns))
            for atom, child in self._trie.children(node).items()
            if others or allowed & self._below[child]
        ]

    def names(self, state: int) -> Names | None:
        """See `leaf.SymbolAutomaton`."""
        node, allowed, others, _ = self._keys[state]
        edges = self._edges
        if others or node < 0 or edges is None:
            return None
        return Names(edges, self._trie.ends, self._below, node, allowed)

    def rests(self, state: int, most: int) -> list[tuple[int, str]] | None:
        """See `leaf.SymbolAutomaton`."""
        node, allowed, others, _ = self._keys[state]
        if others or node < 0 or self._edges is None or allowed.bit_count() > most:
            return None
        trie = self._trie
        texts, depth = trie.texts, trie.depth[node]
        out: list[tuple[int, str]] = []
        while allowed:
            bit = allowed & -allowed
            allowed ^= bit
            name = bit.bit_length() - 1
            out.append((name, texts[name][depth:]))
        return out

    def special_texts(self, state: int) -> Mapping[str, int]:
        """See `leaf.SymbolAutomaton`: what is left of each name, and which name it is."""
        node = self._keys[state][0]
        return self._trie.rests(node) if node >= 0 else {}

    def special_label(self, state: int, number: int) -> int:
        """See `leaf.SymbolAutomaton`."""
        return number if self._keys[state][1] >> number & 1 else -1

    def _state(self, node: int, allowed: int, others: bool, patterns: tuple[int, ...]) -> int:
        if allowed:
            allowed &= self._below[node] if node >= 0 else 0
        if not others:
            patterns = ()
            if not allowed:
                node = -1
        elif self._automata and not self._trie.texts:
            node = -1  # there are no names to tell apart
        key = (node, allowed, others, patterns)
        found = self._ids.get(key)
        if found is None:
            found = self._ids[key] = len(self._keys)
            self._keys.append(key)
        return found

    def _raw(self, state: int) -> list[tuple[int, int]]:
        node, allowed, others, patterns = self._keys[state]
        children = self._trie.children(node) if node >= 0 else {}
        if not others:
            return [
                (1 << atom, self._state(child, allowed, False, ()))
                for atom, child in children.items()
                if allowed & self._below[child]
            ]
        # Split the alphabet by what every pattern does, then by the trie's own characters.
        pieces: list[tuple[int, tuple[int, ...]]] = [(self.alphabet.everything, ())]
        for i, (automaton, at) in enumerate(zip(self._automata, patterns, strict=True)):
            split: list[tuple[int, tuple[int, ...]]] = []
            moves = automaton.moves(at) if at != _LOST else ()
            for mask, states in pieces:
                for move_mask, to in moves:
                    if mask & move_mask:
                        split.append((mask & move_mask, (*states, to)))
                        mask &= ~move_mask
                if mask:
                    lost_for_good = i >= self._n_patterns
                    if not lost_for_good or node >= 0:
                        split.append((mask, (*states, _LOST)))
            pieces = split
        out: list[tuple[int, int]] = []
        for mask, states in pieces:
            barred = any(s == _LOST for s in states[self._n_patterns :])
            for atom, child in children.items():
                bit = 1 << atom
                if mask & bit:
                    mask ^= bit
                    if barred:
                        out.append((bit, self._state(child, allowed, False, ())))
                    else:
                        out.append((bit, self._state(child, allowed, True, states)))
            if mask and not barred:
                out.append((mask, self._state(-1, 0, True, states)))
        return out

    def _is_alive(self, state: int) -> bool:
        if self._is_plainly_alive(state):
            return True
        return liveness.is_alive(state, self._alive, self._names_or_ends, self._successors)

    def _is_plainly_alive(self, state: int) -> bool:
        """Whether a name may be read, or what one expression takes: expressions have no states
        that lead nowhere, and off the names' trie no text is a name that is barred."""
        node, allowed, others, patterns = self._keys[state]
        if allowed:
            return True
        is_free = others and node < 0 and bool(self._automata)
        return is_free and self._decides == "one" and patterns[0] >= 0

    def _names_or_ends(self, state: int) -> bool:
        return self._is_plainly_alive(state) or self.label(state) >= 0

    def _successors(self, state: int) -> list[int]:
        return [to for _, to in self._raw(state)]


_LOST = -(1 << 40)
"""Pattern state of a pattern that can no longer match."""


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
        return super().weight + self.symbols.weight + 100 * len(self._steps)

    def menu(self, allowed: int, others: bool) -> int | None:
        """See `KeySymbols.menu`."""
        return self.symbols.menu(allowed, others)

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
