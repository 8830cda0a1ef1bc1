"""Bad grammars: what is said, and where."""

from __future__ import annotations

import re
from pathlib import Path

import lark
import pytest
from click.testing import CliRunner
from engine.walks import TINY

import structgen
from structgen import (
    Cfg,
    CompileLimitExceeded,
    GrammarError,
    OptionError,
    PatternError,
    Unsatisfiable,
    UnsupportedFeature,
)
from structgen.cli.commands import cli
from structgen.constraint.check_grammar import problems


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
        ("start: (\n", 1, 9, "Expected: )."),
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
        ("", "The grammar has no rules. A rule is written in lower case: start:"),
        ('A: "a"', "The grammar has no rules"),
        (
            "start: NUM",
            "Terminal 'NUM' used but not defined (in rule start). Did you mean %import c",
        ),
        (
            "start: NUM",
            "common.NUMBER? Else define it, NUM: /pattern/, or give it: Cfg(..., termin",
        ),
        (
            "start: A\nA: INTT",
            "Terminal 'INTT' used but not defined. Did you mean %import common.INT",
        ),
        ("start: QQ", "(in rule start). Define it, QQ: /pattern/"),
        ("start: nam\nname: /x/", "Did you mean name? (Read as Lark; dialect= says otherwise.)"),
        ("start: qq", "Define it: qq: ... (Read as Lark; "),
        ('start: "a"{2,3}', "Lark writes {2,3} as ~ 2..3. (Read as Lark;"),
        ("start: a{2}\na: /x/", "Lark writes {2} as ~ 2. "),
        ("root ::= x", "Define it: x ::= ... (Read as GBNF; dialect= says otherwise.)"),
        ("a = b;", "Define it: b = …; (Read as EBNF of ISO 14977; dialect= says otherwise.)"),
    ],
)
def test_mistakes_come_with_what_was_probably_meant(grammar: str, says: str) -> None:
    assert says in refused(grammar, GrammarError)


def test_a_dialect_that_was_chosen_is_not_explained() -> None:
    with pytest.raises(GrammarError) as error:
        structgen.compile(Cfg("start: b", dialect="lark"), TINY)
    assert "Read as" not in str(error.value)
    assert (error.value.line, error.value.column) == (1, 8)
    assert len(problems("start: A\nA: QQ | RR")) == 2


def test_what_can_never_be_written() -> None:
    assert "never be finished" in refused('start: "(" start ")"', Unsatisfiable)
    assert "take more than the rules leave" in refused('start: A "a"\nA: /a+/', Unsatisfiable)
    assert "no rule 'root'" in refused('start: "a"', GrammarError, "root")


def test_assertions_that_cannot_be_enforced() -> None:
    refused("start: A\nA: /^a/", PatternError)
    assert "before the terminal" in refused("start: A\nA: /(?<!b)a/", UnsupportedFeature)
    assert "before the terminal" in refused(r"start: A" "\n" r"A: /\ba/", UnsupportedFeature)
    structgen.compile(Cfg('start: A "b"?\nA: /"(.|x)*?(?<!x)"|a\\b/'), TINY)


def test_an_assertion_that_never_holds_matches_nothing() -> None:
    assert "never be finished" in refused("start: D\nD: /(?!)/", Unsatisfiable)
    (warning,) = problems('start: D | "x"\nD: /(?!(a|))|b(?!)/\n')
    assert "D matches no text at all" in warning.message
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
    with pytest.raises(GrammarError, match="takes a grammar as str"):
        Cfg(b"start: 'a'")  # type: ignore[arg-type]
    with pytest.raises(GrammarError, match="no grammar dialect 'bnf'"):
        Cfg('start: "a"', dialect="bnf")
    with pytest.raises(GrammarError, match="cannot be read"):
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


def test_problems_are_told_all_at_once(tmp_path: Path) -> None:
    text = 'start: a | never | D\na: "c"\nnever: never "x"\nD: /x(?!)/\nlost: a\nLOST: "l"\n'
    found = problems(text)
    assert [(p.line, p.is_error) for p in found] == [(3, False), (4, False), (5, False), (6, False)]
    messages = [p.message for p in found]
    for message, part in zip(messages, ("finished", "no text", "'lost'", "'LOST'"), strict=True):
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


