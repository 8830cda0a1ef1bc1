"""The texts of JSON values: conjunctions of schema nodes → leaves and frames.

Every value has a *conjunction* (`conjunctions`): the set of schema nodes that apply to it.
`JsonLanguage` resolves a conjunction's in-place applicators into branches (a disjunction of
conjunctions), and merges each branch's assertions by type. For the machine it makes `Alternative`s:
one leaf for all scalars of a kind, or an object or array leaf with its frame pushed. `scalars`
knows how strings and numbers are written, `objects` and `arrays` what is between the brackets.
Everything about a conjunction is computed on first use.

`Emptiness` finds whether a conjunction has a value, and its shortest text: a least fixpoint over
the conjunctions inside it. Cheap sufficient tests run first. So no mask leads into a dead end.

`check` finds errors before the first text. It builds values where `quick_checks` cannot decide,
finds a string for each pattern, and checks that unique items can be distinguished. `contradiction`
explains why a root is empty: it follows required members and items to the place without a value,
and names the assertions there that exclude each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Set
from copy import copy
from decimal import Decimal
from functools import cache, cached_property
from typing import Any, TypeAlias

from structgen.automaton.core.frames import Alternative
from structgen.automaton.core.leaf import Leaf
from structgen.automaton.core.text_leaf import StringLeaf
from structgen.automaton.regex.quotes import unquotable
from structgen.automaton.regex.symbols import probe
from structgen.automaton.schema import evaluate
from structgen.automaton.schema.branches import Branch
from structgen.automaton.schema.conjunctions import Barred, Conjunctions, NumberedValues
from structgen.automaton.schema.evaluate import answered
from structgen.automaton.schema.nesting import UNLIMITED, NestingBound, watch_from
from structgen.automaton.schema.quick_checks import INVOLVED, PlainNodes, QuickChecks
from structgen.automaton.schema.strings import has_plain_string
from structgen.automaton.texts import Text, put, repeated
from structgen.automaton.work import WORK
from structgen.errors import CompileLimitExceeded, Unsatisfiable, UnsupportedFeature, check_limit
from structgen.grammar import ir
from structgen.grammar.formats import FORMATS, format_of
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
    TYPE_BITS,
    Node,
    SchemaGraph,
    by_key,
    child_path,
    json_key,
    show,
    to_decimal,
)

from .apart import Apart, ApartArray, ApartObject, Without
from .arrays import ArrayPlan
from .closing import check_owed
from .document import PlainRoot
from .excluding import bytes_of_many
from .language import Language
from .objects import ObjectPlan
from .options import JsonOptions
from .scalars import literal_leaf, number_leaf, number_spec, scalar_leaves, spellings
from .whitespace import indentation, whitespace

AnyPlan: TypeAlias = ObjectPlan | ArrayPlan | Without

Shapes: TypeAlias = tuple[tuple[tuple[Leaf, int], ...], tuple[AnyPlan, ...]]
"""Leaves, each with its start state, and plans."""


_MOST_UNDER_WAY = 12
"""The deepest chain of conjunctions that one test for clear emptiness follows."""


class Emptiness:
    """Knows which conjunctions have texts, and their shortest texts.

    Args:
        conjunctions: the conjunctions.
        typed: the requirements that only name one type, or none.
        plain: cheap tests of the nodes.
        branches: returns a conjunction's branches, without those whose types contradict each other.
        shapes: returns the leaves and the object and array plans of a value, possible or not.

    Attributes:
        levels: for each requirement of `nesting`, the levels that it allows.
        any_will_do: whether `shortest` may return any text, because only its existence matters.
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
        self._some: dict[int, Text | None] = {}  # any text of each, if there is one
        self._looking_at: set[int] = set()
        self.levels: dict[int, int] = {}
        # Whether that many values satisfy a conjunction.
        self._many: dict[tuple[int, int], bool] = {}

    any_will_do = False
    _solving: dict[int, Text | None] | None = None
    _reading = 0
    _improvements = 0
    _unsolved: dict[int, None]
    _readers: dict[int, set[int]]

    # -- sufficient tests -------------------------------------------------------------------

    def plainly_possible(self, conjunction: int) -> bool:
        """Return True if a cheap test, which builds nothing, finds it possible."""
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
        """Return whether the conjunction is empty by its scalars and its required members.

        A sufficient test without a fixpoint, ``depth`` levels deep.
        """
        under_way = self._looking_at
        if not depth or conjunction in under_way or len(under_way) >= _MOST_UNDER_WAY:
            return False
        under_way.add(conjunction)  # building its shapes may need this very result
        try:
            leaves, plans = self._shapes(conjunction)
            return not leaves and all(
                any(self.clearly_empty(child, depth - 1) for child in plan.required_children())
                for plan in plans
            )
        finally:
            under_way.remove(conjunction)

    def size_at_least(self, conjunction: int, size: int) -> bool:
        """Return True if a cheap test finds ``size`` different values of the conjunction."""
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
            self._many[key] = False  # to itself: a value may contain others of its kind
            found = self.bytes_of_many(conjunction, size - 1, 0) is not None
            plans = self._shapes(conjunction)[1]
            if not found and plans and self.is_solving:
                del self._many[key]
                return False
            self._many[key] = found = found or any(plan.size_at_least(size) for plan in plans)
        return found

    def bytes_of_many(self, conjunction: int, count: int, depth: int = 3) -> int | None:
        """Return a length within which there are more than ``count`` different values; None if this
        is not obvious."""
        leaves, plans = self._shapes(conjunction)
        sizes = [bytes_of_many(leaf, q, count) for leaf, q in leaves]
        objects = [plan for plan in plans if depth and isinstance(plan, ObjectPlan)]
        sizes += [plan.bytes_of_many(count, depth - 1) for plan in objects]
        return min([size for size in sizes if size is not None], default=None)

    # -- the fixpoint -----------------------------------------------------------------------

    def is_possible(self, conjunction: int) -> bool:
        """Return whether any value satisfies the conjunction."""
        if conjunction in self.typed:
            return True  # a quick check for most properties
        if conjunction == FALSE:
            return False
        if self.plainly_possible(conjunction):
            return True
        # A leaf is only made if some text reaches its end.
        return bool(self._shapes(conjunction)[0]) or self.some(conjunction) is not None

    @property
    def is_solving(self) -> bool:
        """Whether results of `shortest` are provisional, because a fixpoint is being computed."""
        return self._solving is not None

    @property
    def provisional(self) -> tuple[int, int]:
        """While this value stays the same, so do the caller's results of `shortest`."""
        return self._reading, self._improvements

    def some(self, conjunction: int) -> Text | None:
        """Return any text of the conjunction, which is faster than the shortest; None if empty."""
        if self._solving is not None:
            return self.shortest(conjunction)
        self.any_will_do = True
        try:
            return self.shortest(conjunction)
        finally:
            self.any_will_do = False

    def shortest(self, conjunction: int) -> Text | None:
        """Return a shortest text of the conjunction (see `Frame.finish`), or None if it is empty.

        A least fixpoint over the conjunctions that it depends on: recursion counts as impossible
        until a way out of it is found.
        """
        if conjunction in self._shortest:
            return self._shortest[conjunction]
        if self.any_will_do and conjunction in self._some:
            return self._some[conjunction]
        levels = self.levels
        key = self._conjunctions.requirements(conjunction) if levels else ()
        room = min([levels[ob] for ob in key if ob in levels], default=UNLIMITED)
        if room != UNLIMITED:
            # The shortest text is nearly always shallow enough, so no level has to be computed.
            text = self.shortest(self._conjunctions.of(ob for ob in key if ob not in levels))
            if text is None or height_of_text(text) <= room:
                return text
        values = self._solving
        if values is not None:
            # Inside the fixpoint below: return the best result so far.
            if conjunction not in values:
                values[conjunction] = None
                reading = self._reading
                with self._conjunctions.placed(conjunction):
                    is_scalar = not self._shapes(conjunction)[1]
                if is_scalar:
                    # Otherwise an object would be computed again after each of its members.
                    self._improve(conjunction, values)
                    self._reading = reading
                else:
                    self._unsolved[conjunction] = None
            self._readers.setdefault(conjunction, set()).add(self._reading)
            return values[conjunction]
        self._solving = values = {conjunction: None}
        self._unsolved = {conjunction: None}
        self._readers = {}
        self._improvements += 1  # `provisional` results are invalid now
        try:
            while self._unsolved:
                # The newest first: the parts of a value before the value itself.
                item, _ = self._unsolved.popitem()
                self._improve(item, values)
        finally:
            self._solving = None
        (self._some if self.any_will_do else self._shortest).update(values)
        return values[conjunction]

    def _improve(self, item: int, values: dict[int, Text | None]) -> None:
        """Compute the shortest text of ``item`` from the known texts of its parts."""
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
        """Return the shortest text, as far as the texts of the parts are known."""
        leaves, plans = self._shapes(conjunction)
        best = _shortest_of(leaves)
        for plan in plans:
            if best is not None and self.any_will_do:
                break
            text = plan.shortest_text()
            if text is not None and (best is None or len(text) < len(best)):
                best = text
        return best


