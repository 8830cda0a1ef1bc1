"""llm: a plugin of the command-line tool and its library, with models and embedders of a Runner.

    llm -m structgen/smollm2-135m-instruct 'Describe a cat' --schema 'name, age int'

llm finds it by its entry point if both are installed. Maps llm's models and options to a request,
and converts prompts, answers and tool calls.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field, create_model, field_validator

from structgen import models
from structgen.errors import ModelError, StructgenError, requires
from structgen.options import FIELDS, OPTIONS

with requires(ModelError, "structgen.integrations.llm needs the package llm. Install it", "llm"):
    import llm

if TYPE_CHECKING:
    from structgen.runner import ChatChunk, Runner

_PREFIX = "structgen/"


def _runner(name: str) -> Runner:
    """Return the adapters' shared Runner, which loads this model on its first prompt."""
    from .frameworks import runner_of  # here, since every llm command imports this module

    return runner_of(None, name)


_Numbers: Any = create_model(
    "_Numbers",
    __base__=llm.Options,
    **dict[str, Any](
        {
            name: (OPTIONS[option].kind | None, Field(None, description=OPTIONS[option].about))
            for name, option in FIELDS.items()
            if OPTIONS[option].kind is not None
        }
    ),
)
"""Numeric options."""


class StructgenOptions(_Numbers):  # type: ignore[misc] # made when it is imported
    """The options of a prompt: ``-o name value``."""

    stop: str | list[str] | None = Field(default=None, description="Texts that end the answer")
    regex: str | None = Field(
        default=None, description="A Python regular expression that the whole answer must match"
    )
    choices: list[str] | None = Field(
        default=None, description="The allowed answers, as a JSON list"
    )
    grammar: str | None = Field(
        default=None, description="A grammar for the answer, in Lark or GBNF notation"
    )
    tool_choice: str | None = Field(default=None, description="none, auto or required")
    thinking_budget: int | None = Field(
        default=None, description="Let the model think first, with at most this many tokens"
    )

    @field_validator("choices", mode="before")
    @classmethod
    def _listed(cls, given: Any) -> Any:
        return json.loads(given) if isinstance(given, str) else given


_FORMS = {"regex": "regex", "choices": "choice", "grammar": None}
"""Options for the form of an answer, with their ``grammar_type``; None: guessed from the text."""


def _fields(prompt: llm.Prompt) -> dict[str, Any]:
    """Return a prompt as fields of a `structgen.runner.ChatRequest`."""
    from structgen.runner import grammar_type_of

    from .frameworks import closed_format, schema_format, tool_of

    fields = prompt.options.model_dump(exclude_none=True)
    forms = [name for name in _FORMS if name in fields]
    if len(forms) > 1 or (forms and prompt.schema):
        both = [*forms, "schema"][:2]
        raise llm.ModelError(
            f"{' and '.join(both)} both set the form of the answer. Pass only one."
        )
    for name in forms:
        form = fields.pop(name)
        fields |= {"grammar": form, "grammar_type": _FORMS[name] or grammar_type_of(form)}
    if prompt.schema:
        fields["response_format"] = closed_format(schema_format("answer", prompt.schema))
    if prompt.tools:
        empty = {"type": "object", "properties": {}}
        fields["tools"] = [
            tool_of(one.name, one.description or "", one.input_schema or empty)
            for one in prompt.tools
        ]
    if "thinking_budget" in fields:
        fields["enable_thinking"] = True
    fields["stream_options"] = {"include_usage": True}
    fields["messages"] = _messages(prompt)
    return fields


def _messages(prompt: llm.Prompt) -> list[dict[str, Any]]:
    """Return the chat so far. A repeated system message is left out."""
    from .frameworks import call_of

    made: list[dict[str, Any]] = []
    for message in prompt.messages:
        texts: list[str] = []
        calls: list[dict[str, Any]] = []
        for part in message.parts:
            if isinstance(part, llm.parts.TextPart):
                texts.append(part.text)
            elif isinstance(part, llm.parts.ToolCallPart):
                calls.append(call_of(part.tool_call_id, part.name, part.arguments))
            elif isinstance(part, llm.parts.ToolResultPart) and not part.attachments:
                result = {"role": "tool", "content": part.output}
                made.append({**result, "tool_call_id": part.tool_call_id})
            elif not isinstance(part, llm.parts.ReasoningPart):  # models do not see these
                raise llm.ModelError(
                    f"A {type(part).__name__} is not supported: models read only text."
                )
        turn = {"role": message.role, "content": "".join(texts) or None}
        if calls:
            made.append({**turn, "tool_calls": calls})
        elif texts and turn not in (one for one in made if one["role"] == "system"):
            made.append(turn)
    return made


