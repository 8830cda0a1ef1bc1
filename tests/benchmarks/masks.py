"""Masks and compile times of structgen and its peers, side by side on MaskBench.

    python tests/benchmarks/masks.py DATA [--tokenizer llama3_1|qwen3|gemma3|smollm2|PATH]
        [--limit N] [--seed S] [--whitespace STYLE] [--property-order any]
        [--with xgrammar,outlines_core] [--slowest N] [--json FILE] [--plot FILE.png]

One process runs all engines on the same cases with the same tokens. They alternate case by case,
and so does who goes first. For each case (compact JSON, all instances, end of sequence included):

once     compiled once; every instance walked. TTFM is the compilation with the first mask (whose
         commit counts among the steps), TBM a mask and its commit.
again    every instance walked again over that compiled constraint.
afresh   compiled anew for every instance, in a second process without the first one's caches.

A case counts for the ratios when both engines compile it, an instance when both walk it equally
far. Verdicts are compared with MaskBench's. The garbage collector runs as it does for a user.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import multiprocessing
import os
import signal
import sys
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cold_start import cold_starts
from engines import ENGINES, REFUSALS, Engine, Refused, Session
from mask_cases import Case, Result, Run, Totals, Walk, Workload
from mask_report import OURS, THEIRS, collect, comparable, machine, plot, slowest, table, verdicts

TIMEOUT_SECONDS = 60
PROBE_SECONDS = 20
CLOCKS = {"wall": time.perf_counter_ns, "cpu": time.thread_time_ns}


class Timeout(Exception):
    """A case took more than `TIMEOUT_SECONDS` of CPU."""


def on_alarm(*_: object) -> None:
    """Raise `Timeout`."""
    raise Timeout


@contextmanager
def time_limit() -> Iterator[None]:
    """Raise `Timeout` once the block has taken `TIMEOUT_SECONDS` of CPU."""
    signal.signal(signal.SIGPROF, on_alarm)
    # And again every second: what is raised within a callback of the collector is lost.
    signal.setitimer(signal.ITIMER_PROF, TIMEOUT_SECONDS, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


class Clock:
    """What steps are timed with.

    The wall clock, or this thread's CPU time: the latter does not see what else the machine does,
    but reading it takes a microsecond, which is subtracted.
    """

    now: Callable[[], int] = time.perf_counter_ns
    cost = 0

    @classmethod
    def choose(cls, name: str) -> None:
        cls.now = clock = CLOCKS[name]
        intervals = [-clock() + clock() for _ in range(10_001)]
        cls.cost = sorted(intervals)[5_000] if name == "cpu" else 0


# -- one case -------------------------------------------------------------------------------------


def walk(session: Session, tokens: Sequence[int], out: memoryview) -> Walk:
    """Mask, look at the bit, commit; until the end or the first token that is not allowed."""
    mask, commit, clock, cost = session.mask, session.commit, Clock.now, Clock.cost
    steps = array("q")
    first = 0
    for token in tokens:
        started = clock()
        mask()
        took = clock() - started - cost
        first = first or took
        if not out[token >> 5] >> (token & 31) & 1:
            steps.append(took)
            return Walk(False, steps, first, session.problem())
        try:
            started = clock()
            committed = commit(token)
            took += clock() - started - cost
        except REFUSALS:
            committed = False
        steps.append(took)
        if committed is False:
            return Walk(False, steps, first, session.problem() or "mask and commit disagree")
    return Walk(True, steps, first, session.problem())


def run_once(engine: Engine, case: Case, result: Result) -> None:
    """Compile, walk every instance, then walk them all again."""
    out = memoryview(engine.out)
    started = Clock.now()
    compiled = engine.compile(case.schema)
    result.compile.append(Clock.now() - started)
    for tokens in case.instances:
        result.once.append(walk(engine.start(compiled), tokens, out))
    first = result.once[0] if result.once else Walk(True, array("q", [0]), 0)
    result.ttfm = result.compile[0] + first.first_mask
    result.first_step = result.compile[0] + sum(first.steps[:1])
    for tokens in case.instances:
        result.again.append(walk(engine.start(compiled), tokens, out))


def run_afresh(engine: Engine, case: Case, result: Result) -> None:
    """Compile anew for every instance."""
    out = memoryview(engine.out)
    for tokens in case.instances:
        started = Clock.now()
        compiled = engine.compile(case.schema)
        result.compile.append(Clock.now() - started)
        result.afresh.append(walk(engine.start(compiled), tokens, out))


def compiles_in_time(engine: Engine, schema: str) -> bool:
    """Try in a process that can be killed."""
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            engine.compile(schema)
        os._exit(0)
    end = time.monotonic() + PROBE_SECONDS
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status == 0
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def run_case(engine: Engine, case: Case, afresh: bool) -> Result:
    result = Result()
    if not engine.interruptible and not compiles_in_time(engine, case.schema):
        result.outcome, result.reason = "timeout", f"compiling: more than {PROBE_SECONDS} s"
        return result
    try:
        with time_limit():
            (run_afresh if afresh else run_once)(engine, case, result)
    except Refused as error:
        result.outcome, result.reason = "refused", str(error)
    except Timeout:
        result.outcome, result.reason = "timeout", f"more than {TIMEOUT_SECONDS} s of CPU"
    except Exception as error:
        result.outcome, result.reason = "failed", f"{type(error).__name__}: {error}"
    return result


# -- all cases ------------------------------------------------------------------------------------


@contextmanager
def measured(totals: Totals) -> Iterator[None]:
    """Add the CPU time and the collections of the block to ``totals``."""
    begun = [0]

    def on_collection(phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            begun[0] = Clock.now()
        else:
            totals.collector_ns += Clock.now() - begun[0]
            totals.collections += 1

    gc.callbacks.append(on_collection)
    cpu = time.process_time_ns()
    try:
        yield
    finally:
        totals.cpu_ns += time.process_time_ns() - cpu
        gc.callbacks.remove(on_collection)


def run(workload: Workload, tokenizer: Path, names: Sequence[str], afresh: bool) -> Run:
    """Run all engines over all cases, alternating."""
    engines = [ENGINES[name](tokenizer, workload.vocabulary) for name in names]
    results: dict[str, list[Result]] = {name: [] for name in names}
    totals = {name: Totals() for name in names}
    for number, case in enumerate(workload):
        turn = number % len(engines)
        for engine in engines[turn:] + engines[:turn]:
            with measured(totals[engine.name]):
                results[engine.name].append(run_case(engine, case, afresh))
        if sys.stderr.isatty():
            print(f"\r{number + 1}/{len(workload)} {case.id[:60]:60}", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print(f"\r{'':80}\r", end="", file=sys.stderr)
    return Run(results, totals, {engine.name: engine.version for engine in engines})


def run_from_scratch(
    source: tuple[Any, ...], names: Sequence[str], afresh: bool, clock: str, options: dict[str, Any]
) -> Run:
    """As `run`, for a process of its own."""
    Clock.choose(clock)
    ENGINES[OURS].options = options
    return run(Workload(*source), source[1], names, afresh)


def in_new_process(*arguments: Any) -> Run:
    """`run_from_scratch` in a process that shares nothing with this one."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(run_from_scratch, arguments)


