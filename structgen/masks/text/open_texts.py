"""Texts that may be anything, and those that are one of some names: told by where they are closed.

`OpenTexts` walks states from which every text may be read (`SymbolAutomaton.is_open`), so that only
the quotes below a place matter; those where a few texts have another label than all the others;
and those where nothing but names may be read. It knows closing quotes and special texts; of what
happens elsewhere in a text, only where a character leads.
"""

from __future__ import annotations

import numpy as np

from structgen.automaton.regex import Names
from structgen.storage import GenerationalCache

from .character_arrays import Int32
from .ends import ANEW, Counted, FreeWalk, TextWalk
from .tables import DEAD, TextTables


class OpenTexts:
    """Walks of one symbol automaton where texts are told by their ends."""

    _unnamed: GenerationalCache[tuple[int, ...], TextWalk] | None = None

    def __init__(self, tables: TextTables) -> None:
        self._tables = tables
        self._symbols = tables.symbols
        self._points = tables.points
        self._characters = tables.characters

    def whole(self, state: int, places: Int32, out: TextWalk) -> Counted | None:
        """Every text may be read: all that matters is where it is closed."""
        characters = self._characters
        whole = characters.whole(places)
        if whole.counted is None:
            out.ids.append(whole.ids)
        out.runs.add((state, 0))
        for place in places.tolist():
            self._quotes_one_by_one(state, place, out)
        return None if whole.counted is None else (whole.counted, characters.arrays.longest)

    def but_for_names(self, state: int, unnamed: int, places: list[int]) -> TextWalk:
        """Every text may be read, and ``unnamed`` says what it is called once it is closed, unless
        it is one of the special texts of ``state``."""
        characters, symbols = self._characters, self._symbols
        if self._unnamed is None:
            self._unnamed = characters.cache()
        key = (unnamed, *places)
        walk = self._unnamed.get(key)
        if walk is None:
            walk = TextWalk(None, [], {}, {}, set())
            counted = self.whole(unnamed, np.array(places, np.int32), walk)
            for label, found in walk.single.items():
                self._tables.quoted(walk, label)[found] = True
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
        runs = {(state, ANEW - place) for place in places}
        return TextWalk(walk.counted, [*walk.ids], quotes, single, runs)

    def free_walk(self, state: int, places: list[int]) -> FreeWalk | None:
        """As `walk`, where every text may be read and all but a few have the same label."""
        symbols, characters = self._symbols, self._characters
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
        """Nothing but some names may be read, each of which has one spelling."""
        characters = self._characters
        arrays = characters.arrays
        edges, ends, below, start, allowed = names
        # The masks of a large set are large: none is made where no name below is barred.
        is_whole = allowed == below[start]
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
        """The states on the way to the special texts of ``state`` that the tokens below ``place``
        reach."""
        arrays = self._characters.arrays
        found: dict[int, None] = {}
        stack = [(state, place)]
        while stack:
            at, here = stack.pop()
            found[at] = None
            for point, to in self._symbols.special(at):
                spelt = arrays.plain(point)
                stack += [(to, x) for x in arrays.spelt_below(here, point, spelt)]
        return list(found)

    def _quotes_one_by_one(self, state: int, place: int, out: TextWalk) -> None:
        """The closing quotes below ``place``, on all paths of text that lead to one."""
        characters, symbols = self._characters, self._symbols
        arrays = characters.arrays
        code, minterm_of = arrays.views.code, self._points.minterm_of
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
                table = self._tables.table(at)
                for child in children:
                    to = int(table[minterm_of[code[child]]])
                    if to != DEAD:
                        stack.append((to, child))
