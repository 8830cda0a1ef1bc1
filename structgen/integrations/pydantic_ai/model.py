"""`StructgenModel`: a model of a Runner, for pydantic-ai's agents.

Owns the four things that pydantic-ai asks of a model: its name and profile, an answer, an answer
in pieces, and the tokens of a request.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import (
    Model,
    ModelRequestParameters,
    StreamedResponse,
    check_allow_model_requests,
)
from pydantic_ai.profiles import DEFAULT_THINKING_TAGS, ModelProfileSpec
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext
from pydantic_ai.usage import RequestUsage

from structgen.runner import Runner

from .messages import chat_of
from .provider import StructgenProvider, errors_of, provider_of
from .responses import StructgenStreamedResponse, Tags, response_of
from .settings import fields_of


@dataclass(init=False)
class StructgenModel(Model[Runner]):
    """A local model whose calls of tools and structured outputs have their form by mask.

    Args:
        model_name: an id or alias of the Runner's; without a Runner, whatever one takes as a
            source: a name of the catalogue, a folder, a Hugging Face repository.
        provider: the Runner, or a `StructgenProvider`. None: the one that all models share for
            which none was named.
        profile: as for other models; by default what pydantic-ai calls native output.
        settings: of every request: `StructgenModelSettings`.

    The model is loaded by the first request, into a process of its own.
    """

    _unsupported_file_inputs = frozenset({"image", "document", "audio", "video"})

    _model_name: str = field(repr=False)
    _provider: StructgenProvider = field(repr=False)

    def __init__(
        self,
        model_name: str,
        *,
        provider: StructgenProvider | Runner | None = None,
        profile: ModelProfileSpec | None = None,
        settings: ModelSettings | None = None,
    ) -> None:
        self._model_name = model_name
        self._provider = provider_of(provider, model_name)
        super().__init__(settings=settings, profile=profile)

    @property
    def runner(self) -> Runner:
        """The Runner that is asked."""
        return self._provider.client

    @property
    def model_name(self) -> str:
        """The model's id or alias."""
        return self._model_name

    @property
    def system(self) -> str:
        """``structgen``."""
        return self._provider.name

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Answer."""
        fields, _ = self._asked(messages, model_settings, model_request_parameters)
        with errors_of(self._model_name):
            answer = await self.runner.achat(fields, model=self._model_name)
        return response_of(answer, self._tags)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Answer piece by piece. Leaving it ends the answer."""
        fields, params = self._asked(messages, model_settings, model_request_parameters)
        fields["stream_options"] = {"include_usage": True}
        with errors_of(self._model_name):
            chunks = self.runner.astream_chat(fields, model=self._model_name)
        async with chunks:
            with errors_of(self._model_name):
                first = await anext(chunks)  # before the model runs: what is wrong is told here
            yield StructgenStreamedResponse(
                model_request_parameters=params,
                _model=self._model_name,
                _first=first,
                _chunks=chunks,
                _tags=self._tags,
            )

    async def count_tokens(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> RequestUsage:
        """Count the tokens of the prompt, tools and instructions included."""
        fields, _ = self._asked(messages, model_settings, model_request_parameters)
        with errors_of(self._model_name):
            count = await self.runner.acount_tokens(fields, model=self._model_name)
        return RequestUsage(input_tokens=count)

    @property
    def _tags(self) -> Tags:
        return self.profile.get("thinking_tags", DEFAULT_THINKING_TAGS)

    def _asked(
        self,
        messages: list[ModelMessage],
        settings: ModelSettings | None,
        params: ModelRequestParameters,
    ) -> tuple[dict[str, Any], ModelRequestParameters]:
        """A request as the Runner's."""
        check_allow_model_requests()
        settings, params = self.prepare_request(settings, params)
        fields = fields_of(settings or cast(ModelSettings, {}), params)
        fields["messages"] = chat_of(messages, self._get_instruction_parts(messages, params))
        return fields, params
