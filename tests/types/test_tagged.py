"""Free text with typed values in tags: exact masks, and the values that come back.

The reference reads a text from the left, as it is written: a tag opens as soon as a begin is there.
For masks, every token is tried byte by byte.
"""

from __future__ import annotations

import functools
import random
import re
import sys
from collections.abc import Callable
from itertools import product
from typing import Annotated, Any, Literal

import inside
import pytest
import real_tokenizers
from engine.walks import (
    TINY,
    accepts,
    allowed,
    brute_force_ids,
    seeds,
    states_on_the_way,
    walk,
    walks_within_the_budget,
)
from fakes import FakeModel
from pydantic import BaseModel, Field

import structgen
from structgen import (
    Generator,
    JsonSchema,
    OutputTypeError,
    ParseError,
    Regex,
    Tagged,
    Template,
    Text,
    Vocabulary,
)
from structgen.types import SpecialToken, TaggedText, TaggedValue, lower
from structgen.types.tagged import ReadTag, read_tags, tagged_type


class Point(BaseModel):
    x: int


LETTERS = Vocabulary.from_tokens([bytes([b]) for b in range(256)] + [b""], eos_token_ids=[256])
CASES: dict[str, tuple[Tagged | TaggedText, list[tuple[str, str, str]]]] = {
    # what the reference knows of the types inside is a pattern
    "plain": (Tagged("<p>", Literal["a", "ab"], "</p>"), [("<p>", "a|ab", "</p>")]),
    "overlap": (Tagged("aa", Literal["b", "ba"], "a"), [("aa", "b|ba", "a")]),
    "itself": (Tagged("aba", Literal["b"], "b"), [("aba", "b", "b")]),
    "prefix": (
        TaggedText(Tagged("a", Literal["1"], "b"), Tagged("ab", Literal["2", "b"], "a")),
        [("a", "1", "b"), ("ab", "2|b", "a")],
    ),
    "crossing": (
        TaggedText(Tagged("ab", Literal["1"], "a"), Tagged("ba", Literal["2"], "b")),
        [("ab", "1", "a"), ("ba", "2", "b")],
    ),
    "apart": (
        TaggedText(Tagged("<a", Literal["1", "b"], "b"), Tagged("<b", Literal["1"], "<")),
        [("<a", "1|b", "b"), ("<b", "1", "<")],
    ),
    "any text": (Tagged("<", Regex("[ab]*"), "b"), [("<", "[ab]*", "b")]),
}
ALPHABET = {
    "plain": ["<p>", "</p>", "a", "b", "<"],
    "overlap": "ab",
    "itself": "ab",
    "prefix": "ab12",
    "crossing": "ab12",
    "apart": "<ab1",
    "any text": "<ab",
}


def reads(tags: list[tuple[str, str, str]], text: str) -> bool:
    """Whether each begin, as soon as it is there, opens what it has to."""

    def free(at: int, since: int) -> bool:
        for end in range(at, len(text) + 1):
            opened = [t for t in tags if text[since:end].endswith(t[0])]
            if opened:
                longer = [
                    t
                    for t in tags
                    if t not in opened
                    and t[0].startswith(opened[0][0])
                    and text.startswith(t[0], end - len(opened[0][0]))
                ]
                return any(inner(t, end) for t in opened) or any(
                    inner(t, end - len(opened[0][0]) + len(t[0])) for t in longer
                )
        return True

    def inner(tag: tuple[str, str, str], first: int) -> bool:
        for last in range(first, len(text) + 1):
            if text.startswith(tag[2], last) and re.fullmatch(tag[1], text[first:last]):
                after = last + len(tag[2])
                return free(after, after)  # the first end that comes
        return False

    return free(0, 0)


