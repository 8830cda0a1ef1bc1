"""Which texts run together: sorted by length, so that little is padding, under a token budget.

Pure arithmetic on lengths.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

Text = TypeVar("Text", str, tuple[str, str])

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
    """Put texts into batches.

    Args:
        lengths: tokens of each text.
        budget: most tokens of a batch, padding included. A text that is longer runs alone.

    Returns:
        The indices of each batch, the longest texts first: what takes most memory comes at once.
    """
    batches: list[list[int]] = []
    longest = 0
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batches and (len(batches[-1]) + 1) * longest <= budget:
            batches[-1].append(i)
        else:
            batches.append([i])
            longest = max(lengths[i], 1)
    return batches
