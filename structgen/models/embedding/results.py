"""What an embedder returns beside plain arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class EmbeddingResult:
    """Vectors, and what it took to make them.

    Attributes:
        vectors: float32 ``[n, dimensions]``, in the order of the texts.
        n_tokens: int64 ``[n]``: tokens of each text that were run, special tokens and prompt
            included; None for a graph that reads text itself.
        n_cut: int64 ``[n]``: tokens of each text that were cut off, because it was too long; None
            likewise.
    """

    vectors: npt.NDArray[np.float32]
    n_tokens: npt.NDArray[np.int64] | None
    n_cut: npt.NDArray[np.int64] | None


@dataclass(frozen=True, slots=True)
class Ranked:
    """A document's place in a ranking.

    Attributes:
        index: which document, from 0.
        score: the model's own number for it and the query; larger is better. What it means
            depends on the model: as a rule a logit, from below 0 to above.
    """

    index: int
    score: float
