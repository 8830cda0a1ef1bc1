"""Transitions of a text's automaton by character, and walks character by character.

`TextTables` holds the next states of one automaton in one encoding: by minterm, and as rows of one
array for all states of a level. `TextWalk` is the result of a walk: where tokens end, where the
text closes, and with which label. `TextSteps` walks one state at one node, or many level by level;
it leaves runs and open texts to `text_walks`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from structgen.automaton.bits import bits
from structgen.automaton.regex import SymbolAutomaton
from structgen.automaton.work import WORK
from structgen.masks.grouping import RowTable, distinct, ranges, starts_of
from structgen.storage import Numbers, cached_method
from structgen.vocabulary import view

from .character_arrays import CharacterArrays, CountedTokens, Int32
from .characters import Characters, Whole


class TransitionTable(RowTable):
    """Transitions by minterm; the last column is for all bytes that are not text.

    Args:
        symbols: the automaton.
        charge: called with the bytes by which the table grows.

    Attributes:
        continues: bool [states]; whether there is any next state.
        number: the numbers of the automaton's own states.
        states: these states, by number.
    """

    columns: ClassVar[dict[str, int]] = {"continues": 0}

    def __init__(self, symbols: SymbolAutomaton, charge: Callable[[int], None]) -> None:
        super().__init__(symbols.alphabet.n_minterms + 1, charge)
        self._symbols = symbols
        self.number: Numbers[int] = Numbers()
        self.states = self.number.listed
        self.continues = np.zeros(len(self.rows), bool)

    def fill(self, state: int) -> None:
        """See `RowTable`; ``state`` is a number."""
        moves = self._symbols.moves(self.states[state])
        spread(self.rows[state], [(mask, self.number[to]) for mask, to in moves])
        self.continues[state] = bool(moves)


def spread(row: npt.NDArray[Any], moves: Iterable[tuple[int, int]]) -> None:
    """Write the next state of each minterm by ``moves`` into ``row``."""
    for mask, to in moves:
        row[bits(mask)] = to


FRESH = -(1 << 40)
"""`TextWalk.runs` contains this minus a place for the runs of a walk from there, which are computed
again."""

Counted: TypeAlias = "tuple[CountedTokens, int]"
"""The tokens of a run from the root, and the most characters of the run that tokens inside may
have."""


class TextWalk(NamedTuple):
    """The walk of a text from one node.

    Attributes:
        counted: for a run from the root, its tokens.
        ids: tokens that end inside the text, except those in ``counted``.
        quotes: label → bool ``[len(Characters.quotes)]``, the closing quotes reached.
        single: label → further closing quotes, one by one.
        runs: states in which these tokens end, each with the length of the run that it starts; or
            with ``-1 - place``, for the states of `TextWalks.special_states`; or with ``FRESH -
            place``, for the runs of `TextWalks.fresh_runs`.
        row: further tokens that end inside the text, as bits, for a walk from the root.
    """

    counted: Counted | None
    ids: list[Int32]
    quotes: dict[int, npt.NDArray[np.bool_]]
    single: dict[int, list[int]]
    runs: set[tuple[int, int]]
    row: npt.NDArray[np.uint32] | None = None


class FreeWalk(NamedTuple):
    """The walk of a text that may be anything, and the labels of its ends.

    Attributes:
        whole: the walk of every text.
        usual: the label of most texts.
        special: quotes after which the text has another label, ascending.
        single: label → the ``special`` quotes with that label.
        runs: as in `TextWalk`.
    """

    whole: Whole
    usual: int
    special: tuple[int, ...]
    single: dict[int, list[int]]
    runs: set[tuple[int, int]]


DEAD = -(1 << 30)
"""The dead state."""

_NARROW = 12
"""The most characters that a state may read to be walked character by character."""

FEW = 4
"""Up to this many characters are looked up one by one, even in large subtrees."""


class TextTables:
    """The transitions of one symbol automaton by the characters of a vocabulary."""

    def __init__(self, characters: Characters, symbols: SymbolAutomaton) -> None:
        self.characters = characters
        self.arrays = characters.arrays
        self.symbols = symbols
        self.n_minterms = symbols.alphabet.n_minterms
        self.points = characters.points_of(symbols.alphabet)

    @functools.cached_property
    def rows(self) -> TransitionTable:
        """Transitions of many states at once."""
        return TransitionTable(self.symbols, self.characters.charge)

    def quoted(self, out: TextWalk, label: int) -> npt.NDArray[np.bool_]:
        """Return the closing quotes of ``out`` with a label, for adding more."""
        found = out.quotes.get(label)
        if found is None:
            found = out.quotes[label] = np.zeros(len(self.characters.arrays.quotes), bool)
        return found

    @cached_method
    def table(self, state: int) -> npt.NDArray[np.int64]:
        """Return the next state by minterm; the last entry is for bytes that are not text."""
        table = np.full(self.n_minterms + 1, DEAD, np.int64)
        spread(table, self.symbols.moves(state))
        self.characters.charge(table.nbytes + 200)
        return table

    @cached_method
    def narrow(self, state: int) -> tuple[tuple[int, bytes, int], ...] | None:
        """Return each character that ``state`` may read, its unescaped bytes, and the next state.

        None if there are many.
        """
        weights = self.points.weights
        total = 0
        steps: list[tuple[int, int]] = []
        for mask, to in self.symbols.moves(state):
            for minterm in bits(mask):
                total += weights[minterm]
                if total > _NARROW:
                    return None
                steps.append((minterm, to))
        # Tuples of plain values: the garbage collector soon ignores them.
        narrow = tuple(
            (point, spelt, to)
            for minterm, to in steps
            if weights[minterm]
            for point, spelt in self.points.listed(minterm)
        )
        self.characters.charge(100 * len(narrow) + 100)
        return narrow

    def live(self, state: int) -> int:
        """Return all minterms that ``state`` may read."""
        live = 0
        for mask, _ in self.symbols.moves(state):
            live |= mask
        return live

    def is_few(self, state: int) -> bool:
        """Return whether so few characters may follow that walking them one by one is cheaper."""
        narrow = self.narrow(state)
        return narrow is not None and len(narrow) <= FEW


def grouped(targets: npt.NDArray[Any], places: Int32) -> list[tuple[int, Int32]]:
    """Return ``places``, ascending, grouped by target, without dead ones."""
    alive = targets != DEAD
    if not alive.any():
        return []
    targets, places = targets[alive], places[alive]
    order = np.argsort(targets, kind="stable")
    targets, places = targets[order], places[order]
    first = starts_of(targets)
    bounds = pairwise([*first.tolist(), len(places)])
    return [
        (state, places[a:b]) for state, (a, b) in zip(targets[first].tolist(), bounds, strict=True)
    ]


SMALL = 64
"""Subtrees of up to this many nodes are walked node by node."""

_DEEP = 5
"""After this many levels, mostly chains are left,"""

_CHAINS = 400
_FEW_CHAINS = 16
"""so up to this many nodes in few chains are walked one by one."""

_PATIENCE = 400
"""After this many places walked one by one, the rest is walked together."""


class TextSteps(TextTables):
    """Walks of one symbol automaton, a character at a time."""

    def one_by_one(
        self, pairs: list[tuple[int, int]], out: TextWalk, set_aside: bool = False
    ) -> tuple[list[tuple[int, Int32]], list[tuple[int, Int32]]]:
        """Walk from some states, each at one place, character by character.

        Args:
            pairs: states and places.
            out: receives the results.
            set_aside: whether to skip large subtrees, unless few characters may be read, and to
                stop after `_PATIENCE` places.

        Returns:
            By state, the places that were not walked, ascending, none below another; and the places
            where the walk stopped.
        """
        arrays, is_open = self.arrays, self.symbols.is_open
        end, code = arrays.views.end, arrays.views.code
        start, stop = arrays.views.token_start, arrays.views.own_stop
        all_partials = arrays.partials
        quote, minterm_of, ids = (
            len(arrays.points),
            self.points.minterm_of,
            arrays.views.token_ids,
        )
        found: list[int] = []
        aside: dict[int, list[int]] = {}
        stack = pairs
        patience = _PATIENCE
        met: set[int] = set()
        # By state: the next states after a few characters; or the next states by minterm.
        known: dict[int, tuple[tuple[tuple[int, bytes, int], ...] | None, Sequence[int]]] = {}
        while stack:
            at, here = stack.pop()
            child, beyond = here + 1, end[here]
            if set_aside:
                patience -= 1
                if not patience:
                    stack.append((at, here))
                    break
                if beyond - here > SMALL and (is_open(at) or not self.is_few(at)):
                    aside.setdefault(at, []).append(here)
                    continue
            met.add(at)
            first, last = start[here], stop[here]
            if first != last:
                found += ids[first:last]
            partials = all_partials.get(here)
            if partials:
                tails = self.points.tails_of(self.live(at))
                if tails is not None:
                    alive = memoryview(tails)  # type: ignore[arg-type]
                    found += [token for token, tail in partials if alive[tail]]
            if child == beyond:
                continue  # where the state leads need not be known
            moves = known.get(at)
            if moves is None:
                narrow = self.narrow(at)
                table = () if narrow is not None else view(self.table(at))
                moves = known[at] = narrow, table
            narrow, table = moves
            if narrow is not None:
                which = arrays.quote_below(here)
                if which >= 0:
                    label = self.symbols.label(at)
                    if label >= 0:
                        out.single.setdefault(label, []).append(which)
                for point, spelt, to in narrow:
                    stack += [(to, x) for x in arrays.spelt_below(here, point, spelt)]
                continue
            while child < beyond:
                symbol = code[child]
                if symbol == quote:
                    label = self.symbols.label(at)
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
        arrays, table, minterms = self.arrays, self.rows, self.points.minterms
        nodes = np.concatenate([places for _, places in groups])
        lengths = [len(places) for _, places in groups]
        at = np.repeat([table.number[state] for state, _ in groups], lengths).astype(np.int32)
        seen: list[tuple[Int32, Int32]] = []
        while len(nodes):
            WORK.spend(5 + (len(nodes) >> 5))
            sizes = arrays.end[nodes] - nodes
            # At depth there are a few long chains, each level of which would cost a step.
            is_deep = len(seen) >= _DEEP and len(nodes) <= _FEW_CHAINS
            if int(sizes.sum()) <= (_CHAINS if is_deep else SMALL):
                states = [table.states[number] for number in at.tolist()]
                self.one_by_one(list(zip(states, nodes.tolist(), strict=True)), out)
                break
            seen.append((nodes, at))
            # If no token continues, the next states are not needed.
            inner = sizes > 1
            nodes, at = nodes[inner], at[inner]
            table.cover(at)
            continuing = table.continues[at]
            children, counts = arrays.children_of(nodes[continuing])
            to = table.rows[np.repeat(at[continuing], counts), minterms[arrays.code[children]]]
            alive = to >= 0
            nodes, at = children[alive], to[alive]
        if seen:
            self._visited(
                np.concatenate([nodes for nodes, _ in seen]),
                np.concatenate([at for _, at in seen]),
                out,
            )

    def _visited(self, nodes: Int32, at: Int32, out: TextWalk) -> None:
        """Add the tokens that end at nodes, each reached in a state of `_rows`."""
        arrays, states = self.arrays, self.rows.states
        first, last = arrays.token_start[nodes], arrays.own_stop[nodes]
        out.ids.append(arrays.token_ids[ranges(first, last)])
        out.runs.update((states[number], 0) for number in distinct(at[first != last]).tolist())
        quotes = arrays.quote_under[nodes]
        chosen = (quotes >= 0).nonzero()[0]
        for number, quote in zip(at[chosen].tolist(), quotes[chosen].tolist(), strict=True):
            label = self.symbols.label(states[number])
            if label >= 0:
                out.single.setdefault(label, []).append(quote)
        chosen = arrays.holds_partials[nodes].nonzero()[0]
        found: list[int] = []
        for number, place in zip(at[chosen].tolist(), nodes[chosen].tolist(), strict=True):
            tails = self.points.tails_of(self.live(states[number]))
            if tails is not None:
                found += [token for token, tail in arrays.partials[place] if tails[tail]]
                out.runs.add((states[number], 0))
        if found:
            out.ids.append(np.array(found, np.int32))

    def one_step(self, state: int, places: Int32, out: TextWalk) -> list[tuple[int, Int32]]:
        """Return the tokens that end at ``places``, and the states after one more character."""
        number = self.rows.number[state]
        self._visited(places, np.full(len(places), number, np.int32), out)
        children, _ = self.arrays.children_of(places)
        minterms = self.points.minterms[self.arrays.code[children]]
        return grouped(self.table(state)[minterms], children)


def apart(arrays: CharacterArrays, places: list[int]) -> list[list[int]]:
    """Return ``places`` in ascending groups, in each of which no place is below another."""
    if len(places) == 1:
        return [places]
    places = sorted(set(places))
    end = arrays.views.end
    if all(end[a] <= b for a, b in pairwise(places)):
        return [places]
    return [[place] for place in places]
