"""Speculation: the same outputs in fewer passes, whatever is guessed."""

from __future__ import annotations

import threading
from typing import Annotated, Any

import numpy as np
import pytest
from fakes import FakeModel, Person
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

import structgen
from structgen import Choice, Draft, Generator, Regex, TextModel, Think
from structgen.decoding.speculation import MOST_AHEAD, Speculation
from structgen.models.genai.sequences import COSTS_ROOM, measured_costs

SOURCE = 'Ada Lovelace of Ockham wrote to "Charles Babbage", on 12 of June. '


class Letter(BaseModel):
    writer: Annotated[str, Field(max_length=40)]
    reader: Annotated[str, Field(max_length=40)]
    day: int


COPIED = '{"writer": "Ada Lovelace of Ockham", "reader": "Charles Babbage", "day": 12}'

TYPES = [
    None,
    Letter,
    Person,
    list[Person],
    Regex("[A-Za-z ]{0,30}"),
    Choice(["Ada L", "Charles B"]),
]


@pytest.mark.parametrize("output_type", TYPES)
@pytest.mark.parametrize("script", [None, COPIED, SOURCE * 2])
def test_the_same_tokens_as_without(output_type: Any, script: str | None) -> None:
    generator = Generator(FakeModel(script, context_length=400), output_type)
    for options in ({}, {"temperature": 1.0}, {"temperature": 0.7, "repetition_penalty": 1.3}):
        for seed in range(4):
            asked = {"max_new_tokens": 90, "stop": "zz" if output_type is None else None, **options}
            asked |= {"seed": seed} if options else {}
            with_ = generator.result(SOURCE, speculate=True, **asked)
            without = generator.result(SOURCE, **asked)
            assert with_.token_ids == without.token_ids
            assert (with_.text, with_.finish_reason) == (without.text, without.finish_reason)
            assert without.usage.guessed_tokens == 0
            assert with_.usage.accepted_tokens <= with_.usage.guessed_tokens


def test_what_is_copied_takes_half_of_the_passes() -> None:
    model = FakeModel(COPIED)
    generator = Generator(model, Letter)
    results = [generator.result(SOURCE, speculate=guesses) for guesses in (False, True)]
    without, with_ = (sequence.passes for sequence in model.started[-2:])
    assert results[1].text == COPIED
    assert with_ <= without / 2
    usage = results[1].usage
    assert usage.accepted_tokens > usage.guessed_tokens / 2 > 10


@settings(deadline=None, max_examples=60)
@given(
    st.text("abAB \n\"',.é", max_size=60),
    st.text("abAB \n\"',.é", max_size=60),
    st.integers(1, 40),
    st.sampled_from([None, str, list[str]]),
)
def test_any_prompt_any_script_any_budget(prompt: str, script: str, most: int, type_: Any) -> None:
    generator = Generator(FakeModel(script), type_)
    outcomes = []
    for guesses in (False, True):
        try:
            result = generator.result(prompt + "x", max_new_tokens=most, speculate=guesses)
            outcomes.append((result.token_ids, result.finish_reason, result.shortened))
        except structgen.errors.BudgetTooSmall as error:
            outcomes.append((str(error),))
    assert outcomes[0] == outcomes[1]


def test_thoughts_and_drafts_are_guessed_too() -> None:
    script = f"{SOURCE}</think>{COPIED}"
    options: dict[str, Any] = {"think": Think(80), "draft": Draft(max_tokens=60)}
    results = [
        Generator(FakeModel(script, context_length=900), Letter, **options).result(
            [{"role": "user", "content": SOURCE}], max_new_tokens=90, speculate=guesses
        )
        for guesses in (False, True)
    ]
    assert results[0].token_ids == results[1].token_ids
    assert results[0].reasoning == results[1].reasoning
    assert results[0].draft == results[1].draft
    assert results[1].usage.accepted_tokens > 0


def test_streams_and_what_is_cancelled() -> None:
    generator = Generator(FakeModel(COPIED), Letter)
    stream = generator.stream(SOURCE, speculate=True)
    assert "".join(stream) == COPIED
    assert stream.result.usage.accepted_tokens > 0
    done = threading.Event()
    done.set()
    with pytest.raises(structgen.IncompleteOutput):
        generator(SOURCE, speculate=True, cancel=done)


def test_nothing_is_guessed_where_values_are_taken_back_or_scores_are_told() -> None:
    generator = Generator(FakeModel(COPIED), Letter)
    for options in ({"logprobs": True}, {"trace": True}, {"best": True}):
        assert generator.result(SOURCE, speculate=True, **options).usage.guessed_tokens == 0


