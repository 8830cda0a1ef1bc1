"""The layer around all endpoints, for every request and its answer.

It gives each request an id, checks keys (`Keys`, which keeps only hashes) and rates (`RateLimit`),
reads the body within limits of size and time, turns every error into JSON, counts every answer,
writes a line to the log, and makes a span if spans are on (`span_of`). It is a plain ASGI layer,
because Starlette's `BaseHTTPMiddleware` would come between a stream and its client.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import re
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from structgen.errors import OptionError, failure, let_go
from structgen.integrations.connections import in_parts, replayed
from structgen.runner import Metrics, Traces
from structgen.workers import STRANGER, Stranger, give_back

from .errors import ApiError, api_error, seconds
from .settings import Settings
from .wire import check_type

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

_HASHED = re.compile("sha256:([0-9a-f]{64})")


@final
class Keys:
    """The keys that a server accepts."""

    def __init__(self, keys: Iterable[str]) -> None:
        """Take keys: each in plain text, or as ``sha256:`` and its hash.

        Raises:
            OptionError: a key is empty or not printable ASCII, or a hash is not valid.
        """
        self._hashes: list[bytes] = []
        for key in keys:
            hashed = _HASHED.fullmatch(key)
            if hashed is not None:
                self._hashes.append(bytes.fromhex(hashed[1]))
                continue
            if key.lower().startswith("sha256:"):
                raise OptionError(
                    "An API key begins with sha256: but is not followed by 64 lower-case hex "
                    "digits, so it would count as a plain key. Write the hash that `printf %s KEY "
                    "| sha256sum` prints."
                )
            if not key or not key.isascii() or not key.isprintable() or " " in key:
                raise OptionError("An API key is empty or contains non-ASCII characters.")
            self._hashes.append(_hash(key))

    def __len__(self) -> int:
        return len(self._hashes)

    def holder(self, key: str) -> str | None:
        """Return a name for the owner of a key that reveals nothing of the key; None: the key is
        not accepted.

        All keys are compared, each in constant time. Names may change when the server restarts.
        """
        given = _hash(key)
        found: str | None = None
        for index, one in enumerate(self._hashes):
            if hmac.compare_digest(given, one):
                found = f"key{index}"
        return found


def owner_of(key: str) -> str:
    """Return the owner of a key: a stable hash, other than the one that keys are checked by."""
    return hashlib.sha256(b"structgen owner" + _hash(key)).hexdigest()


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="surrogateescape")).digest()


def keys_in(path: Path) -> list[str]:
    """Return the keys of a file, one per line; empty lines and lines that begin with ``#`` are
    skipped.

    Raises:
        OptionError: it cannot be read, or has no keys.
    """
    try:
        lines = path.expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = failure(error)
        raise OptionError(f"Cannot read the API key file {path}: {why}.") from None
    found = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not found:
        raise OptionError(f"The API key file {path} has no keys. Write one key per line.")
    return found


def bearer(header: str | None) -> str | None:
    """Return the key in an ``Authorization`` header; None: there is none."""
    scheme, _, key = (header or "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" and key.strip() else None


_MOST_HOLDERS = 10_000
"""Most clients that are counted; beyond that the one that asked longest ago is dropped."""


@final
class RateLimit:
    """A limit on requests per minute for each client; a full minute's requests may come at once."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = per_minute
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, holder: str) -> float:
        """Count a request.

        Returns:
            0; or the seconds until a request is allowed, if none is now.
        """
        now = self._clock()
        left, then = self._left.pop(holder, (float(self._most), now))
        left = min(float(self._most), left + (now - then) * self._most / 60)
        wait = 0.0 if left >= 1 else (1 - left) * 60 / self._most
        self._left[holder] = (left if wait else left - 1, now)
        if len(self._left) > _MOST_HOLDERS:
            self._left.popitem(last=False)
        return wait


