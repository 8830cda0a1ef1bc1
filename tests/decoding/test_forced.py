"""Forced tokens: what is appended without asking, in which tokens, and that it changes nothing."""

from __future__ import annotations

import json
from typing import Literal

import numpy as np
import pytest
from fakes import TOKENS, FakeModel, Person, encode, vocabulary
from hypothesis import given, settings
from hypothesis import strategies as st
from rounding import TIE, gap, near_logprobs

import structgen
from structgen import Choice, Generator, JsonSchema, Regex
from structgen.constraint import Cursor
from structgen.decoding import Generation, Rows, SearchOptions, passes_of
from structgen.decoding.chat_tokens import Speller
from structgen.models import base
from structgen.sampling import TokenIds
from structgen.vocabulary.tokens import Vocabulary

NOTHING = np.empty(0, np.int32)


def encoded(text: str) -> TokenIds:
    return np.array(encode(text), np.int32)


# Spelling


@given(st.text('ab{":} 12é€', max_size=12), st.integers(0, 12))
def test_it_goes_on_as_the_tokenizer_would(text, cut):
    # Cut where the tokenizer itself cuts: then the rest is what it wrote there.
    ids = encode(text)
    before = np.array(ids[:cut], np.int32)
    data = b"".join(TOKENS[i] for i in ids[cut:])
    spelt = Speller(vocabulary(), encoded)(before, data)
    assert b"".join(TOKENS[i] for i in spelt) == data
    try:
        data.decode()
    except UnicodeDecodeError:
        return
    assert spelt == ids[cut:]


@given(st.lists(st.sampled_from(range(3, len(TOKENS))), max_size=10), st.binary(max_size=6))
def test_whatever_stands_before_it_spells_exactly_the_bytes(before, data):
    spelt = Speller(vocabulary(), encoded)(np.array(before, np.int32), data)
    assert b"".join(TOKENS[i] for i in spelt) == data


def test_a_tokenizer_that_adds_a_space_is_not_believed():
    spell = Speller(vocabulary(), lambda text: encoded(" " + text))
    assert b"".join(TOKENS[i] for i in spell(NOTHING, b"true")) == b"true"


def test_digits_and_spaces_join_as_they_do_in_running_text(model):
    tokens = model.vocabulary.tokens
    spell = Speller(model.vocabulary, model.encode)
    for text in ('{"name":"Bob","age":12}', "The answer is 42, or café.", "a  b\n\n  c"):
        ids = model.encode(text)
        for cut in range(len(ids) + 1):
            data = b"".join(tokens[i] for i in ids[cut:])
            assert spell(ids[:cut], data) == ids[cut:].tolist()
    template = model.encode("<|im_start|>assistant\n")
    assert spell(template, b'{"name":"')[0] == model.encode('{"')[0]


# Cursors


def test_needless_tokens_only_begin_what_is_forced_and_reach_no_open_place():
    tokens = [b"", b"a", b"b", b"c", b"d", b"ab", b"bc", b"cd", b"abc", b"dx", b"x", b"y"]
    of = {token: i for i, token in enumerate(tokens)}
    voc = Vocabulary.from_tokens(tokens, [0])
    cursor = structgen.compile(Regex("abcd(x|y)"), voc).start()
    forced, needless = cursor.forced(lambda data: [of[b"abc"], of[b"d"]])
    # After "abc", "d" would do, but so would "dx": the model keeps that choice.
    assert forced == [of[b"abc"]]
    assert not needless
    # In one token up to the open place; "a", "ab" lead there too, but no tokenizer writes them.
    voc = Vocabulary.from_tokens([*tokens, b"abcdx"], [0])
    cursor = structgen.compile(Regex("abcd(x|y)"), voc).start()
    forced, needless = cursor.forced(lambda data: [of[b"abc"], of[b"d"]])
    assert forced == []
    assert needless == {of[b"a"], of[b"ab"]}  # after "abc" comes "d", and "dx" is a token


def test_a_longer_token_that_is_not_allowed_leaves_nothing_open():
    tokens = [b"", b"a", b"b", b"ab", b"abz"]
    voc = Vocabulary.from_tokens(tokens, [0])
    assert structgen.compile(Regex("ab(a|b)"), voc).start().forced_tokens() == [3]
    voc = Vocabulary.from_tokens([*tokens, b"aba"], [0])
    assert structgen.compile(Regex("ab(a|b)"), voc).start().forced_tokens() == []


def test_what_a_pattern_fixes_is_forced_unless_every_spelling_is_wanted():
    schema = JsonSchema({"type": "string", "pattern": "^STOP-[12]$"})
    cursor = structgen.compile(schema, vocabulary()).start()
    assert cursor.forced_bytes() == b'"STOP-'
    cursor = structgen.compile(schema, vocabulary(), spelling="any").start()
    assert cursor.forced_bytes() == b'"'


# Outputs


