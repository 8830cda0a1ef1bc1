"""Shared by framework adapters: Runners, schemas, chats and details of answers.

Frameworks name models only by name, have classes whose JSON Schemas leave objects open, and
histories with messages in any order, which the Runner does not accept. Knows no framework.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from structgen.errors import OptionError
from structgen.grammar.json_schema import closed
from structgen.runner import ChatChunk, ChatRequest, Choice, EmbeddingResponse, Runner, Usage

# -- the Runner -------------------------------------------------------------------------------


@cache
def own_runner() -> Runner:
    """Return the Runner for models without another one; all adapters share its models."""
    return Runner()


def runner_of(given: Runner | None, model: str) -> Runner:
    """Return the Runner for a model, after the model was added if necessary.

    Args:
        given: a Runner that has the model. None: the Runner that all adapters share, to which any
            source of a Runner is added by name.
        model: id, alias or source.
    """
    if given is not None:
        return given
    know(own_runner(), model)
    return own_runner()


def know(runner: Runner, model: str) -> None:
    """Add a model to a Runner by its source, unless it is there."""
    if model not in runner.list_models():
        with contextlib.suppress(OptionError):  # another thread has just added it
            runner.add_model(model, model)


# -- schemas ----------------------------------------------------------------------------------


def schema_format(name: str, schema: Any) -> dict[str, Any]:
    """Return the ``response_format`` of a JSON Schema."""
    return {"type": "json_schema", "json_schema": {"name": name, "schema": schema}}


def closed_format(given: Any) -> Any:
    """Return a ``response_format`` whose schema, if it has one, is `closed`."""
    inner = given.get("json_schema") if isinstance(given, Mapping) else None
    if not isinstance(inner, Mapping) or not isinstance(inner.get("schema"), Mapping):
        return given
    return {**given, "json_schema": {**inner, "schema": closed(inner["schema"])}}


# -- chats ------------------------------------------------------------------------------------


def joined(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages in the form that chat templates accept.

    Templates accept one system message, the first, and some accept no two user messages in a row.
    So the first system messages become one, and consecutive user messages become one. If these have
    different names, each text begins with its name.
    """
    made: list[dict[str, Any]] = []
    for message in messages:
        role = message["role"]
        joins = role == "user" or (role == "system" and len(made) == 1)
        if made and made[-1]["role"] == role and joins:
            both = [made[-1], dict(message)]
            if made[-1].get("name") != message.get("name"):
                for one in both:
                    name = one.pop("name", None)
                    one["content"] = f"{name}: {one['content']}" if name else one["content"]
            made[-1]["content"] = "\n\n".join([one["content"] for one in both])
        else:
            made.append(dict(message))
    return made


def answer(text: str | None, thought: str | None, calls: Sequence[Any]) -> dict[str, Any]:
    """Return an earlier answer in the form that chat templates accept."""
    others = {"reasoning_content": thought, "tool_calls": calls}
    found = {name: value for name, value in others.items() if value}
    return {"role": "assistant", "content": text, **found}


def no_text(what: str) -> OptionError:
    """Return the error for content that is not text."""
    return OptionError(f"{what} is not supported: models of structgen read only text.")


# -- requests ---------------------------------------------------------------------------------


def call_of(id_: str | None, name: str, arguments: Any) -> dict[str, Any]:
    """Return a tool call in the form of messages; ``arguments``: by name, or as JSON.

    Raises:
        OptionError: they cannot be written as JSON.
    """
    if not isinstance(arguments, str):
        try:
            arguments = json.dumps(
                arguments, ensure_ascii=False, allow_nan=False, default=to_jsonable_python
            )
        except (TypeError, ValueError, RecursionError) as error:
            why = f"The arguments of a call of {name} cannot be written as JSON: {error}"
            raise OptionError(why) from error
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool_of(name: str, description: str | None, parameters: Any) -> dict[str, Any]:
    """Return a tool in the form of requests."""
    about = {} if description is None else {"description": description}
    return {"type": "function", "function": {"name": name, **about, "parameters": parameters}}


