"""The tokens of one output: which there are, which the model has seen, which were forced.

Owns one array for prompt and output, which is added to and cut. Knows no texts, masks or models.
"""

from __future__ import annotations

from typing import final

import numpy as np

from structgen.sampling import TokenIds


@final
class OutputTokens:
    """The tokens of one output so far.

    Attributes:
        prompt_ids: int32 ``[n]``, the prompt.
        length: how many tokens there are, the prompt's included.
        left: how many there may be yet.
        n_seen: how many of those that there are the model has seen.
        n_forced: how many of the output's were the only way on.
        n_unscored: how many at the end were forced and have not been seen by the model.
        are_forced: of each token of the output, its end included.
    """

    __slots__ = (
        "_ids",
        "_n_prompt",
        "are_forced",
        "left",
        "length",
        "n_forced",
        "n_seen",
        "n_unscored",
        "prompt_ids",
    )

    def __init__(self, prompt_ids: TokenIds, max_tokens: int) -> None:
        """Begin with a prompt, of int32 ``[n]``; after it come ``max_tokens`` at most."""
        self.prompt_ids = prompt_ids
        self._n_prompt = len(prompt_ids)
        self.left = max_tokens
        self._ids = np.empty((1, self._n_prompt + max_tokens), np.int32)
        self._ids[0, : self._n_prompt] = prompt_ids
        self.length = self._n_prompt
        self.n_seen = 0
        self.n_forced = 0
        self.n_unscored = 0
        self.are_forced: list[bool] = []

    @property
    def token_ids(self) -> TokenIds:
        """Prompt and output, int32 ``[1, n]``, read-only."""
        view = self._ids[:, : self.length]
        view.flags.writeable = False
        return view

    @property
    def row(self) -> TokenIds:
        """The same, int32 ``[n]``; not to be changed."""
        row: TokenIds = self._ids[0, : self.length]
        return row

    @property
    def output_ids(self) -> TokenIds:
        """The output, int32 ``[n]``; not to be changed."""
        output_ids: TokenIds = self._ids[0, self._n_prompt : self.length]
        return output_ids

    @property
    def n_output(self) -> int:
        """How many tokens the output has."""
        return self.length - self._n_prompt

    def add(self, token: int) -> None:
        """Add a token, which has room."""
        self._ids[0, self.length] = token
        self.length += 1
        self.left -= 1

    def note_unchosen(self, *, is_forced: bool) -> None:
        """Take down that the next token comes without the model's having been asked for it.

        Args:
            is_forced: whether because it is the only way on.
        """
        self.are_forced.append(is_forced)
        self.n_forced += is_forced
        self.n_unscored += 1

    def take_pending(self) -> TokenIds:
        """The tokens that the model has not seen, int32 ``[n]``, which count as seen now."""
        pending = self._ids[0, self.n_seen : self.length]
        self.n_seen = self.length
        return pending

    def cut(self, n_output: int) -> int:
        """Take back all but the first tokens of the output; return how many that were."""
        n_steps = self.length - self._n_prompt - n_output
        self.length -= n_steps
        self.left += n_steps
        self.n_seen = min(self.n_seen, self.length)
        self.n_unscored = max(self.n_unscored - n_steps, 0)
        self.n_forced -= sum(self.are_forced[n_output:])
        del self.are_forced[n_output:]
        return n_steps
