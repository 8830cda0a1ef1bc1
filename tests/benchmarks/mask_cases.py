"""What a mask benchmark reads and what it writes down: cases, walks, results.

Knows neither engines nor statistics.
"""

from __future__ import annotations

import json
import lzma
import random
import re
import tempfile
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from structgen.vocabulary.tokens import Vocabulary

_HALF = re.compile("[\ud800-\udfff]")


@dataclass
class Case:
    """A MaskBench case, tokenised: every instance's tokens end with an end-of-sequence id."""

    id: str
    schema: str
    instances: list[list[int]]
    valid: list[bool]


class Workload:
    """The cases of a run, tokenised when they are asked for."""

    def __init__(
        self,
        data: Path,
        tokenizer: Path,
        limit: int | None = None,
        seed: int = 0,
        only: str | None = None,
    ) -> None:
        # Unpacked on disk, so that memory is the engines'.
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        places = []
        path = data / "maskbench-dev.jsonl.xz"
        if not path.is_file():
            raise SystemExit(f"{path} is missing; docs/benchmarks.md says what DATA has to hold.")
        with lzma.open(path) as file:
            for line in file:
                places.append((self._file.tell(), len(line)))
                self._file.write(line)
        random.Random(seed).shuffle(places)
        if only:
            places = [place for place in places if only in self._document(place)["id"]]
        self._places = places[:limit]
        from tokenizers import Tokenizer

        self.backend = Tokenizer.from_file(str(tokenizer))
        self.backend.encode_special_tokens = True  # instances are text
        self.vocabulary = Vocabulary.from_tokenizer_json(tokenizer)

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Case]:
        return map(self.case, range(len(self)))

    def case(self, number: int) -> Case:
        document = self._document(self._places[number])
        return Case(
            document["id"],
            json.dumps(document["schema"], ensure_ascii=False),
            [self._encode(test["data"]) for test in document["tests"]],
            [test["valid"] for test in document["tests"]],
        )

    def _document(self, place: tuple[int, int]) -> Any:
        self._file.seek(place[0])
        return json.loads(self._file.read(place[1]))

    def _encode(self, data: Any) -> list[int]:
        text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
        if not text.isascii() and _HALF.search(text):
            text = json.dumps(data, separators=(",", ":"))  # half a surrogate pair has no UTF-8
        ids: list[int] = self.backend.encode(text, add_special_tokens=False).ids
        return [*ids, self.vocabulary.eos_token_ids[0]]


@dataclass
class Walk:
    """One instance in one engine: its verdict, and nanoseconds.

    Attributes:
        steps: those of each mask with its commit.
        first_mask: those of the first mask alone.
    """

    accepted: bool
    steps: array[int]
    first_mask: int
    problem: str = ""


@dataclass
class Result:
    """One case in one engine.

    Attributes:
        outcome: ``"compiled"``, ``"refused"``, ``"timeout"`` or ``"failed"``.
        compile: nanoseconds of each compilation.
        ttfm: nanoseconds of the first compilation and mask.
        first_step: the same with the commit of the first token.
        once, again, afresh: walks, one an instance.
    """

    outcome: str = "compiled"
    reason: str = ""
    compile: list[int] = field(default_factory=list)
    ttfm: int = 0
    first_step: int = 0
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
