"""The values of an output that were a choice among few, and what else could have stood there.

It owns finding them: for each scalar of a finished JSON document, and for a text as a whole, the
texts that the automaton allows in its place, listed when they are few. It knows nothing of models
and probabilities, and nothing of schemas: a boolean, an enum, a small range of integers or
``Literal[...] | None`` are all the same to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from structgen.automaton.machine import DEAD
from structgen.byte_walk import Walk
from structgen.constraint import Constraint
from structgen.errors import ParseError
from structgen.grammar import ir
from structgen.grammar.schema_graph import json_key
from structgen.json_places import JsonPlaces, Scalar

MAX_ALTERNATIVES = 1000
"""Most texts that count as few."""

_MAX_STEPS = 100_000
"""Most bytes that are tried to find the texts of one place."""

_NARROWING = frozenset(
    [
        "enum",
        "const",
        "pattern",
        "format",
        "maxLength",
        "maximum",
        "exclusiveMaximum",
        "$ref",
        "not",
    ]
)
"""Keywords that can leave a scalar few texts, and those behind which others may hide."""

_QUOTE = 0x22
_AFTER_SCALAR = frozenset(b" \t\n\r,]}")
_OPEN = frozenset(b"{[")


@dataclass(frozen=True, slots=True)
class Site:
    """A place in an output where one of a few texts stands.

    Attributes:
        path: JSON path of the value; ``$`` for the whole output.
        start: offset of the value's first byte in the output.
        chosen: index of the text that stands there.
        texts: every text that could stand there after what comes before it; at least two. That an
            array could have ended instead is none of them.
        values: what the texts stand for: of JSON the value, else the text itself (see `names_of`).
    """

    path: str
    start: int
    chosen: int
    texts: tuple[bytes, ...]
    values: tuple[Any, ...]


def sites(constraint: Constraint, output: bytes, *, is_whole: bool = True) -> Iterator[Site]:
    """The sites of an output, in its order.

    Args:
        constraint: what the output was made by.
        output: its bytes.
        is_whole: whether it ended by itself. Else a number or word at its end is left out, as it
            might have gone on.

    Cost: a step of the automaton for each byte of the output and of each alternative.
    """
    if not is_json(constraint):
        texts = whole_texts(constraint)
        if is_whole and texts is not None and len(texts) > 1:
            yield Site("$", 0, texts.index(output), texts, names_of(constraint, texts))
        return
    reader = JsonPlaces()
    reader.feed(output)
    if is_whole:
        reader.finish()
    walk = Walk(constraint)
    for scalar in reader.scalars:
        walk.go_on(output[walk.length : scalar.start])
        site = _site(walk, scalar, output)
        if site is not None:
            yield site


def is_json(constraint: Constraint) -> bool:
    """Whether every output is one JSON document."""
    return isinstance(constraint.output.grammar, ir.Json)


def whole_texts(constraint: Constraint) -> tuple[bytes, ...] | None:
    """All outputs there can be, sorted; None when they are not few."""
    walk = Walk(constraint)
    return _texts(walk, is_json=is_json(constraint))


def names_of(constraint: Constraint, texts: Sequence[bytes]) -> tuple[str, ...]:
    """A name for each whole output: its text, or the shortest of those for the same value.

    JSON may spell one value in several ways (``-0`` is 0), which are one alternative; so may the
    numbers in a union of other texts.
    """
    names = [constraint.named.shown(text).decode() for text in texts]
    keys = [_value_key(constraint, name) for name in names]
    shortest: dict[Any, str] = {}
    for i in sorted(range(len(names)), key=lambda i: (len(names[i]), names[i])):
        shortest.setdefault(keys[i], names[i])
    return tuple(shortest[key] for key in keys)


def _value_key(constraint: Constraint, text: str) -> Any:
    """What tells an output from others: its value in JSON; of other texts the number, or itself."""
    if is_json(constraint):
        return json_key(json.loads(text))
    try:
        value, written = constraint.output.parse(text), json.loads(text)
    except (ParseError, ValueError):
        return text
    # A validator may make a number of any text: "yes" and "you" stay two alternatives.
    is_number = {type(value), type(written)} <= {int, float} and value == written
    return (type(value), value) if is_number else text


def may_have_sites(constraint: Constraint) -> bool:
    """Whether some output could have a site; certain when False."""
    grammar = constraint.output.grammar
    if isinstance(grammar, ir.Json):
        return _mentions_few(grammar.schema)
    texts = whole_texts(constraint)
    return texts is not None and len(texts) > 1


def _mentions_few(schema: Any) -> bool:
    """Whether a schema has, anywhere, something that could leave a scalar few texts."""
    if isinstance(schema, Mapping):
        return not _NARROWING.isdisjoint(schema) or any(map(_mentions_few, schema.values()))
    if isinstance(schema, Sequence) and not isinstance(schema, str):
        return any(map(_mentions_few, schema))
    return isinstance(schema, str) and schema == "boolean"


def _site(walk: Walk, scalar: Scalar, output: bytes) -> Site | None:
    texts = _texts(walk, is_json=True)
    if texts is None or len(texts) < 2:
        return None
    chosen = texts.index(output[scalar.start : scalar.end])
    values = tuple(json.loads(text) for text in texts)
    return Site(scalar.path, scalar.start, chosen, texts, values)


def _texts(walk: Walk, *, is_json: bool) -> tuple[bytes, ...] | None:
    """The texts that can stand where ``walk`` is, sorted; None when they are not few.

    Every state can go on to an end, so each text begun counts as one at least: the search stops as
    soon as there are too many.
    """
    machine = walk.machine
    found: list[bytes] = []
    begun: list[tuple[bytes, int]] = [(b"", walk.state)]
    steps = 0
    while begun:
        longer: list[tuple[bytes, int]] = []
        for text, state in begun:
            following = machine.next_bytes(state)
            if is_json:
                if text and _may_end(text, following, machine.is_accepting(state)):
                    found.append(text)
                following = _inside(text, following)
            elif machine.is_accepting(state):
                found.append(text)
            steps += len(following)
            if len(found) + len(longer) + len(following) > MAX_ALTERNATIVES or steps > _MAX_STEPS:
                return None
            if is_json and not text and not following.isdisjoint(_OPEN):
                return None
            for byte in following:
                more = text + bytes([byte])
                to = walk.step(state, byte, more)
                if to != DEAD:
                    longer.append((more, to))
        begun = longer
    return tuple(sorted(found))


def _may_end(text: bytes, following: set[int], is_accepting: bool) -> bool:
    """Whether a scalar that has been read up to here is a whole one."""
    if text[0] == _QUOTE:
        return _is_closed(text)
    return is_accepting or not following.isdisjoint(_AFTER_SCALAR)


def _inside(text: bytes, following: set[int]) -> set[int]:
    """Of the bytes that may follow, those that belong to the scalar."""
    if text[:1] == b'"':
        return set() if _is_closed(text) else following
    return following - _AFTER_SCALAR


def _is_closed(text: bytes) -> bool:
    """Whether a JSON string has its closing quote."""
    if len(text) < 2 or text[-1] != _QUOTE:
        return False
    escapes = len(text) - 1 - len(text[:-1].rstrip(b"\\"))
    return escapes % 2 == 0


def boundary(ends: Sequence[int], site: Site) -> int:
    """How many tokens of an output come before a site was decided.

    Args:
        ends: offsets at which the output's tokens end.
        site: the site.

    Returns:
        The number of tokens after which, for the last time, every alternative was still possible.
    """
    first, last = site.texts[0], site.texts[-1]  # sorted, so these have the shortest prefix
    shared = 0
    while shared < min(len(first), len(last)) and first[shared] == last[shared]:
        shared += 1
    return sum(end <= site.start + shared for end in ends)
