"""What adapters to frameworks share: whose Runner, which schemas, chats and details of answers.

Owns what frameworks have in common that the Runner does not: models that are named and nothing
more, classes whose JSON Schemas leave objects open, histories with messages in any order. Knows no
framework.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from structgen.errors import OptionError
from structgen.runner import EmbeddingResponse, Runner

from .closing import closed

# -- the Runner -------------------------------------------------------------------------------


@cache
def own_runner() -> Runner:
    """The Runner of models for which no other was named: each is loaded once for all."""
    return Runner()


def runner_of(given: Runner | None, model: str) -> Runner:
    """The Runner that is meant, which knows a model.

    Args:
        given: it knows its models itself. None: one that all adapters share, to which whatever a
            Runner takes as a source is added by its name.
        model: id, alias or source.
    """
    if given is not None:
        return given
    runner = own_runner()
    if model not in runner.list_models():
        with contextlib.suppress(OptionError):  # another thread has just added it
            runner.add_model(model, model)
    return runner


# -- schemas ----------------------------------------------------------------------------------


def closed_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool of OpenAI's shape whose arguments are `closed`."""
    function = tool.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("parameters"), Mapping):
        return dict(tool)
    return {**tool, "function": {**function, "parameters": closed(function["parameters"])}}


def closed_format(given: Any) -> Any:
    """A ``response_format`` whose schema, if it has one, is `closed`."""
    inner = given.get("json_schema") if isinstance(given, Mapping) else None
    if not isinstance(inner, Mapping) or not isinstance(inner.get("schema"), Mapping):
        return given
    return {**given, "json_schema": {**inner, "schema": closed(inner["schema"])}}


# -- chats ------------------------------------------------------------------------------------


def joined(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages as chat templates take them.

    They take one system message, the first, and some of them no two messages of the user's in a
    row: the system's first ones become one, and so do the user's that follow each other.
    """
    made: list[dict[str, Any]] = []
    for message in messages:
        role = message["role"]
        goes_on = role == "user" or (role == "system" and len(made) == 1)
        if made and made[-1]["role"] == role and goes_on:
            made[-1]["content"] = f"{made[-1]['content']}\n\n{message['content']}"
        else:
            made.append(dict(message))
    return made


# -- answers ----------------------------------------------------------------------------------


def details_of(choice: Any, trace: Any) -> dict[str, Any]:
    """What is known of an answer at its end, beside what it says.

    Args:
        choice: of a whole answer, or of the chunk that ends it.
        trace: its steps.
    """
    details: dict[str, Any] = {"finish_reason": choice.finish_reason}
    if choice.logprobs is not None:
        details["logprobs"] = choice.logprobs.model_dump(mode="json")["content"]
    if choice.shortened:
        details["shortened"] = choice.shortened
    if choice.confidence is not None:
        details["confidence"] = {
            path: known.model_dump(mode="json") for path, known in choice.confidence.items()
        }
        details["abstained"] = [known.path for known in choice.result.abstained]
    if trace:
        details["trace"] = [step.model_dump(mode="json") for step in trace]
    return details


def vectors_of(made: EmbeddingResponse) -> list[list[float]]:
    """The vectors of an answer, in the order of their texts."""
    return [one.embedding for one in made.data if isinstance(one.embedding, list)]
