"""Log probabilities held against softmax written out, and against a model asked afresh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest
from fakes import SIZE, FakeModel, encode, vocabulary

import structgen
from structgen import Choice, Generator, Regex
from structgen.sampling.logprobs import Scorer


@dataclass
class Person:
    name: str
    kind: Literal["cat", "dog"]


def log_softmax(scores):
    scores = scores.astype(np.float64)
    shifted = scores - scores.max()
    return shifted - np.log(np.exp(shifted).sum())


def own_scores(model, prompt, token_ids):
    """The model's own scores before each token, each from a sequence begun afresh."""
    rows = []
    for i in range(len(token_ids)):
        sequence = model.start(model.context_length)
        sequence.append(encode(prompt))
        sequence.append(token_ids[:i])
        rows.append(log_softmax(sequence.logits()[0]))
    return rows


@pytest.mark.parametrize("n_allowed", [1, 5, SIZE - 5, SIZE])
def test_the_numbers_are_those_of_two_softmaxes(n_allowed):
    random = np.random.default_rng(n_allowed)
    own = (random.normal(size=SIZE) * 6).astype(np.float32)
    allowed = random.permutation(SIZE)[:n_allowed]
    masked = np.full(SIZE, -np.inf, np.float32)
    masked[allowed] = own[allowed] + random.normal(size=n_allowed).astype(np.float32)
    token = int(allowed[0])
    found = Scorer(vocabulary().tokens, 7).chosen(token, own, masked)
    assert found.token_id == token
    assert found.unmasked_logprob == pytest.approx(log_softmax(own)[token], abs=1e-5)
    assert found.logprob == pytest.approx(log_softmax(masked)[token], abs=1e-5)
    outside = np.setdiff1d(np.arange(SIZE), allowed)
    assert found.removed == pytest.approx(np.exp(log_softmax(own))[outside].sum(), abs=1e-6)
    for listed, scores in ((found.top, masked), (found.unmasked_top, own)):
        order = [i for i in np.argsort(-scores)[:7] if scores[i] > -np.inf]
        assert [token.token_id for token in listed] == order
        expected = log_softmax(scores)[order]
        assert [token.logprob for token in listed] == pytest.approx(expected, abs=1e-5)
        assert [token.is_allowed for token in listed] == [i in allowed for i in order]


def test_a_little_removed_is_not_lost_in_rounding():
    own = np.zeros(SIZE, np.float32)
    own[7] = -18
    masked = own.copy()
    masked[7] = -np.inf
    removed = Scorer(vocabulary().tokens, 0).chosen(3, own, masked).removed
    assert removed == pytest.approx(np.exp(-18) / (SIZE - 1), rel=1e-4)