def _shortest_of(leaves: Iterable[tuple[Leaf, int]]) -> Text | None:
    """Return the shortest text of leaves, each with its start state."""
    best: Text | None = None
    for leaf, start in leaves:
        if best is not None and leaf.at_least(start) >= len(best):
            continue
        shortest = leaf.shortest(start)
        if shortest is not None and (best is None or len(shortest[0]) < len(best)):
            best = shortest[0]
    return best


_OUTSIDE, _IN_STRING, _ESCAPED, _OPENED = range(4)
"""Positions in a JSON text: outside a string, inside, or inside after a backslash; or, for
`indented`, after an opening bracket."""

_Depths: TypeAlias = tuple[int, int, int]
"""For a part of a text: its maximum depth and the depth at its end, relative to its start, and the
position there."""

_Part: TypeAlias = tuple[Text, int, int]
"""A part of a text, its position at the start or end, and the depth there."""


def height_of_text(text: Text) -> int:
    """Return the nesting depth of a JSON text."""
    return answered((text, _OUTSIDE), _depths, {})[0]


def _depths(asked: tuple[Text, int]) -> Generator[tuple[Text, int], _Depths, _Depths]:
    """Return the depths in part of a JSON text, visiting each part of a rope once."""
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
        # Values end at the depth at which they begin, so repeating one is no deeper.
        rounds = left if end == where else 1
        last = depth + change * (rounds - 1)
        height = max(height, depth + inner, last + inner)
        depth, where, left = last + change, end, left - rounds
    inner, change, where = yield text.second, where
    return max(height, depth + inner), depth + change, where


