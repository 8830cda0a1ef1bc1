"""Jobs on a real model: results in order, errors of rows, tables, and the command."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterator, Sequence
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import pyarrow
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from pydantic import BaseModel, Field, field_validator

import structgen
from structgen import Regex, Runner
from structgen.cli.commands import cli
from structgen.errors import (
    ModelError,
    OptionError,
    PromptError,
    RequestError,
    StructgenError,
    WorkerDied,
)
from structgen.jobs import Job, Parts, Row, Source, batch, job, rows, shown
from structgen.jobs.job import attempted

Label = Literal["good", "bad"]


class Ask:
    """Answers at once, or as it is told; says how many were under way."""

    size = 1

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.most = self.now = self.asked = 0
        self._lock = threading.Lock()

    def __call__(self, rows: Sequence[Row]) -> list[Row]:
        with self._lock:
            self.now += 1
            self.asked += 1
            self.most = max(self.most, self.now)
        time.sleep(self.seconds * (1 + rows[0]["i"] % 3) if rows else 0)
        with self._lock:
            self.now -= 1
        return [
            {**row, "output": row["i"], "error": {"message": "no"} if row["i"] % 5 == 4 else None}
            for row in rows
        ]


def rows_to(n: int) -> list[Row]:
    return [{"i": i} for i in range(n)]


def test_results_come_in_order_and_rows_are_read_as_they_are_needed() -> None:
    read = itertools.count()
    ask = Ask(0.001)
    source = Source(lambda: ({"i": next(read)} for _ in range(500)))
    with Job(source, ask, window=3) as made:
        first = [next(made)["output"] for _ in range(50)]
        assert first == list(range(50))
        assert next(read) < 50 + 4 * 3 + 5
        assert 1 < ask.most <= 3
    assert ask.asked < 100  # the others were given up
    with pytest.raises(StopIteration):
        next(made)


def test_what_was_read_before_reading_fails_is_asked() -> None:
    def rows() -> Iterator[Row]:
        yield from rows_to(3)
        raise ValueError("the end of the tape")

    for size in (1, 2, 9):
        ask = Ask(0.001)
        ask.size = size
        made = Job(Source.of(rows()), ask, window=4)
        assert [next(made)["i"] for _ in range(3)] == [0, 1, 2]
        with pytest.raises(ValueError, match="tape"):
            next(made)


def test_where_a_job_goes_on_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for given in (rows_to(8), (row for row in rows_to(8))):
        with Job(Source.of(given), Ask(), window=1, first=6) as made, shown(made) as progress:
            for _ in made:
                progress(made)
    said = capsys.readouterr().err
    assert "Continuing after row 6 of 8.\n8 of 8 rows" in said
    assert "Continuing after row 6.\n8 rows" in said
    with (
        Job(Source.of(row for row in rows_to(1)), Ask(), window=1) as made,
        shown(made) as progress,
    ):
        for _ in made:
            progress(made)
    assert capsys.readouterr().err.startswith("1 row, ")


class Asked(Ask):
    """Answers, or fails as the row says."""

    def __call__(self, rows: Sequence[Row]) -> list[Row]:
        """The rows with their errors."""
        said = [row.get("error") for row in rows]
        return [
            row | {"output": 1, "error": None if type is None else {"type": type, "message": "no"}}
            for row, type in zip(rows, said, strict=True)
        ]


def test_what_no_row_has_ends_the_job_and_what_one_lacks_does_not() -> None:
    def told(*errors: str | None, first: int = 0) -> list[bool]:
        source = Source.of([{"error": error} for error in errors])
        made = Job(source, Asked(), window=3, first=first)
        return [row["error"] is None for row in made]

    assert told(None, "OptionError") == [True, False]
    assert told(None, "OptionError", "ParseError", first=1) == [False, False]
    for errors in (["OptionError", None], ["ParseError", "OptionError", None]):
        with pytest.raises(OptionError, match="no"):
            told(*errors)


def test_parts_and_what_waits_are_bounded_by_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "_BYTES_PER_PART", 1000)
    read = itertools.count()
    source = Source(lambda: ({"i": next(read), "text": "x" * 400} for _ in range(20)))
    ask = Ask(0.01)
    ask.size = 9
    with Job(source, ask, window=8) as made:
        next(made)
        assert next(read) <= 7
    source = Source.of([{"i": i, "text": "x" * 400} for i in range(20)])
    with Parts(tmp_path, "jsonl", {}) as parts, Job(source, Ask(), window=2) as made:
        made.write(parts)
        assert len(parts.files()) == 7
        assert [row["i"] for row in parts.rows()] == list(range(20))
    assert rows.n_bytes_of({"v": [0.1] * 100, "t": "x" * 100}) == 900 + 102


def test_the_first_parts_are_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that was killed more often than once a minute made no progress."""
    now = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: next(now))  # a look at it takes a second
    monkeypatch.setattr(job, "time", clock)
    with (
        Parts(tmp_path, "jsonl", {}) as parts,
        Job(Source.of([{"i": i} for i in range(300)]), Ask(), window=1) as made,
    ):
        made.write(parts)
        ends = [int(path.name.split("-")[2]) for path in parts.files()]
    sizes = [end - start for start, end in itertools.pairwise([0, *ends])]
    assert sizes[0] <= 11
    assert sizes[:3] == sorted(sizes[:3])
    assert max(sizes) > 50


