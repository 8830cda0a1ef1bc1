"""Files that commands read, and errors about them. It knows nothing of what they hold."""

from __future__ import annotations

import sys
from pathlib import Path

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
