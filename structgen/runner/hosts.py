"""Loaded models: processes that run a text model or an embedder.

`ModelConfig` is plain data, checked when it is made. A host opens and closes a model, picks the
process for a request, and keeps generators from request to request.

A model's files may come from anybody, and native code runs them: if it crashes, hangs or uses too
much memory, only a process of its own ends. Also, the runtime of text models holds the interpreter
lock while it runs: in this process, every pass would stop all other threads, including the event
loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import importlib.metadata
import os
import platform
import time
from collections import Counter, OrderedDict
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, fields
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar, final

from structgen import models
from structgen.constraint import WARNS
from structgen.decisions import AsyncDecider, SavedDecider
from structgen.errors import ModelError, OptionError, Overloaded, PromptError, RequestError
from structgen.media import Audio
from structgen.models import catalogue, embedding
from structgen.models.base import LoadOptions, check_written
from structgen.models.embedding import Embedder, Pause
from structgen.models.listening import Segment, Transcript
from structgen.options import OPTIONS, Flag, Whole, Word
from structgen.storage import KeptByBytes
from structgen.workers import (
    FORM_BYTES,
    MAX_MASK_WORK,
    STRANGER,
    AsyncModel,
    EmbedderProcess,
    WorkerGenerator,
    give_back,
    owner,
    transcribe_windows,
)

from .loops import Aside, Places
from .tools import check_seconds

Kind = Literal["text", "embedding"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig(LoadOptions):
    """The configuration of one model of a Runner.

    For a text model, all keywords of `structgen.load` are fields, too. Cache sizes are per process,
    and ``draft_model`` is a name.

    Attributes:
        source: a folder, a name of the catalogue or a Hugging Face repository. Or a loaded
            `structgen.AsyncModel` or `structgen.Embedder`, which the Runner does not close; or a
            `structgen.TextModel`, which a process loads again.
        kind: ``text`` or ``embedding``; None: as the model's files say.
        processes: how many processes run the model, each with its own copy of the weights. More
            than one helps if there are more cores than one process uses.
        in_process: run the model in a thread of this process. Each pass of a text model then blocks
            the process, and model files that crash the runtime end it.
        batch_size: as in `structgen.load_async`.
        adapters: LoRA adapters to load with it, by name.
        pooling: as in `structgen.load_embedder`.
        max_length: as in `structgen.load_embedder`.
        decider: a file written by `structgen.decisions.Decider.save`, or a folder of such files:
            how the model decides. `Runner.reload` reads it again.
        embedder: for a text model whose ``decider`` learned from vectors: the same embedder, by
            name or loaded.
        max_silence: seconds without a sign of life after which a process with running requests is
            killed because its model hangs. It must be longer than a pass of the model. None:
            never. A model that was passed in loaded has 120.
        max_seqs: most requests that run on it at once; None: the Runner's ``max_concurrency``.
        seed: the seed of requests that sample and have none, so that the same request gets the same
            answer.
        token_source: where the token for Hugging Face comes from: ``literal:TOKEN``,
            ``env:VARIABLE``, ``path:FILE``, ``cache`` (``HF_TOKEN``, or the login of
            ``hf auth login``) or ``none``; None: ``cache``.
        memory: bytes that the loaded model takes; None: measured, and until then the size of its
            files.
    """

    source: Any
    kind: Kind | None = None
    processes: int = 1
    in_process: bool = False
    batch_size: int | None = None
    adapters: Mapping[str, str | os.PathLike[str]] = field(default_factory=dict)
    pooling: str | None = None
    max_length: int | None = None
    decider: str | os.PathLike[str] | None = None
    embedder: Any = None
    max_silence: float | None = 120.0
    max_seqs: int | None = None
    seed: int | None = None
    token_source: str | None = field(default=None, repr=False)
    memory: int | None = None

    def __post_init__(self) -> None:
        LoadOptions.__post_init__(self)  # super() does not work in a dataclass with slots
        if self.kind is not None:
            Word(("text", "embedding"))("kind", self.kind)
        for name in (self.source, self.draft_model):
            place = Path(name) if isinstance(name, str) else None
            if place is not None and place.name == name and not place.exists():
                models.check(name)  # a folder may be made later, a name cannot
        is_named = isinstance(self.source, (str, os.PathLike))
        known = {*_OF_LOADED, "" if isinstance(self.source, Embedder) else "pooling"}
        known |= set() if self.is_loaded else {"batch_size", "adapters"}
        for one in () if is_named else fields(self):
            plain = {} if one.name == "adapters" else one.default
            if one.name not in known and getattr(self, one.name) != plain:
                raise OptionError(
                    f"{one.name}= requires a source given by name. If you load the model yourself, "
                    "pass such options there.",
                    option=one.name,
                )
        Flag()("in_process", self.in_process)
        if not isinstance(self.adapters, Mapping) or not all(
            isinstance(path, (str, os.PathLike)) for path in self.adapters.values()
        ):
            raise OptionError(f"adapters={self.adapters!r} does not map names to files.")
        Whole(1, 64)("processes", self.processes)
        check_seconds("max_silence", self.max_silence)
        if self.max_seqs is not None:
            Whole(1)("max_seqs", self.max_seqs)
        if self.seed is not None:
            OPTIONS["seed"].read("seed", self.seed)
        if self.in_process and (self.processes > 1 or self.max_silence not in (None, 120)):
            raise OptionError("in_process= requires processes=1, and no max_silence=.")
        if self.embedder is not None and self.decider is None:
            raise OptionError("embedder= requires decider=.")
        self.read_decider()

    def read_decider(self) -> SavedDecider | None:
        """Read the files of the decider.

        Raises:
            OptionError: a file is not a decider's, or cannot be read.
        """
        try:
            return None if self.decider is None else SavedDecider.read(self.decider)
        except OSError as error:
            raise OptionError(f"decider={os.fspath(error.filename)}: {error.strerror}.") from None

    @classmethod
    def of(cls, given: Any) -> ModelConfig:
        """Return the config for a value of ``models=``: a source, a config or a dict.

        Raises:
            OptionError: the value is something else.
        """
        if isinstance(given, cls):
            return given
        if isinstance(given, Mapping):
            unknown = [name for name in given if name not in cls.__dataclass_fields__]
            if unknown or "source" not in given:
                wrong = f"{unknown[0]!r} is not a field" if unknown else "source is missing"
                others = [name for name in cls.__dataclass_fields__ if name != "source"]
                raise OptionError(
                    f"The model's configuration {dict(given)!r} is wrong: {wrong}. Its fields are "
                    f"source, {', '.join(others)}."
                )
            return cls(**given)
        if isinstance(given, (str, os.PathLike)) and os.fspath(given):
            return cls(source=given)
        if isinstance(given, (AsyncModel, Embedder)) or hasattr(given, "to_async"):
            return cls(source=given)
        raise OptionError(
            f"{given!r} is not a model. Pass a name, a folder, a repository, a ModelConfig, an "
            "AsyncModel or an Embedder."
        )

    def options(self, *names: str) -> dict[str, Any]:
        """Return some of the fields by name."""
        return {name: getattr(self, name) for name in names}

    @property
    def is_loaded(self) -> bool:
        """Whether the source is a loaded model, which the Runner does not close."""
        return isinstance(self.source, (AsyncModel, Embedder))

    @property
    def shown(self) -> str:
        """The source as text."""
        return str(self.source) if isinstance(self.source, (str, Path)) else repr(self.source)


_VECTORS = ("pooling", "max_length", "providers", "session_options", "threads")
"""The options that an embedder is loaded with."""

_OF_LOADED = ("source", "kind", "decider", "embedder", "max_seqs", "seed", "memory")
"""The options for a model that was loaded before."""

_OF_KIND = {
    "an embedder": ["max_length"],
    "a text model": [
        *("processes", "batch_size", "adapters", "embedder", "seed"),
        *(one.name for one in fields(LoadOptions) if one.name not in _VECTORS),
    ],
}
"""Options that only one kind of model has."""

_KEPT_HOMES = 4096
"""Most beginnings of prompts for which the process that read them is remembered."""

_AHEAD = 2
"""How many more requests than another a process may have before it is passed over."""

_THREADS = 2
"""Threads for slow work beside the event loop, such as compiling, and reading or writing much."""

_MOST_WAITING = 1_024
"""Most jobs that wait for a thread or an embedder; the number of requests is limited earlier."""

FOREIGN: Mapping[str, int] = {"max_work": 400_000, "max_mask_work": MAX_MASK_WORK}
"""Limits for types with tools of an MCP server. 50 plain tools take 185,000 steps as XML."""

MAX_SCORES = 200_000
"""Most log probabilities in the answers to one foreign request: each takes about 2 kB."""

_MOST_FILES = 10_000
"""Files of a folder whose sizes are counted; a model has no more."""

_BARE_BYTES = 2 << 30
"""Bytes that an embedder's process may take beside the model: for Python and the stacks of many
cores."""

T = TypeVar("T")

_SOUNDS_AT_ONCE = 4
"""Most sounds transcribed at once, and as many more for new owners: each takes up to 58 MB."""

_EMBEDDINGS_AT_ONCE = 2
"""Most calls that an embedder runs at once: each uses several cores and much memory."""


@final
class TextHost:
    """A text model in its processes. Used in the Runner's event loop only.

    Attributes:
        models: the model in each process.
        pooling: the pooling of vectors that the configuration names.
        seed: the configuration's seed for requests without one.
        decider: the configuration's decider, if it names one.
        vectors: the embedder for the decider.
    """

    kind: Kind = "text"
    decider: SavedDecider | None = None
    vectors: EmbeddingHost | None = None

    def __init__(self, models: list[AsyncModel], config: ModelConfig, *, is_own: bool) -> None:
        self.models = models
        self.pooling = config.pooling
        self.seed = config.seed
        self._is_own = is_own
        self._is_here = any(model.pid == os.getpid() for model in models)
        self._generators: KeptByBytes[list[WorkerGenerator[Any]]] = KeptByBytes(
            FORM_BYTES, lambda made: sum(one.weight for one in made)
        )
        self._aside = Aside(_THREADS, _MOST_WAITING, "structgen-forms")
        self._sounds = Places(_SOUNDS_AT_ONCE, _MOST_WAITING, beyond=True)
        self._turn = 0
        self._busy = [0] * len(models)
        self._scores: Counter[str] = Counter()
        self._homes: OrderedDict[Hashable, int] = OrderedDict()

    @classmethod
    async def open(cls, config: ModelConfig) -> TextHost:
        """Load a model.

        Raises:
            StructgenError: it cannot be loaded.
        """
        source = config.source
        if isinstance(source, AsyncModel):
            return cls([source], config, is_own=False)
        made: list[AsyncModel] = []
        try:
            if hasattr(source, "to_async"):
                made.append(source.to_async(batch_size=config.batch_size))
            else:
                options = load_options(config)
                process = config.options("batch_size", "in_process", "max_silence")
                for _ in range(config.processes):
                    made.append(await AsyncModel.load(source, options, **process))
            for model in made:
                for name, path in config.adapters.items():
                    await model.load_adapter(path, name)
        except BaseException:
            for model in made:
                await asyncio.shield(model.aclose())
            raise
        return cls(made, config, is_own=True)

    @property
    def model(self) -> AsyncModel:
        """The model, in the process whose turn it is."""
        self._turn = (self._turn + 1) % len(self.models)
        return self.models[self._turn]

    def make_decider(self, **options: Any) -> AsyncDecider:
        """Make the decider.

        Args:
            options: the decider's options, if the configuration names no decider.

        Raises:
            OptionError: an option is wrong, or the configuration's decider was made for another
                model.
        """
        saved = {} if self.decider is None else self.decider.options
        embedder = None if self.vectors is None else self.vectors.embedder
        return AsyncDecider(self.model, embedder=embedder, warn=False, **saved, **options)

    async def transcribe_windows(
        self, audio: Audio, prompt: str, temperature: float
    ) -> AsyncGenerator[tuple[Sequence[Segment], Transcript], None]:
        """Run `structgen.workers.transcribe_windows` for a few sounds at a time, because they are
        large.

        Raises:
            RequestError: the model cannot transcribe, or not this sound.
        """
        async with self._sounds.of(owner()):
            found = transcribe_windows(self.model, audio, prompt=prompt, temperature=temperature)
            try:
                async with contextlib.aclosing(found) as windows:
                    async for window in windows:
                        yield window
            except PromptError as error:
                raise RequestError(f"file: {error}", param="file") from error
            except ModelError as error:
                if error.lacks is None:
                    raise
                raise RequestError(str(error), param="model") from error

    @property
    def context_length(self) -> int:
        """The most tokens of prompt and output together."""
        return self.models[0].context_length

    def check_tokens(self, tokens: Sequence[int]) -> None:
        """Check that token ids are the model's.

        Raises:
            OptionError: an id is not the model's.
        """
        size = self.models[0].vocabulary.size
        for token in tokens:
            if type(token) is not int or not 0 <= token < size:
                raise OptionError(
                    f"{token!r} is not a token id. Token ids range from 0 to {size - 1:,}."
                )

    def text_of(self, tokens: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """Return the text of tokens; special ones are written by name or left out.

        Raises:
            OptionError: a number is not a token id.
        """
        self.check_tokens(tokens)
        vocabulary = self.models[0].vocabulary
        names = {} if skip_special_tokens else self._names
        parts = [vocabulary.tokens[token] or names.get(token, b"") for token in tokens]
        check_written(map(len, parts))
        return b"".join(parts).decode(errors="replace")

    @functools.cached_property
    def _names(self) -> dict[int, bytes]:
        named = self.models[0].vocabulary.named_tokens
        return {token: name.encode() for name, token in named.items()}

    @functools.cached_property
    def fingerprint(self) -> str:
        """A text that changes when the same seed may give another output: with the model, packages
        or machine."""
        folder, files = self.models[0].folder, list[tuple[str, int]]()
        with contextlib.suppress(OSError):  # it was deleted after the model was loaded
            found = filter(Path.is_file, folder.iterdir())
            files = sorted((one.name, one.stat().st_size) for one in found)
        versions = [installed("structgen"), installed("onnxruntime-genai")]
        parts = repr((folder.name, files, versions, platform.machine()))
        return f"fp_{hashlib.sha256(parts.encode()).hexdigest()[:10]}"

    @property
    def search_defaults(self) -> Mapping[str, Any]:
        """The model's own search settings."""
        return self.models[0].search_defaults

    @property
    def memory(self) -> int:
        """Bytes that the processes hold, or the size of the model's files if the system does not
        tell."""
        held = [resident(model.pid) if model.pid != os.getpid() else 0 for model in self.models]
        return sum(
            one or _size_of(model.folder) for one, model in zip(held, self.models, strict=True)
        )

    def place_for(self, beginning: Hashable) -> int:
        """Return the process for a prompt: the one that has read its beginning, unless it has much
        more to do than another."""
        if len(self.models) == 1:
            return 0
        self._turn = (self._turn + 1) % len(self.models)
        least = min(self._busy)
        place = self._homes.get(beginning)
        if place is None or self._busy[place] >= least + _AHEAD:
            order = [(self._turn + i) % len(self.models) for i in range(len(self.models))]
            place = next(i for i in order if self._busy[i] == least)
            self._homes.setdefault(beginning, place)
            if len(self._homes) > _KEPT_HOMES:
                self._homes.popitem(last=False)
        self._homes.move_to_end(beginning)
        return place

    @contextlib.contextmanager
    def work_at(self, place: int, scores: int) -> Iterator[None]:
        """Count a request that runs in a process, and the log probabilities that its answer may
        have.

        Raises:
            Overloaded: this owner's running answers may have too many log probabilities.
        """
        stranger = STRANGER.get()
        if stranger is None:
            scores = 0
        who = "" if stranger is None else stranger.owner
        if scores and self._scores[who] + scores > 2 * MAX_SCORES:
            raise Overloaded(
                f"Your running answers may return {self._scores[who]:,} log probabilities, and "
                f"this request another {scores:,}. The limit is {2 * MAX_SCORES:,}. Retry when "
                "some answers have finished, or lower top_logprobs, n or max_tokens.",
                retry_after=1.0,
            )
        self._busy[place] += 1
        self._scores[who] += scores
        try:
            yield
        finally:
            self._busy[place] -= 1
            self._scores[who] -= scores
            if not self._scores[who]:
                del self._scores[who]

    async def generator(
        self,
        key: Hashable,
        output_type: Any,
        options: Mapping[str, Any],
        place: int = 0,
        *,
        foreign: bool = False,
    ) -> WorkerGenerator[Any]:
        """Return a generator of outputs of a type.

        Compiling runs in a thread, so that a large type delays nobody, and within limits if the
        request is foreign or ``foreign``.

        Args:
            key: equal for equal types; None: not known, so the generator is made each time.
            output_type: the type of the outputs.
            options: options of `structgen.Generator`.
            place: the number of the process.
            foreign: whether a part of the type is foreign and so has limits.

        Raises:
            OutputTypeError: the type cannot be enforced.
            OptionError: there is no room to think, or a schema hint is asked for and the type has
                no schema.
        """
        stranger = STRANGER.get()
        limits = (FOREIGN if foreign else {}) if stranger is None else stranger.compile_options
        limits = {} if output_type is None else limits
        whole = None if key is None else (key, *options.items(), *limits.items())
        known = None if whole is None else self._generators.get(whole)
        if known is None:
            known = await self.aside(lambda: self._made(output_type, options, limits))
            if whole is not None:
                self._generators.add(whole, known)
        return known[place]

    async def aside(self, work: Callable[[], T]) -> T:
        """Do some work in one of two threads, which owners share fairly."""
        return await self._aside.do(owner(), work)

    def _made(
        self, output_type: Any, options: Mapping[str, Any], limits: Mapping[str, Any]
    ) -> list[WorkerGenerator[Any]]:
        before = WARNS.set(STRANGER.get() is None)  # or the form is foreign
        try:
            first = self.models[0].make_generator(output_type, **options, **limits)
            # Errors of a type quote the user's input.
            of = first.constraint
            if "with_schema_hint" in options:
                of, options = output_type, {**options, **limits}
            return [first, *(m.make_generator(of, **options) for m in self.models[1:])]
        finally:
            WARNS.reset(before)

    async def with_adapter(self, name: str, path: str | None, before: str | None) -> None:
        """Load an adapter into all processes, or unload it if there is no path. On an error no
        process has changed.

        Args:
            name: the adapter's name.
            path: the adapter's file.
            before: the file it was loaded from, to restore it if unloading fails.

        Raises:
            ModelError: it cannot be loaded or unloaded.
        """
        done: list[AsyncModel] = []
        try:
            for model in self.models:
                if path is None:
                    await model.unload_adapter(name)
                else:
                    await model.load_adapter(path, name)
                done.append(model)
        except BaseException:
            for model in done:
                if path is not None:
                    await asyncio.shield(model.unload_adapter(name))
                elif before is not None:
                    await asyncio.shield(model.load_adapter(before, name))
            raise

    async def close(self) -> None:
        """End the processes."""
        self._generators.clear()
        if self.vectors is not None:
            await self.vectors.close()
        if self._is_own:
            for model in self.models:
                await model.aclose()
            if self._is_here:
                self.models.clear()
                await asyncio.to_thread(give_back, collects=True)


