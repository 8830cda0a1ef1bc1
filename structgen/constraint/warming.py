"""What the first constraints of a process would otherwise wait for, done beforehand.

Owns one schema and one text that together touch every kind of walk whose tables depend on the
vocabulary alone, and the formats that schemas ask for most. Knows the engine from outside.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from structgen.errors import VocabularyError
from structgen.grammar.formats import format_regex
from structgen.types import Cfg, JsonSchema
from structgen.vocabulary import Vocabulary

from .constraint import Constraint
from .constraint import compile as compile_constraint

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "short": {"type": "string", "maxLength": 40},
        "words": {"type": "string", "pattern": r"^(\S+\s+){0,40}\S+$", "maxLength": 300},
        "name": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
        "date": {"type": "string", "format": "date"},
        "time": {"type": "string", "format": "date-time"},
        "link": {"type": "string", "format": "uri"},
        "mail": {"type": "string", "format": "email"},
        "kind": {"enum": ["one", "two"]},
        "number": {"type": "number"},
        "count": {"type": "integer", "minimum": 0},
        "list": {"type": "array", "items": {"type": "boolean"}},
    },
}
_TEXT: dict[str, Any] = {
    "text": 'a "word" é',
    "short": "abc",
    "words": "so many words",
    "name": "x_1",
    "date": "2026-11-21",
    "time": "2026-11-21T12:30:00Z",
    "link": "https://a.example/b?c#d",
    "mail": "someone@mail.example",
    "kind": "two",
    "number": -12.5,
    "count": 10,
    "list": [True, False],
    "more": {"any": [None, {}]},
}

_SPELT = {key: _TEXT[key] for key in ("time", "link", "mail")}
"""What is written character by character as well: formats whose walks are slow, and differ from one
place to the next, but are the same in all schemas."""

_FORMATS = (
    "date",
    "date-time",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "json-pointer",
    "time",
    "uri",
    "uri-reference",
    "uuid",
)
"""Formats whose expressions take half a millisecond to some milliseconds, once a process."""


def warm_up(vocabulary: Vocabulary, *, grammars: bool = False) -> None:
    """Make the tables that masks over ``vocabulary`` have in common.

    They are made, or read from the user's cache folder, when they are first needed: the first
    constraint of a process waits for them. A server calls this when it starts.

    Args:
        vocabulary: the model's vocabulary.
        grammars: prepare for `Cfg` as well.

    Cost: 0.1 to 0.2 s at 128k tokens, and as much again for grammars; nothing to speak of the
    second time.

    Raises:
        VocabularyError: ``vocabulary`` is something else.
    """
    if not isinstance(vocabulary, Vocabulary):
        raise VocabularyError(
            f"warm_up takes a Vocabulary, got {type(vocabulary).__name__}: that of a model is "
            "model.vocabulary, that of a constraint is constraint.vocabulary."
        )
    if grammars:
        # One that was compiled before, in whatever process, does without Lark.
        import lark

        lark.Lark('start: "a"', parser=None, lexer="basic")
        constraint = compile_constraint(Cfg('start: "a" start?', dialect="lark"), vocabulary)
        _walk(constraint, vocabulary.encode_bytes(b"aa"))
    for name in _FORMATS:
        format_regex(name)
    constraint = compile_constraint(JsonSchema(_SCHEMA), vocabulary)
    compact = (",", ":")
    spelt = json.dumps(_SPELT, separators=compact).encode()
    for separators in (compact, None):  # models write either
        text = json.dumps(_TEXT, separators=separators, ensure_ascii=False)
        _walk(constraint, vocabulary.encode_bytes(text.encode()))
    _walk(
        constraint,
        [token for byte in spelt for token in vocabulary.encode_bytes(bytes([byte]))],
    )


def _walk(constraint: Constraint, tokens: list[int]) -> None:
    """Make all masks on the way through ``tokens``."""
    cursor = constraint.start()
    out = np.zeros((constraint.vocabulary.size + 31) // 32, np.uint32)
    for token in tokens:
        cursor.fill_mask(out)
        cursor.accept(token)
    cursor.fill_mask(out)
