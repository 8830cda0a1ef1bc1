"""Cache results about context-free grammars on disk, for later processes.

Every compilation of a grammar needs three things: its rules, whether it has dead ends, and the
first mask over a vocabulary. With these, nothing else is built for that mask. Rules are stored only
if the text is self-contained: a grammar that imports files, or gets terminals from outside, is read
each time.

Keys contain the grammar, and the size and date of the files of this package and of Lark, so that
new code never uses old results. There are at most about `MAX_FILES` files; `storage.array_cache`
writes them in the background. Knows no syntax and no automata.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from structgen.grammar import ir
from structgen.storage import array_cache

MAX_FILES = 300
"""The approximate maximum number of files; the oldest are deleted first."""

_ONE_IN = 16
"""One in this many writes, chosen by its key, counts the files, because counting takes longer than
writing."""

_STAGES = ("grammar", "automaton", "vocabulary", "masks")
"""The packages on whose code the stored results depend."""

_FOLDER = "grammars"
_MAX_UNSEEN = 256

_unseen: dict[str, set[str]] = {}
"""Keys of rules that were not on disk, so that nothing else about them is, either; each with the
keys that this process has stored since."""

_ELSEWHERE = re.compile(r"%import(?:\s|\\)*\.")
"""An import from a file beside the grammar, or what looks like one."""


def reads_files(text: str) -> bool:
    """Return whether a Lark text from a file may import others, which may have changed."""
    return _ELSEWHERE.search(text) is not None


def get_or_read(text: str, start: str, read: Callable[[], ir.ContextFree]) -> ir.ContextFree:
    """Return the grammar of a Lark text, from disk if it was read before.

    Cost: 0.3 ms if on disk; otherwise that of ``read``.
    """
    key = _key("rules", _larks_code(), start, text)
    known = array_cache.find(_FOLDER, key, key)
    if known is not None:
        grammar = _decoded(known["grammar"].tobytes())
    else:
        grammar = read()
        if not _is_plain(grammar):
            return grammar
        _keep(key, lambda: {"grammar": np.frombuffer(_encoded(grammar), np.uint8)})
        if len(_unseen) >= _MAX_UNSEEN:
            _unseen.clear()
        _unseen[key] = set()
    return replace(grammar, key=key)


def fingerprint(grammar: ir.ContextFree) -> str | None:
    """Return a key of the grammar's content; None if terminals are not patterns."""
    if grammar.key is not None:
        return grammar.key
    return hashlib.sha256(_encoded(grammar)).hexdigest() if _is_plain(grammar) else None


def find_flag(name: str, of: str) -> bool | None:
    """Return a stored flag, or None.

    Args:
        name: the flag's name.
        of: everything it depends on; first a `fingerprint`.
    """
    row = find_row(name, of)
    return None if row is None else bool(row[0])


def keep_flag(name: str, of: str, holds: bool) -> None:
    """Store a flag for `find_flag`."""
    keep_row(name, of, np.array([holds], np.uint32))


def find_row(name: str, of: str) -> npt.NDArray[np.uint32] | None:
    """Return a stored row of bits, uint32, or None; arguments as for `find_flag`. Read only."""
    key = _key(name, of)
    kept = _unseen.get(of[: len(key)])
    if kept is not None and key not in kept:
        return None
    known = array_cache.find(_FOLDER, key, key)
    return None if known is None else known["array"].astype(np.uint32, copy=False)


def keep_row(name: str, of: str, row: npt.NDArray[np.uint32]) -> None:
    """Store a row for `find_row`. Do not change it afterwards."""
    key = _key(name, of)
    _keep(key, lambda: {"array": row})
    kept = _unseen.get(of[: len(key)])
    if kept is not None:
        kept.add(key)


def _key(*parts: str) -> str:
    return _digest(_code(), *parts)


@functools.lru_cache(maxsize=8)
def _digest(*parts: str) -> str:
    # Missing results are stored soon afterwards.
    data = "".join([f"{len(part)} {part}" for part in parts])
    return hashlib.sha256(data.encode("utf-8", "surrogatepass")).hexdigest()


@functools.cache
def _code() -> str:
    """Return a fingerprint of the code on which the results depend."""
    return _state([str(Path(__file__).parents[2] / stage) for stage in _STAGES])


@functools.cache
def _larks_code() -> str:
    """Return a fingerprint of Lark's code, without importing Lark or a module that reads its
    version: both take longer than the time saved here."""
    spec = importlib.util.find_spec("lark")
    return _state(list(spec.submodule_search_locations or ()) if spec else [])


def _state(folders: list[str]) -> str:
    """Return a fingerprint of the Python files in some folders."""
    found: list[tuple[str, int, int]] = []
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    status = entry.stat()
                    found.append((entry.path, status.st_size, status.st_mtime_ns))
                elif entry.is_dir():
                    folders.append(entry.path)
    return hashlib.sha256(repr(sorted(found)).encode()).hexdigest()


def _keep(key: str, make: Callable[[], array_cache.Arrays]) -> None:
    is_counted = int(key[:4], 16) % _ONE_IN == 0
    folder = array_cache.root() / _FOLDER
    array_cache.keep(_FOLDER, key, key, make, lambda: _count(folder) if is_counted else None)


def _count(folder: Path) -> None:
    """Delete the oldest files beyond `MAX_FILES`."""
    with contextlib.suppress(OSError, RuntimeError):
        with os.scandir(folder) as entries:
            files = list(entries)
        if len(files) > MAX_FILES:
            # Another process may do the same.
            dated: list[tuple[float, str]] = []
            for file in files:
                with contextlib.suppress(OSError):
                    dated.append((file.stat().st_mtime, file.path))
            for _, path in sorted(dated)[: len(dated) - MAX_FILES]:
                with contextlib.suppress(OSError):
                    os.unlink(path)


def _is_plain(grammar: ir.ContextFree) -> bool:
    """Return whether all its terminals are patterns."""
    return all(isinstance(terminal, ir.Terminal) for terminal in grammar.terminals)


def _encoded(grammar: ir.ContextFree) -> bytes:
    """Return a grammar as JSON."""
    terminals = [[t.name, t.pattern] for t in grammar.terminals if isinstance(t, ir.Terminal)]
    return json.dumps(
        [terminals, grammar.nonterminals, grammar.rules, grammar.start, grammar.ignore],
        default=repr,  # for patterns other than Lark's, which are not read again
    ).encode()


def _decoded(data: bytes) -> ir.ContextFree:
    terminals, nonterminals, rules, start, ignore = json.loads(data)
    return ir.ContextFree(
        tuple([ir.Terminal(*fields) for fields in terminals]),
        tuple(nonterminals),
        tuple([(lhs, tuple(rhs)) for lhs, rhs in rules]),
        start,
        tuple(ignore),
    )
