"""Prompts that are too long for a model's context, without what is oldest in them.

Owns what goes first: of a chat the oldest turns, whole, then the beginning of the last message; of
a text its first tokens. Knows no tokens of chats: whoever asks says whether one fits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_Messages = list[dict[str, Any]]


def without_oldest(messages: _Messages, fits: Callable[[_Messages], bool]) -> _Messages:
    """The messages without the oldest ones, as few as have to go.

    The system's stay, and the last. What is left of a turn goes with it: an answer without its
    question, a tool's result without its call. Where the last message alone is too long, its
    beginning goes.

    Args:
        messages: of a chat, at least one.
        fits: whether some are short enough.

    Returns:
        The messages, which fit unless the system's alone do not.

    Cost: ``fits`` is asked some 5 times, 20 where the last message is cut.
    """
    if fits(messages):
        return messages
    head = [message for message in messages[:-1] if message["role"] == "system"]
    turns = [message for message in messages[:-1] if message["role"] != "system"]
    last = messages[-1]
    starts = [i for i, message in enumerate(turns) if message["role"] == "user"]
    starts = [start for start in starts if start > 0]
    low, high = 0, len(starts)  # how many starts of turns to skip
    while low < high:
        middle = (low + high) // 2
        if fits([*head, *turns[starts[middle] :], last]):
            high = middle
        else:
            low = middle + 1
    if low < len(starts):
        return [*head, *turns[starts[low] :], last]
    if fits([*head, last]):
        return [*head, last]
    text = str(last["content"])
    low, high = 0, len(text)
    while low < high:
        middle = (low + high) // 2
        if fits([*head, {**last, "content": text[middle:]}]):
            high = middle
        else:
            low = middle + 1
    return [*head, {**last, "content": text[low:]}]
