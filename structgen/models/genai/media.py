"""Pictures and sounds for the runtime's multimodal processors.

Here are the families of models with the markers in their prompts, and the search for the tokens of
each picture in a processor's result. A processor never gets the text of a prompt, because it would
recognise special tokens everywhere. It gets only markers, and `Perceived.in_prompt` inserts their
tokens into those of the text.

What the runtime does, read in 0.18 and relied on here:

* All pictures are run with the first tokens of a sequence, in one pass, or not at all.
* Such models cannot be rewound: ``rewind_to`` raises for Phi-3 vision, and leaves the caches of the
  others as they are. A new sequence is begun instead.
* A damaged JPEG ends the process (libjpeg's own ``error_exit``), and a truncated one makes the
  runtime wait forever. It reads interlaced PNG without sorting the rows. So it gets only plain PNG,
  whose errors it raises; Pillow reads the rest.
"""

from __future__ import annotations

import io
import struct
import threading
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from structgen.errors import PromptError
from structgen.media import MOST_PARTS, Image, Media, gif_parts, jpeg_parts, png_of
from structgen.models.base import Perceived
from structgen.vocabulary import Vocabulary

from .runtime import og


@dataclass(frozen=True, slots=True)
class Family:
    """How a family of models writes pictures in prompts.

    Attributes:
        marker: the processor's marker of a picture, which may contain its number.
        ends: the special tokens that begin and end a picture; empty: a picture is one token,
            repeated.
        token: that token; None: negative numbers.
        around: the text before and after a picture, as in training.
    """

    marker: str
    ends: tuple[str, str] | tuple[()] = ()
    token: str | None = None
    around: tuple[str, str] = ("", "")


_QWEN = Family(
    "<|vision_start|><|image_pad|><|vision_end|>", ends=("<|vision_start|>", "<|vision_end|>")
)
PICTURES: Mapping[str, Family] = {
    "phi3v": Family("<|image_{number}|>", around=("", "\n")),
    "phi4mm": Family("<|image_{number}|>", token="<|endoftext10|>"),
    "qwen2_5_vl": _QWEN,
    "qwen3_vl": _QWEN,
    "fara": _QWEN,
    "gemma3": Family(
        "<start_of_image>", ends=("<start_of_image>", "<end_of_image>"), around=("\n\n", "\n\n")
    ),
}
"""The families by the model's type in ``genai_config.json``."""

SEEING = {*PICTURES, "gemma4", "mistral3", "qwen3_5", "qwen3_5_moe", "videochat_flash_qwen"}
"""The types of models that read pictures, which the runtime cannot rewind."""


@final
class MediaReader:
    """Reads pictures and sounds for one model. Safe to share by threads."""

    def __init__(self, og_model: og.Model, name: str, vocabulary: Vocabulary) -> None:
        """Set up for a model; ``name`` is its name in messages."""
        self._family = PICTURES.get(str(og_model.type))
        # `structgen.models.allowed` has no steps for other types.
        self._processor = og_model.create_multimodal_processor() if self._family else None
        self._name = name
        self._names = vocabulary.named_tokens
        self._lock = threading.Lock()

    def perceive(self, media: Sequence[Media]) -> Perceived:
        """See `structgen.models.base.Model.perceive`."""
        pictures = [one for one in media if isinstance(one, Image)]
        if len(pictures) < len(media):
            raise PromptError(f"{self._name} does not support audio.")
        family, processor = self._family, self._processor
        if family is None or processor is None:
            raise PromptError(
                f"structgen does not know how to write images in prompts of {self._name}, only "
                f"for models of type {', '.join(PICTURES)}."
            )
        files = [_as_png(picture) for picture in pictures]
        markers = [family.marker.format(number=i) for i in range(1, len(pictures) + 1)]
        try:
            with self._lock:
                images = og.Images.open_bytes(*files)
                found = processor("\n".join(markers), images=images)
            token_ids = np.asarray(found["input_ids"].as_numpy(), np.int32).reshape(-1)
            del found["input_ids"]
        except Exception as error:
            raise PromptError(f"{self._name} cannot read the images: {error}.") from error
        spans = self._spans(token_ids)
        if len(spans) != len(pictures):
            raise PromptError(
                f"{self._name} read {len(spans)} images instead of {len(pictures)}: its processor "
                "does not match its tokenizer."
            )
        return Perceived(
            token_ids=[token_ids[start:end] for start, end in spans],
            around=[family.around] * len(spans),
            inputs=lambda: found,
            stand_in=self._names.get("<|image|>", 0),
        )

    def _spans(self, token_ids: npt.NDArray[np.int32]) -> list[tuple[int, int]]:
        """Return the start and end of each picture in the processor's result."""
        assert self._family is not None
        if self._family.ends:
            first, last = (self._names.get(name, -1) for name in self._family.ends)
            starts = np.flatnonzero(token_ids == first)
            ends = np.flatnonzero(token_ids == last) + 1
        else:
            is_own = token_ids < 0
            if self._family.token is not None:
                is_own = token_ids == self._names.get(self._family.token, -1)
            edges = np.diff(np.concatenate([[False], is_own, [False]]).astype(np.int8))
            starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
        return [(int(a), int(b)) for a, b in zip(starts, ends, strict=False)]


