"""Outputs ended from outside: by their reader, another thread, the clock, Ctrl-C."""

from __future__ import annotations

import _thread
import contextlib
import gc
import signal
import threading
import time
from typing import Literal

import pytest
from fakes import FakeModel, Person

import structgen
from structgen import Generator, Regex
from structgen.masks import NamedTokens


def test_cancelling_ends_free_text_and_says_so():
    model = FakeModel("hello hello hello")
    stream = Generator(model).stream("x")
    assert next(stream) == "h"
    stream.cancel()
    assert stream.result.finish_reason == "cancelled"
    assert list(stream) == []
    assert stream.result.text == "h"
    assert stream.result.finish_reason == "cancelled"
    assert model.started[0].closed


def test_cancelling_before_the_first_piece_runs_nothing():
    model = FakeModel("hello")
    stream = Generator(model).stream("x")
    stream.cancel()
    assert list(stream) == []
    assert model.started == []


def test_a_cut_output_type_is_an_error_with_the_text():
    model = FakeModel('{"name":"Ann","age":12}')
    stream = Generator(model, Person).stream("x")
    text = next(stream) + next(stream)
    stream.cancel()
    with pytest.raises(structgen.IncompleteOutput, match="cancelled") as caught:
        list(stream)
    assert caught.value.text == text
    assert stream.result.finish_reason == "cancelled"
    assert model.started[0].closed


def test_what_is_whole_when_it_is_cancelled_is_no_error():
    stream = Generator(FakeModel("121212"), Regex("[0-9]+")).stream("x")
    assert next(stream) == "12"
    stream.cancel()
    assert list(stream) == []


@pytest.mark.parametrize("stop", ["9", "9é", "99", "é9", "x€", "12"])
@pytest.mark.parametrize("output_type", [Regex("(é|99|x€|12)*"), list[Literal[9, 99, 12]]])
def test_what_is_whole_at_a_stop_string_is_no_error(output_type, stop):
    generator, wholes = Generator(FakeModel(), output_type), set()
    for seed in range(12):
        options = {"seed": seed, "temperature": 2.0, "max_new_tokens": 30, "stop": stop}
        stream = generator.stream("x", **options)
        with contextlib.suppress(structgen.IncompleteOutput):
            list(stream)
            wholes.add(seed)
        assert generator.constraint.allows(stream.result.text) == (seed in wholes)
    assert wholes


def test_whether_a_cut_output_is_whole_reads_little_of_it_again(monkeypatch):
    read = []
    encode = NamedTokens.encode
    monkeypatch.setattr(NamedTokens, "encode", lambda *of: read.append(len(of[1])) or encode(*of))
    stream = Generator(FakeModel(context_length=4096), Regex("x{3000}(a|b){30}")).stream("x")
    text = ""
    while len(text) < 3005:
        text += next(stream)
    read.clear()
    stream.cancel()
    with pytest.raises(structgen.IncompleteOutput):
        list(stream)
    assert read
    assert max(read) < 10


