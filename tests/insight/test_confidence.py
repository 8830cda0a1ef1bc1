"""Confidence held against sums over every token sequence, written out."""

from __future__ import annotations

import contextlib
import json
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from functools import partial
from types import SimpleNamespace
from typing import Annotated, Literal

import numpy as np
import pytest
from fakes import END, END_TOO, TOKENS, FakeModel, FakeSequence, encode
from pydantic import AfterValidator, Field

import structgen
from structgen import Generator, JsonSchema, Regex
from structgen.decoding import Generation, SearchOptions, passes_of
from structgen.decoding.call_validation import opening
from structgen.errors import ModelError
from structgen.insight import alternatives, confidence
from structgen.insight.alternatives import MAX_ALTERNATIVES, sites, whole_texts
from structgen.insight.confidence import Confidence
from structgen.insight.json_places import ByteReader
from structgen.models import base
from structgen.models.base import ON_CPU, run_passes


@dataclass
class Review:
    title: Annotated[str, Field(max_length=3)]
    label: Literal["good", "goods", "bad"]
    stars: Annotated[int, Field(ge=1, le=12)]
    sure: bool
    tags: Annotated[list[Literal["x", "y"] | None], Field(max_length=2)]
    only: Literal["one"]


class Colour(Enum):
    RED = "red"
    GREEN = 2


def spelt_out(model, prompt_ids, before, outputs, ends, extended):
    """The mass of each output's text up to its end: the sum over all that spells it.

    ``outputs[i]`` is what comes after ``before``; its alternative ends at ``ends[i]``. Where
    ``extended[i]``, another alternative goes on there, so the token that ends it counts too.
    """
    sequence = model.start(model.context_length)
    sequence.append([*prompt_ids, *before])
    start = sequence.length

    def mass(i, text):
        scores = sequence.logits()[0].astype(np.float64)
        weights = np.exp(scores - scores.max())
        weights /= weights.sum()
        found = 0.0
        if len(text) == ends[i] and outputs[i] == text:  # comes here only where it is extended
            found += weights[END] + weights[END_TOO]
        for token_id, token in enumerate(TOKENS):
            more = text + token
            if not token or not outputs[i].startswith(more):
                continue
            if len(more) > ends[i] or (len(more) == ends[i] and not extended[i]):
                found += weights[token_id]
            else:
                length = sequence.length
                sequence.append([token_id])
                found += weights[token_id] * mass(i, more)
                sequence.rewind(length)
        return found

    masses = np.array([mass(i, b"") for i in range(len(outputs))])
    assert sequence.length == start
    return masses


@pytest.mark.parametrize("script", [None, "goods", "true"])
def test_probabilities_are_the_sum_over_every_token_sequence(script):
    model = FakeModel(script)
    generator = Generator(model, Literal["good", "goods", "bad", "true"])
    found = generator.probabilities("hi", tolerance=0)
    texts = list(found)
    masses = spelt_out(
        model,
        encode("hi"),
        [],
        [text.encode() for text in texts],
        list(map(len, texts)),
        [text == "good" for text in texts],
    )
    assert list(found.values()) == pytest.approx(masses / masses.sum(), rel=1e-6)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert sum(found.values()) == pytest.approx(1)
    # Tokens that end it in different ways: 1, then the end, or on to 12, in one token or two.
    for pattern, longest in (("1|12|122", "122"), ("(12?)?", "12")):
        found = Generator(model, Regex(pattern)).probabilities("hi", tolerance=0)
        texts = list(found)
        masses = spelt_out(
            model,
            encode("hi"),
            [],
            [text.encode() for text in texts],
            list(map(len, texts)),
            [text != longest for text in texts],
        )
        assert list(found.values()) == pytest.approx(masses / masses.sum(), rel=1e-6)


@pytest.mark.parametrize("text", ['"a', '"', "[" * 2000])
def test_bare_texts_may_begin_as_json_does(text: str) -> None:
    """They were read as JSON, which raised."""
    generator = Generator(FakeModel(context_length=4096), structgen.Choice([text, "b"]))
    assert set(generator.probabilities("x")) == {text, "b"}
    for options in ({"best": True}, {"abstain_below": 0.01}):
        assert generator("x", **options) in (text, "b")


