"""Questions and answers in System One's form, which LangChain and others have too.

It owns that form: kinds of questions by their names there, criteria, answers with dicts of
probabilities. It knows no wire and no classes of a library: what is read from these.

    {"type": "noul", "instructions": "A refund?", "criteria": {"true": "asks for money"}}
    {"type": "choice", "instructions": "Which?", "criteria": {"billing": "payments", "tech": null}}
    {"type": "score", "instructions": "How angry?", "criteria": ["calm", "furious"]}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from .questions import Choice, Predicate, Question, Score

Kind = Literal["noul", "choice", "score"]


def question_of_system_one(kind: Kind, instructions: Any, criteria: Any) -> Question:
    """The question that is meant.

    Args:
        kind: see above.
        instructions: text; anything else is told as JSON.
        criteria: what ``true`` and ``false`` mean, or None; what each option means, or None of it;
            the levels. What is no text is told as JSON.

    Raises:
        OptionError: there are too many labels, two are alike, or one is empty.
    """
    told = _text(instructions)
    if kind == "choice":
        options = {k: None if v is None else _text(v) for k, v in criteria.items()}
        return Choice(told, options)
    if kind == "score":
        return Score(told, [_text(one) for one in criteria])
    for name, what in (criteria or {}).items():
        if what is not None:
            told += f"\n{_WORDS[name]}: {_text(what)}"
    return Predicate(told)


_WORDS = {"true": "Yes", "false": "No"}


def answer_of_system_one(answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer in that form.

    Args:
        answer: one of `answers_to_json`. Options come with the likeliest first, as there.
    """
    if answer["type"] == "predicate":
        return {"type": "noul", "noul": answer["probability"]}
    chances = {one["value"]: one["probability"] for one in answer["probabilities"]}
    common = {"confidence": answer["confidence"], "probabilities": chances}
    if answer["type"] == "choice":
        return {"type": "choice", "choice": answer["choice"], **common}
    legend = {one["value"]: one["label"] for one in answer["probabilities"]}
    return {"type": "score", "score": answer["score"], "legend": legend, **common}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
