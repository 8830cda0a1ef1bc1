"""Rows of a job: read from files, tables or iterables, one at a time, and turned into prompts.

Here are the input formats, the identity of an input, and templates. An unreadable row is a
`BadRow`, which becomes a result with its error: one broken line does not end a job.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import glob
import hashlib
import itertools
import json
import math
import os
import string
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from structgen import models
from structgen.errors import OptionError, PromptError, requires
from structgen.storage import fork_safe
from structgen.storage.user_folder import NOT_UNDERSTOOD, unique, varint

Row: TypeAlias = dict[str, Any]

LONGEST_LINE = 16 << 20
"""Most bytes of a line of a file, and characters of a row of CSV."""

_MOST_AT_ONCE = 16  # rows of Parquet
_MOST_VALUES = 2_000_000  # in one row of Parquet
_MOST_UNPACKED = 64 << 20  # bytes of pages, which may be in each of those rows
_WITH_LENGTHS = {6: 1, 7: 2}  # encodings of pages that begin with such lists of texts' lengths
_CODECS = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_MOST_PARTS = 100_000  # columns of row groups: each takes 50 us and 4 kB
_NOT_UTF8 = "it is not UTF-8. Convert the file, for example with iconv -f latin1 -t utf-8"
_CSV_LIMIT = fork_safe(threading.Lock())

_KINDS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".txt": "txt",
}


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be read, and why."""

    error: str


class Unread(bytes):
    """A value of a row as unparsed JSON, because parsing makes other threads wait."""


def as_json(value: Any) -> bytes:
    """Return a value as JSON in UTF-8. NaN and infinities become null, unknown values text."""
    unread: list[Unread] = []

    def plain(one: Any) -> Any:
        if not isinstance(one, Unread):
            return _plain(one)
        unread.append(one)
        return _UNREAD

    try:
        made = json.dumps(value, ensure_ascii=False, allow_nan=False, default=plain)
    except ValueError:
        unread.clear()
        given = json.loads(json.dumps(value, default=plain), parse_constant=lambda name: None)
        made = json.dumps(given, ensure_ascii=False)
    text = made.encode(errors="backslashreplace")
    for one in unread:
        text = text.replace(b'"%b"' % _UNREAD.encode(), one, 1)
    return text


def _plain(value: Any) -> Any:
    """Return the JSON form of a value that JSON does not have."""
    if getattr(getattr(value, "dtype", None), "kind", "M") not in "mM":
        return value.tolist()  # NumPy's, whose texts leave out the middle
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


_UNREAD = os.urandom(16).hex()  # a placeholder that cannot be in the input
_DECODER = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=unique)


def n_bytes_of(row: Row | BadRow) -> int:
    """Return about how many bytes a row has as text, without writing its vectors."""
    values = row.values() if isinstance(row, dict) else [row.error]
    return sum(
        9 * len(one)
        if isinstance(one, list) and one and type(one[0]) is type(one[-1]) is float
        else len(repr(one))
        for one in values
    )


def stamp(path: Path) -> tuple[int, int, int] | None:
    """Return the identity of a file and its version; None if it is gone."""
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_ino, about.st_size, about.st_mtime_ns


