"""Several outputs of one call: the same as one by one, in order, errors in their places."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from fakes import END, PROMPTS, FakeBatch, FakeModel, Person, chat, encode, vocabulary
from rounding import TIE, cold, gap, near

import structgen
from structgen import Generator, JsonSchema, Regex
from structgen.decoding import Generation, SearchOptions, loop, progress
from structgen.decoding.tasks import _what_failed
from structgen.errors import ModelError
from structgen.models import base
from structgen.models.base import ON_CPU
from structgen.models.genai.sequences import pads_exactly


def strip(result):
    return result.text, result.token_ids, result.finish_reason, result.usage.forced_tokens


@pytest.mark.parametrize("batch_size", [None, 1, 2, 3, 8])
@pytest.mark.parametrize("works", [True, False])
@pytest.mark.parametrize("forced", [True, False])
@pytest.mark.parametrize("output_type", [Person, None, Literal["good", "bad", "goodish"]])
def test_a_batch_gives_what_each_prompt_gives_alone(output_type, forced, works, batch_size):
    model = FakeModel()
    model.batches_work = works
    model.prompt_length = 1  # there is no script: nothing depends on it
    generator = Generator(model, output_type)
    options = {"max_new_tokens": 40, "temperature": 1.0, "seed": 3, "forced": forced}
    alone = [strip(generator.result(prompt, **options)) for prompt in PROMPTS]
    together = generator.result(PROMPTS, batch_size=batch_size, **options)
    assert [strip(result) for result in together] == alone
    assert all(sequence.closed for sequence in model.started)
    assert all(rows.closed for rows in model.batches)
    if batch_size == 8:
        assert bool(model.batches) is works
        assert all(len(rows.rows) <= 8 for rows in model.batches)
    if batch_size == 1:
        assert not model.batches


def choices_and_turns(monkeypatch, steps):
    """Choices of tokens and turns of others, where each choice takes long."""
    events = []
    monkeypatch.setattr(base, "AT_ONCE", -1.0)
    choose = Generation.choose
    monkeypatch.setattr(Generation, "choose", lambda *of: (events.append("choice"), choose(*of))[1])
    for _ in steps:
        events.append("turn")
    return "".join(event[0] for event in events)


def test_others_have_turns_between_the_rows_of_a_batch(monkeypatch):
    model = FakeModel()
    constraint = structgen.compile(Regex("[a-z]{20}"), model.vocabulary)
    options = SearchOptions(max_new_tokens=30)
    prompts = [np.array(encode(prompt), np.int32) for prompt in "xyz"]
    runs = [Generation(model, constraint, None, prompt, options) for prompt in prompts]
    told = choices_and_turns(monkeypatch, loop.Rows(model, dict(enumerate(runs)), {}).together())
    assert told.count("c") >= 30
    assert "cc" not in told


def test_others_have_turns_between_the_tokens_of_a_guess(monkeypatch):
    text = "the quick brown fox jumps over the lazy dog"
    model = FakeModel(text)
    constraint = structgen.compile(Regex("[a-z ]+"), model.vocabulary)
    prompt = np.array(encode(f"{text}; {text}; the "), np.int32)
    run = Generation(model, constraint, None, prompt, SearchOptions(max_new_tokens=60))
    told = choices_and_turns(monkeypatch, loop.made(model, run))
    assert run.result.usage.accepted_tokens > 5
    assert "cc" not in told


def test_rows_that_are_done_are_left_out_when_they_have_cost_enough():
    model = FakeModel()
    generator = Generator(model)
    lengths = iter([1, 1, 1, 1, 1, 60, 70])

    def stop_after(n):
        def processor(ids, logits):
            if ids.shape[1] > n:
                logits[:] = -np.inf
                logits[:, END] = 0
            else:
                logits[:, END] = logits[:, END + 1] = -np.inf
            return logits

        return processor

    from structgen.decoding import options as search_options
    from structgen.decoding.generation import Generation

    ids = np.array(encode("x"), np.int32)
    search = search_options.parse({"max_new_tokens": 100})
    runs = [Generation(model, None, stop_after(n), ids, search) for n in lengths]
    assert loop.make_all(model, runs, 8, forces=False) == {}
    assert [run.result.usage.output_tokens for run in runs] == [1, 1, 1, 1, 1, 60, 70]
    # Seven rows, then the two that are left, then one by itself.
    assert [len(rows.rows) for rows in model.batches] == [7, 2]
    assert generator("x", max_new_tokens=3)


def test_chats_and_texts_lists_and_samples():
    model = FakeModel("ok")
    generator = Generator(model)
    hi = chat("hi")
    assert generator(["a", "b"]) == ["ok", "ok"]
    assert generator([hi, hi]) == ["ok", "ok"]
    assert generator([hi, "text"]) == ["ok", "ok"]
    assert generator(hi) == "ok"
    assert generator(["one"]) == ["ok"]
    samples = Generator(FakeModel(), Person).parse("x", n=3, temperature=1.0, seed=1)
    assert all(isinstance(person, Person) for person in samples)
    generator = Generator(FakeModel(), Person)
    options = {"temperature": 1.0, "seed": 1, "max_new_tokens": 40}
    several = generator(["x", "yy"], n=3, **options)
    assert [len(row) for row in several] == [3, 3]
    assert len(set(several[0])) > 1
    # The first sample is the output of a call for one.
    assert [row[0] for row in several] == [generator(p, **options) for p in ("x", "yy")]
    assert several[0] == generator("x", n=3, **options)


@pytest.mark.parametrize("call", ["parse", "result", "stream", "stream_values"])
def test_errors_are_put_among_several_outputs_only(call):
    generator = Generator(FakeModel("hello"))
    with pytest.raises(structgen.OptionError, match="return_errors= requires a call with several"):
        getattr(generator, call)("x", return_errors=True)
    assert generator.batch(["x"], return_errors=True) == ["hello"]
    assert getattr(generator, call)("x", return_errors=False)


def test_one_bad_prompt_loses_no_other():
    generator = Generator(FakeModel("ok"))
    prompts = ["a", "", "b", "z" * 300, 3]
    with pytest.raises(
        structgen.BatchError, match=r"2 of 4 outputs failed.*, \.errors\[1\]: The prompt is empty"
    ) as caught:
        generator(prompts[:4])
    assert caught.value.results == ["ok", None, "ok", None]
    assert {i: type(e) for i, e in caught.value.errors.items()} == {
        1: structgen.PromptError,
        3: structgen.PromptError,
    }
    returned = generator(prompts[:4], return_errors=True)
    assert returned[0] == returned[2] == "ok"
    assert isinstance(returned[3], structgen.PromptError)
    with pytest.raises(structgen.BatchError) as caught:
        generator(["a", ""], n=2, temperature=1.0, max_new_tokens=2)
    assert set(caught.value.errors) == {(1, 0), (1, 1)}
    assert caught.value.results[1] == [None, None]


def test_when_all_fail_nothing_is_said_of_others():
    with pytest.raises(structgen.BatchError, match=r"^All 2 outputs failed; .* in \.errors\.$"):
        Generator(FakeModel("ok"))(["", "z" * 300])
    with pytest.raises(structgen.BatchError, match=r"^The only output failed: .*is empty"):
        Generator(FakeModel("ok"))([""])


@pytest.mark.parametrize("ending", ["", "."])
def test_what_failed_first_is_a_sentence(ending):
    errors = dict.fromkeys(range(2), structgen.ParseError(f"It is 'no'{ending}", text="no"))
    assert "the first: It is 'no'. Their errors are in .errors." in _what_failed(errors, 2)
    assert ".errors[0]: It is 'no'. The others are in" in _what_failed(errors, 3)


def test_a_mistake_of_the_call_is_raised_as_itself():
    generator = Generator(FakeModel(), Person)
    too_small = r"^A budget of 1 token .* Raise max_tokens"
    with pytest.raises(structgen.BudgetTooSmall, match=too_small):
        generator(["x", "yy"], max_new_tokens=1)
    with pytest.raises(structgen.OptionError, match="adapter='x' is not loaded"):
        generator("x", n=2, temperature=1.0, adapter="x")
    # Asked for errors in their places, they stand there; and others may not be the call's.
    returned = generator(["x", "yy"], max_new_tokens=1, return_errors=True)
    assert all(isinstance(error, structgen.BudgetTooSmall) for error in returned)
    with pytest.raises(structgen.BatchError):
        generator(["x", ""], max_new_tokens=1)


@pytest.mark.parametrize("batch_size", [1, 8])
def test_an_error_in_one_row_loses_no_other(batch_size):
    def fails_on_b(ids, logits):
        if ids[0, 0] == encode("b")[0]:
            raise RuntimeError("no b")
        return logits

    model = FakeModel("ok")
    generator = Generator(model, processor=fails_on_b)
    out = generator(["a", "b", "c"], batch_size=batch_size, return_errors=True)
    assert [out[0], str(out[1]), out[2]] == ["ok", "no b", "ok"]
    typed = Generator(FakeModel('{"name":"Ann","age":1}'), Person)
    out = typed(["a", "b"], stop='"age', batch_size=batch_size, return_errors=True)
    assert all(isinstance(error, structgen.IncompleteOutput) for error in out)
    cut = typed(["a", "b"], timeout=1e-9, batch_size=batch_size, return_errors=True)
    assert all(isinstance(error, structgen.IncompleteOutput) for error in cut)


def test_an_interrupt_ends_the_whole_call():
    def interrupted(ids, logits):
        raise KeyboardInterrupt

    model = FakeModel("ok")
    with pytest.raises(KeyboardInterrupt):
        Generator(model, processor=interrupted)(["a", "b"], batch_size=8)
    assert all(rows.closed for rows in model.batches)


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ("x", {"n": 2}, "n=2 outputs of a greedy call would be the same"),
        ("x", {"n": 0}, "n=0 is out of range"),
        (["x"], {"batch_size": 0}, "batch_size=0 is out of range"),
        (["x"], {"temprature": 1}, "temperature"),
    ],
)
def test_wrong_options_are_errors_of_the_call(prompt, options, message):
    with pytest.raises(structgen.OptionError, match=message):
        Generator(FakeModel("x"))(prompt, **options)
    with pytest.raises(structgen.OptionError, match="one output"):
        Generator(FakeModel("x")).stream(["x", "y"])


RECORDED = [Person, None, Literal["good", "bad", "goodish"], JsonSchema({"const": ["a", 1]})]


@pytest.mark.parametrize("works", [True, False])
@pytest.mark.parametrize("forced", [True, False])
@pytest.mark.parametrize("output_type", RECORDED)
def test_logprobs_and_traces_are_recorded_in_a_batch_too(output_type, forced, works):
    model = FakeModel()
    model.batches_work = works
    model.prompt_length = 1
    generator = Generator(model, output_type)
    options = {"top_logprobs": 2, "trace": True, "max_new_tokens": 40, "forced": forced}
    alone = [generator.result(prompt, **options) for prompt in PROMPTS]
    together = generator.result(PROMPTS, batch_size=4, **options)
    assert bool(model.batches) is works
    for one, other in zip(alone, together, strict=True):
        assert other.text == one.text
        assert other.logprobs == one.logprobs
        assert all(scores.unmasked_logprob is not None for scores in other.logprobs)
        assert other.trace.steps == one.trace.steps
    assert all(rows.closed for rows in model.batches)


@pytest.mark.parametrize(
    ("output_type", "options", "batched"),
    [
        (Person, {"seed": 1}, False),
        (Person, {"seed": 1, "batch_size": 8}, True),
        (Person, {"seed": 1, "forced": False}, False),
        (None, {"seed": 1}, False),
        (None, {"seed": 1, "batch_size": 8}, True),
        (None, {}, True),
        (Regex("[a-z]{9}"), {}, True),
        (Regex("[a-z]{9}"), {"seed": 1}, False),
    ],
)
def test_who_gives_a_seed_gets_what_calls_for_one_give(output_type, options, batched):
    model = FakeModel()
    outputs = Generator(model, output_type)(PROMPTS, temperature=1.0, max_new_tokens=40, **options)
    assert len(outputs) == len(PROMPTS)
    assert bool(model.batches) is batched


def test_samples_of_a_long_prompt_share_it_and_long_prompts_make_no_long_pass():
    model = FakeModel(context_length=4_000)
    generator = Generator(model)
    options = {"temperature": 1.0, "max_new_tokens": 4}
    generator("a" * 200, n=3, **options)
    assert not model.batches
    generator("a", n=3, **options)
    assert len(model.batches) == 1
    # Three prompts of which no two fit into a pass that may be waited for.
    generator([c * 400 for c in "abc"], **options)
    assert len(model.batches) == 1
    generator([c * 400 for c in "abc"], batch_size=3, **options)
    assert len(model.batches) == 2


@pytest.mark.parametrize(("again", "batches"), [(1_000, 4), (0, 1)])
@pytest.mark.parametrize("output_type", [Person, None])
def test_rows_of_a_full_batch_go_on(monkeypatch, output_type, again, batches):
    """In another batch where that begins with a short pass: all others wait for it."""
    monkeypatch.setattr(FakeBatch, "is_full", property(lambda self: self.rows[0].passes > 10))
    model = FakeModel()
    model.pace = replace(ON_CPU, again=again)
    model.prompt_length = 1
    generator = Generator(model, output_type)
    options = {"max_new_tokens": 40, "temperature": 1.0, "seed": 3}
    options |= {"processor": without_end} if output_type is None else {"forced": False}
    alone = [strip(generator.result(prompt, **options)) for prompt in ("x", "q")]
    together = generator.result(["x", "q"], batch_size=2, **options)
    assert [strip(result) for result in together] == alone
    assert len(model.batches) == batches


def test_rows_into_which_a_turn_is_written_go_on_alone(monkeypatch):
    """In a step, the runtime takes what ends it for a row's end."""
    model = FakeModel()
    monkeypatch.setattr(
        model, "encode", lambda text: np.array([END if c == "|" else ord(c) for c in text])
    )
    model.prompt_length = 1
    draft = structgen.Draft(max_tokens=6, text_request="|so|")
    generator = Generator(model, Regex("[a-z]{9}"), draft=draft)
    options = {"max_new_tokens": 40, "temperature": 1.0, "seed": 3}
    prompts = ["x|y", "q|r", "z|z"]
    alone = [strip(generator.result(prompt, **options)) for prompt in prompts]
    together = generator.result(prompts, batch_size=3, **options)
    assert [strip(result) for result in together] == alone
    assert [len(batch.rows) for batch in model.batches] == [3]


