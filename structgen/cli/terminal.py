"""Functions of all commands: loading a model, files and standard input, and printing."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import structgen
from structgen.errors import OptionError, failure, printable
from structgen.storage.user_folder import unique

if TYPE_CHECKING:
    from rich.console import Console


def model_option(
    default: str = structgen.models.DEFAULT, what: str = "A model"
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option that names a model."""
    return click.option(
        "--model",
        default=default,
        show_default=True,
        metavar="NAME",
        help=f"{what}: a catalogue name, a folder or a Hugging Face repository id.",
    )


FILE = click.Path(dir_okay=False, path_type=Path)
"""The path of a file that need not exist."""


def having(*options: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add several arguments and options to a command at once."""
    return lambda command: functools.reduce(lambda so_far, one: one(so_far), options[::-1], command)


def load(name: str) -> structgen.TextModel:
    """Load a model, and show the progress of slow steps."""
    from structgen import models
    from structgen.models import genai

    folder = models.path(name)  # downloads and conversions show their own progress
    with console(stderr=True).status(f"Loading {name} …"):
        return genai.load(folder, kind=structgen.TextModel)


class Group(click.Group):
    """A group of commands, with other names that users may try."""

    other_names: Mapping[str, str] = {}

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See click. A known other name raises an error with the right one."""
        meant = self.other_names.get(args[0])
        if meant is not None:
            ctx.fail(f"No such command {args[0]!r}. Did you mean {meant!r}?")
        return super().resolve_command(ctx, args)


def console(*, stderr: bool = False) -> Console:
    """Return a console that does not wrap lines."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=True)


_STEERS = re.compile(r"[\0-\x08\x0b-\x1f\x7f-\x9f]")


def harmless(text: str, *, err: bool = False) -> str:
    """Return a foreign text to print; for a terminal, control characters are escaped."""
    if not (sys.stderr if err else sys.stdout).isatty():
        return text
    return _STEERS.sub(lambda found: printable(found[0]), text)


def echo(text: object, *, err: bool = False) -> None:
    """Print a line that may contain foreign text."""
    click.echo(harmless(str(text), err=err), err=err)


MOST_BYTES = 1 << 30
"""Most bytes of a file that is read at once."""


def text_in(file: str, shown: str) -> str:
    """Return the text of a UTF-8 file or standard input (``-``), with newlines as line ends."""
    try:
        text = bytes_in(file, shown).decode("utf-8-sig")
    except ValueError as error:
        raise OptionError(f"{shown} is not valid UTF-8: {error}.") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def bytes_in(file: str, shown: str) -> bytes:
    """Return the bytes of a file, or of standard input, ``-``."""
    try:
        if file == "-":
            data = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with Path(file).open("rb") as opened:
                data = opened.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise OptionError(f"{shown}: the file does not exist (- is standard input).") from None
    except OSError as error:
        raise OptionError(f"Cannot read {shown}: {error.strerror}.") from None
    if len(data) > MOST_BYTES:
        raise OptionError(f"{shown} has more than {MOST_BYTES:,} bytes.")
    return data


@contextlib.contextmanager
def writing(option: str, file: Path) -> Iterator[None]:
    """Name the option in errors of the file that is written in the block."""
    try:
        yield
    except OSError as error:
        raise OptionError(f"{option} {file}: cannot write the file: {failure(error)}.") from None


def json_in(file: str, option: str) -> Any:
    """Return the JSON in a file that an option names."""
    return parsed(text_in(file, f"{option} {file}"), f"{option} {file}")


def parsed(text: str, shown: str) -> Any:
    """Return the JSON value of a text."""
    try:
        return json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"{shown} is not valid JSON: {error}.") from None
