"""What each adapter enforces by mask, validates and does not support: one table.

An adapter adds an `Integration` to `INTEGRATIONS`; docs/integrations.md shows the table, and a test
holds it to this. Knows no adapter's code.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Integration:
    """One adapter, as the table says it.

    Attributes:
        name: of the engine or framework.
        module: where the adapter is, or what serves the client.
        extra: of the package to install, ``pip install 'structgen[extra]'``; empty: none needed.
        enforced: what a mask enforces while tokens are chosen.
        validated: what is checked when a text is whole.
        unsupported: what is refused, each with an error that names it.
        tried: the versions it has been run with, or how it was tested where it was not.
    """

    name: str
    module: str
    extra: str
    enforced: str
    validated: str
    unsupported: str
    tried: str


INTEGRATIONS: tuple[Integration, ...] = (
    Integration(
        name="NumPy",
        module="structgen.integrations.numpy",
        extra="",
        enforced="every constraint",
        validated="nothing: parse the text with `constraint.output.parse`",
        unsupported="–",
        tried="in CI",
    ),
    Integration(
        name="Transformers, `generate`",
        module="structgen.integrations.transformers",
        extra="transformers",
        enforced="every constraint, in batches, with several returns and within `max_tokens`",
        validated="nothing: parse the text with `constraint.output.parse`",
        unsupported="beams; tokens taken against the mask (prompt lookup, processors after it)",
        tried="5.23.0 with torch 2.13.0 on the CPU, in CI; not on CUDA",
    ),
    Integration(
        name="llama-cpp-python",
        module="structgen.integrations.llama_cpp",
        extra="llama-cpp",
        enforced="every constraint, within `max_tokens`",
        validated="nothing: parse the text with `constraint.output.parse`",
        unsupported="tokens taken against the mask (processors after it)",
        tried="0.3.36 on the CPU",
    ),
    Integration(
        name="vLLM, logits processor",
        module="structgen.integrations.vllm",
        extra="",
        enforced="every constraint, within `max_tokens`, along drafts too (runner V2)",
        validated="that the arguments of a request can be read, and go with its other fields",
        unsupported="as a structured-output backend: vLLM has a fixed list of these; beams; "
        "`min_tokens`, `allowed_token_ids`, `structured_outputs` beside an output type",
        tried="vLLM 0.32.0 on the CPU, both runners (V2 by Triton's interpreter), drafts, its "
        "server; not on a GPU",
    ),
    Integration(
        name="pydantic-ai",
        module="structgen.integrations.pydantic_ai",
        extra="pydantic-ai",
        enforced="native, prompted and tool outputs, arguments of tools, `tool_choice`, "
        "`parallel_tool_calls`; within `max_tokens`",
        validated="outputs and arguments, by pydantic-ai: what only code can check",
        unsupported="images, audio, documents; native tools",
        tried="2.68.0, in CI",
    ),
    Integration(
        name="LangChain, LangGraph",
        module="structgen.integrations.langchain",
        extra="langchain",
        enforced="`with_structured_output` by all methods, arguments of tools, `tool_choice`, "
        "`parallel_tool_calls`; within `max_tokens`",
        validated="Pydantic classes: what only their validators can check",
        unsupported="images, audio, documents; streams of several answers",
        tried="langchain-core 1.7.2 and langchain-tests 1.1.9 in CI; 1.8.2 (`StructgenDecisions`) "
        "by hand",
    ),
    Integration(
        name="LlamaIndex",
        module="structgen.integrations.llama_index",
        extra="llama-index",
        enforced="`structured_predict` and its streams, arguments of tools, `tool_choice`, "
        "`tool_required`, `allow_parallel_tool_calls`; within `max_tokens`",
        validated="Pydantic classes: what only their validators can check",
        unsupported="images, audio, documents",
        tried="llama-index-core 0.14.25, in CI",
    ),
    Integration(
        name="Haystack",
        module="structgen.integrations.haystack",
        extra="haystack",
        enforced="`response_format`, arguments of tools, `tool_choice`, "
        "`parallel_tool_calls`; within `max_tokens`",
        validated="nothing: texts of a `response_format` are valid for its JSON Schema",
        unsupported="images, files; streams of several answers",
        tried="haystack-ai 3.4.0, in CI",
    ),
    Integration(
        name="llm, a plugin",
        module="structgen.integrations.llm",
        extra="llm",
        enforced="schemas, arguments of tools, `regex`, `choices`, `grammar`, `tool_choice`; "
        "within `max_tokens`",
        validated="options, by llm",
        unsupported="attachments; server-side tools",
        tried="0.36, its command and its library, in CI",
    ),
    Integration(
        name="MCP, `structgen mcp`",
        module="structgen.integrations.mcp",
        extra="mcp",
        enforced="JSON Schemas, regular expressions, choices, grammars; within `max_tokens`",
        validated="arguments of the tools, before a model is asked",
        unsupported="HTTP from other machines; resources, prompts, sampling",
        tried="mcp 2.3.0 with its client, over stdio and streamable HTTP, in CI",
    ),
    Integration(
        name="openai, through the server",
        module="structgen.server",
        extra="server",
        enforced="`response_format`, `text_format`, tools, of chats and responses; decisions",
        validated="what only a class can check, by `parse`",
        unsupported="fields that [the server](server.md#fields) refuses by name",
        tried="3.54, in CI",
    ),
    Integration(
        name="OpenAI Agents SDK, through the server",
        module="structgen.server",
        extra="server",
        enforced="`output_type`, function tools, hand-overs; chats, responses, streams",
        validated="outputs, by the SDK",
        unsupported="hosted tools; images, voice",
        tried="0.24, in CI",
    ),
    Integration(
        name="instructor, through the server",
        module="structgen.server",
        extra="server",
        enforced="`TOOLS`, `JSON_SCHEMA`, `RESPONSES_TOOLS`, `PARALLEL_TOOLS`; `JSON` and "
        "`MD_JSON` where `extra_body` has the form",
        validated="validators of the class, by instructor, with its retries",
        unsupported="`create_iterable` of a class: its schema lets the list be left out",
        tried="1.17, in CI",
    ),
    Integration(
        name="LiteLLM, through the server",
        module="structgen.server",
        extra="server",
        enforced="`response_format`, tools, as `openai/ID` and `hosted_vllm/ID`; streams",
        validated="nothing",
        unsupported="fields that the server refuses by name",
        tried="1.106, in CI",
    ),
    Integration(
        name="DSPy, through the server",
        module="structgen.server",
        extra="server",
        enforced="typed signatures, with `JSONAdapter` and a provider that is registered",
        validated="fields, by DSPy",
        unsupported="signatures with `dict` outputs, `ReAct` among them: DSPy sends no schema",
        tried="3.4, in CI",
    ),
    Integration(
        name="smolagents, through the server",
        module="structgen.server",
        extra="server",
        enforced="arguments of tools, `response_format`; streams",
        validated="arguments, by smolagents",
        unsupported="the code of a `CodeAgent`, which is free text; images",
        tried="1.26, in CI",
    ),
    Integration(
        name="BAML, through the server",
        module="structgen.server",
        extra="server",
        enforced="a function's output, where the client has its `response_format`",
        validated="the text, by BAML's parser",
        unsupported="images, audio",
        tried="0.226, in CI",
    ),
    Integration(
        name="Vercel AI SDK, through the server",
        module="structgen.server",
        extra="server",
        enforced="`generateObject`, `streamObject`, `Output.object`, tools",
        validated="objects and arguments, by zod",
        unsupported="images, files",
        tried="ai 6.0.326 on Node 20.20, in CI",
    ),
)


def table() -> str:
    """The table of all adapters, in Markdown."""
    head = ("adapter", "extra", "enforced by mask", "validated", "unsupported", "tried with")
    rows = [head, ("---",) * len(head)]
    for one in INTEGRATIONS:
        module = f"{one.name}: `{one.module}`"
        extra = f"`{one.extra}`" if one.extra else "none"
        rows.append((module, extra, one.enforced, one.validated, one.unsupported, one.tried))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
