"""The Runner under many requests at once: outputs a second, time to the first chunk, overhead.

    python tests/benchmarks/runner.py [--quick] [--clients 1,4,16,32] [--tokens 32]
    python tests/benchmarks/runner.py --ways process,thread,two,single --skip loop,engine

So many clients ask at once, each again when it has its answer, for free text and for JSON of a
schema. They ask the Runner (a worker process); the runtime's own `Engine` in this process, which
batches what is under way and masks by its own guidance; and a bare loop in this process, which
makes one output after the other, so that a client waits for those before it. The same model,
prompts, limits and greedy choice for all; JSON ends by itself.

Overhead is what one small request costs more in the Runner than in a `Generator` of this process,
asked in turns: the median of the differences. All seconds are of the wall; run it on an idle
machine. ``--quick`` takes 3 minutes on two cores, and a minute more for each further way.

``--ways`` are those in which the Runner may hold the model: ``process`` is one worker process, as
without it; ``thread`` a thread of this process (``in_process``), in which the clients are, too;
``two`` two worker processes (``processes=2``), each with half of the cores (``threads``);
``single`` one process that never makes outputs in a batch (``batch_size=1``).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

import structgen
from structgen import Generator, JsonSchema, Runner
from structgen.models import path

MODEL = "smollm2-135m-instruct"
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
KINDS = ("free text", "JSON")
WAYS: dict[str, dict[str, Any]] = {
    "process": {},
    "thread": {"in_process": True},
    "two": {"processes": 2, "threads": max((os.cpu_count() or 2) // 2, 1)},
    "single": {"batch_size": 1},
}
_REST = 0.05  # until the runtime's threads no longer wait for work by spinning


def prompt(i: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"Make up a person who is {20 + i % 60} years old."}]


@dataclass
class Measured:
    """What one way of asking took.

    Attributes:
        seconds: in all.
        firsts: seconds to the first chunk, of each request.
        tokens: of all outputs.
    """

    seconds: float = 0.0
    firsts: list[float] = field(default_factory=list)
    tokens: int = 0

    def row(self, name: str, kind: str, clients: int) -> str:
        rate = len(self.firsts) / self.seconds
        firsts = sorted(self.firsts)
        late = firsts[int(0.9 * (len(firsts) - 1))]
        return (
            f"{name:<9} {kind:<10} {clients:>3} {rate:>7.2f} {self.tokens / self.seconds:>8.1f} "
            f"{statistics.median(firsts) * 1e3:>9.0f} {late * 1e3:>9.0f}"
        )


# -- the ways of asking -----------------------------------------------------------------------


async def by_runner(runner: Runner, kind: str, clients: int, n: int, tokens: int) -> Measured:
    """Streams of the Runner."""
    found = Measured()
    numbers = iter(range(n))
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}

    async def client() -> None:
        for i in numbers:
            began, first = time.perf_counter(), None
            stream = runner.astream_chat(
                messages=prompt(i),
                max_tokens=tokens,
                temperature=0,
                stream_options={"include_usage": True},
                **({"response_format": form} if kind == "JSON" else {}),
            )
            async for chunk in stream:
                if first is None and chunk.choices and chunk.choices[0].delta.content:
                    first = time.perf_counter() - began
                if chunk.usage is not None:
                    found.tokens += chunk.usage.completion_tokens
            found.firsts.append(first or 0.0)

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    found.seconds = time.perf_counter() - began
    return found


def one_by_one(model: Any, kind: str, n: int, tokens: int) -> tuple[Measured, list[float]]:
    """A bare loop: what it took, and the seconds of each output."""
    found, took = Measured(), []
    generator = Generator(model, JsonSchema(SCHEMA) if kind == "JSON" else None)
    began = time.perf_counter()
    for i in range(n):
        result = generator.result(prompt(i), max_new_tokens=tokens, temperature=0)
        found.firsts.append(result.timings.first_chunk_seconds or 0.0)
        found.tokens += result.usage.output_tokens
        took.append(result.timings.total_seconds)
    found.seconds = time.perf_counter() - began
    return found, took


def waited(measured: Measured, took: Sequence[float], clients: int) -> Measured:
    """The same, with so many clients in a line."""
    mean = statistics.mean(took)
    firsts = [first + (clients - 1) * mean for first in measured.firsts]
    return Measured(measured.seconds, firsts, measured.tokens)


class Engine:
    """The runtime's own engine."""

    def __init__(self, rows: int) -> None:
        import onnxruntime_genai as og

        self.og = og
        config = og.Config(str(path(MODEL)))
        with suppress(AttributeError):
            batching = {"engine": {"static_batching": {"max_batch_size": rows}}}
            config.overlay(json.dumps(batching))
        self.model = og.Model(config)
        self.tokenizer = og.Tokenizer(self.model)
        self.engine = og.Engine(self.model)
        self.events = self.engine.create_event_buffer(256)
        self.rows = self.engine.get_capabilities().configured_max_batch_size

    def asked(self, i: int, kind: str, tokens: int) -> Any:
        og = self.og
        options = og.RequestOptions()
        options.set_max_session_tokens(256)
        request = self.engine.create_request(options=options)
        turn = og.TurnOptions(request)
        turn.set_max_generated_tokens(tokens)
        turn.set_do_sample(False)
        if kind == "JSON":
            turn.set_guidance("json_schema", json.dumps(SCHEMA))
        text = self.tokenizer.apply_chat_template(json.dumps(prompt(i)), add_generation_prompt=True)
        request.begin_turn(np.array(self.tokenizer.encode(text), np.int32), turn)
        return request

    def measured(self, kind: str, clients: int, n: int, tokens: int) -> Measured:
        found = Measured()
        numbers: Iterator[int] = iter(range(n))
        under_way: dict[int, tuple[Any, float]] = {}
        has_first: set[int] = set()

        def begin() -> None:
            for i in numbers:
                began = time.perf_counter()
                request = self.asked(i, kind, tokens)
                under_way[i] = (request, began)
                return

        began = time.perf_counter()
        for _ in range(clients):
            begin()
        while under_way:
            for event in self.engine.run(self.events):
                at = next(i for i, (one, _) in under_way.items() if one is event.request)
                now = time.perf_counter()
                if int(event.flags) & int(self.og.EngineEventFlags.TOKEN):
                    found.tokens += 1
                    if at not in has_first:
                        has_first.add(at)
                        found.firsts.append(now - under_way[at][1])
                ended = self.og.EngineEventFlags.TURN_FINISHED
                failed = self.og.EngineEventFlags.FAILED
                if int(event.flags) & (int(ended) | int(failed)):
                    request, _ = under_way.pop(at)
                    request.close()
                    begin()
        found.seconds = time.perf_counter() - began
        return found


