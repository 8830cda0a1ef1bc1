"""Adapters: structgen inside other people's engines and frameworks.

Each adapter is a module that imports the package it adapts to. Nothing else in structgen imports
them, except `connections`, which the server uses. Adapters are thin: the library has the logic.
docs/integrations.md lists what each one enforces, validates and refuses. In reading order: `numpy`
(masks over logits, and cursors that follow the token ids of a batch), `transformers`, `llama_cpp`,
`vllm`; `frameworks` (shared by framework adapters), `pydantic_ai`, `langchain`, `llama_index`,
`haystack` (a Runner's models), `llm` (a plugin), `mcp` (a Runner as a server of tools).
"""