class _Answer:
    """The answer so far: events for llm, and at the end its details."""

    def __init__(self, response: Any) -> None:
        from .frameworks import Growing

        self._response = response
        self._made = Growing()
        self._ended: dict[str, Any] = {}

    @property
    def _calls(self) -> Sequence[Any]:
        return self._made.choice.message.tool_calls or ()

    def events(self, chunk: ChatChunk) -> Iterator[Any]:
        """Yield the events of a chunk."""
        event = llm.parts.StreamEvent
        self._made.add(chunk)
        for choice in chunk.choices:
            delta = choice.delta
            if delta.reasoning_content:
                yield event(type="reasoning", chunk=delta.reasoning_content)
            if delta.content:
                yield event(type="text", chunk=delta.content)
            for piece in delta.tool_calls or ():
                call = self._calls[piece.index]
                if piece.id is not None:
                    name = call.function.name
                    yield event(type="tool_call_name", chunk=name, tool_call_id=call.id)
                more = piece.function.arguments
                yield event(type="tool_call_args", chunk=more, tool_call_id=call.id)
            if choice.finish_reason is not None:
                self._ended = {"id": chunk.id, "finish_reason": choice.finish_reason}
                if choice.shortened:
                    self._ended["shortened"] = choice.shortened
        if chunk.usage is not None:
            usage = chunk.usage
            self._response.set_usage(
                input=usage.prompt_tokens,
                output=usage.completion_tokens,
                details=usage.completion_tokens_details.model_dump(),
            )

    def end(self) -> None:
        """Report the calls to llm, and the rest to its log."""
        self._response.response_json = self._ended
        for call in self._calls:
            arguments = json.loads(call.function.arguments)
            made = llm.ToolCall(tool_call_id=call.id, name=call.function.name, arguments=arguments)
            self._response.add_tool_call(made)


@contextlib.contextmanager
def _errors(prompt: llm.Prompt | None = None) -> Iterator[None]:
    """Turn structgen's errors into llm's, which llm shows as a message."""
    try:
        yield
    except StructgenError as error:
        message, param = str(error), getattr(error, "param", None)
        if prompt is not None and param is not None and param.startswith("grammar"):
            form = next((n for n in _FORMS if getattr(prompt.options, n) is not None), "grammar")
            message = message.replace(param, form + param.removeprefix("grammar"), 1)
        raise llm.ModelError(message) from error


class _Shared:
    """The base of both kinds of models."""

    can_stream = True
    supports_schema = True
    supports_tools = True
    Options = StructgenOptions

    def __init__(self, name: str) -> None:
        self.model_id = _PREFIX + name
        self.name = name

    def __str__(self) -> str:
        return f"structgen: {self.model_id}"


class StructgenModel(_Shared, llm.Model):
    """A local model. Masks enforce schemas, tool arguments and the forms of its options."""

    def execute(
        self, prompt: llm.Prompt, stream: bool, response: Any, conversation: Any = None
    ) -> Iterator[Any]:
        """Answer a prompt. Leaving the iterator ends the answer."""
        answer = _Answer(response)
        with _errors(prompt):
            runner = _runner(self.name)
            with runner.stream_chat(_fields(prompt), model=self.name) as chunks:
                for chunk in chunks:
                    yield from answer.events(chunk)
        answer.end()


class AsyncStructgenModel(_Shared, llm.AsyncModel):
    """`StructgenModel`, for asynchronous code."""

    async def execute(
        self, prompt: llm.Prompt, stream: bool, response: Any, conversation: Any = None
    ) -> AsyncGenerator[Any, None]:
        """Answer a prompt. Cancelling the task ends the answer."""
        answer = _Answer(response)
        with _errors(prompt):
            runner = _runner(self.name)
            async with runner.astream_chat(_fields(prompt), model=self.name) as chunks:
                async for chunk in chunks:
                    for event in answer.events(chunk):
                        yield event
        answer.end()


class StructgenEmbeddingModel(llm.models.EmbeddingModel):
    """A local embedder."""

    batch_size = 64

    def __init__(self, name: str) -> None:
        self.model_id = _PREFIX + name
        self.name = name

    def embed_batch(
        self, items: Iterable[str | bytes], *, key: str | None = None
    ) -> Iterator[list[float]]:
        """Embed texts; one that is too long is an error."""
        with _errors():
            texts = list(items)
            made = _runner(self.name).embed(input=texts, model=self.name)
        for one in made.data:
            assert isinstance(one.embedding, list)
            yield one.embedding


def _names(task: str, default: str) -> list[str]:
    """Return the models on this machine, and the default."""
    here = [one.name for one in models.listing() if one.here and one.task == task]
    return [default, *(name for name in here if name != default)]


@llm.hookimpl
def register_models(register: Callable[..., None]) -> None:
    """Register the installed text models with llm."""
    for name in _names("generate", models.DEFAULT):
        register(StructgenModel(name), AsyncStructgenModel(name))


@llm.hookimpl
def register_embedding_models(register: Callable[..., None]) -> None:
    """Register the installed embedders with llm."""
    for name in _names("embed", "all-minilm-l6-v2"):
        register(StructgenEmbeddingModel(name))
