"""Tries against brute force, tokens against the ``tokenizers`` library, on real and tiny files."""

from __future__ import annotations

import gc
import json
import os
import pickle
import random
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import real_tokenizers
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, normalizers, pre_tokenizers, trainers
from tokenizers import models as kinds

from structgen import Vocabulary, warm_up
from structgen.errors import VocabularyError
from structgen.vocabulary import tokenizer_bytes, trie
from structgen.vocabulary.trie import MAX_TOKEN_BYTES, Trie

KINDS = pytest.mark.parametrize("kind", real_tokenizers.KINDS)
# A real vocabulary takes a second or two to read, once a process.
REAL = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])

SMALL_TOKENS = st.lists(
    st.one_of(
        st.binary(max_size=6), st.lists(st.sampled_from(b"ab\x00\xff"), max_size=9).map(bytes)
    ),
    max_size=60,
)
TEXT = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from("aZ 09\n\t{}[]\",:\\'é漢字カ한𝔘👩🏽‍🚀\u0000\u001b\u200d\u00a0\u2028"),
    ),
    max_size=60,
)


# -- trie ---------------------------------------------------------------------------------------


def check_trie(trie: Trie, tokens: list[bytes]) -> None:
    strings = [trie.string_of(node) for node in range(trie.n_nodes)]
    prefixes = {token[:n] for token in tokens for n in range(len(token) + 1)} | {b""}
    # Level by level, and in lexicographic order within a level.
    assert strings == sorted(prefixes, key=lambda string: (len(string), string))
    assert trie.depth.tolist() == [len(string) for string in strings]
    assert trie.max_depth == max(map(len, prefixes))
    for depth in range(trie.max_depth + 1):
        level = strings[trie.level_start[depth] : trie.level_start[depth + 1]]
        assert [len(string) for string in level] == [depth] * len(level) != []

    edges = {}
    for node, string in enumerate(strings):
        first = int(trie.first_child[node])
        children = range(first, first + int(trie.n_children[node]))
        assert [strings[child] for child in children] == sorted(
            other for other in prefixes if len(other) == len(string) + 1 and other[:-1] == string
        )
        for child in children:
            assert trie.parent[child] == node
            edges[node << 8 | strings[child][-1]] = child
        assert trie.byte[node] == (string[-1] if string else 0)
        assert trie.ids_at(node) == [i for i, t in enumerate(tokens) if t == string != b""]
        assert trie.node_of(string) == node
        assert trie.node_of(string + b"\x7f") == edges.get(node << 8 | 0x7F)
    assert trie.child == edges
    assert (np.diff(trie.first_child) >= 0).all()
    assert len(trie.token_ids) == sum(map(bool, tokens))
    check_layout(trie)


@given(SMALL_TOKENS, st.binary(max_size=3))
def test_the_most_of_some_bytes(tokens: list[bytes], counted: bytes) -> None:
    expected = max((sum(byte in counted for byte in token) for token in tokens), default=0)
    assert Trie(tokens).most(counted) == expected


def check_layout(trie: Trie) -> None:
    for name, dtype, length in (
        ("first_child", np.int32, trie.n_nodes),
        ("n_children", np.int32, trie.n_nodes),
        ("byte", np.uint8, trie.n_nodes),
        ("parent", np.int32, trie.n_nodes),
        ("depth", np.uint16, trie.n_nodes),
        ("token_start", np.int32, trie.n_nodes + 1),
        ("token_ids", np.int32, len(trie.token_ids)),
        ("level_start", np.int32, trie.max_depth + 2),
    ):
        array = getattr(trie, name)
        assert (array.dtype, array.shape) == (dtype, (length,)), name
        assert not array.flags.writeable, name


@given(SMALL_TOKENS)
def test_trie_equals_brute_force(tokens: list[bytes]) -> None:
    check_trie(Trie(tokens), tokens)


@given(SMALL_TOKENS)
def test_a_pickled_trie_is_the_same(tokens: list[bytes]) -> None:
    check_trie(pickle.loads(pickle.dumps(Trie(tokens))), tokens)


def test_the_example_in_the_docstring() -> None:
    trie = Trie([b"a", b"ab", b"b", b"bc", b"a"])
    assert trie.parent.tolist() == [0, 0, 0, 1, 2]
    assert trie.first_child.tolist() == [1, 3, 4, 5, 5]
    assert trie.n_children.tolist() == [2, 1, 1, 0, 0]
    assert trie.token_start.tolist() == [0, 0, 2, 3, 4, 5]
    assert trie.token_ids.tolist() == [0, 4, 2, 1, 3]
    assert trie.level_start.tolist() == [0, 1, 3, 5]


