"""Run the server: the Runner of its settings, uvicorn, the log, and shutdown.

This is what `structgen serve` does. On SIGTERM or Ctrl-C the server accepts no more requests,
finishes the running ones, and closes the models.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import socket
import sys
from dataclasses import replace
from typing import Any, Literal, final

import uvicorn

from structgen import models
from structgen.errors import ModelNotFound, OptionError, failure, printable
from structgen.integrations.connections import connections, have_files
from structgen.runner import ModelConfig, Runner

from .app import create_app
from .gateway import Keys, keys_in
from .settings import Settings


def runner_of(settings: Settings) -> Runner:
    """Return a Runner with the models of the settings; nothing is loaded.

    Raises:
        OptionError, ModelNotFound: a model, an alias or the default is wrong, or two models have
            the same id.
    """
    configured = {id_: ModelConfig.of(source) for id_, source in settings.models.items()}
    for id_, source in settings.embedders.items():
        if id_ in configured:
            raise OptionError(
                f"{id_!r} is the id of a model and of an embedder. Give one of them another id: "
                "ID=MODEL."
            )
        given = dict(source) if isinstance(source, dict) else {"source": source}
        configured[id_] = ModelConfig.of({"kind": "embedding", **given})
    for id_, path in settings.deciders.items():
        if id_ not in configured:
            known = ", ".join(configured)
            raise OptionError(f"deciders: there is no model {id_!r}. Known models: {known}.")
        configured[id_] = replace(configured[id_], decider=path)
    return Runner(
        configured,
        default=settings.default_model,
        aliases=settings.aliases,
        memory_budget=settings.memory_budget,
        max_concurrency=settings.max_concurrency,
        max_queue=settings.max_queue,
        sessions=settings.sessions,
        traces=settings.traces,
    )


def check(settings: Settings) -> list[str]:
    """Check settings without loading or downloading a model, and without listening.

    Returns:
        Lines that say what a server would do.

    Raises:
        StructgenError: a setting is wrong.
    """
    file = settings.api_key_file
    keys = Keys([*settings.api_keys, *([] if file is None else keys_in(file))])
    with runner_of(settings) as runner:
        _check_sources(settings)
        ids = runner.list_models()
        default = runner.get_default_model_id()
    lines = [f"will listen on http://{_shown(settings.host)}:{settings.port}"]
    lines.append(f"models: {', '.join(ids)}; {default} is the default")
    lines.append("requires an API key" if keys else "requires no API key")
    if not keys and not settings.is_local:
        lines.append(
            "warning: anyone who can reach this address can use the server; pass --api-key"
        )
    return lines


def _check_sources(settings: Settings) -> None:
    """Raise if a name cannot be a model's, so that the server fails at once."""
    tasks: dict[str, Literal["generate", "embed"] | None] = {"models": None, "embedders": "embed"}
    for field, task in tasks.items():
        for id_, given in getattr(settings, field).items():
            source = ModelConfig.of(given).source
            try:
                models.check(source, task=task)
            except (ModelNotFound, OptionError) as error:
                where = "" if source == id_ else f"{field}.{id_}: "  # otherwise it names the model
                raise type(error)(f"{where}{error}") from None


def check_address(settings: Settings) -> None:
    """Raise if the server cannot listen at an address, before models are loaded for seconds.

    Raises:
        OptionError: the port is in use, or the address is not this machine's.
    """
    place = f"{_shown(settings.host)}:{settings.port}"
    try:
        found = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, protocol, _, address in found:
            with socket.socket(family, kind, protocol) as probe:
                if os.name == "posix":  # or a server that just ended blocks it
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
    except (OSError, UnicodeError) as error:  # not a valid host name
        raise OptionError(
            f"Cannot listen on {place}: {failure(error)}. Choose another port (--port) or host "
            "(--host), or stop the program that listens there."
        ) from error


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def serve(settings: Settings) -> None:
    """Serve until the process gets a signal to stop.

    Raises:
        StructgenError: the settings are wrong.
    """
    lines = check(settings)
    check_address(settings)
    for line in lines:
        print(line, file=sys.stderr)
    runner = runner_of(settings)
    try:
        app = create_app(runner, settings, owns_runner=True)
        _log_to_stderr(settings)
        config = uvicorn.Config(
            app,
            http=connections(settings.body_seconds, settings.write_seconds),
            ws="none",
            host=settings.host,
            port=settings.port,
            log_config=None,
            access_log=False,
            # X-Forwarded-For is trusted only from the proxies that the variable names.
            proxy_headers="FORWARDED_ALLOW_IPS" in os.environ,
            server_header=False,
            lifespan="on",
            timeout_graceful_shutdown=max(1, round(min(settings.drain_seconds, 1e9))),
            timeout_keep_alive=15,
        )
        have_files()
        # Objects that exist now stay: the garbage collector skips them from here on.
        gc.collect()
        gc.freeze()
        uvicorn.Server(config).run()
    finally:
        runner.close()


def _log_to_stderr(settings: Settings) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if settings.log_format == "json" else _Text())
    for name in ("structgen.server", "uvicorn"):
        log = logging.getLogger(name)
        log.handlers = [handler]
        log.propagate = False
        log.setLevel(logging.INFO)


@final
class _Text(logging.Formatter):
    """Formats the log as text."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        entry = getattr(record, "entry", None)
        if entry is not None:
            fields = {k: v for k, v in entry.items() if v is not None}
            fields["path"] = str(fields["path"]).replace(" ", "%20")  # it could forge fields
            head = " ".join(str(fields.pop(name, "")) for name in ("method", "path", "status"))
            record.msg, record.args = " ".join([head, *(f"{k}={v}" for k, v in fields.items())]), ()
        record.msg, record.args = printable(record.getMessage()), ()
        return super().format(record)

    def formatException(self, ei: Any) -> str:
        """Return a traceback whose lines cannot be mistaken for lines of the log."""
        lines = super().formatException(ei).split("\n")
        return "\n".join(f"  {printable(line)}" for line in lines)


@final
class _Json(logging.Formatter):
    """Formats the log as JSON."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            **(getattr(record, "entry", None) or {"message": record.getMessage()}),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)
