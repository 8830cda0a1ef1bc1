"""Whose turn it is: counted in passes and tokens of a model, with no process and no real clock."""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import itertools
import math
import random
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fakes import FakeModel, FakeSequence
from models.tiny_vision import png

from structgen import Generator
from structgen.automaton.core import GROW
from structgen.constraint import compile as compile_constraint
from structgen.constraint import constraint as constraint_module
from structgen.decoding import Generation, Prepared, SearchOptions, Task, encode
from structgen.errors import IncompleteOutput, OptionError, let_go
from structgen.media import Image
from structgen.models import base
from structgen.models.base import ON_GPU, PREFIXES_OF
from structgen.types import Cfg, Regex
from structgen.workers import Job, Scheduler, WorkJob
from structgen.workers import scheduler as scheduler_module
from structgen.workers import worker as worker_module
from structgen.workers.protocol import Call, Cancel, ErrandCall, Frames, packed
from structgen.workers.scheduler import OPEN_AT_REST, heavy
from structgen.workers.worker import _Asked, _Output, _Prompt, _Worker


class Counting(FakeModel):
    """Counts passes, and says which prompt each was for; a token takes a second."""

    def __init__(self, **options: Any) -> None:
        super().__init__("abcdefghijklmnopqrstuvwxyz", context_length=4096, **options)
        self.passes: list[str] = []
        self.time = 0.0

    def start(self, max_length: int, **options: Any) -> FakeSequence:
        sequence = super().start(max_length, **options)
        prompt = bytes(self.vocabulary.tokens[options["prefix"][0]]).decode(errors="replace")
        append = sequence.append

        def counted(token_ids: Any) -> None:
            self.passes.append(prompt)
            self.time += len(token_ids)
            append(token_ids)

        sequence.append = counted  # type: ignore[method-assign]
        return sequence

    def start_batch(self, rows: Any, room: int, **options: Any) -> Any:
        batch = super().start_batch(rows, room, **options)
        if batch is not None:
            self.passes.append("batch")
            extend = batch.extend

            def counted(token_ids: Any) -> None:
                self.passes.append("batch")
                self.time += 1
                extend(token_ids)

            batch.extend = counted  # type: ignore[method-assign]
        return batch


class Office:
    """A scheduler, and what became of the jobs handed in."""

    def __init__(self, model: FakeModel, **options: Any) -> None:
        self.model = model
        clock = (lambda: model.time) if isinstance(model, Counting) else (lambda: 0.0)
        self.scheduler = Scheduler(model, **{"clock": clock, **options})
        self.texts: dict[str, str] = {}
        self.ended: dict[str, Exception | None] = {}
        self.jobs: dict[str, Job] = {}

    def ask(self, prompt: str, constraint: Any = None, **job: Any) -> Job:
        search = SearchOptions(**{"max_new_tokens": 5, **job.pop("search", {})})
        run = Generation(self.model, constraint, None, encode(self.model, prompt), search)
        made = Job(
            run,
            lambda chunks: self.texts.update(
                {prompt: self.texts.get(prompt, "") + "".join(chunks)}
            ),
            lambda error: self.ended.update({prompt: error}),
            **{"caller": prompt, "batch_size": 1, **job},
        )
        self.jobs[prompt] = made
        self.scheduler.submit([made])
        return made

    def finish(self) -> None:
        while self.scheduler.step():
            pass

    def finish_one(self, prompt: str) -> None:
        while prompt not in self.ended:
            self.scheduler.step()

    def close(self) -> None:
        for job in self.jobs.values():
            self.scheduler.cancel(job)
        self.finish()


def asked(call: Call | ErrandCall) -> _Asked:
    return _Asked(call, _Prompt(call))


def output_of(number: int, prompt: Any = "a", owner: str | None = None, **its: Any) -> Call:
    its = {"prompt_id": number, "type_key": b"", "search": SearchOptions(), **its}
    rest: dict[str, Any] = {"lowered": None, "wants_chunks": False, "checks_sure": False}
    return Call(number, 1, prompt=prompt, index=0, owner=owner, **its, **rest)


@pytest.fixture(autouse=True)
def _no_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work between passes is not divided by time: on a busy machine, steps would differ."""
    monkeypatch.setattr(base, "AT_ONCE", math.inf)


def test_each_has_a_pass_in_turn() -> None:
    model = Counting()
    office = Office(model)
    for prompt in "ABC":
        office.ask(prompt)
    office.finish()
    # A gives way to B alone; the last pass of each would be for a token not wanted.
    assert "".join(model.passes) == "BAC" * 5
    assert office.texts == {"A": "abcde", "B": "abcde", "C": "abcde"}
    assert office.ended == {"A": None, "B": None, "C": None}


def test_a_long_prompt_lets_others_go_between() -> None:
    model = Counting()
    office = Office(model)
    office.ask("L" + "x" * 400)
    office.scheduler.step()
    office.ask("S")
    office.finish()
    told = "".join(model.passes)
    assert told[:2] == "LS"
    assert told.count("L") >= 7 + 4  # 401 tokens in passes of 64, then four more
    assert "LL" not in told[: 2 * 5]  # turn and turn about while both are open


@pytest.mark.parametrize("most", [0, 1 << 40])
def test_only_the_oldest_output_of_an_owner_with_large_automata_continues(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_module, "MOST_FORM_BYTES", most)
    model = Counting()
    office = Office(model, patience=2)
    for prompt in "ABCDEFGH":
        form = compile_constraint(Regex(f"[a-z]{{60}}|{prompt}"), model.vocabulary)
        office.ask(prompt, form, owner="much", search={"max_new_tokens": 61})
    while not office.ended:
        office.scheduler.step()
    assert (set(model.passes[-20:]) == {"A"}) == (most == 0)
    office.ask("Z", compile_constraint(Regex("[a-z]{4}"), model.vocabulary), owner="other")
    office.finish()
    assert set(office.ended.values()) == {None}


def test_an_output_that_outgrows_its_cache_lets_others_go_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outgrown = []

    def make_room(sequence: FakeSequence, length: int) -> int:
        if length > 320 and not outgrown:
            outgrown.append(length)
            sequence.rewind(0)
        return sequence.length

    monkeypatch.setattr(FakeSequence, "make_room", make_room)
    model = Counting()
    office = Office(model)
    office.ask("L" + "x" * 300, search={"max_new_tokens": 20})
    office.ask("S", search={"max_new_tokens": 26})
    times = []
    while office.scheduler.step():
        times += [model.time] if model.passes[-1] == "S" else []
    assert outgrown
    assert sum(b - a > 60 for a, b in itertools.pairwise(times)) >= 2 * 4
    assert max(b - a for a, b in itertools.pairwise(times)) <= 64 + 1
    assert office.ended == {"L" + "x" * 300: None, "S": None}


@pytest.mark.parametrize(("context", "least", "greatest"), [(4096, 200, 310), (30, 100, 180)])
def test_an_owner_holds_no_more_tokens_than_some_contexts_have(
    context: int, least: int, greatest: int
) -> None:
    """32 outputs that fill the context of SmolLM2 were 11 GB in the model's process."""
    model = Counting()
    model.context_length = context
    office = Office(model, patience=2)
    for prompt in "ABCDEFGHIJ":
        office.ask(prompt, owner="much", search={"max_new_tokens": 26})
    office.ask("Z", owner="other", search={"max_new_tokens": 26})
    most = 0
    while office.scheduler.step():
        most = max(most, sum(one.length for one in model.started if not one.closed))
    assert least < most < greatest
    assert office.ended == dict.fromkeys("ABCDEFGHIJZ")
    assert "".join(model.passes).rindex("Z") < 2 * 26 + 8


