"""What new users of grammars run into: files of editors, other notations, odd arguments."""

from __future__ import annotations

import codecs
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from engine.walks import TINY

import structgen
from structgen import Cfg, GrammarError, JsonSchema
from structgen.check_grammar import problems
from structgen.cli import cli, main
from structgen.explain import explain

MARK = codecs.BOM_UTF8


def check(*arguments: str, stdin: bytes | None = None) -> tuple[int, str]:
    result = CliRunner().invoke(
        cli, ["grammars", "check", *arguments], input=stdin, standalone_mode=False
    )
    assert result.exception is None, result.exception
    return result.return_value, result.output


@pytest.mark.parametrize("name", ["e.gbnf", "e.ebnf", "e.lark", "e.txt", "-"])
@pytest.mark.parametrize("content", [b"", b"\n", b"hello\n", MARK, b"# nothing\n"])
@pytest.mark.parametrize("dialect", [None, "gbnf", "ebnf", "iso-ebnf", "lark"])
def test_a_text_without_rules(
    name: str, content: bytes, dialect: str | None, tmp_path: Path
) -> None:
    file = tmp_path / name
    if name != "-":
        file.write_bytes(content)
    where = name if name == "-" else str(file)
    arguments = [where] if dialect is None else [where, "--dialect", dialect]
    code, output = check(*arguments, stdin=content)
    assert code == 1
    assert re.search(r"\((read as .*)?; --dialect says otherwise\): |: 1 error|: 2 errors", output)
    assert "error: " in output
    assert "dialect=" not in output
    if not content.strip(MARK + b"\n"):
        assert "The grammar has no rules. A rule is written" in output
        assert output.count("error: ") == 1


@pytest.mark.parametrize(
    ("suffix", "text", "used"),
    [
        (".gbnf", 'root ::= "a" {}\n', "b"),
        (".lark", 'start: "a" {}\n', "b"),
        (".ebnf", "list ::= 'a' {}\n", "b"),
        (".txt", "root = 'a', {};\n", "b"),
        (".txt", 'root ::= "a" {}\n', "b"),
    ],
)
def test_a_byte_order_mark_is_no_part_of_a_grammar(
    suffix: str, text: str, used: str, tmp_path: Path
) -> None:
    file = tmp_path / f"g{suffix}"
    good, bad = text.format('"a"'), text.format(used)
    file.write_bytes(MARK + good.encode())
    assert check(str(file)) == (0, f"{file}: 0 errors, 0 warnings.\n")
    assert check("-", stdin=MARK + good.encode())[0] == 0
    assert structgen.compile(Cfg(file), TINY).allows("aa")
    assert Cfg("\ufeff" + good) == Cfg(good)
    assert structgen.compile(Cfg("\ufeff" + good), TINY).allows("aa")
    (problem,) = problems("\ufeff" + bad)
    column = bad.index(used) + 1
    assert f"at line 1, column {column}\n  {bad.strip()}\n {' ' * column}^" in problem.message
    file.write_bytes(MARK + bad.encode())
    with pytest.raises(GrammarError) as error:
        structgen.compile(Cfg(file), TINY)
    assert (error.value.line, error.value.column) == (1, column)


def test_a_byte_order_mark_in_a_file_that_is_imported(tmp_path: Path) -> None:
    main_file, part, deep = (tmp_path / f"{name}.lark" for name in ("main", "part", "deep"))
    main_file.write_bytes(MARK + b"%import .part.word\nstart: word\n")
    part.write_bytes(MARK + b'%import .deep.A\nword: A "b"\n')
    deep.write_bytes(MARK + b'A: "a"\n')
    assert structgen.compile(Cfg(main_file), TINY).allows("ab")
    assert check(str(main_file)) == (0, f"{main_file}: 0 errors, 0 warnings.\n")
    part.write_bytes(MARK + b"word: b\n")
    code, output = check(str(main_file))
    assert code == 1
    assert "Rule 'b' used but not defined" in output
    assert "at line 1, column 7\n" in output


def test_a_byte_order_mark_before_a_schema(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = {"type": "boolean"}
    file = tmp_path / "s.json"
    file.write_bytes(MARK + json.dumps(schema).encode())
    assert JsonSchema(file.read_text(encoding="utf-8")).schema == schema
    assert JsonSchema("\ufefftrue").schema is True
    with pytest.raises(SystemExit):
        main(["generate", "x", "--schema", str(file), "--model", "no-such-model"])
    assert "no-such-model" in capsys.readouterr().err


def test_what_is_read_is_told_outside_of_what_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(GrammarError) as error:
        structgen.compile(Cfg("start: /a(/"), TINY)
    lines = str(error.value).splitlines()
    assert lines[0].endswith("at position 1. (Read as Lark; dialect= says otherwise.)")
    assert lines[1:] == [
        "  a(", "   ^", "  at line 1, column 8", "  start: /a(/", "         ^",
    ]  # fmt: skip
    file = tmp_path / "g.txt"
    file.write_text("start: /a(/")
    code, output = check(str(file))
    assert code == 1
    assert "dialect=" not in output
    assert output.endswith(
        f"{file} (read as Lark; --dialect says otherwise): 1 error, 0 warnings.\n"
    )
    code, output = check(str(file), "--dialect", "lark")
    assert output.endswith(f"{file}: 1 error, 0 warnings.\n")
    with pytest.raises(SystemExit):
        main(["generate", "x", "--grammar", str(file)])
    assert "(Read as Lark; --dialect says otherwise.)\n" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["generate", "x", "--grammar", str(file), "--dialect", "gbnf"])
    assert "must come ::=" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["generate", "x", "--dialect", "gbnf"])
    assert "pass --grammar, too" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "rules"),
    [('start: "a"\nb: "c"\n', "b, start"), ('root ::= "a"\nb ::= "c"\n', "root, b")],
)
def test_a_start_that_there_is_not_makes_nothing_unused(text: str, rules: str) -> None:
    (problem,) = problems(text, start="typo")
    assert problem.is_error
    assert f"no rule 'typo' to start with. Rules: {rules}." in problem.message
    assert [p.line for p in problems(text)] == [2]
    assert len(problems('root: "a"\nb: "c"\n')) == 1


def test_one_is_no_plural() -> None:
    code, output = check("-", stdin=b'start: "a"\nb: "c"\n')
    assert (code, output.splitlines()[-1]) == (0, "standard input: 0 errors, 1 warning.")
    (row,) = explain(structgen.types.lower(Cfg('start: "a"')).grammar, {}).rows
    assert row.note == "1 rule over 1 terminal"


def test_the_library_is_checked_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check("sql-select") == (0, "sql-select: 0 errors, 0 warnings.\n")
    for name, says in (
        ("sql-selct", "sql-selct: there is no such file. There is no grammar called 'sql-selct'. "
         "Did you mean sql-select"),
        ("nope.lark", "nope.lark: there is no such file."),
        ("no/such", "no/such: there is no such file."),
        (str(tmp_path), "cannot be read"),
    ):  # fmt: skip
        with pytest.raises(SystemExit):
            main(["grammars", "check", name])
        assert says in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    (tmp_path / "json").write_text('root ::= "a"\n')
    assert check("json") == (0, "json: 0 errors, 0 warnings.\n")
