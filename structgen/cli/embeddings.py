"""The commands ``structgen embed`` and ``structgen search``, and their files of texts and vectors.

NumPy is imported late, because ``--help`` should not wait for it.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple, get_args

import click

import structgen
from structgen.errors import OptionError, counted
from structgen.storage import written_whole

from .terminal import MOST_BYTES, echo, model_option, text_in, writing

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from structgen import Embedder

    FloatArray = npt.NDArray[np.float32]

DEFAULT_EMBEDDER = "all-minilm-l6-v2"

_MODEL_KEY = b"structgen.model"
"""The key in a Parquet file for the model of its vectors."""

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
    _check(form)
    texts = texts_in(file).texts
    embedder = structgen.load_embedder(model)
    vectors = _vectors(embedder, texts, "document", dimensions, prompt_name)
    if to is None:
        sys.stdout.flush()
        _write(sys.stdout.buffer, form, texts, vectors, embedder.name)
        sys.stdout.buffer.flush()
        return
    with writing("--to", to), written_whole(to) as target:
        _write(target, form, texts, vectors, embedder.name)
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


# -- files --------------------------------------------------------------------------------------


class Texts(NamedTuple):
    """Texts of a file, and their vectors if it has them.

    Attributes:
        texts: one text per line or row.
        vectors: float32 ``[n, dimensions]``, or None.
        model: the model of the vectors, if the file has it.
    """

    texts: list[str]
    vectors: FloatArray | None
    model: str | None


def texts_in(file: str) -> Texts:
    """Return the texts of a file: one per line, or per row of JSON lines and Parquet.

    A row is a text, or has a ``text`` and optionally an ``embedding``.

    Raises:
        OptionError: the file cannot be read, or has another form.
    """
    shown = "standard input" if file == "-" else file
    kind = Path(file).suffix.lower()
    if kind in (".jsonl", ".ndjson", ".parquet"):
        return _rows(file)
    if kind == ".npy":
        raise OptionError(
            f"{shown} has only vectors, without their texts. Pass the file of texts, or a .jsonl "
            "or .parquet file that `structgen embed` wrote."
        )
    lines = text_in(file, shown).split("\n")
    if lines[-1] == "":
        lines.pop()  # the end of the last line does not begin another
    return Texts(lines, None, None)


def _check(form: str) -> None:
    """Check that a file format can be written, before vectors are computed.

    Raises:
        OptionError: the format is Parquet, and pyarrow is not installed.
    """
    if form == "parquet":
        _jobs().pyarrow()


def _write(
    target: BinaryIO, form: str, texts: Sequence[str], vectors: FloatArray, model: str
) -> None:
    """Write texts and their vectors in the format ``"jsonl"``, ``"npy"`` or ``"parquet"``.

    Raises:
        OptionError: the format is Parquet, and pyarrow is not installed.
    """
    import numpy as np

    if form == "npy":
        np.save(target, vectors)
    elif form == "jsonl":
        for text, vector in zip(texts, vectors, strict=True):
            # The fewest digits that give the same float32 back.
            numbers = ", ".join(map(str, vector))
            line = f'{{"text": {json.dumps(text, ensure_ascii=False)}, "embedding": [{numbers}]}}\n'
            target.write(line.encode())
    else:
        pyarrow = _jobs().pyarrow()
        flat = pyarrow.array(vectors.ravel())
        table = pyarrow.table(
            {
                "text": pyarrow.array(list(texts), pyarrow.string()),
                "embedding": pyarrow.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
            }
        ).replace_schema_metadata({_MODEL_KEY: model.encode()})
        # Parquet needs to seek while it writes, which a pipe cannot.
        whole = io.BytesIO()
        pyarrow.parquet.write_table(table, whole)
        target.write(whole.getvalue())


def _rows(file: str) -> Texts:
    jobs, texts, vectors, size = _jobs(), list[str](), list[Any](), 0
    source = jobs.Source.of_files([file], ["text", "embedding"])
    for number, row in enumerate(source.read(), 1):
        if isinstance(row, jobs.BadRow):
            raise OptionError(row.error)
        if not isinstance(text := row.get("text"), str):
            columns = ", ".join(source.schema.names if source.schema else row) or "none"
            raise OptionError(f'{file}, row {number}: "text" must be a string. Columns: {columns}.')
        texts.append(text)
        size += len(text)
        if "embedding" in row:
            vectors.append(row["embedding"])
            size += 4 * len(vectors[-1]) if isinstance(vectors[-1], list) else 0
        if size > MOST_BYTES:
            raise OptionError(f"{file} has more than {MOST_BYTES:,} bytes of texts and vectors.")
    if not vectors:
        return Texts(texts, None, None)
    if len(vectors) != len(texts):
        raise OptionError(
            f"{file}: only {len(vectors):,} of {len(texts):,} rows have an embedding. Embed all "
            "rows again."
        )
    model = source.schema and (source.schema.metadata or {}).get(_MODEL_KEY)
    return Texts(texts, _array(vectors, file), model and model.decode(errors="replace"))


def _array(rows: list[Any], shown: str) -> FloatArray:
    import numpy as np

    with contextlib.suppress(TypeError, ValueError, OverflowError):
        with np.errstate(over="ignore"):  # values too large for float32 are found below
            vectors = np.array(rows, np.float32)
        if vectors.ndim == 2 and np.isfinite(vectors).all():
            return vectors
    raise OptionError(
        f'{shown}: each "embedding" must be a list of finite numbers, with the same length in '
        "each row. Embed the texts again."
    )


def _jobs() -> Any:
    from structgen import jobs  # imported late: it imports the Runner

    return jobs
