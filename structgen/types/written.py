"""Write output types as bytes and read them again, to send them to another process or store them.

The bytes are a frame (`_MAGIC`, the version, a digest) around JSON. They contain no code, and
reading runs none. They contain the exact grammar and the type's name, but not the user's classes
and validators, so a type that was read parses to plain values: the result of `json.loads` for JSON,
text for everything else. Compiles nothing: the reader compiles, within its own limits.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

from structgen.automaton.json import ReadLimits
from structgen.errors import CompileLimitExceeded, OutputTypeError, check_limit
from structgen.grammar import ir
from structgen.grammar.regex import algebra, may_be_empty, tree
from structgen.storage.user_folder import n_values

from .captures import Capturing
from .schemas import JsonSchema
from .user import OutputType
from .wrappers import lower_schema

MAX_BYTES = 16 * 1024 * 1024
"""The most bytes that `read` accepts."""

MAX_VALUES = 1_000_000
"""The most values in the bytes: a value of two or three bytes takes 200 bytes of memory."""

_MAGIC = b"structgen constraint "
_VERSION = 5
_LIMITS = ReadLimits.__optional_keys__


@dataclass(frozen=True, slots=True)
class Written:
    """The contents of the bytes.

    Attributes:
        output: the output type; it parses to plain values.
        options: the options of `structgen.compile`.
        vocabulary_uid: the uid of the only vocabulary for which the grammar is; None: any.
    """

    output: OutputType
    options: dict[str, Any]
    vocabulary_uid: str | None


def write(output: OutputType, options: Mapping[str, Any], vocabulary_uid: str) -> bytes:
    """Return an output type as bytes.

    Args:
        output: the type, fitted to its vocabulary if necessary.
        options: the options of `structgen.compile`.
        vocabulary_uid: the uid of the vocabulary for which it is compiled.

    Raises:
        OutputTypeError: a part of it cannot be written as JSON.
        CompileLimitExceeded: it is nested too deeply.
    """
    writer = _Writer()
    try:
        grammar = writer.write(output.grammar)
        content = {
            "name": output.name,
            "for": None if output.fitted is None else vocabulary_uid,
            "options": {name: one for name, one in options.items() if name not in _LIMITS},
            "grammar": grammar,
            "sets": writer.sets,
        }
        body = json.dumps(content, allow_nan=False, separators=(",", ":"), default=_plain).encode()
    except RecursionError:
        raise _too_deep() from None
    except (TypeError, ValueError) as error:
        raise OutputTypeError(f"{output.name} cannot be written as bytes: {error}.") from error
    return b"%s%d\n%s\n%s" % (_MAGIC, _VERSION, _digest(body), body)


def read(data: bytes) -> Written:
    """Read the bytes of `write`.

    Raises:
        TypeError: ``data`` is not bytes.
        OutputTypeError: not the bytes of an output type, or another version, truncated or changed.
        CompileLimitExceeded: more than `MAX_BYTES` or `MAX_VALUES`, or nested too deeply.
    """
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"a constraint must be read from bytes, got {type(data).__name__}.")
    check_limit(len(data), MAX_BYTES, "the constraint has too many bytes")
    data = bytes(data)
    check_limit(n_values(data), MAX_VALUES, "the constraint has too many values")
    version, digest, body = _unframed(data)
    if version != b"%d" % _VERSION:
        shown = version[:20].decode("ascii", "replace")
        raise OutputTypeError(
            f"the constraint has the format version {shown!r}, but this structgen reads version "
            f"{_VERSION}. Write it again with to_bytes() of this structgen version."
        )
    if _digest(body) != digest:
        raise OutputTypeError(
            "the bytes of the constraint were truncated or changed. Pass everything that "
            "to_bytes() returned."
        )
    try:
        return _content(json.loads(body))
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:  # of json
        raise OutputTypeError(f"the bytes of the constraint are malformed: {error}.") from error


def _unframed(data: bytes) -> tuple[bytes, bytes, bytes]:
    head, _, rest = data.partition(b"\n")
    digest, newline, body = rest.partition(b"\n")
    if not head.startswith(_MAGIC):
        raise OutputTypeError(
            f"the bytes are not a constraint: they do not begin with {_MAGIC.decode()!r}. Pass "
            "the bytes that Constraint.to_bytes() returned."
        )
    if not newline and head[len(_MAGIC) :] in (b"", b"%d" % _VERSION):
        raise OutputTypeError("the bytes of the constraint were truncated.")
    return head[len(_MAGIC) :], digest, body


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def _too_deep() -> CompileLimitExceeded:
    return CompileLimitExceeded("the constraint is nested too deeply", limit=1000, actual=1001)


# -- writing ----------------------------------------------------------------------------------


_NODES: dict[str, type] = {
    name: node for name, node in vars(ir).items() if isinstance(node, type) and is_dataclass(node)
}
"""The nodes of the grammar IR: a node is written as its name and its fields."""


# Placeholders for the types of regular expressions, grammars and terminals.
_Regex, _Grammar, _Terminal = (type(name, (), {}) for name in ("Regex", "Grammar", "Terminal"))
_KINDS: dict[type, Collection[str]] = {
    _Grammar: ("Pattern", "Choice", "Json", "ContextFree", "Either", "Sequence", "Times"),
    _Terminal: ("Terminal", "Embedded", "SpecialToken"),
    ir.Capture: ("Capture",),
}
_KINDS[_Regex] = _NODES.keys() - {"CharSet", *itertools.chain.from_iterable(_KINDS.values())}


class _Writer:
    """Writes values of the grammar IR.

    Character sets are stored once in a table and referred to by index; sequences of characters are
    strings.
    """

    def __init__(self) -> None:
        self.sets: list[list[int]] = []
        self._numbers: dict[ir.Ranges, int] = {}

    def write(self, value: Any) -> Any:
        if isinstance(value, ir.CharSet):
            number = self._numbers.setdefault(value.ranges, len(self.sets))
            if number == len(self.sets):
                self.sets.append([end for one in value.ranges for end in one])
            return number
        if isinstance(value, tuple):
            return [self.write(part) for part in value]
        if isinstance(value, ir.Json):
            return ["Json", value.schema, dict(value.options)]
        if isinstance(value, ir.Concat):
            return ["Concat", self._joined(value.parts)]
        if not is_dataclass(value):
            return value
        name = type(value).__name__
        return [name, *(self.write(getattr(value, field)) for field in _written(name))]

    def _joined(self, parts: tuple[ir.Regex, ...]) -> list[Any]:
        out: list[Any] = [""]
        for part in parts:
            if isinstance(part, ir.CharSet) and len(part.ranges) == 1:
                low, high = part.ranges[0]
                if low == high:
                    out[-1] += chr(low)
                    continue
            out += [self.write(part), ""]
        return [part for part in out if part != ""]


# -- reading ----------------------------------------------------------------------------------


def _content(content: Any) -> Written:
    match content:
        case {
            "name": str(name),
            "for": str() | None as uid,
            "options": dict(options),
            "grammar": grammar,
            "sets": list(sets),
        }:
            _check(options.keys().isdisjoint(_LIMITS), "an option that is kept")
        case _:
            raise _malformed("an output type")
    read = _Reader(sets).node(grammar, _Grammar)
    return Written(_output(read, name, uid is not None), options, uid)


def _output(grammar: ir.Grammar, name: str, is_fitted: bool) -> OutputType:
    parse: Callable[[str], Any] = str
    if isinstance(grammar, ir.Json):
        options = grammar.options
        schema = JsonSchema(grammar.schema, **options)
        parse = lower_schema(schema).parse
    elif isinstance(grammar, ir.ContextFree) and grammar.captures:
        parse = Capturing(grammar, name)
    made: OutputType
    made = OutputType(grammar, parse, name, fitted=(lambda _: made) if is_fitted else None)
    return made  # it has been fitted


class _Reader:
    """Reads nodes and checks them by the types of their fields: the data is untrusted.

    Uses the constructors that reading patterns and schemas uses, so the result is no larger and no
    stranger than that of a pattern as long as the data.
    """

    def __init__(self, sets: list[Any]) -> None:
        self._sets = [self._set(self.field(row, tuple[int, ...])) for row in sets]

    def node(self, data: Any, kind: type) -> Any:
        """Return a node of a kind."""
        if kind is _Regex and type(data) is int:
            return self.field(data, ir.CharSet)
        name, *values = data if isinstance(data, list) and data else [None]
        if not isinstance(name, str) or name not in _KINDS[kind]:
            raise _malformed("a part of a grammar")
        if name == "Concat":
            return tree.concat(self._joined(values))
        hints = _hints(name)
        _check(len(values) == len(hints), f"a {name}")
        _check(values != [[]] or name == "Alternate", f"a part of a {name}")
        return _MADE.get(name, _NODES[name])(*map(self.field, values, hints))

    def field(self, data: Any, hint: Any) -> Any:
        """Return a value of a type that fields have."""
        if hint is ir.CharSet:
            _check(0 <= self.field(data, int) < len(self._sets), "a set of characters")
            return self._sets[data]
        if hint in _KINDS:
            return self.node(data, hint)
        inner = get_args(hint)
        if get_origin(hint) is tuple:
            _check(isinstance(data, list), "a list")
            hints = [inner[0]] * len(data) if inner[1] is ... else inner
            _check(len(data) == len(hints), "a list of as many")
            return tuple(map(self.field, data, hints))
        if _Regex in inner and not isinstance(data, str):  # a terminal's, or its source
            return self.node(data, _Regex)
        _check(hint is Any or type(data) in (inner or (hint,)), "a value of another type")
        if isinstance(data, str):
            _check(not re.search("[\ud800-\udfff]", data), "a text")
        return data

    def _set(self, ends: tuple[int, ...]) -> ir.CharSet:
        _check(len(ends) % 2 == 0, "a set of characters")
        _check(0 <= min(ends, default=0) <= max(ends, default=0) <= ir.MAX_CODE_POINT, "characters")
        return ir.char_set(list(zip(ends[::2], ends[1::2], strict=True)))

    def _joined(self, values: list[Any]) -> Iterator[ir.Regex]:
        _check(len(values) == 1 and isinstance(values[0], list), "a list")
        for part in values[0]:
            if isinstance(part, str):
                yield from [ir.character(ord(character)) for character in self.field(part, str)]
            else:
                yield self.node(part, _Regex)


@functools.cache
def _hints(name: str) -> list[Any]:
    """Return the types of a node's written fields."""
    names = {"Regex": _Regex, "Grammar": _Grammar, "AnyTerminal": _Terminal}
    hints = get_type_hints(_NODES[name], None, names)
    written = [hints[field] for field in _written(name)]
    return [dict if get_origin(hint) is Mapping else hint for hint in written]