def test_an_input_that_changes_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "_ROWS_PER_PART", 4)
    path = tmp_path / "in.jsonl"
    path.write_text("".join(f'{{"i": {i}}}\n' for i in range(20)))

    def progress(made: Job) -> None:
        if made.n_rows == 6:
            path.write_text('{"i": 1}\n' * 20)

    with (
        Parts(tmp_path / "out", "jsonl", {}) as parts,
        Job(Source.of(path), Ask(), window=1) as made,
        pytest.raises(OptionError, match="has changed since the job began"),
    ):
        made.write(parts, progress)
    assert [row["i"] for row in lines(tmp_path / "out")] == [0, 1, 2, 3]


def test_what_becomes_of_rows_that_fail() -> None:
    assert len(list(Job(Source.of(rows_to(10)), Ask(), window=2))) == 10
    made = Job(Source.of(rows_to(10)), Ask(), window=2, on_error="skip")
    assert [row["i"] for row in made] == [0, 1, 2, 3, 5, 6, 7, 8]
    assert (made.n_rows, made.n_errors) == (10, 2)
    made = Job(Source.of(rows_to(10)), Ask(), window=2, on_error="fail")
    with pytest.raises(StructgenError, match="Row 5: no"):
        list(made)
    with pytest.raises(OptionError, match="must be one of row, skip, fail"):
        Job(Source.of([]), Ask(), window=1, on_error="nope")


def test_which_errors_are_a_rows() -> None:
    def raising(*errors: StructgenError) -> Any:
        left = iter(errors)

        def ask() -> Row:
            for error in left:
                raise error
            return {"output": 1}

        return ask

    assert attempted(raising(PromptError("long")), "output")["error"]["type"] == "PromptError"
    assert attempted(raising(WorkerDied("x")), "output")["output"] == 1
    assert attempted(raising(WorkerDied("x"), WorkerDied("x")), "output")["error"] is not None
    of_row = RequestError("bad", param="messages[0].content")
    assert attempted(raising(of_row), "output")["error"]["message"] == "bad"
    for error in (RequestError("bad", param="top_p"), OptionError("x"), ModelError("x")):
        with pytest.raises(type(error)):
            attempted(raising(error), "output")


@pytest.fixture(scope="module")
def runner(model: structgen.TextModel) -> Any:
    with Runner({"small": str(model.folder)}) as made:
        yield made


TEXTS = [f"The soup was {how}." for how in ("fine", "cold", "great", "bad", "warm", "salty")]


def test_typed_rows(runner: Runner) -> None:
    made = list(batch(TEXTS, Label, prompt="Good or bad? {text}", runner=runner))
    assert [row["text"] for row in made] == TEXTS
    assert {row["output"] for row in made} <= {"good", "bad"}
    assert all(row["error"] is None and row["finish_reason"] == "stop" for row in made)
    assert all(row["prompt_tokens"] > 10 for row in made)


class Review(BaseModel):
    label: Label
    stars: int = Field(ge=1, le=3)

    @field_validator("stars")
    @classmethod
    def _few(cls, stars: int) -> int:
        if stars == 2:
            raise ValueError("never two")
        return stars


