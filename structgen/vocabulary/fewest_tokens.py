"""Bytes in the fewest tokens: a shortest path over a vocabulary's trie.

What the fewest tokens are from some byte to the end depends on nothing before it. Completions of
one long document, asked for one state after another, end alike; so the table of the last text is
kept, and of the next one only what differs is worked out. It knows tokens as trie nodes only.
"""

from __future__ import annotations

from typing import final

from structgen.vocabulary.rope_tokens import RopeTokens
from structgen.vocabulary.trie import Trie

_UNREACHABLE = 1 << 60


@final
class FewestTokens:
    """Spells bytes in nodes of one trie. Safe to share by threads.

    Attributes:
        ropes: spells texts that may be too long for that.
    """

    __slots__ = ("_last", "_trie", "ropes")

    def __init__(self, trie: Trie) -> None:
        self._trie = trie
        self.ropes = RopeTokens(trie)
        # A text, and for each number of its last bytes the fewest tokens that spell them, with node
        # and length of the first of these. Replaced as a whole, never changed.
        self._last: tuple[bytes, list[int], list[tuple[int, int]]] = (b"", [0], [(0, 0)])

    def count(self, data: bytes) -> int | None:
        """Return how many tokens `__call__` would take, which costs less."""
        needed = self._table(data)[0][len(data)]
        return needed if needed < _UNREACHABLE else None

    def __call__(self, data: bytes, most: int | None = None) -> list[int] | None:
        """Return the nodes of the fewest tokens that concatenate to ``data``; None if none do.

        Only the first ``most`` of them, if that is given.

        Of equally short answers, the one whose tokens are longest from the left.
        """
        fewest, chosen = self._table(data)
        left = len(data)
        if fewest[left] >= _UNREACHABLE:
            return None
        out: list[int] = []
        while left and (most is None or len(out) < most):
            node, length = chosen[left]
            out.append(node)
            left -= length
        return out

    def _table(self, data: bytes) -> tuple[list[int], list[tuple[int, int]]]:
        """For each number of last bytes: the fewest tokens, and the first of these."""
        trie = self._trie
        child, token_start = trie.child, trie.token_start
        known, fewest, chosen = self._last
        if known == data:
            return fewest, chosen
        alike = _common_end(known, data)
        fewest, chosen = fewest[: alike + 1], chosen[: alike + 1]
        end = len(data)
        for left in range(alike + 1, end + 1):
            node, at, best, first = 0, end - left, _UNREACHABLE, (0, 0)
            while at < end:
                step = child.get(node << 8 | data[at])
                if step is None:
                    break
                node, at = step, at + 1
                # `<=` lets the longest token win among equals.
                if fewest[end - at] < best and token_start[node] < token_start[node + 1]:
                    best = fewest[end - at] + 1
                    first = (node, at - end + left)
            fewest.append(best)
            chosen.append(first)
        self._last = (data, fewest, chosen)
        return fewest, chosen


def _common_end(a: bytes, b: bytes) -> int:
    """How many of the last bytes of ``a`` and ``b`` are equal."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[-middle:] == b[-middle:]:
            low = middle
        else:
            high = middle - 1
    return low
