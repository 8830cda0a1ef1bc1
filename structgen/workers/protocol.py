"""The messages between a worker process and its parent, and their encoding.

A frame is a length and a pickle. Both ends belong to one program and share a private pipe; nothing
else is ever read. Other modules act on messages.
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
    """The first message: the model, and its options. See `structgen.load_async`.

    Attributes:
        vocabulary_uid: the uid of its vocabulary in the parent; None if the parent has none.
        in_process: run it in a thread of this process instead, which saves a process and blocks
            during each pass of the model.
        max_silence: seconds without an answer, while a call is running, after which the process is
            killed. None: no limit.
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
    """Instead of `Load`: an embedder, which accepts only `EmbedderCall` and `Ping`.

    Attributes:
        name: the embedder's name, for messages.
        place: its folder or ONNX file.
        options: the options of `structgen.models.embedding.load`.
        most_bytes: the most memory of the process, except that of passes; None: no limit.
        max_silence: the most seconds of a call. None: no limit.
    """

    name: str
    place: Path
    options: Mapping[str, Any]
    most_bytes: int | None
    max_silence: float | None
    in_process: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class EmbedderCall:
    """A call of a method of the graph or the tokenizer; `Ended` has its result or error."""

    id: int
    method: str
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]


@dataclass(slots=True)
class Call:
    """A request for one output. Its number is set when it is sent.

    Attributes:
        id: its number in answers.
        caller: the calls of one caller wait in one queue.
        prompt_id: the number of its prompt, the same for all outputs of it.
        type_key: a hash of the contents of its `LoweredType`; None: free text.
        lowered: a pickled `LoweredType`; None: the worker has it.
        prompt: the user's prompt.
        search: the options that can be sent.
        index: the index of the output for its prompt.
        wants_chunks: whether to send text when it becomes final.
        checks_sure: whether a value below ``abstain_below`` is an error.
        checks: whether code in the parent checks the output while it is written, with ``retries=``:
            values of its JSON, or the whole output; None: no checks.
        owner: the user on whose behalf it is made; None: the program itself.
    """

    id: int
    caller: int
    prompt_id: int
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
    """An output type without its parser.

    Attributes:
        grammar: the texts, `structgen.grammar.ir`; None: free text.
        name: the type's name, for messages.
        offered: the tools that a prompt describes.
        options: the options of `structgen.compile`.
        think: the option of `structgen.Generator`.
        draft: the option of `structgen.Generator`.
        schema_hint: the schema that a chat includes; empty: none.
    """

    grammar: Any
    name: str
    offered: Any
    options: Mapping[str, Any]
    think: Any
    draft: Any
    schema_hint: str = ""


Errand: TypeAlias = Callable[[Model], Passes[Any]]
"""Work of another stage that runs in the model's process: an importable function, or a partial of
one.

It runs in a separate thread and returns a generator, which yields before each pass. It and its
result are pickled.
"""


@dataclass(slots=True)
class ErrandCall:
    """A request for an errand. Its number is set when it is sent.

    Attributes:
        id: its number in answers.
        caller: the calls of one caller wait in one queue.
        errand: a pickled `Errand`.
        timeout: the most seconds after it reaches the process, or None.
        owner: as for `Call`.
    """

    id: int
    caller: int
    errand: bytes
    timeout: float | None
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """End the call of that number where it is."""

    id: int


@dataclass(frozen=True, slots=True)
class Ping:
    """Send this back as soon as Python runs; a hanging runtime prevents that.

    The worker sends the first one, when it begins to answer.
    """


# -- to the parent ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of fetching or converting the model."""

    stage: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Ready:
    """The model is loaded. ``vocabulary``: None if the parent has the same one."""

    name: str
    folder: str
    context_length: int
    search_defaults: Mapping[str, Any]
    vocabulary: Vocabulary | None
    tool_syntax: ToolSyntax

    @classmethod
    def of(cls, model: genai.TextModel, vocabulary_uid: str | None = None) -> Ready:
        """Return the message about a model for a parent with this vocabulary."""
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
    """Text of a call that has become final: pieces, each the arguments of a `Chunk`."""

    id: int
    pieces: Sequence[tuple[str, SectionName, tuple[TraceStep, ...], tuple[TokenLogprob, ...]]]


@dataclass(frozen=True, slots=True)
class Scores:
    """Some of the log probabilities, or of the steps of the trace, of a call that is about to end.

    In order, and in parts, because reading a message stops all threads of the parent: `MOST_SCORES`
    take 3 ms.
    """

    id: int
    logprobs: Sequence[TokenLogprob] = ()
    steps: Sequence[TraceStep] = ()


MOST_SCORES = 1500
"""The most probabilities in one message."""


@dataclass(frozen=True, slots=True)
class TypeWanted:
    """The worker does not have the output type of a call: send the call again with it."""

    id: int


@dataclass(slots=True)
class Ended:
    """A call has ended: with a result, an error, or both if the text was cut.

    The result of a `Call` is a `GenerationResult`, that of an `ErrandCall` the errand's, that of an
    `EmbedderCall` the method's. The code that raises the error removes it from here.
    """

    id: int
    result: Any
    error: BaseException | None


FORM_BYTES = 128 << 20
"""The rough maximum size in bytes of cached output types for a model, in each process."""


def form_weight(constraint: Constraint[Any] | None, size: int) -> int:
    """Return the rough size in bytes of a cached output type whose message has ``size`` bytes."""
    return 32 * size + (0 if constraint is None else constraint.weight)


# -- frames -----------------------------------------------------------------------------------


def packed(message: object) -> bytes:
    """Return a message as a frame; raises the errors of pickling."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(data)) + data


@final
class Frames:
    """Messages read from a pipe.

    Attributes:
        size: the size of the last one in bytes.
    """

    def __init__(self, pipe: BinaryIO) -> None:
        self._pipe = pipe
        self.size = 0

    def read(self) -> Any:
        """Return the next message; None if the other end is closed."""
        head = self._pipe.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            return None
        (self.size,) = _LENGTH.unpack(head)
        data = self._pipe.read(self.size)
        return pickle.loads(data) if len(data) == self.size else None
