"""README and docs: what they promise exists. (.ci/snippets.py runs their code, with the model.)"""

from __future__ import annotations

import itertools
import re
import runpy
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest
from doc_blocks import blocks

from structgen.automaton.json import arrays, closing, numbers, values
from structgen.automaton.json.options import JsonOptions
from structgen.automaton.regex import expressions, symbols
from structgen.automaton.schema import array_spec, branches, member_ways, rule_reader, rules
from structgen.cli.model_commands import shelf
from structgen.grammar import formats
from structgen.grammar.json_schema import dialects, read
from structgen.grammar.regex import read as regex
from structgen.grammar.regex import tree
from structgen.models.conversion.decoder import FAMILIES
from structgen.options import OPTIONS
from structgen.remote.dialects import DIALECTS, DialectName
from structgen.runner import CodeExecutionConfig, SandboxPolicy
from structgen.server import Settings
from structgen.types.ready import OFFERED

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
LIMITS = {
    "levels of a schema": (500,),
    "subschemas that it reaches": (read.MAX_NODES,),
    "the value of one member": (member_ways.MAX_TOLD_APART,),
    "multiply out to": (branches.MAX_BRANCHES,),
    "overlapping branches": (branches.MAX_SUBSETS,),
    "conditional patterns": (rule_reader.MAX_CONDITIONAL_PATTERNS,),
    "`multipleOf` under": (numbers.MAX_NON_MULTIPLES,),
    "characters, and nested groups": (regex.MAX_PATTERN_LENGTH, tree.MAX_DEPTH),
    "`minLength` beside": tuple(
        formats.FORMATS[name].most_least for name in ("idn-email", "idn-hostname")
    ),
    "states of a pattern": (expressions.MAX_NODES, expressions.MAX_SIZE),
    "no longer than a pattern's shortest": (symbols.MAX_PROBED, symbols.MAX_PROBED_A_CHARACTER),
    "bytes of these states": (symbols.MAX_PROBED_BYTES,),
    "states in use": (
        expressions.ROOM * expressions.MAX_NODES,
        expressions.ROOM * expressions.MAX_SIZE,
    ),
    "in one `enum`": (values.MAX_CONTAINERS,),
    "`minItems`": (array_spec.MAX_ITEMS_OWED, closing.MAX_MEMBERS_OWED),
    "choose an object's members": (closing.MAX_SEARCH,),
    "satisfy `contains`": (arrays.MAX_SEARCH,),
    "rules on an object's members": (rules.MAX_RULES,),
}
"""What a line of the table of limits is about, and its figures."""

TEST_COMMAND = "pip install '.[test]' && pytest"


def test_readme_shows_the_two_commands_that_ci_runs() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert "pip install . && structgen demo" in readme
    assert TEST_COMMAND in readme
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert f'bash -c "{TEST_COMMAND}"' in ci
    assert "structgen demo" in ci


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_block_of_code_is_run_by_something(document: Path) -> None:
    """`.ci/snippets.py` runs those marked ``python``; a comment before others says what does."""
    page = document.relative_to(ROOT)
    for one in blocks(str(page)):
        if one.language in ("py", "js", "ts"):
            told = re.fullmatch(r"run by (tests/\S+\.py)|not run: .+", one.note, re.DOTALL)
            first = one.text.splitlines()[0]
            assert told is not None, f"{page}: nothing is said to run the block {first!r}"
            if told[1]:
                reader = (ROOT / told[1]).read_text(encoding="utf-8")
                assert f'"{page}"' in reader, f"{told[1]} does not read {page}"
                asked = re.findall(r'"([^"\n]{8,})"', reader)
                found = any(
                    line.startswith(begin) for begin in asked for line in one.text.splitlines()
                )
                assert found, f"{told[1]} asks for no block with a line of {first!r}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not re.match(r"[a-z]+:", target):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def snippets() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / ".ci" / "snippets.py"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_models_words_have_a_form_that_holds_on_every_processor(document: Path) -> None:
    for block in snippets()["blocks"](document.read_text(encoding="utf-8")):
        if block.language == "text model":
            assert block.form, f"{document.name}:{block.line}"
            compile(re.sub(r"\n\s*", " ", block.form.strip()), document.name, "eval")


def test_another_form_is_told() -> None:
    markdown = "<!-- form: matches('[a-z]+') and\n   len(lines) == n -->\n```text model\nabc\n```\n"
    (block,) = snippets()["blocks"](markdown)
    misshapen = snippets()["misshapen"]
    assert misshapen("xyz\n", block.form, {"n": 1}) is None
    assert "is not of the form" in misshapen("xyz1\n", block.form, {"n": 1})
    assert "is not of the form" in misshapen("xyz\n", block.form, {"n": 2})
    assert "NameError" in misshapen("xyz\n", block.form, {})
    assert "no comment" in misshapen("xyz\n", None, {})


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_python_blocks_compile(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    assert len(re.findall("^```", text, re.MULTILINE)) % 2 == 0
    for block in re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        compile(block, document.name, "exec")


def test_license_is_the_one_the_package_declares() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def table(document: str, heading: str) -> list[list[str]]:
    """The cells of the first table under a heading of a document, without its head."""
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = section.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("|"))
    rows = [line.strip("| ") for line in itertools.takewhile(bool, lines[first:])]
    return [[cell.strip() for cell in row.split(" | ")] for row in rows[2:]]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_documented_keywords_are_those_the_code_enforces() -> None:
    documented = [name for row in table("json-schema.md", "Keywords") for name in names(row[1])]
    known = set().union(*(dialect.assertions for dialect in dialects.DIALECTS.values()))
    assert sorted(documented) == sorted(known)


