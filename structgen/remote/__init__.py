"""Models behind servers that speak OpenAI's API: typed, validated here, enforced there if possible.

In reading order: `generator` (`from_openai`, calls, and the clients), `task` (what a call asks),
`exchange` (one output, without a socket), `sending` (how a type is sent, and who enforces it),
`dialects` (what each kind of server supports), `schemas` (schemas in a server's own form),
`reading` (reads answers byte by byte through our automaton). Imports ``openai`` when a client is
used. Knows no weights, logits or masks.
"""

from __future__ import annotations

from .generator import AsyncRemoteModel, RemoteModel, bound_cookies, from_openai

__all__ = ["AsyncRemoteModel", "RemoteModel", "bound_cookies", "from_openai"]
