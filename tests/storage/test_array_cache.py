"""A cache on disk can be damaged, foreign, read-only or shared: nothing but time may be lost."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import inside
import numpy as np
import pytest
import real_tokenizers

import structgen
from structgen import Vocabulary
from structgen.models import cache
from structgen.storage import array_cache
from structgen.storage.array_cache import get_or_build, load, store
from structgen.vocabulary import tokenizer_bytes

ARRAYS = {
    "empty": np.zeros((0, 3), np.int64),
    "bytes": np.arange(7, dtype=np.uint8),
    "flags": np.array([[True, False], [False, True]]),
    "words": np.arange(100, dtype=np.uint32) * 40_000_000,
    "big-endian": np.arange(5, dtype=">i4"),
    "strided": np.arange(20, dtype=np.int16)[::3],
    "number": np.array(2.5, np.float32),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(array_cache, "root", lambda: tmp_path / "arrays")
    return tmp_path / "arrays"


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def check(found: dict[str, Any] | None) -> None:
    assert found is not None
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert found[name].dtype.newbyteorder("=") == array.dtype.newbyteorder("="), name
        assert found[name].shape == array.shape, name
        assert (found[name] == array).all(), name
        assert not found[name].flags.writeable, name


def fail() -> dict[str, Any]:
    raise AssertionError("built again")


# -- the format -----------------------------------------------------------------------------------


def test_arrays_come_back(folder: Path) -> None:
    assert load("a", "b", "key") is None
    built = {name: array.copy() for name, array in ARRAYS.items()}
    check(get_or_build("a", "b", "key", lambda: built))
    check(get_or_build("a", "b", "key", fail))
    assert files(folder) == [folder / "a" / "b.arrays"]


def test_what_was_made_for_another_key_is_built_anew() -> None:
    store("a", "b", "version 1", ARRAYS)
    assert load("a", "b", "version 2") is None
    newer = {"x": np.arange(3)}
    assert list(get_or_build("a", "b", "version 2", lambda: newer)) == ["x"]
    assert list(get_or_build("a", "b", "version 2", fail)) == ["x"]
    assert load("a", "b", "version 1") is None


def test_damaged_files_are_built_anew(folder: Path) -> None:
    store("a", "b", "key", ARRAYS)
    (path,) = files(folder)
    whole = path.read_bytes()
    damaged = [whole[:length] for length in range(0, len(whole), 7)]
    damaged += [whole + b"\0", b"PK\3\4" + whole]
    for at in range(0, len(whole), 5):
        damaged.append(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    for data in damaged:
        path.write_bytes(data)
        assert load("a", "b", "key") is None
    check(get_or_build("a", "b", "key", lambda: {n: a.copy() for n, a in ARRAYS.items()}))
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b'{"key": "key"}',
        b'{"key": "key", "arrays": 1}',
        b'{"key": "key", "arrays": [["x", "|O", [1]]]}',
        b'{"key": "key", "arrays": [["x", "<i8", [-1]]]}',
        b'{"key": "key", "arrays": [["x", "<i8", ["1"]]]}',
        b'{"key": "key", "arrays": [["x", "<i8", [true]]]}',
        b'{"key": "key", "arrays": [["x", "<i8", [9, 999999999999999]]]}',
        b'{"key": "key", "arrays": [["x", "<i8", [1e9]]]}',
        b'{"key": "key", "arrays": [["x", "i4,i4", [1]]]}',
        b'{"key": "key", "arrays": [["x", ["<i8"], [1]]]}',
        b"[" * 100_000,
        b'{"key": "key", "arrays": [["x", "<i4", [1180591620717411303424]]]}',
    ],
)
def test_nonsense_with_a_right_digest(folder: Path, header: bytes) -> None:
    store("a", "b", "key", ARRAYS)
    (path,) = files(folder)
    rest = len(header).to_bytes(4, "little") + header
    rest += bytes(-(40 + len(rest)) % 64) + bytes(64)
    path.write_bytes(b"sgarray1" + hashlib.sha256(rest).digest() + rest)
    assert load("a", "b", "key") is None


def test_a_header_longer_than_the_file(folder: Path) -> None:
    store("a", "b", "key", ARRAYS)
    (path,) = files(folder)
    rest = b"\xff\xff\xff\xff{}"
    path.write_bytes(b"sgarray1" + hashlib.sha256(rest).digest() + rest)
    assert load("a", "b", "key") is None


def test_objects_are_not_kept() -> None:
    with pytest.raises(TypeError, match="'x' has the type object"):
        store("a", "b", "key", {"x": np.array([{}], object)})


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/a", ".hidden", "a\0", "x" * 200, "a\n"])
def test_only_plain_names(name: str) -> None:
    with pytest.raises(ValueError, match="not a simple"):
        store("a", name, "key", ARRAYS)
    with pytest.raises(ValueError, match="not a simple"):
        load(name, "b", "key")


# -- the disk -------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize("step", ["_write", "os.open", "os.replace", "Path.mkdir"])
def test_a_disk_that_cannot_be_written_is_no_error(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    code: int,
    step: str,
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(f"structgen.storage.array_cache.{step}", refuse)
    caplog.set_level(logging.DEBUG, logger="structgen")
    check(get_or_build("a", "b", "key", lambda: {n: a.copy() for n, a in ARRAYS.items()}))
    assert not files(folder)
    assert [record.levelname for record in caplog.records] == ["DEBUG"]
    assert os.strerror(code) in caplog.text


def test_a_disk_that_fills_up_while_writing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(path: Path, data: bytes) -> None:
        write(path, data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write = array_cache._write
    monkeypatch.setattr(array_cache, "_write", half)
    store("a", "b", "key", ARRAYS)
    assert not files(folder)


def test_a_folder_that_is_a_file(folder: Path) -> None:
    folder.write_bytes(b"")
    check(get_or_build("a", "b", "key", lambda: {n: a.copy() for n, a in ARRAYS.items()}))
    assert folder.read_bytes() == b""


def test_the_longest_unused_go_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 100_000
    for day in range(5):
        store(f"folder{day}", "x", "key", {"x": np.zeros(size, np.uint8)})
        old = (folder / f"folder{day}" / "x.arrays").stat().st_mtime - (9 - day) * 86_400
        os.utime(folder / f"folder{day}" / "x.arrays", (old, old))
    assert load("folder1", "x", "key") is not None  # used now
    abandoned = folder / "folder3" / ".left.tmp"
    abandoned.write_bytes(b"x")
    os.utime(abandoned, (0, 0))
    monkeypatch.setattr(array_cache, "MAX_BYTES", int(3.5 * size))
    store("new", "x", "key", {"x": np.zeros(size, np.uint8)})
    left = ["folder1", "folder4", "new"]
    assert files(folder) == [folder / name / "x.arrays" for name in left]
    assert sorted(path.name for path in folder.iterdir()) == left


# -- several processes ----------------------------------------------------------------------------

_WORKER = """
import sys
from pathlib import Path
import numpy as np
from structgen.storage import array_cache

