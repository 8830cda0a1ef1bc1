"""Read a GGUF file: its metadata, and its tensors as float32, one at a time.

Owns what goes wrong when such a file is opened. What the keys and tensors of a language model mean
is `gguf_decoder`'s. Knows nothing of ONNX, quantisation for the runtime, or tokenizers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from structgen.errors import ConversionError

from .families import FAMILIES, MODELS
from .gguf_header import architecture_of

FloatArray = npt.NDArray[np.float32]


class GgufFile:
    """An opened GGUF file (memory-mapped; nothing is read before it is asked for).

    Args:
        path: the file.

    Raises:
        ConversionError: no GGUF file, a damaged or truncated one, or one split in several parts.
    """

    def __init__(self, path: str | Path) -> None:
        # Imported here: `import structgen.models` must not pay for gguf.
        from gguf import GGUFReader

        self.path = Path(path)
        try:
            with self.path.open("rb") as file:
                magic = file.read(4)
        except OSError as error:
            raise ConversionError(f"Cannot read the GGUF file {self.path}: {error}.") from error
        if magic != b"GGUF":
            raise ConversionError(
                f"{self.path} is not a GGUF file: it starts with {magic!r}, not b'GGUF'. "
                "Pass the .gguf weights themselves."
            )
        check_family(self.path, architecture_of(self.path))
        try:
            self._reader = GGUFReader(self.path)
        except Exception as error:  # the reader raises whatever NumPy raises on a short file
            raise ConversionError(
                f"{self.path} is a damaged or truncated GGUF file ({error}). Fetch it again."
            ) from error
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        if int(self.get("split.count", 1)) > 1:
            raise ConversionError(
                f"{self.path} is one part of a model split in {self.get('split.count')} files. "
                "Merge them first, with llama.cpp's `llama-gguf-split --merge`."
            )

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a metadata key as plain Python (str, int, float, bool or list)."""
        field = self._reader.get_field(key)
        return default if field is None else field.contents()

    def require(self, key: str) -> Any:
        """Like :meth:`get`, for keys that must be there.

        Raises:
            ConversionError: the key is missing.
        """
        value = self.get(key)
        if value is None:
            raise ConversionError(f"{self.path} has no metadata key {key!r}, which is needed.")
        return value

    @property
    def tensor_names(self) -> frozenset[str]:
        """Names of all tensors in the file."""
        return frozenset(self._tensors)

    def tensor_type(self, name: str) -> str:
        """The GGUF storage type of a tensor, e.g. ``Q4_1``."""
        return self._tensors[name].tensor_type.name

    def tensor_shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor, rows first: a projection is ``(outputs, inputs)``."""
        return tuple(int(n) for n in reversed(self._tensors[name].shape))

    def tensor(self, name: str) -> FloatArray:
        """A tensor's values as float32, rows first.

        Raises:
            ConversionError: no such tensor, or a storage type that cannot be dequantised.
        """
        from gguf.quants import dequantize

        if name not in self._tensors:
            raise ConversionError(f"{self.path} has no tensor {name!r}, which is needed.")
        tensor = self._tensors[name]
        try:
            values = dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError as error:
            raise ConversionError(
                f"{self.path}: tensor {name!r} is stored as {tensor.tensor_type.name}, which the "
                "gguf package cannot dequantise. Use a file quantised as Q4_0, Q4_K_M, Q8_0 or F16."
            ) from error
        return np.ascontiguousarray(values, dtype=np.float32).reshape(self.tensor_shape(name))


def check_family(path: Path, architecture: str | None) -> None:
    """Raise when a file's architecture is known and is another one.

    Raises:
        ConversionError: so it is.
    """
    if architecture is not None and architecture not in FAMILIES:
        raise ConversionError(
            f"{path} holds a model of architecture {architecture!r}; structgen converts "
            f"{', '.join(map(repr, FAMILIES))} ({MODELS}). For others use a folder made by "
            "`python -m onnxruntime_genai.models.builder`."
        )
