"""The likeliest of a value's few alternatives, found while an output is written.

It owns noticing that a value has closed that was a choice among few, weighing its alternatives, and
the tokens of the one to be written instead. It runs no model and writes nothing: sequences come in,
and whoever makes the output does what it says. What is weighed is what
`structgen.insight.confidence` tells of the output afterwards: whole texts, over all the ways to
write them in tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, final

from structgen.constraint import Constraint
from structgen.grammar.json_schema import json_key

from .alternatives import Site, is_json, names_of, site_of, texts_at, whole_texts
from .byte_reader import ByteReader
from .confidence import TOLERANCE, grown
from .json_places import JsonPlaces, Scalar
from .token_tree import Passes, Scores

Opened: TypeAlias = Callable[[Sequence[int], int], Passes[tuple[Scores, int]]]
"""As `structgen.insight.token_tree.OpenSequence`, pass by pass."""


@final
class BestValues:
    """Reads one output while it is written. Used by one thread.

    Attributes:
        paths: JSON paths of the values that were written anew.
    """

    def __init__(self, constraint: Constraint) -> None:
        """Nothing has been written."""
        self._constraint = constraint
        self._is_json = is_json(constraint)
        self._whole = None if self._is_json else whole_texts(constraint)
        self._walk = ByteReader(constraint)
        self._places = JsonPlaces()
        self._data = bytearray()
        self._ends: list[int] = []  # offset behind each token
        self._n_settled = 0
        self._judged = -1  # where the last value began that has been weighed
        self._looked = -1  # where the last value began that was looked at, and its texts
        self._texts: tuple[bytes, ...] | None = None
        self._site: Site | None = None
        self.paths: tuple[str, ...] = ()
        self._is_settled_at_once = not self._is_json and self._whole is None

    @property
    def is_waiting(self) -> bool:
        """Whether a value has closed that is to be weighed before the output goes on."""
        return self._site is not None

    @property
    def n_settled(self) -> int:
        """How many of the first tokens stand for good."""
        settled, ends = self._settled_bytes(), self._ends
        while self._n_settled < len(ends) and ends[self._n_settled] <= settled:
            self._n_settled += 1
        return self._n_settled

    def _settled_bytes(self) -> int:
        if not self._is_json:
            return len(self._data) if self._is_settled_at_once or self._judged >= 0 else 0
        if self._site is not None:
            return self._site.start
        start = self._places.open_start
        if start > self._judged and self._texts is not None and start == self._looked:
            return start
        return len(self._data)

    def read(self, data: bytes) -> None:
        """A token has been written."""
        self._data += data
        self._ends.append(len(self._data))
        if self._is_json:
            self._places.feed(data)
            self._look()

    def end(self) -> None:
        """The output has ended."""
        if self._is_json:
            self._places.finish()
            self._look()
        elif self._whole is not None and len(self._whole) > 1 and self._judged < 0:
            texts = self._whole
            chosen = texts.index(bytes(self._data))
            self._site = Site("$", 0, chosen, texts, names_of(self._constraint, texts))

    def _look(self) -> None:
        """Look at the values that have opened or closed, in order, to the first to be weighed."""
        if self._site is not None:
            return
        for scalar in self._places.scalars:
            if scalar.start > self._judged:
                self._look_at(scalar.start)
                if self._texts is not None:
                    self._site = self._closed(scalar)
                    return
                self._judged = scalar.start
        del self._places.scalars[:]
        if self._places.open_start > self._judged:
            self._look_at(self._places.open_start)

    def _look_at(self, start: int) -> None:
        if start <= self._looked:
            return
        self._walk.go_on(bytes(self._data[self._walk.length : start]))
        self._looked = start
        self._texts = texts_at(self._walk)

    def _closed(self, scalar: Scalar) -> Site:
        assert self._texts is not None
        return site_of(self._texts, scalar, bytes(self._data))

    def weigh(
        self, token_ids: Sequence[int], open_sequence: Opened
    ) -> Passes[tuple[int, tuple[int, ...]] | None]:
        """Weigh the alternatives of the value that waits.

        Args:
            token_ids: the output's tokens so far.
            open_sequence: begins a sequence on its prompt.

        Returns:
            None: it stands. Else to how many tokens the output goes back, and what is to be written
            there: the likeliest way to write the likeliest alternative, to its end.

        Cost: as `structgen.insight.confidence.measure`, or less: it ends once nothing that has not
        been looked at could be likelier.
        """
        site = self._site
        assert site is not None
        keys = [json_key(value) for value in site.values]
        groups = [keys.index(key) for key in keys]
        tree, n_before, _ = yield from grown(
            self._constraint, site, token_ids, open_sequence, TOLERANCE, groups
        )
        self._judged, self._site = site.start, None
        best = tree.likeliest(groups)
        if best is None or groups[best] == groups[site.chosen]:
            self._look()
            return None
        self.paths += (site.path,)
        return n_before, tree.paths[best]

    def go_back(self, n_tokens: int) -> None:
        """The output goes back to so many tokens."""
        del self._ends[n_tokens:]
        del self._data[self._ends[-1] if self._ends else 0 :]
        self._places = JsonPlaces()
        if self._is_json:
            self._places.feed(bytes(self._data))
            self._places.scalars.clear()

    def keep_written(self) -> str:
        """What was to be written instead does not fit: the value, whose path this returns, stands
        after all."""
        *paths, path = self.paths
        self.paths = tuple(paths)
        return path
