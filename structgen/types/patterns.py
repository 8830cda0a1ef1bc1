r"""Patterns in Pydantic's types: those that its regex engine cannot read, and those that it can.

`OwnPatterns` removes patterns that Pydantic refuses from its schema, so that a validator can be
built. It checks them as the masks do, and puts them back into the JSON Schema, where a malformed
pattern raises an error with its place.

Pydantic searches other patterns of ``Field(pattern=...)`` with Rust's engine, whose ``\d``, ``\w``
and ``\s`` are Unicode's. `to_ecma` translates them to ECMA-262. Rust's engine matches everything
that the result matches; the result may match less: ``\d`` and ``\w`` mean ASCII, which a model
should write, but ``\D`` and ``[^\w]`` exclude all of Unicode's.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from typing import Any, cast

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, SchemaError, SchemaValidator, core_schema

from structgen.grammar import ir, regex
from structgen.grammar.regex import python as python_regex

KEPT = "structgen_pattern"
"""The key of a string schema's metadata that holds the pattern taken out."""

_NO_SCHEMAS = ("metadata", "serialization", "default", "expected", "config")


class OwnPatterns:
    """Marks a type, in `Annotated`, whose patterns Pydantic's engine may not support."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        schema = handler(source)
        seen: set[str] = set()
        todo: list[Any] = [schema]
        while todo:
            for node in core_nodes(todo.pop()):
                if node.get("type") == "definition-ref" and node["schema_ref"] not in seen:
                    seen.add(node["schema_ref"])
                    todo.append(handler.resolve_ref_schema(cast("CoreSchema", node)))
                if node.get("type") == "str" and isinstance(node.get("pattern"), str):
                    _take_out(node)
        return schema


def core_nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield a core schema and all schemas inside it."""
    stack: list[Any] = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, (list, tuple)):
            stack.extend(node)
        elif isinstance(node, dict):
            stack.extend(part for key, part in node.items() if _may_be_schema(node, key))
            yield node


def with_parts(schema: Any, change: Callable[[Any], Any]) -> Any:
    """Return a core schema with each part changed; itself if no part changes."""
    if isinstance(schema, (list, tuple)):
        parts = list(map(change, schema))
        return schema if all(map(operator.is_, parts, schema)) else type(schema)(parts)
    if not isinstance(schema, dict):
        return schema
    changed = {key: change(part) for key, part in schema.items() if _may_be_schema(schema, key)}
    same = all(part is schema[key] for key, part in changed.items())
    return schema if same else {**schema, **changed}


def _may_be_schema(node: dict[str, Any], key: str) -> bool:
    return key not in _NO_SCHEMAS or not isinstance(node.get("type"), str)  # it is a field's name


def _take_out(node: dict[str, Any]) -> None:
    """Change a string schema, in place, so that its pattern is checked here, if necessary."""
    pattern = node["pattern"]
    try:
        SchemaValidator(core_schema.str_schema(pattern=pattern))
    except SchemaError:
        inner: Any = {**node, "metadata": {**node.get("metadata", {}), KEPT: pattern}}
        del inner["pattern"]
        node.clear()
        node.update(core_schema.no_info_after_validator_function(_checker(pattern), inner))


def _checker(pattern: str) -> Callable[[str], str]:
    compiled: list[ir.Regex] = []

    def check(text: str) -> str:
        # Imported here, because automata are built on grammars and types, not the reverse.
        from structgen.automaton.schema import evaluate

        if not compiled:
            compiled.append(regex.parse_ecma(pattern))
        if not evaluate.matches(compiled[0], text):
            raise ValueError(f"String should match pattern {pattern!r}")
        return text

    return check


