"""The commands ``structgen generate`` and ``structgen trace``: arguments and printing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

import structgen
from structgen.errors import OptionError

from .forms import Form, with_form
from .terminal import load, model_option

_USUAL_TOKENS = 512


def _arguments(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the arguments of one output."""
    arguments = (
        click.argument("prompt"),
        model_option(),
        with_form,
        click.option("--system", help="A system message."),
        click.option(
            "--raw", is_flag=True, help="Give PROMPT to the model as it is, not as a chat."
        ),
        click.option(
            "--max-new-tokens",
            type=int,
            help=f"Most tokens to generate; {_USUAL_TOKENS} unless the prompt leaves fewer.",
        ),
        click.option(
            "--think",
            type=int,
            metavar="TOKENS",
            help="Let the model think first, for so many tokens at most; 0: not even where its "
            "chat template has it think.",
        ),
        click.option("--temperature", type=float, help="Above 0: sample."),
        click.option("--top-p", type=float, help="Sample among the likeliest of this probability."),
        click.option(
            "--min-p",
            type=float,
            help="Sample among those at least so likely as the likeliest one.",
        ),
        click.option(
            "--frequency-penalty",
            type=float,
            help="Off a score each time the output has the token.",
        ),
        click.option(
            "--presence-penalty", type=float, help="Off the scores of tokens the output has."
        ),
        click.option("--seed", type=int, help="Same seed, same output."),
        click.option(
            "--retries",
            type=int,
            help="Write a value anew that a validator of --type refuses, at most so often.",
        ),
    )
    for argument in reversed(arguments):
        command = argument(command)
    return command


@click.command()
@_arguments
def generate(**arguments: Any) -> None:
    """Print the answer to PROMPT; "-" reads it from standard input.

    Free text, or exactly what one of --schema, --regex, --choice, --grammar and --type asks for.
    What the model thinks first, with --think, goes to standard error.
    """
    generator, prompt, options = prepare(**arguments)
    with generator.stream(prompt, **options) as stream:
        before = None
        for chunk in stream:
            is_thought = chunk.section == "reasoning"
            if before == "reasoning" and not is_thought:
                click.echo(err=True)
            click.echo(click.style(chunk, dim=is_thought), nl=False, err=is_thought)
            before = chunk.section
    click.echo()
    _tell_end(stream.result, options["max_new_tokens"])


@click.command()
@_arguments
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default="trace.html",
    show_default=True,
    help="The file to write the page to.",
)
@click.option("--open", "opens", is_flag=True, help="Show the page in the web browser.")
@click.option("--table", is_flag=True, help="Print the steps as a table too.")
def trace(output: Path, opens: bool, table: bool, **arguments: Any) -> None:
    """Answer PROMPT as generate does, and write a page that shows every step.

    The text, coloured by how many tokens the mask allowed at each place, and for each token what
    the model would rather have written.
    """
    if not output.parent.is_dir():
        raise OptionError(f"--output {output}: there is no folder {output.parent}.")
    generator, prompt, options = prepare(**arguments)
    result = generator.result(prompt, trace=True, **options)
    click.echo(result.text)
    _tell_end(result, options["max_new_tokens"])
    if table:
        click.echo(f"\n{result.trace}")
    result.trace.save(output)
    click.echo(f"Wrote {output}.", err=True)
    if opens:
        click.launch(str(output))


def prepare(
    prompt: str,
    model: str,
    form: Form,
    system: str | None,
    raw: bool,
    think: int | None = None,
    **options: Any,
) -> tuple[structgen.Generator, Any, dict[str, Any]]:
    """The generator, prompt and search options that arguments ask for."""
    if raw and system:
        raise click.UsageError("--system needs a chat: leave out --raw.")
    # What can be wrong without a model is found before one is fetched.
    from structgen.decoding import encode
    from structgen.decoding import options as search_options

    lowered, written = form.lowered()
    text = sys.stdin.read() if prompt == "-" else prompt
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": text})
    search_options.parse(options)
    loaded = load(model)
    with form.told():
        generator = structgen.Generator(loaded, lowered, think=think, **written)
    asked = text if raw else messages
    if options["max_new_tokens"] is None:
        left = loaded.context_length - len(encode(loaded, asked)) - (think or 0)
        options["max_new_tokens"] = max(min(_USUAL_TOKENS, left), 1)
    return generator, asked, options


def _tell_end(result: structgen.GenerationResult, max_new_tokens: int) -> None:
    """Say that an output is not what the model would have written, had it been let."""
    if result.finish_reason == "length":
        click.echo(f"(Cut off at {max_new_tokens:,} tokens: --max-new-tokens.)", err=True)
    elif result.finish_reason == "budget":
        places = ", ".join(result.shortened[:5]) + ", …" * (len(result.shortened) > 5)
        where = "" if result.shortened == ("$",) else f", at {places}"
        click.echo(
            f"(Shortened to end within {max_new_tokens:,} tokens{where}: --max-new-tokens.)",
            err=True,
        )