TYPES = [
    Person,
    Literal["positive", "negative", "neutral"],
    list[Person],
    Choice(["good", "goody", "bad"]),
    Regex("ID-[0-9]{3}-END"),
    JsonSchema({"const": {"a": ["x", None, "é"], "b": "STOP"}}),
    JsonSchema({"type": "object", "properties": {"the": {"enum": ["12", "13", True]}}}),
]


@pytest.mark.parametrize("output_type", TYPES)
def test_forced_or_not_the_same_text_in_the_same_tokens(output_type):
    generator = Generator(FakeModel(), output_type)
    forced = 0
    for seed in range(12):
        options = {"max_new_tokens": 70, "seed": seed, "temperature": 1.0}
        with_, without = (generator.result("x", forced=f, **options) for f in (True, False))
        assert without.usage.forced_tokens == 0
        assert {with_.finish_reason, without.finish_reason} <= {"stop", "budget"}
        forced += with_.usage.forced_tokens
        for result in (with_, without):
            generator.constraint.output.parse(result.text)
        with_, without = (generator.result("x", forced=f, max_new_tokens=70) for f in (True, False))
        assert with_.token_ids == without.token_ids
        assert with_.text == without.text
    assert forced


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 12))
def test_forced_tokens_keep_the_budget(seed, spare):
    generator = Generator(FakeModel(), list[Person])
    minimum = 3 + spare
    result = generator.result("x", max_new_tokens=minimum, seed=seed, temperature=1.0)
    assert result.usage.output_tokens < minimum
    json.loads(result.text)


def test_the_model_runs_once_over_all_that_is_forced():
    model = FakeModel('{"name":"Ann","age":12}')
    result = Generator(model, Person).result("x", speculate=False)
    assert result.text == '{"name":"Ann","age":12}'
    usage = result.usage
    assert model.started[0].logits_read == usage.sampled_tokens  # nothing but the end is left
    assert usage.forced_tokens + usage.sampled_tokens == usage.output_tokens
    assert usage.forced_tokens >= len('{"name":"')


def test_what_is_forced_up_to_the_end_is_never_run():
    model = FakeModel()
    result = Generator(model, JsonSchema({"const": ["a", 1]}), whitespace="compact").result("x")
    assert result.text == '["a",1]'
    assert result.finish_reason == "stop"
    assert model.started[0].length == 0


def test_a_stop_string_cuts_forced_text():
    fixed = Generator(FakeModel(), Regex("(abc)?STOPdef"))
    with pytest.raises(structgen.IncompleteOutput) as caught:
        fixed("x", stop="Pd")
    assert caught.value.text == "abcSTO"


def test_forced_text_streams_before_the_model_runs():
    model = FakeModel('{"name":"Ann","age":12}')
    stream = Generator(model, Person).stream("x")
    first = next(stream)
    assert first
    assert '{"name":'.startswith(first)  # others may have a turn within it
    assert model.started[0].length == 0


def own_logprobs(logits):
    logits = logits.astype(np.float64)
    return logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())


@pytest.mark.parametrize("output_type", [Person, JsonSchema({"const": ["a", 1, "the"]})])
def test_the_scores_of_forced_tokens_are_those_of_their_places(output_type):
    model = FakeModel('{"name":"Ann","age":12}')
    constraint = structgen.compile(output_type, model.vocabulary, whitespace="compact")
    result = Generator(model, constraint).result("xyz", top_logprobs=20)
    assert [one.token_id for one in result.logprobs] == list(result.token_ids)
    assert sum(one.is_forced for one in result.logprobs) == result.usage.forced_tokens > 0
    # One pass a token, and every score in its place.
    plain = model.start(200)
    plain.append(encode("xyz"))
    for one in result.logprobs:
        own = own_logprobs(plain.logits()[0])
        told = [one.unmasked_logprob, *(top.logprob for top in one.unmasked_top)]
        there = [one.token_id, *(top.token_id for top in one.unmasked_top)]
        assert len(told) == 21
        assert told == pytest.approx(own[there], abs=1e-4)
        plain.append([one.token_id])


@pytest.mark.parametrize("pattern", ["x{600}", "x{600}(a|b)"])
def test_the_scores_of_a_long_forced_text_are_read_pass_by_pass(pattern):
    model = FakeModel(context_length=1024)
    start, read = model.start, []

    def counted(*args, **options):
        sequence = start(*args, **options)
        recent = sequence.recent_logits
        sequence.recent_logits = lambda n: read.append(n) or recent(n)
        return sequence

    model.start = counted
    result = Generator(model, Regex(pattern)).result("xyz", logprobs=True)
    assert all(one.unmasked_logprob is not None for one in result.logprobs)
    assert result.usage.forced_tokens == 600
    assert max(read) <= model.pace.longest_pass + 2


