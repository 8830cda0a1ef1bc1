"""vLLM: a custom logits processor, for both of its model runners, and the arguments of a request.

    llm = LLM(model, logits_processors=["structgen.integrations.vllm:StructgenLogitsProcessor"])
    params = SamplingParams(max_tokens=100, extra_args=arguments(Landmark, max_tokens=100))

`Requests` has the cursors of requests while these arrive, move, take tokens and leave. A request
has its type in its arguments: the bytes of `Constraint.to_bytes` as base64. An error in a processor
would end all requests, so only the failed request is ended, and the reason is logged.

`StructgenLogitsProcessor` is for model runner V2, `LegacyLogitsProcessor` for V1. The classes are
made on first use, because vLLM may lack the interface that they subclass. `transformers` applies
masks to torch tensors.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from structgen.constraint import Constraint, Cursor
from structgen.errors import ModelError, OptionError, StructgenError, check_limit
from structgen.storage import KeptByBytes
from structgen.types import lower, written
from structgen.vocabulary import Vocabulary
from structgen.workers import FORM_BYTES, MAX_MASK_WORK, MAX_WORK, form_weight

from .numpy import check_temperatures, end_mask

ARGUMENT = "structgen"
BUDGET = "structgen_max_tokens"

_LONGEST = 700_000
"""Most characters of an output type (512 KiB): all requests wait while it is compiled."""

_log = logging.getLogger("structgen")


def arguments(
    output_type: Any,
    *,
    vocabulary: Vocabulary | None = None,
    max_tokens: int | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Return the extra arguments of a request that set its output type.

    Args:
        output_type: the type, as in `structgen.compile`, or a `Constraint`.
        vocabulary: the model's vocabulary, for types whose grammar depends on its control tokens.
        max_tokens: token budget, at most the request's own; the output is then always complete.
        **options: options of `structgen.compile`.

    Raises:
        OutputTypeError: the type cannot be turned into a grammar, or not into bytes.
        OptionError: the type needs the vocabulary.
        UnsupportedFeature: rules of a grammar have a temperature.
    """
    if isinstance(output_type, Constraint):
        output, data = output_type.output, output_type.to_bytes()
    elif vocabulary is not None:
        from structgen.constraint import compile

        constraint = compile(output_type, vocabulary, **options)
        output, data = constraint.output, constraint.to_bytes()
    else:
        output = lower(output_type)
        if output.fitted is not None:
            raise OptionError(
                f"the grammar of {output.name} depends on the model's control tokens. Pass "
                "vocabulary=."
            )
        data = written.write(output, options, "")
    check_temperatures(output.grammar)
    out: dict[str, Any] = {ARGUMENT: base64.b64encode(data).decode()}
    if max_tokens is not None:
        out[BUDGET] = max_tokens
    return out


def _read(extra: Mapping[str, Any] | None) -> tuple[bytes, int | None] | None:
    """Return the bytes of a constraint and a budget; None: the request has no output type."""
    given = (extra or {}).get(ARGUMENT)
    budget = (extra or {}).get(BUDGET)
    if given is None:
        if budget is not None:
            raise OptionError(f"{BUDGET} requires {ARGUMENT}.")
        return None
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int)):
        raise OptionError(f"{BUDGET} must be an integer, got {budget!r}.")
    try:
        check_limit(len(given), _LONGEST, f"{ARGUMENT} has too many characters")
        return base64.b64decode(given, validate=True), budget
    except (TypeError, ValueError, binascii.Error) as error:
        raise OptionError(
            f"{ARGUMENT} must be the text that structgen.integrations.vllm.arguments returns: "
            f"{error}."
        ) from error


class _Request:
    """A request: its cursor (None once it has failed), its output as the engine's own growing list,
    and the number of tokens taken from it."""

    def __init__(self, cursor: Cursor | None, output: Sequence[int]) -> None:
        self.cursor = cursor
        self.output = output
        self.taken = 0


