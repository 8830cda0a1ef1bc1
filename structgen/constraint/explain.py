"""`Constraint.explain`: every keyword of a schema, and how it is kept.

Owns the table and its wording. Which subschemas are reachable, and under which draft, is decided by
the reader that compiles them, followed here step by step; so a keyword cannot be enforced and be
missing here, or the other way round. Knows no automata.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias
from urllib.parse import urldefrag

from structgen.automaton.json import (
    MAX_DEPTH_COMPARED,
    MAX_SPELT_NUMBERS,
    JsonOptions,
    json_options,
)
from structgen.errors import counted
from structgen.grammar import ir, json_schema
from structgen.grammar.formats import ANNOTATION_FORMATS, FORMATS, MAX_NESTING, format_regex
from structgen.grammar.json_schema import (
    DIALECTS,
    KIND_OF,
    TYPE_BITS,
    Dialect,
    Place,
    by_uri,
    child_path,
    is_latest,
)
from structgen.storage import IdentityMap

MASKED = "masked"
RECORDED = "masked, by recording"
ANNOTATION = "annotation"
CHECKED = "checked by parse"
UNENFORCED = "not enforced"
REFERENCE = "reference"

Unenforced: TypeAlias = "Mapping[tuple[str, str], str]"
"""Keywords left out, as ``(path, keyword)``, and why."""

_NAMING = {
    "$schema": "names the dialect",
    "$vocabulary": "names the vocabularies of a metaschema",
    "$defs": "holds schemas; those that a reference reaches have rows of their own",
    "definitions": "holds schemas; those that a reference reaches have rows of their own",
}
_SINCE_2019 = frozenset(["$anchor", "$vocabulary"])
_ANNOTATIONS = frozenset(
    [
        *("title", "description", "default", "deprecated", "readOnly", "writeOnly", "$comment"),
        *("examples", "example", "contentEncoding", "contentMediaType", "contentSchema"),
        *("comment", "discriminator", "externalDocs", "nullable", "xml"),
    ]
)
_REFERENCES = frozenset(["$ref", "$dynamicRef", "$recursiveRef"])
_KNOWN = _ANNOTATIONS.union(*(d.assertions for d in DIALECTS.values()))
_OPENAPI = {
    "nullable": "of OpenAPI 3.0; to allow null, name it in type",
    "discriminator": "of OpenAPI; a const in each alternative tells them apart",
}
_MEANT = {
    "min": "minimum, minLength or minItems",
    "max": "maximum, maxLength or maxItems",
    "length": "minLength and maxLength",
    "len": "minLength and maxLength",
    "regex": "pattern",
    "regexp": "pattern",
    "values": "enum",
    "choices": "enum",
    "optional": "required, which names those that are not",
}
_NARROWER = {
    "hostname": "without A-labels (xn--…) from draft 7 on",
    "idn-hostname": "without A-labels (xn--…); labels with non-ASCII characters are bounded",
    "email": "host names without A-labels (xn--…), quoted parts without escaped blanks, address "
    "literals of IPv4 and IPv6 only",
    "idn-email": "host names without A-labels (xn--…); characters, not octets, count before @",
    "relative-json-pointer": "without index manipulation (0+1)",
    "regex": f"at most {MAX_NESTING} nested groups",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One keyword at one place.

    Attributes:
        path: JSON path of the schema that has the keyword, ``$`` for the whole.
        keyword: its name; ``pattern`` or ``choice`` for an output type that is no JSON.
        how: ``"masked"``: no token is allowed that would break it;
            ``"masked, by recording"``: so too, and masks depend on the text written so far, so they
            are computed for each text;
            ``"checked by parse"``: it is code of the output type's (``validator``), or asks the
            clock: the text meets it when it is parsed, and with ``retries=`` each value when it
            closes, or what it is part of;
            ``"reference"``: it names, holds or leads to schemas;
            ``"annotation"``: it asserts nothing here;
            ``"not enforced"``: it cannot be enforced, and ``on_unsupported="warn"`` left it out.
        note: why, where that is not plain.
    """

    path: str
    keyword: str
    how: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Limit:
    """Something that valid JSON may do and the output may not.

    Attributes:
        option: the compile option that decides it, or ``""`` for a fixed limit.
        text: the limit, in words.
    """

    option: str
    text: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """How each keyword is kept; ``str`` of it is a table.

    Attributes:
        rows: one for each keyword of each reachable schema, in the order of the schema. Schemas
            that nothing reaches (an unused definition) have none.
        limits: what narrows the output beyond the schema.
    """

    rows: tuple[Row, ...]
    limits: tuple[Limit, ...] = ()

    def __str__(self) -> str:
        table = [("path", "keyword", "how", "note")]
        table += [(row.path, row.keyword, row.how, row.note) for row in self.rows]
        widths = [max(len(line[i]) for line in table) for i in range(3)]
        table.insert(1, ("-" * widths[0], "-" * widths[1], "-" * widths[2], "-" * 4))
        lines = [
            "  ".join([*(cell.ljust(w) for cell, w in zip(line, widths, strict=False)), line[3]])
            for line in table
        ]
        if self.limits:
            lines += ["", "limits"]
            width = max(len(limit.option) for limit in self.limits)
            lines += [f"  {limit.option.ljust(width)}  {limit.text}" for limit in self.limits]
        return "\n".join(line.rstrip() for line in lines)


