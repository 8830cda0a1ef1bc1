"""Check whether a Python value satisfies a schema node: the schema graph as a validator.

Used for schemas that name values (``enum`` and ``const`` beside other assertions, property names),
and for unique items: which earlier values another array or object could equal. Generated text is
checked by the automaton instead.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias, TypeVar

from structgen.automaton.core.leaf import GROW
from structgen.automaton.core.shared import AUTOMATA
from structgen.automaton.regex.automaton import RegexAutomaton
from structgen.automaton.work import WORK
from structgen.grammar import ir
from structgen.grammar.json_schema import (
    ARRAY,
    BOOLEAN,
    DIGITS,
    FALSE,
    FRACTION,
    NULL,
    NUMBER,
    OBJECT,
    POINTED,
    STRING,
    TRUE,
    Keys,
    Node,
    json_key,
    to_decimal,
)

from .rules import Rule

_T = TypeVar("_T")
_Q = TypeVar("_Q")


def matches(regex: ir.Regex, text: str) -> bool:
    """Return whether ``regex`` matches the whole of ``text``."""
    with GROW:
        WORK.spend(1 + (len(text) >> 3))
        return AUTOMATA.get(RegexAutomaton, regex).accepts(text)


def type_bit(value: Any) -> int:
    """Return the type bit of a JSON value; different for 1 and 1.0."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, str):
        return STRING
    if isinstance(value, Mapping):
        return OBJECT
    if isinstance(value, (list, tuple)):
        return ARRAY
    number = to_decimal(value)
    if number != number.to_integral_value():
        return FRACTION
    return POINTED if isinstance(value, float) or number.as_tuple().exponent else DIGITS


def forms(value: Any) -> list[Any]:
    """Return ``value``; for a whole number both 1 and 1.0, because draft 4 distinguishes them."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        return [value]
    number = to_decimal(value)
    if number != number.to_integral_value():
        return [value]
    return [int(number), Decimal(f"{int(number)}.0")]


def includes(keys: Keys, name: str) -> bool:
    """Return whether ``name`` is one of ``keys``."""
    if keys.name is not None:
        return name == keys.name
    if keys.pattern is not None:
        return matches(keys.pattern, name)
    return name not in keys.but_names and not any(matches(p, name) for p in keys.but_patterns)


class _Seen:
    """The members and items that a value's in-place subschemas have evaluated."""

    __slots__ = ("all_items", "all_names", "indexes", "names", "prefix")

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.all_names = False
        self.prefix = 0
        self.all_items = False
        self.indexes: set[int] = set()

    def add(self, other: _Seen) -> None:
        self.names |= other.names
        self.all_names |= other.all_names
        self.prefix = max(self.prefix, other.prefix)
        self.all_items |= other.all_items
        self.indexes |= other.indexes


_NOTHING = _Seen()


_Judging: TypeAlias = Generator[tuple[int, Any], "_Seen | None", _T]
"""Yields questions whether a part meets a requirement, and receives what was evaluated, or None."""


def answered(
    question: _Q,
    ask: Callable[[_Q], Generator[_Q, _T, _T]],
    known: dict[Hashable, _T],
    key: Callable[[_Q], Any] = lambda question: question,
) -> _T:
    """Answer a question that depends on other questions, without recursion.

    Args:
        question: the question.
        ask: a generator that works on a question: yields other questions, receives their answers,
            and returns its own answer.
        known: answers by key. New answers are added, so that each question is asked once.
        key: returns the identity of a question.

    Raises:
        RecursionError: a question depends on itself.
    """
    first = key(question)
    if first in known:
        return known[first]
    WORK.spend(1)
    under_way: dict[Hashable, Generator[_Q, _T, _T]] = {first: ask(question)}
    answer: Any = None
    while under_way:
        at, working = next(reversed(under_way.items()))
        try:
            question = working.send(answer)
        except StopIteration as end:
            del under_way[at]
            known[at] = answer = end.value
            continue
        at = key(question)
        if at in known:
            answer = known[at]
        elif at in under_way:
            raise RecursionError
        else:
            WORK.spend(1)
            under_way[at], answer = ask(question), None
    return known[first]


def holds(nodes: Sequence[Node], requirement: int, value: Any) -> bool:
    """Return whether ``value`` meets ``requirement``.

    Each node is evaluated at most once on each part. Otherwise, alternatives that refer to each
    other would repeat evaluations exponentially.
    """
    judged = answered(
        (requirement, value),
        lambda asked: _judge(nodes[asked[0] >> 1], asked[1]),
        {},
        lambda asked: (asked[0] >> 1, id(asked[1])),
    )
    return (judged is None) == (requirement & 1)


def _meets(requirement: int, value: Any) -> _Judging[_Seen | None]:
    """Return what was evaluated, or None if the requirement is not met."""
    if requirement == TRUE:
        return _NOTHING
    judged = yield requirement, value
    if not requirement & 1:
        return judged
    return _NOTHING if judged is None else None


def _judge(node: Node, value: Any) -> _Judging[_Seen | None]:
    kind = type_bit(value)
    if not node.types & kind:
        return None
    if node.enum is not None and json_key(value) not in node.listed:
        return None
    if node.excluded and json_key(value) in {json_key(v) for v in node.excluded}:
        return None
    seen = _Seen()
    if node.applies_in_place and not (yield from _in_place(node, value, kind, seen)):
        return None
    if kind & NUMBER:
        ok = _number_holds(node, value)
    elif kind == STRING:
        ok = (
            len(value) >= node.min_length
            and (node.max_length is None or len(value) <= node.max_length)
            and all(matches(p, value) for p in node.patterns)
        )
    elif kind == OBJECT:
        ok = yield from _object_holds(node, value, seen)
    elif kind == ARRAY:
        ok = yield from _array_holds(node, value, seen)
    else:
        ok = True
    return seen if ok else None


