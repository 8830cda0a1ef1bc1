"""Read a decoder and its tokenizer from a GGUF file.

Here are the names of keys and tensors, llama.cpp's row order of the query and key projections of
some families, and frequency factors. Before any work it refuses what the converter would silently
get wrong: unknown tensors, wrong shapes, scaled RoPE that it cannot express. The ``gguf`` package
reads only the blocks of numbers: its own reader takes 15 s for a vocabulary of 150,000 strings, and
never ends if an array claims more numbers than the file has bytes.

`tokenizer.json` is rebuilt for the two kinds of tokenizer in such files (byte-level BPE, and
SentencePiece's BPE with byte fallback), the splitting rules that llama.cpp knows only by name, the
special tokens and the chat template. Knows no ONNX and no rounding.
"""

from __future__ import annotations

import json
import math
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from structgen.errors import ConversionError, failure
from structgen.models import trial
from structgen.storage.user_folder import NOT_UNDERSTOOD

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

if TYPE_CHECKING:
    from gguf.constants import GGMLQuantizationType

_NUMBERS = {
    **{0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i"},
    **{6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"},
}
_STRING, _ARRAY = 8, 9
_MOST_CUTS = 500_000_000  # characters of tokens split at each place; Gemma's have 11 million
_ALIGNMENT = 32  # alignment of tensors, if a file does not have it
_MEANS_NOTHING = frozenset(
    {
        *("vocab_size", "tensor_data_layout", "expert_used_count", "pooling_type"),
        *("rope.scaling.original_context_length", "rope.scaling.finetuned"),
        "attention.layer_norm_epsilon",
    }
)
"""Keys of an architecture with known facts, or about parts that it does not have."""


class _Header:
    """The header of a file, read value by value, within the file's size."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = os.fstat(file.fileno()).st_size
        self.at = 0

    def take(self, n_bytes: int) -> bytes:
        self.at += n_bytes
        if self.at > self.size:
            raise ValueError("it is truncated")
        return self._file.read(n_bytes)

    def number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]

    def string(self) -> bytes:
        return self.take(self.number("Q"))

    def value(self, kind: int) -> Any:
        """Return a number, the bytes of a string, an array of numbers, or a list of strings."""
        if kind == _STRING:
            return self.string()
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind != _ARRAY:
            raise ValueError(f"a value has the unknown type {kind}")
        inner, count = self.number("I"), self.number("Q")
        if inner == _STRING:
            return [self.string() for _ in range(count)]  # each takes bytes, so this ends
        if inner not in _NUMBERS:
            raise ValueError(f"the values of an array have the unknown type {inner}")
        kind_of_number = np.dtype(f"<{_NUMBERS[inner]}")
        return np.frombuffer(self.take(kind_of_number.itemsize * count), kind_of_number)

    def stored(self) -> _Stored:
        """Return the storage of a tensor; its offset is from the beginning of the tensors."""
        # Imported here: `import structgen.models` must not load gguf.
        from gguf.constants import GGMLQuantizationType
        from gguf.quants import quant_shape_to_byte_shape

        n_dimensions = self.number("I")
        if n_dimensions > MOST_DIMENSIONS:
            raise ValueError(f"a tensor has {n_dimensions:,} dimensions")
        shape = tuple(reversed([self.number("Q") for _ in range(n_dimensions)]))
        kind = GGMLQuantizationType(self.number("I"))
        return _Stored(kind, shape, quant_shape_to_byte_shape(shape, kind), self.number("Q"))


class _Stored(NamedTuple):
    """The storage of a tensor: its type and place."""

    kind: GGMLQuantizationType
    shape: tuple[int, ...]
    bytes_shape: tuple[int, ...]
    offset: int


class GgufFile(Tensors[_Stored]):
    """An opened GGUF file. Metadata are read at once, tensors on first use.

    Raises:
        ConversionError: it is not a GGUF file, is damaged, truncated or split into parts, or has an
            unsupported family.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(Path(path))
        self._values: dict[str, Any] = {}
        self._asked: set[str] = set()
        try:
            with self.path.open("rb") as file:
                magic = file.read(4)
                if magic == b"GGUF":
                    file.seek(0)
                    self._read(_Header(file))
        except OSError as error:
            reason = failure(error)
            raise ConversionError(f"Cannot read {self.path}: {reason}.") from error
        except NOT_UNDERSTOOD as error:
            raise ConversionError(
                f"{self.path} is a damaged or truncated GGUF file ({error}). Download it again."
            ) from error
        if magic != b"GGUF":
            raise ConversionError(
                f"{self.path} is not a GGUF file: it starts with {magic!r}, not b'GGUF'. Pass a "
                ".gguf file."
            )

    def _read(self, header: _Header) -> None:
        header.take(4)
        version = header.number("I")
        if version not in (2, 3):
            raise ValueError(f"its version is {version}; structgen reads 2 and 3")
        n_tensors, n_values = header.number("Q"), header.number("Q")
        for _ in range(n_values):
            key = header.string().decode()
            if key in self._values:
                raise ValueError(f"it contains {key!r} twice")
            self._values[key] = header.value(header.number("I"))
            if key == "general.architecture":
                check_family(self.path, "architecture", str(self.get(key)), FAMILIES)
        if int(self.get("split.count", 1)) > 1:
            raise ConversionError(
                f"{self.path} is one part of a model split into {self.get('split.count')} files. "
                "Merge them first with llama.cpp's `llama-gguf-split --merge`."
            )
        tensors = [(header.string().decode(), header.stored()) for _ in range(n_tensors)]
        alignment = self._values.get("general.alignment", _ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise ValueError(f"its alignment {alignment!r} is invalid")
        begin = -(-header.at // alignment) * alignment
        left = header.size
        for name, stored in tensors:
            if name in self._tensors:
                raise ValueError(f"it contains the tensor {name!r} twice")
            self._tensors[name] = stored._replace(offset=begin + stored.offset)
            size = math.prod(stored.bytes_shape)
            left -= size  # Tensors that share bytes could be larger in total than the file.
            if left < 0 or begin + stored.offset + size > header.size:
                raise ValueError("its tensors are truncated")

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a metadata key as plain Python (str, int, float, bool or list)."""
        value = self._values.get(key, default)
        self._asked.add(key)
        try:
            if isinstance(value, bytes):
                return value.decode()
            if isinstance(value, list):
                return [one.decode() if isinstance(one, bytes) else one for one in value]
            return value.tolist() if isinstance(value, np.ndarray) else value
        except UnicodeDecodeError as error:
            raise ConversionError(
                f"{self.path} is damaged: its {key!r} is not valid UTF-8."
            ) from error

    def unread(self, prefix: str) -> list[str]:
        """Return the keys with a prefix that were not read and that turn something on."""
        rest = [key for key in self._values if key.startswith(prefix) and key not in self._asked]
        return [key for key in rest if self.get(key) and key[len(prefix) :] not in _MEANS_NOTHING]

    def require(self, key: str) -> Any:
        """Like `get`, for keys that must exist.

        Raises:
            ConversionError: the key is missing.
        """
        value = self.get(key)
        if value is None:
            raise ConversionError(f"{self.path} has no metadata key {key!r}, which is required.")
        return value

    def _values_of(self, name: str, stored: _Stored) -> FloatArray:
        from gguf.quants import dequantize

        data = numbers(self.path, "u1", stored.bytes_shape, stored.offset)
        try:
            values = dequantize(data, stored.kind)
        except NotImplementedError as error:
            raise ConversionError(
                f"{self.path}: tensor {name!r} is stored as {stored.kind.name}, which the gguf "
                "package cannot dequantize. Use a file quantized as Q4_0, Q4_K_M, Q8_0 or F16."
            ) from error
        return np.ascontiguousarray(values, dtype=np.float32).reshape(stored.shape)


Json = dict[str, Any]

_GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_WORDS = _LLAMA3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")
_GPT4O_WORDS = (
    trial.CASED_WORDS + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLITS: dict[str, tuple[str, ...]] = {
    "gpt-2": (_GPT2_WORDS,),
    # SmolLM's own file says Digits, then ByteLevel with its built-in pattern. These splits cut
    # the same pieces, and unlike those the runtime's tokenizer follows them everywhere: with the
    # original rules it cuts about one text in twenty differently (around "½", or "a1b2 c33").
    "smollm": (r"\p{N}", _GPT2_WORDS),
    "llama-bpe": (_LLAMA3_WORDS,),
    "smaug-bpe": (_LLAMA3_WORDS,),  # SmolLM3's
    "qwen2": (_QWEN2_WORDS,),
    "gpt-4o": (_GPT4O_WORDS,),  # Phi-4-mini's
}

_UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 2, 3, 4, 5  # values of tokenizer.ggml.token_type

END_TEXTS = frozenset(
    {
        "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>",
        "<|end|>", "<|eot|>", "<end_of_turn>", "</s>", "<eos>",
    }
)  # fmt: skip
"""The spellings of end tokens of well-known models."""


_KEEP_SPACES = frozenset({"<unk>", "<s>", "<|endoftext|>"})


def end_token_ids(file: GgufFile) -> list[int]:
    """Return the ids of all tokens that end a turn or a text, the file's own choice first.

    Besides the ids in the metadata, every control token with a well-known spelling counts, because
    a model sees both the end of a turn and the end of a document in training. Others do not count:
    Gemma's ``</s>`` is an HTML tag.
    """
    named = (_token_id(file, name) for name in ("eos", "eot", "eom"))
    ids = [token for token in named if token is not None]
    if not ids:
        raise ConversionError(
            f"{file.path} has no metadata key 'tokenizer.ggml.eos_token_id', which is required to "
            "end a text."
        )
    for i, (text, kind) in enumerate(zip(_tokens(file), _types(file), strict=True)):
        if kind == _CONTROL and text in END_TEXTS:
            ids.append(i)
    return list(dict.fromkeys(ids))


def padding_token_id(file: GgufFile) -> int:
    """Return the id of the padding token: the file's own choice, otherwise the end of text."""
    token = _token_id(file, "padding")
    return end_token_ids(file)[0] if token is None else token


def _token_id(file: GgufFile, name: str) -> int | None:
    key = f"tokenizer.ggml.{name}_token_id"
    value, n_tokens = file.get(key), len(_tokens(file))
    if value is not None and not (type(value) is int and 0 <= value < n_tokens):
        raise ValueError(f"{key} = {value!r} is not one of its {n_tokens:,} tokens")
    return value


def tokenizer_json(file: GgufFile) -> Json:
    """Return the contents of ``tokenizer.json``.

    Raises:
        ConversionError: a kind of tokenizer, or a splitting rule, that is not known here.
    """
    kind = str(file.require("tokenizer.ggml.model"))
    if kind == "gpt2":
        parts = _byte_level(file)
    elif kind == "llama":
        parts = _sentencepiece(file)
    else:
        raise ConversionError(
            f"{file.path} has a tokenizer of kind {kind!r}; structgen converts 'gpt2' (byte-level "
            "BPE) and 'llama' (SentencePiece BPE)."
        )
    tokens, start = _tokens(file), _token_id(file, "bos")
    # Phi-3's turn markers include the following white space. No key tells this.
    takes_spaces = kind == "llama" and file.get("general.architecture") == "phi3"
    added = [
        {
            "id": i,
            "content": text,
            "single_word": False,
            "lstrip": False,
            "rstrip": takes_spaces and text not in _KEEP_SPACES,
            "normalized": False,
            "special": token_kind != _USER_DEFINED,
        }
        for i, (text, token_kind) in enumerate(zip(tokens, _types(file), strict=True))
        if token_kind in (_UNKNOWN, _CONTROL, _USER_DEFINED)
    ]
    post_processor = None
    if start is not None and _is_on(file, "add_bos_token", kind == "llama"):
        name = tokens[start]
        one, other = (
            [{"SpecialToken": {"id": name, "type_id": i}}, {"Sequence": {"id": text, "type_id": i}}]
            for i, text in enumerate("AB")
        )
        post_processor = {
            "type": "TemplateProcessing",
            "single": one,
            "pair": [*one, *other],
            "special_tokens": {name: {"id": name, "ids": [start], "tokens": [name]}},
        }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "post_processor": post_processor,
        **parts,
    }


def tokenizer_config(file: GgufFile, context_length: int) -> Json:
    """Return ``tokenizer_config.json``'s contents, with the file's chat template, if any."""
    tokens, start = _tokens(file), _token_id(file, "bos")
    is_byte_level = file.get("tokenizer.ggml.model") == "gpt2"
    config: Json = {
        "tokenizer_class": "GPT2Tokenizer" if is_byte_level else "LlamaTokenizer",
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": context_length,
        "eos_token": tokens[end_token_ids(file)[0]],
        "pad_token": tokens[padding_token_id(file)],
    }
    if start is not None:
        config["bos_token"] = tokens[start]
        config["add_bos_token"] = _is_on(file, "add_bos_token", not is_byte_level)
    unknown = _token_id(file, "unknown")
    if unknown is not None:
        config["unk_token"] = tokens[unknown]
    template = file.get("tokenizer.chat_template")
    if not isinstance(template, (str, type(None))):
        raise ValueError(f"tokenizer.chat_template = {template!r} must be text")
    if template is not None:
        config["chat_template"] = template
    return config


def _is_on(file: GgufFile, name: str, default: bool) -> bool:
    value = file.get(f"tokenizer.ggml.{name}", default)
    if not isinstance(value, bool):
        raise ValueError(f"tokenizer.ggml.{name} = {value!r} must be true or false")
    return value


def _tokens(file: GgufFile) -> list[str]:
    tokens: list[str] = file.require("tokenizer.ggml.tokens")
    return tokens


def _types(file: GgufFile) -> list[int]:
    types: list[int] = file.get("tokenizer.ggml.token_type", [1] * len(_tokens(file)))
    return types


def _byte_level(file: GgufFile) -> Json:
    rule = str(file.require("tokenizer.ggml.pre"))
    if rule not in _SPLITS:
        raise ConversionError(
            f"{file.path} splits text by the rule {rule!r}, which structgen does not support. "
            f"Supported rules: {', '.join(sorted(_SPLITS))}."
        )
    splits: list[Json] = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in _SPLITS[rule]
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [*splits, {**byte_level, "use_regex": False}],
        },
        "decoder": {**byte_level, "add_prefix_space": True, "use_regex": True},
        "model": _bpe(
            file,
            [list(merge.split(" ", 1)) for merge in file.require("tokenizer.ggml.merges")],
            # Llama 3's vocabulary holds words that its merges do not reach.
            ignore_merges=rule == "llama-bpe",
        ),
    }


def _sentencepiece(file: GgufFile) -> Json:
    prefix = _is_on(file, "add_space_prefix", True)
    normalizers: list[Json] = [{"type": "Prepend", "prepend": "▁"}] if prefix else []
    normalizers.append({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})
    decoders: list[Json] = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if prefix:
        decoders.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": decoders},
        "model": _bpe(
            file,
            _merges_from_scores(_tokens(file), file.require("tokenizer.ggml.scores")),
            unk_token=_tokens(file)[_token_id(file, "unknown") or 0],
            fuse_unk=True,
            byte_fallback=True,
        ),
    }


