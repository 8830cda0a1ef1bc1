"""The command ``structgen mcp``: models to tools of an MCP server."""

from __future__ import annotations

import click

from structgen import models as _models

from .embeddings import DEFAULT_EMBEDDER


@click.command()
@click.argument("models", nargs=-1, metavar="[MODEL|ID=MODEL]...")
@click.option(
    "--embedder",
    "embedders",
    multiple=True,
    metavar="MODEL|ID=MODEL",
    help=f"A model that makes vectors; give several.  [default: {DEFAULT_EMBEDDER}]",
)
@click.option("--no-embedder", is_flag=True, help="Offer no tool that makes vectors.")
@click.option("--http", is_flag=True, help="Serve streamable HTTP on this machine, not stdio.")
@click.option("--port", type=click.IntRange(0, 65_535), default=8001, show_default=True)
@click.option("--lazy", is_flag=True, help="Load models when they are asked for.")
def mcp(
    models: tuple[str, ...],
    embedders: tuple[str, ...],
    no_embedder: bool,
    http: bool,
    port: int,
    lazy: bool,
) -> None:
    """Serve generate, extract, classify, decide and embed as tools of an MCP server.

    MODELs answer; the default model if there are none. Hosts such as Claude Desktop, VS Code or
    Cursor start this command by themselves: docs/integrations.md shows what to tell them.
    """
    if no_embedder and embedders:
        raise click.UsageError("Pass --embedder or --no-embedder, not both.")
    # Imported late: --help should not wait for it.
    from structgen import Runner
    from structgen.integrations import mcp as served

    text = _by_id(models or (_models.DEFAULT,))
    vectors = {} if no_embedder else _by_id(embedders or (DEFAULT_EMBEDDER,))
    both = text.keys() & vectors.keys()
    if both:
        raise click.UsageError(f"Two models are called {min(both)}. Write ID=MODEL.")
    for source in text.values():
        _models.check(source)  # a host would show its user a server whose tools all fail
    for source in vectors.values():
        _models.check(source, task="embed")
    sources = text | {id_: {"source": one, "kind": "embedding"} for id_, one in vectors.items()}
    with Runner(sources) as runner:
        offered = served.Models(tuple(text), tuple(vectors))
        if http:
            served.serve_http(runner, offered, port=port, lazy=lazy, on_start=_tell)
        else:
            served.serve_stdio(runner, offered, lazy=lazy)


def _tell(address: str) -> None:
    click.echo(f"serves MCP at {address}", err=True)


def _by_id(given: tuple[str, ...]) -> dict[str, str]:
    """Sources by id."""
    found: dict[str, str] = {}
    for one in given:
        id_, equals, source = one.partition("=")
        if not id_ or (equals and not source):
            raise click.UsageError(f"{one!r} is neither a model nor ID=MODEL.")
        if id_ in found:
            raise click.UsageError(f"Two models are called {id_}. Write ID=MODEL.")
        found[id_] = source or id_
    return found
