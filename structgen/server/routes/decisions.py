"""Endpoints that make no text: typed questions, embeddings and rankings.

``POST /v1/decisions`` has OpenAI's form, ``POST /v1/systemone`` System One's. OpenAI's form of
questions and answers is here; `structgen.decisions` makes the answers and has System One's form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from structgen.decisions import Choice, Score, answer_of_system_one, question_of_system_one
from structgen.errors import OptionError
from structgen.runner import (
    DecisionRequest,
    DecisionResponse,
    EmbeddingRequest,
    EmbeddingResponse,
    RerankRequest,
    RerankResponse,
    Usage,
)

from ..errors import ApiError, api_error
from ..exchange import answered, settings_of, written
from ..items import items_of, messages_in, text_of, usage_of
from ..openapi import answers, body
from ..shapes import DOCUMENTS, INPUT, DecisionAnswer, DecisionsBody, SystemOneAnswer, SystemOneBody
from ..wire import aside, check_many, json_object, read, refused
from .text import note, runner_of, whole

router = APIRouter(tags=["decisions"])

_MOST_OPTIONS = 10_000  # of all questions: 100,000 would delay others


@router.post("/v1/decisions", openapi_extra=body(DecisionsBody), responses=answers(DecisionAnswer))
async def decisions(request: Request) -> Response:
    """Answer questions about an input, with the probability of each possible answer."""
    given = await json_object(request)
    for name in ("questions", "input", "abstain_below"):
        check_many(given.get(name), name, settings_of(request).max_inputs)

    def asks() -> DecisionRequest:
        read(DecisionsBody, given)
        made = [_question(one, at) for at, one in enumerate(given["questions"])]
        return _request(given, _state(given["input"]), dict(zip(_names(given), made, strict=True)))

    made = await _decided(request, await aside(request, asks), {"state": "input"})
    found = []
    for question, name in zip(given["questions"], _names(given), strict=True):
        answer = made.answers[name]
        known = {"type", "probability", "choice", "score", "probabilities", "informative"}
        if answer["type"] != "predicate":
            known |= {"confidence"}
        one = {field: value for field, value in answer.items() if field in known}
        if one.get("choice", "") is None:  # no answer was likely enough
            one = {"type": "refusal"}
        found.append({"name": question.get("name"), **one})
    answer = {
        "object": "decision",
        "model": made.model,
        "answers": found,
        "usage": usage_of(Usage(**dict(made.usage))),
    }
    return await written(request, answer)


@router.post("/v1/systemone", openapi_extra=body(SystemOneBody), responses=answers(SystemOneAnswer))
async def systemone(request: Request) -> Response:
    """Answer named questions about a state."""
    given = await json_object(request)
    for name in ("questions", "abstain_below"):
        check_many(given.get(name), name, settings_of(request).max_inputs)

    def asks() -> DecisionRequest:
        read(SystemOneBody, given)
        if given["state"] is None:
            raise refused("state is null.", "state", "missing_field")
        named = {
            name: _named_question(one, f"questions.{name}")
            for name, one in given["questions"].items()
        }
        return _request(given, given["state"], named)

    made = await _decided(request, await aside(request, asks), {})
    questions = given["questions"]
    found = {
        name: answer_of_system_one(answer, questions[name].get("criteria"))
        for name, answer in made.answers.items()
    }
    usage = {"input_tokens": made.usage.prompt_tokens, "output_tokens": 0}
    return await written(request, {"model": made.model, "answers": found, "usage": usage})


def _request(given: Mapping[str, Any], state: Any, questions: Mapping[str, Any]) -> DecisionRequest:
    n = sum(len(question.labels) for question in questions.values())
    if n > _MOST_OPTIONS:
        raise refused(
            f"The questions have {n:,} options in total; the limit for one request is "
            f"{_MOST_OPTIONS:,}. Send several requests.",
            "questions",
            "invalid_value",
        )
    fields = {name: given.get(name) for name in DecisionRequest.model_fields}
    return DecisionRequest.of({**fields, "state": state, "questions": questions}, {})


async def _decided(
    request: Request, asked: DecisionRequest, names: Mapping[str, str]
) -> DecisionResponse:
    def api(error: BaseException) -> ApiError:
        made = api_error(error)
        made.param = names.get(made.param or "", made.param)
        return made

    made = await answered(request, runner_of(request).adecide(asked), api)
    note(request, made)
    return made


def _state(given: Any) -> Any:
    """Return the input in OpenAI's form: a text or messages."""
    if isinstance(given, str):
        return given
    found = []
    for message in messages_in(items_of(given)):
        content = message["content"] or ""
        for call in message.get("tool_calls", ()):
            function = call["function"]
            content += f"\n{function['name']}({function['arguments']})"
        found.append({"role": message["role"], "content": content.strip("\n")})
    return found


