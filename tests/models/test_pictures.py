"""Pictures in prompts, on tiny models of four families behind the runtime's own processors."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import io
import itertools
import struct
import subprocess
import sys
import time
import warnings
import zlib
from typing import Literal

import numpy as np
import onnxruntime_genai as og
import pytest
from models import tiny_vision
from models.tiny_vision import png
from PIL import Image as Pillow
from pydantic import BaseModel, field_validator

import structgen
from structgen import Regex, ToolCalls
from structgen.decoding.options import parse
from structgen.errors import PromptError
from structgen.media import Audio, Image, data_uri, marked
from structgen.models.genai import media
from structgen.models.genai.media import _as_png

FAMILIES = ("phi3v", "qwen2_5_vl", "gemma3")
MARKERS = {
    "phi3v": "<|image_{}|>\n",
    "qwen2_5_vl": "<|vision_start|><|image_pad|><|vision_end|>",
    "phi4mm": "<|image_{}|>",
    "gemma3": "<start_of_image>",  # and the processor puts empty lines around
}
RED, BLUE = png((220, 20, 20)), png((10, 20, 230), (30, 90))


@pytest.fixture(scope="module", params=FAMILIES)
def seeing(request, tmp_path_factory):
    folder = getattr(tiny_vision, request.param)(tmp_path_factory.mktemp("vision") / request.param)
    return structgen.load(folder)


def runtimes_own(model, text: str, pictures: list[bytes], n: int = 8) -> list[int]:
    """What the runtime writes by itself, greedily, with its processor given the whole prompt."""
    processor = model.og_model.create_multimodal_processor()
    images = og.Images.open_bytes(*pictures) if pictures else None
    given = {} if images is None else {"images": images}
    params = og.GeneratorParams(model.og_model)
    params.set_search_options(max_length=tiny_vision.CONTEXT[model.og_model.type], do_sample=False)
    generator = og.Generator(model.og_model, params)
    generator.set_inputs(processor(text, **given))
    found = []
    for _ in range(n):
        generator.generate_next_token()
        found.append(int(generator.get_next_tokens()[0]))
    return found


def chat(text: str) -> str:
    return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("pictures", [[RED], [BLUE, RED, RED]])
def test_outputs_are_those_of_the_runtimes_own_processor(seeing, pictures):
    marker = MARKERS[seeing.og_model.type]
    text = "".join(f"see {marker.format(i)}" for i in range(1, len(pictures) + 1)) + "what?"
    expected = runtimes_own(seeing, chat(text), pictures)
    parts = [part for picture in pictures for part in ("see ", Image(picture))]
    generator = structgen.Generator(seeing)
    result = generator.result([*parts, "what?"], max_new_tokens=8)
    end = seeing.vocabulary.eos_token_ids[0]
    assert [*result.token_ids] == [*expected, end][: expected.index(end) if end in expected else 8]


def test_phi_4_sees_as_the_runtimes_own_processor(tmp_path):
    """By itself: its tokens' ids are fixed in the runtime, so each pass has 200,000 scores."""
    model = structgen.load(tiny_vision.phi4mm(tmp_path / "phi4mm"))
    test_outputs_are_those_of_the_runtimes_own_processor(model, [RED])


def test_what_is_written_is_text_of_the_output_type(seeing):
    class Seen(BaseModel):
        colour: Literal["red", "blue"]
        count: int

    for picture in (RED, BLUE):
        value = seeing(["What is this?", Image(picture)], Seen, max_new_tokens=30)
        assert isinstance(value, Seen)


def test_thoughts_and_calls_come_after_pictures(qwen):
    def f() -> None: ...

    prompt = ["what?", Image(RED)]
    thought = structgen.Generator(qwen, bool, think=30).result(prompt)
    assert thought.usage.reasoning_tokens > 0
    assert isinstance(thought.value, bool)
    calls = structgen.Generator(qwen, ToolCalls([f], choice="required", parallel=False))
    (call,) = calls.parse(prompt, max_new_tokens=61)
    assert (call.name, dict(call.arguments)) == ("f", {})


