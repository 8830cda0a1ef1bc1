"""Leaves of names: strings of a finite set, and the keys of a JSON object.

`KeySymbols` is an automaton over characters for an object's possible keys: named ones (a trie,
restricted to those allowed now) and, if allowed, all other keys, distinguished by the patterns that
they match. `NameLeaf` makes JSON strings of names. `KeyLeaf` adds the punctuation of an object: it
reads from ``{`` or the end of a member's value to the next value or ``}``, and its outcome
identifies the key. `objects` knows the requirements on values.

`NameTrie` holds the names of an object's members, or the strings of a choice. Its nodes are made
when they are reached. It returns the names below a node, by character, byte and text. Knows no
JSON.
"""

from __future__ import annotations

import functools
import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

from structgen.automaton import liveness
from structgen.automaton.bits import bits
from structgen.automaton.core.leaf import ENDED, Leaf
from structgen.automaton.core.text_leaf import StringLeaf, read_text
from structgen.automaton.regex.alphabet import Alphabet
from structgen.automaton.regex.automaton import Names, RegexAutomaton, SymbolAutomaton
from structgen.automaton.regex.derivatives import char_sets
from structgen.automaton.regex.encoding import GROUND, Escapes, Utf8, json_string
from structgen.automaton.regex.symbols import NO_STATE, shortest_path, spell_edge, spell_edges
from structgen.automaton.texts import Text, joined, put
from structgen.automaton.work import WORK
from structgen.grammar import ir
from structgen.storage import Numbers, cached_method

from .whitespace import CLOSE, ITEM, Indentation, Whitespace, before_key, kept, whitespace

_LAST = chr(sys.maxunicode)
"""The last character; hardly any name has it."""


def names_alphabet(names: Sequence[str], regexes: Sequence[ir.Regex]) -> Alphabet:
    """Return an alphabet that separates ``names`` and ``regexes``; ASCII names share one."""
    if not regexes and "".join(names).isascii():
        return _ascii_alphabet()
    sets: set[ir.Ranges] = {((ord(char), ord(char)),) for char in set().union(*names)}
    for regex in regexes:
        sets |= char_sets(regex)
    return Alphabet(sets)


@lru_cache(maxsize=1)
def _ascii_alphabet() -> Alphabet:
    return Alphabet({((code, code),) for code in range(0x80)})