@final
class EmbeddingHost:
    """An embedder in a process. Used in the Runner's event loop only.

    Attributes:
        embedder: the embedder.
        decider: as in `TextHost`.
    """

    kind: Kind = "embedding"
    decider: SavedDecider | None = None

    def __init__(self, embedder: Embedder, process: EmbedderProcess | None = None) -> None:
        """Take over an embedder and the process that runs it."""
        self.embedder = embedder
        self._process = process
        self._places = Places(_EMBEDDINGS_AT_ONCE, _MOST_WAITING, clock=time.perf_counter)
        self._aside = Aside(_THREADS, _MOST_WAITING, "structgen-texts")

    @classmethod
    async def open(cls, config: ModelConfig) -> EmbeddingHost:
        """Load an embedder.

        Raises:
            StructgenError: it cannot be loaded.
        """
        if isinstance(config.source, Embedder):
            return cls(config.source)
        options = config.options(*_VECTORS)
        place, most = await asyncio.to_thread(_place_and_bound, config)
        if config.in_process:
            return cls(await asyncio.to_thread(embedding.load, place, **options))
        process = EmbedderProcess(place, options, most, config.max_silence)
        try:
            return cls(await asyncio.to_thread(process.embedder), process)
        except BaseException:  # also if the caller gives up on a model that hangs
            await asyncio.shield(asyncio.to_thread(process.close))
            raise

    def make_decider(self, **options: Any) -> AsyncDecider:
        """As `TextHost.make_decider`."""
        saved = {} if self.decider is None else self.decider.options
        return AsyncDecider(self.embedder, warn=False, **saved, **options)

    async def turn(self, work: Callable[[Pause], Awaitable[T]]) -> T:
        """Do some work in one of the places for calls, which owners share fairly. The work is
        passed a function that yields the place to others between batches."""
        return await self._places.hold(owner(), work)

    async def aside(self, work: Callable[[], T]) -> T:
        """As `TextHost.aside`."""
        return await self._aside.do(owner(), work)

    @property
    def memory(self) -> int:
        """Bytes that the process holds, or the size of the model's files if the system does not
        tell."""
        held = 0 if self._process is None else resident(self._process.pid)
        return held or _size_of(self.embedder.folder)

    async def close(self) -> None:
        """End the process, or free the memory if there is none."""
        del self.embedder
        if self._process is not None:
            await asyncio.to_thread(self._process.close)
        await asyncio.to_thread(give_back, collects=True)