def test_a_field_is_summed_from_where_all_its_alternatives_were_open():
    model = FakeModel('{"a":12,"b":"yes"}')
    schema = {
        "properties": {
            "a": {"enum": [1, 12, 2024]},
            "b": {"enum": ["yes", "you"]},
            "c": {"const": 1},
        },
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    generator = Generator(model, JsonSchema(schema))
    result = generator.result("hi")
    assert result.text == '{"a":12,"b":"yes"}'
    confidence = result.confidence
    assert list(confidence) == ["$.a", "$.b"]

    exact = Confidence(
        generator.constraint,
        result.token_ids,
        partial(opening, model, model.encode("hi"), None, None),
        is_whole=True,
        tolerance=0,
    )
    texts = ["1", "12", "2024"]
    ending = ',"b":"y'  # no token reaches further from inside a number
    masses = spelt_out(
        model,
        encode("hi"),
        encode('{"a":'),
        [(text + ending).encode() for text in texts],
        list(map(len, texts)),
        [True, False, False],
    )
    value = exact["$.a"]
    assert value.mass == pytest.approx(masses.sum(), rel=1e-6)
    assert value.error == 0
    expected = dict(zip([1, 12, 2024], masses / masses.sum(), strict=True))
    assert value.probabilities == pytest.approx(expected, rel=1e-6)
    assert (value.chosen.value, value.chosen.text) == (12, "12")
    assert value.probability == value.probabilities[12]

    # "b" is decided after its first letter, which both alternatives share, wherever that is.
    starts = {text: encode(f'{{"a":12,"b":"y{text}"}}') for text in ("es", "ou")}
    before = starts["es"][: len(encode('{"a":12,"b":"y'))]
    masses = spelt_out(model, encode("hi"), before, [b'es"}', b'ou"}'], [3, 3], [False, False])
    found = exact["$.b"].probabilities
    assert found == pytest.approx(
        dict(zip(["yes", "you"], masses / masses.sum(), strict=True)), rel=1e-6
    )


def test_two_spellings_of_a_value_are_one_alternative():
    model = FakeModel()
    numbers = Generator(model, JsonSchema({"type": "integer", "minimum": -1, "maximum": 0}))
    confidence = numbers.result("x").confidence["$"]
    assert set(confidence.probabilities) == {-1, 0}
    by_text = numbers.probabilities("x")
    assert confidence.probabilities[0] == pytest.approx(by_text["0"], abs=0.002)


def test_the_spellings_of_a_string_are_summed():
    model = FakeModel()
    found = Generator(model, JsonSchema({"enum": ["\u00e9", "a"]})).probabilities("x", tolerance=0)
    texts = ['"a"', '"\u00e9"', r'"\u00e9"', r'"\u00E9"']
    outputs = [text.encode() for text in texts]
    ends = list(map(len, outputs))
    masses = spelt_out(model, encode("x"), [], outputs, ends, [False] * 4)
    assert found == pytest.approx(
        {'"a"': masses[0] / masses.sum(), '"\u00e9"': masses[1:].sum() / masses.sum()}
    )
    assert (masses > 0).all()


def test_nothing_found_is_no_confidence(monkeypatch):
    monkeypatch.setattr(confidence, "_MAX_PASSES", 1)
    generator = Generator(FakeModel(), Literal["q" * 40, "z" * 40])
    assert set(generator.probabilities("x").values()) == {0.5}
    result = generator.result("x", abstain_below=0.1)
    value = result.confidence["$"]
    assert (value.mass, value.error, value.probability) == (0, 1, 0.5)
    assert result.abstained == (value,)
    # Nor is what is too small for a float.
    monkeypatch.undo()
    tree = SimpleNamespace(masses=np.zeros(2), cut=0.0)
    assert confidence.TokenTree._error(tree, 0.0) == 1


@pytest.mark.parametrize("score", [np.nan, np.inf, -np.inf])
def test_scores_that_are_no_numbers_have_no_probabilities(monkeypatch, score):
    """Every probability was NaN, and a decision was for the first option."""
    monkeypatch.setattr(FakeSequence, "logits", lambda self: np.full((1, len(TOKENS)), score))
    with pytest.raises(ModelError, match="scores are NaN or infinite"):
        Generator(FakeModel(), Literal["a", "b"]).probabilities("x")


def test_long_texts_are_weighed_in_short_passes(monkeypatch):
    """To go from one branch to another took one pass over all of its thousands of tokens."""
    read, append = [], FakeSequence.append
    monkeypatch.setattr(
        FakeSequence, "append", lambda self, ids: (read.append(len(ids)), append(self, ids))[1]
    )
    generator = Generator(FakeModel(context_length=900), Literal["ay" * 150, "by" * 150])
    assert generator("x", best=True)
    assert sum(read) > 600
    assert max(read) <= ON_CPU.longest_pass + 1


def test_places_for_which_no_pass_is_left_count_as_error_and_are_not_held(monkeypatch):
    """Each place has some after it, a thousand at most, and a call makes 2,000 passes."""
    generator = Generator(FakeModel(), structgen.Choice([c * 2 for c in "abcdefghi"]))
    exact = generator.probabilities("hi", tolerance=0)
    held, heappop = [], confidence.heapq.heappop
    monkeypatch.setattr(
        confidence.heapq, "heappop", lambda places: (held.append(len(places)), heappop(places))[1]
    )
    monkeypatch.setattr(confidence, "_MAX_PASSES", 4)
    value = generator.result("hi", abstain_below=1e-9).confidence["$"]
    assert held == [1, 4, 3, 2]
    assert 0 < value.error < 1
    found = value.probabilities
    assert all(abs(found[text] - exact[text]) <= value.error for text in found)


def test_where_the_context_ends_what_does_not_fit_is_an_error():
    labels = Literal["positive", "neutral"]
    roomy = Generator(FakeModel("positive", context_length=50), labels).probabilities("x" * 10)
    tight = FakeModel("positive", context_length=18)
    assert Generator(tight, labels).probabilities("x" * 10) == pytest.approx(roomy, abs=0.002)
    for length in (15, 17):
        generator = Generator(FakeModel(context_length=18), labels)
        with pytest.raises(
            structgen.PromptError, match=rf"room for only {18 - length} more tokens"
        ):
            generator.probabilities("x" * length)


def test_the_values_that_a_call_asks_about_have_so_many_alternatives_in_all(monkeypatch):
    monkeypatch.setattr(confidence, "_MOST_ASKED", 5)
    three = Annotated[list[Literal["x", "y"]], Field(min_length=3, max_length=3)]
    result = Generator(FakeModel(), three, whitespace="compact").result("x")
    paths = list(result.confidence)
    assert len(paths) == 3
    with pytest.raises(structgen.OptionError, match="with 6 alternatives in total; the limit is 5"):
        run_passes(confidence.below(result.confidence, 0.01))
    run_passes(confidence.below(result.confidence, {paths[0]: 0.01}))


def test_abstaining_does_not_pass_over_texts_that_are_too_long(monkeypatch):
    monkeypatch.setattr(alternatives, "_MAX_STEPS", 40)
    schema = {"properties": {"a": {"enum": ["x" * 30, "y" * 30]}, "b": {"type": "boolean"}}}
    schema |= {"type": "object", "required": ["a", "b"], "additionalProperties": False}
    result = Generator(FakeModel(), JsonSchema(schema)).result("x", abstain_below=0.01)
    assert list(result.confidence) == ["$.b"]
    with pytest.raises(structgen.OptionError, match=r"\$\.a may have too many texts, or"):
        result.check_sure()
    generator = Generator(FakeModel(), JsonSchema(schema))
    assert generator("x", abstain_below={"$.b": 0.01})


@pytest.mark.parametrize("asks", [{"abstain_below": 0.1}, {"best": True}])
def test_few_texts_that_are_long_together_are_too_long(asks, monkeypatch):
    """To look at 1,000 texts of 10,000 bytes takes minutes between two passes."""
    monkeypatch.setattr(alternatives, "_MOST_BYTES", 99)
    assert Generator(FakeModel(), Literal["x" * 40, "y" * 40])("x", **asks)
    with pytest.raises(structgen.OptionError, match="too long"):
        Generator(FakeModel(), Literal["x" * 60, "y" * 60])("x", **asks)


def test_texts_of_many_values_are_kept_once_and_have_a_bound_together(monkeypatch):
    schema = JsonSchema({"type": "array", "items": {"enum": ["xx", "yy"]}, "minItems": 5})
    constraint = structgen.compile(schema, FakeModel().vocabulary)
    output, too_long = b'["xx","yy","xx","xx","yy"]', list[str]()
    found = run_passes(sites(constraint, output))
    assert [site.chosen for site in found] == [0, 1, 0, 0, 1]
    assert len({id(site.texts) for site in found}) == len({id(site.values) for site in found}) == 1
    parts = [{"enum": ["xx", "yy"]}, {"enum": ["aaa", "bbb", "ccc"]}, {"enum": ["x", "y"]}]
    schema = JsonSchema({"type": "array", "prefixItems": parts, "items": parts[0], "minItems": 4})
    constraint = structgen.compile(schema, FakeModel().vocabulary)
    monkeypatch.setattr(alternatives, "_MOST_BYTES_OF_ALL", 2 * 208)
    found = run_passes(sites(constraint, b'["xx","aaa","y","yy"]', too_long=too_long))
    assert [site.path for site in found] == ["$[0]", "$[2]", "$[3]"]  # a list twice counts once
    assert too_long == ["$[1]"]


@pytest.mark.parametrize("asks", [{"abstain_below": 0.9}, {"best": True}])
def test_two_spellings_of_one_value_are_no_choice(asks):
    """Of -0 and 0, where only 0 may stand, `best` had no second to look at: an IndexError."""
    zero = {"type": "integer", "minimum": 0, "maximum": 0}
    schema = {"type": "object", "properties": {"a": zero}, "required": ["a"]}
    result = Generator(FakeModel(), JsonSchema(schema)).result("x", **asks)
    assert result.value["a"] == 0
    assert list(result.confidence) == []


def test_few_looks_find_where_long_texts_part(monkeypatch):
    looks = 0
    canonical = alternatives.canonical

    def counted(text):
        nonlocal looks
        looks += 1
        return canonical(text)

    texts = tuple(b'"' + b"\\n" * 200 + end + b'"' for end in (b"a", b"b"))
    site = alternatives.Site("$", 0, 1, texts, ("a", "b"))
    monkeypatch.setattr(alternatives, "canonical", counted)
    n_before = alternatives.boundary(range(1, 404), site, texts[1])
    assert n_before == 401
    assert looks < 20


CODES = {"type": "string", "pattern": "^[0-9]{2}x{30}$"}  # few, of which each is long


@pytest.mark.parametrize("asks", [{"abstain_below": 1e-9}, {"best": True}])
@pytest.mark.parametrize(
    "output_type",
    [
        JsonSchema({"type": "array", "items": CODES, "minItems": 6, "maxItems": 6}),
        Regex("[0-9]{2}x{30}"),
        JsonSchema({"type": "array", "prefixItems": [{"const": "y" * 999}, CODES], "minItems": 2}),
    ],
    ids=["values", "a text", "after a long one"],
)
def test_others_have_passes_while_texts_are_listed(asks, output_type, monkeypatch):
    monkeypatch.setattr(base, "AT_ONCE", -1.0)
    monkeypatch.setattr(alternatives, "_QUICK_STEPS", 200)
    monkeypatch.setattr(confidence, "_MAX_PASSES", 20)
    steps = longest = 0
    step = ByteReader.step

    def counted(self, state, byte, since):
        nonlocal steps
        steps += 1
        return step(self, state, byte, since)

    monkeypatch.setattr(ByteReader, "step", counted)
    model = FakeModel(context_length=2000)
    constraint = structgen.compile(output_type, model.vocabulary)
    search = SearchOptions(**asks)
    run = Generation(model, constraint, None, encode("p"), search)
    assert steps <= 250
    steps = 0
    run.start()
    for _ in passes_of(run, model.start(2000), model.pace):
        longest, steps = max(longest, steps), 0
    with contextlib.suppress(structgen.Abstained):
        for _ in run.result.checking_sure():
            longest, steps = max(longest, steps), 0
    assert 0 < max(longest, steps) < 250


@pytest.mark.parametrize("asks", [{"abstain_below": 0.1}, {"best": True}])
@pytest.mark.parametrize("pattern", ["[0-9]{2}x{30}", "[0-9]{3}x{9}[ab]"])
def test_a_text_that_may_be_one_of_many_is_told_once_that_is_known(asks, pattern, monkeypatch):
    """Not before the call where that takes long; it is never passed over."""
    monkeypatch.setattr(alternatives, "_QUICK_STEPS", 200)
    monkeypatch.setattr(alternatives, "_MAX_STEPS", 30_000 if "3" in pattern[5:8] else 400)
    with pytest.raises(structgen.OptionError, match="too long"):
        Generator(FakeModel(), Regex(pattern))("x", **asks)


def test_the_error_is_a_bound():
    model = FakeModel()
    generator = Generator(model, Literal["good", "goods", "bad", "true", "null"])
    exact = generator.probabilities("hi", tolerance=0)
    passes = []
    for tolerance in (0.5, 0.1, 0.01, 0.001):
        started = len(model.started)
        found = generator.probabilities("hi", tolerance=tolerance)
        assert all(abs(found[text] - exact[text]) <= tolerance for text in exact)
        passes.append(model.started[started].logits_read)
    assert passes == sorted(passes)
    assert passes[0] < passes[-1]


def test_a_confidence_has_a_runner_up_and_a_margin():
    # Wants "bad" by far; the processor makes it write something else.
    def not_bad(token_ids, logits):
        logits[:, encode("b")] -= 50
        return logits

    model = FakeModel("bad")
    value = Generator(model, Literal["good", "bad"]).result("x").confidence["$"]
    assert value.chosen.value == "bad"
    assert value.probability > 0.999
    assert value.runner_up.value == "good"
    assert value.margin == value.probability - value.runner_up.probability > 0.99
    assert value.path == "$"
    assert str(value).startswith("$: bad 1.000, runner-up good 0.000")
    other = Generator(model, Literal["good", "bad"], processor=not_bad).result("x").confidence["$"]
    assert other.chosen.value == "good"
    assert other.runner_up.value == "bad"
    assert str(other).startswith("$: good 0.000, likelier bad 1.000")
    assert other.margin < -0.99
    assert other.probabilities == pytest.approx(value.probabilities)


def test_values_with_few_alternatives_are_found_whatever_their_type():
    generator = Generator(FakeModel(), Review)
    text = '{"title":"ab","label":"goods","stars":7,"sure":false,"tags":["x",null],"only":"one"}'
    found = {site.path: site for site in run_passes(sites(generator.constraint, text.encode()))}
    assert {path: site.values for path, site in found.items()} == {
        "$.label": ("bad", "good", "goods"),
        "$.stars": (1, 10, 11, 12, 2, 3, 4, 5, 6, 7, 8, 9),
        "$.sure": (False, True),
        "$.tags[0]": ("x", "y", None),
        "$.tags[1]": ("x", "y", None),
    }
    value = json.loads(text)
    assert found["$.stars"].values[found["$.stars"].chosen] == value["stars"]
    assert found["$.label"].start == text.index('"goods"')


@pytest.mark.parametrize("whitespace", ["compact", "flexible"])
@pytest.mark.parametrize("spelling", ["canonical", "any"])
def test_blanks_and_spellings_do_not_hide_words_and_numbers(whitespace, spelling):
    schema = JsonSchema({"enum": [[True, 5], [False, 7], [False, 8]]})
    constraint = structgen.compile(
        schema, FakeModel().vocabulary, whitespace=whitespace, spelling=spelling
    )
    text = b"[false,7]" if whitespace == "compact" else b" [ false ,\n7 ] "
    found = {site.path: set(site.values) for site in run_passes(sites(constraint, text))}
    assert found["$[0]"] == {True, False}
    assert spelling == "any" or found["$[1]"] == {7, 8}


def test_unique_items_leave_what_is_left():
    schema = JsonSchema(
        {"type": "array", "items": {"enum": [1, 2, 3]}, "uniqueItems": True, "minItems": 2}
    )
    constraint = structgen.compile(schema, FakeModel().vocabulary)
    found = [site.values for site in run_passes(sites(constraint, b"[2,1,3]"))]
    assert found == [(1, 2, 3), (1, 3)]


@pytest.mark.parametrize(
    ("output_type", "texts"),
    [
        (bool, ["false", "true"]),
        (Colour, ["2", "red"]),
        (Literal["a"], ["a"]),
        (Regex("a|b{1,3}"), ["a", "b", "bb", "bbb"]),
        (Annotated[int, Field(ge=-1, le=1)], ["-0", "-1", "0", "1"]),
        (Literal["a"] | bool, ["a", "false", "true"]),
        (Regex("a*"), None),
        (Annotated[int, Field(ge=1, le=MAX_ALTERNATIVES + 1)], None),
        (Review, None),
        (Regex(".") | Regex(".."), None),
    ],
)
def test_all_outputs_of_a_type_are_listed_when_they_are_few(output_type, texts):
    constraint = structgen.compile(output_type, FakeModel().vocabulary)
    found = run_passes(whole_texts(constraint))
    assert found == (None if texts is None else tuple(text.encode() for text in texts))


def test_probabilities_need_few_texts():
    model = FakeModel()
    for output_type in (None, Review, int):
        with pytest.raises(structgen.OptionError, match=r"at most 1,000 texts.*confidence"):
            Generator(model, output_type).probabilities("x")
    for tolerance in (2, float("nan"), "x", None, True):
        with pytest.raises(structgen.OptionError, match="tolerance"):
            Generator(model, bool).probabilities("x", tolerance=tolerance)
    for option in ({"timeout": 0}, {"cancel": 1}, {"adapter": 1}):
        with pytest.raises(structgen.OptionError, match=next(iter(option))):
            Generator(model, bool).probabilities("x", **option)
    with pytest.raises(structgen.PromptError, match="at least"):
        Generator(model, bool).probabilities("x" * 300)
    assert not model.started
    assert Generator(model, Literal["a"]).probabilities("x") == {"a": 1}


def test_probabilities_can_be_given_up():
    class Cancel:
        """Is set when it has been asked so many times."""

        def __init__(self, times):
            self.left = times

        def is_set(self):
            self.left -= 1
            return self.left < 0

    model = FakeModel()
    generator = Generator(model, Literal["good", "bad"])
    with pytest.raises(structgen.IncompleteOutput, match=r"it timed out \(timeout=1e-09 seconds\)"):
        generator.probabilities("x", timeout=1e-9)
    assert not model.started
    for times in range(1, 5):
        with pytest.raises(structgen.IncompleteOutput, match="cancelled"):
            generator.probabilities("x" * 100, cancel=Cancel(times))
        assert model.started[-1].closed
    expected = generator.probabilities("x")
    assert generator.probabilities("x", cancel=threading.Event(), timeout=100) == expected


def test_confidence_runs_the_model_when_asked_and_only_once():
    model = FakeModel()
    result = Generator(model, Review).result("x", max_new_tokens=90)
    n = len(model.started)
    assert "$.label" in result.confidence
    assert "$.title" not in result.confidence
    assert len(result.confidence) >= 3
    assert len(model.started) == n
    value = result.confidence["$.label"]
    assert len(model.started) == n + 1
    assert model.started[-1].closed
    assert result.confidence["$.label"] is value
    assert len(model.started) == n + 1
    with pytest.raises(KeyError, match=r"\$\.title.*\$\.label, \$\.stars"):
        result.confidence["$.title"]
    again = pickle.loads(pickle.dumps(result))
    assert again == result
    assert again.confidence == {"$.label": value}


def test_threads_may_ask_at_once():
    model = FakeModel()
    result = Generator(model, Review).result("x", max_new_tokens=90)
    n = len(model.started)
    paths = list(result.confidence)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: result.confidence[paths[i % len(paths)]], range(40)))
    assert len(model.started) == n + len(paths)
    assert all(value is result.confidence[value.path] for value in found)