@functools.cache
def _written(name: str) -> list[str]:
    """Return the written fields of a node: all except the key of the grammar store."""
    return [field.name for field in fields(_NODES[name]) if field.name != "key"]


def _repeat(body: ir.Regex, least: int, most: int | None) -> ir.Regex:
    _check(least >= 0 and (most is None or least <= most), "a number in its bounds")
    return tree.repeat(body, least, most)


def _times(part: ir.Grammar, least: int, most: int | None) -> ir.Times:
    _check(least >= 0 and (most is None or least <= most), "a number in its bounds")
    return ir.Times(part, least, most)


def _checksum(
    modulus: int,
    steps: tuple[tuple[tuple[int, ir.CharSet], ...], ...],
    between: ir.CharSet,
    gaps: tuple[int, ...],
    count: int,
) -> ir.Checksum:
    numbers = [modulus - 2, count, *(number for step in steps for number, _ in step), *gaps]
    _check(min(numbers) >= 0 and sorted(set(gaps)) == list(gaps), "a checksum")
    _check(count <= len(gaps) and max(gaps, default=-1) < len(steps), "a checksum")
    return ir.Checksum(modulus, steps, between, gaps, count)


def _quote(document: str, unit: str, least: int, most: int | None, *options: bool) -> ir.Quote:
    quoted = algebra.lower(["quote", document, unit, least, most, *options])
    assert isinstance(quoted, ir.Quote)
    return quoted


