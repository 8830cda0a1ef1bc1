"""Speculation: guess the next tokens and verify them in one pass.

A pass over four tokens costs less than four passes over one, and extraction mostly copies its
source. If the end of the output occurred before, in the prompt or the output, the guess is that the
same text follows again. It is cut where it leaves the output type, and extended by what the type
forces. The model scores all of it at once. Tokens are then chosen one by one from these scores, by
the mask, options and random numbers of each place, until one differs from the guess. So a guess
changes no choice except by the rounding of longer passes, and sampling keeps its distribution.

If the text offers no guess, a draft model may (`drafting`), at the cost of its own passes.

`Speculation` owns the guess and its length, which depends on what passes cost on the kind of device
and on how good the guesses of this output have been. Nothing is timed, and it does not matter how
much of the prompt the model has seen in another call, so that the same call makes the same guesses.
`loop` verifies them. Knows no model.
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
"""Most tokens that are guessed at once, what is forced after them included."""

_LENGTHS = (32, 16, 8, 5, 4, 3, 2)
"""Bytes of the end that is looked for: the more of them stood together, the surer what follows."""

_CLOSING, _GAP, FORCED, _GOING_ON, _DRAFTED = range(len(_LENGTHS), len(_LENGTHS) + 5)
"""What else is guessed: that a value ends, the space after a comma or colon, forced text, that a
copy continues after its first token, and what a draft model writes."""

_SURE = (0.5, 0.8, 0.95)
"""Probabilities by which a draft model's tokens are distinguished: the surer it is, the more come.
"""

_TYPED, _FREE = (
    (*copies, 0.6, 0.9, 0.98, 0.9, 0.35, 0.55, 0.75, 0.9)
    for copies in (
        (0.94, 0.94, 0.95, 0.82, 0.87, 0.83, 0.5),
        (0.9, 0.6, 0.45, 0.25, 0.2, 0.1, 0.05),
    )
)
_WEIGHT = 4.0
"""What shares of guessed tokens are taken to be right before any was tried, in typed and in free
text, and how many tries that counts for. Measured with SmolLM2 on 100 extractions and 5 stories."""

_LATER = 0.8
"""What a right guess saves, in passes: had it not been tried, the next pass might have tried it."""

_CLOSES = tuple((mark, _CLOSING) for mark in (b'"', b",", b"}", b"]"))
"""What ends a value, or follows it."""

_GRANT, _SHARE = 1.5, 0.05
"""What guesses of an output may lose in all, however wrong they are: so much of what its passes
cost, of those over its prompt at most that many passes over one token."""

_REPAID = 32
"""Tokens within which what a draft model reads, as the whole prompt, has to be worth it."""

_AHEAD_BYTES = 96

_FOLDED = bytes.maketrans(b'"\n\r\t' + bytes(range(65, 91)), b"    " + bytes(range(97, 123)))
"""A text and a JSON string have words alike but for what comes before them, and capitals."""

_BREAKS = re.compile(rb"[.,;:!?)]?[\s]*[\n(\[{\"]|[.,;:!?)\]}](?:\s|$)")
"""Where what is copied as a value often ends."""


def kind_drafted(probability: float) -> int:
    """Return the kind of a draft model's token, by the probability that the model gives it."""
    return _DRAFTED + sum(probability >= bound for bound in _SURE)


