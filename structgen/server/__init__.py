"""An HTTP server of OpenAI's API, over a `structgen.Runner`.

In reading order: `settings` (what there is to choose, from flags, environment and a file), `errors`
(what goes wrong, as clients expect it), `wire` (bytes to JSON, JSON to the requests of a Runner),
`forms` (bodies with files), `pictures` (fetched from hosts that were named), `gateway` (what every
request passes through), `exchange` (work and streams that end when their client goes away),
`shapes` (of bodies and answers), `items` and `store` (of the Responses API), `openapi` (what
``/docs`` says), `routes` (the endpoints), `app` (all of it together), `serving` (uvicorn),
`request_files` (OpenAI's batch files, without a server). `batches`, before the routes, keeps files
and answers batches.
What an answer is stands in `structgen.runner`: here is only HTTP.
"""

from __future__ import annotations

try:
    import fastapi as _fastapi
    import uvicorn as _uvicorn
except ImportError as error:
    raise ImportError(
        "The server needs FastAPI and uvicorn, which are not installed: "
        "pip install 'structgen[server]'."
    ) from error

from .app import create_app
from .request_files import answer_files
from .serving import check, runner_of, serve
from .settings import Settings

__all__ = ["Settings", "answer_files", "check", "create_app", "runner_of", "serve"]

del _fastapi, _uvicorn
