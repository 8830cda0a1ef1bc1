"""Walk text: one leaf of characters, from any state, through the tokens below any node.

A text's automaton mostly stays in one state. So a run of characters is one step, and everything
after it is walked together, except for small subtrees. `TextWalks` chooses the way to walk, and
caches walks from the root by the content of the rest of the text:

- `TextRuns` handles a run in one comparison over all tokens (`CharacterRun`). It visits only nodes
  where the run can end: a closing quote, a character cut by the token's end, a character outside
  the set.
- `QuoteTexts` (`quote_texts`) walks pieces of a document by places, without states.
- `OpenTexts` walks states that can read every text, where only closing quotes matter; states in
  which a few texts have another label; and states that can read only a few names.

These classes inherit from each other, starting with `TextTables`, because they share tables.
`string_walks` knows what follows a text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from structgen.automaton.regex import GROUND, Names, StructuralHash, SymbolAutomaton, TokenHorizon
from structgen.automaton.work import WORK
from structgen.masks.grouping import ranges, starts_of
from structgen.storage import GenerationalCache, cached_method

from .character_arrays import CharacterRun, Depths, Int32
from .characters import Characters
from .quote_texts import QuoteTexts
from .tables import DEAD, FEW, FRESH, SMALL, Counted, FreeWalk, TextWalk, grouped


class OpenTexts(QuoteTexts):
    """Walks of one symbol automaton in which texts differ only by their ends."""

    _unnamed: GenerationalCache[tuple[int, ...], TextWalk] | None = None

    def whole(self, state: int, places: Int32, out: TextWalk) -> Counted | None:
        """Walk a state that can read every text: only the closing quotes matter."""
        characters = self.characters
        whole = characters.whole(places)
        if whole.counted is None:
            out.ids.append(whole.ids)
        out.runs.add((state, 0))
        for place in places.tolist():
            self._quotes_one_by_one(state, place, out)
        return None if whole.counted is None else (whole.counted, characters.arrays.longest)

    def but_for_names(self, state: int, unnamed: int, places: list[int]) -> TextWalk:
        """Walk a state that can read every text; ``unnamed`` is the label, except for the special
        texts of ``state``."""
        characters, symbols = self.characters, self.symbols
        if self._unnamed is None:
            self._unnamed = characters.cache()
        key = (unnamed, *places)
        walk = self._unnamed.get(key)
        if walk is None:
            walk = TextWalk(None, [], {}, {}, set())
            counted = self.whole(unnamed, np.array(places, np.int32), walk)
            for label, found in walk.single.items():
                self.quoted(walk, label)[found] = True
            walk = self._unnamed[key] = TextWalk(counted, walk.ids, walk.quotes, {}, set())
            n_quotes = sum(mask.nbytes for mask in walk.quotes.values())
            characters.charge(n_quotes + sum(ids.nbytes for ids in walk.ids) + 500)
        quotes = {label: mask.copy() for label, mask in walk.quotes.items()}
        single: dict[int, list[int]] = {}
        known = symbols.special_texts(state)
        for place in places if known else ():
            texts = characters.arrays.quote_texts(place)
            for text, number in known.items():
                which = texts.get(text)
                if which is not None:
                    for mask in quotes.values():
                        mask[list(which)] = False
                    label = symbols.special_label(state, number)
                    if label >= 0:
                        single.setdefault(label, []).extend(which)
        runs = {(state, FRESH - place) for place in places}
        return TextWalk(walk.counted, [*walk.ids], quotes, single, runs)

    def free_walk(self, state: int, places: list[int]) -> FreeWalk | None:
        """Like `walk`, if all texts are allowed and nearly all have the same label."""
        symbols, characters = self.symbols, self.characters
        free = symbols.free(state)
        if free is None:
            return None
        usual = symbols.label(free)
        whole = characters.whole(np.array(places, np.int32))
        runs = {(free, characters.arrays.longest)}
        special: list[int] = []
        single: dict[int, list[int]] = {}
        known = symbols.special_texts(state)
        for place in places:
            if known:
                runs.add((state, -1 - place))
            texts = characters.arrays.quote_texts(place)
            few, many = (texts, known) if len(texts) < len(known) else (known, texts)
            for text in few:
                if text in many:
                    label = symbols.special_label(state, known[text])
                    special += texts[text]
                    if label >= 0:
                        single.setdefault(label, []).extend(texts[text])
        return FreeWalk(whole, usual, (*sorted(special),), single, runs)

    def names(self, names: Names, place: int, out: TextWalk) -> None:
        """Walk a state that can read only names, each with a single form."""
        arrays = self.arrays
        edges, ends, below, start, allowed = names
        # The masks of a large set are large: none is made if no name below is barred.
        is_whole = allowed < 0 or allowed == below[start]
        child, token_ids = arrays.trie.child, arrays.views.token_ids
        place_of, first, stop = arrays.views.place, *arrays.views[3:5]
        found: list[int] = []
        stack = [(start, arrays.views.node[place])]
        while stack:
            name, node = stack.pop()
            here = place_of[node]
            a, b = first[here], stop[here]
            if a != b:
                found += token_ids[a:b]
            end = ends[name]
            if end >= 0 and allowed >> end & 1:
                quote = arrays.quote_below(here)
                if quote >= 0:
                    out.single.setdefault(end, []).append(quote)
            for byte, longer in edges[name]:
                to = child.get(node << 8 | byte)
                if to is not None and (is_whole or allowed & below[longer]):
                    stack.append((longer, to))
        if found:
            out.ids.append(np.array(found, np.int32))

    def special_states(self, state: int, place: int) -> list[int]:
        """Return the states on the way to special texts of ``state`` that the tokens below
        ``place`` reach."""
        arrays = self.arrays
        found: dict[int, None] = {}
        stack = [(state, place)]
        while stack:
            at, here = stack.pop()
            found[at] = None
            for point, to in self.symbols.special(at):
                spelt = arrays.plain(point)
                stack += [(to, x) for x in arrays.spelt_below(here, point, spelt)]
        return list(found)

    def _quotes_one_by_one(self, state: int, place: int, out: TextWalk) -> None:
        """Find the closing quotes below ``place``, on all paths of text that lead to one."""
        arrays, symbols = self.arrays, self.symbols
        code, minterm_of = arrays.views.code, self.points.minterm_of
        room = arrays.text_before_quotes
        stack = [(state, place)]
        while stack:
            at, here = stack.pop()
            out.runs.add((at, 0))
            if symbols.at_least(at) > room.get(here, -1):
                continue
            quote = arrays.quote_below(here)
            if quote >= 0:
                label = symbols.label(at)
                if label >= 0:
                    out.single.setdefault(label, []).append(quote)
            children = arrays.towards_quotes.get(here)
            if children:
                table = self.table(at)
                for child in children:
                    to = int(table[minterm_of[code[child]]])
                    if to != DEAD:
                        stack.append((to, child))


_RUN = 300
"""In subtrees of at least this many nodes, runs with few phases are handled as a whole."""

_Phase: TypeAlias = "tuple[int, int, bool, int]"
"""The number of characters of a run at which the phase starts, the state there, whether the text
may end, and the minterms that may be read."""


class TextRuns(OpenTexts):
    """Runs of one symbol automaton under one encoding."""

    def __init__(self, characters: Characters, symbols: SymbolAutomaton) -> None:
        super().__init__(characters, symbols)
        self._root_edges: dict[int, tuple[Int32, Int32, Depths]] = {}
        self._after_one: dict[int, int] = {}
        self._after: tuple[int | None, list[int]] = None, []

    def after_run(self, state: int, most: int) -> list[int]:
        """Return the states after 0 to ``most`` (or more) characters of the run of ``state``.

        Caches the last result, and the states after one more character: the next mask begins in a
        state of this run.
        """
        known, after = self._after
        if known == state and len(after) > most:
            return after
        symbols, after_one = self.symbols, self._after_one
        chars, length = symbols.run(state)
        settled = symbols.settled(state) if length < 0 else most
        after = [state]
        for count in range(1, most + 1):
            at = after[-1]
            to: int | None = at
            if count <= settled:
                is_same_run = not chars & ~symbols.run(at)[0]
                to = after_one.get(at) if is_same_run else symbols.after_run(state, count)
            if to is None:
                to = after_one[at] = symbols.after_run(at, 1)
                self.characters.charge(50)
            after.append(to)
        self._after = state, after
        return after

    @cached_method
    def _phases(self, state: int) -> tuple[_Phase, ...] | None:
        """Return the states in which the run of ``state`` can be left, each with the count at which
        it starts; None if there may be many."""
        symbols = self.symbols
        counts: Sequence[int] | None = symbols.phases(state)
        if counts is None and symbols.run(state)[1] < 0 and symbols.settled(state) <= FEW:
            counts = range(symbols.settled(state) + 1)
        phases = None
        if counts is not None:
            longest = self.arrays.longest
            states = [(n, symbols.after_run(state, n)) for n in counts if n <= longest]
            phases = tuple([(n, at, symbols.label(at) >= 0, self.live(at)) for n, at in states])
        self.characters.charge(200)
        return phases

    def is_run(self, state: int, size: int) -> bool:
        """Return whether to handle the run of ``state`` at once, in subtrees of that many nodes."""
        return (
            size > _RUN
            and self.symbols.run(state)[1] not in (0, 1)
            and self.symbols.phases(state) is not None
        )

    def run(
        self, state: int, places: Int32, out: TextWalk
    ) -> tuple[Counted | None, list[tuple[int, Int32]]]:
        """Return the run of ``state``, and the nodes where it is left, by state."""
        characters, symbols = self.characters, self.symbols
        arrays = characters.arrays
        chars, most = symbols.run(state)
        is_endless = most < 0
        most = arrays.longest if is_endless else min(most, arrays.longest)
        out.runs.add((state, most))
        if len(places) > 1 or places[0]:
            run = characters.run(self.points.inside(chars), places)
            out.ids.append(run.tokens(most))
            self._leave(state, run, most, out)
            return None, self._edges(state, chars, run, most)
        cut = self.points.slice(chars)
        tokens = cut.tokens
        stays = is_endless and not symbols.settled(state)
        if stays:
            alive = self.points.tails_of(self.live(state))
            if alive is not None:
                tokens = characters.endless(cut, alive)
        self._leave(state, cut.run, most, out, with_partials=not stays)
        return (tokens, most), self._edges(state, chars, cut.run, most)

    def _leave(
        self, state: int, run: CharacterRun, most: int, out: TextWalk, with_partials: bool = True
    ) -> None:
        """Add quotes, and tokens that end inside a character, after the run of ``state``."""
        arrays, symbols, phases = self.arrays, self.symbols, self._phases(state)
        if phases is None or any(is_end for _, _, is_end, _ in phases):
            chosen, steps = _up_to(run.quotes(), most)
            for at, which in self._by_count(state, steps):
                label = symbols.label(at)
                if label >= 0:
                    self.quoted(out, label)[chosen[which]] = True
        cut = self.points.cut
        if not with_partials or (
            phases is not None and not any(live & cut for _, _, _, live in phases)
        ):
            return
        chosen, steps = _up_to(run.partials(), most)
        if len(chosen):
            tails = arrays.partial_tail[chosen]
            keep = np.zeros(len(chosen), bool)
            for at, which in self._by_count(state, steps):
                alive = self.points.tails_of(self.live(at))
                if alive is not None:
                    keep[which] = alive[tails[which]]
            out.ids.append(arrays.partial[chosen[keep]])

    def _left(self, chars: int, run: CharacterRun) -> tuple[Int32, Int32, Depths]:
        """Return the nodes where characters leave a run, their minterms, and the numbers of
        characters before."""
        found = self._root_edges.get(chars) if run.is_root else None
        if found is None:
            characters = self.characters
            edges = run.left
            minterms = self.points.minterms[characters.arrays.code[edges]]
            text = minterms < self.n_minterms
            edges, minterms = edges[text], minterms[text]
            before = run.steps_to(edges) - np.asarray(1, characters.arrays.depth.dtype)
            found = edges, minterms, before
            if run.is_root:
                self._root_edges[chars] = found
                characters.charge(sum(array.nbytes for array in found) + 200)
        return found

    def _edges(
        self, state: int, chars: int, run: CharacterRun, most: int
    ) -> list[tuple[int, Int32]]:
        """Group the nodes of characters outside or after the whole run by next state."""
        arrays, symbols = self.arrays, self.symbols
        phases = self._phases(state)
        if phases is not None:
            leaving = [phase for phase in phases if phase[3] & ~chars]
            return self._edges_by_phase(phases, leaving, chars, run, most) if leaving else []
        edges, minterms, steps = self._left(chars, run)
        is_endless = symbols.run(state)[1] < 0
        if most < arrays.longest:
            short = steps <= most
            edges, minterms, steps = edges[short], minterms[short], steps[short]
            # When one part of an expression has finished its count, others may continue.
            if not is_endless and self.live(symbols.after_run(state, most)) & chars:
                more = run.nodes_after(most + 1)
                edges = np.concatenate((edges, more)).astype(np.int32)
                steps = np.concatenate((steps, np.full(len(more), most, steps.dtype)))
                order = np.argsort(edges)
                edges, steps = edges[order], steps[order]
                minterms = self.points.minterms[arrays.code[edges]]
        if not len(edges):
            return []
        targets = np.full(len(edges), DEAD, np.int64)
        last = symbols.after_run(state, most)
        for at, which in self._by_count(state, steps):
            if at == last or self.live(at) & ~chars:
                targets[which] = self.table(at)[minterms[which]]
        return grouped(targets, edges)

    def _edges_by_phase(
        self,
        phases: tuple[_Phase, ...],
        leaving: list[_Phase],
        chars: int,
        run: CharacterRun,
        most: int,
    ) -> list[tuple[int, Int32]]:
        """Like `_edges`, if a run has few exits and nothing else continues in parallel."""
        edges, minterms, steps = self._left(chars, run)
        wanted = 0
        for _, _, _, live in leaving:
            wanted |= live & ~chars
        chosen = self.points.holds(wanted)[minterms].nonzero()[0]
        if not len(chosen):
            return []
        edges, minterms, steps = edges[chosen], minterms[chosen], steps[chosen]
        targets = np.full(len(edges), DEAD, np.int64)
        for phase in leaving:
            count, at, _, _ = phase
            later = phases[phases.index(phase) + 1 :]
            last = min(most, later[0][0] - 1) if later else most
            which = (steps >= count) & (steps <= last)
            targets[which] = self.table(at)[minterms[which]]
        return grouped(targets, edges)

    def _by_count(self, state: int, steps: Depths) -> list[tuple[int, npt.NDArray[np.int64]]]:
        """Return the states after numbers of characters of a run, with the positions of these
        numbers in ``steps``, as far as they matter."""
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
        symbols = self.symbols
        if symbols.run(state)[1] < 0:
            settled = min(symbols.settled(state), self.arrays.longest)
            steps = np.minimum(steps, np.asarray(settled, steps.dtype))
        order = np.argsort(steps, kind="stable")
        ordered = steps[order]
        first = starts_of(ordered)
        bounds = pairwise([*first.tolist(), len(order)])
        known, after = self._after
        is_known = known == state and int(ordered[-1]) < len(after)
        return [
            (after[count] if is_known else symbols.after_run(state, count), order[a:b])
            for count, (a, b) in zip(ordered[first].tolist(), bounds, strict=True)
        ]


def _up_to(
    reached: tuple[npt.NDArray[np.int64], Depths], most: int
) -> tuple[npt.NDArray[np.int64], Depths]:
    """Return the nodes reached within ``most`` characters."""
    chosen, steps = reached
    short = steps <= most
    return chosen[short], steps[short]


_ROOT_ALONE = [0]

_FEW_BELOW = 500
"""`TextWalks.ends` visits up to this many nodes one by one."""

_LARGE = 2000
"""In subtrees of at least this many nodes, runs are handled as a whole, with any number of phases.
"""


class TextWalks(TextRuns):
    """Walks of one symbol automaton under one encoding."""

    # Most texts are keys of one object, identified by their closing quotes: the rest is made on
    # demand.

    _whole: GenerationalCache[int, TextWalk] | None = None
    _contents: StructuralHash | None = None
    _far: TokenHorizon | None = None

    def alike(self, state: int) -> int:
        """Return a state that allows the same tokens as ``state``, with a shortest completion of
        the same length after each. Many states share one."""
        found = self.symbols.expression(state)
        if found is None:
            return state
        expression, at = found
        if self._far is None:
            # One more for a cut character.
            longest = self.arrays.longest + 1
            self._far = TokenHorizon(expression, longest, self.points.most_in_order)
        to = self._far.alike(at)
        return state if to == at else self.symbols.in_expression(to)

    def content(self, state: int) -> bytes | None:
        """Return a key that is the same for equal expressions, whose walks differ only in the names
        of states; None if unknown."""
        found = self.symbols.expression(state)
        if found is None or found[0] is not self.symbols:
            return None  # an expression of another automaton
        if self._contents is None:
            self._contents = StructuralHash(found[0])
        return self._contents.of(state)

    @cached_method
    def fresh_runs(self, state: int, place: int) -> list[tuple[int, int]]:
        """Return `TextWalk.runs` of a walk from ``place``, without cached walks."""
        quoting = self.symbols.quoting(state)
        if quoting is not None:
            found = [(at, 0) for at, _ in self.quote_ends(quoting, place)]
        else:
            found = list(self._walk(state, [place]).runs)
        self.characters.charge(100 * len(found) + 100)
        return found

    def walk(self, state: int, places: list[int]) -> TextWalk:
        """Walk from ``state`` at each of ``places``, ascending character nodes none of which is
        below another. Cost: tens of microseconds, and two milliseconds for each new set of
        characters.
        """
        arrays = self.arrays
        quoting = self.symbols.quoting(state)
        if quoting is not None:
            return self.quote(state, quoting, places)
        out = TextWalk(None, [], {}, {}, set())
        names = self.symbols.names(state)
        if names is not None and arrays.is_canonical:
            for place in places:
                out.runs.add((state, -1 - place))
                self.names(names, place, out)
            return out
        unnamed = self.symbols.unnamed(state)
        if unnamed is not None:
            return self.but_for_names(state, unnamed, places)
        if arrays.is_canonical:
            others = self.symbols.beside_names(state)
            if others is not None:
                return self._beside_names(state, others, places)
        return self._walk(state, places)

    def ends(self, state: int, cuts: Int32) -> Iterator[tuple[int, int, Int32]]:
        """Yield the tokens that are text from ``state`` on, by the state in which they end and the
        position in a character: `GROUND` between two, else the entry of ``cuts`` for the tail.

        In quotes, without tokens that end inside a character. Tokens of a run are found by their
        number of characters; those that leave it are walked level by level, if they are few.
        """
        arrays, symbols, minterms = self.arrays, self.symbols, self.points.minterms
        quoting = symbols.quoting(state)
        if quoting is not None:
            yield from ((at, GROUND, ids) for at, ids in self.quote_ends(quoting, 0))
            return
        todo: list[tuple[int, Int32]] = [(state, np.zeros(1, np.int32))]
        groups: list[tuple[int, Int32]] = []
        while todo:
            start, places = todo.pop()
            chars, most = symbols.run(start)
            if self._size(places) <= _LARGE:
                groups.append((start, places))
            elif chars:
                longest = arrays.longest if most < 0 else min(most, arrays.longest)
                if places[0]:
                    run = self.characters.run(self.points.inside(chars), places)
                else:
                    run = self.points.slice(chars).run
                ids, starts = run.by_count()
                last = min(longest, len(starts) - 2)
                if most < 0 and symbols.settled(start) < last:
                    last = symbols.settled(start)
                    starts = [*starts[: last + 1], len(ids)]
                after = self.after_run(start, last)
                for count in range(last + 1):
                    if starts[count] < starts[count + 1]:
                        yield after[count], GROUND, ids[starts[count] : starts[count + 1]]
                chosen, before = _up_to(run.partials(), longest)
                for to, which in self._by_count(start, before):
                    yield from self._cut_after(to, chosen[which], cuts)
                todo += self._edges(start, chars, run, longest)
            else:
                own = ranges(arrays.token_start[places], arrays.own_stop[places])
                yield start, GROUND, arrays.token_ids[own]
                yield from self._cut_after(start, self._partials_at(places, places)[0], cuts)
                children, _ = arrays.children_of(places)
                todo += grouped(self.table(start)[minterms[arrays.code[children]]], children)
        if not groups:
            return
        table = self.rows
        nodes = np.concatenate([places for _, places in groups])
        numbers = [table.number[at] for at, _ in groups]
        at = np.repeat(numbers, [len(places) for _, places in groups]).astype(np.int32)
        seen: list[tuple[Int32, Int32]] = []
        while int((arrays.end[nodes] - nodes).sum()) > _FEW_BELOW:
            WORK.spend(5 + (len(nodes) >> 5))
            seen.append((nodes, at))
            inner = arrays.end[nodes] - nodes > 1
            nodes, at = nodes[inner], at[inner]
            table.cover(at)
            children, below = arrays.children_of(nodes)
            to = table.rows[np.repeat(at, below), minterms[arrays.code[children]]]
            alive = to >= 0
            nodes, at = children[alive], to[alive]
        # A few long chains are left, each level of which would cost a step.
        end, code, minterm_of = arrays.views.end, arrays.views.code, self.points.minterm_of
        stack = list(zip(at.tolist(), nodes.tolist(), strict=True))
        for number, here in stack:  # which grows
            moves, child = self.table(table.states[number]), here + 1
            while child < end[here]:
                leads_to = int(moves[minterm_of[code[child]]])
                if leads_to != DEAD:
                    stack.append((table.number[leads_to], child))
                child = end[child]
        seen.append(tuple(np.array(stack, np.int32).reshape(-1, 2).T[::-1]))
        nodes = np.concatenate([nodes for nodes, _ in seen])
        first, last = arrays.token_start[nodes], arrays.own_stop[nodes]
        ids = arrays.token_ids[ranges(first, last)]
        numbers_of = np.repeat(np.concatenate([at for _, at in seen]), last - first)
        kind = np.int16 if len(table.states) < 1 << 15 else np.int32  # fast to sort if short
        for number, alike in grouped(numbers_of.astype(kind), ids):
            yield table.states[number], GROUND, alike
        cut, numbers_of = self._partials_at(nodes, np.concatenate([at for _, at in seen]))
        for number, begun in grouped(numbers_of, cut):
            yield from self._cut_after(table.states[number], begun, cuts)

    def _partials_at(self, nodes: Int32, at: Int32) -> tuple[Int32, Int32]:
        """Return which of `CharacterArrays.partial` continue from nodes, each with the entry of
        ``at`` for its node."""
        held = self.arrays.holds_partials[nodes]
        nodes, at, begun = nodes[held], at[held], self.arrays.partial_node
        first, last = begun.searchsorted(nodes), begun.searchsorted(nodes, "right")
        return ranges(first, last).astype(np.int32), at.repeat(last - first)

    def _cut_after(
        self, state: int, which: npt.NDArray[Any], cuts: Int32
    ) -> Iterator[tuple[int, int, Int32]]:
        """Yield `ends` of `CharacterArrays.partial` whose last character begins in ``state``."""
        alive = self.points.tails_of(self.live(state))
        if alive is not None:
            which = which[alive[self.arrays.partial_tail[which]]]
            cut = cuts[self.arrays.partial_tail[which]]
            for node, alike in grouped(cut, self.arrays.partial[which]):
                yield state, node, alike

    def _beside_names(self, state: int, others: int, places: list[int]) -> TextWalk:
        """Return the cached walk of ``others``, except on the way to a name: there each token and
        each quote is checked separately."""
        arrays = self.arrays
        if places == _ROOT_ALONE:
            kept = self._kept(others)
            quotes = {label: mask.copy() for label, mask in kept.quotes.items()}
            walk = TextWalk(None, [], quotes, {}, set(), kept.row)
        else:
            walk = self._walk(others, places)
        gained: list[int] = []
        lost: list[int] = []
        views, symbols = arrays.views, self.symbols
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
                ids = token_ids[views.token_start[here] : views.own_stop[here]]
                (gained if leads_on else lost).extend(ids)
                stack.append((to, longer))
        runs = {(state, FRESH - place) for place in places}
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

    def _walk(self, state: int, places: list[int]) -> TextWalk:
        """Walk runs first, then the rest together."""
        out = TextWalk(None, [], {}, {}, set())
        counted: Counted | None = None
        groups = [(state, np.array(places, np.int32))]
        few: list[tuple[int, int]] = []
        small: list[tuple[int, Int32]] = []
        while groups or few:
            if not groups:
                groups, left = self.one_by_one(few, out, set_aside=True)
                few = []
                small += left
                continue
            at, where = groups.pop()
            WORK.spend(5)
            if self.symbols.is_open(at):
                counted = self.whole(at, where, out) or counted
                continue
            size = self._size(where)
            if size <= SMALL or (self.is_few(at) and len(where) <= SMALL):
                few += [(at, place) for place in where.tolist()]
            elif not self.is_run(at, size) and (size <= _LARGE or self.narrow(at) is not None):
                small.append((at, where))
            elif self.symbols.run(at)[0]:
                found, more = self.run(at, where, out)
                counted = found or counted
                groups += more
            else:
                groups += self.one_step(at, where, out)
        if small:
            self.together(small, out)
        return out._replace(counted=counted)

    def _kept(self, state: int) -> TextWalk:
        """Return `_walk` from the root, in a compact form, cached for all sets of names beside
        which ``state`` is walked. Do not change its contents."""
        if self._whole is None:
            self._whole = self.characters.cache()
        found = self._whole[state]
        if found is None:
            arrays = self.arrays
            found = self._whole[state] = self._compact(self._walk(state, [0]))
            n_bytes = 4 * arrays.size // 32 + len(arrays.quotes) * len(found.quotes)
            self.characters.charge(n_bytes + 100 * len(found.runs) + 1000)
        return found

    def _compact(self, walk: TextWalk) -> TextWalk:
        """Return ``walk`` with its tokens as bits and its quotes as masks."""
        size = (self.arrays.size + 31) // 32 * 32
        if walk.counted is None:
            flags = np.zeros(size, bool)
        else:
            tokens, most = walk.counted
            flags = tokens.flags(most, size)
        for ids in walk.ids:
            flags[ids] = True
        for label, single in walk.single.items():
            self.quoted(walk, label)[single] = True
        row = np.packbits(flags, bitorder="little").view("<u4")
        return TextWalk(None, [], walk.quotes, {}, walk.runs, row)

    def _size(self, places: Int32) -> int:
        arrays = self.arrays
        if len(places) == 1:
            place = int(places[0])
            return arrays.views.end[place] - place
        return int(np.sum(arrays.end[places] - places))