def explain(
    grammar: ir.Grammar,
    options: Mapping[str, Any],
    unenforced: Sequence[Unenforced] = (),
    checked: Sequence[tuple[str, str]] = (),
) -> Explanation:
    """How a grammar that has been compiled with ``options`` is kept.

    Args:
        grammar: the grammar.
        options: the compile options.
        unenforced: what was left out of each JSON part, as `build` gives it.
        checked: what code looks at when a text is parsed, as an `OutputType` has it.

    Cost: that of reading the schema again; milliseconds.
    """
    rows: dict[Row, None] = {}
    limits: dict[Limit, None] = {}
    left_out = iter(unenforced)
    for part in _parts(grammar):
        if isinstance(part, ir.Json):
            chosen = replace(json_options(options), **part.options)
            found, compares = _rows(part.schema, chosen, next(left_out, {}))
            rows.update(dict.fromkeys(found))
            limits.update(dict.fromkeys(_limits(chosen, compares)))
        elif isinstance(part, ir.Pattern):
            rows[Row("$", "pattern", MASKED, part.source)] = None
        elif isinstance(part, ir.ContextFree):
            size = counted(len(part.rules), "rule"), counted(len(part.terminals), "terminal")
            note = " over ".join(size)
            rows[Row("$", "grammar", MASKED, note)] = None
        else:
            rows[Row("$", "choice", MASKED, f"one of {len(part.texts):,} texts")] = None
    for path, named in checked:
        rows[Row(path, "validator", CHECKED, named)] = None
    return Explanation(tuple(rows), tuple(limits))


def _parts(grammar: ir.Grammar) -> Iterator[ir.Pattern | ir.Choice | ir.Json | ir.ContextFree]:
    if isinstance(grammar, (ir.Either, ir.Sequence)):
        for part in grammar.parts:
            yield from _parts(part)
        return
    yield grammar
    if isinstance(grammar, ir.ContextFree):
        for terminal in grammar.terminals:
            if isinstance(terminal, ir.Embedded):
                yield from _parts(terminal.grammar)


# -- keywords -------------------------------------------------------------------------------


def _rows(schema: Any, options: JsonOptions, left_out: Unenforced) -> tuple[list[Row], bool]:
    """The rows, and whether items are compared anywhere."""
    if isinstance(schema, bool):
        return [Row("$", "true", MASKED, "any JSON value")], False
    rows: list[Row] = []
    seen: IdentityMap[Mapping[str, Any], tuple[str, Dialect]] = IdentityMap()

    def observe(raw: Mapping[str, Any], place: Place) -> None:
        # dynamic scopes may lead to a schema more than once
        seen.setdefault(raw, (place.path, place.dialect))

    graph = json_schema.lower(
        schema,
        dialect=options.dialect,
        documents=options.documents,
        format_assertion=options.format_assertion,
        skipped=left_out,
        observe=observe,
    )
    order = _order(schema)
    beyond = len(order)

    def position(found: tuple[Mapping[str, Any], Any]) -> int:
        number = order.get(found[0])
        return beyond if number is None else number

    for raw, (path, dialect) in sorted(seen.items(), key=position):
        for keyword, value in raw.items():
            how, note = _how(keyword, value, raw, dialect, options)
            inside = child_path(path, keyword)
            for (where, named), reason in left_out.items():
                if named == keyword and (where in (path, inside) or _within(where, inside, value)):
                    how, note = UNENFORCED, reason
            rows.append(Row(path, keyword, how, note))
    return rows, any(node.unique for node in graph.nodes)


def _within(path: str, keyword_path: str, value: Any) -> bool:
    """Whether ``path`` is that of a member of the keyword's value."""
    return isinstance(value, Mapping) and any(
        path == child_path(keyword_path, name) for name in value
    )


