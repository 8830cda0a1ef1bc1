"""Questions and answers in System One's form."""

from __future__ import annotations

import pytest
from fakes import FakeModel

from structgen.decisions import (
    Choice,
    Decider,
    Predicate,
    Score,
    answer_of_system_one,
    answers_to_json,
    question_of_system_one,
)
from structgen.errors import OptionError

pytestmark = pytest.mark.filterwarnings("ignore::structgen.errors.UninformativeWarning")
"""What these tests ask of tiny models carries no signal."""


def test_questions() -> None:
    of = question_of_system_one
    assert of("noul", "So?", None) == Predicate("So?")
    assert of("noul", "So?", {"false": {"or": 1}, "true": "if"}) == Predicate(
        "So?", criteria={True: "if", False: '{"or": 1}'}
    )
    assert of("noul", {"é": 1}, {"true": None}) == Predicate('{"é": 1}')
    assert of("choice", "Who?", {"a": None, "b": ["x"]}) == Choice(
        "Who?", {"a": None, "b": '["x"]'}
    )
    assert of("score", "How?", ["low", 2]) == Score("How?", ["low", "2"])
    with pytest.raises(OptionError):
        of("score", "How?", ["low", "low"])


def test_answers() -> None:
    asked = {
        "so": question_of_system_one("noul", "So?", None),
        "who": question_of_system_one("choice", "Who?", {"a": None, "b": None}),
        "how": question_of_system_one("score", "How?", ["low", "high"]),
    }
    made = answers_to_json(Decider(FakeModel()).decide("A state.", asked))
    told = {name: answer_of_system_one(one) for name, one in made.items()}
    assert told["so"] == {"type": "noul", "noul": made["so"]["probability"]}
    assert set(told["who"]) == {"type", "choice", "confidence", "probabilities"}
    assert set(told["who"]["probabilities"]) == {"a", "b"}
    assert told["who"]["choice"] == made["who"]["choice"]
    for order in ("ab", "ba"):
        one = answer_of_system_one(made["who"], dict.fromkeys(order))
        assert [*one["probabilities"]] == [*order]
    assert told["how"]["legend"] == {0: "low", 1: "high"}
    assert sum(told["how"]["probabilities"].values()) == pytest.approx(1)
    assert told["how"]["score"] == pytest.approx(told["how"]["probabilities"][1])
