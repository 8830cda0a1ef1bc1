"""Expressions over whole regular languages → IR: and, or, not, one after the other, counted.

An expression is JSON data, so that it fits into a JSON Schema (`KEYWORD`): ``["regex", pattern,
flags]`` in Python's syntax, ``["and" | "or" | "then", part, ...]``, ``["not", part]`` and
``["times", part, least, most]`` (``most`` None: any number). Parts are languages: an anchor or
lookaround in one sees nothing of the parts around it. This module knows no Python types.
"""

from __future__ import annotations

from typing import Any

from structgen.errors import SchemaError
from structgen.grammar import ir

from . import read as regex
from . import tree as regex_tree

KEYWORD = "$structgen-regex"
"""The keyword of a JSON Schema that holds an expression for a string."""


def lower(expression: Any) -> ir.Regex:
    """The regular expression over code points that ``expression`` describes.

    Raises:
        SchemaError: it is no expression.
        PatternError: a pattern in it is malformed or not regular.
    """
    match expression:
        case ["regex", str(pattern), int(flags)]:
            return regex.parse_python(pattern, flags)
        case ["and", *parts]:
            return regex_tree.intersect(map(lower, parts))
        case ["or", *parts]:
            return regex_tree.alternate(map(lower, parts))
        case ["not", part]:
            return regex_tree.complement(lower(part))
        case ["then", *parts]:
            return regex_tree.concat(_of_its_own(lower(part)) for part in parts)
        case ["times", part, int(least), int() | None as most]:
            return regex_tree.repeat(_of_its_own(lower(part)), least, most)
    raise SchemaError(f"{expression!r} is no expression of {KEYWORD}.", keyword=KEYWORD)


def _of_its_own(part: ir.Regex) -> ir.Regex:
    """``part`` so that it can stand beside others; see `ir.Intersect`."""
    return ir.Intersect((part,)) if regex_tree.looks_around(part) else part
