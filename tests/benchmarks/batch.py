"""Batch jobs: rows a second beside a loop, one process beside two, and what the job itself costs.

    python tests/benchmarks/batch.py [--model NAME] [--rows 200] [--many 100000] [--json FILE]

The loop is ``generator(messages)``, row after row, in one process: it has the machine's cores, and
its prompt cache. Both ways get the same rows, whose prompts share their beginning; loading the
model is not counted (the first row of a job is asked before the clock starts). What the job costs
is measured with rows that are answered at once: the time a row in all, that of writing parts, and
the memory that 100,000 rows take beyond 10,000.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field

import structgen
from structgen import Generator
from structgen.jobs import Job, Parts, Row, Source, batch

INTRODUCTION = (
    "You read messages that customers send to a shop for garden tools, and say what each is about. "
    "Billing is all that has to do with invoices and money. Shipping is all that has to do with "
    "parcels and their way. Product is all that has to do with what was bought, and how to use it. "
    "Urgency goes from 1, somebody has a question, to 3, somebody threatens to leave.\n\nMessage: "
)
THINGS = ("rake", "hose", "mower", "pair of shears", "wheelbarrow", "spade", "sprinkler")
TEXTS = (
    "My {thing} has not arrived, and it is {days} days now.",
    "You have charged me twice for the {thing}, on the {days}th and a day later.",
    "How do I sharpen the {thing}? I have had it for {days} days.",
    "I want my money back for the {thing} after {days} days, or you will hear from me.",
)


class Ticket(BaseModel):
    team: Literal["billing", "shipping", "product"]
    urgency: int = Field(ge=1, le=3)


def rows_of(n: int) -> list[Row]:
    return [
        {"text": TEXTS[i % len(TEXTS)].format(thing=THINGS[i % len(THINGS)], days=2 + i % 28)}
        for i in range(n)
    ]


def loop(model: structgen.TextModel, rows: Sequence[Row]) -> float:
    """Rows a second of a loop."""
    generator = Generator(model, Ticket)

    def ask(row: Row) -> None:
        prompt = [{"role": "user", "content": INTRODUCTION + row["text"]}]
        generator.parse(prompt, max_new_tokens=40)

    ask(rows[0])
    began = time.perf_counter()
    for row in rows:
        ask(row)
    return len(rows) / (time.perf_counter() - began)


def job(name: str, rows: Sequence[Row], workers: int) -> float:
    """Rows a second of a job."""
    prompt = INTRODUCTION.replace("{", "{{") + "{text}"
    # The first are asked alone: they load the model into each process.
    first = list(rows[: 2 * workers])
    with batch(
        iter([*first, *rows]), Ticket, prompt=prompt, model=name, workers=workers, max_new_tokens=40
    ) as made:
        for _ in first:
            next(made)
        began = time.perf_counter()
        n = sum(row["error"] is None for row in made)
        return n / (time.perf_counter() - began)


class AtOnce:
    """Answers at once."""

    size = 1

    def __call__(self, rows: Sequence[Any]) -> list[Row]:
        return [{**row, "output": "billing", "error": None, "output_tokens": 3} for row in rows]


def overhead(n: int, form: str) -> dict[str, float]:
    """What the job itself costs a row, of which writing; and most memory so far, in MB."""
    written = 0.0

    def timed(write: Callable[..., Path]) -> Callable[..., Path]:
        def call(*args: Any) -> Path:
            nonlocal written
            began = time.perf_counter()
            try:
                return write(*args)
            finally:
                written += time.perf_counter() - began

        return call

    source = Source(lambda: ({"id": i, "text": f"message {i}"} for i in range(n)), n, n)
    with tempfile.TemporaryDirectory() as folder:
        parts = Parts(Path(folder) / "out", form, {"job": n})
        parts.write = timed(parts.write)  # type: ignore[method-assign]
        began = time.perf_counter()
        with parts, Job(source, AtOnce(), window=32) as made:
            made.write(parts)
        seconds = time.perf_counter() - began
    return {
        "us_a_row": 1e6 * seconds / n,
        "us_writing": 1e6 * written / n,
        "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--many", type=int, default=100_000)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    print(
        f"{datetime.date.today()}, Python {platform.python_version()}, {platform.machine()}, ",
        end="",
    )
    print(f"onnxruntime-genai {version('onnxruntime-genai')}, {given.model}")
    found: dict[str, Any] = {}
    for form in ("jsonl", "parquet"):
        few, many = (overhead(n, form) for n in (given.many // 10, given.many))
        found[form] = many | {"more_mb": many["mb"] - few["mb"]}
        print(
            f"{form}: {many['us_a_row']:.0f} us a row, {many['us_writing']:.0f} of them writing; "
            f"{many['mb'] - few['mb']:.1f} MB more for {given.many:,} rows than for a tenth"
        )
    rows = rows_of(given.rows)
    model = structgen.load(given.model)
    found["loop"] = loop(model, rows)
    del model
    print(f"loop: {found['loop']:.2f} rows/s")
    for workers in (1, 2):
        rate = found[f"workers_{workers}"] = job(given.model, rows, workers)
        print(
            f"batch, {workers} workers: {rate:.2f} rows/s, {rate / found['loop']:.2f} of the loop"
        )
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
