"""Tokenizers rebuilt from GGUF metadata, checked against independent spellings of the rules."""

from __future__ import annotations

import json
import random

import inside
import onnxruntime_genai as og
import pytest
import tiny_gguf
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from structgen import Vocabulary
from structgen.errors import ConversionError
from structgen.models import convert
from structgen.models.conversion import gguf
from structgen.models.conversion.gguf import GgufFile
from structgen.models.progress import silent

TEXTS = [
    "Hello  world 123 4567\n\n  ½ Ⅷ ٣ naïve 日本語 🎉 don't I'LL\t x<|im_end|>y",
    "a1b2 c33  5 ",
    "  x = 12.5;\n\n\n\ty",
    "½½ 3¾ été 2024年5月\r\n \r\n  a",
    "<|im_start|>user\n 7 <|im_end|>",
    "foo_bar(1,2) != 3 ?? !! it's we'll I'd 'tis",
    "   ",
    "\n",
    "😀 👨‍👩‍👧 1️⃣",
]


def some_texts(n):
    choice = random.Random(0)
    alphabet = "ab1 2\n\t'ls.,é½日🎉_-\r"
    return TEXTS + [
        "".join(choice.choice(alphabet) for _ in range(choice.randint(1, 20))) for _ in range(n)
    ]


def plain(tokenizer, text):
    """Ids without the start token, which the runtime leaves to chat templates."""
    return tokenizer.encode(text, add_special_tokens=False).ids


@pytest.fixture(scope="module")
def smollm(default_model):
    return (
        Tokenizer.from_file(str(default_model / "tokenizer.json")),
        og.Tokenizer(og.Model(str(default_model))),
        default_model,
    )


def test_smollm_splits_as_its_own_file_does(smollm):
    tokenizer, _, folder = smollm
    # As in the tokenizer.json of HuggingFaceTB/SmolLM2-135M-Instruct.
    original = Tokenizer.from_str((folder / "tokenizer.json").read_text("utf-8"))
    original.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    for text in some_texts(500):
        assert tokenizer.encode(text).ids == original.encode(text).ids, text
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text
    assert len(tokenizer.encode("2024").ids) == 4


@inside.needs_newer_runtime
def test_the_runtime_splits_like_the_library(smollm):
    tokenizer, runtime, _ = smollm
    for text in some_texts(500):
        assert runtime.encode(text).tolist() == tokenizer.encode(text).ids, text


def test_smollms_special_tokens_and_chat_template(smollm):
    tokenizer, runtime, _ = smollm
    assert list(runtime.eos_token_ids) == [2, 0]
    assert (runtime.bos_token_id, runtime.pad_token_id) == (1, 2)
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    prompt = runtime.apply_chat_template(json.dumps(messages), add_generation_prompt=True)
    assert prompt == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert tokenizer.encode("<|im_end|>").ids == [2]
    assert tokenizer.get_vocab_size() == 49152


@pytest.fixture
def tiny(tmp_path):
    def load(tokenizer):
        folder = tmp_path / "model"
        convert(tiny_gguf.write(tmp_path / "tiny.gguf", tokenizer=tokenizer), folder, silent)
        library = Tokenizer.from_file(str(folder / "tokenizer.json"))
        return library, og.Tokenizer(og.Model(str(folder)))

    return load


def test_llama_3s_rule(tiny):
    tokenizer, runtime = tiny(tiny_gguf.byte_level_tokenizer("llama-bpe") | {"add_bos_token": True})
    # Numbers in threes from the left, a leading non-letter kept with its word.
    words = [
        piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str("(abc 12345 it's\n\n x")
    ]
    assert words == ["(abc", "Ġ", "123", "45", "Ġit", "'s", "ĊĊ", "Ġx"]
    assert tokenizer.encode("the").ids[0] == 1
    for text in some_texts(100):
        assert runtime.encode(text).tolist() == plain(tokenizer, text), text


@pytest.mark.parametrize(
    ("rule", "text", "words"),
    [
        ("qwen2", "(abc 123 it's\n\n x", ["(abc", "Ġ", "1", "2", "3", "Ġit", "'s", "ĊĊ", "Ġx"]),
        ("smaug-bpe", "(abc 1234", ["(abc", "Ġ", "123", "4"]),
        ("gpt-4o", "getValue HTTPS's 1234", ["get", "Value", "ĠHTTPS's", "Ġ", "123", "4"]),
    ],
)
def test_rules_that_llama_cpp_knows_by_name(tiny, rule, text, words):
    tokenizer, runtime = tiny(tiny_gguf.byte_level_tokenizer(rule))
    assert [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)] == words
    for text in [*some_texts(200), "getValue HTTPServer's ABCdef don'T e\u0301"]:
        assert runtime.encode(text).tolist() == plain(tokenizer, text), text
        assert tokenizer.decode(plain(tokenizer, text), skip_special_tokens=False) == text


def test_rows_that_stand_for_nothing_are_no_text(tiny, tmp_path):
    metadata = tiny_gguf.byte_level_tokenizer("qwen2")
    metadata["tokens"] += ["[PAD0]", "[PAD1]"]
    metadata["token_type"] += [5, 5]
    tokenizer, runtime = tiny(metadata)
    n = len(metadata["tokens"])
    assert tokenizer.get_vocab_size() == n - 2
    assert tokenizer.encode("[PAD0]").tokens == [*list("[PAD"), "0", "]"]
    assert runtime.encode("[PAD0]").tolist() == plain(tokenizer, "[PAD0]")
    vocabulary = Vocabulary.from_tokenizer_json(tmp_path / "model" / "tokenizer.json", size=n)
    assert vocabulary.tokens[-3:] == (b"ab", b"", b"")


