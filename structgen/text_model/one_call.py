"""`generate`: one call that answers with the default model, which it loads and keeps.

Owns that model. Knows nothing of how it answers.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, cast

from structgen import models
from structgen.constraint import warm_up
from structgen.models import genai
from structgen.storage import fork_safe

from .model import TextModel

if TYPE_CHECKING:  # what a checker knows of calling a model, it knows of this
    generate = cast("TextModel", None).__call__
else:

    def generate(prompt: Any, output_type: Any = None, *more: Any, **options: Any) -> Any:
        """Return what the default model answers, as a value of ``output_type``; a str without one.

        ``structgen.generate("The capital of France is ", Literal["Paris", "Rome"])``: one line,
        from nothing. The model is loaded by the first call, and kept.

        Args:
            prompt, output_type, options: as for calling a `TextModel`.

        Raises:
            As `structgen.load` and calling a `TextModel`.

        Cost: the first call loads the default model, a second, and fetches it if need be.
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
