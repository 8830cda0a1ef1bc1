"""Trials of strangers' forms: whose turn it is, what is a verdict, and what is remembered."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from mixed import tiny_model

from structgen import Cfg, Runner, workers
from structgen.errors import OutputTypeError, Overloaded, PromptError, RequestError, WorkerDied
from structgen.runner import ChatRequest, Trials, answers, hosts, trials
from structgen.runner.loops import Places
from structgen.storage import KeptByBytes
from structgen.workers import STRANGER, Stranger, worker

BLOWS_UP = "(a|b)*a(a|b){2000}"


def form(pattern: str) -> ChatRequest:
    return ChatRequest.of({"messages": "-", "grammar": pattern, "grammar_type": "regex"}, {})


def by(owner: str, max_work: int = 200_000) -> Stranger:
    return Stranger(owner, max_work, 30_000)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_no_owner_fills_all_places() -> None:
    async def main() -> None:
        places, order = Places(3, 99), []

        async def work(owner: str, is_done: asyncio.Event) -> None:
            async with places.of(owner):
                order.append(owner)
                await is_done.wait()

        first, rest = asyncio.Event(), asyncio.Event()
        rest.set()
        slow = [asyncio.ensure_future(work("slow", first)) for _ in range(6)]
        await settle()
        assert order == ["slow", "slow"]
        assert await asyncio.wait_for(work("other", rest), 60) is None
        rest.clear()
        more = [asyncio.ensure_future(work("other", rest)) for _ in range(3)]
        more += [asyncio.ensure_future(work("third", rest))]
        await settle()
        assert order[3:] == ["other"]
        rest.set()
        await settle()
        assert order[3:] == ["other", "third", "other", "other"]  # owners take turns
        slow[4].cancel()  # it waits
        slow[0].cancel()  # it holds a place
        await settle()
        first.set()
        ended = await asyncio.gather(*slow, *more, return_exceptions=True)
        assert sum(isinstance(one, asyncio.CancelledError) for one in ended) == 2
        assert order.count("slow") == 5
        async with places.of("slow"), places.of("slow"), places.of("other"):
            pass  # all places are free again

    asyncio.run(main())


def test_a_place_goes_to_who_has_had_the_least_time() -> None:
    """Who embeds thousands of texts, a long pass each turn, holds up nobody with one text."""

    async def main() -> None:
        now, order = 0.0, []
        places = Places(2, 99, clock=lambda: now)

        async def work(owner: str, passes: int, seconds: float) -> None:
            async def run(pause: Callable[[], Awaitable[None]]) -> None:
                nonlocal now
                for at in range(passes):
                    if at:
                        await pause()
                    order.append(owner)
                    now += seconds
                    await asyncio.sleep(0)

            await places.hold(owner, run)

        heavy = [asyncio.ensure_future(work(owner, 40, 1.0)) for owner in "abcdef"]
        while len(order) < 60:
            await asyncio.sleep(0)
        for _ in range(3):  # one text each time, and the next one later
            begun = len(order)
            await work("one", 1, 0.1)
            assert "one" in order[begun : begun + 3]  # behind those that have places
        await asyncio.gather(*heavy)
        assert [order[:60].count(owner) for owner in "abcdef"] == [10] * 6

    asyncio.run(main())


def test_an_owner_with_none_gets_a_place_beyond_all() -> None:
    """Else two whose work takes long keep out all the others."""

    async def main() -> None:
        places, is_done, begun = Places(2, 99, beyond=True), asyncio.Event(), []

        async def work(owner: str | None) -> None:
            async with places.of(owner):
                begun.append(owner)
                await is_done.wait()

        tasks = [asyncio.ensure_future(work(owner)) for owner in ("a", "a", "b", "b", None, *"cde")]
        await settle()
        assert begun == ["a", "b", "c", "d"]  # and no more than twice as many
        is_done.set()
        await asyncio.gather(*tasks)
        assert (places.active, places.waiting) == (0, 0)
        assert sorted(map(str, begun)) == ["None", "a", "a", "b", "b", "c", "d", "e"]

    asyncio.run(main())


def test_who_has_most_that_waits_is_refused() -> None:
    async def main() -> None:
        places, is_done, told = Places(2, 3), asyncio.Event(), []

        async def work(owner: str | None, number: int) -> None:
            try:
                async with places.of(owner):
                    await is_done.wait()
            except Overloaded:
                told.append((owner, number))

        tasks = []
        for owner, number in (("a", 0), ("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5), ("c", 6)):
            tasks.append(asyncio.ensure_future(work(owner, number)))
            await settle()
        assert places.active == 2
        # One of a has a place, and b the other; c drives out the last of a, and then itself.
        assert told == [("a", 3), ("c", 6)]
        is_done.set()
        await asyncio.gather(*tasks)
        assert (places.active, places.waiting) == (0, 0)
        is_done.clear()
        own = [asyncio.ensure_future(work(None, number)) for number in range(2)]
        await settle()
        assert places.active == 2  # the program's own leaves none free
        is_done.set()
        await asyncio.gather(*own)

    asyncio.run(main())


def test_a_form_to_look_at_has_the_work_of_its_stranger() -> None:
    async def main() -> None:
        made = Trials(60, 2 << 30)
        try:
            with asking(by("evil", 50)):
                found = await made.problems("regex", "(a|b)*a(a|b){9}")
                # Grammars were called valid that a chat refuses for their work.
                words = " | ".join(f'"w{i}"' for i in range(300))
                found += await made.problems("lark", f"start: {words}")
            assert ["max_work" in one["message"] for one in found] == [True, True]
            assert await made.problems("regex", "(a|b)*a(a|b){9}") == []
            # So were those that take it after they are read; and what is read twice was refused.
            with asking(by("evil", 75_000)):
                wide = "|".join(f"/[a-z]{{{n}}}[^{chr(97 + n % 26)}]+/" for n in range(1, 95))
                (one,) = await made.problems("lark", f"start: A*\nA: {wide}")
                texts = {
                    f"k{n}": {"type": "string", "pattern": f"(a|b)*a(a|b){{{n % 9}}}"}
                    for n in range(30)
                }
                schema = {
                    "anyOf": [{"properties": texts, "required": [f"k{n}"]} for n in range(42)]
                }
                both = await made.problems(
                    "lark", f"%llguidance {{}}\nstart: %json {json.dumps(schema)}"
                )
            assert "max_work" in one["message"]
            assert both == []
        finally:
            await made.close()

    asyncio.run(main())


def test_a_field_that_is_wrong_is_told_from_a_form_that_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async def tried(self: Trials, text: bytes) -> dict[str, Any]:
        return trials._answer(json.loads(text), 1 << 60)

    monkeypatch.setattr(Trials, "_tried", tried)

    async def verdict(**fields: Any) -> tuple[str, bool]:
        with pytest.raises(RequestError) as caught:
            await Trials(seconds=600, memory=2 << 30).check(ChatRequest.of("Hi", fields))
        return caught.value.kind, isinstance(caught.value.__cause__, OutputTypeError)

    async def main() -> None:
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
        assert await verdict(tools=[tool], tool_choice="g") == ("invalid", False)
        assert await verdict(tools=[{"function": {"name": "f"}}]) == ("missing", False)
        assert await verdict(grammar="a(", grammar_type="regex") == ("invalid", True)

    asyncio.run(main())


def test_every_grammar_of_the_library_may_be_asked_for_by_strangers() -> None:
    # unified-diff was refused, and looked at, any of 4,700 characters or more: read twice.
    for name in ("unified-diff", "sql-select", "cron"):
        fields = {"grammar": Cfg.named(name).text, "grammar_type": "lark"}
        asked = {"max_work": workers.MAX_WORK, **fields}
        assert trials._answer({"do": "problems", **asked}, 1 << 40) == {"answer": []}
        assert trials._answer({"do": "check", "fields": fields, **asked}, 1 << 40) == {
            "answer": None
        }


def test_trials_are_fair_by_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six slow forms of one owner do not keep another's first form waiting."""

    async def main() -> None:
        going, asked = asyncio.Event(), Trials(seconds=600, memory=2 << 30)
        running = 0

        async def tried(self: Trials, text: bytes) -> dict[str, Any]:
            nonlocal running
            running += 1
            if b"slow" in text:
                await going.wait()
            running -= 1
            return {"answer": None}

        monkeypatch.setattr(Trials, "_tried", tried)

        async def check(owner: str, pattern: str) -> None:
            STRANGER.set(by(owner))
            await asked.check(form(pattern))

        slow = [asyncio.ensure_future(check("evil", f"slow{i}")) for i in range(6)]
        await settle()
        assert running == trials.PROCESSES - 1
        await asyncio.wait_for(check("good", "quick"), 60)
        going.set()
        await asyncio.gather(*slow)

    asyncio.run(main())


