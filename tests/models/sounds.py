"""Files of sounds for tests: WAV by `wave`, FLAC of constant frames, MP3 of silent ones."""

from __future__ import annotations

import io
import wave

import numpy as np


def tone(seconds=1.0, rate=16_000, pitch=440.0):
    """A sine, float32 ``[n]``."""
    return np.sin(2 * np.pi * pitch * np.arange(round(seconds * rate)) / rate).astype(np.float32)


def wav(samples, rate=16_000, width=2):
    """Samples from -1 to 1, ``[n]`` or ``[n, channels]``, as integers of so many bytes."""
    whole = np.rint(np.float64(samples) * (2 ** (8 * width - 1) - 1)).astype("<i4")
    raw = whole.reshape(-1, 1).view("u1").reshape(-1, 4)[:, :width]
    raw = raw ^ np.uint8(128) if width == 1 else raw
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1 if samples.ndim == 1 else samples.shape[1])
        out.setsampwidth(width)
        out.setframerate(rate)
        out.writeframes(np.ascontiguousarray(raw).tobytes())
    return file.getvalue()


def _crc(data, width, poly):
    found, top = 0, 1 << (width - 1)
    for byte in data:
        found ^= byte << (width - 8)
        for _ in range(8):
            found = (found << 1) ^ poly if found & top else found << 1
        found &= (1 << width) - 1
    return found


def flac(values, size=4096, rate=16_000, channels=1, total=0):
    """A file whose frame ``i`` has ``size`` times the 16-bit number ``values[i]``."""
    bits = rate << 44 | (channels - 1) << 41 | 15 << 36 | total
    info = size.to_bytes(2, "big") * 2 + bytes(6) + bits.to_bytes(8, "big") + bytes(16)
    out = [b"fLaC\x80\x00\x00\x22", info]
    for i, value in enumerate(values):
        number = bytes([i]) if i < 128 else bytes([0xC0 | i >> 6, 0x80 | i & 63])
        head = bytes([0xFF, 0xF8, 0x70, (channels - 1) << 4 | 8]) + number
        head += (size - 1).to_bytes(2, "big")
        head += bytes([_crc(head, 8, 0x07)])
        frame = head + (b"\0" + value.to_bytes(2, "big", signed=True)) * channels
        out.append(frame + _crc(frame, 16, 0x8005).to_bytes(2, "big"))
    return b"".join(out)


def mp3(n_frames, head=b"\xff\xfb\x90\xc4"):
    """Silent frames, of 128 kbit a second at 44,100 Hz and one channel unless told otherwise."""
    sizes = {b"\xff\xfb\x90\xc4": 417, b"\xff\xe3\x18\xc4": 72, b"\xff\xf3\x18\xc4": 36}
    return (head + bytes(sizes[head] - 4)) * n_frames
