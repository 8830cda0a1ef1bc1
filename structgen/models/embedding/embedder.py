"""`Embedder` makes vectors and rankings of texts; `load` opens a folder or an ONNX file.

The order of the work: checks, prompts, tokens, batches, vectors, and back into the order of the
texts. While one window of texts runs, a thread tokenizes the next. Texts of similar length run
together within a token budget, so that there is little padding. `session` runs graphs, `folder`
reads folders.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, TypeVar, cast, final, overload

import numpy as np
import numpy.typing as npt

from structgen.errors import (
    ModelError,
    ModelNotFound,
    OptionError,
    PromptError,
    TruncationWarning,
    counted,
    did_you_mean,
)
from structgen.models import cache, damage
from structgen.models.base import Passes, run_passes
from structgen.models.loading import remedied, remedy
from structgen.models.progress import Progress, late
from structgen.options import Flag, Whole, Word

from .folder import NUMBERS, Settings, read
from .pooling import POOLINGS, FloatArray, Pooling, check_pooling, finish, to_base64
from .session import AnyGraph, Graph
from .tokens import AnyTokenizer, TextTokenizer, tokenized

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True, slots=True)
class EmbeddingResult:
    """Vectors, with the numbers of tokens.

    Attributes:
        vectors: float32 ``[n, dimensions]``, in the order of the texts.
        n_tokens: int64 ``[n]``: number of tokens of each text that were run, with special tokens
            and prompt; None: the graph reads text itself.
        n_cut: int64 ``[n]``: number of tokens of each text that were cut off because it was too
            long; None: as for ``n_tokens``.
    """

    vectors: npt.NDArray[np.float32]
    n_tokens: npt.NDArray[np.int64] | None
    n_cut: npt.NDArray[np.int64] | None


@dataclass(frozen=True, slots=True)
class Ranked:
    """A document's place in a ranking.

    Attributes:
        index: the number of the document, from 0.
        score: the model's score of the document for the query; larger is better. The scale depends
            on the model: usually a logit, below or above 0.
    """

    index: int
    score: float


Pause: TypeAlias = "Callable[[], Awaitable[None]]"
"""Awaited between batches, so that others can run."""

OnTruncation = Literal["warn", "error", "ignore"]
Encoding = Literal["float", "base64"]


class EmbedOptions(TypedDict, total=False):
    """The options of `Embedder.embed` and `Embedder.result` by name."""

    prompt: str | None
    prompt_name: str | None
    dimensions: int | None
    normalize: bool
    on_truncation: OnTruncation
    batch_tokens: int
    progress: Progress | None


class RankOptions(TypedDict, total=False):
    """The options of `Embedder.rerank` by name."""

    top_k: int | None
    on_truncation: OnTruncation
    batch_tokens: int
    progress: Progress | None


def check_encoding(encoding: str) -> None:
    """Raise OptionError unless it is a known encoding of vectors."""
    Word(("float", "base64"))("encoding", encoding)


def check_options(on_truncation: str, batch_tokens: int) -> None:
    """Raise OptionError if an option is out of range."""
    Word(("warn", "error", "ignore"))("on_truncation", on_truncation)
    Whole(1)("batch_tokens", batch_tokens)


def checked_texts(texts: Any) -> Iterator[str]:
    """Yield the texts, each a str; a single text becomes a list of one.

    Raises:
        OptionError: a text is not a str, raised when it is reached.
    """
    if isinstance(texts, str):
        yield texts
        return
    if not isinstance(texts, Iterable) or isinstance(texts, (bytes, Mapping)):
        raise OptionError(f"{type(texts).__name__} is neither a str nor a list of str.")
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise OptionError(f"Text {i} must be a str, got {type(text).__name__}.")
        yield text


_NAMES = {"query": ("query",), "document": ("document", "passage", "corpus")}
"""Models' names of prompts for each type of input, in the order in which they are tried."""


def prompt_name_for(type_of_input: str, prompts: Mapping[str, str]) -> str | None:
    """Return the name of a model's prompt for ``"query"`` or ``"document"``, or None."""
    return next((name for name in _NAMES[type_of_input] if name in prompts), None)


