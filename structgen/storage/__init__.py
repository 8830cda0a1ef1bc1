"""Where structgen keeps what can be computed again: files of its user, caches and maps in memory.

Owns the user's folder and files written whole (`user_folder`), arrays on disk (`array_cache`),
caches of what was asked for lately and a map by identity (`generational`), locks that survive a
fork (`locks`). Knows nothing of what is kept.
"""

from __future__ import annotations

from . import array_cache, user_folder
from .generational import Caches, GenerationalCache, IdentityMap, KeptByBytes, Weighed
from .locks import fork_safe, in_child
from .user_folder import written_whole

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
    "written_whole",
]