def test_the_scores_of_forced_text_that_an_equal_call_left_are_read_pass_by_pass():
    model = FakeModel(context_length=1024)
    start, read = model.start, []

    def held(*args, prefix, **options):
        sequence = start(*args, prefix=prefix, **options)
        recent = sequence.recent_logits
        sequence.recent_logits = lambda n: read.append(n) or recent(n)
        sequence.append(prefix)
        return sequence

    model.start, model.start_batch = held, lambda *_, **__: None
    constraint = structgen.compile(Regex("x{600}(a|b)"), model.vocabulary)
    search = SearchOptions(logprobs=True)
    runs = [Generation(model, constraint, None, encode("p"), search, index=i) for i in range(2)]
    Rows(model, dict(enumerate(runs)), {}).make()
    for run in runs:
        assert all(one.unmasked_logprob is not None for one in run.result.logprobs)
    assert max(read) <= model.pace.longest_pass + 2


def test_scores_of_forced_tokens_on_the_real_model(model):
    constraint = structgen.compile(Person, model.vocabulary, whitespace="compact")
    options = {"max_new_tokens": 60, "top_logprobs": 20}
    result = Generator(model, constraint).result("A person: ", **options)
    forced = [i for i, one in enumerate(result.logprobs) if one.is_forced]
    assert len(forced) == result.usage.forced_tokens >= 5
    plain = model.start(200)
    plain.append([*model.encode("A person: "), *result.token_ids])
    cold = plain.recent_logits(len(result.token_ids) + 1)
    for i in forced:
        one, own = result.logprobs[i], own_logprobs(cold[i])
        there = [one.token_id, *(top.token_id for top in one.unmasked_top)]
        told = [one.unmasked_logprob, *(top.logprob for top in one.unmasked_top)]
        assert near_logprobs(told, own[there])


# The real model


SCHEMA = {
    "type": "object",
    "properties": {
        "label": {"enum": ["good", "bad"]},
        "stars": {"type": "integer", "minimum": 1, "maximum": 5},
    },
    "required": ["label", "stars"],
    "additionalProperties": False,
}
THINGS = ["soup", "hotel", "film", "phone", "book", "bus", "shoe", "song", "game", "lamp"]
WORDS = ["great", "awful", "fine", "slow", "cheap", "broken", "lovely", "dull", "loud", "new"]


def test_greedy_outputs_agree_with_and_without_but_for_near_ties(model):
    generator = Generator(model, JsonSchema(SCHEMA))
    for i in range(0, 100, 5):
        prompt = f"Review: the {THINGS[i % 10]} was {WORDS[i // 10]}. As JSON: "
        with_ = generator.result(prompt)
        without = generator.result(prompt, forced=False)
        assert with_.usage.forced_tokens >= 5
        assert gap(model, prompt, with_, without) < TIE


def test_where_much_is_free_they_part_at_near_ties_only(model):
    # A dozen tokens that could nearly as well be others, and then the texts go their own ways.
    generator = Generator(model, Person)
    for i in range(20):
        prompt = f"A {WORDS[i % 10]} person with a {THINGS[i // 2]}, as JSON: "
        with_ = generator.result(prompt, max_new_tokens=30)
        without = generator.result(prompt, max_new_tokens=30, forced=False)
        assert gap(model, prompt, with_, without) < TIE


# Others


@pytest.mark.parametrize(
    ("n_rows", "asks"),
    [(1, {}), (1, {"best": True}), (1, {"speculate": True}), (2, {}), (2, {"logprobs": True})],
)
def test_others_have_passes_while_a_long_text_is_forced(n_rows, asks, monkeypatch):
    """Each token may cost milliseconds, and 8,000 may be forced at once."""
    monkeypatch.setattr(base, "AT_ONCE", -1.0)
    taken = longest = 0
    accept = Cursor.accept

    def counted(self, token_id):
        nonlocal taken
        taken += 1
        accept(self, token_id)

    monkeypatch.setattr(Cursor, "accept", counted)
    model = FakeModel(context_length=2000)
    constraint = structgen.compile(Choice(["a" + "xy" * 150, "b" + "xy" * 150]), model.vocabulary)
    search = SearchOptions(forced=True, **asks)
    runs = [
        Generation(model, constraint, None, encode("p"), search, index=i) for i in range(n_rows)
    ]
    if n_rows == 1:
        runs[0].start()
        steps = passes_of(runs[0], model.start(2000), model.pace)
    else:
        steps = Rows(model, dict(enumerate(runs)), {}).together()
    for _ in steps:
        longest, taken = max(longest, taken), 0
    assert longest < 4
    assert all(run.finish_reason == "stop" for run in runs)


def test_an_output_ends_within_a_long_text_when_it_is_cancelled(monkeypatch):
    monkeypatch.setattr(base, "AT_ONCE", -1.0)
    model = FakeModel(context_length=2000)
    constraint = structgen.compile(Regex("(xy){300}[ab]"), model.vocabulary)
    run = Generation(model, constraint, None, encode("p"), SearchOptions())
    run.start()
    n = 0
    for n, _ in enumerate(passes_of(run, model.start(2000), model.pace)):
        if n == 9:
            run.cancel()
    assert n == 10
    assert run.finish_reason == "cancelled"
    assert run.result.text
    assert ("xy" * 300).startswith(run.result.text)
