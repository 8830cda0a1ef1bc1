"""An embedder in its process, which crashes, hangs or eats memory by itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import structgen
from structgen import Runner
from structgen.decisions import Choice, Decider
from structgen.errors import ModelError, OptionError, WorkerDied
from structgen.models.embedding import Embedder
from structgen.runner.hosts import EmbeddingHost, ModelConfig
from structgen.workers import EmbedderProcess, embedders
from structgen.workers import process as processes

sys.path[:0] = [str(Path(__file__).parents[1] / place) for place in ("models", "runner")]
import tiny_embedders as tiny  # noqa: E402
from mixed import tiny_model  # noqa: E402

LITTLE = -2 << 30  # beside the 5 GiB of two passes
TEXTS = ["a b c", "d", "", "a b c d e f g"]
SHORT, LONG = "a", " ".join("abcdefghij")


def waits(op: tiny.Builder, n_tokens: ir.Value) -> ir.Value:
    """0, after as many steps as tokens to the power of 17: none that anybody waits for."""
    number = tiny.value("number", ir.DataType.INT64, [])
    goes_on = tiny.value("goes_on", ir.DataType.BOOL, [])
    last = tiny.value("last", ir.DataType.FLOAT, [1])
    body = tiny.Builder()
    made = tiny.output(body("Identity", last), "made", ir.DataType.FLOAT, [1])
    still = tiny.output(body("Identity", goes_on), "still", ir.DataType.BOOL, [])
    loop = ir.Graph(
        [number, goes_on, last],
        [still, made],
        nodes=body.nodes,
        opset_imports={"": 18},
        name="loop",
    )
    many = op("Pow", n_tokens, op.constant(np.array(17)))
    few = op("Div", many, op.constant(np.array(3**17)))  # 1 for the shortest text
    nought = op.constant(np.zeros(1, np.float32))
    return op("Loop", few, op.constant(np.array(True)), nought, body=loop)


def eats(op: tiny.Builder, n_tokens: ir.Value) -> ir.Value:
    """0, worked out by 16 MB for the shortest text, and 4 GB for one of 12 tokens."""
    many = op("Pow", n_tokens, op.constant(np.array(4)))
    shape = op(
        "Reshape", op("Mul", many, op.constant(np.array(50_000))), op.constant(np.array([1]))
    )
    noughts = op("ConstantOfShape", shape)
    return op("ReduceSum", op("Cos", op("Exp", noughts)), op.constant(np.array([0])), keepdims=1)


def folder(place: Path, does: Callable[[tiny.Builder, ir.Value], ir.Value]) -> Path:
    """An embedder's, whose vectors are noughts and what something gives that runs first."""
    tiny.folder(place, pooling=None)
    op = tiny.Builder()
    ids = tiny.value("input_ids", ir.DataType.INT64, ["batch", "tokens"])
    n_tokens = op("Gather", op("Shape", ids), op.constant(np.array(1)))
    rows = op("Gather", op.constant(tiny.TABLE), ids)
    made = op(
        "Add", op("ReduceMax", rows, op.constant(np.array([1])), keepdims=0), does(op, n_tokens)
    )
    shape: list[str | int] = ["batch", tiny.WIDTH]
    found = tiny.output(made, "sentence_embedding", ir.DataType.FLOAT, shape)
    op.save(place / "model.onnx", [ids], [found])
    return place


Open = Callable[..., Embedder]


@pytest.fixture
def opened() -> Iterator[Open]:
    """Loads an embedder in a process."""
    made: list[EmbedderProcess] = []

    def load(place: Path, most: int | None = None, max_silence: float | None = None) -> Embedder:
        made.append(EmbedderProcess(place, {}, most, max_silence))
        return made[-1].embedder()

    yield load
    for one in made:
        one.close()


def graph_of(embedder: Embedder) -> EmbedderProcess:
    found = embedder._graph
    assert isinstance(found, EmbedderProcess)
    return found


def test_vectors_are_those_of_a_graph_that_runs_here(tmp_path: Path, opened: Open) -> None:
    place = tiny.folder(tmp_path)
    here, there = structgen.load_embedder(place), opened(place)
    assert repr(here) == repr(there)
    assert np.array_equal(here.embed(TEXTS), there.embed(TEXTS))
    assert graph_of(there).pid not in (None, os.getpid())
    tiny.text_graph(tmp_path / "text" / "model.onnx")
    reads = opened(tmp_path / "text")
    assert reads.max_length is None
    assert reads.embed(["one", "two"]).shape == (2, tiny.WIDTH)


