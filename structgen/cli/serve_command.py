"""The command ``structgen serve``: flags to the settings of a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from structgen import models as _models
from structgen.errors import OptionError


@click.command()
@click.argument("models", nargs=-1, metavar="[MODEL|ID=MODEL]...")
@click.option(
    "--embedder",
    "embedders",
    multiple=True,
    metavar="MODEL|ID=MODEL",
    help="A model that makes vectors or ranks documents; give several.",
)
@click.option("--default-model", metavar="ID", help="The model of requests that name none.")
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=int, help="0: one that is free.  [default: 8000]")
@click.option("--lazy", is_flag=True, default=None, help="Load models when they are asked for.")
@click.option("--memory-budget", type=int, metavar="BYTES", help="Most bytes of loaded models.")
@click.option("--max-concurrency", type=int, metavar="N", help="Requests that run on a model.")
@click.option("--max-queue", type=int, metavar="N", help="Requests that wait; more get 429.")
@click.option(
    "--api-key", "api_keys", multiple=True, metavar="KEY", help="Who may ask; give several."
)
@click.option(
    "--api-key-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file with a key a line, or sha256: and its hash.",
)
@click.option(
    "--cors-origin", "cors_origins", multiple=True, metavar="URL", help="Web pages that may ask."
)
@click.option(
    "--sessions",
    type=click.Path(dir_okay=False, path_type=Path),
    help="An SQLite file for what is kept, so that it outlives the server.",
)
@click.option("--requests-per-minute", type=int, metavar="N", help="For each key or address.")
@click.option("--max-tokens", type=int, metavar="N", help="Most tokens of an answer.")
@click.option("--request-seconds", type=float, metavar="S", help="Most seconds of an answer.")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="How the log is written.")
@click.option("--log-prompts", is_flag=True, default=None, help="Log the bodies of requests, too.")
@click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A TOML file with settings: these flags, with _ for -, and those of docs/server.md.",
)
@click.option("--check", "only_checks", is_flag=True, help="Check the settings, and end.")
def serve(models: tuple[str, ...], config: Path | None, only_checks: bool, **flags: Any) -> None:
    """Serve MODELs with OpenAI's API; the default model if there are none.

    Every flag is an environment variable, too, such as STRUCTGEN_SERVER_PORT; the keys may be in
    STRUCTGEN_API_KEY.
    """
    try:
        from structgen import server
    except ImportError as error:
        raise OptionError(str(error)) from None
    given = {name: None if value == () else value for name, value in flags.items()}
    settings = server.Settings.of({"models": models or None, **given}, file=config)
    if not settings.models and not settings.embedders:
        settings = settings.model_copy(update={"models": {_models.DEFAULT: _models.DEFAULT}})
    if not only_checks:
        server.serve(settings)
        return
    for line in server.check(settings):
        click.echo(line)
