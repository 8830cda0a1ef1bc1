"""The ``structgen`` command: all commands together, the smaller ones, and how the process ends.

Each command calls the Python API and shows the result. Results go to standard output, everything
else (progress, errors) to standard error, so that output can be piped. Errors of structgen and of
files are one short message and exit code 1; any other is a traceback.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

import structgen
from structgen import models as _models
from structgen.errors import OptionError, StructgenError, counted, failure

from .batch import batch
from .desk import diff, lint, sample, show
from .embeddings import DEFAULT_EMBEDDER, embed, search
from .generation import DIALECTS, generate, is_name, library_text, trace
from .model_commands import doctor, shelf
from .terminal import FILE, Group, console, echo, json_in, load, model_option, parsed, text_in


@click.group()
def grammars() -> None:
    """List, show and check grammars."""


@grammars.command("list")
def list_grammars() -> None:
    """List the grammars that come with structgen."""
    from structgen.grammar.cfg import library as grammars

    names = grammars.names()
    width = max(map(len, names))
    for name in names:
        click.echo(f"{name.ljust(width)}  {grammars.description(name)}")


@grammars.command("show")
@click.argument("name")
def show_grammar(name: str) -> None:
    """Print the text of the grammar NAME."""
    from structgen.grammar.cfg import library as grammars

    click.echo(grammars.text(name), nl=False)


@grammars.command("check")
@click.argument("file", metavar="FILE|NAME")
@click.option("--start", help="The name of the start rule.")
@click.option("--dialect", type=DIALECTS, help="The notation of the grammar.")
def check_grammar(file: str, start: str | None, dialect: str | None) -> int:
    """Report errors in a grammar: a file, "-" (standard input) or a name."""
    from structgen.constraint.check_grammar import problems
    from structgen.grammar import cfg

    shown = "standard input" if file == "-" else file
    path = None if file == "-" or is_name(file) else file
    if path is None and file != "-":
        text, dialect = library_text(file, ""), dialect or "lark"
    else:
        text = text_in(file, shown)
    found = problems(text, start, dialect, path)
    for problem in found:
        echo(problem)
    errors = sum(problem.is_error for problem in found)
    if errors and not cfg.is_decided(dialect, path):
        name = cfg.DIALECTS[cfg.dialect_of(text, path)]
        shown += f" (read as {name}; change this with --dialect)"
    warnings = counted(len(found) - errors, "warning")
    echo(f"{shown}: {counted(errors, 'error')}, {warnings}.")
    return 1 if errors else 0


@click.command()
@click.option(
    "--state",
    required=True,
    metavar="FILE|-",
    help="The subject of the questions: text, or JSON if the file name ends in .json.",
)
@click.option(
    "--questions",
    required=True,
    metavar="FILE",
    help='A JSON object of names and questions: {"urgent": {"type": "predicate", "instructions": '
    '"Is it urgent?"}}; a "choice" has "options", a "score" has "levels".',
)
@model_option()
@click.option(
    "--debias",
    type=click.Choice(["none", "prior", "contextual"]),
    help="How to correct the model's bias towards labels and places in a list.",
)
@click.option(
    "--abstain-below",
    type=float,
    metavar="P",
    help="Answer null if the most likely label has a lower probability.",
)
@click.option(
    "--calibration",
    "calibrations",
    multiple=True,
    type=FILE,
    help="A file written by Calibration.save; repeatable.",
)
@click.option(
    "--decider",
    "saved",
    type=click.Path(exists=True, path_type=Path),
    help="A file written by Decider.save, or a folder of them.",
)
@click.option("--trace", is_flag=True, help="Print the prompts to standard error.")
def decide(
    state: str,
    questions: str,
    model: str,
    debias: str | None,
    abstain_below: float | None,
    calibrations: tuple[Path, ...],
    saved: Path | None,
    trace: bool,
) -> None:
    """Answer typed questions about a text, with probabilities."""
    # Imported late: --help should not wait for NumPy.
    from structgen.decisions import (
        Calibration,
        Decider,
        SavedDecider,
        answers_to_json,
        questions_from_json,
    )

    asked = questions_from_json(json_in(questions, "--questions"))
    about = text_in(state, f"--state {state}")
    given: Any = parsed(about, f"--state {state}") if state.endswith(".json") else about
    known = [Calibration.load(path) for path in calibrations]
    if saved is not None and (debias is not None or known):
        raise OptionError("--decider includes these settings. Remove --debias and --calibration.")
    options: dict[str, Any] = {"calibrations": known, "debias": debias}
    if saved is not None:
        options = SavedDecider.read(saved).options
    is_text = _models.is_language_model(_models.path(model))
    given_model = load(model) if is_text else structgen.load_embedder(model)
    decider = Decider(given_model, warn=False, **options)
    answers = decider.decide(given, asked, abstain_below=abstain_below)
    learned = {one.question for one in decider.calibrations}
    if learned and learned.isdisjoint(one.instructions for one in asked.values()):
        about = f"{', '.join(map(repr, sorted(learned)[:3]))}{', …' if len(learned) > 3 else ''}"
        click.echo(f"The decider's training does not apply: it is about {about}.", err=True)
    for name, answer in answers.items():
        if not answer.informative:
            echo(f"{name}: no signal ({answer.no_signal}).", err=True)
    if trace:
        for prompts in answers.trace.values():
            for prompt in prompts:
                echo(f"{prompt}\n", err=True)
    echo(json.dumps(answers_to_json(answers), ensure_ascii=False, indent=2))


@click.command()
@click.argument("models", nargs=-1, metavar="[MODEL|ID=MODEL]...")
@click.option(
    "--embedder",
    "embedders",
    multiple=True,
    metavar="MODEL|ID=MODEL",
    help="A model for embeddings or rankings; repeatable.",
)
@click.option(
    "--decider",
    "deciders",
    multiple=True,
    metavar="ID=PATH",
    help="A file written by Decider.save, for the model ID; repeatable.",
)
@click.option("--default-model", metavar="ID", help="The model for requests without a model name.")
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=int, help="Port to listen on; 0 chooses a free one.  [default: 8000]")
@click.option("--lazy", is_flag=True, default=None, help="Load each model on its first request.")
@click.option("--memory-budget", type=int, metavar="BYTES", help="Memory limit for loaded models.")
@click.option(
    "--max-concurrency",
    type=int,
    metavar="N",
    help="Maximum number of concurrent requests for one model.",
)
@click.option(
    "--max-queue",
    type=int,
    metavar="N",
    help="Maximum number of waiting requests; further ones get status 429.",
)
@click.option(
    "--api-key",
    "api_keys",
    multiple=True,
    metavar="KEY",
    help="A key that clients must send; repeatable.",
)
@click.option("--api-key-file", type=FILE, help="A file with one key, or sha256:HASH, per line.")
@click.option(
    "--cors-origin",
    "cors_origins",
    multiple=True,
    metavar="URL",
    help="An origin whose pages may use the server; repeatable.",
)
@click.option(
    "--image-host",
    "image_hosts",
    multiple=True,
    metavar="HOST",
    help="A host from which to fetch images; repeatable.",
)
@click.option(
    "--sessions", type=FILE, help="An SQLite file that keeps stored answers across restarts."
)
@click.option(
    "--files",
    type=click.Path(file_okay=False),  # as text: Path("") is the current folder
    help="The folder for /v1/files and /v1/batches.",
)
@click.option("--requests-per-minute", type=int, metavar="N", help="Limit per key or address.")
@click.option("--max-tokens", type=int, metavar="N", help="Maximum number of tokens of an answer.")
@click.option(
    "--request-seconds", type=float, metavar="S", help="Maximum number of seconds of an answer."
)
@click.option("--log-format", type=click.Choice(["text", "json"]), help="The format of the log.")
@click.option("--log-prompts", is_flag=True, default=None, help="Also log the bodies of requests.")
@click.option(
    "--config",
    type=FILE,
    help="A TOML file with settings: these flags, with _ instead of -, and more (docs/server.md).",
)
@click.option("--check", "only_checks", is_flag=True, help="Check the settings and exit.")
def serve(models: tuple[str, ...], config: Path | None, only_checks: bool, **flags: Any) -> None:
    """Serve models with OpenAI's API.

    Without a MODEL, serve the default model. Every flag is also an environment variable, such as
    STRUCTGEN_SERVER_PORT; keys may be in STRUCTGEN_API_KEY.
    """
    try:
        from structgen import server
    except ImportError as error:
        raise OptionError(str(error)) from None
    given = {name: None if value == () else value for name, value in flags.items()}
    settings = server.Settings.of({"models": models or None, **given}, file=config)
    if not settings.models and not settings.embedders:
        settings = settings.model_copy(update={"models": {_models.DEFAULT: _models.DEFAULT}})
    if not only_checks:
        server.serve(settings)
        return
    for line in server.check(settings):
        click.echo(line)


@click.command()
@click.argument("models", nargs=-1, metavar="[MODEL|ID=MODEL]...")
@click.option(
    "--embedder",
    "embedders",
    multiple=True,
    metavar="MODEL|ID=MODEL",
    help=f"A model for embeddings; repeatable.  [default: {DEFAULT_EMBEDDER}]",
)
@click.option("--no-embedder", is_flag=True, help="Do not offer the embedding tool.")
@click.option(
    "--http", is_flag=True, help="Serve streamable HTTP on this machine instead of stdio."
)
@click.option("--port", type=click.IntRange(0, 65_535), default=8001, show_default=True)
@click.option("--lazy", is_flag=True, help="Load each model on first use.")
def mcp(
    models: tuple[str, ...],
    embedders: tuple[str, ...],
    no_embedder: bool,
    http: bool,
    port: int,
    lazy: bool,
) -> None:
    """Serve models as tools of an MCP server.

    The tools are generate, extract, classify, decide and embed. Without a MODEL, serve the default
    model. Hosts such as Claude Desktop, VS Code or Cursor start this command themselves:
    docs/integrations.md has their settings.
    """
    if no_embedder and embedders:
        raise click.UsageError("Pass --embedder or --no-embedder, not both.")
    # Imported late: --help should not wait for it.
    from structgen import Runner
    from structgen.integrations import mcp as served
    from structgen.runner import by_id

    try:
        text = by_id(models or (_models.DEFAULT,))
        vectors = {} if no_embedder else by_id(embedders or (DEFAULT_EMBEDDER,))
    except OptionError as error:
        raise click.UsageError(str(error)) from None
    both = text.keys() & vectors.keys()
    if both:
        raise click.UsageError(
            f"Two models have the id {min(both)}. Give one of them another id: ID=MODEL."
        )
    for source in text.values():
        _models.check(source)  # hosts would show a server whose tools all fail
    for source in vectors.values():
        _models.check(source, task="embed")
    sources = text | {id_: {"source": one, "kind": "embedding"} for id_, one in vectors.items()}
    with Runner(sources) as runner:
        offered = served.Models(tuple(text), tuple(vectors))
        if http:
            served.serve_http(
                runner,
                offered,
                port=port,
                lazy=lazy,
                on_start=lambda address: click.echo(f"serves MCP at {address}", err=True),
            )
        else:
            served.serve_stdio(runner, offered, lazy=lazy)


_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(cls=Group, context_settings=_CONTEXT)
@click.version_option(structgen.__version__, message="structgen %(version)s")
def cli() -> None:
    """Make local language models answer in exactly the type you ask for.

    \b
    To try it:
      structgen demo     show what a mask does; the first run fetches 93 MB
      structgen serve    serve OpenAI's API; first pip install 'structgen[server]'
      structgen doctor   check this installation; fetches nothing
    """


cli.other_names = {
    **dict.fromkeys(("chat", "run", "ask", "complete"), "generate"),
    **dict.fromkeys(("pull", "download", "fetch"), "models pull"),
    **dict.fromkeys(("rm", "remove", "delete"), "models rm"),
    **dict.fromkeys(("list", "ls"), "models list"),
    "convert": "models convert",
}


@cli.command()
@model_option()
@click.option("--seed", default=1, show_default=True, help="Same seed, same answers.")
def demo(model: str, seed: int) -> None:
    """Show four answers, each exactly of its type.

    The first run fetches the model (93 MB) and converts it.
    """
    loaded = load(model)
    # Imported late: it needs pydantic and rich, which --help should not wait for.
    from . import demo as scenes

    screen = console()
    screen.print(
        f"structgen {structgen.__version__} with {loaded.name} ({loaded.vocabulary.size:,} "
        "tokens), running on this machine.\nBefore each token is chosen, a mask excludes all "
        "tokens that would violate the output type.",
        soft_wrap=not screen.is_terminal,  # it breaks lines inside words
    )
    scenes.run(loaded, screen, seed)


for command in (
    *(generate, trace, decide, batch, shelf, embed, search, grammars, doctor, serve, mcp),
    *(sample, lint, diff, show),
):
    cli.add_command(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit: 0 fine, 1 a structgen error, 2 wrong usage, 130 Ctrl-C."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # the parent process has closed it
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
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
        echo(f"Error: {error}", err=True)
        return 1
    except (click.Abort, KeyboardInterrupt):
        click.echo("\nStopped.", err=True)
        return 130
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            where = "" if error.filename is None else f"{error.filename}: "
            echo(f"Error: {where}{failure(error) or type(error).__name__}.", err=True)
        broken = (errno.EPIPE, errno.EINVAL, errno.EIO, errno.ENOSPC)
        if error.filename is None and error.errno in broken:
            # The reader has gone (`structgen … | head`), or the disk is full. Nothing can be
            # written any more, not even at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
