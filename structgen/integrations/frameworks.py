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
from structgen.grammar.json_schema import closed
from structgen.runner import (
    ChatChunk,
    Choice,
    ChunkChoice,
    EmbeddingResponse,
    Runner,
    TokenLogprob,
    Usage,
)

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


class Told:
    """What an answer's choice tells beside what it says, over all its chunks.

    Attributes:
        logprobs: of its tokens so far, where they were asked for.
    """

    def __init__(self) -> None:
        self.logprobs: list[TokenLogprob] | None = None
        self._steps: dict[int, Any] = {}

    def add(self, choice: Choice | ChunkChoice) -> dict[str, Any]:
        """Take a whole choice, or a chunk of one; return all that was told where it ends."""
        for step in choice.trace or ():  # one may come again, with more known of it
            self._steps[step.index] = step
        if choice.logprobs is not None:
            self.logprobs = [*(self.logprobs or ()), *(choice.logprobs.content or ())]
        if choice.finish_reason is None:
            return {}
        details: dict[str, Any] = {"finish_reason": choice.finish_reason}
        if self.logprobs is not None:
            details["logprobs"] = [token.model_dump(mode="json") for token in self.logprobs]
        if choice.shortened:
            details["shortened"] = choice.shortened
        if choice.confidence is not None and choice.result is not None:
            details["confidence"] = {
                path: known.model_dump(mode="json") for path, known in choice.confidence.items()
            }
            details["abstained"] = [known.path for known in choice.result.abstained]
        if self._steps:
            details["trace"] = [step.model_dump(mode="json") for step in self._steps.values()]
        return details


def details_of(choice: Choice) -> dict[str, Any]:
    """What a whole choice tells beside what it says."""
    return Told().add(choice)


class Growing:
    """What the chunks of an answer that came so far make together.

    Attributes:
        text: the content.
        thought: what was thought.
        calls: of tools, in OpenAI's shape; the arguments of the last may be unfinished.
        usage: of the tokens, once it is known.
        details: as `Told` has them, once it has ended.
    """

    def __init__(self) -> None:
        self.text = ""
        self.thought = ""
        self.calls: list[dict[str, Any]] = []
        self.usage: Usage | None = None
        self.details: dict[str, Any] = {}
        self._told = Told()

    @property
    def logprobs(self) -> list[TokenLogprob] | None:
        """Of the tokens so far, where they were asked for."""
        return self._told.logprobs

    def add(self, chunk: ChatChunk) -> None:
        """Take a chunk of a request for one answer."""
        self.usage = chunk.usage or self.usage
        for choice in chunk.choices:
            self.text += choice.delta.content or ""
            self.thought += choice.delta.reasoning_content or ""
            for call in choice.delta.tool_calls or ():
                if call.index == len(self.calls):
                    function = {"name": call.function.name, "arguments": ""}
                    self.calls.append({"id": call.id, "type": "function", "function": function})
                self.calls[call.index]["function"]["arguments"] += call.function.arguments
            self.details = self._told.add(choice) or self.details


def vectors_of(made: EmbeddingResponse) -> list[list[float]]:
    """The vectors of an answer, in the order of their texts."""
    return [one.embedding for one in made.data if isinstance(one.embedding, list)]
