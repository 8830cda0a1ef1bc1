"""The folder of results: complete or absent, exactly once, whatever happens on the way."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from structgen import JsonSchema
from structgen.errors import OptionError
from structgen.jobs import Columns, Parts, job

JOB = {"input": "x", "prompt": None}


def row(i: int) -> dict[str, Any]:
    return {"i": i, "output": f"é{i}"}


def fill(folder: Path, n: int, size: int = 3, form: str = "jsonl") -> None:
    with Parts(folder, form, JOB) as parts:
        while parts.n_done < n:
            end = min(parts.n_done + size, n)
            parts.write([row(i) for i in range(parts.n_done, end)], end)


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_what_was_written_is_there_and_goes_on(form: str, tmp_path: Path) -> None:
    fill(tmp_path, 7, form=form)
    fill(tmp_path, 11, form=form)
    with Parts(tmp_path, form, JOB) as parts:
        assert parts.n_done == 11
        assert list(parts.rows()) == [row(i) for i in range(11)]
        assert len(parts.files()) == 5


def test_rows_that_are_left_out_are_done_too(tmp_path: Path) -> None:
    with Parts(tmp_path, "jsonl", JOB) as parts:
        parts.write([row(1)], 5)
        parts.write([], 9)
    with Parts(tmp_path, "jsonl", JOB) as parts:
        assert parts.n_done == 9
        assert list(parts.rows()) == [row(1)]


def test_json_lines_need_no_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    with Parts(tmp_path, "jsonl", JOB) as parts:
        parts.write([{"a": 1}], 1)
    with pytest.raises(OptionError, match=r"pip install 'structgen\[parquet\]'"):
        Parts(tmp_path, "parquet", JOB)


def test_parquet_loses_no_column_in_silence(tmp_path: Path) -> None:
    with Parts(tmp_path, "parquet", JOB) as parts:
        parts.write([], 1)  # all rows were left out: they say nothing of columns
        parts.write([row(1)], 2)
        with pytest.raises(OptionError, match="no column 'tag' in the first part"):
            parts.write([row(2) | {"tag": "keep me"}], 3)
        assert list(parts.rows()) == [row(1)]


def test_parquet_loses_nothing_of_what_later_parts_have(tmp_path: Path) -> None:
    deep: Any = 1
    for i in range(60):
        deep = [deep] if i % 2 else {"a": deep}
    first = {"meta": {"a": {"b": 1}}, "some": [{"a": 1}], "tags": ["x"], "n": 1, "empty": None}
    first |= {"deep": deep, "mixed": "x", "big": 1 << 63, "bad": "é\ud800"}
    later = {"meta": {"a": {"c": [2]}}, "some": [{"b": 2}], "tags": [], "n": None, "empty": "y"}
    later |= {"deep": None, "mixed": 3, "big": 1 << 70, "bad": "x"}
    with Parts(tmp_path, "parquet", JOB) as parts:
        parts.write([first, first | {"mixed": {"a": 1.5}}], 2)
        parts.write([later | {"output": "o"}], 3)
    with Parts(tmp_path, "parquet", JOB) as parts:  # the types are known again
        parts.write([later], 4)
        one, two, three, four = parts.rows()
    assert (one["tags"], one["n"], three["tags"]) == (["x"], 1, [])
    assert one["bad"] == "é\\ud800"
    for made, given in ((one, first), (three, later), (four, later)):
        for name in ("meta", "some", "deep", "mixed", "big"):
            found = made[name]
            assert (None if found is None else json.loads(found)) == given[name]
    assert json.loads(two["mixed"]) == {"a": 1.5}
    assert (one["empty"], three["empty"], three["output"]) == (None, '"y"', "o")


def test_json_lines_have_no_values_that_json_has_not(tmp_path: Path) -> None:
    with Parts(tmp_path, "jsonl", JOB) as parts:
        parts.write([{"a": float("nan"), "b": [{"c": (float("inf"), 1.5, b"x")}]}], 1)
        assert list(parts.rows()) == [{"a": None, "b": [{"c": [None, 1.5, "x"]}]}]


@pytest.mark.parametrize(
    ("form", "data"),
    [("jsonl", b"x\n"), ("jsonl", b"[" * 10**5), ("jsonl", b"[1]\n"), ("parquet", b"PAR1")],
)
def test_a_part_that_is_none_but_for_its_digest_is_told(
    form: str, data: bytes, tmp_path: Path
) -> None:
    """It was a bare error of json or pyarrow, or a row that is none."""
    fill(tmp_path, 1, form=form)
    digest = hashlib.sha256(data).hexdigest()[:16]
    (tmp_path / f"part-{1:012}-{2:012}-{digest}.{form}").write_bytes(data)
    with (
        Parts(tmp_path, form, JOB) as parts,
        pytest.raises(OptionError, match=rf"{digest}.{form} (is damaged|cannot be read)"),
    ):
        list(parts.rows())


@pytest.mark.parametrize("again", [False, True])
def test_a_folder_that_is_taken_away_is_told(again: bool, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with Parts(folder, "jsonl", JOB) as parts:
        parts.write([row(0)], 1)
        shutil.rmtree(folder)
        if again:
            fill(folder, 3)
        before = list(tmp_path.glob("out/part*"))
        with pytest.raises(OptionError, match=r"job\.json was removed or replaced"):
            parts.write([row(1)], 2)
    assert list(tmp_path.glob("out/part*")) == before


def test_a_job_that_came_to_nothing_is_in_nobodys_way(tmp_path: Path) -> None:
    Parts(tmp_path, "jsonl", {"prompt": "Hi {subjec}"}).close()
    with Parts(tmp_path, "jsonl", JOB) as parts:
        parts.write([row(1)], 1)
    with pytest.raises(OptionError, match="another job: input"):
        Parts(tmp_path, "jsonl", {"prompt": "Hi"})
    said = {**JOB, "format": "jsonl"}
    schemas = [json.dumps({**said, "schema": schema}) for schema in (7, "é", "AAAA")]
    for damaged in ("[]", "7", '{"schema": 7}', "[" * 100_000, *schemas):
        (tmp_path / "job.json").write_text(damaged)
        with pytest.raises(OptionError, match=r"job\.json cannot be read"):
            Parts(tmp_path, "jsonl", JOB)


def test_a_description_that_is_a_link_is_not_written_through(tmp_path: Path) -> None:
    """A folder of somebody else's could have a file of yours replaced."""
    mine = tmp_path / "settings.json"
    mine.write_text('{"precious": true}')
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "job.json").symlink_to(mine)
    with pytest.raises(OptionError, match="a link that points outside the folder"):
        Parts(tmp_path / "out", "jsonl", JOB)
    assert mine.read_text() == '{"precious": true}'


