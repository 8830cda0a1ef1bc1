"""Deciders whose answers come from vectors: compared with labels, or learned from examples."""

from __future__ import annotations

import asyncio
import json
import threading

import numpy as np
import pytest
from fakes import FakeModel

import structgen
from structgen import RequestError, Runner
from structgen.decisions import AsyncDecider, Choice, Decider, Predicate, PromptTemplate, Score
from structgen.decisions.calibration import _PENALTIES, _learned, fitted
from structgen.decisions.distributions import Distribution, softmax
from structgen.errors import IncompleteOutput, ModelError, OptionError, PromptError
from structgen.models.embedding import Embedder
from structgen.runner import ModelConfig
from structgen.workers import STRANGER, Stranger

pytestmark = pytest.mark.filterwarnings("ignore::structgen.errors.UninformativeWarning")

STATE = "I was charged twice for my subscription. Please give me the money back."
TEAM = Choice("Which team?", {"billing": "payments", "technical support": "crashes", "other": None})
REFUND = Predicate(
    "A refund?", criteria={True: "asks for money back", False: "asks for something else"}
)
QUESTIONS = {"team": TEAM, "refund": REFUND, "anger": Score("How angry?", ["calm", "furious"])}
PLACES = ["the house", "the shop", "the old mill", "her garden", "the station", "a boat", "school"]
EXAMPLES = [
    pair
    for place in [*PLACES, "the farm"]
    for pair in ((f"A cat sleeps in {place}.", True), (f"It rains on {place}.", False))
]
CAT = Predicate("Is there an animal?")


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return structgen.load_embedder("all-minilm-l6-v2")


@pytest.fixture(scope="module")
def learned(embedder) -> Decider:
    return Decider(embedder).fit(CAT, EXAMPLES)


def test_labels_by_the_cosine_of_what_is_said_of_them(embedder):
    answers = Decider(embedder).decide(STATE, QUESTIONS)
    assert answers["team"].choice == "billing"
    assert answers["refund"].choice is True
    assert answers["refund"].error_bound == 0
    assert answers.usage.prompt_tokens == answers.usage.run_tokens > 10
    assert answers.usage.passes == 1
    state, *said = answers.trace["team"]
    assert state == STATE
    assert said[0] == "This is billing: payments."
    assert said[-1] == "The text is about other."
    assert answers.trace["refund"][1] == "This is asks for money back."
    vectors = embedder.embed(said).reshape(3, 3, -1).mean(axis=1)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = softmax(20 * (vectors @ embedder.embed(STATE)[0]).astype(float))
    assert answers["team"].label_probabilities == pytest.approx(expected, abs=1e-4)


def test_the_same_numbers_alone_together_and_in_a_batch(embedder):
    decider = Decider(embedder)
    together = decider.decide(STATE, QUESTIONS)
    del vars(embedder)["_askers"]
    for name, question in QUESTIONS.items():
        assert Decider(embedder).decide(STATE, {"q": question})["q"] == together[name]
    (_, in_batch) = decider.decide_batch(["Another text.", STATE], QUESTIONS)
    assert dict(in_batch) == dict(together)


def test_nothing_tells_one_owner_what_another_has_asked(embedder, monkeypatch):
    embed, embedded = Embedder.embed, []
    monkeypatch.setattr(Embedder, "embed", lambda *a, **b: embedded.append(1) or embed(*a, **b))
    question = {"q": Choice("which?", ["of one owner", "of another"])}

    def n_embedded(owner):
        before, token = len(embedded), STRANGER.set(Stranger(owner))
        try:
            asyncio.run(AsyncDecider(embedder).decide(STATE, question))
        finally:
            STRANGER.reset(token)
        return len(embedded) - before

    assert [n_embedded(owner) for owner in "aba"] == [2, 2, 0]


