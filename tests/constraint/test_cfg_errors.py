"""Bad grammars: what is said, and where."""

from __future__ import annotations

import re
from pathlib import Path

import lark
import pytest
from click.testing import CliRunner
from engine.walks import TINY

import structgen
from structgen import Cfg, OptionError, UnsupportedFeature
from structgen.cli.commands import cli
from structgen.constraint.check_grammar import problems
from structgen.errors import CompileLimitExceeded, GrammarError, PatternError, Unsatisfiable


def refused(grammar: str, kind: type[Exception], start: str | None = None) -> str:
    with pytest.raises(kind) as error:
        structgen.compile(Cfg(grammar, start), TINY)
    return str(error.value)


@pytest.mark.parametrize(
    ("grammar", "line", "column", "says"),
    [
        ('start: a b\na: "c"\n', 1, 10, "'b' used but not defined"),
        ('start: a\na: "c\n', 2, 4, "malformed"),
        ("start: A\nB: A\nA: /[a/\n", 3, 4, "unterminated character set"),
        ("start: A\nA: /(a)\\1/\n", 2, 4, "backreference"),
        ("start: A\nA: /a*/\n", 2, 4, "empty text"),
        ('start: "z".."a"\n', 1, 8, "bad character range"),
        ("start: A\n%declare A\n", 1, 8, "never defined"),
        ("start: (\n", 1, 9, "Unclosed parenthesis."),
    ],
)
def test_malformed_grammars_name_the_place(grammar: str, line: int, column: int, says: str) -> None:
    with pytest.raises(GrammarError) as error:
        structgen.compile(Cfg(grammar), TINY)
    assert (error.value.line, error.value.column) == (line, column)
    assert says in str(error.value)
    assert "^" in str(error.value)


@pytest.mark.parametrize(
    ("grammar", "says"),
    [
        ("sql-select", "Write Cfg.named('sql-select')."),
        ("", "The grammar has no rules. Write a rule in lower case: start:"),
        ('A: "a"', "The grammar has no rules"),
        (
            "start: NUM",
            "Terminal 'NUM' used but not defined (in rule start). Did you mean %import c",
        ),
        ("start: NUM", "common.NUMBER? Else define it: NUM: /…/, or pass it: Cfg(..., terminals="),
        (
            "start: A\nA: INTT",
            "Terminal 'INTT' used but not defined. Did you mean %import common.INT",
        ),
        ("start: QQ", "(in rule start). Define it: QQ: /…/"),
        ("start: nam\nname: /x/", "Did you mean name? Else define it: nam: ... (Read as"),
        ("start: qq", "Define it: qq: ... (Read as Lark. "),
        ('start: "a"{2,3}', "with numbers after ~: a ~ 2, b ~ 2..3. (Read as Lark."),
        ("start: a{2}\na: /x/", "with numbers after ~: a ~ 2, "),
        ("root ::= x", "Define it: x ::= ... (Read as GBNF. Pass dialect= for another notation.)"),
    ],
)
def test_mistakes_come_with_what_was_probably_meant(grammar: str, says: str) -> None:
    assert says in refused(grammar, GrammarError)


def test_a_dialect_that_was_chosen_is_not_explained() -> None:
    with pytest.raises(GrammarError) as error:
        structgen.compile(Cfg("start: b", dialect="lark"), TINY)
    assert "Read as" not in str(error.value)
    assert (error.value.line, error.value.column) == (1, 8)
    assert len(problems("root ::= qq | rr")) == 1


def test_what_can_never_be_written() -> None:
    assert "never be completed" in refused('start: "(" start ")"', Unsatisfiable)
    assert "always consume what must come after them" in refused(
        'start: A "a"\nA: /a+/', Unsatisfiable
    )
    assert "no rule 'root'" in refused('start: "a"', GrammarError, "root")


def test_assertions_that_cannot_be_enforced() -> None:
    refused("start: A\nA: /^a/", PatternError)
    assert "before the terminal" in refused("start: A\nA: /(?<!b)a/", UnsupportedFeature)
    assert "before the terminal" in refused(r"start: A" "\n" r"A: /\ba/", UnsupportedFeature)
    structgen.compile(Cfg('start: A "b"?\nA: /"(.|x)*?(?<!x)"|a\\b/'), TINY)