class NameTrie:
    """A finite set of strings over an alphabet, whose nodes are made when they are reached.

    A node is a range of the sorted strings: those with a common prefix. ``ends[node]`` is the index
    of the string that ends there, or -1.

    Attributes:
        order: the indexes of the strings, sorted.
        first, beyond: for each node, its range in ``order``, from ``first`` to before ``beyond``.
    """

    def __init__(self, names: Sequence[str], alphabet: Alphabet) -> None:
        self.texts = names
        self._alphabet = alphabet
        self.order = sorted(range(len(names)), key=names.__getitem__)
        self._sorted = [names[index] for index in self.order]
        self._stride = len(names) + 1
        # Plain numbers instead of tuples: there are as many nodes as masks inside keys.
        self.first: list[int] = []
        self.beyond: list[int] = []
        self._ids: dict[int, int] = {}  # by depth and the first string
        self.ends: list[int] = []
        self.depth: list[int] = []
        self._node(0, len(names), 0)
        # Whether JSON has only one way to write every character.
        text = "".join(names)
        self.is_plain = (
            text.isascii() and text.isprintable() and '"' not in text and "\\" not in text
        )

    def _node(self, first: int, beyond: int, depth: int) -> int:
        """Return the node of the sorted strings ``first`` to ``beyond``, which share a prefix."""
        key = depth * self._stride + first
        node = self._ids.get(key)
        if node is not None:
            return node
        node = self._ids[key] = len(self.ends)
        self.first.append(first)
        self.beyond.append(beyond)
        # The shortest of the strings with a common prefix comes first.
        ends_here = first < beyond and len(self._sorted[first]) == depth
        self.ends.append(self.order[first] if ends_here else -1)
        self.depth.append(depth)
        return node

    @property
    def weight(self) -> int:
        """Its size in bytes, roughly."""
        return 500 * len(self.ends) + 100 * len(self.texts)

    @cached_method
    def children(self, node: int) -> dict[int, int]:
        """Return the children of ``node`` by minterm."""
        minterm = self._alphabet.minterm
        return {minterm(ord(char)): child for char, child in self.by_character(node)}

    def by_character(self, node: int) -> Iterator[tuple[str, int]]:
        """Yield the children of ``node``, each with its character."""
        depth = self.depth[node]
        first, beyond = self.first[node], self.beyond[node]
        first += self.ends[node] >= 0
        while first < beyond:
            char = self._sorted[first][depth]
            end = first + 1
            if end < beyond and self._sorted[end][depth] == char:
                end = bisect_right(self._sorted, char, end, beyond, key=itemgetter(depth))
            yield char, self._node(first, end, depth + 1)
            first = end

    def after(self, node: int, text: str) -> int:
        """Return the node after ``text`` from ``node``, or -1, without making the nodes between."""
        first, beyond, strings = self.first[node], self.beyond[node], self._sorted
        if first == beyond:
            return -1
        # Compared as a whole: comparing only the rest would need a key for each.
        whole = strings[first][: self.depth[node]] + text
        if beyond - first > 1:
            first = bisect_left(strings, whole, first, beyond)
        if first == beyond or not strings[first].startswith(whole):
            return -1
        end = first + 1
        if end < beyond and strings[end].startswith(whole):
            if strings[beyond - 1].startswith(whole):
                end = beyond
            else:
                end = bisect_left(strings, whole + _LAST, end, beyond)
                while strings[end].startswith(whole):
                    end += 1
        return self._node(first, end, len(whole))

    def below(self, node: int) -> list[int]:
        """Return the indexes of the strings that go through ``node``."""
        first, beyond = self.first[node], self.beyond[node]
        return self.order[first:beyond]

    def is_below(self, index: int, node: int) -> bool:
        """Return whether a string goes through ``node``."""
        text = self._sorted[self.first[node]]
        return self.texts[index].startswith(text[: self.depth[node]])

    @cached_method
    def rests(self, node: int) -> dict[str, int]:
        """Return the rest of each string that goes through ``node``, and its index."""
        depth = self.depth[node]
        return {self.texts[index][depth:]: index for index in self.below(node)}


class ByteEdges(dict[int, tuple[tuple[int, int], ...]]):
    """The ``(byte, child)`` pairs of the nodes of a trie of ASCII names, made on demand."""

    def __init__(self, trie: NameTrie) -> None:
        self._trie = trie

    def __missing__(self, node: int) -> tuple[tuple[int, int], ...]:
        made = tuple([(ord(char), child) for char, child in self._trie.by_character(node)])
        self[node] = made
        return made


class NamesBelow(dict[int, int]):
    """The names that end at or below each node of a trie, as a mask. Made on demand, because those
    of all nodes take memory quadratic in the number of names."""

    def __init__(self, trie: NameTrie) -> None:
        self._trie = trie
        self[0] = (1 << len(trie.texts)) - 1

    def __missing__(self, node: int) -> int:
        trie = self._trie
        first, beyond = trie.first[node], trie.beyond[node]
        if beyond == first + 1:
            mask = self[node] = 1 << trie.order[first]
            return mask
        found = trie.below(node)
        held = bytearray((max(found) >> 3) + 1)
        for index in found:
            held[index >> 3] |= 1 << (index & 7)
        mask = self[node] = int.from_bytes(held, "little")
        return mask


_FEW_PATTERNS = 6

_MANY_CHARACTERS = 20
"""With two minterms, this many characters have more texts than any object has names."""

