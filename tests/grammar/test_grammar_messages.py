"""What new users of grammars run into: files of editors, other notations, odd arguments."""

from __future__ import annotations

import codecs
import json
import pickle
import random
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from engine.walks import TINY

import structgen
from structgen import Cfg, JsonSchema, OutputTypeError, Regex, Vocabulary
from structgen.cli.commands import cli, main
from structgen.cli.generation import DIALECTS
from structgen.constraint.check_grammar import problems
from structgen.constraint.explain import explain
from structgen.errors import GrammarError
from structgen.grammar import cfg

MARK = codecs.BOM_UTF8
BYTES = Vocabulary.from_tokens([bytes([b]) for b in range(256)] + [b""], [256])


def check(*arguments: str, stdin: bytes | None = None) -> tuple[int, str]:
    result = CliRunner().invoke(
        cli, ["grammars", "check", *arguments], input=stdin, standalone_mode=False
    )
    assert result.exception is None, result.exception
    return result.return_value, result.output


def test_the_command_line_names_every_dialect() -> None:
    assert list(DIALECTS.choices) == list(cfg.DIALECTS)


@pytest.mark.parametrize("name", ["e.gbnf", "e.ebnf", "e.lark", "e.txt", "-"])
@pytest.mark.parametrize("content", [b"", b"\n", b"hello\n", MARK, b"# nothing\n"])
@pytest.mark.parametrize("dialect", [None, "gbnf", "ebnf", "lark"])
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
    assert re.search(
        r"\((read as .*)?; change this with --dialect\): |: 1 error|: 2 errors", output
    )
    assert "error: " in output
    assert "dialect=" not in output
    if not content.strip(MARK + b"\n"):
        assert "The grammar has no rules. Write a rule" in output
        assert output.count("error: ") == 1


@pytest.mark.parametrize(
    ("suffix", "text", "used"),
    [
        (".gbnf", 'root ::= "a" {}\n', "b"),
        (".lark", 'start: "a" {}\n', "b"),
        (".ebnf", "list ::= 'a' {}\n", "b"),
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
    assert lines[0].endswith("at position 1. (Read as Lark. Pass dialect= for another notation.)")
    assert lines[1:] == [
        "  a(", "   ^", "  at line 1, column 8", "  start: /a(/", "         ^",
    ]  # fmt: skip
    file = tmp_path / "g.txt"
    file.write_text("start: /a(/")
    code, output = check(str(file))
    assert code == 1
    assert "dialect=" not in output
    assert output.endswith(
        f"{file} (read as Lark; change this with --dialect): 1 error, 0 warnings.\n"
    )
    code, output = check(str(file), "--dialect", "lark")
    assert output.endswith(f"{file}: 1 error, 0 warnings.\n")
    with pytest.raises(SystemExit):
        main(["generate", "x", "--grammar", str(file)])
    assert "(Read as Lark. Pass dialect= for another notation.)\n" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["generate", "x", "--grammar", str(file), "--dialect", "gbnf"])
    assert "must be followed by ::=" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["generate", "x", "--dialect", "gbnf"])
    assert "--dialect requires --grammar" in capsys.readouterr().err


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
    for name in ("sql-select", "unified-diff"):
        assert check(name) == (0, f"{name}: 0 errors, 0 warnings.\n")
    for name, says in (
        ("sql-selct", "sql-selct: the file does not exist. There is no grammar called 'sql-selct'. "
         "Did you mean sql-select"),
        ("nope.lark", "nope.lark: the file does not exist"),
        ("no/such", "no/such: the file does not exist"),
        (str(tmp_path), "Cannot read"),
    ):  # fmt: skip
        with pytest.raises(SystemExit):
            main(["grammars", "check", name])
        assert says in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    (tmp_path / "json").write_text('root ::= "a"\n')
    assert check("json") == (0, "json: 0 errors, 0 warnings.\n")


