r"""How a model calls tools, according to its chat template: in outputs, prompts and earlier turns.

**Syntax.** The template renders an answer that calls a probe, and the same answer with a text. The
difference is the call: the text before its name, between name and arguments, and after them. An
answer with two calls shows the separator. So structgen can read every syntax whose arguments are a
JSON object, without knowing it beforehand: Hermes and Qwen (``<tool_call>\n{"name": …``), Llama 3
(``{"name": …, "parameters": …}``), Mistral (``[TOOL_CALLS][{…}]``, ``[TOOL_CALLS]name[ARGS]{…}``),
DeepSeek (a fenced block after the name). If the template shows no calls, a token that one family
uses for calls (``<|tool_call|>`` of Phi, ``[TOOL_CALLS]``, ``<tool_call>``, ``<|python_tag|>``)
selects that family's syntax; otherwise it is `NEUTRAL`.

**Prompts.** Tools and schemas go through the template if it supports them, otherwise into
structgen's own text. A plain text prompt is not changed.

**Earlier turns.** Templates differ in the form of calls that they expect (arguments as a value or
as text, empty content or none), and many show none. A probe, rendered once per model, finds the
form. If no form shows calls and results, they are written as text: calls in the model's syntax,
results as user messages.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from structgen.errors import PromptError
from structgen.models.base import Model, per_model
from structgen.types import DIALECTS, NEUTRAL, OutputType, ToolCalls, ToolsOffered, ToolSyntax

from .chat_tokens import shown

_NAMES = ("probe_tool_one", "probe_tool_two")
_ANSWER = "Zprobe answerZ"
_IDS = ("probeid01", "probeid02")  # Mistral's ids are nine letters and digits
_QUESTION = {"role": "user", "content": "probe question"}
_FURTHER = {"role": "user", "content": "probe further"}

_NOT_SHOWN = ("gpt-oss", "kimi-k2")
"""Families whose template shows calls differently from how the model writes them, or without names.
"""

_BY_TOKEN = {
    "<|constrain|>": "gpt-oss",
    "<|tool_call_argument_begin|>": "kimi-k2",
    "<|tool_call|>": "phi-4-mini",
    "[TOOL_CALLS]": "mistral-v3",
    "<|START_ACTION|>": "command",
    "｜DSML｜": "deepseek-v3.2",
    "<arg_key>": "glm-4.5",
    "<minimax:tool_call>": "minimax-m2",
    "<tool_call>": "hermes",
    "<|python_tag|>": "llama-3",
}
"""The syntax of a family, by its token, if the template does not show it."""

_MOST_TEXT = 500
"""The most characters around a call: published models have up to 100. Compiling takes time
quadratic in them."""

_JSON_START = re.compile(r'(?<!\s)\s*(?:\[\s*)?(?:\{\s*"(?:name|function)"\s*:\s*")?\Z')


def as_model_writes(model: Model, output_type: Any) -> Any:
    """Return ``output_type``; for `ToolCalls`, lowered or not, in the syntax of ``model``."""
    return written_in(lambda: tool_syntax(model), output_type)


def written_in(syntax: Callable[[], ToolSyntax], output_type: Any) -> Any:
    """Return ``output_type``; for `ToolCalls`, in a syntax, which is computed only if needed."""
    if isinstance(output_type, ToolCalls) and output_type.syntax is None:
        return output_type.written_as(syntax())
    if isinstance(output_type, OutputType) and output_type.offered is not None:
        rewritten = output_type.offered.rewritten
        return output_type if rewritten is None else rewritten(syntax())
    return output_type


def takes_tools(model: Model) -> bool:
    """Return whether the chat template describes tools."""
    with_them, without = shown(model, [_QUESTION], _tools()), shown(model, [_QUESTION])
    return None not in (with_them, without) and with_them != without


@per_model
def tool_syntax(model: Model) -> ToolSyntax:
    """Return the syntax in which ``model`` calls tools.

    Cost: some renderings of the chat template, once per model.
    """
    vocabulary = model.vocabulary
    named, ending = vocabulary.named_tokens.items(), vocabulary.eos_token_ids
    ends = [name for name, i in named if i in ending and name]
    family = next((_BY_TOKEN[token] for token in _BY_TOKEN if token in vocabulary.named_tokens), "")
    for plain, one, two in () if family in _NOT_SHOWN else _renderings(model):
        syntax = read_syntax(plain, one, two, ends)
        if syntax is not None:
            return syntax
    if family:
        return ToolSyntax.named(family)
    is_shown = NEUTRAL.marker in (shown(model, [_QUESTION], _tools()) or "")
    return replace(NEUTRAL, known=is_shown)


class _Form(NamedTuple):
    """The form in which a template expects calls.

    Attributes:
        as_text: arguments as JSON text, not as a value.
        content: the content of an answer without text.
        is_named: whether ids of calls contain the tool and the number of the call, as Kimi's
            template needs.
    """

    as_text: bool
    content: str | None
    is_named: bool = False


def _renderings(model: Model) -> Iterator[tuple[str, str, str | None]]:
    """Yield renderings of chats with a text, with one call, and with two, in each form."""
    ways = itertools.product((_tools(), None), (False, True), (None, ""), ([_FURTHER], []))
    for tools, as_text, content, after in ways:
        calls = [_calling(n, _Form(as_text, content)) for n in (1, 2)]
        answers = [{"role": "assistant", "content": _ANSWER}, *calls]
        plain, one, two = (shown(model, [_QUESTION, answer, *after], tools) for answer in answers)
        if plain is not None and one is not None:
            yield plain, one, two


def _calling(n: int, form: _Form) -> dict[str, Any]:
    """Return an answer that calls that many tools."""
    calls: list[dict[str, Any]] = []
    for index in range(n):
        arguments: Any = {f"probe_key_{index}": "probe_value"}
        arguments = json.dumps(arguments) if form.as_text else arguments
        function = {"name": _NAMES[index], "arguments": arguments}
        calls.append({"id": _id(index, form), "type": "function", "function": function})
    return {"role": "assistant", "content": form.content, "tool_calls": calls}


def _id(index: int, form: _Form) -> str:
    return _named_id(_NAMES[index], index) if form.is_named else _IDS[index]


def _named_id(name: Any, index: int) -> str:
    return f"functions.{name}:{index}"


def _tools() -> list[dict[str, Any]]:
    nothing = {"type": "object", "properties": {}}
    return [
        {
            "type": "function",
            "function": {
                "name": f"offered_{name}",
                "description": "A probe.",
                "parameters": nothing,
            },
        }
        for name in _NAMES
    ]


# -- what renderings show ---------------------------------------------------------------------


def read_syntax(
    plain: str, one: str, two: str | None, ends: Collection[str] = ()
) -> ToolSyntax | None:
    """Return the syntax that three renderings of a chat show.

    Args:
        plain: the rendering with a text as answer.
        one: that with one call of the probe.
        two: that with two calls; None if the template refuses them.
        ends: names of the tokens that end a sequence.

    Returns:
        None if they show no syntax with a JSON object as arguments.
    """
    at = plain.find(_ANSWER)
    if at < 0:
        return None
    start = _n_alike(plain[:at], one)
    tail = plain[at + len(_ANSWER) :]
    end = len(one) - _n_alike(tail[::-1], one[start:][::-1])
    first = _parts(one[start:end], 0)
    if first is None:
        return _one_by_one(one[start:])
    before, between, after = first
    for name in ends:
        after = after.partition(name)[0]
    again = None
    if two is not None:
        second = _parts(two[start:], 1)
        one_more = None if second is None else _parts(second[0], 0)
        if one_more is not None and second is not None and second[1] == between:
            again = one_more[2]
    before = before.lstrip()
    if len(before + between + (again or "") + after) > _MOST_TEXT:
        return None
    marker = _JSON_START.sub("", before, count=1)
    if (not marker and not before.startswith("{")) or before.startswith("None"):
        return None  # or it wrote a placeholder for missing text
    return ToolSyntax(marker, before, between, again, after.rstrip())


def _one_by_one(body: str) -> ToolSyntax | None:
    """Return the known syntax of a probe's call whose arguments are not a JSON object."""
    call = _NAMES[0], json.dumps({"probe_key_0": "probe_value"})
    ways = [(way, way.written([call])) for way in DIALECTS.values() if way.parameters]
    for blank in ("", r"\s+"):  # the runtime keeps template lines that other renderers remove
        shown = re.sub(blank, "", body)
        for way, written in ways:
            if re.sub(blank, "", written) in shown:
                return way
    return None


