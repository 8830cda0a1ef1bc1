"""Jobs that other machines ask, without Ray: tests/jobs/test_ray.py has a cluster."""

from __future__ import annotations

import importlib.util
import itertools
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from cluster import MODELS, simulate  # of tests/benchmarks

from structgen.cli.commands import cli
from structgen.errors import ModelError, OptionError, StructgenError
from structgen.jobs import Job, Row, Source, asker, batch
from structgen.ray import Cluster, data


class There:
    """A cluster that answers with the length of the prompt."""

    size = 3
    window = 4

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.is_open = False

    def pool(self, make: Any, model: str) -> There:
        self.is_open = True
        self.make, self.model = make, model
        return self

    def __call__(self, rows: Sequence[Any]) -> list[Row]:
        self.asked.append(len(rows))
        return [row | {"output": len(row["text"]), "error": None} for row in rows]

    def close(self) -> None:
        self.is_open = False


def test_a_job_is_asked_elsewhere_and_written_here(tmp_path: Path) -> None:
    there = There()
    source = tmp_path / "in.txt"
    source.write_text("".join("x" * i + "\n" for i in range(1, 9)))
    silent: Any = lambda job: None  # noqa: E731
    out = batch(source, int, cluster=there, output=tmp_path / "out", progress=silent)
    assert sorted(there.asked) == [2, 3, 3]
    assert not there.is_open
    assert there.model == "smollm2-135m-instruct"
    identity = there.make(None, "m").identity
    assert (identity["result"], identity["prompt"]) == ("output", {"column": "text"})
    (part,) = out.glob("part-*")
    assert part.name.startswith("part-000000000000-000000000008-")
    # The same job may end on this machine: nothing in its folder says where it was asked.
    batch(source, int, output=out, progress=silent)
    assert list(out.glob("part-*")) == [part]
    made = batch([{"text": "a"}], int, cluster=there)
    assert [row["output"] for row in made] == [1]


def test_what_does_not_go_together_is_told(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cannot be combined with cluster="):
        batch(["x"], cluster=There(), workers=2)
    for wrong in ({"actors": (0, 1)}, {"actors": (3, 2)}, {"cpus": -1}, {"rows": 0}):
        with pytest.raises(OptionError, match=r"actors=|cpus="):
            Cluster(**wrong)  # type: ignore[arg-type]
    (tmp_path / "in.txt").write_text("x\n")
    command = ["batch", str(tmp_path / "in.txt"), "-o", str(tmp_path / "out")]
    for flags, said in (
        (["--actors", "2"], "require --ray"),
        (["--ray", "local", "--actors", "some"], "--actors must be a number"),
    ):
        assert said in CliRunner().invoke(cli, [*command, *flags]).output
    if importlib.util.find_spec("ray") is None:
        ended = CliRunner().invoke(cli, [*command, "--ray", "local"], standalone_mode=False)
        assert "pip install 'structgen[ray]'" in str(ended.exception)


class Lost(Exception):
    """An actor is not there any more."""


class Failed(Exception):
    """An actor raised."""

    def __init__(self, cause: Exception) -> None:
        self.cause = cause


class FakeRay:
    """What `structgen.ray` uses of Ray, in threads: actors that answer, raise, or are lost."""

    exceptions = SimpleNamespace(RayActorError=Lost, RayTaskError=Failed)

    def __init__(self, begin: Callable[[], None], asked: Callable[[list[Row]], list[Row]]) -> None:
        self.threads = ThreadPoolExecutor(32)
        self.doing = SimpleNamespace(begin=begin, asked=asked)
        self.n_actors = 0
        self.under_way: list[int] = []
        self.lock = threading.Lock()

    def is_initialized(self) -> bool:
        return True

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 3.0}

    def remote(self, kind: type) -> Any:
        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=self.start))

    def start(self, *_: Any) -> Any:
        number = self.n_actors
        self.n_actors += 1
        self.under_way.append(0)
        begin = SimpleNamespace(remote=lambda: self.submit(self.doing.begin))
        asked = SimpleNamespace(remote=lambda rows: self.submit(self.count, number, rows))
        return Handle(begin, asked)

    def count(self, number: int, rows: list[Row]) -> list[Row]:
        with self.lock:
            self.under_way[number] += 1
            assert self.under_way[number] <= 2
        try:
            return self.doing.asked(rows)
        finally:
            with self.lock:
                self.under_way[number] -= 1

    def submit(self, do: Callable[..., Any], *arguments: Any) -> Any:
        made: Future[Any] = self.threads.submit(do, *arguments)
        return SimpleNamespace(future=lambda: made)

    def get(self, reference: Any) -> Any:
        return reference.future().result()

    def kill(self, actor: Any) -> None:
        pass


