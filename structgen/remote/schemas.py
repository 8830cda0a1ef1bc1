"""A JSON Schema in a form that a server reads, with a list of what is left out.

There are two rewritings. For servers that read any schema, our own keywords become patterns or are
dropped. For OpenAI's strict mode, the schema is brought into its subset: objects are closed, all
members required, an optional one may be null instead (`structgen.remote.reading` removes such a
null again if the type does not allow it), ``oneOf`` becomes ``anyOf``, tuples become arrays.
Everything left out is listed. A schema that would lose its structure is refused.

`CannotSay` is raised by the two writers for regular expressions and grammars of the IR: the plain
syntax that all engines share (characters, classes, groups, ``|``, repeats), and GBNF, which
llama.cpp, vLLM and SGLang read. What neither can express (complements, lookarounds, checksums) is
refused; nothing is approximated without saying so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from structgen.errors import OutputTypeError
from structgen.grammar import ir
from structgen.grammar import regex as regexes
from structgen.grammar.json_schema import ANNOTATIONS, DIGITS_ONLY, child_path, rewritten

from .dialects import Dialect

_PLAIN_SPECIAL = frozenset(".^$*+?()[]{}|\\/")
_CLASS_SPECIAL = frozenset("[]^-\\")
_NAMED = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}

_SCALARS = {
    "integer": r"-?(?:0|[1-9][0-9]{0,19})",
    "number": r"-?(?:0|[1-9][0-9]{0,19})(?:\.[0-9]{1,20})?",
    "boolean": "true|false",
    "null": "null",
}
"""Bare scalars in JSON, in a narrower form than JSON allows, so all texts are valid."""


class CannotSay(Exception):
    """The notation cannot express this."""


def as_pattern(grammar: ir.Grammar) -> str:
    """Return the texts of a grammar as one regular expression for a full match.

    Raises:
        CannotSay: it has rules, or a part that plain regular expressions cannot express.
    """
    return pattern_of(regex_of(grammar))


def regex_of(grammar: ir.Grammar) -> ir.Regex:
    """Return the regular expression for a regular grammar.

    Raises:
        CannotSay: it is not regular, or is JSON other than a bare scalar.
    """
    if isinstance(grammar, ir.Pattern):
        return grammar.regex
    if isinstance(grammar, ir.Choice):
        texts = tuple(map(ir.literal, grammar.texts))
        return texts[0] if len(texts) == 1 else ir.Alternate(texts)
    if isinstance(grammar, ir.Either):
        return ir.Alternate(tuple(map(regex_of, grammar.parts)))
    if isinstance(grammar, ir.Sequence):
        return ir.Concat(tuple(map(regex_of, grammar.parts)))
    if isinstance(grammar, ir.Times):
        return ir.Repeat(regex_of(grammar.part), grammar.least, grammar.most)
    if isinstance(grammar, ir.Json):
        return _scalar(grammar.schema)
    raise CannotSay("a grammar")


def _scalar(schema: Any) -> ir.Regex:
    kind = schema.get("type") if isinstance(schema, dict) else None
    if isinstance(kind, str) and kind in _SCALARS and not set(schema) - _SAYS_NOTHING:
        return regexes.parse_python(_SCALARS[kind])
    raise CannotSay("JSON inside text")


_SAYS_NOTHING = {"type", "title", "description", "default", "examples", "$structgen-digits"}


def pattern_of(regex: ir.Regex) -> str:
    """Return a regular expression in plain syntax.

    Raises:
        CannotSay: a part has no such syntax.
    """
    writer = _PatternWriter(
        lambda text: "".join(_character(c, _PLAIN_SPECIAL) for c in text),
        lambda chars: _class(chars, r"[\s\S]", lambda char: _character(char, _CLASS_SPECIAL)),
        group="(?:{})",
        between="",
    )
    return writer.whole(regex)


@dataclass(frozen=True)
class _PatternWriter:
    """Writes expressions in one notation.

    Attributes:
        literal: writes a run of characters.
        one_of: writes a set of characters that is not a single one.
        group: puts an expression into parentheses.
        between: what stands between two expressions in a row.
    """

    literal: Callable[[str], str]
    one_of: Callable[[ir.CharSet], str]
    group: str
    between: str

    def whole(self, regex: ir.Regex) -> str:
        """Write an expression that may be an alternation."""
        if isinstance(regex, ir.Alternate):
            if not regex.parts:
                raise CannotSay("a part that no text matches")
            return (self.between + "|" + self.between).join(map(self._in_a_row, regex.parts))
        return self._in_a_row(regex)

    def _in_a_row(self, regex: ir.Regex) -> str:
        if isinstance(regex, ir.Alternate):
            return self.group.format(self.whole(regex))
        if not isinstance(regex, ir.Concat):
            return self._item(regex)
        out: list[str] = []
        run = ""
        for part in _flat(regex):
            single = _single(part)
            if single is not None:
                run += single
                continue
            if run:
                out.append(self.literal(run))
                run = ""
            out.append(self._item(part))
        if run or not out:
            out.append(self.literal(run))
        return self.between.join(out)

    def _item(self, regex: ir.Regex) -> str:
        """Write an expression that a repeat may follow."""
        single = _single(regex)
        if single is not None:
            return self.literal(single)
        if isinstance(regex, ir.CharSet):
            if not regex.ranges:
                raise CannotSay("a part that no text matches")
            return self.one_of(regex)
        if isinstance(regex, ir.Repeat):
            body = regex.body
            if isinstance(body, ir.CharSet) or _single(body) is not None:
                inner = self._item(body)
            else:
                inner = self.group.format(self.whole(body))
            return inner + _times(regex.min, regex.max)
        if isinstance(regex, (ir.Concat, ir.Alternate)):
            return self.group.format(self.whole(regex))
        raise CannotSay(_CALLED[type(regex)])


_CALLED: dict[type, str] = {
    ir.Intersect: "an intersection",
    ir.Complement: "a complement",
    ir.Checksum: "a checksum",
    ir.Quote: "a quote",
    ir.StartAnchor: "an anchor inside",
    ir.EndAnchor: "an anchor inside",
    ir.Lookahead: "a lookahead",
    ir.Lookbehind: "a lookbehind",
}


def _flat(regex: ir.Concat) -> Sequence[ir.Regex]:
    out: list[ir.Regex] = []
    for part in regex.parts:
        if isinstance(part, ir.Concat):
            out += _flat(part)
        else:
            out.append(part)
    return out


def _single(regex: ir.Regex) -> str | None:
    """Return the only character of a set; None: it is not a set of one."""
    if isinstance(regex, ir.CharSet) and len(regex.ranges) == 1:
        low, high = regex.ranges[0]
        if low == high:
            return chr(low)
    return None


def _times(least: int, most: int | None) -> str:
    if (least, most) == (0, None):
        return "*"
    if (least, most) == (1, None):
        return "+"
    if (least, most) == (0, 1):
        return "?"
    if most is None:
        return f"{{{least},}}"
    return f"{{{least}}}" if least == most else f"{{{least},{most}}}"


def _character(char: str, special: frozenset[str]) -> str:
    if char in _NAMED:
        return _NAMED[char]
    if ord(char) < 32 or ord(char) == 127:
        return f"\\x{ord(char):02x}"
    return f"\\{char}" if char in special else char


def _class(chars: ir.CharSet, every: str, write: Callable[[str], str]) -> str:
    """Write a set of characters, negated if it is open; ``every``: matches all characters."""
    others = ir.negate(chars)
    if not others.ranges:
        return every
    if chars.ranges[-1][1] == ir.MAX_CODE_POINT:
        return f"[^{_ranges(others, write)}]"
    return f"[{_ranges(chars, write)}]"


def _ranges(chars: ir.CharSet, write: Callable[[str], str]) -> str:
    out = []
    for low, high in chars.ranges:
        out.append(write(chr(low)))
        if high > low:
            out.append(("-" if high > low + 1 else "") + write(chr(high)))
    return "".join(out)


# -- GBNF -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gbnf:
    """A grammar in GBNF.

    Attributes:
        text: the grammar.
        is_exact: whether it derives the same texts; otherwise it derives these and more.
    """

    text: str
    is_exact: bool


def as_gbnf(grammar: ir.Grammar) -> Gbnf:
    """Return the texts of a grammar in GBNF.

    Raises:
        CannotSay: a part cannot be expressed.
    """
    if isinstance(grammar, ir.ContextFree):
        return _rules(grammar)
    return Gbnf(f"root ::= {_gbnf(regex_of(grammar))}\n", is_exact=True)


def _gbnf(regex: ir.Regex) -> str:
    def one(char: str) -> str:
        return f"\\x{ord(char):02x}" if char in "^-[]\\" else _character(char, frozenset())

    writer = _PatternWriter(
        lambda text: '"' + "".join(_character(c, frozenset('"\\')) for c in text) + '"',
        # GBNF cannot express all characters, and this one is in no text.
        lambda chars: _class(chars, r"[^\x00]", one),
        group="({})",
        between=" ",
    )
    return writer.whole(regex)


def _rules(grammar: ir.ContextFree) -> Gbnf:
    is_exact = not grammar.ignore
    written: list[str] = []
    for terminal in grammar.terminals:
        if not isinstance(terminal, ir.Terminal):
            raise CannotSay(f"{terminal.name}, a text of another type or a special token, inside")
        pattern = terminal.pattern
        is_language = not isinstance(pattern, str)
        regex = regexes.parse_python(pattern) if isinstance(pattern, str) else pattern
        is_text = isinstance(regex, ir.Concat) and all(map(_single, _flat(regex)))
        is_exact = is_exact and (is_language or is_text or _single(regex) is not None)
        written.append(f"({_gbnf(regex)})")
    gap = "gap" if grammar.ignore else ""
    names = [
        ("start" if gap else "root") if n == grammar.start else f"r{n}-{_ascii(name)}".rstrip("-")
        for n, name in enumerate(grammar.nonterminals)
    ]
    ways: dict[int, list[str]] = {}
    for number, symbols in grammar.rules:
        row = [f"{written[s]} {gap}".strip() if s >= 0 else names[~s] for s in symbols]
        ways.setdefault(number, []).append(" ".join(row) or '""')
    order = sorted(ways, key=lambda n: n != grammar.start)
    lines = [f"{names[n]} ::= {' | '.join(ways[n])}" for n in order]
    if gap:
        ignored = " | ".join(written[i] for i in grammar.ignore)
        lines = ["root ::= gap start", *lines, f"gap ::= ({ignored})*"]
    return Gbnf("\n".join(lines) + "\n", is_exact)


def _ascii(name: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in name).strip("-")


def is_left_recursive(grammar: ir.Grammar) -> bool:
    """Return whether a rule begins with itself, which llama.cpp does not support."""
    if not isinstance(grammar, ir.ContextFree):
        return False
    empty: set[int] = set()
    while True:
        found = {n for n, symbols in grammar.rules if all(s < 0 and ~s in empty for s in symbols)}
        if found <= empty:
            break
        empty |= found
    first: dict[int, set[int]] = {}
    for number, symbols in grammar.rules:
        for symbol in symbols:
            if symbol >= 0:
                break
            first.setdefault(number, set()).add(~symbol)
            if ~symbol not in empty:
                break
    try:
        TopologicalSorter(first).prepare()
    except CycleError:
        return True
    return False


_REGEX = regexes.algebra.KEYWORD

_NOT_ASSERTIONS = ANNOTATIONS.union(
    ("$schema", "$id", "$comment", "$defs", "definitions", "discriminator", "$ref")
)
_STRICT_KEPT = frozenset(
    (
        *("type", "description", "title", "$ref", "enum", "multipleOf", "maximum", "minimum"),
        *("exclusiveMaximum", "exclusiveMinimum", "minItems", "maxItems"),
    )
)
_STRICT_FORMATS = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
)
_SPECIAL = re.compile(r"\(\?(?!:)|\\[bBpPkAZz1-9]")
"""Syntax that not all servers read in patterns: assertions, references, classes by property."""


@dataclass(frozen=True)
class SentSchema:
    """A schema as it is sent.

    Attributes:
        schema: it.
        left_out: paths and keywords of the type's schema that it does not express, or not fully.
        is_wrapped: whether the value is the member ``value`` of an object.
        has_nulls: whether an optional member may be null instead of missing.
    """

    schema: dict[str, Any]
    left_out: frozenset[tuple[str, str]]
    is_wrapped: bool
    has_nulls: bool


def sent_schema(schema: Any, dialect: Dialect, name: str) -> SentSchema:
    """Return the schema of an output type for a dialect.

    Raises:
        OutputTypeError: it cannot be expressed; the message has the path and the fix.
    """
    writer = _Writer(dialect, name, schema)
    sent = writer.schema(schema, "$")
    is_wrapped = dialect.needs_object and (sent.get("type") != "object" or "anyOf" in sent)
    if is_wrapped:
        sent = _wrapped(sent)
    return SentSchema(sent, frozenset(writer.left_out), is_wrapped, writer.has_nulls)


def text_schema(pattern: str | None, texts: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Return the schema of an object whose ``value`` is a text."""
    value: dict[str, Any] = {"type": "string"}
    if texts is not None:
        value["enum"] = list(texts)
    elif pattern is not None:
        value["pattern"] = f"^(?:{pattern})$"
    return _wrapped(value)


