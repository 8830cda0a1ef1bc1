"""The cases of one member's value, told apart by the facts that it can settle.

Owns `told_apart`: a rule about an object's members, the facts in it that a member's value decides,
and what the value owes anyway → what it owes in each case, and what is left of the rule then. Facts
that list values are decided all at once, by value: a tag has as many cases as it has values, not
one for each pair of lists. All others are decided one after another. It knows nothing of keys or of
what has been written; `members` asks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from structgen.automaton.bits import bits
from structgen.automaton.work import WORK

from .language import Language
from .requirements import Requirements
from .rules import Rule

Sides: TypeAlias = tuple[int, int]
"""Bit masks of the facts that hold if a node does, and if it does not."""


def told_apart(
    language: Language, rule: Rule, touched: int, start: Requirements, limit: int
) -> list[tuple[Requirements, Rule]] | None:
    """The cases of a value, each with what it owes and what is left of ``rule``.

    Every value falls into a case, perhaps into several. Cases in which nothing can hold, or of
    which no value is known at a glance, are left out.

    Args:
        language: of which the value is part.
        rule: what holds of the members together.
        touched: bit mask of the facts in it that a member with this key can settle.
        start: what its value owes anyway.
        limit: most cases.

    Returns:
        The cases, or None when there are more than ``limit``.

    Cost: for facts that list values, one look at the rule for each set of lists that share a
    value; twice as many cases with each further fact at most.
    """
    book = language.book
    decided: dict[int, Sides] = {}
    here = 0
    for fact in book.facts_in(touched & ~book.presence):
        keys, requirement = fact.detail
        met, unmet = decided.get(requirement >> 1, (0, 0))
        if requirement & 1:
            unmet |= fact.support
        else:
            met |= fact.support
        decided[requirement >> 1] = met, unmet
        if keys.name is not None:
            here |= fact.support  # no other member can settle it
    begun = [(start, book.settle(rule, touched & book.presence, 0))]
    lists = {n: keys for n in decided if (keys := start.listed_by(n)) is not None}
    if len(lists) > 1:
        begun = _by_value(language, *begun[0], decided, lists, here)
        if len(begun) > limit:
            return None
    else:
        lists = {}
    nodes = [n for n in decided if n not in lists]
    out: list[tuple[Requirements, Rule]] = []
    todo = [(owed, left, 0) for owed, left in reversed(begun)]
    while todo:
        owed, left, at = todo.pop()
        WORK.spend(5)
        while at < len(nodes) and not left.support & (
            decided[nodes[at]][0] | decided[nodes[at]][1]
        ):
            at += 1
        if left is book.no:
            continue
        if at == len(nodes):
            if owed.is_empty:
                continue
            out.append((owed, left))
            if len(out) > limit:
                return None
            continue
        positive, negative = decided[nodes[at]]
        met_left = book.settle(left, positive, negative & here)
        unmet_left = book.settle(left, negative, positive & here)
        if met_left is unmet_left:
            todo.append((owed, met_left, at + 1))
            continue
        holds = owed.adding(2 * nodes[at])
        fails = owed if holds is None else owed.adding(2 * nodes[at] + 1)
        if fails is not None:
            todo.append((fails, unmet_left, at + 1))
        if holds is not None:
            todo.append((owed if fails is None else holds, met_left, at + 1))
    return out


def _by_value(
    language: Language,
    start: Requirements,
    rule: Rule,
    decided: Mapping[int, Sides],
    lists: Mapping[int, frozenset[Any]],
    here: int,
) -> list[tuple[Requirements, Rule]]:
    """The cases of a value told apart by the nodes in ``lists``, all at once.

    Args:
        language: of which the value is part.
        start: what it owes anyway.
        rule: what holds of the members together.
        decided: by node the facts that it decides.
        lists: by node the values that meet it.
        here: bit mask of the facts that no other member can settle.
    """
    book = language.book
    nodes = list(lists)
    # value → bit mask of the places in `nodes` of those that it meets
    met_by: dict[Any, int] = {}
    for place, keys in enumerate(lists.values()):
        for key in keys:
            met_by[key] = met_by.get(key, 0) | 1 << place
    among = start.among
    if among is not None:
        met_by = {key: met_by.get(key, 0) for key in among}
    values: dict[int, list[Any]] = {} if among is not None else {0: []}
    for key, mask in met_by.items():
        values.setdefault(mask, []).append(key)
    none_true = none_false = 0
    for node in nodes:
        none_true |= decided[node][1]
        none_false |= decided[node][0] & here
    settings: list[tuple[int, int]] = []
    for mask in values:
        true, false = none_true, none_false
        for place in bits(mask):
            met, unmet = decided[nodes[place]]
            true = true & ~unmet | met
            false = false & ~met | unmet & here
        settings.append((true, false))
    found = book.settle_each(rule, (none_true, none_false), settings)
    left = dict(zip(values, found, strict=True))
    out: list[tuple[Requirements, Rule]] = []
    told = 0  # the nodes that a value must not meet to be in no list
    if 0 in values:
        for mask in values:
            if left[mask] is not left[0]:
                told |= mask
        if left[0] is not book.no:
            barred = [nodes[place] for place in bits(told)]
            keys = frozenset[Any]().union(*(lists[node] for node in barred))
            out.append((start.without_values(keys, [2 * n + 1 for n in barred]), left[0]))
    for mask, keys_of in values.items():
        if not mask or left[mask] is book.no or (0 in values and not mask & told):
            continue
        # The shortest list that the values are in, and what else tells them from its others.
        first = min(bits(mask), key=lambda place: len(lists[nodes[place]]))
        others = [m for key in lists[nodes[first]] if (m := met_by.get(key, mask)) != mask]
        owed = [2 * nodes[first]]
        if others:
            owed = [2 * nodes[place] for place in bits(mask)]
            beyond = 0
            for other in others:
                if other & mask == mask:
                    beyond |= other & ~mask
            owed += [2 * nodes[place] + 1 for place in bits(beyond)]
        out.append((start.with_values(frozenset(keys_of), owed), left[mask]))
    return out
