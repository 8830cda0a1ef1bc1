"""Rows processed by Ray actors, each with its own model.

Here are the actors, and how rows and results are sent. `structgen.jobs` decides what is asked about
a row, and writes the folder of results.

A job has a `_Pool`. The job's process reads the rows, gives each actor a few at a time, and alone
writes the results, in order. So no row is written twice, whatever is killed; rows of a lost actor
go to another one at once. A dataset is processed by actors of Ray Data (`generate`).
"""

from __future__ import annotations

import functools
import logging
import os
import pickle
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from structgen import models
from structgen.errors import ModelError, OptionError, StructgenError, requires
from structgen.jobs import Asker, BadRow, Columns, Row, asker, default_model, model_digest, results
from structgen.runner import ModelConfig, Runner

_AT_ONCE = 2
"""Units of rows that an actor works on at once, so that the next has begun while one ends."""

_LOSSES = 5
"""If a unit of rows loses its actor this often, the job ends: most likely the rows are the cause.
"""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Actors that run a model, on all machines of a Ray cluster.

    Attributes:
        address: ``"auto"``: the cluster of this machine; ``"local"``: a new cluster of this machine
            alone; or ``HOST:PORT``. An existing connection of ``ray.init`` is used first.
        actors: fewest and most actors, each with a model; None: as many as fit now. A larger number
            lets a cluster with autoscaling grow.
        cpus: processors of an actor; its model uses as many threads.
        gpus: GPUs of an actor; 0.5: two actors share one.
        rows: number of rows that an actor gets at once.
        batch_size: as in `structgen.load_async`.
        modules: Python modules with output types that other machines lack; they are sent to them.
    """

    address: str = "auto"
    actors: tuple[int, int | None] = (1, None)
    cpus: float = 1
    gpus: float = 0
    rows: int = 64
    batch_size: int | None = None
    modules: tuple[ModuleType, ...] = ()

    def __post_init__(self) -> None:
        least, most = self.actors
        if least < 1 or (most is not None and most < least):
            raise OptionError(f"actors={self.actors!r}: pass a minimum from 1, and a maximum.")
        if min(self.cpus, self.gpus) < 0 or self.rows < 1:
            raise OptionError("cpus= and gpus= must be 0 or more, rows= 1 or more.")

    def pool(self, make: Asker, model: str) -> _Pool:
        """Connect, and start the fewest actors: see `structgen.jobs.Cluster`."""
        return _Pool(self, make, model)

    def arguments(self, make: Asker, model: str) -> tuple[Any, ...]:
        """Return Ray's arguments for an actor."""
        for module in self.modules:
            _ray().cloudpickle.register_pickle_by_value(module)
        config = ModelConfig(
            source=model,
            threads=max(1, int(self.cpus)),
            providers=["cuda"] if self.gpus else None,
            batch_size=self.batch_size,
        )
        return make, model, config, model_digest(model)


