"""Runs of a text's automaton: where it reads many characters of one set, perhaps counting them.

`TextRuns` takes such a run in one comparison over all tokens (`character_runs`), and looks only at
the places where it can be left: a closing quote, a character cut by the token's end, a character
outside the set that leads somewhere. Those places it groups by the state they lead to; how they are
walked on is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from structgen.masks.grouping import starts_of

from .character_arrays import Depths, Int32
from .character_runs import Run
from .ends import Counted, TextWalk
from .lone_runs import LoneRun
from .tables import DEAD, FEW, TextTables, grouped

_FEW_CHARACTERS = b"few"

_RUN = 300
"""Nodes, with all below them, from which runs that have few phases are taken as a whole."""

_Phase: TypeAlias = "tuple[int, int, bool, int]"
"""From how many characters of a run on, the state there, whether the text may end, and the minterms
that may be read."""


class TextRuns:
    """Runs of one symbol automaton under one encoding.

    Args:
        tables: where its characters lead.
    """

    def __init__(self, tables: TextTables) -> None:
        self._tables = tables
        self._symbols = tables.symbols
        self._points = tables.points
        self._characters = tables.characters
        self._known_phases: dict[int, tuple[_Phase, ...] | None] = {}
        self._root_edges: dict[int, tuple[Int32, Int32, Depths]] = {}
        self._lone_keys: dict[int, bytes] = {}

    def lone_run(self, state: int) -> tuple[LoneRun, int, int] | None:
        """Where nothing is left from ``state`` but characters of one set, that and how many of them
        (-1: any number).

        None where there may be more to it, and for sets that are looked for one by one.
        """
        found = self._symbols.expression(state)
        if found is None or found[0] is not self._symbols:
            return None  # what it ends with is another's
        only = found[0].only_run(state)
        if only is None:
            return None
        chars, least, most = only
        points, key = self._points, self._lone_keys.get(chars)
        if key is None:
            weights = (w for minterm, w in enumerate(points.weights) if chars >> minterm & 1)
            alive = points.tails_of(chars)
            key = b"" if alive is None else alive.tobytes()
            key = self._lone_keys[chars] = _FEW_CHARACTERS if sum(weights) <= FEW else key
            self._characters.charge(len(key) + 100)
        if key is _FEW_CHARACTERS:
            return None
        cut = points.slice(chars)
        run = cut.lone.get(key)
        if run is None:
            run = cut.lone[key] = LoneRun(self._characters.arrays, cut, points.tails_of(chars))
            self._characters.charge(run.n_bytes)
        return run, least, most

    def is_one_run(self, state: int) -> bool:
        """Whether nothing may be read but one run, as far as is plain to see."""
        chars, most = self._symbols.run(state)
        phases = self._phases(state)
        if phases is None:
            return most >= 0 and not self._tables.live(state) & ~chars
        return bool(chars) and not any(live & ~chars for _, _, _, live in phases)

    def _phases(self, state: int) -> tuple[_Phase, ...] | None:
        """The states in which the run of ``state`` can be left, each from some count on; None where
        there may be many."""
        found = self._known_phases.get(state, False)
        if found is not False:
            return found  # type: ignore[return-value]
        symbols = self._symbols
        counts: Sequence[int] | None = symbols.phases(state)
        if counts is None and symbols.run(state)[1] < 0 and symbols.settled(state) <= FEW:
            counts = range(symbols.settled(state) + 1)
        phases = None
        if counts is not None:
            longest = self._characters.arrays.longest
            states = [(n, symbols.after_run(state, n)) for n in counts if n <= longest]
            phases = tuple(
                [(n, at, symbols.label(at) >= 0, self._tables.live(at)) for n, at in states]
            )
        self._known_phases[state] = phases
        self._characters.charge(200)
        return phases

    def is_run(self, state: int, size: int) -> bool:
        """Whether to take the run of ``state`` at once, in subtrees of so many nodes."""
        return (
            size > _RUN
            and self._symbols.run(state)[1] not in (0, 1)
            and self._symbols.phases(state) is not None
        )

    def run(
        self, state: int, places: Int32, out: TextWalk
    ) -> tuple[Counted | None, list[tuple[int, Int32]]]:
        """The run of ``state``, and where it is left, by state."""
        characters, symbols = self._characters, self._symbols
        arrays = characters.arrays
        chars, most = symbols.run(state)
        is_endless = most < 0
        most = arrays.longest if is_endless else min(most, arrays.longest)
        out.runs.add((state, most))
        if len(places) > 1 or places[0]:
            run = characters.run(self._points.inside(chars), places)
            out.ids.append(run.tokens(most))
            self._leave(state, run, most, out)
            return None, self._edges(state, chars, run, most)
        cut = self._points.slice(chars)
        tokens = cut.tokens
        stays = is_endless and not symbols.settled(state)
        if stays:
            alive = self._points.tails_of(self._tables.live(state))
            if alive is not None:
                tokens = characters.endless(cut, alive)
        self._leave(state, cut.run, most, out, with_partials=not stays)
        return (tokens, most), self._edges(state, chars, cut.run, most)

    def _leave(
        self, state: int, run: Run, most: int, out: TextWalk, with_partials: bool = True
    ) -> None:
        """Closing quotes, and tokens that end inside a character, after the run of ``state``."""
        characters, symbols, phases = self._characters, self._symbols, self._phases(state)
        arrays = characters.arrays
        if phases is None or any(is_end for _, _, is_end, _ in phases):
            chosen, steps = _up_to(run.quotes(), most)
            for at, which in self._by_count(state, steps):
                label = symbols.label(at)
                if label >= 0:
                    self._tables.quoted(out, label)[chosen[which]] = True
        cut = self._points.cut
        if not with_partials or (
            phases is not None and not any(live & cut for _, _, _, live in phases)
        ):
            return
        chosen, steps = _up_to(run.partials(), most)
        if len(chosen):
            tails = arrays.partial_tail[chosen]
            keep = np.zeros(len(chosen), bool)
            for at, which in self._by_count(state, steps):
                alive = self._points.tails_of(self._tables.live(at))
                if alive is not None:
                    keep[which] = alive[tails[which]]
            out.ids.append(arrays.partial[chosen[keep]])

    def _left(self, chars: int, run: Run) -> tuple[Int32, Int32, Depths]:
        """Where characters lie outside a run, their minterms, and the characters before them."""
        found = self._root_edges.get(chars) if run.is_root else None
        if found is None:
            characters = self._characters
            edges = run.left
            minterms = self._points.minterms[characters.arrays.code[edges]]
            text = minterms < self._tables.n_minterms
            edges, minterms = edges[text], minterms[text]
            before = run.steps_to(edges) - np.asarray(1, characters.arrays.depth.dtype)
            found = edges, minterms, before
            if run.is_root:
                self._root_edges[chars] = found
                characters.charge(sum(array.nbytes for array in found) + 200)
        return found

    def _edges(self, state: int, chars: int, run: Run, most: int) -> list[tuple[int, Int32]]:
        """Where characters outside the run lead, and those after the whole of it, by state."""
        characters, symbols = self._characters, self._symbols
        arrays = characters.arrays
        phases = self._phases(state)
        if phases is not None:
            leaving = [phase for phase in phases if phase[3] & ~chars]
            return self._edges_by_phase(phases, leaving, chars, run, most) if leaving else []
        edges, minterms, steps = self._left(chars, run)
        is_endless = symbols.run(state)[1] < 0
        if most < arrays.longest:
            short = steps <= most
            edges, minterms, steps = edges[short], minterms[short], steps[short]
            # Where one part of an expression has ended its count, others may go on.
            if not is_endless and self._tables.live(symbols.after_run(state, most)) & chars:
                more = run.nodes_after(most + 1)
                edges = np.concatenate((edges, more)).astype(np.int32)
                steps = np.concatenate((steps, np.full(len(more), most, steps.dtype)))
                order = np.argsort(edges)
                edges, steps = edges[order], steps[order]
                minterms = self._points.minterms[arrays.code[edges]]
        if not len(edges):
            return []
        targets = np.full(len(edges), DEAD, np.int64)
        last = symbols.after_run(state, most)
        for at, which in self._by_count(state, steps):
            if at == last or self._tables.live(at) & ~chars:
                targets[which] = self._tables.table(at)[minterms[which]]
        return grouped(targets, edges)

    def _edges_by_phase(
        self,
        phases: tuple[_Phase, ...],
        leaving: list[_Phase],
        chars: int,
        run: Run,
        most: int,
    ) -> list[tuple[int, Int32]]:
        """`_edges` where the run can be left in a few states, and nothing else goes on with it."""
        edges, minterms, steps = self._left(chars, run)
        wanted = 0
        for _, _, _, live in leaving:
            wanted |= live & ~chars
        chosen = self._points.holds(wanted)[minterms].nonzero()[0]
        if not len(chosen):
            return []
        edges, minterms, steps = edges[chosen], minterms[chosen], steps[chosen]
        targets = np.full(len(edges), DEAD, np.int64)
        for phase in leaving:
            count, at, _, _ = phase
            later = phases[phases.index(phase) + 1 :]
            last = min(most, later[0][0] - 1) if later else most
            which = (steps >= count) & (steps <= last)
            targets[which] = self._tables.table(at)[minterms[which]]
        return grouped(targets, edges)

    def _by_count(self, state: int, steps: Depths) -> list[tuple[int, npt.NDArray[np.int64]]]:
        """States after numbers of characters of a run, with the positions of these in ``steps``, as
        far as the numbers matter."""
        if not len(steps):
            return []
        phases = self._phases(state)
        if phases is not None:
            if len(phases) == 1:
                return [(phases[0][1], np.arange(len(steps)))]
            starts = np.array([count for count, _, _, _ in phases], steps.dtype)
            phase = starts.searchsorted(steps, "right")
            by_phase = [(phases[i][1], (phase == i + 1).nonzero()[0]) for i in range(len(phases))]
            return [(at, which) for at, which in by_phase if len(which)]
        symbols = self._symbols
        if symbols.run(state)[1] < 0:
            settled = min(symbols.settled(state), self._characters.arrays.longest)
            steps = np.minimum(steps, np.asarray(settled, steps.dtype))
        order = np.argsort(steps, kind="stable")
        ordered = steps[order]
        first = starts_of(ordered)
        bounds = pairwise([*first.tolist(), len(order)])
        return [
            (symbols.after_run(state, count), order[a:b])
            for count, (a, b) in zip(ordered[first].tolist(), bounds, strict=True)
        ]


def _up_to(
    reached: tuple[npt.NDArray[np.int64], Depths], most: int
) -> tuple[npt.NDArray[np.int64], Depths]:
    """What is reached within ``most`` characters."""
    chosen, steps = reached
    short = steps <= most
    return chosen[short], steps[short]
