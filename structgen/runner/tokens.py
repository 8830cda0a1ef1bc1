"""The tokens of prompts, asked of the process that has the tokenizer and the chat template."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from structgen.decoding import encode
from structgen.insight import Passes
from structgen.models.base import Model
from structgen.workers import AsyncModel, run_errands


@dataclass(frozen=True, slots=True)
class Tokenising:
    """An errand: the tokens of a prompt.

    Attributes:
        prompt: a text, or messages.
        is_bare: whether a text is taken as it is, without the tokens that prompts begin with.
    """

    prompt: Any
    is_bare: bool

    def begin(self, model: Model) -> Passes[list[int]]:
        """Encode it; no pass of the model is made."""
        if isinstance(self.prompt, str) and (self.is_bare or not self.prompt):
            found = model.encode(self.prompt) if self.prompt else ()
        else:
            found = encode(model, self.prompt)
        return _told([int(token) for token in found])


def _told(tokens: list[int]) -> Passes[list[int]]:
    yield from ()
    return tokens


async def tokens_of(model: AsyncModel, prompt: Any, *, is_bare: bool) -> list[int]:
    """The tokens of a text or of messages.

    Raises:
        PromptError: it is malformed.
    """
    found: list[list[int]] = await run_errands(model, [Tokenising(prompt, is_bare)])
    return found[0]
