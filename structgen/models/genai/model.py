"""A text model on ONNX Runtime GenAI.

Here are tokens, chat templates, LoRA adapters, sequences, and vectors of texts (the pooled input of
the last projection). Implements the protocols of `structgen.models.base`. Knows no loading, output
types, masks or decode loop.

What the runtime does, measured with 0.18 (and 0.11, the last for Python 3.10) and relied on here:

* ``append_tokens`` runs the model; ``get_logits`` returns a copy of the last token's scores.
* `structgen.sampling.sampler` chooses tokens: the runtime's own sampling would tie a sequence to
  one call's settings. Appending a token costs the same as ``generate_next_token``. Only the
  likeliest allowed token is chosen by the runtime, if the graph has a mask.
* ``set_model_input`` keeps the array's address: the next pass reads the array's current content.
* After ``rewind_to(n)`` the scores are gone: the last kept token must be run again.
* ``max_length`` sizes the key-value cache, which is zeroed when the sequence is made: 0.77 s and
  360 MB for SmolLM2's 8,192 tokens, 0.03 s for 512. So sequences start small and grow.
* It sends usage data unless ``ORT_DISABLE_TELEMETRY`` is set when it is first used; its own
  ``disable_telemetry_events`` does not stop all of it.
* The interpreter lock is held while the model runs: Ctrl-C acts between steps.
* ``get_output`` raises for a missing output; in 0.11 it ends the process.
"""

from __future__ import annotations

import functools
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from structgen.errors import ModelError, PromptError, counted
from structgen.media import Audio, Image, Media
from structgen.models import damage, health, trial
from structgen.models.base import (
    MASK_INPUT,
    ON_CPU,
    ON_CUDA_GRAPH,
    ON_GPU,
    ON_INT8_CPU,
    ON_MEDIA,
    PREFIXES_OF,
    SCORES_ON_GPU,
    Allowed,
    DraftModel,
    LoadOptions,
    MediaPrompt,
    Pace,
    Passes,
    Perceived,
    after_start,
    passes,
    run_passes,
)
from structgen.models.listening import Listening, Transcript, Window, WindowTranscript
from structgen.models.loading import in_short
from structgen.models.progress import Progress, late
from structgen.options import Real, Word
from structgen.sampling import Logits, TokenIds
from structgen.storage.user_folder import NUL, inside
from structgen.vocabulary import Vocabulary

from . import runtime
from .folders import graph_name, read_config
from .media import MediaReader
from .runtime import Running, og
from .sequences import (
    MOST_ROWS,
    LiveSequence,
    MaskBytes,
    SequencePool,
    TextBatch,
    TextSequence,
    all_allowed,
    pads_exactly,
)
from .sound import decoding
from .whisper import Whisper

OUTPUT = "hidden_states"
"""The name of a graph's output with a vector per token."""

FloatArray = npt.NDArray[np.float32]


def no_output(name: str) -> ModelError:
    """Return the error for a model without this output."""
    error = ModelError(
        f"{name} has no output {OUTPUT!r}, so it cannot embed. Convert it with "
        "`structgen models convert FILE.gguf OUT --hidden-states`, or use an embedder: "
        "structgen.load_embedder('all-minilm-l6-v2')."
    )
    error.lacks = OUTPUT
    return error


def no_transcripts(name: str) -> ModelError:
    """Return the error for a model that cannot transcribe; ``name``: the model's name."""
    error = ModelError(f"{name} cannot transcribe audio. {_THOSE_THAT_HEAR}")
    error.lacks = "transcripts"
    return error


def has_output(folder: Path | None) -> bool:
    """Return whether the graph in a folder has the output; False without a folder.

    Cost: reading the graph's file.
    """
    if folder is None:
        return False
    import onnx_ir

    graph = onnx_ir.load(inside(folder, graph_name(read_config(folder)))).graph
    return any(output.name == OUTPUT for output in graph.outputs)


PREFIX_CACHE = 512 << 20
"""Bytes of key-value caches that are kept between calls by default: 11,000 tokens of SmolLM2,
21,000 of Qwen2.5 0.5B."""

