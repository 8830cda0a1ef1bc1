"""Text with holes: what is allowed, how a text is divided, what is refused."""

from __future__ import annotations

import copy
import itertools
import pickle
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

import inside
import msgspec
import pytest
from byte_walks import BYTES, walk
from engine.walks import TINY, allowed, brute_force_ids, states_on_the_way, walks_within_the_budget
from pydantic import AfterValidator, BaseModel, Field

import structgen
from structgen import Cfg, Choice, JsonSchema, Regex, Template, Text
from structgen.automaton import build
from structgen.errors import OutputTypeError, ParseError
from structgen.types import lower
from structgen.types.joined import Division
from structgen.types.regexes import TextPattern


class Person(BaseModel):
    name: str
    tags: list[int] = []


BRACKETS = Cfg('start: "(" start? ")" | /[ab]+/')
PLAIN = Cfg('start: /a+/ "b"?')


@dataclass
class Point:
    x: int
    y: float


class Shape(msgspec.Struct, tag=True):
    size: int


UNIQUE = JsonSchema({"type": "array", "uniqueItems": True, "items": {"enum": [1, 12, 2]}})

TEMPLATES = [
    Template("Name: {name}\nAge: {age}", name=Regex("[A-Z][a-z]*"), age=int),
    Template("{a}{b}{c}", a=Regex("[ab]*"), b=Regex("b*"), c=Regex("[bc]*")),
    Template("<{p}> {{x}} {q}{r}", p=Person, q=Point, r=Shape),
    Template("{n}{m}", n=int, m=float),
    Template("{text} ({when}, {kind})", text=str, when=date, kind=Literal["x", "y"]),
    Template("{u}{v}", u=UNIQUE, v=UNIQUE),
    Template("{inner}!{outer}", inner=Template("[{x}]", x=int), outer=bool),
    Template("{a} {b}", a=int | None, b=Annotated[str, Field(max_length=3)]),
    Template("no holes: {{}}"),
    Template(""),
    Template("x{g}y{n}", g=BRACKETS, n=int),
    Template("{g}{h}", g=PLAIN, h=Cfg('start: "b"* "a"')),
    Template("{g}, {t}!", g=BRACKETS, t=Template("{c}{d}", c=PLAIN, d=BRACKETS)),
    Template("{t}|{n}", t=structgen.Tagged("<n>", int, "</n>"), n=int),
    Template("{s} is {c}", s=structgen.types.sentence, c=structgen.types.country_code),
]


@pytest.mark.parametrize("template", TEMPLATES, ids=repr)
def test_what_masks_allow_parses_to_values_by_name(template: Template) -> None:
    constraint = structgen.compile(template, BYTES)
    lowered = lower(template)
    for seed in range(12):
        value = lowered.parse(walk(constraint, seed, (15, 40, 80)[seed % 3]))
        assert list(value) == list(template.holes)


def test_values() -> None:
    template = Template("<{p}> {q}|{when}", p=Person, q=Point, when=date)
    text = '<{"name":"> {","tags":[1]}> {"x":1,"y":2.5}|2024-02-29'
    assert structgen.compile(template, BYTES).allows(text)
    assert lower(template).parse(text) == {
        "p": Person(name="> {", tags=[1]),
        "q": Point(1, 2.5),
        "when": date(2024, 2, 29),
    }
    assert lower(Template("{{{a}}}", a=int)).parse("{5}") == {"a": 5}


@pytest.mark.parametrize(
    "output_type",
    [
        *TEMPLATES[:4],
        *TEMPLATES[9:13],
        Text("[") + BRACKETS + "]" + list[int],
        Text("ab") + int + "b" + Regex("b*"),
        Regex("a*") + (int | None) + Choice(["1", "12"]),
        Template("{a}1", a=int) | Regex("x+"),
    ],
    ids=repr,
)
def test_masks_are_those_of_every_token_tried(output_type: Any) -> None:
    constraint = structgen.compile(output_type, TINY)
    for cursor in states_on_the_way(constraint, random.Random(2), 30):
        assert set(allowed(cursor)) == brute_force_ids(constraint, inside.state(cursor), TINY)


EMPTY = [
    Template("{a}{b}b", a=Regex("<?a"), b=Regex("")),
    Template("{a}{b}{c}b", a=Regex("a|<"), b=Regex("<*"), c=Regex("(ab)?")),
    Template("a{t}b", t=Template("{x}{y}", x=Regex("<*"), y=Cfg('start: "a"* | "<b"'))),
    Template("{a}{b}{c}", a=Cfg('start: "ab"*'), b=Regex("a?"), c=Cfg('start: "b"*')),
    structgen.Tagged("<", Template("{x}{y}", x=Regex("a?"), y=Regex("b*")), "<", at_least=1),
]
"""Types with parts that may be empty, between others that one token may span."""