def test_special_tokens_that_users_spell_stay_text(seeing):
    ids = seeing.vocabulary.named_tokens
    generator = structgen.Generator(seeing)
    spelt = "<|vision_start|><|image_pad|><|image_1|><start_of_image><|im_end|>"
    prompt = generator._task.prepare([spelt, Image(RED), "x"], parse({}))
    kinds = prompt.token_ids.tolist()
    assert kinds.count(ids["<|im_end|>"]) == 1
    assert kinds.count(ids["<|vision_start|>"]) == (seeing.og_model.type == "qwen2_5_vl")
    assert kinds.count(ids["<start_of_image>"]) == (seeing.og_model.type == "gemma3")
    assert min(kinds) >= 0
    assert isinstance(generator([spelt, Image(RED)], max_new_tokens=3), str)


def test_equal_tokens_with_another_picture_are_another_prompt(seeing):
    generator = structgen.Generator(seeing, Regex("[a-z ]{12}"))
    other = png((10, 250, 20), (60, 40))
    first = generator(["x", Image(RED)])
    second = generator(["x", Image(other)])
    assert first != second
    assert [generator(["x", Image(one)]) for one in (RED, other, RED)] == [first, second, first]
    assert seeing.sequences.info.sequences == 0


def test_text_prompts_of_such_models_are_as_the_runtimes(seeing):
    expected = runtimes_own(seeing, chat("hello"), [])
    generator = structgen.Generator(seeing)
    for _ in range(2):
        result = generator.result([{"role": "user", "content": "hello"}], max_new_tokens=8)
        assert [*result.token_ids] == expected[: len(result.token_ids)]


def test_a_text_model_says_what_to_load(model):
    with pytest.raises(PromptError, match=r"smollm2.* accepts only text, but the prompt has 1 pic"):
        model(["x", Image(RED)])


@pytest.fixture(scope="module")
def qwen(tmp_path_factory):
    return structgen.load(tiny_vision.qwen2_5_vl(tmp_path_factory.mktemp("vision") / "qwen"))


def chat_of(picture: bytes, text: str = "What is this?") -> list[dict]:
    return [{"role": "user", "content": [Image(picture), {"type": "text", "text": text}]}]


def test_the_tokens_that_follow_a_picture_stand_where_they_do_in_one_pass(qwen):
    prompt = structgen.Generator(qwen)._task.prepare(["a", Image(RED), "bcd"], parse({}))
    more = np.random.default_rng(1).integers(20, 200, 12).astype(np.int32)
    found = []
    for cuts in ([1] * 12, [12], [3, 1, 5, 3]):
        sequence = qwen.start(len(prompt.token_ids) + 40, media=prompt.media)
        sequence.append(prompt.token_ids[:5])  # as a prompt that is cut into passes
        sequence.append(prompt.token_ids[5:])
        for start, end in itertools.pairwise([0, *itertools.accumulate(cuts)]):
            sequence.append(more[start:end])
        found.append(sequence.logits()[0])
    # There is no way back: all of it is run once more.
    sequence.rewind(len(prompt.token_ids) + 6)
    sequence.append(more[6:])
    found.append(sequence.logits()[0])
    found.append(sequence.recent_logits(len(more) + 2)[-1])
    for scores in found[1:]:
        assert np.abs(scores - found[0]).max() < 1e-4


class Seen(BaseModel):
    colour: Literal["red", "blue"]
    sure: bool


@pytest.mark.parametrize(
    "options",
    [
        {"forced": False},
        {"batch_size": 4, "n": 1},
        {"logprobs": True, "top_logprobs": 2},
        {"best": True},
        {"trace": True},
        {"speculate": True},
    ],
    ids=lambda options: next(iter(options)),
)
def test_options_give_with_pictures_what_they_give_with_text(qwen, options):
    generator = structgen.Generator(qwen, Seen)
    expected = generator(chat_of(RED))
    found = generator.result(chat_of(RED), **options)
    found = found[0] if isinstance(found, list) else found
    assert found.text == expected or options == {"best": True}
    assert Seen.model_validate_json(found.text)
    assert found.confidence["$.colour"].probability > 0
    assert "".join(generator.stream(chat_of(RED))) == expected


