"""Jobs that other machines ask, without Ray: tests/jobs/test_ray.py has a cluster."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner
from cluster import MODELS, simulate  # of tests/benchmarks

from structgen.cli.commands import cli
from structgen.errors import OptionError
from structgen.jobs import Row, batch
from structgen.ray import Cluster


class There:
    """A cluster that answers with the length of the prompt."""

    size = 3
    window = 4
    identity: ClassVar[dict[str, Any]] = {}

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
    assert there.make(None, "m").identity["result"] == "output"
    (part,) = out.glob("part-*")
    assert part.name.startswith("part-000000000000-000000000008-")
    # The same job may end on this machine: nothing in its folder says where it was asked.
    batch(source, int, output=out, progress=silent)
    assert list(out.glob("part-*")) == [part]
    made = batch([{"text": "a"}], int, cluster=there)
    assert [row["output"] for row in made] == [1]


def test_what_does_not_go_together_is_told(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="do not go with cluster="):
        batch(["x"], cluster=There(), workers=2)
    for wrong in ({"actors": (0, 1)}, {"actors": (3, 2)}, {"cpus": -1}, {"rows": 0}):
        with pytest.raises(OptionError, match=r"actors=|cpus="):
            Cluster(**wrong)  # type: ignore[arg-type]
    (tmp_path / "in.txt").write_text("x\n")
    command = ["batch", str(tmp_path / "in.txt"), "-o", str(tmp_path / "out")]
    for flags, said in (
        (["--actors", "2"], "go with --ray"),
        (["--ray", "local", "--actors", "some"], "--actors is a number"),
    ):
        assert said in CliRunner().invoke(cli, [*command, *flags]).output
    if importlib.util.find_spec("ray") is None:
        ended = CliRunner().invoke(cli, [*command, "--ray", "local"], standalone_mode=False)
        assert "pip install 'structgen[ray]'" in str(ended.exception)


def test_the_simulation_writes_each_row_once() -> None:
    for seed in range(5):
        out = simulate(
            MODELS[0], 20_000, 30, hours_between_losses=0.05, driver_losses=(0.3, 0.7), seed=seed
        )
        assert (out.missing, out.repeated) == (0, 0)
        assert out.kills > 10
        assert 0 < out.lost < out.busy
