"""This machine: cores, instructions, memory, and whether there is a graphics card's driver.

Each question is answered with None where the system does not say. It knows nothing of models.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def cores() -> int:
    """How many cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def core_limit() -> float | None:
    """How many cores' time a container may use; None: as many as there are, or not known."""
    quota, _, period = _text(_CGROUP / "cpu.max").partition(" ")
    if not quota.isdigit() or not period.strip().isdigit():
        return None
    return int(quota) / int(period)


def instructions() -> set[str] | None:
    """Names of the processor's extensions, ``"avx2"`` among them; None: not known."""
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


def memory() -> int | None:
    """Bytes of memory, or of what a container may use."""
    total = _meminfo("MemTotal")
    limit = _text(_CGROUP / "memory.max").strip()
    found = [number for number in (total, int(limit) if limit.isdigit() else None) if number]
    return min(found, default=None)


def free_memory() -> int | None:
    """Bytes of memory that a program can have."""
    found = [number for number in (_meminfo("MemAvailable"),) if number is not None]
    limit = _text(_CGROUP / "memory.max").strip()
    used = _text(_CGROUP / "memory.current").strip()
    if limit.isdigit() and used.isdigit():
        # What the system keeps of files counts as used, and is given up when it is needed.
        kept = dict(
            line.split() for line in _text(_CGROUP / "memory.stat").splitlines() if " " in line
        )
        found.append(int(limit) - int(used) + int(kept.get("file", 0)))
    return min(found, default=None)


def has_nvidia_driver() -> bool:
    """Whether NVIDIA's driver is installed."""
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