def test_an_output_that_does_not_fit_its_column_is_a_row_with_an_error() -> None:
    rows = [{"output": output, "error": None} for output in ([1], [10**30], None)]
    made = Columns(list[int], "output").table(rows, None)
    one, two, three = made.to_pylist()
    assert (one["output"], two["output"], three["output"]) == ([1], None, None)
    assert "does not fit the column" in two["error"]["message"]
    assert three["error"] is None
    schema = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}
    table = Columns(JsonSchema(schema), "output").table([{"output": {"a": 1, "zz": 2}}], None)
    assert json.loads(table["output"][0].as_py()) == {"a": 1, "zz": 2}  # open: any names


def test_columns_of_several_inputs_come_when_they_come() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    inputs = pyarrow.schema({"a": pyarrow.int8(), "b": pyarrow.string()})
    made = Columns(None, "output", inputs)
    first = made.table([{"a": 1, "output": "x"}], None)
    both = pyarrow.concat_tables([first, made.table([{"b": "y", "output": "z"}], first.schema)])
    assert both.to_pylist() == [
        {"a": 1, "b": None, "output": "x"},
        {"a": None, "b": "y", "output": "z"},
    ]


def test_values_of_several_types_are_told_apart() -> None:
    """A text among them was no JSON: 5 and "5" were one."""
    pytest.importorskip("pyarrow")
    value = {"type": ["integer", "string"]}
    members = {"one": value, "some": {"type": "array", "items": value}, "few": {"enum": [1, "1"]}}
    schema = JsonSchema({"type": "object", "properties": members, "additionalProperties": False})
    given = [{"one": one, "some": [one, "a"], "few": one} for one in (1, "1")]
    table = Columns(schema, "output").table([{"output": one} for one in given], None)
    for row, one in zip(table.to_pylist(), given, strict=True):
        found = row["output"]
        read = {name: json.loads(found[name]) for name in ("one", "few")}
        assert {**read, "some": [json.loads(item) for item in found["some"]]} == one


