"""Questions and answers as JSON, and the command that reads and writes them."""

from __future__ import annotations

import json

import pytest
from fakes import FakeModel

from structgen.cli import commands
from structgen.decisions import (
    Choice,
    Decider,
    Predicate,
    Score,
    answers_to_json,
    questions_from_json,
)
from structgen.errors import OptionError

pytestmark = pytest.mark.filterwarnings("ignore::structgen.errors.UninformativeWarning")
"""What these tests ask of tiny models carries no signal."""

QUESTIONS = {
    "refund": {"type": "predicate", "instructions": "A refund?"},
    "team": {
        "type": "choice",
        "instructions": "Which?",
        "options": {"billing": "money", "b": None},
    },
    "sure": {"type": "choice", "instructions": "Sure?", "options": [True, False]},
    "anger": {"type": "score", "instructions": "Angry?", "levels": ["calm", "furious"]},
}


def test_questions_and_answers():
    questions = questions_from_json(QUESTIONS)
    assert questions == {
        "refund": Predicate("A refund?"),
        "team": Choice("Which?", {"billing": "money", "b": None}),
        "sure": Choice("Sure?", [True, False]),
        "anger": Score("Angry?", ["calm", "furious"]),
    }
    answers = Decider(FakeModel(context_length=1000)).decide("s", questions)
    told = json.loads(json.dumps(answers_to_json(answers)))
    assert list(told) == list(QUESTIONS)
    assert told["refund"]["probability"] == answers["refund"].probability
    assert told["team"]["choice"] == answers["team"].choice
    assert {type(one["value"]) for one in told["sure"]["probabilities"]} == {bool}
    assert told["anger"]["score"] == answers["anger"].score
    assert [one["label"] for one in told["anger"]["probabilities"]] == ["calm", "furious"]


def test_criteria_of_a_predicate():
    given = {"type": "predicate", "instructions": "So?", "criteria": {"true": "so", "false": None}}
    assert questions_from_json({"q": given})["q"] == Predicate("So?", criteria={True: "so"})
    answers = Decider(FakeModel(context_length=1000)).decide("s", questions_from_json({"q": given}))
    assert "- Yes: so\n- No\n" in answers.trace["q"][0]


def test_openai_s_shape_means_the_same():
    theirs = {
        **QUESTIONS,
        "team": {
            "type": "choice",
            "instructions": "Which?",
            "choices": [{"value": "billing", "description": "money"}, {"value": "b"}],
        },
        "sure": {
            "type": "choice",
            "instructions": "Sure?",
            "choices": [{"value": True}, {"value": False, "description": None}],
        },
        "anger": {
            "type": "score",
            "instructions": "Angry?",
            "levels": [{"label": "calm"}, {"label": "furious"}],
        },
    }
    assert questions_from_json(theirs) == questions_from_json(QUESTIONS)
    named = [{"name": name, **question} for name, question in theirs.items()]
    assert questions_from_json(named) == questions_from_json(QUESTIONS)
    for wrong in ([named[0], named[0]], [{"type": "predicate", "instructions": "x"}], [3]):
        with pytest.raises(OptionError, match=r'questions\[[01]\] .*its own "name"'):
            questions_from_json(wrong)


def choice(**labels):
    return {"q": {"type": "choice", "instructions": "x", **labels}}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "not a JSON object"),
        ({"q": "so?"}, "The question 'q' has the type None"),
        ({"q": {"type": "noul"}}, "has the type 'noul'"),
        ({"q": {"type": "predicate"}}, "lacks 'instructions'"),
        ({"q": {"type": "predicate", "instructions": "x", "criteria": ["a"]}}, "criteria is ['a']"),
        (
            {"q": {"type": "predicate", "instructions": "x", "criteria": {"yes": "a"}}},
            "criteria is {'yes': 'a'}",
        ),
        ({"q": {"type": "choice", "instructions": "x"}}, "lacks 'options'"),
        ({"q": {"type": "predicate", "instructions": "x", "options": []}}, "has 'options'"),
        ({"q": {"type": "score", "instructions": "x", "levels": ["a"]}}, "'q': A Score has 1"),
        (
            choice(options=["a", "b"], choices=["a", "b"]),
            "has 'choices'. The keys of a choice are: inst",
        ),
        (
            choice(choices=[{"value": "a"}, "b"]),
            """choices[1] is 'b'. Pass objects such as {"val""",
        ),
        (choice(choices=[{"label": "a"}]), "choices[0] is {'label': 'a'}"),
        (choice(options=[{"value": "a", "about": 1}]), "options[0] is {'value': 'a', 'about': 1}"),
        (choice(choices=[{"value": "a"}] * 2), "choices[1]: the value 'a' is given twice"),
        (
            choice(choices=[{"value": ["a"]}]),
            "choices[0]: the value ['a'] is given twice, or is no",
        ),
    ],
)
def test_what_is_no_question(given, message):
    with pytest.raises(OptionError) as caught:
        questions_from_json(given)
    assert message in str(caught.value)


@pytest.fixture
def run(monkeypatch, capfd):
    monkeypatch.setattr(commands, "load", lambda name: FakeModel(context_length=1000))

    def run(*arguments):
        code = commands._run(["decide", *map(str, arguments)])
        return code, *capfd.readouterr()

    return run


def test_the_command(run, tmp_path):
    state, questions = tmp_path / "state.txt", tmp_path / "questions.json"
    state.write_text("Money back!", encoding="utf-8")
    questions.write_text(json.dumps(QUESTIONS), encoding="utf-8")
    code, out, err = run("--state", state, "--questions", questions, "--trace")
    assert code == 0
    assert list(json.loads(out)) == list(QUESTIONS)
    assert "Money back!" in err
    code, out, _ = run("--state", state, "--questions", questions, "--abstain-below", "1")
    assert json.loads(out)["team"]["choice"] is None

    decider = Decider(FakeModel(context_length=1000))
    made = decider.calibrate(Predicate("A refund?"), [(f"s{i}", i % 2 == 0) for i in range(20)])
    made.save(tmp_path / "refund.calibration.json")
    _, out, _ = run(
        *("--state", state, "--questions", questions),
        *("--calibration", tmp_path / "refund.calibration.json"),
    )
    expected = decider.calibrated(made).decide("Money back!", questions_from_json(QUESTIONS))
    assert json.loads(out)["refund"]["probability"] == expected["refund"].probability

    given = {
        "type": "predicate",
        "instructions": "x",
        "criteria": {"true": "money", "false": "fun"},
    }
    questions.write_text(json.dumps({"q": given}), encoding="utf-8")
    _, out, _ = run(*("--state", state, "--questions", questions, "--model", "all-minilm-l6-v2"))
    assert json.loads(out)["q"]["probability"] > 0.5

    for arguments, message in (
        (("--state", state, "--questions", state), "is not valid JSON"),
        (("--state", tmp_path / "no", "--questions", questions), "the file does not exist"),
        (
            ("--state", state, "--questions", questions, "--calibration", tmp_path / "no"),
            "No such file",
        ),
    ):
        code, _, err = run(*arguments)
        assert code == 1
        assert message in err
