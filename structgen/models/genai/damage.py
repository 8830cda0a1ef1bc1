"""Whether a model's files are whole, found before the runtime stumbles over it.

It owns a look at an ONNX file's references to its data file. The runtime finds a
data file that is too short only after it has printed an error of its own, and describes it by its
own source code. It knows nothing of the runtime itself.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

# Fields of ONNX's protocol buffers: a model's graph, a graph's weights, where a weight's data are.
_GRAPH, _INITIALIZER, _EXTERNAL_DATA, _KEY, _VALUE = 7, 5, 13, 1, 2


def damage(folder: Path, config: Mapping[str, Any]) -> str | None:
    """Say which file of a model's data is missing or too short; None: none is, or it is not known.

    Cost: a millisecond or so for each megabyte of the graph, which is small beside its data.
    """
    decoder = config["model"].get("decoder")
    name = decoder.get("filename") if isinstance(decoder, Mapping) else None
    if not isinstance(name, str):
        return None
    needed: dict[str, int] = {}
    try:
        for location, end in _references(folder / name):
            needed[location] = max(needed.get(location, 0), end)
    except FileNotFoundError:
        return f"{folder / name} is missing."
    except (OSError, ValueError, IndexError):
        return None  # the runtime says what is wrong
    for location, size in needed.items():
        file = folder / location
        if not file.is_file():
            return f"{file} is missing."
        if file.stat().st_size < size:
            return (
                f"{file} is damaged: it has {file.stat().st_size:,} bytes of the {size:,} that "
                f"{name} refers to."
            )
    return None


def _references(path: Path) -> Iterator[tuple[str, int]]:
    """The parts of data files that a graph's weights are read from: name, and where each ends."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for graph in _fields(data, 0, len(data), _GRAPH):
            for weight in _fields(data, *graph, _INITIALIZER):
                entries = {}
                for entry in _fields(data, *weight, _EXTERNAL_DATA):
                    ((start, end),) = _fields(data, *entry, _KEY)
                    ((first, last),) = _fields(data, *entry, _VALUE)
                    entries[data[start:end]] = data[first:last]
                if b"location" in entries:
                    end = int(entries.get(b"offset", 0)) + int(entries.get(b"length", 0))
                    yield entries[b"location"].decode(), end


def _fields(data: mmap.mmap, at: int, end: int, wanted: int) -> Iterator[tuple[int, int]]:
    """Where the fields of one number begin and end in a message of a protocol buffer."""
    while at < end:
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 0:
            _, at = _varint(data, at)
            continue
        if kind == 2:
            length, at = _varint(data, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError(f"no field of kind {kind}")
        if at + length > end:
            raise ValueError("a field that is cut off")
        if kind == 2 and tag >> 3 == wanted:
            yield at, at + length
        at += length


def _varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
