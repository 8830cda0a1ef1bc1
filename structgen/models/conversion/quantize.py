"""Quantise float32 matrices into the block format of ONNX Runtime's ``MatMulNBits``.

Owns the numbers: unsigned integers in blocks of 32 along the inputs, with one float32 scale and
one integer zero point a block. Two ways in:

- `four_bit` *recognises* weights that already lie on 16 evenly spaced levels a block (GGUF's Q4_0,
  Q4_1 and Q4_K do) and keeps them to the last bit. Rounding them to a second 4-bit grid instead,
  as a general quantiser must, would add as much noise as the first quantisation did: for
  SmolLM2-135M the top token then differs at 30% of all positions.
- `eight_bit` rounds anything, with an error too small to matter.

Knows nothing of GGUF, of models or of graphs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

BLOCK = 32
"""Inputs that share one scale, everywhere in this package."""

FloatArray = npt.NDArray[np.float32]
ByteArray = npt.NDArray[np.uint8]

_TOP = 15  # largest 4-bit integer
_ROWS = 4096  # rounded at a time


@dataclass(frozen=True)
class QuantizedMatrix:
    """A quantised matrix, as ``MatMulNBits`` reads it: ``w ≈ (q - zero_point) * scale``.

    Attributes:
        bits: 4 or 8.
        n_outputs: rows.
        n_inputs: columns, those of the means included.
        n_means: when not 0, the last ``n_means`` columns belong to the mean of each block of the
            other columns: the input must be widened by those means (see `four_bit`).
        values: uint8 ``(n_outputs, n_blocks, 32 * bits // 8)``, lower half of a byte first.
        scales: float32 ``(n_outputs, n_blocks)``.
        zero_points: uint8 ``(n_outputs, ceil(n_blocks / 2))``, lower half of a byte first; None
            for the middle of the range.
    """

    bits: int
    n_outputs: int
    n_inputs: int
    n_means: int
    values: ByteArray
    scales: FloatArray
    zero_points: ByteArray | None


def eight_bit(weight: FloatArray) -> QuantizedMatrix:
    """Round a float32 ``(outputs, inputs)`` matrix to 8 bits, symmetric about 0.

    Weights that came from GGUF's Q8_0 are kept exactly. Costs a few passes over the matrix.
    """
    n_outputs, n_inputs = weight.shape
    n_blocks = n_inputs // BLOCK
    values = np.empty((n_outputs, n_blocks, BLOCK), np.uint8)
    scales = np.empty((n_outputs, n_blocks), np.float32)
    for first in range(0, n_outputs, _ROWS):  # an embedding's temporaries would be gigabytes
        rows = slice(first, first + _ROWS)
        blocks = _blocks(weight[rows])
        scales[rows] = np.abs(blocks).max(axis=-1) / 127
        scales[rows][scales[rows] == 0] = 1
        values[rows] = np.rint(blocks / scales[rows][..., None]) + 128
    return QuantizedMatrix(8, n_outputs, n_inputs, 0, values, scales, None)


def four_bit(weight: FloatArray) -> QuantizedMatrix | None:
    """Represent a float32 ``(outputs, inputs)`` matrix in 4 bits without loss, or return None.

    Each block must lie on at most 16 evenly spaced levels, ``q * step + low``. The runtime wants
    ``(q - z) * step`` with an integer ``z``; what remains, ``offset = low + z * step``, is constant
    over the block, so its share of a dot product is ``32 * offset`` times the mean of the block's
    inputs. Those means become further input columns (one for each block, so 3% more), with the
    offsets, rounded to 4 bits, as their weights: the remaining error is that of 8 bits.

    Costs a sort of every block, unless the first rows already show that the answer is None.
    """
    sample = weight[:8]
    if len(weight) > len(sample) and _levels(_blocks(sample)) is None:
        return None
    blocks = _blocks(weight)
    found = _levels(blocks)
    if found is None:
        return None
    low, step = found
    levels = np.rint((blocks - low[..., None]) / step[..., None]).astype(np.uint8)
    zero_points = np.clip(np.rint(-low / step), 0, _TOP)
    offsets = low + zero_points * step
    n_outputs, n_inputs = weight.shape
    n_means = 0
    if bool((np.abs(offsets) > 1e-3 * step).any()):
        n_means = levels.shape[1]
        mean_levels, mean_steps, mean_zero_points = _round_to_four_bits(offsets * BLOCK)
        levels = np.concatenate([levels, mean_levels], axis=1)
        step = np.concatenate([step, mean_steps], axis=1)
        zero_points = np.concatenate([zero_points, mean_zero_points], axis=1)
    return QuantizedMatrix(
        bits=4,
        n_outputs=n_outputs,
        n_inputs=n_inputs + n_means,
        n_means=n_means,
        values=_pack(levels),
        scales=np.ascontiguousarray(step, dtype=np.float32),
        zero_points=_pack(zero_points.astype(np.uint8)),
    )


def _blocks(weight: FloatArray) -> FloatArray:
    n_outputs, n_inputs = weight.shape
    if n_inputs % BLOCK:
        raise ValueError(f"{n_inputs} inputs are not a multiple of {BLOCK}")
    return weight.reshape(n_outputs, n_inputs // BLOCK, BLOCK)


def _levels(blocks: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """``(low, step)`` of every block, if each lies on at most 16 evenly spaced levels."""
    ordered = np.sort(blocks, axis=-1)
    low = ordered[..., 0]
    span = ordered[..., -1] - low
    gaps = np.diff(ordered, axis=-1)
    # Values of one level differ by rounding only; those of two levels by span / 15 at least.
    gaps[gaps < span[..., None] * 1e-3] = np.inf
    smallest = gaps.min(axis=-1)
    constant = span == 0
    smallest[constant] = 1
    steps = np.zeros_like(smallest)
    # No two neighbouring levels need be in use: the smallest gap may be a multiple of the step.
    for divisor in (1, 2, 3):
        n_steps = np.rint(span / smallest * divisor)
        candidate = np.where(constant, 1, span / np.maximum(n_steps, 1))
        positions = (blocks - low[..., None]) / candidate[..., None]
        fits = (n_steps <= _TOP) & (np.abs(positions - np.rint(positions)).max(axis=-1) < 0.01)
        take = fits & (steps == 0)
        steps[take] = candidate[take]
        if bool((steps > 0).all()):
            return low, steps
    return None


def _round_to_four_bits(weight: FloatArray) -> tuple[ByteArray, FloatArray, FloatArray]:
    """Levels, steps and zero points of the nearest 4-bit matrix, columns padded to whole blocks."""
    padded = np.pad(weight, ((0, 0), (0, -weight.shape[1] % BLOCK)))
    blocks = _blocks(padded)
    low = np.minimum(blocks.min(axis=-1), 0)
    high = np.maximum(blocks.max(axis=-1), 0)
    steps = (high - low) / _TOP
    steps[steps == 0] = 1
    zero_points = np.rint(-low / steps)
    levels = np.clip(np.rint(blocks / steps[..., None]) + zero_points[..., None], 0, _TOP)
    return levels.astype(np.uint8), steps, zero_points


def _pack(levels: ByteArray) -> ByteArray:
    """Two 4-bit numbers a byte along the last axis, the first one in the lower half."""
    if levels.shape[-1] % 2:
        levels = np.concatenate([levels, np.zeros_like(levels[..., :1])], axis=-1)
    return np.ascontiguousarray(levels[..., 0::2] | (levels[..., 1::2] << 4))
