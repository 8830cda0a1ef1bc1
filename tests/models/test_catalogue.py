"""The catalogue's table: every row is whole, and what it says agrees with itself."""

from __future__ import annotations

import dataclasses
import re
from types import MappingProxyType

import pytest
from test_hub import CONFIG

from structgen import models
from structgen.models import catalogue, hub

ROWS = list(catalogue.ENTRIES.values())
TINY = {"genai_config.json": CONFIG, "tokenizer.json": b"{}", "model.onnx": b"\n\5graph"}


@pytest.mark.parametrize("entry", ROWS, ids=lambda entry: entry.name)
def test_a_row_says_where_its_files_are_and_what_they_are(entry):
    assert re.fullmatch(r"[a-z0-9]+([.-][a-z0-9]+)*", entry.name)
    assert bool(entry.repository) != bool(entry.wheels)
    assert bool(entry.wheels) == bool(entry.files) == bool(entry.disk_bytes)
    assert not entry.repository or hub.looks_like(entry.repository)
    assert re.fullmatch(r"([\w.-]+/[\w.-]+@[\w]+)?", entry.hub)
    assert {*entry.suits} <= {*catalogue.SUITS}
    assert not entry.suits or entry.size
    assert ("embed" in entry.suits) <= (entry.task == "embed")
    assert not (entry.hub or entry.origin) or entry.wheels
    taken = [path for wheel in entry.wheels for _, path in wheel.members]
    assert set(taken) == {file.path for file in entry.files}
    for file in (*entry.files, *entry.wheels):
        assert re.fullmatch("[0-9a-f]{64}", file.sha256)
        assert file.bytes > 0
    assert entry.task in ("generate", "embed")
    assert entry.summary
    assert not entry.summary.endswith(".")
    assert entry.licence
    assert all(re.fullmatch("[a-z]{2,3}", language) for language in entry.languages)
    for number in (entry.parameters, entry.context, entry.vocabulary, entry.size):
        assert number is None or number > 0
    unknown = [entry.parameters, entry.context, entry.vocabulary, entry.size].count(None)
    assert not (unknown and not entry.notes), "what is not known is said in the notes"


def test_names_and_places_are_told_apart():
    assert len({entry.name for entry in ROWS}) == len(ROWS)
    assert len({entry.cache_name for entry in ROWS}) == len(ROWS)
    assert next(iter(catalogue.ENTRIES)) == catalogue.DEFAULT


@pytest.fixture
def tiny(hub, monkeypatch):
    """A catalogue whose only model is a folder of a repository."""
    entry = dataclasses.replace(
        catalogue.ENTRIES[catalogue.DEFAULT],
        name="tiny",
        repository="org/tiny-onnx/cpu",
        hub="",
        wheels=(),
        files=(),
        disk_bytes=0,
    )
    monkeypatch.setattr(catalogue, "ENTRIES", MappingProxyType({"tiny": entry}))
    hub.repositories["org/tiny-onnx"] = {f"cpu/{name}": data for name, data in TINY.items()}
    return entry


def test_a_row_in_a_repository_is_fetched_once_under_both_its_names(hub, tiny):
    folder = models.path("tiny", lambda *report: None)
    assert {file.name for file in folder.iterdir()} >= set(TINY)
    requests = hub.requests
    assert models.path("org/tiny-onnx/cpu") == models.pull("tiny") == folder
    assert hub.requests == requests
    assert [model.name for model in models.installed()] == ["org/tiny-onnx/cpu"]
    assert models.remove("tiny") > 0
    assert models.installed() == []
