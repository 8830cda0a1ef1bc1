"""`generate`: one call that answers with the default model, which it loads and keeps.

Owns that model. Knows nothing of how it answers.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, overload

from structgen import models
from structgen.constraint import warm_up
from structgen.decoding import AskOptions, Prompt
from structgen.models import genai
from structgen.storage import fork_safe
from structgen.types import Call, Choices, Functions, ItemT, Own, PlainText, Schemas, T

from .model import TextModel

if TYPE_CHECKING:
    from typing_extensions import TypeForm, Unpack


@overload
def generate(
    prompt: Prompt, output_type: PlainText = None, **options: Unpack[AskOptions]
) -> str: ...


@overload
def generate(  # type: ignore[overload-overlap]
    prompt: Prompt, output_type: TypeForm[T], **options: Unpack[AskOptions]
) -> T: ...


@overload
def generate(prompt: Prompt, output_type: Own[T], **options: Unpack[AskOptions]) -> T: ...


@overload
def generate(
    prompt: Prompt, output_type: Choices[ItemT], **options: Unpack[AskOptions]
) -> ItemT: ...


@overload
def generate(prompt: Prompt, output_type: Functions, **options: Unpack[AskOptions]) -> Call: ...


@overload
def generate(prompt: Prompt, output_type: Schemas, **options: Unpack[AskOptions]) -> Any: ...


def generate(prompt: Any, output_type: Any = None, **options: Any) -> Any:
    """Return what the default model answers, as a value of ``output_type``; a str without one.

    ``structgen.generate("The capital of France is ", Literal["Paris", "Rome"])``: one line, from
    nothing. The model is loaded by the first call, and kept.

    Args:
        prompt, output_type, options: as for calling a `TextModel`.

    Raises:
        As `structgen.load` and calling a `TextModel`.

    Cost: the first call loads the default model, a second, and fetches it if need be.
    """
    return _default_model()(prompt, output_type, **options)


_LOADING = fork_safe(threading.Lock())
_LOADED: list[TextModel] = []


def _default_model() -> TextModel:
    with _LOADING:
        if not _LOADED:
            folder = models.path(models.DEFAULT)
            _LOADED.append(genai.load(folder, kind=TextModel, meanwhile=warm_up))
        return _LOADED[0]
