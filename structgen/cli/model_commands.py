"""The commands ``structgen models …``: arguments and printing."""

from __future__ import annotations

from pathlib import Path

import click


@click.group()
def models() -> None:
    """Fetch, convert, list and remove models."""


@models.command("list")
def list_models() -> None:
    """Show the catalogue and what is on disk."""
    from structgen.models import catalogue, installed
    from structgen.models.progress import megabytes

    on_disk = {model.name: model for model in installed()}
    rows = [("NAME", "TASK", "ON DISK", "TO FETCH", "LICENCE", "")]
    for name in [*catalogue.ENTRIES, *(name for name in on_disk if name not in catalogue.ENTRIES)]:
        entry, model = catalogue.ENTRIES.get(name), on_disk.get(name)
        rows.append(
            (
                name,
                entry.task if entry else model.task if model else "",
                megabytes(model.bytes) if model else "no",
                megabytes(entry.download_bytes or 0) if entry and not model else "-",
                entry.licence if entry else "-",
                entry.summary if entry else "from the Hugging Face hub",
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


@models.command()
@click.argument("name")
def pull(name: str) -> None:
    """Fetch model NAME (and convert it) unless it is on disk, and print its folder."""
    from structgen import models

    click.echo(models.pull(name))


@models.command()
@click.argument("gguf", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--hidden-states", is_flag=True, help="Let the model embed texts too: model.embed(texts)."
)
@click.option(
    "--context-length", type=int, metavar="N", help="Let prompt and output have N tokens at most."
)
def convert(gguf: Path, out: Path, hidden_states: bool, context_length: int | None) -> None:
    """Convert the file GGUF into the model folder OUT, and print that."""
    from structgen import models

    click.echo(
        models.convert_gguf(gguf, out, hidden_states=hidden_states, context_length=context_length)
    )


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