def indented(text: Text, indent: int, depth: int) -> Text:
    """Return compact JSON in the form of ``json.dumps(value, indent=indent)`` at ``depth``."""

    def lay_out(asked: _Part) -> Generator[_Part, _Part, _Part]:
        text, where, depth = asked
        if isinstance(text, bytes):
            out = bytearray()
            for byte in text:
                if where == _ESCAPED:
                    where = _IN_STRING
                elif where == _IN_STRING:
                    where = _OUTSIDE if byte == 0x22 else _ESCAPED if byte == 0x5C else _IN_STRING
                else:
                    is_open, is_closing = byte in (0x5B, 0x7B), byte in (0x5D, 0x7D)
                    depth -= is_closing
                    line = b"\n" + b" " * (indent * depth)
                    if (where == _OPENED) != is_closing:
                        out += line
                    depth += is_open
                    where = _OPENED if is_open else _IN_STRING if byte == 0x22 else _OUTSIDE
                    if byte in (0x2C, 0x3A):
                        out += b"," + line if byte == 0x2C else b": "
                        continue
                out.append(byte)
            WORK.spend(1 + (len(out) >> 3))
            WORK.hold(len(out))
            return bytes(out), where, depth
        laid: Text = b""
        left = text.times
        while left:
            first, *after = yield text.first, where, depth
            rounds = left if after == [where, depth] else 1
            laid = put(laid, repeated(first, rounds))
            (where, depth), left = after, left - rounds
        second, where, depth = yield text.second, where, depth
        return put(laid, second), where, depth

    return answered((text, _OUTSIDE, depth), lay_out, {})[0]


MAX_CONTAINERS = 500
"""The most objects and arrays in one ``enum``."""

MAX_SPELT_NUMBERS = 64
"""The most numbers of one ``enum`` that may be written in every way; more are written as
serialisers do."""

MAX_DEPTH_COMPARED = 128
"""The deepest nesting with unique items, because comparing them is recursive."""

_BESIDE_A_LIST = OF_VALUES | IN_PLACE
_ONE_FOR_ALL = ("numbered", "_brancher", "_nesting")
"""Attributes made on first use that all languages of an indented text share."""

