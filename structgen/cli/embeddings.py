"""The commands ``structgen embed`` and ``structgen search``: arguments and printing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import click

import structgen
from structgen.errors import OptionError, counted
from structgen.storage import written_whole

from .terminal import echo, model_option, writing

if TYPE_CHECKING:
    from structgen import Embedder

    from .vector_files import FloatArray, Texts

DEFAULT_EMBEDDER = "all-minilm-l6-v2"

Format = Literal["jsonl", "npy", "parquet"]

_MODEL = model_option(DEFAULT_EMBEDDER, "An embedder")
_DIMENSIONS = click.option(
    "--dimensions", type=int, help="Shorten each vector to this length, if the model supports it."
)


@click.command()
@click.argument("file", metavar="FILE|-")
@_MODEL
@click.option(
    "--output",
    type=click.Choice(get_args(Format)),
    help="The format: jsonl (the default) and parquet include the texts, npy has only the vectors.",
)
@click.option(
    "--to",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="The file to write.  [default: standard output]",
)
@_DIMENSIONS
@click.option(
    "--prompt-name",
    help="Which of the model's prompts to put before each text.  [default: the one for documents]",
)
def embed(
    file: str,
    model: str,
    output: Format | None,
    to: Path | None,
    dimensions: int | None,
    prompt_name: str | None,
) -> None:
    """Write the vector of each line of FILE ("-": standard input).

    FILE holds one text a line; a .jsonl, .ndjson or .parquet file one a row, under "text".
    """
    from .vector_files import check, texts_in, write  # NumPy, which --help should not wait for

    suffix = to.suffix.lower().removeprefix(".") if to is not None else ""
    if not output and suffix not in ("", *get_args(Format)):
        formats = " or ".join(get_args(Format))
        raise OptionError(
            f"--to {to}: embed cannot write .{suffix} files. Pass --output {formats}."
        )
    form = output or suffix or "jsonl"
    if to is not None and not to.parent.is_dir():
        raise OptionError(f"--to {to}: the folder {to.parent} does not exist.")
    if to is None and form != "jsonl" and sys.stdout.isatty():
        raise OptionError(
            f"{form} is a binary format and cannot be written to a terminal. Pass --to FILE."
        )
    check(form)
    texts = texts_in(file).texts
    embedder = structgen.load_embedder(model)
    vectors = _vectors(embedder, texts, "document", dimensions, prompt_name)
    if to is None:
        sys.stdout.flush()
        write(sys.stdout.buffer, form, texts, vectors, embedder.name)
        sys.stdout.buffer.flush()
        return
    with writing("--to", to), written_whole(to) as target:
        write(target, form, texts, vectors, embedder.name)
    click.echo(f"Wrote {to}: {counted(len(texts), 'vector')}.", err=True)


@click.command()
@click.argument("query")
@click.argument("file", metavar="FILE|-")
@_MODEL
@click.option("-k", "--top-k", default=5, show_default=True, help="The number of results to show.")
@_DIMENSIONS
def search(query: str, file: str, model: str, top_k: int, dimensions: int | None) -> None:
    """Print the lines of FILE whose meaning is closest to QUERY.

    Each result is the cosine similarity, the number of the line or row, and the text.

    FILE holds one text a line, or is what `structgen embed` wrote: then its vectors are used.
    """
    import numpy as np

    from .vector_files import texts_in

    if top_k < 1:
        raise OptionError(f"--top-k {top_k} is out of range. It must be 1 or more.")
    if not query.strip():
        raise OptionError("QUERY is empty. Write a few words to search for.")
    found = texts_in(file)
    if not any(map(str.strip, found.texts)):
        click.echo(f"({'standard input' if file == '-' else file} has no text.)", err=True)
        return
    embedder = structgen.load_embedder(model)
    (asked,) = _vectors(embedder, [query], "query", dimensions, None)
    scores = _documents(embedder, found, file, dimensions) @ asked
    best = np.argsort(-scores, kind="stable")
    shown = [i for i in best if found.texts[i].strip()][:top_k]
    width = len(str(max(shown) + 1))
    for i in shown:
        echo(f"{scores[i]:6.3f}  {i + 1:>{width}}  {' '.join(found.texts[i].split())}")


def _documents(embedder: Embedder, found: Texts, file: str, dimensions: int | None) -> FloatArray:
    """Return unit vectors of the texts to search: the file's own, or new ones."""
    from structgen.models.embedding import finish

    if found.vectors is None:
        return _vectors(embedder, found.texts, "document", dimensions, None)
    if found.model is not None and found.model != embedder.name:
        raise OptionError(
            f"The vectors in {file} are from {found.model}, not from {embedder.name}. Pass "
            f"--model {found.model}, or embed the texts again."
        )
    wanted = embedder.dimensions if dimensions is None else dimensions
    if wanted is not None and found.vectors.shape[1] != wanted:
        raise OptionError(
            f"The vectors in {file} have {found.vectors.shape[1]} numbers, but that of the query "
            f"has {wanted}. Pass the --model (and --dimensions) with which they were made."
        )
    return finish(found.vectors, None, normalize=True)


def _vectors(
    embedder: Embedder,
    texts: Sequence[str],
    role: Literal["query", "document"],
    dimensions: int | None,
    prompt_name: str | None,
) -> FloatArray:
    """Return unit vectors of texts, with the prompt of their role; warn of texts that were cut."""
    from structgen.models.embedding import prompt_name_for

    if prompt_name is None:
        prompt_name = prompt_name_for(role, embedder.prompts)
    result = embedder.result(
        texts, dimensions=dimensions, prompt_name=prompt_name, on_truncation="ignore"
    )
    if result.n_cut is not None and result.n_cut.any():
        n_texts, n_tokens = int((result.n_cut > 0).sum()), int(result.n_cut.sum())
        click.echo(
            f"({counted(n_texts, 'text')} had more than {embedder.max_length:,} tokens; "
            f"{counted(n_tokens, 'token')} were cut off.)",
            err=True,
        )
    return result.vectors
