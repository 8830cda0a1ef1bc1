"""Walks of text: one leaf of characters, from any state, through the tokens below any node.

A text's automaton mostly stays where it is: it reads many characters of one set, perhaps counting
them (`RegexAutomaton.run`). `TextWalks` takes such a run in one comparison over all tokens (see
`characters`), and looks only at the places where a run can be left: a closing quote, a character
cut by the token's end, a character outside the set that leads somewhere. Those places are grouped
by the state they lead to and walked on together. Small subtrees are walked one by one.

It knows leaves of text and the vocabulary's characters; what follows a text is `masks`' business.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from .automaton.alphabet import Alphabet
from .automaton.encoding import ASCII_ONLY, Utf8
from .automaton.leaf import SymbolAutomaton
from .characters import Characters, Depths, Slice, ranges, view

Int32: TypeAlias = npt.NDArray[np.int32]
Places: TypeAlias = npt.NDArray[np.int32]

_DEAD = -(1 << 30)
_SMALL = 64
"""Nodes of a subtree that are still walked one by one."""


class TextWalk(NamedTuple):
    """What a text does from one place.

    Attributes:
        counts: for a run from the root, its slice's counts and the largest that is inside.
        ids: tokens that end inside the text (those of the run from the root apart).
        quotes: label → bool ``[len(Characters.quotes)]``, the closing quotes reached.
        runs: states in which those tokens end, each with the length of the run it starts.
    """

    counts: tuple[Depths, int] | None
    ids: list[Int32]
    quotes: dict[int, npt.NDArray[np.bool_]]
    runs: set[tuple[int, int]]


class TextWalks:
    """Walks of one symbol automaton under one encoding.

    Args:
        characters: the vocabulary under the same spelling as ``encoding``.
        symbols: the automaton.
        encoding: how its characters are spelt.
    """

    def __init__(self, characters: Characters, symbols: SymbolAutomaton, encoding: Utf8) -> None:
        self.characters = characters
        self._symbols = symbols
        self._encoding = encoding
        alphabet: Alphabet = symbols.alphabet
        self._n_atoms = alphabet.n_atoms
        n_points = len(characters.points)
        atoms = np.full(n_points + 2, self._n_atoms, np.int32)
        which = np.searchsorted(alphabet.starts, characters.points, "right") - 1
        atoms[:n_points] = np.asarray(alphabet.atoms, np.int32)[which]
        atoms[:n_points][atoms[:n_points] < 0] = self._n_atoms
        self._atoms = atoms
        self._atom_of = view(atoms)
        self._weights = np.bincount(atoms[:n_points], minlength=self._n_atoms + 1).tolist()
        self._tables: dict[int, npt.NDArray[np.int64]] = {}
        self._alive_tails: dict[int, npt.NDArray[np.bool_]] = {}
        self._reach: tuple[list[int], npt.NDArray[np.int64]] | None = None

    # -- what is asked ----------------------------------------------------------------------

    def is_wide(self, state: int) -> bool:
        """Whether ``state`` may read so many characters that this kind of walk pays."""
        weights = self._weights
        total = 0
        for mask, _ in self._symbols.moves(state):
            while mask:
                bit = mask & -mask
                mask ^= bit
                total += weights[bit.bit_length() - 1]
                if total > 12:
                    return True
        return False

    def walk(self, state: int, places: Places) -> TextWalk:
        """Walk from ``state`` at each of ``places``, character nodes none of which is below
        another. Cost: tens of microseconds, and two milliseconds for each new set of characters.
        """
        out = TextWalk(None, [], {}, set())
        counts = None
        if len(places) == 1 and not places[0]:
            counts, groups = self._from_root(state, out)
        else:
            groups = [(state, places)]
        while groups:
            at, where = groups.pop()
            if int(np.sum(self.characters.end[where] - where)) <= _SMALL:
                for place in where.tolist():
                    self._one_by_one(at, place, out)
            else:
                groups += self._together(at, where, out)
        return out._replace(counts=counts)

    # -- one by one -------------------------------------------------------------------------

    def _one_by_one(self, state: int, place: int, out: TextWalk) -> None:
        characters = self.characters
        end, code = characters.views.end, characters.views.code
        start, stop = characters.views.own_start, characters.views.own_stop
        quote, atom_of, ids = len(characters.points), self._atom_of, characters.views.token_ids
        found: list[int] = []
        stack = [(state, place)]
        runs = out.runs
        while stack:
            at, here = stack.pop()
            runs.add((at, 0))
            first, last = start[here], stop[here]
            if first != last:
                found += ids[first:last]
            partials = characters.partials.get(here)
            if partials:
                alive = self._tails_alive(at)
                found += [token for token, tail in partials if alive[tail]]
            child, beyond = here + 1, end[here]
            if child == beyond:
                continue
            table = self._table(at)
            while child < beyond:
                symbol = code[child]
                if symbol == quote:
                    label = self._symbols.label(at)
                    if label >= 0:
                        self._quoted(out, label)[characters.quote_index[child]] = True
                else:
                    to = int(table[atom_of[symbol]])
                    if to != _DEAD:
                        stack.append((to, child))
                child = end[child]
        if found:
            out.ids.append(np.array(found, np.int32))

    # -- together ---------------------------------------------------------------------------

    def _from_root(
        self, state: int, out: TextWalk
    ) -> tuple[tuple[Depths, int] | None, list[tuple[int, Places]]]:
        characters, symbols = self.characters, self._symbols
        places = np.zeros(1, np.int32)
        if symbols.is_open(state):
            cut = self._slice(symbols.alphabet.everything)
            out.ids.append(characters.partial[self._whole_tails(cut, places)])
            self._quotes_one_by_one(state, 0, out)
            out.runs.add((state, 0))
            return (cut.counts, characters.longest), []
        free = symbols.free(state)
        chars, most = symbols.run(state if free is None else free)
        if not chars:
            return None, self._children_of_root(state, out)
        cut = self._slice(chars)
        most = characters.longest if most < 0 else min(most, characters.longest)
        out.runs.add((state, most))
        self._leave(state if free is None else free, cut, most, places, out)
        if free is not None:
            out.runs.add((free, most))
            self._correct(state, free, 0, out)
            return (cut.counts, most), []
        return (cut.counts, most), self._edges(state, chars, cut, most, places)

    def _children_of_root(self, state: int, out: TextWalk) -> list[tuple[int, Places]]:
        characters = self.characters
        children = characters.top
        out.runs.add((state, 0))
        self._leave(state, characters.nothing, 0, np.zeros(1, np.int32), out)
        groups = _grouped(self._table(state)[self._atoms[characters.code[children]]], children)
        left: list[tuple[int, Places]] = []
        for to, places in groups:
            size = int(np.sum(characters.end[places] - places))
            chars, most = self._symbols.run(to)
            if size * 6 < characters.n or not chars or self._symbols.free(to) is not None:
                left.append((to, places))
                continue
            # Most of the vocabulary: by token instead of by range.
            cut = self._slice(chars)
            most = characters.longest if most < 0 else min(most, characters.longest)
            out.runs.add((to, most))
            chosen = np.zeros(len(children) + 1, bool)
            chosen[np.searchsorted(children, places)] = True
            inside = (characters.by_id(cut) <= 1) & chosen[characters.first_of_id]
            if most < characters.longest:
                inside &= characters.depth_of_id <= most + 1
            out.ids.append(np.flatnonzero(inside).astype(np.int32))
            self._leave(to, cut, most, places, out)
            left += self._edges(to, chars, cut, most, places, chosen)
        return left

    def _together(self, state: int, places: Places, out: TextWalk) -> list[tuple[int, Places]]:
        characters, symbols = self.characters, self._symbols
        if symbols.is_open(state):
            cut = self._slice(symbols.alphabet.everything)
            first, last = characters.token_start[places], characters.token_end[places]
            ranks = ranges(first, last)
            base = np.repeat(characters.depth[places], last - first)
            inside = cut.last[characters.token_node[ranks]] <= base
            out.ids.append(characters.token_ids[ranks[inside]])
            out.ids.append(characters.partial[self._whole_tails(cut, places)])
            for place in places.tolist():
                self._quotes_one_by_one(state, place, out)
            out.runs.add((state, 0))
            return []
        given, free = state, symbols.free(state)
        state = given if free is None else free
        chars, most = symbols.run(state)
        own = ranges(characters.own_start[places], characters.own_stop[places])
        out.ids.append(characters.token_ids[own])
        if not chars:
            out.runs.add((state, 0))
            self._leave(state, characters.nothing, 0, places, out)
            children = characters.children(places)
            return _grouped(self._table(state)[self._atoms[characters.code[children]]], children)
        cut = self._slice(chars)
        most = characters.longest if most < 0 else min(most, characters.longest)
        out.runs.add((state, most))
        first, last = characters.token_start[places], characters.token_end[places]
        ranks = ranges(first, last)
        base = np.repeat(characters.depth[places], last - first)
        nodes = characters.token_node[ranks]
        inside = cut.last[nodes] <= base
        if most < characters.longest:
            inside &= characters.depth[nodes] - base <= most
        out.ids.append(characters.token_ids[ranks[inside]])
        self._leave(state, cut, most, places, out)
        if free is not None:
            for place in places.tolist():
                self._correct(given, free, place, out)
        return self._edges(state, chars, cut, most, places)

    def _leave(self, state: int, cut: Slice, most: int, places: Places, out: TextWalk) -> None:
        """Closing quotes, and tokens that end inside a character, after the run of ``state``."""
        characters = self.characters
        chosen, steps = _after_run(
            characters.parent[characters.quotes], characters, cut, most, places
        )
        for count, which in self._by_count(state, steps):
            label = self._symbols.label(self._symbols.after_run(state, count))
            if label >= 0:
                self._quoted(out, label)[chosen[which]] = True
        chosen, steps = _after_run(characters.partial_node, characters, cut, most, places)
        if len(chosen):
            tails = characters.partial_tail[chosen]
            keep = np.zeros(len(chosen), bool)
            for count, which in self._by_count(state, steps):
                alive = self._tails_alive(self._symbols.after_run(state, count))
                keep[which] = alive[tails[which]]
            out.ids.append(characters.partial[chosen[keep]])

    def _edges(
        self,
        state: int,
        chars: int,
        cut: Slice,
        most: int,
        places: Places,
        chosen: npt.NDArray[np.bool_] | None = None,
    ) -> list[tuple[int, Places]]:
        """Where characters outside the run lead, grouped by state.

        ``chosen``, bool over the root's children and one more, stands for ``places`` where those
        are many.
        """
        characters, symbols = self.characters, self._symbols
        endless = symbols.run(state)[1] < 0
        if endless:
            states = {symbols.after_run(state, j) for j in range(symbols.settled(state) + 1)}
            if not any(m & ~chars for s in states for m, _ in symbols.moves(s)):
                return []
        last, depth, parent = cut.last, characters.depth, characters.parent
        if chosen is not None:
            edges = np.flatnonzero((last[:-1] == depth[:-1]) & (last[parent] <= 1)).astype(np.int32)
            edges = edges[(depth[edges] > 1) & chosen[characters.first_of_node[edges]]]
            steps = depth[edges] - np.asarray(2, depth.dtype)
        elif len(places) == 1 and not places[0]:
            edges = characters.edges(cut)
            steps = depth[edges] - np.asarray(1, depth.dtype)
        else:
            lengths = characters.end[places] - places
            nodes = ranges(places, characters.end[places])
            base = np.repeat(depth[places], lengths)
            keep = (last[nodes] == depth[nodes]) & (depth[nodes] > base)
            keep &= last[parent[nodes]] <= base
            edges = nodes[keep]
            steps = depth[edges] - base[keep] - np.asarray(1, depth.dtype)
        atoms = self._atoms[characters.code[edges]]
        keep = (atoms < self._n_atoms) & (steps <= most)
        edges, atoms, steps = edges[keep], atoms[keep], steps[keep]
        if not len(edges):
            return []
        targets = np.full(len(edges), _DEAD, np.int64)
        for count, which in self._by_count(state, steps):
            targets[which] = self._table(symbols.after_run(state, count))[atoms[which]]
        return _grouped(targets, edges)

    def _by_count(self, state: int, steps: Depths) -> list[tuple[int, npt.NDArray[np.int64]]]:
        """Positions by the number of characters read, as far as that matters."""
        if not len(steps):
            return []
        if self._symbols.run(state)[1] < 0:
            settled = self._symbols.settled(state)
            if not settled:
                return [(0, np.arange(len(steps)))]
            steps = np.minimum(
                steps, np.asarray(min(settled, self.characters.longest), steps.dtype)
            )
        order = np.argsort(steps, kind="stable")
        counts, first = np.unique(steps[order], return_index=True)
        return list(zip(counts.tolist(), np.split(order, first[1:]), strict=True))

    def _whole_tails(self, cut: Slice, places: Places) -> npt.NDArray[np.int64]:
        """Which partial tokens an open text may end with: those of any character that is text."""
        characters = self.characters
        chosen, _ = _after_run(characters.partial_node, characters, cut, characters.longest, places)
        alive = self._tails_of(self._symbols.alphabet.everything)
        return chosen[alive[characters.partial_tail[chosen]]]

    def _quotes_one_by_one(self, state: int, place: int, out: TextWalk) -> None:
        """The closing quotes below ``place``, on all paths of text that lead to one."""
        characters, symbols = self.characters, self._symbols
        code, atom_of = characters.views.code, self._atom_of
        stack = [(state, place)]
        while stack:
            at, here = stack.pop()
            out.runs.add((at, 0))
            quote = characters.quote_below(here)
            if quote >= 0:
                label = symbols.label(at)
                if label >= 0:
                    self._quoted(out, label)[quote] = True
            children = characters.towards_quotes.get(here)
            if children:
                table = self._table(at)
                for child in children:
                    to = int(table[atom_of[code[child]]])
                    if to != _DEAD:
                        stack.append((to, child))

    def _correct(self, state: int, free: int, place: int, out: TextWalk) -> None:
        """Undo what was taken for granted of a free text where it spells a special one."""
        characters, symbols = self.characters, self._symbols
        usual = symbols.label(free)
        stack = [(state, place)]
        while stack:
            at, here = stack.pop()
            out.runs.add((at, 0))
            quote = characters.quote_below(here)
            if quote >= 0:
                label = symbols.label(at)
                if label != usual:
                    if usual >= 0:
                        self._quoted(out, usual)[quote] = False
                    if label >= 0:
                        self._quoted(out, label)[quote] = True
            for point, to in symbols.special(at):
                stack += [(to, child) for child in characters.spelt_below(here, point)]

    # -- tables -----------------------------------------------------------------------------

    def _quoted(self, out: TextWalk, label: int) -> npt.NDArray[np.bool_]:
        found = out.quotes.get(label)
        if found is None:
            found = out.quotes[label] = np.zeros(len(self.characters.quotes), bool)
        return found

    def _table(self, state: int) -> npt.NDArray[np.int64]:
        """Next state by atom; the last entry stands for characters of no text."""
        table = self._tables.get(state)
        if table is None:
            table = np.full(self._n_atoms + 1, _DEAD, np.int64)
            for mask, to in self._symbols.moves(state):
                while mask:
                    bit = mask & -mask
                    mask ^= bit
                    table[bit.bit_length() - 1] = to
            self._tables[state] = table
        return table

    def _slice(self, chars: int) -> Slice:
        lut = np.zeros(self._n_atoms + 1, bool)
        while chars:
            bit = chars & -chars
            chars ^= bit
            lut[bit.bit_length() - 1] = True
        return self.characters.slice(lut[self._atoms])

    def _tails_alive(self, state: int) -> npt.NDArray[np.bool_]:
        """For each of `Characters.tails`, whether some character that begins so may follow."""
        live = 0
        for mask, _ in self._symbols.moves(state):
            live |= mask
        return self._tails_of(live)

    def _tails_of(self, live: int) -> npt.NDArray[np.bool_]:
        found = self._alive_tails.get(live)
        if found is None:
            if self._reach is None:
                self._reach = self._reach_of_tails()
            masks, which = self._reach
            found = np.array([bool(mask & live) for mask in masks], bool)[which]
            self._alive_tails[live] = found
        return found

    def _reach_of_tails(self) -> tuple[list[int], npt.NDArray[np.int64]]:
        """The atoms each tail may become: the different sets, and which of them is whose."""
        characters, alphabet = self.characters, self._symbols.alphabet
        first, last = characters.tail_spans[:, 0], characters.tail_spans[:, 1]
        starts = np.asarray(alphabet.starts)
        low = np.searchsorted(starts, first, "right") - 1
        high = np.searchsorted(starts, last, "right") - 1
        masks: dict[int, int] = {}
        which = np.zeros(len(first), np.int64)
        by_interval: dict[tuple[int, int], int] = {}
        barred = self._encoding.barred
        for i, (a, b) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
            tail = characters.tails[i]
            if first[i] < 0 or barred or self._encoding.spelling in ASCII_ONLY:
                mask = self._reach_after(tail)
            else:
                known = by_interval.get((a, b))
                if known is None:
                    known = alphabet.atoms_between(int(first[i]), int(last[i]))
                    by_interval[a, b] = known
                mask = known
            which[i] = masks.setdefault(mask, len(masks))
        return list(masks), which

    def _reach_after(self, tail: bytes) -> int:
        node = 0
        for byte in tail:
            node = self._encoding.row(node).get(byte, -1)
            if node < 0:
                return 0
        return self._encoding.reach(node)


def _after_run(
    nodes: Int32, characters: Characters, cut: Slice, most: int, places: Places
) -> tuple[npt.NDArray[np.int64], Depths]:
    """Which of ``nodes`` a run from one of ``places`` can reach, and after how many characters."""
    if len(places) == 1 and not places[0]:
        chosen = np.flatnonzero((cut.last[nodes] == 0) & (characters.depth[nodes] <= most))
        return chosen, characters.depth[nodes[chosen]]
    which = np.searchsorted(places, nodes, "right") - 1
    start = places[np.maximum(which, 0)]
    base = characters.depth[start]
    inside = (which >= 0) & (nodes < characters.end[start]) & (cut.last[nodes] <= base)
    chosen = np.flatnonzero(inside)
    steps = characters.depth[nodes[chosen]] - base[chosen]
    short = steps <= most
    return chosen[short], steps[short]


def _grouped(targets: npt.NDArray[np.int64], places: Places) -> list[tuple[int, Places]]:
    """``places`` by target, without the dead ones."""
    alive = targets != _DEAD
    if not alive.any():
        return []
    targets, places = targets[alive], places[alive]
    order = np.argsort(targets, kind="stable")
    states, first = np.unique(targets[order], return_index=True)
    return list(zip(states.tolist(), np.split(places[order], first[1:]), strict=True))
