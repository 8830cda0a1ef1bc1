"""Text models on ONNX Runtime GenAI: the only file that imports ``onnxruntime_genai``.

It owns loading, tokens, chat templates, and sequences with their search settings. It knows nothing
of output types, masks or the step loop; it implements the protocols of `structgen.models.base`.

What the runtime does, measured with 0.18 (and 0.11, the last for Python 3.10) and relied on here:

* ``append_tokens`` runs the model; ``get_logits`` returns a copy of the last token's scores.
* Tokens are chosen by `structgen.sampling`: the runtime's own choosing would tie a sequence to one
  call's settings. Appending a token costs what ``generate_next_token`` does.
* After ``rewind_to(n)`` the scores are gone: the last kept token has to be run again.
* ``max_length`` sizes the key-value cache, which is zeroed when the sequence is made: 0.77 s and
  360 MB for SmolLM2's 8,192 tokens, 0.03 s for 512. So sequences start small and grow.
* It sends usage data to its maker unless ``ORT_DISABLE_TELEMETRY`` is set when it is first used;
  its own ``disable_telemetry_events`` does not stop all of it.
* The interpreter lock is held while the model runs: Ctrl-C acts between steps.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, final

import numpy as np

# A program that answers on this machine tells nobody else about it, unless its user wants that.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime_genai as og  # type: ignore[import-untyped]

from structgen.errors import ModelError, PromptError
from structgen.models import recover
from structgen.processors import Logits, TokenIds
from structgen.vocabulary import Vocabulary

# Room for new tokens that a sequence starts with; past it everything is run once more. Long enough
# that few outputs get there, and 0.1 s to set up with SmolLM2 where its whole context takes 0.77.
_SPARE_TOKENS = 1024

# A folder's own settings must not make the runtime refuse a sequence: it chooses nothing here.
_SETTINGS = {"do_sample": False, "num_beams": 1, "num_return_sequences": 1, "batch_size": 1}


@final
class TextModel:
    """A text model, its tokenizer and its vocabulary. Safe to share by threads.

    Make one with `structgen.load` or `structgen.from_onnx_genai`.

    Attributes:
        name: what messages call it: the folder's name.
        folder: where it was loaded from, None when it was handed in as objects.
        vocabulary: its tokens; ``vocabulary.size`` is the width of its logits.
        context_length: most tokens a sequence can have, prompt and output together.
        search_defaults: its own search settings, from ``genai_config.json``.
        og_model: the runtime's model object.
        og_tokenizer: the runtime's tokenizer object.
    """

    def __init__(
        self,
        og_model: og.Model,
        og_tokenizer: og.Tokenizer,
        *,
        vocabulary: Vocabulary,
        context_length: int,
        search_defaults: Mapping[str, Any],
        folder: Path | None = None,
    ) -> None:
        self.og_model = og_model
        self.og_tokenizer = og_tokenizer
        self.vocabulary = vocabulary
        self.context_length = context_length
        self.folder = folder
        self.name = folder.name if folder is not None else f"{og_model.type} model"
        self.search_defaults: Mapping[str, Any] = MappingProxyType(dict(search_defaults))

    def __repr__(self) -> str:
        return (
            f"TextModel({self.name!r}, vocabulary={self.vocabulary.size:,}, "
            f"context_length={self.context_length:,})"
        )

    def encode(self, text: str) -> TokenIds:
        """Return the token ids of ``text``, int32 ``[n]``.

        No beginning-of-sequence token is added; special tokens spelt out in the text are
        recognised, as chat templates need.
        """
        return np.asarray(self.og_tokenizer.encode(text), np.int32)

    def decode(self, token_ids: Sequence[int] | TokenIds) -> str:
        """Return the text of ``token_ids``; special tokens have none, bad UTF-8 is U+FFFD."""
        tokens = self.vocabulary.tokens
        return b"".join(tokens[int(token_id)] for token_id in token_ids).decode(errors="replace")

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Return the text of a chat, up to where the assistant's answer begins.

        Raises:
            PromptError: the model has no chat template, or the template refuses these messages.
        """
        try:
            return str(
                self.og_tokenizer.apply_chat_template(
                    json.dumps(list(messages), ensure_ascii=False), add_generation_prompt=True
                )
            )
        except (RuntimeError, TypeError, ValueError) as error:
            raise PromptError(
                f"The chat template of {self.name} cannot be applied to these messages: {error}. "
                "Check roles and their order, or pass the prompt as one string."
            ) from error

    def start(self, max_length: int, *, prefix: TokenIds | None = None) -> TextSequence:
        """Begin a sequence.

        Args:
            max_length: most tokens it will hold.
            prefix: int32 ``[n]``, tokens that will be appended first. The sequence may hold some
                of them already: its ``length`` says how many.
        """
        return TextSequence(self, max_length)


