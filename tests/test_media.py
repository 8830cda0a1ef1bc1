"""Pictures and sounds as prompts hold them: what is taken, and what is too large or no picture."""

from __future__ import annotations

import base64
import contextlib
import copy
import io
import pickle
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from PIL import Image as Pillow

from structgen.decoding import chat
from structgen.errors import PromptError
from structgen.media import MOST_BYTES, Audio, Image, data_uri, openai_part, part

PIXELS = np.arange(60 * 40 * 3, dtype=np.uint8).reshape(40, 60, 3)


def saved(kind: str, mode: str = "RGB") -> bytes:
    file = io.BytesIO()
    Pillow.fromarray(PIXELS).convert(mode).save(file, kind)
    return file.getvalue()


def png_of(width: int, height: int) -> bytes:
    """A header only: nothing else is looked at."""
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP"])
def test_kind_and_size_are_those_of_the_header(kind, tmp_path):
    data = saved(kind)
    path = tmp_path / "x"
    path.write_bytes(data)
    ways = [data, path, str(path), bytearray(data), data_uri("image/any", data)]
    images = [Image(way) for way in ways]
    assert {(one.media_type, one.size) for one in images} == {(f"image/{kind.lower()}", (60, 40))}
    assert len({*images}) == 1
    assert pickle.loads(pickle.dumps(images[0])) == copy.deepcopy(images[0]) == images[0]
    assert len(repr(images[0])) < 80


@pytest.mark.parametrize("options", [{"lossless": True}, {"exact": True, "lossless": True}])
def test_all_forms_of_webp_have_a_size(options):
    file = io.BytesIO()
    Pillow.fromarray(PIXELS).convert("RGBA").save(file, "WEBP", **options)
    assert Image(file.getvalue()).size == (60, 40)


@pytest.mark.parametrize("shape", [(40, 60), (40, 60, 1), (40, 60, 3), (40, 60, 4)])
def test_arrays_and_pillows_pictures_keep_their_pixels(shape):
    array = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    image = Image(array)
    read = np.asarray(Pillow.open(io.BytesIO(image.data)))
    assert image.size == (60, 40)
    assert (read == array.reshape(read.shape)).all()
    if len(shape) == 3 and shape[2] > 1:
        again = Image(Pillow.fromarray(array))
        assert (np.asarray(Pillow.open(io.BytesIO(again.data))) == array).all()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (b"", "is empty"),
        (b"BM", "must be PNG, JPEG"),
        (b"\x89PNG\r\n\x1a\n", "damaged PNG header"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\0\0\0", "damaged PNG header"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\4IHDR\0\0\0\1" + b"\0\0\0\1" * 9, "damaged PNG header"),
        (b"\xff\xd8\xff\xe0", "damaged JPEG header"),
        (b"\xff\xd8\xff\xda\0\0\0\0", "damaged JPEG header"),
        (b"GIF89a", "damaged GIF header"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "damaged WEBP header"),
        (png_of(0, 5), "0 x 5 pixels"),
        (png_of(100_000, 100_000), "the limit is 50,000,000"),
        (png_of(2**32 - 1, 2**32 - 1), "the limit is 50,000,000"),
        (png_of(60_000, 2), "at most 200 times"),
        ("no such file.png", "does not exist"),
        ("a\0b", "cannot be read|does not exist"),
        ("https://example.com/x.png", "does not download anything"),
        ("data:image/png,abc", "data:TYPE;base64,DATA"),
        ("data:image/png;base64,a!", "is not base64"),
        ("data:image/png;base64," + "A" * (MOST_BYTES * 2), "more than 20,971,520 bytes"),
        (bytes(MOST_BYTES + 1), "more than 20,971,520 bytes"),
        (np.zeros((2, 2)), "float64 of shape"),
        (np.zeros((2, 2, 2), np.uint8), "of shape"),
        (3, "got int"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 60 else "",
)
def test_what_is_no_picture_is_refused(source, message):
    with pytest.raises(PromptError, match=message):
        Image(source)


def test_pictures_of_too_many_parts_are_refused():
    data = saved("JPEG")
    with pytest.raises(PromptError, match="too many parts"):
        Image(data[:2] + b"\xff\xfe\0\2" * 4_000 + data[2:])
    assert Image(data[:2] + b"\xff" * 100_000 + data[2:]).size == (60, 40)


def test_a_header_that_is_cut_anywhere_is_an_error_or_a_picture():
    for data in map(saved, ("PNG", "JPEG", "GIF", "WEBP")):
        for end in range(1, 400):
            with contextlib.suppress(PromptError):
                assert Image(data[:end]).size == (60, 40)


def test_parts_are_read_and_written_as_openais():
    image = Image(PIXELS)
    assert part(openai_part(image), "") == image
    assert part({"type": "image_url", "image_url": data_uri("image/png", image.data)}, "") == image
    assert part({"type": "text", "text": "x"}, "") == "x"
    sound = Audio(np.zeros(100, np.float32), rate=16_000)
    assert part(openai_part(sound), "") == sound
    given = {"url": data_uri("image/png", image.data), "detail": "low"}
    for wrong, message in (
        ({"type": "image_url", "image_url": given}, "detail='low' is not supported"),
        ({"type": "image_url", "image_url": {**given, "size": 1}}, "'size' is not supported"),
        ({"type": "image_url", "image_url": {"url": "http://x"}}, "not a data: URI"),
        ({"type": "input_audio", "input_audio": {"data": "a!", "format": "wav"}}, "not base64"),
        ({"type": "file"}, "got type 'file'"),
    ):
        with pytest.raises(PromptError, match=message):
            part(wrong, "it")


def test_base64_of_other_alphabets_is_refused():
    text = base64.urlsafe_b64encode(bytes([255] * 9)).decode()
    with pytest.raises(PromptError, match="not base64"):
        Image(f"data:image/png;base64,{text}")


def test_a_text_is_not_looked_through_for_pictures():
    """Each of 4 million characters was: half a second, on the loop in which all streams run."""

    class Text(str):
        def __iter__(self):
            raise AssertionError("a content that is text has no parts")

    messages = [{"role": "user", "content": Text("long")}]
    assert chat.media_of(chat.parse(messages)) == []


def test_a_picture_is_not_copied_again_and_again():
    pixels = np.random.default_rng(0).integers(0, 256, (1000, 1000, 3), np.uint8)
    tracemalloc.start()
    try:
        assert len(Image(pixels).data) > 0.9 * pixels.nbytes
        assert tracemalloc.get_traced_memory()[1] < 2.3 * pixels.nbytes
    finally:
        tracemalloc.stop()
