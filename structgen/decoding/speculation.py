"""Speculation: guess the next tokens and verify them in one pass.

A pass over four tokens costs less than four passes over one, and extraction mostly copies its
source. If the end of the output occurred before, in the prompt or the output, the guess is that the
same text follows again. It is cut where it leaves the output type, and extended by what the type
forces. The model scores all of it at once. Tokens are then chosen one by one from these scores, by
the mask, options and random numbers of each place, until one differs from the guess. So a guess
changes no choice except by the rounding of longer passes, and sampling keeps its distribution.

If the text offers no guess, a draft model may (`drafting`), at the cost of its own passes.

`Speculation` owns the guess and its length, which depends on the cost of passes on the kind of
device and on how good the guesses of this output have been. Nothing is timed, and cached prefixes
do not matter, so the same call makes the same guesses. `loop` verifies them. Knows no model.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import final

from structgen.constraint import Cursor
from structgen.errors import StructgenError, VocabularyError
from structgen.models.base import Pace
from structgen.sampling import TokenIds

MOST_AHEAD = 15
"""The most tokens that are guessed at once, including forced ones after them."""

_LENGTHS = (32, 16, 8, 5, 4, 3, 2)
"""Lengths, in bytes, of the end that is searched for earlier: the longer the match, the more
certain the continuation."""

_CLOSING, _GAP, FORCED, _GOING_ON, _DRAFTED = range(len(_LENGTHS), len(_LENGTHS) + 5)
"""Other kinds of guesses: the end of a value, the space after a comma or colon, forced text, the
continuation of a copy after its first token, and a draft model's tokens."""

_SURE = (0.5, 0.8, 0.95)
"""Probabilities that divide a draft model's tokens into kinds: the more certain it is, the more are
right.
"""

_TYPED, _FREE = (
    (*copies, 0.6, 0.9, 0.98, 0.9, 0.35, 0.55, 0.75, 0.9)
    for copies in (
        (0.94, 0.94, 0.95, 0.82, 0.87, 0.83, 0.5),
        (0.9, 0.6, 0.45, 0.25, 0.2, 0.1, 0.05),
    )
)
_WEIGHT = 4.0
"""The assumed shares of right guesses before any was tried, in typed and in free text, and the
number of tries that they count as. Measured with SmolLM2 on 100 extractions and 5 stories."""

_LATER = 0.8
"""The saving of a right guess, in passes: without it, the next pass might have tried the same
guess."""

_CLOSES = tuple((mark, _CLOSING) for mark in (b'"', b",", b"}", b"]"))
"""Bytes that end a value, or follow it."""

_GRANT, _SHARE = 1.5, 0.05
"""The most that an output's guesses may lose in total: this share of the cost of its passes,
counting the pass over its prompt as at most this many passes over one token."""

_REPAID = 32
"""A draft model's reading, for example of the whole prompt, must pay off within this many tokens.
"""

_AHEAD_BYTES = 96

_FOLDED = bytes.maketrans(b'"\n\r\t' + bytes(range(65, 91)), b"    " + bytes(range(97, 123)))
"""Table for comparing words in text and in JSON strings: unifies separators and capitals."""

_BREAKS = re.compile(rb"[.,;:!?)]?[\s]*[\n(\[{\"]|[.,;:!?)\]}](?:\s|$)")
"""Matches where a copied value often ends."""


def kind_drafted(probability: float) -> int:
    """Return the kind of a draft model's token, by the probability that the model gives it."""
    return _DRAFTED + sum(probability >= bound for bound in _SURE)


