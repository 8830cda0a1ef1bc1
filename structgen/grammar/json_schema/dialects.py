"""The drafts of JSON Schema: their keywords, and how to distinguish them.

Knows the names of keywords, and which of them contain schemas; `read` knows their meaning. `closed`
allows objects only the members that their schema names, as tools and frameworks expect.

``dependencies`` was split in two in 2019-09, which allows validators to keep it for compatibility.
Here every draft has it, as in other validators, because authors who write it want it enforced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from structgen.errors import OptionError
from structgen.grammar.regex import algebra as regex_algebra

from .graph import DIGITS_ONLY, child_path

GUIDANCE = "x-guidance"
"""At the root of a schema: llguidance's options for writing JSON."""

_CORE4 = (
    "type enum multipleOf maximum exclusiveMaximum minimum exclusiveMinimum maxLength minLength "
    "pattern items additionalItems maxItems minItems uniqueItems maxProperties minProperties "
    "required additionalProperties properties patternProperties dependencies allOf anyOf oneOf not "
    f"format $ref {GUIDANCE}"
)
_CORE6 = _CORE4 + " const contains propertyNames"
_CORE7 = _CORE6 + " if then else"
_CORE2019 = _CORE7 + (
    " minContains maxContains dependentRequired dependentSchemas unevaluatedItems"
    " unevaluatedProperties $recursiveRef"
)
_CORE2020 = (
    _CORE2019.replace(" additionalItems", "").replace(" $recursiveRef", "")
    + f" prefixItems $dynamicRef {regex_algebra.KEYWORD} {DIGITS_ONLY}"
)


@dataclass(frozen=True)
class Dialect:
    """One draft.

    Attributes:
        name: the value of `JsonSchema(schema, dialect=…)`.
        year: the draft's number, or year, for comparisons (4, 6, 7, 2019, 2020).
        assertions: the keywords that can make a value invalid.
        id_keyword: ``id`` or ``$id``.
    """

    name: str
    year: int
    assertions: frozenset[str]
    id_keyword: str = "$id"

    @property
    def uri(self) -> str:
        """The metaschema's URI, as in ``$schema``."""
        if self.year <= 7:
            return f"http://json-schema.org/draft-0{self.year}/schema#"
        return f"https://json-schema.org/draft/{self.name.removeprefix('draft')}/schema"

    @cached_property
    def ref_ignores_siblings(self) -> bool:
        """Whether all keywords beside ``$ref`` are ignored."""
        return self.year <= 7


DIALECTS = {
    d.name: d
    for d in (
        Dialect("draft4", 4, frozenset(_CORE4.split()), "id"),
        Dialect("draft6", 6, frozenset(_CORE6.split())),
        Dialect("draft7", 7, frozenset(_CORE7.split())),
        Dialect("draft2019-09", 2019, frozenset(_CORE2019.split())),
        Dialect("draft2020-12", 2020, frozenset(_CORE2020.split())),
    )
}
DEFAULT = DIALECTS["draft2020-12"]

_URI = re.compile(r"https?://json-schema\.org/(?:draft-0([4-7])|draft/(2019-09|2020-12))/schema#?")
_DRAFT = re.compile(r"(?:^|[^0-9])0?(4|6|7|2019-09|2020-12)(?:/schema)?#?$")
_LATEST = re.compile(r"https?://json-schema\.org/schema#?")


def by_name(name: str) -> Dialect:
    """Return the dialect called ``name``.

    Raises:
        OptionError: unknown draft.
    """
    found = DIALECTS.get(name) if isinstance(name, str) else None
    if found is None:
        year = _DRAFT.search(str(name))
        meant = f"draft{year[1]}" if year else ""
        hint = f" Did you mean {meant!r}?" if meant in DIALECTS else ""
        raise OptionError(f"unknown dialect {name!r}.{hint} Known dialects: {', '.join(DIALECTS)}.")
    return found


def by_uri(uri: object) -> Dialect | None:
    """Return the dialect with the metaschema ``uri``, or None."""
    match = _URI.fullmatch(uri) if isinstance(uri, str) else None
    if match is None:
        return None
    # Draft 5 changed only the prose of draft 4.
    return DIALECTS["draft4" if match[1] == "5" else f"draft{match[1] or match[2]}"]


ANNOTATIONS = frozenset(
    ["title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"]
)
"""The keywords of the meta-data vocabulary, which do not affect validity."""

