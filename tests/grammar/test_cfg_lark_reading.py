"""Lark texts: we take what Lark takes, mean what it means, and place whatever it refuses."""

from __future__ import annotations

import functools
import itertools
import os
import random
import re
from pathlib import Path

import cfg_cases
import lark
import pytest
from engine.walks import TINY

import structgen
from structgen import Cfg, Vocabulary
from structgen.constraint.check_grammar import problems
from structgen.errors import CompileLimitExceeded, GrammarError
from structgen.grammar.cfg import embedded
from structgen.grammar.cfg import lark as loader
from structgen.grammar.cfg import library as grammars

SCALE = float(os.environ.get("STRUCTGEN_TEST_SCALE", "1"))
REFUSALS = (lark.exceptions.LarkError, AssertionError, AttributeError, KeyError, ValueError)
TEXTS = {name: Cfg.named(name).text for name in grammars.names()} | {
    f"case {name}": text for name, text in cfg_cases.GRAMMARS.items()
}


LANGUAGES = [
    ('start: list{"a", ","} pair{list{B, /c/}}\nB: "b"\nlist{item, sep}: item (sep item)*\n'
     'pair{y}: "(" y pair{y}? ")" -> p\n', "abc,(", 5),
    ('start: ["a"] [b] "c"~1..2\n!b: "b"~2 | [B2]\nB2: "d"+\n', "abcd", 5),
    ("start: INT (_S INT)*\n%import common (INT, LETTER)\n%import common.WS_INLINE -> _S\n"
     "%ignore LETTER\n", "1 x", 5),
    ('%import common.DIGIT\n%override DIGIT: "1" | "2"\n%extend DIGIT: "a".."b"\n'
     'start: DIGIT+ x\nx: "x"\n%extend x: "y"\n', "12abxy", 4),
    ('?start.2: a | A -> b\n!a.-1: "a"i A?\nA.3: /b(?!c)/ | "c"\n%ignore " "\n', "aAbc ", 4),
    ('start: A A\nA: ("a" | "ab")~1..2 "c"?\n%ignore "-" | /_+/\n', "abc-_", 4),
    ('start: (x ","?)* x~1..3\nx: "if" | "IF" | "+" | "\\"" | "é"\n', 'ifIF+,"é', 3),
    ('start: a (b | c)? (b c | b)\na:\nb: "b"\nc: a | "c"\n', "bc", 5),
    ('start: "a"\\\n  "b" // c\n\n // d\n  | "c" # e\n  | \n', "abc", 3),
    ('start: tw{"a"}~60 | "b"\ntw{x}: x\n', "ab", 2),
    ('start: t{"a", B}+ | [x] ("a" | (x "c" | B?)~0..2 // c\n  | "b")* -> z\nB: "b"\n'
     't{p, q}: (p? q?) (q? | p)~1..2 ("c" | "d")\nx: "x"? "y"? \\\n "x"?', "abcdxy", 3),
    ('start: x~7..13 "b"\nx: "a" | "c"?\n', "ab", 8),
    ('start: (x | "c")~0..9\nx: "a" "b"\n', "abc", 5),
]  # fmt: skip


@pytest.mark.parametrize(("text", "alphabet", "length"), LANGUAGES)
def test_all_short_texts(text: str, alphabet: str, length: int) -> None:
    expected = lark.Lark(text, parser="earley")
    constraint = structgen.compile(Cfg(text, dialect="lark"), TINY)
    for count in range(length + 1):
        for candidate in map("".join, itertools.product(alphabet, repeat=count)):
            assert constraint.allows(candidate) == accepts(expected, candidate), candidate


def test_counts_end_where_they_say() -> None:
    constraint = structgen.compile(Cfg('start: x~7..13 "b"\nx: "a" | "c"?\n', dialect="lark"), TINY)
    assert [n for n in range(16) if constraint.allows("a" * n + "b")] == list(range(14))
    constraint = structgen.compile(Cfg('start: (x | "c")~2..9\nx: "a" "b"\n', dialect="lark"), TINY)
    assert [n for n in range(12) if constraint.allows("ab" * n)] == list(range(2, 10))


def accepts(expected: lark.Lark, text: str) -> bool:
    """Lark's verdict."""
    try:
        expected.parse(text)
    except lark.exceptions.UnexpectedInput:
        return False
    return True


