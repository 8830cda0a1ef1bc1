"""The commands ``generate`` and ``trace``, and the options of output types.

These options, such as ``--type module:Class``, are read here, also from the library of grammars.
`structgen.types` decides what may be an output type.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any

import click

import structgen
from structgen.errors import OptionError, OutputTypeError, did_you_mean
from structgen.options import OPTIONS

from .terminal import FILE, echo, harmless, having, json_in, load, model_option, text_in, writing


def named_type(text: str, option: str = "--type") -> Any:
    """Return the object of ``module:Name`` or ``file.py:Name``. Runs the module's code.

    Modules are looked for in the current folder, too.

    Raises:
        OptionError: it has another form, the module, file or name does not exist, or its code
            fails.
    """
    given = f"{option} {text}"
    module_name, separator, name = text.rpartition(":")
    if not separator or not module_name or not name:
        raise OptionError(f"{given}: write MODULE:NAME or FILE.py:NAME, such as shop.py:Order.")
    found: Any
    try:
        is_file = module_name.endswith(".py")
        found = _file(given, Path(module_name)) if is_file else _module(given, module_name)
    except OptionError:
        raise
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise OptionError(f"{given}: {_failure(error)}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            names = [known for known in vars(found) if not known.startswith("_")]
            hint = did_you_mean(part, names, 3)
            raise OptionError(f"{given}: {module_name} has no {part!r}.{hint}")
        found = getattr(found, part)
    return found


def _failure(error: BaseException) -> str:
    """Return the error of code that was imported, with the line of the module."""
    shown = f"{type(error).__name__}: {error}".rstrip(": ")
    if isinstance(error, SyntaxError) and error.filename is not None:
        shown = f"{type(error).__name__}: {error.msg}"
        file, number, line = error.filename, error.lineno, error.text
    else:
        own = (__file__, importlib.__file__)
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename not in own and not frame.filename.startswith("<frozen ")
        ]
        if not frames:
            return shown
        # Lines of code elsewhere that it calls would help its author less.
        last = [frame for frame in frames if frame.filename == frames[0].filename][-1]
        file, number, line = last.filename, last.lineno, last.line
    return f"{shown}\n  {file}, line {number}: {(line or '').strip()}"


def _file(given: str, path: Path) -> ModuleType:
    if not path.is_file():
        raise OptionError(f"{given}: the file {path} does not exist.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # where annotations are resolved
    sys.path.insert(0, str(path.parent.absolute()))
    spec.loader.exec_module(module)
    return module


def _module(given: str, name: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # another module that this one imports
        raise OptionError(
            f"{given}: there is no module {name}, neither here nor on Python's path."
        ) from None


DIALECTS = click.Choice(["lark", "llguidance", "gbnf", "xgrammar", "ebnf"])

_OPTIONS = (
    click.option(
        "--schema",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A file with the JSON Schema that the output must satisfy.",
    ),
    click.option("--regex", help="The Python regular expression that the output must match."),
    click.option("--choice", multiple=True, help="An allowed output; repeatable."),
    click.option(
        "--grammar",
        metavar="FILE|NAME",
        help="The grammar of the output: a file, or a name (`structgen grammars list`).",
    ),
    click.option("--dialect", type=DIALECTS, help="The notation of that grammar."),
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
    click.option("--indent", type=int, help="Indent JSON by this many spaces per level."),
)


@dataclass(frozen=True)
class Form:
    """The options of the output's form; fields have the names of options."""

    schema: Path | None = None
    regex: str | None = None
    choice: tuple[str, ...] = ()
    grammar: str | None = None
    dialect: str | None = None
    type_name: str | None = None
    whitespace: str | None = None
    indent: int | None = None

    def lowered(self) -> tuple[Any, dict[str, Any]]:
        """Return the output type, or None for free text, and the options of JSON.

        Raises:
            OptionError: an option's value is wrong; the error names the option.
            click.UsageError: the options do not go together.
        """
        if sum(map(bool, (self.schema, self.regex, self.choice, self.grammar, self.type_name))) > 1:
            raise click.UsageError(
                "Pass only one of --schema, --regex, --choice, --grammar and --type."
            )
        if self.dialect is not None and self.grammar is None:
            raise click.UsageError("--dialect requires --grammar.")
        with self.naming_option():
            output_type = self.output_type()
        written: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("whitespace", "indent")
            if getattr(self, name) is not None
        }
        if written and not (self.schema or self.grammar or self.type_name):
            raise click.UsageError(
                f"--{min(written)} requires JSON output, such as --schema or --type."
            )
        from structgen import automaton, types

        with self.naming_option():
            lowered = None if output_type is None else types.lower(output_type)
            if written and lowered is not None:
                automaton.build(lowered.grammar, written)
        return lowered, written

    @contextlib.contextmanager
    def naming_option(self) -> Iterator[None]:
        """Name the option in errors about its output type."""
        try:
            yield
        except OutputTypeError as error:
            raise OptionError(f"{self._option()}: {error}") from error

    def _option(self) -> str:
        """Return the option for the output type, as it was written."""
        named = (("schema", self.schema), ("grammar", self.grammar), ("type", self.type_name))
        for option, value in named:
            if value is not None:
                return f"--{option} {value}"
        if self.choice:
            return "--choice"
        return "--regex" if self.regex is None else f"--regex {self.regex!r}"

    def output_type(self) -> Any:
        """Return the output type as it was passed; None: free text."""
        if self.schema is not None:
            return structgen.JsonSchema(json_in(str(self.schema), "--schema"))
        if self.type_name is not None:
            return named_type(self.type_name)
        if self.regex is not None:
            return structgen.Regex(self.regex)
        if self.grammar is not None:
            return _grammar(self.grammar, self.dialect)
        return structgen.Choice(self.choice) if self.choice else None


