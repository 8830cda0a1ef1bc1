"""Regular expressions as lazy automata over atoms, by derivatives.

A state is a regular expression in a normal form, hash-consed to an integer; reading an atom gives
its Brzozowski derivative (Brzozowski 1964; Owens, Reppy & Turon 2009 for derivative classes and
the normal form). Counted repeats stay symbolic: ``r{3,1000}`` is one node. Intersection and
complement cost nothing extra. Anchors are nodes: ``^`` is empty until something has been read,
``$`` is nullable only at the end. What derivatives are where there are lookarounds is in
`lookarounds`.

`RegexAutomaton` implements the symbol-automaton protocol of `leaf`: ``start``, ``moves``,
``label``. It never returns a state from which no accepting state can be reached. It knows nothing
of bytes: `encoding` spells atoms.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable

from ..errors import CompileLimitExceeded
from ..grammar import ir
from . import liveness, lookarounds
from .alphabet import Alphabet

MAX_NODES = 200_000
"""Most expressions one pattern may derive before it is refused."""

MAX_SIZE = 3_000_000
"""Most parts that these may have together: alternatives that grow are as costly as many."""

_MOST_BEFORE = 3
"""Most factors before a repeat that are compared to find out that another alternative covers it."""

ROOM = 10
"""How much more of both patterns may have whose states grow steadily with the text."""

_NO_END = 1 << 60
"""The upper bound of a repeat without one, among upper bounds."""

_MOST_LEAST = 1 << 48
"""Lower bounds on lengths are told up to here."""

MAX_RUN = 1 << 16
"""Longest run told of where its states have to be checked one by one; no token is longer."""

NONE, EPSILON = 0, 1
SET, CAT, ALT, REP, AND, NOT, _START, _END = range(2, 10)
_SET, _CAT, _ALT, _REP, _AND, _NOT = SET, CAT, ALT, REP, AND, NOT

_Counted = tuple[tuple[int, ...], int, int]
"""What stands before a repeat, what it repeats, and what comes after."""

Moves = tuple[tuple[int, int], ...]
"""Disjoint ``(atom mask, next state)`` pairs."""


def char_sets(regex: ir.Regex) -> set[ir.Ranges]:
    """All character sets that occur in ``regex`` (iterative: nesting costs no stack)."""
    return _made_of(regex)[0]


def _made_of(regex: ir.Regex) -> tuple[set[ir.Ranges], set[type[ir.Regex]]]:
    """The character sets in an expression, and of what kinds its parts are.

    Formats are made of few parts, each of which stands in many places: it is looked at once.
    """
    found: set[ir.Ranges] = set()
    kinds: set[type[ir.Regex]] = set()
    seen: set[int] = set()
    stack: list[ir.Regex] = [regex]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        kinds.add(type(node))
        if isinstance(node, ir.CharSet):
            found.add(node.ranges)
        elif isinstance(node, (ir.Concat, ir.Alternate, ir.Intersect)):
            stack.extend(node.parts)
        elif isinstance(node, (ir.Repeat, ir.Complement, ir.Lookahead, ir.Lookbehind)):
            stack.append(node.body)
    return found, kinds


def _may_look_around(kinds: set[type[ir.Regex]]) -> bool:
    """Whether an expression of such parts can be one of `lookarounds.are_in`."""
    has_anchors = ir.StartAnchor in kinds or ir.EndAnchor in kinds
    has_own = ir.Intersect in kinds or ir.Complement in kinds
    return ir.Lookahead in kinds or ir.Lookbehind in kinds or (has_anchors and has_own)


class RegexAutomaton:
    """The lazy automaton of one regular expression.

    Args:
        regex: the expression.
        alphabet: atoms at least as fine as the expression's character sets; None builds them.

    Raises:
        CompileLimitExceeded: more than `MAX_NODES` different derivatives were needed.
    """

    def __init__(self, regex: ir.Regex, alphabet: Alphabet | None = None) -> None:
        sets, its_kinds = _made_of(regex)
        self.alphabet = alphabet or Alphabet(sets)
        self._nodes: list[tuple[int, ...]] = [(NONE,), (EPSILON,)]
        self._ids: dict[tuple[int, ...], int] = {(NONE,): NONE, (EPSILON,): EPSILON}
        # per node: bit 0 nullable at the end, bit 1 nullable in the middle, bit 2 nullable when the
        # text is empty, bit 3 holds an anchor or lookaround, bit 4 holds more than sums and repeats
        self._flags = bytearray((0, 0b111))
        self._size = 0
        self._room = 1
        # per node: a lower bound on the characters of a text
        self._least = array("q", (0, 0))
        self._moves: dict[int, Moves] = {}
        self._pruned: dict[int, Moves] = {}
        self._alive: dict[int, bool] = {NONE: False, EPSILON: True}
        self._killed: dict[int, int] = {}
        self._runs: dict[int, tuple[int, int]] = {}
        self._chars: dict[int, int] = {}
        self._found_runs: dict[int, tuple[int, int, int]] = {}
        self._counted: dict[int, tuple[tuple[_Counted, int, int], ...]] = {}
        self._open_parts: dict[int, int | None] = {}
        self._settled: dict[int, int] = {}
        self._any = self._set(self.alphabet.everything)
        self._all = self._repeat(self._any, 0, -1)
        looks_around = _may_look_around(its_kinds) and lookarounds.are_in(regex)
        self._looks = lookarounds.Looks(self) if looks_around else None
        self._is_counting = False
        self._body = self._lower(regex, {})
        anchored = self._looks is not None or self._flags[self._body] & 0b1000
        self.start = -1 if anchored else self._body
        """Initial state: with a number of its own where ``^`` might hold there and nowhere else."""
        # Without bounds to be told from none, no state is like another one.
        self.has_expressions = self._is_counting

    def give_room(self) -> None:
        """Let it grow to `ROOM` times the usual limits: where one text leads to few states of many,
        so that no limit is met in use."""
        self._room = ROOM

    @property
    def weight(self) -> int:
        """About how many bytes it takes by now: see `leaf.Leaf.weight`."""
        known = len(self._moves) + len(self._pruned) + len(self._alive) // 4
        return 3000 + 40 * self._size + 200 * known

    # -- the symbol-automaton protocol ------------------------------------------------------

    def label(self, state: int) -> int:
        """0 when the text may end here, else -1."""
        if state < 0:
            return 0 if self._flags[self._body] & 0b100 else -1
        return 0 if self._flags[state] & 0b001 else -1

    def moves(self, state: int) -> Moves:
        """Where each atom leads; atoms that lead nowhere are left out."""
        moves = self._pruned.get(state)
        if moves is None:
            raw = self._raw(state)
            alive = [move for move in raw if self._is_alive(move[1])]
            # One tuple for both, as nearly always: the collector looks at each.
            moves = self._pruned[state] = raw if len(alive) == len(raw) else tuple(alive)
        return moves

    def follow(self, state: int, atom: int) -> int | None:
        """The state after one atom, or None where it leads nowhere."""
        for mask, to in self.moves(state):
            if mask >> atom & 1:
                return to
        return None

    def read(self, state: int, text: bytes) -> int | None:
        """The state after some characters of ASCII, or None where they lead nowhere."""
        atoms = self.alphabet.ascii_atoms()
        for i, byte in enumerate(text):
            node = state if state >= 0 else self._body
            if self._looks is None and not self._flags[node] & 0b01000:
                # No state on the way need be known to be alive: the last one tells.
                end = self._read_node(node, text[i:], atoms)
                return end if self._is_alive(end) else None
            atom = atoms[byte]
            for mask, to in self.moves(state):
                if mask >> atom & 1:
                    state = to
                    break
            else:
                return None
        return state

    def _read_node(self, node: int, text: bytes, atoms: tuple[int, ...]) -> int:
        """The derivative of an expression without anchors by some characters of ASCII.

        What repeats a set is read at once, and conjunctions part by part: their states on the way
        are many and nobody asks for them.
        """
        nodes, known = self._nodes, self._moves
        i, end = 0, len(text)
        while i < end:
            kind, *args = nodes[node]
            if kind == _REP and nodes[args[0]][0] == _SET:
                body, least, most = args
                chars, first = nodes[body][1], i
                last = end if most < 0 else min(end, i + most)
                while i < last and chars >> atoms[text[i]] & 1:
                    i += 1
                if i == first:
                    return NONE
                count = i - first
                fewer = most - count if most >= 0 else most
                node = self._repeat(body, max(least - count, 0), fewer)
                continue
            if kind == _AND:
                rest = text[i:]
                return self._and([self._read_node(part, rest, atoms) for part in args])
            if kind == _NOT:
                return self._not(self._read_node(args[0], text[i:], atoms))
            atom = atoms[text[i]]
            moves = known.get(node)
            for mask, to in self._derive(node) if moves is None else moves:
                if mask >> atom & 1:
                    node = to
                    break
            else:
                return NONE
            i += 1
        return node

    def accepts(self, text: str) -> bool:
        """Whether the whole of ``text`` matches."""
        state = self.start
        for char in text:
            atom = self.alphabet.atom(ord(char))
            for mask, to in self.moves(state):
                if atom >= 0 and mask >> atom & 1:
                    state = to
                    break
            else:
                return False
        return self.label(state) >= 0

    def is_empty(self) -> bool:
        """Whether no text at all matches."""
        return self.label(self.start) < 0 and not self.moves(self.start)

    # -- runs: many characters in one step ----------------------------------------------------

    def run(self, state: int) -> tuple[int, int]:
        """A set of atoms of which many can be read in a row, and how many; -1 for any number.

        From ``state``, after ``j`` characters of the set (``j`` at most the number), the automaton
        is in `after_run` of ``state`` and ``j``; all these states have the same run, shortened,
        and are alive. An empty set says that nothing is known.
        """
        found = self._runs.get(state)
        if found is None:
            node = self.started(state)
            chars, most, settled = (0, 0, 0) if node < 0 else self._find_run(node)
            if chars and most >= 0 and self._flags[node] & 0b11000:
                most = self._alive_for(node, min(most, MAX_RUN))
            found = self._runs[state] = (chars, most) if chars and most else (0, 0)
            self._settled[state] = max(settled, 1) if state < 0 else settled
        return found

    def settled(self, state: int) -> int:
        """After how many characters an endless run of ``state`` stays where it is."""
        self.run(state)
        return self._settled[state]

    def after_run(self, state: int, count: int) -> int:
        """The state after ``count`` characters of the set of ``run(state)``; language-equal."""
        if not count:
            return state
        chars, most = self.run(state)
        if most < 0:
            count = min(count, self._settled[state])
        return self._advance(self.started(state), count, chars) if count else state

    def phases(self, state: int) -> tuple[int, ...] | None:
        """See `symbols.SymbolAutomaton`: told of a repeat of one set, whatever follows it."""
        node = self.started(state)
        if node < 0 or self.label(node) != self.label(state):
            return None
        repeat = self._nodes[node]
        if repeat[0] == _CAT:
            repeat = self._nodes[repeat[1]]
        if repeat[0] != _REP or self._flags[node] & 0b01000:
            return None
        _, body, least, most = repeat
        chars = self.run(state)[0]
        if not chars or self._nodes[body] != (_SET, chars):
            return None  # what follows may begin like it
        bounds = (0, least, most) if most > least else (0, least)
        return bounds if least else (0, *bounds[2:])

    def free(self, state: int) -> None:
        """See `symbols.SymbolAutomaton`: no state of an expression has a list of special texts."""

    def unnamed(self, state: int) -> None:
        """See `symbols.SymbolAutomaton`."""

    def at_least(self, state: int) -> int:
        """See `symbols.SymbolAutomaton`."""
        return self._least[state if state >= 0 else self._body]

    def is_open(self, state: int) -> bool:
        """See `symbols.SymbolAutomaton`: so it is for patterns that are searched for."""
        return self.open_part(state) is not None

    def open_part(self, state: int) -> int | None:
        """See `symbols.SymbolAutomaton`."""
        found = self._open_parts.get(state, -1)
        if found == -1:
            node = self.started(state)
            found = self._open_parts[state] = self._find_open(node) if node >= 0 else None
        return found

    def _find_open(self, node: int) -> int | None:
        todo = [node]
        while todo:
            node = todo.pop()
            kind, *args = self._nodes[node]
            if node == self._all or (kind == _CAT and args[0] == self._all):
                return node if self._is_alive(node) else None
            if kind == _ALT:
                todo += args
            elif kind == _AND:
                # What is searched for may come as late as one likes, so also once the text is
                # long enough; and less is missing of that after any text than before.
                rest = [part for part in args if not self._is_least_length(part)]
                if len(rest) == 1 and (found := self._find_open(rest[0])) is not None:
                    return self._and([found, *(part for part in args if part != rest[0])])
        return None

    def _is_least_length(self, node: int) -> bool:
        """Whether ``node`` is any text of at least some length."""
        kind, *args = self._nodes[node]
        return kind == _REP and args[0] == self._any and args[2] == -1

    def expression(self, state: int) -> tuple[RegexAutomaton, int]:
        """See `symbols.SymbolAutomaton`."""
        return self, state

    def in_expression(self, state: int) -> int:
        """See `symbols.SymbolAutomaton`."""
        return state

    def special(self, state: int) -> list[tuple[int, int]]:
        """See `symbols.SymbolAutomaton`."""
        return []

    def names(self, state: int) -> None:
        """See `symbols.SymbolAutomaton`."""

    def rests(self, state: int, most: int) -> list[tuple[int, str]] | None:
        """See `symbols.SymbolAutomaton`."""
        return None

    def special_texts(self, state: int) -> dict[str, int]:
        """See `symbols.SymbolAutomaton`."""
        return {}

    def special_label(self, state: int, number: int) -> int:
        """See `symbols.SymbolAutomaton`."""
        return -1

    def _find_run(self, node: int) -> tuple[int, int, int]:
        """The run of an expression: its set, its length, and where an endless one settles."""
        found = self._found_runs.get(node)
        if found is None:
            found = self._found_runs[node] = self._look_for_run(node)
        return found

    def _look_for_run(self, node: int) -> tuple[int, int, int]:
        kind, *args = self._nodes[node]
        if kind == _REP and self._nodes[args[0]][0] == _SET:
            return self._nodes[args[0]][1], args[2], args[1]
        if kind == _CAT:
            chars, most, settled = self._find_run(args[0])
            chars = self._run_before(chars, args[1])
            if chars:
                return chars, most, settled
        elif kind == _ALT and (body := self._before_last(args)) is not None:
            least, last = self._nodes[body], self._nodes[args[1]]
            chars = self._nodes[least[1]][1] & self._nodes[last[2]][1]
            if chars:
                return chars, least[3], 0
        if kind in (_AND, _ALT):
            chars, most, settled = self.alphabet.everything, -1, 0
            for part in args:
                more, count, later = self._find_run(part)
                chars &= more
                settled = max(settled, later)
                most = count if most < 0 else min(most, count) if count >= 0 else most
                if not chars:
                    break
            if chars:
                return chars, most, settled
        elif kind == _NOT:
            chars, most, settled = self._find_run(args[0])
            if chars:
                return chars, most, settled
        same = 0
        for mask, to in self._derive(node):
            if to == node:
                same |= mask
        return same, -1, 0

    def _before_last(self, parts: list[int]) -> int | None:
        """The repeat of ``(?:a{0,n}b)?`` for two sets of which the first may also be the last.

        Reading what is in both leaves ``(?:a{0,n-1}b)?``, as in the labels of host names.
        """
        if len(parts) != 2 or parts[0] != EPSILON:
            return None
        kind, *args = self._nodes[parts[1]]
        if kind != _CAT or self._nodes[args[1]][0] != _SET:
            return None
        first = self._nodes[args[0]]
        if first[0] != _REP or first[2] or first[3] < 0 or self._nodes[first[1]][0] != _SET:
            return None
        return args[0]

    def _run_before(self, chars: int, rest: int) -> int:
        """Those of ``chars``, a run's, that cannot begin ``rest``, which follows it."""
        if chars:
            for mask, _ in self._derive(rest):
                chars &= ~mask
        return chars

    def _advance(self, node: int, count: int, chars: int) -> int:
        kind, *args = self._nodes[node]
        if kind == _REP and self._nodes[args[0]][0] == _SET:
            body, least, most = args
            return self._repeat(body, max(least - count, 0), most - count if most >= 0 else most)
        if kind == _CAT:
            # As `_look_for_run` decided: the run is the first part's, or the whole stays.
            if self._run_before(self._find_run(args[0])[0], args[1]):
                return self._cat(self._advance(args[0], count, chars), args[1])
        elif kind == _AND:
            return self._and([self._advance(part, count, chars) for part in args])
        elif kind == _ALT:
            repeat = self._before_last(args)
            if repeat is not None and not chars & ~self._find_run(node)[0]:
                _, what, _, most = self._nodes[repeat]
                last = self._nodes[args[1]][2]
                return self._alt((EPSILON, self._cat(self._repeat(what, 0, most - count), last)))
            return self._alt([self._advance(part, count, chars) for part in args])
        elif kind == _NOT:
            return self._not(self._advance(args[0], count, chars))
        return node

    def _alive_for(self, node: int, most: int) -> int:
        """The largest count up to ``most`` after which the run's states are still alive."""
        chars = self._find_run(node)[0]
        # Mostly all are, or all but as many as what follows the run needs: so from above.
        low, high, step = most, most, 1
        while low and not self._is_alive(self._advance(node, low, chars)):
            high = low - 1
            low, step = max(low - step, 0), 2 * step
        while low < high:
            middle = (low + high + 1) // 2
            if self._is_alive(self._advance(node, middle, chars)):
                low = middle
            else:
                high = middle - 1
        return low

    def started(self, state: int) -> int:
        """The expression still to be read in ``state``; -1 where no run may be told from it."""
        if self._looks is not None:
            node = state if state >= 0 else self._body
            # Every character read can change a lookbehind further on.
            return -1 if self._looks.are_in(node) else node
        return state if state >= 0 else self._without_its_start(self._body)

    def _without_its_start(self, node: int) -> int:
        """What is left to read at the start of the text, past ``^``; -1 if that is unclear."""
        if self._without_start(node) == node:
            return node
        kind, *args = self._nodes[node]
        if kind == _CAT and self._nodes[args[0]] == (_START,):
            return args[1] if self._without_start(args[1]) == args[1] else -1
        if kind in (_ALT, _AND):
            parts = [self._without_its_start(part) for part in args]
            if min(parts) >= 0:
                return self._alt(parts) if kind == _ALT else self._and(parts)
        return -1

    def only_run(self, state: int) -> tuple[int, int, int] | None:
        """Where nothing may be read but one repeat of a set: its atoms, and its bounds (-1: none).

        None where there may be more.
        """
        node = self.started(state)
        if node < 0:
            return None
        repeat = self._nodes[node]
        if repeat[0] != _REP or (node != state and self.label(node) != self.label(state)):
            return None
        body = self._nodes[repeat[1]]
        return (body[1], repeat[2], repeat[3]) if body[0] == _SET else None

    def without_most(self, state: int) -> int:
        """For a state of `only_run`: the same repeat, any number of times."""
        _, body, least, _ = self._nodes[self.started(state)]
        return self._repeat(body, least, -1)

    # -- expressions as such ------------------------------------------------------------------

    def parts(self, node: int) -> tuple[int, ...]:
        """The kind of a node, and what it is made of: nodes, a mask of atoms, or bounds (-1: none).

        ``CAT`` has two parts, ``ALT`` and ``AND`` any number, ``REP`` a body and two bounds.
        """
        return self._nodes[node]

    def sequence(self, node: int) -> list[int]:
        """The parts of a sequence, however many; other nodes are one of their own."""
        out: list[int] = []
        while self._nodes[node][0] == _CAT:
            out.append(self._nodes[node][1])
            node = self._nodes[node][2]
        out.append(node)
        return out

    def holds_anchors(self, node: int) -> bool:
        """Whether there is an anchor or a lookaround in ``node``."""
        return bool(self._flags[node] & 0b01000)

    def is_plain(self, node: int) -> bool:
        """Whether ``node`` is made of sets, sums, sequences and repeats alone."""
        return not self._flags[node] & 0b11000

    def is_everything(self, node: int) -> bool:
        """Whether ``node`` is any one character."""
        return node == self._any

    def cat(self, left: int, right: int) -> int:
        """The node of a sequence."""
        return self._cat(left, right)

    def alt(self, parts: Iterable[int]) -> int:
        """The node of a sum."""
        return self._alt(parts)

    def repeat(self, body: int, least: int, most: int) -> int:
        """The node of a repeat; ``most`` -1 for any number."""
        return self._repeat(body, least, most)

    # -- construction -----------------------------------------------------------------------

    def _lower(self, regex: ir.Regex, known: dict[int, int]) -> int:
        """The node of an expression; ``known``: those of the parts met so far, by their `id`."""
        found = known.get(id(regex))
        if found is not None:
            return found
        if isinstance(regex, ir.CharSet):
            node = self._set(self.alphabet.mask(regex.ranges))
        elif isinstance(regex, ir.Concat):
            node = EPSILON
            for part in reversed(regex.parts):
                node = self._cat(self._lower(part, known), node)
        elif isinstance(regex, ir.Alternate):
            node = self._alt([self._lower(part, known) for part in regex.parts])
        elif isinstance(regex, ir.Repeat):
            most = -1 if regex.max is None else regex.max
            if most > max(regex.min, 1):
                self._is_counting = True
            node = self._repeat(self._lower(regex.body, known), regex.min, most)
        elif isinstance(regex, ir.Intersect):
            both = self._and([self._lower(part, known) for part in regex.parts])
            node = self._of_its_own(both)
        elif isinstance(regex, ir.Complement):
            node = self._of_its_own(self._not(self._lower(regex.body, known)))
        elif self._looks is not None:
            node = self._looks.lower(regex, lambda part: self._lower(part, known))
        elif isinstance(regex, ir.StartAnchor):
            node = self._node((_START,), 0b1100)
        else:
            node = self._node((_END,), 0b1101)
        known[id(regex)] = node
        return node

    def _of_its_own(self, node: int) -> int:
        return node if self._looks is None else self._looks.of_its_own(node)

    def _node(self, key: tuple[int, ...], flags: int) -> int:
        found = self._ids.get(key)
        if found is None:
            found = len(self._nodes)
            if found > MAX_NODES * self._room:
                raise CompileLimitExceeded(
                    "a pattern needs too many automaton states; simplify its counted repeats",
                    limit=MAX_NODES * self._room,
                    actual=found,
                )
            self._size += len(key)
            if self._size > MAX_SIZE * self._room:
                raise CompileLimitExceeded(
                    "a pattern needs too many alternatives at once; simplify its counted repeats",
                    limit=MAX_SIZE * self._room,
                    actual=self._size,
                )
            self._nodes.append(key)
            self._flags.append(flags)
            self._least.append(min(self._fewest(key), _MOST_LEAST))
            self._ids[key] = found
        return found

    def _fewest(self, key: tuple[int, ...]) -> int:
        kind, *args = key
        if kind == _SET:
            return 1
        if kind == _CAT:
            return self._least[args[0]] + self._least[args[1]]
        if kind == _ALT:
            return min(self._least[part] for part in args)
        if kind == _AND:
            return max(self._least[part] for part in args)
        if kind == _REP:
            return self._least[args[0]] * args[1]
        return 0

    def _set(self, mask: int) -> int:
        return self._node((_SET, mask), 0) if mask else NONE

    def _cat(self, left: int, right: int) -> int:
        if left == NONE or right == NONE:
            return NONE
        if left == EPSILON:
            return right
        if right == EPSILON:
            return left
        node = self._nodes[left]
        if node[0] == _CAT:
            return self._cat(node[1], self._cat(node[2], right))
        if left == self._all and right == self._all:
            return left
        f, g = self._flags[left], self._flags[right]
        if node[0] == _REP and not f & 0b11000:
            # a{1,2}a{0,3} is a{1,5}: a chain of optional parts stays one counter.
            rest = self._nodes[right]
            first, *after = rest[1:] if rest[0] == _CAT else (right,)
            other = self._nodes[first]
            if other[0] == _REP and other[1] == node[1]:
                most = -1 if -1 in (node[3], other[3]) else node[3] + other[3]
                merged = self._repeat(node[1], node[2] + other[2], most)
                return self._cat(merged, after[0]) if after else merged
        if node[0] == _END and not g & 0b101:
            return NONE
        flags = (f & g & 0b111) | ((f | g) & 0b11000)
        return self._node((_CAT, left, right), flags)

    def _alt(self, parts: Iterable[int]) -> int:
        flat: set[int] = set()
        chars = 0
        stack = list(parts)
        while stack:
            part = stack.pop()
            node = self._nodes[part]
            if node[0] == _ALT:
                stack.extend(node[1:])
            elif node[0] == _SET:
                chars |= node[1]
            elif part != NONE:
                flat.add(part)
        if chars:
            flat.add(self._set(chars))
        if self._all in flat:
            return self._all
        flags = 0
        for part in flat:
            if part != EPSILON:
                flags |= self._flags[part]
        if EPSILON in flat:
            if flags & 0b111 == 0b111:
                flat.discard(EPSILON)
            flags |= 0b111
        if not flat:
            return NONE
        flat = self._subsume(flat)
        if len(flat) == 1:
            return flat.pop()
        return self._node((_ALT, *sorted(flat)), flags)

    def _subsume(self, parts: set[int]) -> set[int]:
        """Drop ``r{a,b}·s`` when ``r{c,d}·s`` with c <= a, b <= d is there: keeps counters few.

        Where ``s`` takes any text, what ``r`` reads beyond ``c`` times may as well belong to it;
        and something may stand before both.
        """
        if len(parts) < 2:
            return parts
        parts = self._without_covered(parts)
        groups: dict[tuple[int, ...], list[tuple[int, int, int]]] = {}
        for part in parts:
            node, rest = self._nodes[part], EPSILON
            before: tuple[int, ...] = ()
            if node[0] == _CAT:
                left, rest = node[1:]
                while rest != self._all and len(before) < _MOST_BEFORE:
                    after = self._nodes[rest]
                    if after[0] != _CAT:
                        break
                    before += (left,)
                    left, rest = after[1:]
                if rest != self._all:
                    before = ()
                    left, rest = node[1:]
                node = self._nodes[left]
            if node[0] == _REP:
                most = node[3] if node[3] >= 0 and rest != self._all else _NO_END
                groups.setdefault((node[1], rest, *before), []).append((node[2], most, part))
        out = parts
        for group in groups.values():
            if len(group) < 2:
                continue
            group.sort(key=lambda item: (item[0], -item[1]))
            widest = -1
            for _, most, part in group:
                if most <= widest:
                    if out is parts:
                        out = set(parts)
                    out.discard(part)
                widest = max(widest, most)
        return self._adjoined(out) if len(out) > 1 else out

    def _adjoined(self, parts: set[int]) -> set[int]:
        """``parts`` with ``q·r{a,b}·s`` and ``q·r{c,d}·s`` as one ``q·r{a,d}·s`` where no count is
        left out between them: in ``(?:a|b|ab){1000}`` any of hundreds of counts may be left."""
        groups: dict[_Counted, list[tuple[int, int, int]]] = {}
        n_counted = 0
        for part in parts:
            counted = self._counted.get(part)
            if counted is None:
                counted = self._counted[part] = self._find_counted(part)
            n_counted += len(counted)
            for key, least, most in counted:
                groups.setdefault(key, []).append((least, most, part))
        if len(groups) == n_counted:
            return parts
        gone: set[int] = set()
        joined: set[int] = set()
        for (before, body, rest), group in groups.items():
            if len(group) < 2:
                continue
            group.sort()
            chain: list[int] = []
            first = last = 0
            for least, most, part in [*group, (_NO_END, _NO_END, NONE)]:
                if part in gone:
                    continue
                if chain and least <= last + 1 and part != NONE:
                    chain.append(part)
                    last = max(last, most)
                    continue
                if len(chain) > 1:
                    one = self._cat(
                        self._repeat(body, first, -1 if last == _NO_END else last), rest
                    )
                    for factor in reversed(before):
                        one = self._cat(factor, one)
                    gone.update(chain)
                    joined.add(one)
                chain, first, last = [part], least, most
        return self._subsume(parts - gone | joined) if gone else parts

    def _find_counted(self, part: int) -> tuple[tuple[_Counted, int, int], ...]:
        """The repeats in a sequence: what stands before, is repeated and comes after; bounds."""
        found: list[tuple[_Counted, int, int]] = []
        before: tuple[int, ...] = ()
        rest = part
        while rest != EPSILON and len(before) <= _MOST_BEFORE:
            node = self._nodes[rest]
            left, rest = node[1:] if node[0] == _CAT else (rest, EPSILON)
            factor = self._nodes[left]
            if factor[0] == _REP:
                most = factor[3] if factor[3] >= 0 else _NO_END
                found.append(((before, factor[1], rest), factor[2], most))
            before += (left,)
        return tuple(found)

    def _without_covered(self, parts: set[int]) -> set[int]:
        """Drop ``q·[x]*·s`` when ``[x]*·s`` is there and ``q`` has no other characters: of what
        overlaps in a pattern the widest part remains."""
        stars: dict[int, int] = {}
        for part in parts:
            node = self._nodes[part]
            if node[0] == _CAT:
                node = self._nodes[node[1]]
            if node[0] == _REP and not node[2] and node[3] < 0:
                body = self._nodes[node[1]]
                if body[0] == _SET:
                    stars[part] = body[1]
        if not stars:
            return parts
        out = parts
        for part in parts:
            chars, rest = 0, part
            for _ in range(_MOST_BEFORE + 1):
                node = self._nodes[rest]
                if node[0] != _CAT:
                    break
                chars |= self._all_chars(node[1])
                rest = node[2]
                if rest in stars and not chars & ~stars[rest]:
                    if out is parts:
                        out = set(parts)
                    out.discard(part)
                    break
        return out

    def _all_chars(self, node: int) -> int:
        """The atoms that texts of an expression hold, or more."""
        found = self._chars.get(node)
        if found is None:
            kind, *args = self._nodes[node]
            if kind == _SET:
                found = args[0]
            elif kind in (_CAT, _ALT):
                found = 0
                for part in args:
                    found |= self._all_chars(part)
            elif kind == _REP:
                found = self._all_chars(args[0])
            else:
                found = 0 if kind == EPSILON else self.alphabet.everything
            self._chars[node] = found
        return found

    def _repeat(self, body: int, least: int, most: int) -> int:
        if most == 0 or body == EPSILON:
            return EPSILON
        if body == NONE:
            return EPSILON if least == 0 else NONE
        if most >= 0 and most < least:
            return NONE
        flags = self._flags[body]
        if flags & 0b111 == 0b111:
            least = 0
        if least == 1 and most == 1:
            return body
        node = self._nodes[body]
        if node[0] == _REP and least <= 1 and most == -1 and node[2] <= 1 and node[3] == -1:
            return self._repeat(node[1], least * node[2], -1)
        key = (_REP, body, least, most)
        return self._node(key, (0b111 if least == 0 else flags & 0b111) | (flags & 0b11000))

    def _and(self, parts: Iterable[int]) -> int:
        flat: set[int] = set()
        stack = list(parts)
        while stack:
            part = stack.pop()
            if part == NONE:
                return NONE
            node = self._nodes[part]
            if node[0] == _AND:
                stack.extend(node[1:])
            elif part != self._all:
                flat.add(part)
        if not flat:
            return self._all
        if len(flat) > 1:
            flat = self._as_one_repeat(flat)
        if len(flat) == 1:
            return flat.pop()
        flags = 0b111
        for part in flat:
            flags &= self._flags[part]
        anchors = 0
        for part in flat:
            anchors |= self._flags[part] & 0b01000
        return self._node((_AND, *sorted(flat)), (flags & 0b111) | anchors | 0b10000)

    def _as_one_repeat(self, parts: set[int]) -> set[int]:
        """``parts`` of a conjunction with all repeats of one set as one: ``[a-z]*`` beside
        ``.{2,9}`` is ``[a-z]{2,9}``."""
        repeats: list[tuple[int, ...]] = []
        for part in parts:
            node = self._nodes[part]
            if node[0] == _SET:
                repeats.append((part, node[1], 1, 1))
            elif node[0] == _REP and self._nodes[node[1]][0] == _SET:
                repeats.append((part, self._nodes[node[1]][1], *node[2:]))
        if len(repeats) < 2:
            return parts
        chars, least, most = self.alphabet.everything, 0, -1
        for _, mask, low, high in repeats:
            chars &= mask
            least = max(least, low)
            most = high if most < 0 else min(most, high) if high >= 0 else most
        one = self._repeat(self._set(chars), least, most)
        return {NONE} if one == NONE else {one, *parts.difference([item[0] for item in repeats])}

    def _not(self, body: int) -> int:
        if body == NONE:
            return self._all
        if body == self._all:
            return NONE
        node = self._nodes[body]
        if node[0] == _NOT:
            return node[1]
        flags = self._flags[body]
        return self._node((_NOT, body), (~flags & 0b111) | (flags & 0b01000) | 0b10000)

    # -- derivatives ------------------------------------------------------------------------

    def _raw(self, state: int) -> Moves:
        if state >= 0:
            return self._derive(state)
        if self._looks is not None or not self._flags[self._body] & 0b1000:
            return self._derive(self._body)
        merged: dict[int, int] = {}
        for mask, to in self._derive_at_start(self._body):
            to = self._without_start(to)
            merged[to] = merged.get(to, 0) | mask
        return tuple((mask, to) for to, mask in merged.items() if to != NONE)

    def _derive(self, node: int) -> Moves:
        moves = self._moves.get(node)
        if moves is None:
            # Of a long chain of optional parts the end comes first, or it would take as deep a
            # recursion.
            chain = [node]
            while True:
                kind, *args = self._nodes[chain[-1]]
                if kind != _CAT or args[1] in self._moves or not self._flags[args[0]] & 0b001:
                    break
                chain.append(args[1])
            for part in reversed(chain):
                moves = self._moves[part] = self._derivative(part, False)
            assert moves is not None
        return moves

    def _derive_at_start(self, node: int) -> Moves:
        """The derivative at the start of the text, where ``^`` is nullable."""
        if not self._flags[node] & 0b1000:
            return self._derive(node)
        return self._derivative(node, True)

    def _derivative(self, node: int, at_start: bool) -> Moves:
        if self._looks is not None and self._looks.are_in(node):
            return self._looks.derivative(node)
        kind, *args = self._nodes[node]
        derive = self._derive_at_start if at_start else self._derive
        if kind == _SET:
            return ((args[0], EPSILON),)
        if kind == _CAT:
            left, right = args
            moves = tuple((mask, self._cat(to, right)) for mask, to in derive(left))
            if self._nullable_here(left, at_start):
                return self._overlay([moves, derive(right)], self._alt)
            return moves
        if kind == _REP:
            body, least, most = args
            fewer = 0 if self._nullable_here(body, at_start) else max(least - 1, 0)
            rest = self._repeat(body, fewer, most - 1 if most > 0 else most)
            return tuple((mask, self._cat(to, rest)) for mask, to in derive(body))
        if kind == _ALT:
            return self._overlay([derive(part) for part in args], self._alt)
        if kind == _AND:
            return self._overlay([derive(part) for part in args], self._and, every=True)
        if kind == _NOT:
            out: list[tuple[int, int]] = []
            rest_mask = self.alphabet.everything
            for mask, to in derive(args[0]):
                rest_mask &= ~mask
                out.append((mask, self._not(to)))
            out.append((rest_mask, self._all))
            return tuple((mask, to) for mask, to in out if mask and to != NONE)
        return ()

    def _nullable_here(self, node: int, at_start: bool) -> bool:
        flags = self._flags[node]
        if not flags & 0b1000:
            return bool(flags & 0b001)
        return self._nullable_before_more(node, at_start)

    def _nullable_before_more(self, node: int, at_start: bool) -> bool:
        """Nullable with text still to come: ``$`` fails, ``^`` holds only at the start."""
        kind, *args = self._nodes[node]
        if kind == _START:
            return at_start
        if kind in (_END, _SET, NONE):
            return False
        if kind == EPSILON:
            return True
        if kind in (_CAT, _AND):
            return all(self._nullable_before_more(a, at_start) for a in args)
        if kind == _ALT:
            return any(self._nullable_before_more(a, at_start) for a in args)
        if kind == _REP:
            return args[1] == 0 or self._nullable_before_more(args[0], at_start)
        return not self._nullable_before_more(args[0], at_start)

    def _overlay(
        self, maps: list[Moves], combine: Callable[[Iterable[int]], int], every: bool = False
    ) -> Moves:
        """Combine move maps atom by atom; with ``every``, an atom missing in one is lost."""
        maps = [m for m in maps if m] if not every else maps
        if len(maps) == 1:
            return maps[0]
        groups: dict[tuple[int, ...], int] = {}
        for mask, targets in _common(maps) if every else _refined(maps):
            groups[targets] = groups.get(targets, 0) | mask
        merged: dict[int, int] = {}
        for targets, mask in groups.items():
            to = combine(targets) if len(targets) > 1 else targets[0]
            if to != NONE:
                merged[to] = merged.get(to, 0) | mask
        return tuple((mask, to) for to, mask in merged.items())

    def _without_start(self, node: int) -> int:
        """``node`` with every ``^`` made impossible: something has been read."""
        if not self._flags[node] & 0b1000:
            return node
        found = self._killed.get(node)
        if found is not None:
            return found
        kind, *args = self._nodes[node]
        if kind == _START:
            out = NONE
        elif kind == _CAT:
            out = self._cat(self._without_start(args[0]), self._without_start(args[1]))
        elif kind == _ALT:
            out = self._alt([self._without_start(a) for a in args])
        elif kind == _REP:
            out = self._repeat(self._without_start(args[0]), args[1], args[2])
        elif kind == _AND:
            out = self._and([self._without_start(a) for a in args])
        elif kind == _NOT:
            out = self._not(self._without_start(args[0]))
        else:
            out = node
        self._killed[node] = out
        return out

    # -- emptiness --------------------------------------------------------------------------

    def _parts_alive(self, node: int) -> bool:
        """`_is_alive` of a sequence, alternation or repeat without anchors: told by its parts."""
        while True:
            kind, *args = self._nodes[node]
            if kind == _ALT:
                return any(self._is_alive(part) for part in args)
            if kind == _REP:
                return args[1] == 0 or self._is_alive(args[0])
            if kind != _CAT:
                return self._is_alive(node)
            if not self._is_alive(args[0]):
                return False
            node = args[1]

    def _is_alive(self, node: int) -> bool:
        """Whether an accepting state can be reached from ``node``."""
        if not self._flags[node] & 0b11000:
            return node != NONE
        known = self._alive.get(node)
        if known is not None:
            return known
        if not self._flags[node] & 0b01000 and self._nodes[node][0] in (_CAT, _ALT, _REP):
            found = self._alive[node] = self._parts_alive(node)
            return found
        told = self._told_by_length(node)
        if told is not None:
            self._alive[node] = told
            return told
        return liveness.is_alive(node, self._alive, self._ends_or_is_plain, self._successors)

    def _told_by_length(self, node: int) -> bool | None:
        """`_is_alive` of a conjunction with ``.{a,b}``, where the shortest text of the rest tells.

        Most conjunctions are a pattern beside a length, far from its end: a search for one would
        go through as many states as characters are missing.
        """
        kind, *parts = self._nodes[node]
        if kind != _AND or self._flags[node] & 0b01000:
            return None
        for part in parts:
            other = self._nodes[part]
            if other[0] == _REP and other[1] == self._any:
                if other[3] >= 0 and self._least[node] > other[3]:
                    return False
                if len(parts) == 2:
                    rest = parts[0] if part == parts[1] else parts[1]
                    # Of what is plain the lower bound is the length of some text.
                    if not self._flags[rest] & 0b11000 and self._least[rest] >= other[2]:
                        return True
        return None

    def _ends_or_is_plain(self, node: int) -> bool:
        flags = self._flags[node]
        return bool(flags & 0b001) or (not flags & 0b11000 and node != NONE)

    def _successors(self, node: int) -> list[int]:
        return [to for _, to in self._derive(node)]


