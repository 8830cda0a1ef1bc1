"""Models that structgen knows by name, and the suggestions for a misspelt one.

The table itself is `entries`, what a row says is `entry`. This module fetches nothing and knows
nothing of folders.
"""

from __future__ import annotations

import difflib
from types import MappingProxyType

from . import entries
from .entry import Entry, File, Wheel

__all__ = [
    "DEFAULT",
    "ENTRIES",
    "Entry",
    "File",
    "Wheel",
    "cache_name",
    "in_short",
    "named",
    "suggestions",
]

DEFAULT = "smollm2-135m-instruct"
"""The model that is meant where none is named."""

ENTRIES = MappingProxyType({entry.name: entry for entry in entries.ALL})
"""Every entry by its name. Read-only."""


def named(name: str) -> Entry | None:
    """The entry that has this name, or is this repository's folder; None: there is none."""
    if name in ENTRIES:
        return ENTRIES[name]
    return next((entry for entry in ENTRIES.values() if entry.repository == name != ""), None)


def cache_name(name: str) -> str:
    """What a model of this name is called in the cache."""
    return ENTRIES[name].cache_name if name in ENTRIES else name


def in_short() -> str:
    """The names that need no account and little room, and how many more there are."""
    first = [entry.name for entry in ENTRIES.values() if not entry.repository]
    more = len(ENTRIES) - len(first)
    return ", ".join(first) + (f" and {more} more: `structgen models list`" if more else "")


def suggestions(name: str, others: list[str] | None = None) -> list[str]:
    """Names close to one that is unknown, the closest first; empty when none is.

    Args:
        name: the unknown name.
        others: names to consider besides the catalogue's.
    """
    known = {known.lower(): known for known in [*ENTRIES, *(others or [])]}
    lower = name.lower()
    # What was typed may also be the beginning of a name, or close to one.
    scores = {
        candidate: max(_alike(lower, candidate), _alike(lower, candidate[: len(lower)]))
        for candidate in known
    }
    best = sorted((name for name in scores if scores[name] >= 0.6), key=lambda n: -scores[n])
    return [known[match] for match in best[:3]]


def _alike(a: str, b: str) -> float:
    return difflib.SequenceMatcher(None, a, b).ratio()
