"""``POST /v1/grammars/check``: whether a form can be enforced, and all that is wrong with it."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Request

from structgen.runner import Trials

from ..bodies import aside, json_object
from ..exchange import answered, settings_of
from ..openapi import answers, body
from ..shapes import FormProblems, Strictly
from ..wire import check_sizes, read

router = APIRouter(tags=["operation"])


class CheckBody(Strictly):
    """A form, as requests for text have it."""

    grammar: Any
    grammar_type: Literal["regex", "json_schema", "lark", "gbnf", "choice"]


@router.post("/v1/grammars/check", openapi_extra=body(CheckBody), responses=answers(FormProblems))
async def check_grammar(request: Request) -> dict[str, Any]:
    """Compile a form and say what is wrong with it. What is wrong is an answer, and no error."""
    given = await json_object(request)
    asked = await aside(request, lambda: read(CheckBody, given))
    await aside(request, lambda: check_sizes(given, settings_of(request)))
    trials: Trials = request.app.state.trials
    problems = await answered(request, trials.problems(asked.grammar_type, asked.grammar))
    is_valid = not any(problem["is_error"] for problem in problems)
    return {"valid": is_valid, "problems": problems}
