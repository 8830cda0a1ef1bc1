"""What the studies of answers share: ways to ask, measured line by line, and tables of shares.

A study asks a model each of its items in each of its ways, and notes a line of JSON for each pair
at once; so it may be stopped, and goes on where it was. A table takes the items that were asked in
all ways. It knows neither items nor ways.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import structgen
from structgen.errors import StructgenError

N_RESAMPLES = 2000

Line = dict[str, Any]


def measured(
    target: Path, items: Iterable[str], ways: Sequence[str], ask: Callable[[str, str], Line]
) -> None:
    """Ask each item in each way and write what came; pairs that the file has are left out.

    A line has the item, the way, what `ask` gave and the processor seconds that it took. What
    `ask` refuses with an error of ours counts as an empty output.
    """
    known = set()
    if target.exists():
        lines = map(json.loads, target.read_text(encoding="utf-8").splitlines())
        known = {(line["item"], line["way"]) for line in lines}
    with target.open("a", encoding="utf-8") as file:
        for item in items:
            for way in ways:
                if (item, way) in known:
                    continue
                began = time.process_time()
                try:
                    line = ask(item, way)
                except StructgenError as error:
                    line = {"right": [], "output": "", "reason": type(error).__name__, "tokens": 0}
                seconds = round(time.process_time() - began, 2)
                file.write(json.dumps({"item": item, "way": way, **line, "seconds": seconds}))
                file.write("\n")
                file.flush()


def table(files: Iterable[Path], ways: Sequence[str], what: str) -> None:
    """Print, for each file, the share of what is right in each way, with intervals of 95%.

    A line's `right` is a list of booleans, of which its share counts; an empty one counts as none.
    A way is told for the items that it was asked, and compared with the first way on these.
    """
    for file in files:
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        by_way = {way: {line["item"]: line for line in lines if line["way"] == way} for way in ways}
        first = by_way[ways[0]]
        print(f"\n{file.name.removesuffix('.jsonl')}: {len(first)} {what}")
        print(f"| way | {what} | right | against the first | cut short | tokens | s |")
        print("|---|---|---|---|---|---|---|")
        for way, found in by_way.items():
            items = [item for item in first if item in found]
            if not items:
                continue
            mine = [found[item] for item in items]
            shares = np.array([np.mean(line["right"] or [False]) for line in mine])
            more = shares - [np.mean(first[item]["right"] or [False]) for item in items]
            samples = np.random.default_rng(0).integers(0, len(items), (N_RESAMPLES, len(items)))
            cut = np.mean([line["reason"] in ("budget", "length") for line in mine])
            cells = [
                f"{len(items)}",
                f"{shares.mean():.2f} ({interval(shares, samples)})",
                f"{more.mean():+.2f} ({interval(more, samples)})",
                f"{cut:.2f}",
                f"{np.mean([line['tokens'] for line in mine]):.0f}",
                f"{np.mean([line['seconds'] for line in mine]):.2f}",
            ]
            print(f"| {way} | {' | '.join(cells)} |")


def interval(values: Any, samples: Any) -> str:
    low, high = np.percentile(values[samples].mean(axis=1), [2.5, 97.5])
    return f"{low:.2f} to {high:.2f}"


def model_of(name: str) -> Any:
    """A model by its name or, if there is a slash in it, its folder; it runs in one thread."""
    where: Any = Path(name) if "/" in name else name
    return structgen.load(where, threads=1)


def arguments(about: str | None) -> argparse.Namespace:
    """``measure MODEL FILE [--items N] [--ways N]`` or ``table FILE...``."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("model")
    measuring.add_argument("file", type=Path)
    measuring.add_argument("--items", type=int, default=None)
    measuring.add_argument("--ways", type=int, default=None)
    showing = commands.add_parser("table")
    showing.add_argument("files", type=Path, nargs="+")
    return parser.parse_args()
