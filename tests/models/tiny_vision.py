"""Vision models of a few kilobytes: random graphs in the forms of four families, Phi-3 vision,
Phi-4-multimodal, Qwen2.5-VL and Gemma 3, with the runtime's own processors before them.

What a model writes depends on every pixel's colour (by means), on where pictures stand, and on the
order of the tokens. So a wrong picture, place or cache shows in the scores.
"""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from models.tiny_gguf import byte_alphabet
from onnx import numpy_helper
from PIL import Image as Pillow

from structgen.models.genai.runtime import OLD

HIDDEN = 16
CONTEXT = {"phi3v": 8192, "phi4mm": 4096, "qwen2_5_vl": 512, "gemma3": 2048}
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"]
SPECIAL += ["<|image_pad|>", "<|image|>", "<start_of_image>", "<end_of_image>"]
SPECIAL += ["<image_soft_token>"]
TOKENS = [*SPECIAL, *byte_alphabet()]
IDS = {token: i for i, token in enumerate(TOKENS)}
PAD = IDS["<|image_pad|>"]
SIZE = len(TOKENS)
PHI_4 = ["decode_image", "phi4_vision_dynamic_preprocess", "rescale", "normalize", "phi4"]
FAR = 200_010
"""The token that Phi-4's processor takes for a picture, whatever the tokenizer says."""


def png(colour: tuple[int, int, int] = (200, 30, 30), size: tuple[int, int] = (60, 40)) -> bytes:
    """A picture of one colour."""
    file = io.BytesIO()
    Pillow.new("RGB", size, colour).save(file, "PNG")
    return file.getvalue()


def phi3v(folder: Path) -> Path:
    """A folder like that of microsoft/Phi-3.5-vision-instruct-onnx."""
    transform = {"num_crops": 16, "num_img_tokens": 144}  # whatever it says
    return _folder(
        folder,
        "phi3v",
        inputs=["pixel_values", "image_sizes"],
        vision=_PHI_3_VISION,
        is_own="own = Less (ids, zero)",
        positions="int64[B, S] position_ids",
        place="positions = Cast <to = 1> (position_ids)",
        operations=[
            ("DecodeImage", {"color_space": "BGR"}),
            ("ConvertRGB", {}),
            ("Phi3ImageTransform", transform),
        ],
    )


def qwen2_5_vl(folder: Path) -> Path:
    """A folder like one of Qwen2.5-VL."""
    resize = {"width": 56, "height": 56, "smart_resize": 1, "patch_size": 14, "merge_size": 2}
    return _folder(
        folder,
        "qwen2_5_vl",
        inputs=["pixel_values", "image_grid_thw"],
        vision=_QWEN_VISION,
        is_own="own = Equal (ids, pad)",
        positions="int64[3, B, S] position_ids",
        place="""all = Cast <to = 1> (position_ids)
            weights = Constant <value = float[3, 1, 1] {1.0, 0.5, 0.25}> ()
            weighed = Mul (all, weights)
            first = Constant <value = int64[1] {0}> ()
            positions = ReduceSum <keepdims = 0> (weighed, first)""",
        operations=[
            ("DecodeImage", {"color_space": "RGB"}),
            ("ConvertRGB", {}),
            ("Resize", {**resize, "min_pixels": 3136, "max_pixels": 12544}),
            ("Rescale", {"rescale_factor": 1 / 255}),
            ("Normalize", {"mean": [0.5] * 3, "std": [0.25] * 3, "qwen2_5_vl": 1}),
            ("PatchImage", {"patch_size": 14, "temporal_patch_size": 2, "merge_size": 2}),
        ],
        more={"spatial_merge_size": 2, "tokens_per_second": 2.0, "patch_size": 14},
    )


def phi4mm(folder: Path) -> Path:
    """A folder like that of microsoft/Phi-4-multimodal-instruct-onnx, without its speech."""
    return _folder(
        folder,
        "phi4mm",
        inputs=["pixel_values", "attention_mask", "image_sizes"],
        vision=_PHI_4_VISION,
        is_own=f"""far = Constant <value = int64 {{{FAR}}}> ()
            own = Equal (ids, far)""",
        positions="int64[B, S] position_ids",
        place="positions = Cast <to = 1> (position_ids)",
        operations=[
            ("DecodeImage", {"color_space": "RGB"}),
            ("Phi4VisionDynamicPreprocess", {"dynamic_hd": 36, "dyhd_base_resolution": 448}),
            ("Rescale", {"rescale_factor": 1 / 255}),
            ("Normalize", {"mean": [0.5] * 3, "std": [0.5] * 3}),
            ("Phi4VisionProcessor", {"dyhd_base_resolution": 448, "interpolation": "CUBIC"}),
        ],
    )


