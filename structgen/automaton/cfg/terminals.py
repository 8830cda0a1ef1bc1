"""Terminals of a grammar: the texts that ``re.match`` would match, as lazy automata over minterms.

A terminal matches the text that backtracking prefers: greedy quantifiers the longest, lazy ones the
shortest, alternatives the first that matches. A state is the *ordered* list of open threads, the
preferred one first (Thompson simulation with priorities, as in Cox 2010). Whether a terminal may
end depends on the text after it: no preferred thread may reach a match there. This condition is a
regular language, a state of `LookaheadAutomaton`, and ``end(state)`` returns it. So ``[a-z]+`` may
end before anything except a letter. A lookahead is such a condition, too. A lookbehind runs in
parallel to the threads from the terminal's start, and cannot look further back.

`Assertions` collects lookarounds and rejects those that cannot be enforced. Knows no rules, bytes
or tokens.

A node of `Threads` is an expression whose alternatives and quantifiers keep their order
(`Threads.expand` lists the next steps, preferred first). Derivatives have no such order. They serve
`LookaheadAutomaton`: conditions on the rest of the text, closed under and, or, not. `Threads.tail`
converts a node to such a condition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from operator import itemgetter

from structgen.automaton import liveness
from structgen.automaton.bits import bits
from structgen.automaton.regex.alphabet import NO_ATOM, Alphabet
from structgen.automaton.regex.automaton import RegexAutomaton
from structgen.automaton.regex.derivatives import char_sets
from structgen.automaton.regex.expressions import EPSILON, NONE
from structgen.automaton.regex.lookarounds import Moves
from structgen.automaton.regex.symbols import MANY_BEGINNINGS, MAX_PROBED
from structgen.automaton.work import WORK
from structgen.errors import OutputTypeError, PatternError, UnsupportedFeature, check_limit
from structgen.grammar import ir
from structgen.grammar.regex import python as python_regex
from structgen.grammar.regex import tree
from structgen.grammar.regex.tree import LazyRepeat
from structgen.storage import cached_method

from .embedded_terminals import EmbeddedTerminal

DEAD, EMPTY = 0, 1
_SET, _CAT, _ALT, _REP, _AHEAD, _BEHIND, _TEXT = range(2, 9)
_MAX_UNROLL = 8

HAS_AHEAD, HAS_BEHIND = 1, 2

Item = tuple[int, int, int]
"""Condition on the rest from here, minterms read (0: none, a match), the rest to match."""


class LookaheadAutomaton(RegexAutomaton):
    """Conditions on the rest of the text: states are languages, closed under and, or, not.

    Attributes:
        anything: the state without a condition.
        contrary, then, one, times: the states of a complement, of one state and then another, of
            one minterm of a mask, and of a state from ``least`` to ``most`` (-1: any) times.
    """

    def __init__(self, alphabet: Alphabet) -> None:
        super().__init__(ir.EPSILON, alphabet)
        expressions = self.expressions
        self.anything = expressions.everything
        self.contrary, self.then = expressions.complement, expressions.cat
        self.one, self.times = expressions.set_of, expressions.repeat
        self._possible: dict[int, tuple[int, int]] = {}
        self._unless: dict[int, int] = {0: self.anything}

    def language(self, regex: ir.Regex) -> int:
        """Return the state of ``regex``."""
        return self._lower(regex, {})

    def both(self, a: int, b: int) -> int:
        """Return the intersection."""
        return self.expressions.all_of((a, b))

    def either(self, a: int, b: int) -> int:
        """Return the union."""
        return self.expressions.alt((a, b))

    def is_possible(self, state: int) -> bool:
        """Return whether any text satisfies ``state``."""
        return bool(self.expressions.flags[state] & 1) or self._is_alive(state)

    def steps(self, state: int) -> Moves:
        """Like `moves`, but includes states that no text satisfies: these are hard to recognise."""
        return tuple((mask, to) for mask, to in self.derive(state) if to != NONE)

    def settling(self, state: int) -> int:
        """Return the minterms after which ``state`` has no further condition."""
        return self.possible(state)[1]

    def possible(self, state: int) -> tuple[int, int]:
        """Return the minterms that ``state`` allows (see `steps`), and those that settle it."""
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
        """Return the state of texts that do not begin in certain ways: with one of some minterms,
        followed by a text of a state. In the form of `shortened`, so that it needs no derivatives.
        """
        full = 0
        for mask, after in ways:
            if after == self.anything:
                full |= mask
        # Usually a character is barred, whatever follows.
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
        """Return ``state``, or an equivalent state that only names characters, if one character
        settles it.

        After ``sel``, a name that is not a keyword forbids ``ect``, and after ``fro`` it forbids
        ``m``. But because a name takes all letters, no letter may follow anyway.
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
        aheads: the condition of each lookahead.
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
        """Return the next steps of ``node``, in order of preference.

        Args:
            node: the expression.
            holds: returns whether the lookbehind with a number holds here.
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
        """Return the texts that begin with a match of ``node`` and continue with a text of
        ``after``.

        Args:
            node: the expression.
            after: a state of `rest`.
            name: the terminal, for messages.

        Raises:
            UnsupportedFeature: lookarounds inside cannot be converted.
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
        """Return all minterms that occur in ``node``, and the conditions of its lookaheads."""
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
            most = least  # anything may follow, so the fewest rounds are enough
        if self.looks[body]:
            if not 0 <= most <= _MAX_UNROLL:
                raise self._entangled(name)
            if most == 0:
                return after
            fewer = self._repeat(body, max(least - 1, 0), most - 1, lazy)
            out = self.tail(body, self.tail(fewer, after, name), name)
            return out if least else rest.either(out, after)
        if after == rest.anything and least:
            # The last round may be cut short: only its beginning counts, too.
            after, least = self.tail(body, after, name), least - 1
            most = least
        return rest.then(rest.times(self.tail(body, EPSILON, name), least, most), after)

    def _entangled(self, name: str) -> UnsupportedFeature:
        return UnsupportedFeature(
            f"Terminal {name} has a lookahead or lookbehind that changes where the terminal ends, "
            "which cannot be enforced exactly.",
            fix="Move the lookahead to the end of the terminal, or write the pattern without it.",
        )

    def text(self, minterms: Sequence[int]) -> int:
        """Return the node of a text, one minterm after the other. The nodes after its first minterm
        are made on demand, because most are never read."""
        return self._node((_TEXT, *minterms), 0)

    def _spelt(self, minterms: Sequence[int]) -> int:
        """Return the same node of a text as `lower`."""
        node = EMPTY
        for minterm in reversed(minterms):
            node = self._cat(self._node((_SET, 1 << minterm), 0), node)
        return node

    def lower(self, parsed: ir.Regex) -> int:
        """Return the node of a parsed expression, `DEAD` if it matches nothing."""
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


