"""What is taken to be plain to see is so: compared with what building it shows."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from engine import strategies
from structgen import StructgenError
from structgen.automaton.nesting import forced_height, height_of_text, watch_from
from structgen.automaton.options import JsonOptions
from structgen.automaton.plain import PlainNodes
from structgen.automaton.values import JsonLanguage
from structgen.grammar import json_schema
from structgen.grammar.schema_graph import FALSE, TRUE, SchemaGraph

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
        conjunction = language.conjunction([2 * number])
        if language.plainly_possible(conjunction):
            assert language.shortest(conjunction) is not None, graph.nodes[number].path
        for room in (0, 1, 2):
            bound = language._nesting.at_most(room)
            limited = language.conjunction([2 * number, bound])
            if language.plainly_possible(limited):
                text = language.shortest(limited)
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
            plans = language.shapes(language.conjunction([2 * number]))[1]
            owed = {child for plan in plans for child in plan.children()}
            expected = {language.conjunction([child]) for child in plain.children(2 * number)}
            expected |= {language.conjunction([TRUE]), language.conjunction([FALSE])}
            assert owed <= expected, graph.nodes[number].fields()


@given(st.randoms(use_true_random=False))
def test_schemas_whose_references_lead_in_no_circle_force_no_more_depth_than_they_have(
    r: random.Random,
) -> None:
    graph = read(r)
    if graph is None or graph.height is None:
        return
    exact = forced_height(graph.nodes)
    watched = watch_from(graph, 64)
    assert watched <= (0 if exact is None else 64 - exact)


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
            conjunction = language.conjunction([2 * number])
            seen["possible"] += language.plainly_possible(conjunction)
            seen["not plainly"] += not language.plainly_possible(conjunction)
        seen["without circles"] += graph.height is not None
    assert min(seen.values()) > 30, seen