def test_an_assertion_that_never_holds_matches_nothing() -> None:
    assert "never be completed" in refused("start: D\nD: /(?!)/", Unsatisfiable)
    (warning,) = problems('start: D | "x"\nD: /(?!(a|))|b(?!)/\n')
    assert "D matches no text" in warning.message
    constraint = structgen.compile(Cfg("start: D\nD: /(?!)|ab/"), TINY)
    assert constraint.allows("ab")
    for pattern in ("(?!a)", "(?=a)", "(?!)?", "a*"):
        assert "empty text" in refused(f"start: D\nD: /{pattern}/", GrammarError)


@pytest.mark.parametrize(
    ("grammar", "line", "column"),
    [
        ("start ::= 'a' #xZZ\n", 1, 15),
        ("start ::= 'a' | #x\n", 1, 17),
        ("start ::= 'a'\n\n#xylophone\nb ::= 'b'", 3, 1),
        ("#x\nstart ::= 'a'", 1, 1),
    ],
)
def test_a_code_without_digits_is_no_comment(grammar: str, line: int, column: int) -> None:
    with pytest.raises(GrammarError, match="put a space after the #") as error:
        structgen.compile(Cfg(grammar, dialect="ebnf"), TINY)
    assert (error.value.line, error.value.column) == (line, column)
    structgen.compile(Cfg("# x\nstart ::= 'a' # x\n#y\n| #x62#X"), TINY)
    structgen.compile(Cfg('#xy\nroot ::= "a" #x'), TINY)


def test_arguments() -> None:
    with pytest.raises(GrammarError, match="takes a grammar as a str"):
        Cfg(b"start: 'a'")  # type: ignore[arg-type]
    with pytest.raises(GrammarError, match="There is no grammar dialect 'bnf'"):
        Cfg('start: "a"', dialect="bnf")
    with pytest.raises(GrammarError, match="Cannot read"):
        Cfg("no/such/file.lark")
    with pytest.raises(OptionError, match="sql-select"):
        Cfg.named("sql-selects")


def test_paths_and_names(tmp_path: Path) -> None:
    (tmp_path / "part.lark").write_text('word: "a"+\n', encoding="utf-8")
    file = tmp_path / "whole.lark"
    file.write_text('%import .part.word\nbegin: word "."\n', encoding="utf-8")
    for argument in (file, str(file)):
        output = structgen.types.lower(Cfg(argument, start="begin"))
        assert output.grammar == structgen.types.lower(Cfg(file, start="begin")).grammar
        assert output.parse("aa.") == "aa."
    assert Cfg(file) == Cfg(str(file))
    assert repr(Cfg.named("json")).startswith("Cfg('// JSON texts")


def test_warnings_are_told_all_at_once(tmp_path: Path) -> None:
    text = 'start: a | never | D\na: "c"\nnever: never "x"\nD: /x(?!)/\nlost: a\nLOST: "l"\n'
    found = problems(text)
    assert [(p.line, p.is_error) for p in found] == [(3, False), (4, False), (5, False), (6, False)]
    messages = [p.message for p in found]
    for message, part in zip(messages, ("completed", "no text", "'lost'", "'LOST'"), strict=True):
        assert part in message
    assert problems('start: "a"') == []
    assert [p.is_error for p in problems('start: "(" start')] == [True]
    assert [p.is_error for p in problems('start: A "a"\nA: /a+/')] == [True]
    assert [p.line for p in problems('root ::= "a\n')] == [1]

    file = tmp_path / "g.lark"
    file.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(cli, ["grammars", "check", str(file)])
    assert result.output.count("warning: line") == 4
    assert "0 errors, 4 warnings" in result.output
    file.write_text("start: b\n", encoding="utf-8")
    result = CliRunner().invoke(cli, ["grammars", "check", str(file)], standalone_mode=False)
    assert result.return_value == 1


