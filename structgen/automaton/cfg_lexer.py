"""The lexer of a grammar: all expected terminals at once, as one leaf automaton over bytes.

A state holds each terminal still possible, with its state, and what an earlier terminal demands of
the text that follows it (see `cfg_terminals`). It may end with several terminals at the same place,
each with its own condition on the rest, so an outcome is a tuple of ``(condition, terminals)``.
States from which no terminal can end are left out.

It knows nothing of rules: which terminals are expected is the caller's choice (`Lexer.entry`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import CompileLimitExceeded
from ..grammar import ir
from . import liveness
from .alphabet import NO_ATOM
from .bits import bits
from .cfg_terminals import Terminals
from .derivatives import NONE, Moves
from .encoding import GROUND, Utf8
from .leaf import Leaf, Row
from .shared import AUTOMATA

Outcome = tuple[tuple[int, tuple[int, ...]], ...]
"""Pairs of a condition on the rest and the terminals that may end under it."""

Expected = tuple[int, "frozenset[int] | int | None"]
"""A terminal and the conditions under which it may end here: any (None), some, or those that
`Lexer.permits` allows for a number of the caller's."""

MAX_SEARCH = 100_000
"""Most states of one terminal that are looked at to find all its ends."""

_NEAR = 50
_WIDE = 24
_EVERY_BYTE = (1 << 256) - 1


