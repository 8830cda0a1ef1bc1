"""The commands ``structgen models`` and ``structgen doctor``, and the tables that they print.

`structgen.models` has the contents of the tables; this module only formats them.
"""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from structgen import models

from .terminal import Group, harmless

if TYPE_CHECKING:
    from structgen.models import Health, ModelInfo, Usage, Verified

_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group("models", cls=Group)
def shelf() -> None:
    """List, fetch, convert and remove models."""


shelf.other_names = {
    **dict.fromkeys(("remove", "delete", "uninstall"), "rm"),
    **dict.fromkeys(("download", "fetch", "get", "add", "install"), "pull"),
    **dict.fromkeys(("ls", "search"), "list"),
    "show": "info",
}


@shelf.command("list")
@click.option("--task", type=click.Choice(["generate", "embed"]), help="Only models for this task.")
@click.option("--here", is_flag=True, help="Only downloaded models.")
@click.option("--language", metavar="CODE", help="Only models for this language, such as fr.")
@_json_option
def list_models(task: str | None, here: bool, language: str | None, as_json: bool) -> None:
    """List the catalogue; * marks models on disk."""
    rows = [
        row
        for row in models.listing()
        if task in (None, row.task)
        and (row.here or not here)
        and (language is None or language.lower() in row.languages)
    ]
    _print(as_json, [{**dataclasses.asdict(row), "here": row.here} for row in rows], table(rows))


@shelf.command()
@click.argument("name")
@_json_option
def info(name: str, as_json: bool) -> None:
    """Show details of a model: a catalogue name, or a folder."""
    found = models.info(name)
    _print(as_json, {**dataclasses.asdict(found), "here": found.here}, facts(found))


@shelf.command()
@click.option(
    "--task",
    type=click.Choice([*models.catalogue.SUITS]),
    multiple=True,
    help="The task.  [default: all of these]",
)
@_json_option
def recommend(task: tuple[str, ...], as_json: bool) -> int:
    """Recommend a model for this machine and a task.

    It is the best one of the catalogue that fits into the free memory.
    The exit code is 1 if no model fits.
    """
    found = {one: models.recommend(one) for one in task or models.catalogue.SUITS}
    value = {one: best and dataclasses.asdict(best) for one, best in found.items()}
    _print(as_json, value, _choices(found))
    return 0 if all(found.values()) else 1


@shelf.command()
@_json_option
def du(as_json: bool) -> None:
    """Show the disk space of models and caches."""
    found = models.usage()
    _print(as_json, dataclasses.asdict(found), sizes(found))


@shelf.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@_json_option
def verify(names: tuple[str, ...], as_json: bool) -> int:
    """Check the files of models on disk: NAMEs, or all."""
    found = models.verify(names)
    _print(as_json, [dataclasses.asdict(one) for one in found], checks(found))
    return 1 if any(one.problems for one in found) else 0


@shelf.command()
@click.argument("name")
def pull(name: str) -> None:
    """Fetch and convert a model, unless it is here; print its folder."""
    click.echo(models.pull(name))


@shelf.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option(
    "--hidden-states", is_flag=True, help="Also let the model embed texts: model.embed(texts)."
)
@click.option(
    "--context-length",
    type=int,
    metavar="N",
    help="Maximum number of tokens of prompt and output together.",
)
@click.option(
    "--target",
    type=click.Choice(["cpu", "cuda", "dml"]),
    default="cpu",
    show_default=True,
    help="The device for the model.",
)
@click.option(
    "--dtype",
    type=click.Choice(["int8", "int4", "fp16"]),
    help="How to store weights.  [default: 4 bits if nothing is lost, else 8]",
)
def convert(source: Path, out: Path, **options: Any) -> None:
    """Convert SOURCE into the model folder OUT; print its path.

    SOURCE is a GGUF file, or a Hugging Face folder with safetensors.
    """
    click.echo(models.convert(source, out, **options))


@shelf.command()
@click.argument("folder", type=click.Path(path_type=Path))
def add_mask(folder: Path) -> None:
    """Add a graph that applies the mask itself; print its file.

    Models made by `convert` have it already. It saves copies of scores: see docs/gpu.md.
    """
    click.echo(models.add_mask(folder))


