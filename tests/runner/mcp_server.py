"""A real MCP server for tests: it speaks over stdio, with a port for an argument over HTTP."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Annotated

from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel, Field

server = MCPServer("cities")


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
