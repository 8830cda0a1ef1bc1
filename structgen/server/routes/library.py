"""Grammars by name, what a small regular expression looks like, and why a token was not allowed.

``GET /v1/grammars``, ``GET /v1/grammars/NAME``, ``POST /v1/grammars/picture`` and ``POST
/v1/grammars/explain``: what the playground shows, and any other page may.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import Field, StrictStr

from structgen.errors import OptionError
from structgen.grammar.cfg import library
from structgen.runner import ChatRequest, ExplainRequest, Trials

from ..bodies import aside, json_object
from ..errors import ApiError, told
from ..exchange import answered, settings_of
from ..openapi import answers, body
from ..shapes import Explanation, GrammarList, GrammarText, Picture, Strictly
from ..wire import Asked, asked, read
from .text import check_model, runner_of, said, tried

router = APIRouter(tags=["operation"])

_LONGEST_REGEX = 2_000


class PictureBody(Strictly):
    """A regular expression."""

    regex: Annotated[StrictStr, Field(min_length=1, max_length=_LONGEST_REGEX)]


@router.get("/v1/grammars", responses=answers(GrammarList))
async def list_grammars() -> dict[str, Any]:
    """The grammars that come with structgen."""
    data = [{"id": name, "description": library.description(name)} for name in library.names()]
    return {"object": "list", "data": data}


@router.get("/v1/grammars/{name}", responses=answers(GrammarText))
async def one_grammar(name: str) -> dict[str, Any]:
    """One of them, as the text to send in ``grammar``, with ``grammar_type: "lark"``."""
    try:
        grammar = library.text(name)
    except OptionError as error:
        raise ApiError(404, str(error), param="name", code="not_found") from None
    return {
        "id": name,
        "description": library.description(name),
        "grammar_type": "lark",
        "grammar": grammar,
    }


@router.post("/v1/grammars/picture", openapi_extra=body(PictureBody), responses=answers(Picture))
async def draw_regex(request: Request) -> dict[str, Any]:
    """The automaton of a regular expression, if it is small: its states and edges."""
    given = await json_object(request)
    asked_for = await aside(request, lambda: read(PictureBody, given))
    trials: Trials = request.app.state.trials
    try:
        return await answered(request, trials.picture(asked_for.regex))
    except Exception as error:
        raise said(error, told) from error


@router.post(
    "/v1/grammars/explain", openapi_extra=body(ExplainRequest), responses=answers(Explanation)
)
async def explain(request: Request) -> dict[str, Any]:
    """Why a token was not allowed at a place of an output, or that it was."""
    settings = settings_of(request)
    given = await json_object(request)

    def asks() -> tuple[Asked[ChatRequest], ExplainRequest]:
        form: dict[str, Any] = {
            name: given[name]
            for name in ("response_format", "grammar", "grammar_type")
            if name in given
        }
        work = asked(ChatRequest, {"messages": "-", **form}, settings)
        return work, ExplainRequest.of(given, {})

    work, about = await aside(request, asks)
    check_model(request, about.model)
    await tried(request, work)
    try:
        reason = await answered(request, runner_of(request).aexplain(about))
    except Exception as error:
        raise said(error, told) from error
    return {"reason": reason}