_WORD = r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}"
_SPACES = r"\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_OUTSIDE = {
    "D": r"\P{Nd}",
    "W": f"[^{_WORD}]",
    "s": f"[{_SPACES}]",
    "S": r"\P{White_Space}",
    "A": "^",
    "z": "$",
    "a": r"\x07",
}
_INSIDE = {
    "D": r"\P{Nd}",
    "W": r"\x00-\x2f:-@\[-\^`{-\x7f",
    "s": _SPACES,
    "S": r"\P{White_Space}",
    "a": r"\x07",
}
_INSIDE_NEGATED = {
    "d": r"\d\p{Nd}",
    "w": rf"\w{_WORD}",
    "s": r"\s\p{White_Space}",
    "S": r"\S\ufeff",
    "a": r"\x07",
}
_NAMED = re.compile(r"\[:(\^?)([a-z]+):\]")
_CODE_POINT = re.compile(r"\\(?:[xuU]\{([0-9A-Fa-f]+)\}|U([0-9A-Fa-f]{8}))")


class NoForm(Exception):
    """A pattern has no equivalent in ECMA-262's syntax; the message says why."""


def to_ecma(pattern: str) -> tuple[str, bool]:
    r"""Return the pattern in ECMA-262's syntax, and whether it is right only for ASCII texts.

    The latter is so with ``\b`` and ``\B``, which use Unicode's words.

    Raises:
        NoForm: there is no equivalent.
    """
    if "\\" not in pattern and "[" not in pattern and "(?P<" not in pattern:
        return pattern, False
    reader = _Reader(pattern)
    return reader.read(), reader.is_ascii


class _Reader:
    """Translates a pattern that Rust's engine accepts."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.is_ascii = False

    def read(self) -> str:
        out: list[str] = []
        while self.at < len(self.pattern):
            char = self.pattern[self.at]
            if char == "\\":
                out.append(self._escape(_OUTSIDE))
            elif char == "[":
                out.append(self._class())
            elif self.pattern.startswith("(?P<", self.at):
                out.append("(?<")
                self.at += 4
            else:
                out.append(char)
                self.at += 1
        return "".join(out)

    def _escape(self, sets: dict[str, str]) -> str:
        found = _CODE_POINT.match(self.pattern, self.at)
        if found is not None:
            self.at = found.end()
            return rf"\u{{{found[1] or found[2].lstrip('0') or '0'}}}"
        begin, char = self.at, self.pattern[self.at + 1 : self.at + 2]
        self.at += 2
        if char in ("p", "P") and not self.pattern.startswith("{", self.at):
            self.at += 1
            return rf"\{char}{{{self.pattern[self.at - 1]}}}"
        if char in ("b", "B"):
            self.is_ascii = True
        if char in ("<", ">") or (char == "b" and self.pattern.startswith("{", self.at)):
            raise self._refused("matches the beginning or end of a word", begin)
        return sets.get(char, f"\\{char}")

    def _class(self) -> str:
        """Return the class that begins here."""
        begin = self.at
        self.at += 1
        is_negated = self.pattern.startswith("^", self.at)
        self.at += is_negated
        parts: list[str] = []
        sets = _INSIDE_NEGATED if is_negated else _INSIDE
        while not (self.pattern.startswith("]", self.at) and parts):
            named = _NAMED.match(self.pattern, self.at)
            if named is not None:
                if named[1]:
                    raise self._refused("has a negated class inside another class", self.at)
                parts.append(python_regex.POSIX_SETS[named[2]])
                self.at = named.end()
            elif self.pattern[self.at : self.at + 2] in ("&&", "--", "~~"):
                raise self._refused("combines character sets", begin)
            elif self.pattern[self.at] == "[":
                inner = self._class()
                parts.append(inner)
            elif self.pattern[self.at] == "\\":
                parts.append(self._escape(sets))
            else:
                char = self.pattern[self.at]
                parts.append(rf"\{char}" if char == "]" else char)
                self.at += 1
        self.at += 1
        nested = [part for part in parts if part[0] == "["]
        if any(part.startswith("[^") for part in nested):
            raise self._refused("has a class that contains a negated class", begin)
        inside = "".join(part[1:-1] if part in nested else part for part in parts)
        return f"[{'^' * is_negated}{inside}]"

    def _refused(self, what: str, at: int) -> NoForm:
        return NoForm(
            f"The pattern {self.pattern!r} {what}, at position {at}, which ECMA-262 does not "
            "support"
        )
