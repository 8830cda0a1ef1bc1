"""The way token bytes become text."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structgen.decoding.progress import TextAssembler


def split_at(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@given(st.text(), st.lists(st.integers(0, 1000)))
def test_however_the_bytes_are_split_the_text_is_the_same(text, cuts):
    tokens = split_at(text.encode(), cuts)
    assembler = TextAssembler(tokens)
    chunks = [assembler.feed(i) for i in range(len(tokens))]
    chunks.append(assembler.finish())
    assert "".join(chunks) == text == assembler.text


@given(
    st.text("ab€\n", max_size=12),
    st.lists(st.integers(0, 1000)),
    st.lists(st.text("ab€\n", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_stop_strings_cut_exactly_however_the_bytes_are_split(text, cuts, stop):
    tokens = split_at(text.encode(), cuts)
    assembler = TextAssembler(tokens, stop)
    chunks = []
    fed = b""
    for i, token in enumerate(tokens):
        fed += token
        chunks.append(assembler.feed(i))
        if assembler.stopped_by is not None:
            break
    else:
        chunks.append(assembler.finish())
    seen = fed.decode(errors="ignore")
    hits = [at for s in stop if (at := seen.find(s)) >= 0]
    assert "".join(chunks) == assembler.text == seen[: min(hits, default=len(seen))]
    assert (assembler.stopped_by is None) == (not hits)


def test_text_that_might_become_a_stop_string_is_held_back_and_no_more():
    assembler = TextAssembler([b"one#", b"#two", b"##", b"#"], ["###"])
    assert assembler.feed(0) == "one"
    assert assembler.feed(1) == "##two"
    assert assembler.feed(2) == ""
    assert assembler.feed(3) == ""
    assert assembler.stopped_by == "###"
    assert assembler.text == "one##two"


def test_invalid_bytes_become_replacement_characters_and_an_unfinished_end_is_dropped():
    assembler = TextAssembler([b"a\xff", b"b\xe2\x82"])
    assert assembler.feed(0) + assembler.feed(1) + assembler.finish() == "a\ufffdb"


@pytest.mark.parametrize("stop", [(), ("x",)])
def test_special_tokens_have_no_text(stop):
    assembler = TextAssembler([b"", b"a"], stop)
    assert [assembler.feed(0), assembler.feed(1), assembler.feed(0)] == ["", "a", ""]
