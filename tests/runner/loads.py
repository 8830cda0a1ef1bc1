"""Loading and unloading again and again: what this process holds afterwards stays flat.

``python tests/runner/loads.py [100] [--in-process]`` does it with the default model and the default
embedder; the first in a process of its own, or in this one.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from pathlib import Path

from mixed import EMBEDDER, SMALL

from structgen import Runner


def resident() -> int:
    """Bytes of memory that this process holds, once what is free has been given back."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def resident_after(runner: Runner, names: list[str], times: int) -> list[int]:
    """Load, use and unload some models; the memory after the second time and each later one."""
    found = []
    for i in range(times):
        for name in names:
            runner.load(name)
            if runner.get_model_info(name)["kind"] == "embedding":
                assert runner.embed(input=f"text {i}", model=name).data
            else:
                assert runner.complete(prompt=f"{i} and", max_tokens=2, model=name).choices
            runner.unload(name)
        if i:
            found.append(resident())
    return found


def main() -> None:
    asked = [one for one in sys.argv[1:] if one != "--in-process"]
    times = int(asked[0]) if asked else 100
    small = {"source": SMALL, "in_process": "--in-process" in sys.argv}
    with Runner({"small": small, "vectors": EMBEDDER}) as runner:
        found = resident_after(runner, ["small", "vectors"], times)
    shown = found[:: max(1, len(found) // 10)]
    print("resident, MB:", ", ".join(f"{one / 1e6:.1f}" for one in (*shown, found[-1])))
    middle = found[len(found) // 10]
    print(f"after {times} times: {found[-1] / middle - 1:+.1%} of what it was after a tenth")


if __name__ == "__main__":
    main()
