"""Models behind servers with OpenAI's API: outputs are validated here, and enforced there if
possible.

In reading order: `generator` (`from_openai`, calls and clients), `task` (what a call asks),
`exchange` (one output, without a socket), `sending` (how a type is sent, and who enforces it),
`dialects` (what each kind of server supports), `schemas` (schemas in a server's form), `reading`
(answers, byte by byte through our automaton). ``openai`` is imported when a client is used. Knows
no weights, logits or masks.
"""

from __future__ import annotations

from .generator import AsyncRemoteModel, RemoteModel, bound_cookies, from_openai

__all__ = ["AsyncRemoteModel", "RemoteModel", "bound_cookies", "from_openai"]
