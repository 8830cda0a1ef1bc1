"""The commands ``structgen grammars …``: arguments and printing."""

from __future__ import annotations

import click

from structgen.errors import counted

from .files import text_in
from .forms import DIALECTS, is_name, library_text


@click.group()
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
@click.option("--dialect", type=DIALECTS, help="How it is written.")
def check_grammar(file: str, start: str | None, dialect: str | None) -> int:
    """Print all that is wrong with a grammar in FILE ("-": standard input) or of the library."""
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
        click.echo(str(problem))
    errors = sum(problem.is_error for problem in found)
    if errors and not cfg.is_decided(dialect, path):
        name = cfg.NAMES[cfg.dialect_of(text, path)]
        shown += f" (read as {name}; --dialect says otherwise)"
    warnings = counted(len(found) - errors, "warning")
    click.echo(f"{shown}: {counted(errors, 'error')}, {warnings}.")
    return 1 if errors else 0
