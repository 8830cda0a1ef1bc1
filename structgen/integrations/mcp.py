"""MCP: a server whose tools are a Runner's generate, extract, classify, decide and embed.

    structgen mcp smollm2-135m-instruct            # over stdio, as hosts start it
    structgen mcp smollm2-135m-instruct --http     # over streamable HTTP, on this machine

In this order: arguments and results of the tools (a class each, whose JSON Schema is the tool's), a
tool call as a request to the Runner, listing and calling tools with errors and progress, and the
transports. HTTP listens only on this machine: there are no keys, and the ``mcp`` package refuses
foreign host names (DNS rebinding). `structgen.runner.McpServer` is the other side: servers of tools
for a Runner.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

import anyio
import anyio.to_thread
import uvicorn
from pydantic import BaseModel, ConfigDict, Field, ValidationError, WrapValidator
from pydantic_core import from_json

from structgen.errors import (
    ModelNotFound,
    OptionError,
    RequestError,
    StructgenError,
    let_go,
    requires,
)
from structgen.grammar.json_schema import closed
from structgen.insight import check_values
from structgen.runner import (
    MAX_VALUES,
    Choice,
    Many,
    Runner,
    Strictly,
    grammar_type_of,
    has_more,
    in_slices,
    installed,
    request_error,
)
from structgen.workers import STRANGER, Stranger

from .connections import connections, have_files, in_parts, replayed
from .frameworks import Growing, vectors_of

with requires(
    OptionError, "structgen.integrations.mcp needs the package mcp, which is not installed", "mcp"
):
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server
    from mcp.server.streamable_http_manager import DEFAULT_MAX_REQUEST_BODY_SIZE as MAX_BYTES
    from mcp.shared.exceptions import MCPError
    from mcp.shared.message import SessionMessage
    from mcp_types import (
        INVALID_PARAMS,
        INVALID_REQUEST,
        CallToolRequestParams,
        CallToolResult,
        ErrorData,
        JSONRPCError,
        ListToolsResult,
        TextContent,
        ToolAnnotations,
        jsonrpc_message_adapter,
    )
    from mcp_types import Tool as McpTool
    from starlette.responses import JSONResponse, Response

__all__ = ["Models", "serve_http", "serve_stdio", "server_of"]

_log = logging.getLogger("structgen")

# -- what the tools take ---------------------------------------------------------------------------

MAX_TEXTS = 256
"""Most texts of one call of ``embed``: the vectors of 2,048 are a message of 31 MB."""

MAX_QUESTIONS = 2_048
"""Most questions of one call of ``decide``."""

MAX_SCHEMA = 512 << 10
"""Most bytes of a JSON Schema, and of another form."""

_USUAL_TOKENS = 512
_FEW_VALUES = 1_000  # of answers that are written at once
_BYTES_A_SECOND = 20_000_000  # of answers: about twice the time that writing them takes


def _members(schema: dict[str, Any]) -> None:
    """Name the limits on an object's members, which Pydantic calls minLength and maxLength behind
    a validator."""
    for limit in ("min", "max"):
        if (most := schema.pop(f"{limit}Length", None)) is not None:
            schema[f"{limit}Properties"] = most


Text = Annotated[str, Field(min_length=1)]
Probability = Annotated[float, Field(ge=0, le=1)]
Labels: TypeAlias = (
    Annotated[Many[Text], Field(min_length=2)]
    | Annotated[
        dict[Text, str | None],
        WrapValidator(in_slices),
        Field(min_length=2, json_schema_extra=_members),
    ]
)


class _Shape(Strictly):
    model_config = ConfigDict(use_attribute_docstrings=True)


class Arguments(_Shape):
    """The arguments of all tools."""

    model: str | None = None
    """Id of the model; by default the first."""


class Writing(Arguments):
    """The arguments of tools that generate text."""

    max_tokens: Annotated[int, Field(ge=1)] = _USUAL_TOKENS
    """Most tokens of the answer. An answer that has a form is always whole within them."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    """0: the likeliest token each time; above 0: sampled."""
    seed: int | None = None
    """The same seed gives the same answer."""


class Generate(Writing):
    """Write an answer to a prompt with a language model on this machine. With json_schema, regex,
    choices or grammar the answer has exactly that form: pass at most one of them."""

    prompt: Text
    """What to answer."""
    system: str | None = None
    """Instructions that come before the prompt."""
    json_schema: dict[str, Any] | bool | None = None
    """A JSON Schema that the answer satisfies. Objects have no members but those that it names."""
    regex: Text | None = None
    """A Python regular expression that the whole answer matches."""
    choices: Annotated[Many[str], Field(min_length=1)] | None = None
    """Texts of which the answer is one."""
    grammar: Text | None = None
    """A grammar that the answer follows, as Lark or GBNF writes it."""


FORMS = {"json_schema": "json_schema", "regex": "regex", "choices": "choice", "grammar": None}
"""Fields of `Generate` that say the form of the answer, and their ``grammar_type``; None: as it is
written."""


class Extract(Writing):
    """Read facts out of a text, as a JSON value that satisfies a JSON Schema, with a language
    model on this machine. The value always satisfies the schema."""

    text: Text
    """The text."""
    json_schema: dict[str, Any]
    """A JSON Schema of the value. Names and descriptions in it tell the model what to look for.
    Objects have no members but those that it names."""
    instructions: str | None = None
    """What else the model should know."""


class Classify(Arguments):
    """Put a text into one of several classes, with the probability of each, by a language model on
    this machine."""

    text: Text
    """The text."""
    labels: Labels
    """The classes: a list, or an object of each class and what it means (or null)."""
    instructions: Text = "Which class does the text belong to?"
    """The question that the class answers."""
    abstain_below: Probability | None = None
    """If the likeliest class has a lower probability, the label is null."""


class PredicateQuestion(_Shape):
    """A question that yes or no answers."""

    type: Literal["predicate"]
    instructions: Text
    """The question, or a statement that is true or not."""


class ChoiceQuestion(_Shape):
    """A question that one of several options answers."""

    type: Literal["choice"]
    instructions: Text
    """The question."""
    options: Labels
    """The options: a list, or an object of each option and what it means (or null)."""


class ScoreQuestion(_Shape):
    """A question that a level of an ordered scale answers."""

    type: Literal["score"]
    instructions: Text
    """The question."""
    levels: Annotated[Many[Text], Field(min_length=2)]
    """The levels, the lowest first."""


Question = Annotated[
    PredicateQuestion | ChoiceQuestion | ScoreQuestion, Field(discriminator="type")
]


class Decide(Arguments):
    """Answer typed questions about a text, with the probability of every allowed answer, by a
    language model on this machine."""

    text: Text
    """What the questions are about."""
    questions: Annotated[
        dict[Text, Question],
        WrapValidator(in_slices),
        Field(min_length=1, max_length=MAX_QUESTIONS, json_schema_extra=_members),
    ]
    """The questions by name, such as {"urgent": {"type": "predicate", "instructions": "Is it
    urgent?"}}."""
    abstain_below: Probability | None = None
    """An answer whose likeliest label has a lower probability is marked as abstained."""


class Embed(Arguments):
    """Make a vector of each text, with an embedding model on this machine. Texts that mean similar
    things have vectors with a large dot product."""

    texts: Annotated[Many[Text], Field(min_length=1, max_length=MAX_TEXTS)]
    """The texts."""
    input_type: Literal["query", "document"] | None = None
    """What the texts are in a search: some models want to know."""
    dimensions: Annotated[int, Field(ge=1)] | None = None
    """Keep that many numbers of each vector."""
    truncate: bool = False
    """Whether texts that are too long are cut, rather than refused."""


# -- what they return ------------------------------------------------------------------------------


class Result(_Shape):
    """The result of all tools."""

    model: str
    """Id of the model that answered."""
    prompt_tokens: int
    """Tokens that it read."""


class Written(Result):
    """The result of tools that generate text."""

    completion_tokens: int
    """Tokens that it wrote."""
    shortened: list[str]
    """JSON paths of the values that the limit on tokens cut short; "$" is the whole answer."""


class Generated(Written):
    """An answer."""

    text: str
    """The answer."""
    value: Any
    """The JSON value that the answer is, with json_schema; else null."""
    finish_reason: Literal["stop", "length"]
    """``length``: the text was cut at max_tokens, which happens to free text only."""


class Extracted(Written):
    """Facts."""

    value: Any
    """A JSON value that satisfies the schema."""


class LabelProbability(BaseModel):
    """How likely a class is."""

    label: str
    probability: float


class Classified(Result):
    """A class."""

    label: str | None
    """The likeliest class; null if it is less likely than abstain_below."""
    probabilities: list[LabelProbability]
    """Of all classes, the likeliest first."""


class _Answer(_Shape):
    confidence: float
    """1: one answer has all the probability; 0: all have the same."""
    margin: float
    """By how much the likeliest answer is likelier than the next."""
    mass: float
    """How much the model wanted to give one of the allowed answers at all."""
    error_bound: float
    """No probability is further off than this."""
    abstained: bool
    """Whether the likeliest is below abstain_below."""
    informative: bool
    """False: the model answers nearly the same without the text."""


class PredicateAnswer(_Answer):
    """The answer to a question of yes or no."""

    type: Literal["predicate"]
    probability: float
    """Of yes."""


class OptionProbability(BaseModel):
    """How likely an option is."""

    value: str
    probability: float


class ChoiceAnswer(_Answer):
    """The answer to a choice."""

    type: Literal["choice"]
    choice: str | None
    """The likeliest option; null where the model abstained."""
    probabilities: list[OptionProbability]
    """Of all options, the likeliest first."""


class LevelProbability(BaseModel):
    """How likely a level is."""

    value: int
    label: str
    probability: float


class ScoreAnswer(_Answer):
    """The answer to a score."""

    type: Literal["score"]
    score: float
    """The mean level; the lowest is 0."""
    probabilities: list[LevelProbability]
    """Of all levels, the lowest first."""


class Decided(Result):
    """Answers."""

    answers: dict[
        str, Annotated[PredicateAnswer | ChoiceAnswer | ScoreAnswer, Field(discriminator="type")]
    ]
    """By the names of the questions."""


class Embedded(Result):
    """Vectors."""

    vectors: list[list[float]]
    """One for each text, in their order."""
    dimensions: int
    """How many numbers each has."""


# -- a call as a request of the Runner's -----------------------------------------------------------

OnProgress: TypeAlias = "Callable[[float, str], Awaitable[None]]"
"""Awaited with the progress of a call, which always grows, and a text about it."""

_LONGEST_TOKEN = 1_000  # characters of a progress token
_EACH = 16  # pieces of text, of one or more tokens, between two progress reports


@dataclass(frozen=True, slots=True)
class Models:
    """The ids of models that the tools may use.

    Attributes:
        text: models that generate and decide; the default is the first.
        embedding: that make vectors; the same. None: there is no tool ``embed``.
    """

    text: Sequence[str]
    embedding: Sequence[str] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    """A tool.

    Attributes:
        name: the name of the tool.
        title: the name for people.
        takes: the class of its arguments.
        returns: the class of its result.
        call: sends the request to the Runner.
        names: the tool's names of the Runner's fields; if there are several, the one that is set.
    """

    name: str
    title: str
    takes: type[Arguments]
    returns: type[BaseModel]
    call: Callable[[Runner, str, Any, OnProgress], Awaitable[BaseModel]]
    names: Mapping[str, tuple[str, ...]]


async def generate(
    runner: Runner, model: str, asked: Generate, on_progress: OnProgress
) -> Generated:
    """Write an answer."""
    messages = [{"role": "user", "content": asked.prompt}]
    if asked.system is not None:
        messages.insert(0, {"role": "system", "content": asked.system})
    fields: dict[str, Any] = {}
    forms = [name for name in FORMS if getattr(asked, name) is not None]
    if len(forms) > 1:
        raise RequestError(f"{' and '.join(forms)} both set the form of the answer. Pass only one.")
    for name in forms:
        form = getattr(asked, name)
        if isinstance(form, dict):
            form = closed(form)
        fields = {"grammar": form, "grammar_type": FORMS[name] or grammar_type_of(form)}
    choice, common = await _written(
        runner, model, asked, {"messages": messages, **fields}, on_progress
    )
    text, reason = choice.message.content or "", choice.finish_reason
    assert reason != "tool_calls"
    value = None if asked.json_schema is None else _value(text)
    return Generated(text=text, value=value, finish_reason=reason, **common)


async def extract(runner: Runner, model: str, asked: Extract, on_progress: OnProgress) -> Extracted:
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
    choice, common = await _written(runner, model, asked, fields, on_progress)
    return Extracted(value=_value(choice.message.content or ""), **common)


def _value(text: str) -> Any:
    """Return the JSON value of an answer."""
    value = json.loads(text)
    try:
        json.dumps(value, allow_nan=False)
    except ValueError as error:  # it would become null, which the schema may not allow
        problem = "The answer contains a number that is too large for JSON readers. Limit numbers: "
        limited = '{"type": "number", "minimum": -1e300, "maximum": 1e300}.'
        raise RequestError(problem + limited) from error
    return value


async def _written(
    runner: Runner, model: str, asked: Writing, fields: dict[str, Any], on_progress: OnProgress
) -> tuple[Choice, dict[str, Any]]:
    """Return the answer to a chat and the details for a tool's result; report progress while it
    grows."""
    for name in ("max_tokens", "temperature", "seed"):
        fields[name] = getattr(asked, name)
    fields["stream_options"] = {"include_usage": True}
    made, number = Growing(), 0
    async with runner.astream_chat(fields, model=model) as chunks:
        async for chunk in chunks:
            made.add(chunk)
            number += 1
            if number % _EACH == 0:
                written = made.choice.message.content or ""
                await on_progress(number, f"{len(written):,} characters written")
    assert made.usage is not None
    return made.choice, {
        "model": model,
        "prompt_tokens": made.usage.prompt_tokens,
        "completion_tokens": made.usage.completion_tokens,
        "shortened": made.choice.shortened or [],
    }


async def classify(
    runner: Runner, model: str, asked: Classify, on_progress: OnProgress
) -> Classified:
    """Put a text into a class."""
    question = {"type": "choice", "instructions": asked.instructions, "options": asked.labels}
    made = await runner.adecide(
        state=asked.text,
        questions={"label": question},
        abstain_below=asked.abstain_below,
        model=model,
    )
    answer = made.answers["label"]
    return Classified(
        model=model,
        prompt_tokens=made.usage.prompt_tokens,
        label=answer["choice"],
        probabilities=[
            LabelProbability(label=one["value"], probability=one["probability"])
            for one in answer["probabilities"]
        ],
    )


async def decide(runner: Runner, model: str, asked: Decide, on_progress: OnProgress) -> Decided:
    """Answer questions about a text."""
    made = await runner.adecide(
        state=asked.text,
        questions={name: one.model_dump() for name, one in asked.questions.items()},
        abstain_below=asked.abstain_below,
        model=model,
    )
    return Decided(model=model, prompt_tokens=made.usage.prompt_tokens, answers=made.answers)


async def embed(runner: Runner, model: str, asked: Embed, on_progress: OnProgress) -> Embedded:
    """Make vectors."""
    made = await runner.aembed(
        input=asked.texts,
        input_type=asked.input_type,
        dimensions=asked.dimensions,
        truncate_sequence=asked.truncate,
        model=model,
    )
    vectors = vectors_of(made)
    return Embedded(
        model=model,
        prompt_tokens=made.usage.prompt_tokens,
        vectors=vectors,
        dimensions=len(vectors[0]),
    )


_PROMPT = {"grammar": tuple(FORMS), "messages": ("prompt",)}
_FACTS = {"grammar": ("json_schema",), "messages": ("text",)}
_LABELS = {"questions": ("labels",), "state": ("text",)}
_TEXTS = {"input": ("texts",), "truncate_sequence": ("truncate",)}

_WRITING = (
    Tool("generate", "Generate", Generate, Generated, generate, _PROMPT),
    Tool("extract", "Extract facts", Extract, Extracted, extract, _FACTS),
    Tool("classify", "Classify", Classify, Classified, classify, _LABELS),
    Tool("decide", "Decide", Decide, Decided, decide, {"state": ("text",)}),
)
_EMBED = Tool("embed", "Embed", Embed, Embedded, embed, _TEXTS)


async def called(
    runner: Runner, tool: Tool, known: Sequence[str], given: dict[str, Any], on_progress: OnProgress
) -> BaseModel:
    """Return the result of a tool.

    Raises:
        ModelNotFound: the arguments name a model that the tool does not have.
        RequestError: an argument is wrong; the message has the tool's name of it.
        StructgenError: as the Runner raises.
    """
    _check_sizes(given)
    try:
        asked = tool.takes.model_validate(given)
    except ValidationError as error:
        raise request_error(tool.takes, error) from None
    model = known[0] if asked.model is None else asked.model
    if model not in known:
        raise ModelNotFound(f"There is no model {model!r} here. Known models: {', '.join(known)}.")
    if not runner.is_model_loaded(model):
        await on_progress(0, f"loading {model}")
    try:
        return await tool.call(runner, model, asked, on_progress)
    except RequestError as error:
        param = error.param
        message = str(error).replace("truncate_sequence=True", "truncate=true")
        for ours, theirs in tool.names.items():
            if param is not None and param.startswith(ours):
                name = next((one for one in theirs if getattr(asked, one) is not None), theirs[0])
                message = message.replace(param, name + param.removeprefix(ours))
        raise RequestError(message) from error


def _check_sizes(given: dict[str, Any]) -> None:
    """Refuse arguments that would delay others, because all are read in one event loop.

    Raises:
        RequestError: they have too many values, or a form is too large.
    """
    if has_more(given, MAX_VALUES):
        raise RequestError(f"The arguments have more than {MAX_VALUES:,} values.")
    for name in FORMS:
        size = len(json.dumps(given.get(name), ensure_ascii=False).encode(errors="replace"))
        if size > MAX_SCHEMA:
            raise RequestError(f"{name} has {size:,} bytes; the limit is {MAX_SCHEMA:,}.")


# -- the tools as MCP lists and calls them ---------------------------------------------------------

_INSTRUCTIONS = (
    "Language models on this machine. Answers have exactly the requested form: a JSON Schema, a "
    "regular expression, one of several texts, a grammar."
)


def server_of(runner: Runner, models: Models) -> Server[Any]:
    """Make a server of the tools ``generate``, ``extract``, ``classify``, ``decide``, ``embed``.

    Args:
        runner: which is asked; it stays open.
        models: ids of its models that the tools may be asked for.

    Cost: loads nothing.
    """
    known = dict.fromkeys(_WRITING if models.text else (), models.text)
    if models.embedding:
        known[_EMBED] = models.embedding
    tools = {tool.name: tool for tool in known}
    listed = [_listed(tool, allowed) for tool, allowed in known.items()]
    schemas = {tool.name: tool.input_schema for tool in listed}
    writing = asyncio.Lock()

    async def on_list_tools(context: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=listed)

    async def on_call_tool(context: Any, params: CallToolRequestParams) -> CallToolResult:
        tool = tools.get(params.name)
        if tool is None:
            raise MCPError(
                INVALID_PARAMS,
                f"There is no tool {params.name!r}. Known tools: {', '.join(tools)}.",
            )

        token = (params.meta or {}).get("progress_token")
        if len(str(token)) > _LONGEST_TOKEN:  # it is in each report of progress
            raise MCPError(
                INVALID_PARAMS, f"progressToken has more than {_LONGEST_TOKEN:,} characters."
            )

        async def on_progress(progress: float, message: str) -> None:
            await context.session.report_progress(progress, None, message)

        STRANGER.set(Stranger(_owner(context.request)))
        with anyio.CancelScope() as wanted:
            if context.request is not None and _OVER in context.request.scope:
                context.request.scope[_OVER].add_done_callback(lambda _: wanted.cancel())
            try:
                result = await called(
                    runner, tool, known[tool], params.arguments or {}, on_progress
                )
            except StructgenError as error:
                let_go(error)
                return _text(str(error), is_error=True)
            except Exception as error:
                _log.exception("the tool %s", tool.name)
                let_go(error)
                return _text(
                    f"{tool.name} failed; see the server's log for the reason.", is_error=True
                )
            structured = result.model_dump(mode="json")
            # Large answers one by one: sixty with 256 vectors each delayed all others for 9 s.
            turn = writing if has_more(structured, _FEW_VALUES) else contextlib.nullcontext()
            async with turn:
                text = json.dumps(structured, ensure_ascii=False)
                await asyncio.sleep(len(text) / _BYTES_A_SECOND)
            answer = _text(text)
            answer.structured_content = structured
            return answer
        return _text(context.request.scope[_OVER].result(), is_error=True)

    return Server(
        "structgen",
        version=installed("structgen"),
        title="structgen",
        instructions=_INSTRUCTIONS,
        get_tool_input_schema=schemas.get,
        on_list_tools=on_list_tools,
        on_call_tool=on_call_tool,
    )


def _listed(tool: Tool, known: Sequence[str]) -> McpTool:
    takes = tool.takes.model_json_schema()
    takes["properties"]["model"] |= {"enum": [*known, None]}
    description = " ".join((tool.takes.__doc__ or "").split())
    takes.pop("description", None)
    return McpTool(
        name=tool.name,
        title=tool.title,
        description=description,
        input_schema=takes,
        output_schema=tool.returns.model_json_schema(mode="serialization"),
        annotations=ToolAnnotations(title=tool.title, read_only_hint=True, open_world_hint=False),
    )


def _owner(request: Any) -> str:
    """Return the owner of a call: its session, or its connection if there is no session, as with
    newer clients."""
    if request is None:
        return "mcp"
    return str(request.headers.get(_SESSION.decode(), request.client))


def _text(text: str, *, is_error: bool = False) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)


# -- the transports --------------------------------------------------------------------------------

HOST = "127.0.0.1"
PATH = "/mcp"
_SHORT = 8 << 10  # bytes of a message that always fits
_MOST_BESIDE = 10_000  # values of a message beside the arguments of a call
_MOST_HELD = 64 << 20  # bytes of all longer messages under way
_BODY_SECONDS = 30.0  # seconds in which a message must arrive
_SESSION = b"mcp-session-id"
_OVER = "structgen.over"  # in a scope: a future, which says why nobody waits for the answer


def serve_stdio(runner: Runner, models: Models, *, lazy: bool = False) -> None:
    """Serve the program that has started this one until it closes standard input.

    An interrupt ends the process at once, like SIGTERM; model processes end with it.

    Args:
        runner: which is asked; it stays open.
        models: ids of its models that the tools may be asked for.
        lazy: load models on first use. Otherwise they are loaded from the start, while the host is
            already answered.
    """

    async def messages(write: Any) -> AsyncIterator[SessionMessage]:
        while line := await anyio.to_thread.run_sync(given.readline, MAX_BYTES + 1):
            text, id_ = line.decode(errors="replace"), None
            if len(line) > MAX_BYTES:
                problem = f"A message has more than {MAX_BYTES:,} bytes."
                while line and not line.endswith(b"\n"):
                    line = await anyio.to_thread.run_sync(given.readline, MAX_BYTES)
            else:
                try:
                    message = jsonrpc_message_adapter.validate_json(text, by_name=False)
                except ValidationError as error:  # `mcp` would be silent and the host would wait
                    problem, id_ = f"Cannot parse a message: {_first(error)}.", _id_of(text)
                else:
                    yield SessionMessage(message)
                    continue
            wrong = ErrorData(code=INVALID_REQUEST, message=problem)
            await write.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=id_, error=wrong)))

    async def run() -> None:
        server = server_of(runner, models)
        nothing = anyio.wrap_file(io.StringIO())
        async with _loading(runner, models, lazy), stdio_server(nothing) as (unread, write):
            await unread.aclose()
            read: Any = messages(write)
            await server.run(read, write, server.create_initialization_options())

    given = os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    with open(os.devnull, "rb") as nothing:  # which started processes read from
        os.dup2(nothing.fileno(), sys.stdin.fileno())
    # A thread waits for the next line; nothing else can stop it.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        asyncio.run(run())
    except Exception as error:
        while inner := getattr(error, "exceptions", ()):  # of an exception group
            error = inner[0]
        if not isinstance(error, BrokenPipeError):  # a host that has crashed reads no more
            raise
    finally:
        signal.signal(signal.SIGINT, before)
        os.dup2(given.fileno(), sys.stdin.fileno())


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))


