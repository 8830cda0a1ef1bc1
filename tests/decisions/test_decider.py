"""Deciders on a tiny model: every label by full enumeration, what is read once, and all errors."""

from __future__ import annotations

import enum
import gc
import itertools
import threading
import warnings
import weakref
from dataclasses import replace
from functools import partial
from typing import Annotated, Literal

import numpy as np
import pytest
from fakes import END, END_TOO, TOKENS, FakeModel, FakeSequence
from pydantic import BaseModel, Field, field_validator

from structgen import errors
from structgen.decisions import (
    BASE,
    Calibration,
    Choice,
    Decider,
    Predicate,
    PromptTemplate,
    Score,
    answers_to_json,
    asking,
)
from structgen.decisions.answers import LEAST_MASS
from structgen.decisions.asking import Settings
from structgen.decisions.decider import MANY, _asker, begin
from structgen.decisions.questions import bare
from structgen.errors import OptionError, PromptError, UninformativeWarning
from structgen.models.base import run_passes, sharing

pytestmark = pytest.mark.filterwarnings("ignore::structgen.errors.UninformativeWarning")
"""What these tests ask of tiny models carries no signal."""

undebiased = partial(Decider, debias="none")
"""What the model gives by itself."""

SHORT = PromptTemplate("{state}|{question}|{options}|", separator=",", bare_option="{label}")
"""A template for a context of a few hundred bytes."""


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Ticket(BaseModel):
    urgent: bool = Field(description="Is it urgent?")
    team: Literal["billing", "tech"]
    colour: Annotated[Colour | None, Field(title="Colour?")]


def enumerated(model, prompt_ids, texts, ends):
    """The mass of each text, summed over every token sequence that spells it."""
    sequence = model.start(model.context_length, prefix=prompt_ids)
    sequence.append(prompt_ids)

    def weights():
        scores = sequence.logits()[0].astype(np.float64)
        found = np.exp(scores - scores.max())
        return found / found.sum()

    def spelt(rest, of_end):
        """Over all that spells ``rest``, and what ends it where that counts."""
        now = weights()
        if not rest:
            over = now[END] + now[END_TOO]
            return over + sum(now[TOKENS.index(end.encode())] for end in ends) if of_end else 1.0
        total = 0.0
        for token_id, token in enumerate(TOKENS):
            if token and rest.startswith(token):
                sequence.append([token_id])
                total += now[token_id] * spelt(rest[len(token) :], of_end)
                sequence.rewind(sequence.length - 1)
        return total

    return np.array(
        [
            spelt(text.encode(), any(o != text and o.startswith(text) for o in texts))
            for text in texts
        ]
    )


@pytest.mark.parametrize("script", [None, "goods", "true"])
@pytest.mark.parametrize(
    "options",
    [
        ["good", "bad"],
        ["good", "goods", "goo", "true"],
        ["12", "1", "122", "2024"],
        ["é", "élan", "€"],
        ["no", "no.", "nothing"],
    ],
)
def test_every_label_by_full_enumeration(script, options):
    model = FakeModel(script)
    decider = undebiased(model, template=SHORT, tolerance=0)
    question = Choice("q?", options)
    answer = decider.decide("s", {"q": question})["q"]
    prompt_ids = decider.prompt_ids("s", question)
    masses = enumerated(model, prompt_ids, options, SHORT.ends)
    if "no." in options:  # "no" ends there, too, unless it goes on as the other
        masses[0] -= masses[1]
    assert answer.label_probabilities == pytest.approx(masses / masses.sum(), rel=1e-6)
    assert answer.mass == pytest.approx(masses.sum(), rel=1e-6)
    assert answer.error_bound == pytest.approx(0, abs=1e-12)
    rough = undebiased(model, template=SHORT, tolerance=0.05).decide("s", {"q": question})["q"]
    off = np.abs(np.array(rough.label_probabilities) - answer.label_probabilities).max()
    assert off <= rough.error_bound <= 0.05


