"""The table of adapters: the docs show what the code says, and what it names is there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from structgen.integrations import INTEGRATIONS, Integration, table

ROOT = Path(__file__).resolve().parents[2]


def test_the_docs_show_this_table():
    page = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
    shown = page.partition("<!-- integrations -->\n")[2].partition("<!-- /integrations -->")[0]
    assert shown == table(), "paste structgen.integrations.table() between the two comments"


@pytest.mark.parametrize("one", INTEGRATIONS, ids=lambda one: one.module.rpartition(".")[2])
def test_what_a_row_names_is_there(one: Integration):
    path = ROOT / f"{one.module.replace('.', '/')}.py"
    folder = path.with_suffix("") / "__init__.py"
    source = (path if path.exists() else folder).read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(source))
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert not one.extra or f"\n{one.extra} = [" in project
    for cell in (one.enforced, one.validated, one.unsupported, one.tried):
        assert cell
        assert "|" not in cell


def test_every_client_and_framework_has_a_row():
    names = " ".join(one.name for one in INTEGRATIONS)
    for name in (
        *("NumPy", "Transformers", "llama-cpp-python", "vLLM"),
        *("pydantic-ai", "LangChain", "LlamaIndex", "llm", "MCP"),
        *("openai", "OpenAI Agents SDK", "instructor", "LiteLLM", "DSPy", "smolagents"),
        *("BAML", "Vercel AI SDK"),
    ):
        assert name in names, name