def test_one_mistake_hides_no_other() -> None:
    text = """start: a c d e f %json {"a":
  1}
a: "x" ) y
b{p}: (p
c: "e"~3..2
d: "f"
d: "g"
e: TERM MISSING
TERM: ""
%import common.NOPE
%import common (WS, NUMBR)
f: b{A} [
A: B "c"
B: A
"""
    found = problems(text)
    assert "'a' at $: unknown keyword" in found.pop().message
    assert all(problem.is_error for problem in found)
    assert [p.line for p in found] == [3, 4, 5, 7, 8, 9, 10, 11, 12, 13]
    parts = (
        *(
            "Unexpected ')'",
            "Expected: )",
            "Bad Range",
            "more than once",
            "'MISSING'",
            "Empty terminals",
        ),
        *("no NOPE", "Did you mean NUMBER", "Expected: ]. Brackets end", "Recursion"),
    )
    for problem, part in zip(found, parts, strict=True):
        assert part in problem.message
        assert "^" in problem.message


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
        ('start: never "a"\nnever: never "x"\n', "lark", (2, 1)),
        ('start: "a"\n%ignore X\n%declare X\n', "lark", (2, 9)),
        ('root ::= "a" %json {"type": "strin"}\n', "gbnf", (1, 14)),
        ("start ::= 'a' #xZZ\n", "ebnf", (1, 15)),
        ("start ::= 'a' - item\nitem ::= 'x' item 'y' | 'z'\n", "ebnf", (1, 15)),
        ("start = 'a' - item;\nitem = 'x', item, 'y' | 'z';\n", "iso-ebnf", (1, 13)),
        ('start = ? %json {"type": "strin"} ?;\n', "iso-ebnf", (1, 11)),
    ],
)
def test_mistakes_elsewhere_hide_nothing(text: str, dialect: str, place: tuple[int, int]) -> None:
    line, column = place
    alone = {problem.message for problem in problems(text, dialect=dialect)}
    assert any(re.search(rf"at line {line}, column {column}\n.*\n *\^$", m) for m in alone)
    more = {"lark": "zz: undefd zz?\n", "iso-ebnf": "zz = undefd;\n"}.get(dialect)
    more = text + (more or "zz ::= undefd\n")
    found = {problem.message for problem in problems(more, dialect=dialect)}
    assert alone <= found
    assert any("'undefd' used but not defined" in m or "'undefd' is used" in m for m in found)
    if dialect == "lark":
        elsewhere = {p.message.split("\n")[0] for p in problems(text, "nowhere", dialect)}
        wanted = {m.split("\n")[0] for m in alone if "'start' can never" not in m}
        assert wanted <= elsewhere
        assert any("no rule 'nowhere'" in message for message in elsewhere)


@pytest.mark.parametrize(
    "text",
    [
        "start: N undefd N\nN: /[a-z]+/\n",
        'start: N ( undefd | UNDEFD ) "a"\nN: /[a-z]+/\n',
        "start: N M N\nN: /[a-z]+/\nM: UNDEFD /[a-z]+/\n",
        "start: N b N\nN: /[a-z]+/\nb: ) N\n",
        "start: N M N\nN: /[a-z]+/\nM: /x*/ | N\n",
        'start: N %json {"type": } N\nN: /[a-z]+/\n',
        'start: N %json {"type": "strin"} "b"\nN: /[^ ]+/\n',
    ],
)
def test_what_cannot_be_read_is_blamed_for_nothing_else(text: str) -> None:
    found = [problem for problem in problems(text) if problem.is_error]
    assert found
    assert not any("no text matches" in problem.message for problem in found)
    # What no reading of it could mend is told.
    more = text.replace("start: ", "start: N N ")
    assert any("no text matches" in problem.message for problem in problems(more))


def test_an_import_of_nothing_is_an_error() -> None:
    with pytest.raises(GrammarError, match="There is no NOPE in Lark's 'common'") as error:
        structgen.compile(Cfg('start: "a"\n%import common.NOPE\n'), TINY)
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


