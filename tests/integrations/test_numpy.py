"""Masks over logits: what is allowed stays, all else is minus infinity."""

from __future__ import annotations

import numpy as np
import pytest
from engine.walks import TINY, allowed

import structgen
from structgen.integrations.numpy import apply_mask, masked


@pytest.fixture
def cursor():
    return structgen.compile(structgen.Regex("[a-c]{2,4}x?"), TINY).start()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("beyond", [0, 1, 31, 700])
def test_only_allowed_tokens_keep_their_scores(cursor, dtype, beyond):
    logits = np.random.default_rng(1).normal(size=TINY.size + beyond).astype(dtype)
    before = logits.copy()
    found = masked(logits, cursor)
    assert (logits == before).all()
    assert found.dtype == dtype
    ids = allowed(cursor)
    assert np.flatnonzero(found > -np.inf).tolist() == ids
    assert (found[ids] == before[ids]).all()


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_rows_of_a_batch_are_masked_in_place(cursor, dtype):
    other = structgen.compile(["abc", "b"], TINY).start()
    masks = np.zeros((2, (TINY.size + 31) // 32), dtype)
    structgen.fill_masks([cursor, other], masks)
    wide = np.zeros((4, TINY.size + 5), np.float32)
    logits = wide[::2]
    assert apply_mask(logits, masks) is logits
    assert np.flatnonzero(logits[0] == 0).tolist() == allowed(cursor)
    assert np.flatnonzero(logits[1] == 0).tolist() == allowed(other)
    assert not wide[1::2].any()


def test_what_does_not_go_together_is_told(cursor):
    mask = np.zeros((TINY.size + 31) // 32, np.int32)
    with pytest.raises(ValueError, match="do not match"):
        apply_mask(np.zeros(TINY.size - 64, np.float32), mask)
    with pytest.raises(ValueError, match="do not match"):
        apply_mask(np.zeros((2, TINY.size), np.float32), mask)
    with pytest.raises(ValueError, match="a mask must be int32 or uint32, got float64"):
        apply_mask(np.zeros(TINY.size, np.float32), mask.astype(np.float64))
    with pytest.raises(ValueError, match="floating-point numbers, got int64"):
        apply_mask(np.zeros(TINY.size, np.int64), mask)
    with pytest.raises(ValueError, match="fewer than the vocabulary's"):
        masked(np.zeros(TINY.size - 1, np.float32), cursor)
