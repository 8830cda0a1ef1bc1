"""The ``structgen`` command: arguments and printing, nothing else.

Each command calls the Python surface and shows what it returns. Results go to standard output,
everything else (progress, errors) to standard error, so that output can be piped. Errors that
structgen raises on purpose are one short message and exit code 1; anything else is a traceback.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import structgen
from structgen.errors import GrammarError, OptionError, OutputTypeError, StructgenError, counted

from .embeddings import embed, search
from .files import text_in

if TYPE_CHECKING:
    from rich.console import Console

_USUAL_TOKENS = 512

_DIALECTS = click.Choice(["lark", "gbnf", "ebnf", "iso-ebnf"])
_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
_MODEL = click.option(
    "--model",
    default=structgen.models.DEFAULT,
    show_default=True,
    metavar="NAME",
    help="A catalogue name, a folder or a Hugging Face repository id.",
)


@click.group(context_settings=_CONTEXT)
@click.version_option(structgen.__version__, message="structgen %(version)s")
def cli() -> None:
    """Exact structured output from local language models."""


@cli.command()
@_MODEL
@click.option("--seed", default=1, show_default=True, help="Same seed, same answers.")
def demo(model: str, seed: int) -> None:
    """Show four answers, each exactly of its type.

    The first run fetches and converts the model: once, about 90 MB.
    """
    loaded = _load(model)
    # Imported late: it needs pydantic and rich, which --help should not wait for.
    from . import demo as scenes

    console = _console()
    console.print(
        f"structgen {structgen.__version__} with {loaded.name} "
        f"({loaded.vocabulary.size:,} tokens), running on this machine.\n"
        "Before each token is chosen, a mask rules out all that would break the output type.",
        soft_wrap=not console.is_terminal,  # which breaks inside words
    )
    scenes.run(loaded, console, seed)


def _generation(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the arguments of one output."""
    arguments = (
        click.argument("prompt"),
        _MODEL,
        click.option(
            "--schema",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="A file with the JSON Schema that the output must satisfy.",
        ),
        click.option("--regex", help="The Python regular expression that the output must match."),
        click.option(
            "--choice", multiple=True, help="A text that the output may be; give several."
        ),
        click.option(
            "--grammar",
            metavar="FILE|NAME",
            help="A file with the grammar that the output must follow, or one of the library's.",
        ),
        click.option("--dialect", type=_DIALECTS, help="How that grammar is written."),
        click.option(
            "--type",
            "type_name",
            metavar="MODULE:NAME",
            help="An output type in a Python module or file, such as shop.py:Order.",
        ),
        click.option(
            "--whitespace",
            metavar="STYLE",
            help="Where JSON has spaces: natural (the default: at most one after each comma and "
            "colon), compact, spaced, flexible, or a regular expression.",
        ),
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
        click.option("--seed", type=int, help="Same seed, same output."),
    )
    for argument in reversed(arguments):
        command = argument(command)
    return command


@cli.command()
@_generation
def generate(**arguments: Any) -> None:
    """Print the answer to PROMPT; "-" reads it from standard input.

    Free text, or exactly what one of --schema, --regex, --choice, --grammar and --type asks for.
    What the model thinks first, with --think, goes to standard error.
    """
    generator, prompt, options = _prepare(**arguments)
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


@cli.command()
@_generation
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
    generator, prompt, options = _prepare(**arguments)
    result = generator.result(prompt, trace=True, **options)
    click.echo(result.text)
    _tell_end(result, options["max_new_tokens"])
    if table:
        click.echo(f"\n{result.trace}")
    result.trace.save(output)
    click.echo(f"Wrote {output}.", err=True)
    if opens:
        click.launch(str(output))