@pytest.mark.parametrize(
    ("text", "dialect", "place"),
    [
        ('start: T "x" | "y"\nT: U V\nU: /a(?=b)/\nV: "c"\n', "lark", (2, 1)),
        ('start: "a" | /x(?!)/\n', "lark", (1, 14)),
        ('start: %json {"type": "strin"}\n', "lark", (1, 8)),
        ('start: %json {"type": "string", "pattern": "["}\n', "lark", (1, 8)),
        ('start: %json {"type": "string", "minLenght": 3}\n', "lark", (1, 8)),
        ('start: %json {"minLength": 3, "maxLength": 1, "type": "string"}\n', "lark", (1, 8)),
        ("start: T\nT: /(?<=x)a/\n", "lark", (2, 4)),
        ("start: T\nT: /(?>a|ab)c/\n", "lark", (2, 4)),
        ('start: "a" N N\nN: /[a-z]+/\n', "lark", (1, 1)),
        ('start: never "a"\nnever: never "x"\n', "lark", (1, 1)),
        ('start: "a"\n%ignore X\n%declare X\n', "lark", (2, 9)),
        ('root ::= "a" %json {"type": "strin"}\n', "gbnf", (1, 14)),
        ("start ::= 'a' #xZZ\n", "ebnf", (1, 15)),
        ("start ::= 'a' - item\nitem ::= 'x' item 'y' | 'z'\n", "ebnf", (1, 15)),
    ],
)
def test_what_is_told_has_its_place(text: str, dialect: str, place: tuple[int, int]) -> None:
    line, column = place
    (problem,) = problems(text, dialect=dialect)
    assert re.search(rf"at line {line}, column {column}\n.*\n *\^$", problem.message)


def test_an_import_of_nothing_is_an_error() -> None:
    with pytest.raises(GrammarError, match="NOPE is imported here, but") as error:
        structgen.compile(Cfg("start: NOPE\n%import common.NOPE\n"), TINY)
    assert (error.value.line, error.value.column) == (2, 16)
    assert problems("start: A B\n%import common.DIGIT -> A\n%import lark.TOKEN -> B\n") == []


def test_unknown_keywords_of_embedded_schemas_are_warned_of() -> None:
    text = """start: %json {"propertys": {}, "properties": {"a": {"minLenght": 1, "format": "dat"}}}
  | %json {"title": "a", "x-mine": 1, "type": "string"} "x"
"""
    found = problems(text)
    assert [(p.line, p.is_error) for p in found] == [(1, False)] * 3 + [(2, False)]
    for problem, part in zip(found, ("did you mean properties?", "minLength?", "'date'?", "x-mine"),
                             strict=True):  # fmt: skip
        assert part in problem.message


def test_what_is_wrong_with_what_is_embedded() -> None:
    for text, part in (
        ("start: C\nC: %json {}", "%json cannot be part"),
        ("start: C\nC: <|x|>", "<|x|> cannot be part"),
        ('start: C\n%declare C\nc: %json {"a": }', "must be followed by a JSON Schema"),
        (
            'start: %json {"type": "strin"}',
            "line 1, column 8 cannot be used: 'type' must be one of",
        ),
        (
            'start: %json {"const": 1}\n  | %json {"enum": [1], "type": "string"} never\n'
            'never: never "a"\nlost: "b"',
            "line 2, column 5 cannot be used: no JSON value",
        ),
    ):
        assert part in refused(text, GrammarError)
        (problem,) = problems(text)
        assert problem.is_error
        assert part in problem.message


@pytest.mark.parametrize(
    "text",
    [
        'start: A\nA: "a" x\nx: "b"',
        '%declare A\nstart: A\nA: "a"',
        'start: A\nA: _z\n_z: "q"',
        'start: A\nA: "a"\n? [ x\n%declare A',
        'start: A\nA: p{"a"}\np{x}: x',
        "start{x}: x",
        '%declare a\nstart: "a"',
        '%import common.INT\n%import common.INT -> N\nstart: INT | "x" N',
        '%ignore C -> x\nC: "c"\nstart: "a"',
        'start: "a\0b"',
    ],
)
def test_what_lark_refuses_is_refused_and_told_once(text: str) -> None:
    with pytest.raises((lark.exceptions.LarkError, AssertionError, AttributeError)):
        lark.Lark(text, parser="earley")
    with pytest.raises(GrammarError):
        structgen.compile(Cfg(text), TINY)
    messages = [problem.message.splitlines()[0] for problem in problems(text)]
    assert messages
    assert len(messages) == len(set(messages))


def test_a_carriage_return_in_a_literal_is_what_lark_makes_of_it() -> None:
    constraint = structgen.compile(Cfg('start: "a\rb"'), TINY)
    assert constraint.allows("a\nb")
    assert not constraint.allows("a\rb")