def test_a_newcomer_has_the_next_pass() -> None:
    model = Counting()
    office = Office(model)
    for prompt in "ABC":
        office.ask(prompt, search={"max_new_tokens": 20})
    for _ in range(7):
        office.scheduler.step()
    office.ask("N")
    office.scheduler.step()
    assert model.passes[-1] == "N"
    office.finish()


@pytest.mark.parametrize("n_others", [0, 1])
@pytest.mark.parametrize("n_clients", [2, 3, 5])
def test_newcomers_of_one_pass_hold_up_nobody_for_ever(n_clients: int, n_others: int) -> None:
    """A long output had no pass while two clients asked for one token again and again, if the
    passes of another owner came between, too."""
    model = Counting()
    office = Office(model)
    office.ask("L", search={"max_new_tokens": 20})
    owners = [None] * n_clients + ["other"] * n_others
    asked = [""] * len(owners)
    shorts = (f"S{number}" for number in itertools.count())
    while "L" not in office.ended:
        for client, owner in enumerate(owners):
            if not asked[client] or asked[client] in office.ended:
                asked[client] = next(shorts)
                office.ask(asked[client], search={"max_new_tokens": 1}, owner=owner)
        office.scheduler.step()
        assert len(model.passes) < 20 * 2 * (n_clients + 1) * (n_others + 1)
    office.close()


def test_few_are_open_and_nobody_waits_longer_than_patience() -> None:
    model = Counting()
    office = Office(model, open_at_rest=2, patience=6, most_outputs=4)
    for prompt in "ABCDEF":
        office.ask(prompt, search={"max_new_tokens": 26})
    opened = {}
    while office.scheduler.step():
        for prompt in model.passes:
            opened.setdefault(prompt, len(model.passes) - 1)
        assert office.scheduler.n_open <= 4
    assert [opened[prompt] for prompt in "AB"] == [1, 0]
    assert opened["C"] == 6
    assert opened["D"] == 12
    assert opened["E"] > 26  # four were open
    assert set(office.ended.values()) == {None}


def test_an_owner_pays_for_what_its_masks_take() -> None:
    model = Counting()
    office = Office(model)
    for prompt in "EFGH":
        job = office.ask(prompt, owner="evil", search={"max_new_tokens": 20})

        def works(chunks: Any, told: Any = job.on_chunks) -> None:
            model.time += 10
            told(chunks)

        job.on_chunks = works
    for _ in range(6):
        office.scheduler.step()
    before = len(model.passes)
    office.ask("N", owner="good", search={"max_new_tokens": 20})
    office.finish()
    others = "".join(model.passes[before:]).rindex("N") + 1 - 20
    assert others <= 3
    assert set(office.ended.values()) == {None}


def test_outputs_that_are_slow_to_begin_hold_up_another_owner_once() -> None:
    model = Counting()
    office = Office(model)
    for prompt in "EFGH":
        run = office.ask(prompt, owner="evil").run

        def starts(start: Any = run.start, **options: Any) -> None:
            model.time += 100  # such as looking for what the text begins with
            start(**options)

        run.start = starts  # type: ignore[method-assign]
    office.ask("N", owner="good", search={"max_new_tokens": 20})
    office.finish_one("N")
    assert model.time < 2 * 100
    office.finish()
    assert set(office.ended.values()) == {None}


def test_long_prompts_of_an_owner_take_no_more_time_than_another_has() -> None:
    model = Counting()
    office = Office(model)
    for prompt in "EFGHIJ":
        office.ask(prompt + "x" * 1000, owner="much")
    for _ in range(4):
        office.scheduler.step()
    before, began = len(model.passes), model.time
    office.ask("N", owner="little", search={"max_new_tokens": 20})
    office.finish_one("N")
    told = "".join(model.passes[before:])
    assert told.count("N") == 20
    assert model.time - began <= 20 + 64
    office.finish()
    assert set(office.ended.values()) == {None}


@contextlib.contextmanager
def compiling() -> Iterator[threading.Thread]:
    """Another thread holds the lock of compilations, for at most a minute."""
    held, free = threading.Event(), threading.Event()

    def hold() -> None:
        with GROW:
            held.set()
            free.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        yield thread
    finally:
        free.set()
        thread.join()


def test_a_form_that_is_compiled_holds_up_masks_alone() -> None:
    model = Counting()
    office = Office(model, clock=time.perf_counter)  # a wait takes time
    letters = compile_constraint(Regex("[a-z]{9}"), model.vocabulary)
    office.ask("A", letters, owner="a", search={"max_new_tokens": 20})
    office.ask("B", owner="b", masked=False)
    office.scheduler.step()
    office.scheduler.step()
    before = model.passes.count("A")
    with compiling():
        office.finish_one("B")  # for ever, if the model's thread waited for the lock
        assert model.passes.count("A") == before
    office.finish()
    assert set(office.ended.values()) == {None}


