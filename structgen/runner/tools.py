"""Tools with code: what a model may call, how it runs, and what the model reads of results.

A `Tool` is a function, a class, or a schema with a callback. It runs with a time limit, its
exceptions are caught, and its result becomes text. `structgen.types` defines the grammar of
arguments; the agent decides when to call.

A tool runs other people's code, which may raise, return ten megabytes or something that is not
JSON, or never return. None of this ends a chat: the model and the caller are told (`ToolOutcome`).
Only what is not an `Exception` is raised: KeyboardInterrupt, SystemExit, and cancellation.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar, final, runtime_checkable

from pydantic_core import to_json

from structgen.errors import OptionError, OutputTypeError, ParseError, let_go
from structgen.types import Call, JsonSchema, lower
from structgen.types.tools import Tool as ToolDefinition
from structgen.types.tools import read_tools

from .constraints import closed_function, closed_schema
from .loops import CancelledInside, OutOfTime, in_thread, is_async, within
from .requests import NOT_TEXT

TIMEOUT_SECONDS = 60.0
"""Seconds that a call may take by default."""

LONGEST_RESULT = 20_000
"""Characters of a result that the model gets by default."""

_LONGEST_ERROR = 100_000
_MESSAGE_SECONDS = 1.0  # seconds that an exception's `__str__` may take
_MOST_LEFT_RUNNING = 8  # timed-out calls of one tool whose threads still run


ResultT = TypeVar("ResultT")


class ToolFailure(Exception):
    """Raise this in a tool to show the model exactly this text as the error.

    Attributes:
        detail: a longer message for the caller, if there is one.
    """

    def __init__(self, message: str = "", *, detail: str | None = None) -> None:
        super().__init__(message)
        self.detail = None if detail is None else str(detail)


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The outcome of one run of a tool.

    Attributes:
        content: the text that the model gets.
        result: what the tool returned; None where it failed.
        error: what went wrong; None: nothing.
        seconds: how long it ran.
        arguments: the checked arguments by name; None where they are not valid.
        cut: whether ``content`` is only the beginning of the result.
    """

    content: str
    result: Any
    error: str | None
    seconds: float
    arguments: Mapping[str, Any] | None = None
    cut: bool = False


