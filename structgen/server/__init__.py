"""An HTTP server of OpenAI's API, over a `structgen.Runner`.

In reading order: `settings` (what there is to choose, from flags, environment and a file), `errors`
(what goes wrong, as clients expect it), `bodies` (bytes to JSON), `wire` (JSON to the requests of a
Runner), `auth` and `limits` (who may ask, and how much), `gateway` (what every request passes
through), `exchange` (work that ends when its client goes away), `sse` (streams), `shapes` (of
bodies and answers), `routes` (the endpoints; `turn`, `input_items`, `output_items`,
`response_events`, `store` and `background` for those of the Responses API), `openapi` (what
``/docs`` says), `app` (all of it together), `connection` and `serving` (uvicorn), `spans` (traces).
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
from .serving import check, runner_of, serve
from .settings import Settings

__all__ = ["Settings", "check", "create_app", "runner_of", "serve"]

del _fastapi, _uvicorn
