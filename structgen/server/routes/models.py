"""The endpoints for models and tokens, ``/health`` and ``/metrics``."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response
from pydantic import StrictBool, StrictInt, StrictStr, model_validator

from structgen.models import catalogue
from structgen.runner import ChatRequest, Many, Message, Runner, Strictly

from ..errors import ApiError, api_error, public
from ..exchange import answered, sent, settings_of, written
from ..openapi import answers, body
from ..shapes import (
    DetokenizeAnswer,
    Health,
    ModelEntry,
    ModelList,
    ModelState,
    Readiness,
    TokenizeAnswer,
)
from ..wire import aside, asked, json_object, read, refused
from .text import runner_of

router = APIRouter(tags=["models"])


def described(runner: Runner, name: str, created: int) -> dict[str, Any]:
    """Return a model in OpenAI's form, with further fields."""
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
    """Return all models."""
    runner = runner_of(request)
    created = request.app.state.created
    data = [described(runner, id_, created) for id_ in runner.list_models()]
    return {"object": "list", "data": data}


@router.get("/v1/models/{model:path}/status", responses=answers(ModelState))
async def model_status(model: str, request: Request) -> dict[str, Any]:
    """Return the state of a model: whether it is loaded, its size, why loading failed."""
    info = runner_of(request).get_model_info(model)
    info.pop("source")  # may have a path of this machine
    info["error"] = info["error"] and public(info["error"])
    return info


@router.post("/v1/models/{model:path}/load", responses=answers(ModelState))
async def load_model(model: str, request: Request) -> dict[str, Any]:
    """Load a model, and answer when it is loaded."""
    await answered(request, runner_of(request).aload(model))
    return await model_status(model, request)


@router.post("/v1/models/{model:path}/unload", responses=answers(ModelState))
async def unload_model(model: str, request: Request) -> dict[str, Any]:
    """Unload a model when its running requests have ended. The next request loads it again."""
    settings = settings_of(request)
    n_keys = request.app.state.n_keys
    if (n_keys > 1 or not (n_keys or settings.is_local)) and not settings.allow_unload:
        whom = f"{n_keys} API keys" if n_keys else "no API key and listens on a network address"
        raise ApiError(
            403,
            f"This server has {whom}, so unloading a model would affect other users. Start the "
            "server with allow_unload=true to let all of them unload models.",
            code="unload_not_allowed",
        )
    await answered(request, runner_of(request).aunload(model))
    return await model_status(model, request)


@router.get("/v1/models/{model:path}", responses=answers(ModelEntry))
async def one_model(model: str, request: Request) -> dict[str, Any]:
    """Return one model, by id or alias."""
    return described(runner_of(request), model, request.app.state.created)


tokens_router = APIRouter(tags=["tokens"])

_SLICE = 10_000


class TokenizeBody(Strictly):
    """A text or the messages of a chat to tokenize."""

    model: StrictStr | None = None
    prompt: StrictStr | None = None
    text: StrictStr | None = None
    messages: Many[Message] | None = None
    add_special_tokens: StrictBool = True

    @model_validator(mode="after")
    def _one(self) -> TokenizeBody:
        given = [one for one in (self.prompt, self.text, self.messages) if one is not None]
        if len(given) != 1:
            raise ValueError("pass one of prompt, text and messages")
        return self


class DetokenizeBody(Strictly):
    """Token ids to turn into text."""

    model: StrictStr | None = None
    tokens: Many[StrictInt]
    skip_special_tokens: StrictBool = False


@tokens_router.post(
    "/v1/tokenize", openapi_extra=body(TokenizeBody), responses=answers(TokenizeAnswer)
)
@tokens_router.post("/tokenize", include_in_schema=False)
async def tokenize(request: Request) -> Response:
    """Return the token ids of a text or chat, and the model's context length."""
    given = await json_object(request)

    def asks() -> tuple[TokenizeBody, Any]:
        messages: Any = given.get("messages")
        if isinstance(messages, list):
            work = asked(ChatRequest, {"messages": messages}, settings_of(request))
            messages = work.request.messages
            if any(message.has_media for message in messages):
                why = "Tokens of images and audio cannot be counted. Send text only."
                raise refused(why, "messages")
        body = read(TokenizeBody, {**given, "messages": messages})
        if body.messages is not None:
            return body, [message.for_template() for message in body.messages]
        return body, body.prompt if body.text is None else body.text

    body, text = await aside(request, asks)
    runner = runner_of(request)
    tokens = await answered(
        request,
        runner.atokenize_text(text, add_special_tokens=body.add_special_tokens, model=body.model),
    )
    longest = await runner.amax_sequence_length(body.model)
    ids = await aside(request, lambda: _joined(tokens), is_large=len(tokens) > _SLICE)
    length = "null" if longest is None else longest
    answer = f'{{"count":{len(tokens)},"max_model_len":{length},"tokens":[{ids}]}}'
    return sent(request, answer)


def _joined(tokens: list[int]) -> str:
    """Write many numbers in slices, between which other threads run."""
    slices = (tokens[at : at + _SLICE] for at in range(0, len(tokens), _SLICE))
    return ",".join(",".join(map(str, part)) for part in slices)


@tokens_router.post(
    "/v1/detokenize", openapi_extra=body(DetokenizeBody), responses=answers(DetokenizeAnswer)
)
@tokens_router.post("/detokenize", include_in_schema=False)
async def detokenize(request: Request) -> Response:
    """Return the text of token ids."""
    given = await json_object(request)
    asked = await aside(request, lambda: read(DetokenizeBody, given))

    def of_tokens(error: BaseException) -> ApiError:
        api = api_error(error)
        return refused(str(error), "tokens", "invalid_value") if api.status == 400 else api

    work = runner_of(request).adetokenize_text(
        asked.tokens, skip_special_tokens=asked.skip_special_tokens, model=asked.model
    )
    text = await answered(request, work, of_tokens)
    request.state.taken(len(text))  # it may wait for its turn
    return await written(request, {"prompt": text, "text": text})


health_router = APIRouter(tags=["operation"])


@health_router.get("/health", responses=answers(Health))
@health_router.get("/health/live", responses=answers(Health))
async def live(request: Request) -> dict[str, Any]:
    """Say that the process runs."""
    return {"status": "ok"}


@health_router.get("/metrics", response_class=PlainTextResponse, responses=answers())
async def metrics(request: Request) -> Response:
    """Return all counters and times in the text format of Prometheus."""
    found = runner_of(request).metrics
    return Response(found.prometheus(), media_type=found.content_type)


@health_router.get("/health/ready", responses=answers(Readiness))
async def ready(request: Request) -> dict[str, Any]:
    """Return whether all models that load at the start are loaded and none has failed."""
    models = runner_of(request).list_models_with_status()
    bad = [name for name, status in models.items() if status == "failed"]
    if bad or not request.app.state.is_ready:
        problem = f"cannot be loaded: {', '.join(bad)}" if bad else "is still loading"
        raise ApiError(503, f"A model {problem}.", code="not_ready", headers={"Retry-After": "5"})
    return {"status": "ready", "models": models}
