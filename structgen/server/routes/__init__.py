"""The endpoints: read a body, ask the Runner, write its answer.

In reading order: `text` (chats and completions, and what all endpoints share), `responses` (the
Responses API), `decisions` (and vectors), `sounds` (transcripts), `batches` (and files), `models`
(and tokens, health), `library` (grammars and the playground).
"""

from __future__ import annotations

from fastapi import APIRouter

from . import batches, decisions, library, models, responses, sounds, text

__all__ = ["ROUTERS"]

ROUTERS: tuple[APIRouter, ...] = (
    text.router,
    responses.router,
    decisions.router,
    decisions.vectors_router,
    sounds.router,
    batches.router,
    models.tokens_router,
    models.router,
    library.router,
    models.health_router,
    library.playground_router,
)
"""The routers of all endpoints."""