_LONG_PATTERN = 40
"""Patterns with more characters are checked with `check_growth` before use."""


_PROBED_CHARACTERS = 64


def may_be_large(pattern: str | ir.Regex) -> bool:
    """Return whether a pattern may have more states than its (few) characters."""
    if isinstance(pattern, str):
        return len(pattern) > _LONG_PATTERN or "{" in pattern
    nodes = list(ir.nodes(pattern))
    return len(nodes) > _LONG_PATTERN or any(isinstance(node, ir.Repeat) for node in nodes)


class Assertions:
    """The lookarounds of a grammar's terminals.

    Attributes:
        aheads: the condition of each lookahead, or end of the text, on the following text.
        behinds: the expression of each lookbehind, and its width in characters.
    """

    def __init__(self) -> None:
        self.aheads: dict[ir.Lookahead | ir.EndAnchor, ir.Regex] = {}
        self.behinds: dict[ir.Lookbehind, tuple[ir.Regex, int]] = {}

    def collect(self, terminal: ir.Terminal, parsed: ir.Regex, sets: set[ir.Ranges]) -> None:
        """Record the lookarounds of a terminal; add its character sets to ``sets``."""
        stack = [parsed]
        while stack:
            node = stack.pop()
            if isinstance(node, ir.CharSet):
                sets.add(node.ranges)
            elif isinstance(node, ir.StartAnchor):
                raise PatternError(
                    f"Terminal {terminal.name} has ^ or \\A, which would match only at the start "
                    "of the text. Remove it; the rules determine where a terminal occurs.",
                    pattern=str(terminal.pattern),
                )
            elif isinstance(node, ir.EndAnchor):
                self.aheads[node] = ir.EndAnchor()
            elif isinstance(node, ir.Lookbehind):
                if tree.has_look(node.body) or tree.has_anchor(node.body):
                    raise UnsupportedFeature(
                        f"A lookbehind or a multi-line ^ in terminal {terminal.name} matches the "
                        "start of the text or contains another assertion, which is not supported.",
                        fix="Write the terminal without it.",
                    )
                regex = tree.simplified(node.body)
                self.behinds.setdefault(node, (regex, _width(regex)))
                sets |= char_sets(regex)
            elif isinstance(node, ir.Lookahead):
                self.aheads[node] = _ahead(node, terminal)
                sets |= char_sets(self.aheads[node])
            else:
                stack.extend(ir.parts_of(node))


