"""Texts up to the length of a token: which states no token can tell apart, and the longest tokens.

Two states that differ by what comes after more characters than a token has are one; and for all but
a few long tokens (`Characters.levels`) many more are. `TextLevels` says which, and walks those few
one by one. How the others are walked is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from structgen.automaton.regex import TokenHorizon

from .character_arrays import LongEdge
from .ends import TextWalk
from .runs import TextRuns
from .tables import DEAD, TextTables


class TextLevels:
    """States of one symbol automaton that tokens of some length cannot tell apart."""

    _far: TokenHorizon | None = None
    _nearer: Sequence[TokenHorizon] = ()

    def __init__(self, tables: TextTables, runs: TextRuns) -> None:
        self._tables = tables
        self._symbols = tables.symbols
        self._points = tables.points
        self._characters = tables.characters
        self._runs = runs

    def alike(self, state: int) -> int:
        """A state from which every token is taken that is from ``state``, and no other; after any
        of them, what is still to come can be as short. Many states share one."""
        found = self._symbols.expression(state)
        if found is None:
            return state
        expression, at = found
        if expression is self._symbols and (lone := self._runs.lone_run(at)) is not None:
            run, _, most = lone
            return expression.without_most(at) if most > run.longest else state
        if self._far is None:
            # One more for a character that is cut.
            self._far = TokenHorizon(
                expression, self._characters.arrays.longest + 1, self._points.most_in_order
            )
        to = self._far.alike(at)
        return state if to == at else self._symbols.in_expression(to)

    def near(self, state: int) -> tuple[int, int]:
        """As `alike`, for tokens of at most so many characters, one of `Characters.levels`;
        ``state`` itself where that would not help."""
        found = self._symbols.expression(state)
        levels, longest = self._characters.levels, self._characters.arrays.longest
        if found is None or levels[0] >= longest:
            return state, longest
        expression, at = found
        if not expression.has_expressions or self._runs.is_one_run(state):
            return state, longest
        if not self._nearer:
            most_of = self._points.most_in_order
            self._nearer = [TokenHorizon(expression, level + 1, most_of) for level in levels]
        near = self._nearer[0].alike(at)
        to = self._symbols.in_expression(near)
        if to in (state, self.alike(state)):
            return state, longest
        for level, far in zip(levels[:0:-1], self._nearer[:0:-1], strict=True):
            if level < longest and far.alike(at) == near:
                return to, level
        return to, levels[0]

    def long_ones(self, state: int, level: int, out: TextWalk) -> None:
        """The tokens and quotes beyond ``level`` characters.

        Most of them stay in one run, if not in the first character's then in the next one's. States
        are made where a run is left.
        """
        below, spelt, lengths, masks, first = self._points.long(level)
        edges, symbols = self._characters.long(level), self._symbols
        longest = self._characters.arrays.longest
        found: list[int] = []
        runs: dict[int, int] = {}
        stack: list[tuple[int, int, int]] = []
        for minterm, ways in first.items():
            start, count = self._after_one(state, 0, minterm)
            if start == DEAD:
                continue
            chars, most = symbols.run(start)
            outside = ~chars if chars else -1
            most = longest if most < 0 else most - count
            left = {
                i for i in ways if masks[i] & outside or (lengths[i] > most and edges[i].above >= 0)
            }
            for i in ways:
                if i not in left:
                    end = count + lengths[i]
                    if self._long_ends(start, end, edges[i], found, out):
                        runs[start] = max(end, runs.get(start, 0))
                elif edges[i].above not in left:
                    stack.append((start, count + lengths[edges[i].above], i))
        while stack:
            start, count, i = stack.pop()
            for minterm, times in spelt[i]:
                while times:
                    chars, most = symbols.run(start)
                    if chars >> minterm & 1 and count != most:
                        few = times if most < 0 else min(times, most - count)
                        count += few
                        times -= few
                        continue
                    start, count = self._after_one(start, count, minterm)
                    times -= 1
                    if start == DEAD:
                        break
                if start == DEAD:
                    break
            else:
                if self._long_ends(start, count, edges[i], found, out):
                    runs[start] = max(count, runs.get(start, 0))
                stack += [(start, count, longer) for longer in below[i]]
        out.runs.update(runs.items())
        if found:
            out.ids.append(np.array(found, np.int32))

    def _after_one(self, start: int, count: int, minterm: int) -> tuple[int, int]:
        """One more character after ``count`` of the run of ``start``; `DEAD` for none."""
        chars, most = self._symbols.run(start)
        if chars >> minterm & 1 and count != most:
            return start, count + 1
        return int(self._tables.table(self._symbols.after_run(start, count))[minterm]), 0

    def _long_ends(
        self, start: int, count: int, edge: LongEdge, found: list[int], out: TextWalk
    ) -> bool:
        """What ends at the end of ``edge``, after ``count`` characters of a run; whether that
        are tokens."""
        before = len(found)
        found += edge.tokens
        if edge.partials:
            tails = self._points.tails_of(self._tables.live(self._symbols.after_run(start, count)))
            if tails is not None:
                found += [token for token, tail in edge.partials if tails[tail]]
        if edge.quote >= 0:
            label = self._symbols.label(self._symbols.after_run(start, count))
            if label >= 0:
                out.single.setdefault(label, []).append(edge.quote)
        return len(found) > before