@runtime_checkable
class ToolSource(Protocol):
    """Something that has several tools, such as an MCP server."""

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools, ready to run."""


AnyTool: TypeAlias = (
    "Tool | ToolSource | Callable[..., Any] | type | JsonSchema | Mapping[str, Any]"
)
"""What a caller may pass as one tool or several."""


@final
class Tool:
    """A tool, with the code that runs when the model calls it. Safe to share by threads.

    Args:
        source: a function with annotated parameters, sync or async; a class (Pydantic's, a
            dataclass, a `TypedDict`); a `JsonSchema` of an object with a ``title``; or a dict as in
            OpenAI's API.
        callback: the code to run. None: the function itself, or the instance's ``__call__`` if the
            class has one. For a class it gets the instance, for a schema the arguments by keyword.
            Without a callback the caller runs the tool: the agent loop ends when the model calls
            it.
        timeout: seconds for one call; None: as the agent says.

    Raises:
        OutputTypeError: it is not a tool, or structgen cannot enforce its arguments.
        OptionError: the callback is not callable, or the timeout is not a positive number.

    Cost: lowering the type of the arguments, about a millisecond.
    """

    def __init__(
        self,
        source: Any,
        callback: Callable[..., Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        if callback is not None and not callable(callback):
            raise OptionError(f"Tool: callback={callback!r} is not callable. Pass a function.")
        check_seconds("Tool: timeout", timeout)
        if isinstance(source, Mapping):  # in OpenAI's format, or a schema with a title
            function = source.get("function", source)
            if isinstance(function, Mapping) and "name" in function:
                source = {"type": "function", "function": closed_function(function)}
            else:
                source = JsonSchema(closed_schema(source))
        (self._definition,) = read_tools([source], lower)
        self.source = source
        self.timeout = timeout
        self._callback = callback
        self._is_foreign = False  # of an MCP server
        self._left_running = 0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"Tool({self.name})"

    @property
    def name(self) -> str:
        """The name that the model calls it by."""
        return self._definition.name

    @property
    def description(self) -> str:
        """The description for the model; may be empty."""
        return self._definition.description

    @functools.cached_property
    def schema(self) -> dict[str, Any]:
        """The tool in the format of OpenAI's API."""
        return self._definition.schema

    @property
    def definition(self) -> ToolDefinition:
        """The definition that grammars and prompts are built from."""
        return self._definition

    @property
    def is_runnable(self) -> bool:
        """Whether there is code to run. A schema or class without a callback has none."""
        if self._callback is not None:
            return True
        if isinstance(self.source, type):
            return "__call__" in {name for base in self.source.__mro__ for name in vars(base)}
        return not isinstance(self.source, (JsonSchema, Mapping))

    def parse(self, arguments: str) -> Call:
        """Return the call with arguments from JSON text.

        Raises:
            ParseError: the arguments are not valid.
        """
        call: Call = self._definition.output.parse(arguments.strip() or "{}")
        return call

    async def checked(self, arguments: str, limit: float | None) -> Call:
        """Run `parse` in a thread, within ``limit`` seconds.

        It runs a class's own validators.
        """
        return await self._in_thread(lambda: self.parse(arguments), limit)

    async def run(
        self,
        arguments: str | Call,
        *,
        timeout: float | None = TIMEOUT_SECONDS,
        longest: int = LONGEST_RESULT,
    ) -> ToolOutcome:
        """Run the tool once. An error in the tool becomes part of the outcome.

        A sync function runs in a thread of its own. Python cannot stop a thread: after a timeout it
        keeps running, does not keep the process alive, and its result is dropped. While eight such
        threads of one tool are running, further calls of the tool fail at once.

        Args:
            arguments: JSON, or the checked call. structgen does not check a schema again, because
                the mask enforced it while the model wrote.
            timeout: seconds for the call, if the tool has no timeout of its own; None: no limit.
            longest: most characters of the result that the model sees.

        Raises:
            BaseException: anything that is not an `Exception`: KeyboardInterrupt, SystemExit, and
                CancelledError if this call is cancelled.
        """
        started = time.perf_counter()
        limit = timeout if self.timeout is None else self.timeout
        checked: Mapping[str, Any] | None = None
        try:
            call = arguments
            if not isinstance(call, Call):
                call = await self.checked(call, limit)
            checked = call.arguments
            result, text = await self._result(call, limit)
        except Exception as error:
            wrong = await self.problem(error, limit, is_check=checked is None)
            detail = error.detail if isinstance(error, ToolFailure) else None
            let_go(error)  # an MCP server's wrong answer is 60 MB, and calls refer to their errors
        else:
            reply, cut = shown(text, longest)
            return ToolOutcome(reply, result, None, time.perf_counter() - started, checked, cut)
        reply, cut = shown(f"Error: {wrong}", longest)
        why, _ = shown(detail or wrong, _LONGEST_ERROR)
        return ToolOutcome(reply, None, why, time.perf_counter() - started, checked, cut)

    async def _result(self, call: Call, limit: float | None) -> tuple[Any, str]:
        """Return the result of a call and its text."""
        function = self._function(call)

        def called() -> tuple[Any, str | None]:
            result = function()
            # The text, too: writing it may take long and runs code of the result's classes.
            return result, None if inspect.isawaitable(result) else as_text(result)

        if is_async(self._callback or self.source):
            result: Any = function()
        else:
            result, text = await self._in_thread(called, limit)
            if text is not None:
                return result, text
        result = await within(limit, result)
        return result, await self._in_thread(lambda: as_text(result), limit)

    async def problem(self, error: Exception, limit: float | None, *, is_check: bool) -> str:
        """Describe in a sentence what the tool's code or the check of its arguments raised."""
        if isinstance(error, OutOfTime):
            what = "its checks" if is_check else "it"
            return f"The tool timed out: {what} did not return within {limit:g} s."
        if isinstance(error, CancelledInside):
            return "The tool raised CancelledError."
        if isinstance(error, ParseError) and is_check:
            return f"The arguments are not valid: {error}"
        text = await self._message(error, limit)
        if isinstance(error, ToolFailure):
            return text or "The tool failed."
        return f"The tool raised {_kind(error)}: {text}"

    async def _message(self, error: Exception, limit: float | None) -> str:
        """Return the beginning of an exception's message; empty if its own code raises or takes too
        long."""
        if type(error) is ToolFailure and all(type(arg) is str for arg in error.args):
            return shown(str(error), _LONGEST_ERROR)[0]
        seconds = _MESSAGE_SECONDS if limit is None else min(limit, _MESSAGE_SECONDS)
        try:
            return shown(await self._in_thread(lambda: str(error), seconds), _LONGEST_ERROR)[0]
        except Exception:  # includes OutOfTime and CancelledInside
            return ""

    def _function(self, call: Call) -> Callable[[], Any]:
        if not self.is_runnable:
            raise ToolFailure(f"{self.name} has no function to call.")
        if self._callback is not None:
            if isinstance(self.source, type):
                return functools.partial(self._callback, call.call())
            if isinstance(self.source, (JsonSchema, Mapping)):
                return functools.partial(self._callback, **call.arguments)
            return Call(self._callback, call.arguments).call
        made: Callable[[], Any] = call.call() if isinstance(self.source, type) else call.call
        return made

    async def _in_thread(self, function: Callable[[], ResultT], limit: float | None) -> ResultT:
        """Run a function in a thread and return its result."""
        with self._lock:
            if self._left_running >= _MOST_LEFT_RUNNING:
                raise ToolFailure(
                    f"{self.name} was not called: {self._left_running} timed-out calls of it are "
                    "still running."
                )
        has_ended = is_left = False

        def work() -> ResultT:
            nonlocal has_ended
            try:
                return function()
            finally:
                with self._lock:
                    has_ended = True
                    self._left_running -= is_left

        try:
            made: ResultT = await within(limit, in_thread(work, f"tool {self.name}"))
            return made
        except BaseException:
            with self._lock:
                is_left = not has_ended
                self._left_running += is_left
            raise


