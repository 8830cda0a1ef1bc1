"""A deterministic model: one output, however its passes are cut."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np
import pytest
from pydantic import BaseModel, Field
from rounding import TIE, gap

import structgen
from structgen import Generator, TextModel
from structgen.models.genai.sequences import LiveSequence

NAMES = ("Ada Lovelace of London", "Maria Gonzalez of Valparaiso", "Jan Novak of Prague")
WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"forced": False},
    {"speculate": False},
    {"logprobs": True},
    {"forced": False, "logprobs": True},
)


class Letter(BaseModel):
    writer: Annotated[str, Field(max_length=40)]
    city: Annotated[str, Field(max_length=40)]
    mood: Annotated[str, Field(max_length=40)]


@pytest.fixture(scope="module")
def model() -> Iterator[TextModel]:
    loaded = structgen.load("smollm2-135m-instruct", deterministic=True)
    yield loaded
    loaded.close()


def scores_of(model: TextModel, ids: Any, cut: int) -> Any:
    """The scores after ``ids``, of which the last ``cut`` have a pass of their own."""
    sequence = model.start(len(ids))
    sequence.append(ids[:-cut])
    sequence.append(ids[-cut:])
    scores = sequence.logits()
    sequence.close()
    return scores


def test_no_pass_runs_over_one_token(model: TextModel, monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[int] = []
    run = LiveSequence.run

    def watched(self: LiveSequence, *args: Any) -> None:
        run(self, *args)
        passes.append(self.last_pass)

    monkeypatch.setattr(LiveSequence, "run", watched)
    for options in WAYS:
        prompt = f"Who wrote? It was {NAMES[0]}. As JSON: "
        Generator(model, Letter)(prompt, max_new_tokens=60, **options)
    assert len(passes) > 50
    assert 1 not in passes


def test_an_output_is_the_same_however_it_is_made(model: TextModel) -> None:
    generator = Generator(model, Letter)
    prompts = [f"A letter by {name}, in good spirits. As JSON: " for name in NAMES]
    ids = np.array(model.encode(prompts[0]), np.int32)
    agrees = all(
        np.array_equal(scores_of(model, ids, 2), scores_of(model, ids, cut)) for cut in (3, 4)
    )
    together = generator.result(prompts, max_new_tokens=60, batch_size=3)
    for prompt, in_list in zip(prompts, together, strict=True):
        made = [generator.result(prompt, max_new_tokens=60, **options) for options in WAYS]
        for other in (*made[1:], in_list):
            assert agrees <= (other.token_ids == made[0].token_ids)
            assert gap(model, prompt, made[0], other) < TIE
        forced, single = ([one.unmasked_logprob for one in way.logprobs] for way in made[-2:])
        assert agrees <= (forced == single)