class Requests:
    """The requests with an output type, by slot. Not shared between threads."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.n_words = (vocabulary.size + 31) // 32
        self._constraints: KeptByBytes[tuple[Constraint[Any], int]] = KeptByBytes(
            FORM_BYTES, lambda kept: form_weight(*kept)
        )
        self._requests: dict[int, _Request] = {}
        self._end = end_mask(vocabulary)

    def __contains__(self, slot: int) -> bool:
        return slot in self._requests

    def slots(self) -> list[int]:
        """Return the slots of requests with an output type."""
        return sorted(self._requests)

    def add(self, slot: int, extra: Mapping[str, Any] | None, output: Sequence[int] = ()) -> bool:
        """Add a request at a slot; it replaces an earlier one.

        Returns:
            Whether it has an output type.
        """
        self._requests.pop(slot, None)
        cursor = None
        try:
            found = _read(extra)
            if found is None:
                return False
            data, budget = found
            cursor = self._constraint(data).start(budget)
        except StructgenError as error:
            self._log_end(slot, error)
        self._requests[slot] = _Request(cursor, output)
        return True

    def remove(self, slot: int) -> None:
        """Remove the request of a slot."""
        self._requests.pop(slot, None)

    def move(self, slot: int, to: int, is_swap: bool) -> None:
        """Move a request to another slot; in a swap, the other one comes back."""
        here, there = self._requests.pop(slot, None), self._requests.pop(to, None)
        if here is not None:
            self._requests[to] = here
        if is_swap and there is not None:
            self._requests[slot] = there

    def taken(self, slot: int) -> int:
        """Return the number of output tokens that a slot's request has taken."""
        return self._requests[slot].taken

    def new(self, slot: int) -> Sequence[int]:
        """Return the tokens not taken yet of a request that came with its output."""
        request = self._requests[slot]
        return request.output[request.taken :]

    def fill(
        self, slot: int, tokens: Sequence[int], draft: Sequence[int], out: npt.NDArray[np.int32]
    ) -> None:
        """Take tokens of a request's output, and write the mask after them and the masks along a
        draft.

        Args:
            slot: the request's slot.
            tokens: the tokens not taken yet.
            draft: guessed tokens after them.
            out: int32 ``[1 + len(draft), words]``. After a guess that is not allowed everything is:
                the engine refuses the guess and ignores the rest.
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
                self._log_end(slot, error)
                request.cursor = None
        out[:] = self._end

    def _constraint(self, data: bytes) -> Constraint[Any]:
        kept = self._constraints.get(data)
        if kept is not None:
            return kept[0]
        limits = {"max_work": MAX_WORK, "max_mask_work": MAX_MASK_WORK}
        found = Constraint.from_bytes(data, self.vocabulary, **limits)
        self._constraints.add(data, (found, len(data)))
        return found

    def _log_end(self, slot: int, error: Exception) -> None:
        _log.error("structgen: the output of the request in slot %d is cut off: %s", slot, error)


_RULE_OUT: Mapping[str, Any] = {
    **{"min_tokens": 0, "bad_words": []},
    **dict.fromkeys(("allowed_token_ids", "structured_outputs", "thinking_token_budget")),
}
"""Parameters that may exclude tokens that the output type needs, with the value that does not."""


def _vocabulary(vllm_config: Any) -> Vocabulary:
    """Return the vocabulary of the engine's model, as wide as its logits, with vLLM's ends of
    sequence."""
    from transformers import AutoTokenizer

    model = vllm_config.model_config
    tokenizer = AutoTokenizer.from_pretrained(
        model.tokenizer,
        revision=model.tokenizer_revision,
        trust_remote_code=model.trust_remote_code,
    )
    ends = model.try_get_generation_config().get("eos_token_id") or ()
    known = {ends} if isinstance(ends, int) else set(ends)
    if tokenizer.eos_token_id is not None:
        known.add(tokenizer.eos_token_id)
    return Vocabulary.from_tokenizer(tokenizer, sorted(known) or None, model.get_vocab_size())


class _Checked:
    """The base of both interfaces: checks the arguments when a request arrives."""

    requests: Requests

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Refuse a request that cannot be enforced.

        Raises:
            ValueError: its arguments cannot be read, or other parameters may exclude all allowed
                tokens, so that vLLM would choose a wrong one.
        """
        try:
            found = _read(sampling_params.extra_args)
            if found is None:
                return
            data, budget = found
            check_temperatures(written.read(data).output.grammar)
        except StructgenError as error:
            raise ValueError(str(error)) from error
        for name, harmless in _RULE_OUT.items():
            if getattr(sampling_params, name, None) not in (None, harmless):
                raise ValueError(
                    f"{name} cannot be combined with the output type of {ARGUMENT}: together they "
                    f"may allow no token. Remove {name}."
                )
        most = getattr(sampling_params, "max_tokens", None)
        if budget is not None and most is not None and budget > most:
            raise ValueError(
                f"{BUDGET} must be at most the request's own max_tokens, {most}, or the output is "
                f"cut off; got {budget}."
            )

    def is_argmax_invariant(self) -> bool:
        """False, because a mask changes which token is the best."""
        return False

    def _mask(self, logits: Any, rows: list[int], words: Any) -> Any:
        """Mask some rows of the logits, in place."""
        from .transformers import mask_rows

        mask_rows(logits, rows, words)
        return logits