_OF_WORDS = ((NULL, None), (BOOLEAN, True), (BOOLEAN, False))

_NONE_BARRED = NumberedValues().barred(())


def _shortest_indented(values: Emptiness, indent: int, depth: int) -> Callable[[int], Text | None]:
    @cache
    def shortest(conjunction: int) -> Text | None:
        text = values.shortest(conjunction)
        return None if text is None else indented(text, indent, depth)

    return shortest


class JsonLanguage(Language):
    """See `Language`."""

    values: Emptiness

    def __init__(
        self, graph: SchemaGraph, options: JsonOptions, missing: frozenset[int] = frozenset()
    ) -> None:
        super().__init__(graph, options, missing)
        self._plain = QuickChecks(
            self.nodes, self.scalars.has_string, self.scalars.has_number, bool(missing), graph.typed
        )
        # They refer to each other until `release`.
        self.values = Emptiness(
            self.conjunctions, graph.typed, self._plain, self.branches, self.shapes
        )
        self.space = (
            whitespace("compact")
            if options.indent is not None
            else whitespace(options.whitespace, options.max_whitespace)
        )
        self.shortest = self.values.shortest
        # The inputs of scalars whose only requirement is a type.
        self._how = options.free, missing, options.max_digits, options.spelling
        self._alternatives: dict[int, tuple[Alternative, ...]] = {}
        self._shapes: dict[int, Shapes] = {}
        self._objects: dict[tuple[int, ...], ObjectPlan] = {}
        self._arrays: dict[tuple[int, ...], ArrayPlan] = {}
        self.max_depth = options.max_depth
        self.used = graph.used
        if options.spelling == "python" and ("unique" in self.used or graph.lists_containers):
            raise UnsupportedFeature(  # such values are parsed again while they are written
                "uniqueItems, and enum of arrays and objects, in Python literals",
                fix="Use spelling='canonical', or another syntax= of ToolCalls.",
            )
        if "unique" in self.used:
            self.max_depth = min(options.max_depth or UNLIMITED, MAX_DEPTH_COMPARED)
        self._watch_from = watch_from(graph, self.max_depth)
        self.unbounded_root = self.root = graph.root
        if self.max_depth is not None and not self._watch_from:
            bound = self._nesting.at_most(self.max_depth)
            self.root = self.conjunctions.of([graph.root, bound])
        self._frames_apart: dict[ObjectPlan | ArrayPlan, Apart] = {}
        self._deeper = []

    # -- values in an indented text -------------------------------------------

    _depth: int | None = None
    _deeper: list[JsonLanguage]

    def at_depth(self, depth: int) -> JsonLanguage:
        """Return the language of values at ``depth``, as ``indent`` writes them.

        Which values exist, and which are short, is decided without whitespace.
        """
        indent, deeper = self.options.indent, self._deeper
        assert indent is not None
        while len(deeper) <= depth:
            for name in _ONE_FOR_ALL:
                getattr(self, name)
            other = copy(self)
            other._depth = at = len(deeper)
            other._alternatives, other._shapes = {}, {}
            other._objects, other._arrays, other._frames_apart = {}, {}, {}
            other.space = indentation(indent, at)
            other.shortest = _shortest_indented(self.values, indent, at)
            deeper.append(other)
        return deeper[depth]

    @property
    def inside(self) -> JsonLanguage:
        """See `Language`."""
        return self if self._depth is None else self.at_depth(self._depth + 1)

    def release(self) -> None:
        """See `Schema`."""
        deeper = self._deeper
        super().release()
        for other in deeper:
            other.__dict__.clear()

    @cached_property
    def _nesting(self) -> NestingBound:
        return NestingBound(self.add, self.values.levels)

    @cached_property
    def _draft4(self) -> bool:
        """Whether the form of whole numbers matters."""
        return any(n.types & INTEGER in (DIGITS, POINTED) for n in self.nodes)

    def _by_constants(self, conjunction: int) -> int:
        """Return ``conjunction`` with its barred objects and arrays as negated constants."""
        owed: list[int] = []
        for requirement in self.conjunctions.requirements(conjunction):
            node = self.nodes[requirement >> 1]
            barred = node.excluded
            if not isinstance(barred, Barred) or not barred.containers:
                owed.append(requirement)
                continue
            scalars = tuple([n for n in barred.numbers if n not in barred.containers])
            if scalars:
                owed.append(self.add(Node(node.path, excluded=self.numbered.barred(scalars))))
            owed += [self.constant(self.numbered.values[n]) ^ 1 for n in barred.containers]
        return self.conjunctions.of(owed)

    # -- what the machine asks --------------------------------------------------------------

    def limit_below(self, nodes: tuple[int, ...]) -> int:
        """See `Language`."""
        levels = self.values.levels
        if not self._watch_from or (levels and any(2 * n in levels for n in nodes)):
            return UNLIMITED  # it checks its depth itself
        return self._watch_from

    def opening(self) -> Alternative | None:
        """Return `alternatives` of a root that is clearly an object, without building members."""
        opened = self._plain.opened(self.root) if self.root >= 0 else None
        return None if opened is None else PlainRoot(self).open(*opened)

    def alternatives(self, conjunction: int, limited: bool = False) -> tuple[Alternative, ...]:
        """See `Language`."""
        if limited:
            assert self.max_depth is not None
            bound = self._nesting.at_most(self.max_depth - self._watch_from)
            conjunction = self.conjunctions.extended(conjunction, [bound])
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
            if node.has_types_only:
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
            for (kind, value), text in zip(_OF_WORDS, self.options.words, strict=True):
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
        """Return the plan of the values of ``plan`` without ``barred``."""
        frame = self._frames_apart.get(plan)
        if frame is None:
            inside = self.inside
            if isinstance(plan, ObjectPlan):
                frame = ApartObject(inside, plan)
            else:
                frame = ApartArray(inside, plan)
            self._frames_apart[plan] = frame
        begun = frame.begun(barred.containers)
        return Without(frame, begun) if begun else plan

    def _barred(self, nodes: Sequence[Node]) -> Barred:
        """Return the values that ``nodes`` bar."""
        sets = [node.excluded for node in nodes if node.excluded]
        if not sets:
            return _NONE_BARRED
        if len(sets) == 1 and isinstance(sets[0], Barred):
            return sets[0]
        numbered = self.numbered
        return numbered.barred(
            (*sorted({numbered.number(value) for some in sets for value in some}),)
        )

    def _any_of(self, types: int) -> Shapes:
        """Return the shapes of values whose only requirement is ``types``."""
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
            plan = self._objects[nodes] = ObjectPlan(self.inside, nodes)
        return plan

    def _array(self, nodes: tuple[int, ...]) -> ArrayPlan:
        nodes = tuple([n for n in nodes if self.nodes[n].speaks_of_arrays])
        plan = self._arrays.get(nodes)
        if plan is None:
            plan = self._arrays[nodes] = ArrayPlan(self.inside, nodes)
        return plan

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
        WORK.spend(2 * len(values))
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
            f"the enum at {nodes[0].path} has too many objects and arrays; use fewer, or describe "
            "them with properties and items",
        )
        count = sum(key[0] == "number" for key in values if isinstance(key, tuple))
        few_numbers = not self.options.canonical and count <= MAX_SPELT_NUMBERS
        for key, value in values.items():
            # In draft 4 the form of a number, which is open here, decides whether it is an integer.
            # So each form is checked; inside a container, the plan does it.
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
                texts = spellings(value, self.options, form)
                literals.update(dict.fromkeys(texts))