@dataclass(frozen=True, slots=True)
class Source:
    """The source of rows.

    Attributes:
        read: begins to read at the first row.
        identity: the identity of this input, as JSON; None: unknown.
        total: the number of rows; None: unknown.
        table: returns the caller's table with the rows at given places and further columns; None:
            the input is not a table.
        schema: the input's Arrow schema, if it has one.
        check: raises OptionError if files have changed since the source was made.
    """

    read: Callable[[], Iterator[Row | BadRow]]
    identity: Any = None
    total: int | None = None
    table: Callable[[list[int], dict[str, list[Any]]], Any] | None = None
    schema: Any = None
    check: Callable[[], None] = lambda: None

    @classmethod
    def of(cls, given: Any) -> Source:
        """Return the source for a value of ``rows=``.

        Args:
            given: a file or several (``.jsonl``, ``.csv``, ``.tsv``, ``.parquet``, ``.txt``; names
                with ``*`` stand for all that match; ``-`` is JSON lines on standard input), a table
                of pandas, Polars or Arrow, or an iterable of rows: mappings, or texts, which become
                rows with the column ``text``.

        Raises:
            OptionError: there is no such file, or the value is none of these.
        """
        if isinstance(given, cls):
            return given
        if isinstance(given, (str, os.PathLike)):
            return cls.of_files([os.fspath(given)])
        if hasattr(given, "to_pylist") and hasattr(given, "schema"):  # Arrow
            _check_names("The table", given.schema.names)
            return cls._of_table(given.to_pylist(), functools.partial(_arrow, given), given.schema)
        if hasattr(given, "to_dicts"):  # Polars
            return cls._of_table(given.to_dicts(), functools.partial(_polars, given))
        if hasattr(given, "to_dict") and hasattr(given, "columns"):  # pandas
            _check_names("The table", list(given.columns))
            rows = given.to_dict("records")
            return cls._of_table(rows, lambda places, more: given.iloc[places].assign(**more))
        if isinstance(given, Sequence) and not isinstance(given, (bytes, bytearray)):
            rows = list(given)
            if rows and all(map(_is_name, rows)):
                return cls.of_files([os.fspath(one) for one in rows])
            return cls._of_table(rows, None)
        if isinstance(given, Iterable) and not isinstance(given, (bytes, bytearray, Mapping)):
            rest = iter(given)
            return cls(lambda: map(_row, rest))
        raise OptionError(
            f"rows has the type {type(given).__name__}. Pass a file, a table, or an iterable of "
            "mappings or texts."
        )

    @classmethod
    def of_lines(cls, path: Path, longest: int, read: Callable[[str], Any]) -> Source:
        """Return the rows of a foreign file of JSON lines, whatever its name.

        No line may have more than ``longest`` bytes; ``read`` parses a line or raises ValueError.

        Raises:
            OSError: there is no such file.
        """

        def rows() -> Iterator[Row | BadRow]:
            with path.open("rb") as file:
                yield from _json_lines(file, path.name, longest, read)

        return cls(rows, total=_count([path], "jsonl"))

    @classmethod
    def _of_table(cls, rows: list[Any], table: Any, schema: Any = None) -> Source:
        digest = hashlib.sha256()
        for row in rows:
            digest.update(json.dumps(row, default=str, sort_keys=True).encode())
        identity = {"rows": len(rows), "sha256": digest.hexdigest()}
        return cls(lambda: map(_row, rows), identity, len(rows), table, schema)

    @classmethod
    def of_files(cls, given: Sequence[str], columns: Sequence[str] | None = None) -> Source:
        """Return the rows of files by name: see `of`; ``columns``: those of Parquet to read."""
        if "-" in given:
            if len(given) > 1:
                raise OptionError("Standard input (-) cannot be combined with other input.")
            return cls(
                lambda: _json_lines(sys.stdin.buffer, "standard input", LONGEST_LINE),
                "standard input",
            )
        files = list(itertools.chain.from_iterable(map(_files, given)))
        stamps = {path: stamp(path) for path in files}
        identity = [
            {"file": path.name, "bytes": path.stat().st_size, "sha256": models.cache.sha256(path)}
            for path in files
        ]

        def check() -> None:
            for path, known in stamps.items():
                if stamp(path) != known:
                    raise OptionError(
                        f"{path} has changed since the job began. The rows in the folder are from "
                        "its old content: restore it to continue, or choose a new folder."
                    )

        def rows() -> Iterator[Row | BadRow]:
            for path in files:
                yield from rows_in(path, LONGEST_LINE, columns)
                check()

        return cls(rows, identity, _count(files), schema=_schema(files), check=check)


def _arrow(given: Any, places: list[int], more: Mapping[str, list[Any]]) -> Any:
    arrow = pyarrow()
    if len(places) < len(given):
        given = given.take(arrow.array(places, arrow.int64()))
    for name, values in more.items():
        given = given.append_column(name, arrow.array(values))
    return given