@pytest.mark.parametrize("seed", range(20))
def test_a_part_that_was_damaged_is_made_again_with_all_after_it(seed: int, tmp_path: Path) -> None:
    r = random.Random(seed)
    fill(tmp_path, 20)
    names = sorted(path.name for path in tmp_path.glob("part-*"))
    which = r.randrange(len(names))
    hurt = tmp_path / names[which]
    data = bytearray(hurt.read_bytes())
    if r.random() < 0.2:
        hurt.unlink()
    elif r.random() < 0.7:
        hurt.write_bytes(data[: r.randrange(len(data))])  # a power cut
    else:
        data[r.randrange(len(data))] ^= 1
        hurt.write_bytes(data)
    (tmp_path / f".{names[which]}.aside").write_bytes(b"half")
    with Parts(tmp_path, "jsonl", JOB) as parts:
        assert parts.n_done == 3 * which
        assert set(parts.damaged) >= set(names[which + 1 :])
        assert list(parts.rows()) == [row(i) for i in range(3 * which)]
    fill(tmp_path, 20)
    with Parts(tmp_path, "jsonl", JOB) as parts:
        assert list(parts.rows()) == [row(i) for i in range(20)]
    assert not list(tmp_path.glob("*.aside"))


def test_another_job_is_refused_with_what_differs(tmp_path: Path) -> None:
    fill(tmp_path, 3)
    with pytest.raises(OptionError, match='prompt is "new" but was null'):
        Parts(tmp_path, "jsonl", {**JOB, "prompt": "new"})
    with pytest.raises(OptionError, match='format is "parquet" but was "jsonl"'):
        Parts(tmp_path, "parquet", JOB)
    fill(tmp_path, 5)  # the folder is free again
    many = [{"file": f"{i}.csv"} for i in range(40)]
    with Parts(tmp_path / "many", "jsonl", {"input": many}) as parts:
        parts.write([row(0)], 1)
    with pytest.raises(OptionError, match=r'is ….*"35\.csv.* but was ….*"30\.csv'):
        Parts(tmp_path / "many", "jsonl", {"input": [*many[:30], *many[35:]]})


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(OptionError, match="contains something else"):
        Parts(tmp_path, "jsonl", JOB)
    assert (tmp_path / "mine.txt").read_text() == "x"
    (tmp_path / "mine.txt").rename(tmp_path / "job.json")
    with pytest.raises(OptionError, match="cannot be read"):
        Parts(tmp_path, "jsonl", JOB)
    with pytest.raises(OptionError, match="cannot be written"):
        Parts(tmp_path / "job.json" / "below", "jsonl", JOB)
    with pytest.raises(OptionError, match="must be one of jsonl, parquet"):
        Parts(tmp_path / "new", "csv", JOB)


def test_one_process_writes_at_a_time(tmp_path: Path) -> None:
    with Parts(tmp_path, "jsonl", JOB):
        code = (
            "import sys; from structgen.jobs import Parts; "
            f"Parts({str(tmp_path)!r}, 'jsonl', {JOB!r})"
        )
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "Another process is writing" in ended.stderr


