"""Speculation with a draft model: the same outputs, in fewer passes of the large one."""

from __future__ import annotations

import asyncio
import runpy
import threading
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pytest
from fakes import SIZE, FakeModel, FakeSequence, encode
from pydantic import BaseModel, Field
from rounding import TIE, gap

import structgen
from structgen import (
    AsyncModel,
    Draft,
    Generator,
    ModelError,
    OptionError,
    Regex,
    Runner,
    TextModel,
    Think,
)
from structgen import models as model_folders
from structgen.models.base import ON_CPU, DraftModel, LoadOptions
from structgen.models.genai import opening
from structgen.runner import ModelConfig
from structgen.vocabulary import Vocabulary

PROMPT = "Name a ship, its harbour and the year in which it was built. "
WRITTEN = '{"ship": "Kittiwake", "harbour": "Dover", "year": 1987}'
OTHER = '{"ship": "xxxxxxxxx", "harbour": "yyyyyyyyyyyyyyyyy", "year": 2}'


class Ship(BaseModel):
    ship: Annotated[str, Field(max_length=30)]
    harbour: Annotated[str, Field(max_length=30)]
    year: int


def pair(
    script: str | None, drafted: str | None, cost: float = 0.05, token: float = 0.05, **draft: Any
) -> tuple[FakeModel, FakeModel]:
    """A model that would write one text, and its draft model that would write another."""
    model, small = FakeModel(script, context_length=400), FakeModel(drafted, context_length=400)
    small.prompt_length = len(encode(PROMPT))
    model.draft = DraftModel(small, cost, **draft)
    model.pace = replace(ON_CPU, token=token)
    return model, small


@pytest.mark.parametrize("output_type", [None, Ship, list[Ship], Regex("[A-Za-z ]{0,30}")])
@pytest.mark.parametrize("drafted", [None, WRITTEN, OTHER])
def test_the_same_tokens_as_without(output_type: Any, drafted: str | None) -> None:
    model, _ = pair(WRITTEN, drafted)
    generator = Generator(model, output_type)
    options = ({}, {"forced": False}, {"temperature": 1.0, "seed": 1, "logit_bias": {90: 3.0}})
    for asked in options:
        for most in (12, 24, 80):
            try:
                with_, without = (
                    generator.result(PROMPT, max_new_tokens=most, speculate=guesses, **asked)
                    for guesses in (True, False)
                )
            except structgen.BudgetTooSmall:
                continue
            assert with_.token_ids == without.token_ids
            assert with_.finish_reason == without.finish_reason
            assert with_.shortened == without.shortened
            assert with_.usage.accepted_tokens <= with_.usage.guessed_tokens


def test_right_guesses_save_passes_and_the_sequence_is_kept_in_step() -> None:
    model, small = pair(WRITTEN, WRITTEN)
    generator = Generator(model, Ship)
    results = [generator.result(PROMPT, speculate=guesses) for guesses in (False, True)]
    without, with_ = (sequence.passes for sequence in model.started)
    assert results[1].text == WRITTEN
    assert with_ < without / 2
    assert results[1].usage.accepted_tokens > 10
    (sequence,) = small.started  # one for the output, which reads each token once
    assert sequence.closed
    assert sequence.passes <= results[1].usage.sampled_tokens


@pytest.mark.parametrize("asked", [{"temperature": 1.0}, {"temperature": 3.0, "top_p": 0.99}])
@pytest.mark.parametrize("output_type", [None, Regex("[A-Za-z ]{80}")])
def test_where_tokens_are_drawn_a_model_that_is_right_draws_the_same(
    output_type: Any, asked: dict[str, float]
) -> None:
    model, _ = pair(None, None)
    result = Generator(model, output_type).result(PROMPT, max_new_tokens=90, seed=2, **asked)
    assert result.usage.accepted_tokens == result.usage.guessed_tokens > 40


