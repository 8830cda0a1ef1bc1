"""Speculation: the same outputs in fewer passes, whatever is guessed."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from itertools import pairwise, product
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from fakes import FakeModel, Person
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from rounding import TIE, cold, gap, near

import structgen
from structgen import Choice, Draft, Generator, Regex, TextModel, Think
from structgen.constraint import Cursor
from structgen.decoding.chat_tokens import Speller
from structgen.decoding.speculation import MOST_AHEAD, Speculation
from structgen.errors import CompileLimitExceeded
from structgen.models.base import ON_CPU, ON_GPU, DraftModel, Pace

SOURCE = 'Ada Lovelace of Ockham wrote to "Charles Babbage", on 12 of June. '


class Letter(BaseModel):
    writer: Annotated[str, Field(max_length=40)]
    reader: Annotated[str, Field(max_length=40)]
    day: int


COPIED = '{"writer": "Ada Lovelace of Ockham", "reader": "Charles Babbage", "day": 12}'

TYPES = [
    None,
    Letter,
    Person,
    list[Person],
    Regex("[A-Za-z ]{0,30}"),
    Choice(["Ada L", "Charles B"]),
]


def test_characters_are_cut_where_no_token_has_a_part_of_them() -> None:
    letters = ["a", "b", "中"]
    vocabulary = structgen.Vocabulary.from_tokens(
        [*(letter.encode() for letter in letters), b""], eos_token_ids=[3]
    )
    token_ids = np.array([letters.index(letter) for letter in "bba" + "中" * 60 + "bb"], np.int32)
    speller = Speller(vocabulary, lambda text: np.array([*map(letters.index, text)], np.int32))
    speculation = Speculation(vocabulary.tokens, None, speller, ON_CPU, len(token_ids))
    assert speculation.guess(token_ids, 100) == []


def test_what_takes_too_much_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cursor's masks would be made anew at each token."""
    tried = []

    def along(cursor: Any, *_: Any) -> Any:
        tried.append(cursor)
        raise CompileLimitExceeded("too much", limit=1, actual=2)

    monkeypatch.setattr(Cursor, "along", along)
    generator = Generator(FakeModel(COPIED, context_length=400), Letter)
    assert generator.result(SOURCE, max_new_tokens=90, temperature=0.0).text == COPIED
    assert len(tried) == 1


@pytest.mark.parametrize("output_type", TYPES)
@pytest.mark.parametrize("script", [None, COPIED, SOURCE * 2])
def test_the_same_tokens_as_without(output_type: Any, script: str | None) -> None:
    generator = Generator(FakeModel(script, context_length=400), output_type)
    for options in ({}, {"temperature": 1.0}, {"temperature": 0.7, "repetition_penalty": 1.3}):
        for seed in range(4):
            asked = {"max_new_tokens": 90, "stop": "zz" if output_type is None else None, **options}
            asked |= {"seed": seed} if options else {}
            with_ = generator.result(SOURCE, speculate=True, **asked)
            without = generator.result(SOURCE, speculate=False, **asked)
            assert with_.token_ids == without.token_ids
            assert (with_.text, with_.finish_reason) == (without.text, without.finish_reason)
            assert without.usage.guessed_tokens == 0
            assert with_.usage.accepted_tokens <= with_.usage.guessed_tokens


def test_what_is_copied_takes_half_of_the_passes() -> None:
    model = FakeModel(COPIED)
    generator = Generator(model, Letter)
    results = [generator.result(SOURCE, speculate=guesses) for guesses in (False, True)]
    without, with_ = (sequence.passes for sequence in model.started[-2:])
    assert results[1].text == COPIED
    assert with_ <= without / 2
    usage = results[1].usage
    assert usage.accepted_tokens > usage.guessed_tokens / 2 > 10


@settings(deadline=None, max_examples=60)
@given(
    st.text("abAB \n\"',.é", max_size=60),
    st.text("abAB \n\"',.é", max_size=60),
    st.integers(1, 40),
    st.sampled_from([None, str, list[str]]),
)
def test_any_prompt_any_script_any_budget(prompt: str, script: str, most: int, type_: Any) -> None:
    generator = Generator(FakeModel(script), type_)
    outcomes = []
    for guesses in (False, True):
        try:
            result = generator.result(prompt + "x", max_new_tokens=most, speculate=guesses)
            outcomes.append((result.token_ids, result.finish_reason, result.shortened))
        except structgen.errors.BudgetTooSmall as error:
            outcomes.append((str(error),))
    assert outcomes[0] == outcomes[1]


