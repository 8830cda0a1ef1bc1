"""Many clients at once, who check each answer: none is wrong or another's, and memory stays.

Each client asks in turn for streams of four kinds, of forms that say who asks: an answer that is
another's, or cut, or mixed with another's, does not fit. Now and then one leaves in the middle.
There are more clients than the server takes at once, so that some get 429. By hand, with the
memory of all processes, in megabytes::

    PYTHONPATH=. python tests/server/load.py [SECONDS [CLIENTS]]
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

MODEL = "smollm2-135m-instruct"


@dataclass
class Report:
    """What came of it.

    Attributes:
        counts: of answers, by what they were.
        wrong: what was wrong, of each answer that was.
        seconds: from a request to its first text, and to its end.
    """

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    seconds: list[tuple[float, float]] = field(default_factory=list)


def asked(kind: int, who: str) -> tuple[str, dict[str, Any], Callable[[str], bool]]:
    """A path, a body, and whether a text is an answer to it."""
    ask = [{"role": "user", "content": f"I am {who}. Make something up."}]
    if kind == 0:
        schema = {
            "type": "object",
            "properties": {
                "who": {"const": who},
                "mood": {"enum": ["calm", "angry"]},
                "n": {"type": "integer", "minimum": 0, "maximum": 9999},
            },
            "required": ["who", "mood", "n"],
            "additionalProperties": False,
        }
        format_ = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}
        body: dict[str, Any] = {"messages": ask, "response_format": format_}
        return "/v1/chat/completions", body, lambda text: json.loads(text)["who"] == who
    pattern = f"{who} has [0-9]{{1,4}} (apples|pears)"
    form = {"grammar": pattern, "grammar_type": "regex"}
    if kind == 1:
        body = {"messages": ask, **form}
        return "/v1/chat/completions", body, lambda text: bool(re.fullmatch(pattern, text))
    if kind == 2:
        body = {"prompt": "It is said that ", **form}
        return "/v1/completions", body, lambda text: bool(re.fullmatch(pattern, text))
    body = {"input": f"I am {who}.", **form, "store": False}
    return "/v1/responses", body, lambda text: bool(re.fullmatch(pattern, text))


def texts(path: str, line: str) -> Iterator[str]:
    """The text that a line of a stream adds."""
    if not line.startswith("data: {"):
        return
    event = json.loads(line[6:])
    if event.get("error"):
        raise ValueError(f"an error in the stream: {event['error']}")
    if path == "/v1/responses":
        if event["type"] == "response.output_text.delta":
            yield event["delta"]
        return
    for choice in event["choices"]:
        yield (choice["delta"].get("content") or "") if "delta" in choice else choice["text"]


async def one(http: httpx.AsyncClient, number: int, turn: int, report: Report) -> None:
    """Ask once, and check what comes."""
    who = f"client-{number:02}"
    path, body, is_right = asked((number + turn) % 4, who)
    chance = random.Random(f"{number} {turn}")
    leaves = chance.random() < 0.05
    body |= {"stream": True, "temperature": 0.8, "seed": chance.randrange(1 << 30)}
    began, first, said, last = time.perf_counter(), 0.0, "", ""
    async with http.stream("POST", path, json=body) as answer:
        if answer.status_code == 429:
            error = json.loads(await answer.aread())["error"]
            if error["code"] != "overloaded" or int(answer.headers["retry-after"]) < 1:
                report.wrong.append(f"a 429 that is not clean: {error}")
            report.counts["429"] += 1
            await asyncio.sleep(0.2 + chance.random())
            return
        if answer.status_code != 200:
            report.wrong.append(f"{answer.status_code}: {(await answer.aread()).decode()}")
            return
        async for line in answer.aiter_lines():
            for text in texts(path, line):
                first = first or time.perf_counter()
                said += text
                if leaves and len(said) > 8:
                    report.counts["left"] += 1
                    return
            last = line or last
    if not is_right(said) or not (last == "data: [DONE]" or '"response.completed"' in last):
        report.wrong.append(f"{who} asked {path} and got {said!r}, and at the end {last[:80]!r}")
        return
    report.counts["right"] += 1
    report.seconds.append((first - began, time.perf_counter() - began))


async def run(root: str, clients: int, goes_on: Callable[[int], bool]) -> Report:
    """Have clients ask, each as long as ``goes_on`` of its number of requests says."""
    report = Report()
    limits = httpx.Limits(max_connections=None)

    async def client(number: int) -> None:
        turn = 0
        async with httpx.AsyncClient(base_url=root, timeout=300, limits=limits) as http:
            while goes_on(turn):
                try:
                    await one(http, number, turn, report)
                except (httpx.HTTPError, ValueError, KeyError) as error:
                    report.wrong.append(f"client {number}: {error!r}")
                turn += 1

    await asyncio.gather(*map(client, range(clients)))
    return report


# -- by hand ----------------------------------------------------------------------------------


def resident(pid: int) -> list[float]:
    """Megabytes of a process and of each of its children."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    found = [pages * os.sysconf("SC_PAGE_SIZE") / 1e6]
    for children in sorted(Path(f"/proc/{pid}/task").glob("*/children")):
        for child in children.read_text().split():
            found += resident(int(child))
    return found


async def main(seconds: float, clients: int) -> None:
    program = [sys.executable, "-m", "structgen", "serve", MODEL, "--port", "0"]
    program += ["--max-concurrency", str(clients // 2), "--max-queue", str(clients // 4)]
    with subprocess.Popen(program, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        for line in server.stderr:
            found = re.search(r"running on (http://127\.0\.0\.1:\d+)", line)
            if found:
                break
        drain = asyncio.get_running_loop().run_in_executor(None, server.stderr.read)
        root = found[1] if found else ""
        while httpx.get(f"{root}/health/ready").status_code != 200:
            await asyncio.sleep(0.5)
        begin = time.monotonic()
        sizes: list[tuple[float, list[float]]] = []

        async def watch() -> None:
            while True:
                sizes.append((time.monotonic() - begin, resident(server.pid)))
                await asyncio.sleep(2)

        watching = asyncio.ensure_future(watch())
        report = await run(root, clients, lambda turn: time.monotonic() - begin < seconds)
        watching.cancel()
        took = time.monotonic() - begin
        idle = resident(server.pid)
        users = httpx.get(f"{root}/v1/models/{MODEL}/status").json()["users"]
        server.terminate()
        log = await drain
    eighths = [
        [round(statistics.median(of_one)) for of_one in zip(*found, strict=False)]
        for part in range(8)
        if (found := [size for at, size in sizes if part <= 8 * at / took < part + 1])
    ]
    print(f"{clients} clients, {took:.0f} s: {dict(report.counts)}, {len(report.wrong)} wrong")
    print("\n".join(report.wrong[:10]))
    print("MB resident of each process, median of each eighth of the time:", *eighths)
    print(f"at the end {sum(idle):.0f} MB, {users} still use the model")
    print(f"{log.count('ERROR')} errors logged")
    for name, values in zip(
        ("first text", "whole"), zip(*report.seconds, strict=True), strict=True
    ):
        cuts = statistics.quantiles(values, n=20)
        print(f"{name}: median {cuts[9]:.2f} s, 95 % within {cuts[18]:.2f} s")


if __name__ == "__main__":
    given = [float(one) for one in sys.argv[1:]]
    asyncio.run(main(given[0] if given else 180, int(given[1]) if given[1:] else 32))
