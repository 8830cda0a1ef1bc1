"""Pictures and sounds in prompts: their classes, how they are read, and their limits.

`Image` and `Audio` are here, the parts of a message's content in OpenAI's form, and the marks that
stand for them in text while a chat goes through its template. Knows no models:
`structgen.models.genai` turns pictures and sounds into tokens.

All input is foreign: sizes are checked before bytes are read, and the number of pixels comes from
the header, never from decoding.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import math
import os
import re
import struct
import wave
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, final

from structgen.errors import PromptError, failure

MOST_BYTES = 20 << 20
"""Most bytes of a picture or a sound."""

MOST_PIXELS = 50_000_000
"""Most pixels of a prompt's pictures: each takes at least three bytes and 30 ns to decode."""

MOST_RATIO = 200
"""The largest ratio of a picture's sides: models enlarge the short side to a patch, and the long
side with it."""

MOST_MEDIA = 32
"""Most pictures and sounds in a prompt."""

_FIRST_MARK = 0xFDD0  # the first of 32 code points that are not characters, for internal use
MARKS = [chr(_FIRST_MARK + i) for i in range(MOST_MEDIA)]
"""The placeholders of pictures and sounds in the text of a prompt; no text contains them."""


@final
@dataclass(frozen=True, init=False)
class Image:
    """A picture in a prompt: PNG, JPEG, GIF or WebP, kept as the bytes of its file.

    ``generator(["What is this?", Image("photo.jpg")])``; or a part of a message's content.

    Attributes:
        data: the bytes of the file.
        media_type: ``image/png``, ``image/jpeg``, ``image/gif`` or ``image/webp``.
        size: width and height from its header.
    """

    data: bytes = field(repr=False)
    media_type: str
    size: tuple[int, int]

    def __init__(self, source: Any) -> None:
        """Take a picture.

        Args:
            source: the path of a file; its bytes; a ``data:`` URI; a Pillow image; or a NumPy array
                of uint8, ``[height, width]``, ``[height, width, 3]`` or with 4 channels.

        Raises:
            PromptError: it is none of these, cannot be read, or is larger than it may be.
        """
        if hasattr(source, "__array_interface__") and hasattr(source, "dtype"):
            data = png_of(source)
        elif callable(getattr(source, "save", None)) and hasattr(source, "getbands"):
            file = io.BytesIO()
            picture = source if source.mode in _PNG_MODES else source.convert("RGB")
            picture.save(file, "PNG", compress_level=1)
            data = file.getvalue()
        else:
            data = _bytes_of(source, "Image", "a Pillow picture or a NumPy array")
        kind, size = _header(data)
        _check_size(*size)
        object.__setattr__(self, "data", data)
        object.__setattr__(self, "media_type", f"image/{kind}")
        object.__setattr__(self, "size", size)


@final
@dataclass(frozen=True, init=False)
class Audio:
    """A sound in a prompt: WAV, MP3 or FLAC, kept as the bytes of its file.

    ``Generator(whisper, Literal["yes", "no"])([Audio("answer.wav")])``.

    Attributes:
        data: the bytes of the file.
        media_type: ``audio/wav``, ``audio/mpeg`` or ``audio/flac``.
        language: the spoken language.
        translate: whether to translate into English.
    """

    data: bytes = field(repr=False)
    media_type: str
    language: str | None = None
    translate: bool = False

    def __init__(
        self,
        source: Any,
        rate: int | None = None,
        *,
        language: str | None = None,
        translate: bool = False,
    ) -> None:
        """Take a sound.

        Args:
            source: the path of a file; its bytes; a ``data:`` URI; or a NumPy array of samples
                from -1 to 1, ``[n]``.
            rate: samples per second of an array.
            language: the spoken language for Whisper, such as ``"de"``; None: it detects it, which
                takes one more pass of its encoder.
            translate: whether Whisper writes the English translation.

        Raises:
            PromptError: it is none of these, cannot be read, or is larger than it may be.
        """
        if not isinstance(language, (str, type(None))) or not isinstance(translate, bool):
            raise PromptError(
                f"Audio: language={language!r} must be a str such as 'en', and "
                f"translate={translate!r} a bool."
            )
        if hasattr(source, "__array_interface__") and hasattr(source, "dtype"):
            data = _wav_of(source, rate)
        else:
            data = _bytes_of(source, "Audio", "a NumPy array of samples")
        object.__setattr__(self, "data", data)
        object.__setattr__(self, "media_type", f"audio/{_sound_kind(data)}")
        object.__setattr__(self, "language", language)
        object.__setattr__(self, "translate", translate)


