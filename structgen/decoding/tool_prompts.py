"""Tools and schemas in prompts: through the chat template where it takes them, or in our words.

Owns these words and where they stand. Templates are the model's; a prompt that is a text is given
to the model as it is, so whoever writes one tells the model of its tools.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from structgen.errors import PromptError
from structgen.models.base import Model
from structgen.types import ToolsOffered

from .tool_syntax import takes_tools

INSTRUCTIONS = """You may call these tools. Each line is one of them, in JSON:
{tools}
To call a tool, write its name and its arguments like this:
{example}"""
"""What a model is told whose template takes no tools."""

SCHEMA = """Answer in JSON that is valid under this JSON Schema:
{schema}"""
"""What ``with_schema_hint=True`` tells a model."""

_Messages = list[dict[str, Any]]


def with_tools(
    model: Model, messages: _Messages, offered: ToolsOffered | None
) -> tuple[_Messages, Sequence[Mapping[str, Any]] | None]:
    """The messages to render, and the tools to give to the template."""
    if offered is None or offered.instructions == "":
        return messages, None
    if offered.instructions is None and takes_tools(model):
        return messages, offered.schemas
    text = INSTRUCTIONS if offered.instructions is None else offered.instructions
    lines = "\n".join(json.dumps(schema, ensure_ascii=False) for schema in offered.schemas)
    example = offered.syntax.example("NAME", '{"PARAMETER": "VALUE"}')
    text = text.replace("{tools}", lines).replace("{example}", example)
    return told(model, messages, text), None


def told(model: Model, messages: _Messages, text: str) -> _Messages:
    """The messages with a text in the system's; the user's, where there can be none."""
    first, *rest = messages
    if first["role"] in ("system", "developer"):
        return [{**first, "content": f"{first['content']}\n\n{text}".strip()}, *rest]
    system = {"role": "system", "content": text}
    try:
        model.apply_chat_template([system, {"role": "user", "content": "probe"}])
    except PromptError:
        return [{**first, "content": f"{text}\n\n{first['content']}"}, *rest]
    return [system, *messages]
