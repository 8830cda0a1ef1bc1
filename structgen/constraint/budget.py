"""What a token budget still allows: whether it is tight, and the tokens that it bars.

Of a state and a number of tokens; a `Cursor` says which. `masks.Reach` knows how far each token is
from the end, a plan is a certain way there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from structgen.automaton.core import NeedsText, TextHistory
from structgen.masks import FAR, Reach
from structgen.vocabulary import Plan

if TYPE_CHECKING:
    from .engine import Engine

Text: TypeAlias = Callable[[], TextHistory]
"""Gives the text so far; few automata ask."""


def text_after(engine: Engine, text: Text, tokens: list[int]) -> Text:
    """Gives the text after ``tokens``."""
    known = engine.named.tokens
    return lambda: text().after(b"".join(known[t] for t in tokens))


def is_tight(engine: Engine, state: int, left: int, text: Text) -> bool:
    """Whether some token that the grammar allows in ``state`` might be more than ``left`` tokens
    allow."""
    # The token itself, the completion after it, and end of sequence.
    reach, spare = engine.reach, left - 2
    if reach.most_roughly(state) <= spare or reach.most_bytes(state) <= spare:
        return False
    most = reach.most(state)
    if most < FAR or not isinstance(reach, Reach):
        return most > spare
    # How far a token leads depends on the text.
    return reach.most_after(state, text()) > spare


def restrict(
    engine: Engine, state: int, left: int, held: Plan, text: Text, out: npt.NDArray[np.uint32]
) -> None:
    """Clear the bits of tokens after which the output could not be finished within ``left``.

    Args:
        held: the plan held in ``state``.
    """
    # The token itself and the end of the sequence have to be paid for as well.
    reach, spare = engine.reach, left - 2
    if not isinstance(reach, Reach):
        reach.restrict(state, spare, out)
        if held.size:
            out[held.first >> 5] |= np.uint32(1 << (held.first & 31))
        return
    doubtful, hopeless = reach.sort_out(state, spare, text)
    tokens = [t for t in doubtful.tolist() if out[t >> 5] >> (t & 31) & 1]
    flags = np.zeros(len(out) * 32, np.uint8)
    flags[hopeless] = 1
    for token in tokens:
        to = engine.advance(state, token, text)
        needed = engine.plan_size(to, text_after(engine, text, [token]))
        flags[token] = needed + 2 > left
    if held.size:
        flags[held.first] = 0  # what is held is affordable, whatever else follows that token
    out &= ~np.packbits(flags, bitorder="little").view(np.uint32)


def n_affordable(
    engine: Engine, state: int, tokens: list[int], after: int, text: Text, left: int
) -> int:
    """How many of ``tokens``, forced in ``state`` and leading to ``after``, fit into ``left``."""
    try:
        rest = engine.machine.shortest_completion(after)
    except NeedsText:
        pass
    else:
        if len(tokens) + len(rest) + 1 <= left:
            return len(tokens)
    at = state
    for i, token in enumerate(tokens):
        at = engine.advance(at, token, text)
        needed = engine.plan_size(at, text_after(engine, text, tokens[: i + 1]))
        if needed + 1 > left - i - 1:
            return i
    return len(tokens)
