"""A job: ask a Runner about each row, many at once, and return results in the order of the rows.

It decides what is asked about a row (text of an output type, decisions, vectors, or anything else
that an `Ask` defines), how many rows run at once, which errors belong to a row and which end the
job, and when a part of the results is written.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import math
import os
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from structgen import models
from structgen.errors import (
    Abstained,
    BudgetTooSmall,
    IncompleteOutput,
    OptionError,
    ParseError,
    PromptError,
    RequestError,
    StructgenError,
    WorkerDied,
    counted,
    did_you_mean,
)
from structgen.grammar import ir
from structgen.models.progress import has_bars
from structgen.options import FIELDS, OPTIONS, Whole
from structgen.runner import ChatRequest, DecisionRequest, EmbeddingRequest, ModelConfig, Runner
from structgen.types import lower

from . import columns
from .parts import Parts
from .rows import BadRow, Prompts, Row, Source, as_json, n_bytes_of

ON_ERROR = ("row", "skip", "fail")

_ROWS_PER_PART, _BYTES_PER_PART, _SECONDS_PER_PART = 10_000, 16 << 20, 60.0
_FIRST_SECONDS = 10.0  # of a part, doubled for each later one: jobs that are often killed get on
_LOG_SECONDS = 10.0
_OF_ROWS = (Abstained, BudgetTooSmall, IncompleteOutput, ParseError, PromptError)
"""Errors of one row: the next one may succeed."""

_EMBEDDED_AT_ONCE = 64


class Ask(Protocol):
    """What to ask about rows. Used by several threads."""

    @property
    def size(self) -> int:
        """The number of rows that are asked together."""

    def __call__(self, rows: Sequence[Row | BadRow]) -> list[Row]:
        """Return each row's result: the row's columns, with those of the output or the error.

        Raises:
            StructgenError: the job cannot continue.
        """


def outcome(row: Row) -> tuple[Any, int]:
    """Return the error of a result and its number of output tokens."""
    return row.get("error"), row.get("output_tokens") or 0


class Job(Iterator[Row], contextlib.AbstractContextManager["Job"]):
    """An iterator of results, row by row, in the order of the input.

    Close it, or use it in a ``with`` statement, to stop.

    Attributes:
        total: the number of rows, if known.
        first: number of rows that earlier runs have done.
        n_rows: number of rows that this run has done.
        n_errors: number of these that have an error.
        n_tokens: number of their output tokens.

    Until a row succeeds, a row that cannot be asked at all (a missing column, say) ends the job,
    because the other rows would most likely fail, too.
    """

    def __init__(
        self,
        source: Source,
        ask: Ask,
        *,
        window: int,
        on_error: str = "row",
        first: int = 0,
        outcome: Callable[[Row], tuple[Any, int]] = outcome,
        close: Callable[[], object] = lambda: None,
    ) -> None:
        """Set up a job; nothing is asked yet.

        Args:
            source: the rows.
            ask: what to ask about each row.
            window: number of asks under way at once.
            on_error: if a row has an error: ``"row"``: it is a result like others; ``"skip"``: it
                is left out; ``"fail"``: the job ends.
            first: number of rows that are done already and not asked again.
            outcome: returns the error of a result and its number of output tokens.
            close: called at the end.
        """
        if on_error not in ON_ERROR:
            raise OptionError(f"on_error={on_error!r} must be one of {', '.join(ON_ERROR)}.")
        self.total, self.first = source.total, first
        self.n_rows = self.n_errors = self.n_tokens = 0
        self._on_error = on_error
        self._outcome = outcome
        self._close = close
        self._check = source.check
        rows = itertools.islice(source.read(), first, None)
        self._results = results(rows, ask, window, close)
        self._steps = self._counted()

    def __next__(self) -> Row:
        return next(row for row in self._steps if row is not None)

    def _counted(self) -> Iterator[Row | None]:
        """Yield the results; None: a result is left out."""
        for row in self._results:
            error, n_tokens = self._outcome(row)
            self.n_rows += 1
            self.n_tokens += n_tokens
            if error is not None:
                self.n_errors += 1
                if self.first + self.n_rows == self.n_errors and error.get("type") == "OptionError":
                    raise OptionError(error["message"])
                if self._on_error == "fail":
                    raise StructgenError(f"Row {self.first + self.n_rows:,}: {error['message']}")
            yield None if error is not None and self._on_error == "skip" else row

    def close(self) -> None:
        """Stop, and cancel running requests. Calling it again does nothing."""
        self._results.close()
        self._close()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def write(self, parts: Parts, progress: Callable[[Job], object] = lambda job: None) -> None:
        """Write the remaining results to a folder. Written results are never lost.

        Args:
            parts: the folder.
            progress: called after each row; if it raises, the job ends.

        Raises:
            StructgenError: the job cannot continue, or the folder cannot be written. Run the same
                job again to continue.
        """
        rows: list[Row] = []
        end, n_bytes, began = parts.n_done, 0, time.monotonic()
        longest = min(_FIRST_SECONDS, _SECONDS_PER_PART)

        def put() -> None:
            nonlocal rows, n_bytes, began, longest
            # Without rows there are no columns: no first part.
            if end > parts.n_done and (rows or parts.n_done):
                self._check()
                try:
                    parts.write(rows, end)
                except OSError as error:
                    raise OptionError(
                        f"{parts.folder} cannot be written: {error.strerror}. {parts.n_done:,} "
                        "rows are done. Fix the cause, and run the same job again to continue."
                    ) from error
            rows, n_bytes, began = [], 0, time.monotonic()
            longest = min(2 * longest, _SECONDS_PER_PART)

        try:
            for row in self._steps:
                end += 1
                if row is not None:
                    rows.append(row)
                    n_bytes += n_bytes_of(row)
                progress(self)
                is_due = time.monotonic() - began > longest
                if is_due or len(rows) >= _ROWS_PER_PART or n_bytes >= _BYTES_PER_PART:
                    put()
        finally:
            put()

    def check(self, parts: Parts) -> None:
        """Raise if no row of a finished folder has succeeded.

        Raises:
            StructgenError: there are rows, and all have failed.
        """
        n, errors = self.first + self.n_rows, (self._outcome(row)[0] for row in parts.rows())
        if n and self.n_errors == self.n_rows and all(errors):
            why = f"see {parts.folder}"
            if self._on_error == "skip":
                why = "and on_error='skip' omitted them. Use on_error='row' to see why"
            who = "The only row has" if n == 1 else f"All {n:,} rows have"
            raise StructgenError(f"{who} failed, {why}.")


def results(
    rows: Iterator[Row | BadRow], ask: Ask, window: int, close: Callable[[], object] = lambda: None
) -> Generator[Row, None, None]:
    """Yield the results of rows in order, as in `Job`, reading rows as needed.

    If reading fails, the rows read before are still asked, and come before the error.
    """
    waiting: deque[tuple[Future[list[Row]], int]] = deque()
    n_waiting, problem = 0, None
    pool = ThreadPoolExecutor(window, "structgen-job")
    try:
        while waiting or problem is None:
            group: list[Row | BadRow] = []
            n_bytes = 0
            while problem is None and len(group) < ask.size and n_bytes < _BYTES_PER_PART:
                try:
                    group.append(next(rows))
                    n_bytes += n_bytes_of(group[-1])
                except Exception as error:  # the end's included
                    problem = error
            if group:
                waiting.append((pool.submit(ask, group), n_bytes))
                n_waiting += n_bytes
            # More rows are read than are under way, so that one slow row does not delay the others.
            is_full = len(waiting) >= 4 * window or n_waiting >= _BYTES_PER_PART
            if waiting and (is_full or problem is not None or waiting[0][0].done()):
                future, n_bytes = waiting.popleft()
                n_waiting -= n_bytes
                yield from future.result()
        if problem is not None and not isinstance(problem, StopIteration):
            raise problem
    finally:
        for future, _ in waiting:
            future.cancel()
        close()  # ends the asks that threads wait for
        pool.shutdown()


def attempted(ask: Callable[[], Row], result: str) -> Row:
    """Return the result columns of a row; an error of this row is one of them."""
    for attempt in (1, 2):
        try:
            return ask()
        except WorkerDied as error:  # the Runner starts the process again
            if attempt == 2:
                return failed(error, result)
        except RequestError as error:
            if not (error.param or "").startswith(("messages", "input", "state")):
                raise  # an error of all rows
            return failed(error, result)
        except _OF_ROWS as error:
            return failed(error, result)
    raise AssertionError


def failed(error: StructgenError, result: str) -> Row:
    """Return the result columns of a failed row."""
    return {result: None, "error": {"type": type(error).__name__, "message": str(error)}}


class _Asking(ABC):
    """The base of asks to a Runner."""

    size = 1
    window = 16
    """Asks under way per process of the model."""

    beside: tuple[str, ...] = ()
    """Columns of each result beside the output and the error."""

    def __init__(
        self,
        runner: Runner | None,
        model: str | None,
        *,
        prompts: Prompts,
        result: str,
        fields: Mapping[str, Any],
    ) -> None:
        """Set it up. Without a Runner nothing can be asked; only its identity is known."""
        self._runner: Any = runner
        self._model = model
        self._prompts = prompts
        self._result = result
        self._fields = fields
        self.identity: dict[str, Any] = {
            "prompt": prompts.identity,
            "result": result,
            "options": dict(fields),
        }

    def __call__(self, rows: Sequence[Row | BadRow]) -> list[Row]:
        """Return the result of each row."""
        return [self._of(row) for row in rows]

    def _of(self, row: Row | BadRow) -> Row:
        made: Row = {self._result: None, "error": None, **dict.fromkeys(self.beside)}
        if isinstance(row, BadRow):
            return made | failed(StructgenError(row.error), self._result)
        made = row | made
        try:
            self.check(row)
            messages = self._prompts.of(row)
        except (OptionError, PromptError) as error:
            return made | failed(error, self._result)
        return made | attempted(lambda: self._ask(messages), self._result)

    def check(self, row: Row) -> None:
        """Refuse a row with a column that results have."""
        for name in (self._result, *columns.BESIDE):
            if name in row:
                raise OptionError(
                    f"The input has a column {name!r}, as the results do. Rename it"
                    + (", or pass result=." if name == self._result else ".")
                )

    @abstractmethod
    def _ask(self, messages: list[dict[str, Any]]) -> Row: ...


class _Texts(_Asking):
    """Asks for text, free or of an output type."""

    def __init__(self, *args: Any, output_type: Any, as_written: bool, **common: Any) -> None:
        super().__init__(*args, **common)
        self._type = output_type
        self._as_written = as_written
        self._is_json, self.identity["type"] = False, None
        if output_type is not None:
            lowered = lower(output_type)
            self._is_json = isinstance(lowered.grammar, ir.Json)
            self.identity["type"] = f"{lowered.name} {_digest(repr(lowered.grammar))}"
        self.beside = ("finish_reason", "prompt_tokens", "output_tokens")
        if "abstain_below" in self._fields:
            self.beside += ("confidence",)

    def _ask(self, messages: list[dict[str, Any]]) -> Row:
        fields = {**self._fields, "messages": messages, "output_type": self._type}
        try:
            answer = self._runner.chat(fields, model=self._model)
        except BudgetTooSmall as error:
            if error.budget < (self._fields.get("max_tokens") or math.inf):
                raise  # the prompt takes the rest
            raise OptionError(str(error), option="max_new_tokens") from error
        choice = answer.choices[0]
        usage = answer.usage
        made: Row = {
            "finish_reason": choice.finish_reason,
            "prompt_tokens": usage.prompt_tokens,
            "output_tokens": usage.completion_tokens,
        }
        if choice.confidence is not None:
            made["confidence"] = {
                path: sure.probability for path, sure in choice.confidence.items()
            }
        try:
            if choice.result is not None:
                choice.result.check_sure()
            value = choice.value  # runs the checks that only the class can make
        except _OF_ROWS as error:
            return made | failed(error, self._result)
        if self._as_written:
            text = choice.message.content or ""
            value = json.loads(text) if self._is_json else text
        return made | {self._result: value}


class _Decisions(_Asking):
    """Asks questions about a text."""

    beside = ("prompt_tokens", "output_tokens")

    def __init__(self, *args: Any, questions: Any, **common: Any) -> None:
        super().__init__(*args, **common)
        self._questions = questions
        self.identity["questions"] = _digest(repr(questions))

    def _ask(self, messages: list[dict[str, Any]]) -> Row:
        state: Any = messages if len(messages) > 1 else messages[0]["content"]
        answer = self._runner.decide(
            {**self._fields, "state": state, "questions": self._questions}, model=self._model
        )
        made = answer.model_dump(mode="json")
        return {
            self._result: made["answers"],
            "prompt_tokens": answer.usage.prompt_tokens,
            "output_tokens": 0,
        }


class _Vectors(_Asking):
    """Asks for vectors of texts."""

    size = _EMBEDDED_AT_ONCE
    window = 4

    def __call__(self, rows: Sequence[Row | BadRow]) -> list[Row]:
        """Return the result of each row; all rows are one request if that succeeds."""
        good = [row for row in rows if not isinstance(row, BadRow)]
        if len(good) < len(rows):
            return super().__call__(rows)
        try:
            for row in good:
                self.check(row)
            vectors = self._vectors([self._prompts.of(row)[0]["content"] for row in good])
        except (OptionError, WorkerDied, *_OF_ROWS):
            return super().__call__(rows)
        pairs = zip(good, vectors, strict=True)
        return [row | {self._result: vector, "error": None} for row, vector in pairs]

    def _ask(self, messages: list[dict[str, Any]]) -> Row:
        return {self._result: self._vectors([messages[0]["content"]])[0]}

    def _vectors(self, texts: list[str]) -> list[Any]:
        made = self._runner.embed({**self._fields, "input": texts}, model=self._model)
        return [one.embedding for one in made.data]


Asker: TypeAlias = "Callable[[Runner | None, str | None], _Asking]"
"""Makes an ask for a Runner's model. It can be sent to another process."""


