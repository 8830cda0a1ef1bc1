"""Questions about a state, and the labels of their answers.

Here are `Predicate`, `Choice` and `Score`, their checks, `Label` (the text of an answer, its
description in the prompt and its value), and questions from the fields of a Pydantic class. Knows
no models and no prompts.
"""

from __future__ import annotations

import enum
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, Union

from structgen.errors import OptionError, OutputTypeError, counted
from structgen.types import bare_text

MAX_OPTIONS = 1000
"""Most options of a `Choice`."""

MAX_LEVELS = 100
"""Most levels of a `Score`."""


@dataclass(frozen=True, slots=True)
class Label:
    """One possible answer.

    Attributes:
        text: the text that the model would write.
        description: its description in the prompt, or None.
        value: its value.
    """

    text: str
    description: str | None
    value: Any


@dataclass(frozen=True, slots=True, init=False)
class Question:
    """One question about a state: a `Predicate`, a `Choice` or a `Score`.

    Attributes:
        instructions: the question.
        labels: the possible answers, in order.
    """

    instructions: str
    labels: tuple[Label, ...]
    kind: ClassVar[str]


@dataclass(frozen=True, slots=True, init=False)
class Predicate(Question):
    """A question that is answered by yes or no.

    Attributes:
        instructions: the question, or a statement that is true or not.
        labels: two labels with the values True and False.
    """

    kind: ClassVar[str] = "predicate"

    def __init__(
        self,
        instructions: str,
        *,
        yes: str = "Yes",
        no: str = "No",
        criteria: Mapping[bool, str | None] | None = None,
    ) -> None:
        """Ask whether something is true.

        Args:
            instructions: see above.
            yes: what the model writes for True.
            no: what it writes for False.
            criteria: descriptions of texts for which True and False are right, such as ``{True:
                "asks for money back", False: "asks for something else"}``. An embedder needs both,
                or examples.

        Raises:
            OptionError: the question is empty, the criteria are not for True and False, or the
                labels are not two different texts.
        """
        criteria = criteria or {}
        if not isinstance(criteria, Mapping) or not all(
            key is True or key is False for key in criteria
        ):
            raise OptionError(f"The criteria are {criteria!r}. Pass {{True: …, False: …}}.")
        _set(
            self,
            instructions,
            [Label(yes, criteria.get(True), True), Label(no, criteria.get(False), False)],
        )


@dataclass(frozen=True, slots=True, init=False)
class Choice(Question):
    """A question that is answered by one of several options.

    Attributes:
        instructions: the question.
        labels: one per option, in their order.
    """

    kind: ClassVar[str] = "choice"

    def __init__(self, instructions: str, options: Any) -> None:
        """Ask for one of ``options``.

        Args:
            instructions: see above.
            options: 2 to 1,000 options: a mapping of option to description or None, a list, a
                ``Literal``, an ``Enum`` or ``bool``. An option is a text or a value with a text: a
                bool, number, None, date, or member of an enum.

        Raises:
            OptionError: the question is empty, there are too few or too many options, or two have
                the same text or one has none.
        """
        described = _described(options, "A Choice", "option", MAX_OPTIONS)
        _set(
            self,
            instructions,
            [Label(text, description, value) for text, description, value in described],
        )


@dataclass(frozen=True, slots=True, init=False)
class Score(Question):
    """A question that is answered by a level of an ordered scale.

    Attributes:
        instructions: the question.
        labels: one per level, with the values 0 for the lowest, 1 for the next, and so on.
    """

    kind: ClassVar[str] = "score"

    def __init__(self, instructions: str, levels: Sequence[str] | Mapping[str, str | None]) -> None:
        """Ask how much.

        Args:
            instructions: see above.
            levels: 2 to 100 levels, the lowest first; or a mapping of level to description.

        Raises:
            OptionError: as for `Choice`.
        """
        if isinstance(levels, str) or not isinstance(levels, (Sequence, Mapping)):
            raise OptionError(
                f"The levels of a Score are {levels!r}. Pass a list of texts, the lowest first."
            )
        described = _described(levels, "A Score", "level", MAX_LEVELS)
        labels = [
            Label(text, description, value)
            for value, (text, description, _) in enumerate(described)
        ]
        _set(self, instructions, labels)


Bare: TypeAlias = "tuple[type[Question], str, list[str], list[str | None]]"
"""A question for another process, without the values of labels, whose classes may not be picklable.
A hundred thousand labels as objects took half a second to send, as texts a tenth."""


def bare(question: Question) -> Bare:
    """Return a question in this form."""
    labels = question.labels
    texts = [label.text for label in labels]
    return type(question), question.instructions, texts, [label.description for label in labels]


def of_bare(given: Bare) -> Question:
    """Return the question from this form."""
    kind, instructions, texts, descriptions = given
    labels = (Label(text, one, None) for text, one in zip(texts, descriptions, strict=True))
    return _with_labels(kind, instructions, labels)