def test_longest_token() -> None:
    assert Trie([b"x" * MAX_TOKEN_BYTES]).depth[-1] == MAX_TOKEN_BYTES
    with pytest.raises(VocabularyError, match=r"Token 1 is 65,536 bytes long"):
        Trie([b"a", b"x" * (MAX_TOKEN_BYTES + 1)])


def test_the_size_of_the_trie_is_bounded(monkeypatch):
    """With 2.4 million nodes, a tokenizer of 2.4 MB took 954 MB; others of that size take 213."""
    with pytest.raises(VocabularyError, match="more than 801,800 prefixes"):
        Trie([i.to_bytes(2, "big") + b"x" * 1_000 for i in range(900)])
    assert Trie([i.to_bytes(3, "big") + b"x" for i in range(450_000)]).n_nodes > 900_000
    monkeypatch.setattr(trie, "_MOST_NODES", 1_997)
    assert Trie([b"a" * 1_000, b"b" * 1_000]).n_nodes == 2_001
    with pytest.raises(VocabularyError, match="more than 2,001 prefixes"):
        Trie([b"a" * 1_000, b"b" * 1_001])


@KINDS
def test_trie_of_a_real_vocabulary(kind: str) -> None:
    vocabulary = real_tokenizers.vocabulary(kind)
    trie, tokens = vocabulary.trie, vocabulary.tokens
    check_layout(trie)
    assert sorted(trie.token_ids.tolist()) == [i for i, token in enumerate(tokens) if token]
    assert trie.n_nodes == 1 + len({t[:n] for t in tokens for n in range(1, len(t) + 1)})
    assert len(trie.child) == trie.n_nodes - 1
    for token_id in random.Random(0).sample(range(vocabulary.size), 5_000):
        if tokens[token_id]:
            node = trie.node_of(tokens[token_id])
            assert node is not None
            assert trie.string_of(node) == tokens[token_id]
            assert token_id in trie.ids_at(node)


# -- real tokenizers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "size", "eos"),
    [
        ("smollm2", 49_152, (0, 2)),
        ("llama3", 128_256, (128_001, 128_009)),
        ("gemma3", 262_145, (1, 106)),
    ],
)
def test_size_and_ends(kind: str, size: int, eos: tuple[int, ...]) -> None:
    vocabulary = real_tokenizers.vocabulary(kind)
    assert vocabulary.size == len(vocabulary.tokens) == size
    assert vocabulary.eos_token_ids == eos
    assert vocabulary.special_token_ids >= set(eos)
    assert not any(vocabulary.tokens[token_id] for token_id in vocabulary.special_token_ids)


@KINDS
def test_every_token_equals_the_library(kind: str) -> None:
    vocabulary, reference = real_tokenizers.vocabulary(kind), real_tokenizers.reference(kind)
    anchor = reference.token_to_id("A")
    ids = [i for i in range(vocabulary.size) if i not in vocabulary.special_token_ids]
    texts = reference.decode_batch([[anchor, i, anchor] for i in ids], skip_special_tokens=False)
    ours = [(b"A" + vocabulary.tokens[i] + b"A").decode(errors="replace") for i in ids]
    assert [row for row in zip(ids, texts, ours, strict=True) if row[1] != row[2]] == []
    assert all(vocabulary.tokens[i] for i in ids)


@KINDS
@REAL
@given(data=st.data())
def test_random_tokens_decode_as_the_library_does(kind: str, data: st.DataObject) -> None:
    vocabulary, reference = real_tokenizers.vocabulary(kind), real_tokenizers.reference(kind)
    any_id = st.integers(0, vocabulary.size - 1)
    # Single bytes make broken and mended UTF-8 likely.
    byte_id = st.sampled_from([i for i, token in enumerate(vocabulary.tokens) if len(token) == 1])
    drawn = data.draw(st.lists(st.one_of(any_id, byte_id), max_size=12))
    anchor = reference.token_to_id("A")
    ids = [anchor, *(i for i in drawn if i not in vocabulary.special_token_ids), anchor]
    raw = b"".join(vocabulary.tokens[i] for i in ids)
    decoded = reference.decode(ids, skip_special_tokens=False)
    if kind == "gemma3" and "\ufffd" in decoded:
        # The library writes one U+FFFD a byte over a whole run of byte tokens.
        assert "\ufffd" in raw.decode(errors="replace")
    else:
        assert raw.decode(errors="replace") == decoded


