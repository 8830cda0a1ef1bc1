"""Typed questions: ``POST /v1/decisions`` as OpenAI has it, ``POST /v1/systemone`` as others do.

Owns the two forms of questions and answers on the wire. What the answers are is
`structgen.decisions`' business.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request

from structgen.decisions import Choice, Predicate, Score
from structgen.errors import OptionError
from structgen.runner import DecisionRequest, DecisionResponse

from ..bodies import json_object
from ..errors import ApiError, told
from ..exchange import answered, settings_of
from ..input_items import messages_of
from ..openapi import answers
from ..wire import refused
from .text import check_model, note, runner_of, said

router = APIRouter(tags=["decisions"])

_OURS = {"abstain_below", "debias", "orders", "tolerance", "adapter", "timeout"}
"""Fields of structgen's own, which both endpoints take."""

_HARMLESS = {"prompt_cache_key", "prompt_cache_options", "safety_identifier", "user", "metadata"}

_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}


@router.post("/v1/decisions", openapi_extra=_BODY, responses=answers())
async def decisions(request: Request) -> dict[str, Any]:
    """Answer questions about an input: each with the probability of all that may be answered."""
    body = await json_object(request)
    _only(body, {"model", "input", "questions", *_OURS, *_HARMLESS})
    given = _questions(request, body, list)
    asked = {f"q{index}": _question(one, index) for index, one in enumerate(given)}
    made = await _decided(request, body, _state(body.get("input")), asked, {"state": "input"})
    found = []
    for index, question in enumerate(given):
        answer = made.answers[f"q{index}"]
        known = {"type", "probability", "choice", "score", "confidence", "probabilities"}
        if answer["type"] == "predicate":
            known -= {"confidence"}
        one = {name: value for name, value in answer.items() if name in known}
        if one.get("choice", "") is None:  # none was likely enough
            one = {"type": "refusal"}
        found.append({"name": question.get("name"), **one})
    tokens = made.usage.prompt_tokens
    return {
        "object": "decision",
        "model": made.model,
        "answers": found,
        "usage": {
            "input_tokens": tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": tokens,
        },
    }


@router.post("/v1/systemone", openapi_extra=_BODY, responses=answers())
async def systemone(request: Request) -> dict[str, Any]:
    """Answer named questions about a state."""
    body = await json_object(request)
    _only(body, {"model", "state", "questions", *_OURS, *_HARMLESS})
    if body.get("state") is None:
        raise refused("state is missing.", "state", "missing_field")
    given = _questions(request, body, dict)
    asked = {name: _named_question(one, f"questions.{name}") for name, one in given.items()}
    made = await _decided(request, body, body["state"], asked, {})
    found: dict[str, Any] = {}
    for name, answer in made.answers.items():
        if answer["type"] == "predicate":
            found[name] = {"type": "noul", "noul": answer["probability"]}
        elif answer["type"] == "choice":
            pairs = {one["value"]: one["probability"] for one in answer["probabilities"]}
            found[name] = {
                "type": "choice",
                "choice": answer["choice"],
                "probabilities": {option: pairs[option] for option in given[name]["criteria"]},
                "confidence": answer["confidence"],
            }
        else:
            levels = answer["probabilities"]
            found[name] = {
                "type": "score",
                "score": answer["score"],
                "legend": {str(one["value"]): one["label"] for one in levels},
                "probabilities": {str(one["value"]): one["probability"] for one in levels},
                "confidence": answer["confidence"],
            }
    usage = {"input_tokens": made.usage.prompt_tokens, "output_tokens": 0}
    return {"model": made.model, "answers": found, "usage": usage}


async def _decided(
    request: Request,
    body: Mapping[str, Any],
    state: Any,
    questions: Mapping[str, Any],
    names: Mapping[str, str],
) -> DecisionResponse:
    fields = {name: body[name] for name in _OURS if body.get(name) is not None}

    def api(error: BaseException) -> ApiError:
        made = told(error)
        made.param = names.get(made.param or "", made.param)
        return made

    asked = DecisionRequest.of(
        {"model": body.get("model"), "state": state, "questions": questions, **fields}, {}
    )
    check_model(request, asked.model)
    try:
        made = await answered(request, runner_of(request).adecide(asked))
    except Exception as error:
        raise said(error, api) from error
    note(request, made)
    return made


def _only(body: Mapping[str, Any], known: set[str]) -> None:
    for name in body:
        if name not in known:
            raise refused(f"{name} is not supported. Known are: {', '.join(sorted(known))}.", name)