@pytest.mark.parametrize("end", [".", "..", ".\n"])
def test_a_label_ends_though_what_ends_it_begins_another(end):
    model = FakeModel()
    template = replace(SHORT, ends=(end,))
    decider = undebiased(model, template=template, tolerance=0)
    question = Choice("which?", ["1", "1.5"])
    sequence = model.start(model.context_length)
    sequence.append(decider.prompt_ids("s", question))

    def chance(*path):
        """Of these tokens, and all that may end the output where the last is None."""
        found = 1.0
        start = sequence.length
        for token in path:
            scores = np.exp(sequence.logits()[0].astype(np.float64))
            ids = [END, END_TOO] if token is None else [TOKENS.index(token)]
            found *= scores[ids].sum() / scores.sum()
            sequence.append(ids[:1])
        sequence.rewind(start)
        return found

    last = end[1:].encode() or None
    one = chance(b"1", None) + chance(b"1", b".", last)
    mass = one + chance(b"1", b".", b"5")
    answer = decider.decide("s", {"q": question})["q"]
    assert answer.mass == pytest.approx(mass)
    assert answer.probability == pytest.approx(one / mass)


def test_255_options():
    model = FakeModel(context_length=4000)
    decider = undebiased(model, template=SHORT, tolerance=0)
    options = [str(i) for i in range(1, 256)]
    question = Choice("which?", options)
    answer = decider.decide("s", {"q": question})["q"]
    masses = enumerated(model, decider.prompt_ids("s", question), options, SHORT.ends)
    assert answer.label_probabilities == pytest.approx(masses / masses.sum(), rel=1e-6)


def test_answers_of_each_kind():
    decider = undebiased(FakeModel(" Yes"), template=SHORT)
    answers = decider.decide(
        {"a": [1, None]},
        {
            "p": Predicate("so?"),
            "c": Choice("which?", [True, False]),
            "s": Score("how?", ["low", "mid", "high"]),
        },
    )
    assert list(answers) == ["p", "c", "s"]
    p, c, s = answers["p"], answers["c"], answers["s"]
    assert p.probabilities == {True: p.probability, False: 1 - p.probability}
    assert p.choice is (p.probability >= 0.5)
    assert p.probability == p.label_probabilities[0]
    assert set(c.probabilities) == {True, False}
    assert list(c.probabilities.values()) == sorted(c.probabilities.values(), reverse=True)
    assert c.choice == next(iter(c.probabilities))
    assert c.margin == pytest.approx(abs(c.probabilities[True] - c.probabilities[False]))
    assert list(s.probabilities) == ["low", "mid", "high"]
    assert s.score == pytest.approx(s.probabilities["mid"] + 2 * s.probabilities["high"])
    assert s.choice == s.labels[s.level]
    for answer in answers.values():
        assert sum(answer.label_probabilities) == pytest.approx(1)
        assert 0 <= answer.confidence <= 1
        assert 0 < answer.mass <= 1
    assert replace(s, labels=tuple("abcde"), label_probabilities=(0.2,) * 5).confidence == 0
    yes, no = p.label_probabilities
    shown = f"PredicateAnswer({p.choice}, {{'Yes': {yes:.3f}, 'No': {no:.3f}}}"
    assert repr(replace(p, informative=True)) == f"{shown})"
    assert repr(replace(p, informative=False)) == f"{shown}, informative=False)"
    assert repr(c).startswith(f"ChoiceAnswer({c.choice}, {{'true': ")
    assert repr(s).startswith(f"ScoreAnswer({s.choice!r}, {{'low': ")
    assert repr(replace(p, abstained=True)).startswith("PredicateAnswer(None, {")
    assert answers.trace["c"] == ('{"a": [1, null]}|which?|true,false|',)
    with pytest.raises(KeyError, match="is not a question here"):
        answers["x"]


def test_a_decider_abstains_by_itself_unless_a_call_says_otherwise():
    asked = {"so": Predicate("Q?"), "which": Choice("Q?", ["a", "b"])}
    model = FakeModel(context_length=1000)

    def abstained(default, **options):
        decider = Decider(model, abstain_below=default).calibrated()
        return decider.decide("s", asked, **options).abstained

    assert abstained(1) == ("so", "which")
    assert abstained({"which": 1, "not asked here": 0.5}) == ("which",)
    assert abstained(1, abstain_below=0) == ()
    assert abstained({"which": 1}, abstain_below={"so": 1}) == ("so",)
    assert Decider(model, abstain_below=1).decide_batch(["s"], asked)[0].abstained
    for wrong in (2, "0.5", {"so": True}):
        with pytest.raises(OptionError, match="abstain_below"):
            Decider(model, abstain_below=wrong)