class _ForRunnerV2(_Checked):
    """Model runner V2: requests have slots; each request has a row of logits, and one more per
    guessed token."""

    def __init__(self, vllm_config: Any, req_states: Any) -> None:
        self.requests = Requests(_vocabulary(vllm_config))
        self._states = req_states

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """Add a request at a slot; return whether it has an output type."""
        return self.requests.add(req_idx, sampling_params.extra_args)

    def apply(self, logits: Any, ctx: Any) -> Any:
        """Mask the rows of the requests that have an output type."""
        if not any(int(slot) in self.requests for slot in ctx.idx_mapping_np):
            return logits
        by_slot: dict[int, list[int]] = {}
        slots, ids, at = (
            one.tolist() for one in (ctx.expanded_idx_mapping, ctx.input_ids, ctx.pos)
        )
        for row, slot in enumerate(slots):
            if slot in self.requests:
                by_slot.setdefault(slot, []).append(row)
        rows = [row for of_one in by_slot.values() for row in of_one]
        words = np.empty((len(rows), self.requests.n_words), np.int32)
        first = 0
        for slot, of_one in by_slot.items():
            of_one.sort(key=at.__getitem__)
            here = at[of_one[0]]  # the place of the last token that is not a guess
            tokens = self._new_tokens(slot, here, ids[of_one[0]])
            draft = [ids[row] for row in of_one[1:]]
            last = first + len(of_one)
            self.requests.fill(slot, tokens, draft, words[first:last])
            rows[first:last] = of_one
            first = last
        return self._mask(logits, rows, words)

    def _new_tokens(self, slot: int, here: int, token: int) -> list[int]:
        """Return the output tokens up to a place that the request has not taken."""
        start = int(self._states.prompt_len.np[slot]) + self.requests.taken(slot)
        if here < start:
            return []
        if here == start:
            return [token]
        # Accepted guesses, or output from before the request was preempted.
        kept = self._states.all_token_ids.gpu[slot, start : here + 1]
        found: list[int] = kept.tolist()
        return found


class _ForRunnerV1(_Checked):
    """Model runner V1: requests have rows, which move as vLLM tells."""

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
        self.requests = Requests(_vocabulary(vllm_config))

    def update_state(self, batch_update: Any) -> None:
        """Apply the removed, added and moved requests, in this order."""
        if batch_update is None:
            return
        for row in batch_update.removed:
            self.requests.remove(row)
        for row, params, _, output in batch_update.added:
            self.requests.add(row, params.extra_args, output)
        for row, to, direction in batch_update.moved:
            self.requests.move(row, to, direction.name == "SWAP")

    def apply(self, logits: Any) -> Any:
        """Mask the rows of the requests that have an output type."""
        rows = self.requests.slots()
        if not rows:
            return logits
        words = np.empty((len(rows), self.requests.n_words), np.int32)
        for at, row in enumerate(rows):
            self.requests.fill(row, self.requests.new(row), (), words[at : at + 1])
        return self._mask(logits, rows, words)


_KINDS: Mapping[str, tuple[type, str]] = {
    "StructgenLogitsProcessor": (_ForRunnerV2, "vllm.v1.worker.gpu.sample.logits_processor"),
    "LegacyLogitsProcessor": (_ForRunnerV1, "vllm.v1.sample.logits_processor"),
}


def __getattr__(name: str) -> Any:
    if name not in _KINDS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    ours, home = _KINDS[name]
    try:
        theirs = importlib.import_module(home).LogitsProcessor
    except (ImportError, AttributeError) as error:
        raise ModelError(
            f"{__name__}.{name} needs a vLLM version with {home}: {error}. Install vllm. Before "
            "model runner V2, the name is LegacyLogitsProcessor."
        ) from error
    made = type(name, (ours, theirs), {"__module__": __name__, "__doc__": ours.__doc__})
    return globals().setdefault(name, made)