class Handle:
    def __init__(self, begin: Any, asked: Any) -> None:
        self.begin, self.asked = begin, asked


def job(fake: FakeRay, monkeypatch: pytest.MonkeyPatch, n: int) -> Job:
    monkeypatch.setattr(data, "_ray", lambda: fake)
    monkeypatch.setattr(data, "model_digest", lambda model: model)  # looks for no such model
    pool = Cluster(rows=4).pool(asker(), "org/fake")
    source = Source(lambda: ({"i": i} for i in range(n)))
    return Job(source, pool, window=pool.window, close=pool.close)


def answered(rows: list[Row]) -> list[Row]:
    return [row | {"output": row["i"], "error": None} for row in rows]


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_lost_actors_go_to_others(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, begun, asks = random.Random(seed), itertools.count(), itertools.count()

    def begin() -> None:
        if next(begun) % 5 == seed:
            raise Lost

    def asked(rows: list[Row]) -> list[Row]:
        time.sleep(draw.random() / 1000)
        if next(asks) % 7 == seed:
            raise Lost
        return answered(rows)

    fake = FakeRay(begin, asked)
    with job(fake, monkeypatch, 120) as made:
        assert [row["output"] for row in made] == list(range(120))
    # 30 units are asked five of them in vain, by three actors or more: each has two at once.
    assert fake.n_actors > 3


def test_a_pool_that_cannot_go_on_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: Any) -> Any:
        raise Lost

    def wrong(*_: Any) -> Any:
        raise Failed(ModelError("no such model"))

    def fine() -> None:
        pass

    for begin, asked, said in (
        (wrong, answered, "no such model"),
        (lost, answered, "Ray: "),
        (fine, wrong, "no such model"),
        (fine, lost, "5 actors in a row were lost"),
    ):
        with (
            job(FakeRay(begin, asked), monkeypatch, 9) as made,
            pytest.raises(StructgenError, match=said),
        ):
            list(made)
    # One that is closed while all are busy waits for nobody.
    free = threading.Event()
    fake = FakeRay(fine, lambda rows: answered(rows) if free.wait(5) else rows)
    made = job(fake, monkeypatch, 99)
    threading.Timer(0.1, free.set).start()
    next(made)
    made.close()


def test_what_cannot_be_sent_to_an_actor_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fake(FakeRay):
        def submit(self, do: Callable[..., Any], *arguments: Any) -> Any:
            if arguments:
                raise TypeError("cannot pickle '_thread.lock' object")
            return super().submit(do, *arguments)

    with (
        job(Fake(lambda: None, answered), monkeypatch, 9) as made,
        pytest.raises(OptionError, match="Rows cannot be sent to an actor"),
    ):
        list(made)


def test_a_dataset_with_a_column_of_results_is_refused() -> None:
    """Arrow said that a dict is no string, of a column ``error``."""
    tables = data._Tables.__new__(data._Tables)
    tables._ask = asker()(None, None)
    with pytest.raises(OptionError, match="The input has a column 'error'"):
        tables(SimpleNamespace(column_names=["text", "error"]))


def test_the_simulation_writes_each_row_once() -> None:
    for seed in range(5):
        out = simulate(
            MODELS[0], 20_000, 30, hours_between_losses=0.05, driver_losses=(0.3, 0.7), seed=seed
        )
        assert (out.missing, out.repeated) == (0, 0)
        assert out.kills > 10
        assert 0 < out.lost < out.busy
