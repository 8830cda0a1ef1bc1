"""Sounds as samples: structgen checks a file's headers, then the runtime decodes it.

A sound is limited by the headers of its frames; samples have 16,000 Hz. The runtime decodes whole
files without a limit, and a FLAC file of 25 MB may have a year of silence. So the frames that its
decoder could find are counted first, never too few. A long MP3 or FLAC file is cut between frames,
because everything else waits while the runtime decodes.

The runtime returns no samples of a file by itself: it has processors of models, which decode,
compute features, and keep what they decode. Whisper's processor accepts any steps, so structgen
gives it a model that only decodes.
"""

from __future__ import annotations

import functools
import json
import math
import re
import struct
import tempfile
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from structgen.errors import PromptError
from structgen.models import trial
from structgen.models.base import Passes, run_passes
from structgen.models.listening import RATE, Samples

from .runtime import OLD, og

MOST_SECONDS = 1_800
"""Longest sound, in seconds."""

MOST_SAMPLES = 60_000_000
"""Most samples of a file in all channels: each takes about 16 bytes while decoding."""

_PART = 1_000_000
"""Samples in all channels after which a file is cut: decoding them takes 0.02 s for FLAC, 0.1 s for
MP3."""

_HOP = 200_000
"""Samples that are resampled at once, at least a second: takes 0.1 s if their number has no small
factors."""

_LEAD = 32
"""MP3 frames before a part that are decoded with it: a frame may have up to 511 bytes in earlier
frames, which have at least 24 bytes."""

_RATES = (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000)
_MOST_SYNCS = 100_000  # of a FLAC file: half an hour has some 20,000 frames; of MP3 four times
_MOST_PARTS = 1_000  # tags before a sound, or parts of a WAV file before its samples


class _About(NamedTuple):
    """The facts in a file's headers: sample rate, channels, and frames (maybe too many).

    Also where it is cut: for each part but the first its start, the start of reading for it, and
    the frames before it. All parts begin with ``head``, the first one at ``first``; for WAV, whose
    samples all have one size, ``head`` is the format of each part.
    """

    rate: int
    channels: int
    n_frames: int
    cuts: Sequence[tuple[int, int, int]] = ()
    head: bytes = b""
    first: int = 0
    end: int = 0


def claimed_seconds(data: bytes) -> float:
    """Return a file's length in seconds by its headers: never too short.

    Raises:
        PromptError: it is not WAV, MP3 or FLAC, or is damaged.
    """
    about = _about(_without_tags(data))
    return about.n_frames / about.rate


def decoded(data: bytes) -> Samples:
    """Decode a file at once: see `decoding`."""
    return run_passes(decoding(data))


def decoding(data: bytes) -> Passes[Samples]:
    """Decode a WAV, MP3 or FLAC file; yield between parts, each of which takes less than 0.2 s.

    Raises:
        PromptError: it is none of these, damaged or too long.

    Cost: 10 ms per minute of WAV, 0.2 s per minute of MP3; 0.1 s for the first call in a process.
    """
    data = _without_tags(data)
    about = _about(data)
    if not about.n_frames:
        raise PromptError("Audio: it has no samples.")
    if not 1 <= about.channels <= 2 or not _RATES[0] <= about.rate <= 192_000:
        raise PromptError(
            f"Audio: it has {about.channels} channels and {about.rate:,} samples per second. "
            f"Supported are one or two channels and {_RATES[0]:,} to 192,000 samples per second. "
            "Convert it."
        )
    seconds = about.n_frames / about.rate
    if seconds > MOST_SECONDS or about.n_frames * about.channels > MOST_SAMPLES:
        raise PromptError(
            f"Audio: it has {seconds:,.0f} seconds. The limits are {MOST_SECONDS:,} seconds and "
            f"{MOST_SAMPLES:,} samples across all channels. Split it, or convert it to one "
            f"channel with {RATE:,} samples per second."
        )
    ends = [0, *(n_frames for _, _, n_frames in about.cuts), about.n_frames]
    longest = max(end - begin for begin, end in pairwise(ends)) * about.channels
    if longest > 4 * _PART:
        raise PromptError("Audio: its frames are not contiguous. Convert it.")
    parts: list[Samples] = []
    for lead, part in _parts(data, about):
        if parts:
            yield
        parts.append(_read(lead + part)[len(_read(lead)) if lead else 0 :])
    return (yield from _resampling(np.concatenate(parts), about.rate))


