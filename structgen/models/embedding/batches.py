"""Which texts run together: neighbours in length, so that little is padding, under a token budget.

Pure arithmetic on lengths.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

Text = TypeVar("Text", str, tuple[str, str])

RUN_TOKENS = 32
"""What a run of the graph costs by itself, in tokens: so much padding is worth one run less."""

_WINDOW_TEXTS = 1024
_WINDOW_CHARACTERS = 1 << 21


def windows(texts: Iterable[Text]) -> Iterator[list[Text]]:
    """Cut texts, or pairs of texts, into runs that are tokenised and sorted together.

    Large enough that texts of one length meet, small enough that the next window's tokens are made
    while this one's are run, and that little is held in memory.
    """
    window: list[Text] = []
    size = 0
    for text in texts:
        window.append(text)
        size += len(text) if isinstance(text, str) else sum(map(len, text))
        if len(window) >= _WINDOW_TEXTS or size >= _WINDOW_CHARACTERS:
            yield window
            window, size = [], 0
    if window:
        yield window


def plan(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Put texts into batches so that least is run: padding, and a run's own cost.

    Args:
        lengths: tokens of each text.
        budget: most tokens of a batch, padding included. A text that is longer runs alone.

    Returns:
        The indices of each batch, the longest texts first: what takes most memory comes at once.

    Cost: some 10 µs a text.
    """
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    # least[n]: the least cost of the first n texts; began[n]: where their last batch begins.
    least = np.full(len(order) + 1, np.inf)
    began = np.zeros(len(order) + 1, np.int64)
    least[0] = 0
    for first, i in enumerate(order):
        longest = max(lengths[i], 1)
        most = min(max(budget // longest, 1), len(order) - first)
        costs = least[first] + RUN_TOKENS + longest * np.arange(1, most + 1)
        reached = slice(first + 1, first + most + 1)
        better = costs < least[reached]
        least[reached][better] = costs[better]
        began[reached][better] = first
    batches: list[list[int]] = []
    end = len(order)
    while end:
        first = int(began[end])
        batches.append(order[first:end])
        end = first
    return batches[::-1]