Media: TypeAlias = "Image | Audio"
"""A picture or a sound."""


def data_uri(media_type: str, data: bytes | bytearray) -> str:
    """Return the bytes of a file as a ``data:`` URI."""
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


# -- sources ----------------------------------------------------------------------------------


def _bytes_of(source: Any, what: str, others: str) -> bytes:
    if isinstance(source, (bytes, bytearray, memoryview)):
        data = source if isinstance(source, bytes) else bytes(source)
    elif isinstance(source, str) and source[:5].lower() == "data:":
        data = _of_uri(source, what)
    elif isinstance(source, str) and source[:8].lower().startswith(("http://", "https://")):
        raise PromptError(
            f"{what} does not download anything. Download it yourself and pass its bytes."
        )
    elif isinstance(source, (str, os.PathLike)):
        path = Path(source)
        try:
            if not path.is_file():  # reading a pipe would wait
                raise PromptError(f"{what}: {os.fspath(path)!r} does not exist.")
            with path.open("rb") as file:
                data = file.read(MOST_BYTES + 1)
        except (OSError, ValueError) as error:
            name, why = os.fspath(path), failure(error)
            raise PromptError(f"{what}: {name!r} cannot be read: {why}.") from error
    else:
        raise PromptError(
            f"{what} takes a path, bytes, a data: URI, {others}, but got {type(source).__name__}."
        )
    if len(data) > MOST_BYTES:
        raise PromptError(f"{what} has more than {MOST_BYTES:,} bytes.")
    if not data:
        raise PromptError(f"{what} is empty.")
    return data


def _of_uri(uri: str, what: str) -> bytes:
    head, comma, body = uri.partition(",")
    if not comma or not head.lower().endswith(";base64"):
        raise PromptError(f"{what}: a data: URI must be data:TYPE;base64,DATA, got {uri[:40]!r}.")
    return decoded(body, what)


def decoded(text: str, what: str) -> bytes:
    """Return the bytes of a base64 text.

    Raises:
        PromptError: it is not base64, or has too many bytes.
    """
    if len(text) > MOST_BYTES * 4 // 3 + 4:
        raise PromptError(f"{what} has more than {MOST_BYTES:,} bytes.")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise PromptError(f"{what}: its data is not base64: {error}.") from error


_PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA")


def png_of(array: Any, level: int = 1) -> bytes:
    """Return an array of pixels as a PNG file; ``level``: the compression level, 0: none."""
    shape = tuple(array.shape)
    channels = shape[2] if len(shape) == 3 else 1
    if str(array.dtype) != "uint8" or len(shape) not in (2, 3) or channels not in (1, 3, 4):
        raise PromptError(
            f"Image: the array is {array.dtype} of shape {shape}. Pass uint8 of [height, width], "
            "[height, width, 3] or [height, width, 4]."
        )
    height, width = shape[:2]
    _check_size(width, height)
    rows = array.reshape(height, width * channels)
    packing = zlib.compressobj(level)
    packed = [packing.compress(b"\0" + row.tobytes()) for row in rows]
    packed.append(packing.flush())
    kind = {1: 0, 3: 2, 4: 6}[channels]
    head = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    parts = [_PNG]
    for name, data in ((b"IHDR", head), *((b"IDAT", one) for one in packed if one), (b"IEND", b"")):
        parts += (struct.pack(">I", len(data)), name, data)
        parts.append(struct.pack(">I", zlib.crc32(data, zlib.crc32(name))))
    return b"".join(parts)


def _wav_of(array: Any, rate: int | None) -> bytes:
    """Return an array of samples as a WAV file."""
    if type(rate) is not int or rate < 1:
        raise PromptError(f"Audio: an array requires rate=, the samples per second; got {rate!r}.")
    if len(array.shape) != 1 or array.dtype.kind != "f":
        raise PromptError(
            f"Audio: the array is {array.dtype} of shape {tuple(array.shape)}. Pass floats from "
            "-1 to 1, of shape [n]."
        )
    if 2 * len(array) > MOST_BYTES:
        raise PromptError(f"Audio has more than {MOST_BYTES:,} bytes.")
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes((array.clip(-1, 1) * 32767).astype("<i2").tobytes())
    return file.getvalue()


