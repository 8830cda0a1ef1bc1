"""Notes in which order structgen's threads take locks, in all processes of a test run.

    mkdir /tmp/orders
    PYTHONPATH=tests/benchmarks/lock_order LOCK_ORDERS=/tmp/orders pytest tests/workers
    python tests/benchmarks/lock_order/sitecustomize.py /tmp/orders

Two threads that take two locks in opposite orders may wait for each other for ever, but rarely do
so in a test. So each lock that structgen makes is wrapped, and each line of a process's file
names a lock that was held and one that was asked for, by where they were made, with the calls
that led there. The report lists all orders, and exits with status 1 if some of them form a cycle.
Locks asked for with a timeout are left out.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

_HERE = "/structgen/"


def _place(frame: Any) -> str:
    code = frame.f_code
    return f"{code.co_filename.rpartition(_HERE)[2]}:{frame.f_lineno}"


def _record(folder: Path) -> None:
    """Wrap the locks that structgen's modules make from now on."""
    of_thread = threading.local()
    seen: set[tuple[str, str]] = set()

    def note(held: str, wanted: str) -> None:
        if (held, wanted) in seen:
            return
        seen.add((held, wanted))
        calls: list[str] = []
        frame = sys._getframe(3)
        while frame is not None and len(calls) < 8:
            calls.append(_place(frame))
            frame = frame.f_back  # type: ignore[assignment]
        with open(folder / str(os.getpid()), "a", encoding="utf-8") as file:
            file.write(f"{held}\t{wanted}\t{' < '.join(calls)}\n")

    class Wrapped:
        def __init__(self, lock: Any, place: str) -> None:
            self._lock = lock
            self._place = place

        def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
            held: list[Wrapped] = of_thread.__dict__.setdefault("held", [])
            if blocking and timeout == -1 and self not in held:
                for other in held:
                    note(other._place, self._place)
            got: bool = self._lock.acquire(blocking, timeout)
            if got:
                held.append(self)
            return got

        def release(self) -> None:
            self._lock.release()
            held = of_thread.__dict__.get("held", [])
            if self in held:
                held.remove(self)

        def _at_fork_reinit(self) -> None:
            self._lock._at_fork_reinit()
            of_thread.__dict__.clear()

        def __enter__(self) -> None:
            self.acquire()

        def __exit__(self, *_: object) -> None:
            self.release()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._lock, name)

    def wrapping(kind: type[Wrapped], make: Callable[[], Any]) -> Callable[[], Any]:
        def lock() -> Any:
            frame = sys._getframe(1)
            name = frame.f_globals.get("__name__", "")
            return kind(make(), _place(frame)) if name.startswith("structgen.") else make()

        return lock

    # Two classes, as `structgen.storage.locks` tells them apart.
    threading.Lock = wrapping(type("Lock", (Wrapped,), {}), threading.Lock)  # type: ignore
    threading.RLock = wrapping(type("RLock", (Wrapped,), {}), threading.RLock)  # type: ignore


def _report(folder: Path) -> bool:
    """Print all orders, then those in a cycle; return whether there are any."""
    after: dict[str, dict[str, str]] = defaultdict(dict)
    for file in folder.iterdir():
        for line in file.read_text(encoding="utf-8").splitlines():
            held, wanted, calls = line.split("\t")
            after[held].setdefault(wanted, calls)

    def reached(start: str) -> set[str]:
        todo = [start]
        found: set[str] = set()
        while todo:
            new = after.get(todo.pop(), {}).keys() - found
            found |= new
            todo += new
        return found

    cycles = []
    for held, wanted in sorted((a, b) for a in after for b in after[a]):
        print(f"{held} -> {wanted}")
        if held != wanted and held in reached(wanted):
            cycles.append(f"In a cycle: {held} -> {wanted}\n    {after[held][wanted]}")
    print(*cycles, sep="\n")
    return bool(cycles)


if __name__ == "__main__":
    sys.exit(_report(Path(sys.argv[1])))
elif "LOCK_ORDERS" in os.environ:
    _record(Path(os.environ["LOCK_ORDERS"]))