def with_form(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a form to a command, which gets them as one argument ``form``."""
    names = [field.name for field in fields(Form)]

    @functools.wraps(command)
    def taking(**arguments: Any) -> Any:
        return command(form=Form(**{name: arguments.pop(name) for name in names}), **arguments)

    return having(*_OPTIONS)(taking)


def is_name(file_or_name: str) -> bool:
    """Return whether this can only be the name of a grammar in the library."""
    path = Path(file_or_name)
    return not path.exists() and not path.suffix and path.name == file_or_name


def library_text(name: str, option: str) -> str:
    """Return a grammar of the library by name."""
    from structgen.grammar.cfg import library as grammars

    try:
        return grammars.text(name)
    except OptionError as error:
        raise OptionError(f"{option}{name}: the file does not exist. {error}") from None


def _grammar(file_or_name: str, dialect: str | None) -> structgen.Cfg:
    """Return the grammar in a file, or the one of the library by name."""
    path = Path(file_or_name)
    if is_name(file_or_name):
        text = library_text(file_or_name, "--grammar ")
        return structgen.Cfg(text, dialect=dialect or "lark")
    if not path.is_file():
        raise OptionError(f"--grammar {file_or_name}: the file does not exist.")
    return structgen.Cfg(path, dialect=dialect)


FLAGS = tuple(
    click.option(f"--{name.replace('_', '-')}", type=option.kind, help=f"{option.about}.")
    for name, option in OPTIONS.items()
    if option.field is not None and option.kind is not None and name != "max_new_tokens"
)
"""Options of a call as flags, except ``--max-new-tokens``."""

_USUAL_TOKENS = 512


_arguments = having(
    click.argument("prompt"),
    model_option(),
    with_form,
    click.option("--system", help="A system message."),
    click.option("--raw", is_flag=True, help="Give PROMPT to the model as it is, not as a chat."),
    click.option(
        "--max-new-tokens",
        type=int,
        help=(
            f"Maximum number of tokens to generate; {_USUAL_TOKENS} unless the prompt leaves fewer."
        ),
    ),
    click.option(
        "--think",
        type=int,
        metavar="TOKENS",
        help="Let the model think first, with at most this many tokens; 0: do not think, even if "
        "the chat template requests it.",
    ),
    *FLAGS,
)
"""The arguments of one output."""


@click.command()
@_arguments
def generate(**arguments: Any) -> None:
    """Print the answer to PROMPT; "-" reads it from standard input.

    The answer is free text, or exactly what --schema, --regex, --choice, --grammar or --type asks
    for. With --think, the thought goes to standard error.
    """
    generator, prompt, options = prepare(**arguments)
    with generator.stream(prompt, **options) as stream:
        before = None
        for chunk in stream:
            is_thought = chunk.section == "reasoning"
            if before == "reasoning" and not is_thought:
                click.echo(err=True)
            text = click.style(harmless(chunk, err=is_thought), dim=is_thought)
            click.echo(text, nl=False, err=is_thought)
            before = chunk.section
    click.echo()
    _show_end(stream.result, options["max_new_tokens"])


@click.command()
@_arguments
@click.option(
    "-o",
    "--output",
    type=FILE,
    default="trace.html",
    show_default=True,
    help="The file to write the page to.",
)
@click.option("--open", "opens", is_flag=True, help="Show the page in the web browser.")
@click.option("--table", is_flag=True, help="Also print the steps as a table.")
def trace(output: Path, opens: bool, table: bool, **arguments: Any) -> None:
    """Answer PROMPT as generate does; write a page with every step.

    The text, coloured by how many tokens the mask allowed at each place, and for each token what
    the model would rather have written.
    """
    if not output.parent.is_dir():
        raise OptionError(f"--output {output}: the folder {output.parent} does not exist.")
    generator, prompt, options = prepare(**arguments)
    result = generator.result(prompt, trace=True, **options)
    echo(result.text)
    _show_end(result, options["max_new_tokens"])
    if table:
        click.echo(f"\n{result.trace}")
    with writing("--output", output):
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
    """Return the generator, prompt and search options of the arguments."""
    if raw and system:
        raise click.UsageError("--system requires a chat. Remove --raw.")
    # Errors that need no model are found before one is downloaded.
    from structgen.decoding import encode
    from structgen.decoding import options as search_options

    lowered, written = form.lowered()
    text = text_in("-", "Standard input") if prompt == "-" else prompt
    messages = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": text})
    search_options.parse(options)
    loaded = load(model)
    with form.naming_option():
        generator = structgen.Generator(loaded, lowered, think=think, **written)
    asked = text if raw else messages
    if options["max_new_tokens"] is None:
        left = loaded.context_length - len(encode(loaded, asked)) - (think or 0)
        options["max_new_tokens"] = max(min(_USUAL_TOKENS, left), 1)
    return generator, asked, options


def _show_end(result: structgen.GenerationResult, max_new_tokens: int) -> None:
    """Say that an output is not what the model would have written, had it been let."""
    if result.finish_reason == "length":
        click.echo(f"(Cut off after {max_new_tokens:,} tokens. Raise --max-new-tokens.)", err=True)
    elif result.finish_reason == "budget":
        places = ", ".join(result.shortened[:5]) + ", …" * (len(result.shortened) > 5)
        where = "" if result.shortened == ("$",) else f", at {places}"
        click.echo(
            f"(Shortened to end within {max_new_tokens:,} tokens{where}. Raise --max-new-tokens.)",
            err=True,
        )
