"""Which members an object must have together: propositional formulas over names.

``required``, ``dependentRequired`` and all their combinations under ``anyOf``, ``oneOf``, ``not``
and ``if`` speak only of which names are present. Multiplied out into branches they explode, and
every branch would be followed through the whole object. Kept as one formula they cost a few bits
of state. This module turns obligations into formulas and solves them; it knows nothing of values.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, TypeAlias

from ..errors import CompileLimitExceeded
from ..grammar.schema_graph import FALSE, OBJECT, TRUE, Node

Formula: TypeAlias = tuple[str, Any]
"""``("has", name)``, ``("lacks", name)``, ``("all", parts)`` or ``("any", parts)``."""

YES: Formula = ("all", ())
NO: Formula = ("any", ())

MAX_FORMULA = 5_000
MAX_SOLVING = 50_000
"""Most parts of one formula, and most steps of one search for members that satisfy it."""


def conjunction(parts: Iterable[Formula]) -> Formula:
    """The formula that all ``parts`` hold."""
    return _join("all", parts)


def disjunction(parts: Iterable[Formula]) -> Formula:
    """The formula that some of ``parts`` holds."""
    return _join("any", parts)


def _join(kind: str, parts: Iterable[Formula]) -> Formula:
    neutral, absorbing = (YES, NO) if kind == "all" else (NO, YES)
    flat: dict[Formula, None] = {}
    for part in parts:
        if part == absorbing:
            return absorbing
        if part == neutral:
            continue
        for inner in part[1] if part[0] == kind else (part,):
            flat[inner] = None
    if len(flat) == 1:
        return next(iter(flat))
    if any(_opposite(part) in flat for part in flat):
        return absorbing
    return (kind, tuple(flat))


def _opposite(part: Formula) -> Formula | None:
    if part[0] == "has":
        return ("lacks", part[1])
    return ("has", part[1]) if part[0] == "lacks" else None


def negation(formula: Formula) -> Formula:
    """The formula that ``formula`` does not hold."""
    literal = _opposite(formula)
    if literal is not None:
        return literal
    parts = [negation(p) for p in formula[1]]
    return disjunction(parts) if formula[0] == "all" else conjunction(parts)


def size(formula: Formula) -> int:
    """Number of parts."""
    if formula[0] in ("has", "lacks"):
        return 1
    return 1 + sum(size(p) for p in formula[1])


class PresenceReader:
    """Finds the obligations that, for an object, speak of nothing but the presence of names."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._known: dict[int, Formula | None] = {}

    def read(self, obligation: int) -> Formula | None:
        """The formula that ``obligation`` comes to for an object, or None if it says more."""
        if obligation <= FALSE:
            return YES if obligation == TRUE else NO
        number = obligation >> 1
        if number not in self._known:
            self._known[number] = None  # a cycle says more than a formula can
            formula = self._node(self._nodes[number])
            if formula is not None and size(formula) > MAX_FORMULA:
                formula = None
            self._known[number] = formula
        formula = self._known[number]
        if formula is None or not obligation & 1:
            return formula
        return negation(formula)

    def _node(self, node: Node) -> Formula | None:
        if not node.types & OBJECT:
            return NO
        if (
            node.enum is not None
            or node.pattern_properties
            or node.additional != TRUE
            or node.property_names != TRUE
            or node.min_properties
            or node.max_properties is not None
            or node.exists
            or node.presence
            or node.bad_name != TRUE
            or node.unevaluated_properties != TRUE
        ):
            return None
        parts: list[Formula | None] = [("has", name) for name in node.required]
        for name, child in node.properties.items():
            if child not in (TRUE, FALSE):
                return None
            if child == FALSE:
                parts.append(("lacks", name))
        parts += [self.read(child) for child in (*node.refs, *node.all_of)]
        if node.any_of is not None:
            parts.append(_all_known([self.read(c) for c in node.any_of], disjunction))
        if node.one_of is not None:
            parts.append(_all_known([self.read(c) for c in node.one_of], _exactly_one))
        if node.condition is not None:
            parts.append(_all_known([self.read(c) for c in node.condition], _conditional))
        for name, names in node.dependent_required.items():
            has_all = conjunction(("has", other) for other in names)
            parts.append(disjunction([("lacks", name), has_all]))
        for name, child in node.dependent_schemas.items():
            inner = self.read(child)
            parts.append(None if inner is None else disjunction([("lacks", name), inner]))
        return _all_known(parts, conjunction)


