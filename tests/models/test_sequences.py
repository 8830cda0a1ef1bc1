"""Sequences and their pool: what is run again, what is kept, and that scores never tell."""

from __future__ import annotations

import json
import random
import threading
import zlib
from typing import Literal

import inside
import numpy as np
import onnx
import pytest
from models.tiny_gguf import write
from rounding import TIE, cold, gap, near

from structgen import Generator, OptionError, Regex, load, models
from structgen.decoding.call_validation import encode
from structgen.models.genai import sequences
from structgen.models.genai.folders import read_config
from structgen.models.genai.sequences import LiveSequence, SequencePool, TextSequence

WIDTH = 8
CONTEXT = 64


class Runtime:
    """What is relied on of the runtime's sequence: no scores after a rewind, a fixed capacity."""

    made = 0

    def __init__(self, capacity: int, mask: np.ndarray | None = None) -> None:
        type(self).made += 1
        self.capacity = capacity
        self.mask = mask
        self.chosen = 0  # tokens at the end that it has written and not run
        self.ids: list[int] = []
        self.scores: np.ndarray | None = None
        self.runs: list[int] = []

    def append_tokens(self, ids) -> None:
        assert len(ids)
        assert not self.chosen  # or it would run them in a pass of their own
        start = len(self.ids)
        self.ids += [int(i) for i in ids]
        assert len(self.ids) <= self.capacity
        self.runs.append(len(ids))
        self._score(start)

    def _score(self, start: int) -> None:
        self.scores = np.stack([scores(self.ids[: n + 1]) for n in range(start, len(self.ids))])
        if self.mask is not None:
            allowed = np.unpackbits(self.mask[0, 0], bitorder="little")[:WIDTH]
            self.scores[:, allowed == 0] = -np.inf

    def generate_next_token(self) -> None:
        if self.chosen:
            self.runs.append(1)
            self._score(len(self.ids) - 1)
        assert self.scores is not None
        assert len(self.ids) < self.capacity
        self.ids.append(int(self.scores[-1].argmax()))
        self.chosen = 1

    def get_next_tokens(self) -> np.ndarray:
        return np.array(self.ids[-1:], np.int32)

    def rewind_to(self, length: int) -> None:
        assert length <= len(self.ids)
        del self.ids[length:]
        self.scores = None
        self.chosen = 0

    def get_logits(self) -> np.ndarray:
        assert self.scores is not None
        assert not self.chosen
        return self.scores[None, -1:].copy()

    def get_output(self, name: str) -> np.ndarray:
        assert name == "logits"
        assert self.scores is not None
        return self.scores[None]


def scores(ids) -> np.ndarray:
    seed = zlib.crc32(np.array(ids, np.int32).tobytes())
    return np.random.default_rng(seed).normal(size=WIDTH).astype(np.float32)


def live(key=None, has_mask: bool = False) -> LiveSequence:
    return LiveSequence(Runtime, context_length=CONTEXT, width=WIDTH, key=key, has_mask=has_mask)


def start(
    pool: SequencePool, prefix, max_length: int = CONTEXT, key=None, has_mask: bool = False
) -> TextSequence:
    prefix = np.array(prefix, np.int32)
    return TextSequence(pool.take(prefix, key)[0] or live(key, has_mask), max_length, pool.give)


def play(pool: SequencePool, prompt, steps: int = 2) -> int:
    """A call: the prompt in one pass, then single tokens; how many tokens were reused."""
    sequence = start(pool, prompt)
    reused = sequence.length
    sequence.append(prompt[reused:])
    for token in range(steps):
        sequence.append([90 + token])
    sequence.close()
    return reused


