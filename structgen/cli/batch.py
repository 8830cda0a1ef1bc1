"""The command ``batch``: rows in, rows of results out."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from structgen.errors import OptionError

from .generation import FLAGS, Form, with_form
from .terminal import having, json_in

if TYPE_CHECKING:
    from structgen.jobs import Source


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder for the results. The same command resumes a job that it finds there.",
)
@click.option(
    "--format", type=click.Choice(["jsonl", "parquet"]), default="jsonl", show_default=True
)
@click.option(
    "--column", help="The column with the prompts.  [default: text, prompt or the only one]"
)
@click.option("--prompt", help="A prompt template: 'Summarise: {text}'.")
@click.option(
    "--messages", metavar="FILE", help="A JSON file with messages whose contents are templates."
)
@with_form
@click.option(
    "--decisions",
    metavar="FILE",
    help="Answer the questions in this file instead, as `decide` does.",
)
@click.option("--embed", is_flag=True, help="Compute vectors instead.")
@click.option(
    "--model", metavar="NAME", help="A catalogue name, a folder or a Hugging Face repository id."
)
@click.option("--result", default="output", show_default=True, help="The column for the results.")
@click.option(
    "--on-error",
    type=click.Choice(["row", "skip", "fail"]),
    default="row",
    show_default=True,
    help="If a row fails: write a row with the error, skip it, or stop.",
)
@click.option(
    "--workers", type=click.IntRange(1, 64), help="The number of processes that run the model."
)
@click.option("--batch-size", type=int, help="Maximum number of rows in one batch of a process.")
@click.option(
    "--ray",
    metavar="local|auto|HOST:PORT",
    help="Run the model in actors of a Ray cluster: one on this machine alone, the one that this "
    "machine is part of, or another.",
)
@click.option(
    "--actors",
    metavar="N|MIN:MAX",
    help="With --ray: the number of actors.  [default: all of the cluster]",
)
@click.option("--actor-cpus", type=float, help="With --ray: processors per actor.  [default: 1]")
@click.option("--actor-gpus", type=float, help="With --ray: GPUs per actor, such as 0.5.")
@click.option("--max-new-tokens", type=int, help="Maximum number of tokens of an output.")
@click.option(
    "--abstain-below",
    type=float,
    metavar="P",
    help=(
        "Fail rows with a value whose probability is below P; write all probabilities as "
        "confidence."
    ),
)
@having(*FLAGS)
def batch(
    inputs: tuple[str, ...],
    form: Form,
    messages: str | None,
    decisions: str | None,
    **arguments: Any,
) -> None:
    """Run one prompt over every row of files; write a folder.

    INPUT is a .jsonl, .csv, .tsv, .parquet or .txt file, a glob pattern, or "-" for JSON lines on
    standard input. If the process ends early, run the same command again: it continues where it
    stopped. The exit code is 1 if all rows failed.

    A file of requests in the format of OpenAI's batch API gives answers in that format.
    """
    if written := form.lowered()[1]:
        raise click.UsageError(f"--{min(written)} is not supported here.")
    options = {name: value for name, value in arguments.items() if value is not None}
    if (cluster := _cluster(options, form)) is not None:
        options["cluster"] = cluster
    if messages is not None:
        options["messages"] = json_in(messages, "--messages")
    if decisions is not None:
        options["questions"] = json_in(decisions, "--decisions")
    # Imported late: --help should not wait for it.
    from structgen import jobs

    source = jobs.Source.of_files(inputs)
    try:
        if inputs != ("-",) and _are_requests(source, options):
            if form.output_type() is not None:
                raise OptionError(
                    "An output type requires rows of data. Lines with requests have their own "
                    "settings."
                )
            folder = _answered(source, **options)
        else:
            folder = jobs.batch(source, form.output_type(), **options)
    except OptionError as error:
        raise OptionError(_as_flags(str(error))) from error
    except KeyboardInterrupt:
        click.echo("\nStopped. Run the same command again to continue.", err=True)
        sys.exit(130)
    click.echo(f"Wrote {folder}.", err=True)


def _as_flags(message: str) -> str:
    """Return a message with this command's options instead of Python's arguments."""
    flags = {option.name: option.opts[-1] for option in batch.params}
    flags |= {"questions": "--decisions", "cluster": "--ray"}

    def flag(found: re.Match[str]) -> str:
        shown = flags.get(found[1], found[0])
        return f"{shown} " if shown != found[0] and found[2] else shown

    return re.sub(r"\b([a-z_]+)=(?:True\b)?(?=([^\s,.]?))", flag, message)


def _cluster(options: dict[str, Any], form: Form) -> Any:
    """Return the cluster of the options, which are removed; None: this machine."""
    names = {"ray": "address", "actors": "actors", "actor_cpus": "cpus", "actor_gpus": "gpus"}
    given = {names[name]: options.pop(name) for name in names.keys() & options.keys()}
    if given and "address" not in given:
        raise click.UsageError("--actors, --actor-cpus and --actor-gpus require --ray.")
    if "actors" in given:
        least, colon, most = given["actors"].partition(":")
        try:
            given["actors"] = (int(least), int(most) if colon else int(least))
        except ValueError:
            raise click.UsageError("--actors must be a number or two: 2:16.") from None
    if not given:
        return None
    from structgen.ray import Cluster

    if "batch_size" in options:
        given["batch_size"] = options.pop("batch_size")
    if form.type_name is not None:
        module = form.type_name.rpartition(":")[0]  # imported when the options were checked
        given["modules"] = (sys.modules[Path(module).stem if module.endswith(".py") else module],)
    return Cluster(**given)


def _are_requests(source: Source, options: dict[str, Any]) -> bool:
    """Return whether INPUT has lines of OpenAI's batch files, unless options say otherwise."""
    if options.keys() & {"column", "prompt", "messages", "questions"} or options["embed"]:
        return False
    first = next((row for row in source.read() if isinstance(row, dict)), {})
    return {"custom_id", "url", "body"} <= first.keys()


def _answered(source: Source, output: Path, **options: Any) -> Path:
    try:
        from structgen import server
    except ImportError as error:
        raise OptionError(str(error)) from None
    given = {name: options.pop(name) for name in ("model", "workers") if name in options}
    usual = {"format": "jsonl", "embed": False, "result": "output", "on_error": "row"}
    others = [name for name, value in options.items() if usual.get(name) != value]
    if others:
        name = others[0].replace("cluster", "ray").replace("_", "-")
        raise OptionError(
            f"--{name} requires rows of data. Lines with requests have their own settings."
        )
    server.answer_files(source, output, **given)
    return output