Host = TextHost | EmbeddingHost


async def opened(config: ModelConfig) -> Host:
    """Load a model.

    Raises:
        StructgenError: it cannot be loaded.
    """
    if config.token_source is not None:
        await asyncio.to_thread(_fetch, config)
    kind = await asyncio.to_thread(kind_of, config)
    saved = await asyncio.to_thread(config.read_decider)
    plain = ModelConfig(source=config.source)
    own, other = "a text model", "an embedder"
    if kind == "embedding":
        own, other = other, own
    for name in _OF_KIND[other]:
        if getattr(config, name) != getattr(plain, name):
            raise OptionError(f"{name}= requires {other}, but the model is {own}.", option=name)
    if kind == "embedding":
        host: Host = await EmbeddingHost.open(config)
    else:
        host = await TextHost.open(config)
    if saved is None:
        return host
    try:
        if isinstance(host, TextHost) and config.embedder is not None:
            host.vectors = await EmbeddingHost.open(ModelConfig(source=config.embedder))
        host.decider = saved
        host.make_decider()
    except BaseException:
        await asyncio.shield(host.close())
        raise
    return host


def kind_of(config: ModelConfig) -> Kind:
    """Return the kind of a model by its files, which are downloaded if necessary.

    Raises:
        StructgenError: the model does not exist, or cannot be downloaded.
    """
    kind = known_kind(config)
    if kind is not None:
        return kind
    folder = _path(config, config.source)
    return "text" if models.is_language_model(folder) else "embedding"