def _polars(given: Any, places: list[int], more: Mapping[str, list[Any]]) -> Any:
    rows = [dict(zip(more, values, strict=True)) for values in zip(*more.values(), strict=True)]
    # Without the length it takes the types of the first hundred rows, and 1.5 after them would
    # become 1. Unless it may convert, a list of 1 and 1.5 in an object has no type.
    made = type(given)(rows, schema=list(more), strict=False, infer_schema_length=None)
    return given[places].hstack(made)


def _is_name(given: Any) -> bool:
    """Return whether a value is a file name and not a text; several values must all be names."""
    return given == "-" or (
        isinstance(given, (str, os.PathLike)) and Path(given).suffix.lower() in _KINDS
    )


def _files(name: str) -> list[Path]:
    """Return the files for a name or pattern, sorted."""
    path = Path(name).expanduser()
    if path.is_file():
        found = [path]
    else:
        found = sorted(Path(one) for one in glob.glob(str(path)) if Path(one).is_file())
    if not found:
        if path.is_dir():
            raise OptionError(f"{name} is a folder. Pass its files, such as '{path / '*.jsonl'}'.")
        raise OptionError(f"{name} does not exist.")
    for one in found:
        if one.suffix.lower() not in _KINDS:
            raise OptionError(
                f"{one} is not supported as input. Files must be one of: {', '.join(_KINDS)}."
            )
        if _KINDS[one.suffix.lower()] == "parquet":
            pyarrow()
    return found


def _schema(files: Sequence[Path]) -> Any:
    """Return the common Arrow schema of Parquet files; None: there is none."""
    tables = [path for path in files if _KINDS[path.suffix.lower()] == "parquet"]
    if not tables:
        return None
    arrow, schemas = pyarrow(), []
    for path in tables:
        with _readable(path):
            schemas.append(arrow.parquet.read_schema(path))
        _check_names(path, schemas[-1].names)
    if len(tables) < len(files):
        return None
    try:
        return arrow.unify_schemas(schemas, promote_options="permissive")
    except arrow.ArrowException:
        return None


def _check_names(path: Path | str, names: Sequence[str]) -> None:
    if twice := [name for name, n in Counter(names).items() if n > 1]:
        raise OptionError(f"{path} has two columns named {twice[0]!r}. Rename one.")
    if other := [name for name in names if not isinstance(name, str)]:
        raise OptionError(f"{path} has a column {other[0]!r}, which is not text. Rename it.")


def _count(files: Sequence[Path], known: str | None = None) -> int | None:
    """Return the number of rows if it can be told without parsing; None: it cannot."""
    total = 0
    for path in files:
        kind = known or _KINDS[path.suffix.lower()]
        if kind == "parquet":
            with _readable(path):
                total += pyarrow().parquet.ParquetFile(path).metadata.num_rows
        elif kind in ("jsonl", "txt"):
            with path.open("rb") as file:
                is_blank = is_whole = True
                while piece := file.readline(1 << 20):
                    is_blank, is_whole = is_blank and piece.isspace(), piece.endswith(b"\n")
                    if is_whole:
                        total += kind == "txt" or not is_blank
                        is_blank = True
                total += not is_whole and (kind == "txt" or not is_blank)
        else:
            return None
    return total


def rows_in(
    path: Path, longest: int, columns: Sequence[str] | None = None
) -> Iterator[Row | BadRow]:
    """Yield the rows of a file, in order; ``longest``: most bytes of a line of JSON or text."""
    kind = _KINDS[path.suffix.lower()]
    if kind == "parquet":
        with _readable(path):
            file = pyarrow().parquet.ParquetFile(path)
            with path.open("rb") as raw, mmap(raw.fileno(), 0, access=ACCESS_READ) as data:
                at_once = _rows_at_once(path, file.metadata, data)
            n = 0
            for batch in file.iter_batches(at_once, columns=columns):
                if _n_values(batch) <= _MOST_VALUES:
                    yield from batch.to_pylist()
                else:
                    yield from _one_by_one(batch, f"{path.name}, row", n + 1)
                n += len(batch)
    elif kind in ("csv", "tsv"):
        yield from _csv(path, "\t" if kind == "tsv" else ",")
    else:
        with path.open("rb") as file:
            read = _json_lines if kind == "jsonl" else _texts
            yield from read(file, path.name, longest)


