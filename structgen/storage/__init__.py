"""Where structgen keeps what can be computed again: files of its user, caches in memory.

Owns the user's folder (`user_folder`), arrays on disk (`array_cache`), files that a thread writes a
moment later (`write_behind`), files that are whole or not there (`whole_files`) and the cache of
what was asked for lately (`generational`). Knows nothing of what is kept: keys are texts, values
are arrays or objects with a size in bytes.
"""

from __future__ import annotations

from . import array_cache, user_folder, write_behind
from .generational import Caches, GenerationalCache, Weighed
from .locks import fork_safe, in_child
from .whole_files import written_whole

__all__ = [
    "Caches",
    "GenerationalCache",
    "Weighed",
    "array_cache",
    "fork_safe",
    "in_child",
    "user_folder",
    "write_behind",
    "written_whole",
]
