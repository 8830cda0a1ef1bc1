"""Paths and spans in JSON documents, held against the parsed document."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structgen import JsonSchema
from structgen.constraint import compile as compile_constraint
from structgen.grammar.json_schema.graph import child_path
from structgen.insight import why_barred
from structgen.insight.json_places import JsonReader, scalars
from structgen.remote.reading import BYTES

NAMES = st.sampled_from(["a", "b c", 'q"', "é", "", "\\", "12"])
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(-9, 9) | st.text('a"\\,:]}é', max_size=4)
)
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3)
)


def scalars_of(value, path="$"):
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from scalars_of(inner, child_path(path, name))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from scalars_of(inner, child_path(path, i))
    else:
        yield path, value


@given(DOCUMENTS, st.sampled_from([None, 1]), st.booleans())
def test_the_scalars_of_a_document_are_found_where_they_stand(document, indent, ascii_only):
    data = json.dumps(document, indent=indent, ensure_ascii=ascii_only).encode()
    reader = JsonReader()
    events = [event for byte in data for event in reader.feed(bytes([byte]))]
    found = [
        (child_path("$", *one.path), json.loads(data[one.start : one.end]))
        for one in scalars(events + reader.finish())
    ]
    assert found == list(scalars_of(document))
    assert reader.path == "$"


def test_the_path_is_that_of_the_value_a_byte_belongs_to():
    data = b'{"items": [{"name": "x"}, 12], "a b": tru'
    reader = JsonReader()
    paths, found = [], []
    for i in range(len(data)):
        paths.append(reader.path)
        found += scalars(reader.feed(data[i : i + 1]))
    at = {
        text: paths[data.index(text) + 1] for text in (b'"items"', b'"name"', b'"x"', b"12", b"ru")
    }
    assert at == {
        b'"items"': "$",
        b'"name"': "$.items[0]",
        b'"x"': "$.items[0].name",
        b"12": "$.items[1]",
        b"ru": '$["a b"]',
    }
    assert len(found) == 2
    assert reader.path_of(ord("e")) == '$["a b"]'
    assert reader.path_of(ord("}")) == reader.path_of(ord(",")) == "$"
    (last,) = scalars(reader.finish())
    assert last.path == ("a b",)


def test_an_escape_is_understood_once(monkeypatch):
    calls = []
    loads = json.loads
    monkeypatch.setattr(json, "loads", lambda data: calls.append(data) or loads(data))
    JsonReader().feed(b'"' + rb"a\n\t\"" * 1000 + b'"')
    assert len(calls) <= 3


def test_the_path_of_a_deep_value_is_copied_in_one_go() -> None:
    """65 kB of values 990 deep held up a loop for 4.9 s and took 500 MB to say where they stop."""
    reader = JsonReader()
    reader.feed(b'{"a":[{"b":' + b"[" * 990)
    frames: list[str] = []
    sys.setprofile(lambda frame, event, _: frames.append(frame.f_code.co_name))
    try:
        events = reader.feed(b"0,")
    finally:
        sys.setprofile(None)
    assert [event.path for event in events] == [("a", 0, "b", *[0] * 990)] * 2
    assert len(frames) < 100


def test_a_place_far_into_a_text_is_found_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Together, the events of a text have as many paths as it has values, each as long as deep."""
    read: list[int] = []
    feed = JsonReader.feed
    monkeypatch.setattr(
        JsonReader, "feed", lambda *given: read.append(len(given[1])) or feed(*given)
    )
    constraint = compile_constraint(JsonSchema({}), BYTES)
    why = why_barred(constraint, b"[[" + b"0," * 2_000, b"x", chosen=-1)
    assert why.startswith("'x' was not allowed at $[0][2000] after")
    assert sum(read) == 4_002
    assert max(read) <= 1_024