def test_thoughts_and_drafts_are_guessed_too() -> None:
    script = f"{SOURCE}</think>{COPIED}"
    options: dict[str, Any] = {"think": Think(80), "draft": Draft(max_tokens=60)}
    results = [
        Generator(FakeModel(script, context_length=900), Letter, **options).result(
            [{"role": "user", "content": SOURCE}], max_new_tokens=90, speculate=guesses
        )
        for guesses in (False, True)
    ]
    assert results[0].token_ids == results[1].token_ids
    assert results[0].reasoning == results[1].reasoning
    assert results[0].draft == results[1].draft
    assert results[1].usage.accepted_tokens > 0


def test_streams_and_what_is_cancelled() -> None:
    generator = Generator(FakeModel(COPIED), Letter)
    stream = generator.stream(SOURCE, speculate=True)
    assert "".join(stream) == COPIED
    assert stream.result.usage.accepted_tokens > 0
    done = threading.Event()
    done.set()
    with pytest.raises(structgen.IncompleteOutput):
        generator(SOURCE, speculate=True, cancel=done)


class Dated(Letter):
    day: Literal[12, 13]


def test_nothing_is_guessed_where_values_are_taken_back_or_scores_are_told() -> None:
    generator = Generator(FakeModel(COPIED), Dated)
    assert generator.result(SOURCE, speculate=True).usage.guessed_tokens > 0
    for options in ({"logprobs": True}, {"trace": True}, {"best": True}):
        assert generator.result(SOURCE, speculate=True, **options).usage.guessed_tokens == 0


@pytest.mark.parametrize("pace", [ON_CPU, replace(ON_GPU, scores=0.09)], ids=["cpu", "gpu"])
def test_guesses_that_fail_become_fewer(pace: Pace) -> None:
    """What was wrong so far is tried less: no more than a few tokens are run in vain."""
    texts = [bytes([byte]) for byte in range(256)]
    tried = Speculation(texts, None, lambda before, data: list(data), pace, 160)
    ids = np.frombuffer(b"abcdefgh" * 60, np.uint8).astype(np.int32)
    sizes = []
    for n in range(160, 440):
        guess = tried.guess(ids[:n], 100)
        sizes.append(len(guess))
        if guess:
            tried.note(len(guess), 0)
    assert max(sizes) >= 3
    cost = sum(pace.of_guess(n) + pace.token for n in sizes if n)
    assert cost < 1.5 + 0.05 * len(sizes)
    assert sizes[-1] == 0


def test_guesses_that_come_grow_to_the_limit_and_keep_to_the_room() -> None:
    texts = [bytes([byte]) for byte in range(256)]
    tried = Speculation(texts, None, lambda before, data: list(data), ON_CPU, 160)
    ids = np.frombuffer(b"abcdefgh" * 60, np.uint8).astype(np.int32)
    for n in range(160, 320):
        guess = tried.guess(ids[:n], 100)
        assert guess == ids[n : n + len(guess)].tolist()
        tried.note(len(guess), len(guess))
    assert len(guess) == MOST_AHEAD
    assert len(tried.guess(ids[:320], 3)) == 3
    assert tried.guess(ids[:320], 0) == []


DRAWS = 5_000
CRITICAL = 44.3
"""Chi-square with 15 degrees of freedom is above this once in 10,000 times."""

TEXTS = [
    "Ada Lovelace, born 1815 in London, was a mathematician who wrote to Charles Babbage.",
    "Dr. Maria Gonzalez-Fernandez (born 1961, Valparaiso) wrote to the Scripps Institution.",
    "In 1974 Jonathan Whitmore Hargreaves of Edinburgh wrote to Arup Consulting Ltd.",
    "Chief Inspector Wilhelmina Fotheringham, 52, of Aberystwyth wrote to Scotland Yard.",
]


START = TextModel.start


