r"""How a model writes calls of tools: read off its chat template.

The template is rendered with an answer that calls a probe, and once with a text in its place. What
differs is the call: what stands before its name, between name and arguments, and after them; an
answer with two calls shows what stands between those. So every syntax whose arguments are an object
in JSON is read without being known: Hermes and Qwen (``<tool_call>\n{"name": …``), Llama 3
(``{"name": …, "parameters": …}``), Mistral (``[TOOL_CALLS][{…}]``, ``[TOOL_CALLS]name[ARGS]{…}``),
DeepSeek (a fenced block after the name).

Templates that show no calls leave the vocabulary: a token that models of one family call by
(``<|tool_call|>`` of Phi, ``[TOOL_CALLS]``, ``<tool_call>``, ``<|python_tag|>``) stands for that
family's syntax. Else it is `NEUTRAL`.
"""

from __future__ import annotations

import itertools
import json
import re
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from structgen.errors import PromptError
from structgen.models.base import Model
from structgen.types import NEUTRAL, OutputType, ToolCalls, ToolSyntax

_NAMES = ("probe_tool_one", "probe_tool_two")
_ANSWER = "Zprobe answerZ"
_ID = "probeid01"  # Mistral's ids are nine letters and digits
_QUESTION = {"role": "user", "content": "probe question"}
_FURTHER = {"role": "user", "content": "probe further"}

_HERMES = ToolSyntax(NEUTRAL.marker, NEUTRAL.before, NEUTRAL.between, NEUTRAL.again, NEUTRAL.after)


def _listed(marker: str, end: str) -> ToolSyntax:
    """A list of calls behind a marker."""
    return ToolSyntax(
        marker, marker + '[{"name": "', '", "arguments": ', '}, {"name": "', "}]" + end
    )


_BY_TOKEN = {
    "<|tool_call|>": _listed("<|tool_call|>", "<|/tool_call|>"),
    "[TOOL_CALLS]": _listed("[TOOL_CALLS]", ""),
    "<tool_call>": _HERMES,
    "<|python_tag|>": ToolSyntax("", '{"name": "', '", "parameters": ', None, "}"),
}
"""What models of a family write, where their template does not show it."""

_JSON_START = re.compile(r'\s*(?:\[\s*)?(?:\{\s*"(?:name|function)"\s*:\s*")?\Z')
_KNOWN: weakref.WeakKeyDictionary[Model, ToolSyntax] = weakref.WeakKeyDictionary()


def tool_syntax(model: Model) -> ToolSyntax:
    """The syntax in which ``model`` calls tools.

    Cost: some renderings of the chat template, once a model.
    """
    found = _KNOWN.get(model)
    if found is None:
        found = _KNOWN[model] = _found(model)
    return found


def as_model_writes(model: Model, output_type: Any) -> Any:
    """``output_type``, and of `ToolCalls`, lowered or not, the same in the syntax of ``model``."""
    return written_in(lambda: tool_syntax(model), output_type)


def written_in(syntax: Callable[[], ToolSyntax], output_type: Any) -> Any:
    """The same in a syntax, which is asked for where it is needed."""
    if isinstance(output_type, ToolCalls) and output_type.syntax is None:
        return output_type.written_as(syntax())
    if isinstance(output_type, OutputType) and output_type.offered is not None:
        rewritten = output_type.offered.rewritten
        return output_type if rewritten is None else rewritten(syntax())
    return output_type


def takes_tools(model: Model) -> bool:
    """Whether the chat template tells the model of tools that it is given."""
    try:
        return model.apply_chat_template([_QUESTION], tools=_tools()) != (
            model.apply_chat_template([_QUESTION])
        )
    except PromptError:
        return False


