"""Block quantisation: what it keeps, what it rounds, what it refuses."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from structgen.models.conversion.graph import eight_bit, four_bit, to_four_bits

BLOCK = 32


def integers(matrix):
    """The quantised integers as ``(outputs, blocks, block)`` int64."""
    values = matrix.values
    if matrix.bits == 4:
        values = np.stack([values & 15, values >> 4], axis=-1)
    return values.reshape(matrix.n_outputs, -1, matrix.block).astype(np.int64)


def dense(matrix):
    """What ``MatMulNBits`` multiplies by, the columns of the means put back where they belong."""
    n_blocks = matrix.scales.shape[1]
    if matrix.zero_points is None:
        zero_points = np.full(matrix.scales.shape, 1 << (matrix.bits - 1))
    else:
        packed = matrix.zero_points
        zero_points = np.stack([packed & 15, packed >> 4], axis=-1)
        zero_points = zero_points.reshape(len(packed), -1)[:, :n_blocks].astype(np.int64)
    blocks = (integers(matrix) - zero_points[..., None]) * matrix.scales[..., None]
    columns = blocks.reshape(matrix.n_outputs, -1)[:, : matrix.n_inputs]
    if matrix.n_means == 0:
        return columns
    n_inputs = matrix.n_inputs - matrix.n_means
    means = columns[:, n_inputs:] / BLOCK
    return columns[:, :n_inputs] + np.repeat(means, BLOCK, axis=1)


def grid(random, n_outputs, n_inputs, *, lows, highest=15):
    """A matrix on 16 levels a block, as GGUF's 4-bit types are; also its steps."""
    shape = n_outputs, n_inputs // BLOCK
    levels = random.integers(0, highest + 1, (*shape, BLOCK))
    steps = random.uniform(0.01, 0.2, shape).astype(np.float16).astype(np.float32)
    low = (lows(shape) * steps).astype(np.float32)
    return (levels * steps[..., None] + low[..., None]).reshape(n_outputs, n_inputs), steps


@pytest.fixture
def random():
    return np.random.default_rng(7)


@pytest.mark.parametrize(("n_inputs", "block"), [(96, 32), (576, 32), (768, 64), (800, 32)])
def test_eight_bits_are_within_half_a_step(random, n_inputs, block):
    weight = random.normal(size=(24, n_inputs)).astype(np.float32)
    matrix = eight_bit(weight)
    assert (matrix.bits, matrix.n_outputs, matrix.n_inputs, matrix.n_means) == (8, 24, n_inputs, 0)
    assert matrix.values.shape == (24, n_inputs // block, block)
    error = np.abs(dense(matrix) - weight).reshape(24, -1, block).max(axis=-1)
    assert (error <= matrix.scales * 0.5001).all()


def test_eight_bits_keep_what_had_eight_bits(random):
    levels = random.integers(-127, 128, (8, 2, BLOCK))
    levels[..., 0] = 127
    scales = random.uniform(0.01, 1, (8, 2, 1)).astype(np.float32)
    weight = (levels * scales).reshape(8, 64).astype(np.float32)
    np.testing.assert_allclose(dense(eight_bit(weight)), weight, rtol=1e-6)


def test_zeros_stay_zeros():
    zeros = np.zeros((4, 64), np.float32)
    assert not dense(eight_bit(zeros)).any()
    matrix = four_bit(zeros)
    assert matrix is not None
    assert not dense(matrix).any()


def test_symmetric_four_bits_are_exact_and_need_no_means(random):
    weight, _ = grid(random, 16, 96, lows=lambda shape: np.full(shape, -8.0))
    matrix = four_bit(weight)
    assert matrix is not None
    assert (matrix.bits, matrix.n_inputs, matrix.n_means) == (4, 96, 0)
    # An odd number of blocks: the last zero point shares its byte with nothing.
    assert matrix.zero_points.shape == (16, 2)
    np.testing.assert_allclose(dense(matrix), weight, atol=1e-5)


def test_four_bits_with_any_offset_are_as_good_as_eight(random):
    weight, steps = grid(random, 16, 64 * BLOCK, lows=lambda shape: random.uniform(-15, 0, shape))
    matrix = four_bit(weight)
    assert matrix is not None
    assert (matrix.n_means, matrix.n_inputs) == (64, 64 * 33)
    error = (dense(matrix) - weight).reshape(16, 64, BLOCK)
    # The integers are exact; only the offset of a block is rounded, to 1/14 of the widest.
    assert np.abs(error - error[..., :1]).max() < 1e-5
    assert np.abs(error).max() <= steps.max() / 14
    coarse = np.abs(weight).max() / 7 / 4
    assert np.sqrt((error**2).mean()) < coarse / 10


@pytest.mark.parametrize("stride", [2, 3])
def test_four_bits_are_recognised_when_levels_are_unused(random, stride):
    weight, _ = grid(random, 8, 64, lows=lambda shape: np.full(shape, -6.0), highest=15 // stride)
    weight = weight * stride + 0.0
    matrix = four_bit(weight)
    assert matrix is not None
    assert np.abs(dense(matrix) - weight).max() < 0.05


def test_gaps_of_two_and_three_steps_alone_are_understood():
    block = np.zeros(BLOCK, np.float32)
    block[:3] = [2, 5, 15]  # gaps 2, 3 and 10: the step is half of the smallest gap
    matrix = four_bit(np.tile(block * np.float32(0.1), (1, 2)))
    assert matrix is not None
    np.testing.assert_allclose(dense(matrix)[0, :3], [0.2, 0.5, 1.5], atol=1e-6)


def test_constant_blocks_survive():
    weight = np.full((4, 64), 0.25, np.float32)
    matrix = four_bit(weight)
    assert matrix is not None
    np.testing.assert_allclose(dense(matrix), weight, rtol=0.1)


def test_weights_of_finer_steps_are_not_four_bit(random):
    assert four_bit(random.normal(size=(32, 64)).astype(np.float32)) is None
    # 17 levels, in the last row only: the quick look at the first rows does not see them.
    weight, _ = grid(random, 32, 64, lows=lambda shape: np.full(shape, -8.0))
    weight[-1, :32] = np.arange(32) % 17
    assert four_bit(weight) is None


@pytest.mark.parametrize("quantize", [eight_bit, four_bit, to_four_bits])
@pytest.mark.parametrize("n_outputs", [64, 16384])
def test_little_memory_besides_the_matrix(random, quantize, n_outputs):
    """A file of 11 MB took 1.1 GB: its weights have 2 bits, and temporary arrays were of all."""
    weight, _ = grid(random, n_outputs, (1 << 22) // n_outputs, lows=lambda s: np.full(s, -8.0))
    if quantize is to_four_bits:
        weight[0] = random.normal(size=weight.shape[1])
    tracemalloc.start()
    try:
        assert quantize(weight) is not None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * weight.nbytes


def test_inputs_must_fill_blocks():
    with pytest.raises(ValueError, match="40 inputs"):
        eight_bit(np.zeros((2, 40), np.float32))