def _order(schema: Any) -> IdentityMap[Mapping[str, Any], int]:
    """The position of every object in ``schema``, as one reads it."""
    order: IdentityMap[Mapping[str, Any], int] = IdentityMap()
    stack = [schema]
    while stack:
        value = stack.pop()
        if isinstance(value, Mapping):
            order[value] = len(order)
            stack.extend(reversed(list(value.values())))
        elif isinstance(value, list):
            stack.extend(reversed(value))
    return order


def _how(
    keyword: str, value: Any, raw: Mapping[str, Any], dialect: Dialect, options: JsonOptions
) -> tuple[str, str]:
    """How ``keyword`` of ``raw`` is kept, and why."""
    if keyword == "$schema" and by_uri(value) is None:
        if is_latest(value):
            return REFERENCE, f"names the latest draft; read as {dialect.name}"
        if urldefrag(value)[0] not in {urldefrag(url)[0] for url in options.documents or ()}:
            return REFERENCE, f"names no draft that is known; read as {dialect.name}"
    if keyword in _NAMING and (dialect.year >= 2019 or keyword not in _SINCE_2019):
        return REFERENCE, _NAMING[keyword]
    if dialect.ref_stands_alone and "$ref" in raw and keyword != "$ref":
        return ANNOTATION, f"{dialect.name} ignores everything beside $ref"
    if _identifies(keyword, dialect):
        return REFERENCE, ""
    if keyword in _REFERENCES and keyword in dialect.assertions:
        return REFERENCE, f"to {value}"
    if keyword not in dialect.assertions and not _old_items(keyword, raw, dialect):
        return ANNOTATION, _foreign(keyword, dialect)
    if keyword == "format" and not _excluded(keyword, raw, dialect):
        return _format(value, dialect, options)
    needs = _missing(keyword, raw, dialect) or _excluded(keyword, raw, dialect)
    if needs:
        return ANNOTATION, needs
    if keyword == "uniqueItems" and value:
        return RECORDED, "items are compared with those written before"
    if keyword == "minProperties" and value > len(raw.get("required", ())):
        closed = raw.get("additionalProperties") is False and not raw.get("patternProperties")
        if not closed:
            return RECORDED, "unnamed keys must differ, so they are remembered"
    return MASKED, _older(keyword, value, dialect)


def _older(keyword: str, value: Any, dialect: Dialect) -> str:
    """Which draft a keyword is read by where the schema's own would have it otherwise."""
    if keyword == "items" and isinstance(value, list) and dialect.year >= 2020:
        return "an array, as drafts up to 2019-09 have it"
    if keyword in ("exclusiveMinimum", "exclusiveMaximum") and isinstance(value, bool):
        return "" if dialect.year == 4 else "a boolean, as draft 4 has it"
    if keyword == "dependencies" and dialect.year >= 2019:
        return "of drafts up to 7, kept in later ones"
    return ""


def _identifies(keyword: str, dialect: Dialect) -> bool:
    if keyword in ("$anchor", "$dynamicAnchor"):
        return dialect.year >= 2019
    if keyword == "$recursiveAnchor":
        return dialect.year == 2019
    return keyword == dialect.id_keyword


def _old_items(keyword: str, raw: Mapping[str, Any], dialect: Dialect) -> bool:
    """Whether ``additionalItems`` counts although the draft has dropped it: beside an array as
    ``items``, which only older drafts have."""
    return (
        keyword == "additionalItems"
        and isinstance(raw.get("items"), list)
        and not ("prefixItems" in raw and "prefixItems" in dialect.assertions)
    )


def _missing(keyword: str, raw: Mapping[str, Any], dialect: Dialect) -> str:
    """What a keyword that asserts nothing by itself would need beside it; empty if it is there."""
    if keyword in ("then", "else") and "if" not in raw:
        return "there is no if beside it"
    if keyword == "if" and "then" not in raw and "else" not in raw:
        return "there is no then or else beside it"
    if keyword in ("minContains", "maxContains") and "contains" not in raw:
        return "there is no contains beside it"
    if keyword == "additionalItems" and not _old_items(keyword, raw, dialect):
        return "items beside it is not an array"
    if keyword in ("exclusiveMinimum", "exclusiveMaximum") and isinstance(raw[keyword], bool):
        bound = "minimum" if keyword == "exclusiveMinimum" else "maximum"
        if bound not in raw:
            return f"there is no {bound} beside it"
    return ""