@pytest.mark.parametrize("output_type", EMPTY, ids=repr)
def test_tokens_that_span_empty_parts(output_type: Any) -> None:
    """Against reading every token byte by byte, after every text of a few letters."""
    tokens = [
        "".join(drawn).encode() for n in (1, 2, 3) for drawn in itertools.product("ab<", repeat=n)
    ]
    vocabulary = structgen.Vocabulary([*tokens, b""], eos_token_ids=[len(tokens)])
    constraint = structgen.compile(output_type, vocabulary)
    waiting: list[tuple[int, ...]] = [()]
    for written in waiting:
        cursor = constraint.start()
        for letter in written:
            cursor.accept(letter)
        found = set(allowed(cursor, vocabulary))
        assert found == brute_force_ids(constraint, inside.state(cursor), vocabulary), written
        if len(written) < 4:
            waiting += [(*written, letter) for letter in range(3) if letter in found]


@pytest.mark.parametrize("template", [TEMPLATES[0], TEMPLATES[2], TEMPLATES[6]], ids=repr)
def test_budgets_are_kept(template: Template) -> None:
    constraint = structgen.compile(template, TINY)
    for found in walks_within_the_budget(constraint, random.Random(3), 8):
        lower(template).parse(found.text)


@pytest.mark.parametrize(
    "parts",
    [
        (BRACKETS, Regex("[ab]*")),
        (PLAIN, Cfg('start: "b"* "a"')),
        (int, BRACKETS),
        (PLAIN, Template("{x}{y}", x=BRACKETS, y=Regex("a?"))),
    ],
)
def test_what_is_allowed_is_one_text_after_the_other(parts: tuple[Any, Any]) -> None:
    """Against every way to cut a text in two."""
    whole = structgen.compile(Template("{a}{b}", a=parts[0], b=parts[1]), BYTES)
    first, second = (structgen.compile(part, BYTES) for part in parts)
    for size in range(6):
        for drawn in itertools.product("ab(1)" if size < 5 else "ab", repeat=size):
            text = "".join(drawn)
            expected = any(
                first.allows(text[:at]) and second.allows(text[at:]) for at in range(size + 1)
            )
            assert whole.allows(text) == expected, text


# -- how a text is divided --------------------------------------------------------------------


def cuts(text: str, n_parts: int) -> Iterator[list[str]]:
    for ends in itertools.combinations_with_replacement(range(len(text) + 1), n_parts - 1):
        places = (0, *ends, len(text))
        yield [text[a:b] for a, b in itertools.pairwise(places)]


def shortest_from_the_end(found: list[list[str]]) -> list[str]:
    return min(found, key=lambda parts: [len(part) for part in reversed(parts)])


@pytest.mark.parametrize(
    "patterns",
    [("[ab]*", "b*", "[bc]*"), ("a|ab", "b|bc|c", "c*"), ("(ab)*", "a?", "(ba)*"), (".*",) * 3],
)
def test_the_last_hole_is_as_short_as_can_be(patterns: tuple[str, ...]) -> None:
    """Against every way to cut a text."""
    import re

    names = "xyz"
    template = Template("{x}{y}{z}", **dict(zip(names, map(Regex, patterns), strict=True)))
    lowered = lower(template)
    constraint = structgen.compile(template, BYTES)
    draw = random.Random(1)
    for _ in range(150):
        text = "".join(draw.choices("abc", k=draw.randrange(7)))
        ways = [parts for parts in cuts(text, 3) if all(map(re.fullmatch, patterns, parts))]
        assert constraint.allows(text) == bool(ways)
        if not ways:
            with pytest.raises(ParseError):
                lowered.parse(text)
            continue
        assert lowered.parse(text) == dict(zip(names, shortest_from_the_end(ways), strict=True))


def test_long_texts_are_divided_in_linear_time() -> None:
    """By the steps of automata, of which there are few a character."""
    template = Template("{a} {b} {c}", a=str, b=str, c=str)
    steps = 0
    divide = lower(template)
    machines = [build(part, {}).machine for part in divide.grammar.parts]  # type: ignore[union-attr]
    assert len(machines) == 5

    class Counted:
        start = machines[0].start

        def step(self, state: int, byte: int) -> int:
            nonlocal steps
            steps += 1
            return machines[0].step(state, byte)

        def is_accepting(self, state: int) -> bool:
            return machines[0].is_accepting(state)

        def is_pending(self, state: int) -> bool:
            return False

    one = Counted()
    data = b"word " * 4000
    division = Division([one, machines[1], one, machines[3], one])
    division.feed(data)
    assert division.ends() == [len(data) - 6, len(data) - 5, len(data) - 1, len(data), len(data)]
    assert steps <= 3 * len(data)


