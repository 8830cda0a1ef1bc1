"""Report on an output type: `Constraint.explain` and `Constraint.advice`.

`explain` lists every keyword of a schema and how it is enforced. It uses the same reader as the
compiler, which decides which subschemas are reachable, and under which draft. So every enforced
keyword is listed as such, and no other.

`advice` names the parts of a type that make answers worse, and what to write instead, the most
costly first. It reports what our study of small models measured (docs/quality.md). It raises no
errors and changes nothing. Knows no models and runs none.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urldefrag

from structgen import notebook
from structgen.automaton.json import (
    MAX_DEPTH_COMPARED,
    MAX_SPELT_NUMBERS,
    JsonOptions,
    guidance,
    json_options,
    part_options,
)
from structgen.automaton.schema import evaluate
from structgen.errors import counted
from structgen.grammar import ir, json_schema
from structgen.grammar.formats import ANNOTATION_FORMATS, FORMATS
from structgen.grammar.json_schema import (
    ANNOTATIONS,
    ARRAY,
    BOOLEAN,
    DIALECTS,
    DIGITS_ONLY,
    FALSE,
    GUIDANCE,
    KIND_OF,
    NULL,
    STRING,
    TYPE_BITS,
    Dialect,
    Node,
    Place,
    by_uri,
    child_path,
    is_latest,
)
from structgen.grammar.regex import algebra as regex_algebra
from structgen.storage import IdentityMap

MASKED = "masked"
RECORDED = "masked, by recording"
ANNOTATION = "annotation"
CHECKED = "checked by parse"
UNENFORCED = "not enforced"
REFERENCE = "reference"

Unenforced: TypeAlias = "Mapping[tuple[str, str], str]"
"""Keywords that are not enforced, as ``(path, keyword)``, and the reason."""

_NAMING = {
    "$schema": "sets the dialect",
    "$vocabulary": "sets the vocabularies of a metaschema",
    "$defs": "contains schemas; those that a reference uses have their own rows",
    "definitions": "contains schemas; those that a reference uses have their own rows",
}
_SINCE_2019 = frozenset(["$anchor", "$vocabulary"])
_ANNOTATIONS = ANNOTATIONS.union(
    ("$comment", "comment", "contentEncoding", "contentMediaType", "contentSchema"),
    ("discriminator", "example", "externalDocs", "nullable", "xml"),
)
_REFERENCES = frozenset(["$ref", "$dynamicRef", "$recursiveRef"])
_KNOWN = _ANNOTATIONS.union(*(d.assertions for d in DIALECTS.values()))
_OPENAPI = {
    "nullable": "OpenAPI 3.0 only; to allow null, add it to type",
    "discriminator": "OpenAPI only; use a const in each alternative to distinguish them",
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
    "optional": "required, which lists the properties that are not optional",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One keyword at one place.

    Attributes:
        path: JSON path of the schema that has the keyword; ``$`` for the root.
        keyword: its name; ``pattern`` or ``choice`` for an output type that is not JSON.
        how: ``"masked"``: no token is allowed that would violate it; ``"masked, by recording"``:
            the same, with masks that depend on the text so far, and are computed for each text;
            ``"checked by parse"``: code of the output type (``validator``), or the clock, checks it
            when the text is parsed, and with ``retries=`` when the value, or what contains it,
            closes; ``"reference"``: it names, contains or refers to schemas; ``"annotation"``: it
            asserts nothing here; ``"not enforced"``: it cannot be enforced, and
            ``on_unsupported="warn"`` left it out.
        note: the reason, if it is not obvious.
    """

    path: str
    keyword: str
    how: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Limit:
    """A restriction of the output that goes beyond valid JSON.

    Attributes:
        option: the compile option that decides it, or ``""`` for a fixed limit.
        text: a description of the limit.
    """

    option: str
    text: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """How each keyword is enforced; ``str`` of it is a table.

    Attributes:
        rows: one for each keyword of each reachable schema, in the order of the schema. Unreachable
            schemas, such as unused definitions, have none.
        limits: restrictions of the output beyond the schema.
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

    def _repr_html_(self) -> str:
        """Return the tables, in a notebook."""
        rows = [(row.path, row.keyword, row.how, row.note) for row in self.rows]
        rows += [("", limit.option, "limit", limit.text) for limit in self.limits]
        return notebook.table(rows, ("path", "keyword", "how", "note"))


def explain(
    grammar: ir.Grammar,
    options: Mapping[str, Any],
    unenforced: Sequence[Unenforced] = (),
    checked: Sequence[tuple[str, str]] = (),
) -> Explanation:
    """Return how a grammar is enforced that has been compiled with ``options``.

    Args:
        grammar: the grammar.
        options: the compile options.
        unenforced: the keywords that are not enforced in each JSON part, as `build` returns them.
        checked: what code checks when a text is parsed, as in `OutputType`.

    Cost: that of reading the schema again; milliseconds.
    """
    rows: dict[Row, None] = {}
    limits: dict[Limit, None] = {}
    left_out = iter(unenforced)
    for part in _parts(grammar):
        if isinstance(part, ir.Json):
            chosen = part_options(part, options, json_options(options))
            found, compares = _rows(part.schema, chosen, next(left_out, {}))
            rows.update(dict.fromkeys(found))
            limits.update(dict.fromkeys(_limits(chosen, compares)))
        elif isinstance(part, ir.Pattern):
            rows[Row("$", "pattern", MASKED, part.source)] = None
        elif isinstance(part, ir.ContextFree):
            size = counted(len(part.rules), "rule"), counted(len(part.terminals), "terminal")
            note = " over ".join(size)
            rows[Row("$", "grammar", MASKED, note)] = None
        elif isinstance(part, ir.Choice):
            rows[Row("$", "choice", MASKED, f"one of {len(part.texts):,} texts")] = None
    for path, named in checked:
        rows[Row(path, "validator", CHECKED, named)] = None
    return Explanation(tuple(rows), tuple(limits))


def _parts(grammar: ir.Grammar) -> Iterator[ir.Grammar]:
    for part in ir.flat(grammar):
        yield part
        for terminal in part.terminals if isinstance(part, ir.ContextFree) else ():
            if isinstance(terminal, ir.Embedded):
                yield from _parts(terminal.grammar)


# -- keywords -------------------------------------------------------------------------------


def _rows(schema: Any, options: JsonOptions, left_out: Unenforced) -> tuple[list[Row], bool]:
    """Return the rows, and whether any array compares its items."""
    if isinstance(schema, bool):
        return [Row("$", "true", MASKED, "any JSON value")], False
    rows: list[Row] = []
    seen: IdentityMap[Mapping[str, Any], tuple[str, Dialect]] = IdentityMap()

    def observe(raw: Mapping[str, Any], place: Place) -> None:
        # dynamic scopes may visit a schema more than once
        seen.setdefault(raw, (place.path, place.dialect))

    graph = json_schema.lower(schema, **options.reading, skipped=left_out, observe=observe)
    order = _order(schema)
    for raw, (path, dialect) in sorted(
        seen.items(), key=lambda one: order.setdefault(one[0], len(order))
    ):
        for keyword, value in raw.items():
            if keyword == DIGITS_ONLY:
                continue  # the row of its type shows it
            how, note = _how(keyword, value, raw, dialect, options)
            inside = child_path(path, keyword)
            members = value if isinstance(value, Mapping) else ()
            for (where, named), reason in left_out.items():
                if named == keyword and (
                    where in (path, inside)
                    or any(where == child_path(inside, name) for name in members)
                ):
                    how, note = UNENFORCED, reason
            shown = "pattern" if keyword == regex_algebra.KEYWORD else keyword
            rows.append(Row(path, shown, how, note))
    return rows, any(node.unique for node in graph.nodes)


def _order(schema: Any) -> IdentityMap[Mapping[str, Any], int]:
    """Return the position of every object in ``schema``, in reading order."""
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
    """Return how ``keyword`` of ``raw`` is enforced, and a note."""
    if keyword == "$schema" and by_uri(value) is None:
        if is_latest(value):
            return REFERENCE, f"the latest draft; read as {dialect.name}"
        if urldefrag(value)[0] not in {urldefrag(url)[0] for url in options.documents or ()}:
            return REFERENCE, f"an unknown draft; read as {dialect.name}"
    if keyword in _NAMING and (dialect.year >= 2019 or keyword not in _SINCE_2019):
        return REFERENCE, _NAMING[keyword]
    if dialect.ref_ignores_siblings and "$ref" in raw and keyword != "$ref":
        return ANNOTATION, f"{dialect.name} ignores all keywords next to $ref"
    if _identifies(keyword, dialect):
        return REFERENCE, ""
    if keyword in _REFERENCES and keyword in dialect.assertions:
        return REFERENCE, f"to {value}"
    if keyword == GUIDANCE:
        shown = [f"{name}={value!r}" for name, value in guidance(raw).items()]
        return (
            MASKED,
            f"as {' and '.join(shown)}, unless the call sets something else" if shown else "",
        )
    if keyword not in dialect.assertions and not _old_items(keyword, raw, dialect):
        return ANNOTATION, _foreign(keyword, dialect)
    if keyword == "format" and not _excluded(keyword, raw, dialect):
        return _format(value, options)
    needs = _missing(keyword, raw, dialect) or _excluded(keyword, raw, dialect)
    if needs:
        return ANNOTATION, needs
    if keyword == "uniqueItems" and value:
        return RECORDED, "items are compared with earlier items"
    if keyword == "minProperties" and value > len(raw.get("required", ())):
        closed = raw.get("additionalProperties") is False and not raw.get("patternProperties")
        if not closed:
            return RECORDED, "additional keys must be unique, so they are recorded"
    if keyword == "type" and raw.get(DIGITS_ONLY):
        return MASKED, "digits only"
    return MASKED, _older(keyword, value, dialect)


def _older(keyword: str, value: Any, dialect: Dialect) -> str:
    """Return by which draft a keyword is read, if the schema's own draft reads it differently."""
    if keyword == "items" and isinstance(value, list) and dialect.year >= 2020:
        return "an array, as in drafts up to 2019-09"
    if keyword in ("exclusiveMinimum", "exclusiveMaximum") and isinstance(value, bool):
        return "" if dialect.year == 4 else "a boolean, as in draft 4"
    if keyword == "dependencies" and dialect.year >= 2019:
        return "from drafts up to 7, also accepted in later ones"
    return ""


