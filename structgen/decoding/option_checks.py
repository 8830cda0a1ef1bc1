"""Checks of single options: what type and range each may have, and what it is read as.

Each takes an option's name and a value, and returns the value as it is read, or raises
`OptionError`. Knows nothing of how options go together.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from structgen.errors import OptionError
from structgen.sampling import LogitsProcessor, checked


def flag(name: str, value: Any) -> bool:
    """True or False."""
    if isinstance(value, bool):
        return value
    raise OptionError(f"{name}={value!r} is not a bool. Pass True or False.")


def whole(low: int, high: int | None = None) -> Any:
    """What checks for a whole number, from ``low`` to ``high``."""

    def check(name: str, value: Any) -> int:
        try:
            if isinstance(value, bool):
                raise TypeError
            number = operator.index(value)  # NumPy integers too
        except TypeError:
            raise OptionError(f"{name}={value!r} is not a whole number.") from None
        if number < low or (high is not None and number > high):
            bounds = f"{low:,} or more" if high is None else f"between {low:,} and {high:,}"
            raise OptionError(f"{name}={number} is out of range. It must be {bounds}.")
        return number

    return check


def real(low: float, high: float, *, above: bool = False) -> Any:
    """What checks for a number, from ``low``, or above it, to ``high``."""

    def check(name: str, value: Any) -> float:
        try:
            if isinstance(value, (bool, str)):
                raise TypeError
            number = float(value)
        except (TypeError, ValueError):
            raise OptionError(f"{name}={value!r} is not a number.") from None
        if not ((low < number if above else low <= number) and number <= high):
            bounds = f"above {low:g} and at most" if above else f"between {low:g} and"
            raise OptionError(f"{name}={number:g} is out of range. It must be {bounds} {high:g}.")
        return number

    return check


def temperature(name: str, value: Any) -> float:
    """A temperature; 0: greedy."""
    # Outside of these bounds the runtime's float32 arithmetic overflows.
    number: float = real(0, 100)(name, value)
    if 0 < number < 0.01:
        raise OptionError(
            f"{name}={number:g} is out of range. Pass 0 for the likeliest token, or 0.01 or more."
        )
    return number


def stop(name: str, value: Any) -> tuple[str, ...]:
    """Texts that end an output."""
    strings = [value] if isinstance(value, str) else value
    if not isinstance(strings, Sequence) or not all(isinstance(s, str) for s in strings):
        raise OptionError(f"{name}={value!r} is neither a string nor a list of strings.")
    if "" in strings:
        raise OptionError(f"{name}={value!r} has an empty string, which would stop at once.")
    return tuple(strings)


def logit_bias(name: str, value: Any) -> dict[int, float]:
    """What is added to scores, by token id."""
    if not isinstance(value, Mapping):
        raise OptionError(f"{name}={value!r} is not a mapping from token ids to numbers.")
    bias: dict[int, float] = {}
    for token_id, added in value.items():
        if isinstance(token_id, str):
            raise OptionError(
                f"{name} has the key {token_id!r}. Keys are token ids: model.encode(text) has them."
            )
        key = whole(0)(f"{name} key", token_id)
        try:
            low = added == -math.inf
            bias[key] = -math.inf if low else real(-1000, 1000)(f"{name}[{key}]", added)
        except OptionError as error:
            raise OptionError(
                f"{error} Or -inf: never, as far as the output type leaves a choice."
            ) from None
    return bias


def processor(name: str, value: Any) -> LogitsProcessor:
    """A logits processor."""
    if not callable(value):
        raise OptionError(f"{name}={value!r} is not callable.")
    return checked(value)


def abstain_below(name: str, value: Any) -> float | dict[str, float]:
    """A probability, or probabilities by path."""
    check = real(0, 1, above=True)
    if not isinstance(value, Mapping):
        number: float = check(name, value)
        return number
    if not value or not all(isinstance(path, str) and path[:1] == "$" for path in value):
        raise OptionError(
            f"{name}={value!r} is neither a number nor a mapping from JSON paths such as "
            "'$.label' to numbers."
        )
    return {path: check(f"{name}[{path!r}]", number) for path, number in value.items()}


def text(name: str, value: Any) -> str:
    """A text."""
    if isinstance(value, str):
        return value
    raise OptionError(f"{name}={value!r} is not a str.")


def special_tokens(name: str, value: Any) -> str:
    """Where names of special tokens are read as such."""
    if value in ("template", "anywhere"):
        return str(value)
    raise OptionError(f"{name}={value!r} is unknown. Pass 'template' or 'anywhere'.")


def cancel(name: str, value: Any) -> Any:
    """What can be asked whether it is set."""
    if not callable(getattr(value, "is_set", None)):
        raise OptionError(f"{name}={value!r} has no is_set(). Pass a threading.Event.")
    return value
