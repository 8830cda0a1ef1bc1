"""`Constraint.advice`: what of an output type's shape costs answers, and what to write instead.

Owns the findings, their wording and their order: what costs most comes first. They say what a study
of ours has measured (docs/quality.md), of small models; nothing here is an error, and nothing is
changed. Knows no models and runs none.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from structgen.automaton.json import evaluate, json_options
from structgen.grammar import ir, json_schema
from structgen.grammar.json_schema import (
    ARRAY,
    FALSE,
    NULL,
    STRING,
    Node,
    Place,
    child_path,
)
from structgen.grammar.regex import algebra as regex_algebra
from structgen.storage import IdentityMap

_REASONING = re.compile(
    r"reason(s|ing)?|rationale|explanations?|explain|thoughts?|thinking|justification|analysis"
    r"|chain_of_thought|steps|why|because|motivation",
    re.IGNORECASE,
)
_CODE = re.compile(r"[A-Za-z]{0,3}_?[0-9]+|[A-Za-z]", re.ASCII)
_CLOCKS = ("T03:03:03", "T03:03:03Z")
_LEAST_SHARED = 3

_NOT_ALONE = re.compile(r"\.(?:allOf\[|not\b|if\b)")
"""In a path: other schemas say more about the same value, or the schema is a condition."""

_ODD_DATES = tuple(f"{year}-03-03{clock}" for year in ("0303", "3303") for clock in ("", *_CLOCKS))
"""Dates in years that nobody means."""

_TEXTS = {"pattern", regex_algebra.KEYWORD}
_ENDS = (
    {"minimum", "exclusiveMinimum"},
    {"maximum", "exclusiveMaximum"},
    {"multipleOf"},
)
"""Keywords that together bound the digits of a number, one of each."""

LATE_REASONING = "late reasoning"
UNBOUNDED_STRING = "unbounded string"
UNBOUNDED_ARRAY = "unbounded array"
SHARED_BEGINNING = "shared beginning"
STRANGE_NAME = "strange name"
UNBOUNDED_DATE = "unbounded date"
UNBOUNDED_DECIMAL = "unbounded decimal"
UNASKED_OPTIONAL = "unasked optional"

MEASURED: Mapping[str, str] = {
    UNBOUNDED_ARRAY: "Measured: without maxItems every output ran into the limit on tokens, with "
    "maxItems none.",
    UNASKED_OPTIONAL: "Measured: 20 texts had no phone number; 135 million parameters invented "
    "20, and 19 after an example without one; 500 million 17, and 0 after the example. A "
    "description changed nothing.",
    STRANGE_NAME: "Measured: with f1 to f5 for names, less than a third as many facts were right.",
    UNBOUNDED_DATE: "Measured: of 12 texts that name a day and no year, 5 or 6 got a year before "
    "1900 or after 2100; with bounds none.",
    LATE_REASONING: "Measured with 135 million parameters: 15 of 100 small sums were right with "
    "the reasons first, 1 with them last; in extraction, reasons before the facts made fewer "
    "right, and after them no more.",
    UNBOUNDED_DECIMAL: "Measured: 2 of 20 amounts ran past 12 digits; with bounds none.",
    SHARED_BEGINNING: "Measured: best=True gives another label in a few cases of a hundred.",
    UNBOUNDED_STRING: "Measured on short texts: no harm.",
}
"""What of each was measured, what costs most first: findings are told in this order."""

_ORDER = tuple(MEASURED)


@dataclass(frozen=True, slots=True)
class Advice:
    """One finding.

    Attributes:
        path: JSON path of the schema it is about, ``$`` for the whole.
        kind: which of the findings above.
        text: what is there, and what to write instead.
        measured: the effect, as far as we measured it.
    """

    path: str
    kind: str
    text: str
    measured: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text} {self.measured}"


def advice(grammar: ir.Grammar, options: Mapping[str, Any]) -> tuple[Advice, ...]:
    """The findings about a grammar that has been compiled with ``options``, what costs most first.

    Cost: that of reading the schema again; milliseconds.
    """
    found: list[Advice] = []
    for part in _parts(grammar):
        if isinstance(part, ir.Json):
            found += _of_json(part, options)
        elif isinstance(part, ir.Choice):
            found += _of_labels("$", [text for text in part.texts if isinstance(text, str)])
        elif isinstance(part, ir.Pattern):
            found += _of_dates("$", functools.partial(evaluate.matches, part.regex))
    return tuple(sorted(dict.fromkeys(found), key=lambda one: _ORDER.index(one.kind)))


def _parts(grammar: ir.Grammar) -> Iterator[ir.Grammar]:
    if isinstance(grammar, (ir.Either, ir.Sequence)):
        for part in grammar.parts:
            yield from _parts(part)
    else:
        yield grammar


def _of_json(part: ir.Json, options: Mapping[str, Any]) -> Iterator[Advice]:
    if isinstance(part.schema, bool):
        return
    chosen = replace(json_options(options), **part.options)
    seen: IdentityMap[Mapping[str, Any], str] = IdentityMap()

    def observe(raw: Mapping[str, Any], place: Place) -> None:
        seen.setdefault(raw, place.path)

    nodes = json_schema.lower(
        part.schema,
        dialect=chosen.dialect,
        documents=chosen.documents,
        format_assertion=chosen.format_assertion,
        observe=observe,
    ).nodes
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
        yield _made(
            path,
            UNBOUNDED_STRING,
            "A string of any length. A small model may not end it by itself: give it a maxLength.",
        )
    if kinds == ARRAY and node.max_items is None and node.items != FALSE:
        yield _made(
            path,
            UNBOUNDED_ARRAY,
            "A list of any length. A small model may repeat items for ever: give it maxItems.",
        )
    if kinds == STRING and node.patterns:
        yield from _of_dates(path, functools.partial(evaluate.holds, nodes, 2 * number))


def _of_dates(path: str, holds: Callable[[str], bool]) -> Iterator[Advice]:
    odd = [text for text in _ODD_DATES if holds(text)]
    if odd and not holds("?"):
        yield _made(
            path,
            UNBOUNDED_DATE,
            f"A date of any year, such as {odd[0]}. Bound it: Field(ge=date(2020, 1, 1), "
            "le=date(2030, 12, 31)), structgen.types.recent_date(), or, in a JSON Schema, a "
            "pattern beside the format.",
        )


def _of_decimal(raw: Mapping[str, Any], path: str) -> Iterator[Advice]:
    """A number that may be text, too, as a Decimal's is, and may have any number of digits."""
    parts = [part for part in raw.get("anyOf", ()) if isinstance(part, Mapping)]
    if not any(part.get("type") == "string" and _TEXTS & part.keys() for part in parts):
        return
    for part in parts:
        rules = [part, *(rule for rule in part.get("allOf", ()) if isinstance(rule, Mapping))]
        bounds = {name for rule in rules for name in rule}
        if part.get("type") == "number" and not all(bounds & some for some in _ENDS):
            yield _made(
                path,
                UNBOUNDED_DECIMAL,
                "A decimal number of any length. A small model may write digits for ever: bound "
                "it with Field(max_digits=10, decimal_places=2), and with ge= and le=.",
            )
            return


