"""What the doctor finds: each thing that can go wrong, with its cure."""

from __future__ import annotations

import json
import os
import signal
from types import SimpleNamespace

import pytest
from test_paths import put

from structgen import models
from structgen.cli import commands
from structgen.errors import OptionError
from structgen.models import health

FINE = {
    "structgen": "1",
    "onnxruntime": "1",
    "onnxruntime-genai": "1",
    **dict.fromkeys(health._NEEDED, "1"),
}

DEFAULTS = ("smollm2-135m-instruct", "all-minilm-l6-v2")


@pytest.fixture
def here(monkeypatch, cache_folder):
    """A machine on which nothing is wrong, to be changed; nothing is started."""
    cache_folder.mkdir(mode=0o700)
    state = SimpleNamespace(
        distributions=dict(FINE), failure="", providers=("CPUExecutionProvider",)
    )
    monkeypatch.setattr(health, "_distributions", lambda: state.distributions)
    monkeypatch.setattr(
        health, "_try_runtimes", lambda: health._Runtime(state.providers, state.failure)
    )
    monkeypatch.setattr(health.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(health, "instructions", lambda: {"avx", "avx2"})
    monkeypatch.setattr(health, "core_limit", lambda: None)
    monkeypatch.setattr(health, "free_memory", lambda: 8_000_000_000)
    monkeypatch.setattr(health, "has_nvidia_driver", lambda: False)
    monkeypatch.setattr(
        health.shutil, "disk_usage", lambda folder: SimpleNamespace(free=50_000_000_000)
    )
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    return state


def found(severity="problem"):
    return [one for one in models.doctor().findings if one.severity == severity]


def test_a_machine_on_which_nothing_is_wrong(here, capsys):
    assert models.doctor().is_fine
    assert found() == found("warning") == []
    names = {one.cure for one in found("note") if "pull" in one.cure}
    assert {f"structgen models pull {name}" for name in DEFAULTS} <= names
    assert commands._run(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert shown.endswith("Nothing will fail.\n")
    assert "\nthreads    one per core" in shown
    assert max(len(line) for line in shown.splitlines() if "/" not in line) <= 80


def test_runtimes_side_by_side(here, capsys):
    here.distributions |= {"onnxruntime-gpu": "1", "onnxruntime-genai-cuda": "1"}
    first, second = found()
    assert "onnxruntime and onnxruntime-gpu are installed together" in first.says
    assert first.cure.startswith("pip uninstall -y onnxruntime onnxruntime-gpu, then")
    assert "onnxruntime-genai and onnxruntime-genai-cuda" in second.says
    assert commands._run(["doctor"]) == 1
    assert "PROBLEM: onnxruntime and onnxruntime-gpu" in capsys.readouterr().out


def test_a_package_for_a_card_that_is_not_there(here, monkeypatch):
    here.distributions = {**FINE, "onnxruntime-gpu": "1"}
    del here.distributions["onnxruntime"]
    assert found() == []
    (card,) = found("warning")
    assert "no NVIDIA driver" in card.says
    monkeypatch.setattr(health, "has_nvidia_driver", lambda: True)
    (provider,) = found("warning")
    assert "no CUDA provider" in provider.says
    here.providers = ("CUDAExecutionProvider",)
    assert found("warning") == []


def test_packages_that_are_missing(here):
    del here.distributions["onnxruntime"], here.distributions["gguf"]
    assert [one.cure for one in found()] == ["pip install onnxruntime", "pip install gguf"]


@pytest.mark.parametrize(
    ("known", "severity", "says"),
    [({"sse2"}, "problem", "no AVX,"), ({"avx"}, "warning", "no AVX2"), (None, "problem", None)],
)
def test_instructions_that_are_missing(here, monkeypatch, known, severity, says):
    monkeypatch.setattr(health, "instructions", lambda: known)
    assert [says in one.says for one in found(severity)] == [True] * (says is not None)


def test_a_runtime_that_does_not_start_is_told_and_does_no_harm(here, monkeypatch):
    here.failure = "killed by SIGILL"
    (one,) = found()
    assert one.says == "ONNX Runtime does not start: killed by SIGILL."
    monkeypatch.undo()
    for code, said in [
        (f"import os; os.kill(os.getpid(), {int(signal.SIGILL)})", "killed by SIGILL"),
        ("raise ImportError('no')", "ImportError: no"),
    ]:
        monkeypatch.setattr(health, "_TRIAL", code)
        assert health._try_runtimes().failure == said


def test_the_runtimes_of_this_environment_start():
    assert "CPUExecutionProvider" in health._try_runtimes().providers


def test_little_room_and_little_memory(here, monkeypatch):
    monkeypatch.setattr(health, "free_memory", lambda: 300_000_000)
    monkeypatch.setattr(
        health.shutil, "disk_usage", lambda folder: SimpleNamespace(free=300_000_000)
    )
    (room,) = found()
    assert "needs 400 MB" in room.says
    assert "STRUCTGEN_CACHE" in room.cure
    (memory,) = found("warning")
    assert "300 MB of memory" in memory.says
    monkeypatch.setattr(health, "core_limit", lambda: 0.5)
    assert "Pass threads=1 to structgen.load." in [one.cure for one in found("warning")]


def test_a_cache_that_cannot_be_written_or_trusted(here, cache_folder, monkeypatch, tmp_path):
    (cache_folder / "models").mkdir()
    cache_folder.chmod(0o777)
    (distrusted,) = found()
    assert "can be written by others" in distrusted.says
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STRUCTGEN_CACHE", str(tmp_path / "file" / "cache"))
    (blocked,) = found()
    assert "is a file, not a folder" in blocked.says
    monkeypatch.setenv("STRUCTGEN_CACHE", str(tmp_path / "new"))

    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    (rights,) = found()
    assert rights.says.startswith("Cannot write to the cache")


def test_a_cache_that_is_another_users(here, cache_folder, monkeypatch):
    """It was a traceback, out of ``models list`` and ``models du``, too."""
    (cache_folder / "models").mkdir(parents=True)
    (cache_folder / "partial").mkdir()
    stat, listdir = os.stat, os.listdir

    def refused(path, top):
        if str(path).startswith(top):
            raise PermissionError(13, "Permission denied")
        return path

    monkeypatch.setattr(os, "listdir", lambda path=".": listdir(refused(path, str(cache_folder))))
    # The folder around it, all of it, or in one of all.
    for top in (str(cache_folder), f"{cache_folder}/", f"{cache_folder}/models/"):
        monkeypatch.setattr(os, "stat", lambda path, top=top, **o: stat(refused(path, top), **o))
        found()
        assert not any(one.here for one in models.listing())
        assert models.usage().unfinished == {}


def test_a_default_model_that_is_damaged(here, cache_folder):
    put(cache_folder, "smollm2-135m-instruct", 50)
    (cache_folder / "models" / "smollm2-135m-instruct" / "model.onnx").unlink()
    says = [one.says for one in found()]
    assert any("genai_config.json cannot be parsed" in one for one in says)
    assert all("structgen models rm smollm2-135m-instruct" in one.cure for one in found())


def test_it_can_be_read_by_programs(here, capsys):
    here.distributions.pop("gguf")
    assert commands._run(["doctor", "--json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["is_fine"] is False
    assert shown["findings"][0]["cure"] == "pip install gguf"
    assert shown["facts"]["cores"] == health.cores()


def test_this_machine_is_read():
    assert health.cores() >= 1
    assert health.memory() is None or health.memory() >= (health.free_memory() or 0) > 0
    if os.path.exists("/proc/cpuinfo"):
        assert health.instructions()


@pytest.mark.parametrize(
    ("text", "limit"), [("max 100000", None), ("150000 100000", 1.5), ("", None)]
)
def test_the_limit_of_a_container(tmp_path, monkeypatch, text, limit):
    (tmp_path / "cpu.max").write_text(text)
    monkeypatch.setattr(health, "_CGROUP", tmp_path)
    assert health.core_limit() == limit


@pytest.mark.parametrize(
    ("free", "task", "name"),
    [
        (None, "extract", "phi-4-mini-instruct"),
        (16e9, "tools", "phi-4-mini-instruct"),
        (4e9, "extract", "phi-3.5-mini-instruct"),
        (4e9, "code", "phi-3.5-mini-instruct"),
        (4e9, "tools", "granite-3.3-2b-instruct"),
        (2e9, "extract", "qwen2.5-coder-0.5b-instruct"),
        (1e9, "extract", "smollm2-135m-instruct"),
        (1e9, "embed", "all-minilm-l6-v2"),
        (1e9, "chat", None),
    ],
)
def test_the_largest_model_for_a_task_that_fits_is_recommended(
    here, monkeypatch, capsys, free, task, name
):
    monkeypatch.setattr(health, "free_memory", lambda: free)
    best = models.recommend(task)
    assert (best and best.name) == name
    assert commands._run(["models", "recommend", "--task", task]) == (name is None)
    said = capsys.readouterr().out
    assert f"structgen models pull {name}" in said if name else "No model of the catalogue" in said
    if task == "extract":
        cures = [one.cure.split(",")[0] for one in found("note")]
        assert f"structgen models pull {name}" in cures


def test_a_task_that_is_not_known(here):
    with pytest.raises(OptionError, match=r"task='draw' is not one of extract, chat, tools"):
        models.recommend("draw")


@pytest.mark.parametrize(
    ("known", "has"),
    [({"avx2", "avx512_vnni"}, True), ({"avx_vnni"}, True), ({"avx2"}, False), (None, False)],
)
def test_passes_are_cheaper_where_bytes_are_multiplied_many_at_once(known, has, monkeypatch):
    monkeypatch.setattr(health, "instructions", lambda: known)
    assert health.has_int8_products.__wrapped__() is has