def _all_known(
    parts: Sequence[Formula | None], build: Callable[[list[Formula]], Formula]
) -> Formula | None:
    known = [p for p in parts if p is not None]
    return build(known) if len(known) == len(parts) else None


def _exactly_one(parts: list[Formula]) -> Formula:
    return disjunction(
        conjunction([p, *(negation(q) for j, q in enumerate(parts) if j != i)])
        for i, p in enumerate(parts)
    )


def _conditional(parts: list[Formula]) -> Formula:
    test, then, otherwise = parts
    return disjunction([conjunction([test, then]), conjunction([negation(test), otherwise])])


class Presence:
    """The formulas of one object, over names numbered as the object numbers them."""

    def __init__(self, formulas: Iterable[Formula], index: dict[str, int]) -> None:
        self._formula = conjunction(formulas)
        self._index = index
        self.names = self._mask(self._formula)
        """Mask of the names that the formulas speak of."""
        self._verdicts: dict[int, bool] = {}
        self._solutions: dict[tuple[int, int], int | None] = {}

    def _mask(self, formula: Formula) -> int:
        if formula[0] in ("has", "lacks"):
            return 1 << self._index[formula[1]]
        mask = 0
        for part in formula[1]:
            mask |= self._mask(part)
        return mask

    def holds(self, present: int) -> bool:
        """Whether an object with exactly the names in ``present`` is all right."""
        present &= self.names
        found = self._verdicts.get(present)
        if found is None:
            found = self._verdicts[present] = self._assign(self._formula, present, 0) == YES
        return found

    def complete(self, present: int, possible: int) -> int | None:
        """Fewest further names, out of ``possible``, that make the formulas hold; None if none."""
        key = (present & self.names, possible & self.names)
        if key not in self._solutions:
            self._steps = 0
            self._solutions[key] = self._solve(self._formula, *key)
        return self._solutions[key]

    def _solve(self, formula: Formula, present: int, possible: int) -> int | None:
        self._steps += 1
        if self._steps > MAX_SOLVING:
            raise CompileLimitExceeded(
                "the rules on which properties go together are too intertwined",
                limit=MAX_SOLVING,
                actual=self._steps,
            )
        formula = self._assign(formula, present, possible)
        if formula == YES:
            return 0
        if formula == NO:
            return None
        bit = self._first_name(formula)
        without = self._solve(formula, present, possible & ~bit)
        if without == 0:
            return 0
        with_it = self._solve(formula, present | bit, possible & ~bit)
        if with_it is None:
            return without
        with_it |= bit
        if without is None or with_it.bit_count() < without.bit_count():
            return with_it
        return without

    def _first_name(self, formula: Formula) -> int:
        while formula[0] not in ("has", "lacks"):
            formula = formula[1][0]
        return 1 << self._index[formula[1]]

    def _assign(self, formula: Formula, present: int, possible: int) -> Formula:
        """What is left of ``formula`` when only the names in ``possible`` are undecided."""
        kind = formula[0]
        if kind in ("has", "lacks"):
            bit = 1 << self._index[formula[1]]
            if present & bit:
                return YES if kind == "has" else NO
            if possible & bit:
                return formula
            return NO if kind == "has" else YES
        parts = [self._assign(p, present, possible) for p in formula[1]]
        return conjunction(parts) if kind == "all" else disjunction(parts)


def holds(formula: Formula, present: Container[str]) -> bool:
    """Whether ``formula`` holds for an object with exactly the names in ``present``."""
    kind = formula[0]
    if kind in ("has", "lacks"):
        return (formula[1] in present) == (kind == "has")
    parts = (holds(p, present) for p in formula[1])
    return all(parts) if kind == "all" else any(parts)


def names_of(formula: Formula) -> list[str]:
    """The names that ``formula`` speaks of, in order of appearance."""
    if formula[0] in ("has", "lacks"):
        return [formula[1]]
    out: dict[str, None] = {}
    for part in formula[1]:
        out.update(dict.fromkeys(names_of(part)))
    return list(out)
