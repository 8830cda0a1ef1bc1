"""Where a token budget made an output another one than the model would have written.

It owns the places: which values of a document, and that one place is listed once. It knows nothing
of masks and scores: `structgen.decoding.generation` tells it of a token that the model would have
chosen and the budget barred.

What the model would have chosen is meant exactly: the token that the same scores, options and
random number come to under the mask of the type alone. For a greedy call that is the likeliest
token that the type allows; for a sampled one the token that the same random number falls on among
all that it allows. Tokens that spell the same forced text in other pieces are one choice.
"""

from __future__ import annotations

import copy
from typing import final

from structgen.constraint import Constraint
from structgen.insight import JsonPlaces, is_json
from structgen.sampling import TokenIds

_COMMA = 0x2C


@final
class Shortened:
    """The places at which the budget of one output kept the model from its own choice.

    Attributes:
        noted: JSON paths, each once, in the order in which it happened; ``$`` for what is no JSON;
            each with how many tokens stood before.
    """

    def __init__(self, constraint: Constraint | None) -> None:
        """Begin with none.

        Args:
            constraint: the output type; None: free text, in which a budget changes no choice.
        """
        self.noted: tuple[tuple[int, str], ...] = ()
        self._constraint = constraint
        self._places: JsonPlaces | None = None  # made when the first place is asked for
        self._n_read = 0

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of `noted`."""
        return tuple(path for _, path in self.noted)

    def note(self, output_ids: TokenIds, wanted: int, chosen: int, forced: bytes) -> None:
        """Take down a token that the budget barred.

        Args:
            output_ids: the output before it.
            wanted: the token that would have been chosen without the budget.
            chosen: the one that was.
            forced: the bytes that had to follow here, whoever chose.
        """
        assert self._constraint is not None
        texts = self._constraint.named.texts
        barred, written = texts[wanted], texts[chosen]
        if {wanted, chosen} <= {*self._constraint.vocabulary.eos_token_ids}:
            return  # the end, by another id
        if barred and written and forced.startswith(barred) and forced.startswith(written):
            return  # the same text in other pieces
        path = "$"
        if is_json(self._constraint):
            # What they have in common was written: it may end the value that was open.
            same = 0
            while same < min(len(barred), len(written)) and barred[same] == written[same]:
                same += 1
            places = copy.deepcopy(self._read(output_ids))
            places.feed(barred[:same])
            path = places.path_of(barred[same]) if same < len(barred) else places.path
        self.note_path(path, len(output_ids))

    def note_path(self, path: str, n_tokens: int) -> None:
        """Take down a place that began after so many tokens."""
        if path not in self.paths:
            self.noted += ((n_tokens, path),)

    def note_open(self, output_ids: TokenIds) -> None:
        """Take down that the budget leaves nothing after ``output_ids``, where the type does."""
        assert self._constraint is not None
        path = self._read(output_ids).path if is_json(self._constraint) else "$"
        self.note_path(path, len(output_ids))

    def forget(self, n_tokens: int) -> None:
        """Forget what was noted after so many tokens: what follows is not the budget's doing."""
        self.noted = tuple(one for one in self.noted if one[0] < n_tokens)

    def go_back(self, n_tokens: int) -> None:
        """The output goes on from where it had so many tokens.

        What was noted after them stands: where the budget had no part in it, the output might not
        have gone back.
        """
        if self._n_read > n_tokens:
            self._places, self._n_read = None, 0

    def is_known_at(self, output_ids: TokenIds) -> bool:
        """Whether whatever the budget bars after ``output_ids`` is at a place that is listed.

        Then the model need not be asked what it would have chosen.
        """
        if not self.noted:
            return False
        assert self._constraint is not None
        if not is_json(self._constraint):
            return True
        places = self._read(output_ids)
        return {places.path, places.path_of(_COMMA)} <= {*self.paths}

    def _read(self, output_ids: TokenIds) -> JsonPlaces:
        assert self._constraint is not None
        texts = self._constraint.named.texts
        if self._places is None:
            self._places = JsonPlaces()
        for token_id in output_ids[self._n_read :].tolist():
            self._places.feed(texts[token_id])
        self._n_read = len(output_ids)
        return self._places
