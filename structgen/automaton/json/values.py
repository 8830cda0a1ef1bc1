"""What a JSON value may look like: conjunctions of schema nodes → leaves and frames.

Every value is owed to a *conjunction* (`conjunctions`): a set of schema nodes that all apply to it.
`JsonLanguage` resolves a conjunction's in-place applicators into branches (disjunction outside,
conjunction inside), merges each branch's assertions type by type, and answers with `Alternative`s
for the machine: one leaf for all scalars of a kind, an object or array leaf with its frame pushed.
It knows the JSON types; how strings and numbers are spelt is `scalars`', what happens between the
brackets `objects`' and `arrays`', and whether there is any value, and how short, `emptiness`'.
Everything about a conjunction is computed when it is first asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from structgen.automaton.core.frames import Alternative
from structgen.automaton.core.leaf import Leaf
from structgen.automaton.schema import evaluate
from structgen.automaton.schema.branches import Branch
from structgen.automaton.schema.conjunctions import Barred, Told
from structgen.automaton.schema.nesting import UNLIMITED, NestingBound, watch_from
from structgen.automaton.schema.quick_checks import QuickChecks
from structgen.errors import CompileLimitExceeded
from structgen.grammar.json_schema import (
    ALL_TYPES,
    ARRAY,
    BOOLEAN,
    DIGITS,
    IN_PLACE,
    INTEGER,
    NULL,
    NUMBER,
    OBJECT,
    OF_VALUES,
    POINTED,
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
from .emptiness import AnyPlan, Emptiness, Shapes
from .language import Language
from .objects import ObjectPlan
from .options import JsonOptions
from .scalars import literal_leaf, number_leaf, number_spec, scalar_leaves, spellings

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
        if containers > MAX_CONTAINERS:
            raise CompileLimitExceeded(
                f"the enum at {nodes[0].path} lists too many objects and arrays; list fewer, or "
                "describe them with properties and items",
                limit=MAX_CONTAINERS,
                actual=containers,
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