@final
class Speculation:
    """The guesses of one output. Used by one thread.

    Attributes:
        tried: the number of tokens guessed so far, without forced ones.
        right: how many of these were right.
    """

    def __init__(
        self,
        texts: Sequence[bytes],
        cursor: Cursor | None,
        spell: Callable[[TokenIds, bytes], list[int]],
        pace: Pace,
        n_prompt: int,
        draft_cost: float = 1.0,
    ) -> None:
        """Start without guesses.

        Args:
            texts: the bytes of each token.
            cursor: the output's place in its type; None: free text.
            spell: encodes bytes as tokens, given the tokens before them.
            pace: the cost of the model's passes.
            n_prompt: the number of tokens before the output.
            draft_cost: the relative cost of a draft model's passes, as in `DraftModel`; 1 if there
                is none.
        """
        self._draft_cost = draft_cost
        self.tried = self.right = 0
        self._texts = texts
        self._cursor = cursor
        self._spell = spell
        self._history = bytearray()
        self._folded = bytearray()
        self._n_read = 0
        rates = _FREE if cursor is None else _TYPED
        self._scores = [[_WEIGHT * rate, _WEIGHT] for rate in rates]
        self._pace = pace
        # The savings of all guesses, and those of the draft model, which must pay for itself.
        self._saved = self._saved_drafting = min(_SHARE * self._cost(n_prompt), _GRANT)
        self._n_prompt = n_prompt
        self._is_over = False
        self._start = 0  # number of bytes before the output
        self._latest: list[int] = []  # the kinds of the tokens that are guessed

    def guess(self, token_ids: TokenIds, room: int) -> list[int]:
        """Return tokens that probably follow everything so far; none if a guess is not worthwhile.

        Args:
            token_ids: int32 ``[n]``, prompt and output so far.
            room: the most tokens to guess.
        """
        texts = [self._texts[token] for token in token_ids[self._n_read :].tolist()]
        self._start = self._start or sum(map(len, texts[: self._n_prompt]))
        self._n_read = len(token_ids)
        new = b"".join(texts)
        self._history += new
        self._folded += new.translate(_FOLDED)
        room = min(room, MOST_AHEAD)
        if room <= 0 or self._is_over:
            return []
        try:
            text, kinds = self._likely()
            found = self._spell(token_ids, text) if text else []
        except VocabularyError:  # a character was cut, and no token is a part of it
            return []
        except StructgenError:  # would fail again at each token, after the same work
            self._is_over = True
            return []
        if found and len(text) >= _AHEAD_BYTES:
            found = found[:-1]  # may be cut within a word
        of_tokens: list[int] = []
        end = 0
        for token in found:
            begin, end = end, end + len(self._texts[token])
            kind = min(kinds[begin:end])
            of_tokens.append(_GOING_ON if of_tokens and kind < len(_LENGTHS) else kind)
        if of_tokens and self._drafted(1.0) > 0:
            right, tried = self._scores[of_tokens[0]]
            if right / tried < self._drafted_rate - self._draft_cost:
                return []  # a draft model does better
        return self.cut(found[:room], of_tokens[:room])

    def cut(self, found: list[int], kinds: list[int]) -> list[int]:
        """Return the worthwhile part of a guess; ``kinds`` are the kinds of its tokens. Call `note`
        afterwards."""
        most = self._worth(kinds)
        self._latest = kinds[:most]
        return found[:most]

    def drafts(self, kinds: Sequence[int], n_unseen: int, room: int) -> bool:
        """Return whether another token of a draft model is worthwhile; if so, count its pass.

        Args:
            kinds: the kinds of its tokens so far.
            n_unseen: the number of tokens that it has to read first.
            room: the most tokens that may follow in the output.
        """
        likely = math.prod(self._scores[kind][0] / self._scores[kind][1] for kind in kinds)
        price = self._draft_cost * self._cost(n_unseen)
        risk = price + self._pace.of_guess(len(kinds) + 1)
        pays = self._drafted(likely) * min(room, _REPAID) > price - self._draft_cost
        granted = self._granted + min(self._saved_drafting - self._saved, 0)
        if not pays or risk + self._pace.token > granted:
            return False
        self._saved -= price
        self._saved_drafting -= price
        return True

    def learn(self, kind: int, is_right: bool) -> None:
        """Record whether a guessed token of a kind was right."""
        self._scores[kind][0] += is_right
        self._scores[kind][1] += 1

    def note(self, n_guessed: int, n_right: int) -> None:
        """Record the value of a guess."""
        kinds, token = self._latest, self._pace.token
        # After a wrong guess the next pass runs one token again.
        saved = sum(map(self._gain, kinds[:n_right])) - token * (n_right < n_guessed)
        saved -= self._pace.of_guess(n_guessed)
        self._saved += saved
        if any(kind >= _DRAFTED for kind in kinds):
            self._saved_drafting += saved
        self.tried += sum(kind != FORCED for kind in kinds)
        self.right += sum(kind != FORCED for kind in kinds[:n_right])
        for at, kind in enumerate(kinds[: n_right + 1]):
            self.learn(kind, at < n_right)

    def _likely(self) -> tuple[bytes, list[int]]:
        """Return the text that probably follows, and the kind of guess for each byte."""
        copied, kind = self._following()
        if self._cursor is None:
            return copied, [kind] * len(copied)
        pieces = self._cursor.along(partial(self._ways, copied, kind), _AHEAD_BYTES)
        kinds: list[int] = []
        for piece, how in pieces:
            kinds += [FORCED if how is None else how] * len(piece)
        return b"".join(piece for piece, _ in pieces), kinds

    def _ways(self, copied: bytes, kind: int, text: bytes) -> Sequence[tuple[bytes, int]]:
        """Return likely texts after ``text``, the most likely first, with their kinds of guess."""
        if self._is_marked(text):
            mark, start = (text or self._history)[-1:], self._start
            spaced, close = (self._history.rfind(mark + end, start) for end in (b' "', b'"'))
            return ((b" " if spaced >= close else b'"', _GAP),)
        if text:
            return () if (text[-1:], _CLOSING) in _CLOSES else _CLOSES
        return ((copied, kind), *_CLOSES) if kind >= 0 else ()

    def _is_marked(self, text: bytes) -> bool:
        """Return whether the last byte before ``text`` is JSON's comma or colon."""
        last = (text or self._history)[-1:] in (b",", b":")
        return last and (bool(text) or not self._is_quoted())

    def _is_quoted(self) -> bool:
        """Return whether the output is inside a JSON string."""
        quotes = self._history.count(b'"', self._start) - self._history.count(b'\\"', self._start)
        return quotes % 2 == 1

    def _following(self) -> tuple[bytes, int]:
        """Return the text after the last earlier occurrence of the latest bytes, and the index of
        the matched length; -1: none."""
        folded = self._folded
        if not folded[-2:].strip().isalnum() and (
            self._cursor is None or self._history[-1:] == b'"' or not self._is_quoted()
        ):
            return b"", -1  # between values: the next text is not a copy of earlier text
        for kind, length in enumerate(_LENGTHS):
            at = folded.rfind(folded[-length:], 0, len(folded) - 1) + length
            if at >= length:
                following = bytes(self._history[at : at + _AHEAD_BYTES])
                if at + len(following) == len(folded):  # it repeats itself
                    following = (following * _AHEAD_BYTES)[:_AHEAD_BYTES]
                if self._cursor is not None:
                    end = _BREAKS.search(following)
                    following = following if end is None else following[: end.start()]
                return following, kind
        return b"", -1

    @property
    def _drafted_rate(self) -> float:
        """The share of a draft model's tokens that are right."""
        drafted = self._scores[_DRAFTED:]
        return sum(right for right, _ in drafted) / sum(tried for _, tried in drafted)

    def _drafted(self, likely: float) -> float:
        """Return the gain of a draft model's token after others with a probability."""
        again = self._pace.token * (1 - self._drafted_rate)
        dearer = self._pace.token + self._pace.scores
        return likely * (self._drafted_rate - again) - self._draft_cost - dearer

    @property
    def _granted(self) -> float:
        """How much guesses may lose now."""
        return self._saved + _SHARE * (self._n_read - self._n_prompt)

    def _cost(self, n: int) -> float:
        """Return the cost of a pass over that many tokens."""
        return 1 + self._pace.token * (n - 1)

    def _gain(self, kind: int) -> float:
        """Return the saving of a right guess: forced tokens run with the token before them."""
        return self._pace.token if kind == FORCED else 1.0

    def _worth(self, kinds: Sequence[int]) -> int:
        """Return the number of guessed tokens with the best expected gain."""
        # A necessary pass yields a token anyway; a guess has to be better than the next pass.
        best, most, gained, likely = 0, 0.0, 0.0, 1.0
        again = self._pace.token  # after a wrong guess the next pass runs one token again
        for n, kind in enumerate(kinds, 1):
            dearer = self._pace.of_guess(n)
            if dearer + again > self._granted:
                break
            likely *= self._scores[kind][0] / self._scores[kind][1]
            gained += likely * min(self._gain(kind), _LATER)
            value = gained - dearer - again * (1 - likely)
            if value > most:
                best, most = n, value
        return best
