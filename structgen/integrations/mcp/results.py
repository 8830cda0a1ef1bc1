"""What the tools return: a class for each, whose JSON Schema is the tool's output schema."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Result(BaseModel):
    """What all tools return."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    model: str
    """Id of the model that answered."""
    prompt_tokens: int
    """Tokens that it read."""


class Written(Result):
    """What tools return whose model writes."""

    completion_tokens: int
    """Tokens that it wrote."""
    shortened: list[str]
    """JSON paths of the values that the limit on tokens cut short; "$" is the whole answer."""


class Generated(Written):
    """An answer."""

    text: str
    """The answer."""
    value: Any
    """The JSON value that the answer is, with json_schema; else null."""
    finish_reason: Literal["stop", "length"]
    """``length``: the text was cut at max_tokens, which happens to free text only."""


class Extracted(Written):
    """Facts."""

    value: Any
    """A JSON value that satisfies the schema."""


class LabelProbability(BaseModel):
    """How likely a class is."""

    label: str
    probability: float


class Classified(Result):
    """A class."""

    label: str | None
    """The likeliest class; null if it is less likely than abstain_below."""
    probabilities: list[LabelProbability]
    """Of all classes, the likeliest first."""


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    confidence: float
    """1: one answer has all the probability; 0: all have the same."""
    margin: float
    """By how much the likeliest answer is likelier than the next."""
    mass: float
    """How much the model wanted to give one of the allowed answers at all."""
    error_bound: float
    """No probability is further off than this."""
    abstained: bool
    """Whether the likeliest is below abstain_below."""
    informative: bool
    """False: the model answers nearly the same without the text."""


class PredicateAnswer(_Answer):
    """The answer to a question of yes or no."""

    type: Literal["predicate"]
    probability: float
    """Of yes."""


class OptionProbability(BaseModel):
    """How likely an option is."""

    value: str
    probability: float


class ChoiceAnswer(_Answer):
    """The answer to a choice."""

    type: Literal["choice"]
    choice: str | None
    """The likeliest option; null where the model abstained."""
    probabilities: list[OptionProbability]
    """Of all options, the likeliest first."""


class LevelProbability(BaseModel):
    """How likely a level is."""

    value: int
    label: str
    probability: float


class ScoreAnswer(_Answer):
    """The answer to a score."""

    type: Literal["score"]
    score: float
    """The mean level; the lowest is 0."""
    probabilities: list[LevelProbability]
    """Of all levels, the lowest first."""


class Decided(Result):
    """Answers."""

    answers: dict[
        str,
        Annotated[PredicateAnswer | ChoiceAnswer | ScoreAnswer, Field(discriminator="type")],
    ]
    """By the names of the questions."""


class Embedded(Result):
    """Vectors."""

    vectors: list[list[float]]
    """One for each text, in their order."""
    dimensions: int
    """How many numbers each has."""
