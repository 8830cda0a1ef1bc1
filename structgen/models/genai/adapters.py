"""LoRA adapters of a model: loaded by name, set on the sequences of the calls that name them.

It owns names, files and errors. It knows nothing of sequences; the runtime's object is made by
whoever is passed in, when the first adapter is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

from structgen.errors import ModelError


@final
class AdapterSet:
    """The adapters of one model."""

    def __init__(self, new: Callable[[], Any]) -> None:
        """None yet; ``new`` makes the runtime's set of them."""
        self._new = new
        self._set: Any = None
        self._files: dict[str, Path] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of those that are loaded."""
        return tuple(sorted(self._files))

    @property
    def files(self) -> dict[str, Path]:
        """The files they were loaded from, by name."""
        return dict(self._files)

    def load(self, path: str | os.PathLike[str], name: str) -> None:
        """Load one; see `structgen.models.genai.model.TextModel.load_adapter`."""
        file = Path(path).expanduser()
        if name in self._files:
            raise ModelError(f"An adapter named {name!r} is loaded already. Unload it first.")
        if not file.is_file():
            raise ModelError(f"There is no file {file}. An adapter is an .onnx_adapter file.")
        if self._set is None:
            self._set = self._new()
        try:
            self._set.load(str(file), name)
        except Exception as error:
            raise ModelError(
                f"ONNX Runtime GenAI cannot read the adapter {file}: {error}"
            ) from error
        self._files[name] = file.absolute()

    def unload(self, name: str) -> None:
        """Unload one; see `structgen.models.genai.model.TextModel.unload_adapter`."""
        self.check(name)
        try:
            self._set.unload(name)
        except Exception as error:
            raise ModelError(f"The adapter {name!r} cannot be unloaded: {error}") from error
        self._files.pop(name, None)

    def check(self, name: str) -> None:
        """Raise a `ModelError` that lists those loaded when ``name`` is none of them."""
        if name not in self._files:
            loaded = ", ".join(self.names) or "none"
            raise ModelError(f"No adapter named {name!r} is loaded (loaded: {loaded}).")

    def activate(self, generator: Any, name: str) -> None:
        """Set one on a runtime's sequence that is still empty."""
        self.check(name)
        generator.set_active_adapter(self._set, name)
