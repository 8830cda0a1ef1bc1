"""LangChain: chat models, embeddings and decisions of a Runner.

    from structgen.integrations.langchain import ChatStructgen

    model = ChatStructgen(model="smollm2-135m-instruct", max_tokens=100)
    model.with_structured_output(Landmark).invoke("Describe the Eiffel Tower.")

In reading order: `messages` (a history as a chat), `answers` (answers and their pieces), `errors`,
`chat` (the model), `structured` (its outputs of a type), `embeddings`, `decisions`. No logic of
answers is here: a request becomes one of the Runner's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from structgen.errors import ModelError

try:
    import langchain_core as _package
except ImportError as error:
    raise ModelError(
        "structgen.integrations.langchain needs the package langchain-core. Install it: "
        "pip install 'structgen[langchain]'."
    ) from error

from .chat import ChatStructgen
from .embeddings import StructgenEmbeddings

if TYPE_CHECKING:
    from .decisions import StructgenDecisions

__all__ = ["ChatStructgen", "StructgenDecisions", "StructgenEmbeddings"]

del _package


def __getattr__(name: str) -> Any:
    if name == "StructgenDecisions":  # of newer versions of langchain-core only
        from .decisions import StructgenDecisions

        return StructgenDecisions
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
