"""The shapes of bodies and answers that HTTP has beside those of the Runner, as Pydantic classes.

In reading order: `base` (what all have in common), `items` (of the input of the Responses API and
of decisions), `responses`, `decisions`, `others`, and `fields` (schemas of fields of chats that the
Runner reads itself). The classes of bodies are what bodies are checked by, so that the document at
``/openapi.json``, which is made of them, says what is so. Those of answers are for the document
alone, and tests hold the answers to it.
"""

from __future__ import annotations

from .base import Answer, Body, Strictly
from .decisions import DecisionAnswer, DecisionsBody, SystemOneAnswer, SystemOneBody
from .fields import CHAT_FIELDS, DOCUMENTS, INPUT, TEXT_FIELDS
from .items import InputItem
from .others import (
    DeletedResponse,
    DetokenizeAnswer,
    ErrorAnswer,
    Explanation,
    FormProblems,
    GrammarList,
    GrammarText,
    Health,
    InputItemList,
    ModelEntry,
    ModelList,
    ModelState,
    Picture,
    Readiness,
    TokenizeAnswer,
)
from .responses import ResponseAnswer, ResponsesBody

__all__ = [
    "CHAT_FIELDS",
    "DOCUMENTS",
    "INPUT",
    "TEXT_FIELDS",
    "Answer",
    "Body",
    "DecisionAnswer",
    "DecisionsBody",
    "DeletedResponse",
    "DetokenizeAnswer",
    "ErrorAnswer",
    "Explanation",
    "FormProblems",
    "GrammarList",
    "GrammarText",
    "Health",
    "InputItem",
    "InputItemList",
    "ModelEntry",
    "ModelList",
    "ModelState",
    "Picture",
    "Readiness",
    "ResponseAnswer",
    "ResponsesBody",
    "Strictly",
    "SystemOneAnswer",
    "SystemOneBody",
    "TokenizeAnswer",
]