def _width(regex: ir.Regex) -> int:
    """Return the width of a lookbehind in characters; all its texts have the same."""
    if isinstance(regex, ir.CharSet):
        return 1
    if isinstance(regex, ir.Repeat):
        return regex.min * _width(regex.body)
    widths = map(_width, ir.parts_of(regex))
    return max(widths, default=0) if isinstance(regex, ir.Alternate) else sum(widths)


def _ahead(look: ir.Lookahead, terminal: ir.Terminal) -> ir.Regex:
    """Return the texts that may follow at the place of ``look``."""
    if any(isinstance(node, (ir.Lookbehind, ir.StartAnchor)) for node in ir.nodes(look.body)):
        raise UnsupportedFeature(
            f"Terminal {terminal.name} has a lookbehind or a \\b inside a lookahead, which is not "
            "supported.",
            fix="Write the lookahead with a character class.",
        )
    regex = tree.simplified(ir.Concat((look.body, ir.ANY_TEXT)))
    return tree.complement(regex) if look.negate else regex


def _text_of(regex: ir.Regex) -> str | None:
    """Return the only text that an expression matches; None if this is not obvious."""
    text = ""
    for part in regex.parts if isinstance(regex, ir.Concat) else (regex,):
        if not isinstance(part, ir.CharSet) or len(part.ranges) != 1:
            return None
        low, high = part.ranges[0]
        if low != high:
            return None
        text += chr(low)
    return text


def _plain_text(pattern: str | ir.Regex) -> str | None:
    return python_regex.plain_text(pattern) if isinstance(pattern, str) else _text_of(pattern)


def _parsed(pattern: str | ir.Regex) -> ir.Regex:
    parsed = python_regex.parse(pattern, lazy=True) if isinstance(pattern, str) else pattern
    return tree.settled(parsed)


def check_growth(name: str, start: int, moves: Callable[[int], Moves]) -> None:
    """Visit the states of texts of a few dozen characters, and refuse a pattern whose states
    explode.

    Raises:
        CompileLimitExceeded: there are too many states.
    """
    seen, level = {start}, [start]
    for _ in range(_PROBED_CHARACTERS):
        following: list[int] = []
        for q in level:
            for _, to in moves(q):
                if to not in seen:
                    seen.add(to)
                    following.append(to)
        check_limit(
            len(seen),
            MAX_PROBED,
            f"terminal {name} needs too many automaton states: {MANY_BEGINNINGS}",
        )
        level = following


_Key = tuple[tuple[tuple[int, int], ...], tuple[int, ...], int, int]
"""A state: threads (the rest, condition), positions of lookbehind automata, characters read (as far
as it matters), terminal."""

MAX_STATES = 100_000
"""The most states of one terminal."""


_MAX_EAGER = 300
_UNORDERED = -2
_MAX_EXPLORED = 100
_MAX_EXPLORED_LOOKING = 2_000


def _never(index: int) -> bool:
    raise AssertionError("there is no lookbehind")


