"""The command ``structgen decide``: arguments and printing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from structgen.errors import OptionError

from .files import text_in
from .terminal import load, model_option

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.option(
    "--state",
    required=True,
    metavar="FILE|-",
    help="What the questions are about: text, or a JSON value where the name ends in .json.",
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
    type=click.Choice(["none", "prior", "contextual", "orders"]),
    help="What is done about the bias of labels and their order.",
)
@click.option(
    "--abstain-below",
    type=float,
    metavar="P",
    help="Answer null where the likeliest label has less.",
)
@click.option(
    "--calibration",
    "calibrations",
    multiple=True,
    type=_FILE,
    help="A file that Calibration.save has written; give several.",
)
@click.option("--trace", is_flag=True, help="Show the prompts, on standard error.")
def decide(
    state: str,
    questions: str,
    model: str,
    debias: str | None,
    abstain_below: float | None,
    calibrations: tuple[Path, ...],
    trace: bool,
) -> None:
    """Answer questions about a text, with the probability of every allowed answer, as JSON."""
    # Imported late: --help should not wait for NumPy.
    from structgen.decisions import Calibration, Decider, answers_to_json, questions_from_json

    asked = questions_from_json(_json_in(questions, "--questions"))
    about = text_in(state, f"--state {state}")
    given: Any = _parsed(about, f"--state {state}") if state.endswith(".json") else about
    try:
        known = [Calibration.load(path) for path in calibrations]
    except OSError as error:
        raise OptionError(f"--calibration {error.filename}: {error.strerror}.") from None
    options: dict[str, Any] = {} if debias is None else {"debias": debias}
    decider = Decider(load(model), calibrations=known, warn=False, **options)
    answers = decider.decide(given, asked, abstain_below=abstain_below)
    for name, answer in answers.items():
        if not answer.informative:
            click.echo(f"{name}: no signal ({answer.no_signal}).", err=True)
    if trace:
        for prompts in answers.trace.values():
            for prompt in prompts:
                click.echo(f"{prompt}\n", err=True)
    click.echo(json.dumps(answers_to_json(answers), ensure_ascii=False, indent=2))


def _json_in(file: str, option: str) -> Any:
    return _parsed(text_in(file, f"{option} {file}"), f"{option} {file}")


def _parsed(text: str, shown: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise OptionError(f"{shown} is not JSON: {error}.") from None
