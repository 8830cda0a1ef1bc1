"""A shortest text that a regular expression matches: what tests try expressions with."""

from __future__ import annotations

from collections import deque

from structgen.automaton.regex.automaton import RegexAutomaton
from structgen.grammar import ir


def shortest_match(regex: ir.Regex) -> str | None:
    """A shortest text that ``regex`` matches, made of ordinary characters where possible."""
    automaton = RegexAutomaton(regex)
    parents: dict[int, tuple[int, str]] = {automaton.start: (automaton.start, "")}
    queue = deque([automaton.start])
    while queue:
        state = queue.popleft()
        if automaton.label(state) >= 0:
            out: list[str] = []
            while state != automaton.start:
                state, char = parents[state]
                out.append(char)
            return "".join(reversed(out))
        for mask, to in automaton.moves(state):
            if to not in parents:
                parents[to] = (state, automaton.alphabet.samples(mask, 1)[0])
                queue.append(to)
    return None
