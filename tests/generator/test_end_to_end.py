"""The real small model, from prompt to value, and what the runtime is relied on to do."""

from __future__ import annotations

import itertools
import json
import os
import re
import runpy
import threading
from datetime import date
from pathlib import Path
from typing import Annotated, Literal

import inside
import numpy as np
import onnxruntime_genai as og
import pytest
from pydantic import BaseModel, Field
from rounding import MEAN, MOST, PROBABLE, cold, near

import structgen
from structgen import Choice, Generator, Regex
from structgen.cli import demo
from structgen.models import genai
from structgen.models.genai import folders, sequences

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
FRANCE = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def free(model):
    return Generator(model)


# Output types


class Weapon(BaseModel):
    name: Annotated[str, Field(min_length=3, max_length=30)]
    damage: Annotated[int, Field(ge=1, le=20)]


@pytest.fixture(scope="module")
def scenes(model):
    return [(scene, Generator(model, scene.output_type)) for scene in demo.SCENES]


@pytest.mark.parametrize("seed", range(6))
def test_the_demos_four_outputs_are_exact(scenes, seed):
    for scene, generator in scenes:
        # Hotter than the demo itself, so that the model strays as far as it can.
        options = {**scene.options, "temperature": 1.5, "seed": seed}
        if scene.output_type is None:
            options["max_new_tokens"] = 20
        result = generator.result(scene.prompt, **options)
        assert result.token_ids
        if scene.output_type is None:
            assert result.text
        else:
            assert result.finish_reason in ("stop", "budget")
            value = generator.constraint.output.parse(result.text)
            if scene.output_type is demo.Talk:
                assert isinstance(value, demo.Talk)


@pytest.mark.parametrize(
    ("output_type", "kind"),
    [
        (Literal["yes", "no"], str),
        (Choice(["1", "2", "30"]), str),
        (int, int),
        (bool, bool),
        (date, date),
        (list[int], list),
        (Regex(r"[A-ZÄÖÜ][a-zäöü]{2,8}"), str),
    ],
)
def test_values_of_all_sorts(model, output_type, kind):
    for temperature in (0, 1.5):
        generator = Generator(model, output_type)
        value = generator.parse(FRANCE, max_new_tokens=40, temperature=temperature, seed=1)
        assert isinstance(value, kind)


def test_streaming_gives_the_same_text(model):
    generator = Generator(model, Weapon)
    options = {"max_new_tokens": 100, "temperature": 1.2, "seed": 4}
    with cold(model):
        text = generator("Create a weapon.", **options)
        assert "".join(generator.stream("Create a weapon.", **options)) == text


def test_text_is_what_the_constraint_accepted_character_by_character(model):
    generator = Generator(model, Regex("[é€🦊日ß]{6}"))
    chunks = list(generator.stream("fox", temperature=1.5, seed=2))
    assert len("".join(chunks)) == 6
    assert set("".join(chunks)) <= set("é€🦊日ß")


@pytest.mark.parametrize(
    ("example", "shows"),
    [
        ("stream", r"(- .+\n){3}\d+ tokens in \d+\.\d s\n"),
        ("form", r"(?s) +Booking.+ city .+ guest 1 .+Booking\(\n    city='.+guests=\[.+\n\)\n"),
        ("tools", r"(?s)\n\[reasoning\]\n.+\n\[answer\]\n<tool_call>\n.+\n\[result\]\n.+\n"),
        ("engine", r"( +\d+ tokens allowed, '.+' is one of them: True\n){4}at least \d+ more .+\n"),
    ],
    ids=lambda value: value if value.isalpha() else "",
)
def test_the_examples_run(example, shows, capsys):
    runpy.run_path(str(EXAMPLES / f"{example}.py"), run_name="__main__")
    assert re.fullmatch(shows, capsys.readouterr().out)


# Confidence


def test_confidence_is_the_models_own_probability_of_whole_texts(model):
    prompt = "The soup was cold and the waiter rude. Sentiment:"
    labels = {" positive", " negative", " neutral"}
    generator = Generator(model, Choice(sorted(labels)))
    found = generator.probabilities(prompt, tolerance=1e-5)
    # Each label is one token, and other ways to spell it are next to impossible.
    ids = model.encode(prompt)
    sequence = model.start(len(ids) + 2)
    sequence.append(ids)
    scores = {label: sequence.logits()[0][model.encode(label)[0]] for label in labels}
    weights = {label: np.exp(score - max(scores.values())) for label, score in scores.items()}
    assert {len(model.encode(label)) for label in labels} == {1}
    for label, weight in weights.items():
        assert found[label] == pytest.approx(weight / sum(weights.values()), abs=PROBABLE)
    result = generator.result(prompt, abstain_below=0.9999)
    assert found[result.text] == pytest.approx(max(found.values()), abs=PROBABLE)
    assert result.confidence["$"].probability == pytest.approx(found[result.text], abs=PROBABLE)
    assert [value.path for value in result.abstained] == ["$"]


