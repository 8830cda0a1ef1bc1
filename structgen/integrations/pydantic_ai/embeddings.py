"""`StructgenEmbeddingModel`: an embedder of a Runner, for pydantic-ai's `Embedder`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai.embeddings import EmbeddingModel, EmbeddingResult, EmbeddingSettings
from pydantic_ai.embeddings.result import EmbedInputType
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import check_allow_model_requests
from pydantic_ai.usage import RequestUsage

from structgen.runner import Runner

from .provider import StructgenProvider, errors_of, provider_of

_NAMES = {"dimensions": "dimensions", "truncate": "truncate_sequence"}


@dataclass(init=False)
class StructgenEmbeddingModel(EmbeddingModel):
    """A local embedder. Queries and documents get the model's prompts for these, if it has any.

    Args:
        model_name: as for `StructgenModel`.
        provider: as for `StructgenModel`.
        settings: of every request; ``extra_body`` has fields of
            `structgen.runner.EmbeddingRequest`.
    """

    _model_name: str = field(repr=False)
    _provider: StructgenProvider = field(repr=False)

    def __init__(
        self,
        model_name: str,
        *,
        provider: StructgenProvider | Runner | None = None,
        settings: EmbeddingSettings | None = None,
    ) -> None:
        self._model_name = model_name
        self._provider = provider_of(provider, model_name)
        super().__init__(settings=settings)

    @property
    def model_name(self) -> str:
        """The model's id or alias."""
        return self._model_name

    @property
    def system(self) -> str:
        """``structgen``."""
        return self._provider.name

    async def embed(
        self,
        inputs: str | Sequence[str],
        *,
        input_type: EmbedInputType,
        settings: EmbeddingSettings | None = None,
    ) -> EmbeddingResult:
        """Make the vectors of texts.

        Raises:
            UserError: a setting is not supported.
        """
        check_allow_model_requests()
        texts, settings = self.prepare_embed(inputs, settings)
        fields = {"input_type": input_type, **_fields(settings)}
        if "prompt_name" in fields:
            del fields["input_type"]
        with errors_of(self._model_name):
            made = await self._provider.client.aembed(fields, model=self._model_name, input=texts)
        vectors = [one.embedding for one in made.data if isinstance(one.embedding, list)]
        return EmbeddingResult(
            embeddings=vectors,
            inputs=texts,
            input_type=input_type,
            model_name=made.model,
            provider_name=self.system,
            usage=RequestUsage(input_tokens=made.usage.prompt_tokens),
        )

    async def max_input_tokens(self) -> int | None:
        """Return how many tokens a text may have."""
        with errors_of(self._model_name):
            return await self._provider.client.amax_sequence_length(self._model_name)

    async def count_tokens(self, text: str) -> int:
        """Return how many tokens a text has."""
        with errors_of(self._model_name):
            found = await self._provider.client.atokenize_text(text, model=self._model_name)
        return len(found)


def _fields(settings: EmbeddingSettings) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in settings.items():
        if name in _NAMES:
            fields[_NAMES[name]] = value
        elif name == "extra_body":
            if not isinstance(value, Mapping) or {"input", "model", "encoding_format"} & set(value):
                raise UserError(f"extra_body={value!r} is no dict of further fields.")
            fields |= value
        elif name == "extra_headers":
            if value:
                raise UserError("extra_headers is not supported. Nothing is sent over HTTP.")
        else:
            raise UserError(f"There is no setting {name!r}.")
    return fields
