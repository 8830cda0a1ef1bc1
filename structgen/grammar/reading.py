"""Limit the work of reading the sources of one output type: counted, not timed.

Grammars are read before any automaton exists, partly by code that is not ours, and some short texts
stand for very long ones. So readers report work to `spend` before they do it, in the steps of
``max_work``. Knows no source language.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from structgen.errors import CompileLimitExceeded

MAX_WORK = 2_000_000
"""Most steps of one call, unless an option says otherwise."""


class _Reading:
    """What may still be done, and what it was at the beginning."""

    __slots__ = ("left", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = self.left = limit


_UNDER_WAY: ContextVar[_Reading | None] = ContextVar("reading", default=None)


@contextmanager
def reading(limit: int | None = None) -> Iterator[None]:
    """Count all reading inside together, also with an enclosing count.

    Args:
        limit: most steps; None for `MAX_WORK`.
    """
    if _UNDER_WAY.get() is not None:
        yield
        return
    is_sound = type(limit) is int and limit > 0  # what else options have is told elsewhere
    token = _UNDER_WAY.set(_Reading(limit if is_sound and limit is not None else MAX_WORK))
    try:
        yield
    finally:
        _UNDER_WAY.reset(token)


def spend_text(text: str, steps: int) -> None:
    """Count the work of reading a grammar's text once, by so many steps for each character."""
    spend(
        len(text) * steps,
        f"the grammar has {len(text):,} characters, too many to read; write fewer rules",
    )


def spend(steps: int, what: str, where: str | None = None) -> None:
    """Count some steps that are about to be made.

    Args:
        steps: how many.
        what: what takes so many, and how to need fewer, for the message.
        where: the place in the source.

    Raises:
        CompileLimitExceeded: together with those before they are too many.
    """
    under_way = _UNDER_WAY.get()
    if under_way is None:
        under_way = _Reading(MAX_WORK)  # of nobody who counts: this alone is bounded
    under_way.left -= steps
    if under_way.left < 0:
        actual, under_way.left = under_way.limit - under_way.left, 0
        raise CompileLimitExceeded(
            f"{what}, or raise max_work", limit=under_way.limit, actual=actual, path=where
        )
