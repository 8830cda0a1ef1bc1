"""Where rows come from, and what a row's prompt is."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import random
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from structgen.errors import OptionError, PromptError
from structgen.jobs import BadRow, Prompts, Source, Unread, as_json, rows

TABLE = [{"id": 1, "text": "a,b"}, {"id": 2, "text": 'c"\nd'}, {"id": 3, "text": "é"}]


def write(path: Path) -> Path:
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(TABLE), path)
    elif path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8-sig") as file:
            csv.writer(file).writerows([["id", "text"], *(row.values() for row in TABLE)])
    else:
        path.write_text("".join(json.dumps(row) + "\n\n" for row in TABLE), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["x.jsonl", "x.csv", "x.parquet"])
def test_files_of_all_kinds_have_the_same_rows(name: str, tmp_path: Path) -> None:
    source = Source.of(write(tmp_path / name))
    found = list(source.read())
    assert [{**row, "id": int(row["id"])} for row in found] == TABLE
    assert list(source.read()) == found
    assert source.total in (None, 3)
    assert source.identity == Source.of(str(tmp_path / name)).identity


def test_patterns_and_lists_of_files_are_read_in_order(tmp_path: Path) -> None:
    for name in "cab":
        (tmp_path / f"{name}.txt").write_text(f"{name}1\n{name}2\n", encoding="utf-8")
    source = Source.of(str(tmp_path / "*.txt"))
    assert [row["text"] for row in source.read()] == ["a1", "a2", "b1", "b2", "c1", "c2"]
    assert source.total == 6
    two = Source.of([tmp_path / "c.txt", tmp_path / "a.txt"])
    assert [row["text"] for row in two.read()] == ["c1", "c2", "a1", "a2"]
    assert two.identity != source.identity


def test_lines_that_cannot_be_read_are_rows_with_an_error(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(rows, "LONGEST_LINE", 100)
    path = tmp_path / "x.jsonl"
    path.write_bytes(
        b'{"text": "ok"}\n{"text": \n["no row"]\n\xff\xfe\n"a text"\n'
        + b'{"text": "' + b"x" * 300 + b'"}\n'
        + b"[" * 90 + b'\n{"text": "a", "in": {"b": 1, "b": 2}}\n{"text": "last"}'
    )  # fmt: skip
    found = list(Source.of(path).read())
    assert [row if isinstance(row, dict) else "bad" for row in found] == [
        {"text": "ok"}, "bad", "bad", "bad", {"text": "a text"}, "bad", "bad", "bad",
        {"text": "last"},
    ]  # fmt: skip
    told = [row.error for row in found if isinstance(row, BadRow)]
    assert "x.jsonl, line 2 is not JSON" in told[0]
    assert "not list" in told[1]
    assert "line 4: it is not UTF-8" in told[2]
    assert "line 6 has more than 100 bytes" in told[3]
    assert "line 8 is not JSON: the name 'b' appears twice" in told[5]


def test_a_line_of_csv_with_other_fields_is_a_row_with_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n1\n1,2,3\n3,4\n", encoding="utf-8")
    found = list(Source.of(path).read())
    assert found[0] == {"a": "1", "b": "2"}
    assert found[3] == {"a": "3", "b": "4"}
    assert all(isinstance(row, BadRow) and "instead of 2" in row.error for row in found[1:3])


def test_csv_of_other_programs(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "x.csv"
    path.write_text('id;text\n\n1;"a;\nb"\n', encoding="utf-8")
    assert list(Source.of(path).read()) == [{"id": "1", "text": "a;\nb"}]
    path.write_bytes("id,text\n1,é\n2,e\n".encode("latin-1"))
    bad, good = Source.of(path).read()
    assert isinstance(bad, BadRow)
    assert "x.csv, line 2: it is not UTF-8. Convert the file, for example with iconv" in bad.error
    assert good == {"id": "2", "text": "e"}
    path.write_text('a,b\n1,"x" y\n1,2\n1,"not closed\n2,3\n')
    found = list(Source.of(path).read())
    assert [isinstance(row, BadRow) for row in found] == [True, False, True]
    before = csv.field_size_limit()
    for data, said in (
        (b"\xe9,text\n1,2\n", "line 1: it is not UTF-8"),
        (b"a,b,a\n1,2,3\n", "two columns named 'a'"),
        (b'a,b\n1,"2\n' + b"x,y\n" * 99, "line 26: the row has more than 100 characters"),
    ):
        monkeypatch.setattr(rows, "LONGEST_LINE", 100)
        path.write_bytes(data)
        with pytest.raises(OptionError, match=said):
            list(Source.of(path).read())
    monkeypatch.undo()
    path.write_text("a,b\n1," + "x" * 200_000 + "\n2,3\n")
    reading = Source.of(path).read()
    assert len(next(reading)["b"]) == 200_000  # type: ignore[index]
    assert csv.field_size_limit() == before


def test_what_json_has_not_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": NaN}\n{"a": [-Infinity]}\n{"a": 1}\n' + " " * (2 << 20) + "\n7")
    source = Source.of(path)
    assert source.total == 4
    found = list(source.read())
    assert [isinstance(row, BadRow) for row in found] == [True, True, False, True]
    assert "NaN is not a JSON number" in found[0].error  # type: ignore[union-attr]
    with pytest.raises(PromptError, match="is empty"):
        Prompts().of({"text": float("nan")})
    with pytest.raises(PromptError, match="empty in this row"):
        Prompts().of({"text": type("NaTType", (), {})()})  # of pandas
    array = np.arange(2000)
    assert Prompts().of({"text": array})[0]["content"] == json.dumps(array.tolist())


def test_rows_of_parquet_are_few_at_a_time(tmp_path: Path) -> None:
    """600 bytes were 4 GB of rows, as one text stood in all of them."""
    text = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 200, "int32"), ["a" * (1 << 20)])
    pyarrow.parquet.write_table(pyarrow.table({"text": text}), tmp_path / "x.parquet")
    before, most = pyarrow.total_allocated_bytes(), 0
    for row in Source.of(tmp_path / "x.parquet").read():
        assert len(row["text"]) == 1 << 20
        most = max(most, pyarrow.total_allocated_bytes() - before)
    assert most < 64 << 20


def test_parquet_that_cannot_be_rows_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    write(path)
    whole, r = path.read_bytes(), random.Random(3)
    for _ in range(30):  # flipped bits are rows, or told
        data = bytearray(whole)
        data[r.randrange(len(data))] ^= 1 << r.randrange(8)
        path.write_bytes(data)
        with contextlib.suppress(OptionError):
            list(Source.of(path).read())
    # A damaged histogram in the footer: the package's own object of the column ends the process.
    pyarrow.parquet.write_table(pyarrow.table({"l": [[1, 2]] * 9}), path)
    data = path.read_bytes()
    for at in range(len(data) - 8 - int.from_bytes(data[-8:-4], "little"), len(data) - 8):
        path.write_bytes(data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :])
        with contextlib.suppress(OptionError):
            list(Source.of(path).read())
    # The head of a page with a list of 2**32 values, of which each takes little.
    with pytest.raises(ValueError, match="fields of type 9"):
        rows._thrift(b"\x19\xf1\xff\xff\xff\xff\x0f" + b"\0" * 9, 0)
    with pytest.raises(ValueError, match="a list of 4,294,967,295 values"):
        rows._thrift(b"\x19\xf1\xff\xff\xff\xff\x0f" + b"\0" * 9, 0, has_lists=True)
    late = pyarrow.array([1_600_000_000_000_000_001], pyarrow.timestamp("ns"))
    twice = pyarrow.table([["x"], ["y"]], names=["a", "a"])
    for table, said in (
        (pyarrow.table({"t": late}), "anosecond"),
        (twice, "two columns named 'a'"),
    ):
        pyarrow.parquet.write_table(table, path)
        with pytest.raises(OptionError, match=said):
            list(Source.of(path).read())
    # Of several files the columns of all are known.
    for name, rest in (("a", {"b": 1}), ("b", {"c": 2})):
        table = pyarrow.Table.from_pylist([{"meta": rest, "text": name}])
        pyarrow.parquet.write_table(table, tmp_path / f"{name}.parquet")
    both = Source.of([tmp_path / "a.parquet", tmp_path / "b.parquet"])
    assert {one.name for one in both.schema.field("meta").type} == {"b", "c"}


@pytest.mark.parametrize("change", ["shorter", "other", "gone"])
def test_a_file_that_changes_while_it_is_read_is_told(change: str, tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("a line\n" * 9)
    source = Source.of(path)
    source.check()
    reading = source.read()
    next(reading)
    if change == "gone":
        path.unlink()
    else:
        path.write_text("a line\n" * 8 if change == "shorter" else "b line\n" * 9)
    with pytest.raises(OptionError, match=r"x\.txt has changed since the job began"):
        list(reading)


def test_standard_input(monkeypatch) -> None:
    class Stdin:
        buffer = io.BytesIO(b'{"text": "x"}\n')

    monkeypatch.setattr(sys, "stdin", Stdin)
    assert list(Source.of("-").read()) == [{"text": "x"}]
    with pytest.raises(OptionError, match="cannot be combined with other input"):
        Source.of(["-", "x.csv"])


def test_tables_texts_and_iterables() -> None:
    table = pyarrow.Table.from_pylist(TABLE)
    source = Source.of(table)
    assert list(source.read()) == TABLE
    assert source.table is not None
    assert source.table([], {"c": []}).column_names == [*TABLE[0], "c"]
    # What no values of Python become again stays as it is.
    odd = pyarrow.array([[("k", 1)], []], pyarrow.map_(pyarrow.string(), pyarrow.int64()))
    odd = pyarrow.table({"text": ["a", "b"], "map": odd, "n": pyarrow.array([1, 2], "uint8")})
    made = Source.of(odd).table
    assert made is not None
    assert made([1], {"c": [{"d": 1}]}) == odd.slice(1).append_column("c", [[{"d": 1}]])
    assert made([0, 1], {}) == odd
    with pytest.raises(OptionError, match="The table has two columns named 'a'"):
        Source.of(pyarrow.table([["x"], ["y"]], names=["a", "a"]))
    for columns, said in (([1, 1], "two columns named 1"), ([0, "a"], "a column 0")):
        frame = SimpleNamespace(to_dict=lambda how: [], columns=columns)  # as pandas has it
        with pytest.raises(OptionError, match=f"The table has {said}"):
            Source.of(frame)
    assert list(Source.of(["a.", "b"]).read()) == [{"text": "a."}, {"text": "b"}]
    assert list(Source.of(row for row in TABLE).read()) == TABLE
    bad = list(Source.of([{1: 2}, 3]).read())
    assert all(isinstance(row, BadRow) for row in bad)
    for given, said in ((7, "type int"), ("no.csv", "does not exist"), (b"x", "type bytes")):
        with pytest.raises(OptionError, match=said):
            Source.of(given)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.xlsx").write_bytes(b"")
    with pytest.raises(OptionError, match="is not supported as input"):
        Source.of(tmp_path / "x.xlsx")
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    with pytest.raises(OptionError, match="cannot be read as Parquet"):
        Source.of(tmp_path / "x.parquet")


def test_the_first_row_decides_which_column_is_the_prompt() -> None:
    prompts = Prompts()
    assert content(prompts, {"id": 3, "text": "x"}) == ["x"]
    with pytest.raises(OptionError, match="no column 'text'"):
        prompts.of({"id": 3})
    with pytest.raises(OptionError, match="is not a message"):
        Prompts(messages={"role": "user"})  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="The columns are none"):
        Prompts().of({})


def content(prompts: Prompts, row: dict) -> list[str]:
    return [message["content"] for message in prompts.of(row)]


def test_prompts() -> None:
    assert content(Prompts(), {"id": 1, "text": "x"}) == ["x"]
    assert content(Prompts(), {"only": "x"}) == ["x"]
    assert content(Prompts(), {"text": b"\xc3\xa9\xff"}) == ["é\\xff"]
    assert content(Prompts(column="id"), {"id": 1, "text": "x"}) == ["1"]
    assert content(Prompts("{a}: {b} {{c}}"), {"a": "{b}", "b": [1, None]}) == [
        "{b}: [1, null] {c}"
    ]
    chat = [
        {"role": "system", "content": "{S}"},
        {"role": "user", "content": "{{ t }}{% for one in some %}; {{ one.a }}{% endfor %}"},
    ]
    made = Prompts(messages=chat).of({"t": "<x>", "some": [{"a": 1}, {"a": "b"}]})
    assert made == [chat[0], {"role": "user", "content": "<x>; 1; b"}]
    same = [Prompts("x"), Prompts(column="x"), Prompts()]
    assert len({str(one.identity) for one in same}) == 3


@pytest.mark.parametrize(
    ("prompts", "row", "said"),
    [
        ({}, {"a": 1, "b": 2}, "Which column has the prompt"),
        ({"column": "c"}, {"a": 1}, "no column 'c'"),
        ({"prompt": "{c}"}, {"a": 1}, "no column 'c'"),
        ({"prompt": "{a}"}, {"a": None}, "'a' is empty"),
        ({"prompt": "{a.b}"}, {"a": 1}, "no column 'a.b'"),
        ({"prompt": "{a[0]}"}, {"a": [1]}, r"no column 'a\[0\]'"),
        ({"prompt": "{a!r}"}, {}, "name of a column"),
        ({"prompt": "{a:>9}"}, {}, "name of a column"),
        ({"prompt": "{}"}, {}, "name of a column"),
        ({"prompt": "{a"}, {}, "The template"),
        ({"messages": [{"role": "user"}]}, {}, "is not a message"),
        *(
            ({"messages": [{"role": "user", "content": content}]}, {"a": None, "b": 1}, said)
            for content, said in (
                ("{{ c }}", r"'c' is undefined\. The columns are a, b"),
                ("{{ a }}", "is empty in this row"),
                ("{% if %}", "The template"),
                ("{{ b + 'x' }}", "unsupported operand"),
                ("{{ b.__class__.__mro__ }}", "access to attribute '__class__'"),
            )
        ),
        ({"prompt": "{a}", "column": "a"}, {}, "exclude each other"),
    ],
)
def test_prompts_that_cannot_be_made(prompts: dict, row: dict, said: str) -> None:
    with pytest.raises((OptionError, PromptError), match=said):
        Prompts(**prompts).of(row)


@pytest.mark.parametrize(
    ("wrap", "kind"),
    [
        (lambda zeros: zeros, pyarrow.list_(pyarrow.int64())),
        (lambda zeros: [zeros], pyarrow.list_(pyarrow.list_(pyarrow.uint8()))),
        (lambda zeros: {"a": zeros}, pyarrow.struct({"a": pyarrow.list_(pyarrow.int8())})),
        (lambda zeros: [("a", zeros)], pyarrow.map_("string", pyarrow.list_(pyarrow.int8()))),
    ],
    ids=["list", "lists", "struct", "map"],
)
def test_a_row_of_parquet_with_too_many_values_is_told(wrap, kind, tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "_MOST_VALUES", 1_000)
    path = tmp_path / "x.parquet"
    column = pyarrow.array([wrap([0] * n) for n in (900, 1_100, 1)], kind)
    pyarrow.parquet.write_table(pyarrow.table({"zeros": column}), path)
    first, bad, last = Source.of(path).read()
    assert [len(str(row["zeros"])) > 900 for row in (first, last)] == [True, False]
    assert isinstance(bad, BadRow)
    assert bad.error == "x.parquet, row 2 has more than 1,000 values."


def test_a_small_file_of_long_lists_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "_MOST_VALUES", 10_000)
    path = tmp_path / "x.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"zeros": [[0] * 1_000_000]}), path)
    monkeypatch.setattr(pyarrow.parquet.ParquetFile, "iter_batches", None)
    with pytest.raises(
        OptionError, match=r"contain 1,000,000 values. Write its lists as several rows"
    ):
        list(Source.of(path).read())


def test_the_end_of_a_file_may_lie_about_its_lists(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "_MOST_VALUES", 10_000)
    path = tmp_path / "x.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"zeros": [[0] * 1_000_000]}), path)
    data = path.read_bytes()
    end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    many, one = b"\x80\x89\x7a", b"\x82\x80\x00"  # numbers of Thrift's
    assert many in data[end:]
    path.write_bytes(data[:end] + data[end:].replace(many, one))
    monkeypatch.setattr(pyarrow.parquet.ParquetFile, "iter_batches", None)
    with pytest.raises(
        OptionError, match=r"contain 1,000,000 values. Write its lists as several rows"
    ):
        list(Source.of(path).read())


@pytest.mark.parametrize(("length", "at_once"), [(10, 16), (400, 2), (990, 1)])
def test_long_values_are_read_a_few_at_a_time(length, at_once, tmp_path, monkeypatch):
    """1,782 bytes, whose dictionary had one text of 50 MB, took 2.1 GB."""
    monkeypatch.setattr(rows, "_MOST_UNPACKED", 1_000)
    path = tmp_path / "x.parquet"
    table = pyarrow.table({"text": ["a" * length] * 20})
    pyarrow.parquet.write_table(table, path, compression="zstd")
    asked = []
    read = pyarrow.parquet.ParquetFile.iter_batches

    def noted(file, *given, **columns):
        asked.append(given)
        return read(file, *given, **columns)

    monkeypatch.setattr(pyarrow.parquet.ParquetFile, "iter_batches", noted)
    assert list(Source.of(path).read()) == table.to_pylist()
    assert asked == [(at_once,)]


def test_pages_that_unpack_to_far_more_than_the_file_are_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "_MOST_UNPACKED", 1_000)
    path = tmp_path / "x.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a" * 100_000]}), path, compression="zstd")
    with pytest.raises(OptionError, match=r"contain pages of 100,004 bytes"):
        list(Source.of(path).read())


NO_STRUCT = b"\x15\0\x15\4\x15\4\x25\2\0"  # a number where a page is described
HEADS = [b"\x1c", b"\x19", b"\xff", b"\x15\xff\xff\xff\xff\x7f", b"\0", NO_STRUCT]


@pytest.mark.parametrize("head", HEADS)
def test_damaged_pages_are_told(head, tmp_path):
    path = tmp_path / "x.parquet"
    column = list(map(str, range(2_000)))
    pyarrow.parquet.write_table(pyarrow.table({"text": column}), path)
    data = path.read_bytes()
    path.write_bytes(data[:4] + (head * 2_000)[:2_000] + data[2_004:])
    with pytest.raises(OptionError, match="cannot be read as Parquet"):
        list(Source.of(path).read())


def test_what_came_as_json_is_written_as_it_came() -> None:
    body = Unread(b'{"a":[1.50,2e0],"b":"\\u00e9"}')
    row = {"x": "\ud800", "body": body, "more": [body], "y": b"z"}
    whole = b'{"x": "\\ud800", "body": %b, "more": [%b], "y": "z"}' % (body, body)
    assert as_json(row) == whole
    assert as_json({**row, "x": float("nan")}) == whole.replace(b'"\\ud800"', b"null")


@pytest.mark.parametrize("compression", ["none", "snappy"])
@pytest.mark.parametrize("encoding", ["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_lengths_of_texts_are_bounded_before_they_are_unpacked(
    encoding, version, compression, tmp_path, monkeypatch
):
    """A file of 106 bytes, with a page of a thousand million texts, took 4 GB and 8 s."""
    path = tmp_path / "rows.parquet"
    texts = ["a" * (i % 7) for i in range(9_000)]
    pyarrow.parquet.write_table(
        pyarrow.table({"text": [*texts, *[None] * 1_000]}),
        path,
        use_dictionary=False,
        column_encoding=encoding,
        data_page_version=version,
        compression=compression,
    )
    assert len(list(Source.of(path).read())) == 10_000
    monkeypatch.setattr(rows, "_MOST_VALUES", 1_000)
    with pytest.raises(OptionError, match="a page has 10,000 texts"):
        list(Source.of(path).read())
    n_lengths = rows._n_lengths
    found = []

    def counted(data, at, head, page, codec, schema):
        found.append(n_lengths(data, at, head, {**page, (1, 5): 0}, codec, schema))
        return 0

    monkeypatch.setattr(rows, "_n_lengths", counted)  # the head of a page may lie
    assert len(list(Source.of(path).read())) == 10_000
    assert sum(found) == 9_000


def test_blocks_of_lengths_are_even():
    """Where they end, the package and we would see two places, and a list that begins there."""
    page = {(1, 5): 0, (2, 5): 6, (3, 5): 3, (4, 5): 3}
    head = {(1, 5): 0, (2, 5): 10, (3, 5): 10}
    schema = SimpleNamespace(max_repetition_level=0, max_definition_level=0)
    assert rows._n_lengths(b"\x80\x01\x04\x01\0" + bytes(5), 0, head, page, 0, schema) == 1
    with pytest.raises(ValueError, match="uneven blocks"):
        rows._n_lengths(b"\x80\x01\x05\x01\0" + bytes(5), 0, head, page, 0, schema)


def test_fields_of_parquet_are_there_once():
    """The package joins them, and we would take the last."""
    assert rows._thrift(b"\x15\x02\x12\0", 0) == ({(1, 5): 1, (2, 2): None}, 4)
    with pytest.raises(ValueError, match="a field twice"):
        rows._thrift(b"\x15\x02\x05\x02\x04\0", 0)