def _prepare(
    prompt: str,
    model: str,
    schema: Path | None,
    regex: str | None,
    choice: tuple[str, ...],
    grammar: str | None,
    dialect: str | None,
    type_name: str | None,
    system: str | None,
    raw: bool,
    whitespace: str | None = None,
    think: int | None = None,
    **options: Any,
) -> tuple[structgen.Generator, Any, dict[str, Any]]:
    """The generator, prompt and search options that arguments ask for."""
    given = _given(schema, regex, choice, grammar, type_name)
    with _telling(given):
        output_type = _output_type(schema, regex, choice, grammar, dialect, type_name)
    if raw and system:
        raise click.UsageError("--system needs a chat: leave out --raw.")
    if whitespace is not None and not (schema or grammar or type_name):
        raise click.UsageError("--whitespace is about JSON: give --schema or --type, say.")
    text = sys.stdin.read() if prompt == "-" else prompt
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": text})
    # What can be wrong without a model is found before one is fetched.
    from structgen import automaton, types
    from structgen.decoding import encode
    from structgen.decoding import options as search_options

    search_options.parse(options)
    written: dict[str, Any] = {} if whitespace is None else {"whitespace": whitespace}
    with _telling(given):
        lowered = None if output_type is None else types.lower(output_type)
        if written and lowered is not None:
            automaton.build(lowered.grammar, written)
    loaded = _load(model)
    with _telling(given):
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


@cli.group()
def models() -> None:
    """Fetch, convert, list and remove models."""