def _identifies(keyword: str, dialect: Dialect) -> bool:
    if keyword in ("$anchor", "$dynamicAnchor"):
        return dialect.year >= 2019
    if keyword == "$recursiveAnchor":
        return dialect.year == 2019
    return keyword == dialect.id_keyword


def _old_items(keyword: str, raw: Mapping[str, Any], dialect: Dialect) -> bool:
    """Return whether ``additionalItems`` counts although the draft has dropped it: it does beside
    an array as ``items``, which only older drafts have."""
    return (
        keyword == "additionalItems"
        and isinstance(raw.get("items"), list)
        and not ("prefixItems" in raw and "prefixItems" in dialect.assertions)
    )


def _missing(keyword: str, raw: Mapping[str, Any], dialect: Dialect) -> str:
    """Return which keyword is missing, without which ``keyword`` has no effect; "" if it is
    present."""
    if keyword in ("then", "else") and "if" not in raw:
        return "there is no if next to it"
    if keyword == "if" and "then" not in raw and "else" not in raw:
        return "there is no then or else next to it"
    if keyword in ("minContains", "maxContains") and "contains" not in raw:
        return "there is no contains next to it"
    if keyword == "additionalItems" and not _old_items(keyword, raw, dialect):
        return "items next to it is not an array"
    if keyword in ("exclusiveMinimum", "exclusiveMaximum") and isinstance(raw[keyword], bool):
        bound = "minimum" if keyword == "exclusiveMinimum" else "maximum"
        if bound not in raw:
            return f"there is no {bound} next to it"
    return ""


