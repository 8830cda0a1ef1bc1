"""Deciders on the default model: against teacher-forced sums, and the same numbers every time."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from teacher_forced import masses, random_labels

from structgen.decisions import Choice, Decider, Predicate, Score

undebiased = partial(Decider, debias="none")
"""What the model gives by itself."""

STATE = "I was charged twice for my subscription. Please give me the money back."
QUESTIONS = {
    "refund": Predicate("Does the customer ask for a refund?"),
    "team": Choice("Which team?", {"billing": "payments", "billing support": None, "Zürich": None}),
    "anger": Score("How angry is the customer?", ["calm", "annoyed", "furious"]),
}


@pytest.mark.parametrize(
    "labels",
    [
        ["1", "10", "12"],
        ["bill", "bills", "tech"],
        ["Zür", "zu", "да"],
        ["not", "not a", "no"],
        *(labels for labels in map(random_labels, range(40)) if max(map(len, labels)) <= 5),
    ],
)
def test_labels_against_teacher_forced_sums(model, labels):
    decider = undebiased(model)
    question = Choice("Which fits best?", labels)
    answer = decider.decide(STATE, {"q": question})["q"]
    texts = [decider.template.before_label + label for label in labels]
    exact, _ = masses(model, decider.prompt_ids(STATE, question), texts, decider.template.ends)
    shares = exact / exact.sum()
    assert np.abs(shares - answer.label_probabilities).max() <= answer.error_bound + 1e-5
    assert answer.error_bound <= 0.01
    assert answer.mass <= exact.sum() * (1 + 1e-4)


def test_the_same_numbers_alone_together_warm_and_cold(model):
    decider = undebiased(model)
    model.sequences.clear()
    together = decider.decide(STATE, QUESTIONS)
    warm = decider.decide(STATE, QUESTIONS)
    (_, in_batch) = decider.decide_batch(["Another state.", STATE], QUESTIONS)
    for name, question in QUESTIONS.items():
        model.sequences.clear()
        alone = decider.decide(STATE, {"only": question})["only"]
        assert alone == together[name] == warm[name] == in_batch[name]
    assert warm.usage.run_tokens < together.usage.run_tokens


def test_a_long_state_is_read_once(model):
    state = "The parcel is late again. " * 30
    questions = {f"q{i}": Predicate(f"{word}?") for i, word in enumerate("ABCDEFGHIJ")}
    model.sequences.clear()
    usage = undebiased(model).decide(state, questions).usage
    n_state = len(model.encode(state))
    assert usage.run_tokens < n_state + 100 + len(questions) * 60
    assert usage.passes - usage.label_passes == len(questions)


def test_a_name_loads_a_model(monkeypatch):
    from structgen.models import genai

    asked = []

    def load(folder, **options):
        asked.append(folder)
        raise RuntimeError("enough")

    monkeypatch.setattr(genai, "load", load)
    with pytest.raises(RuntimeError, match="enough"):
        undebiased("smollm2-135m-instruct")
    assert isinstance(asked[0], Path)