@pytest.mark.parametrize("seed", range(40))
def test_what_the_runtime_chooses_is_the_likeliest_of_what_is_allowed(seed, monkeypatch):
    monkeypatch.setattr(sequences, "_SPARE_TOKENS", 4)
    monkeypatch.setattr(sequences, "_CAPACITY_STEP", 8)
    r = random.Random(seed)
    pool = SequencePool(1, 2 * CONTEXT)
    n_chosen = 0
    for _ in range(8):
        ids = [r.choice([1, 2]) for _ in range(r.randint(1, 20))]
        sequence = start(pool, ids, has_mask=True)
        more = ids[sequence.length :] or [ids[-1]]
        ids = [*sequence.token_ids[0].tolist(), *more]
        while len(ids) < CONTEXT - 8:
            bits = r.choice([r.randint(1, 255), 255])
            token = sequence.likeliest(more, np.array([bits], np.uint32))
            assert token is not None
            expected = scores(ids)
            expected[[not bits >> i & 1 for i in range(WIDTH)]] = -np.inf
            assert token == expected.argmax()
            assert sequence.token_ids[0].tolist() == ids
            n_chosen += 1
            what = r.random()
            if what < 0.15:  # the loop wants the scores after all: they are not masked
                assert (sequence.logits()[0] == scores(ids)).all()
            if what < 0.3:
                sequence.rewind(n := r.randint(1, len(ids)))
                del ids[n:]
            if what > 0.95:
                break
            more = [token] if r.random() < 0.6 else [token, *(r.randint(1, 3) for _ in range(3))]
            if r.random() < 0.2:
                sequence.append(more)
                ids += more
                n = r.randint(1, min(4, len(ids)))
                expected = np.stack([scores(ids[: len(ids) - i]) for i in range(n)][::-1])
                assert (sequence.recent_logits(n) == expected).all()
                more = [r.randint(1, 3)]
            ids += more
        sequence.close()
    assert n_chosen > 20


def test_no_room_for_what_it_would_choose_leaves_all_as_it_was():
    everything = np.array([255], np.uint32)
    one, other = (TextSequence(live(has_mask=m), 3, LiveSequence.free) for m in (True, False))
    assert one.likeliest([1, 2], everything) is not None
    assert one.likeliest([1], everything) is None
    assert one.token_ids[0].tolist() == [1, 2]
    assert other.likeliest([1, 2], everything) is None


@pytest.mark.parametrize("seed", range(60))
def test_scores_are_those_of_the_tokens_whatever_was_done(seed, monkeypatch):
    monkeypatch.setattr(sequences, "_SPARE_TOKENS", 4)
    monkeypatch.setattr(sequences, "_CAPACITY_STEP", 8)
    r = random.Random(seed)
    pool = SequencePool(1, 2 * CONTEXT)
    for _ in range(12):
        prompt = [r.choice([1, 2]) for _ in range(r.randint(1, 20))]
        sequence = start(pool, prompt)
        assert sequence.token_ids[0].tolist() == prompt[: sequence.length]
        ids = list(prompt)
        sequence.append(prompt[sequence.length :])
        for _ in range(r.randint(0, 8)):
            if r.random() < 0.3:
                ids = ids[: r.randint(0, len(ids))]
                sequence.rewind(len(ids))
            more = [r.randint(1, 3) for _ in range(r.choice([0, 1, 1, 2, 5]))]
            if len(ids) + len(more) > CONTEXT:
                break
            sequence.append(more)
            ids += more
            assert sequence.length == len(ids)
            assert sequence.token_ids[0].tolist() == ids
            if ids and r.random() < 0.7:
                assert (sequence.logits()[0] == scores(ids)).all()
            if ids and r.random() < 0.3:
                n = r.randint(1, min(len(ids), 6))
                recent = sequence.recent_logits(n)
                assert (recent == [scores(ids[: len(ids) - n + k + 1]) for k in range(n)]).all()
        sequence.close()


def test_owners_share_no_prompts():
    """What was read for one is not there for another, also not to be told from how long it took."""
    pool = SequencePool(1, 2 * CONTEXT)
    prompt = np.array([1, 2, 3, 4, 5, 6], np.int32)

    def reused(owner: str | None) -> int:
        found, _ = pool.take(prompt, owner=owner)
        if found is None:
            found = LiveSequence(Runtime, context_length=CONTEXT, width=WIDTH, owner=owner)
        sequence = TextSequence(found, CONTEXT, pool.give)
        n = sequence.length
        sequence.append(prompt[n:])
        sequence.close()
        return n

    assert [reused(owner) for owner in ("a", "b", "a", "b")] == [0, 0, 4, 4]
    assert reused(None) == 0  # takes the sequence of "a", emptied
    assert [reused(owner) for owner in ("b", None, "a")] == [4, 4, 0]
    assert pool.info.sequences == 2


def test_what_two_calls_share_is_run_once():
    pool = SequencePool(1, 4 * CONTEXT)
    assert play(pool, [1, 2, 3, 4, 5, 6]) == 0
    assert play(pool, [1, 2, 3, 4, 7, 8, 9]) == 4
    # All of it is known, but scores are wanted, and two tokens give them.
    assert play(pool, [1, 2, 3, 4, 7, 8, 9]) == 5
    info = pool.info
    assert (info.sequences, info.calls, info.hits, info.reused_tokens) == (1, 3, 2, 9)