def test_guesses_that_fail_become_fewer() -> None:
    """What was wrong so far is tried less: no more than a few tokens are run in vain."""
    texts = [bytes([byte]) for byte in range(256)]
    tried = Speculation(texts, None, lambda before, data: list(data), lambda: FakeModel.pass_costs)
    ids = np.frombuffer(b"abcdefgh" * 40, np.uint8).astype(np.int32)
    sizes = []
    for n in range(16, 300):
        guess = tried.guess(ids[:n], 1, 100)
        sizes.append(len(guess))
        if guess:
            tried.note(len(guess), 0)
    assert sizes[0] >= 3
    assert sum(sizes) < 60
    assert sizes[-1] == 0


def test_guesses_that_come_grow_to_the_limit_and_keep_to_the_room() -> None:
    texts = [bytes([byte]) for byte in range(256)]
    tried = Speculation(texts, None, lambda before, data: list(data), lambda: FakeModel.pass_costs)
    ids = np.frombuffer(b"abcdefgh" * 40, np.uint8).astype(np.int32)
    for n in range(32, 200):
        guess = tried.guess(ids[:n], 1, 100)
        assert guess == ids[n : n + len(guess)].tolist()
        tried.note(len(guess), len(guess))
    assert len(guess) == MOST_AHEAD
    assert len(tried.guess(ids[:200], 1, 3)) == 3
    assert tried.guess(ids[:200], 1, 0) == []


TEXTS = [
    "Ada Lovelace, born 1815 in London, was a mathematician who wrote to Charles Babbage.",
    "Dr. Maria Gonzalez-Fernandez (born 1961, Valparaiso) wrote to the Scripps Institution.",
    "In 1974 Jonathan Whitmore Hargreaves of Edinburgh wrote to Arup Consulting Ltd.",
    "Chief Inspector Wilhelmina Fotheringham, 52, of Aberystwyth wrote to Scotland Yard.",
]


def test_a_real_model_differs_at_near_ties_alone(model: TextModel) -> None:
    """Passes of several tokens round otherwise: what differs had almost the same score."""
    generator = Generator(model, Letter)
    accepted = 0
    for text in TEXTS:
        prompt = [{"role": "user", "content": f"Extract the letter as JSON.\n\n{text}"}]
        with_ = generator.result(prompt, max_new_tokens=90, speculate=True)
        without = generator.result(prompt, max_new_tokens=90, top_logprobs=2)
        accepted += with_.usage.accepted_tokens
        assert without.logprobs is not None
        pairs = zip(with_.token_ids, without.logprobs, strict=False)
        other = [(token, scored) for token, scored in pairs if token != scored.token_id]
        for token, scored in other[:1]:  # what follows has another beginning
            (rival,) = (one for one in scored.top if one.token_id == token)
            assert scored.logprob is not None
            assert scored.logprob - rival.logprob < 0.2
    assert accepted >= 10


def _costs(slope: float) -> tuple[float, ...]:
    return tuple(1 + slope * n for n in range(8))


def test_the_dearer_a_pass_the_shorter_the_guess() -> None:
    """Where tokens cost as much in one pass as alone, nothing is guessed."""
    texts = [bytes([byte]) for byte in range(256)]
    ids = np.frombuffer(b"abcdefgh" * 40, np.uint8).astype(np.int32)
    sizes = []
    for slope in (0.05, 0.4, 0.8, 1.0):
        costs = _costs(slope)
        tried = Speculation(texts, None, lambda before, data: list(data), lambda costs=costs: costs)
        sizes.append(len(tried.guess(ids[:32], 1, 100)))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == MOST_AHEAD
    assert sizes[0] > sizes[1] > sizes[2]
    assert sizes[3] == 0


@pytest.mark.parametrize("slope", [0.1, 0.4, 0.7])
def test_wrong_guesses_lose_no_more_than_is_granted(slope: float) -> None:
    """Adversity: every guess is wrong."""
    texts = [bytes([byte]) for byte in range(256)]
    costs = _costs(slope)
    ids = np.frombuffer(b"abcdefgh" * 60, np.uint8).astype(np.int32)
    tried = Speculation(texts, None, lambda before, data: list(data), lambda: costs)
    lost = 0.0
    for n in range(32, 432):
        guess = tried.guess(ids[:n], 1, 100)
        if guess:
            tried.note(len(guess), 0)
            lost += slope * len(guess) + slope
        assert lost <= 1.5 + 0.04 * (n - 32) + 1e-9
    assert lost > 0


def test_costs_of_passes_are_the_least_of_several_and_never_fall() -> None:
    now, seen = [0.0], []

    class Runtime:
        def append_tokens(self, ids: Any) -> None:
            seen.append(ids.shape[1])
            disturbed = 50 if len(seen) % 5 == 0 else 0
            now[0] += 0.001 * ({1: 10, 2: 12, 4: 11, 8: 40}[ids.shape[1]] + disturbed)

    costs = measured_costs(Runtime(), lambda: now[0])
    assert costs == pytest.approx((1, 1.2, 1.2, 1.2, 1.9, 2.6, 3.3, 4))
    assert sum(seen) <= COSTS_ROOM
