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
  runtime wait forever. It reads interlaced PNG without sorting the rows. So it gets only PNG that
  structgen wrote, of pixels that Pillow decoded in a process of its own (`pictures.py`).
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import numpy.typing as npt

from structgen.errors import PromptError, printable
from structgen.media import Image, Media, png_of
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
        markers = [family.marker.format(number=i) for i in range(1, len(pictures) + 1)]
        files = _as_png(pictures)
        with self._lock:
            try:
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


_SECONDS = 120  # by the clock, where the system does not count CPU time
_ENVIRONMENT = ("SYSTEMROOT", "PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")  # no secrets
_SCRIPT = Path(__file__).with_name("pictures.py")
_KINDS = {"image/gif": "Gif", "image/jpeg": "Jpeg", "image/png": "Png", "image/webp": "WebP"}


def _as_png(pictures: Sequence[Image]) -> list[bytes]:
    """Return pictures as PNG files, the right way up. A process of their own decodes them.

    Raises:
        PromptError: one of them cannot be decoded, or Pillow is not installed.
    """
    if not importlib.util.find_spec("PIL") or getattr(sys, "frozen", False):
        raise PromptError(
            "Reading pictures requires Python with Pillow: pip install 'structgen[pictures]'."
        )
    sizes = [math.prod(one.size) for one in pictures]
    limits = {
        **dict.fromkeys(("RLIMIT_NOFILE", "RLIMIT_NPROC", "RLIMIT_FSIZE", "RLIMIT_CORE"), 0),
        "RLIMIT_CPU": 2 + sum(sizes) // 10_000_000,
        "RLIMIT_AS": (400 << 20) + 24 * max(sizes),
    }
    listed = [(_KINDS[one.media_type], *one.size, len(one.data)) for one in pictures]
    asked = json.dumps({"paths": [*map(str, sys.path)], "limits": limits, "pictures": listed})
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-W", "ignore", _SCRIPT, asked],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
        creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
    )
    timer = threading.Timer(_SECONDS, process.kill)
    try:
        timer.start()
        return [_answer(process, one) for one in pictures]
    finally:
        timer.cancel()
        process.kill()
        with contextlib.suppress(OSError), process:
            pass


def _answer(process: subprocess.Popen[bytes], picture: Image) -> bytes:
    """Return a picture as a PNG file, from a process that may do anything."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(OSError):  # it has ended
        process.stdin.write(picture.data)
        process.stdin.flush()
    line, n_bytes = process.stdout.readline(400), 3 * math.prod(picture.size)
    for size in (picture.size, picture.size[::-1]):
        if line == b"%d %d\n" % size:
            pixels, line = process.stdout.read(n_bytes), b""
            if len(pixels) == n_bytes:
                rows = np.frombuffer(pixels, np.uint8).reshape(*size[::-1], 3)
                return png_of(rows, level=0)
    why = printable(line.decode(errors="replace"))
    if not line:
        why = f"it takes too much time or memory, or crashes Pillow (exit code {process.wait()})"
    raise PromptError(f"Cannot read the image as {picture.media_type[6:].upper()}: {why}.")