def _common(maps: list[Moves]) -> list[tuple[int, tuple[int, ...]]]:
    """The atoms that all of ``maps`` move on, by where each of them leads."""
    pieces: list[tuple[int, tuple[int, ...]]] = [(mask, (to,)) for mask, to in maps[0]]
    for moves in maps[1:]:
        pieces = [
            (common, (*targets, to))
            for mask, targets in pieces
            for other, to in moves
            if (common := mask & other)
        ]
    return pieces


def _refined(maps: list[Moves]) -> list[tuple[int, tuple[int, ...]]]:
    """The atoms that any of ``maps`` moves on, by where those lead that do."""
    if sum(mask.bit_count() for moves in maps for mask, _ in moves) <= 3 * len(maps):
        return _refined_by_atom(maps)
    pieces: list[tuple[int, tuple[int, ...]]] = [(mask, (to,)) for mask, to in maps[0]]
    for moves in maps[1:]:
        split: list[tuple[int, tuple[int, ...]]] = []
        for other, to in moves:
            untouched: list[tuple[int, tuple[int, ...]]] = []
            for piece in pieces:
                mask, targets = piece
                common = mask & other
                if not common:
                    untouched.append(piece)
                    continue
                split.append((common, (*targets, to)))
                other ^= common
                if mask != common:
                    untouched.append((mask ^ common, targets))
            pieces = untouched
            if other:
                split.append((other, (to,)))
        pieces += split
    return pieces


def _refined_by_atom(maps: list[Moves]) -> list[tuple[int, tuple[int, ...]]]:
    per_atom: dict[int, list[int]] = {}
    for moves in maps:
        for mask, to in moves:
            while mask:
                bit = mask & -mask
                mask ^= bit
                per_atom.setdefault(bit, []).append(to)
    return [(bit, tuple(targets)) for bit, targets in per_atom.items()]