_THOSE_THAT_SEE = (
    "Load a model folder with image support for ONNX Runtime GenAI, such as "
    "microsoft/Phi-3.5-vision-instruct-onnx, Qwen2.5-VL, Gemma 3 or Phi-4-multimodal."
)
_THOSE_THAT_HEAR = 'Load Whisper: structgen.load("whisper-tiny.en"), or convert a larger one.'


def _named(media: Sequence[Media]) -> str:
    n_pictures = sum(isinstance(one, Image) for one in media)
    counts = (n_pictures, "picture"), (len(media) - n_pictures, "sound")
    return " and ".join(counted(n, noun) for n, noun in counts if n)


# A folder's own settings must not make the runtime refuse a sequence, nor choose another token than
# the likeliest. Settings of the second kind that a version lacks cannot be reset.
_SETTINGS = {"do_sample": False, "num_beams": 1, "num_return_sequences": 1}
_LIKELIEST = {"repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "min_length": 0}


def _after_nul(what: str) -> PromptError:
    """Return the error for a NUL: the runtime uses C strings, and would drop the rest."""
    return PromptError(f"{what} contains a NUL character. Remove it.")


class TextModel:
    """A text model, its tokenizer and its vocabulary. Safe to share by threads.

    Make one with `structgen.load` or `structgen.from_onnx_genai`.

    Attributes:
        name: its name in messages: the folder's name.
        folder: its folder; None: it was passed in as objects.
        vocabulary: the vocabulary; its ``size`` is the width of the logits.
        context_length: most tokens of a sequence, prompt and output together.
        start_ids: the tokens that start a text prompt, often none or one.
        search_defaults: the model's own search settings, from ``genai_config.json``.
        options: its load options; None: it was passed in as objects.
        device: the runtime's name of the device: ``"CPU"``, ``"CUDA"``.
        deterministic: whether an output is the same to the bit however its passes are divided.
        draft: the draft model, if there is one.
        has_cuda_graph: whether it runs as a CUDA graph, one sequence at a time.
        has_mask: whether its graph has a mask input, so that the runtime can choose tokens.
        reader: reads pictures and sounds; None: only text.
        og_model: the runtime's model object. With `has_mask`, its generators need the mask input.
        og_tokenizer: the runtime's tokenizer object.
        sequences: sequences of earlier calls, for prompts with the same beginning; see
            `structgen.models.genai.sequences`.
    """

    def __init__(
        self,
        og_model: og.Model,
        og_tokenizer: og.Tokenizer,
        *,
        vocabulary: Vocabulary,
        context_length: int,
        search_defaults: Mapping[str, Any],
        bytes_per_token: int,
        start_ids: Sequence[int] = (),
        folder: Path | None = None,
        options: LoadOptions | None = None,
        template: str | None = None,
        has_mask: bool = False,
        has_cuda_graph: bool = False,
        draft: DraftModel | None = None,
        reader: MediaReader | Whisper | None = None,
    ) -> None:
        self.draft = draft
        self.reader = reader
        self.device = str(getattr(og_model, "device_type", "CPU"))
        self.has_cuda_graph = has_cuda_graph
        given = options or LoadOptions()
        self.deterministic = given.deterministic
        self.start_ids = tuple(start_ids)
        self.has_mask = has_mask
        self._everything: dict[int, MaskBytes] = {}  # by number of rows
        self.options = options
        self._template = template
        self.og_model = og_model
        self.og_tokenizer = og_tokenizer
        self.vocabulary = vocabulary
        self.context_length = context_length
        self.folder = folder
        self.name = folder.name if folder is not None else f"{og_model.type} model"
        self.search_defaults: Mapping[str, Any] = MappingProxyType(dict(search_defaults))
        known = {k: v for k, v in _LIKELIEST.items() if k in search_defaults}
        self._settings = {**_SETTINGS, **known}
        self._adapters: Any = None  # the runtime's set of adapters, made with the first
        self._adapter_files: dict[str, Path] = {}
        self.adapter_loads = 0
        kept = PREFIX_CACHE if given.prefix_cache is None else given.prefix_cache
        self.sequences = SequencePool(bytes_per_token, kept, given.prefix_cache_n)

    def __repr__(self) -> str:
        return (
            f"TextModel({self.name!r}, vocabulary={self.vocabulary.size:,}, "
            f"context_length={self.context_length:,})"
        )

    def encode(self, text: str) -> TokenIds:
        """Return the token ids of ``text``, int32 ``[n]``.

        Nothing is added, not even `start_ids`. Names of special tokens in the text are recognised,
        as chat templates need.

        Raises:
            PromptError: the tokenizer has no token for a character, or returns one that the model
                has no scores for.
        """
        if "\0" in text:
            raise _after_nul("The text")
        token_ids = np.asarray(self.og_tokenizer.encode(text), np.int32)
        outside = token_ids[token_ids.view(np.uint32) >= self.vocabulary.size]  # or negative
        if len(outside) and outside[0] < 0:
            raise PromptError(
                f"The prompt contains a character for which the tokenizer of {self.name} has no "
                "token, such as a control character. Remove it."
            )
        if len(outside):
            raise PromptError(
                f"The prompt contains token {outside[0]} of the tokenizer of {self.name}, but the "
                f"model has only {self.vocabulary.size:,} tokens. It is an added token, such as "
                "an image token, whose name is in the text. Remove it."
            )
        return token_ids

    def decode(self, token_ids: Sequence[int] | TokenIds) -> str:
        """Return the text of ``token_ids`` without special tokens; invalid UTF-8 becomes U+FFFD."""
        tokens = self.vocabulary.tokens
        return b"".join(tokens[int(token_id)] for token_id in token_ids).decode(errors="replace")

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        """Return the text of a chat, up to the beginning of the assistant's answer.

        Args:
            messages: the chat.
            tools: tools as in OpenAI's API, for templates that describe them.

        Raises:
            PromptError: the model has no chat template, or the template refuses these messages.
        """
        given: dict[str, Any] = (
            {} if tools is None else {"tools": json.dumps(list(tools), ensure_ascii=False)}
        )
        try:
            chat = json.dumps(list(messages), ensure_ascii=False)
            for what, text in (("A message", chat), ("A tool", given.get("tools", ""))):
                if "\\u0000" in text and NUL.search(text):
                    raise _after_nul(what)
            return str(self._apply(chat, add_generation_prompt=True, **given))
        except (RuntimeError, TypeError, ValueError) as error:
            raise PromptError(
                f"Cannot apply the chat template of {self.name} to these messages: {error}. Check "
                "the roles and their order, or pass the prompt as one string."
            ) from error

    @functools.cached_property
    def _apply(self) -> Callable[..., str]:
        """Return the function that applies the chat template.

        The runtime would parse a passed template in each call, which takes 0.2 s for one like Gemma
        4's. So a second tokenizer object has it as its own.
        """
        own: Callable[..., str] = self.og_tokenizer.apply_chat_template
        if self._template is None:
            return own
        apply = parsed = functools.partial(own, template_str=self._template)
        names = "bos_token", "eos_token"
        ends = {name: own("[]", template_str=f"{{{{ {name} }}}}") for name in names}
        try:
            with tempfile.TemporaryDirectory() as name:
                trial.write_nothing(Path(name), {"chat_template": self._template, **ends})
                apply = trial.tokenizer(og, name).apply_chat_template
            apply("[]")
        except (OSError, RuntimeError) as error:
            # Only for a passed template does the runtime say why it cannot be parsed.
            if "unsupported chat template" in str(error):
                return parsed
        return apply

    def perceive(self, media: Sequence[Media]) -> Perceived:
        """Read pictures and sounds: as `structgen.models.base.Model.perceive`."""
        if self.reader is None:
            raise PromptError(
                f"{self.name} accepts only text, but the prompt has {_named(media)}. "
                f"{_THOSE_THAT_SEE if Image in map(type, media) else _THOSE_THAT_HEAR}"
            )
        return self.reader.perceive(media)

    def start(
        self,
        max_length: int,
        *,
        prefix: TokenIds | None = None,
        adapter: str | None = None,
        media: MediaPrompt | None = None,
    ) -> TextSequence:
        """Begin a sequence: as `structgen.models.base.Model.start`."""
        if media is None and isinstance(self.reader, Whisper):
            raise PromptError(
                f"{self.name} needs audio, but the prompt has none. Pass "
                "[structgen.media.Audio(path)], optionally with text before it."
            )
        room, owner = min(max_length, self.context_length), PREFIXES_OF.get()
        live, least = None, 0
        if prefix is not None and self._rewinds:
            live, least = self.sequences.take(prefix, adapter, room, owner)
        if live is None:
            live = LiveSequence(
                functools.partial(self._new_sequence, adapter),
                context_length=self.context_length,
                width=self.vocabulary.size,
                longest_pass=self.pace.longest_pass,
                deterministic=self.deterministic,
                has_mask=self.has_mask,
                key=adapter,
                least=least,
                owner=owner,
                rewinds=self._rewinds,
                media=media,
            )
        n_expected = 0 if prefix is None else len(prefix)
        return TextSequence(live, max_length, self.sequences.give, n_expected)

    @functools.cached_property
    def _rewinds(self) -> bool:
        """Whether the runtime can rewind: not with pictures, nor for LFM 2."""
        if self.reader is not None:
            return False
        try:
            sequence = self._new_sequence(None, 4)
            sequence.append_tokens(np.zeros(3, np.int32))
            sequence.rewind_to(1)
        except ModelError:
            return False
        return True

    @property
    def pace(self) -> Pace:
        """The cost of passes on the model's kind of device."""
        if self.has_cuda_graph:
            return ON_CUDA_GRAPH
        if self.reader is not None:
            return ON_MEDIA
        if self.device != "CPU":
            return replace(ON_GPU, scores=SCORES_ON_GPU * self.vocabulary.size)
        return ON_INT8_CPU if health.has_int8_products() else ON_CPU

    @property
    def most_rows(self) -> int:
        """Most sequences that the runtime runs in a batch."""
        alone = self.has_cuda_graph or self.deterministic or self.reader is not None
        return 1 if alone else MOST_ROWS

    def start_batch(
        self,
        rows: Sequence[TokenIds],
        room: int,
        *,
        adapter: str | None = None,
        allowed: Sequence[Allowed | int | None] | None = None,
    ) -> TextBatch | None:
        """Begin a batch and run the model over its first tokens, as `Model.start_batch` says.

        Returns:
            The batch; None: the rows have different lengths and the model does not pad exactly.

        Cost: as if each row were as long as the longest; and once 0.1 s to test whether the model
        pads exactly.
        """
        pad = self.og_tokenizer.pad_token_id  # no token, unless the model was passed in
        if any(row[-1] == pad for row in rows) or (len({*map(len, rows)}) > 1 and not self._pads):
            return None
        return self._new_batch(rows, room, adapter, allowed)

    def _new_batch(
        self,
        rows: Sequence[TokenIds],
        room: int,
        adapter: str | None = None,
        allowed: Sequence[Allowed | int | None] | None = None,
    ) -> TextBatch:
        return TextBatch(
            functools.partial(self._new_sequence, adapter),
            rows,
            room=room,
            context_length=self.context_length,
            width=self.vocabulary.size,
            pad_token_id=int(self.og_tokenizer.pad_token_id),
            has_mask=self.has_mask,
            allowed=allowed,
        )

    @functools.cached_property
    def _pads(self) -> bool:
        def alone(row: TokenIds) -> Logits:
            sequence = self.start(len(row))
            sequence.append(row)
            logits = sequence.logits()
            sequence.close()
            return logits

        return pads_exactly(lambda rows: self._new_batch(rows, 16), alone)

    def embed(
        self,
        texts: str | Iterable[str],
        *,
        pooling: str = "last",
        dimensions: int | None = None,
        normalize: bool = True,
        progress: Progress | None = None,
    ) -> npt.NDArray[np.float32]:
        """Return vectors of texts, float32 ``[n, dimensions]``, from the model's last layer.

        The model must have been converted with ``--hidden-states``. A text is run after
        `start_ids`, without a chat template, and must fit the context. The vector of a text without
        tokens is zero.

        Args:
            texts: one text (``n`` = 1) or several.
            pooling: the vector of the ``"last"`` token, or the ``"mean"`` of all.
            dimensions: number of leading values of each vector to keep.
            normalize: scale each vector to length 1.
            progress: called with the number of texts done; by default a bar on a terminal's
                standard error if the call takes longer than a second.

        Raises:
            ModelError: the model lacks the output.
            PromptError: a text is longer than the context.
            OptionError: an option is unknown or out of range, or a text is not a str.

        Cost: that of running the texts as prompts, one after the other. An embedder
        (`structgen.load_embedder`) is many times faster and made for this.
        """
        from structgen.models.embedding import checked_texts

        tokens = map(self.encode, checked_texts(texts))
        rows = [after_start(self.start_ids, row) if len(row) else row for row in tokens]
        with late(progress) as report:

            def done(n_texts: int) -> None:
                report(f"Embedding with {self.name}", n_texts, len(rows))

            how: Any = {"pooling": pooling, "dimensions": dimensions, "normalize": normalize}
            return run_passes(self.embedding(rows, done=done, **how))

    def embedding(
        self,
        rows: Sequence[TokenIds],
        *,
        pooling: str = "last",
        dimensions: int | None = None,
        normalize: bool = True,
        done: Callable[[int], None] = lambda n_texts: None,
    ) -> Passes[FloatArray]:
        """Return the vectors of texts given as tokens; yield before each pass. Raises as `embed`.

        Texts run one after the other, and each is pooled at once to save memory. ``done`` is called
        with the number of finished texts.
        """
        # Imported late: ONNX Runtime, which generating does not need.
        from structgen.models.embedding import pooling as pools

        hears = isinstance(self.reader, Whisper)
        if hears or (runtime.OLD and not has_output(self.folder)):
            raise no_output(self.name)
        kind = pools.check_pooling(pooling)
        for i, row in enumerate(rows):
            if len(row) >= self.context_length:
                raise PromptError(
                    f"Text {i} has {len(row):,} tokens, but the context of {self.name} is "
                    f"{self.context_length:,}. Split it."
                )
        # A text without tokens is run as another one, whose vector is left out; so is an empty
        # list.
        nothing = np.zeros(1, np.int32)
        some = [row if len(row) else nothing for row in rows] or [nothing]
        sequence: Any = None
        out: list[FloatArray] = []
        for row in some:
            if out and self.reader is None:
                sequence.rewind_to(0)
            elif out:
                sequence = None
            parts = []
            for part in passes(row, self.pace.longest_pass):
                yield
                if sequence is None:
                    sequence = self._new_sequence(None, max(map(len, some)) + 1)
                sequence.append_tokens(part)
                try:
                    parts.append(np.array(sequence.get_output(OUTPUT)[0], np.float32))
                except Exception as error:
                    raise no_output(self.name) from error
            vectors = pools.pool(np.concatenate(parts)[None], [len(row)], kind)
            out.append(pools.checked(vectors, self.name)[0])
            done(min(len(out), len(rows)))
        found = np.array(out)[: len(rows)]
        found[[not len(row) for row in rows]] = 0
        return pools.finish(found, dimensions, normalize)

    def transcribe(self, audio: Audio, *, prompt: str = "", temperature: float = 0.0) -> Transcript:
        """Transcribe a sound of any length, with the times of its sentences.

        The model must be Whisper. It reads 30 seconds at once; the next window begins where the
        last complete sentence ended.

        Args:
            audio: the sound, with its language and whether to translate it into English.
            prompt: text that could come before each window, to show how names and words are spelt.
            temperature: randomness. At 0, a window is transcribed again with a higher one if the
                model was unsure or repeated itself.

        Raises:
            ModelError: the model is not Whisper.
            PromptError: the sound cannot be read, is too long, or the model does not know its
                language.
            OptionError: the temperature is out of range.

        Cost: for each window a pass of the encoder, and a pass per token. Whisper tiny transcribes
        a minute in 6 seconds on 2 cores.
        """
        listening = run_passes(self.listening(audio, prompt, temperature))
        while (window := listening.window) is not None:
            listening.add(run_passes(self.hearing(window)))
        return listening.transcript

    def listening(
        self, audio: Audio, prompt: str = "", temperature: float = 0.0
    ) -> Passes[Listening]:
        """Return the `Listening` of a sound before its first window; arguments as `transcribe`."""
        if not isinstance(self.reader, Whisper):
            raise no_transcripts(self.name)
        if not isinstance(audio, Audio):
            raise PromptError(
                f"transcribe takes a structgen.media.Audio, got {type(audio).__name__}."
            )
        temperature = Real(0, 1)("temperature", temperature)
        words = Word()("prompt", prompt).strip()
        token_ids = self.encode(f" {words}") if words else np.empty(0, np.int32)
        first = Window(np.empty(0, np.float32), *self.reader.task_of(audio), token_ids, temperature)
        return Listening((yield from decoding(audio.data)), first)

    def hearing(self, window: Window) -> Passes[WindowTranscript]:
        """Transcribe a window of `listening`, pass by pass."""
        assert isinstance(self.reader, Whisper)
        return self.reader.transcribe(window)

    def close(self) -> None:
        """Free the sequences kept for later calls. The model stays usable.

        Those of a draft model that was loaded with it are freed, too; those of a passed one are
        not.
        """
        self.sequences.clear()
        if self.draft is not None and self.draft.close is not None:
            self.draft.close()

    @property
    def adapters(self) -> tuple[str, ...]:
        """The names of the loaded adapters."""
        return tuple(sorted(self._adapter_files))

    @property
    def adapter_files(self) -> Mapping[str, Path]:
        """The files of the loaded adapters by name."""
        return dict(self._adapter_files)

    def load_adapter(self, path: str | os.PathLike[str], name: str) -> None:
        """Load a LoRA adapter, to be used by calls that pass ``adapter=name``.

        Args:
            path: an ``.onnx_adapter`` file. Its parameters must be inputs of the model's graph, so
                the model must have been exported for adapters.
            name: its name in calls.

        Raises:
            ModelError: the file does not exist, the runtime cannot read it, the name is taken, or
                the model has no inputs for it.

        Cost: a pass of the model over one token, as a test.
        """
        file = Path(path).expanduser()
        if name in self._adapter_files:
            raise ModelError(f"An adapter named {name!r} is already loaded. Unload it first.")
        if not file.is_file():
            raise ModelError(f"The file {file} does not exist. Pass an .onnx_adapter file.")
        if lack := damage.of_adapter(file, self.folder, MASK_INPUT):
            raise ModelError(lack.problem)
        if self._adapters is None:
            self._adapters = og.Adapters(self.og_model)
        try:
            self._adapters.load(str(file), name)
        except Exception as error:
            raise ModelError(
                f"ONNX Runtime GenAI cannot read the adapter {file}: {in_short(error)}."
            ) from error
        self._adapter_files[name] = file.absolute()
        self.adapter_loads += 1
        try:
            self._new_sequence(name, 16).append_tokens(np.zeros((1, 1), np.int32))
            return
        except Exception as error:
            why = in_short(error)
        self.unload_adapter(name)  # not before: the error refers to the sequence that uses it
        if "Invalid input name" in why:
            why = f"{self.name} was not exported with inputs for it ({why})"
        raise ModelError(f"The adapter {name!r} does not fit the model: {why}.")

    def unload_adapter(self, name: str) -> None:
        """Unload an adapter, and free the sequences kept from its calls.

        Raises:
            ModelError: it is not loaded, or a running call uses it.
        """
        self._check_adapter(name)
        self.sequences.clear(name)
        try:
            self._adapters.unload(name)
        except Exception as error:
            raise ModelError(f"The adapter {name!r} cannot be unloaded: {error}") from error
        del self._adapter_files[name]

    def _check_adapter(self, name: str) -> None:
        """Raise a `ModelError` with the loaded adapters if ``name`` is not one of them."""
        if name not in self._adapter_files:
            loaded = ", ".join(self.adapters) or "none"
            raise ModelError(f"No adapter named {name!r} is loaded (loaded: {loaded}).")

    def _new_sequence(
        self, adapter: str | None, capacity: int, mask: MaskBytes | None = None, rows: int = 1
    ) -> Running:
        """Make the runtime's sequences; each pass reads ``mask``, which must outlive them."""
        params = og.GeneratorParams(self.og_model)
        params.set_search_options(max_length=capacity, batch_size=rows, **self._settings)
        generator = Running(self.og_model, params, self.name)
        if adapter is not None:
            self._check_adapter(adapter)
            generator.set_active_adapter(self._adapters, adapter)
        if self.has_mask:
            if mask is None:
                mask = self._everything.setdefault(rows, all_allowed(self.vocabulary.size, rows))
            generator.set_model_input(MASK_INPUT, mask)
        return generator