MAX_CHECKED = 2_000
"""The most combinations of subschemas that are built before the first text."""


def check(language: JsonLanguage) -> None:
    """Build the first plans, so that errors are raised now.

    Breadth first, up to `MAX_CHECKED` conjunctions: a schema's parts occur early, and later
    conjunctions combine them in other ways. Cheap for plain schemas (see `quick_checks`), as most
    are.
    """
    if "patterns" in language.used:
        _check_patterns(language)
    if "min_properties" in language.used:
        for node in language.nodes:
            if node.types & OBJECT:
                check_owed(node.min_properties - len(node.required), node.path)
    if language.used.isdisjoint(INVOLVED):
        return
    plain = PlainNodes(language.nodes)
    candidates = plain.worth_a_look
    if any(
        n.applies_in_place or n.contains or n.rules or n.repeats
        for n in map(language.nodes.__getitem__, candidates)
    ) and not all(plain.is_plain(2 * number) for number in candidates):
        _check_plans(language, plain)


def _check_plans(language: JsonLanguage, plain: PlainNodes) -> None:
    """Build the plans of conjunctions that may not be plain."""
    seen: set[int] = {language.unbounded_root}
    todo = deque(seen)
    below: dict[int, list[int]] = {}
    while todo and len(seen) <= MAX_CHECKED:
        conjunction = todo.popleft()
        children = below[conjunction] = []
        key = language.conjunctions.requirements(conjunction)
        if not key:
            continue
        if len(key) == 1 and plain.is_plain(key[0]):
            children += plain.children(key[0])
        else:
            with language.conjunctions.placed(conjunction):
                leaves, plans = language.shapes(conjunction)
                # Token budgets rely on these; later would be too late.
                _shortest_of(way for way in leaves if isinstance(way[0], StringLeaf))
                for plan in plans:
                    if isinstance(plan, ArrayPlan) and (plan.spec.contains or plan.spec.repeats):
                        plan.is_possible()
                    children += plan.children()
        for child in children:
            if child not in seen:
                seen.add(child)
                todo.append(child)
    if any(node.repeats for node in language.nodes):
        _check_unique(language, below)