def test_what_is_wrong_with_a_graph_is_said_as_it_is_here(tmp_path: Path, opened: Open) -> None:
    place = tiny.folder(tmp_path)
    (place / "model.onnx").write_bytes(b"no graph")
    said = []
    for load in (structgen.load_embedder, opened):
        with pytest.raises(ModelError) as caught:
            load(place)
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_a_process_that_is_lost_is_started_again(tmp_path: Path, opened: Open) -> None:
    embedder = opened(folder(tmp_path, waits))
    before = embedder.embed(SHORT)
    told: list[BaseException] = []

    def ask() -> None:
        try:
            embedder.embed(LONG)
        except BaseException as error:
            told.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    graph = graph_of(embedder)
    process = graph._process
    assert process is not None
    while not process._handlers:
        time.sleep(0.01)
    assert np.array_equal(embedder.embed(SHORT), before)  # others' go on beside it
    os.kill(process.pid, signal.SIGTERM)
    thread.join(20)
    (error,) = told
    assert isinstance(error, WorkerDied)
    assert f"The process that runs {tmp_path.name} ended by signal" in str(error)
    assert np.array_equal(embedder.embed(SHORT), before)
    assert graph.pid not in (None, process.pid)


def test_files_that_changed_are_told_when_it_is_started_again(tmp_path: Path, opened: Open) -> None:
    """Vectors of two models were taken for those of one."""
    embedder = opened(tiny.folder(tmp_path))
    before = embedder.embed(SHORT)
    process = graph_of(embedder)._process
    assert process is not None
    process.stop()
    tiny.folder(tmp_path, pooling="cls_token")
    with pytest.raises(ModelError, match="have changed since it was loaded"):
        embedder.embed(SHORT)
    tiny.folder(tmp_path / "1")
    (tmp_path / "1" / "1_Pooling" / "config.json").replace(tmp_path / "1_Pooling" / "config.json")
    assert np.array_equal(embedder.embed(SHORT), before)


