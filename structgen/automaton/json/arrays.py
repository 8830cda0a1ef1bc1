"""JSON arrays: the frame of one open array.

`ArrayPlan` says what may follow in an array and what closes it, by numbers of the `State`s it has
met. `array_spec` knows what items owe, `whitespace` the punctuation.

`ArrayClosing` finds the cheapest items that close an array. Plain bounds need a list. Items that
must differ are chosen one after the other. For ``contains`` it searches (A* over counts, each step
one item), or shows that there is no way.
"""

from __future__ import annotations

import heapq
import itertools
import json
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from typing import Any

from structgen.automaton.core.frames import POP, Alternative, Frame
from structgen.automaton.schema import evaluate
from structgen.automaton.schema.array_spec import (
    REPEATED,
    ArraySpec,
    State,
    forgetting,
    is_forgotten,
)
from structgen.automaton.texts import Text, flat, put, repeated
from structgen.automaton.work import WORK
from structgen.errors import CompileLimitExceeded
from structgen.grammar.json_schema import FALSE, json_key

from .excluding import bytes_of_many
from .language import MAX_LISTED, Language, ending, whole
from .whitespace import CLOSE, ITEM, array_leaf

MAX_SEARCH = 20_000
"""Most states a search for the shortest way to close one array may visit."""

MAX_WAYS = 256
"""Most sets of ``contains`` that one item may meet together: each is followed by itself.

Why the pairs bound a mask within a budget: in the place before an item it follows each way of that
item, and of the place after it the first item of a plan is asked for, which is one of the ways
again. What those plans continue with is remembered by place (`_closings`). So for w ways a mask
looks at w places and w ways of each, and each look is a few steps: the square is bounded, at
compile, by what one call may do. How many places there are in all is bounded by `_search`, and
every look is counted, so that what this leaves out ends in the limit on work, not in a call without
an end.
"""

_WORK_OF_WAYS = 16
"""Steps of a mask within a budget for each pair of them."""

_CLOSED: State = (-1, (), ())
"""In a search: nothing further is needed."""

_FEW_STATES = 256
"""Most states of an array that are all worked out at once."""

_Step = tuple[int, int, int, int, State, tuple[Text, ...]]
"""(bytes at least, items missing, a number, bytes so far, state, items)."""


