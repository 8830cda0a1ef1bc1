"""The commands ``structgen models …``: arguments and printing."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import click

_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


@click.group()
def models() -> None:
    """Fetch, convert, list and remove models."""


@models.command("list")
@click.option("--task", type=click.Choice(["generate", "embed"]), help="Only models that do this.")
@click.option("--here", is_flag=True, help="Only models that are on disk.")
@click.option("--language", metavar="CODE", help="Only models that name this language, such as fr.")
@_json_option
def list_models(task: str | None, here: bool, language: str | None, as_json: bool) -> None:
    """Show the catalogue, and what is on disk (marked with *)."""
    from structgen import models

    from .model_tables import table

    rows = [
        row
        for row in models.listing()
        if task in (None, row.task)
        and (row.here or not here)
        and (language is None or language.lower() in row.languages)
    ]
    if as_json:
        _print_json([{**dataclasses.asdict(row), "here": row.here} for row in rows])
    else:
        click.echo(table(rows))


@models.command()
@click.argument("name")
@_json_option
def info(name: str, as_json: bool) -> None:
    """Show what is known of model NAME: of the catalogue, on disk, or a folder."""
    from structgen import models

    from .model_tables import facts

    found = models.info(name)
    if as_json:
        _print_json({**dataclasses.asdict(found), "here": found.here})
    else:
        click.echo(facts(found))


@models.command()
@_json_option
def du(as_json: bool) -> None:
    """Show what models and caches take on disk."""
    from structgen import models

    from .model_tables import sizes

    found = models.usage()
    if as_json:
        _print_json(dataclasses.asdict(found))
    else:
        click.echo(sizes(found))


@models.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@_json_option
def verify(names: tuple[str, ...], as_json: bool) -> int:
    """Check that models on disk are as they arrived: NAMEs, or all."""
    from structgen import models

    from .model_tables import checks

    found = models.verify(names)
    if as_json:
        _print_json([dataclasses.asdict(one) for one in found])
    else:
        click.echo(checks(found))
    return 1 if any(one.problems for one in found) else 0


@models.command()
@click.argument("name")
def pull(name: str) -> None:
    """Fetch model NAME (and convert it) unless it is on disk, and print its folder."""
    from structgen import models

    click.echo(models.pull(name))


@models.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--hidden-states", is_flag=True, help="Let the model embed texts too: model.embed(texts)."
)
@click.option(
    "--context-length", type=int, metavar="N", help="Let prompt and output have N tokens at most."
)
@click.option(
    "--target",
    type=click.Choice(["cpu", "cuda", "dml"]),
    default="cpu",
    show_default=True,
    help="What it is to run on.",
)
def convert(
    source: Path, out: Path, hidden_states: bool, context_length: int | None, target: str
) -> None:
    """Convert SOURCE into the model folder OUT, and print that.

    SOURCE is a GGUF file, or a Hugging Face folder with safetensors.
    """
    from structgen import models

    make = models.convert_safetensors if source.is_dir() else models.convert_gguf
    folder = make(
        source, out, hidden_states=hidden_states, context_length=context_length, target=target
    )
    click.echo(folder)


@models.command()
@click.argument("name")
def path(name: str) -> None:
    """Print the folder of model NAME, fetched first if need be."""
    from structgen import models

    click.echo(models.path(name))


@models.command()
@click.argument("name")
def rm(name: str) -> None:
    """Delete model NAME from the cache."""
    from structgen import models
    from structgen.models.progress import megabytes

    click.echo(f"Removed {name}: {megabytes(models.remove(name))} are free again.")


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=1, default=str, ensure_ascii=False))