class _Actor:
    """An actor: a model and what is asked of it."""

    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments

    def begin(self) -> None:
        """Load the model. The first actor of a machine downloads it, the others wait."""
        make, model, config, digest = self._arguments
        if model_digest(model) != digest:
            raise ModelError(
                f"{model} has other files here ({models.path(model)}) than on the machine of the "
                "job. Remove them, and install the same versions of packages on both."
            )
        runner = Runner({model: config})
        runner.load(model)
        self._ask = make(runner, model)
        self._window = max(1, self._ask.window // _AT_ONCE)

    def asked(self, rows: Sequence[Row | BadRow]) -> list[Row]:
        """Return the results of rows."""
        return list(results(iter(rows), self._ask, self._window))


class _Pool:
    """The actors of a job; decides which one gets the next rows. Used by several threads."""

    def __init__(self, cluster: Cluster, make: Asker, model: str) -> None:
        self._ray = ray = _ray()
        self.size = cluster.rows
        self._arguments = cluster.arguments(make, model)
        self._connects = not ray.is_initialized()
        if self._connects:
            _connect(cluster.address)
        self._actor = ray.remote(_Actor).options(
            num_cpus=cluster.cpus, num_gpus=cluster.gpus, max_concurrency=_AT_ONCE + 1
        )
        least, most = cluster.actors
        self._most = most or max(least, _room(ray.cluster_resources(), cluster))
        self.window = _AT_ONCE * self._most
        self._changed = threading.Condition()
        self._starting: set[Any] = set()
        self._busy: Counter[Any] = Counter()
        """Number of units that each actor works on."""
        self._n_failed = 0
        """Number of actors in a row that were lost while starting."""
        self._failed: StructgenError | None = None
        with self._changed:
            for _ in range(least):
                self._start()

    def __call__(self, rows: Sequence[Row | BadRow]) -> list[Row]:
        """Return the result of each row."""
        for _ in range(_LOSSES):
            actor = self._take()
            try:
                try:
                    asked = actor.asked.remote(rows)
                except (TypeError, ValueError, AttributeError, pickle.PicklingError) as error:
                    message = "Rows cannot be sent to an actor: pickle refuses some values."
                    raise OptionError(message) from error
                made: list[Row] = self._ray.get(asked)
                return made
            except self._ray.exceptions.RayActorError:
                with self._changed:
                    self._busy.pop(actor, None)
            except self._ray.exceptions.RayTaskError as error:
                raise _cause(error) from error
            finally:
                with self._changed:
                    if actor in self._busy:
                        self._busy[actor] -= 1
                    self._changed.notify()
        raise StructgenError(f"{_LOSSES} actors in a row were lost with the same rows.")

    def _take(self) -> Any:
        """Return the actor with the least to do; start another if all are busy."""
        with self._changed:
            while True:
                if self._failed is not None:
                    raise self._failed
                actor = min(self._busy, key=self._busy.__getitem__, default=None)
                if actor is not None and self._busy[actor] < _AT_ONCE:
                    self._busy[actor] += 1
                    return actor
                if len(self._starting) + len(self._busy) < self._most:
                    self._start()
                self._changed.wait()

    def _start(self) -> None:
        actor = self._actor.remote(*self._arguments)
        self._starting.add(actor)
        actor.begin.remote().future().add_done_callback(functools.partial(self._has_started, actor))

    def _has_started(self, actor: Any, begun: Any) -> None:
        error = begun.exception()
        with self._changed:
            self._starting.discard(actor)
            self._n_failed = 0 if error is None else self._n_failed + 1
            if error is None:
                self._busy[actor] = 0
            elif (
                not isinstance(error, self._ray.exceptions.RayActorError)
                or self._n_failed >= _LOSSES + self._most
            ):
                self._failed = self._failed or _cause(error)
            self._changed.notify_all()

    def close(self) -> None:
        """End the actors and the connection. Calling it again does nothing."""
        with self._changed:
            self._failed = self._failed or StructgenError("The job was closed.")
            actors = [*self._busy, *self._starting]
            self._busy.clear()
            self._starting.clear()
            self._changed.notify_all()
        for actor in actors:
            self._ray.kill(actor)
        if self._connects:
            self._connects = False
            self._ray.shutdown()


class _Tables(_Actor):
    """Asks about the rows of a dataset's tables."""

    def __init__(self, columns: Callable[[Any], Columns], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._columns = columns
        self.begin()

    def __call__(self, table: Any) -> Any:
        """Return the table with columns for results, the same whatever the results are."""
        self._ask.check(dict.fromkeys(table.column_names))
        return self._columns(table.schema).table(self.asked(table.to_pylist()), None)


def generate(dataset: Any, output_type: Any = None, **asked: Any) -> Any:
    """Add a column of outputs to a dataset, with the other columns that `structgen.batch` adds.

    The column has the Arrow type of the output type. A row that fails has its error in it.

    Args:
        dataset: a dataset of Ray Data.
        output_type: as in `structgen.batch`.
        **asked: further arguments of `structgen.batch`: ``prompt``, ``column`` or ``messages``,
            ``model``, ``result``, and options of a call; and ``cluster`` for the actors (its
            address is not used).

    Returns:
        A new, lazy dataset.

    Raises:
        OptionError: an option is wrong.
    """
    return _added(dataset, output_type, output_type=output_type, **asked)


def embed(dataset: Any, **asked: Any) -> Any:
    """Add a column of vectors to a dataset; arguments as in `generate`."""
    return _added(dataset, list[float], embed=True, **asked)


def decide(dataset: Any, questions: Any, **asked: Any) -> Any:
    """Add a column of answers to questions, as JSON text; arguments as in `generate`."""
    return _added(dataset, dict[str, Any], questions=questions, **asked)


def _added(
    dataset: Any,
    kind: Any,
    *,
    model: str | None = None,
    result: str = "output",
    cluster: Cluster | None = None,
    **asked: Any,
) -> Any:
    make = asker(**asked, result=result, as_written=True)
    cluster = cluster or Cluster()
    model = model or default_model(asked.get("embed", False))
    least, most = cluster.actors
    return dataset.map_batches(
        _Tables,
        fn_constructor_args=(
            functools.partial(Columns, kind, result),
            *cluster.arguments(make, model),
        ),
        batch_size=cluster.rows,
        batch_format="pyarrow",
        compute=_ray().data.ActorPoolStrategy(
            min_size=least,
            max_size=most,
            max_concurrent_calls_per_actor=_AT_ONCE,
            enable_true_multi_threading=True,
        ),
        num_cpus=cluster.cpus,
        num_gpus=cluster.gpus or None,
    )


def _room(resources: Mapping[str, float], cluster: Cluster) -> int:
    """Return the number of actors that a cluster has room for."""
    wanted = (("CPU", cluster.cpus), ("GPU", cluster.gpus))
    return int(min((resources.get(name, 0) // n for name, n in wanted if n), default=1))


def _cause(error: BaseException) -> StructgenError:
    """Return the exception that an actor raised, instead of Ray's wrapper."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, StructgenError) else StructgenError(f"Ray: {error}")


def _connect(address: str) -> None:
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}
    if address == "local":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        options["include_dashboard"] = False
    try:
        _ray().init(address, **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise OptionError(f"No Ray cluster was found at {address!r}: {error}.") from None


def _ray() -> Any:
    with requires(OptionError, "This requires Ray", "ray"):
        import ray
        import ray.data
        import ray.exceptions
    return ray