def _check_unique(language: JsonLanguage, below: dict[int, list[int]]) -> None:
    """Check that unique items can be distinguished, so that none equals another.

    Args:
        below: for each conjunction, those of its members and items.
    """
    arrays = {
        conjunction: [p for p in language.shapes(conjunction)[1] if isinstance(p, ArrayPlan)]
        for conjunction in below
    }
    repeating = {c for c, plans in arrays.items() if any(p.spec.repeats for p in plans)}
    if not repeating:
        return
    todo = [
        c for at, plans in arrays.items() if any(p.spec.unique for p in plans) for c in below[at]
    ]
    seen: set[int] = set()
    while todo:
        conjunction = todo.pop()
        if conjunction in seen:
            continue
        seen.add(conjunction)
        todo += below.get(conjunction, ())
        if conjunction in repeating:
            others = [language.constant(value) ^ 1 for value in ([1, 1], [2, 2, 2])]
            with language.conjunctions.placed(conjunction):
                language.shapes(language.conjunctions.extended(conjunction, others))


def _check_patterns(language: JsonLanguage) -> None:
    """Find a string for each pattern, so that a pattern with too many states raises here.

    Formats alone are known to need few states.
    """
    for number, node in enumerate(language.nodes):
        if not node.patterns or has_plain_string(node):
            continue
        formats = [format_of(pattern) for pattern in node.patterns]
        own = tuple(p for p, name in zip(node.patterns, formats, strict=True) if name is None)
        if not own and node.min_length <= min(FORMATS[name].fewest for name in formats if name):
            continue  # it adds nothing to the format
        with language.conjunctions.placed(language.conjunctions.of([2 * number])):
            if own:
                try:
                    _probe(language, node, own)
                except CompileLimitExceeded as error:
                    raise error.at(child_path(node.path, "pattern")) from error
            for name in filter(None, formats):
                most = FORMATS[name].most_least
                if most is not None and node.min_length > most:
                    raise CompileLimitExceeded(
                        f"minLength with the format {name} needs too many automaton states",
                        limit=most,
                        actual=node.min_length,
                    )
            if len(own) < len(formats) and (own or node.min_length):
                leaf = language.scalars.free_leaf(node)
                if leaf is not None:
                    leaf.shortest(leaf.start)


def _probe(language: JsonLanguage, node: Node, patterns: tuple[ir.Regex, ...]) -> None:
    """Run `probe` for a node's patterns, with its lengths only if necessary.

    With lengths, each remaining count is a state: these are many, though each is visited once. So
    they are included only if the patterns alone do not decide.
    """
    for least, most in dict.fromkeys(((0, None), (node.min_length, node.max_length))):
        alone = Node(node.path, patterns=patterns, min_length=least, max_length=most)
        try:
            leaf = language.scalars.free_leaf(alone)
            if leaf is None or probe(leaf.symbols, leaf.encoding, node.min_length):
                return
        except CompileLimitExceeded:
            if most == node.max_length:
                raise


_MOST_LEVELS = 50
"""The most levels that a contradiction is followed down."""