def test_several_prompts_and_samples(qwen):
    generator = structgen.Generator(qwen, Seen)
    one, other = chat_of(RED), chat_of(BLUE)
    assert generator([one, other, one]) == [generator(one), generator(other), generator(one)]
    samples = generator.result(one, n=5, temperature=50.0, seed=4)
    assert len({sample.text for sample in samples}) > 1
    labels = structgen.Generator(qwen, Literal["red", "blue"])
    first, second = labels.probabilities(one), labels.probabilities(other)
    assert first != second
    assert labels.probabilities(one) == first


def test_checks_that_refuse_values_take_them_back(qwen):
    class Sure(Seen):
        @field_validator("sure")
        @classmethod
        def _is(cls, value: bool) -> bool:
            if value is not wanted:
                raise ValueError("the other")
            return value

    for wanted in (True, False):
        assert qwen(chat_of(RED), Sure, retries=5).sure is wanted


def test_the_oldest_pictures_go_with_their_messages(qwen):
    context = qwen.context_length
    turns = []
    for i in range(4):
        turns += [chat_of(RED if i % 2 else BLUE, "x" * (context // 3))[0]]
        turns.append({"role": "assistant", "content": "ok"})
    generator = structgen.Generator(qwen, Regex("[a-z]{8}"))
    assert generator(turns[:-1], truncate=True) == generator(turns[2:-1], truncate=True)
    last = turns[-4:-1]
    prompt = generator._task.prepare(turns[:-1], parse({"truncate": True}))
    alone = generator._task.prepare(last, parse({"truncate": True}))
    n_pads = prompt.token_ids.tolist().count(tiny_vision.PAD)
    assert n_pads >= alone.token_ids.tolist().count(tiny_vision.PAD) > 0
    with pytest.raises(PromptError, match="is 512"):
        generator(turns[:-1])


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (["x", *[Image(RED)] * 33], "more than 32 pictures"),
        (["\ufdd0", Image(RED)], "U.FDD0"),
        ([{"role": "system", "content": [Image(RED)]}, chat_of(RED)[0]], "Only user messages"),
        (["x", Audio(b"RIFF\0\0\0\0WAVE")], "does not support audio"),
        (["x", Image(png()[:60])], "Cannot read the image as PNG: image file is truncated"),
        ([Image(RED), 3], "part 1 .* an int"),
        ([{"role": "user", "content": ["x", Image(RED)]}], "part 0 .* a str. Write it as {.type"),
    ],
)
def test_what_cannot_be_read_is_refused(qwen, prompt, message):
    with pytest.raises(PromptError, match=message):
        structgen.Generator(qwen).result(prompt, max_new_tokens=3)


def test_pictures_are_bounded_together():
    """15 of 50,000,000 pixels, 3 MB, held up all other requests for 16 s of processor time."""
    large = bytearray(png())
    large[16:24] = struct.pack(">II", 5_000, 6_000)
    message = {"role": "user", "content": [Image(bytes(large))]}
    assert len(marked([message])[1]) == 1
    with pytest.raises(PromptError, match="60,000,000 pixels in total"):
        marked([message, message])


def test_marks_are_text_in_prompts_without_pictures(qwen):
    generator = structgen.Generator(qwen)
    prompt = generator._task.prepare([{"role": "user", "content": "\ufdd0"}], parse({}))
    assert "\ufdd0" in qwen.decode(prompt.token_ids)


def test_a_model_in_another_process_sees_the_same(qwen):
    expected = [structgen.Generator(qwen, Seen)(chat_of(one)) for one in (RED, BLUE)]

    async def ask() -> list[str]:
        async with qwen.to_async() as model:
            generator = structgen.Generator(model, Seen)
            return [await generator(chat_of(one)) for one in (RED, BLUE, RED)]

    found = asyncio.run(ask())
    assert found == [*expected, expected[0]]


def test_a_runner_takes_openais_form_and_that_of_mistral_rs(qwen):
    uri = data_uri("image/png", RED)
    text = {"type": "text", "text": "What is this?"}
    expected = structgen.Generator(qwen, Seen)(chat_of(RED))
    ways = [{"type": "image_url", "image_url": {"url": uri}}]
    ways += [{"type": "image_url", "image_url": uri}, Image(RED)]
    with structgen.Runner({"eyes": str(qwen.folder)}) as runner:
        for way in ways:
            messages = [{"role": "user", "content": [way, text]}]
            answer = runner.chat({"messages": messages, "output_type": Seen, "temperature": 0})
            assert answer.text == expected


def test_damaged_pictures_are_errors_and_never_the_end_of_the_process(qwen):
    file = io.BytesIO()
    Pillow.fromarray(np.random.default_rng(0).integers(0, 255, (40, 60, 3), np.uint8)).save(
        file, "JPEG"
    )
    good = file.getvalue()
    (seen,) = qwen.perceive([Image(good)]).token_ids
    assert len(seen) == 8
    bad = [good[:-200], good[:300], good[:180] + b"\xff\xc0" + good[182:], good[:-9] + bytes(9)]
    for kind in ("GIF", "WEBP"):
        file = io.BytesIO()
        Pillow.open(io.BytesIO(good)).save(file, kind)
        qwen.perceive([Image(file.getvalue())])
        bad.append(file.getvalue()[:120])
    for data in bad:
        with contextlib.suppress(PromptError):
            qwen.perceive([Image(data)])
    deep = bytearray(good)
    deep[good.index(b"\xff\xc0") + 4] = 12  # bits of a sample
    with pytest.raises(PromptError, match=r"JPEG: cannot handle 12-bit layers\.$"):
        qwen.perceive([Image(bytes(deep))])


def png_with(*chunks: tuple[bytes, bytes]) -> bytes:
    end = RED.index(b"IDAT") - 4
    made = b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )
    return RED[:end] + made + RED[end:]


