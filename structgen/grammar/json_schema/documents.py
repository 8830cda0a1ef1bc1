"""Resolve references: schema documents, their identifiers and anchors.

Has the table of documents (the schema itself, those the caller passes in, the metaschemas), the
resources inside them (``$id``), and resolves a reference to a raw schema object. Fetches nothing. A
`Place` is a raw schema with its position; `read` reads its keywords.

Standard: JSON Schema core, sections 8 and 9 (draft 2020-12); RFC 3986; RFC 6901.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeAlias
from urllib.parse import unquote, urldefrag, urljoin

from structgen.errors import SchemaError, did_you_mean
from structgen.storage import IdentityMap

from .checks import spend
from .dialects import (
    DEFAULT,
    DIALECTS,
    VALIDATION,
    Dialect,
    by_uri,
    how_to_choose,
    is_latest,
    subschemas,
)
from .graph import HasPath, child_path

_MOST_NAMED = 8
"""The most names that are listed if none is similar."""

_INDEX = re.compile("[0-9]{1,9}")  # other kinds of digits, or thousands of them, are not an int


def hinted_steps(raw: Any) -> list[str]:
    """Return the names with which a JSON pointer may continue from ``raw``."""
    found = raw.items() if isinstance(raw, Mapping) else ()
    return [name for name, value in found if isinstance(value, (Mapping, list, bool))]


def meant(wanted: str, known: list[str]) -> str:
    """Return the most similar of the ``known`` names, or all if they are few."""
    listed = f"Known: {', '.join(map(repr, known))}." if 0 < len(known) <= _MOST_NAMED else ""
    return did_you_mean(wanted, known).lstrip() or listed


def moved(root: Any, pointer: str) -> str:
    """Return a hint if the definition that ``pointer`` names is under another keyword."""
    before, _, last = pointer.rpartition("/")
    name = last.replace("~1", "/").replace("~0", "~")
    for keyword in ("$defs", "definitions"):
        held = root.get(keyword) if isinstance(root, Mapping) else None
        if before != f"/{keyword}" and isinstance(held, Mapping) and name in held:
            return f"Did you mean '#/{keyword}/{last}'?"
    return ""


def old_anchor(root: Any, dialect: Dialect, name: str) -> str:
    """Return a hint if the anchor has the form of drafts up to 7."""
    stack = [root] if dialect.year >= 2019 else []
    while stack:
        raw = stack.pop()
        if not isinstance(raw, Mapping):
            continue
        for keyword, draft in (("$id", "draft7"), ("id", "draft4")):
            if raw.get(keyword) == f"#{name}":
                return f'Write "$anchor": "{name}", or {how_to_choose(draft)}'
        stack.extend(child for child, _ in subschemas(raw, ""))
    return ""


@dataclass(slots=True, eq=False)
class Resource:
    """A schema with its own identifier, or a whole document.

    Attributes:
        uri: absolute URI without fragment (empty for an anonymous document).
        root: the raw schema.
        dialect: the draft it is written in.
        path: JSON path of its root, for messages.
        is_stated: whether a ``$schema`` or the caller chose the draft.
    """

    uri: str
    root: Any
    dialect: Dialect
    path: str
    is_stated: bool


@dataclass(slots=True, eq=False)
class Place:
    """The place of a raw schema. Paths are built only for messages.

    Attributes:
        above: JSON path, or the place of the schema that contains this one.
        resource: the resource of the schema.
        scope: the resources with dynamic anchors that were entered on the way to it.
        steps: the steps from ``above`` to here.
    """

    above: str | Place
    resource: Resource
    scope: tuple[Resource, ...] = ()
    steps: tuple[str | int, ...] = ()

    def below(self, *steps: str | int) -> Place:
        """Return the place ``steps`` below, without looking at its schema."""
        return Place(self, self.resource, self.scope, steps)

    @property
    def path(self) -> str:
        """JSON path, for messages."""
        if self.steps or not isinstance(self.above, str):
            ways: list[tuple[str | int, ...]] = []
            place: str | Place = self
            while isinstance(place, Place):
                ways.append(place.steps)
                place = place.above
            self.above = child_path(place, *(step for way in reversed(ways) for step in way))
            self.steps = ()
        return self.above

    def at(self, *steps: str | int) -> str:
        """Return the path of a keyword, or of something inside one."""
        return child_path(self.path, *steps)

    @property
    def dialect(self) -> Dialect:
        """The schema's draft."""
        return self.resource.dialect


Target: TypeAlias = "tuple[Any, Place]"
"""The target of a reference: a raw schema, and its place."""

