"""A worker in a thread of this process, where a process of its own is not wanted.

Owns what a `subprocess.Popen` is to `process`: pipes, waiting, an end. What is said over the pipes
is the same. The runtime holds the interpreter lock while it runs, so the rest of the program stands
still during each pass: that is the price.
"""

from __future__ import annotations

import os
import subprocess
import traceback
from typing import BinaryIO, final

from .threads import begin


@final
class InThread:
    """A worker in a thread.

    Attributes:
        stdin: what is said to it.
        stdout: what it says.
        stderr: nothing: what it prints is printed by this process.
        pid: of this process.
        returncode: 0, once it has ended.
    """

    def __init__(self) -> None:
        """Start it."""
        told, tell = os.pipe()
        heard, say = os.pipe()
        silent, unused = os.pipe()
        os.close(unused)
        self.stdin: BinaryIO = os.fdopen(tell, "wb")
        self.stdout: BinaryIO = os.fdopen(heard, "rb")
        self.stderr: BinaryIO = os.fdopen(silent, "rb")
        self.pid = os.getpid()
        self.returncode = 0
        reader, writer = os.fdopen(told, "rb"), os.fdopen(say, "wb")
        self._begun = begin("structgen-model", lambda: _serve(reader, writer))

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended.

        Raises:
            subprocess.TimeoutExpired: it has not, in that time.
        """
        if not self._begun.join(timeout):
            raise subprocess.TimeoutExpired("a thread", timeout or 0)
        return self.returncode

    def kill(self) -> None:
        """Do nothing: a thread cannot be killed. It ends after its pass, as its pipe is closed."""


def _serve(reader: BinaryIO, writer: BinaryIO) -> None:
    # Late: it loads the runtime, which nobody needs whose workers are processes.
    from .worker import serve

    try:
        serve(reader, writer)
    except Exception:
        traceback.print_exc()
    finally:
        for pipe in (writer, reader):
            pipe.close()
