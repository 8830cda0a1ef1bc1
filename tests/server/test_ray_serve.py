"""The server on Ray Serve: replicas, sessions that find theirs, models by their id.

Ray is in no environment of the other tests: pip install '.[ray]'.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from structgen.errors import OptionError

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("default")

YES = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"enum": ["yes", "no"]}}}


@pytest.fixture(scope="module")
def served() -> Iterator[httpx.Client]:
    from ray import serve

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"port": port})
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        yield client
    serve.shutdown()
    ray.shutdown()


def run(client: httpx.Client, *arguments: Any, **options: Any) -> httpx.Client:
    from ray import serve

    from structgen.ray import deployment

    serve.run(deployment(*arguments, **options))
    return client


def test_sessions_find_their_replica_or_hear_that_they_cannot(served: httpx.Client) -> None:
    client = run(served, {"small": "smollm2-135m-instruct"}, replicas=2, sticky=True)
    chat = {"messages": [{"role": "user", "content": "Is snow white?"}], "response_format": YES}
    answer = client.post("/v1/chat/completions", json=chat).json()
    assert answer["choices"][0]["message"]["content"] in ('"yes"', '"no"')
    with client.stream("POST", "/v1/chat/completions", json=chat | {"stream": True}) as stream:
        assert [line for line in stream.iter_lines() if line][-1] == "data: [DONE]"

    asked = {"input": "Say a word.", "max_output_tokens": 3}
    mine = {"x-session-id": "mine"}
    known = client.post("/v1/responses", json=asked, headers=mine).json()["id"]
    after = asked | {"previous_response_id": known}
    statuses = set()
    for i in range(8):
        assert client.post("/v1/responses", json=after, headers=mine).status_code == 200
        other = client.post("/v1/responses", json=after, headers={"x-session-id": f"other {i}"})
        statuses.add(other.status_code)
        if other.status_code != 200:
            assert "this is one of several" in other.json()["error"]["message"]
    assert statuses == {200, 400}


def test_models_by_their_id(served: httpx.Client) -> None:
    models = dict.fromkeys(("one", "two"), "smollm2-135m-instruct")
    client = run(served, models, models_per_replica=1, api_keys=("key",))

    def states() -> dict[str, str]:
        return {id_: client.get(f"/v1/models/{id_}/status").json()["status"] for id_ in models}

    header = {"serve_multiplexed_model_id": "one"}
    assert client.post("/v1/completions", json={}, headers=header).status_code == 401
    assert client.get("/health", headers=header).status_code == 200
    client.headers["Authorization"] = "Bearer key"
    before = states()
    for id_ in models:
        body = {"model": id_, "prompt": "A", "max_tokens": 2}
        header = {"serve_multiplexed_model_id": id_}
        assert client.post("/v1/completions", json=body, headers=header).status_code == 200
    after = states()
    assert before["one"] != "loaded"
    assert after["two"] == "loaded"
    assert after["one"] != "loaded", "a replica has one model at a time"
    wrong = {"serve_multiplexed_model_id": "three"}
    body = {"model": "three", "prompt": "A"}
    assert client.post("/v1/completions", json=body, headers=wrong).status_code == 404


def test_what_replicas_cannot_share_is_refused() -> None:
    from structgen.ray import deployment

    with pytest.raises(OptionError, match="sessions= requires one server"):
        deployment(replicas=(1, 2), sessions="x.sqlite")
    with pytest.raises(OptionError):
        deployment(nothing=1)