def gemma3(folder: Path) -> Path:
    """A folder like one of Gemma 3."""
    return _folder(
        folder,
        "gemma3",
        inputs=["pixel_values"],
        vision=_GEMMA_VISION,
        is_own=f"""soft = Constant <value = int64 {{{IDS["<image_soft_token>"]}}}> ()
            own = Equal (ids, soft)""",
        positions="int64[B, S] position_ids",
        place="positions = Cast <to = 1> (position_ids)",
        operations=[
            ("DecodeImage", {"color_space": "RGB"}),
            (
                "Resize",
                {"width": 896, "height": 896, "interpolation": "CUBIC", "keep_aspect_ratio": 0},
            ),
            ("Rescale", {"rescale_factor": 1 / 255}),
            ("Normalize", {"mean": [0.5] * 3, "std": [0.5] * 3}),
            ("Permute3D", {"dims": [2, 0, 1]}),
        ],
    )


# Each picture is as many features as its processor says, which tell of its mean colour.
_PHI_VISION = """<ir_version: 8, opset_import: ["" : 17]>
vision (float[N, C, 3, h, w] pixel_values, int64[N, 2] image_sizes)
=> (float[n, 16] image_features) {
    COUNTS
    places = Constant <value = int64[3] {2, 3, 4}> ()
    crop_means = ReduceMean <axes = [3, 4], keepdims = 0> (pixel_values)
    sums = ReduceMean <axes = [1], keepdims = 0> (crop_means)
    zeros = Constant <value = int64[1] {0}> ()
    end = CumSum (counts, zero)
    last = ReduceMax <keepdims = 0> (end)
    index = Range (zero, last, one)
    column = Unsqueeze (index, axes)
    flat_ends = Transpose (end)
    passed = GreaterOrEqual (column, flat_ends)
    passed_n = Cast <to = 7> (passed)
    picture = ReduceSum <keepdims = 0> (passed_n, axes)
    means = Gather <axis = 0> (sums, picture)
    colour = MatMul (means, of_colour)
    column_f = Cast <to = 1> (column)
    place = Mul (column_f, of_place)
    place_s = Sin (place)
    image_features = Add (colour, place_s)
}"""

_PHI_3_VISION = _PHI_VISION.replace(
    "COUNTS",
    """
    side = Constant <value = int64 {336}> ()
    one = Constant <value = int64 {1}> ()
    axes = Constant <value = int64[1] {1}> ()
    crops = Div (image_sizes, side)
    area = ReduceProd <axes = [1], keepdims = 1> (crops)
    zero = Constant <value = int64 {0}> ()
    high = Gather <axis = 1> (crops, zero)
    rows = Unsqueeze (high, axes)
    per = Constant <value = int64 {144}> ()
    twelve = Constant <value = int64 {12}> ()
    area_1 = Add (area, one)
    rows_1 = Add (rows, one)
    a = Mul (area_1, per)
    b = Mul (rows_1, twelve)
    ab = Add (a, b)
    counts = Add (ab, one)
""",
)

# Of pictures of one crop: what the mask of the crop has, and a token for each of its lines.
_PHI_4_VISION = _PHI_VISION.replace(
    "int64[N, 2]", "float[N, C, 32, 32] image_attention_mask, int64[N, 2]"
).replace(
    "COUNTS",
    """
    zero = Constant <value = int64 {0}> ()
    one = Constant <value = int64 {1}> ()
    axes = Constant <value = int64[1] {1}> ()
    from = Constant <value = int64[3] {1, 0, 0}> ()
    till = Constant <value = int64[3] {2, 32, 32}> ()
    along = Constant <value = int64[3] {1, 2, 3}> ()
    steps = Constant <value = int64[3] {1, 2, 2}> ()
    cells = Slice (image_attention_mask, from, till, along, steps)
    first = Constant <value = int64[1] {0}> ()
    last_axis = Constant <value = int64[1] {3}> ()
    line_starts = Slice (cells, first, axes, last_axis)
    n_cells = ReduceSum <keepdims = 0> (cells, along)
    n_lines = ReduceSum <keepdims = 0> (line_starts, along)
    always = Constant <value = float {273.0}> ()
    both = Add (n_cells, n_lines)
    many = Add (both, always)
    whole = Cast <to = 7> (many)
    counts = Unsqueeze (whole, axes)
""",
)

