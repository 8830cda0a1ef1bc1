"""Automata over characters combined with their encoding: edges and shortest ways in bytes.

The symbols of an automaton are the minterms of an alphabet, which an encoding (`encoding`) writes
as bytes. `leaf` owns leaves, their states and caches.

`probe` checks that the number of an automaton's states does not explode. It visits the states of
texts up to the length of the shortest complete text, and refuses languages with too many states.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias

from structgen.automaton.bits import bits
from structgen.automaton.texts import Text, repeated
from structgen.automaton.work import WORK
from structgen.errors import CompileLimitExceeded, check_limit

from .automaton import SymbolAutomaton
from .encoding import GROUND, Utf8
from .expressions import ROOM

MAX_SEARCH = 2_000_000
"""The most states that the search for the shortest completion of a leaf may visit."""

NO_STATE = -(1 << 62)
"""No symbol automaton has this state."""


_LONG_RUN = 64
"""The fewest required characters of a run that a search reads at once."""

_Entry: TypeAlias = "tuple[int, int, int, int, int, Text]"
"""(least total cost, minus the cost so far, tiebreaker, symbol state, index of the previous entry,
bytes that led here). Among equally good ways, the one that is furthest continues."""


def shortest_path(
    symbols: SymbolAutomaton,
    encoding: Utf8,
    symbol_state: int,
    node: int,
    is_end: Callable[[int], bool],
    estimate: Callable[[int], int] | None = None,
    most: int | None = None,
) -> list[tuple[int, Text]] | None:
    """Return the way with the fewest bytes from a symbol state and encoding node to an end state.

    Args:
        symbols: the automaton.
        encoding: how its symbols are written.
        symbol_state: the start state.
        node: the start node of the encoding.
        is_end: returns whether a state is an end: accepting, or one for which ``estimate`` is
            exact.
        estimate: a lower bound on the remaining bytes (A*); None for `SymbolAutomaton.at_least`.
        most: the most bytes of the way.

    Returns:
        The symbol states on the way, each with the bytes from the previous one; None if no end can
        be reached in that many bytes. Long runs of one character are one step.

    Raises:
        CompileLimitExceeded: the search visited more than `MAX_SEARCH` states.
    """
    if node == GROUND and is_end(symbol_state):
        return []
    counter = itertools.count()
    heap: list[_Entry] = []
    trail: list[tuple[int, int, Text]] = [(-1, symbol_state, b"")]
    at_least = estimate or symbols.at_least

    def push(state: int, node: int, cost: int, previous: int) -> None:
        for to, text in steps(symbols, encoding, state, node):
            so_far = cost + len(text)
            in_all = so_far + at_least(to)
            if most is None or in_all <= most:
                heapq.heappush(heap, (in_all, -so_far, next(counter), to, previous, text))

    push(symbol_state, node, 0, 0)
    done: dict[int, int] = {}  # with its cost; a better way may still be found
    while heap:
        _, cost, _, state, previous, spelt = heapq.heappop(heap)
        cost = -cost
        if done.get(state, cost + 1) <= cost:
            continue
        WORK.spend(2)
        done[state] = cost
        trail.append((previous, state, spelt))
        here = len(trail) - 1
        if is_end(state):
            path: list[tuple[int, Text]] = []
            while here > 0:
                path.append((trail[here][1], trail[here][2]))
                here = trail[here][0]
            return path[::-1]
        push(state, GROUND, cost, here)
        check_limit(len(done), MAX_SEARCH, "finding a shortest completion visits too many states")
    return None


def steps(
    symbols: SymbolAutomaton, encoding: Utf8, state: int, node: int
) -> list[tuple[int, Text]]:
    """Return the next state of each move, with its fewest bytes; and a long run, if it is required.
    The longest first, then in byte order."""
    spelling = encoding.shortest(node)
    found: list[tuple[int, Text]] = []

    def add(to: int, mask: int, count: int) -> None:
        WORK.spend(mask.bit_count() >> 6)
        spelt = [spelling[minterm] for minterm in bits(mask) if minterm in spelling]
        if spelt:
            found.append((to, repeated(min(spelt, key=_in_order), count)))

    for mask, to in symbols.moves(state):
        add(to, mask, 1)
    owed = symbols.at_least(state) if node == GROUND else 0
    if owed >= _LONG_RUN:
        # This many characters are required: those of a run are read at once, without intermediate
        # states. A `minLength` would have one for each character.
        chars, most = symbols.run(state)
        count = owed if most < 0 else min(owed, most)
        if count >= _LONG_RUN:
            add(symbols.after_run(state, count), chars, count)
    found.sort(key=lambda step: (-len(step[1]), step[1]))
    return found


def _in_order(text: bytes) -> tuple[int, bytes]:
    return len(text), text


def spell_edges(
    symbols: SymbolAutomaton, encoding: Utf8, key: tuple[int, int]
) -> dict[int, tuple[int, int]]:
    """Return the outgoing bytes of ``(symbol state, encoding node)``, without dead ends."""
    symbol_state, node = key
    target: dict[int, int] = {}
    live = 0
    for mask, to in symbols.moves(symbol_state):
        live |= mask
        target.update(dict.fromkeys(bits(mask), to))
    edges: dict[int, tuple[int, int]] = {}
    for byte, deeper in encoding.row(node).items():
        if deeper < 0:
            to = target.get(~deeper, NO_STATE)
            if to != NO_STATE:
                edges[byte] = (to, GROUND)
        elif encoding.reach(deeper) & live:
            edges[byte] = (symbol_state, deeper)
    return edges


def spell_edge(
    symbols: SymbolAutomaton, encoding: Utf8, key: tuple[int, int], byte: int
) -> tuple[int, int] | None:
    """Return one entry of `spell_edges`, or None."""
    symbol_state, node = key
    deeper = encoding.follow(node, byte)
    if deeper is None:
        return None
    if deeper < 0:
        to = symbols.follow(symbol_state, ~deeper)
        return None if to is None else (to, GROUND)
    reach = encoding.reach(deeper)
    if any(mask & reach for mask, _ in symbols.moves(symbol_state)):
        return symbol_state, deeper
    return None


MANY_BEGINNINGS = (
    "a counted repetition that may begin anywhere, as in .*a.{20}, needs a set of states for each "
    "combination of beginnings. Lower its count, or specify what comes before it"
)
"""How to fix a pattern with too many states."""

MAX_PROBED = 20_000
MAX_PROBED_A_CHARACTER = 100
"""The most states that texts up to the length of a pattern's shortest text may lead to, and how
many more per character of that length. The 1,723 patterns of MaskBench have at most 990 states."""

MAX_PROBED_BYTES = 64 << 20
"""The most memory that these states may take."""

_TELLING_STATES = 500
_FEWEST_LEVELS = 32
"""The numbers of states at this many lengths of text show how fast they grow."""


def probe(symbols: SymbolAutomaton, encoding: Utf8, least: int = 0) -> bool:
    """Visit the states of all texts up to the length of the shortest complete one.

    This reveals languages whose states explode. If states grow steadily, by a few per character, it
    visits only samples along a shortest text.

    Args:
        symbols: the automaton.
        encoding: how its symbols are spelt.
        least: number of characters up to which states are visited in any case, if there are few.

    Returns:
        Whether all states were visited.

    Raises:
        CompileLimitExceeded: there are too many states.
    """
    start = symbols.start
    expression = symbols.expression(start)
    if symbols.is_private:
        return True  # its states are places of a document, each visited when it is read
    most_bytes = MAX_PROBED_BYTES + (expression[0].weight if expression else 0)
    n_levels = _probe(symbols, start, most_bytes, least)
    if not n_levels or expression is None:
        return True
    path = shortest_path(symbols, encoding, start, GROUND, lambda q: symbols.label(q) >= 0)
    at = 0
    while path and at < len(path) - _FEWEST_LEVELS:
        at = min(at + 2 * n_levels, len(path) - _FEWEST_LEVELS)
        n_levels = _probe(symbols, path[at][0], most_bytes) or _FEWEST_LEVELS
    # One text visits a small part of them; many texts may visit many.
    expression[0].expressions.room = ROOM
    return False


def _probe(symbols: SymbolAutomaton, start: int, most_bytes: int, least: int = 0) -> int:
    """Visit the states after a symbol state, up to the first that may end after ``least``
    characters, until they take ``most_bytes``.

    Returns:
        0, or, if they grow steadily, the number of characters after which that was clear.
    """
    most = MAX_PROBED + MAX_PROBED_A_CHARACTER * symbols.at_least(start)
    expression = symbols.expression(start)
    seen = {start}
    level = [start]
    widths: list[int] = []
    weights: list[int] = []
    while level and (len(widths) < least or not any(symbols.label(q) >= 0 for q in level)):
        following: list[int] = []
        for q in level:
            for _, to in symbols.moves(q):
                if to not in seen:
                    seen.add(to)
                    following.append(to)
        weight = expression[0].weight if expression else 0
        widths.append(len(following))
        weights.append(weight)
        last = widths[-_FEWEST_LEVELS // 4 :]
        if len(seen) > MAX_PROBED and all(2 * now >= 3 * then for then, now in pairwise(last)):
            most = MAX_PROBED  # more would take long without more information
        if len(seen) > most or weight > most_bytes:
            raise CompileLimitExceeded(
                f"a pattern needs too many automaton states: {MANY_BEGINNINGS}",
                limit=most if len(seen) > most else most_bytes,
                actual=len(seen) if len(seen) > most else weight,
            )
        if len(seen) > _TELLING_STATES and _is_steady(widths, weights):
            return len(widths)
        level = following
    return 0


def _is_steady(widths: list[int], weights: list[int]) -> bool:
    """Return whether the states grow at most with the square of the text's length, with constant
    size.

    Args:
        widths: the number of new states, by length of text.
        weights: the bytes of all states so far, by length of text.
    """
    n, window = len(widths), _FEWEST_LEVELS // 4
    if n < _FEWEST_LEVELS:
        return False
    half = n // 2
    now, then = sum(widths[-window:]), sum(widths[half - window : half])
    grown, grown_then = (
        weights[-1] - weights[-1 - window],
        weights[half - 1] - weights[half - 1 - window],
    )
    # Quadratic growth: four times as many for twice the length; and states that list counts double
    # in size.
    return now <= 4.5 * then and grown * then <= 1.4 * grown_then * now
