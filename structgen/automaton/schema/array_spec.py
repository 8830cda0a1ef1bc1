"""The requirements on an array's items: how many, what each must be, which must differ.

`ArraySpec` reads the array assertions of nodes, and returns the requirements on the next item after
a `State`: how many items are complete (as far as it matters), how many of them meet each
``contains``, and which values unique items have taken. Whether an item meets a ``contains`` is
guessed when it starts: the guess, or (if there is a maximum) its opposite, becomes a requirement on
the item, so that a wrong guess dies with the item. `needed_by_others` finds values that one place
must leave to others, when all must differ, by a bipartite matching (Kuhn 1955). Knows no leaves or
frames.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from structgen.automaton.texts import Text, flat
from structgen.automaton.work import WORK
from structgen.errors import CompileLimitExceeded, UnsupportedFeature
from structgen.grammar.json_schema import FALSE, TRUE, Contains, bounds

from .language import Schema


def needed_by_others(domains: Sequence[frozenset[int]]) -> frozenset[int]:
    """Return the values that are each needed so that all places can have different values.

    Args:
        domains: for each place, the values that it may have.

    Returns:
        These values; empty if the places cannot all differ anyway.

    Cost: at most the number of places times the size of all domains; if all domains are the same,
    times the size of one.
    """
    if not domains:
        return frozenset()
    first = domains[0]
    if all(domain == first for domain in domains):
        return first if len(first) == len(domains) else frozenset()
    owner = _matching(domains)
    if owner is None:
        return frozenset()
    held = {place: value for value, place in owner.items()}
    wanted: dict[int, list[int]] = {}
    for place, domain in enumerate(domains):
        for value in domain:
            wanted.setdefault(value, []).append(place)
    # A value is not needed if it is free, or if its place can take another value that is not
    # needed.
    spared = wanted.keys() - owner.keys()
    todo = list(spared)
    while todo:
        for place in wanted[todo.pop()]:
            value = held[place]
            if value not in spared:
                spared.add(value)
                todo.append(value)
    return frozenset(owner.keys() - spared)


def _matching(domains: Sequence[frozenset[int]]) -> dict[int, int] | None:
    """Return a matching: the place of each value it takes; None if impossible."""
    owner: dict[int, int] = {}
    for place, domain in enumerate(domains):
        before: dict[int, int | None] = dict.fromkeys(domain)
        todo = list(domain)
        free: int | None = None
        for value in todo:  # grows while it is read: breadth first
            if value not in owner:
                free = value
                break
            for other in domains[owner[value]]:
                if other not in before:
                    before[other] = value
                    todo.append(other)
        if free is None:
            return None
        value = free
        while (previous := before[value]) is not None:
            owner[value] = owner[previous]
            value = previous
        owner[value] = place
    return owner


MAX_ITEMS_OWED = 100_000
"""Largest ``minItems``. The shortest array must be writable."""

State = tuple[int, tuple[int, ...], tuple[int, ...]]
"""(items complete, items that met each contains, numbers of the values seen)."""

REPEATED = (-1,)
"""Replaces the values seen when two have been equal and nothing else matters."""

FORGOTTEN = -2
"""Marks a placeholder for the values seen: only their maximum number matters, which follows it. See
`frames.Frame.forget`."""


class ArraySpec:
    """The array assertions of several nodes, combined.

    Attributes:
        min, max: bounds on the number of items; None: any number.
        prefix: the number of first items with requirements of their own.
        unique: whether no two items may be equal.
        repeats: whether two items must be equal.
        contains: how many items of which kinds are required.
        count_to: from this number of items on, more items make no difference.
        is_simple: whether the requirements on an item do not depend on other items.
    """

    def __init__(self, language: Schema, nodes: tuple[int, ...]) -> None:
        self._language = language
        self._nodes = [language.nodes[n] for n in nodes]
        if nodes:
            self._read_nodes()
        if self.min > MAX_ITEMS_OWED:
            path = next(n.path for n in self._nodes if n.min_items == self.min)
            raise CompileLimitExceeded(
                f"'minItems' at {path} requires too many items",
                limit=MAX_ITEMS_OWED,
                actual=self.min,
            )
        starts = max([c.start for c in self.contains]) if self.contains else 0
        self.is_simple = not (self.contains or self.unique or self.repeats)
        self.count_to = max(self.prefix, self.min, self.max or 0, starts)
        self._owed: dict[tuple[int, tuple[int, ...]], int] = {}
        self._ruled_out: dict[tuple[int, tuple[int, ...]], tuple[int, ...]] = {}
        # Results of `rare` for each item, also while it searches others; None: enough values.
        self._few: dict[int, tuple[int, ...] | None] = {}

    # Rare assertions.

    min = prefix = 0
    max: int | None = None
    unique = repeats = False
    contains: Sequence[Contains] = ()
    _never: Sequence[int] = ()  # also required of every item

    @property
    def values(self) -> list[Any]:
        """The values seen, by number."""
        return self._language.numbered.values

    _rarities: Mapping[int, tuple[int, ...]] | None = None

    def _read_nodes(self) -> None:
        """Initialize from nodes of any kind."""
        self.min, self.max = bounds(self._nodes, "items")
        self.prefix = max(len(n.prefix) for n in self._nodes)
        self.unique = any(n.unique for n in self._nodes)
        self.repeats = any(n.repeats for n in self._nodes)
        contains: dict[Contains, None] = {}
        for node in self._nodes:
            contains.update(
                dict.fromkeys(c for c in node.contains if c.least or c.most is not None)
            )
        contains = dict.fromkeys(self._merged(contains))
        # A ``contains`` that no item may meet needs no counting.
        never = [c for c in contains if c.most == 0 and not c.least and not c.start]
        self._never = tuple([c.requirement ^ 1 for c in never])
        self.contains = [c for c in contains if c not in never]
        if (
            self.repeats
            and self.contains
            and any(c.most is not None for c in self.contains)
            | (self.max is not None)
            | any(n.items == FALSE for n in self._nodes)
        ):
            path = next(n.path for n in self._nodes if n.repeats)
            raise UnsupportedFeature(
                "'not' with 'uniqueItems', 'contains' and a bound on the number of items is not "
                f"supported, at {path}.",
                path=path,
                keyword="uniqueItems",
                fix="Move 'uniqueItems' out of the 'not', or use anyOf.",
            )
        # After that, because such a plan may be impossible here and refused when more is required.
        if any(self._cannot_meet(some) for some in contains):
            self.min, self.max, self._never, self.contains = 1, 0, (), []
            self.unique = self.repeats = False

    def _merged(self, contains: Iterable[Contains]) -> list[Contains]:
        """Return ``contains`` with the bounds of several nodes on the same items merged."""
        found: dict[tuple[int, int], Contains] = {}
        for some in contains:
            known = found.get((some.requirement, some.start), some)
            mosts = [most for most in (known.most, some.most) if most is not None]
            found[some.requirement, some.start] = Contains(
                some.requirement, max(known.least, some.least), min(mosts, default=None), some.start
            )
        return list(found.values())

    def _cannot_meet(self, some: Contains) -> bool:
        """Return whether it is obvious that no array has enough items of a kind. A search would
        take too long."""
        if some.most is not None and some.most < some.least:
            return True
        if self.max is not None and some.least > max(self.max - some.start, 0):
            return True
        listing = self._language.listings.of(some.requirement) if self.unique else None
        return listing is not None and len(listing.keys) < some.least

    @property
    def path(self) -> str:
        """The array's place in the schema, for messages."""
        return self._nodes[0].path if self._nodes else "$"

    # -- what one item owes -----------------------------------------------------------------

    def item(self, index: int, seen: tuple[int, ...] = ()) -> int:
        """Return the conjunction for item ``index``, without ``contains``."""
        key = (min(index, self.prefix), seen)
        found = self._owed.get(key)
        if found is None:
            nodes = self._nodes
            owed = [n.prefix[index] if index < len(n.prefix) else n.items for n in nodes]
            owed += self._never
            found = self._language.conjunctions.of(owed)
            if seen:
                WORK.spend(5 + (len(seen) >> 3))
                found = self._language.without(found, seen, self.path)
            self._owed[key] = found
        return found

    def ways(self, state: State) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield the possible conjunctions for the next item, each with the contains counts after
        it."""
        count, met, seen = state
        if self.unique and not is_forgotten(seen):
            base = self.item(count, self.barred(count, seen))
        else:
            base = self.item(count)
        if not self.contains:
            yield base, met
            return
        if self.are_apart:
            yield from self._ways_apart(base, met)
            return
        options: list[list[tuple[int, int]]] = []
        for some, k in zip(self.contains, met, strict=True):
            if count < some.start or (some.most is None and k >= some.least):
                options.append([(TRUE, k)])
            elif some.most is None:
                # If it lists values, other items differ from these, so nothing is guessed.
                other = some.requirement ^ 1 if self._lists(some.requirement) else TRUE
                options.append([(other, k), (some.requirement, k + 1)])
            else:
                options.append([(some.requirement ^ 1, k)])
                if k < some.most:
                    options[-1].append((some.requirement, k + 1))
        yield from self._combined(base, options)

    def _ways_apart(self, base: int, met: tuple[int, ...]) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Like `_ways`, if no value is in two of the lists that ``contains`` needs."""
        language = self._language
        missing = [i for i, c in enumerate(self.contains) if met[i] < c.least]
        WORK.spend(3 + len(missing))
        barred = [self.contains[i].requirement ^ 1 for i in missing]
        yield language.conjunctions.extended(base, barred) if barred else base, met
        for i in missing:
            owed = language.conjunctions.extended(base, [self.contains[i].requirement])
            if owed != FALSE and not language.values.clearly_empty(owed):
                yield owed, (*met[:i], met[i] + 1, *met[i + 1 :])

    def _lists(self, requirement: int) -> bool:
        return not requirement & 1 and self._language.listings.of(requirement) is not None

    def _combined(
        self, base: int, options: list[list[tuple[int, int]]]
    ) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield the requirements on an item, with the counts after it, for each choice of options.

        A choice is dropped as soon as its first requirements exclude each other. So if each
        ``contains`` is a constant, there are as many ways as constants, not as sets of them.
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
                    after = language.conjunctions.extended(owed, [requirement])
                    if after == FALSE or (
                        after != requirement and language.values.clearly_empty(after)
                    ):
                        continue
                more.append((after, (*counts, k)))
            todo += reversed(more)

    def chosen_ways(self, state: State) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Like `ways`, also with the values that an item may have to share with another one."""
        ways = list(self.ways(state))
        yield from ways
        if not self.repeats or state[2] == REPEATED:
            return
        for conjunction, met in ways:
            for equal in self._like_seen(conjunction, state[2]):
                yield equal, met
            for shared in self._like_later(conjunction, state[0], met):
                yield shared, met

    def _like_seen(self, conjunction: int, seen: tuple[int, ...]) -> Iterator[int]:
        """Yield ``conjunction`` for an item that equals one of the values seen."""
        language = self._language
        for number in seen:
            yield language.conjunctions.extended(
                conjunction, [language.constant(self.values[number])]
            )

    def _like_later(self, conjunction: int, count: int, met: tuple[int, ...]) -> Iterator[int]:
        """Yield ``conjunction`` for item ``count`` if some later item can equal it."""
        last = max(count, self.prefix) + 1
        if self.max is not None:
            last = min(last, self.max - 1)
        for index in range(count + 1, last + 1):
            for later, _ in self.ways((index, met, ())):
                yield self._language.conjunctions.extended(
                    conjunction, self._language.conjunctions.requirements(later)
                )

    # -- values that are few ------------------------------------------------------------------

    def barred(self, count: int, seen: tuple[int, ...]) -> tuple[int, ...]:
        """Return the values that item ``count`` must not have: ``seen``, and values that later
        required items need in order to differ, such as 1 if a later item must be 1."""
        if not self.unique or count + 1 >= self.min:
            return seen
        rare = self.rare()
        if not rare:
            return seen
        key = count, seen
        found = self._ruled_out.get(key)
        if found is None:
            left = [
                values
                for index in range(count + 1, self.min)
                if (values := rare.get(min(index, self.prefix))) is not None
            ]
            needed = needed_by_others([frozenset(values).difference(seen) for values in left])
            found = tuple(sorted({*seen, *needed}))
            if not self._language.values.is_solving:
                self._ruled_out[key] = found
        return found

    def rare(self) -> Mapping[int, tuple[int, ...]]:
        """Return the numbers of all values of each item that has fewer values than items are
        required.

        By the item's index; all items after the prefix share the first one's. Any other item can
        always differ from all required ones.
        """
        found = self._rarities
        if found is None:
            language, found = self._language, {}
            for index in range(min(self.prefix + 1, self.min)):
                values = self._few.get(index, ())
                if values is None:
                    continue
                if language.values.size_at_least(self.item(index), self.min):
                    self._few[index] = None
                    continue
                while len(values) < self.min:
                    text = language.values.shortest(self.item(index, values))
                    if text is None:
                        found[index] = values
                        break
                    values = self._few[index] = self.with_value(values, text)
                else:
                    self._few[index] = None
            WORK.spend(len(found) >> 1)
            if not language.values.is_solving:
                self._rarities = found
        return found

    @cached_property
    def are_apart(self) -> bool:
        """Whether each ``contains`` has its own list, all items count, and no values are barred."""
        return self.least_contained is not None and all(
            some.most is None and not some.start for some in self.contains
        )

    @cached_property
    def least_contained(self) -> tuple[int, ...] | None:
        """The fewest bytes of the values that the ``contains`` lists require, if no value is in two
        lists."""
        listed = [self._language.listings.of(some.requirement) for some in self.contains]
        seen: set[Any] = set()
        sizes: list[int] = []
        for some, listing in zip(self.contains, listed, strict=True):
            if listing is None or some.requirement & 1 or not seen.isdisjoint(listing.keys):
                return None
            if any(
                isinstance(key, tuple) and key[0] in ("object", "array") for key in listing.keys
            ):
                return None  # their lengths may not be known yet
            seen |= listing.keys
            shortest = self._language.values.shortest(some.requirement)
            if shortest is None:
                return None
            sizes.append(len(shortest))
        return tuple(sizes)

    # -- states -----------------------------------------------------------------------------

    def start(self) -> State:
        """Return the state before the first item."""
        return 0, (0,) * len(self.contains), ()

    def is_complete(self, state: State) -> bool:
        """Return whether the array may end."""
        count, met, seen = state
        return (
            count >= self.min
            and (not self.repeats or seen == REPEATED)
            and all(k >= c.least for k, c in zip(met, self.contains, strict=True))
        )

    @property
    def is_contradictory(self) -> bool:
        """Whether more items are required than allowed."""
        return self.max is not None and self.max < self.min

    def has_more(self, state: State) -> bool:
        """Return True if a cheap test shows that another distinct item exists, and as many as are
        still required if all have the same values."""
        count, _, seen = state
        n_more = max(self.min - count, 1)
        return self._language.values.size_at_least(self.item(count), len(seen) + n_more)

    def item_matters(self, state: State) -> bool:
        """Return whether the value of the next item matters."""
        return self.unique or (self.repeats and state[2] != REPEATED)

    def with_value(self, seen: tuple[int, ...], text: Text) -> tuple[int, ...]:
        """Return ``seen`` plus the number of the value in ``text``."""
        return self.with_(seen, json.loads(flat(text)))

    def with_(self, seen: tuple[int, ...], value: Any) -> tuple[int, ...]:
        """Return ``seen`` plus the number of ``value``."""
        number = self._language.numbered.number(value)
        if self.repeats and number in seen:
            return REPEATED
        if not seen or number > seen[-1]:  # the usual case
            return (*seen, number)
        return tuple(sorted({*seen, number}))

    def seen_of(self, some: Contains, seen: tuple[int, ...]) -> tuple[int, ...]:
        """Return the seen values that ``some`` lists. Others do not matter to its items.

        So the requirement on the next of forty constants does not depend on other items before it.
        """
        listing = self._language.listings.of(some.requirement)
        if listing is None or not seen or is_forgotten(seen):
            return seen
        WORK.spend(1 + (len(seen) >> 3))
        numbered = self._language.numbered
        if len(listing.keys) <= len(seen):
            among = {numbered.known(key) for key in listing.keys} - {None}
            return tuple([n for n in seen if n in among]) if among else ()
        return tuple([n for n in seen if numbered.keys[n] in listing.keys])


_FEW_FORGOTTEN = 8
"""Smallest number in such a placeholder, so that states are shared."""


def forgetting(count: int) -> tuple[int, int]:
    """Return the placeholder for that many values."""
    most = _FEW_FORGOTTEN
    while most < count:
        most *= 2
    return FORGOTTEN, most


def is_forgotten(seen: tuple[int, ...]) -> bool:
    """Return whether ``seen`` is a placeholder: only its maximum number of values matters."""
    return bool(seen) and seen[0] == FORGOTTEN