def _names(given: Any) -> list[str]:
    """Return names for questions in OpenAI's form, for errors and ``abstain_below``."""
    names = [one.get("name") for one in given["questions"]]
    if None in names or len(set(names)) < len(names):
        return [f"questions[{at}]" for at in range(len(names))]
    return names


def _question(given: Any, index: int) -> Any:
    """Return a question from OpenAI's form."""
    at = f"questions[{index}]"
    instructions = given["instructions"]
    if isinstance(instructions, list):
        instructions = "".join(text_of(part) for part in instructions)
    if given["type"] == "predicate":
        return _made(at, question_of_system_one, "noul", instructions, given.get("criteria"))
    labels, key, kind = (
        ("choices", "value", Choice) if given["type"] == "choice" else ("levels", "label", Score)
    )
    options: dict[Any, Any] = {}
    for number, one in enumerate(given[labels]):
        if one[key] in options:
            place = f"{at}.{labels}[{number}]"
            raise refused(f"{place}: {one[key]!r} appears twice.", place, "invalid_value")
        options[one[key]] = one.get("description")
    return _made(at, kind, instructions, options)


def _named_question(given: Any, at: str) -> Any:
    """Return a question from System One's form."""
    instructions, criteria = given["instructions"], given.get("criteria")
    if instructions in (None, ""):
        place = f"{at}.instructions"
        raise refused(f"{place} is missing.", place, "missing_field")
    return _made(at, question_of_system_one, given["type"], instructions, criteria)


def _made(at: str, make: Any, *arguments: Any) -> Any:
    try:
        return make(*arguments)
    except OptionError as error:
        raise refused(f"{at}: {error}", at, "invalid_value") from None


vectors_router = APIRouter(tags=["vectors"])


@vectors_router.post(
    "/v1/embeddings",
    openapi_extra=body(EmbeddingRequest, more={"input": INPUT}),
    responses=answers(EmbeddingResponse),
)
async def embeddings(request: Request) -> Response:
    """Embed texts, or lists of token ids."""
    given = await json_object(request)
    texts = given.get("input")
    if not isinstance(texts, list) or not all(isinstance(one, int) for one in texts):
        check_many(texts, "input", settings_of(request).max_inputs)  # a list of numbers is one text
    asked = await aside(request, lambda: EmbeddingRequest.of(given, {}))
    return await whole(request, runner_of(request).aembed(asked), api_error, is_large=True)


@vectors_router.post(
    "/v1/rerank",
    openapi_extra=body(RerankRequest, more={"documents": DOCUMENTS}),
    responses=answers(RerankResponse),
)
@vectors_router.post("/rerank", include_in_schema=False)
async def rerank(request: Request) -> Response:
    """Rank documents by how well they answer a query."""
    given = await json_object(request)
    check_many(given.get("documents"), "documents", settings_of(request).max_inputs)
    asked = await aside(request, lambda: RerankRequest.of(given, {}))
    return await whole(request, runner_of(request).arerank(asked), api_error)
