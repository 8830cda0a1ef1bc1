"""Resident memory while schemas come and go in one process.

    python tests/benchmarks/memory.py DATA [--tokenizer llama3_1|qwen3|gemma3|smollm2|PATH]
        [--schemas N] [--baseline N] [--seed S] [--json FILE]

Every MaskBench schema is compiled, one of its instances walked with a mask for each token, and the
constraint dropped; when the cases run out they start again in another order. What stays is the
caches: resident memory at the end must be within 10% of that after ``--baseline`` schemas. Exits
with status 1 when it is not.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path

from engines import Refused, Structgen
from mask_cases import Case, Workload
from masks import Timeout, time_limit, tokenizer_path, walk

from structgen.masks import cache_info

GROWTH = 0.1


def resident_bytes() -> int:
    """Resident memory of this process (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def use(engine: Structgen, case: Case) -> str:
    """Compile the case and walk its first valid instance; what became of it."""
    chosen = case.valid.index(True) if True in case.valid else 0
    try:
        with time_limit():
            session = engine.start(engine.compile(case.schema))
            walk(session, case.instances[chosen] if case.instances else [], memoryview(engine.out))
    except Refused:
        return "refused"
    except Timeout:
        return "timeout"
    return "walked"


def gauge() -> str:
    """What structgen says its caches hold."""
    return str(cache_info())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--tokenizer", default="llama3_1")
    parser.add_argument("--schemas", type=int, default=10_000)
    parser.add_argument("--baseline", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    tokenizer = tokenizer_path(arguments.tokenizer)
    workload = Workload(arguments.data, tokenizer, None, arguments.seed)
    engine = Structgen(tokenizer, workload.vocabulary)
    rng = random.Random(arguments.seed)
    order: list[int] = []
    count: Counter[str] = Counter()
    marks = {0, arguments.baseline, arguments.schemas}
    marks.update(range(0, arguments.schemas, max(1, arguments.schemas // 10)))
    rows = []
    started = time.perf_counter()
    print(
        "| schemas | resident MB | after a collection | caches say | s |\n|---:|---:|---:|---|---:|"
    )
    for number in range(arguments.schemas + 1):
        if number in marks:
            before = resident_bytes()
            gc.collect()
            rows.append(
                {
                    "schemas": number,
                    "resident": before,
                    "collected": resident_bytes(),
                    "caches": gauge(),
                    "seconds": time.perf_counter() - started,
                }
            )
            print("| {schemas:,} | {:.0f} | {:.0f} | {caches} | {seconds:.0f} |".format(
                before / 1e6, rows[-1]["collected"] / 1e6, **rows[-1]), flush=True)  # fmt: skip
        if not order:
            order = list(range(len(workload)))
            rng.shuffle(order)
        count[use(engine, workload.case(order.pop()))] += 1
    at = {row["schemas"]: row["resident"] for row in rows}
    growth = at[arguments.schemas] / at[arguments.baseline] - 1
    print(f"\n{dict(count)}")
    print(f"{growth:+.1%} from {arguments.baseline:,} to {arguments.schemas:,} schemas")
    if arguments.json:
        report = {"rows": rows, "growth": growth, "outcomes": count}
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    return int(abs(growth) >= GROWTH)


if __name__ == "__main__":
    sys.exit(main())