def _bpe(file: GgufFile, merges: list[list[str]], **options: Any) -> Json:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        **options,
        # Rows of the embedding without a token are padding, which no text uses.
        "vocab": {
            text: i
            for i, (text, kind) in enumerate(zip(_tokens(file), _types(file), strict=True))
            if kind != _UNUSED
        },
        "merges": merges,
    }


def _merges_from_scores(tokens: list[str], scores: list[float]) -> list[list[str]]:
    """Return the merges implied by SentencePiece's scores: any two pieces that make a third one.

    SentencePiece always joins the pair whose result has the highest score, so merges are ranked
    by that score, and ties by the ids of the parts.
    """
    ids = {text: i for i, text in enumerate(tokens)}
    if sum(len(text) ** 2 for text in ids) > _MOST_CUTS:
        raise ValueError(
            f"its tokens have up to {max(map(len, ids)):,} characters, which is too long"
        )
    ranked = sorted(
        (-scores[whole], ids[text[:cut]], ids[text[cut:]])
        for text, whole in ids.items()
        for cut in range(1, len(text))
        if text[:cut] in ids and text[cut:] in ids
    )
    return [[tokens[left], tokens[right]] for _, left, right in ranked]


_NAMES = Names(
    embedding="token_embd.weight",
    head="output.weight",
    norm="output_norm.weight",
    layer="blk.{}.",
    parts={
        **{part: f"attn_{part}" for part in ("q", "k", "v", "qkv", "q_norm", "k_norm")},
        **{part: f"ffn_{part}" for part in ("gate", "up", "down")},
        "attn_norm": "attn_norm",
        "o": "attn_output",
        "ffn_norm": "ffn_norm",
        "gate_up": "ffn_up",
        "attn_post_norm": "post_attention_norm",
        "ffn_post_norm": "post_ffw_norm",
    },
)
_LLAMA3_FACTORS = "rope_freqs.weight"
_LONG_FACTORS, _SHORT_FACTORS = "rope_factors_long.weight", "rope_factors_short.weight"


