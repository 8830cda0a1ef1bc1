"""Questions from a Pydantic class: one for each field that has few values.

It owns how fields become questions, and the way from a name to words. It runs no model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from structgen.errors import OptionError

from .questions import Choice, Predicate, Question, values_of


def questions_in(model_class: Any) -> dict[str, Question]:
    """Return the questions of a class: its fields' names and what each asks.

    A field of ``bool`` is a `Predicate`; of a ``Literal``, an ``Enum`` or a union of these a
    `Choice`. What is asked is the field's description, else its title or its name in words. The
    names are those under which the class takes its fields: an alias where there is one.

    Raises:
        OptionError: a field is of another type; the error names it.
    """
    questions: dict[str, Question] = {}
    for name, field in model_class.model_fields.items():
        asked = field.description or field.title or name.replace("_", " ").strip()
        alias = field.validation_alias or field.alias
        by_name = model_class.model_config.get("populate_by_name") or model_class.model_config.get(
            "validate_by_name"
        )
        key = alias if isinstance(alias, str) and not by_name else name
        if field.annotation is bool:
            questions[key] = Predicate(asked)
            continue
        try:
            options = values_of(field.annotation)
        except OptionError:
            raise OptionError(
                f"The field {name!r} of {model_class.__name__} is of the type "
                f"{field.annotation!r}. A decision needs fields of few values: bool, a Literal or "
                "an Enum. For others, make a Generator of the class."
            ) from None
        if len(options) == 1:
            raise OptionError(
                f"The field {name!r} of {model_class.__name__} has one value alone, "
                f"{options[0]!r}: there is nothing to decide. Remove it."
            )
        questions[key] = Choice(asked, options)
    if not questions:
        raise OptionError(f"{model_class.__name__} has no fields, so there is nothing to decide.")
    return questions


def is_model_class(questions: Any) -> bool:
    """Whether this is a Pydantic class."""
    return isinstance(questions, type) and isinstance(
        getattr(questions, "model_fields", None), Mapping
    )
