"""Calls and their results in chats that go on: through the chat template where it shows them.

Owns the form in which earlier messages are given to a template. Templates differ in how they want
calls (arguments as a value or as text, no content or an empty one), and many show none: an answer
that only called would be empty, or be refused, and so would be results. Which is the case is read
off renderings of a probe, once a model. Where no form shows calls and results, they are written as
text: calls in the model's syntax (`tool_syntax`), results as the user's words.
"""

from __future__ import annotations

import itertools
import json
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from structgen.errors import PromptError
from structgen.models.base import Model

from .tool_syntax import tool_syntax

_Messages = list[dict[str, Any]]

_RESULT = "<tool_response>\n{}\n</tool_response>"
_IDS = ("probeid01", "probeid02")  # Mistral's ids are nine letters and digits


class _Form(NamedTuple):
    """How a template wants calls.

    Attributes:
        as_text: arguments as JSON text, not as a value.
        content: what an answer without text has for content.
    """

    as_text: bool
    content: str | None


_FORMS = tuple(itertools.starmap(_Form, itertools.product((False, True), ("", None))))
_KNOWN: weakref.WeakKeyDictionary[Model, dict[bool, _Form | None]] = weakref.WeakKeyDictionary()


def with_calls(model: Model, messages: _Messages) -> _Messages:
    """The messages in a form in which the template shows their calls and the results of these.

    Raises:
        PromptError: the last message calls tools: it is none that an answer could go on from.

    Cost: nothing where there are none; some renderings of the template, once a model.
    """
    calls = [len(message.get("tool_calls") or ()) for message in messages]
    if not any(calls) and all(message["role"] != "tool" for message in messages):
        return messages
    if calls[-1]:
        raise PromptError(
            f"Message {len(messages) - 1}, the last, calls tools. Put their results after it: "
            '{"role": "tool", "tool_call_id": ..., "content": ...}.'
        )
    several = max(calls) > 1
    known = _KNOWN.setdefault(model, {})
    if several not in known:
        known[several] = next((form for form in _FORMS if _shows(model, form, several)), None)
    form = known[several]
    if form is None:
        return _as_text(model, messages)
    return [_formed(message, form) for message in messages]


def _formed(message: dict[str, Any], form: _Form) -> dict[str, Any]:
    """A message as a template wants it."""
    if not message.get("tool_calls"):
        return message
    calls = []
    for call in message["tool_calls"]:
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            arguments = _written(function.get("arguments"), form.as_text)
            call = {**call, "function": {**function, "arguments": arguments}}
        calls.append(call)
    return {**message, "content": message["content"] or form.content, "tool_calls": calls}


def _written(arguments: Any, as_text: bool) -> Any:
    if as_text:
        return (
            arguments
            if isinstance(arguments, str)
            else json.dumps(arguments or {}, ensure_ascii=False)
        )
    if isinstance(arguments, str):
        try:
            return json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return arguments
    return arguments


def _as_text(model: Model, messages: _Messages) -> _Messages:
    """Calls and results as text. Results side by side are one message: some templates refuse two
    of one role."""
    syntax = tool_syntax(model)
    written: _Messages = []
    after_result = False
    for message in messages:
        if message["role"] == "tool":
            text = _RESULT.format(message["content"])
            if after_result:
                written[-1]["content"] += f"\n{text}"
            else:
                written.append({"role": "user", "content": text})
            after_result = True
            continue
        after_result = False
        if not message.get("tool_calls"):
            written.append(message)
            continue
        parts = [message["content"]] if message["content"] else []
        for call in message["tool_calls"]:
            function = call.get("function", call) if isinstance(call, Mapping) else {}
            arguments = _written(function.get("arguments"), as_text=True)
            parts.append(syntax.example(str(function.get("name", "")), arguments))
        kept = {key: value for key, value in message.items() if key != "tool_calls"}
        written.append({**kept, "content": "\n".join(parts)})
    return written


def _shows(model: Model, form: _Form, several: bool) -> bool:
    """Whether the template shows calls in this form, and their results, in their order."""
    n = 2 if several else 1
    messages = [
        {"role": "user", "content": "probe question"},
        _formed(
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [_call(index) for index in range(n)],
            },
            form,
        ),
        *(
            {
                "role": "tool",
                "tool_call_id": _IDS[index],
                "name": f"probe_tool_{index}",
                "content": f"probe result {index}",
            }
            for index in range(n)
        ),
    ]
    further = [
        {"role": "assistant", "content": "probe answer"},
        {"role": "user", "content": "probe further"},
    ]
    # In quotes: where a text is wanted, a value is written as Python writes it, not as JSON.
    order = [part for index in range(n) for part in (f"probe_tool_{index}", f'"probe_key_{index}"')]
    order += [f"probe result {index}" for index in range(n)]
    # Some show less of what lies behind the last question: both have to be there.
    return all(_has(model, [*messages, *more], order) for more in ([], further))


def _has(model: Model, messages: Sequence[Mapping[str, Any]], order: Sequence[str]) -> bool:
    try:
        text = model.apply_chat_template(messages)
    except PromptError:
        return False
    at = 0
    for part in order:
        at = text.find(part, at)
        if at < 0:
            return False
    return "None" not in text


def _call(index: int) -> dict[str, Any]:
    arguments = {f"probe_key_{index}": "probe value"}
    function = {"name": f"probe_tool_{index}", "arguments": arguments}
    return {"id": _IDS[index], "type": "function", "function": function}
