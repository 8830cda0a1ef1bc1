"""``POST /v1/embeddings`` and ``POST /v1/rerank``: no text is made."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from structgen.runner import EmbeddingRequest, EmbeddingResponse, RerankRequest, RerankResponse

from ..bodies import json_object
from ..errors import ApiError, told
from ..exchange import settings_of
from ..openapi import answers, body
from ..shapes import DOCUMENTS, INPUT
from ..wire import refused
from .text import check_model, runner_of, whole

router = APIRouter(tags=["vectors"])


@router.post(
    "/v1/embeddings",
    openapi_extra=body(EmbeddingRequest, more={"input": INPUT}),
    responses=answers(EmbeddingResponse),
)
async def embeddings(request: Request) -> Response:
    """Make vectors of texts, or of token ids."""
    given = await json_object(request)
    _check_many(given.get("input"), "input", settings_of(request).max_inputs)
    asked = EmbeddingRequest.of(given, {})
    check_model(request, asked.model)
    return await whole(request, runner_of(request).aembed(asked), _told("input"))


@router.post(
    "/v1/rerank",
    openapi_extra=body(RerankRequest, more={"documents": DOCUMENTS}),
    responses=answers(RerankResponse),
)
@router.post("/rerank", include_in_schema=False)
async def rerank(request: Request) -> Response:
    """Order documents by how well they answer a query."""
    given = await json_object(request)
    _check_many(given.get("documents"), "documents", settings_of(request).max_inputs)
    asked = RerankRequest.of(given, {})
    check_model(request, asked.model)
    return await whole(request, runner_of(request).arerank(asked), _told("documents"))


def _check_many(given: Any, name: str, most: int) -> None:
    """Refuse more texts than one request may have; a list of numbers is one text."""
    if not isinstance(given, list) or all(isinstance(one, int) for one in given):
        return
    if len(given) > most:
        raise refused(
            f"{name} has {len(given):,} texts, and {most:,} is the most here (max_inputs). Send "
            "several requests.",
            name,
            "invalid_value",
        )


def _told(name: str) -> Any:
    def said(error: BaseException) -> ApiError:
        api = told(error)
        if api.param == "messages":
            api.param = name
        return api

    return said
