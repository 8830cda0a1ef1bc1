"""`lower`: send what the user wrote to the module that makes a grammar and a parser of it.

`wrappers` lowers schemas and regular expressions, `lowering` all other types. `lowering` is
imported on first use because it imports Pydantic. A process that has only schemas then starts 0.1 s
sooner, and each full garbage collection visits 12,000 objects fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any

from .quotes import documents, holds_document
from .regexes import TextPattern
from .schemas import JsonSchema, is_plainly_schema
from .sums import AnyOf
from .user import Cfg, OutputType
from .wrappers import lower_pattern, lower_schema, shortened


def lower(output_type: Any) -> OutputType:
    """Turn an output type into a grammar and a parser.

    Results are cached for hashable types: calling again costs microseconds, the first call on a
    Pydantic model about a millisecond.

    Args:
        output_type: a Pydantic model, dataclass, TypedDict, NamedTuple, Enum, Literal, list of
            choices, scalar or container type, union of those, function or list of functions (for a
            `Call`), TypeAdapter, `Regex`, `Choice`, `Cfg`, `JsonSchema` or a dict that is clearly a
            JSON Schema.

    Raises:
        OutputTypeError: not an output type, or one that cannot be masked exactly. The message
            says what to write instead.
    """
    if isinstance(output_type, OutputType):
        return output_type
    if isinstance(output_type, JsonSchema):
        return lower_schema(output_type)  # faster than a look-up
    if isinstance(output_type, TextPattern):
        return lower_pattern(output_type, shortened(repr(output_type)))
    if type(output_type) is dict and is_plainly_schema(output_type):
        return lower_schema(JsonSchema(output_type))
    from . import lowering

    return lowering.lower(output_type)


def filled(output_type: Any, given: Mapping[str, str]) -> OutputType:
    """Run `lower` for a call that passes the documents of quotes in the type.

    Raises:
        As `lower`, and also:
        OptionError: nothing in the type quotes one of them.
    """
    with documents(given):
        output = lower(output_type)

    def within(read: Callable[[str], Any]) -> Callable[[str], Any]:
        def parse(text: str) -> Any:
            with documents({}) as known:
                known.update(given)
                return read(text)

        return parse

    values = output.values
    if values is not None:
        make = values.parser
        values = replace(values, parser=lambda part, config: within(make(part, config)))
    return replace(output, parse=within(output.parse), values=values)


def cache_key(output_type: Any) -> Hashable | None:
    """Return the cache key for a compiled ``output_type``; None if the type may change its meaning,
    or holds a document, which must not be cached.

    Types may be equal with different meanings: int | str equals str | int, Literal[1] equals
    Literal[True]. The key includes their repr, which distinguishes them.
    """
    if isinstance(output_type, (list, tuple, set, frozenset)):
        keys = [cache_key(item) for item in output_type]
        return None if None in keys else (type(output_type), *keys)
    if type(output_type) is dict and is_plainly_schema(output_type):
        return cache_key(JsonSchema(output_type))
    if holds_document(output_type):
        return None
    if isinstance(output_type, AnyOf):
        return cache_key(output_type.members)
    if isinstance(output_type, Cfg):
        from structgen.grammar.cfg import cache  # a lot of code for those without grammars

        reads_files = output_type.path is not None and cache.reads_files(output_type.text)
        if output_type.terminals or reads_files:
            return None
    try:
        hash(output_type)
    except TypeError:
        return None
    return type(output_type), output_type, repr(output_type)