class ArrayClosing(ArraySpec):
    """Closes the arrays whose items it describes."""

    _language: Language

    def __init__(self, language: Language, nodes: tuple[int, ...]) -> None:
        super().__init__(language, nodes)
        self._known: dict[State, tuple[Text, ...] | None] = {}

    def rest(self, state: State, first: bool) -> Text | None:
        """Return the fewest bytes that close the array after ``state``, or None if none can."""
        if not self.is_simple:
            return self.written(self.items(state), first)
        if self.max is not None and self.max < self.min:
            return None
        language, count = self._language, state[0]
        items: list[Text] = []
        for index in range(count, min(self.min, self.prefix)):
            item = language.shortest(self.item(index))
            if item is None:
                return None
            items.append(item)
        times = self.min - max(count, self.prefix)
        if times > 0:  # however many: they are not listed
            item = language.shortest(self.item(self.prefix))
            if item is None:
                return None
            items.append(put(item, repeated(put(language.space.comma, item), times - 1)))
        return self.written(tuple(items), first)

    def written(self, items: tuple[Text, ...] | None, first: bool) -> Text | None:
        """Items and ``]``, after the ``[`` or after another item."""
        return ending(self._language, items, first, b"]")

    def items(self, state: State) -> tuple[Text, ...] | None:
        """Return the cheapest items still owed after ``state``, or None if it cannot be closed."""
        found = self._known.get(state, False)
        if found is False:
            if self.contains or self.repeats:
                found = None if self._is_hopeless else self._contained_apart(state)
                if found == ():
                    self._close_those_after(state)
                    found = self._search(state)
            else:
                count, _, seen = state
                hopeless = self.max is not None and self.max < self.min
                found = None if hopeless else self.distinct(count, self.min, seen)
            if not self._language.values.is_solving:
                self._known[state] = found
        return found  # type: ignore[return-value]

    def distinct(self, first: int, end: int, seen: tuple[int, ...]) -> tuple[Text, ...] | None:
        """Return the cheapest items ``first`` to ``end`` - 1, distinct where required."""
        items: list[Text] = []
        for index in range(first, end):
            item = self._language.shortest(self.item(index, self.barred(index, seen)))
            if item is None:
                return None
            items.append(item)
            if self.unique:
                seen = self.with_value(seen, item)
        return tuple(items)

    def _contained_apart(self, state: State) -> tuple[Text, ...] | None:
        """Return the cheapest items after ``state`` where no search is needed: every item owes the
        same, and no value is in two of the lists of what is to be contained. Else ()."""
        count, met, seen = state
        if self.repeats or not self.are_apart or count < self.prefix:
            return ()
        language = self._language
        items: list[Text] = []
        for some, k in zip(self.contains, met, strict=True):
            for _ in range(some.least - k):
                base = self.item(count, self.seen_of(some, seen))
                item = language.shortest(language.conjunctions.extended(base, [some.requirement]))
                if item is None:
                    return None
                items.append(item)
                seen = self.with_value(seen, item) if self.unique else seen
        more = self.min - count - len(items)
        if more > 0:
            rest = self.distinct(self.min - more, self.min, seen)
            if rest is None:
                return None
            items += rest
        fits = self.max is None or count + len(items) <= self.max
        return tuple(items) if fits else None

    def _close_those_after(self, state: State) -> None:
        """Find what closes the array after each way of the next item first, where these are few
        states in all: searches from each of them again would visit every set's subsets again."""
        count, met, _ = state
        n_states = self.count_to - count + 1
        for some, k in zip(self.contains, met, strict=True):
            n_states *= max(some.least, some.most or 0) - k + 1
        if (
            self.unique
            or self.repeats
            or self._language.values.is_solving
            or n_states > _FEW_STATES
        ):
            return
        for _, after_met in self.ways(state):
            after: State = (min(count + 1, self.count_to), after_met, ())
            if after != state:
                self.items(after)

    def _can_contain(self, index: int, state: State) -> bool:
        """Return whether what ``contains`` number ``index`` still misses can be an item at all."""
        some = self.contains[index]
        if state[1][index] >= some.least:
            return True
        first = max(state[0], some.start)
        return any(
            self._language.shortest(
                self._language.conjunctions.extended(self.item(at, state[2]), [some.requirement])
            )
            is not None
            for at in range(first, max(first, self.prefix) + 1)
        )

    def _search(self, start: State) -> tuple[Text, ...] | None:
        """Run A* over counts: each step is one item."""
        # Every step of unique items has a new conjunction to work out.
        limit = MAX_SEARCH // 100 if self.unique or self.repeats else MAX_SEARCH
        tie = itertools.count()
        heap: list[_Step] = [(*self._ahead(start), next(tie), 0, start, ())]
        done: set[State] = set()
        while heap:
            _, _, _, cost, state, items = heapq.heappop(heap)
            if state is _CLOSED:
                return items
            if state in done:
                continue
            done.add(state)
            WORK.spend(10 + (len(items) >> 6))
            WORK.hold(200)
            if len(done) > limit:
                raise CompileLimitExceeded(
                    f"there are too many ways to satisfy 'contains', at {self.path}; require "
                    "fewer items of each kind, or remove the keywords that count them "
                    "(minContains, uniqueItems)",
                    limit=limit,
                    actual=len(done),
                )
            count, _, seen = state
            if self.is_complete(state):
                return items
            if self.max is not None and count >= self.max:
                continue
            if not all(self._can_contain(i, state) for i in range(len(self.contains))):
                continue  # no number of further items would help
            apart = self.item_matters(state)
            for conjunction, after_met in self.chosen_ways(state):
                item = self._language.shortest(conjunction)
                if item is None:
                    continue
                after_seen = self.with_value(seen, item) if apart else seen
                after: State = (min(count + 1, self.count_to), after_met, after_seen)
                spent = cost + len(item) + 1
                if after in self._known:
                    known = self._known[after]
                    if known is not None:
                        whole = spent + sum(len(text) + 1 for text in known)
                        step = whole, 0, next(tie), whole, _CLOSED, (*items, item, *known)
                        heapq.heappush(heap, step)
                    continue
                ahead, missing = self._ahead(after)
                heapq.heappush(
                    heap, (spent + ahead, missing, next(tie), spent, after, (*items, item))
                )
        return None

    def _ahead(self, state: State) -> tuple[int, int]:
        """Return the least bytes still to come, and how many items one ``contains`` still misses.

        Both are 0 but where no item can be contained twice: else one may do for several.
        """
        least = self.least_contained
        if least is None:
            return 0, 0
        cost = missing = 0
        for some, k, size in zip(self.contains, state[1], least, strict=True):
            if k < some.least:
                missing += some.least - k
                cost += (some.least - k) * (size + 1)
        return cost, missing

    @cached_property
    def _is_hopeless(self) -> bool:
        """Whether plainly no items close the array: there have to be more of one kind than there
        may be of a wider one, say.

        Raises:
            CompileLimitExceeded: one item can meet what has to be contained in too many ways.
        """
        if self.unique and self.repeats:
            return True
        if len(self.contains) < 2 or self.are_apart:
            return False
        language, zeros = self._language, (0,) * len(self.contains)
        most = min(MAX_WAYS, int((WORK.limits.work // _WORK_OF_WAYS) ** 0.5))
        for index in {0, self.prefix, *(some.start for some in self.contains)}:
            for number, _ in enumerate(self.ways((index, zeros, ()))):
                if number >= most:
                    raise CompileLimitExceeded(
                        f"one item can match too many 'contains' at once, at {self.path}; remove "
                        "some, or make them mutually exclusive (for example, with const)",
                        limit=most,
                        actual=number + 1,
                    )
        return any(
            wide.most is not None
            and wide.most < some.least
            and wide.start <= some.start
            and language.values.clearly_empty(
                language.conjunctions.extended(
                    language.conjunctions.of([some.requirement]), [wide.requirement ^ 1]
                )
            )
            for some in self.contains
            for wide in self.contains
        )

    def with_one_more(self, state: State) -> Text | None:
        """Return the fewest bytes that close the array after at least one more item."""
        best: Text | None = None
        for conjunction, met in self.chosen_ways(state):
            item = self._language.shortest(conjunction)
            if item is None:
                continue
            after: State = (min(state[0] + 1, self.count_to), met, state[2])
            if self.item_matters(state):
                after = (after[0], met, self.with_value(state[2], item))
            rest = self.rest(after, False)
            if rest is not None and (best is None or len(item) + len(rest) < len(best)):
                best = put(item, rest)
        return best


class ArrayPlan(Frame):
    """The frame of an array owed to the array assertions of several nodes at once.

    Machine states are ``2 * i`` while punctuation is written and ``2 * i + 1`` during an item, for
    the i-th interned `State`.

    Attributes:
        spec: what its items owe.
    """

    nests = True

    def __init__(self, language: Language, nodes: tuple[int, ...]) -> None:
        self._language = language
        self._numbers = nodes
        self.limit = language.limit_below(nodes)
        self._has_nodes = bool(nodes)
        self.spec = spec = ArrayClosing(language, nodes)
        if not spec.is_simple:
            self.may_record = spec.unique or spec.repeats
        self._limit: int | None = None
        self._states: list[State] = []
        self._state_ids: dict[State, int] = {}
        self._with_item: dict[State, Text | None] = {}
        self._spares: dict[int, tuple[Text, ...]] = {}
        self._others: dict[int, tuple[Text | None, dict[Any, Any]]] = {}

    @property
    def path(self) -> str:
        """Where in the schema the array is, for messages."""
        return self.spec.path

    # -- what may follow --------------------------------------------------------------------

    def _state(self, state: State) -> int:
        found = self._state_ids.get(state)
        if found is None:
            found = self._state_ids[state] = len(self._states)
            self._states.append(state)
        return found

    def _may(self, state: State) -> tuple[bool, bool]:
        """Return whether another item, and whether ``]``, may follow."""
        spec = self.spec
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
        """Yield the ways for one more item that do not lead into a dead end."""
        spec = self.spec
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
        return self.spec.is_simple or self.spec.items(state) is not None

    def _most(self) -> int | None:
        """Most items possible: ``maxItems``, or the first item that nothing satisfies."""
        spec = self.spec
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
        spec = self.spec
        out = [spec.item(i) for i in range(spec.prefix + 1)]
        if spec.contains:
            out += [conjunction for conjunction, _ in spec.ways(spec.start())]
        return out

    def required_children(self) -> list[int]:
        """Return the conjunctions that every such array has an item for."""
        spec = self.spec
        if spec.max is not None and spec.max < spec.min:
            return [FALSE]
        return [spec.item(i) for i in range(min(spec.min, spec.prefix + 1))]

    # -- what tells a plain array from others (`apart`) -------------------------------------------

    @property
    def is_plain(self) -> bool:
        """Whether items owe nothing to each other."""
        return self.spec.is_simple

    first = 0
    """How many items a plain array has at its beginning; its places are such counts."""

    def choices(self, count: int) -> tuple[Iterable[int], bool, bool]:
        """Return the items that may follow ``count``, if endlessly many, and if ``]`` may."""
        item, close = self._may((min(count, self.spec.count_to), (), ()))
        return range(count, count + item), item and self._most() is None, close

    def after(self, count: int, index: int) -> int:
        """Return the number of items after one."""
        return count + 1

    def owed(self, index: int) -> int:
        """Return the conjunction that an item of a plain array is owed to."""
        return self.spec.item(index)

    def ended(self, count: int) -> int:
        """Return the frame's state when the last of that many items of a plain array has ended."""
        return 2 * self._state((min(count, self.spec.count_to), (), ())) + 1

    def holds(self, value: Any) -> bool:
        """Return whether ``value`` is such an array."""
        return isinstance(value, list) and all(
            evaluate.holds(self._language.nodes, 2 * n, value) for n in self._numbers
        )

    def size_at_least(self, size: int) -> bool:
        """Return True if a cheap test shows that there are ``size`` such arrays."""
        if not self.is_plain or not self.is_possible():
            return False
        most, spec = self._most(), self.spec
        return most is None or any(
            self._language.values.size_at_least(spec.item(index), size)
            for index in range(min(most, spec.prefix + 1))
        )

    def is_possible(self) -> bool:
        """Return whether any array satisfies the nodes."""
        spec = self.spec
        if spec.is_simple:
            most = self._most()
            return most is None or spec.min <= most
        if not spec.min and not spec.contains and not spec.repeats:
            return True
        return self.shortest_text() is not None

    # -- the frame --------------------------------------------------------------------------

    def open(self) -> Alternative:
        """Return how such an array starts."""
        leaf = array_leaf(self._language.space)
        state = self.spec.start()
        return Alternative(leaf, leaf.open(*self._may(state)), ((self, 2 * self._state(state)),))

    def records(self, at: int, outcome: int) -> bool:
        """Return whether `resume` needs the text of the item that has just ended."""
        if not at & 1:
            return False
        return self.spec.unique or (self.spec.repeats and self._states[at >> 1][2] != REPEATED)

    def forget(self, at: int, outcome: int) -> int | None:
        """See `frames.Frame`: where there are more items than those that may have been written."""
        spec = self.spec
        count, met, seen = self._states[at >> 1]
        if not at & 1 or not spec.unique or spec.contains or spec.repeats:
            return None
        forgotten = forgetting(len(seen) + 1)
        if spec.max is None or count < spec.max:
            needed = max(forgotten[1], spec.min) + 1
            if count < spec.prefix or not self._language.values.size_at_least(
                spec.item(count), needed
            ):
                return None
        return 2 * self._state((count, met, forgotten)) + 1

    def forgotten(self, at: int) -> int:
        """See `frames.Frame`."""
        seen = self._states[at >> 1][2]
        return seen[1] if is_forgotten(seen) else 0

    def resume(
        self, at: int, outcome: int, text: bytes | None = None, limited: bool = False
    ) -> tuple[Alternative, ...]:
        """Return what may follow; see `frames.Frame`."""
        spec = self.spec
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
        """Return the fewest bytes that close the array; see `frames.Frame`."""
        state = self._states[at >> 1]
        if is_forgotten(state[2]):
            return self._finish_forgotten(state, bool(at & 1), outcome)
        if at & 1:
            if text is None:
                return self.spec.rest(state, False)
            value = json.loads(text)
            rest, special = self._otherwise(at >> 1)
            if rest is not None and json_key(value) not in special:
                return rest
            return self._finish_after(at >> 1, value)
        if outcome == CLOSE:
            return b""
        if state in self._with_item:
            return self._with_item[state]
        found = self.spec.with_one_more(state)
        if self.spec.contains and not self._language.values.is_solving:
            self._with_item[state] = found
        return found

    def _finish_after(self, number: int, value: Any) -> Text | None:
        """Like `finish`, in state ``number``, after an item that is ``value``."""
        spare = self._spare_items(number)
        if spare:
            key = json_key(value)
            left = [item for item in spare if json_key(json.loads(flat(item))) != key]
            return self.spec.written(tuple(left[: len(spare) - 1]), False)
        count, met, seen = self._states[number]
        return self.spec.written(self.spec.items((count, met, self.spec.with_(seen, value))), False)

    def _finish_forgotten(self, state: State, is_after: bool, outcome: int) -> Text | None:
        """As `finish`, where it is forgotten what is barred: as many bytes as that takes at most,
        but not these."""
        if not is_after and outcome == CLOSE:
            return b""
        count, _, (_, most) = state
        owed = max(self.spec.min - count, 0 if is_after else 1)
        if not owed:
            return self.spec.written((), False)
        leaves, _ = self._language.shapes(self.spec.item(count))
        sizes = [bytes_of_many(leaf, q, most + owed) for leaf, q in leaves]
        size = min([size for size in sizes if size is not None], default=None)
        return (
            None
            if size is None
            else self.spec.written((repeated(b"?", size),) * owed, not is_after)
        )

    def finish_reads(self, at: int, outcome: int) -> bool:
        """Return whether more items are owed, none equal to the item that just ended."""
        spec = self.spec
        count, _, seen = self._states[at >> 1]
        if is_forgotten(seen):
            return False
        return bool(spec.contains or spec.repeats or count < spec.min)

    def finish_otherwise(self, at: int, outcome: int) -> tuple[Text, Collection[Any]] | None:
        """See `frames.Frame`."""
        rest, special = self._otherwise(at >> 1)
        return None if rest is None else (rest, special.values())

    def _otherwise(self, number: int) -> tuple[Text | None, dict[Any, Any]]:
        """Return what closes the array in state ``number`` after any item but certain ones, by
        their keys: those that are written to close it, and those of which there are few."""
        spec = self.spec
        found = self._others.get(number)
        if found is None:
            items = None if spec.repeats else self.spec.items(self._states[number])
            special: list[Any] = []
            if items is not None:
                special += [json.loads(flat(item)) for item in dict.fromkeys(items)]
                for values in spec.rare().values() if spec.unique else ():
                    special += [spec.values[v] for v in values]
            found = self.spec.written(items, False), {json_key(value): value for value in special}
            self._others[number] = found
        return found

    def finish_most(self, at: int, outcome: int) -> int | None:
        """See `frames.Frame`."""
        number = at >> 1
        spare = self._spare_items(number)
        if spare:
            whole = self.spec.written(spare[1:], False)  # without the shortest
            return None if whole is None else len(whole)
        rest, special = self._otherwise(number)
        if rest is None or len(special) > MAX_LISTED:
            return None
        after = [self._finish_after(number, value) for value in special.values()]
        return max([len(rest), *[len(way) for way in after if way is not None]])

    def _spare_items(self, number: int) -> tuple[Text, ...]:
        """Return the cheapest distinct items for state ``number``, one more than are owed.

        Whatever the item is that ends there, without the one equal to it enough are left. Empty
        where that is not certain: objects and arrays have no exact shortest text to count on.
        """
        spec = self.spec
        found = self._spares.get(number)
        if found is None:
            found = ()
            count, _, seen = self._states[number]
            is_simple = not spec.contains and not spec.repeats and count >= spec.prefix
            if is_simple and not self._language.shapes(spec.item(count))[1]:
                found = self.spec.distinct(count, spec.min + 1, seen) or ()
            self._spares[number] = found
        return found

    def preferred(self, at: int) -> int | None:
        """Return the outcome that `finish` counts on; see `frames.Frame`."""
        if at & 1:
            return None
        state = self._states[at >> 1]
        if self.spec.is_simple or is_forgotten(state[2]):
            return ITEM if state[0] < self.spec.min else CLOSE
        return ITEM if self.spec.items(state) else CLOSE

    def shortest_text(self) -> Text | None:
        """Return the shortest whole array, or None when there is none (or none known yet)."""
        return whole(self._language, b"[", self.spec.rest(self.spec.start(), True))
