"""Rules with loops say what the rules said: compared by all short texts of random grammars."""

from __future__ import annotations

import random
from collections.abc import Sequence

from structgen.automaton.cfg.nonterminals import Loops, NonterminalAutomata, Rule, _closure
from structgen.grammar import ir

LONGEST = 6
NAMES = (("LEFT", r"\("), ("RIGHT", r"\)"), ("COMMA", ","), ("ELEMENT", "a"))


def texts(n: int, rules: Sequence[Rule], ways: Sequence[Sequence[tuple[int, ...]]]) -> list[set]:
    """Of each nonterminal, and then of each loop, the texts of at most `LONGEST` terminals."""
    all_rules = [*rules, *[(n + i, way) for i, found in enumerate(ways) for way in found]]
    found: list[set[tuple[int, ...]]] = [set() for _ in range(n + len(ways))]
    changed = True
    while changed:
        changed = False
        for lhs, rhs in all_rules:
            out: set[tuple[int, ...]] = {()}
            for symbol in rhs:
                parts = {(symbol,)} if symbol >= 0 else found[~symbol]
                out = {a + b for a in out for b in parts if len(a) + len(b) <= LONGEST}
            if not out <= found[lhs]:
                found[lhs] |= out
                changed = True
    return found


def random_rules(rng: random.Random, n: int) -> list[Rule]:
    """Rules with lists among them, as readers of grammars write them."""
    rules: list[Rule] = []

    def symbols(lhs: int, most: int) -> tuple[int, ...]:
        return tuple(
            rng.randrange(3) if rng.random() < 0.6 else ~rng.randrange(n)
            for _ in range(rng.randint(0 if rng.random() < 0.2 else 1, most))
        )

    for lhs in range(n):
        if rng.random() < 0.5:
            bodies = [symbols(lhs, 2) for _ in range(rng.randint(1, 2))]
            rules += [(lhs, body) for body in bodies]
            rounds = bodies if rng.random() < 0.7 else [symbols(lhs, 2)]
            rules += [(lhs, (~lhs, *body)) for body in rounds]
        else:
            rules += [(lhs, symbols(lhs, 5)) for _ in range(rng.randint(1, 3))]
    return rules


def test_loops_keep_the_texts() -> None:
    n_loops = n_rules = 0
    for seed in range(600):
        rng = random.Random(seed)
        n = rng.randint(2, 5)
        rules = random_rules(rng, n)
        root = rng.randrange(n)
        loops = Loops(rules, _closure(n, rules, True), root)
        n_loops += len(loops.ways)
        n_rules += len(loops.rules)
        before, after = texts(n, rules, []), texts(n, loops.rules, loops.ways)
        # What nothing leads to any more has no rules.
        assert after[root] == before[root], seed
        assert all(after[lhs] == before[lhs] for lhs, _ in loops.rules), seed
        # Loops stand last, behind something.
        for _, rhs in loops.rules:
            assert all(~symbol < n for symbol in rhs[:-1]), seed
            assert len(rhs) > 1 or not rhs or ~rhs[0] < n, seed
    assert n_loops > 300
    assert n_rules > 2_000


def test_list_elements_are_all_alike() -> None:
    # start: "(" [list] ")" with list: element ("," element)*
    left, right, comma, element = range(4)
    rules = [
        (0, (left, right)),
        (0, (left, element, right)),
        (0, (left, element, ~1, right)),
        (1, (comma, element)),
        (1, (~1, comma, element)),
    ]
    grammar = ir.ContextFree(
        tuple(ir.Terminal(name, pattern) for name, pattern in NAMES),
        ("start", "list"),
        tuple(rules),
        0,
    )
    goals = NonterminalAutomata(grammar)
    opened = goals.start(0)[left]
    first = goals.go(opened, element)
    assert goals.go(goals.go(first, comma), element) == first
    assert set(goals.symbols(first)) == {comma, right}


def test_many_lists_in_a_rule() -> None:
    # a+ b+ a+ b+ ...: neither the rules nor what is made of them outgrow their room.
    rules: list[Rule] = [(1, (0,)), (1, (~1, 0)), (2, (1,)), (2, (~2, 1))]
    rules.append((0, (~1, ~2) * 2000))
    loops = Loops(rules, [False] * 3, 0)
    size = sum(len(rhs) for _, rhs in loops.rules) + sum(
        len(w) for ways in loops.ways for w in ways
    )
    assert loops.ways
    assert size < 10 * 4000