def test_a_class_becomes_questions_and_an_instance():
    decider = undebiased(FakeModel(), template=SHORT)
    answers = decider.decide("text", Ticket)
    value = answers.value
    assert isinstance(value, Ticket)
    assert value.urgent == answers["urgent"].choice
    assert value.team == answers["team"].choice
    assert set(answers["colour"].probabilities) == {Colour.RED, Colour.GREEN, None}
    assert "Is it urgent?" in answers.trace["urgent"][0]
    assert "|team|billing,tech|" in answers.trace["team"][0]
    assert "|Colour?|red,green,null|" in answers.trace["colour"][0]
    unsure = decider.decide("text", Ticket, abstain_below={"team": 1.0})
    assert unsure.abstained == ("team",)
    assert unsure["team"].choice is None
    with pytest.raises(errors.Abstained, match="not sure enough about: team"):
        _ = unsure.value
    with pytest.raises(OptionError, match="did not come from a class"):
        _ = decider.decide("text", {"q": Predicate("so?")}).value


def test_what_no_class_can_ask():
    class Free(BaseModel):
        name: str

    class Single(BaseModel):
        only: Literal["a"]

    class Empty(BaseModel):
        pass

    decider = undebiased(FakeModel(), template=SHORT)
    for cls, message in (
        (Free, "'name' of Free"),
        (Single, "only one value"),
        (Empty, "no fields"),
    ):
        with pytest.raises(OptionError, match=message):
            decider.decide("text", cls)


def test_a_validator_of_the_class_has_the_last_word():
    class Checked(BaseModel):
        team: Literal["a", "b"]

        @field_validator("team")
        @classmethod
        def refuse(cls, value: str) -> str:
            raise ValueError("never")

    answers = undebiased(FakeModel(), template=SHORT).decide("text", Checked)
    with pytest.raises(ValueError, match="never"):
        _ = answers.value


def test_the_state_is_read_once():
    model = FakeModel(context_length=2000)
    decider = undebiased(model, template=SHORT)
    state = "x" * 600
    questions = {f"q{i}": Predicate(f"{i} so?", yes="a", no="b") for i in range(20)}
    found = decider.decide(state, questions)
    assert len(model.started) == 1
    assert model.started[0].closed
    each = len("|00 so?|a,b|") + 1
    assert found.usage.run_tokens <= 600 + 20 * each + found.usage.label_passes * 2
    # One pass for each question; labels of one token take none.
    assert found.usage.label_passes == 0
    assert found.usage.passes == 20
    # Questions that begin alike share that, too.
    alike = {f"q{i}": Predicate(f"the very same words {i}?", yes="a", no="b") for i in range(20)}
    more = decider.decide(state, alike)
    assert more.usage.run_tokens <= 600 + 20 + 20 * len("19?|a,b|")


@pytest.mark.parametrize("debias", ["none", "prior", "contextual"])
def test_numbers_do_not_depend_on_company(debias):
    decider = Decider(FakeModel(), template=SHORT, debias=debias)
    questions = {
        "a": Choice("which?", ["one", "two", "three"]),
        "b": Predicate("so?"),
        "c": Choice("which one?", ["one", "two", "three"]),
        "d": Score("how?", ["low", "high"]),
    }
    together = decider.decide("s1", questions)
    turned = decider.decide("s1", dict(reversed(questions.items())))
    batch = decider.decide_batch(["s2", "s1"], questions)
    for name, question in questions.items():
        alone = Decider(FakeModel(), template=SHORT, debias=debias).decide("s1", {"q": question})
        assert alone["q"] == together[name] == turned[name] == batch[1][name]
    assert batch[0]["a"] != batch[1]["a"]


def test_a_prior_is_divided_out_and_read_once():
    model = FakeModel()
    question = Choice("which?", ["one", "two"])
    plain = undebiased(model, template=SHORT, tolerance=0)
    told = plain.decide("s", {"q": question})["q"].label_probabilities
    prior = plain.decide("N/A", {"q": question})["q"].label_probabilities
    decider = Decider(model, template=SHORT, debias="prior", tolerance=0)
    first = decider.decide("s", {"q": question})
    ratios = np.array(told) / np.maximum(prior, 0.05)
    assert first["q"].label_probabilities == pytest.approx(ratios / ratios.sum())
    assert len(first.trace["q"]) == 2
    again = decider.decide("s", {"q": question})
    assert again["q"] == first["q"]
    assert again.usage.passes < first.usage.passes


def test_a_prior_is_read_anew_with_another_adapter_of_the_same_name():
    model = FakeModel()
    model.adapters = ("a",)
    decider = Decider(model, template=SHORT, adapter="a", debias="prior")
    question = {"q": Choice("which?", ["good", "bad"])}
    for loads, n_prompts in ((1, 2), (1, 1), (2, 2)):
        model.adapter_loads = loads
        usage = decider.decide("s", question).usage
        assert usage.passes - usage.label_passes == n_prompts


