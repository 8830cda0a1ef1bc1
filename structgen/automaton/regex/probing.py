"""Whether the states of a text's automaton grow out of all proportion, found before it is used.

`probe` looks at what texts lead to, up to the shortest that ends, and refuses languages with too
many states. It knows symbols and where they lead; bytes and leaves it does not know.
"""

from __future__ import annotations

from itertools import pairwise

from structgen.errors import CompileLimitExceeded

from .encoding import GROUND, Utf8
from .symbols import SymbolAutomaton, shortest_path

MANY_BEGINNINGS = (
    "of a counted repeat that may begin anywhere, as in .*a.{20}, each set of beginnings is "
    "another. Lower its count, or say what stands before it"
)
"""What to do about too many states."""

MAX_PROBED = 20_000
MAX_PROBED_A_CHARACTER = 100
"""States of a pattern that texts up to the length of its shortest may lead to, and how many more
for each character of that. The 1,723 patterns of MaskBench have 990 states at most."""

MAX_PROBED_BYTES = 64 << 20
"""Most memory that these states may take."""

_TELLING_STATES = 500
_FEWEST_LEVELS = 32
"""So many states, at so many lengths of text, tell how fast states grow."""


def probe(symbols: SymbolAutomaton, encoding: Utf8) -> None:
    """Look at what texts of each length up to the shortest that ends lead to.

    So a language whose states grow out of all proportion shows. Where they grow steadily, by a
    few more a character, not all are looked at: here and there along a shortest text.

    Raises:
        CompileLimitExceeded: it needs too many states.
    """
    start = symbols.start
    expression = symbols.expression(start)
    most_bytes = MAX_PROBED_BYTES + (expression[0].weight if expression else 0)
    n_levels = _probe(symbols, start, most_bytes)
    if not n_levels or expression is None:
        return
    path = shortest_path(symbols, encoding, start, GROUND, lambda q: symbols.label(q) >= 0)
    at = 0
    while path and at < len(path) - _FEWEST_LEVELS:
        at = min(at + 2 * n_levels, len(path) - _FEWEST_LEVELS)
        n_levels = _probe(symbols, path[at][0], most_bytes) or _FEWEST_LEVELS
    # What one text leads to is a small part of them; a long life may meet many.
    expression[0].expressions.give_room()


def _probe(symbols: SymbolAutomaton, start: int, most_bytes: int) -> int:
    """Look at the states after a symbol state, up to the first that may end, until all take
    ``most_bytes``.

    Returns:
        0, or, where they grow steadily, after how many characters that was seen.
    """
    most = MAX_PROBED + MAX_PROBED_A_CHARACTER * symbols.at_least(start)
    expression = symbols.expression(start)
    seen = {start}
    level = [start]
    widths: list[int] = []
    weights: list[int] = []
    while level and not any(symbols.label(q) >= 0 for q in level):
        following: list[int] = []
        for q in level:
            for _, to in symbols.moves(q):
                if to not in seen:
                    seen.add(to)
                    following.append(to)
        weight = expression[0].weight if expression else 0
        widths.append(len(following))
        weights.append(weight)
        if len(seen) > MAX_PROBED and _multiplies(widths):
            most = MAX_PROBED  # to look at more would take long, and tell the same
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


def _multiplies(widths: list[int]) -> bool:
    """Whether each of the last few characters made the states half as many again, or more."""
    return all(2 * now >= 3 * then for then, now in pairwise(widths[-_FEWEST_LEVELS // 4 :]))


def _is_steady(widths: list[int], weights: list[int]) -> bool:
    """Whether states grow no faster than the square of the length of text, each as large as ever.

    Args:
        widths: how many states are new, by the length of text,
        weights: and the bytes that all states so far take.
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
    # The square makes four of one; and a state that lists counts becomes twice as large.
    return now <= 4.5 * then and grown * then <= 1.4 * grown_then * now
