"""`Quote`: what may be quoted, masks, budgets, values, and where they stand."""

from __future__ import annotations

import gc
import itertools
import json
import pickle
import random
import re
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import real_tokenizers
from byte_walks import BYTES
from engine.walks import (
    TINY,
    allowed,
    brute_force_ids,
    examples,
    minimum,
    read_mask,
    seeds,
    states_on_the_way,
    walk,
)
from fakes import FakeModel
from hypothesis import given
from hypothesis import strategies as st
from inside import state
from pydantic import BaseModel, Field, TypeAdapter
from typing_extensions import TypedDict

import structgen
from structgen import (
    Cfg,
    Generator,
    JsonSchema,
    OptionError,
    OutputTypeError,
    ParseError,
    Quote,
    Regex,
    Template,
    types,
)
from structgen.automaton.regex import quotes
from structgen.constraint import Constraint
from structgen.errors import CompileLimitExceeded, Unsatisfiable
from structgen.types import QuotedText, cache_key, lower

DOCUMENT = (
    'Ada said: "The mill—which was built in 1832—isn\'t old." (It is.)\n'
    "The mill was sold.\tSee e.g. C:\\new, or 3.5 km on.\n\nÜber 日本語です。はい 😀 é"
)


def pieces(document: str, unit: str, least: int = 1, most: int | None = None) -> set[str]:
    """All quotes, by another way than the automaton's; of words that letters and blanks make."""
    found = re.finditer(r"\w+" if unit == "word" else r"(?s).", document)
    words = [match.span() for match in found]
    return {
        document[words[i][0] : words[j - 1][1]]
        for i in range(len(words))
        for j in range(i + least, min(len(words), i + (most or len(words))) + 1)
    }


def accepted(constraint: Constraint, text: str) -> bool:
    return bool(constraint.allows(text))


# -- which texts --------------------------------------------------------------------------------


@given(st.randoms(use_true_random=False))
@examples(40)
def test_quotes_are_the_pieces_of_random_documents(r: random.Random) -> None:
    unit = r.choice(["word", "character"])
    document = "".join(r.choices("ab ", k=r.randint(1, 14)))
    least = r.randint(1, 3)
    most = r.choice([None, least, least + 1])
    wanted = pieces(document, unit, least, most)
    quote = Quote(document, unit, min=least, max=most)
    if not wanted:
        with pytest.raises(Unsatisfiable):
            structgen.compile(quote, BYTES)
        return
    constraint = structgen.compile(quote, BYTES)
    for _ in range(30):
        at = r.randint(0, len(document))
        text = document[at : at + r.randint(0, 6)] if r.random() < 0.8 else "ab a"
        assert accepted(constraint, text) == (text in wanted), (document, unit, text)
        if text in wanted:
            places = quote.find(text).places
            assert all(document[a:b] == text for a, b in places)
            if unit == "character":
                assert [a for a, _ in places] == [
                    i for i in range(len(document)) if document.startswith(text, i)
                ]


@pytest.mark.parametrize(
    ("unit", "good", "bad"),
    [
        (
            "word",
            ["mill", "The mill—which", '"The mill', "isn't", "3.5 km", 'old." (It is.)', "e.g.",
             "See e.g. C:\\new,", "語です", "はい", "(It", "1832—", "sold.\tSee"],
            ["mil", "ill", "isn", " mill", "mill ", "was  sold", "3", "", "—", "sold See", "い 😀"],
        ),
        (
            "sentence",
            ["(It is.)", "The mill was sold.", "See e.g.", "はい 😀 é",
             "Über 日本語です。はい 😀 é", "The mill was sold.\tSee e.g."],
            ["The mill", "It is.", "sold."],
        ),
        (
            "line",
            ["Über 日本語です。はい 😀 é", "The mill was sold.\tSee e.g. C:\\new, or 3.5 km on.",
             "The mill was sold.\tSee e.g. C:\\new, or 3.5 km on.\n\nÜber 日本語です。はい 😀 é"],
            ["The mill was sold.", "Über", "", "or 3.5 km on.", "on.\n"],
        ),
        ("character", ["ill", " ", "s built", "😀 é", '."'], ["illx", ""]),
    ],
)  # fmt: skip
def test_units(unit: Any, good: list[str], bad: list[str]) -> None:
    constraint = structgen.compile(Quote(DOCUMENT, unit), BYTES)
    assert [text for text in good if not accepted(constraint, text)] == []
    assert [text for text in bad if accepted(constraint, text)] == []
    for text in good:
        start, end = constraint.output.parse(text).places[0]
        assert DOCUMENT[start:end] == text