def test_nothing_tells_one_owner_what_another_has_asked():
    """Who asked what another had asked was told of fewer tokens, and at once."""
    model, question = FakeModel(), {"q": Choice("which?", ["one", "two"])}

    def usage(owner):
        with sharing(owner):
            return run_passes(begun(model, "s", question, Settings(SHORT))).usage

    first, same, again = usage("a"), usage("b"), usage("a")
    assert same == first
    assert again.passes < first.passes


def test_states():
    decider = undebiased(FakeModel(), template=SHORT)
    question = {"q": Predicate("so?")}

    def shown(state):
        return decider.decide(state, question).trace["q"][0].split("|")[0]

    assert shown("text {question}") == "text {question}"
    assert shown(None) == "null"
    assert shown(["é", 1]) == '["é", 1]'
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}]
    assert shown(messages) == "user: Hi\nassistant: Yes?"
    assert shown([{"role": "user"}]) == '[{"role": "user"}]'
    for bad, message in (
        (object(), "is not valid JSON"),
        (float("nan"), "is not valid JSON"),
        ("a\0b", "NUL"),
        ("\ud800", "surrogate"),
    ):
        with pytest.raises(PromptError, match=message):
            shown(bad)
    with pytest.raises(PromptError, match="The prompt has"):
        shown("x" * 300)


@pytest.mark.parametrize("is_chat", [False, True])
def test_a_state_that_cannot_fit_is_refused_before_it_is_encoded(monkeypatch, is_chat):
    lengths, encode = [], FakeModel.encode
    monkeypatch.setattr(
        FakeModel, "encode", lambda self, text: lengths.append(len(text)) or encode(self, text)
    )
    model = FakeModel()
    template = replace(SHORT, is_chat=is_chat)
    with pytest.raises(PromptError, match=r"at least [\d,]+ tokens"):
        undebiased(model, template=template).decide(
            "x" * (100 * model.context_length), {"q": Predicate("so?")}
        )
    assert max(lengths, default=0) < 100 * model.context_length


def test_chat_templates_get_messages():
    decider = undebiased(FakeModel(context_length=1000))
    shown = decider.decide("It broke.", {"q": Choice("Who?", {"a": "first", "b": None})}).trace["q"]
    assert shown[0].startswith("[user]")
    assert shown[0].endswith("written.\n[assistant]Answer:")
    assert "- a: first\n- b\n" in shown[0]
    template = PromptTemplate(
        "{state}{question}{options}", system="Be brief.", is_chat=True, answer="It is"
    )
    decider = undebiased(FakeModel(), template=template)
    shown = decider.decide("s", {"q": Predicate("so?")}).trace["q"]
    assert shown == ("[system]Be brief.\n[user]sso?- Yes\n- No\n[assistant]It is",)


def test_a_base_model_gets_text():
    class Base(FakeModel):
        def apply_chat_template(self, messages, *, tools=None):
            raise PromptError("no template")

    assert undebiased(Base()).template is BASE


class Cancelled:
    def __init__(self, after):
        self.left = after

    def is_set(self):
        self.left -= 1
        return self.left < 0


def begun(model, state, questions, settings):
    sent = {name: bare(question) for name, question in questions.items()}
    return begin(model, state=state, questions=sent, settings=settings, is_bound=False, orders={})


def test_many_questions_are_taken_one_by_one(monkeypatch):
    """Others have a pass between them: there may be thousands in one request."""
    made = []
    prior = asking._Prior
    monkeypatch.setattr(asking, "_Prior", lambda question: made.append(question) or prior(question))
    questions = {str(i): Choice(f"{i}?", ["a", "b"]) for i in range(50)}
    passes = begun(FakeModel(), "s", questions, Settings(SHORT, debias="prior"))
    for number in range(1, 51):
        next(passes)
        assert len(made) == number
    passes.close()


