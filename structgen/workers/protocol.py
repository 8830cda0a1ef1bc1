"""The messages between a worker process and its parent, and their encoding.

A frame is a length and a pickle. Both ends belong to one program and share a private pipe; nothing
else is ever read. What a message causes is decided elsewhere.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Literal, TypeAlias, final

from structgen.decoding import SearchOptions, SectionName, tool_syntax
from structgen.insight import TraceStep
from structgen.models.base import LoadOptions, Model, Passes
from structgen.sampling import TokenLogprob
from structgen.types import ToolSyntax
from structgen.vocabulary import Vocabulary

if TYPE_CHECKING:
    from structgen.constraint import Constraint
    from structgen.models import genai
    from structgen.models.embedding import Kind, Pooling, Settings

_LENGTH = struct.Struct("<Q")

# -- to the worker ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Load:
    """The first message: which model, and how. See `structgen.load_async`.

    Attributes:
        vocabulary_uid: of the vocabulary that the parent has of it already; None: of none.
        in_process: run it in a thread of this process instead, which saves a process and stands
            still during each pass of the model.
        max_silence: seconds that the process may say nothing while a call is under way, though it
            was asked; then it is killed. None: it may for ever.
    """

    name: str | Path
    options: LoadOptions
    warm_up: bool = True
    adapters: tuple[tuple[str, str], ...] = ()
    batch_size: int | None = None
    in_process: bool = False
    max_silence: float | None = 120.0
    vocabulary_uid: str | None = None


@dataclass(frozen=True, slots=True)
class EmbedderLoad:
    """In place of `Load`: an embedder, which takes nothing but an `EmbedderCall` or `Ping`.

    Attributes:
        name: of the embedder, for messages.
        place: its folder or ONNX file.
        options: of `structgen.models.embedding.load`.
        most_bytes: of memory that the process may take, beside what passes do; None: not bounded.
        max_silence: seconds that a call may take. None: any.
    """

    name: str
    place: Path
    options: Mapping[str, Any]
    most_bytes: int | None
    max_silence: float | None
    in_process: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class EmbedderCall:
    """A method of the graph or the tokenizer, to be called; `Ended` has what it returns, or
    raises."""

    id: int
    method: str
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]


@dataclass(slots=True)
class Call:
    """One output, to be made. Its number is set when it is sent.

    Attributes:
        id: what answers name it by.
        caller: calls of one caller wait in one line.
        type_key: which output type, by a hash of what `LoweredType` holds; None: free text.
        lowered: a pickled `LoweredType`; None: the worker has had it before.
        prompt: as the user gave it.
        search: without what cannot travel.
        index: which output for its prompt it is.
        wants_chunks: whether text is sent as it becomes certain.
        checks_sure: whether a value less sure than ``abstain_below`` is an error.
        checks: whether code of the parent's checks the output while it is written, with
            ``retries=``: of values of its JSON, or of the whole; None: it does not.
        owner: on whose behalf it is made; None: the program's.
    """

    id: int
    caller: int
    type_key: bytes
    lowered: bytes | None
    prompt: Any
    search: SearchOptions
    index: int
    wants_chunks: bool
    checks_sure: bool
    checks: Literal["json", "whole"] | None = None
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class LoweredType:
    """What outputs are made by: an output type without what makes values of texts.

    Attributes:
        grammar: the texts, `structgen.grammar.ir`; None: free text.
        name: of the type, for messages.
        offered: the tools that a prompt describes.
        options: of `structgen.compile`.
        think: of `structgen.Generator`.
        draft: of `structgen.Generator`.
        schema_hint: what a chat says of the type; empty: nothing.
    """

    grammar: Any
    name: str
    offered: Any
    options: Mapping[str, Any]
    think: Any
    draft: Any
    schema_hint: str = ""


Errand: TypeAlias = Callable[[Model], Passes[Any]]
"""Work of another stage, to be done where the model is: a module's function, or a partial of one.

