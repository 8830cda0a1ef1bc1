"""What a Lark text may import, and mistakes in its imports.

Owns which grammars and names there are to import from: those that come with Lark, and files beside
the grammar's own file. A text that comes from no file may be a stranger's, so it reads no file.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator

from structgen.errors import GrammarError
from structgen.grammar.cfg.embedded import Lifted

from .statements import Mistake, Statement, imports, near, statements
from .syntax import Token

_LIBRARY = ("common", "lark", "python", "unicode")
_MOST_SHOWN = 40


def file_of(statement: Statement, path: str | None) -> str | None:
    """The file that a relative import reads, if there is one.

    Args:
        statement: the import.
        path: the file of the grammar that has it; None: it has none, and reads none.
    """
    if path is not None and statement.body[:1] and statement.body[0].kind == ".":
        names = [token.text for token in imports(statement)[0]]
        file = os.path.join(os.path.dirname(path), *names) + ".lark"
        if names and os.path.isfile(file):
            return file
    return None


def file_text(file: str) -> str:
    """What a file says, but for a byte order mark."""
    with open(file, encoding="utf-8-sig") as stream:
        return stream.read()


def text_for_lark(base: object, name: str, path: str | None) -> tuple[str, str]:
    """The path and text of a file that Lark is about to import.

    Lark would read it by itself, with a byte order mark as a part of the text; and where it finds
    nothing, it would open ``name`` in the working directory.

    Args:
        base: the folder of the file that imports it; else the grammar comes with Lark.
        name: its path from there.
        path: the file of the grammar that is read; None: it has none, and reads none.

    Raises:
        GrammarError: there is none, or it may not be read.
        FileNotFoundError: it comes with Lark, which is to read it.
    """
    missing = GrammarError(f"There is no grammar {name!r} to import from.")
    if isinstance(base, str) and path is None:
        raise missing
    try:
        if isinstance(base, str):
            file = os.path.join(base, name)
            return file, file_text(file)
        _library_text([name.removesuffix(".lark")])
    except (OSError, ValueError):
        raise missing from None
    raise FileNotFoundError(name)


def mistakes_in(statement: Statement, source: Lifted, path: str | None) -> Iterator[Mistake]:
    """What is wrong with one import."""
    place, wanted = imports(statement)
    names = [token.text for token in place]
    shown, last = ".".join(names), statement.body[-1]
    if not place:
        message = (
            "%import needs the name of a grammar and what is wanted of it, and has one name only. "
            f"Write %import {last.text}.NAME."
        )
        yield Mistake.at(last, message, source, statement)
        return
    file = file_of(statement, path)
    is_relative = statement.body[0].kind == "."
    known = None if file is None and is_relative else _names(names if file is None else file)
    if known is None and file is None:
        if is_relative and path is None:
            message = (
                f"%import .{shown} reads a file beside the grammar's own file, and this grammar is "
                "given as a text. Pass its file instead, Cfg(Path(...)), or write here what it "
                "imports."
            )
        elif is_relative:
            where = os.path.dirname(path or "") or "."
            message = (
                f"There is no {os.path.join(*names)}.lark in {where} to import from. Names with a "
                "dot in front are files beside the grammar's."
            )
        else:
            close = difflib.get_close_matches(names[0], _LIBRARY, 1)
            hint = f"Did you mean {close[0]}? Those" if close else "Those"
            message = (
                f"There is no grammar {shown!r} that comes with Lark. {hint} that do are "
                f"{', '.join(_LIBRARY)}; a file beside the grammar's is imported as .{shown}."
            )
        yield Mistake.at(place[0], message, source, statement)
        return
    whose = f"Lark's {shown!r} grammar" if file is None else f"{file}"
    for name, alias in wanted:
        if known is not None and name.text not in known:
            hint = near(name.text, known, 0.5)
            if not hint and len(known) <= _MOST_SHOWN:
                hint = f" It has {', '.join(sorted(known))}."
            message = f"There is no {name.text} in {whose}.{hint}"
            yield Mistake.at(name, message, source, statement, passes=True)
        elif alias is not None and alias.kind != name.kind:
            kinds = ("rule", "lower") if name.kind == "rule" else ("terminal", "upper")
            message = (
                f"{name.text} is a {kinds[0]}, so the name that it gets here, {alias.text}, has to "
                f"be in {kinds[1]} case."
            )
            yield Mistake.at(alias, message, source, statement, passes=True)


def mistakes_between(found: Iterable[Statement], source: Lifted) -> Iterator[Mistake]:
    """Imports that clash: of two names for one thing Lark knows the last only."""
    under: dict[tuple[str, ...], tuple[Token, str]] = {}
    named: dict[str, tuple[str, ...]] = {}
    for statement in found:
        if statement.kind != "import":
            continue
        path, wanted = imports(statement)
        relative = statement.body[0].text if statement.body[0].kind == "." else ""
        for name, alias in wanted:
            what = (relative, *(token.text for token in path), name.text)
            called = (alias or name).text
            shown = ".".join(what[1:])
            if under.setdefault(what, (name, called))[1] != called:
                message = (
                    f"{shown} is imported under two names, {under[what][1]} and {called}, and "
                    "Lark keeps one. Import it once, and define the other by it."
                )
                yield Mistake.at(name, message, source, statement)
            elif named.setdefault(called, what) != what:
                message = (
                    f"{called} is imported from two grammars. Give one of them another name: "
                    f"%import {shown} -> OTHER."
                )
                yield Mistake.at(alias or name, message, source, statement)


def _names(where: list[str] | str) -> set[str] | None:
    """What a grammar in a file, or one that comes with Lark, has; None if it cannot be read."""
    try:
        text = file_text(where) if isinstance(where, str) else _library_text(where)
    except (OSError, ValueError):
        return None
    return {name for statement in statements(text) for name, _ in statement.defines}


def _library_text(names: list[str]) -> str:
    """The text of a grammar that comes with Lark.

    Raises:
        OSError: there is none.
    """
    from importlib import resources

    folder = resources.files("lark") / "grammars"
    return folder.joinpath("/".join(names) + ".lark").read_text("utf-8")
