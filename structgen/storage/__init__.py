"""Where structgen keeps what can be computed again: files of its user, caches and maps in memory.

Owns the user's folder (`user_folder`), arrays on disk (`array_cache`), files that a thread writes a
moment later (`write_behind`), files that are whole or not there (`whole_files`), caches of
what was asked for lately (`generational`) and a map whose keys are objects told apart by identity
(`identity`). Knows nothing of what is kept.
"""

from __future__ import annotations

from . import array_cache, user_folder, write_behind
from .generational import Caches, GenerationalCache, KeptByBytes, Weighed
from .identity import IdentityMap
from .locks import fork_safe, in_child
from .whole_files import written_whole

__all__ = [
    "Caches",
    "GenerationalCache",
    "IdentityMap",
    "KeptByBytes",
    "Weighed",
    "array_cache",
    "fork_safe",
    "in_child",
    "user_folder",
    "write_behind",
    "written_whole",
]
