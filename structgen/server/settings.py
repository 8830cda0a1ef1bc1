"""The settings of a server: one set of fields, from flags, environment variables and a TOML file.

This module owns names, defaults and ranges, and the precedence: a flag, then an environment
variable, then the file. Plain data: it opens nothing but that file and the file of keys.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from structgen.errors import OptionError, failure
from structgen.runner import MAX_VALUES, by_id
from structgen.workers import MAX_MASK_WORK, MAX_WORK

# Python 3.10 has none of its own.
tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

PREFIX = "STRUCTGEN_SERVER_"
"""What the names of environment variables begin with."""

LOOPBACK = ("127.0.0.1", "::1", "localhost")

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]


class Settings(BaseModel):
    """The settings of a server. Each field is also an environment variable and a key of the file.

    Attributes:
        host: the address to listen on. By default only this machine can connect.
        port: the port; 0: a free one.
        models: text models: source by id.
        embedders: embedders and cross-encoders: source by id.
        deciders: by model id: a file of `structgen.decisions.Decider.save`, or a folder of such
            files, whose settings the model's decisions use.
        aliases: other names of models.
        default_model: the id of the model for requests that name none.
        lazy: load each model on its first request rather than at the start.
        memory_budget: most bytes of loaded models.
        max_concurrency: most requests that run on one model at once.
        max_queue: most requests that wait for one model; further ones get status 429.
        api_keys: the accepted keys, as plain text or as ``sha256:`` and 64 hex digits. Empty: no
            key is needed.
        api_key_file: a file with one such key a line.
        cors_origins: the origins of web pages that may send requests.
        allowed_hosts: the accepted values of the ``Host`` header. Empty: any; or only this
            machine's names if the server listens to this machine alone and has no keys.
        image_hosts: hosts to fetch pictures from, with a port unless it is the default one. Empty:
            requests must contain their pictures. A host whose address is private needs that
            address in the list, too.
        requests_per_minute: limit for each key, or for each address without keys; None: no limit.
        max_body_bytes: most bytes of a request.
        max_body_values: most values in the JSON of a request; names do not count.
        max_schema_bytes: most bytes of the schemas and grammars of a request, as JSON.
        max_tokens: most tokens of an answer; None: the model's limit.
        max_inputs: most messages, tools, texts, documents or questions of a request.
        max_pictures: most pictures of a request. They are decoded at the same time.
        max_outputs: most answers of a request: ``n`` times the number of prompts.
        body_seconds: most seconds for a request's head to arrive, and as many again for its body.
        write_seconds: most seconds a client may take no data while an answer waits for it.
        request_seconds: most seconds to answer a request.
        compile_seconds: most seconds to compile a schema.
        compile_bytes: most bytes of memory to compile a schema.
        max_work: most steps to compile a schema. Steps are counted, so the limit does not depend
            on the machine's speed.
        max_mask_work: most steps for one of its masks.
        drain_seconds: how long a stopping server waits for answers that are being made.
        stored_responses: most stored answers of ``/v1/responses``.
        stored_seconds: how long they are stored.
        sessions: an SQLite file for these answers and for the Runner's sessions, which then
            survive a restart. Only one server may use it. None: memory.
        files: a folder for the files and batches of ``/v1/files`` and ``/v1/batches``. Only one
            server may use it. None: these endpoints are off.
        max_file_bytes: most bytes of one file.
        max_files_bytes: most bytes of the files of one key.
        replicated: whether this is one of several servers that do not share answers and sessions.
            Errors about unknown ids then mention it.
        docs: whether to serve ``/docs``.
        log_format: ``text`` or ``json``.
        log_prompts: whether to log the bodies of requests.
        traces: whether the Runner sends spans to OpenTelemetry's global tracer provider.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8000
    models: dict[str, Any] = Field(default_factory=dict)
    embedders: dict[str, Any] = Field(default_factory=dict)
    deciders: dict[str, Path] = Field(default_factory=dict)
    aliases: dict[str, str] = Field(default_factory=dict)
    default_model: str | None = None
    lazy: bool = False
    memory_budget: Count | None = None
    max_concurrency: Count = 64
    max_queue: Annotated[int, Field(ge=0)] = 256
    api_keys: tuple[str, ...] = Field(default=(), repr=False)
    api_key_file: Path | None = None
    cors_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    image_hosts: tuple[str, ...] = ()
    requests_per_minute: Count | None = None
    max_body_bytes: Count = 4 << 20
    max_body_values: Count = MAX_VALUES
    max_schema_bytes: Count = 512 << 10
    max_tokens: Count | None = None
    max_inputs: Count = 2_048
    max_pictures: Count = 8
    max_outputs: Count = 16
    body_seconds: Seconds = 30.0
    write_seconds: Seconds = 30.0
    request_seconds: Seconds = 600.0
    compile_seconds: Seconds = 20.0
    compile_bytes: Count = 2 << 30
    max_work: Count = MAX_WORK
    max_mask_work: Count = MAX_MASK_WORK
    drain_seconds: Seconds = 30.0
    stored_responses: Annotated[int, Field(ge=0)] = 1_000
    stored_seconds: Seconds = 30 * 86_400.0
    sessions: Path | None = None
    files: Path | None = None
    max_file_bytes: Count = 32 << 20
    max_files_bytes: Count = 1 << 30
    allow_unload: bool = False
    replicated: bool = False
    docs: bool = True
    log_format: Literal["text", "json"] = "text"
    log_prompts: bool = False
    traces: bool = False

    @field_validator("host", "files", "sessions", "api_key_file", mode="before")
    @classmethod
    def _named(cls, given: Any) -> Any:
        """Refuse "", which would mean every address of this machine, or the current folder."""
        if given == "":
            raise ValueError("it is empty. Set a value, or remove the setting")
        return given

    @field_validator("api_keys", "cors_origins", "allowed_hosts", "image_hosts", mode="before")
    @classmethod
    def _separated(cls, given: Any, info: ValidationInfo) -> Any:
        """Return the list of a text with commas, as environment variables have it."""
        if isinstance(given, str):
            given = tuple(one.strip() for one in given.split(",") if one.strip())
            if not given and info.field_name == "api_keys":
                raise ValueError("it contains no key. Remove the setting to run without keys")
        return given

    @field_validator("cors_origins", "allowed_hosts", "image_hosts")
    @classmethod
    def _without_path(cls, given: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        """Refuse addresses and patterns in place of hosts and origins: they match nothing."""
        is_origin = info.field_name == "cors_origins"
        for one in given:
            if is_origin and one in ("*", "null"):
                continue
            parts = urlsplit(one if "//" in one else f"//{one}")
            if not parts.netloc or set("*,") & set(one):
                what = "an origin" if is_origin else "a host"
                raise ValueError(
                    f"{one!r} is not {what}. Patterns are not supported; list each one"
                )
            meant = parts.netloc
            if is_origin:  # as browsers write it
                meant = f"{parts.scheme or 'https'}://{meant}".lower()
            if one != meant:
                raise ValueError(f"write {meant} instead of {one}")
        return given

    @field_validator("models", "embedders", "deciders", mode="before")
    @classmethod
    def _by_id(cls, given: Any) -> Any:
        """Return a list of names, each of which may be ``id=source``."""
        if isinstance(given, str):
            given = given.split(",")
        if isinstance(given, (list, tuple)):
            try:
                return by_id(map(str, given))
            except OptionError as error:
                raise ValueError(str(error)) from None
        return given

    @property
    def is_local(self) -> bool:
        """Whether the server listens to this machine alone."""
        return self.host in LOOPBACK

    @classmethod
    def of(
        cls,
        flags: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        file: str | os.PathLike[str] | None = None,
    ) -> Settings:
        """Return settings from all sources: flags, then environment variables, then the file.

        Args:
            flags: fields; the value None counts as not given.
            environment: variables; ``STRUCTGEN_SERVER_*`` and ``STRUCTGEN_API_KEY`` are read. None:
                those of this process.
            file: a TOML file with fields.

        Raises:
            OptionError: a field is unknown or wrong; the message names its source.
        """
        if environment is None:
            environment = os.environ
        found: dict[str, tuple[Any, str]] = {}
        if file is not None:
            found |= {name: (value, f"{file}: {name}") for name, value in _read(file).items()}
        if "STRUCTGEN_API_KEY" in environment:
            found["api_keys"] = (environment["STRUCTGEN_API_KEY"], "STRUCTGEN_API_KEY")
        for variable, text in environment.items():
            if variable.startswith(PREFIX):
                name = variable.removeprefix(PREFIX).lower()
                if name in found and (other := found[name][1]) in environment:
                    raise OptionError(f"{other} and {variable} both set {name}. Remove one.")
                found[name] = (_value(text), variable)
        for name, value in (flags or {}).items():
            if value is not None:
                flag = name.removesuffix("s") if isinstance(value, (list, tuple)) else name
                found[name] = (value, f"--{flag.replace('_', '-')}")
        try:
            return cls(**{name: value for name, (value, _) in found.items()})
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            steps = [str(step) for step in first["loc"]]
            source = found[steps[0]][1] if steps and steps[0] in found else ".".join(steps)
            message = f"{first['msg'].removeprefix('Value error, ').removesuffix('.')}."
            if first["type"] == "extra_forbidden":
                near = difflib.get_close_matches(steps[0].lower(), cls.model_fields, n=1)
                hint = (
                    f"Did you mean {near[0]}"
                    if near
                    else f"Known settings: {', '.join(cls.model_fields)}"
                )
                message = f"there is no such setting. {hint}{'?' if near else '.'}"
            raise OptionError(f"{source}: {message}") from None


def _read(file: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        text = Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        name = os.fspath(file)
        raise OptionError(f"Cannot read the configuration {name}: {failure(error)}.") from None
    try:
        found: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise OptionError(
            f"The configuration {os.fspath(file)} is not valid TOML: {error}."
        ) from None
    return found


def _value(text: str) -> Any:
    """Return what a variable says: a value of TOML, or just the text."""
    if text[:1] in "[{" or text in ("true", "false"):
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            return text
    return text
