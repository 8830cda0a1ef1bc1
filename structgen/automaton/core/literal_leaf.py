"""A finite set of byte strings, as a leaf.

It knows bytes and outcomes; what the strings mean, and how they are spelt, is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .leaf import ENDED, Leaf


class LiteralLeaf(Leaf):
    """A finite set of byte strings, as a trie; ``labels[i]`` is the outcome of ``texts[i]``."""

    def __init__(self, texts: Iterable[bytes], labels: Iterable[int] | None = None) -> None:
        super().__init__()
        self._children: list[dict[int, int]] = [{}]
        self._ends: list[int] = [-1]
        all_texts = list(texts)
        for text, label in zip(
            all_texts, labels if labels is not None else [0] * len(all_texts), strict=True
        ):
            node = 0
            for byte in text:
                child = self._children[node].get(byte)
                if child is None:
                    child = len(self._children)
                    self._children.append({})
                    self._ends.append(-1)
                    self._children[node][byte] = child
                node = child
            self._ends[node] = label
        self.start = self.state(0)

    def _edges(self, key: Any) -> Mapping[int, Any]:
        children: dict[int, int] = self._children[key]
        return children

    def _label(self, key: Any) -> int:
        label: int = self._ends[key]
        return label

    def read(self, q: int, data: bytes, start: int) -> tuple[int, int]:
        """See `Leaf.read`. Of what is read only the last state is made."""
        node, end = self._keys[q], len(data)
        while start < end:
            node = self._children[node].get(data[start], -1)
            start += 1
            if node < 0:
                return -1, start
            label = self._ends[node]
            if label >= 0:
                if not self._children[node]:
                    return ENDED - label, start
                break
        return self.state(node), start