def contradiction(language: JsonLanguage) -> Unsatisfiable:
    """Return the error that explains why the language's root is empty."""
    most = language.max_depth
    if language.root != language.unbounded_root and language.values.is_possible(
        language.unbounded_root
    ):
        return Unsatisfiable(
            f"all values of the schema are nested deeper than max_depth={most}, at $. Pass a "
            "larger max_depth, or None for no limit."
        )
    path, reason = _why(language)
    return Unsatisfiable(
        f"no JSON value satisfies the schema. It contradicts itself at {path}: {reason}.", path=path
    )


def _why(language: JsonLanguage) -> tuple[str, str]:
    """Return the deepest place without a value, and the assertions there.

    Follows the first of several alternatives.
    """
    conjunction, path = language.unbounded_root, "$"
    asked = "the schema there is false, which allows no value"
    seen: set[int] = set()
    while True:
        requirements = language.conjunctions.requirements(conjunction)
        if requirements == (FALSE,):
            return path, asked
        places = [language.nodes[ob >> 1].path for ob in requirements if not ob & 1]
        path = next((p for p in places if p != "$"), path)
        if conjunction in seen:
            return (
                path,
                "each value would have to contain another value of the same schema, without end",
            )
        branches = language.branches(conjunction)
        if not branches or len(seen) > _MOST_LEVELS:
            return (
                path,
                ("its types, or the alternatives of anyOf, oneOf and not, are mutually exclusive"),
            )
        seen.add(conjunction)
        branch = branches[0]
        nodes = [language.nodes[n] for n in branch.nodes]
        path = next((n.path for n in reversed(nodes) if n.path != "$"), path)
        within = next(_impossible_within(language, branch, nodes), None)
        if within is None:
            others = "" if len(branches) == 1 else ", and no other alternative is possible"
            nothing = f"no value satisfies all of {_asserted(branch.types, nodes)}{others}"
            empty = (unquotable(pattern) for node in nodes for pattern in node.patterns)
            return path, next(filter(None, empty), nothing)
        step, asked, conjunction = within
        if language.conjunctions.requirements(conjunction) != (FALSE,):
            path = child_path(path, *step)


def _impossible_within(
    language: JsonLanguage, branch: Branch, nodes: list[Node]
) -> Iterator[tuple[tuple[str, ...], str, int]]:
    """Yield the members and items that are required and impossible: the steps to each, the problem
    if none is allowed, and its conjunction."""
    nothing = language.conjunctions.of([FALSE])
    if any(node.enum is not None for node in nodes):
        return
    if branch.types == OBJECT:
        required = {name for node in nodes for name in node.required}
        for name, owed in language._object(branch.nodes).required_members():
            if name in required and not language.values.is_possible(owed):
                yield ("properties", name), f"{name!r} is required, but not allowed", owed
    if branch.types == ARRAY:
        for owed in language._array(branch.nodes).required_children():
            if owed != nothing and not language.values.is_possible(owed):
                yield ("items",), "", owed


_TOLD = OF_VALUES | {"enum", "excluded", "dependent_required"}
_TOLD -= {"not_multiple_of", "rules", "repeats"}
_CALLED = {
    "enum": "enum or const",
    "excluded": "not",
    "patterns": "pattern or format",
    "additional": "additionalProperties",
    "prefix": "prefixItems",
    "unique": "uniqueItems",
}
"""The fields of nodes that messages mention, and the names of those that are not keywords."""

_OF_REQUIREMENTS = ("additional", "items", "property_names")
"""The fields whose numbers are other nodes."""


def _asserted(types: int, nodes: list[Node]) -> str:
    """Return the assertions on a value of ``types``, in the words of the schema."""
    # Integers may have to be without a point. If any number may be, none is called an integer.
    bits_of = TYPE_BITS | {"integer": DIGITS if types & NUMBER != NUMBER else ALL_TYPES}
    names = [name for name, bits in bits_of.items() if types & bits == bits]
    asserted = [] if types == ALL_TYPES else [f"type {' or '.join(names)}"]
    for node in nodes:
        for field, value in node.fields().items():
            first, *more = field.split("_")
            name = _CALLED.get(field, "".join((first, *map(str.capitalize, more))))
            if field in ("enum", "required"):
                asserted.append(f"{name} {show(list(value))}")
            elif field in _TOLD:
                is_number = type(value) in (int, Decimal) and field not in _OF_REQUIREMENTS
                asserted.append(f"{name} {value}" if is_number else name)
    return ", ".join(dict.fromkeys(asserted))
