"""Runs every ``python`` block of README.md and docs/*.md, file by file, block after block.

The blocks of one file share their names, as a reader would type them into one session. A ``text``
block right after a ``python`` block shows its output; since a model's words may differ from one
processor to the next, a difference is printed but is no failure. An exception is one.

    python .ci/snippets.py [FILE.md ...]
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent


class Block(NamedTuple):
    """One fenced block: its language, text, and the 0-based line of the text's first line."""

    language: str
    text: str
    line: int


def blocks(markdown: str) -> list[Block]:
    """The fenced code blocks of a document, in order."""
    found: list[Block] = []
    lines = markdown.splitlines(keepends=True)
    start: int | None = None
    for number, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if start is None:
            start = number
        else:
            language = lines[start].strip().removeprefix("```")
            found.append(Block(language, "".join(lines[start + 1 : number]), start + 1))
            start = None
    return found


def run(path: Path) -> bool:
    """Run the blocks of one file; True if none raised."""
    names: dict[str, object] = {"__name__": "__main__"}
    found = blocks(path.read_text(encoding="utf-8"))
    for block, following in zip(found, [*found[1:], None], strict=True):
        if block.language != "python":
            continue
        where = f"{path.relative_to(ROOT)}:{block.line + 1}"
        # Blank lines in front make line numbers in a traceback those of the document.
        source = "\n" * block.line + block.text
        output = io.StringIO()
        start = time.perf_counter()
        try:
            with contextlib.redirect_stdout(output):
                exec(compile(source, str(path), "exec", dont_inherit=True), names)
        except BaseException:
            print(f"{where}: FAILED\n{output.getvalue()}")
            traceback.print_exc(file=sys.stdout)
            return False
        print(f"{where}: {time.perf_counter() - start:.1f} s")
        print("".join(f"    {line}\n" for line in output.getvalue().splitlines()), end="")
        if (
            following is not None
            and following.language == "text"
            and following.text.strip() != output.getvalue().strip()
        ):
            print(f"{where}: note: the document shows another output")
    return True


def main() -> int:
    """Run the files named on the command line, or all of them."""
    chosen = [Path(name).resolve() for name in sys.argv[1:]]
    files = chosen or [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        results = [run(path) for path in files]
    print(f"{sum(results)} of {len(results)} files ran")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