def _excluded(keyword: str, raw: Mapping[str, Any], dialect: Dialect) -> str:
    """Return the types that a keyword applies to, if the ``type`` beside it excludes them; else
    empty."""
    if "type" not in raw or "type" not in dialect.assertions:
        return ""
    names = raw["type"] if isinstance(raw["type"], list) else (raw["type"],)
    kind = KIND_OF.get(keyword)
    if kind is None or any(TYPE_BITS[name] & TYPE_BITS[kind] for name in names):
        return ""
    return f"it applies only to {kind}s, which the type excludes"


def _foreign(keyword: str, dialect: Dialect) -> str:
    """Return why a keyword that the draft does not enforce asserts nothing."""
    if keyword in ("id", "$id"):
        return f"in {dialect.name}, the keyword is {dialect.id_keyword}"
    if keyword in _OPENAPI:
        return _OPENAPI[keyword]
    if keyword in DIALECTS[dialect.name].assertions:
        return "its metaschema does not have the validation vocabulary"
    has = [d.name for d in DIALECTS.values() if keyword in d.assertions]
    if has:
        return f"{dialect.name} does not have this keyword; {has[-1]} does"
    if keyword in _ANNOTATIONS:
        return ""
    hint = f"; did you mean {_meant(keyword)}?" if _meant(keyword) else ""
    return f"unknown keyword without effect{hint}"


