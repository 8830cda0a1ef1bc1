"""`StructgenTextEmbedder` and `StructgenDocumentEmbedder`: an embedder of a Runner, as components.

The first is for queries, the second for documents: each gets the model's prompt for these, if it
has any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from haystack import Document, component, default_from_dict, default_to_dict

from structgen.errors import OptionError
from structgen.runner import EmbeddingResponse, Runner

from ..frameworks import vectors_of
from .loading import Loading


@component
class StructgenTextEmbedder(Loading):
    """A local embedder of queries."""

    def __init__(
        self,
        model: str,
        *,
        runner: Runner | None = None,
        dimensions: int | None = None,
        truncate: bool = False,
    ) -> None:
        """Make an embedder; nothing is loaded.

        Args:
            model: as for `StructgenChatGenerator`.
            runner: the same.
            dimensions: keep so many numbers of each vector.
            truncate: whether texts that are too long are cut, rather than refused.
        """
        self.model = model
        self.runner = runner
        self.dimensions = dimensions
        self.truncate = truncate

    def to_dict(self) -> dict[str, Any]:
        """Write the component, without the Runner."""
        made: dict[str, Any] = default_to_dict(
            self, model=self.model, dimensions=self.dimensions, truncate=self.truncate
        )
        return made

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> StructgenTextEmbedder:
        """Read a component that `to_dict` wrote."""
        made: StructgenTextEmbedder = default_from_dict(cls, data)
        return made

    @component.output_types(embedding=list[float], meta=dict[str, Any])
    def run(self, text: str) -> dict[str, Any]:
        """Make the vector of a text.

        Returns:
            ``embedding``, and ``meta``: the model and its usage.
        """
        made = self._of().embed(self._fields(text))
        return {"embedding": vectors_of(made)[0], "meta": _meta(made)}

    @component.output_types(embedding=list[float], meta=dict[str, Any])
    async def run_async(self, text: str) -> dict[str, Any]:
        """`run`, for asynchronous code."""
        made = await self._of().aembed(self._fields(text))
        return {"embedding": vectors_of(made)[0], "meta": _meta(made)}

    def _fields(self, text: str) -> dict[str, Any]:
        if not isinstance(text, str):
            raise OptionError("A text is wanted. For documents take StructgenDocumentEmbedder.")
        return _fields(self, [text], "query")


@component
class StructgenDocumentEmbedder(Loading):
    """A local embedder of documents."""

    def __init__(
        self,
        model: str,
        *,
        runner: Runner | None = None,
        dimensions: int | None = None,
        truncate: bool = False,
        meta_fields_to_embed: list[str] | None = None,
        embedding_separator: str = "\n",
    ) -> None:
        """Make an embedder; nothing is loaded.

        Args:
            model: as for `StructgenChatGenerator`.
            runner: the same.
            dimensions: keep so many numbers of each vector.
            truncate: whether texts that are too long are cut, rather than refused.
            meta_fields_to_embed: of each document's ``meta``, what stands before its content.
            embedding_separator: what stands between these.
        """
        self.model = model
        self.runner = runner
        self.dimensions = dimensions
        self.truncate = truncate
        self.meta_fields_to_embed = meta_fields_to_embed or []
        self.embedding_separator = embedding_separator

    def to_dict(self) -> dict[str, Any]:
        """Write the component, without the Runner."""
        made: dict[str, Any] = default_to_dict(
            self,
            model=self.model,
            dimensions=self.dimensions,
            truncate=self.truncate,
            meta_fields_to_embed=self.meta_fields_to_embed,
            embedding_separator=self.embedding_separator,
        )
        return made

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> StructgenDocumentEmbedder:
        """Read a component that `to_dict` wrote."""
        made: StructgenDocumentEmbedder = default_from_dict(cls, data)
        return made

    @component.output_types(documents=list[Document], meta=dict[str, Any])
    def run(self, documents: list[Document]) -> dict[str, Any]:
        """Make the vectors of documents.

        Returns:
            ``documents``: the same, each with its ``embedding``; ``meta``: the model and its usage.
        """
        if not documents:
            return {"documents": [], "meta": {}}
        made = self._of().embed(self._fields(documents))
        return _with_vectors(documents, made)

    @component.output_types(documents=list[Document], meta=dict[str, Any])
    async def run_async(self, documents: list[Document]) -> dict[str, Any]:
        """`run`, for asynchronous code."""
        if not documents:
            return {"documents": [], "meta": {}}
        made = await self._of().aembed(self._fields(documents))
        return _with_vectors(documents, made)

    def _fields(self, documents: Sequence[Document]) -> dict[str, Any]:
        if isinstance(documents, str) or not all(isinstance(one, Document) for one in documents):
            raise OptionError("Documents are wanted. For a text take StructgenTextEmbedder.")
        texts = []
        for one in documents:
            meta = (one.meta.get(name) for name in self.meta_fields_to_embed)
            parts = [str(value) for value in meta if value is not None]
            texts.append(self.embedding_separator.join([*parts, one.content or ""]))
        return _fields(self, texts, "document")


def _fields(embedder: Any, texts: list[str], input_type: str) -> dict[str, Any]:
    return {
        "model": embedder.model,
        "input": texts,
        "input_type": input_type,
        "dimensions": embedder.dimensions,
        "truncate_sequence": embedder.truncate,
    }


def _with_vectors(documents: Sequence[Document], made: EmbeddingResponse) -> dict[str, Any]:
    pairs = zip(documents, vectors_of(made), strict=True)
    return {
        "documents": [replace(document, embedding=vector) for document, vector in pairs],
        "meta": _meta(made),
    }


def _meta(made: EmbeddingResponse) -> dict[str, Any]:
    return {"model": made.model, "usage": made.usage.model_dump(mode="json")}
