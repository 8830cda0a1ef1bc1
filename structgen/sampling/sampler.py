"""Choosing a token from scores: greedy, or by temperature, top-n-sigma, top-k, min-p and
top-p.

It owns the arithmetic and the random numbers. It does not know masks, prompts or the runtime: minus
infinity means that a token may not be chosen.

The runtime could sample, too, but its random numbers and penalties belong to a sequence: calls with
other settings could not reuse a sequence, and the same seed would give different tokens in a batch
than alone. Here a token's random number is a function of the seed, the output's index in the call,
the position in that output, and the token, so batches, rewinds and forced tokens do not change it.

Each token gets a random time, shorter for likelier tokens, and the first one wins: an exponential
race, which chooses every token with its probability. A cumulative sum over the probabilities would
need only one random number, but shifts each token's range when the scores of others round
differently. With SmolLM2, a pass over two tokens instead of one then chose another token at 34 of
100 positions; a race does at 4, hardly more than necessary. And a mask changes nothing if the
winner among all tokens is allowed.

The order is the runtime's: repetition penalty, top-k, temperature, top-p. Steps that it lacks have
vLLM's place: penalties for frequency and presence after the one for repetition, min-p before top-p.
Top-n-sigma has llama.cpp's place, after the penalties and before top-k.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from math import inf, log1p
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .processors import Logits, TokenIds, near_the_greatest

_Indices: TypeAlias = npt.NDArray[np.int64]
_Weights: TypeAlias = npt.NDArray[np.floating[Any]]

_BLOCK = 64
_FIRST_TOP = 256
_PART = 8192
_WORD = 2**64 - 1
_GAMMA = 0x9E3779B97F4A7C15


def _mix(word: int) -> int:
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return word ^ (word >> 31)


class Sampler:
    """Chooses the tokens of one output. Immutable.

    Attributes:
        seed: the seed of its random numbers.
        takes_likeliest: whether it always takes the token with the highest score.
    """

    def __init__(self, settings: Mapping[str, Any], *, index: int = 0, n_prompt: int = 0) -> None:
        """Store the search settings.

        Args:
            settings: the result of `structgen.decoding.options.resolve`, under the runtime's names.
                A negative or missing ``random_seed`` is replaced by a random one.
            index: the index of the output in a call for several; each has its own random numbers,
                and the first those of a call for one output.
            n_prompt: the number of prompt tokens, which the penalties for frequency and presence do
                not count.
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
            position: the number of output tokens so far.

        Cost: 4 µs for the likeliest, 0.1 ms with top-k, 0.3 ms without, at 49k tokens.
        """
        if self._is_penal:
            logits = self._penalised(logits, token_ids)
        likeliest = int(logits.argmax())
        if self._is_greedy or not np.isfinite(logits[likeliest]):
            return likeliest
        if self._top_n_sigma:
            logits = near_the_greatest(logits, self._top_n_sigma)
        if self._top_k:
            tokens = top(logits, self._top_k)
            weights = self._weights(logits[tokens].astype(np.float64))
            if self._top_p < 1:
                n = self._n_of_nucleus(weights, weights.sum())
                tokens, weights = tokens[:n], weights[:n]
        else:
            weights = self._weights(logits)
            tokens = None
            if self._top_p < 1:
                tokens = self._nucleus(logits, weights)
                weights = weights[tokens]
        return self._first(tokens, weights, position)

    def _first(self, tokens: _Indices | None, weights: _Weights, position: int) -> int:
        """Return the winning token, of ``tokens`` or of all. A weight is the rate of a token's
        time."""
        key = _mix((self._stream + (position + 1) * _GAMMA) & _WORD)
        winner, soonest = -1, inf
        # In parts, because memory of more than 128 kB comes from the system page by page, which
        # takes longer than everything else here.
        for begin in range(0, len(weights), _PART):
            rates = weights[begin : begin + _PART]
            ids = np.flatnonzero(rates > 0)
            if not len(ids):
                continue
            rates = rates[ids]
            ids = ids + begin if tokens is None else tokens[ids + begin]
            words = _words(key, ids)
            least = words.astype(np.float32) / rates  # no time is less: few need a logarithm
            at = least.argmin()
            most = np.float32(min(soonest, _time(words[at], rates[at])) * (1 + 1e-6))
            for at in np.flatnonzero(least <= most):
                time = _time(words[at], rates[at])
                if time < soonest:
                    winner, soonest = int(ids[at]), time
        return winner

    def _penalised(self, logits: Logits, token_ids: TokenIds) -> Logits:
        """Return a copy with repeated tokens penalised."""
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
        """Return the probabilities up to a factor; the highest is 1. Those that min-p rules out are
        0."""
        weights: _Weights = np.exp((scores - scores.max()) / self._temperature)
        if self._min_p:
            weights[weights < self._min_p] = 0
        return weights

    def _nucleus(self, logits: Logits, weights: _Weights) -> _Indices:
        """Return the fewest likeliest tokens whose probabilities add up to top-p."""
        total = weights.sum(dtype=np.float64)
        tokens = top(logits, _FIRST_TOP)
        n = self._n_of_nucleus(weights[tokens], total)
        if n <= len(tokens):
            return tokens[:n]
        scores = np.sort(logits)[::-1]  # five times as fast as the order of the tokens
        n = min(self._n_of_nucleus(self._weights(scores), total), len(scores))
        above = np.flatnonzero(logits > scores[n - 1])
        ties = np.flatnonzero(logits == scores[n - 1])
        return np.concatenate([above, ties[: n - len(above)]])

    def _n_of_nucleus(self, weights: _Weights, total: float) -> int:
        """Return how many of ``weights``, in descending order, have the probability top-p together;
        one more than there are if all have less."""
        sums = np.cumsum(weights, dtype=np.float64)
        return int(np.searchsorted(sums, self._top_p * total)) + 1


def _words(key: int, tokens: _Indices) -> npt.NDArray[np.uint32]:
    """Return a random odd 32-bit number for each token, from the token and ``key`` alone.

    Two rounds of a hash that NumPy computes four times as fast as one of 64 bits (Chris Wellons,
    2018).
    """
    words: npt.NDArray[np.uint32] = tokens.astype(np.uint32)
    for half in (key & 0xFFFFFFFF, key >> 32):
        words += np.uint32(half)
        words ^= words >> 16
        words *= np.uint32(0x21F0AAAD)
        words ^= words >> 15
        words *= np.uint32(0xD35A2D97)
        words ^= words >> 15
    words |= np.uint32(1)
    return words


def _time(word: np.uint32, rate: np.floating[Any]) -> float:
    """Return an exponential time, in a unit in which it is at least ``word / rate``."""
    return -log1p(int(word) / -(2.0**32)) * 2**32 / float(rate)


def top(scores: Logits, n: int) -> _Indices:
    """Return the indices of the ``n`` highest scores in order; the lower of equals first.

    Excludes minus infinity, so there may be fewer.

    Cost: 60 µs at 49k; NumPy's partition takes ten times as long.
    """
    size = len(scores)
    blocks = size // _BLOCK
    least = np.float32(-np.inf)
    if n < blocks:
        # The nth highest of the blocks' maxima is at most the nth highest of all.
        greatest = scores[: blocks * _BLOCK].reshape(blocks, _BLOCK).max(axis=1)
        least = np.partition(greatest, blocks - n)[blocks - n]
    found = np.flatnonzero(scores >= least if least > -np.inf else scores > least)
    order = np.argsort(-scores[found], kind="stable")[:n]
    return found[order]
