"""Prompts for a state and a question, up to the beginning of the answer.

Here are `PromptTemplate`, the two defaults (`CHAT` for models with a chat template, `BASE` for
others), and the text of states that are not text. Knows no tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from structgen.decoding import chat
from structgen.errors import OptionError, PromptError

from .calibration import Many
from .questions import Question

_PLACE = re.compile(r"\{(state|question|options|label|description)\}")


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """The text that turns a question about a state into a prompt.

    The placeholders are ``{state}``, ``{question}`` and ``{options}``; other braces are text. If
    ``{state}`` comes before the others, the model reads it once for all questions.

    Attributes:
        text: the prompt, or the user's message.
        predicate: the same for a `Predicate`; None: as ``text``.
        option: a line of ``{options}`` for a label with a description, with ``{label}`` and
            ``{description}``.
        bare_option: a line for a label without a description.
        separator: the text between the lines.
        system: the system message, only with ``is_chat``; "": none.
        is_chat: whether to apply the model's chat template.
        answer: the beginning of the answer, before the label: in a chat, of the assistant's
            message; otherwise it ends the prompt, after ``text``.
        before_label: the text before each label, which counts as part of it: a space after
            ``Answer:``.
        ends: texts that end a label which is a prefix of another label. The end of the output
            always ends one.
        no_state: replaces the state when the model is asked without one.
    """

    text: str
    predicate: str | None = None
    option: str = "- {label}: {description}"
    bare_option: str = "- {label}"
    separator: str = "\n"
    system: str = ""
    is_chat: bool = False
    answer: str = ""
    before_label: str = ""
    ends: Many[str] = ("\n", ".")
    no_state: str = "N/A"

    def __post_init__(self) -> None:
        """Check the placeholders.

        Raises:
            OptionError: the state, the question or the options have none; or there is a system
                message without ``is_chat``.
        """
        for name, text in (("text", self.text), ("predicate", self.predicate)):
            if text is not None and not ("{state}" in text and "{question}" in text):
                raise OptionError(
                    f"The template's {name} is {text!r}. It must have {{state}} and {{question}}."
                )
        if "{options}" not in self.text:
            raise OptionError(
                f"The template's text is {self.text!r}. It must contain {{options}}, so that the "
                "model knows them."
            )
        if self.system and not self.is_chat:
            raise OptionError("The template has a system message but is not a chat.")

    def prompt(self, state: str, question: Question) -> str | list[dict[str, Any]]:
        """Return the prompt about a state (from `state_text`): text, or the messages of a chat."""
        text = "".join(text for text, _ in self._pieces(state, question))
        if not self.is_chat:
            return text + self.answer
        messages = [{"role": "user", "content": text}]
        if self.system:
            messages.insert(0, {"role": "system", "content": self.system})
        if self.answer:
            messages.append({"role": "assistant", "content": self.answer})
        return messages

    def pieces(self, state: str, question: Question) -> list[tuple[str, bool]]:
        """Return the prompt of a template that is not a chat, like `prompt`, in pieces, each with
        whether it is the template's own text, in which special tokens are recognised."""
        return [*self._pieces(state, question), (self.answer, True)]

    def _pieces(self, state: str, question: Question) -> list[tuple[str, bool]]:
        options: list[tuple[str, bool]] = []
        for label in question.labels:
            line = self.bare_option if label.description is None else self.option
            filled = {"label": label.text, "description": label.description or ""}
            options += [(self.separator, True)] * bool(options)
            options += _filled(line, {name: [(text, False)] for name, text in filled.items()})
        is_predicate = question.kind == "predicate" and self.predicate is not None
        return _filled(
            str(self.predicate) if is_predicate else self.text,
            {
                "state": [(state, False)],
                "question": [(question.instructions, False)],
                "options": options,
            },
        )


CHAT = PromptTemplate(
    text=(
        'Text:\n"""\n{state}\n"""\n\nQuestion: {question}\nOptions:\n{options}\n'
        "Answer with one of the options, exactly as it is written."
    ),
    is_chat=True,
    answer="Answer:",
    before_label=" ",
)
"""For models with a chat template: the state, the question and its options in one message. The
assistant's message begins with ``Answer:``, after which small models write a label without an
introduction: with SmolLM2 this raises the mass from 0.09 to 0.58, and lowers the passes per
question from 7 to 3."""

BASE = PromptTemplate(
    text='Text:\n"""\n{state}\n"""\n\nQuestion: {question}\nOptions:\n{options}\n',
    answer="Answer:",
    before_label=" ",
)
"""For other models: the same as a form whose last line is the answer."""


def state_text(state: Any) -> str:
    """Return a state as text: text unchanged, chat messages as a transcript, other values as JSON.

    Raises:
        PromptError: it is none of these, or not text.
    """
    if isinstance(state, str):
        text = state
    elif _is_chat(state):
        turns = chat.parse(list(state))
        assert not isinstance(turns, str)
        if chat.media_of(turns):
            raise PromptError(
                "The state has a picture or a sound, but questions are about text only. Use a "
                "structgen.Generator, which supports them."
            )
        text = "\n".join(f"{turn['role']}: {turn['content']}" for turn in turns)
    else:
        try:
            text = json.dumps(state, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise PromptError(
                f"The state is {chat.kind(state)} that is not valid JSON: {error}. Pass text, "
                "chat messages or a JSON value."
            ) from None
    chat.parse(text or " ")  # raises where it is no text
    return text


def _is_chat(state: Any) -> bool:
    def is_message(item: Any) -> bool:
        if isinstance(item, Mapping):
            return item.get("role") in chat.ROLES and "content" in item
        return hasattr(item, "role") and hasattr(item, "content")

    return isinstance(state, (list, tuple)) and bool(state) and all(map(is_message, state))


def _filled(text: str, given: Mapping[str, list[tuple[str, bool]]]) -> list[tuple[str, bool]]:
    """Put pieces into their places, in one go: what they hold is no place."""
    pieces: list[tuple[str, bool]] = []
    at = 0
    for found in _PLACE.finditer(text):
        if found[1] in given:
            pieces += [(text[at : found.start()], True), *given[found[1]]]
            at = found.end()
    return [*pieces, (text[at:], True)]