def test_confidence_of_long_texts_is_that_of_one_cold_pass(model):
    prompt = " The capital of France is"
    labels = [" Paris, of course", " Lyon, of course", " Paris, the city of light"]
    found = Generator(model, Choice(labels)).probabilities(prompt, tolerance=1e-5)
    ids = model.encode(prompt)
    masses = []
    for label in labels:
        tokens = model.encode(label)
        alone = model.start(len(ids) + len(tokens))
        alone.append(np.concatenate([ids, tokens]))
        rows = alone.recent_logits(len(tokens) + 1)[:-1].astype(np.float64)
        rows -= np.log(np.exp(rows).sum(axis=1, keepdims=True))
        masses.append(np.exp(rows[range(len(tokens)), tokens].sum()))
    expected = np.array(masses) / sum(masses)
    assert [found[label] for label in labels] == pytest.approx(expected, abs=PROBABLE)


def test_confidence_does_not_depend_on_what_ran_before(model):
    generator = Generator(model, Weapon)
    prompt = "Create a weapon."
    options = {"max_new_tokens": 60, "temperature": 1.0, "seed": 3}
    with cold(model):
        first, second = (generator.result(prompt, **options).confidence for _ in range(2))
        paths = list(first)
        assert paths
        backwards = {path: second[path] for path in reversed(paths)}
        Generator(model)("Something else.", max_new_tokens=3)
        assert {path: first[path] for path in paths} == backwards
        yes_or_no = Generator(model, Choice(["yes", "no", "not at all"]))
        alone = yes_or_no.probabilities(FRANCE)
        assert alone == yes_or_no.probabilities(FRANCE)
    for _ in range(2):  # the second time from a sequence that was kept
        assert yes_or_no.probabilities(FRANCE) == pytest.approx(alone, abs=PROBABLE)


# Log probabilities and traces


@pytest.mark.parametrize("forced", [True, False])
def test_logprobs_are_those_of_a_cold_run(model, forced):
    generator = Generator(model, Weapon)
    prompt = "Create a weapon."
    result = generator.result(prompt, max_new_tokens=60, logprobs=True, trace=True, forced=forced)
    ids = model.encode(prompt)
    alone = model.start(len(ids) + len(result.token_ids))
    alone.append(np.concatenate([ids, np.array(result.token_ids, np.int32)]))
    rows = alone.recent_logits(len(result.token_ids) + 1)[:-1].astype(np.float64)
    shifted = rows - rows.max(axis=1, keepdims=True)
    logprobs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    assert len(result.logprobs) == len(rows)
    assert any(scores.is_forced for scores in result.logprobs) == forced
    apart = [
        abs(scores.unmasked_logprob - row[scores.token_id])
        for scores, row in zip(result.logprobs, logprobs, strict=True)
    ]
    assert max(apart) < MOST
    assert np.mean(apart) < MEAN
    assert {step.path for step in result.trace} >= {"$", "$.name"}
    assert len(result.trace.to_html()) > 10_000


# Free text and search options


def test_free_text_is_what_a_bare_runtime_loop_gives(model, free):
    prompt = model.encode(model.apply_chat_template(FRANCE))
    og_model = og.Model(str(model.folder))
    params = og.GeneratorParams(og_model)
    params.set_search_options(max_length=len(prompt) + 20)
    bare = og.Generator(og_model, params)
    bare.append_tokens(prompt)
    tokens = []
    while not bare.is_done():
        bare.generate_next_token()
        tokens.append(int(bare.get_next_tokens()[0]))
    with cold(model):
        result = free.result(FRANCE, max_new_tokens=20)
    tokens = list(itertools.takewhile(lambda t: t not in model.vocabulary.eos_token_ids, tokens))
    assert list(result.token_ids) == tokens
    assert result.text == model.decode(tokens)