def test_what_nobody_waits_for_keeps_its_place_until_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who asks and goes away, again and again, has no more processes at work than who waits."""

    async def main() -> None:
        going, asked = asyncio.Event(), Trials(seconds=600, memory=2 << 30)
        running: list[bytes] = []

        async def tried(self: Trials, text: bytes) -> dict[str, Any]:
            running.append(text)
            await going.wait()
            running.remove(text)
            return {"answer": None}

        monkeypatch.setattr(Trials, "_tried", tried)

        async def check(number: int) -> None:
            STRANGER.set(by("evil"))
            await asked.check(form(f"slow{number}"))

        for number in range(6):
            task = asyncio.ensure_future(check(number))
            await settle()
            task.cancel()
            await settle()
            assert task.cancelled()
        assert len(running) == asked._places.active == trials.PROCESSES - 1
        going.set()
        await settle()
        assert not running
        assert not asked._places.active

    asyncio.run(main())


def test_work_that_lets_others_go_first_ends_there_if_nobody_waits_for_it() -> None:
    async def main() -> None:
        places, going, said = Places(2, 99), asyncio.Event(), []

        async def work(pause: Any) -> None:
            said.append("begun")
            await going.wait()
            await pause()
            said.append("on")

        async def cancelled(owner: str) -> None:
            task = asyncio.ensure_future(places.hold(owner, work))
            await settle()
            task.cancel()
            await settle()
            assert task.cancelled()

        await cancelled("gone")
        await cancelled("gone")  # this one had not begun
        assert (said, places.active) == (["begun"], 1)
        going.set()
        await settle()
        assert (said, places.active, places.waiting) == (["begun"], 0, 0)
        await places.hold("here", work)
        assert (said, places.active) == (["begun", "begun", "on"], 0)

    asyncio.run(main())


def test_no_form_waits_for_a_process_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that ends is replaced in the place of the form that it tried."""

    async def main() -> None:
        make, n_made, asked = Trials._process, 0, Trials(seconds=600, memory=2 << 30)

        async def counted(self: Trials) -> asyncio.subprocess.Process:
            nonlocal n_made
            n_made += 1
            return await make(self)

        monkeypatch.setattr(Trials, "_process", counted)
        try:
            await asked.start(1)
            await asked.start()
            assert n_made == trials.RUNNING
            asked._seconds = 1e-6
            with asking(by("evil")):
                late = [asked.check(form(f"a{{{number}}}")) for number in range(2)]
                ended = await asyncio.gather(*late, return_exceptions=True)
            assert all(isinstance(error, RequestError) for error in ended)
            asked._seconds, n_made = 600, 0
            with asking(by("good")):
                await asyncio.gather(*(asked.check(form(f"b{{{i}}}")) for i in range(3)))
            assert n_made == 0
        finally:
            await asked.close()

    asyncio.run(main())


