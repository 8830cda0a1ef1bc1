"""Asynchronous deciders: a real model in its process gives the numbers of a Decider here."""

from __future__ import annotations

import asyncio
import enum
import pickle
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

import structgen
from structgen import AsyncModel, Generator
from structgen.decisions import AsyncDecider, Choice, Decider, Predicate, PromptTemplate, Score
from structgen.errors import IncompleteOutput, ModelError, OptionError, PromptError

pytestmark = pytest.mark.filterwarnings("ignore::structgen.errors.UninformativeWarning")
"""What these tests ask of tiny models carries no signal."""

STATE = "I was charged twice for my subscription. Please give me the money back."


class Team(enum.Enum):
    """Of this test alone: the model's process cannot import it."""

    BILLING = "billing"
    TECH = "tech support"


QUESTIONS = {
    "refund": Predicate("Does the customer ask for a refund?"),
    "team": Choice("Which team?", Team),
    "anger": Score("How angry is the customer?", ["calm", "annoyed", "furious"]),
}


class Ticket(BaseModel):
    urgent: bool = Field(description="Is it urgent?")
    team: Literal["billing", "tech"]


@pytest.fixture(scope="module")
def worker() -> Iterator[AsyncModel]:
    model = asyncio.run(structgen.load_async("smollm2-135m-instruct"))
    yield model
    asyncio.run(model.aclose())


@pytest.mark.parametrize("debias", ["none", "prior"])
def test_the_numbers_of_a_decider_here(model, worker, debias):
    here = Decider(model, debias=debias).decide(STATE, QUESTIONS)
    decider = AsyncDecider(worker, debias=debias)

    async def both() -> Any:
        return await asyncio.gather(
            decider.decide(STATE, QUESTIONS), decider.decide_batch(["Other.", STATE], QUESTIONS)
        )

    there, (_, in_batch) = asyncio.run(both())
    for name in QUESTIONS:
        assert there[name] == here[name] == in_batch[name]
    assert there["team"].choice in Team
    assert there.trace == here.trace
    assert there.usage.prompt_tokens >= here.usage.prompt_tokens - 200


def test_a_text_model_in_its_process_learns_from_vectors_too(worker, monkeypatch, tmp_path):
    monkeypatch.setattr("structgen.decisions.decider.FEWEST_A_LABEL", 5)
    embedder = structgen.load_embedder("all-minilm-l6-v2")
    short = PromptTemplate("{state}|{question}|{options}|")
    question = Predicate("A cat?")
    pairs = [
        (f"A {word}.", word.startswith("c"))
        for word in ["cat", "car", "dog", "cow", "egg", "cup", "fog", "ham", "cot", "hat"]
    ]
    made = asyncio.run(
        AsyncDecider(worker, template=short, debias="none", embedder=embedder).fit(question, pairs)
    )
    (learned,) = made.calibrations
    assert (learned.embedder, len(learned.weights)) == (embedder.name, 2)
    made.save(tmp_path / "cat.json")
    config = {"source": worker, "decider": tmp_path / "cat.json"}
    asked: Any = {"state": "A cat.", "questions": {"q": question}}
    with structgen.Runner({"cats": {**config, "embedder": embedder}, "none": config}) as runner:
        told = runner.decide(asked).value["q"]
        assert told == asyncio.run(made.decide("A cat.", {"q": question}))["q"]
        with pytest.raises(OptionError, match="requires vectors of all-minilm-l6-v2"):
            runner.load("none")


def test_others_have_passes_between(worker):
    decider = AsyncDecider(worker)
    long = "The parcel is late again. " * 20
    many = {f"q{i}": Predicate(f"Is it about topic {i}?") for i in range(8)}

    async def run() -> list[str]:
        ended: list[str] = []

        async def decided() -> None:
            await decider.decide(long, many)
            ended.append("decision")

        async def written() -> None:
            await Generator(worker, Literal["yes", "no"])("Late? ")
            ended.append("output")

        await asyncio.gather(decided(), written())
        return ended

    assert asyncio.run(run()) == ["output", "decision"]