def test_who_waits_for_a_form_of_another_pays_for_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Counting()
    office = Office(model)
    letters = compile_constraint(Regex("[a-z]{9}"), model.vocabulary)
    is_free = True

    def acquire(timeout: float) -> bool:
        model.time += 0 if is_free else 100
        return is_free

    lock = SimpleNamespace(acquire=acquire, release=lambda: None)
    monkeypatch.setattr("structgen.workers.scheduler.GROW", lock)
    for prompt in "AC":
        office.ask(prompt, letters, owner=prompt, search={"max_new_tokens": 20})
    office.ask("B", owner="b", masked=False, search={"max_new_tokens": 40})
    for _ in range(6):
        office.scheduler.step()
    before, is_free = len(model.passes), False
    while len(model.passes) < before + 10:
        office.scheduler.step()
    assert model.passes[before:] == ["B"] * 10
    is_free = True
    for _ in range(10):
        office.scheduler.step()
    assert sorted(model.passes[-10:]) == ["A"] * 5 + ["C"] * 5
    office.finish()
    office.ask("D", letters, owner="d", search={"max_new_tokens": 20})
    before, is_free = len(model.passes), False
    for _ in range(5):
        office.scheduler.step()
    assert len(model.passes) == before
    office.scheduler.charge("e", 250)
    assert office.scheduler.is_ahead("e")  # D is alone, and has had nothing
    is_free = True
    office.finish()


def test_an_owner_is_ahead_until_those_who_can_go_on_have_had_as_much() -> None:
    model = Counting()
    office = Office(model)
    office.scheduler.charge("a", 8)
    assert not office.scheduler.is_ahead("a")  # nobody else wants anything
    office.ask("B", owner="b", search={"max_new_tokens": 20})
    office.scheduler.step()
    ahead = 0
    while office.scheduler.is_ahead("a"):
        assert not office.scheduler.is_ahead("b")
        office.scheduler.step()
        ahead += 1
    assert ahead == 7
    office.finish()
    assert not office.scheduler.is_ahead("b")


def test_an_owner_pays_for_what_is_compiled() -> None:
    model = Counting()
    office = Office(model)
    office.ask("A", owner="a", search={"max_new_tokens": 20})
    office.ask("B", owner="b", search={"max_new_tokens": 20})
    office.scheduler.step()
    office.scheduler.charge("a", 8)
    for _ in range(7):
        office.scheduler.step()
    assert model.passes == ["B"] * 8
    office.finish()


def test_nobody_saves_time_up() -> None:
    model = Counting()
    office = Office(model)
    office.ask("A", owner="a", search={"max_new_tokens": 25})
    office.ask("B", owner="b", search={"max_new_tokens": 2})
    for _ in range(10):
        office.scheduler.step()
    office.ask("C", owner="b", search={"max_new_tokens": 20})  # back after 6 passes
    before = len(model.passes)
    for _ in range(20):
        office.scheduler.step()
    assert 9 <= model.passes[before:].count("A") <= 11
    office.close()


def test_owners_have_as_many_passes_each() -> None:
    model = Counting()
    office = Office(model, open_at_rest=8)
    for prompt in "EFGHIJ":
        office.ask(prompt, owner="much", search={"max_new_tokens": 20})
    for _ in range(8):
        office.scheduler.step()
    before = len(model.passes)
    office.ask("N", owner="little", search={"max_new_tokens": 20})
    office.finish()
    told = "".join(model.passes[before:])
    assert told.rindex("N") <= 2 * 20
    assert {told[: 2 * 20].count(prompt) for prompt in "EFGHIJ"} == {3, 4}


def test_an_owner_with_nothing_open_waits_for_no_other() -> None:
    model = Counting()
    office = Office(model, open_at_rest=2, patience=1000)
    for prompt in "EFGH":
        office.ask(prompt, owner="evil", search={"max_new_tokens": 20})
    office.scheduler.step()
    assert office.scheduler.n_open == 2
    office.ask("N", owner="good")
    office.ask("O", owner="good")
    office.scheduler.step()
    assert office.scheduler.n_open == 3
    assert model.passes[-1] == "N"
    office.finish()
    assert set(office.ended.values()) == {None}


def test_an_owner_who_has_all_that_may_be_open_keeps_nobody_out() -> None:
    model = Counting()
    office = Office(model, most_outputs=4)
    for prompt in "EFGHIJ":
        office.ask(prompt, owner="evil", search={"max_new_tokens": 20})
    office.scheduler.step()
    assert office.scheduler.n_open == 4
    office.ask("N", owner="good")
    office.ask("O", owner="good")
    office.scheduler.step()
    assert office.scheduler.n_open == 5
    assert model.passes[-1] == "N"
    office.finish()
    assert set(office.ended.values()) == {None}


def test_prompts_are_shared_within_an_owner_only() -> None:
    seen: dict[str, Any] = {}

    class Watching(Counting):
        def start(self, max_length: int, **options: Any) -> FakeSequence:
            sequence = super().start(max_length, **options)
            seen[bytes(self.vocabulary.tokens[options["prefix"][0]]).decode()] = PREFIXES_OF.get()
            return sequence

    office = Office(Watching())
    for prompt, owner in (("A", "a"), ("B", "b"), ("C", None)):
        office.ask(prompt, owner=owner, batch_size=None)  # also in no batch
    office.finish()
    assert seen == {"A": "a", "B": "b", "C": None}
    assert "batch" not in office.model.passes  # type: ignore[attr-defined]
    assert PREFIXES_OF.get() is None


def test_free_text_of_several_owners_shares_passes_but_no_prompts() -> None:
    office = Office(Counting())
    seen = set()
    for prompt, owner in (("A", "a"), ("B", "b"), ("C", None)):
        office.ask(prompt, owner=owner, batch_size=None, masked=False)
    while office.scheduler.step():
        seen |= {unit.owner for unit in office.scheduler._units}
    assert set(office.model.passes) == {"batch"}  # type: ignore[attr-defined]
    assert not seen & {"a", "b", None}