def test_a_call_can_be_given_up():
    model = FakeModel()
    decider = undebiased(model, template=SHORT)
    question = {"q": Choice("which?", ["one", "two"])}
    for after in range(3):
        with pytest.raises(errors.IncompleteOutput, match="it was cancelled"):
            decider.decide("s", question, cancel=Cancelled(after))
        assert all(sequence.closed for sequence in model.started)
    with pytest.raises(errors.IncompleteOutput, match="it timed out"):
        decider.decide("s", question, timeout=1e-9)
    event = threading.Event()
    assert decider.decide("s", question, timeout=100, cancel=event)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Predicate(" "), "Predicate: the question is ' '"),
        (lambda: Predicate("q", yes="No"), "two options have the text 'No'"),
        (lambda: Choice("q", {"a", "b"}), "a set, which has no order"),
        (lambda: Choice("q", ["a"]), "A Choice has 1 option. Pass 2 to 1,000"),
        (lambda: Choice("q", map(str, range(1001))), "has 1,001 options"),
        (lambda: Choice("q", ["a", "a"]), "have the text 'a'"),
        (lambda: Choice("q", [True, "true"]), "have the text 'true': True and 'true'"),
        (lambda: Choice("q", ["a", " b"]), "begins or ends with spaces"),
        (lambda: Choice("q", ["a", ""]), "not text"),
        (lambda: Choice("q", ["a", object()]), "no plain text"),
        (lambda: Choice("q", {"a": 1, "b": None}), "description of 'a' is 1"),
        (lambda: Choice("q", "ab"), "The options are 'ab'"),
        (lambda: Choice("q", str), "The options are <class 'str'>"),
        (lambda: Score("q", ["a"]), "A Score has 1 level. Pass 2 to 100"),
        (lambda: Score("q", "low"), "levels of a Score are 'low'"),
        (lambda: PromptTemplate("{question}{options}"), "must have {state} and {question}"),
        (lambda: PromptTemplate("{state}{question}"), "must contain {options}"),
        (lambda: PromptTemplate("{state}{question}{options}", system="x"), "is not a chat"),
        (lambda: Decider(FakeModel(), debias="all"), "Pass 'none' or 'prior' or 'contextual'"),
        (lambda: undebiased(FakeModel(), tolerance=1), "out of range"),
        (lambda: undebiased(FakeModel(), adapter="x"), "adapter='x' is not loaded"),
        (lambda: undebiased(FakeModel(), template="x"), "not a PromptTemplate"),
        (lambda: undebiased(FakeModel()).decide("s", {}), "There are no questions"),
        (
            lambda: undebiased(FakeModel()).decide("s", [Predicate("q")]),
            "mapping of name to question",
        ),
        (lambda: undebiased(FakeModel()).decide("s", {"q": "so?"}), "The question 'q' is 'so?'"),
        (
            lambda: undebiased(FakeModel()).decide_batch("s", {"q": Predicate("q")}),
            "list of states",
        ),
        (
            lambda: undebiased(FakeModel()).decide("s", {"q": Predicate("q")}, abstain_below=2),
            "abstain_below=2 is out of range",
        ),
        (
            lambda: undebiased(FakeModel()).decide(
                "s", {"q": Predicate("q")}, abstain_below={"x": 1}
            ),
            "'x', which is not a question",
        ),
    ],
)
def test_errors_say_what_is_wrong(make, message):
    with pytest.raises(OptionError) as caught:
        make()
    assert message in str(caught.value)


def test_options_of_all_sorts():
    def texts(options):
        return [label.text for label in Choice("q", options).labels]

    assert texts(Literal["a", 1, None]) == ["a", "1", "null"]
    assert texts(Colour) == ["red", "green"]
    assert texts(bool) == ["true", "false"]
    assert texts(Colour | None) == ["red", "green", "null"]
    assert texts({"a": "one", "b": None}) == ["a", "b"]
    assert len(texts(str(i) for i in range(1000))) == 1000
    assert [label.value for label in Score("q", {"low": "x", "high": None}).labels] == [0, 1]


# -- calibration ------------------------------------------------------------------------------


def examples(n=40):
    return [(f"s{i}", "one" if i % 3 else "two") for i in range(n)]