def test_one_event_cancels_many_calls():
    event = threading.Event()
    model = FakeModel("hello")
    generator = Generator(model)
    streams = [generator.stream("x", cancel=event) for _ in range(3)]
    assert [next(stream) for stream in streams] == ["h", "h", "h"]
    event.set()
    assert [list(stream) for stream in streams] == [[], [], []]
    assert generator.result("x", cancel=event).text == ""
    assert all(sequence.closed for sequence in model.started)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cancel": 3}, r"cancel=3 has no is_set\(\)"),
        ({"timeout": 0}, "timeout=0 is out of range"),
        ({"timeout": "soon"}, "timeout='soon' is not a number"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(structgen.OptionError, match=message):
        Generator(FakeModel("x")).stream("x", **options)


def test_time_counts_from_the_first_piece_asked_for(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    stream = Generator(FakeModel("hello")).stream("x", timeout=5)
    now[0] += 60
    assert next(stream) == "h"
    now[0] += 4
    assert next(stream) == "e"
    now[0] += 2
    assert list(stream) == []
    assert stream.result.finish_reason == "cancelled"
    stream = Generator(FakeModel('{"name":"Ann","age":12}'), Person).stream("x", timeout=5)
    next(stream)
    now[0] += 6
    with pytest.raises(structgen.IncompleteOutput, match=r"timeout=5 seconds.*token limit"):
        next(stream)


@pytest.mark.parametrize("batch_size", [1, 2])
@pytest.mark.parametrize("output_type", [None, Person])
def test_several_outputs_have_one_deadline(output_type, batch_size, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    asked = [0]

    def slow(ids, logits):
        now[0] += 1
        asked[0] += 1
        return logits

    text = '{"name":"Ann","age":12}'
    model = FakeModel(text)
    model.prompt_length = 1
    generator = Generator(model, output_type, processor=slow)
    alone = generator.result("x", max_new_tokens=60)
    assert alone.text == text
    needed, asked[0] = asked[0], 0
    model.started.clear()
    # Time enough for the first of six (the first two side by side), not for the next.
    out = generator.result(
        ["x"] * 6, timeout=batch_size * needed + 2, batch_size=batch_size, return_errors=True
    )
    assert batch_size * needed < asked[0] <= batch_size * needed + 4
    assert [one.text for one in out[:batch_size]] == [text] * batch_size
    if output_type is None:
        assert [one.finish_reason for one in out[batch_size:]] == ["cancelled"] * (6 - batch_size)
    else:
        assert all(isinstance(one, structgen.IncompleteOutput) for one in out[batch_size:])
        assert all("it timed out" in str(one) for one in out[batch_size:])
    assert out[-1].text == ""
    # The model was not asked for those that had not begun.
    assert len(model.started) + sum(len(rows.rows) for rows in model.batches) <= 2 * batch_size
    assert all(sequence.closed for sequence in model.started)


def test_a_long_prompt_is_given_up_between_passes():
    model = FakeModel("hello")
    event = threading.Event()
    lengths = []
    append = model.start(9).append.__func__

    class Slow(type(model.started.pop())):
        def append(self, token_ids):
            append(self, token_ids)
            lengths.append(len(token_ids))
            if self.length > 100:
                event.set()

    model.start = lambda n, prefix=None, **_: Slow(model, n, len(prefix))  # type: ignore[method-assign]
    result = Generator(model).result("z" * 193, cancel=event)
    assert result.finish_reason == "cancelled"
    assert lengths == [64, 64]
    event.clear()
    Generator(model).result("z" * 193, max_new_tokens=1)
    assert lengths[2:] == [64, 64, 65]  # not a last pass over one token


def test_another_thread_cancels_within_a_step(model):
    stream = Generator(model, Regex("[a-z ]{4000}")).stream("One, two, three, four,")
    pieces: list[str] = []

    def read() -> None:
        with pytest.raises(structgen.IncompleteOutput):
            pieces.extend(stream)

    reader = threading.Thread(target=read)
    reader.start()
    while len(pieces) < 3:
        time.sleep(0.005)
    stream.close()  # it is being read, so this asks for an end
    asked = len(pieces)
    reader.join(timeout=60)
    assert not reader.is_alive()
    assert stream.result.finish_reason == "cancelled"
    # The text of the step that was running, and one that began as it was asked.
    assert len(pieces) <= asked + 3


def test_a_stream_has_one_reader():
    entered, go_on = threading.Event(), threading.Event()

    def waits(ids, logits):
        entered.set()
        assert go_on.wait(60)
        return logits

    stream = Generator(FakeModel("ok"), processor=waits).stream("x")
    pieces: list[str] = []
    reader = threading.Thread(target=lambda: pieces.extend(stream))
    reader.start()
    assert entered.wait(60)
    with pytest.raises(structgen.StructgenError, match="one reader"):
        next(stream)
    go_on.set()
    reader.join()
    assert "".join(pieces) == "ok"  # who came in between took nothing
    assert stream.result.finish_reason == "stop"


def test_a_stream_is_read_once():
    stream = Generator(FakeModel("ok")).stream("x")
    assert next(stream) == "o"
    assert list(stream) == ["k"]  # what was left
    assert next(stream, None) is None
    with pytest.raises(structgen.StructgenError, match=r"read to its end.* stream\.result\.text"):
        list(stream)
    closed = Generator(FakeModel("ok")).stream("x")
    closed.close()
    assert list(closed) == []


def test_ctrl_c_acts_between_steps_and_loses_nothing(model):
    model.close()
    timer = threading.Timer(0.3, _thread.interrupt_main)
    endless = Generator(model, Regex("[a-z ]{4000}"))
    timer.start()
    # What runs in the background of a shell ignores the signal unless told otherwise.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            endless("On and on and on")
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    gc.collect()
    assert Generator(model)("The capital of France is", max_new_tokens=3).startswith(" Paris")


def resident_bytes() -> int:
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_hundreds_of_cancelled_calls_leave_memory_where_it_was(model):
    generator, typed = Generator(model), Generator(model, Person)
    event = threading.Event()

    def call(i: int) -> None:
        prompt = f"{i % 7} elephants went"
        if i % 4 == 0:  # closed after the first piece
            with generator.stream(prompt, max_new_tokens=50) as stream:
                next(stream)
        elif i % 4 == 1:  # dropped before the model runs: the first piece is forced
            next(typed.stream(prompt, max_new_tokens=50))
        elif i % 4 == 2:  # cancelled from outside
            event.set()
            assert generator.result(prompt, cancel=event).finish_reason == "cancelled"
            event.clear()
        else:
            with pytest.raises(structgen.IncompleteOutput):
                typed(prompt, max_new_tokens=50, timeout=0.001)

    model.close()
    for i in range(60):
        call(i)
    kept = model.sequences.info
    before = resident_bytes()
    for i in range(400):
        call(i)
    assert model.sequences.info.bytes == kept.bytes
    assert resident_bytes() - before < 12e6


def test_an_output_without_a_limit_says_so_once(caplog):
    model = FakeModel("a" * 2_500, context_length=4_096)
    Generator(model)("x", max_new_tokens=2_000)
    assert not caplog.records
    Generator(model)("x")
    (record,) = caplog.records
    assert "1,000 tokens" in record.getMessage()
    assert "max_new_tokens" in record.getMessage()