class Terminals:
    """All terminals of a grammar, over one alphabet.

    Args:
        symbols: the terminals; those that are not patterns are left to `embedded_terminals`.
        chars: the code points that may be written.

    Raises:
        PatternError: a pattern is malformed or not regular.
        UnsupportedFeature: a lookaround that cannot be enforced exactly.

    Attributes:
        alphabet: the minterms.
        lookahead: the automaton of conditions on the following text.
        starts: the start state of each terminal; -1 when it matches nothing, or is embedded.
        embedded: terminals that are not patterns, by number; for the caller to fill in.
        literals: the bytes of terminals that match only one text.
    """

    def __init__(self, symbols: Sequence[ir.AnyTerminal], chars: ir.CharSet) -> None:
        terminals = [
            s if isinstance(s, ir.Terminal) else ir.Terminal(s.name, "(?!)") for s in symbols
        ]
        # Most terminals match only one text: handle these without trees.
        texts = [_plain_text(t.pattern) or None for t in terminals]
        trees = [
            None if text is not None else _parsed(t.pattern)
            for t, text in zip(terminals, texts, strict=True)
        ]
        sets = {chars.ranges}
        written = set().union(*[text for text in texts if text is not None])
        for char in written:
            sets.add(((ord(char), ord(char)),))
        assertions = Assertions()
        behinds = assertions.behinds
        self._names = [t.name for t in terminals]
        for terminal, parsed in zip(terminals, trees, strict=True):
            if parsed is not None:
                try:
                    assertions.collect(terminal, parsed, sets)
                except OutputTypeError as error:
                    error.terminal = terminal.name
                    raise
        if behinds:
            sets |= char_sets(ir.ANY_TEXT)
        self.alphabet = Alphabet(sets)
        self._writable = self.alphabet.mask(chars.ranges)
        self.end_of_text = 1 << self.alphabet.n_minterms
        self.embedded: dict[int, EmbeddedTerminal] = {}
        self.lookahead = LookaheadAutomaton(self.alphabet)
        self._behind_automata = [
            RegexAutomaton(ir.Concat((ir.ANY_TEXT, regex)), self.alphabet)
            for regex, _ in behinds.values()
        ]
        self._behind_widths = [width for _, width in behinds.values()]
        numbers = {look: i for i, look in enumerate(behinds)}
        self._threads = Threads(self.lookahead, self._writable, assertions.aheads, numbers)
        self._keys: list[_Key] = []
        # States without lookarounds or conditions; all states after them are the same kind.
        self._is_plain: list[bool] = []
        self._state_ids: dict[object, int] = {}
        self._moves: dict[int, Moves] = {}
        self._raw: dict[int, Moves] = {}
        self._alive: dict[int, bool] = {}
        self._nodes_of: list[int] = []
        self._first: dict[int, int] = {}
        self.literals: dict[int, bytes] = {}
        minterms = {char: self.alphabet.minterm(ord(char)) for char in written}
        unwritable = {
            char for char, m in minterms.items() if m == NO_ATOM or not self._writable >> m & 1
        }
        self.starts: list[int] = []
        for i, (terminal, text, parsed) in enumerate(zip(terminals, texts, trees, strict=True)):
            if parsed is None:
                assert text is not None
                is_dead = unwritable and not unwritable.isdisjoint(text)
                node = DEAD if is_dead else self._threads.text([minterms[char] for char in text])
                self._nodes_of.append(node)
                start = -1
                if node != DEAD:
                    self.literals[i] = text.encode()
                    key: _Key = (((node, self.lookahead.anything),), (), 0, -1)
                    start = self._state_of(key, i, True)
                self._first[i] = 0 if is_dead else 1 << minterms[text[0]]
            else:
                literal = _text_of(parsed) or ""
                masks = [self.alphabet.mask(((ord(char), ord(char)),)) for char in literal]
                if literal and all(mask & self._writable for mask in masks):
                    self.literals[i] = literal.encode()
                is_language = not isinstance(terminal.pattern, str)
                start = self._start_anywhere(parsed) if is_language else self._start(i, parsed)
            self.starts.append(start)
            if parsed is not None and start >= 0 and may_be_large(terminal.pattern):
                check_growth(self._names[i], start, self.moves)

    @property
    def weight(self) -> int:
        """Its size in bytes, roughly: see `leaf.Leaf.weight`."""
        open_threads = sum([len(key[0]) for key in self._keys])
        known = len(self._keys) + len(self._moves) + len(self._raw) + len(self._state_ids)
        nodes = 240 * len(self._threads.looks)
        return self.lookahead.weight + nodes + 150 * known + 64 * open_threads

    # -- the automata -------------------------------------------------------------------------

    def moves(self, state: int) -> Moves:
        """Return disjoint ``(minterm mask, next state)`` pairs without dead ends."""
        found = self._moves.get(state)
        if found is None and self._keys[state][3] == _UNORDERED:
            language = self._keys[state][0][0][0]
            moves = self.lookahead.moves(language)
            found = self._moves[state] = tuple((m, self._unordered(to, True)) for m, to in moves)
        elif found is None:
            found = tuple((mask, to) for mask, to in self._all_moves(state) if self._is_alive(to))
            self._moves[state] = found
        return found

    def first(self, terminal: int) -> int:
        """Return the minterms with which a terminal can begin."""
        found = self._first.get(terminal)
        if found is None:
            inner = self.embedded.get(terminal)
            found = 0 if inner is None else inner.first
            for mask, _ in () if inner else self.moves(self.starts[terminal]):
                found |= mask
            self._first[terminal] = found
        return found

    def demands(
        self, terminal: int, most: int | None = None
    ) -> tuple[int, bool, tuple[int, ...] | None]:
        """Return the demands that a terminal's ends may put on the rest of the text.

        Args:
            terminal: its number.
            most: the most states to visit; None: as many as are cheap.

        Returns:
            Minterms, each of which settles all demands; whether the text may always end; and the
            conditions. For a terminal with very many states, a safe estimate and None.
        """
        conditions: dict[int, None] = {}
        start = self.starts[terminal]
        if (
            terminal in self.embedded
            or terminal in self.literals
            or self._keys[start][3] == _UNORDERED
        ):
            return self.alphabet.everything | self.end_of_text, True, (self.lookahead.anything,)
        seen = {start: None}
        for state in (todo := [start]):
            end = self.end(state)
            if end != NONE:
                conditions[end] = None
            for _, to in self.moves(state):
                if to not in seen:
                    seen[to] = None
                    todo.append(to)
            looks = self._threads.looks[self._nodes_of[terminal]]
            if len(seen) > (most or (_MAX_EXPLORED_LOOKING if looks else _MAX_EXPLORED)):
                return (*self._settling_at_worst(terminal), None)
        return (*self.settled_by(conditions), tuple(conditions))

    def settled_by(self, conditions: Iterable[int]) -> tuple[int, bool]:
        """Return the minterms that settle all ``conditions``; whether the text may end under all.

        For the text before it, a named token is the end of the text: `Terminals.end_of_text`, an
        extra minterm.
        """
        rest, minterms = self.lookahead, self.alphabet.everything
        may_end = True
        for condition in conditions:
            if condition != rest.anything:
                minterms &= rest.settling(condition)
                may_end = may_end and rest.label(condition) >= 0
        return minterms | self.end_of_text if may_end else minterms, may_end

    def _settling_at_worst(self, terminal: int) -> tuple[int, bool]:
        """Return the minterms that settle all that a terminal and its lookaheads read."""
        masks, conditions = self._threads.contents(self._nodes_of[terminal])
        pending = dict.fromkeys(conditions)
        for condition in (todo := list(pending)):
            for _, to in self.lookahead.steps(condition):
                if to not in pending:
                    pending[to] = None
                    todo.append(to)
            if len(pending) > _MAX_EXPLORED_LOOKING:
                return 0, False
        # If a lookahead decides between two continuations, its complement is demanded, too.
        contrary = [self.lookahead.contrary(c) for c in pending]
        minterms, may_end = self.settled_by([*pending, *contrary])
        return minterms & ~masks, may_end

    def _items(self, state: int) -> list[Item]:
        """Return the open threads of ``state``, preferred first, up to an unconditional match."""
        threads, behinds, depth, terminal = self._keys[state]
        if self._is_plain[state]:
            plain: list[Item] = []
            for node, _ in threads:
                for item in self._threads.expand(node, _never):
                    plain.append(item)
                    if not item[1]:
                        return plain
            return plain

        def holds(index: int) -> bool:
            return self._holds(index, behinds, depth, terminal)

        both, anything = self.lookahead.both, self.lookahead.anything
        out: list[Item] = []
        for node, condition in threads:
            for ahead, mask, after in self._threads.expand(node, holds):
                ahead = both(condition, ahead)
                if ahead != NONE:
                    out.append((ahead, mask, after))
                    if not mask and ahead == anything:
                        return out
        return out

    @cached_method
    def end(self, state: int) -> int:
        """Return the condition on the rest under which the terminal ends here, or `NONE`."""
        rest = self.lookahead
        threads, _, has_begun, terminal = self._keys[state]
        if terminal == _UNORDERED:
            may_end = has_begun and rest.label(threads[0][0]) >= 0
            return rest.anything if may_end else NONE
        allowed = NONE
        preferred: list[tuple[int, int]] = []  # conditions, and what then matches first
        items = self._items(state)
        while items and items[-1][1]:
            items.pop()
        if self._is_plain[state]:
            if not items:
                return NONE
            tail, anything = self._threads.tail, rest.anything
            return rest.unless([(mask, tail(after, anything, "")) for _, mask, after in items[:-1]])
        for condition, mask, after in items:
            if not mask:
                forbidden = NONE
                for other, matched in preferred:
                    # The same condition is not needed twice.
                    if other != condition:
                        matched = rest.both(other, matched)
                    forbidden = rest.either(forbidden, matched)
                here = rest.both(condition, rest.contrary(forbidden))
                allowed = rest.either(allowed, here)
                preferred.append((condition, rest.anything))
            else:
                name = self._names[self._keys[state][3]]
                matched = self._threads.tail(after, rest.anything, name)
                preferred.append((condition, rest.then(rest.one(mask), matched)))
        return rest.shortened(allowed) if rest.is_possible(allowed) else NONE

    def _all_moves(self, state: int) -> Moves:
        found = self._raw.get(state)
        if found is not None:
            return found
        if self._is_plain[state]:
            found = self._raw[state] = self._plain_moves(state)
            return found
        _, behinds, depth, terminal = self._keys[state]
        rest = self.lookahead
        passed = rest.anything  # no match is preferred to the following items
        parts: list[tuple[int, tuple[tuple[int, int], ...]]] = [(self._writable, ())]
        for condition, mask, after in self._items(state):
            if not mask:
                passed = rest.both(passed, rest.contrary(condition))
                continue
            condition = rest.both(condition, passed)
            steps: Moves = ((mask, rest.anything),)
            if condition != rest.anything:
                steps = tuple((mask & m, to) for m, to in rest.steps(condition) if mask & m)
            split: list[tuple[int, tuple[tuple[int, int], ...]]] = []
            for chars, threads in parts:
                for step, to in steps:
                    here = chars & step
                    if here:
                        chars &= ~step
                        thread = (after, to)
                        known = thread in threads or (after, rest.anything) in threads
                        split.append((here, threads if known else (*threads, thread)))
                if chars:
                    split.append((chars, threads))
            parts = split
        merged: dict[int, int] = {}
        for chars, threads in parts:
            if not threads:
                continue
            for mask, positions in self._advance_behinds(chars, behinds):
                to = self._state(threads, positions, depth + 1, terminal)
                merged[to] = merged.get(to, 0) | mask
        found = self._raw[state] = tuple((mask, to) for to, mask in merged.items())
        return found

    def _plain_moves(self, state: int) -> Moves:
        terminal, anything = self._keys[state][3], self.lookahead.anything
        # Nothing is preferred to an item without a mask any more.
        items = [*takewhile(itemgetter(0), (item[1:] for item in self._items(state)))]
        parts: list[tuple[int, tuple[tuple[int, int], ...]]] = [(self._writable, ())]
        if sum(mask.bit_count() for mask, _ in items) <= 3 * len(items):  # few of many characters
            by_minterm: dict[int, dict[tuple[int, int], None]] = {}
            for mask, after in items:
                for minterm in bits(mask & self._writable):
                    by_minterm.setdefault(minterm, {})[after, anything] = None
            parts = [(1 << minterm, tuple(threads)) for minterm, threads in by_minterm.items()]
            items = []
        for mask, after in items:
            thread = (after, anything)
            split: list[tuple[int, tuple[tuple[int, int], ...]]] = []
            for chars, threads in parts:
                if chars & mask:
                    known = thread in threads
                    split.append((chars & mask, threads if known else (*threads, thread)))
                if chars & ~mask:
                    split.append((chars & ~mask, threads))
            parts = split
        merged: dict[int, int] = {}
        for chars, threads in parts:
            if threads:
                to = self._state_of((threads, (), 0, -1), terminal, True)
                merged[to] = merged.get(to, 0) | chars
        return tuple((mask, to) for to, mask in merged.items())

    def _advance_behinds(
        self, chars: int, behinds: tuple[int, ...]
    ) -> list[tuple[int, tuple[int, ...]]]:
        parts: list[tuple[int, tuple[int, ...]]] = [(chars, ())]
        if not behinds:
            return parts
        for automaton, at in zip(self._behind_automata, behinds, strict=True):
            parts = [
                (mask & step, (*done, to))
                for mask, done in parts
                for step, to in automaton.moves(at)
                if mask & step
            ]
        return parts

    def _is_alive(self, state: int) -> bool:
        if self._is_plain[state]:
            return True
        return liveness.is_alive(
            state,
            self._alive,
            lambda s: self.end(s) != NONE,
            lambda s: [to for _, to in self._all_moves(s)],
            MAX_STATES,
            "a terminal with lookarounds needs too many states",
        )

    def _state(
        self,
        threads: tuple[tuple[int, int], ...],
        behinds: tuple[int, ...],
        depth: int,
        terminal: int,
    ) -> int:
        if not any(self._threads.looks[node] & HAS_BEHIND for node, _ in threads):
            behinds, depth = (), 0
        depth = min(depth, max(self._behind_widths, default=0))
        # Terminals share states; only messages need the terminal.
        owner = terminal if any(self._threads.looks[node] for node, _ in threads) else -1
        anything = self.lookahead.anything
        is_plain = owner < 0 and all(condition == anything for _, condition in threads)
        return self._state_of((threads, behinds, depth, owner), terminal, is_plain)

    def _state_of(self, key: _Key, terminal: int, is_plain: bool) -> int:
        found = self._state_ids.get(key)
        if found is None:
            found = len(self._keys)
            if found > MAX_STATES:
                name = self._names[terminal]
                check_limit(found, MAX_STATES, f"terminal {name} needs too many states")
            WORK.spend(2 + (len(key[0]) >> 2))
            self._keys.append(key)
            self._is_plain.append(is_plain)
            self._state_ids[key] = found
        return found

    def _start_anywhere(self, parsed: ir.Regex) -> int:
        """Return the start of a terminal that may end at any match: a language without order."""
        node = self._threads.lower(parsed)
        self._nodes_of.append(node)
        language = self._threads.tail(node, EPSILON, "")
        start = self._unordered(language, False)
        return start if self.moves(start) else -1

    def _unordered(self, language: int, has_begun: bool) -> int:
        key = (((language, 0),), (), int(has_begun), _UNORDERED)
        found = self._state_ids.get(key)
        if found is None:
            found = self._state_ids[key] = len(self._keys)
            WORK.spend(2 + (len(key[0]) >> 2))
            self._keys.append(key)
            self._is_plain.append(False)
        return found

    def _start(self, terminal: int, parsed: ir.Regex) -> int:
        node = self._threads.lower(parsed)
        self._nodes_of.append(node)
        if node == DEAD:
            return -1
        automata = self._behind_automata if self._threads.looks[node] & HAS_BEHIND else []
        behinds = tuple(automaton.start for automaton in automata)
        start = self._state(((node, self.lookahead.anything),), behinds, 0, terminal)
        if self._threads.looks[node]:
            # Raises here for what cannot be enforced, not in the middle of an output.
            seen = [start]
            for state in seen:
                self.end(state)
                seen += {to for _, to in self._all_moves(state)}.difference(seen)
                if len(seen) > _MAX_EAGER:
                    break
        return start if self._is_alive(start) else -1

    def _holds(self, index: int, behinds: tuple[int, ...], depth: int, terminal: int) -> bool:
        if self._behind_automata[index].label(behinds[index]) >= 0:
            return True
        if depth < self._behind_widths[index]:
            error = UnsupportedFeature(
                f"A lookbehind, ^ or \\b in terminal {self._names[terminal]} may depend on text "
                "before the terminal, which is not supported.",
                fix="Remove it, or express in the rules which symbols may come before.",
            )
            error.terminal = self._names[terminal]
            raise error
        return False