_QWEN_VISION = """<ir_version: 8, opset_import: ["" : 17]>
vision (float[P, 1176] pixel_values, int64[N, 3] image_grid_thw)
=> (float[n, 16] image_features) {
    four = Constant <value = int64[3] {-1, 4, 1176}> ()
    merged = Reshape (pixel_values, four)
    means = ReduceMean <axes = [1], keepdims = 0> (merged)
    thirds = Constant <value = int64[3] {-1, 3, 392}> ()
    channels = Reshape (means, thirds)
    colours = ReduceMean <axes = [2], keepdims = 0> (channels)
    image_features = MatMul (colours, of_colour)
}"""

_GEMMA_VISION = """<ir_version: 8, opset_import: ["" : 17]>
vision (float[N, 3, 896, 896] pixel_values) => (float[N, 256, 16] image_features) {
    places = Constant <value = int64[2] {2, 3}> ()
    colours = ReduceMean <axes = [2, 3], keepdims = 0> (pixel_values)
    features = MatMul (colours, of_colour)
    middle = Constant <value = int64[1] {1}> ()
    single = Unsqueeze (features, middle)
    many = Constant <value = int64[3] {1, 256, 1}> ()
    image_features = Tile (single, many)
}"""

_EMBEDDING = """<ir_version: 8, opset_import: ["" : 17]>
embedding (int64[B, S] input_ids, float[n, 16] image_features) => (float[B, S, 16] inputs_embeds) {
    zero = Constant <value = int64 {0}> ()
    pad = Constant <value = int64 {PAD}> ()
    ids = Identity (input_ids)
    IS_OWN
    size = Constant <value = int64 {SIZE}> ()
    other = Max (ids, zero)
    known = Mod (other, size)
    plain = Gather <axis = 0> (table, known)
    indices = NonZero (own)
    places = Transpose (indices)
    rows = Constant <value = int64[2] {-1, 16}> ()
    features = Reshape <allowzero = 0> (image_features, rows)
    inputs_embeds = ScatterND (plain, places, features)
}"""

_DECODER = """<ir_version: 8, opset_import: ["" : 17]>
decoder (float[B, S, 16] inputs_embeds, int64[B, T] attention_mask, POSITIONS,
    float[B, 1, past, 16] past_key, float[B, 1, past, 16] past_value)
=> (float[B, S, 300] logits, float[B, 1, T, 16] present_key, float[B, 1, T, 16] present_value) {
    PLACE
    last = Constant <value = int64[1] {-1}> ()
    one = Constant <value = int64[1] {1}> ()
    column = Unsqueeze (positions, last)
    angles = Mul (column, of_position)
    waves = Sin (angles)
    x = Add (inputs_embeds, waves)
    k = MatMul (x, wk)
    v = MatMul (x, wv)
    q = MatMul (x, wq)
    k_heads = Unsqueeze (k, one)
    v_heads = Unsqueeze (v, one)
    q_heads = Unsqueeze (q, one)
    present_key = Concat <axis = 2> (past_key, k_heads)
    present_value = Concat <axis = 2> (past_value, v_heads)
    keys = Transpose <perm = [0, 1, 3, 2]> (present_key)
    scores = MatMul (q_heads, keys)
    shape = Shape (scores)
    two = Constant <value = int64[1] {2}> ()
    three = Constant <value = int64[1] {3}> ()
    four = Constant <value = int64[1] {4}> ()
    n_new = Slice (shape, two, three)
    n_all = Slice (shape, three, four)
    n_past = Sub (n_all, n_new)
    behind = Add (n_past, one)
    behind_0 = Squeeze (behind)
    much = Constant <value = float[1] {-10000.0}> ()
    ones = ConstantOfShape <value = float[1] {-10000.0}> (shape)
    future = Trilu <upper = 1> (ones, behind_0)
    masked = Add (scores, future)
    shares = Softmax <axis = 3> (masked)
    mixed = MatMul (shares, present_value)
    flat = Squeeze (mixed, one)
    sum = Add (flat, x)
    curved = Tanh (sum)
    logits = MatMul (curved, head)
}"""


_WIDE = f"""    known = MatMul (curved, head)
    pads = Constant <value = int64[6] {{0, 0, 0, 0, 0, {FAR + 1 - SIZE}}}> ()
    little = Constant <value = float {{-10000.0}}> ()
    logits = Pad (known, pads, little)"""
"""Scores for tokens up to `FAR`."""

_CALLED = {"attention_mask": "image_attention_mask"}
_DOTTED = {
    "past_key": "past_key_values.0.key",
    "past_value": "past_key_values.0.value",
    "present_key": "present.0.key",
    "present_value": "present.0.value",
}