_ALL = -1
"""A mask of names that stands for all names below the node, if none of them is barred. Separate
masks would take a bit for every name, at each state."""

_LOST = -(1 << 40)
"""The state of a pattern that can no longer match."""

_NO_KEY = (-1, 0, False, ())
"""The state in which no key may be written."""


class KeySymbols(SymbolAutomaton):
    """The symbol automaton of an object's keys.

    A state is ``(trie node or -1, named keys still possible, may it be an unnamed key, pattern
    states)``; the second is a mask of names, or `_ALL` for all names below the node. Its label is
    ``i`` for the i-th name, or ``n_names + j`` for an unnamed key of class j, where
    ``classify(matched patterns)`` returns j, or -1 to bar such keys.

    Args:
        names: the named keys.
        patterns: expressions that unnamed keys are matched against as a whole (search semantics are
            already applied). The matching ones are a bit mask.
        must_match: expressions that every unnamed key has to match, too.
        classify: returns the class of an unnamed key for its mask of matched patterns, or -1.
        n_names: how many of ``names`` can be written at all; the others are barred. Labels of
            unnamed keys start here.
    """

    def __init__(
        self,
        names: Sequence[str],
        patterns: Sequence[ir.Regex],
        must_match: Sequence[ir.Regex],
        classify: Callable[[int], int],
        n_names: int,
    ) -> None:
        expressions = (*patterns, *must_match)
        self.alphabet = names_alphabet(names, expressions)
        self.n_names = n_names
        self._texts = names
        self._n_patterns = len(patterns)
        self._automata: list[RegexAutomaton] = []
        for regex in expressions:
            self._automata.append(RegexAutomaton(regex, self.alphabet))
        self.has_expressions = bool(expressions)
        self._classify = classify
        self._numbered: Numbers[tuple[int, int, bool, tuple[int, ...]]] = Numbers([_NO_KEY])
        self._keys = self._numbered.listed
        self._alive: dict[int, bool] = {}
        self.start = 0

    # The first mask does not need the names if no token holds a key's quote and what follows it, so
    # names are sorted when the second mask is made.

    @functools.cached_property
    def _trie(self) -> NameTrie:
        # Two threads at once would compute the same.
        trie: NameTrie = vars(self).setdefault("_trie", NameTrie(self._texts, self.alphabet))
        return trie

    @functools.cached_property
    def _below(self) -> NamesBelow:
        return NamesBelow(self._trie)

    @functools.cached_property
    def _edges(self) -> ByteEdges | None:
        return ByteEdges(self._trie) if self._trie.is_plain else None

    @property
    def weight(self) -> int:
        """See `automaton.SymbolAutomaton`."""
        trie = vars(self).get("_trie")
        weight = 2000 + 550 * len(self._keys)
        weight += 100 * len(self._texts) if trie is None else trie.weight
        for automaton in self._automata:
            weight += automaton.weight
        return weight

    def menu(self, allowed: int, others: bool) -> int | None:
        """Return the start state if names in ``allowed`` and perhaps unnamed keys may be written.

        Returns:
            The state, or None if no key can be written from it.
        """
        state = self._state(0, allowed, others, tuple([a.start for a in self._automata]))
        return state if allowed or self._is_alive(state) else None

    def label(self, state: int) -> int:
        """Return the index of the name, or the label of the unnamed key, that may end here; else
        -1."""
        node, allowed, others, patterns = self._keys[state]
        if node >= 0 and self._trie.ends[node] >= 0:
            index = self._trie.ends[node]
            return index if allowed >> index & 1 else -1
        if not others:
            return -1
        matched = 0
        WORK.spend(len(patterns) >> 4)
        for i, (automaton, at) in enumerate(zip(self._automata, patterns, strict=True)):
            hit = at != _LOST and automaton.label(at) >= 0
            if i < self._n_patterns:
                matched |= hit << i
            elif not hit:
                return -1
        found = self._classify(matched)
        return self.n_names + found if found >= 0 else -1

    def shortest_name(self, state: int, encoding: Utf8) -> bytes | None:
        """Return the fewest bytes of a name that is still possible at a start state."""
        _, allowed, _, _ = self._keys[state]
        texts = [self.rest_of_name(state, index, GROUND, encoding) for index in bits(allowed)]
        return min([text for text in texts if text is not None], key=len, default=None)

    def rest_of_name(self, state: int, label: int, node: int, encoding: Utf8) -> bytes | None:
        """Return the fewest bytes from a state and encoding node to the end of name ``label``."""
        at, allowed, _, _ = self._keys[state]
        if not allowed >> label & 1 or (allowed == _ALL and not self._trie.is_below(label, at)):
            return None
        points = [*map(ord, self._texts[label][self._trie.depth[at] :])]
        begun: bytes | None = b""
        if node != GROUND and points:
            begun = encoding.shortest(node).get(self.alphabet.minterm(points.pop(0)))
        elif node != GROUND:
            begun = None
        return None if begun is None else begun + b"".join(map(encoding.spell, points))

    @cached_method
    def moves(self, state: int) -> tuple[tuple[int, int], ...]:
        """Return disjoint ``(minterm mask, next state)`` pairs without dead ends."""
        return tuple([move for move in self._raw(state) if self._is_alive(move[1])])

    def follow(self, state: int, minterm: int) -> int | None:
        """See `automaton.SymbolAutomaton`."""
        node, allowed, others, _ = self._keys[state]
        if others and self._automata:
            return next((to for mask, to in self.moves(state) if mask >> minterm & 1), None)
        child = self._trie.children(node).get(minterm, -1) if node >= 0 else -1
        if child < 0 and not others:
            return None
        to = self._state(child, allowed, others, ())
        return to if self._is_alive(to) else None

    def read(self, state: int, text: bytes) -> int | None:
        """See `automaton.SymbolAutomaton`."""
        node, allowed, others, _ = self._keys[state]
        if others and self._automata:
            minterms = self.alphabet.ascii_minterms()
            for byte in text:
                to = self.follow(state, minterms[byte])
                if to is None:
                    return None
                state = to
            return state
        if node >= 0:
            node = self._trie.after(node, text.decode("ascii"))
        if node >= 0:
            left = self._left(allowed, node)
            if left:
                return self._state(node, left, others, ())
        if not others:
            return None
        to = self._state(node, 0, True, ())
        return to if self._is_alive(to) else None

    def run(self, state: int) -> tuple[int, int]:
        """See `automaton.SymbolAutomaton`."""
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
            return 0, 0  # unknown whether all states on the way can continue
        return (chars, length) if chars else (0, 0)

    def after_run(self, state: int, count: int) -> int:
        """See `automaton.SymbolAutomaton`."""
        if not count:
            return state
        _, _, others, patterns = self._keys[state]
        after = [
            at if at == _LOST else automaton.after_run(at, count)
            for automaton, at in zip(self._automata, patterns, strict=True)
        ]
        return self._state(-1, 0, others, tuple(after))

    def settled(self, state: int) -> int:
        """See `automaton.SymbolAutomaton`."""
        patterns = zip(self._automata, self._keys[state][3], strict=True)
        return max((a.settled(at) for a, at in patterns if at != _LOST), default=0)

    @functools.cached_property
    def _decides(self) -> str:
        """Return which expressions decide whether a text can become an unnamed key: ``"none"``,
        ``"one"`` (there is only one), or ``"all"``."""
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
        """See `automaton.SymbolAutomaton`."""
        node, _, others, patterns = self._keys[state]
        if node >= 0 or not others or self._decides != "one":
            return None
        return self._automata[0], patterns[0]

    def in_expression(self, state: int) -> int:
        """See `automaton.SymbolAutomaton`."""
        return self._state(-1, 0, True, (state,))

    def free(self, state: int) -> int | None:
        """See `automaton.SymbolAutomaton`."""
        _, _, others, patterns = self._keys[state]
        if not others or any(at != _LOST for at in patterns):
            return None
        free = self._state(-1, 0, True, patterns)
        return free if self._is_alive(free) else None

    def unnamed(self, state: int) -> int | None:
        """See `automaton.SymbolAutomaton`: true where no expression bars a key."""
        _, _, others, patterns = self._keys[state]
        if not others or not self._automata or self._decides != "none":
            return None
        return self._state(-1, 0, True, patterns)

    def beside_names(self, state: int) -> int | None:
        """See `automaton.SymbolAutomaton`."""
        node, _, others, patterns = self._keys[state]
        if not others or not self._automata or node < 0 or self._edges is None:
            return None
        return self._state(-1, 0, True, patterns)

    def towards_names(self, state: int) -> list[tuple[int, int, bool]]:
        """See `automaton.SymbolAutomaton`."""
        node, allowed, others, patterns = self._keys[state]
        if node < 0 or self._edges is None:
            return []
        minterms = self.alphabet.ascii_minterms()
        out: list[tuple[int, int, bool]] = []
        for byte, child in self._edges[node]:
            after: list[int] = []
            for automaton, at in zip(self._automata, patterns, strict=False):
                to = None if at == _LOST else automaton.follow(at, minterms[byte])
                after.append(_LOST if to is None else to)
            may_be_unnamed = others and _LOST not in after[self._n_patterns :]
            left = self._left(allowed, child)
            if not left and not may_be_unnamed:
                continue  # nor does anything after it
            state = self._state(child, left, may_be_unnamed, tuple(after))
            out.append((byte, state, self._is_alive(state)))
        return out

    def special(self, state: int) -> list[tuple[int, int]]:
        """See `automaton.SymbolAutomaton`."""
        node, allowed, others, patterns = self._keys[state]
        if node < 0:
            return []
        point = self.alphabet.representatives
        return [
            (point[minterm], self._state(child, allowed, others, patterns))
            for minterm, child in self._trie.children(node).items()
            if others or self._left(allowed, child)
        ]

    def names(self, state: int) -> Names | None:
        """See `automaton.SymbolAutomaton`."""
        node, allowed, others, _ = self._keys[state]
        edges = self._edges
        if others or node < 0 or edges is None:
            return None
        return Names(edges, self._trie.ends, self._below, node, allowed)

    def rests(self, state: int, most: int) -> list[tuple[int, str]] | None:
        """See `automaton.SymbolAutomaton`."""
        node, allowed, others, _ = self._keys[state]
        if others or node < 0 or self._edges is None:
            return None
        trie = self._trie
        n_names = allowed.bit_count() if allowed != _ALL else trie.beyond[node] - trie.first[node]
        if n_names > most:
            return None
        texts, depth = trie.texts, trie.depth[node]
        names = bits(allowed) if allowed != _ALL else sorted(trie.below(node))
        return [(name, texts[name][depth:]) for name in names]

    def special_texts(self, state: int) -> Mapping[str, int]:
        """See `automaton.SymbolAutomaton`: the rest of each name, and its number."""
        node = self._keys[state][0]
        return self._trie.rests(node) if node >= 0 else {}

    def special_label(self, state: int, number: int) -> int:
        """See `automaton.SymbolAutomaton`."""
        return number if self._keys[state][1] >> number & 1 else -1

    def _left(self, allowed: int, node: int) -> int:
        """Return the names of a mask that go through a trie node; `_ALL` for all of them."""
        if allowed == _ALL or not node:
            return allowed
        below = self._below[node]
        left = allowed & below
        return _ALL if left == below else left

    def _state(self, node: int, allowed: int, others: bool, patterns: tuple[int, ...]) -> int:
        if allowed and node:  # all names are below the first node
            allowed = self._left(allowed, node) if node > 0 else 0
        if not others:
            patterns = ()
            if not allowed:
                node = -1
        elif self._automata and not self._texts:
            node = -1  # there are no names to distinguish
        return self._numbered[node, allowed, others, patterns]

    def _raw(self, state: int) -> list[tuple[int, int]]:
        node, allowed, others, patterns = self._keys[state]
        children = self._trie.children(node) if node >= 0 else {}
        if not others:
            return [
                (1 << minterm, self._state(child, allowed, False, ()))
                for minterm, child in children.items()
                if self._left(allowed, child)
            ]
        # Split the alphabet by what every pattern does, then by the trie's own characters.
        pieces: list[tuple[int, tuple[int, ...]]] = [(self.alphabet.everything, ())]
        for i, (automaton, at) in enumerate(zip(self._automata, patterns, strict=True)):
            split: list[tuple[int, tuple[int, ...]]] = []
            moves = automaton.moves(at) if at != _LOST else ()
            WORK.spend(len(pieces) * (8 * len(moves) + i) >> 9)
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
            for minterm, child in children.items():
                bit = 1 << minterm
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
        return liveness.is_alive(
            state,
            self._alive,
            lambda at: self._is_plainly_alive(at) or self.label(at) >= 0,
            lambda at: [to for _, to in self._raw(at)],
        )

    def _is_plainly_alive(self, state: int) -> bool:
        """Return whether it is obvious that a key is possible: a name, an unnamed key without
        expressions, or a text of a single expression. (An expression has no dead states, no barred
        name lies outside the trie, and inside it there are at most as many barred texts as names.)
        """
        node, allowed, others, patterns = self._keys[state]
        if allowed or not others:
            return allowed != 0
        if not self._automata:
            return self._classify(0) >= 0
        if self._decides != "one" or patterns[0] == _LOST:
            return False
        if patterns[0] == self._automata[0].start and self._automata[0].is_empty():
            return False
        return node < 0 or self._takes_more_than_names(patterns[0])

    def _takes_more_than_names(self, at: int) -> bool:
        """Return whether the first expression clearly matches more texts than there are names."""
        automaton = self._automata[0]
        if automaton.is_open(at):
            return True
        chars, most = automaton.run(at)
        if most < 0:
            return True  # a text of any length can end
        n_texts: int = chars.bit_count() ** min(most, _MANY_CHARACTERS)
        return n_texts > len(self._texts)


