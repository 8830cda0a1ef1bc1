"""Traces: what they record, what they explain, and the page."""

from __future__ import annotations

import html
import json
import math
import pickle
import re
from html.parser import HTMLParser
from typing import Annotated, Literal

import numpy as np
import pytest
from fakes import END, PAD, SIZE, TOKENS, FakeModel, encode
from pydantic import BaseModel, Field

import structgen
from structgen import Cfg, Choice, Generator, JsonSchema, Regex


class Item(BaseModel):
    name: Annotated[str, Field(max_length=8)]
    kind: Literal["cat", "dog"]


class Box(BaseModel):
    items: Annotated[list[Item], Field(min_length=1, max_length=2)]
    count: Annotated[int, Field(ge=0, le=20)]


SCRIPT = '{"items":[{"name":"é\\n<b>","kind":"dog"}],"count":12}'


@pytest.fixture
def boxed():
    return Generator(FakeModel(SCRIPT), Box).result("hi", trace=True)


def test_the_steps_are_the_output(boxed):
    trace = boxed.trace
    assert boxed.text == SCRIPT
    tokens = [step for step in trace if not step.is_end]
    assert [step.token_id for step in tokens] == list(boxed.token_ids)
    assert b"".join(step.token for step in tokens).decode() == boxed.text
    assert [step.index for step in trace] == list(range(len(trace)))
    ends = np.cumsum([len(step.token) for step in tokens])
    assert [step.start for step in tokens] == [0, *ends[:-1]]
    assert sum(step.is_forced for step in trace) == boxed.usage.forced_tokens > 5
    for step in trace:
        assert step.n_allowed >= 1
        assert 0 <= step.removed <= 1
        assert len(step.logprob.unmasked_top) == 5
        assert not step.is_forced or step.n_allowed == 1


def test_each_step_knows_its_path(boxed):
    def path_at(text):
        return boxed.trace[[s.start for s in boxed.trace].index(SCRIPT.encode().index(text))].path

    assert path_at("é".encode()) == "$.items[0].name"
    assert path_at(b"dog") == "$.items[0].kind"
    assert path_at(b"12") == "$.count"
    assert {step.path for step in boxed.trace if step.token == b"]"} == {"$.items"}
    assert boxed.trace[-1].path == "$"
    text = Generator(FakeModel("b]a"), Regex("[ab]]a")).result("hi", trace=True)
    assert {step.path for step in text.trace} == {"$"}


def test_the_paths_of_steps_are_cut():
    schema: dict[str, object] = {"enum": [1, 2]}
    for name in ("a" * 300, "b" * 300):
        schema = {"properties": {name: schema}, "required": [name], "type": "object"}
        schema["additionalProperties"] = False
    generator = Generator(FakeModel(context_length=1024), JsonSchema(schema))
    paths = {step.path for step in generator.result("x", trace=True).trace}
    assert max(map(len, paths)) == 501
    assert f"$.{'b' * 300}.{'a' * 197}…" in paths