@KINDS
@REAL
@given(text=TEXT)
def test_encoded_text_comes_back_exactly(kind: str, text: str) -> None:
    vocabulary, reference = real_tokenizers.vocabulary(kind), real_tokenizers.reference(kind)
    if kind == "gemma3":
        text = text.replace("▁", "")  # spelt like a space: the tokenizer cannot keep it
    # SmolLM2's tokenizer drops the bytes it has no token for.
    text = "".join(c for c in text if vocabulary.missing_bytes.isdisjoint(c.encode()))
    ids = reference.encode(text, add_special_tokens=False).ids
    assume(vocabulary.special_token_ids.isdisjoint(ids))  # hypothesis tries our own literals
    assert b"".join(vocabulary.tokens[i] for i in ids) == text.encode()
    fewest = vocabulary.encode_bytes(text.encode())
    assert b"".join(vocabulary.tokens[i] for i in fewest) == text.encode()
    assert len(fewest) <= len(ids)


def test_a_vocabulary_that_spells_no_json_warms_up() -> None:
    """A model that has it could not be loaded."""
    warm_up(Vocabulary([b"a", b"b", b""], [2]), grammars=True)
    warm_up(Vocabulary([bytes([byte]) for byte in range(128)] + [b""], [128]))
    warm_up(Vocabulary([bytes([byte]) for byte in range(256) if byte != 0x80] + [b""], [255]))


def test_missing_bytes() -> None:
    smollm2 = real_tokenizers.vocabulary("smollm2")
    assert smollm2.missing_bytes == {0x04, 0x06, 0x13, 0x14, 0x16, 0x1D, 0xF1, 0xF2}
    assert real_tokenizers.vocabulary("llama3").missing_bytes == frozenset()
    assert real_tokenizers.vocabulary("gemma3").missing_bytes == frozenset()


# -- the fewest tokens ----------------------------------------------------------------------------


@given(SMALL_TOKENS, st.lists(st.sampled_from(b"ab\x00\xff"), max_size=12).map(bytes))
def test_encode_bytes_is_the_shortest(tokens: list[bytes], data: bytes) -> None:
    vocabulary = Vocabulary.from_tokens([*tokens, b""], [len(tokens)])
    reachable = {0: 0}  # bytes covered → fewest tokens, by breadth-first search
    frontier = [0]
    while frontier:
        spread = []
        for at in frontier:
            for token in tokens:
                if token and data.startswith(token, at) and at + len(token) not in reachable:
                    reachable[at + len(token)] = reachable[at] + 1
                    spread.append(at + len(token))
        frontier = spread
    if len(data) in reachable:
        ids = vocabulary.encode_bytes(data)
        assert b"".join(tokens[i] for i in ids) == data
        assert len(ids) == reachable[len(data)]
    else:
        with pytest.raises(VocabularyError, match="cannot spell"):
            vocabulary.encode_bytes(data)


@given(
    SMALL_TOKENS,
    st.lists(st.lists(st.sampled_from(b"ab\x00\xff"), max_size=12).map(bytes), max_size=6),
    st.lists(st.sampled_from(b"ab"), max_size=8).map(bytes),
)
def test_encode_bytes_does_not_depend_on_the_call_before(
    tokens: list[bytes], beginnings: list[bytes], end: bytes
) -> None:
    used = Vocabulary.from_tokens([*tokens, b""], [len(tokens)])
    for data in (beginning + end for beginning in beginnings):
        fresh = Vocabulary.from_tokens([*tokens, b""], [len(tokens)])
        found = []
        for vocabulary in (used, fresh):
            try:
                found.append(vocabulary.encode_bytes(data))
            except VocabularyError:
                found.append(None)
        assert found[0] == found[1]


def test_encode_bytes_prefers_long_first_and_low_ids() -> None:
    vocabulary = Vocabulary.from_tokens([b"", b"ab", b"c", b"a", b"bc", b"ab"], [0])
    assert vocabulary.encode_bytes(b"abc") == [1, 2]
    assert vocabulary.encode_bytes(b"") == []


def test_encode_bytes_is_linear() -> None:
    # Every prefix of the token matches everywhere, and nothing fits at the end.
    vocabulary = Vocabulary.from_tokens([b"a" * n for n in range(1, 33)] + [b""], [32])
    assert len(vocabulary.encode_bytes(b"a" * 3_200)) == 100
    with pytest.raises(VocabularyError, match=r"byte 0x62 at offset 3200 .* no token has it"):
        vocabulary.encode_bytes(b"a" * 3_200 + b"b")
    with pytest.raises(VocabularyError, match="no sequence of tokens"):
        Vocabulary.from_tokens([b"aa", b""], [1]).encode_bytes(b"aaa")


# -- the vocabulary as a value --------------------------------------------------------------------


def tiny(**changes: Any) -> Vocabulary:
    arguments = {"tokens": [b"a", b"b", b"ab", b"</s>", b"<pad>"], "eos_token_ids": [3]}
    return Vocabulary.from_tokens(**{**arguments, "special_token_ids": [4], **changes})


