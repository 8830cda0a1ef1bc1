"""Models behind servers that speak OpenAI's API: typed, validated here, enforced there if may be.

In reading order: `model` (`from_openai`), `generator` (calls), `task` (what they ask), `exchange`
(one output, without a socket), `drivers` (what sends), `requests` (options and prompts on their
way), `sending` (how a type travels), `dialects` (what servers can be told), `schemas` and
`patterns` (the words), `replies` (what a server said), `reading` (answers, byte by byte through our
automaton) and `enforcement`.
Imports ``openai`` when a client is used. Knows no weights, logits or masks.
"""

from __future__ import annotations

from .model import AsyncRemoteModel, RemoteModel, from_openai

__all__ = ["AsyncRemoteModel", "RemoteModel", "from_openai"]