def test_calibration_is_bound_saved_and_applied(tmp_path):
    model = FakeModel()
    decider = undebiased(model, template=SHORT)
    question = Choice("which?", ["one", "two", "three"])
    made = decider.calibrate(question, examples(), bias=True)
    assert made.after.log_loss < made.before.log_loss
    assert made.before.n == made.after.n == 40
    path = tmp_path / "team.json"
    made.save(path)
    made.save(path)
    assert [one.name for one in tmp_path.iterdir()] == ["team.json"]
    assert Calibration.load(path) == made
    plain = decider.decide("s1", {"q": question, "r": Predicate("so?")})
    better = decider.calibrated(made).decide("s1", {"q": question, "r": Predicate("so?")})
    floored = np.maximum(plain["q"].label_probabilities, 0.001)
    scores = np.log(floored) / made.temperature + made.bias
    weights = np.exp(scores)
    assert better["q"].label_probabilities == pytest.approx(weights / weights.sum())
    assert better["r"] == plain["r"]
    # Another question, template or way of debiasing is not what it was made for.
    for other in (
        Decider(model, template=SHORT, debias="prior", calibrations=[made]),
        undebiased(model, template=PromptTemplate(SHORT.text + "!"), calibrations=[made]),
    ):
        without = Decider(model, template=other.template, debias=other.debias)
        assert (
            other.decide("s1", {"q": question})["q"] == without.decide("s1", {"q": question})["q"]
        )
    stranger = FakeModel()
    stranger.name = "another"
    with pytest.raises(OptionError, match="is for the model fake"):
        undebiased(stranger, template=SHORT).calibrated(made)


def test_calibration_refuses_what_it_cannot_use(tmp_path):
    decider = undebiased(FakeModel(), template=SHORT)
    question = Choice("which?", ["one", "two"])
    with pytest.raises(OptionError, match="There are 9 examples"):
        decider.calibrate(question, examples(9))
    with pytest.raises(OptionError, match="Example 0: the right answer 'three'"):
        decider.calibrate(question, [("s", "three")])
    with pytest.raises(OptionError, match="Example 0 is 's'"):
        decider.calibrate(question, ["s"])
    bad = tmp_path / "bad.json"
    for text in ("", "{}", "[]", '{"format": "structgen calibration 2"}'):
        bad.write_text(text)
        with pytest.raises(OptionError, match="not a calibration"):
            Calibration.load(bad)


def test_right_answers_may_be_values_or_texts():
    decider = undebiased(FakeModel(), template=SHORT)
    predicate = [(f"s{i}", i % 2 == 0) for i in range(12)]
    assert decider.calibrate(Predicate("so?"), predicate).before.n == 12
    score = [(f"s{i}", i % 2 if i % 4 else "low") for i in range(12)]
    assert decider.calibrate(Score("how?", ["low", "high"]), score).labels == ("low", "high")


def test_a_reliability_diagram(tmp_path, monkeypatch):
    decider = undebiased(FakeModel(), template=SHORT)
    made = decider.calibrate(Choice("which?", ["one", "two"]), examples())
    path = tmp_path / "plot.png"
    assert len(made.plot(path).axes) == 2
    assert path.read_bytes().startswith(b"\x89PNG")
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(OptionError, match=r"structgen\[plot\]"):
        made.plot()


def test_askers_are_made_and_forgotten_in_several_threads():
    """A look-up between another thread's, which has it forgotten, failed."""
    model = FakeModel()

    class Slow(Settings):
        __eq__ = Settings.__eq__

        def __hash__(self) -> int:  # others come in between, whenever Python runs
            for i in range(1, 20):
                _asker(model, Settings(SHORT, tolerance=i / 100))
            return hash((SHORT, self.tolerance))

    slow = Slow(SHORT, tolerance=0.5)
    assert _asker(model, slow).template == SHORT


def test_what_is_kept_for_a_model_goes_with_it():
    model = FakeModel()
    asked = begun(model, "x", {"q": Predicate("Is it?")}, Settings(SHORT))
    asked = begun(model, "x", {"q": Predicate("Is it?")}, Settings(SHORT))
    assert model._askers.cache_info().currsize == 1
    gone = weakref.ref(model)
    del model, asked
    gc.collect()
    assert gone() is None


# -- what carries no signal -------------------------------------------------------------------


class Biased(FakeModel):
    """Writes "a" or "b" after a prompt; by how much rather "a", a function of the prompt says."""

    def __init__(self, odds):
        super().__init__(context_length=1000)
        self.odds = odds

    def start(self, max_length, *, prefix=None, **options):
        sequence = BiasedSequence(self, max_length, None if prefix is None else len(prefix))
        self.started.append(sequence)
        return sequence


class BiasedSequence(FakeSequence):
    def logits(self):
        text = b"".join(TOKENS[i] for i in self._ids).decode()
        scores = np.full((1, len(TOKENS)), -30.0, np.float32)
        scores[0, [TOKENS.index(b"a"), TOKENS.index(b"b")]] = self.model.odds(text), 0
        return scores


SO = {"so": Predicate("so?", yes="a", no="b")}


def decider_of(odds, **options):
    return Decider(Biased(odds), template=SHORT, **options)


