"""What a GGUF file's keys and tensors say about a decoder.

Owns key names, tensor names, the row order that llama.cpp gives to the query and key projections of
some families, and frequency factors. Refuses, before any work is done, whatever the converter would
otherwise get silently wrong: unknown tensors, wrong shapes, scaled RoPE it cannot express. Knows
nothing of ONNX, quantisation for the runtime, or what is inside a tokenizer.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from structgen.errors import ConversionError

from . import gguf_tokenizer
from .decoder import (
    Attention,
    DecoderShape,
    FloatArray,
    LayerWeights,
    Refusal,
    Rope,
    SpecialTokens,
    check_shape,
)
from .families import FAMILIES
from .gguf_file import GgufFile, check_family

_EMBEDDING, _HEAD, _NORM = "token_embd.weight", "output.weight", "output_norm.weight"
_LLAMA3_FACTORS = "rope_freqs.weight"
_LONG_FACTORS, _SHORT_FACTORS = "rope_factors_long.weight", "rope_factors_short.weight"


class GgufCheckpoint:
    """A GGUF file as a `Checkpoint`.

    Args:
        path: the file.
        context_length: positions that the converted model is to have; None: what the file says, or
            of a model with two sets of frequency factors, what its short ones are for.

    Raises:
        ConversionError: no GGUF file, a damaged one, another architecture, a feature that cannot be
            expressed, a tensor missing, unknown or of the wrong shape.
    """

    def __init__(self, path: Path, context_length: int | None = None) -> None:
        self.path = path
        self._file = GgufFile(path)
        architecture = str(self._file.require("general.architecture"))
        check_family(path, architecture)
        self._family = FAMILIES[architecture]
        self._architecture = architecture
        self.shape = self._read_shape(context_length)
        check_shape(path, self.shape)
        self._check_tensors()

    def embedding(self) -> FloatArray:
        """As `Checkpoint.embedding`."""
        return self._file.tensor(_EMBEDDING)

    def head(self) -> FloatArray:
        """As `Checkpoint.head`."""
        return self._file.tensor(_HEAD)

    def final_norm(self) -> FloatArray:
        """As `Checkpoint.final_norm`."""
        return self._file.tensor(_NORM)

    def layer(self, layer: int) -> LayerWeights:
        """As `Checkpoint.layer`."""
        shape, is_fused = self.shape, self._family.is_fused

        def optional(part: str) -> FloatArray | None:
            name = f"blk.{layer}.{part}"
            return self._file.tensor(name) if name in self._file.tensor_names else None

        def weight(part: str) -> FloatArray:
            return self._file.tensor(f"blk.{layer}.{part}.weight")

        q_size, kv_size = shape.n_heads * shape.head_size, shape.n_kv_heads * shape.head_size
        if is_fused:
            parts = (q_size, q_size + kv_size)
            q, k, v = np.split(weight("attn_qkv"), parts)
            bias = optional("attn_qkv.bias")
            biases: list[FloatArray | None] = [None] * 3
            if bias is not None:
                biases = [*np.split(bias, parts)]
            gate, up = np.split(weight("ffn_up"), 2)
        else:
            q, k, v = weight("attn_q"), weight("attn_k"), weight("attn_v")
            biases = [optional(f"attn_{which}.bias") for which in "qkv"]
            gate, up = weight("ffn_gate"), weight("ffn_up")
        return LayerWeights(
            attn_norm=weight("attn_norm"),
            q=self._in_halves(q),
            k=self._in_halves(k),
            v=v,
            o=weight("attn_output"),
            ffn_norm=weight("ffn_norm"),
            gate=gate,
            up=up,
            down=weight("ffn_down"),
            q_bias=None if biases[0] is None else self._in_halves(biases[0]),
            k_bias=None if biases[1] is None else self._in_halves(biases[1]),
            v_bias=biases[2],
            o_bias=optional("attn_output.bias"),
            q_norm=optional("attn_q_norm.weight"),
            k_norm=optional("attn_k_norm.weight"),
            attn_post_norm=optional("post_attention_norm.weight"),
            ffn_post_norm=optional("post_ffw_norm.weight"),
        )

    def special_tokens(self) -> SpecialTokens:
        """As `Checkpoint.special_tokens`."""
        return SpecialTokens(
            gguf_tokenizer.end_token_ids(self._file),
            gguf_tokenizer.start_token_id(self._file),
            gguf_tokenizer.padding_token_id(self._file),
        )

    def write_tokenizer(self, folder: Path) -> None:
        """As `Checkpoint.write_tokenizer`.

        Raises:
            ConversionError: a kind of tokenizer, or a splitting rule, that is not known here.
        """
        for name, value in (
            ("tokenizer.json", gguf_tokenizer.tokenizer_json(self._file)),
            (
                "tokenizer_config.json",
                gguf_tokenizer.tokenizer_config(self._file, self.shape.context_length),
            ),
        ):
            text = json.dumps(value, ensure_ascii=False, indent=1)
            (folder / name).write_text(text, encoding="utf-8")

    def _get(self, key: str, default: Any = None) -> Any:
        return self._file.get(f"{self._architecture}.{key}", default)

    def _require(self, key: str) -> Any:
        return self._file.require(f"{self._architecture}.{key}")

    def _same_everywhere(self, key: str, default: int | None = None) -> int:
        """A count that the format also allows to differ from layer to layer."""
        value = self._require(key) if default is None else self._get(key, default)
        values = set(value) if isinstance(value, list) else {value}
        if len(values) != 1:
            raise ConversionError(
                f"{self.path}: {self._architecture}.{key} differs between layers "
                f"({sorted(values)}), which structgen's converter does not support."
            )
        return int(values.pop())

    def _read_shape(self, context_length: int | None) -> DecoderShape:
        family, file = self._family, self._file
        n_layers = int(self._require("block_count"))
        n_heads = self._same_everywhere("attention.head_count")
        hidden_size = int(self._require("embedding_length"))
        head_size = int(self._get("attention.key_length", hidden_size // n_heads))
        self._check_features(head_size)
        if _EMBEDDING not in file.tensor_names:
            raise ConversionError(f"{self.path} has no tensor {_EMBEDDING!r}, which is needed.")
        trained = int(self._require("context_length"))
        context, factors = self._context(trained, context_length)
        scaled = hidden_size / n_heads if n_layers == family.wide_layers else head_size
        return DecoderShape(
            runtime_type=family.runtime_type,
            hidden_size=hidden_size,
            ffn_size=self._same_everywhere("feed_forward_length"),
            n_heads=n_heads,
            n_kv_heads=self._same_everywhere("attention.head_count_kv", n_heads),
            head_size=head_size,
            vocab_size=file.tensor_shape(_EMBEDDING)[0],
            context_length=context,
            rms_epsilon=float(self._require("attention.layer_norm_rms_epsilon")),
            is_tied=_HEAD not in file.tensor_names,
            layers=self._layers(n_layers, head_size, factors),
            attention_scale=float(self._get("attention.scale", 0.0)) or scaled**-0.5,
            attention_cap=float(self._get("attn_logit_softcapping", family.attention_cap)),
            logit_cap=float(self._get("final_logit_softcapping", family.logit_cap)),
            embedding_scale=math.sqrt(hidden_size) if family.scales_embeddings else 1.0,
            activation=family.activation,
            has_wide_range=family.scales_embeddings,
        )

    def _check_features(self, head_size: int) -> None:
        """Refuse features of an architecture that the graph does not express."""
        refuse = Refusal(self.path)
        if int(self._get("expert_count", 0)) > 0:
            raise refuse(f"a mixture of {self._get('expert_count')} experts")
        scaling = str(self._get("rope.scaling.type", "none"))
        known = ("none", "linear", "longrope") if self._family.is_fused else ("none", "linear")
        if scaling not in known:
            raise refuse(f"RoPE scaling of type {scaling!r}")
        if scaling == "none" and float(self._get("rope.scaling.factor", 1.0)) != 1.0:
            raise refuse("a RoPE scaling factor without a type")
        value_size = int(self._get("attention.value_length", head_size))
        if value_size != head_size:
            raise refuse(f"value heads of {value_size} beside key heads of {head_size}")
        if self._get("attention.sliding_window", 0) and not self._has_windows:
            raise refuse("sliding-window attention")

    @property
    def _has_windows(self) -> bool:
        return self._family.is_fused or self._family.full_period > 1

    def _context(self, trained: int, wanted: int | None) -> tuple[int, tuple[float, ...]]:
        """Positions of the converted model, and the frequency factors that go with them."""
        context = trained if wanted is None else wanted
        if not 0 < context <= trained:
            raise ConversionError(
                f"context_length={wanted} is out of range: {self.path} was trained for {trained} "
                f"positions. Pass 1 to {trained}."
            )
        name = _LLAMA3_FACTORS
        if {_LONG_FACTORS, _SHORT_FACTORS} & self._file.tensor_names:
            # Trained with short factors for short texts and long ones for long texts. A text does
            # not know how long it will become, so that the choice is the context's.
            original = int(self._require("rope.scaling.original_context_length"))
            context = min(context, original) if wanted is None else context
            name = _LONG_FACTORS if context > original else _SHORT_FACTORS
        if name not in self._file.tensor_names:
            return context, ()
        return context, tuple(self._file.tensor(name).tolist())

    def _layers(
        self, n_layers: int, head_size: int, factors: tuple[float, ...]
    ) -> tuple[Attention, ...]:
        family = self._family
        size = int(self._get("rope.dimension_count", head_size))
        base = float(self._get("rope.freq_base", 10000.0))
        scaling = str(self._get("rope.scaling.type", "none"))
        linear = float(self._get("rope.scaling.factor", 1.0)) if scaling == "linear" else 1.0
        magnitude = float(self._get("rope.scaling.attn_factor", 1.0)) if family.is_fused else 1.0
        usual = Rope(base, size, linear, factors, magnitude)
        near = usual
        if family.window_rope_base is not None:
            # Neighbours are turned by frequencies of their own, which are never stretched.
            near = Rope(float(self._get("rope.freq_base_swa", family.window_rope_base)), size)
        window = int(self._get("attention.sliding_window", 0)) if self._has_windows else 0
        period: Any = self._get("attention.sliding_window_pattern", family.full_period)
        layers = []
        for layer in range(n_layers):
            is_near = window > 0 and (
                bool(period[layer])
                if isinstance(period, list)
                else period <= 1 or (layer + 1) % int(period) != 0
            )
            has_rope = not family.rope_period or (layer + 1) % family.rope_period != 0
            rope = (near if is_near else usual) if has_rope else None
            layers.append(Attention(rope, window if is_near else 0))
        return tuple(layers)

    def _check_tensors(self) -> None:
        """Every tensor the graph needs is there with its shape, and no other."""
        shape, family, file = self.shape, self._family, self._file
        q_size, kv_size = shape.n_heads * shape.head_size, shape.n_kv_heads * shape.head_size
        hidden, ffn = shape.hidden_size, shape.ffn_size
        needed: dict[str, tuple[int, ...]] = {
            _EMBEDDING: (shape.vocab_size, hidden),
            _NORM: (hidden,),
        }
        if not shape.is_tied:
            needed[_HEAD] = (shape.vocab_size, hidden)
        parts: dict[str, tuple[int, ...]] = {
            "attn_norm.weight": (hidden,),
            "attn_output.weight": (hidden, q_size),
            "ffn_norm.weight": (hidden,),
            "ffn_down.weight": (hidden, ffn),
        }
        extra: dict[str, tuple[int, ...]] = {"attn_output.bias": (hidden,)}
        if family.is_fused:
            parts["attn_qkv.weight"] = (q_size + 2 * kv_size, hidden)
            parts["ffn_up.weight"] = (2 * ffn, hidden)
            extra["attn_qkv.bias"] = (q_size + 2 * kv_size,)
        else:
            parts |= {"ffn_gate.weight": (ffn, hidden), "ffn_up.weight": (ffn, hidden)}
            for which, size in (("q", q_size), ("k", kv_size), ("v", kv_size)):
                parts[f"attn_{which}.weight"] = (size, hidden)
                extra[f"attn_{which}.bias"] = (size,)
        if family.has_qk_norms:
            parts |= {f"attn_{which}_norm.weight": (shape.head_size,) for which in "qk"}
        if family.has_post_norms:
            parts |= {"post_attention_norm.weight": (hidden,), "post_ffw_norm.weight": (hidden,)}
        allowed = dict(needed)
        for layer in range(shape.n_layers):
            needed.update({f"blk.{layer}.{part}": size for part, size in parts.items()})
            allowed.update({f"blk.{layer}.{part}": size for part, size in extra.items()})
        allowed |= needed
        factors = (_LONG_FACTORS, _SHORT_FACTORS) if family.is_fused else (_LLAMA3_FACTORS,)
        if shape.ropes:
            allowed |= dict.fromkeys(factors, (shape.ropes[0].size // 2,))
        missing = sorted(needed.keys() - file.tensor_names)
        if missing:
            raise ConversionError(
                f"{self.path} lacks {len(missing)} tensors of a {family.title} model with "
                f"{shape.n_layers} layers, the first being {missing[0]!r}."
            )
        unknown = sorted(file.tensor_names - allowed.keys())
        if unknown:
            raise ConversionError(
                f"{self.path} has {len(unknown)} tensors that a plain {family.title} model does "
                f"not have, the first being {unknown[0]!r}; leaving them out would change the "
                "model."
            )
        for name in sorted(file.tensor_names):
            if file.tensor_shape(name) != allowed[name]:
                raise ConversionError(
                    f"{self.path}: tensor {name!r} has shape {file.tensor_shape(name)}, not "
                    f"{allowed[name]}."
                )

    def _in_halves(self, rows: FloatArray) -> FloatArray:
        """Rows of queries or keys with the first halves of all rotary pairs first.

        llama.cpp stores the heads of some families with the two numbers of a pair as neighbours;
        the runtime's (and Hugging Face's) order is first all the first ones, then all the second.
        """
        if not self._family.is_interleaved:
            return rows
        heads = rows.reshape(-1, self.shape.head_size, *rows.shape[1:])
        size = self.shape.ropes[0].size
        parts = [heads[:, 0:size:2], heads[:, 1:size:2], heads[:, size:]]
        return np.concatenate(parts, axis=1).reshape(rows.shape)