def _parts(body: str, index: int) -> tuple[str, str, str] | None:
    """Return the text before a probe's name, between name and arguments, and after them."""
    body = re.sub(r'(?<!\s)\s*"id"\s*:\s*"probeid0."\s*,|,\s*"id"\s*:\s*"probeid0."', "", body)
    before, _, rest = body.partition(_NAMES[index])
    found = re.search(rf'\{{\s*"probe_key_{index}"\s*:\s*"probe_value"\s*\}}', rest)
    if found is None or not found.start():
        return None
    return before, rest[: found.start()], rest[found.end() :]


def _n_alike(a: str, b: str) -> int:
    """Return the length of the common prefix of two texts."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((n for n, (one, other) in pairs if one != other), min(len(a), len(b)))


INSTRUCTIONS = """You may call these tools. Each line is one of them, in JSON:
{tools}
To call a tool, write its name and its arguments like this:
{example}"""
"""The instructions for a model whose template does not support tools."""

SCHEMA = """Answer in JSON that is valid under this JSON Schema:
{schema}"""
"""The text that ``with_schema_hint=True`` adds to a chat."""

_Messages = list[dict[str, Any]]


def with_tools(
    model: Model, messages: _Messages, offered: ToolsOffered | None
) -> tuple[_Messages, Sequence[Mapping[str, Any]] | None]:
    """Return the messages to render, and the tools for the template."""
    if offered is None or offered.instructions == "":
        return messages, None
    if offered.instructions is None and takes_tools(model):
        return messages, offered.schemas
    text = INSTRUCTIONS if offered.instructions is None else offered.instructions
    lines = "\n".join(json.dumps(schema, ensure_ascii=False) for schema in offered.schemas)
    example = offered.syntax.example("NAME", '{"PARAMETER": "VALUE"}')
    text = text.replace("{tools}", lines).replace("{example}", example)
    return with_text(model, messages, text), None


def with_text(model: Model, messages: _Messages, text: str) -> _Messages:
    """Return the messages with a text added to the system message, or to the user's if there can be
    none."""
    first, *rest = messages
    if first["role"] in ("system", "developer"):
        return [{**first, "content": f"{first['content']}\n\n{text}".strip()}, *rest]
    system = {"role": "system", "content": text}
    if shown(model, [system, _QUESTION]) is None:
        return [{**first, "content": f"{text}\n\n{first['content']}"}, *rest]
    return [system, *messages]


_ALL = itertools.starmap(_Form, itertools.product((False, True), ("", None), (False, True)))
_FORMS = sorted(_ALL, key=lambda form: form.is_named)


@per_model
def _histories(model: Model) -> dict[int, _Form | None]:
    """Return the form in which a template shows each number of calls at once, if known."""
    return {}


def with_calls(model: Model, messages: _Messages) -> _Messages:
    """Return messages in a form whose calls and results the template shows.

    Raises:
        PromptError: the last message calls tools, so an answer cannot continue it.

    Cost: nothing without calls; otherwise some renderings of the template, once per model.
    """
    calls = [len(message.get("tool_calls") or ()) for message in messages]
    if not any(calls) and all(message["role"] != "tool" for message in messages):
        return messages
    if calls[-1]:
        raise PromptError(
            f"Message {len(messages) - 1}, the last, calls tools. Add their results after it: "
            '{"role": "tool", "tool_call_id": ..., "content": ...}.'
        )
    n = min(max(calls), len(_NAMES)) or 1
    known = _histories(model)
    if n not in known:
        known[n] = next((form for form in _FORMS if _shows(model, form, n)), None)
    form = known[n]
    if form is None:
        return _as_text(model, messages)
    return _formed(messages, form)


def _formed(messages: _Messages, form: _Form) -> _Messages:
    """Return messages in a template's form: with ids of calls that contain the tool and the number,
    if needed; and each result with the tool's name, which OpenAI's API omits."""
    found: _Messages = []
    known: dict[str, tuple[Any, Any]] = {}  # by id of a call: the tool's name, and the new id
    numbers = itertools.count()
    for message in messages:
        changed = dict(message)
        if message.get("tool_calls"):
            changed |= {"content": message["content"] or form.content, "tool_calls": []}
        for call in message.get("tool_calls") or ():
            function = call.get("function") if isinstance(call, Mapping) else None
            if isinstance(function, Mapping):
                id_, name = call.get("id"), function.get("name")
                arguments = _written(function.get("arguments"), form.as_text)
                call = {**call, "function": {**function, "arguments": arguments}}
                if form.is_named:
                    call["id"] = _named_id(name, next(numbers))
                if isinstance(id_, str):
                    known[id_] = name, call["id"]
            changed["tool_calls"].append(call)
        of = message.get("tool_call_id")
        if isinstance(of, str) and of in known:
            name, changed["tool_call_id"] = known[of]
            changed.setdefault("name", name)
        found.append(changed)
    return found


def _written(arguments: Any, as_text: bool) -> Any:
    if isinstance(arguments, str) == as_text:
        return arguments
    if as_text:
        return json.dumps(arguments or {}, ensure_ascii=False)
    try:
        return json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return arguments


def _as_text(model: Model, messages: _Messages) -> _Messages:
    """Return calls and results as text. Adjacent results become one message, because some templates
    refuse two messages of one role."""
    syntax = tool_syntax(model)
    written: _Messages = []
    results: list[str] = []
    for place, message in enumerate(messages, 1):
        if message["role"] == "tool":
            results.append(f"<tool_response>\n{message['content']}\n</tool_response>")
            if place == len(messages) or messages[place]["role"] != "tool":
                written.append({"role": "user", "content": "\n".join(results)})
                results = []
            continue
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


def _shows(model: Model, form: _Form, n: int) -> bool:
    """Return whether the template shows ``n`` calls of this form and their results in order."""
    messages: list[Mapping[str, Any]] = [_QUESTION, _calling(n, form)]
    order = [part for i in range(n) for part in (_NAMES[i], f"probe_key_{i}")]
    for i in range(n):
        order.append(f"probe result {i}")
        result = {"role": "tool", "tool_call_id": _id(i, form), "content": order[-1]}
        result["name"] = _NAMES[i]
        messages.append(result)
    # Some show less before or after the last question: both must be shown.
    further = [{"role": "assistant", "content": _ANSWER}, _FURTHER]
    for more in ([], further):
        text = shown(model, [*messages, *more])
        # With other quotes: where a template expects text, a value is rendered as Python's repr;
        # where it expects a value, text as a string.
        if text is None or "None" in text or re.search(r"""(?:'|\\")probe_key_""", text):
            return False
        for part in order:
            _, part, text = text.partition(part)
            if not part:
                return False
    return True
