"""Files of texts, one a line or row, and of the vectors that `structgen embed` writes beside them.

Knows formats and their errors, and no model.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from structgen.errors import OptionError

from .terminal import MOST_BYTES, bytes_in, parsed, text_in

FloatArray = npt.NDArray[np.float32]

_MODEL = b"structgen.model"
"""Where a Parquet file says which model its vectors are from."""


class Texts(NamedTuple):
    """Texts of a file, and their vectors if it has them.

    Attributes:
        texts: one for each line or row.
        vectors: float32 ``[n, dimensions]``, or None.
        model: the model that the vectors are from, where the file says so.
    """

    texts: list[str]
    vectors: FloatArray | None
    model: str | None


def texts_in(file: str) -> Texts:
    """Return the texts of a file: one a line; of JSON lines and Parquet one a row.

    A row of JSON is a text, or an object with a ``text`` and maybe an ``embedding``; a row of
    Parquet has columns of these names.

    Raises:
        OptionError: the file cannot be read, or is not so.
    """
    shown = "standard input" if file == "-" else file
    kind = Path(file).suffix.lower()
    if kind == ".parquet":
        return _parquet(bytes_in(file, shown), shown)
    if kind == ".npy":
        raise OptionError(
            f"{shown} has only vectors, without their texts. Pass the file of texts, or a .jsonl "
            "or .parquet file that `structgen embed` wrote."
        )
    lines = text_in(file, shown).split("\n")
    if lines[-1] == "":
        lines.pop()  # the end of the last line is no further line
    return _jsonl(lines, shown) if kind in (".jsonl", ".ndjson") else Texts(lines, None, None)


def check(form: str) -> None:
    """Find out whether texts can be written in a form, before work is put into their vectors.

    Raises:
        OptionError: it is Parquet, and pyarrow is not installed.
    """
    if form == "parquet":
        _jobs().pyarrow()


def write(
    target: BinaryIO, form: str, texts: Sequence[str], vectors: FloatArray, model: str
) -> None:
    """Write texts and their vectors, in the form ``"jsonl"``, ``"npy"`` or ``"parquet"``.

    Raises:
        OptionError: the file is Parquet, and pyarrow is not installed.
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
        # A Parquet file is written to and fro, which a pipe is not made for.
        whole = io.BytesIO()
        pyarrow.parquet.write_table(table, whole)
        target.write(whole.getvalue())


def _jsonl(lines: list[str], shown: str) -> Texts:
    texts, vectors = [], []
    for number, line in enumerate(lines, 1):
        row = parsed(line, f"{shown}, line {number},")
        text = row.get("text") if isinstance(row, dict) else row
        if not isinstance(text, str):
            raise OptionError(
                f"{shown}, line {number}: a line must be a JSON string, or an object with a "
                f'string member "text": {line[:80]}'
            )
        texts.append(text)
        if isinstance(row, dict) and "embedding" in row:
            vectors.append(row["embedding"])
    if not vectors:
        return Texts(texts, None, None)
    if len(vectors) != len(texts):
        raise OptionError(
            f"{shown}: only {len(vectors):,} of {len(texts):,} lines have an embedding. Embed all "
            "lines again."
        )
    return Texts(texts, _array(vectors, shown), None)


def _parquet(data: bytes, shown: str) -> Texts:
    jobs = _jobs()
    pyarrow = jobs.pyarrow()
    try:
        file = pyarrow.parquet.ParquetFile(io.BytesIO(data))
        schema = file.schema_arrow
        names = [name for name in ("text", "embedding") if name in schema.names]
        if "text" not in names:
            raise OptionError(
                f"{shown} has no column text. Its columns: {', '.join(schema.names) or 'none'}."
            )
        at_once = jobs.rows_at_once(shown, file.metadata, data)
        read = _rows_of(file.iter_batches(at_once, columns=names), names, shown)
    except (pyarrow.ArrowException, *jobs.OF_DAMAGE) as error:
        raise OptionError(f"{shown} is not a Parquet file: {error}.") from None
    texts = read["text"]
    if not all(isinstance(text, str) for text in texts):
        raise OptionError(f"{shown}: the column text must contain strings in every row.")
    if "embedding" not in names or not texts:
        return Texts(texts, None, None)
    vectors = _array(read["embedding"], shown)
    model = (schema.metadata or {}).get(_MODEL)
    return Texts(texts, vectors, None if model is None else model.decode(errors="replace"))


def _rows_of(batches: Iterable[Any], names: list[str], shown: str) -> dict[str, list[Any]]:
    """Columns of a Parquet file, a few rows at a time: a value stored once may be in each row."""
    size, read = 0, {name: list[Any]() for name in names}
    for batch in batches:
        size += batch.nbytes
        if size > MOST_BYTES:
            raise OptionError(f"{shown} has more than {MOST_BYTES:,} bytes of texts and vectors.")
        for name in names:
            read[name] += batch[name].to_pylist()
    return read


def _array(rows: list[Any], shown: str) -> FloatArray:
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        with np.errstate(over="ignore"):  # what is too large for float32 is found below
            vectors = np.array(rows, np.float32)
        if vectors.ndim == 2 and np.isfinite(vectors).all():
            return vectors
    raise OptionError(
        f'{shown}: each "embedding" must be a list of finite numbers, with the same length in '
        "each row. Embed the texts again."
    )


def _jobs() -> Any:
    from structgen import jobs  # imported late: it brings the Runner

    return jobs
