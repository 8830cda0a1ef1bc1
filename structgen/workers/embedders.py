"""An embedder in a separate process, which `worker` runs.

If its files crash, hang or fill the memory, only that process and its running calls end. The next
call starts a new one. `structgen.models.embedding` prepares texts and results.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partialmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from structgen.errors import ModelError
from structgen.storage import fork_safe

from .process import WorkerProcess, raised
from .protocol import EmbedderCall, EmbedderLoad, EmbedderReady, Ended

if TYPE_CHECKING:
    from structgen.models.embedding import Embedder, Kind


@final
class EmbedderProcess:
    """The graph and the tokenizer of an embedder. For threads, which may wait.

    All methods also raise WorkerDied: the process ended by itself.
    """

    def __init__(
        self,
        place: Path,
        options: Mapping[str, Any],
        most_bytes: int | None,
        max_silence: float | None,
    ) -> None:
        """Start without a process; arguments as for `EmbedderLoad`."""
        place = place.absolute()  # the working directory may differ when another process starts
        folder = place if place.is_dir() else place.parent
        name = folder.parent.name if folder.name == "onnx" else folder.name
        self._load = EmbedderLoad(name, place, options, most_bytes, max_silence)
        self._lock = fork_safe(threading.Lock())
        self._process: WorkerProcess | None = None
        self._is_closed = False
        self._last_ready: EmbedderReady | None = None
        weakref.finalize(self, _end, self.__dict__)

    def embedder(self) -> Embedder:
        """Return the embedder, which runs in the process.

        Raises:
            StructgenError: it cannot be loaded.
        """
        from structgen.models.embedding import Embedder  # imported late: text models do not need it

        ready = self._ready
        tokens = None if ready.takes_text else self
        return Embedder(self, tokens, ready.settings, ready.pooling, ready.max_length)

    @property
    def kind(self) -> Kind:
        """The kind of its output."""
        return self._ready.kind

    @property
    def width(self) -> int | None:
        """The number of dimensions of a vector."""
        return self._ready.width

    @property
    def pid(self) -> int | None:
        """The process id; None while there is none."""
        process = self._process
        return process.pid if process is not None and process.is_alive else None

    def _called(self, method: str, *arguments: Any, **named: Any) -> Any:
        process = self._started()
        answer: Future[Ended] = Future()
        number = process.register(answer.set_result)
        process.send(EmbedderCall(number, method, arguments, named))
        return raised(answer.result())

    # As of `Graph` and `TextTokenizer`.
    run: Any = partialmethod(_called, "run")
    run_texts: Any = partialmethod(_called, "run_texts")
    encode: Any = partialmethod(_called, "encode")
    whole: Any = partialmethod(_called, "whole")
    decode: Any = partialmethod(_called, "decode")
    n_prompt_tokens: Any = partialmethod(_called, "n_prompt_tokens")

    @property
    def _ready(self) -> EmbedderReady:
        return self._last_ready or self._started().ready

    def _started(self) -> WorkerProcess:
        """Return the process, with the embedder loaded.

        Raises:
            ModelError: the embedder cannot be loaded, or was closed.
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
                    ready = process.wait_until_ready()
                    if self._last_ready not in (None, ready):
                        raise ModelError(
                            f"The files of {self._load.name} have changed since it was loaded. "
                            "Load the model again."
                        )
                    self._last_ready = ready
                except BaseException:
                    process.stop()
                    raise
        return process

    def close(self) -> None:
        """End the process and its calls, and start no more. Waits until it has ended."""
        self._is_closed = True  # without the lock, which is held while it is loaded
        if self._process is not None:
            self._process.stop()


def _end(attributes: Mapping[str, Any]) -> None:
    """End the process of a dropped object."""
    if attributes["_process"] is not None:
        attributes["_process"].end()
