"""Jobs on many machines: what the process of the job costs, a model of capacity, and a simulation.

    python tests/benchmarks/cluster.py driver [--rows 20000]    needs Ray
    python tests/benchmarks/cluster.py capacity
    python tests/benchmarks/cluster.py simulate [--actors 1000 --rows 10000000]

`driver` times the process of a job whose actors answer at once: processor seconds a row, which do
not depend on how busy the machine is as seconds do. `capacity` and `simulate` are arithmetic over
the `Figures` below, each of which says where it comes from. docs/scale.md has their tables.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROWS_PER_UNIT, UNITS_AT_ONCE = 64, 2  # structgen.ray.Cluster
ROWS_PER_PART, SECONDS_PER_PART = 10_000, 60.0  # structgen.jobs


@dataclass(frozen=True)
class Figures:
    """What the model and the simulation are fed with.

    Attributes:
        name: of the model.
        rows: a second, of an actor of one processor: its model's speed for these prompts.
        load: seconds until an actor that has the files can answer.
        driver: processor seconds of the job's process for a row.
        source: where `rows` and `load` come from.
    """

    name: str
    rows: float
    load: float
    driver: float
    source: str


DRIVER = 30e-6
"""Processor seconds a row, by `driver`: 24 us of 20,000 rows, 29 us of 100,000, on an Intel Xeon.
Rows have 100 bytes, outputs a word."""

_MEASURED = "batch.py, 2026-11-26, two idle cores, two processes: half of their rows/s"
MODELS = (
    Figures("135M", 4.5, 1.3, DRIVER, _MEASURED),
    Figures("0.5B", 2.5, 2.9, DRIVER, _MEASURED),
    Figures("1.5B", 0.8, 9.0, DRIVER, "a stand-in: 0.5B by size"),
)


def seconds(figures: Figures, rows: int, actors: int) -> tuple[float, str]:
    """How long a job takes without failures, and what it waits for."""
    by_actors = rows / (figures.rows * actors)
    by_driver = rows * figures.driver
    bound = "actors" if by_actors >= by_driver else "the job's process"
    return figures.load + max(by_actors, by_driver), bound


def capacity() -> None:
    """Print the model: a million rows, by model and number of actors."""
    print("| model | actors | hours | rows/s | waits for | actor-hours |")
    print("|---|---|---|---|---|---|")
    n = 1_000_000
    for figures in MODELS:
        for actors in (1, 10, 100, 1_000, 4_000):
            took, bound = seconds(figures, n, actors)
            print(
                f"| {figures.name} | {actors:,} | {took / 3600:.2f} | {n / took:,.0f} | {bound} "
                f"| {took * actors / 3600:,.0f} |"
            )


@dataclass
class Outcome:
    """What came of a simulated job."""

    makespan: float = 0.0
    busy: float = 0.0
    lost: float = 0.0
    repeated: int = 0
    missing: int = 0
    kills: int = 0


def simulate(
    figures: Figures,
    rows: int,
    actors: int,
    *,
    hours_between_losses: float = 24.0,
    seconds_to_replace: float = 90.0,
    driver_losses: tuple[float, ...] = (),
    spread: float = 0.3,
    seed: int = 1,
) -> Outcome:
    """Run a job by the rules of `structgen.ray` and `structgen.jobs`, in simulated time.

    Args:
        figures: speeds.
        rows: of the job.
        actors: all of them there from the start, each on a machine of its own.
        hours_between_losses: of one actor, on average: exponentially distributed.
        seconds_to_replace: until there is another machine, its model then to be loaded.
        driver_losses: when the process of the job is killed, as parts of the time it would take. It
            begins again after `seconds_to_replace`, and so do all actors.
        spread: of the seconds of a unit: log-normal.
        seed: of all of these.
    """
    draw = random.Random(seed)
    written = bytearray(rows)
    out = Outcome()
    planned, _ = seconds(figures, rows, actors)
    ends = [planned * share for share in driver_losses] + [float("inf")]
    first, now = 0, 0.0
    for end in ends:
        first, now = _run(figures, rows, actors, first, now, end, locals(), out, draw, written)
        if first >= rows:
            break
        now += seconds_to_replace
    out.makespan = now
    out.missing = rows - sum(1 for one in written if one)
    return out


def _run(
    figures: Figures,
    rows: int,
    actors: int,
    first: int,
    now: float,
    end: float,
    how: dict[str, Any],
    out: Outcome,
    draw: random.Random,
    written: bytearray,
) -> tuple[int, float]:
    """One life of the job's process: how many rows are written at its end, and when that is."""
    per_unit = ROWS_PER_UNIT / figures.rows * UNITS_AT_ONCE  # as two share the actor
    lost_after = how["hours_between_losses"] * 3600
    units = iter(range(first, rows, ROWS_PER_UNIT))
    again: list[int] = []  # units whose actor was lost: asked next
    done: dict[int, float] = {}
    front, part_from, part_began = first, first, now  # the next row in order; the part so far
    under_way = 0
    free_at = now  # of the job's process
    events: list[tuple[float, int, str, int, int, float]] = []
    serial = 0
    lives: dict[int, int] = {}

    def put(at: float, what: str, actor: int, unit: int = -1, took: float = 0.0) -> None:
        nonlocal serial
        serial += 1
        heapq.heappush(events, (at, serial, what, actor, unit, took))

    def begin(actor: int, at: float) -> None:
        lives[actor] = lives.get(actor, 0) + 1
        put(at + figures.load, "ready", actor, lives[actor])
        put(at + figures.load + draw.expovariate(1 / lost_after), "lost", actor, lives[actor])

    idle: list[int] = []
    working: dict[int, dict[int, float]] = {}
    window = 4 * UNITS_AT_ONCE * actors

    def give(actor: int) -> bool:
        nonlocal under_way
        if under_way >= window and not again:
            return False
        unit = again.pop() if again else next(units, -1)
        if unit < 0:
            return False
        under_way += 1
        took = per_unit * draw.lognormvariate(-(how["spread"] ** 2) / 2, how["spread"])
        working[actor][unit] = now
        put(now + took, "done", actor, unit, took)
        return True

    def write(upto: int) -> None:
        nonlocal part_from, part_began
        for i in range(part_from, upto):
            out.repeated += written[i]
            written[i] = 1
        part_from, part_began = upto, free_at

    for actor in range(actors):
        begin(actor, now)
    while events:
        at, _, what, actor, unit, took = heapq.heappop(events)
        if at >= end:
            out.lost += (front - part_from) / figures.rows
            out.lost += sum(min(end - s, per_unit) for w in working.values() for s in w.values())
            out.lost += len(done) * per_unit / UNITS_AT_ONCE
            return part_from, end
        now = at
        if what == "ready" and lives[actor] == unit:
            working[actor] = {}
            idle += [actor] * UNITS_AT_ONCE
        elif what == "lost" and lives[actor] == unit:
            out.kills += 1
            for one, since in working.pop(actor, {}).items():
                out.lost += (now - since) / UNITS_AT_ONCE
                under_way -= 1
                again.append(one)
            idle = [one for one in idle if one != actor]
            begin(actor, now + how["seconds_to_replace"])
        elif what == "done" and unit in working.get(actor, {}):
            if working[actor][unit] + took > at + 1e-6:
                continue  # of a life before
            del working[actor][unit]
            out.busy += took / UNITS_AT_ONCE
            done[unit] = now
            while front in done:  # results are taken in order
                del done[front]
                under_way -= 1
                n = min(ROWS_PER_UNIT, rows - front)
                front += n
                free_at = max(free_at, now) + n * figures.driver
                if front - part_from >= ROWS_PER_PART or free_at - part_began > SECONDS_PER_PART:
                    write(front)
            idle.append(actor)
        while idle and give(idle[-1]):
            idle.pop()
        if front >= rows:
            write(rows)
            return rows, max(now, free_at)
    raise AssertionError


