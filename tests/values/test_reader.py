"""The reader of growing documents: its events say what has closed where, and strings are exact."""

from __future__ import annotations

import json
import random
from typing import Any

from engine import strategies
from engine.walks import examples
from hypothesis import given
from hypothesis import strategies as st

from structgen.insight import Closed, Grown, JsonReader, Opened


def read(text: bytes, cuts: list[int]) -> list[Any]:
    reader = JsonReader()
    events = []
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        events += reader.feed(text[start:end])
    return events + reader.finish()


def test_events_come_in_order():
    assert read(b'{"a": [1, "x"]}', []) == [
        Opened((), "object", 0),
        Opened(("a",), "array", 6),
        Opened(("a", 0), "other", 7),
        Closed(("a", 0), "other", 7, 8),
        Opened(("a", 1), "string", 10),
        Grown(("a", 1), "x"),
        Closed(("a", 1), "string", 10, 13),
        Closed(("a",), "array", 6, 14),
        Closed((), "object", 0, 15),
    ]


def test_a_number_is_whole_when_something_else_comes():
    reader = JsonReader()
    assert reader.feed(b"-12") == [Opened((), "other", 0)]
    assert reader.feed(b".5e3") == []
    assert reader.finish() == [Closed((), "other", 0, 7)]
    assert reader.finish() == []


@examples(300)
@given(st.randoms(use_true_random=False))
def test_every_value_closes_once_with_its_bytes(r: random.Random) -> None:
    data = strategies.value(r, 4)
    text = strategies.spell(r, data).encode()
    cuts = sorted(r.randint(0, len(text)) for _ in range(r.randint(0, 8)))
    closed = [event for event in read(text, cuts) if isinstance(event, Closed)]
    assert len({event.path for event in closed}) == len(closed)
    for event in closed:
        value = data
        for step in event.path:
            value = value[step]
        found = json.loads(text[event.start : event.end])
        assert (found, type(found)) == (value, type(value))
    assert closed[-1].path == ()


units = st.sampled_from([*"aé漢😀", "\x00", '"', "\\", "/", "\n", "\ud83d", "\ude00", "\udfff"])


@examples(300)
@given(st.lists(units, max_size=8), st.randoms(use_true_random=False))
def test_strings_are_unescaped_wherever_they_are_cut(
    characters: list[str], r: random.Random
) -> None:
    spelt = '"'
    for char in characters:
        plain = json.dumps(char, ensure_ascii=False)[1:-1]
        escaped = json.dumps(char)[1:-1]
        lone = "\ud800" <= char <= "\udfff"
        spelt += (
            r.choice([escaped, escaped.upper().replace("\\U", "\\u")] if lone else [plain, escaped])
            if (lone or len(escaped) > 2)
            else escaped
        )
    spelt += '"'
    data = spelt.encode()
    value = json.loads(spelt)
    cuts = sorted(r.randint(0, len(data)) for _ in range(r.randint(0, 12)))
    grown = [event.text for event in read(data, cuts) if isinstance(event, Grown)]
    assert "".join(grown) == value
