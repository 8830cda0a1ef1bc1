"""A draft model's guesses: the next tokens of a small model with the same vocabulary.

If the text itself suggests nothing (`speculation`), the small model writes a few tokens under the
mask of the output type, plus tokens that the type forces after them. The large model scores them in
one pass and chooses along them as along any guess. So guesses change no choice, and sampling keeps
its distribution. If the call samples, the small model samples with the same random numbers: then
two models with similar probabilities choose the same tokens.

`Drafter` owns the small model's sequence and keeps it in step with the output. It starts at the
first guess that is worth reading the prompt, reads the tokens since the last guess, and rewinds if
the output differs. `speculation` decides whether another token is worth a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import final

import numpy as np

from structgen.constraint import Cursor
from structgen.errors import StructgenError, TokenNotAllowed, VocabularyError
from structgen.models.base import DraftModel, TokenSequence, joined, n_shared, passes
from structgen.sampling import Logits, TokenIds, TokenMask
from structgen.vocabulary import Vocabulary

from .progress import Clock
from .results import Chunk
from .speculation import FORCED, MOST_AHEAD, Speculation, kind_drafted

_CONTEXT = 32
"""Number of tokens before a guess that are context for encoding its forced text."""


@final
class Drafter:
    """The draft model's side of one output. Used by one thread."""

    def __init__(
        self,
        draft: DraftModel,
        cursor: Cursor | None,
        vocabulary: Vocabulary,
        spell: Callable[[TokenIds, bytes], list[int]],
        speculation: Speculation,
        clock: Clock,
        room: int,
        choose: Callable[[TokenIds, Logits], int],
    ) -> None:
        """Start without a sequence.

        ``vocabulary`` is the large model's, ``room`` the most tokens of prompt and output;
        ``choose`` returns the call's choice from scores after a row of tokens. The rest is as for
        `Speculation`.
        """
        self._choose = choose
        self._draft = draft
        self._cursor = cursor
        self._mask: TokenMask | None = None
        self._eos, self._size = vocabulary.eos_token_ids, vocabulary.size
        if cursor is not None:
            self._mask = TokenMask(cursor, self._size, len(self._eos))
        self._spell = spell
        self._speculation = speculation
        self._clock = clock
        self._room = min(room, draft.model.context_length)
        self._sequence: TokenSequence | None = None
        self._n_taken = 0  # tokens of a guess that the cursor has accepted

    def close(self) -> None:
        """Release its sequence. A second call does nothing."""
        if self._sequence is not None:
            self._sequence.close()

    def guess(self, token_ids: TokenIds, left: int) -> Generator[list[Chunk], None, list[int]]:
        """Return the draft model's next tokens, as many as are worthwhile; yield before each pass.

        Args:
            token_ids: int32 ``[n]``, prompt and output so far.
            left: the most tokens to guess.
        """
        small, speculation, first = self._draft.model, self._speculation, len(token_ids)
        room = min(left, self._room - first - 1, self._draft.most or MOST_AHEAD, MOST_AHEAD)
        found: list[int] = []
        kinds: list[int] = []
        self._n_taken = n_seen = 0
        if self._sequence is not None:
            # After a rewind, a model runs at least two tokens.
            n_seen = max(min(n_shared(self._sequence.token_ids[0], token_ids), first - 2), 0)
            self._sequence.rewind(n_seen)
        try:
            while self._continues(token_ids, found, kinds, room):
                row = joined(token_ids, found)
                # without the large model's padding
                is_known = row[n_seen:].max() < small.vocabulary.size
                n_unseen = len(row) - n_seen
                if not is_known or not speculation.drafts(kinds, n_unseen, left):
                    break
                if self._sequence is None:
                    self._sequence = small.start(self._room, prefix=row)
                    n_seen = self._sequence.length
                for piece in passes(row[n_seen:], small.pace.longest_pass):
                    yield []
                    if self._clock.is_interrupted:
                        return []
                    self._sequence.append(piece)
                n_seen = len(row)
                token, probability = self._choice(row, self._sequence.logits()[0])
                if probability == 0 or token in self._eos:
                    break
                found.append(token)
                kinds.append(kind_drafted(probability))
        finally:
            if self._cursor is not None:
                self._cursor.rollback(self._n_taken)
        guessed = speculation.cut(found[:room], kinds[:room])
        if found and not guessed:
            speculation.learn(max(kinds), False)  # the tokens were useless
        return guessed

    def _continues(
        self, token_ids: TokenIds, found: list[int], kinds: list[int], room: int
    ) -> bool:
        """Add forced tokens after a guess; return whether a choice follows and there is room."""
        cursor, mask, before = self._cursor, self._mask, token_ids[-_CONTEXT:]
        try:
            while len(found) < room:
                if cursor is None or mask is None:
                    return True
                for token in found[self._n_taken :]:
                    cursor.accept(token)
                    self._n_taken += 1
                tokens, needless = cursor.forced(partial(self._spell, joined(before, found)))
                if not tokens:
                    is_end, only = mask.begin(needless), mask.only()
                    if is_end or only is None:
                        return not is_end
                    tokens = [only]
                found += tokens
                kinds += [FORCED] * len(tokens)
        except (TokenNotAllowed, VocabularyError):
            del found[self._n_taken :], kinds[self._n_taken :]
        except StructgenError:  # would fail again at each token, after the same work
            self._room = 0
        return False

    def _choice(self, row: TokenIds, scores: Logits) -> tuple[int, float]:
        """Return a token that may follow ``row``, and its probability; 0 if none may."""
        scores = scores[: self._size]
        if self._mask is not None:
            bits = np.unpackbits(self._mask.words.view(np.uint8), bitorder="little")
            scores = np.where(bits[: len(scores)] == 1, scores, -np.inf)
        best = scores.max()
        if best == -np.inf:
            return 0, 0.0
        token = self._choose(row, scores)
        return token, float(np.exp(scores[token] - best) / np.exp(scores - best).sum())