def test_free_text_and_cut_text_have_what_is_certain():
    model = FakeModel("[true,false]")
    assert dict(Generator(model).result("x").confidence) == {}
    generator = Generator(model, JsonSchema({"items": {"type": "boolean"}}))
    with generator.stream("x") as stream:
        next(stream)
        next(stream)
    assert stream.result.finish_reason == "cancelled"
    assert stream.result.text == "[true"
    assert list(stream.result.confidence) == []


def test_abstaining():
    sure = Generator(FakeModel("bad"), Literal["good", "bad"])
    assert sure("x", abstain_below=0.9) == "bad"
    assert sure.result("x", abstain_below=0.9).abstained == ()
    unsure = Generator(FakeModel(), Literal["good", "bad"])
    result = unsure.result("x", abstain_below=0.99)
    (value,) = result.abstained
    assert value.probability < 0.99
    assert unsure.result("x").abstained == ()
    with pytest.raises(structgen.Abstained, match=r"\$: \w+ 0\.\d+, runner-up") as caught:
        unsure("x", abstain_below=0.99)
    assert caught.value.text == result.text
    assert caught.value.values[0].probability == value.probability
    with pytest.raises(structgen.Abstained):
        unsure.parse("x", abstain_below={"$": 0.99})
    assert unsure("x", abstain_below={"$": 0.01}) == result.text