_NO_ASSERTIONS = (
    "$schema $id id $anchor $dynamicAnchor $recursiveAnchor $recursiveRef $vocabulary $comment "
    "$defs definitions contentEncoding contentMediaType contentSchema"
)
_KEYWORDS = ANNOTATIONS.union(f"{_CORE2019} {_CORE2020} {_NO_ASSERTIONS}".split())


def is_keyword(name: str) -> bool:
    """Return whether any draft has this keyword, or it is an extension (``x-…``)."""
    return name in _KEYWORDS or name.startswith("x-")


def is_latest(uri: str) -> bool:
    """Return whether ``uri`` means the latest draft."""
    return _LATEST.fullmatch(uri) is not None


def how_to_choose(name: str) -> str:
    """Return how to choose the draft ``name`` for a schema."""
    return (
        f'have the schema read as {name}: write "$schema": "{DIALECTS[name].uri}", or, if it '
        f'has no $schema, pass JsonSchema(schema, dialect="{name}").'
    )


_VALIDATION = {
    "string": "minLength maxLength pattern",
    "number": "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf",
    "object": "required minProperties maxProperties dependentRequired",
    "array": "minItems maxItems uniqueItems minContains maxContains",
}
_BEYOND = {
    "string": "format",
    "object": "properties additionalProperties patternProperties propertyNames dependentSchemas "
    "dependencies unevaluatedProperties",
    "array": "items prefixItems additionalItems contains unevaluatedItems",
}
KIND_OF = {
    keyword: kind
    for table in (_VALIDATION, _BEYOND)
    for kind, keywords in table.items()
    for keyword in keywords.split()
}
"""The type that a keyword applies to, for keywords with only one."""

VALIDATION = frozenset(" ".join(("type enum const", *_VALIDATION.values())).split())
"""The keywords of the vocabulary of that name."""

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


def subschemas(raw: Mapping[str, Any], path: str) -> list[tuple[Any, str]]:
    """List the subschemas under all keywords of all drafts, each with its path."""
    found: list[tuple[Any, str]] = []
    rewritten(raw, lambda part, *steps: found.append((part, child_path(path, *steps))))
    return found


def rewritten(raw: Mapping[str, Any], rewrite: Callable[..., Any]) -> dict[str, Any]:
    """Return a copy of a schema with ``rewrite`` applied to each of its `subschemas`.

    Args:
        raw: the schema.
        rewrite: called with a part, and the steps to it from the schema.
    """
    made = dict(raw)
    for keyword, value in raw.items():
        if keyword in _SINGLE and isinstance(value, Mapping):
            made[keyword] = rewrite(value, keyword)
        elif keyword in _LISTS and isinstance(value, list):
            made[keyword] = [rewrite(item, keyword, i) for i, item in enumerate(value)]
        elif keyword in _MAPS and isinstance(value, Mapping):
            made[keyword] = {name: rewrite(item, keyword, name) for name, item in value.items()}
    return made


_COMPOSED = ("allOf", "not", "if", "dependentSchemas", "unevaluatedProperties")
"""Keywords through which other schemas may apply to an object's members, too."""


def closed(schema: Any) -> Any:
    """Return a copy of a JSON Schema whose objects have only members that it names.

    An object without ``additionalProperties`` may have any others. Authors of such schemas expect
    none, and a model would write them up to its limit. A schema is not changed if others may apply
    to the same object.
    """
    made = _copied(schema)
    found, waiting = [], [made]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            found.append(one)
            waiting.extend(child for child, _ in subschemas(one, ""))
    if any(keyword in one for one in found for keyword in _COMPOSED):
        return made
    for one in found:
        names = one.get("type") == "object" and "properties" in one
        if names and "patternProperties" not in one:
            one.setdefault("additionalProperties", False)
    return made


def _copied(value: Any) -> Any:
    """Return a copy of JSON of any depth."""
    root = [value]
    waiting: list[tuple[Any, Any]] = [(root, 0)]
    while waiting:
        holder, key = waiting.pop()
        one = holder[key]
        if isinstance(one, dict):
            one = dict(one)
            waiting.extend((one, name) for name in one)
        elif isinstance(one, list):
            one = list(one)
            waiting.extend((one, index) for index in range(len(one)))
        holder[key] = one
    return root[0]
