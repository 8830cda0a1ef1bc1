"""Every field of every request is honoured, or refused by its name: none is quietly passed over."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from models import sounds, tiny_whisper
from pydantic import BaseModel, field_validator

from structgen import OutputTypeError, RequestError, Runner
from structgen.options import FIELDS, OPTIONS
from structgen.runner import (
    ChatRequest,
    CompletionRequest,
    DecisionRequest,
    EmbeddingRequest,
    RerankRequest,
    TranscriptionRequest,
)
from structgen.runner.fields import Request
from structgen.runner.requests import ExplainRequest

KINDS: tuple[type[Request], ...] = (
    ChatRequest,
    CompletionRequest,
    DecisionRequest,
    EmbeddingRequest,
    ExplainRequest,
    RerankRequest,
    TranscriptionRequest,
)

CHANGES_NOTHING = {"user", "metadata", "safety_identifier", "prompt_cache_key"}
"""Taken and not read, as docs/runner.md says."""

ONE_VALUE = {"service_tier": "flex", "store": True, "verbosity": "high", "modalities": ["audio"]}
"""Fields of which only the value that changes nothing is taken, and another."""


def test_every_kind_of_request_is_walked() -> None:
    def below(kind: type[Request]) -> Iterator[type[Request]]:
        for one in kind.__subclasses__():
            yield one
            yield from below(one)

    names = {one.__name__ for one in below(Request) if not one.__name__.startswith("Seen")}
    assert names == {"OptionFields", "Sampled", *(one.__name__ for one in KINDS)}


# -- refused by name --------------------------------------------------------------------------

WRONG: dict[str, Any] = {
    **dict.fromkeys(FIELDS, -101),
    "model": 3, "messages": [], "max_tokens": 0, "max_completion_tokens": 0,
    "logit_bias": {"x": 1}, "stop": [""], "n": 0, "stream_options": {"x": 1}, "adapter": "nobody",
    "special_tokens": "never", "abstain_below": 2, "best": 1, "retries": -1, "speculate": 1,
    "truncate_sequence": 1, "grammar": "[", "grammar_type": "abnf", "output_type": object(),
    "response_format": 3, "tools": [3], "tool_choice": "some", "parallel_tool_calls": 1,
    "logprobs": -1, "top_logprobs": -1, "with_schema_hint": 1, "enable_thinking": 1,
    "reasoning_effort": "huge",
    "thinking_budget": 0, "session_id": 3, "max_tool_rounds": 0, "approve": 3, "tool_timeout": -1,
    "web_search_options": 3, "enable_code_execution": 1, "max_tool_result": 0, "trace": 1,
    "prompt": 3, "echo": 1, "best_of": 3, "input": 3,
    "dimensions": 0, "encoding_format": "hex", "prompt_name": 3, "input_type": "song", "query": 3,
    "documents": 3, "file": 3, "language": 3, "translate": 1, "top_n": 0, "return_documents": 1,
    "state": "\0", "questions": {"a": 3},
    "debias": "all", "tolerance": 2, "before": ["a"], "token": 1.5, "chosen": "a",
    "user": 3, "metadata": 3, "safety_identifier": 3, "prompt_cache_key": 3, **ONE_VALUE,
}  # fmt: skip
"""For each field a value that is wrong."""

NEEDED: dict[str, dict[str, Any]] = {
    "ChatRequest": {"messages": "Hi", "max_tokens": 2},
    "CompletionRequest": {"prompt": "Hi", "max_tokens": 2},
    "DecisionRequest": {
        "state": "Hi",
        "questions": {"a": {"type": "predicate", "instructions": "Is it?"}},
    },
    "EmbeddingRequest": {"input": "Hi", "model": "vectors"},
    "ExplainRequest": {"before": [], "token": "a", "chosen": 5, "grammar": "b",
                       "grammar_type": "regex"},
    "RerankRequest": {"query": "a", "documents": ["a"], "model": "vectors"},
    "TranscriptionRequest": {"file": sounds.wav(sounds.tone()), "model": "hears"},
}  # fmt: skip

BESIDE: dict[str, dict[str, Any]] = {
    "grammar": {"grammar_type": "regex"},
    "grammar_type": {"grammar": "a"},
    "top_logprobs": {"logprobs": True},
    "retries": {"output_type": bool},
    "abstain_below": {"output_type": bool},
    "tool_choice": {"tools": [lambda: 3]},
    "parallel_tool_calls": {"tools": [lambda: 3]},
    "approve": {"tools": [print], "max_tool_rounds": 1},
    "tool_timeout": {"tools": [print], "max_tool_rounds": 1},
}
"""What a field goes with."""


def sent(runner: Runner, kind: type[Request], fields: dict[str, Any]) -> Any:
    request = kind.of({**fields}, {})
    name = kind.__name__.removesuffix("Request")
    calls = {"Chat": "chat", "Completion": "complete", "Decision": "decide"}
    calls |= {"Embedding": "embed", "Explain": "explain", "Rerank": "rerank"}
    calls |= {"Transcription": "transcribe"}
    return getattr(runner, calls[name])(request)


@pytest.fixture(scope="module")
def both(runner: Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    folder = tiny_whisper.converted(tmp_path_factory.mktemp("whisper"))
    runner.add_model("vectors", "all-minilm-l6-v2")
    runner.add_model("hears", {"source": folder, "in_process": True})
    yield runner
    runner.remove("vectors")
    runner.remove("hears")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_is_wrong_in_a_field_is_told_by_its_name(both: Runner, kind: type[Request]) -> None:
    def tool(a: bool) -> bool:
        return a

    found: dict[str, str] = {}
    for name in kind.model_fields:
        beside = {
            key: [tool] if key == "tools" else value
            for key, value in BESIDE.get(name, {}).items()
            if key in kind.model_fields
        }
        try:
            sent(both, kind, {**NEEDED[kind.__name__], **beside, name: WRONG[name]})
        except RequestError as error:
            param = error.param or ""
            if param.split(".")[0].split("[")[0] != name:
                found[name] = f"{param}: {error}"
        except OutputTypeError as error:  # of the program's own class
            if name != "output_type":
                found[name] = repr(error)
        else:
            found[name] = "nothing was said"
    assert found == {}


# -- honoured ---------------------------------------------------------------------------------


class Even(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def check(cls, n: int) -> int:
        return n


def echo(text: bool) -> bool:
    """Say it back."""
    return text


SETTINGS = {name: 1 for name, option in FIELDS.items() if OPTIONS[option].is_setting}

GIVEN: dict[str, list[dict[str, Any]]] = {
    "ChatRequest": [
        {**SETTINGS,
         "temperature": 1.0, "top_p": 0.9, "top_k": 9, "min_p": 0.1, "repetition_penalty": 1.1,
         "frequency_penalty": 0.1, "presence_penalty": 0.1, "no_repeat_ngram_size": 3,
         "logit_bias": {"5": 1}, "stop": "zzz", "seed": 3, "n": 2, "timeout": 60.0,
         "special_tokens": "anywhere", "truncate_sequence": True, "logprobs": True,
         "top_logprobs": 1, "trace": True, "max_completion_tokens": 2,
         "stream_options": {"include_usage": True}},
        {"output_type": bool, "abstain_below": 0.01, "best": True, "speculate": True},
        {"output_type": Even, "retries": 1, "max_tokens": 12},
        {"response_format": {"type": "json_object"}, "max_tokens": 20, "with_schema_hint": True},
        {"grammar": "ab", "grammar_type": "regex"},
        {"tools": [echo], "tool_choice": "required", "parallel_tool_calls": False,
         "max_tool_rounds": 1, "approve": lambda call: True, "tool_timeout": 9.0,
         "max_tool_result": 99, "max_tokens": 40, "session_id": "walked"},
        {"web_search_options": {}, "enable_code_execution": os.name == "posix",
         "approve": lambda call: False, "max_tool_rounds": 1, "max_tokens": 12},
        {"enable_thinking": True, "reasoning_effort": "low", "thinking_budget": 12,
         "max_tokens": 24},
    ],
    "CompletionRequest": [
        {**SETTINGS,
         "temperature": 1.0, "top_p": 0.9, "top_k": 9, "min_p": 0.1, "repetition_penalty": 1.1,
         "frequency_penalty": 0.1, "presence_penalty": 0.1, "no_repeat_ngram_size": 3,
         "logit_bias": {"5": 1}, "stop": "zzz", "seed": 3, "n": 2, "best_of": 2, "timeout": 60.0,
         "special_tokens": "anywhere", "truncate_sequence": True, "logprobs": 1, "echo": True,
         "stream_options": {"include_usage": True}},
        {"output_type": bool, "abstain_below": 0.01, "best": True, "speculate": True},
        {"output_type": Even, "retries": 1, "max_tokens": 12},
        {"grammar": "ab", "grammar_type": "regex"},
    ],
    "DecisionRequest": [
        {"abstain_below": 0.01, "debias": "none", "tolerance": 0.1, "timeout": 60.0},
        {"debias": "contextual", "questions": {
            "a": {"type": "choice", "instructions": "Which?", "options": ["x", "y"]}}},
    ],
    "EmbeddingRequest": [
        {"dimensions": 5, "encoding_format": "base64", "truncate_sequence": True,
         "input_type": "query"},
    ],
    "ExplainRequest": [{"max_tokens": 9},
                       {"response_format": {"type": "json_object"}, "grammar": None,
                        "grammar_type": None}],
    "RerankRequest": [{"top_n": 1, "return_documents": True, "truncate_sequence": True}],
    "TranscriptionRequest": [
        {"language": "de", "translate": True, "prompt": "the", "temperature": 0.5},
    ],
}  # fmt: skip
"""Requests that together have every field."""


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_field_is_read(both: Runner, kind: type[Request]) -> None:
    read: set[str] = set()

    def watched(self: Any, name: str) -> Any:
        if name in kind.model_fields:
            read.add(name)
        return super(seen, self).__getattribute__(name)

    seen = type(f"Seen{kind.__name__}", (kind,), {"__getattribute__": watched})
    given: set[str] = set(NEEDED[kind.__name__])
    for fields in GIVEN[kind.__name__]:
        asked = seen(**{**NEEDED[kind.__name__], **fields})
        given |= {name for name, value in fields.items() if value is not None}
        if "stream_options" in fields:  # only streams have any
            stream = both.stream_chat if kind is ChatRequest else both.stream_complete
            assert list(stream(asked))
        name = {"ChatRequest": "chat", "CompletionRequest": "complete", "DecisionRequest": "decide",
                "EmbeddingRequest": "embed", "ExplainRequest": "explain",
                "RerankRequest": "rerank",
                "TranscriptionRequest": "transcribe"}[kind.__name__]  # fmt: skip
        assert getattr(both, name)(asked)
    expected = set(kind.model_fields) - CHANGES_NOTHING - set(ONE_VALUE)
    assert expected - read == set()
    assert expected - given <= {"model", "adapter", "prompt_name"}
