"""Files that commands read and write, and errors about them. It knows nothing of what they hold."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from structgen.errors import OptionError


def text_in(file: str, shown: str) -> str:
    """The text of a file in UTF-8, or of standard input, ``-``; line ends read as everywhere."""
    try:
        text = bytes_in(file, shown).decode("utf-8-sig")
    except ValueError as error:
        raise OptionError(f"{shown} is not UTF-8: {error}.") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def bytes_in(file: str, shown: str) -> bytes:
    """What is in a file, or comes from standard input, ``-``."""
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except FileNotFoundError:
        raise OptionError(f"{shown}: there is no such file.") from None
    except OSError as error:
        raise OptionError(f"{shown} cannot be read: {error.strerror}.") from None


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which takes the name once it is whole; a pipe or device is written as it is.

    Raises:
        OSError: it cannot be written; a file of that name is as it was.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    path = path.resolve()  # a link goes on leading to it
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            yield file
        if path.exists():
            temporary.chmod(path.stat().st_mode)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