def test_special_ids_have_no_text() -> None:
    vocabulary = tiny(size=8)
    assert vocabulary.tokens == (b"a", b"b", b"ab", b"", b"", b"", b"", b"")
    assert vocabulary.special_token_ids == {3, 4}
    assert sorted(vocabulary.trie.token_ids.tolist()) == [0, 1, 2]
    assert repr(vocabulary).startswith(
        "Vocabulary(size=8, text_tokens=3, special=2, eos_token_ids=(3,), uid="
    )


def test_narrower_than_the_tokenizer() -> None:
    assert tiny(size=4).special_token_ids == {3}
    with pytest.raises(VocabularyError, match=r"text up to id 4 but size=4"):
        tiny(size=4, special_token_ids=[])
    with pytest.raises(VocabularyError, match=r"End-of-sequence id 3 is outside"):
        tiny(size=3)


def test_identity_is_content() -> None:
    same = [tiny(), tiny(), tiny(eos_token_ids=iter([3, 3])), pickle.loads(pickle.dumps(tiny()))]
    named = tiny(named_tokens={"a\0b": 1, "\ud800": 2})
    assert pickle.loads(pickle.dumps(named)).named_tokens == named.named_tokens == {"\ud800": 2}
    assert len({vocabulary.uid for vocabulary in same}) == len(set(same)) == 1
    others = [
        tiny(size=6),
        tiny(eos_token_ids=[4]),
        tiny(eos_token_ids=[3, 4]),
        tiny(tokens=[b"a", b"ba", b"b", b"</s>", b""]),
        tiny(tokens=[b"b", b"a", b"ab", b"</s>", b""]),
    ]
    assert len({vocabulary.uid for vocabulary in [*others, tiny()]}) == 6
    assert tiny() != object()
    assert len(tiny().uid) == 64