def test_what_is_left_of_a_batch_of_several_takes_turns_as_its_owners() -> None:
    model = Counting()
    office = Office(model)
    about: Any = {"batch_size": None, "masked": False}
    for prompt in "ABCDE":
        office.ask(prompt, owner="much", search={"max_new_tokens": 400}, **about)
        office.ask(prompt.lower(), owner="little", search={"max_new_tokens": 2}, **about)
        office.finish_one(prompt.lower())
    before = len(model.passes)
    office.ask("N", owner="little", search={"max_new_tokens": 40})
    office.finish_one("N")
    assert len(model.passes) - before <= 2 * 40 + 1
    office.close()


def test_batches_of_two_owners_are_no_further_owners() -> None:
    model = Counting()
    office = Office(model)
    about: Any = {"batch_size": None, "masked": False}
    for left, right in zip("ABCDEFGH", "IJKLMNOP", strict=True):
        office.ask(left, owner="one", search={"max_new_tokens": 400}, **about)
        office.ask(right, owner="two", search={"max_new_tokens": 400}, **about)
    for _ in range(20):
        office.scheduler.step()
    assert all({job.owner for job in u.jobs} == {"one", "two"} for u in office.scheduler._units)
    before = len(model.passes)
    office.ask("Z", owner="little", search={"max_new_tokens": 20})
    office.finish_one("Z")
    assert len(model.passes) - before <= 3 * 20 + 1
    office.close()


def test_who_has_a_row_in_a_batch_of_several_has_turns_for_the_rest() -> None:
    model = Counting()
    office = Office(model)
    for prompt, owner in (("A", "one"), ("B", "two")):
        office.ask(
            prompt, owner=owner, batch_size=None, masked=False, search={"max_new_tokens": 400}
        )
    for _ in range(4):
        office.scheduler.step()
    office.ask("N", owner="one", search={"max_new_tokens": 400})
    office.ask("O", owner="three", search={"max_new_tokens": 400})
    before = len(model.passes)
    for _ in range(18):
        office.scheduler.step()
    told = model.passes[before:]
    assert "A" not in office.ended
    assert told.count("N") >= 3  # half of what its owner has
    assert 5 <= told.count("O") <= 7
    office.close()


def test_an_owners_many_rows_are_in_no_batch_of_another() -> None:
    office = Office(Counting())
    for prompt, owner in (("A", "a"), ("B", "b"), ("C", "a"), ("D", "a"), ("E", "c")):
        office.ask(prompt, owner=owner, batch_size=None, masked=False)
    together = set()
    while office.scheduler.step():
        together |= {tuple(job.owner for job in u.jobs) for u in office.scheduler._units}
    assert {owners for owners in together if len(owners) > 1} == {("a", "b", "c"), ("a", "a")}


def test_callers_take_turns_where_one_asks_for_much() -> None:
    model = Counting()
    office = Office(model, open_at_rest=1, patience=1000)
    for i in range(8):
        office.ask(f"M{i}", caller="many")
    office.scheduler.step()
    office.ask("O", caller="one")
    office.finish()
    order = [p for i, p in enumerate(model.passes) if i == 0 or model.passes[i - 1] != p]
    assert order[:3] == ["M", "O", "M"]


def test_a_cancelled_output_gets_no_further_pass() -> None:
    model = Counting()
    office = Office(model)
    letters = compile_constraint(Regex("[a-z]{20}"), model.vocabulary)
    office.ask("A", letters, search={"max_new_tokens": 25})
    office.ask("B")
    for _ in range(4):
        office.scheduler.step()
    n = model.passes.count("A")
    office.scheduler.cancel(office.jobs["A"])
    office.scheduler.step()
    assert isinstance(office.ended["A"], IncompleteOutput)
    office.finish()
    assert model.passes.count("A") == n
    assert office.ended["B"] is None
    assert all(sequence.closed for sequence in model.started)


def test_who_waits_and_is_cancelled_never_begins() -> None:
    model = Counting()
    office = Office(model, open_at_rest=1, patience=1000)
    office.ask("A")
    office.ask("B")
    office.scheduler.step()
    office.scheduler.cancel(office.jobs["B"])
    office.scheduler.step()
    assert office.ended == {"B": None}  # free text may end anywhere
    office.finish()
    assert "B" not in model.passes


def test_free_text_that_waits_begins_as_one_batch() -> None:
    model = Counting()
    office = Office(model, open_at_rest=1)
    for prompt in ("A", "B1", "C22", "D333"):
        office.ask(prompt, batch_size=None)
    office.finish()
    assert model.passes == ["batch"] * 5
    assert set(office.texts.values()) == {"abcde"}
    assert set(office.ended.values()) == {None}


