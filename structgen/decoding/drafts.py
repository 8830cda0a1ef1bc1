"""A draft before the answer: `Draft`, and the tokens that stand between the two.

The model answers freely first, and is then asked for the same again in the form of the output type,
with its draft in view. In a chat that is the assistant's turn, and a further one of the user's with
the request: what the template writes between is rendered with a probe in the draft's place, so that
the tokens of the draft stay as they were chosen. After a prompt that is a text the request follows
as text. Knows nothing of masks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from structgen.errors import OptionError, PromptError
from structgen.models.base import Model

from .chat_tokens import encode_chat
from .spelling import Speller

CHAT_REQUEST = (
    "Now write this answer again, with the same content, in exactly the form that was asked for. "
    "Write nothing else."
)
"""What the user's turn asks for after a draft in a chat."""

TEXT_REQUEST = "\n\nThe same again, in the form that was asked for:\n"
"""What follows a draft after a prompt that is a text."""

_PROBE = "Zprobe draftZ"


@dataclass(frozen=True, slots=True)
class Draft:
    """How a model is to draft its answer; ``draft=True`` is ``draft=Draft()``.

    Attributes:
        max_tokens: most tokens of the draft; None: as many as ``max_new_tokens``.
        request: the user's turn after it, in a chat.
        text_request: what follows it where the prompt is a text.
    """

    max_tokens: int | None = None
    request: str = field(default=CHAT_REQUEST)
    text_request: str = field(default=TEXT_REQUEST)

    def __post_init__(self) -> None:
        most = self.max_tokens
        if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
            raise OptionError(f"Draft: max_tokens={most!r} is no number of tokens.")
        for name in ("request", "text_request"):
            text = getattr(self, name)
            if not isinstance(text, str) or not text:
                raise OptionError(f"Draft: {name}={text!r} is no text.")


def after_draft(
    model: Model,
    prompt: str | Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    draft: Draft,
    special_tokens: str,
) -> list[int]:
    """The tokens between a draft and the answer.

    Args:
        model: the model.
        prompt: of `structgen.decoding.chat.parse`.
        tools: what the template tells the model of.
        draft: the request.
        special_tokens: where they are read, see `structgen.decoding.options.SearchOptions`.

    Raises:
        PromptError: the template does not show what stands between, or refuses a further turn.
    """
    if isinstance(prompt, str):
        return [int(token) for token in model.encode(draft.text_request)]
    anywhere = special_tokens == "anywhere"
    turns = [
        *prompt,
        {"role": "assistant", "content": _PROBE},
        {"role": "user", "content": draft.request},
    ]
    whole = encode_chat(model, turns, tools=tools, anywhere=anywhere).tolist()
    tokens = model.vocabulary.tokens
    text = b""
    starts = []
    for token in whole:
        starts.append(len(text))
        text += tokens[token]
    at = text.rfind(_PROBE.encode())
    if at < 0:
        raise PromptError(
            f"The chat template of {model.name} does not show an answer before the last message, "
            "so that draft= cannot go on after one. Leave draft= out."
        )
    end = at + len(_PROBE)
    first = next((i for i, start in enumerate(starts) if start >= end), len(whole))
    # A token may hold the probe's last letter and what follows it.
    inside = text[end : starts[first]] if first < len(whole) else text[end:]
    spelt = Speller(model.vocabulary, model.encode)
    return [*(spelt(whole[:0], inside) if inside else []), *whole[first:]]
