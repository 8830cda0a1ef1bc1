"""The tokens of prompts, asked of the process that has the tokenizer and the chat template."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from structgen.decoding import check_may_fit, encode
from structgen.insight import Passes
from structgen.models.base import Model
from structgen.workers import AsyncModel, owner, run_errands


@dataclass(frozen=True, slots=True)
class Tokenising:
    """An errand: the tokens of a prompt.

    Attributes:
        prompt: a text, or messages.
        is_bare: whether a text is taken as it is, without the tokens that prompts begin with.
        is_bounded: whether it has to be one that the model may hold.
    """

    prompt: Any
    is_bare: bool
    is_bounded: bool

    def begin(self, model: Model) -> Passes[list[int]]:
        """Encode it; no pass of the model is made."""
        if isinstance(self.prompt, str) and (self.is_bare or not self.prompt):
            if self.is_bounded:
                check_may_fit(model, self.prompt)
            found = model.encode(self.prompt) if self.prompt else ()
        else:
            found = encode(model, self.prompt, bounded=self.is_bounded)
        return _told([int(token) for token in found])


def _told(tokens: list[int]) -> Passes[list[int]]:
    yield from ()
    return tokens


async def tokens_of(model: AsyncModel, prompt: Any, *, is_bare: bool) -> list[int]:
    """The tokens of a text or of messages.

    Raises:
        PromptError: it is malformed, or a stranger's and longer than the model can hold.
    """
    errand = Tokenising(prompt, is_bare, owner() is not None)
    found: list[list[int]] = await run_errands(model, [errand])
    return found[0]
