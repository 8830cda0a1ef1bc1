"""The grammar library, checks and pictures of forms, and the playground that shows them.

The playground is one page at ``/`` and its files. It needs no other host, has no key of its own,
and the browser lets it send requests only to this server.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import Field, StrictStr

from structgen.errors import OptionError
from structgen.grammar.cfg import library
from structgen.runner import ChatRequest, ExplainRequest, GrammarType, Strictly, Trials

from ..errors import ApiError
from ..exchange import answered, settings_of
from ..openapi import answers, body
from ..shapes import Explanation, FormProblems, GrammarList, GrammarText, Picture
from ..wire import Asked, aside, asked, check_sizes, json_object, read
from .text import runner_of, tried

router = APIRouter(tags=["operation"])

_LONGEST_REGEX = 2_000


class PictureBody(Strictly):
    """A regular expression."""

    regex: Annotated[StrictStr, Field(min_length=1, max_length=_LONGEST_REGEX)]


@router.get("/v1/grammars", responses=answers(GrammarList))
async def list_grammars() -> dict[str, Any]:
    """Return the grammars that come with structgen."""
    data = [{"id": name, "description": library.description(name)} for name in library.names()]
    return {"object": "list", "data": data}


@router.get("/v1/grammars/{name}", responses=answers(GrammarText))
async def one_grammar(name: str) -> dict[str, Any]:
    """Return a grammar of the library as text, to be sent as ``grammar`` with ``grammar_type:
    "lark"``."""
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
    """Return the automaton of a regular expression, if it is small: its states and edges."""
    given = await json_object(request)
    asked_for = await aside(request, lambda: read(PictureBody, given))
    trials: Trials = request.app.state.trials
    return await answered(request, trials.picture(asked_for.regex))


@router.post(
    "/v1/grammars/explain", openapi_extra=body(ExplainRequest), responses=answers(Explanation)
)
async def explain(request: Request) -> dict[str, Any]:
    """Explain why a token was not allowed at a place of an output, or say that it was."""
    settings = settings_of(request)
    given = await json_object(request)

    def asks() -> tuple[Asked[ChatRequest], ExplainRequest]:
        names = ("response_format", "grammar", "grammar_type")
        form = {name: given[name] for name in names if name in given}
        work = asked(ChatRequest, {"messages": "-", **form}, settings)
        return work, ExplainRequest.of(given, {})

    work, about = await aside(request, asks)
    await tried(request, work)
    return {"reason": await answered(request, runner_of(request).aexplain(about))}


class CheckBody(Strictly):
    """A form, as in requests for text."""

    grammar: Any
    grammar_type: GrammarType


@router.post("/v1/grammars/check", openapi_extra=body(CheckBody), responses=answers(FormProblems))
async def check_grammar(request: Request) -> dict[str, Any]:
    """Compile a form and return its problems. A problem is an answer, not an error."""
    given = await json_object(request)
    asked = await aside(request, lambda: read(CheckBody, given))
    await aside(request, lambda: check_sizes(given, settings_of(request)))
    trials: Trials = request.app.state.trials
    problems = await answered(request, trials.problems(asked.grammar_type, asked.grammar))
    is_valid = not any(problem["is_error"] for problem in problems)
    return {"valid": is_valid, "problems": problems}


playground_router = APIRouter(include_in_schema=False)

FOLDER = Path(__file__).parents[1] / "playground"
"""The folder of the files, which are data of the package."""

_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'"
    ),
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


@cache
def _files() -> dict[str, tuple[bytes, str]]:
    """Return bytes and kind of the files by name; names are looked up, never opened as paths."""
    return {
        path.name: (path.read_bytes(), _KINDS[path.suffix])
        for path in sorted(FOLDER.iterdir())
        if path.suffix in _KINDS
    }


@playground_router.get("/")
@playground_router.get("/playground")
async def page() -> Response:
    """Return the page."""
    return await file("index.html")


@playground_router.get("/favicon.ico")
async def icon() -> Response:
    """Return the page's icon at the path that browsers ask for."""
    return await file("icon.svg")


@playground_router.get("/playground/{name}")
async def file(name: str) -> Response:
    """Return a file of the page."""
    found = _files().get(name)
    if found is None:
        raise ApiError(404, f"There is no GET /playground/{name}. See /docs.", code="not_found")
    return Response(found[0], media_type=found[1], headers=_HEADERS)