def test_lines_are_what_the_library_splits() -> None:
    text = "  a b \r\n\n\tc\x0bd\u2028 \x85é\x1e f\n"
    constraint = structgen.compile(Quote(text, "line", max=1), BYTES)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    assert lines == ["a b", "c", "d", "é", "f"]
    assert all(accepted(constraint, line) for line in lines)
    assert not any(accepted(constraint, wrong) for wrong in ("a", " a b", "a b ", "c\x0bd", "f\n"))


def test_folding() -> None:
    quote = Quote("The\n  Mill was\tOLD", ignore_case=True, any_whitespace=True)
    constraint = structgen.compile(quote, BYTES)
    for text in ("the mill", "Mill was old", "THE\nMILL", "MILL\u00a0was"):
        assert accepted(constraint, text)
    for text in ("the  mill", "Th\u00e9"):
        assert not accepted(constraint, text)
    found = quote.find("the mill WAS old")
    assert (found.start, found.end) == (0, 18)
    plain = structgen.compile(Quote("The\n  Mill"), BYTES)
    assert accepted(plain, "The\n  Mill")
    assert not accepted(plain, "the\n  Mill")


# -- masks ----------------------------------------------------------------------------------------

TYPES: dict[str, Any] = {
    "words": Quote(DOCUMENT),
    "characters": Quote(DOCUMENT, "character"),
    "few words": Quote(DOCUMENT, min=2, max=3),
    "sentences": Quote(DOCUMENT, "sentence"),
    "lines": Quote(DOCUMENT, "line", max=2),
    "folded": Quote(DOCUMENT, ignore_case=True, any_whitespace=True),
    "beside others": "[" + Quote(DOCUMENT, max=4) + "]" & ~Regex(r"\[The.*"),
    "of two": Quote(DOCUMENT) | Quote("The mill was built of oak."),
    "holes": Template("{quote} ({n})", quote=Quote(DOCUMENT), n=int),
    "terminals": Cfg('start: "[" Q ("," Q)* "]"', terminals={"Q": Quote(DOCUMENT, max=2)}),
    "JSON": list[Annotated[str, Quote(DOCUMENT)]],
    "JSON characters": dict[str, Annotated[str, Quote(DOCUMENT, "character")]],
    "JSON folded": list[Annotated[str, Quote(DOCUMENT, ignore_case=True)]],
    "JSON keys": dict[Annotated[str, Quote(DOCUMENT, max=2)], int | None],
    "JSON with a length": list[Annotated[str, Quote(DOCUMENT), Field(max_length=9)]],
}
BY_TYPE = pytest.mark.parametrize("name", TYPES)


def options(name: str) -> list[dict[str, Any]]:
    more: list[dict[str, Any]] = [{"spelling": "any"}, {"ensure_ascii": True}]
    return [{}, *more] if name.startswith("JSON") else [{}]


@BY_TYPE
def test_masks_equal_brute_force(name: str) -> None:
    for chosen in options(name):
        constraint = structgen.compile(TYPES[name], TINY, **chosen)
        for cursor in states_on_the_way(constraint, random.Random(1), 60):
            wanted = brute_force_ids(constraint, state(cursor), TINY)
            assert set(allowed(cursor)) == wanted


@pytest.mark.parametrize("kind", ["smollm2", "llama3"])
def test_masks_equal_brute_force_with_real_vocabularies(kind: str) -> None:
    vocabulary = real_tokenizers.vocabulary(kind)
    for name in ("words", "JSON"):
        constraint = structgen.compile(TYPES[name], vocabulary)
        for cursor in states_on_the_way(constraint, random.Random(2), 8):
            wanted = brute_force_ids(constraint, state(cursor), vocabulary)
            assert set(allowed(cursor, vocabulary)) == wanted


def test_masks_where_no_token_has_a_whole_character_of_the_document() -> None:
    """They ended in an IndexError."""
    vocabulary = real_tokenizers.vocabulary("smollm2")
    document = "".join(map(chr, range(0x0F40, 0x0F80))) * 9  # Tibetan
    for wanted_type in (Quote(document, "character"), list[Annotated[str, Quote(document)]]):
        constraint = structgen.compile(wanted_type, vocabulary)
        for cursor in states_on_the_way(constraint, random.Random(2), 8):
            wanted = brute_force_ids(constraint, state(cursor), vocabulary)
            assert set(allowed(cursor, vocabulary)) == wanted


