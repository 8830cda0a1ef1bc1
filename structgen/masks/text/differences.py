"""A text's walk from the root, told by that of a state that most characters lead to as well.

Where a text is searched for words, its states differ by the few characters that go on with a word:
whatever else is read leads from all of them to the same state. So of two such states all tokens but
a few do the same, and those few lie where the characters lead apart. `TextDifferences` goes there;
how the other state was walked is not known here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from structgen.automaton.work import WORK

from .ends import ANEW, TextWalk
from .tables import DEAD, TextTables

_FEW_APART = 64
"""Most characters that may lead apart from two near states,"""

_FEW_PLACES = 400
"""and most places at which they may not have met again."""

_SMALL = 64
"""Nodes, with all below them, whose children are looked at one by one."""


class TextDifferences:
    """Differences between the walks of one symbol automaton.

    Args:
        tables: where its characters lead.
    """

    def __init__(self, tables: TextTables) -> None:
        self._tables = tables
        self._symbols = tables.symbols
        self._points = tables.points
        self._arrays = tables.characters.arrays
        self._nowhere = np.full(tables.n_minterms + 1, DEAD, np.int64)

    def near(self, state: int) -> int:
        """The state that most characters lead to from ``state``, where few lead apart from both;
        else ``state`` itself."""
        weights = self._points.weights
        heaviest, to = 0, state
        for mask, after in self._symbols.moves(state):
            weight = sum(w for minterm, w in enumerate(weights) if mask >> minterm & 1)
            if weight > heaviest:
                heaviest, to = weight, after
        if to == state:
            return state
        apart = self._table(state)[:-1] != self._table(to)[:-1]
        n_apart = sum(weights[minterm] for minterm in apart.nonzero()[0].tolist())
        return to if n_apart <= _FEW_APART else state

    def walk(self, state: int, near: int, whole: TextWalk) -> TextWalk | None:
        """The walk of ``state`` from the root by ``whole``, that of ``near`` in its compact form;
        None where they differ in too much. Cost: some microseconds for each place where they do."""
        arrays, symbols = self._arrays, self._symbols
        views = arrays.views
        assert whole.row is not None
        row = whole.row.copy()
        out = TextWalk(
            None,
            [],
            {label: mask.copy() for label, mask in whole.quotes.items()},
            {},
            {(state, ANEW)},
            row,
        )
        gained: list[int] = []
        lost: list[int] = []
        code, end = views.code, views.end
        minterm_of, minterms = self._points.minterm_of, self._points.minterms
        known: dict[tuple[int, int], dict[int, tuple[int, int]]] = {}
        stack = [(state, near, 0)]
        patience = _FEW_PLACES
        while stack:
            at, other, here = stack.pop()
            beyond = end[here]
            one_alone = at == DEAD or other == DEAD
            patience -= 1
            if patience < (beyond - here if one_alone else 0):
                return None
            if one_alone:
                ids = views.token_ids[views.own_start[here] : views.own_stop[here]]
                (lost if at == DEAD else gained).extend(ids)
            self._cut(at, other, here, gained, lost)
            quote = arrays.quote_below(here)
            if quote >= 0:
                label = -1 if at == DEAD else symbols.label(at)
                before = -1 if other == DEAD else symbols.label(other)
                if before >= 0:
                    self._tables.quoted(out, before)[quote] = False
                if label >= 0:
                    self._tables.quoted(out, label)[quote] = True
            if beyond == here + 1:
                continue
            apart = known.get((at, other))
            if apart is None:
                apart = known[at, other] = self._apart(at, other)
            children: Iterable[int] = ()
            if beyond - here <= _SMALL:
                children = _children(here, end)
            elif apart:
                below, _ = arrays.children_of(np.array([here], np.int32))
                chosen = np.zeros(self._tables.n_minterms + 1, bool)
                chosen[list(apart)] = True
                children = below[chosen[minterms[arrays.code[below]]]].tolist()
            for child in children:
                ways = apart.get(minterm_of[code[child]])
                if ways is not None:
                    stack.append((*ways, child))
        WORK.spend(_FEW_PLACES - patience)
        for token in gained:
            row[token >> 5] |= np.uint32(1 << (token & 31))
        for token in lost:
            row[token >> 5] &= ~np.uint32(1 << (token & 31))
        return out

    def _apart(self, at: int, other: int) -> dict[int, tuple[int, int]]:
        """Where the minterms lead that lead apart, from both states."""
        to, others = self._table(at)[:-1], self._table(other)[:-1]
        apart = (to != others).nonzero()[0]
        ways = zip(to[apart].tolist(), others[apart].tolist(), strict=True)
        return dict(zip(apart.tolist(), ways, strict=True))

    def _table(self, state: int) -> npt.NDArray[np.int64]:
        return self._nowhere if state == DEAD else self._tables.table(state)

    def _cut(self, at: int, other: int, here: int, gained: list[int], lost: list[int]) -> None:
        """Add the tokens that end inside a character after ``here``, and only in one of the states
        may."""
        partials = self._arrays.partials.get(here)
        if not partials:
            return
        live = 0 if at == DEAD else self._tables.live(at)
        before = 0 if other == DEAD else self._tables.live(other)
        if not (live ^ before) & self._points.cut:
            return
        tails, tails_before = self._points.tails_of(live), self._points.tails_of(before)
        for token, tail in partials:
            may = tails is not None and bool(tails[tail])
            if may != (tails_before is not None and bool(tails_before[tail])):
                (gained if may else lost).append(token)


def _children(node: int, end: Sequence[int]) -> Iterator[int]:
    """The nodes right below ``node``; ``end`` has the node after all those below each."""
    child, beyond = node + 1, end[node]
    while child < beyond:
        yield child
        child = end[child]
