"""Names of models: what a name means, what is in the cache, and how progress is shown."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from structgen import models
from structgen.errors import ModelNotFound, OptionError
from structgen.models import cache, progress
from structgen.storage import user_folder


def put(cache_folder, name, size=10):
    folder = cache.folder_of(name)
    folder.mkdir(parents=True)
    (folder / "genai_config.json").write_text("{}")
    (folder / "model.onnx").write_bytes(bytes(size - 2))
    return folder


def test_a_local_folder_is_itself(model_folder, monkeypatch):
    assert models.path(model_folder) == model_folder
    assert models.path(str(model_folder)) == model_folder
    monkeypatch.chdir(model_folder.parent)
    assert models.path(model_folder.name) == Path(model_folder.name)
    monkeypatch.setenv("HOME", str(model_folder.parent))
    monkeypatch.setenv("USERPROFILE", str(model_folder.parent))
    assert models.path(f"~/{model_folder.name}") == model_folder


def test_a_folder_that_is_no_model_says_what_is_missing(tmp_path, monkeypatch, cache_folder):
    with pytest.raises(ModelNotFound, match=r"has neither genai_config\.json nor"):
        models.path(tmp_path)
    with pytest.raises(ModelNotFound, match=r"does not exist|no folder or ONNX"):
        models.path(tmp_path / "nowhere")
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    # It could be a repository's id, but there is a folder of that name.
    with pytest.raises(ModelNotFound, match=r"has neither genai_config\.json nor"):
        models.path("org/name")


def test_what_is_no_name_of_a_model_is_told_as_it_was_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match=r"model=3 is not .*smollm2-135m-instruct"):
        models.path(3)
    with pytest.raises(ModelNotFound, match=r"model name is empty.*smollm2-135m-instruct"):
        models.path("")
    with pytest.raises(ModelNotFound, match=r"The folder \./nope does not exist\."):
        models.path("./nope")


def test_a_folder_of_models_lists_them(tmp_path):
    for name in ("cpu", "deep/cuda"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "genai_config.json").write_text("{}")
    with pytest.raises(ModelNotFound, match=r"2 of its subfolders have(.|\n)*cpu\n(.|\n)*cuda"):
        models.path(tmp_path)


def test_a_gguf_file_must_be_converted(tmp_path):
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    with pytest.raises(ModelNotFound, match=r'structgen models convert ".*model\.gguf" OUT'):
        models.path(file)
    with pytest.raises(ModelNotFound, match=r'structgen models convert ".*model\.gguf" OUT'):
        models.path(tmp_path)
    (tmp_path / "other.txt").write_text("")
    with pytest.raises(ModelNotFound, match="is a file"):
        models.path(tmp_path / "other.txt")


@pytest.mark.parametrize("name", ["smollm2-135m-instrct", "SmolLM2-135M-Instruct", "smolm2"])
def test_a_misspelt_name_is_answered_with_the_right_one(name, cache_folder):
    with pytest.raises(
        ModelNotFound, match=r"Did you mean smollm2-135m-instruct( or|\?)"
    ) as caught:
        models.path(name)
    assert "eurollm" not in str(caught.value)


def test_a_name_like_nothing_is_answered_with_the_catalogue(cache_folder):
    with pytest.raises(ModelNotFound, match="The catalogue has smollm2-135m-instruct"):
        models.pull("zzz")
    with pytest.raises(ModelNotFound):
        models.pull("")


def test_installed_models_are_listed_and_removed(cache_folder):
    assert models.installed() == []
    first = put(cache_folder, "smollm2-135m-instruct", 100)
    second = put(cache_folder, "org/a--b/-sub-/x", 50)
    (cache_folder / "models" / "no-model").mkdir()
    assert models.installed() == [
        ("org/a--b/-sub-/x", second, 50),
        ("smollm2-135m-instruct", first, 100),
    ]
    assert models.path("org/a--b/-sub-/x") == second
    assert models.remove("smollm2-135m-instruct") == 100
    assert not first.exists()
    assert [model.name for model in models.installed()] == ["org/a--b/-sub-/x"]
    assert list((cache_folder / "partial").iterdir()) == []


@pytest.mark.parametrize("name", ["smollm2-135m-instruct", "..", "../..", "/", ".", ""])
def test_only_what_is_installed_can_be_removed(name, cache_folder):
    kept = put(cache_folder, "org/kept")
    (cache_folder / "genai_config.json").write_text("{}")
    with pytest.raises(ModelNotFound, match="Cached models: org/kept"):
        models.remove(name)
    assert (kept / "model.onnx").exists()
    assert (cache_folder / "genai_config.json").exists()


def test_a_local_folder_is_never_removed(model_folder, cache_folder):
    with pytest.raises(ModelNotFound, match="nothing"):
        models.remove(str(model_folder))
    assert (model_folder / "genai_config.json").exists()


def test_the_cache_is_where_the_variable_says_or_the_systems(cache_folder, monkeypatch):
    assert user_folder.root() == cache_folder
    monkeypatch.delenv("STRUCTGEN_CACHE")
    assert user_folder.root().name in ("structgen", "Cache")
    assert user_folder.root().is_absolute()


def test_conversion_goes_through(tmp_path, conversions):
    gguf = tmp_path / "model.gguf"
    gguf.write_bytes(b"GGUF")
    out = models.convert(str(gguf), str(tmp_path / "out"), progress.silent)
    assert out == tmp_path / "out"
    assert conversions == ["cpu"]
    assert (out / "model.onnx").read_bytes() == b"GGUF"


def test_importing_is_light():
    heavy = ("onnxruntime_genai", "onnxruntime", "gguf", "onnx", "onnx_ir", "huggingface_hub")
    code = f"import sys, structgen.models; print([m for m in {heavy!r} if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_progress_in_a_log_is_plain_lines(capsys, monkeypatch):
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with progress.reporting(None) as report:
        assert capsys.readouterr().err == ""
        for second in range(11):
            now = float(second)
            report("Downloading x", second * 10, 100)
        report("Downloading x", 100, 100)
        report("Converting", 0, 7)
    assert capsys.readouterr().err.splitlines() == [
        "Downloading x …",
        "Downloading x: 30%",
        "Downloading x: 60%",
        "Downloading x: 90%",
        "Downloading x: done in 10 s",
        "Converting …",
    ]


def test_progress_in_a_terminal_is_a_bar(monkeypatch):
    import io

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress.reporting(None) as report:
        report("Downloading x", 5, 10)
        report("Downloading x", 10, 10)
    assert "Downloading x" in terminal.getvalue()
    assert "100%" in terminal.getvalue()


@pytest.mark.parametrize(
    ("shell", "widgets", "bars"),
    [
        ("ZMQInteractiveShell", True, True),
        ("ZMQInteractiveShell", False, False),
        ("X", True, False),
    ],
)
def test_progress_in_a_notebook_is_a_bar_where_it_has_widgets(monkeypatch, shell, widgets, bars):
    notebook = SimpleNamespace(get_ipython=lambda: type(shell, (), {})())
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setattr(progress, "find_spec", lambda name: widgets or None)
    with progress.reporting(None) as report:
        assert isinstance(report, progress._Bar) is bars
