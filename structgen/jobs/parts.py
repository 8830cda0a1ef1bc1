"""The folder of a job's results: parts that are complete or absent, and a description of the job.

A part is a file of consecutive rows. It is written aside, synced, and renamed to
``part-FIRST-END-DIGEST.jsonl``: its rows, and the beginning of its content's SHA-256. Whatever ends
the process, a part with such a name is complete, each row is in at most one part, and the names
tell what remains to do. A file whose content does not match its digest was damaged from outside;
it and all later parts are made again.

``job.json`` describes the job. A different job is refused, with the differences.
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
_LONGEST = 1 << 40  # of a row: it is what was written
_NAME = re.compile(r"part-(\d{12})-(\d{12})-([0-9a-f]{16})\.(jsonl|parquet)")


class Parts(AbstractContextManager["Parts"]):
    """The parts of one job in a folder. Used by one thread, and by one process at a time.

    Attributes:
        folder: where they are.
        n_done: how many of the first rows are in parts.
        damaged: names of files that were no parts of this job any more, and were removed.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        form: str,
        job: Mapping[str, Any],
        table: Callable[[Sequence[Row], Any], Any] | None = None,
    ) -> None:
        """Open a folder, or make it.

        Args:
            folder: new, empty, or of the same job.
            form: ``"jsonl"`` or ``"parquet"``.
            job: what tells the job from others, as JSON.
            table: of `Columns`, for Parquet; None: of texts in a column ``output``.

        Raises:
            OptionError: another job's results are there, another process writes them, it holds
                something else, or it cannot be written.
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
        """How many of the first rows are in parts."""
        return self._ends[-1] if self._ends else 0

    def write(self, rows: Sequence[Row], end: int) -> Path:
        """Write the rows after those that are done, as one part. When this returns, they stay.

        Args:
            rows: what is written; fewer than `end` says where rows are left out.
            end: how many rows of the input are done with them.

        Raises:
            OSError: the disk is full, say: nothing has changed.
            OptionError: the rows do not have the columns of the first part, or the folder is not
                this job's any more.
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
        """Yield the rows that are done, in order.

        Raises:
            OptionError: a part is damaged, though its digest is right.
        """
        for path in self.files():
            for row in rows_in(path, _LONGEST):
                if isinstance(row, BadRow):
                    raise OptionError(f"{path} is damaged: {row.error} Delete it and run again.")
                yield row

    def lines(self) -> Iterator[bytes]:
        """Yield the rows that are done, in order, as the JSON lines that they are written as."""
        for path in self.files():
            with path.open("rb") as file:
                yield from file

    def close(self) -> None:
        """Let other processes write. A second call does nothing."""
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
            # Not a link: what it leads to would be written over.
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
        if differ and not self.files():  # it has come to nothing, and there is nothing to lose
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
        """Return where the consecutive parts from the first row end; remove the rest."""
        ends: list[int] = []
        for path in sorted(self.folder.iterdir()):
            if path.name.startswith((".part-", ".job.json.")):  # was being written
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
    """Write a file that is whole once it has its name, also after a power cut."""
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
    """Return a value as JSON; of a long one, where it begins to differ from another."""
    text, others = (json.dumps(one, ensure_ascii=False) for one in (value, other))
    pairs = enumerate(zip(text, others, strict=False))
    first = max(0, min(next((i for i, (a, b) in pairs if a != b), 0) - 30, len(text) - 100))
    return "…" * (first > 0) + text[first : first + 100] + "…" * (len(text) > first + 100)