def test_seeds(model, free):
    options = {"max_new_tokens": 16, "temperature": 1.0}
    with cold(model):
        texts = [free("Once upon a time", seed=seed, **options) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    assert free("Once upon a time", **options) != free("Once upon a time", **options)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 1.5},
        {"temperature": 1.5, "top_k": 0},
        {"temperature": 1.5, "top_k": 3},
        {"temperature": 1.5, "top_p": 0.5, "top_k": 0},
        {"temperature": 1.5, "repetition_penalty": 1.8},
        {"repetition_penalty": 1.8},
        {"min_p": 0.5, "temperature": 1.5},
        {"frequency_penalty": 2.0, "presence_penalty": 2.0},
        {"frequency_penalty": -2.0, "min_p": 0.1},
        {"no_repeat_ngram_size": 1},
        {"no_repeat_ngram_size": 2, "temperature": 1.5},
        {"min_length": 200},
        {"min_length": 200, "no_repeat_ngram_size": 1, "repetition_penalty": 1.5},
    ],
)
def test_no_search_option_undoes_a_mask(model, options):
    for output_type in (Regex("(ab|ba){3,9}"), Literal["positive", "negative"], list[bool]):
        generator = Generator(model, output_type)
        result = generator.result("ab ab ab positive", seed=1, max_new_tokens=40, **options)
        assert result.finish_reason in ("stop", "budget")
        generator.constraint.output.parse(result.text)


def test_top_k_and_top_p_act_on_what_the_mask_allows(model):
    # Were they applied first, none of their tokens would be left, as all begin with a letter.
    generator = Generator(model, Regex("[0-9]{8}"))
    texts = {
        generator("The weather is", temperature=1.0, top_k=5, top_p=0.95, seed=seed)
        for seed in range(4)
    }
    assert all(text.isdigit() and len(text) == 8 for text in texts)
    assert len(texts) > 1


def test_stop_strings_across_tokens(model, free):
    with cold(model):
        whole = free(FRANCE, max_new_tokens=20)
        middle = whole[5:9]
        assert free(FRANCE, max_new_tokens=20, stop=middle) == whole[: whole.index(middle)]


def test_min_length_holds_in_free_text(model, free):
    ends = dict.fromkeys(model.vocabulary.eos_token_ids, 1000)
    short = free.result(FRANCE, max_new_tokens=40, logit_bias=ends)
    least = short.usage.prompt_tokens + 30
    longer = free.result(FRANCE, max_new_tokens=40, logit_bias=ends, min_length=least)
    assert (short.usage.output_tokens, longer.usage.output_tokens) == (0, 30)


def test_a_processor_alone(model):
    end = model.vocabulary.eos_token_ids[0]
    paris = model.encode(" Paris")

    def say_paris(token_ids, logits):
        logits[:] = -np.inf
        said = list(token_ids[0, -len(paris) :]) == list(paris)
        logits[0, end if said else paris[0]] = 0
        return logits

    assert len(paris) == 1
    assert Generator(model, processor=say_paris)("Where?") == " Paris"


# Prompts


