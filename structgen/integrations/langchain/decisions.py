"""`StructgenDecisions`: typed questions to a model of a Runner, as LangChain asks them.

Owns LangChain's classes of questions, answers and states. What the answers are, and their form,
which is System One's, is `structgen.decisions`' business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage
from pydantic import ConfigDict, Field

from structgen.decisions import Question, answer_of_system_one, question_of_system_one
from structgen.errors import ModelError, OptionError
from structgen.runner import DecisionResponse, Runner

from ..frameworks import runner_of
from .answers import PROVIDER
from .errors import errors
from .messages import chat_of

try:
    import langchain_core.decisions as theirs
except ImportError as error:
    raise ModelError(
        "StructgenDecisions needs langchain-core 1.8 or newer. Update it: "
        "pip install -U langchain-core."
    ) from error


class StructgenDecisions(theirs.BaseDecisionModel):
    """A local decision model: the probability of every answer, to a proven bound.

    Attributes:
        model: as for `ChatStructgen`.
        runner: as for `ChatStructgen`.
        debias: see `structgen.decisions.Decider`.
        orders: in how many orders options are told, with ``orders``.
        tolerance: how far off a probability may be.
        adapter: name of a loaded adapter to run with.
        timeout: most seconds.
    """

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    runner: Runner | None = Field(default=None, exclude=True, repr=False)
    debias: str | None = None
    orders: int | None = None
    tolerance: float | None = None
    adapter: str | None = None
    timeout: float | None = None

    @property
    def _provider(self) -> str:
        return PROVIDER

    def _classify(self, state: Any, questions: dict[str, Any]) -> theirs.ClassifierResponse:
        with errors():
            made = runner_of(self.runner, self.model).decide(self._asked(state, questions))
        return _told(made, questions)

    async def _aclassify(self, state: Any, questions: dict[str, Any]) -> theirs.ClassifierResponse:
        with errors():
            made = await runner_of(self.runner, self.model).adecide(self._asked(state, questions))
        return _told(made, questions)

    def _asked(self, state: Any, questions: Mapping[str, Any]) -> dict[str, Any]:
        names = ("model", "debias", "orders", "tolerance", "adapter", "timeout")
        return {
            **{name: getattr(self, name) for name in names},
            "state": _state(state),
            "questions": {name: _question(name, one) for name, one in questions.items()},
        }


def _state(given: Any) -> Any:
    """A state as JSON; messages at its root as a chat."""
    if isinstance(given, BaseMessage):
        return chat_of([given])
    if isinstance(given, Mapping):
        return {name: _inner(one) for name, one in given.items()}
    if isinstance(given, Sequence) and not isinstance(given, str):
        if given and all(isinstance(one, BaseMessage) for one in given):
            return chat_of(given)
        return [_inner(one) for one in given]
    return given


def _inner(given: Any) -> Any:
    return chat_of([given])[0] if isinstance(given, BaseMessage) else _state(given)


def _question(name: str, given: Any) -> Question:
    if isinstance(given, theirs.Choice):
        return question_of_system_one("choice", given.instructions, given.criteria)
    if isinstance(given, theirs.Score):
        return question_of_system_one("score", given.instructions, given.criteria)
    if isinstance(given, theirs.Noul):
        one = given.criteria
        criteria = None if one is None else {"true": one.true, "false": one.false}
        return question_of_system_one("noul", given.instructions, criteria)
    raise OptionError(
        f"The question {name!r} is a {type(given).__name__}, which is not supported: models of "
        "structgen read text."
    )


def _told(made: DecisionResponse, questions: Mapping[str, Any]) -> theirs.ClassifierResponse:
    found: dict[str, Any] = {}
    for name, question in questions.items():
        found[name] = answer = answer_of_system_one(made.answers[name])
        if isinstance(question, theirs.Choice):
            chances = answer["probabilities"]
            answer["probabilities"] = {option: chances[option] for option in question.criteria}
    usage = {"input_tokens": made.usage.prompt_tokens, "output_tokens": 0}
    return theirs.ClassifierResponse.model_validate(
        {"model": made.model, "answers": found, "usage": usage, "request_id": made.id}
    )