def asker(
    output_type: Any = None,
    *,
    prompt: str | None = None,
    column: str | None = None,
    messages: Sequence[Mapping[str, Any]] | None = None,
    questions: Any = None,
    embed: bool = False,
    result: str = "output",
    as_written: bool = True,
    **options: Any,
) -> Asker:
    """Prepare what `batch` asks about each row, without the model. Same arguments.

    Args:
        as_written: whether outputs are JSON values; otherwise they are values of ``output_type``.

    Raises:
        OptionError: an option is wrong.
    """
    if sum((output_type is not None, questions is not None, embed)) > 1:
        raise OptionError("An output type, questions= and embed=True exclude each other. Pass one.")
    if result in columns.BESIDE:
        raise OptionError(f"result={result!r} is already the name of a column of the results.")
    kind = EmbeddingRequest if embed else DecisionRequest if questions is not None else ChatRequest
    fields = _fields(kind, options)
    common: dict[str, Any] = {
        "prompts": Prompts(prompt, column, messages),
        "result": result,
        "fields": fields,
    }
    if embed:
        return functools.partial(_Vectors, **common)
    if questions is not None:
        return functools.partial(_Decisions, questions=questions, **common)
    return functools.partial(_Texts, output_type=output_type, as_written=as_written, **common)


class Cluster(Protocol):
    """Other machines that run the asks of a job: see `structgen.ray`."""

    def pool(self, make: Asker, model: str) -> Any:
        """Return an `Ask` that runs there. It has a ``window``, as in a job, and must be closed.

        Raises:
            StructgenError: no machine is available.
        """


