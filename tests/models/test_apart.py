"""Functions in a process of their own: results, errors, limits, and ends; conversions there."""

from __future__ import annotations

import errno
import json
import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tiny_gguf

from structgen import models
from structgen.errors import ConversionError, ModelError
from structgen.models import apart, trial
from structgen.models.progress import silent

LIMITS = apart.Limits(1 << 28, 2)
needs_limits = pytest.mark.skipif(sys.platform != "linux", reason="limits memory on Linux only")


def call(code: str, **more):
    """Call a function with that body in a process."""
    return apart.call("test_apart:run", code, **{"limits": LIMITS, **more})


def run(code: str, report=None):
    names: dict[str, object] = {"report": report}
    exec(code, names)
    return names.get("result")


def test_result_and_progress():
    told = []
    code = "print('noise'); report('a', 1, 2); report('é', 2, 2); result = [1, 'ü']"
    assert call(code, report=lambda *done: told.append(done)) == [1, "ü"]
    assert told == [("a", 1, 2), ("é", 2, 2)]


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        ("from structgen.errors import *; raise ConversionError('é')", ConversionError, "^é$"),
        ("open('/no/such')", OSError, "No such file or directory: '/no/such'"),
        ("raise OSError('5 of 6 written')", OSError, "^5 of 6 written$"),
        ("1 / 0", RuntimeError, "(?s)Traceback.*ZeroDivisionError"),
        ("import os; os.abort()", apart.Ended, r"^crashes the process that uses it \(exit code"),
        ("raise MemoryError", apart.Ended, r"^takes more than 0.25 GiB of memory$"),
        ("raise RuntimeError('std::bad_alloc')", apart.Ended, r"^takes more than 0.25 GiB"),
        ("raise OSError(12, 'Cannot allocate memory')", apart.Ended, r"^takes more than 0.25 GiB"),
        pytest.param("b'1' * (1 << 29)", apart.Ended, "0.25 GiB", marks=needs_limits),
        ("while True: pass", apart.Ended, r"^takes more than 2 s$"),
    ],
)
def test_errors_and_ends(code, kind, says):
    with pytest.raises(kind, match=says):
        call(code)


def test_the_number_of_an_error_is_kept():
    with pytest.raises(OSError, match="No space left") as caught:
        call("import errno; raise OSError(errno.ENOSPC, 'No space left')")
    assert caught.value.errno == errno.ENOSPC


def test_waiting_ends_by_the_clock(monkeypatch):
    monkeypatch.setattr(apart, "_BY_THE_CLOCK", 0.2)
    with pytest.raises(apart.Ended, match=r"^takes more than 2 s$"):
        call("import time; time.sleep(600)")


def test_without_an_interpreter_it_is_called_here(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    assert call("import os; result = os.getpid()") == os.getpid()


def test_when_no_process_can_be_started_it_is_not_called(monkeypatch, tmp_path):
    """Many connections use up a server's files, and it read foreign ones without limits."""

    def used_up(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(subprocess, "Popen", used_up)
    with pytest.raises(OSError, match="Too many open files"):
        call("result = 1")
    with pytest.raises(ModelError, match=r"Cannot test the tokenizer of .*: .*Too many open files"):
        trial.check(tmp_path, None)


def test_it_has_few_threads_on_any_machine(monkeypatch):
    """NumPy's takes 40 MB per core: on 64 cores it had 2.6 GB before the function began."""
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "64")
    assert call("import os; result = os.environ['OPENBLAS_NUM_THREADS']") == "2"


def test_paths_that_are_no_texts(monkeypatch):
    """Python ignores them, too."""
    monkeypatch.setattr(sys, "path", [*sys.path, Path("/tmp"), b"/tmp"])
    assert call("result = 1") == 1


def test_no_telemetry(monkeypatch):
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    code = "import os, structgen.models.trial; result = os.environ['ORT_DISABLE_TELEMETRY']"
    assert call(code) == "1"


class Enough(Exception):
    pass


def stop(*_: object) -> None:
    raise Enough


def test_an_error_of_the_caller_ends_the_process(tmp_path):
    """It goes on in no process that nobody waits for."""
    file = tmp_path / "late"
    code = f"import time; report('a', 1, 2); time.sleep(0.5); open({str(file)!r}, 'w')"
    with pytest.raises(Enough):
        call(code, report=stop)
    time.sleep(1)
    assert not file.exists()


def test_it_ends_with_this_process(tmp_path):
    pid = tmp_path / "pid"
    inner = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    outer = f"import sys; sys.path[:] = {sys.path!r}; import test_apart as t; t.call({inner!r})"
    with subprocess.Popen([sys.executable, "-c", outer]) as process:
        while not (pid.exists() and pid.read_text()):
            time.sleep(0.05)
        process.kill()
    while _is_running(int(pid.read_text())):
        time.sleep(0.05)


def _is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


# Conversions


def test_a_conversion_and_a_mask(tmp_path):
    steps = []
    path = tiny_gguf.write(tmp_path / "tiny.gguf")
    folder = models.convert(path, tmp_path / "out", lambda *done: steps.append(done))
    assert steps[-1][1] == steps[-1][2] > 0
    (folder / "model.masked.onnx").unlink()
    assert models.add_mask(folder) == folder / "model.masked.onnx"
    assert models.add_mask(folder).is_file()


def test_errors_of_a_conversion(tmp_path):
    with pytest.raises(ConversionError, match=r"^Cannot read .*: No such file"):
        models.convert(tmp_path / "none.gguf", tmp_path / "out", silent)
    settings = {"model": {"eos_token_id": 1, "vocab_size": 2, "context_length": 3}}
    (tmp_path / "genai_config.json").write_text(json.dumps(settings))
    with pytest.raises(ConversionError, match=r"Cannot add a mask to .*model\.onnx: "):
        models.add_mask(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["genai_config.json"]


@needs_limits
def test_a_file_that_takes_too_much_memory(tmp_path, monkeypatch):
    """Files of some megabytes took gigabytes of the server that converted them."""

    def text(of: str) -> bytes:
        return struct.pack("<Q", len(of)) + of.encode()

    n = 8_000_000  # numbers, which become objects
    data = b"GGUF" + struct.pack("<IQQ", 3, 0, 2)
    data += text("general.architecture") + struct.pack("<I", 8) + text("llama")
    data += text("llama.block_count") + struct.pack("<IIQ", 9, 10, n)
    path = tmp_path / "large.gguf"
    path.write_bytes(data + np.arange(n, dtype=np.uint64).tobytes())
    limits = apart.Limits(350 << 20, 60)
    monkeypatch.setattr(apart.Limits, "reading", lambda n_bytes: limits)
    with pytest.raises(ConversionError, match=r"large.gguf takes more than 0.342 GiB of memory\."):
        models.convert(path, tmp_path / "out", silent)
    models.convert(tiny_gguf.write(tmp_path / "tiny.gguf"), tmp_path / "out", silent)


def test_an_interrupted_conversion_leaves_nothing(tmp_path):
    path = tiny_gguf.write(tmp_path / "tiny.gguf")
    with pytest.raises(Enough):
        models.convert(path, tmp_path / "out", stop)
    assert [entry.name for entry in tmp_path.iterdir()] == ["tiny.gguf"]
