"""Jobs on a cluster of Ray: what is killed is asked again, and each row is written once.

Ray is in no environment of the other tests: pip install '.[ray]'.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

import structgen

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("default")

N = 2_000
COMMAND = """
import structgen.jobs.job as job
job._SECONDS_PER_PART = 3.0  # not a minute
from structgen.cli import main
main()
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes, of a processor each, on this machine."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    made.second = made.add_node(num_cpus=1)
    yield made
    ray.shutdown()
    made.shutdown()


def read(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for part in sorted(folder.glob("part-*"))
        for line in part.read_text(encoding="utf-8").splitlines()
    ]


def actors(node: Any) -> list[int]:
    """Processes of actors that are of a node."""
    found = []
    raylet = next(one.process.pid for one in node.all_processes["raylet"])
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            rest = path.read_text().rpartition(")")[2]
            line = path.with_name("cmdline").read_bytes()
        except OSError:
            continue
        if int(rest.split()[1]) == raylet and line.startswith(b"ray::_Actor"):
            found.append(int(path.parent.name))
    return found


def test_kills_lose_nothing_and_repeat_nothing(cluster: Any, tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out"
    with source.open("w") as file:
        for i in range(N):
            file.write(json.dumps({"id": i, "text": f"The soup of day {i} was cold."}) + "\n")
    arguments = ["batch", str(source), "-o", str(out), "--prompt", "Good or bad? {text}"]
    arguments += ["--choice", "good", "--choice", "bad", "--max-new-tokens", "5"]
    arguments += ["--ray", cluster.address, "--actors", "1:2"]

    def begin() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", COMMAND, *arguments])

    def wait_for_parts(more: int) -> None:
        wanted = len(list(out.glob("part-*"))) + more
        end = time.monotonic() + 300
        while len(list(out.glob("part-*"))) < wanted:
            assert job.poll() is None, "the job has ended"
            assert time.monotonic() < end, "no part was written"
            time.sleep(0.1)

    job = begin()
    wait_for_parts(1)
    victim = actors(cluster.head_node)[0]
    os.kill(victim, signal.SIGKILL)
    wait_for_parts(2)
    assert actors(cluster.second), "both nodes have actors"
    cluster.remove_node(cluster.second)
    wait_for_parts(2)
    job.kill()
    job.wait()
    before = {path.name for path in out.glob("part-*")}
    assert 0 < len(read(out)) < N, "it was killed on its way"

    job = begin()
    assert job.wait(600) == 0
    assert before < {path.name for path in out.glob("part-*")}, "what was done stays"
    rows = read(out)
    assert [row["id"] for row in rows] == list(range(N))
    assert {row["output"] for row in rows} <= {"good", "bad"}
    assert all(row["error"] is None and row["output_tokens"] > 0 for row in rows)


def test_datasets(cluster: Any) -> None:
    import structgen.ray

    if not ray.is_initialized():
        ray.init(cluster.address, log_to_driver=False)
    one = structgen.ray.Cluster(actors=(1, 1), rows=8)
    texts = [f"The soup of day {i} was cold." for i in range(20)] + [None]
    dataset = ray.data.from_items([{"id": i, "text": text} for i, text in enumerate(texts)])
    made = structgen.ray.generate(
        dataset, Literal["good", "bad"], column="text", cluster=one, max_new_tokens=9
    )
    rows = sorted(made.take_all(), key=lambda row: row["id"])
    assert [row["id"] for row in rows] == list(range(21))
    assert {row["output"] for row in rows[:20]} <= {"good", "bad"}
    assert "is empty" in rows[20]["error"]["message"]
    questions = {"good": {"type": "predicate", "instructions": "Is it good?"}}
    row = structgen.ray.decide(dataset.limit(2), questions, column="text", cluster=one).take(1)[0]
    assert 0 <= json.loads(row["output"])["good"]["probability"] <= 1
    row = structgen.ray.embed(dataset.limit(2), column="text", cluster=one).take(1)[0]
    assert len(row["output"]) == 384
    with pytest.raises(structgen.OptionError, match="Unknown option 'nothing'"):
        structgen.ray.generate(dataset, nothing=1)


def test_a_job_that_cannot_go_on_says_why(cluster: Any, tmp_path: Path) -> None:
    there = structgen.ray.Cluster(address=cluster.address, actors=(1, 1))
    with pytest.raises(structgen.OptionError, match="There is no column 'q'"):
        structgen.batch(["a", "b"], column="q", cluster=there, output=tmp_path / "out")
    with pytest.raises(structgen.StructgenError, match="nowhere"):
        structgen.batch(["a"], model=tmp_path / "nowhere", cluster=there, output=tmp_path / "two")