def test_what_multiplies_out_without_end_is_read_in_parts(tmp_path: Path) -> None:
    names = [f"a{i}" for i in range(60)]
    rules = "".join(f'{name}: "{name}"\n' for name in names)
    vocabulary = Vocabulary.from_tokens([*(bytes([b]) for b in range(256)), b""], [256])
    options = " ".join(f"{name}?" for name in names)
    for body in (options, f"({' | '.join(names)})~0..40", options.replace("?", " | [b]", 9)):
        text = f"start: {body}\nb: {options}\n{rules}"
        constraint = structgen.compile(Cfg(text), vocabulary)
        assert constraint.allows("a1a3a59")
        assert constraint.allows("")
        assert not constraint.allows("a1a3a60")
    assert not structgen.compile(Cfg(f"start: a0? a1?\n{rules}"), vocabulary).allows("a1a0")
    (tmp_path / "part.lark").write_text(f"b: {options}\n{rules}")
    (tmp_path / "main.lark").write_text('%import .part.b\nstart: b "!"\n')
    assert structgen.compile(Cfg(tmp_path / "main.lark"), vocabulary).allows("a1a3a59!")


@pytest.mark.parametrize(
    "text",
    [
        't{x}: x t{t{x}} | x\nstart: t{"a"}\n',
        't{x}: x u{t{x}} | x\nu{x}: x t{x}\nstart: t{"a"}\n',
        't{x, y}: x t{y, t{x, y}} | x\nstart: t{"a", "b"}\n',
    ],
)
def test_templates_without_end_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(CompileLimitExceeded, match="ever longer arguments") as raised:
        structgen.compile(Cfg(text), TINY)
    assert raised.value.path == "rule t"
    (tmp_path / "part.lark").write_text(text)
    (tmp_path / "main.lark").write_text("%import .part.start\n")
    with pytest.raises(CompileLimitExceeded, match="ever longer arguments"):
        structgen.compile(Cfg(tmp_path / "main.lark"), TINY)
    assert [p.is_error for p in problems(text)] == [True]
    structgen.compile(Cfg('start: t{t{t{"a"}}}\nt{x}: x x'), TINY)


def test_imports_from_files(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "part.lark").write_text(
        '%import .other.X\n%import common.DIGIT\na{p}: p X DIGIT\nb: a{"q"} | B\nB: X "z"\n'
    )
    (tmp_path / "deep" / "other.lark").write_text('X: "x"\nY: "y"\n')
    main = tmp_path / "main.lark"
    main.write_text("%import .deep.part (b, B)\n%import .deep.other.Y -> Z\nstart: b Z B\n")
    constraint = structgen.compile(Cfg(main), TINY)
    expected = lark.Lark(main.read_text(), parser="earley", source_path=str(main))
    for middle in map("".join, itertools.product("qx1yz", repeat=3)):
        for candidate in (f"q{middle}zyxz", f"qx1y{middle}", f"{middle}xz"):
            assert constraint.allows(candidate) == accepts(expected, candidate), candidate
    assert constraint.allows("qx1yxz")


