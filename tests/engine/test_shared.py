"""What schemas share is kept within a budget of bytes, however it grows."""

from __future__ import annotations

import gc
import weakref

import pytest

from structgen.automaton.core.shared import LARGE, SharedAutomata
from structgen.automaton.json import scalars
from structgen.grammar import regex


class Grown:
    def __init__(self, name, weight=100):
        self.name = name
        self.weight = weight


def test_the_same_arguments_give_the_same_automaton():
    shared = SharedAutomata()
    first = shared.get(Grown, "a")
    assert shared.get(Grown, "a") is first
    assert shared.get(Grown, "b") is not first
    assert shared.get(lambda name: None, "c") is None
    assert len(shared) == 2


def test_what_was_not_asked_for_longest_goes_first():
    shared = SharedAutomata(max_bytes=10_000)
    kept = shared.get(Grown, "kept")
    for i in range(500):
        shared.get(Grown, i)
        assert shared.get(Grown, "kept") is kept
    assert shared.n_bytes <= 10_000
    assert len(shared) < 100 + 8  # the newest are not weighed yet
    newest = shared.get(Grown, 499)
    assert shared.get(Grown, 499) is newest


def test_at_most_so_many_are_kept():
    shared = SharedAutomata(max_count=20)
    for i in range(500):
        shared.get(Grown, i)
    assert 20 - 8 <= len(shared) <= 20


def test_an_automaton_that_grows_is_weighed_again():
    shared = SharedAutomata(max_bytes=10_000)
    small = shared.get(Grown, "small")
    large = shared.get(Grown, "large")
    for i in range(40):
        shared.get(Grown, i)
    large.weight = 2_600  # more than a quarter
    for i in range(200):
        shared.get(Grown, 40 + i)
        assert shared.get(Grown, "large") is large
    gone = weakref.ref(large)
    del large
    assert gone() is None
    assert shared.get(Grown, "small") is small


def test_what_somebody_holds_is_found():
    shared = SharedAutomata(max_count=20)
    held = shared.get(Grown, "held")
    for i in range(100):
        shared.get(Grown, i)
    assert shared.get(Grown, "held") is held
    assert len(shared) <= 20


def test_large_ones_stay_if_they_are_made_a_second_time():
    shared = SharedAutomata()
    for is_kept in (False, True):
        made = shared.get(Grown, "large", LARGE)
        assert shared.get(Grown, "large", LARGE) is made
        for i in range(8):
            shared.get(Grown, (is_kept, i))
        # It is found in any case while somebody holds it.
        assert shared.get(Grown, "large", LARGE) is made
        gone = weakref.ref(made)
        del made
        assert (gone() is not None) == is_kept


def test_what_is_large_at_once_does_not_wait_for_others():
    # Seven choices of one client held a gigabyte, in the server and in the model's process.
    shared = SharedAutomata()
    gone = [weakref.ref(shared.get(Grown, i, LARGE)) for i in range(7)]
    assert [ref() for ref in gone] == [None] * 7


def test_what_is_dropped_before_it_was_weighed_weighs_nothing():
    shared = SharedAutomata(max_bytes=1_000, max_count=20)
    for i in range(300):
        shared.get(Grown, i % 11, 90 + i)
        assert 0 <= shared.n_bytes <= 1_000
    for i in range(30):
        shared.get(Grown, -1 - i, 0)
    shared.clear()
    assert shared.n_bytes == len(shared) == 0


@pytest.mark.parametrize(
    "pattern", ["^(a|b){1,500}c$", "^(?=.*x)[a-z]{3,90}$", "^.*(ab|ba).{0,30}$"]
)
def test_leaves_know_about_how_much_they_hold(pattern):
    leaf = scalars._string_leaf(regex.parse_ecma(pattern), "canonical", frozenset())
    known = {id(leaf.encoding), id(leaf.symbols.alphabet), id(type(leaf))}
    before, weight = deep_size(leaf, set(known)), leaf.weight
    assert leaf.grown() == weight
    q = leaf.step(leaf.start, ord('"'))
    for i in range(60):
        q = leaf.step(q, b"ab"[i % 2])
        leaf.row(q)
    grown = deep_size(leaf, set(known)) - before
    assert grown > 10_000
    assert grown / 3 < leaf.grown() < grown * 3


def deep_size(thing, known):
    """Bytes of all that ``thing`` refers to, types and what is ``known`` apart."""
    total, stack = 0, [thing]
    while stack:
        one = stack.pop()
        if id(one) in known or isinstance(one, type) or callable(one):
            continue
        known.add(id(one))
        total += one.__sizeof__()
        stack += gc.get_referents(one)
    return total


def test_of_what_nobody_holds_no_key_stays():
    class Key:  # as large as a pattern
        pass

    shared = SharedAutomata(max_count=0)
    keys = [Key() for _ in range(20)]
    gone = [weakref.ref(key) for key in keys]
    held = shared.get(Grown, keys[0])
    for key in keys:
        shared.get(Grown, key)
    assert shared.get(Grown, keys[0]) is held
    del keys, key
    shared.get(Grown, "another")
    assert [ref() for ref in gone[1:8]] == [None] * 7