# -- headers ----------------------------------------------------------------------------------

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG_MARKER = re.compile(rb"\xff([\xc0-\xcf\xd8-\xfe])")  # the others have no length for libjpeg
_MOST_PARTS = 4_000  # of a JPEG before its size
_FRAMES = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # JPEG markers that are followed by a size


def _check_size(width: int, height: int) -> None:
    """Refuse a picture that is too large to be decoded.

    Raises:
        PromptError: it is too large.
    """
    if not width or not height:
        raise PromptError(f"Image has {width:,} x {height:,} pixels.")
    if width * height > MOST_PIXELS:
        raise PromptError(
            f"Image has {width:,} x {height:,} pixels; the limit is {MOST_PIXELS:,} in total. "
            "Make it smaller."
        )
    if max(width, height) > MOST_RATIO * min(width, height):
        raise PromptError(
            f"Image has {width:,} x {height:,} pixels; the long side may be at most {MOST_RATIO} "
            "times the short one. Crop it."
        )


def _header(data: bytes) -> tuple[str, tuple[int, int]]:
    """Return the kind of a picture, and its width and height."""
    size: tuple[int, int] | None = None
    kind = ""
    try:
        if data.startswith(_PNG):
            kind = "png"
            if data[8:16] == b"\0\0\0\rIHDR" and len(data) > 28:
                size = struct.unpack(">II", data[16:24])
        elif data.startswith(b"\xff\xd8"):
            kind = "jpeg"
            size = _jpeg_size(data)
        elif data[:6] in (b"GIF87a", b"GIF89a"):
            kind = "gif"
            size = struct.unpack_from("<HH", data, 6)
        elif data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            kind = "webp"
            size = _webp_size(data)
    except (struct.error, IndexError):
        size = None
    if not kind:
        raise PromptError(
            "Image must be PNG, JPEG, GIF or WebP. Convert it, or open it with Pillow and pass "
            "that picture."
        )
    if size is None:
        raise PromptError(
            f"Image has a damaged {kind.upper()} header or too many parts. Save it again."
        )
    return kind, size


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = 2
    for _ in range(_MOST_PARTS):
        found = _JPEG_MARKER.search(data, at)
        if found is None:
            break
        at = found.end()
        if found[1][0] in _FRAMES:
            height, width = struct.unpack_from(">HH", data, at + 3)
            return width, height
        at += int.from_bytes(data[at : at + 2], "big")
    return None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8X":
        width, height = data[24:27], data[27:30]
        return int.from_bytes(width, "little") + 1, int.from_bytes(height, "little") + 1
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack("<HH", data[26:30])
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L" and data[20:21] == b"\x2f":
        (bits,) = struct.unpack("<I", data[21:25])
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return None


_OTHER_SOUNDS = {b"OggS": "Ogg", b"\x1aE\xdf\xa3": "WebM", b"FORM": "AIFF", b"#!AM": "AMR"}


def _sound_kind(data: bytes) -> str:
    """Return the kind of a sound. Its decoder checks the length."""
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return "wav"
    if data[:4] == b"fLaC":
        return "flac"
    if data[:3] == b"ID3" or (data[:1] == b"\xff" and data[1:2] >= b"\xe0"):
        return "mpeg"
    kind = _OTHER_SOUNDS.get(data[:4], "MP4" if data[4:8] == b"ftyp" else "of an unknown kind")
    raise PromptError(f"Audio is {kind}; WAV, MP3 and FLAC are supported. Convert it.")


# -- parts of contents ------------------------------------------------------------------------


