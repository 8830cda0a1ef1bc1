"""What closes an array: the cheapest items that are still owed after a state.

Plain bounds need a list; items that must differ are chosen one after the other; what has to be
contained is searched for (A* over counts, each step one item), or shown to be hopeless. Knows no
leaves and no frames.
"""

from __future__ import annotations

import heapq
import itertools
from functools import cached_property

from structgen.automaton.texts import Text, joined, put, repeated
from structgen.automaton.work import WORK
from structgen.errors import CompileLimitExceeded

from .array_spec import ArraySpec, State
from .language import Language

MAX_SEARCH = 20_000
"""Most states a search for the shortest way to close one array may visit."""

MAX_WAYS = 256
"""Most sets of ``contains`` that one item may meet together: each is followed by itself.

Why the pairs bound a mask within a budget: in the place before an item it follows each way of that
item, and of the place after it the first item of a plan is asked for, which is one of the ways
again. What those plans go on with is remembered by place (`_closings`). So for w ways a mask looks
at w places and w ways of each, and each look is a few steps: the square is bounded, at compile, by
what one call may do. How many places there are in all is bounded by `_search`, and every look is
counted, so that what this leaves out ends in the limit on work, not in a call without an end.
"""

_WORK_OF_WAYS = 16
"""Steps of a mask within a budget for each pair of them."""

_CLOSED: State = (-1, (), ())
"""In a search: nothing further is needed."""

_FEW_STATES = 256
"""Most states of an array that are all worked out at once."""

_Step = tuple[int, int, int, int, State, tuple[Text, ...]]
"""(bytes at least, items missing, a number, bytes so far, state, items)."""


