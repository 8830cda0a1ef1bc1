"""What a walk of a text comes to: where its tokens end, where it is closed, what it is called then.

It knows the numbers of tokens, of closing quotes and of states, and nothing of how they are found.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from .character_arrays import Int32
from .characters import Whole
from .lone_runs import CountedTokens

ANEW = -(1 << 40)
"""Less a place, it stands in `TextWalk.runs` for those of a walk from there, to be made again."""

Counted: TypeAlias = "tuple[CountedTokens, int]"
"""The tokens of a run from the root, and the most characters that those inside have of it."""


class TextWalk(NamedTuple):
    """What a text does from one place.

    Attributes:
        counted: for a run from the root, its tokens.
        ids: tokens that end inside the text (those of the run from the root apart).
        quotes: label → bool ``[len(Characters.quotes)]``, the closing quotes reached.
        single: label → further closing quotes, one by one.
        runs: states in which those tokens end, each with the length of the run it starts; or with
            ``-1 - place``, for those that `TextWalks.special_states` finds; or with
            ``ANEW - place``, for those of `TextWalks.runs_anew`.
        row: further tokens that end inside the text, as bits, for a walk from the root.
    """

    counted: Counted | None
    ids: list[Int32]
    quotes: dict[int, npt.NDArray[np.bool_]]
    single: dict[int, list[int]]
    runs: set[tuple[int, int]]
    row: npt.NDArray[np.uint32] | None = None


class FreeWalk(NamedTuple):
    """What a text that may be anything does, but for what it is called once it ends.

    Attributes:
        whole: what every text does.
        usual: the label of all texts but a few.
        special: quotes after which the text has another label, ascending;
        single: label → those of them after which it has that label.
        runs: as in `TextWalk`.
    """

    whole: Whole
    usual: int
    special: tuple[int, ...]
    single: dict[int, list[int]]
    runs: set[tuple[int, int]]
