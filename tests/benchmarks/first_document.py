"""What the first document of a new process costs: compiling its schema, and its masks, in CPU time.

    python tests/benchmarks/first_document.py MASKBENCH.jsonl.xz TOKENIZER.json [--n 20]

Each schema in a process of its own, whose imports do not count; with and without `warm_up`.
"""

from __future__ import annotations

import argparse
import json
import lzma
import multiprocessing
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

Case = tuple[Any, Any]


def cases(data: Path, n: int) -> list[Case]:
    """A schema and a document that it allows, of every so many lines."""
    with lzma.open(data, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    found = []
    for row in rows[:: max(len(rows) // n, 1)]:
        valid = [test["data"] for test in row["tests"] if test["valid"]]
        if valid:
            found.append((row["schema"], valid[0]))
    return found[:n]


def measure(case: Case, tokenizer: Path, warms_up: bool) -> tuple[float, float] | None:
    """Milliseconds of compiling and of all masks, in this process, which must be new."""
    import structgen

    schema, document = case
    vocabulary = structgen.Vocabulary.from_tokenizer_json(tokenizer)
    compile_, kind = structgen.compile, structgen.JsonSchema  # imported when they are named
    if warms_up:
        structgen.warm_up(vocabulary)
    began = time.process_time()
    try:
        constraint = compile_(kind(schema), vocabulary)
        compiled = time.process_time()
        cursor = constraint.start()
        out = np.zeros((vocabulary.size + 31) // 32, np.uint32)
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        for token in vocabulary.encode_bytes(text.encode()):
            cursor.fill_mask(out)
            cursor.accept(token)
    except structgen.StructgenError:  # refused, or a document in another order than the schema's
        return None
    return 1e3 * (compiled - began), 1e3 * (time.process_time() - compiled)


def main() -> None:
    """Print medians and the slowest."""
    parser = argparse.ArgumentParser(description="CPU time of the first document of a process.")
    parser.add_argument("data", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("--n", type=int, default=20)
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    for warms_up in (False, True):
        found = []
        for case in cases(arguments.data, arguments.n):
            with context.Pool(1) as pool:
                result = pool.apply(measure, (case, arguments.tokenizer, warms_up))
            if result is not None:
                found.append(result)
        columns = [sorted(column) for column in zip(*found, strict=True)]
        (compiled, masked), (most, slowest) = (
            [statistics.median(column) for column in columns],
            [column[-1] for column in columns],
        )
        print(
            f"{'after warm_up' if warms_up else 'cold':14} {len(found)} documents: compiling "
            f"{compiled:.1f} ms (most {most:.1f}), masks {masked:.1f} ms (most {slowest:.1f})"
        )


if __name__ == "__main__":
    main()
