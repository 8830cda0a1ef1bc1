"""`Call`: what a function as an output type parses to.

Owns the value and the way from its arguments to a real call, by the function's signature. Nothing
here is called by itself: that is the caller's deed. Knows no schema.
"""

from __future__ import annotations

import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True, repr=False)
class Call:
    """A call that the model asks for and nobody has made yet.

    Equal to another call of the same function with equal arguments; pickled if the function is.

    Attributes:
        function: the function, method or `functools.partial` that was in the output type.
        arguments: the checked values by parameter name; those that the model left out are missing.
            Of ``*values`` it is a list, of ``**options`` a dict, each under its own name.
        made: what a call gives, alone in a tuple, where that was made when the arguments were
            checked: of a class its instance. Empty: the function has to be called.
    """

    function: Callable[..., Any]
    arguments: Mapping[str, Any]
    made: tuple[Any, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "arguments", MappingProxyType(dict(self.arguments)))

    @property
    def name(self) -> str:
        """The function's name, as it is written where there are several to choose from."""
        return name_of_function(self.function)

    def call(self) -> Any:
        """Call the function with the arguments, as its signature wants them, and return the result.

        Raises what the function raises. Of an ``async`` function the result is to be awaited.
        """
        if self.made:
            return self.made[0]
        signature = inspect.signature(self.function)
        given = OrderedDict(
            (name, self.arguments[name]) for name in signature.parameters if name in self.arguments
        )
        bound = inspect.BoundArguments(signature, given)
        bound.apply_defaults()  # what stands before *values has to be passed with them
        return self.function(*bound.args, **bound.kwargs)

    __call__ = call

    def __hash__(self) -> int:
        return hash((self.function, *sorted(self.arguments)))  # values may have no hash

    def __reduce__(self) -> tuple[Any, ...]:
        return Call, (self.function, dict(self.arguments), self.made)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"Call({self.name}({shown}))"


def name_of_function(function: Callable[..., Any]) -> str:
    """The name of a function, of a method, or of what a `functools.partial` is made of."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))
