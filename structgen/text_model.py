"""TextModel: the result of `structgen.load`, a model that runs in this process and can be called.

Also here: the way to the same model for async code, and `generate`, which calls the default model,
loaded by its first call and kept. Calls are in `structgen.asking`, the rest in
`structgen.generator` and `structgen.models`.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, cast, final

from structgen import models
from structgen.asking import Asked
from structgen.constraint import warm_up
from structgen.generator import Generator
from structgen.models import genai
from structgen.storage import fork_safe
from structgen.workers import AsyncModel


@final
class TextModel(Asked, genai.TextModel):
    """A text model, its tokenizer and its vocabulary. Safe to share by threads.

    Make one with `structgen.load` or `structgen.from_onnx_genai`. Call it for values, or make a
    `structgen.Generator` from it and an output type.
    """

    def _make(self, output_type: Any, **options: Any) -> Generator[Any]:
        made: Generator[Any] = Generator(self, output_type, **options)
        return made

    def to_async(self, *, batch_size: int | None = None) -> AsyncModel:
        """Return the same model for async code, which runs in a process of its own.

        The first call starts the process, which loads the model again; this model can still be
        used, or dropped. See `structgen.load_async`.

        Args:
            batch_size: as for `structgen.load_async`.

        Raises:
            ModelError: the model was made from objects, which cannot be sent to another process.
        """
        return AsyncModel.like(self, batch_size)


if TYPE_CHECKING:  # type checkers infer this like calling a model
    generate = cast("TextModel", None).__call__
else:

    def generate(prompt: Any, output_type: Any = None, *more: Any, **options: Any) -> Any:
        """Ask the default model; return a value of ``output_type``, or a str without one.

        ``structgen.generate("The capital of France is ", Literal["Paris", "Rome"])`` needs no other
        line. The first call loads the model, which stays loaded.

        Args:
            prompt, output_type, options: as for calling a `TextModel`.

        Raises the same errors as `structgen.load` and calling a `TextModel`.

        Cost: the first call loads the default model (a second), and downloads it if necessary.
        """
        return _default_model()(prompt, output_type, *more, **options)


_LOADING = fork_safe(threading.Lock())
_LOADED: list[TextModel] = []


def _default_model() -> TextModel:
    with _LOADING:
        if not _LOADED:
            folder = models.path(models.DEFAULT)
            _LOADED.append(genai.load(folder, kind=TextModel, meanwhile=warm_up))
        return _LOADED[0]
