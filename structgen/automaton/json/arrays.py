"""JSON arrays: the frame of one open array.

`ArrayPlan` says what may follow in an array and what closes it, by numbers of the `State`s that it
has met. What items owe is `array_spec`' business, the cheapest way to close an array
`array_closing`'s, punctuation `array_leaf`'s.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from typing import Any

from structgen.automaton.core.frames import POP, Alternative
from structgen.automaton.texts import Text, flat, put, repeated
from structgen.grammar.json_schema import FALSE, json_key

from . import evaluate
from .array_closing import ArrayClosing
from .array_leaf import CLOSE, ITEM, array_leaf
from .array_spec import FORGOTTEN, REPEATED, ArraySpec, State, is_forgotten
from .excluding import bytes_of_many
from .language import Language

MAX_TOLD = 100
"""Most values of an item for which ways to close the array are compared one by one."""

_FEW_FORGOTTEN = 8
"""How many that are at least, so that states are shared."""


class ArrayPlan:
    """The frame of an array owed to the array assertions of several nodes at once.

    Machine states are ``2 * i`` while punctuation is written and ``2 * i + 1`` during an item, for
    the i-th interned `State`.
    """

    nests = True
    may_record = False

    def __init__(self, language: Language, nodes: tuple[int, ...]) -> None:
        self._language = language
        self._numbers = nodes
        self.limit = language.limit_below(nodes)
        self._has_nodes = bool(nodes)
        self._spec = spec = ArraySpec(language, nodes)
        if not spec.is_simple:
            self.may_record = spec.unique or spec.repeats
        self._limit: int | None = None
        self._states: list[State] = []
        self._state_ids: dict[State, int] = {}

    # What the plainest do not need.

    @cached_property
    def _closing(self) -> ArrayClosing:
        return ArrayClosing(self._language, self._spec)

    @cached_property
    def _with_item(self) -> dict[State, Text | None]:
        return {}

    @cached_property
    def _spares(self) -> dict[int, tuple[Text, ...]]:
        return {}

    @cached_property
    def _others(self) -> dict[int, tuple[Text | None, dict[Any, Any]]]:
        return {}

    @property
    def is_searched(self) -> bool:
        """Whether what closes the array has to be searched for, among many ways perhaps."""
        return bool(self._spec.contains) or self._spec.repeats

    @property
    def is_unique(self) -> bool:
        """Whether no two items may be equal."""
        return self._spec.unique

    @property
    def repeats(self) -> bool:
        """Whether two items have to be equal."""
        return self._spec.repeats

    @property
    def path(self) -> str:
        """Where in the schema the array is, for messages."""
        return self._spec.path

    # -- what may follow --------------------------------------------------------------------

    def _state(self, state: State) -> int:
        found = self._state_ids.get(state)
        if found is None:
            found = self._state_ids[state] = len(self._states)
            self._states.append(state)
        return found

    def _may(self, state: State) -> tuple[bool, bool]:
        """Whether another item, and whether ``]``, may follow."""
        spec = self._spec
        count = state[0]
        if spec.is_simple:
            most = self._most()
            return most is None or count < most, count >= spec.min
        close = spec.is_complete(state)
        if is_forgotten(state[2]):
            return spec.max is None or count < spec.max, close
        if spec.max is not None and count >= spec.max:
            return False, close
        if not spec.contains and not spec.repeats and count >= spec.min and spec.has_more(state):
            return True, close
        return any(True for _ in self._open_ways(state)), close

    def _open_ways(self, state: State) -> Iterator[tuple[int, State]]:
        """The ways for one more item that do not lead into a dead end."""
        spec = self._spec
        count, _, seen = state
        language = self._language
        for conjunction, met in spec.ways(state):
            after: State = (min(count + 1, spec.count_to), met, seen)
            if is_forgotten(seen) or (
                language.values.is_possible(conjunction) and self._viable(after)
            ):
                yield conjunction, after
            elif spec.repeats and seen != REPEATED:
                # Items to come cannot be equal by themselves: this one has to be like another.
                for equal in spec._like_seen(conjunction, seen):
                    repeated: State = (after[0], met, REPEATED)
                    if language.values.is_possible(equal) and self._viable(repeated):
                        yield equal, repeated
                for shared in spec._like_later(conjunction, count, met):
                    if language.values.is_possible(shared):
                        yield shared, after

    def _viable(self, state: State) -> bool:
        return self._spec.is_simple or self._closing.items(state) is not None

    def _most(self) -> int | None:
        """Most items possible: ``maxItems``, or the first item that nothing satisfies."""
        spec = self._spec
        if self._limit is None:
            # -1 stands for "no limit": None is "not computed yet".
            limit = -1 if spec.max is None else spec.max
            typed = self._language.values.typed
            for index in range(spec.prefix + 1) if self._has_nodes else ():
                if 0 <= limit <= index:
                    break
                item = spec.item(index)
                if item not in typed and not self._language.values.is_possible(item):
                    limit = index
                    break
            if self._language.values.is_solving:
                return None if limit < 0 else limit
            self._limit = limit
        return None if self._limit < 0 else self._limit

    def children(self) -> list[int]:
        """Conjunctions that items are owed to."""
        spec = self._spec
        out = [spec.item(i) for i in range(spec.prefix + 1)]
        if spec.contains:
            out += [conjunction for conjunction, _ in spec.ways(spec.start())]
        return out

    def required_children(self) -> list[int]:
        """The conjunctions that every such array has an item for."""
        spec = self._spec
        if spec.max is not None and spec.max < spec.min:
            return [FALSE]
        return [spec.item(i) for i in range(min(spec.min, spec.prefix + 1))]

    # -- what tells a plain array from others (`apart`) -------------------------------------------

    @property
    def is_plain(self) -> bool:
        """Whether items owe nothing to each other."""
        return self._spec.is_simple

    @property
    def is_endless(self) -> bool:
        """Whether a plain array may have any number of items."""
        return self._most() is None

    def may_follow(self, count: int) -> tuple[bool, bool]:
        """Whether another item, and whether ``]``, may follow so many in a plain array."""
        return self._may((min(count, self._spec.count_to), (), ()))

    def owed(self, index: int) -> int:
        """The conjunction that an item of a plain array is owed to."""
        return self._spec.item(index)

    def after_item(self, count: int) -> int:
        """The frame's state when the last of so many items of a plain array has ended."""
        return 2 * self._state((min(count, self._spec.count_to), (), ())) + 1

    def holds(self, value: Any) -> bool:
        """Whether ``value`` is such an array."""
        return all(evaluate.holds(self._language.nodes, 2 * n, value) for n in self._numbers)

    def size_at_least(self, size: int) -> bool:
        """A cheap sufficient test that there are so many such arrays."""
        if not self.is_plain or not self.is_possible():
            return False
        most, spec = self._most(), self._spec
        return most is None or any(
            self._language.values.size_at_least(spec.item(index), size)
            for index in range(min(most, spec.prefix + 1))
        )

    def is_possible(self) -> bool:
        """Whether any array satisfies the nodes."""
        spec = self._spec
        if spec.is_simple:
            most = self._most()
            return most is None or spec.min <= most
        if not spec.min and not spec.contains and not spec.repeats:
            return True
        return self.shortest_text() is not None

    # -- the frame --------------------------------------------------------------------------

    def open(self) -> Alternative:
        """How such an array starts."""
        leaf = array_leaf(self._language.space)
        state = self._spec.start()
        return Alternative(leaf, leaf.open(*self._may(state)), ((self, 2 * self._state(state)),))

    def records(self, at: int, outcome: int) -> bool:
        """Whether `resume` needs the text of the item that has just ended."""
        if not at & 1:
            return False
        return self._spec.unique or (self._spec.repeats and self._states[at >> 1][2] != REPEATED)

    def forget(self, at: int, outcome: int) -> int | None:
        """See `frames.Frame`: where there are more items than those that may have been written."""
        spec = self._spec
        count, met, seen = self._states[at >> 1]
        if not at & 1 or not spec.unique or spec.contains or spec.repeats:
            return None
        most = _FEW_FORGOTTEN
        while most < len(seen) + 1:
            most *= 2
        if spec.max is None or count < spec.max:
            needed = max(most, spec.min) + 1
            if count < spec.prefix or not self._language.values.size_at_least(
                spec.item(count), needed
            ):
                return None
        return 2 * self._state((count, met, (FORGOTTEN, most))) + 1

    def untold(self, at: int, outcome: int) -> None:
        """See `frames.Frame`."""

    def forgotten(self, at: int) -> int:
        """See `frames.Frame`."""
        seen = self._states[at >> 1][2]
        return seen[1] if is_forgotten(seen) else 0

    def resume(
        self, at: int, outcome: int, text: bytes | None = None, limited: bool = False
    ) -> tuple[Alternative, ...]:
        """What may follow; see `frames.Frame`."""
        spec = self._spec
        state = self._states[at >> 1]
        if not at & 1:
            if outcome == CLOSE:
                return POP
            ways: Iterable[tuple[int, State]]
            if spec.is_simple:
                count = state[0]
                after_it = count + 1 if count < spec.count_to else count
                ways = ((spec.item(count), (after_it, (), ())),)
            else:
                ways = self._open_ways(state)
            out: list[Alternative] = []
            for conjunction, after in ways:
                own = self, 2 * self._state(after) + 1
                for way in self._language.alternatives(conjunction, limited):
                    out += (Alternative(way.leaf, way.q, (*way.frames, own)),)
            return tuple(out)
        if text is not None:
            state = (state[0], state[1], spec.with_value(state[2], text))
        leaf = array_leaf(self._language.space)
        item, close = self._may(state)
        if not item and not close:
            return ()
        return (Alternative(leaf, leaf.after_item(item, close), ((self, 2 * self._state(state)),)),)

    # -- completion -------------------------------------------------------------------------

    def finish(self, at: int, outcome: int, text: bytes | None = None) -> Text | None:
        """The fewest bytes that close the array; see `frames.Frame`."""
        state = self._states[at >> 1]
        if is_forgotten(state[2]):
            return self._finish_forgotten(state, bool(at & 1), outcome)
        if at & 1:
            if text is None:
                return self._closing.rest(state, False)
            value = json.loads(text)
            rest, told = self._otherwise(at >> 1)
            if rest is not None and json_key(value) not in told:
                return rest
            return self._finish_after(at >> 1, value)
        if outcome == CLOSE:
            return b""
        if state in self._with_item:
            return self._with_item[state]
        found = self._closing.with_one_more(state)
        if self._spec.contains and not self._language.values.is_solving:
            self._with_item[state] = found
        return found

    def _finish_after(self, number: int, value: Any) -> Text | None:
        """As `finish`, in state ``number``, after an item that is ``value``."""
        spare = self._spare_items(number)
        if spare:
            key = json_key(value)
            left = [item for item in spare if json_key(json.loads(flat(item))) != key]
            return self._closing.written(tuple(left[: len(spare) - 1]), False)
        count, met, seen = self._states[number]
        return self._closing.written(
            self._closing.items((count, met, self._spec.with_(seen, value))), False
        )

    def _finish_forgotten(self, state: State, is_after: bool, outcome: int) -> Text | None:
        """As `finish`, where it is forgotten what is barred: as many bytes as that takes at most,
        but not these."""
        if not is_after and outcome == CLOSE:
            return b""
        count, _, (_, most) = state
        owed = max(self._spec.min - count, 0 if is_after else 1)
        if not owed:
            return self._closing.written((), False)
        leaves, _ = self._language.shapes(self._spec.item(count))
        sizes = [bytes_of_many(leaf, q, most + owed) for leaf, q in leaves]
        size = min([size for size in sizes if size is not None], default=None)
        return (
            None
            if size is None
            else self._closing.written((repeated(b"?", size),) * owed, not is_after)
        )

    def finish_reads(self, at: int, outcome: int) -> bool:
        """Whether further items are owed, which the one that has ended here must not equal."""
        spec = self._spec
        count, _, seen = self._states[at >> 1]
        if is_forgotten(seen):
            return False
        return bool(spec.contains or spec.repeats or count < spec.min)

    def finish_otherwise(self, at: int, outcome: int) -> tuple[Text, Collection[Any]] | None:
        """See `frames.Frame`."""
        rest, told = self._otherwise(at >> 1)
        return None if rest is None else (rest, told.values())

    def _otherwise(self, number: int) -> tuple[Text | None, dict[Any, Any]]:
        """What closes the array in state ``number`` after any item but certain ones, by their keys:
        those that are written to close it, and those of which there are few."""
        spec = self._spec
        found = self._others.get(number)
        if found is None:
            items = None if spec.repeats else self._closing.items(self._states[number])
            told: list[Any] = []
            if items is not None:
                told += [json.loads(flat(item)) for item in dict.fromkeys(items)]
                for values in spec.rare().values() if spec.unique else ():
                    told += [spec.values[v] for v in values]
            found = self._closing.written(items, False), {json_key(value): value for value in told}
            self._others[number] = found
        return found

    def finish_most(self, at: int, outcome: int) -> int | None:
        """See `frames.Frame`."""
        number = at >> 1
        spare = self._spare_items(number)
        if spare:
            whole = self._closing.written(spare[1:], False)  # without the shortest
            return None if whole is None else len(whole)
        rest, told = self._otherwise(number)
        if rest is None or len(told) > MAX_TOLD:
            return None
        after = [self._finish_after(number, value) for value in told.values()]
        return max([len(rest), *[len(way) for way in after if way is not None]])

    def _spare_items(self, number: int) -> tuple[Text, ...]:
        """For state ``number``, the cheapest distinct items, one more than are owed.

        Whatever the item is that ends there, without the one equal to it enough are left. Empty
        where that is not certain: objects and arrays have no exact shortest text to count on.
        """
        spec = self._spec
        found = self._spares.get(number)
        if found is None:
            found = ()
            count, _, seen = self._states[number]
            is_simple = not spec.contains and not spec.repeats and count >= spec.prefix
            if is_simple and not self._language.shapes(spec.item(count))[1]:
                found = self._closing.distinct(count, spec.min + 1, seen) or ()
            self._spares[number] = found
        return found

    def preferred(self, at: int) -> int | None:
        """The outcome that `finish` counts on; see `frames.Frame`."""
        if at & 1:
            return None
        state = self._states[at >> 1]
        if self._spec.is_simple or is_forgotten(state[2]):
            return ITEM if state[0] < self._spec.min else CLOSE
        return ITEM if self._closing.items(state) else CLOSE

    def shortest_text(self) -> Text | None:
        """The shortest whole array, or None when there is none (or none known yet)."""
        rest = self._closing.rest(self._spec.start(), True)
        return None if rest is None else put(b"[" + self._language.least_space, rest)