def test_a_name_loads_an_embedder():
    decider = Decider("all-minilm-l6-v2", abstain_below=1.0)
    assert isinstance(decider.model, Embedder)
    assert decider.decide(STATE, {"team": TEAM})["team"].choice is None


def test_without_holding_up_the_loop(embedder, learned):
    decider = AsyncDecider(embedder, calibrations=learned.calibrations)
    asked = {**QUESTIONS, "cat": CAT}
    seen = []

    async def pause():
        seen.append(len(seen))

    async def work():
        (cat,) = await decider.decide_batch(["A cat."], asked)
        return cat, await decider.decide(STATE, asked, pause=pause)

    cat, told = asyncio.run(work())
    assert dict(told) == dict(learned.decide(STATE, asked))
    assert cat["cat"].choice is True
    assert seen
    event = threading.Event()
    event.set()
    with pytest.raises(IncompleteOutput, match="it was cancelled"):
        asyncio.run(decider.decide(STATE, asked, cancel=event))
    with pytest.raises(IncompleteOutput, match="it was cancelled"):
        learned.decide(STATE, asked, cancel=event)
    with pytest.raises(OptionError, match="yes and no mean"):
        asyncio.run(AsyncDecider(embedder).decide(STATE, asked))


def test_what_an_embedder_cannot_do(embedder):
    decider = Decider(embedder)
    with pytest.raises(OptionError, match=r"'so': an embedder cannot tell what yes and no mean"):
        decider.decide(STATE, {"so": Predicate("So?", criteria={True: "so"})})
    with pytest.raises(
        PromptError, match=r"The state has 502 tokens, but the limit of all-minilm-l6-v2 is"
    ):
        decider.decide("word " * 500, QUESTIONS)
    with pytest.raises(OptionError, match="debias= is for text models"):
        Decider(embedder, debias="prior")
    with pytest.raises(OptionError, match="embedder= requires a text model"):
        Decider(embedder, embedder="another")
    with pytest.raises(OptionError, match="embedder='x': pass"):
        Decider(FakeModel(), embedder="x")
    with pytest.raises(ModelError, match="load_embedder"):
        Decider(3)
    for wrong in ("yes", {"yes": "so"}, {1: "so"}):
        with pytest.raises(OptionError, match="criteria"):
            Predicate("So?", criteria=wrong)


# -- what is learned of examples ---------------------------------------------------------------


def test_texts_far_longer_than_it_reads_are_never_tokenized(embedder, monkeypatch):
    # A token of punctuation takes some 300 bytes: four megabytes held 1.2 GB, and the server.
    read, whole = [], Embedder.result

    def spy(self, texts, **options):
        read.extend([texts] if isinstance(texts, str) else texts)
        return whole(self, texts, **options)

    monkeypatch.setattr(Embedder, "result", spy)
    decider = Decider(embedder)
    with pytest.raises(PromptError, match=r"The state has 200,000 characters.*is 256 tokens"):
        decider.decide("!?" * 100_000, {"team": TEAM})
    long = Choice("Which team?", {"billing": "payments " * 20_000, "other": None})
    assert decider.decide(STATE, {"team": long})["team"].mass == 1
    assert max(map(len, read)) < 30_000


def test_a_question_is_learned_of_examples(embedder, learned):
    (made,) = learned.calibrations
    assert made.after.n == 16
    assert made.after.log_loss < made.before.log_loss == pytest.approx(np.log(2))
    assert made.embedder == embedder.name
    assert np.shape(made.weights) == (2, embedder.dimensions)
    for text, is_so in (("A cat sits by the door.", True), ("It rains on the road.", False)):
        answer = learned.decide(text, {"q": CAT})["q"]
        assert answer.choice is is_so
        assert answer.probabilities[is_so] > 0.7
    # What is known of labels is where it begins: other questions stay as they are.
    assert (
        learned.decide(STATE, QUESTIONS)["team"]
        == Decider(embedder).decide(STATE, QUESTIONS)["team"]
    )
    with pytest.raises(OptionError, match="yes and no mean"):
        learned.decide(STATE, {"q": Predicate("Is there a plant?")})


