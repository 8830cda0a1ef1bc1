"""The cursors of a batch follow the token ids that an engine shows, or say why they cannot."""

from __future__ import annotations

import random

import numpy as np
import pytest
from engine.walks import EOS, TINY, allowed, ids_of, minimum

import structgen
from structgen import BudgetTooSmall, OptionError, Vocabulary
from structgen.errors import TokenNotAllowed, VocabularyError
from structgen.integrations.numpy import Sequences

PAD = 5
WIDTH = TINY.size + 19
CHOICE = structgen.compile(["abc", "abd", "ax"], TINY)
LETTERS = structgen.compile(structgen.Regex("[a-c]{3,6}"), TINY)


def token(text: bytes) -> int:
    return TINY.tokens.index(text)


A, B, C, X = map(token, (b"a", b"b", b"c", b"x"))


def rows(*texts: list[int]) -> np.ndarray:
    """Prompts, padded on the left."""
    width = max(map(len, texts))
    return np.array([[PAD] * (width - len(text)) + text for text in texts], np.int64)


def and_then(ids: np.ndarray, *tokens: int) -> np.ndarray:
    return np.concatenate([ids, np.array(tokens)[:, None]], axis=1)


def generate(processor: Sequences, ids: np.ndarray, rng: random.Random, steps: int) -> np.ndarray:
    """What an engine does: ask, choose, write padding after the end, stop when all have ended."""
    ended = np.zeros(len(ids), bool)
    for _ in range(steps):
        masks = processor.masks(ids, WIDTH)
        chosen = []
        for row, mask in enumerate(masks.view(np.uint32)):
            choices = ids_of(mask)
            assert choices
            if ended[row]:
                assert set(choices) == set(TINY.eos_token_ids)
                chosen.append(PAD)
                continue
            chosen.append(rng.choice(choices))
            ended[row] = chosen[-1] in TINY.eos_token_ids
        ids = and_then(ids, *chosen)
        if ended.all():
            break
    return ids


def texts(ids: np.ndarray, n_prompt: int) -> list[str]:
    return [b"".join(TINY.tokens[i] for i in row[n_prompt:]).decode() for row in ids]


def test_batches_of_prompts_padded_on_the_left_give_whole_outputs():
    rng = random.Random(4)
    constraints = [CHOICE, LETTERS]
    prompts = rows([A, B, X, X], [X])
    processor = Sequences(constraints, None)
    for _ in range(5):  # one call of the engine after the other, with one processor
        ids = generate(processor, prompts, rng, 60)
        for text, constraint in zip(texts(ids, 4), constraints, strict=True):
            assert constraint.allows(text)


def test_several_returns_share_the_constraint_of_their_prompt():
    processor = Sequences([CHOICE, LETTERS], None)
    ids = generate(processor, np.repeat(rows([A], [B]), 3, axis=0), random.Random(1), 60)
    found = texts(ids, 1)
    assert all(CHOICE.allows(text) for text in found[:3])
    assert all(LETTERS.allows(text) for text in found[3:])


def test_a_budget_makes_outputs_whole():
    loose = structgen.compile(structgen.Regex("[a-c]{2,}"), TINY)
    least = minimum(loose)
    ids = generate(Sequences(loose, least + 2), rows([A]), random.Random(2), least + 2)
    assert loose.allows(texts(ids, 1)[0])
    with pytest.raises(BudgetTooSmall):
        Sequences(loose, 1)


def test_prompts_are_not_read():
    start = LETTERS.start()
    for prompt in ([A, B, C, EOS], [X], [PAD, PAD], [EOS]):
        (mask,) = Sequences(LETTERS, None).masks(rows(prompt), WIDTH).view(np.uint32)
        assert ids_of(mask) == allowed(start)


def test_the_same_prompt_again_is_a_new_output():
    processor = Sequences(CHOICE, None)
    prompt = rows([X, X])
    first = processor.masks(prompt, WIDTH)
    processor.masks(and_then(prompt, A), WIDTH)
    assert (processor.masks(prompt, WIDTH) == first).all()
    longer = rows([X, X, A, X, X, X])  # a conversation that goes on
    assert (processor.masks(longer, WIDTH) == first).all()


def test_a_single_sequence_may_go_back_and_on():
    """As in assisted generation: a draft is scored token by token, and partly refused."""
    rng = random.Random(9)
    processor, prompt = Sequences(LETTERS, None), rows([X])
    kept: list[int] = []
    for _ in range(200):
        ids = np.concatenate([prompt, np.array([kept], np.int64).reshape(1, -1)], axis=1)
        masks = processor.masks(ids, WIDTH)
        cursor = LETTERS.start()
        for one in kept:
            cursor.accept(one)
        expected = [*TINY.eos_token_ids] if cursor.is_finished else allowed(cursor)
        assert ids_of(masks[0].view(np.uint32)) == expected
        if cursor.is_finished or rng.random() < 0.3:
            del kept[rng.randint(0, len(kept)) :]
            if kept and rng.random() < 0.5:  # refused, and another in its place
                cursor = LETTERS.start()
                for one in kept[:-1]:
                    cursor.accept(one)
                kept[-1] = rng.choice(allowed(cursor))
        else:
            kept.append(rng.choice(expected))


def test_beams_are_refused_by_name():
    processor, prompt = Sequences(CHOICE, None), rows([X], [X])
    processor.masks(prompt, WIDTH)
    one = and_then(prompt, A, token(b"ab"))
    processor.masks(one, WIDTH)
    with pytest.raises(OptionError, match=r"beam search, which is not supported.*num_beams=1"):
        processor.masks(and_then(one[::-1], C, B), WIDTH)


def test_tokens_against_the_mask_are_told():
    processor, prompt = Sequences([CHOICE, LETTERS], None), rows([X], [X])
    processor.masks(prompt, WIDTH)
    with pytest.raises(TokenNotAllowed, match=r"sequence 1: .*without the mask.*the last") as told:
        processor.masks(and_then(prompt, A, X), WIDTH)
    assert told.value.token_id == X


def test_what_does_not_fit_is_told():
    with pytest.raises(VocabularyError, match=r"the model has 10 logits, .*size="):
        Sequences(CHOICE, None).masks(rows([X]), 10)
    with pytest.raises(OptionError, match="2 constraints for a batch of 3 sequences"):
        Sequences([CHOICE, LETTERS], None).masks(rows([X], [X], [X]), WIDTH)
    with pytest.raises(OptionError, match=r"takes a constraint.*got str"):
        Sequences("abc", None)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="at least one constraint; got none"):
        Sequences([], None)
    narrow = Vocabulary.from_tokens([b"a", b""], [1])
    with pytest.raises(VocabularyError, match="the same vocabulary"):
        Sequences([CHOICE, structgen.compile(["a"], narrow)], None)