@pytest.mark.parametrize("name", CASES)
def test_all_short_texts_are_judged_as_the_reference_judges_them(name: str) -> None:
    output_type, tags = CASES[name]
    constraint = structgen.compile(output_type, LETTERS)
    parse: Callable[[str], Any] = constraint.output.parse
    for length in range(7 if len(ALPHABET[name]) > 3 else 9):
        for parts in product(ALPHABET[name], repeat=length):
            text = "".join(parts)
            expected = reads(tags, text)
            assert constraint.allows(text) == expected, text
            if expected:
                pieces = parse(text)
                written = [
                    p if isinstance(p, str) else f"{p.tag.begin}{p.value}{p.tag.end}"
                    for p in pieces
                ]
                assert "".join(written) == text


TYPES: dict[str, Tagged | TaggedText] = {
    "json": Tagged("<p>", Point, "</p>"),
    "several": TaggedText(
        Tagged('{"', Regex(r"[^\n]{0,5}"), '"'), Tagged(" the", list[int], " "), at_least=1
    ),
    "prefixes": TaggedText(Tagged("a", int, "a"), Tagged("ab", bool, "b"), at_most=2),
    "counted": TaggedText(
        Tagged("[", int, "]", at_least=1, at_most=2), Tagged("(", Point, ")", at_most=1)
    ),
    "trigger": TaggedText(
        Tagged(" theory", int, "s"), Tagged(" then", Point, "."), trigger=" the", at_most=2
    ),
    "separator": TaggedText(Tagged("a", int, "b"), Tagged("b", Point, "a"), separator=", "),
    "characters": Tagged("é", Literal["漢", "😀"], "é"),
}


ONE, TWO = Tagged("<fa", Literal["1"], ">"), Tagged("<fb", Literal["2"], ">")
FLOWS: dict[str, tuple[TaggedText, str | tuple[str, ...]]] = {
    "trigger": (TaggedText(ONE, TWO, trigger="<f"), ["<f", "<", "a", "b", "1", "2", ">"]),
    "short": (TaggedText(ONE, TWO, trigger=["<"]), ["<f", "<", "a1", "b2", ">"]),
    "itself": (TaggedText(Tagged("aab", Literal["1"], "a"), trigger="aa"), "ab1"),
    "two": (TaggedText(Tagged("ab1", Literal["1"], "c"), Tagged("c", Literal["2"], "a"),
                       trigger=("ab", "c")), "abc12"),
    "stop": (TaggedText(ONE, TWO, trigger="<f", stop_after_first=True), ["<f", "<", "a1>", "b2>"]),
    "one": (TaggedText(ONE, TWO, stop_after_first=True, at_least=1), ["<fa", "<", "1>", "b2>"]),
    "commas": (TaggedText(ONE, TWO, separator=","), ["<fa1>", "<fb2>", ",", "x"]),
    "nothing": (TaggedText(ONE, TWO, separator="", at_least=1), ["<fa1>", "<fb2>", "<", "x"]),
    "two at most": (TaggedText(ONE, TWO, separator="--", at_most=2), ["<fa1>", "<fb2>", "-", "x"]),
    "first": (TaggedText(ONE, TWO, separator=",", stop_after_first=True), ["<fa1>", "<fb2>", ","]),
}  # fmt: skip


def flows(output: TaggedText, text: str) -> bool:
    """Whether ``text`` is one of ``output``, whose values are constants, and whose ends are single
    characters: read from the left."""
    triggers = output.trigger or tuple(str(tag.begin) for tag in output.tags)
    at = count = 0
    while True:
        if output.separator is None:
            ends = [(text.find(one, at) + len(one), one) for one in triggers if one in text[at:]]
            if not ends or (output.stop_after_first and count):
                break
            at = min(ends)[0] - len(min(ends)[1])
        elif at == len(text):
            break
        elif count:
            if not text.startswith(output.separator, at):
                return False
            at += len(output.separator)
        wholes = [f"{tag.begin}{tag.type.__args__[0]}{tag.end}" for tag in output.tags]
        after = next((at + len(one) for one in wholes if text.startswith(one, at)), None)
        if after is None:
            return False
        at, count = after, count + 1
        if output.stop_after_first:
            break
    is_over = at == len(text) or (
        output.separator is None and not (output.stop_after_first and count)
    )
    most = output.at_most if output.at_most is not None else count
    return is_over and output.at_least <= count <= most