def by_id(given: Iterable[str]) -> dict[str, str]:
    """Return models by id: each is ``ID=MODEL``, or a model whose id is its name.

    The id of a folder or file is the last part of its path, because a server shows ids to
    everybody.

    Raises:
        OptionError: an item is neither, or two have the same id.
    """
    found: dict[str, str] = {}
    for one in given:
        id_, equals, source = one.strip().partition("=")
        if not id_ or (equals and not source):
            raise OptionError(f"{one!r} is neither a model nor ID=MODEL.")
        source = source or id_
        place = os.path.abspath(os.path.expanduser(source))
        if not equals and os.path.exists(place):
            id_ = os.path.basename(place) or id_
        if id_ in found:
            raise OptionError(
                f"Two models have the id {id_}. Give one of them another id: ID=MODEL."
            )
        found[id_] = source
    return found


def known_kind(config: ModelConfig) -> Kind | None:
    """Return the kind of a model, if it is known without looking into its folder."""
    source = config.source
    if config.kind is not None or isinstance(source, Embedder):
        return config.kind or "embedding"
    if not isinstance(source, (str, os.PathLike)):
        return "text"
    if os.fspath(source) in catalogue.ENTRIES and not Path(source).exists():
        entry = catalogue.ENTRIES[os.fspath(source)]
        return "text" if entry.task == "generate" else "embedding"
    return "embedding" if Path(source).expanduser().is_file() else None


