"""What a JSON value may look like: conjunctions of schema nodes → leaves and frames.

Every value is owed to a *conjunction* (`conjunctions`): a set of schema nodes that all apply to it.
`JsonLanguage` resolves a conjunction's in-place applicators into branches (disjunction outside,
conjunction inside), merges each branch's assertions type by type, and answers with `Alternative`s
for the machine: one leaf for all scalars of a kind, an object or array leaf with its frame pushed.
It knows the JSON types; how strings and numbers are spelt is `scalars`', what happens between the
brackets `objects`' and `arrays`', and whether there is any value, and how short, `Emptiness`'.
Everything about a conjunction is computed when it is first asked for.

A value's text is as short as its leaf's, or as those of what is inside together: a least fixpoint
over the conjunctions that one depends on. `Emptiness` owns that, and the cheap sufficient tests
that are asked first, so that no mask leads into a dead end.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence, Set
from functools import cached_property
from typing import Any, TypeAlias

from structgen.automaton.core.frames import Alternative
from structgen.automaton.core.leaf import Leaf
from structgen.automaton.schema import evaluate
from structgen.automaton.schema.branches import Branch
from structgen.automaton.schema.conjunctions import Barred, Conjunctions, Told
from structgen.automaton.schema.evaluate import answered
from structgen.automaton.schema.nesting import UNLIMITED, NestingBound, watch_from
from structgen.automaton.schema.quick_checks import QuickChecks
from structgen.automaton.texts import Text
from structgen.automaton.work import WORK
from structgen.errors import check_limit
from structgen.grammar.json_schema import (
    ALL_TYPES,
    ARRAY,
    BOOLEAN,
    DIGITS,
    FALSE,
    IN_PLACE,
    INTEGER,
    NULL,
    NUMBER,
    OBJECT,
    OF_VALUES,
    POINTED,
    STRING,
    TRUE,
    Node,
    SchemaGraph,
    by_key,
    json_key,
    to_decimal,
)

from .apart import Apart, ApartArray, ApartObject, Without
from .arrays import ArrayPlan
from .document import PlainRoot
from .excluding import bytes_of_many
from .language import Language
from .objects import ObjectPlan
from .options import JsonOptions
from .scalars import literal_leaf, number_leaf, number_spec, scalar_leaves, spellings

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


MAX_CONTAINERS = 500
"""Most objects and arrays that one ``enum`` may list."""

MAX_SPELT_NUMBERS = 64
"""Most numbers of one ``enum`` that may be spelt in every way; more are spelt as serialisers do."""

MAX_DEPTH_COMPARED = 128
"""Deepest nesting where a schema has unique items: comparing them takes Python recursion."""

_BESIDE_A_LIST = OF_VALUES | IN_PLACE
_WORDS = ((NULL, None, b"null"), (BOOLEAN, True, b"true"), (BOOLEAN, False, b"false"))

_NONE_BARRED = Told().barred(())


class JsonLanguage(Language):
    """All values of one schema, by conjunction.

    Args:
        graph: the schema.
        options: how JSON is written.
        missing: bytes from 0x7F on that cannot be written.
    """

    values: Emptiness

    def __init__(
        self, graph: SchemaGraph, options: JsonOptions, missing: frozenset[int] = frozenset()
    ) -> None:
        super().__init__(graph, options, missing)
        self._plain = QuickChecks(
            self.nodes,
            self.scalars.has_string,
            self.scalars.has_number,
            bool(missing),
            graph.typed,
        )
        # They refer to each other until `release`.
        self.values = Emptiness(
            self.conjunctions, graph.typed, self._plain, self.branches, self.shapes
        )
        # What scalars of which only the type is asked depend on.
        self._how = options.free, missing, options.max_digits, options.canonical
        self._alternatives: dict[int, tuple[Alternative, ...]] = {}
        self._shapes: dict[int, Shapes] = {}
        self._objects: dict[tuple[int, ...], ObjectPlan] = {}
        self._arrays: dict[tuple[int, ...], ArrayPlan] = {}
        self.max_depth = options.max_depth
        self.said = graph.said
        if "unique" in self.said:
            self.max_depth = min(options.max_depth or UNLIMITED, MAX_DEPTH_COMPARED)
        self._watch_from = watch_from(graph, self.max_depth)
        self.unbounded_root = self.root = graph.root
        if self.max_depth is not None and not self._watch_from:
            bound = self._nesting.at_most(self.max_depth)
            self.root = self.conjunctions.of([graph.root, bound])
        self._frames_apart: dict[ObjectPlan | ArrayPlan, Apart] = {}
        self._limited: dict[int, int] = {}

    @cached_property
    def _nesting(self) -> NestingBound:
        return NestingBound(self.add, self.values.levels)

    @cached_property
    def _draft4(self) -> bool:
        """Whether it matters how whole numbers are written."""
        return any(n.types & INTEGER in (DIGITS, POINTED) for n in self.nodes)

    def _by_constants(self, conjunction: int) -> int:
        """``conjunction`` with the objects and arrays that it bars as negated constants."""
        owed: list[int] = []
        for requirement in self.conjunctions.requirements(conjunction):
            node = self.nodes[requirement >> 1]
            barred = node.excluded
            if not isinstance(barred, Barred) or not barred.containers:
                owed.append(requirement)
                continue
            scalars = tuple([n for n in barred.numbers if n not in barred.containers])
            if scalars:
                owed.append(self.add(Node(node.path, excluded=self.told.barred(scalars))))
            owed += [self.constant(self.told.values[n]) ^ 1 for n in barred.containers]
        return self.conjunctions.of(owed)

    # -- what the machine asks --------------------------------------------------------------

    def limit_below(self, nodes: tuple[int, ...]) -> int:
        """See `Language`."""
        levels = self.values.levels
        if not self._watch_from or (levels and any(2 * n in levels for n in nodes)):
            return UNLIMITED  # it minds its depth by itself
        return self._watch_from

    def opening(self) -> Alternative | None:
        """As `alternatives` of the root, if that is plainly an object: none of it is built yet."""
        opened = self._plain.opened(self.root) if self.root >= 0 else None
        return None if opened is None else PlainRoot(self).open(*opened)

    def alternatives(self, conjunction: int, limited: bool = False) -> tuple[Alternative, ...]:
        """See `Language`."""
        if limited:
            known = self._limited.get(conjunction)
            if known is None:
                assert self.max_depth is not None
                bound = self._nesting.at_most(self.max_depth - self._watch_from)
                known = self._limited[conjunction] = self.conjunctions.extended(
                    conjunction, [bound]
                )
            conjunction = known
        found = self._alternatives.get(conjunction)
        if found is None:
            leaves, plans = self.shapes(conjunction)
            ways = [Alternative(leaf, start) for leaf, start in leaves]
            if plans:
                with self.conjunctions.placed(conjunction):
                    ways += [plan.open() for plan in plans if plan.is_possible()]
            found = self._alternatives[conjunction] = tuple(ways)
        return found

    def shapes(self, conjunction: int) -> Shapes:
        """See `Language`."""
        found = self._shapes.get(conjunction)
        if found is None:
            with self.conjunctions.placed(conjunction):
                found = self._shapes[conjunction] = self._build(conjunction)
        return found

    def _build(self, conjunction: int) -> Shapes:
        if conjunction == TRUE:
            return self._any_of(ALL_TYPES)
        node = self.conjunctions.node(conjunction)
        if node is not None and not node.applies_in_place:
            if node.says_types_only:
                return self._any_of(node.types)
            if node.enum is not None and node.lists_strings_only:
                return self.scalars.listed(dict.fromkeys(node.enum, True)), ()
        literals: dict[bytes, None] = {}
        strings: dict[str, bool] = {}
        leaves: dict[tuple[Leaf, int], None] = {}
        plans: dict[AnyPlan, None] = {}
        reading: dict[int, int] | None = None
        for branch in self.branches(conjunction):
            nodes = [self.nodes[n] for n in branch.nodes]
            types = branch.types
            if any(n.enum is not None for n in nodes):
                self._enumerate(branch, literals, strings, leaves, plans)
                continue
            barred = self._barred(nodes)
            for kind, value, text in _WORDS:
                if types & kind and not (barred and json_key(value) in barred):
                    literals[text] = None
            for scalar in self.scalars.of(types, nodes):
                left = self.scalars.excluding(scalar, barred) if barred else (scalar, scalar.start)
                if left is not None:
                    leaves[left] = None
            own: list[ObjectPlan | ArrayPlan] = []
            if types & OBJECT:
                numbers = [n for n in branch.nodes if self.nodes[n].speaks_of_objects]
                if len(numbers) > 1:
                    if reading is None:
                        reading = self.conjunctions.reading_order(conjunction)
                    numbers.sort(key=lambda n: reading.get(n, UNLIMITED))
                own.append(self._object(tuple(numbers)))
            if types & ARRAY:
                own.append(self._array(branch.nodes))
            if own and barred and barred.containers:
                if self._draft4 or not all(plan.is_plain for plan in own):
                    return self.shapes(self._by_constants(conjunction))
                plans.update(dict.fromkeys([self._apart(plan, barred) for plan in own]))
            else:
                plans.update(dict.fromkeys(own))
        if strings:
            leaves.update(dict.fromkeys(self.scalars.listed(strings)))
        if literals:
            literal = literal_leaf(tuple(literals))
            leaves[literal, literal.start] = None
        return tuple(leaves), tuple(plans)

    def _apart(
        self, plan: ObjectPlan | ArrayPlan, barred: Barred
    ) -> ObjectPlan | ArrayPlan | Without:
        """The plan of what ``plan`` allows and ``barred`` does not."""
        frame = self._frames_apart.get(plan)
        if frame is None:
            frame = self._frames_apart[plan] = (
                ApartObject(self, plan) if isinstance(plan, ObjectPlan) else ApartArray(self, plan)
            )
        begun = frame.begun(barred.containers)
        return Without(frame, begun) if begun else plan

    def _barred(self, nodes: Sequence[Node]) -> Barred:
        """The values that ``nodes`` bar."""
        sets = [node.excluded for node in nodes if node.excluded]
        if not sets:
            return _NONE_BARRED
        if len(sets) == 1 and isinstance(sets[0], Barred):
            return sets[0]
        told = self.told
        return told.barred((*sorted({told.number(value) for some in sets for value in some}),))

    def _any_of(self, types: int) -> Shapes:
        """The shapes of values of which nothing but ``types`` is asked."""
        leaves = scalar_leaves(types & ~(OBJECT | ARRAY), *self._how)
        if types & (OBJECT | ARRAY) == 0:
            return leaves, ()
        plans: list[ObjectPlan | ArrayPlan] = []
        if types & OBJECT:
            plans.append(self._object(()))
        if types & ARRAY:
            plans.append(self._array(()))
        return leaves, tuple(plans)

    def _object(self, nodes: tuple[int, ...]) -> ObjectPlan:
        nodes = tuple([n for n in nodes if self.nodes[n].speaks_of_objects])
        plan = self._objects.get(nodes)
        if plan is None:
            plan = self._objects[nodes] = ObjectPlan(self, nodes)
        return plan

    def _array(self, nodes: tuple[int, ...]) -> ArrayPlan:
        nodes = tuple([n for n in nodes if self.nodes[n].speaks_of_arrays])
        plan = self._arrays.get(nodes)
        if plan is None:
            plan = self._arrays[nodes] = ArrayPlan(self, nodes)
        return plan

    def required_members(self, nodes: tuple[int, ...]) -> list[tuple[str, int]]:
        """The names that an object of these nodes must have, and what their values are owed to."""
        return self._object(nodes).required_members()

    def required_items(self, nodes: tuple[int, ...]) -> list[int]:
        """What the items that an array of these nodes must have are owed to."""
        return self._array(nodes).required_children()

    # -- enumerations -----------------------------------------------------------------------

    def _enumerate(
        self,
        branch: Branch,
        literals: dict[bytes, None],
        strings: dict[str, bool],
        leaves: dict[tuple[Leaf, int], None],
        plans: dict[AnyPlan, None],
    ) -> None:
        values: dict[Any, Any] | None = None
        for number in branch.nodes:
            enum = self.nodes[number].enum
            if enum is not None:
                keyed = by_key(enum)
                values = (
                    keyed if values is None else {k: v for k, v in values.items() if k in keyed}
                )
        assert values is not None
        nodes = [self.nodes[n] for n in branch.nodes]
        barred = self._barred(nodes)
        demanding = [
            2 * n
            for n, node in zip(branch.nodes, nodes, strict=True)
            if not _BESIDE_A_LIST.isdisjoint(vars(node))
        ]
        containers = sum(isinstance(v, (dict, list, tuple)) for v in values.values())
        check_limit(
            containers,
            MAX_CONTAINERS,
            f"the enum at {nodes[0].path} lists too many objects and arrays; list fewer, or "
            "describe them with properties and items",
        )
        count = sum(key[0] == "number" for key in values if isinstance(key, tuple))
        few_numbers = not self.options.canonical and count <= MAX_SPELT_NUMBERS
        for key, value in values.items():
            # In draft 4 the spelling of a number, which is open here, decides whether it is an
            # integer: each way is judged, and inside a container by the plan itself.
            forms = evaluate.forms(value) if self._draft4 else [value]
            by_plan = self._draft4 and isinstance(value, (dict, list, tuple))
            types = 0
            for form in forms:
                kind = evaluate.type_bit(form) & branch.types
                if by_plan or all(evaluate.holds(self.nodes, ob, form) for ob in demanding):
                    types |= kind
            if key in barred:
                types = 0
            beside = branch.nodes if by_plan else ()
            if isinstance(value, str):
                strings[value] = bool(types) or strings.get(value, False)
            elif not types:
                continue
            elif isinstance(value, dict):
                plans[self._object((self.constant(value) >> 1, *beside))] = None
            elif isinstance(value, (list, tuple)):
                plans[self._array((self.constant(value) >> 1, *beside))] = None
            else:
                form = types if self._draft4 else ALL_TYPES
                if few_numbers and evaluate.type_bit(value) & NUMBER:
                    exactly = Node("$", minimum=to_decimal(value), maximum=to_decimal(value))
                    leaf = number_leaf(number_spec(form, [exactly], self.options))
                    if leaf is not None:
                        leaves[leaf, leaf.start] = None
                    continue
                texts = spellings(value, self.options.canonical, form)
                literals.update(dict.fromkeys(texts))
