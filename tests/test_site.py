"""The site's reference is whole. (`mkdocs build --strict` in .ci/run checks its links.)"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from test_readme import INSTEAD

import structgen
from structgen import errors

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = {path: path.read_text(encoding="utf-8") for path in DOCS.glob("**/*.md")}
DIRECTIVES = {
    name for text in PAGES.values() for name in re.findall(r"^::: structgen\.(\S+)$", text, re.M)
}


def test_every_public_name_has_a_place_in_the_reference() -> None:
    names = {
        name
        for name in structgen.__all__
        if name != "__version__" and not isinstance(getattr(structgen, name), ModuleType)
    }
    assert names - set(vars(errors)) <= DIRECTIVES


def test_what_pages_import_has_a_place_in_the_reference() -> None:
    found = {
        f"{module}.{name}".lstrip(".")
        for text in PAGES.values()
        for module, names in re.findall(r"^from structgen\.(\S+) import ([\w, ]+)$", text, re.M)
        for name in names.split(", ")
    }
    told = {*DIRECTIVES, "types.lower"}  # a step of compiling, which the architecture explains
    assert {name for name in found if not name.startswith("errors.")} <= told


def test_every_error_has_a_cure() -> None:
    told = set(re.findall(r"^(?:\| )?`(\w+)`(?: \|| says)", PAGES[DOCS / "errors.md"], re.M))
    every = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert every - told == {"StructgenError", "OutputTypeError", "ModelError"}


def documented(name: str) -> Iterator[tuple[str, str]]:
    """The docstrings of a public name, and of its members."""
    found: Any = structgen
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            found = importlib.import_module(f"{found.__name__}.{part}")
    members = vars(found) if isinstance(found, (type, ModuleType)) else {}
    for label, one in ((name, found), *members.items()):
        ours = getattr(one, "__module__", None) or "structgen"
        if label[0] != "_" and not isinstance(one, (str, int)) and ours.startswith("structgen"):
            yield f"{name}: {label}", inspect.getdoc(one) or ""


def test_public_names_are_documented_in_plain_english() -> None:
    """Integrations and Ray are left out: importing frameworks takes seconds."""
    found = [
        f"{label}: {match[0]!r}: {instead}"
        for name in sorted(DIRECTIVES)
        if name.split(".")[0] not in ("integrations", "ray")
        for label, text in documented(name)
        for pattern, instead in INSTEAD.items()
        for match in re.finditer(rf"\b({pattern})\b", text)
    ]
    assert not found
