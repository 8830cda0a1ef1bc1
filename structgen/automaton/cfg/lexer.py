"""The lexer of a grammar: all expected terminals at once, as one leaf automaton over bytes.

- `TerminalSets` reads several terminals at once, character by character. A state has each terminal
  that is still possible with its state, and the condition of the previous terminal on the following
  text.
- `TerminalEnds` finds the fewest bytes that end a terminal, for each condition with which it can
  end. Completions and budgets use it; masks do not.
- `Lexer` is the leaf. Several terminals may end at one point, each with its own condition; together
  they are an outcome. There are no states from which no terminal can end.

The lexer knows no rules: the caller chooses the expected terminals (`Lexer.entry`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from structgen.automaton import liveness
from structgen.automaton.bits import bits
from structgen.automaton.core.leaf import Leaf, Row
from structgen.automaton.core.shared import AUTOMATA
from structgen.automaton.regex.alphabet import Alphabet
from structgen.automaton.regex.encoding import GROUND, Utf8
from structgen.automaton.regex.expressions import NONE
from structgen.automaton.regex.lookarounds import Moves
from structgen.automaton.texts import Text, put
from structgen.automaton.work import WORK
from structgen.errors import CompileLimitExceeded
from structgen.grammar import ir
from structgen.storage import Numbers, cached_method

from .terminals import Terminals


class AtomBytes:
    """Bytes of sets of minterms, given as masks.

    Attributes:
        leads: lead bytes, each with the encoding's node after it.
        minterm_of_byte: the minterm of each ASCII character; no minterm for the other bytes.
        of_minterm: the ASCII characters of one minterm, as a mask of bytes.
        leads_of: sets of minterms that lead bytes may lead to, with these bytes as a mask.
        beyond_ascii: the minterms that have characters beyond ASCII.
    """

    def __init__(self, alphabet: Alphabet, encoding: Utf8) -> None:
        ascii_minterms = alphabet.ascii_minterms()
        ground: dict[int, list[int]] = {}
        for byte, minterm in enumerate(ascii_minterms):
            ground.setdefault(minterm, []).append(byte)
        self._ground = ground
        self.of_minterm = {
            minterm: sum([1 << byte for byte in found]) for minterm, found in ground.items()
        }
        self.leads_of: dict[int, int] = {}
        row = encoding.row(GROUND)
        self.leads = [(byte, target) for byte, target in row.items() if target >= 0]
        self.beyond_ascii = 0
        for byte, target in self.leads:
            reach = encoding.reach(target)
            self.leads_of[reach] = self.leads_of.get(reach, 0) | 1 << byte
            self.beyond_ascii |= reach
        self.minterm_of_byte = [*ascii_minterms, *[alphabet.n_minterms] * 128]
        self._spellings = {minterm: len(found) for minterm, found in ground.items()}

    @cached_method
    def ascii(self, minterms: int) -> list[int]:
        """Return the ASCII characters of the minterms in a mask."""
        return [byte for minterm in bits(minterms) for byte in self._ground.get(minterm, ())]

    @cached_method
    def first(self, minterms: int) -> int:
        """Return the first bytes of characters of the minterms, as a mask."""
        found = 0
        for minterm in bits(minterms):
            found |= self.of_minterm.get(minterm, 0)
        for reach, mask in self.leads_of.items():
            if reach & minterms:
                found |= mask
        return found

    @cached_method
    def width(self, minterms: int) -> int:
        """Return roughly the number of bytes of characters of the minterms."""
        return sum(self._spellings.get(a, 4) for a in bits(minterms))


Outcome = tuple[tuple[int, tuple[int, ...]], ...]
"""Pairs of a condition on the rest and the terminals that may end under it."""

Expected = tuple[int, "frozenset[int] | int | None"]
"""A terminal and the conditions under which it may end here: any (None), a set, or those that
`TerminalSets.permits` allows for a number of the caller."""

Threads = tuple[tuple[int, int], ...]
"""Pairs of a variant and a state of its terminal."""

MAX_SEARCH = 100_000
"""The most states of one terminal that are visited to find all its ends."""


class TerminalSets:
    """An automaton over characters that reads several terminals at once.

    Attributes:
        terminals: the terminals.
        permits: returns whether a terminal expected with a number may end under a condition; None
            if no terminal is expected with a number.
        variants: terminals with the conditions under which they may end, if not all are allowed.
            Terminals that may end under any condition have their own numbers.
        variant: the number of each.
        keys: the condition and the threads of each state.
        labels: the number of the outcome of each state, or -1.
        outcomes: the outcome of each number.
        conditions_of: the conditions of each outcome.
    """

    def __init__(self, terminals: Terminals, permits: Callable[[int, int], bool] | None) -> None:
        self.terminals = terminals
        self.permits = permits
        self.variant: Numbers[Expected] = Numbers([(t, None) for t in range(len(terminals.starts))])
        self.variants = self.variant.listed
        self.keys: list[tuple[int, Threads]] = []
        self._ids: dict[tuple[int, Threads], int] = {}
        self._moves: list[Moves | None] = []
        self.labels: list[int] = []
        self.outcomes: list[Outcome] = []
        self.conditions_of: list[tuple[int, ...]] = []
        self._outcome_ids: dict[Outcome, int] = {}
        self._alive: dict[tuple[int, int, int], bool] = {}

    def state(self, condition: int, threads: Iterable[tuple[int, int]]) -> int:
        """Return the state of terminals in their states, under ``condition``."""
        key = (condition, tuple(threads))
        found = self._ids.get(key)
        if found is None:
            WORK.spend(1 + (len(key[1]) >> 2))
            outcome = self._outcome(*key)  # may exceed a limit: nothing has been added yet
            found = self._ids[key] = len(self.keys)
            self.keys.append(key)
            self._moves.append(None)
            self.labels.append(outcome)
        return found

    def _outcome(self, condition: int, threads: Threads) -> int:
        ends: dict[int, list[int]] = {}
        for v, q in threads:
            end = self.end(v, q, condition)
            if end != NONE:
                ends.setdefault(end, []).append(self.variants[v][0])
        if not ends:
            return -1
        outcome = tuple((end, tuple(dict.fromkeys(ts))) for end, ts in sorted(ends.items()))
        found = self._outcome_ids.get(outcome)
        if found is None:
            found = self._outcome_ids[outcome] = len(self.outcomes)
            self.outcomes.append(outcome)
            self.conditions_of.append(tuple([end for end, _ in outcome]))
        return found

    def end(self, v: int, q: int, condition: int) -> int:
        """Return the condition on the rest when terminal ``v`` ends at ``q``, or `NONE`."""
        rest = self.terminals.lookahead
        end = self.terminals.end(q)
        if end == NONE:
            return NONE
        if condition != rest.anything:
            end = rest.both(condition, end)
            if not rest.is_possible(end):
                return NONE
        allowed = self.variants[v][1]
        if isinstance(allowed, int):
            assert self.permits is not None
            return end if self.permits(allowed, end) else NONE
        return end if allowed is None or end in allowed else NONE

    def steps(self, q: int, condition: int) -> list[tuple[int, int, int]]:
        """Return the moves of a terminal from ``q``: minterms as a mask, its state and the
        condition after them."""
        rest = self.terminals.lookahead
        moves = self.terminals.moves(q)
        if condition == rest.anything:
            return [(mask, to, condition) for mask, to in moves]
        conditions = rest.steps(condition)
        return [(m & n, to, w) for m, to in moves for n, w in conditions if m & n]

    def is_alive(self, v: int, q: int, condition: int) -> bool:
        """Return whether terminal ``v`` can still end from ``q``."""
        anything = self.terminals.lookahead.anything
        unrestricted = self.variants[v][1] is None
        if unrestricted and condition == anything:
            return True  # a terminal's own states all lead to an end
        return liveness.is_alive(
            (v, q, condition),
            self._alive,
            lambda s: (unrestricted and s[2] == anything) or self.end(*s) != NONE,
            lambda s: [(v, to, w) for _, to, w in self.steps(s[1], s[2])],
            MAX_SEARCH,
            "telling whether a terminal can end visits too many states",
        )

    def moves(self, state: int) -> Moves:
        """Return disjoint ``(minterm mask, next state)`` pairs without dead ends."""
        found = self._moves[state]
        if found is not None:
            return found
        condition, threads = self.keys[state]
        rest = self.terminals.lookahead
        free = condition == rest.anything
        conditions: Moves = ((self.terminals.alphabet.everything, condition),)
        if not free:
            conditions = rest.steps(condition)
        merged: dict[int, int] = {}
        for chars, w in conditions:
            parts: list[tuple[int, Threads]] = [(chars, ())]
            for v, q in threads:
                plain = w == rest.anything and self.variants[v][1] is None
                moves = [
                    (mask, to)
                    for mask, to in self.terminals.moves(q)
                    if mask & chars and (plain or self.is_alive(v, to, w))
                ]
                if not moves:
                    continue
                split: list[tuple[int, Threads]] = []
                for part, above in parts:
                    for mask, to in moves:
                        here = part & mask
                        if here:
                            part &= ~mask
                            split.append((here, (*above, (v, to))))
                    if part:
                        split.append((part, above))
                parts = split
            for part, above in parts:
                if above:
                    to = self.state(w, above)
                    merged[to] = merged.get(to, 0) | part
        found = self._moves[state] = tuple((mask, to) for to, mask in merged.items())
        return found

    def live(self, state: int) -> int:
        """Return the minterms that may follow."""
        found = 0
        for mask, _ in self.moves(state):
            found |= mask
        return found

    def after_minterm(self, state: int, minterm: int) -> int:
        """Return the state after one minterm, or -1: one entry of `moves`."""
        condition, threads = self.keys[state]
        rest, bit = self.terminals.lookahead, 1 << minterm
        after = condition
        if condition != rest.anything:
            after = next((w for mask, w in rest.steps(condition) if mask & bit), NONE)
            if after == NONE:
                return -1
        above: list[tuple[int, int]] = []
        for v, q in threads:
            for mask, to in self.terminals.moves(q):
                if mask & bit and self.is_alive(v, to, after):
                    above.append((v, to))
        return self.state(after, above) if above else -1

    def is_met_at_once(self, terminal: int, condition: int) -> bool | None:
        """Return whether every first character of a terminal meets ``condition``.

        Returns:
            None if no character can begin the terminal there.
        """
        rest = self.terminals.lookahead
        first = self.terminals.first(terminal)
        if first == self.terminals.end_of_text:
            return True if rest.label(condition) >= 0 else None
        possible, settling = rest.possible(condition)
        return not first & possible & ~settling if first & possible else None

    @cached_method
    def is_free_of(self, terminal: int, condition: int) -> bool:
        """Return whether each first character of a terminal settles ``condition``."""
        left = self.terminals.first(terminal) & ~self.terminals.lookahead.settling(condition)
        return not left


_NEAR = 50

Inside = tuple[int, Threads, int]
"""The content of a lexer state: the condition, its threads, the node of the encoding."""


class TerminalEnds:
    """The ends of the terminals of one lexer."""

    def __init__(self, sets: TerminalSets, encoding: Utf8) -> None:
        self._sets = sets
        self._terminals = sets.terminals
        self._encoding = encoding
        self._known: dict[tuple[int, int, int], tuple[dict[int, Text], bool, int]] = {}
        self._known_near: dict[tuple[int, int, int], dict[int, Text]] = {}

    def from_state(
        self, v: int, state: int, condition: int, most: int = MAX_SEARCH
    ) -> dict[int, Text] | None:
        """Map each condition under which a terminal can end to the fewest bytes until then.

        Args:
            v: the variant.
            state: the terminal's state.
            condition: the condition on the rest from here on.
            most: the most states to visit.

        Returns:
            The bytes, or None if that needs more states.
        """
        if v in self._terminals.embedded:
            return self._of_embedded(v, condition)
        key = (v, state, condition)
        known = self._known.get(key)
        if known is None or (not known[1] and known[2] < most):
            known = self._known[key] = self._find_exits(v, state, condition, most)
        return known[0] if known[1] else None

    def of(self, terminal: int, condition: int, near: bool = False) -> dict[int, Text]:
        """Return the ends of a terminal from its start; with ``near``, some near ones."""
        if terminal in self._terminals.embedded:
            return self._of_embedded(terminal, condition)
        start = self._terminals.starts[terminal]
        if not self._sets.is_alive(terminal, start, condition):
            return {}
        return self._ends(terminal, start, condition, near)

    @cached_method
    def inside(self, inside: Inside, near: bool) -> dict[tuple[int, int], Text]:
        """Map each (terminal, condition) that can end from a lexer state to the fewest bytes; with
        ``near``, only some near ones."""
        found: dict[tuple[int, int], Text] = {}
        for v, state, condition, text in self._completed(inside):
            for end, more in self._ends(v, state, condition, near).items():
                key = (self._sets.variants[v][0], end)
                whole = put(text, more)
                if key not in found or len(whole) < len(found[key]):
                    found[key] = whole
        return found

    def shortest_beginning(self, terminal: int, minterms: int) -> tuple[Text, int]:
        """Return the fewest bytes of ``terminal`` that begin with one of ``minterms``; some exist.

        Returns:
            The bytes, and the condition under which the terminal ends there.
        """
        spelt = self._encoding.shortest(GROUND)
        anything = self._terminals.lookahead.anything
        inner = self._terminals.embedded.get(terminal)
        if inner is not None:
            return inner.shortest(inner.first & minterms), anything
        texts: list[tuple[Text, int]] = []
        for mask, to in self._terminals.moves(self._terminals.starts[terminal]):
            if mask & minterms:
                ends = self._ends(terminal, to, anything, True)
                end, more = min(ends.items(), key=lambda item: (len(item[1]), item[1]))
                texts += [(put(spelt[minterm], more), end) for minterm in bits(mask & minterms)]
        return min(texts, key=lambda pair: (len(pair[0]), pair))

    def _find_exits(
        self, v: int, state: int, condition: int, most: int
    ) -> tuple[dict[int, Text], bool, int]:
        found: dict[int, Text] = {}
        seen: set[tuple[int, int]] = set()
        # Breadth first by length in bytes; a character has one to four.
        levels: list[dict[tuple[int, int], Text]] = [{(state, condition): b""}, {}, {}, {}, {}]
        while any(levels):
            level = levels.pop(0)
            levels.append({})
            for (q, w), text in level.items():
                if (q, w) in seen:
                    continue
                if len(seen) >= most:
                    return found, False, most
                seen.add((q, w))
                WORK.spend(2)
                end = self._sets.end(v, q, w)
                if end != NONE:
                    found.setdefault(end, text)
                for mask, to, w_to in self._sets.steps(q, w):
                    if (to, w_to) in seen or not self._sets.is_alive(v, to, w_to):
                        continue
                    best = self._character(mask)
                    levels[len(best) - 1].setdefault((to, w_to), put(text, best))
        return found, True, most

    def _ends(self, v: int, state: int, condition: int, near: bool) -> dict[int, Text]:
        """Like `from_state`; with ``near``, return some near ends, at least one if there is any."""
        if not near:
            whole = self.from_state(v, state, condition)
            if whole is not None:
                return whole
            raise CompileLimitExceeded(
                "finding all ends of a terminal visits too many states",
                limit=MAX_SEARCH,
                actual=MAX_SEARCH,
            )
        key = (v, state, condition)
        found = self._known_near.get(key)
        most = _NEAR
        while found is None:
            some, complete, _ = self._find_exits(v, state, condition, most)
            if some or complete:
                found = self._known_near[key] = some
            most *= 8
            if found is None and most > 8 * MAX_SEARCH:
                raise CompileLimitExceeded(
                    "finding the end of a terminal visits too many states",
                    limit=MAX_SEARCH,
                    actual=most,
                )
        return found

    def _of_embedded(self, terminal: int, condition: int) -> dict[int, Text]:
        """Return the ends of a non-pattern terminal: its first character settles ``condition``."""
        rest, inner = self._terminals.lookahead, self._terminals.embedded[terminal]
        minterms = inner.first & self._terminals.settled_by([condition])[0]
        return {rest.anything: inner.shortest(minterms)} if minterms else {}

    def _completed(self, inside: Inside) -> list[tuple[int, int, int, bytes]]:
        """Return variant, state and condition after the current character, and the bytes that
        complete it."""
        condition, threads, node = inside
        if node == GROUND:
            return [(v, state, condition, b"") for v, state in threads]
        spelt = self._encoding.shortest(node)
        out: list[tuple[int, int, int, bytes]] = []
        for v, state in threads:
            for mask, to, w in self._sets.steps(state, condition):
                texts = [spelt[a] for a in bits(mask) if a in spelt]
                if texts and self._sets.is_alive(v, to, w):
                    out.append((v, to, w, min(texts, key=lambda s: (len(s), s))))
        return out

    @cached_method
    def _character(self, minterms: int) -> bytes:
        """Return the shortest character of a mask of minterms."""
        spelt = self._encoding.shortest(GROUND)
        return min((spelt[a] for a in bits(minterms)), key=lambda s: (len(s), s))


_WIDE = 24
_EVERY_BYTE = (1 << 256) - 1


def as_flags(mask: int) -> npt.NDArray[np.bool_]:
    """Return a mask of bytes as flags: bool [256]."""
    packed = np.frombuffer(mask.to_bytes(32, "little"), np.uint8)
    return np.unpackbits(packed, bitorder="little").view(np.bool_)


def shared_lexer(terminals: Sequence[ir.AnyTerminal], chars: ir.CharSet) -> Lexer | None:
    """Return the lexer of all grammars with these terminals, none expected with a number.

    It is cached like the leaves of schemas, with its states, for the next grammar with these
    terminals. None if a terminal is not a pattern.
    """
    if not all(isinstance(t, ir.Terminal) for t in terminals):
        return None
    return AUTOMATA.get(_shared_lexer, tuple(terminals), chars)


def _shared_lexer(terminals: tuple[ir.Terminal, ...], chars: ir.CharSet) -> Lexer:
    return Lexer(Terminals(terminals, chars))


class Lexer(Leaf):
    """The lexer of one grammar.

    Attributes:
        terminals: the terminals.
        outcomes: the outcome of each label.
        conditions_of: the conditions of each outcome.
        ends: how terminals may end.
        is_met_at_once, is_free_of: see `TerminalSets`; without its ``permits``, all grammars may
            share the lexer (`shared_lexer`).
    """

    is_shared = False
    of_grammar = True

    def __init__(
        self, terminals: Terminals, permits: Callable[[int, int], bool] | None = None
    ) -> None:
        super().__init__()
        self.terminals = terminals
        self._sets = sets = TerminalSets(terminals, permits)
        self.outcomes, self.conditions_of = sets.outcomes, sets.conditions_of
        self.is_met_at_once, self.is_free_of = sets.is_met_at_once, sets.is_free_of
        self.encoding = Utf8(terminals.alphabet)
        self.ends = TerminalEnds(sets, self.encoding)
        self._minterm_bytes = AtomBytes(terminals.alphabet, self.encoding)
        self._steps_taken: dict[int, int] = {}

    @property
    def weight(self) -> int:
        """See `Leaf.weight`."""
        sets = self._sets.keys
        open_threads = sum([len(threads) for _, threads in sets])
        return super().weight + self.terminals.weight + 300 * len(sets) + 64 * open_threads

    @cached_method
    def entry(self, expected: frozenset[int] | tuple[Expected, ...], condition: int) -> int:
        """Return the state before any of ``expected``, under ``condition``."""
        starts, anything = self.terminals.starts, self.terminals.lookahead.anything
        threads = []
        variants = {e if isinstance(e, int) else self._sets.variant[e] for e in expected}
        for v in sorted(variants):
            t = self._sets.variants[v][0]
            if starts[t] < 0:
                continue
            # Usually the first character settles it.
            met = v == t and (condition == anything or self.is_met_at_once(t, condition))
            if met or self._sets.is_alive(v, starts[t], condition):
                threads.append((v, starts[t]))
        return self.state((self._sets.state(condition, threads), GROUND))

    def threads(self, q: int) -> Inside:
        """Return the contents of a state."""
        symbol, node = self._keys[q]
        condition, threads = self._sets.keys[symbol]
        return condition, threads, node

    # -- rows -----------------------------------------------------------------------------------

    def n_bytes(self, q: int) -> int:
        """Return roughly the number of bytes that can follow."""
        symbol, node = self._keys[q]
        if node != GROUND:
            return 64
        return self._minterm_bytes.width(self._sets.live(symbol))

    @cached_method
    def split(self, q: int) -> tuple[int, ...]:
        """Return states that together are equivalent to ``q``. Each terminal with very many
        continuations gets a separate state, so that all states that contain it share its walks."""
        symbol, node = self._keys[q]
        condition, threads = self._sets.keys[symbol]
        wide = [t for t in threads if self._is_wide(t[1])] if len(threads) > 1 else []
        if not wide:
            return (q,)
        narrow = [t for t in threads if t not in wide]
        groups = [[t] for t in wide] + ([narrow] if narrow else [])
        return tuple(self.state((self._sets.state(condition, g), node)) for g in groups)

    @cached_method
    def begun(self, q: int) -> tuple[int, ...]:
        """Return states that together are equivalent to ``q``, if all its terminals begin there:
        one for each terminal, without conditions that do not affect it."""
        condition, threads, node = self.threads(q)
        terminals, anything = self.terminals, self.terminals.lookahead.anything
        if node != GROUND or any(
            state != terminals.starts[self._sets.variants[v][0]] for v, state in threads
        ):
            return (q,)
        states: list[int] = []
        for v, state in threads:
            is_met = v < len(terminals.starts) and self.is_free_of(v, condition)
            symbol = self._sets.state(anything if is_met else condition, ((v, state),))
            states.append(self.state((symbol, GROUND)))
        return tuple(states)

    @cached_method
    def first_bytes(self, q: int) -> int:
        """Return the bytes that can follow, as a mask."""
        symbol, node = self._keys[q]
        if node == GROUND:
            return self._minterm_bytes.first(self._sets.live(symbol))
        found = 0
        for byte in self.row(q):
            found |= 1 << byte
        return found

    @cached_method
    def loop(self, q: int) -> tuple[int, bytes, Mapping[int, int]] | None:
        """Return many characters that lead back to ``q``, which is between characters, and the
        other bytes of its row.

        Returns:
            A mask of bytes: ASCII, and lead bytes all of whose characters lead back; the same as
                256 flags; and the rest of the row. None if the rest is larger.
        """
        symbol, node = self._keys[q]
        if node != GROUND:
            return None
        back = others = inside = 0
        for mask, to in self._sets.moves(symbol):
            if to == symbol:
                back |= mask
            else:
                others |= mask
        if not back:
            return None
        for minterm in bits(back):
            inside |= self._minterm_bytes.of_minterm.get(minterm, 0)
        for reach, mask in self._minterm_bytes.leads_of.items():
            if not reach & ~back:
                inside |= mask
        # If most bytes lead away, runs are short, and as many as nodes.
        leaving = self._minterm_bytes.first(back | others) & ~inside
        if inside.bit_count() < leaving.bit_count():
            return None
        rest: dict[int, int] = {}
        self._add_characters(rest, symbol, others)
        self._add_leads(rest, symbol, leaving)
        return inside, as_flags(inside).tobytes(), rest

    def _is_wide(self, state: int) -> bool:
        live = 0
        for mask, _ in self.terminals.moves(state):
            live |= mask
        return self._minterm_bytes.width(live) > _WIDE

    def following(self, outcome: int) -> int:
        """Return the bytes that may follow after ``outcome``, as a mask."""
        mask = 0
        for condition in self.conditions_of[outcome]:
            mask |= self.mask_under(condition)
        return mask

    @cached_method
    def mask_under(self, condition: int) -> int:
        """Return the bytes that may follow under ``condition``, as a mask."""
        rest = self.terminals.lookahead
        if condition == rest.anything:
            return _EVERY_BYTE
        return self._minterm_bytes.first(rest.possible(condition)[0])

    @cached_method
    def continues(self, q: int) -> bool:
        """Return whether any byte may follow ``q``."""
        symbol, node = self._keys[q]
        condition, threads = self._sets.keys[symbol]
        # Inside a character there is always a continuation.
        return node != GROUND or any(
            self._sets.is_alive(v, to, after)
            for v, state in threads
            for _, to, after in self._sets.steps(state, condition)
        )

    def step(self, q: int, byte: int) -> int:
        """Return the state after ``byte``, or -1. Makes no row for a single step."""
        row = self._rows[q]
        if row is not None:
            return row.get(byte, -1)
        key = q << 8 | byte
        found = self._steps_taken.get(key)
        if found is None:
            symbol, node = self._keys[q]
            if node != GROUND or byte >= 0x80:
                return self.row(q).get(byte, -1)
            to = self._sets.after_minterm(symbol, self._minterm_bytes.minterm_of_byte[byte])
            found = self._steps_taken[key] = -1 if to < 0 else self.state((to, GROUND))
        return found

    def run(self, q: int, data: bytes, i: int) -> tuple[int, int]:
        """Read ``data[i:]`` from ``q`` up to a byte that ends a terminal, or that no terminal
        accepts.

        Returns:
            The state before that byte, and its index; or the state at the end of the data.
        """
        rows, labels, step, end = self._rows, self.labels, self.step, len(data)
        while i < end:
            row = rows[q]
            to = step(q, data[i]) if row is None else row.get(data[i], -1)
            if to < 0 or labels[to] >= 0:
                break
            i += 1
            if to == q:
                i = end - len(data[i:].lstrip(self.staying(q)))
            q = to
        return q, i

    @cached_method
    def staying(self, q: int) -> bytes:
        """Return the bytes below 128 that lead from ``q`` back to ``q`` and may not follow an end
        of a terminal there. Runs of them are read at once."""
        symbol, node = self._keys[q]
        back = 0
        for mask, to in self._sets.moves(symbol) if node == GROUND else ():
            if to == symbol:
                back |= mask
        under = self.following(self.labels[q]) if self.labels[q] >= 0 else 0
        inside = self._minterm_bytes.ascii(back)
        return bytes([b for b in inside if not under >> b & 1])

    def _add_characters(self, row: dict[int, int], symbol: int, minterms: int) -> None:
        """Add to a row the ASCII characters of the minterms with which ``symbol`` moves."""
        for mask, to in self._sets.moves(symbol):
            if mask & minterms:
                state = self.state((to, GROUND))
                row.update(dict.fromkeys(self._minterm_bytes.ascii(mask & minterms), state))

    def _add_leads(self, row: dict[int, int], symbol: int, mask: int) -> None:
        """Add to a row the bytes of a mask that begin longer characters."""
        for byte, deeper in self._minterm_bytes.leads:
            if mask >> byte & 1:
                row[byte] = self.state((symbol, deeper))

    def _new_row(self, key: Any) -> Row:
        symbol, node = key
        if node != GROUND:
            return super()._new_row(key)
        row: Row = {}
        live = self._sets.live(symbol)
        self._add_characters(row, symbol, live)
        if live & self._minterm_bytes.beyond_ascii:
            self._add_leads(row, symbol, self._minterm_bytes.first(live))
        return row

    def _edges(self, key: Any) -> Mapping[int, Any]:
        symbol, node = key
        edges: dict[int, Any] = {}
        live = 0
        targets: dict[int, int] = {}
        for mask, to in self._sets.moves(symbol):
            live |= mask
            for minterm in bits(mask):
                targets[minterm] = to
        for byte, deeper in self.encoding.row(node).items():
            if deeper >= 0:
                if self.encoding.reach(deeper) & live:
                    edges[byte] = (symbol, deeper)
            elif ~deeper in targets:
                edges[byte] = (targets[~deeper], GROUND)
        return edges

    def _label(self, key: Any) -> int:
        symbol, node = key
        return self._sets.labels[symbol] if node == GROUND else -1
