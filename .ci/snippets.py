"""Runs every ``python`` block of README.md and docs/*.md, file by file, and every example.

The blocks of one file share their names, as a reader would type them into one session. A ``text``
block right after a ``python`` block shows its output, to the letter. Marked ``text model`` it holds
a model's words, which may differ from one processor to the next: a difference is then printed but
is no failure, and the document has to tell its readers so. What holds on every processor is its
form, which a comment before the block says:

    <!-- form: len(lines) == 2 and Landmark.model_validate_json(lines[0]) -->

an expression over the names of the session, ``text`` (the output), its ``lines`` and
``matches(pattern)`` (whether all of it matches). It has to be true of the output and of what the
document shows.
An exception always is a failure.

    python .ci/snippets.py [--write] [FILE ...]

``--write`` puts the real outputs into the documents instead of comparing.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import json
import os
import re
import runpy
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
NOT_IN_CI = ("rapidocr",)
"""Packages that an example needs and that are too large to install for it."""

MAY_DIFFER = "may differ on another processor"


class Block(NamedTuple):
    """One fenced block: language, text, the 0-based line of the text's first line, and form."""

    language: str
    text: str
    line: int
    form: str | None


def blocks(markdown: str) -> list[Block]:
    """The fenced code blocks of a document, in order."""
    found: list[Block] = []
    lines = markdown.splitlines(keepends=True)
    start: int | None = None
    end = 0
    for number, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if start is None:
            start = number
        else:
            language = lines[start].strip().removeprefix("```")
            form = re.search(r"<!-- form:(.*?)-->", "".join(lines[end:start]), re.DOTALL)
            text = "".join(lines[start + 1 : number])
            found.append(Block(language, text, start + 1, None if form is None else form[1]))
            start, end = None, number
    return found


def misshapen(text: str, form: str | None, names: dict[str, object]) -> str | None:
    """What is wrong with the form of a model's words; None: nothing."""
    if form is None:
        return "has no comment that says its form: <!-- form: matches('.+') -->"
    known = {
        "json": json,
        "re": re,
        **names,
        "text": text,
        "lines": text.splitlines(),
        "matches": lambda pattern: re.fullmatch(pattern, text.strip("\n")) is not None,
    }
    source = re.sub(r"\n\s*", " ", form.strip())
    try:
        return None if eval(source, known) else f"is not of the form {source}:\n{text}"
    except Exception as error:
        return f"is not of the form {source} ({type(error).__name__}: {error}):\n{text}"


def run(path: Path, write: bool) -> bool:
    """Run the blocks of one file; True if none raised and all exact outputs are as shown."""
    names: dict[str, object] = {"__name__": "__main__"}
    markdown = path.read_text(encoding="utf-8")
    found = blocks(markdown)
    outputs: list[tuple[Block, str]] = []
    good = MAY_DIFFER in markdown or all(block.language != "text model" for block in found)
    if not good:
        print(f"{path.relative_to(ROOT)}: FAILED: does not say that a model's words {MAY_DIFFER}")
    for number, block in enumerate(found):
        following = found[number + 1] if number + 1 < len(found) else None
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
        text = "".join(f"{line.rstrip()}\n" for line in output.getvalue().splitlines())
        print(f"{where}: {time.perf_counter() - start:.1f} s")
        if following is None or not following.language.startswith("text"):
            print("".join(f"    {line}\n" for line in text.splitlines()), end="")
            continue
        if following.language == "text model":
            shown = (
                [("its output", text)]
                if write
                else [("its output", text), ("what the document shows", following.text)]
            )
            for what, words in shown:
                wrong = misshapen(words, following.form, names)
                if wrong is not None:
                    print(f"{where}: FAILED: {what} {wrong}")
                    good = False
        if write:
            outputs.append((following, text))
        elif following.text != text:
            exact = following.language == "text"
            good = good and not exact
            level = "FAILED: shows" if exact else "note: shows"
            print(f"{where}: {level} another output than it has (- document, + now)")
            for line in difflib.ndiff(following.text.splitlines(), text.splitlines()):
                print(f"    {line}")
    if outputs:
        lines = markdown.splitlines(keepends=True)
        for block, text in reversed(outputs):
            lines[block.line : block.line + len(block.text.splitlines())] = [text]
        path.write_text("".join(lines), encoding="utf-8")
    return good


def run_example(path: Path) -> bool:
    """Run a script; True if it raised nothing."""
    start = time.perf_counter()
    output = io.StringIO()
    sys.argv = [str(path)]
    try:
        with contextlib.redirect_stdout(output):
            runpy.run_path(str(path), run_name="__main__")
    except BaseException as error:
        if isinstance(error, ModuleNotFoundError) and error.name in NOT_IN_CI:
            print(f"{path.relative_to(ROOT)}: NOT TESTED: {error.name} is not installed")
            return True
        print(f"{path.relative_to(ROOT)}: FAILED\n{output.getvalue()}")
        traceback.print_exc(file=sys.stdout)
        return False
    print(f"{path.relative_to(ROOT)}: {time.perf_counter() - start:.1f} s")
    return True


def main() -> int:
    """Run the files named on the command line, or all of them."""
    parser = argparse.ArgumentParser(description="Run the python blocks of the documents.")
    parser.add_argument("--write", action="store_true", help="put the outputs into the documents")
    parser.add_argument(
        "files", nargs="*", type=Path, help="default: README.md, docs/*.md, examples/*.py"
    )
    arguments = parser.parse_args()
    files = [path.resolve() for path in arguments.files]
    files = files or [
        ROOT / "README.md",
        *sorted((ROOT / "docs").glob("**/*.md")),
        *sorted((ROOT / "examples").glob("*.py")),
    ]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.path.append(str(ROOT / "tests" / "remote"))  # where docs/remote.md has its server from
        results = [
            run_example(path) if path.suffix == ".py" else run(path, arguments.write)
            for path in files
        ]
        os.chdir(ROOT)
    print(f"{sum(results)} of {len(results)} files ran")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