def test_too_little_to_learn_from(embedder):
    with pytest.raises(
        OptionError, match=r"There are 7 examples of 'No'. Fitting requires 8 of each"
    ):
        Decider(embedder).fit(CAT, EXAMPLES[:-1])
    with pytest.raises(OptionError, match=r"There are 2 examples of 'Yes'. Fitting requires 8 of"):
        Decider(embedder).fit(CAT, EXAMPLES[:4])
    with pytest.raises(OptionError, match=r"fit requires vectors: Decider\(model, embedder=…\)"):
        Decider(FakeModel()).fit(CAT, EXAMPLES)


def test_a_text_model_learns_from_vectors_too(embedder, tmp_path):
    template = PromptTemplate("{state}|{question}|{options}|")
    decider = Decider(FakeModel(), template=template, embedder=embedder, debias="none")
    learned = decider.fit(CAT, EXAMPLES)
    text = "A cat is in the tree."
    answer = learned.decide(text, {"q": CAT})["q"]
    assert answer.choice is True
    (made,) = learned.calibrations
    plain = np.log(np.maximum(decider.decide(text, {"q": CAT})["q"].label_probabilities, 0.001))
    scores = plain / made.temperature + made.bias
    scores += np.array(made.weights) @ embedder.embed(text)[0]
    assert answer.label_probabilities == pytest.approx(softmax(scores), abs=1e-6)
    learned.save(tmp_path / "cat.json")
    again = Decider.load(tmp_path / "cat.json", decider.model, embedder=embedder)
    assert (again.template, again.debias) == (template, "none")
    assert again.decide(text, {"q": CAT})["q"] == answer
    with pytest.raises(OptionError, match="requires vectors of all-minilm-l6-v2 with 384 numbers"):
        Decider.load(tmp_path / "cat.json", decider.model)


def test_a_decider_is_saved_and_loaded(embedder, learned, tmp_path):
    file = tmp_path / "cat.json"
    Decider(embedder, abstain_below={"q": 0.9}).calibrated(*learned.calibrations).save(file)
    again = Decider.load(file, embedder)
    assert again.calibrations == learned.calibrations
    assert again.abstain_below == {"q": 0.9}
    assert again.decide("A cat.", {"c": CAT})["c"] == learned.decide("A cat.", {"c": CAT})["c"]
    with pytest.raises(OptionError, match="is for the model all-minilm-l6-v2"):
        Decider.load(file, FakeModel())


RAIN = Predicate("Does it rain?")


@pytest.fixture(scope="module")
def folder(embedder, learned, tmp_path_factory):
    """Two heads of one embedder, a file each."""
    made = tmp_path_factory.mktemp("heads")
    learned.save(made / "cat.json")
    decider = AsyncDecider(embedder)
    swapped = [(text, not is_cat) for text, is_cat in EXAMPLES]
    asyncio.run(decider.fit(RAIN, swapped)).save(made / "rain.json")
    return made


def test_what_is_learned_without_holding_up_the_loop_is_the_same(embedder, learned, folder):
    made = asyncio.run(AsyncDecider(embedder).fit(CAT, EXAMPLES))
    assert made.calibrations == learned.calibrations
    (cat, rain) = AsyncDecider.load(folder, embedder).calibrations
    assert (cat, rain.question) == (made.calibrations[0], RAIN.instructions)
    with pytest.raises(OptionError, match="8 of each label"):
        asyncio.run(AsyncDecider(embedder).fit(CAT, EXAMPLES[:-1]))