def _read(data: bytes) -> Samples:
    """Return the samples that the runtime decodes from a file."""
    try:
        # The runtime divides by the number of samples of the first: of none, the process would end.
        both = og.Audios.open_bytes(wav(np.zeros(1, np.float32)), data)
        found = _decoder()(["a"], audios=both)["audio_features"].as_numpy()
        samples = np.array(found[1], np.float32).reshape(-1)
    except Exception as error:
        raise PromptError(f"Audio: it cannot be decoded: {OLD or f'{error}.'}") from error
    np.clip(np.nan_to_num(samples, copy=False, posinf=0, neginf=0), -1, 1, out=samples)
    return samples


def _parts(data: bytes, about: _About) -> Iterator[tuple[bytes, bytes]]:
    """Yield the parts of a file, each with the frames to decode before it."""
    start = before = about.first
    is_wav = data[:4] == b"RIFF"
    for at, needed, _ in (*about.cuts, (about.end or len(data), 0, 0)):
        part = data[start:at]
        yield data[before:start], _wav(about.head, part) if is_wav else about.head + part
        start, before = at, needed


def wav(samples: Samples) -> bytes:
    """Return the samples as a WAV file."""
    form = struct.pack("<HHIIHH", 3, 1, RATE, 4 * RATE, 4, 32)
    return _wav(form, samples.astype("<f4").tobytes())


def _wav(form: bytes, body: bytes) -> bytes:
    sizes = struct.pack("<I", len(form)), struct.pack("<I", len(body))
    whole = b"WAVEfmt " + sizes[0] + form + b"data" + sizes[1] + body
    return b"RIFF" + struct.pack("<I", len(whole)) + whole


def _nearest(rate: int) -> int:
    """Return the rate to tell the runtime: at others it resamples itself, which takes 8 s for 19
    MB."""
    return max((one for one in _RATES if one <= rate), default=_RATES[0])


