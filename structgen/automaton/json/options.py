"""The compile options of JSON: their names, defaults and checks.

Does not know what the options do. docs/json-schema.md describes them, under "Options".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, TypedDict

from structgen.automaton.regex.encoding import Escapes
from structgen.automaton.work import MAX_MEMORY_BYTES, MAX_WORK, Limits
from structgen.errors import OptionError, SchemaError, UnsupportedFeature, did_you_mean
from structgen.grammar import ir
from structgen.grammar.json_schema import GUIDANCE, by_name, child_path

MAX_DIGITS = 4_000
"""Largest ``max_digits``."""


@dataclass(frozen=True)
class JsonOptions:
    """The values of all options."""

    whitespace: str = "natural"
    max_whitespace: int = 20
    indent: int | None = None
    property_order: str = "schema"
    spelling: str = "canonical"
    ensure_ascii: bool = False
    max_digits: int = 20
    dialect: str | None = None
    documents: Mapping[str, Any] | None = None
    format_assertion: bool = True
    closed: bool = False
    max_depth: int | None = 64
    on_unsupported: str = "error"
    max_work: int = MAX_WORK
    max_memory_bytes: int = MAX_MEMORY_BYTES
    max_mask_work: int | None = None

    def __post_init__(self) -> None:
        for name, allowed in (
            ("property_order", ("schema", "any")),
            ("spelling", ("canonical", "any", "python")),
            ("on_unsupported", ("error", "warn")),
        ):
            value = getattr(self, name)
            if value not in allowed:
                choices = " or ".join(map(repr, allowed))
                raise OptionError(f"{name} must be {choices}; got {value!r}.")
        for name in ("max_whitespace", "max_digits", *ReadLimits.__annotations__):
            value = getattr(self, name)
            if value is None and name == "max_mask_work":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise OptionError(f"{name} must be an integer of at least 1; got {value!r}.")
        if self.max_digits > MAX_DIGITS:
            raise OptionError(
                f"max_digits must be at most {MAX_DIGITS:,}, because Python reads no integer of "
                f"many more; got {self.max_digits:,}."
            )
        for name in ("ensure_ascii", "format_assertion", "closed"):
            if not isinstance(getattr(self, name), bool):
                raise OptionError(f"{name} must be True or False; got {getattr(self, name)!r}.")
        if self.ensure_ascii and self.spelling == "python":
            raise OptionError(
                "ensure_ascii=True and spelling='python' cannot be combined: in Python "
                "literals, \\uXXXX cannot write characters beyond U+FFFF. Remove one of them."
            )
        if not isinstance(self.whitespace, str):
            raise OptionError(
                "whitespace must be 'natural', 'compact', 'spaced', 'flexible' or a regular "
                f"expression; got {self.whitespace!r}."
            )
        indent = self.indent
        if indent is not None:
            if isinstance(indent, bool) or not isinstance(indent, int) or not 0 <= indent <= 16:
                raise OptionError(
                    "indent must be an integer from 0 to 16, or None for JSON on one line; got "
                    f"{indent!r}."
                )
            if self.whitespace != "natural":
                raise OptionError(
                    f"indent={indent} and whitespace={self.whitespace!r} cannot be combined: both "
                    "set the whitespace. Remove one of them."
                )
        if self.dialect is not None:
            by_name(self.dialect)
        self._check_documents()
        depth = self.max_depth
        if depth is not None and (
            isinstance(depth, bool) or not isinstance(depth, int) or not 1 <= depth <= 1000
        ):
            raise OptionError(
                "max_depth must be an integer from 1 to 1,000, or None for no limit; got "
                f"{depth!r}."
            )

    def _check_documents(self) -> None:
        documents = self.documents
        if documents is None:
            return
        if not isinstance(documents, Mapping):
            raise OptionError(f"documents must map URLs to schemas; got {documents!r}.")
        for url, document in documents.items():
            if not isinstance(url, str) or not isinstance(document, (Mapping, bool)):
                raise OptionError(
                    "documents must map URLs to schemas (dicts or booleans); "
                    f"got {url!r}: {type(document).__name__}."
                )

    @cached_property
    def reading(self) -> dict[str, Any]:
        """The options for reading schemas, as in `json_schema.lower`."""
        names = ("dialect", "documents", "format_assertion", "closed")
        return {name: getattr(self, name) for name in names}

    @cached_property
    def limits(self) -> Limits:
        """The limits of `compile`."""
        return Limits(self.max_work, self.max_memory_bytes)

    @cached_property
    def call_limits(self) -> Limits:
        """The limits of one call of a cursor."""
        if self.max_mask_work is None:
            return self.limits
        return Limits(self.max_mask_work, self.max_memory_bytes, "max_mask_work")

    @cached_property
    def canonical(self) -> bool:
        """Whether names and whole numbers are written in only one way, and other values in few."""
        return self.spelling != "any"

    @cached_property
    def words(self) -> tuple[bytes, bytes, bytes]:
        """The texts of None, True and False."""
        is_python = self.spelling == "python"
        return (b"None", b"True", b"False") if is_python else (b"null", b"true", b"false")

    @cached_property
    def named(self) -> Escapes:
        """How strings are written that the schema names, or that have a pattern or format."""
        if self.spelling == "python":
            return "python"
        if self.canonical:
            return "canonical-ascii" if self.ensure_ascii else "canonical"
        return self.free

    @cached_property
    def free(self) -> Escapes:
        """How all other strings are written."""
        if self.spelling == "python":
            return "python"
        return "any-ascii" if self.ensure_ascii else "any"


class ReadLimits(TypedDict, total=False):
    """The limits of one call. The bytes of a type do not contain them: the reader sets them."""

    max_work: int
    max_memory_bytes: int
    max_mask_work: int | None


class CompileOptions(ReadLimits, total=False):
    """The options of `compile` by name, for type checkers."""

    whitespace: str
    max_whitespace: int
    indent: int | None
    property_order: Literal["schema", "any"]
    spelling: Literal["canonical", "any", "python"] | None
    ensure_ascii: bool
    max_digits: int
    dialect: str | None
    documents: Mapping[str, Any] | None
    format_assertion: bool
    closed: bool
    max_depth: int | None
    on_unsupported: Literal["error", "warn"]


def json_options(options: Mapping[str, Any]) -> JsonOptions:
    """Check ``options`` and turn them into `JsonOptions`."""
    if not options:
        return _DEFAULT
    for name in options:
        if name not in _KNOWN:
            raise OptionError(
                f"unknown compile option {name!r}.{did_you_mean(name, _KNOWN)} "
                f"Known options: {', '.join(_KNOWN)}."
            )
    try:
        if "documents" not in options and len(options.get("whitespace", "")) < _SHORT:
            return _remembered(**options)
    except TypeError:
        pass  # reported below
    return JsonOptions(**options)


@lru_cache(maxsize=64, typed=True)
def _remembered(**options: Any) -> JsonOptions:
    """Cached, because most programs compile all types with the same few options."""
    return JsonOptions(**options)


_SHORT = 80
_KNOWN = tuple(field.name for field in fields(JsonOptions))
_DEFAULT = JsonOptions()


def part_options(part: ir.Json, given: Mapping[str, Any], chosen: JsonOptions) -> JsonOptions:
    """Return the options of one JSON part of a type: its own, those ``given``, and those of its
    schema's ``x-guidance``."""
    own = dict(part.options)
    for name, value in guidance(part.schema).items():
        if name not in given and (name != "whitespace" or given.get("indent") is None):
            own.setdefault(name, value)
    return replace(chosen, **own) if own else chosen


