"""What a budget changed is told: ``finish_reason`` and ``result.shortened``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from fakes import FakeModel, Person, vocabulary
from pydantic import AfterValidator, BaseModel, Field

import structgen
from structgen import Generator, JsonSchema, Regex


class Review(BaseModel):
    summary: Annotated[str, Field(max_length=40)]
    tags: Annotated[list[Annotated[str, Field(max_length=8)]], Field(max_length=3)]
    score: Annotated[int, Field(ge=0, le=2030)]


@dataclass
class Nested:
    inner: Person
    note: str | None = None


BOUNDED: list[Any] = [
    Review,
    Annotated[list[Annotated[int, Field(ge=-50, le=2050)]], Field(max_length=6)],
    Regex("(true|false| the){0,9}"),
    Literal["a", "true", "the false one"],
    JsonSchema(
        {
            "type": "object",
            "properties": {"a": {"maxLength": 9}, "b": {"type": "boolean"}},
            "additionalProperties": False,
        }
    ),
]


def test_a_shortened_document_says_so_and_where():
    written = '{"summary":"The soup was cold and the waiter","tags":["a","b"],"score":12}'
    generator = Generator(FakeModel(written), Review)
    whole = generator.result("x", max_new_tokens=100)
    assert (whole.text, whole.finish_reason, whole.shortened) == (written, "stop", ())
    n = whole.usage.output_tokens + 1
    assert generator.result("x", max_new_tokens=n).finish_reason == "stop"
    cut = generator.result("x", max_new_tokens=n - 1)
    assert (cut.finish_reason, cut.shortened[0]) == ("budget", "$.tags[1]")
    early = generator.result("x", max_new_tokens=36)
    assert (early.finish_reason, early.shortened[0]) == ("budget", "$.summary")
    assert Review.model_validate_json(early.text).summary.startswith("The s")


def test_a_check_that_refuses_a_shortened_value_says_that_it_was_shortened():
    def long(text: str) -> str:
        if len(text) < 12:
            raise ValueError("too short")
        return text

    said = Annotated[str, AfterValidator(long)]
    for written, budget, told in (("the soup was cold", 9, True), ("the soup", 60, False)):
        generator = Generator(FakeModel(json.dumps({"a": written})), dict[str, said])
        with pytest.raises(structgen.ParseError, match="too short") as caught:
            generator.parse("x", max_new_tokens=budget)
        assert ("shortened this output at $.a. Raise it." in str(caught.value)) == told
        assert json.loads(caught.value.text)["a"] in written


@pytest.mark.parametrize(
    ("output_type", "script", "budget", "text", "shortened"),
    [
        (Regex("[a-z]+"), "abcdef", 4, "abc", ("$",)),
        (Regex("[a-z]+"), "abc", 4, "abc", ()),
        (int, "1212", 3, "1212", ()),
        (int, "121212", 3, "1212", ("$",)),
        (list[int], "[1,2,3]", 6, "[1,2]", ("$",)),
        (list[int], "[5,67]", 6, "[5,6]", ("$[1]",)),
        (dict[str, bool], '{"a":true,"b":true}', 6, '{"a":true}', ("$",)),
        # The barred token would have closed the string and gone on after it.
        (list[str], '["a","b"]', 6, '["a"]', ("$",)),
        (Literal["null", "nuisance"], "null", 2, "null", ()),
        (list[list[int] | None], "[[1]]", 5, "[[]]", ("$[0][0]",)),
    ],
)
def test_the_place_is_that_of_what_was_barred(output_type, script, budget, text, shortened):
    result = Generator(FakeModel(script), output_type).result("x", max_new_tokens=budget)
    assert (result.text, result.shortened) == (text, shortened)
    assert result.finish_reason == ("budget" if shortened else "stop")


@pytest.mark.parametrize("output_type", BOUNDED)
@pytest.mark.parametrize("options", [{}, {"temperature": 1.0}, {"top_k": 5}, {"forced": False}])
def test_it_says_stop_exactly_where_the_budget_changed_nothing(output_type, options):
    generator = Generator(FakeModel(context_length=4096), output_type)
    seen = set()
    for seed in range(12):
        prompt = "x" * (1 + seed)
        call = {**options, "seed": seed}
        free = generator.result(prompt, max_new_tokens=2000, **call)
        assert free.finish_reason == "stop"
        least = generator.constraint.start().min_tokens_to_finish()
        longest = free.usage.output_tokens + 2
        for budget in {least, (least + longest) // 2, longest - 2, longest - 1, longest}:
            if budget < least:
                continue
            result = generator.result(prompt, max_new_tokens=budget, **call)
            assert generator.constraint.allows(result.text)
            seen.add(result.finish_reason)
            assert (result.finish_reason == "budget") == bool(result.shortened)
            # Forced text may be spelt in other pieces, after which scores are others.
            same = result.token_ids == free.token_ids
            assert (result.finish_reason == "stop") == same, (budget, result.text, free.text)
    assert seen == {"stop", "budget"}


def test_streams_batches_and_samples_say_it_too():
    model = FakeModel('{"name":"abcdefghijklmn","age":12}')
    generator = Generator(model, Person)
    one = generator.result("x", max_new_tokens=24)
    assert (one.finish_reason, one.shortened) == ("budget", ("$.name", "$.age"))
    stream = generator.stream("x", max_new_tokens=24)
    assert "".join(stream) == one.text
    assert (stream.result.finish_reason, stream.result.shortened) == ("budget", one.shortened)
    model.prompt_length = 1
    for result in generator.result(["x"] * 3, max_new_tokens=24, batch_size=3):
        assert (result.text, result.finish_reason, result.shortened) == (
            one.text,
            "budget",
            one.shortened,
        )
    assert model.batches
    for result in generator.result("x", n=3, temperature=0.5, max_new_tokens=24):
        assert (result.finish_reason, result.shortened[0]) == ("budget", "$.name")


def test_the_end_of_the_context_is_a_budget():
    model = FakeModel('{"name":"' + "a" * 500, context_length=64)
    result = Generator(model, Person).result("xxxx")
    assert (result.finish_reason, result.shortened[0]) == ("budget", "$.name")
    assert result.usage.prompt_tokens + result.usage.output_tokens < 64
    json.loads(result.text)


def test_a_shortened_output_is_whole():
    class Sure(BaseModel):
        why: str
        label: Literal["yes", "no"]

    model = FakeModel('{"why":"because of the long way home","label":"no"}')
    result = Generator(model, Sure).result("x", max_new_tokens=40)
    assert result.finish_reason == "budget"
    assert result.confidence["$.label"].chosen.value in ("yes", "no")
    assert Generator(model, Sure).parse("x", max_new_tokens=40).label in ("yes", "no")


def test_a_stop_string_ends_a_shortened_output_as_any_other():
    model = FakeModel('{"name":"abcdefghijklmn","age":12}')
    with pytest.raises(structgen.IncompleteOutput):
        Generator(model, Person)("x", max_new_tokens=24, stop='"age"')
    result = Generator(FakeModel("abcdefgh"), Regex("[a-h]{2,}")).result(
        "x", max_new_tokens=4, stop="c"
    )
    assert (result.finish_reason, result.text) == ("stop_string", "ab")


def test_the_ordinary_case_asks_the_model_for_nothing_more():
    model = FakeModel('{"name":"ab","age":12}')
    generator = Generator(model, Person, whitespace="compact")
    for budget, n_asked in [(None, 6), (100, 6), (26, 6)]:
        model.started.clear()
        generator.result("x", max_new_tokens=budget)
        assert sum(sequence.logits_read for sequence in model.started) == n_asked


def test_a_processor_is_asked_again_only_where_the_budget_bars():
    def no_b(token_ids, logits):
        calls.append(token_ids.shape[1])
        logits[:, [i for i, token in enumerate(model.vocabulary.tokens) if b"b" in token]] = -100
        return logits

    calls: list[int] = []
    model = FakeModel("aaaaaaaa")
    generator = Generator(model, Regex("[ab]+"), processor=no_b)
    result = generator.result("x", max_new_tokens=5)
    assert (result.text, result.finish_reason) == ("aaaa", "budget")
    assert calls == [1, 2, 3, 4, 5, 5]


@pytest.mark.parametrize("output_type", [*BOUNDED, Nested])
def test_the_mask_without_the_budget_is_that_of_a_cursor_without_one(output_type):
    known = vocabulary()
    constraint = structgen.compile(output_type, known)
    random = np.random.default_rng(5)
    words = (known.size + 31) // 32
    n_barred = 0
    for _ in range(30):
        budget = constraint.start().min_tokens_to_finish() + int(random.integers(0, 9))
        cursor, free = constraint.start(budget), constraint.start()
        assert cursor.without_budget is None
        while True:
            out, expected = np.zeros(words, np.uint32), np.zeros(words, np.uint32)
            cursor.fill_mask(out)
            free.fill_mask(expected)
            assert free.without_budget is None
            if (out == expected).all():
                assert cursor.without_budget is None
            else:
                assert (cursor.without_budget == expected).all()
                n_barred += 1
            allowed = np.flatnonzero(np.unpackbits(out.view(np.uint8), bitorder="little"))
            token = int(random.choice(allowed))
            cursor.accept(token)
            if token in known.eos_token_ids:
                break
            free.accept(token)
        cursor.fill_mask(out)
        assert cursor.without_budget is None
    assert n_barred


class Labels(BaseModel):
    text: str
    label: Literal["no", "perhaps"]


@pytest.mark.parametrize(
    ("room", "text", "shortened"),
    [
        (22, '{"text":"abc","label":"perhaps"}', ()),
        (21, '{"text":"abc","label":"no"}', ("$.label",)),
        (17, '{"text":"abc","label":"no"}', ("$.label",)),
    ],
)
def test_the_likeliest_value_that_does_not_fit_is_told(room, text, shortened):
    model = FakeModel('{"text":"abc","label":"perhaps"}', context_length=700)
    model.prompt_length = 1  # weighed as it is written
    generator = Generator(model, Labels, whitespace="compact")
    n_more = len("text") - len("b") + len("label") - len("a")
    result = generator.result("x", max_new_tokens=room + n_more, best=True)
    assert (result.text, result.shortened) == (text, shortened)
    assert result.finish_reason == ("budget" if shortened else "stop")


def _not_cut(value: str) -> str:
    if value == "abcde":
        raise ValueError("cut")
    return value


class Checked(BaseModel):
    a: Annotated[str, Field(pattern="^(abcde|abcdefghi|zz)$"), AfterValidator(_not_cut)]


@pytest.mark.parametrize("room", range(8, 15))
def test_what_a_check_refuses_because_the_budget_cut_it_is_told(room):
    generator = Generator(FakeModel('{"a":"abcdefghi"}'), Checked, whitespace="compact")
    result = generator.result("x", max_new_tokens=room, retries=20)
    assert (result.text, result.finish_reason) == ('{"a":"zz"}', "budget")
    assert result.shortened == ("$.a",)
    whole = generator.result("x", max_new_tokens=15, retries=20)
    assert (whole.text, whole.finish_reason) == ('{"a":"abcdefghi"}', "stop")