def test_a_full_disk_changes_nothing_and_is_told(tmp_path: Path, monkeypatch) -> None:
    fill(tmp_path, 3)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Parts(tmp_path, "jsonl", JOB) as parts:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            with pytest.raises(OSError, match="No space left"):
                parts.write([row(3)], 4)
        assert parts.n_done == 3
        assert not list(tmp_path.glob(".part*"))
        parts.write([row(3)], 4)
        assert list(parts.rows()) == [row(i) for i in range(4)]


def test_columns_that_change_are_told(tmp_path: Path) -> None:
    with Parts(tmp_path, "parquet", JOB) as parts:
        parts.write([{"a": 1}], 1)
        with pytest.raises(OptionError, match="do not fit the columns"):
            parts.write([{"a": "x"}], 2)
    with Parts(tmp_path, "parquet", JOB) as parts:
        parts.write([{"a": None}], 2)
        assert [one["a"] for one in parts.rows()] == [1, None]


JOB_IN_A_PROCESS = """
import sys, time
from structgen.jobs import Job, Parts, Source, job
job._ROWS_PER_PART = 7

class Ask:
    size = 1
    def __call__(self, rows):
        time.sleep(0.002)
        return [{**row, "output": row["i"] * 2, "error": None} for row in rows]

source = Source.of([{"i": i} for i in range(400)])
with Parts(sys.argv[1], "jsonl", source.identity) as parts:
    print("ready", flush=True)
    with Job(source, Ask(), window=4, first=parts.n_done) as made:
        made.write(parts)
"""


def test_a_job_that_is_killed_again_and_again_gives_each_row_once(tmp_path: Path) -> None:
    r, reported = random.Random(1), 0
    script = tmp_path / "job.py"
    script.write_text(JOB_IN_A_PROCESS)
    out = tmp_path / "out"

    def begun() -> subprocess.Popen[str]:
        process = subprocess.Popen([sys.executable, script, out], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    for _ in range(10):
        process = begun()
        time.sleep(r.random() * 0.1)
        process.send_signal(signal.SIGKILL)
        process.communicate()  # and its pipe is closed
        with Parts(out, "jsonl", {"rows": 400, **_identity()}) as parts:
            assert parts.n_done >= reported
            assert not parts.damaged
            reported = parts.n_done
    last = begun()
    last.communicate()
    assert last.returncode == 0
    with Parts(out, "jsonl", {"rows": 400, **_identity()}) as parts:
        assert list(parts.rows()) == [{"i": i, "output": 2 * i, "error": None} for i in range(400)]


def _identity() -> Any:
    from structgen.jobs import Source

    return Source.of([{"i": i} for i in range(400)]).identity


def test_a_job_tells_of_a_full_disk_and_keeps_what_is_done(tmp_path: Path, monkeypatch) -> None:
    from structgen.jobs import Job, Source

    class Ask:
        size = 1

        def __call__(self, rows: Any) -> list[Any]:
            return [{**row, "output": 1, "error": None} for row in rows]

    monkeypatch.setattr(job, "_ROWS_PER_PART", 5)
    put, left = job.Parts.write, iter([True, True, False])

    def write(self: Parts, rows: Any, end: int) -> Path:
        if not next(left, False):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return put(self, rows, end)

    source = Source.of([{"i": i} for i in range(30)])
    monkeypatch.setattr(job.Parts, "write", write)
    with (
        Parts(tmp_path, "jsonl", JOB) as parts,
        Job(source, Ask(), window=2) as made,
        pytest.raises(OptionError, match=r"No space left on device.*10 rows are done"),
    ):
        made.write(parts)
    monkeypatch.undo()
    with Parts(tmp_path, "jsonl", JOB) as parts:
        assert parts.n_done == 10
        with Job(source, Ask(), window=2, first=10) as made:
            made.write(parts)
        assert [json.dumps(one["i"]) for one in parts.rows()] == [str(i) for i in range(30)]
