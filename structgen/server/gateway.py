"""What every request passes through before an endpoint sees it, and its answer after.

Owns the id of a request, who may ask and how often, that its body is read in bounds of size and
time, that no error leaves without its JSON, that every answer is counted, and the line in the log.
One layer of ASGI, and not of Starlette's `BaseHTTPMiddleware`, which would stand between a stream
and its client.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import secrets
import time
from collections.abc import Iterator
from typing import Any, final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from structgen.runner import Metrics, Traces
from structgen.workers import STRANGER, Stranger

from .auth import Keys, bearer, owner_of
from .bodies import check_type
from .errors import ApiError, seconds, told
from .limits import RateLimit
from .settings import LOOPBACK, Settings
from .spans import span_of

LOG = logging.getLogger("structgen.server")

_OPEN = re.compile(r"/|/(health(/live|/ready)?|docs|openapi\.json|favicon\.ico|playground(/.*)?)")
"""Paths that need no key."""


def needs_no_key(path: str) -> bool:
    """Whether everybody may ask for a path."""
    return _OPEN.fullmatch(path) is not None


_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_WHOLE = re.compile("[0-9]+")


class ClientGone(Exception):
    """The client has closed the connection: nobody waits for an answer."""


@final
class Gateway:
    """The outermost layer of the application."""

    def __init__(
        self, app: ASGIApp, settings: Settings, keys: Keys, traces: Traces, metrics: Metrics
    ) -> None:
        self._app = app
        self._settings = settings
        self._keys = keys
        self._traces = traces
        self._metrics = metrics
        most = settings.requests_per_minute
        self._rate = None if most is None else RateLimit(most)
        hosts = settings.allowed_hosts
        if not hosts and settings.is_local and not keys:
            # Else any web page could ask, under a name of its own that leads to this machine.
            hosts = (*LOOPBACK, settings.host)
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
        scope.setdefault("state", {})
        scope["state"] |= {"id": id_, "log": {}}
        status = 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._metrics.http_response(_endpoint(scope) or "", status)
                out = MutableHeaders(scope=message)
                out["x-request-id"] = id_
                out["openai-processing-ms"] = str(round((time.perf_counter() - began) * 1000))
            await send(message)

        error: BaseException | None = None
        with span_of(self._traces.tracer(), scope["method"], headers, id_) as span:
            try:
                self._admit(scope, headers)
                body = await self._body(receive, headers)
                with self._stranger(scope):
                    await self._app(scope, _replayed(body, receive), sending)
            except ClientGone:
                if not status:
                    status = 499
                    self._metrics.http_response(_endpoint(scope) or "", status)
            except Exception as raised:
                error = raised
                if not status:
                    await told(raised).response(scope, receive, sending)
            finally:
                span |= {"status": status, "route": _endpoint(scope)}
                self._log(scope, id_, status, began, error)

    def _admit(self, scope: Scope, headers: Headers) -> None:
        """Check who asks.

        Raises:
            ApiError: they may not.
        """
        host = re.sub(r":\d+$", "", headers.get("host", "")).strip("[]").lower()
        if self._hosts and host not in self._hosts:
            raise ApiError(
                400,
                f"The server is not called {host!r}. Ask it by the name of this machine, or name "
                "it in allowed_hosts.",
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
                    "There is no API key. Send it in the header Authorization: Bearer KEY."
                    if key is None
                    else "The API key is not one of this server's.",
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
                    f"More than {self._settings.requests_per_minute:,} requests a minute. Retry in "
                    f"{seconds(wait)} s.",
                    code="rate_limit_exceeded",
                    headers={"Retry-After": seconds(wait)},
                )
        if scope["method"] not in ("GET", "HEAD"):
            self._check_page(headers)

    def _check_page(self, headers: Headers) -> None:
        """Refuse what a web page of somebody else's sends, where no key says who asks.

        Browsers send such requests without asking the server, if their bodies are not JSON.

        Raises:
            ApiError: so it is.
        """
        check_type(headers.get("content-type", ""))
        if self._keys or "*" in self._settings.cors_origins:
            return
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if origin in self._settings.cors_origins:
            return
        is_own = site in ("same-origin", "none")
        if site is None:  # an old browser, or no browser
            is_own = origin is None or origin.partition("://")[2] == headers.get("host")
        if not is_own:
            raise ApiError(
                403,
                f"A page of {origin or 'another origin'} may not ask this server. Name its origin "
                "in cors_origins, or start the server with an API key.",
                code="invalid_origin",
            )

    @contextlib.contextmanager
    def _stranger(self, scope: Scope) -> Iterator[None]:
        """Have all that a request leads to know on whose behalf it is done."""
        settings, owner = self._settings, scope["state"].get("owner", "")
        token = STRANGER.set(Stranger(owner, settings.max_work, settings.max_mask_work))
        try:
            yield
        finally:
            STRANGER.reset(token)

    async def _body(self, receive: Receive, headers: Headers) -> bytes:
        """The whole body.

        Raises:
            ApiError: it is too large, or too slow.
            ClientGone: it ends before it is whole.
        """
        most = self._settings.max_body_bytes
        too_large = ApiError(
            413,
            f"The request is larger than {most:,} bytes. Send less, or raise max_body_bytes.",
            code="request_too_large",
            headers={"Connection": "close"},
        )
        length = headers.get("content-length", "")
        if _WHOLE.fullmatch(length) and int(length[:20]) > most:
            raise too_large

        async def read() -> bytes:
            parts, size = [], 0
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > most:
                    raise too_large
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
        self, scope: Scope, id_: str, status: int, began: float, error: BaseException | None
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
        unexpected = error is not None and told(error).status == 500
        level = logging.ERROR if unexpected else logging.INFO
        LOG.log(
            level,
            "%s",
            json.dumps(entry, default=str),
            extra={"entry": entry},
            exc_info=error if unexpected else None,
        )


def _endpoint(scope: Scope) -> str | None:
    """The path of the endpoint that was reached, with names in place of what varies."""
    return getattr(scope.get("route"), "path", None)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """What gives the body once, and then what the client does."""
    is_told = False

    async def receiving() -> Message:
        nonlocal is_told
        if not is_told:
            is_told = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return receiving
