"""What notebooks show: values, results, confidence and answers as tables, with all text escaped."""

from __future__ import annotations

import dataclasses
import re
import sys
from types import SimpleNamespace
from typing import Annotated, Any, Literal, NamedTuple

import attrs
import msgspec
import pytest
from fakes import FakeModel
from pydantic import BaseModel, ConfigDict, Field

import structgen
from structgen import Generator, Quote, notebook

HOSTILE = "</td></table><script>alert(1)</script>\"'&\ud800"


def bare(shown: str) -> str:
    return re.sub(' style="[^"]*"', "", shown)


class Pair(BaseModel):
    model_config = ConfigDict(extra="allow")
    word: str
    mood: Literal["good", "bad"] = "good"


@dataclasses.dataclass
class Data:
    word: str
    _: dataclasses.KW_ONLY
    more: tuple[int, ...] = ()


class Named(NamedTuple):
    word: str


class Struct(msgspec.Struct, kw_only=True):
    word: str


@attrs.define(kw_only=True)
class Attrs:
    word: str


@pytest.mark.parametrize(
    ("value", "rows"),
    [
        (Pair(word="a<b", extra=1), [("word", "a&lt;b"), ("mood", "good"), ("extra", "1")]),
        (Data("x"), [("word", "x"), ("more", "()")]),
        (Named("x"), [("word", "x")]),
        (Struct(word="x"), [("word", "x")]),
        (Attrs(word="x"), [("word", "x")]),
        ({"a": None, "b": {}}, [("a", "None"), ("b", "{}")]),
        ([True, 1.5], [("0", "True"), ("1", "1.5")]),
        ({"a": ["b"]}, [("a", "<table><tr><td>0</td><td>b</td></tr></table>")]),
    ],
)
def test_a_value_is_a_table_of_its_parts(value: Any, rows: list[tuple[str, str]]) -> None:
    lines = "".join(f"<tr><td>{name}</td><td>{text}</td></tr>" for name, text in rows)
    assert bare(notebook.shown(value)) == f"<table>{lines}</table>"


@pytest.mark.parametrize("value", [HOSTILE, [HOSTILE], {HOSTILE: HOSTILE}, Pair(word=HOSTILE)])
def test_no_text_is_markup(value: Any) -> None:
    shown = notebook.shown(value)
    assert "<script" not in shown
    assert shown.count("</table>") == shown.count("<table>") < 2
    assert "\\ud800" in shown
    shown.encode()


def test_of_a_long_list_the_beginning_is_shown() -> None:
    shown = bare(notebook.shown(list(range(1234))))
    assert "<td>999</td><td>999</td>" in shown
    assert shown.endswith("<tr><td>…</td><td>and 234 more</td></tr></table>")


def test_a_result_shows_its_value_and_how_it_was_made() -> None:
    result = Generator(FakeModel('{"word":"<b>","mood":"bad"}'), Pair).result("x")
    value, made = bare(result._repr_html_()).split("</table><table>")
    assert "<td>word</td><td>&lt;b&gt;</td>" in value
    assert "<td>finish_reason</td><td>stop</td>" in made
    assert f"<td>{result.usage.output_tokens} tokens, " in made
    assert "shortened" not in made

    cut = Generator(FakeModel("<i>free")).result("x", max_new_tokens=3)
    assert bare(cut._repr_html_()).startswith("&lt;i&gt;<table><tr><td>finish_reason</td>")


def test_confidence_shows_each_choice_and_its_alternatives() -> None:
    result = Generator(FakeModel('{"word":"x","mood":"bad"}'), Pair).result("x")
    sure = result.confidence["$.mood"]
    row = f'<td>$.mood</td><td>"bad"</td><td>{sure.probability:.3f}</td><td>"good"</td>'
    shown = bare(result.confidence._repr_html_()).replace("&quot;", '"')
    assert row in shown
    shown = bare(sure._repr_html_()).replace("&quot;", '"')
    assert f'<td>"bad"</td><td>{sure.probability:.3f}</td>' in shown
    assert shown.count("<tr>") == 3


def test_a_quote_shows_its_place_and_a_partial_value_what_there_is() -> None:
    quote = Quote("One <b> two.", unit="word").find("<b>")
    assert notebook.shown(quote) == "&lt;b&gt; <small>4\u20137</small>"

    class Cited(BaseModel):
        text: Annotated[str, Quote("One two.", unit="word"), Field(max_length=3)]

    stream = Generator(FakeModel('{"text":"two"}'), Cited).stream_values("x")
    shown = [bare(partial._repr_html_()) for partial in stream]
    assert any(one.endswith("</table>…") for one in shown)
    assert shown[-1] == (
        "<table><tr><td>text</td><td>two <small>4\u20137</small></td></tr></table>"
    )


def test_answers_show_the_likeliest_and_each_its_labels() -> None:
    decider = structgen.decisions.Decider(FakeModel("x"), debias="none")
    with pytest.warns(structgen.errors.UninformativeWarning):  # a fake knows nothing
        answers = decider.decide("x", {"a<b": structgen.decisions.Choice("q", ["<i>", "no"])})
    answer = answers["a<b"]
    shown = bare(answers._repr_html_())
    best = notebook.shown(answer.choice)
    assert f"<td>a&lt;b</td><td>{best}</td><td>{answer.probability:.3f}</td>" in shown
    assert "<td>&lt;i&gt;</td>" in bare(answer._repr_html_())


def test_pydantic_objects_show_themselves_once_the_extension_is_loaded() -> None:
    told: list[Any] = []  # examples/notebook.ipynb has a real shell do it
    html = SimpleNamespace(for_type_by_name=lambda *known: told.append(known))
    formatter = SimpleNamespace(formatters={"text/html": html})
    structgen.load_ipython_extension(SimpleNamespace(display_formatter=formatter))
    ((module, name, show),) = told
    assert getattr(sys.modules[module], name) is BaseModel
    assert "<td>&lt;i&gt;</td>" in bare(show(Pair(word="<i>")))