def _excluded(keyword: str, raw: Mapping[str, Any], dialect: Dialect) -> str:
    """What a keyword speaks of, where the type beside it excludes just that; else empty."""
    if "type" not in raw or "type" not in dialect.assertions:
        return ""
    names = raw["type"] if isinstance(raw["type"], list) else (raw["type"],)
    kind = KIND_OF.get(keyword)
    if kind is None or any(TYPE_BITS[name] & TYPE_BITS[kind] for name in names):
        return ""
    return f"it speaks of {kind}s only, which the type excludes"


def _foreign(keyword: str, dialect: Dialect) -> str:
    """Why a keyword that the draft does not enforce asserts nothing."""
    if keyword in ("id", "$id"):
        return f"{dialect.name} has {dialect.id_keyword}"
    if keyword in _OPENAPI:
        return _OPENAPI[keyword]
    if keyword in DIALECTS[dialect.name].assertions:
        return "its metaschema does not have the validation vocabulary"
    has = [d.name for d in DIALECTS.values() if keyword in d.assertions]
    if has:
        return f"{dialect.name} has no such keyword; {has[-1]} has"
    if keyword in _ANNOTATIONS:
        return ""
    hint = f"; did you mean {_meant(keyword)}?" if _meant(keyword) else ""
    return f"unknown keyword, asserts nothing{hint}"


def _meant(keyword: str) -> str:
    """The keyword that an unknown one may stand for, or several of them in words; or nothing."""
    return _MEANT.get(keyword.lower().strip("$")) or _nearest(keyword, _KNOWN | _NAMING.keys())


def _nearest(word: str, known: Collection[str]) -> str:
    """The one of ``known`` that is nearest, case and punctuation aside; empty if none is near."""
    plain = {_plain(other): other for other in sorted(known)}
    if _plain(word) in plain:
        return plain[_plain(word)]
    close = difflib.get_close_matches(word, sorted(known), 1, 0.8)
    return close[0] if close else ""


def _plain(word: str) -> str:
    return "".join(filter(str.isalnum, word.lower()))


def _format(name: Any, dialect: Dialect, options: JsonOptions) -> tuple[str, str]:
    if not options.format_assertion:
        return ANNOTATION, "format_assertion=False"
    if format_regex(name, dialect.name) is not None:
        return MASKED, _NARROWER.get(name, "")
    if name in ANNOTATION_FORMATS:
        return ANNOTATION, f"{name!r} asserts nothing about the text"
    close = _nearest(str(name), FORMATS)
    hint = f"; did you mean {close!r}?" if close else ""
    return ANNOTATION, f"unknown format {name!r}, asserts nothing{hint}"


# -- limits ---------------------------------------------------------------------------------


def _limits(options: JsonOptions, compares: bool) -> Iterator[Limit]:
    if options.whitespace == "natural":
        yield Limit("whitespace", "at most one space after each comma and colon, none elsewhere")
    elif options.whitespace == "compact":
        yield Limit("whitespace", "no whitespace between tokens")
    elif options.whitespace == "spaced":
        yield Limit("whitespace", "one space after each comma and colon, none elsewhere")
    elif options.whitespace == "flexible":
        most = options.max_whitespace
        yield Limit("max_whitespace", f"at most {most} characters of whitespace in one place")
    else:
        yield Limit("whitespace", f"between tokens, what {options.whitespace!r} matches")
    if options.property_order == "schema":
        yield Limit("property_order", "named properties in the schema's order, then all others")
    if options.canonical:
        yield Limit(
            "spelling",
            "names and patterned strings without needless escapes, integers without fraction, "
            "numbers without exponent, constants as the schema has them",
        )
    else:
        yield Limit("", "numbers with an exponent within the range of 64-bit floats")
        yield Limit("", f"each of more than {MAX_SPELT_NUMBERS} numbers in an enum spelt as usual")
    if options.ensure_ascii:
        yield Limit("ensure_ascii", "everything outside ASCII is escaped")
    yield Limit(
        "max_digits",
        f"at most {options.max_digits} digits before, and after, a number's decimal point, and "
        "in an exponent (more where a bound has more)",
    )
    depth = options.max_depth
    inside = "objects and arrays open inside one another"
    if compares and (depth is None or depth > MAX_DEPTH_COMPARED):
        yield Limit("", f"at most {MAX_DEPTH_COMPARED} {inside}, as items must be unique")
    elif depth is not None:
        yield Limit("max_depth", f"at most {depth} {inside}")
    yield Limit("", "each named property at most once in an object")
