"""Embedders of every kind of graph, on tiny ones whose vectors are known."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import re
import threading
import warnings

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
import tiny_embedders as tiny
from hypothesis import given
from hypothesis import strategies as st

import structgen
from structgen import load_embedder
from structgen.decisions import Choice, Decider
from structgen.errors import (
    ModelError,
    ModelNotFound,
    OptionError,
    PromptError,
    RequestError,
    TruncationWarning,
)
from structgen.models import progress
from structgen.models.embedding import EmbeddingResult, Ranked, embedder, pooling, session
from structgen.models.embedding.embedder import Embedder
from structgen.models.embedding.pooling import finish, pool
from structgen.runner.vectors import in_bounds

POSITIONS = "max_position_embeddings"
TEXTS = ["a b c", "d", "", "a b c d e f g", "b", "x y z", "e e e e e", "query: a"]


def expected(texts, pooling="mean", types=True, before=""):
    """Unit vectors of texts, worked out in NumPy."""
    out = []
    for text in texts:
        ids = tiny.ids_of(before + text)
        rows = tiny.hidden(ids, [0] * len(ids) if types else None)
        one = {"mean": rows.mean(0), "cls": rows[0], "last": rows[-1]}[pooling]
        out.append(one / np.linalg.norm(one))
    return np.array(out)


@pytest.mark.parametrize(
    ("options", "pooling", "tolerance"),
    [
        ({}, "mean", 1e-6),
        ({"pooling": "cls_token"}, "cls", 1e-6),
        ({"pooling": "lasttoken"}, "last", 1e-6),
        ({"pooling": None}, "mean", 1e-6),
        ({"types": False}, "mean", 1e-6),
        ({"outputs": ("token_embeddings",)}, "mean", 1e-6),
        ({"outputs": ("pooler_output", "last_hidden_state")}, "mean", 1e-6),
        ({"ids_kind": ir.DataType.INT32}, "mean", 1e-6),
        ({"kind": ir.DataType.FLOAT16, "past": True}, "mean", 1e-3),
        ({"positions": True, "past": True}, "mean", 1e-6),
    ],
)
def test_vectors_are_those_of_numpy(tmp_path, options, pooling, tolerance):
    embedder = load_embedder(tiny.folder(tmp_path, **options))
    assert embedder.dimensions == tiny.WIDTH
    assert embedder.pooling == pooling
    found = embedder.embed(TEXTS)
    assert found.dtype == np.float32
    assert found.shape == (len(TEXTS), tiny.WIDTH)
    wanted = expected(TEXTS, pooling, options.get("types", True))
    assert np.abs(found - wanted).max() < tolerance
    one = embedder.embed(TEXTS[0])
    assert one.shape == (1, tiny.WIDTH)
    assert np.abs(one - found[:1]).max() < 1e-6


def test_a_vector_that_the_graph_makes_is_taken_unless_pooling_is_asked_for(tmp_path):
    outputs = ("last_hidden_state", "sentence_embedding")
    place = tiny.folder(tmp_path, outputs=outputs, pooling="cls_token")
    embedder = load_embedder(place)
    assert embedder.pooling is None
    mean = np.array([(tiny.TABLE[tiny.ids_of(text)] + tiny.TYPES[0]).mean(0) for text in TEXTS])
    assert np.abs(embedder.embed(TEXTS, normalize=False) - mean).max() < 1e-6
    pooled = load_embedder(place, pooling="last")
    assert np.abs(pooled.embed(TEXTS) - expected(TEXTS, "last")).max() < 1e-6
    with pytest.raises(OptionError, match="pooling='max' is unknown"):
        load_embedder(place, pooling="max")


@given(st.lists(st.text("abcdz ", max_size=30), max_size=40), st.integers(1, 60))
def test_batches_change_nothing_but_the_order_of_the_work(tiny_embedder, texts, batch_tokens):
    result = tiny_embedder.result(texts, batch_tokens=batch_tokens, on_truncation="ignore")
    assert result.vectors.shape == (len(texts), tiny.WIDTH)
    for text, vector, n_tokens, n_cut in zip(
        texts, result.vectors, result.n_tokens, result.n_cut, strict=True
    ):
        whole = len(tiny.ids_of(text))
        assert (n_tokens, n_cut) == (min(whole, tiny.LONGEST), max(whole - tiny.LONGEST, 0))
        alone = tiny_embedder.embed(text, on_truncation="ignore")[0]
        assert np.abs(vector - alone).max() < 1e-6


@pytest.fixture(scope="module")
def tiny_embedder(tmp_path_factory) -> Embedder:
    place = tiny.folder(tmp_path_factory.mktemp("tiny"))
    prompts = {"query": "query: ", "document": "text: "}
    tiny.write(place / "config_sentence_transformers.json", {"prompts": prompts})
    return load_embedder(place)


@given(st.lists(st.integers(0, 300), max_size=60), st.integers(1, 1000), st.integers(1, 100_000))
def test_batches_hold_every_text_once_within_the_budget(lengths, budget, most):
    found = embedder.plan(lengths, budget, lambda longest: most // longest**2)
    assert sorted(i for batch in found for i in batch) == list(range(len(lengths)))
    for batch in found:
        longest = max(lengths[i] for i in batch)
        assert len(batch) == 1 or len(batch) * max(longest, 1) <= budget
        assert len(batch) == 1 or len(batch) * max(longest, 1) ** 2 <= most
    ends = [(lengths[batch[0]], lengths[batch[-1]]) for batch in found]
    assert all(a >= b for a, b in ends)
    assert all(ends[i][1] >= ends[i + 1][0] for i in range(len(ends) - 1))


@given(st.lists(st.integers(0, 90), max_size=8), st.integers(1, 200))
def test_batches_are_the_cheapest_there_are(lengths, budget):
    def cost(found):
        return sum(embedder.RUN_TOKENS + len(one) * max(*one, 1) for one in found)

    ordered = sorted(lengths, reverse=True)
    costs = []
    for cuts in itertools.product([False, True], repeat=max(len(ordered) - 1, 0)):
        found = [[ordered[0]]] if ordered else []
        for length, cut in zip(ordered[1:], cuts, strict=True):
            if cut:
                found.append([length])
            else:
                found[-1].append(length)
        if all(len(one) == 1 or len(one) * max(*one, 1) <= budget for one in found):
            costs.append(cost(found))
    found = embedder.plan(lengths, budget, lambda longest: len(lengths))
    planned = [[lengths[i] for i in batch] for batch in found]
    assert cost(planned) == min(costs)


def test_many_texts_go_through_windows_while_a_thread_makes_tokens(tiny_embedder, monkeypatch):
    monkeypatch.setattr(embedder, "_WINDOW_TEXTS", 7)
    names = set()
    encode = type(tiny_embedder._tokenizer).encode

    def watched(self, texts):
        names.add(threading.current_thread().name)
        return encode(self, texts)

    monkeypatch.setattr(type(tiny_embedder._tokenizer), "encode", watched)
    texts = [" ".join("abcdefghij"[: i % 9]) for i in range(50)]
    reports = []
    found = tiny_embedder.embed(iter(texts), progress=lambda *report: reports.append(report))
    assert np.abs(found - expected(texts)).max() < 1e-6
    assert len(names) == 2
    done = [n for _, n, _ in reports]
    assert done == sorted(done)
    assert done[-1] == 50
    tiny_embedder.embed(texts, progress=lambda *report: reports.append(report))
    assert reports[-1][1:] == (50, 50)


def test_a_bar_is_shown_past_a_second_on_a_terminal_only(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    bars = []

    class Bar:
        def __enter__(self):
            return lambda *report: bars.append(report)

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(progress, "_Bar", Bar)
    for terminal in (False, True):
        monkeypatch.setattr(progress.sys.stderr, "isatty", lambda terminal=terminal: terminal)
        with progress.late(None) as report:
            for second in (0.0, 0.9, 1.1):
                now[0] += second
                report("Embedding", 1, 2)
        assert len(bars) == terminal
    assert capsys.readouterr().err == ""


def test_what_is_cut_is_counted_told_or_refused(tiny_embedder):
    long = "a " * 30
    with pytest.warns(TruncationWarning, match=r"1 text of 2 .* 12 tokens that .*\. 20 tokens"):
        tiny_embedder.embed([long, "a"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = tiny_embedder.result([long, "a"], on_truncation="ignore")
        tiny_embedder.embed("a " * 10)
    assert isinstance(result, EmbeddingResult)
    assert result.n_tokens.tolist() == [12, 3]
    assert result.n_cut.tolist() == [20, 0]
    assert np.abs(result.vectors[0] - expected(["a " * 10])[0]).max() < 1e-6
    with pytest.raises(PromptError, match=r"Text 1 has 32 tokens, but .* accepts 12\."):
        tiny_embedder.embed(["a", long], on_truncation="error")
    with pytest.raises(OptionError, match="on_truncation='cut' is unknown"):
        tiny_embedder.embed("a", on_truncation="cut")


def test_max_length_is_what_is_asked_for_as_far_as_the_graph_goes(tmp_path):
    place = tiny.folder(tmp_path)
    embedder = load_embedder(place, max_length=4)
    assert embedder.result("a b c", on_truncation="ignore").n_cut.tolist() == [1]
    tiny.write(place / "config.json", {"max_position_embeddings": 16})
    assert load_embedder(place, max_length=16).max_length == 16
    for wrong in (17, 0, 3.5, True):
        with pytest.raises(OptionError, match="max_length="):
            load_embedder(place, max_length=wrong)
    with pytest.raises(OptionError, match="adds 3 special tokens"):
        load_embedder(place, max_length=2)
    (place / "sentence_bert_config.json").unlink()
    assert load_embedder(place).max_length == 16
    config = {"max_position_embeddings": 16, "model_type": "roberta", "pad_token_id": 1}
    tiny.write(place / "config.json", config)
    assert load_embedder(place).max_length == 14
    tiny.write(place / "tokenizer_config.json", {"model_max_length": 9})
    assert load_embedder(place).max_length == 9


def test_a_text_has_a_bound_whatever_the_folder_says(tmp_path):
    # Attention of 20,000 tokens held 19 GB, and of 8,192 in 12 heads 6.5 GB.
    small = {"hidden_size": 8, "intermediate_size": 8}
    usual = {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12}
    distil = {"dim": 768, "hidden_dim": 3072, "n_heads": 12}
    many = {"num_attention_heads": 999_999, "hidden_size": 999_999, "intermediate_size": 999_999}
    place = tiny.folder(tmp_path)
    long = "a " * 9000
    for file, stated, most in (
        ("config.json", {POSITIONS: 100_000}, 2740),
        ("config.json", {POSITIONS: 100_000, **usual}, 3188),
        ("config.json", {POSITIONS: 100_000, **distil}, 3188),
        ("config.json", {POSITIONS: 100_000, **many}, 10),
        ("config.json", {POSITIONS: 512, **usual}, 512),
        ("config.json", {POSITIONS: 9000, "n_head": 1, **small}, 8192),
        ("sentence_bert_config.json", {"max_seq_length": 999_999}, 2740),
        ("tokenizer_config.json", {"model_max_length": int(1e30)}, 2048),
    ):
        (place / "sentence_bert_config.json").unlink(missing_ok=True)
        (place / "config.json").unlink(missing_ok=True)
        tiny.write(place / file, stated)
        embedder = load_embedder(place)
        assert embedder.result(long, on_truncation="ignore").n_tokens.tolist() == [most]
        more = " (load_embedder(max_length=) can raise this)" if most != 512 else ""
        with pytest.raises(PromptError, match=re.escape(f"accepts {most:,}{more}.")):
            embedder.embed(long, on_truncation="error")
        if most != 512:
            longer = load_embedder(place, max_length=min(9002, stated.get(POSITIONS, 9002)))
            assert longer.result("a " * 8990).n_cut.tolist() == [0]


def test_a_pass_takes_as_many_long_texts_as_memory_allows(tmp_path, monkeypatch):
    place = tiny.folder(tmp_path)
    (place / "sentence_bert_config.json").unlink()
    ran = []
    run = session.Graph.run

    def counted(self, rows, *rest):
        ran.append(len(rows))
        return run(self, rows, *rest)

    monkeypatch.setattr(session.Graph, "run", counted)
    texts = ["a " * 700] * 12
    for config, rows in (({"num_attention_heads": 64}, [3] * 4), ({"n_head": 1}, [12])):
        ran.clear()
        tiny.write(place / "config.json", config)
        load_embedder(place).embed(texts, batch_tokens=100_000)
        assert ran == rows
    # Longer ones are the caller's own wish, one by one.
    ran.clear()
    tiny.write(place / "config.json", {"num_attention_heads": 64})
    load_embedder(place, max_length=6000).embed(["a " * 4000] * 2, batch_tokens=100_000)
    assert ran == [1, 1]


def test_prompts_go_before_texts(tiny_embedder, tmp_path):
    found = tiny_embedder.embed(["a", "b"], prompt_name="query")
    assert np.abs(found - expected(["a", "b"], before="query: ")).max() < 1e-6
    assert np.array_equal(found, tiny_embedder.embed(["a", "b"], prompt="query: "))
    assert np.abs(tiny_embedder.embed("a") - expected(["a"])).max() < 1e-6
    with pytest.raises(OptionError, match=r"not a prompt of .*\. Its prompts: 'query', 'document'"):
        tiny_embedder.embed("a", prompt_name="passage")
    with pytest.raises(OptionError, match="not both"):
        tiny_embedder.embed("a", prompt_name="query", prompt="b")
    place = tiny.folder(tmp_path)
    settings = {"prompts": {"d": "text: "}, "default_prompt_name": "d"}
    tiny.write(place / "config_sentence_transformers.json", settings)
    default = load_embedder(place)
    assert np.abs(default.embed("a") - expected(["a"], before="text: ")).max() < 1e-6
    assert np.abs(default.embed("a", prompt="") - expected(["a"])).max() < 1e-6
    settings["default_prompt_name"] = "gone"
    tiny.write(place / "config_sentence_transformers.json", settings)
    with pytest.raises(ModelError, match="'gone', which is not one of its prompts: d"):
        load_embedder(place)


def test_a_prompt_is_left_out_of_the_mean_where_the_folder_says_so(tmp_path):
    place = tiny.folder(tmp_path)
    pooling = {"pooling_mode_mean_tokens": True, "include_prompt": False}
    tiny.write(place / "1_Pooling" / "config.json", pooling)
    rows = tiny.hidden(tiny.ids_of("text: a b"), [0] * 5)
    wanted = rows[2:].mean(axis=0)  # without [CLS] and the prompt, as sentence-transformers does
    found = load_embedder(place).embed("a b", prompt="text: ", normalize=False)
    assert np.abs(found[0] - wanted).max() < 1e-6


def test_texts_are_in_small_letters_where_the_folder_says_so(tmp_path):
    place = tiny.folder(tmp_path)
    small, large = load_embedder(place).embed(["text: a b", "TEXT: A B"])
    assert not np.array_equal(small, large)
    settings = {"max_seq_length": tiny.LONGEST, "do_lower_case": True}
    tiny.write(place / "sentence_bert_config.json", settings)
    assert np.array_equal(load_embedder(place).embed("A B", prompt="TEXT: ")[0], small)


def test_dimensions_are_cut_and_scaled_again(tiny_embedder):
    whole = tiny_embedder.embed(TEXTS, normalize=False)
    for dimensions in (1, 3, tiny.WIDTH):
        cut = whole[:, :dimensions]
        found = tiny_embedder.embed(TEXTS, dimensions=dimensions)
        assert np.abs(found - cut / np.linalg.norm(cut, axis=1, keepdims=True)).max() < 1e-6
        found = tiny_embedder.embed(TEXTS, dimensions=dimensions, normalize=False)
        assert np.array_equal(found, cut)
    for wrong in (0, -1, tiny.WIDTH + 1, 2.0, True):
        with pytest.raises(OptionError, match="dimensions="):
            tiny_embedder.embed(TEXTS, dimensions=wrong)
    assert finish(np.zeros((1, 4), np.float32), 2, True).tolist() == [[0, 0]]


def test_base64_holds_the_same_numbers(tiny_embedder):
    found = tiny_embedder.embed(TEXTS, encoding="base64")
    read = np.array([np.frombuffer(base64.b64decode(text), "<f4") for text in found])
    assert np.array_equal(read, tiny_embedder.embed(TEXTS))
    with pytest.raises(OptionError, match="encoding='int8' is unknown"):
        tiny_embedder.embed("a", encoding="int8")


def test_nothing_gives_no_vectors(tiny_embedder):
    assert tiny_embedder.embed([]).shape == (0, tiny.WIDTH)
    assert tiny_embedder.embed([], encoding="base64") == []
    assert pool(np.ones((1, 2, 3)), [0], "last").tolist() == [[0, 0, 0]]


@pytest.mark.parametrize("texts", [3, None, b"a", ["a", 3], [None], {"a": "b"}, ["a", b"b"]])
def test_what_is_no_text_is_refused(tiny_embedder, texts):
    with pytest.raises(OptionError, match=r"(neither a str|must be a str)"):
        tiny_embedder.embed(texts)
    with pytest.raises(OptionError, match=r"Text 1 is not valid Unicode: .*, at 1"):
        tiny_embedder.embed(["a", "b\ud800"])
    for wrong in (0, 2.5, True):
        with pytest.raises(OptionError, match="batch_tokens="):
            tiny_embedder.embed("a", batch_tokens=wrong)
    with pytest.raises(OptionError, match="normalize='no' is not a bool"):
        tiny_embedder.embed("a", normalize="no")


def test_an_option_that_there_is_not_is_named(tiny_embedder):
    with pytest.raises(OptionError, match=r"^promt= is unknown. Did you mean 'prompt'\?") as told:
        tiny_embedder.embed(TEXTS, promt="x")
    assert told.value.option == "promt"
    for call in (tiny_embedder.aembed, tiny_embedder.aresult):
        with pytest.raises(OptionError, match=r"^stop= is unknown"):
            asyncio.run(call(TEXTS, stop=None))
    with pytest.raises(OptionError, match=r"^top_n= is unknown. Did you mean 'top_k'\?"):
        tiny_embedder.rerank("a", TEXTS, top_n=1)
    with pytest.raises(OptionError, match=r"^prompt= is unknown"):
        asyncio.run(tiny_embedder.arerank("a", TEXTS, prompt="x"))


def test_others_have_a_turn_between_batches(tiny_embedder):
    pauses = []

    async def pause():
        pauses.append(1)

    result = asyncio.run(tiny_embedder.aresult(TEXTS, pause=pause, batch_tokens=1))
    assert len(pauses) == len(TEXTS) - 1
    assert np.array_equal(result.vectors, tiny_embedder.embed(TEXTS, batch_tokens=1))
    asyncio.run(tiny_embedder.arerank("a", TEXTS, pause=pause, batch_tokens=1))
    assert len(pauses) == 2 * (len(TEXTS) - 1)


def test_aembed_gives_the_same_and_can_be_cancelled(tiny_embedder, monkeypatch):
    async def both():
        return await asyncio.gather(
            tiny_embedder.aembed(TEXTS, dimensions=3),
            tiny_embedder.aembed(TEXTS, encoding="base64"),
        )

    vectors, encoded = asyncio.run(both())
    assert np.array_equal(vectors, tiny_embedder.embed(TEXTS, dimensions=3))
    assert encoded == tiny_embedder.embed(TEXTS, encoding="base64")
    ran, running, go_on = [], threading.Event(), threading.Event()
    run = session.Graph.run

    def slow(self, rows, *rest):
        ran.append(len(rows))
        running.set()
        go_on.wait(30)
        return run(self, rows, *rest)

    monkeypatch.setattr(session.Graph, "run", slow)

    async def cancelled():
        task = asyncio.create_task(tiny_embedder.aembed(TEXTS, batch_tokens=1))
        while not running.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()

    asyncio.run(cancelled())
    assert ran == [1]


def test_a_cross_encoder_ranks(tmp_path):
    place = tiny.folder(tmp_path, outputs=("logits",), pooling=None)
    ranker = load_embedder(place)
    assert "cross-encoder" in repr(ranker)
    documents = ["a a", "b", "a", "z", "b"]

    def score(document):
        query, other = tiny.ids_of("a"), tiny.ids_of(document)[1:]
        rows = tiny.TABLE[query + other] + tiny.TYPES[[0] * len(query) + [1] * len(other)]
        return float(rows.mean(axis=0) @ tiny.TABLE[4])

    scores = [score(document) for document in documents]
    found = ranker.rerank("a", documents, batch_tokens=8)
    assert [one.index for one in found] == sorted(range(5), key=lambda i: -scores[i])
    assert [one.score for one in found] == pytest.approx(sorted(scores, reverse=True), abs=1e-6)
    assert ranker.rerank("a", documents, top_k=2, batch_tokens=8) == found[:2]
    assert isinstance(found[0], Ranked)
    assert ranker.rerank("a", []) == []
    with pytest.warns(TruncationWarning, match="1 pair of 2"):
        ranker.rerank("a", ["b", "b " * 20])
    with pytest.raises(PromptError, match=r"^Document 1, with the query, has 2\d tokens"):
        ranker.rerank("a", ["b", "b " * 20], on_truncation="error")
    with pytest.raises(OptionError, match="top_k=0"):
        ranker.rerank("a", documents, top_k=0)
    for wrong in (2.5, "2", True):
        with pytest.raises(OptionError, match=f"top_k={wrong!r} is not a whole number"):
            ranker.rerank("a", documents, top_k=wrong)
    with pytest.raises(ModelError, match=r"is a cross-encoder.*Call rerank"):
        ranker.embed("a")


def test_an_embedder_ranks_by_cosine(tiny_embedder):
    documents = ["z", "b b", "a", "b"]
    (near,) = tiny_embedder.embed(["a"], prompt_name="query")
    far = tiny_embedder.embed(documents, prompt_name="document")
    scores = [float(near @ one) for one in far]
    found = tiny_embedder.rerank("a", iter(documents))
    assert [one.index for one in found] == sorted(range(4), key=lambda i: -scores[i])
    assert [one.score for one in found] == pytest.approx(sorted(scores, reverse=True), abs=1e-6)
    assert asyncio.run(tiny_embedder.arerank("a", documents, top_k=1)) == found[:1]
    assert tiny_embedder.rerank("a", []) == []
    with pytest.raises(OptionError, match="top_k=0"):
        tiny_embedder.rerank("a", documents, top_k=0)


@pytest.mark.parametrize("column", [False, True])
def test_a_graph_may_read_text_itself(tmp_path, column):
    tiny.text_graph(tmp_path / "model.onnx", column=column)
    for place in (tmp_path, tmp_path / "model.onnx"):
        embedder = load_embedder(place)
        result = embedder.result(["one", "two", "three"], normalize=False, batch_tokens=2)
        assert np.abs(result.vectors - np.array([[1], [2], [-1]]) * tiny.TABLE[0]).max() < 1e-6
        assert result.n_tokens is result.n_cut is None
    with pytest.raises(OptionError, match="text itself"):
        load_embedder(tmp_path, max_length=5)
    # Of strangers it gets no more than so much: whether it cuts texts is not known.
    assert len(in_bounds(embedder, "a" * 80_000, "query", cuts=True)) == 32_768
    with pytest.raises(RequestError, match=r"80,000 characters, .* 32,768 characters"):
        in_bounds(embedder, "a" * 80_000, "query", cuts=False)
    with pytest.raises(PromptError, match="32,768 characters"):
        Decider(embedder).decide("a" * 80_000, {"team": Choice("?", ["one", "two"])})


def test_operators_that_are_missing_are_told_with_the_extra(tmp_path, monkeypatch):
    tiny.text_graph(tmp_path / "model.onnx", contrib=True)
    monkeypatch.setattr(session.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install 'structgen\[extensions\]'"):
        load_embedder(tmp_path)


@pytest.mark.parametrize("pooling", ["mean_tokens", "cls_token", "lasttoken"])
@pytest.mark.parametrize("kind", [ir.DataType.FLOAT, ir.DataType.FLOAT16])
def test_bound_tensors_give_the_same_vectors(tmp_path, monkeypatch, pooling, kind):
    place = tiny.folder(tmp_path, pooling=pooling, kind=kind)
    wanted = load_embedder(place).embed(TEXTS)
    monkeypatch.setattr(session, "_BOUND", ("cpu",))
    bound = load_embedder(place)
    assert bound._graph.device is not None
    assert np.abs(bound.embed(TEXTS) - wanted).max() < 1e-5
    tiny.graph(place / "model.onnx", outputs=("sentence_embedding",))
    assert load_embedder(place).embed(TEXTS).shape == wanted.shape


def test_activations_that_are_quantised_by_the_batch_depend_on_it(tmp_path):
    """Why batch = single has an exception, and what to do: each text by itself."""
    embedder = load_embedder(tiny.folder(tmp_path, dynamic=True))
    alone = np.concatenate([embedder.embed(text) for text in TEXTS])
    together = embedder.embed(TEXTS)
    assert 1e-5 < np.abs(together - alone).max() < 0.1
    assert np.array_equal(embedder.embed(TEXTS, batch_tokens=1), alone)


def test_providers_options_and_threads_go_to_the_runtime(tmp_path):
    place = tiny.folder(tmp_path)
    options = {
        "intra_op_num_threads": 1,
        "graph_optimization_level": "ORT_DISABLE_ALL",
        "log_id": "mine",
        "session.intra_op.allow_spinning": "0",
        "provider_options": [{"cpu": {}}],
    }
    embedder = load_embedder(place, providers=["cpu"], session_options=options, threads=2)
    made = embedder._graph._session.get_session_options()
    assert made.intra_op_num_threads == 1
    assert made.logid == "mine"
    assert made.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert np.abs(embedder.embed(TEXTS) - expected(TEXTS)).max() < 1e-6
    assert load_embedder(place, threads=2)._graph._session.get_session_options() is not None
    with pytest.raises(OptionError, match="threads=0"):
        load_embedder(place, threads=0)
    with pytest.raises(ModelError, match="'tpu' is not installed"):
        load_embedder(place, providers=["tpu"])
    with pytest.raises(ModelError, match="Did you mean 'intra_op_num_threads'"):
        load_embedder(place, session_options={"intra_op_threads": 1})
    wrong = {"intra_op_num_threads": "two", "graph_optimization_level": "ORT_ENABLE_MOST"}
    for name, value in wrong.items():
        with pytest.raises(ModelError, match=f"session option '{name}' = '{value}': it has the"):
            load_embedder(place, session_options={name: value})
    with pytest.raises(ModelError, match=r"'custom_ops_library' = 'none\.so': "):
        load_embedder(place, session_options={"custom_ops_library": "none.so"})


def test_vectors_are_pooled_on_the_device_where_they_are(monkeypatch):
    asked = []
    monkeypatch.setattr(
        session.ort, "InferenceSession", lambda *_, **options: asked.append(options) or object()
    )
    session.Device("cuda", 1)._pooler("float")
    assert asked[0]["provider_options"] == [{"device_id": "1"}, {}]
    assert asked[0]["providers"] == ["CUDAExecutionProvider", "CPUExecutionProvider"]


def test_a_provider_that_session_options_name_is_used(tmp_path, monkeypatch):
    asked = []

    def inference_session(file, options, *, providers, provider_options):
        asked.append((providers, provider_options))
        raise RuntimeError("no such card")

    installed = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: installed)
    monkeypatch.setattr(onnxruntime, "InferenceSession", inference_session)
    options = {"provider_options": [{"cuda": {"device_id": 1}}]}
    for named in (None, ["cuda"], ["cuda", "cpu"]):
        with pytest.raises(ModelError, match=r"cannot load .*: no such card"):
            load_embedder(tiny.folder(tmp_path), providers=named, session_options=options)
        assert asked.pop() == (installed, [{"device_id": "1"}, {}])
    assert session.Device.of("cuda", {"device_id": "1"})._number == 1
    assert session.Device.of("openvino", {}) is None


def test_folders_that_lack_something_say_what(tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ModelNotFound, match="has no ONNX file"):
        load_embedder(empty)
    with pytest.raises(ModelNotFound, match=r"does not exist|no folder or ONNX"):
        load_embedder(tmp_path / "nowhere")
    with pytest.raises(ModelNotFound, match="model name is empty"):
        load_embedder("")
    with pytest.raises(OptionError, match="is not a model name"):
        load_embedder(3)
    with pytest.raises(ModelNotFound, match=r"Load it with structgen\.load,"):
        load_embedder("smollm2-135m-instruct")
    place = tiny.folder(tmp_path / "whole")
    (place / "tokenizer.json").rename(place / "aside")
    with pytest.raises(ModelNotFound, match=r"has no tokenizer\.json"):
        load_embedder(place)
    (place / "tokenizer.json").write_text("{")
    with pytest.raises(ModelError, match=r"tokenizer\.json cannot be used"):
        load_embedder(place)
    (place / "genai_config.json").write_text("{}")
    with pytest.raises(ModelNotFound, match="is a language model"):
        load_embedder(place)
    (place / "genai_config.json").unlink()
    (place / "aside").replace(place / "tokenizer.json")
    (place / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(ModelError, match="cannot be parsed"):
        load_embedder(place)
    with pytest.raises(ModelError, match=r"is an embedder.*structgen\.load_embedder"):
        structgen.load(place)
    with pytest.raises(ModelNotFound, match="all-minilm-l6-v2 is an embedder"):
        structgen.load("all-minilm-l6-v2")


def test_variants_are_named_by_their_file(tmp_path):
    tiny.folder(tmp_path)
    (tmp_path / "onnx").mkdir()
    for name in ("model_a.onnx", "model_b.onnx"):
        (tmp_path / "model.onnx").rename(tmp_path / "onnx" / name)
        tiny.graph(tmp_path / "model.onnx")
    (tmp_path / "model.onnx").unlink()
    with pytest.raises(ModelNotFound, match=r"has 2 ONNX files(.|\n)*model_b\.onnx"):
        load_embedder(tmp_path)
    embedder = load_embedder(tmp_path / "onnx" / "model_b.onnx")
    assert embedder.max_length == tiny.LONGEST
    assert np.abs(embedder.embed(TEXTS) - expected(TEXTS)).max() < 1e-6


def test_a_tokenizer_beside_the_graph_is_no_reason_to_pass_over_the_settings_above(tmp_path):
    tiny.folder(tmp_path, pooling="cls_token")
    tiny.write(tmp_path / "modules.json", [{"type": "a.Transformer"}, {"type": "a.Pooling"}])
    (tmp_path / "onnx").mkdir()
    (tmp_path / "model.onnx").rename(tmp_path / "onnx" / "model.onnx")
    (tmp_path / "onnx" / "tokenizer.json").hardlink_to(tmp_path / "tokenizer.json")
    for place in (tmp_path, tmp_path / "onnx" / "model.onnx"):
        embedder = load_embedder(place)
        assert (embedder.pooling, embedder.max_length) == ("cls", tiny.LONGEST)
    (tmp_path / "tokenizer.json").unlink()
    assert load_embedder(tmp_path / "onnx").pooling == "cls"


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("config_sentence_transformers.json", {"prompts": ["a"]}, "prompts are not a JSON object"),
        ("config_sentence_transformers.json", {"prompts": {"query": None}}, "'query' is not a"),
        (
            "config_sentence_transformers.json",
            {"prompts": {"a": "b"}, "default_prompt_name": ["a"]},
            r"default prompt \['a'\]",
        ),
        (
            "config_sentence_transformers.json",
            {"prompts": {"query": "a" * 49_997, "b": "a" * 49_999}},
            "100,002 characters",
        ),
        ("1_Pooling/config.json", {"pooling_mode": 5}, "pooling_mode is not a name"),
        ("1_Pooling/config.json", {"pooling_mode_cls_token": "true"}, "must be true or false"),
        ("1_Pooling/config.json", {"include_prompt": "false"}, "must be true or false"),
        ("sentence_bert_config.json", {"do_lower_case": "false"}, "must be true or false"),
        ("1_Pooling/config.json", {"pooling_mode_mean_tokens": False}, "the pooling 'nothing'"),
        ("1_Pooling/config.json", {"pooling_mode": []}, "the pooling 'nothing'"),
        ("sentence_bert_config.json", {"max_seq_length": "9"}, "'9' is not an integer"),
        ("tokenizer_config.json", {"model_max_length": True}, "True is not an integer"),
        ("tokenizer_config.json", {"truncation_side": "middle"}, "neither 'left' nor 'right'"),
        ("config.json", {"max_position_embeddings": 8.5}, "8.5 is not an integer"),
        ("config.json", {"x": [0] * 200_001}, "more than 200,000 values"),
        ("config.json", {"num_attention_heads": [float("nan")]}, "is not an integer"),
        (
            "config.json",
            {"max_position_embeddings": 20, "model_type": "roberta", "pad_token_id": "x"},
            "pad_token_id = 'x' is not",
        ),
    ],
)
def test_settings_of_another_kind_are_refused(tmp_path, name, content, told):
    place = tiny.folder(tmp_path)
    tiny.write(place / name, content)
    with pytest.raises(ModelError, match=told):
        load_embedder(place)


@pytest.mark.parametrize("name", ["1_Pooling/config.json", "modules.json"])
def test_settings_in_a_pipe_are_refused(tmp_path, name):
    """They were as good as none, and the vectors others."""
    place = tiny.folder(tmp_path)
    (place / "1_Pooling").mkdir(exist_ok=True)
    (place / name).unlink(missing_ok=True)
    os.mkfifo(place / name)
    with pytest.raises(ModelError, match="a pipe or a device"):
        load_embedder(place)


def test_settings_as_others_write_them_are_read(tmp_path):
    place = tiny.folder(tmp_path)
    flags = {"pooling_mode_cls_token": 1, "pooling_mode_mean_tokens": 0}
    tiny.write(place / "1_Pooling" / "config.json", flags)
    tiny.write(place / "modules.json", [{"type": "a.Transformer", "path": None}])
    (place / "sentence_bert_config.json").unlink()
    config = {"max_position_embeddings": 20, "model_type": "roberta", "pad_token_id": 1}
    tiny.write(place / "config.json", config)
    embedder = load_embedder(place)
    assert (embedder.pooling, embedder.max_length) == ("cls", 18)
    (place / "config.json").write_text("[" * 100_000)
    with pytest.raises(ModelError, match=r"config\.json cannot be parsed"):
        load_embedder(place)


@pytest.mark.parametrize("said", [None, "left", "right"])
def test_texts_are_cut_on_the_side_that_the_folder_says(tmp_path, said):
    """The vector was that of the other end of the text."""
    place = tiny.folder(tmp_path)
    if said is not None:
        tiny.write(place / "tokenizer_config.json", {"truncation_side": said})
    words = " ".join("abcdefghijklmnopqrst")
    kept = words[-2 * tiny.LONGEST + 5 :] if said == "left" else words[: 2 * tiny.LONGEST - 5]
    embedder = load_embedder(place)
    assert embedder.tokenize([words]) == [tiny.ids_of(kept)] == embedder.tokenize([kept])


def test_little_text_is_tokenised_at_once(tmp_path, monkeypatch):
    """Of tokens of one character, 4 MB took 900 MB."""
    made = load_embedder(tiny.folder(tmp_path))
    encode, sizes = made._tokenizer.encode, []

    def counted(texts):
        sizes.append(sum(map(len, texts)))
        return encode(texts)

    monkeypatch.setattr(type(made._tokenizer), "encode", lambda self, texts: counted(texts))
    texts = ["a " * 5_000] * 100
    assert made.result(texts, on_truncation="ignore").n_tokens.tolist() == [tiny.LONGEST] * 100
    assert sum(sizes) == 1_000_000
    assert set(map(len, made.tokenize(texts))) == {tiny.LONGEST}
    assert sum(sizes) == 2_000_000
    assert max(sizes) < 300_000


def test_what_cannot_be_pooled_is_refused(tmp_path):
    place = tiny.folder(tmp_path, pooling="max_tokens")
    with pytest.raises(ModelError, match="sets the pooling 'max'"):
        load_embedder(place)
    assert load_embedder(place, pooling="mean").pooling == "mean"
    both = {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}
    tiny.write(place / "1_Pooling" / "config.json", both)
    with pytest.raises(ModelError, match="sets the pooling 'mean and cls'"):
        load_embedder(place)
    tiny.write(place / "1_Pooling" / "config.json", {"pooling_mode": "lasttoken"})
    assert load_embedder(place).pooling == "last"
    modules = [
        {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "path": "pool", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "path": "2_Dense", "type": "sentence_transformers.models.Dense"},
    ]
    tiny.write(place / "modules.json", modules)
    tiny.write(place / "pool" / "config.json", {"pooling_mode": "cls"})
    with pytest.raises(ModelError, match="has Dense after pooling"):
        load_embedder(place)
    tiny.write(place / "modules.json", modules[:2])
    assert load_embedder(place).pooling == "cls"
    (place / "pool" / "config.json").rename(place / "pool" / "aside")  # no mean in silence
    with pytest.raises(
        ModelError, match=r"pool.config\.json is missing although modules\.json lists it"
    ):
        load_embedder(place)
    assert load_embedder(place, pooling="last").pooling == "last"
    paths = ("../pool", "x" * 256, "x/" * 3_000)
    many = [{"type": "a.Transformer"}] * 501
    for wrong in (
        [{"no": "type"}],
        3,
        many,
        *([{"type": "a.Pooling", "path": one}] for one in paths),
    ):
        tiny.write(place / "modules.json", wrong)
        with pytest.raises(ModelError, match=r"modules\.json cannot be parsed"):
            load_embedder(place)
    tiny.graph(tmp_path / "model.onnx", outputs=("pooler_output", "other"))
    (place / "modules.json").unlink()
    with pytest.raises(ModelError, match="no supported output"):
        load_embedder(place)


def test_a_graph_with_other_inputs_is_refused(tmp_path):
    op = tiny.Builder()
    pixels = tiny.value("pixel_values", ir.DataType.FLOAT, ["batch", 3])
    made = tiny.output(op("Abs", pixels), "embedding", ir.DataType.FLOAT, ["batch", 3])
    op.save(tmp_path / "model.onnx", [pixels], [made])
    with pytest.raises(ModelError, match="its inputs pixel_values"):
        load_embedder(tmp_path)


@pytest.mark.parametrize(("kind", "width"), [(ir.DataType.BFLOAT16, 4), (ir.DataType.FLOAT, 2**60)])
def test_inputs_that_cannot_be_filled_are_refused(tmp_path, kind, width):
    """They were a KeyError and a ValueError of each call."""
    place = tiny.folder(tmp_path, past=True)
    model = ir.load(place / "model.onnx")
    (past,) = (one for one in model.graph.inputs if one.name.startswith("past"))
    past.type, past.shape = ir.TensorType(kind), ir.Shape(["batch", 8, "past", width])
    ir.save(model, place / "model.onnx")
    with pytest.raises(
        ModelError, match=r"past_key_values\.0\.key (\(tensor\(bfloat16|is unknown or)"
    ):
        load_embedder(place).embed("a")


def test_the_runtimes_errors_are_ours(tmp_path):
    place = tiny.folder(tmp_path)
    document = json.loads((place / "tokenizer.json").read_text())
    document["model"]["vocab"]["a"] = 99  # behind the table
    (place / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(ModelError, match="ONNX Runtime cannot run"):
        load_embedder(place).embed("a")


@pytest.mark.parametrize("part", ["post_processor", "model", "id"])
def test_a_tokenizer_that_panics_is_told(tmp_path, part, capfd):
    """Its errors are no `Exception`, and would end a server's task, or bare ones."""
    place = tiny.folder(tmp_path)
    document = json.loads((place / "tokenizer.json").read_text())
    if part == "model":
        document[part]["unk_token"] = "none"
    elif part == "id":
        document["model"]["vocab"]["[UNK]"] = 2**31
    else:
        document[part]["special_tokens"] = {}
    (place / "tokenizer.json").write_text(json.dumps(document))
    embedder = load_embedder(place)
    with pytest.raises(ModelError, match="does not work"):
        embedder.embed("a" * 40 + "b")
    capfd.readouterr()