def test_many_labels_are_sent_as_texts(worker, monkeypatch):
    """As objects, a hundred thousand of them held a server's event loop for half a second."""
    labels = {f"label {i}": None for i in range(1000)}
    questions = {f"q{i}": Choice("Which?", labels) for i in range(5)}
    calls = Counter[str]()

    async def run_errands(_: Any, errands: Any, **options: Any) -> Any:
        for errand in errands:
            pickle.dumps(errand, pickle.HIGHEST_PROTOCOL)
        raise Sent

    class Sent(Exception):
        pass

    monkeypatch.setattr("structgen.decisions.decider.run_errands", run_errands)
    sent = AsyncDecider(worker).decide(STATE, questions)
    sys.setprofile(lambda frame, event, _: calls.update([event] if event == "call" else []))
    try:
        with pytest.raises(Sent):
            sent.send(None)
    finally:
        sys.setprofile(None)
    assert calls["call"] < 1000


def test_a_class_comes_back_as_an_instance(worker):
    answers = asyncio.run(AsyncDecider(worker).decide(STATE, Ticket))
    assert isinstance(answers.value, Ticket)
    sure = asyncio.run(AsyncDecider(worker).decide(STATE, Ticket, abstain_below=1.0))
    assert sure.abstained == ("urgent", "team")


def test_a_calibration_is_that_of_a_decider_here(model, worker, tmp_path):
    question = Choice("Good or bad?", ["good", "bad"])
    examples = [(f"{word} day {i}", word) for i in range(5) for word in ("good", "bad")]
    decider = AsyncDecider(worker)
    there = asyncio.run(decider.calibrate(question, examples))
    assert there == Decider(model).calibrate(question, examples)
    plain = asyncio.run(decider.decide("A day.", {"q": question}))["q"]
    better = decider.calibrated(there)
    told = asyncio.run(better.decide("A day.", {"q": question}))["q"]
    assert told == Decider(model, calibrations=[there]).decide("A day.", {"q": question})["q"]
    assert told != plain
    turned = Choice("Good or bad?", ["bad", "good"])
    again = asyncio.run(better.decide("A day.", {"q": turned}))["q"]
    assert again.probabilities == told.probabilities
    assert again.labels == ("bad", "good")


def test_the_ends(worker):
    decider = AsyncDecider(worker)

    async def cancelled_task() -> None:
        task = asyncio.create_task(decider.decide(STATE * 20, QUESTIONS))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def cancelled_event() -> None:
        event = asyncio.Event()
        event.set()
        with pytest.raises(IncompleteOutput, match="it was cancelled"):
            await decider.decide(STATE * 20, QUESTIONS, cancel=event)

    asyncio.run(cancelled_task())
    asyncio.run(cancelled_event())
    with pytest.raises(IncompleteOutput, match=r"it timed out \(timeout=1e-06 seconds\)"):
        asyncio.run(decider.decide(STATE, QUESTIONS, timeout=1e-6))
    with pytest.raises(PromptError, match="8,192"):
        asyncio.run(decider.decide("long " * 9000, QUESTIONS))
    assert asyncio.run(decider.decide(STATE, QUESTIONS))["refund"].probability > 0


def test_errors_that_are_told_here(model, worker):
    with pytest.raises(ModelError, match="to_async"):
        AsyncDecider(model)
    with pytest.raises(OptionError, match="debias"):
        AsyncDecider(worker, debias="much")
    with pytest.raises(OptionError, match="load_adapter"):
        AsyncDecider(worker, adapter="none")
    decider = AsyncDecider(worker)
    with pytest.raises(OptionError, match="no questions"):
        asyncio.run(decider.decide(STATE, {}))
    with pytest.raises(OptionError, match="timeout"):
        asyncio.run(decider.decide(STATE, QUESTIONS, timeout=-1))
    with pytest.raises(OptionError, match="list of states"):
        asyncio.run(decider.decide_batch("text", QUESTIONS))


def test_a_template_travels(worker):
    mine = PromptTemplate("{state}|{question}|{options}|", bare_option="{label}", separator=",")
    decider = AsyncDecider(worker, template=mine, debias="none")
    told = asyncio.run(decider.decide("s", {"q": Choice("c?", ["a", "b"])}))
    assert told.trace["q"] == ("s|c?|a,b|",)
