"""What a Runner is told of a model: where it is from, what it does, and how it runs.

Plain data, checked when it is made. Loads nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from structgen import models
from structgen.errors import OptionError
from structgen.models.embedding import Embedder
from structgen.workers import AsyncModel

Kind = Literal["text", "embedding"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A model of a Runner.

    Attributes:
        source: a folder, a name of the catalogue, a Hugging Face repository; or a loaded
            `structgen.AsyncModel` or `structgen.Embedder`, which is not closed by the Runner, or a
            `structgen.TextModel`, of which a process loads its own.
        kind: ``text`` or ``embedding``; None: as its files say.
        processes: how many processes run the model, each with weights of its own. More than one
            pays where there are more cores than one process uses.
        in_process: run it in a thread of this process, which then stands still during each pass of
            the model.
        threads: as in `structgen.load`.
        providers: as in `structgen.load`.
        session_options: as in `structgen.load`.
        batch_size: as in `structgen.load_async`.
        adapters: LoRA adapters to load with it, by name.
        pooling: as in `structgen.load_embedder`.
        max_length: as in `structgen.load_embedder`.
        memory: bytes that it takes when it is loaded; None: measured, and before that the size of
            its files.
    """

    source: Any
    kind: Kind | None = None
    processes: int = 1
    in_process: bool = False
    threads: int | None = None
    providers: Sequence[str] | None = None
    session_options: Mapping[str, Any] | None = None
    batch_size: int | None = None
    adapters: Mapping[str, str | os.PathLike[str]] = field(default_factory=dict)
    pooling: str | None = None
    max_length: int | None = None
    memory: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in (None, "text", "embedding"):
            raise OptionError(f"kind={self.kind!r} is neither 'text' nor 'embedding'.")
        place = Path(self.source) if isinstance(self.source, str) else None
        if place is not None and place.name == self.source and not place.exists():
            models.check(self.source)  # a folder may come later, a name does not
        if type(self.processes) is not int or not 1 <= self.processes <= 64:
            raise OptionError(f"processes={self.processes!r} is no whole number from 1 to 64.")
        if self.in_process and (self.processes > 1 or not isinstance(self.source, (str, Path))):
            raise OptionError("in_process= needs a source by name, and processes=1.")
        if self.is_loaded and self.processes > 1:
            raise OptionError("processes= needs a source by name: a loaded model is one already.")

    @classmethod
    def of(cls, given: Any) -> ModelConfig:
        """What is meant by a value of ``models=``: a source, a config, or its fields as a dict.

        Raises:
            OptionError: it is none of these.
        """
        if isinstance(given, cls):
            return given
        if isinstance(given, Mapping):
            try:
                return cls(**given)
            except TypeError as error:
                raise OptionError(f"The model's configuration {dict(given)!r}: {error}.") from None
        if isinstance(given, (str, os.PathLike)) and os.fspath(given):
            return cls(source=given)
        if isinstance(given, (AsyncModel, Embedder)) or hasattr(given, "to_async"):
            return cls(source=given)
        raise OptionError(
            f"{given!r} is no model. Pass a name, a folder, a repository, a ModelConfig, an "
            "AsyncModel or an Embedder."
        )

    @property
    def is_loaded(self) -> bool:
        """Whether the source is a loaded model, which belongs to somebody else."""
        return isinstance(self.source, (AsyncModel, Embedder))

    @property
    def shown(self) -> str:
        """The source, for people."""
        return str(self.source) if isinstance(self.source, (str, Path)) else repr(self.source)
