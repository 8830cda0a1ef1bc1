"""The tiny models of `tiny_gguf` as Hugging Face folders: config.json, safetensors, tokenizer.json.

The names and the orders are Hugging Face's; nothing is shared with the converter.
"""

from __future__ import annotations

import json
import struct

import numpy as np
from models.reference import Reference

CLASSES = {
    "llama": ("llama", "LlamaForCausalLM"),
    "qwen2": ("qwen2", "Qwen2ForCausalLM"),
    "qwen3": ("qwen3", "Qwen3ForCausalLM"),
    "gemma": ("gemma", "GemmaForCausalLM"),
    "gemma2": ("gemma2", "Gemma2ForCausalLM"),
    "gemma3": ("gemma3_text", "Gemma3ForCausalLM"),
    "phi3": ("phi3", "Phi3ForCausalLM"),
    "smollm3": ("smollm3", "SmolLM3ForCausalLM"),
}
PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


def config_of(source: Reference) -> dict:
    """What ``config.json`` says."""
    family, get = source.family, source.get
    model_type, architecture = CLASSES[family]
    width = get("embedding_length")
    size = get("attention.key_length", width // get("attention.head_count"))
    config = {
        "model_type": model_type,
        "architectures": [architecture],
        "vocab_size": len(source.weight("token_embd.weight")),
        "hidden_size": width,
        "intermediate_size": get("feed_forward_length"),
        "num_hidden_layers": get("block_count"),
        "num_attention_heads": get("attention.head_count"),
        "num_key_value_heads": get("attention.head_count_kv"),
        "head_dim": size,
        "max_position_embeddings": get("context_length"),
        "rms_norm_eps": get("attention.layer_norm_rms_epsilon"),
        "rope_theta": get("rope.freq_base", 10000.0),
        "tie_word_embeddings": not source.has("output.weight"),
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    if source.is_gemma:
        config |= {"query_pre_attn_scalar": size, "hidden_activation": "gelu_pytorch_tanh"}
        if family != "gemma":
            config["sliding_window"] = get("attention.sliding_window")
        if family == "gemma3":
            config |= {"rope_local_base_freq": 10000.0, "sliding_window_pattern": 6}
    if family == "phi3":
        config |= {
            "sliding_window": get("attention.sliding_window"),
            "partial_rotary_factor": get("rope.dimension_count", size) / size,
        }
    if family == "smollm3":
        config |= {"no_rope_layer_interval": 4, "use_sliding_window": False}
    return config


def tensors_of(source: Reference) -> dict[str, np.ndarray]:
    """Every tensor by Hugging Face's name."""
    found = {}
    size = config_of(source)["head_dim"]
    for name in source._tensors:
        values = source.weight(name)
        part, _, kind = name.rpartition(".")
        if name == "rope_freqs.weight" or name.startswith("rope_factors"):
            continue
        if source.family in ("llama", "smollm3") and part.endswith(("attn_q", "attn_k")):
            pairs = values.reshape(-1, size // 2, 2, *values.shape[1:])
            values = pairs.swapaxes(1, 2).reshape(values.shape)
        if source.is_gemma and "norm" in part:
            values = values - 1
        if part.startswith("blk."):
            _, layer, part = part.split(".")
            theirs = PARTS[part]
            if source.family == "phi3" and part == "ffn_up":
                theirs = "mlp.gate_up_proj"
            if source.family in ("gemma2", "gemma3") and part == "ffn_norm":
                theirs = "pre_feedforward_layernorm"
            found[f"model.layers.{layer}.{theirs}.{kind}"] = values
        else:
            outer = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
            found[f"{outer.get(part, 'lm_head')}.weight"] = values
    return found


def save(path, tensors, kind="F32"):
    """A safetensors file; ``kind`` is F32, F16 or BF16."""
    header, blobs, at = {}, [], 0
    for name, values in tensors.items():
        if kind == "BF16":
            data = (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype("<u2")
        else:
            data = np.ascontiguousarray(values, {"F32": "<f4", "F16": "<f2"}[kind])
        blob = data.tobytes()
        span = [at, at + len(blob)]
        header[name] = {"dtype": kind, "shape": list(values.shape), "data_offsets": span}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def write(folder, gguf, *, kind="F32", shards=1, config=None, without=(), extra=None):
    """A folder like the one on the hub that a GGUF file was made of (but for its tokenizer)."""
    source = Reference(gguf)
    folder.mkdir()
    tensors = tensors_of(source) | (extra or {})
    tensors = {name: values for name, values in tensors.items() if name not in without}
    settings = {**config_of(source), **(config or {})}
    (folder / "config.json").write_text(json.dumps(settings))
    names = sorted(tensors)
    files = {name: f"model-{1 + i % shards:05}-of-{shards:05}.safetensors"
             for i, name in enumerate(names)}  # fmt: skip
    if shards == 1:
        save(folder / "model.safetensors", tensors, kind)
        return folder
    for file in sorted(set(files.values())):
        save(folder / file, {name: tensors[name] for name in names if files[name] == file}, kind)
    index = {"metadata": {}, "weight_map": files}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder
