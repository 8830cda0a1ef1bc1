"""`Tagged` and `TaggedText` as output types: their grammar, and the parser of their texts.

Owns what becomes of the types inside of tags, and of marks that name tokens: which tokens there are
is known when a vocabulary is there (`OutputType.fitted`), so until then marks are text. Lowering
those types is left to whoever calls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any

from structgen.errors import OutputTypeError
from structgen.grammar import ir

from .part_readers import TagPieces, are_certain
from .tag_grammar import TagPart, tag_grammar
from .tag_reader import ReadTag, read_tags, whole_of
from .tags import Tagged, TaggedText, TaggedValue, mark_of, text_of
from .user import OutputType


def tagged_type(
    value: Tagged | TaggedText, name: str, lower: Callable[[Any], OutputType]
) -> OutputType:
    """The output type of free text with tags.

    Args:
        value: what the user wrote.
        name: what to call it in messages.
        lower: makes output types of the types inside.

    Raises:
        OutputTypeError: a type cannot stand in a tag, or the begins cannot be told apart.
    """
    text = TaggedText(value) if isinstance(value, Tagged) else value
    inner = [_inner(tag, lower) for tag in text.tags]
    wholes = [whole_of(output.grammar) for output in inner]

    def fitted(tokens: Collection[str]) -> OutputType:
        parts = [
            TagPart(
                mark_of(tag.begin, tokens),
                part.grammar,
                mark_of(tag.end, tokens),
                tag.at_least,
                tag.at_most,
            )
            for tag, part in zip(text.tags, inner, strict=True)
        ]
        readers = [
            ReadTag(
                text_of(part.begin),
                text_of(part.end),
                is_whole,
                output.parse,
                functools.partial(TaggedValue, tag),
                (tag.at_least, tag.at_most),
            )
            for tag, part, output, is_whole in zip(text.tags, parts, inner, wholes, strict=True)
        ]
        is_certain = are_certain(
            readers, [part.grammar for part in parts], [part.end for part in parts]
        )
        checked = dict.fromkeys(found for output in inner for found in output.checked)
        return OutputType(
            tag_grammar(parts, text.at_least, text.at_most),
            functools.partial(read_tags, readers, (text.at_least, text.at_most), name),
            name,
            tuple(checked),
            fitted=fitted,
            growing=functools.partial(TagPieces, readers) if is_certain else None,
        )

    return fitted(())


def _inner(tag: Tagged, lower: Callable[[Any], OutputType]) -> OutputType:
    try:
        output = lower(tag.type)
    except OutputTypeError as error:
        raise error.inside(f"In {tag!r}") from error
    if has_rules(output.grammar):
        raise OutputTypeError(
            f"{tag!r}: its type is a grammar itself, which cannot stand in a tag. Use any type "
            "that is no Cfg and has no tags, or write the whole text as one Cfg."
        )
    return output


def has_rules(grammar: ir.Grammar) -> bool:
    """Whether a grammar is context-free, or may be."""
    if isinstance(grammar, (ir.Either, ir.Sequence)):
        return any(map(has_rules, grammar.parts))
    return isinstance(grammar, ir.ContextFree)
