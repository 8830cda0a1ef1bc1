"""JSON arrays: the punctuation leaf that all arrays share, and the frame of one open array.

`ArrayLeaf` writes ``[``, ``,`` and ``]`` with the whitespace around them. `ArrayPlan` is the frame:
its state is how many items are complete (no further than it matters), how many of them have met
each ``contains``, and which values have been written where they must be unique; it tells what the
next item owes. Whether an item meets a ``contains`` is guessed when it starts: it is then owed, or
(where there is a maximum) its opposite is, so that a wrong guess dies with the item.
"""

from __future__ import annotations

import heapq
import itertools
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

from structgen.automaton.core.frames import POP, Alternative
from structgen.automaton.core.leaf import Leaf
from structgen.automaton.texts import Text, flat, joined, put, repeated
from structgen.automaton.work import WORK
from structgen.errors import CompileLimitExceeded, UnsupportedFeature
from structgen.grammar.json_schema import FALSE, TRUE, Contains, Node, json_key

from .excluding import bytes_of_many
from .language import Language
from .matching import needed_by_others
from .whitespace import Whitespace

ITEM, CLOSE = 0, 1

MAX_ITEMS_OWED = 100_000
"""Largest ``minItems``: the shortest array has to be written down."""

MAX_TOLD = 100
"""Most values of an item for which ways to close the array are compared one by one."""

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

State = tuple[int, tuple[int, ...], tuple[int, ...]]
"""(items complete, items that met each contains, numbers of the values seen)."""

_CLOSED: State = (-1, (), ())
"""In a search: nothing further is needed."""

_FEW_STATES = 256
"""Most states of an array that are all worked out at once."""

REPEATED = (-1,)
"""Values seen once two of them have been equal, where that is all that matters."""

_FORGOTTEN = -2
"""In the place of values seen: it does not matter which they are, but how many at most, which comes
next. See `frames.Frame.forget`."""

_FEW_FORGOTTEN = 8
"""How many that are at least, so that states are shared."""


_CONTAINERS = ("object", "array")

_Step = tuple[int, int, int, int, State, tuple[Text, ...]]
"""(bytes at least, items missing, a number, bytes so far, state, items)."""

_INVOLVED = frozenset(["contains", "unique", "repeats"])
"""What a node may say of items beside the schemas of each and how many there may be."""


class ArrayLeaf(Leaf):
    """Array punctuation; ends with `ITEM` where an item starts, with `CLOSE` after ``]``."""

    def __init__(self, space: Whitespace) -> None:
        super().__init__()
        self._space = space

    def open(self, item: bool, close: bool) -> int:
        """State before ``[``, after which an item may come, or ``]``."""
        return self.state(("open", item, close))

    def after_item(self, item: bool, close: bool) -> int:
        """State after an item, where ``,`` and another item may come, or ``]``."""
        return self.state(("next", 0, item, close))

    def _edges(self, key: Any) -> Mapping[int, Any]:
        phase, *rest = key
        if phase == "open":
            return {0x5B: ("first", 0, *rest)}
        if phase == "closed":
            return {}
        space, item, close = rest
        edges: dict[int, Any] = {
            byte: (phase, to, item, close) for byte, to in self._space.edges[space].items()
        }
        if self._space.may_end[space]:
            if phase == "next" and item:
                edges[0x2C] = ("comma", self._space.after_mark, True, False)
            if close:
                edges[0x5D] = ("closed",)
        return edges

    def _label(self, key: Any) -> int:
        phase, *rest = key
        if phase == "closed":
            return CLOSE
        if phase in ("first", "comma") and rest[1] and self._space.may_end[rest[0]]:
            return ITEM
        return -1


@lru_cache(maxsize=64)
def _array_leaf(space: Whitespace) -> ArrayLeaf:
    return ArrayLeaf(space)