def test_what_is_imported_from_a_file_is_read_anew(tmp_path: Path) -> None:
    for letter in "ab":
        (tmp_path / "other.lark").write_text(f'X: "{letter}"\n')
        (tmp_path / "main.lark").write_text("start: X\n%import.other.X\n")
        constraint = structgen.compile(Cfg(tmp_path / "main.lark"), TINY)
        assert [other for other in "ab" if constraint.allows(other)] == [letter]


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ('start: A\nA: "a" x\nx: "b"', (2, 8), "aren't allowed inside terminals ('x' in A). Make"),
        ('start: A\nA: p{"a"}\np{x}: x', (2, 4), "Templates aren't allowed inside terminals"),
        ("start: p\np{x}: x", (1, 8), "Use a template with arguments, p{…}"),
        ("start{x}: x", (1, 1), "Remove the parameters"),
        ('start: p{"a", "b"}\np{x}: x', (1, 8), "for p (expected 1, got 2)"),
        ('start: q{"c"}', (1, 8), "Rule 'q' used but not defined (in rule start). Define it"),
        ('start: r{"d"}\nr: "x"', (1, 8), "of a rule without parameters"),
        ('start: "ab".."c"', (1, 8), "from one character to another, without flags"),
        ('start: "d"i.."e"', (1, 8), "from one character to another, without flags"),
        ('%override q: "a"\nstart: x', (1, 11), "nonexisting rule q. Write it without %override"),
        ('%extend R: "a"\nstart: x', (1, 9), "Define it above, or import it"),
        ("%import commn.INT\nstart: INT", (1, 9), "Did you mean common?"),
        ("%import .nope.INT -> B\nstart: B", (1, 10), "this grammar is a string"),
        ("%import common\nstart: x", (1, 9), "Write %import common.NAME"),
        ("%import common.NUMBR\nstart: NUMBR", (1, 16), "not define it. Did you mean NUMBER"),
        ("%import common.INT -> n\nstart: n", (1, 23), "import a terminal in upper case"),
        ("start: /(/ B\nB: /x/", (1, 8), "missing )"),
        ('start: A\nA: "b" -> x', (2, 8), "Remove -> and the name"),
        ('start: A\nA: "a" B\nB: C\nC: "c" B', (3, 1), "Recursion in terminal 'B'"),
        ('%declare C x\nstart: C "a"', (1, 12), "Only terminals can be declared"),
        ('%declare C C\nstart: C "a"', (1, 10), "defined more than once"),
        ("%ignore /b/\nstart: /a\nb/", (2, 8), "add x to the pattern"),
        (r'start: "\x" "\n"', (1, 8), "has an invalid escape"),
        ('start: "x"\ny: "a" "b\0"', (2, 8), r"\x00 for NUL"),
        ('p{a, start}: a\nstart: p{"a", "b"}', (2, 1), "conflicts with rule start"),
        ("start: 'a'", (1, 8), "in double quotes"),
        ('start: "x', (1, 8), "end on its line"),
        ("start: /[a", (1, 8), "end with a slash"),
        ('start: "x"{2,}', (1, 11), "with numbers after ~"),
        ('start: "a" -> b "c"', (1, 17), "Unexpected '\"c\"'. Expected: the end of the line, |"),
    ],
)
def test_a_mistake_is_told_where_it_is(text: str, place: tuple[int, int], says: str) -> None:
    with pytest.raises(GrammarError) as error:
        structgen.compile(Cfg(text, dialect="lark"), TINY)
    assert (error.value.line, error.value.column) == place, error.value
    assert says in str(error.value)
    assert str(error.value).endswith("\n" + " " * (place[1] + 1) + "^")
    (problem,) = [p for p in problems(text, dialect="lark") if p.is_error]
    assert (problem.message, problem.line) == (str(error.value), place[0])


def test_rules_in_parts_move_no_place() -> None:
    options = " ".join(f"A{i}?" for i in range(40))
    terminals = "".join(f'A{i}: "{i}."\n' for i in range(40))
    text = f"start: {options} b\n{terminals}c: )\n"
    with pytest.raises(GrammarError, match=r"Unexpected '\)'") as error:
        structgen.compile(Cfg(text, dialect="lark"), TINY)
    assert (error.value.line, error.value.column) == (42, 4)