_KEY_BEGINS = ENDED - ITEM
"""The result of reading `before_key` up to the start of a key."""

_QUOTE = 0x22


class NameLeaf(StringLeaf):
    """JSON strings of a finite set, some of which may be barred."""

    def __init__(
        self, names: Sequence[str], escapes: Escapes, missing: frozenset[int] = frozenset()
    ) -> None:
        symbols = KeySymbols(names, (), (), lambda _: -1, len(names))
        self._names = symbols
        super().__init__(symbols, json_string(symbols.alphabet, escapes, missing))

    def open(self, allowed: int) -> int | None:
        """Return the state before the opening quote of one of the strings in ``allowed``; None if
        there are none."""
        menu = self._names.menu(allowed, False)
        return None if menu is None else self.state((self._OPEN, menu))

    def _edges(self, key: Any) -> dict[int, Any]:
        if isinstance(key, tuple) and key[0] == self._OPEN:
            return {0x22: (key[1], GROUND)}
        return super()._edges(key)

    def text_state(self, q: int) -> int | None:
        """See `Leaf.text_state`."""
        return None if self._keys[q][0] == self._OPEN else super().text_state(q)

    def _search(self, q: int, wanted: int | None) -> tuple[Text, int] | None:
        key = self._keys[q]
        if isinstance(key, tuple) and key[0] == self._OPEN:
            text = self._names.shortest_name(key[1], self.encoding)
            return None if text is None else (b'"' + text + b'"', 0)
        return super()._search(q, wanted)


