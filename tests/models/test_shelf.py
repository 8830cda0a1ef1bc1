"""What is here and what could be: the list, facts, sizes on disk, and checks of digests."""

from __future__ import annotations

import json

import pytest
from test_hub import FILES
from test_paths import put

from structgen import models
from structgen.cli import commands
from structgen.cli.model_commands import table
from structgen.errors import ModelNotFound
from structgen.models import cache


@pytest.fixture
def fetched(hub):
    """A model from the stand-in hub, with its record."""
    hub.repositories["org/tiny-onnx"] = {
        **FILES,
        "genai_config.json": json.dumps(
            {
                "model": {
                    "context_length": 77,
                    "vocab_size": 9,
                    "decoder": {"filename": "model.onnx"},
                }
            }
        ).encode(),
    }
    return models.pull("org/tiny-onnx", lambda *report: None)


def test_the_list_has_the_catalogue_and_what_is_here(fetched):
    listed = models.listing()
    names = [model.name for model in listed]
    assert names == [*models.catalogue.ENTRIES, "org/tiny-onnx"]
    (here,) = [model for model in listed if model.here]
    assert (here.context, here.vocabulary, here.folder) == (77, 9, fetched)
    assert here.source == "Hugging Face: org/tiny-onnx"
    assert here.commit
    assert here == models.info("org/tiny-onnx")


def test_the_list_is_read_in_eighty_columns(fetched):
    lines = table(models.listing()).splitlines()
    assert max(map(len, lines)) <= 80
    assert "* org/tiny-onnx" in "\n".join(lines)
    assert lines[0] == "Language models (generate)"


def test_a_model_in_the_catalogue_that_is_a_repository_is_here_under_its_own_name(cache_folder):
    entry = next(entry for entry in models.catalogue.ENTRIES.values() if entry.repository)
    folder = put(cache_folder, entry.repository, 50)
    assert models.info(entry.name).folder == models.info(entry.repository).folder == folder
    assert [model.name for model in models.listing() if model.here] == [entry.name]


def test_what_nothing_is_known_of(cache_folder, model_folder):
    with pytest.raises(ModelNotFound, match=r"'smolm2' is unknown.*smollm2-135m"):
        models.info("smolm2")
    assert models.info(str(model_folder)).folder == model_folder


def test_the_hub_is_asked_about_other_repositories(hub):
    hub.repositories["org/many"] = {
        f"{folder}/{name}": data for folder in ("cpu", "cuda") for name, data in FILES.items()
    }
    with pytest.raises(ModelNotFound, match=r"2 models(.|\n)*org/many/cpu\n *org/many/cuda"):
        models.info("org/many")
    found = models.info("org/many/cpu")
    wanted = sum(len(data) for name, data in FILES.items() if name != "model.safetensors")
    assert (found.size, found.here, found.task) == (wanted, False, "generate")
    assert hub.downloads == []
    with pytest.raises(ModelNotFound, match="no repository org/nothing"):
        models.info("org/nothing")
    with pytest.raises(ModelNotFound, match=r"org/many/cpu is not downloaded\. Download it"):
        models.verify(["org/many/cpu"])


def test_a_model_as_it_arrived_is_fine(fetched):
    (one,) = models.verify(progress=lambda *report: None)
    assert (one.name, one.checked, one.problems, one.cure) == ("org/tiny-onnx", "digests", (), "")
    assert one.files == 4


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda file: file.unlink(), "is missing"),
        (lambda file: file.write_bytes(b"short"), "5 bytes instead of 10,240"),
        (lambda file: file.write_bytes(bytes(10_240)), "its SHA-256 is not"),
    ],
)
def test_what_changed_since_is_damaged(fetched, change, says, capsys):
    change(fetched / "model.onnx.data")
    (one,) = models.verify(["org/tiny-onnx"], lambda *report: None)
    assert len(one.problems) == 1
    assert says in one.problems[0]
    assert (
        one.cure
        == "`structgen models rm org/tiny-onnx`, then `structgen models pull org/tiny-onnx`."
    )
    assert commands._run(["models", "verify"]) == 1
    shown = capsys.readouterr().out
    assert "org/tiny-onnx: damaged (digests of 4 files)" in shown
    assert "Do: `structgen models rm" in shown


def test_a_file_is_read_once(cache_folder):
    """A record of 3 MB could have 33,000 names of it."""
    folder = put(cache_folder, "smollm2-135m-instruct", 50)
    names = ["model.onnx", "./model.onnx", ".//model.onnx", "././model.onnx"]
    record = {"source": "", "commit": "", "files": {name: [50, "0"] for name in names}}
    (folder / cache.RECORD).write_text(json.dumps(record))
    assert [*cache.read_record(folder).files] == ["model.onnx"]


def test_without_a_record_sizes_are_compared(cache_folder, capsys):
    folder = put(cache_folder, "smollm2-135m-instruct", 50)
    (one,) = models.verify(progress=lambda *report: None)
    assert one.checked == "sizes"
    assert "genai_config.json cannot be parsed" in one.problems[0]
    (folder / cache.RECORD).write_text("[]")
    assert models.verify(progress=lambda *report: None)[0].checked == "sizes"
    with pytest.raises(ModelNotFound, match="structgen models pull all-minilm-l6-v2"):
        models.verify(["all-minilm-l6-v2"])


def test_sizes_on_disk_and_what_an_interrupted_fetch_left(cache_folder, capsys):
    put(cache_folder, "smollm2-135m-instruct", 100)
    half = cache_folder / "partial" / "org--half"
    half.mkdir(parents=True)
    (half / "part").write_bytes(bytes(70))
    usage = models.usage()
    assert (usage.models, usage.unfinished) == ({"smollm2-135m-instruct": 100}, {"org/half": 70})
    assert commands._run(["models", "du"]) == 0
    assert "70 B  org/half (unfinished)" in capsys.readouterr().out
    assert models.remove("org/half") == 70
    assert models.usage().unfinished == {}


def test_lists_can_be_filtered_and_read_by_programs(cache_folder, capsys):
    put(cache_folder, "smollm2-135m-instruct", 100)

    def listed(*arguments):
        assert commands._run(["models", "list", "--json", *arguments]) == 0
        return [model["name"] for model in json.loads(capsys.readouterr().out)]

    assert listed() == [*models.catalogue.ENTRIES]
    assert listed("--here") == ["smollm2-135m-instruct"]
    assert listed("--task", "embed") == ["all-minilm-l6-v2"]
    assert "lucie-7b-instruct-v1.1" in listed("--language", "fr")
    assert listed("--task", "embed", "--here") == []
    assert commands._run(["models", "list", "--task", "embed", "--here"]) == 0
    assert capsys.readouterr().out == "There is no such model.\n"
    for command in (["info", "smollm2-135m-instruct"], ["du"], ["verify"]):
        commands._run(["models", *command, "--json"])
        assert json.loads(capsys.readouterr().out)


def test_facts_are_lines_of_eighty_columns(capsys):
    for name in models.catalogue.ENTRIES:
        assert commands._run(["models", "info", name]) == 0
    lines = capsys.readouterr().out.splitlines()
    # What names a place is not broken, so that it can be copied.
    assert max(len(line) for line in lines if "/" not in line) <= 80