_IDENTIFYING = frozenset(["$schema", "$id", "id"])


class Documents:
    """All documents a schema may refer to.

    Args:
        schema: the root schema.
        dialect: the draft if ``$schema`` does not set it; None for the default.
        documents: further documents by absolute URL.

    Attributes:
        root: the schema's own resource.
        is_known: whether its ``$schema`` names one of the drafts.
    """

    def __init__(
        self, schema: Any, dialect: Dialect | None, documents: Mapping[str, Any] | None
    ) -> None:
        self._given: dict[str, Any] = {}
        if documents:
            self._given = {urldefrag(url)[0]: doc for url, doc in documents.items()}
        self._resolved: dict[tuple[str, Resource], Target] = {}
        self._chosen = dialect
        own, is_stated = dialect or DEFAULT, dialect is not None
        self.is_known = False
        uri = ""
        if type(schema) is not dict or not _IDENTIFYING.isdisjoint(schema):
            known, is_known = self._dialect(schema, own, False)
            self.is_known = is_known
            own, is_stated = known, is_stated or is_known
            uri = self._identifier(schema, "", own) or ""
        self.root = Resource(uri, schema, own, "$", is_stated)
        self._resources = {uri: self.root}

    # Rarely used parts are made on demand.

    @cached_property
    def _anchors(self) -> dict[tuple[str, str], Target]:
        return {}

    @cached_property
    def _dynamic(self) -> dict[tuple[str, str], Target]:
        return {}

    @cached_property
    def _scanned(self) -> IdentityMap[Any, bool]:
        return IdentityMap()

    @cached_property
    def _doubled(self) -> dict[str, tuple[str, str]]:
        return {}

    def enter(self, raw: Any, resource: Resource, path: str) -> Resource:
        """Return the resource of ``raw``, which is inside ``resource`` at ``path``."""
        if not isinstance(raw, Mapping) or raw is resource.root:
            return resource
        if resource.dialect.id_keyword not in raw and "$schema" not in raw:
            return resource
        dialect, is_stated = self._dialect(raw, resource.dialect, resource.is_stated)
        uri = self._identifier(raw, resource.uri, dialect)
        if uri is None:
            return resource
        found = self._resources.get(uri)
        if found is None or found.root is not raw:
            found = Resource(uri, raw, dialect, path, is_stated)
            self._claim(uri, found)
        return found

    def _claim(self, uri: str, resource: Resource) -> None:
        """Register ``resource`` under ``uri``, or note that another one has this URI."""
        found = self._resources.setdefault(uri, resource)
        if found.root is resource.root or uri in self._doubled:
            return
        if found.root != resource.root:  # equal ones, in bundled documents, do no harm
            first, second = sorted((found.path, resource.path))
            self._doubled[uri] = (first, second)

    @staticmethod
    def _identifier(raw: Any, base: str, dialect: Dialect) -> str | None:
        """Return the absolute URI in the identifier of ``raw``, or None."""
        is_object = type(raw) is dict or isinstance(raw, Mapping)
        identifier = raw.get(dialect.id_keyword) if is_object else None
        if not isinstance(identifier, str) or identifier.startswith("#"):
            return None
        if dialect.ref_ignores_siblings and "$ref" in raw:
            return None
        if not base and "#" not in identifier:
            return identifier  # the same result as the code below, without its dozen calls
        return urldefrag(urljoin(base, identifier))[0]

    def check_dialect(self, raw: Mapping[str, Any], place: HasPath) -> None:
        """Check that the ``$schema`` at ``place`` determines the draft.

        Raises:
            SchemaError: it names neither a known draft nor a metaschema among the documents, and
                the caller has not chosen a draft; or the metaschema requires unknown vocabularies.
        """
        uri = raw.get("$schema")
        if not isinstance(uri, str) or by_uri(uri) is not None or is_latest(uri):
            return
        where = place.at("$schema")
        metaschema = self._given.get(urldefrag(uri)[0])
        if isinstance(metaschema, Mapping):
            vocabulary = metaschema.get("$vocabulary")
            for name, is_required in vocabulary.items() if isinstance(vocabulary, Mapping) else ():
                if is_required is True and "json-schema.org/draft/" not in name:
                    raise SchemaError(
                        f"the metaschema {uri!r} requires the vocabulary {name!r}, which "
                        f"structgen does not support, at {where}.",
                        path=where,
                        keyword="$schema",
                    )
        elif metaschema is None and self._chosen is None:
            raise SchemaError(
                f"'$schema' is not a supported draft, at {where}; got {uri!r}. Supported are "
                f"{', '.join(DIALECTS)}: remove $schema, or pass the draft of the schema, "
                f'JsonSchema(schema, dialect="{DEFAULT.name}"). Pass your own metaschema in '
                "documents.",
                path=where,
                keyword="$schema",
            )

    def _dialect(self, raw: Any, default: Dialect, is_stated: bool) -> tuple[Dialect, bool]:
        """Return the draft of ``raw``, or ``default``; and whether it was stated."""
        uri = raw.get("$schema") if type(raw) is dict or isinstance(raw, Mapping) else None
        if uri is None:
            return default, is_stated
        known = by_uri(uri)
        own = known or default
        if self._given:
            own = self._custom(uri, own)
        return own, is_stated or known is not None

    def _custom(self, uri: object, default: Dialect) -> Dialect:
        """Return the dialect of a schema with a custom metaschema: that of the metaschema,
        restricted to the vocabularies that it declares."""
        metaschema = self._given.get(urldefrag(uri)[0]) if isinstance(uri, str) else None
        if not isinstance(metaschema, Mapping):
            return default
        base = by_uri(metaschema.get("$schema")) or default
        vocabulary = metaschema.get("$vocabulary")
        if not isinstance(vocabulary, Mapping):
            return base
        if any(str(name).endswith("/vocab/validation") for name in vocabulary):
            return base
        return Dialect(base.name, base.year, base.assertions - VALIDATION, base.id_keyword)

    # -- resolution -------------------------------------------------------------------------

    def resolve(
        self, reference: str, resource: Resource, place: HasPath, keyword: str = "$ref"
    ) -> Target:
        """Return the target of ``reference``, which is in ``resource`` at ``place``.

        Raises:
            SchemaError: it has no target, or its document was not passed.
        """
        key = (reference, resource)
        found = self._resolved.get(key)
        if found is None:
            found = self._resolved[key] = self._resolve(reference, resource, place, keyword)
        return found

    def _resolve(self, reference: str, resource: Resource, place: HasPath, keyword: str) -> Target:
        if reference.startswith("#") and (len(reference) == 1 or reference[1] == "/"):
            pointer = unquote(reference[1:]) if "%" in reference else reference[1:]
            return self._pointer(resource, pointer, reference, place, keyword)
        path = place.at(keyword)
        uri, fragment = urldefrag(reference)  # `urljoin` loses a URN before a fragment
        uri = urljoin(resource.uri, uri)
        target = self._resource(uri, resource, reference, path, keyword)
        fragment = unquote(fragment)
        if not fragment or fragment.startswith("/"):
            return self._pointer(target, fragment, reference, place, keyword)
        self.scan(target)
        found = self._anchors.get((target.uri, fragment))
        if found is None:
            known = [name for uri_, name in self._anchors if uri_ == target.uri]
            reason = f"there is no anchor {fragment!r}"
            hint = old_anchor(target.root, target.dialect, fragment) or meant(fragment, known)
            raise _nowhere(keyword, reference, path, reason, hint)
        self._check_doubled(f"{target.uri}#{fragment}", keyword, reference, path)
        return found

    def _check_doubled(self, uri: str, keyword: str, reference: str, path: str) -> None:
        places = self._doubled.get(uri)
        if places is not None:
            raise SchemaError(
                f"{keyword!r} {reference!r} matches two different schemas, at {path}: those at "
                f"{places[0]} and {places[1]} have the same identifier. Give each its own.",
                path=path,
                keyword=keyword,
            )

    def dynamic_anchor(self, resource: Resource, name: str) -> Target | None:
        """Return the place in ``resource`` with the ``$dynamicAnchor`` ``name``, or None."""
        self.scan(resource)
        return self._dynamic.get((resource.uri, name))

    def _resource(
        self, uri: str, near: Resource, reference: str, path: str, keyword: str
    ) -> Resource:
        if uri == near.uri:
            return near
        self.scan(self.root)
        found = self._resources.get(uri)
        if found is not None:
            self._check_doubled(uri, keyword, reference, path)
            return found
        for url, document in self._given.items():
            n_known = len(self._scanned)
            self.scan(self._document(url, document))
            spend(len(self._scanned) - n_known)
        found = self._resources.get(uri)
        if found is None:
            metaschema = _metaschemas().get(uri) if "json-schema.org" in uri else None
            if metaschema is None:
                raise SchemaError(
                    f"{keyword!r} {reference!r} refers to a document that was not passed, at "
                    f"{path}: {uri or 'this schema'}. structgen downloads nothing; pass it as "
                    f"JsonSchema(schema, documents={{{uri!r}: document}}).",
                    path=path,
                    keyword=keyword,
                )
            found = self._document(uri, metaschema)
        self._check_doubled(uri, keyword, reference, path)
        return found

    def _document(self, url: str, document: Any) -> Resource:
        found = self._resources.get(url)
        if found is None or found.root is not document:
            dialect, is_stated = self._dialect(document, self.root.dialect, self.root.is_stated)
            uri = self._identifier(document, url, dialect) or url
            found = Resource(uri, document, dialect, f"{url}#", is_stated)
            self._claim(url, found)
            self._claim(uri, found)
            self.scan(found)
        return found

    def _pointer(
        self, resource: Resource, pointer: str, reference: str, place: HasPath, keyword: str
    ) -> Target:
        raw, above = resource.root, resource.path
        steps: list[str | int] = []
        for token in pointer.split("/")[1:]:
            step = token.replace("~1", "/").replace("~0", "~") if "~" in token else token
            if (type(raw) is dict or isinstance(raw, Mapping)) and step in raw:
                raw = raw[step]
                steps.append(step)
            elif isinstance(raw, list) and _INDEX.fullmatch(step) and int(step) < len(raw):
                raw = raw[int(step)]
                steps.append(int(step))
            else:
                path, here = place.at(keyword), child_path(above, *steps)
                reason = f"there is no {step!r} in {here}"
                hint = moved(resource.root, pointer) or meant(step, hinted_steps(raw))
                raise _nowhere(keyword, reference, path, reason, hint)
            is_object = type(raw) is dict or isinstance(raw, Mapping)
            if is_object and ("$schema" in raw or resource.dialect.id_keyword in raw):
                resource = self.enter(raw, resource, child_path(above, *steps))
        return raw, Place(above, resource, (), tuple(steps))

    # -- anchors and identifiers --------------------------------------------------------------

    def scan(self, resource: Resource) -> None:
        """Find all identifiers and anchors below ``resource``, once.

        Raises:
            SchemaError: a resource has an anchor twice.
        """
        if resource.root in self._scanned:
            return
        stack: list[tuple[Any, Resource, str]] = [(resource.root, resource, resource.path)]
        while stack:
            raw, owner, path = stack.pop()
            if not isinstance(raw, Mapping) or raw in self._scanned:
                continue
            self._scanned[raw] = True
            owner = self.enter(raw, owner, path)
            for keyword, table in (("$anchor", self._anchors), ("$dynamicAnchor", self._dynamic)):
                name = raw.get(keyword)
                if isinstance(name, str) and owner.dialect.year >= 2019:
                    target = raw, Place(path, owner)
                    known, place = self._anchors.setdefault((owner.uri, name), target)
                    if known is not raw and known != raw:
                        first, second = sorted((place.path, path))
                        raise SchemaError(
                            f"the anchor {name!r} is in two places, {first} and {second}. Rename "
                            "one of them.",
                            path=child_path(second, keyword),
                            keyword=keyword,
                        )
                    table[owner.uri, name] = target
            identifier = raw.get(owner.dialect.id_keyword)
            if isinstance(identifier, str) and "#" in identifier and owner.dialect.year <= 7:
                name = urldefrag(urljoin(owner.uri, identifier))[1]
                if name:
                    target = raw, Place(path, owner)
                    known, place = self._anchors.setdefault((owner.uri, name), target)
                    if known is not raw and known != raw:
                        first, second = sorted((place.path, path))
                        self._doubled[f"{owner.uri}#{name}"] = (first, second)
            stack.extend((child, owner, where) for child, where in subschemas(raw, path))


def has_dynamic_anchors(resource: Resource) -> bool:
    """Return whether dynamic references may lead into ``resource``; may be wrongly True, never
    wrongly False."""
    root = resource.root
    if not isinstance(root, Mapping) or resource.dialect.year < 2019:
        return False
    if "$recursiveAnchor" in root:
        return True
    stack: list[Any] = [root]
    while stack:
        raw = stack.pop()
        if isinstance(raw, Mapping):
            if "$dynamicAnchor" in raw:
                return True
            stack.extend(raw.values())
        elif isinstance(raw, list):
            stack.extend(raw)
    return False


@lru_cache(maxsize=1)
def _metaschemas() -> dict[str, Any]:
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]

    return {uri.rstrip("#"): REGISTRY.contents(uri) for uri in REGISTRY}


def _nowhere(keyword: str, reference: str, path: str, reason: str, hint: str) -> SchemaError:
    return SchemaError(
        f"{keyword!r} {reference!r} cannot be resolved, at {path}: {reason}. {hint}".rstrip(),
        path=path,
        keyword=keyword,
    )
