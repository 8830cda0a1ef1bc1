"""The tools as MCP lists and calls them.

Owns their descriptions and schemas on the wire, which errors a host's model is told, and progress.
"""

from __future__ import annotations

import importlib.metadata
import json
import logging
from typing import Any

from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    TextContent,
    ToolAnnotations,
)
from mcp_types import Tool as McpTool
from pydantic import ValidationError

from structgen.errors import StructgenError
from structgen.runner import Runner, request_error

from .tools import Models, Tool, called, models_of, tools_of

_log = logging.getLogger("structgen")

_INSTRUCTIONS = (
    "Language models on this machine. Answers have exactly the form that is asked for: a JSON "
    "Schema, a regular expression, one of several texts, a grammar."
)


def server_of(runner: Runner, models: Models) -> Server[Any]:
    """A server of the tools ``generate``, ``extract``, ``classify``, ``decide`` and ``embed``.

    Args:
        runner: which is asked; it stays open.
        models: ids of its models that the tools may be asked for.

    Cost: loads nothing.
    """
    tools = tools_of(models)
    listed = [_listed(tool, models) for tool in tools.values()]
    schemas = {tool.name: tool.input_schema for tool in listed}

    async def on_list_tools(context: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=listed)

    async def on_call_tool(context: Any, params: CallToolRequestParams) -> CallToolResult:
        tool = tools.get(params.name)
        if tool is None:
            raise MCPError(
                INVALID_PARAMS, f"There is no tool {params.name!r}. There are: {', '.join(tools)}."
            )

        async def told(progress: float, message: str) -> None:
            await context.session.report_progress(progress, None, message)

        try:
            given = _read(tool, params.arguments or {})
            result = await called(runner, tool, models, given, told)
        except StructgenError as error:
            return _text(str(error), is_error=True)
        except Exception:
            _log.exception("the tool %s", tool.name)
            return _text(f"{tool.name} failed; the server's log says why.", is_error=True)
        structured = result.model_dump(mode="json")
        answer = _text(json.dumps(structured, ensure_ascii=False))
        answer.structured_content = structured
        return answer

    return Server(
        "structgen",
        version=_version(),
        title="structgen",
        instructions=_INSTRUCTIONS,
        get_tool_input_schema=schemas.get,
        on_list_tools=on_list_tools,
        on_call_tool=on_call_tool,
    )


def _version() -> str:
    try:
        return importlib.metadata.version("structgen")
    except importlib.metadata.PackageNotFoundError:  # run from its sources
        return ""


def _listed(tool: Tool[Any], models: Models) -> McpTool:
    takes = tool.takes.model_json_schema()
    takes["properties"]["model"] |= {"enum": [*models_of(tool, models), None]}
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


def _read(tool: Tool[Any], given: dict[str, Any]) -> Any:
    """The arguments of a call.

    Raises:
        RequestError: one is unknown, missing or wrong.
    """
    try:
        return tool.takes.model_validate(given)
    except ValidationError as error:
        raise request_error(tool.takes, error) from None


def _text(text: str, *, is_error: bool = False) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)
