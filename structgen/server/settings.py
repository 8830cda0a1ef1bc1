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
    """The settings of a server. Every field is an environment variable and a key of the file.

    Attributes:
        host: address to listen on; only this machine, unless told otherwise.
        port: the port; 0: one that is free.
        models: text models: source by id.
        embedders: embedders and cross-encoders: source by id.
        deciders: files of `structgen.decisions.Decider.save`, or folders of them, by the ids of the
            models that decide as they say.
        aliases: other names of models.
        default_model: id of the model of requests that name none.
        lazy: whether models are loaded when they are first asked for, rather than at the start.
        memory_budget: most bytes of loaded models.
        max_concurrency: most requests that run on a model at once.
        max_queue: most that wait for a model; more get 429.
        api_keys: who may ask; none: everybody. ``sha256:`` and 64 hex digits: a key by its hash.
        api_key_file: a file with one such key a line.
        cors_origins: web pages of which origins may ask.
        allowed_hosts: names by which the server may be asked for; none: any, or those of this
            machine where it listens to no other and there are no keys.
        image_hosts: hosts that pictures may be fetched from, by name, with a port where it is not
            the usual one; none: pictures come in requests. A host of a private network is asked
            where its address is named, too.
        requests_per_minute: for each key, or each address where there are no keys; None: no limit.
        max_body_bytes: most bytes of a request.
        max_body_values: most values in the JSON of a request, its names not counted.
        max_schema_bytes: most bytes of the schemas and grammars of a request, as JSON.
        max_tokens: most tokens of an answer; None: the model's limit.
        max_inputs: most texts of one request for vectors, and questions of one for decisions.
        max_pictures: most pictures of one request, which are read at once.
        max_outputs: most answers of one request: ``n`` times prompts.
        body_seconds: within which the head of a request has to have arrived, and then its body.
        write_seconds: within which a client has to take some of an answer that waits for it.
        request_seconds: within which it has to be answered.
        compile_seconds: for which a schema may be compiled.
        compile_bytes: of memory that this may take.
        max_work: most steps that compiling a schema may take: counted, not timed.
        max_mask_work: most steps that one mask of it may take.
        drain_seconds: how long a server that stops waits for answers under way.
        stored_responses: most answers of ``/v1/responses`` that are kept.
        stored_seconds: after which one is forgotten.
        sessions: an SQLite file for these, and for the Runner's sessions, so that they outlive the
            server; of one server only. None: in memory.
        files: a folder for the files and batches of ``/v1/files`` and ``/v1/batches``; of one
            server only. None: there are none.
        max_file_bytes: most bytes of one file.
        max_files_bytes: most bytes of the files of one key.
        replicated: whether there are other servers, of whose answers and sessions this one knows
            nothing: errors then say so.
        docs: whether there is ``/docs``.
        log_format: ``text`` or ``json``.
        log_prompts: whether the bodies of requests are logged.
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

    @field_validator("api_keys", "cors_origins", "allowed_hosts", "image_hosts", mode="before")
    @classmethod
    def _separated(cls, given: Any, info: ValidationInfo) -> Any:
        """A text is a list with commas, as environment variables have it."""
        if isinstance(given, str):
            given = tuple(one.strip() for one in given.split(",") if one.strip())
            if not given and info.field_name == "api_keys":
                raise ValueError("there is no key in it. Without keys, leave the setting out")
        return given

    @field_validator("cors_origins", "allowed_hosts", "image_hosts")
    @classmethod
    def _without_path(cls, given: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        """An address or a pattern in the place of a host or an origin would match nothing."""
        is_origin = info.field_name == "cors_origins"
        for one in given:
            if is_origin and one in ("*", "null"):
                continue
            parts = urlsplit(one if "//" in one else f"//{one}")
            if not parts.netloc or set("*,") & set(one):
                what = "origin" if is_origin else "host"
                raise ValueError(f"{one!r} is not one {what}; there are no patterns. Name each")
            meant = parts.netloc
            if is_origin:  # as browsers write it
                meant = f"{parts.scheme or 'https'}://{meant}".lower()
            if one != meant:
                raise ValueError(f"write {meant} in place of {one}")
        return given

    @field_validator("models", "embedders", "deciders", mode="before")
    @classmethod
    def _by_id(cls, given: Any) -> Any:
        """A list of names, each of which may be ``id=source``."""
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
        """Whether only this machine can ask."""
        return self.host in LOOPBACK

    @classmethod
    def of(
        cls,
        flags: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        file: str | os.PathLike[str] | None = None,
    ) -> Settings:
        """Settings from all sources.

        Args:
            flags: fields; None as a value: not given.
            environment: variables, of which those count that begin with ``STRUCTGEN_SERVER_``, and
                ``STRUCTGEN_API_KEY``. None: those of this process.
            file: a TOML file with fields.

        Raises:
            OptionError: a field is unknown or wrong; it says where it is from.
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
                hint = f"Did you mean {near[0]}" if near else f"All: {', '.join(cls.model_fields)}"
                message = f"there is no such setting. {hint}{'?' if near else '.'}"
            raise OptionError(f"{source}: {message}") from None


def _read(file: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        text = Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        name = os.fspath(file)
        raise OptionError(f"The configuration {name} cannot be read: {failure(error)}.") from None
    try:
        found: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise OptionError(f"The configuration {os.fspath(file)} is not TOML: {error}.") from None
    return found


def _value(text: str) -> Any:
    """What a variable says: a value of TOML, or just the text."""
    if text[:1] in "[{" or text in ("true", "false"):
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            return text
    return text