@pytest.mark.parametrize(
    "imported",
    [".secret.X", "secret.X", ".secret (X)", ". secret . X", "\\\n .secret.X", ".in.secret.X",
     "in.secret.X", ".secret.NONE -> X", ".common.X", "common.nope.X"],
)  # fmt: skip
def test_a_text_reads_no_file(
    imported: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be a stranger's: what is in the working directory changes nothing, and is not told."""
    monkeypatch.chdir(tmp_path)
    text = f"start: X\n%import {imported}\n"

    def told() -> list[str]:
        with pytest.raises(GrammarError) as raised:
            structgen.compile(Cfg(text, dialect="lark"), TINY)
        found = [problem.message for problem in problems(text, dialect="lark")]
        return [str(raised.value), *found]

    without = told()
    (tmp_path / "in").mkdir()
    for name in ("secret", "common", "in/secret"):
        (tmp_path / f"{name}.lark").write_text('X: "x"\n')
    assert told() == without
    assert str(tmp_path) not in str(without)


def test_what_is_given_can_be_ignored() -> None:
    text = 'start: "a"+\n%declare BLANK\n%ignore BLANK\n'
    constraint = structgen.compile(Cfg(text, terminals={"BLANK": "[-_]"}), TINY)
    assert constraint.allows("-a_a-")
    with pytest.raises(GrammarError, match=r"no rule 'nope' to start with\. Rules: start"):
        structgen.compile(Cfg(text, "nope", terminals={"BLANK": "[-_]"}), TINY)


def random_text(rng: random.Random) -> str:
    """A grammar with a bit of everything, mistakes among it."""
    names = ["start", "x", "y", "z"]
    atoms = [*names, "A", "B", '"a"', '"if"', '"i"i', "/a+/", '"a".."c"', '"+"', "WS", 't{"a"}']

    def node(depth: int) -> str:
        kind = rng.random()
        if depth and kind < 0.25:
            body = " | ".join(sequence(depth - 1) for _ in range(rng.randint(1, 3)))
            left, right = rng.choice(("()", "()", "()", "[]"))
            inner = f"{left}{body}{right}"
        else:
            inner = rng.choice(atoms)
        return inner + rng.choice(("", "", "", "", "?", "*", "+", "~2", "~0..2"))

    def sequence(depth: int) -> str:
        parts = [node(depth) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
        return " ".join(parts)

    lines = []
    for name in names:
        sign = rng.choice(("", "", "?", "!"))
        ways = "\n  | ".join(sequence(1) for _ in range(rng.randint(1, 3)))
        lines.append(f"{sign}{name}: {ways}" + rng.choice(("", "", " -> b")))
    lines += ["A: " + rng.choice(('"a"', "/b/", 'B? "c"', '("a" | "ab")+')), 'B: "b"~1..3 | "i"i']
    lines += [rng.choice(("%import common.WS", 'WS: " "', "%declare WS")), "t{p}: p [p] | x"]
    if rng.random() < 0.5:
        lines.append(rng.choice(("%ignore WS", '%ignore " " | "\\t"', "%ignore B")))
    if rng.random() < 0.2:
        wrong = ('"b"', "Q", "q", ")", "-> d", "(", "[", "..", ":", "{", "~", "?y", "??", "'", ".")
        lines[rng.randrange(len(lines))] += " " + rng.choice(wrong)
    rng.shuffle(lines)
    return "\n".join(lines) + "\n"


@functools.cache
def refusal(text: str) -> Exception | None:
    """Why Lark does not take a text."""
    try:
        lark.Lark(text, parser=None, lexer="basic", edit_terminals=_any)
    except REFUSALS as error:
        return error
    return None


def _any(terminal: lark.lexer.TerminalDef) -> None:
    terminal.pattern = lark.lexer.PatternStr("x")


def test_what_lark_refuses_is_refused_once() -> None:
    rng = random.Random(5)
    verdicts = {True: 0, False: 0}
    for _ in range(int(100 * SCALE)):
        text = random_text(rng)
        error = refusal(embedded.lift(text, {}).text)
        try:
            loader.parse(text, "start")
        except GrammarError as ours:
            is_taken = "declared (%declare) but never defined" in str(ours)  # it may be given
        else:
            is_taken = True
        # What only bears on Lark's trees is no mistake, nor is what is never used.
        assert is_taken or error is not None, text
        assert not is_taken or re.search("twice|expansion|None|declared|gnore", str(error)), text
        verdicts[is_taken] += 1
        if not is_taken:
            found = [problem for problem in problems(text, dialect="lark") if problem.is_error]
            assert len(found) == 1
    assert min(verdicts.values()) > 4 * SCALE, verdicts


def test_what_lark_can_parse_is_cut_into_statements() -> None:
    """Of terminals that our reader did not find nothing would be bounded."""
    rng = random.Random(7)
    parts = ["start", "x", "A", '"a"', "/b/", "(", ")", "[", "]", "|", "*", "?", "~", "2", "..",
             "{", "}", ",", ".", ":", "->", "\n", "\n  |", "!", "'", "_", "-1", "\\\n", "// c",
             "%ignore", "%import", "%declare", "%override", "%extend", "common", ": ", ": ",
             "start: ", "\nx: ", "\nA: "]  # fmt: skip
    verdicts = {True: 0, False: 0}
    for _ in range(int(600 * SCALE)):
        chosen = rng.choices(parts, k=rng.randint(1, 8))
        text = rng.choice(("", "start: ")) + rng.choice(("", " ")).join(chosen)
        error = refusal(text)
        is_malformed = "at line " in str(error) or isinstance(error, lark.UnexpectedInput)
        verdicts[is_malformed] += 1
        if is_malformed:
            with pytest.raises(GrammarError) as raised:
                structgen.compile(Cfg(text, dialect="lark"), TINY)
            assert raised.value.line is not None, text
        else:
            assert all(statement.kind for statement in loader.statements(text)), text
    assert min(verdicts.values()) > 20 * SCALE, verdicts


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ('start: A\nx: "b"\nA: "a" | /b(/\nB: "b"\n', (3, 10), "missing )"),
        ('start: x\nx: y{"a"}\ny{p}: p{"b"}\n', (None, None), "arguments here is not a template"),
        ('start: ("a" -> b)\nb: "c"\n', (1, 13), "brackets"),
        ('start: "b"\nx: ' + '["a" ' * 400 + "]" * 400, (None, None), "nested too deeply"),
        (f'start: ("a" "b"?)~{"9" * 5_000}\n', (1, 19), "Repeat less often"),
        ('start: (\n  "a"\n)\nb: (', (1, 9), "Unclosed parenthesis"),
    ],
)
def test_places(text: str, place: tuple[int | None, int | None], says: str) -> None:
    with pytest.raises(GrammarError) as error:
        structgen.compile(Cfg(text, dialect="lark"), TINY)
    assert (error.value.line, error.value.column) == place
    assert says in str(error.value)
    assert str(error.value) in [problem.message for problem in problems(text, dialect="lark")]
