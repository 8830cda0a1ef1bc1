"""What Pydantic makes a value by, kept for those who read parts of its document.

Owns `ValueSchema`, and how constructors' names for keys are noted on functions in a core schema.
Imports nothing of Pydantic's, so that those who have schemas only do not either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

NAMES = "__structgen_names__"
"""Attribute of a function that makes instances: what the constructor calls each key of the JSON."""


@dataclass(frozen=True, slots=True)
class ValueSchema:
    """What a value is made by.

    Attributes:
        core: the core schema of the whole.
        config: the core config that holds for the whole, or None.
        parser: given the core schema of a part, from inside of ``core``, and the core config of the
            class that it is in: what makes the part's value of its JSON, or raises `ParseError`.
    """

    core: Any
    config: Any
    parser: Callable[[Any, Any], Callable[[str], Any]]