_GUIDANCE: dict[str, Any] = {
    "item_separator": ",",
    "key_separator": ":",
    "whitespace_flexible": True,
    "whitespace_pattern": None,
    "coerce_one_of": False,
    "lenient": False,
    "json_allowed_escapes": None,
    "json_allow_general_unicode_escapes": False,
}
"""llguidance's ``JsonCompileOptions`` and their defaults."""

_SEPARATED = {(",", ":"): "compact", (", ", ": "): "spaced", (", ?", ": ?"): "natural"}


def guidance(schema: Any) -> dict[str, Any]:
    """Return the options that ``x-guidance`` at the root of a schema sets.

    llguidance's ``coerce_one_of`` and ``json_allow_general_unicode_escapes`` need no option:
    ``oneOf`` is enforced exactly, and strings that the schema does not name may be escaped anyway.

    Raises:
        SchemaError: llguidance has no such option, or its type is another.
        UnsupportedFeature: structgen has no counterpart of one of them.
    """
    if not isinstance(schema, Mapping) or GUIDANCE not in schema:
        return {}
    given = schema[GUIDANCE]
    if not isinstance(given, Mapping):
        raise SchemaError(f"{GUIDANCE!r} must be an object.", path="$", keyword=GUIDANCE)
    for name, value in given.items():
        if name not in _GUIDANCE:
            raise SchemaError(
                f"{GUIDANCE!r} has no {name!r}.{did_you_mean(name, _GUIDANCE)} Known keys: "
                f"{', '.join(_GUIDANCE)}.",
                path=child_path("$", GUIDANCE, name),
                keyword=GUIDANCE,
            )
        default = _GUIDANCE[name]
        kind = bool if isinstance(default, bool) else str
        if not isinstance(value, kind) and (value is not None or default is not None):
            raise SchemaError(
                f"{name!r} of {GUIDANCE!r} must be a {'boolean' if kind is bool else 'string'}; "
                f"got {value!r}.",
                path=child_path("$", GUIDANCE, name),
                keyword=GUIDANCE,
            )
    every = {**_GUIDANCE, **given}
    pattern, escapes = every["whitespace_pattern"], every["json_allowed_escapes"]
    between = every["item_separator"], every["key_separator"]
    is_usual = between == (",", ":")
    options: dict[str, Any] = {"on_unsupported": "warn"} if every["lenient"] else {}
    if escapes is not None and set(escapes) != set('nrbtf\\"u'):
        raise _refused(
            "json_allowed_escapes",
            "Remove it, and use a pattern for strings. With a pattern, structgen writes only the "
            "necessary escapes.",
        )
    if pattern is not None and is_usual:
        options["whitespace"] = f"(?:{pattern})?"
    elif pattern is None and not every["whitespace_flexible"] and between in _SEPARATED:
        options["whitespace"] = _SEPARATED[between]
    elif not is_usual:
        name = "item_separator" if between[0] != "," else "key_separator"
        raise _refused(
            name, "Remove it, and compile with whitespace=, which may be a regular expression."
        )
    elif "whitespace_flexible" in given:
        options["whitespace"] = "flexible"
    return options


def _refused(name: str, fix: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"This value of {name!r} in {GUIDANCE!r} is not supported.",
        path=child_path("$", GUIDANCE, name),
        keyword=GUIDANCE,
        fix=fix,
    )