class ArrayPlan:
    """The frame of an array owed to the array assertions of several nodes at once.

    Machine states are ``2 * i`` while punctuation is written and ``2 * i + 1`` during an item, for
    the i-th interned `State`.
    """

    nests = True
    may_record = False

    def __init__(self, language: Language, nodes: tuple[int, ...]) -> None:
        self._language = language
        self.limit = language.limit_below(nodes)
        self._nodes = [language.nodes[n] for n in nodes]
        if len(nodes) == 1 and _INVOLVED.isdisjoint(vars(self._nodes[0])):  # as nearly always
            (node,) = self._nodes
            self._min, self._max, self._prefix = node.min_items, node.max_items, len(node.prefix)
        elif nodes:
            self._read_nodes()
        if self._min > MAX_ITEMS_OWED:
            path = next(n.path for n in self._nodes if n.min_items == self._min)
            raise CompileLimitExceeded(
                f"'minItems' at {path} asks for too many items",
                limit=MAX_ITEMS_OWED,
                actual=self._min,
            )
        starts = max([c.start for c in self._contains]) if self._contains else 0
        self._simple = not (self._contains or self._unique or self._repeats)
        self._count_to = max(self._prefix, self._min, self._max or 0, starts)
        self._limit: int | None = None
        self._states: list[State] = []
        self._state_ids: dict[State, int] = {}
        self._owed: dict[tuple[int, tuple[int, ...]], int] = {}

    # What most arrays have nothing of.

    _min = _prefix = 0
    _max: int | None = None
    _unique = _repeats = False
    _contains: Sequence[Contains] = ()
    _never: Sequence[int] = ()  # what every item has to meet beside

    # What the plainest do not need.

    @cached_property
    def _values(self) -> list[Any]:
        return []

    @cached_property
    def _value_ids(self) -> dict[Any, int]:
        return {}

    @cached_property
    def _closings(self) -> dict[State, tuple[Text, ...] | None]:
        return {}

    @cached_property
    def _with_item(self) -> dict[State, Text | None]:
        return {}

    @cached_property
    def _spares(self) -> dict[int, tuple[Text, ...]]:
        return {}

    @cached_property
    def _others(self) -> dict[int, tuple[Text | None, dict[Any, Any]]]:
        return {}

    @cached_property
    def _ruled_out(self) -> dict[tuple[int, tuple[int, ...]], tuple[int, ...]]:
        return {}

    _rarities: Mapping[int, tuple[int, ...]] | None = None

    def _read_nodes(self) -> None:
        """What `__init__` does, for any nodes."""
        self._min = max(n.min_items for n in self._nodes)
        limits = [n.max_items for n in self._nodes if n.max_items is not None]
        self._max = min(limits) if limits else None
        self._prefix = max(len(n.prefix) for n in self._nodes)
        self._unique = any(n.unique for n in self._nodes)
        self._repeats = any(n.repeats for n in self._nodes)
        self.may_record = self._unique or self._repeats
        contains: dict[Contains, None] = {}
        for node in self._nodes:
            contains.update(
                dict.fromkeys(c for c in node.contains if c.least or c.most is not None)
            )
        contains = dict.fromkeys(self._merged(contains))
        # What no item may be is no matter of counting.
        never = [c for c in contains if c.most == 0 and not c.least and not c.start]
        self._never = tuple([c.requirement ^ 1 for c in never])
        self._contains = [c for c in contains if c not in never]
        if (
            self._repeats
            and self._contains
            and any(c.most is not None for c in self._contains)
            | (self._max is not None)
            | any(n.items == FALSE for n in self._nodes)
        ):
            path = next(n.path for n in self._nodes if n.repeats)
            raise UnsupportedFeature(
                "'uniqueItems' that must not hold, beside 'contains' and a bound on the items, is "
                f"not supported, at {path}.",
                path=path,
                keyword="uniqueItems",
                fix="Move it out of the negated part, or use anyOf.",
            )
        # After that: such a plan may be impossible here and refused once more is owed.
        if any(self._cannot_meet(some) for some in contains):
            self._min, self._max, self._never, self._contains = 1, 0, (), []
            self._unique = self._repeats = self.may_record = False

    def _merged(self, contains: Iterable[Contains]) -> list[Contains]:
        """``contains`` with one bound for what several nodes say of the same items."""
        found: dict[tuple[int, int], Contains] = {}
        for some in contains:
            known = found.get((some.requirement, some.start), some)
            mosts = [most for most in (known.most, some.most) if most is not None]
            found[some.requirement, some.start] = Contains(
                some.requirement, max(known.least, some.least), min(mosts, default=None), some.start
            )
        return list(found.values())

    def _cannot_meet(self, some: Contains) -> bool:
        """Whether plainly no array has so many items of a kind: no search would tell it soon."""
        if some.most is not None and some.most < some.least:
            return True
        if self._max is not None and some.least > max(self._max - some.start, 0):
            return True
        listing = self._language.listings.of(some.requirement) if self._unique else None
        return listing is not None and len(listing.keys) < some.least

    # -- what items owe ---------------------------------------------------------------------

    def _item(self, index: int, seen: tuple[int, ...] = ()) -> int:
        """The conjunction that item ``index`` is owed to, whatever it must contain."""
        key = (min(index, self._prefix), seen)
        found = self._owed.get(key)
        if found is None:
            nodes = self._nodes
            if len(nodes) == 1 and not seen and not self._never:  # as nearly always
                (node,) = nodes
                found = node.prefix[index] if index < self._prefix else node.items
                self._owed[key] = found
                return found
            owed = [n.prefix[index] if index < len(n.prefix) else n.items for n in nodes]
            owed += self._never
            if seen:
                WORK.spend(5 + len(seen))
                values = [self._values[v] for v in seen]
                scalars = tuple(v for v in values if not isinstance(v, (dict, list)))
                if scalars:
                    owed.append(self._language.add(Node(self.path, excluded=scalars)))
                owed += [
                    self._language.constant(v) ^ 1 for v in values if isinstance(v, (dict, list))
                ]
            found = self._owed[key] = self._language.conjunction(owed)
        return found

    @property
    def is_unique(self) -> bool:
        """Whether no two items may be equal."""
        return self._unique

    @property
    def repeats(self) -> bool:
        """Whether two items have to be equal."""
        return self._repeats

    @property
    def is_searched(self) -> bool:
        """Whether what closes the array has to be searched for, among many ways perhaps."""
        return bool(self._contains) or self._repeats

    @property
    def path(self) -> str:
        """Where in the schema the array is, for messages."""
        return self._nodes[0].path if self._nodes else "$"

    def _ways(self, state: State) -> Iterator[tuple[int, tuple[int, ...]]]:
        """For one more item: the conjunction it owes, and the contains counts after it."""
        count, met, seen = state
        if self._unique and not _is_forgotten(seen):
            base = self._item(count, self._barred(count, seen))
        else:
            base = self._item(count)
        if not self._contains:
            yield base, met
            return
        if self._are_apart:
            yield from self._ways_apart(base, met)
            return
        options: list[list[tuple[int, int]]] = []
        for some, k in zip(self._contains, met, strict=True):
            if count < some.start or (some.most is None and k >= some.least):
                options.append([(TRUE, k)])
            elif some.most is None:
                # Where it lists values, others are told from these: no item is left a guess.
                other = some.requirement ^ 1 if self._lists(some.requirement) else TRUE
                options.append([(other, k), (some.requirement, k + 1)])
            else:
                options.append([(some.requirement ^ 1, k)])
                if k < some.most:
                    options[-1].append((some.requirement, k + 1))
        yield from self._combined(base, options)

    def _ways_apart(self, base: int, met: tuple[int, ...]) -> Iterator[tuple[int, tuple[int, ...]]]:
        """As `_ways`, where no value is in two of the lists of what is to be contained."""
        language = self._language
        missing = [i for i, c in enumerate(self._contains) if met[i] < c.least]
        WORK.spend(3 + len(missing))
        barred = [self._contains[i].requirement ^ 1 for i in missing]
        yield language.conjunction_with(base, barred) if barred else base, met
        for i in missing:
            owed = language.conjunction_with(base, [self._contains[i].requirement])
            if owed != FALSE and not language.clearly_empty(owed):
                yield owed, (*met[:i], met[i] + 1, *met[i + 1 :])

    def _lists(self, requirement: int) -> bool:
        return not requirement & 1 and self._language.listings.of(requirement) is not None

    def _combined(
        self, base: int, options: list[list[tuple[int, int]]]
    ) -> Iterator[tuple[int, tuple[int, ...]]]:
        """What an item owes, with the counts after it, for each choice of one of all options.

        Choices of which the first few requirements exclude each other are not gone on with: items
        contained each by a constant have as many ways as constants, not as sets of them.
        """
        language = self._language
        todo: list[tuple[int, tuple[int, ...]]] = [(base, ())]
        while todo:
            WORK.spend(3)
            owed, counts = todo.pop()
            if len(counts) == len(options):
                yield owed, counts
                continue
            more: list[tuple[int, tuple[int, ...]]] = []
            for requirement, k in options[len(counts)]:
                after = owed
                if requirement != TRUE:
                    after = language.conjunction_with(owed, [requirement])
                    if after == FALSE or (after != requirement and language.clearly_empty(after)):
                        continue
                more.append((after, (*counts, k)))
            todo += reversed(more)

    # -- values that are few ------------------------------------------------------------------

    def _barred(self, count: int, seen: tuple[int, ...]) -> tuple[int, ...]:
        """What item ``count`` must not be: ``seen``, and values without which the items still owed
        after it cannot all be different, such as 1 where an item must be 1."""
        if not self._unique or count + 1 >= self._min:
            return seen
        rare = self._rare()
        if not rare:
            return seen
        key = count, seen
        found = self._ruled_out.get(key)
        if found is None:
            left = [
                values
                for index in range(count + 1, self._min)
                if (values := rare.get(min(index, self._prefix))) is not None
            ]
            needed = needed_by_others([frozenset(values).difference(seen) for values in left])
            found = tuple(sorted({*seen, *needed}))
            if not self._language.is_solving:
                self._ruled_out[key] = found
        return found

    def _rare(self) -> Mapping[int, tuple[int, ...]]:
        """The numbers of all values that an item may have, of those of which there are fewer than
        items owed, by the item's index (all after the prefix have that of the first).

        Any other item can be told from all that are owed, whatever these are.
        """
        found = self._rarities
        if found is None:
            language, found = self._language, {}
            for index in range(min(self._prefix + 1, self._min)):
                if language.size_at_least(self._item(index), self._min):
                    continue
                values: tuple[int, ...] = ()
                while len(values) < self._min:
                    text = language.shortest(self._item(index, values))
                    if text is None:
                        found[index] = values
                        break
                    values = self._with_value(values, text)
            if not language.is_solving:
                self._rarities = found
        return found

    # -- states -----------------------------------------------------------------------------

    def _state(self, state: State) -> int:
        found = self._state_ids.get(state)
        if found is None:
            found = self._state_ids[state] = len(self._states)
            self._states.append(state)
        return found

    def _start(self) -> State:
        return 0, (0,) * len(self._contains), ()

    def _may(self, state: State) -> tuple[bool, bool]:
        """Whether another item, and whether ``]``, may follow."""
        count = state[0]
        if self._simple:
            most = self._most()
            return most is None or count < most, count >= self._min
        close = self._is_complete(state)
        if _is_forgotten(state[2]):
            return self._max is None or count < self._max, close
        if self._max is not None and count >= self._max:
            return False, close
        if (
            not self._contains
            and not self._repeats
            and count >= self._min
            and self._has_more(state)
        ):
            return True, close
        return any(True for _ in self._open_ways(state)), close

    def _is_complete(self, state: State) -> bool:
        """Whether the array may end."""
        count, met, seen = state
        return (
            count >= self._min
            and (not self._repeats or seen == REPEATED)
            and all(k >= c.least for k, c in zip(met, self._contains, strict=True))
        )

    def _has_more(self, state: State) -> bool:
        """A cheap sufficient test that one more distinct item exists."""
        return self._language.size_at_least(self._item(state[0]), len(state[2]) + 1)

    def _open_ways(self, state: State) -> Iterator[tuple[int, State]]:
        """The ways for one more item that do not lead into a dead end."""
        count, _, seen = state
        language = self._language
        for conjunction, met in self._ways(state):
            after: State = (min(count + 1, self._count_to), met, seen)
            if _is_forgotten(seen) or (language.is_possible(conjunction) and self._viable(after)):
                yield conjunction, after
            elif self._repeats and seen != REPEATED:
                # Items to come cannot be equal by themselves: this one has to be like another.
                for equal in self._like_seen(conjunction, seen):
                    repeated: State = (after[0], met, REPEATED)
                    if language.is_possible(equal) and self._viable(repeated):
                        yield equal, repeated
                for shared in self._like_later(conjunction, count, met):
                    if language.is_possible(shared):
                        yield shared, after

    def _viable(self, state: State) -> bool:
        return self._simple or self._closing(state) is not None

    def _most(self) -> int | None:
        """Most items possible: ``maxItems``, or the first item that nothing satisfies."""
        if self._limit is None:
            # -1 stands for "no limit": None is "not computed yet".
            limit = -1 if self._max is None else self._max
            typed = self._language.typed
            for index in range(self._prefix + 1) if self._nodes else ():
                if 0 <= limit <= index:
                    break
                item = self._item(index)
                if item not in typed and not self._language.is_possible(item):
                    limit = index
                    break
            self._limit = limit
        return None if self._limit < 0 else self._limit

    # -- the frame --------------------------------------------------------------------------

    def children(self) -> list[int]:
        """Conjunctions that items are owed to."""
        out = [self._item(i) for i in range(self._prefix + 1)]
        if self._contains:
            out += [conjunction for conjunction, _ in self._ways(self._start())]
        return out

    def required_children(self) -> list[int]:
        """The conjunctions that every such array has an item for."""
        return [self._item(i) for i in range(min(self._min, self._prefix + 1))]

    def is_possible(self) -> bool:
        """Whether any array satisfies the nodes."""
        if self._simple:
            most = self._most()
            return most is None or self._min <= most
        if not self._min and not self._contains and not self._repeats:
            return True
        return self.shortest_text() is not None

    def open(self) -> Alternative:
        """How such an array starts."""
        leaf = _array_leaf(self._language.space)
        state = self._start()
        return Alternative(leaf, leaf.open(*self._may(state)), ((self, 2 * self._state(state)),))

    def records(self, at: int, outcome: int) -> bool:
        """Whether `resume` needs the text of the item that has just ended."""
        if not at & 1:
            return False
        return self._unique or (self._repeats and self._states[at >> 1][2] != REPEATED)

    def forget(self, at: int, outcome: int) -> int | None:
        """See `frames.Frame`: where there are more items than those that may have been written."""
        count, met, seen = self._states[at >> 1]
        if not at & 1 or not self._unique or self._contains or self._repeats:
            return None
        most = _FEW_FORGOTTEN
        while most < len(seen) + 1:
            most *= 2
        if self._max is None or count < self._max:
            needed = max(most, self._min) + 1
            if count < self._prefix or not self._language.size_at_least(self._item(count), needed):
                return None
        return 2 * self._state((count, met, (_FORGOTTEN, most))) + 1

    def forgotten(self, at: int) -> int:
        """See `frames.Frame`."""
        seen = self._states[at >> 1][2]
        return seen[1] if _is_forgotten(seen) else 0

    def resume(
        self, at: int, outcome: int, text: bytes | None = None, limited: bool = False
    ) -> tuple[Alternative, ...]:
        """What may follow; see `frames.Frame`."""
        state = self._states[at >> 1]
        if not at & 1:
            if outcome == CLOSE:
                return POP
            ways: Iterable[tuple[int, State]]
            if self._simple:
                count = state[0]
                after_it = count + 1 if count < self._count_to else count
                ways = ((self._item(count), (after_it, (), ())),)
            else:
                ways = self._open_ways(state)
            out: list[Alternative] = []
            for conjunction, after in ways:
                own = self, 2 * self._state(after) + 1
                for way in self._language.alternatives(conjunction, limited):
                    out += (Alternative(way.leaf, way.q, (*way.frames, own)),)
            return tuple(out)
        if text is not None:
            state = (state[0], state[1], self._with_value(state[2], text))
        leaf = _array_leaf(self._language.space)
        item, close = self._may(state)
        if not item and not close:
            return ()
        return (Alternative(leaf, leaf.after_item(item, close), ((self, 2 * self._state(state)),)),)

    def _tells_apart(self, state: State) -> bool:
        """Whether the value of the next item matters."""
        return self._unique or (self._repeats and state[2] != REPEATED)

    def _with_value(self, seen: tuple[int, ...], text: Text) -> tuple[int, ...]:
        return self._with(seen, json.loads(flat(text)))

    def _with(self, seen: tuple[int, ...], value: Any) -> tuple[int, ...]:
        """``seen`` with the number of ``value`` as well."""
        key = json_key(value)
        number = self._value_ids.get(key)
        if number is None:
            number = self._value_ids[key] = len(self._values)
            self._values.append(value)
        if self._repeats and number in seen:
            return REPEATED
        return tuple(sorted({*seen, number}))

    # -- completion -------------------------------------------------------------------------

    def finish(self, at: int, outcome: int, text: bytes | None = None) -> Text | None:
        """The fewest bytes that close the array; see `frames.Frame`."""
        state = self._states[at >> 1]
        if _is_forgotten(state[2]):
            return self._finish_forgotten(state, bool(at & 1), outcome)
        if at & 1:
            if text is None:
                return self._rest(state, False)
            value = json.loads(text)
            rest, told = self._otherwise(at >> 1)
            if rest is not None and json_key(value) not in told:
                return rest
            return self._finish_after(at >> 1, value)
        if outcome == CLOSE:
            return b""
        if state in self._with_item:
            return self._with_item[state]
        found = self._finish_item(state)
        if self._contains and not self._language.is_solving:
            self._with_item[state] = found
        return found

    def _finish_item(self, state: State) -> Text | None:
        """The fewest bytes that close the array after ``state``, with one more item at least."""
        best: Text | None = None
        for conjunction, met in self._chosen_ways(state):
            item = self._language.shortest(conjunction)
            if item is None:
                continue
            after: State = (min(state[0] + 1, self._count_to), met, state[2])
            if self._tells_apart(state):
                after = (after[0], met, self._with_value(state[2], item))
            rest = self._rest(after, False)
            if rest is not None and (best is None or len(item) + len(rest) < len(best)):
                best = put(item, rest)
        return best

    def _finish_after(self, number: int, value: Any) -> Text | None:
        """As `finish`, in state ``number``, after an item that is ``value``."""
        spare = self._spare_items(number)
        if spare:
            key = json_key(value)
            left = [item for item in spare if json_key(json.loads(flat(item))) != key]
            return self._close(tuple(left[: len(spare) - 1]), False)
        count, met, seen = self._states[number]
        return self._close(self._closing((count, met, self._with(seen, value))), False)

    def _finish_forgotten(self, state: State, is_after: bool, outcome: int) -> Text | None:
        """As `finish`, where it is forgotten what is barred: as many bytes as that takes at most,
        but not these."""
        if not is_after and outcome == CLOSE:
            return b""
        count, _, (_, most) = state
        owed = max(self._min - count, 0 if is_after else 1)
        if not owed:
            return self._close((), False)
        leaves, _ = self._language.shapes(self._item(count))
        sizes = [bytes_of_many(leaf, q, most + owed) for leaf, q in leaves]
        size = min([size for size in sizes if size is not None], default=None)
        return None if size is None else self._close((repeated(b"?", size),) * owed, not is_after)

    def finish_reads(self, at: int, outcome: int) -> bool:
        """Whether further items are owed, which the one that has ended here must not equal."""
        count, _, seen = self._states[at >> 1]
        if _is_forgotten(seen):
            return False
        return bool(self._contains or self._repeats or count < self._min)

    def finish_otherwise(self, at: int, outcome: int) -> tuple[Text, Collection[Any]] | None:
        """See `frames.Frame`."""
        rest, told = self._otherwise(at >> 1)
        return None if rest is None else (rest, told.values())

    def _otherwise(self, number: int) -> tuple[Text | None, dict[Any, Any]]:
        """What closes the array in state ``number`` after any item but certain ones, by their keys:
        those that are written to close it, and those of which there are few."""
        found = self._others.get(number)
        if found is None:
            items = None if self._repeats else self._closing(self._states[number])
            told: list[Any] = []
            if items is not None:
                told += [json.loads(flat(item)) for item in dict.fromkeys(items)]
                for values in self._rare().values() if self._unique else ():
                    told += [self._values[v] for v in values]
            found = self._close(items, False), {json_key(value): value for value in told}
            self._others[number] = found
        return found

    def finish_most(self, at: int, outcome: int) -> int | None:
        """See `frames.Frame`."""
        number = at >> 1
        spare = self._spare_items(number)
        if spare:
            whole = self._close(spare[1:], False)  # without the shortest
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
        found = self._spares.get(number)
        if found is None:
            found = ()
            count, _, seen = self._states[number]
            is_simple = not self._contains and not self._repeats and count >= self._prefix
            if is_simple and not self._language.shapes(self._item(count))[1]:
                found = self._distinct_items(count, self._min + 1, seen) or ()
            self._spares[number] = found
        return found

    def preferred(self, at: int) -> int | None:
        """The outcome that `finish` counts on; see `frames.Frame`."""
        if at & 1:
            return None
        state = self._states[at >> 1]
        if self._simple or _is_forgotten(state[2]):
            return ITEM if state[0] < self._min else CLOSE
        return ITEM if self._closing(state) else CLOSE

    def shortest_text(self) -> Text | None:
        """The shortest whole array, or None when there is none (or none known yet)."""
        rest = self._rest(self._start(), True)
        return None if rest is None else put(b"[" + self._language.least_space, rest)

    def _rest(self, state: State, first: bool) -> Text | None:
        """The fewest bytes that close the array after ``state``, or None when that is hopeless."""
        if not self._simple:
            return self._close(self._closing(state), first)
        if self._max is not None and self._max < self._min:
            return None
        language, count = self._language, state[0]
        items: list[Text] = []
        for index in range(count, min(self._min, self._prefix)):
            item = language.shortest(self._item(index))
            if item is None:
                return None
            items.append(item)
        times = self._min - max(count, self._prefix)
        if times > 0:  # however many: they are not listed
            item = language.shortest(self._item(self._prefix))
            if item is None:
                return None
            items.append(put(item, repeated(put(language.least_comma, item), times - 1)))
        return self._close(tuple(items), first)

    def _close(self, items: tuple[Text, ...] | None, first: bool) -> Text | None:
        if items is None:
            return None
        space, comma = self._language.least_space, self._language.least_comma
        out = joined(comma, items)
        if items and not first:
            out = put(comma, out)
        return put(out, (space if items or not first else b"") + b"]")

    def _closing(self, state: State) -> tuple[Text, ...] | None:
        """The cheapest items that are still owed after ``state``, or None when that is hopeless."""
        found = self._closings.get(state, False)
        if found is False:
            if self._contains or self._repeats:
                found = None if self._is_hopeless else self._contained_apart(state)
                if found == ():
                    self._close_those_after(state)
                    found = self._search(state)
            else:
                found = self._distinct_closing(state)
            if not self._language.is_solving:
                self._closings[state] = found
        return found  # type: ignore[return-value]

    def _distinct_closing(self, state: State) -> tuple[Text, ...] | None:
        count, _, seen = state
        if self._max is not None and self._max < self._min:
            return None
        return self._distinct_items(count, self._min, seen)

    def _distinct_items(
        self, first: int, end: int, seen: tuple[int, ...]
    ) -> tuple[Text, ...] | None:
        """The cheapest items number ``first`` to ``end`` - 1, distinct where they have to be."""
        items: list[Text] = []
        for index in range(first, end):
            item = self._language.shortest(self._item(index, self._barred(index, seen)))
            if item is None:
                return None
            items.append(item)
            if self._unique:
                seen = self._with_value(seen, item)
        return tuple(items)

    def _contained_apart(self, state: State) -> tuple[Text, ...] | None:
        """The cheapest items after ``state`` where no search is needed: every item owes the same,
        and no value is in two of the lists of what is to be contained. Else ()."""
        count, met, seen = state
        if self._repeats or not self._are_apart or count < self._prefix:
            return ()
        language = self._language
        items: list[Text] = []
        for some, k in zip(self._contains, met, strict=True):
            for _ in range(some.least - k):
                base = self._item(count, self._seen_of(some, seen))
                item = language.shortest(language.conjunction_with(base, [some.requirement]))
                if item is None:
                    return None
                items.append(item)
                seen = self._with_value(seen, item) if self._unique else seen
        more = self._min - count - len(items)
        if more > 0:
            rest = self._distinct_items(self._min - more, self._min, seen)
            if rest is None:
                return None
            items += rest
        fits = self._max is None or count + len(items) <= self._max
        return tuple(items) if fits else None

    def _seen_of(self, some: Contains, seen: tuple[int, ...]) -> tuple[int, ...]:
        """Those of the values seen that ``some`` lists: an item that is to meet it is no other one.

        So what the next of forty constants owes does not depend on which others there have been.
        """
        listing = self._language.listings.of(some.requirement)
        if listing is None or not seen or _is_forgotten(seen):
            return seen
        WORK.spend(1 + (len(seen) >> 3))
        numbers = self._value_ids
        if len(listing.keys) <= len(seen):
            among = {numbers[key] for key in listing.keys if key in numbers}
            return tuple([n for n in seen if n in among]) if among else ()
        return tuple([n for n in seen if json_key(self._values[n]) in listing.keys])

    @cached_property
    def _are_apart(self) -> bool:
        """Whether each ``contains`` has a list of its own, all items count, and none are barred."""
        return self._least_contained is not None and all(
            some.most is None and not some.start for some in self._contains
        )

    def _close_those_after(self, state: State) -> None:
        """Find what closes the array after each way of the next item first, where these are few
        states in all: searches from each of them anew would visit every set's subsets again."""
        count, met, _ = state
        n_states = self._count_to - count + 1
        for some, k in zip(self._contains, met, strict=True):
            n_states *= max(some.least, some.most or 0) - k + 1
        if self._unique or self._repeats or self._language.is_solving or n_states > _FEW_STATES:
            return
        for _, after_met in self._ways(state):
            after: State = (min(count + 1, self._count_to), after_met, ())
            if after != state:
                self._closing(after)

    def _can_contain(self, index: int, state: State) -> bool:
        """Whether what ``contains`` number ``index`` still misses can be an item at all."""
        some = self._contains[index]
        if state[1][index] >= some.least:
            return True
        first = max(state[0], some.start)
        return any(
            self._language.shortest(
                self._language.conjunction_with(self._item(at, state[2]), [some.requirement])
            )
            is not None
            for at in range(first, max(first, self._prefix) + 1)
        )

    def _search(self, start: State) -> tuple[Text, ...] | None:
        """A* over counts: each step is one item."""
        # Every step of unique items has a new conjunction to work out.
        limit = MAX_SEARCH // 100 if self._unique or self._repeats else MAX_SEARCH
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
                    f"too many ways to satisfy 'contains', at {self.path}; ask for fewer items of "
                    "each kind, or leave out what says how many (minContains, uniqueItems)",
                    limit=limit,
                    actual=len(done),
                )
            count, _, seen = state
            if self._is_complete(state):
                return items
            if self._max is not None and count >= self._max:
                continue
            if not all(self._can_contain(i, state) for i in range(len(self._contains))):
                continue  # no number of further items would help
            apart = self._tells_apart(state)
            for conjunction, after_met in self._chosen_ways(state):
                item = self._language.shortest(conjunction)
                if item is None:
                    continue
                after_seen = self._with_value(seen, item) if apart else seen
                after: State = (min(count + 1, self._count_to), after_met, after_seen)
                spent = cost + len(item) + 1
                if after in self._closings:
                    known = self._closings[after]
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
        least = self._least_contained
        if least is None:
            return 0, 0
        cost = missing = 0
        for some, k, size in zip(self._contains, state[1], least, strict=True):
            if k < some.least:
                missing += some.least - k
                cost += (some.least - k) * (size + 1)
        return cost, missing

    @cached_property
    def _least_contained(self) -> tuple[int, ...] | None:
        """Fewest bytes of what each ``contains`` lists, if no value is in two of these lists."""
        listed = [self._language.listings.of(some.requirement) for some in self._contains]
        seen: set[Any] = set()
        sizes: list[int] = []
        for some, listing in zip(self._contains, listed, strict=True):
            if listing is None or some.requirement & 1 or not seen.isdisjoint(listing.keys):
                return None
            if any(isinstance(key, tuple) and key[0] in _CONTAINERS for key in listing.keys):
                return None  # how short these are may not be known yet
            seen |= listing.keys
            shortest = self._language.shortest(some.requirement)
            if shortest is None:
                return None
            sizes.append(len(shortest))
        return tuple(sizes)

    @cached_property
    def _is_hopeless(self) -> bool:
        """Whether plainly no items close the array: there have to be more of one kind than there
        may be of a wider one, say.

        Raises:
            CompileLimitExceeded: one item can meet what has to be contained in too many ways.
        """
        if self._unique and self._repeats:
            return True
        if len(self._contains) < 2 or self._are_apart:
            return False
        language, zeros = self._language, (0,) * len(self._contains)
        most = min(MAX_WAYS, int((WORK.limits.work // _WORK_OF_WAYS) ** 0.5))
        for index in {0, self._prefix, *(some.start for some in self._contains)}:
            for number, _ in enumerate(self._ways((index, zeros, ()))):
                if number >= most:
                    raise CompileLimitExceeded(
                        f"one item can meet too many of the 'contains' together, at {self.path}; "
                        "leave some out, or make them exclude each other (a const each)",
                        limit=most,
                        actual=number + 1,
                    )
        return any(
            wide.most is not None
            and wide.most < some.least
            and wide.start <= some.start
            and language.clearly_empty(
                language.conjunction_with(
                    language.conjunction([some.requirement]), [wide.requirement ^ 1]
                )
            )
            for some in self._contains
            for wide in self._contains
        )

    def _chosen_ways(self, state: State) -> Iterator[tuple[int, tuple[int, ...]]]:
        """As `_ways`, with the values too that an item may have to share with another one."""
        ways = list(self._ways(state))
        yield from ways
        if not self._repeats or state[2] == REPEATED:
            return
        for conjunction, met in ways:
            for equal in self._like_seen(conjunction, state[2]):
                yield equal, met
            for shared in self._like_later(conjunction, state[0], met):
                yield shared, met

    def _like_seen(self, conjunction: int, seen: tuple[int, ...]) -> Iterator[int]:
        """``conjunction`` for an item that is equal to one of the values seen."""
        language = self._language
        for number in seen:
            yield language.conjunction_with(conjunction, [language.constant(self._values[number])])

    def _like_later(self, conjunction: int, count: int, met: tuple[int, ...]) -> Iterator[int]:
        """``conjunction`` for item ``count`` if some later item can be equal to it."""
        last = max(count, self._prefix) + 1
        if self._max is not None:
            last = min(last, self._max - 1)
        for index in range(count + 1, last + 1):
            for later, _ in self._ways((index, met, ())):
                yield self._language.conjunction_with(
                    conjunction, self._language.requirements(later)
                )


def _is_forgotten(seen: tuple[int, ...]) -> bool:
    return bool(seen) and seen[0] == _FORGOTTEN
