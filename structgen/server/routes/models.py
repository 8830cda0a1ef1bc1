"""``/v1/models``: which there are, and what state each is in."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from structgen.models import catalogue
from structgen.runner import Runner

from ..errors import told
from ..exchange import answered
from ..openapi import answers
from ..shapes import ModelEntry, ModelList, ModelState
from .text import check_model, runner_of, said

router = APIRouter(tags=["models"])


def described(runner: Runner, name: str, created: int) -> dict[str, Any]:
    """A model as OpenAI's clients know it, and what more there is to say."""
    info = runner.get_model_info(name)
    return {
        "id": info["id"],
        "object": "model",
        "created": created,
        "owned_by": "structgen",
        "root": info["source"] if info["source"] in catalogue.ENTRIES else info["id"],
        "status": info["status"],
        "aliases": info["aliases"],
        "is_default": info["is_default"],
    }


@router.get("/v1/models", responses=answers(ModelList))
async def list_models(request: Request) -> dict[str, Any]:
    """All models."""
    runner = runner_of(request)
    created = request.app.state.created
    data = [described(runner, id_, created) for id_ in runner.list_models()]
    return {"object": "list", "data": data}


@router.get("/v1/models/{model:path}/status", responses=answers(ModelState))
async def model_status(model: str, request: Request) -> dict[str, Any]:
    """What is known of a model: whether it is loaded, what it takes, why loading failed."""
    check_model(request, model)
    info = runner_of(request).get_model_info(model)
    info.pop("source")  # a path of this machine, maybe
    return info


@router.post("/v1/models/{model:path}/load", responses=answers(ModelState))
async def load_model(model: str, request: Request) -> dict[str, Any]:
    """Load a model, and answer when it is there."""
    check_model(request, model)
    try:
        await answered(request, runner_of(request).aload(model))
    except Exception as error:
        raise said(error, told) from error
    return await model_status(model, request)


@router.post("/v1/models/{model:path}/unload", responses=answers(ModelState))
async def unload_model(model: str, request: Request) -> dict[str, Any]:
    """Unload a model when its requests have ended. The next request loads it again."""
    check_model(request, model)
    await answered(request, runner_of(request).aunload(model))
    return await model_status(model, request)


@router.get("/v1/models/{model:path}", responses=answers(ModelEntry))
async def one_model(model: str, request: Request) -> dict[str, Any]:
    """One model, by id or alias."""
    check_model(request, model)
    return described(runner_of(request), model, request.app.state.created)
