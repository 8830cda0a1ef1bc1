"""Which conjunctions have values, and the shortest text of each.

A value's text is as short as its leaf's, or as those of what is inside together: a least fixpoint
over the conjunctions that one depends on. `Emptiness` owns that, and the cheap sufficient tests
that are asked first, so that no mask leads into a dead end. It is told the shapes of values by who
builds them (`values`), and knows nothing of how.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Set
from typing import TypeAlias

from structgen.automaton.core.leaf import Leaf
from structgen.automaton.schema.branches import Branch
from structgen.automaton.schema.conjunctions import Conjunctions
from structgen.automaton.schema.evaluate import answered
from structgen.automaton.schema.nesting import UNLIMITED
from structgen.automaton.schema.quick_checks import QuickChecks
from structgen.automaton.texts import Text
from structgen.automaton.work import WORK
from structgen.grammar.json_schema import FALSE, NUMBER, STRING

from .apart import Without
from .arrays import ArrayPlan
from .excluding import bytes_of_many
from .objects import ObjectPlan

AnyPlan: TypeAlias = ObjectPlan | ArrayPlan | Without

Shapes: TypeAlias = tuple[tuple[tuple[Leaf, int], ...], tuple[AnyPlan, ...]]
"""Leaves with where each starts, and plans."""


_MOST_UNDER_WAY = 12
"""Most conjunctions of which one test whether they are clearly empty may depend on the next."""


class Emptiness:
    """What is known of the texts of conjunctions.

    Args:
        conjunctions: the conjunctions.
        typed: the requirements that name one type, or none, and say nothing else.
        plain: what is plain to see of the nodes.
        branches: gives a conjunction's branches, without those that contradict themselves by type.
        shapes: gives the leaves and the object and array plans a value may take, possible or not.

    Attributes:
        typed: as given.
        levels: per requirement that `nesting` has made, the levels that it leaves.
        any_will_do: whether `shortest` may answer with any text: it is asked whether there is one.
    """

    def __init__(
        self,
        conjunctions: Conjunctions,
        typed: Set[int],
        plain: QuickChecks,
        branches: Callable[[int], tuple[Branch, ...]],
        shapes: Callable[[int], Shapes],
    ) -> None:
        self._conjunctions = conjunctions
        self._nodes = conjunctions.nodes
        self.typed = typed
        self._plain = plain
        self._branches = branches
        self._shapes = shapes
        self._shortest: dict[int, Text | None] = {}
        self._some: dict[int, Text | None] = {}  # of each some text, if there is any
        self._looking_at: set[int] = set()
        self.levels: dict[int, int] = {}
        # Whether so many values satisfy a conjunction.
        self._many: dict[tuple[int, int], bool] = {}

    any_will_do = False
    _solving: dict[int, Text | None] | None = None
    _reading = 0
    _improvements = 0
    _unsolved: dict[int, None]
    _readers: dict[int, set[int]]

    # -- sufficient tests -------------------------------------------------------------------

    def plainly_possible(self, conjunction: int) -> bool:
        """A cheap sufficient test that builds nothing."""
        levels = self.levels
        if not levels:
            return conjunction >= 0 and self._plain.possible(conjunction)
        key = self._conjunctions.requirements(conjunction)
        room = min((levels[ob] for ob in key if ob in levels), default=UNLIMITED)
        if room != UNLIMITED:
            key = tuple(ob for ob in key if ob not in levels)
        if len(key) != 1:
            return not key
        return self._plain.possible(key[0], room)

    def clearly_empty(self, conjunction: int, depth: int = 3) -> bool:
        """Whether the conjunction is empty by its scalars and its required members.

        A sufficient test that needs no fixpoint, ``depth`` levels deep.
        """
        under_way = self._looking_at
        if not depth or conjunction in under_way or len(under_way) >= _MOST_UNDER_WAY:
            return False
        under_way.add(conjunction)  # to build its shapes may take to know just that
        try:
            leaves, plans = self._shapes(conjunction)
            return not leaves and all(
                any(self.clearly_empty(child, depth - 1) for child in plan.required_children())
                for plan in plans
            )
        finally:
            under_way.remove(conjunction)

    def size_at_least(self, conjunction: int, size: int) -> bool:
        """A cheap sufficient test that ``size`` different values satisfy the conjunction."""
        count = 0
        for branch in self._branches(conjunction):
            nodes = [self._nodes[n] for n in branch.nodes]
            enum = [n for n in nodes if n.enum is not None]
            if not enum:
                if branch.types & STRING and not any(n.speaks_of_strings for n in nodes):
                    return True
                if branch.types & NUMBER and not any(n.speaks_of_numbers for n in nodes):
                    return True
            elif len(nodes) == 1:
                count = max(count, sum(isinstance(v, str) for v in enum[0].enum or ()))
        if count >= size:
            return True
        key = conjunction, size
        found = self._many.get(key)
        if found is None:
            self._many[key] = False  # to itself: a value may hold others of its kind
            leaves, plans = self._shapes(conjunction)
            found = any(bytes_of_many(leaf, q, size - 1) is not None for leaf, q in leaves)
            if not found and plans and self.is_solving:
                del self._many[key]
                return False
            self._many[key] = found = found or any(plan.size_at_least(size) for plan in plans)
        return found

    # -- the fixpoint -----------------------------------------------------------------------

    def is_possible(self, conjunction: int) -> bool:
        """Whether any value satisfies the conjunction."""
        if conjunction in self.typed:
            return True  # a look at what most properties are
        if conjunction == FALSE:
            return False
        if self.plainly_possible(conjunction):
            return True
        # A leaf is only made when some text reaches its end.
        return bool(self._shapes(conjunction)[0]) or self.some(conjunction) is not None

    @property
    def is_solving(self) -> bool:
        """Whether answers of `shortest` are provisional: a fixpoint is being computed."""
        return self._solving is not None

    @property
    def provisional(self) -> tuple[int, int]:
        """As long as this is the same, so are the answers of `shortest`, to the one who asks."""
        return self._reading, self._improvements

    def some(self, conjunction: int) -> Text | None:
        """Some text of the conjunction, which is sooner found than the shortest; None if empty."""
        if self._solving is not None:
            return self.shortest(conjunction)
        self.any_will_do = True
        try:
            return self.shortest(conjunction)
        finally:
            self.any_will_do = False

    def shortest(self, conjunction: int) -> Text | None:
        """A shortest text of the conjunction (see `Frame.finish`), or None when it is empty.

        Least fixpoint over the conjunctions it depends on: recursion counts as impossible until
        a way out of it is found.
        """
        if conjunction in self._shortest:
            return self._shortest[conjunction]
        if self.any_will_do and conjunction in self._some:
            return self._some[conjunction]
        levels = self.levels
        key = self._conjunctions.requirements(conjunction) if levels else ()
        room = min([levels[ob] for ob in key if ob in levels], default=UNLIMITED)
        if room != UNLIMITED:
            # Nearly always the shortest text of all is shallow enough: no level is then worked out.
            text = self.shortest(self._conjunctions.of(ob for ob in key if ob not in levels))
            if text is None or height_of_text(text) <= room:
                return text
        values = self._solving
        if values is not None:
            # Inside the fixpoint below: answer with the best known so far.
            if conjunction not in values:
                values[conjunction] = None
                reading = self._reading
                with self._conjunctions.placed(conjunction):
                    is_scalar = not self._shapes(conjunction)[1]
                if is_scalar:
                    # Or an object would be worked out anew after each of its members.
                    self._improve(conjunction, values)
                    self._reading = reading
                else:
                    self._unsolved[conjunction] = None
            self._readers.setdefault(conjunction, set()).add(self._reading)
            return values[conjunction]
        self._solving = values = {conjunction: None}
        self._unsolved = {conjunction: None}
        self._readers = {}
        self._improvements += 1  # what `provisional` was said of is over
        try:
            while self._unsolved:
                # The newest first: what a value is made of before the value itself.
                item, _ = self._unsolved.popitem()
                self._improve(item, values)
        finally:
            self._solving = None
        (self._some if self.any_will_do else self._shortest).update(values)
        return values[conjunction]

    def _improve(self, item: int, values: dict[int, Text | None]) -> None:
        """Work out the shortest text of ``item`` from those known of what is inside."""
        best = values[item]
        if best is not None and self.any_will_do:
            return
        WORK.spend(10)
        self._reading = item
        with self._conjunctions.placed(item):
            text = self._shortest_shape(item)
        if text is not None and (best is None or len(text) < len(best)):
            values[item] = text
            readers = self._readers.get(item)
            if readers:
                self._unsolved.update(dict.fromkeys(readers))
                self._improvements += 1

    def _shortest_shape(self, conjunction: int) -> Text | None:
        """The shortest text, as far as those of what is inside are known."""
        leaves, plans = self._shapes(conjunction)
        best: Text | None = None
        for leaf, start in leaves:
            if best is not None and leaf.at_least(start) >= len(best):
                continue
            shortest = leaf.shortest(start)
            if shortest is not None and (best is None or len(shortest[0]) < len(best)):
                best = shortest[0]
        for plan in plans:
            if best is not None and self.any_will_do:
                break
            text = plan.shortest_text()
            if text is not None and (best is None or len(text) < len(best)):
                best = text
        return best


_OUTSIDE, _IN_STRING, _ESCAPED = range(3)
"""Where in a JSON text a place is: outside a string, in one, or in one after a backslash."""

_Depths: TypeAlias = tuple[int, int, int]
"""How much deeper than where it begins part of a text goes, and how deep and where it ends."""


def height_of_text(text: Text) -> int:
    """How deep a JSON text nests."""
    return answered((text, _OUTSIDE), _depths, {})[0]


def _depths(asked: tuple[Text, int]) -> Generator[tuple[Text, int], _Depths, _Depths]:
    """The depths of part of a JSON text: of a rope by those of its parts, each looked at once."""
    text, where = asked
    height = depth = 0
    if isinstance(text, bytes):
        for byte in text:
            if where == _ESCAPED:
                where = _IN_STRING
            elif where == _IN_STRING:
                where = _OUTSIDE if byte == 0x22 else _ESCAPED if byte == 0x5C else _IN_STRING
            elif byte == 0x22:
                where = _IN_STRING
            elif byte in (0x5B, 0x7B):
                depth += 1
                height = max(height, depth)
            elif byte in (0x5D, 0x7D):
                depth -= 1
        return height, depth, where
    left = text.times
    while left:
        inner, change, end = yield text.first, where
        # Values nest as deep at their end as where they begin: once more is no deeper.
        rounds = left if end == where else 1
        last = depth + change * (rounds - 1)
        height = max(height, depth + inner, last + inner)
        depth, where, left = last + change, end, left - rounds
    inner, change, where = yield text.second, where
    return max(height, depth + inner), depth + change, where
