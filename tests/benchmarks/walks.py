"""Random walks through masks, and edits of what they wrote: does a mask ever lead wrong?

    python tests/benchmarks/walks.py DATA [--suite] [--maskbench] [--schemas N] [--walks N]
                                     [--edits N] [--instances] [--seed S] [--jobs N]
                                     [--tokenizer PATH] [--only NAME] [--json FILE]

DATA is a folder with ``maskbench-dev.jsonl.xz`` and ``json-schema-test-suite.jsonl.xz``.

*Walks* choose uniformly among the allowed tokens under a random token budget, half of them with the
default options and formats on, half with flexible whitespace, any order, and formats off. An empty
mask, an overrun budget, text that is not JSON or that jsonschema-rs rejects is a failure.

*Edits*: each valid walk gets one random edit of its text and one of its value (see `mutation`), N
times; with ``--instances`` the instances that come with the schemas are edited too. structgen must
accept exactly what jsonschema-rs accepts; `judging` says what else may come out, and how each such
reason is verified.
"""

from __future__ import annotations

import argparse
import json
import lzma
import platform
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from conformance import byte_vocabulary, read_lines
from documents import read, spelled
from jobs import Timeout, spread, time_limit
from judging import FLEXIBLE, Judge, Verdict
from mutation import Pool, edit_text, edit_value

from structgen.constraint.constraint import Constraint
from structgen.errors import StructgenError
from structgen.vocabulary.tokens import Vocabulary

STYLES: Mapping[str, tuple[Mapping[str, Any], bool]] = {
    "default": ({}, True),
    "flexible": (FLEXIBLE, False),
}
"""For each style, the options, and whether formats are enforced where the draft lets us choose."""


@dataclass(frozen=True)
class Case:
    """A schema to walk."""

    group: str
    name: str
    schema: Any
    dialect: str | None = None
    documents: Mapping[str, Any] | None = None
    instances: tuple[Any, ...] = ()


@dataclass
class Outcome:
    """What the walks and edits of one schema came to."""

    count: Counter[str] = field(default_factory=Counter)
    lines: list[str] = field(default_factory=list)