def size_of(config: ModelConfig) -> int:
    """Return the size of a model's files, about what it will take; 0 if they are not here."""
    if config.memory is not None:
        return config.memory
    source = config.source
    if isinstance(source, (AsyncModel, Embedder)):
        return 0  # it is loaded already and belongs to the caller
    if not isinstance(source, (str, os.PathLike)):
        return _size_of(source.folder)
    sources = [source] if config.draft_model is None else [source, config.draft_model]
    return config.processes * sum(_size_of(_path(config, one)) for one in sources)


def load_options(config: ModelConfig) -> LoadOptions:
    """Return the options for loading a text model."""
    return LoadOptions(**config.options(*(one.name for one in fields(LoadOptions))))


def _path(config: ModelConfig, source: Any, **task: Any) -> Path:
    """Return the folder of a model, downloaded with the configuration's token if necessary."""
    with models.token_from(config.token_source):
        return models.path(source, **task)


def _fetch(config: ModelConfig) -> None:
    """Download repositories with the configuration's token, which a model's process never gets."""
    for source in (config.source, config.draft_model):
        if isinstance(source, str) and source not in catalogue.ENTRIES:
            _path(config, source)


def _size_of(folder: Path) -> int:
    if folder.is_file():
        return folder.stat().st_size
    found = islice(folder.rglob("*"), _MOST_FILES)
    return sum(file.stat().st_size for file in found if file.is_file())


def resident(pid: int | None) -> int:
    """Return the bytes of memory that a process uses; 0: not known."""
    if pid is None:
        return 0
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


def installed(package: str) -> str:
    """Return a package's version; "" if it is not installed under this name."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _place_and_bound(config: ModelConfig) -> tuple[Path, int | None]:
    """Return an embedder's path, and the most bytes its process may take; None: not known."""
    place = Path(config.source).expanduser()
    if not place.exists():
        place = _path(config, config.source, task="embed")
    is_here = [*(config.providers or ())] in ([], ["cpu"])  # GPUs reserve many addresses
    is_here &= "provider_options" not in (config.session_options or {})
    # Weights, the runtime's copy of them, and Python.
    size = _size_of(place if place.is_dir() else place.parent)
    return place, 4 * size + _BARE_BYTES if is_here else None