def test_a_lost_process_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ends without an answer, killed for memory say, has said nothing of the form."""

    async def main() -> None:
        exchange, n_killed = trials._exchange, 0

        async def killing(process: asyncio.subprocess.Process, text: bytes) -> dict[str, Any]:
            nonlocal n_killed
            if n_killed < most:
                n_killed += 1
                process.kill()
            return await exchange(process, text)

        monkeypatch.setattr(trials, "_exchange", killing)
        asked = Trials(seconds=600, memory=2 << 30)
        try:
            most = 1
            await asked.check(form("a+"))  # once more, by another process
            most = n_killed + 2
            with pytest.raises(WorkerDied, match="crashed twice"):
                await asked.check(form("b+"))
            assert n_killed == 3
            await asked.check(form("b+"))
        finally:
            await asked.close()

    asyncio.run(main())


def test_running_out_of_time_is_not_remembered() -> None:
    async def main() -> None:
        asked = Trials(seconds=1e-6, memory=2 << 30)
        try:
            with pytest.raises(RequestError, match="took longer than"):
                await asked.check(form("a+"))
            asked._seconds = 600
            await asked.check(form("a+"))
        finally:
            await asked.close()

    asyncio.run(main())


def test_work_is_bounded_where_the_form_is_a_strangers() -> None:
    async def main() -> None:
        asked = Trials(seconds=600, memory=2 << 30)
        token = STRANGER.set(by("evil", max_work=1_000))
        try:
            for _ in range(2):
                with pytest.raises(RequestError, match="limit 1,000") as caught:
                    await asked.check(form(BLOWS_UP))
                assert caught.value.param == "grammar"
        finally:
            STRANGER.reset(token)
            await asked.close()

    asyncio.run(main())


def test_verdicts_are_remembered_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        asked = Trials(seconds=600, memory=2 << 30)
        tried: list[bytes] = []

        async def long(text: bytes) -> dict[str, Any]:
            tried.append(text)
            return {"error": "x" * (1 << 20), "param": "grammar"}

        monkeypatch.setattr(asked, "_asked", long)
        for number in (*range(100), 99, 0):
            with pytest.raises(RequestError):
                await asked.check(form(f"a{{{number}}}"))
        assert len(tried) == 101  # the last was known, the first forgotten
        assert asked._known.weight <= trials._KEPT_BYTES

    asyncio.run(main())


def test_a_process_whose_parent_is_gone_ends_without_a_word() -> None:
    """So it does where Ctrl-C reaches all processes of a terminal."""
    code = "from structgen.runner import trials; trials.work(1 << 40)"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=-1, stdout=-1, stderr=-1, start_new_session=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.read(6) == b"\0\0\0\x02{}"
    os.killpg(process.pid, signal.SIGINT)
    ask = b'{"do": "problems", "max_work": 9999, "grammar_type": "regex", "grammar": "a"}'
    process.stdin.write(struct.pack(">I", len(ask)) + ask)
    process.stdin.flush()
    answer = b'{"answer": []}'
    assert process.stdout.read(4 + len(answer)) == struct.pack(">I", len(answer)) + answer
    process.stdout.close()
    _, told = process.communicate(struct.pack(">I", len(ask)) + ask, timeout=60)
    assert told == b""


def test_what_is_kept_fits_its_budget() -> None:
    kept: KeptByBytes[bytearray] = KeptByBytes(10_000, len)
    for name in "abcd":
        kept.add(name, bytearray(2_500))
    assert [name for name in "abcd" if kept.get(name) is not None] == ["b", "c", "d"]
    grown = kept.get("b")
    assert grown is not None
    grown += bytes(3_500)
    assert kept.get("b") is grown  # weighed again
    assert [name for name in "cd" if kept.get(name) is not None] == ["d"]
    once = bytearray(1_000)
    kept.add("once", once)
    once += bytes(7_000)  # it grows after it was added, and nobody asks for it again
    kept.add("next", bytearray(2_000))
    assert "d" not in kept
    assert kept.weight <= 10_000
    once += bytes(5_000)
    kept.add("last", bytearray(100))
    assert kept.weight <= 10_000
    kept.add("large", bytearray(20_000))
    assert not len(kept)
    assert kept.weight == 0
    for number in range(100):
        kept.add(number, bytearray())
    assert len(kept) == 20  # an entry takes something by itself


# -- forms in a Runner ------------------------------------------------------------------------


@contextmanager
def asking(stranger: Stranger) -> Iterator[None]:
    token = STRANGER.set(stranger)
    try:
        yield
    finally:
        STRANGER.reset(token)


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    with Runner({"it": tiny_model(tmp_path_factory.mktemp("tiny"))}) as made:
        made.load()
        yield made


def test_a_mask_of_a_strangers_form_is_bounded(runner: Runner) -> None:
    """It ends its own request, and says which bound; whoever has more room is not refused."""
    ask: dict[str, Any] = {"messages": "x", "max_tokens": 40}
    ask |= {"grammar": "(a|b)*a(a|b){8}|[0-9]{3,40}x", "grammar_type": "regex"}
    with asking(Stranger("evil", 200_000, 5)):
        with pytest.raises(RequestError, match=r"max_mask_work .*limit 5\b") as caught:
            runner.chat(ask)
        assert caught.value.param == "grammar"
        with pytest.raises(RequestError, match="max_mask_work"):
            list(runner.stream_chat(ask))
        lark = {"grammar": 'start: "a" NAME | NAME\nNAME: /[a-z]{3,9}/', "grammar_type": "lark"}
        with pytest.raises(RequestError, match=r"at rule start .*limit 5\b") as caught:
            runner.chat({**ask, **lark})
        assert caught.value.param == "grammar"
    with asking(Stranger("good", 200_000, 30_000)):
        assert runner.chat(ask).choices
    with asking(Stranger("evil", 5, 30_000)), pytest.raises(RequestError, match="max_work"):
        runner.chat({**ask, "grammar": BLOWS_UP})
    assert runner.chat(ask).choices


@pytest.mark.parametrize("is_chat", [False, True])
def test_a_strangers_text_is_made_tokens_if_the_model_may_hold_it(
    runner: Runner, is_chat: bool
) -> None:
    longest = runner.max_sequence_length()
    assert longest is not None
    short, long = "a" * (2 * longest), "a" * (99 * longest)

    def tokens(text: str) -> list[int]:
        return runner.tokenize_text([{"role": "user", "content": text}] if is_chat else text)

    with asking(Stranger("evil", 5, 5)):
        assert tokens(short)
        with pytest.raises(PromptError, match="Shorten it"):
            tokens(long)
    assert tokens(long)


def explained(runner: Runner, pattern: str, before: list[int], **fields: Any) -> Any:
    form = {"grammar": pattern, "grammar_type": "regex", "before": before}
    return runner.aexplain(**form, token="c", chosen=before[0], **fields)


def test_explanations_are_fair_by_owner(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread goes on when its caller leaves, and keeps the place that it has."""
    going, begun = threading.Event(), []

    def why(constraint: Any, before: list[int], token: str, **given: Any) -> str:
        if "slow" in constraint.output.name:
            begun.append(token)
            going.wait()
        return "quick"

    monkeypatch.setattr(answers, "why_barred", why)

    async def main() -> None:
        a = runner.tokenize_text("a")
        try:
            for number in range(12):
                with asking(by("evil")):
                    one = asyncio.ensure_future(explained(runner, f"a|slow{number}", a))
                await asyncio.wait([one], timeout=0.05)
                one.cancel()
                await asyncio.wait([one])
            with asking(by("good")):
                assert await asyncio.wait_for(explained(runner, "ab", a), 60) == "quick"
            assert len(begun) == 1
        finally:
            going.set()

    asyncio.run(main())


