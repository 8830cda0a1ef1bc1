"""Conformance of the JSON engine: MaskBench and the JSON-Schema-Test-Suite.

    python tests/benchmarks/conformance.py DATA [--suite] [--maskbench] [--limit N] [--seed S]
                                           [--masks] [--tokenizer PATH] [--json FILE]

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
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import structgen
from structgen.constraint import Constraint
from structgen.errors import StructgenError, Unsatisfiable
from structgen.types import JsonSchema
from structgen.vocabulary import Vocabulary

OPTIONS = {"whitespace": "flexible", "property_order": "any"}
TIMEOUT_SECONDS = 30
SPELLINGS = ((",", ":"), (", ", ": "))


class Timeout(Exception):
    """A case took longer than `TIMEOUT_SECONDS`."""


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


def maskbench(runner: Runner, data: Path, limit: int | None, seed: int) -> dict[str, Any]:
    cases = list(read_lines(data / "maskbench-dev.jsonl.xz"))
    random.Random(seed).shuffle(cases)
    cases = cases[:limit]
    count: collections.Counter[str] = collections.Counter()
    reasons: collections.Counter[str] = collections.Counter()
    for case in cases:
        wrong: set[str] = set()
        signal.alarm(TIMEOUT_SECONDS)
        try:
            try:
                constraint = runner.compile(case["schema"])
            except StructgenError as error:
                if isinstance(error, Unsatisfiable) and not any(t["valid"] for t in case["tests"]):
                    count["right"] += 1
                    continue
                count["refused"] += 1
                reasons[f"{type(error).__name__} {getattr(error, 'keyword', '')}"] += 1
                print(f"refused {case['id']}: {str(error)[:230]}")
                continue
            for test in case["tests"]:
                for separators in SPELLINGS:
                    text = json.dumps(test["data"], separators=separators, ensure_ascii=False)
                    verdict = runner.accepts(constraint, text)
                    if verdict != test["valid"]:
                        kind = "accepts invalid" if verdict else "rejects valid"
                        wrong.add(kind)
                        print(f"{kind} {case['id']}: {text[:150]}")
                        break
        except Timeout:
            count["timeout"] += 1
            print(f"timeout {case['id']}")
            continue
        except Exception as error:
            count["exception"] += 1
            print(f"exception {case['id']}: {type(error).__name__} {str(error)[:200]}")
            continue
        finally:
            signal.alarm(0)
        for kind in wrong:
            count[kind] += 1
        count["wrong" if wrong else "right"] += 1
    return {"cases": len(cases), **count, "reasons": dict(reasons.most_common())}


def suite(runner: Runner, data: Path) -> dict[str, Any]:
    with lzma.open(data / "json-schema-test-suite-remotes.json.xz", "rt") as file:
        documents = json.load(file)
    report: dict[str, Any] = {}
    for group in read_lines(data / "json-schema-test-suite.jsonl.xz"):
        is_format = group["optional"] and "format" in str(group["file"])
        if group["optional"] and not is_format:
            bucket = f"{group['draft']} other optional"
        else:
            bucket = f"{group['draft']} {'format' if is_format else 'required'}"
        count = report.setdefault(bucket, collections.Counter())
        signal.alarm(TIMEOUT_SECONDS)
        try:
            constraint: Any = runner.compile(
                group["schema"],
                dialect=DRAFTS[group["draft"]],
                documents=documents,
                format_assertion=is_format,
            )
        except Unsatisfiable:
            constraint = None
        except StructgenError as error:
            count["tests"] += len(group["tests"])
            count["refused"] += len(group["tests"])
            print(f"refused {bucket} {group['file']}: {group['description']}: {str(error)[:200]}")
            continue
        except (Exception, Timeout) as error:
            count["tests"] += len(group["tests"])
            count["exception"] += len(group["tests"])
            print(f"exception {bucket} {group['file']}: {group['description']}: {error!r}"[:300])
            continue
        finally:
            signal.alarm(0)
        for test in group["tests"]:
            count["tests"] += 1
            signal.alarm(TIMEOUT_SECONDS)
            try:
                text = json.dumps(test["data"], ensure_ascii=False)
                verdict = constraint is not None and runner.accepts(constraint, text)
            except (Exception, Timeout) as error:
                count["exception"] += 1
                print(f"exception {bucket} {group['file']}: {test['description']}: {error!r}"[:300])
                continue
            finally:
                signal.alarm(0)
            if verdict == test["valid"]:
                count["right"] += 1
            else:
                kind = "wrongly accepted" if verdict else "wrongly rejected"
                count[kind] += 1
                name = f"{group['file']}: {group['description']}: {test['description']}"
                print(f"{kind} {bucket} {name}")
    return report


DRAFTS = {
    "draft4": "draft4",
    "draft6": "draft6",
    "draft7": "draft7",
    "draft2019-09": "draft2019-09",
    "draft2020-12": "draft2020-12",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--suite", action="store_true")
    parser.add_argument("--maskbench", action="store_true")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--masks", action="store_true")
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()

    def on_alarm(*_: object) -> None:
        raise Timeout

    signal.signal(signal.SIGALRM, on_alarm)
    runner = Runner(arguments.tokenizer, arguments.masks)
    everything = not arguments.suite and not arguments.maskbench
    results: dict[str, Any] = {}
    started = time.perf_counter()
    if arguments.suite or everything:
        results["suite"] = suite(runner, arguments.data)
    if arguments.maskbench or everything:
        results["maskbench"] = maskbench(runner, arguments.data, arguments.limit, arguments.seed)
    results["seconds"] = round(time.perf_counter() - started, 1)
    print(json.dumps(results, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
