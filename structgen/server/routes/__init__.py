"""The endpoints, a module for each kind: read a body, ask the Runner, write its answer."""

from __future__ import annotations

from fastapi import APIRouter

from . import chat, completions, health, models

__all__ = ["ROUTERS"]

ROUTERS: tuple[APIRouter, ...] = (chat.router, completions.router, models.router, health.router)
"""All of them."""
