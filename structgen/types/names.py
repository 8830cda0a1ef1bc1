"""Name output types in messages (`name_of`), resolve aliases (`unwrapped`), and rebuild types.

Knows no grammars or schemas.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, NewType, Union, get_args, get_origin

import typing_extensions
from pydantic import TypeAdapter

from .regexes import TextPattern
from .sums import AnyOf, Combining
from .user import Choice, SpecialToken
from .wrappers import shortened

# The standard library's own from Python 3.12 on, which typing_extensions may or may not re-export.
_ALIAS_TYPES: tuple[Any, ...] = tuple(
    getattr(module, "TypeAliasType")  # noqa: B009 - unknown to type checkers before 3.12
    for module in (typing, typing_extensions)
    if hasattr(module, "TypeAliasType")
)


def unwrapped(output_type: Any) -> Any:
    """Return ``output_type`` without `NewType` and ``type X = ...`` around it; None becomes its
    type."""
    while True:
        if output_type is None:
            return type(None)
        if isinstance(output_type, NewType):
            output_type = output_type.__supertype__
        elif isinstance(output_type, _ALIAS_TYPES):
            output_type = output_type.__value__
        else:
            return output_type


def refers_to_itself(output_type: Any) -> bool:
    """Return whether this is an alias that refers to its own name, like Pydantic's `JsonValue`."""
    if not isinstance(output_type, _ALIAS_TYPES):
        return False
    stack: list[Any] = [output_type.__value__]
    while stack:
        part = stack.pop()
        named = part.__forward_arg__ if isinstance(part, typing.ForwardRef) else part
        if isinstance(named, str) and named == output_type.__name__:
            return True
        if get_origin(part) is not Literal:
            stack.extend(get_args(part))
    return False


def annotated(base: Any, metadata: Sequence[Any]) -> Any:
    """Return ``Annotated[base, *metadata]``, which is not valid syntax before Python 3.11."""
    special_form: Any = Annotated
    arguments = (base, *metadata)
    return special_form[arguments]


def with_arguments(value: Any, arguments: tuple[Any, ...]) -> Any:
    """Return ``value``, a generic type or union, with other arguments; ``value`` itself if they are
    the same."""
    if all(new is old for new, old in zip(arguments, get_args(value), strict=True)):
        return value
    if isinstance(value, types.UnionType):
        union: Any = Union  # not `|`, because not all types support it
        return union[arguments]
    if isinstance(value, types.GenericAlias):
        return types.GenericAlias(get_origin(value), arguments)
    return value.copy_with(arguments)  # the typing module's own aliases


def changed_within(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return ``value`` with ``change`` applied to each type inside it."""
    arguments = get_args(value)
    if not arguments or get_origin(value) is Literal:
        return value
    if get_origin(value) is Annotated:
        return annotated(change(arguments[0]), value.__metadata__)
    changed = tuple(part if isinstance(part, list) else change(part) for part in arguments)
    return with_arguments(value, changed)


def name_of(output_type: Any) -> str:
    """Return a short name: ``Character``, ``list[int]``, ``Literal['a', 'b']``, ``date | None``."""
    return shortened(_name(output_type))


def _name(value: Any) -> str:
    if value is None or value is type(None):
        return "None"
    if isinstance(value, AnyOf):
        return " | ".join(map(_name, value.members))
    if isinstance(value, (TextPattern, Combining, SpecialToken)):  # their repr is clear
        return repr(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        if value and all(map(inspect.isroutine, value)):
            return " | ".join(map(_name, value))
        return repr(value) if hasattr(value, "_fields") else repr(Choice(value))
    if isinstance(value, TypeAdapter):
        return "TypeAdapter"
    if isinstance(value, functools.partial):
        return _name(value.func)
    if inspect.isroutine(value):
        return f"{value.__name__}()"
    origin, arguments = get_origin(value), get_args(value)
    if origin is Annotated:
        return _name(arguments[0])
    if origin is Union or isinstance(value, types.UnionType):
        return " | ".join(map(_name, arguments))
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if origin is not None and origin is not value:
        inner = ", ".join(_argument(part) for part in arguments)
        return f"{_name(origin)}[{inner}]" if inner else _name(origin)
    return str(getattr(value, "__name__", None) or repr(value))


def _argument(value: Any) -> str:
    if value is ...:
        return "..."
    if isinstance(value, list):  # the parameters in Callable[[...], ...]
        return f"[{', '.join(map(_argument, value))}]"
    return _name(value)
