"""The models of a Runner by id: their state, who uses them, and which one to unload.

The registry loads and unloads models, and has the aliases, the default model, a queue for each
model, and the memory budget. It is used in one event loop, so it needs no locks; loading runs
beside the loop. Knows nothing about requests.

    unloaded ─▶ loading ─▶ loaded ─▶ unloading ─▶ unloaded      (loading may end in failed)

A model in use, or one that somebody waits for, is never unloaded to make room; a request that needs
the room waits. After a while, the model in use that was loaded first starts no more requests until
there is room.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, final

from structgen.errors import ModelError, ModelNotFound, OptionError, Overloaded
from structgen.options import SETTINGS
from structgen.workers import owner

from .hosts import Host, ModelConfig, known_kind, opened, size_of
from .loops import Places

_RANKS = "all-minilm-l6-v2"
"""The embedder that ranks passages if no other is known."""

_TURN = 30.0
"""Seconds for which a model in use keeps its room when another is waiting for it."""

ModelStatus = Literal["loaded", "loading", "unloading", "unloaded", "failed"]


@dataclass(eq=False, slots=True)
class Entry:
    """One model.

    Attributes:
        id: the name that requests use.
        config: how to load the model.
        status: see above.
        host: the loaded model; None: it is not loaded.
        error: why loading failed.
        bytes: its size in memory; before it has been loaded, the size of its files; None: not
            known.
        held: the part of ``bytes`` that counts now, because the model is loaded or has room
            reserved.
        users: the number of requests that run on it.
        wanted: the number of requests that wait until it is loaded.
        used: the value of a counter when it was last used.
        since: when it was loaded, by `time.monotonic`.
        leaving: requests that still run on the model from before a `Registry.swap`.
        swaps: whether a swap is under way.
        weights: the weights that it was converted from, if the configuration does not name them.
        task: the task that loads it.
        places: the places for its requests, ``max_concurrency`` of the Runner.
        seconds: the average time of its requests.
    """

    id: str
    config: ModelConfig
    places: Places
    status: ModelStatus = "unloaded"
    host: Host | None = None
    error: BaseException | None = None
    bytes: int | None = None
    held: int = 0
    users: int = 0
    wanted: int = 0
    used: int = 0
    since: float = 0.0
    leaving: int = 0
    swaps: bool = False
    weights: Any = None
    task: asyncio.Task[None] | None = None
    seconds: float = 1.0
    is_removed: bool = False


@final
class Registry:
    """The models. Used in one event loop only.

    Attributes:
        default: id of the model for requests that name none.
    """

    def __init__(
        self,
        configs: Mapping[str, ModelConfig],
        *,
        default: str | None,
        aliases: Mapping[str, str],
        memory_budget: int | None,
        max_concurrency: int,
        max_queue: int,
    ) -> None:
        """Take models in; none is loaded yet.

        Raises:
            OptionError, ModelNotFound: a name is taken, or names no model.
        """
        self.entries: dict[str, Entry] = {}
        self.aliases: dict[str, str] = {}
        self.default: str | None = None
        self._budget = memory_budget
        self._most = max_concurrency
        self._most_waiting = max_queue
        self._clock = itertools.count(1)
        self._change = asyncio.Event()
        self._is_closed = False
        self._closing: set[asyncio.Task[None]] = set()
        self._making_room = asyncio.Lock()
        self._yields: Entry | None = None  # starts no requests until another model has room
        for id_, config in configs.items():
            self.add(id_, config)
        for alias, id_ in aliases.items():
            self.add_alias(alias, id_)
        if default is not None:
            self.default = self.entry(default).id

    # -- names ------------------------------------------------------------------------------

    def add(self, id_: str, config: ModelConfig) -> None:
        """Add a model, unloaded.

        Raises:
            OptionError: the id is taken or not a text.
        """
        if not isinstance(id_, str) or not id_:
            raise OptionError(f"The model id {id_!r} is not a string.")
        if id_ in self.entries or id_ in self.aliases:
            raise OptionError(f"The model id {id_!r} is already in use. Remove that model first.")
        most = config.max_seqs or self._most
        places = Places(most, self._most_waiting, lambda: self._overloaded(id_), beyond=True)
        self.entries[id_] = Entry(id_, config, places)
        if self.default is None:
            self.default = id_

    def add_alias(self, alias: str, id_: str) -> None:
        """Give a model another name.

        Raises:
            OptionError: the name is taken or not a text.
            ModelNotFound: there is no such model.
        """
        if not isinstance(alias, str) or not alias:
            raise OptionError(f"The alias {alias!r} is not a string.")
        if alias in self.entries:
            raise OptionError(
                f"{alias!r} is the id of a model, so it cannot be an alias of another."
            )
        self.aliases[alias] = self.entry(id_).id

    def entry(self, name: str | None) -> Entry:
        """Return the model of an id or alias; without a name, the default.

        Raises:
            ModelNotFound: there is none.
        """
        if name is None:
            name = self.default
            if name is None:
                raise ModelNotFound(
                    "The Runner has no models. Add one: runner.add_model(id, source)."
                )
        found = self.entries.get(self.aliases.get(name, name))
        if found is None:
            raise self._unknown(name)
        return found

    def _unknown(self, name: str) -> ModelNotFound:
        known = ", ".join([*self.entries, *self.aliases]) or "none"
        error = ModelNotFound(f"There is no model {name!r}. Known models: {known}.")
        error.is_of_runner = True
        return error

    def ranking(self, given: str | None) -> str:
        """Return the id of the model that ranks passages: the named one, otherwise the first that
        is known to be an embedder, otherwise the usual one, which is added if necessary.

        Raises:
            ModelNotFound, OptionError: it is not a model.
        """
        if given is None:
            given = next(filter(self._is_embedder, self.entries), _RANKS)
        if given not in self.entries and given not in self.aliases:
            default = self.default
            self.add(given, ModelConfig(source=given, kind="embedding"))
            self.default = default
        return given

    def _is_embedder(self, id_: str) -> bool:
        entry = self.entries[id_]
        kind = known_kind(entry.config) if entry.host is None else entry.host.kind
        return kind == "embedding"

    def embedders(self) -> str:
        """Return the end of an error message: which models have vectors."""
        known = [f"model={id_!r}" for id_ in self.entries if self._is_embedder(id_)]
        if known:
            return f"Pass {' or '.join(known)}."
        return "Add an embedder, such as 'all-minilm-l6-v2', and pass its id as model=."

    # -- use --------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def lease(self, entry: Entry) -> AsyncIterator[Host]:
        """Load a model if necessary, and keep it loaded for a request.

        Raises:
            Overloaded: too many requests wait for the model.
            StructgenError: it cannot be loaded.
        """
        async with entry.places.of(owner()):
            began = time.monotonic()
            try:
                host = await self._loaded(entry)
                try:
                    yield host
                finally:
                    if host is entry.host or not entry.leaving:
                        entry.users -= 1
                    else:
                        entry.leaving -= 1
                    entry.used = next(self._clock)
                    self._notify()
            finally:
                entry.seconds += 0.1 * (time.monotonic() - began - entry.seconds)

    def _overloaded(self, id_: str) -> Overloaded:
        """Return the error for requests that the queue has no room for."""
        entry = self.entries[id_]
        waiting = entry.places.waiting
        seconds = max(1.0, entry.seconds * (waiting + 1) / (entry.config.max_seqs or self._most))
        return Overloaded(
            f"{entry.places.active:,} requests for {id_} are running and {waiting:,} are waiting. "
            "These are the limits of max_concurrency (or the model's max_seqs) and max_queue. "
            f"Retry in {seconds:.0f} s.",
            retry_after=seconds,
        )

    async def _loaded(self, entry: Entry) -> Host:
        """Load the model for a request, and count a user.

        A wrong option of the model is a ModelError here, because the request did not set it.
        """
        entry.wanted += 1
        try:
            while True:
                if entry.is_removed:
                    raise ModelNotFound(f"The model {entry.id!r} was removed.")
                if entry is self._yields:
                    await self._wait()
                elif entry.host is not None and entry.status == "loaded":
                    entry.users += 1
                    return entry.host
                else:
                    await self.load(entry)
        except OptionError as error:
            raise ModelError(f"Cannot load {entry.id}: {error}") from error
        finally:
            entry.wanted -= 1
            self._notify()

    # -- states -----------------------------------------------------------------------------

    async def load(self, entry: Entry) -> None:
        """Load a model unless it is loaded.

        Raises:
            ModelNotFound: it was removed.
            StructgenError: it cannot be.
        """
        while True:
            while entry.status == "unloading":
                await self._wait()
            if entry.is_removed:
                raise ModelNotFound(f"The model {entry.id!r} was removed.")
            if self._is_closed:
                raise ModelError("This Runner is closed. Create a new one.")
            if entry.status == "loaded":
                return
            if entry.task is None:
                entry.status, entry.error = "loading", None
                entry.task = asyncio.ensure_future(self._load(entry))
                # Otherwise asyncio logs a traceback if nobody waits any more.
                entry.task.add_done_callback(lambda task: task.cancelled() or task.exception())
            task = entry.task
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError:
                if not task.cancelled():
                    raise
                # It was unloaded meanwhile, which stops the loading of a model that hangs.

    async def _load(self, entry: Entry) -> None:
        try:
            need = entry.bytes or 0
            if self._budget is not None:
                # One that was found to need more than the budget loads alone, as the first time.
                need = min(need, self._budget) or await asyncio.to_thread(size_of, entry.config)
                async with self._making_room:
                    await self._make_room(entry, need)
                    entry.bytes = entry.held = need
            host = await opened(entry.config)
        except BaseException as error:
            if entry.task is asyncio.current_task():  # otherwise it was unloaded
                entry.status, entry.error, entry.held = "failed", error, 0
                entry.task = None
                self._notify()
            raise
        entry.host, entry.status, entry.task = host, "loaded", None
        entry.used, entry.since = next(self._clock), time.monotonic()
        if entry.config.memory is None:
            entry.bytes = max(host.memory, need)
        entry.held = 0 if entry.config.is_loaded else entry.bytes or 0
        self._notify()
        if self._budget is not None:  # it may need more than its files take
            await self._make_room(entry, entry.held, waits=False)

    async def _make_room(self, entry: Entry, need: int, *, waits: bool = True) -> None:
        """Unload models, least recently used first, until there is room or none is left."""
        budget = self._budget
        assert budget is not None
        if need > budget and waits:
            raise ModelError(
                f"{entry.id} needs about {need / 1e9:.2f} GB, but memory_budget is "
                f"{budget / 1e9:.2f} GB. Raise memory_budget."
            )
        began = time.monotonic()
        try:
            while self._held(entry) + need > budget:
                others = [
                    one
                    for one in self.entries.values()
                    if one.status == "loaded" and one is not entry and not one.config.is_loaded
                ]
                idle = [
                    one
                    for one in others
                    if not one.users and (not one.wanted or one is self._yields)
                ]
                if idle:
                    await self.unload(min(idle, key=lambda one: one.used))
                    continue
                if not waits:
                    return
                # All models that hold memory are in use, loading or unloading.
                first = min(others, key=lambda one: one.since, default=None)
                if first is None or self._yields in others:
                    await self._wait()
                elif (left := max(first.since, began) + _TURN - time.monotonic()) > 0:
                    await self._wait(left)
                else:
                    self._yields = first
        finally:
            if waits and self._yields is not None:
                self._yields = None
                self._notify()

    def _held(self, beside: Entry) -> int:
        """Return the bytes held by all models but one, those with room reserved included."""
        return sum(one.held for one in self.entries.values() if one is not beside)

    async def unload(self, entry: Entry) -> None:
        """Unload a model when its running requests have ended; waiting ones load it again.

        A model that is being loaded is not waited for, because it may hang.
        """
        while entry.status == "unloading":
            await self._wait()
        if entry.status != "loaded":
            if entry.task is not None:
                entry.task.cancel()
            entry.status, entry.error, entry.held, entry.task = "unloaded", None, 0, None
            self._notify()
            return
        entry.status = "unloading"
        try:
            while entry.users:
                await self._wait()
        except BaseException:
            entry.status = "loaded"
            self._notify()
            raise
        host, entry.host = entry.host, None
        if host is not None:
            await asyncio.shield(self._begin(self._close(entry, host)))

    def _begin(self, closing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start to close a model; it goes on even if the caller gives up."""
        task = asyncio.ensure_future(closing)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task

    async def _close(self, entry: Entry, host: Host) -> None:
        try:
            await host.close()
        finally:
            entry.status, entry.held = "unloaded", 0
            self._notify()

    async def swap(self, entry: Entry, source: Any) -> None:
        """Replace a model's source. The new one is loaded first; running requests finish on the old
        one.

        Raises:
            ModelError: the configuration has changed meanwhile, or memory has no room for both.
            StructgenError: the new one cannot be loaded; the model stays as it is.
        """
        before, need = entry.config, 0
        config = replace(before, source=source)
        if entry.status != "loaded":
            await self.unload(entry)
            entry.config, entry.bytes = config, None
            return
        if self._budget is not None:
            need = await asyncio.to_thread(size_of, config)
            async with self._making_room:
                await self._make_room(entry, entry.held + need)
                entry.held += need
        try:
            host = await opened(config)
        except BaseException:
            entry.held = max(entry.held - need, 0)
            raise
        old = entry.host
        if entry.status != "loaded" or entry.config is not before or old is None:
            entry.held = max(entry.held - need, 0)
            await host.close()
            raise ModelError(f"{entry.id} was unloaded or changed during the request. Try again.")
        entry.host, entry.config = host, config
        entry.leaving, entry.users = entry.users, 0
        try:
            while entry.leaving:
                await self._wait()
        finally:
            await asyncio.shield(self._begin(old.close()))
            entry.bytes = max(host.memory, need)
            if entry.host is host:
                entry.held = entry.bytes
            self._notify()

    async def remove(self, entry: Entry) -> None:
        """Unload a model and forget it, with its aliases."""
        entry.is_removed = True
        try:
            await self.unload(entry)
        finally:
            # Unless the caller gives up.
            entry.is_removed = entry.host is None and entry.status != "loading"
            if entry.is_removed:
                self._forget(entry)

    def _forget(self, entry: Entry) -> None:
        if self.entries.get(entry.id) is not entry:
            return  # removed by another call meanwhile
        self.entries.pop(entry.id, None)
        self.aliases = {alias: id_ for alias, id_ in self.aliases.items() if id_ != entry.id}
        if self.default == entry.id:
            self.default = next(iter(self.entries), None)

    async def close(self) -> None:
        """Close all models and wait until they have ended. Running requests fail."""
        self._is_closed = True
        tasks = [entry.task for entry in self.entries.values() if entry.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for entry in self.entries.values():
            if entry.host is not None:
                self._begin(entry.host.close())
            entry.host, entry.status, entry.held = None, "unloaded", 0
        await asyncio.gather(*self._closing)

    def _notify(self) -> None:
        """Wake everything that waits for a change."""
        self._change.set()
        self._change = asyncio.Event()

    async def _wait(self, seconds: float | None = None) -> None:
        """Wait until something has changed, at most so many seconds."""
        # Not `asyncio.wait_for`, which before Python 3.12 may lose a cancellation.
        loop = asyncio.get_running_loop()
        timer = None if seconds is None else loop.call_later(seconds, self._notify)
        try:
            await self._change.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def info(self, entry: Entry) -> dict[str, Any]:
        """Return the facts about a model, with a text model's sampling defaults."""
        defaults = getattr(entry.host, "search_defaults", None)
        return {
            "id": entry.id,
            "status": entry.status,
            "source": entry.config.shown,
            "kind": None if entry.host is None else entry.host.kind,
            "bytes": entry.bytes if entry.status == "loaded" else None,
            "users": entry.users,
            "error": None if entry.error is None else str(entry.error),
            "aliases": sorted(a for a, id_ in [*self.aliases.items()] if id_ == entry.id),
            "is_default": self.default == entry.id,
            "search_defaults": None
            if defaults is None
            else {name: defaults[name] for name in SETTINGS if name in defaults},
        }
