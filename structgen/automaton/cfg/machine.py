"""The recogniser of a context-free grammar, byte by byte, lazily determinised.

A configuration is a lexer state over a place (see `places`): the terminals being read and what may
follow each of them. A state is the interned set of configurations that the bytes so far can have
led to, usually one or two. Every configuration can be finished, so no state is a dead end.

- `ConditionalEnds` finds the shortest way to the end of a text. For a nonterminal's state and a
  condition on the text after it, it keeps the fewest bytes that end the nonterminal, by the
  condition that then holds: a least fixpoint (Knuth 1977), grown by a worklist.
- `CfgMachine` is the machine. It has the interface of `core.machine.Machine`; no state is pending.
  Where no demand on the following text leads to a dead end, all terminals that the rules expect at
  a place may begin there (`entry`). Elsewhere a terminal may begin only if the text can be finished
  after some of its ends.
"""

from __future__ import annotations

import functools
import weakref
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from structgen.automaton.core.frames import Alternative, TextHistory
from structgen.automaton.core.leaf import GROW
from structgen.automaton.core.stacks import DEAD, MAX_STATES
from structgen.automaton.texts import Text, put
from structgen.automaton.work import WORK
from structgen.errors import CompileLimitExceeded, GrammarError, Unsatisfiable, UnsupportedFeature
from structgen.grammar import ir

from .embedded_terminals import EmbeddedTerminal
from .lexer import Expected, Lexer, shared_lexer
from .neighbours import Neighbours
from .nonterminals import NonterminalAutomata
from .places import PlaceGraph, Rest, Rests, better
from .terminals import Terminals

_Source = tuple[int, int]
"""A goal state, or ``~goal`` for the beginning of a goal, and the condition there."""


class ConditionalEnds:
    """The fewest bytes that end the goals of one grammar, for each condition on the rest.

    Args:
        goals: the goals.
        lexer: the terminals.
        ignore: terminals that may stand anywhere.
    """

    def __init__(self, goals: NonterminalAutomata, lexer: Lexer, ignore: tuple[int, ...]) -> None:
        self._goals = goals
        self._lexer = lexer
        self._ignore = ignore
        self._lookahead = lexer.terminals.lookahead
        self._reached: dict[_Source, dict[tuple[int, int], Text]] = {}
        self._ends: dict[_Source, dict[int, Text]] = {}
        self._callers: dict[_Source, dict[tuple[_Source, int, tuple[int, int]], None]] = {}
        self._todo: deque[tuple[_Source, tuple[int, int]]] = deque()

    def at_end(self, condition: int) -> Rest | None:
        """What may still stand where all goals have ended, if any of it meets the condition."""
        if self._lookahead.label(condition) >= 0:
            return (0, b"", None)
        best: Rest | None = None
        for terminal in self._ignore:
            if self._lexer.terminals.starts[terminal] < 0:
                continue
            for after, text in self._lexer.exits.of(terminal, condition).items():
                if self._lookahead.label(after) >= 0:
                    best = better(best, (len(text), text, None))
        return best

    def of(self, source: _Source) -> dict[int, Text]:
        """For each condition that can hold when the goal ends: the fewest bytes until then."""
        if source not in self._ends:
            self._open(source)
            while self._todo:
                self._advance(*self._todo.popleft())
        return self._ends[source]

    def _open(self, source: _Source) -> None:
        self._ends[source] = {}
        self._callers[source] = {}
        self._reached[source] = {source: b""}
        self._todo.append((source, source))

    def _reach(self, source: _Source, at: tuple[int, int], text: Text) -> None:
        reached = self._reached[source]
        easier = reached.get((at[0], self._lookahead.anything))
        if easier is not None and len(easier) <= len(text):
            return
        known = reached.get(at)
        if known is None or len(text) < len(known):
            WORK.hold(250)
            reached[at] = text
            self._todo.append((source, at))

    def _advance(self, source: _Source, at: tuple[int, int]) -> None:
        goals, lexer = self._goals, self._lexer
        WORK.spend(4)
        state, condition = at
        text = self._reached[source][at]
        if state >= 0 and goals.accepts[state]:
            ends = self._ends[source]
            known = ends.get(condition)
            if known is None or len(text) < len(known):
                ends[condition] = text
                for caller, to, place in list(self._callers[source]):
                    self._reach(caller, (to, condition), put(self._reached[caller][place], text))
        edges = goals.edges(state) if state >= 0 else goals.start(~state)
        for symbol, to in edges.items():
            if symbol >= 0:
                for after, more in lexer.exits.of(symbol, condition).items():
                    self._reach(source, (to, after), put(text, more))
                continue
            inner = (symbol, condition)
            if inner not in self._ends:
                self._open(inner)
            self._callers[inner][source, to, at] = None
            for after, more in list(self._ends[inner].items()):
                self._reach(source, (to, after), put(text, more))
        if condition != self._lookahead.anything:
            # Only a condition makes it worth while to write what is ignored.
            for terminal in self._ignore:
                if lexer.terminals.starts[terminal] >= 0:
                    for after, more in lexer.exits.of(terminal, condition).items():
                        self._reach(source, (state, after), put(text, more))


