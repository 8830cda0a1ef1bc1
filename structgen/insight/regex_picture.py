"""The automaton of a small regular expression, as states and edges that can be drawn.

Owns which states there are, how edges are labelled, and that both are few. How it is drawn is for
whoever asks.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from structgen.automaton.regex import Alphabet, RegexAutomaton
from structgen.errors import OutputTypeError
from structgen.grammar import ir
from structgen.grammar.ir import MAX_CODE_POINT

_MOST_STATES = 60
_MOST_RANGES = 12
_NAMES = {" ": "space", "\t": "tab", "\n": "newline", "\r": "return"}


def picture(regex: ir.Regex) -> dict[str, Any]:
    """The automaton of an expression, as JSON.

    Returns:
        ``states``, from the one in which texts begin, each with whether they may end there
        (``accepting``); ``edges``, each ``from`` a state ``to`` another with a ``label``, the
        characters that take it; and whether that ``is_whole``: more than 60 states are left out.

    Raises:
        OutputTypeError: no text matches.

    Cost: a derivative for each state.
    """
    automaton = RegexAutomaton(regex)
    if automaton.is_empty():
        raise OutputTypeError("No text matches this expression.")
    numbers = {automaton.start: 0}
    waiting = deque([automaton.start])
    states: list[dict[str, Any]] = []
    edges: list[dict[str, Any]] = []
    is_whole = True
    while waiting:
        state = waiting.popleft()
        states.append({"accepting": automaton.label(state) >= 0})
        masks: dict[int, int] = {}
        for mask, to in automaton.moves(state):
            masks[to] = masks.get(to, 0) | mask
        for to, mask in masks.items():
            if to not in numbers:
                if len(numbers) == _MOST_STATES:
                    is_whole = False
                    continue
                numbers[to] = len(numbers)
                waiting.append(to)
            label = _label(automaton.alphabet, mask)
            edges.append({"from": numbers[state], "to": numbers[to], "label": label})
    return {"states": states, "edges": edges, "is_whole": is_whole}


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