def batch(
    rows: Any,
    output_type: Any = None,
    *,
    prompt: str | None = None,
    column: str | None = None,
    messages: Sequence[Mapping[str, Any]] | None = None,
    questions: Any = None,
    embed: bool = False,
    model: str | os.PathLike[str] | None = None,
    runner: Runner | None = None,
    cluster: Cluster | None = None,
    output: str | os.PathLike[str] | None = None,
    format: str = "jsonl",
    result: str = "output",
    on_error: str = "row",
    workers: int | None = None,
    batch_size: int | None = None,
    progress: Callable[[Job], object] | None = None,
    **options: Any,
) -> Any:
    """Ask a model about each of many rows: for typed text, decisions, or vectors.

    Args:
        rows: a file, several, or a pattern (``.jsonl``, ``.csv``, ``.tsv``, ``.parquet``,
            ``.txt``); a table of pandas, Polars or Arrow; or an iterable of mappings or texts.
        output_type: the type of each result; None: free text.
        prompt: a template with columns in braces: ``{name}``.
        column: the column with the prompts; None: ``text``, ``prompt`` or the only column.
        messages: the messages of a chat; their contents are Jinja templates.
        questions: answer these about each row instead: see `structgen.decisions`.
        embed: make a vector of each row instead.
        model: as in `structgen.load`; with ``runner``, its id there; None: the default model.
        runner: use its model, without ``workers`` and ``batch_size``. None: load the model for this
            job.
        cluster: a `structgen.ray.Cluster` that runs the model; None: this machine.
        output: the folder for the results. The same job with the same folder continues where it
            stopped.
        format: the format of the parts: ``"jsonl"`` or ``"parquet"``.
        result: the column for the results, beside ``error``, ``finish_reason``,
            ``prompt_tokens`` and ``output_tokens``.
        on_error: if a row fails: ``"row"`` writes a row with the error, ``"skip"`` leaves it out,
            ``"fail"`` ends the job.
        workers: processes that run the model; None: as many as are fastest in a short trial.
        batch_size: as in `structgen.load_async`.
        progress: called after each row of a folder or table; None: a bar on a terminal or in a
            notebook (with ``ipywidgets``), otherwise lines if there is a folder.
        **options: of a call, such as ``max_new_tokens=100``, ``seed=1``.

    Returns:
        The folder ``output``; or a table of the kind given; or a `Job`, an iterator of rows with
        values of ``output_type``.

    Raises:
        OptionError: an option is wrong, or the folder holds the results of another job.
        StructgenError: the model cannot be loaded, a row failed (``on_error="fail"``), or all rows
            failed (``output``).
    """
    source = Source.of(rows)
    is_kept = isinstance(source.identity, (list, dict))  # so that it can be read twice
    if is_kept and prompt is None and column is None and messages is None:
        first_row = next((row for row in source.read() if isinstance(row, dict)), None)
        column = None if first_row is None else Prompts().named(first_row)
    as_written = output is not None or source.table is not None
    make = asker(
        output_type,
        prompt=prompt,
        column=column,
        messages=messages,
        questions=questions,
        embed=embed,
        result=result,
        as_written=as_written,
        **options,
    )
    if cluster is not None and runner is not None:
        raise OptionError("runner= cannot be combined with cluster=.")
    given = {"cluster=": cluster is not None, "runner=": runner is not None, "embed=True": embed}
    if (workers, batch_size) != (None, None) and any(given.values()):
        other = next(name for name, is_given in given.items() if is_given)
        raise OptionError(f"workers= and batch_size= cannot be combined with {other}.")
    if workers is not None:
        Whole(1, 64)("workers", workers)
    if not isinstance(model, (str, os.PathLike, type(None))):
        raise OptionError(
            f"model={model!r} is not a model name. Pass a str or a path; or a loaded model in "
            "runner=structgen.Runner({'small': model})."
        )
    named = os.fspath(model or default_model(embed))
    if runner is not None and model is None:
        named = runner.get_default_model_id() or named

    def loaded(processes: int) -> Runner:
        threads = None if processes == 1 else max(1, models.health.cores() // processes)
        config = ModelConfig(
            source=named, processes=processes, threads=threads, batch_size=batch_size
        )
        return Runner({named: config}, max_concurrency=_Asking.window * processes)

    def trial(processes: int, some: list[Row | BadRow]) -> float:
        with loaded(processes) as runner:
            ask = make(runner, named)
            ask(some[:1])  # loads the model
            began = time.monotonic()
            list(results(iter(some), ask, ask.window * processes))
            return time.monotonic() - began

    def job(first: int) -> Job:
        common: Any = {"on_error": on_error, "first": first}
        if cluster is not None:
            pool = cluster.pool(make, named)
            return Job(source, pool, window=pool.window, close=pool.close, **common)
        processes, asked = 1, runner
        if asked is None:
            if not embed and models.is_language_model(models.path(named)):
                processes = workers or _processes(source, first, named, trial)
            elif (workers, batch_size) != (None, None):
                raise OptionError(f"workers= and batch_size= are not for {named}, an embedder.")
            asked = loaded(processes)
            common["close"] = asked.close
        ask = make(asked, named)
        return Job(source, ask, window=ask.window * processes, **common)

    if output is None:
        made = job(0)
        if source.table is None:
            return made
        bar = shown(made) if progress is None and has_bars() else contextlib.nullcontext(progress)
        with made, bar as report:
            found, places = [], []
            for row in made:
                found.append(row)
                places.append(made.n_rows - 1)
                if report is not None:
                    report(made)
        names = (name for name in columns.BESIDE if any(name in row for row in found))
        more = {name: [row.get(name) for row in found] for name in (result, "error", *names)}
        with contextlib.suppress(Exception):  # there may be no column type for these values
            table = source.table(places, more)
            if embed or all(map(_is_same, _values(table[result]), more[result])):
                return table
        more[result] = [None if one is None else as_json(one).decode() for one in more[result]]
        return source.table(places, more)
    folder = Path(output)
    table = None
    if format == "parquet":
        outputs = list[float] if embed else output_type if questions is None else dict[str, Any]
        table = columns.Columns(outputs, result, source.schema).table
    asked = {"model": model_digest(named), **make(None, named).identity}
    with (
        Parts(folder, format, {"input": source.identity, **asked}, table) as parts,
        job(parts.n_done) as made,
        shown(made) if progress is None else contextlib.nullcontext(progress) as report,
    ):
        made.write(parts, report)
    made.check(parts)
    if questions is not None and progress is None:
        _tell_signal(parts, result)
    return folder


def _tell_signal(parts: Parts, result: str) -> None:
    """Say on stderr how many decisions of a finished folder carry no signal, if any do not."""
    n = Counter[bool]()
    for row in parts.rows():
        answers = row[result] or {}
        if isinstance(answers, str):  # as in Parquet
            answers = json.loads(answers)
        n.update(one["informative"] for one in answers.values())
    if n[False]:
        print(
            f"{n[False]:,} of {n.total():,} decisions carry no signal. The model may not "
            "be able to decide this. Measure it with Decider.calibrate and labelled examples, or "
            "use a larger model (docs/decisions.md#answers-that-carry-no-signal).",
            file=sys.stderr,
            flush=True,
        )


def _values(column: Any) -> list[Any]:
    """Return the values of a column of an Arrow, Polars or pandas table."""
    made: list[Any] = column.to_pylist() if hasattr(column, "to_pylist") else column.to_list()
    return made


def _is_same(found: Any, given: Any) -> bool:
    """Compare a table's value with a JSON value: 1 equals 1.0, and a missing value may be null."""
    if isinstance(given, dict):
        return isinstance(found, dict) and all(
            _is_same(found.get(name), given.get(name)) for name in found.keys() | given.keys()
        )
    if isinstance(given, list):
        return (
            isinstance(found, list)
            and len(found) == len(given)
            and all(map(_is_same, found, given))
        )
    if given is None:
        return found is None or found != found  # as in pandas
    return bool(found == given) and isinstance(found, bool) == isinstance(given, bool)


@contextlib.contextmanager
def shown(job: Job) -> Iterator[Callable[[Job], object]]:
    """Show a job's progress: a bar on a terminal or in a notebook, otherwise lines on stderr."""
    began = last = time.monotonic()
    of_all = "" if job.total is None else f" of {job.total:,}"
    if job.first:
        print(f"Continuing after row {job.first:,}{of_all}.", file=sys.stderr, flush=True)

    def facts() -> str:
        seconds = max(time.monotonic() - began, 1e-9)
        errors = f", {counted(job.n_errors, 'error')}" if job.n_errors else ""
        rates = f"{job.n_rows / seconds:,.1f} rows/s, {job.n_tokens / seconds:,.0f} tokens/s"
        return f"{rates}{errors}"

    if has_bars():
        from rich import progress
        from rich.console import Console

        ways = (
            progress.MofNCompleteColumn(),
            progress.BarColumn(),
            progress.TextColumn("{task.fields[facts]}"),
            progress.TimeRemainingColumn(elapsed_when_finished=True),
        )
        with progress.Progress(*ways, console=Console(stderr=True)) as bar:
            task = bar.add_task("", total=job.total, completed=job.first, facts="")
            yield lambda job: bar.update(task, completed=job.first + job.n_rows, facts=facts())
        return

    def line(job: Job, *, is_end: bool = False) -> None:
        nonlocal last
        if is_end or time.monotonic() - last >= _LOG_SECONDS:
            last = time.monotonic()
            n_rows = job.first + job.n_rows
            done = f"{n_rows:,}{of_all} rows" if of_all else counted(n_rows, "row")
            print(f"{done}, {facts()}", file=sys.stderr, flush=True)

    yield line
    if job.n_rows or not job.first:
        line(job, is_end=True)
    else:
        print("All rows were already done.", file=sys.stderr, flush=True)


def default_model(embed: bool) -> str:
    """Return the model for a job that names none."""
    return "all-minilm-l6-v2" if embed else models.DEFAULT


_MORE = (
    *("max_tokens", "with_schema_hint", "enable_thinking", "reasoning_effort", "thinking_budget"),
    *("debias", "tolerance", "dimensions", "input_type", "prompt_name"),
)
"""Fields of a request that a job can set, beside call options."""


def _fields(kind: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a call as fields of a request."""
    names = {name: option.field for name, option in OPTIONS.items()}
    names |= {name: name for name in (*FIELDS, *_MORE)}
    known = {name: field for name, field in names.items() if field in kind.model_fields}
    fields: dict[str, Any] = {}
    for name, value in options.items():
        field = known.get(name)
        if field is None:
            others = [*(batch.__kwdefaults__ or ()), *known]
            hint = did_you_mean(name, others) or (
                f" Pass the output type as the second argument. Options are: {', '.join(others)}."
            )
            raise OptionError(f"Unknown option {name!r}.{hint}", option=name)
        if field in fields:
            raise OptionError(f"{name}= is given twice, under two names. Pass one.", option=name)
        fields[field] = value
    return fields


_SMALL_MODEL, _MANY_ROWS = 1 << 30, 64
_TRIAL_ROWS, _ROWS_WORTH_A_TRIAL = 32, 1_000


def _processes(
    source: Source, first: int, model: str, trial: Callable[[int, list[Row | BadRow]], float]
) -> int:
    """Return the number of processes of a model that suits this machine.

    For a small model, two processes of one core each make 1.5 to 1.8 times as many outputs as one
    process of two cores (docs/runner.md). With enough rows, both are tried.

    ``trial`` returns the seconds that rows take with a number of processes.
    """
    most, size = min(models.health.cores(), 8), sum(size for _, size in _files(models.path(model)))
    if (memory := models.health.free_memory()) is not None:
        most = min(most, max(1, memory // (2 * size)))
    left = math.inf if source.total is None else source.total - first
    if most > 1 and _ROWS_WORTH_A_TRIAL <= left < math.inf:
        rows = list(itertools.islice(source.read(), first, first + _TRIAL_ROWS))
        return min((1, most), key=lambda processes: trial(processes, rows))
    return most if left >= _MANY_ROWS and size <= _SMALL_MODEL else 1


def _files(folder: Path) -> list[tuple[str, int]]:
    """Return the names and sizes of a model's files."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return [(str(file.relative_to(folder)), file.stat().st_size) for file in files]


def model_digest(name: str) -> str:
    """Return a model's name, and a digest of the names and sizes of its files."""
    try:
        return f"{name} {_digest(repr(_files(models.path(name))))}"
    except StructgenError:
        return name  # a Runner's own model


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:16]
