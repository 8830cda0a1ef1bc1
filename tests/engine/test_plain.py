"""What is taken to be plain to see is so: compared with what building it shows."""

from __future__ import annotations

import json
import random
from collections import Counter
from contextlib import suppress

import inside
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from shortest import shortest_match

import structgen
from engine import strategies
from engine.walks import TINY
from structgen import JsonSchema, StructgenError
from structgen.automaton.core.machine import Machine
from structgen.automaton.core.text_leaf import StringLeaf
from structgen.automaton.json.document import OpeningLeaf
from structgen.automaton.json.options import JsonOptions
from structgen.automaton.json.values import JsonLanguage, height_of_text
from structgen.automaton.regex.automaton import RegexAutomaton
from structgen.automaton.regex.encoding import json_string
from structgen.automaton.regex.symbols import probe
from structgen.automaton.schema.evaluate import matches
from structgen.automaton.schema.nesting import forced_height, watch_from
from structgen.automaton.schema.quick_checks import PlainNodes
from structgen.automaton.schema.strings import has_plain_string
from structgen.errors import CompileLimitExceeded
from structgen.grammar import ir, json_schema
from structgen.grammar.json_schema.graph import FALSE, OBJECT, TRUE, Node, SchemaGraph
from structgen.grammar.regex import tree as regex_tree
from structgen.grammar.regex.read import parse_ecma

OPTIONS = JsonOptions(max_depth=None)


def read(r: random.Random) -> SchemaGraph | None:
    try:
        return json_schema.lower(strategies.document(r))
    except StructgenError:
        return None


@given(st.randoms(use_true_random=False))
def test_what_is_plainly_possible_has_a_value(r: random.Random) -> None:
    graph = read(r)
    if graph is None:
        return
    language = JsonLanguage(graph, OPTIONS)
    for number in range(1, len(graph.nodes)):
        conjunction = language.conjunctions.of([2 * number])
        with suppress(CompileLimitExceeded):  # another alternative needs too much; see values.check
            if language.values.plainly_possible(conjunction):
                assert language.values.shortest(conjunction) is not None, graph.nodes[number].path
            for room in (0, 1, 2):
                bound = inside.nesting(language).at_most(room)
                limited = language.conjunctions.of([2 * number, bound])
                if language.values.plainly_possible(limited):
                    text = language.values.shortest(limited)
                    assert text is not None
                    assert height_of_text(text) <= room


@given(st.randoms(use_true_random=False))
def test_plans_of_plain_schemas_meet_no_limit(r: random.Random) -> None:
    graph = read(r)
    if graph is None:
        return
    plain = PlainNodes(graph.nodes)
    language = JsonLanguage(graph, OPTIONS)
    for number in range(1, len(graph.nodes)):
        if plain.is_plain(2 * number):
            plans = language.shapes(language.conjunctions.of([2 * number]))[1]
            owed = {child for plan in plans for child in plan.children()}
            expected = {language.conjunctions.of([child]) for child in plain.children(2 * number)}
            expected |= {language.conjunctions.of([TRUE]), language.conjunctions.of([FALSE])}
            assert owed <= expected, graph.nodes[number].fields()


@given(st.randoms(use_true_random=False))
def test_schemas_without_references_force_no_more_depth_than_they_have_nodes(
    r: random.Random,
) -> None:
    graph = read(r)
    if graph is None or graph.refers:
        return
    exact = forced_height(graph.nodes)
    watched = watch_from(graph, 64)
    assert watched <= (0 if exact is None else 64 - exact)


@given(st.randoms(use_true_random=False))
def test_what_plain_objects_open_with_is_what_their_frames_open_with(r: random.Random) -> None:
    graph = read(r)
    if graph is None:
        return
    # Schemas that only demand a type or members are what it is for.
    own = [2 * n for n in range(1, len(graph.nodes)) if graph.nodes[n].types == OBJECT]
    for obligation in own:
        graph.root = obligation
        language = JsonLanguage(graph, OPTIONS)
        opening = language.opening()
        if opening is None:
            continue
        ways = JsonLanguage(graph, OPTIONS)
        whole = Machine(ways.alternatives(ways.root))
        lazy = Machine((opening,))
        assert whole.next_bytes(whole.start) == lazy.next_bytes(lazy.start) == {0x7B}
        shortest = whole.shortest_completion(whole.start)
        assert len(lazy.shortest_completion(lazy.start)) == len(shortest)
        following = whole.next_bytes(whole.step(whole.start, 0x7B))
        assert lazy.next_bytes(lazy.step(lazy.start, 0x7B)) == following
        assert isinstance(opening.leaf, OpeningLeaf)
        before, at = opening.leaf.before_key(opening.q)
        assert set(before.row(before.step(at, 0x7B))) == following
        assert lazy.read(lazy.start, shortest)[0] in lazy.accepting