def test_tokens_run_one_by_one_are_not_reused():
    pool = SequencePool(1, 4 * CONTEXT)
    assert play(pool, [1, 2, 3], steps=3) == 0
    # Were they, scores would differ by rounding from those of a call that starts from nothing.
    assert play(pool, [1, 2, 3, 90, 91, 92, 5]) == 3


def test_a_sequence_is_not_given_to_a_call_that_shares_little():
    pool = SequencePool(1, 4 * CONTEXT)
    first, second = [1, *range(10, 30)], [1, *range(40, 60)]
    assert play(pool, first) == play(pool, second) == 0
    assert pool.info.sequences == 2
    assert play(pool, [*first, 7, 7]) == len(first)
    assert play(pool, [*second, 7, 7]) == len(second)


def test_bounds_hold_and_what_was_used_longest_ago_goes():
    pool = SequencePool(10, 2 * 10 * CONTEXT)
    Runtime.made = 0
    for i in range(1, 5):
        play(pool, [i] * 8)
    assert pool.info.sequences == 2
    assert Runtime.made == 2  # the others were recycled
    assert play(pool, [4] * 8) == 6
    pool.max_bytes = 10 * CONTEXT
    pool.shrink()
    assert pool.info.sequences == 1
    assert pool.info.bytes <= 10 * CONTEXT
    pool.clear()
    assert pool.info.sequences == pool.info.bytes == 0
    pool.max_bytes = 0
    play(pool, [4] * 8)
    assert play(pool, [4] * 8) == pool.info.sequences == 0


@pytest.mark.parametrize("most", [0, 1, 2])
def test_no_more_are_kept_than_a_number(most):
    pool = SequencePool(1, 100 * CONTEXT, most)
    Runtime.made = 0
    for i in range(1, 5):
        play(pool, [i] * 8)
        assert pool.info.sequences == min(i, most)
    assert Runtime.made == (most or 4)  # the others were recycled
    for value in (-1, 1.5, True):
        with pytest.raises(OptionError, match=r"prefix_cache_n=.* must be an int"):
            SequencePool(1, 1, value)


@pytest.mark.parametrize("value", [-1, 1.5, "1 GB", True])
def test_a_budget_is_a_number_of_bytes(value):
    pool = SequencePool(1, max_bytes=100)
    with pytest.raises(OptionError, match=r"prefix_cache=.* must be an int"):
        pool.max_bytes = value
    assert pool.max_bytes == 100
    with pytest.raises(OptionError):
        SequencePool(1, value)


def test_chats_that_take_turns_are_read_once_as_long_as_their_caches_fit():
    n_chats, turns = 12, 5
    pool = SequencePool(1, n_chats * CONTEXT)
    chats = [[chat] * 6 for chat in range(n_chats)]
    for turn in range(turns):
        for chat in chats:
            assert play(pool, chat, steps=0) == (len(chat) - 4 if turn else 0)
            chat += [100 + turn] * 4
    assert pool.info.sequences == n_chats


def test_adapters_do_not_share():
    pool = SequencePool(1, 4 * CONTEXT)
    start(pool, [1, 2, 3], key="a").close()
    one = start(pool, [1, 2, 3], key="a")
    one.append([1, 2, 3])
    one.close()
    assert start(pool, [1, 2, 3, 4], key="b").length == 0
    assert start(pool, [1, 2, 3, 4]).length == 0
    assert start(pool, [1, 2, 3, 4], key="a").length == 2


def test_a_sequence_that_failed_in_the_middle_is_not_kept():
    pool = SequencePool(1, 4 * CONTEXT)
    sequence = start(pool, [1, 2, 3])
    sequence.append([1, 2, 3])
    runtime = sequence._open.generator

    def interrupted(ids):
        runtime.ids += list(ids)
        raise KeyboardInterrupt

    runtime.append_tokens = interrupted
    with pytest.raises(KeyboardInterrupt):
        sequence.append([4])
    sequence.close()
    assert pool.info.sequences == 0


def test_a_closed_handle_cannot_touch_what_another_call_uses():
    pool = SequencePool(1, 4 * CONTEXT)
    first = start(pool, [1, 2, 3])
    first.append([1, 2, 3])
    first.close()
    second = start(pool, [1, 2, 3])
    first.close()
    assert pool.info.sequences == 0
    for use in (first.logits, lambda: first.append([1]), lambda: first.rewind(0)):
        with pytest.raises(ValueError, match="closed"):
            use()
    second.append([2, 3])


