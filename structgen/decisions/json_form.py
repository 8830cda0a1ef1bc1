"""Questions and answers as JSON, for files and APIs: our form, OpenAI's and System One's.

Knows no files, servers or models. Our form::

    {"refund": {"type": "predicate", "instructions": "Does the customer ask for a refund?"},
     "team": {"type": "choice", "instructions": "Which team?", "options": {"billing": "payments",
              "tech": null}},
     "anger": {"type": "score", "instructions": "How angry?", "levels": ["calm", "furious"]}}

A predicate may have ``"criteria": {"true": "wants money back", "false": "wants something else"}``.
`questions_from_json` also reads OpenAI's form: a list of questions, each with a ``name``, with
``"choices": [{"value": "billing", "description": "money"}]`` instead of ``options``, and
``"levels": [{"label": "calm"}]``.

System One's form, which LangChain and others also use, has its own names for kinds of questions,
has criteria, and answers with dicts of probabilities::

    {"type": "noul", "instructions": "A refund?", "criteria": {"true": "asks for money"}}
    {"type": "choice", "instructions": "Which?", "criteria": {"billing": "payments", "tech": null}}
    {"type": "score", "instructions": "How angry?", "criteria": ["calm", "furious"]}
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from typing import Any, Literal

from structgen.errors import OptionError

from .answers import Answers, ChoiceAnswer, PredicateAnswer, ScoreAnswer
from .questions import Choice, Predicate, Question, Score

Kind = Literal["noul", "choice", "score"]
"""System One's names of the three kinds."""

_LABELS = {"predicate": "criteria", "choice": "options", "score": "levels"}
"""The field of labels of each type of question; criteria are optional."""


def questions_from_json(given: Any) -> dict[str, Question]:
    """Return questions from their JSON.

    Raises:
        OptionError: the JSON has another form; the error names the question.
    """
    if isinstance(given, list):
        given = _by_name(given)
    if not isinstance(given, Mapping) or not given:
        raise OptionError(
            "The questions are not a JSON object of names and questions, such as "
            '{"urgent": {"type": "predicate", "instructions": "Is it urgent?"}}.'
        )
    return {name: _question(name, one) for name, one in given.items()}


def _by_name(given: list[Any]) -> dict[str, Any]:
    """Return questions by name from a list in OpenAI's form."""
    found: dict[str, Any] = {}
    for index, one in enumerate(given):
        name = one.get("name") if isinstance(one, Mapping) else None
        if not isinstance(name, str) or name in found:
            raise OptionError(
                f"questions[{index}] has the name {name!r}. In a list, each question must be an "
                'object with its own "name".'
            )
        found[name] = {key: value for key, value in one.items() if key != "name"}
    return found


def _question(name: str, given: Any) -> Question:
    where = f"The question {name!r}"
    kind = given.get("type") if isinstance(given, Mapping) else None
    if kind not in _LABELS:
        raise OptionError(
            f'{where} has the type {kind!r}. Pass an object with "type": one of '
            f"{', '.join(_LABELS)}."
        )
    labels = _LABELS[kind]
    if labels == "options" and "choices" in given and "options" not in given:
        labels = "choices"
    known = {"type", "instructions", labels}
    extra = [key for key in given if key not in known]
    missing = [key for key in sorted(known - {"criteria"}) if key not in given]
    if extra or missing:
        raise OptionError(
            f"{where} {f'has {extra[0]!r}' if extra else f'lacks {missing[0]!r}'}. The keys of a "
            f"{kind} are: {', '.join(sorted(known))}."
        )
    try:
        if kind == "predicate":
            return Predicate(given["instructions"], criteria=criteria_of(given.get(labels)))
        if kind == "choice":
            return Choice(given["instructions"], _described(given[labels], labels, "value"))
        return Score(given["instructions"], _described(given[labels], labels, "label"))
    except OptionError as error:
        raise OptionError(f"{where}: {error}") from None


def criteria_of(given: Any) -> dict[bool, str | None]:
    """Return the meanings of yes and no from an object with the keys ``true`` and ``false``, or
    from None.

    Raises:
        OptionError: it is something else.
    """
    keys = {"true": True, "false": False}
    if given is not None and not (isinstance(given, Mapping) and given.keys() <= keys.keys()):
        raise OptionError(f'criteria is {given!r}. Pass {{"true": "…", "false": "…"}}.')
    return {keys[name]: text for name, text in (given or {}).items()}