def walk(constraint: Constraint, rng: random.Random) -> bytes:
    """One walk; the text it ends in."""
    vocabulary = constraint.vocabulary
    out = np.zeros((vocabulary.size + 31) // 32, np.uint32)
    minimum = constraint.start().min_tokens_to_finish()
    budget = minimum + rng.choice((0, 1, 3, 10, 40, 120))
    cursor = constraint.start(max_tokens=budget)
    data = bytearray()
    for _ in range(budget):
        cursor.fill_mask(out)
        ids = np.flatnonzero(np.unpackbits(out.view(np.uint8), bitorder="little"))
        if not len(ids):
            raise AssertionError(f"empty mask after {bytes(data)!r}")
        token = int(ids[rng.randrange(len(ids))])
        cursor.accept(token)
        if cursor.is_finished:
            return bytes(data)
        data += vocabulary.tokens[token]
    raise AssertionError(f"budget of {budget} overrun: {bytes(data)[-100:]!r}")


@dataclass(frozen=True)
class Walker:
    """Walks cases and judges edits.

    Attributes:
        vocabulary: a vocabulary with a token for every byte.
        walks: walks of each schema, half of them in each style.
        edits: edits of each kind for each walk, and for each instance.
        instances: whether the cases' instances are edited as well.
        seed: of the random choices, which depend on nothing else but the case's name.
        seconds: most time for one schema in one style; 0 for any.
        verbose: report every text that is not simply agreed on, and slow schemas.
    """

    vocabulary: Vocabulary
    walks: int = 10
    edits: int = 1
    instances: bool = False
    seed: int = 0
    seconds: int = 60
    verbose: bool = False

    def run(self, case: Case) -> Outcome:
        """Everything asked of one schema."""
        outcome = Outcome()
        for style in STYLES:
            started = time.perf_counter()
            try:
                with time_limit(self.seconds):
                    self._style(case, style, outcome)
            except Timeout:
                outcome.count["schema: timeout"] += 1
                outcome.lines.append(f"TIMEOUT {case.name} [{style}]")
            seconds = time.perf_counter() - started
            if self.verbose and seconds > 5:
                outcome.lines.append(f"SLOW {case.name} [{style}]: {seconds:.1f} s")
        return outcome

    def _style(self, case: Case, style: str, outcome: Outcome) -> None:
        options, formats = STYLES[style]
        rng = random.Random(f"{self.seed} {case.name} {style}")
        try:
            judge = Judge(
                case.schema, self.vocabulary, options, case.dialect, case.documents, formats
            )
        except StructgenError as error:
            outcome.count[f"schema: refused, {type(error).__name__}"] += 1
            return
        except Exception as error:
            kind = "jsonschema-rs refuses it" if isinstance(error, ValueError) else "EXCEPTION"
            outcome.count[f"schema: {kind}"] += 1
            outcome.lines.append(f"{kind} {case.name} [{style}]: {error!r}"[:300])
            return
        outcome.count["schema: walked"] += 1
        pool = Pool(case.schema)
        note = partial(self._note, case, style, judge, outcome)
        for _ in range(self.walks // len(STYLES)):
            try:
                data = walk(judge.constraint, rng)
            except Exception as error:
                outcome.count["walk: FAILED"] += 1
                outcome.lines.append(f"FAILED {case.name} [{style}]: {error!r}"[:600])
                continue
            verdict = note("walk", data)
            if verdict is Verdict.VALID:
                self._edits(rng, style, data, pool, note)
        if self.instances:
            for instance in case.instances:
                # as written in Python, so that floats are not yet decimals of their own
                data = json.dumps(instance, ensure_ascii=False).encode()
                if style == "default":
                    data = spelled(read(data)).encode()
                self._edits(rng, style, data, pool, note)

    def _edits(
        self, rng: random.Random, style: str, data: bytes, pool: Pool, note: Callable[..., Verdict]
    ) -> None:
        tree = read(data)
        for _ in range(self.edits):
            note("edit of text", edit_text(rng, data))
            # With flexible options any spelling of numbers will do, so they are left as they are.
            number = None if style == "default" else attrgetter("text")
            note("edit of value", spelled(edit_value(rng, tree, pool), number).encode())

    def _note(
        self, case: Case, style: str, judge: Judge, outcome: Outcome, what: str, data: bytes
    ) -> Verdict:
        try:
            verdict = judge.verdict(data)
        except Exception as error:
            outcome.count[f"{what}: EXCEPTION"] += 1
            outcome.lines.append(
                f"EXCEPTION {case.name} [{style}] {what}: {error!r} in {_short(data)}"
            )
            return Verdict.WRONGLY_REFUSED
        outcome.count[f"{what}: {verdict.value}"] += 1
        usual = (Verdict.VALID, Verdict.INVALID, Verdict.NOT_JSON)
        if verdict.is_wrong or (self.verbose and verdict not in usual):
            why = ""
            if verdict is not Verdict.WRONGLY_REFUSED:
                try:
                    why = judge.complaint(read(data))
                except ValueError as error:
                    why = str(error)
            outcome.lines.append(
                f"{verdict.value} {case.name} [{style}] {what}: {why[:300]} in {_short(data)}"
            )
        return verdict


def _short(data: bytes) -> str:
    text = repr(data.decode(errors="backslashreplace"))
    return text if len(text) < 3000 else f"{text[:1500]} … {text[-1500:]}"


def maskbench_cases(data: Path, seed: int, limit: int | None) -> list[Case]:
    """MaskBench's schemas in a random order."""
    lines = list(read_lines(data / "maskbench-dev.jsonl.xz"))
    random.Random(seed).shuffle(lines)
    return [
        Case("MaskBench", c["id"], c["schema"], instances=tuple(t["data"] for t in c["tests"]))
        for c in lines[:limit]
    ]


def suite_cases(data: Path) -> list[Case]:
    """The test-suite's schemas: the required ones, and those on formats, for strings only."""
    with lzma.open(data / "json-schema-test-suite-remotes.json.xz", "rt") as file:
        documents = json.load(file)
    return cases_of(read_lines(data / "json-schema-test-suite.jsonl.xz"), documents)


def cases_of(groups: Iterable[Any], documents: Mapping[str, Any]) -> list[Case]:
    """The cases of groups that are written as the test-suite's."""
    return [
        Case(
            f"{g['draft']} {'formats' if g['optional'] else 'required'}",
            f"{g['file']}: {g['description']}",
            {**g["schema"], "type": "string"} if g["optional"] else g["schema"],
            g["draft"],
            documents,
            tuple(t["data"] for t in g["tests"]),
        )
        for g in groups
        if not g["optional"] or "/format/" in g["file"]
    ]


def table(groups: Mapping[str, Counter[str]]) -> str:
    """The counts, a row for each kind of outcome and a column for each group of schemas."""
    labels = sorted({label for count in groups.values() for label in count}, key=_rank)
    width = max(map(len, labels), default=0)
    head = "".join(f"{name:>24}" for name in groups)
    lines = [" " * width + head]
    for label in labels:
        cells = "".join(f"{count[label] or '–':>24}" for count in groups.values())
        lines.append(label.ljust(width) + cells)
    return "\n".join(lines)


def _rank(label: str) -> tuple[int, str, int, str]:
    what, _, kind = label.partition(": ")
    order = [v.value for v in Verdict]
    parts = ["schema", "walk", "edit of text", "edit of value"]
    return parts.index(what), what, order.index(kind) if kind in order else -1, kind


def main() -> int:
    """Run; the exit status says whether anything went wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--suite", action="store_true", help="only the test-suite")
    parser.add_argument("--maskbench", action="store_true", help="only MaskBench")
    parser.add_argument("--schemas", type=int, default=1000, help="of MaskBench")
    parser.add_argument("--walks", type=int, default=10, help="for each schema")
    parser.add_argument("--edits", type=int, default=1, help="of each kind for each walk")
    parser.add_argument("--instances", action="store_true", help="edit the instances as well")
    parser.add_argument("--only", help="schemas whose name contains this")
    parser.add_argument("--slice", default="0/1", help="I/N: every N-th schema from the I-th on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--verbose", action="store_true", help="print every text not agreed on")
    parser.add_argument("--seconds", type=int, default=60, help="for one schema in one style")
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    started = time.perf_counter()
    cases: list[Case] = []
    if arguments.suite or not arguments.maskbench:
        cases += suite_cases(arguments.data)
    if arguments.maskbench or not arguments.suite:
        cases += maskbench_cases(arguments.data, arguments.seed, arguments.schemas)
    if arguments.only:
        cases = [case for case in cases if arguments.only in case.name]
    first, _, step = arguments.slice.partition("/")
    cases = cases[int(first) :: int(step)]
    groups: dict[str, Counter[str]] = {}
    if arguments.tokenizer:
        vocabulary = Vocabulary.from_tokenizer_json(arguments.tokenizer)
    else:
        vocabulary = byte_vocabulary()
    walker = Walker(
        vocabulary,
        arguments.walks,
        arguments.edits,
        arguments.instances,
        arguments.seed,
        arguments.seconds,
        arguments.verbose,
    )
    for case, outcome in zip(cases, spread(walker.run, cases, arguments.jobs), strict=True):
        groups.setdefault(case.group, Counter()).update(outcome.count)
        for line in outcome.lines:
            print(line, flush=True)
    print("\n" + table(groups))
    seconds = round(time.perf_counter() - started, 1)
    print(f"{len(cases)} schemas, {arguments.jobs} processes, {seconds} s")
    if arguments.json:
        report = {
            "command": sys.argv,
            "python": platform.python_version(),
            "seconds": seconds,
            "groups": groups,
        }
        arguments.json.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    return int(any(is_bad(label) for count in groups.values() for label in count))


def is_bad(label: str) -> bool:
    """Whether this kind of outcome is a failure."""
    return any(word in label for word in ("WRONGLY", "FAILED", "EXCEPTION", "timeout"))


if __name__ == "__main__":
    sys.exit(main())