def test_a_favourite_that_was_masked_is_named():
    trace = Generator(FakeModel("I am"), Choice(["good", "bad"])).result("x", trace=True).trace
    favourite = trace[0].masked_favourite
    assert favourite.token == b"I"
    assert not favourite.is_allowed
    assert trace[0].removed > 0.99
    assert "'I'" in str(trace).splitlines()[1]
    free = Generator(FakeModel("I am")).result("x", trace=True).trace
    assert [step.masked_favourite for step in free] == [None] * len(free)
    assert {step.n_allowed for step in free} == {SIZE}
    assert free[-1].is_end
    assert "end" in str(free).splitlines()[-1]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("output_type", "budget"),
    [
        (Box, 200),
        (Box, 55),
        (JsonSchema({"items": {"enum": [1, 12]}, "uniqueItems": True, "type": "array"}), 9),
        (Regex("(é|[0-9]{2}| the)+"), 9),
        (Cfg('start: "{" start "}" | "12"', start="start"), 12),
    ],
)
def test_explain_agrees_with_the_mask_on_every_token(output_type, budget, seed):
    generator = Generator(FakeModel(), output_type)
    options = {"max_new_tokens": budget, "temperature": 1.0, "seed": seed, "trace": True}
    trace = generator.result("x", **options).trace
    cursor = generator.constraint.start(budget)
    words = np.zeros((SIZE + 31) // 32, np.uint32)
    for step in trace:
        cursor.fill_mask(words)
        bits = np.unpackbits(words.view(np.uint8), bitorder="little")
        # An explanation reads all text so far: each seed asks at every fourth step of a long one.
        asked = len(trace) < 20 or step.index % 4 == seed
        for token_id in range(SIZE if asked else 0):
            said = trace.explain(token_id, step.index)
            allowed = re.search(r"was allowed|was chosen|is only part of the forced text", said)
            assert bool(allowed) == bool(bits[token_id]), (step, token_id, said)
        cursor.accept(step.token_id)


def test_explanations_say_what_was_refused_and_what_could_come(boxed):
    trace = boxed.trace
    index = next(s.index for s in trace if s.start == SCRIPT.encode().index(b"dog"))
    assert trace[index].path == "$.items[0].kind"
    assert trace.explain("dot", index) == (
        "'dot' was not allowed: 't', its byte 3, is invalid at $.items[0].kind after "
        """'me":"é\\\\n<b>","kind":"do'; expected 'g'."""
    )
    assert trace.explain("c", index) == ("'c' was allowed at $.items[0].kind, but 'd' was chosen.")
    assert trace.explain("d", index) == "'d' was chosen at $.items[0].kind."
    assert trace.explain(PAD, index) == "Token 0 has no text, so it is never in an output."
    assert trace.explain(END, index) == (
        "The end was not allowed at $.items[0].kind: the output was not complete. The least that "
        """was missing is 'cat"}],"count":0}'."""
    )
    last = trace[-1]
    assert "expected" in trace.explain(b"\xff", last.index)
    assert "is not a single token" in trace.explain('{"items":[', 0)
    count = next(step.index for step in trace if step.path == "$.count")
    assert "expected ' ', '-' or '0' to '9'" in trace.explain("x", count)
    for token, message in ((SIZE, "does not exist"), ("", "is empty")):
        with pytest.raises(structgen.OptionError, match=message):
            trace.explain(token, 0)
    assert trace.explain(np.int64(PAD), np.int64(index)) == trace.explain(PAD, index)
    for token, step, message in (
        ("x", 999, f"step=999 is out of range: the trace has {len(trace)} steps, 0 to"),
        ("x", -999, "step=-999 is out of range"),
        ("x", "one", "step='one' is not a whole number"),
        (None, None, "token=None is not a whole number. Pass a token id, or text"),
        (1.5, 0, "token=1.5 is not a whole number"),
    ):
        with pytest.raises(structgen.OptionError, match=message):
            trace.explain(token, step)


def test_explain_finds_the_step_at_which_the_model_wanted_it():
    model = FakeModel("12 the12STOP12345")
    trace = Generator(model, Regex("[0-9a-z ]{17}")).result("x", trace=True).trace
    step = next(s for s in trace if s.masked_favourite and s.masked_favourite.token == b"STOP")
    assert trace.explain("STOP") == trace.explain("STOP", step.index)
    assert trace.explain("STOP").startswith("'STOP' was not allowed: 'S', its byte 1, is invalid")
    liked = trace[3].logprob.unmasked_top[-1]
    assert not liked.is_allowed
    barred = [[t.token_id for t in s.logprob.unmasked_top if not t.is_allowed] for s in trace]
    favourites = [s.masked_favourite and s.masked_favourite.token_id for s in trace]
    assert liked.token_id not in favourites
    first = next(i for i, tokens in enumerate(barred) if liked.token_id in tokens)
    assert trace.explain(liked.token_id) == trace.explain(liked.token_id, first)
    never = {top.token_id for s in trace for top in s.logprob.unmasked_top}
    other = next(i for i, token in enumerate(TOKENS) if token and i not in never)
    assert trace.explain(other) == trace.explain(other, -1)


def test_a_budget_is_a_reason_too():
    model = FakeModel("aaaaaaaaaaaaaaa")
    trace = Generator(model, Regex("a+b|c")).result("x", max_new_tokens=4, trace=True).trace
    assert [step.token for step in trace] == [b"a", b"a", b"b"]
    said = trace.explain("a", 2)
    assert said == (
        "'a' is allowed after 'aa', but with 2 of 4 tokens left, the output could not have "
        "been completed after it."
    )


def test_free_text_and_pickled_traces_explain_nothing(boxed):
    free = Generator(FakeModel("x")).result("x", trace=True).trace
    with pytest.raises(structgen.OptionError, match="free text has no masks"):
        free.explain("x")
    again = pickle.loads(pickle.dumps(boxed.trace))
    assert again.steps == boxed.trace.steps
    assert again.to_html() == boxed.trace.to_html()
    with pytest.raises(structgen.OptionError, match="does not contain its output type"):
        again.explain("x")


class Reader(HTMLParser):
    """Takes the page apart: the text it shows, and its data."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tokens: list[str] = []
        self.data = ""
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.addresses: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.tags.add(tag)
        self.addresses += [v for k, v in attrs if k in ("src", "href")]
        if tag == "span" and "data-i" in values:
            self.tokens.append("")
            self.open.append("token")
        elif tag not in ("meta", "br", "link"):
            self.open.append("data" if values.get("id") == "data" else tag)

    def handle_endtag(self, tag):
        self.open.pop()

    def handle_data(self, data):
        if self.open[-1:] == ["token"]:
            self.tokens[-1] += data
        elif self.open[-1:] == ["data"]:
            self.data += data


def test_the_page_shows_the_text_and_stands_alone(boxed):
    page = boxed.trace.to_html()
    reader = Reader(page)
    assert reader.open == []
    assert reader.addresses == []
    assert "link" not in reader.tags
    shown = "".join(text for text in reader.tokens if text not in ("end", "·"))
    assert shown == boxed.text
    data = json.loads(reader.data)
    assert data["size"] == SIZE
    assert len(data["steps"]) == len(boxed.trace)
    for step, shown_step in zip(boxed.trace, data["steps"], strict=True):
        assert shown_step["path"] == step.path
        assert shown_step["allowed"] == step.n_allowed
        assert shown_step["forced"] == step.is_forced
        assert shown_step["own"] == pytest.approx(math.exp(step.logprob.unmasked_logprob))
    assert "http" not in page.replace("http-equiv", "")


@pytest.mark.parametrize(
    ("output_type", "title"),
    [
        (Box, "Box, from fake"),
        (None, "Free text, from fake"),
        (Choice(["I", "a, b"]), "One of I, a, b, from fake"),
        (Regex("[a-z]{3}"), "A match of [a-z]{3}, from fake"),
        (JsonSchema({"type": "object", "description": "x" * 500}), "JSON of a schema, from fake"),
        (Cfg('start: "a"\n// a comment'), "A text of a grammar, from fake"),
        (Choice([f"label {i}" for i in range(40)]), "One of "),
    ],
)
def test_the_page_has_a_title_that_reads_and_the_prompt(output_type, title):
    model = FakeModel("abc")
    trace = Generator(model, output_type).result("Hi <b> & é", trace=True, max_new_tokens=60).trace
    assert trace.title.startswith(title)
    assert len(trace.title) < 100
    assert "\n" not in trace.title
    assert trace.prompt == "Hi <b> & é"
    page = trace.to_html()
    assert "Hi &lt;b&gt; &amp; é</pre>" in page
    assert pickle.loads(pickle.dumps(trace)).to_html() == page
    assert html.escape(page) in trace._repr_html_()


def test_nothing_in_an_output_can_break_out_of_the_page(tmp_path):
    nasty = "</pre></script><script>alert(1)</script><!--DATA-->\ud800"
    model = FakeModel("".join(c for c in nasty if c != "\ud800"))
    trace = Generator(model, Regex("[<>/a-zA-Z0-9()!-]+")).result("x", trace=True).trace
    trace.title = nasty
    trace.save(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert page.count("</script>") == 2
    assert len(json.loads(Reader(page).data)["steps"]) == len(trace)


def test_characters_cut_into_tokens_are_shown_when_they_are_whole():
    model = FakeModel("€")
    trace = Generator(model, Regex("€x?")).result("x", trace=True, forced=False).trace
    assert [step.token for step in trace][:2] == [b"\xe2\x82", b"\xac"]
    assert Reader(trace.to_html()).tokens[:2] == ["·", "€"]
    assert "'\\xe2\\x82'" in str(trace)


def test_a_stream_has_the_trace_so_far():
    with Generator(FakeModel("hello"), Regex("[a-z]+")).stream("x", trace=True) as stream:
        next(stream)
    assert len(stream.result.trace) == 1
    assert repr(stream.result.trace) == "Trace(1 steps, 0 forced)"
    assert stream.result.trace[0:1] == (stream.result.trace[0],)
    assert Reader(stream.result.trace.to_html()).tokens == ["h"]
    with pytest.raises(structgen.OptionError, match=r"no trace\. Pass trace=True"):
        Generator(FakeModel("hello")).result("x").trace.to_html()
    assert TOKENS[encode("h")[0]] == b"h"


def test_a_special_token_is_named_by_its_text(boxed):
    named = structgen.Vocabulary.from_tokens(
        TOKENS, [END], size=SIZE, special_token_ids=[PAD], named_tokens={"<pad>": PAD, "<end>": END}
    )
    model = FakeModel(SCRIPT)
    model.vocabulary = named
    trace = Generator(model, Box).result("hi", trace=True).trace
    assert trace.explain("<end>", step=3) == trace.explain(END, step=3)
    assert "The end was not allowed" in trace.explain("<end>", step=3)
    assert (
        trace.explain("<pad>")
        == "The special token <pad> has no text, so it is never in an output."
    )
    assert boxed.trace.explain("<end>", step=3) != trace.explain("<end>", step=3)


def test_a_trace_is_not_saved_where_there_is_no_folder(boxed, tmp_path):
    with pytest.raises(structgen.OptionError, match="does not exist"):
        boxed.trace.save(tmp_path / "none" / "x.html")
