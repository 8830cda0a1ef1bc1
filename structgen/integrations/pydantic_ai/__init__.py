"""pydantic-ai: models and embedders of a Runner for its agents.

    from pydantic_ai import Agent
    from structgen.integrations.pydantic_ai import StructgenModel

    agent = Agent(StructgenModel("smollm2-135m-instruct"), output_type=Landmark)
    agent.run_sync("Describe the Eiffel Tower.").output

In reading order: `provider` (the Runner, and what its models can do), `messages` (a history as a
chat), `settings` (each field of a request's settings), `responses` (answers and their pieces),
`model` and `embeddings`. No logic of answers is here: a request becomes one of the Runner's.
"""

from __future__ import annotations

from structgen.errors import ModelError

try:
    import pydantic_ai as _package
except ImportError as error:
    raise ModelError(
        "structgen.integrations.pydantic_ai needs the package pydantic-ai, and Python 3.11. "
        "Install it: pip install 'structgen[pydantic-ai]'."
    ) from error

from .embeddings import StructgenEmbeddingModel
from .model import StructgenModel
from .provider import StructgenProvider
from .settings import StructgenModelSettings

__all__ = [
    "StructgenEmbeddingModel",
    "StructgenModel",
    "StructgenModelSettings",
    "StructgenProvider",
]

del _package