array_cache.root = lambda: Path(sys.argv[1])
expected = {name: np.arange(50_000) * i for i, name in enumerate("xyz")}
for turn in range(100):
    built = {name: array.copy() for name, array in expected.items()}
    found = array_cache.get_or_build("a", "b", "key", lambda: built)
    assert list(found) == list(expected)
    assert all((found[name] == array).all() for name, array in expected.items())
    if turn % 3 == int(sys.argv[2]) % 3:
        array_cache.store("a", "b", "key", expected)
    if turn % 7 == int(sys.argv[2]):
        (Path(sys.argv[1]) / "a" / "b.arrays").unlink(missing_ok=True)
    if turn % 11 == int(sys.argv[2]):
        (Path(sys.argv[1]) / "a" / "b.arrays").write_bytes(b"sgarray1 of someone else")
"""


def test_processes_share_the_folder(folder: Path) -> None:
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", _WORKER, str(folder), str(number)], stderr=subprocess.PIPE
        )
        for number in range(3)
    ]
    for worker in workers:
        _, errors = worker.communicate(timeout=120)
        assert worker.returncode == 0, errors.decode()
    assert [path.suffix for path in files(folder)] in ([], [".arrays"])


# -- vocabularies ---------------------------------------------------------------------------------


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    original = real_tokenizers.path("smollm2").parent
    copy = tmp_path / "tokenizer"
    copy.mkdir()
    for name in ("tokenizer.json", "genai_config.json", "tokenizer_config.json"):
        if (original / name).is_file():
            shutil.copyfile(original / name, copy / name)
    return copy


def same(a: Vocabulary, b: Vocabulary) -> None:
    for name in ("size", "tokens", "eos_token_ids", "special_token_ids", "uid"):
        assert getattr(a, name) == getattr(b, name), name
        assert type(getattr(a, name)) is type(getattr(b, name)), name
    for name in vars(a.trie):
        x, y = getattr(a.trie, name), getattr(b.trie, name)
        if isinstance(x, np.ndarray):
            assert x.dtype == y.dtype
            assert x.flags.writeable is y.flags.writeable is False
            assert (x == y).all(), name
        else:
            assert x == y, name
    assert repr(a) == repr(b)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that grows with every tokenizer file that is read in earnest."""
    read: list[str] = []
    real = tokenizer_bytes.read

    def counting(path: Any) -> Any:
        read.append(str(path))
        return real(path)

    monkeypatch.setattr(tokenizer_bytes, "read", counting)
    return read


