"""The ``structgen`` command: its parts, and how it ends.

Each command calls the Python surface and shows what it returns. Results go to standard output,
everything else (progress, errors) to standard error, so that output can be piped. Errors that
structgen raises on purpose are one short message and exit code 1; anything else is a traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

import structgen
from structgen.errors import StructgenError

from .decisions import decide
from .doctor_command import doctor
from .embeddings import embed, search
from .generation import generate, trace
from .grammar_commands import grammars
from .mcp_command import mcp
from .model_commands import models
from .serve_command import serve
from .terminal import console, load, model_option

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(context_settings=_CONTEXT)
@click.version_option(structgen.__version__, message="structgen %(version)s")
def cli() -> None:
    """Exact structured output from local language models."""


@cli.command()
@model_option()
@click.option("--seed", default=1, show_default=True, help="Same seed, same answers.")
def demo(model: str, seed: int) -> None:
    """Show four answers, each exactly of its type.

    The first run fetches and converts the model: once, about 90 MB.
    """
    loaded = load(model)
    # Imported late: it needs pydantic and rich, which --help should not wait for.
    from . import demo as scenes

    screen = console()
    screen.print(
        f"structgen {structgen.__version__} with {loaded.name} "
        f"({loaded.vocabulary.size:,} tokens), running on this machine.\n"
        "Before each token is chosen, a mask rules out all that would break the output type.",
        soft_wrap=not screen.is_terminal,  # which breaks inside words
    )
    scenes.run(loaded, screen, seed)


for command in (generate, trace, decide, models, embed, search, grammars, doctor, serve, mcp):
    cli.add_command(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit: 0 fine, 1 a structgen error, 2 wrong usage, 130 Ctrl-C."""
    sys.exit(_run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    try:
        code = cli.main(arguments, prog_name="structgen", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except StructgenError as error:
        # What is an argument in Python is an option here.
        message = str(error).replace("; dialect= says otherwise", "; --dialect says otherwise")
        click.echo(f"Error: {message}", err=True)
        return 1
    except (click.Abort, KeyboardInterrupt):
        click.echo("\nStopped.", err=True)
        return 130
    except BrokenPipeError:
        # The reader went away (`structgen … | head`). Nothing more can be written, at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
