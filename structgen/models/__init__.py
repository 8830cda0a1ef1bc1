"""Named models on disk: find, fetch, convert and remove them (first light: more is on its way)."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from structgen.errors import ModelNotFound


def path(name: str | Path) -> Path:
    """Local folder of a model."""
    folder = Path(name)
    if (folder / "genai_config.json").is_file():
        return folder
    root = os.environ.get("STRUCTGEN_CACHE") or platformdirs.user_cache_dir("structgen")
    cached = Path(root) / "models" / str(name)
    if (cached / "genai_config.json").is_file():
        return cached
    raise ModelNotFound(f"No model {str(name)!r}.")
