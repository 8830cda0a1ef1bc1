"""Adapters: structgen inside other people's engines and frameworks.

One module each, imported by its name, which imports the package that it adapts to; nothing else in
structgen imports them, but for `connections`, which the server uses. An adapter is thin: the
library offers what it needs. docs/integrations.md lists what each enforces, validates and refuses.
In reading order: `numpy` (masks over logits, and a batch's cursors, kept in step with its token
ids), `transformers`, `llama_cpp`, `vllm`; `frameworks` (what framework adapters share),
`pydantic_ai`, `langchain`, `llama_index`, `haystack` (a Runner's models), `llm` (a plugin), `mcp`
(a Runner as a server of tools).
"""
