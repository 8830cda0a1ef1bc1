"""What a reference that leads nowhere may have meant, in words for the error.

Each function gives a sentence, or nothing. Asked only once a reference has failed.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from .dialects import Dialect, how_to_choose, subschemas

_MOST_NAMED = 8
"""Most names that are listed where none is near."""


def steps(raw: Any) -> list[str]:
    """The names by which a pointer may go on from ``raw``."""
    found = raw.items() if isinstance(raw, Mapping) else ()
    return [name for name, value in found if isinstance(value, (Mapping, list, bool))]


def meant(wanted: str, known: list[str]) -> str:
    """The nearest of the ``known`` names, or all if they are few."""
    close = difflib.get_close_matches(wanted, known, 1)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"There is {', '.join(map(repr, known))}." if 0 < len(known) <= _MOST_NAMED else ""


def moved(root: Any, pointer: str) -> str:
    """A hint where the definition that ``pointer`` names is kept under another keyword."""
    before, _, last = pointer.rpartition("/")
    name = last.replace("~1", "/").replace("~0", "~")
    for keyword in ("$defs", "definitions"):
        held = root.get(keyword) if isinstance(root, Mapping) else None
        if before != f"/{keyword}" and isinstance(held, Mapping) and name in held:
            return f"Did you mean '#/{keyword}/{last}'?"
    return ""


def old_anchor(root: Any, dialect: Dialect, name: str) -> str:
    """A hint where the anchor is written as drafts up to 7 have it."""
    stack = [root] if dialect.year >= 2019 else []
    while stack:
        raw = stack.pop()
        if not isinstance(raw, Mapping):
            continue
        for keyword, draft in (("$id", "draft7"), ("id", "draft4")):
            if raw.get(keyword) == f"#{name}":
                return f'Write "$anchor": "{name}", or {how_to_choose(draft)}'
        stack.extend(child for child, _ in subschemas(raw, ""))
    return ""