@BY_TYPE
def test_budgets(name: str) -> None:
    constraint = structgen.compile(TYPES[name], TINY)
    least = minimum(constraint)
    for seed in seeds(12):
        result = walk(constraint, random.Random(seed), least + seed // 2, special=0.3, end=0.05)
        assert result.ended
        constraint.output.parse(result.text)


@pytest.mark.parametrize("name", ["words", "few words", "sentences", "JSON", "JSON characters"])
def test_a_budget_bars_what_cannot_end_in_time_and_nothing_else(name: str) -> None:
    constraint = structgen.compile(TYPES[name], TINY)
    least = minimum(constraint)
    for seed in seeds(4):
        rng = random.Random(seed)
        left = least + rng.randint(0, 9)
        cursor, free = constraint.start(left), constraint.start()
        while not cursor.is_finished:
            left -= 1
            wanted = set()
            for token in allowed(free):
                free.accept(token)
                if free.is_finished or free.min_tokens_to_finish() <= left:
                    wanted.add(token)
                free.rollback(1)
            found = allowed(cursor)
            assert set(found) == wanted
            token = rng.choice(found)
            cursor.accept(token)
            free.accept(token)


# -- values ---------------------------------------------------------------------------------------


class Claim(BaseModel):
    text: str
    quote: Annotated[str, Quote(DOCUMENT)]


@dataclass
class Point:
    quotes: list[Annotated[str, Quote(DOCUMENT, max=3)]]


class Named(TypedDict):
    quote: Annotated[str, Quote(DOCUMENT)] | None


def test_values_inside_others_know_where_they_stand() -> None:
    text = json.dumps({"text": "Old.", "quote": "The mill"})
    claim: Any = structgen.compile(Claim, BYTES).output.parse(text)
    assert isinstance(claim.quote, QuotedText)
    assert claim.quote == "The mill"
    assert claim.quote.places == ((11, 19), (65, 73))
    assert (claim.quote.start, claim.quote.end) == claim.quote.places[0]
    assert json.loads(claim.model_dump_json()) == json.loads(text)
    assert json.dumps(claim.model_dump()) == text
    assert Claim.model_validate(claim.model_dump()).quote.places == claim.quote.places
    assert TypeAdapter(str).validate_python(claim.quote, strict=True) == "The mill"
    again = pickle.loads(pickle.dumps(claim.quote))
    assert (type(again), again, again.places) == (QuotedText, "The mill", claim.quote.places)
    for output_type, document, bad in (
        (Claim, text, text.replace("mill", "milk")),
        (Point, '{"quotes":["mill was sold.","isn\'t old"]}', '{"quotes":["mill was sold. See"]}'),
        (Named, '{"quote":"\\"The mill"}', '{"quote":"the mill"}'),
        (Named, '{"quote":null}', '{"quote":""}'),
    ):
        constraint = structgen.compile(output_type, BYTES)
        assert accepted(constraint, document)
        assert not accepted(constraint, bad)
        constraint.output.parse(document)
    with pytest.raises(ParseError, match="does not occur in the document"):
        lower(Claim).parse(text.replace("mill", "milk"))


def test_a_quote_by_itself_parses_to_where_it_stands() -> None:
    value = lower(Quote(DOCUMENT)).parse("The mill was sold.")
    assert DOCUMENT[value.start : value.end] == value
    with pytest.raises(ParseError):
        lower(Quote(DOCUMENT)).parse("Th")


def test_what_a_quote_refuses() -> None:
    for arguments, message in (
        ({"document": 3}, "as a str"),
        ({"document": "a", "unit": "page"}, "no unit 'page'"),
        ({"document": "a", "min": 0}, "min >= 1"),
        ({"document": "a", "min": 3, "max": 2}, "min >= 1"),
        ({"document": "a", "max": "3"}, "must be an int"),
        ({"document": "\ud800"}, "surrogate"),
        ({"document": "a", "ignore_case": 1}, "must be a bool"),
    ):
        with pytest.raises(OutputTypeError, match=message):
            Quote(**arguments)  # type: ignore[arg-type]
    for empty in (Quote(""), Quote(" \n"), Quote("—"), Quote("a b", min=10**30)):
        with pytest.raises(Unsatisfiable):
            structgen.compile(empty, BYTES)
    # A strange schema may say so, too; it was an OverflowError.
    assert structgen.compile(Quote("a b c", max=10**30), BYTES).allows("a b c")
    with pytest.raises(CompileLimitExceeded, match="too long"):
        structgen.compile(Quote("a " * 2_100_000), BYTES)


def test_no_document_is_kept() -> None:
    secret = "a document that nobody else has " * 3
    types: list[Any] = [Quote(secret), list[Annotated[str, Quote(secret)]], "a" + Quote(secret)]
    for output_type in types:
        assert cache_key(output_type) is None
        constraint = structgen.compile(output_type, BYTES)
        read_mask(constraint.start(), BYTES)
    del constraint, output_type, types
    gc.collect()
    assert not [quote for quote in quotes._known if quote.document == secret]


def test_bytes_say_the_same() -> None:
    for name in ("few words", "JSON folded", "beside others"):
        constraint = structgen.compile(TYPES[name], TINY)
        again = Constraint.from_bytes(constraint.to_bytes(), TINY)
        assert again.output.grammar == constraint.output.grammar


def test_pieces_that_a_vocabulary_cannot_write_are_left_out() -> None:
    vocabulary = real_tokenizers.vocabulary("smollm2")
    constraint = structgen.compile(Quote("one \x04 two three"), vocabulary)
    assert constraint.allows("two three")
    assert not constraint.allows("one \x04 two")


def test_a_document_inside_a_schema_is_checked() -> None:
    keyword = "$structgen-regex"
    for bad in (
        ["quote", "a", "page", 1, None, False, False],
        ["quote", "a", "word", 0, None, 0, 0],
    ):
        with pytest.raises(structgen.errors.SchemaError):
            structgen.compile(JsonSchema({"type": "string", keyword: bad}), BYTES)


# -- documents of calls -------------------------------------------------------------------------


class Cited(BaseModel):
    answer: str
    quotes: list[Annotated[str, Quote(source="report", max=4)]]


REPORT = "The mill was built in 1832. It is a museum."


def test_a_call_gives_the_document() -> None:
    written = '{"answer":"old","quotes":["built in 1832"]}'
    generator = Generator(FakeModel(written, context_length=500), Cited)
    cited = generator.parse("x", quote_from={"report": REPORT})
    assert [type(quote) for quote in cited.quotes] == [QuotedText]
    assert cited.quotes[0].places == ((13, 26),)  # type: ignore[attr-defined]
    other = generator.parse("x", quote_from={"report": "built of oak"}, max_new_tokens=60)
    assert all(quote in "built of oak" for quote in other.quotes)
    *_, last = generator.stream_values("x", quote_from={"report": REPORT})
    assert last.value == cited
    assert "".join(generator.stream("x", quote_from={"report": REPORT})) == written
    # Read again where nobody has the document, it is text.
    assert Cited.model_validate_json(cited.model_dump_json()) == cited


def test_beside_others_the_quote_of_an_empty_document_is_left_out() -> None:
    generator = Generator(FakeModel("null"), Annotated[str, Quote(source="report")] | None)
    assert generator.parse("x", quote_from={"report": REPORT}, max_new_tokens=60) is None
    assert generator.parse("x", quote_from={"report": ""}, max_new_tokens=60) is None
    nothing = Annotated[str, Quote(source="report")] | Annotated[str, Quote(source="letter")]
    with pytest.raises(Unsatisfiable, match="the document of its Quote is empty"):
        Generator(FakeModel("null"), nothing)("x", quote_from={"report": "", "letter": " "})


def test_a_call_that_gives_no_document_says_so() -> None:
    generator = Generator(FakeModel("mill"), Quote(source="report"))
    with pytest.raises(OutputTypeError, match=r"quote_from=\{'report': text\}"):
        generator("x")
    with pytest.raises(OutputTypeError, match=r"text\}\)\. The call passes 'reprot'\.$"):
        generator("x", quote_from={"reprot": REPORT})
    with pytest.raises(OptionError, match="the output type has no quote from it"):
        generator("x", quote_from={"report": REPORT, "letter": "a"})
    with pytest.raises(OptionError, match="the output type has no quote from it"):
        Generator(FakeModel("mill"), str)("x", quote_from={"report": REPORT})
    with pytest.raises(OptionError, match="from names to texts"):
        generator("x", quote_from=REPORT)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"quote_from\['report'\]=<class 'int'> must be a str"):
        generator("x", quote_from={"report": 3})
    assert generator("x", quote_from={"report": REPORT}, max_new_tokens=2) in REPORT
    for arguments in ({}, {"document": "a", "source": "b"}, {"source": 3}):
        with pytest.raises(OutputTypeError):
            Quote(**arguments)


