"""The endpoints, a module for each kind: read a body, ask the Runner, write its answer."""

from __future__ import annotations

from fastapi import APIRouter

from . import (
    chat,
    completions,
    decisions,
    grammars,
    health,
    library,
    models,
    playground,
    responses,
    tokens,
    vectors,
)

__all__ = ["ROUTERS"]

ROUTERS: tuple[APIRouter, ...] = (
    chat.router,
    completions.router,
    responses.router,
    decisions.router,
    vectors.router,
    tokens.router,
    models.router,
    grammars.router,
    library.router,
    health.router,
    playground.router,
)
"""All of them."""
