"""The table of adapters in the docs: what it names is there, and nothing is missing."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.partition("<!-- integrations -->\n")[2].partition("<!--")[0].splitlines()[2:]
]


def test_every_row_is_whole():
    assert len(ROWS) >= 18
    assert all(len(row) == 6 and all(row) for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].partition(":")[0])
def test_what_a_row_names_is_there(row: list[str]):
    adapter, extra = row[:2]
    module = re.fullmatch(r".+: `(structgen[.\w]+)`", adapter)
    assert module
    path = ROOT / f"{module[1].replace('.', '/')}.py"
    folder = path.with_suffix("") / "__init__.py"
    source = (path if path.exists() else folder).read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(source))
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert extra == "none" or f"\n{extra.strip('`')} = [" in project


def test_every_client_and_framework_has_a_row():
    modules = {path.stem for path in (ROOT / "structgen" / "integrations").glob("[a-z]*.py")}
    named = " ".join(row[0] for row in ROWS)
    for module in modules - {"frameworks", "connections"}:
        assert f"structgen.integrations.{module}`" in named, module
    for name in (
        *("openai", "OpenAI Agents SDK", "instructor", "LiteLLM", "DSPy", "smolagents"),
        *("BAML", "Vercel AI SDK"),
    ):
        assert name in named, name