def test_a_tokenizer_that_ends_the_process_is_refused(tmp_path):
    """A normalizer that makes terabytes of an `e`: it is read in a process of its own."""
    place = tiny.folder(tmp_path)
    document = json.loads((place / "tokenizer.json").read_text())
    grows = {"type": "Replace", "pattern": {"String": "e"}, "content": "e" * 1000}
    document["normalizer"] = {"type": "Sequence", "normalizers": [grows] * 4}
    (place / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(ModelError, match=r"tokenizer\.json cannot be used: it "):
        load_embedder(place)


@pytest.mark.parametrize("output", ["last_hidden_state", "sentence_embedding", "logits"])
def test_vectors_that_are_no_numbers_are_not_given(tmp_path, monkeypatch, output):
    """They were nulls in answers of the server."""
    table = tiny.TABLE.copy()
    table[4:6] = [[np.nan], [np.inf]]
    monkeypatch.setattr(tiny, "TABLE", table)
    made = load_embedder(tiny.folder(tmp_path, outputs=(output,)))
    run = made.embed if output != "logits" else lambda text: made.rerank(text, ["d"])
    if output != "logits":
        assert np.isfinite(run("c d")).all()
    for text in ("a", "b"):
        with pytest.raises(ModelError, match="NaN or infinite values"):
            run(text)


@pytest.mark.parametrize("output", ["last_hidden_state", "sentence_embedding"])
def test_vectors_of_very_many_numbers_are_refused(tmp_path, monkeypatch, output):
    """512 texts took 4.6 GB of the server's memory."""
    made = load_embedder(tiny.folder(tmp_path, outputs=(output,)))
    assert made.embed("a").shape == (1, tiny.WIDTH)
    monkeypatch.setattr(pooling, "WIDEST", tiny.WIDTH - 1)
    with pytest.raises(ModelError, match="vectors with 8 numbers; the limit is 7"):
        made.embed("a")


def test_a_width_that_no_vector_has_is_not_believed(tmp_path):
    """Each call was a ValueError of NumPy: "array is too big"."""
    tiny.tokenizer(tmp_path)
    ids, op = tiny.value("input_ids", ir.DataType.INT64, ["batch", "tokens"]), tiny.Builder()
    made = tiny.output(
        op("Cast", ids, to=ir.DataType.FLOAT), "embeddings", ir.DataType.FLOAT, ["batch", 1 << 62]
    )
    op.save(tmp_path / "model.onnx", [ids], [made])
    loaded = load_embedder(tmp_path)
    assert (loaded.dimensions, loaded.embed("a").shape) == (None, (1, 3))


def test_a_graph_of_texts_that_gives_texts(tmp_path):
    op = tiny.Builder()
    texts = tiny.value("text", ir.DataType.STRING, ["batch"])
    out = tiny.output(op("Identity", texts), "embedding", ir.DataType.STRING, ["batch"])
    op.save(tmp_path / "model.onnx", [texts], [out])
    with pytest.raises(ModelError, match="which does not match its declaration"):
        load_embedder(tmp_path).embed("a")


@pytest.mark.parametrize("kind", ["rank", "rows", "strings"])
def test_a_graph_that_gives_something_else_than_it_says(tmp_path, kind):
    tiny.tokenizer(tmp_path)
    op, shape = tiny.Builder(), ["batch", "tokens"]
    ids = tiny.value("input_ids", ir.DataType.INT64, shape)
    if kind == "rows":
        made = op("ConstantOfShape", op.constant(np.array([1, 2, 8])))
    else:
        to = ir.DataType.STRING if kind == "strings" else ir.DataType.FLOAT
        made = op("Cast", ids, to=to)
    out = tiny.output(made, "last_hidden_state", ir.DataType.FLOAT, ["batch", "tokens", 8])
    if kind == "strings":
        out = tiny.output(made, "last_hidden_state", ir.DataType.STRING, shape)
    op.save(tmp_path / "model.onnx", [ids], [out])
    with pytest.raises(ModelError, match="which does not match its declaration"):
        load_embedder(tmp_path).embed(["a b c", "d"])


@pytest.mark.parametrize("kind", ["batches", "windows", "no row", "rows of rows"])
def test_vectors_of_several_lengths_are_told(tmp_path, monkeypatch, kind):
    """They were errors of NumPy, and in a server's answer an internal one."""
    tiny.tokenizer(tmp_path)
    op, shape = tiny.Builder(), ["batch", "tokens"]
    ids = tiny.value("input_ids", ir.DataType.INT64, shape)
    made, name = op("Cast", ids, to=ir.DataType.FLOAT), "sentence_embedding"
    if "row" in kind:
        made = op("ReduceMax", made, op.constant(np.array([1])), keepdims=0)
        shape, name = ["batch"], "logits"
    if kind == "rows of rows":
        made, shape = op("Unsqueeze", made, op.constant(np.array([1, 2]))), ["batch", 1, 1]
    op.save(tmp_path / "model.onnx", [ids], [tiny.output(made, name, ir.DataType.FLOAT, shape)])
    monkeypatch.setattr(embedder, "_WINDOW_TEXTS", 1 if kind == "windows" else 9)
    made = load_embedder(tmp_path)
    run = made.embed if name != "logits" else lambda texts, **how: made.rerank("d", texts, **how)
    with pytest.raises(ModelError, match="vectors of different shapes"):
        run(["a b c", "d"], batch_tokens=1)


def test_settings_have_few_bytes(tmp_path):
    """Prompts of 126 MB took 510 MB of the server's memory."""
    place = tiny.folder(tmp_path)
    (place / "config_sentence_transformers.json").write_text("{}" + " " * 6_400_000)
    with pytest.raises(ModelError, match="6,400,002 bytes; the limit is 6,400,000"):
        load_embedder(place)


def test_a_graph_with_data_elsewhere_is_refused(tmp_path):
    place = tiny.folder(tmp_path / "model")
    (tmp_path / "outside.data").write_bytes(tiny.TABLE.tobytes())
    graph = ir.load(place / "model.onnx")
    name = graph.graph.initializers["c0"]
    name.const_value = ir.ExternalTensor(
        "x.data",
        0,
        tiny.TABLE.nbytes,
        ir.DataType.FLOAT,
        shape=ir.Shape(tiny.TABLE.shape),
        name="c0",
        base_dir=str(tmp_path),
    )
    data = ir.to_proto(graph).SerializeToString()
    (place / "model.onnx").write_bytes(data.replace(b"x.data", b"../o.d"))
    (tmp_path / "o.d").write_bytes(tiny.TABLE.tobytes())
    with pytest.raises(ModelError, match="not a path inside the folder"):
        load_embedder(place)