def tokenizer_path(name: str) -> Path:
    """The file of a tokenizer given by name or path; known ones are fetched."""
    kinds = {"llama3_1": "llama3", "qwen3": "qwen3", "gemma3": "gemma3", "smollm2": "smollm2"}
    if name not in kinds:
        return Path(name)
    sys.path.insert(0, str(Path(__file__).parent.parent))
    import real_tokenizers

    return real_tokenizers.path(kinds[name])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--tokenizer", default="llama3_1")
    parser.add_argument("--limit", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", help="only cases with this in their id")
    parser.add_argument("--quick", action="store_true", help="leave out what is compiled afresh")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: for a busy machine")
    parser.add_argument("--whitespace", default="natural", help="that structgen allows")
    parser.add_argument("--property-order", choices=("schema", "any"), default="schema")
    parser.add_argument("--with", dest="peers", default="")
    parser.add_argument("--slowest", type=int, default=0, metavar="N")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    options = {"whitespace": arguments.whitespace, "property_order": arguments.property_order}
    ENGINES[OURS].options = options
    tokenizer = tokenizer_path(arguments.tokenizer)
    names = [OURS, THEIRS, *filter(None, arguments.peers.split(","))]
    source = (arguments.data, tokenizer, arguments.limit, arguments.seed, arguments.case)
    workload = Workload(*source)  # first: what is missing is told here, not in another process
    afresh = (
        None if arguments.quick else in_new_process(source, names, True, arguments.clock, options)
    )
    starts = cold_starts(names, tokenizer, workload.vocabulary, arguments.clock)
    Clock.choose(arguments.clock)
    once = run(workload, tokenizer, names, False)

    width = workload.vocabulary.size
    report: dict[str, Any] = {
        "machine": machine(),
        "versions": once.versions,
        "tokenizer": arguments.tokenizer,
        "vocabulary": width,
        "cases": len(workload),
        "seed": arguments.seed,
        "clock": arguments.clock,
        "options": options,
        "cold_starts": {name: {"ready": a, "first_mask": b} for name, (a, b) in starts},
        "engines": {name: summary(name, workload, once, afresh) for name in names},
        "ratios": {},
    }
    print(json.dumps(report["machine"]))
    print(", ".join(f"{name} {version}" for name, version in once.versions.items()))
    print(
        f"{arguments.tokenizer}, {width:,} tokens; {len(workload)} cases, seed {arguments.seed}\n"
    )
    for name in names:
        show(name, report["engines"][name])
    print("\n| new process | tokenizer ready | first mask |\n|---|---:|---:|")
    for name, (ready, first_mask) in starts:
        print(f"| {name} | {ready:.2f} s | {first_mask:.2f} s |")
    for theirs in names[1:]:
        measures = collect(once, afresh, theirs)
        pairs = list(comparable(once.results[OURS], once.results[theirs], "once"))
        cases = len({number for number, *_ in pairs})
        lines, report["ratios"][theirs] = table(measures, theirs)
        print(
            f"\n{cases} cases and {len(pairs)} instances count, "
            f"{len(measures['once'][0]):,} masks:\n"
        )
        print("\n".join(lines))
        if arguments.plot and theirs == THEIRS:
            plot(arguments.plot, measures, theirs, f"{arguments.tokenizer}, {width:,} tokens")
    entries, lines = slowest(once, workload, THEIRS, arguments.slowest)
    print("\n" + "\n".join(lines))
    report["slowest"] = entries
    for entry in entries:
        print(
            f"{entry['us']:10,.0f} µs {entry['share']:6.2%} ({THEIRS} "
            f"{entry[THEIRS + '_us']:,.0f} µs) {entry['case']} #{entry['instance']}"
            f"@{entry['position']}: {entry['before']!r} → {entry['token']!r}"
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")


def summary(name: str, workload: Workload, once: Run, afresh: Run | None) -> dict[str, Any]:
    """Verdicts, and what the engine took in all."""
    runs = {"once and again": once, **({"afresh": afresh} if afresh else {})}
    return {
        **verdicts(once.results[name], workload),
        "totals": {
            regime: {
                "cpu_seconds": run.totals[name].cpu_ns / 1e9,
                "collector_seconds": run.totals[name].collector_ns / 1e9,
                "collections": run.totals[name].collections,
            }
            for regime, run in runs.items()
        },
    }


def show(name: str, judged: dict[str, Any]) -> None:
    """Print an engine's summary."""
    print(f"{name}: " + ", ".join(f"{k} {v}" for k, v in judged.items() if isinstance(v, int)))
    for regime, total in judged["totals"].items():
        print(
            f"  {regime}: {total['cpu_seconds']:.1f} s of CPU; {total['collections']} collections "
            f"took {total['collector_seconds']:.2f} s"
        )
    for problem, times in judged["problems"].items():
        print(f"  {times} instances: {problem}")
    for case, reason in judged["given up"].items():
        print(f"  {case}: {reason}")


if __name__ == "__main__":
    main()