def _id_of(text: str) -> Any:
    """Return the id of an unreadable request; Python's reader accepts lone surrogates."""
    with contextlib.suppress(ValueError, RecursionError):
        given = json.loads(text)
        id_ = given.get("id") if isinstance(given, dict) and "method" in given else None
        str(id_).encode()
        return id_ if isinstance(id_, (int, str)) else None


def serve_http(
    runner: Runner,
    models: Models,
    *,
    port: int,
    lazy: bool = False,
    on_start: Callable[[str], None] | None = None,
) -> None:
    """Serve programs of this machine over streamable HTTP, until the process gets a signal to stop.

    Other arguments are those of `serve_stdio`.

    Args:
        port: the port to listen on; 0: a free one.
        on_start: called with the address.

    Raises:
        OptionError: the port is taken.
    """
    try:
        listening = socket.create_server((HOST, port))
    except OSError as error:
        raise OptionError(f"Cannot listen on port {port}: {error.strerror}.") from None
    with listening:
        # Otherwise the end of an answer waits 40 ms for the client to acknowledge its headers.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server: Server[Any] = server_of(runner, models)
        app = server.streamable_http_app(streamable_http_path=PATH, host=HOST, stateless_http=True)
        config = uvicorn.Config(
            Bounded(app),
            http=connections(),
            log_level="warning",
            ws="none",
            timeout_keep_alive=15,  # not 5 s as in `httpx`, which would be a race
            timeout_graceful_shutdown=10,
        )
        have_files()
        logging.getLogger("opentelemetry").setLevel(logging.ERROR)  # warnings quote what is sent

        async def run() -> None:
            async with _loading(runner, models, lazy):
                await uvicorn.Server(config).serve(sockets=[listening])

        if on_start is not None:
            on_start(f"http://{HOST}:{listening.getsockname()[1]}{PATH}")
        asyncio.run(run())