_SETS = [ir.char_set([pair]) for pair in ((97, 97), (98, 98), (97, 99), (99, 102), (48, 57))]


def expression(r: random.Random, depth: int) -> ir.Regex:
    kind = r.randrange(5) if depth else 0
    if kind < 2:
        return r.choice(_SETS) if r.random() < 0.9 else ir.ANY_CHAR
    parts = [expression(r, depth - 1) for _ in range(r.randrange(1, 5))]
    if kind == 2:
        return regex_tree.alternate(parts)
    if kind == 3:
        return regex_tree.concat(parts)
    least = r.choice((0, 0, 1, 1, 2, 5))
    most = r.choice((None, None, least or 1, least + 1, least + 30))
    return regex_tree.repeat(parts[0], least, most)


def words(r: random.Random) -> ir.Regex:
    """A list of words, some of which may be anywhere, or go on."""
    letters = r.choice((_SETS[:2], [_SETS[2], _SETS[4]], _SETS))
    return regex_tree.alternate(
        regex_tree.concat(
            [
                *[ir.ANY_TEXT] * r.randrange(2),
                *(r.choice(letters) for _ in range(r.randrange(1, 12))),
                *(expression(r, 2) for _ in range(r.random() < 0.1)),
                *[ir.ANY_TEXT] * r.randrange(2),
            ]
        )
        for _ in range(r.randrange(1, 12))
    )


@given(st.randoms(use_true_random=False), st.sampled_from(("whole", "searched", "words")))
def test_strings_that_are_plain_to_see_exist_and_are_found_among_few_states(
    r: random.Random, kind: str
) -> None:
    regex = regex_tree.concat([expression(r, r.randrange(1, 5)) for _ in range(r.randrange(1, 4))])
    if kind == "searched":
        regex = regex_tree.concat((ir.ANY_TEXT, regex, ir.ANY_TEXT))
    if kind == "words":
        regex = regex_tree.concat([words(r), *(expression(r, 2) for _ in range(r.randrange(2)))])
    least = r.choice((0, 0, r.randrange(12)))
    most = r.choice((None, None, least, least + 3))
    if not has_plain_string(Node("$", patterns=(regex,), min_length=least, max_length=most)):
        return
    both = ir.Intersect((regex, ir.Repeat(ir.ANY_CHAR, least, most)))
    automaton = RegexAutomaton(both)
    leaf = StringLeaf(automaton, json_string(automaton.alphabet, "canonical"))
    probe(leaf.symbols, leaf.encoding)
    assert len(automaton.expressions.nodes) < 20_000
    shortest = leaf.shortest(leaf.start)
    assert shortest is not None
    assert len(json.loads(bytes(shortest[0]))) == len(shortest_match(both) or "")


def test_patterns_of_all_kinds_are_plain_to_see_and_those_with_many_states_are_not() -> None:
    def is_plain(pattern: str, **lengths: int) -> bool:
        return has_plain_string(Node("$", patterns=(parse_ecma(pattern),), **lengths))

    for pattern, fewest in (
        ("^[a-z][a-z0-9-]{0,61}[a-z0-9]$", 2),
        (r"^\d{4}-\d{2}-\d{2}$", 10),
        ("^(alpha|beta)@[a-z]+$", 6),
        ("^[0-9a-f]{64}$", 64),
        (r"^(\d{1,3}\.){3}\d{1,3}$", 7),
        ("rocket_document", 15),
        (r"\d{4}-\d{2}", 7),
        ("^(GET|GETALL|POST|PUT|PATCH)$", 3),
        ("^(https?|http2|ftps?)://.+$", 7),
        ("^dev|alpha|alphabet|rc|RC|stable$", 2),
        ("(north|south)-(east|west)|northern wind", 10),
        (".*", 0),
    ):
        assert is_plain(pattern), pattern
        assert is_plain(pattern, max_length=fewest), pattern
        assert not is_plain(pattern, max_length=fewest - 1), pattern
    assert is_plain("^x[a-z]+$", min_length=40)
    assert not is_plain("^x[a-z]+$", min_length=400)
    assert not is_plain("^[a-z]{4}$", min_length=5)
    for pattern in (
        "a.{20}",
        "a(a|b){20}",
        "xa(a|b){20}|xyzxyz",
        "^.*a.{20}$",
        "^[ab]*a[ab]{20}$",
        "^(a|ab)(b|c){20}$",
        "^(?=a)abc$",
    ):
        assert not is_plain(pattern), pattern