@pytest.mark.parametrize("name", FLOWS)
def test_triggers_and_separators(name: str) -> None:
    output, alphabet = FLOWS[name]
    constraint = structgen.compile(output, LETTERS)
    parse = lower(output).parse
    n_right = 0
    for length in range(5 if len(alphabet) > 5 else 6 if len(alphabet) > 3 else 8):
        for parts in product(alphabet, repeat=length):
            text = "".join(parts)
            wanted = flows(output, text)
            assert constraint.allows(text) == wanted, text
            if wanted:
                n_right += 1
                pieces = parse(text)
                if output.separator is not None:
                    assert all(isinstance(piece, TaggedValue) for piece in pieces)
                else:
                    whole = "".join(
                        piece if isinstance(piece, str)
                        else f"{piece.tag.begin}{piece.value}{piece.tag.end}"
                        for piece in pieces
                    )  # fmt: skip
                    assert whole == text
    assert n_right >= 3


def test_a_trigger_commits() -> None:
    output = TaggedText(
        Tagged("<function=pay>", Point, "</function>"),
        Tagged("<function=greet>", int, "</function>"),
        trigger="<function=",
    )
    cursor = structgen.compile(output, LETTERS).start()
    for byte in b"Well, <function x <function=":
        cursor.accept(byte)
    assert set(allowed(cursor, LETTERS)) == {ord("p"), ord("g")}
    cursor.accept(ord("p"))
    assert bytes(cursor.forced_tokens()).startswith(b"ay>{")
    for wrong in (
        *({"trigger": one} for one in ("<tool", "", 3, ["<f", 3])),
        *({"separator": one} for one in (3, [","])),
        {"trigger": "<f", "separator": ","},
    ):
        with pytest.raises(OutputTypeError, match=r"trigger="):
            TaggedText(ONE, TWO, **wrong)  # type: ignore[arg-type]
    with pytest.raises(OutputTypeError, match="at_least requires more"):
        lower(TaggedText(ONE, at_least=2, stop_after_first=True))


@pytest.mark.parametrize("name", TYPES)
def test_masks_equal_brute_force(name: str) -> None:
    constraint = structgen.compile(TYPES[name], TINY)
    for cursor in states_on_the_way(constraint, random.Random(name), len(seeds(40)), special=0.6):
        state = inside.state(cursor)
        assert set(allowed(cursor)) == brute_force_ids(constraint, state, TINY)


def test_masks_equal_brute_force_with_a_real_vocabulary() -> None:
    vocabulary = real_tokenizers.vocabulary("llama3")
    constraint = structgen.compile(Tagged("<tool_call>\n", Point, "\n</tool_call>"), vocabulary)
    text = 'Well <tool <tool_call>\n{"x":12}\n</tool_call> é.'
    cursor = constraint.start()
    for token in vocabulary.encode_bytes(text.encode()):
        state = inside.state(cursor)
        assert set(allowed(cursor, vocabulary)) == brute_force_ids(constraint, state, vocabulary)
        cursor.accept(token)
    assert cursor.is_accepting


@pytest.mark.parametrize("name", TYPES)
def test_walks_parse_and_keep_to_the_budget(name: str) -> None:
    constraint = structgen.compile(TYPES[name], TINY)
    rng = random.Random(name)
    n_tags = 0
    for result in walks_within_the_budget(constraint, rng, 12):
        assert accepts(constraint, result.text, rng), result.text
        pieces = constraint.output.parse(result.text)
        n_tags += sum(isinstance(piece, TaggedValue) for piece in pieces)
        assert "" not in pieces
    assert n_tags or name not in ("several", "counted")


def tagged_tokens() -> Vocabulary:
    return Vocabulary.from_tokens(
        [*TINY.tokens, b"", b"", b"<tool>"],
        TINY.eos_token_ids,
        special_token_ids=[*TINY.special_token_ids, TINY.size, TINY.size + 1],
        named_tokens={"<|call|>": TINY.size, "<|end|>": TINY.size + 1, "<tool>": TINY.size + 2},
    )


