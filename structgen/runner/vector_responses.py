"""Answers to requests that make no text: embeddings, rankings, decisions.

Owns their shapes, as `responses` does those of texts.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, PrivateAttr

from .shape import PromptTokensDetails, Shape, new_id, now


class Embedding(Shape):
    """The vector of one text."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class InputUsage(Shape):
    """Tokens of a request that makes no text."""

    prompt_tokens: int = 0
    total_tokens: int = 0


class DecisionUsage(InputUsage):
    """The same, and how many of the tokens the model had read before."""

    prompt_tokens_details: PromptTokensDetails = Field(default_factory=PromptTokensDetails)


class EmbeddingResponse(Shape):
    """The answer to an `EmbeddingRequest`."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: InputUsage


class RerankResult(Shape):
    """One document's place."""

    _own = frozenset({"document"})

    index: int
    relevance_score: float
    document: dict[str, str] | None = None


class RerankResponse(Shape):
    """The answer to a `RerankRequest`: the best document first."""

    id: str = Field(default_factory=lambda: new_id("rerank-"))
    object: Literal["rerank"] = "rerank"
    model: str
    results: list[RerankResult]
    usage: InputUsage


class DecisionResponse(Shape):
    """The answer to a `DecisionRequest`: by name, as `structgen.decisions` writes it in JSON."""

    id: str = Field(default_factory=lambda: new_id("decision-"))
    object: Literal["decision"] = "decision"
    created: int = Field(default_factory=now)
    model: str
    answers: dict[str, Any]
    usage: DecisionUsage
    _answers: Any = PrivateAttr(default=None)

    @property
    def value(self) -> Any:
        """The `structgen.decisions.Answers`."""
        return self._answers
