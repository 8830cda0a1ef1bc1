"""The automaton of a small regular expression, as states and edges that can be drawn.

Lists up to 60 states, labels the edges, and draws a plain picture (`svg`).
"""

from __future__ import annotations

import html
from collections import deque
from typing import Any

from structgen.automaton.regex import Alphabet, RegexAutomaton
from structgen.errors import OutputTypeError
from structgen.grammar import ir
from structgen.grammar.ir import MAX_CODE_POINT

_MOST_STATES = 60
_MOST_RANGES = 12
_MOST_LETTERS = 18
_NAMES = {" ": "space", "\t": "tab", "\n": "newline", "\r": "return"}


def picture(regex: ir.Regex) -> dict[str, Any]:
    """Return the automaton of an expression, as JSON.

    Returns:
        ``states``, the first being the start, each with ``accepting``: whether texts may end there;
        ``edges``, each ``from`` a state ``to`` another with a ``label`` for the characters; and
        ``is_whole``: False if there are more than 60 states and the rest is left out.

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
    """Return a short label for a set of characters."""
    if mask == alphabet.everything:
        return "any"
    ends = [*(start - 1 for start in alphabet.starts[1:]), MAX_CODE_POINT]
    intervals = zip(alphabet.starts, ends, alphabet.minterms, strict=True)
    inside = ir.char_set([(a, b) for a, b, one in intervals if one >= 0 and mask >> one & 1])
    outside = ir.negate(inside)
    if _size(outside.ranges) < _size(inside.ranges):
        return f"not {_listed(outside.ranges)}"
    return _listed(inside.ranges)


def _size(ranges: ir.Ranges) -> int:
    return sum(last - first + 1 for first, last in ranges)


def _listed(ranges: ir.Ranges) -> str:
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


_ACROSS, _DOWN, _RADIUS = 130, 90, 20


def svg(drawn: dict[str, Any]) -> str:
    """Return the result of `picture` as an SVG, with a column for each distance from the start."""
    n = len(drawn["states"])
    column = [0, *[-1] * (n - 1)]
    arrows: dict[tuple[int, int], list[str]] = {}
    for edge in drawn["edges"]:
        first, to = edge["from"], edge["to"]
        arrows.setdefault((first, to), []).append(edge["label"])
        if column[to] < 0:
            column[to] = column[first] + 1
    row = [column[:state].count(column[state]) for state in range(n)]
    x = [60 + _ACROSS * at for at in column]
    y = [60 + _DOWN * at for at in row]
    out: list[str] = []
    for (first, to), labels in arrows.items():
        x1, y1, x2, y2 = x[first], y[first], x[to], y[to]
        # Arrows bend to their right, so the way there and the way back are apart.
        bend = 30 if column[to] <= column[first] else 8
        middle, height = (x1 + x2) / 2 + (y2 - y1) / 6, (y1 + y2) / 2 - bend
        path = f"M{x1},{y1} Q{middle:.0f},{height:.0f} {x2},{y2}"
        if first == to:
            middle, height = x1, y1 - 42
            path = (
                f"M{x1 - 8},{y1 - 18} C{x1 - 30},{y1 - 55} {x1 + 30},{y1 - 55} {x1 + 8},{y1 - 18}"
            )
        label = " ".join(labels)
        short = label if len(label) <= _MOST_LETTERS else f"{label[:_MOST_LETTERS]}…"
        label, short = html.escape(label), html.escape(short)
        out.append(f'<path d="{path}" fill="none" stroke="#888" marker-end="url(#to)"/>')
        out.append(f'<text x="{middle:.0f}" y="{height:.0f}"><title>{label}</title>{short}</text>')
    for state, node in enumerate(drawn["states"]):
        for radius in (_RADIUS, _RADIUS - 4) if node["accepting"] else (_RADIUS,):
            fill = "#fff" if state else "#dfe8ff"
            out.append(f'<circle cx="{x[state]}" cy="{y[state]}" r="{radius}" fill="{fill}"/>')
        out.append(f'<text x="{x[state]}" y="{y[state] + 4}">{state}</text>')
    rest = "" if drawn["is_whole"] else "There are more states than shown"
    width, depth = max(x) + 60, max(y) + 60
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{depth}" '
        f'font-family="sans-serif" font-size="11" text-anchor="middle">{rest}'
        '<defs><marker id="to" viewBox="0 0 8 8" refX="27" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#888"/></marker></defs>'
        f'<g stroke-width="1">{"".join(out)}</g></svg>\n'
    ).replace("<circle ", '<circle stroke="#333" ')
