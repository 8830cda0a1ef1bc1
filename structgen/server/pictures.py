"""Images that requests name by address: downloaded from allowed hosts only.

Checks addresses and limits the download: bytes, seconds, and what a name may resolve to. A name is
resolved once, the result is checked, and the connection goes to that result, so a later DNS answer
has no effect. `structgen.media` reads the images.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import ipaddress
import socket
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import SplitResult, urljoin, urlsplit

from fastapi import Request

from structgen.media import MOST_BYTES, data_uri

from .settings import Settings
from .wire import SMALL, aside, check_many, refused

_SECONDS = 15.0
"""Most seconds that all downloads of a request may take."""

_MOST_REDIRECTS = 3
_CHUNK = 64 << 10
_PORTS = {"http": 80, "https": 443}


async def with_pictures(request: Request, body: dict[str, Any]) -> int:
    """Replace addresses in a body by ``data:`` URIs; return their number of bytes.

    Raises:
        ApiError: an address is on a host that is not allowed, or cannot be downloaded.
    """
    found = [*_addresses(body)]
    if not found:
        return 0
    settings: Settings = request.app.state.settings
    check_many(found, found[0][2], settings.max_pictures, " pictures", "max_pictures")
    end, size = time.monotonic() + _SECONDS, 0
    for holder, key, param in found:
        links: list[socket.socket] = []
        fetch = partial(fetched, holder[key], settings.image_hosts, end, links)
        work = request.app.state.pictures.do(request.state.owner, fetch)
        try:
            data = await asyncio.wait_for(work, max(end - time.monotonic(), 0))
        except asyncio.TimeoutError:
            raise refused(
                f"{param}: the image did not arrive within {_SECONDS:g} seconds.",
                param,
                "invalid_value",
            ) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise refused(f"{param}: {error}", param, "invalid_value") from None
        finally:  # the thread may still wait for a host that sends a byte now and then
            for link in links:
                with contextlib.suppress(OSError):
                    link.shutdown(socket.SHUT_RDWR)
        request.state.taken(len(data))
        written = partial(data_uri, "application/octet-stream", data)
        holder[key] = await aside(request, written, is_large=len(data) > SMALL)
        request.state.taken(len(holder[key]) - len(data))
        del data, written
        size += len(holder[key])
    return size


def _addresses(body: Mapping[str, Any]) -> Iterator[tuple[Any, str, str]]:
    """Yield the addresses of pictures in a body, each with its container, key and path."""
    for field in ("messages", "input"):
        for i, message in enumerate(_list(body.get(field))):
            content = message.get("content") if isinstance(message, dict) else None
            for j, part in enumerate(_list(content)):
                if not isinstance(part, dict) or part.get("type") not in _KINDS:
                    continue
                param = f"{field}[{i}].content[{j}].image_url"
                holder, key = part, "image_url"
                if isinstance(part.get(key), dict):
                    holder, key, param = part[key], "url", f"{param}.url"
                url = holder.get(key)
                if isinstance(url, str) and url[:8].lower().startswith(("http://", "https://")):
                    yield holder, key, param


_KINDS = ("image_url", "input_image")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def fetched(url: str, hosts: Sequence[str], end: float, links: list[socket.socket]) -> bytearray:
    """Return the bytes at an address.

    Args:
        url: an http or https address.
        hosts: allowed hosts: names or addresses, with a port if it is not the default.
        end: the deadline, by `time.monotonic`.
        links: connections are added here, so that another thread can end them.

    Raises:
        ValueError: the host is not allowed, or its answer is not a picture of at most the allowed
            bytes.
        OSError, HTTPException: the host cannot be reached.
    """
    for _ in range(_MOST_REDIRECTS + 1):
        parts = urlsplit(url)
        named = _named(parts, hosts)
        status, location, data = _asked(parts, hosts, end, links)
        if status == 200:
            return data
        if status not in (301, 302, 303, 307, 308) or not location:
            raise ValueError(f"the host {named} returned status {status}.")
        url = urljoin(url, location)
        if urlsplit(url).scheme not in _PORTS or _named(urlsplit(url), hosts) != named:
            raise ValueError(f"the host {named} redirects to another host, which is not allowed.")
    raise ValueError(f"the host {named} redirects more than {_MOST_REDIRECTS} times.")


def _named(parts: SplitResult, hosts: Sequence[str]) -> str:
    """Return the host of an address in the form of the setting."""
    host, port = (parts.hostname or "").rstrip("."), parts.port
    shown = f"[{host}]" if ":" in host else host
    if port is not None and port != _PORTS[parts.scheme]:
        shown += f":{port}"
    if parts.username is not None or shown not in {one.lower() for one in hosts}:
        raise ValueError(
            f"this server does not fetch images from {shown[:100]!r}. Send a data: URI, or start "
            "the server with --image-host HOST for each allowed host."
        )
    return shown


def _asked(
    parts: SplitResult, hosts: Sequence[str], end: float, links: list[socket.socket]
) -> tuple[int, str | None, bytearray]:
    """Return an answer's status, redirect target and bytes."""
    host = parts.hostname or ""
    port = parts.port or _PORTS[parts.scheme]
    address = _address(host, port, hosts)
    link: socket.socket = socket.create_connection((address, port), _left(end))
    links.append(link)
    connection = http.client.HTTPConnection(host, port)
    try:
        if parts.scheme == "https":
            link = ssl.create_default_context().wrap_socket(link, server_hostname=host)
            links.append(link)
        connection.sock = link
        path = parts.path or "/"
        connection.request("GET", f"{path}?{parts.query}" if parts.query else path)
        answer = connection.getresponse()
        data = bytearray()
        while answer.status == 200 and not answer.isclosed():  # from 3.13 on with its last byte
            link.settimeout(_left(end))
            chunk = answer.read1(_CHUNK)
            data += chunk
            if len(data) > MOST_BYTES:
                raise ValueError(f"the image has more than {MOST_BYTES:,} bytes.")
            if not chunk:
                break
        return answer.status, answer.getheader("location"), data
    finally:
        connection.close()
        link.close()


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise OSError("the download takes too long.")
    return left


def _address(host: str, port: int, hosts: Sequence[str]) -> str:
    """Return the address that a name resolves to, if it is allowed."""
    for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        address = str(found[4][0])
        named = {one.rsplit(":", 1)[0] if one.count(":") == 1 else one.strip("[]") for one in hosts}
        if not ipaddress.ip_address(address.partition("%")[0]).is_global and address not in named:
            raise ValueError(
                f"the host {host} has the private address {address}. To allow it, also pass that "
                "address with --image-host."
            )
        return address
    raise OSError(f"the host {host} has no address.")
