"""``POST /v1/embeddings`` and ``POST /v1/rerank``: no text is made."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from structgen.runner import EmbeddingRequest, EmbeddingResponse, RerankRequest, RerankResponse

from ..bodies import aside, json_object
from ..errors import ApiError, told
from ..exchange import settings_of
from ..openapi import answers, body
from ..shapes import DOCUMENTS, INPUT
from ..wire import check_many
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
    texts = given.get("input")
    if not isinstance(texts, list) or not all(isinstance(one, int) for one in texts):
        check_many(texts, "input", settings_of(request).max_inputs)  # numbers are one text
    asked = await aside(request, lambda: EmbeddingRequest.of(given, {}))
    check_model(request, asked.model)
    return await whole(request, runner_of(request).aembed(asked), _told("input"), is_large=True)


@router.post(
    "/v1/rerank",
    openapi_extra=body(RerankRequest, more={"documents": DOCUMENTS}),
    responses=answers(RerankResponse),
)
@router.post("/rerank", include_in_schema=False)
async def rerank(request: Request) -> Response:
    """Order documents by how well they answer a query."""
    given = await json_object(request)
    check_many(given.get("documents"), "documents", settings_of(request).max_inputs)
    asked = await aside(request, lambda: RerankRequest.of(given, {}))
    check_model(request, asked.model)
    return await whole(request, runner_of(request).arerank(asked), _told("documents"))


def _told(name: str) -> Any:
    def said(error: BaseException) -> ApiError:
        api = told(error)
        if api.param == "messages":
            api.param = name
        return api

    return said