def _questions(request: Request, body: Mapping[str, Any], kind: type[Any]) -> Any:
    given = body.get("questions")
    if not isinstance(given, kind) or not given:
        form = "a list of questions" if kind is list else "an object of names and questions"
        raise refused(f"questions is {form}, of at least one.", "questions", "invalid_value")
    most = settings_of(request).max_inputs
    if len(given) > most:
        raise refused(
            f"questions: {len(given):,} are more than {most:,}, the most here (max_inputs).",
            "questions",
            "invalid_value",
        )
    return given


def _state(given: Any) -> Any:
    """The input of OpenAI's form: a text, or what was said."""
    if isinstance(given, str):
        return given
    if given is None:
        raise refused("input is missing.", "input", "missing_field")
    found = []
    for message in messages_of(given):
        content = message["content"] or ""
        for call in message.get("tool_calls", ()):
            function = call["function"]
            content += f"\n{function['name']}({function['arguments']})"
        found.append({"role": message["role"], "content": content.strip("\n")})
    return found


def _question(given: Any, index: int) -> Any:
    """A question of OpenAI's form."""
    at = f"questions[{index}]"
    kind = _kind(given, at, ("predicate", "choice", "score"))
    labels = {"choice": "choices", "score": "levels"}.get(kind)
    _known(given, {"type", "name", "instructions", labels}, at)
    instructions = _instructions(given, at)
    if labels is None:
        return _made(at, Predicate, instructions)
    key = "value" if kind == "choice" else "label"
    options: dict[Any, Any] = {}
    listed = given.get(labels)
    if not isinstance(listed, list):
        raise refused(f"{at}.{labels} is a list.", f"{at}.{labels}", "invalid_value")
    for number, one in enumerate(listed):
        place = f"{at}.{labels}[{number}]"
        value = one.get(key) if isinstance(one, dict) else None
        if not isinstance(value, (str, bool) if kind == "choice" else str):
            raise refused(f"{place}.{key} is missing.", f"{place}.{key}", "missing_field")
        _known(one, {key, "description"}, place)
        if value in options:
            raise refused(f"{place}: {value!r} is there twice.", place, "invalid_value")
        options[value] = one.get("description")
    return _made(at, Choice if kind == "choice" else Score, instructions, options)


def _named_question(given: Any, at: str) -> Any:
    """A question of System One's form."""
    kind = _kind(given, at, ("noul", "choice", "score"))
    _known(given, {"type", "instructions", "criteria"}, at)
    instructions = _instructions(given, at)
    criteria = given.get("criteria")
    place = f"{at}.criteria"
    if kind == "noul":
        if criteria is None:
            return _made(at, Predicate, instructions)
        if not isinstance(criteria, dict) or set(criteria) - {"true", "false"}:
            raise refused(f"{place} has true and false.", place, "invalid_value")
        words = {"true": "Yes", "false": "No"}
        told = "".join(f"\n{words[k]}: {_shown(v)}" for k, v in criteria.items() if v is not None)
        return _made(at, Predicate, instructions + told)
    if kind == "choice":
        if not isinstance(criteria, dict):
            raise refused(f"{place} has options and descriptions.", place, "invalid_value")
        options = {k: None if v is None else _shown(v) for k, v in criteria.items()}
        return _made(at, Choice, instructions, options)
    if not isinstance(criteria, list):
        raise refused(f"{place} is a list of levels.", place, "invalid_value")
    return _made(at, Score, instructions, [_shown(one) for one in criteria])


def _kind(given: Any, at: str, kinds: tuple[str, ...]) -> str:
    kind = given.get("type") if isinstance(given, dict) else None
    if kind not in kinds:
        raise refused(
            f"{at}.type: {kind!r} is not supported. It is {', '.join(kinds)}.", f"{at}.type"
        )
    return str(kind)


def _known(given: Mapping[str, Any], known: set[str | None], at: str) -> None:
    for name, value in given.items():
        if name not in known and value is not None:
            raise refused(f"{at}.{name} is not supported.", f"{at}.{name}")


def _instructions(given: Mapping[str, Any], at: str) -> str:
    value = given.get("instructions")
    if isinstance(value, list) and all(
        isinstance(one, dict) and one.get("type") == "input_text" for one in value
    ):
        value = "".join(str(one.get("text", "")) for one in value)
    if value is None or value == "":
        raise refused(f"{at}.instructions is missing.", f"{at}.instructions", "missing_field")
    return _shown(value)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _made(at: str, kind: Any, *arguments: Any) -> Any:
    try:
        return kind(*arguments)
    except OptionError as error:
        raise refused(f"{at}: {error}", at, "invalid_value") from None
