"""Calls from an event loop: how long it stands still, and how many outputs a second come of it.

    python tests/benchmarks/async_calls.py [--calls 32] [--tokens 40]

A task of the loop sleeps for a millisecond again and again. What it sleeps longer is how long the
loop stood still; from that is taken how long the system let its thread wait for a processor
(Linux's schedstat), which on a busy machine is most of it and nobody's fault here. The same is
measured with nothing to do, and with the model in a thread of this process.

Then the same calls are made in several ways: one after the other here, as a list here, in threads
here; and all at once of a worker process, in turns and in batches. Seconds are of the wall; seconds
of processor time are those of the process that has the model.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import structgen
from structgen import AsyncModel, Generator

MODEL = "smollm2-135m-instruct"


@dataclass
class Person:
    name: str
    age: int


def chat(i: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"Make up a person who is {20 + i} years old, as JSON."}]


KINDS: dict[str, tuple[Any, Callable[[int], Any]]] = {
    "free text": (None, lambda i: f"{i} years ago there lived"),
    "a class": (Person, chat),
    "a choice": (Literal["yes", "no", "maybe"], lambda i: f"Is {i} a large number? Answer: "),
}


class StandStill:
    """Notes how long a loop stands still."""

    def __init__(self) -> None:
        self.raw: list[float] = []
        self.own: list[float] = []

    async def watch(self) -> None:
        stat = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        while True:
            queued = int(stat.read_text().split()[1]) if stat.exists() else 0
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            late = time.perf_counter() - began - 0.001
            queued = (int(stat.read_text().split()[1]) if stat.exists() else 0) - queued
            self.raw.append(late)
            self.own.append(max(0.0, late - queued / 1e9))

    async def during(self, what: str, work: Awaitable[Any]) -> Any:
        self.raw.clear()
        self.own.clear()
        watching = asyncio.create_task(self.watch())
        result = await work
        await asyncio.sleep(0.005)
        watching.cancel()
        raw, own = sorted(self.raw), sorted(self.own)
        over = sum(one > 0.005 for one in own)
        print(
            f"  {what:34} {len(own):6,} looks: longest {1e3 * own[-1]:6.1f} ms, 99.9 % below "
            f"{1e3 * own[int(0.999 * len(own))]:5.1f}, {over} over 5 ms "
            f"(with waiting for a processor {1e3 * raw[-1]:.1f})",
            flush=True,
        )
        return result


async def stand_still(calls: int, tokens: int) -> None:
    watcher = StandStill()
    print("The event loop stands still, in milliseconds:")
    await watcher.during("nothing to do", asyncio.sleep(5))
    model = await watcher.during("loading", structgen.load_async(MODEL))
    await watcher.during("the first call", Generator(model)("Hello", max_new_tokens=5))
    for name, (output_type, prompt) in KINDS.items():
        generator = Generator(model, output_type)
        work = asyncio.gather(*[generator(prompt(i), max_new_tokens=tokens) for i in range(calls)])
        await watcher.during(f"{calls} calls, {name}", work)

    async def read(i: int) -> None:
        async for _ in Generator(model).stream(f"{i} years ago", max_new_tokens=tokens):
            pass

    await watcher.during(f"{calls} streams", asyncio.gather(*map(read, range(calls))))
    await watcher.during("closing", model.aclose())
    here = structgen.load(MODEL)
    generator = Generator(here)
    work = asyncio.to_thread(generator, "A story: " * 20, max_new_tokens=4 * tokens)
    await watcher.during("one call in a thread instead", work)


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def told(what: str, calls: int, wall: float, processor: float) -> None:
    print(f"  {what:34} {calls / wall:6.2f} a second, {processor / calls:6.3f} s of processor each")


def here(calls: int, tokens: int) -> None:
    model = structgen.load(MODEL)
    for name, (output_type, prompt) in KINDS.items():
        generator = Generator(model, output_type)
        generator(prompt(0), max_new_tokens=tokens)
        prompts = [prompt(i) for i in range(calls)]

        def make(one: Any, generator: Any = generator) -> Any:
            return generator(one, max_new_tokens=tokens)

        def in_threads(prompts: Any = prompts, make: Any = make) -> None:
            with ThreadPoolExecutor(4) as pool:
                list(pool.map(make, prompts))

        print(f"{calls} outputs, {name}:")
        ways: dict[str, Callable[[], Any]] = {
            "here, one after the other": lambda p=prompts, m=make: list(map(m, p)),
            "here, as a list": lambda p=prompts, m=make: m(p),
            "here, in 4 threads": in_threads,
        }
        for way, run in ways.items():
            wall, processor = time.perf_counter(), time.process_time()
            run()
            wall, processor = time.perf_counter() - wall, time.process_time() - processor
            told(way, calls, wall, processor)
        for batch_size, way in ((1, "worker, in turns"), (None, "worker, batched where that pays")):
            asyncio.run(there(calls, tokens, output_type, prompts, batch_size, way))


async def there(
    calls: int, tokens: int, output_type: Any, prompts: Any, batch_size: int | None, way: str
) -> None:
    model: AsyncModel
    async with await structgen.load_async(MODEL, batch_size=batch_size) as model:
        pid = (await model._host.process()).pid
        generator = Generator(model, output_type)
        await generator(prompts[0], max_new_tokens=tokens)
        wall, processor = time.perf_counter(), processor_seconds(pid)
        await asyncio.gather(*[generator(one, max_new_tokens=tokens) for one in prompts])
        wall, processor = time.perf_counter() - wall, processor_seconds(pid) - processor
        told(way, calls, wall, processor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=40)
    arguments = parser.parse_args()
    asyncio.run(stand_still(arguments.calls, arguments.tokens))
    here(arguments.calls, arguments.tokens)


if __name__ == "__main__":
    main()