@pytest.mark.parametrize("begin", ["<|call|>", SpecialToken("<|call|>"), "<|call|>json:"])
def test_a_begin_may_be_a_control_token(begin: Any) -> None:
    vocabulary = tagged_tokens()
    constraint = structgen.compile(Tagged(begin, Point, "<|end|>"), vocabulary)
    call, end = TINY.size, TINY.size + 1
    cursor = constraint.start()
    ids = set(allowed(cursor, vocabulary))
    assert call in ids
    assert end not in ids
    # The token opens the tag; its name, spelt, would read as one that does not.
    tail = "" if isinstance(begin, SpecialToken) else begin.removeprefix("<|call|>")
    for token in (*vocabulary.encode_bytes(b"Hm <|"), call):
        cursor.accept(token)
    inner = tail + '{"x":1}'
    for token in vocabulary.encode_bytes(inner.encode()):
        cursor.accept(token)
    assert set(allowed(cursor, vocabulary)) == {end, *blanks(vocabulary, cursor)}
    cursor.accept(end)
    assert cursor.is_accepting
    text = f"Hm <|<|call|>{inner}<|end|>"
    tag = constraint.output.parse(text)[-1]
    assert tag.value == Point(x=1)
    spelt = structgen.compile(Tagged(begin, Point, "<|end|>"), vocabulary).start()
    for token in vocabulary.encode_bytes(b"<|call|"):
        spelt.accept(token)
    if not tail:
        assert not any(vocabulary.tokens[i].startswith(b">") for i in allowed(spelt, vocabulary))


def blanks(vocabulary: Vocabulary, cursor: structgen.Cursor) -> list[int]:
    return [i for i in allowed(cursor, vocabulary) if not vocabulary.tokens[i].strip(b" \n\t\r")]


def test_tags_in_a_union_know_control_tokens() -> None:
    either = structgen.Cfg('start: "none"') | Tagged("<|call|>", Point, "<|end|>", at_least=1)
    vocabulary = tagged_tokens()
    constraint = structgen.compile(either, vocabulary)
    assert TINY.size in allowed(constraint.start(), vocabulary)
    assert constraint.allows('Hm<|call|>{"x":1}<|end|>')
    assert constraint.output.parse('<|call|>{"x":1}<|end|>')[0].value == Point(x=1)
    assert constraint.output.parse("none") == "none"


def test_an_added_token_that_is_text_is_text() -> None:
    vocabulary = tagged_tokens()
    cursor = structgen.compile(Tagged("<tool>", Point, "</tool>"), vocabulary).start()
    assert TINY.size + 2 in allowed(cursor, vocabulary)
    cursor.accept(TINY.size + 2)
    assert all(vocabulary.tokens[i].startswith(b"{") for i in allowed(cursor, vocabulary))


def test_values_come_back() -> None:
    numbers = Tagged("<n>", int, "</n>")
    points = Tagged("<p>", Point, "</p>")
    text = 'One <n>1</n><p>{"x": 2}</p>.'
    assert lower(TaggedText(numbers, points)).parse(text) == [
        "One ",
        TaggedValue(numbers, 1),
        TaggedValue(points, Point(x=2)),
        ".",
    ]
    assert lower(numbers).parse("") == []
    # An end inside of a value is no end.
    notes = Tagged("<j>", dict[str, str], "</j>")
    assert lower(notes).parse('<j>{"a": "</j>"}</j>') == [TaggedValue(notes, {"a": "</j>"})]
    few = TaggedText(Tagged("<n>", int, "</n>", at_most=1), points, at_least=1)
    with pytest.raises(ParseError, match=r"it has 0 tags in total"):
        lower(few).parse("None")
    with pytest.raises(ParseError, match=r"it has 2 '<n>'"):
        lower(few).parse("<n>1</n><n>2</n>")
    with pytest.raises(
        ParseError, match=r"tag is incomplete or its content is invalid, such as '<n>' at"
    ):
        lower(numbers).parse("One <n>two</n>")


