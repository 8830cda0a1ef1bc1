"""Vectors of texts from a text model, made in the process that has it.

Owns the errand that goes there, and what an `EmbeddingRequest` comes to on such a model: one that
was converted with ``--hidden-states`` has the output for it, all others say that they have not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from structgen.decoding import check_may_fit
from structgen.errors import ModelError, OptionError, PromptError, RequestError
from structgen.insight import Passes
from structgen.models.base import MakesVectors, Model
from structgen.models.passes import after_start, most_characters
from structgen.workers import run_errands

from .hosts import TextHost
from .requests import EmbeddingRequest


@dataclass(frozen=True, slots=True)
class Vectors:
    """An errand: the vectors of texts.

    Attributes:
        texts: each a text, or its tokens, which are taken as they are.
        pooling: as for `structgen.TextModel.embed`.
        dimensions: the same.
        cuts: whether texts that are too long are cut.
    """

    texts: Sequence[str | tuple[int, ...]]
    pooling: str
    dimensions: int | None
    cuts: bool

    def begin(self, model: Model) -> Passes[tuple[npt.NDArray[np.float32], int]]:
        """Encode them."""
        rows, longest = [], model.vocabulary.trie.max_depth
        for text in self.texts:
            if isinstance(text, str):
                if self.cuts:
                    text = text[: most_characters(model.context_length, longest)]
                else:
                    check_may_fit(model, text)
                row = model.encode(text) if text else np.empty(0, np.int32)
                row = after_start(model.start_ids, row) if len(row) else row
            else:
                row = np.array(text, np.int32)
            rows.append(row[: model.context_length - 1] if self.cuts else row)
        work = cast(MakesVectors, model).embedding(
            rows, pooling=self.pooling, dimensions=self.dimensions
        )
        return _counted(work, sum(map(len, rows)))


def _counted(
    work: Passes[npt.NDArray[np.float32]], n_tokens: int
) -> Passes[tuple[npt.NDArray[np.float32], int]]:
    found = yield from work
    return found, n_tokens


async def text_vectors(
    host: TextHost,
    request: EmbeddingRequest,
    texts: Sequence[str | tuple[int, ...]],
    model: str,
    instead: str,
) -> tuple[npt.NDArray[np.float32], int]:
    """The vectors of texts, and how many tokens these have; ``instead`` as for `vectors.embed`.

    Raises:
        RequestError: a field is wrong, a text too long, or the model has no vectors.
    """
    if request.prompt_name is not None:
        raise RequestError(f"prompt_name: {model} has no prompts.", param="prompt_name")
    errand = Vectors(
        texts, host.pooling or "last", request.dimensions, cuts=request.truncate_sequence
    )
    try:
        (found,) = await run_errands(host.model, [errand])
    except ModelError as error:
        if "has no output" not in str(error):
            raise
        raise RequestError(
            f"{model} makes text and no vectors. {instead} ({error})", param="model"
        ) from error
    except PromptError as error:
        raise RequestError(f"{error} Or pass truncate_sequence=True.", param="input") from error
    except OptionError as error:
        param = "dimensions" if "dimensions" in str(error) else "input"
        raise RequestError(str(error), param=param) from error
    vectors: Any
    vectors, n_tokens = found
    return vectors, n_tokens
