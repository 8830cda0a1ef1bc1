"""`StructgenEmbeddings`: an embedder of a Runner, for LangChain's vector stores."""

from __future__ import annotations

from typing import Any

from langchain_core.embeddings import Embeddings
from pydantic import BaseModel, ConfigDict, Field

from structgen.runner import Runner

from ..frameworks import runner_of, vectors_of
from .errors import errors


class StructgenEmbeddings(BaseModel, Embeddings):
    """A local embedder. Queries and documents get the model's prompts for these, if it has any.

    Attributes:
        model: as for `ChatStructgen`.
        runner: as for `ChatStructgen`.
        dimensions: keep so many numbers of each vector.
        truncate: whether texts that are too long are cut, rather than refused.
    """

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    model: str
    runner: Runner | None = Field(default=None, exclude=True, repr=False)
    dimensions: int | None = None
    truncate: bool = False

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Make the vectors of documents."""
        if not texts:
            return []
        with errors():
            return vectors_of(self._runner.embed(self._fields(texts, "document")))

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """Make the vectors of documents."""
        if not texts:
            return []
        with errors():
            return vectors_of(await self._runner.aembed(self._fields(texts, "document")))

    def embed_query(self, text: str) -> list[float]:
        """Make the vector of a query."""
        with errors():
            return vectors_of(self._runner.embed(self._fields([text], "query")))[0]

    async def aembed_query(self, text: str) -> list[float]:
        """Make the vector of a query."""
        with errors():
            return vectors_of(await self._runner.aembed(self._fields([text], "query")))[0]

    @property
    def _runner(self) -> Runner:
        return runner_of(self.runner, self.model)

    def _fields(self, texts: list[str], input_type: str) -> dict[str, Any]:
        return {
            "model": self.model,
            "input": texts,
            "input_type": input_type,
            "dimensions": self.dimensions,
            "truncate_sequence": self.truncate,
        }
