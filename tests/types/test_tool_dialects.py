"""Calls of tools as families of models write them: texts, masks, and what is read of them.

Each dialect has a writer here, which knows nothing of `ToolSyntax`: it is written down as the
family's chat template, or the parser that servers have for it, says.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import pytest
from engine.walks import TINY, allowed, examples
from fakes import FakeModel
from hypothesis import given
from hypothesis import strategies as st

import structgen
from structgen import OutputTypeError, ParseError, ToolCalls, Vocabulary
from structgen.constraint.constraint import Constraint
from structgen.decoding import tool_syntax
from structgen.types import ToolSyntax
from structgen.values import GrowingValue

LETTERS = Vocabulary.from_tokens([bytes([b]) for b in range(256)] + [b""], eos_token_ids=[256])


class Made(NamedTuple):
    """A call, as a writer wants it."""

    name: str
    arguments: dict[str, Any]


def dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def hermes(calls: Sequence[Made]) -> str:
    return "\n".join(
        f"<tool_call>\n{dumped({'name': name, 'arguments': given})}\n</tool_call>"
        for name, given in calls
    )


def llama_3(calls: Sequence[Made]) -> str:
    ((name, given),) = calls
    return dumped({"name": name, "parameters": given})


def in_a_list(calls: Sequence[Made]) -> str:
    return dumped([{"name": name, "arguments": given} for name, given in calls])


def mistral(calls: Sequence[Made]) -> str:
    return "".join(f"[TOOL_CALLS]{name}[ARGS]{dumped(given)}" for name, given in calls)


def deepseek_v31(calls: Sequence[Made]) -> str:
    inside = "".join(
        f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{dumped(given)}<｜tool▁call▁end｜>"
        for name, given in calls
    )
    return f"<｜tool▁calls▁begin｜>{inside}<｜tool▁calls▁end｜>"


def kimi(calls: Sequence[Made]) -> str:
    written = "<|tool_calls_section_begin|>"
    for number, (name, arguments) in enumerate(calls, 3):  # there were three before
        written += f"<|tool_call_begin|>functions.{name}:{number}<|tool_call_argument_begin|>"
        written += dumped(arguments) + "<|tool_call_end|>"
    return written + "<|tool_calls_section_end|>"


def harmony(calls: Sequence[Made]) -> str:
    ((name, given),) = calls
    head = f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"
    return head + dumped(given)


def command(calls: Sequence[Made]) -> str:
    listed = [
        "    " + dumped({"tool_call_id": str(i), "tool_name": name, "parameters": given})
        for i, (name, given) in enumerate(calls)
    ]
    return "<|START_ACTION|>[\n" + ",\n".join(listed) + "\n]<|END_ACTION|>"


WRITERS: dict[str, Callable[[Sequence[Made]], str]] = {
    "hermes": hermes,
    "llama-3": llama_3,
    "phi-4-mini": lambda calls: f"<|tool_call|>{in_a_list(calls)}<|/tool_call|>",
    "mistral-v3": lambda calls: f"[TOOL_CALLS]{in_a_list(calls)}",
    "mistral": mistral,
    "deepseek-v3.1": deepseek_v31,
    "kimi-k2": kimi,
    "gpt-oss": harmony,
    "command": command,
}
ONE_CALL = ("llama-3", "gpt-oss")
"""In which there is one call in an answer."""


def tool(name: str, properties: dict[str, Any], required: Sequence[str]) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"name": name, "parameters": {**schema, "additionalProperties": False}}


PLACE = {
    "type": "object",
    "properties": {"x": {"type": "number"}, "tags": {"type": "array", "items": {"type": "string"}}},
    "required": ["x"],
    "additionalProperties": False,
}
TOOLS = [
    tool(
        "look",
        {
            "what": {"type": "string"},
            "code": {"type": "string", "pattern": "^[a-z]{2,5}$"},
            "kind": {"enum": ["a", "b c", "<d>", ""]},
            "short": {"type": "string", "minLength": 1, "maxLength": 4},
            "n": {"type": "integer"},
            "on": {"type": "boolean"},
            "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "place": {"$ref": "#/$defs/place"},
            "flags": {"type": "array", "items": {"type": "boolean"}},
        },
        ["what", "n"],
    ),
    tool("look2", {"a": {"type": "integer"}, "ab": {"type": "integer"}}, ["ab"]),
    tool("stop.now", {}, []),
]
TOOLS[0]["parameters"]["$defs"] = {"place": PLACE}

TEXT = st.text(st.characters(codec="utf-8", max_codepoint=0xFFFF), max_size=12)
GIVEN = {
    "what": TEXT,
    "code": st.from_regex("[a-z]{2,5}", fullmatch=True),
    "kind": st.sampled_from(["a", "b c", "<d>", ""]),
    "short": st.text("ab\n <\"'\\é", min_size=1, max_size=4),
    "n": st.integers(-1000, 10**9),
    "on": st.booleans(),
    "maybe": st.none() | TEXT.filter(lambda text: text.strip(" \t\n\r") != "null"),
    "place": st.builds(
        lambda x, tags: {"x": x} if tags is None else {"x": x, "tags": tags},
        st.integers(-9, 9) | st.sampled_from([0.5, -12.25]),
        st.none() | st.lists(TEXT, max_size=2),
    ),
    "flags": st.lists(st.booleans(), max_size=3),
}


@st.composite
def made_calls(draw: st.DrawFn, dialect: str) -> list[Made]:
    def one() -> Made:
        chosen = draw(st.sampled_from(TOOLS))
        names = chosen["parameters"]["properties"]
        required = chosen["parameters"]["required"]
        given = [name for name in names if name in required or draw(st.booleans())]
        values = {name: draw(GIVEN.get(name, st.integers(0, 99))) for name in given}
        return Made(chosen["name"], values)

    return [one() for _ in range(1 if dialect in ONE_CALL else draw(st.integers(1, 3)))]


@cache
def compiled(dialect: str, **given: Any) -> Constraint[Any]:
    calls = ToolCalls(TOOLS, syntax=ToolSyntax.named(dialect), **given)
    return structgen.compile(calls, LETTERS)


def told(pieces: Sequence[Any]) -> list[Any]:
    return [one if isinstance(one, str) else Made(one.name, dict(one.arguments)) for one in pieces]


@pytest.mark.parametrize("dialect", WRITERS)
def test_calls_are_written_and_read_as_the_family_does(dialect: str) -> None:
    @examples(12)
    @given(made_calls(dialect))
    def check(calls: list[Made]) -> None:
        text = WRITERS[dialect](calls)
        constraint = compiled(dialect)
        assert constraint.allows(text), text
        assert compiled(dialect, choice="required").allows(text)
        assert told(constraint.output.parse(text)) == calls
        assert compiled(dialect, parallel=False).allows(text) == (len(calls) == 1)
        growing = GrowingValue(constraint.output)
        cuts = range(0, len(text), 7)
        *_, last = [one for i in cuts if (one := growing.feed(text[i : i + 7])) is not None]
        assert told(last.so_far) == calls

    check()


def test_every_dialect_is_tested() -> None:
    from structgen.types.tool_calls import DIALECTS

    assert list(WRITERS) == list(DIALECTS)
    for name, syntax in DIALECTS.items():
        assert (syntax.again is None) == (name in ONE_CALL)


@pytest.mark.parametrize("dialect", WRITERS)
def test_other_texts_are_no_calls(dialect: str) -> None:
    write = WRITERS[dialect]
    constraint = compiled(dialect, choice="required")
    call = Made("look2", {"a": 1, "ab": 2})
    whole = write([call])
    for text in (
        write([Made("look3", call.arguments)]),
        write([Made("look2", {"a": 1})]),
        write([Made("look2", {"ab": "x"})]),
        write([Made("look2", {"ab": 1, "c": 2})]),
        write([Made("look", {"what": "x", "n": 1, "code": "toolong"})]),
        write([Made("look", {"what": "x", "n": 1, "kind": "c"})]),
        whole + "!",
        whole[:-1],
        whole[1:],
        whole.replace("look2", "look", 1),
        "So: " + whole,
    ):
        assert not constraint.allows(text), text
    for text in (whole[:-1], write([Made("look3", {"ab": 2})])):
        with pytest.raises(ParseError):
            constraint.output.parse(text)


@pytest.mark.parametrize("dialect", WRITERS)
def test_text_may_stand_before_calls(dialect: str) -> None:
    call = Made("look2", {"ab": 2})
    text = "So [or] <x>: " + WRITERS[dialect]([call])
    constraint = compiled(dialect)
    if ToolSyntax.named(dialect).marker:
        assert constraint.allows(text)
        assert told(constraint.output.parse(text)) == ["So [or] <x>: ", call]
    else:  # calls stand at the start, or nowhere
        assert told(constraint.output.parse(text)) == [text]


SPECIAL = {
    "phi-4-mini": ["<|tool_call|>", "<|/tool_call|>"],
    "mistral": ["[TOOL_CALLS]", "[ARGS]"],
    "deepseek-v3.1": [
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
    ],
    "kimi-k2": [
        "<|tool_calls_section_begin|>",
        "<|tool_call_begin|>",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        "<|tool_calls_section_end|>",
    ],
    "gpt-oss": ["<|channel|>", "<|constrain|>", "<|message|>"],
    "command": ["<|START_ACTION|>", "<|END_ACTION|>"],
}
"""The control tokens of vocabularies."""


def with_tokens(names: Sequence[str]) -> Vocabulary:
    """TINY, and control tokens of these names."""
    ids = {name: TINY.size + i for i, name in enumerate(names)}
    return Vocabulary.from_tokens(
        [*TINY.tokens, *[b""] * len(names)],
        TINY.eos_token_ids,
        special_token_ids=[*TINY.special_token_ids, *ids.values()],
        named_tokens=ids,
    )


@pytest.mark.parametrize("dialect", SPECIAL)
def test_control_tokens_are_those_tokens(dialect: str) -> None:
    vocabulary = with_tokens(SPECIAL[dialect])
    calls = ToolCalls(TOOLS, syntax=ToolSyntax.named(dialect))
    constraint = structgen.compile(calls, vocabulary)
    given = [Made("look2", {"ab": 2})] * (1 if dialect in ONE_CALL else 2)
    text = "Hm " + WRITERS[dialect](given)
    assert told(constraint.output.parse(text)) == ["Hm ", *given]
    cursor = constraint.start()
    rest = text
    while rest:
        name = next((name for name in SPECIAL[dialect] if rest.startswith(name)), None)
        token = (
            vocabulary.named_tokens[name] if name else vocabulary.encode_bytes(rest[0].encode())[0]
        )
        assert token in allowed(cursor, vocabulary), rest
        cursor.accept(token)
        rest = rest[len(name or rest[0]) :]
    assert cursor.is_accepting


TOKENS_OF = {
    "<|tool_call|>": "phi-4-mini",
    "[TOOL_CALLS]": "mistral-v3",
    "<tool_call>": "hermes",
    "<|python_tag|>": "llama-3",
    "<|tool_call_argument_begin|>": "kimi-k2",
    "<|constrain|>": "gpt-oss",
    "<|START_ACTION|>": "command",
}


@pytest.mark.parametrize("name", TOKENS_OF)
def test_a_token_of_the_vocabulary_tells_the_family(name: str) -> None:
    fake = FakeModel()
    fake.vocabulary = with_tokens([name])
    assert tool_syntax(fake) == ToolSyntax.named(TOKENS_OF[name])


def test_there_is_no_other_name() -> None:
    with pytest.raises(OutputTypeError, match=r"no tool syntax 'kimi-k3'\. Did you mean 'kimi-k2'"):
        ToolSyntax.named("kimi-k3")
