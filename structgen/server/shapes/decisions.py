"""Decisions: questions and answers in OpenAI's form, and in System One's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    Tag,
    WrapValidator,
)
from pydantic_core import PydanticCustomError

from structgen.runner import ByName, Many, in_slices

from .base import Answer, Body, Count, Number, Probability, kind_of, tag_of
from .items import InputItem, InputJson, InputText
from .responses import ResponseUsage


def _text_part(given: Any) -> Any:
    return kind_of(given, ("input_text", "input_json"))


Instructions: TypeAlias = (
    Annotated[StrictStr, Field(min_length=1)]
    | Many[
        Annotated[
            Annotated[InputText, Tag("input_text-part")]
            | Annotated[InputJson, Tag("input_json-part")],
            Discriminator(tag_of),
            BeforeValidator(_text_part),
        ]
    ]
)


class OwnFields(Body):
    """Fields of structgen's own, which both endpoints take; and those that change nothing."""

    model: StrictStr | None = None
    abstain_below: Number | ByName[Number] | None = None
    debias: Literal["none", "prior", "contextual", "orders"] | None = None
    orders: StrictInt | None = None
    tolerance: Number | None = None
    adapter: StrictStr | None = None
    timeout: Number | None = None
    user: StrictStr | None = None
    metadata: dict[str, Any] | None = None
    safety_identifier: StrictStr | None = None
    prompt_cache_key: StrictStr | None = None
    prompt_cache_options: dict[str, Any] | None = None


# -- OpenAI's ---------------------------------------------------------------------------------


class PredicateQuestion(Body):
    """How likely something is so."""

    type: Literal["predicate"]
    name: StrictStr | None = None
    instructions: Instructions


class Option(Body):
    """What may be chosen."""

    value: StrictBool | StrictStr
    description: StrictStr | None = None


class ChoiceQuestion(Body):
    """Which of some options."""

    type: Literal["choice"]
    name: StrictStr | None = None
    instructions: Instructions
    choices: Annotated[Many[Option], Field(min_length=2)]


class Level(Body):
    """A level of a scale."""

    label: StrictStr
    description: StrictStr | None = None


class ScoreQuestion(Body):
    """How much, on a scale."""

    type: Literal["score"]
    name: StrictStr | None = None
    instructions: Instructions
    levels: Annotated[Many[Level], Field(min_length=2)]


def _question(given: Any) -> Any:
    """Check the type, and that labels are not in the form of `structgen.decisions`' own JSON."""
    given = kind_of(given, ("predicate", "choice", "score"))
    for field, name, key in (
        ("options", "choices", "value"),
        ("choices", "choices", "value"),
        ("levels", "levels", "label"),
    ):
        labels = given.get(field) if isinstance(given, Mapping) else None
        if labels is not None and (
            field != name or not isinstance(labels, list) or any(type(one) is str for one in labels)
        ):
            example = f'[{{"{key}": "…", "description": "…"}}, …]'
            raise PydanticCustomError(
                "shape",
                'Write "{name}": {example}.',
                {"at": field, "name": name, "example": example},
            )
    return given


class DecisionsBody(OwnFields):
    """Questions about an input."""

    input: StrictStr | Many[InputItem]
    questions: Annotated[
        Many[
            Annotated[
                Annotated[PredicateQuestion, Tag("predicate-part")]
                | Annotated[ChoiceQuestion, Tag("choice-part")]
                | Annotated[ScoreQuestion, Tag("score-part")],
                Discriminator(tag_of),
                BeforeValidator(_question),
            ]
        ],
        Field(min_length=1),
    ]


class PredicateOut(Answer):
    """How likely it is so."""

    name: str | None
    type: Literal["predicate"]
    probability: Probability
    informative: bool


class OptionOut(Answer):
    """How likely an option is the answer."""

    value: str | bool
    probability: Probability


class ChoiceOut(Answer):
    """The likeliest option, and all of them."""

    name: str | None
    type: Literal["choice"]
    choice: str | bool
    confidence: Probability
    probabilities: list[OptionOut]
    informative: bool


class LevelOut(Answer):
    """How likely a level is the answer."""

    value: int
    label: str
    probability: Probability


class ScoreOut(Answer):
    """The mean level, and all of them."""

    name: str | None
    type: Literal["score"]
    score: float
    confidence: Probability
    probabilities: list[LevelOut]
    informative: bool


class RefusalOut(Answer):
    """No answer was as likely as ``abstain_below`` asks."""

    name: str | None
    type: Literal["refusal"]


class DecisionAnswer(Answer):
    """The answers, in the order of the questions."""

    object: Literal["decision"]
    model: str
    answers: list[PredicateOut | ChoiceOut | ScoreOut | RefusalOut]
    usage: ResponseUsage


# -- System One's -----------------------------------------------------------------------------


Criteria = Annotated[dict[Literal["true", "false"], Any], WrapValidator(in_slices)]


class NoulQuestion(Body):
    """How likely something is so."""

    type: Literal["noul"]
    instructions: Any
    criteria: Criteria | None = None


class CriteriaQuestion(Body):
    """Which of some options, each with what it means."""

    type: Literal["choice"]
    instructions: Any
    criteria: Annotated[dict[str, Any], Field(min_length=2)]


class LevelsQuestion(Body):
    """How much, on a scale."""

    type: Literal["score"]
    instructions: Any
    criteria: Annotated[list[Any], Field(min_length=2)]


def _named_question(given: Any) -> Any:
    return kind_of(given, ("noul", "choice", "score"))


class SystemOneBody(OwnFields):
    """Named questions about a state."""

    state: Any
    questions: Annotated[
        ByName[
            Annotated[
                Annotated[NoulQuestion, Tag("noul-part")]
                | Annotated[CriteriaQuestion, Tag("choice-part")]
                | Annotated[LevelsQuestion, Tag("score-part")],
                Discriminator(tag_of),
                BeforeValidator(_named_question),
            ],
        ],
        Field(min_length=1),
    ]


class NoulOut(Answer):
    """How likely it is so."""

    type: Literal["noul"]
    noul: Probability


class NamedChoiceOut(Answer):
    """The likeliest option; null: none was as likely as ``abstain_below`` asks."""

    type: Literal["choice"]
    choice: str | None
    probabilities: dict[str, Probability]
    confidence: Probability


class NamedScoreOut(Answer):
    """The mean level, what levels mean, and how likely each is."""

    type: Literal["score"]
    score: float
    legend: dict[str, str]
    probabilities: dict[str, Probability]
    confidence: Probability


class SystemOneUsage(Answer):
    """How many tokens were read, and written: none."""

    input_tokens: Count
    output_tokens: Count


class SystemOneAnswer(Answer):
    """The answers by name."""

    model: str
    answers: dict[str, NoulOut | NamedChoiceOut | NamedScoreOut]
    usage: SystemOneUsage
