"""GGUF files of a few kilobytes: random models of every family, with a working tokenizer."""

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


def gemma_tokenizer():
    """Like Gemma's: no space before a text, white space and tags as tokens of their own."""
    tokenizer = sentencepiece_tokenizer()
    tokenizer["tokens"][:3] = ["<pad>", "<eos>", "<bos>"]
    extra = {"<unk>": 3, "<start_of_turn>": 3, "<end_of_turn>": 3, "\n": 4, "\n\n": 4, "</s>": 4}
    tokenizer["tokens"] += extra
    tokenizer["token_type"] += extra.values()
    tokenizer["token_type"][:3] = [3, 3, 3]
    tokenizer["scores"] += [-1000.0] * len(extra)
    return tokenizer | {
        "bos_token_id": 2,
        "eos_token_id": 1,
        "padding_token_id": 0,
        "unknown_token_id": tokenizer["tokens"].index("<unk>"),
        "add_bos_token": True,
        "add_space_prefix": False,
    }


# What each family has besides, or instead of, a Llama's tensors and keys. Six layers are the fewest
# that show Gemma 3's pattern; every weight is random, so that none can be left out unnoticed.
FAMILIES = {
    "llama": {},
    "qwen2": {"biases": True, "tokenizer": lambda: byte_level_tokenizer("qwen2")},
    "qwen3": {"norms": True, "tokenizer": lambda: byte_level_tokenizer("qwen2")},
    "gemma": {"tokenizer": gemma_tokenizer},
    "gemma2": {
        "layers": 4,
        "post_norms": True,
        "tokenizer": gemma_tokenizer,
        "metadata": {"attention.sliding_window": 7},
    },
    "gemma3": {
        "layers": 7,
        "norms": True,
        "post_norms": True,
        "tokenizer": gemma_tokenizer,
        "metadata": {"attention.sliding_window": 7, "rope.freq_base": 1000000.0},
    },
    "phi3": {
        "fused": True,
        "tokenizer": lambda: sentencepiece_tokenizer(),
        "metadata": {"attention.sliding_window": 11},
    },
    "smollm3": {"layers": 4, "tokenizer": lambda: byte_level_tokenizer("smaug-bpe")},
}


def layer_shapes(fused=False, norms=False, post_norms=False, biases=False, **others):
    """Shapes of one layer's tensors; a name without a kind is that of a weight."""
    q, kv = HEADS * HEAD, KV_HEADS * HEAD
    shapes = {
        "attn_norm": (HIDDEN,),
        "attn_q": (q, HIDDEN),
        "attn_k": (kv, HIDDEN),
        "attn_v": (kv, HIDDEN),
        "attn_output": (HIDDEN, q),
        "ffn_norm": (HIDDEN,),
        "ffn_gate": (FFN, HIDDEN),
        "ffn_up": (FFN, HIDDEN),
        "ffn_down": (HIDDEN, FFN),
    }
    if fused:
        for part in ("attn_q", "attn_k", "attn_v", "ffn_gate"):
            del shapes[part]
        shapes |= {"attn_qkv": (q + 2 * kv, HIDDEN), "ffn_up": (2 * FFN, HIDDEN)}
    if norms:
        shapes |= {"attn_q_norm": (HEAD,), "attn_k_norm": (HEAD,)}
    if post_norms:
        shapes |= {"post_attention_norm": (HIDDEN,), "post_ffw_norm": (HIDDEN,)}
    if biases:
        shapes |= {"attn_q.bias": (q,), "attn_k.bias": (kv,), "attn_v.bias": (kv,)}
    return shapes


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
    family = FAMILIES.get(architecture, {})
    tokenizer = tokenizer or family.get("tokenizer", byte_level_tokenizer)()
    n_layers = family.get("layers", LAYERS)
    random = np.random.default_rng(0)
    writer = GGUFWriter(path, architecture)
    settings = {
        "block_count": n_layers,
        "context_length": CONTEXT,
        "embedding_length": HIDDEN,
        "feed_forward_length": FFN,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.key_length": HEAD,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10000.0,
        **family.get("metadata", {}),
        **(metadata or {}),
    }
    for key, value in settings.items():
        add = {int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        add[bool] = writer.add_bool
        add[type(value)](f"{architecture}.{key}", value)
    for key, value in tokenizer.items():
        name = f"tokenizer.{key}" if key == "chat_template" else f"tokenizer.ggml.{key}"
        if isinstance(value, list):
            writer.add_array(name, value)
        elif isinstance(value, bool):
            writer.add_bool(name, value)
        else:
            (writer.add_string if isinstance(value, str) else writer.add_uint32)(name, value)
    if tokenizer["model"] == "gpt2" and "chat_template" not in tokenizer:
        writer.add_chat_template(CHATML)

    vocabulary = len(tokenizer["tokens"])
    shapes = {"token_embd": (vocabulary, HIDDEN), "output_norm": (HIDDEN,)}
    if not is_tied:
        shapes["output"] = (vocabulary, HIDDEN)
    for layer in range(n_layers):
        for part, shape in layer_shapes(**family).items():
            shapes[f"blk.{layer}.{part}"] = shape
    shapes.update(extra or {})
    for name, shape in shapes.items():
        if name in without:
            continue
        if len(shape) == 1:
            low, high = (-0.5, 0.5) if name.endswith(".bias") else (0.5, 1.5)
            values = random.uniform(low, high, shape).astype(np.float32)
        else:
            values = (random.normal(size=shape) / shape[-1] ** 0.5).astype(np.float32)
        kind = GGMLQuantizationType.F32
        if len(shape) == 2:
            for part, given in (types or {}).items():
                if part in name:
                    kind = GGMLQuantizationType[given]
        full = name if name.endswith(".bias") else f"{name}.weight"
        writer.add_tensor(full, quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