def test_wrong_guesses_cost_at_most_a_twentieth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes of the draft model, its reading of the prompt and longer passes counted."""
    lengths: dict[int, list[int]] = {}
    append = FakeSequence.append

    def counted(self: FakeSequence, token_ids: Any) -> None:
        lengths.setdefault(id(self.model), []).append(len(token_ids))
        append(self, token_ids)

    monkeypatch.setattr(FakeSequence, "append", counted)
    letters = "".join(chr(65 + i * i % 26) for i in range(200))
    for token in (0.02, 0.3):
        for cost in (0.02, 0.2):
            model, small = pair(letters, "z" * 200, cost, token)
            small.search_defaults = {}
            generator, costs = Generator(model), []
            for guesses in (False, True):
                lengths.clear()
                result = generator.result(PROMPT, max_new_tokens=150, speculate=guesses)
                of = {id(model): 1.0, id(small): cost}
                costs.append(
                    sum(
                        of[who] * (1 + token * (n - 1))
                        for who, all_ in lengths.items()
                        for n in all_
                    )
                )
            assert costs[1] <= 1.05 * costs[0] + 1e-9
            if cost == 0.02:
                assert id(small) in lengths
                assert result.usage.guessed_tokens > result.usage.accepted_tokens


def test_what_costs_as_much_is_never_asked_and_draft_tokens_bounds_a_guess() -> None:
    model, small = pair(WRITTEN, WRITTEN, cost=1.0)
    assert Generator(model, Ship)(PROMPT)
    assert small.started == []
    letters = "".join(map(chr, range(65, 127)))
    model, small = pair(letters, letters, most=2)
    result = Generator(model).result(PROMPT, max_new_tokens=60)
    assert result.usage.accepted_tokens > 10
    assert model.started[-1].passes * 3 >= result.usage.output_tokens - 2


def test_sections_streams_and_what_is_cancelled() -> None:
    model, small = pair(f"I see</think>{WRITTEN}", None)
    model.context_length = small.context_length = 900
    options: dict[str, Any] = {"think": Think(60), "draft": Draft(max_tokens=40)}
    generator = Generator(model, Ship, **options)
    chat = [{"role": "user", "content": PROMPT}]
    one, other = (
        generator.result(chat, max_new_tokens=90, speculate=guesses) for guesses in (True, False)
    )
    assert (one.reasoning, one.draft, one.token_ids) == (
        other.reasoning,
        other.draft,
        other.token_ids,
    )
    model, small = pair(WRITTEN, WRITTEN)
    stream = Generator(model, Ship).stream(PROMPT)
    for _ in stream:
        if small.started and small.started[-1].passes > 3:
            break
    stream.close()
    assert small.started[-1].closed
    done = threading.Event()
    done.set()
    with pytest.raises(structgen.IncompleteOutput):
        Generator(model, Ship)(PROMPT, cancel=done)


# -- models on disk -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Two models of random weights that have one vocabulary, and one that has another."""
    place = tmp_path_factory.mktemp("drafts")
    tiny = runpy.run_path(str(Path(__file__).parents[1] / "models" / "tiny_gguf.py"))
    made = []
    for name, options in (("large", {}), ("small", {}), ("other", {"architecture": "gemma"})):
        made.append(
            model_folders.convert(tiny["write"](place / f"{name}.gguf", **options), place / name)
        )
    return made[0], made[1], made[2]


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny models are of one size: the draft model passes for a smaller one."""
    share = opening._share
    monkeypatch.setattr(opening, "_share", lambda *given: 0.02 * share(*given))


ASKED: dict[str, Any] = {"prompt": "the in 12 ab the", "max_new_tokens": 60}
TYPE = Regex("[a-z0-9 ]{40,50}")


def test_a_draft_model_is_loaded_shared_and_closed(
    folders: tuple[Path, Path, Path], cheap: None
) -> None:
    large, small, _ = folders
    model = structgen.load(large, draft_model=small, draft_tokens=4)
    with_, without = (
        Generator(model, TYPE).result(**ASKED, speculate=guesses) for guesses in (True, False)
    )
    assert gap(model, ASKED["prompt"], with_, without) < TIE
    assert with_.usage.accepted_tokens > 5
    assert model.draft is not None
    own: Any = model.draft.model
    assert own.sequences.info.calls == own.sequences.info.sequences == 1
    model.close()
    assert own.sequences.info.sequences == 0
    shared = structgen.load(small)
    several = [structgen.load(large, draft_model=shared) for _ in range(2)]
    for one in several:
        Generator(one, TYPE)(**ASKED)
        one.close()
    assert shared.sequences.info.calls == 2
    assert shared.sequences.info.sequences == 1
    options = several[0].options
    assert options is not None
    assert options.draft_model == small
    assert several[0].to_async()._host.load.options.draft_model == small


def test_a_draft_model_of_another_vocabulary_is_refused(folders: tuple[Path, Path, Path]) -> None:
    large, small, other = folders
    with pytest.raises(
        ModelError, match=r"other does not match large: token 0 is '<pad>', but '<\|endof"
    ):
        structgen.load(large, draft_model=other)
    for options in ({"draft_tokens": 3}, {"draft_model": small, "draft_tokens": 0}):
        with pytest.raises(OptionError, match="draft_tokens="):
            structgen.load(large, **options)
    with pytest.raises(structgen.errors.ModelNotFound, match="no-such-draft"):
        structgen.load(large, draft_model="no-such-draft")


def test_vocabularies_that_differ_in_padding_fit() -> None:
    def vocabulary(size: int, last: str = "<a>") -> Vocabulary:
        names = {"<e>": 2, last: 3}
        return Vocabulary.from_tokens([b"a", b"b", b"", b""], [2], size, [3], names)

    assert opening.first_difference(vocabulary(SIZE), vocabulary(4)) is None
    assert opening.first_difference(vocabulary(4), vocabulary(9, "<b>")) == (3, b"<a>", b"<b>")


def test_a_runner_and_an_asynchronous_model_have_one(
    folders: tuple[Path, Path, Path], cheap: None
) -> None:
    large, small, other = folders
    given: dict[str, Any] = {"source": large, "draft_model": small, "draft_tokens": 4}
    with Runner({"it": {**given, "in_process": True}}) as runner:
        answer = runner.complete(
            prompt=ASKED["prompt"], max_tokens=60, output_type=TYPE, model="it"
        )
        details = answer.usage.completion_tokens_details
        assert details is not None
        assert details.accepted_prediction_tokens > 5

    async def refused() -> None:
        with pytest.raises(ModelError, match="does not match"):
            await AsyncModel.load(large, LoadOptions(draft_model=other), in_process=True)

    asyncio.run(refused())
    for wrong in ({"draft_model": "no-such-draft"}, {"source": structgen.load(small)}):
        with pytest.raises((OptionError, structgen.errors.ModelNotFound), match="draft"):
            ModelConfig(**{**given, **wrong})


def test_a_real_model_differs_by_the_rounding_of_passes_alone(
    model: TextModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is its own draft model, and passes for a cheap one."""
    monkeypatch.setattr(model, "draft", DraftModel(model, cost=0.05))
    monkeypatch.setattr(TextModel, "pace", replace(ON_CPU, token=0.05))
    prompt = [{"role": "user", "content": "Invent a ship, as JSON."}]
    with_, without = (
        Generator(model, Ship).result(prompt, max_new_tokens=40, speculate=guesses)
        for guesses in (True, False)
    )
    assert gap(model, prompt, with_, without) < TIE
    assert with_.usage.accepted_tokens > with_.usage.guessed_tokens / 2 > 5
