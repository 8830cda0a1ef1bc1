"""From the grammar IR to a machine: the one dispatch over kinds of grammar."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from typing import Any

from ..errors import CompileLimitExceeded, OptionError, Unsatisfiable
from ..grammar import ir, json_schema
from .derivatives import RegexAutomaton
from .document import Document
from .encoding import Utf8
from .leaf import TextLeaf
from .machine import Alternative, Machine
from .spellable import restrict, writable
from .values import JsonLanguage, JsonOptions, literal_leaf


def build(
    grammar: ir.Grammar, options: Mapping[str, Any], missing_bytes: Collection[int] = ()
) -> Machine:
    """The machine of ``grammar``.

    Args:
        grammar: what to recognise.
        options: fields of `JsonOptions`, for the JSON parts.
        missing_bytes: bytes that no token of the vocabulary can write on its own.

    Raises:
        OptionError: an unknown option.
        SchemaError: a JSON Schema is malformed or cannot be enforced.
        Unsatisfiable: no text matches.
        CompileLimitExceeded: a bound was hit.
    """
    checked = json_options(options)
    depth = sys.getrecursionlimit()
    try:
        return Machine(_alternatives(grammar, checked, writable(missing_bytes)))
    except RecursionError:
        raise CompileLimitExceeded(
            "the output type is nested too deeply", limit=depth, actual=depth
        ) from None


def json_options(options: Mapping[str, Any]) -> JsonOptions:
    """Check ``options`` and turn them into `JsonOptions`."""
    known = [f.name for f in fields(JsonOptions)]
    for name in options:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise OptionError(
                f"unknown compile option {name!r}.{hint} Known options: {', '.join(known)}."
            )
    return JsonOptions(**options)


def _alternatives(
    grammar: ir.Grammar, options: JsonOptions, chars: ir.CharSet
) -> tuple[Alternative, ...]:
    if isinstance(grammar, ir.Pattern):
        symbols = RegexAutomaton(restrict(grammar.regex, chars))
        if symbols.is_empty():
            raise Unsatisfiable(
                f"no text that this vocabulary can write matches the pattern {grammar.source!r}."
            )
        leaf = TextLeaf(symbols, Utf8(symbols.alphabet))
        return (Alternative(leaf, leaf.start),)
    if isinstance(grammar, ir.Choice):
        automaton = RegexAutomaton(ir.Repeat(chars, 0, None))
        texts = [text for text in grammar.texts if automaton.accepts(text)]
        if not texts:
            raise Unsatisfiable("this vocabulary can write none of the choices.")
        literal = literal_leaf(tuple(text.encode() for text in texts))
        return (Alternative(literal, literal.start),)
    if isinstance(grammar, ir.Json):
        if grammar.options:
            options = replace(options, **grammar.options)
        graph = json_schema.lower(
            grammar.schema,
            dialect=options.dialect,
            documents=options.documents,
            format_assertion=options.format_assertion,
        )
        language = JsonLanguage(graph, options)
        language.check()
        ways = language.alternatives(language.root)
        if not ways and language.root != language.unbounded_root:
            _refuse_depth(language)
        if not ways:
            raise Unsatisfiable(
                "no JSON value satisfies the schema: its assertions contradict each other, at $. "
                "Look for required properties that are forbidden, minimums above maximums, or "
                "types that exclude each other."
            )
        if options.whitespace == "flexible":
            return Document(ways, language.space, language.limit_below(())).open()
        return ways
    return tuple(way for part in grammar.parts for way in _alternatives(part, options, chars))


def _refuse_depth(language: JsonLanguage) -> None:
    """Say so if it is only ``max_depth`` that leaves no value."""
    if language.alternatives(language.unbounded_root):
        raise Unsatisfiable(
            f"every value of the schema nests deeper than max_depth={language.options.max_depth} "
            "objects and arrays, at $. Pass a larger max_depth, or None for no bound."
        )