@models.command("list")
def list_models() -> None:
    """Show the catalogue and what is on disk."""
    from structgen.models import catalogue, installed
    from structgen.models.progress import megabytes

    on_disk = {model.name: model for model in installed()}
    rows = [("NAME", "TASK", "ON DISK", "TO FETCH", "LICENCE", "")]
    for name in [*catalogue.ENTRIES, *(name for name in on_disk if name not in catalogue.ENTRIES)]:
        entry, model = catalogue.ENTRIES.get(name), on_disk.get(name)
        rows.append(
            (
                name,
                entry.task if entry else model.task if model else "",
                megabytes(model.bytes) if model else "no",
                megabytes(entry.download_bytes or 0) if entry and not model else "-",
                entry.licence if entry else "-",
                entry.summary if entry else "from the Hugging Face hub",
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


@models.command()
@click.argument("name")
def pull(name: str) -> None:
    """Fetch model NAME (and convert it) unless it is on disk, and print its folder."""
    from structgen import models

    click.echo(models.pull(name))


@models.command()
@click.argument("gguf", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--hidden-states", is_flag=True, help="Let the model embed texts too: model.embed(texts)."
)
@click.option(
    "--context-length", type=int, metavar="N", help="Let prompt and output have N tokens at most."
)
def convert(gguf: Path, out: Path, hidden_states: bool, context_length: int | None) -> None:
    """Convert the file GGUF into the model folder OUT, and print that."""
    from structgen import models

    click.echo(
        models.convert_gguf(gguf, out, hidden_states=hidden_states, context_length=context_length)
    )


@models.command()
@click.argument("name")
def path(name: str) -> None:
    """Print the folder of model NAME, fetched first if need be."""
    from structgen import models

    click.echo(models.path(name))


@models.command()
@click.argument("name")
def rm(name: str) -> None:
    """Delete model NAME from the cache."""
    from structgen import models
    from structgen.models.progress import megabytes

    click.echo(f"Removed {name}: {megabytes(models.remove(name))} are free again.")


cli.add_command(embed)
cli.add_command(search)


@cli.group()
def grammars() -> None:
    """Show the grammar library."""


@grammars.command("list")
def list_grammars() -> None:
    """Show what there is."""
    from structgen.grammar.cfg import library as grammars

    names = grammars.names()
    width = max(map(len, names))
    for name in names:
        click.echo(f"{name.ljust(width)}  {grammars.description(name)}")


@grammars.command("show")
@click.argument("name")
def show_grammar(name: str) -> None:
    """Print the grammar NAME, comments and all."""
    from structgen.grammar.cfg import library as grammars

    click.echo(grammars.text(name), nl=False)


@grammars.command("check")
@click.argument("file", metavar="FILE|NAME")
@click.option("--start", help="The rule to begin with.")
@click.option("--dialect", type=_DIALECTS, help="How it is written.")
def check_grammar(file: str, start: str | None, dialect: str | None) -> int:
    """Print all that is wrong with a grammar in FILE ("-": standard input) or of the library."""
    from structgen.constraint.check_grammar import problems
    from structgen.grammar import cfg

    shown = "standard input" if file == "-" else file
    path = None if file == "-" or _is_name(file) else file
    if path is None and file != "-":
        text, dialect = _text_of(file, ""), dialect or "lark"
    else:
        text = text_in(file, shown)
    found = problems(text, start, dialect, path)
    for problem in found:
        click.echo(str(problem))
    errors = sum(problem.is_error for problem in found)
    if errors and not cfg.is_decided(dialect, path):
        name = cfg.NAMES[cfg.dialect_of(text, path)]
        shown += f" (read as {name}; --dialect says otherwise)"
    warnings = counted(len(found) - errors, "warning")
    click.echo(f"{shown}: {counted(errors, 'error')}, {warnings}.")
    return 1 if errors else 0


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


def _given(
    schema: Path | None,
    regex: str | None,
    choice: tuple[str, ...],
    grammar: str | None,
    type_name: str | None,
) -> str:
    """The option that asks for the output type, as it was written."""
    named = (("schema", schema), ("grammar", grammar), ("type", type_name))
    for option, value in named:
        if value is not None:
            return f"--{option} {value}"
    return "--choice" if choice else "--regex" if regex is None else f"--regex {regex!r}"


@contextlib.contextmanager
def _telling(option: str) -> Iterator[None]:
    """Name an option in errors that are about its output type."""
    try:
        yield
    except OutputTypeError as error:
        kind, _, value = option.partition(" ")
        hint = f"\n`structgen grammars check {value}` tells all that is wrong with it."
        hint = hint if kind == "--grammar" and isinstance(error, GrammarError) else ""
        raise OptionError(f"{option}: {error}{hint}") from error


def _output_type(
    schema: Path | None,
    regex: str | None,
    choice: tuple[str, ...],
    grammar: str | None,
    dialect: str | None,
    type_name: str | None,
) -> Any:
    if sum(map(bool, (schema, regex, choice, grammar, type_name))) > 1:
        raise click.UsageError("Pass one of --schema, --regex, --choice, --grammar and --type.")
    if dialect is not None and grammar is None:
        raise click.UsageError("--dialect says how a grammar is written: pass --grammar, too.")
    if schema is not None:
        try:
            return structgen.JsonSchema(json.loads(schema.read_text(encoding="utf-8-sig")))
        except ValueError as error:
            raise OptionError(f"--schema {schema} is not JSON: {error}.") from None
    if type_name is not None:
        from .named_types import named_type

        return named_type(type_name)
    if regex is not None:
        return structgen.Regex(regex)
    if grammar is not None:
        return _grammar(grammar, dialect)
    return structgen.Choice(choice) if choice else None


def _grammar(file_or_name: str, dialect: str | None) -> structgen.Cfg:
    """The grammar in a file, else the library's of that name."""
    path = Path(file_or_name)
    if _is_name(file_or_name):
        text = _text_of(file_or_name, "--grammar ")
        return structgen.Cfg(text, dialect=dialect or "lark")
    if not path.is_file():
        raise OptionError(f"--grammar {file_or_name}: there is no such file.")
    return structgen.Cfg(path, dialect=dialect)


def _is_name(file_or_name: str) -> bool:
    """Whether this can only be the name of a grammar of the library."""
    path = Path(file_or_name)
    return not path.exists() and not path.suffix and path.name == file_or_name


def _text_of(name: str, option: str) -> str:
    """The library's grammar of that name."""
    from structgen.grammar.cfg import library as grammars

    try:
        return grammars.text(name)
    except OptionError as error:
        raise OptionError(f"{option}{name}: there is no such file. {error}") from None


def _load(name: str) -> structgen.TextModel:
    """Load a model, showing what takes long."""
    from structgen import models
    from structgen.models import genai

    folder = models.path(name)  # shows its own progress when it fetches and converts
    with _console(stderr=True).status(f"Loading {name} …"):
        return genai.load(folder, kind=structgen.TextModel)


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=True)
