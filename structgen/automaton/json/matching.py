"""Values that are needed elsewhere: what one place must leave to others that all have to differ.

`needed_by_others` is a bipartite matching of places and values (Kuhn 1955), and what every largest
matching has in common. It knows numbers only.
"""

from __future__ import annotations

from collections.abc import Sequence


def needed_by_others(domains: Sequence[frozenset[int]]) -> frozenset[int]:
    """The values without any one of which the places could not all have different ones.

    Args:
        domains: for each place the values that it may have.

    Returns:
        These values; empty where the places cannot all differ anyway.

    Cost: at most the places times the size of all domains; where all are the same, that of one.
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
    # A value can be spared if it is free, or if its place can take another that can be spared.
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
    """The place of each value taken, a different one for every place; None if there is none."""
    owner: dict[int, int] = {}
    for place, domain in enumerate(domains):
        before: dict[int, int | None] = dict.fromkeys(domain)
        todo = list(domain)
        free: int | None = None
        for value in todo:  # which grows: breadth first
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
