"""The commands ``sample``, ``lint``, ``diff`` and ``show``: study a type without a model.

A TYPE is a file that holds a JSON Schema, a module and a name in it, or ``/regex/``.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

import structgen
from structgen.errors import OptionError, counted

from .generation import named_type
from .terminal import FILE, echo, parsed, text_in, writing

_TYPE = "A type is a .json file with a JSON Schema, MODULE:NAME, FILE.py:NAME or /REGEX/."
_command = partial(click.command, epilog=_TYPE)


def type_of(text: str) -> Any:
    """Return the output type for a TYPE."""
    if len(text) > 1 and text[0] == text[-1] == "/":
        return structgen.Regex(text[1:-1])
    if text.endswith(".json") or text == "-":
        return structgen.JsonSchema(parsed(text_in(text, text), text))
    if ":" not in text:
        raise OptionError(f"TYPE {text}: {_TYPE}")
    return named_type(text, "TYPE")


@_command()
@click.argument("type_name", metavar="TYPE")
@click.option("-n", default=10, show_default=True, help="The number of texts.")
@click.option("--seed", default=0, show_default=True, help="Same seed, same texts.")
def sample(type_name: str, n: int, seed: int) -> None:
    """Print random texts of TYPE, one per line.

    A text with line ends takes several lines.
    """
    for text in structgen.sample(type_of(type_name), n, seed):
        echo(text)


@_command()
@click.argument("type_name", metavar="TYPE")
def lint(type_name: str) -> int:
    """Report what makes TYPE hard for a model.

    It lists what constraint.advice() finds, and misspelt keywords. The exit code is 1 if there is
    a finding.
    """
    found = type_of(type_name)
    vocabulary = structgen.Vocabulary([bytes([i]) for i in range(256)] + [b""], eos_token_ids=[256])
    constraint = structgen.compile(found, vocabulary)
    lines = _lines(type_name) if isinstance(found, structgen.JsonSchema) else {}
    findings = [(one.path, f"{one.text} {one.measured}") for one in constraint.advice()]
    findings += [
        (row.path, f"{row.keyword}: {row.note}")
        for row in constraint.explain().rows
        if "did you mean" in row.note
    ]
    for path, text in sorted(findings, key=lambda one: lines.get(one[0], 0)):
        line = f"{lines[path]}:" if path in lines else ""
        echo(f"{type_name}:{line} {path}: {text}")
    click.echo(f"{type_name}: {counted(len(findings), 'finding')}.")
    return 1 if findings else 0


def _lines(file: str) -> dict[str, int]:
    """Return the line on which each value of a JSON file begins, by path."""
    from structgen.grammar.json_schema import child_path
    from structgen.insight import JsonReader

    if file == "-":
        return {}
    data = text_in(file, file).encode()
    found: dict[str, int] = {}
    reader = JsonReader()
    for event in (*reader.feed(data), *reader.finish()):
        if hasattr(event, "start"):
            found.setdefault(child_path("$", *event.path), data.count(b"\n", 0, event.start) + 1)
    return found


@_command()
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@click.option(
    "-n",
    default=200,
    show_default=True,
    help="The number of samples to try, for types without an automaton.",
)
@click.option("--seed", default=0, show_default=True, help="Same seed, same samples.")
def diff(old: str, new: str, n: int, seed: int) -> int:
    """Check whether every text of type OLD is also a text of type NEW.

    Automata decide this for regular expressions and choices. For other types structgen tries
    samples, and the answer says so. The exit code is 1 if it finds a text that NEW refuses.
    """
    from structgen.constraint import difference

    found = difference(type_of(old), type_of(new), n, seed)
    if found.witness is not None:
        click.echo(f"{found.witness!r} is a text of {old} but not of {new}.")
        return 1
    if found.is_decided:
        click.echo(f"Every text of {old} is a text of {new}.")
    else:
        click.echo(f"All {n} samples of {old} are texts of {new}. Other texts may differ.")
    return 0


@_command()
@click.argument("type_name", metavar="TYPE")
@click.option("-o", "--output", type=FILE, help="The file to write.  [default: standard output]")
def show(type_name: str, output: Path | None) -> None:
    """Draw the automaton of a regex, choice or scalar TYPE as SVG."""
    from structgen.insight import picture, svg
    from structgen.types import lower, regular

    regex = regular(lower(type_of(type_name)).grammar)
    if regex is None:
        raise OptionError(
            f"{type_name} cannot be drawn. Only regular expressions, choices and scalars can."
        )
    drawn = svg(picture(regex))
    if output is None:
        click.echo(drawn, nl=False)
        return
    with writing("--output", output):
        output.write_text(drawn, encoding="utf-8")
