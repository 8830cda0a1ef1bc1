"""Conformance of the JSON engine: MaskBench and the JSON-Schema-Test-Suite.

    python tests/benchmarks/conformance.py DATA [--suite] [--maskbench] [--limit N] [--seed S]
                                           [--jobs N] [--masks] [--tokenizer PATH]
                                           [--json FILE]

DATA is a folder with ``maskbench-dev.jsonl.xz`` and ``json-schema-test-suite.jsonl.xz``. Every
instance is serialised (compact, and with spaces after ``,`` and ``:``), tokenised, and fed to a
cursor token by token; it counts as accepted when every token is accepted and the output may end.
With ``--masks`` the mask is computed before each token and its bit has to agree.
"""

from __future__ import annotations

import argparse
import collections
import json
import lzma
import random
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jobs import Timeout, spread, time_limit

import structgen
from structgen.constraint.constraint import Constraint
from structgen.errors import StructgenError, Unsatisfiable
from structgen.types import JsonSchema
from structgen.vocabulary.tokens import Vocabulary

OPTIONS = {"whitespace": "flexible", "property_order": "any", "spelling": "any"}
TIMEOUT_SECONDS = 30
SPELLINGS = ((",", ":"), (", ", ": "))


def read_lines(path: Path) -> Iterator[Any]:
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def byte_vocabulary() -> Vocabulary:
    """All single bytes and an EOS: verdicts do not depend on the tokenizer."""
    return Vocabulary.from_tokens([bytes([b]) for b in range(256)] + [b""], eos_token_ids=[256])


