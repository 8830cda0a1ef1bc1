"""Figures, table, curves and worst offenders of a run of the mask benchmark."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from mask_cases import Result, Run, Walk, Workload

OURS, THEIRS = "structgen", "llguidance"

TBM = ("mean", "p50", "p75", "p90", "p95", "p99", "p99.9", "max")
TTFM = ("mean", "p50", "p95", "p99")

TARGETS = {
    ("once", "mean"): 0.4,
    ("once", "p50"): 0.15,
    ("once", "p99"): 0.25,
    ("once", "p99.9"): 1.0,
    ("once", "max"): 1.0,
    ("ttfm", "p50"): 0.3,
    ("ttfm", "p95"): 0.5,
    ("instance", "mean"): 0.7,
    ("again", "mean"): 0.1,
}
"""Ratios to llguidance that we want to stay under."""


Nanoseconds = npt.NDArray[np.int64]


def statistic(values: Nanoseconds, name: str) -> float:
    """``"mean"``, ``"max"`` or a percentile such as ``"p99.9"``; 0 of nothing."""
    if not len(values):
        return 0.0
    if name == "mean":
        return float(values.mean())
    if name == "max":
        return float(values.max())
    return float(np.percentile(values, float(name[1:])))


def comparable(
    ours: list[Result], theirs: list[Result], regime: str
) -> Iterator[tuple[int, int, Walk, Walk]]:
    """Case, instance and both walks, where both compile and both walk equally far."""
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        if mine.outcome == other.outcome == "compiled":
            pairs = zip(getattr(mine, regime), getattr(other, regime), strict=True)
            for instance, (a, b) in enumerate(pairs):
                if len(a.steps) == len(b.steps) and not a.problem and not b.problem:
                    yield number, instance, a, b


def collect(
    once: Run, afresh: Run | None, theirs: str
) -> dict[str, tuple[Nanoseconds, Nanoseconds]]:
    """Nanoseconds of both engines by measure."""
    measures = {}
    for regime, source in (("once", once), ("again", once), ("afresh", afresh)):
        if source is not None:
            ours, others = source.results[OURS], source.results[theirs]
            pairs = list(comparable(ours, others, regime))
            measures[regime] = _joined([p[2] for p in pairs]), _joined([p[3] for p in pairs])
    both = [
        (mine, other)
        for mine, other in zip(once.results[OURS], once.results[theirs], strict=True)
        if mine.outcome == other.outcome == "compiled"
    ]
    measures["ttfm"] = _columns([(mine.ttfm, other.ttfm) for mine, other in both])
    measures["first_step"] = _columns([(mine.first_step, other.first_step) for mine, other in both])
    if afresh is not None:
        a, b = afresh.results[OURS], afresh.results[theirs]
        measures["instance"] = _columns(
            [
                (a[case].compile[i] + sum(mine.steps), b[case].compile[i] + sum(other.steps))
                for case, i, mine, other in comparable(a, b, "afresh")
            ]
        )
    return measures


def _joined(walks: list[Walk]) -> Nanoseconds:
    steps = [np.asarray(walk.steps, np.int64) for walk in walks]
    return np.concatenate([np.zeros(0, np.int64), *steps])


def _columns(pairs: list[tuple[int, int]]) -> tuple[Nanoseconds, Nanoseconds]:
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


ROWS: tuple[tuple[str, str, tuple[str, ...], float, str], ...] = (
    ("once", "TBM, compiled once", TBM, 1e3, "µs"),
    ("again", "TBM, second pass", TBM, 1e3, "µs"),
    ("afresh", "TBM, compiled afresh", TBM, 1e3, "µs"),
    ("ttfm", "TTFM", TTFM, 1e6, "ms"),
    ("first_step", "TTFM and the first commit", ("p50", "p95"), 1e6, "ms"),
    ("instance", "whole instance, compiled afresh", ("mean", "p50", "p99", "max"), 1e6, "ms"),
)


def table(
    measures: dict[str, tuple[Nanoseconds, Nanoseconds]], theirs: str
) -> tuple[list[str], dict[str, Any]]:
    """The Markdown table of all measures, and the same as data."""
    lines = [f"| | {theirs} | {OURS} | ratio | wanted |", "|---|---:|---:|---:|---:|"]
    data: dict[str, Any] = {}
    for key, title, statistics, unit, unit_name in ROWS:
        if key not in measures:
            continue
        ours, others = measures[key]
        data[key] = {"unit": unit_name, "count": len(ours)}
        for name in statistics:
            mine, other = statistic(ours, name) / unit, statistic(others, name) / unit
            ratio = mine / other if other else float("nan")
            data[key][name] = {OURS: mine, theirs: other, "ratio": ratio}
            target = TARGETS.get((key, name)) if theirs == THEIRS else None
            wanted = "" if target is None else f"≤ {target:g}{'' if ratio <= target else ' ✗'}"
            lines.append(
                f"| {title} {name} {unit_name} | {figure(other)} | {figure(mine)} "
                f"| {ratio:.2f} | {wanted} |"
            )
    return lines, data


def figure(value: float) -> str:
    """Three significant digits, without exponents."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def verdicts(results: list[Result], workload: Workload) -> dict[str, Any]:
    """What became of the cases, and how many verdicts are MaskBench's."""
    count: Counter[str] = Counter()
    problems: Counter[str] = Counter()
    wrong = []
    given_up = {}
    for case, result in zip(workload, results, strict=True):
        count[result.outcome] += 1
        if result.outcome != "compiled":
            if result.outcome != "refused":
                given_up[case.id] = f"{result.outcome}: {result.reason[:200]}"
            continue
        bad = 0
        for valid, done in zip(case.valid, result.once, strict=True):
            count["instances"] += 1
            if done.problem:
                problems[done.problem.splitlines()[0][:80]] += 1
            if done.accepted != valid:
                bad += 1
                count["rejects valid" if valid else "accepts invalid"] += 1
        count["cases right"] += not bad
        if bad:
            wrong.append(case.id)
    return {**count, "wrong": wrong, "problems": dict(problems), "given up": given_up}


