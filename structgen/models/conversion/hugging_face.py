"""Read a decoder from a Hugging Face folder: ``config.json`` and the tensors of safetensors files.

Reads the configuration's keys in the spellings of several years, and refuses features that the
graph cannot express. The folder's ``tokenizer.json`` is used unchanged. A safetensors file is eight
bytes with the length of the header, the header in JSON (type, shape and position of each tensor),
and the bytes. NumPy has no bfloat16, so these numbers are widened here, one tensor at a time. Knows
no ONNX and no rounding.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from structgen.errors import ConversionError
from structgen.storage.user_folder import (
    MOST_OF_TOKENIZER,
    MOST_VALUES,
    NOT_UNDERSTOOD,
    WRONG,
    contents,
    document,
    flag,
    inside,
)

from .decoder import (
    FAMILIES,
    MOST_DIMENSIONS,
    Attention,
    Checkpoint,
    DecoderShape,
    FloatArray,
    Names,
    Rope,
    SpecialTokens,
    Tensors,
    check_family,
    numbers,
)
from .gguf import END_TEXTS

T = TypeVar("T")

_WIDTHS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}


class _Place(NamedTuple):
    """The place of a tensor."""

    file: Path
    kind: str
    shape: tuple[int, ...]
    offset: int


class SafetensorsFolder(Tensors[_Place]):
    """The tensors of a folder: those of ``model.safetensors``, or of all files in its index.

    Raises:
        ConversionError: there are no files, or one is damaged or truncated.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for file in self._files():
            self._read_header(file)

    def _values_of(self, name: str, place: _Place) -> FloatArray:
        if place.kind not in _WIDTHS:
            raise ConversionError(
                f"{place.file}: tensor {name!r} is stored as {place.kind}. structgen reads "
                f"{', '.join(_WIDTHS)}. Use a folder that is not quantized."
            )
        kind = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}[place.kind]
        values = numbers(place.file, kind, place.shape, place.offset)
        if place.kind == "BF16":
            # The upper half of a float32.
            return (values.astype(np.uint32) << 16).view(np.float32)
        return values.astype(np.float32)

    def _files(self) -> list[Path]:
        index = self.path / "model.safetensors.index.json"
        try:
            if not index.is_file():
                return [self.path / "model.safetensors"]
            names = set(document(index)["weight_map"].values())
            return sorted({inside(self.path, name) for name in names})  # one may have many names
        except WRONG as error:
            raise ConversionError(f"{index} cannot be parsed: {error!r}.") from error

    def _read_header(self, file: Path) -> None:
        try:
            if not file.is_file():  # reading a pipe would wait
                raise FileNotFoundError
            size = file.stat().st_size
            with file.open("rb") as data:
                length = int.from_bytes(data.read(8), "little")
                if not 2 <= length <= size - 8:
                    raise ValueError(f"its header has {length} bytes")
                text = data.read(length)
            header: dict[str, Any] = json.loads(text)
            left = size - 8 - length
            for name, about in header.items():
                if name in self._tensors:
                    raise ValueError(f"tensor {name!r} is also in another file")
                if name != "__metadata__":
                    self._tensors[name] = place = _place(file, about, 8 + length, size)
                    left -= _WIDTHS.get(place.kind, 0) * math.prod(place.shape)
            if left < 0:
                raise ValueError("its tensors overlap")
        except FileNotFoundError as error:
            raise ConversionError(f"{file} is missing. Download the folder again.") from error
        except OSError as error:
            raise ConversionError(f"Cannot read {file}: {error}.") from error
        except NOT_UNDERSTOOD as error:
            raise ConversionError(
                f"{file} is a damaged or truncated safetensors file ({error}). Download it again."
            ) from error


def _place(file: Path, about: dict[str, Any], start: int, size: int) -> _Place:
    begin, end = (int(at) for at in about["data_offsets"])
    shape = tuple(int(n) for n in about["shape"])
    width = _WIDTHS.get(about["dtype"])
    if not 0 <= begin <= end <= size - start:
        raise ValueError("its tensors are truncated")
    if len(shape) > MOST_DIMENSIONS or min(shape, default=0) < 0 or max(shape, default=0) > size:
        raise ValueError("the shape of a tensor is too large for the file")
    if width is not None and end - begin != width * math.prod(shape):
        raise ValueError("a tensor has a number of bytes that does not match its shape")
    return _Place(file, str(about["dtype"]), shape, start + begin)


