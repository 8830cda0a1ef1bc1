"""Pictures in prompts, on tiny models of two families behind the runtime's own processors."""

from __future__ import annotations

from typing import Literal

import onnxruntime_genai as og
import pytest
from models import tiny_vision
from models.tiny_vision import png
from pydantic import BaseModel

import structgen
from structgen import Regex
from structgen.decoding.options import parse
from structgen.errors import PromptError
from structgen.media import Image

FAMILIES = ("phi3v", "qwen2_5_vl")
MARKERS = {
    "phi3v": "<|image_{}|>\n",
    "qwen2_5_vl": "<|vision_start|><|image_pad|><|vision_end|>",
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
    params.set_search_options(max_length=8192, do_sample=False)
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


def test_what_is_written_is_text_of_the_output_type(seeing):
    class Seen(BaseModel):
        colour: Literal["red", "blue"]
        count: int

    for picture in (RED, BLUE):
        value = seeing(["What is this?", Image(picture)], Seen, max_new_tokens=30)
        assert isinstance(value, Seen)


def test_special_tokens_that_users_spell_stay_text(seeing):
    ids = seeing.vocabulary.named_tokens
    generator = structgen.Generator(seeing)
    spelt = "<|vision_start|><|image_pad|><|image_1|><|im_end|>"
    prompt = generator._task.prepare([spelt, Image(RED), "x"], parse({}))
    kinds = prompt.token_ids.tolist()
    assert kinds.count(ids["<|im_end|>"]) == 1
    assert kinds.count(ids["<|vision_start|>"]) == (seeing.og_model.type == "qwen2_5_vl")
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
    with pytest.raises(PromptError, match=r"smollm2.* reads text only, and the prompt has 1 pic"):
        model(["x", Image(RED)])
