"""``/health``, without a key: whether the server lives, and is ready; ``/metrics``."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response

from ..errors import ApiError
from ..openapi import answers
from ..shapes import Health, Readiness
from .text import runner_of

router = APIRouter(tags=["operation"])


@router.get("/health", responses=answers(Health))
@router.get("/health/live", responses=answers(Health))
async def live(request: Request) -> dict[str, Any]:
    """Whether the process answers."""
    return {"status": "ok"}


@router.get("/metrics", response_class=PlainTextResponse, responses=answers())
async def metrics(request: Request) -> Response:
    """All counters and times, in the text format of Prometheus."""
    found = runner_of(request).metrics
    return Response(found.prometheus(), media_type=found.content_type)


@router.get("/health/ready", responses=answers(Readiness))
async def ready(request: Request) -> dict[str, Any]:
    """Whether the models that are to be loaded are, and none has failed to."""
    models = runner_of(request).list_models_with_status()
    bad = [name for name, status in models.items() if status == "failed"]
    if bad or not request.app.state.is_ready:
        said = f"cannot be loaded: {', '.join(bad)}" if bad else "is still being loaded"
        raise ApiError(503, f"A model {said}.", code="not_ready", headers={"Retry-After": "5"})
    return {"status": "ready", "models": models}