It prepares in a thread of its own; what it returns yields before each pass. It is pickled, and its
result too.
"""


@dataclass(slots=True)
class ErrandCall:
    """An errand, to be done. Its number is set when it is sent.

    Attributes:
        id: what its answer names it by.
        caller: calls of one caller wait in one line.
        errand: a pickled `Errand`.
        timeout: seconds it may take from when it reaches the process, or None.
        owner: as for `Call`.
    """

    id: int
    caller: int
    errand: bytes
    timeout: float | None
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """End a call where it is.

    Attributes:
        id: which.
        is_awaited: whether somebody waits for its end.
    """

    id: int
    is_awaited: bool


@dataclass(frozen=True, slots=True)
class Adapter:
    """Load an adapter; without a path, unload it."""

    id: int
    name: str
    path: str | None


@dataclass(frozen=True, slots=True)
class Ping:
    """Say this back as soon as Python runs, which what hangs in the runtime keeps from running.

    The worker says it first, when it begins to answer.
    """


# -- to the parent ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Progress:
    """How fetching or converting the model goes."""

    stage: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Ready:
    """The model is loaded. ``vocabulary``: None where the parent has the same one."""

    name: str
    folder: str
    context_length: int
    search_defaults: Mapping[str, Any]
    vocabulary: Vocabulary | None
    tool_syntax: ToolSyntax

    @classmethod
    def of(cls, model: genai.TextModel, vocabulary_uid: str | None = None) -> Ready:
        """Return what there is to say of a model to one who has this vocabulary."""
        return cls(
            name=model.name,
            folder=str(model.folder),
            context_length=model.context_length,
            search_defaults=dict(model.search_defaults),
            vocabulary=None if model.vocabulary.uid == vocabulary_uid else model.vocabulary,
            tool_syntax=tool_syntax(model),
        )


@dataclass(frozen=True, slots=True)
class EmbedderReady:
    """The embedder is loaded: its graph's attributes, and its own."""

    takes_text: bool
    kind: Kind
    width: int | None
    settings: Settings
    pooling: Pooling | None
    max_length: int | None


@dataclass(frozen=True, slots=True)
class NotLoaded:
    """The model cannot be loaded."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Text:
    """Text of a call that has become certain: pieces, each as `Chunk` takes them."""

    id: int
    pieces: Sequence[tuple[str, SectionName, tuple[TraceStep, ...], tuple[TokenLogprob, ...]]]


@dataclass(frozen=True, slots=True)
class Scores:
    """Some of the log probabilities of a call that is about to end, or of the steps of its trace.

    In their order; in parts, because reading a message stops all threads of the parent:
    `MOST_SCORES` take 3 ms.
    """

    id: int
    logprobs: Sequence[TokenLogprob] = ()
    steps: Sequence[TraceStep] = ()


MOST_SCORES = 1500
"""Most probabilities in one message."""


@dataclass(frozen=True, slots=True)
class TypeWanted:
    """The output type of a call is not known here: send the call again with it."""

    id: int


@dataclass(slots=True)
class Ended:
    """A call has ended: with a result, an error, or both where the text was cut.

    The result of a `Call` is a `GenerationResult`, that of an `ErrandCall` the errand's, that of a
    `EmbedderCall` what the method returns. Whoever raises the error takes it out.
    """

    id: int
    result: Any
    error: BaseException | None


FORM_BYTES = 128 << 20
"""Most bytes, about, of compiled output types that are kept for a model, in each process."""


def form_weight(constraint: Constraint[Any] | None, size: int) -> int:
    """About how many bytes a kept output type takes that has ``size`` bytes as it was sent."""
    return 32 * size + (0 if constraint is None else constraint.weight)


# -- frames -----------------------------------------------------------------------------------


def packed(message: object) -> bytes:
    """Return a message as a frame; raises what pickling raises."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(data)) + data


@final
class Frames:
    """Messages read from a pipe.

    Attributes:
        size: bytes of the last one.
    """

    def __init__(self, pipe: BinaryIO) -> None:
        self._pipe = pipe
        self.size = 0

    def read(self) -> Any:
        """Return the next message; None where the other end is closed."""
        head = self._pipe.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            return None
        (self.size,) = _LENGTH.unpack(head)
        data = self._pipe.read(self.size)
        return pickle.loads(data) if len(data) == self.size else None