def test_gemmas_tokenizer(tiny, tmp_path):
    metadata = tiny_gguf.gemma_tokenizer()
    tokenizer, runtime = tiny(metadata)
    assert tokenizer.encode("the cat\n\né").tokens == [
        "<bos>", "t", "he", "▁cat", "\n\n", "<0xC3>", "<0xA9>",
    ]  # fmt: skip
    for text in ["the cat", "  the", "cat<end_of_turn>\n\n\nthe", "a</s>c", *some_texts(100)]:
        assert runtime.encode(text).tolist() == plain(tokenizer, text), text
    assert tokenizer.decode(tokenizer.encode(" the cat\n").ids) == " the cat\n"
    vocabulary = Vocabulary.from_tokenizer_json(tmp_path / "model" / "tokenizer.json")
    names = metadata["tokens"]
    assert vocabulary.tokens[names.index("\n\n")] == b"\n\n"
    assert vocabulary.tokens[names.index("<end_of_turn>")] == b""
    # Both the end of a text and that of a turn, the file's own choice first; but no tag of HTML.
    assert vocabulary.tokens[names.index("</s>")] == b"</s>"
    assert list(runtime.eos_token_ids) == [1, names.index("<end_of_turn>")]


def test_phi_3s_markers_take_the_white_space_behind_them(tmp_path):
    metadata = tiny_gguf.sentencepiece_tokenizer()
    metadata["tokens"] += ["<|endoftext|>", "<|end|>"]
    metadata["token_type"] += [3, 3]
    metadata["scores"] += [-1000.0] * 2
    path = tiny_gguf.write(tmp_path / "tiny.gguf", architecture="phi3", tokenizer=metadata)
    folder = convert(path, tmp_path / "model", silent)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    runtime = og.Tokenizer(og.Model(str(folder)))
    assert plain(tokenizer, "<|end|>\n the") == plain(tokenizer, "<|end|>the")
    assert plain(tokenizer, "<|endoftext|>\n") != plain(tokenizer, "<|endoftext|>")
    for text in ["the<|end|>\n", "<|end|> the\n<|endoftext|>\n", "a</s>\nb"]:
        assert runtime.encode(text).tolist() == plain(tokenizer, text), text
    n = len(metadata["tokens"])
    assert list(runtime.eos_token_ids) == [2, n - 2, n - 1]


def test_sentencepiece(tiny):
    metadata = tiny_gguf.sentencepiece_tokenizer()
    tokenizer, runtime = tiny(metadata)
    # "▁the" and "▁cat" were the best pieces; é is not in the vocabulary, so two bytes.
    names = metadata["tokens"]
    assert tokenizer.encode("the cat é").tokens == [
        "<s>", "▁the", "▁cat", "▁", "<0xC3>", "<0xA9>",
    ]  # fmt: skip
    for text in ["the cat", "hat", "é日", "  the", "tt hehe\n", "cat</s>the"]:
        ids = plain(tokenizer, text)
        assert runtime.encode(text).tolist() == ids, text
        assert all(0 <= i < len(names) for i in ids)
    assert tokenizer.decode(tokenizer.encode("the cat é").ids) == "the cat é"


def test_sentencepieces_merges_join_the_best_pair_first(tiny):
    # SentencePiece joins the pair with the best score, here "he" before "th".
    words = ["▁", "t", "h", "e", "he", "th", "the"]
    metadata = tiny_gguf.sentencepiece_tokenizer()
    metadata["tokens"] = metadata["tokens"][:259] + words
    metadata["scores"] = [0.0] * 259 + [-9.0, -9.0, -9.0, -9.0, -1.0, -2.0, -3.0]
    metadata["token_type"] = [2, 3, 3] + [6] * 256 + [1] * len(words)
    tokenizer, _ = tiny(metadata)
    assert tokenizer.encode("the").tokens == ["<s>", "▁", "the"]
    metadata["tokens"][-1] = "thx"
    merges = gguf._merges_from_scores(metadata["tokens"], metadata["scores"])
    assert merges == [["h", "e"], ["t", "h"]]


def test_user_defined_tokens_are_added_but_not_special(tmp_path):
    metadata = tiny_gguf.byte_level_tokenizer()
    metadata["tokens"].append("<tool>")
    metadata["token_type"].append(4)
    file = GgufFile(tiny_gguf.write(tmp_path / "tiny.gguf", tokenizer=metadata))
    added = gguf.tokenizer_json(file)["added_tokens"]
    assert [(token["content"], token["special"]) for token in added] == [
        ("<|endoftext|>", True),
        ("<|im_start|>", True),
        ("<|im_end|>", True),
        ("<tool>", False),
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pre": "tekken"}, "splits text by the rule 'tekken'"),
        ({"model": "bert"}, "tokenizer of kind 'bert'"),
    ],
)
def test_unknown_rules_are_refused(tmp_path, change, message):
    metadata = tiny_gguf.byte_level_tokenizer() | change
    path = tiny_gguf.write(tmp_path / "tiny.gguf", tokenizer=metadata)
    with pytest.raises(ConversionError, match=message):
        convert(path, tmp_path / "out", silent)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["tiny.gguf"]


def test_a_tokenizer_without_an_end_is_refused(tmp_path):
    metadata = tiny_gguf.byte_level_tokenizer()
    del metadata["eos_token_id"]
    path = tiny_gguf.write(tmp_path / "tiny.gguf", tokenizer=metadata)
    with pytest.raises(ConversionError, match="eos_token_id"):
        convert(path, tmp_path / "out", silent)


def test_the_library_agrees_on_what_a_split_is():
    # The rules are regular expressions for two engines; this pins the library's reading.
    rule = gguf._SPLITS["smollm"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in rule]
    )
    words = [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str("ab 12  cd")]
    assert words == ["ab", " ", "1", "2", " ", " cd"]
