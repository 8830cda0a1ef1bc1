"""``/health``: whether the server lives, and whether it is ready. Without a key, and at no cost."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from ..errors import ApiError
from .text import runner_of

router = APIRouter(tags=["operation"])


@router.get("/health")
@router.get("/health/live")
async def live(request: Request) -> dict[str, Any]:
    """Whether the process answers."""
    return {"status": "ok"}


@router.get("/health/ready")
async def ready(request: Request) -> dict[str, Any]:
    """Whether the models that are to be loaded are, and none has failed to."""
    models = runner_of(request).list_models_with_status()
    bad = [name for name, status in models.items() if status == "failed"]
    if bad or not request.app.state.is_ready:
        said = f"cannot be loaded: {', '.join(bad)}" if bad else "is still being loaded"
        raise ApiError(503, f"A model {said}.", code="not_ready", headers={"Retry-After": "5"})
    return {"status": "ready", "models": models}
