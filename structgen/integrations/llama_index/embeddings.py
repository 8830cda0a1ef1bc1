"""`StructgenEmbedding`: an embedder of a Runner, for LlamaIndex's indices."""

from __future__ import annotations

from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from pydantic import ConfigDict, Field

from structgen.runner import Runner

from ..frameworks import runner_of, vectors_of


class StructgenEmbedding(BaseEmbedding):
    """A local embedder. Queries and texts get the model's prompts for these, if it has any.

    Attributes:
        model_name: as ``model`` of `StructgenLLM`.
        runner: as for `StructgenLLM`.
        dimensions: keep so many numbers of each vector.
        truncate: whether texts that are too long are cut, rather than refused.
    """

    model_config = ConfigDict(
        extra="forbid", arbitrary_types_allowed=True, protected_namespaces=("pydantic_model_",)
    )

    runner: Runner | None = Field(default=None, exclude=True, repr=False)
    dimensions: int | None = None
    truncate: bool = False

    @classmethod
    def class_name(cls) -> str:
        """What LlamaIndex calls the class in files."""
        return "StructgenEmbedding"

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._made([query], "query")[0]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return (await self._amade([query], "query"))[0]

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._made([text], "document")[0]

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return (await self._amade([text], "document"))[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._made(texts, "document")

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return await self._amade(texts, "document")

    def _made(self, texts: list[str], input_type: str) -> list[list[float]]:
        runner = runner_of(self.runner, self.model_name)
        return vectors_of(runner.embed(self._fields(texts, input_type)))

    async def _amade(self, texts: list[str], input_type: str) -> list[list[float]]:
        runner = runner_of(self.runner, self.model_name)
        return vectors_of(await runner.aembed(self._fields(texts, input_type)))

    def _fields(self, texts: list[str], input_type: str) -> dict[str, Any]:
        return {
            "model": self.model_name,
            "input": texts,
            "input_type": input_type,
            "dimensions": self.dimensions,
            "truncate_sequence": self.truncate,
        }
