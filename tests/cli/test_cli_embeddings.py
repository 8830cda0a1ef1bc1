"""`structgen embed` and `structgen search`, on a tiny embedder."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import structgen
from structgen.cli import commands, embeddings
from structgen.errors import OptionError

sys.path.insert(0, str(Path(__file__).parent.parent / "models"))
import tiny_embedders as tiny

LINES = ["a b c", "", "x y z", "b"]

needs_pyarrow = pytest.mark.skipif(
    importlib.util.find_spec("pyarrow") is None, reason="needs pyarrow"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return tiny.folder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def texts(tmp_path) -> Path:
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(LINES) + "\n")
    return file


@pytest.fixture
def run(model, capfdbinary):
    """Runs a command with the tiny embedder: exit code, standard output, standard error."""

    def run(*arguments):
        code = commands._run([*map(str, arguments), "--model", str(model)])
        out, err = capfdbinary.readouterr()
        return code, out, err.decode()

    return run


@pytest.fixture
def expected(model):
    return structgen.load_embedder(model).embed(LINES)


def test_embed_writes_a_line_for_each(run, texts, expected):
    code, out, err = run("embed", texts)
    assert (code, err) == (0, "")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["text"] for row in rows] == LINES
    found = np.array([row["embedding"] for row in rows], np.float32)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("options", [["--output", "npy"], ["--output", "npy", "--dimensions", 3]])
def test_embed_writes_arrays(run, texts, expected, options):
    code, out, _ = run("embed", texts, *options)
    assert code == 0
    found = np.load(io.BytesIO(out))
    assert found.dtype == np.float32
    assert found.shape == (4, 3 if 3 in options else tiny.WIDTH)


def test_embed_reads_standard_input_and_writes_files(run, tmp_path, monkeypatch, expected):
    stdin = io.TextIOWrapper(io.BytesIO("\n".join(LINES).encode("utf-8-sig")))
    monkeypatch.setattr(sys, "stdin", stdin)
    code, out, err = run("embed", "-", "--to", tmp_path / "v.npy")
    assert (code, out) == (0, b"")
    assert err == f"Wrote {tmp_path / 'v.npy'}: 4 vectors.\n"
    assert np.array_equal(np.load(tmp_path / "v.npy"), expected)


def test_nothing_to_embed(run, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    assert run("embed", tmp_path / "empty.txt") == (0, b"", "")
    (tmp_path / "blank.txt").write_text("  \n\n")
    for name in ("empty.txt", "blank.txt"):
        file = tmp_path / name
        assert run("search", "a", file) == (0, b"", f"({file} has no text.)\n")


@needs_pyarrow
def test_a_file_of_no_vectors_can_be_searched(run, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    file = tmp_path / "empty.parquet"
    assert run("embed", tmp_path / "empty.txt", "--to", file)[0] == 0
    assert run("search", "a", file) == (0, b"", f"({file} has no text.)\n")


def shown(model, query, k=5):
    """What a search has to print."""
    embedder = structgen.load_embedder(model)
    scores = embedder.embed(LINES) @ embedder.embed(query)[0]
    best = [i for i in np.argsort(-scores, kind="stable") if LINES[i]][:k]
    return "".join(f"{scores[i]:6.3f}  {i + 1}  {LINES[i]}\n" for i in best).encode()


def test_search_prints_the_closest_first(run, texts, model):
    assert run("search", "a b", texts) == (0, shown(model, "a b"), "")
    assert run("search", "z", texts, "-k", 1) == (0, shown(model, "z", 1), "")


@pytest.mark.parametrize("kind", ["jsonl", pytest.param("parquet", marks=needs_pyarrow)])
def test_search_uses_vectors_that_embed_wrote(run, texts, model, tmp_path, kind):
    file = tmp_path / f"vectors.{kind}"
    assert run("embed", texts, "--to", file)[0] == 0
    assert run("search", "a b", file) == (0, shown(model, "a b"), "")
    assert embeddings.texts_in(str(file)).texts == LINES
    code, _, err = run("search", "a b", file, "--dimensions", 3)
    assert code == 1
    assert "have 8 numbers, but that of the query has 3" in err
    assert run("embed", texts, "--to", file, "--dimensions", 3)[0] == 0
    assert run("search", "a b", file, "--dimensions", 3)[0] == 0


@needs_pyarrow
def test_a_parquet_file_that_says_a_text_many_times(tmp_path, monkeypatch):
    import pyarrow
    import pyarrow.parquet

    long = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 100_000), ["x" * 100_000])
    file = tmp_path / "bomb.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": long}), file, store_schema=False)
    assert file.stat().st_size < 10_000
    monkeypatch.setattr(embeddings, "MOST_BYTES", 10_000_000)
    with pytest.raises(OptionError, match="more than 10,000,000 bytes of texts"):
        embeddings.texts_in(str(file))


@needs_pyarrow
def test_other_columns_of_a_parquet_file_are_not_read(tmp_path):
    import pyarrow
    import pyarrow.parquet

    file = tmp_path / "texts.parquet"
    late = pyarrow.array([2**62], pyarrow.timestamp("us"))  # beyond Python's dates
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a"], "when": late}), file)
    assert embeddings.texts_in(str(file)).texts == ["a"]


@needs_pyarrow
def test_parquet_says_which_model_it_is_from(run, texts, tmp_path):
    import pyarrow
    import pyarrow.parquet

    file = tmp_path / "vectors.parquet"
    assert run("embed", texts, "--to", file)[0] == 0
    table = pyarrow.parquet.read_table(file)
    assert table["text"].to_pylist() == LINES
    other = table.replace_schema_metadata({embeddings._MODEL_KEY: b"another"})
    pyarrow.parquet.write_table(other, file)
    code, _, err = run("search", "a", file)
    assert code == 1
    assert "are from another, not from" in err
    pyarrow.parquet.write_table(table.rename_columns(["texts", "embedding"]), file)
    assert '"text" must be a string. Columns: texts, embedding' in run("search", "a", file)[2]
    pyarrow.parquet.write_table(table.set_column(1, "embedding", [["a"] * 4]), file)
    assert "must be a list of finite numbers" in run("search", "a", file)[2]
    file.write_text("no parquet")
    assert "cannot be read as Parquet" in run("search", "a", file)[2]


def test_parquet_without_pyarrow_names_the_extra(run, texts, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr(structgen, "load_embedder", lambda _: pytest.fail("told too late"))
    file = tmp_path / "vectors.parquet"
    file.write_text("of yesterday")
    assert "pip install 'structgen[parquet]'" in run("embed", texts, "--to", file)[2]
    assert file.read_text() == "of yesterday"
    code, _, err = run("embed", texts, "--output", "parquet")
    assert code == 1
    assert "pip install 'structgen[parquet]'" in err


def test_long_texts_are_told(run, tmp_path):
    file = tmp_path / "long.txt"
    file.write_text("a " * 30 + "\nb\n")
    code, out, err = run("embed", file)
    assert code == 0
    assert len(out.splitlines()) == 2
    assert err == "(1 text had more than 12 tokens; 20 tokens were cut off.)\n"


def test_prompts_of_queries_and_documents_are_used(tmp_path, texts, capfdbinary):
    place = tiny.folder(tmp_path / "model")
    prompts = {"query": "query: ", "passage": "text: "}
    tiny.write(place / "config_sentence_transformers.json", {"prompts": prompts})
    assert commands._run(["search", "a", str(texts), "--model", str(place)]) == 0
    embedder = structgen.load_embedder(place)
    documents = embedder.embed(LINES, prompt_name="passage")
    best = (documents @ embedder.embed("a", prompt_name="query")[0]).max()
    assert capfdbinary.readouterr().out.decode().startswith(f"{best:6.3f}  ")
    assert commands._run(["embed", str(texts), "--model", str(place), "--output", "npy"]) == 0
    assert np.array_equal(np.load(io.BytesIO(capfdbinary.readouterr().out)), documents)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("x.jsonl", '"a"\n{', "line 2 is not JSON"),
        ("x.jsonl", "[" * 100_000, "line 1 is not JSON"),
        ("x.jsonl", '{"texts": "a"}', 'row 1: "text" must be a string. Columns: texts.'),
        ("x.ndjson", '{"texts": "a"}', 'row 1: "text" must be a string'),
        ("x.jsonl", '"a"\n[1]', "x.jsonl, line 2: a row must be a text or an object"),
        ("x.jsonl", '{"text": "a"}\n{"text": "b", "embedding": [1]}', "1 of 2 rows have"),
        ("x.jsonl", '{"text": "a", "embedding": ["b"]}', "must be a list of finite numbers"),
        ("x.jsonl", '{"text": "a", "embedding": 3}', "must be a list of finite numbers"),
        ("x.jsonl", '{"text": "a", "embedding": [NaN]}', "NaN is not a JSON number"),
        ("x.jsonl", '{"text": "a", "embedding": [1e300]}', "list of finite numbers"),
        ("x.jsonl", f'{{"text": "a", "embedding": [1{"0" * 400}]}}', "list of finite numbers"),
        ("x.npy", b"\x93NUMPY", "has only vectors"),
        ("x.txt", b"\xff", "is not valid UTF-8"),
        (None, None, "the file does not exist"),
    ],
)
def test_files_that_cannot_be_used_are_told(run, tmp_path, name, content, told):
    file = tmp_path / (name or "none.txt")
    if name is not None:
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    code, out, err = run("search", "a", file)
    assert (code, out) == (1, b"")
    assert told in err
    assert "Traceback" not in err


def test_wrong_options_are_told(run, texts, tmp_path, monkeypatch):
    assert "--top-k 0" in run("search", "a", texts, "-k", "0")[2]
    assert "QUERY is empty" in run("search", "  ", texts)[2]
    assert "does not exist" in run("embed", texts, "--to", tmp_path / "no" / "v.npy")[2]
    assert "embed cannot write .xyz files" in run("embed", texts, "--to", tmp_path / "v.xyz")[2]
    assert "dimensions=9 is out of range" in run("embed", texts, "--dimensions", 9)[2]
    assert "not a prompt of" in run("embed", texts, "--prompt-name", "x")[2]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert "cannot be written to a terminal" in run("embed", texts, "--output", "npy")[2]


def test_a_file_is_written_whole_or_stays_as_it_was(run, texts, tmp_path, monkeypatch):
    to = tmp_path / "vectors.jsonl"
    to.write_text("earlier")
    to.chmod(0o640)

    def full(target, *_):
        target.write(b"half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(embeddings, "_write", full)
        code, _, err = run("embed", texts, "--to", to)
    assert code != 0
    assert "No space left on device" in err
    assert to.read_text() == "earlier"
    link = tmp_path / "link.jsonl"
    link.symlink_to(to)
    code, _, _ = run("embed", texts, "--to", link)
    assert code == 0
    assert len(to.read_text().splitlines()) == len(LINES)
    assert link.is_symlink()
    assert to.stat().st_mode & 0o777 == 0o640
    assert {path.name for path in tmp_path.iterdir()} == {
        "texts.txt",
        "vectors.jsonl",
        "link.jsonl",
    }