def test_documented_formats_are_those_the_code_enforces() -> None:
    documented = [name for row in table("json-schema.md", "Formats") for name in names(row[0])]
    assert sorted(documented) == sorted(formats.FORMATS)


def test_documented_json_options_are_those_there_are_with_their_defaults() -> None:
    documented = {
        names(row[0])[0]: eval(names(row[1])[0]) for row in table("json-schema.md", "Options")
    }
    assert documented == {field.name: field.default for field in fields(JsonOptions)}


def test_documented_search_options_are_those_there_are() -> None:
    rows = table("getting-started.md", "Options of a call")
    documented = {name for row in rows for name in names(row[0])}
    assert documented == set(OPTIONS)


def test_documented_ready_made_types_are_those_there_are() -> None:
    rows = table("output-types.md", "Ready-made types")
    assert {name for row in rows for name in re.findall(r"`(\w+)", row[0])} == set(OFFERED)


def test_documented_families_of_models_are_those_that_are_converted() -> None:
    rows = table("models.md", "Converting a model")
    assert {name for row in rows for name in names(row[0])} == {*FAMILIES, "whisper"}


def test_every_adapter_has_a_section() -> None:
    page = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
    adapters = {path.stem for path in (ROOT / "structgen" / "integrations").glob("[a-z]*.py")}
    shared = {"connections", "frameworks"}
    assert {name for name in adapters if f"structgen.integrations.{name}" not in page} == shared


def test_documented_settings_of_the_server_are_those_there_are() -> None:
    documented = [name for row in table("server.md", "Settings") for name in names(row[0])]
    assert sorted(documented) == sorted(Settings.model_fields)


def test_documented_options_of_remote_models_are_those_that_servers_have() -> None:
    documented = {name for row in table("remote.md", "Options") for name in names(row[0])}
    assert documented == {n for n, option in OPTIONS.items() if not isinstance(option.remote, str)}


def test_documented_dialects_of_servers_are_those_there_are() -> None:
    documented = [eval(names(row[0])[0]) for row in table("remote.md", "Dialects")]
    assert documented == [*DIALECTS] == [*get_args(DialectName)]


def test_documented_limits_of_code_are_those_there_are() -> None:
    text = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
    section = text.partition("\n## Code execution\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE)
    documented = sorted(name for row in rows for name in names(row))
    kinds = (CodeExecutionConfig, SandboxPolicy)
    assert documented == sorted(
        name for kind in kinds for name in (kind.__name__, *(one.name for one in fields(kind)))
    )


def test_documented_commands_for_models_are_those_there_are() -> None:
    rows = table("models.md", "Commands and functions")
    documented = [re.sub("^`structgen models ([a-z-]+)[^|]*|.*", r"\1", row[0]) for row in rows]
    assert sorted(filter(None, documented)) == sorted(shelf.commands)


def test_the_limits_are_those_of_the_code() -> None:
    text = (ROOT / "docs" / "json-schema.md").read_text(encoding="utf-8")
    table = text[text.index("## Limits") :]
    rows = re.findall(r"^\| ([^|]*[a-z`]) \| ([^|]*[0-9]) \|$", table, re.MULTILINE)
    assert len(rows) == len(LIMITS)
    for about, figures in LIMITS.items():
        (told,) = [told for row, told in rows if about in row]
        assert [
            int(n) for n in told.replace(",", "").replace("and", "").replace(";", "").split()
        ] == [*figures]


INSTEAD = {
    r"(is|are|was|were|be) told(?! apart)": "say who writes, reports or raises it",
    r"(go|goes|going|gone|went) on": "continue, keep running, retry",
    r"anew": "again",
    r"gives? out": "yield, return",
    r"(of|by) what": "name the thing",
    r"stands? (still|in|at|before|behind|beside|there)": "is, waits, comes before",
    r"is had|are had": "there is",
    r"in words of": "in",
    r"so (many|much) [a-z]+": "this many, the number of",
}
"""Patterns, and what to write instead."""


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_pages_are_written_in_plain_english(document: Path) -> None:
    text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.M | re.S)
    found = [
        f"{match[0]!r}: {instead}"
        for pattern, instead in INSTEAD.items()
        for match in re.finditer(rf"\b({pattern})\b", text)
    ]
    assert not found
