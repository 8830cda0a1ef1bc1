"""The first lines of a GGUF file: what kind of model it holds, without reading its tokenizer.

The ``gguf`` package reads all of a file's metadata, a word list of 150,000 strings among them,
which takes 15 s. What the converter refuses by its kind is told before that. It owns this one look
and knows nothing else of the format; a header it cannot follow is the package's to complain about.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_STRING, _ARRAY = 8, 9
_LONGEST = 1 << 20


def architecture_of(path: Path) -> str | None:
    """The ``general.architecture`` of a GGUF file; None: it has none, or cannot be followed.

    Cost: nothing to speak of, as the key comes first in practice.
    """
    try:
        with path.open("rb") as file:
            _, version, _, n_keys = struct.unpack("<4sIQQ", file.read(24))
            if version not in (2, 3):
                return None
            for _ in range(n_keys):
                key = _string(file)
                (kind,) = struct.unpack("<I", file.read(4))
                if key == b"general.architecture" and kind == _STRING:
                    return _string(file).decode()
                _skip(file, kind)
    except (OSError, ValueError, KeyError, RecursionError, struct.error):
        pass
    return None


def _string(file: BinaryIO) -> bytes:
    (length,) = struct.unpack("<Q", file.read(8))
    if length > _LONGEST:
        raise ValueError("no string is so long")
    return file.read(length)


def _skip(file: BinaryIO, kind: int) -> None:
    """Pass over a value."""
    if kind == _STRING:
        _string(file)
    elif kind == _ARRAY:
        inner, count = struct.unpack("<IQ", file.read(12))
        if inner in _SIZES:
            file.seek(_SIZES[inner] * count, 1)
        else:
            for _ in range(count):
                _skip(file, inner)
    else:
        file.seek(_SIZES[kind], 1)
