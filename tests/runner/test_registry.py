"""The registry with models that are nothing: states, lines, budgets, and who is never unloaded."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from structgen import ModelError, OptionError, Overloaded
from structgen.errors import ModelNotFound
from structgen.runner import ModelConfig, registry
from structgen.runner.registry import Registry
from structgen.workers import STRANGER, Stranger


class FakeHost:
    kind = "text"

    def __init__(self, name: str, memory: int) -> None:
        self.name = name
        self.memory = memory
        self.is_closed = False

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.is_closed = True


class Shelf:
    """Loads fake models of 10 bytes; holds those back that it is told to, fails others."""

    def __init__(self) -> None:
        self.held: dict[str, asyncio.Event] = {}
        self.failing: set[str] = set()
        self.fails: type[Exception] = ModelError
        self.loads: list[str] = []

    async def opened(self, config: ModelConfig) -> Any:
        name = Path(config.source).name
        self.loads.append(name)
        if name in self.held:
            await self.held[name].wait()
        await asyncio.sleep(0)
        if name in self.failing:
            raise self.fails(f"{name} is broken.")
        return FakeHost(name, 10)


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Shelf:
    async def at_once(work: Callable[..., Any], *given: Any) -> Any:
        await asyncio.sleep(0)
        return work(*given)

    made = Shelf()
    monkeypatch.setattr(asyncio, "to_thread", at_once)  # nobody knows when a thread has ended
    monkeypatch.setattr(registry, "opened", made.opened)
    monkeypatch.setattr(registry, "size_of", lambda config: 10)
    return made


def run(work: Callable[[Registry], Awaitable[None]], names: str = "abc", **options: Any) -> None:
    async def inside() -> None:
        given = {"default": None, "aliases": {}, "memory_budget": None, **options}
        given = {"max_concurrency": 8, "max_queue": 8, **given}
        made = Registry({name: ModelConfig(source=f"./{name}") for name in names}, **given)
        await asyncio.wait_for(work(made), 20)
        await made.close()

    asyncio.run(inside())


async def settled() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def used(models: Registry, name: str, until: asyncio.Event | None = None) -> str:
    async with models.lease(models.entry(name)) as host:
        assert not host.is_closed  # type: ignore[union-attr]
        if until is not None:
            await until.wait()
        assert not host.is_closed  # type: ignore[union-attr]
        return host.name  # type: ignore[union-attr]


def statuses(models: Registry) -> str:
    return " ".join(entry.status for entry in models.entries.values())


def test_names_and_aliases(shelf: Shelf) -> None:
    async def work(models: Registry) -> None:
        assert models.default == "b"
        assert models.entry(None).id == "b"
        assert models.entry("x").id == "c"
        with pytest.raises(ModelNotFound, match="Known models: a, b, c, x"):
            models.entry("nobody")
        with pytest.raises(OptionError, match="already"):
            models.add("x", ModelConfig(source="./x"))
        with pytest.raises(OptionError, match="id of a model"):
            models.add_alias("a", "b")
        with pytest.raises(ModelNotFound):
            models.add_alias("y", "nobody")
        await models.remove(models.entry("c"))
        assert models.aliases == {}
        await models.remove(models.entry("b"))
        assert models.default == "a"
        await models.remove(models.entry("a"))
        with pytest.raises(ModelNotFound, match="no models"):
            models.entry(None)

    run(work, default="b", aliases={"x": "c"})


def test_an_owner_leaves_a_place_for_others(shelf: Shelf) -> None:
    """One who fills the line of a model is refused first, and does not hold all of its places."""

    async def work(models: Registry) -> None:
        until, refused = asyncio.Event(), []

        async def ask(owner: str) -> None:
            token = STRANGER.set(Stranger(owner, 1, 1))
            try:
                await used(models, "a", until)
            except Overloaded:
                refused.append(owner)
            finally:
                STRANGER.reset(token)

        much = [asyncio.ensure_future(ask("much")) for _ in range(6)]
        await settled()
        entry = models.entry("a")
        assert (entry.users, entry.places.waiting) == (2, 3)  # of three places
        assert refused == ["much"]
        little = asyncio.ensure_future(ask("little"))
        await settled()
        assert entry.users == 3
        third = asyncio.ensure_future(ask("third"))
        await settled()
        assert entry.users == 4  # it waits for none of these to end
        until.set()
        await asyncio.gather(*much, little, third)
        assert refused == ["much"]

    run(work, max_concurrency=3, max_queue=3)


def test_a_model_is_loaded_once_for_all_who_wait(shelf: Shelf) -> None:
    async def work(models: Registry) -> None:
        assert await asyncio.gather(*(used(models, "a") for _ in range(5))) == ["a"] * 5
        assert shelf.loads == ["a"]
        assert statuses(models) == "loaded unloaded unloaded"
        await models.unload(models.entry("a"))
        assert statuses(models) == "unloaded unloaded unloaded"
        assert await used(models, "a") == "a"
        assert shelf.loads == ["a", "a"]

    run(work)


def test_loading_one_does_not_hold_up_another(shelf: Shelf) -> None:
    async def work(models: Registry) -> None:
        shelf.held["a"] = asyncio.Event()
        slow = asyncio.ensure_future(used(models, "a"))
        await settled()
        assert models.entry("a").status == "loading"
        assert await used(models, "b") == "b"
        shelf.held["a"].set()
        assert await slow == "a"

    run(work, memory_budget=30)


def test_who_waits_and_gives_up_does_not_stop_loading(shelf: Shelf) -> None:
    async def work(models: Registry) -> None:
        shelf.held["a"] = asyncio.Event()
        one = asyncio.ensure_future(used(models, "a"))
        other = asyncio.ensure_future(used(models, "a"))
        await settled()
        one.cancel()
        await settled()
        shelf.held["a"].set()
        assert await other == "a"
        assert models.entry("a").places.active == models.entry("a").users == 0

    run(work)


def test_what_fails_when_nobody_waits_is_no_traceback(shelf: Shelf) -> None:
    async def work(models: Registry) -> None:
        told: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, said: told.append(said))
        shelf.failing.add("a")
        shelf.held["a"] = asyncio.Event()
        one = asyncio.ensure_future(used(models, "a"))
        await settled()
        one.cancel()
        await settled()
        shelf.held["a"].set()
        await settled()
        assert statuses(models) == "failed unloaded unloaded"
        del one
        gc.collect()
        assert not told

    run(work)


def test_what_failed_is_told_and_tried_again(shelf: Shelf) -> None:
    async def work(models: Registry) -> None:
        shelf.failing.add("a")
        for shelf.fails in (ModelError, OptionError):  # a call has no such option
            with pytest.raises(ModelError, match="broken"):
                await used(models, "a")
        assert models.entry("a").status == "failed"
        assert "broken" in models.info(models.entry("a"))["error"]
        shelf.failing.clear()
        assert await used(models, "a") == "a"
        assert models.info(models.entry("a"))["error"] is None

    run(work)


def test_the_one_used_longest_ago_makes_room(shelf: Shelf) -> None:
    async def work(models: Registry) -> None:
        for name in "aba":
            await used(models, name)
        await used(models, "c")
        assert statuses(models) == "loaded unloaded loaded"
        await used(models, "b")
        assert statuses(models) == "unloaded loaded loaded"

    run(work, memory_budget=20)


def test_none_in_use_is_unloaded_who_needs_the_room_waits(shelf: Shelf) -> None:
    async def work(models: Registry) -> None:
        done = asyncio.Event()
        busy = [asyncio.ensure_future(used(models, name, done)) for name in "ab"]
        await settled()
        third = asyncio.ensure_future(used(models, "c"))
        await settled()
        assert statuses(models) == "loaded loaded loading"
        assert await used(models, "a") == "a"  # which goes on meanwhile
        done.set()
        assert await asyncio.gather(*busy, third) == ["a", "b", "c"]
        assert statuses(models).split().count("loaded") == 2

    run(work, memory_budget=20)


@pytest.mark.parametrize("budget", [10, 20])
def test_models_that_are_always_in_use_take_turns(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, budget: int
) -> None:
    """A load waits for a turn at most: each model's requests overlap, so none is ever idle."""
    monkeypatch.setattr(registry, "_TURN", 0.02)

    async def work(models: Registry) -> None:
        answered = dict.fromkeys("abc", 0)
        most = 0

        async def ask(name: str) -> None:
            nonlocal most
            while min(answered.values()) < 20:
                async with models.lease(models.entry(name)):
                    most = max(most, sum(one.held for one in models.entries.values()))
                    await asyncio.sleep(0.003)
                answered[name] += 1

        await asyncio.gather(*(ask(name) for name in "abc" * 3))
        assert most <= budget
        assert len(shelf.loads) >= 3
        assert all(one.users == one.wanted == 0 for one in models.entries.values())

    run(work, memory_budget=budget, max_concurrency=64, max_queue=64)