def _described(given: Any, name: str, key: str) -> Any:
    """Map labels to descriptions from a list of OpenAI's objects; leave others as they are."""
    if not isinstance(given, list) or not any(isinstance(one, Mapping) for one in given):
        return given
    found: dict[Any, str | None] = {}
    for index, one in enumerate(given):
        if not isinstance(one, Mapping) or not {key} <= one.keys() <= {key, "description"}:
            raise OptionError(
                f'{name}[{index}] is {one!r}. Pass objects such as {{"{key}": "…", '
                '"description": "…"}, a list of texts, or an object of text and description.'
            )
        if isinstance(one[key], (list, Mapping)) or one[key] in found:
            raise OptionError(
                f"{name}[{index}]: the {key} {one[key]!r} is given twice, or is not a scalar."
            )
        found[one[key]] = one.get("description")
    return found


def answers_to_json(answers: Answers[Any]) -> dict[str, Any]:
    """Return answers as a JSON value, by name, each with its type."""
    return {name: _answer(answers[name]) for name in answers}


def _answer(answer: PredicateAnswer | ChoiceAnswer | ScoreAnswer) -> dict[str, Any]:
    common = {
        "confidence": answer.confidence,
        "margin": answer.margin,
        "mass": answer.mass,
        "error_bound": answer.error_bound,
        "abstained": answer.abstained,
        "informative": answer.informative,
    }
    if isinstance(answer, PredicateAnswer):
        return {"type": "predicate", "probability": answer.probability, **common}
    if isinstance(answer, ScoreAnswer):
        probabilities = [
            {"value": i, "label": label, "probability": p}
            for i, (label, p) in enumerate(answer.probabilities.items())
        ]
        score = {"score": answer.score, "probabilities": probabilities}
        return {"type": "score", **score, **common}
    pairs = zip(answer.values, answer.labels, answer.label_probabilities, strict=True)
    choices = [
        {"value": _plain(value, label), "probability": p}
        for value, label, p in sorted(pairs, key=lambda pair: -pair[2])
    ]
    chosen = None if answer.abstained else choices[0]["value"]
    return {"type": "choice", "choice": chosen, "probabilities": choices, **common}


def _plain(value: Any, label: str) -> Any:
    value = value.value if isinstance(value, enum.Enum) else value
    return value if value is None or isinstance(value, (str, bool, int, float)) else label


def question_of_system_one(kind: Kind, instructions: Any, criteria: Any) -> Question:
    """Return the question.

    Args:
        kind: System One's kind.
        instructions: text; anything else becomes JSON.
        criteria: for ``noul`` the descriptions of ``true`` and ``false``, or None; for ``choice`` a
            description or None by option; for ``score`` the levels. Values that are not text become
            JSON.

    Raises:
        OptionError: there are too many labels, two are equal, or one is empty.
    """
    question = _text(instructions)
    if kind == "score":
        return Score(question, [_text(one) for one in criteria])
    texts = {k: None if v is None else _text(v) for k, v in (criteria or {}).items()}
    return (
        Choice(question, texts)
        if kind == "choice"
        else Predicate(question, criteria=criteria_of(texts))
    )


def answer_of_system_one(answer: Mapping[str, Any], criteria: Any = None) -> dict[str, Any]:
    """Return an answer in that form.

    Args:
        answer: one of `answers_to_json`.
        criteria: the question's criteria, whose order options keep; None: the likeliest comes
            first.
    """
    if answer["type"] == "predicate":
        return {"type": "noul", "noul": answer["probability"]}
    chances = {one["value"]: one["probability"] for one in answer["probabilities"]}
    common = {"confidence": answer["confidence"], "probabilities": chances}
    if answer["type"] == "choice":
        common["probabilities"] = {option: chances[option] for option in criteria or chances}
        return {"type": "choice", "choice": answer["choice"], **common}
    legend = {one["value"]: one["label"] for one in answer["probabilities"]}
    return {"type": "score", "score": answer["score"], "legend": legend, **common}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
