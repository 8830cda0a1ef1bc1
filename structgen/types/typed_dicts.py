"""``typing.TypedDict`` on Pythons before 3.12, where Pydantic only takes ``typing_extensions``'s.

Owns `modern`, which rebuilds such classes wherever they occur in a type. From 3.12 on it does
nothing. Knows no schema.
"""

from __future__ import annotations

import sys
import typing
from typing import Annotated, Any, get_args, get_origin

import typing_extensions

from structgen.types.names import annotated, with_arguments

_NEEDED = sys.version_info < (3, 12)


def modern(output_type: Any) -> Any:
    """``output_type`` with every ``typing.TypedDict`` in it rebuilt for Pydantic.

    A TypedDict that refers to itself is left alone: Pydantic then asks for the one from
    ``typing_extensions``.
    """
    return _modern(output_type, ()) if _NEEDED else output_type


def _modern(value: Any, parents: tuple[Any, ...]) -> Any:
    if (
        isinstance(value, type)
        and type(value).__module__ == "typing"
        and typing.is_typeddict(value)
    ):
        return _rebuilt(value, parents)
    arguments = get_args(value)
    if not arguments or get_origin(value) is typing.Literal:
        return value
    if get_origin(value) is Annotated:
        return annotated(_modern(arguments[0], parents), value.__metadata__)
    changed = tuple(
        argument if isinstance(argument, list) else _modern(argument, parents)
        for argument in arguments
    )
    return with_arguments(value, changed)


def _rebuilt(cls: Any, parents: tuple[Any, ...]) -> Any:
    if cls in parents:
        return cls
    hints = typing.get_type_hints(cls, include_extras=True)
    fields: dict[str, Any] = {}
    for key, hint in hints.items():
        # A marker that was written as a string (`from __future__ import annotations`) is missing
        # from __required_keys__, so the marker itself comes first.
        marker = get_origin(hint)
        if marker in (typing_extensions.Required, typing_extensions.NotRequired):
            hint = get_args(hint)[0]
        elif key in cls.__required_keys__:
            marker = typing_extensions.Required
        else:
            marker = typing_extensions.NotRequired
        fields[key] = marker[_modern(hint, (*parents, cls))]
    rebuilt = typed_dict(cls.__name__, fields)
    rebuilt.__doc__ = cls.__doc__
    rebuilt.__module__ = cls.__module__
    config = getattr(cls, "__pydantic_config__", None)
    if config is not None:
        rebuilt.__pydantic_config__ = config
    return rebuilt


def typed_dict(name: str, fields: dict[str, Any]) -> Any:
    """A TypedDict class made at run time, of the kind that Pydantic takes on every Python."""
    make: Any = typing_extensions.TypedDict  # type checkers only know it as a class statement
    return make(name, fields)
