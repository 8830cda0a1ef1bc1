"""Speculation: tokens that probably come next, run in one pass with those that have to be.

A pass over four tokens costs less than four over one, and what a model extracts from a text it
mostly copies. So where the end of what is written stood in the prompt or the output before, what
followed it there is guessed to follow again, cut where it leaves the output type, and continued by
what the type forces. The model scores all of it at once; then the tokens are chosen one by one from
these scores, by the mask, the options and the random numbers that each place has anyway, for as
long as they are the guessed ones. So a guess changes no choice but by the rounding of longer
passes, and sampling keeps its distribution.

`Speculation` owns the guess and how long it is: by what passes cost on the kind of device, and by
what guesses of this output have been worth so far. Nothing is timed, so that the same call guesses
the same. `loop` has the tokens chosen along one. Knows no model.
"""

from __future__ import annotations

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

_CLOSING, _GAP, _FORCED = range(len(_LENGTHS), len(_LENGTHS) + 3)
"""What else is guessed: that a value ends, the space after a comma or colon, and forced text."""

_FIRST_RATES = (0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.35, 0.6, 0.9, 0.98)
_WEIGHT = 4.0
"""What shares of guessed tokens are taken to be right before any was tried, and how many tries that
counts for."""

_CLOSES = tuple((mark, _CLOSING) for mark in (b'"', b",", b"}", b"]"))
"""What ends a value, or follows it."""

_GRANT, _SHARE = 1.5, 0.05
"""What guesses of an output may lose in all, however wrong they are: so much of what its passes
cost, of those over its prompt at most so many passes over one token."""

_AHEAD_BYTES = 96

_FOLDED = bytes.maketrans(b'"\n\r\t' + bytes(range(65, 91)), b"    " + bytes(range(97, 123)))
"""A text and a JSON string have words alike but for what stands before them, and capitals."""

_BREAKS = re.compile(rb"[.,;:!?)]?[\s]*[\n(\[{\"]|[.,;:!?)\]}](?:\s|$)")
"""Where what is copied as a value often ends."""


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
    ) -> None:
        """Begin with none.

        Args:
            texts: the bytes of each token.
            cursor: the output's place in its type; None: free text.
            spell: writes bytes in tokens, after the tokens that stand before them.
            pace: what passes of the model cost.
            n_prompt: tokens before the output.
        """
        self.tried = self.right = 0
        self._texts = texts
        self._cursor = cursor
        self._spell = spell
        self._history = bytearray()
        self._folded = bytearray()
        self._n_read = 0
        self._scores = [[_WEIGHT * rate, _WEIGHT] for rate in _FIRST_RATES]
        self._pace = pace
        self._saved = min(_SHARE * self._cost(n_prompt), _GRANT)
        self._n_prompt = n_prompt
        self._is_over = False
        self._start = 0  # bytes before the output
        self._latest: tuple[int, list[int]] = (0, [])  # pending tokens; of guessed ones the kinds

    def guess(self, token_ids: TokenIds, n_pending: int, room: int) -> list[int]:
        """Tokens that probably come after all that there are; none where trying does not pay.

        Args:
            token_ids: int32 ``[n]``, prompt and output so far.
            n_pending: how many at their end the model has to see in any case.
            room: most tokens to guess.
        """
        texts = [self._texts[token] for token in token_ids[self._n_read :].tolist()]
        self._start = self._start or sum(map(len, texts[: self._n_prompt]))
        self._n_read = len(token_ids)
        new = b"".join(texts)
        self._history += new
        self._folded += new.translate(_FOLDED)
        room = min(room, MOST_AHEAD, self._pace.longest_pass - n_pending)
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
        of_tokens, end = [], 0
        for token in found:
            begin, end = end, end + len(self._texts[token])
            of_tokens.append(min(kinds[begin:end]))
        most = self._worth(of_tokens[:room], n_pending)
        self._latest = (n_pending, of_tokens[:most])
        return found[:most]

    def note(self, n_guessed: int, n_right: int) -> None:
        """Take down what a guess was worth."""
        n_pending, kinds = self._latest
        alone = self._cost(n_pending) + sum(map(self._gain, kinds[:n_right]))
        self._saved += alone - self._cost(n_pending + n_guessed)
        if n_right < n_guessed:
            self._saved -= self._cost(2) - 1
        self.tried += sum(kind != _FORCED for kind in kinds)
        self.right += sum(kind != _FORCED for kind in kinds[:n_right])
        for at, kind in enumerate(kinds[: n_right + 1]):
            self._scores[kind][0] += at < n_right
            self._scores[kind][1] += 1

    def _likely(self) -> tuple[bytes, list[int]]:
        """What probably follows, and by what each of its bytes is guessed."""
        copied, kind = self._following()
        if self._cursor is None:
            return copied, [kind] * len(copied)
        pieces = self._cursor.along(partial(self._ways, copied, kind), _AHEAD_BYTES)
        kinds: list[int] = []
        for piece, how in pieces:
            kinds += [_FORCED if how is None else how] * len(piece)
        return b"".join(piece for piece, _ in pieces), kinds

    def _ways(self, copied: bytes, kind: int, text: bytes) -> Sequence[tuple[bytes, int]]:
        """What may be meant after ``text``, the likeliest first, and by what it is guessed."""
        if self._is_marked(text):
            mark, start = (text or self._history)[-1:], self._start
            spaced, close = (self._history.rfind(mark + end, start) for end in (b' "', b'"'))
            return ((b" " if spaced >= close else b'"', _GAP),)
        if text:
            return () if (text[-1:], _CLOSING) in _CLOSES else _CLOSES
        return ((copied, kind), *_CLOSES) if kind >= 0 else ()

    def _is_marked(self, text: bytes) -> bool:
        """Whether what was written last, ``text`` included, is a comma or a colon of JSON's."""
        last = (text or self._history)[-1:] in (b",", b":")
        return last and (bool(text) or not self._is_quoted())

    def _is_quoted(self) -> bool:
        """Whether the output stands in a string of JSON."""
        quotes = self._history.count(b'"', self._start) - self._history.count(b'\\"', self._start)
        return quotes % 2 == 1

    def _following(self) -> tuple[bytes, int]:
        """What followed the last time that the latest bytes stood somewhere, and which length of
        them did; -1: none."""
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

    def _cost(self, n: int) -> float:
        """What a pass over so many tokens costs."""
        return 1 + self._pace.token * (n - 1)

    def _gain(self, kind: int) -> float:
        """What a right guess saves: what is forced would be run with the token before it."""
        return self._pace.token if kind == _FORCED else 1.0

    def _worth(self, kinds: Sequence[int], n_pending: int) -> int:
        """How many guessed tokens make the most of a pass."""
        # A pass that there is in any case yields a token; a guess has to do better than the next.
        cost = self._cost(n_pending)
        best, most, gained, likely = 0, 0.0, 0.0, 1.0
        again = self._cost(2) - 1  # after a wrong guess the next pass runs one token again
        granted = self._saved + _SHARE * (self._n_read - self._n_prompt)
        for n, kind in enumerate(kinds, 1):
            dearer = self._cost(n_pending + n) - cost
            if dearer + again > granted:
                break
            likely *= self._scores[kind][0] / self._scores[kind][1]
            gained += likely * self._gain(kind)
            value = gained - dearer - again * (1 - likely)
            if value > most:
                best, most = n, value
        return best
