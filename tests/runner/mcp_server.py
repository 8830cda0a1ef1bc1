"""A real MCP server for tests: it speaks over stdio, with a port for an argument over HTTP."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Annotated

from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel, Field

server = MCPServer("cities")
messages = os.dup(1)


class City(BaseModel):
    name: str
    people: int


@server.tool()
def population(city: str, in_thousands: bool = False) -> str:
    """How many people live in a city."""
    people = {"Rome": 2_755_000, "Oslo": 717_000}[city]
    return str(people // 1000 if in_thousands else people)


@server.tool()
def details(city: str) -> City:
    """All that is known of a city."""
    return City(name=city, people=1)


@server.tool()
def noon() -> str:
    """Whether it is noon."""
    return "yes"


@server.tool()
def die() -> str:
    """Ends the server."""
    print("the roof is on fire", file=sys.stderr, flush=True)
    os._exit(3)


@server.tool()
async def hang() -> str:
    """Never returns."""
    await asyncio.sleep(3600)
    return "never"


def sent(line: str) -> None:
    """Write what is no message where messages are read."""
    data = line.encode() + b"\n"
    while data:
        data = data[os.write(messages, data) :]


@server.tool()
async def deep() -> str:
    """Answers with what is nested too deep, and with words that steer a terminal."""
    sent('{"jsonrpc":"2.0","id":1,"result":' + "[" * 500 + "]" * 500 + "}")
    await asyncio.sleep(3600)
    return "never"


@server.tool()
async def prints() -> str:
    """Prints among its messages."""
    sent("Listening to nobody.")
    sent('{"level": "info", "message": "Listening."}')
    return "yes"


@server.tool()
def garbles() -> str:
    """Prints what is no UTF-8."""
    os.write(messages, b"\xff\xfe\n")
    return "yes"


@server.tool()
async def endless() -> str:
    """Writes a line of 40 MB, and nothing else meanwhile."""
    sent('{"jsonrpc":"2.0","id":1,"result":"' + "x" * (40 << 20) + '"}')
    return "yes"


@server.tool()
def steers() -> str:
    """Ends the server with a word to the terminal."""
    print("\x1b]0;owned\x07\x1b[2J", file=sys.stderr, flush=True)
    os._exit(3)


@server.tool()
def environment(name: str) -> str:
    """An environment variable."""
    return os.environ.get(name, "unset")


@server.tool()
def odd(text: Annotated[str, Field(json_schema_extra={"pattern": r"(a|b)\1"})]) -> str:
    """Takes what no regular language can express."""
    return text


if __name__ == "__main__":
    if sys.argv[1:]:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run()
