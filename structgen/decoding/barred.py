"""Texts that an output may not be any more, and the tokens that would write them.

Owns what is barred: beginnings of the output, whatever follows them, and whole outputs. Knows the
bytes of tokens, and nothing of types or of why a text is barred.

A text is barred exactly: the token that would complete it is left out, in whatever tokens the text
before it was written, and in JSON with whatever blanks. That alone would have a model that wants
``3``, and may not close it, write ``30``. So the way to a barred text is made less likely as well,
by as much as is barred of it: what is chosen from is the model's own distribution over whole texts,
given that it is none of the barred ones, as far as the probabilities of their tokens are known
(Park et al. 2024 sample so under grammars). It changes no choice where nothing is barred.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from structgen.sampling import Logits
from structgen.vocabulary import Vocabulary

_BLANKS = b" \t\n\r"
_STRING_OR_BLANKS = re.compile(rb'("(?:[^"\\]|\\.)*(?:(")|\\?))|[ \t\n\r]+', re.DOTALL)
_ALMOST = 1 - 1e-9
"""More than that of a way is not barred, for the arithmetic; what is barred whole is left out."""


class _Beginning(NamedTuple):
    """What no output may begin with.

    Attributes:
        text: without blanks, if it is JSON.
        gaps: of each byte of it, whether blanks may come before it.
        ended_by: the bytes one of which has to follow; None: whatever does.
    """

    text: bytes
    gaps: tuple[bool, ...]
    ended_by: bytes | None


class _Spent(NamedTuple):
    """Where nothing was left that ends within the budget.

    Attributes:
        place: of the cursor.
        left: how many tokens were left of the budget: with fewer there is nothing either.
    """

    place: Hashable
    left: int


class _Node:
    """The output after some tokens.

    Attributes:
        after: what it is after one more, as far as it was ever written.
        probability: that of its last token, after those before.
        norm: the logarithm of the sum of all weights there, when it was first reached.
        barred: which part of what may come after it is barred.
        is_dead: whether nothing is left after it.
    """

    __slots__ = ("after", "barred", "is_dead", "norm", "probability")

    def __init__(self) -> None:
        self.after: dict[int, _Node] = {}
        self.probability = 1.0
        self.norm: float | None = None
        self.barred = 0.0
        self.is_dead = False


class Barred:
    """What is barred of one output, and where that stands."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        texts: Sequence[bytes],
        temperature: float,
        *,
        is_json: bool = False,
    ) -> None:
        """Bar nothing.

        Args:
            vocabulary: the model's.
            texts: by token id, the bytes that stand in the output's text.
            is_json: whether outputs are JSON, in which blanks between tokens are of no account.
            temperature: what scores are divided by before they are weighed.
        """
        self._trie = vocabulary.trie
        self._eos_token_ids = vocabulary.eos_token_ids
        self._texts = texts
        self._is_text = texts is vocabulary.tokens
        self._temperature = temperature
        self._is_json = is_json
        self._beginnings: set[_Beginning] = set()
        self._wholes: set[bytes] = set()
        self._spent: dict[bytes, tuple[tuple[bool, ...], set[_Spent]]] = {}  # by text
        self._path = [_Node()]  # the output so far, a node after each token

    def bar_beginning(self, text: bytes, ended_by: bytes | None = None) -> None:
        """No output that begins with ``text``, and one of ``ended_by`` after it if given."""
        plain, gaps = self._plain(text)
        self._beginnings.add(_Beginning(plain, gaps, ended_by))

    def bar_whole(self, text: bytes) -> None:
        """Not the output ``text``."""
        self._wholes.add(self._plain(text)[0])

    def _plain(self, text: bytes) -> tuple[bytes, tuple[bool, ...]]:
        """A text without blanks of no account, and before which of its bytes there may be any."""
        if not self._is_json:
            return text, (False,) * len(text)
        plain = bytearray()
        gaps: list[bool] = []
        at = 0
        for found in _STRING_OR_BLANKS.finditer(text):
            between = text[at : found.start()]
            string = found[1] or b""
            plain += between + string
            gaps += [True] * len(between)
            gaps += [True, *[False] * (len(string) - 1)] if string else []
            at = found.end()
        plain += text[at:]
        gaps += [True] * (len(text) - at)
        return bytes(plain), tuple(gaps)

    def bar_here(self, text: bytes, *, by_text: bool) -> None:
        """Nothing that goes on from here: all that could is barred.

        Args:
            text: the output so far.
            by_text: whether that is so in whatever tokens it was written, and not for these alone.
        """
        self._path[-1].is_dead = True
        # What follows from ways that are dead in some tokens only is known for those tokens only.
        self._is_text = self._is_text and by_text
        if self._is_text and not self._is_between(text):
            self.bar_beginning(text)

    def bar_spent(self, text: bytes, place: Hashable, left: int) -> None:
        """Nothing goes on from here with so few tokens, in whatever tokens this was written.

        Args:
            text: the output so far.
            place: of the cursor.
            left: how many tokens are left.
        """
        plain, gaps = self._plain(text)
        self._spent.setdefault(plain, (gaps, set()))[1].add(_Spent(place, left))

    def spent(
        self, text: bytes, left: int, place_after: Callable[[int], Hashable | None]
    ) -> set[int]:
        """The tokens after which nothing is left that ends within the budget, as far as is known.

        Args:
            text: the output so far.
            left: how many tokens are left.
            place_after: the cursor's place after a token; None: it does not take it.

        Cost: of each token that leads to such a text, a step of the cursor.
        """
        found: set[int] = set()
        plain, _ = self._plain(text)
        for whole, (gaps, places) in self._spent.items():
            near = {one.place for one in places if left - 1 <= one.left}
            if not near or not whole.startswith(plain):
                continue
            for token in self._leading(whole, gaps, len(plain)):
                if (
                    token not in found
                    and self._plain(text + self._texts[token])[0] == whole
                    and place_after(token) in near
                ):
                    found.add(token)
        return found

    def _leading(self, text: bytes, gaps: Sequence[bool], start: int) -> list[int]:
        """The tokens that write the rest of a text, and blanks at most, of which some may count."""
        child = self._trie.child
        found: list[int] = []
        waiting = [(0, start)]
        while waiting:
            node, at = waiting.pop()
            if at == len(text) and node:
                found += self._trie.ids_at(node)
            if at == len(text) or gaps[at]:
                after = [child.get(node << 8 | byte, 0) for byte in _BLANKS]
                waiting += [(one, at) for one in after if one]
            if at < len(text):
                step = child.get(node << 8 | text[at], 0)
                if step:
                    waiting.append((step, at + 1))
        return found

    def lower(self, first: int, last: int) -> None:
        """Make the way to what has been barred less likely.

        Args:
            first: how many tokens stand before that way.
            last: how many stand at its end.
        """
        last = min(last, len(self._path) - 1)
        more = 1 - self._path[last].barred
        self._path[last].barred = 1.0
        for at in range(last, first, -1):
            node = self._path[at - 1]
            more = min(more * self._path[at].probability, 1 - node.barred)
            node.barred += more

    def excluded(self, text: bytes) -> set[int]:
        """The tokens that may not come after ``text``, the output so far.

        Cost: a look at each barred text, and the tokens that are left out.
        """
        found = {token for token, node in self._path[-1].after.items() if node.is_dead}
        plain, _ = self._plain(text)
        for beginning in self._beginnings:
            if beginning.text.startswith(plain):
                found.update(self._completing(beginning, len(plain)))
        if plain in self._wholes:
            found.update(self._eos_token_ids)
        return found

    def idle(self, text: bytes) -> frozenset[int]:
        """The tokens that say nothing after ``text``: blanks between tokens of JSON."""
        return self._blank_tokens if self._is_between(text + b" ") else frozenset()

    def _is_between(self, text: bytes) -> bool:
        """Whether ``text`` ends in blanks that are of no account."""
        return text[-1:] in (b" ", b"\t", b"\n", b"\r") and (self._plain(text)[0][-1:] != text[-1:])

    @cached_property
    def _blank_tokens(self) -> frozenset[int]:
        found: set[int] = set()
        waiting = [0]
        while waiting:
            node = waiting.pop()
            for byte in _BLANKS:
                after = self._trie.child.get(node << 8 | byte, 0)
                if after:
                    found.update(self._trie.ids_at(after))
                    waiting.append(after)
        return frozenset(found)

    def _completing(self, beginning: _Beginning, start: int) -> list[int]:
        """The tokens that complete a beginning of which the first ``start`` bytes are written."""
        child = self._trie.child
        text, gaps, ended_by = beginning
        if ended_by is None and start == len(text):
            return []  # whoever stands there has been told that nothing follows
        complete: list[int] = []
        waiting = [(0, start)]
        while waiting:
            node, at = waiting.pop()
            if at == len(text):
                if ended_by is None:
                    complete.append(node)
                else:
                    after = [child.get(node << 8 | byte, 0) for byte in ended_by]
                    complete += [one for one in after if one]
                continue
            if gaps[at]:
                after = [child.get(node << 8 | byte, 0) for byte in _BLANKS]
                waiting += [(one, at) for one in after if one]
            step = child.get(node << 8 | text[at], 0)
            if step:
                waiting.append((step, at + 1))
        return self._tokens_below(complete)

    def _tokens_below(self, waiting: list[int]) -> list[int]:
        """The tokens whose bytes lead to one of some nodes, or through it."""
        found: list[int] = []
        while waiting:
            node = waiting.pop()
            found += self._trie.ids_at(node)
            first = int(self._trie.first_child[node])
            waiting.extend(range(first, first + int(self._trie.n_children[node])))
        return found

    def weighed(self, scores: Logits) -> Logits:
        """Scores, with those of tokens on the way to what is barred lowered in a copy.

        Args:
            scores: float32 ``[vocab]``, what is chosen from, minus infinity where masked.
        """
        lowered = {token: one.barred for token, one in self._path[-1].after.items() if one.barred}
        if lowered:
            scores = scores.copy()
            for token, barred in lowered.items():
                scores[token] += np.float32(math.log1p(-min(barred, _ALMOST)) * self._temperature)
        return scores

    def look_at(self, scores: Logits) -> None:
        """Note, where the output comes for the first time, what probabilities are taken of there.

        Args:
            scores: those that `weighed` is given.
        """
        node = self._path[-1]
        if node.norm is None:
            most = scores.max()
            total = np.exp((scores - most) / self._temperature).sum(dtype=np.float64)
            node.norm = float(most) / self._temperature + math.log(float(total))

    def go_on(self, token: int, score: float | None = None) -> None:
        """A token has been written, or the end of the output.

        Args:
            token: its id.
            score: its score before `weighed`; None where it was the only way on.
        """
        node = self._path[-1]
        if token not in node.after:
            node.after[token] = after = _Node()
            if score is not None and node.norm is not None:
                after.probability = math.exp(min(score / self._temperature - node.norm, 0.0))
        self._path.append(node.after[token])

    def go_back(self, n_tokens: int) -> None:
        """The output is as it was after so many tokens."""
        del self._path[n_tokens + 1 :]