@contextmanager
def span_of(
    tracer: Tracer | None, method: str, headers: Mapping[str, str], id_: str
) -> Iterator[dict[str, Any]]:
    """Make a span that lasts as long as the block.

    Args:
        tracer: None: there are no spans.
        method: the request's method.
        headers: the request's headers. ``traceparent`` is used if present, ``baggage`` is not,
            because it would be logged.
        id_: the request's id.

    Yields:
        A dict to put the ``status`` into, and the ``route`` if there is one.
    """
    seen: dict[str, Any] = {}
    if tracer is None:
        yield seen
        return
    from opentelemetry import propagate, trace

    attributes = {"http.request.method": method, "structgen.request_id": id_}
    context = propagate.extract({k: v for k, v in headers.items() if k != "baggage"})
    kind = trace.SpanKind.SERVER
    with tracer.start_as_current_span(method, context, kind, attributes) as span:
        yield seen
        route, status = seen.get("route"), seen.get("status", 0)
        if route is not None:
            span.update_name(f"{method} {route}")
            span.set_attribute("http.route", route)
        if status:
            span.set_attribute("http.response.status_code", status)
        if status >= 500:
            span.set_attribute("error.type", str(status))
            span.set_status(trace.StatusCode.ERROR)


LOG = logging.getLogger("structgen.server")

_OPEN = re.compile(r"/|/(health(/live|/ready)?|docs|openapi\.json|favicon\.ico|playground(/.*)?)")
"""Paths that need no key."""


def needs_no_key(path: str) -> bool:
    """Return whether a path needs no key."""
    return _OPEN.fullmatch(path) is not None


_MOST_BODIES = 16
"""Most bytes that one key may have under way, in bodies of the largest size. Conversations that
requests read, and answers not yet read by the client, count, too."""

_MOST_REQUESTS = 1_024
"""Most requests of one key under way: each counts at least as that part of these bytes."""

_MUCH = 64 << 20
"""Bytes of bodies after which free memory is given back to the system, because it is fragmented by
then."""

_SOON = 1.0  # seconds until then, in which finished requests are freed

_NO_BODY = 1_000
"""Most bytes of a body on paths that need no key. These bodies are not counted, or strangers could
make ``/health`` fail for others."""

OWNER = "structgen.owner"
"""The key of a scope made in this process that names the owner; no API key is needed then."""

_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


@dataclass(frozen=True)
class Bodies:
    """The bodies that an endpoint accepts.

    Attributes:
        most: most bytes of a body.
        check_type: raises on a wrong ``Content-Type``.
    """

    most: int
    check_type: Callable[[str], None] = check_type


class ClientGone(Exception):
    """The client has closed the connection; nobody waits for the answer."""


