"""Both regex front ends against ``re`` and Node, through an independent matcher over the IR."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import corpora
import pytest
from regex_oracle import ALPHABET, Matcher, PatternGenerator, node_verdicts, texts_for

import structgen
from structgen.errors import CompileLimitExceeded, PatternError, UnsupportedFeature
from structgen.grammar import ir
from structgen.grammar.regex import unicode_sets
from structgen.grammar.regex.read import MAX_PATTERN_LENGTH, parse_ecma, parse_python
from structgen.types import lower

ROUNDS = int(os.environ.get("STRUCTGEN_FUZZ_ROUNDS", "1"))

# A generated pattern: re of Python 3.10 has not matched a text of 30 characters in minutes.
NEVER_ENDS = r"(?im)^(?-i:b(\u00e9*?[\bà-ÿ]{0,3}){2,}[^\]\w]{1,2}){2,}?b"


def matches(regex: ir.Regex, text: str) -> bool:
    return Matcher(regex).matches(text)


# -- generated patterns ----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3 * ROUNDS))
@pytest.mark.parametrize("lookarounds", [False, True])
def test_generated_python_patterns_agree_with_re(seed: int, lookarounds: bool) -> None:
    rng = random.Random(f"python {lookarounds} {seed}")
    generator = PatternGenerator(rng, "python", lookarounds)
    verdicts = accepted = refused = 0
    for _ in range(500):
        pattern = generator.pattern()
        if sys.version_info < (3, 11) and pattern == NEVER_ENDS:
            continue
        try:
            compiled = re.compile(pattern)
        except re.error:
            with pytest.raises(PatternError):
                parse_python(pattern)
            continue
        try:
            regex = parse_python(pattern)
        except UnsupportedFeature:
            refused += 1
            continue
        matcher = Matcher(regex)
        for text in texts_for(regex, rng, ALPHABET, 9):
            expected = compiled.fullmatch(text) is not None
            assert matcher.matches(text) == expected, (pattern, text)
            verdicts += 1
            accepted += expected
    # The comparison means something only if most patterns are taken and both verdicts occur.
    assert verdicts > 3500
    assert 0.2 < accepted / verdicts < 0.8
    assert refused < 110


@pytest.mark.parametrize("seed", range(3 * ROUNDS))
@pytest.mark.parametrize("lookarounds", [False, True])
def test_generated_ecma_patterns_agree_with_node(seed: int, lookarounds: bool) -> None:
    rng = random.Random(f"ecma {lookarounds} {seed}")
    generator = PatternGenerator(rng, "ecma", lookarounds)
    cases: list[tuple[str, str, list[str]]] = []
    regexes: list[ir.Regex | None] = []
    refused = 0
    for _ in range(500):
        pattern = generator.pattern()
        regex: ir.Regex | None
        try:
            regex = parse_ecma(pattern)
        except UnsupportedFeature:
            refused += 1
            continue
        except PatternError:
            regexes.append(None)
            cases.append((pattern, "u", []))
            continue
        texts = texts_for(regex, rng, ALPHABET, 9)
        regexes.append(regex)
        cases.append((pattern, "u", texts))
    verdicts = accepted = 0
    judged = zip(cases, regexes, node_verdicts(cases), strict=True)
    for (pattern, _, texts), regex, expected in judged:
        assert (regex is None) == (expected is None), pattern
        if regex is None or expected is None:
            continue
        matcher = Matcher(regex)
        for text, verdict in zip(texts, expected, strict=True):
            assert matcher.matches(text) == verdict, (pattern, text)
            verdicts += 1
            accepted += verdict
    assert verdicts > 3500
    assert 0.2 < accepted / verdicts < 0.8
    assert refused < 110


# -- chosen patterns -------------------------------------------------------------------------

PYTHON_CASES = [
    (r"a$", 0, ["a", "a\n", "a\n\n", "b"]),
    (r"a$\n", 0, ["a\n", "a", "a\n\n"]),
    (r"a$\n\n", 0, ["a\n\n", "a\n"]),
    (r"(a$|b)\n?", 0, ["a", "a\n", "b\n", "ab"]),
    (r"^a$\n^b$", re.M, ["a\nb", "a\nb\n", "ab"]),
    (r"(?m)(?:^a$\n?){1,3}", 0, ["a", "a\na", "a\na\na\n", "aa"]),
    (r"\Aa\Z", 0, ["a", "a\n"]),
    (r"(?i)straße", 0, ["STRAßE", "STRASSE", "straẞe", "ſtraße"]),
    (r"(?i)[k-s]+", 0, ["K", "ſ", "K", "t", "q"]),
    (r"(?ia)[k-s]+", 0, ["K", "ſ", "K", "q"]),
    (r"(?i)[^k]", 0, ["K", "K", "k", "j"]),
    (r"(?i)İ|ı", 0, ["i", "I", "İ", "ı", "i̇"]),
    (r"(?i)µ", 0, ["μ", "Μ", "µ"]),
    (r"(?i)\u0345", 0, ["ι", "Ι", "\u1fbe", "\u0345"]),
    (r"(?i:a)b", 0, ["Ab", "AB"]),
    (r"(?-i:a)b", re.I, ["aB", "AB"]),
    (r"(?x) a  b # c )(", 0, ["ab", "a b"]),
    (r"\d+", 0, ["1٣", "½"]),
    (r"\d+", re.A, ["1", "٣"]),
    (r"\w\s", 0, ["é\x1c", "_\u2003", "é\ufeff"]),
    (r"\w\s", re.A, ["é ", "_\u2003", "a\x0b"]),
    (r".", 0, ["\n", "\r", "\u2028", "\U0001f600"]),
    (r".", re.S, ["\n"]),
    (r"(a|b)??c{2,3}?", 0, ["cc", "accc", "acccc"]),
    (r"(?:a{2}){3}", 0, ["a" * 6, "a" * 5]),
    (r"a{,2}", 0, ["", "aa", "aaa"]),
    (r"[]a]|[^]a]b", 0, ["]", "a", "cb", "]b"]),
    (r"(?!)|x", 0, ["", "x"]),
    (r"\bfoo\b", 0, ["foo"]),
    (r".*\bfoo\b.*", 0, ["a foo b", "afoo", "foo", "foo_"]),
    (r"\B", 0, ["", "a"]),
    (r"\B.?\B", 0, ["", "-", "a"]),
    (r"(?!abc|x)\w+", 0, ["abcd", "abd", "xy", "y"]),
    (r"(?=.*\d)(?=.*[a-z]).{3,}", 0, ["a1b", "abc", "1a", "123"]),
    (r".*(?<!-)", 0, ["a-", "a", "", "-a"]),
    (r".*(?<=ab)c.*", 0, ["abc", "abcc", "bc"]),
    (r".*(?<=a(?=b)).*", 0, ["ab", "aa", "b"]),
    (r"(?=.*\bis\b).*", 0, ["this is", "this"]),
    (r"(?!.*\bis\b).*", 0, ["this is", "this"]),
    (r"(?:(?!-->).)*-->", 0, ["-->", "a-->", "--->", "-->-->"]),
    (r"(?:(?!ab)\w)+b", 0, ["b", "cb", "ab", "aab", "aacb"]),
    (r"(?:(?!a$).)*", 0, ["b", "ab", "ba"]),
]


@pytest.mark.parametrize(("pattern", "flags", "texts"), PYTHON_CASES)
def test_python_case(pattern: str, flags: int, texts: list[str]) -> None:
    regex = parse_python(pattern, flags)
    for text in texts:
        assert matches(regex, text) == bool(re.fullmatch(pattern, text, flags)), text


@pytest.mark.skipif(not hasattr(re, "NOFLAG"), reason="possessive quantifiers came with 3.11")
@pytest.mark.parametrize(
    "pattern", [r"a*+a", r"a*+b", r"(?>ab)c", r"(?>a*)ab?", r"(?:ab){1,2}+a?b?", r"[^b]++b", "a?+a"]
)
def test_possessive_of_one_width_is_exact(pattern: str) -> None:
    regex = parse_python(pattern)
    for text in ["", "a", "b", "aa", "ab", "aab", "abc", "aaab", "abab", "ababab", "abababab"]:
        assert matches(regex, text) == bool(re.fullmatch(pattern, text)), text


ECMA_CASES = [
    (r"^a$", ["a", "a\n", "ba"]),
    (r"a", ["bab", "b"]),
    (r"^a|b$", ["ac", "cb", "ca"]),
    (r"^(a|^b)$", ["a", "b", "ab"]),
    (r"a^b", ["a^b", "ab"]),
    (r"x*^a?$", ["", "a", "xa"]),
    (r"^\d\w\s$", ["1a ", "٣a ", "1é ", "1a\ufeff", "1a\u0085", "1a\u180e"]),
    (r"^.$", ["\n", "\r", "\u2028", "\u2029", "\x85", "\U0001f600"]),
    (r"^[^]$", ["\n", "ab"]),
    (r"[]", ["", "a"]),
    (r"^\cA\x41\u0042\u{43}\0$", ["\x01ABC\0", "AABC"]),
    (r"^\ud83d\ude00$", ["\U0001f600"]),
    (r"^[\ud83d\ude00-\u{1F64F}]$", ["\U0001f610", "\U0001f650"]),
    (r"^[\b\-\]]$", ["\b", "-", "]", "b"]),
    (r"^(?<year>\d{4})-(?:0|1)?$", ["2024-", "2024-1", "2024-2"]),
    (r"^\p{Lu}\p{Letter}\p{gc=Nd}\P{L}$", ["Aé٣-", "aé1-", "Aé1b"]),
    (r"^\p{ASCII}\p{Any}\p{White_Space}$", ["aé ", "éé ", "aé\x1c"]),
    (r"^[\p{L}-]$", ["a", "-", "1"]),
    (r"^\p{General_Category=Uppercase_Letter}[^\p{Zs}]$", ["A1", "A ", "a1"]),
    (r"\bfoo\b", ["a foo!", "foo", "xfoo", "éfoo"]),
    (r"(?<!\d)\d{3}(?!\d)", ["a123b", "1234", "123"]),
    (r"^(?!-)[a-z-]{1,5}(?<!-)$", ["a-b", "-a", "a-", "abcdef"]),
    (r"^((?!mode)(?!Mode).)*$", ["mod", "amode", "Mode", ""]),
    (r"^(?=[^=]+$)(?!\s+$)(.|\n)+$", ["a b", "  ", "a=b", "a\n"]),
    (r"^([\da-z](?:(?!.*--)[\da-z-]*[\da-z])?)$", ["a", "a-b", "a--b", "a-"]),
    (r"(?<=\$\d*)x", ["$x", "$12x", "12x"]),
    (r"(?<=^|,)a(?=,|$)", ["a", "b,a", "a,b", "ba"]),
    (r"(?!\b)a", ["ba", "a", " a"]),
]


def test_ecma_cases() -> None:
    expected = node_verdicts([(pattern, "u", texts) for pattern, texts in ECMA_CASES])
    for (pattern, texts), verdicts in zip(ECMA_CASES, expected, strict=True):
        regex = parse_ecma(pattern)
        assert verdicts is not None, pattern
        assert [matches(regex, text) for text in texts] == verdicts, pattern


LENIENT_CASES = [
    (r"^\-\_\@\:\ \"$", ['-_@: "', "-_@:"]),
    (r"^[\_\@\:]$", ["_", "\\"]),
    (r"^a]$", ["a]"]),
    (r"^{name}$", ["{name}", "name"]),
    (r"^x{,3}$", ["x{,3}", "xx"]),
    (r"^x{a}{2}$", ["x{a}}", "x{a}", "x{a}{2}"]),
    (r"^.*\{\{.+}}.*$", ["{{a}}", "{{a}"]),
    (r"^[\w-.]$", ["-", ".", "a", "/"]),
    (r"^(?=a)?b$", ["b", "a"]),
]


def test_what_only_the_u_flag_forbids_is_read_as_annex_b_does() -> None:
    strict = node_verdicts([(pattern, "u", texts) for pattern, texts in LENIENT_CASES])
    assert strict == [None] * len(LENIENT_CASES)
    expected = node_verdicts([(pattern, "", texts) for pattern, texts in LENIENT_CASES])
    for (pattern, texts), verdicts in zip(LENIENT_CASES, expected, strict=True):
        assert [matches(parse_ecma(pattern), text) for text in texts] == verdicts, pattern


# -- the size of the result ------------------------------------------------------------------


def test_anchored_patterns_become_small() -> None:
    assert parse_ecma("^abc$") == ir.literal("abc")
    assert parse_ecma("^(?:abc)$") == ir.literal("abc")
    assert parse_ecma("(^abc$)|(^$)") == ir.Repeat(ir.literal("abc"), 0, 1)
    assert parse_ecma("a") == ir.Concat((ir.ANY_TEXT, ir.char_set([(97, 97)]), ir.ANY_TEXT))
    assert parse_ecma("a|b") == ir.Concat((ir.ANY_TEXT, ir.char_set([(97, 98)]), ir.ANY_TEXT))
    assert parse_ecma(".*") == ir.ANY_TEXT
    assert parse_ecma("^x?") == ir.ANY_TEXT
    assert parse_python("^abc$") == ir.literal("abc")
    assert parse_python("a|[b-d]|e") == ir.char_set([(97, 101)])


def test_counts_stay_counts() -> None:
    a = ir.char_set([(97, 97)])
    assert parse_python("a{3,1000}") == ir.Repeat(a, 3, 1000)
    assert parse_ecma("^a{3,1000000}$") == ir.Repeat(a, 3, 1_000_000)
    assert parse_python("a{7,}") == ir.Repeat(a, 7, None)
    assert parse_python("(?:a+)*") == ir.Repeat(a, 0, None)
    assert parse_python("(?:a?){0,9}") == ir.Repeat(a, 0, 9)


# -- sets ------------------------------------------------------------------------------------


@pytest.mark.parametrize("escape", [r"\d", r"\D", r"\w", r"\W", r"\s", r"\S"])
@pytest.mark.parametrize("flags", [0, re.ASCII])
def test_python_classes_hold_exactly_what_re_matches(escape: str, flags: int) -> None:
    regex = parse_python(escape, flags)
    assert isinstance(regex, ir.CharSet)
    test = re.compile(escape, flags).fullmatch
    points = [*range(0xD800), *range(0xE000, ir.MAX_CODE_POINT + 1)]
    if not flags:
        # All of the BMP and a sample beyond; ASCII is done in full.
        points = [*range(0xD800), *range(0xE000, 0x10000), *range(0x10000, 0x110000, 17)]
    inside = {p for low, high in regex.ranges for p in range(low, high + 1)}
    assert all((p in inside) == bool(test(chr(p))) for p in points)


def test_ignorecase_is_exactly_what_re_does() -> None:
    rng = random.Random(5)
    everything = "".join(text for _, text in unicode_sets.planes())
    cased = [c for c in everything[:0x20000] if c.lower() != c or c.upper() != c]
    sources = [rng.choice(cased) for _ in range(6)] + list("sSkKiIßẞµſKÅΣςιͅ")
    sources += [f"[{a}-{b}]" for a, b in ("ae", "HZ", "àþ", "Ἀὥ", "ΘϿ", "Ⅰↈ", "𐐀𐐧", "!~")]
    sources += ["[^a]", "[^À-Þ]", r"[\Wk]", r"[^\W_a-f]", r"[\dſ]"]
    for source in sources:
        for flags in (re.I, re.I | re.A):
            regex = parse_python(source, flags)
            assert isinstance(regex, ir.CharSet)
            found = re.finditer(source, everything, flags)
            assert regex == ir.char_set([(m.start(), m.start()) for m in found]), source


def test_ecma_classes_hold_exactly_what_node_matches() -> None:
    everything = "".join(text for _, text in unicode_sets.planes())
    points = list(everything[:0x3100] + everything[0xA000:0xD800] + everything[0xE000:0x11000])
    # Only characters that are assigned in every version of Unicode either side may have.
    # Not U+0295 and modifier letters: their properties have changed with the versions.
    known = [c for c in points if re.match(r"[^\W_]|\s|[!-~]", c)]
    known = [c for c in known if c != "\u0295" and unicodedata.category(c) != "Lm"]
    names = [
        "L",
        "Lu",
        "Ll",
        "Lt",
        "LC",
        "Nd",
        "N",
        "P",
        "S",
        "Zs",
        "Z",
        "Letter",
        "gc=Sc",
        "ASCII",
    ]
    names += ["Uppercase", "Lowercase", "White_Space", "Hex_Digit", "AHex", "Any", "XID_Start"]
    names += ["XID_Continue", "Pattern_White_Space", "Noncharacter_Code_Point", "Assigned"]
    patterns = [rf"^\p{{{name}}}$" for name in names] + [rf"^\P{{{name}}}$" for name in names]
    patterns += [r"^\d$", r"^\D$", r"^\w$", r"^\W$", r"^\s$", r"^\S$", "^.$"]
    expected = node_verdicts([(pattern, "u", known) for pattern in patterns])
    for pattern, verdicts in zip(patterns, expected, strict=True):
        regex = parse_ecma(pattern)
        ranges = regex.ranges if isinstance(regex, ir.CharSet) else ()
        assert ranges or regex == ir.NOTHING, pattern
        inside = {p for low, high in ranges for p in range(low, high + 1)}
        assert verdicts is not None, pattern
        ours = [ord(c) in inside for c in known]
        differ = [hex(ord(c)) for c, a, b in zip(known, ours, verdicts, strict=True) if a != b]
        assert not differ, pattern


# -- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parse", "pattern", "position", "says"),
    [
        (parse_python, "a(b", 1, r"missing \)"),
        (parse_python, "[z-a]", 1, "bad character range"),
        (parse_python, r"(a)x\1", 4, "backreference"),
        (parse_python, r"x\p{L}", 1, r"for letters write \[\^\\W\\d_\]"),
        (parse_python, r"(?P<n>a)(?P=n)", 8, "backreference"),
        (parse_python, r"(a)?(?(1)b|c)", 4, "conditional"),
        (parse_python, r"x(?<=a+)", 1, "fixed-width"),
        (parse_ecma, "a(b", 1, "not closed"),
        (parse_ecma, "a)b", 1, "closes no group"),
        (parse_ecma, "[ab", 0, "not closed"),
        (parse_ecma, "[z-a]", 1, "out of order"),
        (parse_ecma, "a{3,2}", 1, "out of order"),
        (parse_ecma, "*a", 0, "nothing to repeat"),
        (parse_ecma, "a**", 2, "nothing to repeat"),
        (parse_ecma, "{3}", 0, "nothing to repeat"),
        (parse_ecma, r"\b+", 2, "nothing to repeat"),
        (parse_ecma, r"(?<=a)*", 6, "nothing to repeat"),
        (parse_ecma, r"(a)\1", 3, "backreference"),
        (parse_ecma, r"(?<n>a)\k<n>", 7, "backreference"),
        (parse_ecma, r"^a\Z", 2, r"write \$"),
        (parse_ecma, r"\a", 0, r"\\x07"),
        (parse_ecma, r"\07", 0, "octal"),
        (parse_ecma, r"[\8]", 1, "digits"),
        (parse_ecma, r"\xg", 0, "hexadecimal"),
        (parse_ecma, r"\u{110000}", 0, "10FFFF"),
        (parse_ecma, r"\p{Foo}", 0, "unknown Unicode property"),
        (parse_ecma, r"\p{Script=Elvish}", 0, "unknown Unicode property"),
        (parse_ecma, r"\p{script=Greek}", 0, "unknown Unicode property"),
        (parse_ecma, r"\pL", 0, "braces"),
        (parse_ecma, "(?P<n>a)", 0, r"\(\?<name>"),
        (parse_ecma, "(?<1>a)", 0, "group name"),
        (parse_ecma, "ab\\", 2, "backslash"),
    ],
)
def test_malformed_patterns_say_where(parse: Any, pattern: str, position: int, says: str) -> None:
    with pytest.raises(PatternError, match=says) as caught:
        parse(pattern)
    assert caught.value.position == position
    assert caught.value.pattern == pattern
    assert str(caught.value).endswith(f"\n  {pattern}\n  {' ' * position}^")


def test_ecma_rejects_what_node_rejects() -> None:
    patterns = ["a(b", "a)", "[z-a]", "a{3,2}", "*", "a**", "{3}", r"\b+", r"(?<=a)*", "(?P<n>a)"]
    patterns += ["[a", "a\\", "(?", "(?<n", "(?>a)", "(?#a)", "a{1}{2}", "^*", "a???"]
    assert node_verdicts([(pattern, "", []) for pattern in patterns]) == [None] * len(patterns)
    for pattern in patterns:
        with pytest.raises(PatternError):
            parse_ecma(pattern)


@pytest.mark.parametrize(("parse", "pattern", "says"), [(parse_ecma, "(?i)a", "without a group")])
def test_what_is_not_done_is_refused(parse: Any, pattern: str, says: str) -> None:
    with pytest.raises(UnsupportedFeature, match=says) as caught:
        parse(pattern)
    assert caught.value.fix


def test_bytes_patterns_are_refused() -> None:
    pattern: Any = b"a"
    with pytest.raises(PatternError, match="must be a str"):
        parse_python(pattern)


@pytest.mark.parametrize("parse", [parse_python, parse_ecma])
@pytest.mark.parametrize(
    "pattern",
    [
        "(" * 5000,
        "(" * 5000 + ")" * 5000,
        "(?:a|b" * 3000 + ")*" * 3000,
        "(?=a|b" * 3000 + ")" * 3000,
        "[" * 5000 + "]",
        "a" * (MAX_PATTERN_LENGTH + 1),
        r"(?:\bx|y" * 9 + "){0,8}" * 9,
        r"\b.*" * 60,
        "(?=.*a)" * 300,
        "(?:(?!a|b|cd).)*x" * 10,
        "(?=a|(?!b(?<=c" * 40 + ")))" * 40,
        "(?:a|b(?:c|d(?:" * 13 + "x" + ")*)*)*" * 13,
    ],
)
@pytest.mark.filterwarnings("ignore:Possible nested set:FutureWarning")
def test_hostile_patterns_take_little_work(parse: Any, pattern: str) -> None:
    n_calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal n_calls
        n_calls += event == "call"

    sys.setprofile(count)
    try:
        with contextlib.suppress(PatternError, CompileLimitExceeded, UnsupportedFeature):
            parse(pattern)
    finally:
        sys.setprofile(None)
    assert n_calls < 5_000_000  # some seconds' worth


def test_limits_are_named() -> None:
    with pytest.raises(CompileLimitExceeded) as caught:
        parse_ecma("a" * (MAX_PATTERN_LENGTH + 1))
    assert (caught.value.limit, caught.value.actual) == (100_000, 100_001)
    with pytest.raises(CompileLimitExceeded, match="nested too deeply"):
        parse_python("(?:a|b" * 500 + ")*" * 500)


# -- real patterns ---------------------------------------------------------------------------


def test_patterns_of_the_json_schema_test_suite() -> None:
    files = ("ecmascript-regex", "non-bmp-regex", "pattern")
    judged = 0
    for group in corpora.lines("json-schema-test-suite.jsonl.xz"):
        schema = group["schema"]
        name = Path(group["file"]).name.removesuffix(".json")
        if name not in files or not isinstance(schema, dict) or "pattern" not in schema:
            continue
        regex = parse_ecma(schema["pattern"])
        for test in group["tests"]:
            if isinstance(test["data"], str):
                judged += 1
                assert matches(regex, test["data"]) == test["valid"], (schema, test)
    assert judged > 300


def test_patterns_of_real_schemas() -> None:
    found: set[str] = set()

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            if isinstance(value.get("pattern"), str):
                found.add(value["pattern"])
            if isinstance(value.get("patternProperties"), dict):
                found.update(value["patternProperties"])
            for inner in value.values():
                collect(inner)
        elif isinstance(value, list):
            for inner in value:
                collect(inner)

    for case in corpora.lines("maskbench-dev.jsonl.xz"):
        collect(case["schema"])
    patterns = sorted(found)
    regexes: dict[str, ir.Regex] = {}
    refused: dict[str, str] = {}
    for pattern in patterns:
        try:
            regexes[pattern] = parse_ecma(pattern)
        except PatternError as error:
            refused[pattern] = str(error)
    assert all("backreference" in why for why in refused.values()), refused
    assert len(refused) <= 1
    rng = random.Random(3)
    alphabet = "aZ09_-./:@ $\n{}é"
    cases = [(p, "u", texts_for(r, rng, alphabet, 6)) for p, r in regexes.items()]
    unicode = node_verdicts(cases)
    plain = node_verdicts([(pattern, "", texts) for pattern, _, texts in cases])
    for (pattern, _, texts), strict, lenient in zip(cases, unicode, plain, strict=True):
        expected = strict if strict is not None else lenient
        assert expected is not None, pattern
        matcher = Matcher(regexes[pattern])
        assert [matcher.matches(text) for text in texts] == expected, pattern


# -- ECMA-262 modifiers ----------------------------------------------------------------------
# Node before version 23 does not know them, but as flags of a whole pattern.


@pytest.mark.parametrize("flags", ["i", "s", "m", "ims"])
def test_modifiers_of_a_whole_pattern_are_its_flags(flags: str) -> None:
    rng = random.Random(flags)
    generator = PatternGenerator(rng, "ecma", True)
    cases: list[tuple[str, list[str]]] = []
    for _ in range(150 * ROUNDS):
        pattern = generator.pattern()
        try:
            regex = parse_ecma(f"(?{flags}:{pattern})")
        except PatternError:
            continue
        texts = texts_for(regex, rng, ALPHABET + "kKAB\u2029", 12)
        cases.append((pattern, texts + [text.swapcase() for text in texts]))
    expected = node_verdicts([(pattern, "u" + flags, texts) for pattern, texts in cases])
    judged = [0, 0]
    for (pattern, texts), verdicts in zip(cases, expected, strict=True):
        assert verdicts is not None, pattern
        matcher = Matcher(parse_ecma(f"(?{flags}:{pattern})"))
        for text, verdict in zip(texts, verdicts, strict=True):
            assert matcher.matches(text) == verdict, (pattern, text)
            judged[verdict] += 1
    assert min(judged) > 300, judged


def test_case_is_folded_as_node_folds_it() -> None:
    everything = "".join(text for _, text in unicode_sets.planes())
    # What had a case in the oldest version of Unicode either side may have.
    cased = [c for c in unicode_sets._cased() if unicodedata.ucd_3_2_0.category(c) != "Cn"]
    sources = ["[a-z]", "[^a-k]", r"\w", r"\W", r"[^\W_a-f]", r"[^\w]", "[à-ÿ]", "[Ͱ-Ͽ]", "[Ⴀ-ჿ]"]
    sources += ["s", "k", "ſ", "K", "ß", "ẞ", "i", "İ", "ı", "µ", "Å"]
    sources += ["ᾳ", "ᾼ", "ǆ", "ǅ", "𐐀", "ꭰ", "ϐ"]
    sources += [rf"[{everything[c]}-{everything[c + 40]}]" for c in range(0xC0, 0x580, 41)]
    expected = node_verdicts([(f"^{source}$", "iu", cased) for source in sources])
    for source, verdicts in zip(sources, expected, strict=True):
        regex = parse_ecma(f"^(?i:{source})$")
        assert isinstance(regex, ir.CharSet)
        inside = {p for low, high in regex.ranges for p in range(low, high + 1)}
        assert verdicts is not None
        differ = [c for c, v in zip(cased, verdicts, strict=True) if v != (ord(c) in inside)]
        assert not differ, source


@pytest.mark.parametrize(
    ("pattern", "fits", "fits_not"),
    [
        (r"^a(?i:b)c$", ["abc", "aBc"], ["Abc", "abC"]),
        (r"^(?i:a(?-i:b)c)$", ["AbC", "abc"], ["ABc"]),
        (r"^(?i:a|b)(?:c)$", ["Ac", "Bc"], ["AC"]),
        (r"^(?s:.)(?-s:.)$", ["\nx", "xx"], ["x\n"]),
        (r"^x(?m:$)[^]*(?m:^)y$", ["x\ny", "x\r\u2028y"], ["xy", "x y"]),
        (r"^(?i:\bK\b)$", ["K", "k", "\u212a"], ["kk"]),
        (r"^(?i-s:[^x])$", ["y"], ["x", "X"]),
    ],
)
def test_modifiers_hold_inside_of_their_group(
    pattern: str, fits: list[str], fits_not: list[str]
) -> None:
    regex = parse_ecma(pattern)
    assert [matches(regex, text) for text in fits] == [True] * len(fits)
    assert [matches(regex, text) for text in fits_not] == [False] * len(fits_not)


@pytest.mark.parametrize("pattern", ["(?ii:a)", "(?i-i:a)", "(?-:a)", "(?x:a)", "(?ix:a)", "(?i"])
def test_malformed_modifiers(pattern: str) -> None:
    with pytest.raises(PatternError) as caught:
        parse_ecma(f"b{pattern}")
    assert caught.value.position == 1


@pytest.mark.parametrize(
    ("pattern", "position"),
    [
        ("(?x)# as \\1\n(a)\\1", 15),
        ("(?x)[#](a)\\1", 10),
        ("(?x)" + "#" + "[" * 90_000 + "\n(a)\\1", 90_009),  # took two minutes
        ("(?x:#" + "[" * 90_000 + "\n(a)\\1)", None),
    ],
)
def test_comments_are_no_part_of_a_pattern(pattern: str, position: int | None) -> None:
    with pytest.raises(PatternError, match="backreference") as caught:
        parse_python(pattern)
    assert caught.value.position == position


@pytest.mark.skipif(not hasattr(re, "NOFLAG"), reason="possessive quantifiers came with 3.11")
def test_possessive_errors_have_a_caret() -> None:
    with pytest.raises(UnsupportedFeature) as caught:
        parse_python("ab(?>a*b)c")
    lines = str(caught.value).splitlines()
    assert lines[0].endswith("fixed width, at position 2")
    assert lines[1:3] == ["  ab(?>a*b)c", "    ^"]
    assert "lookahead" in lines[3]


# -- Unicode properties that the standard library does not know ------------------------------


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("Script=Greek", "αΩϷ", "aа·"),
        ("sc=Grek", "α", "a"),
        ("Script_Extensions=Deva", "अ।", "a"),
        ("Script=Devanagari", "अ", "।"),
        ("scx=Han", "漢々〆", "あ"),
        ("Script=Inherited", "\u0301", "a"),
        ("sc=Qaai", "\u0301", "a"),
        ("Emoji", "😀1©", "a"),
        ("Emoji_Presentation", "😀", "1©"),
        ("ExtPict", "😀©", "1"),
        ("Alphabetic", "aéⓐ", "1-"),
        ("Math", "+∑", "a"),
        ("ID_Start", "aµ", "1"),
        ("Ideo", "漢", "あ"),
    ],
)
def test_properties(name: str, inside: str, outside: str) -> None:
    for pattern in (rf"\p{{{name}}}", rf"[^\P{{{name}}}]"):
        regex = parse_ecma(f"^{pattern}$")
        assert [matches(regex, char) for char in inside] == [True] * len(inside)
        assert [matches(regex, char) for char in outside] == [False] * len(outside)


def test_properties_are_those_of_node() -> None:
    table = Path(unicode_sets.__file__).with_name("unicode_properties.txt").read_text()
    version = re.search(r"Unicode (\d+)\.", table)
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node on the PATH")
    its = subprocess.run([node, "-p", "process.versions.unicode"], capture_output=True, text=True)
    assert version is not None
    if its.stdout.split(".")[0] != version[1]:
        pytest.skip(f"this node knows Unicode {its.stdout.strip()}, the table is of {version[1]}")
    rng = random.Random(6)
    points = [chr(c) for c in rng.sample([*range(0xD800), *range(0xE000, 0x1FC00)], 1500)]
    kinds = {"sc": "Script=", "scx": "Script_Extensions=", "bin": ""}
    names = [
        kinds[kind] + name
        for line in table.splitlines()
        if not line.startswith("#")
        for kind, names in [line.split(": ")[0].split()]
        for name in names.split("=")
    ]
    assert len(names) > 450
    expected = node_verdicts([(rf"^\p{{{name}}}$", "u", points) for name in names])
    for name, verdicts in zip(names, expected, strict=True):
        regex = parse_ecma(rf"^\p{{{name}}}$")
        assert isinstance(regex, ir.CharSet)
        assert verdicts is not None, name
        inside = {p for low, high in regex.ranges for p in range(low, high + 1)}
        assert [ord(c) in inside for c in points] == verdicts, name


def test_a_mistake_in_a_pattern_of_several_lines_has_line_and_column() -> None:
    with pytest.raises(PatternError) as caught:
        parse_python("(?x)\n a b\n\tc [z-a]\n d")
    *_, shown, caret = str(caught.value).split("\n")
    assert "position 14 (line 3, column 5)" in str(caught.value)
    assert (shown, caret) == ("   c [z-a]", "      ^")


def test_conditionals_are_said_to_be_what_they_are() -> None:
    with pytest.raises(PatternError, match="conditional on a group, which is not supported"):
        parse_python("(a)?(?(1)b|c)")


@pytest.mark.parametrize(
    ("pattern", "written"),
    [
        ("[[:alpha:]]+", "A-Za-z"),
        ("x[^[:space:]_]", r" \\t\\n"),
        ("[a-z[:digit:]]", "0-9"),
        ("[[:nothing:]]", "the characters"),
    ],
)
def test_posix_classes_are_told_in_every_notation_with_pythons_patterns(
    pattern: str, written: str
) -> None:
    with pytest.raises(PatternError, match=written) as caught:
        parse_python(pattern)
    assert caught.value.position == pattern.index("[:")
    for make in (
        lambda: lower(structgen.Regex(pattern)),
        lambda: lower(structgen.Regex(pattern) | "x"),
        lambda: lower(structgen.Cfg(f"start: /{pattern}/")),
        lambda: lower(structgen.Cfg("%declare X\nstart: X", terminals={"X": pattern})),
    ):
        with pytest.raises(structgen.OutputTypeError, match=r"no class \[:"):
            make()


def test_sets_that_python_warns_of_are_read_without_a_warning() -> None:
    for pattern, good, bad in (
        ("[[a]", "[", "b"),
        ("[a&&b]", "&", "c"),
        ("[a||b]", "|", "c"),
        (r"\[[:alpha:]", "[:", "[b"),
        ("[:alpha:]", ":", "b"),
    ):
        parsed = parse_python(pattern)
        assert matches(parsed, good), pattern
        assert not matches(parsed, bad), pattern


@pytest.mark.parametrize(
    "pattern",
    [
        r"^[\p{L}--[a-z]]$",
        r"^[[a-z]&&[aeiou]]$",
        r"^[\w--\d]$",
        r"^[\w--.]$",
        r"^[\q{abc|d}a-c]+$",
        r"^[[[a-c]x]&&[^b]]{2}$",
        r"\-[\w--\d]",
        "[a-z--[aeiou]]",
    ],
)
def test_set_notation_of_flag_v_is_refused_with_what_to_write(pattern: str) -> None:
    with pytest.raises(UnsupportedFeature, match="flag v of ECMA-262, at position") as told:
        parse_ecma(pattern)
    assert "Write a lookahead" in str(told.value)


@pytest.mark.parametrize(
    ("pattern", "fits", "fits_not"),
    [
        (r"^[a&&b]$", "a&b", "c"),
        (r"^[!--]$", "!-&", "."),
        (r"^[[a]$", "[a", "b"),
        (r"^[\w-.]$", "a-.", "/"),
        (r"^[a-z]&&[0-9]\-$", ["a&&0-"], ["a"]),
        (r"^(?![aeiou])[a-z]$", "bz", "ae"),
    ],
)
def test_what_flag_u_reads_is_no_set_notation(pattern: str, fits: str, fits_not: str) -> None:
    matcher = Matcher(parse_ecma(pattern))
    assert [text for text in (*fits, *fits_not) if matcher.matches(text)] == [*fits]


def test_equal_expressions_are_compared_once():
    one, other, third = (parse_python("(?:a[b-d]{2,5}|x){3}") for _ in range(3))
    assert one.body is not other.body
    assert one == other
    assert one.body is other.body  # or each look into a table of automata would go through them all
    assert hash(third) == hash(one)
    assert third != parse_python("(?:a[b-d]{2,5}|y){3}")
    assert third != "a"
    assert {one: 1}[third] == 1
    assert third.body is one.body