def part(value: Any, where: str) -> str | Media:
    """Return one part of a message's content: text, a picture or a sound.

    Args:
        value: an `Image` or `Audio`; or as in OpenAI's API ``{"type": "text", "text": …}``,
            ``{"type": "image_url", "image_url": {"url": "data:…"}}`` or
            ``{"type": "input_audio", "input_audio": {"data": …, "format": …}}``.
        where: its place, for messages.

    Raises:
        PromptError: it is none of these.
    """
    if isinstance(value, (Image, Audio)):
        return value
    name = type(value).__name__
    found = f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
    if isinstance(value, str):
        raise PromptError(f'{where} is a str. Write it as {{"type": "text", "text": "Hello"}}.')
    if isinstance(value, Mapping):
        kind = value.get("type")
        given = value.get(kind) if isinstance(kind, str) else None
        if kind == "text" and isinstance(given, str):
            return given
        if kind == "image_url" and given is not None:
            _check_keys(value, {"type", "image_url"}, where)
            return Image(_url(given, where))
        if kind == "input_audio" and isinstance(given, Mapping):
            _check_keys(value, {"type", "input_audio"}, where)
            _check_keys(given, {"data", "format"}, where)
            data = given.get("data")
            if isinstance(data, str):
                return Audio(decoded(data, where))
        found = f"keys {sorted(map(str, value))}" if value else "an empty mapping"
        if kind not in (None, "text"):
            found = f"type {kind!r}"
    raise PromptError(
        f"{where} is not text, a picture or a sound (got {found}). Pass a str as the content, "
        'or parts such as {"type": "text", "text": "Hello"}, structgen.media.Image("photo.jpg") '
        'and {"type": "image_url", "image_url": {"url": "data:..."}}.'
    )


def _url(given: Any, where: str) -> str:
    """Return a picture's ``data:`` URI from OpenAI's or mistral.rs's form, unwrapped."""
    url = given
    if isinstance(given, Mapping):
        _check_keys(given, {"url", "detail"}, where)
        url = given.get("url")
        if given.get("detail") not in (None, "auto", "high"):
            raise PromptError(
                f"{where}: detail={given['detail']!r} is not supported. A model's own processor "
                "decides the resolution. Pass a smaller picture, and remove detail."
            )
    if isinstance(url, str) and url[:5].lower() == "data:":
        return url
    raise PromptError(
        f"{where} has the type 'image_url', but its url is not a data: URI. Download the picture "
        "and pass structgen.media.Image(its bytes)."
    )


def _check_keys(given: Mapping[str, Any], known: set[str], where: str) -> None:
    for name in given:
        if name not in known:
            raise PromptError(f"{where}: {name!r} is not supported. Remove it.")


def openai_part(one: str | Media | dict[str, Any]) -> dict[str, Any]:
    """Return a part in OpenAI's form; unchanged if it has this form."""
    if isinstance(one, str):
        return {"type": "text", "text": one}
    if isinstance(one, dict):
        return one
    if isinstance(one, Image):
        return {"type": "image_url", "image_url": {"url": data_uri(one.media_type, one.data)}}
    data = base64.b64encode(one.data).decode()
    kind = one.media_type.removeprefix("audio/").replace("mpeg", "mp3")
    return {"type": "input_audio", "input_audio": {"data": data, "format": kind}}


def marked(messages: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], tuple[Media, ...]]:
    """Return messages whose contents are text, with a mark for each picture and sound, and the
    pictures and sounds.

    Args:
        messages: the result of `structgen.decoding.chat.parse`.

    Raises:
        PromptError: the pictures are too large; or there are media, and a text contains a mark.
    """
    found: list[Media] = []
    texts: list[dict[str, Any]] = []
    for message in messages:
        content = message["content"]
        if not isinstance(content, str):
            pieces = []
            for one in content:
                if isinstance(one, (Image, Audio)):
                    pieces.append(MARKS[len(found)])
                    found.append(one)
                else:
                    pieces.append(one["text"])
            content = "".join(pieces)
        texts.append({**message, "content": content})
    pixels = sum(math.prod(one.size) for one in found if isinstance(one, Image))
    if pixels > MOST_PIXELS:
        raise PromptError(
            f"The pictures of the prompt have {pixels:,} pixels in total; the limit is "
            f"{MOST_PIXELS:,}. Make them smaller."
        )
    whole = json.dumps(texts, ensure_ascii=False, default=str) if found else ""
    if sum(map(whole.count, MARKS)) > len(found):
        raise PromptError(
            "The prompt has pictures or sounds, and a text with a code point from U+FDD0 to "
            "U+FDEF, which are not characters. Remove it."
        )
    return texts, tuple(found)
