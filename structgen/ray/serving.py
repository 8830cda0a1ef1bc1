"""The structgen server as an application of Ray Serve.

It decides how many replicas there are, and which one gets a request: by its model or its session. A
replica runs the application of `structgen serve`, behind Serve's proxy instead of uvicorn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from structgen import models as catalogue
from structgen.errors import OptionError, StructgenError, requires
from structgen.runner import Runner


def deployment(
    models: Any = None,
    *,
    replicas: int | tuple[int, int] = 1,
    cpus: float = 1,
    gpus: float = 0,
    ongoing: int = 8,
    models_per_replica: int | None = None,
    sticky: bool = False,
    **settings: Any,
) -> Any:
    """Return a Ray Serve application with OpenAI's API: ``serve.run(deployment(...))``.

    A request with the header ``serve_multiplexed_model_id`` goes to a replica that has this model.
    With ``sticky``, requests with the same ``x-session-id`` go to the same replica. Replicas do not
    share answers and sessions; errors mention it.

    Args:
        models: as in `structgen.server.Settings`; None: the default model.
        replicas: the number of replicas, or the fewest and the most.
        cpus: processors of a replica.
        gpus: GPUs of a replica; 0.5: two share one.
        ongoing: the target number of running requests per replica; more start another replica.
        models_per_replica: most loaded models per replica, each loaded on its first request; None:
            a replica loads all when it starts.
        sticky: whether sessions stay on their replica. Then the header for models has no effect.
        **settings: fields of `structgen.server.Settings`.

    Raises:
        OptionError: a setting is wrong, or does not work with several replicas.
    """
    with requires(OptionError, "This requires Ray Serve", "ray"):
        from ray import serve
        from starlette.middleware import Middleware

        from structgen.server import Settings, create_app, runner_of
    least, most = (replicas, replicas) if isinstance(replicas, int) else replicas
    flags = {
        "models": models or catalogue.DEFAULT,
        "host": "0.0.0.0",  # Serve's proxy decides who may ask
        "lazy": models_per_replica is not None,
        "replicated": most > 1,
        **settings,
    }

    def settled() -> Settings:
        found = Settings.of(flags)  # with the environment of this process
        for name in ("sessions", "files"):
            if getattr(found, name) is not None and most > 1:
                raise OptionError(f"{name}= requires one server, but there are {most} replicas.")
        return found

    given = settled()

    class Server:
        def __init__(self) -> None:
            self._settings = settled()  # a replica may have other variables, and its keys
            self._runner = runner_of(self._settings)
            for id_ in () if self._settings.lazy else self._runner.list_models():
                self._runner.load(id_)  # requests come only when they can be answered

        @serve.multiplexed(max_num_models_per_replica=models_per_replica or -1)  # type: ignore[untyped-decorator, unused-ignore]
        async def loaded(self, id_: str) -> Any:
            await self._runner.aload(id_)
            return _Loaded(self._runner, id_)

        def __serve_build_asgi_app__(self) -> Any:
            app = create_app(self._runner, self._settings, owns_runner=True)

            def routed(inner: Any) -> Any:
                async def routing(scope: Any, receive: Any, send: Any) -> None:
                    is_asked = "holder" in scope.get("state", ())  # set by the gateway
                    id_ = serve.get_multiplexed_model_id() if is_asked else ""
                    if id_:
                        with contextlib.suppress(StructgenError):  # the answer will say so
                            await self.loaded(id_)
                    await inner(scope, receive, send)

                return routing

            app.user_middleware.append(Middleware(routed))  # inside the gateway
            return app

    options: dict[str, Any] = {"num_replicas": least}
    if least != most:
        options = {
            "autoscaling_config": {
                "min_replicas": least,
                "max_replicas": most,
                "target_ongoing_requests": ongoing,
            }
        }
    if sticky:
        options["request_router_config"] = serve.config.RequestRouterConfig(
            request_router_class=(
                "ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"
            ),
            request_router_kwargs={"num_fallback_replicas": 0},
        )
    made = serve.deployment(
        name="structgen",
        ray_actor_options={"num_cpus": cpus, "num_gpus": gpus},
        max_ongoing_requests=given.max_concurrency + given.max_queue,
        graceful_shutdown_timeout_s=given.drain_seconds,
        **options,
    )
    return made(serve.ingress()(Server)).bind()


def app(arguments: Mapping[str, Any]) -> Any:
    """Build a `deployment` from a Serve configuration file: ``import_path: structgen.ray:app``."""
    return deployment(**arguments)


class _Loaded:
    """A model that a replica has loaded; Serve deletes it to make room for another."""

    def __init__(self, runner: Runner, id_: str) -> None:
        self._runner = runner
        self._id = id_

    def __del__(self) -> None:
        with contextlib.suppress(StructgenError, RuntimeError):
            self._runner.unload(self._id)