@shelf.command()
@click.argument("name")
def path(name: str) -> None:
    """Print the folder of model NAME; fetch it if it is missing."""
    click.echo(models.path(name))


@shelf.command()
@click.argument("name")
def rm(name: str) -> None:
    """Delete model NAME from the cache."""
    from structgen.models.progress import megabytes

    click.echo(f"Removed {name}: {megabytes(models.remove(name))} are free again.")


def _print(as_json: bool, value: Any, text: str) -> None:
    """Print a value as JSON or as text."""
    shown = json.dumps(value, indent=1, default=str, ensure_ascii=False)
    click.echo(shown if as_json else harmless(text))


_HEADINGS = {"generate": "Language models (generate)", "embed": "Embedders (embed)"}
_COLUMNS = ("NAME", "PARAM", "SIZE", "CTX", "VOCAB", "LANGUAGES", "LICENCE", "FROM")
_WIDTHS = (27, 5, 6, 5, 5, 9, 10, 4)
_WIDTH = 80


def table(rows: Sequence[ModelInfo]) -> str:
    """Return the list in 80 columns."""
    lines: list[str] = []
    for task, heading in _HEADINGS.items():
        chosen = [row for row in rows if row.task == task]
        if chosen:
            lines += ["", heading] if lines else [heading]
            lines += [f"  {_line(_COLUMNS)}", *(line for row in chosen for line in _row(row))]
    here = sum(row.here for row in rows)
    return "\n".join(
        [
            *lines,
            "",
            f"* downloaded: {here} of {len(rows)}. For details: `structgen models info NAME`.",
        ]
        if rows
        else ["There is no such model."]
    )


def facts(model: ModelInfo) -> str:
    """Return the facts about one model, a line each."""
    many = {"mul": "many"}
    rows = (
        ("name", model.name),
        ("what", model.summary),
        ("task", model.task),
        ("parameters", _count(model.parameters)),
        ("size", size(model.size)),
        ("context", "" if model.context is None else f"{model.context:,} tokens"),
        ("vocabulary", "" if model.vocabulary is None else f"{model.vocabulary:,} tokens"),
        ("languages", ", ".join(many.get(code, code) for code in model.languages)),
        ("licence", model.licence),
        ("made by", model.origin),
        ("from", model.source),
        ("commit", model.commit),
        ("here", str(model.folder) if model.folder is not None else "no"),
        ("note", model.notes),
    )
    return "\n".join(
        _wrapped(f"{title:<12}{text or 'not known'}", " " * 12)
        for title, text in rows
        if text or title not in ("made by", "commit", "note", "what")
    )


def _choices(found: Mapping[str, ModelInfo | None]) -> str:
    """Return the recommendations for tasks; tasks with the same model are together."""
    lines = []
    for best in dict.fromkeys(found.values()):
        lines.append("")
        lines += [
            f"{task}: {models.catalogue.SUITS[task]}" for task in found if found[task] == best
        ]
        if best is None:
            lines.append("  No model of the catalogue fits into the free memory.")
            continue
        about = f"{_count(best.parameters)} parameters, {size(best.size)}, {best.licence}"
        lines.append(f"  {best.name}: {best.summary} ({about})")
        lines += [f"  {best.notes}."] * bool(best.notes)
        lines.append(f"  {'It is on disk.' if best.here else f'structgen models pull {best.name}'}")
    return "\n".join(_wrapped(line, "  ") for line in lines[1:])


def sizes(usage: Usage) -> str:
    """Return the models on disk, the largest first."""
    rows = sorted(usage.models.items(), key=lambda row: -row[1])
    rows += [(f"{name} (unfinished)", taken) for name, taken in usage.unfinished.items()]
    rows.append(("(tables of tokenizers)", usage.arrays))
    total = sum(taken for _, taken in rows)
    rows.append((f"in total, in {usage.folder}", total))
    rows.append(("free on that disk", usage.free))
    return "\n".join(f"{size(taken):>9}  {name}" for name, taken in rows)