def simulated(actors: int, rows: int) -> None:
    """Print the simulation: no failures, losses of actors, and those with a killed job."""
    figures = MODELS[0]
    plan: tuple[tuple[str, dict[str, Any]], ...] = (
        ("nothing fails", {"hours_between_losses": 1e9}),
        ("an actor is lost once a day", {}),
        ("once an hour", {"hours_between_losses": 1.0}),
        ("once in ten minutes", {"hours_between_losses": 1 / 6}),
        (
            "once an hour, and the job twice",
            {"hours_between_losses": 1.0, "driver_losses": (0.4, 0.9)},
        ),
    )
    print(f"{rows:,} rows, {actors:,} actors, {figures}")
    print("| | minutes | actors lost | work lost | rows missing | rows repeated |")
    print("|---|---|---|---|---|---|")
    for name, how in plan:
        out = simulate(figures, rows, actors, **how)
        share = out.lost / (out.busy + out.lost)
        print(
            f"| {name} | {out.makespan / 60:.1f} | {out.kills} | {share:.1%} | {out.missing} "
            f"| {out.repeated} |"
        )


def driver(rows: int) -> None:
    """Print what the job's process costs: actors that answer at once, two of them."""
    import structgen
    from structgen.ray import Cluster, data

    class Actor(data._Actor):
        def begin(self) -> None:
            pass

        def asked(self, rows: Any, is_first: bool = False) -> Any:
            beside = {"error": None, "finish_reason": "stop", "prompt_tokens": 40}
            return [row | {"output": "good", **beside, "output_tokens": 1} for row in rows]

    data._Actor = Actor  # type: ignore[misc]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "in.jsonl"
        with source.open("w") as file:
            for i in range(rows):
                file.write(
                    json.dumps({"id": i, "text": f"The soup of day {i} was cold. " * 3}) + "\n"
                )
        began, busy = time.perf_counter(), time.process_time()
        cluster = Cluster(address="local", actors=(2, 2), cpus=0.5)
        marks: list[float] = []

        def mark(job: Any) -> None:
            if job.n_rows in (rows // 10, rows):
                marks.append(time.process_time())

        structgen.batch(
            source,
            structgen.Choice(["good", "bad"]),
            cluster=cluster,
            output=Path(folder) / "out",
            max_new_tokens=5,
            progress=mark,
        )
        each = (marks[1] - marks[0]) / (rows - rows // 10)
        print(f"{rows:,} rows: {each * 1e6:.0f} us of the processor a row in the job's process,")
        print(
            f"{time.process_time() - busy:.1f} s with its start, in "
            f"{time.perf_counter() - began:.1f} s"
        )


def main() -> None:
    """Run a command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["driver", "capacity", "simulate"])
    parser.add_argument("--rows", type=int)
    parser.add_argument("--actors", type=int, default=1_000)
    arguments = parser.parse_args()
    if arguments.what == "capacity":
        capacity()
    elif arguments.what == "simulate":
        simulated(arguments.actors, arguments.rows or 10_000_000)
    else:
        driver(arguments.rows or 20_000)


if __name__ == "__main__":
    main()
