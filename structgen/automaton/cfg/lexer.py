"""The lexer of a grammar: all expected terminals at once, as one leaf automaton over bytes.

A state is one of `terminal_sets`, a set of terminals being read, in a character begun or
between two. It may end with several terminals at the same place, each with its own condition on the
rest: an outcome. States from which no terminal can end are left out. How terminals may end is asked
of `exits`.

It knows nothing of rules: which terminals are expected is the caller's choice (`Lexer.entry`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from structgen.automaton.bits import bits
from structgen.automaton.core.leaf import Leaf, Row
from structgen.automaton.core.shared import AUTOMATA
from structgen.automaton.regex.alphabet import NO_ATOM
from structgen.automaton.regex.encoding import GROUND, Utf8
from structgen.grammar import ir

from .exits import Exits, Inside
from .minterm_bytes import AtomBytes
from .terminal_sets import Expected, TerminalSets
from .terminals import Terminals

_WIDE = 24
_EVERY_BYTE = (1 << 256) - 1


def as_flags(mask: int) -> npt.NDArray[np.bool_]:
    """Bytes given as a mask as flags: bool [256]."""
    packed = np.frombuffer(mask.to_bytes(32, "little"), np.uint8)
    return np.unpackbits(packed, bitorder="little").view(np.bool_)


def shared_lexer(terminals: Sequence[ir.AnyTerminal], chars: ir.CharSet) -> Lexer | None:
    """The lexer of all grammars that have these terminals, none of them expected with a number.

    It is kept as the leaves of schemas are, and what it has grown to is found again by the next
    grammar, or the same, compiled again. None where a terminal is no pattern.
    """
    contents: list[tuple[str, str, int, bool]] = []
    for t in terminals:
        if not isinstance(t, ir.Terminal):
            return None
        contents.append((t.name, t.pattern, int(t.flags), t.splits))
    return AUTOMATA.get(_shared_lexer, tuple(contents), chars)


def _shared_lexer(contents: tuple[tuple[str, str, int, bool], ...], chars: ir.CharSet) -> Lexer:
    terminals = [ir.Terminal(*content) for content in contents]
    return Lexer(Terminals(terminals, chars))


class Lexer(Leaf):
    """The lexer of one grammar.

    Attributes:
        terminals: the terminals.
        outcomes: what each label stands for.
        conditions_of: the conditions of each outcome.
        exits: how terminals may end.
        is_met_at_once, is_free_of: see `terminal_sets.TerminalSets`.
        permits: whether a terminal expected with a number may end under a condition; None for
            lexers of which none is expected so, which any grammar may use (`shared_lexer`).
    """

    is_shared = False
    of_grammar = True

    def __init__(
        self, terminals: Terminals, permits: Callable[[int, int], bool] | None = None
    ) -> None:
        super().__init__()
        self.terminals = terminals
        self.permits = permits
        self._sets = sets = TerminalSets(terminals, permits)
        self.outcomes, self.conditions_of = sets.outcomes, sets.conditions_of
        self.is_met_at_once, self.is_free_of = sets.is_met_at_once, sets.is_free_of
        self.encoding = self._encoding = Utf8(terminals.alphabet)
        self.exits = Exits(sets, self.encoding)
        self._minterm_bytes = AtomBytes(terminals.alphabet, self.encoding)
        self._splits: dict[int, tuple[int, ...]] = {}
        self._masks: dict[int, int] = {}
        self._loop_masks: dict[int, int] = {}
        self._literals: dict[int, tuple[bytes, list[int], int] | None] = {}
        self._begun: dict[int, tuple[int, ...]] = {}
        self._steps_taken: dict[int, int] = {}
        self._going_on: dict[int, bool] = {}
        self._under: dict[int, int] = {}
        self._staying: dict[int, bytes] = {}
        self._loops: dict[int, tuple[bytes, Mapping[int, int]] | None] = {}
        self._entries: dict[tuple[int, Collection[Expected | int]], int] = {}

    def entry(self, expected: frozenset[int] | tuple[Expected, ...], condition: int) -> int:
        """The state before any of ``expected``, the text being bound by ``condition``."""
        key = (condition, expected)
        found = self._entries.get(key)
        if found is None:
            starts, anything = self.terminals.starts, self.terminals.rest.anything
            threads = []
            variants = {e if isinstance(e, int) else self._sets.variant(e) for e in expected}
            for v in sorted(variants):
                t = self._sets.variants[v][0]
                if starts[t] < 0:
                    continue
                # Mostly the first character settles it.
                met = v == t and (condition == anything or self.is_met_at_once(t, condition))
                if met or self._sets.is_alive(v, starts[t], condition):
                    threads.append((v, starts[t]))
            found = self._entries[key] = self.state((self._sets.state(condition, threads), GROUND))
        return found

    def threads(self, q: int) -> Inside:
        """What a state holds."""
        symbol, node = self._keys[q]
        condition, threads = self._sets.keys[symbol]
        return condition, threads, node

    # -- rows -----------------------------------------------------------------------------------

    def n_bytes(self, q: int) -> int:
        """How many bytes can follow, about: fewer are left out than counted twice."""
        symbol, node = self._keys[q]
        if node != GROUND:
            return 64
        live = 0
        for mask, _ in self._sets.moves(symbol):
            live |= mask
        return self._minterm_bytes.width(live)

    def split(self, q: int) -> tuple[int, ...]:
        """States that together do what ``q`` does: each terminal that can go on in very many ways
        has one of its own, so that walks of it are shared by all states in which it occurs."""
        found = self._splits.get(q)
        if found is None:
            symbol, node = self._keys[q]
            condition, threads = self._sets.keys[symbol]
            wide = [t for t in threads if self._is_wide(t[1])] if len(threads) > 1 else []
            found = (q,)
            if wide:
                narrow = [t for t in threads if t not in wide]
                groups = [[t] for t in wide] + ([narrow] if narrow else [])
                found = tuple(self.state((self._sets.state(condition, g), node)) for g in groups)
            self._splits[q] = found
        return found

    def begun(self, q: int) -> tuple[int, ...]:
        """States that together do what ``q`` does, where all its terminals begin in it: one for
        each terminal, without a condition that means nothing to it."""
        found = self._begun.get(q)
        if found is None:
            condition, threads, node = self.threads(q)
            terminals, anything = self.terminals, self.terminals.rest.anything
            found = (q,)
            if node == GROUND and all(
                state == terminals.starts[self._sets.variants[v][0]] for v, state in threads
            ):
                states: list[int] = []
                for v, state in threads:
                    is_met = v < len(terminals.starts) and self.is_free_of(v, condition)
                    symbol = self._sets.state(anything if is_met else condition, ((v, state),))
                    states.append(self.state((symbol, GROUND)))
                found = tuple(states)
            self._begun[q] = found
        return found

    def literal(self, q: int) -> tuple[bytes, list[int], int] | None:
        """The one text that is read from ``q`` on, where that is a whole terminal; the states after
        each byte of it; and the outcome of the last."""
        if q in self._literals:
            return self._literals[q]
        symbol, node = self._keys[q]
        condition, threads = self._sets.keys[symbol]
        found: tuple[bytes, list[int], int] | None = None
        if node == GROUND and len(threads) == 1 and condition == self.terminals.rest.anything:
            v, state = threads[0]
            text = self.terminals.literals.get(v)
            if text is not None and state == self.terminals.starts[v]:
                states: list[int] = []
                at = q
                for byte in text:
                    at = self.row(at)[byte]
                    states.append(at)
                found = (text, states, self.label(at))
        self._literals[q] = found
        return found

    def alone(self, q: int) -> tuple[int, int] | None:
        """The terminal that is read in ``q``, and its state: where nothing else is read or held of
        the rest, it may end wherever it can, and no character has been begun."""
        symbol, node = self._keys[q]
        condition, threads = self._sets.keys[symbol]
        if node != GROUND or len(threads) != 1 or condition != self.terminals.rest.anything:
            return None
        v, state = threads[0]
        return (v, state) if self._sets.variants[v][1] is None else None

    def inside(self, q: int) -> tuple[int, int, str] | None:
        """As `alone` where a character has been begun: the terminal, a state of it, and what tells
        how the two belong together: the bytes that are left in any alphabet."""
        symbol, node = self._keys[q]
        condition, threads = self._sets.keys[symbol]
        if node == GROUND or len(threads) != 1 or condition != self.terminals.rest.anything:
            return None
        v, state = threads[0]
        if self._sets.variants[v][1] is not None:
            return None
        minterm, bounds = self._encoding.left(node)
        if minterm != NO_ATOM:
            # Whatever the character will be, it leads to one state.
            state = next((to for m, to in self.terminals.moves(state) if m >> minterm & 1), -1)
        return (
            None if state < 0 else (v, state, f"{'to' if minterm != NO_ATOM else 'from'} {bounds}")
        )

    def before(self, terminal: int, state: int) -> int:
        """The lexer state of which `alone` says ``terminal`` and ``state``."""
        symbol = self._sets.state(self.terminals.rest.anything, ((terminal, state),))
        return self.state((symbol, GROUND))

    def first_bytes(self, q: int) -> int:
        """The bytes that can follow, as a mask."""
        found = self._masks.get(q)
        if found is None:
            symbol, node = self._keys[q]
            found = 0
            if node == GROUND:
                live = 0
                for mask, _ in self._sets.moves(symbol):
                    live |= mask
                found = self._minterm_bytes.first(live)
            else:
                for byte in self.row(q):
                    found |= 1 << byte
            self._masks[q] = found
        return found

    def loop(self, q: int) -> tuple[bytes, Mapping[int, int]] | None:
        """Where ``q`` stands between characters and many of them lead back to it: which, and the
        other bytes of its row.

        Returns:
            256 flags, by byte: ASCII, and lead bytes all of whose characters lead back; and what is
            left of the row. None where that is more.
        """
        if q in self._loops:
            return self._loops[q]
        symbol, node = self._keys[q]
        found: tuple[bytes, Mapping[int, int]] | None = None
        inside = 0
        if node == GROUND:
            back = others = 0
            for mask, to in self._sets.moves(symbol):
                if to == symbol:
                    back |= mask
                else:
                    others |= mask
            if back:
                for minterm in bits(back):
                    inside |= self._minterm_bytes.of_minterm.get(minterm, 0)
                for reach, mask in self._minterm_bytes.leads_of.items():
                    if not reach & ~back:
                        inside |= mask
                # Where most bytes lead away, runs are short, and there are as many as nodes.
                leaving = self._minterm_bytes.first(back | others) & ~inside
                if inside.bit_count() >= leaving.bit_count():
                    rest: dict[int, int] = {}
                    self._add_characters(rest, symbol, others)
                    self._add_leads(rest, symbol, leaving)
                    found = as_flags(inside).tobytes(), rest
        self._loop_masks[q] = inside if found else 0
        self._loops[q] = found
        return found

    def loop_mask(self, q: int) -> int:
        """The bytes of `loop` as a mask."""
        self.loop(q)
        return self._loop_masks[q]

    def _is_wide(self, state: int) -> bool:
        live = 0
        for mask, _ in self.terminals.moves(state):
            live |= mask
        return self._minterm_bytes.width(live) > _WIDE

    def following_bytes(self, outcome: int) -> npt.NDArray[np.bool_]:
        """The bytes that may follow where terminals end with ``outcome``: bool [256]."""
        return self.bytes_under(*(condition for condition, _ in self.outcomes[outcome]))

    def bytes_under(self, *conditions: int) -> npt.NDArray[np.bool_]:
        """The bytes that may follow under any of ``conditions``: bool [256]."""
        mask = 0
        for condition in conditions:
            mask |= self.mask_under(condition)
        return as_flags(mask)

    def mask_under(self, condition: int) -> int:
        """`bytes_under` as a mask."""
        found = self._under.get(condition)
        if found is None:
            rest = self.terminals.rest
            found = _EVERY_BYTE
            if condition != rest.anything:
                found = self._minterm_bytes.first(rest.possible(condition)[0])
            self._under[condition] = found
        return found

    def goes_on(self, q: int) -> bool:
        """Whether any byte may follow ``q``."""
        found = self._going_on.get(q)
        if found is None:
            symbol, node = self._keys[q]
            condition, threads = self._sets.keys[symbol]
            # Inside a character there is always a way on.
            found = self._going_on[q] = node != GROUND or any(
                self._sets.is_alive(v, to, after)
                for v, state in threads
                for _, to, after in self._sets.steps(state, condition)
            )
        return found

    def step(self, q: int, byte: int) -> int:
        """The state after ``byte``, or -1. Rows are not made for a single step."""
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
        """Read ``data[i:]`` from ``q`` up to a byte that ends a terminal, or that none reads.

        Returns:
            The state before that byte, and where it stands; or the state at the end of the data.
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

    def staying(self, q: int) -> bytes:
        """Of the bytes below 128 those that lead from ``q`` back to it, and that may not follow
        where it ends a terminal: runs of them are read at once."""
        found = self._staying.get(q)
        if found is None:
            symbol, node = self._keys[q]
            back = 0
            for mask, to in self._sets.moves(symbol) if node == GROUND else ():
                if to == symbol:
                    back |= mask
            under = 0
            if self.labels[q] >= 0:
                for condition in self.conditions_of[self.labels[q]]:
                    under |= self.mask_under(condition)
            inside = self._minterm_bytes.ascii(back)
            found = self._staying[q] = bytes([b for b in inside if not under >> b & 1])
        return found

    def _add_characters(self, row: dict[int, int], symbol: int, minterms: int) -> None:
        """Add to a row the ASCII characters of some minterms that ``symbol`` moves on with."""
        for mask, to in self._sets.moves(symbol):
            if mask & minterms:
                state = self.state((to, GROUND))
                row.update(dict.fromkeys(self._minterm_bytes.ascii(mask & minterms), state))

    def _add_leads(self, row: dict[int, int], symbol: int, mask: int) -> None:
        """Add to a row those bytes of a mask that begin longer characters."""
        for byte, deeper in self._minterm_bytes.leads:
            if mask >> byte & 1:
                row[byte] = self.state((symbol, deeper))

    def _new_row(self, key: Any) -> Row:
        symbol, node = key
        if node != GROUND:
            return super()._new_row(key)
        row: Row = {}
        live = 0
        for mask, _ in self._sets.moves(symbol):
            live |= mask
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
        for byte, deeper in self._encoding.row(node).items():
            if deeper >= 0:
                if self._encoding.reach(deeper) & live:
                    edges[byte] = (symbol, deeper)
            elif ~deeper in targets:
                edges[byte] = (targets[~deeper], GROUND)
        return edges

    def _label(self, key: Any) -> int:
        symbol, node = key
        return self._sets.labels[symbol] if node == GROUND else -1
