"""Walk quotes: find the tokens that continue from places of a document.

A quote has as many texts as the document has pieces, so no states are made for tokens. All places
with the same text so far are walked through the vocabulary together, one character of the document
at a time, each at its own node (`QuoteTexts.quote`). A few places are walked one by one. Only token
budgets need states for the ends of tokens, one for all with the same shortest way to an end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from structgen.automaton.regex import Quoting
from structgen.automaton.work import WORK
from structgen.masks.grouping import distinct, ranges, starts_of
from structgen.vocabulary import view

from .character_arrays import Int32
from .tables import FRESH, TextSteps, TextWalk

_FEW = 12
"""Up to this many places in the document are walked one by one."""


class _Edges(NamedTuple):
    """The nodes of a vocabulary's characters by the node above and the class of the character.

    Attributes:
        keys: int64, ascending; the node above times ``n_classes`` plus the class; and a sentinel.
        below: int32; the nodes.
        n_classes: the number of classes, one for other characters included.
        is_one: whether no two keys are equal.
        key_views, below_views: the arrays for single look-ups.
        classes: the document's characters, for such look-ups.
    """

    keys: npt.NDArray[np.int64]
    below: Int32
    n_classes: int
    is_one: bool
    key_views: Sequence[int]
    below_views: Sequence[int]
    classes: Sequence[int]


class _Level(NamedTuple):
    """Places of a document after a number of characters of a token, each with a node."""

    nodes: Int32
    at: Int32
    first: Int32
    last: Int32


class QuoteTexts(TextSteps):
    """Walks of the quotes of one symbol automaton."""

    _edges_of: dict[bytes, _Edges]
    _ends_of: tuple[Any, list[tuple[int, Int32]]] = (None, [])

    def quote(self, state: int, quoting: Quoting, places: list[int]) -> TextWalk:
        """See `TextWalks.walk`; for states where only a quote is left."""
        out = TextWalk(None, [], {}, {}, {(state, FRESH - place) for place in places})
        read = quoting.read
        if (read.high - read.low) * len(places) <= _FEW:
            self._one_by_one(quoting, places, out)
            return out
        arrays, passages = self.arrays, quoting.passages
        nodes: list[Int32] = []
        quotes: list[Int32] = []
        cut: dict[int, int] = {}  # by node, the classes of the character that may be cut there
        for level in self._levels(quoting, places):
            nodes.append(distinct(level.nodes))
            ends = passages.is_end[level.at] & (level.at >= level.first)
            quotes.append(distinct(arrays.quote_under[level.nodes[ends]]))
            is_cut = arrays.holds_partials[level.nodes] & (level.at < level.last)
            classes = len(quoting.masks)
            pairs = level.nodes[is_cut].astype(np.int64) * classes
            for pair in distinct(pairs + passages.codes[level.at[is_cut]]).tolist():
                node, code = divmod(pair, classes)
                cut[node] = cut.get(node, 0) | quoting.masks[code]
        reached = np.concatenate(nodes)
        out.ids.append(
            arrays.token_ids[ranges(arrays.token_start[reached], arrays.own_stop[reached])]
        )
        closed = np.concatenate(quotes)
        if len(closed) and closed.max() >= 0:
            self.quoted(out, 0)[closed[closed >= 0]] = True
        out.ids.append(np.array(self._cut(cut), np.int32))
        return out

    def _cut(self, cut: dict[int, int]) -> list[int]:
        """Return the tokens that end inside a character of the minterms, by the node before it."""
        found: list[int] = []
        for node, live in cut.items():
            tails = self.points.tails_of(live)
            if tails is not None:
                found += [token for token, tail in self.arrays.partials[node] if tails[tail]]
        return found

    def _levels(self, quoting: Quoting, places: list[int]) -> Iterator[_Level]:
        """Yield all places by number of characters of a token."""
        edges = self._edges_below(quoting)
        passages, arrays = quoting.passages, self.arrays
        _, at, first, last = passages.standing(quoting.read)
        nodes = np.array(places, np.int32).repeat(len(at))
        if len(places) > 1:
            at, first, last = (np.tile(part, len(places)) for part in (at, first, last))
        while len(at):
            WORK.spend(5 + (len(at) >> 8))
            yield _Level(nodes, at, first, last)
            on = np.flatnonzero((at < last) & (arrays.end[nodes] - nodes > 1))
            nodes, at, first, last = nodes[on], at[on], first[on], last[on]
            keys = nodes * np.int64(edges.n_classes) + passages.codes[at]
            where = edges.keys.searchsorted(keys)
            if edges.is_one:
                on = np.flatnonzero(edges.keys[where] == keys)
                nodes = edges.below[where[on]]
            else:
                beyond = edges.keys.searchsorted(keys, "right")
                on = np.arange(len(at)).repeat(beyond - where)
                nodes = edges.below[ranges(where, beyond)]
            at, first, last = at[on] + np.int32(1), first[on], last[on]

    def _one_by_one(self, quoting: Quoting, places: list[int], out: TextWalk) -> None:
        """`quote` for a few places of a document."""
        edges, arrays, passages = self._edges_below(quoting), self.arrays, quoting.passages
        keys, below, n_classes, codes = (
            edges.key_views,
            edges.below_views,
            edges.n_classes,
            edges.classes,
        )
        start, stop, end = arrays.views.token_start, arrays.views.own_stop, arrays.views.end
        ids, partials = arrays.views.token_ids, arrays.partials
        _, *standing = [part.tolist() for part in passages.standing(quoting.read)]
        stack = [(place, *one) for one in zip(*standing, strict=True) for place in places]
        found: list[int] = []
        quotes: dict[int, None] = {}
        cut: dict[int, int] = {}
        while stack:
            node, at, first, last = stack.pop()
            found += ids[start[node] : stop[node]]
            if at >= first and passages.is_end[at]:
                quote = arrays.quote_below(node)
                if quote >= 0:
                    quotes[quote] = None
            if at < last:
                if node in partials:
                    cut[node] = cut.get(node, 0) | quoting.masks[codes[at]]
                if end[node] - node > 1:
                    key = node * n_classes + codes[at]
                    i = bisect_left(keys, key, 0, len(below))
                    while keys[i] == key:
                        stack.append((below[i], at + 1, first, last))
                        i += 1
        out.ids.append(np.array(found + self._cut(cut), np.int32))
        if quotes:
            out.single[0] = list(quotes)

    def _edges_below(self, quoting: Quoting) -> _Edges:
        passages, arrays = quoting.passages, self.arrays
        known = vars(self).setdefault("_edges_of", {})
        found: _Edges | None = known.get(passages.digest)
        if found is None:
            n_classes = len(quoting.masks) + 1
            class_of = np.full(self.n_minterms + 1, n_classes - 1, np.int64)
            for number, mask in enumerate(quoting.masks):
                class_of[:-1][self.points.holds(mask)[:-1]] = number
            kinds = class_of[self.points.minterms[arrays.code]]
            nodes = np.flatnonzero(kinds < n_classes - 1)
            nodes = nodes[nodes > 0]
            keys = arrays.parent[nodes] * np.int64(n_classes) + kinds[nodes]
            order = keys.argsort(kind="stable")
            keys, below = np.append(keys[order], 1 << 62), nodes[order].astype(np.int32)
            is_one = bool((keys[1:] != keys[:-1]).all())
            views = view(keys), view(below), view(passages.codes)
            found = known[passages.digest] = _Edges(keys, below, n_classes, is_one, *views)
            self.characters.charge(keys.nbytes + below.nbytes + 1000)
        return found

    def quote_ends(self, quoting: Quoting, place: int) -> list[tuple[int, Int32]]:
        """Return the tokens below ``place`` that are part of a quote, by a state with the same way
        to an end as after them.

        If some token ends inside the next character, that is the state itself.
        """
        arrays, passages = self.arrays, quoting.passages
        known, kept = self._ends_of
        if known == (quoting.read, place, passages.digest):
            return kept
        spelt = quoting.spelt(arrays.encoding(self.symbols.alphabet))
        upto = passages.upto([len(text or b"") for text in spelt])
        holds = arrays.holds_partials | (arrays.own_stop > arrays.token_start)
        found: dict[tuple[int, bytes], tuple[int, list[Int32]]] = {}
        for count, level in enumerate(self._levels(quoting, [place])):
            here = np.flatnonzero(holds[level.nodes])
            nodes, places = level.nodes[here], level.at[here]
            end = passages.next_end(places, level.first[here])
            order = np.lexsort((places, upto[end] - upto[places], nodes))
            order = order[starts_of(nodes[order])]
            nearest = (nodes[order], places[order], end[order])
            for node, at, to in zip(*[part.tolist() for part in nearest], strict=True):
                ids = arrays.token_ids[arrays.token_start[node] : arrays.own_stop[node]]
                is_cut = bool(arrays.holds_partials[node])
                key = node if is_cut else -1, passages.codes[at:to].tobytes()
                if key not in found:
                    read = passages.after(quoting.read, passages.codes[at - count : at].tolist())
                    assert read is not None
                    found[key] = quoting.state_of(read), []
                found[key][1].append(ids)
        ends = [(state, np.concatenate(ids)) for state, ids in found.values()]
        self._ends_of = (quoting.read, place, passages.digest), ends
        return ends
