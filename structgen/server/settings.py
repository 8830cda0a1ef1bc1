"""The settings of a server: one set of fields, from flags, environment variables and a TOML file.

It has the names, defaults and ranges, and the precedence: a flag, then an environment variable,
then the file. Opens only that file and the file of keys.
"""

from __future__ import annotations

import difflib
import importlib
import ipaddress
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

# Python 3.10 has no tomllib.
tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

PREFIX = "STRUCTGEN_SERVER_"
"""The prefix of environment variables."""

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]


class Settings(BaseModel):
    """The settings of a server. Each field can also be set by an environment variable and in the
    file.

    docs/server.md describes them, under "Settings".
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
        """Refuse "", which would mean all addresses of this machine, or the current folder."""
        if given == "":
            raise ValueError("it is empty. Set a value, or remove the setting")
        return given

    @field_validator("api_keys", "cors_origins", "allowed_hosts", "image_hosts", mode="before")
    @classmethod
    def _separated(cls, given: Any, info: ValidationInfo) -> Any:
        """Return the list for a text with commas, as in environment variables."""
        if isinstance(given, str):
            given = tuple(one.strip() for one in given.split(",") if one.strip())
            if not given and info.field_name == "api_keys":
                raise ValueError("it contains no key. Remove the setting to run without keys")
        return given

    @field_validator("cors_origins", "allowed_hosts", "image_hosts")
    @classmethod
    def _without_path(cls, given: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        """Refuse URLs and patterns as hosts or origins, because they would match nothing."""
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
            if is_origin:  # as browsers send it
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
        """Whether the server listens only on this machine."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"

    @classmethod
    def of(
        cls,
        flags: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        file: str | os.PathLike[str] | None = None,
    ) -> Settings:
        """Return settings from all sources: flags, then environment variables, then the file.

        Args:
            flags: fields; None counts as not set.
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
    """Return the value of a variable: TOML if it is valid, otherwise the text."""
    if text[:1] in "[{" or text in ("true", "false"):
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            return text
    return text