def test_threads_never_share_a_sequence():
    pool = SequencePool(1, 3 * CONTEXT)
    wrong = []

    def work(seed):
        r = random.Random(seed)
        for _ in range(60):
            prompt = [1, 2, 3, 4, 5, *(r.randint(1, 3) for _ in range(r.randint(0, 9)))]
            sequence = start(pool, prompt)
            sequence.append(prompt[sequence.length :])
            if not (sequence.logits()[0] == scores(prompt)).all():
                wrong.append(prompt)
            sequence.close()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert pool.info.sequences <= 3
    assert pool.info.hits


# The real model


def test_reused_prompts_score_as_cold_ones_but_for_rounding(model):
    system = {"role": "system", "content": "You sort reviews. Answer with one word."}

    def ids(text):
        return model.encode(model.apply_chat_template([system, {"role": "user", "content": text}]))

    alone = {}
    for text in ("It was good.", "It was good. Really.", "Bad!"):
        model.close()
        sequence = model.start(100, prefix=ids(text))
        assert sequence.length == 0
        sequence.append(ids(text))
        alone[text] = sequence.logits()
        sequence.append([model.vocabulary.eos_token_ids[0]])
        sequence.close()
    for text, expected in [*alone.items(), *alone.items()]:
        sequence = model.start(100, prefix=ids(text))
        assert sequence.length > 12
        sequence.append(ids(text)[sequence.length :])
        assert near(sequence.logits(), expected)
        sequence.append([500])
        sequence.close()


@inside.needs_newer_runtime
def test_prompts_of_a_model_that_cannot_be_rewound_are_read_anew(tmp_path):
    """As of LFM 2, whose convolutions have states: each second call was an error."""
    folder = models.convert(write(tmp_path / "tiny.gguf"), tmp_path / "tiny")
    text = """<ir_version: 9, opset_import: ["" : 17]>
        g (int64[B, S] input_ids, float[B, 1, 3] past_0)
        => (float[B, S, 266] logits, float[B, 1, 3] now_0)
        <int64 depth = {266}, float[2] values = {0, 1}> {
            logits = OneHot <axis = -1> (input_ids, depth, values)
            now_0 = Identity (past_0)
        }"""
    onnx.save(onnx.parser.parse_model(text), folder / "model.onnx")
    config = json.loads((folder / "genai_config.json").read_text())
    config["model"]["type"] = "lfm2"
    config["model"]["decoder"] |= {
        **{"layer_types": ["conv"], "conv_cache_size": 3, "num_hidden_layers": 1, "hidden_size": 1},
        "inputs": {"input_ids": "input_ids", "past_conv_names": "past_%d"},
        "outputs": {"logits": "logits", "present_conv_names": "now_%d"},
    }
    (folder / "genai_config.json").write_text(json.dumps(config))
    generator = Generator(load(folder), Regex("[ab]{3}"))
    for prompt in ("the cat and more", "the cat and less", "the cat and more", "a dog"):
        assert len(generator(prompt)) == 3


def test_texts_that_end_in_the_padding_token_are_scored_as_they_are(model):
    """The runtime took it for no token, and a text of nothing else was scored from before it."""
    pad = read_config(model.folder)["model"]["pad_token_id"]
    rows = [np.array(row, np.int32) for row in ([5, pad, pad], [pad, pad], [pad] * 9, [5, 6, 7, 8])]
    batch = model.start_batch(rows, 20)
    for row, together in zip(rows, batch.logits(), strict=True):
        sequence = model.start(20)
        sequence.append(row)
        assert np.array_equal(sequence.logits(), sequence.recent_logits(1))
        assert near(sequence.logits(), together[np.newaxis])
        sequence.close()
    batch.close()


def test_usage_counts_reused_tokens_and_outputs_stay_the_same_but_for_near_ties(model):
    generator = Generator(model, Literal["positive", "negative", "mixed"])
    chats = [
        [
            {"role": "system", "content": "You sort reviews into three classes."},
            {"role": "user", "content": text},
        ]
        for text in ("Great soup.", "Cold soup.", "Good soup, bad wine.")
    ]
    with cold(model):
        alone = [generator.result(chat) for chat in chats]
    assert all(result.usage.reused_tokens == 0 for result in alone)
    warm = [generator.result(chat) for chat in chats]
    for chat, one, other in zip(chats, alone, warm, strict=True):
        assert gap(model, encode(model, chat), one, other) < TIE
    assert warm[0].usage.reused_tokens == 0
    assert all(result.usage.reused_tokens > 10 for result in warm[1:])
    assert model.sequences.info.bytes <= model.sequences.max_bytes