def as_png(data: bytes) -> bytes:
    (found,) = _as_png([Image(data)])
    return found


def pixels_of(data: bytes) -> np.ndarray:
    return np.asarray(Pillow.open(io.BytesIO(as_png(data))))


def interlaced(pixels: np.ndarray) -> bytes:
    """A PNG file whose rows come in seven passes."""
    height, width = pixels.shape[:2]
    starts = (0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2)
    rows = [row for x, y, dx, dy in (*starts, (0, 1, 1, 2)) for row in pixels[y::dy, x::dx]]
    depth, kind = 8 * pixels.itemsize, 2 if pixels.ndim == 3 else 0
    head = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 1)
    packed = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows if row.size))
    chunks = (b"IHDR", head), (b"IDAT", packed), (b"IEND", b"")
    return RED[:8] + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )


def test_the_rows_of_an_interlaced_picture_are_sorted():
    """The runtime showed them to the model in the order of the file."""
    pixels = np.random.default_rng(0).integers(0, 256, (13, 21, 3), np.uint8)
    assert as_png(interlaced(pixels))[28] == 0
    assert np.array_equal(pixels_of(interlaced(pixels)), pixels)
    gray = (pixels[..., 0] * np.uint16(256) + 77).astype(">u2")
    assert np.array_equal(pixels_of(interlaced(gray))[..., 1], pixels[..., 0])


def test_of_a_pictures_data_no_more_is_unpacked_than_its_pixels():
    zeros = pixels_of(png_with((b"IDAT", zlib.compress(bytes(1 << 20)))))
    assert zeros.shape == (40, 60, 3)
    assert not zeros.any()
    text = b"zTXt", b"a\0\0" + zlib.compress(bytes(3 << 20))
    assert as_png(png_with(text)) == as_png(RED)
    with pytest.raises(PromptError, match="as PNG: broken data stream"):
        as_png(png_with((b"IDAT", b"no zlib")))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_a_camera_says_which_way_is_up(kind):
    """Behind it may be notes of the maker."""
    file, exif = io.BytesIO(), Pillow.Exif()
    exif[0x0112] = 6
    behind = bytes(1 << 15 if kind == "JPEG" else 1 << 17)
    Pillow.new("RGB", (60, 120)).save(file, kind, exif=exif.tobytes() + behind)
    assert Image(as_png(file.getvalue())).size == (120, 60)


