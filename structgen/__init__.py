"""structgen: exact structured output from local language models.

    import structgen
    from structgen import Generator

    model = structgen.load("smollm2-135m-instruct")
    generator = Generator(model, Character)      # a Pydantic class, Literal, Regex(...), date, …
    text = generator("Create a character")       # str, always a whole, valid Character
    hero = generator.parse("Create a character") # Character

This module has what most programs need. All errors are in `structgen.errors`; traces and confidence
in `structgen.insight`, tools and sessions in `structgen.runner`, output types in `structgen.types`,
pieces of streams in `structgen.decoding`. Names are imported when they are first used, so ``import
structgen`` costs milliseconds, and the engine alone (`Vocabulary`, `compile`) never loads a model
runtime.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from structgen import errors
from structgen.errors import (
    Abstained,
    BatchError,
    BudgetTooSmall,
    IncompleteOutput,
    ModelError,
    OptionError,
    OutputTypeError,
    Overloaded,
    ParseError,
    PromptError,
    Refused,
    RemoteError,
    RequestError,
    StructgenError,
    UnsupportedFeature,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from typing_extensions import Never

    from structgen import asgi as asgi  # only by its name: most programs have no server
    from structgen import decisions, insight, models, runner, types
    from structgen.constraint import Constraint, Cursor, compile, fill_masks, sample, warm_up
    from structgen.decoding import (
        AsyncStream,
        AsyncTypedGenerator,
        Draft,
        GenerationResult,
        Stream,
        Think,
    )
    from structgen.generator import Generator
    from structgen.jobs import batch
    from structgen.models.embedding import Embedder
    from structgen.remote import AsyncRemoteModel, RemoteModel, from_openai
    from structgen.runner import Runner, Tool
    from structgen.text_model import TextModel, generate
    from structgen.types import (
        Call,
        Cfg,
        Choice,
        JsonSchema,
        Quote,
        Regex,
        Tagged,
        Template,
        Text,
        ToolCalls,
    )
    from structgen.values import Partial
    from structgen.vocabulary import Vocabulary
    from structgen.workers import AsyncModel

__version__ = "0.1.0"

__all__ = [
    "Abstained",
    "AsyncModel",
    "AsyncRemoteModel",
    "AsyncStream",
    "AsyncTypedGenerator",
    "BatchError",
    "BudgetTooSmall",
    "Call",
    "Cfg",
    "Choice",
    "Constraint",
    "Cursor",
    "Draft",
    "Embedder",
    "GenerationResult",
    "Generator",
    "IncompleteOutput",
    "JsonSchema",
    "ModelError",
    "OptionError",
    "OutputTypeError",
    "Overloaded",
    "ParseError",
    "Partial",
    "PromptError",
    "Quote",
    "Refused",
    "Regex",
    "RemoteError",
    "RemoteModel",
    "RequestError",
    "Runner",
    "Stream",
    "StructgenError",
    "Tagged",
    "Template",
    "Text",
    "TextModel",
    "Think",
    "Tool",
    "ToolCalls",
    "UnsupportedFeature",
    "Vocabulary",
    "__version__",
    "batch",
    "compile",
    "decisions",
    "errors",
    "fill_masks",
    "from_onnx_genai",
    "from_openai",
    "generate",
    "insight",
    "load",
    "load_async",
    "load_embedder",
    "models",
    "runner",
    "sample",
    "types",
    "warm_up",
]

_HOMES = {
    name: home
    for home, names in {
        "structgen.constraint": "Constraint Cursor compile fill_masks sample warm_up",
        "structgen.decoding": "AsyncStream AsyncTypedGenerator Draft GenerationResult Stream Think",
        "structgen.generator": "Generator",
        "structgen.jobs": "batch",
        "structgen.models.embedding": "Embedder",
        "structgen.notebook": "load_ipython_extension",
        "structgen.remote": "AsyncRemoteModel RemoteModel from_openai",
        "structgen.runner": "Runner Tool",
        "structgen.text_model": "TextModel generate",
        "structgen.types": "Call Cfg Choice JsonSchema Quote Regex Tagged Template Text ToolCalls",
        "structgen.values": "Partial",
        "structgen.vocabulary": "Vocabulary",
        "structgen.workers": "AsyncModel",
    }.items()
    for name in names.split()
}


def _check_names(call: Any, more: Mapping[str, object]) -> None:
    """Raise for an unknown option of loading, and suggest the one that was probably meant."""
    for name in more:
        known = call.__kwdefaults__
        hint = errors.did_you_mean(name, known)
        if name in ("device", "device_map", "gpu", "n_gpu_layers"):
            hint = ' For CUDA, write providers=["cuda", "cpu"]; the CPU needs no option.'
        raise OptionError(
            f"structgen.{call.__name__} has no option {name!r}.{hint} There are: "
            f"{', '.join(known)}.",
            option=name,
        )


def load(
    name: str | os.PathLike[str],
    *,
    providers: Sequence[str] | None = None,
    session_options: Mapping[str, Any] | None = None,
    threads: int | None = None,
    prefix_cache: int | None = None,
    prefix_cache_n: int | None = None,
    deterministic: bool = False,
    chat_template: str | os.PathLike[str] | None = None,
    draft_model: str | os.PathLike[str] | TextModel | None = None,
    draft_tokens: int | None = None,
    warm_up: bool = True,
    **more: Never,
) -> TextModel:
    """Load a model; download and convert it first if necessary.

    It runs in this process, without a time limit for its graph, chat template and tokenizer, and a
    hostile model may hang on certain prompts. Load a model that you do not trust with `load_async`
    or a `Runner`, which kill its process if it hangs.

    Args:
        name: a folder that ONNX Runtime GenAI understands, a name from the catalogue (see
            ``structgen models list``), or a Hugging Face repository id.
        providers: execution providers, the preferred one first, such as ``["cuda", "cpu"]``; None:
            those of the model's folder; for models converted here the CPU.
        session_options: options of ONNX Runtime's session, which replace those of the folder.
        threads: threads of one operator; None: the number of cores.
        prefix_cache: bytes of key-value caches kept between calls, for prompts that share a prefix;
            0: none; None: 512 MB.
        prefix_cache_n: the most of these caches; None: as many as fit.
        deterministic: make each output the same to the bit on this machine: alone or beside others,
            with or without guesses, forced text and cached prompts. Outputs are then generated one
            by one, and a token that needs a pass of its own takes 1.2 times as long.
        chat_template: replaces the model's own: the text of a Jinja template, or its file. It also
            decides how tools are called.
        draft_model: a smaller model with the same vocabulary that guesses the next tokens when that
            saves time: a name as above, or a loaded model, which several models may share. Outputs
            do not change; see docs/decoding.md, Speculation.
        draft_tokens: most tokens that it guesses at once; None: chosen by speed, at most 15.
        warm_up: make the tables of masks while the weights are read from disk, as `warm_up` does;
            False: the first output type and its first masks wait for them.

    Raises:
        ModelNotFound: there is no such folder, name or repository.
        DownloadError: fetching failed.
        ModelError: the folder cannot be loaded, or a provider is not installed; the error names
            those that are. Or the draft model has another vocabulary.
        OptionError: an option is unknown or wrong.

    Cost: about a second once the model is on disk (135M parameters), 0.1 s of it for masks.
    """
    given = locals()
    _check_names(load, more)
    from structgen import models
    from structgen.constraint import warm_up as make_tables
    from structgen.models import genai
    from structgen.models.base import LoadOptions
    from structgen.text_model import TextModel

    options = LoadOptions.among(given)
    target = options.target
    if draft_model is not None and not isinstance(draft_model, genai.TextModel):
        small = models.path(draft_model, task="generate", target=target)
        options = replace(options, draft_model=small)
    return genai.load(
        models.path(name, task="generate", target=target),
        options,
        meanwhile=make_tables if warm_up else None,
        kind=TextModel,
    )


async def load_async(
    name: str | os.PathLike[str],
    *,
    providers: Sequence[str] | None = None,
    session_options: Mapping[str, Any] | None = None,
    threads: int | None = None,
    prefix_cache: int | None = None,
    prefix_cache_n: int | None = None,
    deterministic: bool = False,
    chat_template: str | os.PathLike[str] | None = None,
    draft_model: str | os.PathLike[str] | None = None,
    draft_tokens: int | None = None,
    warm_up: bool = True,
    batch_size: int | None = None,
    **more: Never,
) -> AsyncModel:
    """Load a model into a process of its own, for asynchronous code.

    ``Generator(model, output_type)`` of it is an `AsyncTypedGenerator`. Use it with ``async with``,
    or call its ``aclose``, to end the process; it also ends when the model is dropped and when
    this process ends. Other arguments are those of `load`.

    Args:
        draft_model: as in `load`, by its name; it runs in the same process.
        batch_size: the most outputs of concurrent calls in one batch; 1: no batches, so each output
            is the same to the bit as alone; None: chosen by speed.

    Raises:
        As `load`; and WorkerDied: the process ended before the model was loaded.

    Cost: 2 s once the model is on disk (135M parameters); the event loop keeps running.
    """
    given = locals()
    _check_names(load_async, more)
    import asyncio

    # In a thread: its own imports take a second in a new process.
    workers = await asyncio.to_thread(importlib.import_module, "structgen.workers")
    from structgen.models.base import LoadOptions

    model: AsyncModel = await workers.AsyncModel.load(
        name, LoadOptions.among(given), warm_up=warm_up, batch_size=batch_size
    )
    return model


def load_embedder(
    name: str | os.PathLike[str],
    *,
    pooling: str | None = None,
    max_length: int | None = None,
    providers: Sequence[str] | None = None,
    session_options: Mapping[str, Any] | None = None,
    threads: int | None = None,
    **more: Never,
) -> Embedder:
    """Load a model that embeds or ranks texts; download it first if necessary.

    Other arguments are those of `load`.

    Args:
        name: a folder with an ONNX file (``model.onnx``, there or in its folder ``onnx``) and
            ``tokenizer.json``, the ONNX file itself, a name from the catalogue, such as
            ``all-minilm-l6-v2``, or a Hugging Face repository id, with or without the path of an
            ONNX file: ``org/name``, ``org/name/onnx/model_quantized.onnx``.
        pooling: ``"mean"``, ``"cls"`` (the first token) or ``"last"``; None: that of
            ``1_Pooling/config.json`` in the folder, otherwise the mean.
        max_length: most tokens of a text; None: that of the folder, or 2,048 if it has none; at
            most 8,192, and at most what 1.2 GB of memory allow: 3,188 with 12 heads.

    Raises:
        ModelNotFound: there is no such folder, file or name.
        DownloadError: fetching failed.
        ModelError: the model cannot be loaded, or has an unsupported kind of pooling.
        OptionError: ``pooling`` or ``max_length`` does not suit the model.

    Cost: half a second once the model is on disk (the default embedder).
    """
    _check_names(load_embedder, more)
    import os
    from pathlib import Path

    from structgen import models
    from structgen.models import embedding

    place = Path(name).expanduser() if name and isinstance(name, (str, os.PathLike)) else None
    if place is None or not place.exists():
        place = models.path(name, task="embed")
    return embedding.load(
        place,
        pooling=pooling,
        max_length=max_length,
        providers=providers,
        session_options=session_options,
        threads=threads,
    )


def from_onnx_genai(
    og_model: Any,
    og_tokenizer: Any,
    *,
    folder: str | os.PathLike[str] | None = None,
    vocabulary: Vocabulary | None = None,
) -> TextModel:
    """Wrap a loaded ``onnxruntime_genai.Model`` and its ``Tokenizer``.

    Args:
        og_model: the model.
        og_tokenizer: its tokenizer.
        folder: the model's folder, to read the vocabulary from. With neither this nor
            ``vocabulary``, structgen derives each token's bytes from the tokenizer.
        vocabulary: the vocabulary; its size must be the width of the logits.

    Raises:
        ModelError: the objects are not the runtime's, or sizes do not agree.
        VocabularyError: the bytes cannot be derived from the tokenizer; pass ``folder``.

    The runtime miscounts prompts that end in the model's padding token. So remove the padding
    token, as `load` does, before you make the model: ``config.overlay('{"model": {"pad_token_id":
    -1}}')``.

    The tables of masks are made when they are first needed, or by `warm_up`, which a server calls
    before its first request.

    Cost: 0.5 s for 128k tokens without ``folder``, and one step of the model.
    """
    from pathlib import Path

    from structgen.models import genai
    from structgen.text_model import TextModel

    return genai.from_onnx_genai(
        og_model,
        og_tokenizer,
        folder=None if folder is None else Path(folder),
        vocabulary=vocabulary,
        kind=TextModel,
    )


def __getattr__(name: str) -> Any:
    if name in ("asgi", "decisions", "insight", "models", "ray", "runner", "types"):
        return importlib.import_module(f"structgen.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'structgen' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
