"""Walks of text: one leaf of characters, from any state, through the tokens below any node.

A text's automaton mostly stays where it is: it reads many characters of one set, perhaps counting
them (`RegexAutomaton.run`). `TextWalks` takes such a run in one comparison over all tokens (see
`characters`), and looks only at the places where a run can be left: a closing quote, a character
cut by the token's end, a character outside the set that leads somewhere. Those places are grouped
by the state they lead to and walked on together. Small subtrees are walked one by one.

It knows leaves of text and the vocabulary's characters; what follows a text is `masks`' business.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from .atom_table import AtomTable
from .automaton.contents import Contents
from .automaton.counters import Far
from .automaton.symbols import Names, SymbolAutomaton
from .character_runs import Run
from .characters import Characters, Depths, LongEdge, Whole
from .grouping import distinct, ranges, starts_of
from .lone_runs import LoneRun
from .recent import Recent
from .trie import view

Int32: TypeAlias = npt.NDArray[np.int32]
Places: TypeAlias = npt.NDArray[np.int32]

_DEAD = -(1 << 30)
_NARROW = 12
"""Characters that a state may read and still be walked character by character."""

_FEW = 4
"""Characters of which each is looked for by itself, in large subtrees too."""

_FEW_CHARACTERS = b"few"

_ROOT_ALONE = [0]

ANEW = -(1 << 40)
"""Less a place, it stands in `TextWalk.runs` for those of a walk from there, to be made again."""

_SMALL = 64
"""Nodes, with all below them, that are still walked one by one."""

_DEEP = 5
"""Levels after which there is little left but chains,"""

_CHAINS = 400
_FEW_CHAINS = 16
"""so that this many nodes are walked one by one, if they are in few chains."""

_LARGE = 2000
"""Nodes, with all below them, from which runs are taken as a whole,"""

_RUN = 300
"""and from which those are that have few phases."""

_PATIENCE = 400
"""Places that are gone into one by one before the rest of them is taken together."""


Counts: TypeAlias = "tuple[Depths, int, Int32 | None]"


_Phase: TypeAlias = "tuple[int, int, bool, int]"
"""From how many characters of a run on, the state there, whether the text may end, and the atoms
that may be read."""


class TextWalk(NamedTuple):
    """What a text does from one place.

    Attributes:
        counts: for a run from the root, its slice's counts, the largest that is inside, and further
            tokens: an array that is the same each time, or None.
        ids: tokens that end inside the text (those of the run from the root apart).
        quotes: label → bool ``[len(Characters.quotes)]``, the closing quotes reached.
        single: label → further closing quotes, one by one.
        runs: states in which those tokens end, each with the length of the run it starts; or with
            ``-1 - place``, for those that `TextWalks.special_states` finds; or with
            ``ANEW - place``, for those of `TextWalks.runs_anew`.
        row: further tokens that end inside the text, as bits, for a walk from the root.
    """

    counts: Counts | None
    ids: list[Int32]
    quotes: dict[int, npt.NDArray[np.bool_]]
    single: dict[int, list[int]]
    runs: set[tuple[int, int]]
    row: npt.NDArray[np.uint32] | None = None


class FreeWalk(NamedTuple):
    """What a text that may be anything does, but for what it is called once it ends.

    Attributes:
        whole: what every text does.
        usual: the label of all texts but a few.
        special: quotes after which the text has another label, ascending;
        single: label → those of them after which it has that label.
        runs: as in `TextWalk`.
    """

    whole: Whole
    usual: int
    special: tuple[int, ...]
    single: dict[int, list[int]]
    runs: set[tuple[int, int]]


class TextWalks:
    """Walks of one symbol automaton under one encoding.

    Args:
        characters: the vocabulary.
        symbols: the automaton.
    """

    def __init__(self, characters: Characters, symbols: SymbolAutomaton) -> None:
        self.characters = characters
        self._symbols = symbols
        self._n_atoms = symbols.alphabet.n_atoms
        self._points = characters.points_of(symbols.alphabet)
        self._narrows: dict[int, tuple[tuple[int, bytes, int], ...] | None] = {}
        self._tables: dict[int, npt.NDArray[np.int64]] = {}
        self._far: Far | None = None
        self._nearer: list[Far] = []
        self._own: Recent[Any, TextWalk] | None = None
        self._contents: Contents | None = None
        self._runs_anew: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._unnamed: Recent[tuple[int, ...], TextWalk] | None = None
        self._known_phases: dict[int, tuple[_Phase, ...] | None] = {}
        self._root_edges: dict[int, tuple[Places, Int32, Depths]] = {}
        self._lone_keys: dict[int, bytes] = {}

    @functools.cached_property
    def _rows(self) -> AtomTable:
        return AtomTable(self._symbols, self.characters.charge)

    # -- what is asked ----------------------------------------------------------------------

    def is_wide(self, state: int) -> bool:
        """Whether ``state`` may read so many characters that this kind of walk pays."""
        return self._narrow(state) is None

    def alike(self, state: int) -> int:
        """A state from which every token is taken that is from ``state``, and no other; after any
        of them, what is still to come can be as short. Many states share one."""
        found = self._symbols.expression(state)
        if found is None:
            return state
        expression, at = found
        if expression is self._symbols and (lone := self.lone_run(at)) is not None:
            run, _, most = lone
            return expression.without_most(at) if most > run.longest else state
        if self._far is None:
            # One more for a character that is cut.
            self._far = Far(expression, self.characters.longest + 1, self._points.most_in_order)
        to = self._far.alike(at)
        return state if to == at else self._symbols.in_expression(to)

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
            weights = (w for atom, w in enumerate(points.weights) if chars >> atom & 1)
            alive = points.tails_of(chars)
            key = b"" if alive is None else alive.tobytes()
            key = self._lone_keys[chars] = _FEW_CHARACTERS if sum(weights) <= _FEW else key
            self.characters.charge(len(key) + 100)
        if key is _FEW_CHARACTERS:
            return None
        cut = points.slice(chars)
        run = cut.lone.get(key)
        if run is None:
            run = cut.lone[key] = LoneRun(self.characters, cut, points.tails_of(chars))
            self.characters.charge(run.n_bytes)
        return run, least, most

    def content(self, state: int) -> bytes | None:
        """What is the same for equal expressions, whose walks are the same but for the names of
        states; None where that is not known."""
        found = self._symbols.expression(state)
        if found is None or found[0] is not self._symbols:
            return None  # what it ends with is another's
        if self._contents is None:
            self._contents = Contents(found[0])
        return self._contents.of(state)

    def runs_anew(self, state: int, place: int) -> list[tuple[int, int]]:
        """`TextWalk.runs` of a walk from ``place``, without the help of walks that were kept."""
        found = self._runs_anew.get((state, place))
        if found is None:
            walk = self._walk(state, [place])
            found = self._runs_anew[state, place] = list(walk.runs)
            self.characters.charge(100 * len(found) + 100)
        return found

    def walk(self, state: int, places: list[int]) -> TextWalk:
        """Walk from ``state`` at each of ``places``, ascending character nodes none of which is
        below another. Cost: tens of microseconds, and two milliseconds for each new set of
        characters.
        """
        out = TextWalk(None, [], {}, {}, set())
        names = self._symbols.names(state)
        if names is not None and self.characters.is_canonical:
            for place in places:
                out.runs.add((state, -1 - place))
                self._names(names, place, out)
            return out
        unnamed = self._symbols.unnamed(state)
        if unnamed is not None:
            return self._but_for_names(state, unnamed, places)
        is_open = self._symbols.is_open(state)
        if not is_open and places == _ROOT_ALONE and self._narrow(state) is None:
            near, level = self._near(state)
            if near != state:
                return self._near_and_long(state, near, level)
            if not self._is_one_run(state):
                return self._copy(self._kept(state))
        return self._walk(state, places)

    def _copy(self, walk: TextWalk) -> TextWalk:
        quotes = {label: mask.copy() for label, mask in walk.quotes.items()}
        return TextWalk(None, [], quotes, {}, {*walk.runs}, walk.row)

    def _walk(self, state: int, places: list[int]) -> TextWalk:
        """Runs first, what is left of them together."""
        out = TextWalk(None, [], {}, {}, set())
        counts: Counts | None = None
        groups = [(state, np.array(places, np.int32))]
        few: list[tuple[int, int]] = []
        small: list[tuple[int, Places]] = []
        while groups or few:
            if not groups:
                groups, left = self._one_by_one(few, out, set_aside=True)
                few = []
                small += left
                continue
            at, where = groups.pop()
            if self._symbols.is_open(at):
                counts = self._whole(at, where, out) or counts
                continue
            size = self._size(where)
            if size <= _SMALL or (self._is_few(at) and len(where) <= _SMALL):
                few += [(at, place) for place in where.tolist()]
            elif not self._is_run(at, size) and (size <= _LARGE or self._narrow(at) is not None):
                small.append((at, where))
            elif self._symbols.run(at)[0]:
                found, more = self._run(at, where, out)
                counts = found or counts
                groups += more
            else:
                groups += self._one_step(at, where, out)
        if small:
            self._together(small, out)
        return out._replace(counts=counts)

    # -- near and long ------------------------------------------------------------------------

    def _near(self, state: int) -> tuple[int, int]:
        """As `alike`, for tokens of at most so many characters, one of `Characters.levels`;
        ``state`` itself where that would not help."""
        found = self._symbols.expression(state)
        levels, longest = self.characters.levels, self.characters.longest
        if found is None or levels[0] >= longest:
            return state, longest
        expression, at = found
        if not expression.has_expressions or self._is_one_run(state):
            return state, longest
        if not self._nearer:
            most_of = self._points.most_in_order
            self._nearer = [Far(expression, level + 1, most_of) for level in levels]
        near = self._nearer[0].alike(at)
        to = self._symbols.in_expression(near)
        if to in (state, self.alike(state)):
            return state, longest
        for level, far in zip(levels[:0:-1], self._nearer[:0:-1], strict=True):
            if level < longest and far.alike(at) == near:
                return to, level
        return to, levels[0]

    def _is_one_run(self, state: int) -> bool:
        """Whether nothing may be read but one run, as far as is plain to see."""
        chars, most = self._symbols.run(state)
        phases = self._phases(state)
        if phases is None:
            return most >= 0 and not self._live(state) & ~chars
        return bool(chars) and not any(live & ~chars for _, _, _, live in phases)

    def _phases(self, state: int) -> tuple[_Phase, ...] | None:
        """The states in which the run of ``state`` can be left, each from some count on; None where
        there may be many."""
        found = self._known_phases.get(state, False)
        if found is not False:
            return found  # type: ignore[return-value]
        symbols = self._symbols
        counts: Sequence[int] | None = symbols.phases(state)
        if counts is None and symbols.run(state)[1] < 0 and symbols.settled(state) <= _FEW:
            counts = range(symbols.settled(state) + 1)
        phases = None
        if counts is not None:
            longest = self.characters.longest
            states = [(n, symbols.after_run(state, n)) for n in counts if n <= longest]
            phases = tuple([(n, at, symbols.label(at) >= 0, self._live(at)) for n, at in states])
        self._known_phases[state] = phases
        self.characters.charge(200)
        return phases

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
        self._long_ones(state, level, out)
        return out

    def _kept(self, state: int) -> TextWalk:
        """`_walk` from the root, in a compact form, remembered for all expressions that are like
        that of ``state``. What it holds must not be changed.

        The runs of a walk that another automaton has made are `ANEW`.
        """
        content = self.content(state)
        if content is None:
            if self._own is None:
                self._own = self.characters.cache()
            kept: Recent[Any, TextWalk] = self._own
        else:
            kept = self.characters.texts
        key = state if content is None else content
        found = kept[key]
        if found is not None:
            return found if content is None else found._replace(runs={(state, ANEW)})
        found = self._compact(self._walk(state, [0]))
        kept[key] = found if content is None else found._replace(runs=set())
        n_bytes = 4 * self.characters.size // 32 + len(self.characters.quotes) * len(found.quotes)
        self.characters.charge(n_bytes + (100 * len(found.runs) if content is None else 0) + 1000)
        return found

    def _compact(self, walk: TextWalk) -> TextWalk:
        """``walk`` with its tokens as bits and its quotes as masks."""
        flags = np.zeros((self.characters.size + 31) // 32 * 32, bool)
        if walk.counts is not None:
            depths, most, partials = walk.counts
            np.less_equal(depths, most, out=flags[: len(depths)])
            if partials is not None:
                flags[partials] = True
        for ids in walk.ids:
            flags[ids] = True
        for label, single in walk.single.items():
            self._quoted(walk, label)[single] = True
        row = np.packbits(flags, bitorder="little").view("<u4")
        return TextWalk(None, [], walk.quotes, {}, walk.runs, row)

    def _long_ones(self, state: int, level: int, out: TextWalk) -> None:
        """The tokens and quotes beyond ``level`` characters.

        Most of them stay in one run, if not in the first character's then in the next one's. States
        are made where a run is left.
        """
        below, spelt, lengths, masks, first = self._points.long(level)
        edges, symbols = self.characters.long(level), self._symbols
        longest = self.characters.longest
        found: list[int] = []
        runs: dict[int, int] = {}
        stack: list[tuple[int, int, int]] = []
        for atom, ways in first.items():
            start, count = self._after_one(state, 0, atom)
            if start == _DEAD:
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
            for atom, times in spelt[i]:
                while times:
                    chars, most = symbols.run(start)
                    if chars >> atom & 1 and count != most:
                        few = times if most < 0 else min(times, most - count)
                        count += few
                        times -= few
                        continue
                    start, count = self._after_one(start, count, atom)
                    times -= 1
                    if start == _DEAD:
                        break
                if start == _DEAD:
                    break
            else:
                if self._long_ends(start, count, edges[i], found, out):
                    runs[start] = max(count, runs.get(start, 0))
                stack += [(start, count, longer) for longer in below[i]]
        out.runs.update(runs.items())
        if found:
            out.ids.append(np.array(found, np.int32))

    def _after_one(self, start: int, count: int, atom: int) -> tuple[int, int]:
        """One more character after ``count`` of the run of ``start``; `_DEAD` for none."""
        chars, most = self._symbols.run(start)
        if chars >> atom & 1 and count != most:
            return start, count + 1
        return int(self._table(self._symbols.after_run(start, count))[atom]), 0

    def _long_ends(
        self, start: int, count: int, edge: LongEdge, found: list[int], out: TextWalk
    ) -> bool:
        """What ends at the end of ``edge``, after ``count`` characters of a run; whether that
        are tokens."""
        before = len(found)
        found += edge.tokens
        if edge.partials:
            tails = self._points.tails_of(self._live(self._symbols.after_run(start, count)))
            if tails is not None:
                found += [token for token, tail in edge.partials if tails[tail]]
        if edge.quote >= 0:
            label = self._symbols.label(self._symbols.after_run(start, count))
            if label >= 0:
                out.single.setdefault(label, []).append(edge.quote)
        return len(found) > before

    def special_states(self, state: int, place: int) -> list[int]:
        """The states on the way to the special texts of ``state`` that the tokens below ``place``
        reach."""
        found: dict[int, None] = {}
        stack = [(state, place)]
        while stack:
            at, here = stack.pop()
            found[at] = None
            for point, to in self._symbols.special(at):
                spelt = self.characters.plain(point)
                stack += [(to, x) for x in self.characters.spelt_below(here, point, spelt)]
        return list(found)

    def _size(self, places: Places) -> int:
        if len(places) == 1:
            place = int(places[0])
            return self.characters.views.end[place] - place
        return int(np.sum(self.characters.end[places] - places))

    def _whole(self, state: int, places: Places, out: TextWalk) -> Counts | None:
        """Every text may be read: all that matters is where it is closed."""
        characters = self.characters
        whole = characters.whole(places)
        if whole.counts is None:
            out.ids.append(whole.ids)
        out.runs.add((state, 0))
        for place in places.tolist():
            self._quotes_one_by_one(state, place, out)
        return None if whole.counts is None else (whole.counts, characters.longest, whole.ids)

    def _but_for_names(self, state: int, unnamed: int, places: list[int]) -> TextWalk:
        """Every text may be read, and ``unnamed`` says what it is called once it is closed, unless
        it is one of the special texts of ``state``."""
        characters, symbols = self.characters, self._symbols
        if self._unnamed is None:
            self._unnamed = characters.cache()
        key = (unnamed, *places)
        walk = self._unnamed.get(key)
        if walk is None:
            walk = TextWalk(None, [], {}, {}, set())
            counts = self._whole(unnamed, np.array(places, np.int32), walk)
            for label, found in walk.single.items():
                self._quoted(walk, label)[found] = True
            walk = self._unnamed[key] = TextWalk(counts, walk.ids, walk.quotes, {}, set())
            n_quotes = sum(mask.nbytes for mask in walk.quotes.values())
            characters.charge(n_quotes + sum(ids.nbytes for ids in walk.ids) + 500)
        quotes = {label: mask.copy() for label, mask in walk.quotes.items()}
        single: dict[int, list[int]] = {}
        known = symbols.special_texts(state)
        for place in places if known else ():
            texts = characters.quote_texts(place)
            for text, number in known.items():
                which = texts.get(text)
                if which is not None:
                    for mask in quotes.values():
                        mask[list(which)] = False
                    label = symbols.special_label(state, number)
                    if label >= 0:
                        single.setdefault(label, []).extend(which)
        runs = {(state, ANEW - place) for place in places}
        return TextWalk(walk.counts, [*walk.ids], quotes, single, runs)

    def free_walk(self, state: int, places: list[int]) -> FreeWalk | None:
        """As `walk`, where every text may be read and all but a few have the same label."""
        symbols, characters = self._symbols, self.characters
        free = symbols.free(state)
        if free is None:
            return None
        usual = symbols.label(free)
        whole = characters.whole(np.array(places, np.int32))
        runs = {(free, characters.longest)}
        special: list[int] = []
        single: dict[int, list[int]] = {}
        known = symbols.special_texts(state)
        for place in places:
            if known:
                runs.add((state, -1 - place))
            texts = characters.quote_texts(place)
            few, many = (texts, known) if len(texts) < len(known) else (known, texts)
            for text in few:
                if text in many:
                    label = symbols.special_label(state, known[text])
                    special += texts[text]
                    if label >= 0:
                        single.setdefault(label, []).extend(texts[text])
        return FreeWalk(whole, usual, (*sorted(special),), single, runs)

    # -- one by one -------------------------------------------------------------------------

    def _names(self, names: Names, place: int, out: TextWalk) -> None:
        """Nothing but some names may be read, each of which has one spelling."""
        characters = self.characters
        edges, ends, below, start, allowed = names
        # The masks of a large set are large: none is made where no name below is barred.
        is_whole = allowed == below[start]
        child, token_ids = characters.trie.child, characters.views.token_ids
        place_of, first, stop = characters.views.place, *characters.views[3:5]
        found: list[int] = []
        stack = [(start, characters.views.node[place])]
        while stack:
            name, node = stack.pop()
            here = place_of[node]
            a, b = first[here], stop[here]
            if a != b:
                found += token_ids[a:b]
            end = ends[name]
            if end >= 0 and allowed >> end & 1:
                quote = characters.quote_below(here)
                if quote >= 0:
                    out.single.setdefault(end, []).append(quote)
            for byte, longer in edges[name]:
                to = child.get(node << 8 | byte)
                if to is not None and (is_whole or allowed & below[longer]):
                    stack.append((longer, to))
        if found:
            out.ids.append(np.array(found, np.int32))

    def _one_by_one(
        self, pairs: list[tuple[int, int]], out: TextWalk, set_aside: bool = False
    ) -> tuple[list[tuple[int, Places]], list[tuple[int, Places]]]:
        """Walk from some states, each at one place, character by character.

        Args:
            pairs: states and places.
            out: what is found is added.
            set_aside: whether not to go into large subtrees but where few characters may be read,
                and to stop after `_PATIENCE` places.

        Returns:
            Places that were not gone into by state, ascending, none below another; and where it
            was not gone on.
        """
        characters, is_open = self.characters, self._symbols.is_open
        end, code = characters.views.end, characters.views.code
        start, stop = characters.views.own_start, characters.views.own_stop
        all_partials = characters.partials
        quote, atom_of, ids = (
            len(characters.points),
            self._points.atom_of,
            characters.views.token_ids,
        )
        found: list[int] = []
        aside: dict[int, list[int]] = {}
        stack = pairs
        patience = _PATIENCE
        met: set[int] = set()
        # By state: where few characters lead; or the next states by atom.
        known: dict[int, tuple[tuple[tuple[int, bytes, int], ...] | None, Sequence[int]]] = {}
        while stack:
            at, here = stack.pop()
            child, beyond = here + 1, end[here]
            if set_aside:
                patience -= 1
                if not patience:
                    stack.append((at, here))
                    break
                if beyond - here > _SMALL and (is_open(at) or not self._is_few(at)):
                    aside.setdefault(at, []).append(here)
                    continue
            met.add(at)
            first, last = start[here], stop[here]
            if first != last:
                found += ids[first:last]
            partials = all_partials.get(here)
            if partials:
                tails = self._points.tails_of(self._live(at))
                if tails is not None:
                    alive = memoryview(tails)  # type: ignore[arg-type]
                    found += [token for token, tail in partials if alive[tail]]
            if child == beyond:
                continue  # where the state leads need not be known
            moves = known.get(at)
            if moves is None:
                narrow = self._narrow(at)
                table = () if narrow is not None else view(self._table(at))
                moves = known[at] = narrow, table
            narrow, table = moves
            if narrow is not None:
                which = characters.quote_below(here)
                if which >= 0:
                    label = self._symbols.label(at)
                    if label >= 0:
                        out.single.setdefault(label, []).append(which)
                for point, spelt, to in narrow:
                    stack += [(to, x) for x in characters.spelt_below(here, point, spelt)]
                continue
            while child < beyond:
                symbol = code[child]
                if symbol == quote:
                    label = self._symbols.label(at)
                    if label >= 0:
                        out.single.setdefault(label, []).append(characters.quote_index[child])
                else:
                    to = table[atom_of[symbol]]
                    if to != _DEAD:
                        stack.append((to, child))
                child = end[child]
        out.runs.update([(at, 0) for at in met])
        if found:
            out.ids.append(np.array(found, np.int32))
        groups = [
            (at, np.array(together, np.int32))
            for at, places in aside.items()
            for together in apart(characters, places)
        ]
        return groups, [(at, np.array([here], np.int32)) for at, here in stack]

    def _is_few(self, state: int) -> bool:
        """Whether so few characters may be read that the way they lead is gone one by one."""
        narrow = self._narrow(state)
        return narrow is not None and len(narrow) <= _FEW

    def _is_run(self, state: int, size: int) -> bool:
        """Whether to take the run of ``state`` at once, in subtrees of so many nodes."""
        return (
            size > _RUN
            and self._symbols.run(state)[1] not in (0, 1)
            and self._symbols.phases(state) is not None
        )

    # -- together ---------------------------------------------------------------------------

    def _together(self, groups: list[tuple[int, Places]], out: TextWalk) -> None:
        """Walk from many places in many states at once, level by level."""
        characters, table, atoms = self.characters, self._rows, self._points.atoms
        nodes = np.concatenate([places for _, places in groups])
        lengths = [len(places) for _, places in groups]
        at = np.repeat([table.number(state) for state, _ in groups], lengths).astype(np.int32)
        seen: list[tuple[Places, Int32]] = []
        while len(nodes):
            sizes = characters.end[nodes] - nodes
            # Deep down there are a few long chains, which would take as many levels.
            is_deep = len(seen) >= _DEEP and len(nodes) <= _FEW_CHAINS
            if int(sizes.sum()) <= (_CHAINS if is_deep else _SMALL):
                states = [table.states[number] for number in at.tolist()]
                self._one_by_one(list(zip(states, nodes.tolist(), strict=True)), out)
                break
            seen.append((nodes, at))
            # Where no token goes on, where the state leads need not be known.
            inner = sizes > 1
            nodes, at = nodes[inner], at[inner]
            table.cover(at)
            going_on = table.goes_on[at]
            children, counts = characters.children_of(nodes[going_on])
            to = table.rows[np.repeat(at[going_on], counts), atoms[characters.code[children]]]
            alive = to >= 0
            nodes, at = children[alive], to[alive]
        if seen:
            self._visited(
                np.concatenate([nodes for nodes, _ in seen]),
                np.concatenate([at for _, at in seen]),
                out,
            )

    def _visited(self, nodes: Places, at: Int32, out: TextWalk) -> None:
        """What ends at some nodes, each read in a state of `_rows`."""
        characters, states = self.characters, self._rows.states
        first, last = characters.own_start[nodes], characters.own_stop[nodes]
        out.ids.append(characters.token_ids[ranges(first, last)])
        out.runs.update((states[number], 0) for number in distinct(at[first != last]).tolist())
        quotes = characters.quote_under[nodes]
        chosen = (quotes >= 0).nonzero()[0]
        for number, quote in zip(at[chosen].tolist(), quotes[chosen].tolist(), strict=True):
            label = self._symbols.label(states[number])
            if label >= 0:
                out.single.setdefault(label, []).append(quote)
        chosen = characters.holds_partials[nodes].nonzero()[0]
        found: list[int] = []
        for number, place in zip(at[chosen].tolist(), nodes[chosen].tolist(), strict=True):
            tails = self._points.tails_of(self._live(states[number]))
            if tails is not None:
                found += [token for token, tail in characters.partials[place] if tails[tail]]
                out.runs.add((states[number], 0))
        if found:
            out.ids.append(np.array(found, np.int32))

    def _one_step(self, state: int, places: Places, out: TextWalk) -> list[tuple[int, Places]]:
        """What ends at ``places``, and where one more character leads, by state."""
        number = self._rows.number(state)
        self._visited(places, np.full(len(places), number, np.int32), out)
        children, _ = self.characters.children_of(places)
        atoms = self._points.atoms[self.characters.code[children]]
        return _grouped(self._table(state)[atoms], children)

    def _run(
        self, state: int, places: Places, out: TextWalk
    ) -> tuple[Counts | None, list[tuple[int, Places]]]:
        """The run of ``state``, and where it is left, by state."""
        characters, symbols = self.characters, self._symbols
        chars, most = symbols.run(state)
        is_endless = most < 0
        most = characters.longest if is_endless else min(most, characters.longest)
        out.runs.add((state, most))
        if len(places) > 1 or places[0]:
            run = characters.run(self._points.inside(chars), places)
            out.ids.append(run.tokens(most))
            self._leave(state, run, most, out)
            return None, self._edges(state, chars, run, most)
        cut = self._points.slice(chars)
        partials: Int32 | None = None
        stays = is_endless and not symbols.settled(state)
        if stays:
            alive = self._points.tails_of(self._live(state))
            if alive is not None:
                partials = characters.partials_inside(cut, alive)
        self._leave(state, cut.run, most, out, with_partials=not stays)
        return (cut.counts, most, partials), self._edges(state, chars, cut.run, most)

    def _leave(
        self, state: int, run: Run, most: int, out: TextWalk, with_partials: bool = True
    ) -> None:
        """Closing quotes, and tokens that end inside a character, after the run of ``state``."""
        characters, symbols, phases = self.characters, self._symbols, self._phases(state)
        if phases is None or any(is_end for _, _, is_end, _ in phases):
            chosen, steps = _up_to(run.quotes(), most)
            for at, which in self._by_count(state, steps):
                label = symbols.label(at)
                if label >= 0:
                    self._quoted(out, label)[chosen[which]] = True
        cut = self._points.cut
        if not with_partials or (
            phases is not None and not any(live & cut for _, _, _, live in phases)
        ):
            return
        chosen, steps = _up_to(run.partials(), most)
        if len(chosen):
            tails = characters.partial_tail[chosen]
            keep = np.zeros(len(chosen), bool)
            for at, which in self._by_count(state, steps):
                alive = self._points.tails_of(self._live(at))
                if alive is not None:
                    keep[which] = alive[tails[which]]
            out.ids.append(characters.partial[chosen[keep]])

    def _left(self, chars: int, run: Run) -> tuple[Places, Int32, Depths]:
        """Where characters of texts lie outside a run, their atoms, and characters before them."""
        found = self._root_edges.get(chars) if run.is_root else None
        if found is None:
            characters = self.characters
            edges = run.left
            atoms = self._points.atoms[characters.code[edges]]
            text = atoms < self._n_atoms
            edges, atoms = edges[text], atoms[text]
            found = edges, atoms, run.steps_to(edges) - np.asarray(1, characters.depth.dtype)
            if run.is_root:
                self._root_edges[chars] = found
                characters.charge(sum(array.nbytes for array in found) + 200)
        return found

    def _edges(self, state: int, chars: int, run: Run, most: int) -> list[tuple[int, Places]]:
        """Where characters outside the run lead, and those after the whole of it, by state."""
        characters, symbols = self.characters, self._symbols
        phases = self._phases(state)
        if phases is not None:
            leaving = [phase for phase in phases if phase[3] & ~chars]
            return self._edges_by_phase(phases, leaving, chars, run, most) if leaving else []
        edges, atoms, steps = self._left(chars, run)
        is_endless = symbols.run(state)[1] < 0
        if most < characters.longest:
            short = steps <= most
            edges, atoms, steps = edges[short], atoms[short], steps[short]
            # Where one part of an expression has ended its count, others may go on.
            if not is_endless and self._live(symbols.after_run(state, most)) & chars:
                more = run.nodes_after(most + 1)
                edges = np.concatenate((edges, more)).astype(np.int32)
                steps = np.concatenate((steps, np.full(len(more), most, steps.dtype)))
                order = np.argsort(edges)
                edges, steps = edges[order], steps[order]
                atoms = self._points.atoms[characters.code[edges]]
        if not len(edges):
            return []
        targets = np.full(len(edges), _DEAD, np.int64)
        last = symbols.after_run(state, most)
        for at, which in self._by_count(state, steps):
            if at == last or self._live(at) & ~chars:
                targets[which] = self._table(at)[atoms[which]]
        return _grouped(targets, edges)

    def _edges_by_phase(
        self,
        phases: tuple[_Phase, ...],
        leaving: list[_Phase],
        chars: int,
        run: Run,
        most: int,
    ) -> list[tuple[int, Places]]:
        """`_edges` where the run can be left in a few states, and nothing else goes on with it."""
        edges, atoms, steps = self._left(chars, run)
        wanted = 0
        for _, _, _, live in leaving:
            wanted |= live & ~chars
        chosen = self._points.holds(wanted)[atoms].nonzero()[0]
        if not len(chosen):
            return []
        edges, atoms, steps = edges[chosen], atoms[chosen], steps[chosen]
        targets = np.full(len(edges), _DEAD, np.int64)
        for phase in leaving:
            count, at, _, _ = phase
            later = phases[phases.index(phase) + 1 :]
            last = min(most, later[0][0] - 1) if later else most
            which = (steps >= count) & (steps <= last)
            targets[which] = self._table(at)[atoms[which]]
        return _grouped(targets, edges)

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
            settled = min(symbols.settled(state), self.characters.longest)
            steps = np.minimum(steps, np.asarray(settled, steps.dtype))
        order = np.argsort(steps, kind="stable")
        ordered = steps[order]
        first = starts_of(ordered)
        bounds = pairwise([*first.tolist(), len(order)])
        return [
            (symbols.after_run(state, count), order[a:b])
            for count, (a, b) in zip(ordered[first].tolist(), bounds, strict=True)
        ]

    def _quotes_one_by_one(self, state: int, place: int, out: TextWalk) -> None:
        """The closing quotes below ``place``, on all paths of text that lead to one."""
        characters, symbols = self.characters, self._symbols
        code, atom_of = characters.views.code, self._points.atom_of
        room = characters.text_before_quotes
        stack = [(state, place)]
        while stack:
            at, here = stack.pop()
            out.runs.add((at, 0))
            if symbols.at_least(at) > room.get(here, -1):
                continue
            quote = characters.quote_below(here)
            if quote >= 0:
                label = symbols.label(at)
                if label >= 0:
                    out.single.setdefault(label, []).append(quote)
            children = characters.towards_quotes.get(here)
            if children:
                table = self._table(at)
                for child in children:
                    to = int(table[atom_of[code[child]]])
                    if to != _DEAD:
                        stack.append((to, child))

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
            self.characters.charge(table.nbytes + 200)
        return table

    def _narrow(self, state: int) -> tuple[tuple[int, bytes, int], ...] | None:
        """Each character that ``state`` may read, its plain spelling, and where it leads.

        None where there are many.
        """
        found = self._narrows.get(state, False)
        if found is not False:
            return found  # type: ignore[return-value]
        weights = self._points.weights
        total = 0
        steps: list[tuple[int, int]] = []
        for mask, to in self._symbols.moves(state):
            while mask:
                bit = mask & -mask
                mask ^= bit
                atom = bit.bit_length() - 1
                total += weights[atom]
                if total > _NARROW:
                    self._narrows[state] = None
                    return None
                steps.append((atom, to))
        # Tuples of plain values: the garbage collector soon leaves them alone.
        narrow = tuple(
            (point, spelt, to)
            for atom, to in steps
            if weights[atom]
            for point, spelt in self._points.listed(atom)
        )
        self._narrows[state] = narrow
        self.characters.charge(100 * len(narrow) + 100)
        return narrow

    def _live(self, state: int) -> int:
        """All atoms that ``state`` may read."""
        live = 0
        for mask, _ in self._symbols.moves(state):
            live |= mask
        return live


def apart(characters: Characters, places: list[int]) -> list[list[int]]:
    """``places`` in ascending groups of which none lies below another of its group."""
    if len(places) == 1:
        return [places]
    places = sorted(set(places))
    end = characters.views.end
    if all(end[a] <= b for a, b in pairwise(places)):
        return [places]
    return [[place] for place in places]


def _up_to(
    reached: tuple[npt.NDArray[np.int64], Depths], most: int
) -> tuple[npt.NDArray[np.int64], Depths]:
    """What is reached within ``most`` characters."""
    chosen, steps = reached
    short = steps <= most
    return chosen[short], steps[short]


def _grouped(targets: npt.NDArray[np.int64], places: Places) -> list[tuple[int, Places]]:
    """``places``, ascending, by target, without the dead ones."""
    alive = targets != _DEAD
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
