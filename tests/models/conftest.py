"""Fixtures of the tests about models on disk: a cache of their own, no internet, a small hub."""

from __future__ import annotations

import os
import socket
import types
from pathlib import Path
from pkgutil import resolve_name

import pytest
from hub_server import Hub
from index_server import Index
from weights import weights_of

from structgen import models
from structgen.models import apart, cache
from structgen.models import hub as hub_module
from structgen.models.conversion import convert as converting

# Read by huggingface_hub when it is imported.
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("HF_HUB_DISABLE_XET", "1")


@pytest.fixture
def cache_folder(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("STRUCTGEN_CACHE", str(folder))
    return folder


@pytest.fixture
def no_internet(monkeypatch):
    """Only this machine can be reached from this process."""
    connect = socket.socket.connect

    def connect_here(self, address):
        if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise AssertionError(f"A test reached for {address}.")
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", connect_here)


@pytest.fixture
def hub(cache_folder, no_internet, monkeypatch):
    """A stand-in for the Hugging Face hub on this machine."""
    for variable in ("HF_TOKEN", "HF_HUB_OFFLINE", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.delenv(variable.lower(), raising=False)
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    with Hub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


@pytest.fixture
def index(cache_folder, no_internet, monkeypatch):
    """A stand-in for the package index on this machine, which pip is told to use."""
    for variable in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.delenv(variable.lower(), raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_RESUME_RETRIES", "0")
    with Index() as server:
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
        yield server


@pytest.fixture(autouse=True)
def _conversions_in_this_process(monkeypatch, request):
    """There tests can change them, and a process would take a second to start."""
    if request.module.__name__ == "test_apart":
        return

    def called(function, *arguments, limits, report=None):
        more = {} if report is None else {"report": report}
        return resolve_name(function)(*arguments, **more)

    here = types.SimpleNamespace(**{**vars(apart), "call": called})
    monkeypatch.setattr(converting, "apart", here)
    monkeypatch.setattr(models, "apart", here)
    monkeypatch.setattr(hub_module, "apart", here)


@pytest.fixture
def conversions(monkeypatch):
    """The converter is replaced by one that copies; the list of its calls' targets."""
    calls = []

    def convert(gguf, out, progress=None, **options):
        calls.append(options["target"])
        progress("Converting", 1, 2)
        if gguf.read_bytes().startswith(b"bad"):
            raise RuntimeError("no GGUF")
        out.mkdir(parents=True)
        (out / "genai_config.json").write_text("{}")
        (out / "model.onnx").write_bytes(gguf.read_bytes())
        progress("Converting", 2, 2)
        return out

    monkeypatch.setattr(converting, "convert", convert)
    return calls


@pytest.fixture
def model_folder(tmp_path) -> Path:
    folder = tmp_path / "local model"
    folder.mkdir()
    (folder / "genai_config.json").write_text("{}")
    return folder


@pytest.fixture(scope="session")
def default_model() -> Path:
    """The default model in the user's own cache, fetched and converted if it is not there."""
    return models.path("smollm2-135m-instruct")


@pytest.fixture(scope="session")
def default_weights() -> Path:
    """The GGUF file that the default model was made from, kept beside the cache's models."""
    return weights_of("smollm2-135m-instruct")


@pytest.fixture
def large(request):
    """Gives the folder of a large model, or skips: nothing large is fetched unasked."""

    def folder(name: str) -> Path:
        asked = request.config.option.markexpr == "large"
        if not asked and cache.find(name) is None:
            pytest.skip(f"{name} is not in the cache; `pytest -m large` fetches it")
        return models.path(name)

    return folder