def test_what_abstaining_takes_is_within_the_time_of_the_call(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    model = FakeModel()
    generator = Generator(model, Review)
    event = threading.Event()
    options = {"max_new_tokens": 90, "abstain_below": 1e-9}
    text = generator("x", **options)
    begun = len(model.started)
    append = FakeSequence.append

    def slow(self, token_ids):
        append(self, token_ids)
        now[0] += 1
        if now[0] > 100 + ends[0]:
            event.set()

    monkeypatch.setattr(FakeSequence, "append", slow)
    ends = [1e9]
    generator.result("x", max_new_tokens=90)
    needed = now[0] - 100
    for ends[0], more in ((1e9, {"timeout": needed + 3}), (needed + 3, {"cancel": event})):
        now[0] = 100.0
        with pytest.raises(structgen.Abstained, match="was not computed") as caught:
            generator("x", **options, **more)
        assert caught.value.text == text
        assert caught.value.values == ()
        assert needed + 3 <= now[0] - 100 <= needed + 5  # one pass more, and none for other values
        assert generator.result("x", **options, timeout=needed + 3).text == text
        event.clear()
    ends[0] = 1e9
    assert generator("x", **options, timeout=needed + 1e6) == text
    # Asked for afterwards it takes what it takes.
    assert generator.result("x", **options, timeout=needed + 1).abstained == ()
    assert len(model.started) > begun
    assert all(sequence.closed for sequence in model.started)


def test_abstaining_by_path():
    generator = Generator(FakeModel(), Review)
    options = {"max_new_tokens": 90}
    least = min(generator.result("x", **options).confidence.values(), key=lambda v: v.probability)
    result = generator.result("x", abstain_below=least.probability + 1e-9, **options)
    assert [value.path for value in result.abstained] == [least.path]
    other = "$.sure" if least.path != "$.sure" else "$.label"
    result = generator.result("x", abstain_below={other: 1e-6}, **options)
    assert result.abstained == ()
    with pytest.raises(structgen.OptionError, match=r"has '\$\.title'.*Such values: \$\.label"):
        generator("x", abstain_below={"$.title": 0.5}, **options)


_DEFS = {"few": {"type": "string", "maxLength": 1}, "end": {"type": "number", "minimum": 1}}
_LINKED = structgen.JsonSchema({"$defs": _DEFS, "anyOf": [{"$ref": f"#/$defs/{n}"} for n in _DEFS]})


@pytest.mark.parametrize(
    ("output_type", "value", "message"),
    [
        (None, 0.5, "which free text does not have"),
        (Regex("a+"), 0.5, "which .* does not have"),
        (list[str], 0.5, "which .* does not have"),
        (list[Annotated[str, Field(max_length=9)]], 0.5, "which .* does not have"),
        (dict[str, Annotated[float, Field(ge=0, le=1)]], 0.5, "which .* does not have"),
        (_LINKED, 0.5, "which .* does not have"),
        (bool, 0, "above 0 and at most 1"),
        (bool, 1.5, "above 0 and at most 1"),
        (bool, {"label": 0.5}, "JSON paths such as"),
        (bool, {}, "JSON paths such as"),
        (bool, {"$.a": "x"}, r"abstain_below\['\$\.a'\]='x' is not a number"),
    ],
)
def test_abstaining_needs_something_to_abstain_from(output_type, value, message):
    model = FakeModel()
    with pytest.raises(structgen.OptionError, match=message):
        Generator(model, output_type).stream("x", abstain_below=value)
    assert not model.started


@pytest.mark.parametrize(
    "schema",
    [
        {"format": "json-pointer", "maxLength": 1},
        {"type": ["string", "null"], "maxLength": 0},
        {"allOf": [{"type": "integer", "minimum": 1}, {"exclusiveMaximum": 9}]},
        {"type": "number", "multipleOf": 0.5, "minimum": 1, "maximum": 2},
    ],
)
def test_bounds_that_leave_few_texts_are_a_choice(schema):
    schema = {"type": "string"} | schema if "format" in schema else schema
    assert list(Generator(FakeModel(), structgen.JsonSchema(schema)).result("x").confidence) == [
        "$"
    ]


def test_a_quote_in_a_class_is_a_choice():
    quote = Annotated[str, structgen.Quote("the cat sat")]
    result = Generator(FakeModel(), list[quote]).result("x", abstain_below=1.0, max_new_tokens=60)
    assert {value.path for value in result.abstained} <= {*result.confidence}


def test_ways_to_write_one_number_are_one_alternative():
    low = Annotated[int, Field(ge=0, le=10)]
    found = Generator(FakeModel(), low).probabilities("hi")
    assert sorted(found, key=int) == [str(i) for i in range(11)]
    assert sum(found.values()) == pytest.approx(1)
    few = structgen.Cfg('start: "a" | "b"') | low | bool
    generator = Generator(FakeModel("-0"), few)
    found = generator.probabilities("hi")
    assert set(found) == {"a", "b", "true", "false", *map(str, range(11))}
    value = generator.result("hi").confidence["$"]
    assert value.chosen.text == "0"
    assert value.probabilities == pytest.approx(found, abs=0.002)

    # What a validator makes of labels does not merge them; nor are 1 and 1.0 one choice.
    sizes = Annotated[Literal["yes", "you", "no"], AfterValidator(len)]
    assert set(Generator(FakeModel(), sizes).probabilities("hi")) == {"yes", "you", "no"}
    numbers = structgen.Choice([1, 1.0])
    assert set(Generator(FakeModel(), numbers).probabilities("hi")) == {"1", "1.0"}


def test_probabilities_take_no_options_of_a_call():
    generator = Generator(FakeModel(), bool)
    with pytest.raises(
        structgen.OptionError, match="probabilities does not support temperature=: "
    ):
        generator.probabilities("hi", temperature=2)
