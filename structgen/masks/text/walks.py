"""Walks of text: one leaf of characters, from any state, through the tokens below any node.

A text's automaton mostly stays where it is, and runs are taken as a whole (`runs`); where they
are left, what is left is walked on together, small subtrees one by one (`steps`). `TextWalks`
chooses among these, among texts that may be anything (`open_texts`) and states that tokens cannot
tell apart (`levels`), and keeps the walks from the root by the content of what is still to be
read. A walk goes through these in turns.

It knows leaves of text and the vocabulary's characters; what follows a text is `masks`' business.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from structgen.automaton.regex import StructuralHash, SymbolAutomaton
from structgen.automaton.work import WORK
from structgen.storage import GenerationalCache

from .character_arrays import Int32
from .characters import Characters
from .differences import TextDifferences
from .ends import ANEW, Counted, TextWalk
from .levels import TextLevels
from .lone_runs import LoneRun
from .open_texts import OpenTexts
from .runs import TextRuns
from .steps import SMALL, TextSteps
from .tables import TextTables

_ROOT_ALONE = [0]

_LARGE = 2000
"""Nodes, with all below them, from which runs are taken as a whole, whatever their phases."""


class TextWalks:
    """Walks of one symbol automaton under one encoding.

    Args:
        characters: the vocabulary.
        symbols: the automaton.

    Attributes:
        free_walk, special_states: see `OpenTexts`.
    """

    # Most texts are keys of one object, told by where they are closed: the rest is made when asked.

    _own: GenerationalCache[Any, TextWalk] | None = None
    _contents: StructuralHash | None = None

    def __init__(self, characters: Characters, symbols: SymbolAutomaton) -> None:
        self.characters = characters
        self._symbols = symbols
        self._tables = TextTables(characters, symbols)
        self._open = OpenTexts(self._tables)
        self.free_walk = self._open.free_walk
        self.special_states = self._open.special_states

    @cached_property
    def _runs(self) -> TextRuns:
        return TextRuns(self._tables)

    @cached_property
    def _levels(self) -> TextLevels:
        return TextLevels(self._tables, self._runs)

    @cached_property
    def _steps(self) -> TextSteps:
        return TextSteps(self._tables)

    @cached_property
    def _differences(self) -> TextDifferences:
        return TextDifferences(self._tables)

    @cached_property
    def _anew(self) -> dict[tuple[int, int], list[tuple[int, int]]]:
        return {}

    def lone_run(self, state: int) -> tuple[LoneRun, int, int] | None:
        """See `TextRuns.lone_run`."""
        return self._runs.lone_run(state)

    def alike(self, state: int) -> int:
        """See `TextLevels.alike`."""
        return self._levels.alike(state)

    def is_wide(self, state: int) -> bool:
        """Whether ``state`` may read so many characters that this kind of walk pays."""
        return self._tables.narrow(state) is None

    def content(self, state: int) -> bytes | None:
        """What is the same for equal expressions, whose walks are the same but for the names of
        states; None where that is not known."""
        found = self._symbols.expression(state)
        if found is None or found[0] is not self._symbols:
            return None  # what it ends with is another's
        if self._contents is None:
            self._contents = StructuralHash(found[0])
        return self._contents.of(state)

    def runs_anew(self, state: int, place: int) -> list[tuple[int, int]]:
        """`TextWalk.runs` of a walk from ``place``, without the help of walks that were kept."""
        found = self._anew.get((state, place))
        if found is None:
            walk = self._walk(state, [place])
            found = self._anew[state, place] = list(walk.runs)
            self.characters.charge(100 * len(found) + 100)
        return found

    def walk(self, state: int, places: list[int]) -> TextWalk:
        """Walk from ``state`` at each of ``places``, ascending character nodes none of which is
        below another. Cost: tens of microseconds, and two milliseconds for each new set of
        characters.
        """
        arrays = self.characters.arrays
        out = TextWalk(None, [], {}, {}, set())
        names = self._symbols.names(state)
        if names is not None and arrays.is_canonical:
            for place in places:
                out.runs.add((state, -1 - place))
                self._open.names(names, place, out)
            return out
        unnamed = self._symbols.unnamed(state)
        if unnamed is not None:
            return self._open.but_for_names(state, unnamed, places)
        if arrays.is_canonical:
            others = self._symbols.beside_names(state)
            if others is not None:
                return self._beside_names(state, others, places)
        is_open = self._symbols.is_open(state)
        if not is_open and places == _ROOT_ALONE and self._tables.narrow(state) is None:
            near, level = self._levels.near(state)
            if near != state:
                return self._near_and_long(state, near, level)
            if not self._runs.is_one_run(state):
                return self._copy(self._kept(state))
        return self._walk(state, places)

    def _beside_names(self, state: int, others: int, places: list[int]) -> TextWalk:
        """The walk of ``others``, which is kept, but for what lies on the way to a name: there each
        token and each quote is looked at by itself."""
        arrays = self.characters.arrays
        if places == _ROOT_ALONE:
            walk = self._copy(self._kept(others))
        else:
            walk = self._walk(others, places)
        gained: list[int] = []
        lost: list[int] = []
        views, symbols = arrays.views, self._symbols
        child, token_ids = arrays.trie.child, views.token_ids
        stack = [(state, views.node[place]) for place in places]
        while stack:
            at, node = stack.pop()
            WORK.spend(1)
            quote = arrays.quote_below(views.place[node])
            if quote >= 0:
                label = symbols.label(at)
                for mask in walk.quotes.values():
                    mask[quote] = False
                for single in walk.single.values():
                    if quote in single:
                        single.remove(quote)
                if label >= 0:
                    walk.single.setdefault(label, []).append(quote)
            for byte, to, leads_on in symbols.towards_names(at):
                longer = child.get(node << 8 | byte)
                if longer is None:
                    continue
                here = views.place[longer]
                ids = token_ids[views.own_start[here] : views.own_stop[here]]
                (gained if leads_on else lost).extend(ids)
                stack.append((to, longer))
        runs = {(state, ANEW - place) for place in places}
        row, ids_of_others = walk.row, walk.ids
        if row is not None:
            row = row.copy()
            for token in gained:
                row[token >> 5] |= np.uint32(1 << (token & 31))
            for token in lost:
                row[token >> 5] &= ~np.uint32(1 << (token & 31))
        else:
            on_the_way = np.array(gained + lost, np.int32)
            ids_of_others = [ids[np.isin(ids, on_the_way, invert=True)] for ids in walk.ids]
            ids_of_others.append(np.array(gained, np.int32))
        return TextWalk(walk.counted, ids_of_others, walk.quotes, walk.single, runs, row)

    def _copy(self, walk: TextWalk) -> TextWalk:
        quotes = {label: mask.copy() for label, mask in walk.quotes.items()}
        return TextWalk(None, [], quotes, {}, {*walk.runs}, walk.row)

    def _walk(self, state: int, places: list[int]) -> TextWalk:
        """Runs first, what is left of them together."""
        out = TextWalk(None, [], {}, {}, set())
        counted: Counted | None = None
        groups = [(state, np.array(places, np.int32))]
        few: list[tuple[int, int]] = []
        small: list[tuple[int, Int32]] = []
        while groups or few:
            if not groups:
                groups, left = self._steps.one_by_one(few, out, set_aside=True)
                few = []
                small += left
                continue
            at, where = groups.pop()
            WORK.spend(5)
            if self._symbols.is_open(at):
                counted = self._open.whole(at, where, out) or counted
                continue
            size = self._size(where)
            if size <= SMALL or (self._tables.is_few(at) and len(where) <= SMALL):
                few += [(at, place) for place in where.tolist()]
            elif not self._runs.is_run(at, size) and (
                size <= _LARGE or self._tables.narrow(at) is not None
            ):
                small.append((at, where))
            elif self._symbols.run(at)[0]:
                found, more = self._runs.run(at, where, out)
                counted = found or counted
                groups += more
            else:
                groups += self._steps.one_step(at, where, out)
        if small:
            self._steps.together(small, out)
        return out._replace(counted=counted)

    def _near_and_long(self, state: int, near: int, level: int) -> TextWalk:
        """A walk from the root in two: all but the longest tokens cannot tell ``near`` from
        ``state``, and the few longest are walked one by one."""
        whole = self._kept(near)
        tokens, quotes = self.characters.short(level)
        assert whole.row is not None
        out = TextWalk(
            None,
            [],
            {label: mask & quotes for label, mask in whole.quotes.items()},
            {},
            {(state, ANEW)} if (near, ANEW) in whole.runs else {*whole.runs},
            whole.row & tokens,
        )
        self._levels.long_ones(state, level, out)
        return out

    def _kept(self, state: int) -> TextWalk:
        """`_walk` from the root, in a compact form, remembered for all expressions that are like
        that of ``state``. What it holds must not be changed.

        The runs of a walk that another automaton has made are `ANEW`.
        """
        arrays = self.characters.arrays
        content = self.content(state)
        if content is None:
            if self._own is None:
                self._own = self.characters.cache()
            kept: GenerationalCache[Any, TextWalk] = self._own
        else:
            kept = self.characters.texts
        key = state if content is None else content
        found = kept[key]
        if found is not None:
            return found if content is None else found._replace(runs={(state, ANEW)})
        found = self._by_another(state)
        if found is None:
            found = self._compact(self._walk(state, [0]))
        kept[key] = found if content is None else found._replace(runs=set())
        n_bytes = 4 * arrays.size // 32 + len(arrays.quotes) * len(found.quotes)
        self.characters.charge(n_bytes + (100 * len(found.runs) if content is None else 0) + 1000)
        return found

    def _by_another(self, state: int) -> TextWalk | None:
        """`_kept` by the walk of a near state, where that is kept; else None."""
        near = self._differences.near(state)
        if near == state:
            return None
        content = self.content(near)
        if content is not None:
            whole = self.characters.texts[content]
        else:
            whole = None if self._own is None else self._own[near]
        return None if whole is None else self._differences.walk(state, near, whole)

    def _compact(self, walk: TextWalk) -> TextWalk:
        """``walk`` with its tokens as bits and its quotes as masks."""
        size = (self.characters.arrays.size + 31) // 32 * 32
        if walk.counted is None:
            flags = np.zeros(size, bool)
        else:
            tokens, most = walk.counted
            flags = tokens.flags(most, size)
        for ids in walk.ids:
            flags[ids] = True
        for label, single in walk.single.items():
            self._tables.quoted(walk, label)[single] = True
        row = np.packbits(flags, bitorder="little").view("<u4")
        return TextWalk(None, [], walk.quotes, {}, walk.runs, row)

    def _size(self, places: Int32) -> int:
        arrays = self.characters.arrays
        if len(places) == 1:
            place = int(places[0])
            return arrays.views.end[place] - place
        return int(np.sum(arrays.end[places] - places))