def _choice(texts: tuple[str, ...]) -> ir.Choice:
    _check(len(texts) == len(set(texts)), "texts that differ")
    return ir.Choice(texts)


def _json(schema: Any, options: dict[str, Any]) -> ir.Json:
    own = {"spelling": options.pop("spelling")} if options.get("spelling") == "python" else {}
    _check(options.keys() <= {"dialect", "documents", "closed"}, "an option of a schema")
    # Runs all checks of a user's schema.
    checked = JsonSchema(schema, **options)
    return ir.Json(checked.shared, {**checked.options, **own})


def _context_free(
    terminals: tuple[ir.AnyTerminal, ...],
    names: tuple[str, ...],
    rules: tuple[tuple[int, tuple[int, ...]], ...],
    start: int,
    ignore: tuple[int, ...],
    captures: tuple[ir.Capture, ...],
) -> ir.ContextFree:
    lefts, known = [start, *(left for left, _ in rules)], range(-len(names), len(terminals))
    _check(all(0 <= left < len(names) for left in lefts), "the number of a rule")
    _check(all(symbol in known for _, right in rules for symbol in right), "a symbol's number")
    _check(all(0 <= terminal < len(terminals) for terminal in ignore), "a terminal's number")
    _check(all(0 <= one.nonterminal < len(names) for one in captures), "what captures")
    return ir.ContextFree(terminals, names, tuple(dict.fromkeys(rules)), start, ignore, captures)


