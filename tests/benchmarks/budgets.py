"""What masks of long strings cost within tight token budgets.

    python tests/benchmarks/budgets.py [--only NAME]
        [--tokenizer llama3_1|qwen3|gemma3|smollm2|PATH]

Walks one document for each schema, in the tokens that the tokenizer makes of it, with a budget that
has 0, 3 or 20 tokens more than the document needs, and without a budget. Prints milliseconds of the
thread's CPU time for each token (mask and commit), with the collector off: the mean and the largest
for a constraint just compiled (*cold*), and of the least of three more walks over it (*warm*).
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from masks import tokenizer_path
from tokenizers import Tokenizer

import structgen
from structgen import JsonSchema, Vocabulary
from structgen.constraint.cursor import Cursor

WORDS = "the quick brown fox jumps over a lazy dog while seventeen old engineers of München wrote"
LONG = " ".join([WORDS, "“reports” about naïve models and their surprising failures"] * 10)
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "any string": ({}, LONG),
    "minLength": ({"minLength": 1000}, LONG),
    "minLength, maxLength": ({"minLength": 1000, "maxLength": 2000}, LONG),
    "no digits": ({"pattern": "^[^0-9]{800,}$"}, LONG),
    "words": ({"pattern": r"^(\S+ ){100,}\S*$"}, LONG),
    "searched for": ({"pattern": "failures$"}, LONG),
    "searched for, minLength": ({"pattern": "dog.*fox", "minLength": 900}, LONG),
    "hexadecimal": (
        {"pattern": "^[0-9a-f]{256}$"},
        "".join(f"{i * 167 % 256:02x}" for i in range(128)),
    ),
}


def walk(cursor: Cursor, tokens: Sequence[int], out: Any) -> list[float]:
    """Milliseconds of each token."""
    steps = []
    for token in tokens:
        started = time.thread_time_ns()
        cursor.fill_mask(out)
        if not out[token >> 5] >> (token & 31) & 1:
            break  # a plan that fits begins otherwise
        cursor.accept(token)
        steps.append((time.thread_time_ns() - started) / 1e6)
    return steps


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", default="llama3_1")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    path = tokenizer_path(arguments.tokenizer)
    vocabulary, tokenizer = Vocabulary.from_tokenizer_json(path), Tokenizer.from_file(str(path))
    structgen.warm_up(vocabulary)
    out = np.zeros((vocabulary.size + 31) // 32, np.uint32)
    gc.disable()
    print("| | spare | tokens | cold | largest | warm | largest |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, (rule, text) in CASES.items():
        if arguments.only not in name:
            continue
        schema = {"properties": {"a": {"type": "string", **rule}}, "required": ["a"]}
        document = json.dumps({"a": text}, separators=(",", ":"), ensure_ascii=False)
        tokens = tokenizer.encode(document, add_special_tokens=False).ids
        tokens = [*tokens, vocabulary.eos_token_ids[0]]
        for spare in (None, 20, 3, 0):
            gc.collect()
            closed = {"type": "object", "additionalProperties": False, **schema}
            compiled = structgen.compile(JsonSchema(closed), vocabulary)
            budget = None if spare is None else len(tokens) + spare
            cold, *more = (walk(compiled.start(budget), tokens, out) for _ in range(4))
            warm = [min(times) for times in zip(*more, strict=True)]
            figures = " | ".join(f"{np.mean(x):.3f} | {max(x):.1f}" for x in (cold, warm))
            label = "no budget" if spare is None else spare
            print(f"| {name} | {label} | {len(tokens)} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
