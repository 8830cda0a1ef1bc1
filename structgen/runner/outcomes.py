"""What an answer says of an output beside its text: why it ended, what it took, its typed value.

Owns these for all shapes of answers. Knows no requests.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from structgen.decoding import GenerationResult
from structgen.types import Call

from .constraints import Wanted
from .responses import Choice, ChunkChoice, CompletionChoice, FinishReason
from .shape import CompletionTokensDetails, PromptTokensDetails, Usage

_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "stop_string": "stop",
    "budget": "stop",  # whole: `shortened` says what the limit did
    "length": "length",
    "cancelled": "length",  # by timeout=
}


def reason_of(
    result: GenerationResult[Any], asked: Wanted, *, has_calls: bool = False
) -> FinishReason:
    """Why an output ended, in OpenAI's words."""
    if has_calls:
        return "tool_calls"
    if result.finish_reason == "budget" and asked.answer_is_free:
        return "length"  # any text is whole for the tools' grammar, but not for its reader
    return _REASONS[result.finish_reason or "stop"]


def usage_of(groups: Sequence[Sequence[GenerationResult[Any]]], began: float) -> Usage:
    """Tokens and times of the outputs that were made for one request, those of each prompt."""
    ended = time.perf_counter()
    prompt = cached = output = forced = reasoning = 0
    for group in groups:  # a prompt counts once, however many outputs it has
        prompt += max((one.usage.prompt_tokens for one in group), default=0)
        cached += max((one.usage.reused_tokens for one in group), default=0)
    results = [result for group in groups for result in group]
    for usage in (result.usage for result in results):
        output += usage.output_tokens + usage.reasoning_tokens + usage.draft_tokens
        forced += usage.forced_tokens
        reasoning += usage.reasoning_tokens
    firsts = [
        ended - began - result.timings.total_seconds + result.timings.first_chunk_seconds
        for result in results
        if result.timings.first_chunk_seconds is not None
    ]
    first = max(min(firsts), 0.0) if firsts else None
    total = ended - began
    speed = None
    if output:
        speed = round(output / total, 2)
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=output,
        total_tokens=prompt + output,
        prompt_tokens_details=PromptTokensDetails(cached_tokens=cached),
        completion_tokens_details=CompletionTokensDetails(
            reasoning_tokens=reasoning, forced_tokens=forced
        ),
        time_to_first_token=None if first is None else round(first, 6),
        total_time=round(total, 6),
        tokens_per_second=speed,
    )


def give_value(
    choice: Choice | ChunkChoice | CompletionChoice, result: GenerationResult[Any], asked: Wanted
) -> None:
    """Have a choice make its typed value when it is asked for."""

    def value() -> Any:
        made = result.value
        if not asked.tools:
            return made
        calls = [piece for piece in made if isinstance(piece, Call)]
        if calls:
            return calls
        return made[0] if made else ""

    choice._result = result
    choice._made = value
