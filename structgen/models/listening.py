"""Transcripts of sounds: their segments, and the windows of a long sound.

Knows no model: the caller passes in the transcript of each window. So the model can be in another
process, and each window's segments can be shown before the next window is transcribed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias, final

import numpy as np
import numpy.typing as npt

from structgen.errors import ModelError
from structgen.sampling import TokenIds

Samples: TypeAlias = npt.NDArray[np.float32]
"""Samples of one channel from -1 to 1, float32 ``[n]``."""

RATE = 16_000
"""Samples per second."""

_LOUDEST = 32_767

_LONGEST = 4 << 20  # characters of a transcript; half an hour of speech has 30,000
_A_SEGMENT = 400  # characters that a segment counts as, which takes 15 µs to send

WINDOW = 30
"""Seconds that Whisper reads at once."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment of a transcript, about a sentence.

    Attributes:
        start: seconds from the beginning of the sound.
        end: seconds from the beginning of the sound to the segment's end.
        text: its text.
        token_ids: its tokens, with time stamps.
        temperature: the temperature that it was written with.
        logprob: mean log probability of a token of its window.
        compression_ratio: how many times smaller compression makes its window's text.
        no_speech: the probability that its window has no speech.
    """

    start: float
    end: float
    text: str
    token_ids: tuple[int, ...]
    temperature: float
    logprob: float
    compression_ratio: float
    no_speech: float


@dataclass(frozen=True, slots=True)
class Transcript:
    """The transcript of a sound, or its translation.

    Attributes:
        text: the whole text.
        language: the spoken language, such as ``en``.
        seconds: the length of the sound.
        segments: the parts of the text with their times.
    """

    text: str
    language: str
    seconds: float
    segments: Sequence[Segment]

    def srt(self) -> str:
        """Return the transcript as subtitles in SubRip's format."""
        return "".join(
            f"{number}\n{_clock(one.start, ',')} --> {_clock(one.end, ',')}\n{_line(one.text)}\n\n"
            for number, one in enumerate(self.segments, 1)
        )

    def vtt(self) -> str:
        """Return the transcript as subtitles in the WebVTT format."""
        cues = (
            f"{_clock(one.start, '.')} --> {_clock(one.end, '.')}\n{_line(one.text)}\n\n"
            for one in self.segments
        )
        return "WEBVTT\n\n" + "".join(cues)


class WindowTranscript(NamedTuple):
    """The transcript of a window.

    Attributes:
        language: which language is spoken.
        segments: the segments, with times in the window.
        seconds: number of its seconds that are done; the next window begins there.
    """

    language: str
    segments: Sequence[Segment]
    seconds: float


class Window(NamedTuple):
    """The next window.

    Attributes:
        samples: at most 30 seconds.
        language: the spoken language; None: not known yet.
        translate: whether to write the English translation.
        before: tokens of the earlier text.
        temperature: as for `structgen.TextModel.transcribe`.
    """

    samples: Samples
    language: str | None
    translate: bool
    before: TokenIds
    temperature: float


@final
class Listening:
    """The windows of a sound. `window` is the current one until `add` gets its transcript."""

    def __init__(self, samples: Samples, first: Window) -> None:
        """Set up for a sound; ``first`` has the settings of all windows."""
        self._samples = (samples * _LOUDEST).astype(np.int16)  # half the memory and transfer
        self._window = first
        self._at = 0
        self._segments: list[Segment] = []
        self._size = 0

    @property
    def window(self) -> Window | None:
        """The next window; None: the sound is done."""
        rest = self._samples[self._at : self._at + WINDOW * RATE]
        if not len(rest):
            return None
        return self._window._replace(samples=rest / np.float32(_LOUDEST))

    def add(self, transcript: WindowTranscript) -> Sequence[Segment]:
        """Add the transcript of the window; return its segments with their times in the sound.

        Raises:
            ModelError: there is too much: a token of a foreign vocabulary may have 60,000 bytes.
        """
        start = self._at / RATE
        found = [
            replace(one, start=start + one.start, end=start + one.end)
            for one in transcript.segments
        ]
        self._segments += found
        self._size += sum(_A_SEGMENT + len(one.text) for one in found)
        if self._size > _LONGEST:
            raise ModelError(
                f"The transcript has too many segments, or more than {_LONGEST:,} characters."
            )
        self._window = self._window._replace(language=transcript.language)
        self._at += max(round(transcript.seconds * RATE), RATE)
        return found

    @property
    def transcript(self) -> Transcript:
        """The transcript so far."""
        text = "".join(one.text for one in self._segments).strip()
        seconds = len(self._samples) / RATE
        return Transcript(text, self._window.language or "en", seconds, tuple(self._segments))


def _line(text: str) -> str:
    """Return text that cannot end or begin a cue."""
    return " ".join(text.split()).replace("-->", "->")


def _clock(seconds: float, point: str) -> str:
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    minutes, rest = divmod(whole, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest:02}{point}{thousandths:03}"