_MOST_EXIF = 1 << 16
_MOST_HEAD = 1 << 18  # of a JPEG's bytes before its pixels; Exif and a preview have 64 kB each
_OF_PIXELS = {*range(0xC0, 0xD0), 0xDB, 0xDD, 0xE0, 0xEE} - {0xC8}  # markers of JPEG
_CHANNELS = {2: 3, 4: 2, 6: 4}  # of a PNG's pixel, by its kind; else 1


def _bounded(data: bytes) -> bytes:
    """Return a PNG file with only the parts for its pixels: the runtime would unpack texts, and log
    unusual parts.

    Raises:
        PromptError: it has more pixels than its header says, which would be unpacked, too.
    """
    kept, at = [data[:8]], 8
    once = {b"IHDR", b"PLTE", b"IEND"}
    pixels: list[bytes] = []
    while at + 12 <= len(data):
        length, name = struct.unpack_from(">I4s", data, at)
        if name in once or (name == b"IDAT" and length):
            kept.append(data[at : at + 12 + length])
            once.discard(name)
        if name == b"IDAT" and length:
            pixels.append(data[at + 8 : at + 8 + length])
        at += 12 + length
    if _is_interlaced(data):  # Pillow stops after the pixels, and reads each part in Python
        if len(kept) > MOST_PARTS:
            raise PromptError(f"The image has more than {MOST_PARTS:,} parts. Save it again.")
        return b"".join(kept)
    width, height, depth, kind = struct.unpack_from(">IIBB", data, 16)
    room = (width * min(depth, 16) * _CHANNELS.get(kind, 1) // 8 + 8) * height + (1 << 16)
    unpacking, rest = zlib.decompressobj(), b"".join(pixels)
    try:
        while rest and room > 0:
            room -= len(unpacking.decompress(rest, 1 << 24))
            rest = unpacking.unconsumed_tail
    except zlib.error as error:
        raise PromptError(f"The image is damaged: {error}.") from error
    if room <= 0:
        raise PromptError("The image is damaged: it has more pixels than it declares.")
    return b"".join(kept)


def _is_interlaced(data: bytes) -> bool:
    return data[28] == 1


def _plain_jpeg(data: bytes) -> bytes:
    """Return a JPEG file with only the parts for its pixels, and those with the orientation.

    Pillow would read all others in Python, even after the end, and copy all earlier ones for each.
    """
    kept, once = [data[:2]], {b"Exif\0\0", b"http:/"}
    for marker, start, end in jpeg_parts(data):
        if marker == 0xDA:
            kept.append(data[start:])
            break
        name = data[start + 4 : start + 10]
        if end - start >= 4 and (marker in _OF_PIXELS or (marker == 0xE1 and name in once)):
            kept.append(data[start:end])
            once.discard(name)
    if sum(map(len, kept[:-1])) > _MOST_HEAD:
        raise PromptError(f"The image has more than {_MOST_HEAD:,} bytes before its pixels.")
    return b"".join(kept)


def _plain_gif(data: bytes) -> bytes:
    """Return a GIF file without extensions, except the one for the transparent colour."""
    parts = [data[start:end] for start, end in gif_parts(data)]
    return b"".join(
        part
        for i, part in enumerate(parts)
        if i in (0, len(parts) - 1) or (part[1:3] == b"\xf9\4" and len(part) == 8)
    )


_PLAIN = {"PNG": _bounded, "JPEG": _plain_jpeg, "GIF": _plain_gif}


def _as_png(picture: Image) -> bytes:
    """Return a picture as a PNG file in its right orientation.

    Raises:
        PromptError: it cannot be read, or Pillow is needed and not installed.
    """
    kind = picture.media_type.partition("/")[2].upper()
    data = _PLAIN.get(kind, bytes)(picture.data)
    if kind == "PNG" and not _is_interlaced(data):  # the runtime mixes up the rows of those
        return data
    try:
        from PIL import Image as Pillow
        from PIL import ImageOps
    except ImportError as error:
        raise PromptError(
            f"The image is {picture.media_type}. Reading it requires Pillow: pip install "
            "'structgen[pictures]'. PNG that is not interlaced does not require Pillow."
        ) from error
    try:
        with Pillow.open(io.BytesIO(data), formats=[kind]) as file:
            if file.size != picture.size:  # which was checked before
                raise ValueError(f"it has two sizes, {picture.size} and {file.size}")
            # All entries may refer to the same bytes, which Pillow before 13 copies for each.
            if "exif" in file.info:
                file.info["exif"] = file.info["exif"][:_MOST_EXIF]
            file.getexif()
            file.info.pop("exif", None)  # otherwise all entries are read to be written again
            ImageOps.exif_transpose(file, in_place=True)
            if file.mode == "I;16":  # which Pillow would cut off at 255
                return png_of((np.asarray(file) >> 8).astype(np.uint8), 0)
            return png_of(np.asarray(file if file.mode == "RGB" else file.convert("RGB")), 0)
    except Exception as error:  # any error: the bytes may be anything
        why = str(error).partition(" <")[0]  # Pillow shows the file, which is an object here
        raise PromptError(f"Cannot read the image as {kind}: {why}.") from error
