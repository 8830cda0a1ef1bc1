"""TextModel: what `structgen.load` returns, a model that runs here and can be asked directly.

It owns the way to the same model for asynchronous code. How it is asked is `structgen.asking`'s,
all else `structgen.generator`'s and `structgen.models`'.
"""

from __future__ import annotations

from typing import Any, final

from structgen.asking import Asked
from structgen.generator import Generator
from structgen.models import genai
from structgen.workers import AsyncModel


@final
class TextModel(Asked, genai.TextModel):
    """A text model, its tokenizer and its vocabulary. Safe to share by threads.

    Make one with `structgen.load` or `structgen.from_onnx_genai`. Ask it for values directly, or
    make a `structgen.Generator` of it and an output type.
    """

    def _make(self, output_type: Any, **options: Any) -> Generator[Any]:
        made: Generator[Any] = Generator(self, output_type, **options)
        return made

    def to_async(self, *, batch_size: int | None = None) -> AsyncModel:
        """The same model for asynchronous code, which runs in a process of its own.

        The process is started by the first call, and loads the model once more: this one is free to
        be used or dropped. See `structgen.load_async`.

        Args:
            batch_size: as for `structgen.load_async`.

        Raises:
            ModelError: the model was handed in as objects, which do not travel.
        """
        return AsyncModel.like(self, batch_size)