def _wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    root = {key: value for key, value in schema.items() if key not in ("$defs", "definitions")}
    hoisted: dict[str, Any] = {k: schema[k] for k in ("$defs", "definitions") if k in schema}
    sent: dict[str, Any] = {
        "type": "object",
        "properties": {"value": root},
        "required": ["value"],
        "additionalProperties": False,
        **hoisted,
    }
    _lead_into_wrapper(sent)
    return sent


def _lead_into_wrapper(value: Any) -> None:
    """Change references to the root, which is now inside the object."""
    if isinstance(value, list):
        for item in value:
            _lead_into_wrapper(item)
    elif isinstance(value, dict):
        target = value.get("$ref")
        if isinstance(target, str) and not target.startswith(("#/$defs/", "#/definitions/")):
            value["$ref"] = f"#/properties/value{target[1:]}"
        for item in value.values():
            _lead_into_wrapper(item)


class _Writer:
    def __init__(self, dialect: Dialect, name: str, root: Any) -> None:
        self._dialect = dialect
        self._name = name
        self._root = root
        self.left_out: set[tuple[str, str]] = set()
        self.has_nulls = False

    def schema(self, schema: Any, path: str) -> dict[str, Any]:
        """Rewrite one schema."""
        if self._dialect.is_subset:
            out = self._strict(schema, path)
            self._definitions(schema, path, out)
            return out
        sent = self._as_it_is(schema, path)
        return sent if isinstance(sent, dict) else ({} if sent else {"not": {}})

    def _refuse(self, what: str, path: str, fix: str) -> OutputTypeError:
        return OutputTypeError(
            f"{self._name} cannot be sent in the dialect {self._dialect.name!r}: {what}, at "
            f"{path}. {fix}"
        )

    def _check_reference(self, target: Any, path: str) -> None:
        if not isinstance(target, str) or not (target == "#" or target.startswith("#/")):
            raise self._refuse(
                f"the reference {target!r} points outside the schema or to an anchor",
                path,
                "Move its target into $defs, and write '#/$defs/NAME'.",
            )

    def _pattern(self, schema: Mapping[str, Any], path: str) -> str | None:
        """Return a schema's patterns as one; None if there is none or it is left out."""
        found = None
        if "pattern" in schema:
            found = schema["pattern"]
            if _SPECIAL.search(found):
                self.left_out.add((path, "pattern"))
                found = None
        if _REGEX in schema:
            try:
                if "pattern" in schema:
                    raise CannotSay("two patterns")
                found = f"^(?:{pattern_of(regexes.algebra.lower(schema[_REGEX]))})$"
            except CannotSay:
                self.left_out.add((path, "pattern"))
        return found

    # -- as it is ---------------------------------------------------------------------------

    def _as_it_is(self, schema: Any, path: str) -> Any:
        if not isinstance(schema, Mapping):
            return schema
        if "$ref" in schema:
            self._check_reference(schema["$ref"], path)
        unsaid = ("pattern", _REGEX, "$schema", DIGITS_ONLY)
        out = rewritten(
            {key: value for key, value in schema.items() if key not in unsaid},
            lambda part, *steps: self._as_it_is(part, child_path(path, *steps)),
        )
        known = {*self._dialect.keywords, *_NOT_ASSERTIONS}
        self.left_out |= {(path, key) for key in out if key not in known}
        pattern = self._pattern(schema, path)
        if pattern is not None:
            out["pattern"] = pattern
            if "pattern" not in self._dialect.keywords:
                self.left_out.add((path, "pattern"))
        return out

    # -- OpenAI's strict subset -------------------------------------------------------------

    def _strict(self, schema: Any, path: str) -> dict[str, Any]:
        if not isinstance(schema, Mapping):
            raise self._any(path)
        schema = self._merged(schema)
        out = {key: value for key, value in schema.items() if key in _STRICT_KEPT}
        if schema.get("format") in _STRICT_FORMATS:
            out["format"] = schema["format"]
        pattern = self._pattern(schema, path)
        if pattern is not None:
            out["pattern"] = pattern
        if "const" in schema:
            out["enum"] = [schema["const"]]
        for key in ("anyOf", "oneOf"):
            if isinstance(schema.get(key), list) and "anyOf" not in out:
                inside, parts = child_path(path, key), enumerate(schema[key])
                out["anyOf"] = [self._strict(part, f"{inside}[{i}]") for i, part in parts]
        kinds = schema.get("type")
        if _is_kind(kinds, "object") or (kinds is None and "properties" in schema):
            self._object(schema, path, out)
        if _is_kind(kinds, "array"):
            self._array(schema, path, out)
        if "$ref" in out:
            self._check_reference(out["$ref"], path)
            out = {"$ref": out["$ref"]}
        known = {*out, *_NOT_ASSERTIONS, "const", _REGEX, DIGITS_ONLY}
        if "type" not in out and "enum" in out:
            kinds = sorted({_type_of(value) for value in out["enum"]})
            out["type"] = kinds[0] if len(kinds) == 1 else kinds
        if not {"type", "anyOf", "$ref"} & out.keys():
            raise self._any(path)
        if _REGEX in schema and "pattern" not in out:
            self.left_out.add((path, "pattern"))
        self.left_out |= {(path, key) for key in schema if key not in known}
        self.left_out |= {(path, key) for key in ("prefixItems", "oneOf") if key in schema}
        return out

    def _definitions(self, schema: Any, path: str, out: dict[str, Any]) -> None:
        """Add the definitions that are referred to."""
        wanted = set(_references(out))
        done: set[str] = set()
        while wanted - done:
            for target in sorted(wanted - done):
                done.add(target)
                _, key, *rest = target.split("/") if "/" in target else ("", "")
                if key not in ("$defs", "definitions") or len(rest) != 1:
                    continue
                name = rest[0].replace("~1", "/").replace("~0", "~")
                part = schema.get(key, {}).get(name)
                if part is None:
                    raise self._refuse(f"the reference {target!r} cannot be resolved", path, "")
                made = self._strict(part, child_path(child_path(path, key), name))
                out.setdefault(key, {})[name] = made
                wanted |= set(_references(made))

    def _merged(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Merge an ``allOf`` of one part into the schema, unless they share a keyword."""
        parts = schema.get("allOf")
        if not isinstance(parts, list) or len(parts) != 1 or not isinstance(parts[0], Mapping):
            return schema
        rest = {key: value for key, value in schema.items() if key != "allOf"}
        if set(rest) & set(parts[0]) - {"description", "title", "default"}:
            return schema
        return {**parts[0], **rest}

    def _object(self, schema: Mapping[str, Any], path: str, out: dict[str, Any]) -> None:
        members = schema.get("properties") or {}
        inside = child_path(path, "properties")
        others = schema.get("additionalProperties", True)
        if not members and others is not False:
            raise self._refuse(
                "OpenAI's strict mode does not support objects with unknown property names",
                path,
                "Use a list of pairs, such as list[Entry] with a name and a value, or pass "
                "dialect='openai-non-strict': then the schema is a hint, and structgen checks the "
                "answer.",
            )
        required = schema.get("required") or ()
        missing = [name for name in required if name not in members]
        if missing:
            raise self._refuse(f"{missing[0]!r} is required but not in properties", path, "")
        out["type"] = schema.get("type", "object")
        out["properties"] = {}
        for name, part in members.items():
            sent = self._strict(part, child_path(inside, name))
            if name not in required:
                self.has_nulls = True
                if not self._takes_null(part):
                    sent = {"anyOf": [sent, {"type": "null"}]}
            out["properties"][name] = sent
        out["required"] = list(members)
        out["additionalProperties"] = False

    def _takes_null(self, schema: Any) -> bool:
        """Return whether a schema obviously allows null."""
        if not isinstance(schema, Mapping):
            return False
        if _is_kind(schema.get("type"), "null"):
            return True
        return any(map(self._takes_null, schema.get("anyOf", ())))

    def _array(self, schema: Mapping[str, Any], path: str, out: dict[str, Any]) -> None:
        items = schema.get("items", True)
        inside = child_path(path, "prefixItems")
        first = [
            self._strict(p, f"{inside}[{i}]") for i, p in enumerate(schema.get("prefixItems", ()))
        ]
        if items is not False and not (first and schema.get("maxItems") == len(first)):
            if isinstance(items, list):
                raise self._any(child_path(path, "items"))
            first.append(self._strict(items, child_path(path, "items")))
        elif first and items is False:
            out["maxItems"] = min(len(first), out.get("maxItems", len(first)))
        different: list[dict[str, Any]] = []
        for one in first:
            if one not in different:
                different.append(one)
        if not different:
            raise self._any(child_path(path, "items"))
        out["items"] = different[0] if len(different) == 1 else {"anyOf": different}

    def _any(self, path: str) -> OutputTypeError:
        return self._refuse(
            "OpenAI's strict mode requires the type of every value, but the schema does not give "
            "it",
            path,
            "Give it a type, or pass dialect='openai-non-strict': then the schema is a hint, and "
            "structgen checks the answer.",
        )


def _references(value: Any) -> Iterator[str]:
    """Yield the targets of a schema's references."""
    if isinstance(value, list):
        for item in value:
            yield from _references(item)
    elif isinstance(value, dict):
        target = value.get("$ref")
        if isinstance(target, str):
            yield target
        for item in value.values():
            yield from _references(item)


def _is_kind(kinds: Any, kind: str) -> bool:
    return kinds == kind or (isinstance(kinds, list) and kind in kinds)


def _type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if value is None:
        return "null"
    if isinstance(value, int):
        return "integer"
    return "number" if isinstance(value, float) else "string"