class Watched:
    """A sequence of a model that keeps its scores, and which tokens were run by themselves."""

    def __init__(self, model: TextModel, *args: Any, **options: Any) -> None:
        self._inner = START(model, *args, **options)
        self.scores: dict[bytes, Any] = {}
        self.single: list[bool] = []
        self.append(np.empty(0, np.int32))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def append(self, token_ids: Any) -> None:
        kept = self.length
        if len(token_ids):
            # What is run after a rewind is run with the last token that is kept.
            at = kept if kept == len(self.single) else min(kept, kept + len(token_ids) - 2)
            self.single[at:] = [kept + len(token_ids) == at + 1] * (kept + len(token_ids) - at)
        self._inner.append(token_ids)

    def likeliest(self, token_ids: Any, allowed: Any) -> None:
        """It does not: what is watched is scores."""

    def logits(self) -> Any:
        return self._keep(self._inner.logits())

    def recent_logits(self, n: int) -> Any:
        return self._keep(self._inner.recent_logits(n))

    def _keep(self, scores: Any) -> Any:
        ids = self.token_ids[0]
        for back, row in enumerate(scores[::-1]):
            self.scores[ids[: len(ids) - back].tobytes()] = row.copy()
        return scores


def _scores(model: TextModel, ids: Any, cuts: list[int]) -> list[Any]:
    """The scores after each token but those of the first pass, run in passes that end there."""
    sequence, found = model.start(len(ids) + 1), []
    sequence.append(ids[: cuts[0]])
    found.append(sequence.logits())
    for start, end in pairwise(cuts):
        sequence.append(ids[start:end])
        found.append(sequence.recent_logits(end - start))
    sequence.close()
    return list(np.concatenate(found))


