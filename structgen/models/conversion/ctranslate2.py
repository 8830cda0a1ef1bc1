"""Whisper's weights in a CTranslate2 folder, under Hugging Face's names.

Reads ``model.bin`` (version 6), maps its names, and derives the model's shape from the sizes of
tensors.
"""

from __future__ import annotations

import mmap
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from structgen.errors import ConversionError
from structgen.storage.user_folder import inside

from .decoder import FloatArray
from .hugging_face import read_json

_START = struct.pack("<IH12s", 6, 12, b"WhisperSpec\0")  # version, kind of model
_KINDS = ("<f4", "<i1", "<i2", "<i4", "<f2")
_GELU = 3
_NAME = re.compile(r"model\.(\w+)\.(?:layers\.(\d+)\.)?(.+)\.(weight|bias)")
_PLACES = {
    "self_attn.q_proj": ("self_attention/linear_0", 0, 3),
    "self_attn.k_proj": ("self_attention/linear_0", 1, 3),
    "self_attn.v_proj": ("self_attention/linear_0", 2, 3),
    "self_attn.out_proj": ("self_attention/linear_1", 0, 1),
    "self_attn_layer_norm": ("self_attention/layer_norm", 0, 1),
    "encoder_attn.q_proj": ("attention/linear_0", 0, 1),
    "encoder_attn.k_proj": ("attention/linear_1", 0, 2),
    "encoder_attn.v_proj": ("attention/linear_1", 1, 2),
    "encoder_attn.out_proj": ("attention/linear_2", 0, 1),
    "encoder_attn_layer_norm": ("attention/layer_norm", 0, 1),
    "fc1": ("ffn/linear_0", 0, 1),
    "fc2": ("ffn/linear_1", 0, 1),
    "final_layer_norm": ("ffn/layer_norm", 0, 1),
    "embed_tokens": ("embeddings", 0, 1),
}
"""Hugging Face's names in a layer, each with CTranslate2's name, and the part of that tensor."""


def is_whisper(folder: Path) -> bool:
    """Return whether a folder has Whisper in CTranslate2's format."""
    path = folder / "model.bin"
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(_START)) == _START
    except OSError as error:
        raise ConversionError(f"{path} cannot be parsed: {error}.") from error


class CTranslate2Folder:
    """The tensors of a folder that `is_whisper`, with the interface of `SafetensorsFolder`.

    Attributes:
        config: the contents of Hugging Face's ``config.json``.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder
        with inside(folder, "model.bin").open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._tensors = found = _read(memoryview(data))
        added = read_json(folder / "tokenizer.json")["added_tokens"]
        (end,) = (one["id"] for one in added if one["content"] == "<|endoftext|>")
        self.config: dict[str, Any] = {
            "vocab_size": len(found["decoder/embeddings/weight"]),
            "d_model": found["decoder/embeddings/weight"].shape[1],
            "num_mel_bins": found["encoder/conv1/weight"].shape[1],
            "activation_function": "gelu" if found["decoder/activation"] == _GELU else "another",
            "scale_embedding": bool(found["decoder/scale_embeddings"]),
            "max_source_positions": len(found["encoder/position_encodings/encodings"]),
            "max_target_positions": len(found["decoder/position_encodings/encodings"]),
            **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), end),
        }
        for part in ("encoder", "decoder"):
            layers = {m[0] for name in found if (m := re.match(rf"{part}/layer_\d+", name))}
            self.config[f"{part}_layers"] = len(layers)
            self.config[f"{part}_attention_heads"] = int(found[f"{part}/num_heads"])

    def tensor_shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor, by Hugging Face's name. Raises as `tensor`."""
        return self._stored(name).shape

    def tensor(self, name: str) -> FloatArray:
        """Return a tensor's values as float32, by Hugging Face's name.

        Raises:
            ConversionError: there is no such tensor, or it is quantised.
        """
        return self._stored(name).astype(np.float32)

    def _stored(self, name: str) -> npt.NDArray[Any]:
        half, layer, inner, kind = _NAME.fullmatch(name).groups()  # type: ignore[union-attr]
        place, part, n_parts = _PLACES.get(inner, (inner, 0, 1))
        if place.endswith("norm"):
            kind = {"weight": "gamma", "bias": "beta"}[kind]
        whole = f"{place}/{kind}" if inner != "embed_positions" else "position_encodings/encodings"
        found = self._tensors.get(f"{half}/layer_{layer}/{whole}" if layer else f"{half}/{whole}")
        if found is None or found.dtype.kind != "f":
            raise ConversionError(f"{self.path} has no float tensor {name!r}, which is required.")
        return np.split(found, n_parts)[part]


def _read(data: memoryview) -> dict[str, npt.NDArray[Any]]:
    at = len(_START) + 4  # a revision

    def take(n_bytes: int) -> memoryview:
        nonlocal at
        taken, at = data[at : at + n_bytes], at + n_bytes
        if len(taken) < n_bytes:
            raise ValueError("it is truncated")
        return taken

    def number(n_bytes: int) -> int:
        return int.from_bytes(take(n_bytes), "little")

    def text() -> str:
        return bytes(take(number(2))).rstrip(b"\0").decode()

    def new(name: str) -> str:
        if name in tensors:
            raise ValueError(f"it contains {name!r} twice")
        return name

    tensors: dict[str, npt.NDArray[Any]] = {}
    for _ in range(number(4)):
        name = new(text())
        shape = [number(4) for _ in range(number(1))]
        kind = _KINDS[number(1)]
        tensors[name] = np.frombuffer(take(number(4)), kind).reshape(shape)
    for _ in range(number(4)):  # other names of the same tensors
        name = new(text())
        tensors[name] = tensors[text()]
    if sum(one.nbytes for one in tensors.values()) > 2 * len(data):
        raise ValueError("too many bytes belong to several tensors")
    return tensors