def told(text: str, dialect: str | None = None) -> list[tuple[int, int, str]]:
    """Line, column and message of each error; all of them have a caret there."""
    out = []
    for problem in problems(text, dialect=dialect):
        if not problem.is_error:
            continue
        message, line, column, shown, caret = re.fullmatch(
            r"(.*)\n  at line (\d+), column (\d+)\n  (.*)\n  ( *)\^", problem.message, re.DOTALL
        ).groups()  # type: ignore[union-attr]
        assert problem.line == int(line)
        assert shown == text.split("\n")[int(line) - 1]
        assert len(caret) == int(column) - 1
        out.append((int(line), int(column), message))
    return out


NOTATIONS = [
    ('root ::= [z-a] | "a"{3,1}', "gbnf", (1, 10, "Swap")),
    ('root ::= [a-z] | "a"{3,1}', "gbnf", (1, 21, "Write {1,3}")),
    ('root ::= "\\q"', "ebnf", (1, 11, "Unknown escape \\q")),
    ("root ::= x", "ebnf", (1, 10, "'x' is used")),
    ("root ::= a = b", "gbnf", (1, 12, "found '='")),
    ('root ::= "a" ) b', "gbnf", (1, 14, "closes nothing")),
    ("root ::= (= 'b' c) d", "ebnf", (1, 10, "lookahead")),
    ('root ::= (= "b") a', "gbnf", (1, 10, "(= …), is XGrammar syntax")),
    (
        'term ::= factor | "a" - \nfactor ::= "z"',
        None,
        (1, 23, "- must be followed by what is excluded"),
    ),
    ("a ::= 'b' | ('c' - ) ", "ebnf", (1, 18, "- must be")),
    ("a ::= 'b' -", "ebnf", (1, 11, "- must be")),
    ("root ::= 'a' b", "gbnf", (1, 10, 'in double quotes: "text"')),
    ("root ::= [a-z] - [b] c", "gbnf", (1, 16, "Only EBNF excludes")),
    ('root ::= "a", b', "gbnf", (1, 13, "without commas")),
    ("root ::= !x b", "gbnf", (1, 10, "as !<name>")),
    ("root ::= {b}", "gbnf", (1, 10, "as (…)*")),
    ("root ::= b{,3}", "gbnf", (1, 11, "as {0,3}")),
    ("root ::= 'b' }", "ebnf", (1, 14, "found '}'")),
    ("root ::= a . b", "ebnf", (1, 12, "Any character is [^]")),
    ('root ::= a\n  b "x"\nc ::= d', "gbnf", (2, 3, "In GBNF, a rule ends with its line")),
    ("root ::= TagDispatch(x)", "ebnf", (1, 10, "TagDispatch(…) is an XGrammar macro")),
    ("root ::= 'x' Token(12)", "ebnf", (1, 14, "Pass dialect='xgrammar'")),
    ("root ::= a\na[max_tokens=3] ::= b", "ebnf", (2, 2, "[max_tokens=3], are XGrammar syntax")),
    ("root := a", "gbnf", (1, 6, "must be followed by ::=, as in root ::= …")),
    ('root ::= b\nb = "b"', "gbnf", (2, 1, "this does not begin a rule: name ::= …")),
    ("<b> ::= <c> | x\n<c> ::= 'd'", None, (1, 1, "without angle brackets")),
    (r"root ::= [\d]", "gbnf", (1, 11, "[0-9]")),
    (r"root ::= [\w]", "gbnf", (1, 11, "[A-Za-z0-9_]")),
    (r'root ::= "\b"', "gbnf", (1, 11, "x08")),
    (r"a ::= '\x41' '\x41B'", "ebnf", (1, 15, "uHHHH")),
    (r"a ::= '\xZ'", "ebnf", (1, 8, "2 hex")),
    (r"a ::= '\U99999999'", "ebnf", (1, 8, "no character")),
    ('root ::= %json {"a" b\nc ::= d', "gbnf", (1, 21, "JSON Schema")),
    ("root ::= < a", "gbnf", (1, 10, "without spaces")),
    ("root ::= <[2-1]>", "gbnf", (1, 10, "several by their ids")),
    ('root ::= "a" // b', "gbnf", (1, 14, "comment begins with #")),
    ('root ::= "a" /* b */', "gbnf", (1, 14, "comment begins with #")),
    ("root ::= \\d+ a", "gbnf", (1, 10, "in literals and classes only")),
    ("root ::= a.b", "ebnf", (1, 11, "no dots")),
    ("root ::= [ wfc: x ] b", "ebnf", (1, 10, "constraint")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "dialect", "expected"), NOTATIONS)
