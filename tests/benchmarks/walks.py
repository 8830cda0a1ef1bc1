"""Random walks through masks: every one must end, parse and validate.

    python tests/benchmarks/walks.py DATA [--schemas N] [--walks N] [--seed S] [--tokenizer PATH]
                                     [--suite]

For each schema (MaskBench's, or with ``--suite`` the test-suite's for draft 2020-12), walks choose
uniformly among the allowed tokens under a random token budget, alternating between compact text in
schema order and flexible text in any order. An empty mask, an overrun budget, text that does not
parse or that jsonschema-rs rejects is a failure.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema_rs
import numpy as np
from conformance import byte_vocabulary, read

import structgen
from structgen.errors import StructgenError
from structgen.types import JsonSchema
from structgen.vocabulary import Vocabulary

STYLES: tuple[dict[str, Any], ...] = ({}, {"whitespace": "flexible", "property_order": "any"})


def walk(constraint: Any, rng: random.Random, out: Any) -> str:
    """One walk; the text it ends in."""
    vocabulary = constraint.vocabulary
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
            return data.decode()
        data += vocabulary.tokens[token]
    raise AssertionError(f"budget of {budget} overrun: {bytes(data)[-100:]!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--schemas", type=int, default=1000)
    parser.add_argument("--walks", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--suite", action="store_true")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    if arguments.tokenizer:
        vocabulary = Vocabulary.from_tokenizer_json(arguments.tokenizer)
    else:
        vocabulary = byte_vocabulary()
    out = np.zeros((vocabulary.size + 31) // 32, np.uint32)
    if arguments.suite:
        groups = read(arguments.data / "json-schema-test-suite.jsonl.xz")
        cases = [
            (f"{g['file']}: {g['description']}", g["schema"])
            for g in groups
            if g["draft"] == "draft2020-12" and not g["optional"]
        ]
    else:
        cases = [(c["id"], c["schema"]) for c in read(arguments.data / "maskbench-dev.jsonl.xz")]
    rng.shuffle(cases)
    count: Counter[str] = Counter()
    started = time.perf_counter()
    for name, schema in cases[: arguments.schemas]:
        try:
            validator = jsonschema_rs.validator_for(schema, validate_formats=False)
        except Exception:
            count["schema that jsonschema-rs refuses"] += 1
            continue
        for style in STYLES:
            try:
                constraint = structgen.compile(JsonSchema(schema), vocabulary, **style)
            except StructgenError as error:
                count[f"refused: {type(error).__name__}"] += 1
                continue
            for _ in range(arguments.walks // len(STYLES)):
                text = ""
                try:
                    text = walk(constraint, rng, out)
                    value = json.loads(text)
                    if validator.is_valid(value):
                        count["right"] += 1
                        continue
                    reason = f"invalid: {next(validator.iter_errors(value)).message[:150]}"
                except Exception as error:
                    reason = f"{type(error).__name__}: {error}"
                count["WRONG"] += 1
                print(f"{name} {style}: {reason[:300]} in {text[:200]!r}", flush=True)
                break
    print(dict(count), f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
