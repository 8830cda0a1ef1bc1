"""Choosing a token from scores: greedy, or by temperature, top-n-sigma, top-k, min-p and
top-p.

It owns the arithmetic and the random numbers. It knows nothing of masks, prompts or the runtime:
minus infinity means a token may not be chosen, whoever wrote it there.

The runtime could sample too, but its random numbers and penalties belong to a sequence: a sequence
could not be used again by a call with other settings, and the same seed would give other tokens in
a batch than alone. Here the number is a function of the seed, of which output of the call it is,
and of the token's position in that output: neither batches nor rewinds nor forced tokens shift it.

The order is the runtime's: repetition penalty, top-k, temperature, top-p. What it does not have
stands where vLLM has it: penalties for frequency and presence after that for repetition, min-p
before top-p. Top-n-sigma comes where llama.cpp has it, after the penalties and before top-k.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .processors import Logits, TokenIds, near_the_greatest

_Indices: TypeAlias = npt.NDArray[np.int64]
_Weights: TypeAlias = npt.NDArray[np.floating[Any]]

_BLOCK = 64
_FIRST_TOP = 256
_WORD = 2**64 - 1
_GAMMA = 0x9E3779B97F4A7C15


def uniform(stream: int, position: int) -> float:
    """A random number in [0, 1) that depends on nothing but its arguments.

    SplitMix64 (Steele, Lea and Flood, 2014), begun at ``stream`` and read at ``position``.
    """
    return (_mix((stream + (position + 1) * _GAMMA) & _WORD) >> 11) / 2**53


def _mix(word: int) -> int:
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return word ^ (word >> 31)


class Sampler:
    """Chooses the tokens of one output. Immutable.

    Attributes:
        seed: what its random numbers begin with.
        takes_likeliest: whether it always takes the token with the greatest score.
    """

    def __init__(self, settings: Mapping[str, Any], *, index: int = 0, n_prompt: int = 0) -> None:
        """Take over search settings.

        Args:
            settings: of `structgen.decoding.options.resolve`, under the runtime's names. A
                ``random_seed`` below 0, or none, draws one.
            index: which of several outputs of one call this is; each has random numbers of its
                own, and the first those of a call for one output.
            n_prompt: how many of the first tokens are the prompt's, which the penalties for
                frequency and presence do not count.
        """
        seed = int(settings.get("random_seed", -1))
        self.seed = seed = secrets.randbits(64) if seed < 0 else seed
        self._stream = _mix((_mix(seed + _GAMMA) + index) & _WORD)
        self._penalty = float(settings.get("repetition_penalty", 1.0))
        self._frequency = float(settings.get("frequency_penalty", 0.0))
        self._presence = float(settings.get("presence_penalty", 0.0))
        self._n_prompt = n_prompt
        self._temperature = float(settings.get("temperature", 1.0))
        self._top_k = int(settings.get("top_k", 0))
        self._top_p = float(settings.get("top_p") or 1.0)
        self._min_p = float(settings.get("min_p", 0.0))
        self._top_n_sigma = float(settings.get("top_n_sigma", 0.0))
        self._is_greedy = not settings.get("do_sample") or self._top_k == 1
        self._is_penal = bool(self._penalty != 1 or self._frequency or self._presence)
        self.takes_likeliest = self._is_greedy and not self._is_penal

    def __call__(self, token_ids: TokenIds, logits: Logits, position: int) -> int:
        """Return the id of the next token.

        Args:
            token_ids: int32 ``[n]``, prompt and output so far.
            logits: float32 ``[vocab]``, at least one above minus infinity; not changed.
            position: how many tokens the output has so far.

        Cost: 4 µs for the likeliest, 0.1 ms with top-k, 0.2 ms without, at 49k tokens.
        """
        if self._is_penal:
            logits = self._penalised(logits, token_ids)
        if self._is_greedy:
            return int(logits.argmax())
        if self._top_n_sigma:
            logits = near_the_greatest(logits, self._top_n_sigma)
        if self._top_k:
            tokens = top(logits, self._top_k)
            if not len(tokens):  # scores that are NaN
                return int(logits.argmax())
            scores = logits[tokens].astype(np.float64)
            if self._top_p < 1:
                weights = self._weights(scores)
                tokens, weights = self._nucleus(tokens, weights, float(weights.sum()))
            else:
                tokens.sort()
                weights = self._weights(logits[tokens].astype(np.float64))
        else:
            weights = self._weights(logits)
            if self._top_p < 1:
                tokens, weights = self._likeliest(logits, weights)
            else:
                tokens = None
        at = _draw(weights, uniform(self._stream, position))
        return at if tokens is None else int(tokens[at])

    def _penalised(self, logits: Logits, token_ids: TokenIds) -> Logits:
        """A copy in which tokens that came up are less likely."""
        logits = logits.copy()
        if self._penalty != 1:
            scores = logits[token_ids]
            logits[token_ids] = np.where(scores < 0, scores * self._penalty, scores / self._penalty)
        output = token_ids[self._n_prompt :]
        if len(output) and (self._frequency or self._presence):
            found, counts = np.unique(output, return_counts=True)
            logits[found] -= (self._frequency * counts + self._presence).astype(np.float32)
        return logits

    def _weights(self, scores: _Weights) -> _Weights:
        """Probabilities, but for a factor; the greatest is 1. None that min-p rules out."""
        weights: _Weights = np.exp((scores - scores.max()) / self._temperature)
        if self._min_p:
            weights[weights < self._min_p] = 0
        return weights

    def _likeliest(self, logits: Logits, weights: _Weights) -> tuple[_Indices, _Weights]:
        """The nucleus among all tokens. Nearly always it is small, so few are sorted first."""
        total = float(weights.sum(dtype=np.float64))
        tokens = top(logits, _FIRST_TOP)
        if float(weights[tokens].sum(dtype=np.float64)) < self._top_p * total:
            tokens = np.argsort(-logits, kind="stable")
        return self._nucleus(tokens, weights[tokens], total)

    def _nucleus(
        self, tokens: _Indices, weights: _Weights, total: float
    ) -> tuple[_Indices, _Weights]:
        """Of tokens from the likeliest down, as few as have the probability top-p, by id."""
        sums = np.cumsum(weights, dtype=np.float64)
        n = min(int(np.searchsorted(sums, self._top_p * total)) + 1, len(tokens))
        order = np.argsort(tokens[:n])
        return tokens[:n][order], weights[:n][order]


def _draw(weights: _Weights, number: float) -> int:
    """The index at which the running sum of ``weights`` passes ``number`` times their total.

    Sums of blocks first: a running sum over a whole vocabulary takes 0.4 ms.
    """
    blocks = np.cumsum(np.add.reduceat(weights, np.arange(0, len(weights), _BLOCK)), dtype=float)
    target = number * blocks[-1]
    block = min(int(np.searchsorted(blocks, target, side="right")), len(blocks) - 1)
    if block:
        target -= blocks[block - 1]
    inside = weights[block * _BLOCK : (block + 1) * _BLOCK]
    at = int(np.searchsorted(np.cumsum(inside, dtype=float), target, side="right"))
    if at < len(inside):
        return block * _BLOCK + at
    # Rounding took the target past the block's sum.
    return int(np.flatnonzero(weights[: (block + 1) * _BLOCK])[-1])


def top(scores: Logits, n: int) -> _Indices:
    """The indices of the ``n`` greatest scores, the greatest first; among equals, the lower index.

    Minus infinity is left out, so there may be fewer.

    Cost: 60 µs at 49k; NumPy's partition takes ten times as long.
    """
    size = len(scores)
    blocks = size // _BLOCK
    least = np.float32(-np.inf)
    if n < blocks:
        # The nth greatest of the blocks' maxima is no more than the nth greatest of all.
        greatest = scores[: blocks * _BLOCK].reshape(blocks, _BLOCK).max(axis=1)
        least = np.partition(greatest, blocks - n)[blocks - n]
    found = np.flatnonzero(scores >= least if least > -np.inf else scores > least)
    order = np.argsort(-scores[found], kind="stable")[:n]
    return found[order]