def _found(model: Model) -> ToolSyntax:
    vocabulary = model.vocabulary
    named, ending = vocabulary.named_tokens.items(), vocabulary.eos_token_ids
    ends = [name for name, i in named if i in ending and name]
    for plain, one, two in _renderings(model):
        syntax = read_syntax(plain, one, two, ends)
        if syntax is not None:
            return syntax
    for name, syntax in _BY_TOKEN.items():
        if name in vocabulary.named_tokens:
            return syntax
    try:
        told = model.apply_chat_template([_QUESTION], tools=_tools())
    except PromptError:
        told = ""
    return _HERMES if NEUTRAL.marker in told else NEUTRAL


def _renderings(model: Model) -> Iterator[tuple[str, str, str | None]]:
    """Chats with a text, with one call, and with two, in the ways that templates want them."""
    further: list[list[Mapping[str, Any]]] = [[_FURTHER], []]
    for tools, as_text, content, after in itertools.product(
        (_tools(), None), (False, True), (None, ""), further
    ):

        def render(
            calls: int,
            tools: Any = tools,
            as_text: bool = as_text,
            content: str | None = content,
            after: list[Mapping[str, Any]] = after,
        ) -> str | None:
            answer: dict[str, Any] = {"role": "assistant", "content": _ANSWER}
            if calls:
                made = [_call(i, as_text) for i in range(calls)]
                answer = {"role": "assistant", "content": content, "tool_calls": made}
            try:
                return model.apply_chat_template([_QUESTION, answer, *after], tools=tools)
            except PromptError:
                return None

        plain, one = render(0), render(1)
        if plain is not None and one is not None:
            yield plain, one, render(2)


def _call(index: int, as_text: bool) -> dict[str, Any]:
    arguments: Any = {f"probe_key_{index}": "probe_value"}
    return {
        "id": _ID,
        "type": "function",
        "function": {
            "name": _NAMES[index],
            "arguments": json.dumps(arguments) if as_text else arguments,
        },
    }


def _tools() -> list[dict[str, Any]]:
    return [
        {
            "type": "function",
            "function": {
                "name": f"offered_{name}",
                "description": "A probe.",
                "parameters": {"type": "object", "properties": {}},
            },
        }
        for name in _NAMES
    ]


# -- what renderings show ---------------------------------------------------------------------


def read_syntax(
    plain: str, one: str, two: str | None, ends: Collection[str] = ()
) -> ToolSyntax | None:
    """The syntax that three renderings of a chat show.

    Args:
        plain: with a text for an answer.
        one: with one call of the probe.
        two: with two calls; None where the template refuses them.
        ends: names of the tokens that end a sequence.

    Returns:
        None where they show none whose arguments are an object in JSON.
    """
    at = plain.find(_ANSWER)
    if at < 0:
        return None
    start = _n_alike(plain[:at], one)
    tail = plain[at + len(_ANSWER) :]
    end = len(one) - _n_alike(tail[::-1], one[start:][::-1])
    first = _parts(one[start:end], 0)
    if first is None:
        return None
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
    marker = _JSON_START.sub("", before, count=1)
    if (not marker and not before.startswith("{")) or before.startswith("None"):
        return None  # or it wrote that there is no text
    return ToolSyntax(marker, before, between, again, after.rstrip())


def _parts(body: str, index: int) -> tuple[str, str, str] | None:
    """What stands before a probe's name, between that and its arguments, and after these."""
    body = re.sub(rf'\s*"id"\s*:\s*"{_ID}"\s*,|,\s*"id"\s*:\s*"{_ID}"', "", body)
    pattern = rf'{_NAMES[index]}(.*?)\{{\s*"probe_key_{index}"\s*:\s*"probe_value"\s*\}}'
    found = re.search(pattern, body, re.DOTALL)
    if found is None or not found[1]:
        return None
    return body[: found.start()], found[1], body[found.end() :]


def _n_alike(a: str, b: str) -> int:
    """How many characters two texts begin with in common."""
    n = 0
    for one, other in zip(a, b, strict=False):
        if one != other:
            break
        n += 1
    return n