def test_the_first_mistake_is_told_where_it_is(
    text: str, dialect: str | None, expected: tuple[int, int, str]
) -> None:
    ((line, column, message),) = told(text, dialect)
    assert (line, column) == expected[:2]
    assert expected[2] in message
    with pytest.raises(GrammarError) as error:
        structgen.compile(Cfg(text, dialect=dialect), TINY)
    assert (error.value.line, error.value.column) == expected[:2]


def test_every_text_is_read_or_refused() -> None:
    """Whatever stands there; and what is refused is refused at a place in it, if it has rules."""
    rng = random.Random(7)
    parts = ["root ::= ", "a", " ::= ", '"x"', "'y'", "[a-z]", "(", ")", "|", "*", "{1,2}", "{,2}",
             "-", "<t>", "<", ";", "\n", " ", "#x41", "%json", "{}", "\\", '"', "[", "]", "=", ":",
             "(=", "Token(", "? x ?", "?", " = ", "2 * ",
             "(/", "/)", "(*", "*)", ",", "/*", "!", ".", "<b> ::=", "a[x] ::="]  # fmt: skip
    unplaced = set()
    for _ in range(3_000):
        text = "".join(rng.choices(parts, k=rng.randint(1, 12)))
        for dialect in ("gbnf", "ebnf"):
            try:
                cfg.parse(text, None, dialect)
            except GrammarError as error:
                if error.line is None:
                    unplaced.add(str(error)[: len("The grammar has no rule")])
    assert unplaced == {"The grammar has no rule"}


def test_escapes_of_xgrammar() -> None:
    constraint = structgen.compile(
        Cfg(r'a ::= "\a\b\e\f\v\0\"\/\-" [\n\]\-]', dialect="ebnf"), BYTES
    )
    assert constraint.allows('\a\b\x1b\f\v\0"/-]')
    assert constraint.allows('\a\b\x1b\f\v\0"/-\n')
    assert not constraint.allows('\a\b\x1b\f\v\0"/-n')


LARK = [
    ('start: "a" | "b" ;', [(1, 18, "remove the ;")]),
    ('start: x\nx[capture]: "a"', [(2, 2, "Begin the grammar with %llguidance {}")]),
    ('start := "a" b', [(1, 8, "name: … in Lark, name ::= … in GBNF or EBNF")]),
    ('start -> "a"\n', [(1, 7, "Write a rule as name: … in Lark")]),
    ('{"type": "object"}', [(1, 1, "This is JSON. For a JSON Schema")]),
    ("start ← b\n", [(1, 7, "Write a rule as name: … in Lark")]),
    ('start ::= "a"', [(1, 8, "dialect='ebnf'")]),
    ('<b> ::= "a"', [(1, 6, "names without: name: … in Lark, name ::= … in GBNF or EBNF")]),
    (
        "grammar Foo;\nstart : term ('+' term)* ;\nterm : INT ;\nINT : [0-9]+ ;\n",
        [
            (1, 9, "This is ANTLR"),
        ],
    ),
    ('Start: "a"', [(1, 1, "'Start' is neither. Write start or START.")]),
    ('start: myRule "b"\nmyRule: "x"', [(2, 1, "my_rule or MY_RULE")]),
    ('start: {"a"}', [(1, 8, "Lark repeats with * and +")]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), LARK)
def test_other_notations_in_lark(text: str, expected: list[tuple[int, int, str]]) -> None:
    found = told(text, "lark")
    assert [place[:2] for place in found] == [place[:2] for place in expected], found
    for (_, _, message), (_, _, says) in zip(found, expected, strict=True):
        assert says in message