def test_all_that_is_wrong_with_what_is_embedded() -> None:
    text = """start: a A C <|x|> %json {"a": } "x"
  | %json {"type": "strin"} B
A: /[a/
B: /b*/
C: %json {} <|x|>
%declare GIVEN
"""
    found = problems(text)
    assert [(p.line, p.is_error) for p in found] == [
        (1, True), (1, True), (2, True), (3, True), (4, True), (5, True), (5, True), (6, False),
    ]  # fmt: skip
    parts = (
        "'a' used but not defined", "must come a JSON Schema", "unterminated", "empty text",
        "%json cannot be part", "<|x|> cannot be part", "has to be given",
    )  # fmt: skip
    for part in parts:
        assert sum(part in p.message for p in found) == 1, part

    text = """start: %json {"type": "strin"} <|x|> | %json {"const": 1}
  | %json {"enum": [1], "type": "string"} never
never: never "a"
lost: "b"
"""
    found = problems(text)
    assert [(p.line, p.is_error) for p in found] == [
        (1, True), (2, True), (3, False), (4, False),
    ]  # fmt: skip
    assert "line 1, column 8 is refused: 'type' must be one of" in found[0].message
    assert "line 2, column 5 is refused: no JSON value" in found[1].message

    assert [p.line for p in problems("root ::= a |\n  b\n")] == [1, 2]
    assert [p.line for p in problems('root = a, "x"\n, b;\n')] == [1, 2]


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
    ("text", "places"),
    [
        (
            'start: A\nA: "a" x\nx: "b"',
            {(2, 8): "Rules aren't allowed inside terminals: 'A' has 'x'"},
        ),
        ('start: A\nA: p{"a"}\np{x}: x', {(2, 4): "Templates aren't allowed inside terminals"}),
        ("start: p\np{x}: x", {(1, 8): "used without arguments. Write p{x}"}),
        ("start{x}: x", {(1, 1): "Take the parameters away"}),
        (
            'start: p{"a", "b"} q{"c"} r{"d"} p{p{"x"}} u\np{x}: x\nr: "x"',
            {
                (1, 8): "for p: expected 1 (x), got 2",
                (1, 20): "Rule 'q' used but not defined (in rule start). Define it",
                (1, 27): "'r' is no template. Leave {",
                (1, 44): "Rule 'u' used",
            },
        ),
        (
            'start: "ab".."c" "d"i.."e" "z".."a" x',
            {
                (1, 8): '"ab" is not one. Write "a".."z"',
                (1, 18): "has no flag",
                (1, 28): "Swap them",
                (1, 37): "Rule 'x' used",
            },
        ),
        (
            '%override q: "a"\n%extend R: "a"\nstart: x',
            {
                (1, 11): "%override of rule 'q', which is neither",
                (2, 9): "%extend of terminal 'R', which is neither",
                (3, 8): "Rule 'x' used",
            },
        ),
        (
            '?_x: "a"\nstart: _x y',
            {(1, 1): "inlined with ?, too. Leave one", (2, 11): "Rule 'y' used"},
        ),
        (
            "%import commn.INT\n%import .nope.INT -> B\n%import common\nstart: INT B x",
            {
                (1, 9): "Did you mean common?",
                (2, 10): "this grammar is given as a text",
                (3, 9): "Write %import common.NAME",
                (4, 14): "Rule 'x' used",
            },
        ),
        (
            "%import common.FOO\nstart: FOO BAR BAZ\n%import common (BAR, BAZ)",
            {
                (1, 16): "no FOO in Lark's 'common' grammar. Did you mean FLOAT?",
                (3, 17): "no BAR in",
                (3, 22): "It has CNAME, ",
            },
        ),
        (
            "%import common.INT -> n\nstart: n",
            {
                (
                    1,
                    23,
                ): "INT is a terminal, so the name that it gets here, n, has to be in upper case"
            },
        ),
        (
            "start: /(/ x B\nB: /[/",
            {(1, 8): "missing )", (1, 12): "Rule 'x' used", (2, 4): "unterminated"},
        ),
        (
            'start: A\nA: "b" -> x\n_y: "c" -> z\nz: _y',
            {(2, 8): "Leave it out", (3, 9): "underscore or the alias"},
        ),
        (
            'start: [A] A | A u\nA: "a" B\nB: C\nC: "c" B',
            {(1, 18): "Rule 'u' used", (3, 4): "Recursion in terminal 'B'"},
        ),
        ("start: [A] A | A\nA: /a/", {(1, 1): "one alternative twice, A. Leave one out"}),
        (
            '%declare C x C\n%ignore C\nstart: "a" z',
            {
                (1, 12): "Only terminals can be declared",
                (1, 14): "declared more than once",
                (3, 12): "Rule 'z' used",
            },
        ),
        ("%ignore /b*/\nstart: /a\nb/", {(1, 9): "empty text", (2, 8): "without the flag x"}),
        (r'start: "\x" x' "\n" 'x: "a" "b\0"', {(1, 8): r"\x takes 2 hexadecimal", (2, 10): "NUL"}),
        (
            'p{a, a, start}: a\nstart: p{"a", "b", "c"}',
            {(1, 6): "two parameters 'a'", (1, 9): "'start' of template 'p' is a rule, too"},
        ),
        (
            'start: \'a\'\nb: "x\nc: /[a\nd: "x"{2,}',
            {
                (1, 8): "in double quotes",
                (2, 4): "end on its line",
                (3, 4): "end with a slash",
                (4, 7): "as ~ 2, and once more with *",
            },
        ),
    ],
)
def test_mistakes_are_told_where_they_are_all_at_once(
    text: str, places: dict[tuple[int, int], str]
) -> None:
    found = [problem for problem in problems(text) if problem.is_error]
    told = {}
    for problem in found:
        line, column = map(int, re.search(r"at line (\d+), column (\d+)", problem.message).groups())  # type: ignore[union-attr]
        assert problem.line == line
        assert problem.message.splitlines()[-2].strip() == text.splitlines()[line - 1].strip()
        assert problem.message.splitlines()[-1] == " " * (column + 1) + "^"
        told[line, column] = problem.message
    assert list(told) == list(places)
    assert len(found) == len(places)
    for place, says in places.items():
        assert says in told[place]
    # Compiling tells the first that it meets, in the same words.
    with pytest.raises(GrammarError) as error:
        structgen.compile(Cfg(text, dialect="lark"), TINY)
    assert str(error.value) in told.values()