# -- overhead ---------------------------------------------------------------------------------


def overhead(model: Any, runner: Runner, n: int) -> tuple[float, float]:
    """Median seconds of a small request in a `Generator` here, and how much more in the Runner."""
    kind = Literal["yes", "no"]
    generator = Generator(model, kind)
    here, more = [], []
    for i in range(n + 3):
        asked = [{"role": "user", "content": f"Is {i} even?"}]
        time.sleep(_REST)
        began = time.perf_counter()
        generator.parse(asked, temperature=0)
        alone = time.perf_counter() - began
        time.sleep(_REST)
        began = time.perf_counter()
        runner.chat(messages=asked, output_type=kind, temperature=0)
        took = time.perf_counter() - began
        if i >= 3:  # both have compiled it by then, and keep what prompts share
            here.append(alone)
            more.append(took - alone)
    return statistics.median(here), statistics.median(more)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--clients", default="1,4,16,32")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--skip", default="", help="loop, engine or runner, by commas")
    parser.add_argument("--ways", default="process", help=f"{', '.join(WAYS)}, by commas")
    given = parser.parse_args()
    ways = given.ways.split(",")
    unknown = [way for way in ways if way not in WAYS]
    if unknown:
        parser.error(f"--ways: {unknown[0]!r} is none of {', '.join(WAYS)}")
    counts = [int(one) for one in given.clients.split(",")]
    tokens = min(given.tokens, 16) if given.quick else given.tokens
    skipped = given.skip.split(",")

    def requests(clients: int) -> int:
        return max(clients, 8) if given.quick else max(3 * clients, 24)

    print(f"{'':<9} {'':<10} {'at':>3} {'outputs':>7} {'tokens':>8} {'first chunk, ms':>19}")
    print(f"{'':<9} {'':<10} {'once':>3} {'a s':>6} {'a s':>8} {'median':>9} {'90%':>9}")
    model = structgen.load(MODEL)
    if "loop" not in skipped:
        for kind in KINDS:
            one_by_one(model, kind, 2, tokens)
            measured, took = one_by_one(model, kind, requests(1), tokens)
            for clients in counts:
                print(waited(measured, took, clients).row("loop", kind, clients), flush=True)
    if "engine" not in skipped:
        engine = Engine(max(counts))
        for kind in KINDS:
            engine.measured(kind, 1, 2, tokens)
            for clients in counts:
                measured = engine.measured(kind, clients, requests(clients), tokens)
                print(measured.row("engine", kind, clients), flush=True)
        print(f"(the engine's batch: {engine.rows} rows)")
        del engine
    if "runner" not in skipped:
        for way in ways:
            with Runner({"model": {"source": MODEL, **WAYS[way]}}) as runner:
                for kind in KINDS:
                    # Each process compiles the type and keeps what the prompts share.
                    asyncio.run(by_runner(runner, kind, 4, 8, tokens))
                    for clients in counts:
                        work = by_runner(runner, kind, clients, requests(clients), tokens)
                        name = "runner" if len(ways) == 1 else way
                        print(asyncio.run(work).row(name, kind, clients), flush=True)
                if way == "process":
                    here, more = overhead(model, runner, 20 if given.quick else 100)
                    print(f"overhead over Generator: {more * 1e3:.2f} ms, of {here * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
