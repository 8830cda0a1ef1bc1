"""The cursors of a serving engine's requests: they come, are moved, take tokens and go.

For engines whose logits processors see all requests that are under way, each in a slot, and are
told of a request's type in its arguments: bytes of `Constraint.to_bytes`, as base64. Such a
processor must not raise, or all requests end with the one that went wrong: a request that goes
wrong may only end, and the reason is logged. Knows masks and NumPy, and no engine.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from structgen.constraint import Constraint, Cursor
from structgen.errors import OptionError, StructgenError
from structgen.types import lower, written
from structgen.vocabulary import Vocabulary

ARGUMENT = "structgen"
BUDGET = "structgen_max_tokens"

_KEPT = 64
"""Most constraints that are remembered."""

_log = logging.getLogger("structgen")


def arguments(
    output_type: Any,
    *,
    vocabulary: Vocabulary | None = None,
    max_tokens: int | None = None,
    **options: Any,
) -> dict[str, Any]:
    """What a request says to have an output type: entries of its extra arguments.

    Args:
        output_type: the type, as in `structgen.compile`, or a `Constraint`.
        vocabulary: the model's, which types need whose grammar depends on its control tokens.
        max_tokens: token budget, at most the request's own: the output then is always whole.
        **options: of `structgen.compile`.

    Raises:
        OutputTypeError: the type cannot be turned into a grammar, or not into bytes.
        OptionError: it needs the vocabulary.
    """
    if isinstance(output_type, Constraint):
        data = output_type.to_bytes()
    elif vocabulary is not None:
        from structgen.constraint import compile

        data = compile(output_type, vocabulary, **options).to_bytes()
    else:
        output = lower(output_type)
        if output.fitted is not None:
            raise OptionError(
                f"the grammar of {output.name} depends on the model's control tokens. Pass "
                "vocabulary=."
            )
        data = written.write(output, options, "")
    out: dict[str, Any] = {ARGUMENT: base64.b64encode(data).decode()}
    if max_tokens is not None:
        out[BUDGET] = max_tokens
    return out


class Asked(NamedTuple):
    """What the arguments of a request say: the bytes of a constraint, and a budget."""

    data: bytes
    budget: int | None


def check(extra: Mapping[str, Any] | None) -> Asked | None:
    """What the arguments of a request say; None: nothing, it has no output type.

    Raises:
        ValueError: they cannot be read.
    """
    try:
        found = _read(extra)
        if found is not None:
            written.read(found.data)
    except StructgenError as error:
        raise ValueError(str(error)) from error
    return found


def _read(extra: Mapping[str, Any] | None) -> Asked | None:
    given = (extra or {}).get(ARGUMENT)
    budget = (extra or {}).get(BUDGET)
    if given is None:
        if budget is not None:
            raise OptionError(f"{BUDGET} is of no use without {ARGUMENT}.")
        return None
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int)):
        raise OptionError(f"{BUDGET} is a whole number, got {budget!r}.")
    try:
        return Asked(base64.b64decode(given, validate=True), budget)
    except (TypeError, ValueError, binascii.Error) as error:
        raise OptionError(
            f"{ARGUMENT} is the text that structgen.integrations.vllm.arguments gives: {error}."
        ) from error


class _Request:
    """One request: its cursor, or None once it has gone wrong, and how many tokens it has taken."""

    def __init__(self, cursor: Cursor | None) -> None:
        self.cursor = cursor
        self.taken = 0


class Requests:
    """The requests that have an output type, by their slots. Not shared between threads."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.n_words = (vocabulary.size + 31) // 32
        self._constraints: OrderedDict[bytes, Constraint[Any]] = OrderedDict()
        self._requests: dict[int, _Request] = {}
        end = np.zeros(self.n_words, np.uint32)
        for token in vocabulary.eos_token_ids:
            end[token >> 5] |= np.uint32(1 << (token & 31))
        self._end = end.view(np.int32)

    def __contains__(self, slot: int) -> bool:
        return slot in self._requests

    def __len__(self) -> int:
        return len(self._requests)

    def slots(self) -> list[int]:
        """The slots of the requests that have an output type."""
        return sorted(self._requests)

    def add(self, slot: int, extra: Mapping[str, Any] | None) -> bool:
        """A request has come to a slot, instead of any that was there.

        Returns:
            Whether it has an output type.
        """
        self._requests.pop(slot, None)
        cursor = None
        try:
            found = _read(extra)
            if found is None:
                return False
            cursor = self._constraint(found.data).start(found.budget)
        except StructgenError as error:
            self._told(slot, error)
        self._requests[slot] = _Request(cursor)
        return True

    def remove(self, slot: int) -> None:
        """The request of a slot has gone."""
        self._requests.pop(slot, None)

    def move(self, slot: int, to: int, is_swap: bool) -> None:
        """The request of a slot goes to another; that of the other comes back in a swap."""
        here, there = self._requests.pop(slot, None), self._requests.pop(to, None)
        if here is not None:
            self._requests[to] = here
        if is_swap and there is not None:
            self._requests[slot] = there

    def taken(self, slot: int) -> int:
        """How many tokens of its output the request of a slot has taken."""
        return self._requests[slot].taken

    def fill(
        self, slot: int, tokens: Sequence[int], draft: Sequence[int], out: npt.NDArray[np.int32]
    ) -> None:
        """Take tokens of a request's output, and write the masks after them and along a draft.

        Args:
            slot: its slot.
            tokens: the tokens that it has not taken yet.
            draft: tokens that something quicker has guessed after them.
            out: int32 ``[1 + len(draft), words]``. After a guess that is not allowed, all is: the
                engine refuses the guess, and looks at nothing after it.
        """
        request = self._requests[slot]
        cursor = request.cursor
        if cursor is not None:
            try:
                for token in tokens:
                    if not cursor.is_finished:
                        cursor.accept(token)
                request.taken += len(tokens)
                if not cursor.is_finished:
                    holds = cursor.fill_masks_for_draft(draft, out)
                    for at, good in enumerate(holds, 1):
                        if not good:
                            out[at] = -1
                        elif not out[at].any():
                            out[at] = self._end
                    return
            except (StructgenError, TypeError) as error:
                self._told(slot, error)
                request.cursor = None
        out[:] = self._end

    def _constraint(self, data: bytes) -> Constraint[Any]:
        found = self._constraints.get(data)
        if found is None:
            found = self._constraints[data] = Constraint.from_bytes(data, self.vocabulary)
            if len(self._constraints) > _KEPT:
                self._constraints.popitem(last=False)
        self._constraints.move_to_end(data)
        return found

    def _told(self, slot: int, error: Exception) -> None:
        _log.error("structgen: the output of the request in slot %d ends, cut: %s", slot, error)
