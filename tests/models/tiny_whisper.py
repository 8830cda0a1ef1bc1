"""A Whisper so small that a test can make it: random weights, in a folder as Hugging Face has it.

`logits` is what its weights mean, in NumPy: nothing is shared with the converter.
"""

from __future__ import annotations

import json
import math
import struct

import numpy as np
from models import tiny_safetensors
from models.tiny_gguf import byte_alphabet

from structgen import models
from structgen.models.progress import silent

SPECIALS = (
    *("<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|fr|>", "<|translate|>"),
    *("<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"),
)
TOKENS = [*byte_alphabet(), "Ġt", "he", "Ġthe"]
END = len(TOKENS)
FIRST_STAMP = END + len(SPECIALS)
ID = {name: END + i for i, name in enumerate(SPECIALS)}
WIDTH, HEADS, MELS, CONTEXT = 32, 2, 80, 448
CONFIG = {
    "model_type": "whisper",
    "d_model": WIDTH,
    "num_mel_bins": MELS,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "vocab_size": FIRST_STAMP + 1501,
    "max_source_positions": 1500,
    "max_target_positions": CONTEXT,
    "bos_token_id": END,
    "eos_token_id": END,
    "pad_token_id": END,
    "activation_function": "gelu",
}


def tensors(seed=0):
    """Random weights by Hugging Face's names."""
    random = np.random.default_rng(seed)
    found = {}

    def linear(name, n_outputs, n_inputs, *rest, bias=True):
        scale = 1.5 / math.sqrt(n_inputs * math.prod(rest))
        found[f"{name}.weight"] = random.normal(size=(n_outputs, n_inputs, *rest)) * scale
        if bias:
            found[f"{name}.bias"] = random.normal(size=n_outputs) * 0.1

    def norm(name):
        found[f"{name}.weight"] = 1 + random.normal(size=WIDTH) * 0.1
        found[f"{name}.bias"] = random.normal(size=WIDTH) * 0.1

    linear("model.encoder.conv1", WIDTH, MELS, 3)
    linear("model.encoder.conv2", WIDTH, WIDTH, 3)
    table = random.normal(size=(CONFIG["vocab_size"], WIDTH)) * 0.7
    table[FIRST_STAMP:] *= 0.3  # else each token would be a time stamp: there are so many
    found["model.decoder.embed_tokens.weight"] = table
    for part, length in (("encoder", 1500), ("decoder", CONTEXT)):
        found[f"model.{part}.embed_positions.weight"] = random.normal(size=(length, WIDTH)) * 0.3
        for i in range(CONFIG[f"{part}_layers"]):
            layer = f"model.{part}.layers.{i}"
            for attention in ("self_attn", "encoder_attn")[: 1 + (part == "decoder")]:
                for one in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    linear(f"{layer}.{attention}.{one}", WIDTH, WIDTH, bias=one != "k_proj")
                norm(f"{layer}.{attention}_layer_norm")
            linear(f"{layer}.fc1", 2 * WIDTH, WIDTH)
            linear(f"{layer}.fc2", WIDTH, 2 * WIDTH)
            norm(f"{layer}.final_layer_norm")
        norm(f"model.{part}.layer_norm")
    return {name: values.astype(np.float32) for name, values in found.items()}


