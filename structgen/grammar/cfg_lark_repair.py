"""What else is wrong with a Lark text: mistakes taken out of it, one by one.

Lark's loader ends at the first mistake. `without` takes the statement with that mistake out of the
text, so that the loader can be asked again; it is for telling what is wrong, not for use.
`unknown_imports` finds what Lark passes over: names that the imported grammar does not have.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import replace

from ..errors import GrammarError
from . import cfg_embedded, cfg_lark_rules
from .cfg_embedded import Lifted

_STATEMENT = re.compile(
    r"^[ \t]*(?:[?!]*(?P<name>_*[A-Za-z]\w*)(?P<parameters>\{[^}\n]*\})?(?:\.-?\d+)?[ \t]*:|%\w+)",
    re.MULTILINE,
)
_IMPORT = re.compile(
    r"^[ \t]*%import[ \t]+(?P<path>[A-Za-z_][\w.]*)[ \t]*(?:\((?P<names>[^)]*)\))?", re.MULTILINE
)


def without(source: Lifted, error: GrammarError) -> Lifted | None:
    """The text without the statement in which the error is; None where that cannot be told.

    What the statement defined is made up, unless it is defined elsewhere, too. Everything else
    stays where it was.
    """
    if error.line is None:
        return None
    text = source.text
    found, end = None, len(text)
    for statement in _STATEMENT.finditer(text):
        line, _ = cfg_embedded.place(source.original, source.position(statement.start()))
        if line > error.line:
            end = statement.start()
            break
        found = statement
    if found is None:
        return None
    start = found.start()
    text = text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]
    name = found["name"]
    if name and not any(other["name"] == name for other in _STATEMENT.finditer(text)):
        text += f'\n{name}{found["parameters"] or ""}: "x"\n'
    return replace(source, text=text)


def unknown_imports(source: Lifted) -> Iterator[GrammarError]:
    """An error for each name that a grammar of Lark's is asked for and does not have."""
    for statement in _IMPORT.finditer(source.text):
        path, names = statement["path"], statement["names"]
        wanted = [(found[0], found.start()) for found in re.finditer(r"\w+", names or "")]
        begin = statement.start("names")
        if names is None:
            path, _, name = path.rpartition(".")
            wanted, begin = [(name, 0)], statement.end("path") - len(name)
        known = cfg_lark_rules.library_names(tuple(path.split("."))) if path else None
        for name, at in wanted:
            if known is not None and name not in known:
                near = difflib.get_close_matches(name, known, 3, 0.5)
                hint = f" Did you mean {' or '.join(near)}?" if near else ""
                yield source.error(
                    f"There is no {name} in Lark's {path!r} grammar.{hint}", begin + at
                )
