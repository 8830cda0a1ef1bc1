"""The application: endpoints, errors and layers, put together.

`create_app` loads no model and starts no server; any ASGI server can run the application.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Request
from fastapi.middleware.cors import CORSMiddleware
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse, Response
from starlette.exceptions import HTTPException

from structgen.runner import Aside, Runner, Trials, installed

from . import wire
from .batches import Batches, Files
from .errors import ApiError
from .gateway import LOG, Gateway, Keys, keys_in
from .openapi import Application
from .routes import ROUTERS, sounds
from .routes import batches as batch_routes
from .settings import Settings
from .store import Jobs, Store


def create_app(
    runner: Runner, settings: Settings | None = None, *, owns_runner: bool = False
) -> FastAPI:
    """Make the ASGI application.

    Args:
        runner: the Runner that answers requests.
        settings: the settings; None: the defaults.
        owns_runner: whether to close the Runner when the application shuts down.

    Raises:
        OptionError: a key, or the file of keys, is wrong; or the folder of files cannot be used.
        SessionError: the file of sessions cannot be used.
    """
    settings = settings or Settings()
    file = settings.api_key_file
    keys = Keys([*settings.api_keys, *([] if file is None else keys_in(file))])

    @contextlib.asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        trials = Trials(settings.compile_seconds, settings.compile_bytes)
        app.state.trials = trials
        loading = asyncio.ensure_future(_load(app, runner, settings))
        if app.state.batches is not None:
            app.state.batches.start()
        try:
            yield
        finally:
            if app.state.batches is not None:
                await app.state.batches.close(settings.drain_seconds)
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
            await app.state.jobs.close()
            app.state.store.close()
            await trials.close()
            if owns_runner:
                await runner.aclose()

    app = Application(
        title="structgen",
        version=installed("structgen") or "0",
        summary="Local language models whose answers have an exact form.",
        docs_url=None,
        openapi_url="/openapi.json" if settings.docs else None,
        redoc_url=None,
        redirect_slashes=False,  # a redirect would lead to whatever host the request names
        lifespan=life,
        # FastAPI's own spans would come beside ours, ignore the setting, and read foreign baggage.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.n_keys = len(keys)
    app.state.runner = runner
    app.state.store = Store(settings.stored_responses, settings.stored_seconds, settings.sessions)
    app.state.jobs = Jobs()
    app.state.files = app.state.batches = None
    if settings.files is not None:
        app.state.files = Files(settings.files, settings.max_files_bytes, by_owner=bool(keys))
        app.state.batches = Batches(app, app.state.files, settings)
    app.state.bodies = wire.reader()
    app.state.pictures = Aside(8, 1_024, "structgen-pictures")  # the host may be slow
    app.state.settings = settings
    app.state.created = int(time.time())
    app.state.is_ready = settings.lazy
    for router in ROUTERS:
        app.include_router(router)
    if settings.docs:
        app.add_api_route("/docs", _docs, include_in_schema=False)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_middleware(
        Gateway,
        settings=settings,
        keys=keys,
        traces=runner.traces,
        metrics=runner.metrics,
        bodies={**batch_routes.bodies(settings), **sounds.bodies(settings)},
    )
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=["x-request-id", "retry-after"],
        )
    return app


async def _docs() -> HTMLResponse:
    """Return the page with Swagger UI, and a hint for machines without a network."""
    page = get_swagger_ui_html(
        openapi_url="openapi.json", title="structgen API", swagger_favicon_url="favicon.ico"
    )
    place = '<div id="swagger-ui">'
    rest = (
        "<p>This page loads Swagger UI from cdn.jsdelivr.net. Without a network, read "
        '<a href="openapi.json">openapi.json</a>.</p>'
    )
    return HTMLResponse(bytes(page.body).decode().replace(place, place + rest))


async def _load(app: FastAPI, runner: Runner, settings: Settings) -> None:
    """Load the models that are to be loaded at the start, one after the other."""
    await app.state.trials.start(1)
    for id_ in () if settings.lazy else runner.list_models():
        begun = time.perf_counter()
        try:
            await runner.aload(id_)
            LOG.info("loaded %s in %.1f s", id_, time.perf_counter() - begun)
        except Exception as error:
            LOG.error("cannot load %s: %s", id_, error)
    app.state.is_ready = True
    await app.state.trials.start()


async def _http_error(request: Request, error: Exception) -> Response:
    """Return Starlette's error: no such path, or not with this method."""
    assert isinstance(error, HTTPException)
    what = f"{request.method} {request.url.path}"
    if error.status_code == 404:
        versioned = f"/v1{request.url.path}"
        near = f"Did you mean {versioned}?" if _methods(request, versioned) else "See /docs."
        api = ApiError(404, f"There is no {what}. {near}", code="not_found")
    elif error.status_code == 405:
        methods = ", ".join(_methods(request, request.url.path))
        methods = methods or (error.headers or {}).get("Allow", "")  # the page is in no document
        api = ApiError(
            405,
            f"There is no {what}. Use {methods}.",
            code="method_not_allowed",
            headers={"Allow": methods},
        )
    else:
        api = ApiError(error.status_code, f"{what}: {error.detail}.", headers=error.headers)
    return api.response


def _methods(request: Request, asked: str) -> list[str]:
    """Return all methods of a path; Starlette names only those of the first endpoint."""
    found: dict[str, Any] = {}
    for path, methods in request.app.openapi()["paths"].items():
        pattern = re.sub(r"\\\{\w+\\\}", ".+", re.escape(path))
        if re.fullmatch(pattern, asked):
            found[path] = methods
    nearest = max(found, key=lambda path: ("{" not in path, len(path)), default=None)
    return [] if nearest is None else sorted(name.upper() for name in found[nearest])