def test_many_who_ask_one_after_the_other_share_batches_on_a_gpu() -> None:
    """Each began in a batch of its own, and such a batch takes as long as one of 32 rows there."""

    def passes(gather: int) -> tuple[int, int]:
        model = Counting()
        model.pace = replace(ON_GPU, gather=gather)
        office, r = Office(model), random.Random(1)
        due = [(r.randint(0, 3), client) for client in range(32)]
        began: dict[str, int] = {}
        waited: list[int] = []
        who: dict[str, int] = {}
        names = map(chr, itertools.count(0x4E00))
        for step in itertools.count():
            for _, client in [one for one in due if one[0] <= step]:
                prompt = next(names)
                who[prompt], began[prompt] = client, step
                search = {"max_new_tokens": r.randint(5, 20), "speculate": False}
                office.ask(prompt, batch_size=None, owner="all", search=search)
            due = [one for one in due if one[0] > step]
            office.scheduler.step()
            waited += [step - began.pop(prompt) for prompt in office.texts.keys() & began]
            due += [(step + r.randint(1, 3), who.pop(one)) for one in office.ended.keys() & who]
            if len(office.ended) > 300:
                assert set(office.ended.values()) == {None}
                office.close()
                return len(model.passes), sorted(waited)[len(waited) * 19 // 20]

    (one_by_one, waited), (together, waited_together) = passes(0), passes(64)
    assert together < 0.7 * one_by_one
    assert waited_together < waited


def test_nobody_waits_long_for_more_to_begin_with() -> None:
    """Those who fit into no batch together begin one after the other, and of an owner who comes
    again and again nobody waits longer for that."""

    def waits(
        prompts: list[str], *, others: bool = False, rows: int = 256, gather: int = 64
    ) -> list[int]:
        model = Counting()
        assert model.script is not None
        model.script = [*model.script[:-1] * 120, model.script[-1]]
        model.pace, model.most_rows = replace(ON_GPU, gather=gather), rows
        office = Office(model)
        forever = {"max_new_tokens": 3000, "speculate": False}
        for name in "ABCDEFGH":
            office.ask(name, owner="all", batch_size=None, search=forever)
        for _ in range(8):
            office.scheduler.step()
        for prompt in prompts:
            office.ask(prompt, owner="all", batch_size=None)
        found: dict[str, int] = {}
        for step in range(400):
            if others and step % 20 == 0:
                office.ask(f"{step}?", owner=step, batch_size=None)
            office.scheduler.step()
            found |= {one: step for one in prompts if one in office.texts and one not in found}
        office.close()
        return [found.get(one, 400) for one in prompts]

    lengths = [chr(0x61 + i) * 60 * (i + 1) for i in range(6)]
    assert max(waits(lengths)) < 100
    assert max(waits(["x"], others=True)) < 100
    assert waits(lengths, rows=1) == waits(lengths, rows=1, gather=0)


def test_rows_that_are_done_are_told_at_once() -> None:
    model = Counting()
    office = Office(model)
    office.ask("A", batch_size=None, search={"max_new_tokens": 2})
    office.ask("B", batch_size=None, search={"max_new_tokens": 9})
    office.finish_one("A")
    assert "B" not in office.ended
    assert office.scheduler.n_open == 1
    office.finish()
    assert office.texts == {"A": "ab", "B": "abcdefghi"}


def test_a_type_is_batched_once_its_outputs_say_that_it_pays() -> None:
    model = Counting()
    free = compile_constraint(Regex("[a-z]{5}"), model.vocabulary)
    forced = compile_constraint(Regex("0123456789(a|b)"), model.vocabulary)
    for constraint, batched in ((free, True), (forced, False)):
        model.passes.clear()
        office = Office(model, open_at_rest=1)
        for i in range(6):
            search = {"max_new_tokens": 12}
            office.ask(f"A{i}", constraint, kind="k", batch_size=None, search=search)
        office.finish()
        assert set(office.ended.values()) == {None}
        assert model.passes[0] == "A"
        assert ("batch" in model.passes) is batched


def test_all_of_a_batch_cancelled_is_no_pass_more() -> None:
    model = Counting()
    office = Office(model)
    for prompt in ("A", "B"):
        office.ask(prompt, batch_size=None)
    office.scheduler.step()
    n = len(model.passes)
    for prompt in ("A", "B"):
        office.scheduler.cancel(office.jobs[prompt])
    office.finish()
    assert len(model.passes) == n
    assert set(office.ended) == {"A", "B"}


def test_rows_that_cannot_share_a_batch_are_made_alone() -> None:
    model = Counting()
    model.batches_work = False
    office = Office(model)
    for prompt in "AB":
        office.ask(prompt, batch_size=4)
    office.finish()
    assert sorted(model.passes) == ["A"] * 5 + ["B"] * 5
    assert office.texts == {"A": "abcde", "B": "abcde"}


def test_an_error_is_its_own_affair() -> None:
    model = Counting()
    office = Office(model)

    def fail(token_ids: Any, logits: Any) -> Any:
        raise RuntimeError("broken")

    office.ask("A", search={"processor": fail})
    office.ask("B")
    office.finish()
    assert isinstance(office.ended["A"], RuntimeError)
    assert office.ended["B"] is None


@pytest.mark.parametrize("batch_size", [1, None])
def test_close_ends_all(batch_size: int | None) -> None:
    model = Counting()
    office = Office(model, open_at_rest=1)
    for prompt in "ABCDEF":
        office.ask(prompt, batch_size=batch_size, search={"max_new_tokens": 26})
    for _ in range(3):
        office.scheduler.step()
    n = len(model.passes)
    office.close()
    assert set(office.ended) == set("ABCDEF")
    assert len(model.passes) == n
    assert office.scheduler.n_open == 0


def counted(passes: list[str], name: str, n: int, result: Any = None) -> Any:
    for _ in range(n):
        yield
        passes.append(name)
    if isinstance(result, Exception):
        raise result
    return result


def test_other_work_takes_turns_with_outputs() -> None:
    model = Counting()
    office = Office(model)
    ended: list[Any] = []
    work = counted(model.passes, "w", 6, "done")
    office.scheduler.submit([WorkJob(work, lambda *told: ended.append(told))])
    office.ask("a")
    office.finish()
    assert "".join(model.passes).startswith("awawawawaw")
    assert ended == [("done", None)]
    assert office.ended == {"a": None}


def test_other_work_that_fails_as_it_is_closed_ends_alone() -> None:
    def work() -> Iterator[None]:
        try:
            yield
            yield
        finally:
            raise ValueError("no memory")

    office = Office(Counting())
    ended: list[Any] = []
    job = WorkJob(work(), lambda *told: ended.append(told))
    office.scheduler.submit([job])
    office.ask("a")
    for _ in range(2):
        office.scheduler.step()
    office.scheduler.cancel(job)
    office.finish()
    assert [str(error) for _, error in ended] == ["no memory"]
    assert office.ended == {"a": None}


def test_a_result_that_cannot_be_sent_ends_its_call_alone() -> None:
    pipe = io.BytesIO()
    worker: Any = _Worker(Frames(io.BytesIO()), pipe)
    worker._end(asked(ErrandCall(7, 0, b"", None)), lambda: None, None)
    ended = Frames(io.BytesIO(pipe.getvalue())).read()
    assert (ended.id, ended.result) == (7, None)
    assert "The result cannot be sent" in str(ended.error)


def test_other_work_that_fails_is_cancelled_or_late() -> None:
    model = Counting()
    scheduler = Scheduler(model)
    ended: dict[str, Any] = {}

    def job(name: str, result: Any = None, timeout: float | None = None) -> WorkJob:
        work = counted(model.passes, name, 3, result)
        return WorkJob(work, lambda *told: ended.update({name: told}), timeout=timeout)

    bad, late, gone, waits = (job("b", ValueError("no")), job("l", timeout=0.0), job("g"), job("w"))
    scheduler.submit([bad, late, gone])
    scheduler.step()
    scheduler.cancel(gone)
    scheduler.submit([waits])
    scheduler.cancel(waits)
    while scheduler.step():
        pass
    assert isinstance(ended["b"][1], ValueError)
    assert isinstance(ended["l"][1], IncompleteOutput)
    assert "timeout" in str(ended["l"][1])
    assert "cancelled" in str(ended["g"][1])
    assert "cancelled" in str(ended["w"][1])
    assert "".join(model.passes) == "gbbb"  # the one that had begun has no further pass


def test_what_has_failed_keeps_nothing_of_what_was_asked() -> None:
    """Not until the collector comes, which counts objects: a sound of 20 MB is few.

    Who is told of the error lets go of it, as the worker does.
    """
    office = Office(Counting())
    sounds = [Counting(), Counting(), Counting(), Counting()]  # anything large
    kept = [weakref.ref(sound) for sound in sounds]

    def work(sound: Any) -> Any:
        yield
        raise ValueError("no")

    def on_chunks(chunks: Any, sound: Any) -> None:
        raise ValueError("no")

    gc.disable()
    try:
        office.scheduler.submit([WorkJob(work(sounds.pop()), lambda made, error: let_go(error))])
        for prompts in ("a", "bc"):
            for prompt in prompts:
                job = office.ask(prompt, batch_size=len(prompts))
                job.on_chunks = functools.partial(on_chunks, sound=sounds.pop())
                job.on_end = let_go  # type: ignore[assignment]
                del job, office.jobs[prompt]
            office.finish()
        assert [one() for one in kept] == [None] * 4
    finally:
        gc.enable()


@pytest.mark.parametrize("fails", [True, False])
def test_whoever_has_one_call_waits_for_one_of_another_to_be_prepared(fails: bool) -> None:
    """However many the other has: each is a prompt to be read, and may be too long."""
    worker: Any = _Worker(Frames(io.BytesIO()), io.BytesIO())
    told: list[str] = []
    left = iter(range(20))

    def prepare(call: ErrandCall) -> Any:
        told.append(str(call.owner))
        if call.owner == "one":
            return SimpleNamespace(owner="one")
        worker._arrived.put(None if next(left, None) is None else ask("many"))
        return None if fails else SimpleNamespace(owner="many")

    def ask(owner: str) -> _Asked:
        return asked(ErrandCall(0, 0, b"", None, owner))

    worker._prepare = prepare
    handed = SimpleNamespace(
        submit=lambda jobs: told.append("handed in" * any(job.owner == "one" for job in jobs)),
        charge=lambda *_: None,
        passed=0.0,
    )
    worker._scheduler = handed
    for call in [ask("many"), ask("many"), ask("one")]:
        worker._arrived.put(call)
    worker._prepare_all(worker._arrived)
    begun = told.index("one")
    assert told[begun : told.index("handed in")].count("many") <= 1


def test_a_result_that_cannot_be_told_ends_its_call_alone() -> None:
    out = io.BytesIO()
    call = output_of(1, search=SearchOptions(trace=True))
    result = Generator(FakeModel("abc")).result("a", max_new_tokens=2)  # it has no trace
    run: Any = SimpleNamespace(result=result, is_interrupted=False)
    _Output(_Worker(Frames(io.BytesIO()), out), asked(call), call, run).on_end(None)
    told = Frames(io.BytesIO(out.getvalue())).read()
    assert (told.id, told.result, type(told.error)) == (1, None, OptionError)


def test_a_long_prompt_holds_up_long_ones_alone() -> None:
    # Tokens of 2.4 MB of Chinese took 8 s, in which no call of others was prepared.
    sent = [ErrandCall(1, 0, b"a" * 100_000, None), ErrandCall(2, 0, b"a", None)]
    worker: Any = _Worker(Frames(io.BytesIO(b"".join(map(packed, sent)))), io.BytesIO())
    worker._scheduler = SimpleNamespace(wake=lambda: None)
    worker._listen()
    for line, number in ((worker._long, 1), (worker._arrived, 2)):
        assert line.get().id == number
        assert line.get() is None


def test_pictures_wait_with_long_prompts() -> None:
    # Hostile ones take up to 7 s, in which no text of others was prepared.
    prompt = [{"role": "user", "content": (Image(png()),)}]
    call = output_of(1, prompt)
    sent = [call, ErrandCall(2, 0, b"a", None)]
    worker: Any = _Worker(Frames(io.BytesIO(b"".join(map(packed, sent)))), io.BytesIO())
    worker._scheduler = SimpleNamespace(wake=lambda: None)
    worker._listen()
    for line, number in ((worker._long, 1), (worker._arrived, 2)):
        assert line.get().id == number
        assert line.get() is None


def test_few_prompts_with_pictures_of_an_owner_are_prepared_and_each_once() -> None:
    """Sixty requests held 4 GB; and two owners' outputs decoded their pictures again and again."""
    worker: Any = _Worker(Frames(io.BytesIO()), io.BytesIO())
    for number, owner in enumerate(["much"] * 12 + ["other"] * 2):
        prompt = [{"role": f"{number // 2}", "content": (Image(png()),)}]
        worker._take(output_of(number, prompt, owner, prompt_id=number // 2))
    calls, arrived, decoded, prepared = [*worker._asked.values()], worker._long, [], []
    ended = iter([[0], [1], [2, 3], [4, 5]])

    def decode(content: Any, search: Any) -> str:
        decoded.append(1)
        return str(content[0]["role"])

    def prepare(call: Any) -> None:
        task: Any = SimpleNamespace(prepare=decode)
        assert worker._prepared(task, call.prompt, None) == f"{call.id // 2}"
        prepared.append(call.id)

    def get(timeout: float | None) -> Any:
        """Called again and again where nothing can be prepared."""
        if arrived.empty() and worker._is_prepared.is_set():
            told.append((len(prepared), len(decoded)))
            for number in (over := next(ended, ())):
                worker._end(calls[number], None, None)
            if not over:
                return None
        return arrived.get(timeout=timeout)

    told: list[tuple[int, int]] = []
    worker._prepare = prepare
    worker._compiles = lambda _: False
    worker._scheduler = SimpleNamespace(submit=list, charge=lambda *_: None, passed=0.0)
    worker._prepare_all(SimpleNamespace(get=get, empty=arrived.empty))
    assert told == [(8, 4), (8, 4), (10, 5), (12, 6), (14, 7)]
    for number in range(6, 14):
        worker._end(calls[number], None, None)
    assert (worker._asked, worker._prompts, worker._pictured) == ({}, {}, [])


@pytest.mark.parametrize("n_prompts", [OPEN_AT_REST, OPEN_AT_REST + 1])
def test_prompts_with_pictures_that_have_their_place_wait_for_no_other(n_prompts: int) -> None:
    """Each output of several whose type was no longer known waited for all others to end; and five
    requests for two outputs each were never answered."""
    prompt = [{"role": "user", "content": (Image(png()),)}]
    worker: Any = _Worker(Frames(io.BytesIO()), io.BytesIO())
    for number in range(2 * n_prompts):
        worker._take(output_of(number, prompt, prompt_id=number % n_prompts))
    looks = [*range(1000)]

    def get(timeout: float | None) -> Any:
        looks.pop()
        return worker._long.get(timeout=timeout) if worker._asked else None

    worker._prepare = worker._forget  # the process wants the type
    worker._compiles = lambda _: False
    worker._scheduler = SimpleNamespace(submit=list, charge=lambda *_: None, passed=0.0)
    worker._prepare_all(SimpleNamespace(get=get, empty=worker._long.empty))


def test_calls_that_are_over_do_not_wait_for_others() -> None:
    """With pictures, ``timeout=1`` ended a call after 14 s, when another output had ended; and free
    text was an error then, and no output that had been cut."""
    prompt = [{"role": "user", "content": (Image(png()),)}]
    out, model = io.BytesIO(), FakeModel("abc")
    worker: Any = _Worker(Frames(io.BytesIO()), out)
    task: Any = Task(model, None, None)
    task.prepare = lambda *_: Prepared(np.ones(1, np.int32), ())
    worker._tasks, scheduler = {b"": (task, 1)}, Scheduler(model)
    late, cancelled = OPEN_AT_REST, OPEN_AT_REST + 1
    for number in range(cancelled + 1):
        timeout = 0.01 if number == late else None
        worker._take(output_of(number, prompt, search=SearchOptions(timeout=timeout)))
    worker._cancel(Cancel(cancelled))
    looks, over = [*range(1000)], list[Job]()

    def get(timeout: float | None) -> Any:
        looks.pop()
        left = len(over) < 2 or len(worker._pictured) < OPEN_AT_REST
        return worker._long.get(timeout=0.01) if left else None

    def submit(jobs: list[Job]) -> None:
        over.extend(job for job in jobs if job.is_interrupted)

    worker._scheduler = SimpleNamespace(submit=submit, charge=lambda *_: None, passed=0.0)
    worker._prepare_all(SimpleNamespace(get=get, empty=worker._long.empty))
    scheduler.submit(over)
    while scheduler.step():
        pass
    told = Frames(io.BytesIO(out.getvalue()))
    ended = {one.id: (one.error, one.result.finish_reason) for one in iter(told.read, None)}
    assert ended == dict.fromkeys((late, cancelled), (None, "cancelled"))


def test_calls_that_are_there_are_taken_before_any_is_looked_at() -> None:
    """The first of 8,000 of a type that was not compiled was prepared after 1.9 s."""
    worker: Any = _Worker(Frames(io.BytesIO()), io.BytesIO())
    for number in range(100):
        worker._take(output_of(number))
    looked: list[Any] = []
    worker._may_prepare = lambda asked: not looked.append(asked)
    worker._prepare = lambda asked: worker._arrived.put(None)
    worker._scheduler = SimpleNamespace(submit=list, charge=lambda *_: None, passed=0.0)
    worker._prepare_all(worker._arrived)
    assert len(looked) == 1


def test_the_process_that_decodes_pictures_is_charged_to_their_owner() -> None:
    prompt = [{"role": "user", "content": (Image(png()),)}]
    worker: Any = _Worker(Frames(io.BytesIO()), io.BytesIO())
    charged: dict[Any, float] = {}

    def prepare(call: Call) -> None:
        time.sleep(0.05)

    worker._prepare = prepare

    def charge(owner: str, took: float) -> None:
        charged[owner] = took
        if len(charged) == 2:
            worker._long.put(None)

    worker._scheduler = SimpleNamespace(submit=lambda jobs: None, charge=charge, passed=0.0)
    worker._compiles = lambda message: False
    for owner, given in (("pictures", prompt), ("text", "a")):
        worker._long.put(asked(output_of(1, given, owner)))
    worker._prepare_all(worker._long)
    assert charged["text"] < 0.05 <= charged["pictures"]


def test_pictures_of_two_owners_do_not_wait_for_each_other() -> None:
    """One JPEG of 400 kB held up those of all others for 6 s."""
    worker: Any = _Worker(Frames(io.BytesIO()), io.BytesIO())
    prompt = [{"role": "user", "content": (Image(png()),)}]
    told: list[tuple[Any, ...]] = []
    goes_on = threading.Event()

    def prepare(call: Call) -> None:
        if call.owner == "slow":
            told.append((call.id, goes_on.wait(5)))
            worker._long.put(None)
        elif call.id == 3:
            told.append((3, worker._is_prepared.is_set()))
            goes_on.set()

    worker._prepare = prepare
    worker._compiles = lambda _: False
    worker._scheduler = SimpleNamespace(submit=list, charge=lambda *_: None, passed=0.0)
    for number, owner in enumerate(["slow", "slow", "other", "other"]):
        search = SearchOptions()
        worker._take(
            Call(number, 1, number, b"", None, prompt, search, 0, False, False, owner=owner)
        )
    worker._prepare_all(worker._long)
    assert told[:2] == [(3, False), (0, True)]


@pytest.mark.parametrize("job", [None, SimpleNamespace(owner="many")])
def test_who_comes_while_a_call_of_another_is_prepared_is_next(job: Any) -> None:
    """Not behind the other's second one, which has been there: a picture takes seconds."""
    worker: Any = _Worker(Frames(io.BytesIO()), io.BytesIO())
    told: list[str] = []

    def prepare(call: ErrandCall) -> Any:
        told.append(str(call.owner))
        if len(told) == 1:
            worker._arrived.put(asked(ErrandCall(0, 0, b"", None, "one")))
        elif len(told) == 2:
            worker._arrived.put(None)
        return job

    worker._prepare = prepare
    nothing = {"submit": lambda jobs: None, "charge": lambda *_: None}
    worker._scheduler = SimpleNamespace(**nothing, passed=0.0)
    for _ in range(3):
        worker._arrived.put(asked(ErrandCall(0, 0, b"", None, "many")))
    worker._prepare_all(worker._arrived)
    assert told == ["many", "one"]


@pytest.mark.parametrize("why", ["ahead", "heavy"])
def test_nothing_is_compiled_for_who_is_ahead_or_heavy_and_others_are_prepared_meanwhile(
    why: str,
) -> None:
    worker: Any = _Worker(Frames(io.BytesIO()), io.BytesIO())
    told: list[str] = []
    looks = iter([True] * 4)

    def waits(owner: str) -> bool:
        return next(looks, False)

    def prepare(call: ErrandCall) -> None:
        told.append(str(call.owner))
        if call.owner == "many":
            assert not worker._is_prepared.is_set()
            worker._arrived.put(None)

    worker._prepare = prepare
    worker._compiles = lambda message: message.owner == "many"
    worker._scheduler = SimpleNamespace(
        submit=lambda jobs: None,
        charge=lambda *_: None,
        is_ahead=waits if why == "ahead" else lambda owner: False,
        passed=0.0,
    )
    if why == "heavy":
        worker._is_heavy = waits
    for owner in ("many", "other"):
        worker._arrived.put(asked(ErrandCall(0, 0, b"", None, owner)))
    worker._prepare_all(worker._arrived)
    assert told == ["other", "many"]


def test_automata_are_weighed_without_the_lock_of_compilations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The scheduler's thread waited 2 s for it, or for ever while its holder waited for another."""
    office = Office(Counting())
    forms = [compile_constraint(Regex(f"[a-z]{{3}}{x}"), office.model.vocabulary) for x in "ab"]
    jobs = [office.ask(str(number), form) for number, form in enumerate(forms)]
    facts = SimpleNamespace(fingerprint=lambda _: "known", find_flag=lambda *_: True)
    monkeypatch.setattr(constraint_module, "grammar_facts", facts)
    rules = "\n".join(f'r{n}: "{n}" | r{n + 1}' for n in range(10))
    unread = compile_constraint(Cfg(f'start: r0\n{rules}\nr10: "a"'), office.model.vocabulary)
    with compiling() as thread:
        assert heavy(jobs) == set()
        assert forms[0].weight > 0
        assert unread.weight == 0  # its automata are built when they are needed
        assert thread.is_alive()
    assert unread.allows("a")
    assert unread.weight > 0
    office.close()


def test_nothing_is_compiled_for_an_owner_whose_outputs_have_large_automata(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduler_module, "MOST_FORM_BYTES", 0)
    worker: Any = _Worker(Frames(io.BytesIO()), io.BytesIO())
    for number, pattern in enumerate(("a*", "b*")):
        cursor = compile_constraint(Regex(pattern), Counting().vocabulary).start()
        progress = SimpleNamespace(cursor=cursor)
        run: Any = SimpleNamespace(part=SimpleNamespace(progress=progress))
        call = Call(
            number, 1, 1, b"type", None, "a", SearchOptions(), 0, False, False, owner="much"
        )
        worker._take(call)
        one = worker._asked[number]
        one.job = Job(run, lambda _: None, lambda *_: None, owner="much")
    assert worker._is_heavy("much")
    assert not worker._is_heavy("other")
    assert worker._compiles(one)
    one.job = worker._scheduler = SimpleNamespace(cancel=lambda job: None)
    worker._cancel(Cancel(1))
    assert worker._may_prepare(one)  # ends without a compilation
    progress.cursor = None  # free text
    assert not worker._is_heavy("much")  # one automaton has a limit of its own


def test_what_is_prepared_has_as_long_as_the_pass_before_it_took() -> None:
    """A pass holds the interpreter lock; else one that takes long is followed by the next."""
    call = ErrandCall(0, 0, b"", None)
    worker: Any = _Worker(Frames(io.BytesIO(packed(call))), io.BytesIO())
    worker._prepare = lambda message: None
    waits: list[float] = []

    def step() -> bool:
        time.sleep(0.01)
        worker._is_over = len(waits) == 2
        return True

    stub = SimpleNamespace(
        step=step, submit=lambda jobs: None, wake=lambda: None, charge=lambda *_: None, passed=0.0
    )
    worker._scheduler = stub
    worker._listen()
    assert not worker._is_prepared.is_set()
    heard = worker._arrived.get()
    assert worker._arrived.get() is None
    worker._arrived.put(heard)
    thread = threading.Thread(target=worker._prepare_all, args=[worker._arrived])
    thread.start()
    assert worker._is_prepared.wait(60)
    worker._arrived.put(None)
    thread.join()
    worker._is_over = False
    worker._is_prepared = SimpleNamespace(wait=waits.append)
    worker._make_all()
    assert len(waits) == 3
    assert min(waits) >= 0.01


def test_a_worker_without_work_gives_memory_back_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # 150 readers that never read left the process of a model of 300 MB at 1.1 GB for good.
    given: list[str] = []
    worker: Any = _Worker(Frames(io.BytesIO()), io.BytesIO())
    # What each turn of the loop finds: a pass, nothing but work soon after, nothing for long.
    turns = ["idle", "pass", "woken", "pass", "idle", "idle", "pass", "idle"]

    def step() -> bool:
        return turns[0] == "pass" and bool(turns.pop(0))

    def wait(timeout: float) -> bool:
        turn = turns.pop(0)
        worker._is_over = not turns
        given.append(turn)
        return turn == "woken"

    monkeypatch.setattr(worker_module, "give_back", lambda: given.append("given back"))
    worker._scheduler = SimpleNamespace(step=step, wait=wait)
    worker._make_all()
    assert given == ["idle", "woken", "idle", "given back", "idle", "idle", "given back"]