@final
class TextSequence:
    """One sequence of a `TextModel`. Not thread-safe; `close` frees its memory."""

    def __init__(self, model: TextModel, max_length: int) -> None:
        self._model = model
        self._size = model.vocabulary.size
        self._capacity = 0  # tokens the runtime's sequence holds; grows up to the buffer's length
        self._ids = np.empty((1, max_length), np.int32)
        self._length = 0
        # The runtime is rewound when it next runs, since how far depends on what is wanted then.
        self._held = 0  # tokens in the runtime's sequence
        self._valid = 0  # how many of these, from the first, are still ours
        self._last_pass = 0  # tokens of the runtime's last pass, whose scores it has
        self._generator: og.Generator | None = None
        self._closed = False

    @property
    def length(self) -> int:
        """Tokens so far."""
        return self._length

    @property
    def token_ids(self) -> TokenIds:
        """All tokens so far, int32 ``[1, length]``, read-only."""
        view = self._ids[:, : self._length]
        view.flags.writeable = False
        return view

    def append(self, token_ids: Sequence[int] | TokenIds) -> None:
        """Append tokens and run the model over them in one pass.

        Raises:
            ModelError: they do not fit, or the runtime refuses a search setting.

        Cost: 17 ms for one token, about 5 ms for each further one (SmolLM2-135M, 2 cores).
        """
        end = self._length + len(token_ids)
        if end > self._ids.shape[1]:
            raise ModelError(
                f"{len(token_ids):,} more tokens do not fit: the sequence has {self._length:,} of "
                f"at most {self._ids.shape[1]:,}."
            )
        if end == self._length:
            return
        self._ids[0, self._length : end] = token_ids
        self._length = end
        self._run(1)

    def logits(self) -> Logits:
        """Return the scores of the next token, float32 ``[1, vocabulary.size]``: a copy."""
        self._run(1)
        logits: Logits = self._open.get_logits()[:, -1, :]
        if logits.shape[1] != self._size:
            raise ModelError(
                f"The model's logits are {logits.shape[1]:,} wide but its vocabulary has "
                f"{self._size:,} ids. Correct vocab_size in genai_config.json, or pass a "
                "vocabulary of that size."
            )
        return logits

    def recent_logits(self, n: int) -> Logits:
        """Return the scores after each of the last ``n`` tokens, float32 ``[n, vocabulary.size]``.

        Cost: a copy of the scores of the latest pass; tokens before it are run again.

        Raises:
            ValueError: there are fewer than ``n`` tokens.
        """
        if not 1 <= n <= self._length:
            raise ValueError(f"{n} scores of a sequence of {self._length} tokens")
        self._run(n)
        logits = self._open.get_output("logits")[0]
        if len(logits) < n:
            raise ModelError(
                "This model keeps the scores of its last token only, so forced tokens cannot be "
                "scored. Pass forced=False."
            )
        return np.array(logits[-n:], np.float32)

    def rewind(self, length: int) -> None:
        """Forget all tokens after the first ``length``; costs nothing by itself.

        The next `logits` runs the last two kept tokens again (1.2 steps).

        Raises:
            ValueError: there are fewer than ``length`` tokens.
        """
        if not 0 <= length <= self._length:
            raise ValueError(f"cannot rewind {self._length} tokens to {length}")
        self._length = length
        self._valid = min(self._valid, length)

    def close(self) -> None:
        """Free the sequence's memory. A second call does nothing."""
        self._generator = None
        self._closed = True

    @property
    def _open(self) -> og.Generator:
        if self._generator is None:
            state = "closed" if self._closed else "empty: append the prompt first"
            raise ValueError(f"the sequence is {state}")
        return self._generator

    def _run(self, n_scored: int) -> None:
        """See that the runtime has all tokens, and the scores after the last ``n_scored``."""
        generator = self._open if self._length <= self._capacity else self._grow()
        if not self._length:
            raise ValueError("the sequence is empty: append the prompt first")
        first = self._valid
        n_new = self._length - first
        if self._held > first or n_scored > (n_new or self._last_pass):
            # Scores do not outlive a rewind: what is wanted is run again. Two tokens at least,
            # because a pass over one rounds differently from passes over more, which agree.
            first = max(min(first, self._length - max(n_scored, 2)), 0)
            generator.rewind_to(first)
        elif not n_new:
            return
        generator.append_tokens(self._ids[0, first : self._length])
        self._last_pass = self._length - first
        self._held = self._valid = self._length

    def _grow(self) -> og.Generator:
        """Replace the runtime's sequence by an empty one for all tokens and many more."""
        if self._closed:
            raise ValueError("the sequence is closed")
        self._generator = None  # its memory first, or both are there at once
        self._held = self._valid = self._last_pass = 0
        self._capacity = min(
            self._ids.shape[1], max(self._length + _SPARE_TOKENS, 4 * self._capacity)
        )
        params = og.GeneratorParams(self._model.og_model)
        try:
            params.set_search_options(max_length=self._capacity, **_SETTINGS)
            self._generator = og.Generator(self._model.og_model, params)
        except Exception as error:
            raise ModelError(f"ONNX Runtime GenAI refuses to start a sequence: {error}") from error
        return self._generator


