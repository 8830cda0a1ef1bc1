"""Plans: the tokens that finish an output, told one by one, as far as somebody asks.

A plan can be as long as a budget allows, and after each of its tokens there is another plan, one
token shorter. So they share what has been told. It knows nothing of what the tokens spell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import final


@final
class Plan:
    """Tokens that finish from some place. Immutable.

    Args:
        tokens: all of them; taken one by one.
        size: how many there are.
    """

    __slots__ = ("_at", "_more", "_told", "size")

    def __init__(self, tokens: Iterable[int], size: int) -> None:
        self._told: list[int] = []
        self._more: Iterator[int] = iter(tokens)
        self._at = 0
        self.size = size

    @property
    def first(self) -> int:
        """The first token, of which there has to be one."""
        told = self._told
        while len(told) <= self._at:
            told.append(next(self._more))
        return told[self._at]

    def rest(self) -> Plan:
        """The plan after the first token."""
        plan = Plan.__new__(Plan)
        plan._told, plan._more = self._told, self._more
        plan._at, plan.size = self._at + 1, self.size - 1
        return plan