def in_order(question: Question, texts: Sequence[str]) -> Question:
    """Return the same question with its labels in the order of ``texts``."""
    of = {label.text: label for label in question.labels}
    return _with_labels(type(question), question.instructions, (of[text] for text in texts))


def _with_labels(kind: type[Question], instructions: str, labels: Iterable[Label]) -> Question:
    made = object.__new__(kind)
    object.__setattr__(made, "instructions", instructions)
    object.__setattr__(made, "labels", tuple(labels))
    return made


def _set(question: Any, instructions: Any, labels: Sequence[Label]) -> None:
    """Set the checked attributes of a question."""
    name = type(question).__name__
    if not isinstance(instructions, str) or not instructions.strip():
        raise OptionError(f"{name}: the question is {instructions!r}. Pass some text.")
    seen: dict[str, Any] = {}
    for label in labels:
        if not isinstance(label.text, str) or not label.text.strip():
            raise OptionError(
                f"{name}: the option {label.text!r} is not text, or empty. Pass some text."
            )
        if label.text != label.text.strip():
            raise OptionError(
                f"{name}: the option {label.text!r} begins or ends with spaces, which a model "
                "does not write. Remove them."
            )
        if "\0" in label.text:
            raise OptionError(f"{name}: the option {label.text!r} has a NUL character. Remove it.")
        if label.text in seen:
            raise OptionError(
                f"{name}: two options have the text {label.text!r}: {seen[label.text]!r} and "
                f"{label.value!r}. Keep one of them, or write them differently."
            )
        if label.description is not None and not isinstance(label.description, str):
            raise OptionError(
                f"{name}: the description of {label.text!r} is {label.description!r}. Pass a str "
                "or None."
            )
        seen[label.text] = label.value
    object.__setattr__(question, "instructions", instructions)
    object.__setattr__(question, "labels", tuple(labels))


def _described(options: Any, what: str, thing: str, most: int) -> list[tuple[str, str | None, Any]]:
    """Return the text, description and value of each option."""
    if isinstance(options, Mapping):
        found = list(options.items())
    else:
        found = [(value, None) for value in values_of(options)]
    if not 2 <= len(found) <= most:
        raise OptionError(f"{what} has {counted(len(found), thing)}. Pass 2 to {most:,}.")
    try:
        return [(bare_text(value, what), description, value) for value, description in found]
    except OutputTypeError as error:
        raise OptionError(str(error)) from None


def values_of(options: Any) -> list[Any]:
    """Return the values of a ``Literal``, an ``Enum``, ``bool``, a union of these, or a list.

    Raises:
        OptionError: it is something else, or a set.
    """
    if isinstance(options, (set, frozenset)):
        raise OptionError(
            f"The options are {options!r}, a set, which has no order: the order may differ from "
            "run to run, and the numbers with it. Pass a list, such as sorted(options)."
        )
    found = _typed_values(options)
    if found is None and not isinstance(options, (str, bytes)) and isinstance(options, Iterable):
        found = list(options)
    if found is None:
        raise OptionError(
            f"The options are {options!r}. Pass a list, a mapping of option to description, a "
            "Literal, an Enum or bool."
        )
    return found


def _typed_values(hint: Any) -> list[Any] | None:
    """Like `values_of`, but only for types; None if the values are not few."""
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return list(hint)
    if hint is bool:
        return [True, False]
    if hint is None or hint is type(None):
        return [None]
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        return list(typing.get_args(hint))
    if origin is typing.Annotated:
        return _typed_values(typing.get_args(hint)[0])
    if origin is Union or getattr(origin, "__name__", "") == "UnionType":
        parts = [_typed_values(part) for part in typing.get_args(hint)]
        return None if any(part is None for part in parts) else [v for p in parts for v in p or ()]
    return None


def questions_in(model_class: Any) -> dict[str, Question]:
    """Return the questions of a class by the names of its fields.

    A ``bool`` field is a `Predicate`; a ``Literal``, an ``Enum`` or a union of these is a `Choice`.
    The question is the field's description, otherwise its title or its name in words. A field with
    an alias is named by it.

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
                f"The field {name!r} of {model_class.__name__} has the type {field.annotation!r}. "
                "A decision requires fields with few values: bool, a Literal or an Enum. For "
                "others, create a Generator for the class."
            ) from None
        if len(options) == 1:
            raise OptionError(
                f"The field {name!r} of {model_class.__name__} has only one value, "
                f"{options[0]!r}, so there is nothing to decide. Remove it."
            )
        questions[key] = Choice(asked, options)
    if not questions:
        raise OptionError(f"{model_class.__name__} has no fields, so there is nothing to decide.")
    return questions


def is_model_class(questions: Any) -> bool:
    """Return whether this is a Pydantic class."""
    return isinstance(questions, type) and isinstance(
        getattr(questions, "model_fields", None), Mapping
    )
