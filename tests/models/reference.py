"""A Llama forward pass in plain NumPy float32, straight from the GGUF file: the tests' oracle.

It shares no code with the converter beyond the `gguf` package. It works in llama.cpp's own row
order, where the two halves of a rotary pair are neighbours.
"""

from __future__ import annotations

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

PROJECTIONS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


class Reference:
    def __init__(self, path):
        self._reader = GGUFReader(path)
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}

    def get(self, key, default=None):
        field = self._reader.get_field(key)
        return default if field is None else field.contents()

    def weight(self, name):
        tensor = self._tensors[name]
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        return values.reshape([int(n) for n in reversed(tensor.shape)])

    def logits(self, sequences):
        """Float32 logits ``(tokens, vocabulary)`` of each list of token ids."""
        head = "output.weight" if "output.weight" in self._tensors else "token_embd.weight"
        return [hidden @ self.weight(head).T for hidden in self.hidden_states(sequences)]

    def hidden_states(self, sequences):
        """Float32 vectors ``(tokens, width)`` that the logits are made of."""
        n_heads = self.get("llama.attention.head_count")
        n_kv = self.get("llama.attention.head_count_kv", n_heads)
        epsilon = self.get("llama.attention.layer_norm_rms_epsilon")
        embedding = self.weight("token_embd.weight")
        size = self.get("llama.attention.key_length", embedding.shape[1] // n_heads)
        # All sequences in one matrix: large products suffer least from busy neighbours.
        x = embedding[np.concatenate(sequences)]
        ends = np.cumsum([len(ids) for ids in sequences])
        parts = [slice(end - len(ids), end) for end, ids in zip(ends, sequences, strict=True)]

        def norm(x, name):
            return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * self.weight(name)

        for layer in range(self.get("llama.block_count")):
            w = {part: self.weight(f"blk.{layer}.{part}.weight") for part in PROJECTIONS}
            h = norm(x, f"blk.{layer}.attn_norm.weight")
            qs = (h @ w["attn_q"].T).reshape(len(x), n_heads, size)
            ks = (h @ w["attn_k"].T).reshape(len(x), n_kv, size)
            vs = (h @ w["attn_v"].T).reshape(len(x), n_kv, size)
            out = np.zeros_like(qs)
            for part in parts:
                q, k, v = self._rotate(qs[part]), self._rotate(ks[part]), vs[part]
                for head in range(n_heads):
                    kv = head // (n_heads // n_kv)
                    scores = q[:, head] @ k[:, kv].T / np.sqrt(size)
                    scores[np.triu_indices(len(q), 1)] = -np.inf
                    scores = np.exp(scores - scores.max(-1, keepdims=True))
                    out[part, head] = scores / scores.sum(-1, keepdims=True) @ v[:, kv]
            x = x + out.reshape(len(x), -1) @ w["attn_output"].T
            h = norm(x, f"blk.{layer}.ffn_norm.weight")
            gate = np.clip(h @ w["ffn_gate"].T, -80, 80)
            x = x + (gate / (1 + np.exp(-gate)) * (h @ w["ffn_up"].T)) @ w["ffn_down"].T
        hidden = norm(x, "output_norm.weight")
        return [hidden[part] for part in parts]

    def _rotate(self, heads):
        size = heads.shape[-1]
        frequency = self.get("llama.rope.freq_base", 10000.0) ** (-np.arange(0, size, 2) / size)
        frequency = frequency / self.get("llama.rope.scaling.factor", 1.0)
        if "rope_freqs.weight" in self._tensors:
            frequency = frequency / self.weight("rope_freqs.weight")
        angle = np.arange(len(heads))[:, None, None] * frequency
        pairs = heads[..., 0::2] + 1j * heads[..., 1::2]
        turned = pairs * np.exp(1j * angle)
        result = np.empty_like(heads)
        result[..., 0::2], result[..., 1::2] = turned.real, turned.imag
        return result