def test_values_are_of_the_type_and_rows_fail_alone(runner: Runner) -> None:
    texts = [*TEXTS, "word " * 9000, None]
    rows = [{"t": text} for text in texts]
    options = {"max_new_tokens": 40, "seed": 1, "temperature": 1.0}
    made = list(batch(rows, Review, column="t", runner=runner, **options))
    for row in made[: len(TEXTS)]:
        if row["error"] is None:
            assert isinstance(row["output"], Review)
        else:
            assert "never two" in row["error"]["message"]
            assert row["output"] is None
    assert made[-2]["error"]["type"] == "PromptError"
    assert "'t' is empty" in made[-1]["error"]["message"]
    with pytest.raises(OptionError, match="no column 'q'"):
        list(batch(rows, Review, column="q", runner=runner))
    first = list(batch([{"t": None}, *rows[:1]], Label, column="t", runner=runner))
    assert [row["error"] is None for row in first] == [False, True]
    assert first[0].keys() == first[1].keys()
    with pytest.raises(OptionError, match=r"is too small: .* needs about \d"):
        list(batch(rows[:1], Review, column="t", runner=runner, max_new_tokens=3))


def test_tables_give_tables(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = pyarrow.table({"text": TEXTS[:2], "id": [1, 2]})
    seen: list[int] = []
    made = batch(
        table,
        Regex("[ab]"),
        runner=runner,
        result="letter",
        progress=lambda job: seen.append(job.n_rows),
    )
    assert seen == [1, 2]
    assert batch(table, Regex("[ab]"), runner=runner, result="letter") == made
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(job, "has_bars", lambda: True)  # a terminal, or a notebook with widgets
    assert batch(table, Regex("[ab]"), runner=runner, result="letter") == made
    assert "2/2" in capsys.readouterr().err
    assert made.column_names[:3] == ["text", "id", "letter"]
    assert set(made["letter"].to_pylist()) <= {"a", "b"}
    with pytest.raises(OptionError, match="has a column 'id'"):
        batch(table, Regex("[ab]"), runner=runner, result="id")


class Frame:
    """A table as Polars has it, which takes the types of the first rows unless it is told."""

    def __init__(
        self,
        rows: list[Row],
        *,
        schema: Any = None,
        strict: bool = True,
        infer_schema_length: int | None = 100,
    ) -> None:
        outputs = [row.get("output") for row in rows]
        kinds = {*map(type, outputs)}
        assert {*map(type, outputs[:infer_schema_length])} == kinds
        if strict and any(isinstance(one, dict) for one in outputs):
            assert len({type(item) for one in outputs for item in one["a"]}) == 1
        if list in kinds:  # what is none becomes null there
            rows = [row | {"output": None} if row["output"] == 1 else row for row in rows]
        self.rows = rows

    def to_dicts(self) -> list[Row]:
        return self.rows

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return SimpleNamespace(to_list=lambda: [row[key] for row in self.rows])
        return Frame([self.rows[place] for place in key])

    def hstack(self, other: Frame) -> Frame:
        rows = [a | b for a, b in zip(self.rows, other.rows, strict=True)]
        return Frame(rows, strict=False, infer_schema_length=None)


class Numbers(BaseModel):
    a: list[float]


@pytest.mark.parametrize("kind", [Frame, pyarrow.Table.from_pylist])
def test_tables_hold_outputs_of_any_type_in_any_row(kind: Any) -> None:
    def chat(fields: Any, model: str) -> Any:
        message = SimpleNamespace(content=fields["messages"][0]["content"])
        choice = SimpleNamespace(
            finish_reason="stop", confidence=None, result=None, value=0, message=message
        )
        usage = SimpleNamespace(prompt_tokens=1, completion_tokens=1)
        return SimpleNamespace(choices=[choice], usage=usage)

    def outputs(*texts: str) -> list[Any]:
        table = kind([{"text": text} for text in texts])
        made = batch(table, list[int] | float | Numbers, runner=cast("Any", fake), model="small")
        rows = made.rows if kind is Frame else made.to_pylist()
        assert [row["text"] for row in rows] == [*texts]
        return [row["output"] for row in rows]

    fake = SimpleNamespace(chat=chat)
    assert outputs(*["1"] * 120, "1.5")[-2:] == [1, 1.5]
    # No column has both.
    assert outputs("1", "[2]", "1.5") == ["1", "[2]", "1.5"]
    assert outputs('{"a":[1,2.5]}') == [{"a": [1, 2.5]}]


class Kind(Enum):
    A = "a"
    B = "b"


class Inner(BaseModel):
    kinds: list[Kind] = Field(min_length=1, max_length=2)
    when: Literal["2020-01-02"] | None


class Outer(BaseModel):
    inner: Inner
    n: int = Field(ge=0, le=9)
    price: Decimal = Field(ge=0, le=9, max_digits=20, decimal_places=2)
    any: Literal[1] | Decimal
    ok: bool


def test_parquet_has_the_types_of_the_output(runner: Runner, tmp_path: Path) -> None:
    source = tmp_path / "in.parquet"
    pyarrow.parquet.write_table(
        pyarrow.table({"text": TEXTS, "id": pyarrow.array(range(6), pyarrow.int16())}), source
    )
    out = tmp_path / "out"
    shared = {"runner": runner, "output": out, "format": "parquet", "column": "text"}
    silent: Any = lambda job: None  # noqa: E731
    assert batch(source, Outer, progress=silent, max_new_tokens=60, **shared) == out
    table = pyarrow.parquet.read_table(next(out.glob("part-*")))
    fields = {field.name: field.type for field in table.schema}
    assert fields["id"] == pyarrow.int16()
    output = fields["output"]
    inner = output.field("inner").type
    assert output.field("n").type == pyarrow.int64()
    assert output.field("price").type == pyarrow.decimal128(20, 2)
    assert output.field("any").type == pyarrow.string()
    assert output.field("ok").type == pyarrow.bool_()
    assert pyarrow.types.is_dictionary(inner.field("kinds").type.value_type)
    assert pyarrow.types.is_dictionary(inner.field("when").type)
    for row in table.to_pylist():
        made = row["output"]
        Outer.model_validate({**made, "any": json.loads(made["any"])})


def test_options_that_do_not_go_are_told(runner: Runner, tmp_path: Path) -> None:
    for options, said in (
        ({"nope": 1}, "Pass the output type as the second argument. Options are: prompt, "),
        ({"outptu": "x"}, "Did you mean 'output'?"),
        ({"max_new_token": 9}, "Did you mean 'max_new_tokens'?"),
        ({"n": 2}, r"Unknown option 'n'\. Pass the"),
        ({"tools": []}, "Unknown option 'tools'"),  # nothing was written of the calls
        ({"session_id": "x"}, "Unknown option 'session_id'"),  # rows were one conversation
        ({"max_tokens": 9, "max_new_tokens": 9}, "given twice"),
        ({"workers": 2}, "cannot be combined with runner="),
        ({"embed": True, "batch_size": 2}, "cannot be combined with runner="),
        ({"messages": []}, "messages= is empty"),
        ({"embed": True, "questions": {}}, "exclude each other"),
        ({"temperature": "hot"}, "temperature"),
        ({"output": tmp_path / "x", "format": "xml"}, "must be one of jsonl, parquet"),
    ):
        with pytest.raises(OptionError, match=said):
            list(batch(TEXTS, runner=runner, progress=lambda job: None, **options))
    with pytest.raises(OptionError, match=r"in runner=structgen\.Runner\("):
        batch(TEXTS, model=cast("Any", runner))
    with pytest.raises(OptionError, match="workers=0 is out of range"):
        batch(TEXTS, workers=0)
    with pytest.raises(OptionError, match="cannot be combined with embed=True"):
        batch(TEXTS, embed=True, workers=2)
    questions = {"q": {"type": "choice", "instructions": "Which?", "choices": ["a", "b"]}}
    asks: Any = {"questions": questions, "model": "all-minilm-l6-v2"}
    with pytest.raises(OptionError, match="are not for all-minilm-l6-v2, an embedder"):
        list(batch(TEXTS, **asks, workers=2, progress=lambda job: None))
    (row,) = batch(TEXTS[:1], **asks, progress=lambda job: None)
    assert row["output"]["q"]["choice"] in ("a", "b")


def test_both_ways_to_run_a_model_are_tried_where_there_are_many_rows(
    model: structgen.TextModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job.models.health, "cores", lambda: 2)
    source, folder, seconds = Source.of(rows_to(2_000)), str(model.folder), {1: 2.0, 2: 1.0}
    asked: list[list[int]] = []

    def trial(processes: int, rows: list[Row]) -> float:
        asked.append([row["i"] for row in rows])
        return seconds[processes]

    assert job._processes(source, 500, folder, trial) == 2
    assert asked == [list(range(500, 532))] * 2
    seconds[1] = 0.5
    assert job._processes(source, 500, folder, trial) == 1
    asked.clear()
    assert job._processes(source, 1_500, folder, trial) == 2  # too few are left
    assert job._processes(source, 1_990, folder, trial) == 1
    monkeypatch.setattr(job.models.health, "free_memory", lambda: 1)
    assert job._processes(source, 0, folder, trial) == 1
    assert not asked


def lines(folder: Path) -> list[Row]:
    return [
        json.loads(line)
        for part in sorted(folder.glob("part-*"))
        for line in part.read_text(encoding="utf-8").splitlines()
    ]


def test_the_command(tmp_path: Path, model: structgen.TextModel) -> None:
    source = tmp_path / "in.csv"
    source.write_text("id,text\n" + "".join(f"{i},{t}\n" for i, t in enumerate(TEXTS)))
    command = ["batch", str(source), "-o", str(tmp_path / "out"), "--model", str(model.folder)]
    asked = [*command, "--choice", "good", "--choice", "bad", "--prompt", "Good or bad? {text}"]
    ended = CliRunner().invoke(cli, asked, standalone_mode=False)
    assert ended.exception is None, ended.output
    made = lines(tmp_path / "out")
    assert [row["id"] for row in made] == list("012345")
    assert {row["output"] for row in made} <= {"good", "bad"}
    parts = sorted(tmp_path.glob("out/part-*"))
    CliRunner().invoke(cli, asked, standalone_mode=False)
    assert sorted(tmp_path.glob("out/part-*")) == parts
    again = CliRunner().invoke(cli, [*asked, "--on-error", "skip"], standalone_mode=False)
    assert again.exception is None, again.output
    assert "Continuing after row 6.\nAll rows were already done." in again.output
    (tmp_path / "bad.csv").write_text("id,text\n1\n2\n")
    bad = ["batch", str(tmp_path / "bad.csv"), "--model", str(model.folder), "-o"]
    for how in ("row", "row", "skip"):
        ask = [*bad, str(tmp_path / how), "--on-error", how]
        failed = CliRunner().invoke(cli, ask, standalone_mode=False)
        why = "on_error='skip' omitted them" if how == "skip" else f"see {tmp_path / how}"
        assert "All 2 rows have failed, " in str(failed.exception)
        assert why in str(failed.exception)
        assert failed.output.endswith(("2 errors\n", "already done.\n"))
    both = [*command, "--column", "a", "--prompt", "{a}"]
    told = CliRunner().invoke(cli, both, standalone_mode=False)
    assert str(told.exception).startswith("--prompt, --column and --messages exclude each other")
    wrong = CliRunner().invoke(cli, ["batch", "ticketz", "-o", str(tmp_path / "w")])
    assert "ticketz does not exist" in str(wrong.exception) + wrong.output
    folder = CliRunner().invoke(cli, ["batch", str(tmp_path), "-o", str(tmp_path / "w")])
    assert f"{tmp_path} is a folder. Pass its files" in str(folder.exception) + folder.output
    other = CliRunner().invoke(cli, [*asked, "--seed", "2"], standalone_mode=False)
    assert "another job: options" in str(other.exception)


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_the_summary_counts_decisions_without_signal(
    runner: Runner, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    asked = {
        "good": {"type": "predicate", "instructions": "Is it good?"},
        "kind": {"type": "choice", "instructions": "Which?", "options": ["food", "film"]},
    }
    out = tmp_path / "d"
    for _ in ("anew", "already done"):
        batch(["N/A"] * 3, questions=asked, runner=runner, output=out, format=form)
        assert "6 of 6 decisions carry no signal." in capsys.readouterr().err
    batch(["N/A"], questions=asked, runner=runner, output=tmp_path / "n", debias="none")
    assert "signal" not in capsys.readouterr().err


def test_decisions_and_vectors(runner: Runner, tmp_path: Path) -> None:
    questions = {"good": {"type": "predicate", "instructions": "Is it good?"}}
    silent: Any = lambda job: None  # noqa: E731
    out = batch(
        TEXTS[:2], questions=questions, runner=runner, output=tmp_path / "d", progress=silent
    )
    assert all(0 <= row["output"]["good"]["probability"] <= 1 for row in lines(out))
    vectors = batch(TEXTS * 20, embed=True, model="all-minilm-l6-v2")
    found = list(vectors)
    assert len(found) == len(TEXTS) * 20
    assert all(len(row["output"]) == 384 for row in found)
    assert found[0]["output"] == pytest.approx(found[6]["output"], abs=0.02)