def test_a_real_model_differs_by_the_rounding_of_passes_alone(
    model: TextModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guesses, right or wrong, leave no trace: the scores are those of plain passes.

    Each score of an output with guesses is that of a sequence which never guessed nor rewound, and
    which runs by themselves the tokens that were. Where the processor gives passes over two and
    more tokens the same bits however they are cut, these have to be the same bits; elsewhere they
    may be apart as cuts are. So two greedy outputs part only where such rounding decides.
    """
    generator = Generator(model, Letter)
    watched: list[Watched] = []
    accepted = rejected = 0
    with cold(model):
        for text in TEXTS:
            prompt = [{"role": "user", "content": f"Extract the letter as JSON.\n\n{text}"}]
            with monkeypatch.context() as patch:
                patch.setattr(type(model), "pace", _pace(0.05))  # long guesses, wrong ones too
                patch.setattr(
                    type(model), "start", lambda *args, **options: _watched(watched, args, options)
                )
                with_ = generator.result(prompt, max_new_tokens=90, speculate=True)
            without = generator.result(prompt, max_new_tokens=90, speculate=False)
            usage = with_.usage
            accepted += usage.accepted_tokens
            rejected += usage.guessed_tokens - usage.accepted_tokens
            first = usage.prompt_tokens
            kept, single = watched[-1].scores, watched[-1].single
            ids = np.array(
                [*model.encode(model.apply_chat_template(prompt)), *with_.token_ids], np.int32
            )[: len(single)]
            ends = range(first, len(ids) + 1)
            same = [at for at in ends[:-1] if single[at] or single[at - 1]]
            replayed = _scores(model, ids, sorted({first, *same, len(ids)}))
            halves = _scores(model, ids, sorted({*ends[::2], len(ids)} - {len(ids) - 1}))
            thirds = _scores(model, ids, sorted({*ends[::3], len(ids)} - {len(ids) - 1}))
            apart = [
                float(abs(one - other).max()) for one, other in zip(halves, thirds, strict=True)
            ]
            n_seen = 0
            for end, scores in zip(ends, replayed, strict=True):
                found = kept.get(ids[:end].tobytes())
                if found is None:
                    continue  # forced
                n_seen += 1
                if max(apart) == 0:
                    assert np.array_equal(found, scores)
                else:
                    assert near(found, scores)
            assert n_seen >= usage.sampled_tokens
            assert gap(model, ids[:first], with_, without) < TIE
    assert accepted >= 10
    assert rejected >= 5


def _watched(into: list[Watched], args: Any, options: Any) -> Watched:
    into.append(Watched(*args, **options))
    return into[-1]


@pytest.mark.parametrize(
    ("n", "prompt"),
    [(DRAWS, "abbab abbab ab " * 12 + "abbab ab"), (DRAWS // 8, "".join(map(chr, range(33, 127))))],
    ids=["copied", "drafted"],
)
def test_samples_with_guesses_have_the_distribution_of_the_model(n: int, prompt: str) -> None:
    """Chi-square over all outputs, against their probabilities by the model's scores and mask."""
    model, temperature = FakeModel(), 4.0
    ids = model.encode(prompt)
    if n < DRAWS:  # nothing to copy: its draft model would write a text of its own
        small = FakeModel("abba")
        small.prompt_length = len(ids)
        model.draft, model.pace = DraftModel(small, cost=0.01), _pace(0.02)
    generator = Generator(model, Regex("[ab]{4}"))
    a, b = model.encode("ab").tolist()
    expected = {}
    for letters in product("ab", repeat=4):
        sequence = model.start(len(ids) + 4)
        sequence.append(ids)
        likely = 1.0
        for letter in letters:
            scores = sequence.logits()[0].astype(np.float64) / temperature
            likely /= 1 + np.exp(
                scores[b if letter == "a" else a] - scores[a if letter == "a" else b]
            )
            sequence.append([a if letter == "a" else b])
        expected["".join(letters)] = likely
    assert sum(expected.values()) == pytest.approx(1)
    came, guessed, accepted = Counter[str](), 0, 0
    for seed in range(n):
        result = generator.result(prompt, temperature=temperature, seed=seed, speculate=True)
        came[result.text] += 1
        guessed += result.usage.guessed_tokens
        accepted += result.usage.accepted_tokens
    assert n < 2 * guessed
    assert 0.1 < accepted / guessed < 0.9
    assert min(expected.values()) * n > 5
    assert sum((came[text] - n * p) ** 2 / (n * p) for text, p in expected.items()) < CRITICAL


def _pace(token: float) -> Pace:
    return replace(ON_CPU, token=token)


def test_the_dearer_a_pass_the_shorter_the_guess() -> None:
    """Where tokens cost as much in one pass as alone, nothing is guessed."""
    texts = [bytes([byte]) for byte in range(256)]
    ids = np.frombuffer(b"abcdefgh" * 250, np.uint8).astype(np.int32)
    sizes = []
    for slope in (0.05, 0.4, 0.8, 1.0):
        tried = Speculation(texts, None, lambda before, data: list(data), _pace(slope), 2000)
        sizes.append(len(tried.guess(ids, 100)))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == MOST_AHEAD
    assert sizes[0] > sizes[1] > sizes[2]
    assert sizes[3] == 0


@pytest.mark.parametrize("slope", [0.1, 0.3, 0.5])
def test_wrong_guesses_lose_no_more_than_is_granted(slope: float) -> None:
    """Adversity: every guess is wrong. A twentieth of what the passes of the output cost."""
    texts = [bytes([byte]) for byte in range(256)]
    ids = np.frombuffer(b"abcdefgh" * 60, np.uint8).astype(np.int32)
    tried = Speculation(texts, None, lambda before, data: list(data), _pace(slope), 32)
    lost = 0.0
    for n in range(32, 432):
        guess = tried.guess(ids[:n], 100)
        if guess:
            tried.note(len(guess), 0)
            lost += slope * len(guess) + slope
        assert lost <= 0.05 * (1 + slope * 31 + n - 32) + 1e-9
    assert lost > 0


def test_what_the_model_has_seen_before_changes_no_guess(model: TextModel) -> None:
    """Of a long prompt, nothing was guessed behind it unless another call had left most of it."""
    prompt = "The cat sat on the mat. " * 20 + "The cat sat on the"
    generator = Generator(model)
    with cold(model):
        first = generator.result(prompt, max_new_tokens=2)
    generator.result(prompt, max_new_tokens=2)
    warm = generator.result(prompt, max_new_tokens=2)
    assert first.usage.reused_tokens == 0 < 64 < warm.usage.reused_tokens
    assert first.usage.guessed_tokens == warm.usage.guessed_tokens > 0
