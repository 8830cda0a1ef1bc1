"""An embedder's graph in a process of its own, which `worker` serves.

A graph that crashes, hangs or eats memory ends that process and the calls that run in it. The next
call starts another. Knows no texts' tokens, prompts and batches: see `structgen.models.embedding`.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

from structgen.errors import ModelError
from structgen.storage import fork_safe

from .process import WorkerProcess, raised
from .protocol import Ended, GraphLoad, GraphReady, GraphRun

Vectors = npt.NDArray[np.float32]


@final
class GraphProcess:
    """A graph, as `structgen.models.embedding.session.Graph`. For threads, which may wait."""

    def __init__(
        self,
        file: Path,
        options: Mapping[str, Any],
        most_bytes: int | None,
        max_silence: float | None,
    ) -> None:
        """Start nothing yet; args as of `GraphLoad`."""
        file = file.absolute()  # the program may be elsewhere when another process is started
        place = file.parent.parent if file.parent.name == "onnx" else file.parent
        self._load = GraphLoad(place.name, file, options, most_bytes, max_silence)
        self._lock = fork_safe(threading.Lock())
        self._process: WorkerProcess | None = None
        self._is_closed = False
        weakref.finalize(self, _end, self.__dict__)

    @property
    def takes_text(self) -> bool:
        """Whether it reads strings."""
        return self._facts.takes_text

    @property
    def kind(self) -> Literal["text", "tokens", "score"]:
        """What its output is."""
        return self._facts.kind

    @property
    def width(self) -> int | None:
        """Numbers of a vector."""
        return self._facts.width

    @property
    def pid(self) -> int | None:
        """The id of the process; None while there is none."""
        process = self._process
        return process.pid if process is not None and process.is_alive else None

    def run(self, rows: Sequence[Any], pooling: str, n_skipped: int = 0) -> Vectors:
        """As `Graph.run`; also raises WorkerDied: the process ended by itself."""
        return self._called("run", list(rows), pooling, n_skipped)

    def run_texts(self, texts: Sequence[str]) -> Vectors:
        """As `Graph.run_texts`, and `run`."""
        return self._called("run_texts", list(texts))

    def _called(self, method: Literal["run", "run_texts"], *arguments: Any) -> Vectors:
        process = self._started()
        answer: Future[Ended] = Future()
        number = process.register(answer.set_result)
        process.send(GraphRun(number, method, arguments))
        found: Vectors = raised(answer.result())
        return found

    @cached_property
    def _facts(self) -> GraphReady:
        facts: GraphReady = self._started().ready
        return facts

    def _started(self) -> WorkerProcess:
        """The process, with the graph loaded.

        Raises:
            ModelError: it cannot be loaded, or was closed.
        """
        with self._lock:
            process = self._process
            if process is None or not process.is_alive:
                if self._is_closed:
                    raise ModelError(f"The model {self._load.name} was closed.")
                self._process = process = WorkerProcess(self._load, lambda *_: None)
                if self._is_closed:  # since; `close` has not seen this one
                    process.end()
                try:
                    process.wait_until_ready()
                except BaseException:
                    process.stop()
                    raise
        return process

    def close(self) -> None:
        """End the process, and calls in it, and start none any more. Waits until it has ended."""
        self._is_closed = True  # without the lock, which is held while a graph is loaded
        if self._process is not None:
            self._process.stop()


def _end(attributes: Mapping[str, Any]) -> None:
    """End the process of a graph that was dropped."""
    if attributes["_process"] is not None:
        attributes["_process"].end()
