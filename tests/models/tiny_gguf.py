"""GGUF files of a few kilobytes: a random Llama of two layers with a working tokenizer."""

from __future__ import annotations

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize

HIDDEN, FFN, HEADS, KV_HEADS, HEAD, LAYERS, CONTEXT = 64, 96, 4, 2, 32, 2, 128
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_alphabet():
    """GPT-2's printable stand-in for each of the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(others)) for b in range(256)]


def byte_level_tokenizer(pre="smollm"):
    merges = ["Ġ t", "h e", "Ġt he", "i n", "Ġ Ġ", "1 2", "a b"]
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *byte_alphabet()]
    tokens += [merge.replace(" ", "") for merge in merges]
    return {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "token_type": [3, 3, 3] + [1] * (len(tokens) - 3),
        "merges": merges,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
        "padding_token_id": 2,
        "add_bos_token": False,
    }


def sentencepiece_tokenizer():
    words = ["▁", "t", "h", "e", "a", "c", "▁t", "he", "▁the", "at", "c" + "at", "▁c", "▁cat"]
    tokens = ["<unk>", "<s>", "</s>", *[f"<0x{b:02X}>" for b in range(256)], *words]
    return {
        "model": "llama",
        "tokens": tokens,
        "scores": [0.0] * 259 + [-float(i) for i in range(len(words))],
        "token_type": [2, 3, 3] + [6] * 256 + [1] * len(words),
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
    }


def write(
    path,
    *,
    types=None,
    tokenizer=None,
    metadata=None,
    is_tied=True,
    extra=None,
    without=(),
    architecture="llama",
):
    """Write a file; ``types`` maps a part of a tensor's name to its storage type (default F32)."""
    tokenizer = tokenizer or byte_level_tokenizer()
    random = np.random.default_rng(0)
    writer = GGUFWriter(path, architecture)
    settings = {
        "block_count": LAYERS,
        "context_length": CONTEXT,
        "embedding_length": HIDDEN,
        "feed_forward_length": FFN,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.key_length": HEAD,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10000.0,
        **(metadata or {}),
    }
    for key, value in settings.items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        add[type(value)](f"{architecture}.{key}", value)
    for key, value in tokenizer.items():
        name = f"tokenizer.ggml.{key}"
        if isinstance(value, list):
            writer.add_array(name, value)
        elif isinstance(value, bool):
            writer.add_bool(name, value)
        else:
            (writer.add_string if isinstance(value, str) else writer.add_uint32)(name, value)
    if tokenizer["model"] == "gpt2":
        writer.add_chat_template(CHATML)

    vocabulary = len(tokenizer["tokens"])
    shapes = {"token_embd": (vocabulary, HIDDEN), "output_norm": (HIDDEN,)}
    if not is_tied:
        shapes["output"] = (vocabulary, HIDDEN)
    for layer in range(LAYERS):
        for part, shape in {
            "attn_norm": (HIDDEN,),
            "attn_q": (HEADS * HEAD, HIDDEN),
            "attn_k": (KV_HEADS * HEAD, HIDDEN),
            "attn_v": (KV_HEADS * HEAD, HIDDEN),
            "attn_output": (HIDDEN, HEADS * HEAD),
            "ffn_norm": (HIDDEN,),
            "ffn_gate": (FFN, HIDDEN),
            "ffn_up": (FFN, HIDDEN),
            "ffn_down": (HIDDEN, FFN),
        }.items():
            shapes[f"blk.{layer}.{part}"] = shape
    shapes.update(extra or {})
    for name, shape in shapes.items():
        if name in without:
            continue
        if len(shape) == 1:
            values = random.uniform(0.5, 1.5, shape).astype(np.float32)
        else:
            values = (random.normal(size=shape) / shape[-1] ** 0.5).astype(np.float32)
        kind = GGMLQuantizationType.F32
        if len(shape) == 2:
            for part, given in (types or {}).items():
                if part in name:
                    kind = GGMLQuantizationType[given]
        writer.add_tensor(f"{name}.weight", quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
