"""A script that decodes the pictures of a prompt, in a process that may crash.

    python -I -S pictures.py '{"paths": …, "limits": …, "pictures": [["Jpeg", 60, 40, 1234]]}'

It reads each file from standard input, and answers with a line of its width and height and with its
pixels, three bytes each, the right way up; or with a line that says what is wrong. The files are
hostile: before it reads the first one, it limits its time and memory, and can open no files and no
connections any more. It imports only the standard library and Pillow.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from importlib import import_module
from typing import Any


def main() -> None:
    """Decode all pictures, or those before the first that is damaged."""
    given = json.loads(sys.argv[1])
    sys.path[:] = given["paths"]
    for name in ("copy", "PIL.ImageOps", "PIL.TiffImagePlugin"):  # Pillow needs them later
        import_module(name)
    kinds = {
        kind: getattr(import_module(f"PIL.{kind}ImagePlugin"), f"{kind}ImageFile")
        for kind in ("Gif", "Jpeg", "Png", "WebP")
    }
    png: Any = import_module("PIL.PngImagePlugin")
    png.MAX_TEXT_CHUNK = png.MAX_TEXT_MEMORY  # of a colour profile, too
    with contextlib.suppress(ImportError):  # Windows
        import resource

        for name, most in given["limits"].items():
            with contextlib.suppress(AttributeError, ValueError, OSError):  # not on this system
                resource.setrlimit(getattr(resource, name), (most, most))
    output = sys.stdout.buffer
    for kind, width, height, n_bytes in given["pictures"]:
        try:
            file = kinds[kind](io.BytesIO(sys.stdin.buffer.read(n_bytes)))
            file.decodermaxblock = n_bytes  # arithmetic coding has to be read at once
            pixels = _pixels(file, (width, height))
        except Exception as error:  # any error: the bytes may be anything
            output.write(f"{error!s:.200}".encode("ascii", "replace") or b"not enough memory")
            return
        output.write(b"%d %d\n" % pixels.size)
        output.write(pixels.tobytes())
        output.flush()


def _pixels(file: Any, size: tuple[int, int]) -> Any:
    """Return a file's picture, the right way up, in RGB."""
    from PIL import Image, ImageOps

    if file.size != size:
        raise ValueError(f"it has two sizes, {size} and {file.size}")
    ImageOps.exif_transpose(file, in_place=True)
    if file.mode.startswith("I"):  # gray of 16 bits, which Pillow would cut off at 255
        data = file.tobytes()
        file = Image.frombytes("L", file.size, data[1 :: len(data) // (file.width * file.height)])
    return file.convert("RGB")


if __name__ == "__main__":
    main()
