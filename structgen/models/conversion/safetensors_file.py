"""Read safetensors files: their tensors as float32, one at a time, out of one file or several.

Owns the format, which is simple: eight bytes that say how long a header of JSON is, the header (of
each tensor its type, its shape, and where its bytes are), and the bytes. NumPy has no bfloat16, so
that its numbers are widened here. Knows nothing of models.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from structgen.errors import ConversionError
from structgen.storage.user_folder import inside

FloatArray = npt.NDArray[np.float32]

_WIDTHS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
_LONGEST_HEADER = 100 << 20  # what the format's own reader takes


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tensor is."""

    file: Path
    kind: str
    shape: tuple[int, ...]
    offset: int


class SafetensorsFolder:
    """The tensors of a folder: of ``model.safetensors``, or of all files that its index names.

    Args:
        folder: the folder.

    Raises:
        ConversionError: there are none, or one is damaged or truncated.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self._places: dict[str, _Place] = {}
        for file in self._files():
            self._read_header(file)

    @property
    def tensor_names(self) -> frozenset[str]:
        """Names of all tensors."""
        return frozenset(self._places)

    def tensor_shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor."""
        return self._places[name].shape

    def tensor(self, name: str) -> FloatArray:
        """A tensor's values as float32.

        Raises:
            ConversionError: no such tensor, or one of another type than float.
        """
        place = self._places.get(name)
        if place is None:
            raise ConversionError(f"{self.path} has no tensor {name!r}, which is needed.")
        if place.kind not in _WIDTHS:
            raise ConversionError(
                f"{place.file}: tensor {name!r} is stored as {place.kind}; structgen reads "
                f"{', '.join(_WIDTHS)}. Use a folder that is not quantised."
            )
        kind = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}[place.kind]
        count = math.prod(place.shape)
        values = np.fromfile(place.file, kind, count, offset=place.offset).reshape(place.shape)
        if place.kind == "BF16":
            # The upper half of a float32.
            return (values.astype(np.uint32) << 16).view(np.float32)
        return values.astype(np.float32)

    def _files(self) -> list[Path]:
        index = self.path / "model.safetensors.index.json"
        try:
            if not index.is_file():
                return [self.path / "model.safetensors"]
            names = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
            return [inside(self.path, name) for name in sorted(names)]
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ConversionError(f"{index} cannot be understood: {error!r}.") from error

    def _read_header(self, file: Path) -> None:
        try:
            size = file.stat().st_size
            with file.open("rb") as data:
                (length,) = struct.unpack("<Q", data.read(8))
                if not 2 <= length <= min(size - 8, _LONGEST_HEADER):
                    raise ValueError(f"its header would have {length} bytes")
                header: dict[str, Any] = json.loads(data.read(length))
            for name, about in header.items():
                if name != "__metadata__":
                    self._places[name] = _place(file, about, 8 + length, size)
        except FileNotFoundError as error:
            raise ConversionError(f"{file} is missing. Fetch the folder again.") from error
        except OSError as error:
            raise ConversionError(f"Cannot read {file}: {error}.") from error
        except (
            ArithmeticError,
            AttributeError,
            KeyError,
            RecursionError,
            TypeError,
            ValueError,
            struct.error,
        ) as error:
            raise ConversionError(
                f"{file} is a damaged or truncated safetensors file ({error}). Fetch it again."
            ) from error


def _place(file: Path, about: dict[str, Any], start: int, size: int) -> _Place:
    begin, end = (int(at) for at in about["data_offsets"])
    shape = tuple(int(n) for n in about["shape"])
    width = _WIDTHS.get(about["dtype"])
    if not 0 <= begin <= end <= size - start:
        raise ValueError("it ends before its tensors do")
    if min(shape, default=0) < 0 or max(shape, default=0) > size:
        raise ValueError("a tensor has a shape of no file of this size")
    if width is not None and end - begin != width * math.prod(shape):
        raise ValueError("a tensor has not the bytes of its shape")
    return _Place(file, str(about["dtype"]), shape, start + begin)
