"""Models as text for people: the list in 80 columns, one model's facts, sizes, checks."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from structgen.models import ModelInfo, Usage, Verified

_HEADINGS = {"generate": "Language models (generate)", "embed": "Embedders (embed)"}
_COLUMNS = ("NAME", "PARAM", "SIZE", "CTX", "VOCAB", "LANGUAGES", "LICENCE", "FROM")
_WIDTHS = (27, 5, 6, 5, 5, 9, 10, 4)
_WIDTH = 80


def table(rows: Sequence[ModelInfo]) -> str:
    """The list, in 80 columns."""
    lines: list[str] = []
    for task, heading in _HEADINGS.items():
        chosen = [row for row in rows if row.task == task]
        if chosen:
            lines += ["", heading] if lines else [heading]
            lines += [f"  {_line(_COLUMNS)}", *(line for row in chosen for line in _row(row))]
    here = sum(row.here for row in rows)
    return "\n".join(
        [*lines, "", f"* on disk: {here} of {len(rows)}. `structgen models info NAME` says more."]
        if rows
        else ["There is no such model."]
    )


def facts(model: ModelInfo) -> str:
    """What is known of one model, a line each."""
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
        ("from", model.source),
        ("commit", model.commit),
        ("here", str(model.folder) if model.folder is not None else "no"),
        ("note", model.notes),
    )
    return "\n".join(
        textwrap.fill(
            f"{title:<12}{text or 'not known'}",
            _WIDTH,
            subsequent_indent=" " * 12,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for title, text in rows
        if text or title not in ("commit", "note", "what")
    )


def sizes(usage: Usage) -> str:
    """What is on disk, the largest first."""
    rows = sorted(usage.models.items(), key=lambda row: -row[1])
    rows += [(f"{name} (unfinished)", taken) for name, taken in usage.unfinished.items()]
    rows.append(("(tables of tokenizers)", usage.arrays))
    total = sum(taken for _, taken in rows)
    rows.append((f"in all, in {usage.folder}", total))
    rows.append(("free on that disk", usage.free))
    return "\n".join(f"{size(taken):>9}  {name}" for name, taken in rows)


def checks(found: Sequence[Verified]) -> str:
    """What a check found, with the cure."""
    lines = []
    for one in found:
        verdict = "damaged" if one.problems else "fine"
        lines.append(f"{one.name}: {verdict} ({one.checked} of {one.files} files)")
        lines += [f"  {problem}" for problem in one.problems]
        lines += [f"  Do: {one.cure}"] * bool(one.problems)
    return "\n".join(lines) or "There is no model on disk."


def size(number: int | None) -> str:
    """Bytes as people say them."""
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
    """A number in two or three digits."""
    if number is None:
        return "?"
    for letter, above in (("B", thousand**3), ("M", thousand**2), ("k", thousand)):
        if number >= above:
            return f"{number / above:.{1 if letter == 'B' else 0}f}{letter}"
    return str(number)