class ArrayClosing:
    """Closes the arrays of one `ArraySpec`."""

    def __init__(self, language: Language, spec: ArraySpec) -> None:
        self._language = language
        self._spec = spec
        self._known: dict[State, tuple[Text, ...] | None] = {}

    def rest(self, state: State, first: bool) -> Text | None:
        """The fewest bytes that close the array after ``state``, or None when that is hopeless."""
        spec = self._spec
        if not spec.is_simple:
            return self.written(self.items(state), first)
        if spec.max is not None and spec.max < spec.min:
            return None
        language, count = self._language, state[0]
        items: list[Text] = []
        for index in range(count, min(spec.min, spec.prefix)):
            item = language.values.shortest(spec.item(index))
            if item is None:
                return None
            items.append(item)
        times = spec.min - max(count, spec.prefix)
        if times > 0:  # however many: they are not listed
            item = language.values.shortest(spec.item(spec.prefix))
            if item is None:
                return None
            items.append(put(item, repeated(put(language.least_comma, item), times - 1)))
        return self.written(tuple(items), first)

    def written(self, items: tuple[Text, ...] | None, first: bool) -> Text | None:
        """Items and ``]``, after the ``[`` or after another item."""
        if items is None:
            return None
        space, comma = self._language.least_space, self._language.least_comma
        out = joined(comma, items)
        if items and not first:
            out = put(comma, out)
        return put(out, (space if items or not first else b"") + b"]")

    def items(self, state: State) -> tuple[Text, ...] | None:
        """The cheapest items that are still owed after ``state``, or None when that is hopeless."""
        found = self._known.get(state, False)
        if found is False:
            if self._spec.contains or self._spec.repeats:
                found = None if self._is_hopeless else self._contained_apart(state)
                if found == ():
                    self._close_those_after(state)
                    found = self._search(state)
            else:
                found = self._distinct_closing(state)
            if not self._language.values.is_solving:
                self._known[state] = found
        return found  # type: ignore[return-value]

    def _distinct_closing(self, state: State) -> tuple[Text, ...] | None:
        spec = self._spec
        count, _, seen = state
        if spec.max is not None and spec.max < spec.min:
            return None
        return self.distinct(count, spec.min, seen)

    def distinct(self, first: int, end: int, seen: tuple[int, ...]) -> tuple[Text, ...] | None:
        """The cheapest items number ``first`` to ``end`` - 1, distinct where they have to be."""
        spec = self._spec
        items: list[Text] = []
        for index in range(first, end):
            item = self._language.values.shortest(spec.item(index, spec.barred(index, seen)))
            if item is None:
                return None
            items.append(item)
            if spec.unique:
                seen = spec.with_value(seen, item)
        return tuple(items)

    def _contained_apart(self, state: State) -> tuple[Text, ...] | None:
        """The cheapest items after ``state`` where no search is needed: every item owes the same,
        and no value is in two of the lists of what is to be contained. Else ()."""
        spec = self._spec
        count, met, seen = state
        if spec.repeats or not spec.are_apart or count < spec.prefix:
            return ()
        language = self._language
        items: list[Text] = []
        for some, k in zip(spec.contains, met, strict=True):
            for _ in range(some.least - k):
                base = spec.item(count, spec.seen_of(some, seen))
                item = language.values.shortest(
                    language.conjunctions.extended(base, [some.requirement])
                )
                if item is None:
                    return None
                items.append(item)
                seen = spec.with_value(seen, item) if spec.unique else seen
        more = spec.min - count - len(items)
        if more > 0:
            rest = self.distinct(spec.min - more, spec.min, seen)
            if rest is None:
                return None
            items += rest
        fits = spec.max is None or count + len(items) <= spec.max
        return tuple(items) if fits else None

    def _close_those_after(self, state: State) -> None:
        """Find what closes the array after each way of the next item first, where these are few
        states in all: searches from each of them anew would visit every set's subsets again."""
        spec = self._spec
        count, met, _ = state
        n_states = spec.count_to - count + 1
        for some, k in zip(spec.contains, met, strict=True):
            n_states *= max(some.least, some.most or 0) - k + 1
        if (
            spec.unique
            or spec.repeats
            or self._language.values.is_solving
            or n_states > _FEW_STATES
        ):
            return
        for _, after_met in spec.ways(state):
            after: State = (min(count + 1, spec.count_to), after_met, ())
            if after != state:
                self.items(after)

    def _can_contain(self, index: int, state: State) -> bool:
        """Whether what ``contains`` number ``index`` still misses can be an item at all."""
        spec = self._spec
        some = spec.contains[index]
        if state[1][index] >= some.least:
            return True
        first = max(state[0], some.start)
        return any(
            self._language.values.shortest(
                self._language.conjunctions.extended(spec.item(at, state[2]), [some.requirement])
            )
            is not None
            for at in range(first, max(first, spec.prefix) + 1)
        )

    def _search(self, start: State) -> tuple[Text, ...] | None:
        """A* over counts: each step is one item."""
        # Every step of unique items has a new conjunction to work out.
        spec = self._spec
        limit = MAX_SEARCH // 100 if spec.unique or spec.repeats else MAX_SEARCH
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
                    f"too many ways to satisfy 'contains', at {spec.path}; ask for fewer items of "
                    "each kind, or leave out what says how many (minContains, uniqueItems)",
                    limit=limit,
                    actual=len(done),
                )
            count, _, seen = state
            if spec.is_complete(state):
                return items
            if spec.max is not None and count >= spec.max:
                continue
            if not all(self._can_contain(i, state) for i in range(len(spec.contains))):
                continue  # no number of further items would help
            apart = spec.tells_apart(state)
            for conjunction, after_met in spec.chosen_ways(state):
                item = self._language.values.shortest(conjunction)
                if item is None:
                    continue
                after_seen = spec.with_value(seen, item) if apart else seen
                after: State = (min(count + 1, spec.count_to), after_met, after_seen)
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
        """The bytes that are still to come at least, and items that one ``contains`` each misses.

        Both are 0 but where no item can be contained twice: else one may do for several.
        """
        least = self._spec.least_contained
        if least is None:
            return 0, 0
        cost = missing = 0
        for some, k, size in zip(self._spec.contains, state[1], least, strict=True):
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
        spec = self._spec
        if spec.unique and spec.repeats:
            return True
        if len(spec.contains) < 2 or spec.are_apart:
            return False
        language, zeros = self._language, (0,) * len(spec.contains)
        most = min(MAX_WAYS, int((WORK.limits.work // _WORK_OF_WAYS) ** 0.5))
        for index in {0, spec.prefix, *(some.start for some in spec.contains)}:
            for number, _ in enumerate(spec.ways((index, zeros, ()))):
                if number >= most:
                    raise CompileLimitExceeded(
                        f"one item can meet too many of the 'contains' together, at {spec.path}; "
                        "leave some out, or make them exclude each other (a const each)",
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
            for some in spec.contains
            for wide in spec.contains
        )

    def with_one_more(self, state: State) -> Text | None:
        """The fewest bytes that close the array after ``state``, with one more item at least."""
        spec = self._spec
        best: Text | None = None
        for conjunction, met in spec.chosen_ways(state):
            item = self._language.values.shortest(conjunction)
            if item is None:
                continue
            after: State = (min(state[0] + 1, spec.count_to), met, state[2])
            if spec.tells_apart(state):
                after = (after[0], met, spec.with_value(state[2], item))
            rest = self.rest(after, False)
            if rest is not None and (best is None or len(item) + len(rest) < len(best)):
                best = put(item, rest)
        return best
