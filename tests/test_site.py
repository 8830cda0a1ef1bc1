"""The site's reference is whole. (`mkdocs build --strict` in .ci/run checks its links.)"""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

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