def _in_place(node: Node, value: Any, kind: int, seen: _Seen) -> _Judging[bool]:
    for child in (*node.refs, *node.all_of):
        judged = yield from _meets(child, value)
        if judged is None:
            return False
        seen.add(judged)
    for children in node.any_of, node.one_of:
        if children is None:
            continue
        n_met = 0
        for child in children:
            judged = yield from _meets(child, value)
            if judged is not None:
                seen.add(judged)
                n_met += 1
        if not n_met or (children is node.one_of and n_met > 1):
            return False
    if node.condition is not None:
        test, then, otherwise = node.condition
        judged = yield from _meets(test, value)
        if judged is not None:
            seen.add(judged)
        rest = yield from _meets(otherwise if judged is None else then, value)
        if rest is None:
            return False
        seen.add(rest)
    if kind == OBJECT:
        for name, names in node.dependent_required.items():
            if name in value and any(other not in value for other in names):
                return False
        for name, child in node.dependent_schemas.items():
            if name in value:
                judged = yield from _meets(child, value)
                if judged is None:
                    return False
                seen.add(judged)
    return True


def _number_holds(node: Node, value: Any) -> bool:
    number = to_decimal(value)
    return (
        (node.minimum is None or number >= node.minimum)
        and (node.maximum is None or number <= node.maximum)
        and (node.exclusive_minimum is None or number > node.exclusive_minimum)
        and (node.exclusive_maximum is None or number < node.exclusive_maximum)
        and (node.multiple_of is None or is_multiple(number, node.multiple_of))
        and (node.not_multiple_of is None or not is_multiple(number, node.not_multiple_of))
    )


def is_multiple(number: Decimal, step: Decimal) -> bool:
    """Return whether ``number`` is an exact multiple of ``step``, for numbers of any size."""
    return (Fraction(number) / Fraction(step)).denominator == 1


def _object_holds(node: Node, value: Mapping[str, Any], seen: _Seen) -> _Judging[bool]:
    if any(name not in value for name in node.required):
        return False
    if len(value) < node.min_properties:
        return False
    if node.max_properties is not None and len(value) > node.max_properties:
        return False
    WORK.spend(len(value) >> 2)
    for name, item in value.items():
        if (yield from _meets(node.property_names, name)) is None:
            return False
        children = [child for regex, child in node.pattern_properties if matches(regex, name)]
        if name in node.properties:
            children.append(node.properties[name])
        if children and not node.not_evaluating:
            seen.names.add(name)
        for child in children or [node.additional]:
            if (yield from _meets(child, item)) is None:
                return False
    for rule in node.rules:
        if not (yield from _keeps(rule, value)):
            return False
    seen.all_names |= node.evaluates_all_properties
    if node.unevaluated_properties != TRUE and not seen.all_names:
        for name, item in value.items():
            owed = TRUE if name in seen.names else node.unevaluated_properties
            if (yield from _meets(owed, item)) is None:
                return False
        seen.all_names = True
    return True


def _keeps(rule: Rule, value: Mapping[str, Any]) -> _Judging[bool]:
    """Return whether an object satisfies a rule."""
    if rule.kind in ("none", "fewer", "any"):
        return not (yield from _keeps(rule.negated, value))
    if rule.kind == "least":
        return len(value) >= int(rule.detail)
    if rule.kind == "some":
        keys, requirement = rule.detail
        for name, item in value.items():
            if includes(keys, name) and (yield from _meets(requirement, item)) is not None:
                return True
        return False
    WORK.spend(len(rule.parts) >> 2)
    n_kept = 0
    for part in rule.parts:
        kept = yield from _keeps(part, value)
        if rule.kind == "all" and not kept:
            return False
        n_kept += kept
    return rule.kind == "all" or bool(rule.detail >> n_kept & 1)


def _array_holds(node: Node, value: Sequence[Any], seen: _Seen) -> _Judging[bool]:
    if len(value) < node.min_items or (node.max_items is not None and len(value) > node.max_items):
        return False
    WORK.spend(len(value) * (1 + len(node.contains)) >> 2)
    for i, item in enumerate(value):
        owed = node.prefix[i] if i < len(node.prefix) else node.items
        if (yield from _meets(owed, item)) is None:
            return False
    for some in node.contains:
        hits: list[int] = []
        for i in range(some.start, len(value)):
            if (yield from _meets(some.requirement, value[i])) is not None:
                hits.append(i)
        if len(hits) < some.least or (some.most is not None and len(hits) > some.most):
            return False
        if node.contains_evaluates:
            seen.indexes.update(hits)
    if node.unique or node.repeats:
        repeats = len({json_key(item) for item in value}) < len(value)
        if node.unique if repeats else node.repeats:
            return False
    seen.prefix = max(seen.prefix, len(node.prefix))
    seen.all_items |= node.evaluates_all_items
    if seen.all_items:
        return node.some_unevaluated_item == FALSE
    left = [i for i in range(seen.prefix, len(value)) if i not in seen.indexes]
    if node.unevaluated_items != TRUE:
        for i in left:
            if (yield from _meets(node.unevaluated_items, value[i])) is None:
                return False
        seen.all_items = True
    if node.some_unevaluated_item == FALSE:
        return True
    if not seen.all_items:
        for i in left:
            if (yield from _meets(node.some_unevaluated_item, value[i])) is not None:
                return True
    return False
