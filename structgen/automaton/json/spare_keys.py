"""Keys that an object names nowhere: short ones not written yet, by the patterns they match.

`SpareKeys` finds a key for each set of patterns that one can match, or as many keys as are wanted.
Ordinary ones are tried first; others are searched for in the automaton of all keys that are left.
Knows no rules and no values.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from structgen.automaton.work import WORK
from structgen.errors import CompileLimitExceeded

from . import evaluate
from .key_symbols import KeySymbols
from .members import MemberTable

MAX_KEY_STATES = 20_000
"""Most states of the automaton that finds keys for members that are owed."""

_SAMPLES = [*"abcdefghijklmnopqrstuvwxyz0123456789_", "$", "a-b", "x-", "@", "name", "id", "key"]


class SpareKeys:
    """The unnamed keys of one member table."""

    def __init__(self, table: MemberTable) -> None:
        self._table = table
        self._samples: list[tuple[str, int]] | None = None
        self._spare: dict[tuple[str, ...], dict[int, str]] = {}
        self._searched: dict[tuple[str, ...], list[tuple[str, int]]] = {}
        self._pool: list[tuple[str, int]] = []
        self._pool_size = 0

    def one(self, used: tuple[str, ...], label: int) -> str | None:
        """An unnamed key with this label that is not in ``used``; None when there are no more."""
        wanted = self._table.matched_by(label)
        for name, matched in self._known_keys():
            if matched == wanted and name not in used:
                return name
        for taken in ((), used):
            found = next((name for name, m in self._search_keys(taken) if m == wanted), None)
            if found not in used:  # or there is none at all
                return found
        return None

    def many(
        self, used: tuple[str, ...], number: int, is_of_use: Callable[[int], bool]
    ) -> Iterator[tuple[str, int]]:
        """Unnamed keys not in ``used``, with the patterns they match: enough if there are enough of
        any kind that ``is_of_use``."""
        table = self._table
        taken = {*table.names, *used}
        for name, matched in self._known_keys():
            if name not in taken:
                taken.add(name)
                yield name, matched
        for name in (f"k{i}" for i in range(number)):
            if name not in taken and table.is_name_allowed(name):
                taken.add(name)
                yield name, self._matches(name)
        # Not one by one, where names are of a long list.
        for name, matched in self._pool_of(number + len(used)):
            if name not in taken:
                taken.add(name)
                yield name, matched
        first = list(self.by_patterns(used))
        yield from (key for key in first if key[0] not in taken)
        more: tuple[str, ...] = tuple(sorted({*used, *(name for name, _ in first)}))
        for _ in range(number if first else 0):
            found = list(self.by_patterns(more))
            if not any(is_of_use(matched) for _, matched in found):
                return
            yield from (key for key in found if key[0] not in taken)
            more = tuple(sorted({*more, *(name for name, _ in found)}))

    def by_patterns(self, used: tuple[str, ...]) -> Iterator[tuple[str, int]]:
        """Short unnamed keys that are not yet used, with the patterns they match: one for each set
        of patterns that a key can match."""
        table = self._table
        known = self._spare.setdefault(used, {})
        taken = {*table.names, *used}
        if not known:
            for name, matched in self._known_keys():
                if name not in taken:
                    known.setdefault(matched, name)
        yield from [(name, matched) for matched, name in sorted(known.items())]
        if len(known) == 1 << len(table.bits):
            return  # there is no other set
        # One search does for all, but where its key for a set of patterns has been used.
        others = [(name, m) for name, m in self._search_keys(()) if m not in known]
        yield from (key for key in others if key[0] not in used)
        gone = {m for name, m in others if name in used}
        if gone:
            yield from (key for key in self._search_keys(used) if key[1] in gone)

    def _search_keys(self, used: tuple[str, ...]) -> list[tuple[str, int]]:
        """A shortest unnamed key not in ``used`` for each set of patterns that one can match."""
        found = self._searched.get(used)
        if found is None:
            found = self._searched[used] = self._all_keys({*self._table.names, *used})
        return found

    def _known_keys(self) -> list[tuple[str, int]]:
        """Ordinary unnamed keys, with the patterns they match."""
        if self._samples is None:
            allowed = [n for n in _SAMPLES if self._table.is_name_allowed(n)]
            names = self._table.index
            self._samples = [(n, self._matches(n)) for n in allowed if n not in names]
        return self._samples

    def _matches(self, name: str) -> int:
        """Bit mask of the patterns that ``name`` matches."""
        bits = self._table.bits
        return sum(bit for regex, bit in bits.items() if evaluate.matches(regex, name))

    def _pool_of(self, most: int) -> list[tuple[str, int]]:
        """Short unnamed keys, up to ``most`` through each state of their automaton: not all there
        are, but as many where there are so many."""
        if most > self._pool_size:
            self._pool_size = 2 * most
            self._pool = list(self._keys_by_length(self._pool_size))
        return self._pool

    def _keys_by_length(self, most: int) -> Iterator[tuple[str, int]]:
        """The keys of `_pool_of`, the shortest first."""
        table = self._table
        parts = table.spare_parts(list(table.names))
        symbols = KeySymbols((), list(table.bits), parts, lambda matched: matched, 0)
        start = symbols.menu(0, True)
        seen: dict[int, int] = {}
        queue = deque([] if start is None else [(start, "")])
        for _ in range(MAX_KEY_STATES):
            if not queue:
                break
            state, text = queue.popleft()
            WORK.spend(2)
            if symbols.label(state) >= 0:
                yield text, symbols.label(state)
            for mask, to in symbols.moves(state):
                room = most - seen.get(to, 0)
                if room > 0:
                    characters = symbols.alphabet.samples(mask)[:room]
                    seen[to] = most - room + len(characters)
                    queue += [(to, text + character) for character in characters]

    def _all_keys(self, taken: set[str]) -> list[tuple[str, int]]:
        """A shortest key outside ``taken`` for each set of patterns that such a key can match."""
        table = self._table
        parts = table.spare_parts(list(taken))
        symbols = KeySymbols((), list(table.bits), parts, lambda matched: matched, 0)
        start = symbols.menu(0, True)
        if start is None:
            return []
        found: dict[int, str] = {}
        # state → a shortest text that leads to it
        texts = {start: ""}
        queue = deque([start])
        while queue:
            state = queue.popleft()
            if symbols.label(state) >= 0:
                found.setdefault(symbols.label(state), texts[state])
            for mask, to in symbols.moves(state):
                if to not in texts:
                    texts[to] = texts[state] + symbols.alphabet.sample(mask)
                    queue.append(to)
            if len(texts) > MAX_KEY_STATES:
                raise CompileLimitExceeded(
                    f"too many patterns tell the keys apart of the object at {table.path}",
                    limit=MAX_KEY_STATES,
                    actual=len(texts),
                )
        return [(name, matched) for matched, name in found.items()]
