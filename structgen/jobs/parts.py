"""The folder of a job's results: parts that are complete or absent, and a description of the job.

A part is a file of consecutive rows. It is written aside, synced, and renamed to
``part-FIRST-END-DIGEST.jsonl``, after its rows and the beginning of its content's SHA-256. Whatever
ends the process, a part with such a name is complete, each row is in at most one part, and the
names tell what remains to be done. A file that does not match its digest was damaged from outside;
it and all later parts are made again.

``job.json`` describes the job. Another job is refused with the differences.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from structgen.errors import OptionError
from structgen.storage import written_whole
from structgen.storage.user_folder import document, inside

from .columns import Columns
from .rows import BadRow, Row, as_json, pyarrow, rows_in, stamp

FORMATS = ("jsonl", "parquet")
_LONGEST = 1 << 40  # of a row: it is our own JSON
_NAME = re.compile(r"part-(\d{12})-(\d{12})-([0-9a-f]{16})\.(jsonl|parquet)")


class Parts(AbstractContextManager["Parts"]):
    """The parts of one job in a folder. Used by one thread, and by one process at a time.

    Attributes:
        folder: the folder of the parts.
        n_done: number of first rows that are in parts.
        damaged: names of removed files that were not valid parts of this job.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        form: str,
        job: Mapping[str, Any],
        table: Callable[[Sequence[Row], Any], Any] | None = None,
    ) -> None:
        """Open or create a folder.

        Args:
            folder: a new or empty folder, or one of the same job.
            form: ``"jsonl"`` or ``"parquet"``.
            job: the identity of the job, as JSON.
            table: `Columns.table`, for Parquet; None: texts in a column ``output``.

        Raises:
            OptionError: the folder has another job's results or other files, another process is
                writing to it, or it cannot be written.
        """
        if form not in FORMATS:
            raise OptionError(f"format={form!r} must be one of {', '.join(FORMATS)}.")
        if form == "parquet":
            pyarrow()
        self.folder = Path(folder).expanduser()
        self._about = self.folder / "job.json"
        self._form = form
        self._table = table
        self._schema: Any = None
        self._job: dict[str, Any] = json.loads(json.dumps({**job, "format": form}))
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(self.folder / ".lock")
            self._lock.acquire(timeout=0)
            try:
                self._check_job()
                self.damaged: list[str] = []
                self._ends = self._found()
            except BaseException:
                self.close()
                raise
        except Timeout:
            raise OptionError(f"Another process is writing to {self.folder}.") from None
        except OSError as error:
            raise OptionError(f"{self.folder} cannot be written: {error.strerror}.") from None

    @property
    def n_done(self) -> int:
        """The number of first rows that are in parts."""
        return self._ends[-1] if self._ends else 0

    def write(self, rows: Sequence[Row], end: int) -> Path:
        """Write the next rows as one part. When this returns, they are safe.

        Args:
            rows: the rows; fewer than `end` says if rows were left out.
            end: number of rows of the input that are done with them.

        Raises:
            OSError: for example the disk is full; nothing has changed.
            OptionError: the rows do not have the first part's columns, or the folder no longer
                belongs to this job.
        """
        if stamp(self._about) != self._stamp:
            raise OptionError(
                f"{self._about} was removed or replaced while the job ran, so structgen stopped "
                "writing to the folder."
            )
        data = (
            self._parquet(rows)
            if self._form == "parquet"
            else b"".join(as_json(row) + b"\n" for row in rows)
        )
        digest = hashlib.sha256(data).hexdigest()[:16]
        path = self.folder / f"part-{self.n_done:012}-{end:012}-{digest}.{self._form}"
        _put(path, data)
        self._ends.append(end)
        return path

    def files(self) -> list[Path]:
        """Return the parts, in order."""
        return sorted(path for path in self.folder.iterdir() if _NAME.fullmatch(path.name))

    def rows(self) -> Iterator[Row]:
        """Yield the finished rows in order.

        Raises:
            OptionError: a part is damaged although its digest is right.
        """
        for path in self.files():
            for row in rows_in(path, _LONGEST):
                if isinstance(row, BadRow):
                    raise OptionError(f"{path} is damaged: {row.error} Delete it and run again.")
                yield row

    def lines(self) -> Iterator[bytes]:
        """Yield the finished rows in order as JSON lines."""
        for path in self.files():
            with path.open("rb") as file:
                yield from file

    def close(self) -> None:
        """Release the folder for other processes. Calling it again does nothing."""
        self._lock.release()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _check_job(self) -> None:
        path = self._about
        if not path.exists():
            others = [one.name for one in self.folder.iterdir() if not one.name.startswith(".")]
            if others:
                raise OptionError(
                    f"{self.folder} contains something else ({', '.join(sorted(others)[:3])}). "
                    "Choose a new folder for the results."
                )
            self._write_job()
            return
        try:
            # Not a link, whose target would be overwritten.
            known = document(inside(self.folder, path.name))
            if (schema := known.pop("schema", None)) is not None:
                arrow = pyarrow()
                schema = arrow.ipc.read_schema(arrow.py_buffer(base64.b64decode(schema)))
        except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
            raise OptionError(
                f"{path} cannot be read ({error}), so the job that wrote the parts is unknown. "
                "Choose a new folder for the results."
            ) from None
        differ = [
            f"{name} is {_shown(now, was)} but was {_shown(was, now)}"
            for name in {**known, **self._job}
            if (now := self._job.get(name)) != (was := known.get(name))
        ]
        if differ and not self.files():  # nothing was written, so nothing is lost
            self._write_job()
            return
        if differ:
            raise OptionError(
                f"{self.folder} contains the results of another job: {'; '.join(differ)}. Choose "
                "a new folder, or use the same options again to continue."
            )
        self._stamp, self._schema = stamp(path), schema

    def _write_job(self) -> None:
        job = dict(self._job)
        if self._schema is not None:
            job["schema"] = base64.b64encode(self._schema.serialize()).decode()
        _put(self._about, json.dumps(job, ensure_ascii=False, indent=1).encode())
        self._stamp = stamp(self._about)

    def _found(self) -> list[int]:
        """Return the ends of the consecutive parts from the first row; remove the rest."""
        ends: list[int] = []
        for path in sorted(self.folder.iterdir()):
            if path.name.startswith((".part-", ".job.json.")):  # left from writing
                path.unlink()
            elif (named := _NAME.fullmatch(path.name)) is not None:
                first, end, digest = int(named[1]), int(named[2]), named[3]
                is_next = first == (ends[-1] if ends else 0)
                if is_next and hashlib.sha256(path.read_bytes()).hexdigest()[:16] == digest:
                    ends.append(end)
                else:
                    self.damaged.append(path.name)
                    path.unlink()
        return ends

    def _parquet(self, rows: Sequence[Row]) -> bytes:
        arrow = pyarrow()
        try:
            table = (self._table or Columns(None, "output").table)(rows, self._schema)
            if self._schema is None and rows:
                self._schema = table.schema
                self._write_job()
        except (arrow.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise OptionError(
                f"The rows after {self.n_done:,} do not fit the columns of those before: {error}. "
                "JSON lines (format='jsonl') accept any."
            ) from None
        whole = io.BytesIO()
        arrow.parquet.write_table(table, whole)
        return whole.getvalue()


def _put(path: Path, data: bytes) -> None:
    """Write a file that is complete as soon as it has its name, even after a power cut."""
    with written_whole(path) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if hasattr(os, "O_DIRECTORY"):
        folder = os.open(path.parent, os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _shown(value: Any, other: Any) -> str:
    """Return a value as JSON; of a long one, the part where it begins to differ from another."""
    text, others = (json.dumps(one, ensure_ascii=False) for one in (value, other))
    pairs = enumerate(zip(text, others, strict=False))
    first = max(0, min(next((i for i, (a, b) in pairs if a != b), 0) - 30, len(text) - 100))
    return "…" * (first > 0) + text[first : first + 100] + "…" * (len(text) > first + 100)
