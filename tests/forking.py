"""A process for each case without a start of Python for each: forked where all is imported.

A test file calls ``serve`` when it runs as a program, with what a case has done to it; its tests
ask that program by ``Forks``. Each case is a fork of its own, under limits of its own, so that what
one takes, keeps or breaks is nothing to the next. What is judged is the test file's matter.
"""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Done(NamedTuple):
    """How a process ended: its exit code (below 0: the signal that ended it) and what it wrote."""

    returncode: int
    stdout: str
    stderr: str


class Forks:
    """The program that forks, from its start to the end of the block."""

    def __init__(self, file: str, environment: Mapping[str, str] | None = None) -> None:
        paths = {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}", "OPENBLAS_NUM_THREADS": "1"}
        self._program = subprocess.Popen(
            [sys.executable, file],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**paths, **(environment or {})},
        )

    def __enter__(self) -> Forks:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._program.communicate()

    def run(self, case: Any, stdin: str = "") -> Done:
        """Have one case done, which JSON has to hold."""
        asked, told = self._program.stdin, self._program.stdout
        assert asked is not None
        assert told is not None
        asked.write(json.dumps([case, stdin]) + "\n")
        asked.flush()
        return Done(*json.loads(told.readline()))


def serve(do: Callable[[Any], object], seconds: int, limits: Mapping[int, int]) -> None:
    """Do the cases that standard input names, each in a fork, and print how it ended.

    A fork prints what it likes. One that hangs is ended after so many seconds: by SIGALRM.
    """
    for line in sys.stdin:
        case, given = json.loads(line)
        with (
            tempfile.TemporaryFile() as read,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            read.write(given.encode())
            read.seek(0)
            child = os.fork()
            if child == 0:
                for number, file in enumerate((read, out, err)):
                    os.dup2(file.fileno(), number)
                os._exit(_done(do, case, seconds, limits))
            _, status = os.waitpid(child, 0)
            written = []
            for file in (out, err):
                file.seek(0)
                written.append(file.read().decode(errors="replace"))
        print(json.dumps([os.waitstatus_to_exitcode(status), *written]), flush=True)


def _done(do: Callable[[Any], object], case: Any, seconds: int, limits: Mapping[int, int]) -> int:
    """The exit code of a fork, which returns nowhere."""
    code = 0
    try:
        signal.alarm(seconds)
        for limit, most in limits.items():
            resource.setrlimit(limit, (most, resource.getrlimit(limit)[1]))
        # Not the one that has read ahead: that is other cases'.
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0)), encoding="utf-8")
        do(case)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code
