"""Sounds: what is read of files and within which bounds, and what Whisper makes of them."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from dataclasses import replace
from typing import Annotated, Literal

import inside
import numpy as np
import pytest
import sounds
import tiny_whisper
from doc_blocks import run
from engine.walks import seeds
from pydantic import BaseModel, Field, field_validator

import structgen
from structgen import AsyncModel, Generator, Regex
from structgen.decoding import Task
from structgen.decoding.options import parse
from structgen.errors import ModelError, OptionError, PromptError
from structgen.media import Audio
from structgen.models.base import LoadOptions, run_passes
from structgen.models.genai import sound
from structgen.models.genai import whisper as genai_whisper
from structgen.models.genai.whisper import _Written
from structgen.models.listening import Listening, Segment, Transcript, Window, WindowTranscript

pytestmark = inside.needs_newer_runtime

STAMP = tiny_whisper.FIRST_STAMP
ID = tiny_whisper.ID


@pytest.fixture(scope="module")
def whisper(tmp_path_factory):
    return structgen.load(tiny_whisper.converted(tmp_path_factory.mktemp("whisper")))


@pytest.fixture(scope="module")
def tone():
    return Audio(sounds.wav(sounds.tone()))


# -- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_widths_of_wav(width):
    found = sound.decoded(sounds.wav(sounds.tone(), width=width))
    assert np.abs(found - sounds.tone()).max() < 2 / 2 ** (8 * width - 1) + 1e-6


@pytest.mark.parametrize("rate", [8_000, 11_025, 22_050, 44_100, 48_000, 96_000])
def test_rates_become_one(rate):
    found = sound.decoded(sounds.wav(sounds.tone(3, rate), rate))
    assert len(found) == 48_000
    assert np.abs(found - sounds.tone(3))[800:-800].max() < 1e-3


def test_two_channels_become_one():
    both = np.stack([sounds.tone(), np.zeros(16_000, np.float32)], axis=1)
    assert np.abs(sound.decoded(sounds.wav(both)) - sounds.tone() / 2).max() < 1e-3


def test_flac_and_mp3():
    found = sound.decoded(sounds.flac([1000, -2000, 3000]))
    assert np.array_equal(np.rint(found * 32768), np.repeat([1000, -2000, 3000], 4096))
    tagged = b"ID3\x04\0\0\0\0\x01\x02" + bytes(130) + sounds.mp3(50)
    assert np.array_equal(sound.decoded(tagged), sound.decoded(sounds.mp3(50)))
    after = sounds.mp3(10) + b"TAG" + bytes(125)  # the runtime refuses it, or drops a frame
    assert np.array_equal(sound.decoded(after), sound.decoded(sounds.mp3(10)))
    assert len(sound.decoded(tagged)) == pytest.approx(50 * 1152 / 44_100 * 16_000, abs=2)


@pytest.mark.parametrize("rate", [15_999, 47_999, 95_999, 191_999])
def test_the_runtime_resamples_nothing(rate, monkeypatch):
    """19 MB of such WAV took it 8 s, in which nothing else was done."""
    made, read = [], sound._read
    monkeypatch.setattr(sound, "_read", lambda part: made.append(out := read(part)) or out)
    found = sound.decoded(sounds.flac([1, 2, 3] * 5, rate=rate))
    assert sum(map(len, made)) == 15 * 4096
    assert len(found) == pytest.approx(15 * 4096 * 16_000 / rate, rel=1e-3)
    made.clear()
    found = sound.decoded(sounds.wav(sounds.tone(2, rate), rate))
    assert sum(map(len, made)) == 2 * rate
    pitch = np.abs(np.fft.rfft(found)).argmax() * 16_000 / len(found)
    assert pitch == pytest.approx(440, abs=1)


def test_a_rate_without_small_factors_is_changed_in_short_steps():
    """8 seconds of them took 0.8 s."""
    samples = np.zeros(172_033 * 9, np.float32)
    assert len(list(sound._resampling(samples, 172_033))) >= 8


@pytest.mark.parametrize("kind", ["flac", "mp3", "wav"])
def test_a_long_file_is_decoded_in_parts(kind, monkeypatch):
    values = np.random.default_rng(0).integers(-3000, 3000, 60).tolist()
    whole = sounds.wav(np.random.default_rng(0).normal(0, 0.1, 200_001)) + b"LIST\4\0\0\0abcd"
    data = {"flac": sounds.flac(values, total=60 * 4096), "mp3": sounds.mp3(400), "wav": whole}[
        kind
    ]
    whole = sound.decoded(data)
    monkeypatch.setattr(sound, "_PART", 30_000)
    longest, read = [], sound._read
    monkeypatch.setattr(sound, "_read", lambda part: longest.append(out := read(part)) or out)
    assert len(list(sound.decoding(data))) >= 5
    assert max(map(len, longest)) <= 30_000 + (sound._LEAD + 4) * 1152
    assert np.array_equal(sound.decoded(data), whole)


def test_a_file_that_cannot_be_cut_is_short(monkeypatch):
    frames = sounds.flac([5] * 40).split(b"\xff\xf8")
    data = b"\xff\xf8".join([frames[0], *frames[:0:-1]])
    assert len(sound.decoded(data)) == 40 * 4096
    monkeypatch.setattr(sound, "_PART", 30_000)
    with pytest.raises(PromptError, match="are not contiguous"):
        sound.decoded(data)


def test_what_is_no_number_is_silence():
    data = bytearray(sound.wav(np.zeros(1000, np.float32)))
    data[44:52] = np.array([np.nan, np.inf], "<f4").tobytes()
    assert np.array_equal(sound.decoded(bytes(data)), np.zeros(1000))


LONG = [
    ("fLaC", sounds.flac([0] * 2000, size=65_535)),  # 20 kB for two hours
    ("fLaC in two channels", sounds.flac([0] * 1100, size=65_535, rate=96_000, channels=2)),
    ("8 kbit/s", sounds.mp3(26_000, b"\xff\xe3\x18\xc4")),
]


@pytest.mark.parametrize("data", [data for _, data in LONG], ids=[name for name, _ in LONG])
def test_what_becomes_too_long_is_not_decoded(data, monkeypatch):
    monkeypatch.setattr(sound, "_decoder", lambda: pytest.fail("it was decoded"))
    with pytest.raises(PromptError, match=r"Audio: it has [\d,]+ seconds\. The limits are 1,800"):
        sound.decoded(data)


def test_many_places_that_may_be_frames_are_not_all_looked_at():
    began = time.process_time()
    with pytest.raises(PromptError, match="too many frames"):
        sound.decoded(sounds.flac([0]) + b"\xff\xf8" * 200_000)
    with pytest.raises(PromptError):
        sound.decoded(sounds.mp3(1) + b"\xff\xfb\x90\xc4" * 100_000)
    assert time.process_time() - began < 10


def test_a_picture_in_a_flac_file_is_no_frame():
    """One in fifty covers of 500 kB cut the sound that followed short."""
    data = sounds.flac([5, 6, 7])
    frame = sounds.flac([9])[42:]
    picture = b"\x86" + len(frame).to_bytes(3, "big") + frame
    with_cover = data[:4] + b"\0" + data[5:42] + picture + data[42:]
    assert np.array_equal(sound.decoded(with_cover), sound.decoded(data))
    assert sound.claimed_seconds(with_cover) == sound.claimed_seconds(data)
    with pytest.raises(PromptError, match="header is damaged"):
        sound.decoded(with_cover[: -len(data)])


def test_what_stands_before_a_sound_is_not_copied_each_time():
    """20 MB of tags took 700 s; of what may be frames of MP3, 470 MB."""
    assert (
        len(sound._without_tags(b"ID3" + bytes(7) + b"ID3" + bytes(5) + b"\1\1" + b"x" * 200)) == 71
    )
    assert len(sound._without_tags((b"ID3" + bytes(7)) * 1_500)) == 5_000
    with_footer = b"ID3\4\0\x10\0\0\0\1a3DI\4\0\x10\0\0\0\1" + bytes(99)
    assert sound._without_tags(with_footer + sounds.mp3(3)) == sounds.mp3(3)
    with pytest.raises(PromptError, match="header is damaged"):
        sound.decoded(
            b"RIFF\0\0\0\0WAVE" + (b"abcd" + bytes(4)) * 2_000 + sound.wav(np.zeros(9))[12:]
        )
    with pytest.raises(PromptError, match="too many frames"):
        sound.decoded(sounds.mp3(1) + b"\xff" * 500_000)


def test_counted_frames_are_never_too_few():
    random = np.random.default_rng(3)
    whole = [sounds.flac(range(40), size=300), sounds.mp3(40), sounds.wav(sounds.tone(0.2))]
    n_decoded = 0
    for turn in seeds(40):
        data = bytearray(whole[turn % 3])
        for _ in range(random.integers(1, 6)):
            at = int(random.integers(0, len(data)))
            kind = random.integers(0, 3)
            if kind == 0:
                data[at] ^= 1 << int(random.integers(0, 8))
            elif kind == 1:
                del data[at : at + int(random.integers(1, 400))]
            else:
                data[at:at] = data[: int(random.integers(1, 400))]
        try:
            samples, about = sound.decoded(bytes(data)), sound._about(bytes(data))
        except PromptError:
            continue
        n_decoded += 1
        assert len(samples) <= about.n_frames * sound.RATE / about.rate + 1
    assert n_decoded > len(seeds(40)) / 5


def _with(data, *places):
    """A file with other bytes at some places."""
    for at, other in zip(places[::2], places[1::2], strict=True):
        data = data[:at] + other + data[at + len(other) :]
    return data


def test_frames_of_wav_are_as_wide_as_their_samples():
    """19 MB that said each frame had 65,535 bytes were 41 minutes, and said to be no second."""
    data = _with(sounds.wav(sounds.tone(), width=1), 32, b"\xff\xff")
    assert sound.claimed_seconds(data) == 1
    assert len(sound.decoded(data)) == 16_000


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"RIFF\0\0\0\0WAVE", "its WAV header is damaged"),
        (_with(sounds.wav(sounds.tone()), 24, bytes(4)), "its WAV header is damaged"),  # no rate
        (_with(sounds.wav(sounds.tone()), 20, b"\xfe\xff", 44, b"\x11\0"), "WAV of kind 17"),
        (sounds.wav(sounds.tone())[:30], "its WAV header is damaged"),
        (sounds.wav(sounds.tone())[:44], "it has no samples"),
        (sounds.wav(sounds.tone(1, 4_000), 4_000), "4,000 samples per second"),
        (sounds.wav(np.zeros((9, 3), np.float32)), "it has 3 channels"),
        (sounds.wav(sounds.tone()).replace(b"\x10\0\0\0\x01\0", b"\x10\0\0\0\x02\0"), "of kind 2"),
        (b"fLaC" + bytes(60), "its FLAC header is damaged"),
        (sounds.flac([])[:40], "its FLAC header is damaged"),
        (sounds.flac([]), "it has no samples"),
        (b"\xff\xff\xff\xff" * 9, "its MP3 header is damaged"),
        (b"\xff\xfb", "its MP3 header is damaged"),
    ],
)
def test_damage_is_told(data, message):
    with pytest.raises(PromptError, match=message):
        sound.decoded(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"OggS" + bytes(40), "Audio is Ogg; WAV, MP3 and FLAC are supported"),
        (bytes(4) + b"ftypM4A " + bytes(20), "Audio is MP4"),
        (b"\x1aE\xdf\xa3" + bytes(20), "Audio is WebM"),
        (b"FORM" + bytes(20), "Audio is AIFF"),
        (b"hello, I am a text", "Audio is of an unknown kind"),
        (np.zeros((2, 2), np.float32), r"the array is float32 of shape \(2, 2\)"),
        (np.zeros(9, np.int16), "the array is int16"),
    ],
)
def test_other_sounds_are_refused_by_name(data, message):
    with pytest.raises(PromptError, match=message):
        Audio(data, 16_000)


def test_sources(tmp_path):
    data = sounds.wav(sounds.tone())
    (tmp_path / "tone.wav").write_bytes(data)
    uri = f"data:audio/wav;base64,{base64.b64encode(data).decode()}"
    for source in (data, tmp_path / "tone.wav", str(tmp_path / "tone.wav"), uri, bytearray(data)):
        assert Audio(source).data == data
    assert np.abs(sound.decoded(Audio(sounds.tone(), 16_000).data) - sounds.tone()).max() < 1e-3
    assert Audio(data, language="de", translate=True).language == "de"
    with pytest.raises(PromptError, match="language=5 must be a str"):
        Audio(data, language=5)


# -- prompts --------------------------------------------------------------------------------------


def test_typed_transcripts(whisper, tone):
    assert Generator(whisper, Literal["yes", "no"])(tone) in ("yes", "no")
    found = whisper([tone], list[int], max_new_tokens=40)
    assert all(type(one) is int for one in found)
    number = Generator(whisper, Regex(r"\d{4}"))
    assert number(tone).isdigit()
    assert number(tone) == "".join(number.stream(tone))
    text = Generator(whisper)(tone, max_new_tokens=20)
    assert "<|" not in text  # special tokens are barred
    assert text == Generator(whisper)([tone], max_new_tokens=20)


def test_what_is_heard_matters(whisper, tone):
    choice = Generator(whisper, Literal["a", "b", "c", "d"])
    heard = [choice.probabilities(Audio(sounds.wav(sounds.tone(1, 16_000, p)))) for p in (200, 3e3)]
    assert heard[0] != heard[1]
    assert choice.probabilities(tone) == choice.probabilities([tone])


def test_openais_parts(whisper, tone):
    data = base64.b64encode(tone.data).decode()
    part = {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "the"}, part]}]
    number = Generator(whisper, Regex(r"\d{4}"))
    assert number(messages) == number(["the", tone])


def test_several_outputs_each_hear(whisper, tone):
    number = Generator(whisper, Regex(r"\d{3}"))
    assert len(number(tone, n=2, temperature=1.0)) == 2
    assert number.batch([[tone], [tone]]) == [number(tone)] * 2


class Code(BaseModel):
    number: Annotated[int, Field(ge=0, le=999)]

    @field_validator("number")
    @classmethod
    def _seven(cls, number):
        assert number % 7 == 0
        return number


def test_a_value_that_is_refused_is_rewritten(whisper, tone):
    found = Generator(whisper, Code).result(tone, retries=20)
    assert found.value.number % 7 == 0
    assert found.usage.retries  # the runtime cannot rewind: the sound was heard again


def test_the_prompt_says_language_and_task(whisper, tone):
    def tokens(audio, *texts):
        return Task(whisper, None, None).prepare([*texts, audio], parse({})).token_ids.tolist()

    start = [ID["<|startoftranscript|>"]]
    german = Audio(tone.data, language="de")
    assert tokens(german) == [
        *start,
        *(ID[name] for name in ("<|de|>", "<|transcribe|>", "<|notimestamps|>")),
    ]
    english = tokens(Audio(tone.data, language="fr", translate=True))
    assert english[1:3] == [ID["<|fr|>"], ID["<|translate|>"]]
    assert tokens(tone)[1] in whisper.reader.languages.values()
    before = tokens(german, "the t")
    assert before[0] == ID["<|startofprev|>"]
    assert before[1:-4] == whisper.encode("the t").tolist()


def test_what_whisper_does_not_take(whisper, tone, monkeypatch):
    for prompt, message in (
        ("the", "needs audio, but the prompt has none"),
        ([tone, tone], "takes exactly one audio file"),
        (
            [Audio(tone.data, language="xx")],
            "does not support the language 'xx'. Supported languages: de, en, fr",
        ),
        (
            [Audio(sounds.wav(sounds.tone(31)))],
            "has 31 seconds, but tiny-whisper processes at most 30 at once",
        ),
    ):
        with pytest.raises(PromptError, match=message):
            whisper(prompt)
    monkeypatch.setattr(genai_whisper, "decoded", None)  # nobody asks
    with pytest.raises(
        PromptError, match="has 1,700 seconds, but tiny-whisper processes at most 30"
    ):
        whisper([Audio(sounds.flac([0] * 415, size=65_535))])
    with pytest.raises(ModelError, match="cannot embed"):
        whisper.embed("the")


# -- transcripts ----------------------------------------------------------------------------------


def test_a_long_sound_is_heard_window_by_window(whisper):
    long = Audio(sounds.wav(np.concatenate([sounds.tone(20, pitch=p) for p in (200, 3e3)])))
    found = whisper.transcribe(long, temperature=0.5)
    assert found.seconds == 40
    assert found.language in ("de", "en", "fr")
    assert found.text == "".join(one.text for one in found.segments).strip()
    for one in found.segments:
        assert 0 <= one.start <= one.end <= 40
        assert one.temperature == 0.5
        assert one.compression_ratio > 0 > one.logprob
        assert 0 <= one.no_speech <= 1
    assert found.segments[-1].end > 30


def test_words_of_a_prompt_and_the_language_are_heeded(whisper, tone):
    german = Audio(tone.data, language="de")
    plain = whisper.transcribe(german, temperature=0.3)
    assert plain.language == "de"
    assert plain == whisper.transcribe(german, temperature=0.3)  # chance is the same each time
    assert whisper.transcribe(german, prompt="<|endoftext|> the", temperature=0.3) != plain


def test_a_model_of_one_language(whisper, monkeypatch):
    monkeypatch.setattr(whisper.reader, "languages", {})
    found = whisper.transcribe(Audio(sounds.wav(sounds.tone(31))), temperature=0.5)
    assert found.language == "en"
    with pytest.raises(PromptError, match="supports English only"):
        whisper.transcribe(Audio(sounds.wav(sounds.tone()), translate=True))


def test_in_asynchronous_code(whisper, tone):
    async def transcribed():
        options = LoadOptions()
        async with await AsyncModel.load(whisper.folder, options, in_process=True) as model:
            return await model.transcribe(tone, temperature=0.5)

    assert asyncio.run(transcribed()) == whisper.transcribe(tone, temperature=0.5)


def test_the_page(whisper, tone, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("command.wav", "number.mp3", "talk.mp3"):
        (tmp_path / name).write_bytes(tone.data)
    names = {}
    instead = {'"whisper-tiny.en"': repr(str(whisper.folder))}
    run("docs/pictures-and-sound.md", "whisper = structgen.load", names, instead)
    assert names["command"] in ("start", "stop", "louder", "softer")
    assert names["talk"].srt() in capsys.readouterr().out


def test_what_transcribe_refuses(whisper, tone):
    with pytest.raises(PromptError, match=r"takes a structgen\.media\.Audio, got"):
        whisper.transcribe("tone.wav")
    for wrong in ({"temperature": 2}, {"temperature": "0"}, {"prompt": None}):
        with pytest.raises(OptionError, match=rf"{next(iter(wrong))}="):
            whisper.transcribe(tone, **wrong)
    with pytest.raises(PromptError, match="contains a NUL"):
        whisper.transcribe(tone, prompt="a\0b")
    with pytest.raises(PromptError, match="does not support the language 'xx'"):
        whisper.transcribe(Audio(tone.data, language="xx"))


def stamps(whisper, *tokens):
    """The segments that tokens stand for: floats are times, strings texts."""
    ids = []
    for one in tokens:
        ids += (
            [STAMP + round(one / 0.02)] if isinstance(one, float) else whisper.encode(one).tolist()
        )
    written = _Written("en", tuple(ids), 0.0, -0.5, 1.0, 0.1)
    found, done = whisper.reader._segments(written, 20.0)
    return [(one.start, one.end, one.text) for one in found], done


def test_segments_and_where_the_next_window_begins(whisper):
    assert stamps(whisper, 0.0, "a", 2.0, 2.0, "b", 4.0) == (
        [(0.0, 2.0, "a"), (2.0, 4.0, "b")],
        20.0,  # after the last stamp nothing is said
    )
    assert stamps(whisper, 0.0, "a", 2.0, 2.0, "b") == ([(0.0, 2.0, "a")], 2.0)
    assert stamps(whisper, 0.0, "a", 2.0, 2.0) == ([(0.0, 2.0, "a")], 2.0)
    assert stamps(whisper, 1.0, "a") == ([(1.0, 20.0, "a")], 20.0)
    assert stamps(whisper, 1.0, "a", 30.0) == ([(1.0, 20.0, "a")], 20.0)  # no longer than it is
    assert stamps(whisper, 1.0, " ", 3.0) == ([], 20.0)
    assert stamps(whisper) == ([], 20.0)


def allowed(whisper, *tokens):
    """Which of the end, a letter, and the times 0, 2, 4 and 6 s may come after some tokens."""
    scores = np.zeros(whisper.vocabulary.size, np.float32)
    scores[:STAMP] += 20  # stamps are not so likely that one has to come
    ruled = whisper.reader._ruled(scores, list(tokens))
    places = [tiny_whisper.END, 5, *(STAMP + 50 * t for t in (0, 2, 4, 6))]
    assert not np.isfinite(ruled[tiny_whisper.END + 1 : STAMP]).any()
    return [bool(np.isfinite(ruled[i])) for i in places]


def test_rules_of_time_stamps(whisper):
    zero, two, four = STAMP, STAMP + 100, STAMP + 200
    assert allowed(whisper) == [False, False, True, False, False, False]  # it begins within 1 s
    assert allowed(whisper, zero) == [True, True, False, False, False, False]
    assert allowed(whisper, zero, 5) == [True, True, False, True, True, True]
    assert allowed(whisper, zero, 5, two) == [True, False, False, True, True, True]
    assert allowed(whisper, zero, 5, two, two) == [True, True, False, False, False, False]
    assert allowed(whisper, zero, 5, two, two, 6) == [True, True, False, False, True, True]
    assert allowed(whisper, zero, 5, two, four, 6) == [True, True, False, False, False, True]


def test_a_stamp_comes_where_all_together_are_likelier_than_any_text(whisper):
    scores = np.zeros(whisper.vocabulary.size, np.float32)
    scores[5] = 3  # e^3 is less than 1,400 times 1
    ruled = whisper.reader._ruled(scores, [STAMP, 7])
    assert np.isinf(ruled[:STAMP]).all()
    assert np.isfinite(ruled[STAMP + 1 :]).all()


def test_a_window_that_went_wrong_is_written_again(whisper, monkeypatch):
    def written(logprob, ratio=1.0, silent=0.0):
        return _Written("de", (STAMP, 5, STAMP + 50), 0.0, logprob, ratio, silent)

    def heard(*outcomes, temperature=0.0):
        left, asked = list(outcomes), []

        def write(features, window):
            asked.append(window.temperature)
            yield
            return left.pop(0)

        monkeypatch.setattr(whisper.reader, "_written", write, raising=False)
        window = Window(sounds.tone(), None, False, np.empty(0, np.int32), temperature)
        return run_passes(whisper.reader.transcribe(window)), asked

    good = written(-0.2)
    assert heard(good)[1] == [0.0]
    assert heard(written(-2.0), good)[1] == [0.0, 0.4]  # not sure
    assert heard(written(-0.2, ratio=9.0), written(-2.0), good)[1] == [0.0, 0.4, 0.8]  # repeated
    last, asked = heard(*[written(-2.0)] * 3)
    assert (len(last.segments), len(asked)) == (1, 3)  # better than nothing
    assert heard(written(-2.0), temperature=0.5)[1] == [0.5]
    silence, asked = heard(written(-2.0, silent=0.9))
    assert (silence.segments, silence.seconds, asked) == ([], 1.0, [0.0])


def test_scores_that_are_no_numbers_are_told(whisper, tone, monkeypatch):
    """The text was of NUL characters, with NaN for its log probability."""
    scores = np.full((1, whisper.vocabulary.size), np.inf, np.float32)
    monkeypatch.setattr("structgen.models.genai.whisper.last_logits", lambda *_: scores)
    with np.errstate(invalid="ignore"), pytest.raises(ModelError, match="NaN or infinite scores"):
        whisper.transcribe(tone)


def test_windows_go_on_where_a_sentence_ended():
    samples = np.linspace(-1, 1, 50 * 16_000, dtype=np.float32)
    first = Window(samples[:0], None, False, np.empty(0, np.int32), 0.0)
    listening = Listening(samples, first)

    def segment(start, end):
        return Segment(start, end, f" {start}", (), 0.0, -0.1, 1.0, 0.0)

    assert len(listening.window.samples) == 30 * 16_000
    assert np.abs(listening.window.samples - samples[: 30 * 16_000]).max() < 1e-4
    listening.add(WindowTranscript("de", [segment(0.0, 4.0), segment(4.0, 27.5)], 27.5))
    window = listening.window
    assert window.language == "de"
    assert len(window.samples) == round(22.5 * 16_000)
    (found,) = listening.add(WindowTranscript("de", [segment(1.0, 2.0)], 0.0))
    assert (found.start, found.end) == (28.5, 29.5)
    assert len(listening.window.samples) == round(21.5 * 16_000)  # a second, so that it ends
    listening.add(WindowTranscript("de", [], 21.5))
    assert listening.window is None
    assert listening.transcript.text == "0.0 4.0 1.0"
    assert [one.end for one in listening.transcript.segments] == [4.0, 27.5, 29.5]


def test_a_transcript_of_tokens_of_60_000_bytes_ends():
    """A sound of five minutes took 1.6 GB of the server's memory."""
    first = Window(np.empty(0, np.float32), None, False, np.empty(0, np.int32), 0.0)
    listening = Listening(np.zeros(90 * 16_000, np.float32), first)
    long = Segment(0.0, 30.0, "a" * (3 << 20), (), 0.0, -0.1, 1.0, 0.0)
    listening.add(WindowTranscript("en", [long], 30.0))
    with pytest.raises(ModelError, match="more than 4,194,304 characters"):
        listening.add(WindowTranscript("en", [long], 30.0))
    listening = Listening(np.zeros(90 * 16_000, np.float32), first)
    with pytest.raises(ModelError, match="too many segments"):
        listening.add(WindowTranscript("en", [replace(long, text="a")] * 11_000, 30.0))