def _of_optional(names: Mapping[str, Any], required: Any, path: str) -> Iterator[Advice]:
    """Members that may be left out, or be null."""
    needed = required if isinstance(required, Sequence) else ()
    for name, raw in names.items():
        if not isinstance(raw, Mapping) or "const" in raw:
            continue
        if name not in needed or _is_nullable(raw):
            how = "be null" if name in needed else "be left out"
            yield _made(
                child_path(path, "properties", name),
                UNASKED_OPTIONAL,
                f"{name!r} may {how}, but a small model invents a value, whatever a description "
                "says: leave the field out of the type, or show an example that lacks it.",
            )


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
                yield _made(
                    place,
                    LATE_REASONING,
                    f"The reasons come after {before[-1]!r}, which they cannot change any more. "
                    f"Leave them out; or, with a model that gains by it, put {name!r} first, or "
                    "generate with think= or draft=True.",
                )
        else:
            before.append(name)
        if _CODE.fullmatch(name):
            yield _made(
                place,
                STRANGE_NAME,
                f"The name {name!r} does not say what belongs there, and a mask shows the model no "
                "descriptions: use words, and an alias for the code.",
            )


def _of_labels(path: str, labels: Sequence[str]) -> Iterator[Advice]:
    shared = _sharing(labels)
    if shared and len(shared) < len(labels):
        shown = ", ".join(repr(label) for label in shared[:4])
        yield _made(
            path,
            SHARED_BEGINNING,
            f"{shown} begin alike and the other labels do not. Token by token, the beginning of "
            "several weighs as much as all of them: generate with best=True, or use a Decider.",
        )


def _sharing(labels: Iterable[str]) -> list[str]:
    """Those that begin like another, in their order."""
    by_beginning: dict[str, list[str]] = {}
    for label in labels:
        by_beginning.setdefault(label[:_LEAST_SHARED], []).append(label)
    alike = {one for some in by_beginning.values() if len(some) > 1 for one in some}
    return [label for label in labels if label in alike]


def _made(path: str, kind: str, text: str) -> Advice:
    return Advice(path, kind, text, MEASURED.get(kind, ""))
