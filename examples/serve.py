"""Serve a model, and call it with OpenAI's own client.

A program of its own serves with `structgen serve`; here the server is a thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import openai
import uvicorn
from pydantic import BaseModel

from structgen import Runner
from structgen.server import Settings, create_app


class City(BaseModel):
    city: Literal["Paris", "Rome", "Oslo"]
    country: Literal["France", "Italy", "Norway"]


@contextmanager
def served(runner: Runner, key: str) -> Iterator[str]:
    """Serve ``runner`` meanwhile; yield the base address."""
    app = create_app(runner, Settings(api_keys=(key,)))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/v1"
    server.should_exit = True
    thread.join()


def main() -> None:
    with (
        Runner({"small": "smollm2-135m-instruct"}) as runner,
        served(runner, "sk-local") as address,
    ):
        client = openai.OpenAI(base_url=address, api_key="sk-local")
        made = client.chat.completions.parse(
            model="small",
            messages=[{"role": "user", "content": "In which country is the city of Paris?"}],
            response_format=City,
        )
        print(made.choices[0].message.parsed)
        client.close()


if __name__ == "__main__":
    main()
