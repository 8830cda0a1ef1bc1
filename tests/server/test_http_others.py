"""Endpoints beside text: vectors, rankings, tokens, models, grammars, health."""

from __future__ import annotations

import base64
import re
import struct
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from one_server import KEY, Served

ROOT = Path(__file__).resolve().parents[2]
AUTH = {"Authorization": f"Bearer {KEY}"}
TEXTS = ["a red apple", "a fast car"]


def test_embeddings_of_all_kinds_of_input(client: openai.OpenAI, served: Served) -> None:
    made = client.embeddings.create(model="vectors", input=TEXTS, encoding_format="float")
    assert [one.index for one in made.data] == [0, 1]
    assert len(made.data[0].embedding) == 384
    assert made.usage.prompt_tokens > 0
    # Without encoding_format the client asks for base64, and decodes it itself.
    packed = client.embeddings.create(model="vectors", input=TEXTS)
    assert packed.data[1].embedding == pytest.approx(made.data[1].embedding)
    one = client.embeddings.create(model="vectors", input=TEXTS[0], encoding_format="float")
    assert one.data[0].embedding == pytest.approx(made.data[0].embedding, abs=1e-5)
    short = client.embeddings.create(
        model="vectors", input=TEXTS[0], dimensions=8, encoding_format="float"
    )
    assert len(short.data[0].embedding) == 8
    tokens = served.runner.tokenize_text(TEXTS[0], add_special_tokens=False, model="vectors")
    for given in (tokens, [tokens]):
        same = client.embeddings.create(model="vectors", input=given, encoding_format="float")
        assert same.data[0].embedding == pytest.approx(one.data[0].embedding, abs=1e-5)