def without_end(ids, logits):
    logits[:, END] = logits[:, END + 1] = -np.inf
    return logits


def test_rows_left_over_keep_what_is_to_be_scored():
    # One row ends much later than the others: it is run again by itself, amid forced text.
    schema = JsonSchema({"enum": ["a", "b", {"key": "the same long text for all", "n": [1, 2]}]})
    model = FakeModel()
    model.prompt_length = 1
    generator = Generator(model, schema)

    def choose(token_ids, logits):
        wanted = b'"a"' if token_ids[0, 0] != encode("z")[0] else b'{"'
        for token_id in encode(wanted.decode()):
            logits[:, token_id] += 100
        return logits

    options = {"logprobs": True, "processor": choose, "max_new_tokens": 90}
    prompts = ["x", "yy", "xyz", "z"]
    alone = [generator.result(prompt, **options) for prompt in prompts]
    together = generator.result(prompts, batch_size=4, **options)
    assert [len(result.token_ids) > 20 for result in alone] == [False, False, False, True]
    assert [r.logprobs for r in together] == [r.logprobs for r in alone]
    assert len(model.batches) == 1


def test_a_batch_begins_with_no_more_scores_than_fit():
    model = FakeModel("ok")
    batch_scores = 4 * model.vocabulary.size
    generator = Generator(model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "_MOST_SCORES", 60 * batch_scores)
        assert generator(["x" * 20] * 7, batch_size=8) == ["ok"] * 7
    assert [len(rows.rows) for rows in model.batches] == [3, 3]  # and one by itself


