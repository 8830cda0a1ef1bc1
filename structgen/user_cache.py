"""Where structgen keeps files for its user. It knows nothing of what is kept there."""

from __future__ import annotations

import os
from pathlib import Path


def root() -> Path:
    """The cache folder: ``$STRUCTGEN_CACHE`` or the user's; it need not exist yet."""
    override = os.environ.get("STRUCTGEN_CACHE")
    if override:
        return Path(override).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_cache_dir("structgen", appauthor=False))
