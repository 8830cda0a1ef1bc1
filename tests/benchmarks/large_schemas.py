"""What large and entangled schemas cost, each in a process of its own.

    python tests/benchmarks/large_schemas.py [NAME…] [--tokenizer smollm2|llama3|gemma3|qwen3]
        [--seconds 120] [--json FILE]

For each case of `schema_makers`: CPU seconds of compiling, of the first mask, and of the slowest
mask with its commit on the way through the case's texts (which take the longest token that is
allowed); and by how many megabytes the process grew. A NAME is a part of a case's name.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from schema_makers import CASES, text_of

import structgen
from structgen import JsonSchema, StructgenError, Vocabulary

Figures = dict[str, Any]


def memory() -> float:
    """The most megabytes that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def slowest_mask(constraint: structgen.Constraint, vocabulary: Vocabulary, text: bytes) -> float:
    """Seconds of the slowest mask and commit on the way through ``text`` and its end."""
    ids = {token: i for i, token in enumerate(vocabulary.tokens) if token}
    longest = max(map(len, ids))
    out = np.zeros((vocabulary.size + 31) // 32, np.uint32)
    cursor = constraint.start()
    slowest, at = 0.0, 0
    while True:
        started = time.process_time()
        cursor.fill_mask(out)
        if at == len(text):
            assert cursor.is_accepting, text
            return max(slowest, time.process_time() - started)
        for size in range(min(longest, len(text) - at), 0, -1):
            token = ids.get(text[at : at + size])
            if token is not None and out[token >> 5] >> (token & 31) & 1:
                break
        else:
            raise AssertionError(f"not allowed after {text[:at]!r}: {text[at : at + 20]!r}")
        cursor.accept(token)
        slowest = max(slowest, time.process_time() - started)
        at += size


def measure(name: str, tokenizer: str) -> Figures:
    """The figures of one case."""
    sys.path.insert(0, str(Path(__file__).parent.parent))
    import real_tokenizers

    vocabulary = real_tokenizers.vocabulary(tokenizer)
    structgen.warm_up(vocabulary)
    case = CASES[name]()
    text = json.dumps(case.schema)
    found: Figures = {"name": name, "kilobytes": len(text) / 1000}
    before, started = memory(), time.process_time()
    try:
        constraint = structgen.compile(JsonSchema(text), vocabulary, **case.options)
        found["compile"] = time.process_time() - started
        out = np.zeros((vocabulary.size + 31) // 32, np.uint32)
        constraint.start().fill_mask(out)
        found["first"] = time.process_time() - started - found["compile"]
        texts = map(text_of, case.values)
        found["slowest"] = max(slowest_mask(constraint, vocabulary, text) for text in texts)
    except (StructgenError, AssertionError) as error:
        found["error"] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        found["seconds"] = time.process_time() - started
    found["megabytes"] = memory() - before
    return found


def in_a_process(name: str, tokenizer: str, seconds: int) -> Figures:
    """`measure` in a process that may take so many seconds of CPU."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))

    command = [sys.executable, __file__, "--one", name, "--tokenizer", tokenizer]
    done = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"over {seconds} s"]
        return {"name": name, "error": last[0]}
    found: Figures = json.loads(done.stdout)
    return found


def row(found: Figures) -> str:
    """One line of the table."""
    cells = [found["name"]]
    for key, digits in (("kilobytes", 0), ("compile", 2), ("first", 2), ("slowest", 2)):
        cells.append(f"{found[key]:,.{digits}f}" if key in found else "")
    cells.append(f"{found['megabytes']:,.0f}" if "megabytes" in found else "")
    if "error" in found:
        took = f" after {found['seconds']:.1f} s" if "seconds" in found else ""
        cells[-1] = found["error"][:100] + took
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--tokenizer", default="smollm2")
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--json")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one, arguments.tokenizer)))
        return
    print("| schema | kB | compile s | first mask s | slowest mask s | MB |")
    print("|---|---:|---:|---:|---:|---:|")
    chosen = [n for n in CASES if not arguments.names or any(p in n for p in arguments.names)]
    results = []
    for name in chosen:
        results.append(in_a_process(name, arguments.tokenizer, arguments.seconds))
        print(row(results[-1]), flush=True)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
