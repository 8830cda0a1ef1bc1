"""Where references lead: schema documents, their identifiers and anchors.

Owns the table of documents (the schema itself, those the caller passes in, the metaschemas), the
resources inside them (``$id``), and resolution of a reference to a raw schema object. Nothing is
ever fetched. What the raw schema says is `json_schema`'s business.

Standard: JSON Schema core, sections 8 and 9 (draft 2020-12); RFC 3986; RFC 6901.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from ..errors import SchemaError
from .dialects import DEFAULT, Dialect, by_uri
from .schema_graph import child_path

_SINGLE = frozenset(
    [
        "additionalItems",
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    ]
)
_LISTS = frozenset(["allOf", "anyOf", "oneOf", "prefixItems", "items"])
_MAPS = frozenset(
    ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"]
)


@dataclass(frozen=True, eq=False)
class Resource:
    """A schema with an identifier of its own, or a whole document.

    Attributes:
        uri: absolute URI without fragment (empty for an anonymous document).
        root: the raw schema.
        dialect: the draft it is written in.
        path: JSON path of its root, for messages.
    """

    uri: str
    root: Any
    dialect: Dialect
    path: str


@dataclass(frozen=True)
class Target:
    """What a reference leads to."""

    raw: Any
    path: str
    resource: Resource


class Documents:
    """All documents a schema may refer to.

    Args:
        schema: the root schema.
        dialect: the draft to assume where ``$schema`` does not say, or None for the default.
        documents: further documents by absolute URL.
    """

    def __init__(
        self, schema: Any, dialect: Dialect | None, documents: Mapping[str, Any] | None
    ) -> None:
        self._given = {urldefrag(url)[0]: doc for url, doc in (documents or {}).items()}
        self._resources: dict[str, Resource] = {}
        self._anchors: dict[tuple[str, str], Target] = {}
        self._dynamic: dict[tuple[str, str], Target] = {}
        self._scanned: set[int] = set()
        stated = _schema_of(schema)
        own = self._custom(stated, dialect or by_uri(stated) or DEFAULT)
        self.root = Resource(self._identifier(schema, "", own) or "", schema, own, "$")
        self._resources[self.root.uri] = self.root

    def enter(self, raw: Any, resource: Resource, path: str) -> Resource:
        """The resource that ``raw``, met inside ``resource`` at ``path``, belongs to."""
        if not isinstance(raw, Mapping) or raw is resource.root:
            return resource
        if resource.dialect.id_keyword not in raw and "$schema" not in raw:
            return resource
        stated = _schema_of(raw)
        dialect = self._custom(stated, by_uri(stated) or resource.dialect)
        uri = self._identifier(raw, resource.uri, dialect)
        if uri is None:
            return resource
        found = self._resources.get(uri)
        if found is None or found.root is not raw:
            found = Resource(uri, raw, dialect, path)
            self._resources.setdefault(uri, found)
        return found

    @staticmethod
    def _identifier(raw: Any, base: str, dialect: Dialect) -> str | None:
        """The absolute URI that ``raw`` gives itself, or None."""
        identifier = raw.get(dialect.id_keyword) if isinstance(raw, Mapping) else None
        if not isinstance(identifier, str) or identifier.startswith("#"):
            return None
        if dialect.ref_stands_alone and "$ref" in raw:
            return None
        return urldefrag(urljoin(base, identifier))[0]

    def _custom(self, uri: object, default: Dialect) -> Dialect:
        """The dialect of a schema with its own metaschema: that metaschema's, narrowed to the
        vocabularies that it declares."""
        metaschema = self._given.get(urldefrag(uri)[0]) if isinstance(uri, str) else None
        if not isinstance(metaschema, Mapping):
            return default
        base = by_uri(metaschema.get("$schema")) or default
        vocabulary = metaschema.get("$vocabulary")
        if not isinstance(vocabulary, Mapping):
            return base
        if any(str(name).endswith("/vocab/validation") for name in vocabulary):
            return base
        return Dialect(base.name, base.year, base.assertions - _VALIDATION, base.id_keyword)

    # -- resolution -------------------------------------------------------------------------

    def resolve(
        self, reference: str, resource: Resource, path: str, keyword: str = "$ref"
    ) -> Target:
        """What ``reference``, found in ``resource`` at ``path``, leads to.

        Raises:
            SchemaError: it leads nowhere, or to a document that was not given.
        """
        if reference.startswith("#") and (len(reference) == 1 or reference[1] == "/"):
            return self._pointer(resource, unquote(reference[1:]), reference, path, keyword)
        uri, fragment = urldefrag(urljoin(resource.uri, reference))
        target = self._resource(uri, resource, reference, path, keyword)
        fragment = unquote(fragment)
        if not fragment or fragment.startswith("/"):
            return self._pointer(target, fragment, reference, path, keyword)
        self._scan(target)
        found = self._anchors.get((target.uri, fragment))
        if found is None:
            known = [name for uri_, name in self._anchors if uri_ == target.uri]
            reason = f"there is no anchor {fragment!r}"
            raise _nowhere(keyword, reference, path, reason, fragment, known)
        return found

    def dynamic_anchor(self, resource: Resource, name: str) -> Target | None:
        """The place in ``resource`` that has ``$dynamicAnchor`` ``name``, or None."""
        self._scan(resource)
        return self._dynamic.get((resource.uri, name))

    def _resource(
        self, uri: str, near: Resource, reference: str, path: str, keyword: str
    ) -> Resource:
        if uri == near.uri:
            return near
        found = self._resources.get(uri)
        if found is not None:
            return found
        self._scan(self.root)
        for url, document in self._given.items():
            self._scan(self._document(url, document))
        found = self._resources.get(uri)
        if found is None:
            metaschema = _metaschema(uri)
            if metaschema is None:
                raise SchemaError(
                    f"{keyword!r} {reference!r} leads to a document that is not at hand, "
                    f"at {path}: {uri or 'this schema'}. Nothing is fetched; pass it as "
                    f"JsonSchema(schema, documents={{{uri!r}: document}}).",
                    path=path,
                    keyword=keyword,
                )
            found = self._document(uri, metaschema)
        return found

    def _document(self, url: str, document: Any) -> Resource:
        found = self._resources.get(url)
        if found is None:
            stated = _schema_of(document)
            dialect = self._custom(stated, by_uri(stated) or self.root.dialect)
            uri = self._identifier(document, url, dialect) or url
            found = Resource(uri, document, dialect, f"{url}#")
            self._resources[url] = found
            self._resources.setdefault(uri, found)
            self._scan(found)
        return found

    def _pointer(
        self, resource: Resource, pointer: str, reference: str, path: str, keyword: str
    ) -> Target:
        raw, here = resource.root, resource.path
        for token in pointer.split("/")[1:]:
            step = token.replace("~1", "/").replace("~0", "~")
            if isinstance(raw, Mapping) and step in raw:
                raw = raw[step]
                here = child_path(here, step)
            elif isinstance(raw, list) and step.isdigit() and int(step) < len(raw):
                raw = raw[int(step)]
                here = child_path(here, int(step))
            else:
                known = list(raw) if isinstance(raw, Mapping) else []
                reason = f"there is no {step!r} in {here}"
                raise _nowhere(keyword, reference, path, reason, step, known)
            resource = self.enter(raw, resource, here)
        return Target(raw, here, resource)

    # -- anchors and identifiers --------------------------------------------------------------

    def _scan(self, resource: Resource) -> None:
        """Find all identifiers and anchors below ``resource``, once."""
        if id(resource.root) in self._scanned:
            return
        stack: list[tuple[Any, Resource, str]] = [(resource.root, resource, resource.path)]
        while stack:
            raw, owner, path = stack.pop()
            if not isinstance(raw, Mapping) or id(raw) in self._scanned:
                continue
            self._scanned.add(id(raw))
            owner = self.enter(raw, owner, path)
            for keyword, table in (("$anchor", self._anchors), ("$dynamicAnchor", self._dynamic)):
                name = raw.get(keyword)
                if isinstance(name, str) and owner.dialect.year >= 2019:
                    target = Target(raw, path, owner)
                    table[owner.uri, name] = target
                    self._anchors[owner.uri, name] = target
            identifier = raw.get(owner.dialect.id_keyword)
            if isinstance(identifier, str) and "#" in identifier and owner.dialect.year <= 7:
                name = urldefrag(urljoin(owner.uri, identifier))[1]
                if name:
                    self._anchors[owner.uri, name] = Target(raw, path, owner)
            stack.extend((child, owner, where) for child, where in _subschemas(raw, path))


def _subschemas(raw: Mapping[str, Any], path: str) -> Iterator[tuple[Any, str]]:
    for keyword, value in raw.items():
        if keyword in _SINGLE and isinstance(value, Mapping):
            yield value, child_path(path, keyword)
        elif keyword in _LISTS and isinstance(value, list):
            for i, item in enumerate(value):
                yield item, child_path(path, keyword, i)
        elif keyword in _MAPS and isinstance(value, Mapping):
            for name, item in value.items():
                yield item, child_path(path, keyword, name)


def _schema_of(raw: Any) -> Any:
    return raw.get("$schema") if isinstance(raw, Mapping) else None


_VALIDATION = frozenset(
    [
        "type",
        "enum",
        "const",
        "multipleOf",
        "maximum",
        "exclusiveMaximum",
        "minimum",
        "exclusiveMinimum",
        "maxLength",
        "minLength",
        "pattern",
        "maxItems",
        "minItems",
        "uniqueItems",
        "maxContains",
        "minContains",
        "maxProperties",
        "minProperties",
        "required",
        "dependentRequired",
    ]
)


@lru_cache(maxsize=1)
def _metaschemas() -> dict[str, Any]:
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]

    return {uri.rstrip("#"): REGISTRY.contents(uri) for uri in REGISTRY}


def _metaschema(uri: str) -> Any:
    if "json-schema.org" not in uri:
        return None
    return _metaschemas().get(uri)


def _nowhere(
    keyword: str, reference: str, path: str, reason: str, wanted: str, known: list[str]
) -> SchemaError:
    close = difflib.get_close_matches(wanted, known, 1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return SchemaError(
        f"{keyword!r} {reference!r} leads nowhere, at {path}: {reason}.{hint}",
        path=path,
        keyword=keyword,
    )
