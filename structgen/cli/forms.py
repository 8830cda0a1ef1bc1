"""The output type that options ask for: the options, what they mean, and errors that name them.

It knows the library of grammars and named types, and nothing of models or of printing.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

import structgen
from structgen.errors import GrammarError, OptionError, OutputTypeError

DIALECTS = click.Choice(["lark", "gbnf", "ebnf"])

_OPTIONS = (
    click.option(
        "--schema",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A file with the JSON Schema that the output must satisfy.",
    ),
    click.option("--regex", help="The Python regular expression that the output must match."),
    click.option("--choice", multiple=True, help="A text that the output may be; give several."),
    click.option(
        "--grammar",
        metavar="FILE|NAME",
        help="A file with the grammar that the output must follow, or one of the library's.",
    ),
    click.option("--dialect", type=DIALECTS, help="How that grammar is written."),
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
)


@dataclass(frozen=True)
class Form:
    """What the options say of the output's form; the fields have their names."""

    schema: Path | None = None
    regex: str | None = None
    choice: tuple[str, ...] = ()
    grammar: str | None = None
    dialect: str | None = None
    type_name: str | None = None
    whitespace: str | None = None

    def lowered(self) -> tuple[Any, dict[str, Any]]:
        """The output type, or None for free text, and how JSON is to be written.

        Raises:
            OptionError: an option's value is wrong; it is named.
            click.UsageError: the options do not go together.
        """
        if sum(map(bool, (self.schema, self.regex, self.choice, self.grammar, self.type_name))) > 1:
            raise click.UsageError("Pass one of --schema, --regex, --choice, --grammar and --type.")
        if self.dialect is not None and self.grammar is None:
            raise click.UsageError("--dialect says how a grammar is written: pass --grammar, too.")
        with self.told():
            output_type = self._output_type()
        if self.whitespace is not None and not (self.schema or self.grammar or self.type_name):
            raise click.UsageError("--whitespace is about JSON: give --schema or --type, say.")
        from structgen import automaton, types

        written: dict[str, Any] = {}
        if self.whitespace is not None:
            written["whitespace"] = self.whitespace
        with self.told():
            lowered = None if output_type is None else types.lower(output_type)
            if written and lowered is not None:
                automaton.build(lowered.grammar, written)
        return lowered, written

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Name the option in errors that are about its output type."""
        try:
            yield
        except OutputTypeError as error:
            hint = ""
            if self.grammar is not None and isinstance(error, GrammarError):
                hint = (
                    f"\n`structgen grammars check {self.grammar}` tells all that is wrong with it."
                )
            raise OptionError(f"{self._option()}: {error}{hint}") from error

    def _option(self) -> str:
        """The option that asks for the output type, as it was written."""
        named = (("schema", self.schema), ("grammar", self.grammar), ("type", self.type_name))
        for option, value in named:
            if value is not None:
                return f"--{option} {value}"
        if self.choice:
            return "--choice"
        return "--regex" if self.regex is None else f"--regex {self.regex!r}"

    def _output_type(self) -> Any:
        if self.schema is not None:
            try:
                return structgen.JsonSchema(json.loads(self.schema.read_text(encoding="utf-8-sig")))
            except ValueError as error:
                raise OptionError(f"--schema {self.schema} is not JSON: {error}.") from None
        if self.type_name is not None:
            from .named_types import named_type

            return named_type(self.type_name)
        if self.regex is not None:
            return structgen.Regex(self.regex)
        if self.grammar is not None:
            return _grammar(self.grammar, self.dialect)
        return structgen.Choice(self.choice) if self.choice else None


def with_form(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of a form; it gets them as one argument, ``form``."""
    names = [field.name for field in fields(Form)]

    @functools.wraps(command)
    def taking(**arguments: Any) -> Any:
        return command(form=Form(**{name: arguments.pop(name) for name in names}), **arguments)

    for option in reversed(_OPTIONS):
        taking = option(taking)
    return taking


def is_name(file_or_name: str) -> bool:
    """Whether this can only be the name of a grammar of the library."""
    path = Path(file_or_name)
    return not path.exists() and not path.suffix and path.name == file_or_name


def library_text(name: str, option: str) -> str:
    """The library's grammar of that name."""
    from structgen.grammar.cfg import library as grammars

    try:
        return grammars.text(name)
    except OptionError as error:
        raise OptionError(f"{option}{name}: there is no such file. {error}") from None


def _grammar(file_or_name: str, dialect: str | None) -> structgen.Cfg:
    """The grammar in a file, else the library's of that name."""
    path = Path(file_or_name)
    if is_name(file_or_name):
        text = library_text(file_or_name, "--grammar ")
        return structgen.Cfg(text, dialect=dialect or "lark")
    if not path.is_file():
        raise OptionError(f"--grammar {file_or_name}: there is no such file.")
    return structgen.Cfg(path, dialect=dialect)
