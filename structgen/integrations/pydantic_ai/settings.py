"""A request's settings as fields of the Runner's `ChatRequest`: each honoured, or refused by name.

Owns pydantic-ai's names for them, its tools and its output modes. What the fields do, and which
values there are, the Runner knows.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import Any

import pydantic_ai.models
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models._tool_choice import resolve_tool_choice
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from ..frameworks import closed_format

PREFIX = "structgen_"


class StructgenModelSettings(ModelSettings, total=False):
    """Settings that only structgen's models have.

    Any other field of `structgen.runner.ChatRequest` can be set by this prefix too, or in
    ``extra_body``; those that messages, tools and output types are told by cannot.
    """

    structgen_logprobs: bool
    """Tell the log probability of each token in ``provider_details['logprobs']``."""

    structgen_top_logprobs: int
    """List so many of the likeliest tokens beside each."""

    structgen_trace: bool
    """Tell what happened at each token in ``provider_details['trace']``."""

    structgen_abstain_below: float | dict[str, float]
    """Tell how sure the model is of each value that was a choice among few, by JSON path, in
    ``provider_details['confidence']``, and in ``['abstained']`` which are less likely than this."""

    structgen_best: bool
    """Write values that are a choice among few as the likeliest whole text."""

    structgen_min_p: float
    """Sample among tokens whose probability is at least so much of the likeliest one's."""

    structgen_repetition_penalty: float
    """Above 1 discourages tokens that are there already."""

    structgen_no_repeat_ngram_size: int
    """No run of so many tokens twice."""

    structgen_thinking_budget: int
    """Most tokens of a thought."""

    structgen_truncate_sequence: bool
    """Let a prompt that is too long lose its oldest turns."""

    structgen_adapter: str
    """Name of a loaded adapter to run with."""


_NAMES = {
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "timeout": "timeout",
    "seed": "seed",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "logit_bias": "logit_bias",
    "stop_sequences": "stop",
    "service_tier": "service_tier",
}
"""Settings, and the fields that they are."""

_ELSEWHERE = frozenset(
    {
        "request_timeout",
        "first_event_timeout",
        "framing_announcement",
        "tool_choice",
        "parallel_tool_calls",
        "thinking",
        "extra_body",
        "cache",  # what prompts share is kept by itself
        "max_retries",  # a request that failed is never sent again
    }
)
"""Settings that pydantic-ai sees to, that are read below, or that hold as it is."""

_REFUSED = {
    "extra_headers": "Nothing is sent over HTTP.",
    "citations": "Models here cite nothing.",
}

_TAKEN = frozenset(
    {
        "messages",
        "model",
        "n",
        "stream_options",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "response_format",
        "grammar",
        "grammar_type",
        "output_type",
        "max_tool_rounds",
        "session_id",
        "approve",
        "tool_timeout",
        "max_tool_result",
    }
)
"""Fields that the agent fills in, or that stand against what it does."""


def fields_of(settings: ModelSettings, params: ModelRequestParameters) -> dict[str, Any]:
    """All fields of a request but its messages.

    Raises:
        UserError: a setting is not supported.
    """
    return {**_settings(settings), **_thinking(params), **_tools(settings, params), **_form(params)}


def _settings(settings: ModelSettings) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for name, value in settings.items():
        if name in _NAMES:
            if name == "timeout" and not isinstance(value, (int, float, type(None))):
                raise UserError(f"timeout={value!r} is not supported. Pass seconds.")
            fields[_NAMES[name]] = value
        elif name in _REFUSED:
            if value:
                raise UserError(f"{name}={value!r} is not supported. {_REFUSED[name]}")
        elif name.startswith(PREFIX):
            own[name.removeprefix(PREFIX)] = value
        elif name not in _ELSEWHERE and name.partition("_")[0] not in _others():
            raise UserError(f"There is no setting {name!r}.")
    body: Any = settings.get("extra_body") or {}
    if not isinstance(body, Mapping):
        raise UserError(f"extra_body={body!r} is no dict of fields of a ChatRequest.")
    own = {**body, **own}
    for name in own:
        if name in _TAKEN:
            raise UserError(f"{name} is what the agent fills in. It cannot be set.")
    return {**fields, **own}


@cache
def _others() -> frozenset[str]:
    """What the settings of other models begin with, which their names say are not for this one."""
    modules = [module.name for module in pkgutil.iter_modules(pydantic_ai.models.__path__)]
    return frozenset(name.partition("_")[0] for name in modules if not name.startswith("_"))


def _thinking(params: ModelRequestParameters) -> dict[str, Any]:
    level = params.thinking
    if level is None:
        return {}
    if isinstance(level, bool):
        return {"enable_thinking": level}
    return {"reasoning_effort": "xhigh" if level == "max" else level}


def _form(params: ModelRequestParameters) -> dict[str, Any]:
    """The form of an answer that is no call, also where pydantic-ai leaves it to the prompt."""
    if params.output_object is None:
        return {}
    form = {
        "name": params.output_object.name or "output",
        "schema": params.output_object.json_schema,
    }
    return {"response_format": closed_format({"type": "json_schema", "json_schema": form})}


def _tools(settings: ModelSettings, params: ModelRequestParameters) -> dict[str, Any]:
    tools = params.declared_tool_defs
    if not tools:
        return {}
    fields: dict[str, Any] = {"tools": [_tool(tool) for tool in tools.values()]}
    choice = resolve_tool_choice(settings, params)
    if isinstance(choice, str):
        fields["tool_choice"] = choice
    else:
        mode, names = choice
        allowed = [{"type": "function", "function": {"name": n}} for n in tools if n in names]
        fields["tool_choice"] = {
            "type": "allowed_tools",
            "allowed_tools": {"mode": mode, "tools": allowed},
        }
    parallel = settings.get("parallel_tool_calls")
    if parallel is None and not params.function_tools:
        parallel = False  # of several outputs the agent would take one
    if parallel is not None:
        fields["parallel_tool_calls"] = parallel
    return fields


def _tool(tool: ToolDefinition) -> dict[str, Any]:
    function = {"name": tool.name, "parameters": tool.parameters_json_schema}
    if tool.description:
        function["description"] = tool.description
    return {"type": "function", "function": function}
