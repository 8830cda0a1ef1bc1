"""Calls of tools as families of models write them: texts, masks, and what is read of them.

Each dialect has a writer here, which knows nothing of `ToolSyntax`: it is written down as the
family's chat template, or the parser that servers have for it, says.
"""

from __future__ import annotations

import ast
import json
import random
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import inside
import pytest
from engine.walks import (
    TINY,
    accepts,
    allowed,
    brute_force_ids,
    examples,
    seeds,
    states_on_the_way,
    walks_within_the_budget,
)
from fakes import FakeModel
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

import structgen
from structgen import OptionError, OutputTypeError, ParseError, ToolCalls, Vocabulary
from structgen.constraint.constraint import Constraint
from structgen.decoding import tool_syntax
from structgen.errors import CompileLimitExceeded
from structgen.types import DIALECTS, ParameterSyntax, ToolSyntax
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
    written = "".join(
        f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{dumped(given)}<｜tool▁call▁end｜>"
        for name, given in calls
    )
    return f"<｜tool▁calls▁begin｜>{written}<｜tool▁calls▁end｜>"


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


def spelt(value: Any) -> str:
    """A value as it stands in XML."""
    return value if isinstance(value, str) else dumped(value)


def deepseek_dsml(calls: Sequence[Made], block: str) -> str:
    written = f"<｜DSML｜{block}>\n"
    for name, arguments in calls:
        written += f'<｜DSML｜invoke name="{name}">\n'
        for key, value in arguments.items():
            is_text = "true" if isinstance(value, str) else "false"
            written += f'<｜DSML｜parameter name="{key}" string="{is_text}">'
            written += spelt(value) + "</｜DSML｜parameter>\n"
        written += "</｜DSML｜invoke>\n"
    return written + f"</｜DSML｜{block}>"


def qwen_coder(calls: Sequence[Made]) -> str:
    written = []
    for name, arguments in calls:
        lines = ["<tool_call>", f"<function={name}>"]
        for key, value in arguments.items():
            lines += [f"<parameter={key}>", spelt(value), "</parameter>"]
        written.append("\n".join([*lines, "</function>", "</tool_call>"]))
    return "\n".join(written)


def glm(calls: Sequence[Made], line: str) -> str:
    written = []
    for name, arguments in calls:
        parts = [f"<tool_call>{name}"]
        for key, value in arguments.items():
            parts += [f"<arg_key>{key}</arg_key>", f"<arg_value>{spelt(value)}</arg_value>"]
        written.append(line.join([*parts, "</tool_call>"]))
    return line.join(written)


def minimax(calls: Sequence[Made]) -> str:
    lines = ["<minimax:tool_call>"]
    for name, arguments in calls:
        lines.append(f'<invoke name="{name}">')
        lines += [f'<parameter name="{k}">{spelt(v)}</parameter>' for k, v in arguments.items()]
        lines.append("</invoke>")
    return "\n".join([*lines, "</minimax:tool_call>"])


def literal(value: Any) -> str:
    """A value as Python writes it, strings in double quotes."""
    if isinstance(value, str):
        told = value.replace("\\", "\\\\").replace('"', '\\"')
        for raw, letter in zip("\n\r\t\b\f", "nrtbf", strict=True):
            told = told.replace(raw, "\\" + letter)
        return '"' + "".join(c if c >= " " else "\\u" + format(ord(c), "04x") for c in told) + '"'
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal(k)}: {literal(v)}" for k, v in value.items()) + "}"
    return repr(value)


def llama_4(calls: Sequence[Made]) -> str:
    written = []
    for name, arguments in calls:
        told = ", ".join(f"{key}={literal(value)}" for key, value in arguments.items())
        written.append(f"{name}({told})")
    text = f"[{', '.join(written)}]"
    for made, node in zip(calls, ast.parse(text).body[0].value.elts, strict=True):  # type: ignore[attr-defined]
        assert {one.arg: ast.literal_eval(one.value) for one in node.keywords} == made.arguments
    return text