def test_what_terminals_may_not_look_at_is_told_where_it_stands() -> None:
    rest = '\nlost: "x"\n'
    for text, place, says in (
        ('start: "c" /\\bx\\/y/', (1, 12), "in terminal '\\\\bx\\\\/y' may depend"),
        ('start: A\nA: "a" | /\\bfoo/', (2, 10), "terminal A may depend on text before"),
        ("start: B\nB: /(?<!x)b/i", (2, 4), "terminal B may depend on text before"),
        ("start: C\nC: /^c/", (2, 4), "Terminal C has ^"),
    ):
        ((line, column, message),) = told(text + rest)
        assert (line, column) == place
        assert says in message
    text = "start: C\nC: /^c/"
    for bad, line in ((text, None), ('start: A\n%ignore /\\bx/\nA: "a"', 2)):
        with pytest.raises(OutputTypeError, match=r"at line \d, column \d+\n.*\n *\^$") as error:
            structgen.compile(Cfg(bad), TINY)
        assert line is None or f"at line {line}, column 9" in str(error.value)


def test_lines_are_counted_by_line_feeds() -> None:
    (place,) = told('root ::= "a\x0c\u2028" |\n  b')
    assert place[:2] == (2, 3)


def test_the_name_of_a_file_is_no_grammar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "g").mkdir()
    (tmp_path / "g" / "calc.txt").write_text('start: "a"')
    monkeypatch.chdir(tmp_path)
    for name in ("g/calc.txt", str(tmp_path / "g" / "calc.txt")):
        with pytest.raises(GrammarError, match=re.escape(f"Write Cfg(Path({name!r})).")):
            Cfg(name)
        assert structgen.compile(Cfg(Path(name)), TINY).allows("a")


def test_a_compiled_pattern_is_a_regex() -> None:
    assert Regex(re.compile("a+")) == Regex("a+")
    assert Regex(re.compile("a+", re.I)) == Regex("a+", re.IGNORECASE)
    assert Regex(re.compile("(?i)a+")) == Regex("(?i)a+", re.I)
    assert Regex(re.compile("a", re.I), re.I) == Regex("a", re.I)
    assert Regex(pattern="a", flags=re.I) == Regex("a", re.I)
    assert pickle.loads(pickle.dumps(Regex("a", re.I))) == Regex("a", re.I)
    assert structgen.compile(Regex(re.compile("A+", re.I)), TINY).allows("aa")
    assert (Regex(re.compile("a")) | "b") == (Regex("a") | "b")
    with pytest.raises(OutputTypeError, match=r"Pass all flags to re\.compile"):
        Regex(re.compile("a"), re.I)
    with pytest.raises(OutputTypeError, match=r"got bytes. Call .decode\(\) on it"):
        Regex(re.compile(b"a"))  # type: ignore[arg-type]
    with pytest.raises(OutputTypeError) as error:
        Regex("a", flags="im")  # type: ignore[arg-type]
    assert str(error.value).endswith("got 'im'. Write re.I | re.M.")


def test_names_that_are_refused_are_not_suggested() -> None:
    tokens = [bytes([b]) for b in range(256)]
    named = {"<|eot_id|>": 256, "<|python_tags|>": 257, "<a>": 97}

    def message(grammar: str, named: dict[str, int]) -> str:
        vocabulary = Vocabulary.from_tokens(
            [*tokens, b"", b""], [256], special_token_ids=[257], named_tokens=named
        )
        with pytest.raises(GrammarError) as error:
            structgen.compile(Cfg(grammar), vocabulary)
        return str(error.value)

    assert message("start: <|python_tag|>", named).endswith("Did you mean <|python_tags|>?")
    assert message("start: <b>", named).endswith("Special tokens: <|python_tags|>.")
    assert "end the sequence" in message("start: <|eot|>", {"<|eot_id|>": 256})
    assert "has no names of tokens" in message("start: <|eot|>", {})


def test_of_rules_that_nothing_uses_no_more_is_told() -> None:
    text = 'start: "a"\nj: %json {"type": "objekt"}\nloop: loop "y"\nfine: "b" | fine "c"\n'
    found = problems(text)
    assert [(p.line, p.is_error) for p in found] == [(2, False), (3, False), (4, False)]
    assert all("never used" in p.message for p in found)
    (warning,) = problems('root ::= "a"\nloop ::= loop "y"\n')
    assert "'loop' is defined but never used" in warning.message
