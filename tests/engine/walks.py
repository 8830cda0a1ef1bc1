"""What the engine tests share: a hand-checkable vocabulary, slow paths, walks, acceptance.

The slow paths know neither the trie nor the mask engine: they step the machine byte by byte.
"""

from __future__ import annotations

import os
import random
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import inside
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, settings

from structgen import BudgetTooSmall, Vocabulary
from structgen.constraint.constraint import Constraint
from structgen.constraint.cursor import Cursor

Bits = npt.NDArray[np.uint32]

SCALE = float(os.environ.get("STRUCTGEN_TEST_SCALE", "1"))
"""Multiplies the examples of every property test; above 1 they are also drawn anew each run."""


def examples(count: int) -> settings:
    """Settings of a property test with ``count`` examples."""
    return settings(
        max_examples=max(1, int(count * SCALE)),
        deadline=None,
        derandomize=SCALE <= 1,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def seeds(count: int) -> range:
    """Seeds of a test that draws its own randomness."""
    return range(max(1, int(count * SCALE)))


# The tiny vocabulary: every byte, tokens that cross the places where JSON changes state, tokens
# that cut characters, several ids for one text, special ids and holes.

EOS, EOS_TOO, SPECIAL, HOLE = 0, 7, 3, 5

_PIECES = r"""
{" ":" "," "} "}, "] {} [] [[ ]] }} ]} {"a": "a" "b" "ab" name "name": a":1 ","b": true alse null
nu ll fal se rue 0. .5 00 10 12 123 -1 -0 e+ E- e5 1e .0 0.0 5} 5] 5, 1,2 \" \\ \n \u \u00 \u0061
0061 u00 \ud83d \ude00 \ud83d\ude00 d83 de00 \/ \t\ a" b\ ", "x x"} ab abc abab aaaa the and 2024
-01- 20 31 [1 [{ [" "] ]," },{
"""
_BYTES = [
    *(bytes([byte]) for byte in range(256)),
    *(piece.encode() for piece in _PIECES.split()),
    *(b" ", b"  ", b"    ", b"\n", b"\n  ", b": ", b", ", b'": ', b'", "', b" the", b"{ ", b" }"),
    *(c.encode() for c in ("é", "éé", " é", "ß", "K", "漢", "漢字", "😀", '😀"')),
    *(
        b"\xe2\x82",
        b"\xac",
        b'\xac"',
        b"\xf0\x9f",
        b"\x98\x80",
        b"\x9f\x98",
        b"\xc3",
        b"\xa9,",
        b"a\xc3",
    ),
    *(b"\xa9\xc3", b"\x80\x80", b'"\xf0', b"\xff\xfe"),
]


def _tiny_tokens() -> list[bytes]:
    tokens = list(_BYTES)
    for index in (EOS, SPECIAL, HOLE, EOS_TOO):
        tokens.insert(index, b"")
    return [*tokens, b"", b"true", b"a", b""]


TINY = Vocabulary.from_tokens(
    _tiny_tokens(),
    [EOS, EOS_TOO],
    size=len(_tiny_tokens()) + 45,  # wider than the tokens, and no multiple of 32
    special_token_ids=[SPECIAL],
)
assert TINY.size % 32


def n_words(vocabulary: Vocabulary) -> int:
    return (vocabulary.size + 31) // 32


def read_mask(cursor: Cursor, vocabulary: Vocabulary = TINY) -> Bits:
    """The cursor's mask, written over an array of ones."""
    out = np.full(n_words(vocabulary), 0xFFFFFFFF, np.uint32)
    cursor.fill_mask(out)
    return out


def bits_of(mask: Bits) -> npt.NDArray[np.uint8]:
    """A mask's bits: that of id 32 w + b is bit b, from the lowest, of word w."""
    return np.unpackbits(mask.view(np.uint8), bitorder="little")


def ids_of(mask: Bits) -> list[int]:
    """The ids whose bits are set."""
    found: list[int] = np.flatnonzero(bits_of(mask)).tolist()
    return found


def allowed(cursor: Cursor, vocabulary: Vocabulary = TINY) -> list[int]:
    return ids_of(read_mask(cursor, vocabulary))


# -- slow paths -------------------------------------------------------------------------------


@cache
def _columns(vocabulary: Vocabulary) -> tuple[list[int], list[npt.NDArray[np.uint8]]]:
    """The ids of tokens, the longest first; then their first bytes, their second, and so on."""
    texts = vocabulary.tokens
    ids = sorted((i for i, text in enumerate(texts) if text), key=lambda i: -len(texts[i]))
    rows = [texts[i] for i in ids]
    columns = []
    for place in range(len(rows[0])):
        rows = rows[: bisect_left(rows, -place, key=lambda text: -len(text))]
        columns.append(np.array([text[place] for text in rows], np.uint8))
    return ids, columns


def brute_force_ids(
    constraint: Constraint | Cursor, state: int, vocabulary: Vocabulary
) -> set[int]:
    """Every token tried byte by byte on the machine; nothing of masks or tries."""
    return _tried(inside.machine(constraint), state, vocabulary, None)


def brute_force_after_text(cursor: Cursor, vocabulary: Vocabulary) -> set[int]:
    """`brute_force_ids` where states wait for the text: the machine is told all that stands before
    each byte of each token."""
    tape = inside.text_history(cursor)()
    return _tried(inside.engine(cursor).machine, inside.state(cursor), vocabulary, tape)


def _tried(machine: Any, start: int, vocabulary: Vocabulary, tape: Any) -> set[int]:
    """All tokens at once, a byte of each at a time: equal steps of many tokens are made once."""
    ids, columns = _columns(vocabulary)
    states, places = [start], {start: 0}  # those met, and where they stand among them
    at = np.zeros(len(ids), np.intp)  # each token's state; below zero: it has died

    def place_of(state: int) -> int:
        if not state:
            return -1
        if state not in places:
            places[state] = len(states)
            states.append(state)
        return places[state]

    for n_read, column in enumerate(columns, 1):
        alive = np.flatnonzero(at[: len(column)] >= 0)
        steps = at[alive] * 256 + column[alive]
        is_asked = np.zeros(len(states) * 256, bool)
        is_asked[steps] = True
        to = np.full(len(is_asked), -1)
        waited: dict[int, int] = {}
        for step in np.flatnonzero(is_asked).tolist():
            found = machine.step(states[step >> 8], step & 255)
            if tape is None or not machine.is_pending(found):
                to[step] = place_of(found)
                continue
            for row in alive[steps == step].tolist():  # each by what stands before
                text, last = vocabulary.tokens[ids[row]][:n_read], found
                while machine.is_pending(last):
                    last = machine.resolve(last, tape.after(text))
                waited[row] = place_of(last)
        at[alive] = to[steps]
        at[[*waited]] = [*waited.values()]
    found = {ids[row] for row in np.flatnonzero(at >= 0).tolist()}
    if machine.is_accepting(start):
        found.update(vocabulary.eos_token_ids)
    return found


def naive_ids(constraint: Constraint, state: int, vocabulary: Vocabulary) -> set[int]:
    """`brute_force_ids` token by token, to check the checker."""
    machine = inside.machine(constraint)
    found = set()
    for token_id, text in enumerate(vocabulary.tokens):
        to = state
        for byte in text:
            to = machine.step(to, byte)
            if not to:
                break
        if text and to:
            found.add(token_id)
    if machine.is_accepting(state):
        found.update(vocabulary.eos_token_ids)
    return found


# -- acceptance -------------------------------------------------------------------------------


@cache
def _by_bytes(vocabulary: Vocabulary) -> tuple[dict[bytes, list[int]], int]:
    table: dict[bytes, list[int]] = {}
    for token_id, text in enumerate(vocabulary.tokens):
        if text:
            table.setdefault(text, []).append(token_id)
    return table, max(map(len, table))


def random_tokens(
    text: bytes, rng: random.Random, vocabulary: Vocabulary = TINY, long: float = 0.5
) -> list[int]:
    """Some token ids that spell ``text``; ``long`` is the chance to take the longest next."""
    table, longest = _by_bytes(vocabulary)
    ids: list[int] = []
    at = 0
    while at < len(text):
        sizes = [n for n in range(1, longest + 1) if text[at : at + n] in table]
        sizes = [n for n in sizes if at + n <= len(text)]
        n = sizes[-1] if rng.random() < long else rng.choice(sizes)
        ids.append(rng.choice(table[text[at : at + n]]))
        at += n
    return ids


def accepts(constraint: Constraint, text: str | bytes, rng: random.Random) -> bool:
    """Whether ``text`` goes through the masks, cut into tokens at random.

    Checks at every step that ``accept`` and the mask say the same.
    """
    data = text.encode() if isinstance(text, str) else text
    cursor = constraint.start()
    vocabulary = constraint.vocabulary
    for token_id in random_tokens(data, rng, vocabulary):
        bit = bool(read_mask(cursor, vocabulary)[token_id // 32] >> (token_id % 32) & 1)
        moved = try_accept(cursor, token_id)
        assert moved == bit, f"mask says {bit}, accept says {moved}: token {token_id} of {data!r}"
        if not moved:
            return False
    return cursor.is_accepting


def try_accept(cursor: Cursor, token_id: int) -> bool:
    from structgen.errors import TokenNotAllowed

    try:
        cursor.accept(token_id)
    except TokenNotAllowed:
        return False
    return True


def would_accept(cursor: Cursor, token_id: int) -> bool:
    """Whether ``cursor`` accepts the token; it does not move."""
    if not try_accept(cursor, token_id):
        return False
    cursor.rollback(1)
    return True


# -- work -------------------------------------------------------------------------------------


def calls(cursor: Cursor, ids: Iterable[int], vocabulary: Vocabulary, most: int) -> list[int]:
    """Python calls that each of ``ids`` takes, its mask included.

    Ends with an error after ``most`` calls in all, so that what never ends fails.
    """
    made, counts = 0, []
    out = np.zeros(n_words(vocabulary), np.uint32)

    def note(frame: Any, event: str, arg: Any) -> None:
        nonlocal made
        made += event == "call"
        if made > most:
            sys.setprofile(None)
            raise AssertionError(f"{most} calls, after {len(counts)} tokens")

    for token in ids:
        before = made
        sys.setprofile(note)
        try:
            cursor.fill_mask(out)
            cursor.accept(token)
        finally:
            sys.setprofile(None)
        counts.append(made - before)
    return counts


# -- walks ------------------------------------------------------------------------------------


class Walk:
    """What a random walk wrote: ``ids`` (with EOS), ``text``; ``ended`` unless it was cut off."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.ids: list[int] = []
        self.ended = False
        self._vocabulary = vocabulary

    @property
    def data(self) -> bytes:
        return b"".join(self._vocabulary.tokens[i] for i in self.ids)

    @property
    def text(self) -> str:
        return self.data.decode()


def walk(
    constraint: Constraint,
    rng: random.Random,
    max_tokens: int | None = None,
    steps: int = 400,
    end: float = 0.3,
    special: float = 0.0,
) -> Walk:
    """Choose uniformly among allowed tokens until the end.

    Asserts on the way that no mask is empty, that a budget is kept, and that
    ``min_tokens_to_finish`` never exceeds what is left.

    Args:
        constraint: what to walk.
        rng: the randomness.
        max_tokens: the budget.
        steps: tokens after which a walk without budget is cut off.
        end: chance to end as soon as that is allowed.
        special: chance to prefer a token with a quote, bracket, backslash or digit, which a
            uniform choice hardly ever finds inside a string.
    """
    vocabulary = constraint.vocabulary
    cursor = constraint.start(max_tokens)
    result = Walk(vocabulary)
    for _ in range(steps if max_tokens is None else max_tokens):
        left = None if max_tokens is None else max_tokens - len(result.ids)
        bits = bits_of(read_mask(cursor, vocabulary))
        ids = np.flatnonzero(bits)  # no list: of a real vocabulary it would be long
        assert ids.size, f"empty mask after {result.data!r}"
        if left is not None:
            assert cursor.min_tokens_to_finish() <= left
        if cursor.is_accepting and rng.random() < end:
            choice = rng.choice(vocabulary.eos_token_ids)
            assert bits[choice]
        else:
            if special and rng.random() < special:
                ids = _special(ids, vocabulary)
            choice = int(rng.choice(ids))
        cursor.accept(choice)
        result.ids.append(choice)
        if cursor.is_finished:
            result.ended = True
            return result
    assert max_tokens is None, f"budget of {max_tokens} overrun: {result.data!r}"
    return result


_SPECIAL_BYTES = set(b'"\\[]{},:0')


@cache
def _is_special(vocabulary: Vocabulary) -> npt.NDArray[np.bool_]:
    return np.array([bool(set(text) & _SPECIAL_BYTES) for text in vocabulary.tokens])


def _special(ids: npt.NDArray[np.intp], vocabulary: Vocabulary) -> npt.NDArray[np.intp]:
    """Those with special bytes; all, if none has any."""
    some = ids[_is_special(vocabulary)[ids]]
    return some if some.size else ids


def minimum(constraint: Constraint) -> int:
    return constraint.start().min_tokens_to_finish()


def states_on_the_way(
    constraint: Constraint, rng: random.Random, count: int, special: float = 0.3
) -> Iterator[Cursor]:
    """Cursors along random walks; a walk that ends is followed by a new one."""
    cursor = constraint.start()
    vocabulary = constraint.vocabulary
    for _ in range(count):
        yield cursor
        bits = bits_of(read_mask(cursor, vocabulary))
        bits[list(vocabulary.eos_token_ids)] = 0
        ids = np.flatnonzero(bits)
        if not ids.size or (cursor.is_accepting and rng.random() < 0.3):
            cursor = constraint.start()
            continue
        if rng.random() < special:
            ids = _special(ids, vocabulary)
        cursor.accept(int(rng.choice(ids)))


def replay(constraint: Constraint, ids: Sequence[int], max_tokens: int | None = None) -> Cursor:
    cursor = constraint.start(max_tokens)
    for token_id in ids:
        cursor.accept(token_id)
    return cursor


def snapshot(cursor: Cursor, vocabulary: Vocabulary = TINY) -> dict[str, Any]:
    """Everything a cursor shows."""
    return {
        "mask": read_mask(cursor, vocabulary).tolist(),
        "accepting": cursor.is_accepting,
        "finished": cursor.is_finished,
        "forced": cursor.forced_tokens(),
        "minimum": cursor.min_tokens_to_finish(),
    }


def walks_within_the_budget(
    constraint: Constraint, rng: random.Random, count: int
) -> Iterator[Any]:
    """Walks that have ended, with as many tokens as are needed at least or a few more.

    Fewer than that are refused, which is looked at first.
    """
    least = minimum(constraint)
    with pytest.raises(BudgetTooSmall) as error:
        constraint.start(least - 1)
    assert error.value.minimum == least
    for _ in seeds(count):
        result = walk(constraint, rng, max_tokens=least + rng.choice((0, 1, 2, 5, 30)))
        assert result.ended
        yield result
