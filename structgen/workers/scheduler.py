"""Many outputs on one model: which output gets the next pass, when one begins, and which are
batched.

The scheduler owns the order of passes. It knows no processes, messages or event loops. Any thread
may submit a `Job`. The thread that owns the model calls `Scheduler.step` in a loop; each call runs
one pass.

    submit ─▶ waiting, one queue per caller ─▶ open: passes in turn ─▶ on_end

Turns. An open unit is one output or one batch. Each pass goes to the next unit in turn, so a short
output never waits for a long one to end. A new unit comes first, but no unit gives way to two of
them between its own passes. A long prompt is split into many passes (`passes` in
`structgen.decoding`), with turns of others in between.

Few units are open at a time (`OPEN_AT_REST`): taking turns makes none of them faster, and each
needs memory for its sequence. If something still waits after `PATIENCE` passes, one more is opened,
up to `MOST_OUTPUTS`. Waiting jobs are taken from the callers in turn, so a caller with a thousand
outputs does not delay one with a single output.

Owners. Each pass goes to the owner who has used the least time so far, independent of how many
outputs that owner has open, because one part of a long prompt, or one mask of a slow output type,
can take as long as dozens of others. New and returning owners start at the current minimum, so
nobody can save up time. An owner with nothing open comes first. So each owner delays the others by
at most one pass with its mask, and owners share the model equally. Jobs without an owner share one.

Masks wait for the automata's lock while another thread compiles a type, for up to a second. Such a
wait is split into slices, with passes of others in between. It is not charged to the waiting owner;
the owner whose type is compiled is `charge`d for the work. No type is compiled for an owner who
`is_ahead`: otherwise, owners who send new types one after the other would keep the lock.

Batches. Waiting jobs that fit together begin together if that is faster: always for free text,
unless prompts share a prefix; for output types if earlier outputs of the type suggest it
(`structgen.decoding.loop`). A batch belongs to one owner, or has one row of each of several owners:
each pays a part of reading the prompts, and the owner whose turn it is pays for further passes. A
running batch accepts no more rows. So on a GPU, where many rows cost about as much as one, jobs of
owners with something open wait until as many wait as run, or for `Pace.gather` passes. Scores in a
batch round differently, so each job defines whether it may be in one.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from structgen.automaton.core import GROW
from structgen.decoding import Chunk, Rows, Run, Usage, batch_pays, made, shares_much
from structgen.errors import IncompleteOutput
from structgen.models.base import Model, Passes, begin_slice, sharing

OPEN_AT_REST = 4
"""The most open outputs or batches while nobody has waited long: as many as the sequences that a
model keeps."""

MOST_OUTPUTS = 32
"""The most open outputs, each row of a batch included, because their sequences take memory.

