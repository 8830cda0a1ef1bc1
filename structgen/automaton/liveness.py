"""Find the states of a lazy automaton that can reach an end, in one memoised search.

States are hashable values. The caller defines which states are ends and what follows a state.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

from structgen.automaton.work import WORK
from structgen.errors import CompileLimitExceeded

S = TypeVar("S", bound=Hashable)


def is_alive(
    state: S,
    known: dict[S, bool],
    is_end: Callable[[S], bool],
    following: Callable[[S], Iterable[S]],
    limit: int | None = None,
    message: str = "",
) -> bool:
    """Return whether an end can be reached from ``state``.

    Depth first. If an end is found, the path to it is alive; otherwise every state seen is dead.

    Args:
        state: where to start.
        known: verdicts of earlier searches; this search adds its own.
        is_end: a sufficient test that a state is alive.
        following: returns the states that may come next.
        limit: the most states to visit, None for no limit.
        message: the error message when the limit is exceeded.

    Raises:
        CompileLimitExceeded: more than ``limit`` states were seen.
    """
    verdict = known.get(state)
    if verdict is not None:
        return verdict
    parents: dict[S, S | None] = {state: None}
    stack = [state]
    while stack:
        if limit is not None and len(parents) > limit:
            raise CompileLimitExceeded(message, limit=limit, actual=len(parents))
        current = stack.pop()
        WORK.spend(1)
        if known.get(current) or is_end(current):
            trail: S | None = current
            while trail is not None:
                known[trail] = True
                trail = parents[trail]
            return True
        for to in following(current):
            if to not in parents and known.get(to) is not False:
                parents[to] = current
                stack.append(to)
    known.update(dict.fromkeys(parents, False))
    return False