def test_a_mistake_comes_without_warnings() -> None:
    text = 'start: a | never | {}\na: "c"\nnever: never "x"\nlost: LOST also\nLOST: /[/\nalso: a\n'
    assert [(p.line, p.is_error) for p in problems(text.format("x"))] == [(1, True)]
    warnings = [(3, False), (4, False), (5, False), (6, False)]
    assert [(p.line, p.is_error) for p in problems(text.format("a"))] == warnings
    found = problems('root ::= a\na ::= "x"\nb ::= c\nc ::= "y"\n')
    assert [(p.line, p.is_error) for p in found] == [(3, False), (4, False)]


def test_what_nothing_uses_may_use_templates_as_it_likes() -> None:
    text = 'start: p{"a"}\nlost: p\np{x}: x\n'
    lark.Lark(text, parser="earley")
    structgen.compile(Cfg(text), TINY)
    assert [p.line for p in problems(text)] == [2]


def test_mistakes_in_files_that_are_imported(tmp_path: Path) -> None:
    main, part = tmp_path / "main.lark", tmp_path / "part.lark"
    main.write_text("start: a b\n%import .part.a\n%import .part.missing -> b\n")

    def told() -> list[str]:
        found = problems(main.read_text(), path=str(main))
        assert all("^" in p.message for p in found)
        return [f"{p.line}: {p.message}" for p in found]

    part.write_text('a: "x"\nmiss: "y"\n')
    (message,) = told()
    assert message.startswith("3: b is imported here, but the grammar that it comes from does not")
    part.write_text('a: "x" c\nmissing: "y"\n')
    assert f"In {part}, which is imported: Rule 'c' used but not" in told()[0]
    part.write_text('a: "x" )\nmissing: "y"\n')
    assert f"In {part}, which is imported: The grammar is malformed: Unexpected ')'" in told()[0]
    part.write_text('a: "x" "y\nmissing: "y"\n')
    assert f"In {part}, which is imported: The grammar is malformed: Unexpected" in told()[0]
    part.write_text('a: "x"\nmissing: "y"\n%import .main.start\n')
    with pytest.raises(GrammarError, match="files import each other in a circle"):
        structgen.compile(Cfg(main), TINY)
    part.write_text('a: "x"\nmissing: "y"\n')
    assert told() == []


def test_a_text_that_lark_accepts_has_no_mistakes() -> None:
    text = """start: a{"x", B} | c{B} D y _z
a{x, z}: x+ "," z | c{x}
c{x}: x~2..3 "+" [x] -> named
  | "\\"" /[a]\\/x/ "a".."\\u00e9" "b"i
B.2: "b"i "c".."f" _C? (D | "g")~1..2
_C: /x
  y/x
D: "d"
?y.-1: "y"
!_z: "z"
%ignore " " | /\\n/
%ignore D
%extend y: "k"
%override D: "dd"
%import common.WS -> SPACE
%import python.name
%import common (INT, CNAME)
%ignore SPACE // INT
"""
    lark.Lark(text, parser="earley")
    structgen.compile(Cfg(text), TINY)
    assert [str(p) for p in problems(text) if p.is_error] == []


@pytest.mark.parametrize("depth", [200, 300, 1200])
@pytest.mark.parametrize("terminal", ["A: /{}/", "A: /x/ /{}/"])
def test_patterns_nested_too_deeply_are_told(terminal: str, depth: int) -> None:
    pattern = "(b|" * depth + "a" + ")" * depth
    with pytest.raises(CompileLimitExceeded, match="nested too deeply"):
        structgen.compile(Cfg(f"start: A\n{terminal.format(pattern)}"), TINY)


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ('root ::= "a" "b\\ud800c"? "d" | "\\ud800"', "gbnf"),
        ('root ::= "a" "b\ud800c"? "d" | "\ud800"', "ebnf"),
        ('root ::= "a" "\\udfff"? "d" | "\\ud800" "a"', "xgrammar"),
        ('start: "a" "\\ud800"? "d" | "b" n\nn: "\\ud800"', "llguidance"),
    ],
)
def test_what_holds_half_a_surrogate_pair_is_no_text(text: str, dialect: str) -> None:
    constraint = structgen.compile(Cfg(text, dialect=dialect), TINY)
    assert constraint.start().forced_bytes() == b"ad"
