"""A stand-in for servers that speak OpenAI's API: real sockets, the real wire format.

It says what it is told to say, whether that is of the type or not, unless `Enforcing` answers: then
a local model does, under the constraint that the request asks for.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import structgen
from structgen import Cfg, Choice, Generator, JsonSchema, Regex


@dataclass
class Reply:
    """What the server says.

    Attributes:
        content: the text, in pieces; None where there is none.
        reasoning: what it says before.
        refusal: a refusal.
        calls: calls of tools: names and arguments.
        finish_reason: why it ends; None: it never says.
        usage: whether it counts tokens.
        counts_up: whether each event of a stream has the tokens so far, as xAI's have.
        status: of HTTP; other than 200 it is an error.
        seconds: to wait before each piece of a stream, or before the whole.
        cut: whether the connection is closed in the midst.
        logprobs: the log probability of each piece, or None.
        drip: seconds between comments in a stream, which never end.
        drips_head: whether the head of an answer never ends instead.
        raw: sent as it is instead of all that; in a stream as the data of its one event.
        kind: the ``Content-Type`` of an answer that is no stream.
        coding: its ``Content-Encoding``.
        cookies: how many it sets, with names of its own.
    """

    content: Sequence[str] | str | None = ""
    reasoning: str | None = None
    refusal: str | None = None
    calls: Sequence[tuple[str, str]] = ()
    finish_reason: str | None = "stop"
    usage: bool = True
    counts_up: bool = False
    status: int = 200
    seconds: float = 0
    cut: bool = False
    logprobs: Sequence[float] | None = None
    raw: bytes | None = None
    kind: str = "application/json"
    coding: str = "identity"
    drip: float = 0
    drips_head: bool = False
    cookies: int = 0

    @property
    def pieces(self) -> list[str]:
        """The content in pieces, of three characters where it is one text."""
        if self.content is None:
            return []
        if isinstance(self.content, str):
            text = self.content
            return [text[i : i + 3] for i in range(0, len(text), 3)]
        return list(self.content)


@dataclass
class ChatServer:
    """The server, on a free port of this machine; a context manager.

    Attributes:
        say: what it answers to the body of a request; a list: one after another, the last for ever.
        requests: the bodies of all requests, in order.
        most_at_once: how many requests were answered at the same time, at most.
        hung_up: how many clients went away before the answer had ended.
    """

    say: Callable[[dict[str, Any]], Reply] | list[Reply]
    requests: list[dict[str, Any]] = field(default_factory=list)
    most_at_once: int = 0
    hung_up: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._now = 0
        server = self

        class Handler(_Handler):
            owner = server

        self._http = _Http(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> ChatServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def answer(self, body: dict[str, Any]) -> Reply:
        """The reply to a request, which is noted."""
        with self._lock:
            self.requests.append(body)
            if isinstance(self.say, list):
                return self.say.pop(0) if len(self.say) > 1 else self.say[0]
        return self.say(body)

    def count(self, change: int) -> None:
        """One more request is being answered, or one less."""
        with self._lock:
            self._now += change
            self.most_at_once = max(self.most_at_once, self._now)


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # five, as by default, are refused when many clients come at once


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: ChatServer

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.owner.count(1)
        try:
            reply = self.owner.answer(body)
            if reply.status != 200:
                error = {"error": {"message": "that is wrong", "type": "x"}}
                self._whole(error if reply.raw is None else reply.raw, reply)
            elif body.get("stream"):
                self._stream(reply)
            else:
                time.sleep(reply.seconds)
                self._whole(_completion(reply) if reply.raw is None else reply.raw, reply)
        except (BrokenPipeError, ConnectionResetError):
            self.owner.hung_up += 1
            self.close_connection = True
        finally:
            self.owner.count(-1)

    def _whole(self, value: Mapping[str, Any] | bytes, reply: Reply) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.kind)
        self.send_header("Content-Encoding", reply.coding)
        self.send_header("Content-Length", str(len(data)))
        for number in range(reply.cookies):
            self.send_header("Set-Cookie", f"c{len(self.owner.requests)}_{number}=1")
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, reply: Reply) -> None:
        while reply.drips_head:
            self.wfile.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
            time.sleep(reply.drip)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while reply.drip:
            self._chunk(b": still here\n\n")
            time.sleep(reply.drip)
        if reply.raw is not None:
            self._chunk(b"data: " + reply.raw + b"\n\n")
            reply = Reply(finish_reason=None, usage=False)
        events = list(_events(reply))
        for number, event in enumerate(events):
            time.sleep(reply.seconds)
            if reply.cut and number == len(events) // 2:
                self.close_connection = True
                return
            self._chunk(f"data: {json.dumps(event)}\n\n".encode())
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


_HEAD = {"id": "1", "created": 1, "model": "stand-in"}


def _usage(reply: Reply) -> dict[str, Any] | None:
    if not reply.usage:
        return None
    n = len(reply.pieces)
    return {
        "prompt_tokens": 10,
        "completion_tokens": n + 2,
        "total_tokens": n + 12,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }


def _logprobs(reply: Reply, pieces: Sequence[str]) -> dict[str, Any] | None:
    if reply.logprobs is None:
        return None
    return {
        "content": [
            {
                "token": piece,
                "bytes": list(piece.encode()),
                "logprob": logprob,
                "top_logprobs": [
                    {"token": piece, "bytes": list(piece.encode()), "logprob": logprob}
                ],
            }
            for piece, logprob in zip(pieces, reply.logprobs, strict=False)
        ],
        "refusal": None,
    }


def _calls(reply: Reply) -> list[dict[str, Any]]:
    return [
        {"id": f"call_{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for i, (name, arguments) in enumerate(reply.calls)
    ]


def _completion(reply: Reply) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": None if reply.content is None else "".join(reply.pieces),
        "refusal": reply.refusal,
    }
    if reply.reasoning is not None:
        message["reasoning_content"] = reply.reasoning
    if reply.calls:
        message["tool_calls"] = _calls(reply)
    return {
        **_HEAD,
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": reply.finish_reason,
                "logprobs": _logprobs(reply, reply.pieces),
            }
        ],
        "usage": _usage(reply),
    }


def _events(reply: Reply) -> Any:
    def event(delta: Mapping[str, Any], end: str | None = None, logprobs: Any = None) -> Any:
        choice = {"index": 0, "delta": delta, "finish_reason": end, "logprobs": logprobs}
        return {**_HEAD, "object": "chat.completion.chunk", "choices": [choice], "usage": None}

    yield event({"role": "assistant", "content": ""})
    if reply.reasoning is not None:
        yield event({"reasoning_content": reply.reasoning})
    if reply.refusal is not None:
        yield event({"refusal": reply.refusal})
    for i, piece in enumerate(reply.pieces):
        one = None if reply.logprobs is None else Reply(logprobs=reply.logprobs[i:])
        said = event({"content": piece}, None, None if one is None else _logprobs(one, [piece]))
        if reply.counts_up:
            said["usage"] = {"prompt_tokens": 10, "completion_tokens": i + 1}
        yield said
    for i, call in enumerate(_calls(reply)):
        arguments = call["function"].pop("arguments")
        yield event({"tool_calls": [{"index": i, **call}]})
        for at in range(0, len(arguments), 4):
            part = {"arguments": arguments[at : at + 4]}
            yield event({"tool_calls": [{"index": i, "function": part}]})
    if reply.finish_reason is not None:
        yield event({}, reply.finish_reason)
    if reply.usage:
        yield {**_HEAD, "object": "chat.completion.chunk", "choices": [], "usage": _usage(reply)}


@dataclass
class Enforcing:
    """Answers with a local model, under the constraint that a request asks for.

    Attributes:
        model: a `structgen.TextModel`.
    """

    model: Any

    def __call__(self, body: dict[str, Any]) -> Reply:
        """The reply to a request."""
        generator = Generator(self.model, asked_for(body))
        most = body.get("max_completion_tokens") or body.get("max_tokens") or 60
        result = generator.result(
            body["messages"],
            max_new_tokens=most,
            temperature=body.get("temperature"),
            seed=body.get("seed"),
        )
        return Reply(
            result.text, finish_reason="length" if result.finish_reason == "length" else "stop"
        )


def asked_for(body: Mapping[str, Any]) -> Any:
    """The output type that a request asks for, as a server of that kind reads it; None: none."""
    found = dict(body.get("structured_outputs") or {})
    found |= {key[7:]: value for key, value in body.items() if key.startswith("guided_")}
    found |= {key: body[key] for key in ("regex", "grammar") if key in body}
    if "ebnf" in body:
        found["grammar"] = body["ebnf"]
    described = body.get("response_format")
    if described is not None:
        found["json"] = described["json_schema"]["schema"]
    if not found:
        return None
    ((kind, value),) = found.items()
    if kind == "json":
        return JsonSchema(value)
    if kind == "regex":
        return Regex(value)
    if kind == "choice":
        return Choice(value)
    return Cfg(value, dialect="gbnf")


__all__ = ["ChatServer", "Enforcing", "Reply", "asked_for", "structgen"]
