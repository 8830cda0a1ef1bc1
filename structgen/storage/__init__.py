"""Storage of what can be rebuilt: files of the user, caches and maps in memory.

In reading order: `user_folder` (the user's folder, and files written as a whole), `array_cache`
(arrays on disk), `generational` (caches, numbers and a map in memory), `locks`
(locks that survive a fork). Knows nothing about what is stored.
"""

from __future__ import annotations

from . import array_cache, user_folder
from .generational import (
    Caches,
    GenerationalCache,
    IdentityMap,
    KeptByBytes,
    Numbers,
    Weighed,
    cached_method,
)
from .locks import fork_safe, in_child
from .user_folder import written_whole