def test_no_more_rows_than_the_model_takes():
    model = FakeModel("ok")
    model.most_rows = 3
    assert Generator(model)(["x"] * 7, batch_size=256) == ["ok"] * 7
    assert [len(rows.rows) for rows in model.batches] == [3, 3]  # and one by itself


def test_the_runtime_takes_as_many_rows_as_are_claimed(model):
    outputs = Generator(model, ["a", "b"])(["x"] * (model.most_rows + 1), batch_size=256)
    assert len(outputs) == model.most_rows + 1


def test_it_is_decided_by_counting_steps():
    class Told:
        def __init__(self, n_prompt, usage=None):
            self.prompt_ids = np.arange(n_prompt, dtype=np.int32)
            self.result = type("Result", (), {"usage": usage})

    free = structgen.decoding.results.Usage(40, 100, forced_tokens=0)
    assert loop._pays([Told(40, free), *[Told(40)] * 8], 0, 8, ON_CPU)
    forced = structgen.decoding.results.Usage(40, 100, forced_tokens=80)
    assert not loop._pays([Told(40, forced), *[Told(40)] * 8], 0, 8, ON_CPU)
    # One more output is never a batch.
    assert not loop._pays([Told(40, free), Told(40)], 0, 8, ON_CPU)


# The real model