def test_a_runner_decides_as_a_saved_decider_says(embedder, learned, folder, tmp_path):
    langchain = pytest.importorskip("langchain_core.decisions", reason="below 1.8")
    from structgen.integrations.langchain import StructgenDecisions

    asked = {"cat": CAT, "rain": RAIN, "team": TEAM}
    expected = Decider.load(folder, embedder).decide("A cat.", asked)
    configs = {"cats": {"source": embedder, "decider": folder}, "plain": embedder}
    with Runner(configs) as runner:
        made = runner.decide(state="A cat.", questions=asked)
        assert dict(made.value) == dict(expected)
        assert made.value["cat"] == learned.decide("A cat.", {"cat": CAT})["cat"]
        with pytest.raises(RequestError, match="the decider of cats sets it") as caught:
            runner.decide(state="A cat.", questions=asked, debias="none")
        assert caught.value.param == "debias"
        with pytest.raises(RequestError, match="yes and no mean"):
            runner.decide(state="A cat.", questions=asked, model="plain")
        model = StructgenDecisions(model="cats", runner=runner)
        noul = langchain.Noul(instructions=CAT.instructions)
        answer = model.invoke({"state": "A cat.", "questions": {"q": noul}})
        assert answer.nouls["q"].noul == made.value["cat"].probability
        saved = (folder / "cat.json").read_text(encoding="utf-8")
        other = tmp_path / "other.json"
        other.write_text(saved.replace(embedder.name, "another"), encoding="utf-8")
        runner.add_model("other", {"source": embedder, "decider": other})
        with pytest.raises(OptionError, match="is for the model another"):
            runner.load("other")
        assert runner.get_model_status("other") == "failed"


def test_a_server_is_told_of_saved_deciders_when_it_starts(embedder, folder):
    from structgen.server import Settings
    from structgen.server.serving import runner_of

    given = Settings.of({"embedders": ("cats=all-minilm-l6-v2",), "deciders": (f"cats={folder}",)})
    with runner_of(given) as runner:
        body = {"state": "A cat.", "questions": {"q": CAT}, "model": "cats"}
        expected = Decider.load(folder, embedder).decide("A cat.", {"q": CAT})
        assert dict(runner.decide(body).value) == dict(expected)
        with pytest.raises(RequestError, match="decider"):
            runner.decide({**body, "decider": str(folder)})
    for path, message in ((f"dogs={folder}", "no model 'dogs'"), ("cats=no", "No such file")):
        wrong = given.model_copy(update={"deciders": dict([path.split("=")])})
        with pytest.raises(OptionError, match=message):
            runner_of(wrong)


def test_the_command_line_takes_saved_deciders(embedder, folder, tmp_path):
    from click.testing import CliRunner

    from structgen.cli.commands import cli

    asked = tmp_path / "questions.json"
    asked.write_text(
        '{"cat": {"type": "predicate", "instructions": "Is there an animal?"}}', encoding="utf-8"
    )
    (tmp_path / "state.txt").write_text("A cat sleeps.", encoding="utf-8")
    command = ["decide", "--model", embedder.name, "--state", str(tmp_path / "state.txt")]
    command += ["--questions", str(asked), "--decider", str(folder)]
    made = CliRunner().invoke(cli, command)
    assert made.exit_code == 0, made.output
    expected = Decider.load(folder, embedder).decide("A cat sleeps.", {"cat": CAT})["cat"]
    assert json.loads(made.stdout)["cat"]["probability"] == pytest.approx(expected.probability)
    assert made.stderr == ""
    criteria = {"true": "animals", "false": "things"}
    other = {"type": "predicate", "instructions": "Is it an animal?", "criteria": criteria}
    asked.write_text(json.dumps({"cat": other}), encoding="utf-8")
    made = CliRunner().invoke(cli, command)
    assert (
        "The decider's training does not apply: it is about 'Does it rain?', 'Is there an animal?'."
        in made.stderr
    )
    made = CliRunner().invoke(cli, [*command, "--debias", "none"])
    assert "--decider includes these settings" in f"{made.output}{made.exception}"
    check = ["serve", "--check", "--embedder", f"cats={embedder.name}", "--decider"]
    assert CliRunner().invoke(cli, [*check, f"cats={folder}"]).exit_code == 0
    made = CliRunner().invoke(cli, [*check, f"dogs={folder}"])
    assert "there is no model 'dogs'" in f"{made.output}{made.exception}"