Above it, only an owner with nothing open gets one. And if the outputs of an owner have more tokens
than `OPEN_AT_REST` contexts, or automata of more than `MOST_FORM_BYTES`, only the oldest continues.
"""

MOST_FORM_BYTES = 512 * 1024 * 1024
"""The most bytes of the automata of one owner's outputs. Above it, only the oldest of them
continues, and no other type is compiled for this owner."""

PATIENCE = 32
"""After this many passes, one more is opened for a waiting job."""

MOST_BATCH_PASSES = 4
"""All prompts of a batch, which run in one pass, may take at most this many of the longest passes:
0.6 s with SmolLM2 on two cores."""

_LEAD = 0.1  # seconds by which an owner is not ahead yet: some passes
_SLICE = 0.02  # seconds that masks wait for the automata's lock while others are open
_LOOK_EVERY = 16  # passes between two checks of waiting jobs for timeouts
_KEPT_KINDS = 256
_KEPT_USAGES = 8  # outputs of one kind from which the next is estimated


@dataclass(eq=False, slots=True)
class Job:
    """A request for one output.

    Attributes:
        run: the output, not begun.
        on_chunks: called with its text as it becomes final, by the thread that calls `step`.
        on_end: called after it has ended, with the error if it failed.
        caller: jobs of one caller wait in one queue.
        kind: the same for outputs of one type, which have similar forced text; None: free text.
        batch_size: the most rows of its batch, even if that is slower; 1: no batch; None: as many
            as are worthwhile.
        owner: its owner. Owners share the model fairly, but not cached prompts.
        masked: whether it uses masks; if not, its batch may have rows of other owners.
    """

    run: Run
    on_chunks: Callable[[list[Chunk]], object]
    on_end: Callable[[Exception | None], object]
    caller: Hashable = None
    kind: Hashable = None
    batch_size: int | None = None
    owner: Hashable = None
    masked: bool = True

    @property
    def is_interrupted(self) -> bool:
        """Whether it is to end."""
        return self.run.is_interrupted

    def cancel(self) -> None:
        """Request its end, from any thread."""
        self.run.cancel()


@dataclass(eq=False, slots=True)
class WorkJob:
    """Other work on the model, which yields before each pass.

    Attributes:
        work: the work, not begun.
        on_end: called after it has ended, with its result and None, or None and the error.
        caller: as for `Job`.
        timeout: the most seconds, waiting included.
        began: the start of the timeout, by `time.perf_counter`.
        owner: as for `Job`.
    """

    work: Passes[Any]
    on_end: Callable[[Any, Exception | None], object]
    caller: Hashable = None
    timeout: float | None = None
    began: float = field(default_factory=time.perf_counter)
    owner: Hashable = None
    _is_cancelled: bool = False

    @property
    def _is_late(self) -> bool:
        return self.timeout is not None and time.perf_counter() > self.began + self.timeout

    @property
    def is_interrupted(self) -> bool:
        """Whether it is to end."""
        return self._is_cancelled or self._is_late

    def cancel(self) -> None:
        """Request its end, from any thread."""
        self._is_cancelled = True

    def check_interrupted(self) -> None:
        """Check that it need not end.

        Raises:
            IncompleteOutput: it must end.
        """
        if self._is_late:
            raise IncompleteOutput(
                f"There is no result: it timed out (timeout={self.timeout:g} seconds).", text=""
            )
        if self._is_cancelled:
            raise IncompleteOutput("There is no result: it was cancelled.", text="")


def _may_share(rows: Sequence[Job], job: Job) -> bool:
    """Return whether a job may be in one batch with others: all of one owner, or each of a
    different one.

    Many rows of one owner would slow down another owner's single row; and masks of one would delay
    all rows.
    """
    owners = {row.owner for row in rows}
    if owners == {job.owner}:
        return True
    is_one_each = len(owners) == len(rows) and job.owner not in owners
    return is_one_each and not (job.masked or rows[0].masked)


_NUMBERS = itertools.count()


class _Unit:
    """A unit that gets passes: an output, or a batch."""

    def __init__(self, jobs: Sequence[Job | WorkJob]) -> None:
        self.jobs = list(jobs)
        self.steps: Iterator[None] = iter(())
        self.has_begun = False  # whether it is before its first pass, or further
        self.gave_way = False  # whether a new one was put before it since its last pass
        self.number = next(_NUMBERS)

    @property
    def owners(self) -> set[Hashable]:
        """The owners of its outputs. The one with the least time decides when it has a turn."""
        return {job.owner for job in self.jobs}

    @property
    def owner(self) -> Hashable:
        """The owner whose prompts it reuses and keeps; None for a batch of several owners."""
        owners = self.owners
        return owners.pop() if len(owners) == 1 else object()

    @property
    def is_masked(self) -> bool:
        """Whether it uses masks."""
        return any(isinstance(job, Job) and job.masked for job in self.jobs)

    @property
    def is_blocked(self) -> bool:
        """Whether it has to wait for checks in another process."""
        if len(self.jobs) != 1:
            return False  # no row of a batch has such checks
        job = self.jobs[0]
        return isinstance(job, Job) and job.run.part.is_blocked


def heavy(jobs: Iterable[Job | WorkJob]) -> set[Hashable]:
    """Return owners whose outputs have several automata, of more than `MOST_FORM_BYTES`."""
    engines: dict[Hashable, set[Any]] = {}
    for job in jobs:
        cursor = job.run.part.progress.cursor if isinstance(job, Job) else None
        if cursor is not None:
            engines.setdefault(job.owner, set()).add(cursor.engine)
    return {
        owner
        for owner, used in engines.items()
        if len(used) > 1 and sum(engine.whole_weight() for engine in used) > MOST_FORM_BYTES
    }


@final
class Scheduler:
    """Lets many outputs share a model. `submit` and `cancel` from any thread, the rest from one.

    Attributes:
        passed: seconds of all passes so far.
    """

    def __init__(
        self,
        model: Model,
        *,
        open_at_rest: int = OPEN_AT_REST,
        most_outputs: int = MOST_OUTPUTS,
        patience: int = PATIENCE,
        batch_size: int | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Start without work.

        Args:
            model: the model; others may use it, too.
            open_at_rest: see `OPEN_AT_REST`.
            most_outputs: see `MOST_OUTPUTS`.
            patience: see `PATIENCE`.
            batch_size: the most rows of a batch, overriding jobs; 1: no batches; None: as set by
                jobs.
            clock: returns the time that passes take.
        """
        self._model = model
        self._at_rest = open_at_rest
        self._most = most_outputs
        self._patience = patience
        self._batch_size = batch_size
        self._awake = threading.Event()
        self._inbox: deque[Job | WorkJob] = deque()
        self._cancelled: deque[Job | WorkJob] = deque()
        self._waiting: OrderedDict[Hashable, deque[Job | WorkJob]] = OrderedDict()
        self._units: deque[_Unit] = deque()
        self._passes = 0
        self._since = 0  # the pass since which a job has waited
        self._gathered = 0  # the pass since which waiting jobs gather
        self._usages: OrderedDict[Hashable, deque[Usage]] = OrderedDict()
        self._clock = clock
        self._having = threading.Lock()
        self._had: dict[Hashable, float] = {}  # time, by owner
        self._heavy: set[Hashable] = set()  # see `heavy`
        self._least = 0.0  # the used time of the owner of the last turn
        self._ready: set[Hashable] = set()  # owners who can continue
        self.passed = 0.0
        # units that have waited for the automata's lock since a pass
        self._held_up: set[_Unit] = set()

    # -- from any thread --------------------------------------------------------------------

    def submit(self, jobs: Sequence[Job | WorkJob]) -> None:
        """Add jobs. Those added together may begin together."""
        self._inbox.extend(jobs)
        self._awake.set()

    def cancel(self, job: Job | WorkJob) -> None:
        """End a job where it is, after the current pass of the model."""
        job.cancel()
        self._cancelled.append(job)
        self._awake.set()

    def charge(self, owner: Hashable, time: float) -> None:
        """Count time that was used on behalf of an owner."""
        with self._having:
            self._had[owner] = self._had.get(owner, self._least) + time

    def is_ahead(self, owner: Hashable) -> bool:
        """Return whether an owner has used more time, by `_LEAD`, than another who can continue."""
        with self._having:
            had = self._had.get(owner, self._least) - _LEAD
            return any(self._had[other] < had for other in self._ready if other != owner)

    # -- from the model's thread ------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until `step` may have something to do; False if it has not by then."""
        return self._awake.wait(timeout)

    def wake(self) -> None:
        """End a `wait`, from any thread."""
        self._awake.set()

    @property
    def n_open(self) -> int:
        """The number of outputs that have begun and not ended."""
        return sum(len(unit.jobs) for unit in self._units)

    def step(self) -> bool:
        """Give a pass of the model to the owner whose turn it is; False if there is nothing to
        do."""
        self._awake.clear()
        has_begun = False
        while not has_begun:
            self._take_in()
            while self._may_open():
                self._open()
            unit = self._turn()
            if unit is None:
                return False
            has_begun, unit.has_begun, unit.gave_way = unit.has_begun, True, False
            if self._advance(unit):
                self._units.insert(len(self._units) if has_begun else 0, unit)
        self._passes += 1
        self._awake.set()
        return True

    def _turn(self) -> _Unit | None:
        """Return the next unit, of those that do not wait for checks in another process."""
        paused = self._paused()
        ready = [unit for unit in self._units if unit not in paused and not unit.is_blocked]
        with self._having:
            self._ready = {owner for unit in ready for owner in unit.owners}
            if not self._units:
                self._had.clear()  # nobody waits for them to have had less
            if not ready:
                return None
            had = {owner: time for owner, time in self._had.items() if time > self._least}
            for owner in self._ready:
                had.setdefault(owner, self._least)
            self._had = had
            if self._held_up.issuperset(ready):
                self._held_up.clear()
            free = (unit for unit in ready if unit not in self._held_up)
            unit = min(free, key=lambda unit: min(had[owner] for owner in unit.owners))
            self._least = min(had[owner] for owner in self._ready)
        self._units.remove(unit)
        return unit

    def _paused(self) -> set[_Unit]:
        """Return units that wait for their owner's oldest one, because together they take too much
        memory."""
        if len(self._units) < 2:
            return set()
        if self._passes % _LOOK_EVERY == 0:
            self._heavy = heavy(job for unit in self._units for job in unit.jobs)
        held: Counter[Hashable] = Counter()
        oldest: dict[Hashable, int] = {}
        for unit in self._units:
            for job in unit.jobs:
                held[job.owner] += job.run.part.tokens.length if isinstance(job, Job) else 0
                oldest[job.owner] = min(unit.number, oldest.get(job.owner, unit.number))
        most = OPEN_AT_REST * self._model.context_length
        return {
            unit
            for unit in self._units
            if all(
                (held[one] > most or one in self._heavy) and unit.number > oldest[one]
                for one in unit.owners
            )
        }

    # -- who waits --------------------------------------------------------------------------

    def _take_in(self) -> None:
        if self._inbox and not self._waiting:
            self._since = self._gathered = self._passes
        while self._inbox:
            job = self._inbox.popleft()
            self._waiting.setdefault(job.caller, deque()).append(job)
        if self._cancelled or self._passes % _LOOK_EVERY == 0:
            self._cancelled.clear()
            self._end_interrupted()

    def _end_interrupted(self) -> None:
        """End waiting jobs that are cancelled or timed out."""
        for caller in list(self._waiting):
            line = self._waiting[caller]
            gone = [job for job in line if job.is_interrupted]
            for job in gone:
                line.remove(job)
            if not line:
                del self._waiting[caller]
            for job in gone:
                for _ in self._work(job) if isinstance(job, WorkJob) else self._alone(job):
                    pass  # no pass of the model: it ends at once
        for unit in list(self._units):
            if all(job.is_interrupted for job in unit.jobs):
                self._units.remove(unit)
                while self._advance(unit):  # no pass: each ends at once
                    pass

    def _may_open(self) -> bool:
        if not self._waiting:
            return False
        is_due = self._passes - self._since >= self._patience
        has_room = self.n_open < self._most and (len(self._units) < self._at_rest or is_due)
        if has_room and not self._gathers():
            self._gathered = self._passes
            return True
        open_of = {owner for unit in self._units for owner in unit.owners}
        return any(line[0].owner not in open_of for line in self._waiting.values())

    def _gathers(self) -> bool:
        """Return whether waiting jobs should wait for others to join; see `Pace.gather`."""
        if self._passes - self._gathered >= self._model.pace.gather or self.n_open < self._at_rest:
            return False
        lines = self._waiting.values()
        rows = [self._rows(line[0]) if isinstance(line[0], Job) else 1 for line in lines]
        return min(rows) > 1 and sum(map(len, lines)) < min(self.n_open, max(rows))

    def _open(self) -> None:
        """Begin the output whose turn it is, with others in a batch if that is worthwhile."""
        first = self._next()
        self._since = self._passes
        if isinstance(first, WorkJob):
            unit = _Unit([first])
            unit.steps = self._work(first)
        else:
            jobs = self._companions(first)
            if any(line[0].owner == first.owner for line in self._waiting.values()):
                self._gathered = self._passes - self._model.pace.gather  # they did not fit in
            unit = _Unit(jobs)
            unit.steps = self._alone(first) if len(jobs) == 1 else self._together(unit, jobs)
        # First, but after those that gave way to another: see "Turns" above.
        rivals = [(i, one) for i, one in enumerate(self._units, 1) if one.owners & unit.owners]
        place = max((i for i, one in rivals if one.gave_way), default=0)
        for i, one in rivals:
            one.gave_way |= i > place
        self._units.insert(place, unit)

    def _next(self) -> Job | WorkJob:
        open_of = Counter(job.owner for unit in self._units for job in unit.jobs)
        caller = min(self._waiting, key=lambda caller: open_of[self._waiting[caller][0].owner])
        line = self._waiting.pop(caller)
        job = line.popleft()
        if line:
            self._waiting[caller] = line  # last in turn
        return job

    def _companions(self, first: Job) -> list[Job]:
        """Return the jobs to begin together with a chosen one, including it."""
        size = min(self._rows(first), self._most - self.n_open)
        found = [first]
        longest = len(first.run.prompt_ids)
        shortest = longest
        for line in list(self._waiting.values()):
            for job in line:
                if isinstance(job, WorkJob):
                    continue
                length = len(job.run.prompt_ids)
                low, high = min(shortest, length), max(longest, length)
                rows = len(found) + 1
                if (
                    rows <= min(size, self._rows(job))
                    and job.run.adapter == first.run.adapter
                    and _may_share(found, job)
                    and high <= 1.5 * low + 16
                    and rows * high <= MOST_BATCH_PASSES * self._model.pace.longest_pass
                ):
                    found.append(job)
                    shortest, longest = low, high
        if len(found) == 1 or not self._gain(found):
            return [first]
        for job in found[1:]:
            line = self._waiting[job.caller]
            line.remove(job)
            if not line:
                del self._waiting[job.caller]
        return found

    def _rows(self, job: Job) -> int:
        """Return the most rows of a batch that a job may be in."""
        most = self._model.pace.rows if job.batch_size is None else job.batch_size
        if most > 1 and job.batch_size is None and job.kind is not None:
            most = most if job.kind in self._usages else 1
        most = min(most, self._model.most_rows)
        return most if self._batch_size is None else min(most, self._batch_size)

    def _gain(self, jobs: Sequence[Job]) -> bool:
        """Return whether these jobs are faster in a batch, or request one."""
        if all(job.batch_size is not None for job in jobs):
            return True
        if shares_much([job.run for job in jobs], self._model.pace):
            return False
        rows = len(jobs)
        for job in jobs:
            usages = self._usages.get(job.kind)
            if job.kind is None or job.batch_size is not None or usages is None:
                continue
            prompt = len(job.run.prompt_ids)
            shared = min(prompt, sum(usage.reused_tokens for usage in usages) / len(usages))
            if not batch_pays(usages, prompt, shared, rows, self._model.pace):
                return False
        return True

    # -- who is open ------------------------------------------------------------------------

    def _advance(self, unit: _Unit) -> bool:
        """Give it a pass, unless its masks must wait; return whether it continues."""
        with contextlib.ExitStack() as held:
            if unit.is_masked:
                if not GROW.acquire(timeout=_SLICE):
                    self._held_up.add(unit)
                    return True
                held.callback(GROW.release)  # between two masks nobody else takes it
            self._held_up.clear()
            began, payers = self._clock(), self._payers(unit)
            try:
                begin_slice()
                with sharing(unit.owner):
                    next(unit.steps)
            except StopIteration:
                return False
            finally:
                took = self._clock() - began
                self.passed += took
                for owner in payers:
                    self.charge(owner, took / len(payers))
        return True

    def _payers(self, unit: _Unit) -> Sequence[Hashable]:
        """Return the owners who pay for the next pass, in equal parts.

        In a batch of several owners, all pay for the prompts, then the one with the least time,
        whose turn it is. If all paid, an owner who is ahead would stay ahead until the batch ends,
        and get no other turn.
        """
        owners = [job.owner for job in unit.jobs]
        runs = [job.run for job in unit.jobs if isinstance(job, Job)]
        if not any(run.part.tokens.length > len(run.prompt_ids) for run in runs):
            return owners
        with self._having:
            return [min(owners, key=lambda owner: self._had.get(owner, self._least))]

    def _work(self, job: WorkJob) -> Iterator[None]:
        """Run other work, up to before each of its passes."""
        result = None
        try:
            try:
                while True:
                    job.check_interrupted()
                    next(job.work)
                    yield
            except StopIteration as end:
                result = end.value
            finally:
                job.work.close()  # may fail, too
        except Exception as error:
            job.on_end(result, error)
        else:
            job.on_end(result, None)

    def _alone(self, job: Job) -> Iterator[None]:
        run = job.run
        try:
            for chunks in made(self._model, run):
                if chunks:
                    job.on_chunks(chunks)
                if run.finish_reason is None or run.part.n_wanted:
                    yield
            if job.kind is not None:
                self._note(job)
        except Exception as error:
            job.on_end(error)
        else:
            job.on_end(None)

    def _note(self, job: Job) -> None:
        """Store the usage of an output made alone, for others of its kind."""
        usages = self._usages.setdefault(job.kind, deque(maxlen=_KEPT_USAGES))
        usages.append(job.run.result.usage)
        self._usages.move_to_end(job.kind)
        if len(self._usages) > _KEPT_KINDS:
            self._usages.popitem(last=False)

    def _together(self, unit: _Unit, together: Sequence[Job]) -> Iterator[None]:
        jobs = dict(enumerate(together))
        errors: dict[int, Exception] = {}

        def end(index: int) -> None:
            unit.jobs = [job for job in unit.jobs if job is not jobs[index]]
            jobs[index].on_end(errors.get(index))

        rows = Rows(
            self._model,
            {index: job.run for index, job in jobs.items()},
            errors,
            on_chunks=lambda index, chunks: jobs[index].on_chunks(chunks),
            on_end=end,
        )
        try:
            left = yield from rows.together()
        except Exception:
            errors.clear()  # each has been reported
            return
        for index in left[1:]:
            other = _Unit([jobs[index]])
            other.steps = rows.alone(index)
            unit.jobs.remove(jobs[index])
            other.has_begun = True
            if self._advance(other):
                self._units.append(other)
        if left:
            yield from rows.alone(left[0])
