"""Output types as bytes, and read again: to be sent to another process, or kept.

A frame (`_MAGIC`, the version, a digest) around JSON: nothing in it is code, and reading it runs
none. What is kept is the grammar, exactly, and the type's name; what is not are the user's classes
and validators, so that what is read gives plain values: what `json.loads` gives for JSON, text for
all else. Compiles nothing: who reads compiles, within limits of its own. `written_regex` has the
form of regular expressions.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from structgen.errors import CompileLimitExceeded, OutputTypeError
from structgen.grammar import ir

from . import written_regex
from .schemas import JsonSchema
from .user import OutputType
from .wrappers import lower_schema
from .written_regex import Sets, malformed

MAX_BYTES = 64 * 1024 * 1024
"""Most bytes that are read."""

_MAGIC = b"structgen constraint "
_VERSION = 1
_LIMITS = ("max_work", "max_mask_work", "max_memory_bytes")
"""Options that are not kept: who reads says what a call may do."""

_FLAGS = re.IGNORECASE | re.MULTILINE | re.DOTALL | re.VERBOSE | re.ASCII | re.UNICODE


@dataclass(frozen=True, slots=True)
class Written:
    """What bytes say.

    Attributes:
        output: the output type; it parses to plain values.
        options: of `structgen.compile`.
        vocabulary_uid: of the one vocabulary that its grammar is for; None: it is for any.
    """

    output: OutputType
    options: dict[str, Any]
    vocabulary_uid: str | None


def write(output: OutputType, options: Mapping[str, Any], vocabulary_uid: str) -> bytes:
    """An output type as bytes.

    Args:
        output: the type, fitted to its vocabulary if it has to be.
        options: of `structgen.compile`.
        vocabulary_uid: of the vocabulary it is compiled for.

    Raises:
        OutputTypeError: a part of it cannot be written as JSON.
        CompileLimitExceeded: it is nested too deeply.
    """
    sets = Sets()
    try:
        grammar = _write(output.grammar, sets)
        content = {
            "name": output.name,
            "for": None if output.fitted is None else vocabulary_uid,
            "options": {name: one for name, one in options.items() if name not in _LIMITS},
            "grammar": grammar,
            "sets": sets.rows,
        }
        body = json.dumps(content, allow_nan=False, separators=(",", ":"), default=_plain).encode()
    except RecursionError:
        raise _too_deep() from None
    except (TypeError, ValueError) as error:
        raise OutputTypeError(f"{output.name} cannot be written as bytes: {error}.") from error
    return b"%s%d\n%s\n%s" % (_MAGIC, _VERSION, _digest(body), body)


def read(data: bytes) -> Written:
    """What `write` has written.

    Raises:
        TypeError: ``data`` is no bytes.
        OutputTypeError: it is something else, of another version, cut short or changed.
        CompileLimitExceeded: it is more than `MAX_BYTES`, or nested too deeply.
    """
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(f"a constraint is read from bytes, got {type(data).__name__}.")
    if len(data) > MAX_BYTES:
        raise CompileLimitExceeded(
            "the bytes of a constraint are too many", limit=MAX_BYTES, actual=len(data)
        )
    version, digest, body = _unframed(bytes(data))
    if version != b"%d" % _VERSION:
        shown = version[:20].decode("ascii", "replace")
        raise OutputTypeError(
            f"the bytes are a constraint of version {shown!r}, and this structgen reads version "
            f"{_VERSION}. Write them again, with to_bytes() of this version."
        )
    if _digest(body) != digest:
        raise OutputTypeError(
            "the bytes of the constraint were cut short or changed on their way. Read all that "
            "to_bytes() gave."
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
            "the bytes are no constraint: they begin with something else than "
            f"{_MAGIC.decode()!r}. Pass what Constraint.to_bytes() gave."
        )
    if not newline and head[len(_MAGIC) :] in (b"", b"%d" % _VERSION):
        raise OutputTypeError("the bytes of the constraint were cut short.")
    return head[len(_MAGIC) :], digest, body


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no part of JSON")


def _too_deep() -> CompileLimitExceeded:
    return CompileLimitExceeded("the constraint is nested too deeply", limit=1000, actual=1001)


# -- writing ----------------------------------------------------------------------------------


def _write(grammar: ir.Grammar, sets: Sets) -> Any:
    match grammar:
        case ir.Pattern(regex, source):
            return ["pattern", written_regex.write(regex, sets), source]
        case ir.Choice(texts):
            return ["choice", *texts]
        case ir.Json(schema, options):
            return ["json", schema, dict(options)]
        case ir.Either(parts):
            return ["either", *(_write(part, sets) for part in parts)]
        case ir.Sequence(parts):
            return ["sequence", *(_write(part, sets) for part in parts)]
        case ir.ContextFree(terminals, names, rules, start, ignore):
            found = [_write_terminal(terminal, sets) for terminal in terminals]
            lines = [[left, *right] for left, right in rules]
            return ["rules", found, list(names), lines, start, list(ignore)]


def _write_terminal(terminal: ir.AnyTerminal, sets: Sets) -> Any:
    match terminal:
        case ir.Terminal(name, pattern, flags, splits):
            return ["terminal", name, pattern, int(flags), splits]
        case ir.Embedded(name, grammar):
            return ["embedded", name, _write(grammar, sets)]
        case ir.SpecialToken(text, place):
            return ["token", text, place]


# -- reading ----------------------------------------------------------------------------------


def _content(content: Any) -> Written:
    match content:
        case {
            "name": str(name),
            "for": str() | None as uid,
            "options": dict(options),
            "grammar": grammar,
            "sets": sets,
        }:
            pass
        case _:
            raise malformed("an output type")
    for limit in _LIMITS:
        if limit in options:
            raise malformed("an option that is kept")
    read = _read(grammar, written_regex.read_sets(sets))
    return Written(_output(read, name, uid is not None), options, uid)


def _output(grammar: ir.Grammar, name: str, is_fitted: bool) -> OutputType:
    def fitted(_: Collection[str]) -> OutputType:
        return made  # it has been

    parse: Callable[[str], Any] = str
    if isinstance(grammar, ir.Json):
        options = grammar.options
        schema = JsonSchema(grammar.schema, options.get("dialect"), options.get("documents"))
        parse = lower_schema(schema).parse
    made = OutputType(grammar, parse, name, fitted=fitted if is_fitted else None)
    return made


def _read(data: Any, sets: list[ir.CharSet], inside: bool = False) -> ir.Grammar:
    match data:
        case ["pattern", regex, str(source)]:
            return ir.Pattern(written_regex.read(regex, sets), source)
        case ["choice", *texts] if texts and len(set(map(_text, texts))) == len(texts):
            return ir.Choice(tuple(texts))
        case ["json", schema, dict(options)] if options.keys() <= {"dialect", "documents"}:
            # Looks at all that a schema of a user's is looked at for.
            checked = JsonSchema(schema, options.get("dialect"), options.get("documents"))
            return ir.Json(checked.shared, checked.options)
        case ["either" | "sequence", _, *_]:
            parts = tuple([_read(part, sets, inside) for part in data[1:]])
            return ir.Either(parts) if data[0] == "either" else ir.Sequence(parts)
        case ["rules", list(terminals), list(names), list(rules), start, list(ignore)]:
            if not inside:
                return _rules(terminals, names, rules, start, ignore, sets)
    raise malformed("a grammar")


def _rules(
    terminals: list[Any],
    names: list[Any],
    rules: list[Any],
    start: Any,
    ignore: list[Any],
    sets: list[ir.CharSet],
) -> ir.ContextFree:
    found = tuple([_terminal(terminal, sets) for terminal in terminals])
    lines: dict[tuple[int, tuple[int, ...]], None] = {}
    for line in rules:
        match line:
            case [left, *right]:
                symbols = tuple([_index(symbol, -len(names), len(found)) for symbol in right])
                lines[_index(left, 0, len(names)), symbols] = None
            case _:
                raise malformed("a rule")
    ignored = tuple([_index(terminal, 0, len(found)) for terminal in ignore])
    first = _index(start, 0, len(names))
    return ir.ContextFree(found, tuple(map(_text, names)), tuple(lines), first, ignored)


def _terminal(data: Any, sets: list[ir.CharSet]) -> ir.AnyTerminal:
    match data:
        case ["terminal", str(name), str(pattern), int(flags), bool(splits)]:
            if not isinstance(flags, bool) and not flags & ~_FLAGS:
                return ir.Terminal(_text(name), _text(pattern), flags, splits)
        case ["embedded", str(name), grammar]:
            return ir.Embedded(_text(name), _read(grammar, sets, inside=True))
        case ["token", str(text), str(place)]:
            return ir.SpecialToken(_text(text), place)
    raise malformed("a terminal")


def _index(value: Any, least: int, end: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < end:
        raise malformed("the number of a symbol")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or any(0xD800 <= ord(character) < 0xE000 for character in value):
        raise malformed("a text")
    return value
