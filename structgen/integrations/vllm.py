"""vLLM: a custom logits processor, for both of its model runners, and what a request says to it.

    llm = LLM(model, logits_processors=["structgen.integrations.vllm:StructgenLogitsProcessor"])
    params = SamplingParams(max_tokens=100, extra_args=arguments(Landmark, max_tokens=100))

`StructgenLogitsProcessor` is for model runner V2, `LegacyLogitsProcessor` for the one before it;
their classes are made when they are asked for, because only a vLLM that has the interface can be
subclassed. Owns how these two show batches and tokens; `requests` has the cursors, `transformers`
what masks are to torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from structgen.errors import ModelError
from structgen.vocabulary import Vocabulary

from .requests import ARGUMENT, BUDGET, Requests, arguments, check

__all__ = ["arguments"]

_RULE_OUT = ("min_tokens", "allowed_token_ids", "structured_outputs")
"""What requests may say that rules out tokens whatever the output type allows."""


def _vocabulary(vllm_config: Any) -> Vocabulary:
    """The vocabulary of the engine's model, as wide as its logits; it ends where vLLM ends."""
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
    """What both interfaces have: a look at the arguments when a request arrives."""

    requests: Requests

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Refuse a request that cannot be answered as it asks.

        Raises:
            ValueError: its arguments cannot be read, or something else in it may rule out all that
                they allow: vLLM then chooses a token that is neither.
        """
        found = check(sampling_params.extra_args)
        if found is None:
            return
        for name in _RULE_OUT:
            if getattr(sampling_params, name, None):
                raise ValueError(
                    f"{name} does not go with the output type of {ARGUMENT}: together they may "
                    f"allow no token. Leave {name} out."
                )
        most = getattr(sampling_params, "max_tokens", None)
        if found.budget is not None and most is not None and found.budget > most:
            raise ValueError(
                f"{BUDGET} is at most the request's own max_tokens, {most}, or the output is cut; "
                f"got {found.budget}."
            )

    def is_argmax_invariant(self) -> bool:
        """False: a mask changes which token is the best."""
        return False

    def _mask(self, logits: Any, rows: list[int], words: Any) -> Any:
        """Mask some rows of the logits, in place."""
        from .transformers import mask_rows

        mask_rows(logits, rows, words)
        return logits


class _ForRunnerV2(_Checked):
    """Model runner V2: requests have slots; rows are logits, one more for each guessed token."""

    def __init__(self, vllm_config: Any, req_states: Any) -> None:
        self.requests = Requests(_vocabulary(vllm_config))
        self._states = req_states

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """A request has come to a slot; whether it has an output type."""
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
            here = at[of_one[0]]  # where the last token stands that is no guess
            tokens = self._new_tokens(slot, here, ids[of_one[0]])
            draft = [ids[row] for row in of_one[1:]]
            last = first + len(of_one)
            self.requests.fill(slot, tokens, draft, words[first:last])
            rows[first:last] = of_one
            first = last
        return self._mask(logits, rows, words)

    def _new_tokens(self, slot: int, here: int, token: int) -> list[int]:
        """The output tokens up to a place that the request has not taken yet."""
        start = int(self._states.prompt_len.np[slot]) + self.requests.taken(slot)
        if here < start:
            return []
        if here == start:
            return [token]
        # Guesses that held, or output from before the request was put off.
        kept = self._states.all_token_ids.gpu[slot, start : here + 1]
        found: list[int] = kept.tolist()
        return found


class _ForRunnerV1(_Checked):
    """The model runner before: requests have rows, which a ledger says how to move."""

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
        self.requests = Requests(_vocabulary(vllm_config))
        self._outputs: dict[int, list[int]] = {}  # by row; the engine's own lists, which grow

    def update_state(self, batch_update: Any) -> None:
        """Requests have gone, come and moved, in this order."""
        if batch_update is None:
            return
        for row in batch_update.removed:
            self.requests.remove(row)
            self._outputs.pop(row, None)
        for row, params, _, output in batch_update.added:
            self._outputs.pop(row, None)
            if self.requests.add(row, params.extra_args):
                self._outputs[row] = output
        for row, to, direction in batch_update.moved:
            is_swap = direction.name == "SWAP"
            self.requests.move(row, to, is_swap)
            here, there = self._outputs.pop(row, None), self._outputs.pop(to, None)
            if here is not None:
                self._outputs[to] = here
            if is_swap and there is not None:
                self._outputs[row] = there

    def apply(self, logits: Any) -> Any:
        """Mask the rows of the requests that have an output type."""
        rows = self.requests.slots()
        if not rows:
            return logits
        words = np.empty((len(rows), self.requests.n_words), np.int32)
        for at, row in enumerate(rows):
            new = self._outputs[row][self.requests.taken(row) :]
            self.requests.fill(row, new, (), words[at : at + 1])
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
            f"{__name__}.{name} needs a vLLM that has {home}: {error}. Install vllm; before model "
            "runner V2, the name is LegacyLogitsProcessor."
        ) from error
    made = type(name, (ours, theirs), {"__module__": __name__, "__doc__": ours.__doc__})
    return globals().setdefault(name, made)
