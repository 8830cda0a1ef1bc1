"""How terminals may end, and with how few bytes: searches over `terminal_sets`.

For each condition on the rest under which a terminal can end, `Exits` finds the fewest bytes that
end it so: all of them, or some that are near. Completions and budgets ask, and what tells which
conditions can be met at all; masks do not.
"""

from __future__ import annotations

from structgen.automaton.bits import bits
from structgen.automaton.regex.encoding import GROUND, Utf8
from structgen.automaton.regex.expressions import NONE
from structgen.automaton.texts import Text, put
from structgen.automaton.work import WORK
from structgen.errors import CompileLimitExceeded

from .terminal_sets import MAX_SEARCH, TerminalSets, Threads

_NEAR = 50

Inside = tuple[int, Threads, int]
"""What a state of a lexer holds: the condition, its threads, the node of the encoding."""


class Exits:
    """The ends of the terminals of one lexer."""

    def __init__(self, sets: TerminalSets, encoding: Utf8) -> None:
        self._sets = sets
        self._terminals = sets.terminals
        self._encoding = encoding
        self._known: dict[tuple[int, int, int], tuple[dict[int, Text], bool, int]] = {}
        self._known_near: dict[tuple[int, int, int], dict[int, Text]] = {}
        self._known_near_inside: dict[Inside, dict[tuple[int, int], Text]] = {}
        self._characters: dict[int, bytes] = {}

    def from_state(
        self, v: int, state: int, condition: int, most: int = MAX_SEARCH
    ) -> dict[int, Text] | None:
        """For each condition under which a terminal can end: the fewest bytes that end it so.

        Args:
            v: the variant.
            state: the terminal's state.
            condition: what holds of the rest from here on.
            most: how many states to look at.

        Returns:
            The bytes, or None when that needs more states.
        """
        if v in self._terminals.embedded:
            return self._of_embedded(v, condition)
        key = (v, state, condition)
        known = self._known.get(key)
        if known is None or (not known[1] and known[2] < most):
            known = self._known[key] = self._find_exits(v, state, condition, most)
        return known[0] if known[1] else None

    def of(self, terminal: int, condition: int) -> dict[int, Text]:
        """The exits from the beginning of a terminal."""
        if terminal in self._terminals.embedded:
            return self._of_embedded(terminal, condition)
        start = self._terminals.starts[terminal]
        if not self._sets.is_alive(terminal, start, condition):
            return {}
        return self._all(terminal, start, condition)

    def inside(self, inside: Inside) -> dict[tuple[int, int], Text]:
        """For each (terminal, condition) that can end from a lexer state: the fewest bytes."""
        found: dict[tuple[int, int], Text] = {}
        for v, state, condition, text in self._completed(inside):
            for end, more in self._all(v, state, condition).items():
                key = (self._sets.variants[v][0], end)
                whole = put(text, more)
                if key not in found or len(whole) < len(found[key]):
                    found[key] = whole
        return found

    def near_of(self, terminal: int, condition: int) -> dict[int, Text]:
        """The near exits from the beginning of a terminal."""
        if terminal in self._terminals.embedded:
            return self._of_embedded(terminal, condition)
        start = self._terminals.starts[terminal]
        if not self._sets.is_alive(terminal, start, condition):
            return {}
        return self._near(terminal, start, condition)

    def near_inside(self, inside: Inside) -> dict[tuple[int, int], Text]:
        """As `inside`, but only some that are near."""
        found = self._known_near_inside.get(inside)
        if found is None:
            found = {}
            for v, state, condition, text in self._completed(inside):
                for end, more in self._near(v, state, condition).items():
                    key = (self._sets.variants[v][0], end)
                    whole = put(text, more)
                    if key not in found or len(whole) < len(found[key]):
                        found[key] = whole
            self._known_near_inside[inside] = found
        return found

    def shortest_beginning(self, terminal: int, minterms: int) -> tuple[Text, int]:
        """The fewest bytes of ``terminal`` that begin with one of ``minterms``, which it can.

        Returns:
            The bytes, and the condition under which the terminal ends there.
        """
        spelt = self._encoding.shortest(GROUND)
        anything = self._terminals.rest.anything
        inner = self._terminals.embedded.get(terminal)
        if inner is not None:
            return inner.shortest(inner.first & minterms), anything
        texts: list[tuple[Text, int]] = []
        for mask, to in self._terminals.moves(self._terminals.starts[terminal]):
            if mask & minterms:
                exits = self._near(terminal, to, anything)
                end, more = min(exits.items(), key=lambda item: (len(item[1]), item[1]))
                texts += [(put(spelt[minterm], more), end) for minterm in bits(mask & minterms)]
        return min(texts, key=lambda pair: (len(pair[0]), pair))

    def _find_exits(
        self, v: int, state: int, condition: int, most: int
    ) -> tuple[dict[int, Text], bool, int]:
        found: dict[int, Text] = {}
        seen: set[tuple[int, int]] = set()
        characters = self._characters
        # Breadth first by length in bytes; a character has one to four.
        levels: list[dict[tuple[int, int], Text]] = [{(state, condition): b""}, {}, {}, {}, {}]
        while any(levels):
            level = levels.pop(0)
            levels.append({})
            for (q, w), text in level.items():
                if (q, w) in seen:
                    continue
                if len(seen) >= most:
                    return found, False, most
                seen.add((q, w))
                WORK.spend(2)
                end = self._sets.end(v, q, w)
                if end != NONE:
                    found.setdefault(end, text)
                for mask, to, w_to in self._sets.steps(q, w):
                    if (to, w_to) in seen or not self._sets.is_alive(v, to, w_to):
                        continue
                    best = characters.get(mask) or self._character(mask)
                    levels[len(best) - 1].setdefault((to, w_to), put(text, best))
        return found, True, most

    def _all(self, v: int, state: int, condition: int) -> dict[int, Text]:
        found = self.from_state(v, state, condition)
        if found is None:
            raise CompileLimitExceeded(
                "finding all ends of a terminal visits too many states",
                limit=MAX_SEARCH,
                actual=MAX_SEARCH,
            )
        return found

    def _near(self, v: int, state: int, condition: int) -> dict[int, Text]:
        """As `from_state`, but only some that are near; at least one, if there is any."""
        key = (v, state, condition)
        found = self._known_near.get(key)
        if found is None:
            most = _NEAR
            found, complete, _ = self._find_exits(v, state, condition, most)
            while not found and not complete:
                most *= 8
                if most > 8 * MAX_SEARCH:
                    raise CompileLimitExceeded(
                        "finding the end of a terminal visits too many states",
                        limit=MAX_SEARCH,
                        actual=most,
                    )
                found, complete, _ = self._find_exits(v, state, condition, most)
            self._known_near[key] = found
        return found

    def _of_embedded(self, terminal: int, condition: int) -> dict[int, Text]:
        """The exits of a terminal that is no pattern: its first character settles ``condition``."""
        rest, inner = self._terminals.rest, self._terminals.embedded[terminal]
        minterms = inner.first & self._terminals.settled_by([condition])[0]
        return {rest.anything: inner.shortest(minterms)} if minterms else {}

    def _completed(self, inside: Inside) -> list[tuple[int, int, int, bytes]]:
        """Variant, state, condition after the character begun, and the bytes that complete it."""
        condition, threads, node = inside
        if node == GROUND:
            return [(v, state, condition, b"") for v, state in threads]
        spelt = self._encoding.shortest(node)
        out: list[tuple[int, int, int, bytes]] = []
        for v, state in threads:
            for mask, to, w in self._sets.steps(state, condition):
                texts = [spelt[a] for a in bits(mask) if a in spelt]
                if texts and self._sets.is_alive(v, to, w):
                    out.append((v, to, w, min(texts, key=lambda s: (len(s), s))))
        return out

    def _character(self, minterms: int) -> bytes:
        """The shortest of some characters, given as a mask of minterms."""
        spelt = self._encoding.shortest(GROUND)
        best = min((spelt[a] for a in bits(minterms)), key=lambda s: (len(s), s))
        self._characters[minterms] = best
        return best
