"""Several real models in one Runner: mixed requests, states, tokens, death, cancelling, threads."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import shutil
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest
from mixed import EMBEDDER, SMALL, all_at_once, tiny_model
from pydantic import BaseModel

import structgen
from structgen import ModelError, OptionError, PromptError, RequestError, Runner, StructgenError
from structgen.decisions import Choice, Predicate, Score
from structgen.errors import ModelNotFound, WorkerDied
from structgen.models import base
from structgen.runner import ModelConfig, hosts
from structgen.runner.hosts import TextHost


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    tiny = tiny_model(tmp_path_factory.mktemp("tiny"))
    with Runner({"small": SMALL, "vectors": EMBEDDER, "tiny": {"source": tiny}}) as made:
        yield made


def pid(runner: Runner, model: str = "small") -> int:
    return runner._registry.entry(model).host.models[0].pid  # type: ignore[union-attr,return-value]


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it never came to be so")


def test_forty_requests_of_all_kinds_none_crossed(several: Runner) -> None:
    asyncio.run(all_at_once(several, 40))


def test_a_folder_that_is_gone_after_the_model_was_loaded(tmp_path: Path) -> None:
    """Each answer was a FileNotFoundError, although the model is in memory."""
    folder = tiny_model(tmp_path)
    with Runner({"tiny": {"source": folder}}) as runner:
        runner.load()
        shutil.rmtree(folder)
        answer = runner.complete(prompt="Hi", max_tokens=2)
        assert str(answer.system_fingerprint).startswith("fp_")


def test_vectors(several: Runner) -> None:
    embedder = structgen.load_embedder(EMBEDDER)
    texts = ["hello", "a longer text about nothing"]
    answer = several.embed(input=texts, model="vectors")
    expected = embedder.embed(texts)
    for one, row in zip(answer.data, expected, strict=True):
        assert one.embedding == row.tolist()
    assert answer.usage.prompt_tokens == sum(map(len, embedder.tokenize(texts)))
    short = several.embed(
        {"input": "hello", "dimensions": 8, "encoding_format": "base64"}, model="vectors"
    )
    assert short.data[0].embedding == embedder.embed("hello", dimensions=8, encoding="base64")[0]
    tokens = several.tokenize_text("hello", model="vectors")
    assert several.detokenize_text(tokens, model="vectors") == "hello"
    assert several.embed(input=[tokens], model="vectors").data[0].embedding == expected[0].tolist()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": []}, "input"),
        ({"input": ["a", 3]}, "input[1]"),
        ({"input": [[10**9]]}, "input[0]"),
        ({"input": "a " * 2000}, "input"),
        ({"input": "a", "dimensions": 10**6}, "dimensions"),
        ({"input": "a", "prompt_name": "nobody"}, "prompt_name"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "a", "model": "small"}, "model"),
    ],
    ids=str,
)
def test_what_is_wrong_with_texts_is_told(
    several: Runner, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(RequestError) as caught:
        several.embed({"model": "vectors", **fields})
    assert caught.value.param == param


def test_long_texts_are_cut_when_that_is_asked(several: Runner) -> None:
    long = {"input": "a " * 2000, "truncate_sequence": True}
    assert several.embed(long, model="vectors").usage.prompt_tokens == 256


def test_ranking_by_vectors(several: Runner) -> None:
    answer = several.rerank(
        query="the capital of France",
        documents=["Dogs bark.", {"text": "Paris is the capital of France."}, "It rains."],
        top_n=2,
        return_documents=True,
        model="vectors",
    )
    assert answer.results[0].index == 1
    assert answer.results[0].document == {"text": "Paris is the capital of France."}
    assert len(answer.results) == 2
    with pytest.raises(RequestError, match=r"documents\[1\]"):
        several.rerank(query="a", documents=["b", 3], model="vectors")


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Ticket(BaseModel):
    is_refund: bool
    colour: Colour


def test_decisions_are_those_of_a_decider(several: Runner, model: Any) -> None:
    questions = {
        "refund": Predicate("Is this about money?"),
        "colour": Choice("Which colour?", Colour),
        "anger": Score("How angry?", ["calm", "furious"]),
    }
    state = "I was charged twice!"
    expected = structgen.decisions.Decider(model, warn=False).decide(state, questions)
    answer = several.decide(state=state, questions=questions, model="small")
    for name in questions:
        assert answer.value[name] == expected[name]
    assert isinstance(answer.value["colour"].choice, Colour)
    assert answer.answers == structgen.decisions.answers_to_json(expected)
    typed = several.decide(state=state, questions=Ticket, model="small").value.value
    assert isinstance(typed, Ticket)
    told = {"refund": {"type": "predicate", "instructions": "Is this about money?"}}
    again = several.decide({"state": state, "questions": told, "model": "small"})
    assert again.answers["refund"] == answer.answers["refund"]
    in_openai_form = [{"name": "refund", **told["refund"]}]
    again = several.decide({"state": state, "questions": in_openai_form, "model": "small"})
    assert again.answers["refund"] == answer.answers["refund"]
    with pytest.raises(RequestError) as caught:
        several.decide(state=state, questions={}, model="small")
    assert caught.value.param == "questions"
    with pytest.raises(RequestError) as caught:
        several.decide(state=state, questions=questions, tolerance=7.0, model="small")
    assert caught.value.param == "tolerance"
    told["refund"]["criteria"] = {"true": "about money", "false": "about colours"}  # type: ignore[assignment]
    by_vectors = several.decide(state=state, questions=told, model="vectors")
    embedder = structgen.load_embedder(EMBEDDER)
    given: dict[str, Any] = {
        "threads": 1,
        "pooling": "mean",
        "max_silence": 5,
        "adapters": {"a": "b"},
    }
    for name, value in given.items():
        with pytest.raises(OptionError, match=f"{name}= requires a source given by name"):
            ModelConfig.of({"source": embedder, name: value})
    expected = structgen.decisions.Decider(embedder).decide(
        state, structgen.decisions.questions_from_json(told)
    )
    assert by_vectors.value["refund"] == expected["refund"]
    assert by_vectors.usage.prompt_tokens == expected.usage.prompt_tokens
    for fields, param in (
        ({"questions": questions}, "questions"),
        ({"questions": told, "debias": "prior"}, "debias"),
        ({"questions": told, "state": "word " * 500}, "state"),
    ):
        with pytest.raises(RequestError) as caught:
            several.decide({"state": state, "model": "vectors", **fields})
        assert caught.value.param == param


def test_decisions_let_others_have_passes(several: Runner) -> None:
    """A chat that comes while a model decides is answered before the decision is."""
    order = []
    questions = {f"q{i}": Predicate(f"Is it {i}?") for i in range(16)}

    async def work() -> None:
        async def decided() -> None:
            await several.adecide(state="x " * 200, questions=questions, model="small")
            order.append("decided")

        task = asyncio.ensure_future(decided())
        while not (task.done() or several._registry.entry("small").places.active):
            await asyncio.sleep(0.001)
        await several.achat(messages="Hi", max_tokens=2, model="small")
        order.append("answered")
        await task

    asyncio.run(work())
    assert order == ["answered", "decided"]


def test_tokens(several: Runner, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "Hello, wörld 🎉<|im_end|>"
    tokens = several.tokenize_text(text, model="small")
    assert tokens == model.encode(text).tolist()
    assert several.detokenize_text(tokens, model="small") == "Hello, wörld 🎉"
    assert several.detokenize_text(tokens, skip_special_tokens=False, model="small") == text
    chat = [{"role": "user", "content": "Hi"}]
    tokens = several.tokenize_text(chat, model="small")
    shown = several.detokenize_text(tokens, skip_special_tokens=False, model="small")
    assert shown == model.apply_chat_template(chat)
    assert several.chat(messages=chat, max_tokens=1, model="small").usage.prompt_tokens == len(
        tokens
    )
    assert several.max_sequence_length("small") == 8192
    assert several.max_sequence_length("vectors") == 256
    with pytest.raises(OptionError, match="not a token id"):
        several.detokenize_text([10**9], model="small")
    monkeypatch.setattr(base, "_MOST_WRITTEN", 100)
    for name in ("small", "vectors"):
        word = several.tokenize_text("hello", model=name)
        assert "hello" in several.detokenize_text(word * 5, model=name).lower()
    # 80 kB of ids of a long token took 2.5 GB.
    with pytest.raises(OptionError, match=r"decode to .* bytes; the limit is 100"):
        several.detokenize_text(several.tokenize_text("hello", model="small") * 50, model="small")


def test_states_of_real_models(several: Runner) -> None:
    several.load("small")
    old = pid(several)
    several.reload("small")
    assert pid(several) != old
    several.unload("small")
    assert several.get_model_status("small") == "unloaded"
    assert "small" in several.list_unloaded_models()
    assert several.get_model_info("small")["source"] == SMALL
    assert several.chat(messages="Hi", max_tokens=1, model="small").choices
    assert several.is_model_loaded("small")
    assert several.get_model_info("small")["bytes"] > 10**8
    several.add_alias("mini", "tiny")
    assert several.complete(prompt="a", max_tokens=1, model="mini").model == "tiny"
    several.remove_alias("mini")
    assert several.list_aliases() == {}
    several.add_model("more", ModelConfig(source=SMALL, threads=1))
    several.set_default_model_id("more")
    assert several.get_default_model_id() == "more"
    several.remove("more")
    assert several.list_models() == ["small", "vectors", "tiny"]
    assert several.get_default_model_id() == "small"
    with pytest.raises(StructgenError):
        several.load_adapter("lora", "/nowhere/it.onnx_adapter", model="small")
    assert several.list_adapters("small") == []


def test_the_names_that_people_migrate_with(several: Runner) -> None:
    chat = {"messages": "Hi", "max_tokens": 1}
    text = {"prompt": "Hi", "max_tokens": 1}
    assert several.send_chat_completion_request(chat, "small").choices
    assert several.send_chat_completion_request_to_model(chat, "small").choices
    assert several.send_completion_request(text).choices
    assert several.send_completion_request_to_model(text, "tiny").choices
    assert several.send_embedding_request({"input": "a"}, model_id="vectors").data
    assert several.send_embedding_request_to_model({"input": "a"}, "vectors").data


def test_a_process_that_is_killed_fails_its_requests_and_comes_back(several: Runner) -> None:
    several.load("small")
    failed: list[BaseException] = []

    def ask() -> None:
        try:
            several.chat(messages="Tell a long story.", max_tokens=4000, model="small")
        except StructgenError as error:
            failed.append(error)

    asking = [threading.Thread(target=ask) for _ in range(3)]
    for thread in asking:
        thread.start()
    stream = several.stream_chat(messages="Tell a story.", max_tokens=4000, model="small")
    next(chunk for chunk in stream if chunk.choices[0].delta.content)
    os.kill(pid(several), signal.SIGKILL)
    with pytest.raises(WorkerDied):
        list(stream)
    for thread in asking:
        thread.join()
    assert len(failed) == 3
    assert all(isinstance(error, WorkerDied) for error in failed)
    assert several.chat(messages="Hi", max_tokens=2, model="small").text


def test_what_is_cancelled_ends_the_work(several: Runner) -> None:
    entry = several._registry.entry("small")
    asked = {"messages": "Tell a long story.", "max_tokens": 7000, "model": "small"}

    async def cancelled() -> None:
        task = asyncio.ensure_future(several.achat(asked))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        stream = several.astream_chat(asked)
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                break
        await stream.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        task = asyncio.ensure_future(
            several.adecide(
                state="x " * 500,
                questions={f"q{i}": Predicate(f"Is it {i}?") for i in range(90)},
                model="small",
            )
        )
        await asyncio.sleep(0.3)
        task.cancel()

    asyncio.run(cancelled())
    with several.stream_chat(asked) as stream:
        next(stream)
    dropped = several.stream_chat(asked)
    next(dropped)
    del dropped
    wait_until(lambda: entry.users == 0 and entry.places.active == 0)

    def calls() -> int:
        process = entry.host.models[0]._host._process  # type: ignore[union-attr]
        return len(process._handlers)  # type: ignore[union-attr]

    wait_until(lambda: calls() == 0)
    # The process is free: an answer comes long before any of those would have ended.
    assert several.chat(messages="Hi", max_tokens=2, model="small").text


def test_loading_and_unloading_gives_memory_back(several: Runner) -> None:
    """A few times here; ``python tests/runner/loads.py`` does it 100 times."""
    from loads import resident_after

    several.load("tiny")
    first, *others = resident_after(several, ["tiny", "vectors"], times=4)
    assert max(others) < first * 1.05 + 8e6


def test_sync_calls_from_many_threads(several: Runner) -> None:
    answers: dict[int, str] = {}

    def ask(i: int) -> None:
        answer = several.chat(messages="?", output_type=Literal[f"a{i}", f"b{i}"], model="small")
        answers[i] = answer.text[1:]

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {i: str(i) for i in range(6)}


def test_the_runners_own_thread_does_not_wait_for_itself(several: Runner) -> None:
    async def inside() -> None:
        with pytest.raises(StructgenError, match="own thread"):
            several.chat(messages="Hi", model="small")

    several._thread.wait(inside())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_is_told(several: Runner, tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        told = "nothing"
        try:
            several.chat(messages="Hi", model="small")
        except StructgenError as error:
            told = str(error)
        (tmp_path / "told").write_text(told)
        os._exit(0)
    os.waitpid(child, 0)
    assert "of a fork" in (tmp_path / "told").read_text()
    assert several.chat(messages="Hi", max_tokens=1, model="small").choices


def test_a_model_may_have_a_seed_of_its_own(several: Runner) -> None:
    tiny = several._registry.entry("tiny").config.source
    config = {"source": tiny, "in_process": True, "seed": 7, "prefix_cache_n": 0}
    asked: Any = {"prompt": "Hi", "max_tokens": 8, "temperature": 1.0}
    with Runner({"it": config}) as runner:
        told = runner.complete(asked).text
        assert {runner.complete(asked).text for _ in range(2)} == {told}
        assert runner.complete(asked, seed=7).text == told
        assert runner.complete(asked, seed=8).text != told
        host = runner._registry.entry(None).host
        assert isinstance(host, TextHost)
        assert runner.complete(prompt="Hi", max_tokens=4, temperature=0).text
    for wrong in (-1, 1.5, "x"):
        with pytest.raises(OptionError, match="seed"):
            ModelConfig(source=tiny, seed=wrong)  # type: ignore[arg-type]


def test_a_link_that_leads_nowhere_is_passed_over(tmp_path: Path) -> None:
    """Each answer of a folder with one was an internal error."""
    folder = tiny_model(tmp_path)
    (folder / "weights.bin").symlink_to(tmp_path / "gone")
    with Runner({"it": {"source": folder, "in_process": True}}) as runner:
        assert runner.complete(prompt="Hi", max_tokens=4).system_fingerprint


def test_a_model_is_requantized_while_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRUCTGEN_CACHE", str(tmp_path / "cache"))
    folder = tiny_model(tmp_path)
    # Reading foreign weights may hold the interpreter lock for many seconds: elsewhere, then.
    monkeypatch.setattr("structgen.models.conversion.language.write", None)
    asked: Any = {"prompt": "Hi", "max_tokens": 8, "temperature": 0}
    with Runner({"it": {"source": folder, "in_process": True}}) as runner:
        whole = runner.complete(asked)
        with pytest.raises(OptionError, match=r"random contains no weights. Pass source="):
            runner.requantize("it", "int4")
        runner.requantize("it", "fp16", source=tmp_path / "tiny.gguf")
        made = runner.get_model_info("it")["source"]
        assert Path(made).parent == tmp_path / "cache" / "models"
        assert Path(made).name.endswith("@fp16")
        assert runner.complete(asked).system_fingerprint != whole.system_fingerprint
        runner.send_re_isq("int8", "it")  # the weights are known by now
        assert "int8" in runner.get_model_info("it")["source"]
        assert runner.complete(asked).text == whole.text
        with pytest.raises(ModelError, match="dtype='Q4K'"):
            runner.send_re_isq("Q4K")
        runner.reload()
        assert runner.complete(asked).text == whole.text


def test_what_cannot_be_requantized(several: Runner) -> None:
    several.load("vectors")
    with pytest.raises(OptionError, match="vectors cannot be requantized"):
        several.requantize("vectors", "int8")


def test_what_the_runtime_has_no_models_for(several: Runner) -> None:
    with pytest.raises(ModelError, match="has no models that make pictures"):
        several.generate_image("A cat.", height=512)
    with pytest.raises(ModelError, match="has no models that speak"):
        several.generate_audio("[S1] Hello.", model_id="small")
    with pytest.raises(ModelNotFound):
        several.generate_audio("Hello.", "nobody")


def test_closing_ends_what_is_under_way() -> None:
    """Also what waits in line, and what a task of another loop waits for: none hangs, none is cut
    in silence."""
    runner = Runner({"a": SMALL}, max_concurrency=2)
    runner.load()
    long = {"messages": "Tell a long story.", "max_tokens": 4000}
    told: list[str] = []

    def noted(work: Callable[[], Any]) -> None:
        try:
            work()
        except StructgenError as error:
            told.append(str(error))

    async def inside() -> None:
        await runner.achat(long)

    async def streamed() -> None:
        async for _ in runner.astream_chat(long):
            pass

    works: list[Callable[[], Any]] = [
        lambda: runner.chat(long),
        lambda: list(runner.stream_chat(long)),
        lambda: asyncio.run(inside()),
        lambda: asyncio.run(streamed()),
    ]
    threads = [threading.Thread(target=noted, args=(work,), daemon=True) for work in works * 2]
    for thread in threads:
        thread.start()
    entry = runner._registry.entry("a")
    wait_until(lambda: entry.users == 2 and entry.places.waiting == 6)
    runner.close()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert len(told) == 8
    assert all("closed" in one for one in told)


def test_a_closed_runner_is_told() -> None:
    runner = Runner({"a": SMALL})
    runner.close()
    runner.close()
    with pytest.raises(StructgenError, match="closed"):
        runner.chat(messages="Hi")
    with pytest.raises(OptionError, match="max_concurrency"):
        Runner({"a": SMALL}, max_concurrency=0)
    with pytest.raises(OptionError, match="not a model"):
        Runner({"a": 3})
    with pytest.raises(ModelNotFound):
        Runner({"a": SMALL}, default="b")


def test_a_name_that_no_model_has_is_refused_at_once() -> None:
    for models in ({"a": "smolm"}, {"a": {"source": "smolm"}}, "smolm"):
        with pytest.raises(ModelNotFound, match=r"Did you mean smollm2-135m-instruct"):
            Runner(models)
    with Runner() as runner:
        with pytest.raises(ModelNotFound, match="smollm2-135m-instruct"):
            runner.add_model("a", "smolm")
        runner.add_model("repository", "org/name")  # only asked for when it is wanted


def test_an_embedder_is_named_where_a_text_model_was_asked(several: Runner) -> None:
    for ask in (
        lambda: several.rerank(query="a", documents=["b"]),
        lambda: several.embed(input="a"),
    ):
        with pytest.raises(RequestError, match=r"small .* Pass model='vectors'\."):
            ask()
    with (
        Runner({"a": SMALL}) as runner,
        pytest.raises(RequestError, match="Add an embedder, such as 'all-minilm-l6-v2'"),
    ):
        runner.rerank(query="a", documents=["b"])


def test_a_model_that_cannot_be_loaded(tmp_path: Path) -> None:
    with Runner({"none": str(tmp_path / "nothing")}) as runner:
        with pytest.raises(ModelError):
            runner.chat(messages="Hi")
        assert runner.get_model_status("none") == "failed"
        assert "nothing" in runner.get_model_info()["error"]


def test_a_model_in_this_process(tmp_path: Path) -> None:
    config = {"source": tiny_model(tmp_path), "in_process": True}
    with Runner({"here": config}) as runner:
        asked = {"prompt": "ab", "output_type": Literal["x1", "x2"], "n": 2, "temperature": 1.0}
        for _ in range(2):
            answer = runner.complete(asked)
            assert {choice.text for choice in answer.choices} <= {"x1", "x2"}
            assert pid(runner, "here") == os.getpid()
            assert "".join(
                choice.text
                for chunk in runner.stream_complete({**asked, "n": 1})
                for choice in chunk.choices
            ) in ("x1", "x2")
            assert runner.tokenize_text("ab")
            runner.unload()
        names = [thread.name for thread in threading.enumerate()]
        assert not any(
            name in ("structgen-model", "structgen-listen", "structgen-prepare") for name in names
        )
        from structgen.models.genai import TextModel

        gc.collect()
        assert not [
            one
            for one in gc.get_objects()
            if isinstance(one, TextModel) and one.name == "tiny-random"
        ]
    with pytest.raises(OptionError, match="in_process"):
        ModelConfig(source=SMALL, in_process=True, processes=2)
    with pytest.raises(OptionError, match="max_silence"):
        ModelConfig(source=SMALL, in_process=True, max_silence=5)
    for wrong in (
        {"in_process": "false"},
        {"deterministic": 0},
        {"adapters": "x.onnx_adapter"},
        {"adapters": {"x": 1}},
    ):
        ((name, value),) = wrong.items()
        with pytest.raises(OptionError, match=f"^{name}={re.escape(repr(value))} "):
            ModelConfig.of({"source": SMALL, **wrong})


def test_prompts_that_were_refused_are_let_go_of(tmp_path: Path) -> None:
    """Each of a client's may have megabytes, and nothing else may come between them."""
    from structgen.workers.worker import _Prompt

    tiny = tiny_model(tmp_path, context_length=4096)
    with Runner({"here": {"source": tiny, "in_process": True}}) as runner:
        for letter in "abcdef":
            with pytest.raises(PromptError, match="about 3"):
                runner.complete(prompt=f"{letter}x" * 15_000)
        gc.collect()
        kept = {one.content[0] for one in gc.get_objects() if isinstance(one, _Prompt)}
        assert len(kept) <= 2