def test_rows_score_as_they_do_alone_but_for_rounding(model):
    r = random.Random(0)
    rows = [np.array([r.randint(100, 40_000) for _ in range(n)], np.int32) for n in (9, 4, 7)]
    together = model.start_batch(rows, 40)
    alone = [model.start(40) for _ in rows]
    for sequence, row in zip(alone, rows, strict=True):
        sequence.append(row)
    for step in range(6):
        scores = together.logits()
        for i, sequence in enumerate(alone):
            if i != 1 or step < 3:
                assert near(scores[i], sequence.logits()[0])
        chosen = [int(scores[i].argmax()) if i != 1 or step < 2 else None for i in range(3)]
        together.extend(chosen)
        for sequence, token in zip(alone, chosen, strict=True):
            if token is not None:
                sequence.append([token])
    together.close()


def test_a_batch_has_room_for_what_comes_and_no_more_than_that(model, monkeypatch):
    monkeypatch.setattr("structgen.models.genai.sequences._SPARE_TOKENS", 2)
    rows = [model.encode("One two three"), model.encode("A b c d e")]
    batch = model.start_batch(rows, 60)
    for left in (2, 1):
        assert not batch.is_full, left
        batch.extend([int(i) for i in batch.logits().argmax(axis=1)])
    assert batch.is_full
    assert np.isfinite(batch.logits()).all()


