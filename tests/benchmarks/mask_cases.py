"""What a mask benchmark reads and what it writes down: cases, walks, results.

Knows neither engines nor statistics.
"""

from __future__ import annotations

import json
import lzma
import random
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from structgen.vocabulary import Vocabulary


@dataclass
class Case:
    """A MaskBench case, tokenised: every instance's tokens end with an end-of-sequence id."""

    id: str
    schema: str
    instances: list[list[int]]
    valid: list[bool]


class Workload:
    """The cases of a run. Kept as text, so that the collector has no more to do than it must."""

    def __init__(
        self,
        data: Path,
        tokenizer: Path,
        limit: int | None = None,
        seed: int = 0,
        only: str | None = None,
    ) -> None:
        with lzma.open(data / "maskbench-dev.jsonl.xz", "rt", encoding="utf-8") as file:
            lines = file.readlines()
        random.Random(seed).shuffle(lines)
        if only:
            lines = [line for line in lines if only in json.loads(line)["id"]]
        self._lines = lines[:limit]
        from tokenizers import Tokenizer

        self.backend = Tokenizer.from_file(str(tokenizer))
        self.backend.encode_special_tokens = True  # instances are text
        self.vocabulary = Vocabulary.from_tokenizer_json(tokenizer)

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[Case]:
        return map(self.case, range(len(self)))

    def case(self, number: int) -> Case:
        document = json.loads(self._lines[number])
        return Case(
            document["id"],
            json.dumps(document["schema"], ensure_ascii=False),
            [self._encode(test["data"]) for test in document["tests"]],
            [test["valid"] for test in document["tests"]],
        )

    def _encode(self, data: Any) -> list[int]:
        text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
        ids: list[int] = self.backend.encode(text, add_special_tokens=False).ids
        return [*ids, self.vocabulary.eos_token_ids[0]]


@dataclass
class Walk:
    """One instance in one engine: its verdict, and nanoseconds of each mask with its commit."""

    accepted: bool
    steps: array[int]
    problem: str = ""


@dataclass
class Result:
    """One case in one engine.

    Attributes:
        outcome: ``"compiled"``, ``"refused"``, ``"timeout"`` or ``"failed"``.
        compile: nanoseconds of each compilation.
        ttfm: nanoseconds of the first compilation and mask.
        once, again, afresh: walks, one an instance.
    """

    outcome: str = "compiled"
    reason: str = ""
    compile: list[int] = field(default_factory=list)
    ttfm: int = 0
    once: list[Walk] = field(default_factory=list)
    again: list[Walk] = field(default_factory=list)
    afresh: list[Walk] = field(default_factory=list)


@dataclass
class Totals:
    """What one engine took in all, harness included: process CPU, and the collector's share."""

    cpu_ns: int = 0
    collector_ns: int = 0
    collections: int = 0


@dataclass
class Run:
    """What one process measured: per engine its results case by case, and totals."""

    results: dict[str, list[Result]]
    totals: dict[str, Totals]
    versions: dict[str, str]