WRITERS: dict[str, Callable[[Sequence[Made]], str]] = {
    "hermes": hermes,
    "llama-3": llama_3,
    "phi-4-mini": lambda calls: f"<|tool_call|>{in_a_list(calls)}<|/tool_call|>",
    "mistral-v3": lambda calls: f"[TOOL_CALLS]{in_a_list(calls)}",
    "mistral": mistral,
    "deepseek-v3.1": deepseek_v31,
    "deepseek-v3.2": lambda calls: deepseek_dsml(calls, "function_calls"),
    "deepseek-v4": lambda calls: deepseek_dsml(calls, "tool_calls"),
    "kimi-k2": kimi,
    "qwen3-coder": qwen_coder,
    "glm-4.5": lambda calls: glm(calls, "\n"),
    "glm-4.7": lambda calls: glm(calls, ""),
    "minimax-m2": minimax,
    "llama-4": llama_4,
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

TEXT = st.text(st.characters(codec="utf-8", max_codepoint=0xFFFF), max_size=12) | st.text(
    ',:()[]{}"\\ </tT', max_size=6
)
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
def compiled(dialect: str, first: int = 0, **given: Any) -> Constraint[Any]:
    calls = ToolCalls(TOOLS[first:], syntax=ToolSyntax.named(dialect), **given)
    return structgen.compile(calls, LETTERS)


def told(pieces: Sequence[Any]) -> list[Any]:
    return [one if isinstance(one, str) else Made(one.name, dict(one.arguments)) for one in pieces]


@pytest.mark.parametrize("dialect", WRITERS)
def test_calls_are_written_and_read_as_the_family_does(dialect: str) -> None:
    @examples(6)
    @given(made_calls(dialect), st.integers(1, 9))
    def check(calls: list[Made], size: int) -> None:
        text = WRITERS[dialect](calls)
        constraint = compiled(dialect)
        assert constraint.allows(text), text
        assert told(constraint.output.parse(text)) == calls
        growing = GrowingValue(constraint.output)
        cuts = range(0, len(text), size)
        *_, last = [one for i in cuts if (one := growing.feed(text[i : i + size])) is not None]
        assert told(last.so_far) == calls

    check()


@pytest.mark.parametrize("dialect", ["qwen3-coder", "glm-4.5"])
def test_a_date_in_xml_compiles_within_a_strangers_limit(dialect: str) -> None:
    """The tag, and the look of null, are kept out of texts that may have them alone."""
    when = {"type": "string", "format": "date-time"}
    part = {"after": when, "before": {"anyOf": [when, {"type": "null"}]}}
    form = {"type": "object", "properties": part, "required": ["after", "before"]}
    tool = {"type": "function", "function": {"name": "find", "parameters": form}}
    calls = ToolCalls([tool], syntax=ToolSyntax.named(dialect))
    constraint = structgen.compile(calls, LETTERS, max_work=10_000)
    leap, usual = "2024-02-29T05:29:60+05:30", "2024-02-29T05:29:59Z"
    for values, is_allowed in (
        ((leap, usual), True),
        ((usual, None), True),
        ((leap.replace("29:60", "30:60"), None), False),
        ((None, usual), False),
    ):
        text = WRITERS[dialect]([Made("find", dict(zip(part, values, strict=True)))])
        assert constraint.allows(text) is is_allowed


MODELS = {
    "hermes": "Qwen 2.5 and 3, Hermes",
    "llama-3": "Llama 3",
    "phi-4-mini": "Phi-4-mini",
    "mistral-v3": "Mistral up to 2024",
    "mistral": "Mistral since 2025",
    "deepseek-v3.1": "DeepSeek V3.1",
    "deepseek-v3.2": "DeepSeek V3.2",
    "deepseek-v4": "DeepSeek V4",
    "kimi-k2": "Kimi K2",
    "qwen3-coder": "Qwen3-Coder, Qwen 3.5",
    "glm-4.5": "GLM 4.5 and 4.6",
    "glm-4.7": "GLM 4.7 and 5",
    "minimax-m2": "MiniMax M2",
    "llama-4": "Llama 4",
    "gpt-oss": "gpt-oss",
    "command": "Command R7B, A",
}


def row(dialect: str) -> str:
    """The row of a dialect in the table of docs/sections.md, found out by trying."""
    write, call = WRITERS[dialect], Made("look2", {"a": 1, "ab": 2})
    one, auto = write([call]), compiled(dialect, 1)
    required = compiled(dialect, 1, choice="required")
    two = dialect not in ONE_CALL and auto.allows(write([call, call]))
    alone = compiled(dialect, 1, parallel=False)
    assert alone.allows(one)
    assert not (two and alone.allows(write([call, call])))
    both = "So " + one
    has_both = auto.allows(both) and len(auto.output.parse(both)) == 2
    assert auto.allows(one)
    assert auto.allows("So")
    assert required.allows(one)
    assert not required.allows("So")
    assert Constraint.from_bytes(auto.to_bytes(), LETTERS).allows(one)
    reader = auto.output.growing()
    pieces = [more for letter in one for part, more, _ in reader.feed(letter) if part.tool]
    assert json.loads("".join(pieces)) == call.arguments
    cells = [
        MODELS[dialect],
        f"`{dialect}`",
        "yes" if two else "no",
        "yes",
        "text, calls, text and calls" if has_both else "text or calls",
        "by character" if len(pieces) > 4 else "by argument",
    ]
    return f"| {' | '.join(cells)} |"


def test_the_table_in_the_docs_is_so() -> None:
    assert list(MODELS) == list(WRITERS) == list(DIALECTS)
    docs = Path(__file__).parents[2].joinpath("docs", "sections.md").read_text(encoding="utf-8")
    assert "\n".join(map(row, MODELS)) in docs, "\n".join(map(row, MODELS))


LITERALS = {
    "type": "array",
    "items": {
        "anyOf": [
            {"enum": [True, None, 1, "a", 2.5]},
            {"type": "object", "properties": {"b": {"type": ["boolean", "string"]}}},
            {"type": "array", "items": {"not": {"const": False}}},
        ]
    },
}


def test_values_are_literals_of_python() -> None:
    constraint = structgen.compile(LITERALS, TINY, spelling="python")
    rng = random.Random(0)
    for cursor in states_on_the_way(constraint, rng, len(seeds(10))):
        assert set(allowed(cursor)) == brute_force_ids(constraint, inside.state(cursor), TINY)
    constraint = structgen.compile(LITERALS, LETTERS, spelling="python")
    for value in ([True, None], [{"b": True}, {"b": 'a\n"/'}], [[None, True, 1.5, "é"], {}]):
        assert constraint.allows(literal(value))
        assert ast.literal_eval(literal(value)) == value
    for text in ('[{"b": "\\u00e9😀"}]', '[{"b": "\\u0001"}]'):
        assert constraint.allows(text), text
    pair = '[{"b": "\\ud83d\\ude00"}]'
    assert structgen.compile(LITERALS, LETTERS).allows(pair)
    with pytest.raises(
        OptionError, match="ensure_ascii=True and spelling='python' cannot be combined"
    ):
        structgen.compile(LITERALS, LETTERS, spelling="python", ensure_ascii=True)
    for text in (pair, "[true]", "[[False]]", '["b"]', '[{"b": "\\/"}]', "[null]", "['a']"):
        assert not constraint.allows(text), text


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


TAGS = {
    "deepseek-v3.2": "</｜DSML｜parameter>",
    "deepseek-v4": "</｜DSML｜parameter>",
    "qwen3-coder": "</parameter>",
    "glm-4.5": "</arg_value>",
    "glm-4.7": "</arg_value>",
    "minimax-m2": "</parameter>",
}
"""What closes a value in XML."""


@pytest.mark.parametrize("dialect", TAGS)
def test_strings_end_at_the_closing_tag(dialect: str) -> None:
    constraint, write = compiled(dialect), WRITERS[dialect]
    tag = TAGS[dialect]
    for what in (
        "",
        "\n",
        "\n\n",
        tag[:-1],
        f"<{tag[:-1]}",
        '"null\\n',
        "{",
        "<parameter=n>",
        "</",
    ):
        made = Made("look", {"what": what, "n": 1})
        assert constraint.allows(write([made])), what
        assert told(constraint.output.parse(write([made]))) == [made]
    for what in (tag, f"a{tag}", f"{tag}\n", f"\n{tag}b"):
        assert not constraint.allows(write([Made("look", {"what": what, "n": 1})])), what
    place = {"x": 1, "tags": [f"in JSON {tag} is no end", tag]}
    nested = Made("look", {"what": "a", "n": 1, "place": place, "flags": []})
    assert constraint.allows(write([nested]))
    assert told(constraint.output.parse(write([nested]))) == [nested]


@pytest.mark.parametrize("dialect", ["deepseek-v3.2", "qwen3-coder", "glm-4.7", "llama-4"])
def test_strings_and_other_values_are_told_apart(dialect: str) -> None:
    def both(
        a: int | str,
        b: str | bool | None = None,
        c: Literal["x", 2] | None = None,
        d: list[str] | str = "",
        e: Any = None,
    ) -> None: ...

    constraint = structgen.compile(ToolCalls([both], syntax=ToolSyntax.named(dialect)), LETTERS)
    write = WRITERS[dialect]
    is_said = dialect in ("deepseek-v3.2", "llama-4")
    allowed_: list[dict[str, Any]] = [
        {"a": 1},
        {"a": "one", "b": None, "c": "x", "d": ["a"], "e": [1, {"k": "v"}]},
        {"a": "1.x", "b": True, "c": 2, "d": "a, [b]", "e": "text"},
        {"a": "x", "b": "nulls", "c": None, "d": "", "e": None},
        {"a": 1, "e": {"k": True, "l": [{"m": None}], "n": {"o": False, "p": ": True"}}},
    ]
    for arguments in allowed_:
        text = write([Made("both", arguments)])
        assert constraint.allows(text), text
        (call,) = constraint.output.parse(text)
        assert dict(call.arguments) == arguments
        assert repr(call.arguments["a"]) == repr(arguments["a"])
    for arguments in ({"a": "x", "c": "y"}, {"b": "x"}, {"a": 1, "d": [1]}):
        assert not constraint.allows(write([Made("both", arguments)])), arguments
    # What is no string, where there might be one, is one if nothing says that it is not.
    for arguments in ({"a": None}, {"a": "one", "b": 1}):
        assert constraint.allows(write([Made("both", arguments)])) != is_said
    # A string that looks like what else there might be is barred, if nothing says that it is one.
    for arguments in ({"a": "1 "}, {"a": "x", "d": "[1"}):
        assert constraint.allows(write([Made("both", arguments)])) == is_said
    (call,) = constraint.output.parse(write([Made("both", {"a": "x", "b": "null"})]))
    assert call.arguments["b"] == ("null" if is_said else None)


@pytest.mark.parametrize("dialect", ["qwen3-coder", "minimax-m2", "glm-4.5", "glm-4.7"])
def test_strings_are_barred_only_where_they_look_like_what_may_stand_there(dialect: str) -> None:
    """Of ``Literal["1", "2", None]`` only null could be written: an enum may have no type."""

    def pick(
        a: Literal["1", "true", "[x", None],
        b: Literal["null", "{", 1.5] = "{",
        c: list[int] | str = "",
        d: dict[str, int] | str = "",
    ) -> None: ...

    constraint = structgen.compile(ToolCalls([pick], syntax=ToolSyntax.named(dialect)), LETTERS)
    for a, b, c, d in (
        ("1", "null", "{x", "[x"),
        ("true", "{", "1", "null"),
        ("[x", 1.5, [1], {"k": 1}),
        (None, "{", "{}", "[]"),
    ):
        made = Made("pick", {"a": a, "b": b, "c": c, "d": d})
        text = WRITERS[dialect]([made])
        assert constraint.allows(text), text
        assert told(constraint.output.parse(text)) == [made]
    for barred in ({"a": "2"}, {"a": "1", "c": "[x"}, {"a": "1", "d": "{x"}):
        assert not constraint.allows(WRITERS[dialect]([Made("pick", barred)])), barred


def test_a_value_with_many_closing_tags_in_it_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece of a stream had it parsed up to each tag: 2,000 tags took 17 s."""
    read: list[str] = []

    class Decoder(json.JSONDecoder):
        def raw_decode(self, s: str, idx: int = 0) -> tuple[Any, int]:
            read.append(s)
            return super().raw_decode(s, idx)

    def say(lines: list[str]) -> None: ...

    made = Made("say", {"lines": ["</arg_value>" * 200, "x"]})
    text = WRITERS["glm-4.7"]([made])
    constraint = structgen.compile(ToolCalls([say], syntax=ToolSyntax.named("glm-4.7")), LETTERS)
    growing = cast("Any", constraint.output.growing)()
    monkeypatch.setattr(json, "JSONDecoder", Decoder)
    monkeypatch.setattr(json, "_default_decoder", Decoder())
    pieces = [text[at : at + 12] for at in range(0, len(text), 12)]
    found = [one for piece in pieces for one in growing.feed(piece)]
    assert len(read) <= len(pieces)
    assert json.loads("".join(inside for _, inside, _ in found)) == made.arguments


def wrong(**schema: Any) -> dict[str, Any]:
    return {"name": "go", "parameters": {"type": "object", **schema}}


@pytest.mark.parametrize(
    ("dialect", "parameters", "what"),
    [
        ("qwen3-coder", {"additionalProperties": True}, "additionalProperties"),
        ("glm-4.5", {"properties": {"a": {}}, "anyOf": [{"required": ["a"]}]}, "anyOf"),
        ("minimax-m2", {"properties": {}, "required": ["a"]}, "'a'"),
        ("qwen3-coder", {"properties": {"a>b": {}}}, "'a>b'"),
        ("llama-4", {"properties": {"a-b": {}}}, "'a-b'"),
        ("glm-4.5", {"$ref": "#/$defs/a", "$defs": {"a": {}}, "x-guidance": {}}, "x-guidance"),
        ("qwen3-coder", {"$ref": "#/$defs/a", "$defs": {"a": True}}, r"\$ref"),
        (
            "qwen3-coder",
            {
                "$ref": "#/$defs/a",
                "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
            },
            r"\$ref",
        ),
        ("qwen3-coder", {"$ref": "#/$defs/nope"}, "nope"),
        ("llama-4", {"properties": {"a": {"type": "array", "uniqueItems": True}}}, "uniqueItems"),
    ],
)
def test_what_cannot_be_written_is_refused(
    dialect: str, parameters: dict[str, Any], what: str
) -> None:
    calls = ToolCalls([wrong(**parameters)], syntax=ToolSyntax.named(dialect))
    with pytest.raises(OutputTypeError, match=what) as raised:
        structgen.compile(calls, LETTERS)
    assert what in ("uniqueItems", "nope") or "The tool go" in str(raised.value)


def test_arguments_may_be_described_elsewhere() -> None:
    class Tree(BaseModel):
        name: str
        below: list[Tree] = []

    constraint = structgen.compile(
        ToolCalls([Tree], syntax=ToolSyntax.named("qwen3-coder")), LETTERS
    )
    given = {"name": "a/b", "below": [{"name": "c", "below": [{"name": "d"}]}]}
    text = qwen_coder([Made("Tree", given)])
    assert constraint.allows(text)
    assert constraint.output.parse(text)[0]() == Tree.model_validate(given)
    assert not constraint.allows(text.replace('"d"', "4"))


@pytest.mark.parametrize("draft", ["04", "07"])
def test_references_lead_anywhere_in_any_draft(draft: str) -> None:
    leaf = {"type": "object", "properties": {"n": {"$ref": "#/definitions/leaf"}}}
    properties = {
        "a": {"anyOf": [{"type": "string"}, {"$ref": "#leaf"}]},
        "b/~%": {"$ref": "#/properties/a"},
    }
    go = tool("go", properties, ["a"])
    go["parameters"]["$schema"] = f"http://json-schema.org/draft-{draft}/schema#"
    leaf |= {"id" if draft == "04" else "$id": "#leaf", "additionalProperties": False}
    go["parameters"]["definitions"] = {"leaf": leaf}
    constraint = structgen.compile(ToolCalls([go], syntax=ToolSyntax.named("qwen3-coder")), LETTERS)
    for value in ("text", {}, {"n": {"n": {}}}):
        assert constraint.allows(qwen_coder([Made("go", {"a": value, "b/~%": value})]))
    for value in ({"n": 1}, {"m": {}}):
        assert not constraint.allows(qwen_coder([Made("go", {"a": "", "b/~%": value})]))


@pytest.mark.parametrize(
    ("draft", "part", "allowed", "refused"),
    [
        ("2019-09/schema", {"type": "array", "items": {"$recursiveRef": "#"}}, [{"a": []}], [[]]),
        ("2020-12/schema", {"type": "array", "items": {"$dynamicRef": "#"}}, [{"a": []}], [[]]),
        ("2020-12/schema", {"type": "array", "items": {"$dynamicRef": "#n"}}, [3], [[]]),
        ("2019-09/schema", {"type": ["array", "string"], "prefixItems": [{"const": 1}]}, [2], "["),
    ],
)
def test_arguments_keep_the_draft_and_references_of_their_tool(
    draft: str, part: Any, allowed: Any, refused: Any
) -> None:
    go = tool("go", {"a": part}, ["a"])
    go["parameters"]["$schema"] = f"https://json-schema.org/draft/{draft}"
    go["parameters"]["$defs"] = {"n": {"$dynamicAnchor": "n", "type": "integer"}}
    constraint = structgen.compile(ToolCalls([go], syntax=ToolSyntax.named("qwen3-coder")), LETTERS)
    assert constraint.allows(qwen_coder([Made("go", {"a": allowed})]))
    assert not constraint.allows(qwen_coder([Made("go", {"a": refused})]))


def test_calls_stream_argument_by_argument() -> None:
    given = {"what": "a\nb", "n": 3, "on": True, "place": {"x": 0.5, "tags": ["</parameter>"]}}
    text = "So: " + qwen_coder([Made("look", given), Made("look2", {"ab": 2})])
    reader = compiled("qwen3-coder").output.growing()
    pieces: dict[Any, list[str]] = {}
    for letter in text:
        for part, more, _ in reader.feed(letter):
            pieces.setdefault((part.step, part.tool), []).append(more)
    assert "".join(pieces[0, None]) == "So: "
    assert pieces[1, "look"][:3] == ["{", '"what": "a\\nb"', ', "n": 3']
    assert json.loads("".join(pieces[1, "look"])) == given
    assert json.loads("".join(pieces[2, "look2"])) == {"ab": 2}


def test_python_literals_stream_with_marks_in_strings() -> None:
    def note(text: str, tags: list[str], sure: bool | None = None) -> None: ...

    first = r'note(text="a, b) \" True", tags=["[x, y", "\\", ")]"], sure=True)'
    text = f'[{first}, note(text=",", tags=[])]'
    output = structgen.compile(
        ToolCalls([note], syntax=ToolSyntax.named("llama-4")), LETTERS
    ).output
    assert told(output.parse(text)) == [
        Made("note", {"text": 'a, b) " True', "tags": ["[x, y", "\\", ")]"], "sure": True}),
        Made("note", {"text": ",", "tags": []}),
    ]
    for size in range(1, 9):
        assert output.growing is not None
        reader, pieces = output.growing(), dict[int, str]()
        for i in range(0, len(text), size):
            for part, more, _ in reader.feed(text[i : i + size]):
                pieces[part.step] = pieces.get(part.step, "") + more
        assert [json.loads(one) for one in pieces.values()] == [
            {"text": 'a, b) " True', "tags": ["[x, y", "\\", ")]"], "sure": True},
            {"text": ",", "tags": []},
        ]


def add(a: int, b: str | None = None, c: Literal["x", "y<"] = "x") -> None: ...


MASKS = {
    "qwen3-coder": ToolCalls([add], syntax=ToolSyntax.named("qwen3-coder"), choice="required"),
    "qwen3-coder with text": ToolCalls([add], syntax=ToolSyntax.named("qwen3-coder")),
    "llama-4": ToolCalls([add], syntax=ToolSyntax.named("llama-4")),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks_equal_brute_force(name: str) -> None:
    constraint = structgen.compile(MASKS[name], TINY)
    rng = random.Random(name)
    for cursor in states_on_the_way(constraint, rng, len(seeds(8)), special=0.7):
        assert set(allowed(cursor)) == brute_force_ids(constraint, inside.state(cursor), TINY)
    write = WRITERS[name.partition(" ")[0]]
    text = write([Made("add", {"a": 1, "b": "x\n<", "c": "y<"})])
    cursor = constraint.start()
    for token in TINY.encode_bytes(text.encode()):
        assert set(allowed(cursor)) == brute_force_ids(constraint, inside.state(cursor), TINY)
        cursor.accept(token)
    assert cursor.is_accepting


@pytest.mark.parametrize("name", MASKS)
def test_walks_parse_and_keep_to_the_budget(name: str) -> None:
    constraint = structgen.compile(MASKS[name], TINY)
    rng = random.Random(name)
    for result in walks_within_the_budget(constraint, rng, 3):
        assert accepts(constraint, result.text, rng), result.text
        constraint.output.parse(result.text)


SPECIAL = {
    "kimi-k2": [
        "<|tool_calls_section_begin|>",
        "<|tool_call_begin|>",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
        "<|tool_calls_section_end|>",
    ],
    "deepseek-v3.2": ["｜DSML｜"],
    "gpt-oss": ["<|channel|>", "<|constrain|>", "<|message|>"],
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
    given = [Made("look2", {"ab": 2}), Made("look", {"what": "", "kind": "a", "n": 1})]
    given = given[: 1 if dialect in ONE_CALL else 2]
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
    "｜DSML｜": "deepseek-v3.2",
    "<arg_key>": "glm-4.5",
    "<minimax:tool_call>": "minimax-m2",
}


@pytest.mark.parametrize("name", TOKENS_OF)
def test_a_token_of_the_vocabulary_tells_the_family(name: str) -> None:
    fake = FakeModel()
    fake.vocabulary = with_tokens([name])
    assert tool_syntax(fake) == ToolSyntax.named(TOKENS_OF[name])


def test_earlier_calls_are_written_though_they_are_no_objects() -> None:
    syntax = ToolSyntax.named("qwen3-coder")
    for arguments in ("{", "[1]", "null", ""):
        assert f"<function=look>{arguments}\n</function>" in syntax.example("look", arguments)
    calls = [("look", '{"what": "a", "n": 1}'), ("stop.now", "{}")]
    assert syntax.written(calls) == qwen_coder([Made(name, json.loads(a)) for name, a in calls])


def test_what_closes_a_value_has_to_be_there() -> None:
    for texts in (("<a>", "", "</a>"), ("<a>", "=", "\n")):
        with pytest.raises(
            OutputTypeError, match="between= must not be empty, and for XML, after="
        ):
            ParameterSyntax(*texts)


def test_there_is_no_other_name() -> None:
    with pytest.raises(OutputTypeError, match="no tool syntax None"):
        ToolSyntax.named(None)  # type: ignore[arg-type]
    with pytest.raises(OutputTypeError, match=r"no tool syntax 'kimi-k3'\. Did you mean 'kimi-k2'"):
        ToolSyntax.named("kimi-k3")


def test_what_each_parameter_refers_to_is_counted_for_each() -> None:
    """1,500 of 89 kB together took 95 s, which no limit counted."""
    inner = {f"q{i}": {"type": "string"} for i in range(100)}
    schema = {
        "type": "object",
        "properties": {f"p{i}": {"$ref": "#/$defs/a"} for i in range(50)},
        "$defs": {"a": {"type": "object", "properties": inner}},
    }
    syntax = ToolSyntax.named("qwen3-coder")
    calls = ToolCalls([{"name": "look", "parameters": schema}], syntax=syntax)
    vocabulary = FakeModel().vocabulary
    assert structgen.compile(calls, vocabulary, max_work=30_000)
    with pytest.raises(CompileLimitExceeded, match="write fewer subschemas"):
        structgen.compile(calls, vocabulary, max_work=5_000)
