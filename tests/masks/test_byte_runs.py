"""Runs of bytes through a trie against their definition, node by node."""

from __future__ import annotations

import random

import numpy as np
import pytest
from engine.walks import TINY

from structgen import Vocabulary
from structgen.masks.cfg import lexer_walks

WORDS = lexer_walks.COMMON[0]
TEXT = lexer_walks.members(
    bytes(b for b in range(0x80) if b not in b'"\\') + bytes(range(0xC2, 0xF5))
)
LATIN = lexer_walks.members(b"abc" + bytes(range(0xC3, 0xC6)))


def vocabulary() -> Vocabulary:
    """Pieces of text, well-formed and not, cut anywhere."""
    rng = random.Random(7)
    pieces = [
        "a",
        "b1",
        "_",
        " ",
        "\n",
        '"',
        "\\",
        "é",
        "ñ",
        "日",
        "本語",
        "😀",
        "\ud7ff",
        "\U0010ffff",
    ]
    tokens = [bytes([byte]) for byte in range(256)]
    for _ in range(600):
        text = "".join(rng.choice(pieces) for _ in range(rng.randint(1, 6))).encode()
        first = rng.randint(0, len(text) - 1)
        tokens.append(text[first : rng.randint(first + 1, len(text))])
    tokens += [
        b"\xc0\x80a",
        b"\xed\xa0\x80a",
        b"\xf4\x90\x80\x80a",
        b"a\xe6\x97",
        b"\xe6\xe6\x97\xa5",
    ]
    return Vocabulary.from_tokens(tokens, eos_token_ids=[0])


def run_of(text: bytes, inside: bytes) -> bool | None:
    """Whether a text stays in a class; None where it ends inside a character."""
    at = 0
    while at < len(text):
        lead = text[at]
        if not inside[lead]:
            return False
        length = 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
        piece = text[at : at + length]
        if len(piece) < length:
            ends = (b"", b"\x80", b"\x9f", b"\xa0", b"\xbf", b"\x80\x80", b"\xbf\xbf")
            endings = {e + b"\x80" * (length - len(piece) - len(e)) for e in ends}
            return None if any(_is_text(piece + e) for e in endings) else False
        if not _is_text(piece):
            return False
        at += length
    return True


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize("inside", [WORDS, TEXT, LATIN], ids=["words", "text", "latin"])
@pytest.mark.parametrize("which", ["pieces", "tiny"])
def test_runs_are_what_they_say(which: str, inside: bytes) -> None:
    words = vocabulary() if which == "pieces" else TINY
    trie, order = words.trie, lexer_walks.Order(words)
    runs = order.runs(inside)
    rng = random.Random(1)
    # A run begins between two characters: where the bytes before could be anyone's.
    between = [n for n in range(trie.n_nodes) if not order.is_inside[n]]
    for start in [0, *rng.sample(between, min(60, len(between)))]:
        prefix = trie.string_of(start)
        below = [n for n in range(trie.n_nodes) if trie.string_of(n).startswith(prefix)]
        below.remove(start)
        kept = {n: run_of(trie.string_of(n)[len(prefix) :], inside) for n in below}
        nodes = np.array([start], np.int32)
        expected = {t for n, kind in kept.items() if kind is not False for t in trie.ids_at(n)}
        assert set(order.tokens_below(runs, nodes).tolist()) == expected
        if not start:
            bits = np.unpackbits(runs.row.view(np.uint8), bitorder="little")
            assert set(np.flatnonzero(bits).tolist()) == expected
        whole = {n for n, kind in kept.items() if kind}
        assert set(order.nodes_below(runs, nodes).tolist()) == whole
        edges = {
            n
            for n in below
            if (int(trie.parent[n]) in whole or int(trie.parent[n]) == start)
            and not inside[trie.byte[n]]
            and (trie.byte[n] < 0x80 or 0xC2 <= trie.byte[n] <= 0xF4)
        }
        assert set(order.edges_below(runs, nodes).tolist()) == edges


def test_several_nodes_are_the_union_of_each() -> None:
    words = vocabulary()
    order = lexer_walks.Order(words)
    rng = random.Random(2)
    between = [n for n in range(1, words.trie.n_nodes) if not order.is_inside[n]]
    for inside in (WORDS, TEXT):
        runs = order.runs(inside)
        for size in (2, 5, 30):
            nodes = np.array(sorted(rng.sample(between, size)), np.int32)
            each = [np.array([n], np.int32) for n in nodes]
            for find in (order.edges_below, order.nodes_below):
                expected = set().union(*(set(find(runs, one).tolist()) for one in each))
                assert set(find(runs, nodes).tolist()) == expected
            found = set(order.tokens_below(runs, nodes).tolist())
            expected = set().union(*(set(order.tokens_below(runs, one).tolist()) for one in each))
            own = {t for n in nodes.tolist() for t in words.trie.ids_at(n)}
            assert expected <= found <= expected | own
