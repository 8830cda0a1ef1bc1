"""The files that models of the catalogue were converted from, kept beside the cache's models."""

from __future__ import annotations

import tempfile
from pathlib import Path

import filelock

from structgen import models
from structgen.models import fetch
from structgen.models.progress import silent
from structgen.storage import user_folder


def weights_of(name: str) -> Path:
    """The GGUF file of a model, fetched if it is not there."""
    entry = models.catalogue.ENTRIES[name]
    folder = user_folder.root() / "test weights"
    (file,) = entry.files
    weights = folder / file.sha256 / file.path
    folder.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(folder / "lock"):
        if not weights.exists():
            with tempfile.TemporaryDirectory(dir=folder) as work:
                found = fetch.download_files(entry, Path(work), silent) / file.path
                weights.parent.mkdir(exist_ok=True)
                found.rename(weights)
    return weights