# -- results as text --------------------------------------------------------------------------


def as_text(value: Any) -> str:
    """Return a value as text for a model: a str unchanged, anything else as JSON.

    Raises:
        ToolFailure: it cannot be written as JSON.
    """
    if isinstance(value, str):
        return str.__str__(value)  # does not run code of a str subclass
    if isinstance(value, Iterator):
        raise ToolFailure(
            f"The tool returned an iterator ({_kind(value)}), which may never end. Return a value "
            "such as a list."
        )
    try:
        text = to_json(value, inf_nan_mode="strings").decode()
    except Exception as error:  # raised by code of any class in it
        try:
            why = str(error)
        except (Exception, asyncio.CancelledError):
            why = ""
        raise ToolFailure(
            f"The tool returned a value of type {_kind(value)} that cannot be written as JSON: "
            f"{why}"
        ) from error
    return text


def _kind(value: object) -> str:
    """Return the name of a value's class, without running code of its metaclass."""
    name: str = vars(type)["__name__"].__get__(type(value))
    return name


def shown(text: str, longest: int) -> tuple[str, bool]:
    """Return a text cut to a length, and whether it was cut. What no prompt can contain (NUL, lone
    surrogates) becomes ``\ufffd``."""
    if len(text) <= longest:
        return NOT_TEXT.sub("\ufffd", text), False
    begins = NOT_TEXT.sub("\ufffd", text[:longest])
    return f"{begins}… (truncated to the first {longest:,} of {len(text):,} characters)", True


# -- several tools ----------------------------------------------------------------------------


def tools_of(values: Iterable[AnyTool]) -> dict[str, Tool]:
    """Return the tools that a caller passed, by name.

    Raises:
        OutputTypeError: an item is not a tool, cannot be enforced, or has the name of another.
    """
    if isinstance(values, (str, Mapping)) or not isinstance(values, Iterable):
        raise OutputTypeError(f"tools= must be a list of tools, got {values!r}.")
    found: dict[str, Tool] = {}
    for value in values:
        for tool in _tools(value):
            if tool.name in found:
                raise OutputTypeError(
                    f"Two tools are both named {tool.name!r}, so their calls cannot be "
                    "distinguished. Rename one of them (for McpServer, use prefix=)."
                )
            found[tool.name] = tool
    return found


def _tools(value: AnyTool) -> tuple[Tool, ...]:
    if isinstance(value, Tool):
        return (value,)
    if not isinstance(value, type) and isinstance(value, ToolSource):
        return value.tools
    return (Tool(value),)


def check_seconds(name: str, value: object) -> None:
    """Raise OptionError unless this is None or a positive number of seconds."""
    if value is None:
        return
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not (value > 0 and math.isfinite(value))
    ):
        raise OptionError(f"{name}={value!r} is not a positive number of seconds.")
