"""Models behind servers that speak OpenAI's API: typed, validated here, enforced there if may be.

In reading order: `generator` (`from_openai`, calls, and what sends), `task` (what they ask),
`exchange` (one output, without a socket), `sending` (how a type travels, and who enforces it),
`dialects` (what servers can be told), `schemas` (in which words), `reading` (answers, byte by byte
through our automaton). Imports ``openai`` when a client is used. Knows no weights, logits or masks.
"""

from __future__ import annotations

from .generator import AsyncRemoteModel, RemoteModel, from_openai

__all__ = ["AsyncRemoteModel", "RemoteModel", "from_openai"]