def _terminal(name: str, pattern: str | ir.Regex) -> ir.Terminal:
    if isinstance(pattern, str):
        is_empty = may_be_empty(pattern)
    else:
        for node in ir.nodes(pattern):
            plain = (ir.CharSet, ir.Concat, ir.Alternate, ir.Repeat)
            _check(isinstance(node, plain), "a regular expression without assertions")
        is_empty = tree.is_nullable(pattern)
    _check(not is_empty, "a terminal that is not empty")
    return ir.Terminal(name, pattern)


def _embedded(
    name: str, grammar: ir.Grammar, max_tokens: int | None, temperature: float | None
) -> ir.Embedded:
    _check(not ir.has_rules(grammar), "no grammar in a grammar")
    _check(max_tokens is None or isinstance(grammar, ir.Pattern), "a pattern with a limit")
    _check(max_tokens is None or max_tokens > 0, "a number of tokens")
    _check(temperature is None or 0 <= temperature < math.inf, "a temperature")
    return ir.Embedded(name, grammar, max_tokens, temperature)


_MADE: dict[str, Callable[..., Any]] = {
    "Alternate": tree.alternate,
    "Repeat": _repeat,
    "Complement": tree.complement,
    "Checksum": _checksum,
    "Quote": _quote,
    "Choice": _choice,
    "Times": _times,
    "Json": _json,
    "ContextFree": _context_free,
    "Terminal": _terminal,
    "Embedded": _embedded,
}
"""Constructors of nodes for which not every value of a field is valid."""


def _check(holds: bool, what: str) -> None:
    if not holds:
        raise _malformed(what)


def _malformed(what: str) -> OutputTypeError:
    """Return the error for anything other than ``what``."""
    return OutputTypeError(
        f"the bytes of the constraint are malformed: expected {what} but found something else. "
        "Constraint.to_bytes() did not write them."
    )