def told(call):
    """What a call gives, and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = call()
    assert all(one.category is UninformativeWarning for one in caught)
    return found, [str(one.message) for one in caught]


def test_an_answer_that_needs_no_state_is_marked_and_said_once():
    decider = decider_of(lambda text: 2.0 if text.startswith("deaf") else 1.9)
    answers, messages = told(lambda: decider.decide("deaf", SO))
    assert not answers["so"].informative
    assert answers_to_json(answers)["so"]["informative"] is False
    assert len(messages) == 1
    assert messages[0].startswith(
        "'so': with no state or a different one, the model's answer is nearly"
    )
    assert told(lambda: decider.decide_batch(["deaf", "deaf too"], SO))[1] == []
    assert told(lambda: decider_of(lambda text: 0.0, warn=False).decide("x", SO))[1] == []

    heard = decider_of(lambda text: 2.0 if text.startswith("heard") else 1.0)
    answers, messages = told(lambda: heard.decide("heard", SO))
    assert answers["so"].informative
    assert messages == []


@pytest.mark.parametrize("score", [-30.0, 5.0, 30.0])
def test_labels_that_the_model_would_never_write_carry_no_signal(score):
    class Other(Biased):
        def start(self, *args, **kwargs):
            sequence = super().start(*args, **kwargs)
            own = sequence.logits

            def logits():
                scores = own()
                scores[0, TOKENS.index(b"c")] = score  # what it would rather write
                return scores

            sequence.logits = logits
            return sequence

    model = Other(lambda text: 2.0 if text.startswith("heard") else 1.0)
    answers, messages = told(lambda: Decider(model, template=SHORT).decide("heard", SO))
    is_seen = score < 30
    assert (answers["so"].mass >= LEAST_MASS) is is_seen
    assert (answers["so"].no_signal == "") is is_seen
    assert answers["so"].informative is is_seen
    said = "'so': the labels have less than 0.001"
    assert [message.startswith(said) for message in messages] == [True] * (not is_seen)


@pytest.mark.parametrize("name", ["debias", "tolerance", "adapter", "template", "warn"])
def test_an_option_of_the_decider_is_sent_there(name):
    decider = undebiased(FakeModel(), template=SHORT)
    question = Predicate("so?")
    for call in (
        lambda **more: decider.decide("s", {"q": question}, **more),
        lambda **more: decider.decide_batch(["s"], {"q": question}, **more),
        lambda **more: decider.calibrate(question, [("s", True)] * 10, **more),
    ):
        with pytest.raises(OptionError, match=rf"{name}= .*Decider\(model, {name}=…\)"):
            call(**{name: None})
        with pytest.raises(
            OptionError, match=r"does not support stop=\. It supports .*timeout=, cancel="
        ):
            call(stop="x")


@pytest.mark.parametrize("n", [MANY - 1, MANY])
def test_many_states_with_one_answer_are_marked_and_said(n):
    def odds(text):  # all far from what is said without a state, in one direction
        return 2.0 + len(text) % 7 / 10 if text.startswith("state") else -1.0

    states = [f"state {i}" for i in range(n)]
    answers, messages = told(lambda: decider_of(odds).decide_batch(states, SO))
    assert all(one["so"].informative is (n < MANY) for one in answers)
    assert len(messages) == (n >= MANY)
    assert all("'so': all 20 states got 'a'." in one for one in messages)
    # One after the other, the answers stay what they are alone; the warning comes at the last.
    decider = decider_of(odds)
    answers, messages = told(lambda: [decider.decide(state, SO)["so"] for state in states])
    assert all(one.informative for one in answers)
    assert len(messages) == (n >= MANY)
    # The same state again is no further state.
    again = decider_of(odds)
    answers, messages = told(lambda: [again.decide("state", SO)["so"] for _ in range(3 * n)])
    assert messages == []
    # Nor is it said where one of them got another answer.
    mixed = decider_of(lambda text: -odds(text) if text.startswith("state 0") else odds(text))
    assert told(lambda: mixed.decide_batch(states, SO))[1] == []


def test_a_prior_of_three_texts_is_their_mean():
    odds = {"N/A": 1.0, "": 2.0, "[MASK]": -1.0, "s": 0.5}
    decider = decider_of(lambda text: odds[text.partition("|")[0]], tolerance=0)
    assert decider.debias is None
    answers = decider.decide("s", SO)
    prior = np.mean([1 / (1 + np.exp(-odds[name])) for name in ("N/A", "", "[MASK]")])
    given = 1 / (1 + np.exp(-0.5))
    expected = given / prior / (given / prior + (1 - given) / (1 - prior))
    assert answers["so"].probability == pytest.approx(expected)
    assert [prompt.partition("|")[0] for prompt in answers.trace["so"]] == [
        "s",
        "N/A",
        "",
        "[MASK]",
    ]
    assert decider.decide("s", SO).usage.passes < answers.usage.passes  # read once


def test_what_is_done_about_bias_unless_asked_otherwise():
    model = FakeModel()
    for question, debias in (
        (Choice("which?", ["one", "two"]), "prior"),
        (Score("how?", ["low", "high"]), "prior"),
        (Predicate("so?"), "contextual"),
    ):
        asked = {"q": question}
        unasked = Decider(model, template=SHORT).decide("s", asked)
        assert unasked["q"] == Decider(model, template=SHORT, debias=debias).decide("s", asked)["q"]


class Encodes(FakeModel):
    """Counts the prompts that are made tokens."""

    n_encoded = 0

    def encode(self, text):
        self.n_encoded += 1
        return super().encode(text)


def test_labels_have_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("structgen.decisions.asking.MOST_LABELS", 50)
    decider = Decider(FakeModel(context_length=4000))
    with pytest.raises(OptionError, match="bytes in total; the limit is 50"):
        decider.decide("x", {"which": Choice("Which?", ["a" * 30, "b" * 30])})
    decider.decide("x", {"which": Choice("Which?", ["a" * 10, "b" * 10])})


def test_others_have_a_pass_between_two_prompts(monkeypatch):
    questions = {f"q{i}": Choice(f"{i}?", ["a", "b", "c"]) for i in range(30)}
    settings = Settings(SHORT, debias="none")
    model = Encodes()
    passes = begun(model, "x", questions, settings)
    seen = [model.n_encoded]
    while not model.started:
        next(passes)
        seen.append(model.n_encoded)
    assert seen[-1] - seen[0] == 30
    assert max(b - a for a, b in itertools.pairwise(seen)) == 1
    passes.close()
    monkeypatch.setattr("structgen.decisions.asking.MOST_TOKENS", 100)
    with pytest.raises(PromptError, match="more than 100 tokens in total"):
        Decider(model, template=SHORT).decide("x", questions)


def test_labels_are_kept_by_the_bytes_they_hold(monkeypatch):
    """However many questions: many labels, or long ones, are as many bytes."""
    monkeypatch.setattr(asking, "KEPT_BYTES", 1 << 22)
    decider = undebiased(FakeModel(context_length=4000), template=SHORT)

    def n_kept():
        gc.collect()
        return sum(type(one) is asking.Texts for one in gc.get_objects())

    before = n_kept()
    for i in range(24):
        decider.decide("s", {"q": Choice("?", [f"{i}{j}" + "x" * 8 for j in range(40)])})
    assert 2 < n_kept() - before < 20


def test_ways_to_ask_share_what_is_kept(monkeypatch):
    """Each ``tolerance=`` had labels of its own, 16 of them a quarter of a gigabyte."""
    made = []

    class Texts(asking.Texts):
        def __init__(self, *given):
            super().__init__(*given)
            made.append(given)

    monkeypatch.setattr(asking, "Texts", Texts)
    model = FakeModel()
    question = {"q": Choice("?", ["a", "b"])}
    for debias, tolerance in itertools.product(("none", "prior"), range(9)):
        run_passes(begun(model, "s", question, Settings(SHORT, debias, tolerance / 10)))
    assert len(made) == 1
    kept, _ = asking._kept_of(model)
    assert len(kept) == 1 + 9  # the labels, and a prior for each tolerance


def test_no_labels_are_held_but_those_that_are_weighed(monkeypatch):
    """A request of 4 MB was a gigabyte of compiled labels, and another gigabyte beside it."""
    monkeypatch.setattr(asking, "KEPT_BYTES", 1)
    alive, most = weakref.WeakSet(), []

    class Texts(asking.Texts):
        def __init__(self, *given):
            super().__init__(*given)
            alive.add(self)
            gc.collect()
            most.append(len(alive))

    monkeypatch.setattr(asking, "Texts", Texts)
    decider = Decider(FakeModel(), template=SHORT, debias="prior")
    decider.decide("s", {f"q{i}": Choice("?", [f"{i}a", f"{i}b"]) for i in range(8)})
    assert len(most) >= 8
    assert max(most) <= 2
