"""Files that are written whole: what a failure leaves behind, and their permissions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from structgen.storage import written_whole


def test_a_file_that_fails_on_the_way_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    path.write_bytes(b"earlier")

    def fail() -> None:
        with written_whole(path) as file:
            file.write(b"half")
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fail()
    assert path.read_bytes() == b"earlier"
    assert os.listdir(tmp_path) == ["kept.json"]


def test_a_new_file_has_the_permissions_of_other_new_files(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    with written_whole(tmp_path / "new") as file:
        file.write(b"all")
    assert (tmp_path / "new").read_bytes() == b"all"
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_two_writers_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "shared"
    with written_whole(path) as one, written_whole(path) as other:
        one.write(b"a" * 10)
        other.write(b"b" * 10)
    assert path.read_bytes() in (b"a" * 10, b"b" * 10)
    assert os.listdir(tmp_path) == ["shared"]
