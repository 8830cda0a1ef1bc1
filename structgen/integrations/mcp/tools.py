"""A call of a tool as a request of the Runner's, and its answer as the tool's result.

Owns which fields of the Runner's a tool's arguments are, and what the model is told beside them.
Knows no MCP: progress goes to a callback.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from pydantic import BaseModel

from structgen.errors import ModelNotFound, RequestError
from structgen.grammar.json_schema import closed
from structgen.runner import ChatChunk, Runner

from . import arguments, results

ArgumentsT = TypeVar("ArgumentsT", bound=arguments.Arguments)

Told: TypeAlias = "Callable[[float, str], Awaitable[None]]"
"""Is awaited with how far a call has come, which always grows, and what that means."""

_EACH = 16  # pieces of text, one or more tokens, between two words of progress


@dataclass(frozen=True, slots=True)
class Models:
    """Which models the tools may be asked for: ids of the Runner's.

    Attributes:
        text: that write and decide; the first unless a call names one.
        embedding: that make vectors; the same. None: there is no tool ``embed``.
    """

    text: Sequence[str]
    embedding: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Tool(Generic[ArgumentsT]):
    """A tool.

    Attributes:
        name: the tool's.
        title: for people.
        takes: the class of its arguments.
        returns: the class of its result.
        call: asks the Runner.
    """

    name: str
    title: str
    takes: type[ArgumentsT]
    returns: type[BaseModel]
    call: Callable[[Runner, str, ArgumentsT, Told], Awaitable[BaseModel]]


async def generate(
    runner: Runner, model: str, asked: arguments.Generate, told: Told
) -> results.Generated:
    """Write an answer."""
    messages = [{"role": "user", "content": asked.prompt}]
    if asked.system is not None:
        messages.insert(0, {"role": "system", "content": asked.system})
    fields: dict[str, Any] = {}
    forms = [name for name in arguments.FORMS if getattr(asked, name) is not None]
    if len(forms) > 1:
        raise RequestError(
            f"{' and '.join(forms)} both say what form the answer has. Pass one.", param=forms[1]
        )
    for name in forms:
        form = getattr(asked, name)
        if isinstance(form, dict):
            form = closed(form)
        fields = {"grammar": form, "grammar_type": _KINDS.get(name) or _dialect(form)}
    written = await _written(runner, model, asked, {"messages": messages, **fields}, told)
    return results.Generated(
        text=written.text,
        value=None if asked.json_schema is None else json.loads(written.text),
        finish_reason=written.finish_reason,
        **written.told,
    )


_KINDS = {"json_schema": "json_schema", "regex": "regex", "choices": "choice"}


def _dialect(grammar: str) -> str:
    return "gbnf" if "::=" in grammar else "lark"  # which Lark has not


async def extract(
    runner: Runner, model: str, asked: arguments.Extract, told: Told
) -> results.Extracted:
    """Read facts out of a text."""
    schema = json.dumps(asked.json_schema, ensure_ascii=False)
    system = (
        "Extract the facts of the user's text as JSON. Take them from the text alone. "
        f"The JSON satisfies this schema: {schema}"
    )
    if asked.instructions is not None:
        system += f"\n{asked.instructions}"
    fields = {
        "messages": [
            {"role": "system", "content": system},
            {"role": "user", "content": asked.text},
        ],
        "grammar": closed(asked.json_schema),
        "grammar_type": "json_schema",
    }
    written = await _written(runner, model, asked, fields, told)
    return results.Extracted(value=json.loads(written.text), **written.told)


@dataclass(frozen=True, slots=True)
class _Text:
    """What a model has written, and what the results of all tools say of it."""

    text: str
    finish_reason: Any
    told: dict[str, Any]


async def _written(
    runner: Runner, model: str, asked: arguments.Written, fields: dict[str, Any], told: Told
) -> _Text:
    """The answer to a chat, with words of progress while it grows."""
    for name in ("max_tokens", "temperature", "seed"):
        fields[name] = getattr(asked, name)
    fields["stream_options"] = {"include_usage": True}
    text, reason, shortened, usage = "", None, None, None
    number = 0
    async with aclosing(_chunks(runner, model, fields)) as chunks:
        async for chunk in chunks:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                text += choice.delta.content or ""
                reason = choice.finish_reason or reason
                shortened = choice.shortened or shortened
            number += 1
            if number % _EACH == 0:
                await told(number, f"{len(text):,} characters written")
    assert usage is not None
    said = {
        "model": model,
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "shortened": shortened or [],
    }
    return _Text(text, reason, said)


async def _chunks(runner: Runner, model: str, fields: dict[str, Any]) -> Any:
    async with runner.astream_chat(fields, model=model) as stream:
        async for chunk in stream:
            assert isinstance(chunk, ChatChunk)
            yield chunk


async def classify(
    runner: Runner, model: str, asked: arguments.Classify, told: Told
) -> results.Classified:
    """Put a text into a class."""
    question = {"type": "choice", "instructions": asked.instructions, "options": asked.labels}
    made = await runner.adecide(
        state=asked.text,
        questions={"label": question},
        abstain_below=asked.abstain_below,
        model=model,
    )
    answer = made.answers["label"]
    return results.Classified(
        model=model,
        prompt_tokens=made.usage.prompt_tokens,
        label=answer["choice"],
        probabilities=[
            results.LabelProbability(label=one["value"], probability=one["probability"])
            for one in answer["probabilities"]
        ],
    )


async def decide(
    runner: Runner, model: str, asked: arguments.Decide, told: Told
) -> results.Decided:
    """Answer questions about a text."""
    made = await runner.adecide(
        state=asked.text,
        questions={name: one.model_dump() for name, one in asked.questions.items()},
        abstain_below=asked.abstain_below,
        model=model,
    )
    return results.Decided(
        model=model, prompt_tokens=made.usage.prompt_tokens, answers=made.answers
    )


async def embed(runner: Runner, model: str, asked: arguments.Embed, told: Told) -> results.Embedded:
    """Make vectors."""
    made = await runner.aembed(
        input=asked.texts,
        input_type=asked.input_type,
        dimensions=asked.dimensions,
        truncate_sequence=asked.truncate,
        model=model,
    )
    vectors = [one.embedding for one in made.data if isinstance(one.embedding, list)]
    return results.Embedded(
        model=model,
        prompt_tokens=made.usage.prompt_tokens,
        vectors=vectors,
        dimensions=len(vectors[0]),
    )


_WRITING: tuple[Tool[Any], ...] = (
    Tool("generate", "Generate", arguments.Generate, results.Generated, generate),
    Tool("extract", "Extract facts", arguments.Extract, results.Extracted, extract),
    Tool("classify", "Classify", arguments.Classify, results.Classified, classify),
    Tool("decide", "Decide", arguments.Decide, results.Decided, decide),
)

_EMBED: Tool[Any] = Tool("embed", "Embed", arguments.Embed, results.Embedded, embed)

_NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "generate": {"grammar": arguments.FORMS, "messages": ("prompt",)},
    "extract": {"grammar": ("json_schema",), "messages": ("text",)},
    "classify": {"questions": ("labels",), "state": ("text",)},
    "decide": {"state": ("text",)},
    "embed": {"input": ("texts",), "truncate_sequence": ("truncate",)},
}
"""What the tools call fields of the Runner's."""


