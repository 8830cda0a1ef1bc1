"""Generator on the fake model: arguments, budget, options, streaming, results."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import pickle
import re
import threading
from typing import Literal

import numpy as np
import pytest
from fakes import END, END_TOO, SIZE, TOKENS, TURN_END, FakeModel, FakeSequence, Person, encode

import structgen
from structgen import Choice, Generator, Regex
from structgen.decoding import chat
from structgen.decoding.progress import Progress
from structgen.models import genai
from structgen.models.base import LoadOptions
from structgen.sampling.processors import TokenMask, min_length, no_repeat_ngram

MESSAGES = [{"role": "user", "content": "hi"}]


# Free text


def test_free_text_is_what_the_model_writes():
    model = FakeModel("hello é the 12")
    assert Generator(model)("x") == "hello é the 12"
    assert model.started[0].closed


def test_free_text_stops_at_a_limit_and_says_so():
    result = Generator(FakeModel("hello"))
    assert result.result("x", max_new_tokens=3).text == "hel"
    assert result.result("x", max_new_tokens=3).finish_reason == "length"
    assert result.result("x", max_new_tokens=6).finish_reason == "stop"


def test_the_context_is_a_limit_too():
    result = Generator(FakeModel("hello hello hello", context_length=10)).result("xxxx")
    assert result.usage.prompt_tokens == 4
    assert result.text == "hello "
    assert result.finish_reason == "length"


def test_max_length_counts_the_prompt():
    generator = Generator(FakeModel("hello hello"))
    assert generator("xxxx", max_length=7) == "hel"
    assert generator("xxxx", max_length=7, max_new_tokens=2) == "he"
    with pytest.raises(structgen.OptionError, match=r"4 tokens.*which has 4.*max_new_tokens"):
        generator("xxxx", max_length=4)
    with pytest.raises(structgen.OptionError, match=r"max_length=300 .* fake: 256"):
        generator("xxxx", max_length=300)


def test_a_models_own_max_length_applies_unless_given():
    model = FakeModel("hello hello", search_defaults={"max_length": 6})
    assert Generator(model)("xxxx") == "he"
    assert Generator(model)("xxxx", max_length=9) == "hello"
    assert Generator(model)("xxxx", max_new_tokens=5) == "hello"
    assert Generator(model)("xxxx", max_length=7, max_new_tokens=5) == "hel"


def test_more_new_tokens_than_the_context_holds_are_refused():
    generator = Generator(FakeModel("hello hello hello", context_length=10))
    assert generator("xxxx", max_new_tokens=6) == "hello "
    with pytest.raises(structgen.OptionError, match=r"max_new_tokens=7 .* has 4. Pass at most 6"):
        generator("xxxx", max_new_tokens=7)
    with pytest.raises(structgen.OptionError, match="at most 6"):
        Generator(FakeModel(context_length=10), int).stream("xxxx", max_new_tokens=7)


# Prompts


TEXT = {"type": "text", "text": "hi"}


def test_content_may_come_in_parts():
    in_parts, whole = FakeModel("ok"), FakeModel("ok")
    parts = [{"type": "text", "text": "Dear "}, TEXT]
    Generator(in_parts)([{"role": "user", "content": parts}])
    Generator(whole)([{"role": "user", "content": "Dear hi"}])
    assert list(in_parts.started[0].token_ids[0]) == list(whole.started[0].token_ids[0])


def test_chat_messages_go_through_the_template():
    model = FakeModel("ok")

    class Message:
        role = "assistant"
        content = "yes"

    Generator(model)([{"role": "system", "content": "be"}, Message(), *MESSAGES])
    turns = (f"[system]be{TURN_END}", f"[assistant]yes{TURN_END}", f"[user]hi{TURN_END}")
    expected = "\n".join([*turns, "[assistant]"])
    assert list(model.started[0].token_ids[0][: len(encode(expected))]) == encode(expected)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("", "empty"),
        ([], "empty list"),
        (None, "NoneType"),
        (b"bytes", "bytes"),
        (3, "is an int"),
        (iter("ab"), "several prompts in a list"),
        ({"role": "user", "content": "hi"}, "single message"),
        ([*MESSAGES, "hi"], "Message 1 is a str"),
        ([{"role": "user"}], "no 'content'.*keys.*role"),
        ([{"content": "x"}], "no 'role'"),
        ([object()], "no 'role'.*object"),
        ([{"role": "usr", "content": "x"}], "Did you mean 'user'"),
        ([{"role": "zzzz", "content": "x"}], "Roles are: system"),
        ([{"role": "user", "content": None}], "'content' is a NoneType.*None is allowed only in"),
        ([{"role": "assistant", "content": None, "tool_calls": []}], "is a NoneType.*Pass a str"),
        ([{"role": 3, "content": "x"}], "'role' is an int, not a str. Pass a str as 'role'"),
        ([("user", "hi", "x")], "^Message 0 is a tuple of 3 strings.*Messages are mappings: "),
        ([{"role": "user", "content": ""}], "no message has any content"),
        ([{"role": "user", "content": []}], "no message has any content"),
        ([{"role": "user", "content": [TEXT, {"type": "image_url"}]}], "part 1 of .*'image_url'"),
        ([{"role": "user", "content": [{"type": "text"}]}], "part 0 of .*is not text"),
        ([{"role": "user", "content": ["hi"]}], "part 0 of its content is a str"),
        ([{"role": "user", "content": [{"type": "text", "text": "\0"}]}], "NUL character"),
        ("a\0b", "NUL character at position 1"),
        ([{"role": "user", "content": "x", "name": "a\0"}], "'name' has a NUL character"),
        ([{"role": "user", "content": "x", "tool_calls": [{"\ud800": 1}]}], "lone surrogate"),
        ([("user", "hi")], r"Message 0 is a pair, \('user', 'hi'\).*\"content\": 'hi'}"),
        ([["system", "a"], ["human", "b"]], "Message 0 is a pair"),
        ([{"role": "user", "content": "x"}, ("human", "b")], '"role": "user"'),
        ([{"role": "user", "content": "\ud800"}], "Message 0 has a lone surrogate"),
        ("x" * 256, r"256 tokens.*fake is 256.*at least 1 "),
        ("x" * 300, r"300 tokens.*at least 45 "),
    ],
)
def test_bad_prompts_are_refused_before_anything_runs(prompt, message):
    model = FakeModel("x")
    with pytest.raises(structgen.PromptError, match=message):
        Generator(model).stream(prompt)
    assert not model.started


@pytest.mark.parametrize("content", [{"content": None}, {}, {"content": ""}])
def test_an_assistants_turn_that_calls_tools_needs_no_content(content):
    calls = [{"type": "function", "function": {"name": "f", "arguments": "{}"}}]
    turn = {"role": "assistant", "tool_calls": calls, **content}
    found = chat.parse([{"role": "user", "content": "hi"}, turn])
    assert found[1] == {"role": "assistant", "content": "", "tool_calls": calls}


@pytest.mark.parametrize(
    "name", ["__call__", "parse", "result", "batch", "stream", "stream_values"]
)
def test_a_second_thing_by_position_is_sent_to_its_name(name):
    model = FakeModel("x")
    call = getattr(Generator(model), name)
    for prompt in ("x", ["x"]):
        with pytest.raises(structgen.OptionError, match=r"of type int\. Pass options by name"):
            call(prompt, 5)
    assert not model.started


def test_no_prompts_give_no_outputs():
    model = FakeModel("x")
    assert Generator(model)([]) == Generator(model).result((), n=2, temperature=1) == []
    assert Generator(model, Person).parse([]) == []
    with pytest.raises(structgen.OptionError, match="temprature"):
        Generator(model)([], temprature=1)
    assert not model.started


# Options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temprature": 1}, "Unknown option 'temprature'. Did you mean 'temperature'"),
        ({"max_tokens": 1}, "called 'max_new_tokens' here"),
        ({"zzz": 1}, "Options are: max_new_tokens"),
        ({"num_beams": 4}, "not supported.*without beam search"),
        ({"num_beams": True}, "not supported.*without beam search"),
        ({"stream": True}, r"'stream' is not supported. Call generator.stream\(prompt\)"),
        ({"model": "x"}, r"'model' is not supported. Load the model and call it: structgen.load"),
        ({"whitespace": "spaced"}, r"Pass it to Generator\(model, output_type, whitespace=...\)"),
        ({"seed": "x"}, "^seed='x' is not a whole number"),
        ({"seed": -1}, "^seed=-1 is out of range"),
        ({"logit_bias": {3: 2000}}, r"logit_bias\[3\]=2000 is out of range.* and 1000. Or -inf"),
        ({"logit_bias": [3]}, "not a mapping from token ids"),
        ({"logit_bias": {" the": 1}}, r"key ' the'. Keys are token ids: use model.encode"),
        ({"logit_bias": {-1: 1}}, "logit_bias key=-1 is out of range"),
        ({"logit_bias": {3: float("nan")}}, r"logit_bias\[3\]=nan is out of range"),
        ({"logit_bias": {3: float("inf")}}, r"logit_bias\[3\]=inf is out of range"),
        ({"logit_bias": {3: "much"}}, r"logit_bias\[3\]='much' is not a number"),
        ({"logit_bias": {3: 1, 999: 1}}, r"token 999, but the vocabulary has 288 ids"),
        ({"batch_size": 0}, "1 or more|between 1 and 256"),
        ({"temperature": "hot"}, "temperature='hot' is not a number"),
        (
            {"temperature": -1},
            "temperature=-1 is out of range. It must be 0, or between 0.01 and 100",
        ),
        ({"temperature": float("nan")}, "temperature=nan is out of range"),
        ({"temperature": float("inf")}, "temperature=inf is out of range"),
        ({"top_p": 0}, "above 0 and at most 1"),
        ({"top_p": 1.5}, "above 0 and at most 1"),
        ({"min_p": -0.1}, "between 0 and 1"),
        ({"min_p": 1.1}, "between 0 and 1"),
        ({"frequency_penalty": 2.1}, "frequency_penalty=2.1 is out of range"),
        ({"presence_penalty": float("nan")}, "presence_penalty=nan is out of range"),
        ({"top_k": 1.5}, "top_k=1.5 is not a whole number"),
        ({"top_k": True}, "top_k=True is not a whole number"),
        ({"max_new_tokens": 0}, "1 or more"),
        ({"do_sample": 1}, "do_sample=1 is not a bool"),
        ({"repetition_penalty": 0}, "between 0.01 and 100"),
        ({"temperature": 1e-5}, "It must be 0, or between 0.01 and 100"),
        ({"seed": -1}, "between 0 and 2,147,483,647"),
        ({"do_sample": True, "temperature": 0}, "contradicts"),
        ({"do_sample": False, "temperature": 1.0}, "contradicts"),
        ({"stop": 3}, "neither a string nor a list"),
        ({"stop": ["a", ""]}, "empty string"),
    ],
)
def test_bad_options_are_refused_before_anything_runs(options, message):
    model = FakeModel("x")
    with pytest.raises(structgen.OptionError, match=message):
        Generator(model).stream("x", **options)
    assert not model.started


@pytest.mark.parametrize(
    ("options", "do_sample"),
    [
        ({}, False),
        ({"temperature": 0.7}, True),
        ({"temperature": 0}, False),
        ({"top_k": 40}, True),
        ({"top_k": 1}, False),
        ({"top_p": 0.9}, True),
        ({"min_p": 0.01}, True),
        ({"min_p": 0}, False),
        ({"min_p": 0.1, "temperature": 0}, False),
        ({"presence_penalty": 1.0, "frequency_penalty": 1.0}, False),
        ({"seed": 3}, False),
        ({"temperature": 0, "do_sample": False}, False),
        ({"temperature": None}, False),
        ({"max_new_tokens": np.int64(9)}, False),
    ],
)
def test_what_implies_sampling(options, do_sample):
    texts = {Generator(FakeModel())("x", **{"max_new_tokens": 9, **options}) for _ in range(5)}
    assert (len(texts) > 1) is do_sample


def test_sampling_is_never_quietly_greedy():
    # A model's own top_k=1 or top_p=0 is not what someone who asks for sampling should get.
    model = FakeModel(search_defaults={"top_k": 1, "top_p": 0.0})
    assert len({Generator(model)("x", temperature=0.7, max_new_tokens=9) for _ in range(5)}) > 1
    assert (
        len({Generator(model)("x", temperature=9, top_k=1, max_new_tokens=9) for _ in "123"}) == 1
    )


def test_same_seed_same_text():
    generator = Generator(FakeModel())
    texts = [generator("x", temperature=1.0, seed=seed, max_new_tokens=20) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_stop_strings_cut_free_text_exactly_even_across_tokens():
    generator = Generator(FakeModel("one the two STOP three"))
    for stop, text in (
        ("STOP", "one the two "),
        ("e tw", "one th"),
        (["zzz", "two", " the"], "one"),
        ("zzz", "one the two STOP three"),
    ):
        result = generator.result("x", stop=stop)
        assert result.text == text
        assert result.finish_reason == ("stop" if stop == "zzz" else "stop_string")


# Output types


def test_an_output_type_overrules_what_the_model_would_write():
    model = FakeModel("I think it is bad")
    assert Generator(model, Literal["good", "bad"])("x") in ("good", "bad")
    model = FakeModel("bad")
    result = Generator(model, Choice(["good", "bad"])).result("x")
    assert (result.text, result.finish_reason) == ("bad", "stop")
    assert result.mean_allowed_tokens is not None
    assert result.mean_allowed_tokens <= 2


def test_nothing_but_the_end_left_ends_without_asking_the_model():
    model = FakeModel("bad")
    generator = Generator(model, Choice(["good", "bad"]))
    result = generator.result("x")
    assert model.started[0].logits_read == 1  # for "b": the rest of "bad" is the only way on
    assert result.usage.forced_tokens == 2
    result = generator.result("x", forced=False)
    assert model.started[1].logits_read == len(result.token_ids) == 3
    assert result.usage.forced_tokens == 0


def test_parse_returns_a_value():
    model = FakeModel('{"name":"Ann","age":12}')
    generator = Generator(model, Person)
    assert generator.parse("x") == Person("Ann", 12)
    assert Generator(FakeModel("12"), int).parse("x", max_new_tokens=4) == 12
    assert Generator(FakeModel("12")).parse("x", max_new_tokens=4) == "12", "free text is its value"


def test_a_result_has_its_value_parsed_once():
    result = Generator(FakeModel('{"name":"Ann","age":12}'), Person).result("x")
    assert result.value == Person("Ann", 12)
    assert result.value is result.value
    assert Generator(FakeModel("hello")).result("x", max_new_tokens=2).value == "he"


def test_a_pickled_result_has_its_value():
    result = Generator(FakeModel('{"name":"Ann","age":12}'), Person).result("x")
    again = pickle.loads(pickle.dumps(result))
    assert again == result
    assert again.value == pickle.loads(pickle.dumps(again)).value == Person("Ann", 12)

    @dataclasses.dataclass
    class Local:
        age: int

    again = pickle.loads(pickle.dumps(Generator(FakeModel('{"age":1}'), Local).result("x")))
    assert again.text == '{"age":1}'
    with pytest.raises(structgen.ParseError, match="sent without its value"):
        _ = again.value


def test_values_are_streamed_as_they_become_known():
    generator = Generator(FakeModel('{"name":"Ann","age":12}'), Person)
    with generator.stream_values("x") as stream:
        partials = list(stream)
    assert [partial.so_far for partial in partials] == [
        {},
        {"name": ""},
        {"name": "A"},
        {"name": "An"},
        {"name": "Ann"},
        {"name": "Ann"},
        {"name": "Ann", "age": 12},
        Person("Ann", 12),
    ]
    assert [partial.done("name") for partial in partials] == [False] * 5 + [True] * 3
    assert [partial.complete for partial in partials] == [False] * 7 + [True]
    assert partials[-1].value is stream.result.value
    with pytest.raises(structgen.StructgenError, match="read to its end"):
        next(iter(stream))
    assert [str(one) for one in Generator(FakeModel("ab")).stream_values("x")] == ["a", "ab", "ab"]


def test_a_stream_of_values_that_is_cut_ends_or_says_so():
    generator = Generator(FakeModel('{"name":"Ann","age":12}'), Person)
    stream = generator.stream_values("x")
    assert next(stream).so_far == {}
    stream.close()
    assert list(stream) == []
    with pytest.raises(structgen.IncompleteOutput, match="stop string"):
        list(generator.stream_values("x", stop="nn"))
    stream = generator.stream_values("x")
    next(stream)
    stream.cancel()
    with pytest.raises(structgen.IncompleteOutput, match="cancelled"):
        list(stream)
    with pytest.raises(structgen.OptionError, match="returns one output"):
        generator.stream_values(["x"])


def test_what_is_not_whole_has_no_value():
    stream = Generator(FakeModel('{"name":"Ann","age":12}'), Person).stream("x")
    next(stream)
    with pytest.raises(
        structgen.IncompleteOutput, match=r"not complete.*Read the stream"
    ) as caught:
        _ = stream.result.value
    assert caught.value.text == stream.result.text != ""
    stream.close()
    with pytest.raises(structgen.IncompleteOutput, match=r"was truncated.*'cancelled'"):
        _ = stream.result.value
    stream = Generator(FakeModel("12"), int).stream("x")
    for _ in stream:
        pass
    assert stream.result.value == 12
    with pytest.raises(structgen.IncompleteOutput, match="stop string"):
        Generator(FakeModel('{"name":"Ann","age":12}'), Person).parse("x", stop="nn")


def test_a_batch_gives_values():
    generator = Generator(FakeModel("12"), int)
    assert generator.batch(["x", [{"role": "user", "content": "y"}]]) == [12, 12]
    assert generator.batch([]) == []
    assert generator.batch(("x",)) == [12]
    assert generator.batch(["x", "y"], n=2, temperature=1, seed=1) == [[12, 12]] * 2
    for one in ("x", MESSAGES, None):
        with pytest.raises(structgen.PromptError, match=r"takes a list of prompts.*\[prompt\]"):
            generator.batch(one)
    mixed = generator.batch(["x", "x" * 300], return_errors=True)
    assert mixed[0] == 12
    assert isinstance(mixed[1], structgen.PromptError)


def test_a_model_may_make_generators_of_its_own():
    class Elsewhere:
        def make_generator(self, output_type, **options):
            return output_type, options

    assert Generator(Elsewhere(), int, whitespace="compact") == (int, {"whitespace": "compact"})


def test_a_generator_is_copied_as_itself():
    generator = Generator(FakeModel("12"), int)
    assert copy.copy(generator) is generator
    assert copy.deepcopy([generator])[0] is generator


@pytest.mark.parametrize("seed", range(20))
def test_output_always_completes_within_the_budget(seed):
    generator = Generator(FakeModel(), Person)
    for budget in (30, 60):
        result = generator.result("x", max_new_tokens=budget, temperature=1.0, seed=seed)
        assert result.finish_reason in ("stop", "budget")
        assert len(result.token_ids) < budget
        assert isinstance(generator.constraint.output.parse(result.text), Person)


def test_a_budget_too_small_is_refused_before_the_model_runs():
    model = FakeModel()
    with pytest.raises(structgen.BudgetTooSmall) as caught:
        Generator(model, Person).stream("x", max_new_tokens=5)
    assert str(caught.value).endswith(" Raise max_tokens (max_new_tokens= of a generator).")
    assert caught.value.budget == 5
    assert caught.value.minimum > 5
    assert not model.started
    Generator(model, Person)("x", max_new_tokens=caught.value.minimum)


def test_a_stop_string_that_cuts_a_typed_output_is_an_error_with_the_text():
    model = FakeModel('{"name":"Ann","age":12}')
    with pytest.raises(
        structgen.IncompleteOutput, match="it reached the stop string '\"age'"
    ) as caught:
        Generator(model, Person)("x", stop='"age')
    assert caught.value.text == '{"name":"Ann",'
    lines = Generator(FakeModel("the\nthe"), Regex(r"( ?[a-z]+\n?)+"))
    assert lines("x", stop="\n") == "the"


def test_min_length_yields_to_the_output_type():
    generator = Generator(FakeModel("12"), Regex("[0-9]+"))
    text = generator("x", min_length=12, max_new_tokens=20)
    assert 1 + len(encode(text)) >= 12
    assert text.isdigit()
    # Nothing but the end is left after "bad": it ends, and "bad" is all there is.
    assert Generator(FakeModel("bad"), Choice(["good", "bad"]))("x", min_length=50) == "bad"
    assert Generator(FakeModel("b"), Regex("b{30}"))("x", no_repeat_ngram_size=2) == "b" * 30


@pytest.mark.parametrize("score", [np.nan, -np.inf])
@pytest.mark.parametrize("temperature", [0, 1])
def test_a_token_is_not_chosen_for_ever(score, temperature, monkeypatch):
    """It was, and refused each time, in the process of all calls."""
    accepts, asked = Progress.accepts, itertools.count()

    def counted(progress, token):
        assert next(asked) < 10_000
        return accepts(progress, token)

    monkeypatch.setattr(Progress, "accepts", counted)
    model = FakeModel()
    for is_some in (False, True):
        scores = np.full((1, SIZE), score, np.float32)
        scores[0, ::2] = score if not is_some else -np.inf
        monkeypatch.setattr(FakeSequence, "_scores", lambda *at, scores=scores: scores.copy())
        for output_type in (Regex("(ab|cd){3}"), Person):
            with contextlib.suppress(structgen.ModelError):
                Generator(model, output_type)("x", temperature=temperature, max_new_tokens=60)


def test_a_models_own_penalties_are_kept():
    model = FakeModel("1212121212", search_defaults={"min_length": 4, "no_repeat_ngram_size": 2})
    for output_type in (Regex("[0-9]+"), None):
        result = Generator(model, output_type).result("x", max_new_tokens=9)
        pairs = list(itertools.pairwise(result.token_ids))
        assert len(pairs) == len(set(pairs)) > 1


def test_a_compiled_constraint_can_be_passed():
    model = FakeModel("bad")
    constraint = structgen.compile(Literal["good", "bad"], model.vocabulary)
    assert Generator(model, constraint)("x") == "bad"
    other = structgen.Vocabulary.from_tokens([b"", b"a"], [0])
    with pytest.raises(structgen.OptionError, match="a different vocabulary"):
        Generator(model, structgen.compile(Regex("a"), other))


# Processors


def test_a_processor_sees_token_ids_and_logits_and_decides():
    seen = []

    def only_a(token_ids, logits):
        seen.append((token_ids.dtype, token_ids.shape, logits.dtype, logits.shape))
        allowed = [encode("a")[0]] if token_ids.shape[1] < 4 else [END]
        out = np.full_like(logits, -np.inf)
        out[:, allowed] = logits[:, allowed]
        return out

    assert Generator(FakeModel("hello"), processor=only_a)("x") == "aaa"
    assert seen[0] == (np.int32, (1, 1), np.float32, (1, SIZE))
    assert [shape for _, shape, _, _ in seen] == [(1, 1), (1, 2), (1, 3), (1, 4)]


@pytest.mark.parametrize(
    ("processor", "message"),
    [
        (lambda ids, logits: None, "returned NoneType"),
        (lambda ids, logits: logits[0], r"returned float32 \[288\], not .*\[1, 288\]"),
        (lambda ids, logits: logits.astype(np.float64), r"float64 \[1, 288\]; convert"),
        (lambda ids, logits: logits - np.inf, "ruled out every token"),
        (lambda ids, logits: logits * np.nan, "NaN"),
        (lambda ids, logits: logits + np.inf, r"returned \+inf"),
        (lambda ids, logits: np.where(np.arange(SIZE) == 5, np.inf, logits), r"\+inf"),
    ],
)
def test_a_wrong_processor_is_named(processor, message):
    model = FakeModel("hello")
    with pytest.raises(structgen.OptionError, match=message):
        Generator(model, processor=processor)("x")
    assert model.started[0].closed


def test_a_processor_beside_an_output_type_sees_the_mask_and_cannot_undo_it():
    seen = []

    def wants_x(token_ids, logits):
        seen.append(np.isfinite(logits).sum())
        logits[:] = -5
        logits[:, encode("x")] = 100
        logits[:, encode("g")] = 50
        return logits

    model = FakeModel("bad")
    result = Generator(model, Choice(["good", "bad"]), processor=wants_x).result("x")
    assert result.text == "good"
    assert seen[0] == 2
    assert result.mean_allowed_tokens == np.mean(seen)


@pytest.mark.parametrize("seed", range(10))
def test_no_processor_can_make_an_output_invalid(seed):
    random = np.random.default_rng(seed)

    def noise(token_ids, logits):
        return random.normal(size=logits.shape).astype(np.float32) * 30

    options = {"temperature": 1.0, "seed": seed, "max_new_tokens": 60}
    generator = Generator(FakeModel(), Person, processor=noise)
    assert isinstance(generator.parse("x", **options), Person)


def test_what_a_processor_returns_stays_its_own():
    fixed = np.random.default_rng(1).normal(size=(1, SIZE)).astype(np.float32)
    fixed.flags.writeable = False
    generator = Generator(FakeModel(), Regex("(ab|cd){3}"), processor=lambda ids, logits: fixed)
    first = generator("x")
    assert generator("x") == first == first[:2] * 3
    assert np.isfinite(fixed).all()


def test_a_processor_of_a_call_comes_after_the_generators():
    seen = []

    def double(token_ids, logits):
        return logits * 2

    def note(token_ids, logits):
        seen.append(logits.copy())
        return logits

    model = FakeModel("bad")
    for output_type in (None, Choice(["good", "bad"])):
        seen.clear()
        assert Generator(model, output_type, processor=note)("x", processor=double) == "bad"
        assert Generator(model, output_type, processor=double)("x", processor=note) == "bad"
        first, second = seen[0], seen[len(seen) // 2]
        assert (second == first * 2).all()
    with pytest.raises(structgen.OptionError, match="processor=3 is not callable"):
        Generator(model)("x", processor=3)


def test_a_processor_that_rules_out_all_that_is_allowed_is_an_error():
    def no_words(token_ids, logits):
        logits[:, encode("g") + encode("b")] = -np.inf
        logits[:, encode("x")] = 1
        return logits

    model = FakeModel("bad")
    with pytest.raises(structgen.OptionError, match=r"output type allows here \(2\).*-1e9"):
        Generator(model, Choice(["good", "bad"]), processor=no_words)("x")


def test_logit_bias_is_a_preference_and_the_mask_the_law():
    model = FakeModel("bad")
    choice = Generator(model, Choice(["good", "bad"]))
    (b,), (g,), (x,) = encode("b"), encode("g"), encode("x")
    assert choice("x", logit_bias={g: 100}) == "good"
    assert choice("x", logit_bias={x: 1000}) == "bad"
    assert choice("x", logit_bias={b: float("-inf")}) == "good"
    assert choice("x", logit_bias={b: float("-inf"), g: float("-inf")}) in ("good", "bad")
    free = Generator(model)
    assert free("x", logit_bias={b: float("-inf")}, max_new_tokens=1) != "b"
    assert free("x", logit_bias={np.int64(x): np.float32(1000)}, max_new_tokens=3) == "xxx"


def test_one_beam_is_what_every_output_has():
    for beams in (1, None):
        assert Generator(FakeModel("hello"))("x", num_beams=beams) == "hello"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("temprature", "'temperature', which belongs to the call"),
        ("max_tokens", "'max_new_tokens', which belongs to the call"),
        ("thnk", "'think'"),
        ("procesor", "'processor'"),
        ("max_wrk", "'max_work'"),
    ],
)
@pytest.mark.parametrize("output_type", [None, int])
def test_a_misspelt_option_of_a_generator_is_told(output_type, name, meant):
    said = f"Unknown option '{name}' of Generator(...). Did you mean {meant}?"
    with pytest.raises(structgen.OptionError, match=re.escape(said)):
        Generator(FakeModel(), output_type, **{name: 1})


def test_wrong_arguments():
    model = FakeModel("x")
    with pytest.raises(structgen.OptionError, match="not callable"):
        Generator(model, processor=3)
    with pytest.raises(structgen.OptionError, match="temperature= belongs to the call"):
        Generator(model, temperature=1)
    with pytest.raises(structgen.ModelError, match=r"str, not a loaded.*structgen.load\('name'\)"):
        Generator("name")


# Streaming


def test_a_stream_gives_the_same_text_in_pieces():
    generator = Generator(FakeModel('{"name":"é€","age":12}'), Person)
    stream = generator.stream("x")
    assert stream.result.finish_reason is None
    chunks = [next(stream), next(stream)]
    assert stream.result.finish_reason is None
    chunks += stream
    assert "".join(chunks) == generator("x") == '{"name":"é€","age":12}'
    assert all(chunks)
    assert len(chunks) > 5
    assert stream.result.finish_reason == "stop"
    assert stream.result.usage.output_tokens == len(stream.result.token_ids)
    timings = stream.result.timings
    assert 0 < timings.first_chunk_seconds < timings.total_seconds


def test_an_unread_stream_has_run_nothing():
    model = FakeModel("hello")
    stream = Generator(model).stream("x")
    assert stream.result.finish_reason is None
    stream.close()
    assert stream.result.finish_reason == "cancelled"
    assert not model.started


def test_leaving_a_stream_early_frees_the_sequence():
    model = FakeModel("hello")
    generator = Generator(model)
    with generator.stream("x") as stream:
        assert next(stream) == "h"
    assert model.started[0].closed
    assert stream.result.finish_reason == "cancelled"
    assert stream.result.text == "h"
    assert list(stream) == []
    dropped = generator.stream("x")
    next(dropped)
    del dropped  # at once, not when the garbage collector comes by
    assert model.started[1].closed


def test_an_error_in_the_middle_frees_the_sequence():
    model = FakeModel("hello")

    def fails_later(ids, logits):
        if ids.shape[1] > 2:
            raise KeyboardInterrupt
        return logits

    with pytest.raises(KeyboardInterrupt):
        Generator(model, processor=fails_later)("x")
    assert model.started[0].closed


def test_one_generator_serves_many_threads():
    generator = Generator(FakeModel(), Person)
    expected = {s: generator("x", temperature=1.0, seed=s, max_new_tokens=40) for s in range(8)}
    got: dict[int, str] = {}

    def work(seed: int) -> None:
        got[seed] = generator("x", temperature=1.0, seed=seed, max_new_tokens=40)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == expected


# Processors of our own


class EveryThird:
    """A cursor that allows every third token."""

    is_accepting = False
    without_budget = None

    def fill_mask(self, out):
        bits = np.arange(len(out) * 32) % 3 == 0
        bits[SIZE - 3 :] = False
        out[:] = np.packbits(bits, bitorder="little").view(np.uint32)

    def n_allowed(self, words, *, is_changed):
        return int(np.unpackbits(words.view(np.uint8)).sum())


def test_a_token_mask_puts_minus_infinity_on_exactly_what_is_forbidden():
    mask = TokenMask(EveryThird(), SIZE - 3, 2)
    logits = np.random.default_rng(0).normal(size=(1, SIZE - 3)).astype(np.float32)
    before = logits.copy()
    assert not mask.begin()
    after = mask(np.zeros((1, 1), np.int32), logits)
    allowed = np.arange(SIZE - 3) % 3 == 0
    assert (after[0, allowed] == before[0, allowed]).all()
    assert (after[0, ~allowed] == -np.inf).all()
    assert mask.allowed == allowed.sum()


def test_a_favourite_that_the_mask_allows_is_what_a_greedy_choice_takes():
    mask = TokenMask(EveryThird(), SIZE - 3, 2)
    mask.begin()
    taken = 0
    rng = np.random.default_rng(0)
    for _ in range(200):
        # Few different scores, so that many are equal.
        scores = rng.integers(0, 4, (1, SIZE - 3)).astype(np.float32)
        favourite = mask.favourite(scores[0])
        chosen = int(mask(np.zeros((1, 1), np.int32), scores.copy())[0].argmax())
        taken += favourite is not None
        assert favourite in (None, chosen)
        assert (favourite is None) == (int(scores[0].argmax()) % 3 != 0)
    assert 20 < taken < 180


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_repeat_ngram_lowers_exactly_the_tokens_that_would_repeat_one(size):
    ids = np.array([[5, 6, 7, 5, 6, 8, 5, 6]], np.int32)
    logits = np.zeros((1, 10), np.float32)
    no_repeat_ngram(size)(ids, logits)
    banned = {1: {5, 6, 7, 8}, 2: {7, 8}, 3: {7, 8}}[size]
    assert set(np.flatnonzero(logits[0])) == banned
    assert np.isfinite(logits).all()
    short = np.zeros((1, 10), np.float32)
    no_repeat_ngram(9)(ids, short)
    assert not short.any()


def test_min_length_lowers_every_end_of_sequence_id_while_short():
    processor = min_length(3, (END, END_TOO))
    for length, lowered in ((2, {END, END_TOO}), (3, set())):
        logits = np.zeros((1, SIZE), np.float32)
        processor(np.zeros((1, length), np.int32), logits)
        assert set(np.flatnonzero(logits[0])) == lowered


def test_the_fake_tokenizer_round_trips():
    text = 'héllo {"a": 12} the €'
    assert b"".join(TOKENS[i] for i in encode(text)).decode() == text


def test_options_of_a_call_given_to_the_generator_are_sent_there():
    model = FakeModel("1")
    for output_type in (int, None):
        with pytest.raises(
            structgen.OptionError,
            match=r"temperature=, seed= belongs? to the call.*generator\(prompt, temperature=1\)",
        ):
            Generator(model, output_type, temperature=1, seed=2)
    constraint = structgen.compile(int, model.vocabulary)
    with pytest.raises(
        structgen.OptionError, match="whitespace: the constraint is already compiled"
    ):
        Generator(model, constraint, whitespace="spaced")
    with pytest.raises(structgen.PromptError, match="probabilities takes one prompt"):
        Generator(model, bool).probabilities(["a", "b"])


@pytest.mark.parametrize("threads", [0, -1, True, "2", 1.5])
def test_threads_are_counted_before_anything_is_read(threads, tmp_path):
    wrong = r"threads=.* is (out of range. It must be 1|not a whole number)"
    with pytest.raises(structgen.OptionError, match=wrong):
        genai.load(tmp_path, LoadOptions(threads=threads), kind=genai.TextModel)
