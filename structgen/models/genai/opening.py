"""From a folder, or from the runtime's own objects, to a `TextModel`.

Owns what has to be known of a model before it can be asked: the session it runs in, its vocabulary,
context length, settings and the size of its cache; and errors of folders that cannot be loaded.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from structgen.errors import ModelError
from structgen.models import damage
from structgen.models.loading import in_short, read_options, remedied, remedy
from structgen.vocabulary import Vocabulary

from . import runtime
from .folders import folder_vocabulary, read_ahead, read_config, start_ids, token_bytes
from .model import TextModel
from .runtime import og

ModelT = TypeVar("ModelT", bound=TextModel)


def load(
    folder: Path,
    *,
    providers: Sequence[str] | None = None,
    session_options: Mapping[str, Any] | None = None,
    threads: int | None = None,
    prefix_cache: int | None = None,
    meanwhile: Callable[[Vocabulary], object] | None = None,
    kind: type[ModelT],
) -> ModelT:
    """Load a model folder that ONNX Runtime GenAI understands.

    Args:
        folder: has ``genai_config.json``, ``tokenizer.json`` and the weights.
        providers: as of `structgen.load`, and so are the next three, and errors.
        session_options: see above.
        threads: see above.
        prefix_cache: see above.
        meanwhile: called with the vocabulary while the system reads the weights from disk.
        kind: the class of what is returned.

    Cost: 0.8 s for SmolLM2-135M, and 0.3 s for its vocabulary.
    """
    names, options_of, others = read_options(providers, session_options, threads)
    if threads is not None:
        others["intra_op_num_threads"] = threads
    config = read_config(folder)
    lacking = damage.find(folder)
    if lacking:
        raise ModelError(remedied(folder, lacking))
    vocabulary = folder_vocabulary(folder, config)
    if meanwhile is not None:
        # The runtime holds the interpreter lock while it loads, so no thread of ours would run.
        read_ahead(folder)
        meanwhile(vocabulary)
    try:
        og_model = og.Model(_session_config(folder, names, options_of, others))
        og_tokenizer = og.Tokenizer(og_model)
        search_defaults = _search_defaults(og_model, config)
        bytes_per_token = _bytes_per_token(og_model, config)
    except Exception as error:
        hint = f" {remedy(folder)}" if "parse" in str(error) or "parsing" in str(error) else ""
        raise ModelError(
            f"ONNX Runtime GenAI cannot load {folder}: {in_short(error)}.{hint}"
        ) from error
    return kind(
        og_model,
        og_tokenizer,
        vocabulary=vocabulary,
        context_length=int(config["model"]["context_length"]),
        search_defaults=search_defaults,
        bytes_per_token=bytes_per_token,
        start_ids=start_ids(folder, vocabulary),
        folder=folder,
        load_options={
            "providers": providers,
            "session_options": session_options,
            "threads": threads,
            "prefix_cache": prefix_cache,
        },
        prefix_cache=prefix_cache,
    )


def from_onnx_genai(
    og_model: og.Model,
    og_tokenizer: og.Tokenizer,
    *,
    folder: Path | None = None,
    vocabulary: Vocabulary | None = None,
    kind: type[ModelT],
) -> ModelT:
    """Wrap a model and a tokenizer that are already loaded; see `structgen.from_onnx_genai`.

    ``kind`` is the class of what is returned.

    Cost: with neither ``folder`` nor ``vocabulary`` 0.3 s at 49k tokens, 0.7 s at 262k.
    """
    if not isinstance(og_model, og.Model) or not isinstance(og_tokenizer, og.Tokenizer):
        raise ModelError(
            "from_onnx_genai takes an onnxruntime_genai.Model and its Tokenizer, not "
            f"{type(og_model).__name__} and {type(og_tokenizer).__name__}. "
            "To load a folder or a catalogue name, call structgen.load."
        )
    width = int(_after_one_token(og_model).get_logits().shape[-1])
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
    if vocabulary.size != width:
        raise ModelError(
            f"The model's logits are {width:,} wide but the vocabulary has {vocabulary.size:,} "
            "ids. Pass a vocabulary made with size= that width."
        )
    return kind(
        og_model,
        og_tokenizer,
        vocabulary=vocabulary,
        context_length=context_length,
        search_defaults=_search_defaults(og_model, config),
        bytes_per_token=_bytes_per_token(og_model, config),
        start_ids=() if folder is None else start_ids(folder, vocabulary),
        folder=folder,
    )


def _session_config(
    folder: Path,
    providers: Sequence[str] | None,
    provider_options: Mapping[str, Mapping[str, Any]],
    session_options: Mapping[str, Any],
) -> og.Config:
    config = og.Config(str(folder))
    if providers is not None:
        config.clear_providers()
        for name in providers:
            if name != "cpu":  # which is always there, for what the others cannot do
                config.append_provider(name)
                for key, value in provider_options.get(name, {}).items():
                    config.set_provider_option(name, key, str(value))
    if session_options:
        said = {"model": {"decoder": {"session_options": session_options}}}
        config.overlay(json.dumps(said))
    return config


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


def _after_one_token(og_model: og.Model) -> og.Generator:
    params = og.GeneratorParams(og_model)
    params.set_search_options(max_length=2)
    generator = og.Generator(og_model, params)
    generator.append_tokens(np.zeros(1, np.int32))
    return generator


def _bytes_per_token(og_model: og.Model, config: Mapping[str, Any] | None) -> int:
    """What a token takes in the key-value cache, read off one; 0 where the model names it not."""
    if config is not None:
        decoder = config["model"].get("decoder", {})
        layers: Iterable[int] = range(int(decoder.get("num_hidden_layers", 0)))
        outputs = decoder.get("outputs", {})
    elif runtime.ENDS_AT_UNKNOWN_OUTPUTS:
        return 0
    else:
        layers, outputs = itertools.count(), {}
    generator = _after_one_token(og_model)
    total = 0
    for layer in layers:
        for kind in ("key", "value"):
            name = outputs.get(f"present_{kind}_names", f"present.%d.{kind}")
            try:
                cache = generator.get_output(name.replace("%d", str(layer)))
            except Exception:
                return total
            total += cache.nbytes // cache.shape[2]
    return total
