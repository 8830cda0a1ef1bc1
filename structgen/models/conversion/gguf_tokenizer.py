"""Rebuild ``tokenizer.json`` and ``tokenizer_config.json`` from a GGUF file's metadata.

Owns the two kinds of tokenizer that the files of language models carry (byte-level BPE, and
SentencePiece's BPE with byte fallback), the splitting rules that llama.cpp knows only by name, the
special tokens and the chat template. Knows nothing of weights or graphs.
"""

from __future__ import annotations

from typing import Any

from structgen.errors import ConversionError

from .gguf_file import GgufFile

Json = dict[str, Any]

_GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_WORDS = _LLAMA3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")
# A word may end in small letters and begin with capitals, as "getValue" does in two.
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_GPT4O_WORDS = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_SHORT}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_SHORT}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
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
"""How well-known models spell the ends of turns and texts."""


_KEEP_SPACES = frozenset({"<unk>", "<s>", "<|endoftext|>"})


def end_token_ids(file: GgufFile) -> list[int]:
    """Ids of all tokens that end a turn or a text, the file's own choice first.

    Besides the ids that the metadata name, every control token of a well-known spelling counts,
    because a model meets both the end of a turn and the end of a document in training.
    Others do not: Gemma's ``</s>`` is a tag of HTML.
    """
    named = ("eos_token_id", "eot_token_id", "eom_token_id")
    ids = [int(i) for key in named if (i := file.get(f"tokenizer.ggml.{key}")) is not None]
    if not ids:
        raise ConversionError(
            f"{file.path} has no metadata key 'tokenizer.ggml.eos_token_id', which is needed: "
            "without it no text would ever end."
        )
    for i, (text, kind) in enumerate(zip(_tokens(file), _types(file), strict=True)):
        if kind == _CONTROL and text in END_TEXTS:
            ids.append(i)
    return list(dict.fromkeys(ids))


def start_token_id(file: GgufFile) -> int | None:
    """Id of the token that starts a text, if the file names one."""
    value = file.get("tokenizer.ggml.bos_token_id")
    return None if value is None else int(value)


def padding_token_id(file: GgufFile) -> int:
    """Id of the token that fills batches: the file's own choice, else the end of text."""
    return int(file.get("tokenizer.ggml.padding_token_id", end_token_ids(file)[0]))


def tokenizer_json(file: GgufFile) -> Json:
    """The contents of ``tokenizer.json``.

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
    tokens, start = _tokens(file), start_token_id(file)
    # Phi-3's markers of turns take the white space that comes after them. No key says so.
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
    if start is not None and file.get("tokenizer.ggml.add_bos_token", kind == "llama"):
        name = tokens[start]
        post_processor = {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": name, "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [
                {"SpecialToken": {"id": name, "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": name, "type_id": 1}},
                {"Sequence": {"id": "B", "type_id": 1}},
            ],
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
    """The contents of ``tokenizer_config.json``, with the chat template if the file has one."""
    tokens, start = _tokens(file), start_token_id(file)
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
        config["add_bos_token"] = bool(file.get("tokenizer.ggml.add_bos_token", not is_byte_level))
    unknown = file.get("tokenizer.ggml.unknown_token_id")
    if unknown is not None:
        config["unk_token"] = tokens[int(unknown)]
    template = file.get("tokenizer.chat_template")
    if template is not None:
        config["chat_template"] = template
    return config


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
            f"{file.path} splits text by the rule {rule!r}; structgen knows "
            f"{', '.join(sorted(_SPLITS))}. Another rule would cut other tokens in silence."
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
    prefix = bool(file.get("tokenizer.ggml.add_space_prefix", True))
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
            unk_token=_tokens(file)[int(file.get("tokenizer.ggml.unknown_token_id", 0))],
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
        # Rows of the embedding that stand for nothing only fill it up: no text is made of them.
        "vocab": {
            text: i
            for i, (text, kind) in enumerate(zip(_tokens(file), _types(file), strict=True))
            if kind != _UNUSED
        },
        "merges": merges,
    }


def _merges_from_scores(tokens: list[str], scores: list[float]) -> list[list[str]]:
    """The merges that SentencePiece's scores imply: any two pieces that make a third one.

    SentencePiece always joins the pair whose result has the highest score, so merges are ranked
    by that score, and ties by the ids of the parts.
    """
    ids = {text: i for i, text in enumerate(tokens)}
    ranked = [
        (-scores[whole], ids[text[:cut]], ids[text[cut:]])
        for text, whole in ids.items()
        for cut in range(1, len(text))
        if text[:cut] in ids and text[cut:] in ids
    ]
    ranked.sort()
    return [[tokens[left], tokens[right]] for _, left, right in ranked]
