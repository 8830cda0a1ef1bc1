"""Definitions that no reference reaches: what is malformed in them is told, nothing else.

They assert nothing, so nothing of them is kept. Values of keywords and patterns are checked as
elsewhere; references are not followed, and what could not be enforced does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from structgen.errors import CompileLimitExceeded, UnsupportedFeature
from structgen.storage import IdentityMap

from .checks import mapping, not_a_schema, text
from .documents import Documents
from .graph import TRUE, Node
from .place import Place
from .reader import Fill, Holder, Reader

MAX_UNREACHED = 1_000
"""Most subschemas that are checked although nothing reaches them."""


class UnreachedReader(Reader):
    """Checks the definitions of some schemas.

    Args:
        documents: what the schemas are part of.
        reached: the schema objects that need no check.
        fill: see `Reader`.

    Cost: some 10 µs for each subschema, of which there are at most `MAX_UNREACHED`.
    """

    def __init__(
        self, documents: Documents, reached: Iterable[Mapping[str, Any]], fill: Fill
    ) -> None:
        super().__init__(True, documents, fill)
        self._met: IdentityMap[Mapping[str, Any], bool] = IdentityMap()
        for raw in reached:
            self._met[raw] = True
        self._left = MAX_UNREACHED

    def check(self, holders: Iterable[Holder]) -> None:
        """Check what ``$defs`` and ``definitions`` of the ``holders`` hold.

        Raises:
            SchemaError: something in there is malformed.
        """
        for raw, place in holders:
            self._definitions(raw, place)
        while self._work and self._left > 0:
            self._left -= 1
            _, raw, place = self._work.pop()
            place = self.entered(raw, place)
            self._definitions(raw, place)
            try:
                self._fill(self, Node(place), raw, place)
            except (UnsupportedFeature, CompileLimitExceeded):
                continue

    def _definitions(self, raw: Mapping[str, Any], place: Place) -> None:
        for keyword in ("$defs", "definitions"):
            if keyword not in raw or (keyword == "$defs" and place.dialect.year < 2019):
                continue
            held = mapping(keyword, raw[keyword], place)
            for name in reversed(list(held)):
                self.below(held[name], place, keyword, name)

    def below(self, raw: Any, place: Place, *steps: str | int) -> int:
        """See `Reader.below`."""
        if not isinstance(raw, (bool, Mapping)):
            raise not_a_schema(raw, place.at(*steps), str(steps[0]))
        return self.child(raw, place.below(*steps))

    def members(self, keyword: str, held: Mapping[str, Any], place: Place) -> dict[str, int]:
        """See `Reader.members`."""
        return {name: self.below(raw, place, keyword, name) for name, raw in held.items()}

    def each(self, raw: Any, place: Place, *steps: str | int) -> int:
        """See `Reader.each`."""
        return self.below(raw, place, *steps)

    def child(self, raw: Any, place: Place) -> int:
        """See `Reader.child`: remembered to be read, and taken for ``true``."""
        if not isinstance(raw, (bool, Mapping)):
            raise not_a_schema(raw, place.path)
        if isinstance(raw, Mapping) and raw not in self._met:
            self._met[raw] = True
            self._work.append((TRUE, raw, place))
        return TRUE

    def both(self, first: int, second: int, place: Place) -> int:
        """See `Reader.both`."""
        return TRUE

    def reference(self, value: Any, place: Place) -> int:
        """See `Reader.reference`; not followed."""
        text("$ref", value, place)
        return TRUE

    def dynamic_reference(self, value: Any, place: Place) -> int:
        """See `Reader.dynamic_reference`; not followed."""
        text("$dynamicRef", value, place)
        return TRUE

    def recursive_reference(self, value: Any, place: Place) -> int:
        """See `Reader.recursive_reference`; not followed."""
        text("$recursiveRef", value, place)
        return TRUE
