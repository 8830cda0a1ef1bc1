"""What commands share: the console, the option that names a model, loading one in sight."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

import structgen

if TYPE_CHECKING:
    from rich.console import Console


def model_option(
    default: str = structgen.models.DEFAULT, what: str = "A model"
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option that names a model."""
    return click.option(
        "--model",
        default=default,
        show_default=True,
        metavar="NAME",
        help=f"{what}: a catalogue name, a folder or a Hugging Face repository id.",
    )


def load(name: str) -> structgen.TextModel:
    """Load a model, showing what takes long."""
    from structgen import models
    from structgen.models import genai

    folder = models.path(name)  # shows its own progress when it fetches and converts
    with console(stderr=True).status(f"Loading {name} …"):
        return genai.load(folder, kind=structgen.TextModel)


def console(*, stderr: bool = False) -> Console:
    """A console that breaks no lines by itself."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=True)