class GgufCheckpoint(Checkpoint):
    """A GGUF file.

    Args:
        path: the file.
        context_length: positions of the converted model; None: the file's, or with two sets of
            frequency factors, the length for the short ones.

    Raises:
        ConversionError: it is not a GGUF file, is damaged, has another architecture, or as for
            `Checkpoint`.
    """

    _names = _NAMES

    def __init__(self, path: Path, context_length: int | None = None) -> None:
        self._file = GgufFile(path)
        self._architecture = str(self._file.require("general.architecture"))
        super().__init__(path, FAMILIES[self._architecture], self._file, context_length)
        if unread := self._file.unread(f"{self._architecture}."):
            raise self._refuse(f"the setting {unread[0]} = {self._file.get(unread[0])!r:.40}")

    def special_tokens(self) -> SpecialTokens:
        """As `Checkpoint.special_tokens`."""
        return SpecialTokens(
            end_token_ids(self._file), _token_id(self._file, "bos"), padding_token_id(self._file)
        )

    def tokenizer_files(self) -> tuple[bytes, dict[str, Any]]:
        """As `Checkpoint.tokenizer_files`."""
        text = json.dumps(tokenizer_json(self._file), ensure_ascii=False)
        return text.encode(), tokenizer_config(self._file, self.shape.context_length)

    def _get(self, key: str, default: Any = None) -> Any:
        return self._file.get(f"{self._architecture}.{key}", default)

    def _require(self, key: str) -> Any:
        return self._file.require(f"{self._architecture}.{key}")

    def _same_everywhere(self, key: str, default: int | None = None) -> int:
        """Return a count that could differ between layers in this format."""
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
        self._check_counts(n_layers, head_size)
        self._check_features(head_size)
        if _NAMES.embedding not in file.tensor_names:
            raise ConversionError(
                f"{self.path} has no tensor {_NAMES.embedding!r}, which is required."
            )
        trained = int(self._require("context_length"))
        context, factors = self._context(trained, context_length)
        scaled = hidden_size / n_heads if n_layers == family.wide_layers else head_size
        return DecoderShape(
            family=family,
            hidden_size=hidden_size,
            ffn_size=self._same_everywhere("feed_forward_length"),
            n_heads=n_heads,
            n_kv_heads=self._same_everywhere("attention.head_count_kv", n_heads),
            head_size=head_size,
            vocab_size=file.tensor_shape(_NAMES.embedding)[0],
            context_length=context,
            rms_epsilon=float(self._require("attention.layer_norm_rms_epsilon")),
            is_tied=_NAMES.head not in file.tensor_names,
            layers=self._layers(n_layers, head_size, factors),
            attention_scale=float(self._get("attention.scale", 0.0)) or scaled**-0.5,
            attention_cap=float(self._get("attn_logit_softcapping", family.attention_cap)),
            logit_cap=float(self._get("final_logit_softcapping", family.logit_cap)),
        )

    def _check_features(self, head_size: int) -> None:
        """Refuse features of an architecture that the graph cannot express."""
        refuse = self._refuse
        if int(self._get("expert_count", 0)) > 0:
            raise refuse(f"a mixture of {self._get('expert_count')} experts")
        scaling = str(self._get("rope.scaling.type", "none"))
        known = ("none", "linear", "longrope") if self._family.is_fused else ("none", "linear")
        if scaling not in known:
            raise refuse(f"RoPE scaling of type {scaling!r}")
        if scaling == "none" and float(self._get("rope.scaling.factor", 1.0)) != 1.0:
            raise refuse("a RoPE scaling factor without a type")
        if not self._get("attention.causal", True):
            raise refuse("non-causal attention")
        value_size = int(self._get("attention.value_length", head_size))
        if value_size != head_size:
            raise refuse(f"value heads of size {value_size} with key heads of size {head_size}")
        if self._get("attention.sliding_window", 0) and not self._has_windows:
            raise refuse("sliding-window attention")

    @property
    def _has_windows(self) -> bool:
        return self._family.is_fused or self._family.full_period > 1

    def _context(self, trained: int, wanted: int | None) -> tuple[int, tuple[float, ...]]:
        """Return the positions of the converted model, with their frequency factors."""
        context = self._positions(trained, wanted)
        name = _LLAMA3_FACTORS
        if {_LONG_FACTORS, _SHORT_FACTORS} & self._file.tensor_names:
            # Trained with short factors for short texts and long ones for long texts. The length of
            # a text is not known in advance, so the context length decides.
            original = int(self._require("rope.scaling.original_context_length"))
            context = min(context, original) if wanted is None else context
            name = _LONG_FACTORS if context > original else _SHORT_FACTORS
        has_factors = name in self._file.tensor_names
        return context, tuple(self._file.tensor(name).tolist()) if has_factors else ()

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
            is_near = window != 0 and (
                bool(period[layer])
                if isinstance(period, list)
                else not period or (layer + 1) % int(period) != 0
            )
            has_rope = not family.rope_period or (layer + 1) % family.rope_period != 0
            rope = (near if is_near else usual) if has_rope else None
            layers.append(Attention(rope, window if is_near else 0))
        return tuple(layers)

    def _not_needed(self) -> dict[str, tuple[int, ...]]:
        names = (_LONG_FACTORS, _SHORT_FACTORS) if self._family.is_fused else (_LLAMA3_FACTORS,)
        return {name: (rope.size // 2,) for rope in self.shape.ropes[:1] for name in names}

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