def _lengths(regex: ir.Regex, most: int) -> set[int]:
    """The lengths of an expression's texts, up to ``most``."""

    def sums(one: set[int], other: set[int]) -> set[int]:
        return {a + b for a in one for b in other if a + b <= most}

    if isinstance(regex, ir.CharSet):
        return {1}
    assert isinstance(regex, (ir.Concat, ir.Alternate, ir.Repeat))
    if isinstance(regex, ir.Alternate):
        return set().union(*(_lengths(part, most) for part in regex.parts))
    if isinstance(regex, ir.Concat):
        found = {0}
        for part in regex.parts:
            found = sums(found, _lengths(part, most))
        return found
    body = _lengths(regex.body, most)
    found = {0}
    for _ in range(regex.min):
        found = sums(found, body)
    reached = set(found)
    for _ in range(regex.min, most + regex.min if regex.max is None else regex.max):
        found = sums(found, body)
        reached |= found
    return reached


@given(st.randoms(use_true_random=False))
def test_a_length_that_a_pattern_has_a_text_of_is_possible_beside_it_and_no_other(
    r: random.Random,
) -> None:
    regex = regex_tree.concat([expression(r, 3) for _ in range(r.randrange(1, 3))])
    most = 24
    lengths = _lengths(regex, most)
    for _ in range(6):
        low, high = sorted((r.randrange(most), r.randrange(most)))
        both = RegexAutomaton(ir.Intersect((regex, ir.Repeat(ir.ANY_CHAR, low, high))))
        assert both.is_empty() == lengths.isdisjoint(range(low, high + 1)), (regex, low, high)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("abc", "abc" + " " * 1_000),
        ("abc.*def", "abc" + " " * 1_000 + "def"),
        (r"^(\w+ )+\w+\.$", "ab " * 400 + "c."),
        (r"\d+-[A-F\d]*-[A-F\d]{24}", " " * 1_000 + "1-A-" + "0" * 24),
    ],
)
def test_patterns_are_tried_out_without_the_lengths_beside_them(pattern: str, text: str) -> None:
    """A state for each length would be some 100,000, for one that a pattern has."""
    schema = {"type": "string", "pattern": pattern, "minLength": 1_000, "maxLength": 100_000}
    constraint = structgen.compile(JsonSchema(schema), TINY, max_work=20_000)
    assert constraint.allows(json.dumps(text))
    assert not constraint.allows(json.dumps(text[-900:]))


def test_a_length_that_keeps_states_few_is_heeded_and_one_that_makes_them_many() -> None:
    def schema(pattern: str, **lengths: int) -> JsonSchema:
        return JsonSchema({"type": "string", "pattern": pattern, **lengths})

    for lengths in ({}, {"maxLength": 60}, {"minLength": 30}):
        with pytest.raises(CompileLimitExceeded, match="begin anywhere"):
            structgen.compile(schema("^[ab]*a[ab]{25}$", **lengths), TINY)
    structgen.compile(schema("^c{20}$|^[ab]*a[ab]{25}$", maxLength=20), TINY)
    structgen.compile(schema("^c$|^[ab]*a[ab]{25}$"), TINY)
    with pytest.raises(CompileLimitExceeded, match="begin anywhere"):
        structgen.compile(schema("^c$|^[ab]*a[ab]{25}$", minLength=2), TINY)


@given(st.randoms(use_true_random=False))
def test_texts_match_expressions_as_their_automata_say(r: random.Random) -> None:
    regex = expression(r, 4)
    if r.random() < 0.3:
        regex = regex_tree.concat((ir.ANY_TEXT, regex, ir.ANY_TEXT))
    automaton = RegexAutomaton(regex)
    try:
        text = shortest_match(regex)
    except CompileLimitExceeded:
        reject()  # nothing is said of it at all
    assert text is not None
    for _ in range(20):
        assert matches(regex, text) == automaton.accepts(text), (regex, text)
        at = r.randrange(len(text) + 1)
        text = (
            text[: at - r.randrange(2)] + "".join(r.choices("abcf0", k=r.randrange(3))) + text[at:]
        )
        text = text[:60]


def test_the_generated_schemas_tell_something() -> None:
    """The tests above would pass if nothing were plain, or nothing generated."""
    seen: Counter[str] = Counter()
    for seed in range(300):
        graph = read(random.Random(seed))
        if graph is None:
            continue
        language = JsonLanguage(graph, OPTIONS)
        plain = PlainNodes(graph.nodes)
        seen["plain"] += sum(plain.is_plain(2 * n) for n in range(2, len(graph.nodes)))
        for number in range(1, len(graph.nodes)):
            conjunction = language.conjunctions.of([2 * number])
            seen["possible"] += language.values.plainly_possible(conjunction)
            seen["not plainly"] += not language.values.plainly_possible(conjunction)
        seen["without references"] += not graph.refers
    assert min(seen.values()) > 30, seen
