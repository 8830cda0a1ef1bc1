"""Small chat templates in the shape of those of model families, for what is read off them.

They are written here and run by the runtime's own template engine; the models behind them are not
needed. Each writes answers and calls of tools as its family does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from structgen import PromptError
from structgen.models.genai import TextModel

_CHATML = """
{%- for message in messages %}
    {%- if message.role == 'assistant' and message.tool_calls %}
        {{- '<|im_start|>assistant' }}
        {%- if message.content %}{{- '\\n' + message.content }}{%- endif %}
        {%- for tool_call in message.tool_calls %}
            {{- '\\n<tool_call>\\n{"name": "' + tool_call.function.name + '", "arguments": ' }}
            {{- tool_call.function.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}"""

_TOOLS = """
{%- if tools %}
    {{- '<|im_start|>system\\nYou may call:' }}
    {%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}"""

_OPENING = "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
_OPENING_THOUGHT = (
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n' }}{%- endif %}"
)

_IN_XML = """
        {%- for call in message.tool_calls %}
            {{- '\\n<tool_call>\\n<function=' + call.function.name + '>\\n' }}
            {%- for key, value in call.function.arguments | items %}
                {{- '<parameter=' + key + '>\\n' }}
                {%- if value is string %}{{- value }}{%- else %}{{- value | tojson }}{%- endif %}
                {{- '\\n</parameter>\\n' }}
            {%- endfor %}
            {{- '</function>\\n</tool_call>' }}
        {%- endfor %}"""

# Lines of statements stay, where others would take them away.
_IN_KEYS = """
{% for call in message.tool_calls %}
<tool_call>{{ call.function.name }}
{% for key, value in call.function.arguments | items %}
<arg_key>{{ key }}</arg_key>
<arg_value>{{ value if value is string else value | tojson }}</arg_value>
{% endfor %}
</tool_call>{% endfor %}"""

_IN_PYTHON = """
        {{- '[' }}
        {%- for call in message.tool_calls %}
            {{- call.function.name + '(' }}
            {%- for key, value in call.function.arguments | items %}
                {{- key + '=' }}{{- value | tojson }}{{- '' if loop.last else ', ' }}
            {%- endfor %}
            {{- ')' }}{{- '' if loop.last else ', ' }}
        {%- endfor %}
        {{- ']' }}"""

TEMPLATES = {
    "qwen": _TOOLS + _CHATML + _OPENING,
    # Opens a thought by itself, and drops those of turns before, as DeepSeek's and Qwen's do.
    "thinking": _TOOLS
    + """
{%- for message in messages %}
    {%- set content = message.content.split('</think>') | last %}
    {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
{%- endfor %}"""
    + _OPENING_THOUGHT,
    # Speaks of thoughts where it drops those of turns before, and opens none.
    "may think": """
{%- for message in messages %}
    {%- set content = message.content %}
    {%- if message.role == 'assistant' %}
        {%- set content = content.split('</think>') | last %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
{%- endfor %}"""
    + _OPENING,
    "llama": """
{%- for message in messages %}
    {%- if message.tool_calls is defined %}
        {%- if message.tool_calls | length != 1 %}
            {{- raise_exception("only one call at once") }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|im_start|>assistant\\n\\n{"name": "' + call.name + '", "parameters": ' }}
        {{- call.arguments | tojson }}
        {{- '}<|im_end|>' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n\\n' + message.content | trim + '<|im_end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n\\n' }}{%- endif %}""",
    "mistral": """
{%- for message in messages %}
    {%- if message.role == 'user' %}{{- '[INST] ' + message.content + '[/INST]' }}
    {%- elif message.tool_calls is defined %}
        {{- '[TOOL_CALLS][' }}
        {%- for call in message.tool_calls %}
            {%- set written = call.function | tojson %}
            {{- written[:-1] + ', "id": "' + call.id + '"}' }}
            {{- '' if loop.last else ', ' }}
        {%- endfor %}
        {{- ']<|im_end|>' }}
    {%- else %}{{- ' ' + message.content + '<|im_end|>' }}
    {%- endif %}
{%- endfor %}""",
    "mistral with names": """
{%- for message in messages %}
    {%- if message.role == 'user' %}{{- '[INST]' + message.content + '[/INST]' }}
    {%- elif message.tool_calls is defined %}
        {%- for call in message.tool_calls %}
            {{- '[TOOL_CALLS]' + call.function.name + '[ARGS]' + call.function.arguments }}
        {%- endfor %}
        {{- '<|im_end|>' }}
    {%- else %}{{- message.content + '<|im_end|>' }}
    {%- endif %}
{%- endfor %}""",
    "named results": """
{%- for message in messages %}
    {%- if message.role == 'tool' %}
        {{- '<|im_start|>tool\\n{"name": "' + message.name + '", "content": "' }}
        {{- message.content + '"}<|im_end|>\\n' }}
    {%- elif message.tool_calls %}
        {{- '<|im_start|>assistant' }}
        {%- for call in message.tool_calls %}
            {{- '\\n<tool_call>{"name": "' + call.function.name + '", "arguments": ' }}
            {{- call.function.arguments | tojson }}
            {{- '}</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- else %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}"""
    + _OPENING,
    "fenced": """
{%- for message in messages %}
    {%- if message.role == 'user' %}{{- '<user>' + message.content }}
    {%- elif message['tool_calls'] is defined and message['content'] is none %}
        {{- '<assistant><calls>' }}
        {%- for call in message.tool_calls %}
            {{- '<call>' + call.type + '<sep>' + call.function.name + '\\n```json\\n' }}
            {{- call.function.arguments + '\\n```</call>' }}
        {%- endfor %}
        {{- '</calls><|im_end|>' }}
    {%- else %}{{- '<assistant>' + message.content + '<|im_end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<assistant>' }}{%- endif %}""",
    # Of a call's name it shows what its id has of it.
    "kimi": """
{%- for message in messages %}
    {%- if message.role == 'tool' %}
        {{- '<tool>## Return of ' + message.tool_call_id + '\\n' + message.content + '<|im_end|>' }}
    {%- else %}
        {{- '<' + message.role + '>' }}{%- if message.content %}{{- message.content }}{%- endif %}
        {%- if message.tool_calls %}
            {{- '<|tool_calls_section_begin|>' }}
            {%- for call in message.tool_calls %}
                {{- '<|tool_call_begin|>' + call.id + '<|tool_call_argument_begin|>' }}
                {{- call.function.arguments | tojson }}
                {{- '<|tool_call_end|>' }}
            {%- endfor %}
            {{- '<|tool_calls_section_end|>' }}
        {%- endif %}
        {{- '<|im_end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<assistant>' }}{%- endif %}""",
    # Answers are all that it knows.
    "gemma": """
{%- for message in messages %}
    {%- if message.role == 'system' %}{{- raise_exception("no system") }}{%- endif %}
    {%- set role = 'model' if message.role == 'assistant' else message.role %}
    {{- '<start_of_turn>' + role + '\\n' + message.content | trim + '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<start_of_turn>model\\n' }}{%- endif %}""",
}

BY_PARAMETER = {
    name: """
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' }}
    {%- if message.content %}{{- message.content }}{%- endif %}
    {%- if message.tool_calls %}"""
    + calls
    + """{%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}"""
    + _OPENING
    for name, calls in {"qwen3-coder": _IN_XML, "glm-4.5": _IN_KEYS, "llama-4": _IN_PYTHON}.items()
}
"""Those that write arguments one by one, by the names of dialects."""
TEMPLATES |= BY_PARAMETER


class Templated:
    """A model with another chat template, and all else its own."""

    def __init__(self, model: TextModel, template: str) -> None:
        self._model = model
        self._template = TEMPLATES[template]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        given = {} if tools is None else {"tools": json.dumps(list(tools))}
        try:
            return str(
                self._model.og_tokenizer.apply_chat_template(
                    json.dumps(list(messages)),
                    template_str=self._template,
                    add_generation_prompt=True,
                    **given,
                )
            )
        except RuntimeError as error:
            raise PromptError(str(error)) from error