@pytest.mark.parametrize(
    ("inside", "text", "value"),
    [
        (Template("{x}{y}", x=Regex("a*"), y=Regex("<*")), "aa<", {"x": "aa", "y": "<"}),
        (Template("{x}{y}", x=Regex("a*"), y=Regex("<*")), "", {"x": "", "y": ""}),
        (Text("n=") + int, "n=12", "n=12"),
        (Template("{p}>{n}", p=Point, n=int), '{"x":1}>2', {"p": Point(x=1), "n": 2}),
        (JsonSchema({"type": "integer", "minimum": 20}), "200", 200),
    ],
)
def test_what_is_no_json_is_read_by_its_grammar(inside: Any, text: str, value: Any) -> None:
    for end in (">", "0 "):
        output_type = Tagged("<", inside, end)
        whole = f"a<{text}{end}."
        assert structgen.compile(output_type, LETTERS).allows(whole)
        (_, found, _) = lower(output_type).parse(whole)
        assert found.value == value
        wrong = f"<1{end}."
        assert not structgen.compile(output_type, LETTERS).allows(wrong)
        with pytest.raises(ParseError):
            lower(output_type).parse(wrong)


def test_validators_of_the_type_inside_are_told() -> None:
    from typing import Annotated

    from pydantic import AfterValidator

    def even(value: int) -> int:
        if value % 2:
            raise ValueError("is odd")
        return value

    output = lower(Tagged("<n>", Annotated[int, AfterValidator(even)], "</n>"))
    assert output.checked == (("$", "even"),)
    with pytest.raises(ParseError, match=r"In '<n>' at position 2: .*is odd"):
        output.parse("A <n>3</n>")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Tagged("", int, ">"), "begin='' is neither a str"),
        (lambda: Tagged("<", int, ""), "end='' is neither a str"),
        (lambda: Tagged("<", int, ">", at_least=2, at_most=1), "at_least=2 is greater than"),
        (lambda: Tagged("<", int, ">", at_least=True), "a count must be an int"),
        (lambda: TaggedText(), "at least one"),
        (lambda: TaggedText([Tagged("<", int, ">")]), "separate arguments"),  # type: ignore
        (
            lambda: lower(TaggedText(Tagged("<", int, ">"), Tagged("<", bool, ">"))),
            "Two tags begin with '<'",
        ),
        (lambda: lower(TaggedText(Tagged("a<b", int, ">"), Tagged("<", int, ">"))), "contains '<'"),
        (lambda: lower(TaggedText(Tagged("ab", int, ">"), Tagged("b", int, ">"))), "contains 'b'"),
        (lambda: lower(Tagged("<", structgen.Cfg('start: "a"'), ">")), "is a grammar, which"),
        (lambda: lower(Tagged("<", Tagged("[", int, "]"), ">")), "is a grammar, which"),
        (lambda: lower(Tagged("<", object(), ">")), "In Tagged"),
        (
            lambda: structgen.compile(Tagged("a<|call|>", int, ">"), tagged_tokens()),
            "has a special token in the middle",
        ),
        (
            lambda: lower(TaggedText(*(Tagged(f"<{i}>", int, ">", at_most=10) for i in range(4)))),
            "more than 1,000 combinations",
        ),
    ],
)
def test_what_cannot_be_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(OutputTypeError, match=re.escape(message)):
        make()


def test_a_generator_makes_them() -> None:
    generator = Generator(FakeModel('Well {"12"} so'), Tagged('{"', int, '"}', at_least=1))
    assert generator.parse("p", max_new_tokens=40)[:2] == [
        "Well ",
        TaggedValue(Tagged('{"', int, '"}', at_least=1), 12),
    ]


def test_random_texts_of_a_real_vocabulary_parse() -> None:
    vocabulary = real_tokenizers.vocabulary("smollm2")
    tags = TaggedText(Tagged("<n>", int, "</n>"), Tagged("<p>", Point, "</p>"), at_least=2)
    constraint = structgen.compile(tags, vocabulary)
    for seed in seeds(4):
        written = walk(constraint, random.Random(seed), max_tokens=60)
        text = written.text
        pieces = constraint.output.parse(text)
        assert sum(isinstance(piece, TaggedValue) for piece in pieces) >= 2