def test_an_answer_that_cannot_be_sent_counts_as_one_that_hangs(
    tmp_path: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where memory is short. It was waited for without end."""
    monkeypatch.setattr(processes, "_LOOK_SECONDS", 0.01)
    process = graph_of(opened(tiny.folder(tmp_path), max_silence=30.0))  # looks
    with pytest.raises(WorkerDied, match="max_silence"):
        process._called("_choose", False)  # gives objects of the runtime


def test_a_graph_that_hangs_is_ended_though_others_are_answered(
    tmp_path: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_LOOK_SECONDS", 0.01)
    embedder = opened(folder(tmp_path, waits), max_silence=30.0)  # looks
    before = embedder.embed(SHORT)
    ended = threading.Event()

    def ask() -> None:
        while not ended.is_set():
            with contextlib.suppress(WorkerDied):
                assert np.array_equal(embedder.embed(SHORT), before)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        with pytest.raises(WorkerDied, match=r"took more than 30 s \(max_silence\)"):
            embedder.embed(LONG)
    finally:
        ended.set()
        thread.join(20)
    assert np.array_equal(embedder.embed(SHORT), before)


ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="limits count what is written alone")


@ON_LINUX
def test_a_tokenizer_that_eats_memory_fails_by_itself(tmp_path: Path, opened: Open) -> None:
    """It was the server's memory."""
    place = tiny.folder(tmp_path)
    document = json.loads((place / "tokenizer.json").read_text())
    grows = {"type": "Replace", "pattern": {"String": "ж"}, "content": "ж" * 64}
    document["normalizer"] = grows
    (place / "tokenizer.json").write_text(json.dumps(document))
    embedder = opened(place, most=LITTLE)
    before = embedder.embed(SHORT)
    asks = partial(embedder.tokenize_whole, add_special_tokens=True)
    for ask in (embedder.embed, embedder.tokenize, asks):
        with pytest.raises((ModelError, WorkerDied)):
            ask("ж" * 2_000_000)
        assert np.array_equal(embedder.embed(SHORT), before)


@ON_LINUX
def test_a_graph_that_eats_memory_fails_by_itself(tmp_path: Path, opened: Open) -> None:
    embedder = opened(folder(tmp_path, eats), most=LITTLE)
    before = embedder.embed(SHORT)
    for _ in range(2):
        with pytest.raises(ModelError):
            embedder.embed(LONG)
        assert np.array_equal(embedder.embed(SHORT), before)


def test_one_that_was_dropped_or_closed_ends(tmp_path: Path, opened: Open) -> None:
    place = tiny.folder(tmp_path)
    embedder = opened(place)
    graph = graph_of(embedder)
    assert graph.pid is not None
    graph.close()
    assert graph.pid is None
    with pytest.raises(ModelError, match=f"{tmp_path.name} was closed"):
        embedder.embed(SHORT)
    dropped = EmbedderProcess(place, {}, None, None).embedder()
    process = graph_of(dropped)._process
    assert process is not None
    del dropped
    assert process._process.wait(20) == 0


def test_giving_up_on_one_that_hangs_while_it_loads_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, stopped = threading.Event(), threading.Event()

    class Hanging:
        is_alive = False

        def __init__(self, *_: object) -> None:
            pass

        def wait_until_ready(self) -> Any:
            begun.set()
            assert stopped.wait(20)
            raise ModelError("closed")

        def stop(self) -> None:
            stopped.set()

        end = stop

    monkeypatch.setattr(embedders, "WorkerProcess", Hanging)

    async def given_up() -> None:
        task = asyncio.create_task(EmbeddingHost.open(ModelConfig(source=tiny.folder(tmp_path))))
        while not begun.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(given_up())
    assert stopped.is_set()


def test_a_runners_embedder_runs_outside_and_its_hanging_graph_ends_one_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ran in the server's own process, for ever."""
    monkeypatch.setattr(processes, "_LOOK_SECONDS", 0.01)
    place = folder(tmp_path, waits)
    with Runner({"v": {"source": place, "max_silence": 30.0}}) as runner:
        assert len(runner.embed(input=SHORT, model="v").data) == 1
        host = runner._registry.entry("v").host
        assert isinstance(host, EmbeddingHost)
        pid = graph_of(host.embedder).pid
        assert pid not in (None, os.getpid())
        if sys.platform == "linux":
            import resource

            soft, _ = resource.prlimit(pid, resource.RLIMIT_DATA)  # type: ignore[arg-type]
            assert 2 << 30 < soft < 16 << 30
            assert host.memory > 10 << 20  # what the process holds
        with pytest.raises(WorkerDied):
            runner.embed(input=LONG, model="v")
        assert len(runner.embed(input=SHORT, model="v").data) == 1
        assert graph_of(host.embedder).pid != pid
        process = graph_of(host.embedder)._process
    assert process is not None
    assert not process.is_alive


def test_one_that_is_handed_in_or_told_to_runs_here(tmp_path: Path) -> None:
    place = tiny.folder(tmp_path)
    loaded = structgen.load_embedder(place)
    with Runner({"a": loaded, "b": {"source": place, "in_process": True}}) as runner:
        for name in "ab":
            runner.embed(input=SHORT, model=name)
            host: Any = runner._registry.entry(name).host
            assert not isinstance(host.embedder._graph, EmbedderProcess)


@pytest.mark.parametrize(
    "option", [{"processes": 2}, {"batch_size": 1}, {"seed": 0}, {"prefix_cache": 0}]
)
def test_options_of_text_models_are_no_embedders(tmp_path: Path, option: dict[str, Any]) -> None:
    """They were ignored."""
    place = tiny.folder(tmp_path)
    with (
        Runner({"v": {"source": place, **option}}) as runner,
        pytest.raises(OptionError, match=f"{next(iter(option))}= requires a text model"),
    ):
        runner.load("v")


def test_max_length_is_no_text_models(tmp_path: Path) -> None:
    config = {"source": tiny_model(tmp_path, context_length=512), "max_length": 9}
    with Runner({"t": config}) as runner, pytest.raises(OptionError, match="requires an embedder"):
        runner.load("t")


def test_what_a_runners_decider_compares_with_runs_outside(tmp_path: Path) -> None:
    place = tiny.folder(tmp_path / "vectors")
    text = tiny_model(tmp_path, context_length=512)
    question = Choice("Which?", ["a", "b"])
    examples = [(f"{one} {other}", one) for one in "ab" for other in "cdefghij"]
    embedder, saved = structgen.load_embedder(place), tmp_path / "decider.json"
    decider = Decider(structgen.load(text), embedder=embedder, debias="none", warn=False)
    learned = decider.fit(question, examples)
    expected = learned.decide("a z", {"q": question})["q"].probabilities
    learned.save(saved)
    config = {"source": text, "in_process": True, "decider": saved, "embedder": place}
    with Runner({"t": config}) as runner:
        answer = runner.decide(state="a z", questions={"q": question})
        assert answer.value["q"].probabilities == expected
        host: Any = runner._registry.entry("t").host
        process = graph_of(host.vectors.embedder)._process
        assert process is not None
        assert process.pid != os.getpid()
    assert not process.is_alive
