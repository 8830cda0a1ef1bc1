"""Decisions: one state, many typed questions, a probability for every allowed answer.

In reading order: `questions` (`Predicate`, `Choice`, `Score`), `templates` (prompts),
`distributions` (the arithmetic and its bounds), `asking` (asks a model; shared parts of prompts run
once), `comparing` (asks an embedder), `answers`, `calibration` (fits on examples, metrics and
diagrams), `decider` (`Decider`, `AsyncDecider`) and `json_form` (questions and answers as JSON).
`structgen.insight` sums over token sequences. Knows no command line and no server.
"""

from __future__ import annotations

from .answers import Answer, Answers, ChoiceAnswer, PredicateAnswer, ScoreAnswer
from .asking import Debias, Usage
from .calibration import Bin, Calibration, Metrics, measured
from .decider import AsyncDecider, Decider, SavedDecider
from .json_form import (
    answer_of_system_one,
    answers_to_json,
    question_of_system_one,
    questions_from_json,
)
from .questions import Choice, Label, Predicate, Question, Score
from .templates import BASE, CHAT, PromptTemplate, state_text

__all__ = [
    "BASE",
    "CHAT",
    "Answer",
    "Answers",
    "AsyncDecider",
    "Bin",
    "Calibration",
    "Choice",
    "ChoiceAnswer",
    "Debias",
    "Decider",
    "Label",
    "Metrics",
    "Predicate",
    "PredicateAnswer",
    "PromptTemplate",
    "Question",
    "SavedDecider",
    "Score",
    "ScoreAnswer",
    "Usage",
    "answer_of_system_one",
    "answers_to_json",
    "measured",
    "question_of_system_one",
    "questions_from_json",
    "state_text",
]
