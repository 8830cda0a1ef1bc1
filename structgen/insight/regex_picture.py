"""The automaton of a small regular expression, as states and edges that can be drawn.

Owns which states there are, how edges are labelled, and that both are few. How it is drawn is for
whoever asks.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from structgen.automaton.regex import Alphabet, RegexAutomaton
from structgen.errors import OutputTypeError
from structgen.grammar import ir
from structgen.grammar.ir import MAX_CODE_POINT

MOST_STATES = 60
"""Most states of a picture."""

_MOST_RANGES = 12
_NAMES = {" ": "space", "\t": "tab", "\n": "newline", "\r": "return"}


@dataclass(frozen=True, slots=True)
class Edge:
    """One way from a state to another.

    Attributes:
        of: the state it leaves.
        to: the state it leads to.
        label: the characters that take it.
    """

    of: int
    to: int
    label: str


@dataclass(frozen=True, slots=True)
class Picture:
    """An automaton. State 0 is the first.

    Attributes:
        accepting: for each state, whether a text may end there.
        edges: the edges, by the state that they leave.
        is_whole: False where there were more than `MOST_STATES` states, and the rest was left out.
    """

    accepting: list[bool] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    is_whole: bool = True


def picture(regex: ir.Regex, most: int = MOST_STATES) -> Picture:
    """The automaton of an expression.

    Raises:
        OutputTypeError: no text matches.

    Cost: a derivative for each state, and no more states than ``most``.
    """
    automaton = RegexAutomaton(regex)
    if automaton.is_empty():
        raise OutputTypeError("No text matches this expression.")
    numbers = {automaton.start: 0}
    waiting = deque([automaton.start])
    made = Picture()
    is_whole = True
    while waiting:
        state = waiting.popleft()
        made.accepting.append(automaton.label(state) >= 0)
        masks: dict[int, int] = {}
        for mask, to in automaton.moves(state):
            masks[to] = masks.get(to, 0) | mask
        for to, mask in masks.items():
            if to not in numbers:
                if len(numbers) == most:
                    is_whole = False
                    continue
                numbers[to] = len(numbers)
                waiting.append(to)
            made.edges.append(Edge(numbers[state], numbers[to], _label(automaton.alphabet, mask)))
    return Picture(made.accepting, made.edges, is_whole)


def _label(alphabet: Alphabet, mask: int) -> str:
    """A set of characters in a few words."""
    if mask == alphabet.everything:
        return "any"
    inside = _ranges(alphabet, mask)
    outside = _ranges(alphabet, alphabet.everything & ~mask)
    if _size(outside) < _size(inside):
        return f"not {_listed(outside)}"
    return _listed(inside)


def _ranges(alphabet: Alphabet, mask: int) -> list[tuple[int, int]]:
    """The ranges of code points in a mask."""
    found: list[tuple[int, int]] = []
    starts = alphabet.starts
    for i, (first, minterm) in enumerate(zip(starts, alphabet.minterms, strict=True)):
        if minterm < 0 or not mask >> minterm & 1:
            continue
        last = starts[i + 1] - 1 if i + 1 < len(starts) else MAX_CODE_POINT
        if found and found[-1][1] == first - 1:
            found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return found


def _size(ranges: list[tuple[int, int]]) -> int:
    return sum(last - first + 1 for first, last in ranges)


def _listed(ranges: list[tuple[int, int]]) -> str:
    words = []
    for first, last in ranges[:_MOST_RANGES]:
        if last - first < 2:
            words += [_character(one) for one in range(first, last + 1)]
        else:
            words.append(f"{_character(first)}–{_character(last)}")
    if len(ranges) > _MOST_RANGES:
        words.append("…")
    return " ".join(words)


def _character(code_point: int) -> str:
    char = chr(code_point)
    return _NAMES.get(char) or (char if char.isprintable() else f"U+{code_point:04X}")