def _meant(keyword: str) -> str:
    """Return the keywords that an unknown one may have meant; "" if there are none."""
    return _MEANT.get(keyword.lower().strip("$")) or _nearest(keyword, _KNOWN | _NAMING.keys())


def _nearest(word: str, known: Collection[str]) -> str:
    """Return the nearest of ``known``, ignoring case and punctuation; "" if none is near."""
    plain = {_plain(other): other for other in sorted(known)}
    if _plain(word) in plain:
        return plain[_plain(word)]
    close = difflib.get_close_matches(word, sorted(known), 1, 0.8)
    return close[0] if close else ""


def _plain(word: str) -> str:
    return "".join(filter(str.isalnum, word.lower()))


def _format(name: Any, options: JsonOptions) -> tuple[str, str]:
    if not options.format_assertion:
        return ANNOTATION, "format_assertion=False"
    if name in FORMATS:
        return MASKED, FORMATS[name].narrower
    if name in ANNOTATION_FORMATS:
        return ANNOTATION, f"{name!r} does not restrict the text"
    close = _nearest(str(name), FORMATS)
    hint = f"; did you mean {close!r}?" if close else ""
    return ANNOTATION, f"unknown format {name!r} without effect{hint}"


# -- limits ---------------------------------------------------------------------------------


_SPACING = {
    "natural": "at most one space after each comma and colon, none elsewhere",
    "compact": "no whitespace between tokens",
    "spaced": "one space after each comma and colon, none elsewhere",
}


def _limits(options: JsonOptions, compares: bool) -> Iterator[Limit]:
    if options.indent is not None:
        yield Limit("indent", f"indented lines, with {options.indent} spaces for each level")
    elif options.whitespace == "flexible":
        most = options.max_whitespace
        yield Limit("max_whitespace", f"at most {most} whitespace characters in one place")
    else:
        matched = f"between tokens, text that matches {options.whitespace!r}"
        yield Limit("whitespace", _SPACING.get(options.whitespace, matched))
    if options.property_order == "schema":
        yield Limit("property_order", "properties of the schema in its order, then all others")
    if options.canonical:
        yield Limit(
            "spelling",
            "property names and strings with a pattern without unnecessary escapes, integers "
            "without fraction, exponents as Python writes them, constants as in the schema",
        )
    else:
        yield Limit("", "numbers with an exponent within the range of 64-bit floats")
        yield Limit(
            "",
            f"if an enum has more than {MAX_SPELT_NUMBERS} numbers, each is written "
            "in its usual form only",
        )
    if options.closed:
        yield Limit("closed", "no object members except those in the schema")
    if options.ensure_ascii:
        yield Limit("ensure_ascii", "all non-ASCII characters are escaped")
    yield Limit(
        "max_digits",
        f"at most {options.max_digits} digits before and after a decimal point, and in an "
        "exponent (more if a bound has more)",
    )
    depth = options.max_depth
    inside = "levels of objects and arrays"
    if compares and (depth is None or depth > MAX_DEPTH_COMPARED):
        yield Limit("", f"at most {MAX_DEPTH_COMPARED} {inside}, because items must be unique")
    elif depth is not None:
        yield Limit("max_depth", f"at most {depth} {inside}")
    yield Limit("", "each named property at most once in an object")


_REASONING = re.compile(
    r"reason(s|ing)?|rationale|explanations?|explain|thoughts?|thinking|justification|analysis"
    r"|chain_of_thought|steps|why|because|motivation",
    re.IGNORECASE,
)
_CODE = re.compile(r"[A-Za-z]{0,3}_?[0-9]+|[A-Za-z]", re.ASCII)
_CLOCKS = ("T03:03:03", "T03:03:03Z")
_LEAST_SHARED = 3

_NOT_ALONE = re.compile(r"\.(?:allOf\[|not\b|if\b)")
"""In a path: other schemas apply to the same value, too, or the schema is a condition."""

_ODD_DATES = tuple(f"{year}-03-03{clock}" for year in ("0303", "3303") for clock in ("", *_CLOCKS))
"""Dates in years that nobody is likely to mean."""

_TEXTS = {"pattern", regex_algebra.KEYWORD}
_ENDS = ({"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"}, {"multipleOf"})
"""One keyword of each set together bound the digits of a number."""