def test_files_that_are_no_one_decider(embedder, learned, folder, tmp_path):
    with pytest.raises(OptionError, match=r"none ends in \.json"):
        Decider.load(tmp_path, embedder)
    learned.save(tmp_path / "cat.json")
    learned.save(tmp_path / "same.json")
    with pytest.raises(OptionError, match="two files for one question"):
        Decider.load(tmp_path, embedder)
    Decider(embedder, abstain_below=0.9).save(tmp_path / "same.json")
    with pytest.raises(OptionError, match=r"same\.json differs from .*cat\.json"):
        Decider.load(tmp_path, embedder)
    for wrong, message in (
        ({"decider": tmp_path / "none"}, "none: No such file"),
        ({"decider": __file__}, "is not a decider"),
        ({"embedder": "all-minilm-l6-v2"}, "embedder= requires decider="),
    ):
        with pytest.raises(OptionError, match=message):
            ModelConfig(source=embedder, **wrong)
    config = {"source": embedder, "decider": folder, "embedder": embedder}
    with Runner({"cats": config}) as runner, pytest.raises(OptionError, match="requires a text"):
        runner.load()


def changed(*path, to):
    def change(saved):
        place = saved
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = to

    return change


FIRST = ("calibrations", 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed("format", to="structgen decider 2"), "its format is 'structgen decider 2'"),
        (changed("calibrations", to=3), "calibrations"),
        (changed(*FIRST, "temperature", to=0), "its numbers are out of range"),
        (changed(*FIRST, "temperature", to=1e-320), "its numbers are out of range"),
        (changed(*FIRST, "temperature", to="warm"), "temperature"),
        (changed(*FIRST, "bias", 0, to=float("nan")), "its numbers are out of range"),
        (changed(*FIRST, "weights", 1, 7, to=1e300), "its numbers are out of range"),
        (changed(*FIRST, "weights", 1, to=[0.5]), "its number of rows of weights differs"),
        (changed(*FIRST, "weights", to=[[0.5]]), "its number of rows of weights differs"),
        (changed(*FIRST, "labels", to=["Yes"]), "its number of biases differs"),
        (changed("settings", "debias", to="all"), "debias='all'"),
        (
            changed("settings", "template", to={"text": "{state}"}),
            "must have {state} and {question}",
        ),
        (changed("abstain_below", to=[]), "abstain_below"),
    ],
)
def test_what_a_stranger_has_written(change, message, embedder, learned, tmp_path):
    file = tmp_path / "cat.json"
    learned.save(file)
    saved = json.loads(file.read_text(encoding="utf-8"))
    change(saved)
    file.write_text(json.dumps(saved), encoding="utf-8")
    with pytest.raises(OptionError) as caught:
        Decider.load(file, embedder)
    assert message in str(caught.value)


def test_labels_that_a_stranger_has_added_are_told(embedder, learned, tmp_path):
    file = tmp_path / "cat.json"
    learned.save(file)
    saved = json.loads(file.read_text(encoding="utf-8"))
    for name in ("labels", "bias", "weights"):
        saved["calibrations"][0][name] += saved["calibrations"][0][name][:1]
    file.write_text(json.dumps(saved), encoding="utf-8")
    with pytest.raises(OptionError, match="has 3 labels, but the question 2"):
        Decider.load(file, embedder).decide("a cat", {"cat": CAT})


