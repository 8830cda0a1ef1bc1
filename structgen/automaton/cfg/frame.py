"""A grammar as a frame: its rules and terminals, and what may come at a place.

The state of `CfgFrame` is a place (see `places`), the leaf above it the lexer, or whatever an
embedded terminal (`EmbeddedTerminal`) starts with. When a terminal ends, the frame says which ones
may begin next. Every place can be finished, so no state of a machine is a dead end. Where no demand
on the following text leads to a dead end, all terminals that the rules expect at a place may begin
there (`CfgFrame.entry`). Elsewhere a terminal may begin only if the text can be finished after some
of its ends.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Mapping

from structgen.automaton.core.frames import POP, Alternative, Frame
from structgen.automaton.core.leaf import GROW
from structgen.automaton.schema.nesting import UNLIMITED
from structgen.automaton.texts import Text, put
from structgen.automaton.work import WORK
from structgen.errors import GrammarError, Unsatisfiable, UnsupportedFeature
from structgen.grammar import ir

from .embedded_terminals import EmbeddedTerminal, GuardedLeaf, NamedTokenLeaf
from .lexer import Expected, Lexer, shared_lexer
from .neighbours import Conditions, GoalEnds, Neighbours
from .nonterminals import NonterminalAutomata
from .places import PlaceGraph, Rests
from .terminals import Terminals

_MAX_EXITS = 500

_Asked = tuple[tuple[tuple[int, frozenset[int]], ...], dict[int, list[int]]]
"""Questions to the stacks of a place: the number of a top, and demands, of which one is to be met
by its continuation; and for each terminal the questions of which one is to be answered with yes."""


class CfgFrame(Frame):
    """The open text of a grammar.

    ``at`` is ``2 * place``, 1 more while an embedded terminal is written: the place is then the one
    after it.

    Args:
        grammar: the grammar.
        chars: the code points that may be written.
        embedded: how the texts of each terminal that is no pattern may start.
        is_free: the attribute, where that is known.

    Raises:
        Unsatisfiable: no text matches.
        GrammarError: an embedded terminal can be empty.
        PatternError: a terminal's pattern is malformed or not regular.
        UnsupportedFeature: a terminal has a lookaround that cannot be enforced exactly.

    Attributes:
        lexer: the terminals.
        graph: the places.
        ignore: terminals that may stand anywhere.
        embedded: terminals that are not patterns, by number.
        is_free: whether no terminal's demand on what follows can lead to a dead end.
    """

    nests = False
    limit = UNLIMITED

    def __init__(
        self,
        grammar: ir.ContextFree,
        chars: ir.CharSet,
        embedded: Mapping[int, tuple[Alternative, ...]] | None = None,
        is_free: bool | None = None,
    ) -> None:
        self.grammar = grammar
        self._chars = chars
        self._inner = embedded or {}
        with GROW:
            self._build(is_free)

    def _unsatisfiable(self, why: str) -> Unsatisfiable:
        """What to raise where there is no text: the vocabulary is at fault where it has no token
        for a character that all texts have."""
        if self._chars != ir.ANY_CHAR:
            try:
                CfgFrame(self.grammar, ir.ANY_CHAR, self._inner)
            except Unsatisfiable:
                pass
            else:
                return Unsatisfiable(
                    "no text that this vocabulary can write matches the grammar: it has no token "
                    "for single characters that all texts need."
                )
        return Unsatisfiable(f"no text matches the grammar: {why}")

    def _build(self, is_free: bool | None) -> None:
        grammar = self.grammar
        lexer = None if self._inner else shared_lexer(grammar.terminals, self._chars)
        terminals = lexer.terminals if lexer else Terminals(grammar.terminals, self._chars)
        for t, ways in self._inner.items():
            terminals.embedded[t] = self._embed(grammar.terminals[t].name, ways, terminals)
        self.embedded = terminals.embedded
        dead = [t for t, s in enumerate(terminals.starts) if s < 0 and t not in self.embedded]
        goals = NonterminalAutomata(grammar, dead)
        if goals.origin < 0:
            rule = grammar.nonterminals[grammar.start]
            raise self._unsatisfiable(f"rule {rule!r} can never be finished.")
        self.lexer = lexer or self._own_lexer(terminals)
        self.graph = PlaceGraph(goals)
        self._lookahead = terminals.lookahead
        self.ignore = frozenset(t for t in grammar.ignore if t not in dead)
        if self.embedded:
            self._check_embedded()
        if is_free is None:
            is_free = self._neighbours.is_free() or self._neighbours.is_safe()
        self.is_free = is_free
        if lexer and not self.is_free:
            # How terminals may end depends on places, which are this grammar's own.
            self.lexer = self._own_lexer(terminals)
        conditions = Conditions(self.lexer, self.ignore)
        ends = GoalEnds(goals, conditions, self.ignore)
        self._rests = Rests(self.graph, ends.of, conditions.at_end)
        self._entries: dict[tuple[int, int], int] = {}
        self._free_entries: dict[tuple[tuple[int, ...], int], int] = {}
        # See `_fine` and `_met`.
        self._asked: dict[tuple[int, ...], _Asked] = {}
        self._answered: dict[
            tuple[tuple[int, ...], tuple[bool, ...]], tuple[frozenset[int], frozenset[int]]
        ] = {}
        self._met_by: dict[int, tuple[frozenset[int], frozenset[int]]] = {}
        self._begun: dict[tuple[int, int], tuple[Alternative, ...]] = {}
        self._guards: dict[tuple[int, int], tuple[Alternative, ...]] = {}
        if not self.open():
            raise self._unsatisfiable(
                "its terminals take more than the rules leave for what must follow them. A "
                "terminal takes the longest text it can (or the shortest, with a lazy "
                "quantifier); put something between them that they cannot contain."
            )

    def _own_lexer(self, terminals: Terminals) -> Lexer:
        """A lexer that asks the machine how terminals may end, and does not keep it alive."""
        frame = weakref.ref(self)

        def permits(place: int, condition: int) -> bool:
            asked = frame()
            assert asked is not None, "what a frame is made of is used after it"
            return asked._can_finish(place, condition)

        return Lexer(terminals, permits)

    @functools.cached_property
    def _neighbours(self) -> Neighbours:
        # Whoever asks holds `GROW`; the lock of cached properties is never held before it.
        return Neighbours(self.graph, self.lexer, self.ignore)

    def _embed(
        self, name: str, ways: tuple[Alternative, ...], terminals: Terminals
    ) -> EmbeddedTerminal:
        inner = EmbeddedTerminal(name, ways, terminals.alphabet)
        if inner.can_be_empty:
            raise GrammarError(
                f"{name} can be the empty text, which a terminal must not. Make it at least one "
                "character long, and optional in the rules."
            )
        return inner

    def _check_embedded(self) -> None:
        reason = self._neighbours.unsettled()
        if reason is not None:
            before, terminal = (self.grammar.terminals[t].name for t in reason)
            raise UnsupportedFeature(
                f"What terminal {before} demands of the text after it is not settled by the first "
                f"character of {terminal}.",
                fix="Put a literal between the two, or let the terminal look less far ahead.",
            )

    def release(self) -> None:
        """Let go of all that refers back to the frame, see `machine.Machine.languages`."""
        self._begun.clear()
        self._guards.clear()

    # -- what may come ----------------------------------------------------------------------------

    def open(self) -> tuple[Alternative, ...]:
        """How a text may start."""
        return self.begin(self.graph.start, self._lookahead.anything)

    def begin(self, place: int, condition: int) -> tuple[Alternative, ...]:
        """What may come at a place: its terminals, or the end of the text."""
        found = self._begun.get((place, condition))
        if found is None:
            found = self._begun[place, condition] = self._begin(place, condition)
        return found

    def _begin(self, place: int, condition: int) -> tuple[Alternative, ...]:
        ways: list[Alternative] = []
        if self.may_end(place, condition):
            ways += POP
        q = self.entry(place, condition)
        if q >= 0:
            ways.append(Alternative(self.lexer, q, ((self, 2 * place),)))
        for terminal, after in self.embedded_at(place, condition):
            below = (self, 2 * after + 1)
            ways += [
                Alternative(way.leaf, way.q, (*way.frames, below))
                for way in self.ways_of(terminal, condition)
            ]
        return tuple(ways)

    def may_end(self, place: int, condition: int) -> bool:
        """Whether the text may end at a place."""
        return self.graph.accepting[place] and self._lookahead.label(condition) >= 0

    def ways_of(self, terminal: int, condition: int) -> tuple[Alternative, ...]:
        """How an embedded terminal starts under a condition."""
        inner: EmbeddedTerminal = self.embedded[terminal]
        if condition == self._lookahead.anything:
            return inner.ways
        found = self._guards.get((terminal, condition))
        if found is None:
            ways: list[Alternative] = []
            settling = self._lookahead.settling(condition)
            for way, first in zip(inner.ways, inner.firsts(), strict=True):
                assert way.leaf is not None
                if isinstance(way.leaf, NamedTokenLeaf):
                    ways += [way] if self._lookahead.label(condition) >= 0 else []
                    continue
                if not first & ~settling:
                    ways.append(way)
                    continue
                leaf = GuardedLeaf(way.leaf, way.q, self._lookahead, condition, self.lexer.encoding)
                if leaf.goes_on(leaf.start):
                    ways.append(Alternative(leaf, leaf.start, way.frames))
            found = self._guards[terminal, condition] = tuple(ways)
        return found

    def _arrivals(self, at: int, outcome: int) -> list[tuple[int, int]]:
        """The ``(place, condition)`` pairs that ``outcome`` of the leaf above leads to."""
        if at & 1:
            return [(at >> 1, self._lookahead.anything)]
        return [
            (self.after(at >> 1, terminals), condition)
            for condition, terminals in self.lexer.outcomes[outcome]
        ]

    def resume(
        self, at: int, outcome: int, text: bytes | None = None, limited: bool = False
    ) -> tuple[Alternative, ...]:
        """See `frames.Frame`."""
        return tuple(way for to in self._arrivals(at, outcome) for way in self.begin(*to))

    def finish(self, at: int, outcome: int, text: bytes | None = None) -> Text | None:
        """See `frames.Frame`."""
        ways = [self._complete_place(*to) for to in self._arrivals(at, outcome)]
        known = [way for way in ways if way is not None]
        return min(known, key=lambda way: (len(way), way), default=None)

    def after(self, place: int, ended: tuple[int, ...]) -> int:
        """The place after any of the terminals ``ended`` (ignored ones leave it as it is)."""
        if len(ended) == 1:
            (terminal,) = ended
            if terminal not in self.ignore:
                return self.graph.shift(place, terminal)
            if terminal not in self.graph.expected(place):
                return place
        expected = self.graph.expected(place)
        steps = [(place, t) for t in ended if t in expected]
        return self.graph.union(steps, [place] if self.ignore.intersection(ended) else [])

    def entry(self, place: int, condition: int) -> int:
        """The lexer state in which the next terminal begins, or -1 when nothing can follow."""
        key = (place, condition)
        found = self._entries.get(key)
        if found is None:
            found = self._entries[key] = self._find_entry(place, condition)
        return found

    def union(self, places: tuple[int, ...]) -> int:
        """The place that any of ``places`` may be."""
        return places[0] if len(places) == 1 else self.graph.union((), places)

    def embedded_at(self, place: int, condition: int) -> list[tuple[int, int]]:
        """The embedded terminals that may begin at a place, each with the place after it."""
        out: list[tuple[int, int]] = []
        if self.embedded:
            for terminal in sorted(self.graph.expected(place)):
                if terminal not in self.embedded:
                    continue
                after = self.graph.shift(place, terminal)
                if self.is_free or self._can_finish(after, self._lookahead.anything):
                    out.append((terminal, after))
        return out

    # -- the beginnings of terminals ------------------------------------------------------------

    def _find_entry(self, place: int, condition: int) -> int:
        if self.is_free:
            states = self.graph.shapes[place]
            if not states and not self.graph.accepting[place]:
                return -1
            found = self._free_entries.get((states, condition))
            if found is None:
                q = self.lexer.entry(self.graph.expected(place) | self.ignore, condition)
                found = q if self.lexer.goes_on(q) else -1
                self._free_entries[states, condition] = found
            return found
        fine, others = self._fine(place)
        met, unclear = self._met(condition)
        sure = fine & met
        doubtful = (others & met) | (self.graph.expected(place) | self.ignore) & unclear
        if not doubtful:
            q = self.lexer.entry(sure, condition)
            return q if self.lexer.goes_on(q) else -1
        chosen: list[Expected] = [(terminal, None) for terminal in sure]
        chosen += self._chosen(place, condition, doubtful)
        q = self.lexer.entry(tuple(sorted(chosen, key=lambda e: e[0])), condition)
        return q if self.lexer.goes_on(q) else -1

    def _fine(self, place: int) -> tuple[frozenset[int], frozenset[int]]:
        """Of the terminals that may begin at a place: those after any end of which the text can
        surely be finished, and the others.

        What the goal states say is found once for all places that have them. The stacks below are
        asked a few questions, and all with the same answers have the same terminals.
        """
        shape, neighbours = self.graph.shapes[place], self._neighbours
        asked = self._asked.get(shape)
        if asked is None:
            numbers: dict[tuple[int, frozenset[int]], int] = {}
            terminals: dict[int, list[int]] = {}
            for terminal in (self.graph.expected(place) | self.ignore).difference(self.embedded):
                WORK.spend(1 + (len(shape) >> 2))
                terminals[terminal] = [
                    numbers.setdefault((i, ends), len(numbers))
                    for i, state in enumerate(shape)
                    if (ends := neighbours.ends_after(state, terminal))
                ]
            asked = self._asked[shape] = tuple(numbers), terminals
        questions, terminals = asked
        tops = self.graph.places[place]
        WORK.spend(1 + (len(questions) >> 3))
        answers = tuple([neighbours.can_end(tops[i][1], demands) for i, demands in questions])
        found = self._answered.get((shape, answers))
        if found is None:
            fine = frozenset(t for t, asks in terminals.items() if any(answers[n] for n in asks))
            found = self._answered[shape, answers] = fine, frozenset(terminals).difference(fine)
        return found

    def _met(self, condition: int) -> tuple[frozenset[int], frozenset[int]]:
        """The terminals whose first character meets a condition, whichever it is; and those of
        which that depends on the character."""
        found = self._met_by.get(condition)
        if found is None:
            every = [t for t, start in enumerate(self.lexer.terminals.starts) if start >= 0]
            is_met = {t: self.lexer.is_met_at_once(t, condition) for t in every}
            met = (
                every if condition == self._lookahead.anything else [t for t in every if is_met[t]]
            )
            unclear = frozenset(t for t in every if is_met[t] is False).difference(met)
            found = self._met_by[condition] = frozenset(met), unclear
        return found

    def _chosen(self, place: int, condition: int, expected: frozenset[int]) -> list[Expected]:
        """Which of some terminals may begin at a place, and how they may end."""
        chosen: list[Expected] = []
        for terminal in sorted(expected.difference(self.embedded)):
            after = self.after(place, (terminal,))
            met = condition == self._lookahead.anything
            if not met:
                at_once = self.lexer.is_met_at_once(terminal, condition)
                if at_once is None:
                    continue
                met = at_once
            if met and self._neighbours.is_certain(after, terminal):
                chosen.append((terminal, None))
                continue
            start = self.lexer.terminals.starts[terminal]
            exits = self.lexer.exits.from_state(terminal, start, condition, _MAX_EXITS)
            if exits is None:
                chosen.append((terminal, after))
                continue
            live = frozenset(c for c in exits if self._can_finish(after, c))
            if live:
                chosen.append((terminal, None if len(live) == len(exits) else live))
        return chosen

    def _can_finish(self, place: int, condition: int) -> bool:
        """Whether a text can be finished from a place under a condition."""
        if self._neighbours.rests.is_possible(place, condition):
            return True
        return self._rests.is_possible(place, condition)

    # -- completion -------------------------------------------------------------------------------

    def rules_at(self, at: int) -> list[str]:
        """The names of the rules that are open."""
        goals, names = self.graph.goals, self.grammar.nonterminals
        found = [goals.goal_of[top] for top, _ in self.graph.places[at >> 1]]
        return [names[goal if goal < len(names) else self.grammar.start] for goal in found]

    def _complete_place(self, place: int, condition: int) -> Text | None:
        """A short way to acceptance from a place."""
        found = self._neighbours.rests.text_of(place, condition)
        return self._rests.text_of(place, condition) if found is None else found

    def complete(self, q: int, at: int) -> Text | None:
        """A short way to the end of the text from lexer state ``q``.

        Not always the shortest: between two terminals it takes the ways that are safe for all that
        the first one may demand.
        """
        place = at >> 1
        best: Text | None = None
        exits, inside = self.lexer.exits, self.lexer.threads(q)
        for (terminal, condition), text in exits.inside(inside, near=True).items():
            if best is not None and len(text) >= len(best):
                continue
            rest = self._neighbours.rests.text_of(self.after(place, (terminal,)), condition)
            if rest is not None and (best is None or len(text) + len(rest) < len(best)):
                best = put(text, rest)
        if best is not None:
            return best
        # What is near does not do; look at everything.
        for (terminal, condition), text in exits.inside(inside).items():
            rest = self._rests.text_of(self.after(place, (terminal,)), condition)
            if rest is not None and (best is None or len(text) + len(rest) < len(best)):
                best = put(text, rest)
        return best