@pytest.mark.parametrize("inside", [str, int])
def test_a_text_is_read_in_few_looks_at_what_is_inside(inside: Any) -> None:
    looks: list[str] = []

    def is_whole(text: str) -> bool:
        looks.append(text)
        return inside is str or text.isdigit()

    tag = ReadTag("<a>", "</a>", is_whole, str, str, (0, None))
    text = "<a>1</a>" * 400
    assert read_tags([tag], (0, None), "text", text) == ["1"] * 400
    assert len(looks) == 400
    with pytest.raises(ParseError, match="is incomplete or its content is invalid"):
        read_tags([tag], (0, None), "text", text + "<a>")
    assert len(looks) == 800


# -- many kinds, and limits -------------------------------------------------------------------


def _calls(work: Callable[[], Any]) -> int:
    """How many Python functions are called, steps of generators included."""
    made = 0

    def note(frame: Any, event: str, arg: Any) -> None:
        nonlocal made
        made += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return made


def test_lowering_takes_steps_in_proportion_to_the_kinds_of_tags() -> None:
    def lowered(count: int) -> Callable[[], Any]:
        tags = [Tagged(f"<tool{i:03}>", int, f"</tool{i:03}>") for i in range(count)]
        return lambda: tagged_type(TaggedText(*tags), "tags", lower)

    lowered(10)()
    few, many = _calls(lowered(30)), _calls(lowered(120))
    assert many <= 6 * few, (few, many)


def test_compiling_takes_steps_in_proportion_to_the_kinds_of_tags() -> None:
    def compiled(count: int) -> Callable[[], Any]:
        tags = TaggedText(*(Tagged(f"<t{i:03}>", int, f"</t{i:03}>") for i in range(count)))
        return lambda: structgen.compile(tags, TINY)

    compiled(10)()
    few, many = _calls(compiled(60)), _calls(compiled(240))
    assert many <= 5 * few, (few, many)


@pytest.mark.parametrize("count", [60, 300])
def test_what_tags_take_too_much_of_is_told_with_its_limit(count: int) -> None:
    # Each begin may end where another one begins: while they are lowered, or built.
    tags = TaggedText(*(Tagged(f"<<t{i}<", int, "<") for i in range(count)))
    with pytest.raises(structgen.errors.CompileLimitExceeded) as error:
        structgen.compile(tags, TINY, max_work=20_000)
    assert error.value.limit == 20_000
    assert error.value.actual > 20_000
    assert "max_work" in str(error.value)


def test_a_terminal_that_takes_too_much_is_told_with_its_limit() -> None:
    grammar = structgen.Cfg("%declare J\nstart: J", terminals={"J": Regex("(a|b)*a(a|b){400}")})
    with pytest.raises(structgen.errors.CompileLimitExceeded) as error:
        structgen.compile(grammar, TINY, max_work=2_000)
    assert (error.value.limit, error.value.terminal) == (2_000, "terminal J")


def test_an_error_of_a_type_in_a_tag_keeps_what_it_says() -> None:
    pattern = r"(a)\1"
    inside = Annotated[str, Field(pattern=pattern)]
    for output in (Tagged("<a>", inside, "</a>"), structgen.Text("a") + inside):
        with pytest.raises(structgen.errors.PatternError, match=r"^In ") as error:
            structgen.compile(output, TINY)
        assert error.value.pattern == pattern


@pytest.mark.parametrize("wrong", [None, -1, True, 1.0, "1"])
def test_a_count_is_a_number(wrong: Any) -> None:
    for make in (
        functools.partial(Tagged, "<a>", int, "</a>"),
        functools.partial(TaggedText, Tagged("<a>", int, "</a>")),
    ):
        with pytest.raises(OutputTypeError, match="a count must be an int of at least 0"):
            make(at_least=wrong)
