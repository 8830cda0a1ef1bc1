"""What the tools take: a class for each, whose JSON Schema is the tool's.

Owns names, descriptions for the host's model, and bounds. A field that a tool does not have is
refused. Knows neither the Runner nor MCP.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

MAX_TEXTS = 2_048
"""Most texts of one call of ``embed``."""

_USUAL_TOKENS = 512

Text = Annotated[str, Field(min_length=1)]
Probability = Annotated[float, Field(ge=0, le=1)]


class Arguments(BaseModel):
    """What all tools take."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    model: str | None = None
    """Id of the model; by default the first."""


class Written(Arguments):
    """What tools take whose model writes."""

    max_tokens: Annotated[int, Field(ge=1)] = _USUAL_TOKENS
    """Most tokens of the answer. An answer that has a form is always whole within them."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    """0: the likeliest token each time; above 0: sampled."""
    seed: int | None = None
    """The same seed gives the same answer."""


class Generate(Written):
    """Write an answer to a prompt with a language model on this machine. With json_schema, regex,
    choices or grammar the answer has exactly that form: pass at most one of them."""

    prompt: Text
    """What to answer."""
    system: str | None = None
    """Instructions that stand before the prompt."""
    json_schema: dict[str, Any] | bool | None = None
    """A JSON Schema that the answer satisfies. Objects have no members but those that it names."""
    regex: Text | None = None
    """A Python regular expression that the whole answer matches."""
    choices: Annotated[list[str], Field(min_length=1)] | None = None
    """Texts of which the answer is one."""
    grammar: Text | None = None
    """A grammar that the answer follows, as Lark or GBNF writes it."""


FORMS = ("json_schema", "regex", "choices", "grammar")
"""Fields of `Generate` that say the form of the answer."""


class Extract(Written):
    """Read facts out of a text, as a JSON value that satisfies a JSON Schema, with a language
    model on this machine. The value always satisfies the schema."""

    text: Text
    """The text."""
    json_schema: dict[str, Any]
    """A JSON Schema of the value. Names and descriptions in it tell the model what to look for.
    Objects have no members but those that it names."""
    instructions: str | None = None
    """What else the model should know."""


class Classify(Arguments):
    """Put a text into one of several classes, with the probability of each, by a language model on
    this machine."""

    text: Text
    """The text."""
    labels: (
        Annotated[list[Text], Field(min_length=2)]
        | Annotated[dict[Text, str | None], Field(min_length=2)]
    )
    """The classes: a list, or an object of each class and what it means (or null)."""
    instructions: Text = "Which class does the text belong to?"
    """The question that the class answers."""
    abstain_below: Probability | None = None
    """If the likeliest class has a lower probability, the label is null."""


class PredicateQuestion(BaseModel):
    """A question that yes or no answers."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    type: Literal["predicate"]
    instructions: Text
    """The question, or a statement that is true or not."""


class ChoiceQuestion(BaseModel):
    """A question that one of several options answers."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    type: Literal["choice"]
    instructions: Text
    """The question."""
    options: (
        Annotated[list[Text], Field(min_length=2)]
        | Annotated[dict[Text, str | None], Field(min_length=2)]
    )
    """The options: a list, or an object of each option and what it means (or null)."""


class ScoreQuestion(BaseModel):
    """A question that a level of an ordered scale answers."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    type: Literal["score"]
    instructions: Text
    """The question."""
    levels: Annotated[list[Text], Field(min_length=2)]
    """The levels, the lowest first."""


Question = Annotated[
    PredicateQuestion | ChoiceQuestion | ScoreQuestion, Field(discriminator="type")
]


class Decide(Arguments):
    """Answer typed questions about a text, with the probability of every allowed answer, by a
    language model on this machine."""

    text: Text
    """What the questions are about."""
    questions: Annotated[dict[Text, Question], Field(min_length=1)]
    """The questions by name, such as {"urgent": {"type": "predicate", "instructions": "Is it
    urgent?"}}."""
    abstain_below: Probability | None = None
    """An answer whose likeliest label has a lower probability is marked as abstained."""


class Embed(Arguments):
    """Make a vector of each text, with an embedding model on this machine. Texts that mean similar
    things have vectors with a large dot product."""

    texts: Annotated[list[Text], Field(min_length=1, max_length=MAX_TEXTS)]
    """The texts."""
    input_type: Literal["query", "document"] | None = None
    """What the texts are in a search: some models want to know."""
    dimensions: Annotated[int, Field(ge=1)] | None = None
    """Keep so many numbers of each vector."""
    truncate: bool = False
    """Whether texts that are too long are cut, rather than refused."""