def test_an_explanation_is_bounded_as_a_whole(runner: Runner) -> None:
    """Each token of an output may take little, and all of them very long."""
    form, before = "(a|b)*a(a|b){9}", runner.tokenize_text("ab" * 400 + "aab" * 200)

    async def reason() -> str:
        found: str = await explained(runner, form, before, max_tokens=9_000)
        return found

    with asking(by("good")):
        assert "'c' was not allowed" in asyncio.run(reason())
    limit = pytest.raises(RequestError, match=r"max_work.*limit 2,000")
    with asking(by("evil", max_work=2_000)), limit as caught:
        asyncio.run(reason())
    assert caught.value.param == "grammar"
    assert "'c' was not allowed" in asyncio.run(reason())


def test_prompts_are_cached_by_owner(runner: Runner) -> None:
    ask: dict[str, Any] = {"prompt": "the in of the and the in of the and", "max_tokens": 2}

    def cached(owner: str) -> int:
        with asking(by(owner)):
            return runner.complete(ask).usage.prompt_tokens_details.cached_tokens

    assert cached("first") == 0
    assert cached("first") > 0
    assert cached("second") == 0
    assert cached("second") > 0


def test_forms_are_kept_by_bytes(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the Runner and in the model's process, which is a thread here."""
    monkeypatch.setattr(hosts, "FORM_BYTES", 300_000)
    monkeypatch.setattr(worker, "FORM_BYTES", 300_000)
    workers: list[Any] = []
    begin = worker._Worker.serve
    monkeypatch.setattr(worker._Worker, "serve", lambda self: (workers.append(self), begin(self)))
    path = tiny_model(tmp_path_factory.mktemp("tiny"))
    with Runner({"it": {"source": path, "in_process": True}}) as made:
        made.load()
        host = made._registry.entry("it").host
        for number in range(30):
            texts = [f"{number:03}{i:04}" for i in range(100)]
            form: dict[str, Any] = {"grammar": texts, "grammar_type": "choice"}
            choices = made.chat(messages="x", max_tokens=20, **form).choices
            assert choices[0].message.content in texts
        (process,) = workers
        for kept in (host._generators, process._tasks):  # type: ignore[union-attr]
            assert 1 <= len(kept) < 30
            assert kept.weight <= 300_000
        again = [f"000{i:04}" for i in range(100)]  # forgotten, and made once more
        assert made.chat(messages="x", max_tokens=20, grammar=again, grammar_type="choice").choices


def test_a_process_that_has_come_to_hold_much_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """What forms leave behind counts against those that come later."""

    async def main() -> None:
        made = Trials(60, 2 << 30)
        await made.start(1)
        try:
            first = made._idle[0].pid
            await made.check(form("a"))
            assert made._idle[0].pid == first
            monkeypatch.setattr(trials, "_TIRED", 1, raising=False)
            await made.check(form("b"))
            assert made._idle[0].pid != first
        finally:
            await made.close()

    asyncio.run(main())