@pytest.mark.parametrize("forced", [True, False])
def test_every_token_of_an_output_is_scored_as_a_model_asked_afresh_would(forced):
    model = FakeModel('{"name":"Ann","kind":"dog"}')
    generator = Generator(model, Person)
    result = generator.result("hi", top_logprobs=3, forced=forced)
    assert generator.result("hi", forced=forced).token_ids == result.token_ids
    assert [scores.token_id for scores in result.logprobs] == list(result.token_ids)
    assert sum(scores.is_forced for scores in result.logprobs) == result.usage.forced_tokens
    assert any(scores.is_forced for scores in result.logprobs) == forced
    assert b"".join(scores.token for scores in result.logprobs).decode() == result.text
    cursor = generator.constraint.start(256 - len(encode("hi")))
    for scores, own in zip(result.logprobs, own_scores(model, "hi", result.token_ids), strict=True):
        assert scores.unmasked_logprob == pytest.approx(own[scores.token_id], abs=1e-5)
        top = np.argsort(-own)[:3].tolist()
        assert [token.token_id for token in scores.unmasked_top] == top
        words = np.zeros((SIZE + 31) // 32, np.uint32)
        cursor.fill_mask(words)
        bits = np.unpackbits(words.view(np.uint8), bitorder="little")[:SIZE].astype(bool)
        if not scores.is_forced and scores.logprob < 0:
            # Where one token was taken although others would do, the others only cut the same
            # text in another way.
            assert scores.removed == pytest.approx(1 - np.exp(own)[bits].sum(), abs=1e-5)
            expected = own[scores.token_id] - np.log(np.exp(own[bits]).sum())
            assert scores.logprob == pytest.approx(expected, abs=1e-4)
        if scores.is_forced:
            assert scores.logprob == 0
            assert scores.removed == pytest.approx(1 - np.exp(own[scores.token_id]), abs=1e-6)
            assert [token.token_id for token in scores.top] == [scores.token_id]
        cursor.accept(scores.token_id)


def test_nothing_is_removed_from_free_text():
    result = Generator(FakeModel("hello")).result("x", logprobs=True)
    assert len(result.logprobs) == 5
    for scores in result.logprobs:
        assert scores.removed == 0
        assert scores.logprob == scores.unmasked_logprob < 0
        assert scores.top == scores.unmasked_top == ()


def test_the_models_own_view_is_before_bias_and_processors():
    def halves(token_ids, logits):
        return logits / 2

    model = FakeModel("bad")
    plain = Generator(model, Choice(["good", "bad"])).result("x", logprobs=True).logprobs[0]
    edited = Generator(model, Choice(["good", "bad"]), processor=halves).result(
        "x", logprobs=True, logit_bias={encode("b")[0]: -1}
    )
    assert edited.text == "bad"
    assert edited.logprobs[0].unmasked_logprob == plain.unmasked_logprob
    assert edited.logprobs[0].removed == plain.removed
    assert edited.logprobs[0].logprob < plain.logprob


def test_a_stream_has_those_of_the_tokens_so_far():
    generator = Generator(FakeModel("hello"), Regex("[a-z]+"))
    with generator.stream("x", logprobs=True) as stream:
        next(stream)
        next(stream)
    assert [scores.token for scores in stream.result.logprobs] == [b"h", b"e"]


@pytest.mark.parametrize("stop", [(), ("€b", "zz"), ("bb",), ("é",)])
@pytest.mark.parametrize("trace", [False, True])
def test_each_piece_of_a_stream_has_those_of_the_tokens_whose_text_ends_in_it(stop, trace):
    generator = Generator(FakeModel("a€€ ébbSTOP the bob€"))
    ended: list[bytes] = []  # tokens whose text has ended by now
    text = ""
    with generator.stream("x", logprobs=True, top_logprobs=2, trace=trace, stop=stop) as stream:
        told = []
        for chunk in stream:
            text += chunk
            told += chunk.logprobs
            ended = [scores.token for scores in told]
            before = b"".join(ended[:-1])
            assert text.encode().startswith(before)
            together = b"".join(ended)
            if not together.decode(errors="ignore").endswith(stop or "\0"):
                assert text.encode().startswith(together)
                assert len(text.encode()) - len(together) < 8  # and no sooner than need be
        result = stream.result
    assert result.text == text
    assert [scores.logprob for scores in told] == [
        scores.logprob for scores in result.logprobs[: len(told)]
    ]
    assert [scores.top for scores in told] == [scores.top for scores in result.logprobs][
        : len(told)
    ]
    if not stop:
        assert len(told) == len(result.logprobs)
    with generator.stream("x") as plain:
        assert all(chunk.logprobs == () for chunk in plain)


def test_they_are_there_when_asked_for():
    generator = Generator(FakeModel("hello"))
    for options in ({}, {"trace": True}):
        with pytest.raises(structgen.OptionError, match="Pass logprobs=True"):
            _ = generator.result("x", **options).logprobs
    (first, *_) = generator.result("x", trace=True, top_logprobs=2).logprobs
    assert len(first.top) == len(first.unmasked_top) == 2
    for options, message in (
        ({"logprobs": 5}, "logprobs=5 is not a bool"),
        ({"top_logprobs": -1}, "between 0 and 1,000"),
        ({"top_logprobs": 2, "logprobs": False}, "contradicts"),
        ({"trace": "yes"}, "trace='yes' is not a bool"),
    ):
        with pytest.raises(structgen.OptionError, match=message):
            generator.stream("x", **options)
