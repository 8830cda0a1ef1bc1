"""Call a function in a process of its own, with limits on its memory and time.

The readers of foreign files use packages without limits, some in native code: a file of a few
megabytes may take gigabytes, never end, or end the process. So they run apart, and whatever happens
there is an error here.

This file is also the script of that process::

    python -I apart.py      reads a line of JSON, and answers with lines of JSON
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .progress import Progress

_BY_THE_CLOCK = 4  # times as long; some systems do not count CPU time
_NO_MEMORY = 3  # the exit code
_LONGEST = 10_000  # characters of an error
_THREADS = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "RAYON_NUM_THREADS"), "2")
# Each takes 40 MB of the memory that a function may use; by default there is one per core.


class Limits(NamedTuple):
    """The most that a function may use.

    Attributes:
        memory: in bytes; holds on Linux only.
        seconds: of CPU time, and a quarter of the most by the clock.
    """

    memory: int
    seconds: int

    @classmethod
    def reading(cls, n_bytes: int) -> Limits:
        """Return those of a function that reads so many bytes of foreign weights."""
        return cls((1 << 30) + 16 * n_bytes, 600 + n_bytes // 100_000)


class Ended(Exception):
    """The process ended before the function did. The text is the end of a sentence."""


def call(function: str, *arguments: Any, limits: Limits, report: Progress | None = None) -> Any:
    """Call a function in a process, which ends with this one.

    Where there is no interpreter that can be started, it is called here, without limits.

    Args:
        function: its place, ``module:name``.
        arguments: its positional arguments; they and the result become JSON.
        limits: what it may use.
        report: called by the function's argument of the same name.

    Raises:
        Ended: it takes too much memory or time, or crashes the process.
        StructgenError, OSError: the function raised one, or no process can be started now.
        RuntimeError: the function raised another error.

    Cost: 30 ms, and the imports.
    """
    asked: dict[str, Any] = {"function": function, "arguments": arguments, "limits": limits}
    asked["paths"] = [path or os.getcwd() for path in sys.path if isinstance(path, str)]
    asked["reports"] = report is not None
    try:
        if getattr(sys, "frozen", False) or not sys.executable:
            raise FileNotFoundError
        process = subprocess.Popen(
            [sys.executable, "-I", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | _THREADS,
            text=True,
            encoding="utf-8",
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
    except (FileNotFoundError, PermissionError):  # not if files or processes are used up
        return resolve_name(function)(*arguments, **({} if report is None else {"report": report}))
    assert process.stdin is not None
    assert process.stdout is not None
    is_late = threading.Event()

    def end() -> None:
        is_late.set()
        process.kill()

    timer = threading.Timer(_BY_THE_CLOCK * limits.seconds, end)
    timer.daemon = True
    try:
        timer.start()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(f"{json.dumps(asked)}\n")
            process.stdin.flush()
        for kind, told in map(json.loads, process.stdout):
            if kind == "result":
                return told
            if kind == "error":
                raise _error(*told)
            if report is not None:
                report(*told)
        code = process.wait()
    finally:
        timer.cancel()
        process.kill()
        with contextlib.suppress(BrokenPipeError), process:
            pass
    if is_late.is_set() or -code == getattr(signal, "SIGXCPU", None):
        raise Ended(f"takes more than {limits.seconds:,} s")
    if code == _NO_MEMORY:
        raise Ended(f"takes more than {limits.memory / (1 << 30):.3g} GiB of memory")
    raise Ended(f"crashes the process that uses it (exit code {code})")


def _error(name: str, arguments: list[Any]) -> Exception:
    from structgen import errors

    kinds = {"OSError": OSError, "RuntimeError": RuntimeError, **vars(errors)}
    error: Exception = kinds[name](*arguments)
    return error


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print

    def tell(kind: str, told: Any) -> None:
        output.write(f"{json.dumps((kind, told))}\n")
        output.flush()

    def end_with_parent() -> None:
        sys.stdin.read()
        os._exit(1)

    given = json.loads(sys.stdin.readline())
    threading.Thread(target=end_with_parent, daemon=True).start()
    sys.path[:] = given["paths"]
    more = {"report": lambda *done: tell("progress", done)} if given["reports"] else {}
    try:
        function = resolve_name(given["function"])
        _limit(*given["limits"])
        tell("result", function(*given["arguments"], **more))
    except BaseException as error:  # a panic is not an Exception
        is_full = getattr(error, "errno", None) == errno.ENOMEM
        if is_full or isinstance(error, MemoryError) or "bad_alloc" in str(error):
            os._exit(_NO_MEMORY)
        tell("error", _portable(error))
    os._exit(0)  # at once: the other thread reads


def _limit(memory: int, seconds: int) -> None:
    with contextlib.suppress(ImportError):  # Windows
        import resource

        for kind, most in (
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_CPU, seconds),
            (resource.RLIMIT_DATA, memory),
        ):
            hard = resource.getrlimit(kind)[1]
            resource.setrlimit(kind, (most if hard < 0 else min(most, hard), hard))


def _portable(error: BaseException) -> tuple[str, list[Any]]:
    if isinstance(error, OSError):
        return "OSError", [*error.args[:2], *([error.filename] if error.filename else [])]
    if type(error).__module__ == "structgen.errors":
        return type(error).__name__, [str(error)]
    return "RuntimeError", ["".join(traceback.format_exception(error))[-_LONGEST:]]


if __name__ == "__main__":
    _main()