def test_a_photograph_may_say_in_xmp_which_way_is_up():
    file = io.BytesIO()
    Pillow.new("RGB", (60, 120)).save(file, "JPEG", xmp=b'<x tiff:Orientation="6"/>')
    assert Image(as_png(file.getvalue())).size == (120, 60)


def _jpeg(notes: bytes) -> tuple[bytes, bytes]:
    file, exif = io.BytesIO(), Pillow.Exif()
    exif[0x0112] = 6
    Pillow.new("RGB", (60, 120)).save(file, "JPEG", exif=exif)
    data = file.getvalue()
    return data[:2] + notes + data[2:], data


def _gif(notes: bytes) -> tuple[bytes, bytes]:
    file = io.BytesIO()
    Pillow.new("P", (60, 120)).save(file, "GIF", transparency=0)
    data = file.getvalue()
    at = 13 + (data[10] >> 7) * (3 << (data[10] & 7) + 1)
    return data[:at] + notes + data[at:], data


def _png(notes: bytes) -> tuple[bytes, bytes]:
    return RED[:33] + notes + RED[33:], RED


_SIZE = b"\xff\xc0\0\x11\x08\0\x78\0\x3c\3\1\x22\0\2\x11\1\3\x11\1"
_NOTES = {
    "comments": (_jpeg, (b"\xff\xfe" + b"\0\x52" + bytes(80)) * 3000),
    "marks": (_jpeg, (b"\xff\xe1" + b"\0\x52" + b"http" + bytes(76)) * 3000),
    "in a part": (_jpeg, b"\xff\xc8\x75\x32" + (b"\xff\xe1\0\x0cExif\0\0MM\0*") * 2142 + bytes(12)),
    "no parts": (_jpeg, b"x" * 300_000),
    "behind an end": (_jpeg, _SIZE + b"\xff\xd9" + (b"\xff\xe1\0\x0cExif\0\0MM\0*") * 30_000),
    "behind a start": (_jpeg, b"\xff\xd8\xff\xff" + (b"\xff\xe1\0\x0cExif\0\0MM\0*") * 4_000),
    "of a GIF": (_gif, b"\x21\xfe" + b"\1x" * 3000 + b"\0"),
    "of a PNG": (_png, struct.pack(">I4sI", 0, b"teXt", zlib.crc32(b"teXt")) * 100_000),
    "packed": (_png, png_with((b"zTXt", b"a\0\0" + zlib.compress(bytes(1 << 20))))[33:-12] * 100),
    "odd": (_png, png_with((b"IHDR", b""), (b"hIST", b""))[33:-12]),
    "hidden": (_gif, b"\x21\1\0\x2c" + bytes(44) + b"\0\x21\xfe" + b"\1x" * 300_000 + b"\0"),
}


@pytest.mark.parametrize("notes", _NOTES)
def test_notes_in_a_picture_cost_this_process_nothing(notes):
    """4 MB of them took Pillow 5.2 s, and time grew with the square: each copied all before."""
    made, added = _NOTES[notes]
    noted, plain = made(added)
    began = time.thread_time()
    with contextlib.suppress(PromptError):
        assert as_png(noted) == as_png(plain)
    assert time.thread_time() - began < 0.5


def test_damaged_pictures_write_nothing_into_a_servers_log(capfd):
    """Each tag that cannot be read had a warning of its own."""
    file = io.BytesIO()
    exif = Pillow.Exif()
    exif[0x010E] = "x" * 50
    Pillow.new("RGB", (20, 20)).save(file, "JPEG", exif=exif)
    damaged = file.getvalue().replace(b"\x01\x0e\x00\x02\x00\x00", b"\x01\x0e\x00\x02\x7f\xff")
    with warnings.catch_warnings(record=True) as told:
        as_png(damaged)
        with pytest.raises(PromptError, match="Truncated"):
            as_png(damaged[:-300])
    assert not told
    assert capfd.readouterr() == ("", "")


