"""``best=``: values of few alternatives are written as the likeliest whole text.

What the probabilities are is proven in tests/insight/test_confidence.py, by sums over every token
sequence.
"""

from __future__ import annotations

import enum
import threading
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from fakes import FakeModel
from pydantic import Field
from test_retries import Likes

import structgen
from structgen import Generator, IncompleteOutput, JsonSchema, OptionError, Regex
from structgen.decoding import Generation, SearchOptions, encode, passes_of


class Colour(enum.Enum):
    RED = "red"
    GREEN = 2
    NONE = None


@dataclass
class Review:
    title: Annotated[str, Field(max_length=3)]
    label: Literal["good", "goods", "goo", "bad"]
    stars: Annotated[int, Field(ge=1, le=12)]
    sure: bool
    colour: Colour
    tags: Annotated[list[Literal["x", "y", "é"] | None], Field(max_length=2)]
    only: Literal["one"]


WHITESPACE: tuple[Any, ...] = (None, "compact", "flexible")


def are_likeliest(result: Any) -> list[bool]:
    return [
        value.probability >= value.runner_up.probability - max(value.error, 1e-9)
        for value in result.confidence.values()
    ]


@pytest.mark.parametrize("script", [None, '{"title":"a","label":"goods"', "true"])
@pytest.mark.parametrize("whitespace", WHITESPACE)
def test_every_value_is_the_likeliest(script, whitespace):
    options = {} if whitespace is None else {"whitespace": whitespace}
    generator = Generator(FakeModel(script, context_length=700), Review, **options)
    changed = 0
    for i in range(6):
        prompt = f"p{i}"
        result = generator.result(prompt, best=True)
        assert result.finish_reason == "stop"
        assert isinstance(result.value, Review)
        found = are_likeliest(result)
        assert len(found) >= 4
        assert all(found)
        changed += not all(are_likeliest(generator.result(prompt)))
        assert "".join(generator.stream(prompt, best=True)) == result.text
    assert changed  # else this shows nothing


@pytest.mark.parametrize("script", [None, "goods", "12"])
@pytest.mark.parametrize(
    "labels", [("good", "goods", "bad"), ("1", "12", "122", "2"), ("é", "élan", "no", "not")]
)
def test_a_whole_output_is_the_likeliest(script, labels):
    generator = Generator(FakeModel(script), list(labels))
    for i in range(5):
        probabilities = generator.probabilities(f"p{i}", tolerance=0)
        assert generator(f"p{i}", best=True) == max(probabilities, key=probabilities.__getitem__)
        assert generator.result(f"p{i}", best=True).finish_reason == "stop"


def test_not_what_the_first_token_prefers():
    """Of "xa" and "xb" each has less than "y", and the "x" of both more."""
    likes = {'"label":"': {"x": 0.6, "y": 0.4}, '"x': {"a": 0.5, "b": 0.5}, '"y': {'"': 1.0}}
    likes |= {'"xa': {'"': 1.0}, '"xb': {'"': 1.0}, '"y"': {"}": 1.0}}
    model = Likes('{"label":"', likes)
    schema = {
        "type": "object",
        "properties": {"label": {"enum": ["xa", "xb", "y"]}},
        "required": ["label"],
        "additionalProperties": False,
    }
    generator = Generator(model, JsonSchema(schema), whitespace="compact")
    assert generator("x").startswith('{"label":"x')
    result = generator.result("x", best=True)
    assert result.text == '{"label":"y"}'
    assert result.confidence["$.label"].probability == pytest.approx(0.4, abs=0.01)


def test_within_budgets_of_every_size():
    generator = Generator(FakeModel(context_length=700), Review, whitespace="compact")
    sizes = set()
    for size in range(40, 140):
        try:
            result = generator.result("p", best=True, max_new_tokens=size)
        except structgen.BudgetTooSmall:
            continue
        sizes.add(size)
        assert len(result.token_ids) <= size
        assert isinstance(result.value, Review)
        if result.finish_reason == "stop":
            assert all(are_likeliest(result))
    assert len(sizes) > 20


def test_beside_other_options():
    model = FakeModel(context_length=700)
    generator = Generator(model, Review)
    alone = [generator(f"p{i}", best=True) for i in range(3)]
    assert generator([f"p{i}" for i in range(3)], best=True, batch_size=3) == alone
    assert model.batches == []
    scored = generator.result("p0", best=True, logprobs=True, trace=True)
    assert scored.text == alone[0]
    assert len(scored.logprobs) == len(scored.token_ids)
    assert scored.usage.forced_tokens < scored.usage.output_tokens
    sampled = generator.result("p0", best=True, temperature=1.0, seed=3)
    assert all(are_likeliest(sampled))
    values = list(generator.stream_values("p0", best=True))
    assert values[-1].title == generator.parse("p0", best=True).title
    drafted = Generator(FakeModel(context_length=900), Review, draft=True)
    assert all(are_likeliest(drafted.result("p", best=True, max_new_tokens=120)))
    sure = generator.result("p0", best=True, abstain_below={"$.sure": 0.01})
    assert sure.abstained == ()


def test_a_text_that_is_replaced_to_its_end_has_the_models_own_scores():
    """They were those of the place before; of a prompt of one token there was none."""
    generator = Generator(FakeModel(), structgen.Choice(["a", "ab", "b", "ba"]))
    asked = {"best": True, "temperature": 1.0, "trace": True, "speculate": False}
    n_replaced = 0
    for seed in range(20):
        steps = generator.result("p", **asked, seed=seed).trace.steps
        sequence = FakeModel().start(99)
        sequence.append([*encode(generator.model, "p")])
        for step in steps:
            scores = sequence.logits()[0].astype(float)
            own = scores[step.token_id] - np.log(np.exp(scores).sum())
            assert step.logprob.unmasked_logprob == pytest.approx(own, abs=1e-5)
            sequence.append([step.token_id])
        n_replaced += steps[-1].is_end and steps[-1].is_forced
    assert n_replaced > 2


def test_a_cancelled_output_ends_while_a_value_is_weighed():
    model = FakeModel(context_length=700)
    constraint = structgen.compile(Review, model.vocabulary)
    search = SearchOptions(best=True)
    run = Generation(model, constraint, None, encode(model, "p"), search)
    run.start()
    was_weighing = False
    for _ in passes_of(run, model.start(700), model.pace):
        if run.progress.is_weighing:
            was_weighing = True
            run.cancel()
    assert was_weighing
    assert run.finish_reason == "cancelled"
    event = threading.Event()
    event.set()
    with pytest.raises(IncompleteOutput):
        Generator(model, Review)("p", best=True, cancel=event)


def test_what_does_not_go():
    model = FakeModel()
    for output_type in (None, Regex("[a-z]+"), list[str]):
        with pytest.raises(OptionError, match="few alternatives"):
            Generator(model, output_type)("p", best=True)
    with pytest.raises(OptionError, match=r"stop= cannot be combined with best="):
        Generator(model, bool)("p", best=True, stop="x")
    with pytest.raises(OptionError, match=r"retries= cannot be combined with best="):
        Generator(model, Review)("p", best=True, retries=2)
    with pytest.raises(OptionError, match="best"):
        Generator(model, bool)("p", best="yes")
