"""The playground: one page at ``/``, and the three files that it is made of.

Owns which files there are and what a browser may do with them: nothing but ask this server. The
page works without any other host, and has no key of its own: it sends the one that is typed in.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import Response

from ..errors import ApiError

router = APIRouter(include_in_schema=False)

FOLDER = Path(__file__).parents[1] / "playground"
"""Where the files are: data of the package."""

_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


@cache
def _files() -> dict[str, tuple[bytes, str]]:
    """What is sent, by name: its bytes and kind. Looked up and not opened: a name is no path."""
    return {
        path.name: (path.read_bytes(), _KINDS[path.suffix])
        for path in sorted(FOLDER.iterdir())
        if path.suffix in _KINDS
    }


@router.get("/")
async def page() -> Response:
    """The page."""
    return await file("index.html")


@router.get("/favicon.ico")
async def icon() -> Response:
    """Its picture, where a browser looks for one."""
    return await file("icon.svg")


@router.get("/playground/{name}")
async def file(name: str) -> Response:
    """A file of the page."""
    found = _files().get(name)
    if found is None:
        raise ApiError(404, f"There is no GET /playground/{name}. See /docs.", code="not_found")
    return Response(found[0], media_type=found[1], headers=_HEADERS)