_OWN = f"import sys; sys.path.insert(0, {str(media._SCRIPT.parent)!r}); import pictures\n"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems lack some of these limits")
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("pictures._pixels = lambda *_: open(sys.executable)", "Too many open files"),
        ("pictures._pixels = lambda *_: __import__('socket').socket()", "Too many open files"),
        ("pictures._pixels = lambda *_: [0] * (1 << 27)", "not enough memory"),
        ("def _pixels(*_):\n    while True: pass\npictures._pixels = _pixels", "too much time"),
    ],
    ids=["files", "sockets", "memory", "time"],
)
def test_a_decoder_has_limits(monkeypatch, tmp_path, code, message):
    (tmp_path / "script.py").write_text(f"import socket\n{_OWN}{code}\npictures.main()")
    monkeypatch.setattr(media, "_SCRIPT", tmp_path / "script.py")
    with pytest.raises(PromptError, match=f"as PNG: .*{message}"):
        as_png(RED)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("", r"crashes Pillow \(exit code 0\)"),
        ("import os; os.abort()", "crashes Pillow"),
        ("print('60 40')", "crashes Pillow"),
        ("print('60 40'); print('x' * 7199, end='')", "crashes Pillow"),
        ("print('7 7'); print('x' * 147)", r"as PNG: 7 7\\n\."),
        ("print('\\033[2J' + '[' * 100_000)", r"as PNG: \\x1b\[2J\[{396}\.$"),
        ("while True: print('x', end='')", r"as PNG: x{400}\.$"),
        ("import time; time.sleep(1000)", "too much time"),
        ("import sys, os; os.close(1); sys.stdin.read()", "too much time"),
    ],
    ids=lambda value: value[:20],
)
def test_whatever_a_decoder_does_is_an_error_of_the_prompt(monkeypatch, tmp_path, code, message):
    started = []

    def start(*args, **how):
        started.append(popen(*args, **how))
        return started[-1]

    popen = subprocess.Popen
    (tmp_path / "script.py").write_text(code)
    monkeypatch.setattr(media, "_SCRIPT", tmp_path / "script.py")
    monkeypatch.setattr(media, "_SECONDS", 2 if "too" in message else 60)
    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(PromptError, match=message):
        as_png(RED)
    (process,) = started
    assert process.returncode is not None
    assert process.stdin.closed
    assert process.stdout.closed


def test_pictures_require_pillow(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PromptError, match=r"pip install 'structgen\[pictures\]'"):
        as_png(RED)


def test_a_picture_of_two_sizes_is_refused(qwen):
    """A GIF of 55 bytes said 4 x 4, and was decoded as 100,000,000 pixels."""
    file = io.BytesIO()
    Pillow.new("P", (40, 30)).save(file, "GIF")
    lies = bytearray(file.getvalue())
    lies[6:10] = struct.pack("<HH", 4, 4)
    with pytest.raises(PromptError, match="two sizes"):
        qwen([Image(bytes(lies)), "?"])


def test_a_photograph_is_looked_at_the_way_it_was_taken(qwen):
    picture = Pillow.new("RGB", (60, 120), (200, 10, 10))
    exif = Pillow.Exif()
    exif[0x0112] = 6  # the camera was turned
    file = io.BytesIO()
    picture.save(file, "JPEG", exif=exif)
    grid = qwen.perceive([Image(file.getvalue())]).inputs()["image_grid_thw"].as_numpy()
    assert grid[0, 1] < grid[0, 2]


def test_a_model_that_was_handed_in_sees_too(qwen):
    handed = structgen.from_onnx_genai(qwen.og_model, qwen.og_tokenizer, folder=qwen.folder)
    expected = structgen.Generator(qwen, Seen)(chat_of(RED))
    generator = structgen.Generator(handed, Seen)
    assert [generator(chat_of(RED)) for _ in range(2)] == [expected] * 2