def test_the_size_of_a_cache_is_read_off_the_model(model):
    # 30 layers, keys and values, 3 heads of 64 float32.
    assert inside.bytes_per_token(model.sequences) == 30 * 2 * 3 * 64 * 4


def test_a_sequence_with_less_room_than_a_new_one_would_have_is_not_used(monkeypatch):
    # It would grow on the way, where a call that starts from nothing does not.
    monkeypatch.setattr(sequences, "_SPARE_TOKENS", 10)
    monkeypatch.setattr(sequences, "_CAPACITY_STEP", 4)
    pool = SequencePool(1, 2 * CONTEXT)
    prompt = np.arange(1, 7, dtype=np.int32)
    short = TextSequence(live(), 8, pool.give)
    short.append(prompt)
    short.close()
    assert pool.take(prompt, None, 40)[0] is None
    again, _ = pool.take(prompt, None, 8)
    assert again is not None
    assert again.length == 4
    assert again.capacity == 8


@pytest.mark.parametrize("is_full", [False, True])
def test_a_chat_that_goes_on_and_on_is_read_again_rarely(monkeypatch, is_full):
    monkeypatch.setattr(sequences, "_CAPACITY_STEP", 16)
    made: list[Runtime] = []

    def new(capacity: int, mask: np.ndarray | None) -> Runtime:
        made.append(Runtime(capacity, mask))
        return made[-1]

    pool = SequencePool(1, 1_500 if is_full else 1_000_000)
    chat, most, rereads = [1, 2], 0, 0
    for turn in range(60):
        chat += [turn] * 10
        prompt, room = np.array(chat, np.int32), len(chat) + 5
        one, least = pool.take(prompt, None, room)
        if one is None:
            one = LiveSequence(new, context_length=4096, width=WIDTH, least=least)
        sequence = TextSequence(one, room, pool.give)
        rereads += turn > 0 and not sequence.length
        assert sequence.length in (0, len(chat) - 10)
        sequence.append(prompt[sequence.length :])
        sequence.append([7])
        sequence.close()
        most = max(most, one.capacity)
    assert rereads <= 6  # 16 tokens of room, and twice as many each time: not 38 times
    assert most <= 2 * len(chat) + 16
    assert sum(sum(runtime.runs) for runtime in made) <= 4 * len(chat)


def test_what_is_run_anew_is_run_in_passes_and_a_prompt_is_run_once(monkeypatch):
    monkeypatch.setattr(sequences, "_SPARE_TOKENS", 4)
    monkeypatch.setattr(sequences, "_CAPACITY_STEP", 4)
    made: list[Runtime] = []

    def new(capacity: int, mask: np.ndarray | None) -> Runtime:
        made.append(Runtime(capacity, mask))
        return made[-1]

    of = LiveSequence(new, context_length=400, width=WIDTH, longest_pass=8)
    one = TextSequence(of, 300, LiveSequence.free, expected=24)
    ids = list(range(1, 41))
    for first in range(0, 24, 8):
        one.append(ids[first : first + 8])
    assert [runtime.runs for runtime in made] == [[8, 8, 8]]
    for token in ids[24:29]:
        one.append([token])
    assert len(made) == 2
    assert sum(made[1].runs) == 29
    assert max(made[1].runs) <= 10
    assert min(made[1].runs) > 1
    assert (one.logits()[0] == scores(ids[:29])).all()
    assert (one.recent_logits(12) == [scores(ids[: n + 1]) for n in range(17, 29)]).all()

    # Others have passes between these, where room is made first.
    full = of.capacity
    assert one.make_room(full) == 29
    assert one.make_room(full + 1) == one.length == 0
    ids *= 10
    for first in range(0, full, 8):
        one.append(ids[first : min(first + 8, full)])
    assert (len(made), sum(made[2].runs)) == (3, full)
    assert max(made[2].runs) <= 8
    assert (one.logits()[0] == scores(ids[:full])).all()
    assert one.make_room(of.capacity) == full
    assert one.make_room(1_000) == 0
    assert of.capacity == 300  # as much as it may have
    one.append(ids[:8])
    assert one.make_room(1_000) == 8
