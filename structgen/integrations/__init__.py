"""Adapters: structgen inside other people's engines and frameworks.

One module for each, imported by its name, which imports the package that it adapts to; nothing here
is imported by the rest of structgen. An adapter is thin: what it needs, the library offers. What
each enforces, validates and refuses is a table in docs/integrations.md. In reading order: `numpy`
(masks over logits, and the cursors of a batch, kept in step with its token ids), `transformers`,
`llama_cpp`, `vllm`; `frameworks` (what adapters to frameworks share), `pydantic_ai`, `langchain`,
`llama_index`, `haystack` (a Runner's models), `llm` (a plugin), `mcp` (a Runner as a server of
tools).
"""