def test_nothing_can_be_changed() -> None:
    vocabulary = tiny()
    with pytest.raises(AttributeError, match="immutable"):
        vocabulary.size = 9
    with pytest.raises(AttributeError, match="immutable"):
        del vocabulary.size
    with pytest.raises(ValueError, match="read-only"):
        vocabulary.trie.parent[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        pickle.loads(pickle.dumps(vocabulary)).trie.parent[0] = 1


def test_no_reference_cycle_keeps_it_alive() -> None:
    gc.disable()
    try:
        vocabulary = tiny()
        watch = weakref.ref(vocabulary)
        del vocabulary
        assert watch() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eos_token_ids": []}, "No end-of-sequence id was given"),
        ({"eos_token_ids": [5]}, "End-of-sequence id 5 is outside the vocabulary of 5 ids"),
        ({"size": -(2**63)}, "End-of-sequence id 3 is outside the vocabulary of -9,223,372,036"),
        ({"eos_token_ids": [-1]}, "End-of-sequence id -1 is outside"),
        ({"special_token_ids": [7]}, "Special id 7 is outside"),
        ({"tokens": [b"a", "b"], "eos_token_ids": [0]}, "Token 1 is 'b'; tokens must be bytes"),
    ],
)
def test_bad_arguments(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(VocabularyError, match=message):
        tiny(**changes)


# -- tokenizer files of every kind ----------------------------------------------------------------

CORPUS = [
    "the quick brown fox doesn't jump over the lazy dogs",
    'a "quoted" word, and another: it\'s {"json": [1, 2.5]}',
    "café déjà vu naïve 東京 emoji 🚀 the the the end",
] * 20
SPECIAL = ["<unk>", "<s>", "</s>"]


def llama2_style() -> Tokenizer:
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer = Tokenizer(kinds.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    # A trainer makes byte tokens added and special; in real files they are ordinary.
    trainer = trainers.BpeTrainer(
        show_progress=False, vocab_size=600, special_tokens=SPECIAL + byte_tokens
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    document = json.loads(tokenizer.to_str())
    document["added_tokens"] = document["added_tokens"][: len(SPECIAL)]
    return Tokenizer.from_str(json.dumps(document))


def chatglm_style() -> Tokenizer:
    tokenizer = llama2_style()
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    return tokenizer


def unigram() -> Tokenizer:
    tokenizer = Tokenizer(kinds.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator(
        CORPUS,
        trainers.UnigramTrainer(
            show_progress=False, vocab_size=150, special_tokens=SPECIAL, unk_token="<unk>"
        ),
    )
    return tokenizer


def word_piece() -> Tokenizer:
    tokenizer = Tokenizer(kinds.WordPiece(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(
        CORPUS,
        trainers.WordPieceTrainer(show_progress=False, vocab_size=300, special_tokens=SPECIAL),
    )
    return tokenizer


def word_ends() -> Tokenizer:
    tokenizer = Tokenizer(kinds.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.BPEDecoder()
    tokenizer.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            show_progress=False, vocab_size=300, special_tokens=SPECIAL, end_of_word_suffix="</w>"
        ),
    )
    return tokenizer


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(kinds.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            show_progress=False,
            vocab_size=400,
            special_tokens=SPECIAL,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    return tokenizer


MAKERS = pytest.mark.parametrize(
    "make",
    [llama2_style, chatglm_style, unigram, word_piece, word_ends, byte_level],
    ids=lambda f: f.__name__,
)


@MAKERS
def test_small_files_equal_the_library(make: Any, tmp_path: Path) -> None:
    reference = make()
    # Not normalised: the library would show the token with the normalizer's own prefix space.
    reference.add_tokens([AddedToken("<tool call>", normalized=False)])
    reference.save(str(tmp_path / "tokenizer.json"))
    vocabulary = Vocabulary.from_tokenizer_json(tmp_path)
    assert vocabulary.size == reference.get_vocab_size()
    end = reference.token_to_id("</s>")
    assert vocabulary.eos_token_ids == (end,)
    assert {reference.token_to_id(name) for name in SPECIAL} == vocabulary.special_token_ids

    anchor = next(i for i, token in enumerate(vocabulary.tokens) if token.strip() == b"the")
    ids = [i for i in range(vocabulary.size) if i not in vocabulary.special_token_ids]
    # Only the first token of a text may lose a space, and with word ends the last one.
    last = vocabulary.tokens[anchor].decode()
    if make is word_ends:
        last = last.removesuffix(" ")
    both = reference.decode([anchor, anchor], skip_special_tokens=False)
    assert both.endswith(last)
    first = both.removesuffix(last)
    rng = random.Random(1)
    compared = 0
    for middle in [[i] for i in ids] + [rng.choices(ids, k=4) for _ in range(500)]:
        try:
            text = b"".join(vocabulary.tokens[i] for i in middle).decode()
        except UnicodeDecodeError:
            continue  # the library's replacement characters are its own affair
        decoded = reference.decode([anchor, *middle, anchor], skip_special_tokens=False)
        assert decoded == first + text + last, middle
        compared += 1
    assert compared > 200


@MAKERS
def test_a_file_without_decoder(make: Any, tmp_path: Path) -> None:
    reference = make()
    reference.save(str(tmp_path / "with.json"))
    document = json.loads((tmp_path / "with.json").read_text())
    document["decoder"] = None
    (tmp_path / "without.json").write_text(json.dumps(document))
    expected = Vocabulary.from_tokenizer_json(tmp_path / "with.json")
    if make is word_ends:
        with pytest.raises(VocabularyError, match="it has no decoder"):
            Vocabulary.from_tokenizer_json(tmp_path / "without.json")
    elif make is word_piece:  # its clean-up is the decoder's own
        document["decoder"] = {"type": "WordPiece", "prefix": "##", "cleanup": False}
        (tmp_path / "plain.json").write_text(json.dumps(document))
        expected = Vocabulary.from_tokenizer_json(tmp_path / "plain.json")
        assert Vocabulary.from_tokenizer_json(tmp_path / "without.json") == expected
    else:
        assert Vocabulary.from_tokenizer_json(tmp_path / "without.json") == expected


def write(folder: Path, document: Any, name: str = "tokenizer.json") -> Path:
    (folder / name).write_text(document if isinstance(document, str) else json.dumps(document))
    return folder / name


def document(**changes: Any) -> dict[str, Any]:
    """A byte-level file of a few tokens: "a", " b", byte 0xC3, a hole at 3, "</s>"."""
    return {
        "model": {"type": "BPE", "vocab": {"a": 0, "Ġb": 1, "Ã": 2}, "merges": []},
        "decoder": {"type": "ByteLevel"},
        "added_tokens": [{"id": 4, "content": "</s>", "special": True}],
        **changes,
    }


def test_added_tokens_are_literal_or_special(tmp_path: Path) -> None:
    added = [
        {"id": 4, "content": "</s>", "special": True},
        {"id": 5, "content": "é Ġ", "special": False},
        {"id": 6, "content": "Ã", "special": False},  # would be byte 0xC3 in GPT-2's alphabet
        {"id": 0, "content": "a", "special": True},  # also in the model
    ]
    vocabulary = Vocabulary.from_tokenizer_json(write(tmp_path, document(added_tokens=added)))
    assert vocabulary.tokens == (b"", b" b", b"\xc3", b"", b"", "é Ġ".encode(), "Ã".encode())
    assert vocabulary.special_token_ids == {0, 4}


def test_tokens_outside_the_byte_alphabet_are_literal(tmp_path: Path) -> None:
    vocab = {"Ġ漢": 0, "a b": 1, "Ġ\U0001f680": 2, "Ġa": 3}
    path = write(tmp_path, document(model={"type": "BPE", "vocab": vocab}))
    tokens = Vocabulary.from_tokenizer_json(path).tokens
    assert tokens == ("Ġ漢".encode(), b"a b", "Ġ\U0001f680".encode(), b" a", b"")
    reference = Tokenizer(kinds.BPE(vocab, []))
    reference.decoder = decoders.ByteLevel()
    assert [reference.decode([i]) for i in range(4)] == [t.decode() for t in tokens[:4]]


def test_several_ids_may_share_one_text(tmp_path: Path) -> None:
    added = [*document()["added_tokens"], {"id": 9, "content": " b", "special": False}]
    vocabulary = Vocabulary.from_tokenizer_json(write(tmp_path, document(added_tokens=added)))
    node = vocabulary.trie.node_of(b" b")
    assert node is not None
    assert vocabulary.trie.ids_at(node) == [1, 9]


def test_the_unknown_token_is_never_text(tmp_path: Path) -> None:
    model = {"type": "BPE", "vocab": {"a": 0, "?": 1}, "unk_token": "?"}
    assert Vocabulary.from_tokenizer_json(write(tmp_path, document(model=model))).tokens[1] == b""
    model = {"type": "Unigram", "vocab": [["?", 0.0], ["▁a", -1.0]], "unk_id": 0}
    changes = {"model": model, "decoder": {"type": "Metaspace"}}
    vocabulary = Vocabulary.from_tokenizer_json(write(tmp_path, document(**changes)))
    assert vocabulary.tokens == (b"", b" a", b"", b"", b"")


def test_byte_tokens_need_a_byte_fallback_decoder(tmp_path: Path) -> None:
    model = {"type": "BPE", "vocab": {"<0xe2>": 0, "<0x0>": 1, "<0xZZ>": 2, "▁<0x0A>": 3}}
    replace = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    steps = [replace, {"type": "ByteFallback"}, {"type": "Fuse"}]
    changes = {"model": model, "decoder": {"type": "Sequence", "decoders": steps}}
    tokens = Vocabulary.from_tokenizer_json(write(tmp_path, document(**changes))).tokens
    assert tokens[:4] == (b"\xe2", b"<0x0>", b"<0xZZ>", b" <0x0A>")
    changes["decoder"] = replace
    tokens = Vocabulary.from_tokenizer_json(write(tmp_path, document(**changes))).tokens
    assert tokens[:4] == (b"<0xe2>", b"<0x0>", b"<0xZZ>", b" <0x0A>")


# -- ends of a sequence, width --------------------------------------------------------------------


def test_precedence_of_end_ids(tmp_path: Path) -> None:
    added = [
        {"id": 4 + n, "content": name, "special": name != "<eos>"}
        for n, name in enumerate(["</s>", "<|im_end|>", "<eos>", "<|x|>", "<|y|>"])
    ]
    write(tmp_path, document(added_tokens=added))

    def ends() -> tuple[int, ...]:
        return Vocabulary.from_tokenizer_json(tmp_path).eos_token_ids

    assert ends() == (4, 5)  # known names, if special
    write(tmp_path, {"eos_token": {"content": "<|x|>"}}, "special_tokens_map.json")
    assert ends() == (4, 5, 7)
    write(tmp_path, {"eos_token": "<|y|>"}, "tokenizer_config.json")
    assert ends() == (4, 5, 7, 8)
    write(tmp_path, {"text_config": {"eos_token_id": 6}}, "config.json")
    assert ends() == (6,)
    write(tmp_path, {"text_config": {"eos_token_id": 6}, "eos_token_id": 5}, "config.json")
    assert ends() == (5,)
    write(tmp_path, {"eos_token_id": [8, 7]}, "generation_config.json")
    assert ends() == (7, 8)
    write(tmp_path, {"model": {"eos_token_id": None}}, "genai_config.json")
    assert ends() == (7, 8)
    write(tmp_path, {"model": {"eos_token_id": [4]}}, "genai_config.json")
    assert ends() == (4,)
    given = Vocabulary.from_tokenizer_json(tmp_path, eos_token_ids=[0])
    assert given.eos_token_ids == (0,)
    assert given.tokens[0] == b""


def test_width_from_the_runtime_configuration(tmp_path: Path) -> None:
    write(tmp_path, document())
    assert Vocabulary.from_tokenizer_json(tmp_path).size == 5
    assert Vocabulary.from_tokenizer_json(tmp_path, size=40).size == 40
    write(tmp_path, {"model": {"vocab_size": 64}}, "genai_config.json")
    assert Vocabulary.from_tokenizer_json(tmp_path).size == 64
    assert Vocabulary.from_tokenizer_json(tmp_path, size=40).size == 40


# -- files that cannot be read --------------------------------------------------------------------


FOURFOLD = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 4}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"it is not JSON .* Download the file again"),
        ("\ufeff[]", "it is not JSON|it is not a JSON object"),
        ([], "it is not a JSON object"),
        ({}, 'it has no "model" with a "vocab"'),
        ({"model": {"type": "BPE"}}, 'it has no "model" with a "vocab"'),
        (document(model={"type": "Markov", "vocab": {}}), "model type 'Markov' is unknown"),
        (document(model={"type": "BPE", "vocab": []}), "model type 'BPE' is unknown"),
        (document(model={"type": "Unigram", "vocab": [1]}), "is not a list of"),
        (document(model={"type": "BPE", "vocab": {"a": "1"}}), "token 'a' has the id '1'"),
        (document(model={"type": "BPE", "vocab": {"a": 1 << 40}}), "token 'a' has the id"),
        (document(model={"type": "BPE", "vocab": {"\ud800": 0}}), "half a surrogate pair"),
        (document(decoder={"type": "\ud800"}), r"\\ud800.* that does not map each token"),
        (document(added_tokens=[{"id": 4}]), "lacks an id or content"),
        (document(added_tokens=[{"id": 1 << 21, "content": "x"}]), "lacks an id or content"),
        (document(added_tokens=[{"id": "x" * 5_000}]), "added token .*x{400}…x{400}x*'} lacks"),
        (document(added_tokens=[]), r"the end-of-sequence id is unknown.*Pass eos_token_ids"),
        (document(decoder={"type": "CTC"}), "does not map each token to its own bytes"),
        (
            document(decoder={"type": "Replace", "pattern": {"Regex": " +"}, "content": " "}),
            "does not map each token to its own bytes",
        ),
        (
            document(
                decoder={"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Metaspace"}]}
            ),
            "does not map each token to its own bytes",
        ),
        (document(added_tokens=7), "cannot be parsed"),
        (document(model={"type": "BPE", "vocab": {}, "unk_token": ["x"]}), "cannot be parsed"),
        (document(model={"type": "BPE", "vocab": {"a": 0}, "unk_id": 9}), "cannot be parsed"),
        (document(decoder={"type": "Sequence", "decoders": 5}), "cannot be parsed"),
        (document(decoder={"type": "Metaspace", "replacement": 5}), "cannot be parsed"),
        (
            document(
                model={"type": "BPE", "vocab": {"a" * 1000: 0}},
                decoder={"type": "Sequence", "decoders": [FOURFOLD] * 8},
            ),
            "more than 16,777,216 characters",
        ),
        # 16 MB of tokens whose characters became 64 each took 4 GB before they were counted.
        (document(decoder={**FOURFOLD, "content": "a" * 5}), "its own bytes"),
        (
            document(decoder={"type": "Sequence", "decoders": [{"type": "Metaspace"}] * 9}),
            "its own bytes",
        ),
    ],
)
def test_malformed_files(content: Any, message: str, tmp_path: Path) -> None:
    path = write(tmp_path, content)
    with pytest.raises(VocabularyError, match=message) as caught:
        Vocabulary.from_tokenizer_json(path)
    assert str(path) in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("bound", "message"),
    [("_MOST_TOKENS", "it has 4 tokens; the limit is 2"), ("MOST_OF_TOKENIZER", "the limit is 64")],
)
def test_vocabularies_that_would_be_read_for_minutes(
    bound: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, document(model={"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2}}))
    monkeypatch.setattr(tokenizer_bytes, bound, 2)
    with pytest.raises(VocabularyError, match=message):
        Vocabulary.from_tokenizer_json(path)


def test_names_count_as_tokens_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of 480 MB, which the program that asks keeps, in a file of 122 MB."""
    names = [{"id": i, "content": f"<{i}>" + "a" * 96, "special": True} for i in range(10, 20)]
    path = write(tmp_path, document(added_tokens=names))
    monkeypatch.setattr(tokenizer_bytes, "_MOST_CHARACTERS", 1_100)
    assert len(Vocabulary.from_tokenizer_json(path, [10]).named_tokens) == 10
    monkeypatch.setattr(tokenizer_bytes, "_MOST_CHARACTERS", 990)
    with pytest.raises(VocabularyError, match="more than 990 characters"):
        Vocabulary.from_tokenizer_json(path, [10])


def test_lists_are_values_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """30 MB of them, in each other, took 1.5 GB."""
    monkeypatch.setattr(tokenizer_bytes, "MOST_OF_TOKENIZER", 50)
    assert Vocabulary.from_tokenizer_json(write(tmp_path, document()), [0]).size
    with pytest.raises(VocabularyError, match="more than 50 values"):
        Vocabulary.from_tokenizer_json(write(tmp_path, document(x=[[[]]] * 20)), [0])
    monkeypatch.setattr(tokenizer_bytes, "MOST_OF_TOKENIZER", 300)
    with pytest.raises(VocabularyError, match="or 50 objects"):  # two million took 1.3 GB
        Vocabulary.from_tokenizer_json(write(tmp_path, document(x=[{}] * 50)), [0])


def test_files_beside_a_tokenizer_are_smaller(tmp_path: Path) -> None:
    """They may have a third of its values: one of 115 MB took 1.5 GB."""
    path = write(tmp_path, document())
    (tmp_path / "config.json").write_text(json.dumps([0] * 1_000_001))
    with pytest.raises(VocabularyError, match=r"config\.json.*more than 1,000,000 values"):
        Vocabulary.from_tokenizer_json(path)


def test_pipes_and_devices_are_not_read(tmp_path: Path) -> None:
    """Nobody writes into the one, and the other has no end."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    for name in ("pipe", "device"):
        with pytest.raises(VocabularyError, match="cannot be read"):
            Vocabulary.from_tokenizer_json(tmp_path / name)


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match=r"the file does not exist.*Pass a tokenizer\.json"):
        Vocabulary.from_tokenizer_json(tmp_path)
    with pytest.raises(VocabularyError, match="the file does not exist"):
        Vocabulary.from_tokenizer_json(tmp_path / "other.json")


@pytest.mark.parametrize("value", ["2", -1, True, [1, None], 1.5])
def test_malformed_end_ids(value: Any, tmp_path: Path) -> None:
    write(tmp_path, document())
    write(tmp_path, {"eos_token_id": value}, "generation_config.json")
    with pytest.raises(VocabularyError, match=r"generation_config\.json: eos_token_id is"):
        Vocabulary.from_tokenizer_json(tmp_path)


def test_an_added_token_of_the_library(tmp_path: Path) -> None:
    # The library's own file format, not only ours above.
    reference = byte_level()
    reference.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    reference.add_special_tokens([AddedToken("<|im_end|>")])
    reference.save(str(tmp_path / "tokenizer.json"))
    vocabulary = Vocabulary.from_tokenizer_json(tmp_path)
    assert vocabulary.tokens[reference.token_to_id("<think>")] == b"<think>"
    assert reference.token_to_id("<|im_end|>") in vocabulary.eos_token_ids


@pytest.mark.parametrize("given", [3, ["</s>"], None])
def test_ids_that_are_none(given: Any) -> None:
    with pytest.raises(VocabularyError, match="must be ids"):
        Vocabulary.from_tokens([b"a", b"b", b"ab", b"</s>"], eos_token_ids=given)


# -- a tokenizer that is loaded --------------------------------------------------------------------


def loaded() -> Tokenizer:
    tokenizer = Tokenizer(kinds.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")]))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>", "<|other|>"])
    return tokenizer


def test_a_loaded_tokenizer_is_read_as_its_file_is(tmp_path: Path) -> None:
    tokenizer = loaded()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    expected = Vocabulary.from_tokenizer_json(tmp_path)
    assert Vocabulary.from_tokenizer(tokenizer) == expected
    assert expected.eos_token_ids == (3,)
    other = Vocabulary.from_tokenizer(tokenizer, eos_token_ids=[4], size=64)
    assert (other.eos_token_ids, other.size) == ((4,), 64)

    class Fast:
        backend_tokenizer, eos_token_id = tokenizer, 4

    assert Vocabulary.from_tokenizer(Fast()).eos_token_ids == (3, 4)


def test_a_loaded_tokenizer_does_not_look_into_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 0}')
    assert Vocabulary.from_tokenizer(loaded()).eos_token_ids == (3,)


def test_each_way_in_says_which_is_the_other() -> None:
    with pytest.raises(VocabularyError, match=r"got Tokenizer\. Use Vocabulary\.from_tokenizer\("):
        Vocabulary.from_tokenizer_json(loaded())  # type: ignore[arg-type]
    with pytest.raises(VocabularyError, match=r"takes the path .* got int"):
        Vocabulary.from_tokenizer_json(3)  # type: ignore[arg-type]
    with pytest.raises(VocabularyError, match=r"got str\. .*from_tokenizer_json\(path\)"):
        Vocabulary.from_tokenizer("tokenizer.json")