def test_a_kept_vocabulary_is_the_same(
    folder: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = counted(monkeypatch)
    first = Vocabulary.from_tokenizer_json(tokenizer)
    same(first, Vocabulary.from_tokenizer_json(tokenizer))
    assert len(read) == 1
    # The folder and the file are the same tokenizer, wherever they lie.
    shutil.copytree(tokenizer, tokenizer.with_name("elsewhere"))
    same(first, Vocabulary.from_tokenizer_json(tokenizer.with_name("elsewhere") / "tokenizer.json"))
    assert len(read) == 1
    (path,) = files(folder)
    path.write_bytes(path.read_bytes()[:-1000])
    same(first, Vocabulary.from_tokenizer_json(tokenizer))
    assert len(read) == 2
    same(first, Vocabulary.from_tokenizer_json(tokenizer))
    assert len(read) == 2


def test_what_a_kept_vocabulary_depends_on(
    tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = counted(monkeypatch)
    before = Vocabulary.from_tokenizer_json(tokenizer)
    other = Vocabulary.from_tokenizer_json(tokenizer, eos_token_ids=iter([5]), size=50_000)
    assert (other.eos_token_ids, other.size) == ((5,), 50_000)
    assert Vocabulary.from_tokenizer_json(tokenizer, eos_token_ids=[5]).size == before.size
    assert len(read) == 3
    (tokenizer / "genai_config.json").write_text('{"model": {"eos_token_id": 7}}')
    assert Vocabulary.from_tokenizer_json(tokenizer).eos_token_ids == (7,)
    document = json.loads((tokenizer / "tokenizer.json").read_text())
    document["added_tokens"].append({"id": before.size, "content": "new", "special": False})
    (tokenizer / "tokenizer.json").write_text(json.dumps(document))
    assert Vocabulary.from_tokenizer_json(tokenizer).tokens[-1] == b"new"
    assert len(read) == 5


def test_a_file_that_changes_while_it_is_read_is_not_kept(
    folder: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tokenizer_bytes.read

    def slow(path: Any) -> Any:
        table = real(path)
        (tokenizer / "config.json").write_text("{}")
        return table

    monkeypatch.setattr(tokenizer_bytes, "read", slow)
    Vocabulary.from_tokenizer_json(tokenizer)
    assert not files(folder)


def test_errors_are_not_kept(folder: Path, tokenizer: Path) -> None:
    (tokenizer / "genai_config.json").write_text('{"model": {"eos_token_id": "x"}}')
    for _ in range(2):
        with pytest.raises(Exception, match="eos_token_id is 'x'"):
            Vocabulary.from_tokenizer_json(tokenizer)
    assert not files(folder)


def test_other_arrays_of_a_vocabulary(folder: Path, tokenizer: Path) -> None:
    tokens = Vocabulary.from_tokenizer_json(tokenizer)
    kept = tokens.cached_arrays("sizes", 1, lambda: {"x": np.arange(3)})
    assert kept["x"].tolist() == [0, 1, 2]
    again = Vocabulary.from_tokenizer_json(tokenizer)
    assert again.cached_arrays("sizes", 1, fail)["x"].tolist() == [0, 1, 2]
    newer = again.cached_arrays("sizes", 2, lambda: {"x": np.arange(4)})
    assert newer["x"].tolist() == [0, 1, 2, 3]
    assert not newer["x"].flags.writeable
    other = Vocabulary.from_tokenizer_json(tokenizer, eos_token_ids=[5])
    assert other.cached_arrays("sizes", 2, lambda: {"x": np.arange(5)})["x"][-1] == 4
    assert again.cached_arrays("sizes", 2, fail)["x"][-1] == 3
    assert len(files(folder)) == 4


def test_small_vocabularies_leave_no_files(folder: Path) -> None:
    tokens = Vocabulary.from_tokens([b"a", b""], eos_token_ids=[1])
    for length in (1, 2):
        arrays = tokens.cached_arrays("x", 1, lambda n=length: {"x": np.arange(n)})
        assert len(arrays["x"]) == length
        assert not arrays["x"].flags.writeable
    assert not files(folder)


def test_changed_arrays_need_a_new_format_number() -> None:
    # Whoever changes how tokenizer files are read, or what is kept, raises `_FORMAT` and this.
    from structgen.vocabulary import tokens

    path = real_tokenizers.path("llama3")
    arrays = inside.arrays(Vocabulary.from_tokenizer_json(path))()
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(name.encode() + array.dtype.str.encode() + array.tobytes())
    assert (tokens._FORMAT, digest.hexdigest()[:16]) == (3, "901df11249110a48")


# -- whose it is ----------------------------------------------------------------------------------

POSIX = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="folders have no such modes here")


@POSIX
def test_a_folder_that_others_can_write_is_not_used(folder: Path) -> None:
    store("a", "b", "key", ARRAYS)
    for path in (folder, folder / "a", folder.parent):
        mode = path.stat().st_mode
        path.chmod(0o777)
        folder.parent.chmod(0o777 if path == folder.parent else 0o755)  # others get in
        array_cache._logged.clear()
        with pytest.warns(UserWarning, match=r"not used: .* can be written by others .*chmod go-w"):
            assert load("a", "b", "key") is None
        assert load("a", "b", "key") is None  # told once
        store("a", "c", "key", ARRAYS)
        assert not (folder / "a" / "c.arrays").exists()
        path.chmod(mode)
        folder.parent.chmod(0o700)
        check(load("a", "b", "key"))


@POSIX
def test_what_others_cannot_enter_they_cannot_write(folder: Path) -> None:
    store("a", "b", "key", ARRAYS)
    (folder / "a").chmod(0o777)
    assert folder.parent.stat().st_mode & 0o077 == 0
    check(load("a", "b", "key"))


@POSIX
def test_a_file_that_others_can_write_is_made_anew(folder: Path) -> None:
    store("a", "b", "key", ARRAYS)
    (folder / "a" / "b.arrays").chmod(0o666)
    assert load("a", "b", "key") is None


@POSIX
def test_a_folder_of_another_user_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store("a", "b", "key", ARRAYS)
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    if mine:
        array_cache._logged.clear()
        with pytest.warns(UserWarning, match="belongs to another user"):
            assert load("a", "b", "key") is None
    else:  # what is root's is trusted
        check(load("a", "b", "key"))


@POSIX
def test_a_new_cache_folder_is_for_its_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("STRUCTGEN_CACHE", str(tmp_path / "new" / "cache"))
    before = os.umask(0)
    try:
        store("a", "b", "key", ARRAYS)
    finally:
        os.umask(before)
    assert (tmp_path / "new" / "cache").stat().st_mode & 0o777 == 0o700
    check(load("a", "b", "key"))


@POSIX
def test_models_that_others_may_have_put_there_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRUCTGEN_CACHE", str(tmp_path))
    model = cache.folder_of("some-model")
    model.mkdir(parents=True)
    (model / cache.CONFIG).write_text("{}")
    assert cache.find("some-model") == model
    tmp_path.chmod(0o755)
    model.parent.chmod(0o777)
    with pytest.raises(structgen.ModelError, match=r"can be written by others.*To load it"):
        cache.find("some-model")
    assert cache.remove("some-model") >= 0
    tmp_path.chmod(0o700)