class Bounded:
    """An ASGI application with bounded messages and no state of clients.

    Values of a body beside the arguments of a call are limited, because ``mcp`` collects all errors
    in them, which blocked everybody for 4 s. There are no sessions of ``mcp``, which would keep
    each for half an hour with its last message. Instead a client gets a number, which tells who
    owns a call and may cancel it. A call also ends with its client. Unread answers are dropped to
    make room for others, and calls with large messages end: sixteen with 4 MB that nobody reads
    shut out all other clients' messages until the model had answered them.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self._held = 0
        self._reading: dict[asyncio.Future[bool], bytearray] = {}  # bodies, the oldest first
        # Bytes of long answers, the oldest first.
        self._answers: dict[asyncio.Future[None], int] = {}
        self._calls: dict[tuple[bytes, Any], asyncio.Future[str]] = {}  # by session and id
        self._running: dict[asyncio.Future[str], bytearray] = {}  # bodies that may be dropped

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] != "POST":  # a stream of unrequested messages, or the end of a session
            await Response(status_code=405, headers={"Allow": "POST"})(scope, receive, send)
            return
        body, status = bytearray(), 413
        try:
            try:
                if not await self._arrived(scope, receive, body):
                    return  # The client has disconnected.
                check_values(body.decode(errors="replace"), MAX_VALUES + _MOST_BESIDE)
                about = _about(bytes(body))
            except asyncio.TimeoutError:
                status, why = 408, f"it did not arrive within {_BODY_SECONDS:g} s"
            except BufferError as error:
                status, why = 429, str(error)
            except ValueError as error:
                why = str(error)
            else:
                await self._passed(scope, receive, send, body, about)
                return
            problem = ErrorData(code=INVALID_REQUEST, message=f"Cannot read the message: {why}.")
            refused = JSONRPCError(jsonrpc="2.0", id=None, error=problem).model_dump(mode="json")
            closes = {"Connection": "close"}
            await JSONResponse(refused, status, headers=closes)(scope, receive, send)
        finally:
            self._held -= len(body)

    async def _arrived(self, scope: Any, receive: Any, body: bytearray) -> bool:
        """Read a body, or just past the limit; return False if the client disconnects."""
        size = int(dict(scope["headers"]).get(b"content-length", MAX_BYTES))
        reading = asyncio.ensure_future(self._read(receive, body, size))
        self._reading[reading] = body
        try:
            await asyncio.wait([reading], timeout=_BODY_SECONDS)
            if reading.cancelled():
                raise BufferError("another client needed its memory; retry")
            if not reading.done():
                raise asyncio.TimeoutError
            return reading.result()
        finally:
            reading.cancel()
            self._reading.pop(reading, None)

    async def _read(self, receive: Any, body: bytearray, size: int) -> bool:
        more = True
        while more and len(body) <= MAX_BYTES:
            message = await receive()
            if message["type"] == "http.disconnect":
                return False
            piece = message.get("body", b"")
            body += piece
            self._held += len(piece)
            while len(body) > _SHORT and self._held > _MOST_HELD:
                oldest, unfinished = next(
                    (reading, other)
                    for reading, other in self._reading.items()
                    if len(other) > _SHORT and not reading.done()
                )
                if unfinished is body:
                    self._make_room(size)
                    continue
                oldest.cancel()
                del self._reading[oldest]
                self._held -= len(unfinished)
                unfinished.clear()
            more = message.get("more_body", False)
        return True

    def _make_room(self, size: int) -> None:
        """End the running call with the largest message, if a new one is smaller.

        Raises:
            BufferError: none is larger.
        """
        largest = max(self._running, key=lambda over: len(self._running[over]), default=None)
        if largest is None or len(self._running[largest]) <= size:
            raise BufferError(f"{_MOST_HELD:,} bytes of messages are in progress; retry")
        if not largest.done():
            largest.set_result("The call was cancelled: smaller ones needed its memory; retry.")
        self._held -= len(self._running[largest])
        self._running[largest].clear()

    async def _passed(
        self, scope: Any, receive: Any, send: Any, body: bytearray, about: tuple[Any, Any, Any]
    ) -> None:
        """Pass a request on, and end the one that it cancels."""
        method, id_, cancels = about
        session = next((value for name, value in scope["headers"] if name == _SESSION), None)
        loop = asyncio.get_running_loop()
        over, left = loop.create_future(), loop.create_future()
        if session is not None:
            cancelled = self._calls.pop((session, cancels), None)
            if cancelled is not None and not cancelled.done():
                cancelled.set_result("The call was cancelled.")
            if id_ is not None:
                self._calls[session, id_] = over
        self._running[over] = body

        async def sent(message: Any) -> None:
            self._running.pop(over, None)  # its message is held until the answer is read
            if method == "initialize" and message.get("status") == 200:
                made = (_SESSION, secrets.token_hex(16).encode())
                message = {**message, "headers": [*message["headers"], made]}
            size = len(message.get("body", b""))
            if size > _SHORT:
                self._answers[left] = max(size, self._answers.pop(left, 0))
                while len(self._answers) > 1 and sum(self._answers.values()) > _MOST_HELD:
                    oldest = next(iter(self._answers))
                    oldest.set_result(None)
                    del self._answers[oldest]
            sending = asyncio.ensure_future(in_parts(send, message))
            try:
                await asyncio.wait([sending, left], return_when=asyncio.FIRST_COMPLETED)
                if not left.done():
                    sending.result()
            finally:
                sending.cancel()

        try:
            await self._app({**scope, _OVER: over}, replayed(bytes(body), receive), sent)
        finally:
            self._running.pop(over, None)
            self._answers.pop(left, None)
            if session is not None and self._calls.get((session, id_)) is over:
                del self._calls[session, id_]
            if not over.done():
                over.set_result("The client has gone.")


def _about(body: bytes) -> tuple[Any, Any, Any]:
    """Return a message's method, its request id, and the id of a request it cancels.

    Raises:
        ValueError: it has too many values beside the arguments of a call.
    """
    message: Any = None
    with contextlib.suppress(ValueError):  # `mcp` reports it, too
        message = from_json(body)
    if not isinstance(message, dict):
        return None, None, None
    method, id_, params = message.get("method"), message.get("id"), message.get("params")
    if method == "tools/call" and isinstance(params, dict):
        message["params"] = {**params, "arguments": None}
    if has_more(message, _MOST_BESIDE):
        raise ValueError(
            f"it has more than {_MOST_BESIDE:,} values in addition to the arguments of a call"
        )
    cancels = None
    if method == "notifications/cancelled" and isinstance(params, dict):
        cancels = params.get("requestId")
    id_, cancels = (one if isinstance(one, (int, str)) else None for one in (id_, cancels))
    return method, id_, cancels


@contextlib.asynccontextmanager
async def _loading(runner: Runner, models: Models, lazy: bool) -> AsyncIterator[None]:
    """Load models in the background: hosts wait only seconds for the first answer."""

    async def load() -> None:
        for model in () if lazy else (*models.text, *models.embedding):
            try:
                await runner.aload(model)
            except StructgenError as error:  # a call that needs it raises it, too
                _log.error("cannot load %s: %s", model, error)

    task = asyncio.create_task(load())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
