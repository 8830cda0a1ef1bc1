"""Files of texts, one per line or row, and of the vectors that `structgen embed` writes with them.

Knows file formats and no models.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from structgen.errors import OptionError

from .terminal import MOST_BYTES, text_in

FloatArray = npt.NDArray[np.float32]

_MODEL = b"structgen.model"
"""The key in a Parquet file for the model of its vectors."""


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


def check(form: str) -> None:
    """Check that a file format can be written, before vectors are computed.

    Raises:
        OptionError: the format is Parquet, and pyarrow is not installed.
    """
    if form == "parquet":
        _jobs().pyarrow()


def write(
    target: BinaryIO, form: str, texts: Sequence[str], vectors: FloatArray, model: str
) -> None:
    """Write texts and their vectors in the format ``"jsonl"``, ``"npy"`` or ``"parquet"``.

    Raises:
        OptionError: the format is Parquet, and pyarrow is not installed.
    """
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
        ).replace_schema_metadata({_MODEL: model.encode()})
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
    model = source.schema and (source.schema.metadata or {}).get(_MODEL)
    return Texts(texts, _array(vectors, file), model and model.decode(errors="replace"))


def _array(rows: list[Any], shown: str) -> FloatArray:
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