def own_fields(model: BaseModel, kind: type[BaseModel]) -> dict[str, Any]:
    """Return the fields that are set on a framework's model, that its class ``kind`` adds to the
    framework's own, and that are fields of requests. Requests without tools have no
    ``parallel_tool_calls``."""
    names = [name for name in kind.__annotations__ if name in ChatRequest.model_fields]
    found = {name: getattr(model, name) for name in names if name != "parallel_tool_calls"}
    return {name: value for name, value in found.items() if value is not None}


_TAKEN = ("messages", "stream_options", "session_id", "max_tool_rounds", "approve")
"""Fields of a request that all frameworks set themselves, or that conflict with them."""


def check_free(fields: Mapping[str, Any], taken: Iterable[str], by: str) -> None:
    """Check that a caller sets no field that a framework sets itself: ``taken`` and `_TAKEN`.

    Raises:
        OptionError: a caller does.
    """
    for name in (*_TAKEN, *taken):
        if name in fields:
            raise OptionError(f"{name} cannot be set: {by} sets it.")


def chat_request(
    fields: Mapping[str, Any], messages: Sequence[Mapping[str, Any]], streams: str | None
) -> dict[str, Any]:
    """Return the fields of a request for a chat.

    Args:
        fields: the fields that a caller sets.
        messages: the chat.
        streams: the error message for several answers in a stream; None: not a stream.

    Raises:
        OptionError: a stream of several answers was requested.
    """
    made = {**fields, "messages": messages}
    if streams is not None:
        if made.get("n") not in (None, 1):
            raise OptionError(f"n={made['n']!r} is not supported {streams}")
        made["stream_options"] = {"include_usage": True}
    if "response_format" in made:
        made["response_format"] = closed_format(made["response_format"])
    return made


def vector_request(model: str, embedder: Any, texts: list[str], input_type: str) -> dict[str, Any]:
    """Return the fields of a request for vectors from an adapter's ``embedder``."""
    return {
        "model": model,
        "input": texts,
        "input_type": input_type,
        "dimensions": embedder.dimensions,
        "truncate_sequence": embedder.truncate,
    }


# -- answers ----------------------------------------------------------------------------------


def details_of(choice: Choice) -> dict[str, Any]:
    """Return the details of a complete choice, except its message."""
    details: dict[str, Any] = {"finish_reason": choice.finish_reason}
    if choice.logprobs is not None:
        tokens = choice.logprobs.content or ()
        details["logprobs"] = [token.model_dump(mode="json") for token in tokens]
    if choice.shortened:
        details["shortened"] = choice.shortened
    if choice.confidence is not None and choice.result is not None:
        details["confidence"] = {
            path: known.model_dump(mode="json") for path, known in choice.confidence.items()
        }
        details["abstained"] = [known.path for known in choice.result.abstained]
    if choice.trace:
        details["trace"] = [step.model_dump(mode="json") for step in choice.trace]
    return details


class Growing:
    """The chunks so far of a request for one answer, joined.

    Attributes:
        choice: the answer.
        usage: the usage, once it is known.
        details: the result of `details_of`, once the answer has ended.
    """

    def __init__(self) -> None:
        self.choice = Choice.begun()
        self.usage: Usage | None = None
        self.details: dict[str, Any] = {}

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The tool calls; the arguments of the last may be unfinished."""
        return [one.model_dump(mode="json") for one in self.choice.message.tool_calls or ()]

    def add(self, chunk: ChatChunk) -> None:
        """Add a chunk."""
        self.usage = chunk.usage or self.usage
        for more in chunk.choices:
            self.choice.add(more)
            if more.finish_reason is not None:
                self.details = details_of(self.choice)


def vectors_of(made: EmbeddingResponse) -> list[list[float]]:
    """Return the vectors of an answer, in the order of their texts."""
    return [one.embedding for one in made.data if isinstance(one.embedding, list)]


def embedded(embedder: Any, model: str, texts: list[str], input_type: str) -> list[list[float]]:
    """Return the vectors of texts (there may be none), with the fields of `vector_request`."""
    fields = vector_request(model, embedder, texts, input_type)
    return vectors_of(runner_of(embedder.runner, model).embed(fields)) if texts else []


async def aembedded(
    embedder: Any, model: str, texts: list[str], input_type: str
) -> list[list[float]]:
    """`embedded`, for async code."""
    fields = vector_request(model, embedder, texts, input_type)
    return vectors_of(await runner_of(embedder.runner, model).aembed(fields)) if texts else []