def test_rows_that_cannot_be_padded_are_not_batched(model):
    rows = [np.array([5, 6, 7], np.int32), np.array([5, -1], np.int32)]
    assert model.start_batch(rows, 20) is None
    assert not pads_exactly(
        lambda rows: model._new_batch([row[::-1].copy() for row in rows], 16),
        lambda row: np.zeros((1, model.vocabulary.size), np.float32),
    )


PEOPLE = ["A person: ", chat("Someone I met in Paris last summer"), "The king:"]


@pytest.mark.parametrize("options", [{"forced": False, "batch_size": 8}, {"batch_size": 8}, {}])
def test_outputs_are_those_of_single_calls_but_for_near_ties(model, options):
    generator = Generator(model, Person)
    options = {"max_new_tokens": 30, **options}
    together = generator.result(PEOPLE, **options)
    for prompt, result in zip(PEOPLE, together, strict=True):
        generator.constraint.output.parse(result.text)
        alone = generator.result(prompt, **{**options, "batch_size": None})
        assert gap(model, prompt, result, alone) < TIE


def test_chats_are_answered_as_by_single_calls_but_for_near_ties(model):
    chats = [chat(f"{'Red apples fall. ' * n}Write one sentence.") for n in (1, 8, 9)]
    generator = Generator(model)
    together = generator.result(chats, max_new_tokens=3, batch_size=3)
    for one, result in zip(chats, together, strict=True):
        assert gap(model, one, result, generator.result(one, max_new_tokens=3)) < TIE


def test_with_a_seed_outputs_are_those_of_single_calls(model):
    generator = Generator(model, Person)
    options = {"max_new_tokens": 30, "temperature": 1.0, "seed": 2}
    with cold(model):
        together = generator(PEOPLE, **options)
        assert together == [generator(prompt, **options) for prompt in PEOPLE]


def test_a_batch_of_the_same_shape_gives_the_same_outputs(model):
    generator = Generator(model, Person)
    options = {"max_new_tokens": 30, "temperature": 1.0, "seed": 2, "batch_size": 8}
    with cold(model):
        first, second = (generator(PEOPLE, **options) for _ in range(2))
    assert first == second


def test_an_output_of_long_tokens_ends_alone(monkeypatch):
    """100 tokens of a foreign folder had 4 MB, and the program that asked held as many as came."""
    generator = Generator(FakeModel())
    options = {"max_new_tokens": 30, "return_errors": True}
    texts = [one.token_ids for one in generator.result(PROMPTS, **options)]
    lengths = [sum(len(vocabulary().tokens[token]) for token in text) for text in texts]
    monkeypatch.setattr(progress, "_LONGEST_TEXT", 30)
    monkeypatch.setattr(progress, "_BYTES_A_TOKEN", 0)
    found = generator.result(PROMPTS, **options)
    failed = [isinstance(one, ModelError) for one in found]
    assert failed == [n > 30 for n in lengths]
    assert {*failed} == {True, False}
    with pytest.raises(ModelError, match="this model's tokens are too long"):
        generator(PROMPTS[failed.index(True)], max_new_tokens=30)