def load(folder: Path) -> TextModel:
    """Load a model folder that ONNX Runtime GenAI understands.

    Args:
        folder: has ``genai_config.json``, ``tokenizer.json`` and the weights.

    Raises:
        ModelError: a file is missing or the runtime cannot load the model.
        VocabularyError: ``tokenizer.json`` cannot be understood.

    Cost: 0.8 s for SmolLM2-135M, and 0.3 s for its vocabulary.
    """
    config = _read_config(folder)
    vocabulary = _folder_vocabulary(folder, config)
    try:
        og_model = og.Model(str(folder))
        og_tokenizer = og.Tokenizer(og_model)
    except Exception as error:
        raise ModelError(f"ONNX Runtime GenAI cannot load {folder}: {error}") from error
    return TextModel(
        og_model,
        og_tokenizer,
        vocabulary=vocabulary,
        context_length=int(config["model"]["context_length"]),
        search_defaults=_search_defaults(og_model, config),
        folder=folder,
    )


def from_onnx_genai(
    og_model: og.Model,
    og_tokenizer: og.Tokenizer,
    *,
    folder: Path | None = None,
    vocabulary: Vocabulary | None = None,
) -> TextModel:
    """Wrap a model and a tokenizer that are already loaded.

    With neither ``folder`` nor ``vocabulary`` the bytes of each token are worked out from the
    tokenizer itself, with certainty or an error (0.3 s at 49k tokens, 0.7 s at 262k).

    Args:
        og_model: an ``onnxruntime_genai.Model``.
        og_tokenizer: its ``onnxruntime_genai.Tokenizer``.
        folder: the model's folder, to read the vocabulary from.
        vocabulary: the vocabulary; its size must be the width of the logits.

    Raises:
        ModelError: the objects are not the runtime's, or sizes do not agree.
        VocabularyError: the bytes of a token cannot be established; pass ``folder``.
    """
    if not isinstance(og_model, og.Model) or not isinstance(og_tokenizer, og.Tokenizer):
        raise ModelError(
            "from_onnx_genai takes an onnxruntime_genai.Model and its Tokenizer, not "
            f"{type(og_model).__name__} and {type(og_tokenizer).__name__}. "
            "To load a folder or a catalogue name, call structgen.load."
        )
    width = _probe_width(og_model)
    if folder is None:
        config = None
        context_length = _probe_context_length(og_model)
    else:
        config = _read_config(folder)
        context_length = int(config["model"]["context_length"])
        if vocabulary is None:
            vocabulary = _folder_vocabulary(folder, config)
    if vocabulary is None:
        tokens = recover.token_bytes(og_tokenizer.decode, og_tokenizer.to_token_id, width)
        eos = [int(token_id) for token_id in og_tokenizer.eos_token_ids]
        vocabulary = Vocabulary.from_tokens(
            tokens, eos, special_token_ids=[i for i, text in enumerate(tokens) if not text]
        )
    if vocabulary.size != width:
        raise ModelError(
            f"The model's logits are {width:,} wide but the vocabulary has {vocabulary.size:,} "
            "ids. Pass a vocabulary made with size= that width."
        )
    return TextModel(
        og_model,
        og_tokenizer,
        vocabulary=vocabulary,
        context_length=context_length,
        search_defaults=_search_defaults(og_model, config),
        folder=folder,
    )


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "genai_config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        model = config["model"]
        for name in ("vocab_size", "context_length", "eos_token_id"):
            model[name]
    except FileNotFoundError:
        raise ModelError(
            f"{folder} has no genai_config.json, so it is not an ONNX Runtime GenAI model folder. "
            "Convert a GGUF file with: structgen models convert FILE.gguf OUT"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} cannot be understood: {error!r}") from error
    return dict(config)


def _folder_vocabulary(folder: Path, config: Mapping[str, Any]) -> Vocabulary:
    model = config["model"]
    eos = model["eos_token_id"]
    return Vocabulary.from_tokenizer_json(
        folder / "tokenizer.json",
        eos_token_ids=[eos] if isinstance(eos, int) else eos,
        size=int(model["vocab_size"]),
    )


def _search_defaults(og_model: og.Model, config: Mapping[str, Any] | None) -> Mapping[str, Any]:
    params = og.GeneratorParams(og_model)
    if hasattr(params, "get_search_options"):  # the runtime has it since 0.12
        return dict(params.get_search_options())
    return {} if config is None else dict(config.get("search", {}))


def _probe_context_length(og_model: og.Model) -> int:
    # The runtime names the context length only when asked for more, which it checks first thing.
    params = og.GeneratorParams(og_model)
    params.set_search_options(max_length=2**31 - 1)
    try:
        og.Generator(og_model, params)
    except Exception as error:
        found = re.search(r"context_length \((\d+)\)", str(error))
        if found:
            return int(found[1])
    raise ModelError("The model does not tell its context length. Pass folder=, its folder.")


def _probe_width(og_model: og.Model) -> int:
    params = og.GeneratorParams(og_model)
    params.set_search_options(max_length=2)
    generator = og.Generator(og_model, params)
    generator.append_tokens(np.zeros(1, np.int32))
    return int(generator.get_logits().shape[-1])