def checks(found: Sequence[Verified]) -> str:
    """Return the results of checks, with the fixes."""
    lines = []
    for one in found:
        verdict = "damaged" if one.problems else "fine"
        lines.append(f"{one.name}: {verdict} ({one.checked} of {one.files} files)")
        lines += [f"  {problem}" for problem in one.problems]
        lines += [f"  Do: {one.cure}"] * bool(one.problems)
    return "\n".join(lines) or "There is no downloaded model."


def size(number: int | None) -> str:
    """Return bytes as readable text, such as 93 MB."""
    if number is None:
        return "?"
    for unit, above in (("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)):
        if number >= above:
            return f"{number / above:.{1 if number < 10 * above else 0}f} {unit}"
    return f"{number} B"


def _row(model: ModelInfo) -> list[str]:
    mark = "* " if model.here else "  "
    cells = (
        model.name,
        _count(model.parameters),
        size(model.size),
        _count(model.context, 1024),
        _count(model.vocabulary),
        _languages(model.languages),
        model.licence or "?",
        "hub" if model.source.startswith("Hugging Face") else "pypi" if model.source else "-",
    )
    if len(model.name) > _WIDTHS[0]:
        return [mark + model.name, "  " + _line(("", *cells[1:]))]
    return [mark + _line(cells)]


def _line(cells: Sequence[str]) -> str:
    right = (1, 2, 3, 4)
    return " ".join(
        cell.rjust(width) if i in right else cell.ljust(width)
        for i, (cell, width) in enumerate(zip(cells, _WIDTHS, strict=True))
    ).rstrip()


def _languages(codes: Sequence[str]) -> str:
    if not codes:
        return "?"
    if codes == ("mul",):
        return "many"
    first = " ".join(codes[:2])
    return first if len(codes) <= 2 else f"{first} +{len(codes) - 2}"


def _count(number: int | None, thousand: int = 1000) -> str:
    """Return a number in two or three digits."""
    if number is None:
        return "?"
    for letter, above in (("B", thousand**3), ("M", thousand**2), ("k", thousand)):
        if number >= above:
            return f"{number / above:.{1 if letter == 'B' else 0}f}{letter}"
    return str(number)


_MARKS = {"problem": "PROBLEM", "warning": "warning", "note": "note"}


@click.command()
@_json_option
def doctor(as_json: bool) -> int:
    """Check this installation; show versions, hardware and problems.

    The exit code is 1 if something will fail, else 0.
    """
    found = models.doctor()
    _print(as_json, {**dataclasses.asdict(found), "is_fine": found.is_fine}, _text(found))
    return 0 if found.is_fine else 1


def _text(health: Health) -> str:
    lines = [_wrapped(f"{title:<11}{value}", " " * 11) for title, value in _facts(health.facts)]
    for finding in health.findings:
        lines += ["", _wrapped(f"{_MARKS[finding.severity]}: {finding.says}", "  ")]
        lines.append(_wrapped(f"  Do: {finding.cure}", "      "))
    problems = sum(finding.severity == "problem" for finding in health.findings)
    verdict = "Nothing will fail." if not problems else f"Problems: {problems}."
    return "\n".join([*lines, "", verdict])


def _facts(facts: Any) -> list[tuple[str, str]]:
    flags = [name for name in ("avx", "avx2", "avx512f", "asimd") if name in facts["instructions"]]
    return [
        ("structgen", facts["structgen"]),
        ("python", facts["python"]),
        ("system", facts["system"]),
        ("packages", ", ".join(f"{name} {version}" for name, version in facts["packages"].items())),
        ("providers", ", ".join(facts["providers"]) or "none"),
        ("processor", f"{facts['processor']}, {facts['cores']} cores, {' '.join(flags)}"),
        ("threads", "one per core for each model (threads= changes that)"),
        ("memory", f"{size(facts['memory'])}, {size(facts['memory_free'])} free"),
        ("cache", facts["cache"]),
        (
            "",
            f"{size(facts['cache_models'])} of models, {size(facts['cache_unfinished'])} "
            f"unfinished, {size(facts['cache_arrays'])} of tables; {size(facts['disk_free'])} free "
            "on the disk",
        ),
        ("models", ", ".join(facts["models"]) or "none"),
    ]


def _wrapped(text: str, indent: str) -> str:
    return textwrap.fill(
        text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
