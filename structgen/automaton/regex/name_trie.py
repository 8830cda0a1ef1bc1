"""Finite sets of names: a trie whose nodes are made when they are reached.

`NameTrie` holds the names of an object's members, or the strings of a choice, and says what is left
of them at a node, by character, by byte and by text. It knows no JSON and no spelling; which names
are still allowed is the business of `json.keys`.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from operator import itemgetter

from structgen.grammar import ir

from .alphabet import Alphabet
from .derivatives import char_sets

_LAST = chr(sys.maxunicode)
"""No character comes after it, and hardly any name has it."""


def names_alphabet(names: Sequence[str], regexes: Sequence[ir.Regex]) -> Alphabet:
    """An alphabet that tells apart what ``names`` and ``regexes`` do; one for all ASCII names."""
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

    A node is a range of the sorted strings: those that begin alike. ``ends[node]`` is the index of
    the string that ends there, or -1.

    Attributes:
        order: the indexes of the strings, sorted.
        first, beyond: for each node the range of these, from ``first`` to before ``beyond``.
    """

    def __init__(self, names: Sequence[str], alphabet: Alphabet) -> None:
        self.texts = names
        self._alphabet = alphabet
        self.order = sorted(range(len(names)), key=names.__getitem__)
        self._sorted = [names[index] for index in self.order]
        self._stride = len(names) + 1
        # Numbers, and no tuples of them: there are as many nodes as masks inside of keys.
        self.first: list[int] = []
        self.beyond: list[int] = []
        self._ids: dict[int, int] = {}  # by depth and the first string
        self._children: dict[int, dict[int, int]] = {}
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
        key = depth * self._stride + first
        node = self._ids.get(key)
        if node is not None:
            return node
        node = self._ids[key] = len(self.ends)
        self.first.append(first)
        self.beyond.append(beyond)
        # The shortest of those that begin alike comes first.
        ends_here = first < beyond and len(self._sorted[first]) == depth
        self.ends.append(self.order[first] if ends_here else -1)
        self.depth.append(depth)
        return node

    @property
    def weight(self) -> int:
        """About how many bytes it takes by now."""
        return 500 * len(self.ends) + 100 * len(self.texts)

    def children(self, node: int) -> dict[int, int]:
        """The children of ``node`` by minterm."""
        found = self._children.get(node)
        if found is None:
            minterm = self._alphabet.minterm
            found = {minterm(ord(char)): child for char, child in self.by_character(node)}
            self._children[node] = found
        return found

    def by_character(self, node: int) -> Iterator[tuple[str, int]]:
        """The children of ``node``, each with its character."""
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
        """The node that ``text`` leads to from ``node``, or -1; those on the way are not made."""
        first, beyond, strings = self.first[node], self.beyond[node], self._sorted
        if first == beyond:
            return -1
        # Compared whole, and not from here on: no key has to be made of each.
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
        """The indexes of the strings that go through ``node``."""
        first, beyond = self.first[node], self.beyond[node]
        return self.order[first:beyond]

    def rests(self, node: int) -> dict[str, int]:
        """What is left of each string that goes through ``node``, and its index."""
        found = self._rests.get(node)
        if found is None:
            depth = self.depth[node]
            found = {self.texts[index][depth:]: index for index in self.below(node)}
            self._rests[node] = found
        return found


class ByteEdges(dict[int, tuple[tuple[int, int], ...]]):
    """The ``(byte, child)`` pairs of the nodes of a trie of ASCII names, made when asked for."""

    def __init__(self, trie: NameTrie) -> None:
        self._trie = trie

    def __missing__(self, node: int) -> tuple[tuple[int, int], ...]:
        made = tuple([(ord(char), child) for char, child in self._trie.by_character(node)])
        self[node] = made
        return made


class NamesBelow(dict[int, int]):
    """The names that end at a node of a trie or below, as a mask: made when first asked for, since
    those of all nodes take the square of the number of names."""

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
