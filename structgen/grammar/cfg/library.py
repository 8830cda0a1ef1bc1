"""The grammar library: context-free grammars in Lark's syntax, by name.

Reads the ``.lark`` files of the folder ``grammars`` (in a wheel: ``structgen/grammars``). Does not
know how a grammar is parsed or compiled. Each file begins with a comment: its first sentence
describes the grammar, the rest its scope and limits. Samples, and the oracle of each grammar, are
in ``tests/grammars``.

The files are written for a recogniser that tries every way to split the text into terminals. So
rules require whitespace between words instead of ignoring it, terminals for names exclude keywords,
and two repeated things always have something between them.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from structgen.errors import OptionError

_PACKAGE = Path(__file__).parents[2]
_INSTALLED = _PACKAGE / "grammars"
"""The library's folder in a wheel; in an editable install and a checkout it is beside the package.
"""

_FOLDER = _INSTALLED if (_INSTALLED / "json.lark").is_file() else _PACKAGE.parent / "grammars"


def names() -> list[str]:
    """Return the names of the grammars, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.lark"))


def text(name: str) -> str:
    """Return the grammar called ``name``, as Lark source text.

    Raises:
        OptionError: unknown grammar; the message suggests similar names.
    """
    # Looked up, not opened: a name is not a path.
    known = names()
    if name not in known:
        parts = [other for other in known if str(name) in other][:5] if name else []
        near = parts or difflib.get_close_matches(str(name), known, 3, 0.5)
        hint = f"Did you mean {' or '.join(near)}?" if near else f"Grammars: {', '.join(known)}."
        raise OptionError(f"There is no grammar called {name!r}. {hint}")
    return (_FOLDER / f"{name}.lark").read_text(encoding="utf-8")


def description(name: str) -> str:
    """Return the first sentence of the grammar's opening comment.

    Raises:
        OptionError: unknown grammar.
    """
    comment = re.match(r"(?://[^\n]*\n)*", text(name))
    assert comment is not None
    words = " ".join(line.removeprefix("//").strip() for line in comment[0].splitlines())
    return re.split(r"(?<=\.)\s", words.strip(), maxsplit=1)[0]