_TYPES = {family.runtime_type: name for name, family in FAMILIES.items()} | {"mistral": "llama"}
"""The names in `FAMILIES` by the configuration's ``model_type``."""

_NAMES = Names(
    embedding="model.embed_tokens.weight",
    head="lm_head.weight",
    norm="model.norm.weight",
    layer="model.layers.{}.",
    parts={
        **{part: f"self_attn.{part}_proj" for part in ("q", "k", "v", "qkv", "o")},
        **{part: f"self_attn.{part}" for part in ("q_norm", "k_norm")},
        **{part: f"mlp.{part}_proj" for part in ("gate", "up", "gate_up", "down")},
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
    },
)
_POST_NORMS = {
    "attn_post_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "ffn_post_norm": "post_feedforward_layernorm",
}
_ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu", "gelu_new": "gelu"}


class HuggingFaceCheckpoint(Checkpoint):
    """A folder with ``config.json``, safetensors and ``tokenizer.json``.

    Args:
        path: the folder.
        context_length: as for `GgufCheckpoint`.

    Raises:
        ConversionError: a file is missing or damaged, the family is not supported, or as for
            `Checkpoint`.
    """

    def __init__(self, path: Path, context_length: int | None = None) -> None:
        self._config = read_json(path / "config.json")
        self._model_type = str(self._config.get("model_type"))
        check_family(path, "type", self._model_type, _TYPES)
        self._name = _TYPES[self._model_type]
        family = FAMILIES[self._name]
        post = _POST_NORMS if family.has_post_norms else {}
        self._names = replace(_NAMES, parts={**_NAMES.parts, **post})
        if self._name == "qwen2":
            self._biased = ("q", "k", "v")
        elif flag(self._config, "attention_bias"):
            self._biased = ("q", "k", "v", "o")
        super().__init__(path, family, SafetensorsFolder(path), context_length)

    def _not_needed(self) -> dict[str, tuple[int, ...]]:
        # Some files of tied models have the embedding twice; old ones have a table of RoPE.
        shape, turned = self.shape, "self_attn.rotary_emb.inv_freq"
        return {_NAMES.head: (shape.vocab_size, shape.hidden_size)} | {
            _NAMES.layer.format(layer) + turned: (shape.head_size // 2,)
            for layer in range(shape.n_layers)
        }

    def _gain(self, values: FloatArray) -> FloatArray:
        return values + np.float32(1) if self._family.scales_embeddings else values

    def special_tokens(self) -> SpecialTokens:
        """As `Checkpoint.special_tokens`."""
        generation = read_json(self.path / "generation_config.json", default={})
        tokenizer = read_json(self.path / "tokenizer.json")
        added = {
            token["content"]: int(token["id"])
            for token in tokenizer.get("added_tokens", [])
            if token.get("special")  # Gemma's `</s>` is an HTML tag
        }
        settings = read_json(self.path / "tokenizer_config.json", default={})
        own = settings.get("eos_token")
        own = own.get("content") if isinstance(own, dict) else own
        ends = self._ids(
            *(generation.get("eos_token_id"), self._config.get("eos_token_id"), added.get(own)),
            *(added[text] for text in added if text in END_TEXTS),
        )
        if not ends:
            raise ConversionError(
                f"{self.path} has no eos_token_id, which is required to end a text. Add it to its "
                "config.json."
            )
        padding = self._ids(self._config.get("pad_token_id"), generation.get("pad_token_id"))
        start = self._ids(self._config.get("bos_token_id"))
        return SpecialTokens(ends, [*start, None][0], [*padding, ends[0]][0])

    def _ids(self, *settings: Any) -> list[int]:
        """Return ids of tokens in settings, without those, such as -1, that are not rows of the
        embedding."""
        found = []
        for value in settings:
            found += value if isinstance(value, list) else [] if value is None else [value]
        if wrong := [token for token in found if type(token) is not int]:
            raise ValueError(f"{wrong[0]!r} is not a token id")
        return [token for token in dict.fromkeys(found) if 0 <= token < self.shape.vocab_size]

    def tokenizer_files(self) -> tuple[bytes, dict[str, Any]]:
        """As `Checkpoint.tokenizer_files`: the folder's files, with the chat template inside."""
        data = read_file(self.path / "tokenizer.json")
        settings = tokenizer_settings(self.path, "PreTrainedTokenizerFast")
        template = self.path / "chat_template.jinja"
        if template.is_file():  # it takes precedence in transformers, too
            settings["chat_template"] = read_file(template).decode()
        elif isinstance(settings.get("chat_template"), list):  # several templates by name
            several = {one["name"]: one["template"] for one in settings["chat_template"]}
            settings["chat_template"] = several["default"]
        return data, settings

    def _number(self, key: str, default: int | None = None) -> int:
        value = self._config.get(key, default)
        if type(value) is not int:
            raise ConversionError(
                f"{self.path / 'config.json'} has {key} = {value!r}, which is not a number."
            )
        return value

    def _read_shape(self, context_length: int | None) -> DecoderShape:
        config, family = self._config, self._family
        n_heads, hidden = self._number("num_attention_heads"), self._number("hidden_size")
        head_size = int(config.get("head_dim") or hidden // n_heads)
        trained = self._number("max_position_embeddings")
        self._positions(trained, context_length)
        activation = config.get("hidden_activation") or config.get("hidden_act")
        # Gemma's first files say "gelu" and mean the tanh version, as in transformers.
        usual = (None, family.activation)
        if activation not in usual and _ACTIVATIONS.get(str(activation)) != family.activation:
            raise self._refuse(f"the activation {activation!r}")
        for key in ("num_experts", "num_local_experts"):
            if config.get(key):
                raise self._refuse(f"a mixture of {config[key]} experts")
        if "quantization_config" in config:
            raise self._refuse("quantized weights")
        if flag(config, "use_bidirectional_attention"):
            raise self._refuse("non-causal attention")
        context, layers = self._layers(head_size, trained, context_length)
        # The value of a missing key is transformers' default, which may differ from null.
        query = config.get("query_pre_attn_scalar", 256) if family.has_post_norms else head_size
        return DecoderShape(
            family=family,
            hidden_size=hidden,
            ffn_size=self._number("intermediate_size"),
            n_heads=n_heads,
            n_kv_heads=self._number("num_key_value_heads", n_heads),
            head_size=head_size,
            vocab_size=self._number("vocab_size"),
            context_length=context,
            rms_epsilon=float(config.get("rms_norm_eps", 1e-5 if family.is_fused else 1e-6)),
            is_tied=flag(config, "tie_word_embeddings", family.is_tied),
            layers=layers,
            attention_scale=float(query) ** -0.5,
            attention_cap=float(config.get("attn_logit_softcapping", family.attention_cap) or 0),
            logit_cap=float(config.get("final_logit_softcapping", family.logit_cap) or 0),
        )

    def _layers(
        self, head_size: int, trained: int, wanted: int | None
    ) -> tuple[int, tuple[Attention, ...]]:
        """Return the positions of the converted model and the attention of each layer."""
        config, family = self._config, self._family
        n_layers = self._number("num_hidden_layers")
        self._check_counts(n_layers, head_size)
        scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
        base = float(scaling.get("rope_theta") or config.get("rope_theta") or family.rope_base)
        local = config.get("rope_local_base_freq") or family.window_rope_base
        if "full_attention" in scaling:  # one per kind of layer, as in transformers 5
            sliding = scaling.get("sliding_attention", {})
            if sliding.get("rope_type", "default") != "default":
                raise self._refuse(
                    f"RoPE scaling of type {sliding['rope_type']!r} in sliding windows"
                )
            local = sliding.get("rope_theta", local)
            scaling = scaling["full_attention"]
            base = float(scaling.get("rope_theta", base))
        share = scaling.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0
        size = int(head_size * float(share))
        if not 0 < size <= head_size:  # before numbers are made for each
            raise self._refuse(f"RoPE over {size} of {head_size} dimensions")
        context, usual = self._rope(base, size, scaling, trained, wanted)
        near = usual if local is None else Rope(float(local), size)
        window = self._window()
        types = config.get("layer_types") or []
        if unknown := set(types) - {"sliding_attention", "full_attention"}:
            raise self._refuse(f"layers of type {sorted(unknown)[0]!r}")
        period = int(config.get("sliding_window_pattern") or family.full_period)
        # In Qwen's models all layers but the first have windows; in SmolLM3 those without RoPE.
        is_qwen = self._name.startswith("qwen")
        first = int(config.get("max_window_layers", 28)) if is_qwen else 0
        nope = config.get("no_rope_layers")
        every = int(config.get("no_rope_layer_interval") or family.rope_period)
        layers = []
        for layer in range(n_layers):
            has_rope = not family.rope_period or (
                bool(nope[layer]) if nope else (layer + 1) % every != 0
            )
            if types:
                is_near = types[layer] == "sliding_attention"
            elif family.rope_period:
                is_near = not has_rope
            else:
                is_near = layer >= first and (not period or (layer + 1) % period != 0)
            is_near &= window != 0
            rope = (near if is_near else usual) if has_rope else None
            layers.append(Attention(rope, window if is_near else 0))
        return context, tuple(layers)

    def _window(self) -> int:
        """Return how many tokens layers with a window see; 0: no layer has a window."""
        config = self._config
        by_default = self._model_type in ("mistral", "phi3") or self._family.full_period > 1
        if not flag(config, "use_sliding_window", by_default):
            return 0
        has_default = self._model_type in ("mistral", "qwen2", "qwen3")
        default = 4096 if has_default or self._family.full_period > 1 else 0
        return int(config.get("sliding_window", default) or 0)

    def _rope(
        self, base: float, size: int, scaling: dict[str, Any], trained: int, wanted: int | None
    ) -> tuple[int, Rope]:
        """Return the positions of the converted model and the rotary embedding of normal layers."""
        kind = str(scaling.get("rope_type") or scaling.get("type") or "default")
        context = trained if wanted is None else wanted
        if kind == "default":
            return context, Rope(base, size)
        if kind == "linear":
            return context, Rope(base, size, float(scaling["factor"]))
        if kind == "llama3":
            return context, Rope(base, size, divisors=_llama3_divisors(base, size, scaling))
        if kind in ("longrope", "su") and self._family.is_fused:
            original = int(
                self._config.get("original_max_position_embeddings")
                or scaling["original_max_position_embeddings"]
            )
            context = min(context, original) if wanted is None else context
            which = "long_factor" if context > original else "short_factor"
            stretch = trained / original
            magnitude = scaling.get("attention_factor")
            if magnitude is None:
                magnitude = math.sqrt(1 + math.log(stretch) / math.log(original))
                magnitude = magnitude if stretch > 1 else 1.0
            factors = tuple(float(value) for value in scaling[which])
            return context, Rope(base, size, divisors=factors, magnitude=float(magnitude))
        raise self._refuse(f"RoPE scaling of type {kind!r}")


def _llama3_divisors(base: float, size: int, scaling: dict[str, Any]) -> tuple[float, ...]:
    """Return Llama 3.1's divisors of frequencies: the factor for slow ones, 1 for quick ones."""
    factor = float(scaling["factor"])
    low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
    original = float(scaling["original_max_position_embeddings"])
    wavelengths = 2 * math.pi * base ** (np.arange(0, size, 2) / size)
    # Between the two the frequency is a mix, by the number of turns in the original context.
    share = np.clip((original / wavelengths - low) / (high - low), 0.0, 1.0)
    return tuple((1 / ((1 - share) / factor + share)).tolist())


def read_json(path: Path, default: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a file's JSON object; ``default``: used if there is no file.

    Raises:
        ConversionError: it is missing, or not a JSON object.
    """
    if default is not None and not path.is_file():
        return default
    most = MOST_OF_TOKENIZER if path.name == "tokenizer.json" else MOST_VALUES
    value = _read(path, lambda: document(path, most))
    if not isinstance(value, dict):
        raise ConversionError(f"{path} cannot be parsed: it is not a JSON object.")
    return value


def tokenizer_settings(folder: Path, kind: str) -> dict[str, Any]:
    """Return a folder's tokenizer settings, without nulls, which the runtime cannot read.

    ``kind``: the class if it names none, without which the runtime would ignore the chat template.
    """
    found = read_json(folder / "tokenizer_config.json", default={})
    return {"tokenizer_class": kind, **{k: v for k, v in found.items() if v is not None}}


def read_file(path: Path) -> bytes:
    """Return a file's bytes.

    Raises:
        ConversionError: it is missing or cannot be read.
    """
    return _read(path, lambda: contents(path))


def _read(path: Path, how: Callable[[], T]) -> T:
    try:
        inside(path.parent, path.name)  # its content goes into the converted model
        return how()
    except FileNotFoundError as error:
        raise ConversionError(
            f"{path} is missing, but required. Download the whole folder."
        ) from error
    except WRONG as error:
        raise ConversionError(f"{path} cannot be parsed: {error}.") from error