def test_a_learned_choice_is_found_whatever_the_order_of_its_options(embedder, tmp_path):
    """It was answered as if nothing had been learned."""
    told = {"animal": "a living thing", "weather": None, "other": None}
    examples = [(state, "animal" if is_cat else "weather") for state, is_cat in EXAMPLES]
    examples += [(f"Money is kept in {place}.", "other") for place in [*PLACES, "the farm"]]
    learned = Decider(embedder).fit(Choice("Of what?", told), examples)
    options = dict(reversed(told.items()))
    turned = Choice("Of what?", options)

    def asked(decider, question):
        answer = decider.decide("A dog is in the garden.", {"q": question})["q"]
        return dict(zip(answer.labels, answer.label_probabilities, strict=True)), answer

    expected, answer = asked(learned, Choice("Of what?", told))
    found, other = asked(learned, turned)
    assert found == expected
    assert list(found) == list(options)
    assert other.choice == answer.choice
    assert expected != asked(Decider(embedder), turned)[0]
    # An order of its own comes first, and what says something else of its options is another.
    both = learned.fit(turned, [*examples, ("A cat.", "animal")])
    assert asked(both, turned)[0] != expected
    assert asked(both, Choice("Of what?", told))[0] == expected
    for unlike in (Choice("Of what?", [*told]), Choice("What?", options)):
        assert asked(learned, unlike)[0] == asked(Decider(embedder), unlike)[0]


def test_the_order_of_levels_is_part_of_a_score(embedder):
    levels = ["calm", "angry"]
    examples = [
        (f"{word} {place}", level)
        for place in [*PLACES, "a farm"]
        for word, level in (("Nice", "calm"), ("Damn", "angry"))
    ]
    learned = Decider(embedder).fit(Score("How?", levels), examples)
    turned = {"q": Score("How?", levels[::-1])}
    assert learned.decide("Damn.", turned)["q"] == Decider(embedder).decide("Damn.", turned)["q"]


def test_a_file_that_is_none(embedder, tmp_path, monkeypatch):
    file = tmp_path / "cat.json"
    for text in ("", "[" * 100_000, "[]", "{}", "\xff"):
        file.write_text(text, encoding="latin-1")
        with pytest.raises(OptionError, match="is not a decider that structgen saved"):
            Decider.load(file, embedder)
    for text in ("[" + "0," * 3_000_000 + "0]", "{" + '"a":0,' * 100_000 + '"a":0}'):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(OptionError, match="more than 3,000,000 values, or 100,000 names"):
            Decider.load(file, embedder)
    monkeypatch.setattr("structgen.decisions.calibration._MOST_BYTES", 10)
    file.write_text("[" + " " * 20 + "]", encoding="utf-8")
    with pytest.raises(OptionError, match="more than 10 bytes"):
        Decider.load(file, embedder)


@pytest.mark.parametrize(("n", "width", "n_labels"), [(40, 5, 3), (30, 60, 2)])
def test_the_regression_is_the_best_of_its_penalty(n, width, n_labels):
    chance = np.random.default_rng(0)
    vectors = chance.normal(size=(n, width)) / np.sqrt(width)
    known = chance.normal(size=(n, n_labels))
    right = chance.integers(0, n_labels, n)
    features = np.concatenate([vectors, np.ones((n, 1))], axis=1)
    for penalty, weights in zip(_PENALTIES, _learned(known, vectors, right), strict=True):
        wrong = softmax(known + features @ weights) - np.eye(n_labels)[right]
        gradient = features.T @ wrong + penalty * weights
        assert np.abs(gradient).max() < 0.01 * max(penalty, 1)


def test_vectors_that_say_nothing_are_not_believed():
    chance = np.random.default_rng(1)
    even = np.full(2, 0.5)
    given = [Distribution(even, even, even, 1.0)] * 60
    right = chance.integers(0, 2, 60)
    fit, before, after = fitted(
        given, right.tolist(), has_bias=True, vectors=chance.normal(size=(60, 20))
    )
    assert after.log_loss < before.log_loss + 0.05
    assert fit.weights is not None
    assert np.abs(fit.weights).max() < 0.2