def tokenizer():
    added = [
        {"id": token, "content": name, "special": True, "normalized": False}
        | {"single_word": False, "lstrip": False, "rstrip": False}
        for name, token in ID.items()
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    merges = ["Ġ t", "h e", "Ġt he"]
    vocab = {token: i for i, token in enumerate(TOKENS)}
    return {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": byte_level | {"use_regex": True},
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
    }


def write(folder, seed=0, **changes):
    """A folder like the one on the hub; ``changes``: of its configuration."""
    folder.mkdir()
    tiny_safetensors.save(folder / "model.safetensors", tensors(seed))
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
    return folder


def write_ctranslate2(folder, seed=0, **settings):
    """The same as CTranslate2 has it; ``settings``: instead of the right ones."""
    w, found = tensors(seed), {}

    def put(place, *names):
        for kind, ours in (("weight", "gamma"), ("bias", "beta")):
            name = f"{place}/{ours if 'norm' in place else kind}"
            rows = [w.get(f"{one}.{kind}", np.zeros(WIDTH, np.float32)) for one in names]
            found[name] = np.concatenate(rows)

    for part in ("encoder", "decoder"):
        model = f"model.{part}"
        found[f"{part}/num_heads"] = np.int16(HEADS)
        found[f"{part}/position_encodings/encodings"] = w[f"{model}.embed_positions.weight"]
        put(f"{part}/layer_norm", f"{model}.layer_norm")
        for i in range(CONFIG[f"{part}_layers"]):
            place, layer = f"{part}/layer_{i}", f"{model}.layers.{i}"
            own, cross = f"{layer}.self_attn", f"{layer}.encoder_attn"
            put(f"{place}/self_attention/linear_0", *(f"{own}.{one}_proj" for one in "qkv"))
            put(f"{place}/self_attention/linear_1", f"{own}.out_proj")
            put(f"{place}/self_attention/layer_norm", f"{own}_layer_norm")
            put(f"{place}/ffn/linear_0", f"{layer}.fc1")
            put(f"{place}/ffn/linear_1", f"{layer}.fc2")
            put(f"{place}/ffn/layer_norm", f"{layer}.final_layer_norm")
            if part == "decoder":
                put(f"{place}/attention/linear_0", f"{cross}.q_proj")
                put(f"{place}/attention/linear_1", f"{cross}.k_proj", f"{cross}.v_proj")
                put(f"{place}/attention/linear_2", f"{cross}.out_proj")
                put(f"{place}/attention/layer_norm", f"{cross}_layer_norm")
    for i in (1, 2):
        put(f"encoder/conv{i}", f"model.encoder.conv{i}")
    found["decoder/embeddings/weight"] = w["model.decoder.embed_tokens.weight"]
    found |= {"decoder/activation": np.int8(3), "decoder/scale_embeddings": np.int8(0)} | settings

    def text(told):
        return struct.pack("<H", len(told) + 1) + told.encode() + b"\0"

    kinds = {"float32": 0, "int8": 1, "int16": 2}
    made = [struct.pack("<I", 6), text("WhisperSpec"), struct.pack("<II", 3, len(found))]
    for name, values in found.items():
        values = np.asarray(values)
        made += [text(name), struct.pack(f"<B{values.ndim}I", values.ndim, *values.shape)]
        made += [struct.pack("<BI", kinds[values.dtype.name], values.nbytes), values.tobytes()]
    made += [struct.pack("<I", 1), text("decoder/projection/weight")]
    made += [text("decoder/embeddings/weight")]
    folder.mkdir()
    (folder / "model.bin").write_bytes(b"".join(made))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
    return folder


def converted(folder, seed=0):
    """A folder of the runtime's."""
    write(folder / "source", seed)
    return models.convert(folder / "source", folder / "tiny-whisper", silent)


# -- what the weights mean ------------------------------------------------------------------------


def _gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def _norm(w, name, x):
    centred = x - x.mean(-1, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return normed * w[f"{name}.weight"] + w[f"{name}.bias"]


def _linear(w, name, x):
    return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0)


def _attend(w, name, x, source, causal=False):
    q, k, v = (
        _linear(w, f"{name}.{one}_proj", given).reshape(len(given), HEADS, -1).swapaxes(0, 1)
        for one, given in (("q", x), ("k", source), ("v", source))
    )
    scores = q @ k.swapaxes(1, 2) / math.sqrt(WIDTH // HEADS)
    if causal:
        scores = np.where(np.tri(len(x), dtype=bool), scores, -np.inf)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    heard = (scores / scores.sum(-1, keepdims=True)) @ v
    return _linear(w, f"{name}.out_proj", heard.swapaxes(0, 1).reshape(len(x), WIDTH))


def _forward(w, layer, x):
    wide = _gelu(_linear(w, f"{layer}.fc1", _norm(w, f"{layer}.final_layer_norm", x)))
    return x + _linear(w, f"{layer}.fc2", wide)


def logits(w, features, token_ids):
    """Scores after each token, ``[n, vocabulary]``; ``features``: ``[80, 3000]``."""
    x = features
    for i in (1, 2):
        kernel, bias = w[f"model.encoder.conv{i}.weight"], w[f"model.encoder.conv{i}.bias"]
        padded = np.pad(x, ((0, 0), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, 3, axis=1)[:, ::i]
        x = _gelu(np.einsum("ock,ctk->ot", kernel, windows) + bias[:, None])
    x = x.T + w["model.encoder.embed_positions.weight"]
    for i in range(CONFIG["encoder_layers"]):
        layer = f"model.encoder.layers.{i}"
        normed = _norm(w, f"{layer}.self_attn_layer_norm", x)
        x = _forward(w, layer, x + _attend(w, f"{layer}.self_attn", normed, normed))
    sound = _norm(w, "model.encoder.layer_norm", x)
    table = w["model.decoder.embed_tokens.weight"]
    x = table[token_ids] + w["model.decoder.embed_positions.weight"][: len(token_ids)]
    for i in range(CONFIG["decoder_layers"]):
        layer = f"model.decoder.layers.{i}"
        normed = _norm(w, f"{layer}.self_attn_layer_norm", x)
        x = x + _attend(w, f"{layer}.self_attn", normed, normed, causal=True)
        normed = _norm(w, f"{layer}.encoder_attn_layer_norm", x)
        x = _forward(w, layer, x + _attend(w, f"{layer}.encoder_attn", normed, sound))
    return _norm(w, "model.decoder.layer_norm", x) @ table.T
