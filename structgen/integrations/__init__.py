"""Adapters: structgen inside other people's engines and frameworks.

One module for each, imported by its name, which imports the package that it adapts to; nothing here
is imported by the rest of structgen. An adapter is thin: what it needs, the library offers. In
reading order: `support` (what each does, as one table), `numpy` (masks over logits, and the cursors
of a batch, kept in step with its token ids), `transformers`, `llama_cpp`, `vllm`; `frameworks`
(what adapters to frameworks share), `pydantic_ai`, `langchain`, `llama_index`, `haystack` (a
Runner's models), `llm` (a plugin), `mcp` (a Runner as a server of tools).
"""

from __future__ import annotations

from .support import INTEGRATIONS, Integration, table

__all__ = ["INTEGRATIONS", "Integration", "table"]