def test_documents_are_not_told_of() -> None:
    assert "mill" not in json.dumps(Claim.model_json_schema())
    assert Cited.model_json_schema()["properties"]["quotes"]["items"] == {"type": "string"}
    offered = lower(structgen.ToolCalls([cite])).offered
    assert offered is not None
    assert "mill" not in json.dumps(offered.schemas)
    message = [{"role": "user", "content": "x"}]
    model = FakeModel('{"text":"a","quote":"The mill"}', context_length=2000)
    Generator(model, Claim, with_schema_hint=True)(message, max_new_tokens=90)
    Generator(FakeModel(context_length=2000), Cited, with_schema_hint=True)(
        message, max_new_tokens=90, quote_from={"report": REPORT}
    )


def cite(quote: Annotated[str, Quote(DOCUMENT)]) -> None:
    """Cite it."""


# -- lists ----------------------------------------------------------------------------------------

MILLS = "The mill was sold. The mill burnt down. A mill was built."
PIECES = Annotated[str, Quote(MILLS)]


def listed(check: Any, *quotes: str) -> Any:
    return lower(Annotated[list[PIECES], check]).parse(json.dumps(quotes))  # type: ignore[valid-type]


def test_lists_in_order_and_disjoint() -> None:
    found = listed(types.in_order, "sold", "The mill", "mill was built")
    assert [(one.start, one.end) for one in found] == [(13, 17), (19, 27), (42, 56)]
    assert found[1].places == ((0, 8), (19, 27))
    assert pickle.loads(pickle.dumps(found))[1].start == 19
    assert listed(types.disjoint, "mill", "The mill", "The mill was sold", "built")[0].start == 42
    assert listed(types.in_order) == listed(types.disjoint) == []
    with pytest.raises(ParseError, match="not in the order of the document"):
        listed(types.in_order, "sold", "The mill", "burnt", "The mill")
    for overlapping in (["The mill was", "mill was sold"], ["The mill"] * 3):
        with pytest.raises(ParseError, match="not disjoint"):
            listed(types.disjoint, *overlapping)
    for one, other in ((types.in_order, types.disjoint), (types.disjoint, types.in_order)):
        ordered = lower(Annotated[list[PIECES], one, other])
        assert ordered.parse('["sold","The mill"]')[1].start == 19
        with pytest.raises(ParseError, match="not in the order of the document"):
            ordered.parse('["burnt","sold"]')
    for output_type in (list[int], PIECES, list[str], tuple[PIECES, PIECES], list):
        with pytest.raises(OutputTypeError, match="is for lists of quotes"):
            lower(Annotated[output_type, types.in_order])
    constraint = structgen.compile(Annotated[list[PIECES], types.in_order], BYTES)
    assert "in_order" in str(constraint.explain())