@final
class Speculation:
    """The guesses of one output. Used by one thread.

    Attributes:
        tried: how many tokens were guessed so far, not counting forced ones.
        right: how many of these came.
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
        """Begin with none.

        Args:
            texts: the bytes of each token.
            cursor: the output's place in its type; None: free text.
            spell: writes bytes in tokens, after the tokens that come before them.
            pace: what passes of the model cost.
            n_prompt: tokens before the output.
            draft_cost: of a draft model's passes, as `DraftModel` says; 1 where there is none.
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
        # What all guesses have saved, and those of a draft model, for which no others pay.
        self._saved = self._saved_drafting = min(_SHARE * self._cost(n_prompt), _GRANT)
        self._n_prompt = n_prompt
        self._is_over = False
        self._start = 0  # bytes before the output
        self._latest: list[int] = []  # the kinds of the tokens that are guessed

    def guess(self, token_ids: TokenIds, room: int) -> list[int]:
        """Return tokens that probably follow everything so far; none if trying does not pay.

        Args:
            token_ids: int32 ``[n]``, prompt and output so far.
            room: most tokens to guess.
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
        except VocabularyError:  # a character was cut, and no token has a part of it
            return []
        except StructgenError:  # the same at each token, with all that was made made anew
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
        """Return as much of a guess as pays; ``kinds`` are those of its tokens. `note` follows."""
        most = self._worth(kinds)
        self._latest = kinds[:most]
        return found[:most]

    def drafts(self, kinds: Sequence[int], n_unseen: int, room: int) -> bool:
        """Return whether one more token of a draft model pays; if so, count its pass.

        Args:
            kinds: those of the tokens that it has guessed so far.
            n_unseen: how many tokens it has to read first.
            room: most tokens that the output may have yet.
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
        """Record whether a guessed token of a kind came."""
        self._scores[kind][0] += is_right
        self._scores[kind][1] += 1

    def note(self, n_guessed: int, n_right: int) -> None:
        """Record what a guess was worth."""
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
        """Return what probably follows, and by what each of its bytes is guessed."""
        copied, kind = self._following()
        if self._cursor is None:
            return copied, [kind] * len(copied)
        pieces = self._cursor.along(partial(self._ways, copied, kind), _AHEAD_BYTES)
        kinds: list[int] = []
        for piece, how in pieces:
            kinds += [FORCED if how is None else how] * len(piece)
        return b"".join(piece for piece, _ in pieces), kinds

    def _ways(self, copied: bytes, kind: int, text: bytes) -> Sequence[tuple[bytes, int]]:
        """Return likely texts after ``text``, the likeliest first, with what guessed them."""
        if self._is_marked(text):
            mark, start = (text or self._history)[-1:], self._start
            spaced, close = (self._history.rfind(mark + end, start) for end in (b' "', b'"'))
            return ((b" " if spaced >= close else b'"', _GAP),)
        if text:
            return () if (text[-1:], _CLOSING) in _CLOSES else _CLOSES
        return ((copied, kind), *_CLOSES) if kind >= 0 else ()

    def _is_marked(self, text: bytes) -> bool:
        """Return whether what was last written, up to ``text``, is JSON's comma or colon."""
        last = (text or self._history)[-1:] in (b",", b":")
        return last and (bool(text) or not self._is_quoted())

    def _is_quoted(self) -> bool:
        """Return whether the output is in a string of JSON."""
        quotes = self._history.count(b'"', self._start) - self._history.count(b'\\"', self._start)
        return quotes % 2 == 1

    def _following(self) -> tuple[bytes, int]:
        """Return what followed the last time that the latest bytes stood somewhere, and which
        length of them did; -1: none."""
        folded = self._folded
        if not folded[-2:].strip().isalnum() and (
            self._cursor is None or self._history[-1:] == b'"' or not self._is_quoted()
        ):
            return b"", -1  # between values: what comes next is no copy of what came before
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
        """The share of a draft model's tokens that come."""
        drafted = self._scores[_DRAFTED:]
        return sum(right for right, _ in drafted) / sum(tried for _, tried in drafted)

    def _drafted(self, likely: float) -> float:
        """Return what a token of a draft model gains after others that come with a probability."""
        again = self._pace.token * (1 - self._drafted_rate)
        dearer = self._pace.token + self._pace.scores
        return likely * (self._drafted_rate - again) - self._draft_cost - dearer

    @property
    def _granted(self) -> float:
        """What guesses may lose now."""
        return self._saved + _SHARE * (self._n_read - self._n_prompt)

    def _cost(self, n: int) -> float:
        """Return what a pass over that many tokens costs."""
        return 1 + self._pace.token * (n - 1)

    def _gain(self, kind: int) -> float:
        """Return what a right guess saves: what is forced would be run with the token before it."""
        return self._pace.token if kind == FORCED else 1.0

    def _worth(self, kinds: Sequence[int]) -> int:
        """Return how many guessed tokens make the most of a pass."""
        # A pass that there is in any case yields a token; a guess has to do better than the next.
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