def _resampling(samples: Samples, rate: int) -> Passes[Samples]:
    """Resample to `RATE` by Fourier transforms of a second or more, with an eighth around them;
    yield between. Rates whose common divisor with `RATE` is below 8 are rounded to tens."""
    if math.gcd(rate, RATE) < 8:
        rate = round(rate, -1)
    if rate == RATE:
        return samples
    common = math.gcd(rate, RATE)
    old, new = rate // common, RATE // common
    hop, margin = rate * max(_HOP // rate, 1), old * (common // 8)
    padded = np.pad(samples, (margin, hop + margin))
    kept = slice(margin * new // old, (margin + hop) * new // old)
    parts = []
    for start in range(0, len(samples), hop):
        if start:
            yield
        part = padded[start : start + hop + 2 * margin]
        length = len(part) * new // old
        made = np.fft.irfft(np.fft.rfft(part)[: length // 2 + 1], length)[kept]
        parts.append(made.astype(np.float32))
    whole: Samples = np.concatenate(parts) * np.float32(RATE / rate)
    return whole[: -(-len(samples) * RATE // rate)]


@functools.cache
def _decoder() -> Any:
    """Return a processor that only decodes."""
    step = {"target_sample_rates": _RATES, "max_samples": 0}
    steps = [{"operation": {"name": "decode", "type": "AudioDecoder", "attrs": step}}]
    listed = json.dumps({"feature_extraction": {"sequence": steps}})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trial.write_nothing(folder, {}, speech={"config_filename": "steps.json"})
        (folder / "steps.json").write_text(listed, encoding="utf-8")
        return og.Model(name).create_multimodal_processor()


# -- what files say of themselves -----------------------------------------------------------------


def _without_tags(data: bytes) -> bytes:
    """Return the file without tags at its beginning, which the runtime would take for sound."""
    at = 0
    for _ in range(_MOST_PARTS):
        if data[at : at + 3] != b"ID3" or len(data) <= at + 10:
            break
        size = data[at + 6 : at + 10]
        at += 20 if data[at + 5] & 0x10 else 10  # with a footer
        at += functools.reduce(lambda size, byte: size << 7 | byte & 0x7F, size, 0)
    return data[at:].lstrip(b"\0") if at else data  # some programs leave room behind a tag


def _about(data: bytes) -> _About:
    try:
        if data[:4] == b"RIFF":
            return _about_wav(data)
        if data[:4] == b"fLaC":
            return _about_flac(data)
        if data[:1] == b"\xff" and data[1:2] >= b"\xe0":
            return _about_mp3(data)
    except (struct.error, IndexError) as error:
        raise PromptError("Audio: its header is damaged.") from error
    raise PromptError("Audio: it is neither WAV nor MP3 nor FLAC. Convert it.")


_WAV_KINDS = (1, 3, 6, 7)
"""Integers, floats, A-law and µ-law: formats whose samples all have one size."""

_KIND_BELOW = 0xFFFE  # of a longer header, whose kind is 24 bytes further on


def _about_wav(data: bytes) -> _About:
    at, form = 12, 0
    for _ in range(_MOST_PARTS):
        if at + 8 > len(data):
            break
        name, size = struct.unpack_from("<4sI", data, at)
        if name == b"fmt ":
            form = at + 8
        elif name == b"data" and form:
            kind, channels, rate, _, width, bits = struct.unpack_from("<HHIIHH", data, form)
            if kind == _KIND_BELOW:
                (kind,) = struct.unpack_from("<H", data, form + 24)
            if kind not in _WAV_KINDS:
                raise PromptError(f"Audio: WAV of kind {kind} is not supported. Convert it.")
            if not rate:
                break
            if bits % 8 == 0:  # the decoder uses this, whatever the width
                width = bits * channels // 8
            width, first = max(width, 1), at + 8
            n_frames = min(size, len(data) - first) // width
            starts = range(_PART // 2, n_frames, _PART // 2)
            cuts = [(first + i * width, first + i * width, i) for i in starts]
            (length,) = struct.unpack_from("<I", data, form - 4)
            head = data[form : form + 4] + struct.pack("<I", _nearest(rate))
            head += data[form + 8 : form + min(length, 40)]
            return _About(rate, channels, n_frames, cuts, head, first, first + n_frames * width)
        at += 8 + size + size % 2
    raise PromptError("Audio: its WAV header is damaged.")


_SIZES = (0, 192, 576, 1152, 2304, 4608, -1, -2, *(256 << i for i in range(8)))
"""Samples of a FLAC block by its code; -1 and -2: the number follows in one or two bytes."""

_FLAC_SYNC = re.compile(rb"\xff[\xf8\xf9]")


def _about_flac(data: bytes) -> _About:
    """Count headers with a correct checksum, as the decoder does."""
    packed = int.from_bytes(data[18:26], "big")
    rate, channels = packed >> 44, (packed >> 41 & 7) + 1
    if len(data) < 42 or not rate:
        raise PromptError("Audio: its FLAC header is damaged.")
    begin = 4  # of the next block of metadata; a picture in one may look like a frame
    for _ in range(_MOST_PARTS):
        is_last, length = data[begin] >= 0x80, data[begin + 1 : begin + 4]
        begin += 4 + int.from_bytes(length, "big")
        if is_last:
            break
    n_frames = done = first = 0
    last = -1, 0  # the number of the frame before and its size
    cuts: list[tuple[int, int, int]] = []
    for count, sync in enumerate(_FLAC_SYNC.finditer(data, begin)):
        if count == _MOST_SYNCS:
            raise PromptError("Audio: its FLAC has too many frames. Convert it.")
        at = sync.start()
        code, extra = data[at + 2] >> 4, {12: 1, 13: 2, 14: 2}.get(data[at + 2] & 15, 0)
        number = max(8 - (~data[at + 4] & 0xFF).bit_length(), 1) if at + 4 < len(data) else 1
        size_at, size = at + 4 + number, _SIZES[code]
        end = size_at + max(-size, 0) + extra
        if end >= len(data) or not size:
            continue
        if functools.reduce(lambda found, byte: _CRC8[found ^ byte], data[at:end], 0) != data[end]:
            continue
        if size < 0:
            size = int.from_bytes(data[size_at : size_at - size], "big") + 1
        coded = data[at + 4 : size_at]
        this = functools.reduce(
            lambda found, byte: found << 6 | byte & 0x3F,
            coded[1:],
            coded[0] & 0x7F >> (number if number > 1 else 0),
        )
        first = first or at
        if (n_frames - done) * channels >= _PART and this - last[0] in (1, last[1]):
            cuts.append((at, at, n_frames))
            done = n_frames
        last = this, size
        n_frames += size
    # The file does not tell the number of frames.
    packed = _nearest(rate) << 44 | packed & (1 << 44) - (1 << 36)
    head = data[:4] + b"\x80\0\0\x22" + data[8:18] + packed.to_bytes(8, "big") + bytes(16)
    return _About(rate, channels, n_frames, cuts, head, first)


_CRC8 = list(range(256))
for _ in range(8):
    _CRC8 = [(one << 1 ^ 0x07 if one & 0x80 else one << 1) & 0xFF for one in _CRC8]


# Thousands of bits a second of an MP3 frame, by version (2 or 1), layer (3, 2, 1) and code.
_KBITS = np.array(
    [
        [
            [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0],
            [0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0],
            [0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256, 0],
        ],
        [
            [0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0],
            [0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 0],
            [0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448, 0],
        ],
    ]
)
_MP3_RATES = np.array([44_100, 48_000, 32_000, 1])


def _about_mp3(data: bytes) -> _About:
    """Count headers whose frame is followed by another similar one, as the decoder requires.

    A frame without a length of its own ends where the next one begins: each such header counts.
    """
    end = len(data) - 128 * (data[-128:-125] == b"TAG")  # the decoder loses a frame to this tag
    b = np.frombuffer(data, np.uint8)[:end]
    is_sync = (b[:-3] == 0xFF) & (b[1:-2] >= 0xE0)
    if np.count_nonzero(is_sync) > 4 * _MOST_SYNCS:
        raise PromptError("Audio: its MP3 has too many frames. Convert it.")
    at = np.flatnonzero(is_sync).astype(np.int64)
    version, layer = b[at + 1] >> 3 & 3, b[at + 1] >> 1 & 3  # 0, 2, 3: 2.5, 2, 1; 1, 2, 3: III to I
    code, rate_code = b[at + 2] >> 4, b[at + 2] >> 2 & 3
    good = (version != 1) & (layer != 0) & (code != 15) & (rate_code != 3)
    at, version, layer, code, rate_code = (x[good] for x in (at, version, layer, code, rate_code))
    if not len(at) or at[0] != 0:
        raise PromptError("Audio: its MP3 header is damaged.")
    is_first = version == 3
    kbits = _KBITS[is_first.astype(int), layer.astype(int) - 1, code]
    rates = _MP3_RATES[rate_code] >> np.array([2, 0, 1, 0])[version]
    lengths = np.where(layer == 3, 384, np.where((layer == 1) & ~is_first, 576, 1152))
    padding = (b[at + 2] >> 1 & 1) * np.where(layer == 3, 4, 1)
    steps = np.where(layer == 3, 48_000 * kbits // rates // 4 * 4, lengths * 125 * kbits // rates)
    after = at + steps + padding
    behind = np.minimum(after, len(b) - 3)
    alike = (b[behind] == 0xFF) & ((b[behind + 1] ^ b[at + 1]) < 2)
    alike &= (b[behind + 2] ^ b[at + 2]) & 0x0C == 0
    counts = alike | (after > len(b) - 4) | (code == 0)
    channels = 1 if data[3] >> 6 == 3 else 2
    at, lengths, after = at[counts], lengths[counts], after[counts]
    total = np.cumsum(lengths)
    follows = np.flatnonzero(at[1:] == after[:-1]) + 1
    parts = total[follows - 1] * channels // _PART
    cuts = [
        (int(at[i]), int(at[max(i - _LEAD, 0)]), int(total[i - 1]))
        for i in follows[np.flatnonzero(np.diff(parts, prepend=0))].tolist()
    ]
    return _About(int(rates[0]), channels, int(total[-1]), cuts, end=end)