@pytest.mark.parametrize(
    ("text", "dialect", "places"),
    [
        (
            'root ::= a | nope [z-a]\na ::= "b" c{3,1}\nd ::= [a-z\ne ::= d\n'
            'a ::= "x"\nf ::= (a\ng ::= a{,3}\n',
            "gbnf",
            [(1, 14), (1, 19), (2, 11), (2, 12), (3, 7), (5, 1), (6, 7), (7, 8)],
        ),
        (
            "root ::= a | 'b\na ::= b | #xZZ\n(c ::= d\nd ::= 'x' {,2}",
            "ebnf",
            [(1, 14), (2, 7), (2, 11), (3, 1), (4, 11)],
        ),
        (
            'root = a, b c;\na = "x;\nd e = { "y" , nope };\nf = ? g ?;\nd e = "z"',
            "iso-ebnf",
            [(1, 11), (2, 5), (3, 15), (4, 5), (5, 1), (5, 10)],
        ),
    ],
)
def test_one_mistake_hides_no_other_in_notations(
    text: str, dialect: str, places: list[tuple[int, int]]
) -> None:
    found = [p.message for p in problems(text, dialect=dialect) if p.is_error]
    told = [re.search(r"at line (\d+), column (\d+)\n.*\n *\^$", m).groups() for m in found]  # type: ignore[union-attr]
    assert [(int(line), int(column)) for line, column in told] == places
    assert "is written {0,3}" in "".join(found) or dialect != "gbnf"


def test_mistakes_hide_no_warnings() -> None:
    found = problems(
        'start: a | never | x\na: "c"\nnever: never "x"\nlost: LOST also\nLOST: /[/\nalso: a\n'
    )
    assert [(p.line, p.is_error) for p in found] == [
        (1, True), (5, True), (3, False), (4, False), (5, False), (6, False),
    ]  # fmt: skip
    found = problems('start: a\na: "c"\nlost: LOST\nLOST: /[/\n')
    assert [(p.line, p.is_error) for p in found] == [(3, False), (4, False), (4, False)]
    assert "unterminated" in found[2].message
    found = problems('root ::= a\na ::= "x"\nb ::= c\nc ::= "y"\n')
    assert [(p.line, p.is_error) for p in found] == [(3, False), (4, False)]


def test_what_nothing_uses_may_use_templates_as_it_likes() -> None:
    text = 'start: p{"a"}\nlost: p\np{x}: x\n'
    lark.Lark(text, parser="earley")
    structgen.compile(Cfg(text), TINY)
    assert [p.line for p in problems(text)] == [2, 2]


def test_mistakes_in_files_that_are_imported(tmp_path: Path) -> None:
    main, part = tmp_path / "main.lark", tmp_path / "part.lark"
    main.write_text("start: a b\n%import .part.a\n%import .part.missing -> b\n")

    def told() -> list[str]:
        found = problems(main.read_text(), path=str(main))
        assert all("^" in p.message for p in found)
        return [f"{p.line}: {p.message}" for p in found]

    part.write_text('a: "x"\nmiss: "y"\n')
    (message,) = told()
    assert message.startswith(f"3: There is no missing in {part}. Did you mean miss?")
    part.write_text('a: "x" c\nmissing: "y"\n')
    assert f"2: In {part}, imported here: Rule 'c' used but not" in told()[0]
    part.write_text('a: "x" )\nmissing: "y"\n')
    assert f"2: In {part}, imported here: The grammar is malformed: Unexpected ')'" in told()[0]
    part.write_text('a: "x"\nmissing: "y"\n%import .main.start\n')
    assert f"{main} is imported in a circle" in told()[0]
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
