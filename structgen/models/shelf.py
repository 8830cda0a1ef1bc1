"""List the models of the catalogue and the cache, their facts and sizes, and verify them.

Reads the catalogue, the cache and the folders in it. Downloads and prints nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from structgen.errors import ModelNotFound
from structgen.storage.user_folder import WRONG, document, root

from . import cache, catalogue, damage, hub
from .catalogue import Entry, File
from .progress import Progress, bytes_under, reporting


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The facts about a model.

    Attributes:
        name: its name in the catalogue or of its download; for a local folder its path.
        task: ``"generate"`` or ``"embed"``.
        summary: one line; ``""``: not known.
        parameters: the number of its parameters; None: not known.
        size: bytes on disk, now or after its download; None: not known.
        context: most tokens of prompt and output together; None: not known.
        vocabulary: the number of its tokens; None: not known.
        languages: ISO 639 codes; ``"mul"``: many; empty: not known.
        licence: the licence of the weights; ``""``: not known.
        source: where it came from; or where it would be downloaded from, in this order.
        origin: who made it; ``""``: not known, or in the notes.
        notes: facts that are unknown or unchecked.
        folder: its folder; None: it is not installed.
        commit: the commit of its repository; ``""``: none, or not known.
    """

    name: str
    task: str
    summary: str = ""
    parameters: int | None = None
    size: int | None = None
    context: int | None = None
    vocabulary: int | None = None
    languages: tuple[str, ...] = ()
    licence: str = ""
    source: str = ""
    origin: str = ""
    notes: str = ""
    folder: Path | None = None
    commit: str = ""

    @property
    def here(self) -> bool:
        """Whether it is on disk."""
        return self.folder is not None


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of checking one model.

    Attributes:
        name: the model.
        folder: its folder.
        checked: ``"digests"``, or ``"sizes"`` if no digests are known.
        files: number of files checked.
        problems: one sentence each; empty: none.
        cure: what to do; ``""``: nothing.
    """

    name: str
    folder: Path
    checked: Literal["digests", "sizes"]
    files: int
    problems: tuple[str, ...]
    cure: str


@dataclass(frozen=True, slots=True)
class Usage:
    """The disk space used by structgen, in bytes.

    Attributes:
        folder: the cache folder.
        models: each model, by name.
        unfinished: files of interrupted downloads, by name.
        arrays: arrays computed for tokenizers.
        free: free space on the disk.
    """

    folder: Path
    models: dict[str, int]
    unfinished: dict[str, int]
    arrays: int
    free: int


def listing() -> list[ModelInfo]:
    """Return all models of the catalogue and all local ones. Cost: listing their files once."""
    here = {model.name: model for model in cache.installed()}
    known = [_of_entry(entry, here.get(entry.cache_name)) for entry in catalogue.ENTRIES.values()]
    names = {entry.cache_name for entry in catalogue.ENTRIES.values()}
    return known + [_of_folder(m.name, m.folder) for m in here.values() if m.name not in names]


def info(name: str) -> ModelInfo:
    """Return the facts about a model in the catalogue, the cache or a local folder.

    It asks the hub about any other repository, ``org/name`` or ``org/name/folder``.

    Raises:
        ModelNotFound: it is none of these; or a repository has several models, which the error
            lists.
        DownloadError: the hub cannot be reached or refuses.
    """
    entry = catalogue.named(name)
    place = catalogue.cache_name(name) if entry is None else entry.cache_name
    folder = cache.folder_of(place)
    local = Path(name).expanduser()
    if entry is not None:
        size = bytes_under(folder)
        there = cache.Installed(place, folder, size) if cache.is_model(folder) else None
        return _of_entry(entry, there)
    if cache.is_model(folder):
        return _of_folder(name, folder)
    if cache.is_model(local):
        return _of_folder(str(local), local)
    if hub.looks_like(name) and not local.exists():
        commit, size, task = hub.describe(name)
        notes, source = (
            "not in the catalogue: from the hub's list of its files",
            f"Hugging Face: {name}",
        )
        return ModelInfo(name, task, size=size, source=source, notes=notes, commit=commit)
    close = catalogue.suggestions(name, [model.name for model in cache.installed()])
    hint = f"Did you mean {' or '.join(close)}?" if close else "See `structgen models list`."
    raise ModelNotFound(
        f"{name!r} is unknown: it is not in the catalogue, not downloaded, and not a model "
        f"folder. {hint}"
    )


def usage() -> Usage:
    """Return the size of the cache on disk. Cost: listing its files once."""
    top = root()
    return Usage(
        top,
        {model.name: model.bytes for model in cache.installed()},
        {cache.name_in(folder): bytes_under(folder) for folder in cache.folders("partial")},
        bytes_under(top / "arrays"),
        shutil.disk_usage(cache.nearest()).free,
    )


def verify(names: Sequence[str] = (), progress: Progress | None = None) -> list[Verified]:
    """Compare models on disk with the digests of their download.

    Args:
        names: names of the catalogue or the cache, or local folders; empty: all models in the
            cache.
        progress: called with the bytes read so far; by default it is shown on standard error.

    Raises:
        ModelNotFound: a model is not on this machine.

    Cost: reading all files once, some seconds per gigabyte. If no digests are known, for a local
    folder or a model from an earlier version, sizes are compared with the references in graphs.
    """
    places = [(name, _here(name)) for name in names] or [
        (model.name, model.folder) for model in cache.installed()
    ]
    with reporting(progress) as report:
        return [_verified(name, folder, report) for name, folder in places]


def _here(name: str) -> Path:
    found = info(name).folder
    if found is None:
        raise ModelNotFound(
            f"{name} is not downloaded. Download it: `structgen models pull {name}`."
        )
    return found


def _verified(name: str, folder: Path, progress: Progress) -> Verified:
    record, entry = cache.read_record(folder), catalogue.named(name)
    files = None if record is None else list(record.files.values())
    if record is None and entry is not None and entry.weights is None:
        files = list(entry.files) or None
    lacking = damage.find(folder)
    problems = [lack.problem for lack in lacking]
    if files is not None:
        problems = list(_differences(folder, files, f"Checking {name}", progress)) or problems
    cure = " ".join(dict.fromkeys(lack.do for lack in lacking))
    if problems and cache.name_of(folder) is not None:
        cure = f"`structgen models rm {name}`, then `structgen models pull {name}`."
    count = sum(path.is_file() for path in folder.rglob("*")) if files is None else len(files)
    checked: Literal["digests", "sizes"] = "sizes" if files is None else "digests"
    return Verified(name, folder, checked, count, tuple(problems), cure)


def _differences(
    folder: Path, files: Sequence[File], stage: str, progress: Progress
) -> Iterable[str]:
    total = sum(file.bytes for file in files)
    done = 0
    for file in files:
        path = folder / file.path
        progress(stage, done, total)
        if not path.is_file():
            yield f"{path} is missing."
        elif path.stat().st_size != file.bytes:
            yield f"{path} is damaged: {path.stat().st_size:,} bytes instead of {file.bytes:,}."
        elif cache.sha256(path) != file.sha256:
            yield f"{path} is damaged: its SHA-256 is not {file.sha256}."
        done += file.bytes
    progress(stage, total, total)


def _of_entry(entry: Entry, there: cache.Installed | None) -> ModelInfo:
    record = None if there is None else cache.read_record(there.folder)
    known = {one.name: getattr(entry, one.name, None) for one in fields(ModelInfo)}
    known["source"] = "; else ".join(entry.sources.values())
    if there is not None:
        known |= {"size": there.bytes, "folder": there.folder}
    if record is not None:
        known |= {"source": record.source, "commit": record.commit}
    return ModelInfo(**{name: one for name, one in known.items() if one is not None})


def _of_folder(name: str, folder: Path) -> ModelInfo:
    """Return the facts in a folder's files."""
    record = cache.read_record(folder)
    is_embedder = cache.is_embedder(folder)
    config = _json(folder / ("config.json" if is_embedder else cache.CONFIG))
    model = config if is_embedder else config.get("model")
    model = model if isinstance(model, dict) else {}
    context = model.get("max_position_embeddings" if is_embedder else "context_length")
    return ModelInfo(
        name=name,
        task="embed" if is_embedder else "generate",
        size=bytes_under(folder),
        context=_count(context),
        vocabulary=_count(model.get("vocab_size")),
        source="" if record is None else record.source,
        notes="not in the catalogue: from its folder",
        folder=folder,
        commit="" if record is None else record.commit,
    )


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and 0 <= value < 1 << 31 else None


def _json(file: Path) -> dict[str, Any]:
    try:
        found = document(file)
    except WRONG:
        return {}
    return found if isinstance(found, dict) else {}