_ADVICE = {
    "unbounded array": (
        "A list of any length. A small model may repeat items forever. Add maxItems.",
        "Measured: without maxItems every output reached the token limit; with maxItems none did.",
    ),
    "unasked optional": (
        "{0!r} may {1}, but a small model invents a value even with a description. Remove the "
        "field from the type, or show an example without it.",
        "Measured: 20 texts had no phone number. A model with 135 million parameters invented 20, "
        "and 19 after an example without one; a model with 500 million invented 17, and 0 after "
        "the example. A description changed nothing.",
    ),
    "strange name": (
        "The name {0!r} does not describe its value, and masks do not show descriptions to the "
        "model. Use words, with an alias for the code.",
        "Measured: with the names f1 to f5, fewer than a third as many facts were right.",
    ),
    "unbounded date": (
        "A date of any year, such as {0}. Limit it: Field(ge=date(2020, 1, 1), le=date(2030, 12, "
        "31)), structgen.types.recent_date(), or, in a JSON Schema, a pattern in addition to the "
        "format.",
        "Measured: of 12 texts with a day but no year, 5 or 6 got a year before 1900 or after "
        "2100; with bounds none did.",
    ),
    "late reasoning": (
        "The reasoning comes after {0!r} and can no longer change it. Remove the reasoning. If the "
        "model benefits from it, put {1!r} first, or generate with think= or draft=True.",
        "Measured with 135 million parameters: 15 of 100 small sums were right with the reasoning "
        "first, 1 with it last. In extraction, fewer facts were right with the reasoning first, "
        "and no more with it last.",
    ),
    "unbounded decimal": (
        "A decimal number of any length. A small model may write digits forever. Limit it with "
        "Field(max_digits=10, decimal_places=2), and with ge= and le=.",
        "Measured: 2 of 20 amounts had more than 12 digits; with bounds none did.",
    ),
    "shared beginning": (
        "{0} begin in the same way, unlike the other labels. Token by token, their shared "
        "beginning has the probability of all of them together. Generate with best=True, or use a "
        "Decider.",
        "Measured: best=True gives another label in a few percent of cases.",
    ),
    "unbounded string": (
        "A string of any length. A small model may not end it. Add a maxLength.",
        "Measured on short texts: 2% of the answers reached the token limit.",
    ),
}
"""By kind: the problem, what to write instead, and what was measured. The most costly come first.
"""


@dataclass(frozen=True, slots=True)
class Advice:
    """One finding.

    Attributes:
        path: JSON path of the schema it is about; ``$`` for the root.
        kind: a key of the table above.
        text: the problem, and what to write instead.
        measured: the effect that we measured.
    """

    path: str
    kind: str
    text: str
    measured: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text} {self.measured}"


def advice(grammar: ir.Grammar, options: Mapping[str, Any]) -> tuple[Advice, ...]:
    """Return the findings about a grammar compiled with ``options``, most costly first.

    Cost: that of reading the schema again; milliseconds.
    """
    found: list[Advice] = []
    for part in ir.flat(grammar):
        if isinstance(part, ir.Json):
            found += _of_json(part, options)
        elif isinstance(part, ir.Choice):
            found += _of_labels("$", [text for text in part.texts if isinstance(text, str)])
        elif isinstance(part, ir.Pattern):
            holds = functools.partial(evaluate.matches, part.regex)
            found += _of_dates("$", holds)
            if any(map(holds, _LONG_DECIMALS)) and not holds("?"):
                found.append(_made("$", "unbounded decimal"))
    order = list(_ADVICE)
    return tuple(sorted(dict.fromkeys(found), key=lambda one: order.index(one.kind)))


def _of_json(part: ir.Json, options: Mapping[str, Any]) -> Iterator[Advice]:
    if isinstance(part.schema, bool):
        return
    chosen = part_options(part, options, json_options(options))
    seen: IdentityMap[Mapping[str, Any], str] = IdentityMap()

    def observe(raw: Mapping[str, Any], place: Place) -> None:
        seen.setdefault(raw, place.path)

    nodes = json_schema.lower(part.schema, **chosen.reading, observe=observe).nodes
    numbers = {node.path: number for number, node in enumerate(nodes)}
    is_ordered = chosen.property_order == "schema"
    for raw, path in sorted(seen.items(), key=lambda one: one[1]):
        if path in numbers and not _NOT_ALONE.search(path):
            yield from _of_value(nodes, numbers[path], path)
        if isinstance(raw.get("enum"), Sequence):
            yield from _of_labels(path, [one for one in raw["enum"] if isinstance(one, str)])
        yield from _of_decimal(raw, path)
        names = raw.get("properties")
        if isinstance(names, Mapping):
            yield from _of_names(names, path, is_ordered=is_ordered)
            yield from _of_optional(names, raw.get("required"), path)


