"""Partial values of text in parts: holes of templates, tagged text, calls of tools."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from byte_walks import BYTES, walk
from pydantic import AfterValidator, BaseModel

import structgen
from structgen import Call, Regex, Tagged, Template, ToolCalls
from structgen.errors import ParseError
from structgen.types import TaggedText, lower
from structgen.values import GrowingValue, Partial


class Person(BaseModel):
    name: str
    tags: list[int] = []


def greet(name: str, loud: bool = False) -> None:
    """Say hello."""


def pay(amount: int) -> None:
    """Pay."""


FORM = Template(
    "Name: {name}\nAge: {age}\nWho: {who}, {inner}. {text}",
    name=Regex("[A-Z][a-z]+"),
    age=int,
    who=Person,
    inner=Template("{x}/{y}", x=int, y=bool),
    text=str,
)
NOTES = TaggedText(Tagged("<p>", Person, "</p>"), Tagged("[", Literal["a", "ab"], "]"))
TOOLS = ToolCalls([greet, pay])
TYPES: list[Any] = [
    FORM,
    NOTES,
    TOOLS,
    ToolCalls([greet, pay], choice="required"),
    Template("{a}{b}{c}", a=Regex("[ab]*"), b=Regex("b*"), c=Regex("[bc]*")),
    Template("{a} {b}", a=str, b=str),
    Template("{t}|{n}", t=Tagged("<n>", int, "</n>"), n=int),
    Template("{p}\n\n{q}", p=Person, q=list[Person]),
    Tagged("<", int, "1>"),
    TaggedText(Tagged("a", int, "a"), Tagged("ab", bool, "b")),
    Tagged("<", Regex("[0-9]+") + Template("{x}", x=int), ">"),
]


def growing(
    output_type: Any, text: str, rng: random.Random | None = None
) -> Iterator[Partial[Any]]:
    """What comes of ``text``, character by character or in pieces."""
    output = lower(output_type)
    value = GrowingValue(output)
    at = 0
    while at < len(text):
        n = 1 if rng is None else rng.randint(1, 9)
        found = value.feed(text[at : at + n])
        at += n
        if found is not None:
            yield found
    yield value.finish(output.parse(text))


@pytest.mark.parametrize("output_type", TYPES, ids=repr)
def test_what_is_whole_stays_and_the_last_is_the_value(output_type: Any) -> None:
    constraint = structgen.compile(output_type, BYTES)
    for seed in range(12):
        rng = random.Random(seed)
        text = walk(constraint, seed, (15, 60, 120)[seed % 3])
        whole: dict[Any, Any] = {}
        begun: dict[Any, str] = {}
        kept: list[tuple[Partial[Any], str]] = []
        for partial in growing(output_type, text, rng if seed % 2 else None):
            value = partial.so_far
            for step in range(len(partial)) if isinstance(value, list) else partial:
                if step in whole:
                    assert partial.done(step)
                    assert partial[step] == whole[step]
                elif partial.done(step):
                    whole[step] = partial[step]
                if isinstance(partial[step], str):
                    assert partial[step].startswith(begun.get(step, ""))
                    begun[step] = partial[step]
            kept.append((partial, repr(partial)))
        assert partial.complete
        assert partial.value == lower(output_type).parse(text)
        assert partial.so_far == partial.value
        assert [repr(one) for one, _ in kept] == [shown for _, shown in kept]


def test_holes_appear_one_by_one() -> None:
    text = 'Name: Ada\nAge: 36\nWho: {"name":"a}b","tags":[1]}, 3/true. Hello.'
    shown = [repr(partial) for partial in growing(FORM, text)]
    steps = list(dict.fromkeys(shown))
    assert steps[:3] == ["Partial(name='A', …)", "Partial(name='Ad', …)", "Partial(name='Ada', …)"]
    assert "Partial(name='Ada', age=36, …)" in steps
    assert "Partial(name='Ada', age=36, who=Partial(name='a}b', …), …)" in steps
    who = "who=Person(name='a}b', tags=[1])"
    assert f"Partial(name='Ada', age=36, {who}, inner=Partial(x=3, …), …)" in steps
    last = f"Partial(name='Ada', age=36, {who}, inner={{'x': 3, 'y': True}}, text='Hello.'"
    assert steps[-2:] == [f"{last}, …)", f"{last})"]


def test_fields_inside_of_holes_are_asked_for() -> None:
    text = 'Name: Ada\nAge: 36\nWho: {"name":"x","tags":[1,2]}, 3/true. '
    (half,) = [p for p in growing(FORM, text) if repr(p).endswith("tags=Partial(1, …), …), …)")]
    assert half.who.name == "x"
    assert half["who"].tags[0] == 1
    assert half.done("name")
    assert half.done("who", "name")
    assert half.done("who", "tags", 0)
    assert not half.done("who")
    assert not half.done("who", "tags")
    assert not half.done("inner")
    assert "text" not in half
    assert list(half) == ["name", "age", "who"]
    assert half.so_far["who"] == {"name": "x", "tags": [1]}
    with pytest.raises(AttributeError, match="has not been written yet"):
        _ = half.inner


def test_tags_appear_when_they_close() -> None:
    text = 'Hi < <p>{"name":"</p>"}</p>, [ab] <'
    sizes = [(len(p), p.done(0), p.done(1)) for p in growing(NOTES, text)]
    assert sizes[0] == (1, False, False)
    assert (2, True, True) in sizes
    assert sizes[-1] == (5, True, True)
    assert [p.so_far for p in growing(NOTES, "Hi <")][2:] == [["Hi "], ["Hi <"]]


@pytest.mark.parametrize("inside", [int, float | None, bool, date, Person])
def test_a_tag_is_there_as_soon_as_it_ends(inside: Any) -> None:
    written = {int: "12", bool: "true", date: "2026-11-22", Person: '{"name":">"}'}
    text = f"a <{written.get(inside, '1.5')}> b"
    sizes = [len(partial) for partial in growing(Tagged("<", inside, ">"), text)]
    assert sizes[-3:] == [3, 3, 3]
    assert 2 in sizes


def test_a_tag_waits_while_it_may_end_elsewhere() -> None:
    assert [p.so_far[0] for p in growing(Tagged("<", int, "1"), "a<121")][:-1] == []


def test_calls_grow_by_their_arguments() -> None:
    text = (
        'Well. <tool_call>\n{"name": "greet", "arguments": {"name": "A}nn", "loud": true}}\n'
        '</tool_call>\n<tool_call>\n{"name": "pay", "arguments": {"amount": 12}}\n</tool_call>'
    )
    seen = list(dict.fromkeys(repr(partial) for partial in growing(TOOLS, text)))
    assert "Partial('Well. ', Partial(name='A}', …), …)" in seen
    call = "Call(greet(name='A}nn', loud=True))"
    assert f"Partial('Well. ', {call}, …)" in seen
    assert seen[-1] == f"Partial('Well. ', {call}, Call(pay(amount=12)))"
    last = list(growing(TOOLS, text))[-1]
    assert isinstance(last[1], Call)
    assert last.done(1, "name") is True


def test_refused_holes_raise_when_they_are_read() -> None:
    def even(value: int) -> int:
        if value % 2:
            raise ValueError("odd")
        return value

    template = Template("n={n} {m}", n=Annotated[int, AfterValidator(even)], m=str)
    value = GrowingValue(lower(template))
    found = [p for c in "n=3 x" if (p := value.feed(c)) is not None][-1]
    assert found.done("n")
    assert repr(found) == "Partial(n=(refused), m='x', …)"
    with pytest.raises(ParseError, match="odd"):
        _ = found.n