def _check_names(options: Mapping[str, Any], typed: type = EmbedOptions) -> None:
    """Raise OptionError for an unknown option of a call."""
    known = typed.__annotations__
    for name in options:
        if name not in known:
            near = did_you_mean(name, known)
            raise OptionError(
                f"{name}= is unknown.{near} Known options: {', '.join(known)}.", option=name
            )


Text = TypeVar("Text", str, tuple[str, str])
T = TypeVar("T")

RUN_TOKENS = 32
"""The fixed cost of a run of the graph, in tokens: this much padding is worth one run less."""

_WINDOW_TEXTS = 1024
_WINDOW_CHARACTERS = 1 << 18  # each may be a token, which takes 250 bytes for a while


def windows(texts: Iterable[Text]) -> Iterator[list[Text]]:
    """Divide texts, or pairs of texts, into windows that are tokenized and sorted together.

    Large enough that texts of similar length meet, small enough that the next window can be
    tokenized while this one runs, and that little memory is used.
    """
    window: list[Text] = []
    size = 0
    for text in texts:
        window.append(text)
        size += len(text) if isinstance(text, str) else sum(map(len, text))
        if len(window) >= _WINDOW_TEXTS or size >= _WINDOW_CHARACTERS:
            yield window
            window, size = [], 0
    if window:
        yield window