def _of_value(nodes: Sequence[Node], number: int, path: str) -> Iterator[Advice]:
    node = nodes[number]
    if node.applies_in_place or node.enum is not None:
        return
    kinds = node.types & ~NULL
    if kinds == STRING and not node.patterns and node.max_length is None:
        yield _made(path, "unbounded string")
    is_open = kinds == ARRAY and node.max_items is None and node.items != FALSE
    if is_open and not (node.unique and _is_list(nodes, node.items)):
        yield _made(path, "unbounded array")
    if kinds == STRING and node.patterns:
        yield from _of_dates(path, functools.partial(evaluate.holds, nodes, 2 * number))


def _is_list(nodes: Sequence[Node], requirement: int) -> bool:
    """Return whether only values that a schema lists meet ``requirement``, or a boolean."""
    node = nodes[requirement >> 1]
    if len(node.refs) == 1 and not node.all_of:
        node = nodes[node.refs[0] >> 1]
    return not requirement & 1 and (node.enum is not None or not node.types & ~(NULL | BOOLEAN))


def _of_dates(path: str, holds: Callable[[str], bool]) -> Iterator[Advice]:
    odd = [text for text in _ODD_DATES if holds(text)]
    # only what is no date allows these
    if odd and not any(holds(text[::-1]) for text in odd):
        yield _made(path, "unbounded date", odd[0])


_LONG_DECIMALS = [sign + text for sign in ("", "-") for text in ("7" * 60 + ".5", "0." + "7" * 60)]


def _of_decimal(raw: Mapping[str, Any], path: str) -> Iterator[Advice]:
    """Yield advice on a number (a Decimal) that may be text or have any number of digits."""
    parts = [part for part in raw.get("anyOf", ()) if isinstance(part, Mapping)]
    if not any(part.get("type") == "string" and _TEXTS & part.keys() for part in parts):
        return
    for part in parts:
        rules = [part, *(rule for rule in part.get("allOf", ()) if isinstance(rule, Mapping))]
        bounds = {name for rule in rules for name in rule}
        if part.get("type") == "number" and not all(bounds & some for some in _ENDS):
            yield _made(path, "unbounded decimal")
            return


def _of_optional(names: Mapping[str, Any], required: Any, path: str) -> Iterator[Advice]:
    """Yield the advice on members that may be missing or null."""
    needed = required if isinstance(required, Sequence) else ()
    for name, raw in names.items():
        if not isinstance(raw, Mapping) or "const" in raw:
            continue
        if name not in needed or _is_nullable(raw):
            how = "be null" if name in needed else "be omitted"
            yield _made(child_path(path, "properties", name), "unasked optional", name, how)


def _is_nullable(raw: Mapping[str, Any]) -> bool:
    parts = [*raw.get("anyOf", ()), *raw.get("oneOf", ())]
    kinds = [raw.get("type"), *(part.get("type") for part in parts if isinstance(part, Mapping))]
    return any(kind == "null" or (isinstance(kind, list) and "null" in kind) for kind in kinds)


def _of_names(names: Mapping[str, Any], path: str, *, is_ordered: bool) -> Iterator[Advice]:
    before: list[str] = []
    for name in names:
        place = child_path(path, "properties", name)
        if _REASONING.fullmatch(name):
            if before and is_ordered:
                yield _made(place, "late reasoning", before[-1], name)
        else:
            before.append(name)
        if _CODE.fullmatch(name):
            yield _made(place, "strange name", name)


def _of_labels(path: str, labels: Sequence[str]) -> Iterator[Advice]:
    beginnings = Counter(label[:_LEAST_SHARED] for label in labels)
    shared = [label for label in labels if beginnings[label[:_LEAST_SHARED]] > 1]
    if shared and len(shared) < len(labels):
        shown = ", ".join(repr(label) for label in shared[:4])
        yield _made(path, "shared beginning", shown)


def _made(path: str, kind: str, *values: str) -> Advice:
    text, measured = _ADVICE[kind]
    return Advice(path, kind, text.format(*values), measured)
