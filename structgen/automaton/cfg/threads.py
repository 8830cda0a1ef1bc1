"""Ordered regular expressions: what is left of a terminal to match, the preferred way first.

A node is an expression whose alternatives and quantifiers keep their order of preference
(`Threads.expand` lists what it may do next, preferred first), unlike the derivatives of
`derivatives`, for which order means nothing. `LookaheadAutomaton` is that other kind: conditions on
the rest of the text, closed under and, or, not. `Threads.tail` leads from the one to the other.

It knows one expression at a time; `terminals` makes automata of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from structgen.automaton.regex.alphabet import Alphabet
from structgen.automaton.regex.automaton import RegexAutomaton
from structgen.automaton.regex.expressions import EPSILON, NONE
from structgen.automaton.regex.lookarounds import Moves
from structgen.automaton.work import WORK
from structgen.errors import UnsupportedFeature
from structgen.grammar import ir
from structgen.grammar.regex.tree import LazyRepeat

DEAD, EMPTY = 0, 1
_SET, _CAT, _ALT, _REP, _AHEAD, _BEHIND, _TEXT = range(2, 9)
_MAX_UNROLL = 8

HAS_AHEAD, HAS_BEHIND = 1, 2

Item = tuple[int, int, int]
"""Condition on the rest from here, minterms read (0: none, a match), what is left to match."""


class LookaheadAutomaton(RegexAutomaton):
    """Conditions on the rest of the text: states are languages, closed under and, or, not."""

    def __init__(self, alphabet: Alphabet) -> None:
        super().__init__(ir.EPSILON, alphabet)
        self.anything = self.expressions.everything
        self._possible: dict[int, tuple[int, int]] = {}
        self._unless: dict[int, int] = {0: self.anything}

    def language(self, regex: ir.Regex) -> int:
        """The state of ``regex``."""
        return self._lower(regex, {})

    def both(self, a: int, b: int) -> int:
        """Intersection."""
        return self.expressions.all_of((a, b))

    def either(self, a: int, b: int) -> int:
        """Union."""
        return self.expressions.alt((a, b))

    def contrary(self, a: int) -> int:
        """Complement."""
        return self.expressions.complement(a)

    def then(self, a: int, b: int) -> int:
        """Concatenation."""
        return self.expressions.cat(a, b)

    def one(self, mask: int) -> int:
        """One of the minterms of ``mask``."""
        return self.expressions.set_of(mask)

    def times(self, a: int, least: int, most: int) -> int:
        """Repetition; ``most`` -1: unbounded."""
        return self.expressions.repeat(a, least, most)

    def is_possible(self, state: int) -> bool:
        """Whether any rest satisfies ``state``."""
        return bool(self.expressions.flags[state] & 1) or self._is_alive(state)

    def steps(self, state: int) -> Moves:
        """As `moves`, but with states that nothing satisfies: telling those apart can be hard."""
        return tuple((mask, to) for mask, to in self.derive(state) if to != NONE)

    def settling(self, state: int) -> int:
        """The minterms after which ``state`` demands nothing more."""
        return self.possible(state)[1]

    def possible(self, state: int) -> tuple[int, int]:
        """The minterms that ``state`` allows (see `steps`), and those that leave no demand."""
        found = self._possible.get(state)
        if found is None:
            allowed = settling = 0
            for minterms, to in self.derive(state):
                if to != NONE:
                    allowed |= minterms
                if to == self.anything:
                    settling |= minterms
            found = self._possible[state] = (allowed, settling)
        return found

    def unless(self, ways: list[tuple[int, int]]) -> int:
        """The state of what begins in none of some ways: with one of some minterms, and then as a
        state says. As `shortened` says it; what it allows is told without derivatives.
        """
        full = 0
        for mask, after in ways:
            if after == self.anything:
                full |= mask
        # Nearly always what is barred is a character, whatever follows.
        partly = [(mask & ~full, to) for mask, to in ways if mask & ~full and to != NONE]
        if not partly:
            found = self._unless.get(full)
            if found is None:
                others = self.alphabet.everything & ~full
                found = self.expressions.alt(
                    (self.expressions.cat(self.expressions.set_of(others), self.anything), EPSILON)
                )
                self._possible[found] = (others, others)
                self._unless[full] = found
            return found
        barred = NONE
        for mask, after in ways:
            barred = self.either(barred, self.then(self.one(mask), after))
        found = self.expressions.complement(barred)
        once = twice = 0
        for mask, _ in partly:
            twice |= once & mask
            once |= mask
        if twice:
            return self.shortened(found)
        everything = self.alphabet.everything
        self._possible[found] = (everything & ~full, everything & ~full & ~once)
        return found

    def shortened(self, state: int) -> int:
        """``state``, or an equal one that only names characters, if one character settles it all.

        After ``sel`` a name that is no keyword demands that ``ect`` does not follow, after ``fro``
        that ``m`` does not; but as it takes all the letters it can, no letter may follow anyway.
        """
        allowed, settling = self.possible(state)
        if allowed != settling or state == self.anything:
            return state
        out = self.expressions.cat(self.expressions.set_of(settling), self.anything)
        return self.expressions.alt((out, EPSILON)) if self.expressions.flags[state] & 1 else out


class Threads:
    """The ordered expressions of a grammar's terminals.

    Args:
        rest: conditions on the rest of the text; its alphabet is used.
        writable: the minterms that may be written.
        aheads: the condition that each lookahead stands for.
        behinds: the number of each lookbehind.

    Attributes:
        looks: which lookarounds occur in a node (`HAS_AHEAD`, `HAS_BEHIND`).
    """

    def __init__(
        self,
        rest: LookaheadAutomaton,
        writable: int,
        aheads: Mapping[ir.Lookahead | ir.EndAnchor, ir.Regex],
        behinds: Mapping[ir.Lookbehind, int],
    ) -> None:
        self.lookahead = rest
        self.looks: list[int] = [0, 0]
        self._writable = writable
        self._aheads = aheads
        self._behinds = behinds
        self._nodes: list[tuple[int, ...]] = [(DEAD,), (EMPTY,)]
        self._ids: dict[tuple[int, ...], int] = {(DEAD,): DEAD, (EMPTY,): EMPTY}
        self._expanded: dict[int, tuple[Item, ...]] = {}
        self._tails: dict[tuple[int, int], int] = {}

    def expand(self, node: int, holds: Callable[[int], bool]) -> tuple[Item, ...]:
        """What ``node`` may do next, in the order of preference.

        Args:
            node: the expression.
            holds: whether the lookbehind of a number holds here.
        """
        plain = not self.looks[node] & HAS_BEHIND
        if plain:
            found = self._expanded.get(node)
            if found is not None:
                return found
        kind, *args = self._nodes[node]
        anything = self.lookahead.anything
        items: list[Item] = []
        if kind == EMPTY:
            items = [(anything, 0, EMPTY)]
        elif kind == _SET:
            items = [(anything, args[0], EMPTY)]
        elif kind == _CAT:
            for condition, mask, after in self.expand(args[0], holds):
                if mask:
                    items.append((condition, mask, self._cat(after, args[1])))
                    continue
                for second, chars, rest in self.expand(args[1], holds):
                    items.append((self.lookahead.both(condition, second), chars, rest))
        elif kind == _ALT:
            for part in args:
                items += self.expand(part, holds)
        elif kind == _REP:
            items = self._expand_repeat(node, holds)
        elif kind == _AHEAD:
            items = [(args[0], 0, EMPTY)]
        elif kind == _BEHIND and holds(args[0]) != bool(args[1]):
            items = [(anything, 0, EMPTY)]
        elif kind == _TEXT:
            items = list(self.expand(self._spelt(args), holds))
        out = tuple(dict.fromkeys(items))
        if plain:
            self._expanded[node] = out
        return out

    def _expand_repeat(self, node: int, holds: Callable[[int], bool]) -> list[Item]:
        _, body, least, most, lazy = self._nodes[node]
        again = self._repeat(body, max(least - 1, 0), most - 1 if most > 0 else most, lazy)
        items: list[Item] = []
        stop: list[Item] = [(self.lookahead.anything, 0, EMPTY)] if least == 0 else []
        for condition, mask, after in self.expand(body, holds):
            if mask:
                items.append((condition, mask, self._cat(after, again)))
            elif least:
                for second, chars, rest in self.expand(again, holds):
                    items.append((self.lookahead.both(condition, second), chars, rest))
            else:
                items.append((condition, 0, EMPTY))  # an empty round is the last
        return [*stop, *items] if lazy else [*items, *stop]

    def tail(self, node: int, after: int, name: str) -> int:
        """The texts that begin with a match of ``node`` and go on as ``after`` says.

        Args:
            node: the expression.
            after: a state of `rest`.
            name: the terminal, for messages.

        Raises:
            UnsupportedFeature: lookarounds inside make that hard to say.
        """
        if after == NONE:
            return NONE
        found = self._tails.get((node, after))
        if found is not None:
            return found
        rest = self.lookahead
        kind, *args = self._nodes[node]
        out = after
        if kind == DEAD:
            out = NONE
        elif kind == _SET:
            out = rest.then(rest.one(args[0]), after)
        elif kind == _CAT:
            out = self.tail(args[0], self.tail(args[1], after, name), name)
        elif kind == _ALT:
            out = NONE
            for part in args:
                out = rest.either(out, self.tail(part, after, name))
        elif kind == _AHEAD:
            out = rest.both(args[0], after)
        elif kind == _REP:
            out = self._tail_of_repeat(node, after, name)
        elif kind == _BEHIND:
            raise self._entangled(name)
        elif kind == _TEXT:
            out = self.tail(self._spelt(args), after, name)
        self._tails[node, after] = out
        return out

    def contents(self, node: int) -> tuple[int, set[int]]:
        """All minterms that occur in ``node``, and the conditions of its lookaheads."""
        minterms, conditions = 0, set()
        seen = {node}
        for at in (todo := [node]):
            kind, *args = self._nodes[at]
            if kind == _SET:
                minterms |= args[0]
            elif kind == _TEXT:
                for minterm in args:
                    minterms |= 1 << minterm
            elif kind == _AHEAD:
                conditions.add(args[0])
            elif kind in (_CAT, _ALT, _REP):
                inner = args[:1] if kind == _REP else args
                todo += [n for n in inner if n not in seen]
                seen.update(inner)
        return minterms, conditions

    def _tail_of_repeat(self, node: int, after: int, name: str) -> int:
        _, body, least, most, lazy = self._nodes[node]
        rest = self.lookahead
        if after == rest.anything:
            most = least  # anything may follow, so the fewest rounds say it all
        if self.looks[body]:
            if not 0 <= most <= _MAX_UNROLL:
                raise self._entangled(name)
            if most == 0:
                return after
            fewer = self._repeat(body, max(least - 1, 0), most - 1, lazy)
            out = self.tail(body, self.tail(fewer, after, name), name)
            return out if least else rest.either(out, after)
        if after == rest.anything and least:
            # The last round may be cut short: of it, too, only the beginning counts.
            after, least = self.tail(body, after, name), least - 1
            most = least
        return rest.then(rest.times(self.tail(body, EPSILON, name), least, most), after)

    def _entangled(self, name: str) -> UnsupportedFeature:
        return UnsupportedFeature(
            f"Terminal {name} has a lookaround on which it depends how far the "
            "terminal reaches, in a way that cannot be enforced exactly.",
            fix="Move lookahead to the end of the terminal, or write the pattern without it.",
        )

    def text(self, minterms: Sequence[int]) -> int:
        """The node of a text, one minterm after the other. Most are never looked at, so what
        follows its first minterm has no node until somebody asks."""
        return self._node((_TEXT, *minterms), 0)

    def _spelt(self, minterms: Sequence[int]) -> int:
        """The node of a text as `lower` would make it."""
        node = EMPTY
        for minterm in reversed(minterms):
            node = self._cat(self._node((_SET, 1 << minterm), 0), node)
        return node

    def lower(self, parsed: ir.Regex) -> int:
        """The node of an expression as it was parsed, `DEAD` if it matches nothing."""
        if isinstance(parsed, ir.CharSet):
            mask = self.lookahead.alphabet.mask(parsed.ranges) & self._writable
            return self._node((_SET, mask), 0) if mask else DEAD
        if isinstance(parsed, ir.Concat):
            node = EMPTY
            for part in reversed(parsed.parts):
                node = self._cat(self.lower(part), node)
            return node
        if isinstance(parsed, ir.Alternate):
            parts = dict.fromkeys(self.lower(part) for part in parsed.parts)
            parts.pop(DEAD, None)
            if not parts:
                return DEAD
            looks = 0
            for node in parts:
                looks |= self.looks[node]
            return self._node((_ALT, *parts), looks) if len(parts) > 1 else next(iter(parts))
        if isinstance(parsed, ir.Repeat):
            lazy = int(isinstance(parsed, LazyRepeat))
            most = -1 if parsed.max is None else parsed.max
            return self._repeat(self.lower(parsed.body), parsed.min, most, lazy)
        if isinstance(parsed, ir.Lookbehind):
            index = self._behinds[parsed]
            return self._node((_BEHIND, index, int(parsed.negate)), HAS_BEHIND)
        assert isinstance(parsed, (ir.Lookahead, ir.EndAnchor))
        condition = self.lookahead.language(self._aheads[parsed])
        return (
            self._node((_AHEAD, condition), HAS_AHEAD)
            if self.lookahead.is_possible(condition)
            else DEAD
        )

    def _node(self, key: tuple[int, ...], looks: int) -> int:
        found = self._ids.get(key)
        if found is None:
            WORK.spend(1)
            found = self._ids[key] = len(self._nodes)
            self._nodes.append(key)
            self.looks.append(looks)
        return found

    def _cat(self, left: int, right: int) -> int:
        if DEAD in (left, right):
            return DEAD
        if left == EMPTY:
            return right
        if right == EMPTY:
            return left
        kind, *args = self._nodes[left]
        if kind == _CAT:
            return self._cat(args[0], self._cat(args[1], right))
        return self._node((_CAT, left, right), self.looks[left] | self.looks[right])

    def _repeat(self, body: int, least: int, most: int, lazy: int) -> int:
        if most == 0 or body == EMPTY:
            return EMPTY
        if body == DEAD:
            return DEAD if least else EMPTY
        if least == 1 and most == 1:
            return body
        if least == most:
            lazy = 0
        return self._node((_REP, body, least, most, lazy), self.looks[body])