def test_subtitles():
    lines = (" Hello,\n you --> there", " Bye.")
    parts = [Segment(i * 3599.5, i * 3599.5 + 0.25, text, (), 0, 0, 0, 0)
             for i, text in enumerate(lines)]  # fmt: skip
    transcript = Transcript("", "en", 4000.0, parts)
    assert transcript.srt() == (
        "1\n00:00:00,000 --> 00:00:00,250\nHello, you -> there\n\n"
        "2\n00:59:59,500 --> 00:59:59,750\nBye.\n\n"
    )
    assert transcript.vtt() == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:00.250\nHello, you -> there\n\n"
        "00:59:59.500 --> 00:59:59.750\nBye.\n\n"
    )


# -- models ---------------------------------------------------------------------------------------


def test_other_models_say_which_to_load(model, tone):
    with pytest.raises(
        PromptError, match=r"accepts only text, but the prompt has 1 sound. Load Wh"
    ):
        model([tone])
    with pytest.raises(ModelError, match=r"cannot transcribe audio\. Load Whisper"):
        model.transcribe(tone)


@pytest.mark.parametrize(
    ("name", "value"),
    [("past_key_names", "wrong_%d"), ("past_key_names", "logits"), ("num_hidden_layers", 1)],
)
def test_an_input_that_nothing_fills_is_told(tmp_path, name, value):
    """The first sound ended the process."""
    folder = tiny_whisper.converted(tmp_path)
    config = json.loads((folder / "genai_config.json").read_text())
    decoder = config["model"]["decoder"]
    (decoder if name in decoder else decoder["inputs"])[name] = value
    (folder / "genai_config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"decoder.onnx has the input 'past_key_self_1', which"):
        structgen.load(folder)


def test_an_input_with_its_usual_name_need_not_be_named(tmp_path, tone):
    folder = tiny_whisper.converted(tmp_path)
    config = json.loads((folder / "genai_config.json").read_text())
    del config["model"]["decoder"]["inputs"]["input_ids"]
    config["model"]["decoder"]["num_hidden_layers"] *= 1.0  # as the runtime reads numbers
    (folder / "genai_config.json").write_text(json.dumps(config))
    structgen.load(folder).transcribe(tone)


def test_a_folder_without_its_tokens_is_told(tmp_path):
    folder = tiny_whisper.converted(tmp_path)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["added_tokens"] = tokenizer["added_tokens"][:-1]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ModelError, match=r"has no token <\|notimestamps\|>"):
        structgen.load(folder)
    with pytest.raises(OptionError, match="cannot rewind"):
        structgen.load(folder, deterministic=True)
