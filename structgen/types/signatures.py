"""A function as an output type: the JSON object of its arguments.

Owns the reading of signatures: each parameter becomes a key, required unless it has a default, so
that the parsed dict fits ``function(**arguments)``. Knows no schema.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any

import typing_extensions

from structgen.errors import OutputTypeError
from structgen.types.typed_dicts import modern, typed_dict

_KEYWORD = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def signature_type(function: Callable[..., Any], name: str) -> Any:
    """A TypedDict with one key for each parameter of ``function``.

    Raises:
        OutputTypeError: a parameter without annotation or that cannot be passed by name.
    """
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    try:
        parameters = inspect.signature(function).parameters
        hints = typing.get_type_hints(inner, include_extras=True)
    except (ValueError, TypeError) as error:
        raise OutputTypeError(
            f"{name} has no readable signature: {error}. Wrap it in a function with annotated "
            "parameters."
        ) from error
    except NameError as error:
        raise OutputTypeError(
            f"A parameter of {name} is annotated with a name that is not defined: {error}."
        ) from error
    fields: dict[str, Any] = {}
    for parameter in parameters.values():
        if parameter.kind not in _KEYWORD:
            raise OutputTypeError(
                f"Parameter {str(parameter).split(':')[0]!r} of {name} cannot be passed by name. "
                "Use plain named parameters; for several values, one parameter of type list[...]."
            )
        if parameter.name not in hints:
            raise OutputTypeError(
                f"Parameter {parameter.name!r} of {name} has no annotation. "
                f"Write its type, such as {parameter.name}: int."
            )
        annotation = modern(hints[parameter.name])
        optional = parameter.default is not inspect.Parameter.empty
        fields[parameter.name] = (
            typing_extensions.NotRequired[annotation] if optional else annotation
        )
    title = str(getattr(inner, "__name__", "arguments"))
    return typed_dict(title, fields)
