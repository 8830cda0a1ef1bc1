"""JSON Schema → `SchemaGraph`: reads, checks and resolves, decides nothing.

Everything wrong with a schema is found here, at compile: a keyword of the wrong type, a reference
that leads nowhere, a malformed pattern. `reader` walks the subschemas, `keywords`
reads each, `documents` resolves references; `unreached` looks through what is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import dialects
from .documents import Documents
from .graph import SchemaGraph
from .keywords import KeywordReader, Skipped
from .place import Place
from .reader import NotDynamic, Observer, Reader
from .unreached import UnreachedReader


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
