"""Forced text: the bytes that are the only way on, and where tokens for them leave no choice.

A token may reach beyond what is forced: there the model keeps its choice. Knows machines, tries and
spellings; no budgets and no outputs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from structgen.automaton.cfg import MARK, CfgMachine
from structgen.automaton.core import Machine

if TYPE_CHECKING:
    from structgen.vocabulary import Trie, Vocabulary


_FORCED_LIMIT = 4096
"""Most bytes that are forced at once."""

_HAS_WORDS = re.compile(rb"[^\x00-\x7f]|\w")
"""Bytes that may be part of a word, of which a token may be written in many ways."""


def forced_from(machine: Machine | CfgMachine, state: int) -> tuple[bytes, int]:
    """The bytes that have to follow ``state``, and the state after them."""
    forced = bytearray()
    while len(forced) < _FORCED_LIMIT:
        byte = machine.forced_byte(state)
        if byte < 0 or byte == MARK:
            break  # named tokens are no text to be spelt
        to = machine.step(state, byte)
        if machine.is_pending(to):
            break
        forced.append(byte)
        state = to
    return bytes(forced), state


def first_open(
    vocabulary: Vocabulary, tokens: list[int], forced: bytes, following: Collection[int]
) -> int:
    """Index of the first token from whose start some token could reach beyond ``forced``."""
    start = len(forced)
    first = len(tokens)
    for i in range(len(tokens) - 1, -1, -1):
        start -= len(vocabulary.tokens[tokens[i]])
        if len(forced) - start > vocabulary.trie.max_depth:
            break
        if _reaches(vocabulary.trie, forced[start:], following):
            first = i
    return first


def begun(trie: Trie, rest: bytes, following: Collection[int]) -> tuple[set[int], set[int]]:
    """The tokens that only begin ``rest``: those after which no token reaches an open place,
    and the others."""
    needless: set[int] = set()
    reaching: set[int] = set()
    node = 0
    for length in range(1, len(rest)):
        step = trie.child.get(node << 8 | rest[length - 1])
        if step is None:
            break
        node = step
        ids = trie.ids_at(node)
        if ids:
            reaches = _reaches(trie, rest[length:], following)
            (reaching if reaches else needless).update(ids)
    return needless, reaching


def _reaches(trie: Trie, text: bytes, following: Collection[int]) -> bool:
    """Whether some token begins with ``text`` and goes on with one of ``following``."""
    node = trie.node_of(text)
    return (
        node is not None
        and bool(trie.n_children[node])
        and any((node << 8 | byte) in trie.child for byte in following)
    )


def needless_tokens(
    vocabulary: Vocabulary,
    spell: Callable[[bytes], Sequence[int]],
    tokens: list[int],
    n_closed: int,
    forced: bytes,
    following: Collection[int],
) -> frozenset[int]:
    """The tokens that would spell needlessly what is forced after the first ``n_closed``; see
    `Cursor.forced`.

    Args:
        spell: how bytes are written in tokens.
        tokens: those that spell ``forced``.
        following: the bytes that may follow ``forced``.
    """
    done = sum(len(vocabulary.tokens[token]) for token in tokens[:n_closed])
    needless, reaching = begun(vocabulary.trie, forced[done:], following)
    if reaching - {tokens[n_closed]} and not _HAS_WORDS.search(forced[done:]):
        # Which token punctuation begins with is settled by the byte after it, nearly always.
        for byte in sorted(following):
            spelt = spell(forced + bytes([byte]))
            if byte >= 0x80 or list(spelt[:n_closed]) != tokens[:n_closed]:
                break
            reaching.discard(spelt[n_closed])
        else:
            needless |= reaching
    return frozenset(needless - {tokens[n_closed]})
