"""The commands ``sample``, ``lint``, ``diff`` and ``show``."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import structgen
from structgen.cli import main

SCHEMA = """{
  "type": "object",
  "properties": {
    "size": {"type": "integer", "minimun": 1},
    "kind": {
      "enum": ["a", "b"]
    },
    "day": {
      "type": "string", "format": "date"
    }
  },
  "required": ["kind"]
}
"""


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return int(ended.value.code or 0)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no such file, links or names")
def test_what_files_do_is_told_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for arguments, said in (
        (
            ["show", "/a/", "-o", str(tmp_path / "loop")],
            "loop: cannot write the file: Too many levels",
        ),
        (["grammars", "check", "x" * 300], f"{'x' * 300}: File name too long."),
    ):
        assert run(*arguments) == 1
        assert said in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", None)  # as where it is closed
    assert run("lint", "-") == 1
    assert "is not valid JSON" in capsys.readouterr().err
    sys.stdin.close()
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert run("sample", "/a/") == 1
    assert capsys.readouterr().err == "Error: No space left on device.\n"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError("no Parquet"), "no Parquet"),
        (TimeoutError(), "TimeoutError"),
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files"),
    ],
)
def test_an_error_without_a_file_has_its_words(error, said, capfd, monkeypatch):
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(structgen, "sample", fails)
    with open(os.devnull, "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        assert run("sample", "/a/") == 1
    assert capfd.readouterr().err == f"Error: {said}.\n"


def test_sample(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "s.json"
    file.write_text(SCHEMA)
    assert run("sample", str(file), "-n", "20") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 20
    assert all(json.loads(line)["kind"] in "ab" for line in lines)
    assert run("sample", "/[ab]{3}/", "-n", "3", "--seed", "7") == 0
    assert all(re.fullmatch("[ab]{3}", line) for line in capsys.readouterr().out.splitlines())
    assert run("sample", "structgen.types:semver", "-n", "2") == 0
    assert run("sample", str(tmp_path / "none.json")) == 1
    assert "the file does not exist" in capsys.readouterr().err


def test_lint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "s.json"
    file.write_text(SCHEMA)
    assert run("lint", str(file)) == 1
    out = capsys.readouterr().out
    hint = "unknown keyword without effect; did you mean minimum?"
    assert f"{file}:4: $.properties.size: minimun: {hint}\n" in out
    assert f"{file}:8: $.properties.day: " in out
    assert re.search(r"\d findings\.$", out.strip())
    file.write_text('{"type": "boolean"}')
    assert run("lint", str(file)) == 0
    assert capsys.readouterr().out == f"{file}: 0 findings.\n"


@pytest.mark.parametrize("command", ["sample", "lint", "show", "diff"])
def test_what_a_type_is(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["[a-z]+"] * (1 + (command == "diff"))
    assert run(command, "--help") == 0
    assert "/REGEX/" in capsys.readouterr().out
    assert run(command, *given) == 1
    assert capsys.readouterr().err.startswith("Error: TYPE [a-z]+: A type is a .json file")
    assert run(command, *("none.py:Order" for _ in given)) == 1
    assert (
        capsys.readouterr().err == "Error: TYPE none.py:Order: the file none.py does not exist.\n"
    )


def test_diff(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text(SCHEMA)
    new.write_text(SCHEMA.replace('["a", "b"]', '["a"]'))
    assert run("diff", str(new), str(old), "-n", "40") == 0
    assert "may differ" in capsys.readouterr().out
    assert run("diff", str(old), str(new)) == 1
    assert '"kind": "b"' in capsys.readouterr().out
    assert run("diff", "/a+/", "/a*/") == 0
    assert capsys.readouterr().out == "Every text of /a+/ is a text of /a*/.\n"
    assert run("diff", "/a*/", "/a+/") == 1
    assert capsys.readouterr().out == "'' is a text of /a*/ but not of /a+/.\n"


def test_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", "/<a>(b|c)*[0-9]/") == 0
    drawing = ElementTree.fromstring(capsys.readouterr().out)
    names = [element.tag.rpartition("}")[2] for element in drawing.iter()]
    assert names.count("circle") == 5 + 1  # one of five states is drawn twice
    file = tmp_path / "a.svg"
    assert run("show", "structgen.types:semver", "-o", str(file)) == 0
    ElementTree.parse(file)
    assert run("show", "/a/", "-o", str(tmp_path / "no" / "a.svg")) == 1
    assert "cannot write the file: No such file or directory." in capsys.readouterr().err
    schema = tmp_path / "s.json"
    schema.write_text(SCHEMA)
    assert run("show", str(schema)) == 1
    assert "Only regular expressions" in capsys.readouterr().err