@final
class Gateway:
    """The outermost layer of the application."""

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        keys: Keys,
        traces: Traces,
        metrics: Metrics,
        bodies: Mapping[str, Bodies],
    ) -> None:
        """Make the layer. ``bodies``: by path, those that are not JSON of at most
        ``max_body_bytes``."""
        self._app = app
        self._bodies = bodies
        self._json = Bodies(settings.max_body_bytes)
        self._settings = settings
        self._keys = keys
        self._traces = traces
        self._metrics = metrics
        most = settings.requests_per_minute
        self._rate = None if most is None else RateLimit(most)
        self._held: Counter[str | None] = Counter()
        self._read = 0  # bytes of bodies since memory was last given back
        hosts = settings.allowed_hosts
        if not hosts and settings.is_local and not keys:
            # Otherwise any web page could ask, under a host name of its own that leads to this
            # machine.
            hosts = ("127.0.0.1", "::1", "localhost", settings.host)
        self._hosts = {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        began = time.perf_counter()
        given = headers.get("x-request-id", "")
        id_ = given if _ID.fullmatch(given) else f"req_{secrets.token_hex(12)}"
        status = size = held = 0
        most_held = _MOST_BODIES * self._settings.max_body_bytes
        by: str | None = None

        def taken(more: int) -> int:
            """Change the number of bytes held for a key by some; return the new number."""
            nonlocal size, held
            if by is None:
                return 0
            size += more
            counted = max(size, most_held // _MOST_REQUESTS)
            if size > most_held:
                raise ApiError(
                    413,
                    f"The request counts as {size:,} bytes, including its values, the files "
                    "fetched for it, each of its n answers, and unread events. The limit is "
                    f"{most_held:,}. Ask for less.",
                    code="request_too_large",
                    headers={"Connection": "close"},
                )
            whole = self._held[by] - held + counted
            if whole > most_held:
                raise ApiError(
                    429,
                    f"Your running requests count as {whole:,} bytes. Retry when some have "
                    "finished.",
                    code="rate_limit_exceeded",
                    headers={"Retry-After": "1", "Connection": "close"},
                )
            self._held[by], held = whole, counted
            return size

        scope.setdefault("state", {})
        scope["state"] |= {"id": id_, "log": {}, "taken": taken}

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._metrics.http_response(_endpoint(scope) or "", status)
                out = MutableHeaders(scope=message)
                out["x-request-id"] = id_
                out["x-content-type-options"] = "nosniff"
                out["x-frame-options"] = "DENY"
                out["openai-processing-ms"] = str(round((time.perf_counter() - began) * 1000))
            await in_parts(send, message)

        error: Exception | None = None
        with span_of(self._traces.tracer(), scope["method"], headers, id_) as span:
            try:
                self._admit(scope, headers)
                by = scope["state"].get("holder")
                taken(0)
                known = self._bodies.get(scope["path"], self._json)
                most = known.most if "holder" in scope["state"] else _NO_BODY
                body = await self._body(receive, headers, taken, most)
                # All work for the request knows its owner.
                owner, of = scope["state"].get("owner", ""), self._settings
                token = STRANGER.set(Stranger(owner, of.max_work, of.max_mask_work))
                try:
                    await self._app(scope, replayed(body, receive), sending)
                finally:
                    STRANGER.reset(token)
            except ClientGone as gone:
                let_go(gone)
                if not status:
                    status = 499
                    self._metrics.http_response(_endpoint(scope) or "", status)
            except asyncio.CancelledError:
                if not status and OWNER not in scope:
                    text = "The server stopped before it answered. Send the request again."
                    after = {"Retry-After": "5"}
                    ended = ApiError(503, text, code="server_ending", headers=after)
                    with suppress(Exception):  # the client may have gone
                        await ended.response(scope, receive, sending)
                raise
            except Exception as raised:
                error, api = raised, api_error(raised)
                log = scope["state"]["log"]
                log["error"] = api.code or api.status
                if api.code == "model_unavailable":  # clients must not see the server's folders
                    log["why"] = str(raised.__cause__ or raised)
                if not status:
                    await api.response(scope, receive, sending)
            finally:
                self._held[by] -= held
                if not self._held[by]:
                    del self._held[by]
                by = None
                self._read += size
                if self._read >= _MUCH:
                    self._read = 0
                    loop = asyncio.get_running_loop()
                    loop.call_later(_SOON, lambda: loop.run_in_executor(None, give_back))
                span |= {"status": status, "route": _endpoint(scope)}
                self._log(scope, id_, status, began, error)
                if error is not None:
                    let_go(error)

    def _admit(self, scope: Scope, headers: Headers) -> None:
        """Check that the client may send the request.

        Raises:
            ApiError: it may not.
        """
        if OWNER in scope:
            scope["state"] |= {"owner": scope[OWNER], "holder": "batch"}
            return
        named = headers.get("host", "").lower()
        host = re.sub(r":\d+$", "", named).strip("[]")
        if self._hosts and not {named, host, f"[{host}]"} & self._hosts:
            raise ApiError(
                400,
                f"{host!r} is not a host name of this server. Use this machine's host name, or "
                f"add {host!r} to allowed_hosts.",
                code="invalid_host",
            )
        path = scope["path"]
        if scope["method"] == "OPTIONS" or needs_no_key(path):
            return
        holder: str | None = None
        if self._keys:
            key = bearer(headers.get("authorization"))
            holder = None if key is None else self._keys.holder(key)
            if key is None or holder is None:
                raise ApiError(
                    401,
                    "The API key is missing. Send it in the header Authorization: Bearer KEY."
                    if key is None
                    else "The API key is not valid for this server.",
                    code="invalid_api_key",
                    headers={"WWW-Authenticate": "Bearer"},
                )
            scope["state"]["owner"] = owner_of(key)
        if holder is None:
            holder = (scope.get("client") or ("", 0))[0]
            scope["state"]["owner"] = holder
        scope["state"]["holder"] = holder
        if self._rate is not None and path != "/metrics":
            wait = self._rate.take(holder)
            if wait:
                raise ApiError(
                    429,
                    f"You sent more than {self._settings.requests_per_minute:,} requests in a "
                    f"minute. Retry in {seconds(wait)} s.",
                    code="rate_limit_exceeded",
                    headers={"Retry-After": seconds(wait)},
                )
        if scope["method"] not in ("GET", "HEAD"):
            self._check_page(path, headers)

    def _check_page(self, path: str, headers: Headers) -> None:
        """Refuse requests from foreign web pages if no keys are set.

        Browsers send such requests without asking the server first if the body is not declared as
        JSON.

        Raises:
            ApiError: so it is.
        """
        self._bodies.get(path, self._json).check_type(headers.get("content-type", ""))
        if self._keys or "*" in self._settings.cors_origins:
            return
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin in self._settings.cors_origins:
            return
        is_own = site in ("same-origin", "none")
        if site is None:  # an old browser, or none
            is_own = origin is None or origin.partition("://")[2] == headers.get("host")
        if not is_own:
            raise ApiError(
                403,
                f"Pages of {origin or 'another origin'} may not use this server. Add the origin "
                "to cors_origins, or start the server with an API key.",
                code="invalid_origin",
            )

    async def _body(
        self, receive: Receive, headers: Headers, taken: Callable[[int], int], most: int
    ) -> bytes:
        """Return the whole body; ``taken`` is called with the number of bytes held.

        Raises:
            ApiError: it is too large or too slow, or too many bytes are held.
            ClientGone: it ends before it is whole.
        """
        too_large = ApiError(
            413,
            f"The request is larger than {most:,} bytes. Send less, or raise max_body_bytes (for "
            "files: max_file_bytes).",
            code="request_too_large",
            headers={"Connection": "close"},
        )
        length = headers.get("content-length", "")
        if re.fullmatch("[0-9]+", length) and int(length[:20]) > most:
            raise too_large

        async def read() -> bytes:
            parts: list[bytes] = []
            size = 0
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > most:
                    raise too_large
                taken(len(parts[-1]))
                if not message.get("more_body", False):
                    return b"".join(parts)

        try:
            return await asyncio.wait_for(read(), self._settings.body_seconds)
        except asyncio.TimeoutError:
            raise ApiError(
                408,
                f"The request did not arrive within {self._settings.body_seconds:g} s.",
                code="request_timeout",
                headers={"Connection": "close"},
            ) from None

    def _log(
        self, scope: Scope, id_: str, status: int, began: float, error: Exception | None
    ) -> None:
        entry: dict[str, Any] = {
            "id": id_,
            "method": scope["method"],
            "path": scope["path"][:1_000],
            "status": status,
            "ms": round((time.perf_counter() - began) * 1000, 1),
            "by": scope["state"].get("holder"),
            **scope["state"]["log"],
        }
        unexpected = error if entry.get("error") == "internal_error" else None
        level = logging.INFO if unexpected is None else logging.ERROR
        line = json.dumps(entry, default=str)
        LOG.log(level, "%s", line, extra={"entry": entry}, exc_info=unexpected)


def _endpoint(scope: Scope) -> str | None:
    """Return the path of the endpoint, with names in place of the variable parts."""
    return getattr(scope.get("route"), "path", None)
