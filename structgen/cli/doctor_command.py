"""The command ``structgen doctor``: arguments and printing."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from structgen.models import Health

_WIDTH = 80
_MARKS = {"problem": "PROBLEM", "warning": "warning", "note": "note"}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def doctor(as_json: bool) -> int:
    """Show versions, processor, cache, and what would go wrong, with the cure.

    The exit code is 1 if something will fail, else 0.
    """
    from structgen import models

    found = models.doctor()
    if as_json:
        shown = {**dataclasses.asdict(found), "is_fine": found.is_fine}
        click.echo(json.dumps(shown, indent=1, default=str, ensure_ascii=False))
    else:
        click.echo(_text(found))
    return 0 if found.is_fine else 1


def _text(health: Health) -> str:
    lines = [_line(title, value) for title, value in _facts(health.facts)]
    for finding in health.findings:
        lines += ["", _wrapped(f"{_MARKS[finding.severity]}: {finding.says}", "  ")]
        lines.append(_wrapped(f"  Do: {finding.cure}", "      "))
    problems = sum(finding.severity == "problem" for finding in health.findings)
    verdict = "Nothing will fail." if not problems else f"Problems: {problems}."
    return "\n".join([*lines, "", verdict])


def _facts(facts: Any) -> list[tuple[str, str]]:
    from .model_tables import size

    flags = [name for name in ("avx", "avx2", "avx512f", "asimd") if name in facts["instructions"]]
    return [
        ("structgen", facts["structgen"]),
        ("python", facts["python"]),
        ("system", facts["system"]),
        ("packages", ", ".join(f"{name} {version}" for name, version in facts["packages"].items())),
        ("providers", ", ".join(facts["providers"]) or "none"),
        ("processor", f"{facts['processor']}, {facts['cores']} cores, {' '.join(flags)}"),
        ("threads", "one a core for each model, unless threads= says otherwise"),
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


def _line(title: str, value: str) -> str:
    return _wrapped(f"{title:<11}{value}", " " * 11)


def _wrapped(text: str, indent: str) -> str:
    return textwrap.fill(
        text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
