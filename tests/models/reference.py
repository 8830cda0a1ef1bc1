"""A decoder's forward pass in plain NumPy float32, straight from the GGUF file: the tests' oracle.

It shares no code with the converter beyond the `gguf` package. It works in llama.cpp's own row
order: in some families the two halves of a rotary pair are neighbours. `tests/models/peers.py`
compares it with Hugging Face's models.
"""

from __future__ import annotations

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

from structgen.models.genai.runtime import OLD


class Reference:
    def __init__(self, path, context=None):
        self._reader = GGUFReader(path)
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        self.family = self._reader.get_field("general.architecture").contents()
        self._context = context
        self.is_gemma = self.family.startswith("gemma")

    def get(self, key, default=None):
        field = self._reader.get_field(f"{self.family}.{key}")
        return default if field is None else field.contents()

    def weight(self, name):
        tensor = self._tensors[name]
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        return values.reshape([int(n) for n in reversed(tensor.shape)])

    def has(self, name):
        return name in self._tensors

    def logits(self, sequences):
        """Float32 logits ``(tokens, vocabulary)`` of each list of token ids."""
        head = self.weight("output.weight" if self.has("output.weight") else "token_embd.weight")
        cap = self.get("final_logit_softcapping", 30.0 if self.family == "gemma2" else 0.0)
        rows = [hidden @ head.T for hidden in self.hidden_states(sequences)]
        return [np.tanh(row / cap) * cap for row in rows] if cap else rows

    def hidden_states(self, sequences):
        """Float32 vectors ``(tokens, width)`` that the logits are made of."""
        n_heads = self.get("attention.head_count")
        n_kv = self.get("attention.head_count_kv", n_heads)
        epsilon = self.get("attention.layer_norm_rms_epsilon")
        embedding = self.weight("token_embd.weight")
        width = embedding.shape[1]
        size = self.get("attention.key_length", width // n_heads)
        # All sequences in one matrix: large products suffer least from busy neighbours.
        x = embedding[np.concatenate(sequences)]
        if self.is_gemma:
            x = x * width**0.5
        ends = np.cumsum([len(ids) for ids in sequences])
        parts = [slice(end - len(ids), end) for end, ids in zip(ends, sequences, strict=True)]

        def norm(x, name):
            return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * self.weight(name)

        def linear(x, name):
            y = x @ self.weight(f"{name}.weight").T
            return y + self.weight(f"{name}.bias") if self.has(f"{name}.bias") else y

        for layer in range(self.get("block_count")):
            base = f"blk.{layer}."
            h = norm(x, base + "attn_norm.weight")
            if self.has(base + "attn_qkv.weight"):
                packed = linear(h, base + "attn_qkv").reshape(len(x), -1, size)
                qs, ks, vs = np.split(packed, [n_heads, n_heads + n_kv], axis=1)
            else:
                qs, ks, vs = (
                    linear(h, f"{base}attn_{part}").reshape(len(x), -1, size) for part in "qkv"
                )
            if self.has(base + "attn_q_norm.weight"):
                qs = norm(qs, base + "attn_q_norm.weight")
                ks = norm(ks, base + "attn_k_norm.weight")
            out = np.zeros_like(qs)
            window = self._window(layer)
            for part in parts:
                q, k, v = self._rotate(qs[part], layer), self._rotate(ks[part], layer), vs[part]
                rows = np.arange(len(q))
                hidden = rows[None] > rows[:, None]
                if window:
                    hidden |= rows[:, None] - rows[None] >= window + bool(OLD)
                for head in range(n_heads):
                    kv = head // (n_heads // n_kv)
                    scores = q[:, head] @ k[:, kv].T / np.sqrt(size)
                    if self.family == "gemma2":
                        scores = np.tanh(scores / 50) * 50
                    scores[hidden] = -np.inf
                    scores = np.exp(scores - scores.max(-1, keepdims=True))
                    out[part, head] = scores / scores.sum(-1, keepdims=True) @ v[:, kv]
            y = linear(out.reshape(len(x), -1), base + "attn_output")
            if self.has(base + "post_attention_norm.weight"):
                y = norm(y, base + "post_attention_norm.weight")
            x = x + y
            h = norm(x, base + "ffn_norm.weight")
            if self.has(base + "ffn_gate.weight"):
                gate, up = linear(h, base + "ffn_gate"), linear(h, base + "ffn_up")
            else:
                gate, up = np.split(linear(h, base + "ffn_up"), 2, axis=-1)
            y = linear(self._activate(gate) * up, base + "ffn_down")
            if self.has(base + "post_ffw_norm.weight"):
                y = norm(y, base + "post_ffw_norm.weight")
            x = x + y
        hidden = norm(x, "output_norm.weight")
        return [hidden[part] for part in parts]

    def _activate(self, gate):
        if self.is_gemma:
            return 0.5 * gate * (1 + np.tanh((2 / np.pi) ** 0.5 * (gate + 0.044715 * gate**3)))
        gate = np.clip(gate, -80, 80)
        return gate / (1 + np.exp(-gate))

    def _window(self, layer):
        """How many tokens a token sees; 0: all before it."""
        window = self.get("attention.sliding_window", 0)
        if self.family == "gemma3":
            period = self.get("attention.sliding_window_pattern", 6)
            return 0 if layer % period == period - 1 else window
        if self.family == "gemma2":
            return window if layer % 2 == 0 else 0
        return window if self.family == "phi3" else 0

    def _rotate(self, heads, layer):
        if self.family == "smollm3" and layer % 4 == 3:
            return heads
        size = self.get("rope.dimension_count", heads.shape[-1])
        is_near = self.family == "gemma3" and self._window(layer)
        base = 10000.0 if is_near else self.get("rope.freq_base", 10000.0)
        frequency = base ** (-np.arange(0, size, 2) / size)
        if not is_near:
            frequency = frequency / self.get("rope.scaling.factor", 1.0)
        original = self.get("rope.scaling.original_context_length", 0)
        is_long = original and (self._context or original) > original
        for name in ("rope_freqs", f"rope_factors_{'long' if is_long else 'short'}"):
            if self.has(f"{name}.weight"):
                frequency = frequency / self.weight(f"{name}.weight")
        angle = np.arange(len(heads))[:, None, None] * frequency
        if self.family in ("llama", "smollm3"):
            first, second = slice(0, size, 2), slice(1, size, 2)
        else:
            first, second = slice(0, size // 2), slice(size // 2, size)
        pairs = heads[..., first] + 1j * heads[..., second]
        pairs = pairs * np.exp(1j * angle) * self.get("rope.scaling.attn_factor", 1.0)
        result = heads.copy()
        result[..., first], result[..., second] = pairs.real, pairs.imag
        return result
