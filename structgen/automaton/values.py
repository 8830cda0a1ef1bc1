"""What a JSON value may look like: conjunctions of schema nodes → leaves and frames.

Every value is owed to a *conjunction*: a set of schema nodes that all apply to it. `JsonLanguage`
resolves a conjunction's in-place applicators into branches (disjunction outside, conjunction
inside), merges each branch's assertions type by type, and answers with `Alternative`s for the
machine: one leaf for all scalars of a kind, an object or array leaf with its frame pushed. It also
knows which conjunctions nothing satisfies, so that no mask leads into a dead end, and the shortest
text of each.

Conjunctions are integers, that of one obligation being the obligation itself; everything about one
is computed when it is first asked for. This module knows the JSON types; `objects` and `arrays` own
what happens between the brackets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

from ..errors import CompileLimitExceeded
from ..grammar import ir
from ..grammar.formats import FEWEST, format_of
from ..grammar.schema_graph import (
    ALL_TYPES,
    ARRAY,
    BOOLEAN,
    DIGITS,
    FALSE,
    INTEGER,
    NULL,
    NUMBER,
    OBJECT,
    POINTED,
    STRING,
    TRUE,
    Node,
    SchemaGraph,
    by_key,
    json_key,
    to_decimal,
)
from . import evaluate
from .alphabet import Alphabet
from .arrays import ArrayLeaf, ArrayPlan
from .branches import Branch, Brancher
from .encoding import Escapes, JsonString, json_string
from .excluding import ExcludingLeaf, bytes_of_many
from .frames import Alternative
from .keys import NameLeaf
from .leaf import Leaf
from .nesting import UNLIMITED, NestingBound, height_of_text, watch_from
from .numbers import NumberLeaf, NumberSpec
from .objects import ObjectPlan
from .opening import PlainRoot
from .options import JsonOptions
from .plain import PlainSight
from .plain_patterns import has_string
from .rule_reader import RuleReader
from .rules import RuleBook
from .scalars import (
    literal_leaf,
    name_leaf,
    number_forms,
    number_leaf,
    number_spec,
    scalar_leaves,
    spellings,
    string_leaf,
    string_regex,
)
from .string_reader import StringReader
from .text_leaf import StringLeaf
from .whitespace import whitespace

MAX_CONTAINERS = 500
"""Most objects and arrays that one ``enum`` may list."""

MAX_SPELT_NUMBERS = 64
"""Most numbers of one ``enum`` that may be spelt in every way; more are spelt as serialisers do."""

MAX_DEPTH_COMPARED = 128
"""Deepest nesting where a schema has unique items: comparing them takes Python recursion."""

_WORDS = ((NULL, None, b"null"), (BOOLEAN, True, b"true"), (BOOLEAN, False, b"false"))

_ONE_ATOM = Alphabet(())

_spelt_as_it_is = re.compile(r"[ !#-\[\]-~]*").fullmatch
"""Printable ASCII without quotes and backslashes: what no option asks to be escaped."""


class JsonLanguage:
    """All values of one schema, by conjunction.

    Args:
        graph: the schema.
        options: how JSON is written.
        missing: bytes from 0x7F on that cannot be written.
    """

    def __init__(
        self, graph: SchemaGraph, options: JsonOptions, missing: frozenset[int] = frozenset()
    ) -> None:
        self.nodes = list(graph.nodes)
        self.typed = graph.typed
        self.options = options
        self.missing = missing
        # What scalars of which only the type is asked depend on.
        self._how = options.free, missing, options.max_digits, options.canonical
        self.space = whitespace(options.whitespace, options.max_whitespace)
        # Those of several obligations, by ``-1 - number``: nearly all are of one.
        self._conjunctions: list[tuple[int, ...]] = []
        # Those that were given in another order first, by number.
        self._as_met: dict[int, tuple[int, ...]] = {}
        self._conjunction_ids: dict[tuple[int, ...], int] = {}
        self._branches: dict[int, tuple[Branch, ...]] = {}
        self._alternatives: dict[int, tuple[Alternative, ...]] = {}
        self._shapes: dict[int, Shapes] = {}
        self._objects: dict[tuple[int, ...], ObjectPlan] = {}
        self._arrays: dict[tuple[int, ...], ArrayPlan] = {}
        self._shortest: dict[int, bytes | None] = {}
        self._levels: dict[int, int] = {}  # what `_nesting` has made
        self.max_depth = options.max_depth
        self.said = graph.said
        if "unique" in self.said:
            self.max_depth = min(options.max_depth or UNLIMITED, MAX_DEPTH_COMPARED)
        self._watch_from = watch_from(graph, self.max_depth)
        self._plain = PlainSight(
            self.nodes,
            self._has_string,
            options.max_digits,
            bool(missing),
            graph.typed,
        )
        self.unbounded_root = self.root = graph.root
        if self.max_depth is not None and not self._watch_from:
            bound = self._nesting.at_most(self.max_depth)
            self.root = self.conjunction([graph.root, bound])

    # What the first mask of most schemas does not ask for is made when something does.

    _solving: dict[int, bytes | None] | None = None
    _reading = 0
    _unsolved: dict[int, None]
    _readers: dict[int, set[int]]

    @cached_property
    def book(self) -> RuleBook:
        """The rules about objects' members."""
        return RuleBook()

    @cached_property
    def _nesting(self) -> NestingBound:
        return NestingBound(self.add, self._levels)

    @cached_property
    def _limited(self) -> dict[int, int]:
        return {}

    @cached_property
    def _constants(self) -> dict[Any, int]:
        return {}

    @cached_property
    def _many(self) -> dict[tuple[int, int], bool]:
        """Whether so many values satisfy a conjunction."""
        return {}

    @cached_property
    def _singles(self) -> dict[Any, tuple[Leaf, int] | None]:
        """See `_single`."""
        return {}

    @cached_property
    def _overlaps(self) -> dict[tuple[int, int], bool]:
        return {}

    @cached_property
    def _no_strings(self) -> set[tuple[ir.Regex, Escapes]]:
        """Languages that are empty."""
        return set()

    @cached_property
    def least_space(self) -> bytes:
        """The shortest whitespace between brackets and what is inside."""
        return self.space.least

    @cached_property
    def least_comma(self) -> bytes:
        """A comma with the shortest whitespace around it."""
        return self.space.least + b"," + self.space.least_after

    @cached_property
    def least_colon(self) -> bytes:
        """A colon with the shortest whitespace around it."""
        return self.space.least + b":" + self.space.least_after

    @cached_property
    def array_leaf(self) -> ArrayLeaf:
        """The leaf for what stands between items."""
        return _array_leaf(self.options.whitespace, self.options.max_whitespace)

    @cached_property
    def _brancher(self) -> Brancher:
        reader = RuleReader(self.nodes, self.book, self.constant, self.string_language)
        return Brancher(self.nodes, self._disjoint, self.constant, reader, self._strings)

    @cached_property
    def _strings(self) -> StringReader:
        return StringReader(self.nodes)

    @cached_property
    def _draft4(self) -> bool:
        """Whether it matters how whole numbers are written."""
        return any(n.types & INTEGER in (DIGITS, POINTED) for n in self.nodes)

    def release(self) -> None:
        """Let go of all that refers back to the language, so that no collector is needed for it.

        Nothing may be asked of it afterwards, nor of its frames.
        """
        made = self.__dict__.get("book")
        if made is not None:
            made.release()
        self.__dict__.clear()

    # -- conjunctions -----------------------------------------------------------------------

    def conjunction(self, obligations: Iterable[int]) -> int:
        """The number of the conjunction of ``obligations``."""
        given = dict.fromkeys(obligations)
        given.pop(TRUE, None)
        if FALSE in given:
            return FALSE
        if len(given) < 2:
            return next(iter(given), TRUE)
        key = tuple(sorted(given))
        found = self._conjunction_ids.get(key)
        if found is None:
            self._conjunctions.append(key)
            found = self._conjunction_ids[key] = -len(self._conjunctions)
            as_met = tuple(given)
            if as_met != key:
                self._as_met[found] = as_met
        return found

    def obligations(self, conjunction: int) -> tuple[int, ...]:
        """The obligations that the conjunction consists of."""
        if conjunction < 0:
            return self._conjunctions[~conjunction]
        return () if conjunction == TRUE else (conjunction,)

    def _node(self, conjunction: int) -> Node | None:
        """The node that the conjunction says to hold, and nothing else; None where it says more."""
        return None if conjunction < 0 or conjunction & 1 else self.nodes[conjunction >> 1]

    def conjunction_with(self, conjunction: int, more: Iterable[int]) -> int:
        """The conjunction of ``conjunction`` and further obligations."""
        return self.conjunction([*self.obligations(conjunction), *more])

    def branches(self, conjunction: int) -> tuple[Branch, ...]:
        """The conjunction's branches, without those that contradict themselves by type."""
        found = self._branches.get(conjunction)
        if found is None:
            node = self._node(conjunction)
            if node is not None and not node.applies_in_place:  # as most are
                own = (conjunction >> 1,) if node.asserts else ()
                found = (Branch(node.types, own),) if node.types else ()
            else:
                with self.placed(conjunction):
                    found = tuple(self._brancher.expand(self.obligations(conjunction)))
            self._branches[conjunction] = found
        return found

    def add(self, node: Node) -> int:
        """The obligation that a new node holds."""
        return self._brancher.add(node)

    def _disjoint(self, a: int, b: int) -> bool:
        """Whether two obligations certainly exclude each other; False when that is not obvious."""
        key = (min(a, b), max(a, b))
        found = self._overlaps.get(key)
        if found is None:
            self._overlaps[key] = False  # the answer while it is being worked out
            found = self._overlaps[key] = self.clearly_empty(self.conjunction(key))
        return found

    def clearly_empty(self, conjunction: int, depth: int = 3) -> bool:
        """Whether the conjunction is empty by its scalars and its required members.

        A sufficient test that needs no fixpoint, ``depth`` levels deep.
        """
        if not depth:
            return False
        leaves, plans = self.shapes(conjunction)
        return not leaves and all(
            any(self.clearly_empty(child, depth - 1) for child in plan.required_children())
            for plan in plans
        )

    # -- what the machine asks --------------------------------------------------------------

    def limit_below(self, nodes: tuple[int, ...]) -> int:
        """The depth from which on the values in an object or array of ``nodes`` are limited."""
        levels = self._levels
        if not self._watch_from or (levels and any(2 * n in levels for n in nodes)):
            return UNLIMITED  # it minds its depth by itself
        return self._watch_from

    def opening(self) -> Alternative | None:
        """As `alternatives` of the root, if that is plainly an object: none of it is built yet."""
        opened = self._plain.opened(self.root) if self.root >= 0 else None
        return None if opened is None else PlainRoot(self).open(*opened)

    def alternatives(self, conjunction: int, limited: bool = False) -> tuple[Alternative, ...]:
        """How a value of this conjunction may start; empty when nothing satisfies it.

        A ``limited`` one nests no deeper than what is left of ``max_depth``.
        """
        if limited:
            known = self._limited.get(conjunction)
            if known is None:
                assert self.max_depth is not None
                bound = self._nesting.at_most(self.max_depth - self._watch_from)
                known = self._limited[conjunction] = self.conjunction_with(conjunction, [bound])
            conjunction = known
        found = self._alternatives.get(conjunction)
        if found is None and conjunction in self.typed:
            types = self.nodes[conjunction >> 1].types
            if not types & (OBJECT | ARRAY):
                found = self._alternatives[conjunction] = _free_scalars(types, *self._how)
        if found is None:
            leaves, plans = self.shapes(conjunction)
            try:
                ways = [Alternative(leaf, start) for leaf, start in leaves] if leaves else []
                for plan in plans:
                    if plan.is_possible():
                        ways.append(plan.open())
                found = tuple(ways)
            except CompileLimitExceeded as error:
                raise self._at(error, conjunction) from error
            self._alternatives[conjunction] = found
        return found

    def shapes(self, conjunction: int) -> Shapes:
        """The leaves and the object and array plans a value may take, possible or not."""
        found = self._shapes.get(conjunction)
        if found is None:
            try:
                found = self._shapes[conjunction] = self._build(conjunction)
            except CompileLimitExceeded as error:
                raise self._at(error, conjunction) from error
        return found

    @contextmanager
    def placed(self, conjunction: int) -> Iterator[None]:
        """Limits that are hit meanwhile name the place of the conjunction, if no other."""
        try:
            yield
        except CompileLimitExceeded as error:
            raise self._at(error, conjunction) from error

    def _at(self, error: CompileLimitExceeded, conjunction: int) -> CompileLimitExceeded:
        paths = (self.nodes[ob >> 1].path for ob in self.obligations(conjunction))
        return error.at(next((path for path in paths if path != "$"), "$"))

    def _build(self, conjunction: int) -> Shapes:
        if conjunction == TRUE:
            return self._any_of(ALL_TYPES)
        node = self._node(conjunction)
        if node is not None and not node.applies_in_place:
            if node.enum is None:
                if not node.excluded:
                    return self._asserted(node, (conjunction >> 1,))
            elif node.lists_strings_only:
                return self._listed(dict.fromkeys(node.enum, True)), ()
        literals: dict[bytes, None] = {}
        strings: dict[str, bool] = {}
        leaves: dict[Leaf, int] = {}
        plans: dict[ObjectPlan | ArrayPlan, None] = {}
        reading: dict[int, int] | None = None
        for branch in self.branches(conjunction):
            nodes = [self.nodes[n] for n in branch.nodes]
            types = branch.types
            if any(n.enum is not None for n in nodes):
                self._enumerate(branch, literals, strings, leaves, plans)
                continue
            barred = {json_key(v): v for n in nodes for v in n.excluded}
            for kind, value, text in _WORDS:
                if types & kind and not (barred and json_key(value) in barred):
                    literals[text] = None
            for scalar in self._scalars(types, nodes):
                left = self._excluding(scalar, barred) if barred else scalar
                if left is not None:
                    leaves[left] = left.start
            if types & OBJECT:
                numbers = [n for n in branch.nodes if self.nodes[n].speaks_of_objects]
                if len(numbers) > 1:
                    if reading is None:
                        reading = self._reading_order(conjunction)
                    numbers.sort(key=lambda n: reading.get(n, UNLIMITED))
                plans[self._object(tuple(numbers))] = None
            if types & ARRAY:
                plans[self._array(branch.nodes)] = None
        if strings:
            leaves.update(self._listed(strings))
        if literals:
            literal = literal_leaf(tuple(literals))
            leaves[literal] = literal.start
        return tuple(leaves.items()), tuple(plans)

    def _asserted(self, node: Node, nodes: tuple[int]) -> Shapes:
        """The shapes of values of which ``node``, whose number is in ``nodes``, says all."""
        types = node.types
        if types == OBJECT:
            return (), (self._object(nodes),)
        if types == ARRAY:
            return (), (self._array(nodes),)
        if node.says_types_only:
            return self._any_of(types)
        leaves: list[Leaf] = [*self._scalars(types, [node])]
        words = [text for kind, _, text in _WORDS if types & kind]
        if words:
            leaves.append(literal_leaf(tuple(words)))
        plans: list[ObjectPlan | ArrayPlan] = []
        if types & OBJECT:
            plans.append(self._object(nodes))
        if types & ARRAY:
            plans.append(self._array(nodes))
        return tuple([(leaf, leaf.start) for leaf in leaves]), tuple(plans)

    def _scalars(self, types: int, nodes: Sequence[Node]) -> list[StringLeaf | NumberLeaf]:
        """The leaves of the strings and numbers among ``types`` that meet the assertions of all
        ``nodes``, and may be among what these bar by value: `_excluding` takes that out."""
        leaves: list[StringLeaf | NumberLeaf] = []
        if types & STRING:
            regex = string_regex(nodes, with_barred=True)
            string = None if regex is None else self._string_leaf(regex, nodes)
            if string is not None:
                leaves.append(string)
        # With exponents, what spells one number is as large as all that does.
        apart = self.options.canonical
        for form in number_forms(types):
            number = number_leaf(number_spec(form, nodes, self.options, with_barred=apart))
            if number is not None:
                leaves.append(number)
        return leaves

    def _listed(self, strings: dict[str, bool]) -> tuple[tuple[Leaf, int], ...]:
        """The leaf, with its start, of those of ``strings`` that are allowed, if there are any.

        All are listed in it, so that one automaton serves whatever is barred.
        """
        named = name_leaf(tuple(strings), self.options.named, self.missing)
        mask = (1 << len(strings)) - 1
        if not all(strings.values()):
            mask = int("".join("01"[allowed] for allowed in reversed(strings.values())), 2)
        opened = named.open(mask)
        return () if opened is None else ((named, opened),)

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

    def _reading_order(self, conjunction: int) -> dict[int, int]:
        """The place of each node among those that a value may owe, a schema before its parts.

        It decides on the order of properties. Nodes that the engine has made have none.
        """
        order: dict[int, int] = {}
        owed = self._as_met.get(conjunction) or self.obligations(conjunction)
        stack = [ob >> 1 for ob in reversed(owed) if not ob & 1]
        while stack:
            number = stack.pop()
            if number not in order:
                order[number] = len(order)
                parts = self.nodes[number].parts_in_place()
                stack.extend(ob >> 1 for ob in reversed(parts) if not ob & 1)
        return order

    def _object(self, nodes: tuple[int, ...]) -> ObjectPlan:
        if len(nodes) == 1:
            nodes = nodes if self.nodes[nodes[0]].speaks_of_objects else ()
        else:
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

    def free_leaf(self, node: Node) -> StringLeaf | None:
        """The strings that a node's lengths and patterns allow, or None."""
        regex = string_regex([node])
        return None if regex is None else self._string_leaf(regex, [node])

    def _string_leaf(self, regex: ir.Regex, nodes: Sequence[Node]) -> StringLeaf | None:
        """A leaf for strings; those with a pattern or format are spelt as names are."""
        has_pattern = any(node.patterns for node in nodes)
        escapes = self.options.named if has_pattern else self.options.free
        if (regex, escapes) in self._no_strings:
            return None
        leaf = string_leaf(regex, escapes, self.missing)
        if leaf is None:
            self._no_strings.add((regex, escapes))
        return leaf

    # -- scalars ----------------------------------------------------------------------------

    def _excluding(
        self, leaf: StringLeaf | NumberLeaf, barred: Mapping[Any, Any]
    ) -> StringLeaf | NumberLeaf | ExcludingLeaf | None:
        """``leaf`` without the values ``barred``, which are known by their `json_key`; None where
        nothing is left."""
        singles = [self._single(leaf, key, value) for key, value in barred.items()]
        known = [single for single in singles if single is not None]
        if not known:
            return leaf
        found = ExcludingLeaf(leaf, leaf.start, known)
        return None if found.is_empty() else found

    def _single(
        self, leaf: StringLeaf | NumberLeaf, key: Any, value: Any
    ) -> tuple[Leaf, int] | None:
        """All ways to spell one value as ``leaf`` may, and where that automaton starts; None for
        what ``leaf`` does not spell."""
        if isinstance(leaf, StringLeaf):
            if not isinstance(value, str):
                return None
            assert isinstance(leaf.encoding, JsonString)
            escapes = leaf.encoding.escapes
            name: tuple[Any, str] = key, escapes
            if name not in self._singles:
                named = NameLeaf((value,), escapes, self.missing)
                start = named.open(1)
                self._singles[name] = None if start is None else (named, start)
        else:
            if not self.options.canonical:
                return None  # it is told by the leaf itself
            if not isinstance(value, (int, float, Decimal)) or isinstance(value, bool):
                return None
            name = key, leaf.spec.form
            if name not in self._singles:
                number = to_decimal(value) or Decimal(0)
                spec = NumberSpec(
                    lower=number,
                    upper=number,
                    max_digits=leaf.spec.max_digits,
                    canonical=leaf.spec.canonical,
                    form=leaf.spec.form,
                )
                only = NumberLeaf(spec)
                self._singles[name] = None if only.is_empty() else (only, only.start)
        return self._singles[name]

    def string_language(self, obligation: int) -> ir.Regex:
        """The strings, as text, that meet ``obligation``."""
        parts: list[ir.Regex] = []
        for branch in self.branches(self.conjunction([obligation])):
            if not branch.types & STRING:
                continue
            nodes = [self.nodes[n] for n in branch.nodes]
            enum = next((n.enum for n in nodes if n.enum is not None), None)
            if enum is None:
                regex = string_regex(nodes)
                if regex is not None:
                    parts.append(regex)
            else:
                parts += [
                    ir.literal(v)
                    for v in enum
                    if isinstance(v, str)
                    and all(evaluate.holds(self.nodes, 2 * n, v) for n in branch.nodes)
                ]
        return parts[0] if len(parts) == 1 else ir.Alternate(tuple(parts))

    def spell(self, name: str) -> bytes:
        """``name`` as a JSON string in its shortest allowed spelling."""
        if _spelt_as_it_is(name):
            return b'"%b"' % name.encode()
        speller = json_string(_ONE_ATOM, self.options.named, self.missing)
        return b'"' + b"".join(speller.spell(ord(c)) for c in name) + b'"'

    # -- enumerations -----------------------------------------------------------------------

    def _enumerate(
        self,
        branch: Branch,
        literals: dict[bytes, None],
        strings: dict[str, bool],
        leaves: dict[Leaf, int],
        plans: dict[ObjectPlan | ArrayPlan, None],
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
        barred = {json_key(v) for node in nodes for v in node.excluded}
        demanding = [
            2 * n
            for n, node in zip(branch.nodes, nodes, strict=True)
            if node.applies_in_place
            or node.speaks_of_strings
            or node.speaks_of_numbers
            or node.speaks_of_objects
            or node.speaks_of_arrays
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
                        leaves[leaf] = leaf.start
                    continue
                texts = spellings(value, self.options.canonical, form)
                literals.update(dict.fromkeys(texts))

    def constant(self, value: Any) -> int:
        """The obligation to equal ``value``."""
        key = (json_key(value), repr(value))  # equal values may be spelt differently
        found = self._constants.get(key)
        if found is not None:
            return found
        if isinstance(value, dict):
            node = Node(
                "$",
                types=OBJECT,
                properties={k: self.constant(v) for k, v in value.items()},
                required=tuple(value),
                additional=FALSE,
            )
        elif isinstance(value, (list, tuple)):
            node = Node(
                "$",
                types=ARRAY,
                prefix=tuple(self.constant(v) for v in value),
                items=FALSE,
                min_items=len(value),
            )
        else:
            node = Node("$", enum=(value,))
        found = self._constants[key] = self.add(node)
        return found

    # -- emptiness and shortest texts -------------------------------------------------------

    def is_possible(self, conjunction: int) -> bool:
        """Whether any value satisfies the conjunction."""
        if conjunction in self.typed:
            return True  # a look at what most properties are
        if conjunction == FALSE:
            return False
        if self._levels:
            if self.plainly_possible(conjunction):
                return True
        elif conjunction >= 0 and self._plain.possible(conjunction):
            return True
        # A leaf is only made when some text reaches its end.
        return bool(self.shapes(conjunction)[0]) or self.shortest(conjunction) is not None

    def plainly_possible(self, conjunction: int) -> bool:
        """A cheap sufficient test that builds nothing."""
        levels = self._levels
        if not levels:
            return conjunction >= 0 and self._plain.possible(conjunction)
        key = self.obligations(conjunction)
        room = min((levels[ob] for ob in key if ob in levels), default=UNLIMITED)
        if room != UNLIMITED:
            key = tuple(ob for ob in key if ob not in levels)
        if len(key) != 1:
            return not key
        return self._plain.possible(key[0], room)

    def _has_string(self, node: Node) -> bool:
        """Whether there is a string of a node's lengths and patterns."""
        if not node.patterns:
            return node.max_length is None or node.min_length <= node.max_length
        if len(node.patterns) == 1:
            (pattern,) = node.patterns
            least, most = node.min_length, node.max_length
            name = format_of(pattern)
            if name is None:
                found = has_string(pattern, least, most)
            else:
                fewest = FEWEST[name]
                # A shortest string is of printable ASCII, which every vocabulary can write.
                found = least <= fewest and (most is None or fewest <= most)
            if found:
                return True
        return self.free_leaf(node) is not None

    def size_at_least(self, conjunction: int, size: int) -> bool:
        """A cheap sufficient test that ``size`` different values satisfy the conjunction."""
        count = 0
        for branch in self.branches(conjunction):
            nodes = [self.nodes[n] for n in branch.nodes]
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
            leaves, _ = self.shapes(conjunction)
            found = any(bytes_of_many(leaf, q, size - 1) is not None for leaf, q in leaves)
            self._many[key] = found
        return found

    @property
    def is_solving(self) -> bool:
        """Whether answers of `shortest` are provisional: a fixpoint is being computed."""
        return self._solving is not None

    def shortest(self, conjunction: int) -> bytes | None:
        """A shortest text of the conjunction (see `Frame.finish`), or None when it is empty.

        Least fixpoint over the conjunctions it depends on: recursion counts as impossible until
        a way out of it is found.
        """
        if conjunction in self._shortest:
            return self._shortest[conjunction]
        levels = self._levels
        key = self.obligations(conjunction) if levels else ()
        room = min([levels[ob] for ob in key if ob in levels], default=UNLIMITED)
        if room != UNLIMITED:
            # Nearly always the shortest text of all is shallow enough: no level is then worked out.
            text = self.shortest(self.conjunction(ob for ob in key if ob not in levels))
            if text is None or height_of_text(text) <= room:
                return text
        values = self._solving
        if values is not None:
            # Inside the fixpoint below: answer with the best known so far.
            if conjunction not in values:
                values[conjunction] = None
                reading = self._reading
                with self.placed(conjunction):
                    is_scalar = not self.shapes(conjunction)[1]
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
        try:
            while self._unsolved:
                # The newest first: what a value is made of before the value itself.
                item, _ = self._unsolved.popitem()
                self._improve(item, values)
        finally:
            self._solving = None
        self._shortest.update(values)
        return values[conjunction]

    def _improve(self, item: int, values: dict[int, bytes | None]) -> None:
        """Work out the shortest text of ``item`` from those known of what is inside."""
        self._reading = item
        with self.placed(item):
            text = self._shortest_shape(item)
        best = values[item]
        if text is not None and (best is None or len(text) < len(best)):
            values[item] = text
            self._unsolved.update(dict.fromkeys(self._readers.get(item, ())))

    def _shortest_shape(self, conjunction: int) -> bytes | None:
        """The shortest text, as far as those of what is inside are known."""
        leaves, plans = self.shapes(conjunction)
        best: bytes | None = None
        for leaf, start in leaves:
            if best is not None and leaf.at_least(start) >= len(best):
                continue
            shortest = leaf.shortest(start)
            if shortest is not None and (best is None or len(shortest[0]) < len(best)):
                best = shortest[0]
        for plan in plans:
            text = plan.shortest_text()
            if text is not None and (best is None or len(text) < len(best)):
                best = text
        return best


Shapes: TypeAlias = "tuple[tuple[tuple[Leaf, int], ...], tuple[ObjectPlan | ArrayPlan, ...]]"


@lru_cache(maxsize=256)
def _free_scalars(
    types: int, escapes: Escapes, missing: frozenset[int], max_digits: int, canonical: bool
) -> tuple[Alternative, ...]:
    """The alternatives of scalars of which nothing but ``types`` is asked, in any schema."""
    leaves = scalar_leaves(types, escapes, missing, max_digits, canonical)
    return tuple([Alternative(leaf, start) for leaf, start in leaves])


@lru_cache(maxsize=64)
def _array_leaf(style: str, max_run: int) -> ArrayLeaf:
    return ArrayLeaf(whitespace(style, max_run))