def plan(lengths: Sequence[int], budget: int, most_rows: Callable[[int], int]) -> list[list[int]]:
    """Divide texts into batches with the lowest cost of padding and runs.

    Args:
        lengths: tokens of each text.
        budget: most tokens of a batch with padding. A longer text runs alone.
        most_rows: returns the most texts of a batch, from the tokens of the longest.

    Returns:
        The indices of each batch, the longest texts first, so that the largest use of memory comes
        first.

    Cost: about 10 µs per text.
    """
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    # least[n]: the least cost of the first n texts; began[n]: where their last batch begins.
    least = np.full(len(order) + 1, np.inf)
    began = np.zeros(len(order) + 1, np.int64)
    least[0] = 0
    for first, i in enumerate(order):
        longest = max(lengths[i], 1)
        most = max(min(budget // longest, most_rows(longest), len(order) - first), 1)
        costs = least[first] + RUN_TOKENS + longest * np.arange(1, most + 1)
        reached = slice(first + 1, first + most + 1)
        better = costs < least[reached]
        least[reached][better] = costs[better]
        began[reached][better] = first
    batches: list[list[int]] = []
    end = len(order)
    while end:
        first = int(began[end])
        batches.append(order[first:end])
        end = first
    return batches[::-1]


BATCH_TOKENS = 2048
"""The default of the most tokens in a batch."""

_CHARACTERS_A_TOKEN = 4  # roughly, for graphs that make tokens themselves

# Most tokens of a text by default, beside what `Settings.longest` says of memory.
_UNSTATED = 2_048  # if a folder names no length
_LONGEST = 8_192  # whatever a folder names

_KINDS = 5  # kinds of numbers in a pass, the runtime's free memory included


@final
class Embedder:
    """A model that makes vectors of texts or scores of pairs. Safe to share by threads.

    Make one with `structgen.load_embedder`.

    Attributes:
        name: its name in messages, that of the folder.
        folder: where it was loaded from.
        dimensions: length of a vector; None for a cross-encoder, or if the graph does not tell.
        max_length: most tokens of a text; None: the graph reads text itself.
        pooling: how the vectors of tokens become one; None: the graph does it.
        prompts: the model's prompts by kind of text.
    """

    def __init__(
        self,
        graph: AnyGraph,
        tokenizer: AnyTokenizer | None,
        settings: Settings,
        pooling: Pooling | None,
        max_length: int | None,
    ) -> None:
        self._graph = graph
        self._tokenizer = tokenizer
        self._settings = settings
        self.name = settings.folder.name
        self.folder = settings.folder
        self.dimensions = graph.width
        self.max_length = max_length
        self.pooling = pooling
        self.prompts: Mapping[str, str] = MappingProxyType(settings.prompts)

    @property
    def _more(self) -> str:
        """The hint for a text that is too long, if the model can read longer ones."""
        stated = self._settings.max_length
        is_ours = stated is None or (self.max_length or stated) < stated
        return " (load_embedder(max_length=) can raise this)" if is_ours else ""

    def __repr__(self) -> str:
        what = "cross-encoder" if self._graph.kind == "score" else f"dimensions={self.dimensions}"
        return f"Embedder({self.name!r}, {what}, max_length={self.max_length})"

    @overload
    def embed(
        self,
        texts: str | Iterable[str],
        *,
        encoding: Literal["float"] = "float",
        **options: Unpack[EmbedOptions],
    ) -> FloatArray: ...

    @overload
    def embed(
        self,
        texts: str | Iterable[str],
        *,
        encoding: Literal["base64"],
        **options: Unpack[EmbedOptions],
    ) -> list[str]: ...

    def embed(
        self, texts: str | Iterable[str], *, encoding: Encoding = "float", **options: Any
    ) -> FloatArray | list[str]:
        """Return the vectors of texts, float32 ``[n, dimensions]``, in the order of the texts.

        Args:
            texts: one text (``n`` = 1) or several.
            prompt: a text to put before each text.
            prompt_name: the name of a prompt of `prompts` to put before each text, such as
                ``"query"``. By default, the model's prompt for all texts, if it has one.
            dimensions: number of leading values of each vector to keep; the vector is normalized
                again. For models trained for that.
            normalize: scale each vector to length 1, so that a dot product is a cosine.
            on_truncation: if texts are too long for the model: ``"warn"`` cuts them with a warning,
                ``"ignore"`` without one, ``"error"`` raises an error.
            encoding: ``"base64"`` returns a list of the vectors' little-endian float32 values in
                base64, as in OpenAI's API.
            batch_tokens: most tokens of a batch with padding. More take more memory; on a CPU they
                are hardly faster.
            progress: called with the number of texts done; by default a bar on a terminal's
                standard error if the call takes longer than a second.

        Raises:
            OptionError: an option is unknown or out of range, or a text is not a str.
            PromptError: a text is too long, with ``on_truncation="error"``.
            ModelError: the model is a cross-encoder, or the runtime fails.

        Cost: 6 ms of CPU for a sentence of 14 tokens with the default embedder.
        """
        check_encoding(encoding)
        _check_names(options)
        vectors = run_passes(self._result(texts, **options)).vectors
        return vectors if encoding == "float" else to_base64(vectors)

    async def aembed(
        self, texts: str | Iterable[str], *, encoding: Encoding = "float", **options: Any
    ) -> FloatArray | list[str]:
        """Run `embed` in a thread, so that the event loop keeps running. Same arguments and result.

        Cancelling the task ends the work after the current batch.
        """
        check_encoding(encoding)
        vectors = (await self.aresult(texts, **options)).vectors
        return vectors if encoding == "float" else to_base64(vectors)

    async def aresult(
        self, texts: str | Iterable[str], *, pause: Pause | None = None, **options: Any
    ) -> EmbeddingResult:
        """Run `result` in a thread, like `aembed`. ``pause`` is awaited between batches."""
        _check_names(options)
        return await in_thread(self._result(texts, **options), pause)

    def tokenize(self, texts: Iterable[str]) -> list[list[int]]:
        """Return the token ids of each text, special tokens included, cut to `max_length`.

        Raises:
            ModelError: the graph reads text itself, so its tokens are unknown.
        """
        made = map(self._known_tokenizer().encode, windows(checked_texts(texts)))
        return [one.ids.tolist() for window in made for one in window]

    def tokenize_whole(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Return all token ids of a text, even beyond `max_length`.

        Raises:
            ModelError: as for `tokenize`.
        """
        return self._known_tokenizer().whole(text, add_special_tokens=add_special_tokens)

    def detokenize(self, token_ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of tokens, as far as the tokenizer can restore it.

        Raises:
            ModelError: as for `tokenize`.
        """
        return self._known_tokenizer().decode(token_ids, skip_special_tokens=skip_special_tokens)

    def _known_tokenizer(self) -> AnyTokenizer:
        if self._tokenizer is None:
            raise ModelError(
                f"{self.name} tokenizes the text itself, so its tokens are not available."
            )
        return self._tokenizer

    @property
    def is_cross_encoder(self) -> bool:
        """Whether it scores pairs of texts, for `rerank`, instead of returning vectors."""
        return self._graph.kind == "score"

    def result(
        self, texts: str | Iterable[str], **options: Unpack[EmbedOptions]
    ) -> EmbeddingResult:
        """Return the vectors of `embed`, with the numbers of tokens of each text that were run and
        cut."""
        _check_names(options)
        return run_passes(self._result(texts, **options))

    def _result(
        self,
        texts: str | Iterable[str],
        *,
        prompt: str | None = None,
        prompt_name: str | None = None,
        dimensions: int | None = None,
        normalize: bool = True,
        on_truncation: OnTruncation = "warn",
        batch_tokens: int = BATCH_TOKENS,
        progress: Progress | None = None,
        name: str = "Text {}",
    ) -> Passes[EmbeddingResult]:
        if self._graph.kind == "score":
            raise ModelError(
                f"{self.name} is a cross-encoder and cannot make embeddings. Call rerank(query, "
                "documents)."
            )
        check_options(on_truncation, batch_tokens)
        Flag()("normalize", normalize)
        before = self._before(prompt, prompt_name)
        if self.dimensions is not None:
            finish(np.zeros((0, self.dimensions), np.float32), dimensions, normalize)
        written = str.lower if self._settings.is_lower_case else str
        skipped = 0
        if before and not self._settings.pools_prompt and self._tokenizer is not None:
            skipped = self._tokenizer.n_prompt_tokens(written(before))
        total = None
        if isinstance(texts, Sequence):
            total = 1 if isinstance(texts, str) else len(texts)
        with late(progress) as report:
            done = yield from self._vectors(
                (written(before + text) for text in checked_texts(texts)),
                batch_tokens,
                skipped,
                on_truncation,
                lambda n: report(f"Embedding with {self.name}", n, n if total is None else total),
                name,
            )
        vectors, n_tokens, n_cut = done
        if self._tokenizer is None:
            return EmbeddingResult(finish(vectors, dimensions, normalize), None, None)
        cut = n_cut[n_cut > 0]
        if len(cut) and on_truncation == "warn":
            warnings.warn(
                f"{counted(len(cut), 'text')} of {len(n_cut):,} had more than the "
                f"{self.max_length:,} tokens that {self.name} accepts{self._more}. "
                f"{counted(int(cut.sum()), 'token')} were cut off in total. Split long texts, or "
                "pass on_truncation='ignore'.",
                TruncationWarning,
                stacklevel=4,
            )
        return EmbeddingResult(finish(vectors, dimensions, normalize), n_tokens, n_cut)

    def _before(self, prompt: str | None, name: str | None) -> str:
        """Return the prompt before each text.

        Raises:
            OptionError: there is no such prompt, or both are given.
        """
        if prompt is not None and name is not None:
            raise OptionError("Pass prompt= or prompt_name=, not both.")
        if prompt is not None:
            (text,) = checked_texts([prompt])
            return text
        name = self._settings.default_prompt if name is None else name
        if name is None:
            return ""
        if name not in self.prompts:
            there = ", ".join(map(repr, self.prompts)) or "none"
            raise OptionError(
                f"prompt_name={name!r} is not a prompt of {self.name}. Its prompts: {there}. To "
                "use other text, pass it as prompt=.",
                option="prompt_name",
            )
        return self.prompts[name]

    def rerank(
        self, query: str, documents: Iterable[str], **options: Unpack[RankOptions]
    ) -> list[Ranked]:
        """Rank documents by how well they answer a query.

        A cross-encoder reads the query together with each document. Another embedder compares
        vectors by their cosine, with its prompts for queries and documents if it has any.

        Args:
            query: the question.
            documents: the documents.
            top_k: number of documents to return; None: all.
            options: ``on_truncation``, ``batch_tokens`` and ``progress``, as in `embed`.

        Returns:
            The best documents first; among equal scores the earlier document first.

        Raises:
            ModelError: the model is a cross-encoder with several scores.
            OptionError, PromptError: as in `embed`.
        """
        _check_names(options, RankOptions)
        return run_passes(self._ranked(query, documents, **options))

    async def arerank(
        self, query: str, documents: Iterable[str], *, pause: Pause | None = None, **options: Any
    ) -> list[Ranked]:
        """Run `rerank` in a thread, like `aresult`."""
        _check_names(options, RankOptions)
        return await in_thread(self._ranked(query, documents, **options), pause)

    def _ranked(
        self,
        query: str,
        documents: Iterable[str],
        *,
        top_k: int | None = None,
        on_truncation: OnTruncation = "warn",
        batch_tokens: int = BATCH_TOKENS,
        progress: Progress | None = None,
    ) -> Passes[list[Ranked]]:
        check_options(on_truncation, batch_tokens)
        if top_k is not None:
            Whole(1)("top_k", top_k)
        (asked,) = checked_texts([query])
        if not self.is_cross_encoder:
            made = []
            for kind, name, texts in (
                ("query", "The query", [asked]),
                ("document", "Document {}", documents),
            ):
                result = yield from self._result(
                    texts,
                    name=name,
                    prompt_name=prompt_name_for(kind, self.prompts),
                    on_truncation=on_truncation,
                    batch_tokens=batch_tokens,
                    progress=progress,
                )
                made.append(result.vectors)
            near, far = made
            return _best_first(far @ near[0] if len(far) else [], top_k)
        self._known_tokenizer()
        with late(progress) as report:
            scores, _, n_cut = yield from self._vectors(
                ((asked, document) for document in checked_texts(documents)),
                batch_tokens,
                0,
                on_truncation,
                lambda n: report(f"Ranking with {self.name}", n, n),
                "Document {}, with the query,",
            )
        if len(scores) and scores.shape[1] != 1:
            raise ModelError(
                f"{self.name} returns {scores.shape[1]} scores per pair. A cross-encoder for "
                "ranking must return one."
            )
        if on_truncation == "warn" and (n_cut > 0).any():
            warnings.warn(
                f"{counted(int((n_cut > 0).sum()), 'pair')} of {len(n_cut):,} had more than "
                f"{self.max_length} tokens and were truncated.",
                TruncationWarning,
                stacklevel=4,
            )
        return _best_first(scores[:, 0] if len(scores) else [], top_k)

    def _vectors(
        self,
        texts: Iterable[Any],
        budget: int,
        n_skipped: int,
        on_truncation: OnTruncation,
        report: Callable[[int], None],
        name: str,
    ) -> Passes[tuple[FloatArray, Any, Any]]:
        """Return the vector of each text (or pair), its number of tokens, and the number cut off;
        yield between batches."""
        found: list[FloatArray] = []
        lengths: list[int] = []
        cut: list[int] = []
        n_done = width = 0
        report(0)
        for window, tokens in tokenized(self._tokenizer, windows(texts)):
            sizes = [len(text) // _CHARACTERS_A_TOKEN + 1 for text in window]
            if tokens is not None:
                sizes = [len(one.ids) for one in tokens]
                for i, one in enumerate(tokens if on_truncation == "error" else ()):
                    if one.n_cut:
                        raise PromptError(
                            f"{name.format(len(lengths) + i)} has {len(one.ids) + one.n_cut:,} "
                            f"tokens, but {self.name} accepts {self.max_length:,}{self._more}. "
                            "Split it, or pass on_truncation='warn' to truncate it."
                        )
                lengths += sizes
                cut += [one.n_cut for one in tokens]
            vectors: FloatArray | None = None
            for batch in plan(sizes, budget, lambda size: NUMBERS // self._settings.numbers(size)):
                if n_done:
                    yield
                if tokens is None:
                    rows = self._graph.run_texts([window[i] for i in batch])
                else:
                    chosen = [tokens[i] for i in batch]
                    rows = self._graph.run(chosen, self.pooling or "mean", n_skipped)
                width = width or rows.shape[-1]
                if rows.shape != (len(batch), width):
                    raise ModelError(f"{self.name} returns vectors of different shapes.")
                if vectors is None:
                    vectors = np.empty((len(window), width), np.float32)
                vectors[batch] = rows
                n_done += len(batch)
                report(n_done)
            assert vectors is not None, "a window is never empty"
            found.append(vectors)
        nothing = np.zeros((0, self.dimensions or 0), np.float32)
        together = np.concatenate(found) if found else nothing
        return together, np.array(lengths, np.int64), np.array(cut, np.int64)


async def in_thread(work: Passes[T], pause: Pause | None = None) -> T:
    """Run work in a thread, pass by pass, and await it.

    ``pause`` is awaited between passes.
    """
    found: Any = None

    def advance() -> bool:
        nonlocal found
        try:
            next(work)
        except StopIteration as end:
            found = end.value
            return False
        return True

    while await asyncio.to_thread(advance):
        if pause is not None:
            await pause()
    return cast("T", found)


def _best_first(scores: Iterable[float], top_k: int | None) -> list[Ranked]:
    """Return documents by score; among equal scores the earlier first."""
    ranked = [Ranked(index, float(score)) for index, score in enumerate(scores)]
    return sorted(ranked, key=lambda one: -one.score)[:top_k]


def load(place: Path, **options: Any) -> Embedder:
    """Load an embedder's folder, or its ONNX file; see `structgen.load_embedder`."""
    return Embedder(*opened(place, **options))


Parts: TypeAlias = tuple[Graph, TextTokenizer | None, Settings, Pooling | None, int | None]
"""The parts of an `Embedder`."""


def opened(
    place: Path,
    *,
    pooling: str | None = None,
    max_length: int | None = None,
    providers: Sequence[str] | None = None,
    session_options: Mapping[str, Any] | None = None,
    threads: int | None = None,
    bound: Callable[[int], None] | None = None,
) -> Parts:
    """Return the parts of an embedder; args as for `structgen.load_embedder`.

    ``bound`` is first called with the bytes that two runs at once may take.
    """
    wanted = None if pooling is None else check_pooling(pooling)
    if cache.is_language_model(place):
        raise ModelNotFound(
            f"{place} is a language model. Load it with structgen.load; its embed() works if it "
            "was converted with --hidden-states."
        )
    settings = read(place)
    lacking = damage.of_graph(settings.graph)
    if lacking:
        raise ModelError(remedied(settings.folder, lacking))
    most = _most(settings, max_length)
    if bound is not None:
        bound(2 * _KINDS * 4 * max(settings.numbers(most), NUMBERS))
    graph = Graph(
        settings.graph,
        wants_tokens=wanted is not None,
        providers=providers,
        session_options=session_options,
        threads=threads,
    )
    if wanted is not None and graph.kind != "tokens":
        raise OptionError(
            f"pooling={pooling!r}: {settings.graph} does not return one vector per token, so "
            "pooling is not possible."
        )
    if graph.takes_text:
        if max_length is not None:
            raise OptionError(
                f"max_length={max_length}: {settings.graph} tokenizes and truncates text itself."
            )
        return graph, None, settings, None, None
    if settings.tokenizer is None:
        raise ModelNotFound(
            f"{settings.folder} has no tokenizer.json, but {settings.graph.name} needs token ids. "
            "Copy it from the model's source."
        )
    pools = wanted or _folders_pooling(settings) if graph.kind == "tokens" else None
    return graph, TextTokenizer(settings.tokenizer, most, settings.cuts), settings, pools, most


def _most(settings: Settings, max_length: int | None) -> int:
    if max_length is None:
        return min(settings.max_length or _UNSTATED, settings.longest, _LONGEST)
    Whole(1)("max_length", max_length)
    if settings.positions is not None and max_length > settings.positions:
        raise OptionError(
            f"max_length={max_length} is out of range: {settings.folder.name} has "
            f"{settings.positions} positions."
        )
    return max_length


def _folders_pooling(settings: Settings) -> Pooling:
    """Return a folder's pooling; the mean if it does not name one."""
    if settings.others:
        raise ModelError(
            f"{settings.folder} has {', '.join(settings.others)} after pooling, which this ONNX "
            "file does not contain. Export the whole model so that its output is "
            "sentence_embedding, or pass pooling= to ignore these steps."
        )
    if settings.lacks is not None:
        raise ModelError(
            f"{settings.lacks} is missing although modules.json lists it, so the pooling is "
            f"unknown. {remedy(settings.folder)} Or pass pooling=."
        )
    if settings.pooling is None:
        return "mean"
    if settings.pooling in POOLINGS:
        return check_pooling(settings.pooling)
    raise ModelError(
        f"{settings.folder} sets the pooling {settings.pooling!r}, which is not one of "
        f"{', '.join(POOLINGS)}. Export the whole model so that its output is sentence_embedding, "
        "or pass another pooling=."
    )