_MAX_EXITS = 500

_Asked = tuple[tuple[tuple[int, frozenset[int]], ...], dict[int, list[int]]]
"""Questions to the stacks of a place: the number of a top, and demands, of which one is to be met
by its continuation; and for each terminal the questions of which one is to be answered with yes."""


_LEXER_BITS = 32
_LEXER_MASK = (1 << _LEXER_BITS) - 1
_ACCEPT = -1
_START = 1

_MOST_NAMED = 3
_WORTH_KEEPING = 10
"""Grammars with fewer rules are not worth a file."""

MAX_CONFIGURATIONS = 20_000
"""Most configurations of one state."""


class GrammarFacts(Protocol):
    """Where what is known of grammars is kept from one process to the next.

    `structgen.grammar.cfg.read.cache` is one, on disk.
    """

    def fingerprint(self, grammar: ir.ContextFree) -> str | None:
        """What tells a grammar from all others; None for one that nothing is kept of."""

    def find_flag(self, name: str, of: str) -> bool | None:
        """Whether something holds of what ``of`` names, if that was kept."""

    def keep_flag(self, name: str, of: str, holds: bool) -> None:
        """Keep what `find_flag` is to find."""


class CfgMachine:
    """A lazy deterministic recogniser of one grammar.

    Args:
        grammar: the grammar.
        chars: the code points that may be written.
        embedded: how the texts of each terminal that is no pattern may start. A grammar with such
            terminals is only half a machine: byte by byte it is read by `embedding`.
        facts: what other processes found out about grammars; None: nothing is known or kept.

    Raises:
        Unsatisfiable: no text matches.
        GrammarError: an embedded terminal can be empty.
        PatternError: a terminal's pattern is malformed or not regular.
        UnsupportedFeature: a terminal has a lookaround that cannot be enforced exactly.

    What some process has built before, and found nothing wrong with, is built when it is first
    asked for: whoever has the first mask from disk needs no automata for it.

    Shareable between threads: growth happens under one lock, reading needs none.

    Attributes:
        lexer: the terminals.
        graph: the places.
        ignore: terminals that may stand anywhere.
        embedded: terminals that are not patterns, by number.
        fingerprint: what tells the machine from all others, if that is known.
        is_free: whether no terminal's demand on what follows can lead to a dead end.
    """

    pending: frozenset[int] = frozenset()
    """The states that `is_pending` tells: none."""

    loops: frozenset[int] = frozenset()
    """Those that plain text is known not to lead out of: none."""

    def __init__(
        self,
        grammar: ir.ContextFree,
        chars: ir.CharSet,
        embedded: Mapping[int, tuple[Alternative, ...]] | None = None,
        facts: GrammarFacts | None = None,
    ) -> None:
        self.grammar = grammar
        self._chars = chars
        self._ways = embedded or {}
        self.start = _START
        self.fingerprint: str | None = None
        if facts is not None and not embedded:
            of = facts.fingerprint(grammar)
            self.fingerprint = None if of is None else f"{of} {chars.ranges}"
        kept = facts if len(grammar.rules) >= _WORTH_KEEPING else None
        known: bool | None = None
        if kept is not None and self.fingerprint is not None:
            known = kept.find_flag("is free", self.fingerprint)
        if known is not None:
            # Then it has been built before, and whatever may be wrong with it is not.
            self.is_free = known
            return
        self._build()
        if kept is not None and self.fingerprint is not None:
            kept.keep_flag("is free", self.fingerprint, self.is_free)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """What `_build` makes, when it is first asked for."""
            if name.startswith("__") or "states" in self.__dict__:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            self._build()
            return getattr(self, name)

    def _unsatisfiable(self, why: str) -> Unsatisfiable:
        """What to raise where there is no text: the vocabulary is at fault where it has no token
        for a character that all texts have."""
        if self._chars != ir.ANY_CHAR:
            try:
                CfgMachine(self.grammar, ir.ANY_CHAR, self._ways)
            except Unsatisfiable:
                pass
            else:
                return Unsatisfiable(
                    "no text that this vocabulary can write matches the grammar: it has no token "
                    "for single characters that all texts need."
                )
        return Unsatisfiable(f"no text matches the grammar: {why}")

    def _build(self) -> None:
        with GROW:
            if "states" in self.__dict__:
                return  # another thread was first
            grammar = self.grammar
            lexer = None if self._ways else shared_lexer(grammar.terminals, self._chars)
            terminals = lexer.terminals if lexer else Terminals(grammar.terminals, self._chars)
            for t, ways in self._ways.items():
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
            if "is_free" not in self.__dict__:
                self.is_free = self._neighbours.is_free() or self._neighbours.is_safe()
            if lexer and not self.is_free:
                # How terminals may end depends on places, which are this grammar's own.
                self.lexer = self._own_lexer(terminals)
            ends = ConditionalEnds(goals, self.lexer, tuple(sorted(self.ignore)))
            self._rests = Rests(self.graph, ends.of, ends.at_end)
            self._entries: dict[tuple[int, int], int] = {}
            self._free_entries: dict[tuple[tuple[int, ...], int], int] = {}
            # See `_fine` and `_met`.
            self._asked: dict[tuple[int, ...], _Asked] = {}
            self._answered: dict[
                tuple[tuple[int, ...], tuple[bool, ...]], tuple[frozenset[int], frozenset[int]]
            ] = {}
            self._met_by: dict[int, tuple[frozenset[int], frozenset[int]]] = {}
            self._finish: dict[int, Text] = {}
            found: set[int] = set()
            self._begin(self.graph.start, self._lookahead.anything, found)
            if not found and not self.embedded_at(self.graph.start, self._lookahead.anything):
                raise self._unsatisfiable(
                    "its terminals take more than the rules leave for what must follow them. A "
                    "terminal takes the longest text it can (or the shortest, with a lazy "
                    "quantifier); put something between them that they cannot contain."
                )
            if not found:
                self.start = DEAD
            # Last, as other threads read these without the lock.
            start = tuple(sorted(found))
            self._state_ids: dict[tuple[int, ...], int] = {start: _START, (): DEAD}
            self._accepting: list[bool] = [False, _ACCEPT in found]
            self._steps: dict[int, int] = {}
            self.states: list[tuple[int, ...]] = [(), start]

    def _own_lexer(self, terminals: Terminals) -> Lexer:
        """A lexer that asks the machine how terminals may end, and does not keep it alive."""
        machine = weakref.ref(self)

        def permits(place: int, condition: int) -> bool:
            asked = machine()
            assert asked is not None, "what a machine is made of is used after it"
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

    @property
    def n_states(self) -> int:
        """How many states have been reached; 0 as long as the first mask is all that was asked."""
        return len(self.states) if "states" in self.__dict__ else 0

    @property
    def weight(self) -> int:
        """About how many bytes its states take; see `machine.Machine.weight`."""
        if not self.n_states:
            return 0
        return 400 * (len(self.states) + len(self._steps)) + 300 * len(self._entries)

    # -- the recogniser ---------------------------------------------------------------------------

    def step(self, state: int, byte: int) -> int:
        """The state after ``byte``, or `DEAD`."""
        to = self._steps.get(state << 8 | byte)
        if to is None:
            to = self._grow(state, byte)
        return to

    def read(self, state: int, data: bytes, start: int = 0) -> tuple[int, int]:
        """The state after ``data[start:]``, or `DEAD`, and where the data end.

        On the way no states are made, and nothing is begun that the next byte does not begin.
        """
        with GROW:
            run, end = self.lexer.run, len(data)
            configurations: Collection[int] = self.states[state]
            before = -2  # no configuration
            i = start
            while True:
                if len(configurations) == 1:
                    (only,) = configurations
                    if only == before:
                        # A terminal that may end here goes on as before: up to the last byte that
                        # leaves no choice.
                        staying = self.lexer.staying(only & _LEXER_MASK)
                        i = max(i, end - len(data[i:].lstrip(staying)) - 1)
                    elif only != _ACCEPT:
                        # Nearly always: the terminal goes on, and cannot end.
                        q, i = run(only & _LEXER_MASK, data, i)
                        if only & _LEXER_MASK != q:
                            only = only & ~_LEXER_MASK | q
                            configurations = (only,)
                        if i == end:
                            found = self._state_ids.get((only,))
                            return found or self._intern((only,)), end
                    before = only
                after: set[int] = set()
                self._advance(configurations, data[i], after, data[i + 1] if i + 1 < end else None)
                i += 1
                if i == end:
                    return self._intern(after), end
                configurations = after

    def is_accepting(self, state: int) -> bool:
        """Whether the text may end in ``state``."""
        return self._accepting[state]

    def is_pending(self, state: int) -> bool:
        """Whether ``state`` depends on the text so far: never."""
        return False

    def resolve(self, state: int, tape: TextHistory) -> int:
        """``state`` itself."""
        return state

    def configurations(self, state: int) -> list[tuple[int, int]]:
        """The ``(lexer state, place)`` pairs of ``state``."""
        return [(c & _LEXER_MASK, c >> _LEXER_BITS) for c in self.states[state] if c != _ACCEPT]

    def next_bytes(self, state: int) -> set[int]:
        """The bytes that may follow."""
        out: set[int] = set()
        for q, _ in self.configurations(state):
            out.update(self.lexer.row(q))
        return out

    def forced_byte(self, state: int) -> int:
        """The only byte that may follow, or -1 when there are several or the text may end."""
        if self._accepting[state]:
            return -1
        forced = -1
        for q, _ in self.configurations(state):
            row = self.lexer.row(q)
            if len(row) != 1:
                return -1
            (byte,) = row
            if forced not in (-1, byte):
                return -1
            forced = byte
        return forced

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

    # -- growth -----------------------------------------------------------------------------------

    def _begin(
        self, place: int, condition: int, found: set[int], following: int | None = None
    ) -> None:
        """Add what follows a terminal: the next one, or the end of the text."""
        if (
            following is None
            and self.graph.accepting[place]
            and self._lookahead.label(condition) >= 0
        ):
            found.add(_ACCEPT)
        q = self.entry(place, condition)
        if q >= 0:
            found.add(place << _LEXER_BITS | q)

    def _grow(self, state: int, byte: int) -> int:
        with GROW:
            found: set[int] = set()
            self._advance(self.states[state], byte, found)
            result = self._intern(found)
            self._steps[state << 8 | byte] = result
            return result

    def _advance(
        self,
        configurations: Iterable[int],
        byte: int,
        found: set[int],
        following: int | None = None,
    ) -> None:
        """Add to ``found`` what ``byte`` leads to; only what may be gone on with by the byte
        ``following``, where that is given."""
        lexer = self.lexer
        ended: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
        for configuration in configurations:
            if configuration == _ACCEPT:
                continue
            to = lexer.step(configuration & _LEXER_MASK, byte)
            if to < 0:
                continue
            if lexer.goes_on(to):
                found.add(configuration & ~_LEXER_MASK | to)
            outcome = lexer.label(to)
            if outcome >= 0:
                place = configuration >> _LEXER_BITS
                for condition, terminals in lexer.outcomes[outcome]:
                    if following is None or lexer.mask_under(condition) >> following & 1:
                        ended.setdefault(condition, []).append((place, terminals))
        for condition, ways in ended.items():
            if len(ways) == 1:
                ((place, terminals),) = ways
                self._begin(self.after(place, terminals), condition, found, following)
                continue
            places = dict.fromkeys(self.after(place, terminals) for place, terminals in ways)
            self._begin(self.union(tuple(places)), condition, found, following)

    def _intern(self, found: Collection[int]) -> int:
        if len(found) > MAX_CONFIGURATIONS:
            raise CompileLimitExceeded(
                "too many alternatives are open at once",
                limit=MAX_CONFIGURATIONS,
                actual=len(found),
            )
        key = tuple(sorted(found))
        state = self._state_ids.get(key)
        if state is None:
            WORK.spend(1 + (len(key) >> 2))
            state = len(self.states)
            if state > MAX_STATES:
                raise CompileLimitExceeded(
                    "too many automaton states", limit=MAX_STATES, actual=state
                )
            self.states.append(key)
            self._accepting.append(_ACCEPT in found)
            self._state_ids[key] = state
        return state

    # -- completion -------------------------------------------------------------------------------

    def placed(self, error: CompileLimitExceeded, state: int) -> CompileLimitExceeded:
        """``error``, which was met at ``state``, with the rules that are open there."""
        if error.path is not None or not self.n_states:
            return error
        goals, names = self.graph.goals, self.grammar.nonterminals
        rules: dict[str, None] = {}
        for _, place in self.configurations(state):
            for top, _ in self.graph.places[place]:
                goal = goals.goal_of[top]
                rules[names[goal if goal < len(names) else self.grammar.start]] = None
        return error.at(f"rule {', '.join([*rules][:_MOST_NAMED])}") if rules else error

    def shortest_completion(self, state: int, tape: TextHistory | None = None) -> Text:
        """A short way from ``state`` to acceptance; the same one every time.

        Not always the shortest: between two terminals it takes the ways that are safe for all that
        the first one may demand.
        """
        if self._accepting[state]:
            return b""
        found = self._finish.get(state)
        if found is None:
            with GROW:
                ways = [self.complete(q, place) for q, place in self.configurations(state)]
                found = min((w for w in ways if w is not None), key=lambda b: (len(b), b))
                self._finish[state] = found
        return found

    def complete_place(self, place: int, condition: int) -> Text | None:
        """A short way to acceptance from a place."""
        found = self._neighbours.rests.text_of(place, condition)
        return self._rests.text_of(place, condition) if found is None else found

    def complete(self, q: int, place: int) -> Text | None:
        """A short way from one configuration to acceptance."""
        best: Text | None = None
        exits, inside = self.lexer.exits, self.lexer.threads(q)
        for (terminal, condition), text in exits.near_inside(inside).items():
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
