"""README and docs: what they promise exists. (.ci/snippets.py runs their code, with the model.)"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
TEST_COMMAND = "pip install '.[test]' && pytest"


def test_readme_shows_the_two_commands_that_ci_runs() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert "pip install . && structgen demo" in readme
    assert TEST_COMMAND in readme
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert f'bash -c "{TEST_COMMAND}"' in ci
    assert "structgen demo" in ci


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not re.match(r"[a-z]+:", target):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_python_blocks_compile(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    assert text.count("```") % 2 == 0
    for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        compile(block, document.name, "exec")


def test_license_is_the_one_the_package_declares() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
