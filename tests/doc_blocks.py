"""The code blocks of documents that a test runs, so that none rots unseen.

`.ci/snippets.py` runs blocks marked ``python``. A block of a package that is not installed there is
marked ``py`` or ``js``, and the comment before it names the test that reads it from the page and
runs it, or says why nothing can:

    <!-- run by tests/server/test_client_retrying.py -->
    <!-- not run: it needs ... -->

test_readme.py holds all documents to that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent

_BLOCK = re.compile(
    r"(?:<!--(?P<note>(?:(?!-->).)*)-->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """A block: its language, its text, and the comment before it."""

    language: str
    text: str
    note: str


def blocks(page: str) -> list[Block]:
    """The blocks of a page, such as ``docs/clients.md``, in order."""
    markdown = (ROOT / page).read_text(encoding="utf-8")
    return [
        Block(found["language"], found["text"], (found["note"] or "").strip())
        for found in _BLOCK.finditer(markdown)
    ]


def block(page: str, beginning: str) -> str:
    """The one block of a page that has a line beginning so."""
    found = [
        one.text
        for one in blocks(page)
        if any(line.startswith(beginning) for line in one.text.splitlines())
    ]
    assert len(found) == 1, f"{len(found)} blocks of {page} have a line beginning {beginning!r}"
    return found[0]


def run(
    page: str, beginning: str, names: dict[str, Any], instead: Mapping[str, str] | None = None
) -> None:
    """Run that block of Python in these names.

    Args:
        page: the document.
        beginning: of a line of the block.
        names: what the block finds, and what it leaves.
        instead: what the test has in place of what the page shows, such as the name of a model.
    """
    text = block(page, beginning)
    for theirs, ours in (instead or {}).items():
        assert theirs in text, f"{page} no longer has {theirs!r}"
        text = text.replace(theirs, ours)
    exec(compile(text, page, "exec", dont_inherit=True), names)