def slowest(
    once: Run, workload: Workload, theirs: str, limit: int
) -> tuple[list[dict[str, Any]], list[str]]:
    """Our slowest masks, with what they cost together."""
    found = []
    other_of = {}
    for number, instance, mine, other in comparable(
        once.results[OURS], once.results[theirs], "once"
    ):
        for position, took in enumerate(mine.steps):
            found.append((took, number, instance, position))
            other_of[number, instance, position] = other.steps[position]
    found.sort(reverse=True)
    total = sum(entry[0] for entry in found) or 1
    lines = [
        f"the slowest {share:g}% of masks take "
        f"{sum(e[0] for e in found[: max(1, int(len(found) * share / 100))]) / total:.0%} of the"
        " time"
        for share in (0.01, 0.1, 1, 5)
    ]
    tokens_of = workload.vocabulary.tokens
    entries = []
    for took, number, instance, position in found[:limit]:
        case = workload.case(number)
        tokens = case.instances[instance]
        before = b"".join(tokens_of[token] for token in tokens[:position])
        entries.append(
            {
                "us": took / 1e3,
                "share": took / total,
                f"{theirs}_us": other_of[number, instance, position] / 1e3,
                "case": case.id,
                "instance": instance,
                "position": position,
                "before": before.decode(errors="replace")[-60:],
                "token": tokens_of[tokens[position]].decode(errors="replace"),
            }
        )
    return entries, lines


# -- report ---------------------------------------------------------------------------------------


def machine() -> dict[str, Any]:
    """Where and when this ran."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].split(":")[1].strip() if names else model
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "load": [round(load, 1) for load in os.getloadavg()],
        "python": platform.python_version(),
        "numpy": np.__version__,
        "system": f"{platform.system()} {platform.release()}",
        "date": datetime.now(timezone.utc).isoformat(timespec="minutes"),
    }


def plot(
    file: Path, measures: dict[str, tuple[Nanoseconds, Nanoseconds]], theirs: str, title: str
) -> None:
    """Percentile curves of both engines, logarithmic on both axes."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure_, axes = plt.subplots(1, 2, figsize=(12, 4.8), sharey=False)
    curves = (
        (axes[0], "once", "compiled once", 1e3, "-"),
        (axes[0], "again", "second pass", 1e3, ":"),
        (axes[0], "afresh", "compiled afresh", 1e3, "--"),
        (axes[1], "ttfm", "compile + first mask", 1e6, "-"),
        (axes[1], "instance", "whole instance, afresh", 1e6, "--"),
    )
    for axis, key, label, unit, style in curves:
        if key not in measures:
            continue
        names = ((OURS, "tab:blue"), (theirs, "tab:orange"))
        for values, (name, colour) in zip(measures[key], names, strict=True):
            if len(values):
                above = 1 - (np.arange(len(values)) + 0.5) / len(values)
                axis.plot(1 / above, np.sort(values) / unit, style, color=colour, lw=1.4,
                          label=f"{name}, {label}")  # fmt: skip
    for axis, unit_name in zip(axes, ("µs a token", "ms"), strict=True):
        marks = [2, 4, 10, 20, 100, 1000, 10000]
        axis.set(xscale="log", yscale="log", xlabel="percentile", ylabel=unit_name)
        axis.set_xticks(marks, [f"{100 - 100 / mark:g}" for mark in marks])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8)
    figure_.suptitle(title)
    figure_.tight_layout()
    figure_.savefig(file, dpi=110)