def _folder(
    folder, kind, *, inputs, vision, is_own, positions, place, operations, more=None
) -> Path:
    if OLD:
        pytest.skip(OLD)
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(5)

    def weights(*shape: int, scale: float = 1.0) -> np.ndarray:
        return (random.normal(size=shape) * scale).astype(np.float32)

    def save(name: str, text: str, **values: np.ndarray) -> None:
        model = onnx.parser.parse_model(text)
        for node in model.graph.node:  # whose names the parser does not take
            node.input[:] = [_DOTTED.get(one, one) for one in node.input]
            node.output[:] = [_DOTTED.get(one, one) for one in node.output]
        for one in (*model.graph.input, *model.graph.output):
            one.name = _DOTTED.get(one.name, one.name)
        for name_of, value in values.items():
            model.graph.initializer.append(numpy_helper.from_array(value, name_of))
        onnx.checker.check_model(model)
        if kind == "gemma3" and name == "embedding.onnx":  # with pictures 3 axes, without 2
            model.graph.input[1].type.tensor_type.ClearField("shape")
        onnx.save(model, folder / name)

    own = {"of_colour": weights(3, HIDDEN, scale=2.0)}
    if kind in ("phi3v", "phi4mm"):
        own["of_place"] = weights(1, HIDDEN, scale=0.1)
    save("vision.onnx", vision, **own)
    text = _EMBEDDING.replace("IS_OWN", is_own).replace("PAD", str(PAD)).replace("SIZE", str(SIZE))
    save("embedding.onnx", text, table=weights(SIZE, HIDDEN))
    text = _DECODER.replace("POSITIONS", positions).replace("PLACE", place)
    size = SIZE
    if kind == "phi4mm":
        size = FAR + 1
        text = text.replace("    logits = MatMul (curved, head)", _WIDE)
    save(
        "model.onnx",
        text.replace("300", str(size)),
        of_position=weights(1, 1, HIDDEN, scale=0.3),
        wq=weights(HIDDEN, HIDDEN, scale=0.3),
        wk=weights(HIDDEN, HIDDEN, scale=0.3),
        wv=weights(HIDDEN, HIDDEN),
        head=weights(HIDDEN, SIZE),
    )
    config = {
        "model": {
            "type": kind,
            "bos_token_id": 1,
            "eos_token_id": IDS["<|im_end|>"],
            "pad_token_id": 0,
            "context_length": CONTEXT[kind],
            "vocab_size": size,
            "image_token_id": PAD,
            "vision_start_token_id": IDS["<|vision_start|>"],
            "decoder": {
                "filename": "model.onnx",
                "head_size": HIDDEN,
                "hidden_size": HIDDEN,
                "num_attention_heads": 1,
                "num_key_value_heads": 1,
                "num_hidden_layers": 1,
                "session_options": {},
                "inputs": {
                    "inputs_embeds": "inputs_embeds",
                    "attention_mask": "attention_mask",
                    "position_ids": "position_ids",
                    "past_key_names": "past_key_values.%d.key",
                    "past_value_names": "past_key_values.%d.value",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value",
                },
            },
            "embedding": {
                "filename": "embedding.onnx",
                "inputs": {"input_ids": "input_ids", "image_features": "image_features"},
                "outputs": {"inputs_embeds": "inputs_embeds"},
            },
            "vision": {
                "filename": "vision.onnx",
                "config_filename": "processor_config.json",
                "inputs": {name: _CALLED.get(name, name) for name in inputs},
                "outputs": {"image_features": "image_features"},
                **(more or {}),
            },
        },
        "search": {"max_length": CONTEXT[kind], "past_present_share_buffer": False},
    }
    if kind == "phi4mm":
        config["model"]["speech"] = {"filename": "", "config_filename": ""}
    (folder / "genai_config.json").write_text(json.dumps(config))
    steps = [
        {
            "operation": {
                "name": f"{i}" if kind != "phi4mm" else PHI_4[i],
                "domain": "com.microsoft.extensions",
                "type": name,
                "attrs": a,
            }
        }
        for i, (name, a) in enumerate(operations)
    ]
    processor = {"processor": {"name": "pictures", "transforms": steps}}
    if kind == "phi4mm":
        processor["processor"]["output_aligner"] = "phi4-vision-aligner"
        steps[2]["operation"]["inputs"] = [":0"]
        steps[4]["operation"]["inputs"] = [":0", f"{PHI_4[1]}:1"]
    (folder / "processor_config.json").write_text(json.dumps(processor))
    special = dict(enumerate(SPECIAL)) | ({FAR: "<|endoftext10|>"} if kind == "phi4mm" else {})
    tokenizer = {
        "version": "1.0",
        "added_tokens": [
            {
                "id": i,
                "content": token,
                "special": True,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
            }
            for i, token in special.items()
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": IDS, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = {
        "tokenizer_class": "GPT2Tokenizer",
        "add_bos_token": False,
        "add_prefix_space": False,
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": "<|endoftext|>",
        "chat_template": CHATML,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder
