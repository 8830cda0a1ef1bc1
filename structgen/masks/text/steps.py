"""Texts walked character by character: one state at one place, or many of both, level by level.

`TextSteps` knows the characters below a node (`characters`) and where each leads (`tables`).
Of runs, where a text reads many characters and stays where it is, it knows only to set them aside;
of texts that may be anything, only to leave them alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from structgen.automaton.work import WORK
from structgen.masks.grouping import distinct, ranges
from structgen.vocabulary import view

from .character_arrays import CharacterArrays, Int32
from .ends import TextWalk
from .tables import DEAD, TextTables, grouped

SMALL = 64
"""Nodes, with all below them, that are still walked one by one."""

_DEEP = 5
"""Levels after which there is little left but chains,"""

_CHAINS = 400
_FEW_CHAINS = 16
"""so that this many nodes are walked one by one, if they are in few chains."""

_PATIENCE = 400
"""Places that are walked one by one before the rest of them is taken together."""


class TextSteps:
    """Walks of one symbol automaton, a character at a time."""

    def __init__(self, tables: TextTables) -> None:
        self._tables = tables
        self._symbols = tables.symbols
        self._points = tables.points
        self._arrays = tables.characters.arrays

    def one_by_one(
        self, pairs: list[tuple[int, int]], out: TextWalk, set_aside: bool = False
    ) -> tuple[list[tuple[int, Int32]], list[tuple[int, Int32]]]:
        """Walk from some states, each at one place, character by character.

        Args:
            pairs: states and places.
            out: what is found is added.
            set_aside: whether not to go into large subtrees but where few characters may be read,
                and to stop after `_PATIENCE` places.

        Returns:
            By state the places that were not walked, ascending, none below another; and where it
            was not gone on.
        """
        arrays, is_open = self._arrays, self._symbols.is_open
        end, code = arrays.views.end, arrays.views.code
        start, stop = arrays.views.own_start, arrays.views.own_stop
        all_partials = arrays.partials
        quote, minterm_of, ids = (
            len(arrays.points),
            self._points.minterm_of,
            arrays.views.token_ids,
        )
        found: list[int] = []
        aside: dict[int, list[int]] = {}
        stack = pairs
        patience = _PATIENCE
        met: set[int] = set()
        # By state: where few characters lead; or the next states by minterm.
        known: dict[int, tuple[tuple[tuple[int, bytes, int], ...] | None, Sequence[int]]] = {}
        while stack:
            at, here = stack.pop()
            child, beyond = here + 1, end[here]
            if set_aside:
                patience -= 1
                if not patience:
                    stack.append((at, here))
                    break
                if beyond - here > SMALL and (is_open(at) or not self._tables.is_few(at)):
                    aside.setdefault(at, []).append(here)
                    continue
            met.add(at)
            first, last = start[here], stop[here]
            if first != last:
                found += ids[first:last]
            partials = all_partials.get(here)
            if partials:
                tails = self._points.tails_of(self._tables.live(at))
                if tails is not None:
                    alive = memoryview(tails)  # type: ignore[arg-type]
                    found += [token for token, tail in partials if alive[tail]]
            if child == beyond:
                continue  # where the state leads need not be known
            moves = known.get(at)
            if moves is None:
                narrow = self._tables.narrow(at)
                table = () if narrow is not None else view(self._tables.table(at))
                moves = known[at] = narrow, table
            narrow, table = moves
            if narrow is not None:
                which = arrays.quote_below(here)
                if which >= 0:
                    label = self._symbols.label(at)
                    if label >= 0:
                        out.single.setdefault(label, []).append(which)
                for point, spelt, to in narrow:
                    stack += [(to, x) for x in arrays.spelt_below(here, point, spelt)]
                continue
            while child < beyond:
                symbol = code[child]
                if symbol == quote:
                    label = self._symbols.label(at)
                    if label >= 0:
                        out.single.setdefault(label, []).append(arrays.quote_index[child])
                else:
                    to = table[minterm_of[symbol]]
                    if to != DEAD:
                        stack.append((to, child))
                child = end[child]
        out.runs.update([(at, 0) for at in met])
        if found:
            out.ids.append(np.array(found, np.int32))
        groups = [
            (at, np.array(together, np.int32))
            for at, places in aside.items()
            for together in apart(arrays, places)
        ]
        return groups, [(at, np.array([here], np.int32)) for at, here in stack]

    def together(self, groups: list[tuple[int, Int32]], out: TextWalk) -> None:
        """Walk from many places in many states at once, level by level."""
        arrays, table, minterms = self._arrays, self._tables.rows, self._points.minterms
        nodes = np.concatenate([places for _, places in groups])
        lengths = [len(places) for _, places in groups]
        at = np.repeat([table.number(state) for state, _ in groups], lengths).astype(np.int32)
        seen: list[tuple[Int32, Int32]] = []
        while len(nodes):
            WORK.spend(5 + (len(nodes) >> 5))
            sizes = arrays.end[nodes] - nodes
            # Deep down there are a few long chains, which would take as many levels.
            is_deep = len(seen) >= _DEEP and len(nodes) <= _FEW_CHAINS
            if int(sizes.sum()) <= (_CHAINS if is_deep else SMALL):
                states = [table.states[number] for number in at.tolist()]
                self.one_by_one(list(zip(states, nodes.tolist(), strict=True)), out)
                break
            seen.append((nodes, at))
            # Where no token goes on, where the state leads need not be known.
            inner = sizes > 1
            nodes, at = nodes[inner], at[inner]
            table.cover(at)
            going_on = table.goes_on[at]
            children, counts = arrays.children_of(nodes[going_on])
            to = table.rows[np.repeat(at[going_on], counts), minterms[arrays.code[children]]]
            alive = to >= 0
            nodes, at = children[alive], to[alive]
        if seen:
            self._visited(
                np.concatenate([nodes for nodes, _ in seen]),
                np.concatenate([at for _, at in seen]),
                out,
            )

    def _visited(self, nodes: Int32, at: Int32, out: TextWalk) -> None:
        """What ends at some nodes, each read in a state of `_rows`."""
        arrays, states = self._arrays, self._tables.rows.states
        first, last = arrays.own_start[nodes], arrays.own_stop[nodes]
        out.ids.append(arrays.token_ids[ranges(first, last)])
        out.runs.update((states[number], 0) for number in distinct(at[first != last]).tolist())
        quotes = arrays.quote_under[nodes]
        chosen = (quotes >= 0).nonzero()[0]
        for number, quote in zip(at[chosen].tolist(), quotes[chosen].tolist(), strict=True):
            label = self._symbols.label(states[number])
            if label >= 0:
                out.single.setdefault(label, []).append(quote)
        chosen = arrays.holds_partials[nodes].nonzero()[0]
        found: list[int] = []
        for number, place in zip(at[chosen].tolist(), nodes[chosen].tolist(), strict=True):
            tails = self._points.tails_of(self._tables.live(states[number]))
            if tails is not None:
                found += [token for token, tail in arrays.partials[place] if tails[tail]]
                out.runs.add((states[number], 0))
        if found:
            out.ids.append(np.array(found, np.int32))

    def one_step(self, state: int, places: Int32, out: TextWalk) -> list[tuple[int, Int32]]:
        """What ends at ``places``, and where one more character leads, by state."""
        number = self._tables.rows.number(state)
        self._visited(places, np.full(len(places), number, np.int32), out)
        children, _ = self._arrays.children_of(places)
        minterms = self._points.minterms[self._arrays.code[children]]
        return grouped(self._tables.table(state)[minterms], children)


def apart(arrays: CharacterArrays, places: list[int]) -> list[list[int]]:
    """``places`` in ascending groups of which none lies below another of its group."""
    if len(places) == 1:
        return [places]
    places = sorted(set(places))
    end = arrays.views.end
    if all(end[a] <= b for a, b in pairwise(places)):
        return [places]
    return [[place] for place in places]
