"""From fields of a request to options of the decode loop: each honoured, or refused by name.

Owns names, and what thinking means in tokens. Values are checked where the options are
(`structgen.decoding.options`); an error there is told with the field's name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from structgen.decoding import options as search_options
from structgen.errors import OptionError, RequestError

from .requests import ChatRequest, CompletionRequest, Sampled

_OPTIONS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram_size",
    "logit_bias": "logit_bias",
    "stop": "stop",
    "seed": "seed",
    "adapter": "adapter",
    "timeout": "timeout",
    "special_tokens": "special_tokens",
    "abstain_below": "abstain_below",
    "best": "best",
    "retries": "retries",
}
"""Fields, and the options that they are."""

_TOKEN_ID = re.compile("0|[1-9][0-9]{0,9}")

EFFORTS = {"minimal": 128, "low": 512, "medium": 1024, "high": 4096, "xhigh": 8192}
"""Most tokens of a thought, by ``reasoning_effort``; at most half of the model's context."""

DEFAULT_EFFORT = "medium"


def search_of(request: Sampled) -> dict[str, Any]:
    """The options of a call, but for the limit on its tokens.

    Raises:
        RequestError: a value is wrong; it names the field.
    """
    found: dict[str, Any] = {}
    for field, option in _OPTIONS.items():
        value = getattr(request, field)
        if value is None or value is False or value == []:
            continue
        if field == "top_k" and value == -1:
            value = 0  # how other programs write that there is no limit
        if field == "logit_bias":
            value = _bias(value)
        found[option] = _checked(field, option, value)
    found |= _logprobs(request)
    if isinstance(request, ChatRequest) and request.trace:
        found["trace"] = True
    try:
        search_options.parse(found)
    except OptionError as error:  # two that contradict each other
        raise RequestError(str(error), param=_first_named(str(error), found)) from None
    return found


def settings_of(options: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a call with some options has on a model with these defaults."""
    return search_options.resolve(search_options.parse(options), defaults)


def samples_how(request: Sampled, defaults: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the temperature and ``top_p`` that a request is answered with.

    Args:
        request: the request.
        defaults: the model's own settings; None: they are not known yet.
    """
    settings = settings_of(search_of(request), defaults or {})
    samples = settings.get("do_sample")
    temperature, top_p = request.temperature, request.top_p
    if temperature is None:
        temperature = settings.get("temperature", 1.0) if samples else 0.0
    if top_p is None:
        top_p = settings.get("top_p") or 1.0 if samples else 1.0
    return {"temperature": float(temperature), "top_p": float(top_p)}


def limits(request: Sampled, context_length: int) -> tuple[dict[str, Any], Any]:
    """The limit on an output's tokens as an option, and what `structgen.Generator` is told of
    thinking.

    Raises:
        RequestError: a value is wrong, or two contradict each other.
    """
    most, field = request.max_tokens, "max_tokens"
    if isinstance(request, ChatRequest) and request.max_completion_tokens is not None:
        field = "max_completion_tokens"
        if most is not None and most != request.max_completion_tokens:
            raise RequestError(
                "max_tokens and max_completion_tokens are two names for one limit. Pass one.",
                param=field,
            )
        most = request.max_completion_tokens
    if most is not None:
        _checked(field, "max_new_tokens", most)
    think = _thinking(request, context_length) if isinstance(request, ChatRequest) else None
    if think and most is not None:
        # The limit is on both: at least a quarter of it is left for the answer.
        think = min(think, most - max(most // 4, 1))
        if think < 1:
            raise RequestError(f"{field}={most} leaves no room to think.", param=field)
        most -= think
    return ({} if most is None else {"max_new_tokens": most}), think


def _thinking(request: ChatRequest, context_length: int) -> int | None:
    effort, budget, enabled = (
        request.reasoning_effort,
        request.thinking_budget,
        request.enable_thinking,
    )
    off = [name for name, is_off in (
        ("enable_thinking", enabled is False),
        ("reasoning_effort", effort == "none"),
    ) if is_off]  # fmt: skip
    on = [name for name, is_on in (
        ("enable_thinking", enabled is True),
        ("reasoning_effort", effort not in (None, "none")),
        ("thinking_budget", budget is not None),
    ) if is_on]  # fmt: skip
    if off and on:
        raise RequestError(f"{off[0]} and {on[0]} contradict each other.", param=on[0])
    if off:
        return 0
    if not on:
        return None
    if budget is not None:
        return budget
    return min(EFFORTS[effort or DEFAULT_EFFORT], context_length // 2)


def _bias(given: Mapping[str | int, float]) -> dict[int, float]:
    found = {}
    for token, value in given.items():
        if isinstance(token, str) and not _TOKEN_ID.fullmatch(token):
            raise RequestError(f"logit_bias.{token} is no token id.", param=f"logit_bias.{token}")
        found[int(token)] = value
    return found


def _logprobs(request: Sampled) -> dict[str, Any]:
    if isinstance(request, CompletionRequest):
        if request.logprobs is None:
            return {}
        found = {"logprobs": True}
        if request.logprobs:
            found["top_logprobs"] = _checked("logprobs", "top_logprobs", request.logprobs)
        return found
    if not isinstance(request, ChatRequest):
        return {}
    if request.top_logprobs and not request.logprobs:
        raise RequestError("top_logprobs needs logprobs=true.", param="top_logprobs")
    if not request.logprobs:
        return {}
    top = request.top_logprobs or 0
    return {
        "logprobs": True,
        "top_logprobs": _checked("top_logprobs", "top_logprobs", top),
    }


def _checked(field: str, option: str, value: Any) -> Any:
    try:
        search_options.parse({option: value})
    except OptionError as error:
        raise RequestError(
            f"{field}: {str(error).replace(f'{option}=', f'{field}=', 1)}", param=field
        ) from None
    return value


def _first_named(message: str, options: Mapping[str, Any]) -> str | None:
    places = {message.find(f"{name}="): name for name in options if f"{name}=" in message}
    return places[min(places)] if places else None