def _rows_at_once(path: Path | str, metadata: Any, data: bytes | mmap) -> int:
    """Return how many rows of a Parquet file to read at once.

    A value stored once in a page may be the value of every row. The footer may be wrong about the
    pages; pyarrow follows the headers of the pages, so these are read.

    Raises:
        OptionError: reading it would take far more memory than the file.
        LookupError, ValueError, RecursionError: the file is damaged.
    """
    largest = 1
    if (n_parts := metadata.num_row_groups * metadata.num_columns) > _MOST_PARTS:
        raise OptionError(
            f"{path} cannot be read: it has {n_parts:,} parts (columns of row groups); the limit "
            f"is {_MOST_PARTS:,}. Write it with larger row groups."
        )
    # pyarrow's own `metadata.row_group(0).column(0)` crashes the process on damaged files.
    length = int.from_bytes(data[-8:-4], "little")
    about, _ = _thrift(data, len(data) - 8 - length, has_lists=True)
    for group in about[4, 9]:
        unpacked = packed = 0
        with_lengths: list[tuple[Any, ...]] = []
        for i, chunk in enumerate(group[1, 9]):
            column, schema = chunk[3, 12], metadata.schema.column(i)
            # Some writers store 0 for none.
            begin = min(column[9, 6], column.get((11, 6)) or column[9, 6])
            n = size = most = 0
            while n < column[5, 6]:
                head, end = _thrift(data, begin)
                page = head.get({0: (5, 12), 3: (8, 12)}.get(head[1, 5], (0, 0)), {})
                new = page.get((1, 5), 0)
                if begin < 0 or head[3, 5] < 0 or new < 0 or (not new and size):
                    raise ValueError("a page has an invalid start or no values")
                if page.get((2 if head[1, 5] == 0 else 4, 5)) in _WITH_LENGTHS:
                    with_lengths.append((data, end, head, page, column[4, 5], schema))
                begin, size, most = end + head[3, 5], size + head[3, 5], max(most, head[2, 5])
                n += new
            if schema.max_repetition_level and n > 8 * _MOST_VALUES and n > 1000 * size:
                raise OptionError(
                    f"{path} cannot be read: {size:,} bytes of {schema.path!r} contain {n:,} "
                    "values. Write its lists as several rows."
                )
            unpacked, packed = unpacked + most, packed + size
        if unpacked > max(_MOST_UNPACKED, 100 * packed):
            raise OptionError(
                f"{path} cannot be read: {packed:,} bytes of it contain pages of {unpacked:,} "
                "bytes. Write it with smaller pages."
            )
        for page_of_texts in with_lengths:
            if (n := _n_lengths(*page_of_texts)) > 8 * _MOST_VALUES:
                raise ValueError(f"a page has {n:,} texts")
        largest = max(largest, unpacked)
    return max(1, min(_MOST_AT_ONCE, _MOST_UNPACKED // largest))


def _n_lengths(data: bytes | mmap, at: int, head: Any, page: Any, codec: int, schema: Any) -> int:
    """Return the number of texts whose lengths are in a page; pyarrow unpacks them all at once.

    The number is in the packed part of the page; the header may have another."""
    levels = [(schema.max_repetition_level, page[4, 5]), (schema.max_definition_level, page[3, 5])]
    most: int = page[1, 5]
    encoding, n_before = page[2, 5], 0
    if head[1, 5] == 3:  # here levels are before what is packed
        encoding, n_before, levels = page[4, 5], page[5, 5] + page[6, 5], []
        codec = 0 if (7, 2) in page else codec
    body, at = data[at + n_before : at + head[3, 5]], 0
    if codec:
        if codec not in _CODECS:
            raise ValueError(f"structgen cannot unpack texts of the codec {codec}")
        body = pyarrow().decompress(body, head[2, 5] - n_before, _CODECS[codec], asbytes=True)
    for level, kind in levels:
        if level and kind != 3:
            raise ValueError(f"a page has levels of kind {kind}")
        at += 4 + int.from_bytes(body[at : at + 4], "little") if level else 0
    for _ in range(_WITH_LENGTHS[encoding]):
        numbers = []
        for _ in range(4):  # values of a block, parts of it, lengths, the first of them
            value, at = varint(body, at, 32)
            numbers.append(value)
        in_block, n_parts, n, _ = numbers
        if not in_block or not n_parts or in_block % 128 or in_block % n_parts:
            raise ValueError("a page has uneven blocks")
        if (most := max(most, n)) > 8 * _MOST_VALUES:
            break
        for left in range(n - 1, 0, -in_block):
            _, at = varint(body, at)
            widths, at = body[at : at + n_parts], at + n_parts
            at += sum(widths[: -(-left * n_parts // in_block)]) * (in_block // n_parts) // 8
    return most


def _thrift(
    data: bytes | mmap, at: int, *, has_lists: bool = False
) -> tuple[dict[tuple[int, int], Any], int]:
    """Return the fields of a struct of Thrift's compact protocol, by id and kind, and its end.

    None stands for a value that is not a number, struct, or list of these."""
    found: dict[tuple[int, int], Any] = {}
    number = 0

    def whole(bits: int = 32) -> int:
        nonlocal at
        value, at = varint(data, at, bits)
        return value

    def one(kind: int) -> Any:
        nonlocal at
        if kind == 12:
            struct, at = _thrift(data, at, has_lists=has_lists)
            return struct
        if kind in (4, 5, 6):
            value = whole(64 if kind == 6 else 32)
            return value >> 1 ^ -(value & 1)
        if kind == 9 and has_lists:  # headers of pages have none
            head, at = data[at], at + 1
            size = head >> 4 if head < 240 else whole()
            if size > len(data) - at:
                raise ValueError(f"it has a list of {size:,} values")
            values = [one(head & 15) for _ in range(size)]
            return values if head & 15 == 12 else None
        if kind not in (1, 2, 3, 7, 8):
            raise ValueError(f"it has fields of type {kind}")
        size = whole() if kind == 8 else {7: 8}.get(kind, 1)  # text; float; in lists bool, too
        at += size
        return None

    while head := data[at]:
        at += 1
        before, number = number, number + (head >> 4) if head >> 4 else whole() >> 1
        if number <= before:
            raise ValueError("it has a field twice")
        found[number, head & 15] = None if head & 15 in (1, 2) else one(head & 15)  # true or false
    return found, at + 1


def _one_by_one(batch: Any, where: str, first: int) -> Iterator[Row | BadRow]:
    for number, row in enumerate((batch.slice(i, 1) for i in range(len(batch))), first):
        if _n_values(row) <= _MOST_VALUES:
            yield from row.to_pylist()
        else:
            yield BadRow(f"{where} {number} has more than {_MOST_VALUES:,} values.")


def _n_values(part: Any) -> int:
    """Count the values in an Arrow batch or column, including those inside lists."""
    types = pyarrow().types
    if not hasattr(part, "type"):
        return sum(map(_n_values, part.columns))
    if types.is_struct(part.type):
        return sum(map(_n_values, part.flatten()))
    if types.is_map(part.type):
        within = slice(part.offsets[0].as_py(), part.offsets[-1].as_py())
        return len(part) + _n_values(part.keys[within]) + _n_values(part.items[within])
    if types.is_nested(part.type) and hasattr(part, "flatten"):
        return len(part) + _n_values(part.flatten())
    return len(part)


def _lines(file: BinaryIO, name: str, longest: int) -> Iterator[tuple[int, str | BadRow]]:
    """Yield the lines of a file by number, without their ends; report long ones and bad UTF-8."""
    for number in itertools.count(1):
        line = file.readline(longest + 1)
        if not line:
            return
        where = f"{name}, line {number}"
        if len(line) > longest:
            while line and not line.endswith(b"\n"):
                line = file.readline(longest)
            yield number, BadRow(f"{where} has more than {longest:,} bytes.")
            continue
        try:
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            yield number, BadRow(f"{where}: {_NOT_UTF8}.")


def _json_lines(
    file: BinaryIO, name: str, longest: int, read: Callable[[str], Any] = _DECODER.decode
) -> Iterator[Row | BadRow]:
    for number, line in _lines(file, name, longest):
        if isinstance(line, BadRow):
            yield line
        elif line.strip():
            try:
                row = _row(read(line))
                if isinstance(row, BadRow):
                    row = BadRow(f"{name}, line {number}: {row.error}")
                yield row
            except (ValueError, RecursionError) as error:
                yield BadRow(f"{name}, line {number} is not JSON: {error}.")


def _texts(file: BinaryIO, name: str, longest: int) -> Iterator[Row | BadRow]:
    for _, line in _lines(file, name, longest):
        yield line if isinstance(line, BadRow) else {"text": line}


def _csv(path: Path, delimiter: str) -> Iterator[Row | BadRow]:
    n_read = 0
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:

        def line() -> str:
            nonlocal n_read
            made = file.readline(LONGEST_LINE + 1)
            n_read += len(made)
            if n_read > LONGEST_LINE:  # the beginning of the next row is unknown, too
                raise OptionError(
                    f"{path.name}, line {reader.line_num + 1}: the row has more than "
                    f"{LONGEST_LINE:,} characters. Is a quote missing?"
                )
            return made

        head = file.readline(LONGEST_LINE)
        file.seek(0)
        if delimiter == "," and "," not in head and ";" in head:
            delimiter = ";"
        reader = csv.reader(iter(line, ""), delimiter=delimiter, strict=True)
        names: list[str] | None = None
        while True:
            with _CSV_LIMIT:  # the module has one limit, for all
                limit = csv.field_size_limit(LONGEST_LINE)
                wrong, row = "", None
                try:
                    if (row := next(reader, None)) is None:
                        return
                    "".join(row).encode()
                except UnicodeEncodeError:
                    wrong = _NOT_UTF8
                except csv.Error as error:
                    wrong = str(error)
                finally:
                    csv.field_size_limit(limit)
            n_read, where = 0, f"{path.name}, line {reader.line_num}"
            if names is None and row and not wrong:
                names = row
                _check_names(path, names)
            elif names is None:
                raise OptionError(f"{where}: {wrong or 'there are no names of columns'}.")
            elif wrong or (row and len(row) != len(names)):
                n, most = len(row or ()), len(names)
                yield BadRow(f"{where}: {wrong or f'it has {n} fields instead of {most}'}.")
            elif row:
                yield dict(zip(names, row, strict=True))


def _row(given: Any) -> Row | BadRow:
    if isinstance(given, str):
        return {"text": given}
    if isinstance(given, Mapping) and all(isinstance(name, str) for name in given):
        return dict(given)
    return BadRow(f"a row must be a text or an object with columns, not {type(given).__name__}.")


@contextlib.contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (pyarrow().ArrowException, OSError, *NOT_UNDERSTOOD) as error:
        raise OptionError(f"{path} cannot be read as Parquet: {error}.") from None


def pyarrow() -> Any:
    """Return the package ``pyarrow``.

    Raises:
        OptionError: it is not installed.
    """
    with requires(OptionError, "Parquet requires the package pyarrow", "parquet"):
        import pyarrow  # type: ignore[import-untyped, import-not-found, unused-ignore]
        import pyarrow.parquet  # type: ignore[import-untyped, import-not-found, unused-ignore]
    return pyarrow


class Prompts:
    """Makes the messages of a chat from a row."""

    def __init__(
        self,
        prompt: str | None = None,
        column: str | None = None,
        messages: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Set the template.

        Args:
            prompt: a template in which ``{name}`` stands for a column; ``{{`` is a brace.
            column: the column with the prompt.
            messages: the messages of a chat, whose contents are Jinja templates with the columns as
                variables.

        Without any of them the column is ``text``, ``prompt`` or the only one.

        Raises:
            OptionError: more than one is given, a template is malformed, or Jinja is missing.
        """
        if sum(one is not None for one in (prompt, column, messages)) > 1:
            raise OptionError("prompt=, column= and messages= exclude each other. Pass one.")
        if messages is not None and not messages:
            raise OptionError("messages= is empty. Pass at least one message.")
        given = {"prompt": prompt, "column": column, "messages": messages}
        self.identity = {name: one for name, one in given.items() if one is not None}
        """The identity of these prompts, as JSON."""
        self._column = column
        self._templates: list[tuple[Callable[[Row], str], dict[str, Any]]] = []
        if prompt is not None:
            self._templates = [(_braces(prompt), {"role": "user"})]
        elif messages is not None:
            self._templates = [(_jinja(one), dict(one)) for one in messages]

    def of(self, row: Row) -> list[dict[str, Any]]:
        """Return the messages of a row.

        Raises:
            OptionError: the row lacks a column.
            PromptError: the prompt is empty.
        """
        if not self._templates:
            return [{"role": "user", "content": _text(row, self.named(row))}]
        return [message | {"content": filled(row)} for filled, message in self._templates]

    def named(self, row: Row) -> str:
        """Return the column with the prompt.

        Raises:
            OptionError: it is ambiguous.
        """
        if self._column is None:  # then the first row decides for all
            known: list[str] = [name for name in ("text", "prompt") if name in row]
            known = known or (list(row) if len(row) == 1 else [])
            if not known:
                raise OptionError(
                    f"Which column has the prompt? The columns are {', '.join(row) or 'none'}. "
                    "Pass column=, or prompt= with a template such as 'Summarise: {text}'."
                )
            self._column = known[0]
        return self._column


def _text(row: Row, name: str) -> str:
    """Return a column as text."""
    if name not in row:
        raise OptionError(f"There is no column {name!r}. Columns: {', '.join(row) or 'none'}.")
    return _value_text(row[name], f"The column {name!r}")


def _value_text(value: Any, name: str) -> str:
    if isinstance(value, (str, bytes)):
        return value if isinstance(value, str) else str(_plain(value))
    is_nan = isinstance(value, float) and math.isnan(value)
    if value is None or is_nan or type(value).__name__ in ("NaTType", "NAType"):  # of pandas
        raise PromptError(f"{name} is empty in this row.")
    return json.dumps(value, ensure_ascii=False, default=_plain)


def _braces(template: str) -> Callable[[Row], str]:
    """Fills columns into a template; only plain names are allowed, not attributes or items."""
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError as error:
        raise OptionError(f"The template {template!r}: {error}.") from None
    for _, name, spec, conversion in parts:
        if name is not None and (not name or spec or conversion):
            raise OptionError(
                f"The template {template!r} is invalid: use the name of a column in braces, "
                "{text}, and double a literal brace."
            )
    return lambda row: "".join(
        text if name is None else text + _text(row, name) for text, name, *_ in parts
    )


def _jinja(message: Any) -> Callable[[Row], str]:
    if not isinstance(message, Mapping) or not isinstance(message.get("content"), str):
        raise OptionError(
            f"{message!r} is not a message: pass a role, and a content that is a text."
        )
    with requires(OptionError, "Templates in messages require the package jinja2", "jinja"):
        from jinja2 import StrictUndefined, TemplateError, Undefined
        from jinja2.sandbox import ImmutableSandboxedEnvironment

    def shown(value: Any) -> Any:
        return value if isinstance(value, Undefined) else _value_text(value, "A value in messages")

    jinja = ImmutableSandboxedEnvironment(undefined=StrictUndefined, finalize=shown)
    try:
        template = jinja.from_string(message["content"])
    except TemplateError as error:
        reason = str(error).rstrip(".")
        raise OptionError(f"The template {message['content']!r}: {reason}.") from None

    def filled(row: Row) -> str:
        try:
            return template.render(row)
        except PromptError:
            raise
        except Exception as error:  # a template may do anything with a row's values
            known = ", ".join(row) or "none"
            raise OptionError(
                f"The template {message['content']!r}: {error}. The columns are {known}."
            ) from None

    return filled
