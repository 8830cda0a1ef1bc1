"""Ropes in the fewest tokens: `fewest_tokens` for texts that need not fit into memory.

How many tokens a part of a text takes depends on what stands before it not at all, and on what
comes after it only as far as one token can reach. So each part of a rope is looked at once for each
such *window* after it, however often it stands in the text: a thousand items of a thousand items
take a few steps. The tokens themselves are told one by one from the left, as far as somebody asks.
It knows tokens as trie nodes only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias, final

from structgen.automaton.texts import Rope, Text
from structgen.automaton.work import WORK
from structgen.vocabulary.trie import Trie

_UNREACHABLE = 1 << 1000
"""More tokens than any text has."""

Window: TypeAlias = "tuple[bytes, tuple[int, ...]]"
"""The first bytes of what follows, as many as a token has at most; and for each place before, in
and after these how many tokens more or less it is from the end than the nearest of them."""

_AT_END: Window = b"", (0,)

_MOST_KNOWN = 200_000

_FEW_PARTS = 100


class _Before(NamedTuple):
    """What a part of a text comes to, given the window after it.

    Attributes:
        farther: how many tokens farther from the end the nearest place in the window is now.
        window: the window that begins where the part does.
    """

    farther: int
    window: Window


_Known: TypeAlias = "dict[tuple[Text, Window], _Before]"


@final
class RopeTokens:
    """Spells ropes in nodes of one trie. Safe to share by threads."""

    __slots__ = ("_known", "_parts", "_trie")

    def __init__(self, trie: Trie) -> None:
        self._trie = trie
        # By a part and its window.
        self._known: _Known = {}
        self._parts: set[Text] = set()

    def count(self, text: Text) -> int | None:
        """How many tokens the fewest are that concatenate to ``text``; None if none do."""
        count, (_, costs) = self._before(text, _AT_END)
        return None if costs[0] >= _UNREACHABLE else count + costs[0]

    def is_mostly_known(self, text: Text) -> bool:
        """Whether few parts of ``text``, each counted once, have not been looked at yet."""
        parts = self._parts
        seen: set[Text] = set()
        todo = [text]
        while todo and len(seen) <= _FEW_PARTS:
            part = todo.pop()
            if isinstance(part, Rope) and part not in parts and part not in seen:
                seen.add(part)
                todo += (part.first, part.second)
        return not todo

    def nodes(self, text: Text) -> Iterator[int]:
        """Those tokens from the left, of equally short answers the one with the longest first."""
        todo: list[tuple[Text, int, Window]] = [(text, 1, _AT_END)]
        skip = 0  # bytes that a token from before has spelt already
        while todo:
            part, times, after = todo.pop()
            if times > 1:
                todo.append((part, times - 1, after))
                after = self._repeated(part, times - 1, after).window
            if isinstance(part, Rope):
                if len(part) <= skip:
                    skip -= len(part)
                    continue
                todo.append((part.second, 1, after))
                after = self._before(part.second, after).window
                todo.append((part.first, part.times, after))
                continue
            at = skip
            if at < len(part):
                steps = self._steps(part, after)[1]
                while at < len(part):
                    node, length = steps[at]
                    yield node
                    at += length
            skip = at - len(part)

    def _before(self, text: Text, after: Window) -> _Before:
        if len(self._known) > _MOST_KNOWN:
            self._known = {}  # not emptied: another thread may be using it
            self._parts = set()
        known, parts = self._known, self._parts
        todo: list[tuple[Text, Window]] = [(text, after)]
        while True:
            part, window = todo[-1]
            key = part, window
            if key not in known:
                found = self._work_out(part, window, known)
                if not isinstance(found, _Before):
                    todo.append(found)
                    continue
                known[key] = found
                parts.add(part)
            todo.pop()
            if not todo:
                return known[key]

    def _work_out(
        self, part: Text, after: Window, all_known: _Known
    ) -> _Before | tuple[Text, Window]:
        """What ``part`` comes to, or which of its parts has to be looked at before."""
        WORK.spend(1)
        if isinstance(part, bytes):
            WORK.spend(len(part) >> 4)
            return self._steps(part, after)[0]
        found = all_known.get((part.second, after))
        if found is None:
            return part.second, after
        count, window = found
        # Soon one round comes to what another one came to.
        windows: list[Window] = []
        counts: list[int] = [count]
        for n in range(part.times):
            if window in windows:
                start = windows.index(window)
                size = n - start
                rounds, rest = divmod(part.times - n, size)
                more = counts[start + rest] - counts[start]
                count += rounds * (counts[n] - counts[start]) + more
                return _Before(count, windows[start + rest])
            windows.append(window)
            known = all_known.get((part.first, window))
            if known is None:
                return part.first, window
            count, window = count + known.farther, known.window
            counts.append(count)
        return _Before(count, window)

    def _repeated(self, part: Text, times: int, after: Window) -> _Before:
        if times == 1:
            return self._before(part, after)
        return self._before(Rope(part, times, b""), after)

    def _steps(self, text: bytes, after: Window) -> tuple[_Before, list[tuple[int, int]]]:
        """What ``text`` comes to; and for each place in it the first token, and its length."""
        trie = self._trie
        child, token_start = trie.child, trie.token_start
        ahead, known = after
        data = text + ahead
        end, inner = len(data), len(text)
        costs = [_UNREACHABLE] * inner + list(known)
        steps = [(0, 1)] * inner
        for start in range(inner - 1, -1, -1):
            node, at, best, first = 0, start, _UNREACHABLE, (0, 1)
            while at < end:
                step = child.get(node << 8 | data[at])
                if step is None:
                    break
                node, at = step, at + 1
                # `<=` lets the longest token win among equals.
                if costs[at] < best and token_start[node] < token_start[node + 1]:
                    best = costs[at] + 1
                    first = (node, at - start)
            costs[start] = best
            steps[start] = first
        longest = trie.max_depth
        near = costs[: longest + 1]
        least = min(near)
        if least >= _UNREACHABLE:
            return _Before(0, (data[:longest], (_UNREACHABLE,) * len(near))), steps
        relative = [min(cost - least, _UNREACHABLE) for cost in near]
        for i, cost in enumerate(near):
            if cost >= _UNREACHABLE:
                relative[i] = _UNREACHABLE
        return _Before(least, (data[:longest], tuple(relative))), steps
