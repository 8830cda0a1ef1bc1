"""LlamaIndex: LLMs that call functions, and embeddings, of a Runner.

    from structgen.integrations.llama_index import StructgenLLM

    llm = StructgenLLM(model="smollm2-135m-instruct", max_tokens=100)
    llm.structured_predict(Landmark, PromptTemplate("Describe {name}."), name="the Eiffel Tower")

In reading order: `messages` (a history as a chat), `answers` (answers and their pieces), `llm`,
`embeddings`. No logic of answers is here: a request becomes one of the Runner's.
"""

from __future__ import annotations

from structgen.errors import ModelError

try:
    import llama_index.core as _package
except ImportError as error:
    raise ModelError(
        "structgen.integrations.llama_index needs the package llama-index-core. Install it: "
        "pip install 'structgen[llama-index]'."
    ) from error

from .embeddings import StructgenEmbedding
from .llm import StructgenLLM

__all__ = ["StructgenEmbedding", "StructgenLLM"]

del _package