def test_base64_is_little_endian_float32(http: httpx.Client) -> None:
    body = {"model": "vectors", "input": "a", "encoding_format": "base64", "dimensions": 2}
    packed = http.post("/v1/embeddings", json=body).json()["data"][0]["embedding"]
    plain = http.post("/v1/embeddings", json={**body, "encoding_format": "float"}).json()
    assert struct.unpack("<2f", base64.b64decode(packed)) == pytest.approx(
        plain["data"][0]["embedding"]
    )


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": []}, "input"),
        ({"input": [""], "foo": 1}, "foo"),
        ({"input": ["a"] * 3000}, "input"),
        ({"input": "a b " * 5000}, "input"),
        ({"input": "a", "dimensions": 10_000}, "dimensions"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "a", "model": "small"}, "model"),
        ({}, "input"),
    ],
)
def test_what_is_wrong_with_embeddings(
    client: openai.OpenAI, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.post("/embeddings", body={"model": "vectors", **fields}, cast_to=object)
    assert caught.value.param == param


def test_rerank(http: httpx.Client) -> None:
    body = {"model": "vectors", "query": "fruit", "documents": ["a car", "an apple", {"text": "x"}]}
    made = http.post("/v1/rerank", json={**body, "top_n": 2, "return_documents": True}).json()
    assert made["results"][0]["index"] == 1
    assert made["results"][0]["document"] == {"text": "an apple"}
    assert len(made["results"]) == 2
    assert http.post("/v1/rerank", json={**body, "query": 1}).json()["error"]["param"] == "query"


def test_tokens(http: httpx.Client) -> None:
    made = http.post("/v1/tokenize", json={"model": "small", "prompt": "Hello, world"}).json()
    assert made["count"] == len(made["tokens"]) > 1
    assert made["max_model_len"] == 8192
    back = http.post("/v1/detokenize", json={"model": "small", "tokens": made["tokens"]}).json()
    assert back["text"] == back["prompt"] == "Hello, world"
    chat = http.post("/v1/tokenize", json={"messages": [{"role": "user", "content": "Hi"}]}).json()
    assert chat["count"] > 5
    for body, param in (({"prompt": "a", "text": "b"}, None), ({"prompt": 1}, "prompt")):
        answer = http.post("/v1/tokenize", json=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    counts = [
        http.post("/v1/tokenize", json={"model": "vectors", **body}).json()["count"]
        for body in ({"prompt": "a " * 300}, {"prompt": "a " * 300, "add_special_tokens": False})
    ]
    assert counts == [302, 300]  # more than the model takes: nothing is cut, or left out in silence
    for tokens in ([10**9], [-1], ["a"]):
        answer = http.post("/v1/detokenize", json={"tokens": tokens})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"].startswith("tokens")


def test_states_of_models(http: httpx.Client, client: openai.OpenAI) -> None:
    assert http.post("/v1/models/vectors/unload").json()["status"] == "unloaded"
    assert http.get("/v1/models/vectors/status").json()["status"] == "unloaded"
    assert client.models.retrieve("vectors").id == "vectors"
    made = http.post("/v1/models/vectors/load").json()
    assert made["status"] == "loaded"
    assert "source" not in made
    assert http.post("/v1/models/none/load").status_code == 404


def test_grammars(http: httpx.Client) -> None:
    for kind, good, bad in (
        ("regex", "a+", "a("),
        ("json_schema", {"type": "integer"}, {"type": "banana"}),
        ("lark", 'start: "a"', "start: b"),
        ("gbnf", 'root ::= "a"', "root ::= b"),
        ("choice", ["a"], []),
    ):
        made = http.post("/v1/grammars/check", json={"grammar": good, "grammar_type": kind}).json()
        assert made == {"valid": True, "problems": []}
        made = http.post("/v1/grammars/check", json={"grammar": bad, "grammar_type": kind}).json()
        assert made["valid"] is False
        assert made["problems"][0]["message"]
    answer = http.post("/v1/grammars/check", json={"grammar": "a", "grammar_type": "x"})
    assert answer.json()["error"]["param"] == "grammar_type"


def test_health_needs_no_key(served: Served) -> None:
    assert httpx.get(f"{served.root}/health", timeout=60).json() == {"status": "ok"}
    assert httpx.get(f"{served.root}/health/live", timeout=60).status_code == 200
    assert not httpx.get(f"{served.root}/health/", timeout=60).is_redirect
    ready = httpx.get(f"{served.root}/health/ready", timeout=60)
    assert (ready.status_code, ready.json()["status"]) == (200, "ready")
    assert httpx.get(f"{served.root}/v1/models", timeout=60).status_code == 401


def test_metrics(http: httpx.Client, served: Served) -> None:
    http.post("/v1/tokenize", json={"prompt": "a"})
    answer = http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert "# TYPE structgen_requests_total counter" in answer.text
    assert httpx.get(f"{served.root}/metrics", timeout=60).status_code == 401


def test_what_no_model_is_asked_for_is_counted_too(http: httpx.Client, served: Served) -> None:
    def counted(endpoint: str, status: int) -> float:
        wanted = {"endpoint": endpoint, "status": str(status)}
        found = served.runner.metrics.snapshot()["http_responses"]
        return sum(row["value"] for row in found if row["labels"] == wanted)

    cases = [("", 401), ("/v1/chat/completions", 400), ("/v1/models/{model:path}", 404)]
    before = [counted(*case) for case in cases]
    assert httpx.get(f"{served.root}/v1/models", timeout=60).status_code == 401
    assert http.post("/v1/chat/completions", json={"wat": 1}).status_code == 400
    assert http.get("/v1/models/nobody").status_code == 404
    assert [counted(*case) for case in cases] == [number + 1 for number in before]
    assert 'structgen_http_responses_total{endpoint="",status="401"}' in http.get("/metrics").text


def test_the_document_says_what_there_is(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    guide = (ROOT / "docs" / "server.md").read_text(encoding="utf-8")
    table = guide.partition("## Endpoints")[2].partition("\n\n`response_format`")[0]
    listed, last = set[str](), ""
    for row in re.findall(r"^\| (`.+?`) \| ", table, re.MULTILINE):
        for path in re.findall(r"[/…][\w./]*(?=`)", row):  # …/load is beside ID/status
            last = path if path[0] == "/" else last
            listed.add(path.replace("…", last.removesuffix("/status")))
    pages = {"/", "/docs", "/openapi.json", "/playground"}
    assert {re.sub(r"\{\w+\}", "ID", path) for path in document["paths"]} | pages == listed
    page = http.get("/docs").text
    assert set(re.findall(r'https://[^/"]+', page)) == {"https://cdn.jsdelivr.net"}
    assert 'Without a network, read <a href="openapi.json">' in page
    chat = document["components"]["schemas"]["ChatRequest"]["properties"]
    assert {"messages", "stream", "structured_outputs"} <= set(chat)
    assert "output_type" not in chat

    def references(value: Any) -> Any:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                yield value["$ref"]
            for one in value.values():
                yield from references(one)
        elif isinstance(value, list):
            for one in value:
                yield from references(one)

    for reference in references(document):
        name = reference.removeprefix("#/components/schemas/")
        assert name in document["components"]["schemas"], reference
