"""Schemas of fields of chats and completions that the Runner's classes leave open.

The Runner takes more there than JSON can say, Python types among it, and checks them itself.
"""

from __future__ import annotations

from typing import Any

_NULL: dict[str, Any] = {"type": "null"}
_TEXT: dict[str, Any] = {"type": "string"}
_SCHEMA: dict[str, Any] = {"anyOf": [{"type": "object"}, {"type": "boolean"}]}


def _object(required: tuple[str, ...] = (), /, **fields: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": fields,
        "required": list(required),
        "additionalProperties": False,
    }


def _or_null(*schemas: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [*schemas, _NULL]}


def _const(value: Any) -> dict[str, Any]:
    return {"const": value}


_FORMAT = _or_null(
    _object(("type",), type={"enum": ["text", "json_object"]}),
    _object(
        ("type", "json_schema"),
        type=_const("json_schema"),
        json_schema=_object(("schema",), name={}, description={}, schema=_SCHEMA, strict={}),
    ),
)

_FUNCTION = _object(
    ("name",),
    name={"type": "string", "minLength": 1},
    description={},
    parameters=_or_null({"type": "object"}),
    strict={},
)

_NAME = _object(("name",), name=_TEXT)
_NAMED = {
    "anyOf": [
        _object(("type", "function"), type=_const("function"), function=_NAME),
        _object(("type", "name"), type=_const("function"), name=_TEXT),
    ]
}
_MODE = {"enum": ["auto", "required"], "default": "auto"}
_LISTED = {"type": "array", "items": _NAMED, "minItems": 1}

_CHOICE = _or_null(
    {"enum": ["none", "auto", "required"]},
    _NAMED,
    _object(
        ("type", "allowed_tools"),
        type=_const("allowed_tools"),
        allowed_tools=_object(("tools",), mode=_MODE, tools=_LISTED),
    ),
    _object(("type", "tools"), type=_const("allowed_tools"), mode=_MODE, tools=_LISTED),
)

_GRAMMAR = {"type": ["string", "object", "array", "boolean", "null"]}

_VLLM = {
    "regex": _or_null(_TEXT),
    "choice": _or_null({"type": "array", "minItems": 1}),
    "grammar": _or_null(_TEXT),
    "json": _or_null(_TEXT, _SCHEMA),
    "json_object": {"type": ["boolean", "null"]},
}
"""What ``structured_outputs`` of vLLM's may have: one of these."""


def _number(least: float, most: float | None = None, *, above: bool = False) -> dict[str, Any]:
    bound: dict[str, Any] = {"exclusiveMinimum" if above else "minimum": least}
    if most is not None:
        bound["maximum"] = most
    return _or_null({"type": "number", **bound})


def _whole(least: int, most: int | None = None) -> dict[str, Any]:
    bound = {} if most is None else {"maximum": most}
    return _or_null({"type": "integer", "minimum": least, **bound})


TEXT_FIELDS: dict[str, Any] = {
    "max_tokens": _whole(1),
    "temperature": _number(0, 100),
    "top_p": _number(0, 1, above=True),
    "top_k": _whole(-1),
    "repetition_penalty": _number(0.01, 100),
    "no_repeat_ngram_size": _whole(0),
    "seed": _whole(0, 2**31 - 1),
    "timeout": _number(0, 1e9, above=True),
    "retries": _whole(0, 10_000),
    "stream": {"type": ["boolean", "null"], "default": False},
    "store": {"type": ["boolean", "null"]},
    "min_p": _number(0, 1),
    "frequency_penalty": _number(-2, 2),
    "presence_penalty": _number(-2, 2),
    "service_tier": {"enum": ["auto", "default", None]},
    "grammar": _GRAMMAR,
    "structured_outputs": _or_null(
        {**_object(**_VLLM), "description": "As vLLM has it: one of these."}
    ),
    "chat_template_kwargs": _or_null(_object(enable_thinking={"type": ["boolean", "null"]})),
    **{f"guided_{name}": schema for name, schema in _VLLM.items()},
    "prompt_cache_retention": {},
}
"""Of all requests for text."""

CHAT_FIELDS: dict[str, Any] = {
    **TEXT_FIELDS,
    "max_completion_tokens": _whole(1),
    "top_logprobs": _whole(0, 1000),
    "messages": {
        "anyOf": [
            {"type": "string"},
            {
                "type": "array",
                "items": {"$ref": "#/components/schemas/Message"},
                "minItems": 1,
            },
        ]
    },
    "response_format": _FORMAT,
    "tools": _or_null(
        {
            "type": "array",
            "items": _object(("type", "function"), type=_const("function"), function=_FUNCTION),
        }
    ),
    "tool_choice": _CHOICE,
    "verbosity": {"enum": ["medium", None]},
    "modalities": {"enum": [["text"], None]},
}
"""Of chats."""

_IDS = {"type": "array", "items": {"type": "integer"}, "minItems": 1}

INPUT: dict[str, Any] = {
    "anyOf": [
        _TEXT,
        _IDS,
        {"type": "array", "items": {"anyOf": [_TEXT, _IDS]}, "minItems": 1},
    ]
}
"""What vectors are made of, and what completions go on from: a text, its tokens, several."""

DOCUMENTS: dict[str, Any] = {
    "type": "array",
    "items": {
        "anyOf": [
            _TEXT,
            {"type": "object", "properties": {"text": _TEXT}, "required": ["text"]},
        ]
    },
    "minItems": 1,
}
"""What is put in order."""
