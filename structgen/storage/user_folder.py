"""Where structgen keeps files for its user. It knows nothing of what is kept there."""

from __future__ import annotations

import functools
import os
from pathlib import Path


def root() -> Path:
    """The cache folder: ``$STRUCTGEN_CACHE`` or the user's; it need not exist yet."""
    override = os.environ.get("STRUCTGEN_CACHE")
    if override:
        return Path(override).expanduser().absolute()
    # To ask the platform takes half as long as to read a small file.
    return _of_user(os.environ.get("HOME"), os.environ.get("XDG_CACHE_HOME"))


@functools.lru_cache
def _of_user(home: str | None, caches: str | None) -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("structgen", appauthor=False))