def test_a_model_begins_requests_again_when_nobody_waits_for_its_room(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the room was found elsewhere, or the load was given up."""
    monkeypatch.setattr(registry, "_TURN", 0.0)

    async def work(models: Registry) -> None:
        for name in "ab":
            await models.load(models.entry(name))
        for makes_room in (False, True):
            ends = {name: asyncio.Event() for name in "ab"}
            busy = {name: asyncio.ensure_future(used(models, name, ends[name])) for name in "ab"}
            await settled()
            third = asyncio.ensure_future(used(models, "c"))
            while models._yields is None:
                await asyncio.sleep(0.001)
            late = asyncio.ensure_future(used(models, "a"))
            await settled()
            assert not late.done()  # it would keep the model that was loaded first
            if makes_room:
                ends["b"].set()
                assert await third == "c"
            else:
                third.cancel()
                await settled()
                await models.unload(models.entry("c"))
            assert await late == "a"
            assert not busy["a"].done()
            ends["a"].set(), ends["b"].set()
            await asyncio.gather(*busy.values())
            await models.unload(models.entry("c"))

    run(work, memory_budget=20)


def test_many_models_on_little_memory(shelf: Shelf) -> None:
    async def work(models: Registry) -> None:
        names = "abcdef" * 20
        assert await asyncio.gather(*(used(models, name) for name in names)) == list(names)
        held = sum(entry.status == "loaded" for entry in models.entries.values())
        assert held <= 2

    run(work, names="abcdef", memory_budget=25, max_concurrency=64, max_queue=64)


def test_what_takes_more_than_its_files_do_makes_room_afterwards(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "size_of", lambda config: 4)

    async def work(models: Registry) -> None:
        await used(models, "a")
        await used(models, "b")
        await used(models, "c")  # 10 + 10 + 4 would fit, 30 does not
        assert statuses(models) == "unloaded loaded loaded"

    run(work, memory_budget=25)


def test_what_takes_more_than_all_memory_loads_alone_each_time(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "size_of", lambda config: 4)

    async def work(models: Registry) -> None:
        for name in "abab":
            await used(models, name)
            assert statuses(models).count("unloaded") == 2

    run(work, memory_budget=9)


def test_a_model_that_can_never_fit_is_refused(shelf: Shelf) -> None:
    async def work(models: Registry) -> None:
        with pytest.raises(ModelError, match="memory_budget"):
            await used(models, "a")
        assert models.entry("a").status == "failed"

    run(work, memory_budget=9)


def test_unloading_waits_for_users_and_others_wait_for_it(shelf: Shelf) -> None:
    async def work(models: Registry) -> None:
        done = asyncio.Event()
        busy = asyncio.ensure_future(used(models, "a", done))
        await settled()
        going = asyncio.ensure_future(models.unload(models.entry("a")))
        late = asyncio.ensure_future(used(models, "a"))
        await settled()
        assert models.entry("a").status == "unloading"
        assert not going.done()
        done.set()
        assert await asyncio.gather(busy, late) == ["a", "a"]
        await going
        assert shelf.loads == ["a", "a"]

    run(work)


def test_what_is_removed_is_gone_for_those_who_wait(shelf: Shelf) -> None:
    async def work(models: Registry) -> None:
        done = asyncio.Event()
        busy = asyncio.ensure_future(used(models, "a", done))
        await settled()
        going = asyncio.ensure_future(models.remove(models.entry("a")))
        await settled()
        late = asyncio.ensure_future(used(models, "a"))
        await settled()
        done.set()
        await asyncio.gather(busy, going)
        with pytest.raises(ModelNotFound):
            await late

    run(work)


def test_a_full_line_is_told_and_moves_on(shelf: Shelf) -> None:
    async def work(models: Registry) -> None:
        done = asyncio.Event()
        running = [asyncio.ensure_future(used(models, "a", done)) for _ in range(2)]
        waiting = [asyncio.ensure_future(used(models, "a", done)) for _ in range(3)]
        await settled()
        with pytest.raises(Overloaded, match="Retry in") as caught:
            await used(models, "a")
        assert caught.value.retry_after >= 1
        assert await used(models, "b") == "b"  # each model has a line of its own
        waiting[1].cancel()
        await settled()
        last = asyncio.ensure_future(used(models, "a", done))
        await settled()
        done.set()
        assert await asyncio.gather(*running, waiting[0], waiting[2], last) == ["a"] * 5
        assert models.entry("a").places.active == 0
        assert not models.entry("a").places.waiting

    run(work, max_concurrency=2, max_queue=3)


def test_all_who_wait_give_up_at_once(shelf: Shelf) -> None:
    async def work(models: Registry) -> None:
        done = asyncio.Event()
        tasks = [asyncio.ensure_future(used(models, "a", done)) for _ in range(6)]
        await settled()
        for task in tasks:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in found)
        assert models.entry("a").places.active == models.entry("a").users == 0
        assert await used(models, "a") == "a"

    run(work, max_concurrency=2, max_queue=8)


def test_another_source_is_served_when_it_is_loaded_and_the_old_one_to_its_end(
    shelf: Shelf,
) -> None:
    async def work(models: Registry) -> None:
        entry, until = models.entry("a"), asyncio.Event()
        await models.swap(entry, "./early")  # not loaded yet: the next load is of that
        running = [asyncio.ensure_future(used(models, "a", until)) for _ in range(2)]
        await settled()
        old = entry.host
        held = shelf.held["new"] = asyncio.Event()
        swapping = asyncio.ensure_future(models.swap(entry, "./new"))
        await settled()
        assert await used(models, "a") == "early"
        held.set()
        await settled()
        assert await used(models, "a") == "new"
        assert not swapping.done()
        assert not old.is_closed  # type: ignore[union-attr]
        until.set()
        assert await asyncio.gather(*running) == ["early", "early"]
        await swapping
        assert old.is_closed  # type: ignore[union-attr]
        assert (entry.users, entry.leaving, entry.held, entry.status) == (0, 0, 10, "loaded")
        # What cannot be loaded, or has no room beside the old one, changes nothing.
        shelf.failing.add("bad")
        with pytest.raises(ModelError, match="bad is broken"):
            await models.swap(entry, "./bad")
        await used(models, "b")
        assert entry.held == 10
        assert await used(models, "a") == "new"
        held = shelf.held["late"] = asyncio.Event()
        swapping = asyncio.ensure_future(models.swap(entry, "./late"))
        await settled()
        await models.unload(entry)
        held.set()
        with pytest.raises(ModelError, match="unloaded or changed"):
            await swapping
        assert await used(models, "a") == "new"
        assert models._held(models.entry("c")) <= 20

    run(work, memory_budget=20)


def test_a_model_may_have_a_bound_of_its_own(shelf: Shelf) -> None:
    async def work(models: Registry) -> None:
        models.add("narrow", ModelConfig(source="./narrow", max_seqs=1))
        until = asyncio.Event()
        tasks = [asyncio.ensure_future(used(models, name, until)) for name in ["narrow", "a"] * 3]
        await settled()
        assert (models.entry("narrow").users, models.entry("a").users) == (1, 3)
        until.set()
        await asyncio.gather(*tasks)
        with pytest.raises(OptionError, match="max_seqs=0"):
            ModelConfig(source="./a", max_seqs=0)

    run(work)


def test_models_that_were_loaded_before_do_not_wait_for_each_other_for_ever(shelf: Shelf) -> None:
    async def work(models: Registry) -> None:
        for name in "abcd":  # so that it is known what each takes
            await used(models, name)
        for name in "abcd":
            await models.unload(models.entry(name))
        names = "abcd" * 3
        assert await asyncio.gather(*(used(models, name) for name in names)) == list(names)
        for _ in range(3):
            await asyncio.gather(*(used(models, name) for name in reversed(names)))
        assert sum(entry.held for entry in models.entries.values()) <= 15

    run(work, names="abcd", memory_budget=15, max_concurrency=64)


def test_room_that_is_being_made_is_waited_for(shelf: Shelf) -> None:
    async def work(models: Registry) -> None:
        async with models.lease(models.entry("a")):
            going = asyncio.ensure_future(models.unload(models.entry("a")))
            await settled()
            late = asyncio.ensure_future(used(models, "b"))
            await settled()
        assert await late == "b"
        await going

    run(work, memory_budget=10)


def test_unloading_ends_a_load_that_hangs(shelf: Shelf) -> None:
    async def work(models: Registry) -> None:
        entry = models.entry("a")
        for end in (models.unload, models.remove):
            shelf.held["a"] = asyncio.Event()
            loading = asyncio.ensure_future(models.load(entry))
            waiting = asyncio.ensure_future(used(models, "a"))
            await settled()
            del shelf.held["a"]
            await end(entry)
            if end == models.unload:  # who waits has it loaded again
                assert await waiting == "a"
                await loading
                await models.unload(entry)
        for one in (waiting, loading):
            with pytest.raises(ModelNotFound):
                await one
        assert shelf.loads == ["a"] * 3

    run(work)


def test_what_is_removed_is_not_loaded_again(shelf: Shelf) -> None:
    async def work(models: Registry) -> None:
        done = asyncio.Event()
        entry = models.entry("a")
        busy = asyncio.ensure_future(used(models, "a", done))
        await settled()
        going = asyncio.ensure_future(models.remove(entry))
        await settled()
        late = [asyncio.ensure_future(used(models, "a")), asyncio.ensure_future(models.load(entry))]
        await settled()
        done.set()
        await asyncio.gather(busy, going)
        for one in late:
            with pytest.raises(ModelNotFound):
                await one
        assert shelf.loads == ["a"]
        assert entry.host is None
        models.add("a", ModelConfig(source="./a"))
        assert await used(models, "a") == "a"

    run(work)


def test_who_gives_up_unloading_leaves_the_model_as_it_is(shelf: Shelf) -> None:
    async def work(models: Registry) -> None:
        done = asyncio.Event()
        busy = asyncio.ensure_future(used(models, "a", done))
        await settled()
        for give_up in (models.unload, models.remove):
            going = asyncio.ensure_future(give_up(models.entry("a")))
            await settled()
            going.cancel()
            await asyncio.gather(going, return_exceptions=True)
            assert models.entry("a").status == "loaded"
            assert await used(models, "a") == "a"
        done.set()
        assert await busy == "a"
        assert shelf.loads == ["a"]

    run(work)


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_a_model_that_does_not_close_well_is_unloaded(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, is_cancelled: bool
) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def close(self: FakeHost) -> None:
        began.set()
        await go_on.wait()
        raise OSError("no more")

    monkeypatch.setattr(FakeHost, "close", close)

    async def work(models: Registry) -> None:
        await used(models, "a")
        going = asyncio.ensure_future(models.unload(models.entry("a")))
        await began.wait()
        if is_cancelled:
            going.cancel()
        go_on.set()
        (error,) = await asyncio.gather(going, return_exceptions=True)
        assert isinstance(error, (OSError, asyncio.CancelledError))
        await settled()
        assert models.entry("a").status == "unloaded"
        assert await used(models, "a") == "a"
        monkeypatch.undo()
        monkeypatch.setattr(registry, "opened", shelf.opened)

    run(work)


@pytest.mark.parametrize("first", ["close", "unload"])
def test_closing_waits_for_what_another_closes(
    first: str, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(models: Registry) -> None:
        may_end, ended = asyncio.Event(), []

        async def close(host: FakeHost) -> None:
            await may_end.wait()
            ended.append(host.name)

        monkeypatch.setattr(FakeHost, "close", close)
        assert await used(models, "a") == "a"
        if first == "close":
            before: Awaitable[None] = models.close()
        else:
            before = models.unload(models.entry("a"))
        tasks = [asyncio.ensure_future(before)]
        await settled()
        tasks.append(asyncio.ensure_future(models.close()))
        await settled()
        assert not any(task.done() for task in tasks)
        may_end.set()
        await asyncio.gather(*tasks)
        assert ended == ["a"]

    run(work)


def test_what_failed_and_is_unloaded_has_no_error(shelf: Shelf) -> None:
    async def work(models: Registry) -> None:
        shelf.failing.add("a")
        with pytest.raises(ModelError, match="broken"):
            await used(models, "a")
        await models.unload(models.entry("a"))
        told = models.info(models.entry("a"))
        assert (told["status"], told["error"]) == ("unloaded", None)

    run(work)


@pytest.mark.parametrize("seed", range(12))
def test_anything_at_once(shelf: Shelf, seed: int) -> None:
    """Uses, loads, unloads, reloads, cancelled at any time: nobody waits for ever, bounds hold."""
    r = random.Random(seed)
    shelf.failing.add("f")

    async def work(models: Registry) -> None:
        async def one() -> None:
            entry = models.entry(r.choice("abcdef"))
            what = r.choice(["use", "use", "use", "load", "unload", "reload"])
            with contextlib.suppress(ModelError):
                if what == "use":
                    async with models.lease(entry) as host:
                        for _ in range(r.randrange(4)):
                            await asyncio.sleep(0)
                            assert not host.is_closed  # type: ignore[union-attr]
                elif what == "load":
                    await models.load(entry)
                else:
                    await models.unload(entry)
                    if what == "reload":
                        await models.load(entry)
            assert sum(entry.held for entry in models.entries.values()) <= 25

        tasks = []
        for _ in range(150):
            tasks.append(asyncio.ensure_future(one()))
            if r.random() < 0.5:
                await asyncio.sleep(0)
            if r.random() < 0.2:
                r.choice(tasks).cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        bad = [one for one in found if one and not isinstance(one, asyncio.CancelledError)]
        assert not bad
        for entry in models.entries.values():
            assert entry.users == entry.wanted == entry.places.active == 0
            assert entry.status in ("loaded", "unloaded", "failed")
            assert (entry.host is not None) == (entry.status == "loaded") == (entry.held > 0)

    run(work, names="abcdef", memory_budget=25, max_concurrency=64, max_queue=400)
