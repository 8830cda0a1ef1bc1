"""The counters of a runner, and their text form."""

from __future__ import annotations

import asyncio
import re
import threading

import pytest

from structgen.runner.telemetry import MOST_SERIES, Histogram, Metrics

LINE = re.compile(
    r'structgen_[a-z_]+(\{[a-z]+="(\\.|[^"\\\n])*"(,[a-z]+="(\\.|[^"\\\n])*")*\})? \S+'
)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def told(text: str) -> dict[str, float]:
    """The lines of a text in Prometheus' format, checked."""
    found: dict[str, float] = {}
    types: dict[str, str] = {}
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in types
            types[name] = kind
        elif not line.startswith("# HELP "):
            assert LINE.fullmatch(line), line
            name, _, value = line.rpartition(" ")
            assert name not in found
            bare = name.partition("{")[0]
            assert bare in types or re.sub("_(bucket|sum|count)$", "", bare) in types
            found[name] = float(value)
    return found


def test_a_request_is_counted() -> None:
    clock = Clock()
    metrics = Metrics(clock)
    with metrics.request("chat", "small") as record:
        assert metrics.value("requests_running", "chat", "small") == 1
        clock.now = 0.2
        record.tokens = {"prompt": 10, "cached": 4, "completion": 7, "forced": 2}
        record.times = {"time_to_first_token_seconds": 0.03, "tokens_per_second": 42.0}
    found = told(metrics.prometheus())
    labels = 'kind="chat",model="small"'
    assert found[f"structgen_requests_total{{{labels}}}"] == 1
    assert found[f"structgen_requests_running{{{labels}}}"] == 0
    assert found[f'structgen_request_seconds_bucket{{{labels},le="0.1"}}'] == 0
    assert found[f'structgen_request_seconds_bucket{{{labels},le="0.25"}}'] == 1
    assert found[f'structgen_request_seconds_bucket{{{labels},le="+Inf"}}'] == 1
    assert found[f"structgen_request_seconds_sum{{{labels}}}"] == 0.2
    assert found['structgen_tokens_total{model="small",type="cached"}'] == 4
    assert found['structgen_tokens_per_second_bucket{model="small",le="50"}'] == 1
    assert found['structgen_tokens_per_second_bucket{model="small",le="30"}'] == 0
    assert metrics.value("tokens", "small", "completion") == 7
    assert metrics.snapshot()["requests"] == [
        {"labels": {"kind": "chat", "model": "small"}, "value": 1}
    ]


def test_errors_are_counted_by_kind_and_cancelling_is_none() -> None:
    metrics = Metrics()
    for kind in (ValueError, ValueError, KeyError, asyncio.CancelledError, GeneratorExit):
        with pytest.raises(kind), metrics.request("chat", "small"):
            raise kind
    assert metrics.value("request_errors", "chat", "small", "ValueError") == 2
    assert metrics.value("request_errors", "chat", "small", "KeyError") == 1
    assert metrics.value("requests_cancelled", "chat", "small") == 2
    assert metrics.value("requests", "chat", "small") == 5
    assert metrics.value("requests_running", "chat", "small") == 0


def test_the_model_may_be_known_later() -> None:
    metrics = Metrics()
    with metrics.request("chat") as record:
        record.model = "small"
    assert metrics.value("requests", "chat", "small") == 1
    assert metrics.value("requests_running", "chat", "") == 0


def test_names_are_quoted() -> None:
    metrics = Metrics()
    name = 'a "quoted"\\ name\nof \ud800 lines'
    metrics.tool(name, "ok", 0.1)
    assert [line for line in told(metrics.prometheus()) if "quoted" in line]


def test_what_others_keep_is_read_when_asked() -> None:
    metrics = Metrics()
    waiting = {"small": 3}
    metrics.watch("requests_waiting", "Requests that wait for a turn.", "model", lambda: waiting)
    assert metrics.value("requests_waiting", "small") == 3
    waiting["small"] = 0
    assert told(metrics.prometheus())['structgen_requests_waiting{model="small"}'] == 0


def test_labels_are_bounded() -> None:
    metrics = Metrics()
    for i in range(MOST_SERIES + 10):
        metrics.tool(f"tool{i}", "ok", None)
    assert metrics.value("tool_calls", "other", "other") == 10
    assert len(metrics.snapshot()["tool_calls"]) == MOST_SERIES + 1


def test_quantiles() -> None:
    histogram = Histogram((1, 2, 5))
    assert histogram.quantile(0.5) is None
    for value in (0.5, 1, 1.5, 9):
        histogram.add(value)
    assert histogram.counts == [2, 1, 0, 1]
    assert histogram.quantile(0.5) == 1
    assert histogram.quantile(0.75) == 2
    assert histogram.quantile(1) == float("inf")


def test_threads_lose_nothing() -> None:
    metrics = Metrics()

    def work() -> None:
        for _ in range(500):
            with metrics.request("chat", "small") as record:
                record.tokens["completion"] = 2

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert metrics.value("requests", "chat", "small") == 2000
    assert metrics.value("tokens", "small", "completion") == 4000
    assert metrics.value("requests_running", "chat", "small") == 0