@given(st.randoms(use_true_random=False))
@examples(40)
def test_disjoint_is_what_all_choices_say(r: random.Random) -> None:
    document = "".join(r.choices("ab", k=7))
    pieces = [document[i : i + r.randint(1, 3)] for i in r.sample(range(6), r.randint(1, 4))]
    quote = Quote(document, "character")
    choices = list(itertools.product(*[quote.find(piece).places for piece in pieces]))

    def accepts(check: Any) -> bool:
        kind: Any = Annotated[list[Annotated[str, quote]], check]
        try:
            lower(kind).parse(json.dumps(pieces))
        except ParseError:
            return False
        return True

    assert accepts(types.in_order) == any(
        all(a[1] <= b[0] for a, b in itertools.pairwise(chosen)) for chosen in choices
    )
    assert accepts(types.disjoint) == any(
        all(a[1] <= b[0] or b[1] <= a[0] for a, b in itertools.combinations(chosen, 2))
        for chosen in choices
    )


def test_a_list_in_the_wrong_order_is_written_again() -> None:
    written = '["burnt","sold"]'
    generator: Any = Generator(
        FakeModel(written, context_length=500), Annotated[list[PIECES], types.in_order]
    )
    with pytest.raises(ParseError):
        generator.parse("x")
    found = generator.parse("x", retries=20, max_new_tokens=60)
    assert all(a.end <= b.start for a, b in itertools.pairwise(found))


def test_the_document_of_a_call_is_not_kept() -> None:
    generator = Generator(FakeModel("built", context_length=500), Cited)
    generator("x", quote_from={"report": REPORT + " It has a wheel."}, max_new_tokens=60)
    gc.collect()
    assert not [quote for quote in quotes._known if "wheel" in quote.document]
