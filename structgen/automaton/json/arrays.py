"""JSON arrays: the frame of one open array.

`ArrayPlan` knows what may follow in an array and what closes it, by the numbers of its `State`s.
`array_spec` knows the requirements on items, `whitespace` the punctuation.

`ArrayClosing` finds the cheapest items that close an array. Plain bounds need only a list. Items
that must differ are chosen one after the other. For ``contains`` it searches (A* over counts, each
step one item), or shows that there is no way.
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
from structgen.storage import Numbers, cached_method

from .language import MAX_LISTED, Language, ending, whole
from .whitespace import CLOSE, ITEM, array_leaf

MAX_SEARCH = 20_000
"""The most states that the search for the shortest way to close an array may visit."""

MAX_WAYS = 256
"""The most sets of ``contains`` that one item may meet together. Each is followed separately.

Why pairs of ways bound the work of a mask with a token budget: before an item, the mask follows
each way of that item. After the item, it needs the first item of a plan, which is again one of the
ways. The rest of each plan is cached by place (`_closings`). So for w ways a mask looks at w places
with w ways each, a few steps per look. `compile` checks that this square fits into the limits of
one call. `_search` bounds the number of places, and every look is counted, so anything beyond this
estimate ends at the limit on work.
"""

_WORK_OF_WAYS = 16
"""Steps of a mask with a token budget for each pair of ways."""

_CLOSED: State = (-1, (), ())
"""In a search: the array is closed."""

_FEW_STATES = 256
"""The most states of an array that are all computed at once."""

_Step = tuple[int, int, int, int, State, tuple[Text, ...]]
"""(bytes at least, items missing, a tiebreaker, bytes so far, state, items)."""


class ArrayClosing(ArraySpec):
    """Finds the bytes that close an array."""

    _language: Language

    def __init__(self, language: Language, nodes: tuple[int, ...]) -> None:
        super().__init__(language, nodes)
        self._known: dict[State, tuple[Text, ...] | None] = {}
        self._cheapest: list[tuple[Text, int]] = []

    def rest(self, state: State, first: bool) -> Text | None:
        """Return the fewest bytes that close the array after ``state``, or None if none can."""
        if not self.is_simple:
            return self.written(self.items(state), first)
        if self.is_contradictory:
            return None
        language, count = self._language, state[0]
        items: list[Text] = []
        for index in range(count, min(self.min, self.prefix)):
            item = language.shortest(self.item(index))
            if item is None:
                return None
            items.append(item)
        times = self.min - max(count, self.prefix)
        if times > 0:  # any number: they are not listed
            item = language.shortest(self.item(self.prefix))
            if item is None:
                return None
            items.append(put(item, repeated(put(language.space.comma, item), times - 1)))
        return self.written(tuple(items), first)

    def written(self, items: tuple[Text, ...] | None, first: bool) -> Text | None:
        """Return items and ``]``, after the ``[`` or after another item."""
        return ending(self._language, items, first, b"]")

    def items(self, state: State) -> tuple[Text, ...] | None:
        """Return the cheapest items that are still required after ``state``, or None if the array
        cannot be closed."""
        found = self._known.get(state, False)
        if found is False:
            if self.contains or self.repeats:
                found = None if self._is_hopeless else self._contained_apart(state)
                if found == ():
                    self._close_those_after(state)
                    found = self._search(state)
            else:
                count, _, seen = state
                found = None if self.is_contradictory else self.distinct(count, self.min, seen)
            if not self._language.values.is_solving:
                self._known[state] = found
        return found  # type: ignore[return-value]

    def distinct(self, first: int, end: int, seen: tuple[int, ...]) -> tuple[Text, ...] | None:
        """Return the cheapest items ``first`` to ``end`` - 1, distinct if required."""
        if self.share_values(first) and not is_forgotten(seen):
            return self.cheapest_but(seen, end - first)
        items: list[Text] = []
        for index in range(first, end):
            item = self._language.shortest(self.item(index, self.barred(index, seen)))
            if item is None:
                return None
            items.append(item)
            if self.unique:
                seen = self.with_value(seen, item)
        return tuple(items)

    def share_values(self, first: int) -> bool:
        """Return whether item ``first`` and all later ones may have the same values, in one array
        each only once, and enough of them."""
        return self.unique and first >= self.prefix and not self.rare()

    def cheapest_but(self, seen: tuple[int, ...], n: int) -> tuple[Text, ...] | None:
        """Return the ``n`` cheapest values of an item that are not in ``seen``.

        They are the first ones of a list that all states share: with a search for each, 200 objects
        took 32 s.
        """
        language = self._language
        cheapest = [] if language.values.is_solving else self._cheapest
        barred, items, i = set(seen), list[Text](), 0
        while len(items) < n:
            if i == len(cheapest):
                before = tuple(sorted([number for _, number in cheapest]))
                text = language.shortest(self.item(self.prefix, before))
                if text is None:
                    return None
                cheapest.append((text, language.numbered.number(json.loads(flat(text)))))
            if cheapest[i][1] not in barred:
                items.append(cheapest[i][0])
            i += 1
        WORK.spend(1 + (i + len(seen) >> 3))
        return tuple(items)

    def _contained_apart(self, state: State) -> tuple[Text, ...] | None:
        """Return the cheapest items after ``state`` if no search is needed: all items have the same
        requirements, and no value is in two of the ``contains`` lists. Else ()."""
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
        """First close the array after each way of the next item, if these lead to few states:
        otherwise, the search from each state would visit every set's subsets again."""
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
        """Return whether a later item can meet ``contains`` number ``index``, or none needs to."""
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
        # Every step with unique items needs a new conjunction.
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
                continue  # more items would not help
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
        """Return a lower bound on the remaining bytes, and how many items one ``contains`` still
        needs.

        Both are 0 unless no item can meet two ``contains``; otherwise one item may serve several.
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
        """Return whether obviously no items close the array, for example if it needs more items of
        one kind than it may have of a wider kind.

        Raises:
            CompileLimitExceeded: one item can meet the ``contains`` in too many ways.
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
        count, _, seen = state
        if not self.contains and not self.repeats and self.share_values(count):
            items = self.cheapest_but(seen, max(self.min - count, 1))
            rest = self.written(items and items[1:], False)
            return None if items is None or rest is None else put(items[0], rest)
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
    """The frame of an array to which the array assertions of several nodes apply.

    Machine states are ``2 * i`` while punctuation is written and ``2 * i + 1`` during an item, for
    the i-th interned `State`.
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
        self._numbered: Numbers[State] = Numbers()
        self._states = self._numbered.listed
        self._with_item: dict[State, Text | None] = {}

    @property
    def path(self) -> str:
        """The array's place in the schema, for messages."""
        return self.spec.path

    # -- what may follow --------------------------------------------------------------------

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
        if not spec.contains and not spec.repeats:
            is_viable = count >= spec.min or (
                not spec.is_contradictory and spec.share_values(count)
            )
            if is_viable and spec.has_more(state):
                return True, close
        return any(True for _ in self._open_ways(state)), close

    def _open_ways(self, state: State) -> Iterator[tuple[int, State]]:
        """Yield the ways of the next item that do not lead into a dead end."""
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
                # Later items cannot equal each other: this one has to equal another.
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
        """Return the most items possible: ``maxItems``, or the index of the first item without a
        value."""
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
        """Return the conjunctions for the items."""
        spec = self.spec
        out = [spec.item(i) for i in range(spec.prefix + 1)]
        if spec.contains:
            out += [conjunction for conjunction, _ in spec.ways(spec.start())]
        return out

    def required_children(self) -> list[int]:
        """Return conjunctions such that every array has an item of each."""
        spec = self.spec
        if spec.is_contradictory:
            return [FALSE]
        return [spec.item(i) for i in range(min(spec.min, spec.prefix + 1))]

    # -- what tells a plain array from others (`apart`) -------------------------------------------

    @property
    def is_plain(self) -> bool:
        """Whether the requirements on items do not depend on each other."""
        return self.spec.is_simple

    first = 0
    """The number of items at the start of a plain array; its places are such counts."""

    def choices(self, count: int) -> tuple[Iterable[int], bool, bool]:
        """Return the items that may follow ``count``, whether there is no limit, and whether ``]``
        may."""
        item, close = self._may((min(count, self.spec.count_to), (), ()))
        return range(count, count + item), item and self._most() is None, close

    def after(self, count: int, index: int) -> int:
        """Return the number of items after one more."""
        return count + 1

    def owed(self, index: int) -> int:
        """Return the conjunction for an item of a plain array."""
        return self.spec.item(index)

    def ended(self, count: int) -> int:
        """Return the frame's state after that many items of a plain array."""
        return 2 * self._numbered[min(count, self.spec.count_to), (), ()] + 1

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
        """Return the alternatives with which such an array may start."""
        leaf = array_leaf(self._language.space)
        state = self.spec.start()
        return Alternative(leaf, leaf.open(*self._may(state)), ((self, 2 * self._numbered[state]),))

    def records(self, at: int, outcome: int) -> bool:
        """Return whether `resume` needs the text of the item that has just ended."""
        if not at & 1:
            return False
        return self.spec.unique or (self.spec.repeats and self._states[at >> 1][2] != REPEATED)

    def forget(self, at: int, outcome: int) -> int | None:
        """See `frames.Frame`: possible where more values exist than may have been written."""
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
        return 2 * self._numbered[count, met, forgotten] + 1

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
                own = self, 2 * self._numbered[after] + 1
                for way in self._language.alternatives(conjunction, limited):
                    out += (Alternative(way.leaf, way.q, (*way.frames, own)),)
            return tuple(out)
        if text is not None:
            state = (state[0], state[1], spec.with_value(state[2], text))
        leaf = array_leaf(self._language.space)
        item, close = self._may(state)
        if not item and not close:
            return ()
        own = self, 2 * self._numbered[state]
        return (Alternative(leaf, leaf.after_item(item, close), (own,)),)

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
        """Like `finish`, in state ``number``, after the item ``value``."""
        spare = self._spare_items(number)
        if spare and not self.spec.share_values(self._states[number][0]):
            key = json_key(value)
            left = [item for item in spare if json_key(json.loads(flat(item))) != key]
            return self.spec.written(tuple(left[: len(spare) - 1]), False)
        count, met, seen = self._states[number]
        return self.spec.written(self.spec.items((count, met, self.spec.with_(seen, value))), False)

    def _finish_forgotten(self, state: State, is_after: bool, outcome: int) -> Text | None:
        """Like `finish` in a state that has forgotten which values are barred: as many bytes as
        needed at most, but not the real ones."""
        if not is_after and outcome == CLOSE:
            return b""
        count, _, (_, most) = state
        owed = max(self.spec.min - count, 0 if is_after else 1)
        if not owed:
            return self.spec.written((), False)
        size = self._language.values.bytes_of_many(self.spec.item(count), most + owed)
        if size is None:
            return None
        return self.spec.written((repeated(b"?", size),) * owed, not is_after)

    def finish_reads(self, at: int, outcome: int) -> bool:
        """Return whether more items are required, none equal to the item that just ended."""
        spec = self.spec
        count, _, seen = self._states[at >> 1]
        if is_forgotten(seen):
            return False
        return bool(spec.contains or spec.repeats or count < spec.min)

    def finish_otherwise(self, at: int, outcome: int) -> tuple[Text, Collection[Any]] | None:
        """See `frames.Frame`."""
        rest, special = self._otherwise(at >> 1)
        return None if rest is None else (rest, special.values())

    @cached_method
    def _otherwise(self, number: int) -> tuple[Text | None, dict[Any, Any]]:
        """Return the bytes that close the array in state ``number`` after any item except certain
        ones, by `json_key`: the items used to close it, and those with few values."""
        spec = self.spec
        items = None if spec.repeats else spec.items(self._states[number])
        special: list[Any] = []
        if items is not None:
            special += [json.loads(flat(item)) for item in dict.fromkeys(items)]
            for values in spec.rare().values() if spec.unique else ():
                special += [spec.values[v] for v in values]
        return spec.written(items, False), {json_key(value): value for value in special}

    def finish_most(self, at: int, outcome: int) -> int | None:
        """See `frames.Frame`."""
        number = at >> 1
        spare = self._spare_items(number)
        if spare:
            longest = tuple(sorted(spare, key=len)[1:])
            whole = self.spec.written(longest, False)
            return None if whole is None else len(whole)
        rest, special = self._otherwise(number)
        if rest is None or len(special) > MAX_LISTED:
            return None
        after = [self._finish_after(number, value) for value in special.values()]
        return max([len(rest), *[len(way) for way in after if way is not None]])

    @cached_method
    def _spare_items(self, number: int) -> tuple[Text, ...]:
        """Return the cheapest distinct items for state ``number``, one more than required.

        So enough items remain without the one that equals the item ending there. Empty if that is
        not certain.
        """
        spec = self.spec
        count, _, seen = self._states[number]
        is_simple = not spec.contains and not spec.repeats and count >= spec.prefix
        # Objects and arrays have no exact shortest text.
        if is_simple and (
            spec.share_values(count) or not self._language.shapes(spec.item(count))[1]
        ):
            return spec.distinct(count, spec.min + 1, seen) or ()
        return ()

    def preferred(self, at: int) -> int | None:
        """Return the outcome that `finish` assumes; see `frames.Frame`."""
        if at & 1:
            return None
        state = self._states[at >> 1]
        if self.spec.is_simple or is_forgotten(state[2]):
            return ITEM if state[0] < self.spec.min else CLOSE
        return ITEM if self.spec.items(state) else CLOSE

    def shortest_text(self) -> Text | None:
        """Return the shortest whole array, or None if there is none (or none known yet)."""
        return whole(self._language, b"[", self.spec.rest(self.spec.start(), True))
