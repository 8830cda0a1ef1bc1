"""Open a `TextModel` from a folder or from the runtime's own objects.

Here is everything before a model's first call: the session, the vocabulary, context length,
settings and the size of its cache, and clear errors for folders that cannot be loaded.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from structgen.errors import ModelError, OptionError
from structgen.models import damage, trial
from structgen.models.base import MASK_INPUT, DraftModel, LoadOptions
from structgen.models.loading import in_short, read_options, remedied, remedy
from structgen.options import OPTIONS, Whole
from structgen.storage.user_folder import WRONG, document
from structgen.vocabulary import Vocabulary

from . import runtime
from .folders import (
    folder_vocabulary,
    masked_graph,
    read_ahead,
    read_config,
    start_ids,
    token_bytes,
)
from .media import SEEING, MediaReader
from .model import TextModel
from .runtime import og
from .sequences import MaskBytes, all_allowed
from .whisper import TEMPLATE, Whisper

ModelT = TypeVar("ModelT", bound=TextModel)

_DEFAULTS = LoadOptions()

_OTHER_PARTS = {"vision", "speech"}
"""The parts of a configuration, beside the decoder, of models that read pictures or sounds."""

_TEMPLATE_BYTES = 1_000_000  # the longest in use have about 20,000


def load(
    folder: Path,
    options: LoadOptions = _DEFAULTS,
    *,
    meanwhile: Callable[[Vocabulary], object] | None = None,
    kind: type[ModelT],
) -> ModelT:
    """Load a model folder that ONNX Runtime GenAI understands.

    Args:
        folder: the folder with ``genai_config.json``, ``tokenizer.json`` and the weights.
        options: as for `structgen.load`, and so are errors; ``draft_model`` is a folder or a loaded
            model.
        meanwhile: called with the vocabulary while the system reads the weights from disk.
        kind: the class of the returned model.

    Cost: 0.8 s for SmolLM2-135M, and 0.3 s for its vocabulary.
    """
    names, options_of, others = read_options(
        options.providers, options.session_options, options.threads
    )
    if options.threads is not None:
        others["intra_op_num_threads"] = options.threads
    config = read_config(folder)
    lacking = damage.find(folder)
    if lacking:
        raise ModelError(remedied(folder, lacking))
    vocabulary = folder_vocabulary(folder, config)
    draft, draft_tokens = None, options.draft_tokens
    if draft_tokens is not None:
        Whole(1)("draft_tokens", draft_tokens)
    small = options.draft_model
    if isinstance(small, Path):
        alike = replace(
            options, deterministic=False, chat_template=None, draft_model=None, draft_tokens=None
        )
        small = load(small, alike, kind=TextModel)
    if small is not None:
        close = None if small is options.draft_model else small.close
        draft = DraftModel(small, _share(small, folder, vocabulary, config), draft_tokens, close)
    elif draft_tokens is not None:
        raise OptionError("draft_tokens= requires draft_model=.")
    if meanwhile is not None:
        # The runtime holds the interpreter lock while it loads, so our threads would not run.
        read_ahead(folder)
        meanwhile(vocabulary)
    is_whisper = config["model"].get("type") == "whisper"
    takes_media = is_whisper or bool(_OTHER_PARTS & config["model"].keys())
    if takes_media and (options.deterministic or small is not None):
        raise OptionError(
            f"{folder.name} reads images or audio, and the runtime cannot rewind such models. "
            "Remove deterministic= and draft_model=."
        )
    masked = None if takes_media else masked_graph(folder, config)
    given = TEMPLATE if is_whisper else options.chat_template or _first_template(folder)
    template = None if given is None else _template(given)
    rendered = None if template is None else _like_transformers(template)
    trial.check(folder, rendered)
    try:
        og_model = og.Model(_session_config(folder, names, options_of, others, masked))
        if masked and not _takes_masks(og_model, vocabulary.size):
            masked = None
            og_model = og.Model(_session_config(folder, names, options_of, others))
        og_tokenizer = og.Tokenizer(og_model)
        reads = Whisper if is_whisper else MediaReader
        reader = reads(og_model, folder.name, vocabulary) if takes_media else None
        search_defaults = _search_defaults(og_model, config)
        mask = all_allowed(vocabulary.size) if masked else None
        bytes_per_token = 0 if takes_media else _bytes_per_token(og_model, config, mask)
        cache_dtype = _cache_dtype(og_model, config, mask)
        has_cuda_graph = _has_cuda_graph(config, names, options_of)
    except Exception as error:
        reason, hint = str(error), ""
        if "provider option" in reason:
            hint = " Correct session_options=."
        elif "tokenizer class" in reason:
            hint = " Set tokenizer_class in its tokenizer_config.json to PreTrainedTokenizerFast."
        elif "parse" in reason or "parsing" in reason:
            hint = f" {runtime.OLD or remedy(folder)}"
        elif names and "cuda" in names:
            hint = f" {_CUDA_LIBRARIES}"
        raise ModelError(
            f"ONNX Runtime GenAI cannot load {folder}: {in_short(error)}.{hint}"
        ) from error
    _check_device(og_model, folder, names, cache_dtype)
    _check_defaults(folder, search_defaults)
    return kind(
        og_model,
        og_tokenizer,
        vocabulary=vocabulary,
        context_length=int(config["model"]["context_length"]),
        search_defaults=search_defaults,
        bytes_per_token=bytes_per_token,
        start_ids=start_ids(folder, vocabulary),
        folder=folder,
        # They may have to be sent to another process.
        options=replace(
            options,
            chat_template=template,
            draft_model=None if small is None or small.folder is None else small.folder.absolute(),
        ),
        template=rendered,
        has_mask=masked is not None,
        has_cuda_graph=has_cuda_graph,
        draft=draft,
        reader=reader,
    )


def _first_template(folder: Path) -> Path | str | None:
    """Return a template that the runtime would ignore or render differently from transformers.

    That is the template's file, which takes precedence in transformers; any template, if the folder
    names no tokenizer class; or one that `_like_transformers` changes.
    """
    file, settings = folder / damage.TEMPLATE, dict[str, Any]()
    for name in ("chat_template.json", "tokenizer_config.json"):
        with contextlib.suppress(*WRONG):  # the runtime reports these
            settings |= document(folder / name)
    own, has_class = settings.get("chat_template"), settings.get("tokenizer_class")
    if file.is_file():
        return file
    if not isinstance(own, str) or "{" not in own or len(own) > _TEMPLATE_BYTES:
        return None
    return None if has_class and _like_transformers(own) == own else own


def _up_to(end: str) -> str:
    """Match the rest of a tag, or of the template if the tag has no end, so that no text is read
    twice."""
    quoted = r"""'(?:\\.?|[^'\\])*(?:'|\Z)|"(?:\\.?|[^"\\])*(?:"|\Z)"""
    return rf"""(?:{quoted}|[^'"{end}]+|{end}(?!\}}))*(?:{end}\}}|\Z)"""


_TAG = re.compile(
    r"(?:^[ \t]+(?!\{[%\#]-))?"  # hyphens trim in the runtime, too
    rf"(\{{%{_up_to('%')}|\{{\{{{_up_to('}')}|\{{\#.*?(?:\#\}}|\Z))"
    r"(?:(?<!-[%\#]\})\n(?!\s*\{[{%\#]-|\Z))?",
    re.MULTILINE | re.DOTALL,
)


def _like_transformers(template: str) -> str:
    """Return a template that the runtime renders as transformers does.

    In transformers, a line with only statements or comments adds nothing to the prompt
    (``trim_blocks``, ``lstrip_blocks``); in the runtime its blanks and line end are text. Do not
    apply it twice: that would remove empty lines.

    In transformers, ``tools`` and ``documents`` are None in a chat without any; in the runtime they
    are undefined, for which `is not none` is true.
    """
    text = re.sub("\r\n?", "\n", template)
    unset = (
        f"{{% if {name} is not defined %}}{{% set {name} = none %}}{{% endif %}}"
        for name in ("tools", "documents")
        if name in text
    )
    return "".join(unset) + _TAG.sub(lambda found: found[found[1][1] != "{"], text)


def _template(given: str | os.PathLike[str]) -> str:
    """Return a chat template that was passed as text or as a file.

    Raises:
        OptionError: the file cannot be read, or is not a template.
    """
    if isinstance(given, str) and "{" in given:
        return given
    try:
        with open(given, encoding="utf-8") as file:
            text = file.read(_TEMPLATE_BYTES + 1)
    except (OSError, ValueError, TypeError) as error:
        raise OptionError(
            f"chat_template={os.fspath(given)!r} is neither a Jinja template (it has no braces) "
            f"nor a readable file: {error}"
        ) from error
    if "{" not in text or len(text) > _TEMPLATE_BYTES:
        raise OptionError(
            f"chat_template={os.fspath(given)!r} does not contain a Jinja template of at most "
            f"{_TEMPLATE_BYTES:,} characters."
        )
    return text


def _share(
    draft: TextModel, folder: Path, vocabulary: Vocabulary, config: Mapping[str, Any]
) -> float:
    """Return the cost of a draft model's pass relative to the model in ``folder``.

    It is the ratio of the sizes of files, because a pass reads all weights; on a GPU, where small
    models wait for operators to start, at least the ratio of layers.

    Raises:
        ModelError: the draft model does not fit.
    """
    if draft.folder is None:
        raise ModelError(
            "draft_model= was created from runtime objects. Load it from its folder: "
            "structgen.load(folder)."
        )
    different = first_difference(vocabulary, draft.vocabulary)
    if different is not None:
        token, one, other = different
        raise ModelError(
            f"The draft model {draft.name} does not match {folder.name}: token {token:,} is "
            f"{other.decode(errors='replace')!r}, but {one.decode(errors='replace')!r} in "
            f"{folder.name}. A draft model must have the same token ids. Use a smaller model of "
            "the same family."
        )
    sizes, layers = [], []
    for place, settings in ((draft.folder, read_config(draft.folder)), (folder, config)):
        sizes.append(sum(file.stat().st_size for file in place.iterdir() if file.is_file()))
        layers.append(int(settings["model"].get("decoder", {}).get("num_hidden_layers", 1)))
    cost = sizes[0] / sizes[1]
    return cost if draft.device == "CPU" else max(cost, layers[0] / max(layers[1], 1))


def first_difference(one: Vocabulary, other: Vocabulary) -> tuple[int, bytes, bytes] | None:
    """Find the first token that differs in another vocabulary, and return it with both meanings.

    The meaning of a special token is its name; padding has none. None: no token differs.
    """
    meanings = []
    for vocabulary in (one, other):
        found = list(vocabulary.tokens)
        for name, token in vocabulary.named_tokens.items():
            found[token] = found[token] or name.encode()
        meanings.append(found)
    pairs = enumerate(itertools.zip_longest(*meanings, fillvalue=b""))
    return next(((token, a, b) for token, (a, b) in pairs if a != b), None)


def from_onnx_genai(
    og_model: og.Model,
    og_tokenizer: og.Tokenizer,
    *,
    folder: Path | None = None,
    vocabulary: Vocabulary | None = None,
    kind: type[ModelT],
) -> ModelT:
    """Wrap a loaded model and tokenizer; see `structgen.from_onnx_genai`.

    ``kind`` is the class of the returned model.

    Cost: with neither ``folder`` nor ``vocabulary`` 0.3 s at 49k tokens, 0.7 s at 262k.
    """
    if not isinstance(og_model, og.Model) or not isinstance(og_tokenizer, og.Tokenizer):
        raise ModelError(
            "from_onnx_genai takes an onnxruntime_genai.Model and its Tokenizer, not "
            f"{type(og_model).__name__} and {type(og_tokenizer).__name__}. "
            "To load a folder or a catalogue name, call structgen.load."
        )
    if og_model.type == "whisper":
        raise ModelError(
            "from_onnx_genai does not support Whisper. Load it from its folder: "
            "structgen.load(folder)."
        )
    try:
        width = int(_after_one_token(og_model).get_logits().shape[-1])
    except Exception as error:
        if MASK_INPUT not in str(error):
            raise
        raise ModelError(
            "This model's graph needs a mask, which structgen.load added. Use the model that "
            "structgen.load returned, or pass an onnxruntime_genai.Model created from the folder."
        ) from error
    if folder is None:
        config = None
        context_length = _probe_context_length(og_model)
    else:
        config = read_config(folder)
        context_length = int(config["model"]["context_length"])
        if vocabulary is None:
            vocabulary = folder_vocabulary(folder, config)
    if vocabulary is None:
        tokens = token_bytes(og_tokenizer.decode, og_tokenizer.to_token_id, width)
        eos = [int(token_id) for token_id in og_tokenizer.eos_token_ids]
        vocabulary = Vocabulary.from_tokens(
            tokens, eos, special_token_ids=[i for i, text in enumerate(tokens) if not text]
        )
    reader = None
    if str(og_model.type) in SEEING:
        reader = MediaReader(og_model, f"{og_model.type} model", vocabulary)
    if vocabulary.size != width:
        raise ModelError(
            f"The model's logits have a width of {width:,}, but the vocabulary has "
            f"{vocabulary.size:,} ids. Pass a vocabulary made with size={width}."
        )
    own = None if folder is None else _first_template(folder)
    return kind(
        og_model,
        og_tokenizer,
        vocabulary=vocabulary,
        context_length=context_length,
        search_defaults=_search_defaults(og_model, config),
        bytes_per_token=_bytes_per_token(og_model, config),
        start_ids=() if folder is None else start_ids(folder, vocabulary),
        folder=folder,
        template=None if own is None else _like_transformers(_template(own)),
        reader=reader,
    )


_CUDA_LIBRARIES = (
    "If a CUDA or cuDNN library is missing, install it in the Python environment: pip install "
    "'onnxruntime-gpu[cuda,cudnn]'. `structgen doctor` lists what is installed."
)


def _has_cuda_graph(
    config: Mapping[str, Any],
    providers: Sequence[str] | None,
    options_of: Mapping[str, Mapping[str, Any]],
) -> bool:
    """Return whether the options, or else the folder, make the device replay recorded steps."""
    options = options_of.get("cuda", {})
    if providers is None:
        session = config["model"].get("decoder", {}).get("session_options", {})
        for entry in session.get("provider_options", []):
            options = entry.get("cuda", options)
    return str(options.get("enable_cuda_graph", "0")) == "1"


def _check_device(
    og_model: og.Model, folder: Path, providers: Sequence[str] | None, dtype: np.dtype[Any] | None
) -> None:
    """Check that a model runs on the requested device, and warn if it is slow there.

    Raises:
        ModelError: it runs on the CPU although another device was requested.
    """
    if not providers or providers[0] not in ("cuda", "dml", "webgpu"):
        return  # the CPU, or a device that the runtime may treat as one
    if og_model.device_type == "CPU":
        raise ModelError(
            f"{folder} runs on the CPU although providers= requests {providers[0]!r}. Run "
            "`structgen doctor` to see what is missing, or pass providers=['cpu']."
        )
    if providers[0] == "cuda" and dtype == np.float32:
        warnings.warn(
            f"{folder} uses 32-bit numbers between operators, for which CUDA has no attention "
            "operator, so each layer copies data to the CPU. Convert it with `structgen models "
            "convert SOURCE OUT --target cuda`.",
            UserWarning,
            stacklevel=4,
        )


def _cache_dtype(
    og_model: og.Model, config: Mapping[str, Any], mask: MaskBytes | None
) -> np.dtype[Any] | None:
    """Return the dtype of the key-value cache; None if its name is unknown, or not needed."""
    if og_model.device_type == "CPU":
        return None
    outputs = config["model"].get("decoder", {}).get("outputs", {})
    name = outputs.get("present_key_names", "present.%d.key").replace("%d", "0")
    try:
        dtype: np.dtype[Any] = _after_one_token(og_model, mask).get_output(name).dtype
    except Exception:
        return None
    return dtype


def _session_config(
    folder: Path,
    providers: Sequence[str] | None,
    provider_options: Mapping[str, Mapping[str, Any]],
    session_options: Mapping[str, Any],
    graph: str | None = None,
) -> og.Config:
    """Return the runtime's configuration of a folder; ``graph``: a graph other than the one it
    names."""
    config = og.Config(str(folder))
    if providers is not None:
        config.clear_providers()
        for name in providers:
            if name != "cpu":  # it is always there, for operators that the others lack
                config.append_provider(name)
                for key, value in provider_options.get(name, {}).items():
                    config.set_provider_option(name, key, str(value))
    decoder: dict[str, Any] = {} if graph is None else {"filename": graph}
    if session_options:
        decoder["session_options"] = session_options
    # A prompt that ends in the padding token would count as shorter, and be scored from memory
    # before it.
    config.overlay(json.dumps({"model": {"pad_token_id": -1, "decoder": decoder}}))
    return config


def _takes_masks(og_model: og.Model, width: int) -> bool:
    """Return whether the runtime reads the current content of a mask in each pass, and chooses by
    it."""
    mask = all_allowed(width)
    generator = _new(og_model, mask)
    for token in (width - 1, 0):
        mask[:] = 0
        mask[0, 0, token >> 3] = 1 << (token & 7)
        generator.rewind_to(0)
        generator.append_tokens(np.zeros(1, np.int32))
        generator.generate_next_token()
        if generator.get_next_tokens().tolist() != [token]:
            return False
        try:
            generator.rewind_to(1)  # for the scores of the next token, only with a shared buffer
        except Exception:
            return False
    return True


def _search_defaults(og_model: og.Model, config: Mapping[str, Any] | None) -> Mapping[str, Any]:
    params = og.GeneratorParams(og_model)
    if hasattr(params, "get_search_options"):  # the runtime has it since 0.12
        return dict(params.get_search_options())
    return {} if config is None else dict(config.get("search", {}))


def _check_defaults(folder: Path, defaults: Mapping[str, Any]) -> None:
    """Check a folder's search settings, which calls use as defaults.

    Raises:
        ModelError: a setting is wrong.
    """
    for name, option in OPTIONS.items():
        value = defaults.get(name)
        if not option.is_setting or option.kind is None or value is None:
            continue
        # Other programs write these for "likeliest"; they are harmless.
        if (name == "temperature" and 0 <= value < 1) or (name == "top_p" and value == 0):
            continue
        try:
            option.read(name, option.kind(value))
        except (OptionError, TypeError, ValueError, OverflowError) as error:
            raise ModelError(
                f"The search settings in {folder / 'genai_config.json'} are invalid: {error} "
                "Correct them there."
            ) from error


def _probe_context_length(og_model: og.Model) -> int:
    # The runtime names the context length only in the error for a longer one, which it checks
    # first.
    params = og.GeneratorParams(og_model)
    params.set_search_options(max_length=2**31 - 1)
    try:
        og.Generator(og_model, params)
    except Exception as error:
        found = re.search(r"context_length \((\d+)\)", str(error))
        if found:
            return int(found[1])
    raise ModelError(
        "The context length of the model is unknown. Pass folder=, the model's folder."
    )


def _new(og_model: og.Model, mask: MaskBytes | None = None) -> og.Generator:
    """Return a sequence with room for two tokens."""
    params = og.GeneratorParams(og_model)
    params.set_search_options(max_length=2, do_sample=False)
    generator = og.Generator(og_model, params)
    if mask is not None:
        generator.set_model_input(MASK_INPUT, mask)
    return generator


def _after_one_token(og_model: og.Model, mask: MaskBytes | None = None) -> og.Generator:
    generator = _new(og_model, mask)
    generator.append_tokens(np.zeros(1, np.int32))
    return generator


def _bytes_per_token(
    og_model: og.Model, config: Mapping[str, Any] | None, mask: MaskBytes | None = None
) -> int:
    """Measure a token's bytes in the key-value cache; 0 if the model does not name it."""
    if config is not None:
        decoder = config["model"].get("decoder", {})
        layers: Iterable[int] = range(int(decoder.get("num_hidden_layers", 0)))
        outputs = decoder.get("outputs", {})
    elif runtime.OLD:
        return 0
    else:
        layers, outputs = itertools.count(), {}
    generator = _after_one_token(og_model, mask)
    total = 0
    for layer in layers:
        for kind in ("key", "value"):
            name = outputs.get(f"present_{kind}_names", f"present.%d.{kind}")
            if "%d" not in name:  # the same name for any number of layers
                return total
            try:
                cache = generator.get_output(name.replace("%d", str(layer)))
            except Exception:
                return total
            total += cache.nbytes // cache.shape[2]
    return total