def test_the_chat_template_is_the_models_own(model):
    text = model.apply_chat_template([{"role": "system", "content": "Bé🦊"}, *FRANCE])
    assert text == (
        "<|im_start|>system\nBé🦊<|im_end|>\n"
        "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    # SmolLM2 has a system message of its own when none is given.
    assert model.apply_chat_template(FRANCE).startswith("<|im_start|>system\nYou are a helpful AI")
    ids = model.encode(text)
    assert [i for i in ids if i in model.vocabulary.special_token_ids] == [1, 2, 1, 2, 1]


def test_a_prompt_longer_than_the_context_names_both_numbers(model, free):
    with pytest.raises(structgen.PromptError, match=r"9,\d\d\d tokens.*is 8,192.*at least"):
        free("word " * 9_000)


def test_the_output_type_fits_into_what_the_context_leaves(model):
    stream = Generator(model, list[str]).stream("word " * 8_150)
    used = stream.result.usage.prompt_tokens
    assert inside.generation(stream).max_tokens == model.context_length - used < 50


# Models


def test_loading_makes_the_masks_tables(model, monkeypatch):
    made = []
    monkeypatch.setattr("structgen.constraint.warm_up", made.append)
    loaded = structgen.load(model.folder)
    assert made == [loaded.vocabulary]
    structgen.load(model.folder, warm_up=False)
    assert len(made) == 1


@pytest.mark.parametrize("with_folder", [False, True])
def test_objects_of_the_runtime_can_be_wrapped(model, with_folder):
    og_model = og.Model(str(model.folder))
    og_tokenizer = og.Tokenizer(og_model)
    folder = model.folder if with_folder else None
    wrapped = structgen.from_onnx_genai(og_model, og_tokenizer, folder=folder)
    assert wrapped.vocabulary == model.vocabulary
    assert wrapped.vocabulary.special_token_ids == model.vocabulary.special_token_ids
    assert wrapped.context_length == model.context_length
    assert Generator(wrapped, bool).parse(FRANCE) in (True, False)


def test_wrapping_anything_else_is_an_error(model):
    with pytest.raises(structgen.ModelError, match=r"not str and NoneType.*structgen.load"):
        structgen.from_onnx_genai("smollm2", None)
    narrow = structgen.Vocabulary.from_tokens([b"a", b""], [1])
    plain = og.Model(str(model.folder))
    with pytest.raises(structgen.ModelError, match="width of 49,152, but the vocabulary has 2 ids"):
        structgen.from_onnx_genai(plain, model.og_tokenizer, vocabulary=narrow)
    with pytest.raises(structgen.ModelError, match=r"needs a mask.*onnxruntime_genai\.Model"):
        structgen.from_onnx_genai(model.og_model, model.og_tokenizer)


def test_a_folder_that_is_no_model_says_what_it_lacks(tmp_path):
    with pytest.raises(structgen.ModelError, match=r"no genai_config.json"):
        genai.load(tmp_path, kind=genai.TextModel)
    (tmp_path / "genai_config.json").write_text("{}")
    with pytest.raises(structgen.ModelError, match=r"cannot be parsed"):
        genai.load(tmp_path, kind=genai.TextModel)


def test_a_tokenizer_that_hides_its_bytes_is_an_error_that_names_the_fix():
    def find(spelling):
        return {"A": 0}.get(spelling, -1)

    def decode(ids):
        return "".join({0: "A", 1: "?"}.get(i, "") for i in ids)

    with pytest.raises(structgen.errors.VocabularyError, match=r"token 1 .* folder=.* vocabulary="):
        folders.token_bytes(decode, find, 3)
    with pytest.raises(structgen.errors.VocabularyError, match=r"no plain token 'A'.* folder="):
        folders.token_bytes(decode, lambda spelling: -1, 3)


def test_nothing_is_reported_to_anyone():
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"


# Sequences


def choose(sequence):
    token = int(sequence.logits()[0].argmax())
    sequence.append([token])
    return token


def test_a_sequence_can_be_rewound_and_continued(model):
    prompt = model.encode("The capital of France is")
    sequence = model.start(64)
    sequence.append(prompt)
    scores = [sequence.logits()]
    first = []
    for _ in range(6):
        first.append(choose(sequence))
        scores.append(sequence.logits())
    assert list(sequence.token_ids[0]) == [*prompt, *first]
    sequence.rewind(len(prompt) + 2)
    assert sequence.length == len(prompt) + 2
    for token, before in zip(first[2:], scores[2:], strict=False):
        assert near(sequence.logits(), before)
        sequence.append([token])
    assert near(sequence.logits(), scores[-1])
    # Appending runs the last kept token and the new ones in one pass, as a cold sequence could.
    sequence.rewind(len(prompt))
    sequence.append(first[:3])
    alone = model.start(64)
    alone.append(prompt[:-1])
    alone.append([*prompt[-1:], *first[:3]])
    assert near(sequence.logits(), alone.logits())
    sequence.rewind(0)
    sequence.append(prompt)
    for token, before in zip(first, scores, strict=False):  # the same passes again
        assert (sequence.logits() == before).all()
        sequence.append([token])
    with pytest.raises(ValueError, match="cannot rewind"):
        sequence.rewind(99)
    with pytest.raises(structgen.ModelError, match=r"60 more tokens do not fit.* 64"):
        sequence.append([5] * 60)
    sequence.close()
    sequence.close()
    with pytest.raises(ValueError, match="closed"):
        choose(sequence)


def test_a_sequence_that_outgrows_its_cache_goes_on_where_it_was(model, monkeypatch):
    monkeypatch.setattr(sequences, "_SPARE_TOKENS", 3)
    monkeypatch.setattr(sequences, "_CAPACITY_STEP", 1)
    prompt = model.encode("One, two, three,")
    growing = model.start(64)
    growing.append(prompt)
    for _ in range(4):  # the last one finds it full: everything is run again, in one pass
        choose(growing)
    tokens = growing.token_ids[0].copy()
    assert list(tokens[: len(prompt)]) == list(prompt)
    alone = model.start(64)
    alone.append(tokens)
    assert near(growing.logits(), alone.logits())
    for _ in range(20):
        choose(growing)
    assert growing.length == len(tokens) + 20


def test_threads_share_a_model_and_a_generator(model):
    generator = Generator(model, Weapon)
    options = {"max_new_tokens": 100, "temperature": 1.0}
    got = {}

    def work(seed):
        got[seed] = generator("Weapon:", seed=seed, **options)

    with cold(model):
        expected = {seed: generator("Weapon:", seed=seed, **options) for seed in range(3)}
        threads = [threading.Thread(target=work, args=(seed,)) for seed in expected]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert got == expected
    for text in got.values():
        json.loads(text)
