"""Answers of the endpoints around text: models, tokens, grammars, health; and errors."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from .base import Answer, Count

State = Literal["loaded", "loading", "unloading", "unloaded", "failed"]


class ErrorDetails(Answer):
    """What is wrong and what to do."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(Answer):
    """An error."""

    error: ErrorDetails


class ModelEntry(Answer):
    """A model."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    status: State
    aliases: list[str]
    is_default: bool


class ModelList(Answer):
    """All models."""

    object: Literal["list"]
    data: list[ModelEntry]


class ModelState(Answer):
    """What is known of a model."""

    id: str
    status: State
    kind: Literal["text", "embedding"] | None
    bytes: Count | None
    users: Count
    error: str | None
    aliases: list[str]
    is_default: bool
    search_defaults: dict[str, Any] | None


class TokenizeAnswer(Answer):
    """Token ids."""

    count: Count
    max_model_len: int
    tokens: list[int]


class DetokenizeAnswer(Answer):
    """A text, under both of the names that programs know."""

    prompt: str
    text: str


class Problem(Answer):
    """What is wrong with a form."""

    message: str
    line: int | None
    path: str | None
    is_error: bool


class FormProblems(Answer):
    """Whether a form can be enforced."""

    valid: bool
    problems: list[Problem]


class GrammarEntry(Answer):
    """A grammar of the library."""

    id: str
    description: str


class GrammarList(Answer):
    """All of them."""

    object: Literal["list"]
    data: list[GrammarEntry]


class GrammarText(GrammarEntry):
    """A grammar as text."""

    grammar_type: Literal["lark"]
    grammar: str


class PictureState(Answer):
    """A state of an automaton."""

    accepting: bool


class PictureEdge(Answer):
    """An edge."""

    of: Annotated[int, Field(alias="from")]
    to: int
    label: str


class Picture(Answer):
    """An automaton, or its beginning."""

    states: list[PictureState]
    edges: list[PictureEdge]
    is_whole: bool


class Explanation(Answer):
    """Why a token was not allowed."""

    reason: str


class Health(Answer):
    """The process answers."""

    status: Literal["ok"]


class Readiness(Answer):
    """All models are there."""

    status: Literal["ready"]
    models: dict[str, State]


class DeletedResponse(Answer):
    """An answer is forgotten."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]


class InputItemList(Answer):
    """The items that an answer is to, the last first."""

    object: Literal["list"]
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: Literal[False]
