"""An HTTP server of OpenAI's API, over a `structgen.Runner`.

In reading order: `settings` (from flags, environment and a file), `errors` (in the form that
clients expect), `wire` (bodies to requests of the Runner), `pictures` (downloads from allowed
hosts), `gateway` (the layer around all endpoints), `exchange` (work and streams that end when their
client disconnects), `shapes` (bodies and answers), `items` and `store` (the Responses API),
`openapi` (the document behind ``/docs``), `batches` (files and batches), `routes` (the endpoints),
`app` (the application), `serving` (uvicorn) and `request_files` (OpenAI's batch files, without a
server). `structgen.runner` makes the answers; this folder is only HTTP.
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
