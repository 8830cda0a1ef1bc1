"""JSON Schema → `SchemaGraph`: reads, checks and resolves, decides nothing.

Everything wrong with a schema is found here, at compile: a keyword of the wrong type, a reference
that leads nowhere, a malformed pattern. `reader` walks the subschemas, `keywords`
reads each, `documents` resolves references. Of definitions that no reference reaches only what is
malformed in them is told: values of keywords, and patterns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from structgen.errors import CompileLimitExceeded, UnsupportedFeature
from structgen.storage import IdentityMap

from . import dialects
from .checks import mapping, not_a_schema, text
from .documents import Documents, Place
from .graph import TRUE, Node, SchemaGraph
from .keywords import KeywordReader, Skipped
from .reader import Fill, Holder, NotDynamic, Observer, Reader

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


def lower(
    schema: Any,
    *,
    dialect: str | None = None,
    documents: Mapping[str, Any] | None = None,
    format_assertion: bool = True,
    skipped: Skipped = (),
    observe: Observer | None = None,
    apart: bool = False,
) -> SchemaGraph:
    """Read and check a schema.

    Args:
        schema: a mapping or a bool, as ``json.loads`` gives it.
        dialect: draft of a schema whose ``$schema`` does not say (see `dialects.DIALECTS`).
        documents: documents that references may lead to, by URL; the metaschemas are known.
        format_assertion: whether ``format`` is enforced or an annotation.
        skipped: keywords, with their paths, that are passed over.
        observe: told of each subschema that is reached, and where.
        apart: whether each subschema is to be a node of its own, which knows where it stands, also
            where it says no more than a type or a reference.

    Returns:
        The graph of everything reachable from the schema.

    Raises:
        SchemaError: the schema is malformed; the message names the path.
        UnsupportedFeature: a keyword cannot be enforced.
        CompileLimitExceeded: more than `reader.MAX_NODES` subschemas.
    """
    draft = dialects.by_name(dialect) if dialect is not None else None
    known = Documents(schema, draft, documents)
    if (apart or skipped) and observe is None:
        observe = _see_nothing  # paths are needed everywhere
    fill = KeywordReader(format_assertion, skipped).read
    reader = Reader(schema, known, fill, observe, is_dynamic=False)
    try:
        graph = reader.read()
    except NotDynamic:
        reader = Reader(schema, known, fill, observe)
        graph = reader.read()
    holders = reader.with_unreached() if reader.holders else []
    if holders:
        fill = KeywordReader(format_assertion=False, skipped=skipped).read
        UnreachedReader(known, reader.reached(), fill).check(holders)
    return graph


def _see_nothing(raw: Mapping[str, Any], place: Place) -> None:
    """Whoever watches sees each subschema, so that none are read together."""
