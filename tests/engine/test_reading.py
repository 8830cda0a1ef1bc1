"""Reading a token at once leads where reading it byte by byte does, to the very same state."""

from __future__ import annotations

import json
import random
from typing import Any

import inside
import pytest

import structgen
from engine.walks import TINY
from structgen import JsonSchema
from structgen.automaton.core.frames import TextHistory
from structgen.automaton.core.machine import Machine
from structgen.automaton.core.stacks import DEAD

TEXT = {"type": "string"}
OPEN = {"type": "object", "additionalProperties": TEXT}
CASES: list[tuple[dict[str, Any], list[Any]]] = [
    (
        {
            "properties": {"name": TEXT, "nam": {"type": "integer"}, "ñ\n": {"maxLength": 3}},
            "additionalProperties": False,
        },
        [{"name": 'a "b" ñ\n', "nam": -132, "ñ\n": "äöü"}, {}, {"name": ""}],
    ),
    (
        {
            "type": "object",
            "patternProperties": {"^a": {"type": "number"}, "b$": {"maximum": 100}},
            "required": ["ab"],
        },
        [{"ab": 12, "a": 1.5, "x": [1, {"y": None}]}],
    ),
    (OPEN, [{"": "", "kind": "what is this", "k\u2028": "\U0001f600"}]),
    ({"type": "array", "items": {"type": "number"}}, [[], [1, 20.5, -3], [0]]),
    ({"type": "array", "uniqueItems": True, "items": TEXT}, [["red", "re", "blue"], [""]]),
    (
        {"anyOf": [TEXT, {"type": "integer"}, {"type": "array", "items": {"$ref": "#"}}, OPEN]},
        ["x", 120, [["a"], [], 3, {"a": "b"}]],
    ),
    (
        {"anyOf": [{"enum": ["red", "reddish", 5]}, {"pattern": "^re+d?$", "type": "string"}]},
        ["red", "reddish", "ree", 5],
    ),
]


def _at_once(machine: Machine, state: int, data: bytes, before: bytes) -> int:
    done = 0
    while done < len(data) and state != DEAD:
        state, done = machine.read(state, data, done)
        if state in machine.pending:
            state = machine.resolve(state, TextHistory().after(before + data[:done]))
    return state


def _by_byte(machine: Machine, state: int, data: bytes, before: bytes) -> int:
    for i, byte in enumerate(data):
        state = machine.step(state, byte)
        if machine.is_pending(state):
            state = machine.resolve(state, TextHistory().after(before + data[: i + 1]))
    return state


@pytest.mark.parametrize("whitespace", ["compact", "spaced", "flexible"])
@pytest.mark.parametrize(("schema", "values"), CASES)
def test_a_token_is_read_as_its_bytes_are(
    schema: dict[str, Any], values: list[Any], whitespace: Any
) -> None:
    rng = random.Random(1)
    separators = (",", ":") if whitespace == "compact" else (", ", ": ")
    for value in values:
        text = json.dumps(value, ensure_ascii=False, separators=separators).encode()
        for _ in range(25):
            machine = inside.machine(
                structgen.compile(JsonSchema(schema), TINY, whitespace=whitespace)
            )
            assert isinstance(machine, Machine)
            state, at = machine.start, 0
            while at < len(text):
                token = text[at : at + rng.randint(1, 12)]
                if rng.random() < 0.2:  # something else, which is hardly ever allowed
                    wrong = token[:-1] + bytes([rng.choice(b'"\\ ,:]}09ex')])
                    read = _at_once(machine, state, wrong, text[:at])
                    assert read == _by_byte(machine, state, wrong, text[:at])
                read = _at_once(machine, state, token, text[:at])
                assert read == _by_byte(machine, state, token, text[:at])
                assert read != DEAD
                state, at = read, at + len(token)
            assert machine.is_accepting(state)


LOOPS: list[tuple[dict[str, Any], bytes, bool]] = [
    (TEXT, b'"a b', True),
    (OPEN, b'{"kind": "wh', True),
    (OPEN, b'{"ki', True),
    ({"type": "string", "minLength": 2}, b'"abc', True),
    ({"type": "string", "minLength": 9}, b'"abc', False),
    ({"type": "string", "maxLength": 9}, b'"abc', False),
    ({"type": "string", "pattern": "^[a-z ]*$"}, b'"abc', False),
    ({"type": "string", "pattern": "foo"}, b'"abc', False),
    ({"type": "string", "pattern": "foo"}, b'"a foo', True),
    ({"enum": ["aaaaaaaaaaaa"]}, b'"aaa', False),
    ({"properties": {"aaaaaaaaa": {}}, "additionalProperties": False}, b'{"aaa', False),
]


@pytest.mark.parametrize(("schema", "before", "loops"), LOOPS)
def test_plain_text_leads_from_a_loop_back_to_it(
    schema: dict[str, Any], before: bytes, loops: bool
) -> None:
    machine = inside.machine(structgen.compile(JsonSchema(schema), TINY))
    state = _at_once(machine, machine.start, before, b"")
    for text in (b"a", b"a", b"aaa"):
        _at_once(machine, state, text, before)
    assert (state in machine.loops) == loops
    for loop in machine.loops:
        assert all(machine.step(loop, byte) == loop for byte in b" !#09AZ[]az~")
