"""Decisions: one state, many typed questions, a probability for every allowed answer.

In reading order: `questions` (`Predicate`, `Choice`, `Score`) and `fields` (those of a Pydantic
class), `templates` (prompts), `distributions` (the arithmetic and its bounds), `reading` (what
prompts share is run once), `asking`, `answers`, `metrics`, `calibration` and `diagram`, `requests`,
`decider`, `async_decider`, `json_form` and `system_one` (another form of questions and answers).
The sums over token sequences are `structgen.insight`'s. Knows no command line and no server.
"""

from __future__ import annotations

from .answers import Answer, Answers, ChoiceAnswer, PredicateAnswer, ScoreAnswer
from .async_decider import AsyncDecider
from .calibration import Calibration
from .decider import Decider
from .json_form import answers_to_json, questions_from_json
from .metrics import Bin, Metrics, measured
from .questions import Choice, Label, Predicate, Question, Score
from .reading import Usage
from .system_one import answer_of_system_one, question_of_system_one
from .templates import BASE, CHAT, PromptTemplate

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
    "Decider",
    "Label",
    "Metrics",
    "Predicate",
    "PredicateAnswer",
    "PromptTemplate",
    "Question",
    "Score",
    "ScoreAnswer",
    "Usage",
    "answer_of_system_one",
    "answers_to_json",
    "measured",
    "question_of_system_one",
    "questions_from_json",
]