class AfterKey(Leaf):
    """The text from the closing quote of any key to the start of its value.

    Does what `KeyLeaf` does there, so that walks of this leaf serve all keys of all objects.
    """

    def __init__(self, space: Whitespace) -> None:
        super().__init__()
        self._space = space
        self.start = self.state(("colon", 0))

    def _edges(self, key: Any) -> Mapping[int, Any]:
        phase, at = key
        space = self._space
        edges = {byte: (phase, to) for byte, to in space.edges[at].items()}
        if phase == "colon" and space.may_end[at]:
            edges[0x3A] = ("value", space.after_mark)
        return edges

    def _label(self, key: Any) -> int:
        return 0 if key[0] == "value" and self._space.may_end[key[1]] else -1


_after_key = kept(AfterKey)


class KeyLeaf(Leaf):
    """Object punctuation and keys: from ``{`` or the end of a value to the next value or ``}``.

    Ends with outcome `CLOSE`, or ``1 + label`` of the key.

    A state is ``("before", q, menu)``, q being one of `before_key`, ``("key", symbol state,
    encoding node)``, or ``("after", q, label)``, q being one of `AfterKey`.

    Args:
        symbols: the keys.
        space: whitespace allowed around punctuation.
        escapes: how keys may be written.
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
        # Whitespace around colons is the same at all depths.
        at_colon = whitespace("spaced") if isinstance(space, Indentation) else space
        self._before_key, self._after_key = before_key(space), _after_key(at_colon)

    @property
    def weight(self) -> int:
        """See `Leaf.weight`."""
        own = 2000 + self._state_bytes * len(self._keys) + 40 * self._n_edges
        return own + self.symbols.weight + 100 * len(self._steps)

    def open(self, menu: int | None, may_close: bool) -> int:
        """Return the state before ``{``; ``menu`` is a start state of the key symbols."""
        q = self._before_key.open(menu is not None, may_close)
        return self.state(("before", q, menu))

    def after_value(self, menu: int | None, may_close: bool) -> int:
        """Return the state after a member's value."""
        q = self._before_key.after_item(menu is not None, may_close)
        return self.state(("before", q, menu))

    def text_state(self, q: int) -> int | None:
        """See `Leaf.text_state`."""
        key = self._keys[q]
        return key[1] if key[0] == "key" and key[2] == GROUND else None

    def step(self, q: int, byte: int) -> int:
        """See `Leaf.step`: inside a key, follows one byte without computing the others."""
        row = self._rows[q]
        if row is not None:
            return row.get(byte, -1)
        to = self._steps.get(q << 8 | byte)
        if to is None:
            kind, at, more = self._keys[q]
            if kind != "key":
                return self.row(q).get(byte, -1)
            if byte == _QUOTE and more == GROUND:
                label = self.symbols.label(at)
                to = self.after_quote(label) if label >= 0 else -1
            else:
                spelt = spell_edge(self.symbols, self.encoding, (at, more), byte)
                to = -1 if spelt is None else self.in_text(*spelt)
            self._steps[q << 8 | byte] = to
        return to

    def read(self, q: int, data: bytes, start: int) -> tuple[int, int]:
        """See `Leaf.read`. Creates only the last state."""
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

    def continues(self, q: int) -> bool:
        """See `Leaf.continues`."""
        kind, at, _ = self._keys[q]
        if kind == "key":
            return True
        return (self._before_key if kind == "before" else self._after_key).continues(at)

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
        """Return the key of the state for state ``q`` of `before_key`."""
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

    def _label(self, key: Any) -> int:
        kind, at, more = key
        if kind == "before":
            return CLOSE if self._before_key.labels[at] == CLOSE else -1
        if kind == "after" and self._after_key.labels[at] >= 0:
            return int(1 + more)
        return -1

    def _search(self, q: int, wanted: int | None) -> tuple[Text, int] | None:
        # Punctuation by byte, keys by symbol: the keys of a large object have a state for each
        # prefix of each name, and by byte there would be more for each partly written character.
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
        """Return the fewest bytes from inside a key to the start of its value."""
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
