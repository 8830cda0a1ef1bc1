"""The decode loop: one output alone, or many at once.

The loops are plain generators. They own the order in which outputs get passes, and how many run
together. `generation` edits scores; models compute them. The loops do not know output types.

When a batch pays. A step of eight rows takes 3.3 times as long as a step of one (SmolLM2-135M, 2
cores), so eight outputs take 41% of the time, token by token. But rows of a batch cannot share a
prefix. And forced tokens cost a step each, because several tokens can be appended to a batch only
at its start; alone, they take 0.3 steps each in one pass. So output types with much forced text may
be faster one by one. Counted steps decide: the first output is made alone and shows how many tokens
are chosen and how many are forced (`_pays`).

If nothing is forced, no first output is needed. Rows that share a long prompt, such as samples of
one prompt, are still faster alone, because the prompt runs once (`shares_much`). The prompts of a
batch run in one pass that cannot be interrupted, so by default they are short.

Finished rows still cost their share of each step. When they have cost as much as restarting the
others, the batch is restarted without them. So no batch costs more than twice the minimum. A
restart is one pass, too: if it would be a long one, or if a batch has no more room, its rows
continue alone, and their passes alternate with those of others.

In a step, the runtime treats a token that ends outputs as a row's end, and pads from there on. But
such tokens also end the turns of a chat. So the first pass has whole prompts, and a row that gets
another turn, for example after a draft, continues alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from structgen.models.base import (
    Allowed,
    Model,
    Pace,
    Passes,
    TokenSequence,
    begin_slice,
    is_due,
    joined,
    n_shared,
    passes,
    run_passes,
)
from structgen.sampling import Logits, TokenIds

from .generation import Generation
from .results import Chunk, Usage
from .sections import Run
from .speculation import MOST_AHEAD


def made(model: Model, run: Run, *, has_begun: bool = False) -> Generator[list[Chunk], None, None]:
    """Make an output with a model step by step, like `passes_of`; own its sequence and its end.

    Raises:
        IncompleteOutput: the text of an output type was cut.
    """
    if not has_begun and run.is_interrupted:
        run.start()
        run_passes(run.advance())
        run.check_whole()
        return
    length = len(run.prompt_ids) + run.max_tokens
    row = run.part.tokens.row
    prefix = row[: len(row) - run.part.n_wanted]  # tokens without scores have to run
    sequence = model.start(length, prefix=prefix, adapter=run.adapter, media=run.media)
    try:
        if not has_begun:
            run.start(reused_tokens=sequence.length)
        yield from passes_of(run, sequence, model.pace)
    finally:
        run.stop()
        sequence.close()
    run.check_whole()


def passes_of(run: Run, sequence: TokenSequence, pace: Pace) -> Generator[list[Chunk], None, None]:
    """Continue an output that has begun: yield before each pass of the model, and at the end.

    Yields the text that has become final since the last yield, perhaps none. So a caller that
    drives several outputs can alternate between them.

    Args:
        run: an output that has begun.
        sequence: may contain its first tokens already; stays open.
        pace: the pace of the model.
    """
    run.part.tokens.n_seen = sequence.length
    while True:
        for _ in run.advance():
            yield run.take_chunks()
        yield run.take_chunks()
        part = run.part
        if part.progress.is_weighing:
            for _ in part.weigh():
                yield []
                if part.is_interrupted:
                    break
            continue
        if part.progress.is_waiting:
            continue
        n_wanted, is_running = part.n_wanted, run.finish_reason is None
        if not is_running and not n_wanted:
            return
        held = sequence.make_room(part.tokens.length + MOST_AHEAD + 1)
        part.tokens.n_seen = min(part.tokens.n_seen, held)
        if sequence.length > part.tokens.n_seen:
            sequence.rewind(part.tokens.n_seen)
        pending = part.tokens.take_pending()
        guessed: Sequence[int] = ()
        if is_running:
            guessed = yield from part.guess()
        allowed = part.allowed if is_running and not n_wanted and not guessed else None
        pieces = list(passes(pending, pace.longest_pass))
        if guessed:
            pieces.append(joined(pieces.pop() if pieces else pending, guessed))
        token: int | None = None
        _score_forced(part, sequence)
        for i, piece in enumerate(pieces, 1):
            if i > 1:
                yield []
            if is_running and part.is_interrupted:
                break
            if i == len(pieces) and allowed is not None:
                token = sequence.likeliest(piece, allowed)
            if token is None:
                sequence.append(piece)
            _score_forced(part, sequence)
        begin_slice()
        if token is not None and part.take(token):
            continue
        if is_running and part.is_interrupted:
            continue
        if guessed:
            scores = sequence.recent_logits(len(guessed) + 1)
            n_right = yield from _verify(run, guessed, scores)
            part.note_guess(len(guessed), n_right)
            continue
        if not is_running:
            return
        part.choose(sequence.logits())


def _score_forced(part: Generation, sequence: TokenSequence) -> None:
    """Pass on the scores of forced tokens whose predecessors are all in the sequence.

    Done after each pass: the scores of thousands of tokens are gigabytes, and one pass over them
    takes a minute.
    """
    tokens, n_wanted = part.tokens, part.n_wanted
    is_last = len(tokens.are_forced) > tokens.n_output  # the end of the sequence
    n_behind = sequence.length + 1 - (tokens.length + is_last - n_wanted)
    if n_wanted and n_behind > 0:
        part.score_forced(sequence.recent_logits(n_behind)[:n_wanted])


def _verify(run: Run, guessed: Sequence[int], logits: Logits) -> Generator[list[Chunk], None, int]:
    """Choose tokens along a guess, as long as they equal the guess, by the scores before each of
    them and after the last; return how many were right. Yields regularly."""
    first = run.part.tokens.length
    after = np.array(guessed, np.int32)
    at = 0
    while True:
        if is_due():
            yield run.take_chunks()
        run.part.choose(logits[at : at + 1])
        if run.finish_reason is not None or at == len(guessed):
            return at
        run_ids = run.part.tokens.row
        if len(run_ids) <= first + at or run_ids[-1] != after[at]:
            return at
        for _ in run.advance():
            yield run.take_chunks()
        came = run.part.tokens.row[first:]
        at = n_shared(came, after)
        if run.finish_reason is not None or at < len(came):
            return at


# Bytes of scores. A batch begins with one pass over all rows, in which the runtime computes the
# scores of every token: 0.2 MB each for a vocabulary of 49k tokens.
_MOST_SCORES = 512 << 20

# The first pass may take as long as this many of the longest passes, if the caller has not set a
# batch size: 1.3 s with SmolLM2.
_MOST_PASSES = 8

_USUAL_TOKENS = 128
"""The assumed length of an output before any has been made."""


def make_all(
    model: Model,
    runs: Sequence[Run],
    batch_size: int | None,
    *,
    forces: bool,
    began: float | None = None,
) -> dict[int, Exception]:
    """Make all of ``runs``; return errors by index.

    Args:
        model: the model.
        runs: outputs that have not begun.
        batch_size: the most rows run together; None: as many as are worthwhile, up to `Pace.rows`.
            Never more than the model supports.
        forces: whether outputs may have forced tokens.
        began: the start of the call, by `time.perf_counter`; None: now. ``timeout`` is one limit
            for all outputs: those not begun by then never begin.

    Raises:
        KeyboardInterrupt, and anything else that is not an `Exception`: at once.
    """
    errors: dict[int, Exception] = {}
    for run in runs:
        run.count_time_from(time.perf_counter() if began is None else began)
    waiting = list(range(len(runs)))
    size = min(model.pace.rows if batch_size is None else batch_size, model.most_rows)
    if batch_size is None and forces and len(runs) > 1:
        first = waiting.pop(0)
        _make_one(model, runs, first, errors)
        size = size if _pays(runs, first, size, model.pace) else 1
    most = _MOST_SCORES // (4 * model.vocabulary.size)
    if batch_size is None:
        most = min(most, _MOST_PASSES * model.pace.longest_pass)
    for group in _groups(runs, waiting, size, most):
        together = [runs[i] for i in group]
        if len(group) == 1 or (batch_size is None and shares_much(together, model.pace)):
            for index in group:
                _make_one(model, runs, index, errors)
        else:
            Rows(model, {i: runs[i] for i in group}, errors).make()
    return errors


def _make_one(model: Model, runs: Sequence[Run], index: int, errors: dict[int, Exception]) -> None:
    try:
        for _ in made(model, runs[index]):
            pass
    except Exception as error:
        errors[index] = error


def _pays(runs: Sequence[Run], first: int, size: int, pace: Pace) -> bool:
    """Return whether batches are faster than single calls, estimated from the first output."""
    others = [run for i, run in enumerate(runs) if i != first]
    prompts = sum(len(run.prompt_ids) for run in others) / len(others)
    shared = sum(n_shared(run.prompt_ids, runs[first].prompt_ids) for run in others) / len(others)
    return batch_pays([runs[first].result.usage], prompts, shared, min(size, len(others)), pace)


def batch_pays(
    usages: Sequence[Usage], prompts: float, shared: float, rows: int, pace: Pace
) -> bool:
    """Return whether a batch is faster than single outputs, estimated from similar outputs.

    Args:
        usages: the usages of outputs of the same kind.
        prompts: the mean number of prompt tokens.
        shared: the number of these that the model need not run if outputs are made alone.
        rows: the number of rows of a batch.
        pace: the pace of the model.
    """
    n = len(usages)
    before = sum(usage.reasoning_tokens + usage.draft_tokens for usage in usages) / n
    forced = sum(usage.forced_tokens for usage in usages) / n
    sampled = sum(usage.sampled_tokens for usage in usages) / n
    guessed = sum(usage.guessed_tokens for usage in usages) / n
    accepted = sum(usage.accepted_tokens for usage in usages) / n
    alone = before + sampled - accepted + pace.token * (forced + prompts - shared)
    alone += (pace.token + pace.scores) * guessed
    steps = before + sampled + forced
    together = steps * (1 + pace.row * (rows - 1)) / rows + pace.token * prompts
    return together < alone


def shares_much(runs: Sequence[Run], pace: Pace) -> bool:
    """Return whether outputs are faster alone because their prompts share a prefix."""
    prompts = [run.prompt_ids for run in runs]
    shared = sum(n_shared(one, prompts[0]) for one in prompts[1:])
    tokens = min(_USUAL_TOKENS, max(run.max_tokens for run in runs))
    return pace.token * shared > tokens * (1 - pace.row) * (len(runs) - 1)


def _groups(
    runs: Sequence[Run], waiting: Sequence[int], size: int, most: int
) -> Iterator[list[int]]:
    """Yield groups of outputs to make together: of similar length, because shorter rows are padded,
    with at most ``most`` tokens."""
    rows = sorted(waiting, key=lambda i: len(runs[i].prompt_ids))
    while rows:
        shortest = len(runs[rows[0]].prompt_ids)
        n = 1
        while n < min(size, len(rows)):
            longest = len(runs[rows[n]].prompt_ids)
            if longest > 1.5 * shortest + 16 or (n + 1) * longest > most:
                break
            n += 1
        group, rows = rows[:n], rows[n:]
        yield group


class Rows:
    """The outputs of one batch, and their passes of the model."""

    def __init__(
        self,
        model: Model,
        runs: Mapping[int, Run],
        errors: dict[int, Exception],
        on_chunks: Callable[[int, list[Chunk]], object] | None = None,
        on_end: Callable[[int], object] | None = None,
    ) -> None:
        """Take outputs to make together.

        Args:
            model: the model.
            runs: the outputs by number, not begun, all with the same adapter.
            errors: receives errors, by the same numbers.
            on_chunks: called with text that has become final.
            on_end: called once with each output, as soon as it ends.
        """
        self._model = model
        self._runs = dict(runs)
        self._errors = errors
        self._on_chunks = on_chunks
        self._on_end = on_end
        self._ended: set[int] = set()
        self._queues: dict[int, list[int]] = {}  # tokens of each output that the model has not seen
        self._wasted = 0.0  # steps that finished rows have cost
        self._refused = False  # whether a row refused the model's choice: has to run again

    def make(self) -> None:
        """Make all outputs."""
        for index in run_passes(self.together()):
            for _ in self.alone(index):
                pass

    def together(self) -> Generator[None, None, list[int]]:
        """Make them in a batch, as far as that is worthwhile: yield before each pass of the model.

        Returns the numbers of the outputs that must continue `alone`.
        """
        left: list[int] = []
        try:
            for index, run in self._runs.items():
                run.start()
                yield from self._attempt(index, self._advance, index)
            rows = self._live()
            while len(rows) > 1:
                rows, alone = yield from self._batch(rows)
                left += alone
            left += rows
        except Exception as error:
            for index in self._live():
                self._errors[index] = error
            left.clear()
            raise
        finally:
            for index in self._runs:
                if index not in left:
                    self._end(index)
        return left

    def alone(self, index: int) -> Iterator[None]:
        """Continue one output alone: yield before each pass of the model."""
        try:
            for chunks in made(self._model, self._runs[index], has_begun=True):
                self._report(index, chunks)
                yield
        except Exception as error:
            self._errors[index] = error
        finally:
            self._end(index)

    def _batch(self, rows: list[int]) -> Generator[None, None, tuple[list[int], list[int]]]:
        """Run a batch of ``rows`` until too many are finished.

        Returns the unfinished rows for another batch, and those that must continue alone.
        """
        yield
        rows = self._uninterrupted(rows)
        if len(rows) < 2:
            return [], rows
        token_ids = [self._begin(index) for index in rows]
        # In steps, every row is as long as the longest.
        runs = [self._runs[index] for index in rows]
        left = [
            len(r.prompt_ids) + r.max_tokens - len(t) for r, t in zip(runs, token_ids, strict=True)
        ]
        room = max(map(len, token_ids)) + max(left)
        allowed = self._allowed(rows, rows)
        adapter = runs[0].adapter
        batch = self._model.start_batch(token_ids, room, adapter=adapter, allowed=allowed)
        if batch is None:
            return [], rows
        pace, self._wasted = self._model.pace, 0.0
        ends, alone = {*self._model.vocabulary.eos_token_ids}, list[int]()
        try:
            live = rows
            while live:
                chosen = None if allowed is None else batch.likeliest(allowed)
                logits = batch.logits() if chosen is None else None
                begin_slice()
                for row, index in enumerate(rows):
                    if index not in live:
                        continue
                    if is_due():
                        yield
                    if logits is not None:
                        yield from self._attempt(index, self._read, index, logits[[row]])
                    elif chosen is not None:
                        yield from self._attempt(index, self._take, index, chosen[row])
                still = self._live()
                for index in live:
                    if index not in still:
                        self._end(index)
                live = [index for index in still if index in live]
                alone += [index for index in live if not ends.isdisjoint(self._queues[index])]
                live = [index for index in live if index not in alone]
                done = len(rows) - len(live)
                self._wasted += pace.row * done
                again = sum(self._runs[i].part.tokens.length for i in live)
                fits = again <= pace.again
                pays = fits or len(live) < 1 + pace.row * (len(rows) - 1)
                is_costly = done and pays and self._wasted > pace.token * again
                if live and (is_costly or self._refused or batch.is_full):
                    self._refused = False
                    return (live, alone) if fits else ([], alone + live)
                if live:
                    yield
                    live = self._uninterrupted(live)
                if live:
                    if chosen is None:
                        batch.extend([self._queues[i].pop(0) if i in live else None for i in rows])
                    allowed = self._allowed(rows, live)
            return [], alone
        finally:
            batch.close()

    def _uninterrupted(self, rows: list[int]) -> list[int]:
        """Return the ``rows`` that continue; cancelled and late ones end here, before another
        pass."""
        gone = [index for index in rows if self._runs[index].is_interrupted]
        for index in gone:
            run_passes(self._attempt(index, self._advance, index))
            self._end(index)
        return [index for index in rows if index not in gone]

    def _begin(self, index: int) -> TokenIds:
        """Return a row's first tokens; queue the rest, forced text to be scored."""
        run = self._runs[index]
        token_ids: TokenIds = run.part.tokens.row
        start = len(token_ids) - run.part.n_wanted
        self._queues[index] = token_ids[start:].tolist()
        return token_ids[:start]

    def _allowed(self, rows: list[int], live: list[int]) -> Sequence[Allowed | int | None] | None:
        """Return the mask of each row; None if the scores of any row are needed."""
        found: list[Allowed | int | None] = []
        for index in rows:
            part, queue = self._runs[index].part, self._queues[index]
            allowed = None
            if index in live:
                allowed = queue[0] if queue and not part.n_wanted else part.allowed
                if allowed is None:
                    return None
            found.append(allowed)
        return found

    def _take(self, index: int, token: int) -> Passes[None]:
        """Take the token that the model has chosen and written for a row."""
        run, queue = self._runs[index], self._queues[index]
        if queue:
            queue.pop(0)
        elif run.part.take(token):
            yield from self._advance(index)
            self._queues[index][:1] = []
        else:
            self._refused = True

    def _read(self, index: int, logits: Logits) -> Passes[None]:
        """Use a row's scores: choose a token, or score forced ones."""
        run, queue = self._runs[index], self._queues[index]
        if queue and len(queue) == run.part.n_wanted:
            run.part.score_forced(logits)
        if not queue:
            run.part.choose(logits)
            yield from self._advance(index)

    def _advance(self, index: int) -> Passes[None]:
        run = self._runs[index]
        for _ in run.advance():
            self._report(index, run.take_chunks())
            yield
        self._report(index, run.take_chunks())
        self._queues[index] = run.part.tokens.take_pending().tolist()

    def _report(self, index: int, chunks: list[Chunk]) -> None:
        if chunks and self._on_chunks is not None:
            self._on_chunks(index, chunks)

    def _end(self, index: int) -> None:
        """Note that an output has ended, once."""
        if index in self._ended:
            return
        self._ended.add(index)
        run = self._runs[index]
        run.stop()
        run_passes(self._attempt(index, run.check_whole))
        if self._on_end is not None:
            self._on_end(index)

    def _attempt(
        self, index: int, action: Callable[..., Passes[None] | None], *arguments: Any
    ) -> Passes[None]:
        """Do something for one output; an error ends only this output."""
        if index in self._errors:
            return
        try:
            if (steps := action(*arguments)) is not None:
                yield from steps
        except Exception as error:
            self._errors[index] = error

    def _live(self) -> list[int]:
        return [
            index
            for index, run in self._runs.items()
            if (run.finish_reason is None or run.part.n_wanted) and index not in self._errors
        ]