class Runner:
    """Compiles cases and judges instances."""

    def __init__(self, tokenizer: Path | None, masks: bool) -> None:
        self.masks = masks
        if tokenizer is None:
            self.vocabulary = byte_vocabulary()
            self.encode = lambda text: list(text.encode())
        else:
            from tokenizers import Tokenizer

            self.vocabulary = Vocabulary.from_tokenizer_json(tokenizer)
            backend = Tokenizer.from_file(str(tokenizer))
            self.encode = lambda text: backend.encode(text, add_special_tokens=False).ids
        self.out = np.zeros((self.vocabulary.size + 31) // 32, np.uint32)

    def compile(self, schema: Any, **options: Any) -> Constraint:
        return structgen.compile(JsonSchema(schema), self.vocabulary, **{**OPTIONS, **options})

    def accepts(self, constraint: Constraint, text: str) -> bool:
        cursor = constraint.start()
        for token in self.encode(text):
            if self.masks:
                cursor.fill_mask(self.out)
                allowed = bool(self.out[token >> 5] >> (token & 31) & 1)
            try:
                cursor.accept(token)
            except structgen.errors.TokenNotAllowed:
                if self.masks and allowed:
                    raise AssertionError(f"mask and accept disagree in {text[:60]!r}") from None
                return False
            if self.masks and not allowed:
                raise AssertionError(f"mask and accept disagree in {text[:60]!r}")
        return cursor.is_accepting


Judged = tuple[collections.Counter[str], list[str]]
"""What one case or group came to: counts, and lines that say what was wrong."""


def judge_case(runner: Runner, case: Mapping[str, Any]) -> Judged:
    """One case of MaskBench."""
    count: collections.Counter[str] = collections.Counter()
    lines: list[str] = []
    try:
        with time_limit(TIMEOUT_SECONDS):
            _judge_case(runner, case, count, lines)
    except Timeout:
        return collections.Counter(timeout=1), [f"timeout {case['id']}"]
    except Exception as error:
        line = f"exception {case['id']}: {type(error).__name__} {str(error)[:200]}"
        return collections.Counter(exception=1), [line]
    return count, lines


def _judge_case(
    runner: Runner, case: Mapping[str, Any], count: collections.Counter[str], lines: list[str]
) -> None:
    try:
        constraint = runner.compile(case["schema"])
    except StructgenError as error:
        if isinstance(error, Unsatisfiable) and not any(t["valid"] for t in case["tests"]):
            count["right"] += 1
            return
        count["refused"] += 1
        count[f"refused: {type(error).__name__} {getattr(error, 'keyword', '')}"] += 1
        lines.append(f"refused {case['id']}: {str(error)[:230]}")
        return
    wrong: set[str] = set()
    for test in case["tests"]:
        for separators in SPELLINGS:
            text = json.dumps(test["data"], separators=separators, ensure_ascii=False)
            verdict = runner.accepts(constraint, text)
            if verdict != test["valid"]:
                kind = "accepts invalid" if verdict else "rejects valid"
                wrong.add(kind)
                lines.append(f"{kind} {case['id']}: {text[:150]}")
                break
    count.update(wrong)
    count["wrong" if wrong else "right"] += 1


def maskbench(
    runner: Runner, data: Path, limit: int | None, seed: int, jobs: int
) -> dict[str, Any]:
    """All of MaskBench, or ``limit`` cases of it."""
    cases = list(read_lines(data / "maskbench-dev.jsonl.xz"))
    random.Random(seed).shuffle(cases)
    cases = cases[:limit]
    count: collections.Counter[str] = collections.Counter()
    for judged, lines in spread(partial(judge_case, runner), cases, jobs):
        count += judged
        for line in lines:
            print(line)
    reasons = {k.removeprefix("refused: "): n for k, n in count.most_common() if "refused:" in k}
    counts = {k: n for k, n in count.items() if "refused:" not in k}
    return {"cases": len(cases), **counts, "reasons": reasons}


def judge_group(
    runner: Runner, documents: Mapping[str, Any], group: Mapping[str, Any]
) -> tuple[str, Judged]:
    """One group of the test-suite, and the bucket that it counts in."""
    is_format = group["optional"] and "format" in str(group["file"])
    kind = "required" if not group["optional"] else "format" if is_format else "other optional"
    bucket = f"{group['draft']} {kind}"
    tests = group["tests"]
    count: collections.Counter[str] = collections.Counter(tests=len(tests))
    lines: list[str] = []
    name = f"{bucket} {group['file']}: {group['description']}"
    constraint: Constraint | None = None
    try:
        with time_limit(TIMEOUT_SECONDS):
            constraint = runner.compile(
                group["schema"],
                dialect=group["draft"],
                documents=documents,
                format_assertion=is_format,
            )
    except Unsatisfiable:
        pass
    except StructgenError as error:
        count["refused"] += len(tests)
        return bucket, (count, [f"refused {name}: {str(error)[:200]}"])
    except (Exception, Timeout) as error:
        count["exception"] += len(tests)
        return bucket, (count, [f"exception {name}: {error!r}"[:300]])
    for test in tests:
        text = json.dumps(test["data"], ensure_ascii=False)
        try:
            with time_limit(TIMEOUT_SECONDS):
                verdict = constraint is not None and runner.accepts(constraint, text)
        except (Exception, Timeout) as error:
            outcome = "exception"
            lines.append(f"exception {name}: {test['description']}: {error!r}"[:300])
        else:
            outcome = "wrongly accepted" if verdict else "wrongly rejected"
            if verdict == test["valid"]:
                outcome = "right"
            else:
                lines.append(f"{outcome} {name}: {test['description']}")
        count[outcome] += 1
    return bucket, (count, lines)


def suite(runner: Runner, data: Path, jobs: int) -> dict[str, Any]:
    """All of the test-suite."""
    with lzma.open(data / "json-schema-test-suite-remotes.json.xz", "rt") as file:
        documents = json.load(file)
    groups = list(read_lines(data / "json-schema-test-suite.jsonl.xz"))
    report: dict[str, Any] = {}
    for bucket, (count, lines) in spread(partial(judge_group, runner, documents), groups, jobs):
        report.setdefault(bucket, collections.Counter()).update(count)
        for line in lines:
            print(line)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--suite", action="store_true")
    parser.add_argument("--maskbench", action="store_true")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--masks", action="store_true")
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()

    runner = Runner(arguments.tokenizer, arguments.masks)
    everything = not arguments.suite and not arguments.maskbench
    results: dict[str, Any] = {}
    started = time.perf_counter()
    if arguments.suite or everything:
        results["suite"] = suite(runner, arguments.data, arguments.jobs)
    if arguments.maskbench or everything:
        results["maskbench"] = maskbench(
            runner, arguments.data, arguments.limit, arguments.seed, arguments.jobs
        )
    results["seconds"] = round(time.perf_counter() - started, 1)
    print(json.dumps(results, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
