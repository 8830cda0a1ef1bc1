"""Values as HTML tables for notebooks; every text is escaped.

Our classes call `table` or `shown` in ``_repr_html_``. After ``%load_ext structgen``, Pydantic's
objects are shown as tables, too. Knows nothing of outputs or models.
"""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import islice
from typing import Any

_MOST_ROWS = 1000
_STYLE = "text-align:left;vertical-align:top;white-space:pre-wrap"


def table(rows: Iterable[Iterable[Any]], head: Iterable[str] = ()) -> str:
    """Return rows of values as a table; a long one is cut."""
    rows = iter(rows)
    lines = [(one, "td") for one in islice(rows, _MOST_ROWS)]
    lines += [(("…", f"and {left:,} more"), "td")] if (left := sum(1 for _ in rows)) else []
    lines = [(head, "th"), *lines] if head else lines
    return f"<table>{''.join(_line(*line) for line in lines)}</table>"


def _line(cells: Iterable[Any], kind: str) -> str:
    made = (f'<{kind} style="{_STYLE}">{shown(cell)}</{kind}>' for cell in cells)
    return f"<tr>{''.join(made)}</tr>"


def shown(value: Any) -> str:
    """Return a value as HTML: fields, items and entries as a table, anything else as text."""
    own = getattr(type(value), "_repr_html_", None)
    if own is not None:
        return str(own(value))
    parts = _parts(value)
    if parts:
        return table(parts.items())
    return html.escape(str(value)).encode(errors="backslashreplace").decode()


def _parts(value: Any) -> Mapping[Any, Any] | None:
    """Return the parts of a value; None: it has none."""
    kind = type(value)
    if isinstance(value, Mapping):
        return value
    if hasattr(kind, "model_fields"):  # Pydantic, which adds unknown fields
        return dict(value)
    names: Iterable[str] | None = getattr(kind, "__struct_fields__", None)  # msgspec
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
    elif hasattr(kind, "__attrs_attrs__"):
        names = [field.name for field in kind.__attrs_attrs__]
    elif isinstance(value, tuple):
        names = getattr(kind, "_fields", None)
    if names is not None:
        return {name: getattr(value, name) for name in names}
    if isinstance(value, (Sequence, Set)) and not isinstance(value, (str, bytes)):
        return dict(enumerate(value))
    return None


def load_ipython_extension(shell: Any) -> None:
    """Show Pydantic's objects as tables: ``%load_ext structgen``."""
    formatter = shell.display_formatter.formatters["text/html"]
    formatter.for_type_by_name("pydantic.main", "BaseModel", shown)