def _as_mask(characters: list[int]) -> int:
    first, last = characters[0], characters[-1]
    if len(characters) == last - first + 1:
        return (1 << last + 1) - (1 << first)
    return sum([1 << byte for byte in characters])


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
        permits: whether a terminal expected with a number may end under a condition; None for
            lexers of which none is expected so, which any grammar may use (`shared_lexer`).
    """

    is_shared = False

    def __init__(
        self, terminals: Terminals, permits: Callable[[int, int], bool] | None = None
    ) -> None:
        super().__init__()
        self.terminals = terminals
        self.permits = permits
        self.outcomes: list[Outcome] = []
        self.conditions_of: list[tuple[int, ...]] = []
        self._outcome_ids: dict[Outcome, int] = {}
        self._symbols: list[tuple[int, tuple[tuple[int, int], ...]]] = []
        self._symbol_ids: dict[tuple[int, tuple[tuple[int, int], ...]], int] = {}
        self._symbol_moves: list[Moves | None] = []
        self._symbol_labels: list[int] = []
        self._splits: dict[int, tuple[int, ...]] = {}
        self._masks: dict[int, int] = {}
        self._loop_masks: dict[int, int] = {}
        self._literals: dict[int, tuple[bytes, list[int], int] | None] = {}
        self._begun: dict[int, tuple[int, ...]] = {}
        self._steps_taken: dict[int, int] = {}
        self._going_on: dict[int, bool] = {}
        self._under: dict[int, int] = {}
        self._staying: dict[int, bytes] = {}
        self._is_free_of: dict[tuple[int, int], bool] = {}
        self._loops: dict[int, tuple[bytes, Mapping[int, int]] | None] = {}
        # Terminals with the conditions under which they may end, where not all will do.
        self.variants: list[Expected] = [(t, None) for t in range(len(terminals.starts))]
        self._variant_ids = {variant: v for v, variant in enumerate(self.variants)}
        self._alive: dict[tuple[int, int, int], bool] = {}
        self._exits: dict[tuple[int, int, int], tuple[dict[int, bytes], bool, int]] = {}
        self._near: dict[tuple[int, int, int], dict[int, bytes]] = {}
        self._characters: dict[int, bytes] = {}
        self._near_inside: dict[int, dict[tuple[int, int], bytes]] = {}
        self._entries: dict[tuple[int, Collection[Expected | int]], int] = {}
        self.encoding = self._encoding = Utf8(terminals.alphabet)
        ascii_atoms = terminals.alphabet.ascii_atoms()
        self._ground: dict[int, list[int]] = {}
        for byte, atom in enumerate(ascii_atoms):
            self._ground.setdefault(atom, []).append(byte)
        # For each atom, and for each set of atoms that lead bytes lead to: bytes, as a mask.
        self._ascii_bytes = {atom: _as_mask(found) for atom, found in self._ground.items()}
        self._lead_bytes: dict[int, int] = {}
        row, reach_of = self._encoding.row(GROUND), self._encoding.reach
        self._leads = [(byte, target) for byte, target in row.items() if target >= 0]
        for byte, target in self._leads:
            reach = reach_of(target)
            self._lead_bytes[reach] = self._lead_bytes.get(reach, 0) | 1 << byte
        self._spellings = {atom: len(found) for atom, found in self._ground.items()}
        # For sets of atoms: the ASCII characters in them, how many bytes they are spelt with, and
        # the bytes that they begin with, as a mask.
        self._ascii: dict[int, list[int]] = {1 << atom: b for atom, b in self._ground.items()}
        self._widths: dict[int, int] = {}
        self._begins: dict[int, int] = {}
        self._atom_of_byte = [*ascii_atoms, *[terminals.alphabet.n_atoms] * 128]
        self._beyond_ascii = 0
        for reach in self._lead_bytes:
            self._beyond_ascii |= reach

    def entry(self, expected: frozenset[int] | tuple[Expected, ...], condition: int) -> int:
        """The state before any of ``expected``, the text being bound by ``condition``."""
        key = (condition, expected)
        found = self._entries.get(key)
        if found is None:
            starts, anything = self.terminals.starts, self.terminals.rest.anything
            threads = []
            variants = {e if isinstance(e, int) else self._variant(e) for e in expected}
            for v in sorted(variants):
                t = self.variants[v][0]
                if starts[t] < 0:
                    continue
                # Mostly the first character settles it.
                met = v == t and (condition == anything or self.is_met_at_once(t, condition))
                if met or self._is_alive(v, starts[t], condition):
                    threads.append((v, starts[t]))
            found = self._entries[key] = self.state((self._symbol(condition, threads), GROUND))
        return found

    def threads(self, q: int) -> tuple[int, tuple[tuple[int, int], ...], int]:
        """What a state holds: the condition, its (variant, terminal state) pairs, encoding node."""
        symbol, node = self._keys[q]
        condition, threads = self._symbols[symbol]
        return condition, threads, node

    def exits(
        self, v: int, state: int, condition: int, most: int = MAX_SEARCH
    ) -> dict[int, bytes] | None:
        """For each condition under which a terminal can end: the fewest bytes that end it so.

        Args:
            v: the variant.
            state: the terminal's state.
            condition: what holds of the rest from here on.
            most: how many states to look at.

        Returns:
            The bytes, or None when that needs more states.
        """
        if v in self.terminals.guests:
            return self._guest_exits(v, condition)
        key = (v, state, condition)
        known = self._exits.get(key)
        if known is None or (not known[1] and known[2] < most):
            known = self._exits[key] = self._find_exits(v, state, condition, most)
        return known[0] if known[1] else None

    def _find_exits(
        self, v: int, state: int, condition: int, most: int
    ) -> tuple[dict[int, bytes], bool, int]:
        found: dict[int, bytes] = {}
        seen: set[tuple[int, int]] = set()
        characters = self._characters
        # Breadth first by length in bytes; a character has one to four.
        levels: list[dict[tuple[int, int], bytes]] = [{(state, condition): b""}, {}, {}, {}, {}]
        while any(levels):
            level = levels.pop(0)
            levels.append({})
            for (q, w), text in level.items():
                if (q, w) in seen:
                    continue
                if len(seen) >= most:
                    return found, False, most
                seen.add((q, w))
                end = self._end(v, q, w)
                if end != NONE:
                    found.setdefault(end, text)
                for mask, to, w_to in self._steps(q, w):
                    if (to, w_to) in seen or not self._is_alive(v, to, w_to):
                        continue
                    best = characters.get(mask) or self._character(mask)
                    levels[len(best) - 1].setdefault((to, w_to), text + best)
        return found, True, most

    def _character(self, atoms: int) -> bytes:
        """The shortest of some characters, given as a mask of atoms."""
        spelt = self._encoding.shortest(GROUND)
        best = min((spelt[a] for a in bits(atoms)), key=lambda s: (len(s), s))
        self._characters[atoms] = best
        return best

    def exits_of(self, terminal: int, condition: int) -> dict[int, bytes]:
        """The exits from the beginning of a terminal."""
        if terminal in self.terminals.guests:
            return self._guest_exits(terminal, condition)
        start = self.terminals.starts[terminal]
        if not self._is_alive(terminal, start, condition):
            return {}
        return self._all_exits(terminal, start, condition)

    def _all_exits(self, v: int, state: int, condition: int) -> dict[int, bytes]:
        found = self.exits(v, state, condition)
        if found is None:
            raise CompileLimitExceeded(
                "finding all ends of a terminal visits too many states",
                limit=MAX_SEARCH,
                actual=MAX_SEARCH,
            )
        return found

    def exits_inside(self, q: int) -> dict[tuple[int, int], bytes]:
        """For each (terminal, condition) that can end from a lexer state: the fewest bytes."""
        found: dict[tuple[int, int], bytes] = {}
        for v, state, condition, text in self._inside(q):
            for end, more in self._all_exits(v, state, condition).items():
                key = (self.variants[v][0], end)
                whole = text + more
                if key not in found or len(whole) < len(found[key]):
                    found[key] = whole
        return found

    def near_exits(self, v: int, state: int, condition: int) -> dict[int, bytes]:
        """As `exits`, but only some that are near; at least one, if there is any."""
        key = (v, state, condition)
        found = self._near.get(key)
        if found is None:
            most = _NEAR
            found, complete, _ = self._find_exits(v, state, condition, most)
            while not found and not complete:
                most *= 8
                if most > 8 * MAX_SEARCH:
                    raise CompileLimitExceeded(
                        "finding the end of a terminal visits too many states",
                        limit=MAX_SEARCH,
                        actual=most,
                    )
                found, complete, _ = self._find_exits(v, state, condition, most)
            self._near[key] = found
        return found

    def near_exits_inside(self, q: int) -> dict[tuple[int, int], bytes]:
        """As `exits_inside`, but only some that are near."""
        found = self._near_inside.get(q)
        if found is None:
            found = {}
            for v, state, condition, text in self._inside(q):
                for end, more in self.near_exits(v, state, condition).items():
                    key = (self.variants[v][0], end)
                    whole = text + more
                    if key not in found or len(whole) < len(found[key]):
                        found[key] = whole
            self._near_inside[q] = found
        return found

    def near_exits_of(self, terminal: int, condition: int) -> dict[int, bytes]:
        """The near exits from the beginning of a terminal."""
        if terminal in self.terminals.guests:
            return self._guest_exits(terminal, condition)
        start = self.terminals.starts[terminal]
        if not self._is_alive(terminal, start, condition):
            return {}
        return self.near_exits(terminal, start, condition)

    def _guest_exits(self, terminal: int, condition: int) -> dict[int, bytes]:
        """The exits of a terminal that is no pattern: its first character settles ``condition``."""
        rest, guest = self.terminals.rest, self.terminals.guests[terminal]
        atoms = guest.first & self.terminals.settled_by([condition])[0]
        return {rest.anything: guest.shortest(atoms)} if atoms else {}

    def shortest_beginning(self, terminal: int, atoms: int) -> tuple[bytes, int]:
        """The fewest bytes of ``terminal`` that begin with one of ``atoms``, which it can.

        Returns:
            The bytes, and the condition under which the terminal ends there.
        """
        spelt = self._encoding.shortest(GROUND)
        anything = self.terminals.rest.anything
        guest = self.terminals.guests.get(terminal)
        if guest is not None:
            return guest.shortest(guest.first & atoms), anything
        texts: list[tuple[bytes, int]] = []
        for mask, to in self.terminals.moves(self.terminals.starts[terminal]):
            if mask & atoms:
                exits = self.near_exits(terminal, to, anything)
                end, more = min(exits.items(), key=lambda item: (len(item[1]), item[1]))
                texts += [(spelt[atom] + more, end) for atom in bits(mask & atoms)]
        return min(texts, key=lambda pair: (len(pair[0]), pair))

    def _inside(self, q: int) -> list[tuple[int, int, int, bytes]]:
        """Variant, state, condition after the character begun, and the bytes that complete it."""
        condition, threads, node = self.threads(q)
        if node == GROUND:
            return [(v, state, condition, b"") for v, state in threads]
        spelt = self._encoding.shortest(node)
        out: list[tuple[int, int, int, bytes]] = []
        for v, state in threads:
            for mask, to, w in self._steps(state, condition):
                texts = [spelt[a] for a in bits(mask) if a in spelt]
                if texts and self._is_alive(v, to, w):
                    out.append((v, to, w, min(texts, key=lambda s: (len(s), s))))
        return out

    def is_met_at_once(self, terminal: int, condition: int) -> bool | None:
        """Whether the first character of a terminal meets ``condition``, whichever it is.

        Returns:
            None when no character can begin the terminal there.
        """
        rest = self.terminals.rest
        first = self.terminals.first(terminal)
        if first == self.terminals.end_of_text:
            return True if rest.label(condition) >= 0 else None
        possible, settling = rest.possible(condition)
        return not first & possible & ~settling if first & possible else None

    def is_free_of(self, terminal: int, condition: int) -> bool:
        """Whether ``condition`` means nothing to a terminal: each first character settles it."""
        key = (terminal, condition)
        found = self._is_free_of.get(key)
        if found is None:
            left = self.terminals.first(terminal) & ~self.terminals.rest.settling(condition)
            found = self._is_free_of[key] = not left
        return found

    # -- symbols --------------------------------------------------------------------------------

    def _variant(self, variant: Expected) -> int:
        found = self._variant_ids.get(variant)
        if found is None:
            found = self._variant_ids[variant] = len(self.variants)
            self.variants.append(variant)
        return found

    def _symbol(self, condition: int, threads: Iterable[tuple[int, int]]) -> int:
        key = (condition, tuple(threads))
        found = self._symbol_ids.get(key)
        if found is None:
            found = self._symbol_ids[key] = len(self._symbols)
            self._symbols.append(key)
            self._symbol_moves.append(None)
            self._symbol_labels.append(self._outcome(*key))
        return found

    def _outcome(self, condition: int, threads: tuple[tuple[int, int], ...]) -> int:
        ends: dict[int, list[int]] = {}
        for v, q in threads:
            end = self._end(v, q, condition)
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

    def _end(self, v: int, q: int, condition: int) -> int:
        """The condition on the rest when terminal ``v`` ends at ``q``, or `NONE`."""
        rest = self.terminals.rest
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

    def _steps(self, q: int, condition: int) -> list[tuple[int, int, int]]:
        rest = self.terminals.rest
        moves = self.terminals.moves(q)
        if condition == rest.anything:
            return [(mask, to, condition) for mask, to in moves]
        conditions = rest.steps(condition)
        return [(m & n, to, w) for m, to in moves for n, w in conditions if m & n]

    def _is_alive(self, v: int, q: int, condition: int) -> bool:
        anything = self.terminals.rest.anything
        unrestricted = self.variants[v][1] is None
        if unrestricted and condition == anything:
            return True  # a terminal's own states all lead to an end
        return liveness.is_alive(
            (v, q, condition),
            self._alive,
            lambda s: (unrestricted and s[2] == anything) or self._end(*s) != NONE,
            lambda s: [(v, to, w) for _, to, w in self._steps(s[1], s[2])],
            MAX_SEARCH,
            "telling whether a terminal can end visits too many states",
        )

    def _moves(self, symbol: int) -> Moves:
        found = self._symbol_moves[symbol]
        if found is not None:
            return found
        condition, threads = self._symbols[symbol]
        rest = self.terminals.rest
        free = condition == rest.anything
        conditions: Moves = ((self.terminals.alphabet.everything, condition),)
        if not free:
            conditions = rest.steps(condition)
        merged: dict[int, int] = {}
        for chars, w in conditions:
            parts: list[tuple[int, tuple[tuple[int, int], ...]]] = [(chars, ())]
            for v, q in threads:
                plain = w == rest.anything and self.variants[v][1] is None
                moves = [
                    (mask, to)
                    for mask, to in self.terminals.moves(q)
                    if mask & chars and (plain or self._is_alive(v, to, w))
                ]
                if not moves:
                    continue
                split: list[tuple[int, tuple[tuple[int, int], ...]]] = []
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
                    to = self._symbol(w, above)
                    merged[to] = merged.get(to, 0) | part
        found = self._symbol_moves[symbol] = tuple((mask, to) for to, mask in merged.items())
        return found

    # -- rows -----------------------------------------------------------------------------------

    def n_bytes(self, q: int) -> int:
        """How many bytes can follow, about: fewer are left out than counted twice."""
        symbol, node = self._keys[q]
        if node != GROUND:
            return 64
        live = 0
        for mask, _ in self._moves(symbol):
            live |= mask
        return self._width(live)

    def split(self, q: int) -> tuple[int, ...]:
        """States that together do what ``q`` does: each terminal that can go on in very many ways
        has one of its own, so that walks of it are shared by all states in which it occurs."""
        found = self._splits.get(q)
        if found is None:
            symbol, node = self._keys[q]
            condition, threads = self._symbols[symbol]
            wide = [t for t in threads if self._is_wide(t[1])] if len(threads) > 1 else []
            found = (q,)
            if wide:
                narrow = [t for t in threads if t not in wide]
                groups = [[t] for t in wide] + ([narrow] if narrow else [])
                found = tuple(self.state((self._symbol(condition, g), node)) for g in groups)
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
                state == terminals.starts[self.variants[v][0]] for v, state in threads
            ):
                states: list[int] = []
                for v, state in threads:
                    is_met = v < len(terminals.starts) and self.is_free_of(v, condition)
                    symbol = self._symbol(anything if is_met else condition, ((v, state),))
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
        condition, threads = self._symbols[symbol]
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
        condition, threads = self._symbols[symbol]
        if node != GROUND or len(threads) != 1 or condition != self.terminals.rest.anything:
            return None
        v, state = threads[0]
        return (v, state) if self.variants[v][1] is None else None

    def inside(self, q: int) -> tuple[int, int, str] | None:
        """As `alone` where a character has been begun: the terminal, a state of it, and what tells
        how the two belong together: the bytes that are left in any alphabet."""
        symbol, node = self._keys[q]
        condition, threads = self._symbols[symbol]
        if node == GROUND or len(threads) != 1 or condition != self.terminals.rest.anything:
            return None
        v, state = threads[0]
        if self.variants[v][1] is not None:
            return None
        atom, bounds = self._encoding.left(node)
        if atom != NO_ATOM:
            # Whatever the character will be, it leads to one state.
            state = next((to for m, to in self.terminals.moves(state) if m >> atom & 1), -1)
        return None if state < 0 else (v, state, f"{'to' if atom != NO_ATOM else 'from'} {bounds}")

    def before(self, terminal: int, state: int) -> int:
        """The lexer state of which `alone` says ``terminal`` and ``state``."""
        symbol = self._symbol(self.terminals.rest.anything, ((terminal, state),))
        return self.state((symbol, GROUND))

    def first_bytes(self, q: int) -> int:
        """The bytes that can follow, as a mask."""
        found = self._masks.get(q)
        if found is None:
            symbol, node = self._keys[q]
            found = 0
            if node == GROUND:
                live = 0
                for mask, _ in self._moves(symbol):
                    live |= mask
                found = self._bytes_of(live)
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
            for mask, to in self._moves(symbol):
                if to == symbol:
                    back |= mask
                else:
                    others |= mask
            if back:
                for atom in bits(back):
                    inside |= self._ascii_bytes.get(atom, 0)
                for reach, mask in self._lead_bytes.items():
                    if not reach & ~back:
                        inside |= mask
                # Where most bytes lead away, runs are short, and there are as many as nodes.
                leaving = self._bytes_of(back | others) & ~inside
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
        return self._width(live) > _WIDE

    def byte_row(self, q: int) -> npt.NDArray[np.int32]:
        """The next state for each byte, -1 where there is none: int32 [256]."""
        known = self.row(q)
        row = np.full(256, -1, np.int32)
        row[list(known)] = list(known.values())
        return row

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
                found = self._bytes_of(rest.possible(condition)[0])
            self._under[condition] = found
        return found

    def goes_on(self, q: int) -> bool:
        """Whether any byte may follow ``q``."""
        found = self._going_on.get(q)
        if found is None:
            symbol, node = self._keys[q]
            condition, threads = self._symbols[symbol]
            # Inside a character there is always a way on.
            found = self._going_on[q] = node != GROUND or any(
                self._is_alive(v, to, after)
                for v, state in threads
                for _, to, after in self._steps(state, condition)
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
            to = self._after_atom(symbol, self._atom_of_byte[byte])
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
            for mask, to in self._moves(symbol) if node == GROUND else ():
                if to == symbol:
                    back |= mask
            under = 0
            if self.labels[q] >= 0:
                for condition in self.conditions_of[self.labels[q]]:
                    under |= self.mask_under(condition)
            inside = self._characters_of(back)
            found = self._staying[q] = bytes([b for b in inside if not under >> b & 1])
        return found

    def _after_atom(self, symbol: int, atom: int) -> int:
        """The symbol after one atom, or -1: one part of `_moves`."""
        condition, threads = self._symbols[symbol]
        rest, bit = self.terminals.rest, 1 << atom
        after = condition
        if condition != rest.anything:
            after = next((w for mask, w in rest.steps(condition) if mask & bit), NONE)
            if after == NONE:
                return -1
        above: list[tuple[int, int]] = []
        for v, q in threads:
            for mask, to in self.terminals.moves(q):
                if mask & bit:
                    plain = after == rest.anything and self.variants[v][1] is None
                    if plain or self._is_alive(v, to, after):
                        above.append((v, to))
        return self._symbol(after, above) if above else -1

    # -- bytes ----------------------------------------------------------------------------------

    def _characters_of(self, atoms: int) -> list[int]:
        """The ASCII characters of some atoms."""
        found = self._ascii.get(atoms)
        if found is None:
            ground = self._ground
            found = [byte for atom in bits(atoms) for byte in ground.get(atom, ())]
            self._ascii[atoms] = found
        return found

    def _bytes_of(self, atoms: int) -> int:
        """The bytes with which characters of some atoms begin, as a mask."""
        found = self._begins.get(atoms)
        if found is None:
            found = 0
            for atom in bits(atoms):
                found |= self._ascii_bytes.get(atom, 0)
            for reach, mask in self._lead_bytes.items():
                if reach & atoms:
                    found |= mask
            self._begins[atoms] = found
        return found

    def _width(self, atoms: int) -> int:
        """How many bytes there are in the characters of some atoms, about."""
        found = self._widths.get(atoms)
        if found is None:
            found = self._widths[atoms] = sum(self._spellings.get(a, 4) for a in bits(atoms))
        return found

    def _add_characters(self, row: dict[int, int], symbol: int, atoms: int) -> None:
        """Add to a row the ASCII characters of some atoms that ``symbol`` moves on with."""
        for mask, to in self._moves(symbol):
            if mask & atoms:
                state = self.state((to, GROUND))
                row.update(dict.fromkeys(self._characters_of(mask & atoms), state))

    def _add_leads(self, row: dict[int, int], symbol: int, mask: int) -> None:
        """Add to a row those bytes of a mask that begin longer characters."""
        for byte, deeper in self._leads:
            if mask >> byte & 1:
                row[byte] = self.state((symbol, deeper))

    def _new_row(self, key: Any) -> Row:
        symbol, node = key
        if node != GROUND:
            return super()._new_row(key)
        row: Row = {}
        live = 0
        for mask, _ in self._moves(symbol):
            live |= mask
        self._add_characters(row, symbol, live)
        if live & self._beyond_ascii:
            self._add_leads(row, symbol, self._bytes_of(live))
        return row

    def _edges(self, key: Any) -> Mapping[int, Any]:
        symbol, node = key
        edges: dict[int, Any] = {}
        live = 0
        targets: dict[int, int] = {}
        for mask, to in self._moves(symbol):
            live |= mask
            for atom in bits(mask):
                targets[atom] = to
        for byte, deeper in self._encoding.row(node).items():
            if deeper >= 0:
                if self._encoding.reach(deeper) & live:
                    edges[byte] = (symbol, deeper)
            elif ~deeper in targets:
                edges[byte] = (targets[~deeper], GROUND)
        return edges

    def _label(self, key: Any) -> int:
        symbol, node = key
        return self._symbol_labels[symbol] if node == GROUND else -1