def tools_of(models: Models) -> dict[str, Tool[Any]]:
    """The tools that there are with these models, by name."""
    found = (*(_WRITING if models.text else ()), *((_EMBED,) if models.embedding else ()))
    return {tool.name: tool for tool in found}


def models_of(tool: Tool[Any], models: Models) -> Sequence[str]:
    """The models that may be asked by a tool."""
    return models.embedding if tool is _EMBED else models.text


async def called(
    runner: Runner, tool: Tool[Any], models: Models, given: arguments.Arguments, told: Told
) -> BaseModel:
    """The result of a tool.

    Raises:
        ModelNotFound: the arguments name a model that the tool has not.
        RequestError: an argument is wrong; the message calls it as the tool does.
        StructgenError: as the Runner raises.
    """
    known = models_of(tool, models)
    model = known[0] if given.model is None else given.model
    if model not in known:
        raise ModelNotFound(f"There is no model {model!r} here. There are: {', '.join(known)}.")
    if not runner.is_model_loaded(model):
        await told(0, f"loading {model}")
    try:
        return await tool.call(runner, model, given, told)
    except RequestError as error:
        raise _named(error, tool, given) from error


def _named(error: RequestError, tool: Tool[Any], given: arguments.Arguments) -> RequestError:
    """The error in the tool's words."""
    param = error.param
    said = str(error).replace("truncate_sequence=True", "truncate=true")
    for ours, theirs in _NAMES[tool.name].items():
        if param is not None and param.startswith(ours):
            name = next((one for one in theirs if getattr(given, one) is not None), theirs[0])
            renamed = name + param[len(ours) :]
            return RequestError(said.replace(param, renamed), param=renamed)
    return RequestError(said, param=param)