@pytest.mark.parametrize("options", [{"whitespace": "flexible"}, {"spelling": "any"}])
def test_texts_made_under_other_options(options: dict[str, Any]) -> None:
    template = Template("a{p}b{n}", p=Person, n=int)
    constraint = structgen.compile(template, BYTES, **options)
    for seed in range(6):
        lower(template).parse(walk(constraint, seed, 60))


# -- sums -------------------------------------------------------------------------------------


def test_sums_parse_to_the_text() -> None:
    either = "Name: " + Regex("[A-Z]+") + "\nAge: " + int
    constraint = structgen.compile(either, BYTES)
    assert constraint.allows("Name: ADA\nAge: 36")
    assert not constraint.allows("Name: ADA\nAge: 036")
    assert lower(either).parse("Name: ADA\nAge: 36") == "Name: ADA\nAge: 36"
    assert repr(int + Text("a") + Person) == "int + Text('a') + Person"
    assert isinstance(Text("a") + "b" + Regex("c"), TextPattern)


@pytest.mark.parametrize("value", [5, None, 1.5, b"a", True])
def test_values_are_no_parts(value: Any) -> None:
    for first, second in ((Text("a"), value), (value, Text("a")), (Text("a") + int, value)):
        with pytest.raises(TypeError):
            first + second


# -- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "holes", "message"),
    [
        ("{a} {a}", {"a": int}, "'a' appears twice"),
        ("{a}", {}, "hole 'a' has no output type. Pass a=..."),
        ("a", {"b": int}, "has no hole 'b'. Write {b}"),
        ("{}", {}, "a hole has no name. Name it: {answer}"),
        ("{0}", {}, "'0' has no output type. Name it"),
        ("{a.b}", {"a": int}, "'a.b' has no output type"),
        ("{a:>3}", {"a": int}, "'a' has a format"),
        ("{a!r}", {"a": int}, "'a' has a format"),
        ("{a", {"a": int}, "Write {{ and }} for literal braces"),
        ("a}", {}, "Write {{ and }} for literal braces"),
        (5, {}, "takes its text as a str"),
    ],
)
def test_wrong_holes(text: Any, holes: dict[str, Any], message: str) -> None:
    with pytest.raises(OutputTypeError) as caught:
        Template(text, **holes)
    assert message in str(caught.value)


def test_holes_that_cannot_be() -> None:
    with pytest.raises(
        OutputTypeError, match=r"In hole 'g' of Template.*contains the special token"
    ):
        lower(Template("{g}", g=Cfg("start: <|x|>")))
    with pytest.raises(
        OutputTypeError, match=r"In hole 'g' of Template.*ToolCalls describes a complete"
    ):
        lower(Template("{g}", g=structgen.ToolCalls([test_values])))
    with pytest.raises(OutputTypeError, match=r"In hole 'g' of Template.*is a value, not a type"):
        lower(Template("{g}", g=5))
    with pytest.raises(OutputTypeError, match="In part 2 of "):
        lower(Text("a") + pytest)

    class Outer(BaseModel):
        part: str = ""

    for one in (Template("{a}", a=int), Text("a") + int):
        with pytest.raises(OutputTypeError, match="cannot be part of a JSON value"):
            lower(list[one])  # type: ignore[valid-type]


def test_code_in_a_hole_is_told_and_named() -> None:
    def even(value: int) -> int:
        if value % 2:
            raise ValueError("odd")
        return value

    template = Template("n={n}", n=Annotated[int, AfterValidator(even)])
    constraint = structgen.compile(template, BYTES)
    assert ("$.n", "even") in [(row.path, row.note) for row in constraint.explain().rows]
    with pytest.raises(ParseError, match=r"In hole 'n'.*odd"):
        lower(template).parse("n=3")


def test_templates_are_kept_like_other_types() -> None:
    template = Template("{a}{b}", a=int, b=Person)
    again = pickle.loads(pickle.dumps(template))
    assert (again.text, dict(again.holes)) == (template.text, dict(template.holes))
    assert copy.copy(template).parts == template.parts
    with pytest.raises(AttributeError, match="cannot be changed"):
        template.text = ""
