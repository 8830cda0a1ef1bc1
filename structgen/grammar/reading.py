"""Limit the work of reading the sources of one output type. Work is counted, not timed.

Grammars are read before any automaton exists, partly by other libraries, and some short texts
expand to very long ones. So readers report work to `spend` before they do it, in the steps of
``max_work``. Knows no source language.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar, Token

from structgen.errors import CompileLimitExceeded

MAX_WORK = 2_000_000
"""Default limit of the steps of one call."""


class _Reading:
    """The remaining steps, and the limit at the start."""

    __slots__ = ("_token", "left", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = self.left = limit
        self._token: Token[_Reading | None] | None = None

    def __enter__(self) -> None:
        if _UNDER_WAY.get() is None:
            self._token = _UNDER_WAY.set(self)

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _UNDER_WAY.reset(self._token)


_UNDER_WAY: ContextVar[_Reading | None] = ContextVar("reading", default=None)


def reading(limit: int | None = None) -> AbstractContextManager[None]:
    """Count all reading inside the block together, also in an enclosing count.

    Args:
        limit: the most steps; None for `MAX_WORK`.
    """
    is_sound = type(limit) is int and limit > 0  # other values are reported elsewhere
    return _Reading(limit if is_sound and limit is not None else MAX_WORK)


def spend_text(text: str, steps: int) -> None:
    """Count the work of reading a grammar's text once, with that many steps per character."""
    spend(
        len(text) * steps,
        f"the grammar has {len(text):,} characters, too many to read; write fewer rules",
    )


def spend(steps: int, what: str, where: str | None = None) -> None:
    """Count steps that the caller is about to take.

    Args:
        steps: their number.
        what: the reason for the steps, and the fix, for the message.
        where: the place in the source.

    Raises:
        CompileLimitExceeded: the total is too large.
    """
    under_way = _UNDER_WAY.get()
    if under_way is None:
        under_way = _Reading(MAX_WORK)  # without an enclosing count: only this call is bounded
    under_way.left -= steps
    if under_way.left < 0:
        actual, under_way.left = under_way.limit - under_way.left, 0
        raise CompileLimitExceeded(
            f"{what}, or raise max_work", limit=under_way.limit, actual=actual, path=where
        )