def test_several_processes_of_one_model(tmp_path: Path) -> None:
    config = {"source": tiny_model(tmp_path), "processes": 2}
    with Runner({"two": config}) as runner:
        asked = {"prompt": "ab", "max_tokens": 3, "temperature": 0}
        assert len({runner.complete(asked).text for _ in range(4)}) == 1
        pids = [one.pid for one in runner._registry.entry("two").host.models]  # type: ignore[union-attr]
        assert len(set(pids)) == 2


def test_a_conversation_stays_in_the_process_that_has_read_it(tmp_path: Path) -> None:
    config = {"source": tiny_model(tmp_path), "processes": 2, "threads": 1}
    with Runner({"two": config}) as runner:
        prompts = [f"{word} " * 20 for word in ("the", "in", "a")]
        for turn in range(3):
            for prompt in prompts:
                more = prompt + "the in " * turn
                usage = runner.complete(prompt=more, max_tokens=1).usage
                assert usage is not None
                cached = usage.prompt_tokens_details.cached_tokens
                assert (cached >= usage.prompt_tokens // 2) == (turn > 0)

        async def together() -> None:
            asked = [runner.acomplete(prompt=prompts[0], max_tokens=9) for _ in range(8)]
            await asyncio.gather(*asked)

        host = runner._registry.entry("two").host
        assert isinstance(host, TextHost)
        most = [0, 0]
        count = host.work_at

        def counted(place: int, scores: int) -> Any:
            most[place] += 1
            return count(place, scores)

        host.work_at = counted  # type: ignore[method-assign]
        asyncio.run(together())
        assert sum(most) == 8
        assert min(most) >= 2  # what one has read the other reads, too, rather than stand idle
        assert host._busy == [0, 0]


def test_a_stream_that_fails_leaves_nothing_behind(several: Runner) -> None:
    asked: Any = {"model": "small", "messages": "word " * 20_000, "max_tokens": 1}

    async def tried() -> weakref.ref[Any]:
        stream = several.astream_chat(asked)
        with pytest.raises(PromptError):
            async for _ in stream:
                pass
        return weakref.ref(stream)

    stream = several.stream_chat(asked)
    with pytest.raises(PromptError):
        list(stream)
    found = [weakref.ref(stream), asyncio.run(tried())]
    del stream
    end = time.monotonic() + 60
    while any(one() is not None for one in found):  # a moment later, in the Runner's thread
        assert time.monotonic() < end
        time.sleep(0.01)
        gc.collect()


def test_not_all_files_of_a_folder_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(hosts, "_MOST_FILES", 2)
    for name in "abc":
        (tmp_path / name).write_text("x")
    assert hosts._size_of(tmp_path) == 2
